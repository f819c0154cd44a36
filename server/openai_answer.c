/* openai_answer.c - lines of `hone-train serve` into answers of OpenAI's shapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/openai.h"
#include "server/random.h"

static const char no_memory[] = "no memory for an answer";

int openai_answer_init(struct openai_answer *a, const struct openai_ask *ask, struct err *err)
{
    char word[25];

    random_word(word, 24);
    *a = (struct openai_answer){.ask = ask, .created = time(NULL), .choices = json_array()};
    (void)snprintf(a->id, sizeof a->id, "%s-%s", ask->chat ? "chatcmpl" : "cmpl", word);
    for (int i = 0; i < ask->prompts * ask->n; i++) {
        if (json_array_append_new(a->choices, json_pack("{s:s, s:n, s:[]}", "text", "",
                                                        "finish_reason", "logprobs")) != 0) {
            return FAIL(err, ERR_NO_MEMORY, no_memory);
        }
    }
    return 0;
}

void openai_answer_fini(struct openai_answer *a)
{
    json_decref(a->choices);
    a->choices = NULL;
}

bool openai_answer_is_complete(const struct openai_answer *a)
{
    return a->ended == a->ask->prompts;
}

/* {"token", "logprob", "bytes"} as chats show a token; a new reference. */
static json_t *show_token(const json_t *token)
{
    json_t *text = json_object_get(token, "token"), *bytes = json_array();
    const char *at = json_string_value(text);
    const bool whole = at != NULL && strstr(at, "\xEF\xBF\xBD") == NULL;

    for (size_t i = 0; whole && i < json_string_length(text); i++) {
        (void)json_array_append_new(bytes, json_integer((unsigned char)at[i]));
    }
    if (!whole) {
        json_decref(bytes);
        bytes = json_null();
    }
    return json_pack("{s:O, s:f, s:o}", "token", text, "logprob",
                     json_number_value(json_object_get(token, "logprob")), "bytes", bytes);
}

/* {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null} */
static json_t *chat_logprobs(const json_t *tokens)
{
    json_t *content = json_array();
    const json_t *token = NULL, *other = NULL;
    size_t i = 0, k = 0;

    json_array_foreach(tokens, i, token)
    {
        json_t *shown = show_token(token), *top = json_array();
        json_array_foreach(json_object_get(token, "top"), k, other)
        {
            (void)json_array_append_new(top, show_token(other));
        }
        (void)json_object_set_new(shown, "top_logprobs", top);
        (void)json_array_append_new(content, shown);
    }
    return json_pack("{s:o, s:n}", "content", content, "refusal");
}

/* {"tokens": [], "token_logprobs": [], "top_logprobs": [{token: logprob}], "text_offset": []} */
static json_t *text_logprobs(const json_t *tokens)
{
    json_t *texts = json_array(), *own = json_array(), *tops = json_array(), *at = json_array();
    const json_t *token = NULL, *other = NULL;
    size_t i = 0, k = 0;

    json_array_foreach(tokens, i, token)
    {
        json_t *logprob = json_object_get(token, "logprob"), *top = json_object();
        const char *text = json_string_value(json_object_get(token, "token"));
        (void)json_array_append(texts, json_object_get(token, "token"));
        (void)json_array_append(at, json_object_get(token, "start"));
        if (logprob == NULL || text == NULL) {
            json_decref(top);
            (void)json_array_append_new(own, json_null());
            (void)json_array_append_new(tops, json_null());
            continue;
        }
        json_array_foreach(json_object_get(token, "top"), k, other)
        {
            const char *name = json_string_value(json_object_get(other, "token"));
            if (name != NULL && json_object_get(top, name) == NULL) { /* U+FFFD may be several */
                (void)json_object_set(top, name, json_object_get(other, "logprob"));
            }
        }
        (void)json_object_set(top, text, logprob);
        (void)json_array_append(own, logprob);
        (void)json_array_append_new(tops, top);
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", texts, "token_logprobs", own, "top_logprobs",
                     tops, "text_offset", at);
}

/* null where none were asked for. */
static json_t *logprobs_of(const struct openai_answer *a, const json_t *tokens)
{
    if (tokens == NULL) {
        return json_null();
    }
    return a->ask->chat ? chat_logprobs(tokens) : text_logprobs(tokens);
}

/* A chunk of the stream, with one choice or none; takes `choice` over. */
static int put_chunk(const struct openai_answer *a, char **text, json_t *choice, struct err *err)
{
    json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:[o*]}", "id", a->id, "object",
                          a->ask->chat ? "chat.completion.chunk" : "text_completion", "created",
                          (json_int_t)a->created, "model", a->ask->model, "choices", choice);

    if (a->ask->include_usage) {
        (void)json_object_set_new(
            o, "usage",
            choice != NULL
                ? json_null()
                : json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)a->prompt_tokens,
                            "completion_tokens", (json_int_t)a->tokens, "total_tokens",
                            (json_int_t)a->prompt_tokens + (json_int_t)a->tokens));
    }
    char *json = o == NULL ? NULL : json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(o);
    const size_t had = *text == NULL ? 0 : strlen(*text);
    char *more = json == NULL ? NULL : realloc(*text, had + strlen(json) + 9);
    if (more == NULL) {
        free(json);
        return FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    (void)sprintf(more + had, "data: %s\n\n", json);
    *text = more;
    free(json);
    return 0;
}

static int put_end(const struct openai_answer *a, char **text, struct err *err)
{
    static const char end[] = "data: [DONE]\n\n";

    if (a->ask->include_usage) {
        TRY(put_chunk(a, text, NULL, err));
    }
    const size_t had = *text == NULL ? 0 : strlen(*text);
    char *more = realloc(*text, had + sizeof end);
    if (more == NULL) {
        return FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    memcpy(more + had, end, sizeof end);
    *text = more;
    return 0;
}

/* A piece of a chat: first who speaks, then what, then why it ends. */
static int stream_chat(struct openai_answer *a, int index, const json_t *line, char **text,
                       struct err *err)
{
    json_t *piece = json_object_get(line, "text");
    json_t *tokens = json_object_get(line, "logprobs");
    json_t *finish = json_object_get(line, "finish_reason");

    if (!a->greeted[index]) {
        a->greeted[index] = true;
        TRY(put_chunk(a, text,
                      json_pack("{s:i, s:{s:s, s:s}, s:n, s:n}", "index", index, "delta", "role",
                                "assistant", "content", "", "logprobs", "finish_reason"),
                      err));
    }
    if (json_string_length(piece) > 0 || json_array_size(tokens) > 0) {
        TRY(put_chunk(a, text,
                      json_pack("{s:i, s:{s:O}, s:o, s:n}", "index", index, "delta", "content",
                                piece, "logprobs", logprobs_of(a, tokens), "finish_reason"),
                      err));
    }
    return finish == NULL ? 0
                          : put_chunk(a, text,
                                      json_pack("{s:i, s:{}, s:n, s:O}", "index", index, "delta",
                                                "logprobs", "finish_reason", finish),
                                      err);
}

static int stream_text(const struct openai_answer *a, int index, const json_t *line, char **text,
                       struct err *err)
{
    json_t *finish = json_object_get(line, "finish_reason");
    json_t *tokens = json_object_get(line, "logprobs");
    json_t *piece = json_object_get(line, "text");

    if (json_string_length(piece) == 0 && finish == NULL && json_array_size(tokens) == 0) {
        return 0;
    }
    return put_chunk(a, text,
                     json_pack("{s:O, s:i, s:o, s:O?}", "text", piece, "index", index, "logprobs",
                               logprobs_of(a, tokens), "finish_reason", finish),
                     err);
}

/* `choice` has the text of `piece` behind its own. A text may have a NUL in it. */
static int join_text(json_t *choice, const json_t *piece)
{
    json_t *had = json_object_get(choice, "text");
    const size_t before = json_string_length(had), more = json_string_length(piece);
    char *all = malloc(before + more + 1);

    if (all == NULL) {
        return -1;
    }
    memcpy(all, json_string_value(had), before);
    memcpy(all + before, json_string_value(piece), more);
    const int rc = json_string_setn(had, all, before + more);
    free(all);
    return rc;
}

static int keep_piece(struct openai_answer *a, int index, const json_t *line, struct err *err)
{
    json_t *choice = json_array_get(a->choices, (size_t)index);
    json_t *finish = json_object_get(line, "finish_reason");
    json_t *tokens = json_object_get(line, "logprobs");
    int rc = join_text(choice, json_object_get(line, "text"));

    if (finish != NULL) {
        rc |= json_object_set(choice, "finish_reason", finish);
    }
    if (tokens == NULL) {
        (void)json_object_del(choice, "logprobs");
    } else {
        rc |= json_array_extend(json_object_get(choice, "logprobs"), tokens);
    }
    return rc == 0 ? 0 : FAIL(err, ERR_NO_MEMORY, no_memory);
}

static int take_piece(struct openai_answer *a, int prompt, const json_t *line, char **text,
                      struct err *err)
{
    const json_t *number = json_object_get(line, "index");
    const json_int_t index = (json_int_t)prompt * a->ask->n + json_integer_value(number);

    if (!json_is_string(json_object_get(line, "text")) || json_integer_value(number) < 0 ||
        json_integer_value(number) >= a->ask->n) {
        return FAIL(err, ERR_INTERNAL, "the model's process said what is no piece");
    }
    if (!a->ask->stream) {
        return keep_piece(a, (int)index, line, err);
    }
    return a->ask->chat ? stream_chat(a, (int)index, line, text, err)
                        : stream_text(a, (int)index, line, text, err);
}

static int take_error(const json_t *e, struct err *err)
{
    const char *message = json_string_value(json_object_get(e, "message"));
    const char *code = json_string_value(json_object_get(e, "code"));
    const char *param = json_string_value(json_object_get(e, "param"));

    err_set(err, code == NULL ? ERR_INTERNAL : err_from_word(code), "%s",
            message == NULL ? "the model failed" : message);
    err_about(err, param == NULL ? "" : param);
    return (int)err->code;
}

int openai_answer_take(struct openai_answer *a, const json_t *line, char **text, struct err *err)
{
    const json_t *error = json_object_get(line, "error"), *usage = json_object_get(line, "usage");
    const char *id = json_string_value(json_object_get(line, "id"));

    *text = NULL;
    if (error != NULL) {
        return take_error(error, err);
    }
    if (json_object_get(line, "hone_serve") != NULL) {
        return 0;
    }
    const long prompt = id == NULL ? -1 : strtol(id, NULL, 10);
    if (prompt < 0 || prompt >= a->ask->prompts) {
        return FAIL(err, ERR_INTERNAL, "the model's process said what nobody asked");
    }
    if (usage != NULL) {
        a->ended++;
        a->tokens += json_integer_value(json_object_get(usage, "completion_tokens"));
        return a->ask->stream && openai_answer_is_complete(a) ? put_end(a, text, err) : 0;
    }
    if (json_object_get(line, "prompt_tokens") != NULL) {
        a->accepted++;
        a->prompt_tokens += json_integer_value(json_object_get(line, "prompt_tokens"));
        return 0;
    }
    return take_piece(a, (int)prompt, line, text, err);
}

/* What came of a choice, in the shape of the answer. */
static json_t *shape_choice(const struct openai_answer *a, size_t i, const json_t *choice)
{
    json_t *text = json_object_get(choice, "text");
    json_t *finish = json_object_get(choice, "finish_reason");
    json_t *logprobs = logprobs_of(a, json_object_get(choice, "logprobs"));

    if (!a->ask->chat) {
        return json_pack("{s:O, s:i, s:o, s:O}", "text", text, "index", (int)i, "logprobs",
                         logprobs, "finish_reason", finish);
    }
    return json_pack("{s:i, s:{s:s, s:O, s:n}, s:o, s:O}", "index", (int)i, "message", "role",
                     "assistant", "content", text, "refusal", "logprobs", logprobs, "finish_reason",
                     finish);
}

json_t *openai_answer_body(const struct openai_answer *a)
{
    json_t *choices = json_array();
    const json_t *choice = NULL;
    size_t i = 0;

    json_array_foreach(a->choices, i, choice)
    {
        (void)json_array_append_new(choices, shape_choice(a, i, choice));
    }
    json_t *body = json_pack("{s:s, s:s, s:I, s:s, s:o, s:{s:I, s:I, s:I}}", "id", a->id, "object",
                             a->ask->chat ? "chat.completion" : "text_completion", "created",
                             (json_int_t)a->created, "model", a->ask->model, "choices", choices,
                             "usage", "prompt_tokens", (json_int_t)a->prompt_tokens,
                             "completion_tokens", (json_int_t)a->tokens, "total_tokens",
                             (json_int_t)a->prompt_tokens + (json_int_t)a->tokens);
    /* a copy: what came of the choices is freed by another thread */
    json_t *copy = json_deep_copy(body);
    json_decref(body);
    return copy;
}
