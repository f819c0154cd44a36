/* fuzz_example.c - any bytes as a file of examples: read or refused with a sentence, in bounded time and memory, and always the
 * same way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"
#include "trainer/data/check.h"
#include "trainer/tokenizer/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check_messages(const json_t *messages)
{
    json_t *m;
    size_t i;

    json_array_foreach(messages, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        const json_t *weight = json_object_get(m, "weight");
        CHECK(role != NULL && (strcmp(role, "system") == 0 || strcmp(role, "user") == 0 ||
                               strcmp(role, "assistant") == 0 || strcmp(role, "tool") == 0),
              "a role");
        CHECK(json_is_string(json_object_get(m, "content")), "a content");
        CHECK(weight == NULL || json_integer_value(weight) / 2 == 0, "a weight");
    }
}

static void check_example(const struct example *e)
{
    CHECK(e->line >= 1, "line %lld", (long long)e->line);
    CHECK(e->kind != EXAMPLE_TEXT ||
              (e->bytes > 0 && utf8_prefix(e->text, e->bytes, NULL) == e->bytes),
          "a text");
    CHECK(e->kind != EXAMPLE_CHAT || json_array_size(e->messages) > 0, "no messages");
    CHECK(e->kind != EXAMPLE_PREFERENCE ||
              (json_array_size(e->chosen) > 0 && json_array_size(e->rejected) > 0),
          "no answers");
    check_messages(e->messages);
    check_messages(e->chosen);
    check_messages(e->rejected);
}

/* Examples that are used, -1 for none because the file is refused. */
static int64_t read_all(const char *path, const json_t *policy)
{
    const struct example_options o = {
        .path = path, .name = "file", .blame = ERR_BAD_TRAINING_FILE, .policy = policy};
    struct example_reader *r;
    const struct example *e = NULL;
    struct err err = {0};
    int64_t count = 0;

    int rc = example_reader_open(&r, &o, &err);
    while (rc == 0 && (rc = example_reader_next(r, &e, &err)) == 0 && e != NULL) {
        check_example(e);
        count++;
    }
    CHECK(rc == 0 || (rc == ERR_BAD_TRAINING_FILE && err.text[0] != '\0'), "%d: %s", rc, err.text);
    if (r != NULL) {
        const struct report *report = example_reader_report(r);
        json_t *json = report_json(report);
        CHECK(json != NULL, "no report");
        CHECK(rc != 0 || report_usable(report) == count, "%lld examples", (long long)count);
        CHECK(report_usable(report) <= report_examples(report), "more usable than there are");
        json_decref(json);
    }
    example_reader_close(r);
    return rc == 0 ? count : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char path[] = "/tmp/hone-fuzz-XXXXXX";
    struct err err = {0};
    const int fd = mkstemp(path);
    json_t *lenient = json_object();

    CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n, "no temporary file");
    (void)close(fd);
    for (int i = 0; i < REASON_COUNT; i++) { /* the most that may be passed over */
        const enum reason r = (enum reason)i;
        const enum action a = reason_allows(r, ACTION_ACCEPT) ? ACTION_ACCEPT : ACTION_SKIP;
        if (reason_allows(r, a)) {
            (void)json_object_set_new(lenient, reason_name(r), json_string(action_name(a)));
        }
    }
    const int64_t strict = read_all(path, NULL), all = read_all(path, lenient);
    CHECK(strict < 0 || all == strict, "%lld and %lld examples", (long long)strict, (long long)all);
    json_decref(lenient);
    struct report *report = NULL;
    const struct example_options o = {.path = path, .name = "file", .blame = ERR_BAD_TRAINING_FILE};
    (void)data_check(&report, &o, NULL, &err);
    report_free(report);
    (void)unlink(path);
    return 0;
}
