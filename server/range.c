/* range.c - Range, If-Range, If-None-Match. */
#include "server/range.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PLAIN_NAME = 200 };

/* Digits at p; `high` when the number is larger. *end is behind them. */
static int64_t read_digits(const char *p, const char **end)
{
    int64_t n = 0;

    for (; *p >= '0' && *p <= '9'; p++) {
        n = n > (INT64_MAX - 9) / 10 ? INT64_MAX / 10 : n * 10 + (*p - '0');
    }
    *end = p;
    return n;
}

enum range_kind range_parse(const char *header, int64_t size, int64_t *first, int64_t *count)
{
    const char *p = header, *end = NULL;

    *first = 0;
    *count = size;
    if (p == NULL || strncmp(p, "bytes=", 6) != 0 || strchr(p, ',') != NULL) {
        return RANGE_WHOLE;
    }
    p += 6;
    const int64_t from = read_digits(p, &end);
    const bool has_from = end > p;
    if (*end != '-') {
        return RANGE_WHOLE;
    }
    p = end + 1;
    const int64_t to = read_digits(p, &end);
    const bool has_to = end > p;
    if (*end != '\0' || (!has_from && !has_to)) {
        return RANGE_WHOLE;
    }
    if (!has_from) { /* the last `to` bytes */
        *first = to < size ? size - to : 0;
        *count = size - *first;
        return *count > 0 ? RANGE_PART : RANGE_BAD;
    }
    if (from >= size || (has_to && to < from)) {
        return RANGE_BAD;
    }
    *first = from;
    *count = (has_to && to < size ? to + 1 : size) - from;
    return RANGE_PART;
}

/* Whether a list of quoted etags, or "*", names ours. */
static bool etag_is_listed(const char *list, const char *etag)
{
    const size_t size = strlen(etag);

    if (strcmp(list, "*") == 0) {
        return true;
    }
    for (const char *p = strchr(list, '"'); p != NULL; p = strchr(p, '"')) {
        const size_t n = strcspn(p + 1, "\"");
        if (n == size && strncmp(p + 1, etag, size) == 0) {
            return true;
        }
        p += n + 1;
        p += *p == '"';
    }
    return false;
}

/* A name for the quoted form: what a header or a file system would mind becomes "_". */
static void plain_name(char out[PLAIN_NAME], const char *name)
{
    size_t i = 0;

    for (; name[i] != '\0' && i + 1 < PLAIN_NAME; i++) {
        const unsigned char c = (unsigned char)name[i];
        out[i] = name[i];
        if (c < 0x20 || c > 0x7e || strchr("\"\\/;%", c) != NULL) {
            out[i] = '_';
        }
    }
    out[i] = '\0';
}

int reply_file(const struct request *rq, struct reply *rp, const struct served_file *f,
               struct err *err)
{
    const char *range = request_header(rq, "Range");
    const char *if_range = request_header(rq, "If-Range");
    const char *if_none = request_header(rq, "If-None-Match");
    char quoted[160], name[PLAIN_NAME];
    int64_t first = 0, count = 0;

    (void)snprintf(quoted, sizeof quoted, "\"%s\"", f->etag);
    reply_add(rp, "ETag", "%s", quoted);
    reply_add(rp, "Accept-Ranges", "bytes");
    reply_add(rp, "Cache-Control", "private, no-cache");
    if (if_none != NULL && etag_is_listed(if_none, f->etag)) {
        (void)close(f->fd);
        rp->status = 304;
        return 0;
    }
    if (if_range != NULL && strcmp(if_range, quoted) != 0) {
        range = NULL; /* another version: the whole file again */
    }
    const enum range_kind kind = range_parse(range, f->size, &first, &count);
    if (kind == RANGE_BAD) {
        (void)close(f->fd);
        rp->header_count = 0;
        reply_add(rp, "Content-Range", "bytes */%lld", (long long)f->size);
        return FAIL(err, ERR_BAD_RANGE, "the file has %lld bytes; the range lies outside",
                    (long long)f->size);
    }
    rp->fd = f->fd;
    rp->file_offset = first;
    rp->file_size = count;
    reply_add(rp, "Content-Type", "%s", f->type);
    if (f->filename != NULL) {
        plain_name(name, f->filename);
        reply_add(rp, "Content-Disposition", "attachment; filename=\"%s\"", name);
    }
    if (kind == RANGE_PART) {
        rp->status = 206;
        reply_add(rp, "Content-Range", "bytes %lld-%lld/%lld", (long long)first,
                  (long long)(first + count - 1), (long long)f->size);
    }
    return 0;
}
