/* prompts.c - answers to fixed prompts. */
#include "trainer/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/chat/chat.h"
#include "trainer/prompt_fields.h"
#include "trainer/sample.h"

enum { TEXT_BYTES = 32 << 10 }; /* of an answer in an event */

struct prompts {
    const struct inputs *in;
    struct encoder *encoder; /* owned */
    struct decoder *decoder; /* owned */
    struct sampler *sampler; /* owned */
    struct token_list ids[PROMPTS_MAX];
    int count;
    int64_t max_tokens;
    struct sampling sampling;
    char text[TEXT_BYTES]; /* of the present answer */
    size_t bytes;
};

/* The template spells its own start token. */
static int encode_chat(struct prompts *p, struct token_list *out, const struct chat_template *chat,
                       const json_t *messages, struct err *err)
{
    struct rendered text = {0};
    struct encoded tokens = {0};

    int rc = chat_template_render(chat, messages, NULL, true, &text, err);
    if (rc == 0) {
        rc = encoder_encode_spans(p->encoder, &tokens, text.text, text.bytes,
                                  (const struct text_span *)text.plain, text.plain_count, err);
    }
    for (size_t i = 0; rc == 0 && i < tokens.ids.count; i++) {
        rc = token_list_put(out, tokens.ids.ids[i], err);
    }
    encoded_free(&tokens);
    rendered_fini(&text);
    return rc;
}

static int encode_text(struct prompts *p, struct token_list *out, const char *text, struct err *err)
{
    const int32_t bos = tokenizer_bos(p->in->tokenizer);

    TRY(encoder_encode(p->encoder, out, text, strlen(text), TOKENIZER_ADD_SPECIAL, err));
    return out->count == 0 && bos >= 0 ? token_list_put(out, bos, err) : 0;
}

static int encode_all(struct prompts *p, const json_t *list, const struct chat_template *chat,
                      struct err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *prompt = json_array_get(list, i);
        struct token_list *ids = &p->ids[p->count++];
        TRY(json_is_string(prompt) ? encode_text(p, ids, json_string_value(prompt), err)
                                   : encode_chat(p, ids, chat, prompt, err));
        if (ids->count == 0 || (int64_t)ids->count >= p->in->sizes.sequence) {
            return FAIL_PARAM(
                err, ERR_BAD_SPEC, "sample_prompts",
                "sample_prompts: prompt %zu has %zu tokens; there must be at least 1, "
                "and less than sequence_length %lld",
                i + 1, ids->count, (long long)p->in->sizes.sequence);
        }
    }
    return 0;
}

static bool has_chat(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_is_array(json_array_get(list, i))) {
            return true;
        }
    }
    return false;
}

static int open_all(struct prompts *p, const struct job_folder *job, struct err *err)
{
    const struct spec *s = &job->spec;
    const json_t *list = json_object_get(s->sample_prompts, "prompts");
    struct chat_template *chat = NULL;

    TRY(prompt_fields_numbers(&p->max_tokens, &p->sampling.temperature, s->sample_prompts, err));
    p->sampling.top_p = 1.0;
    p->sampling.seed = (uint64_t)s->seed;
    TRY(encoder_open(&p->encoder, p->in->tokenizer, err));
    TRY(decoder_open(&p->decoder, p->in->tokenizer, true, err));
    TRY(sampler_new(&p->sampler, p->in->arch.V, err));
    if (has_chat(list)) {
        const char *given = s->chat_template[0] != '\0' ? s->chat_template : p->in->chat_template;
        TRY(chat_template_open(&chat, job->plan.model, given, p->in->tokenizer, err));
    }
    const int rc = encode_all(p, list, chat, err);
    chat_template_close(chat);
    return rc;
}

int prompts_open(struct prompts **out, const struct job_folder *job, const struct inputs *in,
                 struct err *err)
{
    *out = NULL;
    if (job->spec.sample_prompts == NULL) {
        return 0;
    }
    struct prompts *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for prompts");
    }
    p->in = in;
    const int rc = open_all(p, job, err);
    if (rc != 0) {
        prompts_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void prompts_close(struct prompts *p)
{
    if (p == NULL) {
        return;
    }
    for (int i = 0; i < PROMPTS_MAX; i++) {
        token_list_free(&p->ids[i]);
    }
    sampler_free(p->sampler);
    decoder_close(p->decoder);
    encoder_close(p->encoder);
    free(p);
}

/* Whole pieces only. A NUL, which events cannot hold, becomes the replacement character. */
static void append(struct prompts *p, const char *text, size_t bytes)
{
    static const char nul[] = "\xEF\xBF\xBD";

    if (3 * bytes > TEXT_BYTES - p->bytes) {
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        const size_t n = text[i] == '\0' ? sizeof nul - 1 : 1;
        memcpy(p->text + p->bytes, text[i] == '\0' ? nul : text + i, n);
        p->bytes += n;
    }
}

static bool ends_text(const struct prompts *p, int32_t id)
{
    return tokenizer_stops(p->in->tokenizer, id) || id == p->in->arch.eos ||
           id == p->in->end_of_turn;
}

/* The decoder must have seen the prompt: whether a space starts the next word depends on it. */
static int begin_text(struct prompts *p, const struct token_list *prompt, struct err *err)
{
    const char *text = NULL;
    size_t bytes = 0;

    for (size_t i = 0; i < prompt->count; i++) {
        TRY(decoder_put(p->decoder, prompt->ids[i], &text, &bytes, err));
    }
    p->bytes = 0;
    return 0;
}

/* Continue `ids`, which holds the prompt and gets the answer: *made tokens; true: it ended by itself. */
static int continue_text(struct prompts *p, struct engine *e, struct token_list *ids, int64_t *made,
                         bool *stopped, struct err *err)
{
    const char *text = NULL;
    size_t bytes = 0;

    for (*made = 0; *made < p->max_tokens && (int64_t)ids->count < p->in->sizes.sequence;) {
        const real *logits = step_logits(e, ids->ids, (int64_t)ids->count);
        const int32_t id =
            sampler_next(p->sampler, logits, p->in->arch.V, &p->sampling, (int64_t)ids->count);
        if (ends_text(p, id)) {
            *stopped = true;
            break;
        }
        ++*made;
        TRY(token_list_put(ids, id, err));
        TRY(decoder_put(p->decoder, id, &text, &bytes, err));
        append(p, text, bytes);
    }
    TRY(decoder_end(p->decoder, &text, &bytes, err));
    append(p, text, bytes);
    return 0;
}

static int answer(struct prompts *p, struct engine *e, int index, int64_t *made, bool *stopped,
                  struct err *err)
{
    struct token_list ids = {0};

    TRY(begin_text(p, &p->ids[index], err));
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->ids[index].count; i++) {
        rc = token_list_put(&ids, p->ids[index].ids[i], err);
    }
    rc = rc != 0 ? rc : continue_text(p, e, &ids, made, stopped, err);
    token_list_free(&ids);
    return rc;
}

void prompts_answer(struct prompts *p, struct engine *e, struct events *events, int64_t step,
                    step_stop *stop, void *context)
{
    for (int i = 0; p != NULL && i < p->count && !stop(context); i++) {
        struct err err = {0};
        int64_t made = 0;
        bool stopped = false;
        if (answer(p, e, i, &made, &stopped, &err) != 0) {
            events_warning(events, "sample prompt %d was not answered: %s", i + 1, err.text);
            continue;
        }
        events_send(events, EVENT_SAMPLE,
                    json_pack("{s:I, s:i, s:s%, s:I, s:s}", "step", (json_int_t)step, "index", i,
                              "text", p->text, p->bytes, "tokens", (json_int_t)made, "finish",
                              stopped ? "stop" : "length"));
    }
}
