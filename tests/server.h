/* server.h - a store with a user and a job, for tests of what works on them. */
#ifndef TESTS_SERVER_H
#define TESTS_SERVER_H

#include <stdlib.h>

#include "server/auth.h"
#include "server/jobs.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static inline int add_user_ann(struct tx *tx, void *id, struct err *err)
{
    return user_add(tx, "ann", ROLE_MEMBER, id, err);
}

/* Row of a job in `starting` of attempt 1; `argument` is its id. */
static inline int add_job_row(struct tx *tx, void *argument, struct err *err)
{
    return db_run(
        tx->db, err,
        "INSERT INTO jobs(id, user_id, name, state, request, resolved, inputs, created_at,"
        " attempt) VALUES(?, 1, 'test', 'starting', '{}', '{}', '{}', 1, 1)",
        "s", (const char *)argument);
}

/* A fresh store in scratch/NAME with the user ann (1) and the job `id`. */
static inline struct store *open_store_with_job(const char *name, const char *id)
{
    struct store *s = NULL;
    struct err err = {0};
    const char *dir = in_scratch(name);
    char copy[RANDOM_ID];
    int64_t user = 0;

    (void)snprintf(copy, sizeof copy, "%s", id);
    CHECK(io_make_dir(dir, &err) == 0 && store_open(&s, dir, &err) == 0, "%s", err.text);
    CHECK(store_write(s, add_user_ann, &user, &err) == 0, "%s", err.text);
    CHECK(store_write(s, add_job_row, copy, &err) == 0, "%s", err.text);
    return s;
}

#endif
