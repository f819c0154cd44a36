/* texts.h - a model folder with weights of a golden case and a tokenizer of bytes, and who hears texts of it.
 *
 * Some of its tokens are bytes of characters of 2, 3 and 4 bytes, so that what it writes at random is full of
 * beginnings of characters and of ends that have none.
 */
#ifndef TESTS_TEXTS_H
#define TESTS_TEXTS_H

#include "tests/fresh.h"
#include "tests/golden.h"
#include "trainer/serve/texts.h"

/* 96 tokens: 3 special ones, 68 printable bytes, 25 bytes of characters. */
static inline void write_tokenizer(const char *dir)
{
    static const char *const high[25] = {
        "\u0120", "\u00c3", "\u00a9", "\u00e5", "\u0143", "\u0139", "\u00f0", "\u0141", "\u013a",
        "\u0122", "\u00c4", "\u00c5", "\u00c6", "\u00c7", "\u00c8", "\u00e4", "\u00e6", "\u00e7",
        "\u00e8", "\u00b8", "\u00b9", "\u00ba", "\u00bb", "\u00bc", "\u00bd"};
    json_t *vocab = json_object(), *added = json_array();
    static const char *const special[3] = {"<unk>", "<s>", "</s>"};
    int id = 3;

    for (int i = 0; i < 3; i++) {
        json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", i,
                                               "content", special[i], "special", 1, "single_word",
                                               0, "lstrip", 0, "rstrip", 0, "normalized", 0));
        json_object_set_new(vocab, special[i], json_integer(i));
    }
    for (int c = ','; c < ',' + 68; c++) {
        const char one[2] = {(char)c, '\0'};
        json_object_set_new(vocab, one, json_integer(id++));
    }
    for (int i = 0; i < 25; i++) {
        json_object_set_new(vocab, high[i], json_integer(id++));
    }
    CHECK(id == 96, "%d tokens", id);
    json_t *o = json_pack("{s:s, s:o, s:n, s:{s:s, s:b}, s:n, s:{s:s}, s:{s:s, s:o, s:[]}}",
                          "version", "1.0", "added_tokens", added, "normalizer", "pre_tokenizer",
                          "type", "ByteLevel", "add_prefix_space", 0, "post_processor", "decoder",
                          "type", "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges");
    char path[512];
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    CHECK(o != NULL && json_dump_file(o, path, 0) == 0, "%s", path);
    json_decref(o);
}

static inline void texts_copy(const char *to, const char *from, const char *name)
{
    char path[512], *bytes = NULL;
    size_t n = 0;
    struct err err = {0};

    (void)snprintf(path, sizeof path, "%s/%s", from, name);
    CHECK(io_read_file(&bytes, &n, path, 64 << 20, &err) == 0, "%s", err.text);
    (void)snprintf(path, sizeof path, "%s/%s", to, name);
    put_file(path, bytes, n);
    free(bytes);
}

static inline void texts_folder(char dir[256], const char *golden)
{
    char from[300];

    fresh_make(dir);
    (void)snprintf(from, sizeof from, "tests/golden/%s", golden);
    texts_copy(dir, from, "config.json");
    texts_copy(dir, from, "model.safetensors");
    write_tokenizer(dir);
}

enum { HEARD = 256, CHOICES = 4 };

/* What was heard of one request. */
struct heard {
    struct listener listener;
    char text[CHOICES][4 * HEARD];
    size_t bytes[CHOICES];
    struct made made[CHOICES][HEARD];
    int count[CHOICES], pieces;
    enum finish finish[CHOICES];
    bool waits, ended, failed, broken; /* broken: a piece was no whole characters */
};

static inline bool is_whole(const char *text, size_t bytes)
{
    json_t *o = json_stringn(text, bytes);
    const bool whole = o != NULL;

    json_decref(o);
    return whole;
}

static inline void heard_put(struct listener *l, const struct job *j, const struct piece *p)
{
    struct heard *h = (struct heard *)l;
    const int i = p->index;

    CHECK(i < CHOICES && h->bytes[i] + p->bytes < sizeof h->text[0], "choice %d", i);
    CHECK(h->count[i] + p->count <= HEARD, "%d tokens", h->count[i] + p->count);
    memcpy(h->text[i] + h->bytes[i], p->text == NULL ? "" : p->text, p->bytes);
    h->bytes[i] += p->bytes;
    for (int t = 0; t < p->count; t++) {
        h->made[i][h->count[i]++] = p->tokens[t];
    }
    h->finish[i] = p->finish;
    h->broken = h->broken || !is_whole(p->text, p->bytes);
    h->pieces++;
    h->ended = j->ended == j->request.n;
}

static inline void heard_fail(struct listener *l, const struct job *j, const struct err *err)
{
    printf("# %s: %s\n", j->request.id, err->text);
    ((struct heard *)l)->failed = true;
}

static inline bool heard_may_go(struct listener *l)
{
    return !((struct heard *)l)->waits;
}

static inline void heard_init(struct heard *h)
{
    memset(h, 0, sizeof *h);
    h->listener = (struct listener){.put = heard_put, .fail = heard_fail, .may_go = heard_may_go};
}

/* Ask for what `line` says of the prompt `ids`. */
static inline int heard_ask(struct heard *h, struct texts *x, const char *line, const int32_t *ids,
                            int count, struct err *err)
{
    struct serve_request r;
    struct token_list prompt = {0};
    const struct job *j = NULL;

    heard_init(h);
    CHECK(request_parse(&r, line, strlen(line), err) == 0, "%s", err->text);
    for (int i = 0; i < count; i++) {
        CHECK(token_list_put(&prompt, ids[i], err) == 0, "%s", err->text);
    }
    return texts_add(x, &j, &r, &prompt, &h->listener, err);
}

static inline struct texts *texts_with(const char *dir, const char *adapter, int64_t slots,
                                       int64_t piece, int threads)
{
    const struct texts_options o = {.threads = threads,
                                    .type = DTYPE_REAL,
                                    .slots = slots,
                                    .piece = piece,
                                    .isa = "",
                                    .adapter = adapter};
    struct texts *x = NULL;
    struct err err = {0};

    CHECK(texts_open(&x, dir, &o, &err) == 0, "%s", err.text);
    return x;
}

static inline struct texts *texts_of(const char *dir, int64_t slots, int64_t piece, int threads)
{
    return texts_with(dir, NULL, slots, piece, threads);
}

static const int32_t texts_prompt[9] = {1, 40, 41, 7, 71, 60, 12, 33, 71};

/* Logarithms of probabilities, in double, of what the model in training form gives for the tokens that h
 * heard, the echoed prompt first, against those that were heard; the largest difference. */
static inline double texts_whole(const char *golden, const struct heard *h)
{
    struct golden g;
    double worst = 0.0;

    golden_open(&g, golden, "batches.safetensors", (struct way){.micro_batch = 1});
    struct safetensors *st = golden_file(&g, "batches.safetensors");
    (void)golden_batch(&g, st, 0);
    safetensors_close(st);
    CHECK(h->count[0] <= g.S, "%d tokens in rows of %lld", h->count[0], (long long)g.S);
    for (int i = 0; i < h->count[0]; i++) {
        g.rows.ids[i] = h->made[0][i].id;
    }
    struct step_result result;
    const struct step_input in = {.rows = &g.rows, .trained = 1, .step = 1};
    step_gradients(&g.engine, &in, &result);
    const struct ctx c = model_ctx(g.engine.model, g.engine.k, &g.engine.q, &g.engine.tp, 0, g.S);
    model_forward(g.engine.model, &c);
    for (int i = 1; i < h->count[0]; i++) {
        const struct tensor row = tensor_slice(here(&c, g.engine.model->out), i - 1, 1);
        const real *logits = head_logits(&g.engine.model->head, &c, row).data;
        double sum = 0.0;
        for (int64_t v = 0; v < g.arch.V; v++) {
            sum += exp((double)logits[v]);
        }
        const struct logprobs *p = &h->made[0][i].logprobs;
        worst = fmax(worst, fabs(p->chosen - ((double)logits[h->made[0][i].id] - log(sum))));
        for (int t = 0; t < p->top_count; t++) {
            worst =
                fmax(worst, fabs(p->top[t].logprob - ((double)logits[p->top[t].id] - log(sum))));
        }
    }
    golden_close(&g);
    return worst;
}

static inline void texts_logprobs(const char *golden, double limit)
{
    struct heard h;
    char dir[256];
    struct err err = {0};

    texts_folder(dir, golden);
    struct texts *x = texts_of(dir, 2, 4, 1);
    EXPECT(heard_ask(&h, x,
                     "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":6,\"seed\":5,\"logprobs\":7,"
                     "\"ignore_eos\":true,\"top_k\":40,\"echo\":true}",
                     texts_prompt, 9, &err) == 0);
    while (texts_step(x)) {
    }
    EXPECT(h.ended && h.count[0] == 15 && h.made[0][3].logprobs.top_count == 7);
    const double worst = texts_whole(golden, &h);
    printf("# %s: log probabilities apart by %.2g\n", golden, worst);
    EXPECT(worst <= limit);
    texts_close(x);
}

#endif
