/* test_queue_words.c - why a job waits, in words. */
#include <string.h>

#include "server/queue.h"
#include "tests/tap.h"

enum { TEXT = 400 };

static const int64_t AT = 1796133600; /* 2026-12-01 14:00 UTC */

static bool says(struct queue_wait w, const struct queue_names *names, const char *want)
{
    const struct need need = {.devices = 2, .bytes = UINT64_C(40) << 30};
    char text[TEXT];

    queue_words(text, sizeof text, &w, &need, AT, names);
    if (strcmp(text, want) != 0) {
        printf("# says: %s\n", text);
    }
    return strcmp(text, want) == 0;
}

static const struct queue_names nobody = {.other = "", .other_owner = "", .device = ""};
static const struct queue_names ada = {
    .other = "job-1", .other_owner = "ada", .device = "GPU 3", .is_private = false};

static void has_a_sentence_for_what_blocks_a_job(void)
{
    EXPECT(says((struct queue_wait){.why = WAIT_NOT}, &nobody, "starts now"));
    EXPECT(says((struct queue_wait){.why = WAIT_DEPENDENCY}, &ada,
                "waits for job-1 of ada to end as it asks"));
    EXPECT(says((struct queue_wait){.why = WAIT_BEGIN, .at = AT}, &nobody,
                "is not to start before 2026-12-01 14:00 UTC"));
    EXPECT(says((struct queue_wait){.why = WAIT_RETRY, .at = AT}, &nobody,
                "is tried again at 2026-12-01 14:00 UTC, after a failure of the machine"));
    EXPECT(says((struct queue_wait){.why = WAIT_USER_JOBS, .number = 1}, &nobody,
                "its owner runs 1 job at a time, the limit"));
    EXPECT(says((struct queue_wait){.why = WAIT_USER_DEVICES, .number = 4}, &nobody,
                "its owner may hold 4 devices at a time"));
    EXPECT(says((struct queue_wait){.why = WAIT_ARRAY, .number = 2}, &nobody,
                "2 jobs of its array run at a time, as it asks"));
}

static void has_a_sentence_for_what_the_machine_lacks(void)
{
    EXPECT(says((struct queue_wait){.why = WAIT_NEVER, .number = 1}, &nobody,
                "needs 2 devices with 40.0 GiB each, and only 1 is in order: others are lost, "
                "quarantined or too small"));
    EXPECT(says((struct queue_wait){.why = WAIT_BUSY}, &ada,
                "GPU 3 is busy: processes outside Hone hold memory that it needs"));
    EXPECT(says((struct queue_wait){.why = WAIT_WINDOW, .at = AT}, &nobody,
                "a reservation keeps devices until 2026-12-01 14:00 UTC"));
    EXPECT(says((struct queue_wait){.why = WAIT_FREEING}, &ada,
                "starts next: job-1 of ada saves and leaves"));
    EXPECT(says((struct queue_wait){.why = WAIT_HEAD, .at = AT}, &ada,
                "starts next: waits for 2 devices with 40.0 GiB each; job-1 of ada ends at "
                "2026-12-01 14:00 UTC at the latest"));
    EXPECT(says((struct queue_wait){.why = WAIT_AHEAD, .number = 0}, &nobody,
                "waits for 2 devices with 40.0 GiB each"));
    EXPECT(says((struct queue_wait){.why = WAIT_AHEAD, .number = 1}, &nobody,
                "waits for 2 devices with 40.0 GiB each; 1 job is before it"));
    EXPECT(says((struct queue_wait){.why = WAIT_AHEAD, .number = 3}, &nobody,
                "waits for 2 devices with 40.0 GiB each; 3 jobs are before it"));
}

static void does_not_name_a_private_job(void)
{
    const struct queue_names private = {
        .other = "job-1", .other_owner = "ada", .device = "", .is_private = true};

    EXPECT(says((struct queue_wait){.why = WAIT_FREEING}, &private,
                "starts next: a private job saves and leaves"));
    EXPECT(says((struct queue_wait){.why = WAIT_DEPENDENCY}, &nobody,
                "waits for another job to end as it asks"));
}

static void keeps_within_the_room_that_it_is_given(void)
{
    char text[8];
    const struct queue_wait w = {.why = WAIT_BEGIN, .at = INT64_MAX};
    const struct need need = {.devices = 1};

    queue_words(text, sizeof text, &w, &need, AT, &nobody);
    EXPECT(strcmp(text, "is not ") == 0);
}

static void classes_and_reasons_have_words(void)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        EXPECT(queue_class_from_word(queue_class_word((enum queue_class)c)) == (enum queue_class)c);
    }
    EXPECT(queue_class_from_word("Urgent") == CLASS_COUNT);
    for (int a = WAIT_NOT + 1; a < WAIT_COUNT; a++) {
        EXPECT(queue_reason_word((enum wait_reason)a)[0] != '\0');
        for (int b = 0; b < a; b++) {
            EXPECT(strcmp(queue_reason_word((enum wait_reason)a),
                          queue_reason_word((enum wait_reason)b)) != 0);
        }
    }
}

int main(void)
{
    RUN(has_a_sentence_for_what_blocks_a_job);
    RUN(has_a_sentence_for_what_the_machine_lacks);
    RUN(does_not_name_a_private_job);
    RUN(keeps_within_the_room_that_it_is_given);
    RUN(classes_and_reasons_have_words);
    return tap_done();
}
