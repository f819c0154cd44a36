/* test_export.c - exports in the float build, conversions, and folders that cannot be exported. */
#include "tests/export.h"

static void merged_logits_are_those_of_the_adapter(void)
{
    export_all_cases(EXPORT_AS_IT_IS, 1e-5);
    export_all_cases(EXPORT_F32, 1e-5);
    export_all_cases(EXPORT_BF16, 3e-2);
}

/* One word of a file of the export. */
static void expect_in_config(const char *dir, const char *key, const char *value)
{
    char path[400];
    json_t *config = NULL;
    struct err err = {0};

    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    CHECK(json_parse_file(&config, path, 1 << 20, &err) == 0, "%s", err.text);
    const char *got = json_string_value(json_object_get(config, key));
    EXPECT(got != NULL && strcmp(got, value) == 0);
    json_decref(config);
}

static void a_model_is_converted_tensor_by_tensor(void)
{
    static const struct {
        enum export_precision precision;
        enum st_dtype type;
        const char *word;
    } cases[] = {{EXPORT_AS_IT_IS, ST_F32, "float32"},
                 {EXPORT_BF16, ST_BF16, "bfloat16"},
                 {EXPORT_F16, ST_F16, "float16"}};
    struct safetensors_folder *from = NULL, *to = NULL;
    struct err err = {0};
    const char *dir = "tests/golden/gpt2_tied", *out = in_scratch("converted");

    CHECK(safetensors_folder_open(&from, dir, &err) == 0, "%s", err.text);
    for (int c = 0; c < 3; c++) {
        const struct export_options o = {.dir = dir, .out = out, .precision = cases[c].precision};
        CHECK(io_remove_tree(out, &err) == 0, "%s", err.text);
        CHECK(export_model(&o, &err) == 0, "%s", err.text);
        expect_in_config(out, "torch_dtype", cases[c].word);
        CHECK(safetensors_folder_open(&to, out, &err) == 0, "%s", err.text);
        EXPECT(safetensors_folder_count(to) == safetensors_folder_count(from));
        for (int64_t i = 0; i < safetensors_folder_count(from); i++) {
            const struct st_tensor *a = safetensors_folder_at(from, i);
            const struct st_tensor *b = safetensors_folder_find(to, a->name);
            uint16_t want[9000], got[9000];
            EXPECT(b != NULL && b->dtype == cases[c].type && st_count(a) == st_count(b));
            CHECK(st_count(a) <= 9000, "%s", a->name);
            const enum dtype half = cases[c].type == ST_F16 ? DTYPE_F16 : DTYPE_BF16;
            CHECK(
                safetensors_read(a, st_rect_all(a), ST_AS_IS, want, half, st_cols(a), &err) == 0 &&
                    safetensors_read(b, st_rect_all(b), ST_AS_IS, got, half, st_cols(b), &err) == 0,
                "%s", err.text);
            EXPECT(memcmp(want, got, (size_t)st_count(a) * 2) == 0);
        }
        safetensors_folder_close(to);
    }
    safetensors_folder_close(from);
}

static void expect_failure(const char *dir, const char *base, const char *text)
{
    const char *out = in_scratch("failed");
    const struct export_options o = {.dir = dir, .base = base, .out = out};
    struct err err = {0};

    EXPECT(export_model(&o, &err) != 0 && strstr(err.text, text) != NULL);
    if (strstr(err.text, text) == NULL) {
        printf("# wanted \"%s\", got \"%s\"\n", text, err.text);
    }
    EXPECT(access(out, F_OK) != 0);
}

static void what_does_not_belong_together_is_refused(void)
{
    expect_failure("tests/golden/lora_qv_r4", "tests/golden/gpt2_tied", "no linear layer");
    expect_failure("tests/golden/lora_qv_r4", "tests/golden/nowhere", "config.json");
    expect_failure("tests/golden/lora_qv_r4", "tests/golden/llama_mha_untied",
                   "is not a matrix of");
    expect_failure("tests/golden/scripts", NULL, "config.json");
}

static void a_folder_with_files_is_left_alone(void)
{
    const char *out = in_scratch("taken");
    const struct export_options o = {.dir = "tests/golden/gpt2_tied", .out = out};
    struct err err = {0};

    CHECK(io_make_dir(out, &err) == 0, "%s", err.text);
    EXPECT(export_model(&o, &err) == 0);
    EXPECT(export_model(&o, &err) == ERR_BAD_STATE);
    EXPECT(strstr(err.text, "not empty") != NULL);
}

int main(void)
{
    scratch_make();
    RUN(merged_logits_are_those_of_the_adapter);
    RUN(a_model_is_converted_tensor_by_tensor);
    RUN(what_does_not_belong_together_is_refused);
    RUN(a_folder_with_files_is_left_alone);
    scratch_remove();
    return tap_done();
}
