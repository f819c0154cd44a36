/* test_resume.c - real runs in job folders: a run that was killed and resumed is, bit for bit, the run that never
 * stopped; what it leaves behind is complete.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/ckpt/manifest.h"
#include "trainer/rank.h"

enum { STEPS = 40, PATH = 400 };

/* The losses and the final weights of a run. */
struct outcome {
    double loss[STEPS + 1];
    int seen[STEPS + 1]; /* how often a step's metrics count, voided ones not */
    double eval;
    char weights[SHA256_TEXT], optimizer[SHA256_TEXT];
    int attempts;
};

/* English-like text with structure to learn, from a fixed generator. */
static void write_text(const char *path, int sentences)
{
    static const char *const words[] = {"the",  "small", "cat", "sees", "a",     "red",
                                        "bird", "and",   "it",  "runs", "after", "them"};
    FILE *f = fopen(path, "w");
    unsigned x = 12345;

    CHECK(f != NULL, "%s", path);
    for (int i = 0; i < sentences; i++) {
        for (int j = 0; j < 8; j++) {
            x = x * 1664525U + 1013904223U;
            fprintf(f, "%s%s", words[(x >> 20) % 12], j < 7 ? " " : ".\n");
        }
    }
    CHECK(fclose(f) == 0, "%s", path);
}

static void make_job(char dir[PATH], const char *name, const char *more)
{
    char text[PATH + 1600];
    struct err err = {0};

    (void)snprintf(dir, PATH, "%s/%s", scratch, name);
    (void)snprintf(
        text, sizeof text,
        "{\"training_file\":\"%s/text.txt\",\"tokenizer_vocab_size\":300,\"max_steps\":%d,"
        "\"sequence_length\":32,\"global_batch_size\":4,\"micro_batch_size\":2,\"threads\":2,"
        "\"learning_rate\":0.003,\"save_interval\":10,\"eval_interval\":20,\"dropout\":0.1,"
        "\"config\":{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":64,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"max_position_embeddings\":64}%s}",
        scratch, STEPS, more);
    json_t *request = json_loads(text, 0, NULL);
    CHECK(request != NULL, "%s", text);
    CHECK(job_folder_create(dir, name, "tester", 1.0, request, &err) == 0, "%s", err.text);
    json_decref(request);
}

static pid_t start(const char *dir)
{
    const pid_t pid = fork();

    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        const struct launch_steps steps = {
            .prepare = rank_prepare, .rank = rank_run, .ranks = 1, .version = "test"};
        struct err err = {0};
        const int rc = launch_run(dir, &steps, &err);
        _exit(rc == 0 ? 0 : err_exit(err.code));
    }
    return pid;
}

static int finish(pid_t pid)
{
    int status = -1;

    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void read_metrics(struct outcome *out, const struct event *e)
{
    const json_int_t step = json_integer_value(json_object_get(e->object, "step"));

    if (e->type == EVENT_METRICS && step >= 1 && step <= STEPS) {
        out->loss[step] = json_number_value(json_object_get(e->object, "loss"));
        out->seen[step]++;
    }
    if (e->type == EVENT_EVAL && step == STEPS) {
        out->eval = json_number_value(json_object_get(e->object, "loss"));
    }
    if (e->type == EVENT_RESUMED) {
        const json_int_t from = json_integer_value(json_object_get(e->object, "from_step"));
        for (json_int_t i = from + 1; i <= STEPS; i++) {
            out->seen[i] = 0;
        }
    }
    out->attempts = e->attempt > out->attempts ? e->attempt : out->attempts;
}

/* Read events from the start; the highest step with metrics so far. */
static int read_events(struct outcome *out, const char *dir)
{
    struct event_reader *reader = NULL;
    enum event_found found = EVENT_FOUND_NONE;
    struct event e;
    struct err err = {0};
    int step = 0;

    *out = (struct outcome){.attempts = 0};
    CHECK(event_reader_open(&reader, dir, 0, &err) == 0, "%s", err.text);
    while (event_reader_next(reader, &found, &e, &err) == 0 && found != EVENT_FOUND_NONE) {
        EXPECT(found == EVENT_FOUND);
        read_metrics(out, &e);
    }
    event_reader_close(reader);
    while (step < STEPS && out->seen[step + 1] > 0) {
        step++;
    }
    return step;
}

static void read_hashes(struct outcome *out, const char *dir)
{
    char path[PATH + 40];
    struct manifest m;
    struct err err = {0};

    (void)snprintf(path, sizeof path, "%s/checkpoints/latest", dir);
    EXPECT(manifest_read(&m, path, &err) == 0);
    if (err.code == 0) {
        EXPECT(m.step == STEPS && manifest_check_hashes(&m, path, &err) == 0);
        memcpy(out->weights, manifest_find(&m, "model.safetensors")->sha256, SHA256_TEXT);
        memcpy(out->optimizer, manifest_find(&m, "optimizer.safetensors")->sha256, SHA256_TEXT);
        manifest_fini(&m);
    }
}

static struct outcome run_through(const char *name, const char *more)
{
    struct outcome out;
    char dir[PATH];

    make_job(dir, name, more);
    EXPECT(finish(start(dir)) == 0);
    EXPECT(read_events(&out, dir) == STEPS);
    read_hashes(&out, dir);
    return out;
}

/* Wait until the run has told of `step`, then send the signal to its launcher. */
static void signal_at(const char *dir, pid_t pid, int step, int signal)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    struct outcome so_far;

    for (int i = 0; i < 20000 && read_events(&so_far, dir) < step; i++) {
        (void)nanosleep(&nap, NULL);
    }
    CHECK(kill(pid, signal) == 0, "kill");
}

static struct outcome run_interrupted(const char *name, const char *more, int step, int signal)
{
    struct outcome out;
    char dir[PATH];

    make_job(dir, name, more);
    const pid_t pid = start(dir);
    signal_at(dir, pid, step, signal);
    (void)finish(pid);
    EXPECT(finish(start(dir)) == 0);
    EXPECT(read_events(&out, dir) == STEPS);
    read_hashes(&out, dir);
    return out;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    bool equal = strcmp(a->weights, b->weights) == 0 && strcmp(a->optimizer, b->optimizer) == 0 &&
                 a->eval <= b->eval && a->eval >= b->eval;

    for (int i = 1; i <= STEPS; i++) {
        equal = equal && a->seen[i] == 1 && b->seen[i] == 1 && a->loss[i] <= b->loss[i] &&
                a->loss[i] >= b->loss[i];
    }
    return equal;
}

static void a_killed_run_resumes_as_if_it_had_never_stopped(void)
{
    const struct outcome whole = run_through("whole", "");
    const struct outcome killed = run_interrupted("killed", "", 17, SIGKILL);
    const struct outcome told = run_interrupted("told", "", 17, SIGTERM);

    EXPECT(whole.attempts == 1 && killed.attempts == 2 && told.attempts == 2);
    EXPECT(whole.loss[STEPS] < 0.8 * whole.loss[1]);
    EXPECT(same(&whole, &killed));
    EXPECT(same(&whole, &told));
    printf("# loss %.4f to %.4f, weights %.12s\n", whole.loss[1], whole.loss[STEPS], whole.weights);
}

static void bf16_resumes_from_its_masters(void)
{
    const char *low = ",\"precision\":\"bf16\",\"recompute\":\"full\"";
    const struct outcome whole = run_through("bf16-whole", low);
    const struct outcome killed = run_interrupted("bf16-killed", low, 23, SIGKILL);

    EXPECT(same(&whole, &killed));
}

static void data_workers_change_nothing(void)
{
    const struct outcome none = run_through("workers-none", ",\"data_workers\":0");
    const struct outcome one = run_through("workers-one", ",\"data_workers\":1");
    const struct outcome two = run_interrupted("workers-two", ",\"data_workers\":2", 12, SIGKILL);

    EXPECT(same(&none, &one));
    EXPECT(same(&none, &two));
}

static void the_seed_changes_the_run(void)
{
    const struct outcome a = run_through("seed-a", "");
    const struct outcome b = run_through("seed-b", ",\"seed\":7");

    EXPECT(!same(&a, &b));
}

int main(void)
{
    scratch_make();
    write_text(in_scratch("text.txt"), 400);
    RUN(a_killed_run_resumes_as_if_it_had_never_stopped);
    RUN(bf16_resumes_from_its_masters);
    RUN(data_workers_change_nothing);
    RUN(the_seed_changes_the_run);
    scratch_remove();
    return tap_done();
}
