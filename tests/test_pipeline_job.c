/* test_pipeline_job.c - real jobs on the ranks of a pipeline: the losses of one rank, bit for bit the same when they were
 * killed on the way, and checkpoints of the one layout.
 */
#include "tests/resume.h"

#include "trainer/base/clock.h"
#include "trainer/ckpt/folder.h"
#include "trainer/plan.h"

/* Four layers with a tied embedding; four microbatches in a step. */
#define MODEL                                                                              \
    ",\"config\":{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":64,"   \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,"         \
    "\"max_position_embeddings\":64,\"tie_word_embeddings\":true},\"micro_batch_size\":1," \
    "\"threads\":1"
#define TWO       MODEL ",\"pipeline_model_parallel_size\":2"
#define TWO_TWICE TWO ",\"num_virtual_stages_per_pipeline_rank\":2"

static void expect_near(const struct outcome *a, const struct outcome *b)
{
    for (int i = 1; i <= STEPS; i++) {
        EXPECT_NEAR(a->loss[i], b->loss[i], 1e-5);
    }
    EXPECT_NEAR(a->eval0, b->eval0, 1e-5);
    EXPECT_NEAR(a->eval, b->eval, 1e-5);
}

/* Names, types, shapes and places of all tensors. */
static void expect_same_layout(const char *one, const char *other, const char *file)
{
    char path[2][PATH + 80];
    struct safetensors *st[2] = {NULL, NULL};
    struct err err = {0};

    (void)snprintf(path[0], sizeof path[0], "%s/%s/checkpoints/latest/%s", scratch, one, file);
    (void)snprintf(path[1], sizeof path[1], "%s/%s/checkpoints/latest/%s", scratch, other, file);
    CHECK(safetensors_open(&st[0], path[0], &err) == 0 &&
              safetensors_open(&st[1], path[1], &err) == 0,
          "%s", err.text);
    const int64_t n = safetensors_count(st[0]);
    EXPECT(n > 0 && safetensors_count(st[1]) == n);
    for (int64_t i = 0; i < n; i++) {
        const struct st_tensor *a = safetensors_at(st[0], i), *b = safetensors_at(st[1], i);
        EXPECT(strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->offset == b->offset);
        EXPECT(a->dims == b->dims && memcmp(a->shape, b->shape, sizeof a->shape) == 0);
    }
    safetensors_close(st[0]);
    safetensors_close(st[1]);
}

static void a_pipeline_learns_what_one_rank_does(void)
{
    static const struct {
        const char *name, *more;
    } runs[] = {{"two", TWO},
                {"twice", TWO_TWICE},
                {"uneven", TWO ",\"layers_per_stage\":\"3,1\""},
                {"by-cost", TWO ",\"layers_per_stage\":\"auto\""},
                {"copies", TWO ",\"devices\":4,\"use_distributed_optimizer\":\"yes\""}};
    const struct outcome one = run_through("one", MODEL);

    EXPECT(one.loss[STEPS] < 0.8 * one.loss[1]);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const struct outcome many = run_through(runs[i].name, runs[i].more);
        expect_near(&many, &one);
        expect_same_layout("one", runs[i].name, "model.safetensors");
        expect_same_layout("one", runs[i].name, "optimizer.safetensors");
    }
}

/* The child of a launcher that is this rank; 0: it is not there yet. */
static pid_t rank_of(pid_t launcher, const char *name)
{
    char path[64], word[64];
    long child = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    FILE *f = fopen(path, "r");
    pid_t found = 0;
    while (f != NULL && fscanf(f, "%ld", &child) == 1) {
        (void)snprintf(path, sizeof path, "/proc/%ld/comm", child);
        FILE *comm = fopen(path, "r");
        if (comm != NULL && fgets(word, sizeof word, comm) != NULL &&
            strncmp(word, name, strlen(name)) == 0) {
            found = (pid_t)child;
        }
        if (comm != NULL) {
            (void)fclose(comm);
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return found;
}

/* A run whose last stage is killed at a step; its launcher ends soon and says which it was. */
static struct outcome lose_the_last_stage(const char *name, const char *more, int step)
{
    struct outcome out;
    struct attempt_exit end;
    char dir[PATH];
    struct err err = {0};

    make_job(dir, name, more);
    const pid_t launcher = start(dir);
    signal_at(dir, launcher, step, 0);
    const pid_t rank = rank_of(launcher, "hone rank 1");
    const double begun = clock_seconds();
    CHECK(rank > 0 && kill(rank, SIGKILL) == 0, "no rank 1");
    EXPECT(finish(launcher) != 0);
    EXPECT(clock_seconds() - begun < 10.0);
    EXPECT(attempt_exit_read(&end, dir, 1, &err) == 0);
    EXPECT(end.status == ENDED_FAILED && strstr(end.error.text, "rank 1") != NULL);
    finish_well(start(dir), dir);
    EXPECT(read_events(&out, dir) == STEPS);
    read_hashes(&out, dir);
    read_scaler(&out, dir);
    return out;
}

static void a_killed_pipeline_resumes_as_if_it_had_never_stopped(void)
{
    const struct outcome whole = run_through("whole", TWO_TWICE);
    const struct outcome killed = run_interrupted("killed", TWO_TWICE, 17, SIGKILL);
    const struct outcome told = run_interrupted("told", TWO_TWICE, 17, SIGTERM);
    const struct outcome lost = lose_the_last_stage("lost", TWO_TWICE, 17);

    EXPECT(killed.attempts == 2 && told.attempts == 2 && lost.attempts == 2);
    EXPECT(same(&whole, &killed) && same(&whole, &told) && same(&whole, &lost));
}

/* What stages wrote is read by one rank, and what one rank wrote by stages. */
static void others_go_on_from_its_checkpoints(void)
{
    static const struct {
        const char *name, *from, *more;
    } runs[] = {{"one-from-two", "two", ",\"micro_batch_size\":1,\"threads\":1"},
                {"two-from-one", "one",
                 ",\"micro_batch_size\":1,\"threads\":1,\"pipeline_model_parallel_size\":2"}};

    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char more[PATH + 200], dir[PATH];
        struct outcome before;
        (void)snprintf(more, sizeof more, ",\"model\":\"%s/%s/checkpoints/latest\"%s", scratch,
                       runs[i].from, runs[i].more);
        const struct outcome next = run_through(runs[i].name, more);
        (void)snprintf(dir, sizeof dir, "%s/%s", scratch, runs[i].from);
        (void)read_events(&before, dir);
        EXPECT_NEAR(next.eval0, before.eval, 1e-6);
        EXPECT(next.eval0 < 0.9 * before.eval0);
    }
}

/* The plan of a rank of a pipeline of four, as `more` has it. */
static struct plan plan_of(const char *more, int rank)
{
    static const char request[] = "{\"training_file\":\"t\",\"tokenizer_vocab_size\":300,"
                                  "\"global_batch_size\":16,\"sequence_length\":64" MODEL "%s}";
    char text[sizeof request + 200];
    struct spec s;
    struct arch a;
    struct plan p;
    struct err err = {0};

    (void)snprintf(text, sizeof text, request, more);
    json_t *object = json_loads(text, 0, NULL);
    CHECK(object != NULL && spec_parse(&s, object, &err) == 0, "%s", err.text);
    CHECK(plan_config_arch(&a, &s, 0, &err) == 0, "%s", err.text);
    const int rc = rank < 0 ? plan_make(&p, &a, &s, 1, &err) : plan_rank(&p, &a, &s, 1, rank, &err);
    CHECK(rc == 0, "%s", err.text);
    spec_free(&s);
    json_decref(object);
    return p;
}

/* The first stage keeps four microbatches, the last one; and the devices of all must have room for the largest. */
static void the_plan_is_that_of_the_rank_that_takes_most(void)
{
    static const char four[] = ",\"pipeline_model_parallel_size\":4";
    const struct plan one = plan_of("", 0), all = plan_of(four, -1);
    struct plan of[4];
    size_t most = 0, weights = 0;

    for (int r = 0; r < 4; r++) {
        of[r] = plan_of(four, r);
        most = of[r].total > most ? of[r].total : most;
        weights += of[r].region[LIFE_WEIGHT];
        EXPECT(of[r].parameters == one.parameters && of[r].trainable == one.trainable);
        EXPECT(of[r].ranks == 4 && of[r].arenas < one.arenas);
    }
    const size_t step = of[1].region[LIFE_SAVED] - of[2].region[LIFE_SAVED];
    EXPECT(step > 0 && of[0].region[LIFE_SAVED] - of[1].region[LIFE_SAVED] == step);
    EXPECT(of[0].region[LIFE_SAVED] > 3 * of[3].region[LIFE_SAVED]);
    EXPECT(all.total == most && all.parameters == one.parameters);
    EXPECT(weights >= one.region[LIFE_WEIGHT]); /* the tied embedding twice */
}

int main(void)
{
    scratch_make();
    write_text(in_scratch("text.txt"), 400);
    RUN(the_plan_is_that_of_the_rank_that_takes_most);
    RUN(a_pipeline_learns_what_one_rank_does);
    RUN(a_killed_pipeline_resumes_as_if_it_had_never_stopped);
    RUN(others_go_on_from_its_checkpoints);
    scratch_remove();
    return tap_done();
}
