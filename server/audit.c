/* audit.c - the append-only record of who changed what. */
#include "server/audit.h"

#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TEXTS = 6 };

/* What is hashed of a row. */
struct row {
    int64_t n, t;
    char text[TEXTS][AUDIT_TEXT]; /* user, token, address, action, object, result */
};

static void add_text(struct sha256_ctx *sha, const char *text)
{
    char size[24];

    /* the length first: what stands at the end of one text can't be moved to the next */
    const int n = snprintf(size, sizeof size, "%zu:", strlen(text));
    sha256_update(sha, (size_t)n, (const uint8_t *)size);
    sha256_update(sha, strlen(text), (const uint8_t *)text);
}

static void hash_row(uint8_t out[AUDIT_HASH], const uint8_t before[AUDIT_HASH], const struct row *r)
{
    struct sha256_ctx sha;
    char numbers[64];

    (void)snprintf(numbers, sizeof numbers, "%lld %lld", (long long)r->n, (long long)r->t);
    sha256_init(&sha);
    sha256_update(&sha, AUDIT_HASH, before);
    add_text(&sha, numbers);
    for (int i = 0; i < TEXTS; i++) {
        add_text(&sha, r->text[i]);
    }
    sha256_digest(&sha, AUDIT_HASH, out);
}

/* As much as fits, of plain characters. */
static void keep_plain(char out[AUDIT_TEXT], const char *text)
{
    size_t used = 0;

    for (const char *p = text; *p != '\0' && used + 5 < AUDIT_TEXT; p++) {
        const unsigned char byte = (unsigned char)*p;
        const bool plain = byte >= 0x20 && byte < 0x7f;
        used += (size_t)snprintf(out + used, AUDIT_TEXT - used, plain ? "%c" : "\\x%02x", byte);
    }
    out[used] = '\0';
}

/* The number of the next row and the hash before it. */
static int find_end(sqlite3 *db, int64_t *next, uint8_t hash[AUDIT_HASH], struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    memset(hash, 0, AUDIT_HASH);
    TRY(db_integer(next, 0, db, err, "SELECT seq FROM sqlite_sequence WHERE name='audit'", ""));
    ++*next;
    TRY(db_query(&q, db, err, "SELECT hash FROM audit ORDER BY n DESC LIMIT 1", ""));
    const int rc = db_next(q, &row, err);
    if (rc == 0 && row && sqlite3_column_bytes(q, 0) == AUDIT_HASH) {
        memcpy(hash, sqlite3_column_blob(q, 0), AUDIT_HASH);
    }
    sqlite3_finalize(q);
    return rc;
}

int audit_add(struct tx *tx, const struct audit_entry *e, struct err *err)
{
    uint8_t before[AUDIT_HASH], hash[AUDIT_HASH];
    struct row r = {.t = time(NULL)};

    TRY(find_end(tx->db, &r.n, before, err));
    keep_plain(r.text[0], e->who != NULL ? e->who->name : "");
    keep_plain(r.text[1], e->who != NULL ? e->who->token_id : "");
    keep_plain(r.text[2], e->address);
    keep_plain(r.text[3], e->action);
    keep_plain(r.text[4], e->object);
    keep_plain(r.text[5], e->result);
    hash_row(hash, before, &r);
    return db_run(tx->db, err,
                  "INSERT INTO audit(n, t, user, token, address, action, object, result, hash)"
                  " VALUES(?,?,?,?,?,?,?,?,?)",
                  "iissssssb", r.n, r.t, r.text[0], r.text[1], r.text[2], r.text[3], r.text[4],
                  r.text[5], hash, sizeof hash);
}

/* Whether the row that q stands on follows `before`, which becomes its hash. */
static bool follows(sqlite3_stmt *q, int64_t n, uint8_t before[AUDIT_HASH])
{
    struct row r = {.n = sqlite3_column_int64(q, 0), .t = sqlite3_column_int64(q, 1)};
    uint8_t hash[AUDIT_HASH];

    for (int i = 0; i < TEXTS; i++) {
        const char *text = db_text(q, i + 2);
        if (strlen(text) >= AUDIT_TEXT || (size_t)sqlite3_column_bytes(q, i + 2) != strlen(text)) {
            return false;
        }
        (void)snprintf(r.text[i], AUDIT_TEXT, "%s", text);
    }
    hash_row(hash, before, &r);
    memcpy(before, hash, AUDIT_HASH);
    return r.n == n && sqlite3_column_bytes(q, 8) == AUDIT_HASH &&
           memcmp(sqlite3_column_blob(q, 8), hash, AUDIT_HASH) == 0;
}

int audit_check(sqlite3 *db, int64_t *first_bad, int64_t *rows, struct err *err)
{
    uint8_t hash[AUDIT_HASH] = {0};
    sqlite3_stmt *q = NULL;
    int64_t last = 0, n = 1;
    bool row = false;

    *first_bad = 0;
    TRY(db_integer(&last, 0, db, err, "SELECT seq FROM sqlite_sequence WHERE name='audit'", ""));
    TRY(db_query(&q, db, err,
                 "SELECT n, t, user, token, address, action, object, result, hash FROM audit"
                 " ORDER BY n",
                 ""));
    int rc = db_next(q, &row, err);
    for (; rc == 0 && row && *first_bad == 0; n++) {
        if (!follows(q, n, hash)) {
            *first_bad = n;
        } else {
            rc = db_next(q, &row, err);
        }
    }
    sqlite3_finalize(q);
    if (rc == 0 && *first_bad == 0 && n - 1 != last) {
        *first_bad = n; /* rows were taken from the end */
    }
    if (rows != NULL) {
        *rows = n - 1;
    }
    return rc;
}
