/* jinja.h - the Jinja of chat templates: parse once, render many times, within limits.
 *
 * Why an interpreter of our own: Debian has no C engine for Jinja that is kept up, and the trainer needs what no
 * engine gives, the origin of every byte it writes: which message a piece of text is from, and in which turn of
 * the loop over messages it was written. So strings here carry runs, and every operation keeps them.
 *
 * The language is Jinja2's as transformers sets it up (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks,
 * loopcontrols, {% generation %}, its tojson). Not known, and refused when a template is parsed: extends, include,
 * import, block, recursive loops, autoescape and filters, tests and methods that no table below names. Integers
 * have 64 bits.
 *
 * A template is hostile input: nesting is bounded while parsing; steps, memory, output and depth while rendering.
 */
#ifndef TRAINER_CHAT_JINJA_H
#define TRAINER_CHAT_JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"

/* Where bytes come from: a message (0, 1, ...), or one of these. */
enum { JINJA_FROM_TEMPLATE = -1, JINJA_FROM_TOOLS = -2 };
enum { JINJA_NO_TURN = -1 };
enum { JINJA_TEMPLATE_MAX = 1 << 20 }; /* bytes of a template */

struct jinja_tag {
    int32_t from;    /* whose string this is                                               */
    int32_t turn;    /* the message whose turn of a loop over messages wrote it, or NO_TURN */
    bool generation; /* written within {% generation %}                                     */
};

/* The bytes from the end of the run before up to `end`. */
struct jinja_run {
    size_t end;
    struct jinja_tag tag;
};

struct jinja_output {
    char *text; /* owned, NUL-terminated */
    size_t bytes;
    struct jinja_run *runs; /* owned; they cover the text */
    size_t run_count;
};

void jinja_output_fini(struct jinja_output *o); /* leaves {0} */

/* What the strings of a variable are: the template's own (special tokens), or data. In JINJA_MESSAGES every
 * element is a message and its strings, the role left out, are that message's. */
enum jinja_kind_of_data { JINJA_OWN, JINJA_MESSAGES, JINJA_TOOLS };

struct jinja_variable {
    const char *name;
    const json_t *value; /* borrowed */
    enum jinja_kind_of_data data;
};

struct jinja_limits {
    int64_t steps; /* expressions and statements evaluated, bytes and elements copied counted in */
    size_t memory, output;
};

struct jinja_template;

/* Nothing is borrowed. Errors: BAD_FILE ("line 3: ..."), NO_MEMORY. */
int jinja_parse(struct jinja_template **out, const char *text, size_t bytes, struct err *err);
void jinja_free(struct jinja_template *t);
/* Does it mark what is trained by {% generation %} itself? */
bool jinja_has_generation(const struct jinja_template *t);

/* Errors: BAD_REQUEST (the template called raise_exception: its words), BAD_FILE ("line 3: ..." for what cannot be
 * evaluated and for limits), NO_MEMORY. Data of messages never stands in an error. */
int jinja_render(const struct jinja_template *t, const struct jinja_variable *variables, int count,
                 const struct jinja_limits *limits, struct jinja_output *out, struct err *err);

#endif
