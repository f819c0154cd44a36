/* test_run_ranks.c - real runs in job folders on several ranks: as one rank, with the memory that was planned. */
#include "tests/resume.h"

enum { ROUNDING = 1024 }; /* bytes, of tensors to lines of a cache */

/* A run as its request says, to its end: what its events tell of the first rank. */
struct told {
    struct outcome run;
    char layout[80];
    json_int_t saved, scratch, ranks; /* bytes of those regions */
};

static void read_ready(struct told *t, const char *name)
{
    struct event_reader *reader = NULL;
    enum event_found found = EVENT_FOUND_NONE;
    char dir[PATH];
    struct event e;
    struct err err = {0};

    (void)snprintf(dir, sizeof dir, "%s/%s", scratch, name);
    CHECK(event_reader_open(&reader, dir, 0, &err) == 0, "%s", err.text);
    while (event_reader_next(reader, &found, &e, &err) == 0 && found != EVENT_FOUND_NONE) {
        if (e.type == EVENT_READY) {
            const json_t *memory = json_object_get(e.object, "memory");
            const char *layout = json_string_value(json_object_get(e.object, "layout"));
            (void)snprintf(t->layout, sizeof t->layout, "%s", layout != NULL ? layout : "");
            t->ranks = json_integer_value(json_object_get(e.object, "ranks"));
            t->saved = json_integer_value(json_object_get(memory, "saved"));
            t->scratch = json_integer_value(json_object_get(memory, "scratch"));
        }
    }
    event_reader_close(reader);
}

static struct told run(const char *name, const char *more)
{
    struct told t = {.run = run_through(name, more)};

    read_ready(&t, name);
    printf("# %s: %s, loss %.5f to %.5f, saved %lld, scratch %lld\n", name, t.layout, t.run.loss[1],
           t.run.loss[STEPS], (long long)t.saved, (long long)t.scratch);
    (void)fflush(stdout);
    return t;
}

/* But for the order of sums. */
static void expect_near(const struct told *t, const struct told *one, double tolerance)
{
    for (int i = 1; i <= STEPS; i++) {
        EXPECT_NEAR(t->run.loss[i], one->run.loss[i], tolerance);
    }
    EXPECT_NEAR(t->run.eval, one->run.eval, tolerance);
}

static void ranks_of_a_job_share_its_sequences(void)
{
    const struct told one = run("one", ",\"threads\":1,\"micro_batch_size\":1");
    const struct told two =
        run("two", ",\"threads\":1,\"micro_batch_size\":1,\"context_parallel_size\":2,"
                   "\"use_distributed_optimizer\":\"yes\"");
    const struct told four =
        run("four", ",\"threads\":1,\"micro_batch_size\":1,\"context_parallel_size\":2,"
                    "\"tensor_model_parallel_size\":2,\"sequence_parallel\":\"yes\"");

    EXPECT(strcmp(one.layout, "") == 0 && strcmp(two.layout, "cp 2") == 0 &&
           strcmp(four.layout, "tp 2 x cp 2") == 0);
    EXPECT(two.ranks == 2 && four.ranks == 4);
    EXPECT(two.saved <= one.saved / 2 + ROUNDING && four.saved <= one.saved / 4 + ROUNDING);
    expect_near(&two, &one, 2e-4);
    expect_near(&four, &one, 2e-4);
}

static void what_is_made_again_is_planned(void)
{
    const struct told all = run("kept", "");
    const struct told some = run("some", ",\"recompute\":\"selective\",\"recompute_modules\":"
                                         "\"core_attn, mlp\"");
    const struct told full = run("full", ",\"recompute\":\"full\",\"recompute_method\":\"uniform\","
                                         "\"recompute_num_layers\":2");

    EXPECT(all.saved > some.saved && some.saved > full.saved && full.saved > 0);
    EXPECT(same(&all.run, &some.run) && same(&all.run, &full.run));
}

/* An MLP beside the experts is divided as any other; experts may be divided in another way than the rest. */
static void experts_and_what_is_beside_them_are_divided_apart(void)
{
#define SHARED                                                                                     \
    ",\"config\":{\"model_type\":\"qwen2_moe\",\"hidden_size\":32,\"intermediate_size\":24,"       \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_experts\":" \
    "4,"                                                                                           \
    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":24,\"shared_expert_intermediate_size\":"  \
    "40,"                                                                                          \
    "\"max_position_embeddings\":64},\"micro_batch_size\":1,\"threads\":1,\"dropout\":0.0"
#define PARTS ",\"tensor_model_parallel_size\":2,\"sequence_parallel\":\"yes\""
    static const struct {
        const char *name, *more;
    } runs[] = {
        {"shared-tp", SHARED PARTS},
        {"shared-ep", SHARED ",\"expert_model_parallel_size\":2"},
        {"shared-both", SHARED PARTS ",\"expert_model_parallel_size\":2"},
        {"shared-whole", SHARED PARTS ",\"expert_model_parallel_size\":2,"
                                      "\"expert_tensor_parallel_size\":1"},
        {"shared-cut", SHARED ",\"expert_model_parallel_size\":2,"
                              "\"expert_tensor_parallel_size\":2,"
                              "\"use_distributed_optimizer\":\"yes\""},
    };
    const struct told one = run("shared-one", SHARED);

    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const struct told many = run(runs[i].name, runs[i].more);
        expect_near(&many, &one, 2e-4);
        EXPECT(many.ranks > 1);
    }
}

static void a_killed_job_with_shared_sequences_goes_on(void)
{
    const char *more = ",\"threads\":1,\"context_parallel_size\":2,\"recompute\":\"selective\"";
    const struct outcome whole = run_through("ranks-whole", more);
    const struct outcome killed = run_interrupted("ranks-killed", more, 17, SIGKILL);

    EXPECT(whole.attempts == 1 && killed.attempts == 2);
    EXPECT(same(&whole, &killed));
}

/* Every expert has its tokens, whichever rank it is on; evaluations whose last batch only some ranks have, prompts, and a kill
 * on the way included. */
static void experts_on_several_ranks_learn_what_they_do_on_one(void)
{
#define EXPERTS                                                                              \
    ",\"config\":{\"model_type\":\"mixtral\",\"hidden_size\":32,\"intermediate_size\":24,"   \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"           \
    "\"num_local_experts\":4,\"router_aux_loss_coef\":0.02,\"max_position_embeddings\":64}," \
    "\"micro_batch_size\":1,\"threads\":1,\"moe_z_loss_coeff\":0.001,\"dropout\":0.0,"       \
    "\"sample_prompts\":{\"prompts\":[\"the small\"],\"max_tokens\":4}"
    const struct told one = run("experts-one", EXPERTS);
    const struct told two = run("experts-two", EXPERTS ",\"expert_model_parallel_size\":2");
    const struct told four =
        run("experts-four", EXPERTS ",\"expert_model_parallel_size\":2,\"devices\":4,"
                                    "\"use_distributed_optimizer\":\"yes\"");
    const struct told parts = run("experts-parts", EXPERTS ",\"expert_model_parallel_size\":2,"
                                                           "\"tensor_model_parallel_size\":2,"
                                                           "\"sequence_parallel\":\"yes\"");
    const struct outcome killed =
        run_interrupted("experts-killed",
                        EXPERTS ",\"expert_model_parallel_size\":2,\"devices\":4,"
                                "\"use_distributed_optimizer\":\"yes\"",
                        17, SIGKILL);

    EXPECT(two.ranks == 2 && strcmp(two.layout, "ep 2 x dp 2") == 0);
    EXPECT(four.ranks == 4 && strcmp(four.layout, "ep 2 x dp 4") == 0);
    EXPECT(parts.ranks == 4 && strcmp(parts.layout, "tp 2 x ep 2 x dp 2") == 0);
    expect_near(&two, &one, 2e-4);
    expect_near(&four, &one, 2e-4);
    expect_near(&parts, &one, 2e-4);
    EXPECT(same(&four.run, &killed));
}

int main(void)
{
    scratch_make();
    write_text(in_scratch("text.txt"), 400);
    RUN(ranks_of_a_job_share_its_sequences);
    RUN(what_is_made_again_is_planned);
    RUN(experts_on_several_ranks_learn_what_they_do_on_one);
    RUN(experts_and_what_is_beside_them_are_divided_apart);
    RUN(a_killed_job_with_shared_sequences_goes_on);
    scratch_remove();
    return tap_done();
}
