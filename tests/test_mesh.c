/* test_mesh.c - groups of ranks: Megatron's own, and what must hold for every mesh. */
#include <string.h>
#include <unistd.h>

#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/mesh.h"

static const char vectors[] = "../shared/vectors/megatron/rank_groups.json";

static int size_of(const json_t *sizes, const char *axis)
{
    return (int)json_integer_value(json_object_get(sizes, axis));
}

/* "expert tp-ep" is "expert:tp-ep" in the vectors. */
static void vector_name(char out[32], enum mesh_group group)
{
    (void)snprintf(out, 32, "%s", mesh_group_name(group));
    char *blank = strchr(out, ' ');
    if (blank != NULL) {
        *blank = ':';
    }
}

/* Is the rank's group one of the listed ones, and the one that holds it? */
static bool is_listed(const json_t *list, const int *members, int count, int rank)
{
    const json_t *one = NULL;
    size_t i = 0;

    json_array_foreach(list, i, one)
    {
        bool same = (int)json_array_size(one) == count, holds = false;
        for (int k = 0; k < count && same; k++) {
            same = json_integer_value(json_array_get(one, (size_t)k)) == members[k];
            holds = holds || members[k] == rank;
        }
        if (same && holds) {
            return true;
        }
    }
    return false;
}

static void check_case(const json_t *one)
{
    const json_t *sizes = json_object_get(one, "sizes"), *groups = json_object_get(one, "groups");
    const char *order = json_string_value(json_object_get(one, "order"));
    const struct mesh_sizes s = {.tp = size_of(sizes, "tp"),
                                 .cp = size_of(sizes, "cp"),
                                 .dp = size_of(sizes, "dp"),
                                 .pp = size_of(sizes, "pp"),
                                 .ep = size_of(sizes, "ep"),
                                 .etp = size_of(sizes, "etp"),
                                 .pp_before_dp = strcmp(order, "tp-cp-ep-pp-dp") == 0};
    const int world = (int)json_integer_value(json_object_get(one, "world"));
    int members[MESH_RANKS], mine = -1, compared = 0;
    struct err err = {0};
    struct mesh m;

    for (int rank = 0; rank < world; rank++) {
        EXPECT(mesh_make(&m, &s, rank, &err) == 0);
        EXPECT(m.world == world && m.edp == size_of(sizes, "edp"));
        for (int g = 0; g < GROUP_COUNT; g++) {
            char name[32];
            vector_name(name, (enum mesh_group)g);
            const json_t *list = json_object_get(groups, name);
            if (list == NULL || (g == GROUP_EMBEDDING && !m.is_first && !m.is_last)) {
                continue;
            }
            const int count = mesh_group(&m, (enum mesh_group)g, members, &mine);
            EXPECT(is_listed(list, members, count, rank));
            EXPECT(mine >= 0 && mine < count && members[mine] == rank);
            compared++;
        }
    }
    EXPECT(compared >= 14 * world);
}

static void groups_are_megatrons(void)
{
    json_t *cases = NULL;
    const json_t *one = NULL;
    struct err err = {0};
    size_t i = 0;

    EXPECT(json_parse_file(&cases, vectors, 1 << 20, &err) == 0);
    EXPECT(json_array_size(cases) > 0);
    json_array_foreach(cases, i, one)
    {
        check_case(one);
    }
    json_decref(cases);
}

/* In every group of a kind each rank is in exactly one, and all members agree on it. */
static void check_partition(const struct mesh_sizes *s)
{
    int members[64], theirs[64], mine = -1;
    struct err err = {0};
    struct mesh m, other;

    for (int g = 0; g < GROUP_COUNT; g++) {
        EXPECT(mesh_make(&m, s, 0, &err) == 0);
        const int world = m.world;
        for (int rank = 0; rank < world; rank++) {
            EXPECT(mesh_make(&m, s, rank, &err) == 0);
            const int count = mesh_group(&m, (enum mesh_group)g, members, &mine);
            EXPECT(count >= 1 && members[mine] == rank);
            for (int k = 0; k < count; k++) {
                EXPECT(mesh_make(&other, s, members[k], &err) == 0);
                EXPECT(mesh_group(&other, (enum mesh_group)g, theirs, &mine) == count);
                EXPECT(mine == k && memcmp(members, theirs, (size_t)count * sizeof *members) == 0);
            }
        }
    }
}

static void every_mesh_is_divided_into_groups(void)
{
    static const struct mesh_sizes all[] = {
        {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1},
        {.tp = 2, .cp = 2, .dp = 2, .pp = 2, .ep = 2},
        {.tp = 1, .cp = 2, .dp = 3, .pp = 4, .ep = 3, .etp = 2},
        {.tp = 4, .cp = 1, .dp = 2, .pp = 3, .ep = 8, .etp = 1},
        {.tp = 2, .cp = 1, .dp = 4, .pp = 2, .ep = 2, .etp = 2, .pp_before_dp = true},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        check_partition(&all[i]);
    }
}

static void stages_follow_each_other_in_a_ring(void)
{
    static const struct mesh_sizes s = {.tp = 2, .cp = 1, .dp = 2, .pp = 3, .ep = 1};
    struct err err = {0};
    struct mesh m, next;

    for (int rank = 0; rank < 12; rank++) {
        EXPECT(mesh_make(&m, &s, rank, &err) == 0);
        EXPECT(mesh_make(&next, &s, mesh_next(&m), &err) == 0);
        EXPECT(next.pp == (m.pp + 1) % 3 && next.tp == m.tp && next.dp == m.dp);
        EXPECT(mesh_previous(&next) == rank);
    }
}

static void sizes_that_do_not_divide_are_refused(void)
{
    static const struct mesh_sizes bad[] = {
        {.tp = 0, .cp = 1, .dp = 1, .pp = 1, .ep = 1},
        {.tp = 2, .cp = 1, .dp = 2, .pp = 1, .ep = 3, .etp = 1},
        {.tp = 2, .cp = 1, .dp = 1, .pp = 1, .ep = 2}, /* etp is 2 then */
        {.tp = 64, .cp = 64, .dp = 2, .pp = 1, .ep = 1},
        {.tp = 4096, .cp = 4096, .dp = 4096, .pp = 4096, .ep = 1},
        {.tp = 1, .cp = 1, .dp = 1, .pp = -1, .ep = 1},
    };
    struct mesh m;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {0};
        EXPECT(mesh_make(&m, &bad[i], 0, &err) == ERR_BAD_SPEC);
        EXPECT(err.text[0] != '\0');
    }
}

int main(void)
{
    RUN(every_mesh_is_divided_into_groups);
    RUN(stages_follow_each_other_in_a_ring);
    RUN(sizes_that_do_not_divide_are_refused);
    if (access(vectors, R_OK) == 0) {
        RUN(groups_are_megatrons);
    } else {
        printf("ok %d - groups_are_megatrons # SKIP no ../shared\n", ++tap_tests);
    }
    return tap_done();
}
