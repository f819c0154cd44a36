/* recompute.c - the fields of recomputation, and what they mean for a block. */
#include "trainer/recompute.h"

#include <string.h>

static const struct {
    const char *name;
    unsigned part;
} modules[] = {
    {"core_attn", REBUILD_CORE_ATTN}, {"mlp", REBUILD_MLP}, {"layernorm", REBUILD_LAYERNORM}};

/* The part of a module named in `length` letters; 0: none. */
static unsigned part_named(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        if (strlen(modules[i].name) == length && memcmp(modules[i].name, name, length) == 0) {
            return modules[i].part;
        }
    }
    return 0;
}

static int read_modules(unsigned *out, const char *list, struct err *err)
{
    const char *at = list;
    bool more = list[0] != '\0';

    *out = 0;
    while (more) {
        at += strspn(at, " ");
        const size_t length = strcspn(at, ", ");
        const unsigned part = part_named(at, length);
        const char *end = at + length + strspn(at + length, " ");
        if (part == 0 || (*end != ',' && *end != '\0')) {
            return FAIL_PARAM(err, ERR_BAD_SPEC, "recompute_modules",
                              "recompute_modules are names with commas between them, of core_attn, "
                              "mlp and layernorm");
        }
        *out |= part;
        more = *end == ',';
        at = end + 1;
    }
    return 0;
}

int recompute_read(struct recompute_choice *out, const struct spec *s, struct err *err)
{
    const bool selective = s->recompute == RECOMPUTE_SELECTIVE;

    *out = (struct recompute_choice){
        .kind = (enum recompute)s->recompute,
        .method = (enum recompute_method)s->recompute_method,
        .layers = s->recompute_num_layers > 0 ? (int)s->recompute_num_layers : 1};
    if (s->recompute_modules[0] != '\0' && !selective) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "recompute_modules",
                          "recompute_modules go with \"recompute\": \"selective\"");
    }
    if (s->recompute != RECOMPUTE_FULL && s->recompute_num_layers > 0) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "recompute_num_layers",
                          "recompute_num_layers goes with \"recompute\": \"full\"");
    }
    if (s->recompute != RECOMPUTE_FULL && out->method == RECOMPUTE_BLOCK) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "recompute_method",
                          "recompute_method goes with \"recompute\": \"full\"");
    }
    if (selective && s->recompute_modules[0] == '\0') {
        out->modules = REBUILD_CORE_ATTN;
        return 0;
    }
    return read_modules(&out->modules, s->recompute_modules, err);
}

unsigned recompute_parts(const struct recompute_choice *c, int i)
{
    switch (c->kind) {
    case RECOMPUTE_NONE: return 0;
    case RECOMPUTE_SELECTIVE: return c->modules;
    case RECOMPUTE_FULL: break;
    }
    return c->method == RECOMPUTE_UNIFORM || i < c->layers ? REBUILD_BLOCK : 0;
}

bool recompute_begins(const struct recompute_choice *c, int i)
{
    return c->kind != RECOMPUTE_FULL || c->method == RECOMPUTE_BLOCK || i % c->layers == 0;
}
