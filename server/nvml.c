/* nvml.c - looks functions of NVML up and asks them. */
#include "server/nvml.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/nvml_api.h"
#include "server/person.h"
#include "trainer/base/text.h"

enum { PROCESSES = 128, PATH = 320 };

struct nvml {
    void *library;
    struct nvml_api api;
    int first, count;                         /* devices of the machine that are cards */
    struct nvml_card *cards[MACHINE_DEVICES]; /* by index in the machine               */
};

static const struct {
    const char *newest, *older;
    size_t offset;
} functions[] = {
#define FUNCTION(member, arguments, newest, older) \
    {newest, older, offsetof(struct nvml_api, member)},
    NVML_FUNCTIONS
#undef FUNCTION
};

const char *nvml_words(int code)
{
    switch (code) {
    case NVML_NOT_SUPPORTED: return "the card does not support that";
    case NVML_NOT_FOUND: return "the card is not there any more";
    case NVML_NO_DRIVER: return "the driver is not loaded";
    case NVML_LOST: return "the card has fallen off the bus";
    case NVML_RESET: return "the card has to be reset";
    case NVML_MISMATCH: return "the driver was updated: restart the machine";
    default: return "the driver reports an error";
    }
}

int nvml_open(struct nvml **out, const char *path, struct err *err)
{
    struct nvml *n = calloc(1, sizeof *n);

    *out = NULL;
    if (n == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a list of cards");
    }
    n->library = dlopen(path != NULL ? path : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (n->library == NULL) {
        free(n);
        return FAIL(err, ERR_NOT_FOUND, "no driver of NVIDIA is installed");
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(n->library, functions[i].newest);
        if (found == NULL && functions[i].older[0] != '\0') {
            found = dlsym(n->library, functions[i].older);
        }
        memcpy((char *)&n->api + functions[i].offset, &found, sizeof found);
    }
    const bool whole = n->api.init != NULL && n->api.count != NULL && n->api.by_index != NULL;
    const int code = whole ? n->api.init() : -1;
    if (code != 0) {
        (void)dlclose(n->library);
        free(n);
        return whole ? FAIL(err, ERR_DEVICE, "cards of NVIDIA can't be asked: %s (%d)",
                            nvml_words(code), code)
                     : FAIL(err, ERR_DEVICE, "the library of NVIDIA's driver is not whole");
    }
    *out = n;
    return 0;
}

void nvml_close(struct nvml *n)
{
    if (n == NULL) {
        return;
    }
    if (n->api.shutdown != NULL) {
        (void)n->api.shutdown();
    }
    (void)dlclose(n->library);
    free(n);
}

/* A number in a file of the card below /sys/bus/pci; text for the list of cores. */
static bool read_sysfs(const char *root, const char *bus, const char *name, char *out, size_t size)
{
    char path[PATH];

    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/%s", root, bus, name);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    const bool got = fgets(out, (int)size, f) != NULL;
    (void)fclose(f);
    return got;
}

static void describe_place(struct device *d, const struct machine *m, const char *root)
{
    char text[4096];
    struct err ignored = {0};

    d->node = -1;
    if (read_sysfs(root, d->bus, "numa_node", text, sizeof text)) {
        const long node = strtol(text, NULL, 10);
        d->node = node >= 0 && node < m->node_count ? (int)node : -1;
    }
    if (read_sysfs(root, d->bus, "local_cpulist", text, sizeof text) &&
        cores_parse(&d->cores, text, &ignored) != 0) {
        d->cores = (struct cores){0};
    }
    d->core_count = cores_count(&d->cores);
}

static unsigned number_of(int (*call)(struct nvml_card *, unsigned *), struct nvml_card *card)
{
    unsigned n = 0;

    return call != NULL && call(card, &n) == 0 ? n : 0;
}

static bool read_memory(const struct nvml *n, struct nvml_card *card, struct nvml_memory_two *out,
                        int *code)
{
    struct nvml_memory one = {0};

    *out = (struct nvml_memory_two){.version = (unsigned)sizeof *out | 2U << 24};
    *code = n->api.memory_two != NULL ? n->api.memory_two(card, out) : NVML_NOT_SUPPORTED;
    if (*code == 0) {
        return true;
    }
    if (n->api.memory != NULL && *code != NVML_LOST) {
        *code = n->api.memory(card, &one);
        out->total = one.total;
        out->free = one.free;
        out->used = one.used;
        out->reserved = 0;
    }
    return *code == 0;
}

/* An identity that can stand in an address. */
static void clean_id(char *id)
{
    for (; *id != '\0'; id++) {
        *id = isalnum((unsigned char)*id) || strchr("-_.", *id) != NULL ? *id : '-';
    }
}

static void describe_identity(const struct nvml *n, struct nvml_card *card, struct device *d,
                              unsigned number)
{
    char text[NVML_TEXT] = "";
    struct nvml_pci pci = {0};

    (void)snprintf(d->id, sizeof d->id, "gpu%u", number);
    if (n->api.uuid != NULL && n->api.uuid(card, text, sizeof text) == 0 && text[0] != '\0') {
        text[sizeof text - 1] = '\0';
        (void)snprintf(d->id, sizeof d->id, "%.63s", text);
        clean_id(d->id);
    }
    (void)snprintf(d->name, sizeof d->name, "GPU %u", number);
    if (n->api.name != NULL && n->api.name(card, text, sizeof text) == 0) {
        text[sizeof text - 1] = '\0';
        text_clean(d->name, sizeof d->name, text);
    }
    if (n->api.pci != NULL && n->api.pci(card, &pci) == 0) {
        (void)snprintf(d->bus, sizeof d->bus, "%04x:%02x:%02x.0", pci.domain & 0xffffffU,
                       pci.bus & 0xffU, pci.device & 0xffU);
    }
}

static void describe_card(const struct nvml *n, struct nvml_card *card, struct machine *m,
                          unsigned number, const char *root)
{
    struct device *d = &m->devices[m->device_count];
    struct nvml_memory_two memory;
    int code = 0, ecc = 0, next = 0;

    memset(d, 0, sizeof *d);
    d->kind = DEVICE_GPU;
    describe_identity(n, card, d, number);
    describe_place(d, m, root);
    if (n->api.capability != NULL &&
        n->api.capability(card, &d->capability[0], &d->capability[1]) != 0) {
        d->capability[0] = d->capability[1] = 0;
    }
    if (read_memory(n, card, &memory, &code)) {
        d->memory_bytes = memory.total;
        d->reserved_bytes = memory.reserved < memory.total ? memory.reserved : 0;
    }
    d->pcie_gen = (int)(number_of(n->api.pcie_gen, card) & 0xffU);
    d->pcie_width = (int)(number_of(n->api.pcie_width, card) & 0xffU);
    d->power_limit_w = number_of(n->api.power_limit, card) / 1000.0;
    d->ecc = n->api.ecc_mode != NULL && n->api.ecc_mode(card, &ecc, &next) == 0 && ecc == 1;
    (void)snprintf(d->reason, sizeof d->reason, "this build has no CUDA back end");
}

static void add_card(struct nvml *n, struct nvml_card *card, struct machine *m, unsigned number,
                     const char *root, bool mig)
{
    if (m->device_count == MACHINE_DEVICES) {
        return;
    }
    describe_card(n, card, m, number, root);
    m->devices[m->device_count].mig = mig;
    if (machine_device(m, m->devices[m->device_count].id) >= 0) {
        return; /* told twice */
    }
    n->cards[m->device_count++] = card;
    n->count++;
}

/* The card, or its instances. */
static void add_cards(struct nvml *n, struct nvml_card *card, struct machine *m, unsigned number,
                      const char *root)
{
    unsigned mode = 0, pending = 0;

    if (n->api.mig_mode == NULL || n->api.mig_at == NULL ||
        n->api.mig_mode(card, &mode, &pending) != 0 || mode != 1) {
        add_card(n, card, m, number, root, false);
        return;
    }
    const unsigned most = number_of(n->api.mig_most, card);
    for (unsigned i = 0; i < most && i < MACHINE_DEVICES; i++) {
        struct nvml_card *instance = NULL;
        if (n->api.mig_at(card, i, &instance) == 0) {
            add_card(n, instance, m, number, root, true);
        }
    }
}

/* The device with that place on the bus; -1 for none. */
static int at_bus(const struct machine *m, const struct nvml_pci *pci)
{
    char bus[24];

    (void)snprintf(bus, sizeof bus, "%04x:%02x:%02x.0", pci->domain & 0xffffffU, pci->bus & 0xffU,
                   pci->device & 0xffU);
    for (int i = 0; i < m->device_count; i++) {
        if (m->devices[i].kind == DEVICE_GPU && !m->devices[i].mig &&
            strcmp(m->devices[i].bus, bus) == 0) {
            return i;
        }
    }
    return -1;
}

/* Active NVLinks of a card: to each other one, and to switches. */
static int count_links(const struct nvml *n, const struct machine *m, int from,
                       int to[MACHINE_DEVICES])
{
    int switched = 0;

    memset(to, 0, MACHINE_DEVICES * sizeof *to);
    for (unsigned l = 0; n->api.link_state != NULL && l < NVML_LINKS; l++) {
        struct nvml_pci pci = {0};
        int on = 0, remote = NVML_REMOTE_GPU;
        if (n->api.link_state(n->cards[from], l, &on) != 0 || on != 1) {
            continue;
        }
        if (n->api.link_remote != NULL) {
            (void)n->api.link_remote(n->cards[from], l, &remote);
        }
        if (remote == NVML_REMOTE_SWITCH) {
            switched++;
        } else if (n->api.link_pci != NULL && n->api.link_pci(n->cards[from], l, &pci) == 0) {
            const int peer = at_bus(m, &pci);
            if (peer >= 0) {
                to[peer]++;
            }
        }
    }
    return switched;
}

static enum link_kind kind_of(int level)
{
    return level <= 10   ? LINK_PIX
           : level <= 20 ? LINK_PXB
           : level <= 30 ? LINK_PHB
           : level <= 40 ? LINK_NODE
                         : LINK_SYS;
}

static void describe_link(const struct nvml *n, struct machine *m, int i, int j)
{
    struct link *l = &m->links[i][j];
    int level = 0, read = 0, write = 0;

    l->kind = LINK_NONE;
    if (m->devices[i].mig || m->devices[j].mig) {
        l->access = KNOWN_NO; /* instances don't reach each other */
        return;
    }
    if (n->api.ancestor != NULL && n->api.ancestor(n->cards[i], n->cards[j], &level) == 0) {
        l->kind = kind_of(level);
    }
    if (n->api.peer != NULL && n->api.peer(n->cards[i], n->cards[j], NVML_CAN_READ, &read) == 0 &&
        n->api.peer(n->cards[i], n->cards[j], NVML_CAN_WRITE, &write) == 0) {
        l->access = read == 0 && write == 0 ? KNOWN_YES : KNOWN_NO;
    }
}

static void describe_links(const struct nvml *n, struct machine *m)
{
    int direct[MACHINE_DEVICES], switched[MACHINE_DEVICES] = {0};
    const int end = n->first + n->count;

    for (int i = 0; i < m->device_count; i++) {
        for (int j = n->first; j < end; j++) {
            m->links[i][j] = (struct link){.kind = i == j ? LINK_SELF : LINK_NONE};
            m->links[j][i] = m->links[i][j];
        }
    }
    for (int i = n->first; i < end; i++) {
        switched[i] = m->devices[i].mig ? 0 : count_links(n, m, i, direct);
        for (int j = n->first; j < end; j++) {
            if (i != j) {
                describe_link(n, m, i, j);
            }
            if (i != j && !m->devices[i].mig && direct[j] > 0) {
                m->links[i][j].kind = LINK_NVLINK;
                m->links[i][j].count = direct[j];
            }
        }
    }
    for (int i = n->first; i < end; i++) {
        for (int j = n->first; j < end; j++) {
            const int both = switched[i] < switched[j] ? switched[i] : switched[j];
            if (i != j && both > 0) {
                m->links[i][j].kind = LINK_NVLINK;
                m->links[i][j].count = both;
                m->links[i][j].is_switch = true;
            }
        }
    }
}

int nvml_describe(struct nvml *n, struct machine *m, const char *root, struct err *err)
{
    unsigned count = 0;
    const int code = n->api.count(&count);

    n->first = m->device_count;
    n->count = 0;
    if (code != 0) {
        return FAIL(err, ERR_DEVICE, "cards of NVIDIA can't be counted: %s (%d)", nvml_words(code),
                    code);
    }
    for (unsigned i = 0; i < count && i < MACHINE_DEVICES; i++) {
        struct nvml_card *card = NULL;
        if (n->api.by_index(i, &card) == 0) {
            add_cards(n, card, m, i, root);
        }
    }
    describe_links(n, m);
    return 0;
}

static void note_process(struct device_now *now, const struct nvml_process *p, const char *jobs)
{
    for (int i = 0; i < now->process_count && i < DEVICE_PROCESSES; i++) {
        if (now->processes[i].pid == p->pid) {
            return; /* computes and draws */
        }
    }
    if (now->process_count < DEVICE_PROCESSES) {
        struct device_process *one = &now->processes[now->process_count];
        *one = (struct device_process){.pid = p->pid, .bytes = p->bytes + 1 == 0 ? 0 : p->bytes};
        person_tell(one, "", jobs);
    }
    now->process_count++;
}

static void read_processes(const struct nvml *n, struct nvml_card *card, const char *jobs,
                           struct device_now *now)
{
    int (*const calls[])(struct nvml_card *, unsigned *, struct nvml_process *) = {n->api.compute,
                                                                                   n->api.graphics};
    struct nvml_process list[PROCESSES];
    struct nvml_process_one short_list[PROCESSES];
    unsigned count = PROCESSES;

    for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++) {
        count = PROCESSES;
        const int code = calls[k] == NULL ? NVML_NOT_SUPPORTED : calls[k](card, &count, list);
        for (unsigned i = 0; code == 0 && i < count && i < PROCESSES; i++) {
            note_process(now, &list[i], jobs);
        }
        if (code == NVML_SHORT && count < 1U << 20) {
            now->process_count += (int)count; /* too many to be told one by one */
        }
    }
    if (n->api.compute == NULL && n->api.compute_one != NULL) {
        count = PROCESSES;
        const int code = n->api.compute_one(card, &count, short_list);
        for (unsigned i = 0; code == 0 && i < count && i < PROCESSES; i++) {
            const struct nvml_process p = {.pid = short_list[i].pid, .bytes = short_list[i].bytes};
            note_process(now, &p, jobs);
        }
    }
}

/* Whether the driver still has the card that had this identity. */
static bool is_there(const struct nvml *n, const char *id)
{
    struct nvml_card *card = NULL;

    return n->api.by_uuid == NULL || n->api.by_uuid(id, &card) == 0;
}

static void set_lost(struct device_now *now, int code)
{
    now->fault = FAULT_LOST;
    (void)snprintf(now->fault_text, sizeof now->fault_text, "%s (%d)", nvml_words(code), code);
}

static void read_health(const struct nvml *n, struct nvml_card *card, struct device_now *now)
{
    unsigned long long errors = 0;
    unsigned value = 0;
    struct nvml_use use = {0};

    if (n->api.use != NULL && n->api.use(card, &use) == 0 && use.gpu <= 100) {
        now->utilization = use.gpu / 100.0;
    }
    if (n->api.temperature != NULL && n->api.temperature(card, 0, &value) == 0 && value < 1000) {
        now->temperature_c = value;
    }
    if (n->api.power != NULL && n->api.power(card, &value) == 0) {
        now->power_w = value / 1000.0;
    }
    if (n->api.ecc_errors != NULL &&
        n->api.ecc_errors(card, NVML_UNCORRECTED, NVML_VOLATILE, &errors) == 0 &&
        errors < UINT64_C(1) << 62) {
        now->ecc_errors = (int64_t)errors;
    }
}

static void read_card(const struct nvml *n, const struct device *d, struct nvml_card *card,
                      const char *jobs, bool fewer, struct device_now *now)
{
    struct nvml_memory_two memory;
    int code = 0;

    *now = (struct device_now){
        .utilization = -1.0, .temperature_c = -1.0, .power_w = -1.0, .ecc_errors = -1};
    if (fewer && !is_there(n, d->id)) {
        set_lost(now, NVML_NOT_FOUND);
        return;
    }
    if (!read_memory(n, card, &memory, &code)) {
        set_lost(now, code);
        return;
    }
    now->free_bytes = memory.free;
    now->used_bytes = memory.used;
    read_health(n, card, now);
    read_processes(n, card, jobs, now);
    if (now->ecc_errors > 0) {
        now->fault = FAULT_ECC;
        (void)snprintf(now->fault_text, sizeof now->fault_text,
                       "%lld memory errors that it can't correct since the driver was loaded",
                       (long long)now->ecc_errors);
    }
}

void nvml_read(struct nvml *n, const struct machine *m, const char *jobs, struct device_now *now)
{
    unsigned count = 0;
    int cards = 0;

    for (int i = n->first; i < n->first + n->count; i++) {
        cards += !m->devices[i].mig;
    }
    const bool fewer = n->api.count(&count) != 0 || (int)(count & 0xffffU) < cards;
    for (int i = n->first; i < n->first + n->count; i++) {
        read_card(n, &m->devices[i], n->cards[i], jobs, fewer, &now[i]);
    }
}
