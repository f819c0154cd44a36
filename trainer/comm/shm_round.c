/* shm_round.c - rounds of the operations that a whole group takes part in. */
#include <string.h>

#include "kernels/check.h"
#include "trainer/comm/shm_inside.h"

enum { BLOCK = 1024 }; /* elements summed at a time: stays in the first cache */

static unsigned char *at(struct tensor t, size_t byte)
{
    return (unsigned char *)t.data + byte;
}

/* Bytes of a whole multiple of 64 that `parts` parts of a slab have each. */
static size_t room(const struct group *g, int parts)
{
    return g->slab / (size_t)parts / SHM_LINE * SHM_LINE;
}

/* Bytes of a member's part of an operation, and how many of them a round moves. */
static size_t part_bytes(const struct group *g, const struct comm_order *o)
{
    switch (o->kind) {
    case COMM_ALL_REDUCE:
    case COMM_BROADCAST:
    case COMM_ALL_GATHER: return tensor_bytes(o->in);
    case COMM_REDUCE_SCATTER: return tensor_bytes(o->out);
    case COMM_ALL_TO_ALL: {
        const size_t row = (size_t)tensor_cols(o->in) * dtype_size(o->in.type);
        int64_t most = 0;
        for (int r = 0; r < g->size; r++) {
            most = o->in_rows[r] > most ? o->in_rows[r] : most;
            most = o->out_rows[r] > most ? o->out_rows[r] : most;
        }
        return (size_t)most * row;
    }
    case COMM_BARRIER:
    case COMM_SEND:
    case COMM_RECV:
    case COMM_KIND_COUNT: break;
    }
    return 0;
}

static size_t piece_bytes(const struct group *g, const struct pending *p)
{
    const bool divided = p->order.kind == COMM_REDUCE_SCATTER || p->order.kind == COMM_ALL_TO_ALL;
    const size_t most = room(g, divided ? g->size : 1);
    const size_t left = part_bytes(g, &p->order) - p->done;

    return left < most ? left : most;
}

/* Of `have` bytes those of the piece that begins at `done`. */
static size_t overlap(size_t have, size_t done, size_t piece)
{
    return have <= done ? 0 : have - done < piece ? have - done : piece;
}

/* Rows of others before mine, and mine, in bytes. */
static void find_rows(const struct comm_order *o, const int64_t *rows, int r, size_t *from,
                      size_t *bytes)
{
    const size_t row = (size_t)tensor_cols(o->in) * dtype_size(o->in.type);
    int64_t before = 0;

    for (int i = 0; i < r; i++) {
        before += rows[i];
    }
    *from = (size_t)before * row;
    *bytes = (size_t)rows[r] * row;
}

static void fill(const struct group *g, const struct pending *p, size_t piece)
{
    const struct comm_order *o = &p->order;
    unsigned char *slab = g->slots[g->rank]->slab;

    switch (o->kind) {
    case COMM_BROADCAST:
        if (o->peer != g->rank) {
            return;
        }
        memcpy(slab, at(o->in, p->done), piece);
        return;
    case COMM_ALL_REDUCE:
    case COMM_ALL_GATHER:
        if (piece > 0) {
            memcpy(slab, at(o->in, p->done), piece);
        }
        return;
    case COMM_REDUCE_SCATTER:
        for (int r = 0; r < g->size && piece > 0; r++) {
            memcpy(slab + (size_t)r * room(g, g->size),
                   at(o->in, (size_t)r * tensor_bytes(o->out) + p->done), piece);
        }
        return;
    case COMM_ALL_TO_ALL:
        for (int r = 0; r < g->size; r++) {
            size_t from = 0, bytes = 0;
            find_rows(o, o->in_rows, r, &from, &bytes);
            const size_t n = overlap(bytes, p->done, piece);
            if (n > 0) {
                memcpy(slab + (size_t)r * room(g, g->size), at(o->in, from + p->done), n);
            }
        }
        return;
    case COMM_BARRIER:
    case COMM_SEND:
    case COMM_RECV:
    case COMM_KIND_COUNT: return;
    }
}

/* acc (+)= x, or the larger; `first` starts anew. */
static void add_f32(float *acc, const float *x, int64_t n, bool first, enum comm_reduction how)
{
    for (int64_t i = 0; i < n; i++) {
        acc[i] = first ? x[i] : how == COMM_SUM ? acc[i] + x[i] : x[i] > acc[i] ? x[i] : acc[i];
    }
}

static void add_f64(double *acc, const double *x, int64_t n, bool first, enum comm_reduction how)
{
    for (int64_t i = 0; i < n; i++) {
        acc[i] = first ? x[i] : how == COMM_SUM ? acc[i] + x[i] : x[i] > acc[i] ? x[i] : acc[i];
    }
}

/* Sum `count` elements that begin at the same place of every slab, in rank order, into `out`, which may be
 * that place of one of the slabs. */
static void sum(struct group *g, const struct comm_order *o, unsigned char *out, size_t place,
                int64_t count)
{
    const enum dtype type = o->in.type;
    const size_t size = dtype_size(type);
    struct shm_rank *r = g->owner;
    double wide[BLOCK];
    float narrow[BLOCK], one[BLOCK];

    for (int64_t done = 0; done < count; done += BLOCK) {
        const int64_t n = count - done < BLOCK ? count - done : BLOCK;
        const size_t byte = place + (size_t)done * size;
        for (int i = 0; i < g->size; i++) {
            void *x = g->slots[i]->slab + byte;
            if (type == DTYPE_F64) {
                add_f64(wide, x, n, i == 0, o->how);
            } else if (type == DTYPE_F32) {
                add_f32(narrow, x, n, i == 0, o->how);
            } else {
                r->k->cast(&r->queue, tensor_make(one, DTYPE_F32, 1, n),
                           tensor_make(x, type, 1, n));
                add_f32(narrow, one, n, i == 0, o->how);
            }
        }
        unsigned char *to = out + (size_t)done * size;
        if (type == DTYPE_F64 || type == DTYPE_F32) {
            memcpy(to, type == DTYPE_F64 ? (void *)wide : (void *)narrow, (size_t)n * size);
        } else {
            r->k->cast(&r->queue, tensor_make(to, type, 1, n),
                       tensor_make(narrow, DTYPE_F32, 1, n));
        }
    }
}

/* Member i sums the elements [first, first + count) of an all-reduce's piece. */
static void share(const struct group *g, size_t elements, int i, size_t *first, size_t *count)
{
    *first = elements * (size_t)i / (size_t)g->size;
    *count = elements * (size_t)(i + 1) / (size_t)g->size - *first;
}

static void reduce(struct group *g, const struct pending *p, size_t piece)
{
    const size_t size = dtype_size(p->order.in.type);
    size_t first = 0, count = 0;

    share(g, piece / size, g->rank, &first, &count);
    sum(g, &p->order, g->slots[g->rank]->slab + first * size, first * size, (int64_t)count);
}

static void take(struct group *g, const struct pending *p, size_t piece)
{
    const struct comm_order *o = &p->order;
    const size_t size = dtype_size(o->out.type), part = part_bytes(g, o);

    switch (o->kind) {
    case COMM_BROADCAST:
        if (o->peer != g->rank && piece > 0) {
            memcpy(at(o->out, p->done), g->slots[o->peer]->slab, piece);
        }
        return;
    case COMM_ALL_REDUCE:
        for (int r = 0; r < g->size; r++) {
            size_t first = 0, count = 0;
            share(g, piece / size, r, &first, &count);
            if (count > 0) {
                memcpy(at(o->out, p->done + first * size), g->slots[r]->slab + first * size,
                       count * size);
            }
        }
        return;
    case COMM_ALL_GATHER:
        for (int r = 0; r < g->size && piece > 0; r++) {
            memcpy(at(o->out, (size_t)r * part + p->done), g->slots[r]->slab, piece);
        }
        return;
    case COMM_REDUCE_SCATTER:
        if (piece > 0) {
            sum(g, o, at(o->out, p->done), (size_t)g->rank * room(g, g->size),
                (int64_t)(piece / size));
        }
        return;
    case COMM_ALL_TO_ALL:
        for (int r = 0; r < g->size; r++) {
            size_t from = 0, bytes = 0;
            find_rows(o, o->out_rows, r, &from, &bytes);
            const size_t n = overlap(bytes, p->done, room(g, g->size));
            if (n > 0) {
                memcpy(at(o->out, from + p->done),
                       g->slots[r]->slab + (size_t)g->rank * room(g, g->size), n);
            }
        }
        return;
    case COMM_BARRIER:
    case COMM_SEND:
    case COMM_RECV:
    case COMM_KIND_COUNT: return;
    }
}

static bool all_reached(const struct group *g, uint64_t phase)
{
    for (int i = 0; i < g->size; i++) {
        if (atomic_load(&g->slots[i]->phase) < phase) {
            return false;
        }
    }
    return true;
}

static void reach(struct group *g, int step)
{
    g->step = step;
    atomic_store(&g->slots[g->rank]->phase, g->round * 3 + (uint64_t)step);
    shm_ring(g);
}

/* Do all do the same? If not, two ranks run different programs. */
static void check_agreement(const struct group *g, const struct pending *p)
{
    const struct slot *mine = g->slots[g->rank];

    for (int i = 0; i < g->size; i++) {
        const struct slot *other = g->slots[i];
        const bool same = other->kind == mine->kind && other->how == mine->how &&
                          other->type == mine->type &&
                          (other->bytes == mine->bytes || p->order.kind == COMM_ALL_TO_ALL);
        CHECK(same,
              "in the %s group rank %d has a %s of %llu bytes (type %u) where rank %d has a %s of "
              "%llu (type %u)",
              g->name, g->members[i], comm_kind_name((enum comm_kind)other->kind),
              (unsigned long long)other->bytes, other->type, g->owner->rank,
              comm_kind_name((enum comm_kind)mine->kind), (unsigned long long)mine->bytes,
              mine->type);
    }
}

static bool is_more(const struct group *g)
{
    bool more = false;

    for (int i = 0; i < g->size; i++) {
        more = more || g->slots[i]->more != 0;
    }
    return more;
}

static void begin_round(struct group *g, const struct pending *p, size_t piece)
{
    struct slot *mine = g->slots[g->rank];

    mine->kind = (uint32_t)p->order.kind;
    mine->how = (uint32_t)p->order.how;
    mine->type = (uint32_t)p->order.in.type;
    mine->bytes = part_bytes(g, &p->order);
    mine->more = p->done + piece < mine->bytes;
    fill(g, p, piece);
    reach(g, 1);
}

/* The last phase of a round; `more` was read before it, since others may begin the next one then. */
static void end_round(struct group *g, struct pending *p, size_t piece)
{
    const bool more = is_more(g);

    take(g, p, piece);
    /* pairs of an all-to-all move on together, so every rank counts a whole piece */
    p->done += p->order.kind == COMM_ALL_TO_ALL ? room(g, g->size) : piece;
    g->round++;
    reach(g, 0);
    g->line.ended += more ? 0 : 1;
}

bool shm_step_group(struct group *g)
{
    bool moved = false;

    while (g->line.ended < g->line.started) {
        struct pending *p = &g->line.of[g->line.ended % SHM_PENDING];
        if (!all_reached(g, g->round * 3 + (uint64_t)g->step)) {
            break;
        }
        const size_t part = part_bytes(g, &p->order);
        const size_t piece = p->done < part ? piece_bytes(g, p) : 0;
        moved = true;
        if (g->step == 0) {
            begin_round(g, p, piece);
        } else if (g->step == 1 && p->order.kind == COMM_ALL_REDUCE) {
            check_agreement(g, p);
            reduce(g, p, piece);
            reach(g, 2);
        } else {
            if (g->step == 1) {
                check_agreement(g, p);
            }
            end_round(g, p, piece);
        }
    }
    return moved;
}
