/* comm.c - operations as orders, counted. */
#include "trainer/comm/comm.h"

#include "kernels/check.h"

static comm_ticket start(struct comm *c, struct queue *q, const struct comm_order *o)
{
    const size_t in = tensor_bytes(o->in), out = tensor_bytes(o->out);

    CHECK(o->peer >= 0 && o->peer < c->size, "rank %d of a group of %d", o->peer, c->size);
    c->count[o->kind]++;
    c->bytes[o->kind] += (int64_t)(in > out ? in : out);
    return c->ops->start(c, q, o);
}

comm_ticket comm_start_all_reduce(struct comm *c, struct queue *q, struct tensor t,
                                  enum comm_reduction how)
{
    return start(c, q, &(struct comm_order){COMM_ALL_REDUCE, .how = how, .out = t, .in = t});
}

comm_ticket comm_start_reduce_scatter(struct comm *c, struct queue *q, struct tensor part,
                                      struct tensor t)
{
    CHECK(tensor_bytes(t) == tensor_bytes(part) * (size_t)c->size && t.type == part.type,
          "%zu bytes among %d", tensor_bytes(t), c->size);
    return start(c, q, &(struct comm_order){COMM_REDUCE_SCATTER, .out = part, .in = t});
}

comm_ticket comm_start_all_gather(struct comm *c, struct queue *q, struct tensor out,
                                  struct tensor part)
{
    CHECK(tensor_bytes(out) == tensor_bytes(part) * (size_t)c->size && out.type == part.type,
          "%zu bytes of %d", tensor_bytes(out), c->size);
    return start(c, q, &(struct comm_order){COMM_ALL_GATHER, .out = out, .in = part});
}

static int64_t sum_rows(const int64_t *rows, int size)
{
    int64_t sum = 0;

    for (int r = 0; r < size; r++) {
        CHECK(rows[r] >= 0, "%lld rows", (long long)rows[r]);
        sum += rows[r];
    }
    return sum;
}

comm_ticket comm_start_all_to_all(struct comm *c, struct queue *q, struct tensor out,
                                  const int64_t *out_rows, struct tensor in, const int64_t *in_rows)
{
    CHECK(sum_rows(in_rows, c->size) <= tensor_rows(in), "more rows than there are");
    CHECK(sum_rows(out_rows, c->size) <= tensor_rows(out), "more rows than there is room for");
    CHECK(in.type == out.type && tensor_cols(in) == tensor_cols(out), "rows of unequal length");
    CHECK(in_rows[c->rank] == out_rows[c->rank], "what stays is what comes");
    return start(c, q,
                 &(struct comm_order){COMM_ALL_TO_ALL, .out = out, .in = in, .out_rows = out_rows,
                                      .in_rows = in_rows});
}

comm_ticket comm_start_broadcast(struct comm *c, struct queue *q, struct tensor t, int root)
{
    return start(c, q, &(struct comm_order){COMM_BROADCAST, .out = t, .in = t, .peer = root});
}

comm_ticket comm_start_send(struct comm *c, struct queue *q, struct tensor t, int to)
{
    CHECK(to != c->rank, "a message to itself");
    return start(c, q, &(struct comm_order){COMM_SEND, .in = t, .peer = to});
}

comm_ticket comm_start_recv(struct comm *c, struct queue *q, struct tensor t, int from)
{
    CHECK(from != c->rank, "a message from itself");
    return start(c, q, &(struct comm_order){COMM_RECV, .out = t, .peer = from});
}

void comm_wait(struct comm *c, struct queue *q, comm_ticket ticket)
{
    c->ops->wait(c, q, ticket);
}

void comm_all_reduce(struct comm *c, struct queue *q, struct tensor t)
{
    comm_wait(c, q, comm_start_all_reduce(c, q, t, COMM_SUM));
}

void comm_barrier(struct comm *c, struct queue *q)
{
    comm_wait(c, q, start(c, q, &(struct comm_order){.kind = COMM_BARRIER}));
}

void comm_close(struct comm *c)
{
    c->ops->close(c);
}

const char *comm_kind_name(enum comm_kind kind)
{
    static const char *const name[COMM_KIND_COUNT] = {
        [COMM_ALL_REDUCE] = "all-reduce", [COMM_REDUCE_SCATTER] = "reduce-scatter",
        [COMM_ALL_GATHER] = "all-gather", [COMM_ALL_TO_ALL] = "all-to-all",
        [COMM_BROADCAST] = "broadcast",   [COMM_SEND] = "send",
        [COMM_RECV] = "receive",          [COMM_BARRIER] = "barrier"};

    return name[kind];
}
