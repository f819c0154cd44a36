/* table.h - rows of text in aligned columns, as `hone ls` prints them. */
#ifndef SERVER_CLI_TABLE_H
#define SERVER_CLI_TABLE_H

#include "trainer/base/err.h"

struct table;

/* `columns` names, separated by '|'; one that begins with '>' is aligned to the right. Aborts on
 * more than 16 columns. NULL when out of memory. */
struct table *table_new(const char *columns);
void table_free(struct table *t);

/* Append one cell, copied and made safe to print; rows fill from left to right. NULL is "-".
 * Running out of memory is remembered and told by table_print. */
void table_add(struct table *t, const char *cell);

/* Print header and rows to stdout; nothing at all when there is no row. Errors: NO_MEMORY. */
int table_print(const struct table *t, struct err *err);

#endif
