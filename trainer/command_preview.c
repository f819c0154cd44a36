/* command_preview.c - `hone-train preview`: the first examples of a request as JSON. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "trainer/base/json.h"
#include "trainer/commands.h"
#include "trainer/preview.h"

enum { REQUEST_BYTES = 4 << 20 };

/* An error is JSON as well, so that honed can pass it on: {"error": {"code", "message", "param"}}. */
static void print(const json_t *preview, const struct err *err)
{
    json_t *shown = preview != NULL ? json_deep_copy(preview)
                                    : json_pack("{s:{s:s, s:s, s:s?}}", "error", "code",
                                                err_word(err->code), "message", err->text, "param",
                                                err->param[0] != '\0' ? err->param : NULL);

    (void)json_dumpf(shown, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(shown);
}

static int preview(const char *path, long long n, struct err *err)
{
    json_t *file = NULL, *out = NULL;

    int rc = json_parse_file(&file, path, REQUEST_BYTES, err);
    if (rc == 0) {
        rc = preview_make(&out, file, n, err);
    }
    print(out, err);
    json_decref(out);
    json_decref(file);
    return rc;
}

int command_preview(int argc, char **argv)
{
    static const struct option options[] = {{"n", required_argument, NULL, 'n'},
                                            {NULL, 0, NULL, 0}};
    struct err err = {0};
    long long n = 3;

    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        if (o != 'n' || command_integer("n", optarg, 1, PREVIEW_MOST, &n, &err) != 0) {
            return o == 'n' ? command_failed(&err) : 64;
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: hone-train preview REQUEST.json [--n N]\n");
        return 64;
    }
    return preview(argv[optind], n, &err) != 0 ? command_failed(&err) : 0;
}
