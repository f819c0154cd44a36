/* save_behind.c - threads that write, and the polls between them. */
#include "trainer/save_behind.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "trainer/agree.h"
#include "trainer/ckpt/snapshot.h"
#include "trainer/ckpt/state.h"

enum phase { WRITING, COMMITTING };

struct save_behind {
    struct engine *e;
    struct checkpoint_save *save; /* owned; NULL but in the first rank */
    struct state_save *state;     /* owned                             */
    enum phase phase;
    pthread_t thread;
    bool runs;        /* the thread is to be joined */
    atomic_bool done; /* it has ended               */
    int rc;           /* the thread's until joined  */
    struct err err;
    struct checkpoint out;
};

static void *work(void *argument)
{
    struct save_behind *s = argument;

    s->rc = s->phase == WRITING ? state_save_write(s->state, &s->err)
                                : save_complete(&s->save, s->state, &s->out, &s->err);
    atomic_store(&s->done, true);
    return NULL;
}

/* Where there is no thread to be had the work is done at once. */
static void start(struct save_behind *s)
{
    atomic_store(&s->done, false);
    s->runs = pthread_create(&s->thread, NULL, work, s) == 0;
    if (!s->runs) {
        (void)work(s);
    }
}

static void join(struct save_behind *s)
{
    if (s->runs) {
        (void)pthread_join(s->thread, NULL);
        s->runs = false;
    }
}

static void release(struct save_behind *s)
{
    state_save_free(s->state);
    checkpoint_abort(s->save);
    free(s);
}

int save_behind_begin(struct save_behind **out, struct engine *e, const struct job_folder *job,
                      const struct inputs *in, const struct progress *at, struct err *err)
{
    const struct model copies = snapshot_model(e->model);
    struct save_behind *s = calloc(1, sizeof *s);
    int rc = s == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory to save") : 0;

    *out = NULL;
    rc = agree(&e->world, &e->q, rc, err);
    if (s == NULL || rc != 0) {
        free(s);
        return rc;
    }
    s->e = e;
    s->out = (struct checkpoint){.step = at->step};
    rc = save_open(&s->save, &s->state, e, &copies, job, in, at, err);
    if (rc != 0) {
        release(s);
        return rc;
    }
    snapshot_take(e->model);
    start(s);
    *out = s;
    return 0;
}

/* Whether all ranks are ready. */
static bool all_ready(struct save_behind *s)
{
    double busy = s->runs && !atomic_load(&s->done) ? 1 : 0;
    const struct tensor t = tensor_make(&busy, DTYPE_F64, 1, 1);
    struct engine *e = s->e;

    comm_wait(&e->world, &e->q, comm_start_all_reduce(&e->world, &e->q, t, COMM_MAX));
    return !(busy > 0);
}

bool save_behind_poll(struct save_behind **save, bool wait, struct checkpoint *out, int *rc,
                      struct err *err)
{
    struct save_behind *s = *save;

    for (;;) {
        if (!wait && !all_ready(s)) {
            return false;
        }
        join(s);
        *err = s->err;
        *rc = agree(&s->e->world, &s->e->q, s->rc, err);
        if (*rc != 0 || s->phase == COMMITTING) {
            break;
        }
        s->phase = COMMITTING;
        if (s->e->world.rank == 0) {
            start(s);
        }
        if (!wait) {
            return false;
        }
    }
    *out = s->out;
    release(s);
    *save = NULL;
    return true;
}

void save_behind_drop(struct save_behind *s)
{
    if (s != NULL) {
        join(s);
        release(s);
    }
}
