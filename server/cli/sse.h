/* sse.h - a reader of server-sent events: bytes in, events out, as the HTML standard defines them.
 *
 * Lines end with CR, LF or CRLF, anywhere in the pieces that arrive; a comment is a sign of life and no
 * event; an event without data is dropped; an id with a NUL in it is ignored.
 */
#ifndef SERVER_CLI_SSE_H
#define SERVER_CLI_SSE_H

#include <stdbool.h>
#include <stddef.h>

struct sse;

/* Called for each event with its type ("message" when the stream names none), its data (lines joined by
 * newlines) and its own id ("" when it has none). Return false to stop reading. */
typedef bool (*sse_event)(void *self, const char *type, const char *text, const char *id);

/* NULL when out of memory. */
struct sse *sse_new(sse_event on_event, void *self);
void sse_free(struct sse *s);

/* Take the next bytes; false when the callback stopped, or a line or event is longer than 16 MiB, or memory
 * ran out: then feed no more. */
bool sse_feed(struct sse *s, const char *bytes, size_t count);

/* The connection is gone: drop the unfinished event, keep the last id. */
void sse_restart(struct sse *s);

/* The id to go on after, "" when there is none: the last one, as the standard says, of any event. */
const char *sse_last_id(const struct sse *s);
void sse_forget_id(struct sse *s);

#endif
