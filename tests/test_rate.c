/* test_rate.c - the buckets of tokens and sessions. */
#include "server/rate.h"

#include <stdio.h>

#include "tests/tap.h"

static const struct identity ann = {.user_id = 1, .name = "ann", .token_id = "abcdefghij"};

static void a_token_has_a_burst_then_its_rate_and_others_have_theirs(void)
{
    const struct identity bob = {.user_id = 2, .token_id = "bbbbbbbbbb"};
    const struct identity session = {.user_id = 1, .session = {1, 2, 3}};
    struct rate *r = NULL;
    struct err err = {0};
    int passed = 0;

    EXPECT(rate_open(&r, 50, &err) == 0);
    for (int i = 0; i < 200; i++) {
        passed += rate_take(r, &ann, 1000) == 0;
    }
    EXPECT(passed == 100);
    EXPECT(rate_take(r, &ann, 1000) == 20);
    EXPECT(rate_take(r, &ann, 1019) == 1);
    EXPECT(rate_take(r, &ann, 1020) == 0);
    EXPECT(rate_take(r, &ann, 1020) == 20);
    EXPECT(rate_take(r, &bob, 1020) == 0 && rate_take(r, &session, 1020) == 0);
    passed = 0;
    for (int64_t ms = 2000; ms < 12000; ms++) { /* ten seconds of a request each millisecond */
        passed += rate_take(r, &ann, ms) == 0;
    }
    EXPECT(passed >= 500 && passed <= 550);
    passed = 0;
    for (int i = 0; i < 200; i++) {
        passed += rate_take(r, &ann, INT64_MAX / 2) == 0;
    }
    EXPECT(passed == 100); /* a long rest gives no more than a burst */
    EXPECT(rate_take(r, &bob, 5000) == 0);
    passed = 0;
    for (int i = 0; i < 200; i++) {
        passed += rate_take(r, &bob, 6900) == 0;
    }
    EXPECT(passed == 100); /* neither does a short one */
    rate_close(r);
}

static void ten_thousand_tokens_fit_in_the_table_and_the_busy_one_stays_limited(void)
{
    struct rate *r = NULL;
    struct err err = {0};
    struct identity other = {.user_id = 2};
    int passed = 0;

    EXPECT(rate_open(&r, 1, &err) == 0);
    for (int i = 0; i < 10000; i++) {
        (void)snprintf(other.token_id, sizeof other.token_id, "%u", (unsigned)i % 100000);
        EXPECT(rate_take(r, &other, i) == 0);
        passed += rate_take(r, &ann, i) == 0;
    }
    EXPECT(passed <= 2 + 10); /* the burst, and one a second */
    rate_close(r);
}

int main(void)
{
    RUN(a_token_has_a_burst_then_its_rate_and_others_have_theirs);
    RUN(ten_thousand_tokens_fit_in_the_table_and_the_busy_one_stays_limited);
    return tap_done();
}
