/* playground.c - models that answer on devices that no job needs. */
#include "server/playground.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "server/inventory.h"
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
    struct talks talks;                /* with the lock that guards the next six */
    bool closing, is_offered, is_held; /* is_held: nothing is taken for now      */
    struct offer offer;
    int64_t wanted_ms; /* since when                             */
    uint64_t lent;     /* devices that models are on             */
    pthread_cond_t left;
    const struct settings *settings;
    const struct machine *machine;
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

/* Devices that the models are on; the supervisor may wait for some. */
static void note_lent(struct playground *p)
{
    uint64_t lent = 0;

    for (int i = 0; i < MODELS_MAX; i++) {
        lent |= p->models[i] != NULL ? UINT64_C(1) << p->models[i]->device : 0;
    }
    pthread_mutex_lock(&p->talks.lock);
    p->lent = lent;
    pthread_cond_broadcast(&p->left);
    pthread_mutex_unlock(&p->talks.lock);
}

static uint64_t wanted_devices(struct playground *p, int64_t *since)
{
    pthread_mutex_lock(&p->talks.lock);
    const uint64_t wanted = p->offer.wanted;
    *since = p->wanted_ms;
    pthread_mutex_unlock(&p->talks.lock);
    return wanted;
}

/* The model of a folder that takes requests. */
static struct model_process *find_model(struct playground *p, const char *dir)
{
    int64_t since = 0;
    const uint64_t wanted = wanted_devices(p, &since);

    for (int i = 0; i < MODELS_MAX; i++) {
        struct model_process *m = p->models[i];
        if (m != NULL && m->stage != MODEL_LEAVING && (wanted >> m->device & 1U) == 0 &&
            strcmp(m->dir, dir) == 0) {
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

/* Bytes of the models on each device. */
static void add_up(const struct playground *p, uint64_t taken[MACHINE_DEVICES])
{
    memset(taken, 0, MACHINE_DEVICES * sizeof *taken);
    for (int i = 0; i < MODELS_MAX; i++) {
        if (p->models[i] != NULL) {
            taken[p->models[i]->device] += (uint64_t)p->models[i]->bytes;
        }
    }
}

/* Take a device with room for so many bytes: one that models are on before a free one, and of the free ones
 * the last, as jobs take the first. -1 for none, or when nothing is taken for now, which *later tells. */
static int take_device(struct playground *p, int64_t bytes, bool *later)
{
    uint64_t taken[MACHINE_DEVICES];
    int best = -1;

    add_up(p, taken);
    pthread_mutex_lock(&p->talks.lock);
    *later = !p->is_offered || p->is_held;
    for (int d = 0; d < MACHINE_DEVICES && !*later; d++) {
        const bool fits =
            (p->offer.spare >> d & 1U) != 0 && taken[d] + (uint64_t)bytes <= p->offer.room[d];
        if (fits && (best < 0 || taken[d] > 0 || taken[best] == 0)) {
            best = d;
        }
    }
    p->lent |= best >= 0 ? UINT64_C(1) << best : 0;
    pthread_mutex_unlock(&p->talks.lock);
    return best;
}

static int count_models(const struct playground *p, bool *leaving)
{
    int count = 0;

    *leaving = false;
    for (int i = 0; i < MODELS_MAX; i++) {
        const struct model_process *m = p->models[i];
        count += m != NULL;
        *leaving = (m != NULL && m->stage == MODEL_LEAVING) || *leaving;
    }
    return count;
}

/* A device for one more model of so many bytes; -1 while models in its way leave. */
static int make_place(struct playground *p, int64_t bytes, int *device, struct err *err)
{
    bool leaving = false, later = false;
    int64_t since = 0;
    const int count = count_models(p, &leaving);

    *device = count < p->settings->serve_models ? take_device(p, bytes, &later) : -1;
    if (*device >= 0 || later) {
        return 0;
    }
    if (wanted_devices(p, &since) != 0) {
        return FAIL(err, ERR_BUSY,
                    "a job needs the machine; models answer again when a device is free");
    }
    if (leaving) {
        return 0;
    }
    struct model_process *m = least_used(p);
    if (m != NULL) {
        model_leave(m, now_ms());
        return 0;
    }
    if (count > 0) {
        return FAIL(err, ERR_BUSY, "%d models are loaded and answer; try again later", count);
    }
    pthread_mutex_lock(&p->talks.lock);
    const uint64_t spare = p->offer.spare;
    pthread_mutex_unlock(&p->talks.lock);
    return spare == 0
               ? FAIL(err, ERR_BUSY,
                      "a job needs the machine; models answer again when a device is free")
               : FAIL(err, ERR_BUSY, "the model needs %.2f GiB, which no free device has now",
                      (double)bytes / 0x1p30);
}

/* Start the process where it computes next to its device; what it starts with stays with it. */
static int start_near(const struct playground *p, struct model_process *m, struct err *err)
{
    const struct cores *near = &p->machine->devices[m->device].cores;
    cpu_set_t before, wish;
    bool is_bound = false;

    CPU_ZERO(&wish);
    for (int c = 0; c < DEVICE_CORES; c++) { /* as many as a cpu_set_t has */
        if ((near->word[c / 64] >> c % 64 & 1U) != 0) {
            CPU_SET((size_t)c, &wish);
        }
    }
    if (sched_getaffinity(0, sizeof before, &before) == 0) {
        /* a described machine may have cores that this one has not: then it goes anywhere */
        is_bound = sched_setaffinity(0, sizeof wish, &wish) == 0;
    }
    const int rc = model_start(m, p->settings, p->home, err);
    if (is_bound) {
        (void)sched_setaffinity(0, sizeof before, &before);
    }
    return rc;
}

/* Start the model of a talk; *m stays NULL while it has to wait for others to leave. */
static int start_model(struct playground *p, const char *dir, struct model_process **m,
                       struct err *err)
{
    int64_t bytes = 0;
    int at = 0, device = -1;

    TRY(sizing_serve(p->settings, p->machine, dir, &bytes, err));
    while (at < MODELS_MAX && p->models[at] != NULL) {
        at++;
    }
    if (at == MODELS_MAX) {
        return 0;
    }
    TRY(make_place(p, bytes, &device, err));
    if (device < 0) {
        return 0;
    }
    struct model_process *one = calloc(1, sizeof *one);
    int rc = one == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for a model") : 0;
    if (rc == 0) {
        one->bytes = bytes;
        one->device = device;
        (void)snprintf(one->dir, sizeof one->dir, "%s", dir);
        rc = start_near(p, one, err);
    }
    if (rc != 0) {
        free(one);
        note_lent(p); /* the device was not needed */
        return rc;
    }
    log_line("%s is loaded for answers on %s by process %d", dir, p->machine->devices[device].id,
             (int)one->pid);
    p->models[at] = *m = one;
    note_lent(p);
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
    struct model_process *m = find_model(p, t->dir);
    const int rc = m == NULL ? start_model(p, t->dir, &m, &err) : 0;

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
    const uint64_t wanted = wanted_devices(p, &since);
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
            note_lent(p);
        } else if (m->stage == MODEL_LEAVING ||
                   ((wanted >> m->device & 1U) != 0 && (m->talks == 0 || grace_over))) {
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
    p->machine = inventory_machine(app->inventory);
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

uint64_t playground_hold(struct playground *p)
{
    pthread_mutex_lock(&p->talks.lock);
    p->is_held = true;
    const uint64_t lent = p->lent;
    pthread_mutex_unlock(&p->talks.lock);
    return lent;
}

void playground_lend(struct playground *p, const struct offer *offer)
{
    struct timespec until;
    int rc = 0;

    pthread_mutex_lock(&p->talks.lock);
    p->is_held = false;
    if (offer != NULL) {
        p->wanted_ms = p->offer.wanted == 0 ? now_ms() : p->wanted_ms;
        p->offer = *offer;
        p->is_offered = true;
    }
    kick(p);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ROOM_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    while ((p->offer.wanted & p->lent) != 0 && rc == 0) {
        rc = pthread_cond_timedwait(&p->left, &p->talks.lock, &until);
    }
    pthread_mutex_unlock(&p->talks.lock);
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
