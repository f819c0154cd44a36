/* test_cli_when.c - times for people, and the words that they write for them. */
#include "server/cli/when.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/tap.h"

/* 2025-01-31 17:05:30 in UTC. */
static const int64_t now = 1738343130;

static bool spans(int64_t seconds, const char *text)
{
    char out[32];

    return strcmp(when_span(out, seconds), text) == 0;
}

static void spans_have_one_or_two_units(void)
{
    EXPECT(spans(0, "0 s") && spans(59, "59 s") && spans(60, "1 min") && spans(3599, "59 min"));
    EXPECT(spans(3600, "1 h") && spans(12000, "3 h 20 min") && spans(172799, "47 h 59 min"));
    EXPECT(spans(172800, "2 d") && spans(187200, "2 d 4 h") && spans(10 * 86400 + 3600, "10 d"));
    EXPECT(spans(-1, "-"));
}

static bool shows(int64_t at, const char *text)
{
    char out[64];

    return strcmp(when_show(out, at, now), text) == 0;
}

static void a_time_is_shown_with_its_distance(void)
{
    EXPECT(shows(now + 720, "2025-01-31 17:17 (in 12 min)"));
    EXPECT(shows(now - 7200, "2025-01-31 15:05 (2 h ago)"));
    EXPECT(shows(now, "2025-01-31 17:05 (now)"));
    EXPECT(shows(0, "-") && shows(-5, "-"));
    char out[48];
    EXPECT(strcmp(when_relative(out, 0, now), "-") == 0);
}

static bool reads(const char *word, int64_t at)
{
    struct err err;
    int64_t out = -1;

    return when_parse(&out, "FROM", word, now, &err) == 0 && out == at;
}

static void words_for_times_are_read(void)
{
    EXPECT(reads("now", now) && reads("+90s", now + 90) && reads("+30m", now + 1800));
    EXPECT(reads("+2h", now + 7200) && reads("+3d", now + 259200));
    EXPECT(reads("1738343131", 1738343131));
    EXPECT(reads("2025-01-31T17:06", 1738343160) && reads("2025-01-31 17:06", 1738343160));
    EXPECT(reads("2025-02-01", 1738368000));
}

static void a_time_of_day_is_the_next_one(void)
{
    EXPECT(reads("17:06", 1738343160));
    EXPECT(reads("17:05", 1738343100 + 86400)); /* today's was half a minute ago */
    EXPECT(reads("08:00", 1738368000 + 8 * 3600));
}

static void other_words_are_refused_by_name(void)
{
    static const char *const bad[] = {
        "",           "soon",       "+",           "+2",
        "+2w",        "+-2h",       "25:00",       "17:05x",
        "2025-02-31", "2025-13-01", "1e9",         "-5",
        "+2hh",       "12",         "99999999999", "+99999999999999999999d",
        "9999999999"};
    struct err err;
    int64_t out = 0;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        EXPECT(when_parse(&out, "FROM", bad[i], now, &err) == ERR_BAD_REQUEST);
        EXPECT(strncmp(err.text, "FROM must be a time", 19) == 0);
    }
}

int main(void)
{
    (void)setenv("TZ", "UTC", 1);
    tzset();
    RUN(spans_have_one_or_two_units);
    RUN(a_time_is_shown_with_its_distance);
    RUN(words_for_times_are_read);
    RUN(a_time_of_day_is_the_next_one);
    RUN(other_words_are_refused_by_name);
    return tap_done();
}
