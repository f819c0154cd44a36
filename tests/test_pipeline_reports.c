/* test_pipeline_reports.c - what users of other trainers met with pipelines and heads (reference/megatron.md, section 4, by its
 * rows): here it is refused with the numbers, or right.
 */
#include <string.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/plan.h"
#include "trainer/rules.h"

/* A request for a model of so many layers, up to the sizes of its run; where that is 0, spec_free is due. */
static int ask(struct spec *s, struct arch *a, struct run_sizes *sizes, struct err *err,
               const char *fields, int layers)
{
    char text[1000];

    (void)snprintf(text, sizeof text,
                   "{\"training_file\":\"t\",\"tokenizer_vocab_size\":300,\"config\":{"
                   "\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":64,"
                   "\"num_hidden_layers\":%d,\"num_attention_heads\":4,\"vocab_size\":300,"
                   "\"num_key_value_heads\":2,\"max_position_embeddings\":64},%s}",
                   layers, fields);
    json_t *request = json_loads(text, 0, NULL);
    CHECK(request != NULL, "%s", text);
    int rc = spec_parse(s, request, err);
    json_decref(request);
    if (rc == 0) {
        CHECK(arch_read(a, s->config, 0, err) == 0, "%s", err->text);
        rc = run_sizes_make(sizes, a, s, err);
        if (rc != 0) {
            spec_free(s);
        }
    }
    return rc;
}

static void expect_refused(int layers, const char *fields, const char *param,
                           const char *const says[4])
{
    struct spec s;
    struct arch a;
    struct run_sizes sizes;
    struct plan p;
    struct err err = {0};

    int rc = ask(&s, &a, &sizes, &err, fields, layers);
    if (rc == 0) {
        rc = plan_make(&p, &a, &s, 1, &err);
        spec_free(&s);
    }
    EXPECT(rc == ERR_BAD_SPEC && strcmp(err.param, param) == 0);
    for (int i = 0; i < 4 && says[i] != NULL; i++) {
        const bool said = strstr(err.text, says[i]) != NULL;
        EXPECT(said);
        if (!said) {
            printf("# not there: %s\n# %s\n", says[i], err.text);
        }
    }
}

/* #468, #823: 80 layers on 16 ranks with 2 stages each trained 64 of them; PR #326: 40 on 8 likewise. */
static void row_22_layers_that_do_not_divide_are_refused(void)
{
    expect_refused(80,
                   "\"pipeline_model_parallel_size\":16,\"num_virtual_stages_per_pipeline_rank\":2,"
                   "\"global_batch_size\":32",
                   "pipeline_model_parallel_size",
                   (const char *[4]){"80 layers", "16 pipeline ranks with 2 stages",
                                     "layers_per_stage auto", "8 would work"});
    expect_refused(40,
                   "\"pipeline_model_parallel_size\":8,\"num_virtual_stages_per_pipeline_rank\":2,"
                   "\"global_batch_size\":32",
                   "pipeline_model_parallel_size",
                   (const char *[4]){"40 layers", "8 pipeline ranks with 2", "4 would work"});
    expect_refused(40,
                   "\"pipeline_model_parallel_size\":8,\"layers_per_stage\":\"5,5,5,5,5,5,5,4\"",
                   "layers_per_stage", (const char *[4]){"39", "40"});
}

/* NeMo #14288: 3 microbatches on 6 ranks, and nobody said which number was at fault; #169, #675. */
static void row_23_interleaving_names_its_numbers(void)
{
    expect_refused(48,
                   "\"pipeline_model_parallel_size\":6,\"num_virtual_stages_per_pipeline_rank\":2,"
                   "\"micro_batch_size\":1,\"global_batch_size\":3",
                   "global_batch_size",
                   (const char *[4]){"pipeline_model_parallel_size 6", "it has 3", "6 would work"});
}

/* #5755, ms-swift #8219, #437: heads that groups do not divide, and no groups at all, crashed late. */
static void row_24_heads_and_groups_are_checked_before_anything_runs(void)
{
    static const struct {
        const char *groups;
        const char *says;
    } bad[] = {{"4", "num_key_value_heads 4 does not divide num_attention_heads 6"},
               {"0", "num_key_value_heads"},
               {"-2", "num_key_value_heads"},
               {"12", "num_key_value_heads 12 does not divide num_attention_heads 6"}};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[300];
        struct arch a;
        struct err err = {0};
        (void)snprintf(text, sizeof text,
                       "{\"model_type\":\"llama\",\"hidden_size\":48,\"intermediate_size\":64,"
                       "\"num_hidden_layers\":2,\"num_attention_heads\":6,\"vocab_size\":300,"
                       "\"num_key_value_heads\":%s}",
                       bad[i].groups);
        json_t *config = json_loads(text, 0, NULL);
        EXPECT(arch_read(&a, config, 0, &err) == ERR_NO_MODEL);
        EXPECT(strstr(err.text, bad[i].says) != NULL);
        json_decref(config);
    }
    expect_refused(
        4, "\"tensor_model_parallel_size\":3", "tensor_model_parallel_size",
        (const char *[4]){"3 does not divide the model's 4 attention heads", "2 or 4 would work"});
}

/* slime #1818, Megatron-Bridge #546: 8 devices for a model divided over 16. */
static void row_25_devices_that_hold_no_whole_copy_are_refused(void)
{
    expect_refused(16, "\"pipeline_model_parallel_size\":16,\"devices\":8,\"global_batch_size\":32",
                   "devices", (const char *[4]){"over 16 devices", "8 devices", "16 would work"});
}

/* The layers of all stages of all ranks, each once. */
static bool has_every_layer_once(const struct arch *a, const struct spec *s,
                                 const struct run_sizes *run)
{
    const struct mesh_sizes sizes = plan_mesh(s);
    char seen[128] = {0};
    struct err err = {0};
    bool all = true;

    for (int rank = 0; rank < sizes.pp; rank++) {
        struct mesh mesh;
        struct dims d;
        CHECK(mesh_make(&mesh, &sizes, rank, &err) == 0, "%s", err.text);
        CHECK(plan_dims(&d, a, s, run, &mesh, &err) == 0, "%s", err.text);
        for (int c = 0; c < d.chunks; c++) {
            for (int i = 0; i < d.layers[c].count; i++) {
                seen[d.layers[c].first + i]++;
            }
        }
    }
    for (int64_t i = 0; i < a->L; i++) {
        all = all && seen[i] == 1;
    }
    return all;
}

static void row_22_what_is_accepted_trains_every_layer(void)
{
    int accepted = 0, refused = 0;

    for (int i = 0; i < 24 * 8 * 3 * 2; i++) {
        const int layers = i % 24 + 1, pp = i / 24 % 8 + 1, stages = i / 192 % 3 + 1;
        char fields[300];
        struct spec s;
        struct arch a;
        struct run_sizes sizes;
        struct err err = {0};
        (void)snprintf(fields, sizeof fields,
                       "\"pipeline_model_parallel_size\":%d,"
                       "\"num_virtual_stages_per_pipeline_rank\":%d,\"micro_batch_size\":1,"
                       "\"global_batch_size\":840,\"layers_per_stage\":\"%s\"",
                       pp, stages, i / 576 == 0 ? "" : "auto");
        if (ask(&s, &a, &sizes, &err, fields, layers) != 0) {
            refused++;
            continue;
        }
        accepted++;
        EXPECT(pp * stages > layers + 2 || has_every_layer_once(&a, &s, &sizes));
        spec_free(&s);
    }
    printf("# %d accepted, %d refused\n", accepted, refused);
    EXPECT(accepted > 300 && refused > 300);
}

int main(void)
{
    RUN(row_22_layers_that_do_not_divide_are_refused);
    RUN(row_23_interleaving_names_its_numbers);
    RUN(row_24_heads_and_groups_are_checked_before_anything_runs);
    RUN(row_25_devices_that_hold_no_whole_copy_are_refused);
    RUN(row_22_what_is_accepted_trains_every_layer);
    return tap_done();
}
