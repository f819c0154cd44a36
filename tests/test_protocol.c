/* test_protocol.c - the files of a job folder, the choice of the attempt, damaged files. */
#include <stdbool.h>
#include <sys/stat.h>

#include "tests/fresh.h"
#include "tests/tap.h"
#include "trainer/protocol.h"

#define REQUEST "{\"training_file\":\"t.txt\",\"config\":{},\"tokenizer_vocab_size\":300}"

static char dir[256];
static struct job_folder job;
static struct attempt_plan plan;

static void make_job(const char *spec)
{
    fresh_make(dir);
    fresh_write(dir, "t.txt", "text\n");
    fresh_write(dir, JOB_SPEC, spec);
}

static bool says(const char *text, const char *words)
{
    if (strstr(text, words) == NULL) {
        printf("# \"%s\" does not say \"%s\"\n", text, words);
        return false;
    }
    return true;
}

static bool same_plan(const struct attempt_plan *a, const struct attempt_plan *b)
{
    return a->attempt == b->attempt && a->threads == b->threads && a->core_count == b->core_count &&
           memcmp(a->cores, b->cores, sizeof a->cores) == 0 && strcmp(a->isa, b->isa) == 0 &&
           strcmp(a->model, b->model) == 0 && strcmp(a->tokenizer, b->tokenizer) == 0 &&
           strcmp(a->training, b->training) == 0 && strcmp(a->validation, b->validation) == 0 &&
           strcmp(a->cache, b->cache) == 0 && a->memory_bytes == b->memory_bytes &&
           a->memory_node == b->memory_node && a->devices == b->devices && a->gpus == b->gpus &&
           strcmp(a->device_ids, b->device_ids) == 0 && strcmp(a->fingerprint, b->fingerprint) == 0;
}

/* Opening the job fails with this code and these words. */
static bool refused(enum err_code code, const char *words)
{
    struct err err = {0};
    const int rc = job_folder_open(&job, dir, &err);

    job_folder_close(&job);
    if (rc != (int)code) {
        printf("# code %d, %s\n", rc, err.text);
    }
    return rc == (int)code && says(err.text, words);
}

static void a_folder_by_the_server_is_read_as_it_was_made(void)
{
    char sub[300];
    struct err err = {0};
    json_t *request = json_loads(REQUEST, 0, NULL);

    fresh_make(dir);
    (void)snprintf(sub, sizeof sub, "%s/job-7", dir);
    EXPECT(job_folder_create(sub, "job-7", "alice", 1700000000.25, request, &err) == 0);
    EXPECT(job_folder_create(sub, "job-7", "alice", 0.0, request, &err) == (int)ERR_BAD_STATE);
    struct attempt_plan given = {.attempt = 1,
                                 .threads = 2,
                                 .core_count = 2,
                                 .cores = {4, 6},
                                 .isa = "v3",
                                 .training = "/files/f 1",
                                 .cache = "/cache",
                                 .memory_bytes = 1LL << 40,
                                 .memory_node = 1,
                                 .devices = 2,
                                 .gpus = 1,
                                 .device_ids = "GPU-1,cpu0",
                                 .fingerprint = "abc"};
    EXPECT(attempt_plan_write(sub, &given, &err) == 0);
    EXPECT(job_folder_open(&job, sub, &err) == 0);
    EXPECT(strcmp(job.id, "job-7") == 0 && strcmp(job.owner, "alice") == 0 && job.attempt == 1);
    EXPECT(job.created_at == 1700000000.25 && json_equal(job.request, request));
    EXPECT(job.spec.tokenizer_vocab_size == 300);
    EXPECT(same_plan(&job.plan, &given));
    job_folder_close(&job);
    json_decref(request);
    fresh_remove(dir);
}

static void a_bare_request_takes_its_inputs_from_the_folder(void)
{
    struct err err = {0};
    struct stat s;
    char path[400];

    make_job(REQUEST);
    EXPECT(job_folder_open(&job, dir, &err) == 0);
    EXPECT(job.attempt == 1 && job.plan.attempt == 1 && job.owner[0] == '\0');
    EXPECT(job.id[0] != '\0' && strcmp(job.id, strrchr(dir, '/') + 1) == 0);
    const size_t n = strlen(job.dir);
    EXPECT(job.dir[0] == '/' && strncmp(job.plan.training, job.dir, n) == 0);
    EXPECT(strcmp(job.plan.training + n, "/t.txt") == 0);
    EXPECT(job.plan.validation[0] == '\0' && job.plan.model[0] == '\0');
    EXPECT(says(job.plan.cache, "/cache"));
    (void)snprintf(path, sizeof path, "%s/attempts/1/plan.json", dir);
    EXPECT(stat(path, &s) == 0 && (s.st_mode & 077) == 0);
    EXPECT(attempt_plan_read(&plan, dir, 1, &err) == 0);
    EXPECT(same_plan(&plan, &job.plan));
    job_folder_close(&job);
    fresh_remove(dir);
}

static void the_attempt_is_the_newest_that_was_never_started(void)
{
    struct err err = {0};
    const struct attempt_exit end = {.status = ENDED_FAILED, .exit = 1, .rank = 0};

    make_job(REQUEST);
    EXPECT(job_folder_open(&job, dir, &err) == 0 && job.attempt == 1);
    job_folder_close(&job);
    /* It has a plan and was not started: it is taken again. */
    EXPECT(job_folder_open(&job, dir, &err) == 0 && job.attempt == 1);
    job_folder_close(&job);
    /* It was started and its launcher is gone without a word: lost. */
    EXPECT(job_pid_write(dir, 1, "", &err) == 0 && job_pid_attempt(dir) == 1);
    EXPECT(job_folder_open(&job, dir, &err) == 0 && job.attempt == 2);
    EXPECT(job.plan.attempt == 2 && says(job.plan.training, "/t.txt"));
    job_folder_close(&job);
    /* It has ended. */
    EXPECT(attempt_exit_write(dir, 2, &end, &err) == 0);
    EXPECT(job_folder_open(&job, dir, &err) == 0 && job.attempt == 3);
    job_folder_close(&job);
    /* The server has planned another one, differently. */
    EXPECT(job_pid_write(dir, 3, "", &err) == 0);
    struct attempt_plan given = {.attempt = 10, .threads = 3, .training = "/f"};
    EXPECT(attempt_plan_write(dir, &given, &err) == 0);
    EXPECT(job_folder_open(&job, dir, &err) == 0 && job.attempt == 10 && job.plan.threads == 3);
    job_folder_close(&job);
    EXPECT(attempt_newest(dir) == 10);
    fresh_remove(dir);
}

static void an_exit_is_read_as_it_was_written(void)
{
    struct attempt_exit in = {.status = ENDED_STOPPED,
                              .step = 1LL << 40,
                              .exit = -1,
                              .signal = 9,
                              .rank = 3,
                              .ended_at = 1700000000.5};
    struct attempt_exit out;
    struct err err = {0};

    fresh_make(dir);
    err_set(&in.error, ERR_INTERRUPTED, "caf\xe9 \"x\"\n");
    EXPECT(attempt_exit_read(&out, dir, 1, &err) == (int)ERR_NOT_FOUND);
    EXPECT(attempt_exit_reserve(dir, 1, &err) == 0);
    EXPECT(attempt_exit_read(&out, dir, 1, &err) == (int)ERR_NOT_FOUND); /* reserved is not ended */
    EXPECT(attempt_exit_write(dir, 1, &in, &err) == 0);
    EXPECT(attempt_exit_read(&out, dir, 1, &err) == 0);
    EXPECT(out.status == ENDED_STOPPED && out.step == 1LL << 40 && out.exit == -1);
    EXPECT(out.signal == 9 && out.rank == 3 && out.ended_at == 1700000000.5);
    EXPECT(out.error.code == ERR_INTERRUPTED && strcmp(out.error.text, "caf? \"x\"?") == 0);

    in = (struct attempt_exit){.status = ENDED_SUCCEEDED, .step = 5, .exit = 0, .rank = -1};
    EXPECT(attempt_exit_write(dir, 2, &in, &err) == 0 &&
           attempt_exit_read(&out, dir, 2, &err) == 0);
    EXPECT(out.status == ENDED_SUCCEEDED && out.exit == 0 && out.signal == 0 && out.rank == -1);
    EXPECT(out.error.code == ERR_NONE);
    char *text = fresh_read(dir, "attempts/2/exit.json");
    EXPECT(says(text, "\"error\": null") && says(text, "\"signal\": null") &&
           says(text, "\"exit\": 0") && says(text, "\"rank\": null"));
    free(text);
    fresh_remove(dir);
}

static void what_only_the_server_knows_is_refused(void)
{
    make_job("{\"training_file\":\"data:a/b.txt\",\"config\":{},\"tokenizer_vocab_size\":300}");
    EXPECT(refused(ERR_BAD_TRAINING_FILE, "only the server knows what \"data:a/b.txt\" means"));
    EXPECT(job.attempt == 1);
    fresh_write(dir, JOB_SPEC, "{\"training_file\":\"t.txt\",\"model\":\"job-3:100\"}");
    EXPECT(refused(ERR_NO_MODEL, "only the server knows"));
    fresh_write(dir, JOB_SPEC, "{\"training_file\":\"t.txt\",\"model\":\"none/here\"}");
    EXPECT(refused(ERR_NO_MODEL, "none/here: No such file"));
    fresh_write(dir, JOB_SPEC, "{\"training_file\":\"file-12\",\"model\":\"none/here\"}");
    EXPECT(refused(ERR_NO_MODEL, "none/here"));
    fresh_write(dir, JOB_SPEC,
                "{\"training_file\":\"t.txt\",\"validation_file\":\"/none\",\"config\":{},"
                "\"tokenizer_vocab_size\":300}");
    EXPECT(refused(ERR_BAD_VALIDATION_FILE, "/none: No such file"));
    fresh_write(dir, "a:b.txt", "x\n");
    fresh_write(dir, JOB_SPEC,
                "{\"training_file\":\"./a:b.txt\",\"config\":{},\"tokenizer_vocab_size\":300}");
    struct err err = {0};
    EXPECT(job_folder_open(&job, dir, &err) == 0 && says(job.plan.training, "/a:b.txt"));
    job_folder_close(&job);
    fresh_remove(dir);
}

static void damaged_files_are_refused_with_their_name(void)
{
    struct err err = {0};

    make_job("{\"request\":5}");
    EXPECT(refused(ERR_BAD_FILE, "spec.json"));
    fresh_write(dir, JOB_SPEC, "{\"id\":7,\"request\":" REQUEST "}");
    EXPECT(refused(ERR_BAD_FILE, "id"));
    fresh_write(dir, JOB_SPEC, "{\"request\":{\"training_file\":\"t.txt\"}}");
    EXPECT(refused(ERR_BAD_SPEC, "model is missing"));
    fresh_write(dir, JOB_SPEC, "[]");
    EXPECT(refused(ERR_BAD_SPEC, "object"));
    fresh_write(dir, JOB_SPEC, "");
    EXPECT(refused(ERR_BAD_FILE, "spec.json"));
    fresh_write(dir, JOB_SPEC, REQUEST);
    static const char *const plans[] = {"",
                                        "{}",
                                        "[]",
                                        "{\"inputs\":5}",
                                        "{\"inputs\":{\"model\":5}}",
                                        "{\"inputs\":{},\"threads\":-1}",
                                        "{\"inputs\":{},\"cores\":[-1]}",
                                        "{\"inputs\":{},\"cores\":[0.5]}",
                                        "{\"inputs\":{},\"cores\":5}",
                                        "{\"inputs\":{},\"memory_node\":-2}",
                                        "{\"inputs\":{},\"devices\":-1}",
                                        "{\"inputs\":{},\"device_ids\":[]}",
                                        "{\"inputs\":{},\"isa\":\"a-name-that-is-too-long\"}",
                                        "{\"inputs\":{},\"memory_bytes\":\"1\"}"};
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        fresh_write(dir, "attempts/1/plan.json", plans[i]);
        EXPECT(refused(ERR_BAD_FILE, "plan.json"));
        EXPECT(job.attempt == 1);
    }
    static const char *const exits[] = {
        "",
        "[]",
        "{}",
        "{\"status\":\"done\",\"step\":1,\"ended_at\":1}",
        "{\"status\":\"failed\",\"step\":-1,\"ended_at\":1}",
        "{\"status\":\"failed\",\"step\":1}",
        "{\"status\":\"failed\",\"step\":1,\"ended_at\":1,\"error\":{}}"};
    for (size_t i = 0; i < sizeof exits / sizeof exits[0]; i++) {
        struct attempt_exit end;
        fresh_write(dir, "attempts/1/exit.json", exits[i]);
        EXPECT(attempt_exit_read(&end, dir, 1, &err) == (int)ERR_BAD_FILE);
        EXPECT(says(err.text, "exit.json"));
    }
    fresh_remove(dir);
}

static void only_numbers_are_attempts(void)
{
    static const char *const names[] = {"3",  "x9", "10~", "7x", "99999999999999999999",
                                        "-5", ".11"};
    char path[400];

    fresh_make(dir);
    EXPECT(attempt_newest(dir) == 0);
    (void)snprintf(path, sizeof path, "%s/attempts", dir);
    EXPECT(mkdir(path, 0700) == 0 && attempt_newest(dir) == 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/attempts/%s", dir, names[i]);
        EXPECT(mkdir(path, 0700) == 0);
    }
    EXPECT(attempt_newest(dir) == 3);
    fresh_remove(dir);
}

static void latest_says_which_step_was_saved(void)
{
    static const struct {
        const char *target;
        int64_t step;
    } cases[] = {{"step-00001000", 1000},
                 {"step-123456789012", 123456789012},
                 {"step-", 0},
                 {"step-5x", 0},
                 {"../../etc", 0},
                 {"step--5", 0},
                 {"5", 0}};
    char path[400], folder[300];

    fresh_make(dir);
    EXPECT(job_latest_step(dir) == 0);
    (void)snprintf(folder, sizeof folder, "%s/checkpoints", dir);
    EXPECT(mkdir(folder, 0700) == 0);
    (void)snprintf(path, sizeof path, "%s/latest", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        EXPECT(symlink(cases[i].target, path) == 0 && job_latest_step(dir) == cases[i].step);
        EXPECT(unlink(path) == 0);
    }
    fresh_remove(dir);
}

int main(void)
{
    scratch_make();
    RUN(a_folder_by_the_server_is_read_as_it_was_made);
    RUN(a_bare_request_takes_its_inputs_from_the_folder);
    RUN(the_attempt_is_the_newest_that_was_never_started);
    RUN(an_exit_is_read_as_it_was_written);
    RUN(what_only_the_server_knows_is_refused);
    RUN(damaged_files_are_refused_with_their_name);
    RUN(only_numbers_are_attempts);
    RUN(latest_says_which_step_was_saved);
    scratch_remove();
    return tap_done();
}
