/* fuzz_spec.c - any JSON as a job request: refused with a sentence about a field, or read, and
 * then what is written reads back equal. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check_round_trip(const struct spec *s)
{
    struct spec again;
    struct err err = {0};
    json_t *written = spec_json(s);

    CHECK(written != NULL && spec_parse(&again, written, &err) == 0, "%s", err.text);
    json_t *rewritten = spec_json(&again);
    CHECK(json_equal(written, rewritten), "what is written reads back otherwise");
    json_decref(written);
    json_decref(rewritten);
    spec_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct spec s;
    struct err err = {0};
    json_t *request = json_loadb((const char *)bytes, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);

    if (request == NULL) {
        return 0;
    }
    if (spec_parse(&s, request, &err) == 0) {
        check_round_trip(&s);
        spec_free(&s);
    } else {
        json_t *shown = json_pack("{s:s, s:s}", "message", err.text, "param", err.param);
        CHECK(err.code == ERR_BAD_SPEC && shown != NULL, "code %d", (int)err.code);
        CHECK(err.text[0] != '\0' && strpbrk(err.text, "\n\r\t") == NULL, "%s", err.text);
        json_decref(shown);
    }
    json_decref(request);
    return 0;
}
