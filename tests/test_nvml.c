/* test_nvml.c - NVIDIA's cards, with a library in place of the driver's (fake_nvml.c). */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/cards.h"
#include "server/nvml.h"
#include "server/person.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static struct machine m, expected;
static struct device_now now[MACHINE_DEVICES], expected_now[MACHINE_DEVICES];
static char library[IO_PATH_MAX];

/* The library beside this program. */
static void find_library(void)
{
    char here[IO_PATH_MAX - 32];
    const ssize_t n = readlink("/proc/self/exe", here, sizeof here - 1);

    CHECK(n > 0, "no program");
    here[n] = '\0';
    *strrchr(here, '/') = '\0';
    (void)snprintf(library, sizeof library, "%s/fake_nvml.so", here);
    CHECK(setenv("HONE_NVML", library, 1) == 0, "no environment");
}

static void use_description(const char *path)
{
    CHECK(setenv("FAKE_NVML", path, 1) == 0, "no environment");
}

/* A machine without devices, as it is before cards are added. */
static void make_bare(void)
{
    memset(&m, 0, sizeof m);
    memset(now, 0, sizeof now);
    m.node_count = 2;
}

static void cards_are_as_the_driver_says(void)
{
    static const char *const names[] = {"mainstream", "rtx4090-2", "v100-4", "l40s-4"};

    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        char path[200];
        struct nvml *n = NULL;
        struct err err = {0};
        (void)snprintf(path, sizeof path, "server/machines/%s.json", names[k]);
        EXPECT(machine_read(&expected, expected_now, path, &err) == 0);
        use_description(path);
        make_bare();
        EXPECT(nvml_open(&n, library, &err) == 0 && nvml_describe(n, &m, "/nowhere", &err) == 0);
        nvml_read(n, &m, "/jobs", now);
        EXPECT(m.device_count == expected.device_count);
        for (int i = 0; i < m.device_count; i++) {
            const struct device *d = &m.devices[i], *e = &expected.devices[i];
            EXPECT(strcmp(d->id, e->id) == 0 && strcmp(d->name, e->name) == 0);
            EXPECT(strcmp(d->bus, e->bus) == 0 && d->memory_bytes == e->memory_bytes);
            EXPECT(d->capability[0] == e->capability[0] && d->capability[1] == e->capability[1]);
            EXPECT(d->ecc == e->ecc && !d->is_usable && d->reason[0] != '\0' && d->node == -1);
            EXPECT(d->reserved_bytes == e->reserved_bytes);
            EXPECT(now[i].fault == FAULT_NONE && now[i].free_bytes == expected_now[i].free_bytes);
            for (int j = 0; j < m.device_count; j++) {
                const struct link *a = &m.links[i][j], *b = &expected.links[i][j];
                EXPECT(a->kind == b->kind && a->count == b->count && !a->is_switch);
                EXPECT(i == j || (a->access == KNOWN_YES) == (b->kind == LINK_NVLINK));
            }
        }
        nvml_close(n);
    }
}

/* Write a description of two cards; `more` are further keys of the machine, `first` of the first card. */
static void describe(const char *more, const char *first)
{
    char text[4000];

    (void)snprintf(text, sizeof text,
                   "{%s \"links\": [[\"X\", \"NV4\"], [\"NV4\", \"X\"]], \"devices\": ["
                   "{\"id\": \"GPU-a\", \"bus\": \"0000:10:00.0\", \"memory_bytes\": 8589934592%s},"
                   "{\"id\": \"GPU-b\", \"bus\": \"0000:20:00.0\", \"memory_bytes\": 8589934592}]}",
                   more, first);
    put_text(in_scratch("new.json"), text);
    CHECK(rename(in_scratch("new.json"), in_scratch("cards.json")) == 0, "no file");
}

static struct nvml *open_two(const char *more, const char *first)
{
    struct nvml *n = NULL;
    struct err err = {0};

    describe(more, first);
    use_description(in_scratch("cards.json"));
    make_bare();
    CHECK(nvml_open(&n, library, &err) == 0, "%s", err.text);
    CHECK(nvml_describe(n, &m, scratch, &err) == 0, "%s", err.text);
    return n;
}

static void a_driver_that_is_not_ready_is_told_in_words(void)
{
    struct nvml *n = NULL;
    struct err err = {0};

    use_description(in_scratch("cards.json"));
    describe("\"init\": 18,", "");
    EXPECT(nvml_open(&n, library, &err) == ERR_DEVICE && strstr(err.text, "restart") != NULL);
    describe("\"init\": 9,", "");
    EXPECT(nvml_open(&n, library, &err) == ERR_DEVICE && strstr(err.text, "not loaded") != NULL);
    EXPECT(nvml_open(&n, "no-such-library.so.1", &err) == ERR_NOT_FOUND && n == NULL);
    EXPECT(nvml_open(&n, "libm.so.6", &err) == ERR_DEVICE && n == NULL);
}

static void links_through_a_switch_reach_everybody(void)
{
    struct nvml *n = open_two("\"switch\": true,", "");

    EXPECT(m.links[0][1].kind == LINK_NVLINK && m.links[0][1].count == 4);
    EXPECT(m.links[0][1].is_switch && m.links[1][0].is_switch);
    nvml_close(n);
}

/* Some links of a card are down: a pair has what both have. */
static void links_that_are_down_count_for_nobody(void)
{
    struct nvml *n = NULL;
    struct err err = {0};

    put_text(in_scratch("cards.json"),
             "{\"switch\": true, \"links\": [[\"X\", \"NV4\"], [\"NV2\", \"X\"]], \"devices\": ["
             "{\"id\": \"a\", \"memory_bytes\": 9}, {\"id\": \"b\", \"memory_bytes\": 9}]}");
    make_bare();
    EXPECT(nvml_open(&n, library, &err) == 0 && nvml_describe(n, &m, scratch, &err) == 0);
    EXPECT(m.links[0][1].count == 2 && m.links[1][0].count == 2 && m.links[0][1].is_switch);
    nvml_close(n);
}

static void what_a_card_is_like_is_read_anew(void)
{
    struct nvml *n = open_two("", "");
    char first[400];

    (void)snprintf(first, sizeof first,
                   ", \"used_bytes\": 5, \"utilization\": 0.5, \"temperature_c\": 71, \"power_w\": "
                   "250, \"processes\": [{\"pid\": %d, \"bytes\": 3}, {\"pid\": 1, \"bytes\": 2}]",
                   (int)getpid());
    describe("", first);
    nvml_read(n, &m, "/jobs", now);
    EXPECT(now[0].used_bytes == 5 && now[0].free_bytes == 8589934587);
    EXPECT_NEAR(now[0].utilization, 0.5, 1e-9);
    EXPECT_NEAR(now[0].temperature_c, 71, 1e-9);
    EXPECT_NEAR(now[0].power_w, 250, 1e-9);
    EXPECT(now[0].process_count == 2 && now[0].processes[0].is_ours);
    EXPECT(now[0].processes[0].bytes == 3 && now[0].processes[0].user[0] != '\0');
    EXPECT(strcmp(now[0].processes[0].command, "test_nvml") == 0);
    EXPECT(now[0].processes[1].pid == 1 && !now[0].processes[1].is_ours);
    EXPECT(now[1].process_count == 0 && now[1].ecc_errors == -1);
    nvml_close(n);
}

static void a_card_that_goes_is_lost(void)
{
    struct nvml *n = open_two("", "");

    describe("", ", \"fault\": \"lost\"");
    nvml_read(n, &m, "/jobs", now);
    EXPECT(now[0].fault == FAULT_LOST && strstr(now[0].fault_text, "bus") != NULL);
    EXPECT(now[1].fault == FAULT_NONE && now[1].free_bytes > 0);
    describe("", ", \"uncounted\": true");
    nvml_read(n, &m, "/jobs", now);
    EXPECT(now[0].fault == FAULT_LOST && now[1].fault == FAULT_NONE);
    describe("", ", \"ecc\": {\"on\": true, \"errors\": 2}");
    nvml_read(n, &m, "/jobs", now);
    EXPECT(now[0].fault == FAULT_ECC && now[0].ecc_errors == 2 && now[1].fault == FAULT_NONE);
    describe("", "");
    nvml_read(n, &m, "/jobs", now);
    EXPECT(now[0].fault == FAULT_NONE);
    nvml_close(n);
}

static void instances_of_a_card_are_devices_of_their_own(void)
{
    struct nvml *n = open_two("", ", \"instances\": 2");

    EXPECT(m.device_count == 3 && m.devices[0].mig && m.devices[1].mig && !m.devices[2].mig);
    EXPECT(strcmp(m.devices[0].id, "MIG-GPU-a-0") == 0);
    EXPECT(strcmp(m.devices[1].id, "MIG-GPU-a-1") == 0);
    EXPECT(m.devices[0].memory_bytes == 4294967296 && m.devices[2].memory_bytes == 8589934592);
    EXPECT(m.links[0][1].kind == LINK_NONE && m.links[0][1].access == KNOWN_NO);
    EXPECT(m.links[0][2].kind == LINK_NONE && m.links[2][0].access == KNOWN_NO);
    nvml_close(n);
}

/* Cores and memory node of a card are those of its place on the bus. */
static void the_place_of_a_card_is_in_sysfs(void)
{
    struct err err = {0};
    char path[400];

    (void)snprintf(path, sizeof path, "%s", scratch);
    static const char *const folders[] = {"/sys", "/bus", "/pci", "/devices", "/0000:20:00.0"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        (void)snprintf(path + strlen(path), sizeof path - strlen(path), "%s", folders[i]);
        EXPECT(io_make_dir(path, &err) == 0);
    }
    put_text(in_scratch("sys/bus/pci/devices/0000:20:00.0/numa_node"), "1\n");
    put_text(in_scratch("sys/bus/pci/devices/0000:20:00.0/local_cpulist"), "4-7,12-15\n");
    struct nvml *n = open_two("", "");
    EXPECT(m.devices[0].node == -1 && m.devices[0].core_count == 0);
    EXPECT(m.devices[1].node == 1 && m.devices[1].core_count == 8);
    EXPECT(cores_has(&m.devices[1].cores, 12) && !cores_has(&m.devices[1].cores, 8));
    nvml_close(n);
}

static void cards_stand_behind_what_the_machine_has(void)
{
    struct cards *c = NULL;
    struct err err = {0};

    describe("", "");
    use_description(in_scratch("cards.json"));
    make_bare();
    m.device_count = 1;
    (void)snprintf(m.devices[0].id, sizeof m.devices[0].id, "cpu0");
    EXPECT(cards_open(&c, &m, "/jobs", &err) == 0 && c != NULL);
    EXPECT(m.device_count == 3 && strcmp(m.devices[1].id, "GPU-a") == 0);
    EXPECT(m.links[1][2].kind == LINK_NVLINK && m.links[0][1].kind == LINK_NONE);
    now[0].used_bytes = 77;
    describe("", ", \"used_bytes\": 9, \"ecc\": {\"on\": true, \"errors\": 1}");
    cards_read(c, now);
    EXPECT(now[0].used_bytes == 77 && now[1].used_bytes == 9 && now[1].fault == FAULT_ECC);
    cards_forgive(c, 1, 1);
    cards_read(c, now);
    EXPECT(now[1].fault == FAULT_NONE && now[1].ecc_errors == 1);
    describe("", ", \"ecc\": {\"on\": true, \"errors\": 2}");
    cards_read(c, now);
    EXPECT(now[1].fault == FAULT_ECC);
    cards_forgive(c, 1, 2);
    describe("", ", \"ecc\": {\"on\": true, \"errors\": 0}");
    cards_read(c, now);
    EXPECT(now[1].fault == FAULT_NONE);
    describe("", ", \"ecc\": {\"on\": true, \"errors\": 1}");
    cards_read(c, now);
    EXPECT(now[1].fault == FAULT_ECC); /* it was counted from 0 again */
    cards_close(c);
    cards_close(NULL);
    cards_read(NULL, now);
}

static void a_driver_that_hangs_stops_nobody(void)
{
    struct cards *c = NULL;
    struct err err = {0};

    describe("", ", \"used_bytes\": 4");
    make_bare();
    EXPECT(cards_open(&c, &m, "/jobs", &err) == 0 && c != NULL);
    cards_read(c, now);
    describe("\"hangs\": true,", ", \"used_bytes\": 5");
    cards_read(c, now);
    EXPECT(now[0].used_bytes == 4 && now[0].fault == FAULT_NONE);
    describe("", ", \"used_bytes\": 6");
    cards_read(c, now);
    EXPECT(now[0].used_bytes == 6);
    cards_close(c);
}

/* A program in place of nvidia-smi says what the library does not. */
static void links_come_from_nvidia_smi_when_nvml_is_silent(void)
{
    struct cards *c = NULL;
    struct err err = {0};
    char path[IO_PATH_MAX];

    put_text(in_scratch("nvidia-smi"),
             "#!/bin/sh\nprintf '\\tGPU0\\tGPU1\\tCPU Affinity\\tNUMA Affinity\\n'\n"
             "printf 'GPU0\\t X \\tNV4\\t0-3\\t1\\nGPU1\\tNV4\\t X \\t4-7\\t1\\n'\n");
    CHECK(chmod(in_scratch("nvidia-smi"), 0700) == 0, "no program");
    (void)snprintf(path, sizeof path, "%s:%s", scratch, getenv("PATH"));
    CHECK(setenv("PATH", path, 1) == 0, "no environment");
    describe("\"silent_links\": true,", "");
    make_bare();
    EXPECT(cards_open(&c, &m, "/jobs", &err) == 0 && c != NULL);
    EXPECT(m.links[0][1].kind == LINK_NVLINK && m.links[0][1].count == 4);
    EXPECT(m.devices[0].node == 1 && m.devices[1].core_count == 4);
    cards_close(c);
}

/* A process of a tree of /proc. */
static void put_process(int pid, int parent, const char *environment, size_t size)
{
    char name[64], path[IO_PATH_MAX], text[128];
    struct err err = {0};

    EXPECT(io_make_dir(in_scratch("proc"), &err) == 0);
    (void)snprintf(name, sizeof name, "proc/%d", pid);
    (void)snprintf(path, sizeof path, "%s", in_scratch(name));
    EXPECT(io_make_dir(path, &err) == 0);
    (void)snprintf(name, sizeof name, "proc/%d/stat", pid);
    (void)snprintf(text, sizeof text, "%d (a) b) S %d 1 1", pid, parent);
    put_text(in_scratch(name), text);
    (void)snprintf(name, sizeof name, "proc/%d/environ", pid);
    put_file(in_scratch(name), environment, size);
    (void)snprintf(name, sizeof name, "proc/%d/comm", pid);
    put_text(in_scratch(name), "a) b\n");
}

static bool is_ours(int pid)
{
    struct device_process p = {.pid = pid};

    person_tell(&p, scratch, "/data/jobs");
    EXPECT(strcmp(p.command, "a) b") == 0);
    return p.is_ours;
}

static void processes_of_jobs_and_models_are_ours(void)
{
    static const char job[] = "A=1\0HONE_JOB_DIR=/data/jobs/job-1\0B=2";
    static const char other[] = "HONE_JOB_DIR=/data/jobs-of-another/job-1\0";
    static const char part[] = "XHONE_JOB_DIR=/data/jobs/job-1\0";

    put_process(1000001, 1, job, sizeof job);
    put_process(1000002, 1, other, sizeof other);
    put_process(1000003, 1, part, sizeof part);
    put_process(1000004, (int)getpid(), "", 0);
    put_process(1000005, 1000004, "", 0);
    EXPECT(is_ours(1000001) && !is_ours(1000002) && !is_ours(1000003));
    EXPECT(is_ours(1000004) && is_ours(1000005));
}

int main(void)
{
    scratch_make();
    find_library();
    RUN(cards_are_as_the_driver_says);
    RUN(a_driver_that_is_not_ready_is_told_in_words);
    RUN(links_through_a_switch_reach_everybody);
    RUN(links_that_are_down_count_for_nobody);
    RUN(what_a_card_is_like_is_read_anew);
    RUN(a_card_that_goes_is_lost);
    RUN(instances_of_a_card_are_devices_of_their_own);
    RUN(the_place_of_a_card_is_in_sysfs);
    RUN(cards_stand_behind_what_the_machine_has);
    RUN(a_driver_that_hangs_stops_nobody);
    RUN(links_come_from_nvidia_smi_when_nvml_is_silent);
    RUN(processes_of_jobs_and_models_are_ours);
    scratch_remove();
    return tap_done();
}
