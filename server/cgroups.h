/* cgroups.h - what the control groups of this process leave of memory and processors, versions 1 and 2. */
#ifndef SERVER_CGROUPS_H
#define SERVER_CGROUPS_H

#include <stdint.h>

struct cgroups {
    uint64_t memory_bytes; /* UINT64_MAX: no limit                                   */
    uint64_t free_bytes;   /* of it: what is not used, or is cache that can be given up */
    double cores;          /* by a quota of time; 0: no limit                        */
};

/* The tightest limits of the group of this process and of all above it. Read below `root` ("" for the system itself, a folder in tests). */
void cgroups_read(struct cgroups *out, const char *root);

#endif
