/* text.c - a strict decoder of UTF-8 (RFC 3629), one character at a time. */
#include "trainer/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

size_t text_character(const char *text, size_t left)
{
    const unsigned char *s = (const unsigned char *)text;

    if (s[0] < 0x80) {
        return s[0] >= 0x20 && s[0] != 0x7F;
    }
    const size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n > left) {
        return 0;
    }
    uint32_t code = s[0] & (0x7FU >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0U) != 0x80) {
            return 0;
        }
        code = code << 6 | (s[i] & 0x3FU);
    }
    const bool is_overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
    const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    return is_overlong || is_surrogate || code > 0x10FFFF || code < 0xA0 ? 0 : n;
}

void text_clean(char *out, size_t size, const char *text)
{
    const size_t length = strlen(text);
    size_t n = 0;

    for (size_t i = 0; i < length;) {
        const size_t good = text_character(text + i, length - i);
        const size_t step = good == 0 ? 1 : good;
        if (n + step >= size) {
            break;
        }
        memcpy(out + n, good == 0 ? "?" : text + i, step);
        n += step;
        i += step;
    }
    out[n] = '\0';
}
