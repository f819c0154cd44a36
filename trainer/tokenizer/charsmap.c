/* charsmap.c - texts through the table of a sentencepiece normalizer. */
#include "trainer/tokenizer/charsmap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "trainer/tokenizer/rewriting.h"

enum {
    SHORT_GRAPHEME = 6, /* bytes from which a grapheme is not looked up whole */
    TEXT_MAX = 1024,    /* bytes that a string becomes */
};

struct charsmap {
    enum charsmap_reading reading;
    uint32_t *units; /* owned; a beginning is a state, a byte leads on */
    size_t count;
    char *texts; /* owned; NUL-terminated */
    size_t bytes;
};

static uint32_t little_endian(const unsigned char *s)
{
    return (uint32_t)s[0] | (uint32_t)s[1] << 8 | (uint32_t)s[2] << 16 | (uint32_t)s[3] << 24;
}

static int read_table(struct charsmap *m, const unsigned char *bytes, size_t n, struct err *err)
{
    const size_t trie = n >= 4 ? little_endian(bytes) : 0;

    if (n < 4 || trie > n - 4 || trie % 4 != 0 || trie == 0) {
        return FAIL(err, ERR_BAD_FILE, "the charsmap of the normalizer is cut short");
    }
    m->count = trie / 4;
    m->bytes = n - 4 - trie;
    m->units = malloc(trie);
    m->texts = malloc(m->bytes + 1);
    if (m->units == NULL || m->texts == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a charsmap");
    }
    for (size_t i = 0; i < m->count; i++) {
        m->units[i] = little_endian(bytes + 4 + i * 4);
    }
    memcpy(m->texts, bytes + 4 + trie, m->bytes);
    m->texts[m->bytes] = '\0';
    if (utf8_prefix(m->texts, m->bytes, NULL) != m->bytes) {
        return FAIL(err, ERR_BAD_FILE, "the charsmap of the normalizer makes what is not UTF-8");
    }
    for (size_t i = 0; i < m->bytes; i += strlen(m->texts + i) + 1) {
        if (strlen(m->texts + i) > TEXT_MAX) {
            return FAIL(err, ERR_BAD_FILE,
                        "the charsmap of the normalizer makes a text of more than %d bytes",
                        TEXT_MAX);
        }
    }
    return 0;
}

int charsmap_new(struct charsmap **out, const char *bytes, size_t n, enum charsmap_reading reading,
                 struct err *err)
{
    struct charsmap *m = calloc(1, sizeof *m);

    *out = NULL;
    if (m == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a charsmap");
    }
    m->reading = reading;
    const int rc = read_table(m, (const unsigned char *)bytes, n, err);
    if (rc != 0) {
        charsmap_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

void charsmap_free(struct charsmap *m)
{
    if (m != NULL) {
        free(m->units);
        free(m->texts);
        free(m);
    }
}

/* The unit of a state that a unit leads to. */
static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 0x200U) >> 6);
}

/* What a string that starts s[0..n) becomes, NULL when none does: the longest, whose length is *used, or the
 * shortest. It starts in the middle of a character only in a damaged table, and then is none. */
static const char *find(const struct charsmap *m, const char *s, size_t n, bool longest,
                        size_t *used)
{
    const char *found = NULL;
    size_t at = offset_of(m->units[0]);

    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)s[i];
        at ^= byte;
        if (at >= m->count || (m->units[at] & 0x800000FFU) != byte) {
            break;
        }
        const uint32_t unit = m->units[at];
        at ^= offset_of(unit);
        if ((unit & 0x100U) == 0) {
            continue;
        }
        const size_t value = at < m->count ? m->units[at] & 0x7FFFFFFFU : SIZE_MAX;
        if (value > m->bytes || ((unsigned char)m->texts[value] & 0xC0U) == 0x80U ||
            (i + 1 < n && ((unsigned char)s[i + 1] & 0xC0U) == 0x80U)) {
            continue;
        }
        found = m->texts + value;
        *used = i + 1;
        if (!longest) {
            break;
        }
    }
    return found;
}

static int rewrite_longest(struct rewriting *r, const struct charsmap *m)
{
    const struct piece *p = r->p;

    for (size_t i = 0; i < p->n;) {
        uint32_t c;
        size_t used = utf8_get(p->s + i, &c);
        const char *made = find(m, p->s + i, p->n - i, true, &used);
        TRY(made != NULL ? rewriting_change(r, i, i + used, made, strlen(made))
                         : rewriting_keep(r, i, i + used));
        i += used;
    }
    return 0;
}

/* [from, to) as a whole is looked up; *done: it was there. */
static int look_up(struct rewriting *r, const struct charsmap *m, size_t from, size_t to,
                   bool *done)
{
    size_t used;
    const char *made = find(m, r->p->s + from, to - from, false, &used);

    *done = made != NULL;
    return made != NULL ? rewriting_change(r, from, to, made, strlen(made)) : 0;
}

static size_t grapheme_end(const struct piece *p, size_t from)
{
    utf8proc_int32_t state = 0;
    uint32_t before, c;
    size_t at = from + utf8_get(p->s + from, &before);

    while (at < p->n) {
        const size_t wide = utf8_get(p->s + at, &c);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)c,
                                             &state)) {
            break;
        }
        before = c;
        at += wide;
    }
    return at;
}

static int rewrite_graphemes(struct rewriting *r, const struct charsmap *m)
{
    const struct piece *p = r->p;
    bool done;

    for (size_t i = 0, end = 0; i < p->n; i = end) {
        end = grapheme_end(p, i);
        done = false;
        if (end - i < SHORT_GRAPHEME) {
            TRY(look_up(r, m, i, end, &done));
        }
        for (size_t k = i; !done && k < end;) {
            uint32_t c;
            bool known;
            const size_t wide = utf8_get(p->s + k, &c);
            TRY(look_up(r, m, k, k + wide, &known));
            TRY(known ? 0 : rewriting_keep(r, k, k + wide));
            k += wide;
        }
    }
    return 0;
}

int charsmap_rewrite(struct rewriting *r, const struct charsmap *m)
{
    return m->reading == CHARSMAP_LONGEST ? rewrite_longest(r, m) : rewrite_graphemes(r, m);
}
