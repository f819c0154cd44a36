/* test_dependencies.c - the text of depends_on, and what the state of another job means. */
#include "server/dependencies.h"

#include <stdio.h>
#include <string.h>

#include "tests/tap.h"

#define A "job-aaaaaaaaaaaaaa"
#define B "job-bbbbbbbbbbbb22"

static struct dependencies d;

static bool reads(const char *text)
{
    struct err err = {0};
    const int rc = dependencies_parse(&d, text, &err);

    EXPECT(rc == 0 || (err.code == ERR_BAD_SPEC && strcmp(err.param, "depends_on") == 0));
    EXPECT(rc == 0 || (err.text[0] != '\0' && strchr(err.text, '\n') == NULL));
    return rc == 0;
}

static void reads_kinds_and_skips_blanks(void)
{
    EXPECT(reads("") && d.count == 0);
    EXPECT(reads("  ") && d.count == 0);
    EXPECT(reads(A) && d.count == 1 && d.at[0].kind == DEPENDENCY_OK);
    EXPECT(strcmp(d.at[0].job, A) == 0);
    EXPECT(reads(" after:" A " , afternotok:" B) && d.count == 2);
    EXPECT(d.at[0].kind == DEPENDENCY_ENDED && d.at[1].kind == DEPENDENCY_NOT_OK);
    EXPECT(strcmp(d.at[1].job, B) == 0);
    EXPECT(reads("afterok:" B) && d.at[0].kind == DEPENDENCY_OK);
    EXPECT(strcmp(dependency_word(DEPENDENCY_NOT_OK), "afternotok") == 0);
}

static void refuses_what_is_no_list_of_jobs(void)
{
    static const char *const bad[] = {
        ",",
        A ",",
        "," A,
        A ",," B,
        "after",
        "after:",
        ":" A,
        "before:" A,
        "afterok :" A,
        "afterok: " A,
        "after:ok:" A,
        "job-",
        "job-AAAAAAAAAAAAAA",
        A "a",
        "job-aaaaaaaaaaaaa",
        "job-aaaaaaaaaaaaa1",
        "file-aaaaaaaaaaaaaa",
        A ";" B,
        A " " B,
        A "," A,
        A ",after:" A,
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT(!reads(bad[i]));
    }
}

static void refuses_more_than_it_has_room_for(void)
{
    char text[(DEPENDENCIES_MAX + 1) * 20] = "";
    size_t n = 0;

    for (int i = 0; i <= DEPENDENCIES_MAX; i++) {
        EXPECT(i == 0 || (reads(text) && d.count == i));
        n += (size_t)snprintf(text + n, sizeof text - n, "%sjob-aaaaaaaaaaaa%c%c", i > 0 ? "," : "",
                              'a' + i % 26, 'a' + i / 26);
    }
    EXPECT(!reads(text));
}

static void a_state_meets_what_is_waited_for_or_never_will(void)
{
    for (int k = 0; k < DEPENDENCY_KIND_COUNT; k++) {
        for (int s = 0; s < JOB_STATE_COUNT; s++) {
            const enum dependency_verdict v =
                dependency_judge((enum dependency_kind)k, (enum job_state)s);
            EXPECT((v == DEPENDENCY_WAITS) == !job_state_is_final((enum job_state)s));
        }
        EXPECT(dependency_judge(DEPENDENCY_ENDED, JOB_CANCELLED) == DEPENDENCY_MET);
    }
    EXPECT(dependency_judge(DEPENDENCY_OK, JOB_SUCCEEDED) == DEPENDENCY_MET);
    EXPECT(dependency_judge(DEPENDENCY_OK, JOB_FAILED) == DEPENDENCY_LOST);
    EXPECT(dependency_judge(DEPENDENCY_OK, JOB_CANCELLED) == DEPENDENCY_LOST);
    EXPECT(dependency_judge(DEPENDENCY_NOT_OK, JOB_FAILED) == DEPENDENCY_MET);
    EXPECT(dependency_judge(DEPENDENCY_NOT_OK, JOB_SUCCEEDED) == DEPENDENCY_LOST);
    EXPECT(dependency_judge(DEPENDENCY_NOT_OK, JOB_CANCELLED) == DEPENDENCY_LOST);
    EXPECT(dependency_judge(DEPENDENCY_ENDED, JOB_SUCCEEDED) == DEPENDENCY_MET);
    EXPECT(dependency_judge(DEPENDENCY_ENDED, JOB_FAILED) == DEPENDENCY_MET);
}

int main(void)
{
    RUN(reads_kinds_and_skips_blanks);
    RUN(refuses_what_is_no_list_of_jobs);
    RUN(refuses_more_than_it_has_room_for);
    RUN(a_state_meets_what_is_waited_for_or_never_will);
    return tap_done();
}
