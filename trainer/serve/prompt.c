/* prompt.c - the tokens of a request. */
#include "trainer/serve/prompt.h"

#include <stdlib.h>
#include <string.h>

struct prompter {
    const struct tokenizer *t;
    struct encoder *encoder; /* owned */
    struct decoder *decoder; /* owned; shows special tokens */
    int32_t before; /* a token to decode others behind: alone they may lose their space; -1: none */
};

int prompter_open(struct prompter **out, const char *dir, const struct tokenizer *t,
                  struct err *err)
{
    struct prompter *p = calloc(1, sizeof *p);

    (void)dir;
    if (p == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for prompts");
    }
    p->t = t;
    p->before = tokenizer_find(t, "a", 1);
    int rc = encoder_open(&p->encoder, t, err);
    rc = rc != 0 ? rc : decoder_open(&p->decoder, t, false, err);
    if (rc != 0) {
        prompter_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void prompter_close(struct prompter *p)
{
    if (p != NULL) {
        decoder_close(p->decoder);
        encoder_close(p->encoder);
        free(p);
    }
}

static int encode_text(struct prompter *p, struct token_list *out, const char *text,
                       struct err *err)
{
    const int32_t bos = tokenizer_bos(p->t);

    if (encoder_encode(p->encoder, out, text, strlen(text), TOKENIZER_ADD_SPECIAL, err) != 0) {
        err->code = err->code == ERR_BAD_FILE ? ERR_BAD_REQUEST : err->code;
        err_about(err, "prompt");
        return (int)err->code;
    }
    return out->count == 0 && bos >= 0 ? token_list_put(out, bos, err) : 0;
}

int prompter_make(struct prompter *p, struct token_list *out, const struct serve_request *r,
                  struct err *err)
{
    if (r->messages != NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "messages", "this model has no chat template");
    }
    if (r->prompt != NULL) {
        return encode_text(p, out, r->prompt, err);
    }
    for (size_t i = 0; i < json_array_size(r->ids); i++) {
        TRY(token_list_put(out, (int32_t)json_integer_value(json_array_get(r->ids, i)), err));
    }
    return 0;
}

int prompter_token(struct prompter *p, int32_t id, const char **text, size_t *bytes,
                   struct err *err)
{
    TRY(decoder_end(p->decoder, text, bytes, err)); /* of the token before */
    if (p->before >= 0) {
        TRY(decoder_put(p->decoder, p->before, text, bytes, err));
    }
    TRY(decoder_put(p->decoder, id, text, bytes, err));
    return *bytes > 0 ? 0 : decoder_end(p->decoder, text, bytes, err);
}
