/* err.h - errors that users, files and machines cause.
 *
 * A function that can fail returns 0 or an enum err_code and takes a `struct err *` as its last
 * argument. The place that detects the error writes the text, once, with the values in it; everyone
 * in between only passes the code up with TRY. The server turns it into a JSON reply, the trainer
 * into an `error` event and an exit status; both read err.def.
 */
#ifndef TRAINER_BASE_ERR_H
#define TRAINER_BASE_ERR_H

enum err_code {
    ERR_NONE,
#define ERR(code, http, exit, word, title) ERR_##code,
#include "trainer/base/err.def"
    ERR_COUNT
};

struct err {
    enum err_code code;
    char
        text[400]; /* one sentence for a person; no newline; cut when too long, on a UTF-8 border */
    char
        param[64]; /* the field of the request it is about; empty when none                       */
};

/* Write the error and yield its code: `return FAIL(err, ERR_BAD_SPEC, "tp is %d", tp);`
 * A macro, so that compilers and analysers see a constant that is not 0. */
#define FAIL(err, code, ...) (err_set((err), (code), __VA_ARGS__), (int)(code))

void err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* FAIL for a named field of a request: `return FAIL_PARAM(err, ERR_BAD_SPEC, "seed", "...");` */
#define FAIL_PARAM(err, code, field, ...) \
    (err_set((err), (code), __VA_ARGS__), err_about((err), (field)), (int)(code))

void err_about(struct err *e, const char *field); /* sets e->param */

const char *err_name(enum err_code code);  /* "BAD_SPEC"                  */
const char *err_word(enum err_code code);  /* "invalid_spec"              */
const char *err_title(enum err_code code); /* "the job spec is not valid" */
int err_http(enum err_code code);          /* 422                         */
int err_exit(enum err_code code);          /* 65                          */

/* The code whose exit status or JSON word this is; ERR_INTERNAL for one that no row has. */
enum err_code err_from_exit(int status);
enum err_code err_from_word(const char *word);

/* Return from this function with the code of a failed call. Only where nothing needs undoing. */
#define TRY(call)                   \
    do {                            \
        const int try_rc_ = (call); \
        if (try_rc_ != 0) {         \
            return try_rc_;         \
        }                           \
    } while (0)

#endif
