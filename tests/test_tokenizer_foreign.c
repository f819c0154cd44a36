/* test_tokenizer_foreign.c - sentencepiece models and tiktoken files, made here byte by byte. */
#include <stdlib.h>
#include <string.h>

#include "tests/fresh.h"
#include "tests/tap.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/utf8.h"

#define MARK "\xE2\x96\x81"

enum { UNIGRAM = 1, BPE = 2 };
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, BYTE = 6 };

static void put(struct text *t, const char *s, size_t n)
{
    struct err err;
    CHECK(text_put(t, s, n, &err) == 0, "no memory");
}

static void put_varint(struct text *t, uint64_t x)
{
    do {
        const char byte = (char)((x & 0x7FU) | (x > 0x7F ? 0x80U : 0U));
        put(t, &byte, 1);
        x >>= 7;
    } while (x > 0);
}

static void put_number(struct text *t, unsigned field, uint64_t x)
{
    put_varint(t, field << 3);
    put_varint(t, x);
}

static void put_bytes(struct text *t, unsigned field, const char *s, size_t n)
{
    put_varint(t, field << 3 | 2U);
    put_varint(t, n);
    put(t, s, n);
}

static void put_piece(struct text *model, const char *piece, float score, uint64_t type)
{
    struct text inner = {0};

    put_bytes(&inner, 1, piece, strlen(piece));
    put_varint(&inner, 2U << 3 | 5U);
    put(&inner, (const char *)&score, 4);
    if (type != NORMAL) {
        put_number(&inner, 3, type);
    }
    put_bytes(model, 1, inner.at, inner.n);
    text_free(&inner);
}

struct plan {
    uint64_t kind;
    bool fallback, no_prefix, no_spaces, suffix;
    const char *charsmap;
    size_t charsmap_n;
};

static void put_plan(struct text *model, const struct plan *p)
{
    struct text trainer = {0}, normalizer = {0};

    put_number(&trainer, 3, p->kind);
    put_number(&trainer, 35, p->fallback);
    put_number(&trainer, 24, p->suffix);
    put_bytes(model, 2, trainer.at, trainer.n);
    put_bytes(&normalizer, 1, "identity", 8);
    if (p->charsmap_n > 0) {
        put_bytes(&normalizer, 2, p->charsmap, p->charsmap_n);
    }
    put_number(&normalizer, 3, !p->no_prefix);
    put_number(&normalizer, 4, !p->no_spaces);
    put_bytes(model, 3, normalizer.at, normalizer.n);
    text_free(&trainer);
    text_free(&normalizer);
}

static void put_bytes_pieces(struct text *model)
{
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        (void)snprintf(name, sizeof name, "<0x%02X>", b);
        put_piece(model, name, 0.0F, BYTE);
    }
}

static void put_three(struct text *model)
{
    put_piece(model, "<unk>", 0.0F, UNKNOWN);
    put_piece(model, "<s>", 0.0F, CONTROL);
    put_piece(model, "</s>", 0.0F, CONTROL);
}

static struct text bpe_model(bool fallback)
{
    const struct plan plan = {.kind = BPE, .fallback = fallback, .no_spaces = true};
    static const char *const pieces[] = {"ab", MARK "ab", "abc", MARK MARK, MARK, "a", "b", "c"};
    struct text model = {0};

    put_three(&model);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        put_piece(&model, pieces[i], -(float)i, NORMAL);
    }
    put_piece(&model, "[x]", 0.0F, USER);
    if (fallback) {
        put_bytes_pieces(&model);
    }
    put_plan(&model, &plan);
    return model;
}

static struct text unigram_model(const struct plan *plan)
{
    struct text model = {0};

    put_three(&model);
    put_piece(&model, MARK, -3.0F, NORMAL);
    put_piece(&model, MARK "he", -4.0F, NORMAL);
    put_piece(&model, "llo", -4.5F, NORMAL);
    put_piece(&model, MARK "hell", -5.0F, NORMAL);
    put_piece(&model, "o", -4.0F, NORMAL);
    put_piece(&model, "f", -4.0F, NORMAL);
    put_piece(&model, "i", -4.0F, NORMAL);
    put_plan(&model, plan);
    return model;
}

static struct tokenizer *parse(const struct text *file)
{
    struct tokenizer *t;
    struct err err = {0};

    if (tokenizer_parse(&t, file->at, file->n, &err) != 0) {
        printf("# %s\n", err.text);
    }
    EXPECT(t != NULL);
    return t;
}

static bool same_ids(const struct token_list *got, const char *want, const char *text)
{
    char list[256] = "";
    size_t at = 0;

    for (size_t i = 0; i < got->count && at < sizeof list; i++) {
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", i == 0 ? "" : " ",
                               (int)got->ids[i]);
    }
    if (strcmp(list, want) != 0) {
        printf("# '%s' is %s, not %s\n", text, list, want);
    }
    return strcmp(list, want) == 0;
}

struct vector {
    const char *text, *ids, *back; /* back NULL: the text */
};

static void check(const struct tokenizer *t, const struct vector *v, size_t count)
{
    struct encoder *e;
    struct err err = {0};

    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < count; i++) {
        const char *want = v[i].back != NULL ? v[i].back : v[i].text;
        struct token_list ids = {0};
        char *back = NULL;
        size_t n;
        EXPECT(encoder_encode(e, &ids, v[i].text, strlen(v[i].text), 0, &err) == 0);
        EXPECT(same_ids(&ids, v[i].ids, v[i].text));
        EXPECT(tokenizer_decode(t, &back, &n, ids.ids, ids.count, false, &err) == 0);
        if (strcmp(back, want) != 0) {
            printf("# back '%s', not '%s'\n", back, want);
        }
        EXPECT(strcmp(back, want) == 0);
        free(back);
        token_list_free(&ids);
    }
    encoder_close(e);
}

static void a_bpe_model_merges_by_score(void)
{
    static const struct vector vectors[] = {
        {"ab abc", "4 4 10", NULL}, /* "ab" comes before "abc" */
        {"abc", "4 10", NULL},
        {"", "", NULL},
        {"  a", "6 7 8", NULL}, /* the space in front makes three */
        {"a[x]b", "7 8 11 7 9", "a[x] b"},
        {"a<s>", "7 8 1", "a<s>"},
        {"z\xC3\xA9", "7 134 207 181", NULL},
    };
    struct text model = bpe_model(true);
    struct tokenizer *t = parse(&model);

    check(t, vectors, sizeof vectors / sizeof vectors[0]);
    EXPECT(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2 && tokenizer_pad(t) == -1);
    EXPECT(tokenizer_size(t) == 12 + 256 && tokenizer_is_special(t, 1));
    EXPECT(!tokenizer_is_special(t, 11) && tokenizer_find(t, MARK "ab", 5) == 4);
    tokenizer_close(t);
    text_free(&model);
}

static void a_text_gets_bos_as_the_configuration_says(void)
{
    static const struct {
        const char *config, *ids;
    } cases[] = {
        {NULL, "1 7 8"},
        {"{\"add_bos_token\":false}", "7 8"},
        {"{\"add_eos_token\":true}", "1 7 8 2"},
        {"{\"legacy\":false}", "1 7 8"},
        {"{\"added_tokens_decoder\":{\"268\":{\"content\":\"<end>\",\"special\":true}},"
         "\"eos_token\":\"<end>\"}",
         "1 7 8"},
    };
    struct text model = bpe_model(true);
    struct err err = {0};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char dir[256], path[300];
        struct tokenizer *t;
        struct encoder *e;
        struct token_list ids = {0};
        fresh_make(dir);
        (void)snprintf(path, sizeof path, "%s/tokenizer.model", dir);
        put_file(path, model.at, model.n);
        if (cases[i].config != NULL) {
            fresh_write(dir, "tokenizer_config.json", cases[i].config);
        }
        CHECK(tokenizer_open(&t, dir, &err) == 0, "%s", err.text);
        CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
        EXPECT(encoder_encode(e, &ids, "a", 1, TOKENIZER_ADD_SPECIAL, &err) == 0);
        EXPECT(same_ids(&ids, cases[i].ids, "a"));
        EXPECT(tokenizer_eos(t) == (i == 4 ? 268 : 2));
        token_list_free(&ids);
        encoder_close(e);
        tokenizer_close(t);
        fresh_remove(dir);
    }
    text_free(&model);
}

static void a_unigram_model_takes_the_best_sum(void)
{
    static const struct vector plain[] = {
        {"hello", "4 5", NULL}, /* -8.5 beats -9 */
        {" hello  hello ", "4 5 4 5", "hello hello"},
        {"zz o", "3 0 3 7", "<unk> o"}, /* unknown ones in a row are one */
        {"hellzo", "6 0 7", "hell<unk>o"},
    };
    static const struct vector as_is[] = {{"o ", "7 3", NULL}, {" hello", "4 5", NULL}};
    const struct plan unigram = {.kind = UNIGRAM},
                      bare = {.kind = UNIGRAM, .no_prefix = true, .no_spaces = true};
    struct text model = unigram_model(&unigram);
    struct tokenizer *t = parse(&model);

    check(t, plain, sizeof plain / sizeof plain[0]);
    tokenizer_close(t);
    text_free(&model);
    model = unigram_model(&bare);
    t = parse(&model);
    check(t, as_is, sizeof as_is / sizeof as_is[0]);
    tokenizer_close(t);
    text_free(&model);
}

static void put_unit(struct text *t, size_t at, uint32_t unit)
{
    for (int i = 0; i < 4; i++) {
        t->at[4 + 4 * at + (size_t)i] = (char)(unit >> 8 * i & 0xFFU);
    }
}

/* The double array of one string: state k leads to 256 (k + 1), plus the byte. */
static struct text charsmap(const char *from, const char *to)
{
    const size_t n = strlen(from), units = 256 * (n + 2);
    struct text t = {0};
    struct err err;
    size_t at = 0;

    CHECK(text_reserve(&t, 4 + 4 * units, &err) == 0, "no memory");
    t.n = 4 + 4 * units;
    memset(t.at, 0, t.n);
    t.at[0] = (char)(4 * units & 0xFF);
    t.at[1] = (char)(4 * units >> 8);
    put_unit(&t, 0, 256U << 10);
    for (size_t i = 0; i < n; i++) {
        const size_t next = 256 * (i + 1) ^ (unsigned char)from[i];
        const uint32_t offset = (uint32_t)(next ^ 256 * (i + 2));
        put_unit(&t, next, offset << 10 | (i + 1 == n ? 0x100U : 0U) | (unsigned char)from[i]);
        at = next ^ offset;
    }
    put_unit(&t, at, 0x80000000U);
    put(&t, to, strlen(to) + 1);
    return t;
}

static void characters_go_through_the_charsmap(void)
{
    struct text map = charsmap("\xEF\xAC\x81", "fi");
    const struct plan plan = {
        .kind = UNIGRAM, .charsmap = map.at, .charsmap_n = map.n, .no_prefix = true};
    static const struct vector vectors[] = {{"\xEF\xAC\x81o", "8 9 7", "fio"},
                                            {"fi\xEF\xAC\x82", "8 9 0", "fi<unk>"}};
    struct text model = unigram_model(&plan);
    struct tokenizer *t = parse(&model);
    struct encoder *e;
    struct encoded x = {0};
    struct err err;

    check(t, vectors, 2);
    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    EXPECT(encoder_encode_spans(e, &x, "\xEF\xAC\x81o", 4, NULL, 0, &err) == 0);
    EXPECT(x.ids.count == 3 && x.ends[0] == 3 && x.ends[1] == 3 && x.ends[2] == 4);
    encoded_free(&x);
    encoder_close(e);
    tokenizer_close(t);
    text_free(&model);
    text_free(&map);
}

/* Every byte, and then words, as lines of base64; `spoil` in place of line `line` from 0. */
static struct text tiktoken(int line, const char *spoil)
{
    static const char *const words[] = {"aGU=", "bGw=", "aGVsbA==", "aGVsbG8=", "IHc="};
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct text t = {0};

    for (int i = 0; i < 261; i++) {
        char s[64];
        const int b = 255 - i; /* ranks are not bytes */
        if (i == line) {
            (void)snprintf(s, sizeof s, "%s\n", spoil);
        } else if (i < 256) {
            (void)snprintf(s, sizeof s, "%c%c== %d\n", digits[b >> 2], digits[b << 4 & 0x3F], i);
        } else {
            (void)snprintf(s, sizeof s, "%s %d\n", words[i - 256], i);
        }
        put(&t, s, strlen(s));
    }
    return t;
}

static void a_tiktoken_file_merges_by_rank(void)
{
    static const struct vector vectors[] = {
        {"hello", "259", NULL},
        {"hellhe w", "258 256 260", NULL},
        {"\xC3\xA9", "60 86", NULL},
        {"123", "206 205 204", NULL},
    };
    struct text file = tiktoken(-1, "");
    struct tokenizer *t = parse(&file);

    check(t, vectors, sizeof vectors / sizeof vectors[0]);
    EXPECT(tokenizer_size(t) == 261 && tokenizer_bos(t) == -1);
    tokenizer_close(t);
    text_free(&file);
}

static void refuses(const struct text *file, const char *says)
{
    struct tokenizer *t;
    struct err err = {0};

    const int rc = tokenizer_parse(&t, file->at, file->n, &err);
    if (rc != ERR_BAD_FILE || strstr(err.text, says) == NULL) {
        printf("# %d '%s', not '%s'\n", rc, err.text, says);
    }
    EXPECT(rc == ERR_BAD_FILE && t == NULL && strstr(err.text, says) != NULL);
}

static void names_what_is_wrong_in_a_tiktoken_file(void)
{
    static const struct {
        int line;
        const char *spoil, *says;
    } cases[] = {
        {9, "AA==", "line 10 of the tiktoken file is not a token and its rank"},
        {9, "AA== x", "line 10"},
        {9, "AA== 99999999999999999999", "line 10"},
        {9, "A=A= 9", "line 10 of the tiktoken file is no token"},
        {9, " 9", "line 10"},
        {256, "aGU= 0", "line 257 of the tiktoken file has a rank that was there"},
        {0, "AAE= 0", "no token for byte 0xFF"},
        {256, "AA== 256", "two ids"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text file = tiktoken(cases[i].line, cases[i].spoil);
        refuses(&file, cases[i].says);
        text_free(&file);
    }
}

static void names_what_is_wrong_in_a_sentencepiece_model(void)
{
    const struct plan word = {.kind = 3}, suffix = {.kind = UNIGRAM, .suffix = true},
                      map = {.kind = UNIGRAM, .charsmap = "\x08\0\0\0abc", .charsmap_n = 7};
    struct text model = unigram_model(&word);

    refuses(&model, "of kind 3");
    text_free(&model);
    model = unigram_model(&suffix);
    refuses(&model, "white space behind words");
    text_free(&model);
    model = unigram_model(&map);
    refuses(&model, "charsmap of the normalizer is cut short");
    text_free(&model);
    model = bpe_model(false);
    put_piece(&model, "ab", 0.0F, NORMAL);
    refuses(&model, "two ids");
    model.n = 40;
    refuses(&model, "longer than the file");
    text_free(&model);
    put_three(&model);
    put_piece(&model, "\xFF", 0.0F, NORMAL);
    refuses(&model, "piece 3");
    text_free(&model);
    put_three(&model);
    put(&model, "\x0B", 1);
    refuses(&model, "unknown type");
    text_free(&model);
}

/* Every beginning and every changed byte: refused in a sentence, or it is a tokenizer that encodes. */
static void damage_is_survived(void)
{
    struct text map = charsmap("\xEF\xAC\x81", "fi");
    const struct plan plan = {.kind = UNIGRAM, .charsmap = map.at, .charsmap_n = map.n};
    struct text model = unigram_model(&plan);

    for (size_t i = 0; i < model.n; i++) {
        struct tokenizer *t;
        struct encoder *e;
        struct err err = {0};
        struct token_list ids = {0};
        const char kept = model.at[i];
        model.at[i] = (char)(kept ^ (char)(i % 3 == 0 ? 0x81 : 0x04));
        if (tokenizer_parse(&t, model.at, i % 2 == 0 ? model.n : i, &err) == 0) {
            CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
            (void)encoder_encode(e, &ids, " hello \xEF\xAC\x81 zo", 14, 0, &err);
            token_list_free(&ids);
            encoder_close(e);
        } else {
            EXPECT(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
        }
        tokenizer_close(t);
        model.at[i] = kept;
    }
    text_free(&model);
    text_free(&map);
}

static void folders_without_tokenizer_json_open_and_are_saved(void)
{
    static const char *const names[] = {"tokenizer.model", "spiece.model", "my.tiktoken"};

    for (size_t i = 0; i < 3; i++) {
        struct text file = i < 2 ? bpe_model(true) : tiktoken(-1, "");
        char dir[256], copy[256], path[300];
        struct tokenizer *t, *again;
        struct err err = {0};
        fresh_make(dir);
        fresh_make(copy);
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        put_file(path, file.at, file.n);
        fresh_write(dir, "tokenizer_config.json", "{\"eos_token\":\"a\"}");
        CHECK(tokenizer_open(&t, dir, &err) == 0, "%s", err.text);
        EXPECT(tokenizer_save(t, copy, &err) == 0);
        (void)snprintf(path, sizeof path, "%s/tokenizer.model", copy);
        CHECK(tokenizer_open(&again, path, &err) == 0, "%s", err.text);
        EXPECT(strcmp(tokenizer_hash(t), tokenizer_hash(again)) == 0);
        EXPECT(tokenizer_eos(again) == tokenizer_find(t, "a", 1) && tokenizer_eos(t) >= 0);
        tokenizer_close(again);
        tokenizer_close(t);
        fresh_remove(dir);
        fresh_remove(copy);
        text_free(&file);
    }
}

int main(void)
{
    scratch_make();
    RUN(a_bpe_model_merges_by_score);
    RUN(a_text_gets_bos_as_the_configuration_says);
    RUN(a_unigram_model_takes_the_best_sum);
    RUN(characters_go_through_the_charsmap);
    RUN(a_tiktoken_file_merges_by_rank);
    RUN(names_what_is_wrong_in_a_tiktoken_file);
    RUN(names_what_is_wrong_in_a_sentencepiece_model);
    RUN(damage_is_survived);
    RUN(folders_without_tokenizer_json_open_and_are_saved);
    scratch_remove();
    return tap_done();
}
