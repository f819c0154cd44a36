/* source.c - reading through zlib and libzstd, and the formats that are known but not read. */
#include "trainer/base/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUT_BYTES = 1 << 18, BOMB_RATIO = 1000, BOMB_BYTES = 1 << 30 };

struct source {
    int fd;
    const char *name;
    enum err_code blame;
    enum packing packing;
    uint64_t done, total; /* bytes of the file             */
    uint64_t unpacked;    /* bytes that were handed out    */
    bool ended;           /* nothing more in the file      */
    bool between;         /* no member or frame is open    */
    z_stream gzip;
    ZSTD_DCtx *zstd; /* owned */
    size_t at, n;    /* input[at..n) is not unpacked yet */
    unsigned char input[INPUT_BYTES];
};

const char *packing_name(enum packing p)
{
    static const char *const names[PACKING_COUNT] = {"none", "gzip", "zstd"};
    return names[p];
}

/* Keep what is not used yet, and read until the input is full or the file ends. */
static int fill(struct source *s, struct err *err)
{
    memmove(s->input, s->input + s->at, s->n - s->at);
    s->n -= s->at;
    s->at = 0;
    while (s->n < sizeof s->input && !s->ended) {
        const ssize_t got = read(s->fd, s->input + s->n, sizeof s->input - s->n);
        if (got < 0 && errno != EINTR) {
            const int number = errno;
            return FAIL(err, ERR_IO, "reading %s failed: %s", s->name, strerror(number));
        }
        s->ended = got == 0;
        if (got > 0) {
            s->n += (size_t)got;
            s->done += (size_t)got;
        }
    }
    return 0;
}

static bool is_gzip(const unsigned char *p, size_t n)
{
    return n >= 3 && p[0] == 0x1F && p[1] == 0x8B && p[2] == 8;
}

/* A zstd frame, or one that decoders skip and that parallel packers write in front. */
static bool is_zstd(const unsigned char *p, size_t n)
{
    return n >= 4 &&
           ((p[0] == 0x28 && p[1] == 0xB5 && p[2] == 0x2F && p[3] == 0xFD) ||
            (p[0] >= 0x50 && p[0] <= 0x5F && p[1] == 0x2A && p[2] == 0x4D && p[3] == 0x18));
}

static int begin(struct source *s, struct err *err)
{
    TRY(fill(s, err));
    s->between = true;
    if (is_gzip(s->input, s->n)) {
        if (inflateInit2(&s->gzip, MAX_WBITS + 16) != Z_OK) {
            return FAIL(err, ERR_NO_MEMORY, "no memory to unpack %s", s->name);
        }
        s->packing = PACKING_GZIP;
    } else if (is_zstd(s->input, s->n)) {
        s->zstd = ZSTD_createDCtx();
        if (s->zstd == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory to unpack %s", s->name);
        }
        s->packing = PACKING_ZSTD;
    }
    return 0;
}

static int open_file(struct source *s, const char *path, struct err *err)
{
    struct stat st;

    s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0) {
        const int number = errno;
        if (number == ENOENT || number == ENOTDIR) {
            return FAIL(err, ERR_NOT_FOUND, "there is no file %s", s->name);
        }
        return FAIL(err, ERR_IO, "opening %s failed: %s", s->name, strerror(number));
    }
    if (fstat(s->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return FAIL(err, s->blame, "%s is not a regular file", s->name);
    }
    s->total = (uint64_t)st.st_size;
    return begin(s, err);
}

int source_open(struct source **out, const char *path, const char *name, enum err_code blame,
                struct err *err)
{
    struct source *s = calloc(1, sizeof *s);

    *out = NULL;
    if (s == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to read %s", name);
    }
    s->name = name;
    s->blame = blame;
    const int rc = open_file(s, path, err);
    if (rc != 0) {
        source_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void source_close(struct source *s)
{
    if (s == NULL) {
        return;
    }
    if (s->packing == PACKING_GZIP) {
        (void)inflateEnd(&s->gzip);
    }
    ZSTD_freeDCtx(s->zstd);
    if (s->fd >= 0) {
        (void)close(s->fd);
    }
    free(s);
}

/* Between two members: another one, zeros that pad the file (they are passed over), or the end. */
static int begin_member(struct source *s, struct err *err)
{
    while (s->at < s->n && s->input[s->at] == 0 && s->unpacked > 0) {
        s->at++;
    }
    if (s->n - s->at < 3 && !s->ended) {
        TRY(fill(s, err));
    }
    if (s->at == s->n) {
        return 0;
    }
    if (!is_gzip(s->input + s->at, s->n - s->at)) {
        return FAIL(err, s->blame, "%s: after the gzip data there is something else", s->name);
    }
    (void)inflateReset(&s->gzip);
    s->between = false;
    return 0;
}

static int unpack_gzip(struct source *s, char *out, size_t room, size_t *got, struct err *err)
{
    if (s->between) {
        TRY(begin_member(s, err));
        if (s->between) {
            return 0;
        }
    }
    s->gzip.next_in = s->input + s->at;
    s->gzip.avail_in = (uInt)(s->n - s->at);
    s->gzip.next_out = (unsigned char *)out;
    s->gzip.avail_out = (uInt)room;
    const int rc = inflate(&s->gzip, Z_NO_FLUSH);
    s->at = s->n - s->gzip.avail_in;
    *got = room - s->gzip.avail_out;
    s->between = rc == Z_STREAM_END;
    if (rc == Z_MEM_ERROR) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to unpack %s", s->name);
    }
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) {
        return FAIL(err, s->blame, "%s: the gzip data is damaged", s->name);
    }
    return 0;
}

static int unpack_zstd(struct source *s, void *out, size_t room, size_t *got, struct err *err)
{
    ZSTD_inBuffer in = {s->input, s->n, s->at};
    ZSTD_outBuffer to = {.dst = out, .size = room};

    if (s->at == s->n && s->between) {
        return 0;
    }
    const size_t rc = ZSTD_decompressStream(s->zstd, &to, &in);
    s->at = in.pos;
    *got = to.pos;
    s->between = rc == 0;
    if (ZSTD_isError(rc)) {
        return FAIL(err, s->blame, "%s: the zstd data is damaged or takes a window above 128 MiB",
                    s->name);
    }
    return 0;
}

static int unpack(struct source *s, char *out, size_t room, size_t *got, struct err *err)
{
    /* A call may take input and give nothing: the end is where the file has ended, too. */
    while (*got == 0) {
        const size_t before = s->n - s->at;
        if (before == 0 && !s->ended) {
            TRY(fill(s, err));
        }
        TRY(s->packing == PACKING_GZIP ? unpack_gzip(s, out, room, got, err)
                                       : unpack_zstd(s, out, room, got, err));
        if (*got == 0 && s->at == s->n && s->ended) {
            if (!s->between) {
                return FAIL(err, s->blame, "%s is cut off: its %s data ends too early", s->name,
                            packing_name(s->packing));
            }
            return 0;
        }
    }
    s->unpacked += *got;
    if (s->unpacked > BOMB_BYTES && s->unpacked / BOMB_RATIO > s->done) {
        return FAIL(err, s->blame, "%s unpacks to more than %d times its size", s->name,
                    BOMB_RATIO);
    }
    return 0;
}

int source_read(struct source *s, char *out, size_t room, size_t *got, struct err *err)
{
    *got = 0;
    room = room > BOMB_BYTES ? BOMB_BYTES : room;
    if (s->packing != PACKING_NONE) {
        return unpack(s, out, room, got, err);
    }
    if (s->at == s->n && !s->ended) {
        TRY(fill(s, err));
    }
    *got = s->n - s->at < room ? s->n - s->at : room;
    memcpy(out, s->input + s->at, *got);
    s->at += *got;
    return 0;
}

enum packing source_packing(const struct source *s)
{
    return s->packing;
}

uint64_t source_done(const struct source *s)
{
    return s->done;
}

uint64_t source_total(const struct source *s)
{
    return s->total;
}

static bool holds(const char *s, size_t n, const char *word)
{
    return memmem(s, n, word, strlen(word)) != NULL;
}

/* Text of two or four bytes a character, without a mark that says so. */
static const char *wide_text(const char *s, size_t n)
{
    if (n >= 8 && s[1] == '\0' && s[2] == '\0' && s[3] == '\0' && s[0] != '\0' && s[4] != '\0' &&
        s[5] == '\0' && s[6] == '\0' && s[7] == '\0') {
        return "UTF-32, not UTF-8; convert it first: iconv -f UTF-32LE -t UTF-8 IN > OUT";
    }
    if (n >= 4 && s[1] == '\0' && s[3] == '\0' && s[0] != '\0' && s[2] != '\0') {
        return "UTF-16, not UTF-8; convert it first: iconv -f UTF-16LE -t UTF-8 IN > OUT";
    }
    if (n >= 4 && s[0] == '\0' && s[2] == '\0' && s[1] != '\0' && s[3] != '\0') {
        return "UTF-16, not UTF-8; convert it first: iconv -f UTF-16BE -t UTF-8 IN > OUT";
    }
    return NULL;
}

const char *source_foreign(const char *head, size_t n)
{
    /* clang-format off */
    static const struct { size_t n; const char *magic, *is; } formats[] = {
        {4, "PAR1",             "a Parquet file; convert it first: python3 -c \"import pandas as p; p.read_parquet('IN')"
                                ".to_json('OUT.jsonl', orient='records', lines=True)\""},
        {6, "ARROW1",           "an Arrow file; convert it first: python3 -c \"import pandas as p; p.read_feather('IN')"
                                ".to_json('OUT.jsonl', orient='records', lines=True)\""},
        {4, "\xff\xff\xff\xff", "an Arrow stream; convert it first: python3 -c \"import datasets as d; d.Dataset"
                                ".from_file('IN').to_json('OUT.jsonl')\""},
        {2, "\x1f\x8b",         "packed with gzip twice; unpack it once: gunzip IN"},
        {4, "\x28\xb5\x2f\xfd", "packed with zstd twice; unpack it once: zstd -d IN"},
        {6, "\xfd" "7zXZ\0",    "packed with xz; unpack it first: unxz IN"},
        {3, "BZh",              "packed with bzip2; unpack it first: bunzip2 IN"},
        {6, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it first: 7z x IN"},
        {4, "Rar!",             "a RAR archive; unpack it first: unrar x IN"},
        {4, "%PDF",             "a PDF; take its text out first: pdftotext IN OUT.txt"},
        {8, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office file of the old kind; convert it first: python3 -c \"import pandas "
                                "as p; p.read_excel('IN').to_json('OUT.jsonl', orient='records', lines=True)\""},
        {16, "SQLite format 3", "an SQLite data base; write its rows to JSONL first, one object a line"},
        {6, "\x93NUMPY",        "a NumPy array; write its texts to JSONL first, one object a line"},
        {4, "\x89HDF",          "an HDF5 file; write its rows to JSONL first, one object a line"},
        {4, "Obj\x01",          "an Avro file; write its rows to JSONL first, one object a line"},
        {4, "\xff\xfe\0\0",     "UTF-32, not UTF-8; convert it first: iconv -f UTF-32 -t UTF-8 IN > OUT"},
        {4, "\0\0\xfe\xff",     "UTF-32, not UTF-8; convert it first: iconv -f UTF-32 -t UTF-8 IN > OUT"},
        {2, "\xff\xfe",         "UTF-16, not UTF-8; convert it first: iconv -f UTF-16 -t UTF-8 IN > OUT"},
        {2, "\xfe\xff",         "UTF-16, not UTF-8; convert it first: iconv -f UTF-16 -t UTF-8 IN > OUT"},
    };
    /* clang-format on */
    if (n >= 4 && memcmp(head, "PK\x03\x04", 4) == 0) {
        return holds(head, n, "xl/") ? "an Excel workbook; convert it first: python3 -c \"import "
                                       "pandas as p; p.read_excel('IN')"
                                       ".to_json('OUT.jsonl', orient='records', lines=True)\""
                                     : "a zip archive; unpack it first: unzip IN";
    }
    if (n >= 262 && memcmp(head + 257, "ustar", 5) == 0) {
        return "a tar archive; unpack it first: tar xf IN";
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (n >= formats[i].n && memcmp(head, formats[i].magic, formats[i].n) == 0) {
            return formats[i].is;
        }
    }
    return wide_text(head, n);
}
