/* memory.c - regions as mappings. */
#include "trainer/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "trainer/base/poison.h"

enum { HUGE_PAGE = 2 << 20 };

static int out_of_memory(const struct layout *lo, size_t failed, struct err *err)
{
    int largest = 0;

    for (int i = 1; i < LIFE_COUNT; i++) {
        largest = lo->region[i].peak > lo->region[largest].peak ? i : largest;
    }
    return FAIL(err, ERR_NO_MEMORY,
                "the machine has no %.2f GiB for this run (asked for %.2f GiB in all, the largest "
                "part are %s with %.2f GiB)",
                (double)failed / 0x1p30, (double)layout_bytes(lo) / 0x1p30,
                life_name((enum life)largest), (double)lo->region[largest].peak / 0x1p30);
}

int memory_open(struct memory *out, const struct layout *lo, struct err *err)
{
    *out = (struct memory){{NULL}, {0}};
    for (int i = 0; i < LIFE_COUNT; i++) {
        const size_t bytes = (lo->region[i].peak + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        if (bytes == 0) {
            continue;
        }
        void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED) {
            const int rc = out_of_memory(lo, bytes, err);
            memory_close(out);
            return rc;
        }
        (void)madvise(base, bytes, MADV_HUGEPAGE); /* a hint: small pages work as well */
        memset(base, 0, lo->region[i].peak);
        out->base[i] = base;
        out->bytes[i] = bytes;
    }
    return 0;
}

void memory_close(struct memory *mem)
{
    for (int i = 0; i < LIFE_COUNT; i++) {
        if (mem->base[i] != NULL) {
            /* The next mapping at this address must not inherit it. */
            ASAN_UNPOISON_MEMORY_REGION(mem->base[i], mem->bytes[i]);
            (void)munmap(mem->base[i], mem->bytes[i]);
        }
    }
    *mem = (struct memory){{NULL}, {0}};
}
