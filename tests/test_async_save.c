/* test_async_save.c - checkpoints that are written behind training: the very files of those written between two steps, and
 * training goes on meanwhile.
 */
#include "tests/resume.h"

#define ASYNC ",\"async_save\":\"yes\""

/* Hashes of weights and optimizer state of the checkpoint of a step. */
static void expect_same_checkpoint(const char *one, const char *other, int step)
{
    char path[PATH + 60];
    struct manifest m[2];
    struct err err = {0};

    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s/checkpoints/step-%08d", scratch,
                       i == 0 ? one : other, step);
        CHECK(manifest_read(&m[i], path, &err) == 0, "%s", err.text);
        EXPECT(manifest_check_hashes(&m[i], path, &err) == 0);
    }
    for (int k = 0; k < m[0].count; k++) {
        const struct manifest_file *a = &m[0].files[k], *b = manifest_find(&m[1], a->name);
        const bool same = b != NULL && strcmp(a->sha256, b->sha256) == 0;
        EXPECT(same || strcmp(a->name, "trainer.json") == 0); /* it has the request */
        EXPECT(strncmp(a->name, "model", 5) != 0 || same);
    }
    EXPECT(m[0].count == m[1].count);
    manifest_fini(&m[0]);
    manifest_fini(&m[1]);
}

/* Checkpoints before the last that were told when a later step had been trained, and those told before. */
static void count_late(const char *name, int late[2])
{
    struct event_reader *reader = NULL;
    enum event_found found = EVENT_FOUND_NONE;
    char dir[PATH];
    struct event e;
    struct err err = {0};
    json_int_t trained = 0;

    (void)snprintf(dir, sizeof dir, "%s/%s", scratch, name);
    late[0] = late[1] = 0;
    CHECK(event_reader_open(&reader, dir, 0, &err) == 0, "%s", err.text);
    while (event_reader_next(reader, &found, &e, &err) == 0 && found == EVENT_FOUND) {
        const json_int_t step = json_integer_value(json_object_get(e.object, "step"));
        trained = e.type == EVENT_METRICS ? step : trained;
        if (e.type == EVENT_CHECKPOINT && step < STEPS) {
            late[trained > step]++;
        }
        EXPECT(e.type != EVENT_CHECKPOINT_FAILED);
        EXPECT(e.type != EVENT_CHECKPOINT ||
               json_is_true(json_object_get(e.object, "final")) == (step == STEPS));
    }
    event_reader_close(reader);
}

#define TINY ",\"micro_batch_size\":1,\"threads\":1,\"keep_checkpoints\":9"

static void what_is_written_behind_training_is_what_it_was(void)
{
    static const char *const layouts[] = {
        "", ",\"precision\":\"bf16\"",
        ",\"devices\":4,\"tensor_model_parallel_size\":2,\"use_distributed_optimizer\":\"yes\"",
        ",\"pipeline_model_parallel_size\":2,\"precision\":\"bf16\""};

    for (int i = 0; i < 4; i++) {
        char name[2][32], more[2][400];
        struct outcome out[2];
        int late[2];

        for (int k = 0; k < 2; k++) {
            (void)snprintf(name[k], sizeof name[k], "%s-%d", k == 0 ? "between" : "behind", i);
            (void)snprintf(more[k], sizeof more[k], "%s%s%s", TINY, layouts[i],
                           k == 0 ? "" : ASYNC);
            out[k] = run_through(name[k], more[k]);
        }
        EXPECT(same(&out[0], &out[1]));
        for (int step = 10; step <= STEPS; step += 10) {
            expect_same_checkpoint(name[0], name[1], step);
        }
        count_late(name[0], late);
        EXPECT(late[0] == 3 && late[1] == 0);
        count_late(name[1], late);
        EXPECT(late[0] == 0 && late[1] == 3);
    }
}

/* While the second checkpoint is written: the first is there. */
static void a_run_killed_while_it_writes_resumes_as_if_it_had_never_stopped(void)
{
    const struct outcome whole = run_through("whole", TINY);

    for (int step = 21; step <= 23; step++) {
        char name[32];
        (void)snprintf(name, sizeof name, "killed-%d", step);
        const struct outcome killed = run_interrupted(name, TINY ASYNC, step, SIGKILL);
        EXPECT(same(&whole, &killed));
    }
    const struct outcome told = run_interrupted("told", TINY ASYNC, 21, SIGTERM);
    const struct outcome left = run_interrupted("left", TINY ASYNC, 21, SIGINT);
    EXPECT(same(&whole, &told) && same(&whole, &left));
}

/* Asked to save at every moment: none is lost, none is written twice at once. */
static void a_save_waits_for_the_one_before(void)
{
    const struct outcome whole = run_through("often-not", TINY);
    const struct outcome often = run_through("often", TINY ASYNC ",\"save_interval\":1");
    struct manifest m;
    struct err err = {0};

    EXPECT(same(&whole, &often));
    for (int step = STEPS - 8; step <= STEPS; step++) {
        char path[PATH + 60];
        (void)snprintf(path, sizeof path, "%s/often/checkpoints/step-%08d", scratch, step);
        EXPECT(manifest_read(&m, path, &err) == 0);
        manifest_fini(&m);
    }
}

int main(void)
{
    scratch_make();
    write_text(in_scratch("text.txt"), 400);
    RUN(what_is_written_behind_training_is_what_it_was);
    RUN(a_run_killed_while_it_writes_resumes_as_if_it_had_never_stopped);
    RUN(a_save_waits_for_the_one_before);
    scratch_remove();
    return tap_done();
}
