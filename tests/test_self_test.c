/* test_self_test.c - how fast devices reach each other: measured on this machine, and kept. */
#include "server/self_test.h"

#include <stdlib.h>
#include <string.h>

#include "server/probe.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static struct machine m;
static struct settings settings;
static struct self_test t, again;

static void pairs_of_slots_are_measured(void)
{
    struct cores allowed;
    struct err err = {0};

    settings.cpu_slots = 2;
    probe_allowed(&allowed);
    EXPECT(probe_machine(&m, "", &allowed, &settings, &err) == 0);
    m.devices[2] = (struct device){.kind = DEVICE_GPU, .id = "GPU-a"};
    m.device_count = 3;
    EXPECT(self_test_run(&t, &m, 30.0, &err) == 0);
    EXPECT(t.ran_at > 0 && t.seconds > 0.0 && !t.timed_out);
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            EXPECT(t.gb_per_s[i][j] > 0.01 && t.gb_per_s[i][j] < 1e5);
        }
    }
    EXPECT_NEAR(t.gb_per_s[0][1], t.gb_per_s[1][0], 1e-12);
    EXPECT(!(t.gb_per_s[0][2] > 0.0) && !(t.gb_per_s[2][2] > 0.0));
}

static void the_time_limit_ends_it(void)
{
    struct err err = {0};

    EXPECT(self_test_run(&again, &m, 0.0, &err) == 0);
    EXPECT(again.timed_out && again.seconds < 1.0 && !(again.gb_per_s[0][0] > 0.0));
}

static void results_are_those_of_one_machine(void)
{
    const char *path = in_scratch("machine.json");
    struct err err = {0};

    EXPECT(!self_test_read(&again, &m, path));
    EXPECT(self_test_write(&t, &m, path, &err) == 0);
    EXPECT(self_test_read(&again, &m, path));
    EXPECT(again.ran_at == t.ran_at && !again.timed_out);
    EXPECT_NEAR(again.gb_per_s[0][1], t.gb_per_s[0][1], 1e-12);
    m.links[0][1].gb_per_s = 5.0; /* what was measured is no part of what the machine is */
    EXPECT(self_test_read(&again, &m, path));
    m.devices[1].core_count++;
    EXPECT(!self_test_read(&again, &m, path) && again.ran_at == 0);
    m.devices[1].core_count--;
    EXPECT(self_test_read(&again, &m, path));
    put_text(path, "{\"identity\": 3");
    EXPECT(!self_test_read(&again, &m, path));
}

static void a_file_with_bad_numbers_counts_for_nothing(void)
{
    const char *path = in_scratch("machine.json");
    struct err err = {0};

    t.gb_per_s[0][1] = -1.0;
    EXPECT(self_test_write(&t, &m, path, &err) == 0);
    EXPECT(!self_test_read(&again, &m, path) && !(again.gb_per_s[0][0] > 0.0));
}

static void cards_that_are_not_measured_are_named(void)
{
    json_t *o = self_test_json(&t, &m);

    EXPECT(strstr(json_string_value(json_object_get(o, "note")), "CUDA") != NULL);
    json_decref(o);
    m.device_count = 2;
    o = self_test_json(&t, &m);
    EXPECT(o != NULL && json_is_null(json_object_get(o, "note")));
    json_decref(o);
}

int main(void)
{
    scratch_make();
    RUN(pairs_of_slots_are_measured);
    RUN(the_time_limit_ends_it);
    RUN(results_are_those_of_one_machine);
    RUN(a_file_with_bad_numbers_counts_for_nothing);
    RUN(cards_that_are_not_measured_are_named);
    scratch_remove();
    return tap_done();
}
