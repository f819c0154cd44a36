/* reader.c - batches made ahead by threads.
 *
 * Batch number b lies in slot b % slots. A worker takes the next number that no worker has, waits until its slot
 * is free, fills it. Which thread makes a batch does not matter: a batch is a function of the samples before it.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/data/data.h"
#include "trainer/ramp.h"

struct slot {
    struct data_rows rows; /* in reader.memory */
    int64_t trained;
    int64_t ready; /* the batch it holds, -1: none yet */
};

struct data_reader {
    struct data_set set;
    struct data_reader_options o;
    struct ramp ramp;
    int32_t *memory;    /* owned */
    struct slot *slots; /* owned */
    int slot_count;
    pthread_t *threads; /* owned */
    int running;        /* threads that were started */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Guarded by lock: */
    int64_t taken; /* batches that workers have taken on      */
    int64_t next;  /* sample that the next of these begins with */
    int64_t given; /* batches that the caller has asked for   */
    bool stop;     /* and slots[].ready                       */
};

static int slots_for(int workers)
{
    return workers > 0 ? workers + 2 : 1;
}

size_t data_reader_bytes(const struct data_set *s, const struct data_reader_options *o)
{
    return (size_t)slots_for(o->workers) * 4 * (size_t)o->count * (size_t)s->S * sizeof(int32_t);
}

/* The samples of the next batch. */
struct samples {
    int64_t at, count;
};

static struct samples take(struct data_reader *r)
{
    const struct samples s = {r->next, ramp_at(&r->ramp, r->next)};

    r->next += s.count;
    r->taken++;
    return s;
}

static void fill(struct data_reader *r, struct slot *s, struct samples of)
{
    s->trained = data_batch(&r->set, &s->rows, of.at, of.count, r->o.total);
}

static void *work(void *context)
{
    struct data_reader *r = context;

    (void)pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        /* The caller still reads the batch that was given last. */
        if (r->taken >= r->given - 1 + r->slot_count) {
            (void)pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        const int64_t batch = r->taken;
        const struct samples of = take(r);
        struct slot *s = &r->slots[batch % r->slot_count];
        (void)pthread_mutex_unlock(&r->lock);
        fill(r, s, of);
        (void)pthread_mutex_lock(&r->lock);
        s->ready = batch;
        (void)pthread_cond_broadcast(&r->changed);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

static int start(struct data_reader *r, struct err *err)
{
    const size_t row_ints = (size_t)r->o.count * (size_t)r->set.S;

    r->memory = malloc(data_reader_bytes(&r->set, &r->o));
    r->slots = calloc((size_t)r->slot_count, sizeof *r->slots);
    r->threads = calloc((size_t)r->o.workers + 1, sizeof *r->threads);
    if (r->memory == NULL || r->slots == NULL || r->threads == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %d batches of %lld samples", r->slot_count,
                    (long long)r->o.count);
    }
    /* Touched now, not while training. */
    memset(r->memory, 0, data_reader_bytes(&r->set, &r->o));
    for (int i = 0; i < r->slot_count; i++) {
        int32_t *at = r->memory + (size_t)i * 4 * row_ints;
        r->slots[i].rows = (struct data_rows){.ids = at,
                                              .labels = at + row_ints,
                                              .positions = at + 2 * row_ints,
                                              .first = at + 3 * row_ints};
        r->slots[i].ready = -1;
    }
    for (int i = 0; i < r->o.workers; i++) {
        const int rc = pthread_create(&r->threads[i], NULL, work, r);
        if (rc != 0) {
            return FAIL(err, ERR_NO_MEMORY, "starting a data worker failed: %s", strerror(rc));
        }
        r->running++;
    }
    return 0;
}

int data_reader_open(struct data_reader **out, const struct data_set *s,
                     const struct data_reader_options *o, struct err *err)
{
    struct data_reader *r = calloc(1, sizeof *r);

    *out = NULL;
    CHECK(o->count > 0 && o->workers >= 0 && o->consumed >= 0, "count %lld, workers %d",
          (long long)o->count, o->workers);
    if (r == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a reader of samples");
    }
    r->set = *s;
    r->o = *o;
    r->next = o->consumed;
    r->ramp = (struct ramp){.count = 1, .size = {o->count}, .sequence = s->S};
    if (o->ramp != NULL) {
        r->ramp = *o->ramp;
    }
    CHECK(ramp_largest(&r->ramp) <= o->count, "rows of %lld", (long long)o->count);
    r->slot_count = slots_for(o->workers);
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->changed, NULL);
    const int rc = start(r, err);
    if (rc != 0) {
        data_reader_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

int64_t data_reader_next(struct data_reader *r, const struct data_rows **rows)
{
    struct slot *s = &r->slots[r->given % r->slot_count];

    if (r->o.workers == 0) {
        r->given++;
        fill(r, s, take(r));
        *rows = &s->rows;
        return s->trained;
    }
    (void)pthread_mutex_lock(&r->lock);
    const int64_t batch = r->given++;
    (void)pthread_cond_broadcast(&r->changed); /* the slot before is free now */
    while (s->ready != batch) {
        (void)pthread_cond_wait(&r->changed, &r->lock);
    }
    (void)pthread_mutex_unlock(&r->lock);
    *rows = &s->rows;
    return s->trained;
}

void data_reader_close(struct data_reader *r)
{
    if (r == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&r->lock);
    r->stop = true;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->running; i++) {
        (void)pthread_join(r->threads[i], NULL);
    }
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
    free(r->threads);
    free(r->slots);
    free(r->memory);
    free(r);
}
