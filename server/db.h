/* db.h - short forms of SQLite calls that fail with `struct err`.
 *
 * Values are bound by a string of types, one letter each, followed by the values:
 *    i  int64_t      r  double (not finite: NULL)      s  const char * (NULL: NULL)
 *    b  const void *, size_t
 * A statement from db_query is finished with sqlite3_finalize by the caller; db_next leaves it alone.
 * A connection belongs to one thread at a time.
 */
#ifndef SERVER_DB_H
#define SERVER_DB_H

#include <jansson.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"

/* Fill err from the connection's last error. DISK_FULL, BUSY, NO_MEMORY, IO. */
int db_fail(sqlite3 *db, const char *sql, struct err *err);

/* Run one statement to its end; rows are ignored. */
int db_run(sqlite3 *db, struct err *err, const char *sql, const char *types, ...);

/* Run statements without values, separated by semicolons. */
int db_script(sqlite3 *db, const char *sql, struct err *err);

/* Prepare and bind. On failure *out is NULL. */
int db_query(sqlite3_stmt **out, sqlite3 *db, struct err *err, const char *sql, const char *types,
             ...);

/* Bind anew a statement that is kept for many rows. */
int db_bind(sqlite3_stmt *q, struct err *err, const char *types, ...);

/* The next row; *row is false after the last. */
int db_next(sqlite3_stmt *q, bool *row, struct err *err);

/* The integer of the first column of the first row; `missing` when there is no row or it is NULL. */
int db_integer(int64_t *out, int64_t missing, sqlite3 *db, struct err *err, const char *sql,
               const char *types, ...);

/* Column text; "" for NULL. Valid until the next db_next. */
const char *db_text(sqlite3_stmt *q, int column);

/* The present row as an object, keys from the column names; a new reference, NULL without memory.
 * NULL becomes null. A column whose name ends in "_json" is parsed and loses that ending. */
json_t *db_row_json(sqlite3_stmt *q);

#endif
