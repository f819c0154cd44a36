/* shm_pair.c - messages between two ranks, piece by piece through the channel of their direction. */
#include <string.h>

#include "kernels/check.h"
#include "trainer/comm/shm_inside.h"

static bool send_piece(struct group *g, int peer)
{
    struct line *l = &g->sends[peer];
    struct channel *c = g->out[peer];
    const uint64_t sent = atomic_load(&c->sent);

    if (l->ended == l->started || sent - atomic_load(&c->taken) >= SHM_DEEP) {
        return false;
    }
    struct pending *p = &l->of[l->ended % SHM_PENDING];
    const size_t bytes = tensor_bytes(p->order.in), left = bytes - p->done;
    const size_t piece = left < g->slab ? left : g->slab;
    if (piece > 0) {
        memcpy(c->slab + sent % SHM_DEEP * g->slab, (unsigned char *)p->order.in.data + p->done,
               piece);
    }
    c->bytes[sent % SHM_DEEP] = bytes;
    atomic_store(&c->sent, sent + 1);
    p->done += piece;
    l->ended += p->done == bytes ? 1 : 0;
    shm_ring(g);
    return true;
}

static bool take_piece(struct group *g, int peer)
{
    struct line *l = &g->takes[peer];
    struct channel *c = g->in[peer];
    const uint64_t taken = atomic_load(&c->taken);

    if (l->ended == l->started || atomic_load(&c->sent) == taken) {
        return false;
    }
    struct pending *p = &l->of[l->ended % SHM_PENDING];
    const size_t bytes = tensor_bytes(p->order.out), left = bytes - p->done;
    const size_t piece = left < g->slab ? left : g->slab;
    CHECK(c->bytes[taken % SHM_DEEP] == bytes, "rank %d sends %llu bytes where rank %d wants %zu",
          g->members[peer], (unsigned long long)c->bytes[taken % SHM_DEEP], g->owner->rank, bytes);
    if (piece > 0) {
        memcpy((unsigned char *)p->order.out.data + p->done, c->slab + taken % SHM_DEEP * g->slab,
               piece);
    }
    atomic_store(&c->taken, taken + 1);
    p->done += piece;
    l->ended += p->done == bytes ? 1 : 0;
    shm_ring(g);
    return true;
}

bool shm_step_messages(struct group *g)
{
    bool moved = false;

    for (int peer = 0; peer < g->size && g->out != NULL; peer++) {
        while (send_piece(g, peer)) {
            moved = true;
        }
        while (take_piece(g, peer)) {
            moved = true;
        }
    }
    return moved;
}
