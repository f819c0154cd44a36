/* prepare.c - a text file to a token file, through the cache. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "trainer/base/io.h"
#include "trainer/data/token_writer.h"
#include "trainer/tokenizer/text_file.h"

enum { PROGRESS_BYTES = 1 << 22 };

/* A text on its way into a token file. */
struct work {
    const struct data_source *source;
    const char *name;
    const struct tokenizer *tokenizer;
    struct token_writer *out;
    int32_t last; /* token; -1 before the first */
};

static int write_token(struct work *w, int32_t id, struct err *err)
{
    TRY(token_writer_put(w->out, id, true, err));
    w->last = id;
    return id == tokenizer_eos(w->tokenizer) ? token_writer_end(w->out, err) : 0;
}

static int write_tokens(struct work *w, const struct token_list *l, struct err *err)
{
    for (size_t i = 0; i < l->count; i++) {
        TRY(write_token(w, l->ids[i], err));
    }
    return 0;
}

static int encode_text(struct work *w, struct text_file *f, struct encoder *e, struct err *err)
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

static int encode_file(struct work *w, struct err *err)
{
    struct text_file f;
    struct encoder *e = NULL;

    TRY(text_file_open(&f, w->source->path, w->source->name, w->source->blame, err));
    int rc = encoder_open(&e, w->tokenizer, err);
    if (rc == 0) {
        rc = encode_text(w, &f, e, err);
    }
    encoder_close(e);
    text_file_close(&f);
    return rc;
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

/* The whole text, EOS behind it. */
static int write_text(struct work *w, const struct token_file_header *known, struct err *err)
{
    const int32_t eos = tokenizer_eos(w->tokenizer);
    struct token_file_header now = {0};

    TRY(encode_file(w, err));
    if (eos >= 0 && w->last != eos) {
        TRY(write_token(w, eos, err));
    }
    if (token_writer_tokens(w->out) < 2) {
        return FAIL(err, ERR_NO_TOKENS, "%s has %lld tokens: a sample takes at least 2", w->name,
                    (long long)token_writer_tokens(w->out));
    }
    TRY(token_writer_end(w->out, err));
    TRY(stamp(&now, w->source, w->name, err));
    if (now.text_bytes != known->text_bytes || now.text_mtime != known->text_mtime) {
        return FAIL(err, w->source->blame, "%s changed while it was read", w->name);
    }
    return 0;
}

static int make_file(const char *file, const struct token_file_header *known,
                     const struct data_source *s, const struct tokenizer *t, struct err *err)
{
    struct work w = {
        .source = s, .name = s->name == NULL ? s->path : s->name, .tokenizer = t, .last = -1};

    TRY(token_writer_open(&w.out, s->cache_dir, file, known, err));
    const int rc = write_text(&w, known, err);
    if (rc != 0) {
        token_writer_abandon(w.out);
        return rc;
    }
    return token_writer_finish(w.out, NULL, err);
}

/* Is this file what would be made? */
static bool is_same(const struct token_file *f, const struct token_file_header *h)
{
    return f->header.kind == h->kind && strcmp(f->header.text_sha256, h->text_sha256) == 0 &&
           strcmp(f->header.tokenizer_hash, h->tokenizer_hash) == 0 &&
           strcmp(f->header.options_hash, h->options_hash) == 0;
}

int data_prepare(struct token_file **out, const struct data_source *s, const struct tokenizer *t,
                 struct err *err)
{
    const char *name = s->name == NULL ? s->path : s->name;
    struct token_file_header h = {.vocab_size = tokenizer_size(t), .kind = TOKEN_FILE_TEXT};
    char file[96], path[IO_PATH_MAX];

    *out = NULL;
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
    TRY(make_file(file, &h, s, t, err)); /* there is none, or one that is damaged */
    return token_file_open(out, path, err);
}
