/* text.c - text for a terminal: strings of others made harmless, numbers and times for people. */
#include "server/cli/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

/* Decode one well-formed character (no overlong form, no surrogate, at most U+10FFFF); 0 when the
 * bytes at `in` are none, else its length. */
static size_t decode(const unsigned char *in, size_t bytes, uint32_t *point)
{
    static const uint32_t lowest[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned lead = in[0];
    const size_t length = lead < 0x80                    ? 1
                          : lead >= 0xC2 && lead <= 0xDF ? 2
                          : (lead & 0xF0U) == 0xE0U      ? 3
                          : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                         : 0;

    if (length == 0 || length > bytes) {
        return 0;
    }
    uint32_t value = length == 1 ? lead : lead & (0x7FU >> length);
    for (size_t i = 1; i < length; i++) {
        if ((in[i] & 0xC0U) != 0x80U) {
            return 0;
        }
        value = value << 6 | (in[i] & 0x3FU);
    }
    if (value < lowest[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
        return 0;
    }
    *point = value;
    return length;
}

/* Characters that move, hide or reorder what stands around them. */
static bool is_unsafe(uint32_t point)
{
    return point < 0x20 || (point >= 0x7F && point <= 0x9F) || point == 0xAD || point == 0x61C ||
           (point >= 0x200B && point <= 0x200F) || (point >= 0x2028 && point <= 0x202E) ||
           (point >= 0x2060 && point <= 0x206F) || point == 0xFEFF ||
           (point >= 0xFFF9 && point <= 0xFFFB) || (point >= 0xE0000 && point <= 0xE007F);
}

/* The visible form of an unsafe character, or of one byte that is no character (`length` 0). */
static size_t escape(char out[16], uint32_t point, size_t length, unsigned char byte)
{
    const char *named = length == 0     ? NULL
                        : point == '\n' ? "\\n"
                        : point == '\r' ? "\\r"
                        : point == '\t' ? "\\t"
                                        : NULL;

    if (named != NULL) {
        return (size_t)snprintf(out, 16, "%s", named);
    }
    if (length == 0 || point < 0x80) {
        return (size_t)snprintf(out, 16, "\\x%02x", length == 0 ? byte : (unsigned)point);
    }
    return (size_t)snprintf(out, 16, "\\u%04x", (unsigned)point);
}

size_t text_safe(char *out, size_t size, const char *in, size_t bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < bytes;) {
        const unsigned char *at = (const unsigned char *)in + i;
        uint32_t point = 0;
        char shown[16];
        const size_t length = decode(at, bytes - i, &point);
        const bool plain = length > 0 && !is_unsafe(point);
        const size_t n = plain ? length : escape(shown, point, length, *at);

        if (used + n + 1 > size) {
            break;
        }
        memcpy(out + used, plain ? in + i : shown, n);
        used += n;
        i += length > 0 ? length : 1;
    }
    out[used] = '\0';
    return used;
}

void text_print_safe(const char *in, size_t bytes, bool keep_lines)
{
    for (size_t i = 0; i < bytes;) {
        uint32_t point = 0;
        char shown[16];
        const unsigned char *at = (const unsigned char *)in + i;
        const size_t length = decode(at, bytes - i, &point);
        const bool kept = keep_lines && (*at == '\n' || *at == '\t');

        if (length > 0 && (kept || !is_unsafe(point))) {
            (void)fwrite(at, 1, length, stdout);
        } else {
            (void)fwrite(shown, 1, escape(shown, point, length, *at), stdout);
        }
        i += length > 0 ? length : 1;
    }
}

int text_width(const char *text)
{
    const size_t bytes = strlen(text);
    int width = 0;

    for (size_t i = 0; i < bytes;) {
        uint32_t point = 0;
        const size_t length = decode((const unsigned char *)text + i, bytes - i, &point);
        const int columns = length > 0 ? wcwidth((wchar_t)point) : 1;

        width += columns >= 0 ? columns : 1;
        i += length > 0 ? length : 1;
    }
    return width;
}

const char *text_bytes(char out[24], int64_t bytes)
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

const char *text_count(char out[24], double count)
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

const char *text_duration(char out[24], double seconds)
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

const char *text_time(char out[24], int64_t seconds)
{
    const time_t at = (time_t)seconds;
    struct tm local;

    if (seconds <= 0 || localtime_r(&at, &local) == NULL ||
        strftime(out, 24, "%Y-%m-%d %H:%M", &local) == 0) {
        (void)snprintf(out, 24, "-");
    }
    return out;
}
