/* machine.h - what this machine is: processors, memory, devices and the links between them.
 *
 * One description, from a file (`--machine FILE`, server/machines/NAME.json) or read off the system, is the
 * only input of placement. What changes by the minute (free memory, processes, faults) is `struct
 * device_now`, which inventory.h reads; a file may state it too, so that tests can make any machine.
 *
 * A device is what a job holds alone: a GPU, or a CPU slot (a set of cores and a share of memory). Sets of
 * devices are bit masks, bit i for devices[i].
 */
#ifndef SERVER_MACHINE_H
#define SERVER_MACHINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum {
    MACHINE_DEVICES = 64,
    MACHINE_NODES = 64,
    MACHINE_DISKS = 16,
    MACHINE_NAME = 96,
    DEVICE_ID = 64,
    DEVICE_CORES = 1024, /* of the whole machine: core numbers are below */
    DEVICE_PROCESSES = 16,
};

enum device_kind { DEVICE_CPU, DEVICE_GPU };

/* How two devices reach each other, the best first; the words are those of `nvidia-smi topo -m`. */
enum link_kind {
    LINK_SELF,   /* "X"                                               */
    LINK_NVLINK, /* "NV4": count links, or through a switch           */
    LINK_PIX,    /* at most one PCIe bridge                           */
    LINK_PXB,    /* several bridges, no host bridge                   */
    LINK_PHB,    /* a host bridge                                     */
    LINK_NODE,   /* host bridges of one memory node                   */
    LINK_SYS,    /* between memory nodes                              */
    LINK_NONE,   /* not known                                         */
};
enum known { KNOWN_NOT, KNOWN_NO, KNOWN_YES };

struct link {
    enum link_kind kind;
    int count;         /* NVLinks; 0 for others                         */
    bool is_switch;    /* NVLinks through a switch                      */
    double gb_per_s;   /* measured by the self test; 0: not known       */
    enum known access; /* peer access                                   */
};

/* A set of cores, bit c of word c / 64. */
struct cores {
    uint64_t word[DEVICE_CORES / 64];
};

struct device {
    char id[DEVICE_ID];      /* "cpu0", or the GPU's UUID              */
    char name[MACHINE_NAME]; /* "NVIDIA H100 80GB HBM3", "CPU slot 0"  */
    enum device_kind kind;
    bool is_usable;          /* this build can train on it             */
    char reason[160];        /* why not; "" when it is usable          */
    char bus[24];            /* "0000:10:00.0"; "" for CPU slots       */
    int capability[2];       /* CUDA's, 9 0; 0 0 for CPU slots         */
    uint64_t memory_bytes;   /* all of it                              */
    uint64_t reserved_bytes; /* of it what no job may have: driver, system */
    int node;                /* memory node; -1: not known             */
    struct cores cores;      /* near it (GPU), or its own (CPU slot)   */
    int core_count;
    int pcie_gen, pcie_width; /* 0: not known */
    bool ecc, mig;
    double power_limit_w; /* 0: not known */
};

struct memory_node {
    struct cores cores;
    uint64_t memory_bytes;
};

struct disk {
    char path[1024], kind[16]; /* "nvme", "ssd", "hdd", "" */
    uint64_t bytes;
};

struct machine {
    char name[MACHINE_NAME]; /* "UltraLAB mainstream", or the host's name */
    char processor[MACHINE_NAME];
    int sockets, core_count; /* physical cores where the system tells, else threads */
    uint64_t memory_bytes;
    int memory_channels; /* 0: not known */
    bool memory_ecc;
    double psu_watts; /* 0: not known */
    int node_count, disk_count, device_count;
    struct memory_node nodes[MACHINE_NODES]; /* by their numbers; one that there is not is empty */
    struct disk disks[MACHINE_DISKS];
    struct device devices[MACHINE_DEVICES];
    struct link links[MACHINE_DEVICES][MACHINE_DEVICES];
};

/* A process that is on a device. */
struct device_process {
    int64_t pid;
    char user[32], command[32];
    uint64_t bytes;
    bool is_ours; /* of a run or a model of this Hone */
};

enum device_fault { FAULT_NONE, FAULT_LOST, FAULT_ECC };

/* What a device is like at the moment. */
struct device_now {
    uint64_t used_bytes;  /* by anybody                          */
    uint64_t free_bytes;  /* as the device or the system says it */
    double utilization;   /* 0 to 1; -1: not known               */
    double temperature_c; /* -1: not known                       */
    double power_w;       /* -1: not known                       */
    int64_t ecc_errors;   /* uncorrectable; -1: not known        */
    enum device_fault fault;
    char fault_text[160];
    int process_count; /* of all; the first DEVICE_PROCESSES are listed */
    struct device_process processes[DEVICE_PROCESSES];
};

/* A description with what it says of the moment; `now` has one entry a device. Unknown keys are skipped.
 * Errors: BAD_FILE naming the key, NO_MEMORY; machine_read also as io_read_file. */
int machine_parse(struct machine *out, struct device_now now[MACHINE_DEVICES], const json_t *text,
                  struct err *err);
int machine_read(struct machine *out, struct device_now now[MACHINE_DEVICES], const char *path,
                 struct err *err);

/* The same as JSON (keys: server/machines/README.md); `now` may be NULL. A new reference; NULL: no memory. */
json_t *machine_json(const struct machine *m, const struct device_now *now);

/* "NV4", "PIX"; LINK_NONE is "". link_parse is the reverse; false for a word that is none. */
void link_word(char out[8], const struct link *l);
bool link_parse(struct link *out, const char *word);

/* NVLinks through a switch show as if all of a device's links led to each of the others: mark them so. */
void links_mark_switches(struct machine *m);

/* The index of a device by its id; -1 for none. */
int machine_device(const struct machine *m, const char *id);

/* "0-3,8"; white space around it is skipped and an empty text is the empty set. Errors: BAD_FILE. A text longer than `size` is cut. */
void cores_text(char *out, size_t size, const struct cores *c);
int cores_parse(struct cores *out, const char *text, struct err *err);

bool cores_has(const struct cores *c, int core);
void cores_add(struct cores *c, int core);
int cores_count(const struct cores *c);
void cores_keep(struct cores *c, const struct cores *only);  /* what is in both   */
void cores_join(struct cores *c, const struct cores *other); /* what is in either */

#endif
