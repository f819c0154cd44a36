/* main.c - hone-train: picks the subcommand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/base/version.h"
#include "trainer/commands.h"
#include "trainer/tokenize.h"

static const struct {
    const char *name;
    int (*call)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", command_run, "JOBDIR: run the job in a folder to its end"},
    {"plan", command_plan, "SPEC.json: the memory that a request needs"},
    {"check", command_check, "FILE: what is in a file of examples, and what is wrong with it"},
    {"preview", command_preview, "REQUEST.json: the first examples, token by token"},
    {"tokenize", tokenize_main, "TOKENIZER FILE: token ids of a text, or learn a tokenizer"},
    {"generate", command_generate, "MODELDIR --prompt TEXT: continue a text"},
    {"serve", command_serve, "MODELDIR --socket PATH: texts and chats for other programs"},
    {"export", command_export, "CHECKPOINT OUTDIR: merge an adapter, or convert a model"},
    {"bench", command_bench, "speed of a training step against this machine's peak"},
};

/* libgomp lets a thread that waits spin for milliseconds, which on a shared machine takes the core from the
 * thread it waits for: steps were 3 to 5 times slower with both cores busy. It reads its setting when it is
 * loaded, so the program starts itself once more with a short spin, unless the user has set one. */
static void wait_without_spinning(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") == NULL && getenv("OMP_WAIT_POLICY") == NULL &&
        setenv("GOMP_SPINCOUNT", "1000", 1) == 0) {
        (void)execv("/proc/self/exe", argv); /* returns only when it failed: then go on as it is */
    }
}

int main(int argc, char **argv)
{
    const size_t count = sizeof commands / sizeof commands[0];

    wait_without_spinning(argv);

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("hone-train %s\n", HONE_VERSION);
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < count; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].call(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "usage: hone-train COMMAND ...\n");
    for (size_t i = 0; i < count; i++) {
        fprintf(stderr, "  %-9s %s\n", commands[i].name, commands[i].help);
    }
    return 64;
}
