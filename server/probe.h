/* probe.h - what the system says of processors, memory and CPU slots, from /sys, /proc and cgroups. */
#ifndef SERVER_PROBE_H
#define SERVER_PROBE_H

#include "server/machine.h"
#include "server/settings.h"

/* Read below `root` ("" for the system itself, a folder in tests); `allowed`: cores that this process may use. CPU slots
 * are made as the settings say; where `usable_gpus`, none. Errors: IO (a processor without cores). */
int probe_machine(struct machine *out, const char *root, const struct cores *allowed,
                  const struct settings *s, struct err *err);

/* Cores that this process may use. */
void probe_allowed(struct cores *out);

/* Main memory that is available now; what a cgroup allows counts. */
uint64_t probe_available(const char *root);

#endif
