/* pack.c - first-fit decreasing in windows; rows sorted by length; a split by hash. */
#include "trainer/data/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/data/token_file.h"

enum { WINDOW = 1 << 14 }; /* examples that are packed at a time */

/* A piece with the number that it is sorted by. */
struct ranked {
    uint64_t rank;
    struct piece piece;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    if (x->piece.document != y->piece.document) {
        return x->piece.document < y->piece.document ? -1 : 1;
    }
    return x->piece.part < y->piece.part ? -1 : x->piece.part > y->piece.part;
}

int64_t pack_begin(const struct pack *p, struct piece piece)
{
    return token_file_begin(p->file, piece.document) + piece.part * p->S;
}

int64_t pack_places(const struct pack *p, struct piece piece)
{
    const int64_t left = p->file->ends[piece.document] - pack_begin(p, piece) - 1;

    return left < p->S ? left : p->S;
}

/* The finalizer of splitmix64. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
    x = (x ^ x >> 27) * 0x94D049BB133111EBU;
    return x ^ x >> 31;
}

static uint64_t hash_example(const struct token_file *f, uint32_t example, uint64_t seed)
{
    uint64_t h = mix(seed + 0x9E3779B97F4A7C15U);

    for (int64_t i = token_file_begin(f, example); i < f->ends[example]; i++) {
        h = mix(h ^ (uint64_t)(token_file_at(f, i) + 1));
    }
    return h;
}

/* The border nearest to `held` that no two equal examples lie across; at least one is left to train. */
static int64_t border(const struct ranked *r, int64_t n, int64_t held)
{
    int64_t below = held, above = held;

    while (below > 0 && below < n && r[below - 1].rank == r[below].rank) {
        below--;
    }
    while (above > 0 && above < n && r[above - 1].rank == r[above].rank) {
        above++;
    }
    return above < n && above - held < held - below ? above : below < n ? below : 0;
}

static int by_place(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Those that train, then those held out, each in the order of the file. */
static void deal(struct pack_split *out, const struct ranked *r, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out->example[(i + out->training) % n] = r[i].piece.document;
    }
    qsort(out->example, (size_t)out->training, sizeof *out->example, by_place);
    qsort(out->example + out->training, (size_t)out->held, sizeof *out->example, by_place);
}

int pack_split(struct pack_split *out, const struct token_file *f, double fraction, uint64_t seed,
               struct err *err)
{
    const int64_t n = token_file_documents(f), held = llround(fraction * (double)n);

    CHECK(fraction >= 0.0 && fraction < 1.0, "fraction %g", fraction);
    if (n > UINT32_MAX) {
        return FAIL(err, ERR_TOO_LARGE, "more than %lld examples are too many",
                    (long long)UINT32_MAX);
    }
    struct ranked *r = calloc((size_t)n, sizeof *r);
    uint32_t *example = calloc((size_t)n, sizeof *example);
    if (r == NULL || example == NULL) {
        free(r);
        free(example);
        return FAIL(err, ERR_NO_MEMORY, "no memory for %lld examples", (long long)n);
    }
    for (uint32_t i = 0; i < n; i++) {
        r[i] = (struct ranked){held > 0 ? hash_example(f, i, seed) : i, {i, 0}};
    }
    qsort(r, (size_t)n, sizeof *r, by_rank);
    *out = (struct pack_split){.example = example, .held = border(r, n, held)};
    out->training = n - out->held;
    deal(out, r, n);
    free(r);
    return 0;
}

void pack_split_fini(struct pack_split *s)
{
    free(s->example);
    s->example = NULL;
}

/* One window on its way into rows. */
struct window {
    struct ranked piece[WINDOW]; /* longest first                                     */
    uint32_t row[WINDOW];        /* of the window, where each of them goes          */
    uint32_t start[WINDOW + 1];  /* of the rows, in places of the sorted pieces     */
    int64_t room[2 * WINDOW];    /* a tree: the most room of the rows below; leaves at WINDOW */
};

/* The first row with room for `places`, which takes them. */
static uint32_t first_fit(struct window *w, int64_t places)
{
    size_t at = 1;

    while (at < WINDOW) {
        at = 2 * at + (w->room[2 * at] < places);
    }
    const uint32_t row = (uint32_t)(at - WINDOW);
    w->room[at] -= places;
    for (at /= 2; at > 0; at /= 2) {
        const int64_t left = w->room[2 * at], right = w->room[2 * at + 1];
        w->room[at] = left > right ? left : right;
    }
    return row;
}

/* Pack w->piece[0 .. n) behind the rows that p has. */
static void pack_window(struct pack *p, struct window *w, size_t n)
{
    uint32_t rows = 0;

    qsort(w->piece, n, sizeof *w->piece, by_rank);
    memset(w->start, 0, sizeof w->start);
    for (size_t i = 0; i < 2 * (size_t)WINDOW; i++) {
        w->room[i] = p->S;
    }
    for (size_t i = 0; i < n; i++) {
        w->row[i] = first_fit(w, pack_places(p, w->piece[i].piece));
        w->start[w->row[i] + 1]++;
        rows = w->row[i] + 1 > rows ? w->row[i] + 1 : rows;
    }
    for (uint32_t row = 0; row < rows; row++) {
        w->start[row + 1] += w->start[row];
        p->row[++p->rows] = (uint32_t)p->pieces + w->start[row + 1];
    }
    for (size_t i = 0; i < n; i++) {
        p->piece[p->pieces + w->start[w->row[i]]++] = w->piece[i].piece;
    }
    p->pieces += (int64_t)n;
}

/* `all` [count]: the pieces in the order of the file. */
static int pack_together(struct pack *p, const struct piece *all, int64_t count, struct err *err)
{
    struct window *w = malloc(sizeof *w);

    if (w == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to pack examples");
    }
    for (int64_t at = 0; at < count; at += WINDOW) {
        const int64_t n = count - at < WINDOW ? count - at : WINDOW;
        for (int64_t i = 0; i < n; i++) {
            w->piece[i] =
                (struct ranked){(uint64_t)(p->S - pack_places(p, all[at + i])), all[at + i]};
        }
        pack_window(p, w, (size_t)n);
    }
    free(w);
    return 0;
}

static int pack_alone(struct pack *p, const struct piece *all, int64_t count, struct err *err)
{
    struct ranked *r = calloc((size_t)count + 1, sizeof *r);

    if (r == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to sort examples");
    }
    for (int64_t i = 0; i < count; i++) {
        r[i] = (struct ranked){(uint64_t)pack_places(p, all[i]), all[i]};
    }
    qsort(r, (size_t)count, sizeof *r, by_rank);
    for (int64_t i = 0; i < count; i++) {
        p->piece[i] = r[i].piece;
        p->row[i + 1] = (uint32_t)(i + 1);
    }
    p->rows = count;
    p->pieces = count;
    free(r);
    return 0;
}

/* Pieces of all examples, and what they hold. */
static int count_pieces(struct pack *p, const uint32_t *examples, int64_t *pieces, struct err *err)
{
    *pieces = 0;
    for (int64_t i = 0; i < p->examples; i++) {
        const int64_t begin = token_file_begin(p->file, examples[i]);
        const int64_t end = p->file->ends[examples[i]];
        if (end - begin < 2) {
            return FAIL(err, ERR_BAD_FILE, "an example of a single token has nothing to learn");
        }
        *pieces += (end - begin - 1 + p->S - 1) / p->S;
        p->tokens += end - begin;
        for (int64_t k = begin + 1; k < end; k++) {
            p->trained += token_file_trained(p->file, k);
        }
    }
    return *pieces <= UINT32_MAX ? 0
                                 : FAIL(err, ERR_TOO_LARGE, "%lld samples of examples are too many",
                                        (long long)*pieces);
}

static int fill(struct pack *p, const uint32_t *examples, enum pack_way way, struct err *err)
{
    int64_t count = 0, n = 0;

    TRY(count_pieces(p, examples, &count, err));
    struct piece *all = calloc((size_t)count + 1, sizeof *all);
    p->piece = calloc((size_t)count + 1, sizeof *p->piece);
    p->row = calloc((size_t)count + 1, sizeof *p->row);
    if (all == NULL || p->piece == NULL || p->row == NULL) {
        free(all);
        return FAIL(err, ERR_NO_MEMORY, "no memory for rows of %lld examples",
                    (long long)p->examples);
    }
    for (int64_t i = 0; i < p->examples; i++) {
        const int64_t begin = token_file_begin(p->file, examples[i]);
        for (uint32_t part = 0; begin + part * p->S + 1 < p->file->ends[examples[i]]; part++) {
            all[n++] = (struct piece){examples[i], part};
        }
    }
    CHECK(n == count, "%lld pieces, not %lld", (long long)n, (long long)count);
    const int rc =
        way == PACK_ALONE ? pack_alone(p, all, count, err) : pack_together(p, all, count, err);
    free(all);
    return rc;
}

int pack_make(struct pack **out, const struct token_file *f, const uint32_t *examples,
              int64_t count, int64_t S, enum pack_way way, int64_t group, struct err *err)
{
    struct pack *p = calloc(1, sizeof *p);

    CHECK(S >= 1 && count >= 0 && group >= 1, "S %lld, %lld examples", (long long)S,
          (long long)count);
    *out = NULL;
    if (p == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for rows of %lld examples", (long long)count);
    }
    *p =
        (struct pack){.file = f, .S = S, .examples = count, .group = way == PACK_ALONE ? group : 0};
    const int rc = fill(p, examples, way, err);
    if (rc != 0) {
        pack_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void pack_free(struct pack *p)
{
    if (p != NULL) {
        free(p->piece);
        free(p->row);
        free(p);
    }
}

struct data_set pack_set(const struct pack *p, uint64_t seed)
{
    return (struct data_set){
        .file = p->file, .end = p->tokens, .S = p->S, .seed = seed, .apart = true, .rows = p};
}
