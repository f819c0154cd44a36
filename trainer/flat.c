/* flat.c - arithmetic of buckets and slices. */
#include "trainer/flat.h"

#include "kernels/check.h"

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

struct flat flat_make(int64_t used, int64_t bucket, int slices, int mine)
{
    const int64_t step = (int64_t)slices * FLAT_ALIGN;
    const int64_t count = round_up(used, step);

    bucket = round_up(bucket, step);
    CHECK(slices >= 1 && mine >= 0 && mine < slices, "slice %d of %d", mine, slices);
    return (struct flat){
        .count = count, .bucket = bucket < count ? bucket : count, .slices = slices, .mine = mine};
}

int flat_buckets(const struct flat *f)
{
    return f->count == 0 ? 0 : (int)((f->count + f->bucket - 1) / f->bucket);
}

struct stretch flat_bucket(const struct flat *f, int b)
{
    const int64_t at = b * f->bucket, left = f->count - at;

    return (struct stretch){at, left < f->bucket ? left : f->bucket};
}

struct stretch flat_slice(const struct flat *f, int b)
{
    const struct stretch all = flat_bucket(f, b);
    const int64_t each = all.count / f->slices;

    return (struct stretch){all.at + f->mine * each, each};
}

int64_t flat_state(const struct flat *f, int b)
{
    return b * (f->bucket / f->slices);
}

struct stretch stretch_common(struct stretch a, struct stretch b)
{
    const int64_t at = a.at > b.at ? a.at : b.at;
    const int64_t end_a = a.at + a.count, end_b = b.at + b.count;
    const int64_t end = end_a < end_b ? end_a : end_b;

    return (struct stretch){at, end > at ? end - at : 0};
}
