/* bubble.h - a step of real pipeline ranks whose kernels take time instead of computing much: each block's attention
 * takes 1 of a clock forward and 2 backward, everything else nothing.
 *
 * Included by test_bubble.c, whose clock is simulated, and bench_bubble.c, whose kernels sleep. In the simulation a
 * message carries the time at which it was sent, and leaves its place only when the receiver has room for it: a
 * rank that waits has the time of the rank that it waited for.
 */
#ifndef TESTS_BUBBLE_H
#define TESTS_BUBBLE_H

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/json.h"
#include "trainer/comm/shm.h"
#include "trainer/step.h"

enum { BUBBLE_RANKS = 4, BUBBLE_LAYERS = 8, BUBBLE_MESSAGES = 64, BUBBLE_OPEN = 64 };

/* In shared memory: of the messages between two ranks when they were sent and when there was room; -1: not yet. */
struct bubble_times {
    _Atomic double sent[BUBBLE_MESSAGES], room[BUBBLE_MESSAGES];
};

struct bubble_found {
    double span[BUBBLE_RANKS], busy[BUBBLE_RANKS]; /* of a step: from its begin, and in kernels */
    int64_t messages[BUBBLE_RANKS];
    size_t saved[BUBBLE_RANKS]; /* bytes of kept activations */
    struct bubble_times times[BUBBLE_RANKS][BUBBLE_RANKS];
};

/* This rank's clock. unit_s: what kernels sleep; 0: it is simulated. */
static struct {
    double now, busy, unit_s;
} bubble_clock;

static inline void bubble_spend(double units)
{
    const double s = units * bubble_clock.unit_s;
    const struct timespec nap = {.tv_sec = (time_t)s,
                                 .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    struct timespec begun, ended;

    if (bubble_clock.unit_s <= 0.0) {
        bubble_clock.now += units;
        bubble_clock.busy += units;
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &begun);
    (void)nanosleep(&nap, NULL);
    (void)clock_gettime(CLOCK_MONOTONIC, &ended);
    bubble_clock.busy +=
        (double)(ended.tv_sec - begun.tv_sec) + 1e-9 * (double)(ended.tv_nsec - begun.tv_nsec);
}

static inline double bubble_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return bubble_clock.unit_s > 0.0 ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec
                                     : bubble_clock.now;
}

static inline void bubble_attention_forward(struct queue *q, struct tensor out, struct tensor lse,
                                            struct tensor qkv, struct tensor first,
                                            const struct attention_shape *s,
                                            const struct dropout *drop,
                                            const struct attention_context *context)
{
    kernels_cpu()->attention_forward(q, out, lse, qkv, first, s, drop, context);
    bubble_spend(1.0);
}

static inline void bubble_attention_backward(struct queue *q, struct tensor dqkv,
                                             struct tensor dout, const struct tensor saved[3],
                                             struct tensor first, const struct attention_shape *s,
                                             const struct dropout *drop,
                                             const struct attention_context *context)
{
    kernels_cpu()->attention_backward(q, dqkv, dout, saved, first, s, drop, context);
    bubble_spend(2.0);
}

/* An operation on its way, whose ticket is its place. */
struct bubble_open {
    bool is_open;
    comm_ticket ticket;          /* of the group inside                           */
    _Atomic double *until, *own; /* the time to wait for, and the own one; or NULL */
};

/* A group whose messages carry times. */
struct bubble_comm {
    struct comm inside;
    struct bubble_found *found;
    int sent[BUBBLE_RANKS], asked[BUBBLE_RANKS];
    struct bubble_open open[BUBBLE_OPEN];
};

static inline comm_ticket bubble_start(struct comm *c, struct queue *q, const struct comm_order *o)
{
    struct bubble_comm *b = c->impl;
    const bool is_send = o->kind == COMM_SEND, is_message = is_send || o->kind == COMM_RECV;
    struct bubble_times *t =
        is_send ? &b->found->times[c->rank][o->peer] : &b->found->times[o->peer][c->rank];
    int *count = is_send ? b->sent : b->asked, place = 0;

    while (place < BUBBLE_OPEN && b->open[place].is_open) {
        place++;
    }
    CHECK(place < BUBBLE_OPEN, "%d operations at a time", place);
    struct bubble_open *open = &b->open[place];
    *open = (struct bubble_open){.is_open = true};
    if (is_message) {
        const int n = count[o->peer]++;
        CHECK(n < BUBBLE_MESSAGES, "%d messages", n);
        open->own = is_send ? &t->sent[n] : &t->room[n];
        open->until = is_send ? &t->room[n] : &t->sent[n];
        atomic_store(open->own, bubble_clock.now);
    }
    open->ticket = b->inside.ops->start(&b->inside, q, o);
    return (comm_ticket)place + 1;
}

static inline void bubble_wait(struct comm *c, struct queue *q, comm_ticket ticket)
{
    static const struct timespec soon = {.tv_nsec = 50000};
    struct bubble_comm *b = c->impl;
    struct bubble_open *open = &b->open[ticket - 1];

    CHECK(open->is_open, "ticket %d", (int)ticket);
    b->inside.ops->wait(&b->inside, q, open->ticket);
    open->is_open = false;
    if (open->until == NULL) {
        return;
    }
    double until = atomic_load(open->until);
    while (until < 0.0) { /* the receiver has no room yet */
        (void)nanosleep(&soon, NULL);
        until = atomic_load(open->until);
    }
    bubble_clock.now = until > bubble_clock.now ? until : bubble_clock.now;
}

static inline void bubble_close(struct comm *c)
{
    struct bubble_comm *b = c->impl;

    comm_close(&b->inside);
}

static const struct comm_ops bubble_ops = {"timed", bubble_start, bubble_wait, bubble_close};

static inline void bubble_lose(void *context, const char *why)
{
    (void)context;
    (void)fprintf(stderr, "%s\n", why);
    _exit(9);
}

static inline struct arch bubble_arch(void)
{
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":16,\"intermediate_size\":24,"
        "\"num_hidden_layers\":8,\"num_attention_heads\":2,\"num_key_value_heads\":2,"
        "\"vocab_size\":64,\"max_position_embeddings\":32,\"tie_word_embeddings\":false}";
    json_t *object = json_loads(config, 0, NULL);
    struct arch a;
    struct err err = {0};

    CHECK(object != NULL && arch_read(&a, object, 0, &err) == 0, "%s", err.text);
    CHECK(a.L == BUBBLE_LAYERS, "%lld layers", (long long)a.L);
    json_decref(object);
    return a;
}

/* The sizes of a rank that takes part in such a step: microbatches of one sample. */
static inline struct dims bubble_dims(const struct arch *a, const struct pipe *pipe)
{
    const struct spec s = {.global_batch_size = pipe->micros};
    struct dims d = dims_make(a, &s, 1, 16, 1);
    struct placement place;
    struct err err = {0};

    CHECK(placement_make(&place, a, pipe->pp, pipe->chunks, "", 16, &err) == 0, "%s", err.text);
    dims_divide_layers(&d, &place, pipe->rank, pipe->group);
    return d;
}

static inline void bubble_step(struct engine *e)
{
    const struct dims *d = &e->model->d;
    const int64_t n = d->micros * d->R;
    int32_t *memory = calloc((size_t)(4 * n), sizeof *memory);
    struct step_result r;

    CHECK(memory != NULL, "no memory");
    const struct data_rows rows = {memory, memory + n, memory + 2 * n, memory + 3 * n};
    for (int64_t i = 0; i < n; i++) {
        rows.ids[i] = (int32_t)(i % d->V);
        rows.labels[i] = (int32_t)((i + 1) % d->V);
        rows.positions[i] = (int32_t)(i % d->S);
    }
    const struct step_input in = {.rows = &rows, .step = 1, .trained = n};
    step_gradients(e, &in, &r);
    CHECK(r.loss > 0.0 && isfinite(r.grad_norm), "loss %g", r.loss);
    free(memory);
}

static inline void bubble_rank(const struct pipe *pipe, struct shm *shm, struct bubble_found *f)
{
    static const int members[BUBBLE_RANKS] = {0, 1, 2, 3};
    const struct arch a = bubble_arch();
    const struct dims d = bubble_dims(&a, pipe);
    struct bubble_comm timed = {.found = f};
    struct kernels table;
    struct shm_rank *r = NULL;
    struct engine e;
    struct err err = {0};

    CHECK(engine_open(&e, &d, "", &err) == 0, "%s", err.text);
    CHECK(shm_join(&r, shm, pipe->rank, e.k, 20000, bubble_lose, NULL, &err) == 0, "%s", err.text);
    CHECK(shm_group(&timed.inside, r, 0, "pipeline", members, pipe->pp, true, &err) == 0, "%s",
          err.text);
    e.pp = (struct comm){.ops = &bubble_ops, .rank = pipe->rank, .size = pipe->pp, .impl = &timed};
    model_init(e.model, e.k, &e.q, 11);
    table = *e.k;
    table.attention_forward = bubble_attention_forward;
    table.attention_backward = bubble_attention_backward;
    e.k = &table;
    comm_barrier(&timed.inside, &e.q);
    const double begun = bubble_now();
    bubble_step(&e);
    f->span[pipe->rank] = bubble_now() - begun;
    f->busy[pipe->rank] = bubble_clock.busy;
    f->messages[pipe->rank] = e.pp.count[COMM_SEND];
    f->saved[pipe->rank] = e.layout.region[LIFE_SAVED].peak;
    comm_close(&e.pp);
    shm_leave(r);
    engine_close(&e);
}

/* Run a step; false when a rank did not end well. unit_s: as in bubble_clock. */
static inline bool bubble_run(struct pipe pipe, double unit_s, struct bubble_found *f)
{
    const struct shm_sizes room = {.ranks = pipe.pp, .kinds = 1, .peers = pipe.pp, .slab = 4096};
    struct shm *shm = NULL;
    struct err err = {0};
    bool well = true;

    *f = (struct bubble_found){.span = {0}};
    for (int i = 0; i < BUBBLE_RANKS * BUBBLE_RANKS * BUBBLE_MESSAGES; i++) {
        struct bubble_times *t =
            &f->times[i / BUBBLE_MESSAGES / BUBBLE_RANKS][i / BUBBLE_MESSAGES % BUBBLE_RANKS];
        atomic_store(&t->sent[i % BUBBLE_MESSAGES], -1.0);
        atomic_store(&t->room[i % BUBBLE_MESSAGES], -1.0);
    }
    CHECK(shm_make(&shm, &room, &err) == 0, "%s", err.text);
    (void)fflush(NULL);
    for (pipe.rank = 0; pipe.rank < pipe.pp; pipe.rank++) {
        if (fork() == 0) {
            (void)alarm(60);
            bubble_clock.unit_s = unit_s;
            bubble_rank(&pipe, shm, f);
            _exit(0);
        }
    }
    for (int i = 0; i < pipe.pp; i++) {
        int status = 0;
        (void)wait(&status);
        well = well && status == 0;
    }
    shm_free(shm);
    return well;
}

static inline struct bubble_found *bubble_memory(void)
{
    struct bubble_found *f =
        mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(f != MAP_FAILED, "no memory");
    return f;
}

/* What the last rank to end waited, as a part of its work. */
static inline double bubble_of(const struct bubble_found *f, int ranks)
{
    int last = 0;

    for (int r = 1; r < ranks; r++) {
        last = f->span[r] > f->span[last] ? r : last;
    }
    return f->span[last] / f->busy[last] - 1.0;
}

#endif
