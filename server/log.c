/* log.c - lines on stderr. */
#include "server/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

void log_line(const char *fmt, ...)
{
    char text[1024], line[4200];
    struct tm utc;
    va_list ap;
    const time_t now = time(NULL);

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    gmtime_r(&now, &utc);
    size_t used = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%SZ ", &utc);
    for (const char *p = text; *p != '\0'; p++) {
        const unsigned char byte = (unsigned char)*p;
        used += (size_t)snprintf(line + used, sizeof line - used,
                                 byte < 0x20 || byte >= 0x7f ? "\\x%02x" : "%c", byte);
    }
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, used) < 0) {
        return; /* nobody reads: there is no other place to say so */
    }
}
