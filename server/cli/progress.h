/* progress.h - one line at the bottom of a terminal that shows how far something is. */
#ifndef SERVER_CLI_PROGRESS_H
#define SERVER_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress {
    FILE *out;
    bool is_terminal; /* otherwise nothing is ever drawn */
    bool is_drawn;
    int64_t drawn_ms; /* when */
};

struct progress progress_make(FILE *out);

/* Draw "left [####----]  42%  right", cut to the terminal's width; without a bar when `fraction` is negative or not
 * finite. At most ten times a second unless `now`. The texts must be safe to print. */
void progress_draw(struct progress *p, double fraction, const char *left, const char *right,
                   bool now);

/* Take the line away, so that other text can be printed. */
void progress_clear(struct progress *p);

/* Compose the line for `columns` columns; for progress_draw and tests. */
void progress_compose(char out[1024], int columns, double fraction, const char *left,
                      const char *right);

/* Milliseconds of a clock that never goes back. */
int64_t progress_now_ms(void);

#endif
