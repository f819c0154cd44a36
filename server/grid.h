/* grid.h - a grid of values over fields of a request: {"learning_rate": [1e-3, 3e-4], "seed": [1, 2]}.
 *
 * Its points are all combinations. They are numbered from 0 in the order of the fields as sent, the last field
 * changing fastest: (1e-3, 1), (1e-3, 2), (3e-4, 1), (3e-4, 2).
 */
#ifndef SERVER_GRID_H
#define SERVER_GRID_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum { GRID_FIELDS = 16, GRID_POINTS = 1000 };

struct grid_field {
    const char *name;     /* borrowed from the grid */
    const json_t *values; /* likewise; not empty    */
};

struct grid {
    int field_count, point_count;
    struct grid_field fields[GRID_FIELDS];
    size_t bytes; /* of the values of a point as JSON, at most */
};

/* Check the shape; whether the fields and values make sense is the request's to say. The grid borrows from
 * `object`. Errors: BAD_REQUEST (param grid). */
int grid_read(struct grid *out, const json_t *object, struct err *err);

/* {field: value} of a point; a new reference, NULL without memory. */
json_t *grid_point(const struct grid *g, int point);

/* "BASE [learning_rate=0.001 seed=2]", or "BASE [#3]" where that is too long. Plain text when base is. */
void grid_name(char *out, size_t size, const struct grid *g, int point, const char *base);

/* The number of the point's combination of those fields that decide which files and models a job has, and which
 * shape: points of the same number are alike in it. Below point_count. */
int grid_files(const struct grid *g, int point);
int grid_shape(const struct grid *g, int point);

#endif
