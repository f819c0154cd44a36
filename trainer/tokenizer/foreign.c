/* foreign.c - what tokenizers that are no tokenizer.json have in common. */
#include "trainer/tokenizer/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_base64(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
}

/* The first field of the model is a piece, and the first of the piece its text: 0A size 0A size. */
static bool is_sentencepiece(const char *bytes, size_t n)
{
    return n >= 4 && bytes[0] == 0x0A && bytes[2] == 0x0A && bytes[3] >= 0 &&
           bytes[1] >= bytes[3] + 2;
}

static bool is_tiktoken(const char *bytes, size_t n)
{
    size_t i = 0;

    while (i < n && is_base64(bytes[i])) {
        i++;
    }
    return i > 0 && i + 1 < n && bytes[i] == ' ' && bytes[i + 1] >= '0' && bytes[i + 1] <= '9';
}

enum foreign_kind foreign_kind(const char *bytes, size_t n)
{
    return is_sentencepiece(bytes, n) ? FOREIGN_SENTENCEPIECE
           : is_tiktoken(bytes, n)    ? FOREIGN_TIKTOKEN
                                      : FOREIGN_JSON;
}

void foreign_put_token(json_t *tokens, int64_t id, const char *content, size_t n, bool special)
{
    char key[24];

    (void)snprintf(key, sizeof key, "%lld", (long long)id);
    (void)json_object_set_new(tokens, key,
                              json_pack("{s:I, s:s%, s:b, s:b}", "id", (json_int_t)id, "content",
                                        content, n, "normalized", 0, "special", special));
}

json_t *foreign_tokens(json_t *tokens, const json_t *config)
{
    json_t *list = json_array(), *token;
    const json_t *given;
    const char *key;

    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, given)
    {
        char *end = NULL;
        const long long id = strtoll(key, &end, 10);
        if (end != key && *end == '\0' && json_is_object(given)) {
            token = json_deep_copy(given);
            (void)json_object_set_new(token, "id", json_integer(id));
            (void)json_object_set_new(tokens, key, token);
        }
    }
    json_object_foreach(tokens, key, token)
    {
        (void)json_array_append(list, token);
    }
    json_decref(tokens);
    return list;
}

bool foreign_flag(const json_t *config, const char *key, bool preset)
{
    const json_t *v = json_object_get(config, key);
    return json_is_boolean(v) ? json_is_true(v) : preset;
}

static void put_special(json_t *single, json_t *specials, const char *name, int32_t id)
{
    if (id >= 0) {
        (void)json_array_append_new(single, json_pack("{s:{s:s}}", "SpecialToken", "id", name));
        (void)json_object_set_new(specials, name, json_pack("{s:[i]}", "ids", (int)id));
    }
}

json_t *foreign_template(int32_t before, int32_t after)
{
    json_t *single = json_array(), *specials = json_object();

    put_special(single, specials, "bos", before);
    (void)json_array_append_new(single, json_pack("{s:{s:s}}", "Sequence", "id", "A"));
    put_special(single, specials, "eos", after);
    return json_pack("{s:s, s:o, s:o}", "type", "TemplateProcessing", "single", single,
                     "special_tokens", specials);
}
