/* dependencies.c - which jobs a job waits for. */
#include "server/dependencies.h"

#include <stdio.h>
#include <string.h>

enum { ID_PREFIX = 4, ID_LETTERS = 14 }; /* as random_id makes them */

const char *dependency_word(enum dependency_kind k)
{
    switch (k) {
    case DEPENDENCY_OK: return "afterok";
    case DEPENDENCY_ENDED: return "after";
    case DEPENDENCY_NOT_OK: return "afternotok";
    case DEPENDENCY_KIND_COUNT: break;
    }
    return "";
}

/* Whether the first `size` bytes of the text are the word. */
static bool is_word(enum dependency_kind k, const char *text, size_t size)
{
    const char *word = dependency_word(k);

    return strlen(word) == size && memcmp(word, text, size) == 0;
}

/* "job-" and 14 of a-z 2-7. */
static bool is_job_id(const char *text, size_t size)
{
    return size == ID_PREFIX + ID_LETTERS && memcmp(text, "job-", ID_PREFIX) == 0 &&
           strspn(text + ID_PREFIX, "abcdefghijklmnopqrstuvwxyz234567") >= ID_LETTERS;
}

/* One entry without blanks around it; false when it is none. */
static bool read_entry(struct dependency *out, const char *text, size_t size)
{
    const char *colon = memchr(text, ':', size);
    int k = DEPENDENCY_OK;

    if (colon != NULL) {
        const size_t word = (size_t)(colon - text);
        while (k < DEPENDENCY_KIND_COUNT && !is_word((enum dependency_kind)k, text, word)) {
            k++;
        }
        text = colon + 1;
        size -= word + 1;
    }
    if (k == DEPENDENCY_KIND_COUNT || !is_job_id(text, size)) {
        return false;
    }
    out->kind = (enum dependency_kind)k;
    memcpy(out->job, text, size);
    out->job[size] = '\0';
    return true;
}

static int take_entry(struct dependencies *out, const char *text, size_t size, struct err *err)
{
    if (out->count == DEPENDENCIES_MAX) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "depends_on",
                          "depends_on names more than %d jobs, the most allowed", DEPENDENCIES_MAX);
    }
    struct dependency *d = &out->at[out->count];
    if (!read_entry(d, text, size)) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "depends_on",
                          "depends_on: entry %d is not JOB, afterok:JOB, after:JOB or "
                          "afternotok:JOB, with the id of a job",
                          out->count + 1);
    }
    for (int i = 0; i < out->count; i++) {
        if (strcmp(out->at[i].job, d->job) == 0) {
            return FAIL_PARAM(err, ERR_BAD_SPEC, "depends_on", "depends_on names %s twice", d->job);
        }
    }
    out->count++;
    return 0;
}

int dependencies_parse(struct dependencies *out, const char *text, struct err *err)
{
    static const char blanks[] = " \t";

    out->count = 0;
    if (text[strspn(text, blanks)] == '\0') {
        return 0;
    }
    for (const char *at = text;; at++) {
        at += strspn(at, blanks);
        const char *const begin = at;
        at += strcspn(at, ",");
        size_t size = (size_t)(at - begin);
        while (size > 0 && strchr(blanks, begin[size - 1]) != NULL) {
            size--;
        }
        TRY(take_entry(out, begin, size, err));
        if (*at == '\0') {
            return 0;
        }
    }
}

enum dependency_verdict dependency_judge(enum dependency_kind k, enum job_state other)
{
    if (!job_state_is_final(other)) {
        return DEPENDENCY_WAITS;
    }
    switch (k) {
    case DEPENDENCY_OK: return other == JOB_SUCCEEDED ? DEPENDENCY_MET : DEPENDENCY_LOST;
    case DEPENDENCY_NOT_OK: return other == JOB_FAILED ? DEPENDENCY_MET : DEPENDENCY_LOST;
    case DEPENDENCY_ENDED:
    case DEPENDENCY_KIND_COUNT: break;
    }
    return DEPENDENCY_MET;
}

static int add_one(struct tx *tx, const struct identity *who, const struct dependency *d,
                   int64_t job_seq, struct err *err)
{
    struct job_ref other = {0};
    const int rc = job_find(tx->db, d->job, who, DEED_SEE_JOB, &other, err);

    if (rc == ERR_NOT_FOUND) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "depends_on", "depends_on: there is no job %s",
                          d->job);
    }
    TRY(rc);
    if (dependency_judge(d->kind, other.state) == DEPENDENCY_LOST) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "depends_on",
                          "depends_on: %s is %s, so that a job that waits until it has %s could "
                          "never start",
                          d->job, job_state_word(other.state),
                          d->kind == DEPENDENCY_OK ? "succeeded" : "failed");
    }
    return db_run(tx->db, err, "INSERT INTO dependencies(job_seq, parent_seq, kind) VALUES(?,?,?)",
                  "iis", job_seq, other.seq, dependency_word(d->kind));
}

int dependencies_add(struct tx *tx, const struct identity *who, const struct dependencies *d,
                     int64_t job_seq, struct err *err)
{
    for (int i = 0; i < d->count; i++) {
        TRY(add_one(tx, who, &d->at[i], job_seq, err));
    }
    return 0;
}
