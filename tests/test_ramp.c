/* test_ramp.c - batch size schedules: what is read, what is refused, and that steps and samples agree with a plain walk. */
#include <string.h>

#include "tests/tap.h"
#include "trainer/ramp.h"

static void a_schedule_is_read(void)
{
    struct ramp r;
    struct err err = {0};

    EXPECT(ramp_read(&r, "0:4 100:8  1K:16 2m:32", 99, 10, &err) == 0);
    EXPECT(r.count == 4 && r.tokens[2] == 1000 && r.tokens[3] == 2000000 && r.size[3] == 32);
    EXPECT(ramp_at(&r, 0) == 4 && ramp_at(&r, 9) == 4 && ramp_at(&r, 10) == 8);
    EXPECT(ramp_at(&r, 99) == 8 && ramp_at(&r, 100) == 16 && ramp_at(&r, 200000) == 32);
    EXPECT(ramp_largest(&r) == 32 && ramp_divisor(&r) == 4);
    EXPECT(ramp_read(&r, "0:6 7:9", 0, 4, &err) == 0);
    EXPECT(ramp_at(&r, 1) == 6 && ramp_at(&r, 2) == 9 && ramp_divisor(&r) == 3);
}

static void none_is_one_size(void)
{
    struct ramp r;
    struct err err = {0};

    EXPECT(ramp_read(&r, "", 8, 10, &err) == 0);
    EXPECT(ramp_at(&r, 0) == 8 && ramp_at(&r, INT64_C(1) << 50) == 8);
    EXPECT(ramp_samples(&r, 1000000000) == 8000000000);
    EXPECT(ramp_steps(&r, 17) == 3 && ramp_steps(&r, 16) == 2 && ramp_steps(&r, 0) == 0);
}

static void what_is_no_schedule_is_refused(void)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"16", "entry 1"},
        {"0:16,1M:32", "entry 1"},
        {"0:16 1M", "entry 2"},
        {"0:16 x:32", "entry 2"},
        {"0:16 1X:32", "entry 2"},
        {"0:-1", "entry 1"},
        {"0:0", "0 samples"},
        {"0:65537", "65537"},
        {"5:16", "begins at 5"},
        {"0:16 10:8 10:4", "from 10 tokens to 10"},
        {"0:16 99999999999999999999:8", "entry 2"},
        {"0:16 9999999T:8", "entry 2"},
        {"   ", "empty"},
        {"0:16 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1 9:1 10:1 11:1 12:1 13:1 14:1 15:1 16:1 17:1 18:1 "
         "19:1 20:1 21:1 22:1 23:1 24:1 25:1 26:1 27:1 28:1 29:1 30:1 31:1 32:1",
         "more than 32"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ramp r;
        struct err err = {0};
        EXPECT(ramp_read(&r, bad[i].text, 8, 4, &err) == ERR_BAD_SPEC);
        EXPECT(strstr(err.text, bad[i].says) != NULL);
        EXPECT(strcmp(err.param, "batch_size_schedule") == 0);
    }
}

static void steps_and_samples_agree(void)
{
    static const char *const texts[] = {"0:4 100:8 250:2", "0:1 1:2 2:3 3:4", "0:7 1K:5", "0:3"};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct ramp r;
        struct err err = {0};
        int64_t consumed = 0;
        EXPECT(ramp_read(&r, texts[i], 0, 6, &err) == 0);
        for (int64_t step = 0; step < 400; step++) {
            EXPECT(ramp_samples(&r, step) == consumed);
            EXPECT(ramp_steps(&r, consumed) == step);
            EXPECT(ramp_steps(&r, consumed + 1) == step + 1);
            consumed += ramp_at(&r, consumed);
        }
    }
}

int main(void)
{
    RUN(a_schedule_is_read);
    RUN(none_is_one_size);
    RUN(what_is_no_schedule_is_refused);
    RUN(steps_and_samples_agree);
    return tap_done();
}
