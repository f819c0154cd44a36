/* messages.h - lists of messages in any of the ways people write them, as one: role and content.
 *
 *     {"role": "user", "content": "..."}     {"from": "human", "value": "..."}     contents as lists of text parts
 */
#ifndef TRAINER_DATA_MESSAGES_H
#define TRAINER_DATA_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>

#include "trainer/data/report.h"

/* Why something can't be converted; REASON_COUNT with no memory. */
struct complaint {
    enum reason reason;
    char where[120]; /* "messages[2].role" */
};

/* Turns of a conversation. */
struct turns {
    int assistant; /* in all                                       */
    int learned;   /* of them, not empty and not of weight 0       */
    int empty;     /* of any role, with neither text nor a call    */
    int user;
    bool assistant_first; /* before any user turn                      */
    bool repeated;        /* two in a row of one role but tool         */
    bool placeholder;     /* a text holds {{word}}                     */
    char last;            /* first letter of the last role             */
};

/* Note a complaint and yield false. */
bool complain(struct complaint *c, enum reason reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether a text holds {{word}}, as an unfilled template has it. The text ends with a NUL; NULL is none. */
bool holds_placeholder(const char *text);

/* Append the messages of `list` (an array) to `out`, normalised as example.h says. `column` is for complaints. Turns are added up.
 * With `masked`, assistant turns get weight 0. */
bool messages_add(json_t *out, const json_t *list, const char *column, bool masked,
                  struct turns *turns, struct complaint *c);

/* Append one message with a role and a text. */
bool messages_add_text(json_t *out, const char *role, const json_t *text, struct turns *turns,
                       struct complaint *c);

/* The tools of a row: a list of them, or JSON of one in a string, with or without the wrapping {"type": "function"}. *out is a new
 * reference, or NULL where there are none. */
bool tools_convert(json_t **out, const json_t *tools, const char *column, struct complaint *c);

#endif
