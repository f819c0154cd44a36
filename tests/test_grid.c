/* test_grid.c - grids of values: their points, names, and what is refused. */
#include "server/grid.h"

#include <stdio.h>
#include <string.h>

#include "kernels/check.h"
#include "server/text.h"
#include "tests/tap.h"

static json_t *object; /* the text that reads() read last */

static bool reads(struct grid *g, const char *text)
{
    struct err err = {0};

    json_decref(object);
    object = json_loads(text, 0, NULL);
    CHECK(object != NULL, "%s", text);
    const int rc = grid_read(g, object, &err);
    EXPECT(rc == 0 || (err.code == ERR_BAD_REQUEST && strcmp(err.param, "grid") == 0));
    return rc == 0;
}

static bool point_is(const struct grid *g, int point, const char *text)
{
    json_t *expected = json_loads(text, 0, NULL), *got = grid_point(g, point);
    const bool equal = json_equal(expected, got) != 0;

    json_decref(expected);
    json_decref(got);
    return equal;
}

static void the_last_field_changes_fastest(void)
{
    struct grid g;

    EXPECT(reads(&g, "{\"z\":[1,2],\"a\":[\"x\",\"y\",\"z\"],\"m\":[0.5]}"));
    EXPECT(g.point_count == 6 && g.field_count == 3);
    EXPECT(point_is(&g, 0, "{\"z\":1,\"a\":\"x\",\"m\":0.5}"));
    EXPECT(point_is(&g, 1, "{\"z\":1,\"a\":\"y\",\"m\":0.5}"));
    EXPECT(point_is(&g, 2, "{\"z\":1,\"a\":\"z\",\"m\":0.5}"));
    EXPECT(point_is(&g, 3, "{\"z\":2,\"a\":\"x\",\"m\":0.5}"));
    EXPECT(point_is(&g, 5, "{\"z\":2,\"a\":\"z\",\"m\":0.5}"));
}

static void a_point_is_named_by_its_values_or_its_number(void)
{
    struct grid g;
    char name[129], long_name[129];

    EXPECT(reads(
        &g, "{\"learning_rate\":[0.001,3e-05],\"seed\":[1,2],\"config\":[{\"a\":1},{\"a\":2}]}"));
    grid_name(name, sizeof name, &g, 7, "tiny");
    EXPECT(strcmp(name, "tiny [learning_rate=3e-05 seed=2 config=#2]") == 0);
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    grid_name(name, sizeof name, &g, 3, long_name);
    EXPECT(strlen(name) == 128 && strcmp(name + 123, " [#3]") == 0);
    memcpy(long_name + 120, "\xe4\xb8\xad\xe4\xb8\xad\xe4", 7);
    memcpy(long_name + 126, "zz", 2);
    grid_name(name, sizeof name, &g, 3, long_name);
    EXPECT(text_is_plain(name) && strcmp(name + 120, "\xe4\xb8\xad [#3]") == 0);
    EXPECT(reads(&g, "{\"chat_template\":[\"a\\nb\",\"short\"]}"));
    grid_name(name, sizeof name, &g, 0, "t");
    EXPECT(strcmp(name, "t [chat_template=#1]") == 0);
    grid_name(name, sizeof name, &g, 1, "t");
    EXPECT(strcmp(name, "t [chat_template=short]") == 0);
}

static void names_fit_to_the_last_byte(void)
{
    struct grid g;
    char base[129] = "", name[129];

    EXPECT(reads(&g, "{\"seed\":[1]}"));
    memset(base, 'b', 128 - strlen(" [seed=1]"));
    grid_name(name, sizeof name, &g, 0, base);
    EXPECT(strlen(name) == 128 && strcmp(name + 119, " [seed=1]") == 0);
    base[strlen(base)] = 'b';
    grid_name(name, sizeof name, &g, 0, base);
    EXPECT(strlen(name) <= 128 && strstr(name, " [#0]") != NULL);
}

static void refuses_what_is_no_grid(void)
{
    static const char *const bad[] = {
        "{}",
        "{\"a\":[]}",
        "{\"a\":1}",
        "{\"a\":{\"b\":1}}",
        "{\"a\":[null]}",
        "{\"a\":[true]}",
        "{\"a\":[[1]]}",
        "{\"a\":[1,2,1]}",
        "{\"a\":[{\"b\":1},{\"b\":1}]}",
    };
    struct grid g;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT(!reads(&g, bad[i]));
    }
}

static void sixteen_fields_are_the_most(void)
{
    char text[400];
    struct grid g;

    for (int n = 1; n <= 17; n++) {
        size_t at = 0;
        for (int f = 0; f < n; f++) {
            at += (size_t)snprintf(text + at, sizeof text - at, "%c\"%c\":[1]", f == 0 ? '{' : ',',
                                   'a' + f);
        }
        (void)snprintf(text + at, sizeof text - at, "}");
        EXPECT(reads(&g, text) == (n <= 16));
    }
}

/* {"a":[0..n-1],"b":[0..m-1]} */
static bool reads_sizes(struct grid *g, int n, int m)
{
    static char text[20000];
    size_t at = (size_t)snprintf(text, sizeof text, "{");
    const int sizes[] = {n, m};

    for (int f = 0; f < 2; f++) {
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "%s\"%c\":[", f == 0 ? "" : ",", 'a' + f);
        for (int i = 0; i < sizes[f]; i++) {
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", i == 0 ? "" : ",", i);
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "]");
    }
    (void)snprintf(text + at, sizeof text - at, "}");
    return reads(g, text);
}

static void a_thousand_points_are_the_most(void)
{
    struct grid g;

    EXPECT(reads_sizes(&g, 1000, 1) && g.point_count == 1000);
    EXPECT(reads_sizes(&g, 40, 25) && g.point_count == 1000);
    EXPECT(point_is(&g, 999, "{\"a\":39,\"b\":24}"));
    EXPECT(!reads_sizes(&g, 1001, 1));
    EXPECT(!reads_sizes(&g, 7, 143));
    EXPECT(!reads_sizes(&g, 1000, 1000));
}

static void points_are_alike_in_files_and_shape_where_those_fields_are(void)
{
    struct grid g;

    EXPECT(reads(&g, "{\"seed\":[1,2],\"learning_rate\":[1,2,3]}"));
    for (int p = 0; p < g.point_count; p++) {
        EXPECT(grid_shape(&g, p) == 0 && grid_files(&g, p) == 0);
    }
    EXPECT(reads(&g, "{\"model\":[\"a\",\"b\"],\"seed\":[1,2],\"micro_batch_size\":[1,2,4]}"));
    for (int p = 0; p < g.point_count; p++) {
        EXPECT(grid_files(&g, p) == p / 6);
        EXPECT(grid_shape(&g, p) == p / 6 * 3 + p % 3);
    }
    EXPECT(reads(&g, "{\"devices\":[1,2]}") && grid_shape(&g, 1) == 1 && grid_files(&g, 1) == 0);
    EXPECT(reads(&g, "{\"config\":[{\"a\":1},{\"a\":2}]}") && grid_files(&g, 1) == 1);
}

int main(void)
{
    RUN(the_last_field_changes_fastest);
    RUN(a_point_is_named_by_its_values_or_its_number);
    RUN(names_fit_to_the_last_byte);
    RUN(refuses_what_is_no_grid);
    RUN(sixteen_fields_are_the_most);
    RUN(a_thousand_points_are_the_most);
    RUN(points_are_alike_in_files_and_shape_where_those_fields_are);
    json_decref(object);
    return tap_done();
}
