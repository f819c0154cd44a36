/* test_auth.c - tokens, sessions, login codes: what opens and what does not. */
#include "server/auth.h"

#include <string.h>
#include <zlib.h>

#include "server/guard.h"
#include "tests/server.h"

/* What the functions below work on. */
struct case_of {
    int64_t user_id, expires_in, expires_at;
    const char *text;
    struct new_token token;
    struct identity who;
    char secret[44];
};

static int make_token(struct tx *tx, void *argument, struct err *err)
{
    struct case_of *c = argument;

    return token_add(tx, c->user_id, "mine", c->expires_in, &c->token, err);
}

static int remove_token(struct tx *tx, void *argument, struct err *err)
{
    struct case_of *c = argument;

    return token_remove(tx, c->user_id, c->token.id, err);
}

static int use_token(sqlite3 *db, void *argument, struct err *err)
{
    struct case_of *c = argument;

    return auth_by_token(db, c->text, &c->who, err);
}

static int use_session(sqlite3 *db, void *argument, struct err *err)
{
    struct case_of *c = argument;

    return auth_by_session(db, c->text, &c->who, err);
}

static int make_code(struct tx *tx, void *argument, struct err *err)
{
    struct case_of *c = argument;

    return login_code_add(tx, c->user_id, c->secret, &c->expires_at, err);
}

static int use_code(struct tx *tx, void *argument, struct err *err)
{
    struct case_of *c = argument;

    return login_by_code(tx, c->text, c->secret, &c->who, err);
}

static int end_session(struct tx *tx, void *argument, struct err *err)
{
    struct case_of *c = argument;

    return session_remove(tx, c->who.session, err);
}

static int age_all(struct tx *tx, void *unused, struct err *err)
{
    (void)unused;
    TRY(db_run(tx->db, err, "UPDATE tokens SET expires_at=1 WHERE expires_at IS NOT NULL", ""));
    TRY(db_run(tx->db, err, "UPDATE sessions SET seen_at=seen_at-13*3600", ""));
    return db_run(tx->db, err, "UPDATE login_codes SET expires_at=1", "");
}

static int disable_all(struct tx *tx, void *unused, struct err *err)
{
    (void)unused;
    return db_run(tx->db, err, "UPDATE users SET disabled=1", "");
}

static void a_token_opens_until_it_is_revoked(void)
{
    struct store *s = open_store_with_job("token", "job-a");
    struct case_of c = {.user_id = 1};
    struct err err = {0};

    EXPECT(store_write(s, make_token, &c, &err) == 0);
    c.text = c.token.text;
    EXPECT(strlen(c.text) < AUTH_TOKEN && strncmp(c.text, "hone_", 5) == 0);
    EXPECT(store_read(s, use_token, &c, &err) == 0);
    EXPECT(c.who.user_id == 1 && strcmp(c.who.name, "ann") == 0 && c.who.role == ROLE_MEMBER);
    EXPECT(strcmp(c.who.token_id, c.token.id) == 0 && c.who.csrf[0] == '\0');
    c.user_id = 2; /* another user's can't be revoked */
    EXPECT(store_write(s, remove_token, &c, &err) == ERR_NOT_FOUND);
    c.user_id = 1;
    EXPECT(store_write(s, remove_token, &c, &err) == 0);
    EXPECT(store_read(s, use_token, &c, &err) == ERR_UNAUTHORIZED);
    store_close(s);
}

/* Every letter of a token counts. */
static void a_token_with_one_letter_changed_does_not_open(void)
{
    struct store *s = open_store_with_job("letters", "job-a");
    struct case_of c = {.user_id = 1};
    struct err err = {0};
    char text[AUTH_TOKEN + 8];

    EXPECT(store_write(s, make_token, &c, &err) == 0);
    const size_t size = strlen(c.token.text);
    c.text = text;
    for (size_t i = 0; i < size; i++) {
        (void)snprintf(text, sizeof text, "%s", c.token.text);
        text[i] = (char)(text[i] == 'a' ? 'b' : 'a');
        EXPECT(store_read(s, use_token, &c, &err) == ERR_UNAUTHORIZED);
    }
    (void)snprintf(text, sizeof text, "%sx", c.token.text);
    EXPECT(store_read(s, use_token, &c, &err) == ERR_UNAUTHORIZED);
    text[size - 1] = '\0';
    EXPECT(store_read(s, use_token, &c, &err) == ERR_UNAUTHORIZED);
    c.text = "";
    EXPECT(store_read(s, use_token, &c, &err) == ERR_UNAUTHORIZED);
    store_close(s);
}

/* The check at a token's end, made anew: whoever knows how can do that. */
static void make_check(char *token)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const size_t size = strlen(token) - 6;
    uLong crc = crc32(0, (const Bytef *)token, (uInt)size);

    for (size_t i = 0; i < 6; i++) {
        token[size + 5 - i] = letters[crc % 62];
        crc /= 62;
    }
}

static void a_known_id_does_not_open_without_its_secret(void)
{
    struct store *s = open_store_with_job("forged", "job-a");
    struct case_of mine = {.user_id = 1}, other = {.user_id = 1};
    struct err err = {0};
    char forged[AUTH_TOKEN];

    EXPECT(store_write(s, make_token, &mine, &err) == 0);
    EXPECT(store_write(s, make_token, &other, &err) == 0);
    (void)snprintf(forged, sizeof forged, "%s", mine.token.text);
    make_check(forged);
    EXPECT(strcmp(forged, mine.token.text) == 0);                    /* the test knows how, too */
    memcpy(forged, other.token.text, strlen("hone_") + AUTH_ID - 1); /* its id, my secret */
    make_check(forged);
    other.text = forged;
    EXPECT(store_read(s, use_token, &other, &err) == ERR_UNAUTHORIZED);
    store_close(s);
}

static void a_code_signs_in_once(void)
{
    struct store *s = open_store_with_job("code", "job-a");
    struct case_of c = {.user_id = 1};
    struct err err = {0};
    char code[44], cookie[44];

    EXPECT(store_write(s, make_code, &c, &err) == 0);
    (void)snprintf(code, sizeof code, "%s", c.secret);
    c.text = code;
    EXPECT(store_write(s, use_code, &c, &err) == 0);
    EXPECT(c.who.user_id == 1 && strlen(c.who.csrf) == 43);
    (void)snprintf(cookie, sizeof cookie, "%s", c.secret);
    EXPECT(store_write(s, use_code, &c, &err) == ERR_UNAUTHORIZED);
    c.text = cookie;
    EXPECT(store_read(s, use_session, &c, &err) == 0 && c.who.csrf[0] != '\0');
    EXPECT(c.who.token_id[0] == '\0');
    c.text = code; /* the code is no cookie */
    struct case_of other = {.text = code};
    EXPECT(store_read(s, use_session, &other, &err) == ERR_UNAUTHORIZED);
    EXPECT(store_write(s, end_session, &c, &err) == 0);
    c.text = cookie;
    EXPECT(store_read(s, use_session, &c, &err) == ERR_UNAUTHORIZED);
    store_close(s);
}

static void what_is_too_old_does_not_open(void)
{
    struct store *s = open_store_with_job("old", "job-a");
    struct case_of token = {.user_id = 1, .expires_in = 1000}, code = {.user_id = 1},
                   session = {.user_id = 1};
    struct err err = {0};
    char first[44];

    EXPECT(store_write(s, make_token, &token, &err) == 0);
    EXPECT(store_write(s, make_code, &session, &err) == 0);
    (void)snprintf(first, sizeof first, "%s", session.secret);
    session.text = first;
    EXPECT(store_write(s, use_code, &session, &err) == 0);
    EXPECT(store_write(s, make_code, &code, &err) == 0);
    token.text = token.token.text;
    code.text = first;
    EXPECT(store_read(s, use_token, &token, &err) == 0);
    session.text = session.secret;
    EXPECT(store_read(s, use_session, &session, &err) == 0);
    EXPECT(store_write(s, age_all, NULL, &err) == 0);
    EXPECT(store_read(s, use_token, &token, &err) == ERR_UNAUTHORIZED);
    EXPECT(store_read(s, use_session, &session, &err) == ERR_UNAUTHORIZED);
    (void)snprintf(first, sizeof first, "%s", code.secret);
    EXPECT(store_write(s, use_code, &code, &err) == ERR_UNAUTHORIZED);
    EXPECT(store_write(s, auth_sweep, NULL, &err) == 0);
    store_close(s);
}

static int still(sqlite3 *db, void *argument, struct err *err)
{
    const struct case_of *c = argument;

    return auth_still(db, &c->who, err);
}

static int change_role(struct tx *tx, void *role, struct err *err)
{
    return db_run(tx->db, err, "UPDATE users SET role=?", "s", (const char *)role);
}

static void an_identity_is_stale_when_its_role_or_its_token_is_another(void)
{
    struct store *s = open_store_with_job("still", "job-a");
    struct case_of c = {.user_id = 1}, session = {.user_id = 1};
    struct err err = {0};
    char viewer[] = "viewer", member[] = "member", first[44];

    EXPECT(store_write(s, make_token, &c, &err) == 0);
    c.text = c.token.text;
    EXPECT(store_read(s, use_token, &c, &err) == 0 && store_read(s, still, &c, &err) == 0);
    EXPECT(store_write(s, make_code, &session, &err) == 0);
    (void)snprintf(first, sizeof first, "%s", session.secret);
    session.text = first;
    EXPECT(store_write(s, use_code, &session, &err) == 0);
    EXPECT(store_read(s, still, &session, &err) == 0);
    EXPECT(store_write(s, change_role, viewer, &err) == 0);
    EXPECT(store_read(s, still, &c, &err) == ERR_UNAUTHORIZED);
    EXPECT(store_read(s, still, &session, &err) == ERR_UNAUTHORIZED);
    EXPECT(store_write(s, change_role, member, &err) == 0);
    EXPECT(store_read(s, still, &c, &err) == 0);
    EXPECT(store_write(s, remove_token, &c, &err) == 0);
    EXPECT(store_read(s, still, &c, &err) == ERR_UNAUTHORIZED);
    EXPECT(store_read(s, still, &session, &err) == 0);
    session.who.session[0] ^= 1;
    EXPECT(store_read(s, still, &session, &err) == ERR_UNAUTHORIZED);
    session.who.session[0] ^= 1;
    EXPECT(store_write(s, disable_all, NULL, &err) == 0);
    EXPECT(store_read(s, still, &session, &err) == ERR_UNAUTHORIZED);
    store_close(s);
}

static void a_disabled_user_is_nobody(void)
{
    struct store *s = open_store_with_job("disabled", "job-a");
    struct case_of c = {.user_id = 1};
    struct err err = {0};

    EXPECT(store_write(s, make_token, &c, &err) == 0);
    c.text = c.token.text;
    EXPECT(store_read(s, use_token, &c, &err) == 0);
    EXPECT(store_write(s, disable_all, NULL, &err) == 0);
    EXPECT(store_read(s, use_token, &c, &err) == ERR_UNAUTHORIZED);
    store_close(s);
}

static int add_user(struct tx *tx, void *name, struct err *err)
{
    int64_t id = 0;

    return user_add(tx, name, ROLE_MEMBER, &id, err);
}

static void names_of_users_are_plain_words(void)
{
    static const char *const bad[] = {
        "",     " ",
        "-x",   ".x",
        "a b",  "a/b",
        "a\nb", "\xc3\xa4",
        "a'b",  "01234567890123456789012345678901234567890123456789012345678901234"};
    static const char *const good[] = {"b", "B.c_d-e", "eve@lab.example", "7"};
    struct store *s = open_store_with_job("names", "job-a");
    struct err err = {0};
    char name[80];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)snprintf(name, sizeof name, "%s", bad[i]);
        EXPECT(store_write(s, add_user, name, &err) == ERR_BAD_REQUEST);
        EXPECT(strcmp(err.param, "name") == 0);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        (void)snprintf(name, sizeof name, "%s", good[i]);
        EXPECT(store_write(s, add_user, name, &err) == 0);
        EXPECT(store_write(s, add_user, name, &err) == ERR_BAD_STATE);
    }
    store_close(s);
}

static void guessing_becomes_slow_and_is_forgiven(void)
{
    struct login_guard *g = NULL;
    struct err err = {0};
    int64_t now = 1000, wait = 0, longest = 0;

    EXPECT(guard_open(&g, &err) == 0);
    for (int i = 0; i < 5; i++) {
        EXPECT(guard_note(g, "10.0.0.1", now) == 0);
    }
    for (int i = 0; i < 8; i++) {
        wait = guard_note(g, "10.0.0.1", now);
        EXPECT(wait > 0 && guard_note(g, "10.0.0.1", now + wait - 1) > 0);
        longest = wait > longest ? wait : longest;
        now += wait;
    }
    EXPECT(longest >= 256);                      /* doubled each time */
    EXPECT(guard_note(g, "10.0.0.2", now) == 0); /* nobody else waits */
    now += longest + 4000;
    EXPECT(guard_note(g, "10.0.0.1", now) == 0);
    guard_close(g);
}

int main(void)
{
    scratch_make();
    RUN(a_token_opens_until_it_is_revoked);
    RUN(a_token_with_one_letter_changed_does_not_open);
    RUN(a_known_id_does_not_open_without_its_secret);
    RUN(a_code_signs_in_once);
    RUN(what_is_too_old_does_not_open);
    RUN(a_disabled_user_is_nobody);
    RUN(an_identity_is_stale_when_its_role_or_its_token_is_another);
    RUN(names_of_users_are_plain_words);
    RUN(guessing_becomes_slow_and_is_forgiven);
    scratch_remove();
    return tap_done();
}
