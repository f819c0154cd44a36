/* test_range.c - what a Range header asks for. */
#include "server/range.h"

#include "tests/tap.h"

static void reads_ranges(void)
{
    static const struct {
        const char *header;
        int64_t size;
        enum range_kind want;
        int64_t first, count;
    } table[] = {
        {NULL, 100, RANGE_WHOLE, 0, 100},
        {"bytes=0-", 100, RANGE_PART, 0, 100},
        {"bytes=0-0", 100, RANGE_PART, 0, 1},
        {"bytes=10-19", 100, RANGE_PART, 10, 10},
        {"bytes=99-", 100, RANGE_PART, 99, 1},
        {"bytes=99-1000", 100, RANGE_PART, 99, 1},
        {"bytes=-5", 100, RANGE_PART, 95, 5},
        {"bytes=-500", 100, RANGE_PART, 0, 100},
        {"bytes=-0", 100, RANGE_BAD, 0, 0},
        {"bytes=100-", 100, RANGE_BAD, 0, 0},
        {"bytes=5-2", 100, RANGE_BAD, 0, 0},
        {"bytes=0-", 0, RANGE_BAD, 0, 0},
        {"bytes=-1", 0, RANGE_BAD, 0, 0},
        {"bytes=18446744073709551615-", 100, RANGE_BAD, 0, 0},
        {"bytes=0-99999999999999999999999999", 100, RANGE_PART, 0, 100},
        {"bytes=-99999999999999999999999999", 100, RANGE_PART, 0, 100},
        {"bytes=0-99,200-299", 1000, RANGE_WHOLE, 0, 1000},
        {"bytes=", 100, RANGE_WHOLE, 0, 100},
        {"bytes=-", 100, RANGE_WHOLE, 0, 100},
        {"bytes=abc", 100, RANGE_WHOLE, 0, 100},
        {"bytes=1", 100, RANGE_WHOLE, 0, 100},
        {"bytes=1-2x", 100, RANGE_WHOLE, 0, 100},
        {"bytes= 1-2", 100, RANGE_WHOLE, 0, 100},
        {"items=0-5", 100, RANGE_WHOLE, 0, 100},
        {"abc", 100, RANGE_WHOLE, 0, 100},
        {"", 100, RANGE_WHOLE, 0, 100},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int64_t first = -1, count = -1;
        const enum range_kind kind = range_parse(table[i].header, table[i].size, &first, &count);
        if (kind != table[i].want) {
            printf("# %s\n", table[i].header == NULL ? "none" : table[i].header);
        }
        EXPECT(kind == table[i].want);
        EXPECT(kind == RANGE_BAD || (first == table[i].first && count == table[i].count));
    }
}

int main(void)
{
    RUN(reads_ranges);
    return tap_done();
}
