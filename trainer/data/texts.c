/* texts.c - what a file of examples says, as one plain text. */
#include "trainer/data/texts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "trainer/base/io.h"

static void put(FILE *f, const char *text, size_t bytes)
{
    (void)fwrite(text, 1, bytes, f); /* ferror tells */
    (void)fputc('\n', f);
}

static void put_messages(FILE *f, const json_t *messages)
{
    const json_t *one;
    size_t i;

    json_array_foreach(messages, i, one)
    {
        const json_t *content = json_object_get(one, "content");
        if (json_is_string(content)) {
            put(f, json_string_value(content), json_string_length(content));
        }
    }
}

static void put_example(FILE *f, const struct example *e)
{
    switch (e->kind) {
    case EXAMPLE_TEXT: put(f, e->text, e->bytes); break;
    case EXAMPLE_COMPLETION:
        put(f, e->prompt, e->prompt_bytes);
        put(f, e->completion, e->completion_bytes);
        break;
    case EXAMPLE_PREFERENCE:
    case EXAMPLE_CHAT:
        put_messages(f, e->messages);
        put_messages(f, e->chosen);
        put_messages(f, e->rejected);
        break;
    case EXAMPLE_KIND_COUNT: break;
    }
}

static int write_all(FILE *f, const char *path, struct example_reader *r, struct err *err)
{
    const struct example *e = NULL;

    do {
        TRY(example_reader_next(r, &e, err));
        if (e != NULL) {
            put_example(f, e);
        }
        if (ferror(f)) {
            const int number = errno;
            return IO_FAIL(err, number, "writing %s failed: %s", path, strerror(number));
        }
    } while (e != NULL);
    return 0;
}

int texts_write(const char *path, const struct example_options *o, struct err *err)
{
    struct example_reader *r = NULL;

    TRY(example_reader_open(&r, o, err));
    FILE *f = fopen(path, "we");
    if (f == NULL) {
        const int number = errno;
        example_reader_close(r);
        return IO_FAIL(err, number, "writing %s failed: %s", path, strerror(number));
    }
    int rc = write_all(f, path, r, err);
    example_reader_close(r);
    if (fclose(f) != 0 && rc == 0) {
        const int number = errno;
        rc = IO_FAIL(err, number, "writing %s failed: %s", path, strerror(number));
    }
    return rc;
}
