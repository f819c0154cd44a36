/* playground.c - models that answer while no job needs the machine. */
#include "server/playground.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "server/log.h"
#include "server/sizing.h"
#include "trainer/base/io.h"

enum {
    MODELS_MAX = 16,
    TALKS_MAX = 1024, /* of which at most serve_requests are not over            */
    WAIT_MS = 20,     /* between looks at a model that loads                     */
    LOOK_MS = 200,    /* between looks at clients                                */
    REST_MS = 1000,   /* between looks when there is nothing to do               */
    ROOM_MS = 400,    /* that make_room waits                                    */
    CUT_MS = 2000,    /* from a closed connection to giving its process up       */
    END_MS = 3000,    /* that models get to leave at the end                     */
};

struct playground {
    struct talks talks; /* with the lock that guards the next four */
    bool closing, wanted;
    int64_t wanted_ms; /* since when */
    int alive;         /* models     */
    pthread_cond_t left;
    const struct settings *settings;
    char home[SETTING_TEXT + 16]; /* DATA/serve */
    pthread_t thread;
    /* of the thread alone */
    struct model_process *models[MODELS_MAX]; /* owned; NULL: free */
    int count;                                /* of the snapshot below */
    struct talk *at[TALKS_MAX];
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void kick(const struct playground *p)
{
    const uint64_t one = 1;

    (void)!write(p->talks.kick, &one, sizeof one); /* fails only when kicks are waiting already */
}

static void note_alive(struct playground *p, int change)
{
    pthread_mutex_lock(&p->talks.lock);
    p->alive += change;
    if (p->alive == 0) {
        pthread_cond_broadcast(&p->left);
    }
    pthread_mutex_unlock(&p->talks.lock);
}

static bool is_wanted(struct playground *p, int64_t *since)
{
    pthread_mutex_lock(&p->talks.lock);
    const bool wanted = p->wanted;
    *since = p->wanted_ms;
    pthread_mutex_unlock(&p->talks.lock);
    return wanted;
}

static struct model_process *find_model(const struct playground *p, const char *dir)
{
    for (int i = 0; i < MODELS_MAX; i++) {
        struct model_process *m = p->models[i];
        if (m != NULL && m->stage != MODEL_LEAVING && strcmp(m->dir, dir) == 0) {
            return m;
        }
    }
    return NULL;
}

/* The model that nobody asks and that was asked longest ago. */
static struct model_process *least_used(const struct playground *p)
{
    struct model_process *least = NULL;

    for (int i = 0; i < MODELS_MAX; i++) {
        struct model_process *m = p->models[i];
        if (m != NULL && m->talks == 0 && m->stage != MODEL_LEAVING &&
            (least == NULL || m->used_ms < least->used_ms)) {
            least = m;
        }
    }
    return least;
}

/* Whether one more model of so many bytes has its place now; models in its way are told to leave. */
static int make_place(struct playground *p, int64_t bytes, bool *now, struct err *err)
{
    const int64_t room = (int64_t)sizing_machine();
    int64_t taken = 0;
    int count = 0;
    bool leaving = false;

    for (int i = 0; i < MODELS_MAX; i++) {
        if (p->models[i] != NULL) {
            count++;
            taken += p->models[i]->bytes;
            leaving = leaving || p->models[i]->stage == MODEL_LEAVING;
        }
    }
    *now = count < p->settings->serve_models && (room == 0 || taken + bytes <= room);
    if (*now || leaving) {
        return 0;
    }
    struct model_process *m = least_used(p);
    if (m == NULL) {
        return FAIL(err, ERR_BUSY, "%d models are loaded and answer; try again later", count);
    }
    model_leave(m, now_ms());
    return 0;
}

/* Start the model of a talk; *m stays NULL while it has to wait for others to leave. */
static int start_model(struct playground *p, const char *dir, struct model_process **m,
                       struct err *err)
{
    int64_t bytes = 0;
    bool now = false;
    int at = 0;

    TRY(sizing_serve(p->settings, dir, &bytes, err));
    TRY(make_place(p, bytes, &now, err));
    while (at < MODELS_MAX && p->models[at] != NULL) {
        at++;
    }
    if (!now || at == MODELS_MAX) {
        return 0;
    }
    struct model_process *one = calloc(1, sizeof *one);
    if (one == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a model");
    }
    one->bytes = bytes;
    (void)snprintf(one->dir, sizeof one->dir, "%s", dir);
    const int rc = model_start(one, p->settings, p->home, err);
    if (rc != 0) {
        free(one);
        return rc;
    }
    log_line("%s is loaded for answers by process %d", dir, (int)one->pid);
    p->models[at] = *m = one;
    note_alive(p, 1);
    return 0;
}

static void release(struct talk *t)
{
    if (t->on != NULL) {
        t->on->talks--;
        t->on->used_ms = now_ms();
        t->on = NULL;
    }
    talk_hang_up(t);
}

/* Find the talk's model, or start it. */
static void find_place(struct playground *p, struct talk *t)
{
    struct err err = {0};
    int64_t since = 0;
    struct model_process *m = find_model(p, t->dir);
    int rc = 0;

    if (is_wanted(p, &since)) {
        rc = FAIL(&err, ERR_BUSY,
                  "a job needs the machine; models answer again when no job waits or runs");
    } else if (m == NULL) {
        rc = start_model(p, t->dir, &m, &err);
    }
    if (rc != 0) {
        talk_fail(t, &err);
    } else if (m != NULL) {
        t->on = m;
        t->sent = 0;
        m->talks++;
    }
}

/* Whether it is over for the thread: nothing comes any more. */
static bool is_over(struct talk *t, bool *dropped)
{
    pthread_mutex_lock(&t->all->lock);
    const bool over = t->over;
    *dropped = t->dropped;
    pthread_mutex_unlock(&t->all->lock);
    return over;
}

static void remove_talk(struct playground *p, struct talk *t)
{
    pthread_mutex_lock(&p->talks.lock);
    for (struct talk **at = &p->talks.first; *at != NULL; at = &(*at)->next) {
        if (*at == t) {
            *at = t->next;
            p->talks.count--;
            break;
        }
    }
    pthread_mutex_unlock(&p->talks.lock);
    release(t);
    talk_free(t);
}

static void give_up(struct talk *t)
{
    struct err err = {0};

    err_set(&err, ERR_INTERRUPTED, "the model's process broke off; ask again");
    talk_fail(t, &err);
}

/* Do what can be done for a talk; false when it is no more. */
static bool tend(struct playground *p, struct talk *t, int64_t now)
{
    bool dropped = false;

    if (!is_over(t, &dropped) && !dropped) {
        talk_look(t);
        if (t->on == NULL) {
            find_place(p, t);
        }
        if (t->on != NULL && t->fd < 0 && t->cut_ms == 0) {
            t->fd = model_connect(t->on);
        }
        if (t->fd >= 0 && !talk_move(t)) {
            talk_hang_up(t);
            t->cut_ms = now; /* how its process ended is seen soon */
        }
        if (t->cut_ms != 0 && now - t->cut_ms > CUT_MS) {
            give_up(t);
        }
    }
    if (is_over(t, &dropped)) {
        release(t);
    }
    if (dropped) {
        remove_talk(p, t);
    }
    return !dropped;
}

/* The model's process has ended. Who was not heard yet asks another one, once. */
static void bury(struct playground *p, struct model_process *m, const struct err *why)
{
    for (int i = 0; i < p->count; i++) {
        struct talk *t = p->at[i];
        bool ignored = false;
        if (t == NULL || t->on != m) {
            continue;
        }
        if (t->fd >= 0) {
            (void)talk_move(t);
        }
        release(t);
        t->cut_ms = 0;
        if (is_over(t, &ignored)) {
            continue;
        }
        if (!t->accepted && !t->retried && why->code == ERR_INTERRUPTED &&
            m->stage != MODEL_LOADING) {
            t->retried = true; /* tend finds it a new one */
        } else {
            talk_fail(t, why);
        }
    }
    log_line("%s: process %d: %s", m->dir, (int)m->pid, why->text);
}

static void look_at_models(struct playground *p, int64_t now)
{
    int64_t since = 0;
    const bool wanted = is_wanted(p, &since);
    const bool grace_over = now - since >= p->settings->serve_grace_s * 1000;

    for (int i = 0; i < MODELS_MAX; i++) {
        struct model_process *m = p->models[i];
        struct err why = {0};
        if (m == NULL) {
            continue;
        }
        if (model_reap(m, &why)) {
            bury(p, m, &why);
            p->models[i] = NULL;
            free(m);
            note_alive(p, -1);
        } else if (m->stage == MODEL_LEAVING || (wanted && (m->talks == 0 || grace_over))) {
            model_leave(m, now);
        }
    }
}

/* The talks that there are; those that come later wait for the next turn. */
static bool take_snapshot(struct playground *p)
{
    pthread_mutex_lock(&p->talks.lock);
    p->count = 0;
    for (struct talk *t = p->talks.first; t != NULL && p->count < TALKS_MAX; t = t->next) {
        p->at[p->count++] = t;
    }
    const bool closing = p->closing;
    pthread_mutex_unlock(&p->talks.lock);
    return closing;
}

/* Wait until there is something to do. */
static void wait_for_news(struct playground *p)
{
    struct pollfd wait[1 + MODELS_MAX + TALKS_MAX] = {{.fd = p->talks.kick, .events = POLLIN}};
    nfds_t count = 1;
    uint64_t kicks = 0;
    int ms = REST_MS;

    for (int i = 0; i < MODELS_MAX; i++) {
        const struct model_process *m = p->models[i];
        if (m != NULL && m->pid_fd >= 0) {
            wait[count++] = (struct pollfd){.fd = m->pid_fd, .events = POLLIN};
        }
        ms = m != NULL && m->stage == MODEL_LEAVING ? LOOK_MS : ms;
    }
    for (int i = 0; i < p->count; i++) {
        struct talk *t = p->at[i];
        bool dropped = false;
        if (t == NULL || is_over(t, &dropped)) {
            continue;
        }
        ms = t->fd < 0 ? WAIT_MS : ms > LOOK_MS ? LOOK_MS : ms;
        if (t->fd >= 0) {
            const short in = talk_wants_input(t) ? POLLIN : 0;
            const short out = t->sent < strlen(t->ask.lines) ? POLLOUT : 0;
            wait[count++] = (struct pollfd){.fd = t->fd, .events = (short)(in | out)};
        }
    }
    (void)poll(wait, count, ms);
    (void)!read(p->talks.kick, &kicks, sizeof kicks); /* that nothing was there is as good */
}

static void *play_for_ever(void *argument)
{
    struct playground *p = argument;

    while (!take_snapshot(p)) {
        const int64_t now = now_ms();
        for (int i = 0; i < p->count; i++) {
            p->at[i] = tend(p, p->at[i], now) ? p->at[i] : NULL;
        }
        look_at_models(p, now);
        wait_for_news(p);
    }
    return NULL;
}

int playground_open(struct playground **out, const struct app *app, struct err *err)
{
    struct playground *p = calloc(1, sizeof *p);

    if (p == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for models");
    }
    p->settings = app->settings;
    (void)snprintf(p->home, sizeof p->home, "%s/serve", app->settings->data);
    /* what an earlier honed left */
    int rc = io_remove_tree(p->home, err);
    rc = rc != 0 ? rc : io_make_dir(p->home, err);
    if (rc != 0) {
        free(p);
        return rc;
    }
    pthread_mutex_init(&p->talks.lock, NULL);
    pthread_cond_init(&p->left, NULL);
    p->talks.kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->talks.kick < 0 || pthread_create(&p->thread, NULL, play_for_ever, p) != 0) {
        const int why = errno;
        (void)close(p->talks.kick);
        free(p);
        return FAIL(err, ERR_IO, "the playground does not start: %s", strerror(why));
    }
    *out = p;
    return 0;
}

int playground_ask(struct playground *p, struct talk **out, struct openai_ask *ask, const char *dir,
                   struct err *err)
{
    return talk_begin(out, &p->talks, ask, dir, p->settings->serve_requests, err);
}

bool playground_make_room(struct playground *p, bool wanted)
{
    struct timespec until;

    pthread_mutex_lock(&p->talks.lock);
    if (wanted && !p->wanted) {
        p->wanted_ms = now_ms();
        kick(p);
    }
    p->wanted = wanted;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ROOM_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    int rc = 0;
    while (wanted && p->alive > 0 && rc == 0) {
        rc = pthread_cond_timedwait(&p->left, &p->talks.lock, &until);
    }
    const bool empty = p->alive == 0;
    pthread_mutex_unlock(&p->talks.lock);
    return empty;
}

void playground_shut(struct playground *p)
{
    struct err err = {0};

    if (p == NULL) {
        return;
    }
    err_set(&err, ERR_BUSY, "the server is stopping");
    pthread_mutex_lock(&p->talks.lock);
    p->talks.shut = true;
    for (struct talk *t = p->talks.first; t != NULL; t = t->next) {
        talk_interrupt(t, &err);
    }
    pthread_mutex_unlock(&p->talks.lock);
    kick(p);
}

/* All models leave, one after the other is waited for. */
static void end_models(struct playground *p)
{
    const int64_t until = now_ms() + END_MS;

    for (int i = 0; i < MODELS_MAX; i++) {
        if (p->models[i] != NULL) {
            model_leave(p->models[i], now_ms());
        }
    }
    for (int i = 0; i < MODELS_MAX; i++) {
        struct model_process *m = p->models[i];
        struct err why = {0};
        while (m != NULL && !model_reap(m, &why)) {
            if (now_ms() > until) {
                model_leave(m, INT64_MAX); /* kills it */
            }
            (void)usleep(10000);
        }
        free(m);
    }
}

void playground_close(struct playground *p)
{
    if (p == NULL) {
        return;
    }
    pthread_mutex_lock(&p->talks.lock);
    p->closing = true;
    pthread_mutex_unlock(&p->talks.lock);
    kick(p);
    pthread_join(p->thread, NULL);
    while (p->talks.first != NULL) {
        remove_talk(p, p->talks.first);
    }
    end_models(p);
    (void)close(p->talks.kick);
    pthread_cond_destroy(&p->left);
    pthread_mutex_destroy(&p->talks.lock);
    free(p);
}
