/* test_stream.c - where a stream begins: with what comes, behind the last event that the client has, or anew. */
#include "server/stream.h"

#include <string.h>

#include "server/prune.h"
#include "server/route.h"
#include "tests/server.h"

/* A store with 30 events of a job that has ended, all but 5 of them removed, and what serves streams of it. */
struct bench {
    struct app app;
    struct workers *workers;
    struct new_token token;
    struct identity who;
};

static int add_events(struct tx *tx, void *unused, struct err *err)
{
    (void)unused;
    for (int i = 0; i < 30; i++) {
        TRY(db_run(tx->db, err, "INSERT INTO events(job_seq, type, body) VALUES(1,'stage','{}')",
                   ""));
    }
    return db_run(tx->db, err, "UPDATE jobs SET state='failed', finished_at=5", "");
}

static int add_token(struct tx *tx, void *argument, struct err *err)
{
    struct bench *b = argument;

    return token_add(tx, 1, "mine", 0, &b->token, err);
}

static int use_token(sqlite3 *db, void *argument, struct err *err)
{
    struct bench *b = argument;

    return auth_by_token(db, b->token.text, &b->who, err);
}

static void open_bench(struct bench *b, const char *name)
{
    struct err err = {0};
    int64_t removed = 0;

    *b = (struct bench){0};
    b->app.store = open_store_with_job(name, "job-aaaaaaaaaaaaaa");
    EXPECT(store_write(b->app.store, add_events, NULL, &err) == 0);
    EXPECT(prune_events(b->app.store, 10, 5, &removed, &err) == 0 && removed == 25);
    EXPECT(store_write(b->app.store, add_token, b, &err) == 0);
    EXPECT(store_read(b->app.store, use_token, b, &err) == 0);
    EXPECT(workers_open(&b->workers, 1, &err) == 0);
    EXPECT(streams_open(&b->app.streams, b->app.store, b->workers, 4, &err) == 0);
}

static void close_bench(struct bench *b)
{
    streams_shut(b->app.streams);
    workers_stop(b->workers);
    workers_close(b->workers);
    streams_close(b->app.streams);
    store_close(b->app.store);
}

/* Whether a client whose last event is number n is told that it missed some. */
static bool is_reset(struct bench *b, int64_t n)
{
    char id[64], text[4096];
    struct gate_request in = {.method = METHOD_GET};
    struct gate_header header = {"Last-Event-ID", id, strlen("Last-Event-ID"), 0};
    struct request rq = {
        .app = &b->app, .in = &in, .headers = &header, .header_count = 1, .who = &b->who};
    struct reply rp = {.fd = -1};
    struct err err = {0};

    (void)snprintf(id, sizeof id, "%s-%lld", store_epoch(b->app.store), (long long)n);
    header.value_size = strlen(id);
    EXPECT(handle_stream(&rq, &rp, &err) == 0);
    const ssize_t size = stream_read(rp.stream, 0, text, sizeof text - 1);
    EXPECT(size > 0);
    text[size > 0 ? size : 0] = '\0';
    stream_end(rp.stream);
    return strstr(text, "event: reset") != NULL;
}

static void who_comes_from_before_the_removed_events_begins_anew(void)
{
    struct bench b;

    open_bench(&b, "pruned");
    EXPECT(is_reset(&b, 0) && is_reset(&b, 10) && is_reset(&b, 24));
    EXPECT(!is_reset(&b, 25) && !is_reset(&b, 27) && !is_reset(&b, 30));
    EXPECT(is_reset(&b, 31)); /* a number that was never given */
    close_bench(&b);
}

static int become_viewer(struct tx *tx, void *unused, struct err *err)
{
    (void)unused;
    return db_run(tx->db, err, "UPDATE users SET role='viewer'", "");
}

static void who_lost_a_right_since_he_was_asked_who_he_is_gets_no_stream(void)
{
    struct bench b;
    struct gate_request in = {.method = METHOD_GET};
    struct request rq = {.app = &b.app, .in = &in, .who = &b.who};
    struct reply rp = {.fd = -1};
    struct err err = {0};

    open_bench(&b, "late");
    EXPECT(store_write(b.app.store, become_viewer, NULL, &err) == 0);
    EXPECT(handle_stream(&rq, &rp, &err) == ERR_UNAUTHORIZED);
    stream_end(rp.stream); /* as the reply does */
    close_bench(&b);
}

int main(void)
{
    scratch_make();
    RUN(who_lost_a_right_since_he_was_asked_who_he_is_gets_no_stream);
    RUN(who_comes_from_before_the_removed_events_begins_anew);
    scratch_remove();
    return tap_done();
}
