/* layout.c - a bump allocator that can run without memory. */
#include "trainer/layout.h"

#include "kernels/check.h"
#include "trainer/base/poison.h"

enum { ALIGNMENT = 256 }; /* what cudaMalloc gives, and enough for any vector load */

/* FNV-1a, 64 bits (Fowler, Noll, Vo), over one number. */
static uint64_t hash_in(uint64_t hash, uint64_t number)
{
    for (int i = 0; i < 8; i++) {
        hash = (hash ^ (number >> (8 * i) & 255U)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

struct tensor layout_take(struct layout *lo, enum life life, enum dtype type, int64_t rows,
                          int64_t cols)
{
    struct region *r = &lo->region[life];
    struct tensor t = tensor_make(NULL, type, rows, cols);

    CHECK(rows > 0 && cols > 0, "[%lld, %lld]", (long long)rows, (long long)cols);
    if (r->base != NULL) {
        t.data = r->base + r->used;
        ASAN_UNPOISON_MEMORY_REGION(t.data, tensor_bytes(t)); /* the gap after it stays poisoned */
    }
    r->used += (tensor_bytes(t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (r->used > r->peak) {
        r->peak = r->used;
    }
    lo->fingerprint = hash_in(lo->fingerprint, (uint64_t)life << 8 | (uint64_t)type);
    lo->fingerprint = hash_in(lo->fingerprint, (uint64_t)r->used);
    return t;
}

size_t layout_mark(const struct layout *lo, enum life life)
{
    return lo->region[life].used;
}

void layout_release(struct layout *lo, enum life life, size_t mark)
{
    CHECK(mark <= lo->region[life].used, "mark %zu is ahead of %zu", mark, lo->region[life].used);
    lo->region[life].used = mark;
}

void layout_bind(struct layout *lo, void *const base[LIFE_COUNT])
{
    for (int i = 0; i < LIFE_COUNT; i++) {
        if (base[i] != NULL) {
            ASAN_POISON_MEMORY_REGION(base[i], lo->region[i].peak);
        }
        lo->region[i] = (struct region){.base = base[i]};
    }
    lo->fingerprint = 0;
}

size_t layout_bytes(const struct layout *lo)
{
    size_t bytes = 0;

    for (int i = 0; i < LIFE_COUNT; i++) {
        bytes += lo->region[i].peak;
    }
    return bytes;
}

const char *life_name(enum life life)
{
    static const char *const name[LIFE_COUNT] = {
#define REGION(id, word, help) [LIFE_##id] = (word),
#include "trainer/regions.def"
    };

    return name[life];
}
