/* test_cli_show.c - hone's printing: harmless strings, numbers for people, the progress line. */
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/progress.h"
#include "server/cli/show.h"
#include "tests/tap.h"

static const char *safe(const char *in)
{
    static char out[512];

    (void)show_safe(out, sizeof out, in, strlen(in));
    return out;
}

static void plain_text_in_any_script_stays(void)
{
    EXPECT(strcmp(safe("tiny llama, 3 layers"), "tiny llama, 3 layers") == 0);
    EXPECT(strcmp(safe("唐诗三百首 \xF0\x9F\x99\x82 été"), "唐诗三百首 \xF0\x9F\x99\x82 été") == 0);
    EXPECT(strcmp(safe(""), "") == 0);
}

static void control_characters_become_visible(void)
{
    EXPECT(strcmp(safe("a\x1b[31mred\x1b[0m"), "a\\x1b[31mred\\x1b[0m") == 0);
    EXPECT(strcmp(safe("two\nlines\r\t"), "two\\nlines\\r\\t") == 0);
    EXPECT(strcmp(safe("\x7f"), "\\x7f") == 0);
    EXPECT(strcmp(safe("\xC2\x9b"
                       "31m"),
                  "\\xc2\\x9b31m") == 0);
}

static void characters_that_reorder_or_hide_become_visible(void)
{
    EXPECT(strcmp(safe("\xE2\x80\xAE"
                       "gpj.exe"),
                  "\\u202egpj.exe") == 0);
    EXPECT(strcmp(safe("a\xE2\x80\xA8"
                       "b"),
                  "a\\u2028b") == 0);
    EXPECT(strcmp(safe("a\xE2\x80\x8B"
                       "b"),
                  "a\\u200bb") == 0);
    EXPECT(strcmp(safe("\xF3\xA0\x81\x81"), "\\ue0041") == 0);
}

static void bytes_that_are_not_utf8_become_visible(void)
{
    EXPECT(strcmp(safe("\xFFz"), "\\xffz") == 0);
    EXPECT(strcmp(safe("\xC0\xAF"), "\\xc0\\xaf") == 0);                   /* overlong slash */
    EXPECT(strcmp(safe("\xED\xA0\x80"), "\\xed\\xa0\\x80") == 0);          /* surrogate      */
    EXPECT(strcmp(safe("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") == 0); /* > U+10FFFF     */
    EXPECT(strcmp(safe("\xE5\x94"), "\\xe5\\x94") == 0);                   /* cut short      */
}

static void a_full_buffer_cuts_on_a_character(void)
{
    char out[8];

    EXPECT(show_safe(out, sizeof out, "abcdef\xE5\x94\x90", 9) == 6 && strcmp(out, "abcdef") == 0);
    EXPECT(show_safe(out, sizeof out, "abcde\x1b", 6) == 5 && strcmp(out, "abcde") == 0);
    EXPECT(show_safe(out, 1, "a", 1) == 0 && out[0] == '\0');
}

static void widths_count_columns(void)
{
    EXPECT(show_width("abc") == 3);
    EXPECT(show_width("唐诗") == 4);
    EXPECT(show_width("e\xCC\x81") == 1);
}

static void numbers_are_short(void)
{
    char out[24];

    EXPECT(strcmp(show_bytes(out, 0), "0 B") == 0);
    EXPECT(strcmp(show_bytes(out, 1023), "1023 B") == 0);
    EXPECT(strcmp(show_bytes(out, 1024), "1.0 KiB") == 0);
    EXPECT(strcmp(show_bytes(out, 1048575), "1.0 MiB") == 0);
    EXPECT(strcmp(show_bytes(out, INT64_MAX), "8.0 EiB") == 0);
    EXPECT(strcmp(show_count(out, 999.4), "999") == 0);
    EXPECT(strcmp(show_count(out, 999.6), "1.00k") == 0);
    EXPECT(strcmp(show_count(out, 12345), "12.3k") == 0);
    EXPECT(strcmp(show_count(out, 9.996e6), "10.0M") == 0);
    EXPECT(strcmp(show_count(out, (double)NAN), "-") == 0);
    EXPECT(strcmp(show_count(out, 1e30), "1e+30") == 0);
}

static void durations_are_clocks(void)
{
    char out[24];

    EXPECT(strcmp(show_duration(out, 7.4), "0:07") == 0);
    EXPECT(strcmp(show_duration(out, 59.6), "1:00") == 0);
    EXPECT(strcmp(show_duration(out, 3599), "59:59") == 0);
    EXPECT(strcmp(show_duration(out, 18367), "5:06:07") == 0);
    EXPECT(strcmp(show_duration(out, 200000), "2 d 07:33") == 0);
    EXPECT(strcmp(show_duration(out, -1.0), "-") == 0);
    EXPECT(strcmp(show_duration(out, (double)INFINITY), "-") == 0);
    EXPECT(strcmp(show_duration(out, 1e300), "-") == 0);
}

static void a_time_that_is_none_is_a_dash(void)
{
    char out[24];

    (void)setenv("TZ", "UTC", 1);
    EXPECT(strcmp(show_time(out, 1700000000), "2023-11-14 22:13") == 0);
    EXPECT(strcmp(show_time(out, 0), "-") == 0);
    EXPECT(strcmp(show_time(out, INT64_MAX), "-") == 0);
}

static void the_bar_fits_the_terminal(void)
{
    char out[1024];

    progress_compose(out, 79, 0.5, "training", "loss 2.0");
    EXPECT(strcmp(out, "training [####################--------------------]  50%  loss 2.0") == 0);
    for (int columns = 1; columns < 200; columns++) {
        for (int i = -1; i <= 11; i++) {
            progress_compose(out, columns, (double)i / 10.0, "训练  step 1/2",
                             "loss 1.5  12k tokens/s");
            EXPECT(show_width(out) <= columns);
        }
    }
    progress_compose(out, 79, (double)NAN, "queued", "waiting");
    EXPECT(strcmp(out, "queued  waiting") == 0);
    progress_compose(out, 79, 7.0, "x", "y");
    EXPECT(strstr(out, "100%") != NULL);
}

int main(void)
{
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    RUN(plain_text_in_any_script_stays);
    RUN(control_characters_become_visible);
    RUN(characters_that_reorder_or_hide_become_visible);
    RUN(bytes_that_are_not_utf8_become_visible);
    RUN(a_full_buffer_cuts_on_a_character);
    RUN(widths_count_columns);
    RUN(numbers_are_short);
    RUN(durations_are_clocks);
    RUN(a_time_that_is_none_is_a_dash);
    RUN(the_bar_fits_the_terminal);
    return tap_done();
}
