/* test_tokenizer.c - ids and texts against the `tokenizers` library, damaged files, streaming, cutting. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tap.h"
#include "trainer/tokenizer/tokenizer.h"

static const char shared[] = "../shared";

static bool have_shared(void)
{
    struct stat st;
    return stat(shared, &st) == 0;
}

static json_t *load(const char *path)
{
    char full[512];
    json_error_t why;

    (void)snprintf(full, sizeof full, "%s/%s", shared, path);
    json_t *j = json_load_file(full, JSON_ALLOW_NUL, &why);
    if (j == NULL) {
        printf("# %s: %s\n", full, why.text);
    }
    return j;
}

static bool ids_equal(const struct token_list *got, const json_t *want, const char *id)
{
    bool same = json_array_size(want) == got->count;

    for (size_t i = 0; same && i < got->count; i++) {
        same = json_integer_value(json_array_get(want, i)) == got->ids[i];
    }
    if (!same) {
        char *text = json_dumps(want, JSON_COMPACT);
        printf("# %s: want %.200s\n# got", id, text);
        for (size_t i = 0; i < got->count && i < 40; i++) {
            printf(" %d", got->ids[i]);
        }
        printf("\n");
        free(text);
    }
    return same;
}

/* All pieces of a streaming decoder; each must be whole characters. */
static char *stream(const struct tokenizer *t, const struct token_list *ids)
{
    struct err err;
    struct decoder *d;
    char *all = calloc(1, 1);
    size_t n = 0;

    EXPECT(decoder_open(&d, t, false, &err) == 0);
    for (size_t i = 0; i <= ids->count; i++) {
        const char *s;
        size_t bytes;
        const int rc = i < ids->count ? decoder_put(d, ids->ids[i], &s, &bytes, &err)
                                      : decoder_end(d, &s, &bytes, &err);
        EXPECT(rc == 0);
        json_t *whole = json_stringn(s, bytes); /* NULL for what is not UTF-8 */
        EXPECT(whole != NULL);
        json_decref(whole);
        all = realloc(all, n + bytes + 1);
        memcpy(all + n, s, bytes);
        n += bytes;
        all[n] = '\0';
    }
    decoder_close(d);
    return all;
}

static void check_vector(const struct tokenizer *t, struct encoder *e, const char *text, size_t n,
                         const json_t *v)
{
    const char *id = json_string_value(json_object_get(v, "id"));
    const json_t *special = json_object_get(v, "ids_special"),
                 *decoded = json_object_get(v, "decoded");
    struct token_list ids = {0};
    struct err err;
    char *back;
    size_t bytes;

    EXPECT(encoder_encode(e, &ids, text, n, 0, &err) == 0);
    EXPECT(ids_equal(&ids, json_object_get(v, "ids"), id));
    EXPECT(tokenizer_decode(t, &back, &bytes, ids.ids, ids.count, false, &err) == 0);
    const char *want = decoded != NULL ? json_string_value(decoded) : text;
    const size_t want_n = decoded != NULL ? json_string_length(decoded) : n;
    const bool same = bytes == want_n && memcmp(back, want, bytes) == 0;
    if (!same) {
        printf("# %s decodes to '%s', not '%s'\n", id, back, want);
    }
    EXPECT(same);
    char *streamed = stream(t, &ids);
    EXPECT(memcmp(streamed, back, bytes) == 0);
    free(streamed);
    free(back);
    ids.count = 0;
    EXPECT(encoder_encode(e, &ids, text, n, TOKENIZER_ADD_SPECIAL, &err) == 0);
    EXPECT(ids_equal(&ids, special != NULL ? special : json_object_get(v, "ids"), id));
    token_list_free(&ids);
}

/* The text of a vector: of strings.json, or what GPT-2, which loses nothing, decodes its ids to. */
static json_t *vector_text(const json_t *strings, const struct tokenizer *gpt2,
                           const json_t *gpt2_list, size_t i)
{
    const json_t *vector = json_array_get(gpt2_list, i), *ids = json_object_get(vector, "ids");
    struct token_list list = {0};
    struct err err;
    char *text;
    size_t bytes;

    if (i < json_array_size(strings)) {
        return json_incref(json_object_get(json_array_get(strings, i), "text"));
    }
    for (size_t k = 0; k < json_array_size(ids); k++) {
        EXPECT(token_list_put(&list, (int32_t)json_integer_value(json_array_get(ids, k)), &err) ==
               0);
    }
    EXPECT(tokenizer_decode(gpt2, &text, &bytes, list.ids, list.count, false, &err) == 0);
    json_t *out = json_stringn(text, bytes);
    token_list_free(&list);
    free(text);
    return out;
}

static struct tokenizer *open_shared(const char *name)
{
    struct tokenizer *t;
    struct err err = {0};
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", shared, name);
    if (tokenizer_open(&t, path, &err) != 0) {
        printf("# %s\n", err.text);
    }
    EXPECT(t != NULL);
    return t;
}

static void check_vectors(const char *tokenizer, const char *vectors)
{
    json_t *strings = load("vectors/tokenizer/strings.json"), *file = load(vectors),
           *gpt2_file = load("vectors/tokenizer/hf_gpt2.json");
    const json_t *list = json_object_get(file, "vectors"),
                 *gpt2_list = json_object_get(gpt2_file, "vectors");
    struct tokenizer *t = open_shared(tokenizer), *gpt2 = open_shared("data/tokenizers/gpt2");
    struct encoder *e;
    struct err err;

    EXPECT(tokenizer_size(t) == json_integer_value(json_object_get(file, "vocab_size")));
    EXPECT(encoder_open(&e, t, &err) == 0);
    EXPECT(json_array_size(list) > 200 && json_array_size(list) == json_array_size(gpt2_list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *text = vector_text(strings, gpt2, gpt2_list, i);
        check_vector(t, e, json_string_value(text), json_string_length(text),
                     json_array_get(list, i));
        json_decref(text);
    }
    encoder_close(e);
    tokenizer_close(t);
    tokenizer_close(gpt2);
    json_decref(strings);
    json_decref(file);
    json_decref(gpt2_file);
}

static void gives_the_ids_of_gpt2(void)
{
    check_vectors("data/tokenizers/gpt2", "vectors/tokenizer/hf_gpt2.json");
}

static void gives_the_ids_of_a_qwen2_tokenizer(void)
{
    check_vectors("data/tokenizers/own_qwen2_4096", "vectors/tokenizer/hf_own_qwen2_4096.json");
}

static void gives_the_ids_of_a_llama2_tokenizer(void)
{
    check_vectors("data/models/stories260K", "vectors/tokenizer/hf_tok512.json");
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

/* Encode in pieces of about `step` bytes; counts the cuts. */
static int encode_parts(struct encoder *e, struct token_list *out, const char *text, size_t n,
                        size_t step, struct err *err)
{
    size_t start = 0, end = 0;
    int cuts = 0;

    while (start < n || n == 0) {
        size_t used;
        end = end + step < n ? end + step : n;
        const bool last = end == n;
        if (encoder_encode_part(e, out, text + start, end - start, start == 0, last, &used, err) !=
            0) {
            return -1;
        }
        cuts += used > 0 && !last;
        start += used;
        if (last) {
            break;
        }
    }
    return cuts;
}

/* Strings in random order, some many times: what a cut could get wrong is in there somewhere. */
static char *random_text(const json_t *strings, uint32_t *state, int pieces, size_t *n)
{
    char *text = calloc(1, 1);

    *n = 0;
    for (int i = 0; i < pieces; i++) {
        const json_t *s = json_object_get(
            json_array_get(strings, next_random(state) % json_array_size(strings)), "text");
        const size_t bytes = json_string_length(s);
        text = realloc(text, *n + bytes + 1);
        memcpy(text + *n, json_string_value(s), bytes);
        *n += bytes;
        text[*n] = '\0';
    }
    return text;
}

static void check_parts(const char *tokenizer, int least_cuts)
{
    json_t *strings = load("vectors/tokenizer/strings.json");
    struct tokenizer *t = open_shared(tokenizer);
    struct encoder *e;
    struct err err = {0};
    uint32_t state = 7;
    int cuts = 0;

    EXPECT(encoder_open(&e, t, &err) == 0);
    for (int round = 0; round < 60; round++) {
        size_t n;
        char *text = random_text(strings, &state, 1 + round * 3, &n);
        struct token_list whole = {0}, parts = {0};
        EXPECT(encoder_encode(e, &whole, text, n, 0, &err) == 0);
        const size_t step = 1 + next_random(&state) % (round % 2 == 0 ? 40 : 4000);
        cuts += encode_parts(e, &parts, text, n, step, &err);
        const bool same = whole.count == parts.count &&
                          (whole.count == 0 ||
                           memcmp(whole.ids, parts.ids, whole.count * sizeof *whole.ids) == 0);
        if (!same) {
            printf("# round %d, step %zu, %zu bytes: %zu tokens, not %zu\n", round, step, n,
                   parts.count, whole.count);
        }
        EXPECT(same);
        token_list_free(&whole);
        token_list_free(&parts);
        free(text);
    }
    printf("# %d cuts\n", cuts);
    EXPECT(cuts >= least_cuts);
    encoder_close(e);
    tokenizer_close(t);
    json_decref(strings);
}

static void parts_give_the_ids_of_the_whole(void)
{
    check_parts("data/tokenizers/gpt2", 500);
    check_parts("data/tokenizers/own_qwen2_4096", 500);
    check_parts("data/models/stories260K", 500);
}

int main(void)
{
    if (have_shared()) {
        RUN(gives_the_ids_of_gpt2);
        RUN(gives_the_ids_of_a_qwen2_tokenizer);
        RUN(gives_the_ids_of_a_llama2_tokenizer);
        RUN(parts_give_the_ids_of_the_whole);
    }
    return tap_done();
}
