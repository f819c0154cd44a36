/* auth.h - users, tokens, sessions, login codes.
 *
 * A token is "hone_<id>_<secret><check>": id 10 letters, secret 43 (256 bits), check 6 (CRC-32 of what
 * stands before it, so that a typo is told from a revoked token without a look at the store). A session
 * is a cookie of 43 letters. A login code is 43 letters, works once and for 10 minutes. The store keeps
 * the SHA-256 of each; comparison takes the same time whatever differs.
 */
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include "server/random.h"
#include "server/store.h"

enum { USER_NAME = 65, AUTH_TOKEN = 72, AUTH_ID = 11, LOGIN_CODE_SECONDS = 600 };

/* What a user is; rights.def says what that allows. */
enum role { ROLE_VIEWER, ROLE_MEMBER, ROLE_ADMIN, ROLE_COUNT };

/* Who asks. */
struct identity {
    int64_t user_id;
    char name[USER_NAME];
    enum role role;
    char token_id[AUTH_ID]; /* "" when it is a session         */
    char csrf[44];          /* "" when it is a token           */
    uint8_t session[32];    /* hash, when it is a session      */
    int64_t expires_at;     /* seconds since 1970; 0 for never */
    bool is_stale;          /* its use was not noted lately    */
};

/* A token that was just made. */
struct new_token {
    char id[AUTH_ID];
    char text[AUTH_TOKEN];
    int64_t created_at, expires_at; /* 0 for never */
};

/* Names are 1 to 64 letters, digits, ".", "_", "-", "@" and begin with a letter or digit.
 * Errors: BAD_REQUEST (param name), BAD_STATE when it is taken. */
int user_add(struct tx *tx, const char *name, enum role role, int64_t *id, struct err *err);

const char *role_word(enum role r);         /* "viewer" */
enum role role_from_word(const char *word); /* ROLE_COUNT for a word that none has */

/* Errors: NOT_FOUND. */
int user_find(sqlite3 *db, const char *name, int64_t *id, struct err *err);

int token_add(struct tx *tx, int64_t user_id, const char *name, int64_t expires_in,
              struct new_token *out, struct err *err);

/* Errors: NOT_FOUND when the user has no such token. */
int token_remove(struct tx *tx, int64_t user_id, const char *id, struct err *err);

/* A code for a user; whoever has it becomes that user once. */
int login_code_add(struct tx *tx, int64_t user_id, char code[44], int64_t *expires_at,
                   struct err *err);

/* Whose token or session it is. Errors: UNAUTHORIZED, one sentence for all reasons. */
int auth_by_token(sqlite3 *db, const char *token, struct identity *out, struct err *err);
int auth_by_session(sqlite3 *db, const char *cookie, struct identity *out, struct err *err);

/* Whether the identity is still what it was when it was read: the token or session is there, the user may come and
 * has the role. Errors: UNAUTHORIZED. */
int auth_still(sqlite3 *db, const struct identity *who, struct err *err);

/* Exchange a code for a session. Errors: UNAUTHORIZED. */
int login_by_code(struct tx *tx, const char *code, char cookie[44], struct identity *out,
                  struct err *err);
/* A session for who showed a token. */
int session_add(struct tx *tx, struct identity *who, char cookie[44], struct err *err);
int session_remove(struct tx *tx, const uint8_t hash[32], struct err *err);

/* Note that the identity was used, at most once a minute each. Never waits. */
void auth_note_use(struct store *s, const struct identity *who);

/* Remove sessions and codes that have run out. */
int auth_sweep(struct tx *tx, void *unused, struct err *err);

#endif
