/* queue_words.c - classes and reasons in words. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/queue.h"

enum { WHEN = 32, WHO = 160 };

const char *queue_reason_word(enum wait_reason r)
{
    static const char *const word[WAIT_COUNT] = {
#define WAIT(id, word, help) [WAIT_##id] = (word),
#include "server/queue_reasons.def"
    };

    return word[r];
}

static const char *const classes[CLASS_COUNT] = {[CLASS_URGENT] = "urgent",
                                                 [CLASS_NORMAL] = "normal",
                                                 [CLASS_LOW] = "low",
                                                 [CLASS_IDLE] = "idle"};

const char *queue_class_word(enum queue_class c)
{
    return classes[c];
}

enum queue_class queue_class_from_word(const char *word)
{
    int c = 0;

    while (c < CLASS_COUNT && strcmp(classes[c], word) != 0) {
        c++;
    }
    return (enum queue_class)c;
}

static const char *when(char out[WHEN], int64_t at)
{
    struct tm tm;
    const time_t t = (time_t)at;

    if (gmtime_r(&t, &tm) == NULL || strftime(out, WHEN, "%Y-%m-%d %H:%M UTC", &tm) == 0) {
        (void)snprintf(out, WHEN, "a time far away");
    }
    return out;
}

/* "job-1 of ada", "another job". */
static const char *who(char out[WHO], const struct queue_names *n, const char *nobody)
{
    if (n->is_private || n->other[0] == '\0') {
        return n->is_private ? "a private job" : nobody;
    }
    (void)snprintf(out, WHO, "%.60s%s%.64s", n->other, n->other_owner[0] != '\0' ? " of " : "",
                   n->other_owner);
    return out;
}

/* "2 devices with 40.0 GiB each" */
static const char *what(char out[WHO], const struct need *need)
{
    const double gib = (double)need->bytes / 0x1p30;

    if (need->bytes == 0) {
        (void)snprintf(out, WHO, "%d device%s", need->devices, need->devices == 1 ? "" : "s");
    } else {
        (void)snprintf(out, WHO, "%d device%s with %.*f GiB%s", need->devices,
                       need->devices == 1 ? "" : "s", gib < 1.0 ? 2 : 1, gib,
                       need->devices == 1 ? "" : " each");
    }
    return out;
}

void queue_words(char *out, size_t size, const struct queue_wait *w, const struct need *need,
                 int64_t now, const struct queue_names *names)
{
    char t[WHEN], j[WHO], d[WHO];
    const long long number = (long long)w->number;
    const char *s = number == 1 ? "" : "s";

    (void)now;
    switch (w->why) {
    case WAIT_NOT: (void)snprintf(out, size, "starts now"); return;
    case WAIT_DEPENDENCY:
        (void)snprintf(out, size, "waits for %s to end as it asks", who(j, names, "another job"));
        return;
    case WAIT_BEGIN: (void)snprintf(out, size, "is not to start before %s", when(t, w->at)); return;
    case WAIT_RETRY:
        (void)snprintf(out, size, "is tried again at %s, after a failure of the machine",
                       when(t, w->at));
        return;
    case WAIT_USER_JOBS:
        (void)snprintf(out, size, "its owner runs %lld job%s at a time, the limit", number, s);
        return;
    case WAIT_USER_DEVICES:
        (void)snprintf(out, size, "its owner may hold %lld device%s at a time", number, s);
        return;
    case WAIT_ARRAY:
        (void)snprintf(out, size, "%lld job%s of its array run at a time, as it asks", number, s);
        return;
    case WAIT_NEVER:
        if (number == 0) {
            (void)snprintf(out, size,
                           "needs %s, and none is in order: all are lost, quarantined or too small",
                           what(d, need));
            return;
        }
        (void)snprintf(out, size,
                       "needs %s, and only %lld %s in order: others are lost, quarantined or too "
                       "small",
                       what(d, need), number, number == 1 ? "is" : "are");
        return;
    case WAIT_BUSY:
        (void)snprintf(out, size, "%s is busy: processes outside Hone hold memory that it needs",
                       names->device[0] != '\0' ? names->device : "a device");
        return;
    case WAIT_WINDOW:
        (void)snprintf(out, size, "a reservation keeps devices until %s", when(t, w->at));
        return;
    case WAIT_FREEING:
        (void)snprintf(out, size, "starts next: %s saves and leaves", who(j, names, "a run"));
        return;
    case WAIT_HEAD:
        (void)snprintf(out, size, "starts next: waits for %s; %s ends at %s at the latest",
                       what(d, need), who(j, names, "a run"), when(t, w->at));
        return;
    case WAIT_AHEAD:
        if (number <= 0) {
            (void)snprintf(out, size, "waits for %s", what(d, need));
        } else {
            (void)snprintf(out, size, "waits for %s; %lld job%s before it", what(d, need), number,
                           number == 1 ? " is" : "s are");
        }
        return;
    case WAIT_COUNT: break;
    }
    (void)snprintf(out, size, "waits");
}
