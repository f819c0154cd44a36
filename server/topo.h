/* topo.h - the text of `nvidia-smi topo -m`, as run or pasted: how GPUs reach each other. */
#ifndef SERVER_TOPO_H
#define SERVER_TOPO_H

#include "server/machine.h"

enum { TOPO_BYTES = 1 << 18 };

/* What the text says of GPUs, in the order of their rows; NICs and legends are skipped. */
struct topo {
    int gpu_count;
    struct link links[MACHINE_DEVICES][MACHINE_DEVICES];
    struct cores cores[MACHINE_DEVICES]; /* near each; empty: not said */
    int node[MACHINE_DEVICES];           /* -1: not said               */
};

/* Columns parted by tabs or by blanks, ANSI escapes, CRLF, and lines before and behind are understood. A text that ends early gives
 * what it says: links of rows that are missing are as their columns say, else LINK_NONE.
 * Errors: BAD_FILE (no GPU in it, more than MACHINE_DEVICES, rows that contradict each other), NO_MEMORY. */
int topo_parse(struct topo *out, const char *text, struct err *err);

/* Put it on the machine's GPUs, in their order; what the machine knows of cores and nodes already stays. Errors: BAD_FILE when their numbers
 * differ. */
int topo_apply(struct machine *m, const struct topo *t, struct err *err);

#endif
