/* test_machine.c - descriptions of machines: the shipped ones, damaged ones, and what is read off a tree of /sys and /proc. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/machine.h"
#include "server/place.h"
#include "server/probe.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static struct machine m, again;
static struct device_now now[MACHINE_DEVICES], now_again[MACHINE_DEVICES];

static void shipped_machines_read_and_write_back(void)
{
    static const struct {
        const char *name;
        int devices;
        uint64_t gib;
        enum link_kind first;
        int nvlinks;
    } all[] = {{"entry", 2, 47, LINK_PHB, 0},       {"mainstream", 4, 80, LINK_NVLINK, 12},
               {"high", 8, 79, LINK_NVLINK, 18},    {"h100-8", 8, 79, LINK_NVLINK, 18},
               {"h200-8", 8, 140, LINK_NVLINK, 18}, {"a100-8", 8, 80, LINK_NVLINK, 12},
               {"l40s-4", 4, 44, LINK_NODE, 0},     {"rtx4090-2", 2, 23, LINK_PHB, 0},
               {"rtx5090-2", 2, 31, LINK_PHB, 0},   {"rtx6000ada-2", 2, 47, LINK_PHB, 0},
               {"v100-4", 4, 32, LINK_NVLINK, 1}};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char path[200];
        struct err err = {0};
        (void)snprintf(path, sizeof path, "server/machines/%s.json", all[i].name);
        EXPECT(machine_read(&m, now, path, &err) == 0);
        EXPECT(m.device_count == all[i].devices && m.devices[0].memory_bytes >> 30 == all[i].gib);
        EXPECT(m.links[0][1].kind == all[i].first && m.links[0][1].count == all[i].nvlinks);
        json_t *json = machine_json(&m, now);
        EXPECT(machine_parse(&again, now_again, json, &err) == 0);
        EXPECT(memcmp(&m, &again, sizeof m) == 0);
        EXPECT(memcmp(now, now_again, sizeof now) == 0);
        json_decref(json);
    }
    EXPECT(m.devices[0].is_usable == false && m.devices[0].reason[0] != '\0');
}

static void damaged_descriptions_are_refused_by_key(void)
{
    static const struct {
        const char *text, *named;
    } bad[] = {
        {"[]", "object"},
        {"{\"devices\": 3}", "devices"},
        {"{\"devices\": [{\"id\": \"\"}]}", "id"},
        {"{\"devices\": [{\"id\": \"a\", \"memory_bytes\": 1}, {\"id\": \"a\"}]}", "id"},
        {"{\"devices\": [{\"id\": \"../x\"}]}", "id"},
        {"{\"devices\": [{\"id\": \"a\", \"memory_bytes\": -1}]}", "memory_bytes"},
        {"{\"devices\": [{\"id\": \"a\", \"memory_bytes\": \"80 GB\"}]}", "memory_bytes"},
        {"{\"devices\": [{\"id\": \"a\", \"memory_bytes\": 1, \"kind\": \"tpu\"}]}", "kind"},
        {"{\"devices\": [{\"id\": \"a\", \"memory_bytes\": 1, \"cores\": \"5-2\"}]}", "cores"},
        {"{\"devices\": [{\"id\": \"a\", \"memory_bytes\": 1}], \"links\": [[\"X\", \"X\"]]}",
         "links"},
        {"{\"devices\": [{\"id\": \"a\", \"memory_bytes\": 1}, {\"id\": \"b\", \"memory_bytes\": "
         "1}],"
         " \"links\": [[\"X\", \"NV4\"], [\"SYS\", \"X\"]]}",
         "links"},
        {"{\"devices\": [{\"id\": \"a\", \"memory_bytes\": 1}], \"topo\": \"nothing\"}", ""},
        {"{\"psu_watts\": \"many\"}", "psu_watts"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {0};
        json_t *json = json_loads(bad[i].text, 0, NULL);
        EXPECT(json != NULL && machine_parse(&m, now, json, &err) == ERR_BAD_FILE);
        EXPECT(strstr(err.text, bad[i].named) != NULL);
        json_decref(json);
    }
}

static void put(const char *name, const char *text)
{
    char path[400], *slash = NULL;
    struct err err = {0};

    (void)snprintf(path, sizeof path, "%s/%s", scratch, name);
    for (slash = strchr(path + strlen(scratch) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    CHECK(io_write_file(path, text, strlen(text), &err) == 0, "%s", err.text);
}

/* Two nodes of four cores with two threads each: 0-3 and 8-11, 4-7 and 12-15. */
static void make_tree(void)
{
    char name[200], text[64];

    put("proc/meminfo", "MemTotal:       67108864 kB\nMemAvailable:   33554432 kB\n");
    put("proc/cpuinfo", "processor : 0\nmodel name\t: Test 9000\n");
    put("sys/devices/system/node/online", "0-1\n");
    put("sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
    put("sys/devices/system/node/node1/cpulist", "4-7,12-15\n");
    put("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  33554432 kB\n");
    put("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  33554432 kB\n");
    for (int i = 0; i < 16; i++) {
        (void)snprintf(name, sizeof name,
                       "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        (void)snprintf(text, sizeof text, "%d,%d\n", i % 8, i % 8 + 8);
        put(name, text);
    }
}

static struct settings settings;

static void probe(int slots, const char *allowed_text)
{
    struct cores allowed;
    struct err err = {0};

    settings.cpu_slots = slots;
    EXPECT(cores_parse(&allowed, allowed_text, &err) == 0);
    EXPECT(probe_machine(&m, scratch, &allowed, &settings, &err) == 0);
}

static const char *cores_of(int device)
{
    static char text[100];

    cores_text(text, sizeof text, &m.devices[device].cores);
    return text;
}

static void slots_are_whole_cores_of_one_node(void)
{
    make_tree();
    probe(0, "0-15");
    EXPECT(m.device_count == 2 && m.core_count == 8 && strcmp(m.processor, "Test 9000") == 0);
    EXPECT(strcmp(cores_of(0), "0-3,8-11") == 0 && m.devices[0].node == 0);
    EXPECT(strcmp(cores_of(1), "4-7,12-15") == 0 && m.devices[1].node == 1);
    EXPECT(m.devices[0].memory_bytes == UINT64_C(32) << 30 && m.devices[0].core_count == 4);
    EXPECT(m.devices[0].reserved_bytes == UINT64_C(1) << 30);
    EXPECT(m.links[0][1].kind == LINK_SYS);
    probe(4, "0-15");
    EXPECT(m.device_count == 4 && strcmp(cores_of(1), "2-3,10-11") == 0);
    EXPECT(m.links[0][1].kind == LINK_NODE && m.links[1][2].kind == LINK_SYS);
    probe(3, "0-15"); /* 2, 3 and 3 cores; the second lies across */
    EXPECT(m.devices[0].core_count + m.devices[1].core_count + m.devices[2].core_count == 8);
    EXPECT(m.devices[1].node == -1);
    probe(1, "0-15");
    EXPECT(m.device_count == 1 && m.devices[0].core_count == 8);
}

static void what_is_not_allowed_is_left_out(void)
{
    probe(2, "0-1,8");
    EXPECT(m.core_count == 2 && strcmp(cores_of(0), "0,8") == 0 && strcmp(cores_of(1), "1") == 0);
    put("sys/fs/cgroup/cpu.max", "150000 100000\n");
    put("sys/fs/cgroup/memory.max", "4294967296\n");
    put("sys/fs/cgroup/memory.current", "1073741824\n");
    probe(0, "0-15");
    EXPECT(m.devices[0].core_count == 1 && m.memory_bytes == UINT64_C(4) << 30);
    EXPECT(probe_available(scratch) == UINT64_C(3) << 30);
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    probe(0, "0-15");
    EXPECT(m.core_count == 8 && m.memory_bytes == UINT64_C(64) << 30);
    EXPECT(probe_available(scratch) == UINT64_C(32) << 30);
}

/* The group of a service, and one above it with the tighter limit; cache is not taken for used. */
static void limits_of_all_groups_above_count(void)
{
    put("proc/self/cgroup",
        "9:name=systemd:/\n1:cpu,cpuacct:/box/in\n4:memory:/box/in\n0::/lab/hone\n");
    put("sys/fs/cgroup/lab/memory.max", "8589934592\n");
    put("sys/fs/cgroup/lab/memory.current", "6442450944\n");
    put("sys/fs/cgroup/lab/memory.stat", "anon 5\ninactive_file 3221225472\nfile 7\n");
    put("sys/fs/cgroup/lab/hone/memory.max", "17179869184\n");
    put("sys/fs/cgroup/lab/hone/cpu.max", "300000 100000\n");
    probe(0, "0-15");
    EXPECT(m.memory_bytes == UINT64_C(8) << 30);
    EXPECT(probe_available(scratch) == UINT64_C(5) << 30);
    EXPECT(m.devices[0].core_count + m.devices[1].core_count == 3);
    put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648\n");
    put("sys/fs/cgroup/memory/box/in/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/cpu/box/in/cpu.cfs_quota_us", "200000\n");
    put("sys/fs/cgroup/cpu/box/in/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    probe(0, "0-15");
    EXPECT(m.memory_bytes == UINT64_C(2) << 30);
    EXPECT(m.devices[0].core_count + m.devices[1].core_count == 2);
    put("proc/self/cgroup", "0::/\n");
    probe(0, "0-15");
    EXPECT(m.memory_bytes == UINT64_C(64) << 30);
}

static void sockets_are_counted(void)
{
    char name[200];

    EXPECT(m.sockets == 1);
    for (int i = 0; i < 16; i++) {
        (void)snprintf(name, sizeof name,
                       "sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        put(name, i % 8 < 4 ? "0\n" : "1\n");
    }
    probe(0, "0-15");
    EXPECT(m.sockets == 2);
    probe(0, "0-3");
    EXPECT(m.sockets == 1);
}

static void more_slots_than_cores_share_them(void)
{
    probe(5, "0-1");
    EXPECT(m.device_count == 5 && m.devices[4].core_count == 1);
}

static void settings_size_slots(void)
{
    settings.cpu_slot_cores = 1;
    settings.cpu_slot_memory = 5 << 20;
    probe(2, "0-15");
    EXPECT(m.devices[0].core_count == 1 && m.devices[0].memory_bytes == 5 << 20);
    EXPECT(m.devices[0].reserved_bytes == 0);
}

static void this_machine_can_be_read(void)
{
    struct cores allowed;
    struct err err = {0};

    memset(&settings, 0, sizeof settings);
    probe_allowed(&allowed);
    EXPECT(probe_machine(&m, "", &allowed, &settings, &err) == 0);
    EXPECT(m.device_count >= 1 && m.memory_bytes > 0 && probe_available("") > 0);
}

int main(void)
{
    scratch_make();
    RUN(shipped_machines_read_and_write_back);
    RUN(damaged_descriptions_are_refused_by_key);
    RUN(slots_are_whole_cores_of_one_node);
    RUN(what_is_not_allowed_is_left_out);
    RUN(limits_of_all_groups_above_count);
    RUN(sockets_are_counted);
    RUN(more_slots_than_cores_share_them);
    RUN(settings_size_slots);
    RUN(this_machine_can_be_read);
    scratch_remove();
    return tap_done();
}
