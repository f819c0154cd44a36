/* test_spec.c - the job request: what is accepted, what is refused and in which words. */
#include <stdbool.h>
#include <string.h>

#include "tests/tap.h"
#include "trainer/spec.h"

#define GOOD "\"training_file\":\"file-1\",\"model\":\"root:gpt2\""
#define NEW  "\"training_file\":\"t\",\"config\":{\"a\":[1,{\"b\":null}]},\"tokenizer\":\"t\""

static int parse(struct spec *s, const char *text, struct err *err)
{
    json_t *request = json_loads(text, JSON_ALLOW_NUL, NULL);

    *err = (struct err){0};
    const int rc = spec_parse(s, request, err);
    json_decref(request);
    return rc;
}

/* Is the request refused, about `field`, with `words` in the sentence? */
static bool refused(const char *text, const char *field, const char *words)
{
    struct spec s;
    struct err err;

    if (parse(&s, text, &err) == 0) {
        printf("# accepted: %s\n", text);
        spec_free(&s);
        return false;
    }
    const bool is_right = err.code == ERR_BAD_SPEC && strcmp(err.param, field) == 0 &&
                          strstr(err.text, words) != NULL && strpbrk(err.text, "\n\r\t") == NULL;
    if (!is_right) {
        printf("# %s: code %d, param \"%s\", text \"%s\"\n", text, (int)err.code, err.param,
               err.text);
    }
    return is_right;
}

static bool accepted(const char *text)
{
    struct spec s;
    struct err err;

    if (parse(&s, text, &err) != 0) {
        printf("# %s: %s\n", text, err.text);
        return false;
    }
    spec_free(&s);
    return true;
}

static void fields_not_given_have_their_defaults(void)
{
    struct spec s;
    struct err err;

    EXPECT(parse(&s, "{" GOOD ",\"seed\":null,\"name\":null}", &err) == 0);
    EXPECT(strcmp(s.training_file, "file-1") == 0 && strcmp(s.model, "root:gpt2") == 0);
    EXPECT(s.name[0] == '\0' && s.config == NULL && s.tokenizer_vocab_size == 0);
    EXPECT(s.seed == 1234 && s.max_steps == 0 && s.warmup_steps == -1);
    EXPECT_NEAR(s.learning_rate, 3e-4, 0.0);
    EXPECT_NEAR(s.min_learning_rate, -1.0, 0.0);
    EXPECT(s.lr_schedule == LR_COSINE && s.wsd_decay_style == WSD_MINUS_SQRT);
    EXPECT(s.precision == PRECISION_F32 && s.recompute == RECOMPUTE_NONE);
    spec_free(&s);
}

static void every_kind_of_field_is_read(void)
{
    struct spec s;
    struct err err;

    EXPECT(parse(&s,
                 "{\"name\":\"\xe5\xad\xa6 \xf0\x9f\x98\x80\",\"config\":{\"model_type\":\"gpt2\"},"
                 "\"tokenizer_vocab_size\":300,\"training_file\":\"root:a/b.txt\",\"max_steps\":50,"
                 "\"learning_rate\":1,\"lr_schedule\":\"wsd\",\"wsd_decay_style\":\"linear\","
                 "\"precision\":\"bf16\",\"recompute\":\"full\",\"dropout\":0.1}",
                 &err) == 0);
    EXPECT(strcmp(s.name, "\xe5\xad\xa6 \xf0\x9f\x98\x80") == 0);
    EXPECT(strcmp(json_string_value(json_object_get(s.config, "model_type")), "gpt2") == 0);
    EXPECT(s.tokenizer_vocab_size == 300 && s.max_steps == 50);
    EXPECT_NEAR(s.learning_rate, 1.0, 0.0);
    EXPECT_NEAR(s.dropout, 0.1, 0.0);
    EXPECT(s.lr_schedule == LR_WSD && s.wsd_decay_style == WSD_LINEAR);
    EXPECT(s.precision == PRECISION_BF16 && s.recompute == RECOMPUTE_FULL);
    spec_free(&s);
}

static void an_unknown_field_is_named_with_the_closest_known_one(void)
{
    EXPECT(refused("{" GOOD ",\"learnin_rate\":1}", "learnin_rate",
                   "did you mean \"learning_rate\"?"));
    EXPECT(refused("{" GOOD ",\"epochs\":1}", "epochs", "\"n_epochs\"?"));
    EXPECT(refused("{" GOOD ",\"steps\":1}", "steps", "\"max_steps\"?"));
    EXPECT(refused("{" GOOD ",\"Seed\":1}", "Seed", "\"seed\"?"));
    EXPECT(refused("{" GOOD ",\"batch_size\":1}", "batch_size", "batch_size\"?"));
    EXPECT(refused("{" GOOD ",\"reward_model\":1}", "reward_model", "no field \"reward_model\""));
    EXPECT(refused("{" GOOD ",\"\":1}", "", "no field \"\""));
    EXPECT(refused("{" GOOD ",\"a\\nb\":1}", "a?b", "no field \"a?b\""));
}

static void a_long_unknown_name_is_cut_on_a_characters_border(void)
{
    struct spec s;
    struct err err;
    char text[400] = "{\"";
    size_t n = 2;

    for (int i = 0; i < 60; i++, n += 3) {
        memcpy(text + n, "\xe5\xad\xa6", 3);
    }
    memcpy(text + n, "\":1}", 5);
    EXPECT(parse(&s, text, &err) != 0);
    EXPECT(strlen(err.param) == 60);
    json_t *shown = json_string(err.param);
    EXPECT(shown != NULL);
    json_decref(shown);
}

static void a_wrong_type_says_what_it_got(void)
{
    EXPECT(refused("{" GOOD ",\"learning_rate\":\"3e-4\"}", "learning_rate", "3e-4"));
    EXPECT(refused("{" GOOD ",\"learning_rate\":true}", "learning_rate", "true"));
    EXPECT(refused("{" GOOD ",\"max_steps\":2.5}", "max_steps", "2.5"));
    EXPECT(refused("{" GOOD ",\"max_steps\":[1]}", "max_steps", "array"));
    EXPECT(refused("{" GOOD ",\"name\":5}", "name", "5"));
    EXPECT(refused("{" GOOD ",\"config\":\"gpt2\"}", "config", "object"));
    EXPECT(refused("{" GOOD ",\"precision\":32}", "precision", "32"));
    EXPECT(refused("[]", "", "object"));
    EXPECT(refused("{}", "training_file", "missing"));
}

static void a_whole_number_may_be_written_with_a_point(void)
{
    struct spec s;
    struct err err;

    EXPECT(parse(&s, "{" GOOD ",\"max_steps\":3.0,\"seed\":1e3}", &err) == 0);
    EXPECT(s.max_steps == 3 && s.seed == 1000);
    spec_free(&s);
    EXPECT(refused("{" GOOD ",\"max_steps\":1e300}", "max_steps", "1000000000"));
    EXPECT(refused("{" GOOD ",\"seed\":-0.5}", "seed", "-0.5"));
}

static void a_value_out_of_range_is_told_the_range(void)
{
    EXPECT(refused("{" GOOD ",\"max_steps\":-1}", "max_steps", "1000000000"));
    EXPECT(refused("{" GOOD ",\"sequence_length\":1}", "sequence_length", "1048576"));
    EXPECT(refused("{" GOOD ",\"sequence_length\":1048577}", "sequence_length", "1048577"));
    EXPECT(refused("{" GOOD ",\"dropout\":0.95}", "dropout", "0.9"));
    EXPECT(refused("{" GOOD ",\"adam_beta1\":1}", "adam_beta1", "0.999999"));
    EXPECT(refused("{" GOOD ",\"adam_eps\":0}", "adam_eps", "1e-30"));
    EXPECT(refused("{" GOOD ",\"warmup_steps\":-2}", "warmup_steps", "-2"));
    EXPECT(refused("{" GOOD ",\"lr_schedule\":\"step\"}", "lr_schedule",
                   "constant linear cosine inverse_sqrt wsd"));
    EXPECT(refused("{" GOOD ",\"lr_schedule\":\"cosine|wsd\"}", "lr_schedule", "one of"));
    EXPECT(refused("{" GOOD ",\"lr_schedule\":\"cos\"}", "lr_schedule", "one of"));
    EXPECT(refused("{" GOOD ",\"lr_schedule\":\"\"}", "lr_schedule", "one of"));
    EXPECT(accepted("{" GOOD ",\"sequence_length\":2,\"max_steps\":1000000000,\"dropout\":0}"));
}

static void weights_and_tokenizer_have_one_source(void)
{
    const char *text = "\"training_file\":\"t\"";
    char request[400];
    const struct {
        const char *more, *field, *words;
    } cases[] = {
        {"", "model", "missing"},
        {",\"model\":\"m\",\"config\":{}", "config", "not both"},
        {",\"config\":{}", "tokenizer", "tokenizer_vocab_size"},
        {",\"config\":{},\"tokenizer\":\"t\",\"tokenizer_vocab_size\":300", "tokenizer_vocab_size",
         "not both"},
        {",\"model\":\"m\",\"tokenizer_vocab_size\":300", "tokenizer_vocab_size", "weights"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)snprintf(request, sizeof request, "{%s%s}", text, cases[i].more);
        EXPECT(refused(request, cases[i].field, cases[i].words));
    }
    EXPECT(refused("{\"model\":\"m\"}", "training_file", "missing"));
    EXPECT(refused("{\"model\":\"m\",\"training_file\":\"\"}", "training_file", "missing"));
    EXPECT(accepted("{\"training_file\":\"t\",\"config\":{},\"tokenizer\":\"t\"}"));
    EXPECT(accepted("{\"training_file\":\"t\",\"config\":{},\"tokenizer_vocab_size\":258}"));
    EXPECT(accepted("{\"training_file\":\"t\",\"model\":\"m\",\"tokenizer\":\"t\"}"));
}

static void fields_that_contradict_each_other_are_refused(void)
{
    EXPECT(refused("{" GOOD ",\"micro_batch_size\":3}", "micro_batch_size", "8 is not a multiple"));
    EXPECT(refused("{" GOOD ",\"max_steps\":5,\"n_epochs\":1}", "n_epochs", "not both"));
    EXPECT(refused("{" GOOD ",\"batch_size_schedule\":\"0:4 1K:8\",\"global_batch_size\":4}",
                   "global_batch_size", "leave global_batch_size 4 out"));
    EXPECT(refused("{" GOOD ",\"batch_size_schedule\":\"5:4\"}", "batch_size_schedule",
                   "begins at 5"));
    EXPECT(refused("{" GOOD ",\"learning_rate\":1e-3,\"min_learning_rate\":2e-3}",
                   "min_learning_rate", "0.002 is above learning_rate 0.001"));
    EXPECT(refused("{" GOOD ",\"max_steps\":5,\"warmup_steps\":6}", "warmup_steps", "6 is above"));
    EXPECT(refused("{" GOOD ",\"max_steps\":5,\"warmup_steps\":3,\"wsd_decay_steps\":3,"
                   "\"lr_schedule\":\"wsd\"}",
                   "wsd_decay_steps", "more than max_steps 5"));
    EXPECT(accepted("{" GOOD ",\"micro_batch_size\":4,\"global_batch_size\":12}"));
    EXPECT(accepted("{" GOOD ",\"max_steps\":5,\"warmup_steps\":5}"));
    EXPECT(accepted("{" GOOD ",\"learning_rate\":1e-3,\"min_learning_rate\":1e-3}"));
    EXPECT(accepted("{" GOOD ",\"warmup_steps\":100000,\"n_epochs\":0.5}"));
}

static void text_is_utf8_without_control_characters(void)
{
    EXPECT(refused("{" GOOD ",\"name\":\"a\\u0000b\"}", "name", "byte 2"));
    EXPECT(refused("{" GOOD ",\"name\":\"a\\nb\"}", "name", "control"));
    EXPECT(refused("{" GOOD ",\"name\":\"abc\\u007f\"}", "name", "byte 4"));
    EXPECT(refused("{" GOOD ",\"name\":\"\\u0085\"}", "name", "byte 1"));
    EXPECT(accepted("{" GOOD ",\"name\":\"--flag; $(id) <b>\"}"));
    EXPECT(accepted("{" GOOD ",\"chat_template\":\"{% if a %}\\n\\tb{% endif %}\\r\\n\"}"));
    EXPECT(refused("{" GOOD ",\"chat_template\":\"a\\u0000b\"}", "chat_template", "byte 2"));

    static const char *const damaged[] = {
        "\xff",       "\xc0\xaf",     "\xed\xa0\x80",    "\xf4\x90\x80\x80",
        "ab\xe5\xad", "\xe0\x80\x80", "\xf0\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        struct spec s;
        struct err err;
        json_t *request = json_pack("{s:s, s:s, s:o}", "training_file", "t", "model", "m", "name",
                                    json_string_nocheck(damaged[i]));
        EXPECT(spec_parse(&s, request, &err) == (int)ERR_BAD_SPEC &&
               strcmp(err.param, "name") == 0);
        json_decref(request);
    }
}

static void text_and_config_have_a_longest_size(void)
{
    char name[160] = "", request[400];
    struct spec s;
    struct err err;

    memset(name, 'x', 128);
    (void)snprintf(request, sizeof request, "{" GOOD ",\"name\":\"%s\"}", name);
    EXPECT(parse(&s, request, &err) == 0 && strlen(s.name) == 128);
    memset(name, 'x', 129);
    (void)snprintf(request, sizeof request, "{" GOOD ",\"name\":\"%s\"}", name);
    EXPECT(refused(request, "name", "129 bytes, at most 128"));

    json_t *list = json_array();
    for (int i = 0; i < 40000; i++) {
        json_array_append_new(list, json_integer(1));
    }
    json_t *large = json_pack("{s:s, s:{s:o}, s:i}", "training_file", "t", "config", "x", list,
                              "tokenizer_vocab_size", 300);
    EXPECT(spec_parse(&s, large, &err) == (int)ERR_BAD_SPEC && strcmp(err.param, "config") == 0);
    json_decref(large);
}

static void the_config_is_a_copy(void)
{
    struct spec s;
    struct err err;
    json_t *request =
        json_pack("{s:s, s:{s:i}, s:s}", "training_file", "t", "config", "a", 1, "tokenizer", "t");

    EXPECT(spec_parse(&s, request, &err) == 0);
    json_object_set_new(json_object_get(request, "config"), "a", json_integer(2));
    EXPECT(json_integer_value(json_object_get(s.config, "a")) == 1);
    json_decref(request);
    spec_free(&s);
}

static void what_is_written_reads_back_equal(void)
{
    static const char *const texts[] = {
        "{" GOOD "}",
        "{" GOOD ",\"max_steps\":7,\"learning_rate\":0.1,\"min_learning_rate\":0,\"threads\":3}",
        "{" NEW ",\"lr_schedule\":\"linear\",\"n_epochs\":0.25}"};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct spec s, again;
        struct err err;
        EXPECT(parse(&s, texts[i], &err) == 0);
        json_t *written = spec_json(&s);
        EXPECT(spec_parse(&again, written, &err) == 0);
        json_t *rewritten = spec_json(&again);
        EXPECT(json_object_size(written) > 30 && json_equal(written, rewritten));
        json_decref(written);
        json_decref(rewritten);
        spec_free(&s);
        spec_free(&again);
    }
}

static void the_schema_describes_every_field(void)
{
    struct spec s;
    struct err err;
    json_t *schema = spec_schema();

    EXPECT(parse(&s, "{" GOOD "}", &err) == 0);
    json_t *all = spec_json(&s);
    EXPECT(json_object_size(schema) == json_object_size(all));
    const char *name;
    json_t *row;
    json_object_foreach(schema, name, row)
    {
        EXPECT(json_object_get(all, name) != NULL);
        EXPECT(json_is_string(json_object_get(row, "type")));
        EXPECT(json_string_length(json_object_get(row, "description")) > 0);
        EXPECT(json_object_get(row, "default") != NULL);
    }
    const json_t *steps = json_object_get(schema, "max_steps");
    EXPECT(json_is_null(json_object_get(steps, "default")));
    EXPECT(json_integer_value(json_object_get(steps, "minimum")) == 1);
    const json_t *schedule = json_object_get(schema, "lr_schedule");
    EXPECT(json_array_size(json_object_get(schedule, "enum")) == 5);
    EXPECT(strcmp(json_string_value(json_object_get(schedule, "default")), "cosine") == 0);
    json_decref(schema);
    json_decref(all);
    spec_free(&s);
}

int main(void)
{
    RUN(fields_not_given_have_their_defaults);
    RUN(every_kind_of_field_is_read);
    RUN(an_unknown_field_is_named_with_the_closest_known_one);
    RUN(a_long_unknown_name_is_cut_on_a_characters_border);
    RUN(a_wrong_type_says_what_it_got);
    RUN(a_whole_number_may_be_written_with_a_point);
    RUN(a_value_out_of_range_is_told_the_range);
    RUN(weights_and_tokenizer_have_one_source);
    RUN(fields_that_contradict_each_other_are_refused);
    RUN(text_is_utf8_without_control_characters);
    RUN(text_and_config_have_a_longest_size);
    RUN(the_config_is_a_copy);
    RUN(what_is_written_reads_back_equal);
    RUN(the_schema_describes_every_field);
    return tap_done();
}
