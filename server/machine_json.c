/* machine_json.c - a description of a machine as JSON (keys: server/machines/README.md). */
#include <stdio.h>
#include <string.h>

#include "server/machine.h"

/* Add a value, which is taken over; *whole becomes false when there is no memory. */
static void put(json_t *object, bool *whole, const char *key, json_t *value)
{
    *whole = json_object_set_new(object, key, value) == 0 && *whole;
}

static void put_text(json_t *object, bool *whole, const char *key, const char *text)
{
    put(object, whole, key, json_string(text));
}

static void put_bytes(json_t *object, bool *whole, const char *key, uint64_t bytes)
{
    put(object, whole, key, json_integer((json_int_t)bytes));
}

static void put_integer(json_t *object, bool *whole, const char *key, int n)
{
    put(object, whole, key, json_integer(n));
}

/* null where it is not known. */
static void put_real(json_t *object, bool *whole, const char *key, double value, bool is_known)
{
    put(object, whole, key, is_known ? json_real(value) : json_null());
}

static void put_cores(json_t *object, bool *whole, const struct cores *c)
{
    char text[DEVICE_CORES * 5];

    cores_text(text, sizeof text, c);
    put_text(object, whole, "cores", text);
}

static void put_processes(json_t *object, bool *whole, const struct device_now *now)
{
    json_t *list = json_array();

    for (int i = 0; i < now->process_count && i < DEVICE_PROCESSES; i++) {
        const struct device_process *p = &now->processes[i];
        json_t *one = json_object();
        put(one, whole, "pid", json_integer(p->pid));
        put_text(one, whole, "user", p->user);
        put_text(one, whole, "command", p->command);
        put_bytes(one, whole, "bytes", p->bytes);
        put(one, whole, "ours", json_boolean(p->is_ours));
        *whole = json_array_append_new(list, one) == 0 && *whole;
    }
    put(object, whole, "processes", list);
}

static void put_now(json_t *object, bool *whole, const struct device_now *now)
{
    put_bytes(object, whole, "used_bytes", now->used_bytes);
    put_bytes(object, whole, "free_bytes", now->free_bytes);
    put_real(object, whole, "utilization", now->utilization, now->utilization >= 0.0);
    put_real(object, whole, "temperature_c", now->temperature_c, now->temperature_c > -1.0);
    put_real(object, whole, "power_w", now->power_w, now->power_w >= 0.0);
    if (now->fault != FAULT_NONE) {
        put_text(object, whole, "fault", now->fault == FAULT_LOST ? "lost" : "ecc");
        put_text(object, whole, "fault_text", now->fault_text);
    }
    put_processes(object, whole, now);
}

static json_t *device_json(const struct device *d, const struct device_now *now, bool *whole)
{
    json_t *o = json_object(), *pcie = json_object(), *ecc = json_object();

    put_text(o, whole, "id", d->id);
    put_text(o, whole, "name", d->name);
    put_text(o, whole, "kind", d->kind == DEVICE_GPU ? "gpu" : "cpu");
    put(o, whole, "usable", json_boolean(d->is_usable));
    if (!d->is_usable) {
        put_text(o, whole, "reason", d->reason);
    }
    put_text(o, whole, "bus", d->bus);
    put(o, whole, "capability", json_pack("[i, i]", d->capability[0], d->capability[1]));
    put_bytes(o, whole, "memory_bytes", d->memory_bytes);
    put_bytes(o, whole, "reserved_bytes", d->reserved_bytes);
    put_integer(o, whole, "node", d->node);
    put_cores(o, whole, &d->cores);
    put_integer(o, whole, "core_count", d->core_count);
    put_integer(pcie, whole, "gen", d->pcie_gen);
    put_integer(pcie, whole, "width", d->pcie_width);
    put(o, whole, "pcie", pcie);
    put(ecc, whole, "on", json_boolean(d->ecc));
    put(ecc, whole, "errors",
        now != NULL && now->ecc_errors >= 0 ? json_integer(now->ecc_errors) : json_null());
    put(o, whole, "ecc", ecc);
    put(o, whole, "mig", json_boolean(d->mig));
    put_real(o, whole, "power_limit_w", d->power_limit_w, d->power_limit_w > 0.0);
    if (now != NULL) {
        put_now(o, whole, now);
    }
    return o;
}

static json_t *link_json(const struct link *l, bool *whole)
{
    json_t *o = json_object();
    char word[8];

    link_word(word, l);
    put_text(o, whole, "link", word);
    put_real(o, whole, "gb_per_s", l->gb_per_s, l->gb_per_s > 0.0);
    put(o, whole, "peer_access",
        l->access == KNOWN_NOT ? json_null() : json_boolean(l->access == KNOWN_YES));
    return o;
}

static json_t *links_json(const struct machine *m, bool *whole)
{
    json_t *rows = json_array();

    for (int i = 0; i < m->device_count; i++) {
        json_t *row = json_array();
        for (int j = 0; j < m->device_count; j++) {
            *whole = json_array_append_new(row, link_json(&m->links[i][j], whole)) == 0 && *whole;
        }
        *whole = json_array_append_new(rows, row) == 0 && *whole;
    }
    return rows;
}

static json_t *nodes_json(const struct machine *m, bool *whole)
{
    json_t *list = json_array();

    for (int i = 0; i < m->node_count; i++) {
        json_t *one = json_object();
        put_cores(one, whole, &m->nodes[i].cores);
        put_bytes(one, whole, "memory_bytes", m->nodes[i].memory_bytes);
        *whole = json_array_append_new(list, one) == 0 && *whole;
    }
    return list;
}

static json_t *disks_json(const struct machine *m, bool *whole)
{
    json_t *list = json_array();

    for (int i = 0; i < m->disk_count; i++) {
        json_t *one = json_object();
        put_text(one, whole, "path", m->disks[i].path);
        put_text(one, whole, "kind", m->disks[i].kind);
        put_bytes(one, whole, "bytes", m->disks[i].bytes);
        *whole = json_array_append_new(list, one) == 0 && *whole;
    }
    return list;
}

json_t *machine_json(const struct machine *m, const struct device_now *now)
{
    json_t *o = json_object(), *devices = json_array();
    bool whole = true;

    put_text(o, &whole, "name", m->name);
    put_text(o, &whole, "processor", m->processor);
    put_integer(o, &whole, "sockets", m->sockets);
    put_integer(o, &whole, "cores", m->core_count);
    put_bytes(o, &whole, "memory_bytes", m->memory_bytes);
    put_integer(o, &whole, "memory_channels", m->memory_channels);
    put(o, &whole, "memory_ecc", json_boolean(m->memory_ecc));
    put_real(o, &whole, "psu_watts", m->psu_watts, m->psu_watts > 0.0);
    put(o, &whole, "nodes", nodes_json(m, &whole));
    put(o, &whole, "disks", disks_json(m, &whole));
    for (int i = 0; i < m->device_count; i++) {
        json_t *one = device_json(&m->devices[i], now != NULL ? &now[i] : NULL, &whole);
        whole = json_array_append_new(devices, one) == 0 && whole;
    }
    put(o, &whole, "devices", devices);
    put(o, &whole, "links", links_json(m, &whole));
    if (!whole) {
        json_decref(o);
        return NULL;
    }
    return o;
}
