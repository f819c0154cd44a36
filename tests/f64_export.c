/* f64_export.c - merged adapters in the double build: logits, and weights against those of float64 PyTorch. */
#include "tests/export.h"

static void merged_logits_are_those_of_the_adapter(void)
{
    export_all_cases(EXPORT_F64, 1e-12);
}

/* Adapters after ten steps, as a run would leave them, on the base of the case. */
static void make_trained_folder(const char *dir, const char *from, const char *adapter)
{
    static const char *const pairs[][2] = {{"config.json", "config.json"},
                                           {"model.safetensors", "model.safetensors"},
                                           {"adapter_config.json", "adapter_config.json"},
                                           {NULL, "adapter_model.safetensors"}};
    char path[400], *bytes = NULL;
    size_t n = 0;
    struct err err = {0};

    CHECK(io_remove_tree(dir, &err) == 0 && io_make_dir(dir, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        (void)snprintf(path, sizeof path, "tests/golden/%s/%s", from,
                       pairs[i][0] != NULL ? pairs[i][0] : adapter);
        CHECK(io_read_file(&bytes, &n, path, 1 << 24, &err) == 0, "%s", err.text);
        (void)snprintf(path, sizeof path, "%s/%s", dir, pairs[i][1]);
        CHECK(io_write_file(path, bytes, n, &err) == 0, "%s", err.text);
        free(bytes);
    }
}

static void compare_merged(const char *name, const char *adapter)
{
    const char *dir = in_scratch("trained"), *out = in_scratch("trained-merged");
    const struct export_options o = {.dir = dir, .out = out, .precision = EXPORT_F64};
    struct safetensors *mine = NULL, *theirs = NULL;
    char path[400];
    struct err err = {0};
    double worst = 0.0;

    CHECK(io_remove_tree(out, &err) == 0, "%s", err.text);
    make_trained_folder(dir, name, adapter);
    CHECK(export_model(&o, &err) == 0, "%s", err.text);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", out);
    CHECK(safetensors_open(&mine, path, &err) == 0, "%s", err.text);
    (void)snprintf(path, sizeof path, "tests/golden/%s/merged_after10_f64.safetensors", name);
    CHECK(safetensors_open(&theirs, path, &err) == 0, "%s", err.text);
    EXPECT(safetensors_count(theirs) > 0);
    for (int64_t i = 0; i < safetensors_count(theirs); i++) {
        const struct st_tensor *b = safetensors_at(theirs, i), *a = safetensors_find(mine, b->name);
        const int64_t n = st_count(b);
        double *x = calloc((size_t)n, sizeof *x), *y = calloc((size_t)n, sizeof *y);
        CHECK(a != NULL && x != NULL && y != NULL && st_count(a) == n, "%s", b->name);
        CHECK(safetensors_read(a, st_rect_all(a), ST_AS_IS, x, DTYPE_F64, st_cols(a), &err) == 0 &&
                  safetensors_read(b, st_rect_all(b), ST_AS_IS, y, DTYPE_F64, st_cols(b), &err) ==
                      0,
              "%s", err.text);
        worst = fmax(worst, apart(x, y, n));
        free(x);
        free(y);
    }
    printf("# %s merged: %.2g\n", name, worst);
    EXPECT(worst <= 1e-12);
    safetensors_close(mine);
    safetensors_close(theirs);
}

static void merged_weights_are_those_of_pytorch(void)
{
    compare_merged("lora_qv_r4", "adapter_after10_f64.safetensors");
    compare_merged("lora_all_linear_r3", "after10_f64.safetensors");
    compare_merged("lora_gpt2_conv1d", "after10_f64.safetensors");
    compare_merged("lora_rslora_qwen2", "after10_f64.safetensors");
}

int main(void)
{
    scratch_make();
    RUN(merged_logits_are_those_of_the_adapter);
    RUN(merged_weights_are_those_of_pytorch);
    scratch_remove();
    return tap_done();
}
