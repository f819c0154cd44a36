/* sets.c - sets, the order of samples, batches. */
#include <string.h>

#include "kernels/check.h"
#include "trainer/data/pack.h"
#include "trainer/data/token_file.h"

enum { NOT_TRAINED = -100, FEISTEL_ROUNDS = 8 };

int64_t data_samples(const struct data_set *s)
{
    const int64_t tokens = s->end - s->begin;

    if (s->rows != NULL) {
        return s->rows->rows;
    }
    return tokens < 2 ? 0 : (tokens - 1 + s->S - 1) / s->S;
}

int data_split(struct data_set *training, struct data_set *validation, const struct token_file *f,
               double fraction, int64_t S, uint64_t seed, struct err *err)
{
    const int64_t tokens = f->header.tokens;

    CHECK(S >= 1 && fraction >= 0.0 && fraction < 1.0, "S %lld, fraction %g", (long long)S,
          fraction);
    *training = (struct data_set){.file = f, .end = tokens, .S = S, .seed = seed};
    *validation = *training;
    validation->begin = tokens;
    const int64_t n = data_samples(training);
    if (n < 1) {
        return FAIL(err, ERR_NO_TOKENS, "%lld tokens are not enough for one sample",
                    (long long)tokens);
    }
    if (fraction > 0.0 && n > 1) {
        int64_t held = (int64_t)(fraction * (double)n + 0.5);
        held = held < 1 ? 1 : held > n - 1 ? n - 1 : held;
        /* One token more than whole samples, so that the last one trained has all its labels; but two
         * are left to validate with. */
        const int64_t border = (n - held) * S + 1;
        training->end = border < tokens - 2 ? border : tokens - 2;
        validation->begin = training->end;
    }
    if (data_samples(training) < 1) {
        return FAIL(err, ERR_NO_TOKENS, "%lld tokens are not enough to train and to validate",
                    (long long)tokens);
    }
    return 0;
}

/* A well-mixed function of x (the finalizer of splitmix64). */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9U;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBU;
    return x ^ x >> 31;
}

/* A permutation of [0, 4^half) by a Feistel network (Luby & Rackoff 1988) keyed by seed and epoch. */
static uint64_t permute(uint64_t x, int half, uint64_t seed, uint64_t epoch)
{
    const uint64_t mask = ((uint64_t)1 << half) - 1, key = mix(seed + 0x9E3779B97F4A7C15U) ^ epoch;
    uint64_t left = x >> half, right = x & mask;

    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        const uint64_t next = left ^ (mix(mix(key + round * 0x9E3779B97F4A7C15U) + right) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

/* Place x of n, shuffled. Walks the cycle until it is in [0, n): four steps at most on average. */
static int64_t shuffle(int64_t place, int64_t n, uint64_t seed, uint64_t epoch)
{
    uint64_t x = (uint64_t)place;
    int half = 1;

    while (((int64_t)1 << 2 * half) < n) {
        half++;
    }
    do {
        x = permute(x, half, seed, epoch);
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

/* Place `consumed` of n in groups; 0: without. */
static int64_t order_of(int64_t n, int64_t group, uint64_t seed, int64_t consumed)
{
    const int64_t epoch = consumed / n, place = consumed % n;

    if (group == 0) {
        return shuffle(place, n, seed, (uint64_t)epoch);
    }
    const int64_t over = epoch * n % group, head = over == 0 ? 0 : group - over;
    const int64_t groups = head < n ? (n - head) / group : 0;
    if (place < head || place >= head + groups * group) {
        return place;
    }
    return head + (place - head) % group +
           group * shuffle((place - head) / group, groups, seed, (uint64_t)epoch);
}

int64_t data_order(const struct data_set *s, int64_t consumed)
{
    const int64_t n = data_samples(s);

    CHECK(consumed >= 0 && n > 0, "consumed %lld of %lld samples", (long long)consumed,
          (long long)n);
    return order_of(n, s->rows != NULL ? s->rows->group : 0, s->seed, consumed);
}

/* The document that token i is in. */
static int64_t document_of(const struct token_file *f, int64_t i)
{
    int64_t low = 0, high = f->header.documents - 1;

    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (f->ends[mid] <= i) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static void fill_first(const struct data_set *s, int32_t *first, int64_t from, int64_t n)
{
    int64_t document = document_of(s->file, from);
    int32_t start = 0;

    for (int64_t k = 0; k < s->S; k++) {
        if (k < n && from + k >= s->file->ends[document]) {
            document++;
            start = (int32_t)k;
        }
        first[k] = start;
    }
}

/* An example in the row from place `at` on; r is of that row. Returns its trained labels. */
static int64_t fill_example(const struct token_file *f, const struct data_rows *r, int64_t at,
                            int64_t begin, int64_t places)
{
    int64_t trained = 0;

    for (int64_t k = 0; k < places; k++) {
        const bool target = token_file_trained(f, begin + k + 1);
        r->ids[at + k] = token_file_at(f, begin + k);
        r->labels[at + k] = target ? token_file_at(f, begin + k + 1) : NOT_TRAINED;
        r->positions[at + k] = (int32_t)k;
        r->first[at + k] = (int32_t)at;
        trained += target;
    }
    return trained;
}

/* A row of examples; what is left of it is masked, and every place there sees itself alone. */
static int64_t fill_examples(const struct data_set *s, const struct data_rows *r, int64_t row)
{
    const struct pack *p = s->rows;
    int64_t at = 0, trained = 0;

    for (uint32_t i = row < 0 ? 0 : p->row[row]; row >= 0 && i < p->row[row + 1]; i++) {
        const int64_t places = pack_places(p, p->piece[i]);
        trained += fill_example(p->file, r, at, pack_begin(p, p->piece[i]), places);
        at += places;
    }
    for (; at < s->S; at++) {
        r->ids[at] = 0;
        r->labels[at] = NOT_TRAINED;
        r->positions[at] = 0;
        r->first[at] = (int32_t)at;
    }
    return trained;
}

/* Row `row` becomes a sample; -1 is a masked one. Returns its trained labels. */
static int64_t fill_row(const struct data_set *s, const struct data_rows *r, int64_t row,
                        int64_t sample)
{
    const int64_t from = s->begin + (sample < 0 ? 0 : sample) * s->S, left = s->end - from;
    const int64_t inputs = sample < 0 ? 0 : left < s->S ? left : s->S;
    const int64_t labels = sample < 0 ? 0 : left - 1 < s->S ? left - 1 : s->S;
    int32_t *ids = r->ids + row * s->S, *targets = r->labels + row * s->S;
    int32_t *positions = r->positions + row * s->S, *first = r->first + row * s->S;

    if (s->rows != NULL) {
        const struct data_rows one = {ids, targets, positions, first};
        return fill_examples(s, &one, sample);
    }
    for (int64_t k = 0; k < s->S; k++) {
        ids[k] = k < inputs ? token_file_at(s->file, from + k) : 0;
        targets[k] = k < labels ? token_file_at(s->file, from + k + 1) : NOT_TRAINED;
        positions[k] = (int32_t)k;
    }
    if (s->apart && inputs > 0) {
        fill_first(s, first, from, inputs);
    } else {
        memset(first, 0, (size_t)s->S * sizeof *first);
    }
    return labels;
}

int64_t data_batch(const struct data_set *s, const struct data_rows *rows, int64_t consumed,
                   int64_t count, int64_t total)
{
    int64_t trained = 0;

    for (int64_t i = 0; i < count; i++) {
        const int64_t at = consumed + i;
        trained += fill_row(s, rows, i, at < total ? data_order(s, at) : -1);
    }
    return trained;
}

int64_t data_batch_in_order(const struct data_set *s, const struct data_rows *rows, int64_t index,
                            int64_t count)
{
    const int64_t n = data_samples(s);
    int64_t trained = 0;

    for (int64_t i = 0; i < count; i++) {
        trained += fill_row(s, rows, i, index + i < n ? index + i : -1);
    }
    return trained;
}
