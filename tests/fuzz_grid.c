/* fuzz_grid.c - any JSON as a grid: refused with a sentence, or points that can be made and named. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/check.h"
#include "server/grid.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct grid g;
    struct err err = {0};
    char name[129];
    json_t *object = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, NULL);

    if (!json_is_object(object) || grid_read(&g, object, &err) != 0) {
        CHECK(!json_is_object(object) || strpbrk(err.text, "\n\r\t") == NULL, "%s", err.text);
        json_decref(object);
        return 0;
    }
    const int points[] = {0, g.point_count / 2, g.point_count - 1};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        json_t *point = grid_point(&g, points[i]);
        CHECK(json_object_size(point) == (size_t)g.field_count, "point %d", points[i]);
        json_decref(point);
        grid_name(name, sizeof name, &g, points[i], "a name of some length, with \xe4\xb8\xad");
        CHECK(strlen(name) < sizeof name, "%s", name);
    }
    json_decref(object);
    return 0;
}
