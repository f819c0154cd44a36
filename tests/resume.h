/* resume.h - real runs in job folders: started, killed, started again, and what they leave behind. */
#ifndef TESTS_RESUME_H
#define TESTS_RESUME_H

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
    double lr[STEPS + 1];
    double scale;                  /* of the loss, as last told; 0: none */
    json_int_t skipped[STEPS + 1]; /* so far */
    char scaler[240];              /* state of the loss scale in the last checkpoint */
    char code[40];                 /* of the last error                              */
    double eval, eval0;            /* at the end, before the first step */
    char weights[SHA256_TEXT], optimizer[SHA256_TEXT];
    int attempts;
};

/* English-like text with structure to learn, from a fixed generator. */
static inline void write_text(const char *path, int sentences)
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

/* A new model, unless `more` names one to start from. */
static const char new_model[] =
    ",\"tokenizer_vocab_size\":300,\"config\":{\"model_type\":\"llama\",\"hidden_size\":32,"
    "\"intermediate_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"max_position_embeddings\":64}";

static inline void make_job(char dir[PATH], const char *name, const char *more)
{
    char text[PATH + 2400];
    struct err err = {0};

    (void)snprintf(dir, PATH, "%s/%s", scratch, name);
    (void)snprintf(
        text, sizeof text,
        "{\"training_file\":\"%s/text.txt\",\"max_steps\":%d,"
        "\"sequence_length\":32,\"global_batch_size\":4,\"micro_batch_size\":2,\"threads\":2,"
        "\"learning_rate\":0.003,\"save_interval\":10,\"eval_interval\":20,\"dropout\":0.1%s%s}",
        scratch, STEPS, strstr(more, "\"model\"") == NULL ? new_model : "", more);
    json_t *request = json_loads(text, 0, NULL);
    CHECK(request != NULL, "%s", text);
    CHECK(job_folder_create(dir, name, "tester", 1.0, request, &err) == 0, "%s", err.text);
    json_decref(request);
}

static inline pid_t start(const char *dir)
{
    (void)fflush(NULL);
    const pid_t pid = fork();

    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        const struct launch_steps steps = {
            .prepare = rank_prepare, .rank = rank_run, .version = "test"};
        struct err err = {0};
        const int rc = launch_run(dir, &steps, &err);
        _exit(rc == 0 ? 0 : err_exit(err.code));
    }
    return pid;
}

static inline int finish(pid_t pid)
{
    int status = -1;

    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Wait for a run that should end well; what it said when it did not is shown. */
static inline void finish_well(pid_t pid, const char *dir)
{
    char path[PATH + 40], *text = NULL;
    size_t bytes = 0;
    struct err err = {0};
    const int status = finish(pid);

    EXPECT(status == 0);
    (void)snprintf(path, sizeof path, "%s/" JOB_LOG, dir);
    if (status == 0 || io_read_file(&text, &bytes, path, 1 << 20, &err) != 0) {
        return;
    }
    printf("# status %d of %s:\n", status, dir);
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        printf("#   %s\n", line);
    }
    free(text);
}

static inline void read_metrics(struct outcome *out, const struct event *e)
{
    const json_int_t step = json_integer_value(json_object_get(e->object, "step"));

    if (e->type == EVENT_METRICS && step >= 1 && step <= STEPS) {
        out->loss[step] = json_number_value(json_object_get(e->object, "loss"));
        out->seen[step]++;
        out->lr[step] = json_number_value(json_object_get(e->object, "lr"));
        out->skipped[step] = json_integer_value(json_object_get(e->object, "skipped"));
        out->scale = json_number_value(json_object_get(e->object, "loss_scale"));
    }
    if (e->type == EVENT_ERROR) {
        (void)snprintf(out->code, sizeof out->code, "%s",
                       json_string_value(json_object_get(e->object, "code")));
    }
    if (e->type == EVENT_EVAL && step == STEPS) {
        out->eval = json_number_value(json_object_get(e->object, "loss"));
    }
    if (e->type == EVENT_EVAL && step == 0) {
        out->eval0 = json_number_value(json_object_get(e->object, "loss"));
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
static inline int read_events(struct outcome *out, const char *dir)
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

static inline void read_hashes(struct outcome *out, const char *dir)
{
    char path[PATH + 40];
    struct manifest m;
    struct err err = {0};

    (void)snprintf(path, sizeof path, "%s/checkpoints/latest", dir);
    EXPECT(manifest_read(&m, path, &err) == 0);
    if (err.code == 0) {
        EXPECT(m.step == STEPS && manifest_check_hashes(&m, path, &err) == 0);
        const struct manifest_file *file = manifest_find(&m, "model.safetensors");
        file = file != NULL ? file : manifest_find(&m, "adapter_model.safetensors");
        CHECK(file != NULL, "a checkpoint without weights in %s", dir);
        memcpy(out->weights, file->sha256, SHA256_TEXT);
        memcpy(out->optimizer, manifest_find(&m, "optimizer.safetensors")->sha256, SHA256_TEXT);
        manifest_fini(&m);
    }
}

/* How the loss scale stands in the last checkpoint. */
static inline void read_scaler(struct outcome *out, const char *dir)
{
    char path[PATH + 60];
    json_t *trainer = NULL;
    struct err err = {0};

    (void)snprintf(path, sizeof path, "%s/checkpoints/latest/trainer.json", dir);
    CHECK(json_parse_file(&trainer, path, 1 << 20, &err) == 0, "%s", err.text);
    char *text = json_dumps(json_object_get(trainer, "loss_scale"), JSON_SORT_KEYS);
    (void)snprintf(out->scaler, sizeof out->scaler, "%s", text != NULL ? text : "");
    free(text);
    json_decref(trainer);
}

static inline struct outcome run_through(const char *name, const char *more)
{
    struct outcome out;
    char dir[PATH];

    make_job(dir, name, more);
    finish_well(start(dir), dir);
    EXPECT(read_events(&out, dir) == STEPS);
    read_hashes(&out, dir);
    read_scaler(&out, dir);
    return out;
}

/* Wait until the run has told of `step`, then send the signal to its launcher. */
static inline void signal_at(const char *dir, pid_t pid, int step, int signal)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    struct outcome so_far;

    for (int i = 0; i < 20000 && read_events(&so_far, dir) < step; i++) {
        (void)nanosleep(&nap, NULL);
    }
    CHECK(kill(pid, signal) == 0, "kill");
}

static inline struct outcome run_interrupted(const char *name, const char *more, int step,
                                             int signal)
{
    struct outcome out;
    char dir[PATH];

    make_job(dir, name, more);
    const pid_t pid = start(dir);
    signal_at(dir, pid, step, signal);
    (void)finish(pid);
    finish_well(start(dir), dir);
    EXPECT(read_events(&out, dir) == STEPS);
    read_hashes(&out, dir);
    read_scaler(&out, dir);
    return out;
}

static inline bool same(const struct outcome *a, const struct outcome *b)
{
    bool equal = strcmp(a->weights, b->weights) == 0 && strcmp(a->optimizer, b->optimizer) == 0 &&
                 strcmp(a->scaler, b->scaler) == 0 && a->scaler[0] != '\0' && a->eval <= b->eval &&
                 a->eval >= b->eval;

    for (int i = 1; i <= STEPS; i++) {
        equal = equal && a->seen[i] == 1 && b->seen[i] == 1 && a->loss[i] <= b->loss[i] &&
                a->loss[i] >= b->loss[i];
    }
    return equal;
}

#endif
