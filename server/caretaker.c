/* caretaker.c - what is done beside requests. */
#include "server/caretaker.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/audit_file.h"
#include "server/log.h"
#include "server/prune.h"

enum {
    DAY_S = 24 * 3600,
    EVENTS_KEPT = 100, /* of a job that ended long ago               */
    FILE_REST_S = 60,  /* after the file could not be written        */
    TIDY_REST_S = 60,  /* between pieces of a large tidying          */
    SOON_S = 1,        /* after an entry for which nobody has waited */
};

struct caretaker {
    struct store *store;
    const struct settings *settings;
    struct audit_file file; /* of the thread alone */
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t stirred;
    bool closing;
    int64_t look_at; /* when the file is to be looked at; monotonic seconds */
};

/* An entry on its way to the store, with texts of its own. */
struct note {
    struct identity who;
    char address[64], action[64], object[AUDIT_TEXT], result[48];
};

static int64_t now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static int add_note(struct tx *tx, void *argument, struct err *err)
{
    const struct note *n = argument;
    const struct audit_entry e = {&n->who, n->address, n->action, n->object, n->result};

    return audit_add(tx, &e, err);
}

static void keep_note(struct note *n, const struct audit_entry *e)
{
    *n = (struct note){0};
    if (e->who != NULL) {
        n->who = *e->who;
    }
    (void)snprintf(n->address, sizeof n->address, "%s", e->address);
    (void)snprintf(n->action, sizeof n->action, "%s", e->action);
    (void)snprintf(n->object, sizeof n->object, "%s", e->object);
    (void)snprintf(n->result, sizeof n->result, "%s", e->result);
}

/* Have the file looked at in so many seconds, or earlier. */
static void look_in(struct caretaker *c, int64_t seconds)
{
    const int64_t at = now_s() + seconds;

    pthread_mutex_lock(&c->lock);
    c->look_at = at < c->look_at ? at : c->look_at;
    pthread_cond_signal(&c->stirred);
    pthread_mutex_unlock(&c->lock);
}

void caretaker_note(struct caretaker *c, const struct audit_entry *e, bool wait)
{
    struct note *n = malloc(sizeof *n);
    struct err err = {0};

    if (n == NULL) {
        log_line("audit: no memory for %s by %s", e->action, e->who == NULL ? "" : e->who->name);
        return;
    }
    keep_note(n, e);
    if (!wait) {
        store_post(c->store, add_note, n);
        look_in(c, SOON_S);
        return;
    }
    if (store_write(c->store, add_note, n, &err) != 0) {
        log_line("audit: %s by %s is not in the log: %s", n->action, n->who.name, err.text);
    }
    free(n);
    look_in(c, 0);
}

static bool write_file(struct caretaker *c)
{
    struct err err = {0};

    if (audit_file_follow(&c->file, c->store, &err) != 0) {
        log_line("audit: %s", err.text);
        return false;
    }
    return true;
}

/* Seconds until there is something to do again. */
static int64_t tidy(struct caretaker *c)
{
    const int64_t days = c->settings->events_days, now = time(NULL);
    struct err err = {0};
    int64_t removed = 0;

    int rc = store_write(c->store, auth_sweep, NULL, &err);
    if (rc == 0 && days > 0) {
        rc = prune_events(c->store, now - days * DAY_S, EVENTS_KEPT, &removed, &err);
    }
    if (rc != 0) {
        log_line("tidying up: %s", err.text);
    } else if (removed > 0) {
        log_line("%lld events of jobs that ended more than %lld days ago are removed",
                 (long long)removed, (long long)days);
    }
    return rc == 0 && removed >= PRUNE_MOST ? TIDY_REST_S : DAY_S;
}

/* Call with the lock held. */
static void wait_until(struct caretaker *c, int64_t at)
{
    const struct timespec until = {.tv_sec = at};

    (void)pthread_cond_timedwait(&c->stirred, &c->lock, &until);
}

static void *care_for_ever(void *argument)
{
    struct caretaker *c = argument;
    int64_t tidy_at = now_s();

    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        const int64_t now = now_s();
        if (now >= tidy_at) {
            pthread_mutex_unlock(&c->lock);
            tidy_at = now + tidy(c);
            pthread_mutex_lock(&c->lock);
        } else if (now >= c->look_at) {
            c->look_at = INT64_MAX;
            pthread_mutex_unlock(&c->lock);
            const bool written = write_file(c);
            pthread_mutex_lock(&c->lock);
            if (!written && now + FILE_REST_S < c->look_at) {
                c->look_at = now + FILE_REST_S;
            }
        } else {
            wait_until(c, tidy_at < c->look_at ? tidy_at : c->look_at);
        }
    }
    pthread_mutex_unlock(&c->lock);
    (void)write_file(c);
    return NULL;
}

int caretaker_open(struct caretaker **out, struct store *store, const struct settings *s,
                   struct err *err)
{
    struct caretaker *c = calloc(1, sizeof *c);
    pthread_condattr_t monotonic;

    if (c == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the caretaker");
    }
    c->store = store;
    c->settings = s;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->stirred, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int rc = audit_file_open(&c->file, store, s->data, err);
    if (rc == 0 && pthread_create(&c->thread, NULL, care_for_ever, c) != 0) {
        rc = FAIL(err, ERR_NO_MEMORY, "no thread for the caretaker");
    }
    if (rc != 0) {
        free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void caretaker_close(struct caretaker *c)
{
    if (c == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_signal(&c->stirred);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    audit_file_close(&c->file);
    pthread_cond_destroy(&c->stirred);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
