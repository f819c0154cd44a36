/* prompt_fields.c - a request's sample_prompts, checked. */
#include "trainer/prompt_fields.h"

#include "trainer/base/json.h"

enum { PROMPT_BYTES = 16384, TOKENS_MAX = 1024, TOKENS_PRESET = 64 };

static int check_prompt(const json_t *prompt, size_t number, struct err *err)
{
    const size_t bytes = json_is_string(prompt)  ? json_string_length(prompt)
                         : json_is_array(prompt) ? json_dumpb(prompt, NULL, 0, JSON_COMPACT)
                                                 : 0;

    if (!json_is_string(prompt) && (!json_is_array(prompt) || json_array_size(prompt) == 0)) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "sample_prompts",
                          "sample_prompts: prompt %zu must be a text or a list of messages",
                          number);
    }
    if (bytes > PROMPT_BYTES) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "sample_prompts",
                          "sample_prompts: prompt %zu has %zu bytes, at most %d are allowed",
                          number, bytes, PROMPT_BYTES);
    }
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        const json_t *message = json_array_get(prompt, i);
        if (!json_is_string(json_object_get(message, "role")) ||
            !json_is_string(json_object_get(message, "content"))) {
            return FAIL_PARAM(
                err, ERR_BAD_SPEC, "sample_prompts",
                "sample_prompts: message %zu of prompt %zu needs a role and a content", i + 1,
                number);
        }
    }
    return 0;
}

/* Numbers of the object, with their defaults. */
int prompt_fields_numbers(int64_t *max_tokens, double *temperature, const json_t *object,
                          struct err *err)
{
    const struct fields f = {object, "sample_prompts", ERR_BAD_SPEC};

    *max_tokens = TOKENS_PRESET;
    *temperature = 0.0;
    TRY(fields_integer(&f, "max_tokens", FIELD_OPTIONAL, 1, TOKENS_MAX, max_tokens, err));
    return fields_number(&f, "temperature", FIELD_OPTIONAL, 0.0, 100.0, temperature, err);
}

int prompt_fields_check(const json_t *object, struct err *err)
{
    const json_t *list = json_object_get(object, "prompts");
    int64_t max_tokens = 0;
    double temperature = 0.0;

    if (prompt_fields_numbers(&max_tokens, &temperature, object, err) != 0) {
        err_about(err, "sample_prompts");
        return (int)err->code;
    }
    static const char *const keys[] = {"prompts", "max_tokens", "temperature"};
    size_t known = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        known += json_object_get(object, keys[i]) != NULL ? 1 : 0;
    }
    if (json_object_size(object) != known) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "sample_prompts",
                          "sample_prompts may have prompts, max_tokens and temperature, nothing "
                          "else");
    }
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > PROMPTS_MAX) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "sample_prompts",
                          "sample_prompts: prompts must be a list of 1 to %d prompts", PROMPTS_MAX);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        TRY(check_prompt(json_array_get(list, i), i + 1, err));
    }
    return 0;
}
