/* test_tokenizer_files.c - damaged and foreign tokenizer.json files, and what lies beside a good one. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fresh.h"
#include "tests/tap.h"
#include "trainer/tokenizer/tokenizer.h"

/* A good file in parts, so that each test can spoil one of them. */
#define VOCAB             "{\"a\":0,\"b\":1,\"ab\":2,\" \":3,\"<s>\":4}"
#define MODEL             "{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[\"a b\"]}"
#define WITH(key, value)  "{\"model\":" MODEL ",\"" key "\":" value "}"
#define WITH_MODEL(model) "{\"model\":" model "}"
#define SPLIT(regex)                                      \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"

static bool one_sentence(const char *text)
{
    return text[0] != '\0' && strchr(text, '\n') == NULL && strlen(text) < 390;
}

static void refuses(const char *json, size_t n, const char *says)
{
    struct tokenizer *t;
    struct err err = {0};

    const int rc = tokenizer_parse(&t, json, n, &err);
    if (rc != ERR_BAD_FILE || strstr(err.text, says) == NULL || !one_sentence(err.text)) {
        printf("# %d '%s', not '%s', for %.100s\n", rc, err.text, says, json);
    }
    EXPECT(rc == ERR_BAD_FILE && t == NULL);
    EXPECT(strstr(err.text, says) != NULL && one_sentence(err.text));
    tokenizer_close(t);
}

static void accepts(const char *json)
{
    struct tokenizer *t;
    struct err err = {0};

    if (tokenizer_parse(&t, json, strlen(json), &err) != 0) {
        printf("# %s for %.100s\n", err.text, json);
    }
    EXPECT(t != NULL);
    tokenizer_close(t);
}

static void names_what_is_wrong(void)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"", "not JSON"},
        {"nonsense", "not JSON"},
        {"[]", "not a JSON object"},
        {"{}", "'model'"},
        {"{\"model\":7}", "'model'"},
        {WITH_MODEL("{\"type\":\"WordPiece\"}"), "the model 'WordPiece' is not supported"},
        {WITH_MODEL("{\"type\":\"Unigram\"}"), "no list 'vocab'"},
        {WITH_MODEL("{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}"), "piece 1 is not a pair"},
        {WITH_MODEL("{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"a\",1]]}"), "two ids"},
        {WITH_MODEL("{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}"), "'unk_id'"},
        {WITH_MODEL("{\"type\":\"Unigram\",\"vocab\":[]}"), "empty"},
        {WITH_MODEL("{\"type\":3}"), "model"},
        {WITH_MODEL("{\"type\":\"BPE\"}"), "'vocab'"},
        {WITH_MODEL("{\"type\":\"BPE\",\"vocab\":7,\"merges\":[]}"), "'vocab'"},
        {WITH_MODEL("{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}"), "empty"},
        {WITH_MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0}}"), "'merges'"},
        {WITH_MODEL("{\"vocab\":{\"a\":\"0\"},\"merges\":[]}"), "token 'a' is not an integer"},
        {WITH_MODEL("{\"vocab\":{\"a\":-1},\"merges\":[]}"), "id -1"},
        {WITH_MODEL("{\"vocab\":{\"a\":4000000000},\"merges\":[]}"), "id 4000000000"},
        {WITH_MODEL("{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"), "the same id 0"},
        {WITH_MODEL("{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}"), "duplicate"},
        {WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[\"a c\"]}"), "merge 1 uses 'c'"},
        {WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[\"a b\",\"b a\"]}"), "merge 2 makes 'ba'"},
        {WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[\"ab\"]}"), "merge 1 is not a pair"},
        {WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[\"a b c\"]}"), "merge 1 is not a pair"},
        {WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[[\"a\"]]}"), "merge 1 is not a pair"},
        {WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[[\"a\",1]]}"), "merge 1 is not a pair"},
        {WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[null]}"), "merge 1 is not a pair"},
        {WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[],\"dropout\":0.1}"), "dropout"},
        {WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[],\"unk_token\":4}"), "'unk_token'"},
        {WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[],\"fuse_unk\":1}"), "'fuse_unk'"},
        {WITH("normalizer", "{\"type\":\"Uppercase\"}"),
         "the normalizer 'Uppercase' is not supported"},
        {WITH("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"}"),
         "not base64"},
        {WITH("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}"),
         "cut short"},
        {WITH("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAAD/\"}"),
         "not UTF-8"},
        {WITH("normalizer", "{\"type\":\"Sequence\"}"), "'normalizers'"},
        {WITH("normalizer", "7"), "normalizer is not an object"},
        {WITH("normalizer", "{}"), "normalizer has no type"},
        {WITH("normalizer", "{\"type\":\"Prepend\"}"), "'prepend'"},
        {WITH("normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}"), "'content'"},
        {WITH("normalizer", "{\"type\":\"Replace\",\"pattern\":{},\"content\":\"\"}"), "pattern"},
        {WITH("pre_tokenizer", "{\"type\":\"UnicodeScripts\"}"),
         "the pre_tokenizer 'UnicodeScripts'"},
        {WITH("pre_tokenizer",
              "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"X\"}"),
         "behavior 'X'"},
        {WITH("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"}}"), "behavior"},
        {WITH("pre_tokenizer", SPLIT("(a")), "'(a' is not a regular expression"},
        {WITH("pre_tokenizer", SPLIT("[a")), "']'"},
        {WITH("pre_tokenizer", SPLIT("a\\\\")), "backslash"},
        {WITH("pre_tokenizer", SPLIT("\\\\p{Nonsense}")), "not a regular expression"},
        {WITH("pre_tokenizer", SPLIT("[a&&b]")), "intersection"},
        {WITH("pre_tokenizer", SPLIT("(*ACCEPT)")), "verb"},
        {WITH("pre_tokenizer", SPLIT("((((a{1,999}){1,999}){1,999}){1,999}){1,999}")),
         "regular expression"},
        {WITH("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"), "one character"},
        {WITH("pre_tokenizer", "{\"type\":\"Metaspace\",\"prepend_scheme\":\"last\"}"), "'last'"},
        {WITH("post_processor", "{\"type\":\"Other\"}"), "the post_processor 'Other'"},
        {WITH("post_processor", "{\"type\":\"BertProcessing\"}"), "'cls' of the post_processor"},
        {WITH("post_processor",
              "{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",9]}"),
         "'sep' of the post_processor"},
        {WITH("post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[]}"),
         "leaves out the text"},
        {WITH("post_processor",
              "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}]}"),
         "no ids"},
        {WITH("post_processor",
              "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}],"
              "\"special_tokens\":{\"<s>\":{\"ids\":[99]}}}"),
         "outside the vocabulary"},
        {WITH("post_processor",
              "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{}},{\"Sequence\":{}}]}"),
         "item 2"},
        {WITH("decoder", "{\"type\":\"CTC\"}"), "the decoder 'CTC' is not supported"},
        {WITH("decoder", "{\"type\":\"Strip\",\"content\":\"ab\",\"start\":0,\"stop\":0}"),
         "one character"},
        {WITH("decoder", "{\"type\":\"Strip\",\"content\":\"a\",\"start\":-1,\"stop\":0}"),
         "'start'"},
        {WITH("added_tokens", "7"), "'added_tokens'"},
        {WITH("added_tokens", "[7]"), "'content'"},
        {WITH("added_tokens", "[{\"id\":\"x\",\"content\":\"y\"}]"), "'y'"},
        {WITH("added_tokens", "[{\"id\":1,\"content\":\"y\"}]"), "the same id 1"},
        {WITH("added_tokens", "[{\"id\":7,\"content\":\"y\"},{\"id\":7,\"content\":\"z\"}]"),
         "the same id 7"},
        {WITH("added_tokens", "[{\"id\":7,\"content\":\"y\",\"lstrip\":\"no\"}]"), "'lstrip'"},
        {"{\"model\":" MODEL ",\"x\":\"\xFF\"}", "not UTF-8"},
        {"{\"model\":" MODEL ",\"x\":\"\\ud800\"}", "not JSON"},
    };
    accepts(WITH("version", "\"1.0\""));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refuses(cases[i].json, strlen(cases[i].json), cases[i].says);
    }
}

static void refuses_every_beginning_of_a_file(void)
{
    const char json[] = WITH("pre_tokenizer", SPLIT("a+"));

    accepts(json);
    for (size_t n = 0; n + 1 < sizeof json; n++) {
        refuses(json, n, "not JSON");
    }
}

static char *repeat(const char *head, const char *part, size_t times, const char *tail, size_t *n)
{
    char *s = NULL;
    FILE *f = open_memstream(&s, n);

    CHECK(f != NULL, "no memory");
    (void)fputs(head, f);
    for (size_t i = 0; i < times; i++) {
        (void)fputs(part, f);
    }
    (void)fputs(tail, f);
    CHECK(fclose(f) == 0, "no memory");
    return s;
}

static void nesting_and_length_are_bounded(void)
{
    static const struct {
        const char *head, *part, *tail, *says;
        size_t times;
    } cases[] = {
        {"", "[", "", "not JSON", 200000},
        {"", "{\"a\":", "", "not JSON", 200000},
        {"{\"model\":" MODEL ",\"normalizer\":", "{\"type\":\"Sequence\",\"normalizers\":[", "]}}",
         "not JSON", 200000},
        {"{\"model\":" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
         "\"pattern\":{\"Regex\":\"",
         "(a|b)*", "\"}}}", "longer than", 1000000},
        {"{\"model\":" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
         "\"pattern\":{\"Regex\":\"",
         "(", "\"}}}", "nested too deeply", 60000},
        {"{\"model\":" MODEL ",\"added_tokens\":[{\"id\":9,\"content\":\"", "x", "\"}]}",
         "longer than 1024 bytes", 2000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n;
        char *json = repeat(cases[i].head, cases[i].part, cases[i].times, cases[i].tail, &n);
        refuses(json, n, cases[i].says);
        free(json);
    }
    /* Sequences in Sequences, as many as are written out. */
    size_t n;
    char *inner =
        repeat("", "{\"type\":\"Sequence\",\"normalizers\":[", 20, "{\"type\":\"NFC\"}", &n);
    char *whole = repeat(inner, "]}", 20, "}", &n);
    char *json = repeat("{\"model\":" MODEL ",\"normalizer\":", whole, 1, "", &n);
    refuses(json, n, "nested more than 16 deep");
    free(inner);
    free(whole);
    free(json);
}

static int encode(const char *json, const char *text, size_t n, struct token_list *out,
                  struct err *err)
{
    struct tokenizer *t;
    struct encoder *e = NULL;

    int rc = tokenizer_parse(&t, json, strlen(json), err);
    EXPECT(rc == 0);
    if (rc == 0) {
        rc = encoder_open(&e, t, err);
    }
    if (rc == 0) {
        rc = encoder_encode(e, out, text, n, 0, err);
    }
    encoder_close(e);
    tokenizer_close(t);
    return rc;
}

static void a_pattern_that_backtracks_for_ever_is_stopped(void)
{
    struct token_list out = {0};
    struct err err = {0};
    char text[200];

    memset(text, 'a', sizeof text);
    EXPECT(encode(WITH("pre_tokenizer", SPLIT("(a+)+$|(a|a)*c")), text, sizeof text, &out, &err) ==
               0 ||
           err.code == ERR_BAD_FILE);
    out.count = 0;
    text[199] = 'b';
    EXPECT(encode(WITH("pre_tokenizer", SPLIT("(?:a|aa)+$")), text, sizeof text, &out, &err) ==
           ERR_BAD_FILE);
    EXPECT(strstr(err.text, "too many steps") != NULL && one_sentence(err.text));
    EXPECT(out.count == 0);
    token_list_free(&out);
}

static void one_word_of_ten_megabytes_is_encoded(void)
{
    const size_t n = 10 << 20;
    struct token_list out = {0};
    struct err err = {0};
    char *text = malloc(n);

    memset(text, 'a', n);
    EXPECT(encode(WITH_MODEL("{\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2,\"aaaaaaaa\":3},\"merges\":"
                             "[\"a a\",\"aa aa\",\"aaaa aaaa\"]}"),
                  text, n, &out, &err) == 0);
    EXPECT(out.count == n / 8 && out.ids[0] == 3 && out.ids[out.count - 1] == 3);
    out.count = 0;
    for (size_t i = 0; i < n; i++) {
        text[i] = "ab "[i * 7 % 13 % 3];
    }
    EXPECT(encode("{\"model\":" MODEL "}", text, n, &out, &err) == 0);
    EXPECT(out.count > n / 3);
    token_list_free(&out);
    free(text);
}

static void refuses_text_that_is_not_utf8(void)
{
    struct token_list out = {0};
    struct err err = {0};

    EXPECT(encode("{\"model\":" MODEL "}", "ab\xC3", 3, &out, &err) == ERR_BAD_FILE);
    EXPECT(strstr(err.text, "byte 3 of 3 is not UTF-8") != NULL);
    EXPECT(encode(WITH_MODEL("{\"vocab\":" VOCAB ",\"merges\":[],\"unk_token\":\"?\"}"), "abc", 3,
                  &out, &err) == ERR_BAD_FILE);
    EXPECT(strstr(err.text, "'c' is not in the vocabulary") != NULL);
    EXPECT(out.count == 0);
    token_list_free(&out);
}

static struct tokenizer *open_folder(const char *dir, int want, const char *says)
{
    struct tokenizer *t;
    struct err err = {0};

    const int rc = tokenizer_open(&t, dir, &err);
    if (rc != want) {
        printf("# %d: %s\n", rc, err.text);
    }
    EXPECT(rc == want && (rc == 0 || strstr(err.text, says) != NULL));
    return t;
}

#define THREE                                                           \
    "{\"model\":" MODEL ",\"added_tokens\":[{\"id\":5,\"content\":\"</" \
    "s>\",\"special\":true},{\"id\":4,\"content\":\"<s>\",\"special\":true}]}"

static void special_tokens_come_from_the_files_beside_it(void)
{
    char dir[256];
    struct tokenizer *t;

    fresh_make(dir);
    fresh_write(dir, "tokenizer.json", THREE);
    t = open_folder(dir, 0, "");
    EXPECT(tokenizer_eos(t) == 5 && tokenizer_bos(t) == -1 && tokenizer_pad(t) == -1);
    EXPECT(tokenizer_size(t) == 6);
    tokenizer_close(t);
    fresh_write(dir, "config.json",
                "{\"bos_token_id\":0,\"eos_token_id\":[1,2],\"pad_token_id\":77}");
    t = open_folder(dir, 0, "");
    EXPECT(tokenizer_bos(t) == 0 && tokenizer_eos(t) == 1 && tokenizer_pad(t) == -1);
    tokenizer_close(t);
    fresh_write(dir, "generation_config.json", "{\"eos_token_id\":[2,3]}");
    t = open_folder(dir, 0, "");
    EXPECT(tokenizer_eos(t) == 2 && tokenizer_stops(t, 3) && !tokenizer_stops(t, 1));
    tokenizer_close(t);
    fresh_write(dir, "special_tokens_map.json",
                "{\"eos_token\":{\"content\":\"</s>\"},\"bos_token\":\"<s>\"}");
    t = open_folder(dir, 0, "");
    EXPECT(tokenizer_eos(t) == 5 && tokenizer_bos(t) == 4 && tokenizer_stops(t, 2));
    tokenizer_close(t);
    /* model_max_length as Hugging Face writes it for "no limit": more than 64 bits. */
    fresh_write(dir, "tokenizer_config.json",
                "{\"bos_token\":null,\"eos_token\":\"<s>\",\"model_max_length\":"
                "1000000000000000019884624838656}");
    t = open_folder(dir, 0, "");
    EXPECT(tokenizer_eos(t) == 4 && tokenizer_bos(t) == -1);
    tokenizer_close(t);
    fresh_write(dir, "tokenizer_config.json", "{\"bos_token\":");
    EXPECT(open_folder(dir, ERR_BAD_FILE, "tokenizer_config.json") == NULL);
    fresh_remove(dir);
}

static void opens_files_and_folders_and_says_what_is_missing(void)
{
    char dir[256], path[300];
    struct tokenizer *t;

    fresh_make(dir);
    EXPECT(open_folder(dir, ERR_NOT_FOUND, "tokenizer.json") == NULL);
    EXPECT(open_folder("/nowhere/at/all", ERR_NOT_FOUND, "/nowhere/at/all") == NULL);
    fresh_write(dir, "other.json", THREE);
    (void)snprintf(path, sizeof path, "%s/other.json", dir);
    t = open_folder(path, 0, "");
    tokenizer_close(t);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    EXPECT(mkfifo(path, 0600) == 0);
    EXPECT(open_folder(dir, ERR_IO, "tokenizer.json") == NULL);
    fresh_remove(dir);
}

static void saves_the_files_it_was_opened_from(void)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "merges.txt",
                                        "chat_template.jinja"};
    char dir[256], copy[256];
    struct tokenizer *t;
    struct err err = {0};

    fresh_make(dir);
    fresh_make(copy);
    fresh_write(dir, "tokenizer.json", THREE);
    fresh_write(dir, "tokenizer_config.json", "{\"eos_token\" :  \"<s>\"}\n");
    fresh_write(dir, "merges.txt", "#version: 0.2\na b\n");
    fresh_write(dir, "chat_template.jinja", "{{ messages }}");
    fresh_write(dir, "model.safetensors", "not the tokenizer's");
    t = open_folder(dir, 0, "");
    EXPECT(tokenizer_save(t, copy, &err) == 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *a = fresh_read(dir, names[i]), *b = fresh_read(copy, names[i]);
        EXPECT(a[0] != '\0' && strcmp(a, b) == 0);
        free(a);
        free(b);
    }
    char *weights = fresh_read(copy, "model.safetensors");
    EXPECT(weights[0] == '\0');
    free(weights);
    struct tokenizer *again = open_folder(copy, 0, "");
    EXPECT(strcmp(tokenizer_hash(t), tokenizer_hash(again)) == 0);
    tokenizer_close(again);
    EXPECT(tokenizer_save(t, "/nowhere/at/all", &err) == ERR_IO);
    tokenizer_close(t);
    fresh_remove(dir);
    fresh_remove(copy);
}

int main(void)
{
    scratch_make();
    RUN(names_what_is_wrong);
    RUN(refuses_every_beginning_of_a_file);
    RUN(nesting_and_length_are_bounded);
    RUN(a_pattern_that_backtracks_for_ever_is_stopped);
    RUN(one_word_of_ten_megabytes_is_encoded);
    RUN(refuses_text_that_is_not_utf8);
    RUN(special_tokens_come_from_the_files_beside_it);
    RUN(opens_files_and_folders_and_says_what_is_missing);
    RUN(saves_the_files_it_was_opened_from);
    scratch_remove();
    return tap_done();
}
