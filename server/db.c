/* db.c - short forms of SQLite calls. */
#include "server/db.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int db_fail(sqlite3 *db, const char *sql, struct err *err)
{
    const int code = sqlite3_errcode(db) & 0xff;

    if (code == SQLITE_FULL) {
        return FAIL(err, ERR_DISK_FULL, "the disk that holds the database is full");
    }
    if (code == SQLITE_BUSY || code == SQLITE_INTERRUPT || code == SQLITE_LOCKED) {
        return FAIL(err, ERR_BUSY, "the database is busy; try again");
    }
    if (code == SQLITE_NOMEM) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a database query");
    }
    return FAIL(err, ERR_IO, "database: %s (%.60s)", sqlite3_errmsg(db), sql);
}

static int bind_values(sqlite3_stmt *q, const char *types, va_list ap)
{
    int rc = SQLITE_OK;

    for (int i = 1; *types != '\0' && rc == SQLITE_OK; i++, types++) {
        if (*types == 'i') {
            rc = sqlite3_bind_int64(q, i, va_arg(ap, int64_t));
        } else if (*types == 'r') {
            const double value = va_arg(ap, double);
            rc = isfinite(value) ? sqlite3_bind_double(q, i, value) : sqlite3_bind_null(q, i);
        } else if (*types == 's') {
            rc = sqlite3_bind_text(q, i, va_arg(ap, const char *), -1, SQLITE_TRANSIENT);
        } else {
            const void *bytes = va_arg(ap, const void *);
            rc = sqlite3_bind_blob64(q, i, bytes, va_arg(ap, size_t), SQLITE_TRANSIENT);
        }
    }
    return rc;
}

static int query(sqlite3_stmt **out, sqlite3 *db, struct err *err, const char *sql,
                 const char *types, va_list ap)
{
    if (sqlite3_prepare_v2(db, sql, -1, out, NULL) != SQLITE_OK ||
        bind_values(*out, types, ap) != SQLITE_OK) {
        const int rc = db_fail(db, sql, err);
        sqlite3_finalize(*out);
        *out = NULL;
        return rc;
    }
    return 0;
}

int db_query(sqlite3_stmt **out, sqlite3 *db, struct err *err, const char *sql, const char *types,
             ...)
{
    va_list ap;

    va_start(ap, types);
    const int rc = query(out, db, err, sql, types, ap);
    va_end(ap);
    return rc;
}

int db_bind(sqlite3_stmt *q, struct err *err, const char *types, ...)
{
    va_list ap;

    (void)sqlite3_reset(q); /* repeats the error of the last step, which was reported then */
    va_start(ap, types);
    const int rc = bind_values(q, types, ap);
    va_end(ap);
    return rc == SQLITE_OK ? 0 : db_fail(sqlite3_db_handle(q), sqlite3_sql(q), err);
}

int db_next(sqlite3_stmt *q, bool *row, struct err *err)
{
    const int rc = sqlite3_step(q);

    *row = rc == SQLITE_ROW;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        return db_fail(sqlite3_db_handle(q), sqlite3_sql(q), err);
    }
    return 0;
}

int db_run(sqlite3 *db, struct err *err, const char *sql, const char *types, ...)
{
    sqlite3_stmt *q = NULL;
    va_list ap;
    bool row = true;

    va_start(ap, types);
    int rc = query(&q, db, err, sql, types, ap);
    va_end(ap);
    while (rc == 0 && row) {
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

int db_script(sqlite3 *db, const char *sql, struct err *err)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : db_fail(db, sql, err);
}

int db_integer(int64_t *out, int64_t missing, sqlite3 *db, struct err *err, const char *sql,
               const char *types, ...)
{
    sqlite3_stmt *q = NULL;
    va_list ap;
    bool row = false;

    va_start(ap, types);
    int rc = query(&q, db, err, sql, types, ap);
    va_end(ap);
    if (rc == 0) {
        rc = db_next(q, &row, err);
    }
    *out = missing;
    if (rc == 0 && row && sqlite3_column_type(q, 0) != SQLITE_NULL) {
        *out = sqlite3_column_int64(q, 0);
    }
    sqlite3_finalize(q);
    return rc;
}

const char *db_text(sqlite3_stmt *q, int column)
{
    const unsigned char *text = sqlite3_column_text(q, column);

    return text == NULL ? "" : (const char *)text;
}

static json_t *column_json(sqlite3_stmt *q, int i, bool parse)
{
    switch (sqlite3_column_type(q, i)) {
    case SQLITE_INTEGER: return json_integer(sqlite3_column_int64(q, i));
    case SQLITE_FLOAT: return json_real(sqlite3_column_double(q, i));
    case SQLITE_TEXT:
        if (parse) {
            json_t *value = json_loads(db_text(q, i), JSON_DECODE_ANY, NULL);
            return value == NULL ? json_null() : value;
        }
        return json_string(db_text(q, i));
    default: return json_null();
    }
}

json_t *db_row_json(sqlite3_stmt *q)
{
    json_t *out = json_object();
    char key[64];

    for (int i = 0; out != NULL && i < sqlite3_column_count(q); i++) {
        const char *name = sqlite3_column_name(q, i);
        const size_t size = strlen(name);
        const bool parse = size > 5 && strcmp(name + size - 5, "_json") == 0;

        (void)snprintf(key, sizeof key, "%.*s", (int)(parse ? size - 5 : size), name);
        if (json_object_set_new(out, key, column_json(q, i, parse)) != 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}
