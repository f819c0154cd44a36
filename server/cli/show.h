/* show.h - text for a terminal: strings of others made harmless, numbers and times for people.
 *
 * Every string that came from a server or a file passes show_safe before it is printed, so no job
 * name can move the cursor, change colours, reorder a line or end it.
 */
#ifndef SERVER_CLI_SHOW_H
#define SERVER_CLI_SHOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Write `in` (`bytes` long) to `out` (`size` bytes, size > 0, always terminated): well-formed printable
 * UTF-8 stays; control characters (C0, DEL, C1), line separators, directional controls and bytes
 * that are not UTF-8 become \n, \t, \xNN or \uNNNN. What does not fit is cut on a character's
 * border. Returns the length written. */
size_t show_safe(char *out, size_t size, const char *in, size_t bytes);

/* Print show_safe of the whole of `in` to stdout. With `keep_lines` newlines and tabs stay as they are. */
void show_print(const char *in, size_t bytes, bool keep_lines);

/* Columns a terminal needs for UTF-8 text without control characters. */
int show_width(const char *text);

/* "0 B", "999 B", "1.5 KiB", "12.3 GiB". */
const char *show_bytes(char out[24], int64_t bytes);

/* "0", "950", "12.3k", "4.56M": three digits, for counts and rates; "-" when not finite. */
const char *show_count(char out[24], double count);

/* "0:07", "12:34", "5:06:07", "3 d 04:00"; "-" when negative or not finite. */
const char *show_duration(char out[24], double seconds);

/* Local time "2025-01-31 17:05"; "-" when 0 or less. */
const char *show_time(char out[24], int64_t seconds);

#endif
