/* test_tokenizer_models.c - the files of tests/tokenizers: tokenizers, and what the `tokenizers` library (0.23.2,
 * Rust) makes of texts with them. Written by tests/api/tokenizers.test.mjs. */
#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/utf8.h"

static const char folder[] = "tests/tokenizers";

static bool ids_equal(const struct token_list *got, const json_t *want, const char *name,
                      const json_t *text)
{
    bool same = json_array_size(want) == got->count;

    for (size_t i = 0; same && i < got->count; i++) {
        same = json_integer_value(json_array_get(want, i)) == got->ids[i];
    }
    if (!same) {
        char *list = json_dumps(want, JSON_COMPACT);
        printf("# %s, '%.80s': want %.200s\n# got", name, json_string_value(text), list);
        for (size_t i = 0; i < got->count && i < 40; i++) {
            printf(" %d", (int)got->ids[i]);
        }
        printf("\n");
        free(list);
    }
    return same;
}

/* The pieces of a streaming decoder are whole characters and together the text. */
static void check_stream(const struct tokenizer *t, const struct token_list *ids, const char *want,
                         size_t n)
{
    struct decoder *d;
    struct err err;
    size_t at = 0;

    CHECK(decoder_open(&d, t, false, &err) == 0, "%s", err.text);
    for (size_t i = 0; i <= ids->count; i++) {
        const char *s;
        size_t bytes;
        EXPECT((i < ids->count ? decoder_put(d, ids->ids[i], &s, &bytes, &err)
                               : decoder_end(d, &s, &bytes, &err)) == 0);
        EXPECT(utf8_prefix(s, bytes, NULL) == bytes);
        EXPECT(at + bytes <= n && memcmp(want + at, s, bytes) == 0);
        at += bytes;
    }
    EXPECT(at == n);
    decoder_close(d);
}

static void check_parts(struct encoder *e, const struct token_list *whole, const char *text,
                        size_t n, size_t step)
{
    struct token_list parts = {0};
    struct err err;
    size_t start = 0, end = 0, used;

    do {
        end = end + step < n ? end + step : n;
        EXPECT(encoder_encode_part(e, &parts, text + start, end - start, start == 0, end == n,
                                   &used, &err) == 0);
        start += used;
    } while (end < n);
    EXPECT(
        parts.count == whole->count &&
        (parts.count == 0 || memcmp(parts.ids, whole->ids, parts.count * sizeof *parts.ids) == 0));
    token_list_free(&parts);
}

static void check_ends(struct encoder *e, const struct token_list *whole, const char *text,
                       size_t n)
{
    struct encoded x = {0};
    struct err err;

    EXPECT(encoder_encode_spans(e, &x, text, n, NULL, 0, &err) == 0);
    EXPECT(x.ids.count == whole->count &&
           (whole->count == 0 ||
            memcmp(x.ids.ids, whole->ids, whole->count * sizeof *whole->ids) == 0));
    for (size_t i = 0; i < x.ids.count; i++) {
        EXPECT(x.ends[i] <= n && (i == 0 || x.ends[i] >= x.ends[i - 1]));
    }
    encoded_free(&x);
}

static void check_vector(const struct tokenizer *t, struct encoder *e, const json_t *v,
                         const char *name)
{
    const json_t *text = json_object_get(v, "text"), *decoded = json_object_get(v, "decoded");
    const char *s = json_string_value(text);
    const size_t n = json_string_length(text);
    struct token_list ids = {0};
    struct err err = {0};
    char *back = NULL;
    size_t bytes = 0;

    EXPECT(encoder_encode(e, &ids, s, n, 0, &err) == 0);
    EXPECT(ids_equal(&ids, json_object_get(v, "ids"), name, text));
    check_parts(e, &ids, s, n, 5);
    check_ends(e, &ids, s, n);
    EXPECT(tokenizer_decode(t, &back, &bytes, ids.ids, ids.count, false, &err) == 0);
    const bool same = bytes == json_string_length(decoded) &&
                      memcmp(back, json_string_value(decoded), bytes) == 0;
    if (!same) {
        printf("# %s: decoded '%s', not '%s'\n", name, back, json_string_value(decoded));
    }
    EXPECT(same);
    check_stream(t, &ids, back, bytes);
    free(back);
    ids.count = 0;
    EXPECT(encoder_encode(e, &ids, s, n, TOKENIZER_ADD_SPECIAL, &err) == 0);
    EXPECT(ids_equal(&ids, json_object_get(v, "special"), name, text));
    token_list_free(&ids);
}

static void check_file(const char *name)
{
    char path[512];
    json_error_t why;
    struct tokenizer *t;
    struct encoder *e;
    struct err err = {0};
    const json_t *v;
    size_t i;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, &why);
    CHECK(file != NULL, "%s: %s", path, why.text);
    char *json = json_dumps(json_object_get(file, "tokenizer"), JSON_COMPACT);
    CHECK(tokenizer_parse(&t, json, strlen(json), &err) == 0, "%s: %s", name, err.text);
    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    json_array_foreach(json_object_get(file, "vectors"), i, v)
    {
        check_vector(t, e, v, name);
    }
    EXPECT(i > 20);
    encoder_close(e);
    tokenizer_close(t);
    free(json);
    json_decref(file);
}

static void every_file_has_the_ids_and_the_texts_of_the_library(void)
{
    struct dirent **names;
    const int count = scandir(folder, &names, NULL, alphasort);
    int files = 0;

    for (int i = 0; i < count; i++) {
        if (strstr(names[i]->d_name, ".json") != NULL) {
            check_file(names[i]->d_name);
            files++;
        }
        free(names[i]);
    }
    free(names);
    EXPECT(files >= 16);
}

int main(void)
{
    RUN(every_file_has_the_ids_and_the_texts_of_the_library);
    return tap_done();
}
