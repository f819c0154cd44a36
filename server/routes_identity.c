/* routes_identity.c - signing in and out, tokens, users. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/guard.h"
#include "server/list.h"
#include "server/stream.h"
#include "server/text.h"
#include "trainer/base/json.h"

enum { TOKEN_NAME = 64, TOKEN_SECONDS_MAX = 10 * 366 * 24 * 3600 };

/* A field that is a text; NULL when it is absent. */
static int take_text(const struct request *rq, const char *field, const char **out, struct err *err)
{
    const json_t *v = json_object_get(rq->body, field);

    *out = json_string_value(v);
    if (v != NULL && !json_is_null(v) && *out == NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, field, "%s must be a text", field);
    }
    return 0;
}

/* Sign in: what is asked and what comes of it. */
struct login {
    const char *code, *token;
    char cookie[44];
    struct identity who;
};

static int do_login(struct tx *tx, void *argument, struct err *err)
{
    struct login *l = argument;

    if (l->code != NULL) {
        return login_by_code(tx, l->code, l->cookie, &l->who, err);
    }
    TRY(auth_by_token(tx->db, l->token, &l->who, err));
    return session_add(tx, &l->who, l->cookie, err);
}

int handle_login(const struct request *rq, struct reply *rp, struct err *err)
{
    static const char *const known[] = {"code", "token", NULL};
    struct login l = {0};
    struct timespec now;

    TRY(request_only(rq, known, err));
    TRY(take_text(rq, "code", &l.code, err));
    TRY(take_text(rq, "token", &l.token, err));
    if ((l.code == NULL) == (l.token == NULL)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "code", "give a code or a token");
    }
    const int rc = store_write(rq->app->store, do_login, &l, err);
    if (rc == ERR_UNAUTHORIZED) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        const int64_t wait = guard_note(rq->app->guard, rq->peer, now.tv_sec);
        if (wait > 0) {
            reply_add(rp, "Retry-After", "%lld", (long long)wait);
            return FAIL(err, ERR_TOO_MANY, "too many wrong attempts; try again in %lld s",
                        (long long)wait);
        }
    }
    TRY(rc);
    reply_add(rp, "Set-Cookie", "hone_session=%s; Path=/; HttpOnly; SameSite=Strict%s", l.cookie,
              rq->app->secure ? "; Secure" : "");
    rp->body = json_pack("{s:{s:I, s:s, s:s}, s:s}", "user", "id", (json_int_t)l.who.user_id,
                         "name", l.who.name, "role", role_word(l.who.role), "csrf", l.who.csrf);
    return 0;
}

static int do_logout(struct tx *tx, void *argument, struct err *err)
{
    const struct identity *who = argument;

    return session_remove(tx, who->session, err);
}

int handle_logout(const struct request *rq, struct reply *rp, struct err *err)
{
    struct identity who = *rq->who;

    if (who.csrf[0] == '\0') {
        return FAIL(err, ERR_BAD_REQUEST, "a token has no session to end; revoke it instead");
    }
    TRY(store_write(rq->app->store, do_logout, &who, err));
    streams_revoke(rq->app->streams, &who);
    reply_add(rp, "Set-Cookie", "hone_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0%s",
              rq->app->secure ? "; Secure" : "");
    rp->body = json_pack("{s:b}", "signed_out", 1);
    return 0;
}

struct new_code {
    int64_t user_id, expires_at;
    char code[44];
};

static int do_login_code(struct tx *tx, void *argument, struct err *err)
{
    struct new_code *c = argument;

    TRY(auth_sweep(tx, NULL, err));
    return login_code_add(tx, c->user_id, c->code, &c->expires_at, err);
}

int handle_login_code_new(const struct request *rq, struct reply *rp, struct err *err)
{
    struct new_code c = {.user_id = rq->who->user_id};
    const char *host = request_header(rq, "Host"); /* one of ours, or the gate had refused it */

    TRY(store_write(rq->app->store, do_login_code, &c, err));
    rp->status = 201;
    rp->body = json_pack(
        "{s:s, s:o, s:I}", "code", c.code, "url",
        json_sprintf("%s://%s/#login=%s", rq->app->secure ? "https" : "http", host, c.code),
        "expires_at", (json_int_t)c.expires_at);
    return 0;
}

int handle_tokens_list(const struct request *rq, struct reply *rp, struct err *err)
{
    const struct listing l = {
        .columns = "id, 'token' AS object, name, created_at, expires_at, last_used_at",
        .from = "(SELECT *, row_number() OVER (ORDER BY created_at, id) AS place FROM tokens"
                " WHERE user_id=?1) WHERE ?2 IS NULL",
        .order = "place",
        .number = "SELECT COUNT(*) FROM tokens t JOIN tokens o ON o.user_id=t.user_id AND"
                  " (o.created_at, o.id)<=(t.created_at, t.id) WHERE t.id=?1 AND t.user_id=?2",
        .limit = 100,
        .most = 1000,
        .scope = rq->who->user_id,
    };

    return list_reply(rq, rp, &l, err);
}

struct token_order {
    int64_t user_id, expires_in;
    const char *name, *id;
    struct new_token made;
};

static int do_token_add(struct tx *tx, void *argument, struct err *err)
{
    struct token_order *o = argument;

    return token_add(tx, o->user_id, o->name, o->expires_in, &o->made, err);
}

static json_t *token_json(const struct new_token *t, const char *name)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:o}", "id", t->id, "object", "token", "name", name,
                     "token", t->text, "created_at", (json_int_t)t->created_at, "expires_at",
                     t->expires_at == 0 ? json_null() : json_integer((json_int_t)t->expires_at));
}

int handle_token_new(const struct request *rq, struct reply *rp, struct err *err)
{
    static const char *const known[] = {"name", "expires_in", NULL};
    const struct fields fields = {rq->body, "", ERR_BAD_REQUEST};
    struct token_order o = {.user_id = rq->who->user_id, .name = "token"};

    TRY(request_only(rq, known, err));
    TRY(fields_text(&fields, "name", FIELD_OPTIONAL, &o.name, err));
    TRY(fields_integer(&fields, "expires_in", FIELD_OPTIONAL, 1, TOKEN_SECONDS_MAX, &o.expires_in,
                       err));
    if (o.name[0] == '\0' || strlen(o.name) > TOKEN_NAME || !text_is_plain(o.name)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "name",
                          "the token's name has 1 to %d bytes without control characters",
                          TOKEN_NAME);
    }
    TRY(store_write(rq->app->store, do_token_add, &o, err));
    rp->status = 201;
    rp->body = token_json(&o.made, o.name);
    return 0;
}

static int do_token_remove(struct tx *tx, void *argument, struct err *err)
{
    const struct token_order *o = argument;

    return token_remove(tx, o->user_id, o->id, err);
}

int handle_token_revoke(const struct request *rq, struct reply *rp, struct err *err)
{
    struct token_order o = {.user_id = rq->who->user_id, .id = rq->param[0]};
    struct identity gone = {0};

    TRY(store_write(rq->app->store, do_token_remove, &o, err));
    (void)snprintf(gone.token_id, sizeof gone.token_id, "%s", o.id);
    streams_revoke(rq->app->streams, &gone);
    rp->body = json_pack("{s:s, s:s, s:b}", "id", o.id, "object", "token", "deleted", 1);
    return 0;
}
