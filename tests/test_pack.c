/* test_pack.c - examples as rows: packed or alone, in order, held out; the files they come from. */
#include "tests/token_files.h"

enum { S = 16, ROWS = 4 };

struct batch {
    int32_t ids[ROWS * S], labels[ROWS * S], positions[ROWS * S], first[ROWS * S];
};

static struct data_rows rows_of(struct batch *b)
{
    return (struct data_rows){b->ids, b->labels, b->positions, b->first};
}

/* A file of `n` examples of 2 .. S + 1 tokens. */
static struct token_file *many(const char *file, int64_t n)
{
    int64_t *lengths = calloc((size_t)n, sizeof *lengths);
    uint32_t state = 7;

    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525U + 1013904223U;
        lengths[i] = 2 + (state >> 16) % S;
    }
    struct token_file *f = put_examples(file, lengths, n, 101, 0);
    free(lengths);
    return f;
}

static int64_t places(const struct token_file *f, uint32_t e)
{
    return f->ends[e] - token_file_begin(f, e) - 1;
}

/* Every example in one row, no row too long; the places of the longest row. */
static int64_t longest_of(const struct pack *p)
{
    char *seen = calloc((size_t)p->examples + 1, 1);
    int64_t most = 0;

    EXPECT(p->row[0] == 0 && p->row[p->rows] == p->pieces && p->pieces == p->examples);
    for (int64_t r = 0; r < p->rows; r++) {
        int64_t used = 0;
        EXPECT(p->row[r] < p->row[r + 1]);
        for (uint32_t i = p->row[r]; i < p->row[r + 1]; i++) {
            EXPECT(p->piece[i].document < p->examples && !seen[p->piece[i].document]);
            seen[p->piece[i].document] = 1;
            used += pack_places(p, p->piece[i]);
        }
        most = used > most ? used : most;
    }
    free(seen);
    return most;
}

static void rows_hold_every_example_once_and_little_else(void)
{
    const int64_t counts[] = {1, 2, 3, 100, 20000, 40000};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct token_file *f = many("many", counts[i]);
        struct pack *p = pack_all(f, S, PACK_TOGETHER, 1), *q = pack_all(f, S, PACK_TOGETHER, 8);
        EXPECT(p->examples == counts[i]);
        EXPECT(longest_of(p) <= S);
        EXPECT(p->tokens == token_file_count(f));
        /* The same rows again; at most a hundredth of the places is left over. */
        EXPECT(q->rows == p->rows && p->group == 0);
        EXPECT(memcmp(p->piece, q->piece, (size_t)p->pieces * sizeof *p->piece) == 0);
        EXPECT(memcmp(p->row, q->row, (size_t)(p->rows + 1) * sizeof *p->row) == 0);
        EXPECT(counts[i] < 1000 ||
               (double)(p->tokens - p->examples) > 0.99 * (double)(p->rows * S));
        pack_free(p);
        pack_free(q);
        token_file_close(f);
    }
}

static void labels_are_shifted_within_an_example_and_never_cross(void)
{
    const int64_t lengths[] = {9, 3, 6, 2, 17};
    struct token_file *f = put_examples("labels", lengths, 5, 101, 0);
    struct pack *p = pack_all(f, S, PACK_TOGETHER, 1);
    const struct data_set set = pack_set(p, 1);
    struct batch b;
    const struct data_rows rows = rows_of(&b);
    int64_t trained = 0;

    EXPECT(p->rows == 2); /* 16; 8 + 5 + 2 + 1 */
    EXPECT(data_batch_in_order(&set, &rows, 0, ROWS) == p->trained);
    for (int64_t r = 0; r < ROWS; r++) {
        int64_t at = r * S;
        for (uint32_t i = r < p->rows ? p->row[r] : 0; r < p->rows && i < p->row[r + 1]; i++) {
            const int64_t begin = token_file_begin(f, p->piece[i].document), start = at - r * S;
            const int64_t masked = lengths[p->piece[i].document] / 3;
            for (int64_t k = 0; k < places(f, p->piece[i].document); k++, at++) {
                EXPECT(b.ids[at] == token_file_at(f, begin + k));
                EXPECT(b.labels[at] == (k + 1 >= masked ? token_file_at(f, begin + k + 1) : -100));
                EXPECT(b.positions[at] == k && b.first[at] == start);
                trained += b.labels[at] >= 0;
            }
        }
        for (; at < (r + 1) * S; at++) {
            EXPECT(b.ids[at] == 0 && b.labels[at] == -100 && b.first[at] == at - r * S);
        }
    }
    EXPECT(trained == p->trained);
    pack_free(p);
    token_file_close(f);
}

static void rows_of_one_length_come_in_groups_and_all_of_them_in_every_epoch(void)
{
    for (int64_t n = 1; n < 60; n++) {
        struct token_file *f = many("alone", n);
        struct pack *p = pack_all(f, S, PACK_ALONE, ROWS);
        const struct data_set set = pack_set(p, 5);
        int64_t same = 0;
        EXPECT(p->rows == n && data_samples(&set) == n);
        (void)longest_of(p);
        for (int64_t i = 1; i < n; i++) {
            EXPECT(places(f, p->piece[i - 1].document) <= places(f, p->piece[i].document));
        }
        for (int64_t epoch = 0; epoch < 5; epoch++) {
            char *seen = calloc((size_t)n, 1);
            for (int64_t i = 0; i < n; i++) {
                const int64_t c = epoch * n + i, at = data_order(&set, c);
                EXPECT(at >= 0 && at < n && !seen[at]);
                seen[at] = 1;
                same += epoch > 0 && at == data_order(&set, i);
                /* A batch within the epoch is neighbours. */
                EXPECT(c % ROWS == 0 || i == 0 || i < ROWS || i + ROWS > n ||
                       at == data_order(&set, c - 1) + 1);
            }
            free(seen);
        }
        EXPECT(n < 50 || same < 4 * n / 2);
        pack_free(p);
        token_file_close(f);
    }
}

static void a_batch_beyond_the_last_row_is_masked(void)
{
    struct token_file *f = many("beyond", 7);
    struct pack *p = pack_all(f, S, PACK_ALONE, ROWS);
    const struct data_set set = pack_set(p, 5);
    struct batch b;
    const struct data_rows rows = rows_of(&b);
    int64_t trained = data_batch(&set, &rows, 0, ROWS, 7);

    trained += data_batch(&set, &rows, 4, ROWS, 7);
    EXPECT(trained == p->trained);
    for (int64_t k = 3 * S; k < 4 * S; k++) {
        EXPECT(b.labels[k] == -100 && b.ids[k] == 0);
    }
    pack_free(p);
    token_file_close(f);
}

static void any_number_of_workers_reads_the_same_rows(void)
{
    struct token_file *f = many("workers", 100);

    for (int w = 0; w < 8; w++) {
        struct pack *p = pack_all(f, S, w < 4 ? PACK_ALONE : PACK_TOGETHER, ROWS);
        const struct data_set set = pack_set(p, 3);
        const struct data_reader_options o = {
            .consumed = 4, .count = ROWS, .total = 250, .workers = w % 4};
        struct data_reader *r = NULL;
        struct err err;
        EXPECT(data_reader_open(&r, &set, &o, &err) == 0);
        for (int i = 0; i < 50; i++) {
            struct batch want;
            const struct data_rows rows = rows_of(&want), *got;
            const int64_t labels = data_batch(&set, &rows, 4 + i * ROWS, ROWS, o.total);
            EXPECT(data_reader_next(r, &got) == labels);
            EXPECT(memcmp(got->ids, want.ids, sizeof want.ids) == 0);
            EXPECT(memcmp(got->labels, want.labels, sizeof want.labels) == 0);
            EXPECT(memcmp(got->positions, want.positions, sizeof want.positions) == 0);
            EXPECT(memcmp(got->first, want.first, sizeof want.first) == 0);
        }
        data_reader_close(r);
        pack_free(p);
    }
    token_file_close(f);
}

static bool same_tokens(const struct token_file *f, uint32_t a, uint32_t b)
{
    bool same = places(f, a) == places(f, b);

    for (int64_t k = 0; same && k <= places(f, a); k++) {
        same = token_file_at(f, token_file_begin(f, a) + k) ==
               token_file_at(f, token_file_begin(f, b) + k);
    }
    return same;
}

static void the_split_holds_out_whole_examples_and_never_one_of_both(void)
{
    struct token_file *f = many("split", 500);
    uint32_t before[500];

    for (uint64_t seed = 0; seed < 3; seed++) {
        struct pack_split s;
        struct err err;
        EXPECT(pack_split(&s, f, 0.1, seed, &err) == 0);
        /* Many of the short ones are alike. */
        EXPECT(s.training + s.held == 500 && s.held >= 35 && s.held <= 65);
        for (int64_t i = 0; i < s.held; i++) {
            EXPECT(i == 0 || s.example[s.training + i - 1] < s.example[s.training + i]);
            for (int64_t k = 0; k < s.training; k++) {
                EXPECT(!same_tokens(f, s.example[k], s.example[s.training + i]));
            }
        }
        EXPECT(seed == 0 || memcmp(before, s.example, sizeof before) != 0);
        memcpy(before, s.example, sizeof before);
        pack_split_fini(&s);
    }
    token_file_close(f);
}

static void copies_stay_on_one_side(void)
{
    int64_t lengths[100];
    struct pack_split s;
    struct err err;

    for (int64_t kinds = 1; kinds <= 5; kinds++) {
        for (int i = 0; i < 100; i++) {
            lengths[i] = 9;
        }
        struct token_file *f = put_examples("copies", lengths, 100, 101, kinds);
        EXPECT(pack_split(&s, f, 0.15, 1, &err) == 0);
        EXPECT(s.held == (kinds < 4 ? 0 : 100 / kinds));
        pack_split_fini(&s);
        token_file_close(f);
    }
}

static void a_few_examples_all_train_unless_more_is_asked(void)
{
    struct token_file *f = many("few", 8);
    struct pack_split s;
    struct err err;

    EXPECT(pack_split(&s, f, 0.02, 1, &err) == 0 && s.training == 8 && s.held == 0);
    pack_split_fini(&s);
    EXPECT(pack_split(&s, f, 0.25, 1, &err) == 0 && s.training == 6 && s.held == 2);
    pack_split_fini(&s);
    token_file_close(f);
}

static void a_long_text_is_cut_into_pieces_that_train_every_token_once(void)
{
    const int64_t lengths[] = {3 * S + 1, 2 * S + 2, 5, S + 1};
    struct token_file *f = put_examples("long", lengths, 4, 101, 0);

    for (int way = 0; way < 2; way++) {
        struct pack *p = pack_all(f, S, (enum pack_way)way, 2);
        const struct data_set set = pack_set(p, 1);
        struct batch b;
        const struct data_rows rows = rows_of(&b);
        int64_t trained = 0, places_of_all = 0;
        EXPECT(p->pieces == 3 + 3 + 1 + 1 && p->examples == 4);
        for (int64_t i = 0; i < p->pieces; i++) {
            EXPECT(pack_places(p, p->piece[i]) <= S);
            places_of_all += pack_places(p, p->piece[i]);
        }
        EXPECT(places_of_all == token_file_count(f) - 4);
        for (int64_t r = 0; r < p->rows; r += ROWS) {
            trained += data_batch_in_order(&set, &rows, r, ROWS);
        }
        EXPECT(trained == p->trained);
        pack_free(p);
    }
    token_file_close(f);
}

static void refuses_an_example_without_a_label(void)
{
    const int64_t lengths[] = {5, 1};
    struct token_file *f = put_examples("refused", lengths, 2, 101, 0);
    struct pack *p;
    struct err err;
    const uint32_t good = 0, single = 1;

    EXPECT(pack_make(&p, f, &good, 1, S, PACK_ALONE, 1, &err) == 0);
    pack_free(p);
    EXPECT(pack_make(&p, f, &single, 1, S, PACK_TOGETHER, 1, &err) == ERR_BAD_FILE && p == NULL);
    token_file_close(f);
}

static void a_file_of_examples_is_read_back_and_damage_is_noticed(void)
{
    const int64_t lengths[] = {70, 3, 64, 9};
    struct token_file *f = put_examples("damaged", lengths, 4, 70000, 0);
    struct err err;
    char *bytes;
    size_t n, report;

    EXPECT(token_file_kind(f) == TOKEN_FILE_EXAMPLES && token_file_documents(f) == 4);
    EXPECT(memcmp(token_file_report(f, &report), "{}", 2) == 0 && report == 2);
    for (int64_t e = 0, at = 0; e < 4; e++) {
        for (int64_t k = 0; k < lengths[e]; k++, at++) {
            EXPECT(token_file_trained(f, at) == (k >= lengths[e] / 3));
        }
    }
    const size_t bits = (size_t)token_file_bits(&f->header);
    token_file_close(f);
    EXPECT(io_read_file(&bytes, &n, in_scratch("damaged"), 1 << 20, &err) == 0);
    for (size_t at = bits; at < bits + 24; at++) { /* 146 tokens */
        bytes[at] ^= 1;
        put_file(in_scratch("damaged"), bytes, n);
        EXPECT(token_file_open(&f, in_scratch("damaged"), &err) == ERR_BAD_FILE);
        bytes[at] ^= 1;
    }
    for (size_t keep = 500; keep < n; keep += 3) {
        put_file(in_scratch("damaged"), bytes, keep);
        EXPECT(token_file_open(&f, in_scratch("damaged"), &err) == ERR_BAD_FILE);
    }
    free(bytes);
}

static void an_abandoned_file_leaves_nothing(void)
{
    const struct token_file_header known = {.vocab_size = 10, .kind = TOKEN_FILE_EXAMPLES};
    struct token_writer *w;
    struct io_names names;
    struct err err;

    EXPECT(io_make_dir(in_scratch("empty"), &err) == 0);
    EXPECT(token_writer_open(&w, in_scratch("empty"), "x", &known, &err) == 0);
    EXPECT(token_writer_put(w, 3, true, &err) == 0 && token_writer_end(w, &err) == 0);
    token_writer_abandon(w);
    EXPECT(io_list_dir(&names, in_scratch("empty"), &err) == 0 && names.count == 0);
    io_names_fini(&names);
}

int main(void)
{
    scratch_make();
    RUN(rows_hold_every_example_once_and_little_else);
    RUN(labels_are_shifted_within_an_example_and_never_cross);
    RUN(rows_of_one_length_come_in_groups_and_all_of_them_in_every_epoch);
    RUN(a_batch_beyond_the_last_row_is_masked);
    RUN(any_number_of_workers_reads_the_same_rows);
    RUN(the_split_holds_out_whole_examples_and_never_one_of_both);
    RUN(copies_stay_on_one_side);
    RUN(a_few_examples_all_train_unless_more_is_asked);
    RUN(a_long_text_is_cut_into_pieces_that_train_every_token_once);
    RUN(refuses_an_example_without_a_label);
    RUN(a_file_of_examples_is_read_back_and_damage_is_noticed);
    RUN(an_abandoned_file_leaves_nothing);
    scratch_remove();
    return tap_done();
}
