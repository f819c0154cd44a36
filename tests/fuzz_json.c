/* fuzz_json.c - any bytes as a JSON file: refused with a sentence, or parsed. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    json_t *value = NULL;
    struct err err = {0};
    int64_t number = 0;

    if (json_parse_text(&value, (const char *)bytes, n, "input", &err) != 0) {
        CHECK(value == NULL && err.text[0] != '\0' && strchr(err.text, '\n') == NULL, "%s",
              err.text);
        return 0;
    }
    const struct fields f = {value, "input", ERR_BAD_FILE};
    (void)fields_integer(&f, "a", FIELD_REQUIRED, 0, 9, &number, &err);
    json_decref(value);
    return 0;
}
