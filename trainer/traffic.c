/* traffic.c - messages and slots from lists of actions. */
#include "trainer/traffic.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"

int traffic_new(struct traffic *t, const struct pipe *p, struct err *err)
{
    const size_t n = 2 * (size_t)p->chunks * (size_t)p->micros;

    CHECK(p->chunks <= TRAFFIC_CHUNKS && p->micros > 0, "%d chunks, %d microbatches", p->chunks,
          p->micros);
    *t = (struct traffic){.pipe = *p, .capacity = (int)n};
    t->actions = calloc(n, sizeof *t->actions);
    t->errands = calloc(n, sizeof *t->errands);
    t->theirs = calloc(n, sizeof *t->theirs);
    t->place = calloc(n, sizeof *t->place);
    t->line[0].used = calloc(n, sizeof *t->line[0].used);
    t->line[1].used = calloc(n, sizeof *t->line[1].used);
    if (t->actions == NULL || t->errands == NULL || t->theirs == NULL || t->place == NULL ||
        t->line[0].used == NULL || t->line[1].used == NULL) {
        traffic_free(t);
        return FAIL(err, ERR_NO_MEMORY, "no memory for the order of %d microbatches", p->micros);
    }
    return 0;
}

void traffic_free(struct traffic *t)
{
    free(t->actions);
    free(t->errands);
    free(t->theirs);
    free(t->place);
    free(t->line[0].used);
    free(t->line[1].used);
    *t = (struct traffic){0};
}

static int *place_of(const struct traffic *t, bool forward, int chunk, int micro)
{
    return &t->place[((forward ? 0 : t->pipe.chunks) + chunk) * t->pipe.micros + micro];
}

/* The rank and the chunk that get the output of an action of `rank`; false: nobody does. */
static bool destination(const struct pipe *p, int rank, const struct action *a, int *to, int *chunk)
{
    const int stage = a->chunk * p->pp + rank + (a->forward ? 1 : -1);

    *to = (stage + p->pp) % p->pp;
    *chunk = stage / p->pp;
    return stage >= 0 && stage < p->pp * p->chunks;
}

static void list_messages(struct traffic *t, int which, int peer)
{
    struct pipe theirs = t->pipe;
    struct traffic_line *l = &t->line[which];
    const bool forward_only = t->count == t->pipe.chunks * t->pipe.micros;
    int to = 0, chunk = 0;

    theirs.rank = peer;
    l->peer = peer;
    const int n =
        forward_only ? schedule_forward(t->theirs, &theirs) : schedule_make(t->theirs, &theirs);
    for (int i = 0; i < n; i++) {
        const struct action a = t->theirs[i];
        if (!destination(&t->pipe, peer, &a, &to, &chunk) || to != t->pipe.rank ||
            !(a.forward || t->gets[chunk])) {
            continue;
        }
        const int at = *place_of(t, a.forward, chunk, a.micro);
        t->errands[at].line = which;
        t->errands[at].message = l->count;
        l->used[l->count++] = at;
    }
}

/* Messages that the first rank gets from the last, for the chunk behind, while it is still busy with the first chunk of
 * a group of more microbatches than ranks; the same backwards. Without room for them all ranks would wait. */
static int ahead(const struct pipe *p, int which)
{
    const int group = p->group < p->micros ? p->group : p->micros;
    const bool turns = p->rank == (which == LINE_BEFORE ? 0 : p->pp - 1) || p->pp == 2;

    return p->chunks > 1 && turns && group > p->pp ? group - p->pp : 0;
}

/* The ring: from the first message that is still to be used to the one that is wanted, and one more to come early. */
static void size_ring(struct traffic *t, int which)
{
    struct traffic_line *l = &t->line[which];
    int oldest = 0, most = 1 + ahead(&t->pipe, which);

    for (int i = 0; i < t->count; i++) {
        if (t->errands[i].line != which) {
            continue;
        }
        while (l->used[oldest] < i) {
            oldest++;
        }
        const int span = t->errands[i].message - oldest + 1;
        most = span > most ? span : most;
    }
    l->rooms = most + 1 < l->count ? most + 1 : l->count;
}

/* Slots from a pool: the lowest free one for a forward pass, until the backward pass of the same. `taken` are
 * bytes [capacity / 2]. Returns how many. */
static int give_slots(struct traffic *t, int chunk, char *taken)
{
    int most = 0;

    memset(taken, 0, (size_t)t->capacity / 2);
    for (int i = 0; i < t->count; i++) {
        const struct action a = t->actions[i];
        if (chunk >= 0 && a.chunk != chunk) {
            continue;
        }
        int slot = 0;
        if (a.forward) {
            while (taken[slot] != 0) {
                slot++;
            }
            most = slot + 1 > most ? slot + 1 : most;
        } else {
            const struct errand *e = &t->errands[*place_of(t, true, a.chunk, a.micro)];
            slot = chunk >= 0 ? e->own_slot : e->slot;
        }
        taken[slot] = a.forward ? 1 : 0;
        if (chunk >= 0) {
            t->errands[i].own_slot = slot;
        } else {
            t->errands[i].slot = slot;
        }
    }
    return most;
}

static void fill(struct traffic *t)
{
    const struct pipe *p = &t->pipe;
    int to = 0, chunk = 0;

    for (int i = 0; i < t->count; i++) {
        const struct action a = t->actions[i];
        const bool goes =
            destination(p, p->rank, &a, &to, &chunk) && (a.forward || t->gives[a.chunk]);
        *place_of(t, a.forward, a.chunk, a.micro) = i;
        t->errands[i] = (struct errand){.line = -1, .message = -1, .to = goes ? to : -1};
    }
    for (int which = 0; which < LINES; which++) {
        t->line[which].count = 0;
        t->line[which].rooms = 0;
    }
    if (p->pp > 1) {
        list_messages(t, LINE_BEFORE, (p->rank + p->pp - 1) % p->pp);
        size_ring(t, LINE_BEFORE);
    }
    if (p->pp > 2) {
        list_messages(t, LINE_AFTER, (p->rank + 1) % p->pp);
        size_ring(t, LINE_AFTER);
    }
}

void traffic_train(struct traffic *t)
{
    t->count = schedule_make(t->actions, &t->pipe);
    CHECK(t->count <= t->capacity, "%d actions in a list of %d", t->count, t->capacity);
    fill(t);
    /* the list of a neighbour is done with: its memory marks slots in use */
    char *taken = (char *)t->theirs;
    t->slots = give_slots(t, -1, taken);
    for (int c = 0; c < t->pipe.chunks; c++) {
        t->own_slots[c] = give_slots(t, c, taken);
    }
    CHECK(t->slots == schedule_slots(t->actions, t->count), "%d slots", t->slots);
}

void traffic_pass(struct traffic *t, int micros)
{
    CHECK(2 * t->pipe.chunks * micros <= t->capacity, "%d microbatches are too many", micros);
    t->pipe.micros = micros;
    t->count = schedule_forward(t->actions, &t->pipe);
    fill(t);
    t->slots = 1;
}
