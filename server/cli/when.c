/* when.c - times of a queue for people: "2025-01-31 17:05 (in 12 min)", and the words that people write for them. */
#include "server/cli/when.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/cli/show.h"

enum { MINUTE = 60, HOUR = 3600, DAY = 86400 };

/* Times that are told apart from a wrong unit: until the year 2100, as the request's begin_at. */
static const int64_t latest = 4102444800;

const char *when_span(char out[32], int64_t seconds)
{
    const long long minutes = seconds / MINUTE % 60, hours = seconds / HOUR;

    if (seconds < 0) {
        (void)snprintf(out, 32, "-");
    } else if (seconds < MINUTE) {
        (void)snprintf(out, 32, "%lld s", (long long)seconds);
    } else if (seconds < HOUR) {
        (void)snprintf(out, 32, "%lld min", minutes);
    } else if (seconds < INT64_C(2) * DAY && minutes == 0) {
        (void)snprintf(out, 32, "%lld h", hours);
    } else if (seconds < INT64_C(2) * DAY) {
        (void)snprintf(out, 32, "%lld h %lld min", hours, minutes);
    } else if (hours % 24 == 0 || hours >= 240) {
        (void)snprintf(out, 32, "%lld d", hours / 24);
    } else {
        (void)snprintf(out, 32, "%lld d %lld h", hours / 24, hours % 24);
    }
    return out;
}

const char *when_relative(char out[48], int64_t at, int64_t now)
{
    char span[32];

    if (at <= 0) {
        (void)snprintf(out, 48, "-");
    } else if (at == now) {
        (void)snprintf(out, 48, "now");
    } else if (at > now) {
        (void)snprintf(out, 48, "in %s", when_span(span, at - now));
    } else {
        (void)snprintf(out, 48, "%s ago", when_span(span, now - at));
    }
    return out;
}

const char *when_show(char out[64], int64_t at, int64_t now)
{
    char time[24], relative[48];

    if (at <= 0) {
        (void)snprintf(out, 64, "-");
    } else {
        (void)snprintf(out, 64, "%s (%.36s)", show_time(time, at),
                       when_relative(relative, at, now));
    }
    return out;
}

/* "+2h": a whole number and a unit. */
static bool read_span(int64_t *out, const char *word)
{
    char *end = NULL;
    int64_t unit = 0;

    if (word[0] < '0' || word[0] > '9') {
        return false;
    }
    const long long count = strtoll(word, &end, 10);
    switch (*end) {
    case 's': unit = 1; break;
    case 'm': unit = MINUTE; break;
    case 'h': unit = HOUR; break;
    case 'd': unit = DAY; break;
    default: return false;
    }
    if (end[1] != '\0' || count > latest / unit) {
        return false;
    }
    *out = count * unit;
    return true;
}

/* Seconds since 1970; at most as many digits as `latest` has. */
static bool read_seconds(int64_t *out, const char *word)
{
    const size_t digits = strspn(word, "0123456789");

    if (digits < 5 || digits > 10 || word[digits] != '\0') {
        return false;
    }
    *out = strtoll(word, NULL, 10);
    return true;
}

/* A date, a time of day, or both, by local time. */
static bool read_local(int64_t *out, const char *word, int64_t now)
{
    static const char *const forms[] = {"%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%H:%M"};
    const time_t at = (time_t)now;
    enum { TIME_ONLY = 3 };

    for (int i = 0; i <= TIME_ONLY; i++) {
        struct tm local = {0};
        if (i == TIME_ONLY && localtime_r(&at, &local) == NULL) {
            return false;
        }
        local.tm_sec = 0;
        const char *const rest = strptime(word, forms[i], &local);
        if (rest == NULL || *rest != '\0') {
            continue;
        }
        const int month = local.tm_mon, day = local.tm_mday;
        local.tm_isdst = -1;
        time_t found = mktime(&local);
        if (i != TIME_ONLY && (local.tm_mon != month || local.tm_mday != day)) {
            return false; /* 31 February */
        }
        if (i == TIME_ONLY && found <= at) {
            local.tm_mday++;
            local.tm_isdst = -1;
            found = mktime(&local);
        }
        *out = (int64_t)found;
        return found > 0;
    }
    return false;
}

int when_parse(int64_t *out, const char *what, const char *word, int64_t now, struct err *err)
{
    int64_t at = 0;
    bool good = true;

    if (strcmp(word, "now") == 0) {
        at = now;
    } else if (word[0] == '+') {
        good = read_span(&at, word + 1);
        at += now;
    } else {
        good = read_seconds(&at, word) || read_local(&at, word, now);
    }
    if (!good || at > latest) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "%s must be a time: now, +30m, +2h, +3d, 17:05, 2025-01-31 or 2025-01-31T17:05",
                    what);
    }
    *out = at;
    return 0;
}
