/* pipeline.c - walks a list of actions with messages between them. */
#include "trainer/pipeline.h"

#include "kernels/check.h"

void pipeline_plan(struct mailbox *m, struct layout *lo, const struct traffic *t, enum dtype type,
                   int64_t rows, int64_t cols)
{
    bool sends[2] = {false, false};

    *m = (struct mailbox){0};
    for (int i = 0; i < t->count; i++) {
        if (t->errands[i].to >= 0) {
            sends[t->actions[i].forward] = true;
        }
    }
    for (int i = 0; i < LINES; i++) {
        if (t->line[i].rooms > 0) {
            m->in[i] = layout_take(lo, LIFE_COMM, type, t->line[i].rooms, rows * cols);
        }
        if (sends[i]) {
            m->out[i] = layout_take(lo, LIFE_COMM, type, OUTBOX, rows * cols);
        }
    }
}

/* One place of a ring, as long as the message of a microbatch is. */
static struct tensor place_in(const struct pipeline *p, struct tensor ring, int at, int micro)
{
    const struct tensor one = tensor_slice(ring, at, 1);
    const int64_t rows = p->work->rows(p->work->context, micro);

    CHECK(rows * p->cols <= tensor_cols(ring), "a message of %lld rows", (long long)rows);
    return tensor_make(one.data, one.type, rows, p->cols);
}

/* Start what can come. */
static void start_receives(struct pipeline *p)
{
    for (int i = 0; i < LINES; i++) {
        const struct traffic_line *l = &p->traffic->line[i];
        while (p->started[i] < l->count && p->started[i] - p->ended[i] < l->rooms) {
            const int message = p->started[i]++, room = message % l->rooms;
            const int micro = p->traffic->actions[l->used[message]].micro;
            p->incoming[i][room] =
                comm_start_recv(p->comm, p->q, place_in(p, p->mail->in[i], room, micro), l->peer);
        }
    }
}

/* What an action gets. */
static struct tensor receive(struct pipeline *p, const struct action *a, const struct errand *e)
{
    if (e->line < 0) {
        return tensor_none();
    }
    const int room = e->message % p->traffic->line[e->line].rooms;

    CHECK(e->message < p->started[e->line], "message %d was not asked for", e->message);
    comm_wait(p->comm, p->q, p->incoming[e->line][room]);
    return place_in(p, p->mail->in[e->line], room, a->micro);
}

/* Where an action's output goes, once what was there is gone. */
static struct tensor make_room(struct pipeline *p, const struct action *a, const struct errand *e)
{
    if (e->to < 0) {
        return tensor_none();
    }
    const int place = p->sent[a->forward] % OUTBOX;

    if (p->sent[a->forward] >= OUTBOX) {
        comm_wait(p->comm, p->q, p->outgoing[a->forward][place]);
    }
    return place_in(p, p->mail->out[a->forward], place, a->micro);
}

/* Messages in front of which all are used, after action i of the list. */
static void forget_used(struct pipeline *p, int i)
{
    for (int k = 0; k < LINES; k++) {
        const struct traffic_line *l = &p->traffic->line[k];
        while (p->ended[k] < p->started[k] && l->used[p->ended[k]] <= i) {
            p->ended[k]++;
        }
    }
}

void pipeline_run(struct pipeline *p)
{
    const struct traffic *t = p->traffic;

    CHECK(t->line[0].rooms <= PIPELINE_ROOMS && t->line[1].rooms <= PIPELINE_ROOMS,
          "%d and %d rooms", t->line[0].rooms, t->line[1].rooms);
    start_receives(p);
    for (int i = 0; i < t->count; i++) {
        const struct action *a = &t->actions[i];
        const struct errand *e = &t->errands[i];
        const struct tensor in = receive(p, a, e), out = make_room(p, a, e);
        (a->forward ? p->work->forward : p->work->backward)(p->work->context, a, e, in, out);
        if (e->to >= 0) {
            const int place = p->sent[a->forward]++ % OUTBOX;
            p->outgoing[a->forward][place] = comm_start_send(p->comm, p->q, out, e->to);
        }
        forget_used(p, i);
        start_receives(p);
    }
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < OUTBOX && i < p->sent[kind]; i++) {
            comm_wait(p->comm, p->q, p->outgoing[kind][i]);
        }
    }
}
