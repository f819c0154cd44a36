/* export.h - exported models compute what the checkpoint computes.
 *
 * Included by test_export.c (float) and f64_export.c (double): the same checks with other tolerances.
 */
#ifndef TESTS_EXPORT_H
#define TESTS_EXPORT_H

#include "tests/decode.h"
#include "tests/scratch.h"
#include "trainer/export.h"
#include "trainer/model_folder.h"

/* Logits of every place of the first row of a case's batch 0, by the model of a folder. */
static inline double *logits_of(const struct golden *g, const char *dir, const char *adapter)
{
    const int64_t V = g->arch.V;
    double *out = calloc((size_t)(g->S * V), sizeof *out);
    struct model_folder folder;
    struct arch arch;
    struct engine e;
    struct err err = {0};

    CHECK(out != NULL, "out of memory");
    CHECK(model_folder_find(&folder, dir, adapter, NULL, &err) == 0, "%s", err.text);
    CHECK(model_folder_arch(&arch, &folder, &err) == 0, "%s", err.text);
    const struct dims d = dims_inference(&arch, DTYPE_REAL, 1, g->S, 1);
    CHECK(engine_open(&e, &d, "", &err) == 0, "%s", err.text);
    CHECK(model_folder_load(e.model, &folder, &err) == 0, "%s", err.text);
    for (int64_t t = 0; t < g->S; t++) {
        const real *row = decode_feed(&e, g, t, 1);
        for (int64_t i = 0; i < V; i++) {
            out[t * V + i] = (double)row[i];
        }
    }
    engine_close(&e);
    return out;
}

static inline double apart(const double *a, const double *b, int64_t n)
{
    double most = 0.0, worst = 0.0;

    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs(a[i] - b[i]));
        most = fmax(most, fabs(b[i]));
    }
    return worst / most;
}

/* The case's adapter merged, against the adapter on its base; both against the base alone, which must differ. */
static inline void export_case(const char *name, enum export_precision precision, double limit)
{
    struct golden g;
    struct err err = {0};
    const char *out = in_scratch("merged");
    const struct export_options o = {.dir = NULL, .out = out, .precision = precision};

    golden_open(&g, name, "batches.safetensors", (struct way){0});
    struct safetensors *st = golden_file(&g, "batches.safetensors");
    (void)golden_batch(&g, st, 0);
    safetensors_close(st);

    struct export_options with = o;
    with.dir = g.dir;
    CHECK(io_remove_tree(out, &err) == 0, "%s", err.text);
    EXPECT(export_model(&with, &err) == 0);
    const int64_t n = g.S * g.arch.V;
    double *adapted = logits_of(&g, g.dir, NULL), *merged = logits_of(&g, out, NULL);
    EXPECT(!lora_is_adapter(out));
    const double error = apart(merged, adapted, n);
    printf("# %s: logits apart by %.2g\n", name, error);
    EXPECT(error <= limit);
    free(adapted);
    free(merged);
    golden_close(&g);
}

static inline void export_all_cases(enum export_precision precision, double limit)
{
    export_case("lora_all_linear_r3", precision, limit);
    export_case("lora_gpt2_conv1d", precision, limit);
    export_case("lora_rslora_qwen2", precision, limit);
    export_case("lora_also_tied", precision, limit);
    export_case("lora_also_untied", precision, limit);
    export_case("lora_also_gpt2", precision, limit);
}

#endif
