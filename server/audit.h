/* audit.h - the append-only record of who changed what.
 *
 * A row in the store, chained by hashes (SHA-256 of the hash before it and the row), numbered from 1 without a
 * gap, and a line of JSON in DATA/audit.jsonl (audit_file.h). Tokens appear by their ids, never by value;
 * whatever is not a plain ASCII character is written as \xNN.
 */
#ifndef SERVER_AUDIT_H
#define SERVER_AUDIT_H

#include "server/auth.h"

enum { AUDIT_TEXT = 256, AUDIT_HASH = 32 };

struct audit_entry {
    const struct identity *who; /* NULL or without a name: nobody signed in, or honed itself */
    const char *address;        /* of the client; "" */
    const char *action; /* "job_cancel", "user_change": a handler's name, or a verb of honed's */
    const char *object; /* "job-...", "ada", "device GPU-..." */
    const char *result; /* "ok", or a word of err.def */
};

/* In the transaction of the change, or on its own for refusals. */
int audit_add(struct tx *tx, const struct audit_entry *e, struct err *err);

/* Whether the chain is whole; *first_bad is the number of the first row that does not fit or is missing, else
 * 0. *rows, which may be NULL: how many there are. */
int audit_check(sqlite3 *db, int64_t *first_bad, int64_t *rows, struct err *err);

#endif
