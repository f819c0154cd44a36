/* show.c - text for a terminal: strings of others made harmless, numbers and times for people. */
#include "server/cli/show.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#include "trainer/base/text.h"

/* The code point of a well-formed character of `length` bytes. */
static uint32_t code_point(const unsigned char *in, size_t length)
{
    uint32_t value = length == 1 ? in[0] : in[0] & (0x7FU >> length);

    for (size_t i = 1; i < length; i++) {
        value = value << 6 | (in[i] & 0x3FU);
    }
    return value;
}

/* Characters that hide or reorder what stands around them, or end a line. */
static bool is_treacherous(uint32_t point)
{
    return point == 0xAD || point == 0x61C || (point >= 0x200B && point <= 0x200F) ||
           (point >= 0x2028 && point <= 0x202E) || (point >= 0x2060 && point <= 0x206F) ||
           point == 0xFEFF || (point >= 0xFFF9 && point <= 0xFFFB) ||
           (point >= 0xE0000 && point <= 0xE007F);
}

/* One step through `in`: how many bytes it takes (*taken), and the text that stands for them, in place or in
 * `shown`. A control character or a byte that is no UTF-8 is a step of one byte. */
static const char *step(char shown[16], const char *in, size_t left, size_t *taken, size_t *length)
{
    const size_t n = text_character(in, left);
    const uint32_t point = n > 1 ? code_point((const unsigned char *)in, n) : 0;

    *taken = n > 0 ? n : 1;
    *length = *taken;
    if (n > 0 && !is_treacherous(point)) {
        return in;
    }
    if (n > 0) {
        *length = (size_t)snprintf(shown, 16, "\\u%04x", (unsigned)point);
    } else if (*in == '\n' || *in == '\r' || *in == '\t') {
        *length = (size_t)snprintf(shown, 16, "\\%c", *in == '\n' ? 'n' : *in == '\r' ? 'r' : 't');
    } else {
        *length = (size_t)snprintf(shown, 16, "\\x%02x", (unsigned char)*in);
    }
    return shown;
}

size_t show_safe(char *out, size_t size, const char *in, size_t bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < bytes;) {
        char shown[16];
        size_t taken = 0, length = 0;
        const char *const text = step(shown, in + i, bytes - i, &taken, &length);

        if (used + length + 1 > size) {
            break;
        }
        memcpy(out + used, text, length);
        used += length;
        i += taken;
    }
    out[used] = '\0';
    return used;
}

void show_print(const char *in, size_t bytes, bool keep_lines)
{
    for (size_t i = 0; i < bytes;) {
        char shown[16];
        size_t taken = 0, length = 0;
        const char *const text = step(shown, in + i, bytes - i, &taken, &length);

        if (keep_lines && (in[i] == '\n' || in[i] == '\t')) {
            (void)putchar(in[i]);
        } else {
            (void)fwrite(text, 1, length, stdout);
        }
        i += taken;
    }
}

int show_width(const char *text)
{
    const size_t bytes = strlen(text);
    int width = 0;

    for (size_t i = 0; i < bytes;) {
        const size_t n = text_character(text + i, bytes - i);
        const uint32_t point = n > 0 ? code_point((const unsigned char *)text + i, n) : 0;
        const int columns = n > 0 ? wcwidth((wchar_t)point) : 1;

        width += columns >= 0 ? columns : 1;
        i += n > 0 ? n : 1;
    }
    return width;
}

const char *show_bytes(char out[24], int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;

    if (bytes < 1024) {
        (void)snprintf(out, 24, "%lld B", (long long)bytes);
        return out;
    }
    while (value >= 1023.95 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024.0;
        unit++;
    }
    (void)snprintf(out, 24, "%.1f %s", value, units[unit]);
    return out;
}

const char *show_count(char out[24], double count)
{
    static const char units[] = {'k', 'M', 'G', 'T'};

    if (!isfinite(count)) {
        (void)snprintf(out, 24, "-");
        return out;
    }
    if (fabs(count) < 999.5) {
        (void)snprintf(out, 24, "%.0f", count);
        return out;
    }
    size_t unit = 0;
    double value = count / 1000.0;
    while (fabs(value) >= 999.5 && unit + 1 < sizeof units) {
        value /= 1000.0;
        unit++;
    }
    const int decimals = fabs(value) < 9.995 ? 2 : fabs(value) < 99.95 ? 1 : 0;
    if (fabs(value) < 1e6) {
        (void)snprintf(out, 24, "%.*f%c", decimals, value, units[unit]);
    } else {
        (void)snprintf(out, 24, "%.3g", count);
    }
    return out;
}

const char *show_duration(char out[24], double seconds)
{
    if (!isfinite(seconds) || seconds < 0.0 || seconds > 3.0e9) {
        (void)snprintf(out, 24, "-");
        return out;
    }
    const long long whole = llround(seconds);
    const long long hours = whole / 3600;
    if (hours >= 48) {
        (void)snprintf(out, 24, "%lld d %02lld:%02lld", hours / 24, hours % 24, whole / 60 % 60);
    } else if (hours > 0) {
        (void)snprintf(out, 24, "%lld:%02lld:%02lld", hours, whole / 60 % 60, whole % 60);
    } else {
        (void)snprintf(out, 24, "%lld:%02lld", whole / 60, whole % 60);
    }
    return out;
}

const char *show_time(char out[24], int64_t seconds)
{
    const time_t at = (time_t)seconds;
    struct tm local;

    if (seconds <= 0 || localtime_r(&at, &local) == NULL ||
        strftime(out, 24, "%Y-%m-%d %H:%M", &local) == 0) {
        (void)snprintf(out, 24, "-");
    }
    return out;
}
