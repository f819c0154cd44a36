/* caretaker.h - what is done beside requests: the file of the audit log follows its rows, sessions that have
 * run out and old events go.
 *
 * One thread: it writes the file when it is kicked, and looks after the rest once a day and at the start.
 */
#ifndef SERVER_CARETAKER_H
#define SERVER_CARETAKER_H

#include "server/audit.h"
#include "server/settings.h"

struct caretaker;

/* `store` and `s` are borrowed. Errors: IO, NO_MEMORY, of the store. */
int caretaker_open(struct caretaker **out, struct store *store, const struct settings *s,
                   struct err *err);

/* Write what is left to write, then end. NULL is allowed. */
void caretaker_close(struct caretaker *c);

/* An entry of the audit log. `wait`: until it is on the disk; else it is done some time soon. What can't be
 * written is logged: the change it tells of is made already. */
void caretaker_note(struct caretaker *c, const struct audit_entry *e, bool wait);

#endif
