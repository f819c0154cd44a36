/* events.c - formats an event into a fixed buffer and appends it with one write. */
#include "trainer/events.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"
#include "trainer/base/text.h"

enum { PROGRESS_MS = 250, BLOCK = 4096 };

struct events {
    int fd; /* -1 when silent */
    int attempt;
    int64_t lost;
    int64_t *step;       /* borrowed; may be NULL                            */
    off_t cut_to;        /* where a torn line begins; -1 when there is none  */
    int64_t progress_ms; /* when the last progress event was written         */
    enum stage progress; /* and of which stage                               */
    bool is_finite;      /* of the event being formatted: no number was null */
    size_t length;       /* of it so far; above EVENT_LINE_MAX: did not fit  */
    char line[EVENT_LINE_MAX];
};

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The offset behind the last newline of the first `size` bytes. Errors: IO. */
static int find_line_end(int fd, off_t size, off_t *end, struct err *err)
{
    char block[BLOCK];

    for (off_t high = size; high > 0;) {
        const off_t low = high > BLOCK ? high - BLOCK : 0;
        TRY(io_read_at(fd, block, (size_t)(high - low), (uint64_t)low, JOB_EVENTS, err));
        const char *newline = memrchr(block, '\n', (size_t)(high - low));
        if (newline != NULL) {
            *end = low + (newline - block) + 1;
            return 0;
        }
        high = low;
    }
    *end = 0;
    return 0;
}

int events_cut_torn_line(const char *dir, struct err *err)
{
    char path[JOB_PATH_SIZE];
    struct stat s;
    off_t end = 0;

    TRY(io_join(path, sizeof path, dir, JOB_EVENTS, err));
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        const int number = errno;
        return number == ENOENT ? 0 : IO_FAIL(err, number, "open %s: %s", path, strerror(number));
    }
    int rc = fstat(fd, &s) == 0 ? find_line_end(fd, s.st_size, &end, err)
                                : FAIL(err, ERR_IO, "stat %s: %s", path, strerror(errno));
    if (rc == 0 && end < s.st_size && ftruncate(fd, end) != 0) {
        rc = FAIL(err, ERR_IO, "cut %s to %jd bytes: %s", path, (intmax_t)end, strerror(errno));
    }
    (void)close(fd);
    return rc;
}

int events_open(struct events **out, const char *dir, int attempt, bool silent, struct err *err)
{
    char path[JOB_PATH_SIZE];

    TRY(io_join(path, sizeof path, dir, JOB_EVENTS, err));
    struct events *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the writer of events");
    }
    *e = (struct events){.fd = -1, .attempt = attempt, .cut_to = -1, .progress = STAGE_COUNT};
    if (!silent) {
        e->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (e->fd < 0) {
            const int number = errno;
            free(e);
            return IO_FAIL(err, number, "open %s: %s", path, strerror(number));
        }
    }
    *out = e;
    return 0;
}

void events_close(struct events *e)
{
    if (e == NULL) {
        return;
    }
    if (e->fd >= 0) {
        (void)close(e->fd);
    }
    free(e);
}

void events_keep_step(struct events *e, int64_t *step)
{
    e->step = step;
}

void events_set_step(struct events *e, int64_t step)
{
    if (e->step != NULL) {
        *e->step = step;
    }
}

int64_t events_lost(const struct events *e)
{
    return e->lost;
}

__attribute__((format(printf, 2, 3))) static void put(struct events *e, const char *fmt, ...)
{
    va_list ap;

    if (e->length > EVENT_LINE_MAX) {
        return;
    }
    const size_t left = EVENT_LINE_MAX - e->length;
    va_start(ap, fmt);
    const int n = vsnprintf(e->line + e->length, left, fmt, ap);
    va_end(ap);
    e->length = n < 0 || (size_t)n >= left ? EVENT_LINE_MAX + 1 : e->length + (size_t)n;
}

/* 9 digits: every float comes back as it was. */
static void put_number(struct events *e, const char *key, double value)
{
    if (isfinite(value)) {
        put(e, ",\"%s\":%.9g", key, value);
    } else {
        put(e, ",\"%s\":null", key);
        e->is_finite = false;
    }
}

static void begin(struct events *e, enum event_type type)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    e->length = 0;
    e->is_finite = true;
    put(e, "{\"t\":%lld.%06ld,\"attempt\":%d,\"type\":\"%s\"", (long long)t.tv_sec,
        t.tv_nsec / 1000, e->attempt, event_word(type));
    if (e->lost > 0) {
        put(e, ",\"lost\":%" PRId64, e->lost);
    }
}

/* Take back what a failed write left behind. False when that is not possible now. */
static bool cut_torn(struct events *e)
{
    if (e->cut_to >= 0 && ftruncate(e->fd, e->cut_to) == 0) {
        e->cut_to = -1;
    }
    return e->cut_to < 0;
}

static void finish(struct events *e)
{
    put(e, "%s}\n", e->is_finite ? "" : ",\"finite\":false");
    if (e->fd < 0) {
        return;
    }
    if (e->length > EVENT_LINE_MAX || !cut_torn(e)) {
        e->lost++;
        return;
    }
    ssize_t n;
    do {
        n = write(e->fd, e->line, e->length);
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t)e->length) {
        e->lost = 0;
        return;
    }
    e->lost++;
    if (n > 0) {
        e->cut_to = lseek(e->fd, 0, SEEK_END) - n;
        (void)cut_torn(e);
    }
}

void events_metrics(struct events *e, const struct metrics *m)
{
    events_set_step(e, m->step);
    begin(e, EVENT_METRICS);
    put(e, ",\"step\":%" PRId64, m->step);
    put_number(e, "loss", m->loss);
    put_number(e, "lr", m->lr);
    put_number(e, "grad_norm", m->grad_norm);
    put(e, ",\"tokens\":%" PRId64, m->tokens);
    put_number(e, "tokens_per_s", m->tokens_per_s);
    put_number(e, "seconds", m->seconds);
    if (m->loss_scale > 0.0) {
        put_number(e, "loss_scale", m->loss_scale);
        put(e, ",\"skipped\":%" PRId64, m->skipped);
    }
    finish(e);
}

void events_eval(struct events *e, int64_t step, double loss, double accuracy, int64_t tokens)
{
    begin(e, EVENT_EVAL);
    put(e, ",\"step\":%" PRId64, step);
    put_number(e, "loss", loss);
    put_number(e, "accuracy", accuracy);
    put(e, ",\"tokens\":%" PRId64, tokens);
    finish(e);
}

void events_stage(struct events *e, enum stage stage)
{
    begin(e, EVENT_STAGE);
    put(e, ",\"stage\":\"%s\"", stage_word(stage));
    finish(e);
}

void events_progress(struct events *e, enum stage stage, int64_t done, int64_t total,
                     const char *unit)
{
    const int64_t now = now_ms();

    if (done != total && stage == e->progress && now - e->progress_ms < PROGRESS_MS) {
        return;
    }
    e->progress = stage;
    e->progress_ms = now;
    begin(e, EVENT_PROGRESS);
    put(e, ",\"stage\":\"%s\",\"done\":%" PRId64 ",\"total\":%" PRId64 ",\"unit\":\"%s\"",
        stage_word(stage), done, total, unit);
    finish(e);
}

void events_send(struct events *e, enum event_type type, json_t *keys)
{
    if (keys == NULL) {
        e->lost++;
        return;
    }
    CHECK(json_is_object(keys) && json_object_get(keys, "t") == NULL &&
              json_object_get(keys, "attempt") == NULL && json_object_get(keys, "type") == NULL,
          "the keys of a %s event", event_word(type));
    begin(e, type);
    if (json_object_size(keys) > 0) {
        put(e, ",");
        const size_t left = EVENT_LINE_MAX - e->length;
        const size_t n = json_dumpb(keys, e->line + e->length, left, JSON_COMPACT | JSON_EMBED);
        e->length = n == 0 || n > left ? EVENT_LINE_MAX + 1 : e->length + n;
    }
    json_decref(keys);
    finish(e);
}

void events_warning(struct events *e, const char *fmt, ...)
{
    char text[1024], clean[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    text_clean(clean, sizeof clean, text);
    events_send(e, EVENT_WARNING, json_pack("{s:s}", "message", clean));
}

void events_error(struct events *e, const struct err *error)
{
    char clean[sizeof error->text];

    text_clean(clean, sizeof clean, error->text);
    events_send(e, EVENT_ERROR,
                json_pack("{s:s, s:s}", "code", err_word(error->code), "message", clean));
}
