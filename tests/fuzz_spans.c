/* fuzz_spans.c - any text in any runs: what is marked as data and as trained rises, lies within the text, and never
 * holds a byte of a turn that is not trained. */
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/chat/spans.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { TURNS = 5, RUN_BYTES = 3 };

/* system, tool, assistant, assistant with weight 0, assistant */
static const struct chat_turn turns[TURNS] = {{.is_trained = true},
                                              {.is_trained = true, .is_tool = true},
                                              {.is_assistant = true, .is_trained = true},
                                              {.is_assistant = true},
                                              {.is_assistant = true, .is_trained = true}};
static const struct chat_special specials[] = {
    {"<s>", 3, 0}, {"</s>", 4, 1}, {"e", 1, 2}, {"ee", 2, 3}, {"\n", 1, 4}};

static void check_spans(const struct chat_span *spans, size_t count, size_t bytes)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        CHECK(spans[i].begin < spans[i].end && spans[i].end <= bytes, "span %zu", i);
        CHECK(i == 0 || spans[i].begin > at, "span %zu touches the one before", i);
        at = spans[i].end;
    }
}

static bool holds(const struct chat_span *spans, size_t count, size_t at)
{
    for (size_t i = 0; i < count; i++) {
        if (at >= spans[i].begin && at < spans[i].end) {
            return true;
        }
    }
    return false;
}

/* Every run against the spans: data is plain, and what weight 0 says is not trained. */
static void check_runs(const struct jinja_output *o, const struct rendered *r)
{
    for (size_t i = 0, at = 0; i < o->run_count; at = o->runs[i++].end) {
        const struct jinja_tag tag = o->runs[i].tag;
        const bool is_data = tag.from != JINJA_FROM_TEMPLATE;
        CHECK(holds(r->plain, r->plain_count, at) == is_data, "run %zu", i);
        CHECK(tag.from != 3 || tag.generation || !holds(r->trained, r->trained_count, at),
              "run %zu of weight 0", i);
    }
}

/* Runs of three bytes each: length, origin, turn; what is left is the text. */
static void make_output(struct jinja_output *o, const uint8_t *bytes, size_t n)
{
    const size_t count = n / (2 * RUN_BYTES), text = count * RUN_BYTES;
    size_t at = 0;

    o->text = malloc(n + 1);
    o->runs = calloc(count + 2, sizeof *o->runs);
    CHECK(o->text != NULL && o->runs != NULL, "no memory");
    o->bytes = n - text;
    memcpy(o->text, bytes + text, o->bytes);
    o->text[o->bytes] = '\0';
    for (size_t i = 0; i <= count && at < o->bytes; i++) {
        const bool is_last = i == count;
        const size_t length = is_last ? o->bytes : 1 + bytes[i * RUN_BYTES] % 12U;
        const int from = is_last ? 1 : bytes[i * RUN_BYTES + 1];
        const int turn = is_last ? 1 : bytes[i * RUN_BYTES + 2];
        at = length < o->bytes - at ? at + length : o->bytes;
        o->runs[o->run_count++] =
            (struct jinja_run){at, {from % (TURNS + 2) - 2, turn % (TURNS + 1) - 1, turn > 200}};
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct jinja_output o = {0};
    char prompt[] = "<s>A", head[] = "<s>A ";
    const size_t prompt_bytes = n > 0 ? bytes[n - 1] % sizeof prompt : 0;
    const struct chat_habits habits = {.knows_prompt = n % 3 != 0,
                                       .prompt = prompt,
                                       .prompt_bytes = prompt_bytes,
                                       .after_tool = n % 5 < 3 ? head : NULL,
                                       .after_tool_bytes = 1 + n % 4,
                                       .head = n % 2 == 0 ? head : NULL,
                                       .head_bytes = 5};

    make_output(&o, bytes, n);
    for (int by_generation = 0; by_generation < 2; by_generation++) {
        const struct chat_marking m = {.output = &o,
                                       .turns = turns,
                                       .turn_count = TURNS,
                                       .habits = &habits,
                                       .specials = specials,
                                       .special_count = sizeof specials / sizeof *specials,
                                       .eos = 1,
                                       .by_generation = by_generation != 0};
        struct rendered r = {0};
        struct err err = {0};
        CHECK(chat_mark(&r, &m, true, &err) == 0, "%s", err.text);
        check_spans(r.plain, r.plain_count, o.bytes);
        check_spans(r.trained, r.trained_count, o.bytes);
        check_runs(&o, &r);
        rendered_fini(&r);
    }
    jinja_output_fini(&o);
    return 0;
}
