/* dependencies.h - which jobs a job waits for: the text of depends_on, its rows, and when they are met.
 *
 *    afterok:JOB, JOB   until it has succeeded        after:JOB        until it has ended
 *    afternotok:JOB     until it has failed
 *
 * A job may only name jobs that are there already, so that no circle can be made.
 */
#ifndef SERVER_DEPENDENCIES_H
#define SERVER_DEPENDENCIES_H

#include "server/jobs.h"

enum { DEPENDENCIES_MAX = 50 };
enum dependency_kind { DEPENDENCY_OK, DEPENDENCY_ENDED, DEPENDENCY_NOT_OK, DEPENDENCY_KIND_COUNT };

struct dependency {
    char job[RANDOM_ID];
    enum dependency_kind kind;
};

struct dependencies {
    int count;
    struct dependency at[DEPENDENCIES_MAX];
};

/* Read "afterok:JOB,JOB"; "" has none. Blanks beside commas are skipped. Errors: BAD_SPEC (param depends_on) for
 * what is no id of a job, a job named twice and too many. */
int dependencies_parse(struct dependencies *out, const char *text, struct err *err);

const char *dependency_word(enum dependency_kind k); /* "afterok", as in the table of rows */

/* What the state of the other job means for the one that depends on it. */
enum dependency_verdict { DEPENDENCY_WAITS, DEPENDENCY_MET, DEPENDENCY_LOST };
enum dependency_verdict dependency_judge(enum dependency_kind k, enum job_state other);

/* Enter the rows of a new job, whose owner is `who`. Errors: BAD_SPEC (param depends_on) for a job that `who`
 * may not see or that has ended so that the new one could never start. */
int dependencies_add(struct tx *tx, const struct identity *who, const struct dependencies *d,
                     int64_t job_seq, struct err *err);

#endif
