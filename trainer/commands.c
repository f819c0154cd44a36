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
                                            {"peer-ms", required_argument, NULL, 'p'},
                                            {NULL, 0, NULL, 0}};
    struct launch_steps steps = {
        .prepare = rank_prepare, .rank = rank_run, .version = HONE_VERSION};
    struct err err = {0};
    long long ms = 0;

    for (int c = getopt_long(argc, argv, "", options, NULL); c != -1;
         c = getopt_long(argc, argv, "", options, NULL)) {
        if (c != 'g' && c != 'p') {
            return 64;
        }
        if (command_integer(c == 'g' ? "grace-ms" : "peer-ms", optarg, 1, 86400000, &ms, &err) !=
            0) {
            return command_failed(&err);
        }
        *(c == 'g' ? &steps.grace_ms : &steps.peer_ms) = (int)ms;
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: hone-train run [--grace-ms N] [--peer-ms N] JOBDIR\n");
        return 64;
    }
    return launch_run(argv[optind], &steps, &err) != 0 ? command_failed(&err) : 0;
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
    const struct plan_folders folders = {.model = s.config == NULL ? s.model : NULL,
                                         .tokenizer = s.tokenizer[0] != '\0' ? s.tokenizer : NULL,
                                         .adapter = s.adapter};
    rc = plan_request_arch(&a, &s, &folders, err);
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
