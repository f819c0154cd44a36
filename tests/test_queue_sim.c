/* test_queue_sim.c - the scheduling pass through random lives of a lab, on a virtual clock.
 *
 * HONE_SEQUENCES lives are played (200 unless told otherwise); HONE_SEED plays one again. Invariants have the names of
 * the reference (I1 to I20) and are checked by counting, not by the code under test.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "server/queue.h"
#include "tests/tap.h"

enum { JOBS = 120, USERS = 5, ARRAYS = 2, WINDOWS = 3, EVENTS = 160, GRACE = 60, MIN_RUN = 300 };

enum phase { ABSENT, WAITING, RUNNING, STOPPING, ENDED };

/* A job as the lab knows it. */
struct life {
    enum phase phase;
    struct queue_job job;
    int64_t ends_at;   /* when the run ends by itself: unknown to the queue */
    int64_t stop_at;   /* when a stopping run is gone                       */
    bool requeues;     /* after it stopped                                  */
    int64_t allowed_s; /* its time limit                                    */
};

struct lab {
    uint64_t seed, state;
    int64_t now;
    struct machine machine;
    struct view view;
    uint64_t foreign[MACHINE_DEVICES]; /* bytes that others hold */
    struct life lives[JOBS];
    int count;
    struct queue_user users[USERS];
    struct queue_array arrays[ARRAYS];
    struct queue_window windows[WINDOWS];
    int window_count;
    bool preempts;
    /* the head of the pass before, and whether something since excuses a later start */
    int64_t head_seq, head_at;
    bool disturbed;
};

static int failures;

#define HOLDS(l, name, cond)                                                                   \
    do {                                                                                       \
        if (!(cond) && failures++ < 20) {                                                      \
            printf("# HONE_SEED=%llu t=%lld line %d: %s: %s\n", (unsigned long long)(l)->seed, \
                   (long long)(l)->now, __LINE__, name, #cond);                                \
        }                                                                                      \
    } while (0)

static uint32_t pick(struct lab *l, uint32_t below)
{
    l->state = l->state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(l->state >> 33) % below;
}

static bool chance(struct lab *l, uint32_t percent)
{
    return pick(l, 100) < percent;
}

static int bits(uint64_t set)
{
    return __builtin_popcountll(set);
}

static void found_lab(struct lab *l, uint64_t seed)
{
    memset(l, 0, sizeof *l);
    l->seed = seed;
    l->state = seed * 2862933555777941757U + 3037000493U;
    l->now = 1000000;
    l->machine.device_count = 1 + (int)pick(l, 8);
    l->view.machine = &l->machine;
    for (int i = 0; i < l->machine.device_count; i++) {
        l->machine.devices[i].is_usable = true;
        l->view.good |= UINT64_C(1) << i;
        l->view.room[i] = l->view.capacity[i] = 100 + 100 * pick(l, 2);
        for (int k = 0; k < i; k++) {
            const enum link_kind kind = chance(l, 30) ? LINK_NVLINK : LINK_SYS;
            l->machine.links[i][k] = l->machine.links[k][i] =
                (struct link){.kind = kind, .count = kind == LINK_NVLINK ? 4 : 0};
        }
    }
    for (int i = 0; i < USERS; i++) {
        l->users[i].id = i + 1;
        l->users[i].max_running = chance(l, 30) ? 1 + (int)pick(l, 3) : 0;
        l->users[i].max_devices = chance(l, 30) ? 1 + (int)pick(l, 6) : 0;
    }
    for (int i = 0; i < ARRAYS; i++) {
        l->arrays[i] = (struct queue_array){i + 1, (int)pick(l, 3)};
    }
    l->preempts = chance(l, 70);
    l->head_seq = -1;
}

static void submit(struct lab *l)
{
    if (l->count == JOBS) {
        return;
    }
    struct life *x = &l->lives[l->count];
    const int64_t limit = 60 * (1 + pick(l, 120));
    *x = (struct life){.phase = WAITING, .allowed_s = limit};
    x->job = (struct queue_job){.seq = l->count + 1,
                                .user = (int)pick(l, USERS),
                                .array = chance(l, 20) ? (int)pick(l, ARRAYS) : -1,
                                .class = (enum queue_class)(chance(l, 60) ? 1 : (int)pick(l, 4)),
                                .need = {1 + (int)pick(l, (uint32_t)l->machine.device_count), 0},
                                .ticket = l->now,
                                .line = l->count + 1,
                                .limit_s = limit,
                                .likely_s = limit,
                                .begin_at = chance(l, 5) ? l->now + 600 : 0,
                                .preemptible = chance(l, 50)};
    x->job.need.bytes = chance(l, 20) ? 150 : 50;
    if (chance(l, 60)) {
        x->job.need.devices = 1;
    }
    if (chance(l, 5) && l->count > 0) {
        const struct life *parent = &l->lives[pick(l, (uint32_t)l->count)];
        x->job.parent = parent->phase == ENDED ? 0 : parent->job.seq;
    }
    l->count++;
    l->disturbed = true;
}

/* Others' memory is known also where runs of ours are: it is not what these will leave. */
static void show_room(struct lab *l)
{
    for (int i = 0; i < l->machine.device_count; i++) {
        const uint64_t all = l->view.capacity[i], others = l->foreign[i];
        l->view.room[i] = all > others ? all - others : 0;
    }
}

static void end_run(struct lab *l, struct life *x, bool requeue)
{
    x->job.held = 0;
    x->job.is_stopping = false;
    x->phase = requeue ? WAITING : ENDED;
    l->disturbed = l->disturbed || requeue;
    for (int i = 0; i < l->count && !requeue; i++) {
        if (l->lives[i].job.parent == x->job.seq) {
            l->lives[i].job.parent = 0;
            l->disturbed = true;
        }
    }
}

static void stop_run(struct lab *l, struct life *x, bool requeue)
{
    x->phase = STOPPING;
    x->requeues = requeue;
    x->job.is_stopping = true;
    if (x->job.free_at > l->now + GRACE) {
        x->job.free_at = l->now + GRACE;
    }
    x->stop_at = l->now + pick(l, GRACE + 1);
}

/* What users and fate do between passes. */
static void disturb(struct lab *l)
{
    struct life *x = l->count > 0 ? &l->lives[pick(l, (uint32_t)l->count)] : NULL;
    const uint32_t what = pick(l, 100);
    const int device = (int)pick(l, (uint32_t)l->machine.device_count);

    if (what < 45 || x == NULL) {
        submit(l);
    } else if (what < 55) {
        if (x->phase == WAITING) { /* cancelled */
            end_run(l, x, false);
        } else if (x->phase == RUNNING) {
            stop_run(l, x, chance(l, 30));
        }
    } else if (what < 62 && x->phase == RUNNING) { /* fails, and is tried again at times */
        end_run(l, x, chance(l, 50));
    } else if (what < 66) {
        l->users[pick(l, USERS)].max_running = (int)pick(l, 4);
        l->disturbed = true;
    } else if (what < 70) {
        l->view.good ^= UINT64_C(1) << device;
        l->disturbed = true;
    } else if (what < 73) {
        l->view.busy ^= UINT64_C(1) << device;
        l->disturbed = true;
    } else if (what < 76) {
        l->foreign[device] = chance(l, 50) ? 0 : 60 * (1 + pick(l, 3));
        l->disturbed = true;
    } else if (what < 79 && l->window_count < WINDOWS) {
        l->windows[l->window_count++] = (struct queue_window){
            l->now + pick(l, 3600), l->now + 3600 + pick(l, 3600),
            1 + pick(l, (1U << l->machine.device_count) - 1), (int)pick(l, USERS + 1) - 1};
        l->disturbed = true;
    } else if (what < 82 && x->phase == WAITING) {
        x->job.line = (int64_t)pick(l, JOBS);
        l->disturbed = true;
    }
}

/* The clock moves to the next thing that happens, or a little. */
static void pass_time(struct lab *l)
{
    const int64_t next = l->now + 1 + pick(l, chance(l, 80) ? 300 : 7200);

    /* honed looks at the queue when the head's time has come */
    l->now = l->head_seq > 0 && l->head_at > l->now && l->head_at < next ? l->head_at : next;
    for (int i = 0; i < l->count; i++) {
        struct life *x = &l->lives[i];
        if (x->phase == RUNNING && x->ends_at <= l->now) {
            end_run(l, x, false);
        } else if (x->phase == RUNNING && l->now - x->job.started_at >= x->job.limit_s) {
            stop_run(l, x, false); /* the time limit */
        }
        if (x->phase == STOPPING && (x->stop_at <= l->now || x->job.free_at <= l->now)) {
            end_run(l, x, x->requeues);
        }
    }
    for (int i = l->window_count - 1; i >= 0; i--) {
        if (l->windows[i].to <= l->now) {
            l->windows[i] = l->windows[--l->window_count];
        }
    }
}

/* ---- independent answers ---- */

static uint64_t held_now(const struct lab *l)
{
    uint64_t set = 0;

    for (int i = 0; i < l->count; i++) {
        set |= l->lives[i].job.held;
    }
    return set;
}

static uint64_t kept_at(const struct lab *l, const struct queue_job *j, int64_t at)
{
    uint64_t set = 0;

    for (int i = 0; i < l->window_count; i++) {
        const struct queue_window *w = &l->windows[i];
        if (w->user != j->user && w->from < at + j->limit_s + GRACE && w->to > at) {
            set |= w->devices;
        }
    }
    return set;
}

static uint64_t kept_from(const struct lab *l, const struct queue_job *j)
{
    return kept_at(l, j, l->now);
}

static bool enough(const struct lab *l, const struct queue_job *j, uint64_t from)
{
    int n = 0;

    for (int i = 0; i < l->machine.device_count; i++) {
        const bool in = ((from & l->view.good & ~l->view.busy) >> i & 1) != 0;
        n += in && l->view.room[i] >= j->need.bytes;
    }
    return n >= j->need.devices;
}

static int running_of(const struct lab *l, int user, int array, bool devices)
{
    int n = 0;

    for (int i = 0; i < l->count; i++) {
        const struct queue_job *j = &l->lives[i].job;
        if (j->held != 0 && (user < 0 || j->user == user) && (array < 0 || j->array == array)) {
            n += devices ? bits(j->held) : 1;
        }
    }
    return n;
}

static bool within_limits(const struct lab *l, const struct queue_job *j)
{
    const struct queue_user *u = &l->users[j->user];

    return (u->max_running == 0 || running_of(l, j->user, -1, false) < u->max_running) &&
           (u->max_devices == 0 ||
            running_of(l, j->user, -1, true) + j->need.devices <= u->max_devices) &&
           (j->array < 0 || l->arrays[j->array].max_running == 0 ||
            running_of(l, -1, j->array, false) < l->arrays[j->array].max_running);
}

static bool is_eligible(const struct lab *l, const struct life *x)
{
    return x->phase == WAITING && x->job.parent == 0 && x->job.begin_at <= l->now &&
           within_limits(l, &x->job);
}

/* ---- the pass and its checks ---- */

static void check_start(struct lab *l, const struct queue_start *s, const int *index)
{
    const struct queue_job *j = &l->lives[index[s->job]].job;

    HOLDS(l, "I1", (s->devices & held_now(l)) == 0);
    HOLDS(l, "I2", bits(s->devices) == j->need.devices);
    HOLDS(l, "I20", (s->devices & ~(l->view.good & ~l->view.busy)) == 0);
    HOLDS(l, "memory", enough(l, j, s->devices));
    HOLDS(l, "I12 I14", within_limits(l, j));
    HOLDS(l, "I13", j->parent == 0 && j->begin_at <= l->now);
    HOLDS(l, "I18", (s->devices & kept_from(l, j)) == 0);
}

static void apply_start(struct lab *l, const struct queue_start *s, const int *index)
{
    struct life *x = &l->lives[index[s->job]];

    x->phase = RUNNING;
    x->job.held = s->devices;
    x->job.started_at = l->now;
    x->job.free_at = l->now + x->job.limit_s + GRACE;
    x->job.likely_at = x->job.free_at;
    x->ends_at = chance(l, 30) ? INT64_MAX : l->now + 1 + pick(l, (uint32_t)x->job.limit_s);
}

static void apply_preempt(struct lab *l, const struct queue_leave *leave,
                          const struct queue_plan *p, const int *index)
{
    struct life *x = &l->lives[index[leave->run]];

    HOLDS(l, "I10 class", l->lives[index[leave->job]].job.class < x->job.class);
    HOLDS(l, "I10 cause", p->waits[leave->job].why == WAIT_FREEING);
    HOLDS(l, "I10 preemptible", x->job.preemptible && x->phase == RUNNING);
    HOLDS(l, "I10 minimum", l->now - x->job.started_at >= MIN_RUN);
    HOLDS(l, "I10 times", x->job.preemptions < 2);
    x->job.preemptions++;
    stop_run(l, x, true);
}

/* I5: nobody who could run without harm to the head waits. */
static void check_work(struct lab *l, const struct queue_plan *p, const int *index)
{
    bool is_freeing = p->preempt_count > 0;

    for (int i = 0; i < l->count; i++) {
        is_freeing = is_freeing || l->lives[i].phase == STOPPING;
    }
    if (is_freeing) {
        return;
    }
    const struct life *head = p->head >= 0 ? &l->lives[index[p->head]] : NULL;
    for (int i = 0; i < l->count; i++) {
        const struct life *x = &l->lives[i];
        const uint64_t free = ~held_now(l) & ~kept_from(l, &x->job);
        if (!is_eligible(l, x) || x == head) {
            continue;
        }
        if (head == NULL) {
            HOLDS(l, "I5", !enough(l, &x->job, free));
            continue;
        }
        const bool in_time = l->now + x->job.limit_s + GRACE <= p->head_at;
        const bool apart =
            x->job.user != head->job.user && (x->job.array < 0 || x->job.array != head->job.array);
        HOLDS(l, "I5 behind", !apart || !enough(l, &x->job, free & ~p->head_devices));
        HOLDS(l, "I5 in time", !apart || !in_time || !enough(l, &x->job, free));
    }
}

/* I6: the same head, undisturbed, is never put off, and starts in time. */
static bool is_overtaken(const struct lab *l, const struct queue_plan *p, const int *index)
{
    for (int i = 0; i < p->waiting; i++) {
        const enum wait_reason why = p->waits[p->order[i]].why;
        if (l->lives[index[p->order[i]]].job.seq == l->head_seq) {
            return false;
        }
        if (why == WAIT_NOT || why >= WAIT_WINDOW) {
            return true;
        }
    }
    return false;
}

static void check_head(struct lab *l, const struct queue_plan *p, const int *index)
{
    const int64_t seq = p->head >= 0 ? l->lives[index[p->head]].job.seq : -1;

    if (l->head_seq > 0 && !l->disturbed && !is_overtaken(l, p, index)) {
        const struct life *before = &l->lives[l->head_seq - 1];
        if (before->phase == WAITING) {
            HOLDS(l, "I6 head stays", seq == l->head_seq);
            HOLDS(l, "I6 put off", seq != l->head_seq || p->head_at <= l->head_at);
            HOLDS(l, "I6 late", l->now < l->head_at);
        }
    }
    l->head_seq = seq;
    l->head_at = p->head_at;
    l->disturbed = false;
}

/* I8: of one user's jobs of one shape the first in line goes first. */
static void check_order(struct lab *l, const struct queue_plan *p, const int *index)
{
    for (int s = 0; s < p->start_count; s++) {
        const struct queue_job *a = &l->lives[index[p->starts[s].job]].job;
        for (int i = 0; i < l->count; i++) {
            const struct queue_job *b = &l->lives[i].job;
            if (l->lives[i].phase == WAITING && b->user == a->user && b->class == a->class &&
                b->array == a->array && b->need.devices == a->need.devices &&
                b->need.bytes == a->need.bytes && b->limit_s == a->limit_s && b->parent == 0 &&
                b->begin_at <= l->now) {
                HOLDS(l, "I8", b->line > a->line || (b->line == a->line && b->seq > a->seq));
            }
        }
    }
}

/* I9: the head does not wait where those of worse classes hold what it needs. */
static void check_priority(struct lab *l, const struct queue_plan *p, const int *index)
{
    if (p->head < 0 || !l->preempts) {
        return;
    }
    const struct queue_job *h = &l->lives[index[p->head]].job;
    uint64_t from = ~held_now(l);
    for (int i = 0; i < l->count; i++) {
        const struct life *x = &l->lives[i];
        const bool may = x->phase == RUNNING && x->job.class > h->class && x->job.preemptible &&
                         x->job.preemptions < 2 && l->now - x->job.started_at >= MIN_RUN;
        from |= may || x->phase == STOPPING ? x->job.held : 0;
    }
    if (enough(l, h, from & ~kept_from(l, h) & ~kept_at(l, h, l->now + GRACE))) {
        HOLDS(l, "I9", p->waits[p->head].why == WAIT_FREEING || p->head_at <= l->now + GRACE);
    }
}

static bool same_plan(const struct queue_plan *a, const struct queue_plan *b)
{
    bool same = a->start_count == b->start_count && a->preempt_count == b->preempt_count &&
                a->waiting == b->waiting && a->head == b->head && a->head_at == b->head_at &&
                a->head_devices == b->head_devices;

    for (int i = 0; same && i < a->start_count; i++) {
        same = a->starts[i].job == b->starts[i].job && a->starts[i].devices == b->starts[i].devices;
    }
    for (int i = 0; same && i < a->preempt_count; i++) {
        same = a->preempts[i].run == b->preempts[i].run && a->preempts[i].job == b->preempts[i].job;
    }
    for (int i = 0; same && i < a->waiting; i++) {
        const struct queue_wait *x = &a->waits[a->order[i]], *y = &b->waits[b->order[i]];
        same = a->order[i] == b->order[i] && x->why == y->why && x->number == y->number &&
               x->at == y->at && x->other == y->other && x->device == y->device &&
               x->expected_at == y->expected_at;
    }
    return same;
}

static void check_waits(struct lab *l, const struct queue_plan *p, const int *index)
{
    for (int i = 0; i < p->waiting; i++) {
        const struct queue_wait *w = &p->waits[p->order[i]];
        HOLDS(l, "position", w->position == i + 1);
        const struct queue_job *j = &l->lives[index[p->order[i]]].job;
        const int most = l->users[j->user].max_devices;
        const bool can_ever = enough(l, j, ~UINT64_C(0)) && (most == 0 || j->need.devices <= most);
        HOLDS(l, "expected now", (w->expected_at == l->now) == (w->why == WAIT_NOT));
        HOLDS(l, "expected", w->expected_at == 0 || w->expected_at >= l->now);
        HOLDS(l, "expected", w->expected_at > 0 || w->why == WAIT_DEPENDENCY || !can_ever);
        HOLDS(l, "expected", w->expected_at >= j->begin_at || w->expected_at == 0);
    }
}

static void run_pass(struct lab *l)
{
    struct queue_job jobs[JOBS];
    int index[JOBS], n = 0;
    struct queue_plan p, again;
    struct err err = {0};

    show_room(l);
    for (int i = 0; i < l->count; i++) {
        if (l->lives[i].phase != ENDED) {
            index[n] = i;
            jobs[n++] = l->lives[i].job;
        }
    }
    const struct queue_input in = {.now = l->now,
                                   .view = l->view,
                                   .job_count = n,
                                   .user_count = USERS,
                                   .array_count = ARRAYS,
                                   .window_count = l->window_count,
                                   .jobs = jobs,
                                   .users = l->users,
                                   .arrays = l->arrays,
                                   .windows = l->windows,
                                   .preempts = l->preempts,
                                   .min_run_s = MIN_RUN,
                                   .max_preemptions = 2,
                                   .grace_s = GRACE,
                                   .forecast = 50};
    CHECK(queue_pass(&p, &in, &err) == 0 && queue_pass(&again, &in, &err) == 0, "%s", err.text);
    HOLDS(l, "I16", same_plan(&p, &again));
    check_waits(l, &p, index);
    for (int i = 0; i < p.start_count; i++) {
        check_start(l, &p.starts[i], index);
        apply_start(l, &p.starts[i], index);
    }
    check_priority(l, &p, index);
    check_order(l, &p, index);
    check_work(l, &p, index);
    check_head(l, &p, index);
    for (int i = 0; i < p.preempt_count; i++) {
        apply_preempt(l, &p.preempts[i], &p, index);
    }
    queue_plan_free(&p);
    queue_plan_free(&again);
}

static void play(uint64_t seed)
{
    static struct lab lab;

    found_lab(&lab, seed);
    for (int i = 0; i < EVENTS; i++) {
        const uint32_t deeds = pick(&lab, 4);
        for (uint32_t k = 0; k < deeds; k++) {
            disturb(&lab);
        }
        run_pass(&lab);
        pass_time(&lab);
    }
}

static uint64_t number_of(const char *name, uint64_t preset)
{
    const char *text = getenv(name);

    return text == NULL ? preset : strtoull(text, NULL, 10);
}

static void no_life_of_a_lab_breaks_a_rule(void)
{
    const uint64_t sequences = number_of("HONE_SEQUENCES", 200), one = number_of("HONE_SEED", 0);

    for (uint64_t i = 0; i < sequences && one == 0; i++) {
        play(i + 1);
    }
    if (one != 0) {
        play(one);
    }
    printf("# %llu lives\n", (unsigned long long)(one == 0 ? sequences : 1));
    EXPECT(failures == 0);
}

int main(void)
{
    RUN(no_life_of_a_lab_breaks_a_rule);
    return tap_done();
}
