/* margins.c - rows of the table `margins`. */
#include "server/margins.h"

const char *margins_card(const struct device *d)
{
    return d->kind == DEVICE_CPU ? "CPU slots" : d->name;
}

int margins_of(sqlite3 *db, const char *card, uint64_t *bytes, struct err *err)
{
    int64_t found = 0;

    TRY(db_integer(&found, 0, db, err, "SELECT bytes FROM margins WHERE card=?", "s", card));
    *bytes = found > 0 ? (uint64_t)found : 0;
    return 0;
}

int margins_learn(struct tx *tx, const char *card, uint64_t planned, uint64_t seen,
                  uint64_t card_bytes, int64_t now, struct err *err)
{
    const uint64_t most = card_bytes / 5, least = planned / 50;
    uint64_t margin = 0;

    TRY(margins_of(tx->db, card, &margin, err));
    const uint64_t over = seen > planned ? seen - planned : 0;
    margin += over > least ? over : least;
    margin = margin < most ? margin : most;
    return db_run(tx->db, err,
                  "INSERT INTO margins(card, bytes, learned_at) VALUES(?,?,?) ON CONFLICT(card)"
                  " DO UPDATE SET bytes=max(bytes, excluded.bytes), learned_at=excluded.learned_at",
                  "sii", card, (int64_t)margin, now);
}

int margins_json(json_t **out, sqlite3 *db, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = true;

    TRY(db_query(&q, db, err, "SELECT card, bytes FROM margins ORDER BY card", ""));
    *out = json_object();
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        (void)json_object_set_new(*out, db_text(q, 0),
                                  json_integer((json_int_t)sqlite3_column_int64(q, 1)));
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}
