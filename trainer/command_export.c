/* command_export.c - `hone-train export`. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "trainer/commands.h"
#include "trainer/export.h"

static const char usage[] = "usage: hone-train export CHECKPOINT OUTDIR [options]\n"
                            "  CHECKPOINT          a checkpoint, a model folder, or an adapter, "
                            "which is merged into its base\n"
                            "  --base DIR          base model of the adapter (default: what its "
                            "adapter_config.json names)\n"
                            "  --precision P       f32, bf16, f16 or f64 (default: as it is)\n";

static int read_precision(enum export_precision *out, const char *text, struct err *err)
{
    static const struct {
        const char *word;
        enum export_precision precision;
    } known[] = {
        {"f32", EXPORT_F32}, {"bf16", EXPORT_BF16}, {"f16", EXPORT_F16}, {"f64", EXPORT_F64}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(text, known[i].word) == 0) {
            *out = known[i].precision;
            return 0;
        }
    }
    return FAIL(err, ERR_BAD_REQUEST, "--precision must be f32, bf16, f16 or f64, not %s", text);
}

int command_export(int argc, char **argv)
{
    static const struct option options[] = {{"base", required_argument, NULL, 'b'},
                                            {"precision", required_argument, NULL, 'x'},
                                            {NULL, 0, NULL, 0}};
    struct export_options o = {.precision = EXPORT_AS_IT_IS};
    struct err err = {0};

    for (int c = getopt_long(argc, argv, "", options, NULL); c != -1;
         c = getopt_long(argc, argv, "", options, NULL)) {
        if (c == 'b') {
            o.base = optarg;
        } else if (c != 'x') {
            return 64;
        } else if (read_precision(&o.precision, optarg, &err) != 0) {
            return command_failed(&err);
        }
    }
    if (optind + 2 != argc) {
        fputs(usage, stderr);
        return 64;
    }
    o.dir = argv[optind];
    o.out = argv[optind + 1];
    return export_model(&o, &err) != 0 ? command_failed(&err) : 0;
}
