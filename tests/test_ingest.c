/* test_ingest.c - lines of events.jsonl reach the store exactly once, whatever happens between. */
#include "server/ingest.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/server.h"

/* A reading of a job's folder, kept over several transactions. */
struct reading {
    struct job_ref ref;
    struct event_reader *reader;
    struct ingested got;
    int limit;
    bool fails; /* after reading, so that all is undone */
    const char *id;
};

static int find(sqlite3 *db, void *argument, struct err *err)
{
    struct reading *r = argument;

    return job_find(db, r->id, NULL, DEED_SEE_JOB, &r->ref, err);
}

static int read_some(struct tx *tx, void *argument, struct err *err)
{
    struct reading *r = argument;

    TRY(ingest_read(tx, &r->ref, r->reader, r->limit, &r->got, err));
    return r->fails ? FAIL(err, ERR_IO, "the disk is gone") : 0;
}

static int64_t number(struct store *s, const char *sql);

/* Read what is there, `limit` lines a time; every third time the transaction fails at its end. */
static void read_all(struct store *s, const char *dir, const char *id, int limit)
{
    struct reading r = {.limit = limit, .id = id};
    struct err err = {0};

    for (int turn = 0;; turn++) {
        EXPECT(store_read(s, find, &r, &err) == 0);
        EXPECT(event_reader_open(&r.reader, dir, r.ref.tail_offset, &err) == 0);
        r.fails = turn % 3 == 1;
        const int rc = store_write(s, read_some, &r, &err);
        event_reader_close(r.reader);
        EXPECT((rc != 0) == r.fails);
        if (rc == 0 && r.got.events < limit) {
            return;
        }
    }
}

static void append(const char *dir, const char *text)
{
    char path[IO_PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/events.jsonl", dir);
    FILE *f = fopen(path, "ab");
    CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0, "cannot append to %s", path);
}

/* A count from the store. */
struct question {
    const char *sql;
    int64_t answer;
};

static int answer(sqlite3 *db, void *argument, struct err *err)
{
    struct question *q = argument;

    return db_integer(&q->answer, -1, db, err, q->sql, "");
}

static int64_t number(struct store *s, const char *sql)
{
    struct question q = {.sql = sql};
    struct err err = {0};

    EXPECT(store_read(s, answer, &q, &err) == 0);
    return q.answer;
}

static const char *make_folder(const char *name)
{
    const char *dir = in_scratch(name);
    struct err err = {0};

    CHECK(io_make_dir(dir, &err) == 0, "%s", err.text);
    return dir;
}

static void every_line_is_stored_once(void)
{
    static const int limits[] = {1, 2, 7, 1000};

    for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++) {
        char name[32], line[200];
        (void)snprintf(name, sizeof name, "once%zu", k);
        const char *dir = make_folder(name);
        (void)snprintf(name, sizeof name, "store%zu", k);
        struct store *s = open_store_with_job(name, "job-a");
        append(dir, "{\"t\":1,\"attempt\":1,\"type\":\"ready\",\"total_steps\":60,\"parameters\":5,"
                    "\"memory_bytes\":7}\n");
        for (int step = 1; step <= 60; step++) {
            (void)snprintf(
                line, sizeof line,
                "{\"t\":%d.5,\"attempt\":1,\"type\":\"metrics\",\"step\":%d,\"loss\":%d.25,"
                "\"lr\":0.1,\"grad_norm\":1,\"tokens_per_s\":9}\n",
                step, step, 100 - step);
            const size_t half = strlen(line) / 2;
            char part[sizeof line];
            memcpy(part, line, half);
            part[half] = '\0';
            append(dir, part); /* a torn line is not read */
            read_all(s, dir, "job-a", limits[k]);
            append(dir, line + half);
            if (step % 4 == 0) {
                read_all(s, dir, "job-a", limits[k]);
            }
        }
        read_all(s, dir, "job-a", limits[k]);
        EXPECT(number(s, "SELECT COUNT(*) FROM events WHERE type='metrics'") == 60);
        EXPECT(number(s, "SELECT COUNT(*) FROM curve WHERE level=0") == 60);
        EXPECT(number(s, "SELECT SUM(n) FROM curve WHERE level=2") == 60);
        EXPECT(number(s,
                      "SELECT COUNT(*) FROM jobs WHERE state='running' AND step=60 AND"
                      " loss=40.25 AND total_steps=60 AND parameters=5 AND memory_bytes=7") == 1);
        store_close(s);
    }
}

static void a_resumed_run_voids_the_points_behind_it(void)
{
    const char *dir = make_folder("resumed");
    struct store *s = open_store_with_job("resumed-store", "job-a");
    char line[200];

    for (int step = 1; step <= 50; step++) {
        (void)snprintf(line, sizeof line,
                       "{\"t\":1,\"attempt\":1,\"type\":\"metrics\",\"step\":%d,\"loss\":1}\n"
                       "{\"t\":1,\"attempt\":1,\"type\":\"eval\",\"step\":%d,\"loss\":2}\n",
                       step, step);
        append(dir, line);
    }
    append(dir, "{\"t\":2,\"attempt\":2,\"type\":\"resumed\",\"from_step\":20}\n"
                "{\"t\":3,\"attempt\":2,\"type\":\"metrics\",\"step\":21,\"loss\":5}\n");
    read_all(s, dir, "job-a", 10);
    EXPECT(number(s, "SELECT COUNT(*) FROM curve WHERE level=0") == 21);
    EXPECT(number(s, "SELECT loss_sum FROM curve WHERE level=0 AND bucket=21") == 5);
    EXPECT(number(s, "SELECT COUNT(*) FROM evals") == 20);
    EXPECT(number(s, "SELECT step FROM jobs") == 21);
    store_close(s);
}

static void checkpoints_come_and_go(void)
{
    const char *dir = make_folder("checkpoints");
    struct store *s = open_store_with_job("checkpoints-store", "job-a");

    append(dir,
           "{\"t\":5.5,\"attempt\":1,\"type\":\"checkpoint\",\"step\":10,\"dir\":\"checkpoints/a\","
           "\"bytes\":9,\"sha256\":\"x\",\"final\":false}\n"
           "{\"t\":6,\"attempt\":1,\"type\":\"checkpoint\",\"step\":20,\"dir\":\"checkpoints/b\","
           "\"bytes\":9,\"sha256\":\"y\",\"final\":true}\n"
           "{\"t\":6,\"attempt\":1,\"type\":\"checkpoint\",\"step\":20,\"dir\":\"checkpoints/b\","
           "\"bytes\":9,\"sha256\":\"z\",\"final\":true}\n"
           "{\"t\":7,\"attempt\":1,\"type\":\"checkpoint_deleted\",\"step\":10}\n");
    read_all(s, dir, "job-a", 10);
    EXPECT(number(s, "SELECT COUNT(*) FROM checkpoints") == 1);
    EXPECT(number(s, "SELECT step FROM checkpoints WHERE sha256='z' AND final=1") == 20);
    store_close(s);
}

static void the_best_checkpoint_and_accuracies_are_kept(void)
{
    const char *dir = make_folder("best");
    struct store *s = open_store_with_job("best-store", "job-a");

    append(
        dir,
        "{\"t\":1,\"attempt\":1,\"type\":\"eval\",\"step\":10,\"loss\":2,\"accuracy\":0.5}\n"
        "{\"t\":2,\"attempt\":1,\"type\":\"checkpoint\",\"step\":10,\"dir\":\"a\",\"best\":true}\n"
        "{\"t\":3,\"attempt\":1,\"type\":\"eval\",\"step\":20,\"loss\":1,\"accuracy\":null}\n"
        "{\"t\":4,\"attempt\":1,\"type\":\"checkpoint\",\"step\":20,\"dir\":\"b\",\"best\":true}\n"
        "{\"t\":5,\"attempt\":1,\"type\":\"sample\",\"step\":20,\"index\":0,\"text\":\"x\"}\n"
        "{\"t\":6,\"attempt\":1,\"type\":\"early_stopping\",\"step\":30,\"best_step\":20}\n"
        "{\"t\":7,\"attempt\":1,\"type\":\"checkpoint\",\"step\":30,\"dir\":\"c\",\"best\":false}"
        "\n");
    read_all(s, dir, "job-a", 10);
    EXPECT(number(s, "SELECT COUNT(*) FROM checkpoints") == 3);
    EXPECT(number(s, "SELECT SUM(step) FROM checkpoints WHERE best=1") == 20);
    EXPECT(number(s, "SELECT 100*accuracy FROM evals WHERE step=10") == 50);
    EXPECT(number(s, "SELECT COUNT(*) FROM evals WHERE accuracy IS NULL") == 1);
    store_close(s);
}

static void strange_lines_harm_nothing(void)
{
    static const char *const lines[] = {
        "not json\n",
        "[1,2]\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"from the future\",\"step\":1}\n",
        "{\"t\":1,\"attempt\":1}\n",
        "{}\n",
        "\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"metrics\"}\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"metrics\",\"step\":-4,\"loss\":1}\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"metrics\",\"step\":\"3\",\"loss\":1}\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"metrics\",\"step\":3,\"loss\":null,\"finite\":false}\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"checkpoint\",\"step\":null,\"dir\":7}\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"stage\",\"stage\":\"dancing\"}\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"progress\",\"stage\":5,\"done\":\"x\"}\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"resumed\",\"from_step\":-1}\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"eval\",\"step\":9223372036854775807,\"loss\":[]}\n",
        "{\"t\":1,\"attempt\":1,\"type\":\"metrics\",\"step\":7,\"loss\":1}\n",
    };
    const char *dir = make_folder("strange");
    struct store *s = open_store_with_job("strange-store", "job-a");

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        append(dir, lines[i]);
    }
    read_all(s, dir, "job-a", 3);
    EXPECT(number(s, "SELECT COUNT(*) FROM curve WHERE level=0") == 2);
    EXPECT(number(s, "SELECT step FROM jobs WHERE stage IS NULL") == 7);
    EXPECT(
        number(s, "SELECT COUNT(*) FROM events WHERE type='warning' AND body LIKE '%skipped%'") >=
        4);
    EXPECT(number(s, "SELECT COUNT(*) FROM checkpoints") == 0);
    store_close(s);
}

int main(void)
{
    scratch_make();
    RUN(every_line_is_stored_once);
    RUN(a_resumed_run_voids_the_points_behind_it);
    RUN(checkpoints_come_and_go);
    RUN(the_best_checkpoint_and_accuracies_are_kept);
    RUN(strange_lines_harm_nothing);
    scratch_remove();
    return tap_done();
}
