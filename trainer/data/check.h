/* check.h - a whole file read once for its report, before anything runs. */
#ifndef TRAINER_DATA_CHECK_H
#define TRAINER_DATA_CHECK_H

#include "trainer/data/lesson.h"

/* Read the file to its end; *report is a new report, also where the file can't be used, or NULL where it could not be read as
 * examples or text at all. Texts are checked for UTF-8. With a tokenizer (`tokens`; NULL for none) what training would make of the file
 * is counted, too: tokens, trained ones, what is too long or refused by the template; not of preferences, and not the EOS behind a
 * text. Errors: those of example_reader_open, example_reader_next and lessons_open. */
int data_check(struct report **report, const struct example_options *o,
               const struct lesson_options *tokens, struct err *err);

#endif
