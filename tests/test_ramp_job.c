/* test_ramp_job.c - real jobs whose steps grow: as many samples as the schedule says, the losses of one rank on every layout, and
 * a run that was killed on the way goes on with the same steps.
 */
#include "tests/resume.h"

/* Steps of 4, then of 8 from sample 36 on and of 16 from sample 100 on: steps 10 and 18. */
#define RAMP                                                                                    \
    ",\"batch_size_schedule\":\"0:4 1121:8 3200:16\",\"global_batch_size\":null,\"threads\":1," \
    "\"micro_batch_size\":1,\"dropout\":0.0,\"config\":{\"model_type\":\"llama\","              \
    "\"hidden_size\":32,\"intermediate_size\":64,\"num_hidden_layers\":4,"                      \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":64}"

static int64_t samples_of(int step)
{
    return step < 10 ? 4 : step < 18 ? 8 : 16;
}

/* Trained tokens after each step, as the metrics tell them: of samples of 32. */
static void expect_sizes(const char *name)
{
    struct event_reader *reader = NULL;
    enum event_found found = EVENT_FOUND_NONE;
    struct event e;
    char dir[PATH];
    struct err err = {0};
    int64_t tokens = 0;
    int step = 0;

    (void)snprintf(dir, sizeof dir, "%s/%s", scratch, name);
    CHECK(event_reader_open(&reader, dir, 0, &err) == 0, "%s", err.text);
    while (event_reader_next(reader, &found, &e, &err) == 0 && found == EVENT_FOUND) {
        if (e.type == EVENT_METRICS) {
            step++;
            tokens += 32 * samples_of(step);
            EXPECT(json_integer_value(json_object_get(e.object, "step")) == step);
            EXPECT(json_integer_value(json_object_get(e.object, "tokens")) == tokens);
        }
    }
    event_reader_close(reader);
    EXPECT(step == STEPS);
}

static void steps_grow_on_every_layout_as_on_one_rank(void)
{
    static const struct {
        const char *name, *more;
    } runs[] = {{"tp", ",\"tensor_model_parallel_size\":2"},
                {"dp", ",\"devices\":4,\"use_distributed_optimizer\":\"yes\""},
                {"pp", ",\"pipeline_model_parallel_size\":2"},
                {"vp", ",\"pipeline_model_parallel_size\":2,"
                       "\"num_virtual_stages_per_pipeline_rank\":2"},
                {"pp-dp", ",\"pipeline_model_parallel_size\":2,\"devices\":4"}};
    const struct outcome one = run_through("one", RAMP);

    expect_sizes("one");
    EXPECT(one.loss[STEPS] < 0.8 * one.loss[1]);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char more[900];
        (void)snprintf(more, sizeof more, "%s%s", RAMP, runs[i].more);
        const struct outcome many = run_through(runs[i].name, more);
        for (int step = 1; step <= STEPS; step++) {
            EXPECT_NEAR(many.loss[step], one.loss[step], 1e-5);
        }
        EXPECT_NEAR(many.eval, one.eval, 1e-5);
        expect_sizes(runs[i].name);
    }
}

static void a_run_killed_between_two_sizes_goes_on_with_its_steps(void)
{
    const struct outcome whole = run_through("whole", RAMP ",\"save_interval\":4");
    const struct outcome killed =
        run_interrupted("killed", RAMP ",\"save_interval\":4", 9, SIGKILL);
    const struct outcome later = run_interrupted("later", RAMP ",\"save_interval\":4", 21, SIGTERM);

    EXPECT(same(&whole, &killed) && same(&whole, &later));
}

/* Passes over the text end where they end, in a step that is not full. */
static void epochs_are_as_many_steps_as_they_take(void)
{
    char dir[PATH], path[PATH + 60];
    json_t *trainer = NULL;
    struct err err = {0};

    make_job(dir, "epochs", RAMP ",\"max_steps\":null,\"n_epochs\":1.3");
    finish_well(start(dir), dir);
    (void)snprintf(path, sizeof path, "%s/checkpoints/latest/trainer.json", dir);
    CHECK(json_parse_file(&trainer, path, 1 << 20, &err) == 0, "%s", err.text);
    const json_int_t steps = json_integer_value(json_object_get(trainer, "step"));
    const json_int_t tokens = json_integer_value(json_object_get(trainer, "trained_tokens"));
    int64_t most = 0;
    for (int i = 1; i <= steps; i++) {
        most += 32 * samples_of(i);
    }
    EXPECT(steps > 18);
    EXPECT(tokens <= most && tokens > most - 32 * samples_of((int)steps));
    printf("# %lld steps, %lld tokens\n", (long long)steps, (long long)tokens);
    json_decref(trainer);
}

int main(void)
{
    scratch_make();
    write_text(in_scratch("text.txt"), 400);
    RUN(steps_grow_on_every_layout_as_on_one_rank);
    RUN(a_run_killed_between_two_sizes_goes_on_with_its_steps);
    RUN(epochs_are_as_many_steps_as_they_take);
    scratch_remove();
    return tap_done();
}
