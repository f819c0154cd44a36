/* board.c - the last plan of the queue. */
#include "server/board.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/log.h"

enum { TEXT_SIZE = 256 };

/* What is told of a job. */
struct entry {
    int64_t seq;
    struct queue_wait wait;
    struct need need;
    int64_t likely_at; /* end of a run; 0 for waiting jobs */
};

struct board {
    const struct machine *machine;
    pthread_mutex_t lock; /* guards what follows */
    int count, waiting, name_count;
    struct entry *entries;   /* owned; by seq */
    int *order;              /* owned; entries of waiting jobs, by position */
    struct desk_name *names; /* owned */
    int64_t head_seq, head_at;
    uint64_t head_devices;
};

int board_open(struct board **out, const struct machine *m, struct err *err)
{
    struct board *b = calloc(1, sizeof *b);

    if (b == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the board");
    }
    b->machine = m;
    pthread_mutex_init(&b->lock, NULL);
    *out = b;
    return 0;
}

void board_close(struct board *b)
{
    if (b != NULL) {
        pthread_mutex_destroy(&b->lock);
        free(b->entries);
        free(b->order);
        free(b->names);
        free(b);
    }
}

static bool has_started(const struct desk_round *r, int64_t seq)
{
    for (int i = 0; i < r->started_count; i++) {
        if (r->started[i].seq == seq) {
            return true;
        }
    }
    return false;
}

/* What is asked of a board that has no memory for a new plan is answered from none. */
void board_put(struct board *b, const struct desk_round *r)
{
    const int count = r->queue.job_count;
    struct entry *entries = calloc((size_t)count + 1, sizeof *entries);
    int *order = calloc((size_t)count + 1, sizeof *order);
    struct desk_name *names = calloc((size_t)r->name_count + 1, sizeof *names);
    const bool is_whole = entries != NULL && order != NULL && names != NULL;
    int waiting = 0;

    for (int i = 0; i < count && is_whole; i++) {
        const struct queue_job *j = &r->queue.jobs[i];
        entries[i] = (struct entry){.seq = j->seq,
                                    .wait = r->plan.waits[i],
                                    .need = j->need,
                                    .likely_at = j->held != 0 ? j->likely_at : 0};
    }
    for (int k = 0; k < r->plan.waiting && is_whole; k++) {
        const int i = r->plan.order[k];
        if (!has_started(r, r->queue.jobs[i].seq)) {
            order[waiting++] = i;
            entries[i].wait.position = waiting;
        } else {
            entries[i].wait.position = 0;
        }
    }
    if (is_whole && r->name_count > 0) {
        memcpy(names, r->names, (size_t)r->name_count * sizeof *names);
    }
    pthread_mutex_lock(&b->lock);
    struct entry *old_entries = b->entries;
    int *old_order = b->order;
    struct desk_name *old_names = b->names;
    b->entries = entries;
    b->order = order;
    b->names = names;
    b->count = is_whole ? count : 0;
    b->waiting = waiting;
    b->name_count = is_whole ? r->name_count : 0;
    b->head_seq = r->plan.head >= 0 ? r->queue.jobs[r->plan.head].seq : 0;
    b->head_at = r->plan.head_at;
    b->head_devices = r->plan.head_devices;
    pthread_mutex_unlock(&b->lock);
    free(old_entries);
    free(old_order);
    free(old_names);
}

static int by_seq(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;

    return left->seq < right->seq ? -1 : left->seq > right->seq;
}

/* What a pass foresaw and has not come yet is to come now. */
static json_t *time_or_null(int64_t at)
{
    const int64_t now = (int64_t)time(NULL);

    return at > 0 ? json_integer(at > now ? at : now) : json_null();
}

/* Which devices a run has and how they are joined, in words: of a job its "device_ids", of a row of the queue its
 * "devices". */
static void tell_placement(const struct machine *m, json_t *job)
{
    const json_t *ids = json_object_get(job, "device_ids"), *id = NULL;
    char text[TEXT_SIZE];
    uint64_t set = 0;
    size_t i = 0;

    json_array_foreach(ids != NULL ? ids : json_object_get(job, "devices"), i, id)
    {
        const int device = json_is_string(id) ? machine_device(m, json_string_value(id)) : -1;
        set |= device >= 0 ? UINT64_C(1) << device : 0;
    }
    place_words(text, sizeof text, m, set);
    (void)json_object_set_new(job, "placement", set != 0 ? json_string(text) : json_null());
}

void board_tell(struct board *b, int64_t seq, json_t *job)
{
    const char *state = json_string_value(json_object_get(job, "state"));
    const struct entry key = {.seq = seq};
    char text[TEXT_SIZE] = "";

    pthread_mutex_lock(&b->lock);
    const struct entry *found =
        b->count == 0 ? NULL : bsearch(&key, b->entries, (size_t)b->count, sizeof key, by_seq);
    const struct entry e = found != NULL ? *found : key;
    if (found != NULL && e.wait.position > 0) {
        desk_words(text, sizeof text, b->machine, &e.wait, &e.need, b->names, b->name_count);
    }
    pthread_mutex_unlock(&b->lock);
    tell_placement(b->machine, job);
    if (found == NULL || state == NULL) {
        return;
    }
    /* the job may have moved on since the pass */
    if (e.wait.position > 0 && strcmp(state, "queued") == 0) {
        job_say_why(job, text);
        (void)json_object_set_new(job, "reason_code", json_string(queue_reason_word(e.wait.why)));
        (void)json_object_set_new(job, "position", json_integer(e.wait.position));
        (void)json_object_set_new(job, "expected_start_at", time_or_null(e.wait.expected_at));
    } else if (e.likely_at > 0 && strcmp(state, "queued") != 0) {
        (void)json_object_set_new(job, "expected_end_at", time_or_null(e.likely_at));
    }
}

struct listed {
    struct board *board;
    json_t *jobs;
};

static int tell_each(sqlite3 *db, void *argument, struct err *err)
{
    const struct listed *l = argument;
    json_t *job = NULL;
    size_t i = 0;

    json_array_foreach(l->jobs, i, job)
    {
        int64_t seq = 0;
        TRY(db_integer(&seq, 0, db, err, "SELECT seq FROM jobs WHERE id=?", "s",
                       json_string_value(json_object_get(job, "id"))));
        board_tell(l->board, seq, job);
    }
    return 0;
}

void board_tell_all(struct board *b, struct store *store, json_t *jobs)
{
    struct listed l = {.board = b, .jobs = jobs};
    struct err err = {0};

    if (store_read(store, tell_each, &l, &err) != 0) {
        log_line("board: %s", err.text); /* the objects are as the store has them */
    }
}

int board_order(struct board *b, int limit, int64_t **seqs, int *count, int *total, struct err *err)
{
    pthread_mutex_lock(&b->lock);
    *total = b->waiting;
    *count = b->waiting < limit ? b->waiting : limit;
    *seqs = malloc(((size_t)*count + 1) * sizeof **seqs);
    for (int k = 0; k < *count && *seqs != NULL; k++) {
        (*seqs)[k] = b->entries[b->order[k]].seq;
    }
    pthread_mutex_unlock(&b->lock);
    return *seqs != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for the queue");
}

bool board_head(struct board *b, int64_t *seq, int64_t *at, uint64_t *devices)
{
    pthread_mutex_lock(&b->lock);
    *seq = b->head_seq;
    *at = b->head_at;
    *devices = b->head_devices;
    pthread_mutex_unlock(&b->lock);
    return *seq != 0;
}
