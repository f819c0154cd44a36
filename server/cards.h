/* cards.h - NVIDIA's cards of this machine, asked on a thread of their own.
 *
 * A driver may never answer again once a card has fallen off the bus. Whoever asks here waits two seconds at most and gets what was read
 * last; a driver that is silent for a minute means that its cards are lost.
 *
 * Sources: NVML (nvml.h; the environment's HONE_NVML names another library), and the text of `nvidia-smi topo -m` when that tells no links.
 */
#ifndef SERVER_CARDS_H
#define SERVER_CARDS_H

#include "server/machine.h"

struct cards;

/* Find the cards, add them to the machine and start the thread. `jobs`: the folder below which jobs of this honed are. Without a driver, or with one
 * that can't be asked, *out is NULL, which all below allow, and a line in the log says why. Errors: NO_MEMORY. */
int cards_open(struct cards **out, struct machine *m, const char *jobs, struct err *err);
void cards_close(struct cards *c);

/* What the cards are like: now[i] for each of them, read after this was called where the driver answers in time. */
void cards_read(struct cards *c, struct device_now now[MACHINE_DEVICES]);

/* An administrator has released the device: so many errors, which it had then, are no fault any more, until the driver counts anew. */
void cards_forgive(struct cards *c, int device, int64_t errors);

#endif
