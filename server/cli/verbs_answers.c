/* verbs_answers.c - hone complete and hone chat: what a model says, as it says it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"
#include "server/cli/sse.h"

enum { QUIET_S = 60, PROMPT_MAX = 1 << 20 };

static const char no_memory[] = "there is no memory left";

/* An answer that arrives. */
struct answer {
    bool chat, failed, ended;
    char *text; /* owned; of a chat, for its next turn */
    size_t bytes;
    struct err err;
    struct sse *sse; /* owned */
};

static bool keep_text(struct answer *a, const char *piece, size_t bytes)
{
    char *const more = realloc(a->text, a->bytes + bytes + 1);

    if (more == NULL) {
        a->failed = true;
        err_set(&a->err, ERR_NO_MEMORY, no_memory);
        return false;
    }
    a->text = more;
    memcpy(a->text + a->bytes, piece, bytes);
    a->bytes += bytes;
    a->text[a->bytes] = '\0';
    return true;
}

static bool take_event(void *self, const char *type, const char *text, const char *id)
{
    struct answer *const a = self;
    json_t *const event = json_loads(text, JSON_ALLOW_NUL, NULL);
    const json_t *const error = json_object_get(event, "error");
    const json_t *const choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *const piece = a->chat
                                    ? json_object_get(json_object_get(choice, "delta"), "content")
                                    : json_object_get(choice, "text");
    bool go_on = true;

    (void)type;
    (void)id;
    a->ended = a->ended || strcmp(text, "[DONE]") == 0;
    if (json_is_object(error)) {
        a->failed = true;
        err_set(&a->err, err_from_word(cli_text(error, "code")), "%s", cli_text(error, "message"));
        go_on = false;
    } else if (json_is_string(piece)) {
        show_print(json_string_value(piece), json_string_length(piece), true);
        go_on = fflush(stdout) == 0 &&
                keep_text(a, json_string_value(piece), json_string_length(piece));
    }
    json_decref(event);
    return go_on;
}

static bool take_bytes(void *self, const char *bytes, size_t count)
{
    return sse_feed(((struct answer *)self)->sse, bytes, count);
}

/* Send the request as a stream and print what comes. */
static int stream_answer(struct cli *c, const char *path, json_t *body, struct answer *a,
                         struct err *err)
{
    const struct http_request request = {.method = "POST",
                                         .path = path,
                                         .json = body,
                                         .sink = take_bytes,
                                         .self = a,
                                         .quiet_s = QUIET_S};
    struct http_reply reply;

    a->sse = sse_new(take_event, a);
    if (a->sse == NULL || json_object_set_new(body, "stream", json_true()) != 0) {
        return FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    int rc = http_send(c->http, &request, &reply, err);
    http_reply_fini(&reply);
    if (a->bytes > 0) {
        (void)putchar('\n');
    }
    if (a->failed) {
        *err = a->err;
        rc = (int)err->code;
    } else if (rc == 0 && !a->ended) {
        rc = FAIL(err, ERR_IO, "the answer broke off");
    }
    return rc;
}

static void answer_fini(struct answer *a)
{
    sse_free(a->sse);
    free(a->text);
    *a = (struct answer){0};
}

/* The fields of the words from `first` on, and the model. */
static int make_body(json_t **out, const struct args *a, int first, struct err *err)
{
    json_t *const body = json_pack("{s:s}", "model", a->word[0]);
    int rc = body == NULL ? FAIL(err, ERR_NO_MEMORY, no_memory) : 0;

    for (int i = first; i < a->words && rc == 0; i++) {
        rc = assign_field(body, a->word[i], NULL, err);
    }
    if (rc != 0) {
        json_decref(body);
        return rc;
    }
    *out = body;
    return 0;
}

/* All of standard input. */
static int read_input(char **out, struct err *err)
{
    char *const text = malloc(PROMPT_MAX + 1);

    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    const size_t n = fread(text, 1, PROMPT_MAX, stdin);
    text[n] = '\0';
    if (!feof(stdin) && getchar() != EOF) {
        free(text);
        return FAIL(err, ERR_TOO_LARGE, "the prompt is longer than %d bytes", PROMPT_MAX);
    }
    *out = text;
    return 0;
}

static int set_text(json_t *object, const char *key, const char *text, struct err *err)
{
    json_t *const value = json_string(text);

    return value != NULL && json_object_set_new(object, key, value) == 0
               ? 0
               : FAIL(err, ERR_BAD_REQUEST, "the text is not UTF-8");
}

/* Ask and print: the whole answer as JSON, or as it comes. */
static int ask(struct cli *c, const char *path, json_t *body, struct answer *a, struct err *err)
{
    json_t *json = NULL;

    if (!args_has(&c->args, OPT(JSON))) {
        return stream_answer(c, path, body, a, err);
    }
    const int rc = cli_call(c, "POST", path, body, &json, err);
    json_decref(json);
    return rc;
}

int verb_complete(struct cli *c, struct err *err)
{
    struct answer a = {0};
    json_t *body = NULL;
    char *input = NULL;
    const char *prompt = c->args.word[1];

    TRY(cli_connect(c, true, err));
    TRY(make_body(&body, &c->args, 2, err));
    int rc = strcmp(prompt, "-") == 0 ? read_input(&input, err) : 0;
    rc = rc != 0 ? rc : set_text(body, "prompt", input != NULL ? input : prompt, err);
    rc = rc != 0 ? rc : ask(c, "/v1/completions", body, &a, err);
    answer_fini(&a);
    free(input);
    json_decref(body);
    return rc;
}

static int add_turn(json_t *body, const char *role, const char *content, struct err *err)
{
    json_t *const turn = json_pack("{s:s}", "role", role);
    int rc = turn == NULL ? FAIL(err, ERR_NO_MEMORY, no_memory)
                          : set_text(turn, "content", content, err);

    if (rc == 0 && json_array_append(json_object_get(body, "messages"), turn) != 0) {
        rc = FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    json_decref(turn);
    return rc;
}

/* One turn of the user, and the model's. */
static int take_turn(struct cli *c, json_t *body, const char *content, struct err *err)
{
    struct answer a = {.chat = true};
    int rc = add_turn(body, "user", content, err);

    rc = rc != 0 ? rc : ask(c, "/v1/chat/completions", body, &a, err);
    rc = rc != 0 ? rc : add_turn(body, "assistant", a.text != NULL ? a.text : "", err);
    answer_fini(&a);
    return rc;
}

/* A line is a turn, until the input ends. A turn that fails is told and forgotten. */
static int converse(struct cli *c, json_t *body, struct err *err)
{
    const bool is_terminal = isatty(STDIN_FILENO) != 0;
    char *line = NULL;
    size_t room = 0;
    int rc = 0;

    for (;;) {
        if (is_terminal) {
            (void)fputs("> ", stderr);
        }
        if (getline(&line, &room, stdin) <= 0) {
            break;
        }
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '\0') {
            continue;
        }
        rc = take_turn(c, body, line, err);
        if (rc != 0) {
            break;
        }
    }
    free(line);
    return rc;
}

int verb_chat(struct cli *c, struct err *err)
{
    const char *const system = c->args.value[OPTION_SYSTEM];
    const char *const message = c->args.value[OPTION_MESSAGE];
    json_t *body = NULL;

    TRY(cli_connect(c, true, err));
    TRY(make_body(&body, &c->args, 1, err));
    int rc = json_object_set_new(body, "messages", json_array()) == 0
                 ? 0
                 : FAIL(err, ERR_NO_MEMORY, no_memory);
    if (rc == 0 && system != NULL) {
        rc = add_turn(body, "system", system, err);
    }
    rc = rc != 0 ? rc : message != NULL ? take_turn(c, body, message, err) : converse(c, body, err);
    json_decref(body);
    return rc;
}
