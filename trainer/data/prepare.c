/* prepare.c - a text file to a token file, through the cache. */
#include <stdio.h>

#include "trainer/data/cache.h"
#include "trainer/tokenizer/encoder_pool.h"
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

static int encode_text(struct work *w, struct text_file *f, struct encoder_pool *p, struct err *err)
{
    struct token_list ids = {0};
    uint64_t told = 0;
    int rc = 0;

    while (rc == 0 && !f->last) {
        size_t used = 0;
        ids.count = 0;
        rc = text_file_more(f, err);
        if (rc == 0) {
            rc = encoder_pool_encode_part(p, &ids, f->text, f->n, f->first, f->last, &used, err);
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
    struct encoder_pool *p = NULL;

    TRY(text_file_open(&f, w->source->path, w->source->name, w->source->blame, err));
    int rc = encoder_pool_open(&p, w->tokenizer, encoder_pool_processors(), err);
    if (rc == 0) {
        rc = encode_text(w, &f, p, err);
    }
    encoder_pool_close(p);
    text_file_close(&f);
    return rc;
}

/* The whole text, EOS behind it. */
static int write_text(void *context, struct token_writer *out, char **report, struct err *err)
{
    struct work *w = context;
    const int32_t eos = tokenizer_eos(w->tokenizer);

    (void)report;
    w->out = out;
    TRY(encode_file(w, err));
    if (eos >= 0 && w->last != eos) {
        TRY(write_token(w, eos, err));
    }
    if (token_writer_tokens(out) < 2) {
        return FAIL(err, ERR_NO_TOKENS, "%s has %lld tokens: a sample takes at least 2", w->name,
                    (long long)token_writer_tokens(out));
    }
    return token_writer_end(out, err);
}

int data_prepare(struct token_file **out, const struct data_source *s, const struct tokenizer *t,
                 struct err *err)
{
    struct work w = {
        .source = s, .name = s->name == NULL ? s->path : s->name, .tokenizer = t, .last = -1};
    struct token_file_header h = {.vocab_size = tokenizer_size(t), .kind = TOKEN_FILE_TEXT};

    (void)snprintf(h.tokenizer_hash, sizeof h.tokenizer_hash, "%s", tokenizer_hash(t));
    return cache_prepare(out, s, &h, write_text, &w, err);
}
