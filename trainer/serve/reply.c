/* reply.c - the lines that `hone-train serve` answers with. */
#include "trainer/serve/reply.h"

#include <stdlib.h>
#include <string.h>

/* Takes the object over. */
static char *as_line(json_t *o)
{
    char *text = o == NULL ? NULL : json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
    char *line = NULL;

    json_decref(o);
    if (text != NULL) {
        const size_t n = strlen(text);
        line = realloc(text, n + 2);
        if (line == NULL) {
            free(text);
            return NULL;
        }
        line[n] = '\n';
        line[n + 1] = '\0';
    }
    return line;
}

char *reply_hello(const struct texts *x, const struct prompter *p)
{
    return as_line(json_pack("{s:i, s:I, s:I, s:I, s:I, s:s}", "hone_serve", 1, "positions",
                             (json_int_t)texts_positions(x), "slots", (json_int_t)texts_slots(x),
                             "memory_bytes", (json_int_t)texts_bytes(x), "vocabulary",
                             (json_int_t)texts_arch(x)->V, "template", prompter_template(p)));
}

char *reply_accepted(const struct job *j)
{
    return as_line(
        json_pack("{s:s, s:I}", "id", j->request.id, "prompt_tokens", (json_int_t)j->prompt.count));
}

/* {"token", "id"}; NULL without memory. */
static json_t *name_token(struct prompter *p, int32_t id)
{
    const char *text = NULL;
    struct err err = {0};
    size_t bytes = 0;

    if (prompter_token(p, id, &text, &bytes, &err) != 0) {
        return NULL;
    }
    return json_pack("{s:s%, s:i}", "token", text, bytes, "id", (int)id);
}

static json_t *show_logprobs(struct prompter *p, const struct made *m)
{
    json_t *o = name_token(p, m->id), *top = json_array();
    int rc = json_object_set_new(o, "start", json_integer(m->start));

    if (m->has_logprobs) {
        const struct logprobs *l = &m->logprobs;
        rc |= json_object_set_new(o, "logprob", json_real(l->chosen));
        for (int i = 0; i < l->top_count; i++) {
            json_t *t = name_token(p, l->top[i].id);
            rc |= json_object_set_new(t, "logprob", json_real(l->top[i].logprob));
            rc |= json_array_append_new(top, t);
        }
    }
    rc |= json_object_set_new(o, "top", top);
    if (rc != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static int put_tokens(json_t *o, struct prompter *p, const struct job *j, const struct piece *piece)
{
    json_t *ids = json_array(), *shown = json_array();
    int rc = 0;

    for (int i = 0; i < piece->count; i++) {
        rc |= json_array_append_new(ids, json_integer(piece->tokens[i].id));
        if (j->request.logprobs >= 0) {
            rc |= json_array_append_new(shown, show_logprobs(p, &piece->tokens[i]));
        }
    }
    rc |= json_object_set_new(o, "tokens", ids);
    if (j->request.logprobs >= 0) {
        return rc | json_object_set_new(o, "logprobs", shown);
    }
    json_decref(shown);
    return rc;
}

char *reply_piece(struct prompter *p, const struct job *j, const struct piece *piece)
{
    json_t *o = json_pack("{s:s, s:i, s:s%}", "id", j->request.id, "index", piece->index, "text",
                          piece->text == NULL ? "" : piece->text, piece->bytes);
    int rc = put_tokens(o, p, j, piece);

    if (piece->finish != FINISH_NONE) {
        rc |= json_object_set_new(o, "finish_reason",
                                  json_string(piece->finish == FINISH_STOP ? "stop" : "length"));
    }
    if (piece->stop != NULL) {
        rc |= json_object_set_new(o, "stop", json_string(piece->stop));
    }
    if (rc != 0) {
        json_decref(o);
        return NULL;
    }
    return as_line(o);
}

char *reply_usage(const struct job *j)
{
    const json_int_t prompt = (json_int_t)j->prompt.count, made = j->tokens;

    return as_line(json_pack("{s:s, s:{s:I, s:I, s:I}}", "id", j->request.id, "usage",
                             "prompt_tokens", prompt, "completion_tokens", made, "total_tokens",
                             prompt + made));
}

char *reply_error(const char *id, const struct err *err)
{
    json_t *o = json_pack(
        "{s:o, s:{s:s, s:o, s:s}}", "id", id[0] == '\0' ? json_null() : json_string(id), "error",
        "message", err->text, "param",
        err->param[0] == '\0' ? json_null() : json_string(err->param), "code", err_word(err->code));

    if (o == NULL) { /* the sentence shows bytes that are no text */
        o = json_pack("{s:n, s:{s:s, s:n, s:s}}", "id", "error", "message", err_title(err->code),
                      "param", "code", err_word(err->code));
    }
    return as_line(o);
}
