/* cgroups.c - reads /proc/self/cgroup and the groups that it names, up to the root of each hierarchy.
 *
 *    0::/user.slice/hone.service     version 2: below /sys/fs/cgroup, or /sys/fs/cgroup/unified beside version 1
 *    4:memory:/docker/0123           version 1: below /sys/fs/cgroup/memory
 *    1:cpu,cpuacct:/docker/0123      below /sys/fs/cgroup/cpu
 *
 * In a container the path may be one of the host, which is not there: what is there is read.
 */
#include "server/cgroups.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 1024, TEXT = 16 << 10 };

static const uint64_t NONE = UINT64_MAX, MANY = UINT64_C(1) << 60;

/* A group on its way up to the root. */
struct group {
    const char *root, *base;
    char path[PATH / 2];
};

static bool read_text(const struct group *g, const char *name, char *out, size_t size)
{
    char path[2 * PATH];

    (void)snprintf(path, sizeof path, "%.512s%s%s/%s", g->root, g->base, g->path, name);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    const size_t n = fread(out, 1, size - 1, f);
    (void)fclose(f);
    out[n] = '\0';
    return true;
}

/* A number of bytes; NONE for no file, for "max" and for what is as good as no limit. */
static uint64_t read_bytes(const struct group *g, const char *name)
{
    char text[64], *end = NULL;

    if (!read_text(g, name, text, sizeof text)) {
        return NONE;
    }
    const unsigned long long n = strtoull(text, &end, 10);
    return end == text || text[0] == '-' || n >= MANY ? NONE : (uint64_t)n;
}

/* The number behind `key` at the begin of a line of memory.stat; 0 without one. */
static uint64_t read_cache(const struct group *g, const char *key)
{
    char text[TEXT];

    if (!read_text(g, "memory.stat", text, sizeof text)) {
        return 0;
    }
    for (const char *line = text; *line != '\0';) {
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ' ') {
            return (uint64_t)strtoull(line + strlen(key), NULL, 10);
        }
        line += strcspn(line, "\n");
        line += *line == '\n' ? 1 : 0;
    }
    return 0;
}

static void note_memory(struct cgroups *out, const struct group *g, const char *const names[3])
{
    const uint64_t limit = read_bytes(g, names[0]);

    if (limit == NONE) {
        return;
    }
    const uint64_t used = read_bytes(g, names[1]), cache = read_cache(g, names[2]);
    const uint64_t held = used == NONE ? 0 : used > cache ? used - cache : 0;
    const uint64_t free = limit > held ? limit - held : 0;
    out->memory_bytes = limit < out->memory_bytes ? limit : out->memory_bytes;
    out->free_bytes = free < out->free_bytes ? free : out->free_bytes;
}

static void note_quota(struct cgroups *out, double quota, double period)
{
    if (quota > 0.0 && period > 0.0) {
        const double cores = quota / period;
        out->cores = out->cores > 0.0 && out->cores < cores ? out->cores : cores;
    }
}

static void note_group(struct cgroups *out, const struct group *g)
{
    static const char *const two[] = {"memory.max", "memory.current", "inactive_file"};
    static const char *const one[] = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                      "total_inactive_file"};
    char text[64], *end = NULL;

    note_memory(out, g, two);
    note_memory(out, g, one);
    if (read_text(g, "cpu.max", text, sizeof text)) {
        const double quota = strtod(text, &end); /* "max": no number */
        note_quota(out, end == text ? 0.0 : quota, strtod(end, NULL));
    }
    if (read_text(g, "cpu.cfs_quota_us", text, sizeof text)) {
        const double quota = strtod(text, NULL);
        const bool has_period = read_text(g, "cpu.cfs_period_us", text, sizeof text);
        note_quota(out, quota, has_period ? strtod(text, NULL) : 100000.0);
    }
}

/* The group and those above it. */
static void climb(struct cgroups *out, struct group *g)
{
    char *slash = g->path;

    while (slash != NULL) {
        note_group(out, g);
        slash = strrchr(g->path, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    }
}

/* Whether a list like "cpu,cpuacct" has the word. */
static bool names_one(const char *list, size_t n, const char *word)
{
    const size_t size = strlen(word);

    for (size_t at = 0; at + size <= n; at++) {
        const bool begins = at == 0 || list[at - 1] == ',';
        const bool ends = at + size == n || list[at + size] == ',';
        if (begins && ends && memcmp(list + at, word, size) == 0) {
            return true;
        }
    }
    return false;
}

/* The path of this process in the hierarchy of a controller, "" for that of version 2; "" where nothing is said. */
static void find_path(struct group *g, const char *text, const char *controller)
{
    g->path[0] = '\0';
    for (const char *line = text; *line != '\0';) {
        const size_t size = strcspn(line, "\n");
        const char *first = memchr(line, ':', size);
        const char *second =
            first == NULL ? NULL : memchr(first + 1, ':', size - (size_t)(first + 1 - line));
        if (second != NULL) {
            const size_t n = (size_t)(second - first - 1);
            const bool is_it = controller[0] == '\0' ? n == 0 : names_one(first + 1, n, controller);
            const size_t left = size - (size_t)(second + 1 - line);
            if (is_it && left < sizeof g->path) {
                (void)snprintf(g->path, sizeof g->path, "%.*s", (int)left, second + 1);
            }
        }
        line += size;
        line += *line == '\n' ? 1 : 0;
    }
    if (strcmp(g->path, "/") == 0 || strstr(g->path, "..") != NULL) {
        g->path[0] = '\0';
    }
}

void cgroups_read(struct cgroups *out, const char *root)
{
    static const struct {
        const char *base, *controller;
    } hierarchies[] = {{"/sys/fs/cgroup", ""},
                       {"/sys/fs/cgroup/unified", ""},
                       {"/sys/fs/cgroup/memory", "memory"},
                       {"/sys/fs/cgroup/cpu", "cpu"}};
    char text[TEXT];
    struct group self = {.root = root, .base = "/proc/self"};

    *out = (struct cgroups){.memory_bytes = NONE, .free_bytes = NONE};
    if (!read_text(&self, "cgroup", text, sizeof text)) {
        text[0] = '\0';
    }
    for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++) {
        struct group g = {.root = root, .base = hierarchies[i].base};
        find_path(&g, text, hierarchies[i].controller);
        climb(out, &g);
    }
}
