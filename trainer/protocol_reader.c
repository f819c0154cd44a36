/* protocol_reader.c - events.jsonl, line by line, while somebody appends to it.
 *
 * The writer may take back a torn last line and write another in its place. So a line counts
 * only when one read has brought all of it: what lies behind the last newline of a read is
 * forgotten and read again, and a line that is no event is read once more before it is called
 * bad. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/protocol.h"

enum { BUFFER = 2 * EVENT_LINE_MAX };

struct event_reader {
    int fd;         /* -1 until the file exists                               */
    int64_t offset; /* of the next line in the file                           */
    size_t at;      /* of the next line in `bytes`                            */
    size_t have;    /* bytes of the file in `bytes`                           */
    json_t *object; /* owned; of the last event                               */
    char path[JOB_PATH_SIZE];
    char bytes[BUFFER];
};

int event_reader_open(struct event_reader **out, const char *dir, int64_t offset, struct err *err)
{
    struct event_reader *r = malloc(sizeof *r);

    if (r == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a reader of events");
    }
    r->fd = -1;
    r->offset = offset;
    r->at = r->have = 0;
    r->object = NULL;
    const int rc = io_join(r->path, sizeof r->path, dir, JOB_EVENTS, err);
    if (rc != 0) {
        free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void event_reader_close(struct event_reader *r)
{
    if (r == NULL) {
        return;
    }
    if (r->fd >= 0) {
        (void)close(r->fd);
    }
    json_decref(r->object);
    free(r);
}

/* Read from `offset` into the empty buffer. Errors: IO. */
static int refill(struct event_reader *r, int64_t offset, struct err *err)
{
    struct stat s;
    ssize_t n;

    r->at = r->have = 0;
    if (r->fd < 0) {
        r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    }
    if (r->fd < 0) {
        return errno == ENOENT ? 0 : FAIL(err, ERR_IO, "open %s: %s", r->path, strerror(errno));
    }
    if (fstat(r->fd, &s) != 0) {
        return FAIL(err, ERR_IO, "stat %s: %s", r->path, strerror(errno));
    }
    if (s.st_size < r->offset) {
        return FAIL(err, ERR_IO, "%s has shrunk to %lld bytes; %lld were read already", r->path,
                    (long long)s.st_size, (long long)r->offset);
    }
    do {
        n = pread(r->fd, r->bytes, sizeof r->bytes, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return FAIL(err, ERR_IO, "read %s: %s", r->path, strerror(errno));
    }
    r->have = (size_t)n;
    return 0;
}

/* Length of the whole line at hand, without its newline; -1 when there is none. */
static ssize_t line_at_hand(const struct event_reader *r)
{
    const char *newline = memchr(r->bytes + r->at, '\n', r->have - r->at);

    return newline == NULL ? -1 : newline - (r->bytes + r->at);
}

/* Find the end of a line that is longer than the buffer; *end is 0 when it has none yet. */
static int find_far_end(struct event_reader *r, int64_t *end, struct err *err)
{
    int64_t from = r->offset;

    *end = 0;
    do {
        from += (int64_t)r->have;
        TRY(refill(r, from, err));
        const ssize_t n = line_at_hand(r);
        if (n >= 0) {
            *end = from + n + 1;
        }
    } while (*end == 0 && r->have > 0);
    r->at = r->have = 0;
    return 0;
}

static void say(struct event *out, const char *why)
{
    struct err e;

    err_set(&e, ERR_BAD_FILE, "%s", why);
    memcpy(out->why, e.text, sizeof out->why - 1);
    out->why[sizeof out->why - 1] = '\0';
}

/* Fill in what every event has; false, with out->why, when it is not there. */
static bool read_common(struct event *out, struct err *err)
{
    const struct fields f = {.object = out->object, .where = "event", .code = ERR_BAD_FILE};
    const char *type = NULL;
    int64_t attempt = 0;

    if (fields_text(&f, "type", FIELD_REQUIRED, &type, err) != 0 ||
        fields_integer(&f, "attempt", FIELD_REQUIRED, 1, INT_MAX, &attempt, err) != 0 ||
        fields_number(&f, "t", FIELD_REQUIRED, 0.0, 1e15, &out->t, err) != 0) {
        return false;
    }
    out->type = event_from_word(type);
    out->attempt = (int)attempt; /* at most INT_MAX */
    return true;
}

/* Parse the line of `n` bytes at hand. Errors: NO_MEMORY. */
static int parse_line(struct event_reader *r, size_t n, enum event_found *found, struct event *out,
                      struct err *err)
{
    struct err bad;

    out->line = r->bytes + r->at;
    out->length = n;
    json_decref(r->object);
    r->object = NULL;
    *found = EVENT_FOUND_BAD;
    if (n >= EVENT_LINE_MAX) {
        out->line = NULL;
        say(out, "the line is too long");
        return 0;
    }
    const int rc = json_parse_text(&r->object, out->line, n, "event", &bad);
    if (rc == (int)ERR_NO_MEMORY) {
        *err = bad;
        return rc;
    }
    out->object = r->object;
    if (rc == 0 && !json_is_object(r->object)) {
        say(out, "the line is not a JSON object");
    } else if (rc == 0 && read_common(out, &bad)) {
        *found = EVENT_FOUND;
    } else {
        say(out, bad.text);
    }
    return 0;
}

/* Bring a whole line to hand: *n is its length, -1 when there is none, and when the line was too
 * long and has been passed, which *found then says. */
static int fetch_line(struct event_reader *r, ssize_t *n, enum event_found *found,
                      struct event *out, struct err *err)
{
    TRY(refill(r, r->offset, err));
    *n = line_at_hand(r);
    if (*n >= 0 || r->have < BUFFER) {
        return 0;
    }
    TRY(find_far_end(r, &out->end, err));
    if (out->end > 0) {
        *found = EVENT_FOUND_BAD;
        say(out, "the line is too long");
        r->offset = out->end;
    }
    return 0;
}

int event_reader_next(struct event_reader *r, enum event_found *found, struct event *out,
                      struct err *err)
{
    /* A bad line that was in the buffer already is looked at again, freshly read. */
    for (bool is_fresh = false;; is_fresh = true) {
        *found = EVENT_FOUND_NONE;
        *out = (struct event){.type = EVENT_COUNT};
        ssize_t n = line_at_hand(r);
        if (is_fresh || n < 0) {
            is_fresh = true;
            TRY(fetch_line(r, &n, found, out, err));
        }
        if (n < 0) {
            return 0;
        }
        TRY(parse_line(r, (size_t)n, found, out, err));
        if (*found == EVENT_FOUND || is_fresh) {
            r->at += (size_t)n + 1;
            r->offset += n + 1;
            out->end = r->offset;
            return 0;
        }
    }
}
