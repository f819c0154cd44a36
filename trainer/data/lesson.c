/* lesson.c - one example as tokens: what is read, and what of it is learned. */
#include "trainer/data/lesson.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"

struct lessons {
    struct lesson_options o;
    struct encoder *encoder; /* owned */
    struct encoded encoded;  /* owned, of the text without what is put around it */
    int32_t bos;             /* put in front of every text; -1: none */
    int32_t *ids;            /* owned [room] */
    bool *trained;           /* owned [room] */
    size_t room, count;
    char *text; /* owned: prompt and completion one after the other */
    size_t text_room;
    struct text_span *plain; /* owned */
    size_t plain_room;
};

/* A text on its way into tokens. */
struct script {
    const char *text;
    size_t bytes;
    const struct text_span *plain;
    size_t plain_count;
    const struct chat_span *trained;
    size_t trained_count;
    bool ends; /* EOS follows */
};

/* Whether the tokenizer by itself puts BOS in front of a text. */
static int find_bos(struct lessons *l, struct err *err)
{
    const int32_t bos = tokenizer_bos(l->o.tokenizer);
    struct token_list with = {0}, without = {0};

    int rc = encoder_encode(l->encoder, &with, "a", 1, TOKENIZER_ADD_SPECIAL, err);
    if (rc == 0) {
        rc = encoder_encode(l->encoder, &without, "a", 1, 0, err);
    }
    const bool puts = rc == 0 && with.count > without.count && with.ids[0] == bos;
    l->bos = puts && bos >= 0 ? bos : -1;
    token_list_free(&with);
    token_list_free(&without);
    return rc;
}

int lessons_open(struct lessons **out, const struct lesson_options *o, struct err *err)
{
    struct lessons *l = calloc(1, sizeof *l);

    *out = NULL;
    CHECK(o->longest >= 2, "lessons of %lld tokens", (long long)o->longest);
    if (l == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for examples");
    }
    l->o = *o;
    int rc = encoder_open(&l->encoder, o->tokenizer, err);
    if (rc == 0) {
        rc = find_bos(l, err);
    }
    if (rc != 0) {
        lessons_close(l);
        return rc;
    }
    *out = l;
    return 0;
}

void lessons_close(struct lessons *l)
{
    if (l == NULL) {
        return;
    }
    encoder_close(l->encoder);
    encoded_free(&l->encoded);
    free(l->ids);
    free(l->trained);
    free(l->text);
    free(l->plain);
    free(l);
}

static int reserve(struct lessons *l, size_t tokens, struct err *err)
{
    if (tokens <= l->room) {
        return 0;
    }
    free(l->ids);
    free(l->trained);
    l->room = tokens * 2;
    l->ids = calloc(l->room, sizeof *l->ids);
    l->trained = calloc(l->room, sizeof *l->trained);
    if (l->ids == NULL || l->trained == NULL) {
        l->room = 0;
        return FAIL(err, ERR_NO_MEMORY, "no memory for an example of %zu tokens", tokens);
    }
    return 0;
}

static void put(struct lessons *l, int32_t id, bool trained)
{
    l->ids[l->count] = id;
    l->trained[l->count++] = trained;
}

/* Encode, mark, put BOS and EOS around. */
static int write(struct lessons *l, const struct script *s, struct err *err)
{
    const struct encoded *x = &l->encoded;
    const int32_t eos = tokenizer_eos(l->o.tokenizer), bos = tokenizer_bos(l->o.tokenizer);
    size_t span = 0;

    TRY(encoder_encode_spans(l->encoder, &l->encoded, s->text, s->bytes, s->plain, s->plain_count,
                             err));
    TRY(reserve(l, x->ids.count + 2, err));
    l->count = 0;
    if (l->bos >= 0 && (x->ids.count == 0 || x->ids.ids[0] != bos)) {
        put(l, l->bos, l->o.all_trained);
    }
    for (size_t i = 0; i < x->ids.count; i++) {
        while (span < s->trained_count && s->trained[span].end < x->ends[i]) {
            span++;
        }
        const bool in = span < s->trained_count && s->trained[span].begin < x->ends[i];
        put(l, x->ids.ids[i], in || l->o.all_trained);
    }
    if (s->ends && eos >= 0) {
        put(l, eos, true);
    }
    return 0;
}

static int write_text(struct lessons *l, const struct example *e, struct err *err)
{
    const struct text_span plain = {0, e->bytes};
    const struct chat_span trained = {0, e->bytes};
    const struct script s = {.text = e->text,
                             .bytes = e->bytes,
                             .plain = &plain,
                             .plain_count = 1,
                             .trained = &trained,
                             .trained_count = 1,
                             .ends = true};

    return write(l, &s, err);
}

static int write_completion(struct lessons *l, const struct example *e, struct err *err)
{
    const size_t bytes = e->prompt_bytes + e->completion_bytes;
    const struct text_span plain = {0, bytes};
    const struct chat_span trained = {e->prompt_bytes, bytes};

    if (bytes + 1 > l->text_room) {
        char *text = realloc(l->text, 2 * bytes + 1);
        if (text == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for an example of %zu bytes", bytes);
        }
        l->text = text;
        l->text_room = 2 * bytes + 1;
    }
    memcpy(l->text, e->prompt, e->prompt_bytes);
    memcpy(l->text + e->prompt_bytes, e->completion, e->completion_bytes);
    const struct script s = {.text = l->text,
                             .bytes = bytes,
                             .plain = &plain,
                             .plain_count = 1,
                             .trained = &trained,
                             .trained_count = 1,
                             .ends = true};
    return write(l, &s, err);
}

/* Spans of the renderer as those of the encoder. */
static int copy_plain(struct lessons *l, const struct rendered *r, struct err *err)
{
    if (r->plain_count > l->plain_room) {
        struct text_span *plain = realloc(l->plain, 2 * r->plain_count * sizeof *plain);
        if (plain == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for %zu turns", r->plain_count);
        }
        l->plain = plain;
        l->plain_room = 2 * r->plain_count;
    }
    for (size_t i = 0; i < r->plain_count; i++) {
        l->plain[i] = (struct text_span){r->plain[i].begin, r->plain[i].end};
    }
    return 0;
}

static int write_chat(struct lessons *l, const struct example *e, struct err *err)
{
    struct rendered r = {0};

    CHECK(l->o.templated != NULL, "a chat at line %lld without a template", (long long)e->line);
    TRY(chat_template_render(l->o.templated, e->messages, e->tools, false, &r, err));
    int rc = copy_plain(l, &r, err);
    if (rc == 0) {
        const struct script s = {.text = r.text,
                                 .bytes = r.bytes,
                                 .plain = l->plain,
                                 .plain_count = r.plain_count,
                                 .trained = r.trained,
                                 .trained_count = r.trained_count};
        rc = write(l, &s, err);
    }
    rendered_fini(&r);
    return rc;
}

static int write_example(struct lessons *l, const struct example *e, struct err *err)
{
    switch (e->kind) {
    case EXAMPLE_TEXT: return write_text(l, e, err);
    case EXAMPLE_COMPLETION: return write_completion(l, e, err);
    case EXAMPLE_CHAT: return write_chat(l, e, err);
    case EXAMPLE_PREFERENCE:
    case EXAMPLE_KIND_COUNT: break;
    }
    CHECK(false, "an example of kind %d", (int)e->kind);
    return 0;
}

int lessons_make(struct lessons *l, const struct example *e, struct lesson *out, struct err *err)
{
    TRY(write_example(l, e, err));
    const int64_t whole = (int64_t)l->count;
    const bool fits = whole <= l->o.longest || e->kind == EXAMPLE_TEXT;
    *out = (struct lesson){.ids = l->ids,
                           .trained = l->trained,
                           .count = fits ? whole : l->o.longest,
                           .whole = whole,
                           .spelled = l->encoded.spelled};
    for (int64_t i = 1; i < out->count; i++) {
        out->targets += l->trained[i];
    }
    return 0;
}
