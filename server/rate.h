/* rate.h - how many requests a token or a session may make: a bucket each, filled steadily.
 *
 * The table has a fixed size. Who has not asked for longest loses the bucket first, and a new one is full: that
 * is at most a burst given away.
 */
#ifndef SERVER_RATE_H
#define SERVER_RATE_H

#include "server/auth.h"

struct rate;

/* `per_s` requests a second for long, twice as many for a moment. Errors: NO_MEMORY. */
int rate_open(struct rate **out, int64_t per_s, struct err *err);
void rate_close(struct rate *r); /* NULL is allowed */

/* Take one out of the bucket of who asks, at now_ms (milliseconds that only grow). 0 when there was one; else
 * the milliseconds until there is, and nothing was taken. */
int64_t rate_take(struct rate *r, const struct identity *who, int64_t now_ms);

#endif
