/* test_allocation.c - after the `ready` event no object of Hone allocates.
 *
 * The Makefile links this program with --wrap for malloc, calloc, realloc, posix_memalign and mmap, which
 * catches every call that Hone's own objects make; oneDNN and OpenMP, which are shared libraries, are not seen.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/check.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/events.h"
#include "trainer/inputs.h"
#include "trainer/step.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);

static volatile bool counting; /* the compiler takes malloc for a function that reads no variable */
static volatile int allocations;

static void count(void)
{
    allocations = allocations + (counting ? 1 : 0);
}

void *__wrap_malloc(size_t n)
{
    count();
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    count();
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    count();
    return __real_realloc(p, n);
}

void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    count();
    return __real_mmap(at, n, protection, flags, fd, offset);
}

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":64,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":300,"
    "\"max_position_embeddings\":64}";

struct small {
    struct tokenizer *tokenizer;
    struct token_file *file;
    struct data_set training, validation;
    struct data_reader *reader;
    struct engine engine;
    struct events *events;
    struct data_rows rows; /* ids owns the memory of all four */
};

enum { B = 4, S = 32 };

static void open_data(struct small *s, struct err *err)
{
    const struct bpe_options options = {.vocab_size = 300};
    const struct data_source source = {
        .path = in_scratch("text"), .cache_dir = in_scratch("cache"), .blame = ERR_BAD_FILE};
    struct data_reader_options reader = {.count = B, .total = 100000};

    CHECK(bpe_train(&s->tokenizer, in_scratch("text"), &options, err) == 0, "%s", err->text);
    CHECK(data_prepare(&s->file, &source, s->tokenizer, err) == 0, "%s", err->text);
    CHECK(data_split(&s->training, &s->validation, s->file, 0.1, S, 1, err) == 0, "%s", err->text);
    CHECK(data_reader_open(&s->reader, &s->training, &reader, err) == 0, "%s", err->text);
}

static void open_all(struct small *s, enum precision precision)
{
    struct err err = {0};
    struct arch arch;
    struct spec spec = {.global_batch_size = B,
                        .precision = (int)precision,
                        .dropout = 0.1,
                        .initial_loss_scale = 1024.0,
                        .min_loss_scale = 1.0,
                        .loss_scale_window = 3,
                        .hysteresis = 2};
    json_t *object = json_loads(config, 0, NULL);
    int32_t *memory = calloc((size_t)B * S, 4 * sizeof *memory);

    CHECK(memory != NULL && arch_read(&arch, object, 0, &err) == 0, "%s", err.text);
    json_decref(object);
    s->rows = (struct data_rows){memory, memory + B * S, memory + 2 * B * S, memory + 3 * B * S};
    open_data(s, &err);
    const struct dims d = dims_make(&arch, &spec, 2, S, 2);
    CHECK(engine_open(&s->engine, &d, "", &err) == 0, "%s", err.text);
    model_init(s->engine.model, s->engine.k, &s->engine.q, 1);
    CHECK(events_open(&s->events, scratch, 1, false, &err) == 0, "%s", err.text);
}

static void close_all(struct small *s)
{
    events_close(s->events);
    engine_close(&s->engine);
    data_reader_close(s->reader);
    token_file_close(s->file);
    tokenizer_close(s->tokenizer);
    free(s->rows.ids);
}

static void train(struct small *s, int steps)
{
    for (int step = 1; step <= steps; step++) {
        const struct data_rows *rows = NULL;
        struct step_result result;
        struct step_input in = {.step = step,
                                .clip = 1.0,
                                .adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}};
        in.trained = data_reader_next(s->reader, &rows);
        in.rows = rows;
        step_run(&s->engine, &in, &result);
        const struct metrics m = {.step = step, .loss = result.loss, .grad_norm = result.grad_norm};
        events_metrics(s->events, &m);
    }
}

static int allocations_of_training(enum precision precision)
{
    struct small s = {.tokenizer = NULL};
    struct step_result result;

    open_all(&s, precision);
    allocations = 0;
    counting = true;
    train(&s, 20);
    (void)step_evaluate(&s.engine, &s.validation, &s.rows, NULL, NULL, &result);
    events_eval(s.events, 20, result.loss, result.accuracy, result.tokens);
    counting = false;
    close_all(&s);
    return allocations;
}

static void steps_and_evaluations_allocate_nothing(void)
{
    EXPECT(allocations_of_training(PRECISION_F32) == 0);
    EXPECT(allocations_of_training(PRECISION_BF16) == 0);
    EXPECT(allocations_of_training(PRECISION_FP16) == 0);
}

static void the_counter_counts(void)
{
    allocations = 0;
    counting = true;
    void *volatile p = malloc(10);
    counting = false;
    free(p);
    EXPECT(allocations == 1);
}

int main(void)
{
    scratch_make();
    FILE *f = fopen(in_scratch("text"), "w");
    CHECK(f != NULL, "text");
    for (int i = 0; i < 2000; i++) {
        fprintf(f, "%d is a number of %d digits.\n", i * 37, i % 10);
    }
    CHECK(fclose(f) == 0, "text");
    RUN(the_counter_counts);
    RUN(steps_and_evaluations_allocate_nothing);
    scratch_remove();
    return tap_done();
}
