/* test_faults.c - everything that people's training files have wrong, and what the report says of it. */
#include <stdlib.h>

#include "tests/examples.h"

#define GOOD                                                                                    \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":" \
    "\"a1\"}]}"
#define OTHER                                                                                   \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":" \
    "\"a2\"}]}"
#define M(messages) "{\"messages\":[" messages "]}"
#define USER        "{\"role\":\"user\",\"content\":\"q3\"}"
#define REPLY       "{\"role\":\"assistant\",\"content\":\"a3\"}"

/* One row, what is wrong with it, and where. */
struct fault {
    const char *row, *reason, *where;
};

/* clang-format off */
static const struct fault faults[] = {
    /* Syntax. */
    {"{\"text\": \"he said \"x\" once\"}",          "broken_json",     "column 20: a comma or a closing bracket must stand here; is a quote"},
    {"{\"text\": \"a\",}",                          "broken_json",     "column 14: there is a comma before the closing bracket"},
    {"{\"text\": [1,2,]}",                          "broken_json",     "column 15: there is a comma before the closing bracket"},
    {"{'text': 'a'}",                               "broken_json",     "column 2: strings and keys take double quotes"},
    {"{\"text\": 'a'}",                             "broken_json",     "column 10: strings and keys take double quotes"},
    {"{\"text\": True}",                            "broken_json",     "column 10: Python's True"},
    {"{\"text\": None}",                            "broken_json",     "column 10: Python's True"},
    {"{\"text\": \"a\", \"x\": NaN}",               "broken_json",     "column 20: JSON has neither NaN"},
    {"{\"text\": \"a\", \"x\": -Infinity}",         "broken_json",     "column 20: JSON has neither NaN"},
    {"{\"text\": \"a\", \"x\": 1e999}",             "broken_json",     "column 20: a number is too large"},
    {"{\"text\": \"a\", \"x\": 01}",                "broken_json",     "column 20"},
    {"{\"text\" \"a\"}",                            "broken_json",     "column 9: a colon must stand here"},
    {"{\"text\": \"a\" \"b\": 1}",                  "broken_json",     "column 14: a comma or a closing bracket"},
    {"{\"text\": \"a\" \"a key with \\\"quotes\\\" and \\\\\": 1}", "broken_json", "column 14: a comma or a closing bracket"},
    {"{\"text\": }",                                "broken_json",     "column 10: a value must stand here"},
    {"{\"text\": \"a\", b: 1}",                     "broken_json",     "column 15: a key in double quotes must stand here"},
    {"{\"text\": \"\\x41\"}",                       "broken_json",     "column 11: a backslash"},
    {"{\"text\": \"C:\\new\\qfolder\"}",            "broken_json",     "column 17: a backslash"},
    {"{\"text\": \"a\tb\"}",                        "broken_json",     "column 12: a tab or another control character"},
    {"{\"text\": \"\xE5\x8D\x83\", \"x\": y}",      "broken_json",     "column 20: a value must stand here"},
    {"{\"text\": \"a\"} // why",                    "several_objects", "column 15"},
    /* Characters. */
    {"{\"text\": \"\\u0000\"}",                     "nul_character",   "column 10"},
    {"{\"\\u0000\": 1}",                            "nul_character",   "column 2"},
    {"{\"text\": \"\\ud800\"}",                     "lone_surrogate",  "column 10"},
    {"{\"text\": \"\\udc00\\ud800\"}",              "lone_surrogate",  "column 10"},
    {"{\"text\": \"\\ud800\\u0041\"}",              "lone_surrogate",  "column 10"},
    {"{\"text\": \"a\xFF\"}",                       "not_utf8",        "byte 12"},
    {"{\"text\": \"\xE5\x8D\x83\xC4\xE3\"}",        "not_utf8",        "byte 14"},
    {"{\"text\": \"\xED\xA0\x80\"}",                "not_utf8",        "byte 11"},
    {"{\"text\": \"\xC0\x80\"}",                    "not_utf8",        "byte 11"},
    {"{\"\xFF\": 1}",                               "not_utf8",        "byte 3"},
    /* Keys. */
    {"{\"text\":\"first\",\"text\":\"second\"}",    "duplicate_keys",  "column 17"},
    {M("{\"role\":\"user\",\"role\":\"assistant\",\"content\":\"a\"}"), "duplicate_keys", "column 29"},
    {"{\"text\":\"a\",\"meta\":{\"b\":[{\"c\":1,\"c\":2}]}}", "duplicate_keys", "column 33"},
    /* Columns. */
    {"{\"foo\": \"a\", \"bar\": \"b\"}",            "unknown_columns", ""},
    {"{}",                                          "unknown_columns", ""},
    {"{\"data\": [{\"text\": \"a\"}]}",             "nested_examples", ""},
    {"{\"instruction\": \"a\", \"instances\": [{\"input\": \"\", \"output\": \"b\"}]}", "nested_examples", ""},
    {"{\"instruction\": \"a\"}",                    "missing_field",   "output"},
    {"{\"instruction\": \"a\", \"output\": null}",  "missing_field",   "output"},
    {"{\"chosen\": \"a\"}",                         "missing_field",   "rejected"},
    {"{\"chosen\": \"a\", \"rejected\": \"b\"}",    "missing_field",   "prompt"},
    {"{\"prompt\": \"a\"}",                         "missing_field",   "completion"},
    {"{\"question\": \"a\"}",                       "missing_field",   ""},
    {"{\"messages\": null}",                        "missing_field",   "messages"},
    {"{\"text\": null}",                            "missing_field",   "text"},
    {"{\"text\": 7}",                               "wrong_type",      "text must be a string"},
    {"{\"text\": [\"a\"]}",                         "wrong_type",      "text must be a string"},
    {"{\"instruction\": \"a\", \"output\": 42}",    "wrong_type",      "output must be a string"},
    {"{\"instruction\": 1, \"output\": \"a\"}",     "wrong_type",      "instruction must be a string"},
    {"{\"instruction\": \"a\", \"output\": \"b\", \"system\": 1}",          "wrong_type", "system must be a string"},
    {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"c\"]]}", "wrong_type", "history[0] must be a pair"},
    {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": \"c\"}",     "wrong_type", "history must be a list"},
    {"{\"messages\": \"hi\"}",                      "wrong_type",      "messages must be a list of messages"},
    {"{\"messages\": [\"hi\"]}",                    "wrong_type",      "messages[0] must be an object"},
    {"{\"prompt\": 1, \"completion\": \"a\"}",      "wrong_type",      "prompt must be a list"},
    {"7",                                           "not_an_object",   ""},
    {"\"a string\"",                                "not_an_object",   ""},
    {"[]",                                          "not_an_object",   ""},
    {"[1, 2]",                                      "not_an_object",   ""},
    {"null",                                        "not_an_object",   ""},
    /* Messages. */
    {M(USER ",{\"role\":\"wizard\",\"content\":\"a\"}"),            "wrong_role",    "messages[1].role"},
    {M("{\"from\":\"narrator\",\"value\":\"a\"}"),                  "wrong_role",    "messages[0].role"},
    {M(USER ",{\"role\":\"\",\"content\":\"a\"}"),                  "wrong_role",    "messages[1].role"},
    {M(USER ",{\"content\":\"a\"}"),                                "missing_field", "messages[1].role"},
    {M(USER ",{\"role\":null,\"content\":\"a\"}"),                  "missing_field", "messages[1].role"},
    {M(USER ",{\"role\":3,\"content\":\"a\"}"),                     "wrong_type",    "messages[1].role must be a string"},
    {M(USER ",{\"role\":\"assistant\"}"),                           "missing_field", "messages[1].content"},
    {M(USER ",{\"role\":\"assistant\",\"content\":null}"),          "missing_field", "messages[1].content"},
    {M(USER ",{\"role\":\"assistant\",\"content\":42}"),            "wrong_type",    "messages[1].content must be a string"},
    {M(USER ",{\"role\":\"assistant\",\"content\":true}"),          "wrong_type",    "messages[1].content must be a string"},
    {M(USER ",{\"role\":\"assistant\",\"content\":{\"a\":1}}"),     "wrong_type",    "messages[1].content must be a string"},
    {M("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}," REPLY),
                                                                    "not_text",      "messages[0].content[1]"},
    {M("{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}," REPLY), "not_text", "messages[0].content[0]"},
    {M("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}," REPLY),        "not_text", "messages[0].content[0]"},
    {M("{\"role\":\"user\",\"content\":[7]}," REPLY),                          "not_text", "messages[0].content[0]"},
    {M(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":2}"),       "wrong_weight", "messages[1].weight"},
    {M(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0.5}"),     "wrong_weight", "messages[1].weight"},
    {M(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":-1}"),      "wrong_weight", "messages[1].weight"},
    {M(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":\"1\"}"),   "wrong_weight", "messages[1].weight"},
    {M(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"name\":1}"),         "wrong_type", "messages[1].name"},
    {M(USER ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]}"), "wrong_tools", "messages[1].tool_calls"},
    {M(USER ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":\"x\"}"), "wrong_tools", "messages[1].tool_calls"},
    {M(USER ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":7}}]}"),
                                                                    "wrong_tools",   "messages[1].tool_calls"},
    {"{\"messages\":[" USER "," REPLY "],\"tools\":\"not a list\"}",  "wrong_tools",   "tools"},
    {"{\"messages\":[" USER "," REPLY "],\"tools\":[{\"x\":1}]}",     "wrong_tools",   "tools[0]"},
    {"{\"messages\":[" USER "," REPLY "],\"tools\":{}}",              "wrong_tools",   "tools"},
    /* What teaches nothing. */
    {M(""),                                                         "no_messages",   ""},
    {M(USER),                                                       "no_assistant",  ""},
    {M("{\"role\":\"system\",\"content\":\"a\"}," USER),            "no_assistant",  ""},
    {M(USER ",{\"role\":\"assistant\",\"content\":\"\"}"),          "all_masked",    ""},
    {M(USER ",{\"role\":\"assistant\",\"content\":\" \\n\"}"),      "all_masked",    ""},
    {M(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0}"), "all_masked", ""},
    {M(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0.0}," USER ",{\"role\":\"assistant\",\"content\":\"\"}"),
                                                                    "all_masked",    ""},
    {"{\"instruction\": \"a\", \"output\": \"\"}",                  "all_masked",    ""},
    {"{\"prompt\": \"a\", \"completion\": \"\"}",                   "all_masked",    ""},
    {"{\"text\": \"\"}",                                            "empty_text",    ""},
    {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}", "no_difference", ""},
};
/* clang-format on */

/* GOOD, the row, OTHER: three lines, or three elements with a line each, and a column further. */
static json_t *report_among_others(const struct fault *f, bool array, struct err *err)
{
    char text[2048];

    (void)snprintf(text, sizeof text, array ? "[%s,\n%s\n,%s]\n" : "%s\n%s\n%s\n", GOOD, f->row,
                   OTHER);
    return report_of(text, strlen(text), NULL, err);
}

static bool is_as_told(const struct fault *f, bool array, const json_t *report,
                       const struct err *err)
{
    const json_t *reason = reason_of(report, f->reason);
    const char *where = word_of(reason, "where");
    const bool skipped = strcmp(word_of(reason, "action"), "skip") == 0;
    const bool counted = number_of(report, "examples") == 3 && number_of(report, "usable") == 2 &&
                         number_of(report, "skipped") == 1;
    const char *prefix = "element 2";

    if (array && strncmp(where, prefix, strlen(prefix)) == 0) {
        where += strlen(prefix);
        where += strncmp(where, ", ", 2) == 0 ? 2 : 0;
    }
    return has_only(report, f->reason, 1) && counted &&
           strncmp(where, f->where, strlen(f->where)) == 0 &&
           json_integer_value(json_array_get(json_object_get(reason, "first_lines"), 0)) == 2 &&
           err->code == (skipped ? ERR_NONE : ERR_BAD_TRAINING_FILE);
}

static void names_each_fault_by_reason_line_and_place(void)
{
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct err err;
        json_t *report = report_among_others(&faults[i], false, &err);
        const bool told = is_as_told(&faults[i], false, report, &err);
        EXPECT(told);
        if (!told) {
            show_report(faults[i].row, report, &err);
        }
        json_decref(report);
    }
}

/* But those that lose the end of the element, which an array can't know. */
static void names_each_fault_in_an_array_too(void)
{
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct err err;
        if (strcmp(faults[i].reason, "several_objects") == 0) {
            continue;
        }
        json_t *report = report_among_others(&faults[i], true, &err);
        const bool told = is_as_told(&faults[i], true, report, &err);
        EXPECT(told);
        if (!told) {
            show_report(faults[i].row, report, &err);
        }
        json_decref(report);
    }
}

static void never_repeats_the_text_of_a_file(void)
{
    static const char *const rows[] = {
        "{\"text\": \"SECRET\" \"SECRET\"}",
        "{\"text\": SECRET}",
        "{\"SECRET\": 1, \"SECRET\": 2}",
        "{\"messages\":[{\"role\":\"SECRET\",\"content\":\"SECRET\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"SECRET\"}]}]}",
        "{\"SECRET\":1}SECRET",
        "{\"SECRET\": \"\\uD800 SECRET\"}",
        "{\"instruction\":\"SECRET\"}",
        "{\"text\": \"SECRET\\x\"}"};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err;
        json_t *report = report_of_text(rows[i], &err);
        char *text = json_dumps(report, 0);
        EXPECT(err.code == ERR_BAD_TRAINING_FILE);
        EXPECT(strstr(text, "SECRET") == NULL && strstr(err.text, "SECRET") == NULL);
        free(text);
        json_decref(report);
    }
}

static void broken_arrays_say_what_is_missing(void)
{
    /* clang-format off */
    static const struct { const char *text, *where; int line; int usable; } cases[] = {
        {"[" GOOD ",\n" OTHER,               "the array is not closed",                  2, 2},
        {"[" GOOD "\n" OTHER "]",            "a comma is missing between two elements",  2, 2},
        {"[" GOOD ",\n" OTHER ",\n]",        "there is a comma before the end",          3, 2},
        {"[" GOOD ",,\n" OTHER "]",          "there is a comma too many",                1, 2},
        {"[" GOOD "]\n{" OTHER "}",          "there is more after the end of the array", 2, 1},
        {"[" GOOD ",\n{\"text\": \"a\", ",   "element 2, column 15: the text ends too early", 2, 1},
        {"[" GOOD ",\n{\"text\": \"a",       "element 2, column 12: the text ends inside a string", 2, 1},
        {"[" GOOD ",\n{\"text\": \"a\n}\n,\n" OTHER "]", "element 2, column 12: the line ends inside a string", 2, 2},
        {"[" GOOD ",\n}\n," OTHER "]",       "element 2, column 1",                      2, 2},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err;
        json_t *report = report_of_text(cases[i].text, &err);
        const json_t *reason = reason_of(report, "broken_json");
        const json_t *line = json_array_get(json_object_get(reason, "first_lines"), 0);
        EXPECT(err.code == ERR_BAD_TRAINING_FILE && has_only(report, "broken_json", 1));
        EXPECT(strncmp(word_of(reason, "where"), cases[i].where, strlen(cases[i].where)) == 0);
        EXPECT(json_integer_value(line) == cases[i].line);
        EXPECT(number_of(report, "usable") == cases[i].usable);
        if (reason == NULL || number_of(report, "usable") != cases[i].usable) {
            show_report(cases[i].text, report, &err);
        }
        json_decref(report);
    }
}

static void marks_line_ends_and_blank_lines_are_counted_and_dropped(void)
{
    /* clang-format off */
    static const struct { const char *text, *reason; int count; int lines; } cases[] = {
        {"\xEF\xBB\xBF" GOOD "\n" OTHER "\n",              "byte_order_mark",  1, 2},
        {"\xEF\xBB\xBF[" GOOD ",\n" OTHER "]\n",           "byte_order_mark",  1, 2},
        {GOOD "\r\n" OTHER "\r\n",                         "crlf",             2, 2},
        {"[" GOOD ",\r\n" OTHER "\r\n]\r\n",               "crlf",             3, 3},
        {"\n\n" GOOD "\n  \t\n" OTHER "\n\n",              "blank_lines",      4, 6},
        {GOOD "\n" OTHER,                                  "no_final_newline", 1, 2},
        {"  " GOOD "  \n\t" OTHER "\n",                    NULL,               0, 2},
        {"\n [\n" GOOD "\n,\n" OTHER "\n]",                NULL,               0, 6},
        {"[" GOOD "," OTHER "]",                           NULL,               0, 1},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err;
        json_t *report = report_of_text(cases[i].text, &err);
        EXPECT(err.code == ERR_NONE && number_of(report, "usable") == 2);
        EXPECT(number_of(report, "lines") == cases[i].lines);
        EXPECT(cases[i].reason != NULL ? has_only(report, cases[i].reason, cases[i].count)
                                       : json_array_size(json_object_get(report, "reasons")) == 0);
        if (number_of(report, "lines") != cases[i].lines || err.code != ERR_NONE) {
            show_report(cases[i].text, report, &err);
        }
        json_decref(report);
    }
}

static void other_faults_of_whole_files_have_their_sentence(void)
{
    /* clang-format off */
    static const struct { const char *bytes; size_t n; const char *says; } cases[] = {
        {"", 0,                                       "train is empty"},
        {" \n\t\r\n", 5,                              "train is empty: it has nothing but white space"},
        {"\xEF\xBB\xBF", 3,                           "train is empty"},
        {"[]", 2,                                     "train has no usable example of 0"},
        {" [ \n ] ", 7,                               "train has no usable example of 0"},
        {"\xFF\xFE{\0\"\0", 6,                        "UTF-16, not UTF-8; convert it first: iconv"},
        {"{\0\"\0t\0", 6,                             "UTF-16, not UTF-8; convert it first: iconv"},
        {"\0{\0\"\0t", 6,                             "UTF-16, not UTF-8; convert it first: iconv"},
        {"\xFF\xFE\0\0{\0\0\0", 8,                    "UTF-32, not UTF-8; convert it first: iconv"},
        {"{\0\0\0\"\0\0\0", 8,                        "UTF-32, not UTF-8; convert it first: iconv"},
        {"PAR1....PAR1", 12,                          "a Parquet file; convert it first: python3"},
        {"ARROW1\0\0", 8,                             "an Arrow file; convert it first: python3"},
        {"PK\x03\x04......xl/workbook.xml", 25,       "an Excel workbook; convert it first: python3"},
        {"PK\x03\x04......a.txt", 15,                 "a zip archive; unpack it first: unzip"},
        {"a\nb\xFF\n", 5,                             "line 2, byte 2: not UTF-8"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err;
        json_t *report = report_of(cases[i].bytes, cases[i].n, NULL, &err);
        EXPECT(err.code == ERR_BAD_TRAINING_FILE);
        EXPECT(strstr(err.text, cases[i].says) != NULL);
        if (strstr(err.text, cases[i].says) == NULL) {
            show_report(cases[i].says, report, &err);
        }
        json_decref(report);
    }
}

static void a_first_line_that_is_no_object_does_not_make_it_a_text(void)
{
    struct err err;
    json_t *report = report_of_text("# exported\n" GOOD "\n" OTHER "\n", &err);

    EXPECT(has_only(report, "broken_json", 1) && number_of(report, "usable") == 2);
    json_decref(report);
    report = report_of_text("Dear diary,\ntoday {\"I\" was} good.\n[1] A note.\n", &err);
    EXPECT(err.code == ERR_NONE && strcmp(word_of(report, "format"), "text") == 0);
    EXPECT(number_of(report, "lines") == 3);
    json_decref(report);
    report = report_of_text("[link](http://a.b) is a text\n", &err);
    EXPECT(err.code == ERR_NONE && strcmp(word_of(report, "format"), "text") == 0);
    json_decref(report);
}

static void the_policy_chooses_among_what_a_reason_allows(void)
{
    const char bad[] = GOOD "\n{\n" OTHER "\n" GOOD "\n";
    struct err err;
    json_t *report = report_of(bad, sizeof bad - 1, NULL, &err);

    EXPECT(err.code == ERR_BAD_TRAINING_FILE);
    EXPECT(strstr(err.text, "line 2, column 2") != NULL);
    json_decref(report);
    report =
        report_of(bad, sizeof bad - 1, "{\"broken_json\":\"skip\",\"duplicates\":\"skip\"}", &err);
    EXPECT(err.code == ERR_NONE);
    EXPECT(number_of(report, "usable") == 2 && number_of(report, "skipped") == 2);
    json_decref(report);
    report = report_of(bad, sizeof bad - 1, "{\"broken_json\":\"skip\",\"duplicates\":\"refuse\"}",
                       &err);
    EXPECT(err.code == ERR_BAD_TRAINING_FILE &&
           strstr(err.text, "earlier example (line 4)") != NULL);
    json_decref(report);
    static const char *const wrong[] = {"{\"broken_json\":\"accept\"}", "{\"damaged\":\"skip\"}",
                                        "{\"no_reason\":\"skip\"}",     "{\"broken_json\":1}",
                                        "{\"broken_json\":\"Skip\"}",   "[]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        report = report_of(bad, sizeof bad - 1, wrong[i], &err);
        EXPECT(err.code == ERR_BAD_SPEC && strcmp(err.param, "on_problem") == 0);
        json_decref(report);
    }
    const char twice[] = "{\"text\":\"first\",\"text\":\"second\"}\n";
    report = report_of(twice, sizeof twice - 1, "{\"duplicate_keys\":\"accept\"}", &err);
    EXPECT(err.code == ERR_NONE && number_of(report, "usable") == 1);
    json_decref(report);
}

static void a_file_whose_rows_all_have_faults_lists_them(void)
{
    struct err err;
    json_t *report = report_of_text(
        "{\"messages\":\n{\"text\":\"a\",\"text\":\"b\"}\n{\"text\":\"\xC4\xE3\"}\n" M(
            "{\"role\":\"x\",\"content\":\"y\"}") "\n{\"a\":1}{\"b\":2}\n",
        &err);

    EXPECT(err.code == ERR_BAD_TRAINING_FILE && number_of(report, "usable") == 0);
    EXPECT(json_array_size(json_object_get(report, "reasons")) == 5);
    for (int line = 1; line <= 5; line++) {
        char text[32];
        (void)snprintf(text, sizeof text, "(line %d", line);
        EXPECT(strstr(err.text, text) != NULL);
    }
    json_decref(report);
    /* Nothing refused, but nothing left either. */
    report = report_of_text(M(USER) "\n" M(USER ",{\"role\":\"assistant\",\"content\":\"\"}") "\n",
                            &err);
    EXPECT(err.code == ERR_BAD_TRAINING_FILE);
    EXPECT(strstr(err.text, "no usable example of 2") != NULL);
    EXPECT(strstr(err.text, "no assistant turn") != NULL && strstr(err.text, "weight 0") != NULL);
    json_decref(report);
}

static void other_kinds_and_columns_are_told_apart(void)
{
    struct err err;
    json_t *report =
        report_of_text(GOOD "\n{\"text\":\"a\"}\n{\"instruction\":\"i\",\"output\":\"o\"}\n", &err);

    EXPECT(err.code == ERR_BAD_TRAINING_FILE);
    EXPECT(strcmp(word_of(reason_of(report, "mixed_kinds"), "where"), "text after chat") == 0);
    EXPECT(strcmp(word_of(reason_of(report, "mixed_columns"), "where"), "alpaca after messages") ==
           0);
    EXPECT(strcmp(word_of(report, "kind"), "chat") == 0);
    EXPECT(number_of(report, "usable") == 2);
    json_decref(report);
}

static void odd_turns_and_texts_are_accepted_and_told(void)
{
    /* clang-format off */
    static const struct { const char *row, *reason; } odd[] = {
        {M(USER "," USER "," REPLY),                                        "same_role_twice"},
        {M(USER "," REPLY "," REPLY),                                       "same_role_twice"},
        {M(REPLY "," USER "," REPLY),                                       "assistant_first"},
        {M("{\"role\":\"system\",\"content\":\"s\"}," REPLY),               "no_user"},
        {M(USER "," REPLY ",{\"role\":\"user\",\"content\":\" \"}," REPLY),   "empty_turns"},
        {M("{\"role\":\"user\",\"content\":\"I am {{ name }}.\"}," REPLY),  "placeholders"},
        {"{\"messages\":[" USER "," REPLY "],\"id\":7}",                    "extra_columns"},
        {M(USER "," REPLY "," USER "," REPLY),                              NULL},
        {M("{\"role\":\"user\",\"content\":\"{{}} {{a-b}} {{{a} {\"}," REPLY), NULL},
        {M(USER ",{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\"}]},{\"role\":\"tool\",\"content\":\"1\"},"
           "{\"role\":\"tool\",\"content\":\"2\"}," REPLY),               NULL},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        const struct fault f = {.row = odd[i].row, .reason = odd[i].reason};
        struct err err;
        json_t *report = report_among_others(&f, false, &err);
        const bool told = odd[i].reason == NULL
                              ? json_array_size(json_object_get(report, "reasons")) == 0
                              : has_only(report, odd[i].reason, 1);
        EXPECT(err.code == ERR_NONE && number_of(report, "usable") == 3 && told);
        if (!told) {
            show_report(f.row, report, &err);
        }
        json_decref(report);
    }
}

static void objects_over_many_lines_are_read(void)
{
    struct err err;
    json_t *report = report_of_text(
        "{\n  \"text\": \"a\"\n}\n{\n  \"text\": \"b\"\n},\n\n{\"text\": \"c\"}\n", &err);

    EXPECT(err.code == ERR_NONE && number_of(report, "usable") == 3 &&
           number_of(report, "lines") == 8);
    json_decref(report);
    report = report_of_text(
        "{\n  \"text\": \"a\"\n}\n]\n{\n  \"text\": b\n}\n{\n \"text\": \"c\"\n", &err);
    const json_t *broken = reason_of(report, "broken_json");
    EXPECT(err.code == ERR_BAD_TRAINING_FILE && number_of(broken, "count") == 3);
    EXPECT(json_integer_value(json_array_get(json_object_get(broken, "first_lines"), 1)) == 6);
    EXPECT(number_of(report, "usable") == 1);
    json_decref(report);
}

static void a_table_is_told_from_other_texts(void)
{
    static const char *const tables[] = {"prompt,completion\na,b\n", "\"Question\";\"Answer\"\r\n",
                                         "id\ttext\n1\ta\n"};
    static const char *const texts[] = {"text, and more of it\n", "text\ntext,prompt\n", "\n",
                                        ",,,\n", "prompt"};
    struct err err;

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        json_t *report = report_of_text(tables[i], &err);
        EXPECT(err.code == ERR_NONE && reason_of(report, "table") != NULL);
        json_decref(report);
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *report = report_of_text(texts[i], &err);
        EXPECT(reason_of(report, "table") == NULL);
        json_decref(report);
    }
}

static void counts_add_up_and_first_lines_are_five(void)
{
    char *text = NULL;
    size_t n = 0;
    struct err err;
    FILE *f = open_memstream(&text, &n);

    for (int i = 0; i < 100; i++) {
        (void)fprintf(f, i % 10 == 3 ? "{\"text\":\n" : "{\"text\":\"row %d\"}\n", i / 2);
    }
    (void)fclose(f);
    json_t *report = report_of(text, n, "{\"broken_json\":\"skip\"}", &err);
    const json_t *broken = reason_of(report, "broken_json");
    const json_t *lines = json_object_get(broken, "first_lines");
    EXPECT(err.code == ERR_NONE);
    EXPECT(number_of(report, "lines") == 100 && number_of(report, "examples") == 100);
    EXPECT(number_of(report, "usable") == 90 && number_of(report, "skipped") == 10);
    EXPECT(number_of(broken, "count") == 10 && json_array_size(lines) == 5);
    EXPECT(json_integer_value(json_array_get(lines, 4)) == 44);
    EXPECT(number_of(reason_of(report, "duplicates"), "count") == 40);
    json_decref(report);
    free(text);
}

/* n bytes of text in one row, then a good row. */
static json_t *report_of_long_row(size_t n, bool array, struct err *err)
{
    char *row = malloc(n + 1);
    FILE *f = fopen(in_scratch("long"), "wb");

    CHECK(row != NULL && f != NULL, "no room for the row");
    memset(row, 'x', n);
    row[n] = '\0';
    (void)fprintf(f,
                  array ? "[{\"text\":\"%s\"},\n{\"text\":\"good\"}]\n"
                        : "{\"text\":\"%s\"}\n{\"text\":\"good\"}\n",
                  row);
    (void)fclose(f);
    free(row);
    return report_of_file(in_scratch("long"), "{\"too_many_bytes\":\"skip\"}", err);
}

static void long_rows_are_read_and_longer_ones_are_not(void)
{
    for (int array = 0; array < 2; array++) {
        struct err err;
        json_t *report = report_of_long_row(10 << 20, array == 1, &err);
        EXPECT(err.code == ERR_NONE && has_only(report, "long_example", 1));
        EXPECT(number_of(report, "usable") == 2);
        json_decref(report);
        report = report_of_long_row((64 << 20) + 1, array == 1, &err);
        EXPECT(err.code == ERR_NONE && has_only(report, "too_many_bytes", 1));
        EXPECT(number_of(report, "usable") == 1 && number_of(report, "skipped") == 1);
        EXPECT(number_of(report, "lines") == 2);
        json_decref(report);
    }
}

static void values_and_nesting_are_bounded(void)
{
    char *text = NULL;
    size_t n = 0;
    struct err err;
    FILE *f = open_memstream(&text, &n);

    (void)fprintf(f, "{\"text\":\"a\",\"x\":[");
    for (int i = 0; i < 1500000; i++) {
        (void)fputs("1,", f);
    }
    (void)fprintf(f, "1]}\n{\"text\":\"b\",\"x\":");
    for (int i = 0; i < 100000; i++) {
        (void)fputc('[', f);
    }
    (void)fclose(f);
    json_t *report = report_of(text, n, NULL, &err);
    EXPECT(reason_of(report, "too_many_values") != NULL);
    EXPECT(reason_of(report, "nested_too_deep") != NULL);
    json_decref(report);
    free(text);
}

static void bytes_are_counted_from_the_beginning_of_the_line(void)
{
    struct err err;
    json_t *report = report_of_text("[{\"text\":\"\xE5\x8D\x83\"},{\"text\":\"\xFF\"}]\n", &err);

    EXPECT(strcmp(word_of(reason_of(report, "not_utf8"), "where"), "element 2, byte 26") == 0);
    json_decref(report);
}

static void a_nul_byte_is_named(void)
{
    struct err err;
    json_t *report = report_of("{\"text\":\"a\0b\"}\n" GOOD "\n", 14 + sizeof GOOD, NULL, &err);

    EXPECT(strncmp(word_of(reason_of(report, "broken_json"), "where"), "column 11: a NUL byte",
                   21) == 0);
    json_decref(report);
}

static void every_reason_has_a_default_that_it_allows(void)
{
    for (int i = 0; i < REASON_COUNT; i++) {
        EXPECT(reason_allows((enum reason)i, reason_default((enum reason)i)));
        EXPECT(strlen(reason_message((enum reason)i)) > 10);
    }
}

int main(void)
{
    scratch_make();
    RUN(names_each_fault_by_reason_line_and_place);
    RUN(names_each_fault_in_an_array_too);
    RUN(never_repeats_the_text_of_a_file);
    RUN(broken_arrays_say_what_is_missing);
    RUN(marks_line_ends_and_blank_lines_are_counted_and_dropped);
    RUN(other_faults_of_whole_files_have_their_sentence);
    RUN(a_first_line_that_is_no_object_does_not_make_it_a_text);
    RUN(the_policy_chooses_among_what_a_reason_allows);
    RUN(a_file_whose_rows_all_have_faults_lists_them);
    RUN(other_kinds_and_columns_are_told_apart);
    RUN(odd_turns_and_texts_are_accepted_and_told);
    RUN(objects_over_many_lines_are_read);
    RUN(a_table_is_told_from_other_texts);
    RUN(counts_add_up_and_first_lines_are_five);
    RUN(long_rows_are_read_and_longer_ones_are_not);
    RUN(values_and_nesting_are_bounded);
    RUN(bytes_are_counted_from_the_beginning_of_the_line);
    RUN(a_nul_byte_is_named);
    RUN(every_reason_has_a_default_that_it_allows);
    scratch_remove();
    return tap_done();
}
