/* fuzz_protocol.c - any bytes as a file of a job folder. The first byte says which:
 * events.jsonl, spec.json, a plan, an exit or the pid file. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "tests/scratch.h"
#include "trainer/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Every byte belongs to exactly one line, good or bad, except a torn end. */
static void read_events(const uint8_t *bytes, size_t n)
{
    struct event_reader *reader = NULL;
    struct event event;
    enum event_found found;
    struct err err = {0};
    int64_t end = 0;

    CHECK(event_reader_open(&reader, scratch, 0, &err) == 0, "%s", err.text);
    for (;;) {
        CHECK(event_reader_next(reader, &found, &event, &err) == 0, "%s", err.text);
        if (found == EVENT_FOUND_NONE) {
            break;
        }
        CHECK(event.end > end && event.end <= (int64_t)n && bytes[event.end - 1] == '\n',
              "a line from %lld to %lld", (long long)end, (long long)event.end);
        CHECK((found == EVENT_FOUND) == (event.why[0] == '\0'), "%s", event.why);
        end = event.end;
    }
    CHECK(memchr(bytes + end, '\n', n - (size_t)end) == NULL, "lines behind %lld", (long long)end);
    event_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char *const names[] = {"events.jsonl", "spec.json", "attempts/1/plan.json",
                                        "attempts/1/exit.json", "pid"};
    static struct job_folder job;
    static struct attempt_plan plan;
    struct attempt_exit end;
    struct err err = {0};

    if (scratch[sizeof scratch - 2] == 'X') {
        scratch_make();
        CHECK(mkdir(in_scratch("attempts"), 0700) == 0, "attempts");
    }
    (void)io_remove_tree(in_scratch("attempts"), &err);
    (void)mkdir(in_scratch("attempts"), 0700);
    (void)mkdir(in_scratch("attempts/1"), 0700);
    if (n == 0) {
        return 0;
    }
    const int which = bytes[0] % (int)(sizeof names / sizeof names[0]);
    put_file(in_scratch(names[which]), bytes + 1, n - 1);
    switch (which) {
    case 0: read_events(bytes + 1, n - 1); break;
    case 1:
    case 2:
        (void)job_folder_open(&job, scratch, &err);
        job_folder_close(&job);
        (void)attempt_plan_read(&plan, scratch, 1, &err);
        break;
    case 3: (void)attempt_exit_read(&end, scratch, 1, &err); break;
    default: (void)job_pid_attempt(scratch); break;
    }
    return 0;
}
