/* client.h - a connection: lines in, lines out, both bounded. */
#ifndef TRAINER_SERVE_CLIENT_H
#define TRAINER_SERVE_CLIENT_H

#include "trainer/serve/prompt.h"
#include "trainer/serve/texts.h"

enum {
    CLIENT_UNREAD = 256 << 10
}; /* bytes that wait to be read before a client's texts wait too */

struct client {
    struct listener listener;  /* first: the client is found by it */
    struct prompter *prompter; /* borrowed */
    int fd;
    char *in, *out; /* owned: what came, what has to go */
    size_t in_bytes, in_room, out_bytes, out_sent, out_room;
    double moved; /* when bytes last went out, in seconds */
    bool ended;   /* says no more                    */
    bool gone;    /* closed, or nothing can be said to it any more */
};

/* Takes fd over, non-blocking. Errors: NO_MEMORY. */
int client_open(struct client **out, int fd, struct prompter *p, struct err *err);
void client_close(struct client *c);

/* Read what is there; sets ended and gone. */
void client_read(struct client *c);

/* The next whole line of what was read, without its end, for free(); NULL when there is none.
 * *too_long: there will be none, the line is longer than REQUEST_LINE. */
char *client_line(struct client *c, size_t *bytes, bool *too_long);

/* Queue a line for it, which is freed; NULL, for want of memory, ends the client. */
void client_say(struct client *c, char *line);

/* Write what can be written. */
void client_write(struct client *c);

bool client_waits(const struct client *c); /* it has to read before more is made */

#endif
