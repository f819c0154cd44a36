/* margins.h - what runs on cards of a name have needed beyond their plan.
 *
 * A run that was planned to fit and ran out of memory all the same teaches: the next job is placed on such a card only
 * where it has that much more. A margin only grows, by the overshoot or 2 % of the plan, whichever is more, and up to 20 %
 * of the card.
 */
#ifndef SERVER_MARGINS_H
#define SERVER_MARGINS_H

#include "server/machine.h"
#include "server/store.h"

/* What a device's margin is kept under: a card's name; one word for all CPU slots. */
const char *margins_card(const struct device *d);

/* Bytes to keep free on cards of that name; 0 where nothing was learned. */
int margins_of(sqlite3 *db, const char *card, uint64_t *bytes, struct err *err);

/* A run on such a card had `planned` bytes and ran out when it held `seen` (0: not known) of `card_bytes`. */
int margins_learn(struct tx *tx, const char *card, uint64_t planned, uint64_t seen,
                  uint64_t card_bytes, int64_t now, struct err *err);

/* All of them, {card: bytes}; a new reference. */
int margins_json(json_t **out, sqlite3 *db, struct err *err);

#endif
