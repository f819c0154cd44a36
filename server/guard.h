/* guard.h - slows down those who guess credentials.
 *
 * Right ones always pass (they have 256 bits: nobody guesses them); wrong ones of an address are counted,
 * five a minute are answered, each further one doubles the wait. The table has a fixed size: addresses
 * that share a place share its count.
 */
#ifndef SERVER_GUARD_H
#define SERVER_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"

struct login_guard;

int guard_open(struct login_guard **out, struct err *err);
void guard_close(struct login_guard *g);

/* Note a wrong credential of `peer` at `now` (seconds that only grow). Seconds until the next one is
 * answered; 0 when this one may be. */
int64_t guard_note(struct login_guard *g, const char *peer, int64_t now);

/* True at most once a minute for an address: what comes in masses is told of once. */
bool guard_is_news(struct login_guard *g, const char *peer, int64_t now);

#endif
