/* fake_nvml.c - a library in place of NVIDIA's: its cards are the devices of a machine's description (server/machines/README.md).
 *
 * $FAKE_NVML is the path of the description, read anew whenever cards are counted, so that what it says of the moment may change. Further keys of it:
 * "init": what nvmlInit returns; "hangs": counting never returns; "switch": NVLinks lead to switches; "silent_links": no call tells of links; of
 * a device "uncounted": the driver has forgotten it; "instances": MIG is on, with so many instances.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/nvml_api.h"

enum { CARDS = 64, INVALID = 2 };

struct nvml_card {
    int number, instance; /* instance -1: the card itself */
};

static json_t *description;
static struct nvml_card cards[CARDS], instances[CARDS];

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct nvml_card **out);
int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_card **out);
int nvmlDeviceGetName(struct nvml_card *card, char *out, unsigned size);
int nvmlDeviceGetUUID(struct nvml_card *card, char *out, unsigned size);
int nvmlDeviceGetPciInfo_v3(struct nvml_card *card, struct nvml_pci *out);
int nvmlDeviceGetCudaComputeCapability(struct nvml_card *card, int *major, int *minor);
int nvmlDeviceGetMemoryInfo_v2(struct nvml_card *card, struct nvml_memory_two *out);
int nvmlDeviceGetUtilizationRates(struct nvml_card *card, struct nvml_use *out);
int nvmlDeviceGetTemperature(struct nvml_card *card, int sensor, unsigned *out);
int nvmlDeviceGetPowerUsage(struct nvml_card *card, unsigned *out);
int nvmlDeviceGetEnforcedPowerLimit(struct nvml_card *card, unsigned *out);
int nvmlDeviceGetEccMode(struct nvml_card *card, int *now, int *next);
int nvmlDeviceGetTotalEccErrors(struct nvml_card *card, int type, int counter,
                                unsigned long long *out);
int nvmlDeviceGetMigMode(struct nvml_card *card, unsigned *now, unsigned *next);
int nvmlDeviceGetMaxMigDeviceCount(struct nvml_card *card, unsigned *out);
int nvmlDeviceGetMigDeviceHandleByIndex(struct nvml_card *card, unsigned i, struct nvml_card **out);
int nvmlDeviceGetComputeRunningProcesses_v3(struct nvml_card *card, unsigned *count,
                                            struct nvml_process *out);
int nvmlDeviceGetNvLinkState(struct nvml_card *card, unsigned link, int *on);
int nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_card *card, unsigned link, int *type);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct nvml_card *card, unsigned link,
                                        struct nvml_pci *out);
int nvmlDeviceGetTopologyCommonAncestor(struct nvml_card *a, struct nvml_card *b, int *level);
int nvmlDeviceGetP2PStatus(struct nvml_card *a, struct nvml_card *b, int what, int *status);

static const json_t *device(int i)
{
    return json_array_get(json_object_get(description, "devices"), (size_t)i);
}

static double number(const json_t *object, const char *key, double missing)
{
    const json_t *v = json_object_get(object, key);

    return json_is_number(v) ? json_number_value(v) : missing;
}

static bool is_set(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static void load(void)
{
    const char *path = getenv("FAKE_NVML");
    json_t *fresh = path != NULL ? json_load_file(path, 0, NULL) : NULL;

    if (fresh != NULL) {
        json_decref(description);
        description = fresh;
    }
    for (int i = 0; i < CARDS; i++) {
        cards[i] = (struct nvml_card){i, -1};
    }
}

/* What every call on a card returns when the card is gone. */
static int check(const struct nvml_card *card)
{
    const char *fault = json_string_value(json_object_get(device(card->number), "fault"));

    return fault != NULL && strcmp(fault, "lost") == 0 ? NVML_LOST : 0;
}

int nvmlInit_v2(void)
{
    load();
    const int code = description == NULL ? NVML_NO_DRIVER : (int)number(description, "init", 0);
    if (code != 0) {
        (void)nvmlShutdown();
    }
    return code;
}

int nvmlShutdown(void)
{
    json_decref(description);
    description = NULL;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    load();
    while (is_set(description, "hangs")) {
        (void)usleep(20000);
        load();
    }
    *count = (unsigned)json_array_size(json_object_get(description, "devices"));
    for (int i = 0; device(i) != NULL; i++) {
        *count -= is_set(device(i), "uncounted") ? 1U : 0U;
    }
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct nvml_card **out)
{
    *out = &cards[i % CARDS];
    return device((int)i) != NULL ? 0 : INVALID;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_card **out)
{
    for (int i = 0; device(i) != NULL; i++) {
        const char *id = json_string_value(json_object_get(device(i), "id"));
        if (id != NULL && strcmp(id, uuid) == 0 && !is_set(device(i), "uncounted")) {
            *out = &cards[i];
            return 0;
        }
    }
    return NVML_NOT_FOUND;
}

int nvmlDeviceGetName(struct nvml_card *card, char *out, unsigned size)
{
    const char *name = json_string_value(json_object_get(device(card->number), "name"));

    (void)snprintf(out, size, "%s", name != NULL ? name : "card");
    return check(card);
}

int nvmlDeviceGetUUID(struct nvml_card *card, char *out, unsigned size)
{
    const char *id = json_string_value(json_object_get(device(card->number), "id"));

    if (card->instance >= 0) {
        (void)snprintf(out, size, "MIG-%s/%d", id, card->instance);
    } else {
        (void)snprintf(out, size, "%s", id);
    }
    return 0;
}

int nvmlDeviceGetPciInfo_v3(struct nvml_card *card, struct nvml_pci *out)
{
    const char *bus = json_string_value(json_object_get(device(card->number), "bus"));

    memset(out, 0, sizeof *out);
    if (bus == NULL || strlen(bus) != 12) {
        return NVML_NOT_SUPPORTED;
    }
    out->domain = (unsigned)strtoul(bus, NULL, 16);
    out->bus = (unsigned)strtoul(bus + 5, NULL, 16);
    out->device = (unsigned)strtoul(bus + 8, NULL, 16);
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(struct nvml_card *card, int *major, int *minor)
{
    const json_t *pair = json_object_get(device(card->number), "capability");

    *major = (int)json_integer_value(json_array_get(pair, 0));
    *minor = (int)json_integer_value(json_array_get(pair, 1));
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(struct nvml_card *card, struct nvml_memory_two *out)
{
    const json_t *d = device(card->number);
    const int parts = card->instance >= 0 ? (int)number(d, "instances", 1) : 1;

    if (out->version != (sizeof *out | 2U << 24)) {
        return 25;
    }
    out->total = (unsigned long long)number(d, "memory_bytes", 0) / (unsigned)parts;
    out->reserved = (unsigned long long)number(d, "reserved_bytes", 0);
    out->used = (unsigned long long)number(d, "used_bytes", 0);
    out->free = out->total - out->reserved - out->used;
    return check(card);
}

int nvmlDeviceGetUtilizationRates(struct nvml_card *card, struct nvml_use *out)
{
    *out =
        (struct nvml_use){.gpu = (unsigned)(100 * number(device(card->number), "utilization", 0))};
    return check(card);
}

int nvmlDeviceGetTemperature(struct nvml_card *card, int sensor, unsigned *out)
{
    *out = (unsigned)number(device(card->number), "temperature_c", 40);
    return sensor == 0 ? check(card) : INVALID;
}

int nvmlDeviceGetPowerUsage(struct nvml_card *card, unsigned *out)
{
    *out = (unsigned)(1000 * number(device(card->number), "power_w", 61));
    return check(card);
}

int nvmlDeviceGetEnforcedPowerLimit(struct nvml_card *card, unsigned *out)
{
    *out = (unsigned)(1000 * number(device(card->number), "power_limit_w", 300));
    return check(card);
}

int nvmlDeviceGetEccMode(struct nvml_card *card, int *now, int *next)
{
    *now = *next = is_set(json_object_get(device(card->number), "ecc"), "on");
    return check(card);
}

int nvmlDeviceGetTotalEccErrors(struct nvml_card *card, int type, int counter,
                                unsigned long long *out)
{
    const json_t *ecc = json_object_get(device(card->number), "ecc");

    if (type != NVML_UNCORRECTED || counter != NVML_VOLATILE || !is_set(ecc, "on")) {
        return NVML_NOT_SUPPORTED;
    }
    *out = (unsigned long long)number(ecc, "errors", 0);
    return check(card);
}

int nvmlDeviceGetMigMode(struct nvml_card *card, unsigned *now, unsigned *next)
{
    *now = *next = number(device(card->number), "instances", 0) > 0;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(struct nvml_card *card, unsigned *out)
{
    (void)card;
    *out = 7;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct nvml_card *card, unsigned i, struct nvml_card **out)
{
    const int at = 8 * card->number + (int)i;

    if (i >= (unsigned)number(device(card->number), "instances", 0) || at >= CARDS) {
        return NVML_NOT_FOUND;
    }
    instances[at] = (struct nvml_card){card->number, (int)i};
    *out = &instances[at];
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct nvml_card *card, unsigned *count,
                                            struct nvml_process *out)
{
    const json_t *list = json_object_get(device(card->number), "processes");
    const unsigned n = (unsigned)json_array_size(list), room = *count;

    *count = n;
    for (unsigned i = 0; i < n && n <= room; i++) {
        const json_t *p = json_array_get(list, i);
        out[i] = (struct nvml_process){.pid = (unsigned)number(p, "pid", 1),
                                       .bytes = (unsigned long long)number(p, "bytes", 0)};
    }
    return n > room ? NVML_SHORT : check(card);
}

/* The word of the link between two cards. */
static const char *link_of(int i, int j)
{
    const json_t *row = json_array_get(json_object_get(description, "links"), (size_t)i);
    const char *word = json_string_value(json_array_get(row, (size_t)j));

    return word != NULL ? word : "SYS";
}

/* Where the NVLink of that number leads: a card, -1 for a switch, -2 for nowhere. */
static int end_of(const struct nvml_card *card, unsigned link)
{
    unsigned first = 0;

    for (int j = 0; device(j) != NULL; j++) {
        const char *word = link_of(card->number, j);
        const unsigned n = strncmp(word, "NV", 2) == 0 ? (unsigned)strtoul(word + 2, NULL, 10) : 0;
        if (n > 0 && is_set(description, "switch")) {
            return link < n ? -1 : -2;
        }
        if (link < first + n) {
            return j;
        }
        first += n;
    }
    return -2;
}

int nvmlDeviceGetNvLinkState(struct nvml_card *card, unsigned link, int *on)
{
    *on = end_of(card, link) != -2;
    return is_set(description, "silent_links") || link >= NVML_LINKS ? NVML_NOT_SUPPORTED : 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_card *card, unsigned link, int *type)
{
    *type = end_of(card, link) == -1 ? NVML_REMOTE_SWITCH : NVML_REMOTE_GPU;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct nvml_card *card, unsigned link, struct nvml_pci *out)
{
    const int end = end_of(card, link);

    return end >= 0 ? nvmlDeviceGetPciInfo_v3(&cards[end], out) : INVALID;
}

int nvmlDeviceGetTopologyCommonAncestor(struct nvml_card *a, struct nvml_card *b, int *level)
{
    static const char *const words[] = {"PIX", "PXB", "PHB", "NODE", "SYS"};
    const char *word = link_of(a->number, b->number);

    *level = 50;
    for (int i = 0; i < 5; i++) {
        *level = strcmp(word, words[i]) == 0 ? 10 * (i + 1) : *level;
    }
    return is_set(description, "silent_links") ? NVML_NOT_SUPPORTED : 0;
}

int nvmlDeviceGetP2PStatus(struct nvml_card *a, struct nvml_card *b, int what, int *status)
{
    *status =
        what <= NVML_CAN_WRITE && strncmp(link_of(a->number, b->number), "NV", 2) == 0 ? 0 : 1;
    return 0;
}
