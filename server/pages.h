/* pages.h - the web page's files, read once at start into a table.
 *
 * A request is answered by an exact match of its path; no folder is looked at while serving.
 */
#ifndef SERVER_PAGES_H
#define SERVER_PAGES_H

#include "server/route.h"

enum { PAGES_MAX = 512, PAGE_BYTES_MAX = 64 << 20 };

struct pages;

/* Read the files below `dir`, hidden ones left out; a folder that is not there gives an empty table.
 * Errors: IO, TOO_LARGE. */
int pages_open(struct pages **out, const char *dir, struct err *err);
void pages_close(struct pages *p);

/* The route of a request for a page; NULL when no page has this path. */
const struct route *pages_route(const struct pages *p, const struct gate_request *in);

#endif
