/* test_schedule.c - the actions of pipeline ranks: Megatron's own lists, and what must hold for all. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/schedule.h"

static const char vectors[] = "../shared/vectors/megatron/pipeline_schedules.json";

enum { ACTIONS = 4096 };
static struct action list[ACTIONS];

static int number(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key)); /* null: 0 */
}

static void check_rank(struct pipe p, const json_t *rank)
{
    const json_t *order = json_object_get(rank, "order");
    char word[32];

    p.rank = number(rank, "rank");
    const int n = schedule_make(list, &p);
    EXPECT(n == (int)json_array_size(order));
    for (int i = 0; i < n; i++) {
        (void)snprintf(word, sizeof word, "%c%d.%d", list[i].forward ? 'F' : 'B', list[i].micro,
                       list[i].chunk);
        EXPECT(strcmp(word, json_string_value(json_array_get(order, (size_t)i))) == 0);
    }
    EXPECT(schedule_slots(list, n) == number(rank, "max_in_flight"));
}

static void lists_are_megatrons(void)
{
    json_t *file = NULL;
    const json_t *one = NULL, *rank = NULL;
    struct err err = {0};
    size_t i = 0, k = 0;

    EXPECT(json_parse_file(&file, vectors, 4 << 20, &err) == 0);
    const json_t *schedules = json_object_get(file, "schedules");
    EXPECT(json_array_size(schedules) >= 10);
    json_array_foreach(schedules, i, one)
    {
        const int chunks = number(one, "vpp");
        const struct pipe p = {.pp = number(one, "pp"),
                               .chunks = chunks == 0 ? 1 : chunks,
                               .micros = number(one, "num_microbatches"),
                               .group = number(one, "group")};
        json_array_foreach(json_object_get(one, "ranks"), k, rank)
        {
            check_rank(p, rank);
        }
    }
    json_decref(file);
}

/* The stage of an action's chunk. */
static int stage_of(const struct pipe *p, int rank, int chunk)
{
    return chunk * p->pp + rank;
}

/* Play the lists of all ranks: an action runs once its input is there. True when all of them end. */
static bool plays_to_the_end(const struct pipe *p)
{
    static struct action of[16][ACTIONS];
    static bool forward[64][64], backward[64][64]; /* stage, micro */
    int n[16], at[16] = {0}, stages = p->pp * p->chunks;
    bool moved = true, ended = true;

    memset(forward, 0, sizeof forward);
    memset(backward, 0, sizeof backward);
    for (int r = 0; r < p->pp; r++) {
        struct pipe mine = *p;
        mine.rank = r;
        n[r] = schedule_make(of[r], &mine);
    }
    while (moved) {
        moved = false;
        for (int r = 0; r < p->pp; r++) {
            if (at[r] == n[r]) {
                continue;
            }
            const struct action a = of[r][at[r]];
            const int s = stage_of(p, r, a.chunk);
            const bool ready =
                a.forward ? s == 0 || forward[s - 1][a.micro]
                          : forward[s][a.micro] && (s == stages - 1 || backward[s + 1][a.micro]);
            if (ready) {
                EXPECT(!(a.forward ? forward : backward)[s][a.micro]);
                (a.forward ? forward : backward)[s][a.micro] = true;
                at[r]++;
                moved = true;
            }
        }
    }
    for (int r = 0; r < p->pp; r++) {
        ended = ended && at[r] == n[r] && n[r] == 2 * p->chunks * p->micros;
    }
    return ended;
}

static void no_schedule_waits_for_itself(void)
{
    int played = 0;

    for (int pp = 1; pp <= 8; pp *= 2) {
        for (int chunks = 1; chunks <= 3; chunks++) {
            for (int micros = 1; micros <= 20; micros++) {
                for (int group = 0; group <= 7; group++) {
                    const struct pipe p = {
                        .pp = pp, .chunks = chunks, .micros = micros, .group = group};
                    struct err err = {0};
                    if (schedule_check(&p, &err) == 0) {
                        EXPECT(plays_to_the_end(&p));
                        played++;
                    }
                }
            }
        }
    }
    EXPECT(played > 500);
}

static void what_does_not_interleave_is_refused(void)
{
    static const struct pipe bad[] = {
        {.pp = 4, .chunks = 2, .micros = 6},             /* 2 of the last group are left */
        {.pp = 4, .chunks = 2, .micros = 2},             /* fewer than ranks             */
        {.pp = 4, .chunks = 2, .micros = 8, .group = 2}, /* a group smaller than ranks   */
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {0};
        EXPECT(schedule_check(&bad[i], &err) == ERR_BAD_SPEC);
        EXPECT(strchr(err.text, '4') != NULL);
    }
}

int main(void)
{
    RUN(no_schedule_waits_for_itself);
    RUN(what_does_not_interleave_is_refused);
    if (access(vectors, R_OK) == 0) {
        RUN(lists_are_megatrons);
    } else {
        printf("ok %d - lists_are_megatrons # SKIP no ../shared\n", ++tap_tests);
    }
    return tap_done();
}
