/* scratch.h - a fresh folder for one test program, and files in it.
 *
 *     int main(void) { scratch_make(); RUN(...); scratch_remove(); return tap_done(); }
 */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"

static char scratch[] = "/tmp/hone-test-XXXXXX";

static inline void scratch_make(void)
{
    CHECK(mkdtemp(scratch) != NULL, "no temporary folder");
}

static inline void scratch_remove(void)
{
    struct err err = {0};

    CHECK(io_remove_tree(scratch, &err) == 0, "%s", err.text);
}

/* The path of `name` in the folder; valid for seven further calls. */
static inline const char *in_scratch(const char *name)
{
    static char paths[8][IO_PATH_MAX];
    static int next;
    char *path = paths[next++ % 8];

    CHECK(snprintf(path, IO_PATH_MAX, "%s/%s", scratch, name) < IO_PATH_MAX, "%s", name);
    return path;
}

/* Write a file at `path`. */
static inline void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    CHECK(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0, "cannot write %s", path);
}

static inline void put_text(const char *path, const char *text)
{
    put_file(path, text, strlen(text));
}

#endif
