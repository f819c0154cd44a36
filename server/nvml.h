/* nvml.h - NVIDIA's cards, as the library of their driver tells of them.
 *
 * Calls may hang for ever when a card has fallen off the bus: only cards.c calls this, on a thread of its own.
 * A card whose MIG mode is on stands for its instances: each is a device without links to others.
 */
#ifndef SERVER_NVML_H
#define SERVER_NVML_H

#include "server/machine.h"

struct nvml;

/* Open the library, by default libnvidia-ml.so.1; `path` NULL for that. Errors: NOT_FOUND (no such library: no
 * driver is installed), DEVICE (the driver can't be asked, with the reason), NO_MEMORY. */
int nvml_open(struct nvml **out, const char *path, struct err *err);
void nvml_close(struct nvml *n); /* NULL is allowed */

/* Add the cards behind the devices that the machine has, with the links between them; cores and memory node come from /sys below `root`. Cards
 * beyond MACHINE_DEVICES are left out. They are not usable until somebody says so. Errors: DEVICE. */
int nvml_describe(struct nvml *n, struct machine *m, const char *root, struct err *err);

/* What the cards are like now: now[i] for those that were described. Processes whose environment says that they are of a job below the folder
 * `jobs`, and those that descend from this one, are ours. */
void nvml_read(struct nvml *n, const struct machine *m, const char *jobs, struct device_now *now);

/* Words for what a call returned. */
const char *nvml_words(int code);

#endif
