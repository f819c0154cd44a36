/* auth.c - users, tokens, sessions, login codes. */
#include "server/auth.h"

#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

#include "kernels/check.h"

enum { SESSION_IDLE_SECONDS = 12 * 3600, SESSION_SECONDS = 7 * 24 * 3600, NOTE_SECONDS = 60 };
enum { SECRET = 43, CHECK_LETTERS = 6, BEFORE_CHECK = 5 + (AUTH_ID - 1) + 1 + SECRET };

static void hash_of(const char *secret, uint8_t out[SHA256_DIGEST_SIZE])
{
    struct sha256_ctx sha;

    sha256_init(&sha);
    sha256_update(&sha, strlen(secret), (const uint8_t *)secret);
    sha256_digest(&sha, SHA256_DIGEST_SIZE, out);
}

static void write_check(char *out, const char *text, size_t size)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uLong crc = crc32(0, (const Bytef *)text, (uInt)size); /* size is under 100 */

    for (int i = CHECK_LETTERS - 1; i >= 0; i--) {
        out[i] = letters[crc % 62];
        crc /= 62;
    }
    out[CHECK_LETTERS] = '\0';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static int check_name(const char *name, struct err *err)
{
    const size_t size = strlen(name);
    bool good = size >= 1 && size < USER_NAME && is_letter(name[0]);

    for (size_t i = 1; good && i < size; i++) {
        good = is_letter(name[i]) || strchr("._-@", name[i]) != NULL;
    }
    if (!good) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "name",
                          "a user's name is 1 to %d letters, digits or \"._-@\" and begins with a "
                          "letter or digit",
                          USER_NAME - 1);
    }
    return 0;
}

static const char *const roles[ROLE_COUNT] = {
    [ROLE_VIEWER] = "viewer", [ROLE_MEMBER] = "member", [ROLE_ADMIN] = "admin"};

const char *role_word(enum role r)
{
    return roles[r];
}

enum role role_from_word(const char *word)
{
    int r = 0;

    while (r < ROLE_COUNT && strcmp(roles[r], word) != 0) {
        r++;
    }
    return (enum role)r;
}

int user_add(struct tx *tx, const char *name, enum role role, int64_t *id, struct err *err)
{
    int64_t taken = 0;

    TRY(check_name(name, err));
    TRY(db_integer(&taken, 0, tx->db, err, "SELECT 1 FROM users WHERE name=?", "s", name));
    if (taken != 0) {
        return FAIL_PARAM(err, ERR_BAD_STATE, "name", "there is a user \"%s\" already", name);
    }
    TRY(db_run(tx->db, err, "INSERT INTO users(name, role, created_at) VALUES(?,?,?)", "ssi", name,
               role_word(role), (int64_t)time(NULL)));
    *id = sqlite3_last_insert_rowid(tx->db);
    return 0;
}

int user_find(sqlite3 *db, const char *name, int64_t *id, struct err *err)
{
    TRY(db_integer(id, 0, db, err, "SELECT id FROM users WHERE name=?", "s", name));
    return *id != 0 ? 0 : FAIL(err, ERR_NOT_FOUND, "there is no user \"%.64s\"", name);
}

int token_add(struct tx *tx, int64_t user_id, const char *name, int64_t expires_in,
              struct new_token *out, struct err *err)
{
    char secret[SECRET + 1];
    uint8_t hash[SHA256_DIGEST_SIZE];

    random_word(out->id, AUTH_ID - 1);
    random_secret(secret);
    (void)snprintf(out->text, sizeof out->text, "hone_%s_%s", out->id, secret);
    write_check(out->text + BEFORE_CHECK, out->text, BEFORE_CHECK);
    out->created_at = time(NULL);
    out->expires_at = expires_in > 0 ? out->created_at + expires_in : 0;
    hash_of(secret, hash);
    TRY(db_run(tx->db, err,
               "INSERT INTO tokens(id, user_id, name, hash, created_at, expires_at)"
               " VALUES(?,?,?,?,?,NULLIF(?,0))",
               "sisbii", out->id, user_id, name, hash, sizeof hash, out->created_at,
               out->expires_at));
    return 0;
}

int token_remove(struct tx *tx, int64_t user_id, const char *id, struct err *err)
{
    TRY(db_run(tx->db, err, "DELETE FROM tokens WHERE id=? AND user_id=?", "si", id, user_id));
    return sqlite3_changes(tx->db) == 1 ? 0
                                        : FAIL(err, ERR_NOT_FOUND, "there is no token %.20s", id);
}

int login_code_add(struct tx *tx, int64_t user_id, char code[44], int64_t *expires_at,
                   struct err *err)
{
    uint8_t hash[SHA256_DIGEST_SIZE];

    random_secret(code);
    hash_of(code, hash);
    *expires_at = (int64_t)time(NULL) + LOGIN_CODE_SECONDS;
    return db_run(tx->db, err, "INSERT INTO login_codes(hash, user_id, expires_at) VALUES(?,?,?)",
                  "bii", hash, sizeof hash, user_id, *expires_at);
}

static int refuse(struct err *err)
{
    return FAIL(err, ERR_UNAUTHORIZED,
                "no valid token or session: send \"Authorization: Bearer TOKEN\" or sign in");
}

/* Fill from a row of (user id, name, role). */
static void read_user(sqlite3_stmt *q, struct identity *out)
{
    out->user_id = sqlite3_column_int64(q, 0);
    (void)snprintf(out->name, sizeof out->name, "%s", db_text(q, 1));
    out->role = role_from_word(db_text(q, 2));
    CHECK(out->role != ROLE_COUNT, "role \"%s\" of user %s", db_text(q, 2), out->name);
}

/* "hone_ID_SECRETCHECK" into its parts; false when the text can't be a token. */
static bool split_token(const char *token, char id[AUTH_ID], char secret[SECRET + 1])
{
    char check[CHECK_LETTERS + 1];

    if (strlen(token) != BEFORE_CHECK + CHECK_LETTERS || strncmp(token, "hone_", 5) != 0 ||
        token[BEFORE_CHECK - SECRET - 1] != '_') {
        return false;
    }
    (void)snprintf(id, AUTH_ID, "%.*s", AUTH_ID - 1, token + 5);
    (void)snprintf(secret, SECRET + 1, "%.*s", SECRET, token + BEFORE_CHECK - SECRET);
    write_check(check, token, BEFORE_CHECK);
    return strcmp(check, token + BEFORE_CHECK) == 0;
}

int auth_by_token(sqlite3 *db, const char *token, struct identity *out, struct err *err)
{
    static const uint8_t none[SHA256_DIGEST_SIZE];
    char id[AUTH_ID], secret[SECRET + 1];
    uint8_t hash[SHA256_DIGEST_SIZE];
    sqlite3_stmt *q = NULL;
    bool row = false;

    memset(out, 0, sizeof *out);
    if (!split_token(token, id, secret)) {
        return refuse(err);
    }
    hash_of(secret, hash);
    TRY(db_query(&q, db, err,
                 "SELECT u.id, u.name, u.role, t.hash, t.expires_at, t.last_used_at FROM tokens t"
                 " JOIN users u ON u.id=t.user_id WHERE t.id=? AND NOT u.disabled"
                 " AND (t.expires_at IS NULL OR t.expires_at>?)",
                 "si", id, (int64_t)time(NULL)));
    int rc = db_next(q, &row, err);
    if (rc == 0) {
        const bool whole = row && sqlite3_column_bytes(q, 3) == SHA256_DIGEST_SIZE;
        const void *kept = whole ? sqlite3_column_blob(q, 3) : none;
        if (memeql_sec(kept, hash, sizeof hash) && whole) {
            read_user(q, out);
            out->expires_at = sqlite3_column_int64(q, 4);
            out->is_stale = sqlite3_column_int64(q, 5) <= (int64_t)time(NULL) - NOTE_SECONDS;
            (void)snprintf(out->token_id, sizeof out->token_id, "%s", id);
        } else {
            rc = refuse(err);
        }
    }
    sqlite3_finalize(q);
    return rc;
}

int auth_by_session(sqlite3 *db, const char *cookie, struct identity *out, struct err *err)
{
    const int64_t now = time(NULL);
    sqlite3_stmt *q = NULL;
    bool row = false;

    memset(out, 0, sizeof *out);
    hash_of(cookie, out->session); /* looked up by its hash: what differs can't be timed */
    TRY(db_query(&q, db, err,
                 "SELECT u.id, u.name, u.role, s.csrf, s.created_at, s.seen_at FROM sessions s"
                 " JOIN users u ON u.id=s.user_id WHERE s.hash=? AND NOT u.disabled"
                 " AND s.created_at>? AND s.seen_at>?",
                 "bii", out->session, sizeof out->session, now - SESSION_SECONDS,
                 now - SESSION_IDLE_SECONDS));
    int rc = db_next(q, &row, err);
    if (rc == 0 && row) {
        read_user(q, out);
        (void)snprintf(out->csrf, sizeof out->csrf, "%s", db_text(q, 3));
        out->expires_at = sqlite3_column_int64(q, 4) + SESSION_SECONDS;
        out->is_stale = sqlite3_column_int64(q, 5) <= now - NOTE_SECONDS;
    } else if (rc == 0) {
        rc = refuse(err);
    }
    sqlite3_finalize(q);
    return rc;
}

int auth_still(sqlite3 *db, const struct identity *who, struct err *err)
{
    int64_t found = 0;

    TRY(db_integer(&found, 0, db, err,
                   "SELECT 1 FROM users u WHERE u.id=?1 AND NOT u.disabled AND u.role=?2"
                   " AND CASE ?3 WHEN '' THEN EXISTS(SELECT 1 FROM sessions WHERE hash=?4)"
                   "  ELSE EXISTS(SELECT 1 FROM tokens WHERE id=?3) END",
                   "issb", who->user_id, role_word(who->role), who->token_id, who->session,
                   sizeof who->session));
    return found != 0 ? 0 : refuse(err);
}

int session_add(struct tx *tx, struct identity *who, char cookie[44], struct err *err)
{
    const int64_t now = time(NULL);

    random_secret(cookie);
    random_secret(who->csrf);
    hash_of(cookie, who->session);
    who->token_id[0] = '\0';
    who->expires_at = now + SESSION_SECONDS;
    return db_run(tx->db, err,
                  "INSERT INTO sessions(hash, user_id, csrf, created_at, seen_at)"
                  " VALUES(?,?,?,?,?)",
                  "bisii", who->session, sizeof who->session, who->user_id, who->csrf, now, now);
}

int session_remove(struct tx *tx, const uint8_t hash[32], struct err *err)
{
    return db_run(tx->db, err, "DELETE FROM sessions WHERE hash=?", "b", hash, (size_t)32);
}

int login_by_code(struct tx *tx, const char *code, char cookie[44], struct identity *out,
                  struct err *err)
{
    uint8_t hash[SHA256_DIGEST_SIZE];
    sqlite3_stmt *q = NULL;
    bool row = false;

    memset(out, 0, sizeof *out);
    hash_of(code, hash);
    TRY(db_query(&q, tx->db, err,
                 "SELECT u.id, u.name, u.role FROM login_codes c JOIN users u ON u.id=c.user_id"
                 " WHERE c.hash=? AND c.expires_at>? AND NOT u.disabled",
                 "bi", hash, sizeof hash, (int64_t)time(NULL)));
    int rc = db_next(q, &row, err);
    if (rc == 0 && row) {
        read_user(q, out);
    } else if (rc == 0) {
        rc = FAIL(err, ERR_UNAUTHORIZED,
                  "the login code is wrong, used already or older than %d minutes",
                  LOGIN_CODE_SECONDS / 60);
    }
    sqlite3_finalize(q);
    if (rc == 0) {
        rc = db_run(tx->db, err, "DELETE FROM login_codes WHERE hash=?", "b", hash, sizeof hash);
    }
    return rc != 0 ? rc : session_add(tx, out, cookie, err);
}

static int note_use(struct tx *tx, void *argument, struct err *err)
{
    const struct identity *who = argument;
    const int64_t now = time(NULL);

    if (who->token_id[0] != '\0') {
        return db_run(tx->db, err,
                      "UPDATE tokens SET last_used_at=? WHERE id=?"
                      " AND (last_used_at IS NULL OR last_used_at<=?)",
                      "isi", now, who->token_id, now - NOTE_SECONDS);
    }
    return db_run(tx->db, err, "UPDATE sessions SET seen_at=? WHERE hash=? AND seen_at<=?", "ibi",
                  now, who->session, sizeof who->session, now - NOTE_SECONDS);
}

void auth_note_use(struct store *s, const struct identity *who)
{
    struct identity *kept = who->is_stale ? malloc(sizeof *kept) : NULL;

    if (kept != NULL) {
        *kept = *who;
        store_post(s, note_use, kept);
    }
}

int auth_sweep(struct tx *tx, void *unused, struct err *err)
{
    const int64_t now = time(NULL);

    (void)unused;
    TRY(db_run(tx->db, err, "DELETE FROM sessions WHERE created_at<=? OR seen_at<=?", "ii",
               now - SESSION_SECONDS, now - SESSION_IDLE_SECONDS));
    return db_run(tx->db, err, "DELETE FROM login_codes WHERE expires_at<=?", "i", now);
}
