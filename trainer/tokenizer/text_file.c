/* text_file.c - a UTF-8 text file read in pieces. */
#include "trainer/tokenizer/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20 };

int text_file_open(struct text_file *f, const char *path, const char *name, enum err_code blame,
                   struct err *err)
{
    struct stat st;

    *f = (struct text_file){.name = name == NULL ? path : name, .blame = blame, .first = true};
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0) {
        const int number = errno;
        if (number == ENOENT || number == ENOTDIR) {
            return FAIL(err, ERR_NOT_FOUND, "there is no file %s", f->name);
        }
        return FAIL(err, ERR_IO, "opening %s failed: %s", f->name, strerror(number));
    }
    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        text_file_close(f);
        return FAIL(err, blame, "%s is not a regular file", f->name);
    }
    f->total = (uint64_t)st.st_size;
    return 0;
}

void text_file_close(struct text_file *f)
{
    if (f->fd >= 0) {
        (void)close(f->fd);
        f->fd = -1;
    }
    text_free(&f->buffer);
}

/* What the first bytes say a file is, when it is no text. */
static const char *known_format(const char *s, size_t n)
{
    /* clang-format off */
    static const struct { size_t n; const char *magic, *is; } formats[] = {
        {2, "\x1f\x8b",                 "compressed with gzip"},
        {4, "\x28\xb5\x2f\xfd",         "compressed with zstd"},
        {6, "\xfd" "7zXZ\0",            "compressed with xz"},
        {4, "BZh9",                     "compressed with bzip2"},
        {4, "PK\x03\x04",               "a zip archive"},
        {4, "%PDF",                     "a PDF"},
        {4, "PAR1",                     "a Parquet file"},
        {4, "\xff\xfe\0\0",             "UTF-32"},
        {4, "\0\0\xfe\xff",             "UTF-32"},
        {2, "\xff\xfe",                 "UTF-16"},
        {2, "\xfe\xff",                 "UTF-16"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (n >= formats[i].n && memcmp(s, formats[i].magic, formats[i].n) == 0) {
            return formats[i].is;
        }
    }
    if (n >= 4 && ((s[0] == '\0' && s[2] == '\0' && s[1] != '\0' && s[3] != '\0') ||
                   (s[1] == '\0' && s[3] == '\0' && s[0] != '\0' && s[2] != '\0'))) {
        return "UTF-16";
    }
    return NULL;
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
        const ssize_t got = read(f->fd, f->buffer.at + f->buffer.n, want);
        if (got < 0 && errno != EINTR) {
            const int number = errno;
            return FAIL(err, ERR_IO, "reading %s failed: %s", f->name, strerror(number));
        }
        f->ended = got == 0;
        if (got > 0) {
            f->buffer.n += (size_t)got;
            f->done += (size_t)got;
            want -= (size_t)got;
        }
    }
    return 0;
}

int text_file_more(struct text_file *f, struct err *err)
{
    const bool at_top = f->done == 0;

    if (f->start > 0) {
        f->buffer.n -= f->start;
        memmove(f->buffer.at, f->buffer.at + f->start, f->buffer.n);
        f->start = 0;
    }
    const size_t checked = f->n;
    TRY(read_block(f, err));
    if (at_top) {
        const char *is = known_format(f->buffer.at, f->buffer.n);
        if (is != NULL) {
            return FAIL(err, f->blame, "%s is %s, not a UTF-8 text", f->name, is);
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
