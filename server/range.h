/* range.h - a file or a part of it as a reply (RFC 9110, sections 13 and 14). */
#ifndef SERVER_RANGE_H
#define SERVER_RANGE_H

#include "server/route.h"

enum range_kind { RANGE_WHOLE, RANGE_PART, RANGE_BAD };

/* What a Range header asks of `size` bytes. One range only: several, another unit or nonsense are the
 * whole; a range that begins behind the end, or backwards, is BAD. */
enum range_kind range_parse(const char *header, int64_t size, int64_t *first, int64_t *count);

struct served_file {
    int fd; /* taken over */
    int64_t size;
    const char *etag;     /* without quotes */
    const char *type;     /* media type     */
    const char *filename; /* offered for saving; NULL to show it in place */
};

/* Answer with the file as Range, If-Range and If-None-Match want it. Errors: BAD_RANGE. */
int reply_file(const struct request *rq, struct reply *rp, const struct served_file *f,
               struct err *err);

#endif
