/* machine.c - reads a description of a machine (keys: server/machines/README.md). */
#include "server/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/text.h"
#include "server/topo.h"
#include "trainer/base/json.h"

enum {
    FILE_BYTES = 1 << 20,
    WHERE = 64,
    ROOM_BITS = 60, /* no memory or disk is larger */
};

/* A text that fits and can be shown; *out stays as it is when the key is absent. */
static int take_text(const struct fields *f, const char *name, enum field_need need, char *out,
                     size_t size, struct err *err)
{
    const char *text = NULL;

    TRY(fields_text(f, name, need, &text, err));
    if (text == NULL) {
        return 0;
    }
    if (strlen(text) >= size || !text_is_plain(text)) {
        return FAIL_PARAM(err, f->code, name,
                          "%s: %s must be a text of at most %zu bytes without control characters",
                          f->where, name, size - 1);
    }
    (void)snprintf(out, size, "%s", text);
    return 0;
}

static int take_int(const struct fields *f, const char *name, int low, int high, int *out,
                    struct err *err)
{
    int64_t n = *out;

    TRY(fields_integer(f, name, FIELD_OPTIONAL, low, high, &n, err));
    *out = (int)n; /* within [low, high] */
    return 0;
}

static int take_bytes(const struct fields *f, const char *name, enum field_need need, uint64_t high,
                      uint64_t *out, struct err *err)
{
    int64_t n = (int64_t)*out;

    TRY(fields_integer(f, name, need, 0, (int64_t)high, &n, err));
    *out = (uint64_t)n;
    return 0;
}

static int take_cores(const struct fields *f, struct cores *out, struct err *err)
{
    const char *text = NULL;
    struct err why = {0};

    TRY(fields_text(f, "cores", FIELD_OPTIONAL, &text, err));
    if (text != NULL && cores_parse(out, text, &why) != 0) {
        return FAIL_PARAM(err, f->code, "cores", "%s: cores: %s", f->where, why.text);
    }
    return 0;
}

/* The objects of the array `name`, at most `most`; *count is their number. */
static int take_list(const struct fields *f, const char *name, int most, const json_t **list,
                     int *count, struct err *err)
{
    const json_t *item = NULL;
    size_t i = 0;

    *list = NULL;
    TRY(fields_array(f, name, FIELD_OPTIONAL, list, err));
    json_array_foreach(*list, i, item)
    {
        if (!json_is_object(item) || i >= (size_t)most) {
            return FAIL_PARAM(err, f->code, name, "%s: %s must be a list of at most %d objects",
                              f->where, name, most);
        }
    }
    *count = (int)json_array_size(*list);
    return 0;
}

static int take_nodes(struct machine *m, const struct fields *f, struct err *err)
{
    const json_t *list = NULL;
    char where[WHERE];

    TRY(take_list(f, "nodes", MACHINE_NODES, &list, &m->node_count, err));
    for (int i = 0; i < m->node_count; i++) {
        const struct fields one = {json_array_get(list, (size_t)i), where, f->code};
        (void)snprintf(where, sizeof where, "nodes[%d]", i);
        TRY(take_cores(&one, &m->nodes[i].cores, err));
        TRY(take_bytes(&one, "memory_bytes", FIELD_OPTIONAL, UINT64_C(1) << ROOM_BITS,
                       &m->nodes[i].memory_bytes, err));
    }
    return 0;
}

static int take_disks(struct machine *m, const struct fields *f, struct err *err)
{
    const json_t *list = NULL;
    char where[WHERE];

    TRY(take_list(f, "disks", MACHINE_DISKS, &list, &m->disk_count, err));
    for (int i = 0; i < m->disk_count; i++) {
        struct disk *d = &m->disks[i];
        const struct fields one = {json_array_get(list, (size_t)i), where, f->code};
        (void)snprintf(where, sizeof where, "disks[%d]", i);
        TRY(take_text(&one, "path", FIELD_OPTIONAL, d->path, sizeof d->path, err));
        TRY(take_text(&one, "kind", FIELD_OPTIONAL, d->kind, sizeof d->kind, err));
        TRY(take_bytes(&one, "bytes", FIELD_OPTIONAL, UINT64_C(1) << ROOM_BITS, &d->bytes, err));
    }
    return 0;
}

/* Letters that need no escape in an address. */
static bool is_id(const char *id)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";

    return id[0] != '\0' && id[0] != '.' && id[strspn(id, letters)] == '\0';
}

static int take_identity(struct machine *m, int i, const struct fields *f, struct err *err)
{
    struct device *d = &m->devices[i];
    char kind[8] = "gpu";

    TRY(take_text(f, "id", FIELD_REQUIRED, d->id, sizeof d->id, err));
    if (!is_id(d->id) || machine_device(m, d->id) != i) {
        return FAIL_PARAM(err, f->code, "id",
                          "%s: id must be letters, digits, \"-\", \"_\", \".\" or \":\", and of no "
                          "other device",
                          f->where);
    }
    memcpy(d->name, d->id, strlen(d->id) + 1); /* an id is shorter than a name may be */
    TRY(take_text(f, "name", FIELD_OPTIONAL, d->name, sizeof d->name, err));
    TRY(take_text(f, "kind", FIELD_OPTIONAL, kind, sizeof kind, err));
    if (strcmp(kind, "gpu") != 0 && strcmp(kind, "cpu") != 0) {
        return FAIL_PARAM(err, f->code, "kind", "%s: kind must be \"gpu\" or \"cpu\"", f->where);
    }
    d->kind = strcmp(kind, "cpu") == 0 ? DEVICE_CPU : DEVICE_GPU;
    d->is_usable = true;
    TRY(fields_bool(f, "usable", FIELD_OPTIONAL, &d->is_usable, err));
    if (!d->is_usable) {
        (void)snprintf(d->reason, sizeof d->reason, "the description says that it is not usable");
        TRY(take_text(f, "reason", FIELD_OPTIONAL, d->reason, sizeof d->reason, err));
    }
    return take_text(f, "bus", FIELD_OPTIONAL, d->bus, sizeof d->bus, err);
}

static int take_capability(struct device *d, const struct fields *f, struct err *err)
{
    const json_t *pair = NULL;

    TRY(fields_array(f, "capability", FIELD_OPTIONAL, &pair, err));
    for (size_t k = 0; pair != NULL && k < 2; k++) {
        const json_t *n = json_array_get(pair, k);
        if (json_array_size(pair) != 2 || !json_is_integer(n) || json_integer_value(n) < 0 ||
            json_integer_value(n) > 99) {
            return FAIL_PARAM(err, f->code, "capability",
                              "%s: capability must be two whole numbers, as [9, 0]", f->where);
        }
        d->capability[k] = (int)json_integer_value(n);
    }
    return 0;
}

/* The objects `pcie` and `ecc`. */
static int take_parts(struct device *d, struct device_now *now, const struct fields *f,
                      struct err *err)
{
    const json_t *pcie = NULL, *ecc = NULL;

    TRY(fields_object(f, "pcie", FIELD_OPTIONAL, &pcie, err));
    TRY(fields_object(f, "ecc", FIELD_OPTIONAL, &ecc, err));
    if (pcie != NULL) {
        const struct fields one = {pcie, f->where, f->code};
        TRY(take_int(&one, "gen", 0, 16, &d->pcie_gen, err));
        TRY(take_int(&one, "width", 0, 64, &d->pcie_width, err));
    }
    if (ecc != NULL) {
        const struct fields one = {ecc, f->where, f->code};
        TRY(fields_bool(&one, "on", FIELD_OPTIONAL, &d->ecc, err));
        TRY(fields_integer(&one, "errors", FIELD_OPTIONAL, 0, INT64_MAX, &now->ecc_errors, err));
    }
    return 0;
}

static int take_processes(const struct device *d, struct device_now *now, const struct fields *f,
                          struct err *err)
{
    const json_t *list = NULL;
    char where[2 * WHERE];

    TRY(take_list(f, "processes", 4096, &list, &now->process_count, err));
    for (int i = 0; i < now->process_count && i < DEVICE_PROCESSES; i++) {
        struct device_process *p = &now->processes[i];
        const struct fields one = {json_array_get(list, (size_t)i), where, f->code};
        (void)snprintf(where, sizeof where, "%s: processes[%d]", f->where, i);
        TRY(fields_integer(&one, "pid", FIELD_OPTIONAL, 0, INT64_MAX, &p->pid, err));
        TRY(take_text(&one, "user", FIELD_OPTIONAL, p->user, sizeof p->user, err));
        TRY(take_text(&one, "command", FIELD_OPTIONAL, p->command, sizeof p->command, err));
        TRY(take_bytes(&one, "bytes", FIELD_OPTIONAL, d->memory_bytes, &p->bytes, err));
        TRY(fields_bool(&one, "ours", FIELD_OPTIONAL, &p->is_ours, err));
    }
    return 0;
}

static int take_fault(struct device_now *now, const struct fields *f, struct err *err)
{
    char word[8] = "";

    TRY(take_text(f, "fault", FIELD_OPTIONAL, word, sizeof word, err));
    if (word[0] == '\0') {
        return 0;
    }
    if (strcmp(word, "lost") != 0 && strcmp(word, "ecc") != 0) {
        return FAIL_PARAM(err, f->code, "fault", "%s: fault must be \"lost\" or \"ecc\"", f->where);
    }
    now->fault = strcmp(word, "lost") == 0 ? FAULT_LOST : FAULT_ECC;
    (void)snprintf(now->fault_text, sizeof now->fault_text, "%s",
                   now->fault == FAULT_LOST ? "the device does not answer any more"
                                            : "the device has memory errors that it can't correct");
    return take_text(f, "fault_text", FIELD_OPTIONAL, now->fault_text, sizeof now->fault_text, err);
}

/* What the device is like at the moment. */
static int take_now(const struct device *d, struct device_now *now, const struct fields *f,
                    struct err *err)
{
    const uint64_t whole = d->memory_bytes - d->reserved_bytes;

    TRY(take_bytes(f, "used_bytes", FIELD_OPTIONAL, d->memory_bytes, &now->used_bytes, err));
    now->free_bytes = now->used_bytes < whole ? whole - now->used_bytes : 0;
    TRY(take_bytes(f, "free_bytes", FIELD_OPTIONAL, d->memory_bytes, &now->free_bytes, err));
    TRY(fields_number(f, "utilization", FIELD_OPTIONAL, 0.0, 1.0, &now->utilization, err));
    TRY(fields_number(f, "temperature_c", FIELD_OPTIONAL, -100.0, 1000.0, &now->temperature_c,
                      err));
    TRY(fields_number(f, "power_w", FIELD_OPTIONAL, 0.0, 1e5, &now->power_w, err));
    TRY(take_fault(now, f, err));
    return take_processes(d, now, f, err);
}

static int take_device(struct machine *m, struct device_now *now, int i, const struct fields *f,
                       struct err *err)
{
    struct device *d = &m->devices[i];

    *now = (struct device_now){
        .utilization = -1.0, .temperature_c = -1.0, .power_w = -1.0, .ecc_errors = -1};
    TRY(take_identity(m, i, f, err));
    TRY(take_capability(d, f, err));
    TRY(take_bytes(f, "memory_bytes", FIELD_REQUIRED, UINT64_C(1) << ROOM_BITS, &d->memory_bytes,
                   err));
    TRY(take_bytes(f, "reserved_bytes", FIELD_OPTIONAL, d->memory_bytes, &d->reserved_bytes, err));
    d->node = -1;
    TRY(take_int(f, "node", -1, m->node_count > 0 ? m->node_count - 1 : -1, &d->node, err));
    if (d->node >= 0) {
        d->cores = m->nodes[d->node].cores;
    }
    TRY(take_cores(f, &d->cores, err));
    d->core_count = cores_count(&d->cores);
    TRY(take_int(f, "core_count", 0, 1 << 16, &d->core_count, err));
    TRY(fields_bool(f, "mig", FIELD_OPTIONAL, &d->mig, err));
    TRY(fields_number(f, "power_limit_w", FIELD_OPTIONAL, 0.0, 1e5, &d->power_limit_w, err));
    TRY(take_parts(d, now, f, err));
    return take_now(d, now, f, err);
}

static int take_devices(struct machine *m, struct device_now *now, const struct fields *f,
                        struct err *err)
{
    const json_t *list = NULL;
    char where[WHERE];
    int count = 0;

    TRY(take_list(f, "devices", MACHINE_DEVICES, &list, &count, err));
    if (count == 0) {
        return FAIL_PARAM(err, f->code, "devices", "%s: devices must name at least one device",
                          f->where);
    }
    for (int i = 0; i < count; i++) {
        const struct fields one = {json_array_get(list, (size_t)i), where, f->code};
        (void)snprintf(where, sizeof where, "devices[%d]", i);
        m->device_count = i + 1;
        TRY(take_device(m, &now[i], i, &one, err));
    }
    return 0;
}

/* A word, or an object with the word and what was measured. */
static int take_link(struct link *out, const json_t *value, int i, int j, struct err *err)
{
    char where[WHERE], word[8] = "";
    const struct fields f = {value, where, ERR_BAD_FILE};
    bool access = false;

    (void)snprintf(where, sizeof where, "links[%d][%d]", i, j);
    if (json_is_object(value)) {
        TRY(take_text(&f, "link", FIELD_OPTIONAL, word, sizeof word, err));
        TRY(fields_bool(&f, "peer_access", FIELD_OPTIONAL, &access, err));
        if (!json_is_null(json_object_get(value, "peer_access")) &&
            json_object_get(value, "peer_access") != NULL) {
            out->access = access ? KNOWN_YES : KNOWN_NO;
        }
        TRY(fields_number(&f, "gb_per_s", FIELD_OPTIONAL, 0.0, 1e6, &out->gb_per_s, err));
    } else if (json_is_string(value) && strlen(json_string_value(value)) < sizeof word) {
        (void)snprintf(word, sizeof word, "%s", json_string_value(value));
    } else if (!json_is_null(value)) {
        word[0] = '?';
    }
    struct link kind = {.kind = LINK_NONE};
    if (word[0] != '\0' && !link_parse(&kind, word)) {
        return FAIL_PARAM(err, ERR_BAD_FILE, "links",
                          "%s must be X, NV and a number, PIX, PXB, PHB, NODE or SYS", where);
    }
    if ((kind.kind == LINK_SELF) != (i == j)) {
        return FAIL_PARAM(err, ERR_BAD_FILE, "links",
                          "%s: X is how a device reaches itself, and only that", where);
    }
    out->kind = kind.kind;
    out->count = kind.count;
    return 0;
}

static int take_links(struct machine *m, const struct fields *f, struct err *err)
{
    const json_t *rows = NULL;
    const size_t n = (size_t)m->device_count;

    TRY(fields_array(f, "links", FIELD_OPTIONAL, &rows, err));
    for (size_t i = 0; rows != NULL && i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        if (json_array_size(rows) != n || json_array_size(row) != n) {
            return FAIL_PARAM(err, f->code, "links",
                              "%s: links must be %zu lists of %zu links, one for each device",
                              f->where, n, n);
        }
        for (size_t j = 0; j < n; j++) {
            TRY(take_link(&m->links[i][j], json_array_get(row, j), (int)i, (int)j, err));
        }
    }
    for (int i = 0; i < m->device_count; i++) {
        for (int j = 0; j < i; j++) {
            const struct link *a = &m->links[i][j], *b = &m->links[j][i];
            if (a->kind != b->kind || a->count != b->count) {
                return FAIL_PARAM(err, f->code, "links",
                                  "%s: links[%d][%d] and links[%d][%d] must be the same", f->where,
                                  i, j, j, i);
            }
        }
    }
    return 0;
}

static int take_topo(struct machine *m, const struct fields *f, struct err *err)
{
    const char *text = NULL;

    TRY(fields_text(f, "topo", FIELD_OPTIONAL, &text, err));
    if (text == NULL) {
        return 0;
    }
    struct topo *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for links");
    }
    int rc = topo_parse(t, text, err);
    rc = rc != 0 ? rc : topo_apply(m, t, err);
    free(t);
    return rc;
}

int machine_parse(struct machine *out, struct device_now now[MACHINE_DEVICES], const json_t *text,
                  struct err *err)
{
    const struct fields f = {text, "the machine", ERR_BAD_FILE};

    memset(out, 0, sizeof *out);
    memset(now, 0, MACHINE_DEVICES * sizeof *now);
    if (!json_is_object(text)) {
        return FAIL(err, ERR_BAD_FILE, "a description of a machine must be an object");
    }
    for (int i = 0; i < MACHINE_DEVICES; i++) {
        for (int j = 0; j < MACHINE_DEVICES; j++) {
            out->links[i][j].kind = i == j ? LINK_SELF : LINK_NONE;
        }
    }
    (void)snprintf(out->name, sizeof out->name, "machine");
    TRY(take_text(&f, "name", FIELD_OPTIONAL, out->name, sizeof out->name, err));
    TRY(take_text(&f, "processor", FIELD_OPTIONAL, out->processor, sizeof out->processor, err));
    out->sockets = 1;
    TRY(take_int(&f, "sockets", 1, MACHINE_NODES, &out->sockets, err));
    TRY(take_bytes(&f, "memory_bytes", FIELD_OPTIONAL, UINT64_C(1) << ROOM_BITS, &out->memory_bytes,
                   err));
    TRY(take_int(&f, "memory_channels", 0, 1024, &out->memory_channels, err));
    TRY(fields_bool(&f, "memory_ecc", FIELD_OPTIONAL, &out->memory_ecc, err));
    TRY(fields_number(&f, "psu_watts", FIELD_OPTIONAL, 0.0, 1e6, &out->psu_watts, err));
    TRY(take_nodes(out, &f, err));
    out->core_count = 1;
    TRY(take_int(&f, "cores", 1, 1 << 16, &out->core_count, err));
    TRY(take_disks(out, &f, err));
    TRY(take_devices(out, now, &f, err));
    TRY(take_topo(out, &f, err));
    TRY(take_links(out, &f, err));
    links_mark_switches(out);
    return 0;
}

int machine_read(struct machine *out, struct device_now now[MACHINE_DEVICES], const char *path,
                 struct err *err)
{
    json_t *text = NULL;
    struct err why = {0};

    TRY(json_parse_file(&text, path, FILE_BYTES, err));
    const int rc = machine_parse(out, now, text, &why);
    json_decref(text);
    return rc == 0 ? 0 : FAIL(err, (enum err_code)rc, "%.200s: %s", path, why.text);
}

int machine_device(const struct machine *m, const char *id)
{
    for (int i = 0; i < m->device_count; i++) {
        if (strcmp(m->devices[i].id, id) == 0) {
            return i;
        }
    }
    return -1;
}
