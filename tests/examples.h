/* examples.h - files of examples written by a test, and what is read from them. */
#ifndef TESTS_EXAMPLES_H
#define TESTS_EXAMPLES_H

#include <string.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/data/check.h"

/* The report of a file; {} where there is none. A new reference. */
static inline json_t *report_of_file(const char *path, const char *policy, struct err *err)
{
    json_t *const rules = policy != NULL ? json_loads(policy, 0, NULL) : NULL;
    const struct example_options o = {
        .path = path, .name = "train", .blame = ERR_BAD_TRAINING_FILE, .policy = rules};
    struct report *report = NULL;

    *err = (struct err){0};
    const int rc = data_check(&report, &o, NULL, err);
    CHECK(rc == (int)err->code, "%d is not %d", rc, (int)err->code);
    json_t *json = report != NULL ? report_json(report) : json_object();
    CHECK(json != NULL, "no report");
    report_free(report);
    json_decref(rules);
    return json;
}

static inline json_t *report_of(const void *bytes, size_t n, const char *policy, struct err *err)
{
    put_file(in_scratch("file"), bytes, n);
    return report_of_file(in_scratch("file"), policy, err);
}

static inline json_t *report_of_text(const char *text, struct err *err)
{
    return report_of(text, strlen(text), NULL, err);
}

/* A reason of a report, or NULL. */
static inline const json_t *reason_of(const json_t *report, const char *name)
{
    json_t *reason;
    size_t i;

    json_array_foreach(json_object_get(report, "reasons"), i, reason)
    {
        if (strcmp(json_string_value(json_object_get(reason, "reason")), name) == 0) {
            return reason;
        }
    }
    return NULL;
}

static inline long long number_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static inline const char *word_of(const json_t *object, const char *key)
{
    const char *word = json_string_value(json_object_get(object, key));

    return word != NULL ? word : "";
}

/* The only fault of a report is that one, so often. */
static inline bool has_only(const json_t *report, const char *name, long long count)
{
    const json_t *reason = reason_of(report, name);

    return json_array_size(json_object_get(report, "reasons")) == 1 && reason != NULL &&
           number_of(reason, "count") == count;
}

/* Print what was got instead, as a TAP comment. */
static inline void show_report(const char *what, const json_t *report, const struct err *err)
{
    char *text = json_dumps(report, 0);

    printf("# %s: %s %s\n", what, err->text, text);
    free(text);
}

#endif
