/* test_chat.c - conversations as text: what is data, what is trained, with built-in and other templates. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/chat/chat.h"

/* A model folder with a tokenizer that has these special tokens, BOS and EOS the first two. */
static struct tokenizer *make_folder(const char *const specials[], const char *name)
{
    json_t *added = json_array(), *vocab = json_object();
    const char *folder = in_scratch(name);
    struct tokenizer *t = NULL;
    struct err err = {0};
    char path[IO_PATH_MAX];

    CHECK(io_make_dir(folder, &err) == 0, "%s", err.text);
    for (int i = 0; specials[i] != NULL; i++) {
        (void)json_array_append_new(added,
                                    json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", i, "content",
                                              specials[i], "special", 1, "single_word", 0, "lstrip",
                                              0, "rstrip", 0, "normalized", 0));
        (void)json_object_set_new(vocab, specials[i], json_integer(i));
    }
    json_t *file =
        json_pack("{s:s,s:n,s:n,s:o,s:n,s:n,s:n,s:n,s:{s:s,s:o,s:[]}}", "version", "1.0",
                  "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer",
                  "post_processor", "decoder", "model", "type", "BPE", "vocab", vocab, "merges");
    json_t *config = json_pack("{s:s,s:s}", "bos_token", specials[0], "eos_token", specials[1]);
    CHECK(file != NULL && config != NULL, "no JSON");
    CHECK(io_join(path, sizeof path, folder, "tokenizer.json", &err) == 0 &&
              json_write_file(path, file, &err) == 0 &&
              io_join(path, sizeof path, folder, "tokenizer_config.json", &err) == 0 &&
              json_write_file(path, config, &err) == 0 && tokenizer_open(&t, folder, &err) == 0,
          "%s", err.text);
    json_decref(file);
    json_decref(config);
    return t;
}

static const char *const all_specials[] = {"<s>",
                                           "</s>",
                                           "<|im_start|>",
                                           "<|im_end|>",
                                           "<|start_header_id|>",
                                           "<|eot_id|>",
                                           "<|user|>",
                                           "<|end|>",
                                           "<|end_header_id|>",
                                           "<start_of_turn>",
                                           "<end_of_turn>",
                                           "<|system|>",
                                           "<|assistant|>",
                                           NULL};

static struct tokenizer *tokens;

static struct chat_template *open_template(const char *given)
{
    struct chat_template *c = NULL;
    struct err err = {0};

    CHECK(chat_template_open(&c, NULL, given, tokens, &err) == 0, "%s", err.text);
    return c;
}

static json_t *parse(const char *text)
{
    json_error_t why;
    json_t *j = json_loads(text, 0, &why);

    CHECK(j != NULL, "%s in %s", why.text, text);
    return j;
}

static void put_marks(char *out, size_t *n, const struct chat_span *spans, size_t count, size_t at,
                      const char *marks)
{
    for (size_t i = 0; i < count; i++) {
        if (spans[i].end == at) {
            out[(*n)++] = marks[1];
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (spans[i].begin == at) {
            out[(*n)++] = marks[0];
        }
    }
}

/* The text with {trained} and (plain) parts marked; the caller's to free. Spans must rise. */
static char *show(const struct rendered *r)
{
    char *out = malloc(r->bytes + 2 * (r->plain_count + r->trained_count) + 1);
    size_t n = 0;

    CHECK(out != NULL, "no memory");
    for (size_t i = 0; i + 1 < r->trained_count; i++) {
        EXPECT(r->trained[i].end < r->trained[i + 1].begin);
    }
    for (size_t i = 0; i + 1 < r->plain_count; i++) {
        EXPECT(r->plain[i].end < r->plain[i + 1].begin);
    }
    for (size_t at = 0; at <= r->bytes; at++) {
        /* inner marks close first and open last */
        for (size_t i = 0; i < r->plain_count; i++) {
            if (r->plain[i].end == at) {
                out[n++] = ')';
            }
        }
        put_marks(out, &n, r->trained, r->trained_count, at, "{}");
        for (size_t i = 0; i < r->plain_count; i++) {
            if (r->plain[i].begin == at) {
                out[n++] = '(';
            }
        }
        if (at < r->bytes) {
            out[n++] = r->text[at];
        }
    }
    out[n] = '\0';
    return out;
}

static char *render_with(const struct chat_template *c, const char *messages, const char *tools,
                         bool prompt)
{
    json_t *m = parse(messages), *t = tools == NULL ? NULL : parse(tools);
    struct rendered r;
    struct err err = {0};
    char *shown;

    if (chat_template_render(c, m, t, prompt, &r, &err) == 0) {
        shown = show(&r);
        EXPECT(strlen(r.text) == r.bytes);
    } else {
        EXPECT(r.text == NULL && r.plain == NULL && r.trained == NULL);
        shown = strdup(err.text);
    }
    rendered_fini(&r);
    json_decref(m);
    json_decref(t);
    return shown;
}

static void check(const char *given, const char *messages, const char *want)
{
    struct chat_template *c = open_template(given);
    char *got = render_with(c, messages, NULL, false);

    if (strcmp(got, want) != 0) {
        EXPECT_UNREACHED("another rendering");
        printf("# template %.60s\n# got\n%s\n# want\n%s\n", given, got, want);
    }
    free(got);
    chat_template_close(c);
}

#define HELLO                                  \
    "[{\"role\":\"user\",\"content\":\"Hi\"}," \
    "{\"role\":\"assistant\",\"content\":\"Hello\"}]"
#define TWO_TURNS                                  \
    "[{\"role\":\"system\",\"content\":\"Be\"},"   \
    "{\"role\":\"user\",\"content\":\"Hi\"},"      \
    "{\"role\":\"assistant\",\"content\":\"Yo\"}," \
    "{\"role\":\"user\",\"content\":\"Hi\"},"      \
    "{\"role\":\"assistant\",\"content\":\"Yo\"}]"

static void chatml_trains_answers_and_their_ends(void)
{
    check("chatml", TWO_TURNS,
          "<|im_start|>system\n(Be)<|im_end|>\n<|im_start|>user\n(Hi)<|im_end|>\n"
          "<|im_start|>assistant\n{(Yo)<|im_end|>}\n<|im_start|>user\n(Hi)<|im_end|>\n"
          "<|im_start|>assistant\n{(Yo)<|im_end|>}\n");
}

static void llama_2_keeps_its_blanks(void)
{
    check(
        "llama2", TWO_TURNS,
        "<s>[INST] <<SYS>>\n(Be)\n<</SYS>>\n\n(Hi) [/INST]{ (Yo) </s>}<s>[INST] (Hi) [/INST]{ (Yo) "
        "</s>}");
}

static void llama_3_ends_turns_with_eot(void)
{
    check("llama3", TWO_TURNS,
          "<s><|start_header_id|>system<|end_header_id|>\n\n(Be)<|eot_id|>"
          "<|start_header_id|>user<|end_header_id|>\n\n(Hi)<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n{(Yo)<|eot_id|>}"
          "<|start_header_id|>user<|end_header_id|>\n\n(Hi)<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n{(Yo)<|eot_id|>}");
}

static void mistral_gemma_phi_deepseek_zephyr_and_plain_train_the_answer(void)
{
    check("mistral", TWO_TURNS,
          "<s>[INST] (Be)\n\n(Hi)[/INST]{ (Yo)</s>}[INST] (Hi)[/INST]{ (Yo)</s>}");
    check("gemma", HELLO,
          "<s><start_of_turn>user\n(Hi)<end_of_turn>\n<start_of_turn>model\n{(Hello)<end_of_turn>}"
          "\n");
    check("phi", HELLO, "<|user|>\n(Hi)<|end|>\n<|assistant|>\n{(Hello)<|end|>}\n");
    check("deepseek", TWO_TURNS,
          "<s>(Be)<\xEF\xBD\x9CUser\xEF\xBD\x9C>(Hi)<\xEF\xBD\x9C"
          "Assistant\xEF\xBD\x9C>{(Yo)</s>}<\xEF\xBD\x9CUser\xEF\xBD\x9C>(Hi)<\xEF\xBD\x9C"
          "Assistant\xEF\xBD\x9C>{(Yo)</s>}");
    check("zephyr", HELLO, "<|user|>\n(Hi)</s>\n<|assistant|>\n{(Hello)</s>}\n");
    check("plain", TWO_TURNS,
          "(Be)\n\nUser: (Hi)\nAssistant:{ (Yo)</s>}\nUser: (Hi)\nAssistant:{ (Yo)</s>}\n");
}

int main(void)
{
    scratch_make();
    tokens = make_folder(all_specials, "all");
    RUN(chatml_trains_answers_and_their_ends);
    RUN(llama_2_keeps_its_blanks);
    RUN(llama_3_ends_turns_with_eot);
    RUN(mistral_gemma_phi_deepseek_zephyr_and_plain_train_the_answer);
    tokenizer_close(tokens);
    scratch_remove();
    return tap_done();
}
