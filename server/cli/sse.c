/* sse.c - a reader of server-sent events: bytes in, events out, as the HTML standard defines them. */
#include "server/cli/sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 16 * 1024 * 1024 };

struct text {
    char *bytes; /* owned */
    size_t count, room;
};

struct sse {
    sse_event on_event;
    void *self;
    struct text line, text;
    bool has_text, has_id, after_cr, at_start;
    char type[64], id[128];
};

static bool append(struct text *t, const char *bytes, size_t count)
{
    if (count >= LONGEST || t->count + count >= LONGEST) {
        return false;
    }
    if (t->count + count + 1 > t->room) {
        const size_t room = (t->count + count + 1) * 2;
        char *const grown = realloc(t->bytes, room);
        if (grown == NULL) {
            return false;
        }
        t->bytes = grown;
        t->room = room;
    }
    if (count > 0) {
        memcpy(t->bytes + t->count, bytes, count);
    }
    t->count += count;
    t->bytes[t->count] = '\0';
    return true;
}

struct sse *sse_new(sse_event on_event, void *self)
{
    struct sse *const s = calloc(1, sizeof *s);

    if (s == NULL) {
        return NULL;
    }
    s->on_event = on_event;
    s->self = self;
    sse_restart(s);
    if (!append(&s->line, "", 0) || !append(&s->text, "", 0)) {
        sse_free(s);
        return NULL;
    }
    return s;
}

void sse_free(struct sse *s)
{
    if (s == NULL) {
        return;
    }
    free(s->line.bytes);
    free(s->text.bytes);
    free(s);
}

/* A blank line: hand over the event that the lines before it made. */
static bool dispatch(struct sse *s)
{
    bool go_on = true;

    if (s->has_text) {
        go_on = s->on_event(s->self, s->type[0] != '\0' ? s->type : "message", s->text.bytes,
                            s->has_id ? s->id : "");
    }
    s->has_text = false;
    s->has_id = false;
    s->text.count = 0;
    s->type[0] = '\0';
    return go_on;
}

static bool take_line(struct sse *s)
{
    const char *const line = s->line.bytes;
    const size_t length = s->line.count;

    if (length == 0) {
        return dispatch(s);
    }
    const char *const colon = memchr(line, ':', length);
    const size_t name = colon != NULL ? (size_t)(colon - line) : length;
    const char *value = colon != NULL ? colon + 1 : line + length;
    value += *value == ' ' && colon != NULL;
    const size_t rest = (size_t)(line + length - value);

    if (name == 4 && memcmp(line, "data", 4) == 0) {
        if (s->has_text && !append(&s->text, "\n", 1)) {
            return false;
        }
        s->has_text = true;
        return append(&s->text, value, rest);
    }
    if (name == 5 && memcmp(line, "event", 5) == 0) {
        (void)snprintf(s->type, sizeof s->type, "%s", value);
    } else if (name == 2 && memcmp(line, "id", 2) == 0 && memchr(value, '\0', rest) == NULL &&
               rest < sizeof s->id) {
        (void)snprintf(s->id, sizeof s->id, "%s", value);
        s->has_id = true;
    }
    return true;
}

bool sse_feed(struct sse *s, const char *bytes, size_t count)
{
    size_t at = 0;

    while (at < count) {
        if (s->after_cr && bytes[at] == '\n') {
            s->after_cr = false;
            at++;
            continue;
        }
        s->after_cr = false;
        size_t end = at;
        while (end < count && bytes[end] != '\n' && bytes[end] != '\r') {
            end++;
        }
        if (!append(&s->line, bytes + at, end - at)) {
            return false;
        }
        at = end;
        if (at == count) {
            break;
        }
        s->after_cr = bytes[at] == '\r';
        at++;
        if (s->at_start && s->line.count >= 3 && memcmp(s->line.bytes, "\xEF\xBB\xBF", 3) == 0) {
            memmove(s->line.bytes, s->line.bytes + 3, s->line.count - 2);
            s->line.count -= 3;
        }
        s->at_start = false;
        const bool go_on = take_line(s);
        s->line.count = 0;
        if (!go_on) {
            return false;
        }
    }
    return true;
}

void sse_restart(struct sse *s)
{
    s->line.count = 0;
    s->text.count = 0;
    s->has_text = false;
    s->has_id = false;
    s->after_cr = false;
    s->at_start = true;
    s->type[0] = '\0';
}

const char *sse_last_id(const struct sse *s)
{
    return s->id;
}

void sse_forget_id(struct sse *s)
{
    s->id[0] = '\0';
}
