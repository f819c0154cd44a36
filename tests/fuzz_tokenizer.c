/* fuzz_tokenizer.c - any bytes as a tokenizer.json: refused with a sentence, or it encodes and decodes, and a
 * text in pieces has the ids of the whole. */
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static const char text[] =
    "Hello hello  world\r\n\n 1234567 don't \xC3\xA9"
    "e\xCC\x81 \xE2\x96\x81x "
    "\xE5\xBA\x8A\xE5\x89\x8D\xE3\x80\x82 \xF0\x9F\x98\x80 <s>a</s> <|endoftext|> <unk> a,b;c "
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "abababab\xE3\x81\x8B\xE3\x82\x99\xE1\x84\x80\xE1\x85\xA1\xEF\xAC\x81<0x41>\xEF\xBC\xA1 end";

static void check_parts(struct encoder *e, const struct token_list *whole, size_t step)
{
    const size_t length = sizeof text - 1;
    struct token_list parts = {0};
    struct err err;
    size_t start = 0, end = 0, used;

    do {
        end = end + step < length ? end + step : length;
        if (encoder_encode_part(e, &parts, text + start, end - start, start == 0, end == length,
                                &used, &err) != 0) {
            token_list_free(&parts);
            return; /* a limit of steps */
        }
        CHECK(used <= end - start, "%zu of %zu used", used, end - start);
        start += used;
    } while (end < length);
    CHECK(parts.count == whole->count &&
              (parts.count == 0 ||
               memcmp(parts.ids, whole->ids, parts.count * sizeof *parts.ids) == 0),
          "parts of %zu bytes: %zu tokens, not %zu", step, parts.count, whole->count);
    token_list_free(&parts);
}

static void check_spans(struct encoder *e, const struct token_list *whole)
{
    const struct text_span plain = {.begin = 60, .end = 120};
    struct encoded x = {0};
    struct err err;

    CHECK(encoder_encode_spans(e, &x, text, sizeof text - 1, NULL, 0, &err) == 0, "%s", err.text);
    CHECK(x.ids.count == whole->count &&
              (whole->count == 0 ||
               memcmp(x.ids.ids, whole->ids, whole->count * sizeof *whole->ids) == 0),
          "%zu ids, not %zu", x.ids.count, whole->count);
    (void)encoder_encode_spans(e, &x, text, sizeof text - 1, &plain, 1, &err);
    for (size_t i = 0; i < x.ids.count; i++) {
        CHECK(x.ends[i] < sizeof text && (i == 0 || x.ends[i] >= x.ends[i - 1]), "end %zu",
              x.ends[i]);
    }
    encoded_free(&x);
}

static void use(const struct tokenizer *t)
{
    struct token_list ids = {0};
    struct encoder *e;
    struct err err;
    char *back;
    size_t bytes;

    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    if (encoder_encode(e, &ids, text, sizeof text - 1, 0, &err) == 0) {
        for (size_t i = 0; i < ids.count; i++) {
            CHECK(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_size(t), "id %d", ids.ids[i]);
        }
        check_parts(e, &ids, 7);
        check_parts(e, &ids, 60);
        check_spans(e, &ids);
        CHECK(tokenizer_decode(t, &back, &bytes, ids.ids, ids.count, false, &err) == 0, "%s",
              err.text);
        free(back);
    }
    (void)encoder_encode(e, &ids, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL | TOKENIZER_AS_TEXT,
                         &err);
    token_list_free(&ids);
    encoder_close(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tokenizer *t;
    struct err err = {0};

    const int rc = tokenizer_parse(&t, (const char *)bytes, n, &err);
    CHECK((rc == 0) == (t != NULL), "rc %d", rc);
    if (rc != 0) {
        CHECK(err.text[0] != '\0' && strchr(err.text, '\n') == NULL, "'%s'", err.text);
        return 0;
    }
    use(t);
    tokenizer_close(t);
    return 0;
}
