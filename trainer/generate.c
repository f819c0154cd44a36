/* generate.c - prefill, then one token at a time. */
#include "trainer/generate.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/base/clock.h"
#include "trainer/model_folder.h"
#include "trainer/step.h"
#include "trainer/tokenizer/tokenizer.h"

enum { POSITIONS_PRESET = 2048 };

struct generator {
    struct engine engine;
    struct arch arch;
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct decoder *decoder;
    struct sampler *sampler;
    int64_t place; /* tokens in the cache */
};

static int open_all(struct generator *g, const char *dir, const struct generator_options *o,
                    struct err *err)
{
    struct model_folder folder;
    int64_t positions = o->positions;

    TRY(model_folder_find(&folder, dir, o->adapter, NULL, err));
    TRY(model_folder_arch(&g->arch, &folder, err));
    if (positions == 0) {
        positions = g->arch.positions < POSITIONS_PRESET ? g->arch.positions : POSITIONS_PRESET;
    }
    if (g->arch.learned_positions && positions > g->arch.positions) {
        positions = g->arch.positions;
    }
    const struct dims d = dims_inference(&g->arch, o->type, 1, positions, o->threads);
    TRY(tokenizer_open(&g->tokenizer, model_folder_tokenizer(&folder), err));
    TRY(encoder_open(&g->encoder, g->tokenizer, err));
    TRY(decoder_open(&g->decoder, g->tokenizer, true, err));
    TRY(sampler_new(&g->sampler, g->arch.V, err));
    TRY(engine_open(&g->engine, &d, o->isa, err));
    return model_folder_load(g->engine.model, &folder, err);
}

int generator_open(struct generator **out, const char *dir, const struct generator_options *o,
                   struct err *err)
{
    struct generator *g = calloc(1, sizeof *g);

    if (g == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to generate");
    }
    const int rc = open_all(g, dir, o, err);
    if (rc != 0) {
        generator_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

void generator_close(struct generator *g)
{
    if (g == NULL) {
        return;
    }
    engine_close(&g->engine);
    sampler_free(g->sampler);
    decoder_close(g->decoder);
    encoder_close(g->encoder);
    tokenizer_close(g->tokenizer);
    free(g);
}

/* Run `n` tokens through the model behind those in the cache; logits of the last. */
static const real *feed(struct generator *g, const int32_t *ids, int64_t n)
{
    struct model *m = g->engine.model;
    int32_t *to = m->ids.data, *pos = m->pos.data;

    CHECK(g->place + n <= m->d.S, "%lld tokens in a cache of %lld", (long long)(g->place + n),
          (long long)m->d.S);
    for (int64_t i = 0; i < n; i++) {
        to[i] = ids[i];
        pos[i] = (int32_t)(g->place + i);
    }
    const struct ctx c = model_ctx(m, g->engine.k, &g->engine.q, &g->engine.tp, 0, n);
    model_forward(m, &c);
    g->place += n;
    return head_logits(&m->head, &c, tensor_slice(here(&c, m->out), n - 1, 1)).data;
}

static int encode_prompt(struct generator *g, const char *prompt, struct token_list *ids,
                         struct err *err)
{
    const int32_t bos = tokenizer_bos(g->tokenizer);

    if (encoder_encode(g->encoder, ids, prompt, strlen(prompt), TOKENIZER_ADD_SPECIAL, err) != 0) {
        err->code = err->code == ERR_BAD_FILE ? ERR_BAD_REQUEST : err->code;
        return (int)err->code;
    }
    if (ids->count == 0 && bos >= 0) {
        TRY(token_list_put(ids, bos, err));
    }
    if (ids->count == 0) {
        return FAIL(err, ERR_BAD_REQUEST, "the prompt is empty and the model has no start token");
    }
    if ((int64_t)ids->count >= g->engine.model->d.S) {
        return FAIL(err, ERR_BAD_REQUEST, "the prompt has %zu tokens, there is room for %lld",
                    ids->count, (long long)g->engine.model->d.S - 1);
    }
    return 0;
}

static bool ends_text(const struct generator *g, int32_t id)
{
    return tokenizer_stops(g->tokenizer, id) || (g->arch.eos >= 0 && id == g->arch.eos);
}

static bool emit(const struct generation *what, const char *text, size_t bytes)
{
    return bytes == 0 || what->put(what->context, text, bytes);
}

/* The decoder must have seen the prompt: whether a space starts the next word depends on it. */
static int decode_prompt(struct generator *g, const struct token_list *ids, struct err *err)
{
    const char *text = NULL;
    size_t bytes = 0;

    for (size_t i = 0; i < ids->count; i++) {
        TRY(decoder_put(g->decoder, ids->ids[i], &text, &bytes, err));
    }
    return 0;
}

static int continue_text(struct generator *g, const struct generation *what, const real *logits,
                         struct generated *out, struct err *err)
{
    const char *text = NULL;
    size_t bytes = 0;
    bool go_on = true;

    while (go_on && out->tokens < what->max_tokens) {
        const int32_t id = sampler_next(g->sampler, logits, g->arch.V, &what->sampling, g->place);
        if (ends_text(g, id)) {
            out->stopped = true;
            break;
        }
        out->tokens++;
        TRY(decoder_put(g->decoder, id, &text, &bytes, err));
        go_on = emit(what, text, bytes);
        if (g->place == g->engine.model->d.S) {
            break;
        }
        logits = feed(g, &id, 1);
    }
    TRY(decoder_end(g->decoder, &text, &bytes, err));
    (void)(go_on && emit(what, text, bytes));
    return 0;
}

int generator_run(struct generator *g, const struct generation *what, struct generated *out,
                  struct err *err)
{
    struct token_list ids = {0};
    const double start = clock_seconds();

    *out = (struct generated){0};
    g->place = 0;
    int rc = encode_prompt(g, what->prompt, &ids, err);
    if (rc == 0) {
        const real *logits = feed(g, ids.ids, (int64_t)ids.count);
        out->prompt_tokens = (int64_t)ids.count;
        out->prompt_seconds = clock_seconds() - start;
        rc = decode_prompt(g, &ids, err);
        if (rc == 0) {
            rc = continue_text(g, what, logits, out, err);
        }
        out->seconds = clock_seconds() - start - out->prompt_seconds;
    }
    token_list_free(&ids);
    return rc;
}
