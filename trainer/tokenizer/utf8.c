/* utf8.c - growing byte strings and UTF-8, for the tokenizer. */
#include "trainer/tokenizer/utf8.h"

#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

int text_reserve(struct text *t, size_t more, struct err *err)
{
    if (more <= t->room - t->n) {
        return 0;
    }
    if (more > SIZE_MAX / 2 - t->n) {
        return FAIL(err, ERR_NO_MEMORY, "a text of %zu bytes is too long", more);
    }
    size_t room = t->room < 64 ? 64 : t->room;
    while (room < t->n + more) {
        room += room / 2;
    }
    char *at = realloc(t->at, room);
    if (at == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a text of %zu bytes", room);
    }
    t->at = at;
    t->room = room;
    return 0;
}

int text_put(struct text *t, const char *s, size_t n, struct err *err)
{
    TRY(text_reserve(t, n, err));
    if (n > 0) {
        memcpy(t->at + t->n, s, n);
        t->n += n;
    }
    return 0;
}

int text_put_base64(struct text *t, const char *s, size_t n, struct err *err)
{
    struct base64_decode_ctx c;
    size_t got = BASE64_DECODE_LENGTH(n);

    TRY(text_reserve(t, got + 1, err));
    base64_decode_init(&c);
    if (base64_decode_update(&c, &got, (uint8_t *)t->at + t->n, n, s) != 1 ||
        base64_decode_final(&c) != 1) {
        return FAIL(err, ERR_BAD_FILE, "'%s' is not base64", text_excerpt(s, n).at);
    }
    t->n += got;
    return 0;
}

void text_free(struct text *t)
{
    free(t->at);
    *t = (struct text){0};
}

int place_list_put(struct place_list *l, size_t at, struct err *err)
{
    if (l->count == l->room) {
        const size_t room = l->room < 64 ? 64 : l->room + l->room / 2;
        size_t *places = realloc(l->at, room * sizeof *places);
        if (places == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for %zu places in a text", room);
        }
        l->at = places;
        l->room = room;
    }
    l->at[l->count++] = at;
    return 0;
}

void place_list_free(struct place_list *l)
{
    free(l->at);
    *l = (struct place_list){0};
}

/* How many bytes of s[0..n) begin a well-formed character, and in *want how many that takes; *want is
 * 0 for a byte that starts none. Unicode 15, table 3-7. */
static size_t well_formed(const unsigned char *s, size_t n, size_t *want)
{
    const unsigned c = s[0];
    unsigned low = 0x80, high = 0xBF;

    if (c < 0x80) {
        *want = 1;
        return 1;
    }
    if (c < 0xC2 || c > 0xF4) {
        *want = 0;
        return 0;
    }
    *want = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (c == 0xE0) {
        low = 0xA0;
    } else if (c == 0xED) {
        high = 0x9F;
    } else if (c == 0xF0) {
        low = 0x90;
    } else if (c == 0xF4) {
        high = 0x8F;
    }
    size_t got = 1;
    while (got < *want && got < n && s[got] >= low && s[got] <= high) {
        got++;
        low = 0x80;
        high = 0xBF;
    }
    return got;
}

size_t utf8_prefix(const char *s, size_t n, bool *cut)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t i = 0;

    if (cut != NULL) {
        *cut = false;
    }
    while (i < n) {
        uint64_t eight;
        if (n - i >= 8) {
            memcpy(&eight, u + i, 8);
            if ((eight & 0x8080808080808080U) == 0) {
                i += 8;
                continue;
            }
        }
        size_t want;
        const size_t got = well_formed(u + i, n - i, &want);
        if (want == 0 || got < want) {
            if (cut != NULL) {
                *cut = want > 0 && i + got == n;
            }
            return i;
        }
        i += got;
    }
    return n;
}

size_t utf8_bad(const char *s, size_t n)
{
    size_t want;
    const size_t got = well_formed((const unsigned char *)s, n, &want);
    return got > 0 ? got : 1;
}

size_t utf8_get(const char *s, uint32_t *c)
{
    const unsigned char *u = (const unsigned char *)s;

    if (u[0] < 0x80) {
        *c = u[0];
        return 1;
    }
    if (u[0] < 0xE0) {
        *c = (u[0] & 0x1FU) << 6 | (u[1] & 0x3FU);
        return 2;
    }
    if (u[0] < 0xF0) {
        *c = (u[0] & 0x0FU) << 12 | (u[1] & 0x3FU) << 6 | (u[2] & 0x3FU);
        return 3;
    }
    *c = (u[0] & 0x07U) << 18 | (u[1] & 0x3FU) << 12 | (u[2] & 0x3FU) << 6 | (u[3] & 0x3FU);
    return 4;
}

size_t utf8_back(const char *s, size_t at)
{
    at--;
    while (at > 0 && ((unsigned char)s[at] & 0xC0U) == 0x80U) {
        at--;
    }
    return at;
}

size_t utf8_write(char *s, uint32_t c)
{
    if (c < 0x80) {
        s[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        s[0] = (char)(0xC0U | c >> 6);
        s[1] = (char)(0x80U | (c & 0x3FU));
        return 2;
    }
    if (c < 0x10000) {
        s[0] = (char)(0xE0U | c >> 12);
        s[1] = (char)(0x80U | (c >> 6 & 0x3FU));
        s[2] = (char)(0x80U | (c & 0x3FU));
        return 3;
    }
    s[0] = (char)(0xF0U | c >> 18);
    s[1] = (char)(0x80U | (c >> 12 & 0x3FU));
    s[2] = (char)(0x80U | (c >> 6 & 0x3FU));
    s[3] = (char)(0x80U | (c & 0x3FU));
    return 4;
}

bool char_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

struct excerpt text_excerpt(const char *s, size_t n)
{
    struct excerpt e = {{0}};
    size_t m = 0, i = 0;

    while (i < n) {
        size_t want;
        const size_t got = well_formed((const unsigned char *)s + i, n - i, &want);
        const bool shown = want > 0 && got == want && (unsigned char)s[i] >= 0x20 && s[i] != 0x7F;
        const size_t wide = shown ? want : 1;
        if (m + wide > 40) {
            memcpy(e.at + m, "...", 4);
            return e;
        }
        if (shown) {
            memcpy(e.at + m, s + i, want);
        } else {
            e.at[m] = '?';
        }
        m += wide;
        i += got > 0 ? got : 1;
    }
    return e;
}
