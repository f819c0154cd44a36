/* commands.c - what the subcommands share, and the two short ones. */
#include "trainer/commands.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/json.h"
#include "trainer/base/version.h"
#include "trainer/inputs.h"
#include "trainer/plan.h"
#include "trainer/rank.h"

int command_failed(const struct err *err)
{
    fprintf(stderr, "hone-train: %s\n", err->text);
    return err_exit(err->code);
}

int command_integer(const char *option, const char *text, long long low, long long high,
                    long long *out, struct err *err)
{
    char *end = NULL;

    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || n < low || n > high) {
        return FAIL(err, ERR_BAD_REQUEST, "--%s must be a whole number from %lld to %lld, not %s",
                    option, low, high, text);
    }
    *out = n;
    return 0;
}

int command_number(const char *option, const char *text, double low, double high, double *out,
                   struct err *err)
{
    char *end = NULL;
    const double x = strtod(text, &end);

    if (end == text || *end != '\0' || !(x >= low && x <= high)) {
        return FAIL(err, ERR_BAD_REQUEST, "--%s must be a number from %g to %g, not %s", option,
                    low, high, text);
    }
    *out = x;
    return 0;
}

int command_threads(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

int command_run(int argc, char **argv)
{
    static const struct option options[] = {{"grace-ms", required_argument, NULL, 'g'},
                                            {NULL, 0, NULL, 0}};
    struct launch_steps steps = {
        .prepare = rank_prepare, .rank = rank_run, .ranks = 1, .version = HONE_VERSION};
    struct err err = {0};
    long long grace = 0;

    for (int c = getopt_long(argc, argv, "", options, NULL); c != -1;
         c = getopt_long(argc, argv, "", options, NULL)) {
        if (c != 'g' || command_integer("grace-ms", optarg, 1, 86400000, &grace, &err) != 0) {
            return c == 'g' ? command_failed(&err) : 64;
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: hone-train run [--grace-ms N] JOBDIR\n");
        return 64;
    }
    steps.grace_ms = (int)grace;
    return launch_run(argv[optind], &steps, &err) != 0 ? command_failed(&err) : 0;
}

/* The architecture of a request: its config, or the folder that `model` is a path of. */
static int request_arch(struct arch *out, const struct spec *s, struct err *err)
{
    struct tokenizer *t = NULL;
    json_t *config = NULL;
    int64_t vocab = 0;

    if (s->config == NULL) {
        TRY(inputs_read_config(&config, s->model, err));
        const int rc = arch_read(out, config, 0, err);
        json_decref(config);
        return rc;
    }
    if (s->tokenizer[0] != '\0' && json_object_get(s->config, "vocab_size") == NULL) {
        TRY(tokenizer_open(&t, s->tokenizer, err));
        vocab = tokenizer_size(t);
        tokenizer_close(t);
    }
    return plan_config_arch(out, s, vocab, err);
}

static json_t *plan_json(const struct plan *p)
{
    char fingerprint[PLAN_FINGERPRINT];
    json_t *regions = json_object();

    plan_fingerprint(fingerprint, p->fingerprint);
    for (int i = 0; i < LIFE_COUNT; i++) {
        (void)json_object_set_new(regions, life_name((enum life)i),
                                  json_integer((json_int_t)p->region[i]));
    }
    (void)json_object_set_new(regions, "reader", json_integer((json_int_t)p->reader));
    (void)json_object_set_new(regions, "constants", json_integer((json_int_t)p->constants));
    return json_pack("{s:I, s:o, s:I, s:s, s:s}", "memory_bytes", (json_int_t)p->total, "memory",
                     regions, "parameters", (json_int_t)p->parameters, "largest", plan_largest(p),
                     "fingerprint", fingerprint);
}

static int plan_file(json_t **out, const char *path, int threads, struct err *err)
{
    json_t *file = NULL;
    struct spec s;
    struct arch a;
    struct plan p;

    TRY(json_parse_file(&file, path, 1 << 20, err));
    const json_t *request = json_object_get(file, "request");
    int rc = spec_parse(&s, request != NULL ? request : file, err);
    json_decref(file);
    TRY(rc);
    rc = request_arch(&a, &s, err);
    if (rc == 0) {
        rc = plan_make(&p, &a, &s, s.threads > 0 ? (int)s.threads : threads, err);
    }
    spec_free(&s);
    if (rc == 0) {
        *out = plan_json(&p);
    }
    return rc;
}

int command_plan(int argc, char **argv)
{
    json_t *plan = NULL;
    struct err err = {0};

    if (argc != 2) {
        fprintf(stderr, "usage: hone-train plan SPEC.json\n");
        return 64;
    }
    if (plan_file(&plan, argv[1], command_threads(), &err) != 0) {
        return command_failed(&err);
    }
    (void)json_dumpf(plan, stdout, JSON_INDENT(2));
    (void)putchar('\n');
    json_decref(plan);
    return 0;
}
