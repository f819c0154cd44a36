/* params.c - readers of params.def. */
#include "trainer/params.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/check.h"

/* How a GPT-2 file holds a parameter. */
struct form {
    bool transposed;
    int third; /* of a fused tensor; -1: a tensor of its own */
};

#define PLAIN     \
    {             \
        false, -1 \
    }
#define CONV1D   \
    {            \
        true, -1 \
    }
#define THIRD(n) \
    {            \
        true, n  \
    }

#define ADAPTED(target) param_has_lora(a, LORA_##target)

enum param_id param_adapter(enum lora_target target, enum lora_part part)
{
    _Static_assert((int)PARAM_LORA_DOWN_B == (int)PARAM_LORA_Q_A + 2 * (int)LORA_TARGETS - 1,
                   "rows of adapters are in the order of lora_target");
    return (enum param_id)((int)PARAM_LORA_Q_A + 2 * (int)target + (int)part);
}

bool param_is_adapter(enum param_id id)
{
    return id >= PARAM_LORA_Q_A && id <= PARAM_LORA_DOWN_B;
}

struct lora_site param_lora_site(enum lora_target target)
{
    static const struct lora_site sites[LORA_TARGETS] = {
        [LORA_Q] = {PARAM_Q_W, 1},     [LORA_K] = {PARAM_K_W, 1},
        [LORA_V] = {PARAM_V_W, 1},     [LORA_QKV] = {PARAM_Q_W, 3},
        [LORA_OUT] = {PARAM_OUT_W, 1}, [LORA_GATE] = {PARAM_GATE_W, 1},
        [LORA_UP] = {PARAM_UP_W, 1},   [LORA_DOWN] = {PARAM_DOWN_W, 1},
    };

    return sites[target];
}

bool param_has_lora(const struct arch *a, enum lora_target target)
{
    return a->lora.r > 0 && (a->lora.targets >> (unsigned)target & 1U) != 0;
}

bool param_is_also(const struct arch *a, enum param_id id)
{
    _Static_assert((int)PARAM_HEAD < 32, "a bit for every parameter that is no adapter or expert");
    return a->lora.r > 0 && id <= PARAM_HEAD && (a->lora.also >> (unsigned)id & 1U) != 0;
}

enum scope { SCOPE_MODEL, SCOPE_LAYER, SCOPE_DENSE, SCOPE_SPARSE, SCOPE_EXPERT };

static enum scope scope_of(enum param_id id)
{
    static const enum scope scopes[PARAM_COUNT] = {
#define PARAM(id, scope, when, rows, cols, kind, gpt2, form, llama, shard, init) \
    [PARAM_##id] = SCOPE_##scope,
#include "trainer/params.def"
    };

    return scopes[id];
}

/* Whether any layer has such parameters. */
static bool has_scope(const struct arch *a, enum scope scope)
{
    switch (scope) {
    case SCOPE_MODEL:
    case SCOPE_LAYER: return true;
    case SCOPE_DENSE: return a->moe.E == 0 || arch_sparse_layers(a) < a->L;
    case SCOPE_SPARSE:
    case SCOPE_EXPERT: return a->moe.E > 0;
    }
    return false;
}

int param_place(const struct arch *a, int layer, int expert)
{
    return layer + (int)a->L * expert;
}

int param_layer(const struct arch *a, int place)
{
    return place % (int)a->L;
}

int param_expert(const struct arch *a, int place)
{
    return place / (int)a->L;
}

int param_places(enum param_id id, const struct arch *a)
{
    switch (scope_of(id)) {
    case SCOPE_MODEL: return 1;
    case SCOPE_LAYER:
    case SCOPE_DENSE:
    case SCOPE_SPARSE: return (int)a->L;
    case SCOPE_EXPERT: return (int)(a->L * a->moe.E);
    }
    return 0;
}

bool param_is_at(enum param_id id, const struct arch *a, int place)
{
    const enum scope scope = scope_of(id);
    const bool sparse = scope >= SCOPE_SPARSE;

    return param_get(id, a).exists &&
           (scope < SCOPE_DENSE || arch_is_sparse(a, param_layer(a, place)) == sparse);
}

struct param param_get(enum param_id id, const struct arch *a)
{
    static const char *const mixtral[] = {
        "model.layers.%d.block_sparse_moe.gate.weight",
        "model.layers.%d.block_sparse_moe.experts.%d.w1.weight",
        "model.layers.%d.block_sparse_moe.experts.%d.w3.weight",
        "model.layers.%d.block_sparse_moe.experts.%d.w2.weight",
    };

    const int64_t V = a->V, P = a->positions, D = a->D, F = a->F, H = a->H, G = a->G, K = a->K;
    const int64_t r = a->lora.r, E = a->moe.E, X = a->moe.X, Y = a->moe.Y;
    enum { VECTOR, MATRIX };
    const struct {
        enum scope scope;
        int kind;
        bool when;
        int64_t rows, cols;
        const char *gpt2, *llama;
        struct form form;
        enum shard shard;
        enum init init;
    } table[PARAM_COUNT] = {
#define PARAM(id, scope, when, rows, cols, kind, gpt2, form, llama, shard, init) \
    [PARAM_##id] = {SCOPE_##scope, kind,  when, rows,          cols,             \
                    gpt2,          llama, form, SHARD_##shard, INIT_##init},
#include "trainer/params.def"
    };
    const bool gpt2 = a->family == FAMILY_GPT2;
    struct param p = {.format = gpt2 ? table[id].gpt2 : table[id].llama,
                      .exists = table[id].when && has_scope(a, table[id].scope),
                      .in_layer = table[id].scope != SCOPE_MODEL,
                      .in_expert = table[id].scope == SCOPE_EXPERT,
                      .layers = (int)a->L,
                      .vector = table[id].kind == VECTOR,
                      .rows = table[id].rows,
                      .cols = table[id].cols,
                      .outputs = table[id].rows,
                      .shard = table[id].shard,
                      .init = table[id].init};

    if (a->family == FAMILY_MIXTRAL && id >= PARAM_ROUTER_W && id <= PARAM_EXPERT_DOWN_W) {
        p.format = mixtral[id - PARAM_ROUTER_W];
    }
    CHECK(!p.exists || p.format != NULL, "parameter %d has no name in this family", (int)id);
    if (gpt2) {
        const struct form form = table[id].form;
        p.transposed = form.transposed && !p.vector;
        if (form.third >= 0) { /* the three are of one size: G = H */
            p.first = form.third * p.rows;
            p.outputs = 3 * p.rows;
        }
    }
    return p;
}

/* `format` up to the number's place and behind it. */
static void fill_in(char out[PARAM_NAME], const char *format, int number)
{
    const char *mark = strstr(format, "%d");

    if (mark == NULL) {
        (void)snprintf(out, PARAM_NAME, "%s", format);
    } else {
        (void)snprintf(out, PARAM_NAME, "%.*s%d%s", (int)(mark - format), format, number, mark + 2);
    }
}

void param_name(char out[PARAM_NAME], const struct param *p, int place)
{
    char of_layer[PARAM_NAME];

    fill_in(of_layer, p->format, p->in_expert ? place % p->layers : place);
    fill_in(out, of_layer, p->in_expert ? place / p->layers : 0);
}

/* In how many places of the whole model; of a layer's experts at most `experts`. */
static int64_t times(enum param_id id, const struct arch *a, int64_t experts)
{
    const int64_t sparse = arch_sparse_layers(a);

    switch (scope_of(id)) {
    case SCOPE_MODEL: return 1;
    case SCOPE_LAYER: return a->L;
    case SCOPE_DENSE: return a->L - sparse;
    case SCOPE_SPARSE: return sparse;
    case SCOPE_EXPERT: return sparse * experts;
    }
    return 0;
}

static int64_t count_numbers(const struct arch *a, int64_t experts)
{
    int64_t n = 0;

    for (int i = 0; i < PARAM_COUNT; i++) {
        const struct param p = param_get((enum param_id)i, a);
        n += p.exists ? times((enum param_id)i, a, experts) * p.rows * p.cols : 0;
    }
    return n;
}

int params_tensors(const struct arch *a)
{
    int64_t n = 0;

    for (int i = 0; i < PARAM_COUNT; i++) {
        n += param_get((enum param_id)i, a).exists ? times((enum param_id)i, a, a->moe.E) : 0;
    }
    return (int)n;
}

int64_t params_count(const struct arch *a)
{
    return count_numbers(a, a->moe.E);
}

int64_t params_active(const struct arch *a)
{
    return count_numbers(a, a->moe.k);
}

/* splitmix64 (Steele, Lea, Flood 2014): a counter in, 64 random bits out; no state to shard. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Standard normal number `n` of a stream, by Box-Muller; rounded to float in both builds, so that the
 * double build starts from the weights of the float build. */
static float normal(uint64_t stream, uint64_t n)
{
    const double two_pi = 6.283185307179586;
    const double u = ((double)(mix(stream ^ mix(2 * n)) >> 11) + 1.0) * 0x1p-53;
    const double v = (double)(mix(stream ^ mix(2 * n + 1)) >> 11) * 0x1p-53;

    return (float)(sqrt(-2.0 * log(u)) * cos(two_pi * v));
}

/* Index in the Hugging Face tensor of element [r, c] of the parameter in memory. */
static int64_t file_index(const struct param *p, int64_t r, int64_t c)
{
    return p->transposed ? c * p->outputs + p->first + r : (p->first + r) * p->cols + c;
}

/* Uniform in [-1, 1). */
static float uniform(uint64_t stream, uint64_t n)
{
    return (float)((double)(mix(stream ^ mix(n)) >> 11) * 0x1p-52 - 1.0);
}

void param_init(real *out, enum param_id id, const struct arch *a, int place, uint64_t seed,
                struct param_stretch stretch)
{
    const struct param p = param_get(id, a);
    const uint64_t stream = mix(seed ^ mix((uint64_t)id << 32 | (uint64_t)place));
    const double resid = p.init == INIT_NORMAL_RESID ? sqrt(2.0 * (double)a->L) : 1.0;
    const float std = (float)(a->init_std / resid), bound = (float)(1.0 / sqrt((double)p.cols));

    for (int64_t c = 0; c < stretch.cols; c++) {
        const uint64_t at = (uint64_t)file_index(&p, stretch.row, stretch.col0 + c);
        switch (p.init) {
        case INIT_ONES: out[c] = REAL(1.0); break;
        case INIT_ZEROS: out[c] = REAL(0.0); break;
        case INIT_NORMAL:
        case INIT_NORMAL_RESID: out[c] = (real)(std * normal(stream, at)); break;
        case INIT_UNIFORM: out[c] = (real)(bound * uniform(stream, at)); break;
        }
    }
}
