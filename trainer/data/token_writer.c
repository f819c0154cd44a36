/* token_writer.c - tokens go to the file; bits and ends to nameless ones that are copied behind them. */
#include "trainer/data/token_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"

enum { COPY_BYTES = 1 << 16, REPORT_BYTES_MAX = 1 << 24 };

struct token_writer {
    struct token_file_header header;
    char path[IO_PATH_MAX], aside[IO_PATH_MAX], dir[IO_PATH_MAX];
    FILE *tokens, *bits, *ends; /* owned; bits is NULL for a text */
    uint64_t word;              /* bits that are not written yet  */
    int64_t ended;              /* tokens of the documents that were ended */
};

static int failed(const struct token_writer *w, struct err *err)
{
    const int number = errno;

    return IO_FAIL(err, number, "writing %s failed: %s", w->aside, strerror(number));
}

static int put(const struct token_writer *w, FILE *f, const void *bytes, size_t n, struct err *err)
{
    return fwrite_unlocked(bytes, 1, n, f) == n ? 0 : failed(w, err);
}

/* A stream on a new file named after `aside`; with `named` it keeps the name. */
static int open_stream(struct token_writer *w, FILE **out, bool named, struct err *err)
{
    char name[IO_PATH_MAX];

    if (snprintf(name, sizeof name, "%s.XXXXXX", w->path) >= (int)sizeof name) {
        return FAIL(err, ERR_IO, "the path of the cache is too long");
    }
    const int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) {
        const int number = errno;
        return IO_FAIL(err, number, "creating %s failed: %s", name, strerror(number));
    }
    if (named) {
        memcpy(w->aside, name, sizeof name);
    } else {
        (void)unlink(name);
    }
    *out = fdopen(fd, "w+b");
    if (*out == NULL) {
        (void)close(fd);
        return FAIL(err, ERR_NO_MEMORY, "no memory to write %s", w->path);
    }
    return 0;
}

static int start(struct token_writer *w, const char *dir, const char *file, struct err *err)
{
    const unsigned char blank[TOKEN_FILE_HEADER] = {0};

    TRY(io_join(w->path, sizeof w->path, dir, file, err));
    memcpy(w->dir, dir, strlen(dir) + 1); /* shorter than the path */
    TRY(open_stream(w, &w->tokens, true, err));
    TRY(open_stream(w, &w->ends, false, err));
    if (w->header.kind == TOKEN_FILE_EXAMPLES) {
        TRY(open_stream(w, &w->bits, false, err));
    }
    return put(w, w->tokens, blank, sizeof blank, err);
}

int token_writer_open(struct token_writer **out, const char *dir, const char *file,
                      const struct token_file_header *known, struct err *err)
{
    struct token_writer *w = calloc(1, sizeof *w);

    *out = NULL;
    if (w == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to write %s", file);
    }
    w->header = *known;
    memcpy(w->header.magic, TOKEN_FILE_MAGIC, sizeof w->header.magic);
    w->header.version = TOKEN_FILE_VERSION;
    w->header.width = w->header.vocab_size <= 65536 ? 2 : 4;
    const int rc = start(w, dir, file, err);
    if (rc != 0) {
        token_writer_abandon(w);
        return rc;
    }
    *out = w;
    return 0;
}

static int flush_bits(struct token_writer *w, struct err *err)
{
    TRY(put(w, w->bits, &w->word, sizeof w->word, err));
    w->word = 0;
    return 0;
}

int token_writer_put(struct token_writer *w, int32_t id, bool trained, struct err *err)
{
    const int64_t at = w->header.tokens++;
    unsigned char bytes[4];

    CHECK(id >= 0 && id < w->header.vocab_size, "id %d of %lld", id,
          (long long)w->header.vocab_size);
    for (uint32_t k = 0; k < w->header.width; k++) {
        bytes[k] = (unsigned char)((uint32_t)id >> 8 * k);
    }
    w->header.trained += trained;
    if (w->bits != NULL) {
        w->word |= (uint64_t)trained << (at & 63);
        if ((at & 63) == 63) {
            TRY(flush_bits(w, err));
        }
    }
    return put(w, w->tokens, bytes, w->header.width, err);
}

int token_writer_end(struct token_writer *w, struct err *err)
{
    if (w->ended == w->header.tokens) {
        return 0;
    }
    w->ended = w->header.tokens;
    w->header.documents++;
    return put(w, w->ends, &w->ended, sizeof w->ended, err);
}

int64_t token_writer_tokens(const struct token_writer *w)
{
    return w->header.tokens;
}

int64_t token_writer_documents(const struct token_writer *w)
{
    return w->header.documents;
}

int64_t token_writer_trained(const struct token_writer *w)
{
    return w->header.trained;
}

/* Everything of `from` behind what the file has. */
static int append(struct token_writer *w, FILE *from, struct err *err)
{
    unsigned char block[COPY_BYTES];
    size_t n = 0;

    if (fflush(from) != 0 || fseek(from, 0, SEEK_SET) != 0) {
        return failed(w, err);
    }
    while ((n = fread(block, 1, sizeof block, from)) > 0) {
        TRY(put(w, w->tokens, block, n, err));
    }
    return ferror(from) ? failed(w, err) : 0;
}

static int write_tail(struct token_writer *w, const char *report, struct err *err)
{
    const uint64_t used = (uint64_t)w->header.tokens * w->header.width, zero = 0;

    TRY(put(w, w->tokens, &zero, token_file_padded(used) - used, err));
    if (w->bits != NULL) {
        if ((w->header.tokens & 63) != 0) {
            TRY(flush_bits(w, err));
        }
        TRY(append(w, w->bits, err));
    }
    TRY(append(w, w->ends, err));
    return put(w, w->tokens, report, w->header.report_bytes, err);
}

static int complete(struct token_writer *w, const char *report, struct err *err)
{
    unsigned char header[TOKEN_FILE_HEADER] = {0};
    const size_t bytes = strlen(report);

    CHECK(w->header.documents > 0 && w->ended == w->header.tokens, "%lld tokens in no document",
          (long long)(w->header.tokens - w->ended));
    CHECK(bytes <= REPORT_BYTES_MAX, "a report of %zu bytes", bytes);
    w->header.report_bytes = (uint32_t)bytes;
    TRY(write_tail(w, report, err));
    memcpy(header, &w->header, sizeof w->header);
    if (fflush(w->tokens) != 0 || fseek(w->tokens, 0, SEEK_SET) != 0) {
        return failed(w, err);
    }
    TRY(put(w, w->tokens, header, sizeof header, err));
    if (fflush(w->tokens) != 0 || fsync(fileno(w->tokens)) != 0) {
        return failed(w, err);
    }
    if (rename(w->aside, w->path) != 0) {
        const int number = errno;
        return IO_FAIL(err, number, "renaming %s failed: %s", w->aside, strerror(number));
    }
    w->aside[0] = '\0';
    return io_sync_dir(w->dir, err);
}

int token_writer_finish(struct token_writer *w, const char *report, struct err *err)
{
    const int rc = complete(w, report == NULL ? "" : report, err);

    token_writer_abandon(w);
    return rc;
}

static void close_stream(FILE *f)
{
    if (f != NULL) {
        (void)fclose(f);
    }
}

void token_writer_abandon(struct token_writer *w)
{
    if (w == NULL) {
        return;
    }
    close_stream(w->tokens);
    close_stream(w->bits);
    close_stream(w->ends);
    if (w->aside[0] != '\0') {
        (void)unlink(w->aside);
    }
    free(w);
}
