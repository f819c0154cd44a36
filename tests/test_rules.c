/* test_rules.c - every rule of rules.def is broken once, and says what would work. */
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/rules.h"

#define CONFIG(heads, groups, width)                                                               \
    "{\"model_type\":\"llama\",\"hidden_size\":48,\"intermediate_size\":" #width                   \
    ",\"num_hidden_layers\":4,\"num_attention_heads\":" #heads ",\"num_key_value_heads\":" #groups \
    ",\"head_dim\":8,\"vocab_size\":64,"                                                           \
    "\"max_position_embeddings\":64}"

#define EXPERTS(chosen)                                                                           \
    "{\"model_type\":\"mixtral\",\"hidden_size\":48,\"intermediate_size\":24,"                    \
    "\"num_hidden_layers\":4,\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":8," \
    "\"vocab_size\":64,\"max_position_embeddings\":64,\"num_local_experts\":6,"                   \
    "\"num_experts_per_tok\":" #chosen "}"

/* The one field or pair of fields that breaks it, the model, and what the refusal must say. */
static const struct {
    enum rule rule;
    const char *fields, *config, *param, *says;
} cases[] = {
    {RULE_MANY_DEVICES,
     "\"tensor_model_parallel_size\":64,\"pipeline_model_parallel_size\":2,\"devices\":64",
     CONFIG(64, 64, 128), "devices",
     "over 128 devices (tensor_model_parallel_size 64 x context_parallel_size 1 x "
     "pipeline_model_parallel_size 2), and a job has at most 64"},
    {RULE_WHOLE_COPIES, "\"devices\":5,\"tensor_model_parallel_size\":2", CONFIG(8, 4, 96),
     "devices",
     "divided over 2 devices (tensor_model_parallel_size 2 x "
     "context_parallel_size 1 x pipeline_model_parallel_size 1), and 5 devices do not hold whole "
     "copies; 4 or 6 "
     "would work"},
    {RULE_MICRO_BATCH, "\"micro_batch_size\":3", CONFIG(8, 4, 96), "micro_batch_size",
     "global_batch_size 8 is not a multiple of micro_batch_size 3; 2 or 4 would work"},
    {RULE_GLOBAL_BATCH, "\"devices\":3,\"micro_batch_size\":2", CONFIG(8, 4, 96),
     "global_batch_size",
     "divided over 3 data-parallel ranks with micro_batch_size 2: it must be a multiple of 6; 6 or "
     "12 would work"},
    {RULE_MICRO_BATCH, "\"batch_size_schedule\":\"0:4 1K:6\",\"micro_batch_size\":4",
     CONFIG(8, 4, 96), "micro_batch_size",
     "global_batch_size 6 is not a multiple of micro_batch_size 4; 2 would work"},
    {RULE_GLOBAL_BATCH, "\"batch_size_schedule\":\"0:4 1K:6 2K:8\",\"devices\":4", CONFIG(8, 4, 96),
     "batch_size_schedule",
     "in the steps of 6 samples of batch_size_schedule, global_batch_size 6 can't be divided over "
     "4 data-parallel ranks with micro_batch_size 1: it must be a multiple of 4; 4 or 8 would "
     "work"},
    {RULE_HEADS, "\"tensor_model_parallel_size\":3", CONFIG(8, 4, 96), "tensor_model_parallel_size",
     "3 does not divide the model's 8 attention heads; 2 or 4 would work"},
    {RULE_GROUPS, "\"tensor_model_parallel_size\":4", CONFIG(12, 6, 96),
     "tensor_model_parallel_size",
     "4 neither divides the model's 6 key and value heads nor is a multiple of them; 3 or 6 would "
     "work"},
    {RULE_MLP, "\"tensor_model_parallel_size\":4", CONFIG(8, 4, 90), "tensor_model_parallel_size",
     "4 does not divide the MLP width 90 of the model; 2 would work"},
    {RULE_STAGES, "\"num_virtual_stages_per_pipeline_rank\":2", CONFIG(8, 4, 96),
     "num_virtual_stages_per_pipeline_rank",
     "2 is for pipelines, and pipeline_model_parallel_size is 1; 1 would work"},
    {RULE_GROUP_ALONE,
     "\"pipeline_model_parallel_size\":2,\"microbatch_group_size_per_virtual_pipeline_stage\":2",
     CONFIG(8, 4, 96), "microbatch_group_size_per_virtual_pipeline_stage",
     "2 goes with num_virtual_stages_per_pipeline_rank of at least 2"},
    {RULE_FEW_MICROS,
     "\"pipeline_model_parallel_size\":2,\"num_virtual_stages_per_pipeline_rank\":2,\"micro_"
     "batch_size\":8",
     CONFIG(8, 4, 96), "global_batch_size",
     "at least as many microbatches as pipeline_model_parallel_size 2, and it has 1 "
     "(global_batch_size 8 / micro_batch_size 8 / 1 data-parallel ranks); 16 would work"},
    {RULE_GROUP_SIZE,
     "\"pipeline_model_parallel_size\":2,\"num_virtual_stages_per_pipeline_rank\":2,\"micro_"
     "batch_size\":1,\"microbatch_group_size_per_virtual_pipeline_stage\":9",
     CONFIG(8, 4, 96), "microbatch_group_size_per_virtual_pipeline_stage",
     "9 must be at least pipeline_model_parallel_size 2 and at most the 8 microbatches of a step; "
     "8 would work"},
    {RULE_GROUP_REST,
     "\"pipeline_model_parallel_size\":2,\"num_virtual_stages_per_pipeline_rank\":2,\"micro_"
     "batch_size\":1,\"microbatch_group_size_per_virtual_pipeline_stage\":7",
     CONFIG(8, 4, 96), "global_batch_size",
     "8 microbatches in groups of 7 leave 1, fewer than pipeline_model_parallel_size 2; 7 or 9 "
     "would work"},
    {RULE_LAYERS, "\"pipeline_model_parallel_size\":3", CONFIG(8, 4, 96),
     "pipeline_model_parallel_size",
     "4 layers do not divide among 3 pipeline ranks with 1 stages each; layers_per_stage auto "
     "would place them; 2 or 4 would work"},
    /* row 17 of reference/megatron.md, section 4 (#894) */
    {RULE_ONE_EXPERT, "\"devices\":1", EXPERTS(1), "model",
     "1 of 6 experts for a token and makes its weight 1"},
    {RULE_EXPERTS_SP, "\"tensor_model_parallel_size\":2", EXPERTS(2), "sequence_parallel",
     "with tensor_model_parallel_size 2 a model with experts needs sequence_parallel yes"},
    {RULE_NO_EXPERTS, "\"expert_model_parallel_size\":2", CONFIG(8, 4, 96),
     "expert_model_parallel_size",
     "2 is for models with experts, and this one has none; 1 would work"},
    {RULE_EXPERTS, "\"expert_model_parallel_size\":4,\"devices\":4", EXPERTS(2),
     "expert_model_parallel_size", "4 does not divide the model's 6 experts; 2 would work"},
    {RULE_EXPERT_GRID, "\"expert_model_parallel_size\":3,\"devices\":4", EXPERTS(2),
     "expert_model_parallel_size",
     "divided over 3 devices (expert_model_parallel_size 3 x expert_tensor_parallel_size 1), and "
     "the 4 of a pipeline stage are no multiple of that; 2 or 4 would work"},
    {RULE_EXPERT_WIDTH, "\"expert_tensor_parallel_size\":5,\"devices\":5,\"global_batch_size\":10",
     EXPERTS(2), "expert_tensor_parallel_size",
     "5 does not divide the width 24 of the model's experts; 1 would work"},
    {RULE_SHARED_WIDTH, "\"tensor_model_parallel_size\":4,\"sequence_parallel\":\"yes\"",
     "{\"model_type\":\"qwen2_moe\",\"hidden_size\":48,\"intermediate_size\":24,"
     "\"num_hidden_layers\":4,\"num_attention_heads\":8,\"num_key_value_heads\":4,"
     "\"vocab_size\":64,\"max_position_embeddings\":64,\"num_experts\":4,"
     "\"moe_intermediate_size\":24,\"shared_expert_intermediate_size\":30}",
     "tensor_model_parallel_size", "4 does not divide the width 30 of the MLP beside"},
    {RULE_CONTEXT, "\"context_parallel_size\":3,\"sequence_length\":32", CONFIG(8, 4, 96),
     "sequence_length",
     "context_parallel_size 3 divides a sequence into 6 chunks, and sequence_length 32 is not a "
     "multiple of that; 30 or 36 would work"},
    {RULE_SEQUENCE,
     "\"tensor_model_parallel_size\":4,\"sequence_parallel\":\"yes\",\"sequence_length\":30",
     CONFIG(8, 4, 96), "sequence_length",
     "sequence_length 30 must be a multiple of 4 (tensor_model_parallel_size 4 x "
     "context_parallel_size 1); 28 or 32 would work"},
};

enum { REQUEST_BYTES = 1000 };

static void write_request(char out[REQUEST_BYTES], const char *config, const char *fields)
{
    (void)snprintf(out, REQUEST_BYTES,
                   "{\"training_file\":\"t\",\"tokenizer_vocab_size\":300,\"config\":%s,%s}",
                   config, fields);
}

/* The cases as lines of JSON, for the test of the API (tests/api/rules.test.mjs). */
static int print_cases(void)
{
    for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) {
        char text[REQUEST_BYTES];
        write_request(text, cases[i].config, cases[i].fields);
        json_t *line = json_pack("{s:o, s:s, s:s}", "request", json_loads(text, 0, NULL), "param",
                                 cases[i].param, "says", cases[i].says);
        char *printed = line == NULL ? NULL : json_dumps(line, JSON_COMPACT);
        if (printed == NULL) {
            return 1;
        }
        (void)puts(printed);
        free(printed);
        json_decref(line);
    }
    return 0;
}

/* How often each rule came up. */
static int seen[RULE_COUNT + 1];

static void try_case(int i)
{
    char text[REQUEST_BYTES];
    struct spec s;
    struct arch a;
    struct err err = {0};

    write_request(text, cases[i].config, cases[i].fields);
    json_t *request = json_loads(text, 0, NULL);
    EXPECT(request != NULL);
    int rc = spec_parse(&s, request, &err);
    json_decref(request);
    if (rc == 0) {
        EXPECT(arch_read(&a, s.config, 0, &err) == 0);
        seen[rules_broken(&s, &a)] += rules_broken(&s, NULL) == RULE_COUNT;
        EXPECT(rules_broken(&s, &a) == cases[i].rule);
        rc = rules_check(&s, &a, &err);
        spec_free(&s);
    } else {
        seen[cases[i].rule]++; /* the text tells which */
    }
    EXPECT(rc == ERR_BAD_SPEC && strcmp(err.param, cases[i].param) == 0);
    EXPECT(strstr(err.text, cases[i].says) != NULL);
    if (strstr(err.text, cases[i].says) == NULL) {
        printf("# %s\n", err.text);
    }
}

static void every_rule_is_broken_and_says_what_would_work(void)
{
    for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) {
        try_case(i);
    }
    for (int rule = 0; rule < (int)RULE_COUNT; rule++) {
        EXPECT(seen[rule] >= 1);
    }
}

static void what_goes_together_is_let_through(void)
{
    static const char *const good[] = {
        "\"devices\":1",
        "\"devices\":8,\"tensor_model_parallel_size\":2",
        "\"tensor_model_parallel_size\":8", /* two ranks share a group */
        "\"devices\":4,\"micro_batch_size\":2,\"use_distributed_optimizer\":\"yes\"",
        "\"devices\":3,\"global_batch_size\":9",
        "\"sequence_parallel\":\"yes\",\"sequence_length\":31", /* on one rank it is off */
        "\"context_parallel_size\":4,\"tensor_model_parallel_size\":2,\"sequence_parallel\":"
        "\"yes\",\"devices\":16,\"sequence_length\":40",
        "\"pipeline_model_parallel_size\":3,\"layers_per_stage\":\"auto\"",
        "\"pipeline_model_parallel_size\":2,\"num_virtual_stages_per_pipeline_rank\":2,"
        "\"microbatch_group_size_per_virtual_pipeline_stage\":3,\"micro_batch_size\":1"};

    for (int i = 0; i < (int)(sizeof good / sizeof good[0]); i++) {
        char text[REQUEST_BYTES];
        struct spec s;
        struct arch a;
        struct err err = {0};
        write_request(text, CONFIG(8, 4, 96), good[i]);
        json_t *request = json_loads(text, 0, NULL);
        EXPECT(request != NULL && spec_parse(&s, request, &err) == 0);
        json_decref(request);
        EXPECT(arch_read(&a, s.config, 0, &err) == 0 && rules_check(&s, &a, &err) == 0);
        if (err.code != 0) {
            printf("# %s: %s\n", good[i], err.text);
        }
        spec_free(&s);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--cases") == 0) {
        return print_cases();
    }
    RUN(every_rule_is_broken_and_says_what_would_work);
    RUN(what_goes_together_is_let_through);
    return tap_done();
}
