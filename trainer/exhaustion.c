/* exhaustion.c - looks at what the system counts about memory. */
#include "trainer/exhaustion.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/group.h"

/* "Hardly any": of all memory, and in bytes for small machines. */
enum { HARDLY_PART = 100, HARDLY_BYTES = 64 << 20, TEXT = 16384 };

/* The number behind "\nNAME" in a file below root; -1 when there is none. */
static int64_t read_number(const char *root, const char *file, const char *name)
{
    char path[1100], text[TEXT] = "\n", key[40];
    size_t have = 1;

    (void)snprintf(path, sizeof path, "%s%s", root, file);
    (void)snprintf(key, sizeof key, "\n%s", name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    for (ssize_t n = 1; n > 0 && have<sizeof text - 1; have += n> 0 ? (size_t)n : 0) {
        n = read(fd, text + have, sizeof text - 1 - have);
    }
    text[have] = '\0';
    (void)close(fd);
    const char *at = strstr(text, key);
    return at == NULL ? -1 : strtoll(at + strlen(key), NULL, 10);
}

static int64_t read_bytes(const char *root, const char *name)
{
    const int64_t kib = read_number(root, "/proc/meminfo", name);

    return kib < 0 || kib > INT64_MAX >> 10 ? -1 : kib << 10;
}

static int64_t count_kills(const struct exhaustion *x)
{
    const int64_t own = group_memory_kills(x->group);

    return own >= 0 ? own : read_number(x->root, "/proc/vmstat", "oom_kill ");
}

void exhaustion_begin(struct exhaustion *x, const char *root, const char *group)
{
    *x = (struct exhaustion){.root = root, .group = group};
    x->total = read_bytes(root, "MemTotal:");
    exhaustion_look(x);
}

void exhaustion_look(struct exhaustion *x)
{
    const int at = x->looks % EXHAUSTION_LOOKS;

    x->kills[at] = count_kills(x);
    x->free[at] = read_bytes(x->root, "MemAvailable:");
    /* From here on only the place in the ring matters. */
    x->looks = x->looks + 1 == 2 * EXHAUSTION_LOOKS ? EXHAUSTION_LOOKS : x->looks + 1;
}

int64_t exhaustion_free(const struct exhaustion *x)
{
    const int kept = x->looks < EXHAUSTION_LOOKS ? x->looks : EXHAUSTION_LOOKS;
    int64_t least = -1;

    for (int i = 0; i < kept; i++) {
        least = x->free[i] >= 0 && (least < 0 || x->free[i] < least) ? x->free[i] : least;
    }
    return least;
}

bool exhaustion_found(struct exhaustion *x)
{
    exhaustion_look(x);
    const int newest = (x->looks - 1) % EXHAUSTION_LOOKS;
    const int oldest = x->looks <= EXHAUSTION_LOOKS ? 0 : x->looks % EXHAUSTION_LOOKS;
    const int64_t least = exhaustion_free(x);
    const int64_t part = x->total / HARDLY_PART;
    const bool is_killed = x->kills[oldest] >= 0 && x->kills[newest] > x->kills[oldest];

    return is_killed ||
           (least >= 0 && x->total > 0 && least < (part > HARDLY_BYTES ? part : HARDLY_BYTES));
}
