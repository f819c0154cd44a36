/* audit_request.h - which requests are written into the audit log, and as what.
 *
 * Every request that changed something, whatever its handler: all methods but GET and HEAD, except for the few
 * addresses that answer without changing anything. Of refused ones: what somebody who is known may not do, and
 * failures to sign in, once a minute for an address.
 */
#ifndef SERVER_AUDIT_REQUEST_H
#define SERVER_AUDIT_REQUEST_H

#include "server/route.h"

/* After the handler, or instead of it when the request was refused before: rc is 0 or the error's code. `wait`:
 * the thread may wait for the disk. */
void audit_request(const struct request *rq, const struct reply *rp, int rc, bool wait);

#endif
