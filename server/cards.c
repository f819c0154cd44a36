/* cards.c - the thread that asks the driver of NVIDIA's cards. */
#include "server/cards.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/log.h"
#include "server/nvml.h"
#include "server/spawn.h"
#include "server/topo.h"
#include "trainer/base/clock.h"

enum { OPEN_S = 20, WAIT_S = 2, SILENT_S = 60, CLOSE_S = 2, TOPO_S = 10, PATH = 1024 };

struct cards {
    char jobs[PATH];
    int first, end; /* devices that are cards; set before the thread is waited for */
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct machine *machine; /* owned; the thread's until `described`, then read only */
    bool described, has_cards, closing, ended, is_silent;
    uint64_t asked, answered;
    double asked_at; /* seconds; of the oldest request that has no answer */
    struct device_now now[MACHINE_DEVICES];
    int64_t forgiven[MACHINE_DEVICES]; /* errors */
};

/* A program of PATH; false when there is none. */
static bool find_program(char out[PATH], const char *name)
{
    const char *at = getenv("PATH");

    while (at != NULL && *at != '\0') {
        const size_t n = strcspn(at, ":");
        (void)snprintf(out, PATH, "%.*s/%s", (int)(n < PATH / 2 ? n : 0), at, name);
        if (n > 0 && access(out, X_OK) == 0) {
            return true;
        }
        at += n + (at[n] == ':' ? 1 : 0);
    }
    return false;
}

/* All that arrives until the end or the deadline, as text. */
static char *read_until(int fd, double deadline)
{
    char *text = malloc(TOPO_BYTES + 1);
    size_t n = 0;
    ssize_t got = 1;

    while (text != NULL && got > 0 && n < TOPO_BYTES) {
        struct pollfd on = {.fd = fd, .events = POLLIN};
        const double left = deadline - clock_seconds();
        if (left <= 0.0 || (poll(&on, 1, (int)(left * 1000.0) + 1) < 0 && errno != EINTR)) {
            break;
        }
        got = on.revents != 0 ? read(fd, text + n, TOPO_BYTES - n) : 1;
        n += on.revents != 0 && got > 0 ? (size_t)got : 0;
    }
    if (text != NULL) {
        text[n] = '\0';
    }
    return text;
}

/* What `nvidia-smi topo -m` prints; NULL when it can't be run. For free(). */
static char *run_topo(void)
{
    char program[PATH], topo[] = "topo", matrix[] = "-m";
    char *arguments[] = {program, topo, matrix, NULL};
    struct err ignored = {0};
    int ends[2], status;
    pid_t pid = 0;
    char *text = NULL;

    if (!find_program(program, "nvidia-smi") || pipe2(ends, O_CLOEXEC) != 0) {
        return NULL;
    }
    const int rc = spawn_tool(&pid, arguments, ends[1], &ignored);
    (void)close(ends[1]);
    if (rc == 0) {
        text = read_until(ends[0], clock_seconds() + TOPO_S);
        (void)kill(-pid, SIGKILL); /* it has ended, or has to */
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    (void)close(ends[0]);
    return text;
}

static bool lacks_links(const struct machine *m, int first)
{
    for (int i = first; i < m->device_count; i++) {
        for (int j = first; j < m->device_count; j++) {
            if (m->links[i][j].kind == LINK_NONE && !m->devices[i].mig && !m->devices[j].mig) {
                return true;
            }
        }
    }
    return false;
}

/* Links by the second source. */
static void complete_links(struct machine *m, int first)
{
    struct topo *t = lacks_links(m, first) ? calloc(1, sizeof *t) : NULL;
    char *text = t != NULL ? run_topo() : NULL;
    struct err err = {0};

    if (text != NULL && (topo_parse(t, text, &err) != 0 || topo_apply(m, t, &err) != 0)) {
        log_line("machine: nvidia-smi topo -m: %s", err.text);
    }
    links_mark_switches(m);
    free(text);
    free(t);
}

static struct nvml *describe(struct cards *c)
{
    struct nvml *n = NULL;
    struct err err = {0};

    int rc = nvml_open(&n, getenv("HONE_NVML"), &err);
    rc = rc != 0 ? rc : nvml_describe(n, c->machine, "", &err);
    if (rc == 0) {
        complete_links(c->machine, c->first);
    } else if (rc != ERR_NOT_FOUND) {
        log_line("machine: %s", err.text);
    }
    if (rc != 0 || c->machine->device_count == c->first) {
        nvml_close(n);
        n = NULL;
    }
    pthread_mutex_lock(&c->lock);
    c->end = c->machine->device_count;
    c->described = true;
    c->has_cards = n != NULL;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return n;
}

static void *ask_for_ever(void *argument)
{
    struct cards *c = argument;
    struct nvml *n = describe(c);
    struct device_now *now = calloc(MACHINE_DEVICES, sizeof *now);

    pthread_mutex_lock(&c->lock);
    while (n != NULL && now != NULL && !c->closing) {
        if (c->answered == c->asked) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        const uint64_t asked = c->asked;
        pthread_mutex_unlock(&c->lock);
        nvml_read(n, c->machine, c->jobs, now);
        pthread_mutex_lock(&c->lock);
        memcpy(c->now, now, sizeof c->now);
        c->answered = asked;
        c->asked_at = clock_seconds();
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    nvml_close(n);
    free(now);
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Wait with the lock held until *done or the time is over. */
static void wait_for(struct cards *c, const bool *done, int seconds)
{
    struct timespec until;
    int rc = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    while (!*done && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    }
}

static void free_cards(struct cards *c)
{
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->machine);
    free(c);
}

void cards_close(struct cards *c)
{
    if (c == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->changed);
    wait_for(c, &c->ended, CLOSE_S);
    const bool ended = c->ended;
    pthread_mutex_unlock(&c->lock);
    if (!ended) {
        (void)pthread_detach(c->thread); /* it is stuck in the driver, and what it uses with it */
        return;
    }
    (void)pthread_join(c->thread, NULL);
    free_cards(c);
}

int cards_open(struct cards **out, struct machine *m, const char *jobs, struct err *err)
{
    struct cards *c = calloc(1, sizeof *c);
    pthread_condattr_t monotonic;

    *out = NULL;
    if (c == NULL || (c->machine = malloc(sizeof *c->machine)) == NULL) {
        free(c);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a list of cards");
    }
    *c->machine = *m;
    c->first = c->end = m->device_count;
    (void)snprintf(c->jobs, sizeof c->jobs, "%s", jobs);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&c->thread, NULL, ask_for_ever, c) != 0) {
        free_cards(c);
        return FAIL(err, ERR_NO_MEMORY, "no thread for the list of cards");
    }
    pthread_mutex_lock(&c->lock);
    wait_for(c, &c->described, OPEN_S);
    const bool answers = c->described, has_cards = c->has_cards;
    if (has_cards) {
        *m = *c->machine;
    }
    pthread_mutex_unlock(&c->lock);
    if (!answers) {
        log_line("machine: the driver of NVIDIA's cards does not answer; they are left out");
    }
    if (!has_cards) {
        cards_close(c);
        return 0;
    }
    *out = c;
    return 0;
}

static void read_one(struct cards *c, int i, double silent, struct device_now *out)
{
    *out = c->now[i];
    if (out->ecc_errors < c->forgiven[i]) {
        c->forgiven[i] = 0; /* the driver was loaded again */
    }
    if (silent > SILENT_S) {
        out->fault = FAULT_LOST;
        (void)snprintf(out->fault_text, sizeof out->fault_text,
                       "the driver has not answered for a minute");
    } else if (out->fault == FAULT_ECC && out->ecc_errors <= c->forgiven[i]) {
        out->fault = FAULT_NONE;
        out->fault_text[0] = '\0';
    }
}

void cards_read(struct cards *c, struct device_now now[MACHINE_DEVICES])
{
    struct timespec until;
    int rc = 0;

    if (c == NULL) {
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WAIT_S;
    pthread_mutex_lock(&c->lock);
    if (c->asked == c->answered) {
        c->asked_at = clock_seconds();
    }
    const uint64_t mine = ++c->asked;
    pthread_cond_broadcast(&c->changed);
    while (c->answered < mine && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    }
    const bool is_silent = c->answered < mine;
    const double silent = is_silent ? clock_seconds() - c->asked_at : 0.0;
    const bool is_news = is_silent != c->is_silent;
    c->is_silent = is_silent;
    for (int i = c->first; i < c->end; i++) {
        read_one(c, i, silent, &now[i]);
    }
    pthread_mutex_unlock(&c->lock);
    if (is_news) {
        log_line(is_silent ? "machine: the driver of NVIDIA's cards does not answer; what it said "
                             "last counts"
                           : "machine: the driver of NVIDIA's cards answers again");
    }
}

void cards_forgive(struct cards *c, int device, int64_t errors)
{
    if (c == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->forgiven[device] = errors;
    pthread_mutex_unlock(&c->lock);
}
