/* letters.h - a tokenizer folder for tests in which every printable character is one token. */
#ifndef TESTS_LETTERS_H
#define TESTS_LETTERS_H

#include <jansson.h>

#include "tests/scratch.h"
#include "trainer/base/json.h"
#include "trainer/tokenizer/tokenizer.h"

enum letters_id { LETTER_BOS = 200, LETTER_EOS, LETTER_IM_START, LETTER_IM_END, LETTERS = 210 };

/* With `puts_bos` the post-processor puts <s> in front of a text. `chat_template` may be NULL. */
static inline void letters_write(const char *folder, bool puts_bos, const char *chat_template)
{
    static const char *const special[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};
    json_t *vocab = json_object(), *added = json_array();
    char path[IO_PATH_MAX];
    struct err err = {0};

    (void)json_object_set_new(vocab, "?", json_integer(0));
    (void)json_object_set_new(vocab, "\n", json_integer(10));
    for (int c = 32; c < 127; c++) {
        const char text[2] = {(char)c, '\0'};
        (void)json_object_set_new(vocab, text, json_integer(c));
    }
    for (int i = 0; i < 4; i++) {
        (void)json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                                     LETTER_BOS + i, "content", special[i],
                                                     "special", 1, "lstrip", 0, "rstrip", 0,
                                                     "normalized", 0, "single_word", 0));
    }
    json_t *post =
        puts_bos
            ? json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i], "
                        "s:[s]}}}",
                        "type", "TemplateProcessing", "single", "SpecialToken", "id", "<s>",
                        "type_id", 0, "Sequence", "id", "A", "type_id", 0, "pair", "special_tokens",
                        "<s>", "id", "<s>", "ids", LETTER_BOS, "tokens", "<s>")
            : json_null();
    json_t *all = json_pack("{s:s, s:o, s:o, s:{s:s, s:s, s:b, s:o, s:[]}}", "version", "1.0",
                            "added_tokens", added, "post_processor", post, "model", "type", "BPE",
                            "unk_token", "?", "byte_fallback", 0, "vocab", vocab, "merges");
    json_t *config = json_pack("{s:s, s:s, s:s*}", "bos_token", "<s>", "eos_token", "</s>",
                               "chat_template", chat_template);
    CHECK(all != NULL && config != NULL, "no tokenizer");
    CHECK(io_make_dir(folder, &err) == 0, "%s", err.text);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    CHECK(json_write_file(path, all, &err) == 0, "%s", err.text);
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    CHECK(json_write_file(path, config, &err) == 0, "%s", err.text);
    json_decref(all);
    json_decref(config);
}

static inline struct tokenizer *letters_open(const char *folder)
{
    struct tokenizer *t = NULL;
    struct err err = {0};

    CHECK(tokenizer_open(&t, folder, &err) == 0, "%s", err.text);
    return t;
}

#endif
