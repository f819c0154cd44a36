/* fresh.h - a folder for each test, in the program's scratch folder, and text files in it. */
#ifndef TESTS_FRESH_H
#define TESTS_FRESH_H

#include <sys/stat.h>

#include "tests/scratch.h"

/* A new empty folder; its path is in `out`. */
static inline void fresh_make(char out[256])
{
    static int count;

    CHECK(snprintf(out, 256, "%s/%d", scratch, ++count) < 256 && mkdir(out, 0700) == 0, "%s", out);
}

static inline void fresh_remove(const char *dir)
{
    struct err err = {0};

    CHECK(io_remove_tree(dir, &err) == 0, "%s", err.text);
}

static inline void fresh_write(const char *dir, const char *name, const char *text)
{
    char path[IO_PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    put_text(path, text);
}

/* The whole file as text, to be freed; "" when it is not there. */
static inline char *fresh_read(const char *dir, const char *name)
{
    char path[IO_PATH_MAX], *text = NULL;
    size_t bytes;
    struct err ignored;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    if (io_read_file(&text, &bytes, path, 64 << 20, &ignored) != 0) {
        text = calloc(1, 1);
    }
    return text;
}

#endif
