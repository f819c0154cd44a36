/* f64_layout_rows.c - the table of layouts in double: a layout does not change the result. */
#include "tests/layout_rows.h"

/* The values of columns, in the order of enum column. */
static const struct {
    int count, of[4];
} values[COLUMN_COUNT] = {
    [COLUMN_MODEL] = {MODEL_COUNT, {GPT2, LLAMA, TIED, MIXTRAL}},
    [COLUMN_TP] = {3, {1, 2, 4}},
    [COLUMN_SP] = {2, {0, 1}},
    [COLUMN_CP] = {2, {1, 2}},
    [COLUMN_PP] = {3, {1, 2, 4}},
    [COLUMN_CHUNKS] = {2, {1, 2}},
    [COLUMN_DP] = {3, {1, 2, 4}},
    [COLUMN_EP] = {3, {1, 2, 4}},
    [COLUMN_OVERLAP] = {2, {0, 1}},
    [COLUMN_DISTRIBUTED] = {2, {0, 1}},
    [COLUMN_PACKED] = {2, {0, 1}},
    [COLUMN_DROPOUT] = {2, {0, 1}},
    [COLUMN_AGAIN] = {AGAIN_COUNT, {NONE, CORE, UNIFORM, BLOCK}},
    [COLUMN_LORA] = {2, {0, 1}},
    [COLUMN_PRECISION] = {PRECISION_COUNT, {F32, BF16, FP16}},
};

/* Which values of two columns some row has. */
struct pairs {
    bool has[COLUMN_COUNT][4][COLUMN_COUNT][4];
};

static void mark(struct pairs *p, const int index[COLUMN_COUNT], int columns)
{
    for (int a = 0; a < columns; a++) {
        for (int b = 0; b < columns; b++) {
            p->has[a][index[a]][b][index[b]] = true;
        }
    }
}

/* Whether a row says something that a row without it does not, and may be asked for: at most 8 ranks. */
static bool is_row(const struct row *r)
{
    const int *at = r->at, ranks = at[COLUMN_TP] * at[COLUMN_CP] * at[COLUMN_PP] * at[COLUMN_DP];
    const bool copies = at[COLUMN_DP] * at[COLUMN_CP] > 1;
    struct err err = {0};

    if (ranks > 8 || (at[COLUMN_SP] > 0 && at[COLUMN_TP] == 1) ||
        (at[COLUMN_EP] > 1 && at[COLUMN_MODEL] != MIXTRAL) ||
        (at[COLUMN_DISTRIBUTED] + at[COLUMN_OVERLAP] > 0 && !copies)) {
        return false;
    }
    struct row_run run;
    if (row_make(&run, r, row_layers(r), &err) != 0) {
        return false;
    }
    const struct arch a = case_arch(&run.c);
    const bool may = rules_check(&run.request, &a, &err) == 0;
    spec_free(&run.request);
    return may;
}

/* All that may be asked for, of the columns up to COLUMN_DISTRIBUTED; those behind go with everything. */
static void mark_what_may_be(struct pairs *p)
{
    int index[COLUMN_COUNT] = {0}, column = 0;

    while (column <= COLUMN_DISTRIBUTED) {
        struct row r = {.set = PAIRS};
        for (int i = 0; i < COLUMN_COUNT; i++) {
            r.at[i] = values[i].of[index[i]];
        }
        if (is_row(&r)) {
            mark(p, index, COLUMN_DISTRIBUTED + 1);
        }
        for (column = 0; column <= COLUMN_DISTRIBUTED; column++) { /* the next */
            index[column] = (index[column] + 1) % values[column].count;
            if (index[column] > 0) {
                break;
            }
        }
    }
    for (int a = 0; a < COLUMN_COUNT; a++) {
        for (int i = 0; i < values[a].count; i++) {
            for (int b = COLUMN_DISTRIBUTED + 1; b < COLUMN_COUNT; b++) {
                for (int k = 0; k < values[b].count; k++) {
                    const bool other = a > COLUMN_DISTRIBUTED || p->has[a][i][a][i];
                    p->has[a][i][b][k] = p->has[b][k][a][i] = other && (a != b || i == k);
                }
            }
        }
    }
}

static int index_of(int column, int value)
{
    for (int i = 0; i < values[column].count; i++) {
        if (values[column].of[i] == value) {
            return i;
        }
    }
    CHECK(false, "column %d has no value %d", column, value);
    return 0;
}

/* Every two values that may be asked for together are in one of the rows that run every time. */
static void rows_cover_all_pairs(void)
{
    static struct pairs may, has;
    int pairs = 0, missing = 0;

    mark_what_may_be(&may);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        int index[COLUMN_COUNT];
        for (int c = 0; c < COLUMN_COUNT; c++) {
            index[c] = index_of(c, rows[i].at[c]);
        }
        if (rows[i].set == PAIRS) {
            mark(&has, index, COLUMN_COUNT);
        }
        EXPECT(is_row(&rows[i]));
    }
    for (int a = 0; a < COLUMN_COUNT; a++) {
        for (int b = a + 1; b < COLUMN_COUNT; b++) {
            for (int i = 0; i < values[a].count * values[b].count; i++) {
                const int x = i / values[b].count, y = i % values[b].count;
                pairs += may.has[a][x][b][y];
                if (may.has[a][x][b][y] && !has.has[a][x][b][y]) {
                    missing++;
                    printf("# columns %d and %d: no row has %d and %d\n", a, b, values[a].of[x],
                           values[b].of[y]);
                }
            }
        }
    }
    printf("# %d pairs\n", pairs);
    EXPECT(pairs > 500 && missing == 0);
    EXPECT(ROW_COUNT >= 60);
}

int main(void)
{
    RUN(rows_cover_all_pairs);
    RUN(rows_are_one_rank);
    return tap_done();
}
