/* routes_meta.c - health, the event stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/jobs.h"
#include "server/list.h"
#include "server/prune.h"
#include "server/stream.h"
#include "server/text.h"
#include "trainer/protocol.h"

int handle_health(const struct request *rq, struct reply *rp, struct err *err)
{
    (void)err;
    rp->body = json_pack("{s:s, s:s}", "status", "ok", "version", rq->app->version);
    return 0;
}

/* The next word of a list with commas; false after the last or when it is too long. */
static bool next_word(const char **list, char *word, size_t size)
{
    const size_t n = strcspn(*list, ",");

    if (n == 0 || n >= size) {
        return false;
    }
    (void)snprintf(word, size, "%.*s", (int)n, *list);
    *list += n;
    *list += **list == ',';
    return true;
}

struct stream_order {
    const struct request *rq;
    struct stream_wish wish;
};

/* Every job named must be there and not hidden from the user. */
static int find_jobs(sqlite3 *db, void *argument, struct err *err)
{
    struct stream_order *o = argument;
    struct job_ref ref;
    int64_t pruned = 0;

    for (int i = 0; i < o->wish.job_count; i++) {
        TRY(job_find(db, o->wish.jobs[i], o->rq->who, DEED_SEE_JOB, &ref, err));
    }
    TRY(prune_newest(db, &pruned, err));
    if (o->wish.after >= 0 && o->wish.after < pruned) {
        o->wish.reset = true;
        o->wish.after = -1;
    }
    return 0;
}

static int read_jobs(const struct request *rq, struct stream_wish *w, struct err *err)
{
    const char *list = gate_query(rq->in, "jobs");

    while (list != NULL && *list != '\0') {
        if (w->job_count == STREAM_JOBS ||
            !next_word(&list, w->jobs[w->job_count], sizeof w->jobs[0])) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "jobs", "jobs is a list of at most %d job ids",
                              STREAM_JOBS);
        }
        w->job_count++;
    }
    return 0;
}

static int read_topics(const struct request *rq, struct stream_wish *w, struct err *err)
{
    const char *list = gate_query(rq->in, "topics");
    char word[32];

    while (list != NULL && *list != '\0') {
        if (!next_word(&list, word, sizeof word)) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "topics", "topics is a list of event types");
        }
        const bool job = strcmp(word, "job") == 0;
        const enum event_type type = job ? EVENT_COUNT : event_from_word(word);
        if (type == EVENT_COUNT && !job) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "topics", "\"%s\" is not a type of event",
                              word);
        }
        w->topics |= 1U << type;
    }
    return 0;
}

/* EPOCH-N; anything else, of another store, or before events that were removed, asks for `reset`. */
static void read_last_id(const struct request *rq, struct stream_wish *w)
{
    const char *id = request_header(rq, "Last-Event-ID");
    const char *epoch = store_epoch(rq->app->store);

    id = id != NULL ? id : gate_query(rq->in, "lastEventId");
    w->after = -1;
    if (id != NULL && id[0] != '\0') {
        const size_t size = strlen(epoch);
        w->reset = strncmp(id, epoch, size) != 0 || id[size] != '-' ||
                   !text_number(id + size + 1, INT64_MAX - 1, &w->after);
        w->after = w->reset ? -1 : w->after;
    }
}

static int still_may(sqlite3 *db, void *argument, struct err *err)
{
    const struct stream_order *o = argument;

    return auth_still(db, &o->wish.who, err);
}

int handle_stream(const struct request *rq, struct reply *rp, struct err *err)
{
    struct stream_order o = {.rq = rq, .wish = {.who = *rq->who}};

    TRY(read_jobs(rq, &o.wish, err));
    TRY(read_topics(rq, &o.wish, err));
    read_last_id(rq, &o.wish);
    TRY(store_read(rq->app->store, find_jobs, &o, err));
    if (rq->in->method != METHOD_HEAD) { /* nobody would read it */
        TRY(stream_begin(&rp->stream, rq->app->streams, &o.wish, err));
        /* who lost a right before the stream was there to be ended must not have it */
        TRY(store_read(rq->app->store, still_may, &o, err));
    }
    reply_add(rp, "Content-Type", "text/event-stream");
    reply_add(rp, "X-Accel-Buffering", "no");
    return 0;
}
