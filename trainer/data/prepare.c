/* prepare.c - a text file to a token file, through the cache. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/io.h"
#include "trainer/data/token_file.h"
#include "trainer/tokenizer/text_file.h"

enum { PROGRESS_BYTES = 1 << 22, WRITE_TOKENS = 1 << 16 };

/* A token file while it is written. */
struct writer {
    const struct data_source *source;
    const struct tokenizer *tokenizer;
    const char *path; /* aside */
    int fd;
    struct token_file_header header;
    unsigned char *block; /* owned; WRITE_TOKENS tokens */
    size_t filled;        /* bytes of it */
    int64_t *ends;        /* owned; of documents */
    size_t end_room;
    int32_t last; /* token; -1 before the first */
};

static int write_block(struct writer *w, struct err *err)
{
    TRY(io_write_all(w->fd, w->block, w->filled, w->path, err));
    w->filled = 0;
    return 0;
}

static int end_document(struct writer *w, struct err *err)
{
    if ((size_t)w->header.documents == w->end_room) {
        const size_t room = w->end_room == 0 ? 64 : w->end_room * 2;
        int64_t *ends = realloc(w->ends, room * sizeof *ends);
        if (ends == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for %zu documents", room);
        }
        w->ends = ends;
        w->end_room = room;
    }
    w->ends[w->header.documents++] = w->header.tokens;
    return 0;
}

static int write_token(struct writer *w, int32_t id, struct err *err)
{
    for (uint32_t k = 0; k < w->header.width; k++) {
        w->block[w->filled++] = (unsigned char)((uint32_t)id >> 8 * k);
    }
    w->header.tokens++;
    w->last = id;
    if (w->filled == (size_t)WRITE_TOKENS * w->header.width) {
        TRY(write_block(w, err));
    }
    return id == tokenizer_eos(w->tokenizer) ? end_document(w, err) : 0;
}

static int write_tokens(struct writer *w, const struct token_list *l, struct err *err)
{
    for (size_t i = 0; i < l->count; i++) {
        TRY(write_token(w, l->ids[i], err));
    }
    return 0;
}

static int encode_text(struct writer *w, struct text_file *f, struct encoder *e, struct err *err)
{
    struct token_list ids = {0};
    uint64_t told = 0;
    int rc = 0;

    while (rc == 0 && !f->last) {
        size_t used = 0;
        ids.count = 0;
        rc = text_file_more(f, err);
        if (rc == 0) {
            rc = encoder_encode_part(e, &ids, f->text, f->n, f->first, f->last, &used, err);
        }
        if (rc == 0) {
            rc = write_tokens(w, &ids, err);
            text_file_use(f, used);
        }
        if (rc == 0 && w->source->progress != NULL &&
            (f->done >= told + PROGRESS_BYTES || f->last)) {
            w->source->progress(w->source->context, f->done, f->total);
            told = f->done;
        }
    }
    token_list_free(&ids);
    return rc;
}

/* EOS behind the text, the ends of documents, the header: the file is complete. */
static int finish(struct writer *w, const char *name, struct err *err)
{
    const int32_t eos = tokenizer_eos(w->tokenizer);
    unsigned char header[TOKEN_FILE_HEADER] = {0};

    if (eos >= 0 && w->last != eos) {
        TRY(write_token(w, eos, err));
    }
    if (w->header.tokens < 2) {
        return FAIL(err, ERR_NO_TOKENS, "%s has %lld tokens: a sample takes at least 2", name,
                    (long long)w->header.tokens);
    }
    if (w->ends == NULL || w->ends[w->header.documents - 1] != w->header.tokens) {
        TRY(end_document(w, err));
    }
    while (w->filled % sizeof *w->ends != 0) { /* a block is a multiple of that */
        w->block[w->filled++] = 0;
    }
    TRY(write_block(w, err));
    TRY(io_write_all(w->fd, w->ends, (size_t)w->header.documents * sizeof *w->ends, w->path, err));
    memcpy(header, &w->header, sizeof w->header);
    if (lseek(w->fd, 0, SEEK_SET) != 0) {
        const int number = errno;
        return FAIL(err, ERR_IO, "seeking in %s failed: %s", w->path, strerror(number));
    }
    TRY(io_write_all(w->fd, header, sizeof header, w->path, err));
    if (fsync(w->fd) != 0) {
        const int number = errno;
        return IO_FAIL(err, number, "syncing %s failed: %s", w->path, strerror(number));
    }
    return 0;
}

static int write_all(struct writer *w, const char *name, struct err *err)
{
    const unsigned char blank[TOKEN_FILE_HEADER] = {0};
    struct text_file f;
    struct encoder *e = NULL;

    TRY(io_write_all(w->fd, blank, sizeof blank, w->path, err));
    TRY(text_file_open(&f, w->source->path, w->source->name, w->source->blame, err));
    int rc = encoder_open(&e, w->tokenizer, err);
    if (rc == 0) {
        rc = encode_text(w, &f, e, err);
    }
    encoder_close(e);
    text_file_close(&f);
    return rc == 0 ? finish(w, name, err) : rc;
}

static int stamp(struct token_file_header *h, const struct data_source *s, const char *name,
                 struct err *err)
{
    struct stat st;

    if (stat(s->path, &st) != 0) {
        const int number = errno;
        return FAIL(err, number == ENOENT ? ERR_NOT_FOUND : ERR_IO, "opening %s failed: %s", name,
                    strerror(number));
    }
    if (!S_ISREG(st.st_mode)) {
        return FAIL(err, s->blame, "%s is not a regular file", name);
    }
    h->text_bytes = (uint64_t)st.st_size;
    h->text_mtime = (int64_t)st.st_mtime;
    return 0;
}

/* Tokenise into the file `aside`, which is open, and give it its name. */
static int make_file(int fd, const char *aside, const char *path,
                     const struct token_file_header *known, const struct data_source *s,
                     const struct tokenizer *t, struct err *err)
{
    const char *name = s->name == NULL ? s->path : s->name;
    struct writer w = {.source = s,
                       .tokenizer = t,
                       .path = aside,
                       .fd = fd,
                       .header = *known,
                       .block = malloc((size_t)WRITE_TOKENS * known->width),
                       .last = -1};
    struct token_file_header now = {0};

    int rc = w.block == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory to write %s", path)
                             : write_all(&w, name, err);
    free(w.block);
    free(w.ends);
    TRY(rc);
    TRY(stamp(&now, s, name, err));
    if (now.text_bytes != known->text_bytes || now.text_mtime != known->text_mtime) {
        return FAIL(err, s->blame, "%s changed while it was read", name);
    }
    if (rename(aside, path) != 0) {
        const int number = errno;
        return IO_FAIL(err, number, "renaming %s failed: %s", aside, strerror(number));
    }
    return io_sync_dir(s->cache_dir, err);
}

static int make_aside(const char *path, const struct token_file_header *known,
                      const struct data_source *s, const struct tokenizer *t, struct err *err)
{
    char aside[IO_PATH_MAX];

    if (snprintf(aside, sizeof aside, "%s.XXXXXX", path) >= (int)sizeof aside) {
        return FAIL(err, ERR_IO, "the path of the cache is too long");
    }
    const int fd = mkostemp(aside, O_CLOEXEC);
    if (fd < 0) {
        const int number = errno;
        return IO_FAIL(err, number, "creating %s failed: %s", aside, strerror(number));
    }
    const int rc = make_file(fd, aside, path, known, s, t, err);
    (void)close(fd);
    if (rc != 0) {
        (void)unlink(aside);
    }
    return rc;
}

/* Is this file what would be made? */
static bool is_same(const struct token_file *f, const struct token_file_header *h)
{
    return strcmp(f->header.text_sha256, h->text_sha256) == 0 &&
           strcmp(f->header.tokenizer_hash, h->tokenizer_hash) == 0;
}

int data_prepare(struct token_file **out, const struct data_source *s, const struct tokenizer *t,
                 struct err *err)
{
    const char *name = s->name == NULL ? s->path : s->name;
    struct token_file_header h = {.version = TOKEN_FILE_VERSION,
                                  .width = tokenizer_size(t) <= 65536 ? 2 : 4,
                                  .vocab_size = tokenizer_size(t)};
    char file[96], path[IO_PATH_MAX];

    *out = NULL;
    memcpy(h.magic, TOKEN_FILE_MAGIC, sizeof h.magic);
    TRY(io_make_dir(s->cache_dir, err));
    TRY(stamp(&h, s, name, err));
    TRY(sha256_file(s->path, h.text_sha256, NULL, err));
    (void)snprintf(h.tokenizer_hash, sizeof h.tokenizer_hash, "%s", tokenizer_hash(t));
    (void)snprintf(file, sizeof file, "%.32s-%.32s.tokens", h.text_sha256, h.tokenizer_hash);
    TRY(io_join(path, sizeof path, s->cache_dir, file, err));
    if (token_file_open(out, path, err) == 0) {
        if (is_same(*out, &h)) {
            return 0;
        }
        token_file_close(*out);
        *out = NULL;
    }
    TRY(make_aside(path, &h, s, t, err)); /* there is none, or one that is damaged */
    return token_file_open(out, path, err);
}
