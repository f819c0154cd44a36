/* probe.c - reads /sys and /proc below a root.
 *
 * A slot is made of whole physical cores: hyperthreads of a core stay together. Cores go to slots in the order of memory
 * nodes, so that a slot lies in one node where that works out. Quotas of cgroups, version 1 and 2, count.
 */
#include "server/probe.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "server/cgroups.h"
#include "trainer/base/io.h"

enum { PATH = 512, TEXT = 64 << 10 };

static const uint64_t RESERVE_MOST = UINT64_C(2)
                                     << 30; /* of main memory, for the system and honed */

/* The text of a file below the root, its last newline cut; false when there is none. */
static bool read_text(const char *root, const char *name, char *out, size_t size)
{
    char path[PATH];

    (void)snprintf(path, sizeof path, "%s%s", root, name);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    const size_t n = fread(out, 1, size - 1, f);
    (void)fclose(f);
    out[n] = '\0';
    char *end = out + strlen(out);
    while (end > out && isspace((unsigned char)end[-1]) != 0) {
        *--end = '\0';
    }
    return true;
}

/* A number that a file holds; `missing` for none, for "max" and for what is no number. */
static int64_t read_number(const char *root, const char *name, int64_t missing)
{
    char text[64], *end = NULL;

    if (!read_text(root, name, text, sizeof text)) {
        return missing;
    }
    const long long n = strtoll(text, &end, 10);
    return end == text || n < 0 ? missing : (int64_t)n;
}

static bool read_cores(const char *root, const char *name, struct cores *out)
{
    char text[TEXT];
    struct err ignored = {0};

    memset(out, 0, sizeof *out);
    return read_text(root, name, text, sizeof text) && cores_parse(out, text, &ignored) == 0;
}

/* "MemTotal:   123 kB" of /proc/meminfo or a node's meminfo. */
static uint64_t read_memory(const char *root, const char *name, const char *key)
{
    char text[TEXT];

    if (!read_text(root, name, text, sizeof text)) {
        return 0;
    }
    const char *at = strstr(text, key);
    return at == NULL ? 0 : (uint64_t)strtoull(at + strlen(key), NULL, 10) << 10U;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t probe_available(const char *root)
{
    struct cgroups groups;

    cgroups_read(&groups, root);
    return smaller(read_memory(root, "/proc/meminfo", "MemAvailable:"), groups.free_bytes);
}

/* Whole cores that a quota allows; a large number without one. */
static int quota_cores(const struct cgroups *groups)
{
    return groups->cores <= 0.0           ? DEVICE_CORES
           : groups->cores < 1.0          ? 1
           : groups->cores > DEVICE_CORES ? DEVICE_CORES
                                          : (int)groups->cores;
}

static void read_processor(struct machine *m, const char *root)
{
    char text[TEXT];

    if (!read_text(root, "/proc/cpuinfo", text, sizeof text)) {
        return;
    }
    const char *at = strstr(text, "model name");
    const char *colon = at == NULL ? NULL : strchr(at, ':');
    if (colon != NULL) {
        const size_t skip = strspn(colon + 1, " \t");
        const size_t n = strcspn(colon + 1 + skip, "\n");
        (void)snprintf(m->processor, sizeof m->processor, "%.*s", (int)n, colon + 1 + skip);
    }
}

static void read_nodes(struct machine *m, const char *root, const struct cores *allowed,
                       const struct cgroups *groups)
{
    struct cores online;
    char name[PATH];

    m->memory_bytes =
        smaller(read_memory(root, "/proc/meminfo", "MemTotal:"), groups->memory_bytes);
    if (read_cores(root, "/sys/devices/system/node/online", &online)) {
        for (int i = 0; i < MACHINE_NODES; i++) {
            (void)snprintf(name, sizeof name, "/sys/devices/system/node/node%d/cpulist", i);
            if (!cores_has(&online, i) || !read_cores(root, name, &m->nodes[i].cores)) {
                continue;
            }
            cores_keep(&m->nodes[i].cores, allowed);
            (void)snprintf(name, sizeof name, "/sys/devices/system/node/node%d/meminfo", i);
            m->nodes[i].memory_bytes = read_memory(root, name, "MemTotal:");
            m->node_count = i + 1;
        }
    }
    if (m->node_count == 0) {
        m->node_count = 1;
        m->nodes[0] = (struct memory_node){.cores = *allowed, .memory_bytes = m->memory_bytes};
    }
}

/* Physical cores, in the order of nodes: sets of hyperthreads. */
struct physical {
    int count;
    int node[DEVICE_CORES];
    struct cores threads[DEVICE_CORES];
};

static void add_core(struct physical *p, const char *root, int core, int node,
                     const struct cores *open)
{
    struct cores threads;
    char name[PATH];

    (void)snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                   core);
    if (!read_cores(root, name, &threads) || !cores_has(&threads, core)) {
        memset(&threads, 0, sizeof threads);
        cores_add(&threads, core);
    }
    cores_keep(&threads, open);
    p->node[p->count] = node;
    p->threads[p->count++] = threads;
}

static void list_cores(struct physical *p, const struct machine *m, const char *root,
                       const struct cores *allowed)
{
    struct cores left = *allowed;

    p->count = 0;
    for (int node = 0; node < m->node_count; node++) {
        for (int core = 0; core < DEVICE_CORES; core++) {
            if (cores_has(&left, core) && cores_has(&m->nodes[node].cores, core)) {
                add_core(p, root, core, node, allowed);
                for (int k = 0; k < DEVICE_CORES; k++) { /* they are one core */
                    if (cores_has(&p->threads[p->count - 1], k)) {
                        left.word[k / 64] &= ~(UINT64_C(1) << (k % 64));
                    }
                }
            }
        }
    }
}

/* Packages that hold the cores. */
static int count_sockets(const char *root, const struct cores *allowed)
{
    char name[PATH];
    struct cores packages = {0};

    for (int core = 0; core < DEVICE_CORES; core++) {
        if (cores_has(allowed, core)) {
            (void)snprintf(name, sizeof name,
                           "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", core);
            cores_add(&packages, (int)(read_number(root, name, 0) % DEVICE_CORES));
        }
    }
    const int n = cores_count(&packages);
    return n < 1 ? 1 : n > MACHINE_NODES ? MACHINE_NODES : n;
}

static void fill_slot(struct machine *m, int i, int slots, const struct physical *p,
                      const struct settings *s)
{
    struct device *d = &m->devices[i];
    const int first = p->count >= slots ? i * p->count / slots : i % p->count;
    const int end = p->count >= slots ? (i + 1) * p->count / slots : first + 1;
    const int64_t most = s->cpu_slot_cores > 0 ? s->cpu_slot_cores : DEVICE_CORES;
    const uint64_t reserve = smaller(m->memory_bytes / 16, RESERVE_MOST);

    *d = (struct device){.kind = DEVICE_CPU, .is_usable = true, .node = p->node[first]};
    (void)snprintf(d->id, sizeof d->id, "cpu%d", i);
    (void)snprintf(d->name, sizeof d->name, "CPU slot %d", i);
    for (int k = first; k < end && d->core_count < most; k++) {
        cores_join(&d->cores, &p->threads[k]);
        d->core_count++;
    }
    for (int k = first; k < end; k++) {
        d->node = p->node[k] == p->node[first] ? d->node : -1;
    }
    if (s->cpu_slot_memory > 0) {
        d->memory_bytes = smaller((uint64_t)s->cpu_slot_memory, m->memory_bytes);
    } else {
        d->memory_bytes = m->memory_bytes / (uint64_t)slots;
        d->reserved_bytes = reserve / (uint64_t)slots;
    }
}

static void link_slots(struct machine *m)
{
    for (int i = 0; i < m->device_count; i++) {
        for (int k = 0; k < m->device_count; k++) {
            const bool same = m->devices[i].node == m->devices[k].node;
            m->links[i][k].kind = i == k ? LINK_SELF : same ? LINK_NODE : LINK_SYS;
            m->links[i][k].access = KNOWN_YES;
        }
    }
}

/* "ssd" or "hdd" as the kernel takes the disk for; "" where it does not say. */
static void read_kind(char *out, size_t size, const char *root, const char *path)
{
    static const char *const places[] = {"queue", "../queue"}; /* of a disk, of a part of one */
    char name[PATH];
    struct stat s;

    for (size_t i = 0; stat(path, &s) == 0 && i < sizeof places / sizeof places[0]; i++) {
        (void)snprintf(name, sizeof name, "/sys/dev/block/%u:%u/%s/rotational", major(s.st_dev),
                       minor(s.st_dev), places[i]);
        const int64_t rotates = read_number(root, name, -1);
        if (rotates >= 0) {
            (void)snprintf(out, size, "%s", rotates > 0 ? "hdd" : "ssd");
        }
    }
}

static void read_disk(struct machine *m, const char *root, const char *path)
{
    struct statvfs v;

    if (statvfs(path, &v) == 0) {
        struct disk *d = &m->disks[m->disk_count++];
        (void)snprintf(d->path, sizeof d->path, "%s", path);
        d->bytes = (uint64_t)v.f_blocks * (uint64_t)v.f_frsize;
        read_kind(d->kind, sizeof d->kind, root, path);
    }
}

void probe_allowed(struct cores *out)
{
    _Static_assert(DEVICE_CORES <= CPU_SETSIZE, "cores of a set");
    cpu_set_t set;

    memset(out, 0, sizeof *out);
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        cores_add(out, 0);
        return;
    }
    for (int i = 0; i < DEVICE_CORES; i++) {
        if (CPU_ISSET((size_t)i, &set)) {
            cores_add(out, i);
        }
    }
}

int probe_machine(struct machine *out, const char *root, const struct cores *allowed,
                  const struct settings *s, struct err *err)
{
    struct physical *p = calloc(1, sizeof *p);
    struct cgroups groups;

    if (p == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a description of the machine");
    }
    memset(out, 0, sizeof *out);
    if (gethostname(out->name, sizeof out->name - 1) != 0) {
        (void)snprintf(out->name, sizeof out->name, "this machine");
    }
    read_processor(out, root);
    cgroups_read(&groups, root);
    read_nodes(out, root, allowed, &groups);
    list_cores(p, out, root, allowed);
    if (p->count == 0) {
        free(p);
        return FAIL(err, ERR_IO, "this process may use no core of the machine");
    }
    out->core_count = p->count;
    out->sockets = count_sockets(root, allowed);
    const int quota = quota_cores(&groups);
    p->count = p->count < quota ? p->count : quota;
    int nodes = 0;
    for (int i = 0; i < out->node_count; i++) {
        nodes += cores_count(&out->nodes[i].cores) > 0;
    }
    const int slots = s->cpu_slots > 0 ? (int)s->cpu_slots : nodes < p->count ? nodes : p->count;
    out->device_count = slots < 1 ? 1 : slots > MACHINE_DEVICES ? MACHINE_DEVICES : slots;
    for (int i = 0; i < out->device_count; i++) {
        fill_slot(out, i, out->device_count, p, s);
    }
    link_slots(out);
    if (s->data[0] != '\0') {
        read_disk(out, root, s->data);
    }
    free(p);
    return 0;
}
