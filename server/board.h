/* board.h - the last plan of the queue, for whoever asks: reasons, positions, expected starts.
 *
 * The supervisor puts up a new one after every pass; handlers add what it says to the objects that they
 * answer with. Nothing of it is stored.
 */
#ifndef SERVER_BOARD_H
#define SERVER_BOARD_H

#include "server/desk.h"

struct board;

int board_open(struct board **out, struct err *err);
void board_close(struct board *b); /* NULL is allowed */

/* Takes what it needs out of the round. The reasons are put in words here (queue_words.c). */
void board_put(struct board *b, const struct machine *m, const struct desk_round *r);

/* Add "reason", "position", "expected_start_at" to a job object (by its "id"/seq); nothing for a job that is
 * not on the board. */
void board_tell(struct board *b, int64_t seq, json_t *job);

/* GET /v1/queue; a new reference. */
json_t *board_json(struct board *b);

#endif
