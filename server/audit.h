/* audit.h - the append-only record of who changed what.
 *
 * A row in the store, chained by hashes (SHA-256 of the row and the hash before it), and a line of JSON in
 * DATA/audit.jsonl. Tokens appear by their ids, never by value; control characters are escaped.
 */
#ifndef SERVER_AUDIT_H
#define SERVER_AUDIT_H

#include "server/auth.h"

struct audit_entry {
    const struct identity *who; /* NULL: honed itself */
    const char *address;        /* of the client; ""  */
    const char *action; /* "job_cancel", "user_change": a handler's name, or a verb of honed's */
    const char *object; /* "job-...", "user ada", "device GPU-..." */
    const char *result; /* "ok", or a word of err.def */
};

/* In the transaction of the change, or on its own for refusals. */
int audit_add(struct tx *tx, const struct audit_entry *e, struct err *err);

/* Whether the chain is whole; *first_bad is the number of the first row that does not fit, else 0. */
int audit_check(sqlite3 *db, int64_t *first_bad, struct err *err);

#endif
