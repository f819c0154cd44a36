/* attention.h - what the passes of attention share: scratch, tiles of rows, and scores.
 *
 * Queries lie side by side in vector lanes, keys one below the other: a block of scores is
 * t[key][query]. Maxima and sums over keys are then plain vector operations, and a block of scores
 * is t = k q with q packed once per query block as [K][ATTENTION_QUERIES].
 */
#ifndef KERNELS_CPU_VEC_ATTENTION_H
#define KERNELS_CPU_VEC_ATTENTION_H

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/vec/micro.h"
#include "kernels/dropout.h"
#include "kernels/workspace.h"

enum { QUERIES = ATTENTION_QUERIES, KEYS = ATTENTION_KEYS };

/* One call. Column offsets of a head within a row of qkv follow from [H K | G K | G K]; keys and values may lie elsewhere,
 * in rows of [G K | G K]. */
struct attention {
    struct tensor qkv;
    struct tensor keys; /* qkv, or the context's          */
    int64_t T, key_row,
        key_head0; /* places of a sequence in it; elements of a row; heads before the keys */
    int64_t half, place0,
        skip; /* queries side by side in a sequence; places of queries: kernels.h     */
    const int32_t *first;
    const struct dropout *drop; /* NULL: none                    */
    uint32_t threshold;         /* of drop                       */
    real keep;                  /* 1 / (1 - p)                   */
    int64_t B, S, H, G, K;
    int64_t row;   /* elements of a row of qkv                   */
    int64_t width; /* K rounded up to LANES                      */
    real scale;
};

/* One block of queries of one head: rows [q0, q0 + n) of sequence b, at places from `place` on. */
struct block {
    int64_t b, h, q0, n, place;
};

/* Carves aligned arrays of reals from a piece of memory. */
struct scratch {
    real *at;
};

/* The shape that a workspace is for. */
static inline struct attention_shape workspace_shape(const struct attention_shape *s,
                                                     const struct attention_context *context)
{
    struct attention_shape whole = *s;

    whole.S = context != NULL ? context->T : s->S;
    return whole;
}

static inline void check_workspace(const struct queue *q, const struct attention_shape *s,
                                   enum dtype type)
{
    CHECK(q->workspace_bytes >= workspace_attention(s, type, cpu_threads()),
          "workspace of %zu bytes for attention over %lld", q->workspace_bytes, (long long)s->S);
}

/* The calling thread's part of the workspace. */
static inline struct scratch thread_scratch(const struct queue *q, const struct attention_shape *s,
                                            enum dtype type)
{
    const size_t part = workspace_attention(s, type, 1) / sizeof(real);

    return (struct scratch){(real *)q->workspace + (size_t)cpu_thread() * part};
}

static inline real *scratch_take(struct scratch *s, int64_t count)
{
    const int64_t line = 64 / (int64_t)sizeof(real);
    real *taken = s->at;

    s->at += blocks_of(count, line) * line;
    return taken;
}

static inline struct attention attention_of(struct tensor qkv, struct tensor first,
                                            const struct attention_shape *s,
                                            const struct dropout *drop,
                                            const struct attention_context *context)
{
    const bool apart = context != NULL;
    const struct attention_context own = {.keys = qkv, .T = s->S};
    const struct attention_context *c = apart ? context : &own;
    const int64_t row = (s->H + 2 * s->G) * s->K;
    const struct attention a = {.qkv = qkv,
                                .keys = c->keys,
                                .T = c->T,
                                .key_row = apart ? 2 * s->G * s->K : row,
                                .key_head0 = apart ? 0 : s->H,
                                .half = c->skip > 0 ? s->S / 2 : s->S,
                                .place0 = c->place0,
                                .skip = c->skip,
                                .first = first.data,
                                .drop = drop,
                                .threshold = drop != NULL ? dropout_threshold(drop) : 0,
                                .keep = drop != NULL ? (real)(1.0 / (1.0 - drop->p)) : 1,
                                .B = s->B,
                                .S = s->S,
                                .H = s->H,
                                .G = s->G,
                                .K = s->K,
                                .row = row,
                                .width = blocks_of(s->K, LANES) * LANES,
                                .scale = (real)s->scale};

    CHECK(a.G >= 1 && a.H % a.G == 0 && a.K >= 1 && a.K <= TILE, "%lld heads of %lld share %lld",
          (long long)a.H, (long long)a.K, (long long)a.G);
    check_any(qkv, a.B * a.S * a.row);
    check_any(a.keys, a.B * a.T * a.key_row);
    CHECK(a.place0 + a.S + a.skip <= a.T && a.S % a.half == 0, "queries behind %lld places",
          (long long)a.T);
    check_i32(first, a.B * a.S);
    CHECK(drop == NULL || (drop->p >= 0.0 && drop->p < 1.0 && drop->S == a.S),
          "dropout over sequences of %lld", drop == NULL ? 0LL : (long long)drop->S);
    return a;
}

/* Copies the n rows of K elements that begin at element `at` of t, `row` elements apart, into `tile`
 * [n][width], with zeros behind. Rows of a wide tensor are far apart; side by side they are read from
 * the first cache without conflicts, which pays for the copy many times. */
static inline struct rows rows_read(struct tensor t, int64_t at, int64_t row, int64_t n,
                                    const struct attention *a, real *tile)
{
    for (int64_t i = 0; i < n; i++) {
        real *to = tile + i * a->width;
        const real *v = tile_read(t, at + i * row, a->K, to);
        if (v != to) {
            memcpy(to, v, (size_t)a->K * sizeof(real));
        }
        for (int64_t d = a->K; d < a->width; d++) {
            to[d] = 0;
        }
    }
    return (struct rows){tile, a->width};
}

/* The same rows where each element is used once for all lanes: in place if they are reals. */
static inline struct rows rows_in_place(struct tensor t, int64_t at, int64_t row, int64_t n,
                                        const struct attention *a, real *tile)
{
    if (t.type == DTYPE_REAL) {
        return (struct rows){(const real *)t.data + at, row};
    }
    return rows_read(t, at, row, n, a, tile);
}

/* First elements of row s of sequence b: query head h in qkv, key head g, value head g in keys. */
static inline int64_t query_at(const struct attention *a, int64_t b, int64_t s, int64_t h)
{
    return (b * a->S + s) * a->row + h * a->K;
}

static inline int64_t key_at(const struct attention *a, int64_t b, int64_t s, int64_t g)
{
    return (b * a->T + s) * a->key_row + (a->key_head0 + g) * a->K;
}

static inline int64_t value_at(const struct attention *a, int64_t b, int64_t s, int64_t g)
{
    return (b * a->T + s) * a->key_row + (a->key_head0 + a->G + g) * a->K;
}

/* packed[d][i] = factor x[i][d] for the n rows of a block, d below the width; lanes beyond n are 0. */
static inline void pack_lanes(real *packed, struct rows x, int64_t n, int64_t width, real factor)
{
    for (int64_t i0 = 0; i0 < QUERIES; i0 += LANES) {
        for (int64_t d = 0; d < width; d += LANES) {
            vreal r[LANES];
            UNROLL
            for (int64_t i = 0; i < LANES; i++) {
                r[i] = (vreal){0};
                if (i0 + i < n) {
                    r[i] = vreal_load(x.at + (i0 + i) * x.row + d) * factor;
                }
            }
            micro_transpose(r);
            UNROLL
            for (int64_t i = 0; i < LANES; i++) {
                vreal_store(packed + (d + i) * QUERIES + i0, r[i]);
            }
        }
    }
}

/* Blocks of queries of a head of a sequence: none has queries of both halves where these lie apart. */
static inline int64_t query_blocks(const struct attention *a)
{
    return a->S / a->half * blocks_of(a->half, QUERIES);
}

/* Block i of them. */
static inline struct block query_block(const struct attention *a, int64_t b, int64_t h, int64_t i)
{
    const int64_t each = blocks_of(a->half, QUERIES), part = i / each;
    const int64_t q0 = part * a->half + i % each * QUERIES;

    return (struct block){.b = b,
                          .h = h,
                          .q0 = q0,
                          .n = smaller(QUERIES, (part + 1) * a->half - q0),
                          .place = a->place0 + q0 + part * a->skip};
}

/* The lane of the first query that sees key `key`, rounded down to a whole vector. */
static inline int64_t first_lane(struct block q, int64_t key)
{
    return larger(0, key - q.place) / (int64_t)LANES * LANES;
}

/* First key that some query of the block sees, at the start of its key block. */
static inline int64_t first_key(const struct attention *a, struct block q)
{
    return a->first[q.b * a->S + q.q0] / KEYS * (int64_t)KEYS;
}

/* True when some query of the block does not see some of the keys [k0, k0 + n). */
static inline bool has_hidden(const struct attention *a, struct block q, int64_t k0, int64_t n)
{
    return k0 + n - 1 > q.place || a->first[q.b * a->S + q.q0 + q.n - 1] > k0;
}

/* Queries of the block see keys from here on; lanes beyond the block see what its last query sees. */
static inline void read_first(int32_t *first, const struct attention *a, struct block q)
{
    const int32_t *from = a->first + q.b * a->S + q.q0;

    for (int64_t i = 0; i < QUERIES; i++) {
        first[i] = from[smaller(i, q.n - 1)];
        CHECK(first[i] >= 0 && first[i] <= q.place + smaller(i, q.n - 1),
              "query %lld sees keys from %d", (long long)(q.place + i), first[i]);
    }
}

/* t[j][i] = score of query number i against key k0 + j, -infinity where hidden, for lanes from `lane`.
 * packed holds the queries, already scaled. */
static inline void read_scores(real *t, const struct attention *a, struct block q,
                               const int32_t *first, const real *packed, struct rows keys,
                               int64_t k0, int64_t n)
{
    const int64_t lane = first_lane(q, k0);

    micro_multiply((struct grid){t + lane, QUERIES}, (struct view){keys.at, keys.row, 1},
                   (struct rows){packed + lane, QUERIES}, n, QUERIES - lane, a->K, false);
    if (!has_hidden(a, q, k0, n)) {
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        const int32_t key = (int32_t)(k0 + j), query = (int32_t)q.place;
        real *row = t + j * QUERIES;
#pragma omp simd
        for (int32_t i = (int32_t)lane; i < QUERIES; i++) {
            row[i] = key >= first[i] && key <= query + i ? row[i] : -(real)INFINITY;
        }
    }
}

/* The dropout keys of a block's queries, by halves. */
struct lane_keys {
    uint32_t a[QUERIES], b[QUERIES];
};

static inline void read_lane_keys(struct lane_keys *keys, const struct attention *a, struct block q)
{
    for (int64_t i = 0; i < QUERIES; i++) {
        const int64_t row = q.b * a->S + q.q0 + smaller(i, q.n - 1);
        const uint32_t head = (uint32_t)(a->drop->feature0 + q.h);
        const struct dropout_key key = dropout_head_key(dropout_row_key(a->drop, row), head);
        keys->a[i] = key.a;
        keys->b[i] = key.b;
    }
}

/* What the probability of lane i and key k0 + j is multiplied by: 0 or 1 / (1 - p). */
static ALWAYS_INLINE real lane_factor(const struct attention *a, const struct lane_keys *keys,
                                      uint32_t key, int64_t i)
{
    const struct dropout_key k = {keys->a[i], keys->b[i]};

    return dropout_word(k, key) >= a->threshold ? a->keep : REAL(0.0);
}

#endif
