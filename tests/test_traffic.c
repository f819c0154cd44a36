/* test_traffic.c - messages, slots and time of pipelines, played without ranks.
 *
 * The player keeps to what pipeline.c does with messages and is stricter than any network: a message leaves its place only
 * when the receiver has a room for it. A forward pass takes 1, a backward pass 2, a message no time.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/pipeline.h"

enum { RANKS = 8 };

/* A rank in play. */
struct player {
    struct traffic t;
    int at;      /* next action            */
    double now;  /* when the last one ended */
    double *end; /* owned [t.count]        */
    double *put; /* owned [t.count]: when the message that an action gets was sent; -1: not yet */
    int sent[2]; /* messages               */
    int *to_action[2]; /* owned [t.count]: which of the receiver's actions gets it */
    int *to_rank[2];   /* owned */
};

static void open_player(struct player *p, const struct pipe *pipe, int lowest)
{
    struct err err = {0};

    *p = (struct player){0};
    CHECK(traffic_new(&p->t, pipe, &err) == 0, "%s", err.text);
    for (int c = 0; c < pipe->chunks; c++) {
        const int stage = c * pipe->pp + pipe->rank;
        p->t.gets[c] = stage >= lowest;
        p->t.gives[c] = stage > lowest;
    }
    if (lowest < 0) {
        traffic_pass(&p->t, pipe->micros);
    } else {
        traffic_train(&p->t);
    }
    const size_t n = (size_t)p->t.count;
    p->end = calloc(n, sizeof *p->end);
    p->put = calloc(n, sizeof *p->put);
    for (int kind = 0; kind < 2; kind++) {
        p->to_action[kind] = calloc(n, sizeof(int));
        p->to_rank[kind] = calloc(n, sizeof(int));
    }
    CHECK(p->end != NULL && p->put != NULL && p->to_rank[1] != NULL, "no memory");
    for (size_t i = 0; i < n; i++) {
        p->put[i] = -1;
        p->end[i] = -1;
    }
}

static void close_player(struct player *p)
{
    traffic_free(&p->t);
    free(p->end);
    free(p->put);
    for (int kind = 0; kind < 2; kind++) {
        free(p->to_action[kind]);
        free(p->to_rank[kind]);
    }
}

/* When the receive of the message that action i gets could start; -1: not yet known. */
static double room_at(const struct player *p, int i)
{
    const struct errand *e = &p->t.errands[i];
    const struct traffic_line *l = &p->t.line[e->line];
    double at = 0.0;

    for (int k = 0; k <= e->message - l->rooms;
         k++) { /* those that had the room, and all before them */
        const double end = p->end[l->used[k]];
        if (end < 0.0) {
            return -1.0;
        }
        at = end > at ? end : at;
    }
    return at;
}

/* When the message that action i of a player gets arrived; -1: not yet. */
static double arrival(const struct player *p, int i)
{
    const double room = room_at(p, i);

    if (room < 0.0 || p->put[i] < 0.0) {
        return -1.0;
    }
    return room > p->put[i] ? room : p->put[i];
}

/* The action of a rank that works on (chunk, micro). */
static int find(const struct traffic *t, bool forward, int chunk, int micro)
{
    for (int i = 0; i < t->count; i++) {
        const struct action a = t->actions[i];
        if (a.forward == forward && a.chunk == chunk && a.micro == micro) {
            return i;
        }
    }
    CHECK(false, "no action of chunk %d", chunk);
    return -1;
}

/* Do the next action of rank r if it can be done. */
static bool move(struct player *all, int r)
{
    struct player *p = &all[r];
    const struct action a = p->t.actions[p->at];
    const struct errand e = p->t.errands[p->at];
    double begin = p->now;

    if (e.line >= 0) {
        const double came = arrival(p, p->at);
        if (came < 0.0) {
            return false;
        }
        begin = came > begin ? came : begin;
    }
    if (e.to >= 0 && p->sent[a.forward] >= OUTBOX) {
        const int before = p->sent[a.forward] - OUTBOX;
        const double gone =
            arrival(&all[p->to_rank[a.forward][before]], p->to_action[a.forward][before]);
        if (gone < 0.0) {
            return false;
        }
        begin = gone > begin ? gone : begin;
    }
    p->now = begin + (a.forward ? 1.0 : 2.0);
    p->end[p->at] = p->now;
    if (e.to >= 0) {
        const int stage = a.chunk * p->t.pipe.pp + r + (a.forward ? 1 : -1);
        const int n = p->sent[a.forward]++;
        CHECK(stage % p->t.pipe.pp == e.to, "stage %d is not on rank %d", stage, e.to);
        p->to_rank[a.forward][n] = e.to;
        p->to_action[a.forward][n] = find(&all[e.to].t, a.forward, stage / p->t.pipe.pp, a.micro);
        all[e.to].put[p->to_action[a.forward][n]] = p->now;
    }
    p->at++;
    return true;
}

/* What a play finds. */
struct play {
    double time; /* until the last rank ends; -1: ranks wait for each other for ever */
    int sent, rooms;
};

/* lowest: the first stage that is trained; -1: an evaluation. */
static struct play play(const struct pipe *pipe, int lowest)
{
    struct player all[RANKS];
    struct play found = {0};
    bool moved = true, ended = true;

    for (int r = 0; r < pipe->pp; r++) {
        struct pipe mine = *pipe;
        mine.rank = r;
        open_player(&all[r], &mine, lowest);
    }
    while (moved) {
        moved = false;
        for (int r = 0; r < pipe->pp; r++) {
            while (all[r].at < all[r].t.count && move(all, r)) {
                moved = true;
            }
        }
    }
    for (int r = 0; r < pipe->pp; r++) {
        const struct player *p = &all[r];
        ended = ended && p->at == p->t.count;
        found.time = p->now > found.time ? p->now : found.time;
        found.sent += p->sent[0] + p->sent[1];
        for (int i = 0; i < LINES; i++) {
            const int rooms = p->t.line[i].rooms;
            found.rooms = rooms > found.rooms ? rooms : found.rooms;
        }
    }
    for (int r = 0; r < pipe->pp; r++) {
        close_player(&all[r]);
    }
    found.time = ended ? found.time : -1.0;
    return found;
}

/* A step, steps in which some stages are not trained, and an evaluation. */
static int play_all(const struct pipe *p, int *rooms)
{
    const int stages = p->pp * p->chunks;
    const struct play whole = play(p, 0), passes = play(p, -1);
    int played = 2;

    EXPECT(whole.time > 0.0 && whole.sent == 2 * (stages - 1) * p->micros);
    EXPECT(passes.time > 0.0 && passes.sent == (stages - 1) * p->micros);
    EXPECT(passes.rooms <= whole.rooms);
    for (int lowest = 1; lowest < stages && p->micros < 10; lowest++) {
        const struct play some = play(p, lowest);
        EXPECT(some.time > 0.0 && some.sent == (2 * (stages - 1) - lowest) * p->micros);
        EXPECT(passes.rooms <= some.rooms);
        played++;
    }
    *rooms = whole.rooms > *rooms ? whole.rooms : *rooms;
    return played;
}

static void no_rank_waits_for_ever(void)
{
    int played = 0, rooms = 0;

    for (int pp = 2; pp <= RANKS; pp += pp == 4 ? 4 : 1) {
        for (int chunks = 1; chunks <= 4; chunks++) {
            for (int micros = 1; micros <= 17; micros++) {
                for (int group = 0; group <= micros; group = group == 0 ? pp : group + 1) {
                    const struct pipe p = {
                        .pp = pp, .chunks = chunks, .micros = micros, .group = group};
                    struct err err = {0};
                    if (schedule_check(&p, &err) == 0) {
                        played += play_all(&p, &rooms);
                    }
                }
            }
        }
    }
    printf("# %d pipelines, rings of up to %d messages\n", played, rooms);
    EXPECT(played > 200);
    EXPECT(rooms <= PIPELINE_ROOMS);
}

/* The bubble is (p - 1) / (v m) of the work: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2. */
static void bubbles_are_as_small_as_published(void)
{
    for (int pp = 2; pp <= RANKS; pp *= 2) {
        for (int chunks = 1; chunks <= 4; chunks++) {
            for (int groups = 1; groups <= 4; groups++) {
                const struct pipe p = {.pp = pp, .chunks = chunks, .micros = pp * groups};
                const double work = 3.0 * chunks * p.micros;
                const double bubble = (play(&p, 0).time - work) / work;
                EXPECT_NEAR(bubble, (double)(pp - 1) / (chunks * p.micros), 1e-12);
            }
        }
    }
}

/* The slots and rings of a rank's step. */
struct needs {
    int slots, own_slots, rooms[LINES];
};

static struct needs needs_of(const struct pipe *pipe, int chunk)
{
    struct player p;
    struct needs n;

    open_player(&p, pipe, 0);
    n = (struct needs){p.t.slots, p.t.own_slots[chunk], {p.t.line[0].rooms, p.t.line[1].rooms}};
    close_player(&p);
    return n;
}

/* So a batch may grow while a job trains, in whole groups of microbatches, with the memory of the largest. */
static void shorter_steps_need_no_more(void)
{
    int compared = 0;

    for (int i = 0; i < 4 * 4 * 4; i++) {
        const int chunks = i % 4 + 1, rank = i / 4 % 4, group = 4 + 2 * (i / 16);
        const struct pipe full = {
            .pp = 4, .rank = rank, .chunks = chunks, .micros = 3 * group, .group = group};
        struct pipe some = full;
        for (some.micros = 1; some.micros < full.micros; some.micros++) {
            if (chunks > 1 && some.micros % group != 0) {
                continue;
            }
            for (int c = 0; c < chunks; c++) {
                const struct needs a = needs_of(&some, c), b = needs_of(&full, c);
                EXPECT(a.slots <= b.slots && a.own_slots <= b.own_slots);
                EXPECT(a.rooms[0] <= b.rooms[0] && a.rooms[1] <= b.rooms[1]);
                compared++;
            }
        }
    }
    EXPECT(compared > 200);
}

/* Two (chunk, microbatch) pairs between forward and backward are never in one slot. */
static void slots_are_used_once_at_a_time(void)
{
    for (int rank = 0; rank < 4; rank++) {
        const struct pipe pipe = {.pp = 4, .rank = rank, .chunks = 3, .micros = 8};
        struct player p;
        bool pool[64] = {false}, own[3][64] = {{false}};
        int most = 0, open = 0;

        open_player(&p, &pipe, 0);
        for (int i = 0; i < p.t.count; i++) {
            const struct action a = p.t.actions[i];
            const struct errand e = p.t.errands[i];
            EXPECT(e.slot < p.t.slots && e.own_slot < p.t.own_slots[a.chunk]);
            EXPECT(pool[e.slot] != a.forward && own[a.chunk][e.own_slot] != a.forward);
            const struct errand *twin = &p.t.errands[find(&p.t, !a.forward, a.chunk, a.micro)];
            EXPECT(twin->slot == e.slot && twin->own_slot == e.own_slot);
            pool[e.slot] = a.forward;
            own[a.chunk][e.own_slot] = a.forward;
            open += a.forward ? 1 : -1;
            most = open > most ? open : most;
        }
        EXPECT(p.t.slots == most);
        EXPECT(p.t.own_slots[0] + p.t.own_slots[1] + p.t.own_slots[2] >= most);
        close_player(&p);
    }
}

/* Nothing is given to a stage below all that is trained, and that stage waits for nothing. */
static void gradients_stop_where_nothing_is_trained(void)
{
    struct err err = {0};
    int sent = 0, gets = 0;

    for (int rank = 0; rank < 4; rank++) {
        const struct pipe pipe = {.pp = 4, .rank = rank, .chunks = 1, .micros = 6};
        struct traffic t;
        CHECK(traffic_new(&t, &pipe, &err) == 0, "%s", err.text);
        t.gives[0] = rank > 2; /* stage 2 is the lowest that is trained */
        t.gets[0] = rank >= 2;
        traffic_train(&t);
        for (int i = 0; i < t.count; i++) {
            sent += !t.actions[i].forward && t.errands[i].to >= 0;
            gets += !t.actions[i].forward && t.errands[i].line >= 0;
        }
        traffic_free(&t);
    }
    EXPECT(sent == 6 && gets == 6);
}

static void an_evaluation_passes_any_number_of_microbatches(void)
{
    struct err err = {0};

    for (int micros = 0; micros <= 8; micros++) {
        int sent = 0, messages = 0;
        for (int rank = 0; rank < 2; rank++) {
            const struct pipe pipe = {.pp = 2, .rank = rank, .chunks = 2, .micros = 8};
            struct traffic t;
            CHECK(traffic_new(&t, &pipe, &err) == 0, "%s", err.text);
            traffic_pass(&t, micros);
            EXPECT(t.count == 2 * micros && t.line[0].rooms <= 2);
            for (int i = 0; i < t.count; i++) {
                sent += t.errands[i].to >= 0;
            }
            messages += t.line[0].count;
            traffic_free(&t);
        }
        EXPECT(sent == 3 * micros && messages == sent);
    }
}

int main(void)
{
    RUN(no_rank_waits_for_ever);
    RUN(bubbles_are_as_small_as_published);
    RUN(slots_are_used_once_at_a_time);
    RUN(shorter_steps_need_no_more);
    RUN(gradients_stop_where_nothing_is_trained);
    RUN(an_evaluation_passes_any_number_of_microbatches);
    return tap_done();
}
