/* watch.c - hone watch: one job's events from the server's stream, as a progress bar or as lines.
 *
 * The stream is opened first and the job is read when its headers are there, so nothing falls between
 * the two. A lost connection is opened again with Last-Event-ID; the server replays what was missed, and an
 * event that was seen (same epoch, number not larger) is dropped. Ctrl-C ends the watching only.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/cli/cli.h"
#include "server/cli/progress.h"
#include "server/cli/show.h"
#include "server/cli/sse.h"
#include "server/cli/when.h"

enum {
    QUIET_S = 45,
    LINE_MS = 2000,
    WAIT_LEAST_MS = 250,
    WAIT_MOST_MS = 8000,
    EXIT_DETACHED = 130
};

static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    was_interrupted = 1;
}

struct watch {
    struct cli *cli;
    struct http *second; /* owned; for the job while the stream is open */
    struct sse *sse;     /* owned */
    const char *id;
    char job_path[512];
    struct progress bar;
    bool as_json, has_job, is_over, is_lost;
    char epoch[64];
    int64_t number; /* of the last event seen in this epoch; -1 before the first */

    /* What is known of the job; texts are safe to print. */
    char state[32], stage[32], said_stage[32], reason[256], error[512], code[64];
    int64_t step, total_steps, done, total;
    int64_t said_start_at; /* expected start, as last said; 0 where none was */
    double loss, eval_loss, tokens_per_s, eta_s;

    int64_t line_step, line_ms; /* of the last line of metrics */
    struct err err;             /* why reading the job failed  */
};

static void copy_safe(char *out, size_t size, const char *text)
{
    (void)show_safe(out, size, text, strlen(text));
}

/* A line of its own; a bar stays below it. */
static void say(struct watch *w, const char *text)
{
    if (w->as_json) {
        return;
    }
    progress_clear(&w->bar);
    (void)puts(text);
    (void)fflush(stdout);
}

static void describe_training(const struct watch *w, char out[256])
{
    char loss[32] = "", rate[24], left[24];

    if (isfinite(w->loss)) {
        (void)snprintf(loss, sizeof loss, "loss %.4f  ", w->loss);
    }
    (void)snprintf(out, 256, "%s%s tokens/s  ETA %s", loss, show_count(rate, w->tokens_per_s),
                   show_duration(left, w->eta_s));
}

static void draw(struct watch *w, bool now)
{
    char left[96], right[256] = "";
    const bool trains = strcmp(w->stage, "training") == 0 || strcmp(w->stage, "evaluating") == 0 ||
                        strcmp(w->stage, "saving") == 0;
    double fraction = -1.0;

    if (w->as_json || w->is_over) {
        return;
    }
    if (trains && w->total_steps > 0) {
        (void)snprintf(left, sizeof left, "%s  step %lld/%lld", w->stage, (long long)w->step,
                       (long long)w->total_steps);
        fraction = (double)w->step / (double)w->total_steps;
        describe_training(w, right);
    } else {
        (void)snprintf(left, sizeof left, "%s", w->stage[0] != '\0' ? w->stage : w->state);
        fraction = w->total > 0 ? (double)w->done / (double)w->total : -1.0;
        (void)snprintf(right, sizeof right, "%.250s", w->reason);
    }
    progress_draw(&w->bar, fraction, left, right, now);
}

/* Without a terminal: a line of metrics now and then, and always the last one. */
static void metrics_line(struct watch *w, bool now)
{
    char text[400], training[256];
    const int64_t at = progress_now_ms();

    if (w->bar.is_terminal || w->step <= w->line_step || (!now && at - w->line_ms < LINE_MS)) {
        return;
    }
    describe_training(w, training);
    (void)snprintf(text, sizeof text, "step %lld/%lld  %s", (long long)w->step,
                   (long long)w->total_steps, training);
    say(w, text);
    w->line_step = w->step;
    w->line_ms = at;
}

static void say_end(struct watch *w)
{
    char text[1200];
    size_t used = 0;

    metrics_line(w, true);
    used +=
        (size_t)snprintf(text, sizeof text, "%s after %lld steps", w->state, (long long)w->step);
    if (isfinite(w->loss)) {
        used += (size_t)snprintf(text + used, sizeof text - used, ", loss %.4f", w->loss);
    }
    if (isfinite(w->eval_loss)) {
        used += (size_t)snprintf(text + used, sizeof text - used, ", eval loss %.4f", w->eval_loss);
    }
    if (w->error[0] != '\0') {
        (void)snprintf(text + used, sizeof text - used, ": %s (%s)", w->error, w->code);
    }
    say(w, text);
}

/* Whether the job rests, and with which exit status the watcher then ends. */
static bool rests(const struct watch *w, int *exit)
{
    if (strcmp(w->state, "succeeded") == 0) {
        *exit = 0;
    } else if (strcmp(w->state, "failed") == 0) {
        *exit = err_exit(err_from_word(w->code));
    } else if (strcmp(w->state, "cancelled") == 0 || strcmp(w->state, "paused") == 0) {
        *exit = err_exit(ERR_INTERRUPTED);
    } else {
        return false;
    }
    return true;
}

static void take_number(double *out, const json_t *object, const char *key)
{
    const double value = cli_number(object, key);

    *out = isfinite(value) ? value : *out;
}

static void take_stage(struct watch *w, const char *stage)
{
    if (strcmp(w->stage, stage) == 0) {
        return;
    }
    copy_safe(w->stage, sizeof w->stage, stage);
    w->done = w->total = 0;
    /* Evaluating and saving are short, and their results are lines of their own; waiting is told with its reason. */
    static const char *const silent[] = {"", "waiting", "evaluating", "saving"};
    bool is_told = w->bar.is_terminal || strcmp(w->stage, w->said_stage) == 0;
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        is_told = is_told || strcmp(w->stage, silent[i]) == 0;
    }
    if (is_told) {
        return;
    }
    (void)snprintf(w->said_stage, sizeof w->said_stage, "%s", w->stage);
    say(w, w->stage);
}

/* Whether an expected start differs enough from the one that was said to be said again: by a minute and by a tenth of
 * the time until then. */
static bool start_moved(int64_t said, int64_t starts, int64_t now)
{
    const int64_t apart = starts > said ? starts - said : said - starts;

    return starts > 0 && (said == 0 || (apart >= 60 && apart * 10 >= starts - now));
}

static void take_job(struct watch *w, const json_t *job)
{
    const json_t *const error = json_object_get(job, "error");
    char before[32], text[512], reason[256];

    if (strcmp(cli_text(job, "id"), w->id) != 0) {
        return;
    }
    (void)snprintf(before, sizeof before, "%s", w->state);
    copy_safe(w->state, sizeof w->state, cli_text(job, "state"));
    copy_safe(reason, sizeof reason, cli_text(job, "reason"));
    copy_safe(w->error, sizeof w->error, cli_text(error, "message"));
    copy_safe(w->code, sizeof w->code, cli_text(error, "code"));
    w->step = cli_integer(job, "step") > w->step ? cli_integer(job, "step") : w->step;
    w->total_steps = cli_integer(job, "total_steps");
    take_number(&w->loss, job, "loss");
    take_number(&w->eval_loss, job, "eval_loss");
    take_number(&w->tokens_per_s, job, "tokens_per_s");
    take_number(&w->eta_s, job, "eta_s");
    w->has_job = true;
    if (rests(w, &w->cli->exit)) {
        w->is_over = true;
        say_end(w);
        return;
    }
    const int64_t now = (int64_t)time(NULL);
    const int64_t starts =
        strcmp(w->state, "queued") == 0 ? cli_integer(job, "expected_start_at") : 0;
    if (strcmp(before, w->state) != 0 || strcmp(reason, w->reason) != 0 ||
        start_moved(w->said_start_at, starts, now)) {
        char when[64];
        (void)snprintf(text, sizeof text, "%s%s%s%s%s", w->state, reason[0] != '\0' ? ": " : "",
                       reason, starts > 0 ? "; expected to start " : "",
                       starts > 0 ? when_show(when, starts, now) : "");
        say(w, text);
        w->said_start_at = starts;
    }
    (void)snprintf(w->reason, sizeof w->reason, "%s", reason);
    take_stage(w, cli_text(job, "stage"));
    if (cli_integer(job, "stage_total") > 0) {
        w->done = cli_integer(job, "stage_done");
        w->total = cli_integer(job, "stage_total");
    }
}

static void take_metrics(struct watch *w, const json_t *event)
{
    const double tokens = cli_number(event, "tokens");

    if (cli_integer(event, "step") <= w->step && w->line_step > 0) {
        return;
    }
    w->step = cli_integer(event, "step");
    w->loss = cli_number(event, "loss");
    take_number(&w->tokens_per_s, event, "tokens_per_s");
    if (w->step > 0 && tokens > 0.0 && w->tokens_per_s > 0.0) {
        w->eta_s =
            (double)(w->total_steps - w->step) * (tokens / (double)w->step) / w->tokens_per_s;
    }
    metrics_line(w, w->step >= w->total_steps);
}

static void take_checkpoint(struct watch *w, const json_t *event)
{
    char text[400], bytes[24], sha256[80];

    copy_safe(sha256, sizeof sha256, cli_text(event, "sha256"));
    (void)snprintf(text, sizeof text, "step %lld  checkpoint  %s  sha256 %s",
                   (long long)cli_integer(event, "step"),
                   show_bytes(bytes, cli_integer(event, "bytes")), sha256);
    say(w, text);
}

/* A warning or an error of the run: its sentence, with the step where it has one. */
static void take_message(struct watch *w, const char *type, const json_t *event)
{
    char text[800], message[512];

    copy_safe(message, sizeof message, cli_text(event, "message"));
    if (json_object_get(event, "step") != NULL) {
        (void)snprintf(text, sizeof text, "step %lld  %s: %s",
                       (long long)cli_integer(event, "step"), type, message);
    } else {
        (void)snprintf(text, sizeof text, "%s: %s", type, message);
    }
    say(w, text);
}

static void take_other(struct watch *w, const char *type, const json_t *event)
{
    char text[160];

    if (strcmp(type, "stage") == 0) {
        take_stage(w, cli_text(event, "stage"));
    } else if (strcmp(type, "progress") == 0) {
        take_stage(w, cli_text(event, "stage"));
        w->done = cli_integer(event, "done");
        w->total = cli_integer(event, "total");
    } else if (strcmp(type, "ready") == 0) {
        char count[24], bytes[24];
        w->total_steps = cli_integer(event, "total_steps");
        (void)snprintf(text, sizeof text, "ready: %s parameters, %s of memory, %lld steps",
                       show_count(count, cli_number(event, "parameters")),
                       show_bytes(bytes, cli_integer(event, "memory_bytes")),
                       (long long)w->total_steps);
        say(w, text);
    } else if (strcmp(type, "resumed") == 0) {
        w->step = w->line_step = cli_integer(event, "from_step");
        (void)snprintf(text, sizeof text, "resumed from step %lld", (long long)w->step);
        say(w, text);
    } else if (strcmp(type, "eval") == 0) {
        w->eval_loss = cli_number(event, "loss");
        (void)snprintf(text, sizeof text, "step %lld  eval loss %.4f",
                       (long long)cli_integer(event, "step"), w->eval_loss);
        say(w, text);
    }
}

static void read_job(struct watch *w)
{
    json_t *job = NULL;
    char *text = NULL;
    struct err err;

    const int rc = http_call(w->second, "GET", w->job_path, NULL, &job, &text, &err);
    if (rc != 0) {
        /* A connection that is going away is the stream's business. */
        if (rc != ERR_IO && rc != ERR_TIMED_OUT && err_http((enum err_code)rc) < 500) {
            w->err = err;
        }
        return;
    }
    if (w->as_json) {
        (void)puts(text);
        (void)fflush(stdout);
    }
    take_job(w, job);
    draw(w, true);
    free(text);
    json_decref(job);
}

/* Whether an event with this id was seen already; notes it otherwise. */
static bool is_repeated(struct watch *w, const char *id)
{
    const char *const dash = strrchr(id, '-');
    char *end = NULL;

    if (dash == NULL || dash == id || (size_t)(dash - id) >= sizeof w->epoch) {
        return false;
    }
    const long long number = strtoll(dash + 1, &end, 10);
    if (end == dash + 1 || *end != '\0') {
        return false;
    }
    const bool same_epoch =
        strlen(w->epoch) == (size_t)(dash - id) && strncmp(w->epoch, id, (size_t)(dash - id)) == 0;
    if (same_epoch && number <= w->number) {
        return true;
    }
    (void)snprintf(w->epoch, sizeof w->epoch, "%.*s", (int)(dash - id), id);
    w->number = number;
    return false;
}

static bool on_event(void *self, const char *type, const char *text, const char *id)
{
    struct watch *const w = self;
    const bool is_job = strcmp(type, "job") == 0;

    if (strcmp(type, "reset") == 0) {
        sse_forget_id(w->sse);
        w->epoch[0] = '\0';
        read_job(w);
        return !w->is_over && w->err.code == ERR_NONE;
    }
    if (is_repeated(w, id)) {
        return true;
    }
    json_t *const event = json_loads(text, 0, NULL);
    const char *const job = cli_text(event, "job");
    if (!is_job && job[0] != '\0' && strcmp(job, w->id) != 0) {
        json_decref(event);
        return true;
    }
    if (w->as_json) {
        (void)puts(text);
        (void)fflush(stdout);
    }
    if (is_job) {
        take_job(w, event);
    } else if (strcmp(type, "metrics") == 0) {
        take_metrics(w, event);
    } else if (strcmp(type, "checkpoint") == 0) {
        take_checkpoint(w, event);
    } else if (strcmp(type, "warning") == 0 || strcmp(type, "checkpoint_failed") == 0) {
        take_message(w, type, event);
    } else {
        take_other(w, type, event);
    }
    json_decref(event);
    draw(w, false);
    return !w->is_over;
}

static bool on_open(void *self, long status)
{
    struct watch *const w = self;

    (void)status;
    if (w->is_lost) {
        say(w, "connected again");
    }
    w->is_lost = false;
    read_job(w);
    return !w->is_over && w->err.code == ERR_NONE;
}

static bool on_bytes(void *self, const char *bytes, size_t count)
{
    struct watch *const w = self;

    return sse_feed(w->sse, bytes, count);
}

static bool on_tick(void *self, int64_t sent)
{
    (void)self;
    (void)sent;
    return was_interrupted == 0;
}

/* Read the stream until the job rests, Ctrl-C, or an error that another try cannot mend. */
static int follow(struct watch *w, struct err *err)
{
    char path[512], last[160];
    int64_t wait_ms = WAIT_LEAST_MS;
    struct http_request request = {.method = "GET",
                                   .path = path,
                                   .sink = on_bytes,
                                   .opened = on_open,
                                   .tick = on_tick,
                                   .self = w,
                                   .quiet_s = QUIET_S};

    TRY(assign_path(path, sizeof path, err, "/v1/stream?jobs=%", w->id));
    while (!w->is_over && was_interrupted == 0) {
        struct http_reply reply;

        (void)snprintf(last, sizeof last, "Last-Event-ID: %s", sse_last_id(w->sse));
        request.header = sse_last_id(w->sse)[0] != '\0' ? last : NULL;
        const int rc = http_send(w->cli->http, &request, &reply, err);
        const bool opened = reply.status == 200;
        const bool hopeless = rc != 0 && !http_may_retry(&reply, rc) && rc != ERR_INTERRUPTED &&
                              rc != ERR_TIMED_OUT && reply.status < 500;
        http_reply_fini(&reply);
        if (w->is_over || was_interrupted != 0) {
            return 0;
        }
        if (w->err.code != ERR_NONE) {
            *err = w->err;
            return (int)w->err.code;
        }
        if (hopeless || (rc != 0 && !w->has_job)) {
            return rc;
        }
        sse_restart(w->sse);
        if (!w->is_lost) {
            say(w, "the connection is lost; trying again (Ctrl-C stops watching, not the job)");
            w->is_lost = true;
        }
        wait_ms = opened ? WAIT_LEAST_MS : wait_ms * 2;
        wait_ms = wait_ms < WAIT_MOST_MS ? wait_ms : WAIT_MOST_MS;
        const struct timespec wait = {.tv_sec = wait_ms / 1000,
                                      .tv_nsec = wait_ms % 1000 * 1000000};
        (void)nanosleep(&wait, NULL);
    }
    return 0;
}

int cli_watch(struct cli *c, const char *id, struct err *err)
{
    struct watch w = {.cli = c,
                      .id = id,
                      .bar = progress_make(stdout),
                      .as_json = args_has(&c->args, OPT(JSON)),
                      .number = -1,
                      .loss = (double)NAN,
                      .eval_loss = (double)NAN,
                      .tokens_per_s = (double)NAN,
                      .eta_s = (double)NAN};
    /* A second Ctrl-C ends the program as usual. */
    const struct sigaction interrupt = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    int rc = assign_path(w.job_path, sizeof w.job_path, err, "/v1/jobs/%", id);

    w.sse = sse_new(on_event, &w);
    if (rc == 0 && w.sse == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    }
    rc = rc != 0 ? rc : http_new(&w.second, c->config.url, c->config.token, err);
    (void)sigaction(SIGINT, &interrupt, NULL);
    rc = rc != 0 ? rc : follow(&w, err);
    (void)signal(SIGINT, SIG_DFL);
    progress_clear(&w.bar);
    if (rc == 0 && !w.is_over) {
        (void)fprintf(
            stderr,
            "stopped watching; %s goes on. `hone watch %s` comes back, `hone cancel %s` ends it\n",
            id, id, id);
        c->exit = EXIT_DETACHED;
    }
    http_free(w.second);
    sse_free(w.sse);
    return rc;
}
