/* text.c - small questions about bytes of text. */
#include "server/text.h"

#include <string.h>

#include "trainer/base/text.h"

static int digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int text_hex_byte(const char *two)
{
    const int high = digit(two[0]);
    const int low = high < 0 ? -1 : digit(two[1]);

    return low < 0 ? -1 : high * 16 + low;
}

bool text_is_plain(const char *s)
{
    for (size_t left = strlen(s), n = 0; left > 0; s += n, left -= n) {
        n = text_character(s, left);
        const unsigned char third = n == 3 ? (unsigned char)s[2] : 0;
        const bool turns =
            (n == 3 && strncmp(s, "\xe2\x80", 2) == 0 && third >= 0xaa && third <= 0xae) ||
            (n == 3 && strncmp(s, "\xe2\x81", 2) == 0 && third >= 0xa6 && third <= 0xa9);
        if (n == 0 || turns) {
            return false;
        }
    }
    return true;
}

bool text_number(const char *s, int64_t high, int64_t *out)
{
    int64_t n = 0;

    if (*s == '\0') {
        return false;
    }
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9' || n > (high - (*s - '0')) / 10) {
            return false;
        }
        n = n * 10 + (*s - '0');
    }
    *out = n;
    return true;
}
