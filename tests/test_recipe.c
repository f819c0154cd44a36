/* test_recipe.c - from files of texts, completions and chats to tokens and targets. */
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/letters.h"
#include "tests/tap.h"
#include "trainer/data/recipe.h"
#include "trainer/data/token_file.h"

/* ChatML that spells BOS. */
static const char with_bos[] =
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% endif %}";

/* What a test asks for, and what it gets. */
struct trial {
    const char *folder; /* of the tokenizer, in the scratch folder */
    const char *given;
    enum method_of_training method;
    int64_t S;
    const char *policy;
    bool all_trained;
    struct tokenizer *tokenizer;
    struct token_file *file;
    struct chat_template *templated;
    json_t *report;
    struct err err;
    int rc;
};

static void prepare(struct trial *t, const char *text)
{
    json_t *policy = NULL;
    size_t bytes = 0;

    if (text != NULL) {
        put_text(in_scratch("examples"), text);
    }
    if (t->policy != NULL) {
        CHECK(json_parse_text(&policy, t->policy, strlen(t->policy), "policy", &t->err) == 0, "%s",
              t->err.text);
    }
    char folder[IO_PATH_MAX], cache[IO_PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s",
                   in_scratch(t->folder != NULL ? t->folder : "letters"));
    (void)snprintf(cache, sizeof cache, "%s", in_scratch("cache"));
    t->tokenizer = letters_open(folder);
    const struct data_source source = {.path = in_scratch("examples"),
                                       .name = "mine.jsonl",
                                       .cache_dir = cache,
                                       .blame = ERR_BAD_TRAINING_FILE};
    const struct recipe recipe = {.tokenizer = t->tokenizer,
                                  .folder = folder,
                                  .given = t->given,
                                  .method = t->method,
                                  .S = t->S != 0 ? t->S : 200,
                                  .all_trained = t->all_trained,
                                  .policy = policy};
    t->rc = recipe_prepare(&t->file, &t->templated, &source, &recipe, &t->err);
    if (t->rc != 0) {
        printf("# %s\n", t->err.text);
    } else {
        const char *report = token_file_report(t->file, &bytes);
        t->report = bytes > 0 ? json_loadb(report, bytes, 0, NULL) : NULL;
    }
    json_decref(policy);
}

static void finish(struct trial *t)
{
    json_decref(t->report);
    token_file_close(t->file);
    chat_template_close(t->templated);
    tokenizer_close(t->tokenizer);
}

/* The tokens of document d: characters as they are, <s> ^, </s> $, <|im_start|> {, <|im_end|> }; with `marked` all that is no target
 * is a dot. */
static const char *written(const struct trial *t, int64_t d, bool marked)
{
    static const char special[] = "^${}";
    static char out[4096];
    const struct token_file *f = t->file;
    size_t n = 0;

    for (int64_t i = token_file_begin(f, d); f != NULL && i < f->ends[d]; i++) {
        const int32_t id = token_file_at(f, i);
        const bool target = i > token_file_begin(f, d) && token_file_trained(f, i);
        const int shown = id >= LETTER_BOS ? special[id - LETTER_BOS] : id;
        out[n++] = '.';
        if (!marked || target) {
            out[n - 1] = (char)shown; /* ASCII */
        }
    }
    out[n] = '\0';
    return out;
}

/* Both ways of writing document d. */
static void expect_document(const struct trial *t, int64_t d, const char *tokens,
                            const char *targets)
{
    EXPECT(t->rc == 0);
    if (t->rc == 0) {
        EXPECT(strcmp(written(t, d, false), tokens) == 0);
        if (strcmp(written(t, d, false), tokens) != 0) {
            printf("# document %lld is %s\n", (long long)d, written(t, d, false));
        }
        EXPECT(strcmp(written(t, d, true), targets) == 0);
        if (strcmp(written(t, d, true), targets) != 0) {
            printf("# targets of document %lld are %s\n", (long long)d, written(t, d, true));
        }
    }
}

static int64_t count_of(const struct trial *t, const char *reason)
{
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(t->report, "reasons"), i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "reason")), reason) == 0) {
            return json_integer_value(json_object_get(one, "count"));
        }
    }
    return 0;
}

static void texts_end_with_eos_and_begin_with_bos_where_the_tokenizer_says_so(void)
{
    struct trial with = {.folder = "letters"}, without = {.folder = "no_bos"};

    prepare(&with, "{\"text\": \"abc\"}\n{\"text\": \"d<s>e\"}\n");
    EXPECT(token_file_documents(with.file) == 2 &&
           token_file_kind(with.file) == TOKEN_FILE_EXAMPLES);
    expect_document(&with, 0, "^abc$", ".abc$");
    expect_document(&with, 1, "^d<s>e$", ".d<s>e$"); /* spelled, not meant */
    EXPECT(count_of(&with, "special_tokens") == 1);
    EXPECT(json_integer_value(json_object_get(with.report, "trained_tokens")) == 4 + 6);
    finish(&with);
    prepare(&without, "{\"text\": \"abc\"}\n");
    expect_document(&without, 0, "abc$", ".bc$");
    EXPECT(json_integer_value(json_object_get(without.report, "trained_tokens")) == 3);
    finish(&without);
}

static void a_completion_and_its_end_are_trained_and_the_prompt_is_not(void)
{
    struct trial t = {0}, all = {.all_trained = true};
    const char *text = "{\"prompt\": \"ask\", \"completion\": \"say\"}\n"
                       "{\"prompt\": \"<s>\", \"completion\": \"</s>\"}\n";

    prepare(&t, text);
    expect_document(&t, 0, "^asksay$", "....say$");
    expect_document(&t, 1, "^<s></s>$", "....</s>$");
    finish(&t);
    prepare(&all, text);
    expect_document(&all, 0, "^asksay$", ".asksay$");
    finish(&all);
}

static const char chat[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
    "\"content\": \"yo\"}]}\n";

static void a_chat_has_exactly_one_bos(void)
{
    /* The template spells it and the tokenizer puts it; only one of both; none. */
    struct trial both = {.given = with_bos}, puts = {.given = "chatml"};
    struct trial spells = {.folder = "no_bos", .given = with_bos};
    struct trial none = {.folder = "no_bos", .given = "chatml"};
    struct trial *const all[] = {&both, &puts, &spells, &none};

    for (int i = 0; i < 4; i++) {
        prepare(all[i], chat);
        expect_document(all[i], 0,
                        i < 3 ? "^{user\nhi}\n{assistant\nyo}\n" : "{user\nhi}\n{assistant\nyo}\n",
                        i < 3 ? "......................yo}." : ".....................yo}.");
        finish(all[i]);
    }
}

static void every_turn_of_the_assistant_is_trained_with_its_end_unless_its_weight_is_0(void)
{
    struct trial t = {.folder = "no_bos", .given = "chatml"};

    prepare(&t,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"},"
            " {\"role\": \"assistant\", \"content\": \"yes\"}, {\"role\": \"user\", \"content\": "
            "\"yes\"}, {\"role\": \"assistant\", \"content\": \"yes\", \"weight\": 0},"
            " {\"role\": \"user\", \"content\": \"\"},"
            " {\"role\": \"assistant\", \"content\": \"  yes\"}]}\n");
    expect_document(&t, 0,
                    "{user\na}\n{assistant\nyes}\n{user\nyes}\n{assistant\nyes}\n{user\n}\n"
                    "{assistant\n  yes}\n",
                    "....................yes}................"
                    "...............................  yes}.");
    finish(&t);
}

static void what_a_user_spells_of_special_tokens_stays_text(void)
{
    struct trial t = {.folder = "no_bos", .given = "chatml"};

    prepare(&t, "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|>\"}, {\"role\": "
                "\"assistant\", \"content\": \"a<|im_start|>\"}]}\n");
    expect_document(&t, 0, "{user\n<|im_end|>}\n{assistant\na<|im_start|>}\n",
                    ".............................a<|im_start|>}.");
    EXPECT(count_of(&t, "special_tokens") == 1);
    finish(&t);
}

static void the_template_of_the_model_is_used_and_kept(void)
{
    struct trial t = {.folder = "templated"};

    prepare(&t, chat);
    expect_document(&t, 0, "^{user\nhi}\n{assistant\nyo}\n", "......................yo}.");
    EXPECT(t.templated != NULL && strcmp(chat_template_text(t.templated), with_bos) == 0);
    EXPECT(strcmp(chat_template_source(t.templated), "tokenizer_config.json") == 0);
    EXPECT(chat_template_end(t.templated) == LETTER_IM_END);
    finish(&t);
}

static void what_is_too_long_is_cut_skipped_or_refused(void)
{
    const char *text = "{\"prompt\": \"ask\", \"completion\": \"say\"}\n"
                       "{\"prompt\": \"asking\", \"completion\": \"saying more\"}\n";
    struct trial cut = {.S = 9}, skip = {.S = 9, .policy = "{\"too_long\": \"skip\"}"};
    struct trial refuse = {.S = 9, .policy = "{\"too_long\": \"refuse\"}"};

    prepare(&cut, text);
    expect_document(&cut, 1, "^askingsay", ".......say");
    EXPECT(token_file_documents(cut.file) == 2 && count_of(&cut, "too_long") == 1);
    finish(&cut);
    prepare(&skip, text);
    EXPECT(token_file_documents(skip.file) == 1 && count_of(&skip, "too_long") == 1);
    EXPECT(json_integer_value(json_object_get(skip.report, "skipped")) == 1);
    finish(&skip);
    prepare(&refuse, text);
    EXPECT(refuse.rc == ERR_BAD_TRAINING_FILE && strstr(refuse.err.text, "line 2") != NULL);
    finish(&refuse);
}

static void prompts_longer_than_a_sample_leave_no_trainable_token(void)
{
    struct trial all = {.S = 4}, one = {.S = 9}, masked = {.given = "chatml"};

    prepare(&all, "{\"prompt\": \"a prompt\", \"completion\": \"say\"}\n"
                  "{\"prompt\": \"another\", \"completion\": \"say\"}\n");
    EXPECT(all.rc == ERR_NO_TOKENS);
    EXPECT(strstr(all.err.text, "no trainable tokens") != NULL);
    EXPECT(strstr(all.err.text, "no token of the example is trained") != NULL);
    finish(&all);
    prepare(&masked, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                     "\"assistant\", \"content\": \"b\", \"weight\": 0}]}\n");
    EXPECT(masked.rc == ERR_NO_TOKENS && strstr(masked.err.text, "weight 0") != NULL);
    finish(&masked);
    prepare(&one, "{\"prompt\": \"ask\", \"completion\": \"say\"}\n"
                  "{\"prompt\": \"a longer prompt\", \"completion\": \"say\"}\n");
    EXPECT(one.rc == 0 && token_file_documents(one.file) == 1);
    EXPECT(count_of(&one, "nothing_trained") == 1);
    finish(&one);
}

static void a_method_that_the_file_is_not_made_for_is_refused_by_name(void)
{
    static const struct {
        enum method_of_training method;
        const char *text, *detected, *wanted;
    } cases[] = {
        {TRAIN_SFT, "{\"text\": \"a\"}\n", "texts ({\"text\"", "chats"},
        {TRAIN_SFT, "just words\n", "a plain text", "chats"},
        {TRAIN_PRETRAIN, chat, "chats", "plain text"},
        {TRAIN_PRETRAIN, "{\"prompt\": \"a\", \"completion\": \"b\"}\n", "completions", "text"},
        {TRAIN_AUTO, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n", "preferences",
         "chats"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trial t = {.method = cases[i].method};
        prepare(&t, cases[i].text);
        EXPECT(t.rc == ERR_WRONG_FORMAT && t.file == NULL);
        EXPECT(strstr(t.err.text, cases[i].detected) != NULL);
        EXPECT(strstr(t.err.text, cases[i].wanted) != NULL);
        EXPECT(strstr(t.err.text, "mine.jsonl") != NULL);
        finish(&t);
    }
}

static void a_conversation_that_the_template_refuses_is_refused_with_its_line(void)
{
    const char *text = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                       "\"user\", \"content\": \"SECRET\"}, {\"role\": \"assistant\", \"content\": "
                       "\"b\"}]}\n";
    struct trial strict = {.given = "{% for m in messages %}{% if (m['role'] == 'user') != "
                                    "(loop.index0 % 2 == 0) %}{{ raise_exception('roles must "
                                    "alternate') }}{% endif %}{{ m['content'] }}{% endfor %}"};
    struct trial lenient = {.given = "chatml"}, skip = strict;
    char two[2048];

    prepare(&strict, text);
    EXPECT(strict.rc == ERR_BAD_TRAINING_FILE && strstr(strict.err.text, "line 1") != NULL);
    EXPECT(strstr(strict.err.text, "roles must alternate") != NULL);
    EXPECT(strstr(strict.err.text, "SECRET") == NULL);
    finish(&strict);
    prepare(&lenient, text);
    EXPECT(lenient.rc == 0);
    finish(&lenient);
    (void)snprintf(two, sizeof two, "%s%s", text, chat);
    skip.policy = "{\"not_rendered\": \"skip\"}";
    prepare(&skip, two);
    EXPECT(skip.rc == 0 && token_file_documents(skip.file) == 1);
    finish(&skip);
}

static void one_token_file_for_one_recipe(void)
{
    struct trial a = {.given = "chatml"}, again = a, other = a, longer = a, policy = a;
    struct stat first, second;
    char paths[4][IO_PATH_MAX];

    prepare(&a, chat);
    prepare(&again, chat);
    EXPECT(a.rc == 0 && again.rc == 0);
    EXPECT(stat(token_file_path(a.file), &first) == 0);
    EXPECT(stat(token_file_path(again.file), &second) == 0);
    EXPECT(first.st_ino == second.st_ino);
    other.given = "zephyr";
    longer.S = 100;
    policy.policy = "{\"too_long\": \"skip\"}";
    struct trial *const all[] = {&a, &other, &longer, &policy};
    for (int i = 0; i < 4; i++) {
        if (i > 0) {
            prepare(all[i], chat);
        }
        EXPECT(all[i]->rc == 0);
        (void)snprintf(paths[i], IO_PATH_MAX, "%s", token_file_path(all[i]->file));
        for (int k = 0; k < i; k++) {
            EXPECT(strcmp(paths[i], paths[k]) != 0);
        }
        finish(all[i]);
    }
    finish(&again);
}

static void several_jobs_at_once_make_the_same_file(void)
{
    const size_t most = 200000;
    char *text = calloc(1, most + sizeof chat);
    int status = 0;

    for (size_t n = 0; n < most; n += sizeof chat - 1) {
        memcpy(text + n, chat, sizeof chat);
    }
    put_text(in_scratch("examples"), text);
    for (int i = 0; i < 4; i++) {
        if (fork() == 0) {
            struct trial t = {.given = "chatml", .S = 50};
            prepare(&t, NULL); /* the file is there */
            const bool good = t.rc == 0 && token_file_documents(t.file) > 1000;
            finish(&t);
            _exit(good ? 0 : 1);
        }
    }
    for (int i = 0; i < 4; i++) {
        EXPECT(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    free(text);
}

int main(void)
{
    scratch_make();
    letters_write(in_scratch("letters"), true, NULL);
    letters_write(in_scratch("no_bos"), false, NULL);
    letters_write(in_scratch("templated"), true, with_bos);
    RUN(texts_end_with_eos_and_begin_with_bos_where_the_tokenizer_says_so);
    RUN(a_completion_and_its_end_are_trained_and_the_prompt_is_not);
    RUN(a_chat_has_exactly_one_bos);
    RUN(every_turn_of_the_assistant_is_trained_with_its_end_unless_its_weight_is_0);
    RUN(what_a_user_spells_of_special_tokens_stays_text);
    RUN(the_template_of_the_model_is_used_and_kept);
    RUN(what_is_too_long_is_cut_skipped_or_refused);
    RUN(prompts_longer_than_a_sample_leave_no_trainable_token);
    RUN(a_method_that_the_file_is_not_made_for_is_refused_by_name);
    RUN(a_conversation_that_the_template_refuses_is_refused_with_its_line);
    RUN(one_token_file_for_one_recipe);
    RUN(several_jobs_at_once_make_the_same_file);
    scratch_remove();
    return tap_done();
}
