/* command_generate.c - `hone-train generate`. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/io.h"
#include "trainer/commands.h"
#include "trainer/generate.h"

static const char usage[] =
    "usage: hone-train generate MODELDIR --prompt TEXT [options]\n"
    "  --prompt TEXT       text to continue; - reads it from standard input\n"
    "  --max-tokens N      new tokens at most (default 200)\n"
    "  --temperature T     0 takes the most likely token (default 1)\n"
    "  --top-k K           only the K most likely tokens (default all)\n"
    "  --top-p P           only the most likely tokens that make up P (default 1)\n"
    "  --seed N            of the choices (default 0)\n"
    "  --adapter DIR       a PEFT folder for the model\n"
    "  --threads N         default: all cores\n"
    "  --precision f32|bf16\n"
    "  --echo              print the prompt too\n"
    "  --stats             tokens and seconds, to standard error\n";

enum { PROMPT_BYTES = 1 << 24 };

struct choices {
    const char *dir;
    char *prompt; /* owned */
    bool echo, stats;
    struct generator_options options;
    struct generation what;
};

static bool print(void *context, const char *text, size_t bytes)
{
    (void)context;
    return fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
}

static int read_prompt(char **out, const char *text, struct err *err)
{
    size_t bytes = 0;

    if (strcmp(text, "-") == 0) {
        char *all = calloc(1, PROMPT_BYTES);
        if (all == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for the prompt");
        }
        bytes = fread(all, 1, PROMPT_BYTES - 1, stdin);
        *out = all;
        if (strlen(all) != bytes || !feof(stdin)) {
            return FAIL(err, ERR_BAD_REQUEST, "the prompt has a NUL byte or is too long");
        }
        return 0;
    }
    *out = strdup(text);
    return *out != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for the prompt");
}

static int read_precision(enum dtype *out, const char *text, struct err *err)
{
    if (strcmp(text, "f32") != 0 && strcmp(text, "bf16") != 0) {
        return FAIL(err, ERR_BAD_REQUEST, "--precision must be f32 or bf16, not %s", text);
    }
    *out = strcmp(text, "bf16") == 0 ? DTYPE_BF16 : DTYPE_REAL;
    return 0;
}

static int read_option(struct choices *c, int option, const char *text, struct err *err)
{
    struct sampling *s = &c->what.sampling;
    long long n = 0;

    switch (option) {
    case 'p':
        free(c->prompt);
        c->prompt = NULL;
        return read_prompt(&c->prompt, text, err);
    case 'n':
        TRY(command_integer("max-tokens", text, 0, 1 << 30, &n, err));
        c->what.max_tokens = n;
        return 0;
    case 't': return command_number("temperature", text, 0.0, 100.0, &s->temperature, err);
    case 'k':
        TRY(command_integer("top-k", text, 0, 1 << 30, &n, err));
        s->top_k = n;
        return 0;
    case 'P': return command_number("top-p", text, 0.0, 1.0, &s->top_p, err);
    case 's':
        TRY(command_integer("seed", text, 0, INT64_MAX, &n, err));
        s->seed = (uint64_t)n;
        return 0;
    case 'T':
        TRY(command_integer("threads", text, 1, 1024, &n, err));
        c->options.threads = (int)n;
        return 0;
    case 'x': return read_precision(&c->options.type, text, err);
    case 'a': c->options.adapter = text; return 0;
    case 'e': c->echo = true; return 0;
    case 'S': c->stats = true; return 0;
    default: return FAIL(err, ERR_BAD_REQUEST, "see hone-train generate without arguments");
    }
}

static int read_options(struct choices *c, int argc, char **argv, struct err *err)
{
    static const struct option options[] = {{"prompt", required_argument, NULL, 'p'},
                                            {"max-tokens", required_argument, NULL, 'n'},
                                            {"temperature", required_argument, NULL, 't'},
                                            {"top-k", required_argument, NULL, 'k'},
                                            {"top-p", required_argument, NULL, 'P'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"threads", required_argument, NULL, 'T'},
                                            {"precision", required_argument, NULL, 'x'},
                                            {"adapter", required_argument, NULL, 'a'},
                                            {"echo", no_argument, NULL, 'e'},
                                            {"stats", no_argument, NULL, 'S'},
                                            {NULL, 0, NULL, 0}};

    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        TRY(read_option(c, o, optarg, err));
    }
    if (optind + 1 != argc || c->prompt == NULL) {
        fputs(usage, stderr);
        return FAIL(err, ERR_BAD_REQUEST, "one MODELDIR and a --prompt are needed");
    }
    c->dir = argv[optind];
    return 0;
}

static int generate(struct choices *c, struct err *err)
{
    struct generator *g = NULL;
    struct generated done;

    TRY(generator_open(&g, c->dir, &c->options, err));
    if (c->echo) {
        (void)fputs(c->prompt, stdout);
    }
    c->what.prompt = c->prompt;
    const int rc = generator_run(g, &c->what, &done, err);
    (void)putchar('\n');
    if (rc == 0 && c->stats) {
        fprintf(stderr, "%lld prompt tokens in %.3f s, %lld tokens in %.3f s, %.1f tokens/s\n",
                (long long)done.prompt_tokens, done.prompt_seconds, (long long)done.tokens,
                done.seconds, done.seconds > 0.0 ? (double)done.tokens / done.seconds : 0.0);
    }
    generator_close(g);
    return rc;
}

int command_generate(int argc, char **argv)
{
    struct err err = {0};
    struct choices c = {
        .options = {.threads = command_threads(), .type = DTYPE_REAL, .isa = ""},
        .what = {.max_tokens = 200, .sampling = {.temperature = 1.0, .top_p = 1.0}, .put = print}};
    int rc = read_options(&c, argc, argv, &err);

    if (rc == 0) {
        rc = generate(&c, &err);
    }
    free(c.prompt);
    return rc != 0 ? command_failed(&err) : 0;
}
