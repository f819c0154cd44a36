/* board.h - the last plan of the queue, for whoever asks: reasons, positions, expected starts.
 *
 * The supervisor puts up a new one after every pass; handlers add what it says to the objects that they
 * answer with. Nothing of it is stored.
 */
#ifndef SERVER_BOARD_H
#define SERVER_BOARD_H

#include "server/desk.h"

struct board;

int board_open(struct board **out, const struct machine *m, struct err *err);
void board_close(struct board *b); /* NULL is allowed */

/* Take over what a pass found. Any thread, like all below. */
void board_put(struct board *b, const struct desk_round *r);

/* Add "reason", "position" and "expected_start_at" to the object of a waiting job, "expected_end_at" to that
 * of a run; nothing for a job that is not on the board. "placement" says which devices a run has and how they are joined. */
void board_tell(struct board *b, int64_t seq, json_t *job);

/* The same for a list of job objects, by their "id". */
void board_tell_all(struct board *b, struct store *store, json_t *jobs);

/* The waiting jobs in their order, at most `limit`; *seqs is for free(), *total is how many there are. */
int board_order(struct board *b, int limit, int64_t **seqs, int *count, int *total,
                struct err *err);

/* Which job devices are kept for, until when; false when there is none. */
bool board_head(struct board *b, int64_t *seq, int64_t *at, uint64_t *devices);

#endif
