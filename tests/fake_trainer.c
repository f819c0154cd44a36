/* fake_trainer.c - hone-train without the training: the real launcher, real events, tiny real
 * checkpoints.
 *
 *    fake_trainer run JOBDIR      fake_trainer check ...: hone-train itself, in the folder above, is run instead
 *
 * What happens is said by words in the request's "name"; other words are skipped:
 *
 *    steps=100        optimizer steps, when the request has no max_steps
 *    ms=20            time of a step             burst    no time at all
 *    eval=10 save=20  steps between evaluations, checkpoints; default: the request's, else none
 *                     and a fifth of the steps
 *    ranks=2          as many ranks
 *    slow_prepare=2   seconds of validating and tokenizing
 *    bad_file         validating refuses the training file
 *    crash_at=7       SIGSEGV after step 7       kill_at=7   SIGKILL out of nowhere
 *    oom_at=7         SIGKILL after step 7, on a machine whose memory is all taken
 *    fail_at=9        fails with out_of_memory   nan_at=5    fails with numerical_divergence
 *    crash_at=0       SIGSEGV before the first step
 *    rank_exit=3      ends with status 3 after its first step
 *    nap_at=5         rests for 4 s after step 5
 *    hang_at=5        no further step, deaf to requests; hang: before the first step
 *    ignore_term      deaf to SIGTERM only
 *    disk_full_at=20  checkpoints from step 20 on fail; so does the run at its end
 *    escape           leaves a grandchild in a session of its own
 *    once             all that goes wrong does so in attempt 1 only
 *
 * FAKE_GRACE_MS in the environment is the grace period.
 *
 * The loss depends on the step alone, so a resumed run goes on where the curve was.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "trainer/base/io.h"
#include "trainer/ckpt/checkpoint.h"
#include "trainer/launch.h"
#include "trainer/signals.h"

enum {
    TOKENS_PER_STEP = 2048,
    EVAL_TOKENS = 16384,
    BEST_STEP = 40, /* checkpoints up to it are the best so far */
    PARAMETERS = 35000000,
    HEADER_BYTES = 128,
    TENSOR_BYTES = 64
};

/* The value of `word=value` in the job's name; `absent` when it is not there. */
static int64_t word_value(const struct job_folder *job, const char *word, int64_t absent)
{
    const size_t length = strlen(word);

    for (const char *at = job->spec.name; *at != '\0';) {
        const size_t n = strcspn(at, " ");
        if (n > length && strncmp(at, word, length) == 0 && at[length] == '=') {
            return strtoll(at + length + 1, NULL, 10);
        }
        at += n + strspn(at + n, " ");
    }
    return absent;
}

static bool has_word(const struct job_folder *job, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = job->spec.name; *at != '\0';) {
        const size_t n = strcspn(at, " ");
        if (n == length && strncmp(at, word, n) == 0) {
            return true;
        }
        at += n + strspn(at + n, " ");
    }
    return false;
}

/* With "once", only the first attempt goes wrong. */
static bool may_go_wrong(const struct job_folder *job)
{
    return job->attempt == 1 || !has_word(job, "once");
}

/* Is it the step at which `word` goes wrong? */
static bool is_due(const struct job_folder *job, const char *word, int64_t step)
{
    return word_value(job, word, -1) == step && may_go_wrong(job);
}

static void sleep_ms(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* Between -1 and 1, by step alone. */
static double noise(int64_t step)
{
    uint64_t x = (uint64_t)step * 0x9E3779B97F4A7C15U;

    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
    x ^= x >> 27;
    return (double)(x >> 11) / (double)(1U << 31U) / (double)(1U << 21U) - 1.0;
}

static double loss_at(int64_t step)
{
    return 1.8 + 8.6 * exp(-(double)step / 40.0) + 0.8 / sqrt((double)step + 1.0) +
           0.05 * noise(step);
}

static int64_t steps_of(const struct job_folder *job)
{
    return job->spec.max_steps > 0 ? job->spec.max_steps : word_value(job, "steps", 100);
}

/* Validate and tokenize, that is: read the size of the training file and take a while. */
static int prepare(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    const int64_t ms = 1000 * word_value(job, "slow_prepare", 0);
    struct stat s = {0};

    (void)rank;
    events_stage(events, STAGE_VALIDATING);
    printf("fake: preparing %s\n", job->plan.training);
    if (stat(job->plan.training, &s) != 0) {
        return FAIL(err, ERR_BAD_TRAINING_FILE, "%s: %s", job->plan.training, strerror(errno));
    }
    if (has_word(job, "bad_file") || s.st_size == 0) {
        return FAIL(err, ERR_BAD_TRAINING_FILE, "line 3 is not valid UTF-8: byte 17 is 0xff");
    }
    sleep_ms(ms / 4);
    events_stage(events, STAGE_TOKENIZING);
    for (int i = 1; i <= 20; i++) {
        sleep_ms(ms * 3 / 80);
        events_progress(events, STAGE_TOKENIZING, s.st_size * i / 20, s.st_size, "bytes");
    }
    const json_int_t tokens = s.st_size / 4 + 1;
    events_send(events, EVENT_DATA,
                json_pack("{s:s, s:I, s:i, s:I, s:I}", "set", "training", "bytes",
                          (json_int_t)s.st_size, "documents", 1, "tokens", tokens, "samples",
                          tokens / 256 + 1));
    return 0;
}

static int write_file(const char *dir, const char *name, const void *bytes, size_t n,
                      struct err *err)
{
    char path[IO_PATH_MAX];

    TRY(io_join(path, sizeof path, dir, name, err));
    return io_write_file(path, bytes, n, err);
}

/* One tensor of 16 floats, the step in all of them. */
static int write_weights(const char *dir, int64_t step, struct err *err)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"model.embed_tokens.weight\":"
        "{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[0,64]}}";
    unsigned char bytes[8 + HEADER_BYTES + TENSOR_BYTES] = {HEADER_BYTES};
    float weight[TENSOR_BYTES / sizeof(float)];

    for (size_t i = 0; i < sizeof weight / sizeof weight[0]; i++) {
        weight[i] = (float)step;
    }
    memset(bytes + 8, ' ', HEADER_BYTES);
    memcpy(bytes + 8, header, sizeof header - 1);
    memcpy(bytes + 8 + HEADER_BYTES, weight, sizeof weight);
    return write_file(dir, "model.safetensors", bytes, sizeof bytes, err);
}

static int write_checkpoint(const char *dir, int64_t step, struct err *err)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": "
        "4,\n"
        " \"intermediate_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 1,\n"
        " \"vocab_size\": 4, \"max_position_embeddings\": 16}\n";
    static const char tokenizer[] =
        "{\"version\": \"1.0\", \"model\": {\"type\": \"BPE\", \"vocab\":\n"
        " {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3}, \"merges\": []}}\n";

    TRY(write_file(dir, "config.json", config, sizeof config - 1, err));
    TRY(write_file(dir, "tokenizer.json", tokenizer, sizeof tokenizer - 1, err));
    return write_weights(dir, step, err);
}

static void tell_gone(void *context, int64_t step)
{
    events_send(context, EVENT_CHECKPOINT_GONE, json_pack("{s:I}", "step", (json_int_t)step));
}

static bool is_disk_full(const struct job_folder *job, int64_t step)
{
    const int64_t full_at = word_value(job, "disk_full_at", -1);

    return full_at >= 0 && step >= full_at && may_go_wrong(job);
}

/* Write checkpoints/step-N, all of it or nothing, and keep as many as the request says. */
static int save(const struct job_folder *job, int64_t step, bool is_final, struct events *events,
                struct err *err)
{
    struct checkpoint_save *saving = NULL;
    struct checkpoint saved;

    events_stage(events, STAGE_SAVING);
    if (is_disk_full(job, step)) {
        return FAIL(err, ERR_DISK_FULL, "write model.safetensors: No space left on device");
    }
    TRY(checkpoint_begin(&saving, job->dir, step, err));
    const int rc = write_checkpoint(checkpoint_save_dir(saving), step, err);
    if (rc != 0) {
        checkpoint_abort(saving);
        return rc;
    }
    TRY(checkpoint_commit(saving, false, &saved, err));
    events_send(events, EVENT_CHECKPOINT,
                json_pack("{s:I, s:s, s:I, s:s, s:b, s:b}", "step", (json_int_t)step, "dir",
                          saved.dir, "bytes", (json_int_t)saved.bytes, "sha256", saved.sha256,
                          "final", is_final, "best", step <= BEST_STEP));
    const int keep = (int)job->spec.keep_checkpoints; /* at most 1000 */
    return checkpoint_keep(job->dir, keep, -1, tell_gone, events, err);
}

/* A checkpoint on the way: when it fails, the run goes on. */
static void try_save(const struct job_folder *job, int64_t step, struct events *events)
{
    struct err err;

    if (save(job, step, false, events, &err) != 0) {
        events_send(events, EVENT_CHECKPOINT_FAILED,
                    json_pack("{s:I, s:s, s:s}", "step", (json_int_t)step, "code",
                              err_word(err.code), "message", err.text));
    }
    events_stage(events, STAGE_TRAINING);
}

static void hang(void)
{
    for (;;) {
        sleep_ms(1000);
    }
}

/* A process that the launcher has to find and end. */
static void leave_grandchild(void)
{
    if (fork() == 0) {
        (void)setsid();
        (void)signal(SIGTERM, SIG_IGN);
        sleep_ms(600000);
        _exit(0);
    }
}

static int misbehave(const struct job_folder *job, int64_t step, struct err *err)
{
    if (is_due(job, "crash_at", step)) {
        (void)raise(SIGSEGV);
    }
    if (is_due(job, "kill_at", step) || is_due(job, "oom_at", step)) {
        (void)raise(SIGKILL);
    }
    if (is_due(job, "nap_at", step)) {
        sleep_ms(4000);
    }
    if (is_due(job, "hang_at", step)) {
        hang();
    }
    if (is_due(job, "fail_at", step)) {
        return FAIL(err, ERR_NO_MEMORY, "the rank needs 3 GiB more than the 8 GiB it was granted");
    }
    if (is_due(job, "nan_at", step)) {
        return FAIL(err, ERR_DIVERGED, "the loss is not finite at step %" PRId64, step);
    }
    const int64_t status = word_value(job, "rank_exit", -1);
    if (status >= 0 && may_go_wrong(job)) {
        _exit((int)status);
    }
    return 0;
}

static void tell_ready(const struct job_folder *job, int64_t from, struct events *events)
{
    events_send(events, EVENT_READY,
                json_pack("{s:i, s:I, s:{s:i, s:i, s:i}, s:i, s:s}", "parameters", PARAMETERS,
                          "total_steps", (json_int_t)steps_of(job), "memory", "weights",
                          PARAMETERS * 4, "gradients", PARAMETERS * 4, "optimizer", PARAMETERS * 8,
                          "memory_bytes", PARAMETERS * 16, "fingerprint",
                          "00112233445566778899aabbccddeeff"));
    if (from > 0) {
        events_send(events, EVENT_RESUMED, json_pack("{s:I}", "from_step", (json_int_t)from));
    }
    events_stage(events, STAGE_TRAINING);
}

static void tell_step(const struct job_folder *job, int64_t step, int64_t from, double step_ms,
                      struct events *events)
{
    const double warm = (double)(step < 10 ? step : 10) / 10.0;

    events_metrics(
        events, &(struct metrics){.step = step,
                                  .loss = is_due(job, "nan_at", step) ? (double)NAN : loss_at(step),
                                  .lr = job->spec.learning_rate * warm,
                                  .grad_norm = 0.5 + 0.2 * noise(step + 1000000),
                                  .tokens = step * TOKENS_PER_STEP,
                                  .tokens_per_s = TOKENS_PER_STEP * 1000.0 / (step_ms + 0.05),
                                  .seconds = (double)(step - from) * step_ms / 1000.0});
}

/* What was asked since the last step: LAUNCH_STOPPED or LAUNCH_LEFT to end now, 0 to go on. */
static int obey(const struct job_folder *job, int rank, int64_t step, struct events *events,
                struct err *err)
{
    const enum signals_request request = signals_take();

    if (request == SIGNALS_LEAVE) {
        return LAUNCH_LEFT;
    }
    if (request == SIGNALS_SAVE && rank == 0) {
        try_save(job, step, events);
    }
    if (request != SIGNALS_STOP || has_word(job, "ignore_term")) {
        return 0;
    }
    const int rc = rank == 0 ? save(job, step, false, events, err) : 0;
    return rc != 0 ? rc : LAUNCH_STOPPED;
}

/* The step of the checkpoint to resume from; 0 when there is none. */
static int find_start(int64_t *from, const struct job_folder *job, int rank, struct events *events,
                      struct err *err)
{
    struct checkpoint found;
    struct err skipped;

    if (rank == 0) {
        TRY(checkpoint_sweep(job->dir, err));
    }
    const int rc = checkpoint_newest_good(&found, job->dir, &skipped, err);
    if (skipped.code != ERR_NONE) {
        events_warning(events, "%s", skipped.text);
    }
    *from = rc == 0 ? found.step : 0;
    events_set_step(events, *from);
    return rc == (int)ERR_NOT_FOUND ? 0 : rc;
}

static int train(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    const int64_t steps = steps_of(job);
    const int64_t eval_every = word_value(job, "eval", job->spec.eval_interval);
    const int64_t fifth = steps < 5 ? 1 : steps / 5;
    const int64_t save_every =
        word_value(job, "save", job->spec.save_interval > 0 ? job->spec.save_interval : fifth);
    const int64_t ms = has_word(job, "burst") ? 0 : word_value(job, "ms", 20);

    int64_t from = 0;

    events_stage(events, STAGE_LOADING);
    TRY(find_start(&from, job, rank, events, err));
    tell_ready(job, from, events);
    if (has_word(job, "escape")) {
        leave_grandchild();
    }
    if (has_word(job, "hang")) {
        hang();
    }
    if (is_due(job, "crash_at", 0)) {
        (void)raise(SIGSEGV);
    }
    for (int64_t step = from + 1; step <= steps; step++) {
        if (ms > 0) {
            sleep_ms(ms);
        }
        tell_step(job, step, from, (double)ms, events);
        printf("fake: rank %d finished step %" PRId64 "\n", rank, step);
        TRY(misbehave(job, step, err));
        if (eval_every > 0 && step % eval_every == 0) {
            events_stage(events, STAGE_EVALUATING);
            events_eval(events, step, loss_at(step) + 0.1, 0.5, EVAL_TOKENS);
            events_stage(events, STAGE_TRAINING);
        }
        if (rank == 0 && save_every > 0 && step % save_every == 0 && step < steps) {
            try_save(job, step, events);
        }
        TRY(obey(job, rank, step, events, err));
    }
    return rank == 0 && from < steps ? save(job, steps, true, events, err) : 0;
}

/* Does spec.json hold the word? */
static bool spec_has(const char *dir, const char *word)
{
    char path[IO_PATH_MAX], *text = NULL;
    size_t bytes;
    struct err ignored;

    if (io_join(path, sizeof path, dir, JOB_SPEC, &ignored) != 0 ||
        io_read_file(&text, &bytes, path, JOB_FILE_MAX, &ignored) != 0) {
        return false;
    }
    const bool has = strstr(text, word) != NULL;
    free(text);
    return has;
}

/* A /proc in the job's folder, of a machine of 8 GiB of which 10 MiB are available. */
static const char *crowd(const char *dir)
{
    static const char text[] = "MemTotal: 8388608 kB\nMemAvailable: 10240 kB\n";
    char path[IO_PATH_MAX];
    struct err ignored;

    if (io_join(path, sizeof path, dir, "proc", &ignored) != 0 ||
        (mkdir(path, 0700) != 0 && errno != EEXIST) ||
        io_join(path, sizeof path, dir, "proc/meminfo", &ignored) != 0 ||
        io_write_file(path, text, strlen(text), &ignored) != 0) {
        return NULL;
    }
    return dir;
}

/* How many ranks the request's name asks for; 1 when it cannot be read, which the launcher will
 * say. */
static int count_ranks(const char *dir)
{
    char path[IO_PATH_MAX], *text = NULL;
    size_t bytes;
    struct err ignored;

    if (io_join(path, sizeof path, dir, JOB_SPEC, &ignored) != 0 ||
        io_read_file(&text, &bytes, path, JOB_FILE_MAX, &ignored) != 0) {
        return 1;
    }
    const char *word = strstr(text, "ranks=");
    const long ranks = word == NULL ? 1 : strtol(word + 6, NULL, 10);
    free(text);
    return ranks >= 1 && ranks <= 16 ? (int)ranks : 1;
}

/* Become the hone-train of the folder above this program's. Returns when there is none. */
static void become_hone_train(char **argv)
{
    char path[4096];
    const char *slash = strrchr(argv[0], '/');

    if (slash == NULL) {
        return;
    }
    const int length = (int)(slash - argv[0]);
    if (snprintf(path, sizeof path, "%.*s/../hone-train", length, argv[0]) < (int)sizeof path) {
        (void)execv(path, argv);
    }
}

int main(int argc, char **argv)
{
    struct err err;

    if (argc > 1 && strcmp(argv[1], "run") != 0) {
        become_hone_train(argv);
    }
    if (argc != 3 || strcmp(argv[1], "run") != 0) {
        (void)fprintf(stderr, "usage: %s run JOBDIR\n", argv[0]);
        return err_exit(ERR_BAD_REQUEST);
    }
    const char *grace = getenv("FAKE_GRACE_MS");
    const struct launch_steps launched = {
        .prepare = prepare,
        .rank = train,
        .ranks = count_ranks(argv[2]),
        .grace_ms = grace == NULL ? 0 : (int)strtol(grace, NULL, 10),
        .version = "fake",
        .root = spec_has(argv[2], "oom_at=") ? crowd(argv[2]) : NULL};
    if (launch_run(argv[2], &launched, &err) != 0) {
        (void)fprintf(stderr, "fake_trainer: %s\n", err.text);
        return err_exit(err.code);
    }
    return 0;
}
