/* placement.c - layers to stages. */
#include "trainer/placement.h"

#include <string.h>

#include "kernels/check.h"

static const char field[] = "layers_per_stage";

int placement_first(const struct placement *p, int stage)
{
    int first = 0;

    for (int s = 0; s < stage; s++) {
        first += p->layers[s];
    }
    return first;
}

static int check_sizes(const struct arch *a, int ranks, int chunks, struct err *err)
{
    if (chunks < 1 || chunks > PLACEMENT_CHUNKS || (ranks == 1 && chunks > 1)) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "num_virtual_stages_per_pipeline_rank",
                          "num_virtual_stages_per_pipeline_rank is %d: with %d pipeline ranks it "
                          "must lie between 1 and %d",
                          chunks, ranks, ranks == 1 ? 1 : PLACEMENT_CHUNKS);
    }
    if (ranks < 1 || ranks > PLACEMENT_STAGES / chunks || (int64_t)ranks * chunks > a->L + 2) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "pipeline_model_parallel_size",
                          "%d pipeline ranks with %d stages each are too many for a model of %lld "
                          "layers",
                          ranks, chunks, (long long)a->L);
    }
    return 0;
}

static int place_evenly(struct placement *p, const struct arch *a, struct err *err)
{
    const int stages = p->ranks * p->chunks;

    if (a->L % stages != 0) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, field,
                          "%lld layers do not divide among %d stages (%d pipeline ranks with %d "
                          "each): choose sizes that do, or say layers_per_stage, as auto or as %d "
                          "numbers with a sum of %lld",
                          (long long)a->L, stages, p->ranks, p->chunks, stages, (long long)a->L);
    }
    for (int s = 0; s < stages; s++) {
        p->layers[s] = (int)(a->L / stages);
    }
    return 0;
}

/* Multiplications for a token in a layer's forward pass; layers with experts and without count alike. */
static double layer_cost(const struct arch *a, int64_t sequence)
{
    const double D = (double)a->D, heads = (double)(a->H * a->K), groups = (double)(a->G * a->K);
    const double sparse = (double)arch_sparse_layers(a) / (double)a->L;
    const double dense = (a->gated ? 3.0 : 2.0) * D * (double)a->F;
    const double experts = 3.0 * D * (double)(a->moe.k * a->moe.X + a->moe.Y);
    const double mlp = (1.0 - sparse) * dense + sparse * experts;

    return D * (2.0 * heads + 2.0 * groups) + heads * (double)sequence + mlp;
}

/* Layers that fit in a stage that may cost `most` and costs `before` without them. */
static int64_t fitting(double most, double before, double layer)
{
    return most < before ? -1 : (int64_t)((most - before) / layer * (1.0 + 1e-12));
}

/* With `most` for the dearest stage: how many layers fit in all stages; -1 when embedding or head alone do not. */
static int64_t fit_all(const struct placement *p, const double extra[2], double layer, double most)
{
    const int stages = p->ranks * p->chunks;
    int64_t sum = 0;

    for (int s = 0; s < stages; s++) {
        const double before = (s == 0 ? extra[0] : 0.0) + (s == stages - 1 ? extra[1] : 0.0);
        const int64_t n = fitting(most, before, layer);
        if (n < 0) {
            return -1;
        }
        sum += n;
    }
    return sum;
}

/* The least cost of the dearest stage is that of a stage filled with n layers, or of embedding or head alone. */
static double least_cost(const struct placement *p, const struct arch *a, const double extra[2],
                         double layer)
{
    double best = -1.0;

    for (int64_t n = 0; n <= a->L; n++) {
        const double tries[3] = {(double)n * layer, (double)n * layer + extra[0],
                                 (double)n * layer + extra[1]};
        for (int i = 0; i < 3; i++) {
            if (fit_all(p, extra, layer, tries[i]) >= a->L && (best < 0.0 || tries[i] < best)) {
                best = tries[i];
            }
        }
    }
    return best;
}

/* The layers that are too few to fill all stages are missing where a stage is dearest. */
static void place_by_cost(struct placement *p, const struct arch *a, int64_t sequence)
{
    const double extra[2] = {(double)a->D, (double)(a->D * a->V)};
    const double layer = layer_cost(a, sequence);
    const double most = least_cost(p, a, extra, layer);
    const int stages = p->ranks * p->chunks;
    int64_t spare = fit_all(p, extra, layer, most) - a->L;

    for (int s = 0; s < stages; s++) {
        const double before = (s == 0 ? extra[0] : 0.0) + (s == stages - 1 ? extra[1] : 0.0);
        p->layers[s] = (int)fitting(most, before, layer);
    }
    while (spare > 0) {
        int dearest = 0;
        double cost = -1.0;
        for (int s = 0; s < stages; s++) {
            const double c = (double)p->layers[s] * layer + (s == 0 ? extra[0] : 0.0) +
                             (s == stages - 1 ? extra[1] : 0.0);
            if (p->layers[s] > 0 && c >= cost) {
                dearest = s;
                cost = c;
            }
        }
        p->layers[dearest]--;
        spare--;
    }
}

/* The number at *at, which is moved behind it; -1: none, or more than a model has. */
static int64_t number_at(const char **at)
{
    int64_t n = -1;

    while (**at == ' ') {
        (*at)++;
    }
    while (**at >= '0' && **at <= '9' && n < 1 << 20) {
        n = (n < 0 ? 0 : n) * 10 + (**at - '0');
        (*at)++;
    }
    while (**at == ' ') {
        (*at)++;
    }
    return n;
}

static int place_as_told(struct placement *p, const struct arch *a, const char *text,
                         struct err *err)
{
    const int stages = p->ranks * p->chunks;
    int64_t sum = 0;

    for (int s = 0; s < stages; s++) {
        const int64_t n = number_at(&text);
        const char end = s == stages - 1 ? '\0' : ',';
        if (n < 0 || n > a->L || *text != end) {
            return FAIL_PARAM(err, ERR_BAD_SPEC, field,
                              "layers_per_stage: auto, or %d numbers with commas between them are "
                              "expected, one for each of %d stages on %d pipeline ranks; number %d "
                              "does not fit",
                              stages, p->chunks, p->ranks, s + 1);
        }
        p->layers[s] = (int)n;
        sum += n;
        text += *text == ',';
    }
    if (sum != a->L) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, field,
                          "layers_per_stage has %lld layers in all, but the model has %lld",
                          (long long)sum, (long long)a->L);
    }
    return 0;
}

int placement_make(struct placement *out, const struct arch *a, int ranks, int chunks,
                   const char *text, int64_t sequence, struct err *err)
{
    TRY(check_sizes(a, ranks, chunks, err));
    *out = (struct placement){.ranks = ranks, .chunks = chunks};
    if (strcmp(text, "auto") == 0 && ranks > 1) {
        place_by_cost(out, a, sequence);
        return 0;
    }
    return text[0] == '\0' || strcmp(text, "auto") == 0 ? place_evenly(out, a, err)
                                                        : place_as_told(out, a, text, err);
}
