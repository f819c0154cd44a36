/* test_controls.c - runs that stop early, mark their best checkpoint and answer prompts. */
#include "tests/resume.h"

#include "trainer/generate.h"

enum { EVALUATIONS = 64, ANSWERS = 64, TEXT = 600 };

/* What the events of a run say. */
struct told {
    int evaluations, answers, checkpoints, deleted;
    struct {
        json_int_t step;
        double loss, accuracy;
    } evaluation[EVALUATIONS];
    struct {
        json_int_t step, index, tokens;
        char text[TEXT];
    } answer[ANSWERS];
    json_int_t stopped, stopped_best; /* early; 0: not */
    json_int_t best, final;           /* checkpoints   */
};

static json_int_t whole(const struct event *e, const char *key)
{
    return json_integer_value(json_object_get(e->object, key));
}

static void take(struct told *out, const struct event *e)
{
    if (e->type == EVENT_EVAL && out->evaluations < EVALUATIONS) {
        out->evaluation[out->evaluations].step = whole(e, "step");
        out->evaluation[out->evaluations].loss =
            json_number_value(json_object_get(e->object, "loss"));
        out->evaluation[out->evaluations++].accuracy =
            json_number_value(json_object_get(e->object, "accuracy"));
    }
    if (e->type == EVENT_SAMPLE && out->answers < ANSWERS) {
        out->answer[out->answers].step = whole(e, "step");
        out->answer[out->answers].index = whole(e, "index");
        out->answer[out->answers].tokens = whole(e, "tokens");
        (void)snprintf(out->answer[out->answers++].text, TEXT, "%s",
                       json_string_value(json_object_get(e->object, "text")));
    }
    if (e->type == EVENT_STOPPED_EARLY) {
        out->stopped = whole(e, "step");
        out->stopped_best = whole(e, "best_step");
        EXPECT(strstr(json_string_value(json_object_get(e->object, "message")), "evaluations") !=
               NULL);
    }
    if (e->type == EVENT_CHECKPOINT) {
        out->checkpoints++;
        out->best = json_is_true(json_object_get(e->object, "best")) ? whole(e, "step") : out->best;
        out->final =
            json_is_true(json_object_get(e->object, "final")) ? whole(e, "step") : out->final;
    }
    out->deleted += e->type == EVENT_CHECKPOINT_GONE;
}

static struct told *read_told(const char *dir)
{
    struct told *out = calloc(1, sizeof *out);
    struct event_reader *reader = NULL;
    enum event_found found = EVENT_FOUND_NONE;
    struct event e;
    struct err err = {0};

    CHECK(out != NULL && event_reader_open(&reader, dir, 0, &err) == 0, "%s", err.text);
    while (event_reader_next(reader, &found, &e, &err) == 0 && found != EVENT_FOUND_NONE) {
        take(out, &e);
    }
    event_reader_close(reader);
    return out;
}

/* The step that a link names. */
static int linked_step(const char *dir, const char *name)
{
    char path[PATH + 40], target[64] = "";

    (void)snprintf(path, sizeof path, "%s/checkpoints/%s", dir, name);
    const ssize_t n = readlink(path, target, sizeof target - 1);
    return n > 5 ? atoi(target + 5) : -1;
}

static int step_folders(const char *dir)
{
    char path[PATH + 40];
    struct io_names names;
    struct err err = {0};
    int n = 0;

    (void)snprintf(path, sizeof path, "%s/checkpoints", dir);
    CHECK(io_list_dir(&names, path, &err) == 0, "%s", err.text);
    for (int i = 0; i < names.count; i++) {
        n += strncmp(names.at[i]->d_name, "step-", 5) == 0;
    }
    io_names_fini(&names);
    return n;
}

/* The evaluation with the lowest loss after step 0. */
static json_int_t lowest_step(const struct told *t)
{
    int best = -1;

    for (int i = 0; i < t->evaluations; i++) {
        if (t->evaluation[i].step > 0 &&
            (best < 0 || t->evaluation[i].loss < t->evaluation[best].loss)) {
            best = i;
        }
    }
    return best < 0 ? -1 : t->evaluation[best].step;
}

/* A text of one line again and again teaches nothing about the other text. */
static void write_apart(void)
{
    FILE *a = fopen(in_scratch("narrow.txt"), "w"), *b = fopen(in_scratch("other.txt"), "w");

    CHECK(a != NULL && b != NULL, "files");
    for (int i = 0; i < 800; i++) {
        fprintf(a, "the small cat sees a red bird.\n");
        fprintf(b, "it runs after them and %d the other %d sees.\n", i * 7919 % 1000, i);
    }
    CHECK(fclose(a) == 0 && fclose(b) == 0, "files");
}

static const char *early(void)
{
    static char more[2 * PATH + 400];

    (void)snprintf(more, sizeof more,
                   ",\"validation_file\":\"%s/other.txt\",\"early_stopping_patience\":3,"
                   "\"eval_interval\":2,\"save_interval\":1000,\"keep_checkpoints\":1,"
                   "\"learning_rate\":0.01,\"warmup_steps\":0,\"name\":\"early\"",
                   scratch);
    return more;
}

/* make_job writes intervals of its own; a request of this test is whole. */
static void make_controlled(char dir[PATH], const char *name, const char *text_file,
                            const char *more)
{
    char text[3 * PATH + 2400];
    struct err err = {0};

    (void)snprintf(dir, PATH, "%s/%s", scratch, name);
    (void)snprintf(text, sizeof text,
                   "{\"training_file\":\"%s/%s\",\"max_steps\":%d,\"sequence_length\":32,"
                   "\"global_batch_size\":4,\"micro_batch_size\":2,\"threads\":1%s%s}",
                   scratch, text_file, STEPS, new_model, more);
    json_t *request = json_loads(text, 0, NULL);
    CHECK(request != NULL, "%s", text);
    CHECK(job_folder_create(dir, name, "tester", 1.0, request, &err) == 0, "%s", err.text);
    json_decref(request);
}

static void expect_stopped_early(const char *dir)
{
    struct told *t = read_told(dir);
    const json_int_t best = lowest_step(t);

    EXPECT(t->stopped > 0 && t->stopped < STEPS && t->stopped == best + 3 * 2);
    EXPECT(t->stopped_best == best && t->best == best && t->final == t->stopped);
    EXPECT(linked_step(dir, "best") == best && linked_step(dir, "latest") == t->stopped);
    EXPECT(step_folders(dir) == 2); /* keep_checkpoints 1, and the best */
    printf("# best at %d, ended at %d, %d checkpoints, %d deleted\n", (int)best, (int)t->stopped,
           t->checkpoints, t->deleted);
    free(t);
}

static void a_run_that_gets_no_better_ends_with_success(void)
{
    char dir[PATH];

    make_controlled(dir, "early", "narrow.txt", early());
    EXPECT(finish(start(dir)) == 0);
    expect_stopped_early(dir);
}

static void a_killed_run_stops_where_it_would_have(void)
{
    char dir[PATH];

    make_controlled(dir, "early-killed", "narrow.txt", early());
    const pid_t pid = start(dir);
    signal_at(dir, pid, 5, SIGTERM);
    (void)finish(pid);
    EXPECT(finish(start(dir)) == 0);
    struct told *whole_run = read_told(in_scratch("early")), *killed = read_told(dir);
    EXPECT(killed->stopped == whole_run->stopped && killed->best == whole_run->best);
    free(whole_run);
    free(killed);
    expect_stopped_early(dir);
}

static void the_best_of_the_saved_is_marked_and_kept(void)
{
    char dir[PATH], more[PATH + 300];

    (void)snprintf(
        more, sizeof more,
        ",\"validation_file\":\"%s/other.txt\",\"eval_interval\":10,\"save_interval\":10,"
        "\"keep_checkpoints\":1,\"learning_rate\":0.01,\"warmup_steps\":0",
        scratch);
    make_controlled(dir, "marked", "narrow.txt", more);
    EXPECT(finish(start(dir)) == 0);
    struct told *t = read_told(dir);
    EXPECT(t->stopped == 0 && t->final == STEPS && t->checkpoints == 4);
    EXPECT(t->best == lowest_step(t) && linked_step(dir, "best") == t->best);
    EXPECT(step_folders(dir) == (t->best == STEPS ? 1 : 2));
    free(t);
}

static void accuracy_is_told_beside_the_loss(void)
{
    char dir[PATH];

    make_controlled(dir, "accurate", "narrow.txt",
                    ",\"eval_interval\":20,\"learning_rate\":0.01,\"warmup_steps\":0");
    EXPECT(finish(start(dir)) == 0);
    struct told *t = read_told(dir);
    EXPECT(t->evaluations == 3);
    EXPECT(t->evaluation[0].accuracy >= 0.0 && t->evaluation[0].accuracy < 0.2);
    EXPECT(t->evaluation[2].accuracy > 0.9 && t->evaluation[2].accuracy <= 1.0);
    printf("# accuracy %.3f to %.3f\n", t->evaluation[0].accuracy, t->evaluation[2].accuracy);
    free(t);
}

static bool collect(void *context, const char *text, size_t bytes)
{
    char *out = context;
    const size_t n = strlen(out);

    CHECK(n + bytes < TEXT, "%zu bytes", n + bytes);
    memcpy(out + n, text, bytes);
    out[n + bytes] = '\0';
    return true;
}

/* What the checkpoint itself answers. */
static void expect_answer(const char *dir, const char *prompt, const char *text)
{
    const struct generator_options options = {.threads = 1, .type = DTYPE_REAL, .isa = ""};
    char path[PATH + 40], got[TEXT] = "";
    struct generator *g = NULL;
    struct generated done;
    struct err err = {0};
    const struct generation what = {.prompt = prompt,
                                    .max_tokens = 12,
                                    .sampling = {.top_p = 1.0},
                                    .put = collect,
                                    .context = got};

    (void)snprintf(path, sizeof path, "%s/checkpoints/latest", dir);
    CHECK(generator_open(&g, path, &options, &err) == 0, "%s", err.text);
    CHECK(generator_run(g, &what, &done, &err) == 0, "%s", err.text);
    EXPECT(strcmp(got, text) == 0);
    printf("# \"%s\" -> \"%s\"\n", prompt, text);
    generator_close(g);
}

static void prompts_are_answered_at_each_evaluation(void)
{
    char dir[PATH];

    make_controlled(dir, "answers", "narrow.txt",
                    ",\"eval_interval\":20,\"learning_rate\":0.01,\"warmup_steps\":0,"
                    "\"sample_prompts\":{\"prompts\":[\"the small\",\"bird.\"],\"max_tokens\":12}");
    EXPECT(finish(start(dir)) == 0);
    struct told *t = read_told(dir);
    EXPECT(t->answers == 6);
    for (int i = 0; i < 6 && i < t->answers; i++) {
        EXPECT(t->answer[i].step == 20 * (i / 2) && t->answer[i].index == i % 2);
        EXPECT(t->answer[i].tokens >= 1 && t->answer[i].tokens <= 12);
    }
    EXPECT(strcmp(t->answer[0].text, t->answer[4].text) != 0);
    EXPECT(strstr(t->answer[4].text, " cat sees a red bird.") == t->answer[4].text);
    expect_answer(dir, "the small", t->answer[4].text);
    expect_answer(dir, "bird.", t->answer[5].text);
    free(t);
}

/* An adapter's answers come from base and adapter together, which its folder finds by itself. */
static void a_checkpoint_of_adapters_finds_its_base(void)
{
    char dir[PATH], text[4 * PATH];
    struct err err = {0};

    (void)snprintf(dir, PATH, "%s/adapted", scratch);
    (void)snprintf(
        text, sizeof text,
        "{\"training_file\":\"%s/other.txt\",\"max_steps\":%d,\"sequence_length\":32,"
        "\"global_batch_size\":4,\"threads\":1,\"model\":\"%s/answers/checkpoints/latest\","
        "\"lora_rank\":8,\"learning_rate\":0.02,\"eval_interval\":40,"
        "\"sample_prompts\":{\"prompts\":[\"the small\"],\"max_tokens\":12}}",
        scratch, STEPS, scratch);
    json_t *request = json_loads(text, 0, NULL);
    CHECK(request != NULL && job_folder_create(dir, "adapted", "tester", 1.0, request, &err) == 0,
          "%s", err.text);
    json_decref(request);
    EXPECT(finish(start(dir)) == 0);
    struct told *t = read_told(dir);
    EXPECT(t->answers == 2 && strcmp(t->answer[0].text, t->answer[1].text) != 0);
    expect_answer(dir, "the small", t->answer[1].text);
    free(t);
}

static void a_prompt_must_leave_room(void)
{
    char dir[PATH], more[600], prompt[300];

    memset(prompt, 0, sizeof prompt);
    memset(prompt, 'x', 280);
    (void)snprintf(more, sizeof more, ",\"sample_prompts\":{\"prompts\":[\"%s\"]}", prompt);
    make_controlled(dir, "long-prompt", "narrow.txt", more);
    EXPECT(finish(start(dir)) == err_exit(ERR_BAD_SPEC));
}

int main(void)
{
    scratch_make();
    write_apart();
    RUN(a_run_that_gets_no_better_ends_with_success);
    RUN(a_killed_run_stops_where_it_would_have);
    RUN(the_best_of_the_saved_is_marked_and_kept);
    RUN(accuracy_is_told_beside_the_loss);
    RUN(prompts_are_answered_at_each_evaluation);
    RUN(a_checkpoint_of_adapters_finds_its_base);
    RUN(a_prompt_must_leave_room);
    scratch_remove();
    return tap_done();
}
