/* token_file.c - open a token file, checked as if a stranger had made it. */
#include "trainer/data/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/check.h"

static int damaged(const struct token_file *f, const char *what, struct err *err)
{
    return FAIL(err, ERR_BAD_FILE, "the token file %s is damaged: %s", f->path, what);
}

static int check_header(const struct token_file *f, struct err *err)
{
    const struct token_file_header *h = &f->header;

    if (memcmp(h->magic, TOKEN_FILE_MAGIC, sizeof h->magic) != 0) {
        return damaged(f, "it does not begin like one", err);
    }
    if (h->version != TOKEN_FILE_VERSION) {
        return FAIL(err, ERR_BAD_FILE, "the token file %s has version %u, not %d", f->path,
                    h->version, TOKEN_FILE_VERSION);
    }
    if (h->vocab_size < 1 || h->vocab_size > INT32_MAX ||
        h->width != (h->vocab_size <= 65536 ? 2U : 4U)) {
        return damaged(f, "its vocabulary has an impossible size", err);
    }
    if (h->kind != TOKEN_FILE_TEXT && h->kind != TOKEN_FILE_EXAMPLES) {
        return damaged(f, "it holds neither a text nor examples", err);
    }
    if (h->tokens < 1 || h->documents < 1 || (uint64_t)h->tokens > f->map_bytes / h->width ||
        (uint64_t)h->documents > f->map_bytes / sizeof *f->ends ||
        token_file_tail(h) + (uint64_t)h->documents * sizeof *f->ends + h->report_bytes !=
            f->map_bytes) {
        return damaged(f, "its length does not fit its header", err);
    }
    if (memchr(h->text_sha256, '\0', SHA256_TEXT) == NULL ||
        memchr(h->tokenizer_hash, '\0', SHA256_TEXT) == NULL ||
        memchr(h->options_hash, '\0', SHA256_TEXT) == NULL) {
        return damaged(f, "its hashes are not terminated", err);
    }
    return 0;
}

/* The header says how many targets there are: all tokens of a text. */
static int check_bits(const struct token_file *f, struct err *err)
{
    const struct token_file_header *h = &f->header;
    const int64_t bytes = (int64_t)token_file_padded(((uint64_t)h->tokens + 7) / 8);
    int64_t ones = f->bits == NULL ? h->tokens : 0;

    for (int64_t i = 0; f->bits != NULL && i < bytes; i++) {
        ones += __builtin_popcount(f->bits[i]);
    }
    return ones == h->trained ? 0 : damaged(f, "its targets are not as many as it says", err);
}

static int check_content(const struct token_file *f, struct err *err)
{
    const struct token_file_header *h = &f->header;
    int64_t before = 0;
    uint32_t highest = 0;

    for (int64_t i = 0; i < h->documents; i++) {
        if (f->ends[i] <= before) {
            return damaged(f, "its documents do not follow each other", err);
        }
        before = f->ends[i];
    }
    if (before != h->tokens) {
        return damaged(f, "its documents do not end with its tokens", err);
    }
    for (int64_t i = 0; i < h->tokens; i++) {
        const uint32_t id = f->u16 != NULL ? f->u16[i] : f->u32[i];
        highest = id > highest ? id : highest;
    }
    if (highest >= h->vocab_size) {
        return damaged(f, "a token is outside its vocabulary", err);
    }
    return check_bits(f, err);
}

static int map_file(struct token_file *f, struct err *err)
{
    struct stat st;

    const int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const int number = errno;
        if (number == ENOENT) {
            return FAIL(err, ERR_NOT_FOUND, "there is no token file %s", f->path);
        }
        return FAIL(err, ERR_IO, "opening %s failed: %s", f->path, strerror(number));
    }
    void *map = MAP_FAILED;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= TOKEN_FILE_HEADER) {
        f->map_bytes = (size_t)st.st_size;
        map = mmap(NULL, f->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
    }
    (void)close(fd);
    if (map == MAP_FAILED) {
        return damaged(f, "it is too short", err);
    }
    f->map = map;
    return 0;
}

static int open_file(struct token_file *f, struct err *err)
{
    TRY(map_file(f, err));
    memcpy(&f->header, f->map, sizeof f->header);
    TRY(check_header(f, err));
    const char *at = f->map;
    const void *tokens = at + TOKEN_FILE_HEADER, *ends = at + token_file_tail(&f->header);
    f->u16 = f->header.width == 2 ? tokens : NULL;
    f->u32 = f->header.width == 4 ? tokens : NULL;
    f->bits = f->header.kind == TOKEN_FILE_EXAMPLES
                  ? (const unsigned char *)at + token_file_bits(&f->header)
                  : NULL;
    f->ends = ends;
    return check_content(f, err);
}

int token_file_open(struct token_file **out, const char *path, struct err *err)
{
    struct token_file *f = calloc(1, sizeof *f);

    *out = NULL;
    if (f != NULL) {
        f->path = strdup(path);
    }
    if (f == NULL || f->path == NULL) {
        free(f);
        return FAIL(err, ERR_NO_MEMORY, "no memory to open %s", path);
    }
    const int rc = open_file(f, err);
    if (rc != 0) {
        token_file_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

void token_file_close(struct token_file *f)
{
    if (f == NULL) {
        return;
    }
    if (f->map != NULL) {
        (void)munmap(f->map, f->map_bytes);
    }
    free(f->path);
    free(f);
}

int64_t token_file_count(const struct token_file *f)
{
    return f->header.tokens;
}

int64_t token_file_documents(const struct token_file *f)
{
    return f->header.documents;
}

uint64_t token_file_text_bytes(const struct token_file *f)
{
    return f->header.text_bytes;
}

int32_t token_file_at(const struct token_file *f, int64_t i)
{
    CHECK(i >= 0 && i < f->header.tokens, "token %lld of %lld", (long long)i,
          (long long)f->header.tokens);
    return f->u16 != NULL ? (int32_t)f->u16[i] : (int32_t)f->u32[i];
}

bool token_file_trained(const struct token_file *f, int64_t i)
{
    CHECK(i >= 0 && i < f->header.tokens, "token %lld of %lld", (long long)i,
          (long long)f->header.tokens);
    return f->bits == NULL || (f->bits[i / 8] >> (i & 7) & 1) != 0;
}

int64_t token_file_targets(const struct token_file *f)
{
    return f->header.trained;
}

enum token_file_kind token_file_kind(const struct token_file *f)
{
    return (enum token_file_kind)f->header.kind;
}

const char *token_file_report(const struct token_file *f, size_t *bytes)
{
    *bytes = f->header.report_bytes;
    return (const char *)f->map + f->map_bytes - f->header.report_bytes;
}

const char *token_file_path(const struct token_file *f)
{
    return f->path;
}
