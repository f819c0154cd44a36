/* verbs_machine.c - the machine: its devices, who holds them and how they are joined; quarantine, release. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"
#include "server/cli/when.h"

/* Links are a table of at most 15 devices beside the row's own name (table.c). */
enum { MOST_LINKED = 15 };

static void add_holder(struct table *t, const json_t *device)
{
    const json_t *const job = json_object_get(device, "job");
    char text[200] = "";

    if (json_is_object(job)) {
        const char *const id = cli_text(job, "id");
        (void)snprintf(text, sizeof text, "%.80s %.80s", id[0] != '\0' ? id : "(private)",
                       cli_text(job, "owner"));
    }
    table_add(t, text);
}

/* A measured number with its unit; "" where the device has none. */
static void add_measure(struct table *t, const json_t *device, const char *key, const char *unit)
{
    const json_t *const value = json_object_get(device, key);
    char text[64] = "";

    if (json_is_number(value)) {
        (void)snprintf(text, sizeof text, "%.0f%s", json_number_value(value), unit);
    }
    table_add(t, text);
}

static int print_devices(const json_t *machine, struct err *err)
{
    struct table *const t =
        table_new("DEVICE|NAME|STATE|>FREE|>OF|JOB|>CORES|>USE|>TEMPERATURE|>POWER|WHY");
    const json_t *device = NULL;
    size_t i = 0;

    json_array_foreach(json_object_get(machine, "devices"), i, device)
    {
        char bytes[24];
        if (t == NULL) {
            break;
        }
        table_add(t, cli_text(device, "id"));
        table_add(t, cli_text(device, "name"));
        table_add(t, cli_text(device, "state"));
        table_add(t, show_bytes(bytes, cli_integer(device, "free_bytes")));
        table_add(t, show_bytes(bytes, cli_integer(device, "memory_bytes")));
        add_holder(t, device);
        add_measure(t, device, "core_count", "");
        add_measure(t, device, "utilization", "%");
        add_measure(t, device, "temperature_c", " C");
        add_measure(t, device, "power_w", " W");
        table_add(t, cli_text(device, "reason"));
    }
    const int rc =
        t != NULL ? table_print(t, err) : FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    table_free(t);
    return rc;
}

/* Foreign processes are what makes a device busy. */
static void print_foreign(const json_t *machine)
{
    const json_t *device = NULL, *process = NULL;
    size_t i = 0, k = 0;

    json_array_foreach(json_object_get(machine, "devices"), i, device)
    {
        json_array_foreach(json_object_get(device, "processes"), k, process)
        {
            char bytes[24];
            if (json_is_true(json_object_get(process, "ours"))) {
                continue;
            }
            cli_print(cli_text(device, "id"));
            printf(": process %lld of ", (long long)cli_integer(process, "pid"));
            cli_print(cli_text(process, "user"));
            printf(", ");
            cli_print(cli_text(process, "command"));
            printf(", holds %s\n", show_bytes(bytes, cli_integer(process, "bytes")));
        }
    }
}

static int print_links(const json_t *machine, struct err *err)
{
    const json_t *const devices = json_object_get(machine, "devices");
    const size_t total = json_array_size(devices);
    const size_t count = total < MOST_LINKED ? total : MOST_LINKED;
    char columns[256] = "LINK";
    size_t used = strlen(columns);

    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(columns + used, sizeof columns - used, "|%zu", i);
    }
    struct table *const t = table_new(columns);
    for (size_t i = 0; t != NULL && i < count; i++) {
        const json_t *const row = json_array_get(json_object_get(machine, "links"), i);
        char text[200];
        (void)snprintf(text, sizeof text, "%zu %.150s", i,
                       cli_text(json_array_get(devices, i), "id"));
        table_add(t, text);
        for (size_t k = 0; k < count; k++) {
            const json_t *const link = json_array_get(row, k);
            const double speed = cli_number(link, "gb_per_s");
            (void)snprintf(text, sizeof text, speed > 0.0 ? "%.40s %.0f GB/s" : "%.40s",
                           cli_text(link, "link"), speed);
            table_add(t, i == k ? "X" : text);
        }
    }
    const int rc =
        t != NULL ? table_print(t, err) : FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    table_free(t);
    if (rc == 0 && count < total) {
        printf("the first %zu of %zu devices are shown\n", count, total);
    }
    return rc;
}

static void print_host(const json_t *machine)
{
    char text[128], bytes[24], free_bytes[24];

    cli_line("machine", cli_text(machine, "name"));
    cli_line("processor", cli_text(machine, "processor"));
    (void)snprintf(text, sizeof text, "%lld", (long long)cli_integer(machine, "cores"));
    cli_line("cores", text);
    const int64_t left = cli_integer(machine, "memory_free_bytes");
    (void)snprintf(text, sizeof text, "%s, %s free",
                   show_bytes(bytes, cli_integer(machine, "memory_bytes")),
                   show_bytes(free_bytes, left));
    cli_line("memory", text);
    cli_line("known from", cli_text(machine, "source"));
    if (cli_integer(machine, "updated_at") > 0) {
        char when[64];
        cli_line("looked at",
                 when_show(when, cli_integer(machine, "updated_at"), (int64_t)time(NULL)));
    }
    (void)putchar('\n');
}

int verb_machine(struct cli *c, struct err *err)
{
    json_t *machine = NULL;
    int rc = 0;

    TRY(cli_call(c, "GET", "/v1/machine", NULL, &machine, err));
    if (machine == NULL) {
        return 0;
    }
    if (args_has(&c->args, OPT(TOPOLOGY))) {
        rc = print_links(machine, err);
    } else {
        print_host(machine);
        rc = print_devices(machine, err);
        print_foreign(machine);
    }
    json_decref(machine);
    return rc;
}

/* Say in what state a device is now. `body` is given away. */
static int change_device(struct cli *c, const char *pattern, json_t *body, struct err *err)
{
    char path[1024];
    json_t *device = NULL;
    int rc = assign_path(path, sizeof path, err, pattern, c->args.word[0]);

    rc = rc != 0 ? rc : cli_call(c, "POST", path, body, &device, err);
    json_decref(body);
    if (device != NULL) {
        cli_print(cli_text(device, "id"));
        printf(" is ");
        cli_print(cli_text(device, "state"));
        (void)putchar('\n');
    }
    json_decref(device);
    return rc;
}

int verb_quarantine(struct cli *c, struct err *err)
{
    json_t *const body = json_pack("{s:s}", "reason", c->args.word[1]);

    return body != NULL ? change_device(c, "/v1/devices/%/quarantine", body, err)
                        : FAIL(err, ERR_BAD_REQUEST, "the reason is not UTF-8 text");
}

int verb_release(struct cli *c, struct err *err)
{
    return change_device(c, "/v1/devices/%/release", NULL, err);
}
