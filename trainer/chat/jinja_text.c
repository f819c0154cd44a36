/* jinja_text.c - strings that know where each of their bytes came from. */
#include "trainer/chat/jinja_text.h"

#include <string.h>

#include "kernels/check.h"
#include "trainer/tokenizer/utf8.h"

enum { BYTES_PER_STEP = 64 };

static bool same_tag(struct jinja_tag a, struct jinja_tag b)
{
    return a.from == b.from && a.turn == b.turn && a.generation == b.generation;
}

static int grow_bytes(struct jinja *j, struct jinja_out *o, size_t n)
{
    if (n > j->output - (o->n < j->output ? o->n : j->output)) {
        return JINJA_FAIL(j, "a text becomes longer than the %zu bytes it may have", j->output);
    }
    if (n > o->room - o->n) {
        const size_t least = o->n + n, twice = 2 * o->room;
        const size_t room = least > twice ? least : twice;
        char *at;
        JINJA_TAKE(j, at, room);
        if (o->n > 0) {
            memcpy(at, o->at, o->n);
        }
        o->at = at;
        o->room = room;
    }
    return 0;
}

static int add_run(struct jinja *j, struct jinja_out *o, struct jinja_tag tag)
{
    if (o->run_count == o->run_room) {
        const size_t room = o->run_room == 0 ? 4 : 2 * o->run_room;
        struct jinja_run *runs;
        JINJA_TAKE(j, runs, room * sizeof *runs);
        if (o->run_count > 0) {
            memcpy(runs, o->runs, o->run_count * sizeof *runs);
        }
        o->runs = runs;
        o->run_room = room;
    }
    o->runs[o->run_count++] = (struct jinja_run){o->n, tag};
    return 0;
}

int jinja_out_put(struct jinja *j, struct jinja_out *o, const char *s, size_t n,
                  struct jinja_tag tag)
{
    if (n == 0) {
        return 0;
    }
    TRY(jinja_step(j, (int64_t)(n / BYTES_PER_STEP)));
    TRY(grow_bytes(j, o, n));
    CHECK(o->at != NULL, "%zu bytes of room", o->room);
    memcpy(o->at + o->n, s, n);
    o->n += n;
    if (o->run_count > 0 && same_tag(o->runs[o->run_count - 1].tag, tag)) {
        o->runs[o->run_count - 1].end = o->n;
        return 0;
    }
    return add_run(j, o, tag);
}

/* What is written in a turn belongs to it, wherever its bytes came from. */
static struct jinja_tag emitted(const struct jinja *j, struct jinja_tag tag)
{
    if (j->turn != JINJA_NO_TURN) {
        tag.turn = j->turn;
    }
    tag.generation = tag.generation || j->generation;
    return tag;
}

/* Append [begin, end) of V; bytes emitted get the present turn. */
static int append(struct jinja *j, struct jinja_out *o, struct jinja_value v, size_t begin,
                  size_t end, bool emit)
{
    const struct jinja_text *t = v.as.text;

    if (t->runs == NULL) {
        return jinja_out_put(j, o, t->at + begin, end - begin, emit ? emitted(j, v.tag) : v.tag);
    }
    TRY(jinja_step(j, (int64_t)(t->run_count / 8)));
    for (size_t i = 0, at = 0; i < t->run_count && at < end; at = t->runs[i++].end) {
        const size_t from = at > begin ? at : begin;
        const size_t to = t->runs[i].end < end ? t->runs[i].end : end;
        const struct jinja_tag tag = t->runs[i].tag;
        if (from < to) {
            TRY(jinja_out_put(j, o, t->at + from, to - from, emit ? emitted(j, tag) : tag));
        }
    }
    return 0;
}

int jinja_out_text(struct jinja *j, struct jinja_out *o, struct jinja_value v, bool emit)
{
    return append(j, o, v, 0, v.as.text->n, emit);
}

int jinja_out_cut(struct jinja *j, struct jinja_out *o, struct jinja_value v, size_t begin,
                  size_t end)
{
    return append(j, o, v, begin, end, false);
}

int jinja_out_value(struct jinja *j, const struct jinja_out *o, struct jinja_value *out)
{
    struct jinja_text *t;

    JINJA_TAKE(j, t, sizeof *t);
    *t = (struct jinja_text){.at = o->n > 0 ? o->at : "", .n = o->n};
    *out = (struct jinja_value){.kind = JINJA_STRING, .tag = jinja_untagged, .as.text = t};
    if (o->run_count == 1) {
        out->tag = o->runs[0].tag;
    } else if (o->run_count > 1) {
        t->runs = o->runs;
        t->run_count = o->run_count;
    }
    return 0;
}

int jinja_cut(struct jinja *j, struct jinja_value v, size_t begin, size_t end,
              struct jinja_value *out)
{
    const struct jinja_text *t = v.as.text;
    struct jinja_text *cut;
    size_t first = 0;

    if (begin == 0 && end == t->n) {
        *out = v;
        return 0;
    }
    TRY(jinja_string(j, out, t->at + begin, end - begin, v.tag));
    if (t->runs == NULL || begin == end) {
        return 0;
    }
    TRY(jinja_step(j, (int64_t)(t->run_count / 8)));
    while (t->runs[first].end <= begin) {
        first++;
    }
    size_t last = first;
    while (t->runs[last].end < end) {
        last++;
    }
    out->tag = t->runs[first].tag;
    if (first == last) {
        return 0;
    }
    struct jinja_run *runs;
    JINJA_TAKE(j, runs, (last - first + 1) * sizeof *runs);
    for (size_t i = first; i <= last; i++) {
        const size_t to = t->runs[i].end < end ? t->runs[i].end : end;
        runs[i - first] = (struct jinja_run){to - begin, t->runs[i].tag};
    }
    JINJA_TAKE(j, cut, sizeof *cut);
    *cut = (struct jinja_text){t->at + begin, end - begin, runs, last - first + 1};
    out->as.text = cut;
    return 0;
}

struct jinja_tag jinja_text_tag(struct jinja_value v)
{
    const struct jinja_text *t = v.kind == JINJA_STRING ? v.as.text : NULL;

    for (size_t i = 0; t != NULL && i < t->run_count; i++) {
        if (t->runs[i].tag.from != JINJA_FROM_TEMPLATE) {
            return t->runs[i].tag;
        }
    }
    return t != NULL && t->run_count > 0 ? t->runs[0].tag : v.tag;
}

int64_t jinja_characters(const struct jinja_text *t)
{
    int64_t n = 0;

    for (size_t i = 0; i < t->n; i++) {
        n += ((unsigned char)t->at[i] & 0xC0U) != 0x80;
    }
    return n;
}

size_t jinja_character_at(const struct jinja_text *t, int64_t index)
{
    size_t at = 0;

    for (; at < t->n; at++) {
        if (((unsigned char)t->at[at] & 0xC0U) != 0x80 && index-- == 0) {
            break;
        }
    }
    return at;
}

bool jinja_is_space(uint32_t c)
{
    return (c >= 0x1C && c <= 0x1F) || char_is_space(c);
}

/* Is the character that c is one to take off? */
static bool goes(uint32_t c, const struct jinja_text *chars)
{
    uint32_t other;

    if (chars == NULL) {
        return jinja_is_space(c);
    }
    for (size_t i = 0; i < chars->n;) {
        i += utf8_get(chars->at + i, &other);
        if (other == c) {
            return true;
        }
    }
    return false;
}

int jinja_strip(struct jinja *j, struct jinja_value v, struct jinja_value chars, int ends,
                struct jinja_value *out)
{
    const struct jinja_text *t = v.as.text, *set = NULL;
    size_t begin = 0, end = t->n;
    uint32_t c;

    if (chars.kind != JINJA_UNDEFINED && chars.kind != JINJA_NONE) {
        TRY(jinja_want_text(j, chars, "what is stripped"));
        set = chars.as.text;
    }
    while ((ends & JINJA_LEFT) != 0 && begin < end) {
        const size_t n = utf8_get(t->at + begin, &c);
        if (!goes(c, set)) {
            break;
        }
        begin += n;
        TRY(jinja_step(j, set == NULL ? 0 : 1 + (int64_t)(set->n / BYTES_PER_STEP)));
    }
    while ((ends & JINJA_RIGHT) != 0 && begin < end) {
        const size_t last = utf8_back(t->at, end);
        (void)utf8_get(t->at + last, &c);
        if (!goes(c, set)) {
            break;
        }
        end = last;
        TRY(jinja_step(j, set == NULL ? 0 : 1 + (int64_t)(set->n / BYTES_PER_STEP)));
    }
    return jinja_cut(j, v, begin, end, out);
}

size_t jinja_search(const struct jinja_text *t, const struct jinja_text *needle, size_t from)
{
    if (from > t->n) {
        return SIZE_MAX;
    }
    if (needle->n == 0) {
        return from;
    }
    const char *at = memmem(t->at + from, t->n - from, needle->at, needle->n);
    return at == NULL ? SIZE_MAX : (size_t)(at - t->at);
}

int jinja_search_steps(struct jinja *j, const struct jinja_text *t, const struct jinja_text *part)
{
    return jinja_step(j, (int64_t)((t->n / 16 + 1) * (part->n / 256 + 1)));
}

size_t jinja_search_back(const struct jinja_text *t, const struct jinja_text *needle, size_t end)
{
    for (size_t at = end; needle->n <= end && at >= needle->n; at--) {
        if (memcmp(t->at + at - needle->n, needle->at, needle->n) == 0) {
            return at - needle->n;
        }
        if (at == 0) {
            break;
        }
    }
    return SIZE_MAX;
}

int jinja_replace(struct jinja *j, struct jinja_value v, struct jinja_value from,
                  struct jinja_value to, int64_t count, struct jinja_value *out)
{
    const struct jinja_text *t = v.as.text;
    struct jinja_out o = {0};
    size_t done = 0;

    TRY(jinja_want_text(j, from, "what is replaced"));
    TRY(jinja_want_text(j, to, "a replacement"));
    const size_t n = from.as.text->n;
    for (size_t at = jinja_search(t, from.as.text, 0); at != SIZE_MAX && count != 0; count--) {
        TRY(jinja_step(j, 1));
        TRY(jinja_out_cut(j, &o, v, done, at));
        TRY(jinja_out_text(j, &o, to, false));
        done = at + n;
        /* The empty string stands before every character and at the end. */
        const size_t next =
            n > 0 ? done
            : at < t->n
                ? jinja_character_at(&(struct jinja_text){t->at + at, t->n - at, NULL, 0}, 1) + at
                : SIZE_MAX;
        at = next == SIZE_MAX ? SIZE_MAX : jinja_search(t, from.as.text, next);
    }
    TRY(jinja_out_cut(j, &o, v, done, t->n));
    return jinja_out_value(j, &o, out);
}
