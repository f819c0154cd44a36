/* recipe.h - how a file becomes a token file: by what it holds and what the request says.
 *
 *   plain text     data_prepare: one long text, every token trained
 *   examples       lessons (lesson.h), each a document with its targets; what is odd is in the report (report.h), which the
 *                  token file keeps
 */
#ifndef TRAINER_DATA_RECIPE_H
#define TRAINER_DATA_RECIPE_H

#include "trainer/data/lesson.h"
#include "trainer/spec.h"

struct recipe {
    const struct tokenizer *tokenizer; /* borrowed                                           */
    const char *folder;                /* where the model's chat template is; may be NULL    */
    const char *given;                 /* chat_template of the request; NULL: the folder's   */
    enum method_of_training method;
    int64_t S;            /* places of a sample: an example has S + 1 tokens at most */
    bool all_trained;     /* train_on_prompt                                         */
    const json_t *policy; /* on_problem; NULL for the defaults                       */
};

/* The recipe of a request; everything is borrowed. `folder`: of the tokenizer. */
struct recipe recipe_make(const struct spec *s, int64_t S, const struct tokenizer *tokenizer,
                          const char *folder);

/* What a file holds. */
struct holding {
    enum format format;
    enum example_kind kind; /* EXAMPLE_TEXT for a plain text, too */
};

/* Look at the beginning: format, and the kind of the first usable example. Errors: those of data_sniff and the example
 * reader, which has read the whole file then; NO_TOKENS as of recipe_prepare. */
int recipe_look(struct holding *out, const struct data_source *s, const json_t *policy,
                struct err *err);

/* Whether the method trains on what the file holds. Errors: WRONG_FORMAT, naming both. */
int recipe_check(const struct holding *h, enum method_of_training method, const char *name,
                 struct err *err);

/* Count what is odd about a lesson; whether it is used in spite of that. *why (may be NULL) is the last oddity, or
 * REASON_COUNT. */
bool recipe_wants(struct report *report, int64_t line, const struct lesson *l, enum reason *why);

/* Make the lesson of the reader's last example, and count what it has or what forbids to use it in the reader's report. *used:
 * whether *out is one. Errors: NO_MEMORY. */
int recipe_take(struct lessons *l, struct example_reader *reader, const struct example *e,
                struct lesson *out, bool *used, struct err *err);

/* Make the token file, or find it in the cache: one for file, tokenizer, template and options. *t is the template that was used,
 * NULL when no chat was; the caller closes it, and keeps the tokenizer until then. Errors: those of recipe_look, recipe_check,
 * data_prepare and chat_template_open; NO_TOKENS when nothing of the file can be trained on. */
int recipe_prepare(struct token_file **out, struct chat_template **t, const struct data_source *s,
                   const struct recipe *r, struct err *err);

/* recipe_prepare only where it has been done before. Errors: NOT_FOUND, too. */
int recipe_find(struct token_file **out, const struct data_source *s, const struct recipe *r,
                const struct holding *h, const struct chat_template *t, struct err *err);

#endif
