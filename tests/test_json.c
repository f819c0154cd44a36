/* test_json.c - damaged JSON is refused with a place, fields of the wrong type with their name. */
#include <stdint.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/base/json.h"

static int parse(json_t **out, const char *text, struct err *err)
{
    *err = (struct err){0};
    return json_parse_text(out, text, strlen(text), "c.json", err);
}

static void damaged_texts_are_refused_with_their_place(void)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "c.json is empty"},
        {" ", "c.json line 1 column 1"},
        {"{\n  \"a\": 1,\n  \"b\" 2\n}", "c.json line 3 column 7"},
        {"{\"a\":1", "line 1"},
        {"{\"a\":1,\"a\":2}", "duplicate"},
        {"{\"a\":1}}", "end of file expected"},
        {"{\"a\":\"\xFF\"}", "c.json line 1"},
        {"{\"a\":01}", "line 1"},
        {"{\"a\":NaN}", "line 1"},
        {"{\"a\":1e999}", "real number overflow"},
        {"{'a':1}", "line 1"},
        {"[1,2,]", "line 1"},
        {"nul", "line 1"},
        {"{\"a\":\"x\ny\"}", "line 1"},
        {"\"unfinished \\", "line 1"},
        {"-", "line 1"},
    };
    json_t *out = NULL;
    struct err err;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT(parse(&out, bad[i].text, &err) == ERR_BAD_FILE && out == NULL);
        if (strstr(err.text, bad[i].says) == NULL || strchr(err.text, '\n') != NULL) {
            EXPECT_UNREACHED("the error says what is wrong");
            printf("# %s -> %s\n", bad[i].text, err.text);
        }
    }
}

static void nesting_is_capped_outside_of_strings(void)
{
    char text[4 * JSON_DEPTH_MAX + 8];
    json_t *out = NULL;
    struct err err;

    for (int extra = 0; extra < 2; extra++) {
        const size_t depth = (size_t)JSON_DEPTH_MAX + (size_t)extra;
        memset(text, '[', depth);
        memset(&text[depth], ']', depth);
        text[2 * depth] = '\0';
        EXPECT(parse(&out, text, &err) == (extra == 0 ? 0 : ERR_BAD_FILE));
        json_decref(out);
    }
    EXPECT(strstr(err.text, "line 1 column 65: nested too deep") != NULL);
    EXPECT(
        parse(&out,
              "[\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"]",
              &err) == 0);
    json_decref(out);
}

static void integers_beyond_64_bits_become_reals(void)
{
    json_t *out = NULL;
    struct err err;

    EXPECT(parse(&out,
                 "{\"a\": 1000000000000000019884624838656, \"b\": [9223372036854775807, "
                 "-9223372036854775808, "
                 "9223372036854775808, -9223372036854775809, 1234567890123456789012],"
                 "\"c\": \"1000000000000000019884624838656\", \"d\": 0.1234567890123456789012}",
                 &err) == 0);
    EXPECT_NEAR(json_real_value(json_object_get(out, "a")), 1e30, 1e-14);
    const json_t *b = json_object_get(out, "b");
    EXPECT(json_integer_value(json_array_get(b, 0)) == INT64_MAX);
    EXPECT(json_integer_value(json_array_get(b, 1)) == INT64_MIN);
    EXPECT_NEAR(json_real_value(json_array_get(b, 2)), 9223372036854775808.0, 1e-14);
    EXPECT_NEAR(json_real_value(json_array_get(b, 3)), -9223372036854775808.0, 1e-14);
    EXPECT_NEAR(json_real_value(json_array_get(b, 4)), 1234567890123456789012.0, 1e-14);
    EXPECT(strcmp(json_string_value(json_object_get(out, "c")),
                  "1000000000000000019884624838656") == 0);
    EXPECT_NEAR(json_real_value(json_object_get(out, "d")), 0.1234567890123456789, 1e-16);
    json_decref(out);
}

static const char object[] =
    "{\"n\":7,\"r\":2.5,\"whole\":3.0,\"s\":\"text\",\"t\":true,\"z\":null,\"o\":{},\"a\":[1],"
    "\"long\":\"0123456789012345678901234567890123456789\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\","
    "\"lines\":\"a\\nb\",\"neg\":-5,\"huge\":100000000000000000000}";

static void fields_of_the_right_type_are_read(void)
{
    json_t *out = NULL;
    struct err err;

    CHECK(parse(&out, object, &err) == 0, "%s", err.text);
    const struct fields f = {out, "c.json", ERR_BAD_FILE};
    const char *text = NULL;
    const json_t *value = NULL;
    int64_t n = 0;
    double r = 0;
    bool t = false;
    EXPECT(fields_integer(&f, "n", FIELD_REQUIRED, 1, 7, &n, &err) == 0 && n == 7);
    EXPECT(fields_integer(&f, "whole", FIELD_REQUIRED, 1, 7, &n, &err) == 0 && n == 3);
    EXPECT(fields_number(&f, "r", FIELD_REQUIRED, 0, 3, &r, &err) == 0 && r == 2.5);
    EXPECT(fields_number(&f, "n", FIELD_REQUIRED, 0, 9, &r, &err) == 0 && r == 7.0);
    EXPECT(fields_bool(&f, "t", FIELD_REQUIRED, &t, &err) == 0 && t);
    EXPECT(fields_text(&f, "s", FIELD_REQUIRED, &text, &err) == 0 && strcmp(text, "text") == 0);
    EXPECT(fields_object(&f, "o", FIELD_REQUIRED, &value, &err) == 0 && json_is_object(value));
    EXPECT(fields_array(&f, "a", FIELD_REQUIRED, &value, &err) == 0 && json_array_size(value) == 1);
    n = 42;
    EXPECT(fields_integer(&f, "absent", FIELD_OPTIONAL, 0, 1, &n, &err) == 0 && n == 42);
    EXPECT(fields_integer(&f, "z", FIELD_OPTIONAL, 0, 1, &n, &err) == 0 && n == 42);
    json_decref(out);
}

static void fields_of_the_wrong_type_are_named(void)
{
    json_t *out = NULL;
    struct err err;
    const char *text = NULL;
    const json_t *value = NULL;
    int64_t n = 1;
    double r = 1;
    bool t = false;

    CHECK(parse(&out, object, &err) == 0, "%s", err.text);
    const struct fields f = {out, "c.json", ERR_BAD_FILE}, spec = {out, "", ERR_BAD_SPEC};
    EXPECT(fields_integer(&f, "n", FIELD_REQUIRED, 8, 9, &n, &err) == ERR_BAD_FILE);
    EXPECT(strcmp(err.text, "c.json: n must be an integer from 8 to 9, not 7") == 0);
    EXPECT(strcmp(err.param, "n") == 0);
    EXPECT(fields_integer(&f, "n", FIELD_REQUIRED, 1, 6, &n, &err) == ERR_BAD_FILE);
    EXPECT(fields_integer(&f, "r", FIELD_REQUIRED, 1, INT64_MAX, &n, &err) == ERR_BAD_FILE);
    EXPECT(strcmp(err.text, "c.json: r must be an integer of at least 1, not 2.5") == 0);
    EXPECT(fields_integer(&f, "huge", FIELD_REQUIRED, 1, INT64_MAX, &n, &err) == ERR_BAD_FILE);
    EXPECT(fields_integer(&spec, "long", FIELD_REQUIRED, INT64_MIN, 5, &n, &err) == ERR_BAD_SPEC);
    EXPECT(strncmp(err.text, "long must be an integer of at most 5, not \"0123456789", 50) == 0);
    EXPECT(strstr(err.text, "...\"") != NULL);
    EXPECT(fields_text(&f, "n", FIELD_REQUIRED, &text, &err) == ERR_BAD_FILE && text == NULL);
    EXPECT(strcmp(err.text, "c.json: n must be a string, not 7") == 0);
    EXPECT(fields_text(&f, "z", FIELD_REQUIRED, &text, &err) == ERR_BAD_FILE);
    EXPECT(strcmp(err.text, "c.json: z is missing; it must be a string") == 0);
    EXPECT(fields_bool(&f, "lines", FIELD_REQUIRED, &t, &err) == ERR_BAD_FILE);
    EXPECT(strcmp(err.text, "c.json: lines must be true or false, not \"a b\"") == 0);
    EXPECT(fields_bool(&f, "o", FIELD_REQUIRED, &t, &err) == ERR_BAD_FILE &&
           strstr(err.text, "an object"));
    EXPECT(fields_number(&f, "neg", FIELD_REQUIRED, 0, 1, &r, &err) == ERR_BAD_FILE &&
           strstr(err.text, "-5"));
    EXPECT(fields_number(&f, "t", FIELD_REQUIRED, 0, 1, &r, &err) == ERR_BAD_FILE &&
           strstr(err.text, "true"));
    EXPECT(fields_object(&f, "a", FIELD_REQUIRED, &value, &err) == ERR_BAD_FILE);
    EXPECT(fields_array(&f, "o", FIELD_OPTIONAL, &value, &err) == ERR_BAD_FILE && value == NULL);
    EXPECT(fields_integer(&f, "absent", FIELD_REQUIRED, INT64_MIN, INT64_MAX, &n, &err) ==
           ERR_BAD_FILE);
    EXPECT(strcmp(err.text, "c.json: absent is missing; it must be an integer") == 0);
    EXPECT(n == 1 && r == 1 && !t);
    json_decref(out);
}

static void files_are_capped_and_come_back_equal(void)
{
    json_t *out = NULL, *again = NULL;
    struct err err;

    CHECK(parse(&out, object, &err) == 0, "%s", err.text);
    EXPECT(json_write_file(in_scratch("o.json"), out, &err) == 0);
    EXPECT(json_parse_file(&again, in_scratch("o.json"), 10000, &err) == 0 &&
           json_equal(out, again));
    json_decref(again);
    EXPECT(json_parse_file(&again, in_scratch("o.json"), 10, &err) == ERR_TOO_LARGE &&
           again == NULL);
    EXPECT(json_parse_file(&again, in_scratch("none.json"), 10, &err) == ERR_NOT_FOUND);
    put_text(in_scratch("mark.json"), "\xef\xbb\xbf{\"a\":1}\r\n");
    EXPECT(json_parse_file(&again, in_scratch("mark.json"), 100, &err) == 0 &&
           json_integer_value(json_object_get(again, "a")) == 1);
    json_decref(again);
    put_text(in_scratch("mark.json"), "\xef\xbb\xbf");
    EXPECT(json_parse_file(&again, in_scratch("mark.json"), 100, &err) == ERR_BAD_FILE);
    int root = -1;
    CHECK(io_open_dir(&root, scratch, &err) == 0, "%s", err.text);
    EXPECT(json_parse_beneath(&again, root, "o.json", 10000, &err) == 0 && json_equal(out, again));
    json_decref(again);
    EXPECT(json_parse_beneath(&again, root, "../o.json", 10000, &err) == ERR_BAD_FILE &&
           again == NULL);
    (void)close(root);
    json_decref(out);
}

int main(void)
{
    scratch_make();
    RUN(damaged_texts_are_refused_with_their_place);
    RUN(nesting_is_capped_outside_of_strings);
    RUN(integers_beyond_64_bits_become_reals);
    RUN(fields_of_the_right_type_are_read);
    RUN(fields_of_the_wrong_type_are_named);
    RUN(files_are_capped_and_come_back_equal);
    scratch_remove();
    return tap_done();
}
