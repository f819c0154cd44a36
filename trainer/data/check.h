/* check.h - a whole file read once for its report, before anything runs. */
#ifndef TRAINER_DATA_CHECK_H
#define TRAINER_DATA_CHECK_H

#include "trainer/data/example.h"

/* Read the file to its end; *report is a new report, also where the file can't be used, or NULL where it could not be read as
 * examples or text at all. Texts are checked for UTF-8. Errors: those of example_reader_open and example_reader_next. */
int data_check(struct report **report, const struct example_options *o, struct err *err);

#endif
