/* nvml_api.h - the part of NVIDIA's management library (NVML) that honed calls, as its interface declares it.
 *
 * The library comes with the driver, never with Hone, so nothing is linked: each function is looked up by its
 * newest name, then by an older one, and may be missing altogether. All return 0 when they worked.
 */
#ifndef SERVER_NVML_API_H
#define SERVER_NVML_API_H

enum {
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_SHORT = 7, /* the list has more entries than there was room for */
    NVML_NO_DRIVER = 9,
    NVML_LOST = 15,
    NVML_RESET = 16,
    NVML_MISMATCH = 18,

    NVML_TEXT = 96,
    NVML_LINKS = 18,
    NVML_REMOTE_GPU = 0,
    NVML_REMOTE_SWITCH = 2,
    NVML_UNCORRECTED = 1,
    NVML_VOLATILE = 0, /* since the driver was loaded */
    NVML_CAN_READ = 0,
    NVML_CAN_WRITE = 1,
};

struct nvml_card; /* a handle */

/* Versions differ behind `device`, so there is room for the longest. */
struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device;
    unsigned char rest[100];
};

struct nvml_memory {
    unsigned long long total, free, used; /* used: with what is reserved */
};

struct nvml_memory_two {
    unsigned version; /* size of this | 2 << 24 */
    unsigned long long total, reserved, free, used;
};

struct nvml_use {
    unsigned gpu, memory; /* per cent */
};

struct nvml_process {
    unsigned pid;
    unsigned long long bytes; /* all ones: not known */
    unsigned gpu_instance, compute_instance;
};

struct nvml_process_one {
    unsigned pid;
    unsigned long long bytes;
};

/* FUNCTION(member, arguments, newest name, older name) */
/* clang-format off */
#define NVML_FUNCTIONS \
    FUNCTION(init,           (void),                                                   "nvmlInit_v2", "nvmlInit") \
    FUNCTION(shutdown,       (void),                                                   "nvmlShutdown", "") \
    FUNCTION(count,          (unsigned *),                                             "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount") \
    FUNCTION(by_index,       (unsigned, struct nvml_card **),                          "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex") \
    FUNCTION(by_uuid,        (const char *, struct nvml_card **),                      "nvmlDeviceGetHandleByUUID", "") \
    FUNCTION(name,           (struct nvml_card *, char *, unsigned),                   "nvmlDeviceGetName", "") \
    FUNCTION(uuid,           (struct nvml_card *, char *, unsigned),                   "nvmlDeviceGetUUID", "") \
    FUNCTION(pci,            (struct nvml_card *, struct nvml_pci *),                  "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2") \
    FUNCTION(capability,     (struct nvml_card *, int *, int *),                       "nvmlDeviceGetCudaComputeCapability", "") \
    FUNCTION(memory_two,     (struct nvml_card *, struct nvml_memory_two *),           "nvmlDeviceGetMemoryInfo_v2", "") \
    FUNCTION(memory,         (struct nvml_card *, struct nvml_memory *),               "nvmlDeviceGetMemoryInfo", "") \
    FUNCTION(use,            (struct nvml_card *, struct nvml_use *),                  "nvmlDeviceGetUtilizationRates", "") \
    FUNCTION(temperature,    (struct nvml_card *, int, unsigned *),                    "nvmlDeviceGetTemperature", "") \
    FUNCTION(power,          (struct nvml_card *, unsigned *),                         "nvmlDeviceGetPowerUsage", "") \
    FUNCTION(power_limit,    (struct nvml_card *, unsigned *),                         "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit") \
    FUNCTION(pcie_gen,       (struct nvml_card *, unsigned *),                         "nvmlDeviceGetMaxPcieLinkGeneration", "") \
    FUNCTION(pcie_width,     (struct nvml_card *, unsigned *),                         "nvmlDeviceGetMaxPcieLinkWidth", "") \
    FUNCTION(ecc_mode,       (struct nvml_card *, int *, int *),                       "nvmlDeviceGetEccMode", "") \
    FUNCTION(ecc_errors,     (struct nvml_card *, int, int, unsigned long long *),     "nvmlDeviceGetTotalEccErrors", "") \
    FUNCTION(mig_mode,       (struct nvml_card *, unsigned *, unsigned *),             "nvmlDeviceGetMigMode", "") \
    FUNCTION(mig_most,       (struct nvml_card *, unsigned *),                         "nvmlDeviceGetMaxMigDeviceCount", "") \
    FUNCTION(mig_at,         (struct nvml_card *, unsigned, struct nvml_card **),      "nvmlDeviceGetMigDeviceHandleByIndex", "") \
    FUNCTION(compute,        (struct nvml_card *, unsigned *, struct nvml_process *),  "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2") \
    FUNCTION(compute_one,    (struct nvml_card *, unsigned *, struct nvml_process_one *), "nvmlDeviceGetComputeRunningProcesses", "") \
    FUNCTION(graphics,       (struct nvml_card *, unsigned *, struct nvml_process *),  "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2") \
    FUNCTION(link_state,     (struct nvml_card *, unsigned, int *),                    "nvmlDeviceGetNvLinkState", "") \
    FUNCTION(link_remote,    (struct nvml_card *, unsigned, int *),                    "nvmlDeviceGetNvLinkRemoteDeviceType", "") \
    FUNCTION(link_pci,       (struct nvml_card *, unsigned, struct nvml_pci *),        "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo") \
    FUNCTION(ancestor,       (struct nvml_card *, struct nvml_card *, int *),          "nvmlDeviceGetTopologyCommonAncestor", "") \
    FUNCTION(peer,           (struct nvml_card *, struct nvml_card *, int, int *),     "nvmlDeviceGetP2PStatus", "")
/* clang-format on */

/* NULL: this driver has no such function. */
struct nvml_api {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): it declares, and arguments bring their own */
#define FUNCTION(member, arguments, newest, older) int(*member) arguments;
    NVML_FUNCTIONS
#undef FUNCTION
};

#endif
