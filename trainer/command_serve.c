/* command_serve.c - `hone-train serve`. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "trainer/commands.h"
#include "trainer/model_folder.h"
#include "trainer/plan.h"
#include "trainer/serve/server.h"

static const char usage[] =
    "usage: hone-train serve MODELDIR --socket PATH [options]\n"
    "  --socket PATH       Unix socket to listen on; lines of JSON in and out\n"
    "  --slots N           texts side by side (default 4)\n"
    "  --positions N       tokens of prompt and text (default: as the model allows, at most 2048)\n"
    "  --piece N           tokens of a prompt that enter at a time (default 64)\n"
    "  --queue N           requests that may wait or run (default 64)\n"
    "  --idle S            leave when nothing was asked for S seconds (default: never)\n"
    "  --patience S        let go of a client that does not read for S seconds (default 15)\n"
    "  --with-parent       leave when standard input ends\n"
    "  --adapter DIR       a PEFT folder for the model\n"
    "  --threads N         default: all cores\n"
    "  --precision f32|bf16\n";

struct choices {
    struct texts_options texts;
    struct server_options server;
};

static int read_count(const char *option, const char *text, long long low, long long high,
                      int64_t *out, struct err *err)
{
    long long n = 0;

    TRY(command_integer(option, text, low, high, &n, err));
    *out = n;
    return 0;
}

static int read_option(struct choices *c, int option, const char *text, struct err *err)
{
    int64_t threads = 0;

    switch (option) {
    case 's': c->server.path = text; return 0;
    case 'n': return read_count("slots", text, 1, 256, &c->texts.slots, err);
    case 'p': return read_count("positions", text, 2, 1 << 24, &c->texts.positions, err);
    case 'c': return read_count("piece", text, 1, 4096, &c->texts.piece, err);
    case 'q': return read_count("queue", text, 1, 4096, &c->server.queue, err);
    case 'i': return read_count("idle", text, 0, 1 << 30, &c->server.idle_seconds, err);
    case 'a': c->texts.adapter = text; return 0;
    case 'd': return read_count("patience", text, 1, 86400, &c->server.patience_seconds, err);
    case 'w': c->server.with_parent = true; return 0;
    case 't':
        TRY(read_count("threads", text, 1, 1024, &threads, err));
        c->texts.threads = (int)threads;
        return 0;
    case 'f':
        if (strcmp(text, "f32") != 0 && strcmp(text, "bf16") != 0) {
            return FAIL(err, ERR_BAD_REQUEST, "--precision must be f32 or bf16, not %s", text);
        }
        c->texts.type = strcmp(text, "bf16") == 0 ? DTYPE_BF16 : DTYPE_REAL;
        return 0;
    default: return FAIL(err, ERR_BAD_REQUEST, "unknown option");
    }
}

static int serve(const char *dir, const struct choices *c, struct err *err)
{
    struct texts *x = NULL;
    struct prompter *p = NULL;
    struct model_folder folder;

    server_block(); /* before there are threads */
    TRY(model_folder_find(&folder, dir, c->texts.adapter, NULL, err));
    TRY(texts_open(&x, dir, &c->texts, err));
    int rc = prompter_open(&p, model_folder_tokenizer(&folder), texts_tokenizer(x), err);
    if (rc == 0) {
        rc = server_run(x, p, &c->server, err);
    }
    prompter_close(p);
    texts_close(x);
    return rc;
}

int command_serve(int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'},    {"slots", required_argument, NULL, 'n'},
        {"positions", required_argument, NULL, 'p'}, {"piece", required_argument, NULL, 'c'},
        {"queue", required_argument, NULL, 'q'},     {"idle", required_argument, NULL, 'i'},
        {"patience", required_argument, NULL, 'd'},  {"with-parent", no_argument, NULL, 'w'},
        {"threads", required_argument, NULL, 't'},   {"precision", required_argument, NULL, 'f'},
        {"adapter", required_argument, NULL, 'a'},   {NULL, 0, NULL, 0}};
    struct choices c = {.texts = {.threads = command_threads(),
                                  .type = DTYPE_REAL,
                                  .slots = 4,
                                  .piece = SERVE_PIECE,
                                  .isa = ""},
                        .server = {.queue = 64, .patience_seconds = 15}};
    struct err err = {0};

    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        if (o == '?' || read_option(&c, o, optarg, &err) != 0) {
            return o == '?' ? 64 : command_failed(&err);
        }
    }
    if (optind + 1 != argc || c.server.path == NULL) {
        fputs(usage, stderr);
        return 64;
    }
    return serve(argv[optind], &c, &err) != 0 ? command_failed(&err) : 0;
}
