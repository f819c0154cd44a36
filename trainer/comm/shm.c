/* shm.c - the memory, bells and sleep, groups. */
#include "trainer/comm/shm.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/comm/shm_inside.h"

enum { SPINS = 200, NAP_MS = 100, WHY = 400 };

struct shm {
    struct shm_sizes sizes;
    size_t bytes, slots_at, channels_at;
    _Alignas(SHM_LINE) unsigned char memory[];
};

static size_t slot_bytes(const struct shm_sizes *s)
{
    return sizeof(struct slot) + s->slab;
}

static size_t channel_bytes(const struct shm_sizes *s)
{
    return sizeof(struct channel) + SHM_DEEP * s->slab;
}

size_t shm_bytes(const struct shm_sizes *s)
{
    const size_t ranks = (size_t)s->ranks;

    return sizeof(struct shm) + ranks * sizeof(struct bell) +
           ranks * (size_t)s->kinds * slot_bytes(s) + ranks * (size_t)s->peers * channel_bytes(s);
}

int shm_make(struct shm **out, const struct shm_sizes *sizes, struct err *err)
{
    const size_t bytes = shm_bytes(sizes), ranks = (size_t)sizes->ranks;

    CHECK(sizes->ranks >= 1 && sizes->slab % SHM_LINE == 0 && sizes->slab >= SHM_LINE * ranks,
          "a slab of %zu bytes for %d ranks", sizes->slab, sizes->ranks);
    struct shm *s = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) {
        return FAIL(err, ERR_NO_MEMORY, "no %zu bytes of shared memory for %d ranks: %s", bytes,
                    sizes->ranks, strerror(errno));
    }
    s->sizes = *sizes;
    s->bytes = bytes;
    s->slots_at = ranks * sizeof(struct bell);
    s->channels_at = s->slots_at + ranks * (size_t)sizes->kinds * slot_bytes(sizes);
    *out = s;
    return 0;
}

void shm_free(struct shm *s)
{
    if (s != NULL) {
        (void)munmap(s, s->bytes);
    }
}

struct bell *shm_bell(struct shm *s, int rank)
{
    return (struct bell *)(void *)(s->memory + (size_t)rank * sizeof(struct bell));
}

struct slot *shm_slot(struct shm *s, int kind, int rank)
{
    const size_t n = (size_t)kind * (size_t)s->sizes.ranks + (size_t)rank;

    return (struct slot *)(void *)(s->memory + s->slots_at + n * slot_bytes(&s->sizes));
}

struct channel *shm_channel(struct shm *s, int from, int peer)
{
    const size_t n = (size_t)from * (size_t)s->sizes.peers + (size_t)peer;

    return (struct channel *)(void *)(s->memory + s->channels_at + n * channel_bytes(&s->sizes));
}

static void ring(struct bell *b)
{
    if (atomic_load(&b->sleeping) != 0) {
        atomic_fetch_add(&b->rung, 1);
        (void)syscall(SYS_futex, &b->rung, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

void shm_ring(const struct group *g)
{
    for (int i = 0; i < g->size; i++) {
        if (i != g->rank) {
            ring(shm_bell(g->owner->shm, g->members[i]));
        }
    }
}

void shm_mark_lost(struct shm *s, int rank)
{
    atomic_store(&shm_bell(s, rank)->lost, 1);
    for (int i = 0; i < s->sizes.ranks; i++) {
        struct bell *b = shm_bell(s, i);
        atomic_fetch_add(&b->rung, 1);
        (void)syscall(SYS_futex, &b->rung, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int shm_join(struct shm_rank **out, struct shm *s, int rank, const struct kernels *k,
             int timeout_ms, shm_end *end, void *context, struct err *err)
{
    struct shm_rank *r = calloc(1, sizeof *r);

    CHECK(rank >= 0 && rank < s->sizes.ranks, "rank %d of %d", rank, s->sizes.ranks);
    if (r == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a rank");
    }
    *r = (struct shm_rank){
        .shm = s, .rank = rank, .timeout_ms = timeout_ms, .k = k, .end = end, .context = context};
    for (int kind = 0; kind < s->sizes.kinds; kind++) {
        memset(shm_slot(s, kind, rank)->slab, 0, s->sizes.slab);
    }
    for (int peer = 0; peer < s->sizes.peers; peer++) {
        memset(shm_channel(s, rank, peer)->slab, 0, SHM_DEEP * s->sizes.slab);
    }
    *out = r;
    return 0;
}

void shm_leave(struct shm_rank *r)
{
    CHECK(r == NULL || r->groups == NULL, "a rank leaves before its groups");
    free(r);
}

static bool step_all(struct shm_rank *r)
{
    bool moved = false;

    for (struct group *g = r->groups; g != NULL; g = g->next) {
        moved = shm_step_group(g) || moved;
        moved = shm_step_messages(g) || moved;
    }
    return moved;
}

/* Sleep until a bell rings, or a moment, unless something moves at the last look. */
static void sleep_on_bell(struct shm_rank *r)
{
    static const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
    struct bell *b = shm_bell(r->shm, r->rank);
    const uint32_t seen = atomic_load(&b->rung);

    atomic_store(&b->sleeping, 1);
    if (!step_all(r)) {
        (void)syscall(SYS_futex, &b->rung, FUTEX_WAIT, seen, &nap, NULL, 0);
    }
    atomic_store(&b->sleeping, 0);
}

/* Whom the first operation of a line waits for. */
static bool is_missing(const struct group *g, const struct comm_order *o, int member)
{
    if (member == g->rank) {
        return false;
    }
    if (o->kind == COMM_SEND || o->kind == COMM_RECV) {
        return member == o->peer;
    }
    const uint64_t wanted = g->round * 3 + (uint64_t)g->step;
    return atomic_load(&g->slots[member]->phase) < wanted;
}

/* End the rank when it waits in vain. */
static void check_peers(const struct group *g, const struct comm_order *o, int64_t since_ms)
{
    const bool late = now_ms() - since_ms > g->owner->timeout_ms;
    char why[WHY];
    int missing = 0;

    int n = snprintf(why, sizeof why, "rank %d waits in the %s of its %s group for rank",
                     g->owner->rank, comm_kind_name(o->kind), g->name);
    bool lost = false;
    for (int i = 0; i < g->size; i++) {
        const bool dead = atomic_load(&shm_bell(g->owner->shm, g->members[i])->lost) != 0;
        if (is_missing(g, o, i) && (dead || late) && n < WHY - 64) {
            n += snprintf(why + n, sizeof why - (size_t)n, "%s %d%s", missing++ == 0 ? "" : ",",
                          g->members[i], dead ? " (lost)" : "");
            lost = lost || dead;
        }
    }
    if (missing > 0) {
        if (!lost) {
            (void)snprintf(why + n, sizeof why - (size_t)n, ", not heard of for %g s",
                           g->owner->timeout_ms / 1000.0);
        }
        g->owner->end(g->owner->context, why);
        CHECK(false, "a rank goes on without its peers");
    }
}

/* Where an order stands in line, and what its number is there: tickets say both. */
static struct line *line_of(struct group *g, const struct comm_order *o)
{
    return o->kind == COMM_SEND   ? &g->sends[o->peer]
           : o->kind == COMM_RECV ? &g->takes[o->peer]
                                  : &g->line;
}

enum { LINE_BITS = 14 }; /* of a ticket: 0 the group's, 2p+1 sends to p, 2p+2 from p */

static comm_ticket start(struct comm *c, struct queue *q, const struct comm_order *o)
{
    struct group *g = c->impl;
    struct line *l = line_of(g, o);
    const uint64_t which = o->kind == COMM_SEND   ? 2 * (uint64_t)o->peer + 1
                           : o->kind == COMM_RECV ? 2 * (uint64_t)o->peer + 2
                                                  : 0;

    (void)q;
    CHECK(which == 0 || g->out != NULL, "the %s group sends no messages", g->name);
    CHECK(l->started - l->ended < SHM_PENDING, "%d operations at a time", SHM_PENDING);
    l->of[l->started % SHM_PENDING] = (struct pending){.order = *o};
    l->started++;
    (void)step_all(g->owner);
    return l->started << LINE_BITS | which;
}

static void wait_for(struct comm *c, struct queue *q, comm_ticket ticket)
{
    struct group *g = c->impl;
    const uint64_t which = ticket & ((1U << LINE_BITS) - 1), number = ticket >> LINE_BITS;
    struct line *l = which == 0       ? &g->line
                     : which % 2 == 1 ? &g->sends[which / 2]
                                      : &g->takes[which / 2 - 1];
    int64_t since = 0;
    int idle = 0;

    (void)q;
    while (l->ended < number) {
        if (step_all(g->owner)) {
            idle = 0;
            since = 0;
        } else if (++idle < SPINS) {
            __builtin_ia32_pause();
        } else {
            since = since == 0 ? now_ms() : since;
            check_peers(g, &l->of[l->ended % SHM_PENDING].order, since);
            sleep_on_bell(g->owner);
        }
    }
}

static void free_group(struct group *g)
{
    free(g->members);
    free(g->slots);
    free(g->out);
    free(g->in);
    free(g->sends);
    free(g->takes);
    free(g);
}

static void close_group(struct comm *c)
{
    struct group *g = c->impl;
    struct group **at = &g->owner->groups;

    CHECK(g->line.started == g->line.ended, "operations of the %s group are under way", g->name);
    while (*at != g) {
        at = &(*at)->next;
    }
    *at = g->next;
    free_group(g);
    c->impl = NULL;
}

static bool take_memory(struct group *g, bool sends)
{
    const size_t n = (size_t)g->size;

    g->members = calloc(n, sizeof *g->members);
    g->slots = calloc(n, sizeof(struct slot *));
    if (sends) {
        g->out = calloc(n, sizeof(struct channel *));
        g->in = calloc(n, sizeof(struct channel *));
        g->sends = calloc(n, sizeof *g->sends);
        g->takes = calloc(n, sizeof *g->takes);
    }
    return g->members != NULL && g->slots != NULL &&
           (!sends || (g->out != NULL && g->in != NULL && g->sends != NULL && g->takes != NULL));
}

int shm_group(struct comm *out, struct shm_rank *r, int kind, const char *name, const int *members,
              int count, bool sends, struct err *err)
{
    static const struct comm_ops ops = {
        .name = "shm", .start = start, .wait = wait_for, .close = close_group};
    struct group *g = calloc(1, sizeof *g);

    CHECK(kind >= 0 && kind < r->shm->sizes.kinds, "kind %d of groups", kind);
    CHECK(!sends || count <= r->shm->sizes.peers, "%d ranks send messages", count);
    if (g == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a group");
    }
    *g = (struct group){.owner = r,
                        .name = name,
                        .kind = kind,
                        .rank = -1,
                        .size = count,
                        .slab = r->shm->sizes.slab};
    if (!take_memory(g, sends)) {
        free_group(g);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a group");
    }
    for (int i = 0; i < count; i++) {
        g->members[i] = members[i];
        g->slots[i] = shm_slot(r->shm, kind, members[i]);
        g->rank = members[i] == r->rank ? i : g->rank;
    }
    CHECK(g->rank >= 0, "rank %d is not in its own group", r->rank);
    for (int i = 0; i < count && sends; i++) {
        g->out[i] = shm_channel(r->shm, r->rank, i);
        g->in[i] = shm_channel(r->shm, members[i], g->rank);
    }
    g->next = r->groups;
    r->groups = g;
    *out = (struct comm){.ops = &ops, .rank = g->rank, .size = count, .impl = g};
    return 0;
}
