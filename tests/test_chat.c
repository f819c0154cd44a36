/* test_chat.c - conversations as text: what is data, what is trained, with built-in and other templates. */
#include <jansson.h>
#include <pthread.h>
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

/* The shape of DeepSeek's: what ends the tools' answers is the template's, whether an answer follows or is asked for. */
static void what_stands_behind_a_tools_answer_is_not_trained(void)
{
    static const char outputs[] =
        "{%- set ns = namespace(tool=false) -%}"
        "{%- for m in messages -%}"
        "{%- if m.role == 'tool' -%}{%- set ns.tool = true -%}<out>{{ m.content }}"
        "{%- elif m.role == 'user' -%}{%- set ns.tool = false -%}U:{{ m.content }}A:"
        "{%- else -%}{{ '<end>' if ns.tool else '' }}{%- set ns.tool = false -%}"
        "{{ (m.content or m.tool_calls[0].function.name) ~ eos_token }}{%- endif -%}"
        "{%- endfor -%}{{ '<end>' if ns.tool else '' }}";
    static const char asked[] =
        "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"tool_calls\":["
        "{\"id\":\"call00001\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{}}}],\"content\":null},"
        "{\"role\":\"tool\",\"name\":\"f\",\"tool_call_id\":\"call00001\",\"content\":\"3\"},"
        "{\"role\":\"assistant\",\"content\":\"Three\"},"
        "{\"role\":\"user\",\"content\":\"So\"},{\"role\":\"assistant\",\"content\":\"Yo\"}]";

    check(outputs, asked, "U:(Hi)A:{(f)</s>}<out>(3)<end>{(Three)</s>}U:(So)A:{(Yo)</s>}");
    check("chatml", asked,
          "<|im_start|>user\n(Hi)<|im_end|>\n<|im_start|>assistant\n{<tool_call>\n"
          "{\"name\": (\"f\"), \"arguments\": {}}\n</tool_call><|im_end|>}\n"
          "<|im_start|>user\n<tool_response>\n(3)\n</tool_response><|im_end|>\n"
          "<|im_start|>assistant\n{(Three)<|im_end|>}\n<|im_start|>user\n(So)<|im_end|>\n"
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

#define PLAIN_CHATML                                                                           \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}" \
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

static void turns_with_weight_0_are_not_trained(void)
{
    check("chatml",
          "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},"
          "{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"assistant\",\"content\":\"d\","
          "\"weight\":0},"
          "{\"role\":\"user\",\"content\":\"e\"},{\"role\":\"assistant\",\"content\":\"f\","
          "\"weight\":1}]",
          "<|im_start|>user\n(a)<|im_end|>\n<|im_start|>assistant\n{(b)<|im_end|>}\n"
          "<|im_start|>user\n(c)<|im_end|>\n<|im_start|>assistant\n(d)<|im_end|>\n"
          "<|im_start|>user\n(e)<|im_end|>\n<|im_start|>assistant\n{(f)<|im_end|>}\n");
}

static void repeated_blank_and_empty_turns_have_exact_spans(void)
{
    check(
        PLAIN_CHATML,
        "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"x\"},"
        "{\"role\":\"user\",\"content\":\"\"},{\"role\":\"assistant\",\"content\":\"\"},"
        "{\"role\":\"user\",\"content\":\"  x\"},{\"role\":\"assistant\",\"content\":\"  x\\n\"}]",
        "<|im_start|>user\n(x)<|im_end|>\n<|im_start|>assistant\n{(x)<|im_end|>}\n"
        "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n{<|im_end|>}\n"
        "<|im_start|>user\n(  x)<|im_end|>\n<|im_start|>assistant\n{(  x\n)<|im_end|>}\n");
}

static void special_tokens_in_what_people_write_end_nothing(void)
{
    check("chatml",
          "[{\"role\":\"user\",\"content\":\"<|im_start|>assistant\\n\"},"
          "{\"role\":\"assistant\",\"content\":\"a<|im_end|>\\n<|im_start|>user\\nb</s>c\"}]",
          "<|im_start|>user\n(<|im_start|>assistant\n)<|im_end|>\n"
          "<|im_start|>assistant\n{(a<|im_end|>\n<|im_start|>user\nb</s>c)<|im_end|>}\n");
    /* text that spells the generation prompt is not the prompt */
    check("{% for m in messages %}{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}A{% "
          "endif %}",
          "[{\"role\":\"user\",\"content\":\"B\"},{\"role\":\"assistant\",\"content\":\"AA\"}]",
          "(B)</s>{(AA)</s>}");
}

static void a_header_in_the_users_turn_is_not_trained(void)
{
    static const char phi[] =
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>' + m.content + "
        "'<|end|><|assistant|>\n' }}{% else %}{{ ' ' + m.content + '<|end|>\n' }}{% endif %}{% "
        "endfor %}";
    static const char old[] =
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>' + m.content + '<|end|>' }}"
        "{% if not loop.last %}{{ '<|assistant|>\n' }}{% endif %}"
        "{% else %}{{ ' ' + m.content + '<|end|>\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}";

    check(phi, HELLO, "<|user|>(Hi)<|end|><|assistant|>\n{ (Hello)<|end|>}\n");
    check(old, HELLO, "<|user|>(Hi)<|end|><|assistant|>\n{ (Hello)<|end|>}\n");
    check(old, "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"\"}]",
          "<|user|>(Hi)<|end|><|assistant|>\n{ <|end|>}\n");
}

static void a_prompt_that_says_more_than_turns_do_leaves_the_answer(void)
{
    static const char thinks[] =
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|assistant|>' + "
        "m.content.split('</think>')[-1] + '</s>' }}{% else %}{{ '<|user|>' + m.content }}{% endif "
        "%}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}";

    check(thinks,
          "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"why</"
          "think>b\"},"
          "{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":\"\"}]",
          "<|user|>(a)<|assistant|>{(b)</s>}<|user|>(b)<|assistant|>{</s>}");
}

static void a_prompt_that_always_stands_there_is_one_too(void)
{
    static const char always[] =
        "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}<|end|>"
        "{% else %}<|assistant|><s>{{ m.content }}<s></s>{% endif %}{% endfor %}<|assistant|>";

    check(always, HELLO, "<|user|>(Hi)<|end|><|assistant|>{<s>(Hello)<s></s>}<|assistant|>");
}

static void an_eos_behind_the_loop_is_trained(void)
{
    static const char last[] =
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ eos_token }}\n";

    check(last, HELLO, "user: (Hi)\nassistant: {(Hello)\n</s>}");
    check(last,
          "[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]",
          "assistant: {(a)\n}user: (b)\n</s>");
}

static void templates_without_special_tokens_train_to_the_end_of_the_turn(void)
{
    check("{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}"
          "{% if add_generation_prompt %}assistant:{% endif %}",
          HELLO, "user: (Hi)\n\nassistant:{ (Hello)\n\n}");
}

static void templates_without_a_loop_have_spans_too(void)
{
    check("<s>{{ messages[0].content }}<|end|>{{ messages[1].content }}</s>\n", HELLO,
          "<s>(Hi)<|end|>{(Hello)</s>}");
    check("{% for i in range(messages | length) %}{% set m = messages[i] %}<|user|>{{ m.content "
          "}}<|end|>"
          "{% endfor %}",
          TWO_TURNS,
          "<|user|>(Be)<|end|><|user|>(Hi)<|end|><|user|>{(Yo)<|end|>}<|user|>(Hi)<|end|><|user|>{("
          "Yo)<|end|>}");
    check("Q: {{ messages[0].content }}\nA: {{ messages[1].content }}", HELLO,
          "Q: (Hi)\nA: {(Hello)}");
    check("{{ messages[1].content }}\nQ: {{ messages[0].content }}", HELLO, "{(Hello)}\nQ: (Hi)");
}

static void merged_turns_keep_their_own_weights(void)
{
    static const char merges[] =
        "{%- set ns = namespace(role='', text='') -%}"
        "{%- for m in messages -%}{%- if m.role == ns.role -%}{%- set ns.text = ns.text ~ '\n\n' ~ "
        "m.content -%}"
        "{%- else -%}{{- '<' ~ ns.role ~ '>' ~ ns.text ~ '</s>' if ns.role -}}"
        "{%- set ns.role = m.role -%}{%- set ns.text = m.content -%}{%- endif -%}{%- endfor -%}"
        "{{- '<' ~ ns.role ~ '>' ~ ns.text ~ '</s>' if ns.role -}}";

    check(merges,
          "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"},"
          "{\"role\":\"assistant\",\"content\":\"c\"},{\"role\":\"assistant\",\"content\":\"d\"},"
          "{\"role\":\"user\",\"content\":\"e\"},{\"role\":\"assistant\",\"content\":\"f\"}]",
          "<user>(a)\n\n(b)</s><assistant>{(c)\n\n(d)</s>}<user>(e)</s><assistant>{(f)</s>}");
    check(merges,
          "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"c\","
          "\"weight\":0},"
          "{\"role\":\"assistant\",\"content\":\"d\"},{\"role\":\"user\",\"content\":\"e\"}]",
          "<user>(a)</s><assistant>(c)\n\n{(d)</s>}<user>(e)</s>");
}

static void generation_blocks_say_what_is_trained(void)
{
    static const char marks[] =
        "{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>{% generation %}{{ "
        "m.content }}"
        "<|end|>{% endgeneration %}.{% else %}<|user|>{{ m.content }}{% endif %}{% endfor %}";

    check(marks, HELLO, "<|user|>(Hi)<|assistant|>{(Hello)<|end|>}.");
    check(marks,
          "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\","
          "\"weight\":0}]",
          "<|user|>(a)<|assistant|>(b)<|end|>.");
}

static void an_order_that_a_template_refuses_is_an_error_with_its_words(void)
{
    check("llama2",
          "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"},"
          "{\"role\":\"assistant\",\"content\":\"c\"}]",
          "the chat template refuses the conversation: after an optional system message, user and "
          "assistant "
          "must take turns");
    check("gemma", TWO_TURNS,
          "the chat template refuses the conversation: System role not supported");
    check("chatml",
          "[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"},"
          "{\"role\":\"user\",\"content\":\"c\"}]",
          "<|im_start|>assistant\n{(a)<|im_end|>}\n<|im_start|>user\n(b)<|im_end|>\n"
          "<|im_start|>user\n(c)<|im_end|>\n");
}

static void a_template_that_fails_says_where(void)
{
    check("\n{% for m in messages %}{{ m.content.x.y }}{% endfor %}", HELLO,
          "the chat template can't render the conversation: line 2: a str has no 'x'");
}

#define CALL(arguments)                                                                        \
    "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":null,\"tool_" \
    "calls\":["                                                                                \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}]},"     \
    "{\"role\":\"tool\",\"content\":\"21\"},{\"role\":\"assistant\",\"content\":\"Warm\"}]"

static void calls_are_trained_in_the_form_that_the_template_wants(void)
{
    static const char as_text[] =
        "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
        "{{ '<|im_start|>' + c.function.name + ' ' + c.function.arguments + '<|im_end|>' }}{% "
        "endfor %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}";
    static const char want[] =
        "<|im_start|>user\n(Hi)<|im_end|>\n<|im_start|>assistant\n{<tool_call>\n{\"name\": "
        "(\"f\"), "
        "\"arguments\": ({\"city\": \"\xC3\xA9\", \"n\": 1})}\n</tool_call><|im_end|>}\n"
        "<|im_start|>user\n<tool_response>\n(21)\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n{(Warm)<|im_end|>}\n";

    check("chatml", CALL("{\"city\":\"\xC3\xA9\",\"n\":1}"), want);
    check("chatml", CALL("\"{\\\"city\\\": \\\"\xC3\xA9\\\", \\\"n\\\": 1}\""), want);
    check(as_text, CALL("{\"city\":1}"),
          "(Hi){<|im_start|>(f) ({\"city\": 1})<|im_end|>}(21{Warm)}");
    check(as_text, CALL("\"{ }\""), "(Hi){<|im_start|>(f) ({ })<|im_end|>}(21{Warm)}");
    check(as_text, CALL("\"no JSON\""), "(Hi){<|im_start|>(f) (no JSON)<|im_end|>}(21{Warm)}");
}

static void tools_are_data(void)
{
    struct chat_template *c = open_template("llama3");
    char *got = render_with(c, HELLO, "[{\"name\":\"<|eot_id|>\"}]", false);

    EXPECT(strstr(got, "({\n    \"name\": \"<|eot_id|>\"\n})\n\n(Hi)<|eot_id|>") != NULL);
    free(got);
    chat_template_close(c);
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;

    for (; (text = strstr(text, what)) != NULL; text += strlen(what)) {
        n++;
    }
    return n;
}

static void a_conversation_has_one_bos_or_none_but_llama_2(void)
{
    for (int i = 0; chat_builtin_name(i) != NULL; i++) {
        struct chat_template *c = open_template(chat_builtin_name(i));
        char *got = render_with(c, HELLO, NULL, false);
        EXPECT(count(got, "<s>") <= 1);
        EXPECT(count(got, "{") == 1 && count(got, "}") == 1 && strstr(got, "(Hello)") != NULL);
        free(got);
        chat_template_close(c);
    }
}

static void a_prompt_for_the_model_has_nothing_to_train(void)
{
    struct chat_template *c = open_template("chatml");
    char *got = render_with(c, HELLO, NULL, true);

    EXPECT(strcmp(got,
                  "<|im_start|>user\n(Hi)<|im_end|>\n<|im_start|>assistant\n(Hello)<|im_end|>\n"
                  "<|im_start|>assistant\n") == 0);
    free(got);
    chat_template_close(c);
}

static void knows_what_ends_a_turn(void)
{
    static const struct {
        const char *given, *end, *text, *lead, *tail;
    } rows[] = {
        {"chatml", "<|im_end|>", "<|im_end|>", "", ""},
        {"llama3", "<|eot_id|>", "<|eot_id|>", "", ""},
        {"llama2", "</s>", " </s>", " ", " "},
        {"gemma", "<end_of_turn>", "<end_of_turn>", "", ""},
        {"phi", "<|end|>", "<|end|>", "", ""},
        {"{% for m in messages %}<{{ m.role }}> {{ m.content ~ '.' ~ eos_token }}{% endfor %}"
         "{{ '<assistant>' if add_generation_prompt else '' }}",
         "</s>", ".</s>", " ", "."},
        {"{% for m in messages %}{{ m.content }}\n\n{% endfor %}", NULL, "\n\n", "", ""},
        {"{% for m in messages %}{{ raise_exception('no') }}{% endfor %}", NULL, "", "", ""}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *c = open_template(rows[i].given);
        const int32_t want =
            rows[i].end == NULL ? -1 : tokenizer_find(tokens, rows[i].end, strlen(rows[i].end));
        EXPECT(chat_template_end(c) == want);
        EXPECT(strcmp(chat_template_end_text(c), rows[i].text) == 0);
        EXPECT(strcmp(chat_template_lead(c), rows[i].lead) == 0);
        EXPECT(strcmp(chat_template_tail(c), rows[i].tail) == 0);
        chat_template_close(c);
    }
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[IO_PATH_MAX];
    struct err err = {0};

    CHECK(io_join(path, sizeof path, folder, name, &err) == 0 &&
              io_write_file(path, text, strlen(text), &err) == 0,
          "%s", err.text);
}

/* What the folder's template makes of a greeting, or the error of opening it; "SOURCE|TEXT". */
static char *open_folder(const char *folder, const char *given, const char *tools)
{
    struct chat_template *c = NULL;
    struct err err = {0};
    char *shown, *both = NULL;

    if (chat_template_open(&c, folder, given, tokens, &err) != 0) {
        EXPECT(c == NULL);
        return strdup(err.text);
    }
    shown = render_with(c, "[{\"role\":\"user\",\"content\":\"Hi\"}]", tools, false);
    CHECK(asprintf(&both, "%s|%s", chat_template_source(c), shown) > 0, "no memory");
    free(shown);
    chat_template_close(c);
    return both;
}

static void expect_folder(const char *folder, const char *given, const char *tools,
                          const char *want)
{
    char *got = open_folder(folder, given, tools);

    if (strcmp(got, want) != 0) {
        EXPECT_UNREACHED("another template");
        printf("# got %s\n# want %s\n", got, want);
    }
    free(got);
}

static void a_folders_template_is_found_where_it_may_be(void)
{
    const char *folder = in_scratch("found");
    struct tokenizer *t = make_folder(all_specials, "found");

    expect_folder(folder, NULL, NULL, "built-in plain|User: (Hi)\n");
    write_file(folder, "tokenizer_config.json",
               "{\"unk_token\":{\"content\":\"<unk>\"},\"chat_template\":\"C{{ unk_token }}{{ "
               "messages[0].content }}\"}");
    expect_folder(folder, NULL, NULL, "tokenizer_config.json|C<unk>(Hi)");
    write_file(folder, "chat_template.jinja", "J{{ eos_token }}{{ messages[0].content }}\n");
    expect_folder(folder, NULL, NULL, "chat_template.jinja|J</s>(Hi)");
    expect_folder(folder, "zephyr", NULL, "built-in zephyr|<|user|>\n(Hi)</s>\n");
    expect_folder(folder, "{{ 1 }}", NULL, "given|1");
    tokenizer_close(t);
}

static void a_list_of_templates_has_one_for_tools(void)
{
    const char *folder = in_scratch("list");
    struct tokenizer *t = make_folder(all_specials, "list");

    write_file(folder, "tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"default\",\"template\":\"  {% if 1 %}\\n D{{ "
               "messages[0].content }}\\n  {% endif %}\\n\"},"
               "{\"name\":\"tool_use\",\"template\":\"\\n T{{ tools | length }}  \\n\"}]}");
    expect_folder(folder, NULL, NULL, "tokenizer_config.json| D(Hi)\n");
    expect_folder(folder, NULL, "[{}]", "tokenizer_config.json|\n T1  ");
    write_file(folder, "tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"x\"}]}");
    expect_folder(folder, NULL, NULL,
                  "tokenizer_config.json: chat_template is neither a text nor a list with one "
                  "called \"default\"");
    tokenizer_close(t);
}

static void what_is_wrong_with_a_template_is_said_when_it_is_opened(void)
{
    const char *folder = in_scratch("wrong");
    struct tokenizer *t = make_folder(all_specials, "wrong");

    write_file(folder, "chat_template.jinja", "a\n{{ x | urlize }}");
    expect_folder(
        folder, NULL, NULL,
        "chat_template.jinja: the chat template, line 2: the filter 'urlize' is not known");
    expect_folder(folder, "{% if %}", NULL, "chat_template line 1: unexpected end of {% %}");
    expect_folder(folder, "vicuna", NULL,
                  "chat_template is neither Jinja text nor one of chatml, llama2, llama3, mistral, "
                  "gemma, phi, "
                  "deepseek, zephyr, plain");
    write_file(folder, "tokenizer_config.json", "{");
    char *got = open_folder(folder, NULL, NULL);
    EXPECT(strncmp(got, "tokenizer_config.json line 1", 28) == 0);
    free(got);
    tokenizer_close(t);
}

enum { THREADS = 4, TIMES = 200 };

static void *render_often(void *shared)
{
    static const char want[] =
        "<|im_start|>user\n(Hi)<|im_end|>\n<|im_start|>assistant\n{(Hello)<|im_end|>}\n";
    const struct chat_template *c = shared;
    int wrong = 0;

    for (int i = 0; i < TIMES; i++) {
        char *got = render_with(c, HELLO, NULL, false);
        wrong += strcmp(got, want) != 0;
        free(got);
    }
    return wrong == 0 ? shared : NULL;
}

static void threads_share_a_template(void)
{
    struct chat_template *c = open_template("chatml");
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, render_often, c) == 0, "no thread");
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        CHECK(pthread_join(threads[i], &result) == 0, "not joined");
        EXPECT(result == c);
    }
    chat_template_close(c);
}

static void a_message_may_be_megabytes_long(void)
{
    const size_t bytes = (size_t)5 << 20;
    struct chat_template *c = open_template("chatml");
    char *text = malloc(bytes + 1);
    struct rendered r;
    struct err err = {0};

    CHECK(text != NULL, "no memory");
    memset(text, 'x', bytes);
    text[bytes] = '\0';
    json_t *messages = json_pack("[{s:s,s:s},{s:s,s:s}]", "role", "user", "content", text, "role",
                                 "assistant", "content", text);
    EXPECT(chat_template_render(c, messages, NULL, false, &r, &err) == 0);
    EXPECT(r.plain_count == 2 && r.plain[0].end - r.plain[0].begin == bytes);
    EXPECT(r.trained_count == 1 &&
           r.trained[0].end - r.trained[0].begin == bytes + strlen("<|im_end|>"));
    rendered_fini(&r);
    json_decref(messages);
    free(text);
    chat_template_close(c);
}

int main(void)
{
    scratch_make();
    tokens = make_folder(all_specials, "all");
    RUN(chatml_trains_answers_and_their_ends);
    RUN(what_stands_behind_a_tools_answer_is_not_trained);
    RUN(llama_2_keeps_its_blanks);
    RUN(llama_3_ends_turns_with_eot);
    RUN(mistral_gemma_phi_deepseek_zephyr_and_plain_train_the_answer);
    RUN(turns_with_weight_0_are_not_trained);
    RUN(repeated_blank_and_empty_turns_have_exact_spans);
    RUN(special_tokens_in_what_people_write_end_nothing);
    RUN(a_header_in_the_users_turn_is_not_trained);
    RUN(a_prompt_that_says_more_than_turns_do_leaves_the_answer);
    RUN(a_prompt_that_always_stands_there_is_one_too);
    RUN(an_eos_behind_the_loop_is_trained);
    RUN(templates_without_special_tokens_train_to_the_end_of_the_turn);
    RUN(templates_without_a_loop_have_spans_too);
    RUN(merged_turns_keep_their_own_weights);
    RUN(generation_blocks_say_what_is_trained);
    RUN(an_order_that_a_template_refuses_is_an_error_with_its_words);
    RUN(a_template_that_fails_says_where);
    RUN(calls_are_trained_in_the_form_that_the_template_wants);
    RUN(tools_are_data);
    RUN(a_conversation_has_one_bos_or_none_but_llama_2);
    RUN(a_prompt_for_the_model_has_nothing_to_train);
    RUN(knows_what_ends_a_turn);
    RUN(a_folders_template_is_found_where_it_may_be);
    RUN(a_list_of_templates_has_one_for_tools);
    RUN(what_is_wrong_with_a_template_is_said_when_it_is_opened);
    RUN(threads_share_a_template);
    RUN(a_message_may_be_megabytes_long);
    tokenizer_close(tokens);
    scratch_remove();
    return tap_done();
}
