/* lesson.h - one example as tokens: what is read, and what of it is learned.
 *
 * The one way from examples to tokens: token files for training are written with it, and previews show it.
 *
 *   text         [BOS] text EOS                 all trained
 *   completion   [BOS] prompt completion EOS    completion and EOS trained
 *   chat         [BOS] what the template makes of the messages     what the assistant says, its end of turn included
 *
 * BOS stands in front, once, where the tokenizer itself puts it in front of a text or the template spells it. What the file's texts
 * spell of special tokens is ordinary text. A token is trained when its last byte is. What of a chat or a completion
 * does not fit is cut off at the end; a text has any length, rows take it in pieces (pack.h).
 */
#ifndef TRAINER_DATA_LESSON_H
#define TRAINER_DATA_LESSON_H

#include "trainer/chat/chat.h"
#include "trainer/data/example.h"

struct lesson_options {
    const struct tokenizer *tokenizer;     /* borrowed until close                  */
    const struct chat_template *templated; /* likewise; NULL: there will be no chat */
    int64_t longest;                       /* tokens of a lesson, at least 2        */
    bool all_trained;                      /* prompts and turns of others as well   */
};

struct lesson {
    const int32_t *ids;
    const bool *trained; /* [count]; the first is no target, whatever it says */
    int64_t count;       /* at most `longest`, but for a text */
    int64_t whole;       /* before the end was cut off */
    int64_t targets;     /* trained ones but the first */
    int64_t spelled;     /* special tokens that texts spell */
};

struct lessons;

/* Errors: NO_MEMORY, and those of encoder_encode for a tokenizer that can't. */
int lessons_open(struct lessons **out, const struct lesson_options *o, struct err *err);

/* The lesson of an example that is no preference; valid until the next call. Errors: BAD_REQUEST (the template refuses the
 * messages), BAD_FILE (it or the tokenizer fails on them), NO_MEMORY. */
int lessons_make(struct lessons *l, const struct example *e, struct lesson *out, struct err *err);
void lessons_close(struct lessons *l); /* NULL is allowed */

#endif
