/* table.c - rows of text in aligned columns, as `hone ls` prints them. */
#include "server/cli/table.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/show.h"

enum { MOST_COLUMNS = 16, LONGEST_CELL = 512, GAP = 2 };

struct table {
    int columns;
    bool right[MOST_COLUMNS];
    int width[MOST_COLUMNS];
    size_t cells, room;
    char **cell; /* owned, each text owned; the header's cells come first */
    bool out_of_memory;
};

static void append(struct table *t, const char *text, size_t bytes)
{
    char safe[LONGEST_CELL];

    if (t->cells == t->room) {
        const size_t room = t->room > 0 ? t->room * 2 : 64;
        char **const grown = realloc(t->cell, room * sizeof *grown);
        if (grown == NULL) {
            t->out_of_memory = true;
            return;
        }
        t->cell = grown;
        t->room = room;
    }
    (void)show_safe(safe, sizeof safe, text, bytes);
    char *const copy = strdup(safe);
    if (copy == NULL) {
        t->out_of_memory = true;
        return;
    }
    const size_t column = t->cells % (size_t)t->columns;
    const int width = show_width(copy);
    if (width > t->width[column]) {
        t->width[column] = width;
    }
    t->cell[t->cells++] = copy;
}

struct table *table_new(const char *columns)
{
    struct table *const t = calloc(1, sizeof *t);

    if (t == NULL) {
        return NULL;
    }
    t->columns = 1;
    for (const char *c = columns; *c != '\0'; c++) {
        t->columns += *c == '|';
    }
    if (t->columns > MOST_COLUMNS) {
        abort();
    }
    const char *at = columns;
    for (int i = 0; i < t->columns; i++) {
        t->right[i] = *at == '>';
        at += t->right[i];
        const size_t length = strcspn(at, "|");
        append(t, at, length);
        at += length + (at[length] == '|');
    }
    return t;
}

void table_free(struct table *t)
{
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; i < t->cells; i++) {
        free(t->cell[i]);
    }
    free(t->cell);
    free(t);
}

void table_add(struct table *t, const char *cell)
{
    const char *const text = cell != NULL && *cell != '\0' ? cell : "-";

    append(t, text, strlen(text));
}

int table_print(const struct table *t, struct err *err)
{
    if (t->out_of_memory) {
        return FAIL(err, ERR_NO_MEMORY, "there is no memory left for the list");
    }
    if (t->cells <= (size_t)t->columns) {
        return 0;
    }
    for (size_t i = 0; i < t->cells; i++) {
        const size_t column = i % (size_t)t->columns;
        const bool last = column + 1 == (size_t)t->columns;
        const int space = t->width[column] - show_width(t->cell[i]);

        printf("%*s%s", t->right[column] ? space : 0, "", t->cell[i]);
        if (last) {
            (void)putchar('\n');
        } else {
            printf("%*s", (t->right[column] ? 0 : space) + GAP, "");
        }
    }
    return 0;
}
