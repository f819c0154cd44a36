/* text_file.c - a UTF-8 text file read in pieces. */
#include "trainer/tokenizer/text_file.h"

#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

int text_file_open(struct text_file *f, const char *path, const char *name, enum err_code blame,
                   struct err *err)
{
    *f = (struct text_file){.name = name == NULL ? path : name, .blame = blame, .first = true};
    TRY(source_open(&f->source, path, f->name, blame, err));
    f->total = source_total(f->source);
    return 0;
}

void text_file_close(struct text_file *f)
{
    source_close(f->source);
    f->source = NULL;
    text_free(&f->buffer);
}

/* Count the lines of s[0..n), which was found to be good. */
static void count_lines(struct text_file *f, const char *s, size_t n)
{
    const char *end = s + n;

    for (const char *at = s; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++) {
        f->lines++;
        f->line_at = 0;
        s = at + 1;
    }
    f->line_at += (size_t)(end - s);
}

/* Check what was read: from `from` in the buffer on. What is cut at the end waits for the next block. */
static int check(struct text_file *f, size_t from, struct err *err)
{
    const char *s = f->buffer.at + from;
    const size_t n = f->buffer.n - from;
    bool cut;

    const size_t good = utf8_prefix(s, n, &cut);
    const char *nul = good > 0 ? memchr(s, '\0', good) : NULL;
    count_lines(f, s, nul != NULL ? (size_t)(nul - s) : good);
    f->n = from - f->start + good;
    if (nul != NULL) {
        return FAIL(err, f->blame, "%s, line %llu, byte %zu: a NUL byte; this is not a text",
                    f->name, (unsigned long long)f->lines + 1, f->line_at + 1);
    }
    if (good < n && (!cut || f->ended)) {
        return FAIL(err, f->blame, "%s, line %llu, byte %zu: not UTF-8 (0x%02X%s)", f->name,
                    (unsigned long long)f->lines + 1, f->line_at + 1,
                    (unsigned)(unsigned char)s[good], cut ? ", cut off at the end" : "");
    }
    return 0;
}

static int read_block(struct text_file *f, struct err *err)
{
    /* As much again as waits unused, so that asking for more again and again stays linear. */
    size_t want = f->buffer.n > BLOCK_BYTES ? f->buffer.n : BLOCK_BYTES;

    TRY(text_reserve(&f->buffer, want, err));
    while (want > 0 && !f->ended) {
        size_t got = 0;
        TRY(source_read(f->source, f->buffer.at + f->buffer.n, want, &got, err));
        f->ended = got == 0;
        f->buffer.n += got;
        want -= got;
    }
    f->done = source_done(f->source);
    return 0;
}

int text_file_more(struct text_file *f, struct err *err)
{
    const bool at_top = !f->begun;

    if (f->start > 0) {
        f->buffer.n -= f->start;
        memmove(f->buffer.at, f->buffer.at + f->start, f->buffer.n);
        f->start = 0;
    }
    const size_t checked = f->n;
    TRY(read_block(f, err));
    f->begun = true;
    if (at_top) {
        const char *is = source_foreign(f->buffer.at, f->buffer.n);
        if (is != NULL) {
            return FAIL(err, f->blame, "%s is %s", f->name, is);
        }
        if (f->buffer.n >= 3 && memcmp(f->buffer.at, "\xEF\xBB\xBF", 3) == 0) {
            f->start = 3;
        }
    }
    TRY(check(f, f->start + checked, err));
    f->text = f->buffer.at + f->start;
    f->last = f->ended;
    return 0;
}

void text_file_use(struct text_file *f, size_t used)
{
    f->start += used;
    f->n -= used;
    f->text += used;
    f->first = f->first && used == 0;
}
