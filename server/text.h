/* text.h - small questions about bytes of text. */
#ifndef SERVER_TEXT_H
#define SERVER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Value of two hexadecimal digits; -1 when they are not two. */
int text_hex_byte(const char *two);

/* Well-formed UTF-8 without control characters (C0, DEL, C1) and without those that change the direction
 * of what follows (U+202A to U+202E, U+2066 to U+2069). */
bool text_is_plain(const char *s);

/* A whole number in decimal digits, nothing else, within [0, high]; false otherwise. */
bool text_number(const char *s, int64_t high, int64_t *out);

#endif
