/* test_texts.c - texts side by side: each is what it is alone; they come and go; stop strings; characters. */
#include "tests/texts.h"

#include "trainer/serve/stops.h"

static const char case_name[] = "llama_gqa_tied_4L";
static char folder[256];

static void probabilities_are_those_of_a_whole_forward_pass(void)
{
    texts_logprobs("llama_gqa_tied_4L", 1e-4);
    texts_logprobs("gpt2_erf_inner", 1e-4);
    texts_logprobs("mistral_window", 1e-4);
}

static void run_all(struct texts *x)
{
    while (texts_step(x)) {
    }
}

/* The text of one line of request, alone in a model of one slot. */
static void alone(struct heard *h, const char *line)
{
    struct texts *x = texts_of(folder, 1, 64, 1);
    struct err err = {0};

    EXPECT(heard_ask(h, x, line, texts_prompt, 9, &err) == 0);
    run_all(x);
    EXPECT(h->ended && !h->failed && !h->broken);
    texts_close(x);
}

static bool same_heard(const struct heard *a, const struct heard *b)
{
    bool same = a->count[0] == b->count[0] && a->bytes[0] == b->bytes[0] &&
                memcmp(a->text[0], b->text[0], a->bytes[0]) == 0 && a->finish[0] == b->finish[0];

    for (int i = 0; i < a->count[0] && same; i++) {
        const struct made *m = &a->made[0][i], *n = &b->made[0][i];
        same = m->id == n->id && m->start == n->start &&
               memcmp(&m->logprobs.chosen, &n->logprobs.chosen, sizeof(double)) == 0;
    }
    return same;
}

static const char asked[] =
    "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":40,\"seed\":5,\"temperature\":1.3,\"logprobs\":3,"
    "\"ignore_eos\":true,\"frequency_penalty\":0.5}";
static const char other[] =
    "{\"id\":\"b\",\"prompt\":[],\"max_tokens\":25,\"seed\":9,\"temperature\":2}";

static void a_text_does_not_depend_on_what_else_runs(void)
{
    static const int64_t ways[][3] = {{4, 3, 1}, {3, 64, 2}, {8, 5, 3}};
    struct heard *h = calloc(10, sizeof *h);
    struct err err = {0};

    CHECK(h != NULL, "%s", "memory");
    alone(&h[9], asked);
    for (size_t w = 0; w < 3; w++) {
        struct texts *x = texts_of(folder, ways[w][0], ways[w][1], (int)ways[w][2]);
        for (int i = 0; i < 9; i++) {
            EXPECT(heard_ask(&h[i], x, i == 4 ? asked : other, texts_prompt, i == 4 ? 9 : 1 + i,
                             &err) == 0);
            (void)(i % 3 == 0 && texts_step(x));
        }
        run_all(x);
        EXPECT(same_heard(&h[4], &h[9]));
        for (int i = 0; i < 9; i++) {
            EXPECT(h[i].ended && !h[i].broken);
        }
        EXPECT(texts_jobs(x) == 0);
        texts_close(x);
    }
    free(h);
}

static void nor_in_bf16(void)
{
    struct heard lone, among, others[3];
    struct err err = {0};

    for (int i = 0; i < 2; i++) {
        const struct texts_options o = {.threads = 1 + i,
                                        .type = DTYPE_BF16,
                                        .slots = i == 0 ? 1 : 4,
                                        .piece = i == 0 ? 64 : 3,
                                        .isa = ""};
        struct texts *x = NULL;
        CHECK(texts_open(&x, folder, &o, &err) == 0, "%s", err.text);
        for (int k = 0; k < 3 && i == 1; k++) {
            EXPECT(heard_ask(&others[k], x, other, texts_prompt, 2 + k, &err) == 0);
        }
        EXPECT(heard_ask(i == 0 ? &lone : &among, x, asked, texts_prompt, 9, &err) == 0);
        run_all(x);
        texts_close(x);
    }
    EXPECT(lone.count[0] == 40 && same_heard(&lone, &among));
}

static void an_adapter_changes_a_text_as_little_by_what_else_runs(void)
{
    char base[256], adapter[256];
    struct heard plain, lone, among, others[4];
    struct err err = {0};
    const char *const from = "tests/golden/lora_all_linear_r3";

    texts_folder(base, "lora_all_linear_r3");
    fresh_make(adapter);
    texts_copy(adapter, from, "adapter_config.json");
    texts_copy(adapter, from, "adapter_model.safetensors");
    struct heard *const heard[3] = {&plain, &lone, &among};
    for (int i = 0; i < 3; i++) {
        struct texts *x = texts_with(base, i == 0 ? NULL : adapter, i == 2 ? 4 : 1, 5, 1 + i);
        for (int k = 0; k < 4 && i == 2; k++) {
            EXPECT(heard_ask(&others[k], x, other, texts_prompt, 3 + k, &err) == 0);
        }
        EXPECT(heard_ask(heard[i], x, asked, texts_prompt, 9, &err) == 0);
        run_all(x);
        texts_close(x);
    }
    EXPECT(same_heard(&lone, &among) && !same_heard(&lone, &plain));
}

static void a_request_joins_while_others_go_on(void)
{
    struct texts *x = texts_of(folder, 2, 4, 1);
    struct heard first, second;
    struct err err = {0};

    EXPECT(heard_ask(&first, x,
                     "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":40,\"logit_bias\":{\"50\":100}}",
                     texts_prompt, 9, &err) == 0);
    for (int i = 0; i < 12; i++) {
        EXPECT(texts_step(x));
    }
    EXPECT(heard_ask(&second, x, other, texts_prompt, 9, &err) == 0);
    /* its prompt enters in two steps, and the first goes on in each */
    for (int i = 0; i < 2; i++) {
        const int before = first.count[0];
        EXPECT(second.pieces == 0 && texts_step(x) && first.count[0] == before + 1);
    }
    while (!second.ended && texts_step(x)) {
    }
    EXPECT(second.ended && !first.ended);
    run_all(x);
    EXPECT(first.ended && first.count[0] == 40);
    texts_close(x);
}

static void many_choices_of_one_request_let_others_pass(void)
{
    struct texts *x = texts_of(folder, 1, 16, 1);
    struct heard many, one;
    struct err err = {0};

    EXPECT(heard_ask(&many, x,
                     "{\"id\":\"m\",\"prompt\":[],\"max_tokens\":9,\"n\":4,\"ignore_eos\":true}",
                     texts_prompt, 9, &err) == 0);
    EXPECT(texts_step(x));
    EXPECT(heard_ask(&one, x, other, texts_prompt, 9, &err) == 0);
    while (!one.ended && texts_step(x)) {
    }
    /* two of the four choices had their turn before, at most */
    EXPECT(one.ended && !many.ended && many.finish[2] == FINISH_NONE);
    run_all(x);
    EXPECT(many.ended && texts_jobs(x) == 0);
    for (int i = 0; i < 4; i++) {
        EXPECT(many.count[i] == 9 && many.finish[i] == FINISH_LENGTH);
    }
    texts_close(x);
}

static void a_listener_that_waits_stops_its_own_text_only(void)
{
    struct texts *x = texts_of(folder, 2, 4, 1);
    struct heard first, second, lone;
    struct err err = {0};

    alone(&lone, asked);
    EXPECT(heard_ask(&first, x, asked, texts_prompt, 9, &err) == 0);
    EXPECT(heard_ask(&second, x, other, texts_prompt, 9, &err) == 0);
    for (int i = 0; i < 5; i++) {
        EXPECT(texts_step(x));
    }
    first.waits = true;
    run_all(x);
    EXPECT(second.ended && !first.ended && texts_jobs(x) == 1);
    first.waits = false;
    run_all(x);
    EXPECT(same_heard(&first, &lone));
    texts_close(x);
}

static void the_seed_decides_and_choices_differ(void)
{
    struct heard one, two, choices;
    struct texts *x = texts_of(folder, 3, 16, 1);
    struct err err = {0};

    alone(&one, "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":30,\"seed\":5}");
    alone(&two, "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":30,\"seed\":6}");
    EXPECT(!same_heard(&one, &two));
    EXPECT(heard_ask(&choices, x,
                     "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":30,\"seed\":5,\"n\":4}",
                     texts_prompt, 9, &err) == 0);
    run_all(x);
    EXPECT(choices.ended && same_heard(&choices, &one));
    for (int i = 1; i < 4; i++) {
        EXPECT(choices.finish[i] != FINISH_NONE);
        EXPECT(strcmp(choices.text[0], choices.text[i]) != 0);
    }
    texts_close(x);
}

/* Every piece of a text as its own stop string: the text then ends right before it. */
static void a_text_ends_before_its_stop_string(void)
{
    struct heard whole, cut;
    char line[400];
    int stopped = 0;

    for (int seed = 0; seed < 12; seed++) {
        (void)snprintf(
            line, sizeof line,
            "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":50,\"temperature\":2,\"seed\":%d,"
            "\"ignore_eos\":true}",
            seed);
        alone(&whole, line);
        size_t at = 0;
        while (at + 3 < whole.bytes[0] &&
               (whole.text[0][at] < '0' || whole.text[0][at + 1] < '0' ||
                whole.text[0][at + 2] < '0' || strchr(whole.text[0] + at, '\\') == NULL)) {
            at++;
        }
        at = at + 3 < whole.bytes[0] ? at : 0;
        char stop[4] = {0};
        memcpy(stop, whole.text[0] + at, 3);
        if (!is_whole(stop, 3) || strpbrk(stop, "\\\"") != NULL) {
            continue;
        }
        (void)snprintf(
            line, sizeof line,
            "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":50,\"temperature\":2,\"seed\":%d,"
            "\"ignore_eos\":true,\"stop\":[\"never so\",\"%s\"]}",
            seed, stop);
        alone(&cut, line);
        const size_t first = (size_t)(strstr(whole.text[0], stop) - whole.text[0]);
        EXPECT(cut.bytes[0] == first && memcmp(cut.text[0], whole.text[0], first) == 0);
        EXPECT(cut.finish[0] == FINISH_STOP && cut.count[0] <= whole.count[0]);
        stopped++;
    }
    EXPECT(stopped >= 6);
}

static size_t certain(const char *text, int *found)
{
    static const char *const stops[3] = {"END", "\n\nUser", "ND of"};

    return stops_certain(stops, 3, text, strlen(text), found);
}

static void what_may_become_a_stop_string_is_held_back(void)
{
    int found = 7;

    EXPECT(certain("hello", &found) == 5 && found == -1);
    EXPECT(certain("hello E", &found) == 6 && found == -1);
    EXPECT(certain("hello EN", &found) == 6 && found == -1);
    EXPECT(certain("hello END of", &found) == 6 && found == 0);
    EXPECT(certain("hello ENd", &found) == 9 && found == -1);
    EXPECT(certain("EEEN", &found) == 2 && found == -1);
    EXPECT(certain("a\n\nUse", &found) == 1 && found == -1);
    EXPECT(certain("a\n\nUsed", &found) == 7 && found == -1);
    EXPECT(certain("", &found) == 0 && found == -1);
}

/* The text of `turn`'s line when its answers are framed as `turn` says. */
static void framed(struct heard *h, const char *line, const struct serve_request *turn)
{
    struct texts *x = texts_of(folder, 1, 64, 1);
    struct serve_request r;
    struct token_list prompt = {0};
    const struct job *j = NULL;
    struct err err = {0};

    heard_init(h);
    CHECK(request_parse(&r, line, strlen(line), &err) == 0, "%s", err.text);
    for (int i = 0; i < 9; i++) {
        CHECK(token_list_put(&prompt, texts_prompt[i], &err) == 0, "%s", err.text);
    }
    r.end = turn->end;
    r.end_text = turn->end_text;
    r.lead = turn->lead;
    r.tail = turn->tail;
    EXPECT(texts_add(x, &j, &r, &prompt, &h->listener, &err) == 0);
    run_all(x);
    EXPECT(h->ended && !h->failed);
    texts_close(x);
}

static bool says(const struct heard *h, const char *text, size_t bytes)
{
    return h->bytes[0] == bytes && memcmp(h->text[0], text, bytes) == 0;
}

/* Tokens 65 to 68 are written in turn, whatever the model would say: each pays once. */
static void what_a_template_writes_around_an_answer_is_no_part_of_it(void)
{
    static const char line[] = "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":4,\"temperature\":0,"
                               "\"logit_bias\":{\"65\":100,\"66\":99,\"67\":98,\"68\":97},"
                               "\"frequency_penalty\":2,\"presence_penalty\":2}";
    struct heard whole, h;
    char lead[2] = {0}, two[3] = {0}, tail[2] = {0}, both[3] = {0};

    alone(&whole, line);
    const char *text = whole.text[0];
    CHECK(whole.count[0] == 4 && whole.bytes[0] == 4 && text[0] != text[2], "%zu bytes",
          whole.bytes[0]);
    lead[0] = two[0] = text[0];
    two[1] = text[1];
    tail[0] = text[2];
    both[0] = text[1];
    both[1] = text[2];
    const int32_t last = whole.made[0][3].id;
    framed(&h, line, &(struct serve_request){.end = -1, .lead = lead, .tail = ""});
    EXPECT(says(&h, text + 1, 3) && h.finish[0] == FINISH_LENGTH);
    framed(&h, line, &(struct serve_request){.end = -1, .lead = two, .tail = ""});
    EXPECT(says(&h, text + 2, 2));
    framed(&h, line, &(struct serve_request){.end = -1, .lead = tail, .tail = ""});
    EXPECT(says(&h, text, 4)); /* another text than the lead is kept */
    framed(&h, line, &(struct serve_request){.end = last, .lead = "", .tail = tail});
    EXPECT(says(&h, text, 2) && h.finish[0] == FINISH_STOP);
    framed(&h, line, &(struct serve_request){.end = last, .lead = "", .tail = lead});
    EXPECT(says(&h, text, 3) && h.finish[0] == FINISH_STOP);
    framed(&h, line, &(struct serve_request){.end = -1, .lead = "", .tail = tail});
    EXPECT(says(&h, text, 4) && h.finish[0] == FINISH_LENGTH);
    framed(&h, line,
           &(struct serve_request){.end = -1, .end_text = both, .lead = lead, .tail = ""});
    EXPECT(says(&h, "", 0) && h.finish[0] == FINISH_STOP);
}

static void the_end_of_a_text_that_begins_a_string_is_found(void)
{
    EXPECT(stops_overlap("", "abc", 3) == 0);
    EXPECT(stops_overlap(" x", "abc ", 4) == 1);
    EXPECT(stops_overlap("aab", "aaa", 3) == 2);
    EXPECT(stops_overlap("aab", "aaab", 4) == 3);
    EXPECT(stops_overlap("abc", "b", 1) == 0);
    EXPECT(stops_overlap("abc", "", 0) == 0);
}

static void pieces_are_whole_characters_and_make_the_text_of_all_tokens(void)
{
    struct tokenizer *t = NULL;
    struct err err = {0};
    struct heard h;
    char line[200];
    int odd = 0;

    CHECK(tokenizer_open(&t, folder, &err) == 0, "%s", err.text);
    for (int seed = 0; seed < 20; seed++) {
        (void)snprintf(
            line, sizeof line,
            "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":50,\"temperature\":2,\"seed\":%d,"
            "\"ignore_eos\":true}",
            seed);
        alone(&h, line);
        int32_t ids[64];
        char *text = NULL;
        size_t bytes = 0;
        memcpy(ids, texts_prompt, sizeof texts_prompt);
        for (int i = 0; i < h.count[0]; i++) {
            ids[9 + i] = h.made[0][i].id;
        }
        EXPECT(h.count[0] == 50 && !h.broken);
        EXPECT(tokenizer_decode(t, &text, &bytes, ids, 59, true, &err) == 0);
        EXPECT(bytes >= h.bytes[0] &&
               memcmp(text + bytes - h.bytes[0], h.text[0], h.bytes[0]) == 0);
        odd += strstr(h.text[0], "\xEF\xBF\xBD") != NULL;
        free(text);
    }
    EXPECT(odd > 5);
    tokenizer_close(t);
}

static void an_echo_gives_the_prompt_and_its_probabilities(void)
{
    struct heard h, later;

    alone(&h, "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":5,\"seed\":1,\"echo\":true,"
              "\"logprobs\":2,\"ignore_eos\":true}");
    EXPECT(h.count[0] == 14 && !h.made[0][0].has_logprobs && h.made[0][1].has_logprobs);
    for (int i = 0; i < 9; i++) {
        EXPECT(h.made[0][i].id == texts_prompt[i]);
    }
    alone(&later, "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":0,\"echo\":true,\"logprobs\":0}");
    EXPECT(later.count[0] == 9 && later.finish[0] == FINISH_LENGTH);
    for (int i = 1; i < 9; i++) {
        EXPECT(later.made[0][i].logprobs.chosen >= h.made[0][i].logprobs.chosen &&
               later.made[0][i].logprobs.chosen <= h.made[0][i].logprobs.chosen);
    }
    alone(&later, "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":0}");
    EXPECT(later.count[0] == 0 && later.finish[0] == FINISH_LENGTH);
}

static void bias_and_penalties_change_the_choice(void)
{
    struct heard h;
    int times = 0;

    alone(&h, "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":20,\"seed\":1,"
              "\"logit_bias\":{\"50\":100}}");
    for (int i = 0; i < 20; i++) {
        EXPECT(h.made[0][i].id == 50);
    }
    /* the likeliest token again and again, unless each time costs */
    alone(&h, "{\"id\":\"a\",\"prompt\":[],\"max_tokens\":20,\"temperature\":0,"
              "\"logit_bias\":{\"50\":6,\"51\":5.9},\"frequency_penalty\":1}");
    for (int i = 0; i < 20; i++) {
        times += h.made[0][i].id == 50;
    }
    EXPECT(times > 2 && times < 12);
}

static void a_cancelled_request_frees_its_slot(void)
{
    struct texts *x = texts_of(folder, 1, 8, 1);
    struct heard first, second;
    struct err err = {0};

    EXPECT(heard_ask(&first, x, asked, texts_prompt, 9, &err) == 0);
    EXPECT(heard_ask(&second, x, other, texts_prompt, 9, &err) == 0);
    EXPECT(texts_step(x) && texts_has(x, &first.listener, "a"));
    EXPECT(texts_cancel(x, &first.listener, "z") == 0);
    EXPECT(texts_cancel(x, &first.listener, "a") == 1);
    EXPECT(!texts_has(x, &first.listener, NULL) && texts_jobs(x) == 1);
    run_all(x);
    EXPECT(!first.ended && second.ended);
    EXPECT(heard_ask(&first, x, asked, texts_prompt, 9, &err) == 0);
    EXPECT(heard_ask(&second, x, other, texts_prompt, 9, &err) == 0);
    EXPECT(texts_cancel(x, &second.listener, NULL) == 1); /* out of the queue */
    run_all(x);
    EXPECT(first.ended && !second.ended);
    EXPECT(heard_ask(&second, x, other, texts_prompt, 9, &err) == 0);
    texts_close(x);
}

static void what_does_not_fit_is_refused_with_the_limits(void)
{
    struct texts *x = texts_of(folder, 1, 8, 1);
    struct heard h;
    struct err err = {0};
    int32_t ids[80] = {1};

    EXPECT(texts_positions(x) == 64 && texts_slots(x) == 1 && texts_bytes(x) > 0);
    EXPECT(heard_ask(&h, x, other, ids, 40, &err) == ERR_BAD_REQUEST);
    EXPECT(strcmp(err.param, "prompt") == 0 && strstr(err.text, "64") != NULL &&
           strstr(err.text, "40") != NULL && strstr(err.text, "25") != NULL);
    EXPECT(heard_ask(&h, x, "{\"id\":\"a\",\"prompt\":[]}", ids, 64, &err) == ERR_BAD_REQUEST);
    EXPECT(heard_ask(&h, x, other, ids, 0, &err) == ERR_BAD_REQUEST);
    ids[0] = 96;
    EXPECT(heard_ask(&h, x, other, ids, 1, &err) == ERR_BAD_REQUEST);
    ids[0] = 1;
    EXPECT(heard_ask(&h, x, "{\"id\":\"a\",\"prompt\":[],\"logit_bias\":{\"96\":1}}", ids, 1,
                     &err) == ERR_BAD_REQUEST &&
           strcmp(err.param, "logit_bias") == 0);
    EXPECT(heard_ask(&h, x, "{\"id\":\"a\",\"prompt\":[],\"ignore_eos\":true}", ids, 60, &err) ==
           0);
    run_all(x);
    EXPECT(h.count[0] == 4 && h.finish[0] == FINISH_LENGTH);
    EXPECT(!texts_step(x));
    texts_close(x);
}

int main(void)
{
    scratch_make();
    texts_folder(folder, case_name);
    RUN(probabilities_are_those_of_a_whole_forward_pass);
    RUN(a_text_does_not_depend_on_what_else_runs);
    RUN(nor_in_bf16);
    RUN(an_adapter_changes_a_text_as_little_by_what_else_runs);
    RUN(a_request_joins_while_others_go_on);
    RUN(many_choices_of_one_request_let_others_pass);
    RUN(a_listener_that_waits_stops_its_own_text_only);
    RUN(the_seed_decides_and_choices_differ);
    RUN(a_text_ends_before_its_stop_string);
    RUN(what_may_become_a_stop_string_is_held_back);
    RUN(what_a_template_writes_around_an_answer_is_no_part_of_it);
    RUN(the_end_of_a_text_that_begins_a_string_is_found);
    RUN(pieces_are_whole_characters_and_make_the_text_of_all_tokens);
    RUN(an_echo_gives_the_prompt_and_its_probabilities);
    RUN(bias_and_penalties_change_the_choice);
    RUN(a_cancelled_request_frees_its_slot);
    RUN(what_does_not_fit_is_refused_with_the_limits);
    scratch_remove();
    return tap_done();
}
