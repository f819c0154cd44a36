/* test_reshard.c - checkpoints that many ranks write: each byte once, the very files that one rank writes, read by any
 * other layout.
 */
#include <fcntl.h>

#include "tests/layouts.h"
#include "tests/scratch.h"
#include "trainer/base/sha256.h"

static const char gpt2[] = "{\"model_type\":\"gpt2\",\"n_embd\":16,\"n_layer\":2,\"n_head\":4,"
                           "\"vocab_size\":97,\"n_positions\":32}";
static const char llama[] =
    "{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,"
    "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";

static const char mixtral[] =
    "{\"model_type\":\"mixtral\",\"hidden_size\":32,\"intermediate_size\":24,\"num_hidden_layers\":"
    "2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,"
    "\"max_position_embeddings\":32,\"num_local_experts\":4,\"tie_word_embeddings\":false}";

static const struct mesh_sizes alone = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
static const struct mesh_sizes meshes[] = {
    {.tp = 2, .cp = 1, .dp = 1, .pp = 1, .ep = 1}, {.tp = 1, .cp = 1, .dp = 2, .pp = 1, .ep = 1},
    {.tp = 4, .cp = 1, .dp = 1, .pp = 1, .ep = 1}, {.tp = 2, .cp = 1, .dp = 2, .pp = 1, .ep = 1},
    {.tp = 4, .cp = 1, .dp = 3, .pp = 1, .ep = 1}, {.tp = 2, .cp = 1, .dp = 2, .pp = 2, .ep = 1},
};
enum { MESHES = sizeof meshes / sizeof meshes[0] };

static const struct job_case cases[] = {
    {.name = "GPT-2", .config = gpt2},
    {.name = "GPT-2, distributed optimizer", .config = gpt2, .distributed = true, .bucket = 700},
    {.name = "Llama", .config = llama},
    {.name = "Llama, distributed optimizer", .config = llama, .distributed = true, .bucket = 1000},
    {.name = "Llama, bf16, distributed optimizer",
     .config = llama,
     .precision = PRECISION_BF16,
     .distributed = true,
     .bucket = 1000},
    {.name = "GPT-2, bf16", .config = gpt2, .precision = PRECISION_BF16},
    {.name = "GPT-2 with adapters",
     .config = gpt2,
     .lora_rank = 3,
     .distributed = true,
     .bucket = 300},
    {.name = "Llama with adapters", .config = llama, .lora_rank = 3},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static const char *fresh(const char *name)
{
    struct err err = {0};
    const char *dir = in_scratch(name);

    CHECK(io_remove_tree(dir, &err) == 0 && io_make_dir(dir, &err) == 0, "%s", err.text);
    return dir;
}

/* Run a case from and to folders; its ranks wrote each value once. NULL when one of them failed. */
static struct found *run_between(const struct job_case *c, const struct mesh_sizes *sizes,
                                 const char *from, const char *to)
{
    struct job_case one = *c;
    uint64_t written = 0;

    one.from = from;
    one.to = to;
    struct found *f = run_layout(&one, sizes);
    EXPECT(f != NULL);
    for (int rank = 0; f != NULL && to != NULL && rank < LAYOUT_RANKS; rank++) {
        written += f->written[rank];
    }
    EXPECT(f == NULL || to == NULL || (written == f->bytes && written > 0));
    return f;
}

static void drop(const struct job_case *c, struct found *f)
{
    const struct arch a = case_arch(c);

    if (f != NULL) {
        (void)munmap(f, found_bytes(&a));
    }
}

static bool same_file(const char *a, const char *b, const char *name)
{
    char path[2][IO_PATH_MAX], hash[2][SHA256_TEXT];
    uint64_t bytes[2] = {0};
    struct err err = {0};

    for (int i = 0; i < 2; i++) {
        CHECK(io_join(path[i], IO_PATH_MAX, i == 0 ? a : b, name, &err) == 0, "%s", err.text);
        const int fd = open(path[i], O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && sha256_fd(fd, path[i], hash[i], &bytes[i], &err) == 0, "%s", path[i]);
        (void)close(fd);
    }
    return bytes[0] == bytes[1] && bytes[0] > 0 && strcmp(hash[0], hash[1]) == 0;
}

static bool same_files(const struct job_case *c, const char *a, const char *b)
{
    return same_file(a, b, c->lora_rank > 0 ? "adapter_model.safetensors" : "model.safetensors") &&
           same_file(a, b, "optimizer.safetensors");
}

/* What one rank saved after some steps, any layout loads and saves again, bit for bit. */
static void many_ranks_write_the_files_of_one(void)
{
    for (int i = 0; i < CASES; i++) {
        struct job_case c = cases[i];
        c.steps = 3;
        const char *whole = fresh("whole");
        drop(&c, run_between(&c, &alone, NULL, whole));
        c.steps = -1;
        for (int k = c.distributed && c.lora_rank == 0 ? 0 : 3; k < MESHES; k++) {
            const char *again = fresh("again");
            drop(&c, run_between(&c, &meshes[k], whole, again));
            const bool same = same_files(&c, whole, again);
            EXPECT(same);
            if (!same) {
                printf("# %s, tp %d dp %d: other files\n", c.name, meshes[k].tp, meshes[k].dp);
            }
        }
    }
}

/* Copies are written, whatever training does with what was copied meanwhile. */
static void copies_are_written_as_what_they_are_of(void)
{
    for (int i = 0; i < CASES; i++) {
        struct job_case c = cases[i];
        const char *whole = fresh("whole"), *one = fresh("one"), *many = fresh("many");
        c.steps = 2;
        drop(&c, run_between(&c, &alone, NULL, whole));
        c.behind = true;
        drop(&c, run_between(&c, &alone, NULL, one));
        EXPECT(same_files(&c, whole, one));
        c.steps = -1;
        drop(&c, run_between(&c, &meshes[i % 2 == 0 ? 5 : 4], whole, many));
        EXPECT(same_files(&c, whole, many));
    }
}

/* Experts are divided over other ranks than the rest: each of their tensors is written by one of those that have it. */
static void experts_on_many_ranks_write_the_files_of_one(void)
{
    static const struct mesh_sizes spread[] = {
        {.tp = 1, .cp = 1, .dp = 2, .pp = 1, .ep = 2},
        {.tp = 1, .cp = 1, .dp = 4, .pp = 1, .ep = 2},
        {.tp = 2, .cp = 1, .dp = 2, .pp = 1, .ep = 2},
        {.tp = 2, .cp = 1, .dp = 2, .pp = 1, .ep = 4, .etp = 1},
        {.tp = 1, .cp = 2, .dp = 1, .pp = 2, .ep = 2},
        {.tp = 2, .cp = 1, .dp = 2, .pp = 1, .ep = 1, .etp = 4},
    };

    for (int i = 0; i < 4; i++) {
        struct job_case c = {.name = "Mixtral",
                             .config = mixtral,
                             .sequence = true,
                             .distributed = i % 2 == 1,
                             .bucket = 500,
                             .precision = i < 2 ? PRECISION_F32 : PRECISION_BF16};
        c.steps = 2;
        char whole[IO_PATH_MAX];
        (void)snprintf(whole, sizeof whole, "%s", fresh("whole"));
        drop(&c, run_between(&c, &alone, NULL, whole));
        c.steps = -1;
        for (size_t k = 0; k < sizeof spread / sizeof spread[0]; k++) {
            const char *again = fresh("again"), *back = fresh("back");
            c.behind = k % 2 == 1;
            drop(&c, run_between(&c, &spread[k], whole, again));
            EXPECT(same_files(&c, whole, again));
            c.behind = false;
            drop(&c, run_between(&c, &spread[(k + 1) % 6], again, back));
            EXPECT(same_files(&c, whole, back));
        }
    }
}

/* Ranks with other places of the same sequences hold the same parameters: one of them writes. */
static void ranks_that_share_sequences_write_the_files_of_one(void)
{
    static const struct mesh_sizes shared = {.tp = 2, .cp = 2, .dp = 1, .pp = 1, .ep = 1};

    for (int i = 0; i < CASES; i++) {
        struct job_case c = cases[i];
        const char *whole = fresh("whole"), *again = fresh("again");
        c.steps = 2;
        drop(&c, run_between(&c, &alone, NULL, whole));
        c.steps = -1;
        drop(&c, run_between(&c, &shared, whole, again));
        EXPECT(same_files(&c, whole, again));
    }
}

/* Saved in one layout, gone on in another: as if it had always been one rank. */
static void a_run_goes_on_in_another_layout(void)
{
    static const int pairs[][2] = {{5, 1}, {3, 5}, {1, 3}, {5, -1}};

    for (int i = 1; i < CASES; i++) {
        struct job_case c = cases[i];
        const double tolerance = c.precision == PRECISION_BF16 ? 1e-2 : 1e-5;
        struct found *one = run_layout(&c, &alone);
        const int *pair = pairs[i % 4];
        const char *dir = fresh("between");
        EXPECT(one != NULL);
        c.steps = 5;
        drop(&c, run_between(&c, &meshes[pair[0]], NULL, dir));
        c.first = 5;
        struct found *on = run_between(&c, pair[1] < 0 ? &alone : &meshes[pair[1]], dir, NULL);
        for (int step = 5; step < LAYOUT_STEPS && one != NULL && on != NULL; step++) {
            EXPECT_NEAR(on->loss[step], one->loss[step], tolerance);
            EXPECT(one->loss[step] > 0.1);
        }
        drop(&c, one);
        drop(&c, on);
    }
}

/* In the same layout, as if it had never stopped: bit for bit. */
static void a_run_goes_on_in_its_own_layout(void)
{
    for (int i = 1; i < CASES; i += 3) {
        struct job_case c = cases[i];
        const struct mesh_sizes *mesh = &meshes[3];
        const char *whole = fresh("through"), *dir = fresh("half"), *end = fresh("end");
        drop(&c, run_between(&c, mesh, NULL, whole));
        c.steps = 5;
        drop(&c, run_between(&c, mesh, NULL, dir));
        c.first = 5;
        drop(&c, run_between(&c, mesh, dir, end));
        EXPECT(same_files(&c, whole, end));
        EXPECT(!same_files(&c, dir, end));
    }
}

/* Whichever rank finds the disk full, all of them give up, and the next try is as good as ever. */
static void a_full_disk_of_one_rank_is_everybodys(void)
{
    for (int full = 1; full <= 4; full++) {
        struct job_case c = cases[1];
        const char *whole = fresh("whole"), *again = fresh("again");
        c.steps = 1;
        drop(&c, run_between(&c, &meshes[3], NULL, whole));
        c.full = full;
        drop(&c, run_between(&c, &meshes[3], NULL, again));
        EXPECT(same_files(&c, whole, again));
    }
}

int main(void)
{
    scratch_make();
    RUN(many_ranks_write_the_files_of_one);
    RUN(copies_are_written_as_what_they_are_of);
    RUN(experts_on_many_ranks_write_the_files_of_one);
    RUN(ranks_that_share_sequences_write_the_files_of_one);
    RUN(a_run_goes_on_in_another_layout);
    RUN(a_run_goes_on_in_its_own_layout);
    RUN(a_full_disk_of_one_rank_is_everybodys);
    scratch_remove();
    return tap_done();
}
