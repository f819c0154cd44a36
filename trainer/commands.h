/* commands.h - the subcommands of hone-train; each takes the arguments from its own name on and returns the
 * exit status (err.def; 64 for a wrong command line). */
#ifndef TRAINER_COMMANDS_H
#define TRAINER_COMMANDS_H

#include "trainer/base/err.h"

int command_run(int argc, char **argv);      /* a job folder, to its end          */
int command_plan(int argc, char **argv);     /* what a request needs              */
int command_check(int argc, char **argv);    /* the report of a training file     */
int command_preview(int argc, char **argv);  /* what of a request's file is trained */
int command_generate(int argc, char **argv); /* text from a model folder          */
int command_serve(int argc, char **argv);    /* a model behind a socket      */
int command_export(int argc, char **argv);   /* merged or converted models        */
int command_bench(int argc, char **argv);    /* tokens per second and their ratio */

/* "hone-train: the sentence" to stderr; the exit status of the error. */
int command_failed(const struct err *err);

/* A whole number or a real of an option. Errors: BAD_REQUEST naming the option. */
int command_integer(const char *option, const char *text, long long low, long long high,
                    long long *out, struct err *err);
int command_number(const char *option, const char *text, double low, double high, double *out,
                   struct err *err);

/* Threads to use when none were asked for: the cores that this process may run on. */
int command_threads(void);

#endif
