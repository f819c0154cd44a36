/* prompt.c - the tokens of a request. */
#include "trainer/serve/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/chat/chat.h"

struct prompter {
    const struct tokenizer *t;
    struct chat_template *chat; /* owned; NULL: the model's is not usable, and `why` says so */
    struct err why;
    struct encoded encoded;
    bool adds_bos;           /* the tokenizer does, in front of a text */
    struct encoder *encoder; /* owned */
    struct decoder *decoder; /* owned; shows special tokens */
    int32_t before; /* a token to decode others behind: alone they may lose their space; -1: none */
};

/* Whether the tokenizer puts BOS in front of a text: it does so of none, too. */
static int find_bos(struct prompter *p, struct err *err)
{
    struct token_list ids = {0};
    const int rc = encoder_encode(p->encoder, &ids, "", 0, TOKENIZER_ADD_SPECIAL, err);

    p->adds_bos = rc == 0 && ids.count > 0 && ids.ids[0] == tokenizer_bos(p->t);
    token_list_free(&ids);
    return rc;
}

int prompter_open(struct prompter **out, const char *dir, const struct tokenizer *t,
                  struct err *err)
{
    struct prompter *p = calloc(1, sizeof *p);

    if (p == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for prompts");
    }
    p->t = t;
    p->before = tokenizer_find(t, "a", 1);
    int rc = encoder_open(&p->encoder, t, err);
    rc = rc != 0 ? rc : decoder_open(&p->decoder, t, false, err);
    rc = rc != 0 ? rc : find_bos(p, err);
    if (rc == 0 && chat_template_open(&p->chat, dir, NULL, t, &p->why) != 0) {
        p->chat = NULL; /* the model can go on with texts all the same */
        rc = p->why.code == ERR_NO_MEMORY ? FAIL(err, ERR_NO_MEMORY, "%s", p->why.text) : 0;
    }
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
        chat_template_close(p->chat);
        encoded_free(&p->encoded);
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

const char *prompter_template(const struct prompter *p)
{
    return p->chat != NULL ? chat_template_source(p->chat) : p->why.text;
}

/* The tokens of a rendered conversation. */
static int encode_rendered(struct prompter *p, struct token_list *out, const struct rendered *text,
                           struct err *err)
{
    const int32_t bos = tokenizer_bos(p->t);
    struct text_span *plain = calloc(text->plain_count + 1, sizeof *plain);

    if (plain == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a conversation");
    }
    for (size_t i = 0; i < text->plain_count; i++) {
        plain[i] = (struct text_span){text->plain[i].begin, text->plain[i].end};
    }
    int rc = encoder_encode_spans(p->encoder, &p->encoded, text->text, text->bytes, plain,
                                  text->plain_count, err);
    free(plain);
    const struct token_list *ids = &p->encoded.ids;
    if (rc == 0 && p->adds_bos && (ids->count == 0 || ids->ids[0] != bos)) {
        rc = token_list_put(out, bos, err);
    }
    for (size_t i = 0; rc == 0 && i < ids->count; i++) {
        rc = token_list_put(out, ids->ids[i], err);
    }
    return rc;
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \n\r\t")] == '\0';
}

/* What the template writes around an answer. Words in front of it may be an answer's own, and blanks behind it do not tell
 * that it has ended. */
static void set_turn(struct serve_request *r, const struct chat_template *chat)
{
    const char *lead = chat_template_lead(chat), *end = chat_template_end_text(chat);

    r->end = chat_template_end(chat);
    r->end_text = r->end < 0 && !is_blank(end) ? end : NULL;
    r->lead = is_blank(lead) ? lead : "";
    r->tail = chat_template_tail(chat);
}

static int encode_chat(struct prompter *p, struct token_list *out, struct serve_request *r,
                       struct err *err)
{
    struct rendered text = {0};

    if (p->chat == NULL) {
        *err = p->why;
        err_about(err, "messages");
        return (int)err->code;
    }
    set_turn(r, p->chat);
    int rc = chat_template_render(p->chat, r->messages, r->tools, true, &text, err);
    rc = rc != 0 ? rc : encode_rendered(p, out, &text, err);
    rendered_fini(&text);
    if (rc == ERR_BAD_REQUEST || rc == ERR_BAD_FILE) {
        err_about(err, "messages");
    }
    return rc;
}

int prompter_make(struct prompter *p, struct token_list *out, struct serve_request *r,
                  struct err *err)
{
    if (r->messages != NULL) {
        return encode_chat(p, out, r, err);
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
