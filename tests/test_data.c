/* test_data.c - texts to token files, sets, order, batches, readers. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tap.h"
#include "trainer/base/io.h"
#include "trainer/data/data.h"
#include "trainer/ramp.h"

static char folder[] = "/tmp/hone-data-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *name, const char *bytes, size_t n)
{
    struct err err = {0};
    EXPECT(io_write_file(in_folder(name), bytes, n, &err) == 0);
}

/* 256 bytes, a few merges, <|endoftext|>. */
static struct tokenizer *small_tokenizer(void)
{
    static struct tokenizer *t;
    const struct bpe_options o = {.vocab_size = 300};
    struct err err = {0};
    const char text[] = "the cat and the dog and the hen sat on the mat that the man had.\n"
                        "\xE5\x8D\x83\xE9\x87\x8C\xE4\xB9\x8B\xE8\xA1\x8C "
                        "\xE5\x8D\x83\xE9\x87\x8C\xE4\xB9\x8B\xE8\xA1\x8C\r\n";

    if (t == NULL) {
        write_text("train", text, sizeof text - 1);
        EXPECT(bpe_train(&t, in_folder("train"), &o, &err) == 0);
    }
    return t;
}

static int prepare(struct token_file **out, const char *name, struct err *err)
{
    static char path[256], cache[256];
    const struct data_source s = {
        .path = path, .name = name, .cache_dir = cache, .blame = ERR_BAD_TRAINING_FILE};

    (void)snprintf(path, sizeof path, "%s", in_folder(name));
    (void)snprintf(cache, sizeof cache, "%s", in_folder("cache"));
    return data_prepare(out, &s, small_tokenizer(), err);
}

static struct token_list encode(const char *text, size_t n)
{
    struct token_list ids = {0};
    struct encoder *e;
    struct err err;

    EXPECT(encoder_open(&e, small_tokenizer(), &err) == 0);
    EXPECT(encoder_encode(e, &ids, text, n, 0, &err) == 0);
    encoder_close(e);
    return ids;
}

static bool holds(const struct token_file *f, const struct token_list *ids)
{
    bool same = token_file_count(f) == (int64_t)ids->count + 1;

    for (size_t i = 0; same && i < ids->count; i++) {
        same = token_file_at(f, (int64_t)i) == ids->ids[i];
    }
    return same && token_file_at(f, token_file_count(f) - 1) == tokenizer_eos(small_tokenizer());
}

/* Several blocks long; words, line ends of both kinds, ideographs, and a run that cannot be cut. */
static char *long_text(size_t *n)
{
    static const char *const parts[] = {"the cat sat on the mat. ",
                                        "line\r\n",
                                        "\xE5\x8D\x83\xE9\x87\x8C",
                                        "\n\n",
                                        "12345 ",
                                        "  \t ",
                                        "na\xC3\xAFve ",
                                        "\xF0\x9F\x98\x80",
                                        "x"};
    const size_t most = 5 << 20;
    char *text = NULL;
    uint32_t state = 3;
    FILE *f = open_memstream(&text, n);

    for (size_t put = 0; put < most;) {
        state = state * 1664525U + 1013904223U;
        const char *s = parts[(state >> 16) % (sizeof parts / sizeof parts[0])];
        (void)fputs(s, f);
        put += strlen(s);
    }
    (void)fclose(f);
    memset(text + 1000000, 'y', 200000); /* one word across the end of a block */
    return text;
}

static void a_long_text_has_the_tokens_of_the_whole(void)
{
    struct token_file *f;
    struct err err = {0};
    size_t n;
    char *text = long_text(&n);

    /* The run replaced bytes: whole characters only. */
    for (size_t i = 1000000; ((unsigned char)text[i - 1] & 0x80U) != 0; i--) {
        text[i - 1] = 'y';
    }
    for (size_t i = 1200000; ((unsigned char)text[i] & 0xC0U) == 0x80U; i++) {
        text[i] = 'y';
    }
    write_text("long", text, n);
    EXPECT(prepare(&f, "long", &err) == 0);
    if (f == NULL) {
        printf("# %s\n", err.text);
        return;
    }
    struct token_list ids = encode(text, n);
    EXPECT(holds(f, &ids));
    EXPECT(token_file_text_bytes(f) == n);
    EXPECT(token_file_documents(f) == 1);
    token_list_free(&ids);
    token_file_close(f);
    free(text);
}

static void a_second_job_finds_the_token_file(void)
{
    struct token_file *a, *b;
    struct stat first, second;
    struct err err;

    write_text("twice", "the same text", 13);
    write_text("again", "the same text", 13);
    EXPECT(prepare(&a, "twice", &err) == 0);
    EXPECT(stat(token_file_path(a), &first) == 0);
    EXPECT(prepare(&b, "again", &err) == 0);
    EXPECT(stat(token_file_path(b), &second) == 0);
    EXPECT(first.st_ino == second.st_ino);
    token_file_close(a);
    token_file_close(b);
}

static void a_damaged_token_file_is_made_again(void)
{
    struct token_file *f;
    struct err err;
    char path[256], *bytes;
    size_t n;

    write_text("heal", "heal this text", 14);
    EXPECT(prepare(&f, "heal", &err) == 0);
    (void)snprintf(path, sizeof path, "%s", token_file_path(f));
    token_file_close(f);
    EXPECT(io_read_file(&bytes, &n, path, 1 << 20, &err) == 0);
    /* The magic, the version, the sizes, the ends; another token (n - 20) is not noticed. */
    const size_t places[] = {0, 7, 8, 12, 19, 24, 32, n - 1, n - 8, n - 20};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        bytes[places[i]] ^= 0x55;
        EXPECT(io_write_file(path, bytes, n, &err) == 0);
        const int rc = token_file_open(&f, path, &err);
        if (places[i] != n - 20) {
            EXPECT(rc == ERR_BAD_FILE);
        }
        token_file_close(f);
        bytes[places[i]] ^= 0x55;
    }
    for (size_t keep = 0; keep < n; keep += keep < 600 ? 1 : 7) {
        EXPECT(io_write_file(path, bytes, keep, &err) == 0);
        EXPECT(token_file_open(&f, path, &err) == ERR_BAD_FILE);
    }
    EXPECT(prepare(&f, "heal", &err) == 0);
    struct token_list ids = encode("heal this text", 14);
    EXPECT(holds(f, &ids));
    token_list_free(&ids);
    token_file_close(f);
    free(bytes);
}

static void drops_a_byte_order_mark_and_keeps_line_ends(void)
{
    struct token_file *f;
    struct err err;

    write_text("bom", "\xEF\xBB\xBFone\r\ntwo\r\n", 13);
    EXPECT(prepare(&f, "bom", &err) == 0);
    struct token_list ids = encode("one\r\ntwo\r\n", 10);
    EXPECT(holds(f, &ids));
    token_list_free(&ids);
    token_file_close(f);
}

static void end_of_text_in_the_text_ends_a_document(void)
{
    struct token_file *f;
    struct err err;
    const char text[] = "one<|endoftext|>two<|endoftext|>";

    write_text("documents", text, sizeof text - 1);
    EXPECT(prepare(&f, "documents", &err) == 0);
    EXPECT(token_file_documents(f) == 2);
    EXPECT(token_file_at(f, token_file_count(f) - 1) == tokenizer_eos(small_tokenizer()));
    EXPECT(token_file_at(f, token_file_count(f) - 2) != tokenizer_eos(small_tokenizer()));
    token_file_close(f);
}

static void a_full_disk_leaves_nothing_behind(void)
{
    struct rlimit limit, small;
    struct token_file *f;
    struct err err = {0};
    uint64_t before = 0, after = 0;
    size_t n;
    char *text = long_text(&n);

    write_text("full", text, 1000000);
    free(text);
    EXPECT(io_tree_bytes(in_folder("cache"), &before, &err) == 0);
    EXPECT(getrlimit(RLIMIT_FSIZE, &limit) == 0 && signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    small = limit;
    small.rlim_cur = 100000;
    EXPECT(setrlimit(RLIMIT_FSIZE, &small) == 0);
    EXPECT(prepare(&f, "full", &err) == ERR_DISK_FULL);
    EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    EXPECT(io_tree_bytes(in_folder("cache"), &after, &err) == 0);
    EXPECT(before == after);
    EXPECT(prepare(&f, "full", &err) == 0);
    token_file_close(f);
}

static void a_large_vocabulary_takes_four_bytes(void)
{
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":65536},\"merges\":[]},"
        "\"added_tokens\":[{\"id\":900000,\"content\":\"</s>\",\"special\":true}]}";
    const char *path = in_folder("wide");
    char cache[256];
    struct tokenizer *t;
    struct token_file *f;
    struct err err = {0};

    EXPECT(tokenizer_parse(&t, json, sizeof json - 1, &err) == 0);
    EXPECT(tokenizer_size(t) == 900001);
    write_text("wide", "ab</s>b", 7);
    (void)snprintf(cache, sizeof cache, "%s/cache", folder);
    const struct data_source s = {.path = path, .cache_dir = cache, .blame = ERR_BAD_TRAINING_FILE};
    EXPECT(data_prepare(&f, &s, t, &err) == 0);
    EXPECT(token_file_count(f) == 5 && token_file_documents(f) == 2);
    EXPECT(token_file_at(f, 0) == 0 && token_file_at(f, 1) == 65536);
    EXPECT(token_file_at(f, 2) == 900000 && token_file_at(f, 4) == 900000);
    token_file_close(f);
    tokenizer_close(t);
}

static void refuses_what_is_no_text(void)
{
    /* clang-format off */
    static const struct { const char *bytes; size_t n; int code; const char *says; } cases[] = {
        {"", 0,                                    ERR_NO_TOKENS,         "1 tokens"},
        {"\xEF\xBB\xBF", 3,                        ERR_NO_TOKENS,         "1 tokens"},
        {"a\nb\nc\xFF", 6,                         ERR_BAD_TRAINING_FILE, "line 3, byte 2: not UTF-8 (0xFF)"},
        {"\n\n\n\n\n\n\n\nab\xC3(", 12,            ERR_BAD_TRAINING_FILE, "line 9, byte 3: not UTF-8"},
        {"ab\xE5\x8D", 4,                          ERR_BAD_TRAINING_FILE, "line 1, byte 3: not UTF-8"},
        {"\xED\xA0\x80", 3,                        ERR_BAD_TRAINING_FILE, "line 1, byte 1: not UTF-8"},
        {"\xC0\x80", 2,                            ERR_BAD_TRAINING_FILE, "not UTF-8"},
        {"ab\ncd\0ef", 8,                          ERR_BAD_TRAINING_FILE, "line 2, byte 3: a NUL byte"},
        {"\xFF\xFEh\0i\0", 6,                      ERR_BAD_TRAINING_FILE, "UTF-16"},
        {"\xFE\xFF\0h\0i", 6,                      ERR_BAD_TRAINING_FILE, "UTF-16"},
        {"h\0i\0", 4,                              ERR_BAD_TRAINING_FILE, "UTF-16"},
        {"\xFF\xFE\0\0h\0\0\0", 8,                 ERR_BAD_TRAINING_FILE, "UTF-32"},
        {"\x1F\x8B\x08\0", 4,                      ERR_BAD_TRAINING_FILE, "gzip"},
        {"PK\x03\x04xx", 6,                        ERR_BAD_TRAINING_FILE, "zip"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct token_file *f;
        struct err err = {0};
        write_text("bad", cases[i].bytes, cases[i].n);
        EXPECT(prepare(&f, "bad", &err) == cases[i].code);
        EXPECT(f == NULL);
        if (strstr(err.text, cases[i].says) == NULL) {
            printf("# case %zu: %s\n", i, err.text);
        }
        EXPECT(strstr(err.text, cases[i].says) != NULL);
        EXPECT(strstr(err.text, "bad") != NULL);
    }
    struct token_file *f;
    struct err err;
    EXPECT(prepare(&f, "nowhere", &err) == ERR_NOT_FOUND);
    EXPECT(prepare(&f, ".", &err) == ERR_BAD_TRAINING_FILE);
}

static void names_the_line_of_bad_bytes_behind_many_blocks(void)
{
    struct token_file *f;
    struct err err;
    const size_t n = 3 << 20;
    char *text = malloc(n + 1);

    memset(text, 'a', n);
    for (size_t i = 99; i < n; i += 100) {
        text[i] = '\n';
    }
    text[100 * 31000 + 41] = '\x80';
    write_text("deep", text, n);
    EXPECT(prepare(&f, "deep", &err) == ERR_BAD_TRAINING_FILE);
    EXPECT(strstr(err.text, "line 31001, byte 42: not UTF-8") != NULL);
    free(text);
}

/* A token file with this many tokens: digits, and EOS. */
static struct token_file *bytes_file(const char *name, int tokens)
{
    struct token_file *f;
    struct err err;
    char *text = malloc((size_t)tokens);

    for (int i = 0; i + 1 < tokens; i++) {
        text[i] = (char)('0' + (i * 7 + i / 10) % 10);
    }
    write_text(name, text, (size_t)tokens - 1);
    free(text);
    EXPECT(prepare(&f, name, &err) == 0);
    EXPECT(token_file_count(f) == tokens);
    return f;
}

static void the_order_visits_every_sample_once_in_each_epoch(void)
{
    for (int64_t n = 1; n < 300; n = n < 20 ? n + 1 : n * 2 + 1) {
        const struct data_set s = {.end = n + 1, .S = 1, .seed = 5};
        int64_t same = 0;
        EXPECT(data_samples(&s) == n);
        for (int64_t epoch = 0; epoch < 4; epoch++) {
            char *seen = calloc((size_t)n, 1);
            for (int64_t i = 0; i < n; i++) {
                const int64_t at = data_order(&s, epoch * n + i);
                EXPECT(at >= 0 && at < n && !seen[at]);
                seen[at] = 1;
                same += at == data_order(&s, i);
            }
            free(seen);
        }
        /* Epochs differ: 3 of them agree with the first in about one place each. */
        EXPECT(n < 20 || same - n < 30);
    }
    const struct data_set a = {.end = 1000001, .S = 1, .seed = 1},
                          b = {.end = 1000001, .S = 1, .seed = 2};
    int64_t agree = 0, neighbours = 0;
    for (int64_t i = 0; i < 2000; i++) {
        agree += data_order(&a, i) == data_order(&b, i);
        neighbours += llabs(data_order(&a, i) - data_order(&a, i + 1)) < 1000;
    }
    EXPECT(agree < 5);
    EXPECT(neighbours < 40);
}

enum { S = 5, ROWS = 4 };

struct batch {
    int32_t ids[ROWS * S], labels[ROWS * S], positions[ROWS * S], first[ROWS * S];
};

static struct data_rows rows_of(struct batch *b)
{
    return (struct data_rows){b->ids, b->labels, b->positions, b->first};
}

static void samples_share_one_token_and_the_last_is_padded(void)
{
    struct token_file *f = bytes_file("shared", 14); /* 13 labels: 5 + 5 + 3 */
    const struct data_set s = {.file = f, .end = 14, .S = S};
    struct batch b;
    const struct data_rows rows = rows_of(&b);

    EXPECT(data_samples(&s) == 3);
    EXPECT(data_batch_in_order(&s, &rows, 0, ROWS) == 13);
    for (int i = 0; i < 15; i++) {
        EXPECT(b.ids[i] == (i < 14 ? token_file_at(f, i) : 0));
        EXPECT(b.labels[i] == (i < 13 ? token_file_at(f, i + 1) : -100));
        EXPECT(b.positions[i] == i % S);
        EXPECT(b.first[i] == 0);
    }
    for (int i = 15; i < 20; i++) {
        EXPECT(b.ids[i] == 0 && b.labels[i] == -100);
    }
    token_file_close(f);
}

static void a_batch_is_the_samples_in_order_and_masked_beyond_the_end(void)
{
    struct token_file *f = bytes_file("ordered", 101);
    const struct data_set s = {.file = f, .end = 101, .S = S, .seed = 9};
    struct batch b, one;
    const struct data_rows rows = rows_of(&b), single = rows_of(&one);

    EXPECT(data_batch(&s, &rows, 18, ROWS, 21) == 3 * S);
    for (int r = 0; r < ROWS; r++) {
        if (r < 3) {
            EXPECT(data_batch_in_order(&s, &single, data_order(&s, 18 + r), 1) == S);
            EXPECT(memcmp(one.ids, b.ids + r * S, S * sizeof(int32_t)) == 0);
            EXPECT(memcmp(one.labels, b.labels + r * S, S * sizeof(int32_t)) == 0);
        }
        for (int k = 0; r == 3 && k < S; k++) {
            EXPECT(b.labels[r * S + k] == -100 && b.ids[r * S + k] == 0 && b.first[r * S + k] == 0);
        }
    }
    token_file_close(f);
}

static void a_token_sees_its_own_document_when_they_are_apart(void)
{
    struct token_file *f;
    struct err err;
    struct batch b;
    const struct data_rows rows = rows_of(&b);
    const char text[] = "11<|endoftext|>2<|endoftext|>333333";

    write_text("apart", text, sizeof text - 1);
    EXPECT(prepare(&f, "apart", &err) == 0);
    /* 1 1 E | 2 E 3 3 3 | 3 3 3 E: */
    const struct data_set s = {.file = f, .end = token_file_count(f), .S = S, .apart = true};
    const int32_t want[] = {0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    EXPECT(data_batch_in_order(&s, &rows, 0, 3) > 0);
    EXPECT(memcmp(b.first, want, sizeof want) == 0);
    token_file_close(f);
}

static void the_split_holds_out_the_end_and_shares_nothing(void)
{
    struct token_file *f = bytes_file("split", 101);
    struct data_set training, validation;
    struct err err;

    for (int i = 0; i < 13; i++) {
        const double fraction = 0.083 * i;
        EXPECT(data_split(&training, &validation, f, fraction, S, 1, &err) == 0);
        EXPECT(training.begin == 0 && training.end == validation.begin && validation.end == 101);
        EXPECT(data_samples(&training) >= 1);
        const int64_t held = data_samples(&validation);
        EXPECT(i == 0 ? held == 0 && training.end == 101
                      : fabs((double)held - fraction * 20.0) <= 1.01);
    }
    EXPECT(data_split(&training, &validation, f, 1e-9, S, 1, &err) == 0);
    EXPECT(data_samples(&validation) == 1 && data_samples(&training) == 19);
    EXPECT(data_split(&training, &validation, f, 0.5, 99, 1, &err) == 0);
    EXPECT(data_samples(&validation) == 1 && data_samples(&training) == 1);
    EXPECT(validation.end - validation.begin >= 2);
    EXPECT(data_split(&training, &validation, f, 0.5, 100, 1, &err) == 0);
    EXPECT(data_samples(&validation) == 0 && data_samples(&training) == 1);
    token_file_close(f);
}

static void any_number_of_workers_reads_the_same(void)
{
    struct token_file *f = bytes_file("workers", 1001);
    const struct data_set s = {.file = f, .end = 1001, .S = S, .seed = 3};
    struct err err;

    for (int workers = 0; workers <= 5; workers++) {
        const struct data_reader_options o = {
            .consumed = 8, .count = ROWS, .total = 8 + 100 * ROWS - 2, .workers = workers};
        struct data_reader *r;
        EXPECT(data_reader_bytes(&s, &o) ==
               (size_t)(workers > 0 ? workers + 2 : 1) * 4 * ROWS * S * 4);
        EXPECT(data_reader_open(&r, &s, &o, &err) == 0);
        for (int i = 0; i < 100; i++) {
            struct batch want;
            const struct data_rows rows = rows_of(&want), *got;
            const int64_t labels = data_batch(&s, &rows, 8 + i * ROWS, ROWS, o.total);
            EXPECT(data_reader_next(r, &got) == labels);
            EXPECT(memcmp(got->ids, want.ids, sizeof want.ids) == 0);
            EXPECT(memcmp(got->labels, want.labels, sizeof want.labels) == 0);
            EXPECT(memcmp(got->positions, want.positions, sizeof want.positions) == 0);
            EXPECT(memcmp(got->first, want.first, sizeof want.first) == 0);
        }
        data_reader_close(r);
    }
    token_file_close(f);
}

/* Steps of growing size go through the same samples in the same order. */
static void batches_grow_by_a_schedule(void)
{
    struct token_file *f = bytes_file("grow", 1001);
    const struct data_set s = {.file = f, .end = 1001, .S = S, .seed = 3};
    struct ramp ramp;
    struct err err;

    EXPECT(ramp_read(&ramp, "0:1 90:2 400:3", 0, S, &err) == 0);
    for (int workers = 0; workers <= 3; workers++) {
        const struct data_reader_options o = {
            .consumed = 3, .count = 3, .ramp = &ramp, .total = 1000, .workers = workers};
        struct data_reader *r;
        EXPECT(data_reader_open(&r, &s, &o, &err) == 0);
        for (int64_t at = 3; at < 150;) {
            struct batch want;
            const struct data_rows rows = rows_of(&want), *got;
            const int64_t count = ramp_at(&ramp, at);
            const int64_t labels = data_batch(&s, &rows, at, count, o.total);
            EXPECT(data_reader_next(r, &got) == labels);
            EXPECT(memcmp(got->ids, want.ids, (size_t)(count * S) * 4) == 0);
            EXPECT(memcmp(got->labels, want.labels, (size_t)(count * S) * 4) == 0);
            at += count;
        }
        data_reader_close(r);
    }
    token_file_close(f);
}

int main(void)
{
    struct err err;

    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    RUN(a_long_text_has_the_tokens_of_the_whole);
    RUN(a_second_job_finds_the_token_file);
    RUN(a_damaged_token_file_is_made_again);
    RUN(drops_a_byte_order_mark_and_keeps_line_ends);
    RUN(end_of_text_in_the_text_ends_a_document);
    RUN(a_full_disk_leaves_nothing_behind);
    RUN(a_large_vocabulary_takes_four_bytes);
    RUN(refuses_what_is_no_text);
    RUN(names_the_line_of_bad_bytes_behind_many_blocks);
    RUN(the_order_visits_every_sample_once_in_each_epoch);
    RUN(samples_share_one_token_and_the_last_is_padded);
    RUN(a_batch_is_the_samples_in_order_and_masked_beyond_the_end);
    RUN(a_token_sees_its_own_document_when_they_are_apart);
    RUN(the_split_holds_out_the_end_and_shares_nothing);
    RUN(any_number_of_workers_reads_the_same);
    RUN(batches_grow_by_a_schedule);
    tokenizer_close(small_tokenizer());
    (void)io_remove_tree(folder, &err);
    return tap_done();
}
