/* prompts.h - fixed prompts that a run answers at each evaluation, so that people see it learn.
 *
 * A request's sample_prompts is {"prompts": [..], "max_tokens": 64, "temperature": 0}. A prompt is a text, which is
 * continued, or a list of messages, which goes through the chat template. Answers use the model as it is trained, one forward
 * pass over the text for each token: no memory is planned for them.
 */
#ifndef TRAINER_PROMPTS_H
#define TRAINER_PROMPTS_H

#include "trainer/events.h"
#include "trainer/inputs.h"
#include "trainer/step.h"

struct prompts;

/* Tokens of the request's prompts; *out is NULL when it has none. Borrows `in`. Errors: BAD_SPEC (param sample_prompts: a
 * prompt that does not leave room in sequence_length), those of chat_template_open, NO_MEMORY. */
int prompts_open(struct prompts **out, const struct job_folder *job, const struct inputs *in,
                 struct err *err);
void prompts_close(struct prompts *p);

/* Answer all; an event `sample` for each. The same weights give the same texts. All ranks call it at
 * once. `stop`: leave early when it returns true. */
void prompts_answer(struct prompts *p, struct engine *e, struct events *events, int64_t step,
                    step_stop *stop, void *context);

#endif
