/* batch.c - which tokens of the samples of a step a rank works on.
 *
 * Context parallel: a sequence is cut into 2 cp chunks of equal length; rank i has chunks i and 2 cp - 1 - i, so that all
 * have as many pairs of a query and a key that it sees (as Megatron-LM does). Labels were shifted before: a label lies
 * with its token.
 */
#include "trainer/batch.h"

#include <string.h>

#include "kernels/check.h"

enum { WIDTH_STEP = 32 }; /* places, so that kernels meet few shapes */

/* Widths of a multiple of this can be shared by the ranks. */
static int64_t sharing(const struct dims *d)
{
    const int64_t chunks = d->cp > 1 ? 2 * d->cp : 1;
    int64_t step = chunks;

    while (step / d->cp % d->sp != 0) {
        step += chunks;
    }
    return step;
}

static int64_t round_width(const struct dims *d, int64_t width, int64_t least)
{
    const int64_t share = sharing(d);
    int64_t step = least;

    while (step % share != 0) {
        step += least;
    }
    width = (width + step - 1) / step * step;
    return width < d->S_all ? width : d->S_all;
}

/* Up to the last label of the longest row of a microbatch. */
static int64_t width_of(const struct model *m, const struct data_rows *rows, int64_t micro)
{
    const struct dims *d = &m->d;
    const int32_t *labels = rows->labels + (d->micro0 + micro) * d->B * d->S_all;
    int64_t width = 1;

    for (int64_t row = 0; row < d->B; row++) {
        int64_t end = d->S_all;
        while (end > width && labels[row * d->S_all + end - 1] < 0) {
            end--;
        }
        width = end > width ? end : width;
    }
    return round_width(d, width, WIDTH_STEP);
}

/* A stretch of a sequence: from which place on, how many. */
struct chunk_of {
    int64_t place, count;
};

/* Chunk 0 or 1 of this rank's of a sequence; alone, its halves. */
static struct chunk_of chunk(const struct dims *d, int64_t width, int which)
{
    const int64_t own = width / d->cp, half = own / 2;
    const int64_t place = d->cp_rank * half, skip = 2 * ((int64_t)d->cp - 1 - d->cp_rank) * half;

    return which == 0 ? (struct chunk_of){place, half}
                      : (struct chunk_of){place + half + skip, own - half};
}

/* `count` tokens from place `place` of the sample that begins at `from`, to row `to` of the step. */
static void copy_tokens(const struct model *m, const struct data_rows *rows, int64_t to,
                        int64_t from, struct chunk_of c)
{
    const size_t bytes = (size_t)c.count * sizeof(int32_t);
    const int64_t window = m->d.arch.window, at = from + c.place;
    int32_t *slid = m->first[1].data;

    memcpy((int32_t *)m->ids.data + to, rows->ids + at, bytes);
    memcpy((int32_t *)m->labels.data + to, rows->labels + at, bytes);
    memcpy((int32_t *)m->pos.data + to, rows->positions + at, bytes);
    memcpy((int32_t *)m->first[0].data + to, rows->first + at, bytes);
    for (int64_t i = 0; slid != NULL && i < c.count; i++) {
        const int64_t low = c.place + i - window + 1;
        slid[to + i] = low > rows->first[at + i] ? (int32_t)low : rows->first[at + i];
    }
}

int64_t batch_find(const struct dims *d, int64_t width, int64_t place, int *cp_rank)
{
    const int64_t half = width / d->cp / 2, i = d->cp > 1 ? place / half : 0;

    *cp_rank = (int)(i < d->cp ? i : 2 * d->cp - 1 - i);
    return d->cp == 1 ? place : place % half + (i < d->cp ? 0 : half);
}

/* Rows of all ranks, one rank's behind the other's, for every place of every sequence; and back. */
static void fill_order(const struct model *m, int64_t micro, int64_t sequences, int64_t width)
{
    const struct dims *d = &m->d;
    const int64_t own = width / d->cp;
    int32_t *row_of = m->order[0].data, *place_of = m->order[1].data;

    if (d->cp == 1) {
        return;
    }
    row_of += micro * d->R * d->cp;
    place_of += micro * d->R * d->cp;
    for (int64_t i = 0; i < sequences * width; i++) {
        int rank = 0;
        const int64_t at = batch_find(d, width, i % width, &rank);
        const int64_t row = rank * sequences * own + i / width * own + at;
        row_of[i] = (int32_t)row;
        place_of[row] = (int32_t)i;
    }
}

void batch_load(const struct model *m, const struct data_rows *rows, int64_t *width)
{
    const struct dims *d = &m->d;

    for (int64_t micro = 0; micro < d->micros; micro++) {
        const int64_t own = (width[micro] = width_of(m, rows, micro)) / d->cp;
        for (int64_t row = 0; row < d->B; row++) {
            const int64_t to = micro * d->R + row * own;
            const int64_t from = ((d->micro0 + micro) * d->B + row) * d->S_all;
            copy_tokens(m, rows, to, from, chunk(d, width[micro], 0));
            copy_tokens(m, rows, to + own / 2, from, chunk(d, width[micro], 1));
        }
        fill_order(m, micro, d->B, width[micro]);
    }
}

static void put_tokens(const struct model *m, const int32_t *ids, int64_t n, int64_t to,
                       struct chunk_of c)
{
    const int64_t window = m->d.arch.window;

    for (int64_t i = 0; i < c.count; i++) {
        const int64_t place = c.place + i;
        ((int32_t *)m->ids.data)[to + i] = place < n ? ids[place] : 0;
        ((int32_t *)m->pos.data)[to + i] = (int32_t)place;
        ((int32_t *)m->first[0].data)[to + i] = 0;
        if (m->first[1].data != NULL) {
            ((int32_t *)m->first[1].data)[to + i] =
                place >= window ? (int32_t)(place - window + 1) : 0;
        }
    }
}

int64_t batch_tokens(const struct model *m, const int32_t *ids, int64_t n)
{
    const struct dims *d = &m->d;

    CHECK(n >= 1 && n <= d->S_all, "%lld tokens", (long long)n);
    const int64_t width = round_width(d, n, 1);
    put_tokens(m, ids, n, 0, chunk(d, width, 0));
    put_tokens(m, ids, n, width / d->cp / 2, chunk(d, width, 1));
    fill_order(m, 0, 1, width);
    return width;
}
