/* cache.c - token files in a folder, named after what they were made of. */
#include "trainer/data/cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "trainer/base/io.h"

enum { CACHE_NAME = 128 };

static const char *name_of(const struct data_source *s)
{
    return s->name == NULL ? s->path : s->name;
}

static int stamp(struct token_file_header *h, const struct data_source *s, struct err *err)
{
    struct stat st;

    if (stat(s->path, &st) != 0) {
        const int number = errno;
        return FAIL(err, number == ENOENT ? ERR_NOT_FOUND : ERR_IO, "opening %s failed: %s",
                    name_of(s), strerror(number));
    }
    if (!S_ISREG(st.st_mode)) {
        return FAIL(err, s->blame, "%s is not a regular file", name_of(s));
    }
    h->text_bytes = (uint64_t)st.st_size;
    h->text_mtime = (int64_t)st.st_mtime;
    return 0;
}

/* Is this file what would be made? */
static bool is_same(const struct token_file *f, const struct token_file_header *h)
{
    return f->header.kind == h->kind && strcmp(f->header.text_sha256, h->text_sha256) == 0 &&
           strcmp(f->header.tokenizer_hash, h->tokenizer_hash) == 0 &&
           strcmp(f->header.options_hash, h->options_hash) == 0;
}

/* The header's hash of the source, and the name that follows from it. */
static int name_file(char file[CACHE_NAME], const struct data_source *s,
                     struct token_file_header *known, struct err *err)
{
    TRY(stamp(known, s, err));
    TRY(sha256_file(s->path, known->text_sha256, NULL, err));
    (void)snprintf(file, CACHE_NAME, "%.32s-%.32s%s%.32s.tokens", known->text_sha256,
                   known->tokenizer_hash, known->options_hash[0] != '\0' ? "-" : "",
                   known->options_hash);
    return 0;
}

static int open_same(struct token_file **out, const char *path,
                     const struct token_file_header *known, struct err *err)
{
    TRY(token_file_open(out, path, err));
    if (is_same(*out, known)) {
        return 0;
    }
    token_file_close(*out);
    *out = NULL;
    return FAIL(err, ERR_NOT_FOUND, "%s is of something else", path);
}

static int make(const char *file, const struct data_source *s,
                const struct token_file_header *known, cache_write *write, void *context,
                struct err *err)
{
    struct token_writer *w = NULL;
    struct token_file_header now = {0};
    char *report = NULL;

    TRY(token_writer_open(&w, s->cache_dir, file, known, err));
    int rc = write(context, w, &report, err);
    if (rc == 0) {
        rc = stamp(&now, s, err);
    }
    if (rc == 0 && (now.text_bytes != known->text_bytes || now.text_mtime != known->text_mtime)) {
        rc = FAIL(err, s->blame, "%s changed while it was read", name_of(s));
    }
    if (rc == 0) {
        rc = token_writer_finish(w, report, err);
    } else {
        token_writer_abandon(w);
    }
    free(report);
    return rc;
}

int cache_prepare(struct token_file **out, const struct data_source *s,
                  struct token_file_header *known, cache_write *write, void *context,
                  struct err *err)
{
    char file[CACHE_NAME], path[IO_PATH_MAX];

    *out = NULL;
    TRY(io_make_dir(s->cache_dir, err));
    TRY(name_file(file, s, known, err));
    TRY(io_join(path, sizeof path, s->cache_dir, file, err));
    if (open_same(out, path, known, err) == 0) {
        return 0;
    }
    TRY(make(file, s, known, write, context, err)); /* there is none, or one that is damaged */
    return token_file_open(out, path, err);
}

int cache_find(struct token_file **out, const struct data_source *s,
               struct token_file_header *known, struct err *err)
{
    char file[CACHE_NAME], path[IO_PATH_MAX];

    *out = NULL;
    TRY(name_file(file, s, known, err));
    TRY(io_join(path, sizeof path, s->cache_dir, file, err));
    return open_same(out, path, known, err);
}
