/* self_test.h - measures how fast devices reach each other, within a time limit.
 *
 * CPU slots: threads on the cores of one copy what threads on the cores of the other have written; the median of three. Cards are
 * measured by the CUDA back end, where there is one.
 *
 * Results are kept in a file beside the identity of the machine that they are of, so that they are measured once.
 */
#ifndef SERVER_SELF_TEST_H
#define SERVER_SELF_TEST_H

#include <jansson.h>

#include "server/machine.h"

struct self_test {
    int64_t ran_at;                                    /* seconds since 1970; 0: never  */
    double seconds;                                    /* that it took                  */
    bool timed_out;                                    /* some pairs were not measured  */
    double gb_per_s[MACHINE_DEVICES][MACHINE_DEVICES]; /* copied; 0: not measured       */
};

/* Measure all pairs of CPU slots, at most for `limit_s` seconds and the last pair. Errors: NO_MEMORY, IO (no thread). */
int self_test_run(struct self_test *out, const struct machine *m, double limit_s, struct err *err);

/* Keep results, and find them again: false when the file has none of this very machine. Errors of writing: IO, DISK_FULL, NO_MEMORY. */
int self_test_write(const struct self_test *t, const struct machine *m, const char *path,
                    struct err *err);
bool self_test_read(struct self_test *out, const struct machine *m, const char *path);

/* {ran_at, seconds, timed_out, note}; NULL: no memory. */
json_t *self_test_json(const struct self_test *t, const struct machine *m);

#endif
