/* test_example.c - rows of every shape become examples; facts of the files that people publish. */
#include <stdlib.h>

#include "tests/examples.h"

/* What a file's examples are, as one JSON array: [kind, texts or messages ...]. */
static json_t *read_all(const char *path, enum example_kind *kind, struct err *err)
{
    const struct example_options o = {
        .path = path, .name = "train", .blame = ERR_BAD_TRAINING_FILE};
    struct example_reader *r = NULL;
    const struct example *e = NULL;
    json_t *all = json_array();

    *err = (struct err){0};
    if (example_reader_open(&r, &o, err) != 0) {
        return all;
    }
    EXPECT(example_reader_kind(r) == EXAMPLE_KIND_COUNT);
    while (example_reader_next(r, &e, err) == 0 && e != NULL) {
        json_t *one = json_pack("{s:s, s:I}", "kind", example_kind_name(e->kind), "line",
                                (json_int_t)e->line);
        const json_t *const parts[] = {e->messages, e->tools, e->chosen, e->rejected};
        static const char *const names[] = {"messages", "tools", "chosen", "rejected"};
        for (int i = 0; i < 4; i++) {
            if (parts[i] != NULL) {
                (void)json_object_set_new(one, names[i], json_deep_copy(parts[i]));
            }
        }
        if (e->kind == EXAMPLE_TEXT) {
            (void)json_object_set_new(one, "text", json_stringn(e->text, e->bytes));
        } else if (e->kind == EXAMPLE_COMPLETION) {
            (void)json_object_set_new(one, "prompt", json_stringn(e->prompt, e->prompt_bytes));
            (void)json_object_set_new(one, "completion",
                                      json_stringn(e->completion, e->completion_bytes));
        }
        (void)json_array_append_new(all, one);
    }
    *kind = example_reader_kind(r);
    example_reader_close(r);
    return all;
}

/* A row and what it becomes, but for kind and line. */
struct shape_case {
    const char *row;
    const char *kind, *becomes;
};

#define U(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define S(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define CALL(name, arguments) \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":" arguments "}}"

/* clang-format off */
static const struct shape_case cases[] = {
    {"{\"text\":\"a\"}", "text", "{\"text\":\"a\"}"},
    {"{\"text\":\"\\ud83d\\ude00 \xE5\x8D\x83\"}", "text", "{\"text\":\"\xF0\x9F\x98\x80 \xE5\x8D\x83\"}"},
    {"{\"text\":\"a\",\"id\":123456789012345678901234567890}", "text", "{\"text\":\"a\"}"},
    {"{\"text\":\"a\",\"messages\":null}", "text", "{\"text\":\"a\"}"},
    {"{\"prompt\":\"p\",\"completion\":\"c\"}", "completion", "{\"prompt\":\"p\",\"completion\":\"c\"}"},
    {"{\"prompt\":\"\",\"completion\":\"c\"}", "completion", "{\"prompt\":\"\",\"completion\":\"c\"}"},
    {"{\"prompt\":[" U("p") "," A("x") "," U("q") "],\"completion\":[" A("c") "]}", "chat",
     "{\"messages\":[" U("p") ",{\"role\":\"assistant\",\"content\":\"x\",\"weight\":0}," U("q") "," A("c") "]}"},
    {"{\"prompt\":[" U("p") "],\"completion\":\"c\"}", "chat", "{\"messages\":[" U("p") "," A("c") "]}"},
    /* Chat. */
    {"{\"messages\":[" S("s") "," U("u") "," A("a") "]}", "chat", "{\"messages\":[" S("s") "," U("u") "," A("a") "]}"},
    {"[" U("u") "," A("a") "]", "chat", "{\"messages\":[" U("u") "," A("a") "]}"},
    {"{\"messages\":[{\"role\":\"developer\",\"content\":\"s\"},{\"role\":\"User\",\"content\":\"u\"},{\"role\":\"model\",\"content\":\"a\"}]}",
     "chat", "{\"messages\":[" S("s") "," U("u") "," A("a") "]}"},
    {"{\"messages\":[" U("u") ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0}," U("v")
     ",{\"role\":\"assistant\",\"content\":\"b\",\"weight\":1.0}]}", "chat",
     "{\"messages\":[" U("u") ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0}," U("v")
     ",{\"role\":\"assistant\",\"content\":\"b\",\"weight\":1}]}"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"u\",\"weight\":1,\"name\":\"bob\"}," A("a") "]}", "chat",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"u\",\"name\":\"bob\"}," A("a") "]}"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a \"},{\"type\":\"text\",\"text\":\"b\"}]}," A("c") "]}",
     "chat", "{\"messages\":[" U("a b") "," A("c") "]}"},
    {"{\"messages\":[" A("first") "," A("second") "," U("last") "]}", "chat",
     "{\"messages\":[" A("first") "," A("second") "," U("last") "]}"},
    {"{\"messages\":[" U("u") ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
     "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"2\"}," A("a")
     "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}", "chat",
     "{\"messages\":[" U("u") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":"
     "{\"name\":\"f\",\"arguments\":{\"x\":1}},\"id\":\"c1\"}]},{\"role\":\"tool\",\"content\":\"2\",\"tool_call_id\":\"c1\"}," A("a")
     "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}"},
    {"{\"messages\":[" U("u") ",{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"f\",\"arguments\":\"no JSON\"}},"
     "{\"role\":\"function\",\"name\":\"f\",\"content\":\"2\"}," A("a") "],\"functions\":[{\"name\":\"f\"}]}", "chat",
     "{\"messages\":[" U("u") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL("f", "\"no JSON\"") "]},"
     "{\"role\":\"tool\",\"content\":\"2\",\"name\":\"f\"}," A("a") "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}"},
    /* ShareGPT. */
    {"{\"conversations\":[{\"from\":\"system\",\"value\":\"s\"},{\"from\":\"human\",\"value\":\"u\"},{\"from\":\"gpt\",\"value\":\"a\"}]}",
     "chat", "{\"messages\":[" S("s") "," U("u") "," A("a") "]}"},
    {"{\"conversations\":[{\"from\":\"user\",\"value\":\"u\"},{\"from\":\"chatbot\",\"value\":\"a\"}],\"system\":\"s\"}",
     "chat", "{\"messages\":[" S("s") "," U("u") "," A("a") "]}"},
    {"{\"conversations\":[" U("u") "," A("a") "]}", "chat", "{\"messages\":[" U("u") "," A("a") "]}"},
    {"{\"conversations\":[{\"from\":\"human\",\"value\":\"u\"},{\"from\":\"function_call\",\"value\":\"{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{\\\"x\\\":1}}\"},"
     "{\"from\":\"observation\",\"value\":\"2\"},{\"from\":\"gpt\",\"value\":\"a\"}],\"tools\":\"[{\\\"name\\\":\\\"f\\\"}]\"}", "chat",
     "{\"messages\":[" U("u") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL("f", "{\"x\":1}") "]},"
     "{\"role\":\"tool\",\"content\":\"2\"}," A("a") "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}"},
    {"{\"conversations\":[{\"from\":\"human\",\"value\":\"u\"},{\"from\":\"function_call\",\"value\":\"f(1)\"}],\"tools\":\"[]\"}", "chat",
     "{\"messages\":[" U("u") "," A("f(1)") "]}"},
    /* Alpaca and its kin. */
    {"{\"instruction\":\"i\",\"input\":\"\",\"output\":\"o\",\"text\":\"all\"}", "chat", "{\"messages\":[" U("i") "," A("o") "]}"},
    {"{\"instruction\":\"i\",\"input\":\"x\",\"output\":\"o\"}", "chat", "{\"messages\":[" U("i\\n\\nx") "," A("o") "]}"},
    {"{\"instruction\":\"\",\"input\":\"x\",\"output\":\"o\"}", "chat", "{\"messages\":[" U("x") "," A("o") "]}"},
    {"{\"instruction\":\"i\",\"input\":null,\"output\":\"o\",\"system\":\"\",\"history\":[]}", "chat", "{\"messages\":[" U("i") "," A("o") "]}"},
    {"{\"instruction\":\"i\",\"output\":\"o\",\"system\":\"s\",\"history\":[[\"h\",\"r\"]]}", "chat",
     "{\"messages\":[" S("s") "," U("h") "," A("r") "," U("i") "," A("o") "]}"},
    {"{\"instruction\":\"i\",\"context\":\"x\",\"response\":\"o\",\"category\":\"qa\"}", "chat", "{\"messages\":[" U("i\\n\\nx") "," A("o") "]}"},
    {"{\"instruction\":\"i\",\"response\":\"o\"}", "chat", "{\"messages\":[" U("i") "," A("o") "]}"},
    {"{\"query\":\"i\",\"response\":\"o\"}", "chat", "{\"messages\":[" U("i") "," A("o") "]}"},
    {"{\"question\":\"i\",\"answer\":\"o\"}", "chat", "{\"messages\":[" U("i") "," A("o") "]}"},
    {"{\"prompt\":\"i\",\"response\":\"o\"}", "chat", "{\"messages\":[" U("i") "," A("o") "]}"},
    /* Preferences. */
    {"{\"input\":{\"messages\":[" U("u") "],\"tools\":[],\"parallel_tool_calls\":true},\"preferred_output\":[" A("good") "],\"non_preferred_output\":[" A("bad") "]}",
     "preference", "{\"messages\":[" U("u") "],\"chosen\":[" A("good") "],\"rejected\":[" A("bad") "]}"},
    {"{\"prompt\":\"u\",\"chosen\":\"good\",\"rejected\":\"bad\"}", "preference",
     "{\"messages\":[" U("u") "],\"chosen\":[" A("good") "],\"rejected\":[" A("bad") "]}"},
    {"{\"prompt\":[" S("s") "," U("u") "],\"chosen\":[" A("good") "],\"rejected\":[" A("bad") "]}", "preference",
     "{\"messages\":[" S("s") "," U("u") "],\"chosen\":[" A("good") "],\"rejected\":[" A("bad") "]}"},
    {"{\"chosen\":[" U("u") "," A("good") "],\"rejected\":[" U("u") "," A("bad") "]}", "preference",
     "{\"messages\":[" U("u") "],\"chosen\":[" A("good") "],\"rejected\":[" A("bad") "]}"},
    {"{\"prompt\":\"u\",\"chosen\":[" U("u") "," A("good") "],\"rejected\":[" U("u") "," A("bad") "],\"score\":3}", "preference",
     "{\"messages\":[" U("u") "],\"chosen\":[" A("good") "],\"rejected\":[" A("bad") "]}"},
    {"{\"chosen\":[" U("u") "," A("same") "," U("v") "," A("good") "],\"rejected\":[" U("u") "," A("same") "," U("v") "," A("bad") "]}", "preference",
     "{\"messages\":[" U("u") "," A("same") "," U("v") "],\"chosen\":[" A("good") "],\"rejected\":[" A("bad") "]}"},
    {"{\"chosen\":[" U("u") "," A("x") "],\"rejected\":[" U("u") "," A("x") "," U("v") "," A("bad") "]}", "preference",
     "{\"messages\":[" U("u") "],\"chosen\":[" A("x") "],\"rejected\":[" A("x") "," U("v") "," A("bad") "]}"},
    {"{\"conversations\":[{\"from\":\"human\",\"value\":\"u\"}],\"chosen\":{\"from\":\"gpt\",\"value\":\"good\"},\"rejected\":{\"from\":\"gpt\",\"value\":\"bad\"}}",
     "preference", "{\"messages\":[" U("u") "],\"chosen\":[" A("good") "],\"rejected\":[" A("bad") "]}"},
    {"{\"instruction\":\"i\",\"input\":\"x\",\"chosen\":\"good\",\"rejected\":\"bad\"}", "preference",
     "{\"messages\":[" U("i\\n\\nx") "],\"chosen\":[" A("good") "],\"rejected\":[" A("bad") "]}"},
    {"{\"question\":\"u\",\"response_j\":\"good\",\"response_k\":\"bad\"}", "preference",
     "{\"messages\":[" U("u") "],\"chosen\":[" A("good") "],\"rejected\":[" A("bad") "]}"},
};
/* clang-format on */

static void rows_of_every_shape_become_examples(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* A single line that is a list can't be told from an array of examples. */
        for (int array = cases[i].row[0] == '[' ? 1 : 0; array < 2; array++) {
            char text[2048];
            struct err err;
            enum example_kind kind = EXAMPLE_KIND_COUNT;
            (void)snprintf(text, sizeof text, array == 1 ? "[\n%s\n]" : "\n%s\n", cases[i].row);
            put_text(in_scratch("shape"), text);
            json_t *all = read_all(in_scratch("shape"), &kind, &err);
            json_t *want = json_loads(cases[i].becomes, 0, NULL);
            (void)json_object_set_new(want, "kind", json_string(cases[i].kind));
            (void)json_object_set_new(want, "line", json_integer(2));
            const bool same = json_array_size(all) == 1 && json_equal(json_array_get(all, 0), want);
            EXPECT(err.code == ERR_NONE && same);
            EXPECT(same && strcmp(example_kind_name(kind), cases[i].kind) == 0);
            if (!same) {
                show_report(cases[i].row, all, &err);
            }
            json_decref(want);
            json_decref(all);
        }
    }
}

static void lists_of_messages_may_stand_one_a_line(void)
{
    struct err err;
    enum example_kind kind;

    put_text(in_scratch("lists"), "[" U("u") "," A("a") "]\n\n[" U("v") "," A("b") "]\n");
    json_t *all = read_all(in_scratch("lists"), &kind, &err);
    EXPECT(err.code == ERR_NONE && json_array_size(all) == 2 && kind == EXAMPLE_CHAT);
    EXPECT(number_of(json_array_get(all, 1), "line") == 3);
    json_decref(all);
}

static void many_calls_in_a_turn_stay_many(void)
{
    struct err err;
    enum example_kind kind;

    put_text(in_scratch("calls"), "{\"conversations\":[{\"from\":\"human\",\"value\":\"u\"},{"
                                  "\"from\":\"function_call\",\"value\":"
                                  "\"[{\\\"name\\\":\\\"f\\\"},{\\\"name\\\":\\\"g\\\","
                                  "\\\"arguments\\\":\\\"{}\\\"}]\"}]}\n");
    json_t *all = read_all(in_scratch("calls"), &kind, &err);
    const json_t *turn = json_array_get(json_object_get(json_array_get(all, 0), "messages"), 1);
    const json_t *calls = json_object_get(turn, "tool_calls");
    EXPECT(json_array_size(calls) == 2);
    EXPECT(strcmp(word_of(json_object_get(json_array_get(calls, 1), "function"), "name"), "g") ==
           0);
    EXPECT(json_is_object(
        json_object_get(json_object_get(json_array_get(calls, 0), "function"), "arguments")));
    json_decref(all);
}

static void a_caller_may_take_back_an_example(void)
{
    const struct example_options o = {.path = in_scratch("back"), .blame = ERR_BAD_TRAINING_FILE};
    struct example_reader *r;
    const struct example *e;
    struct err err = {0};

    put_text(in_scratch("back"), "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n");
    EXPECT(example_reader_open(&r, &o, &err) == 0);
    struct report *report = example_reader_report(r);
    EXPECT(example_reader_next(r, &e, &err) == 0 && e->line == 1);
    report_tokens(report, 10, 4);
    EXPECT(example_reader_next(r, &e, &err) == 0 && e->line == 2);
    EXPECT(report_add(report, REASON_nothing_trained, e->line, NULL) == ACTION_SKIP);
    report_take_back(report);
    EXPECT(example_reader_next(r, &e, &err) == 0 && e->line == 3);
    report_tokens(report, 1000, 1000);
    EXPECT(example_reader_next(r, &e, &err) == 0 && e == NULL);
    EXPECT(example_reader_next(r, &e, &err) == 0 && e == NULL);
    json_t *json = report_json(report);
    EXPECT(number_of(json, "usable") == 2 && number_of(json, "skipped") == 1);
    EXPECT(number_of(json, "tokens") == 1010 && number_of(json, "trained_tokens") == 1004);
    const json_t *lengths = json_object_get(json, "lengths");
    const json_t *edges = json_object_get(lengths, "edges"),
                 *counts = json_object_get(lengths, "counts");
    EXPECT(json_array_size(edges) == json_array_size(counts) + 1);
    EXPECT(json_integer_value(json_array_get(edges, 0)) == 8);
    EXPECT(json_integer_value(json_array_get(counts, 0)) == 1);
    EXPECT(json_integer_value(json_array_get(edges, json_array_size(edges) - 1)) == 1024);
    json_decref(json);
    example_reader_close(r);
}

static void what_a_caller_refuses_ends_the_examples(void)
{
    const struct example_options o = {.path = in_scratch("refuse"),
                                      .blame = ERR_BAD_VALIDATION_FILE};
    struct example_reader *r;
    const struct example *e;
    struct err err = {0};

    put_text(in_scratch("refuse"), "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\n");
    EXPECT(example_reader_open(&r, &o, &err) == 0);
    EXPECT(example_reader_next(r, &e, &err) == 0);
    EXPECT(report_add(example_reader_report(r), REASON_not_rendered, e->line,
                      "roles must alternate") == ACTION_REFUSE);
    report_take_back(example_reader_report(r));
    EXPECT(example_reader_next(r, &e, &err) == ERR_BAD_VALIDATION_FILE && e == NULL);
    EXPECT(strstr(err.text, "roles must alternate") != NULL);
    EXPECT(strstr(err.text, "the JSON is broken (line 3") !=
           NULL); /* read to the end for the report */
    example_reader_close(r);
}

static void a_plain_text_is_not_for_this_reader(void)
{
    const struct example_options o = {.path = in_scratch("plain"), .blame = ERR_BAD_TRAINING_FILE};
    struct example_reader *r;
    struct sniffed what;
    struct err err = {0};

    put_text(in_scratch("plain"), "Once upon a time\n");
    EXPECT(example_reader_open(&r, &o, &err) == ERR_BAD_TRAINING_FILE && r == NULL);
    EXPECT(data_sniff(&what, in_scratch("plain"), NULL, ERR_BAD_TRAINING_FILE, &err) == 0);
    EXPECT(what.format == FORMAT_TEXT && what.packing == PACKING_NONE);
    EXPECT(data_sniff(&what, in_scratch("nowhere"), NULL, ERR_BAD_TRAINING_FILE, &err) ==
           ERR_NOT_FOUND);
}

static void a_large_array_is_read_an_element_at_a_time(void)
{
    const struct example_options o = {.path = in_scratch("large"), .blame = ERR_BAD_TRAINING_FILE};
    struct example_reader *r;
    const struct example *e;
    struct err err = {0};
    const int rows = 200000;
    FILE *f = fopen(in_scratch("large"), "wb");
    int good = 0;

    for (int i = 0; i < rows; i++) {
        (void)fprintf(f, "%s{\"text\": \"number %d [{]}, \\\"quoted\\\\\"}", i == 0 ? "[" : ", ",
                      i);
    }
    (void)fputs("]", f);
    (void)fclose(f);
    EXPECT(example_reader_open(&r, &o, &err) == 0);
    while (example_reader_next(r, &e, &err) == 0 && e != NULL) {
        char want[64];
        (void)snprintf(want, sizeof want, "number %d [{]}, \"quoted\\", good);
        good += strcmp(e->text, want) == 0 ? 1 : 0;
    }
    EXPECT(good == rows && err.code == ERR_NONE);
    example_reader_close(r);
}

/* A published file and what a careful person finds in it. */
struct published {
    const char *file, *format, *kind, *columns;
    int lines, usable, skipped;
    const char *reason; /* the one that matters, and how often */
    int count;
    bool refused;
};

/* clang-format off */
static const struct published files[] = {
    {"chat/glaive_toolcall_en_demo.json",     "json",  "chat",       "conversations",        9158, 300, 0, "duplicates",       35, false},
    {"chat/identity.json",                    "json",  "chat",       "alpaca",                457,  91, 0, "placeholders", 85, false},
    {"chat/openai_toy_chat_fine_tuning.jsonl", "jsonl", "chat",      "messages",                5,   5, 0, "no_user", 1, false},
    {"chat/seed_tasks.jsonl",                 "jsonl", "",           "",                      175,   0, 175, "nested_examples", 175, true},
    {"chat/sharegpt_dummy_conversation.json", "json",  "chat",       "conversations",       10502, 500, 0, "extra_columns",   500, false},
    {"chat/wikisql_lora_train.jsonl",         "jsonl", "text",       "text",                 1000, 1000, 0, "duplicates",       1, false},
    {"chat/wikisql_lora_valid.jsonl",         "jsonl", "text",       "text",                  100, 100, 0, NULL,                0, false},
    {"chat/torchtune/alpaca_tiny.json",       "json",  "chat",       "alpaca",                  1, 100, 0, "extra_columns",   100, false},
    {"chat/torchtune/chat_tiny.json",         "json",  "chat",       "conversations",          26,   1, 0, NULL,                0, false},
    {"chat/torchtune/hh_rlhf_tiny.json",      "json",  "preference", "chosen_rejected",         1,   1, 0, NULL,                0, false},
    {"chat/torchtune/instruct_tiny.json",     "json",  "chat",       "instruction_response",   10,   2, 0, NULL,                0, false},
    {"chat/torchtune/stack_exchange_paired_tiny.json", "json", "preference", "paired_responses", 1,  25, 0, NULL,                0, false},
    {"messy/all_masked.jsonl",                "jsonl", "",           "",                        8,   0, 8, "all_masked",        8, true},
    {"messy/blank_lines.jsonl",               "jsonl", "chat",       "messages",               62,  20, 0, "blank_lines",      42, false},
    {"messy/bom.jsonl",                       "jsonl", "chat",       "messages",               20,  20, 0, "byte_order_mark",   1, false},
    {"messy/crlf.jsonl",                      "jsonl", "chat",       "messages",               20,  20, 0, "crlf",             20, false},
    {"messy/duplicate_keys.jsonl",            "jsonl", "",           "",                        3,   0, 3, "duplicate_keys",    3, true},
    {"messy/gzip.jsonl.gz",                   "jsonl", "chat",       "messages",               20,  20, 0, "placeholders", 20, false},
    {"messy/huge_line.jsonl",                 "jsonl", "chat",       "messages",                3,   3, 0, "long_example",      1, false},
    {"messy/json_array_instead_of_jsonl.jsonl", "json", "chat",      "messages",              242,  20, 0, "placeholders", 20, false},
    {"messy/mixed_schemas.jsonl",             "jsonl", "chat",       "messages",                7,   4, 3, "mixed_kinds",       3, true},
    {"messy/no_final_newline.jsonl",          "jsonl", "chat",       "messages",               20,  20, 0, "no_final_newline",  1, false},
    {"messy/ok_20.jsonl",                     "jsonl", "chat",       "messages",               20,  20, 0, "placeholders", 20, false},
    {"messy/tiny_one_row.jsonl",              "jsonl", "chat",       "messages",                1,   1, 0, "placeholders", 1, false},
};
/* clang-format on */

static void check_published(const struct published *p, const char *path)
{
    struct err err;
    json_t *report = report_of_file(path, NULL, &err);
    const json_t *reason = p->reason != NULL ? reason_of(report, p->reason) : NULL;
    const bool same = strcmp(word_of(report, "format"), p->format) == 0 &&
                      strcmp(word_of(report, "kind"), p->kind) == 0 &&
                      strcmp(word_of(report, "columns"), p->columns) == 0 &&
                      number_of(report, "lines") == p->lines &&
                      number_of(report, "usable") == p->usable &&
                      number_of(report, "skipped") == p->skipped &&
                      (p->reason == NULL ? json_array_size(json_object_get(report, "reasons")) == 0
                                         : number_of(reason, "count") == p->count) &&
                      (err.code != ERR_NONE) == p->refused;

    EXPECT(same);
    if (!same) {
        show_report(p->file, report, &err);
    }
    json_decref(report);
}

static void published_files_are_what_they_are(void)
{
    struct err err;

    if (access("../shared/data/chat", R_OK) != 0) {
        printf("# skip: ../shared is absent\n");
        return;
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "../shared/data/%s", files[i].file);
        check_published(&files[i], path);
    }
    json_decref(report_of_file("../shared/data/messy/utf16le.jsonl", NULL, &err));
    EXPECT(err.code == ERR_BAD_TRAINING_FILE && strstr(err.text, "UTF-16") != NULL);
    json_decref(report_of_file("../shared/data/messy/empty.jsonl", NULL, &err));
    EXPECT(err.code == ERR_BAD_TRAINING_FILE && strstr(err.text, "empty") != NULL);
}

/* The same file with a mark, with CR LF, and as an array gives the same examples. */
static void how_a_file_is_written_does_not_change_its_examples(void)
{
    static const char *const same[] = {"bom.jsonl",
                                       "crlf.jsonl",
                                       "blank_lines.jsonl",
                                       "no_final_newline.jsonl",
                                       "json_array_instead_of_jsonl.jsonl",
                                       "gzip.jsonl.gz"};
    struct err err;
    enum example_kind kind;
    json_t *one;
    size_t k;

    if (access("../shared/data/messy", R_OK) != 0) {
        printf("# skip: ../shared is absent\n");
        return;
    }
    json_t *want = read_all("../shared/data/messy/ok_20.jsonl", &kind, &err);
    EXPECT(json_array_size(want) == 20);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "../shared/data/messy/%s", same[i]);
        json_t *all = read_all(path, &kind, &err);
        EXPECT(json_array_size(all) == 20);
        json_array_foreach(all, k, one)
        {
            EXPECT(json_equal(json_object_get(one, "messages"),
                              json_object_get(json_array_get(want, k), "messages")));
        }
        json_decref(all);
    }
    json_decref(want);
}

int main(void)
{
    scratch_make();
    RUN(rows_of_every_shape_become_examples);
    RUN(lists_of_messages_may_stand_one_a_line);
    RUN(many_calls_in_a_turn_stay_many);
    RUN(a_caller_may_take_back_an_example);
    RUN(what_a_caller_refuses_ends_the_examples);
    RUN(a_plain_text_is_not_for_this_reader);
    RUN(a_large_array_is_read_an_element_at_a_time);
    RUN(published_files_are_what_they_are);
    RUN(how_a_file_is_written_does_not_change_its_examples);
    scratch_remove();
    return tap_done();
}
