/* tokenize.c - `hone-train tokenize`: ids of a text, text of ids, or a tokenizer learned from a text. */
#include "trainer/tokenize.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/io.h"
#include "trainer/commands.h"
#include "trainer/tokenizer/encoder_pool.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/utf8.h"

static const char usage[] =
    "usage: hone-train tokenize TOKENIZER [options] FILE|-\n"
    "       hone-train tokenize --train SIZE [--pattern gpt4|gpt2] TEXT OUTDIR\n"
    "  TOKENIZER           a tokenizer.json or the folder that holds one\n"
    "  --ids               print the ids of the text (default)\n"
    "  --count             print how many there are\n"
    "  --decode            FILE holds ids: print their text\n"
    "  --add-special       with the tokens that the tokenizer puts around a text (BOS, EOS)\n"
    "  --skip-special      decode without special tokens\n"
    "  --as-text           text that spells a special token is ordinary text\n"
    "  --lines             FILE holds a JSON string on each line, with --decode a list of ids; so "
    "does the output\n"
    "  --threads N         for a long text; 1 by default, and the ids are the same for any number\n"
    "  --train SIZE        learn a byte-level BPE of SIZE tokens from TEXT, write it to OUTDIR\n";

enum { INPUT_BYTES_MAX = 1 << 30 };

enum action { ACTION_IDS, ACTION_COUNT, ACTION_DECODE };

struct choices {
    enum action action;
    bool add_special, skip_special, as_text, lines;
    long long threads;
    long long train; /* vocabulary size; 0: do not */
    enum bpe_pattern pattern;
};

static int read_stdin(struct text *out, struct err *err)
{
    while (!feof(stdin)) {
        TRY(text_reserve(out, 1 << 16, err));
        out->n += fread(out->at + out->n, 1, 1 << 16, stdin);
        if (ferror(stdin) || out->n > INPUT_BYTES_MAX) {
            return FAIL(err, ERR_IO, "standard input is too long or can't be read");
        }
    }
    return 0;
}

static int read_input(struct text *out, const char *file, struct err *err)
{
    if (strcmp(file, "-") == 0) {
        return read_stdin(out, err);
    }
    return io_read_file(&out->at, &out->n, file, INPUT_BYTES_MAX, err);
}

static int flags_of(const struct choices *c)
{
    return (c->add_special ? TOKENIZER_ADD_SPECIAL : 0) | (c->as_text ? TOKENIZER_AS_TEXT : 0);
}

/* A text by several threads; nothing is put around it. */
static int encode_by_threads(const struct tokenizer *t, struct token_list *ids, int threads,
                             const char *text, size_t bytes, struct err *err)
{
    struct encoder_pool *p;
    size_t used;

    TRY(encoder_pool_open(&p, t, threads, err));
    const int rc = encoder_pool_encode_part(p, ids, text, bytes, true, true, &used, err);
    encoder_pool_close(p);
    return rc;
}

static int print_ids(const struct tokenizer *t, const struct choices *c, const char *text,
                     size_t bytes, struct err *err)
{
    struct token_list ids = {0};
    struct encoder *e;

    TRY(encoder_open(&e, t, err));
    const bool plain = c->threads > 1 && flags_of(c) == 0;
    const int rc = plain ? encode_by_threads(t, &ids, (int)c->threads, text, bytes, err)
                         : encoder_encode(e, &ids, text, bytes, flags_of(c), err);
    if (rc == 0 && c->action == ACTION_COUNT) {
        printf("%zu\n", ids.count);
    } else if (rc == 0) {
        for (size_t i = 0; i < ids.count; i++) {
            printf("%s%d", i == 0 ? "" : " ", (int)ids.ids[i]);
        }
        printf("\n");
    }
    token_list_free(&ids);
    encoder_close(e);
    return rc;
}

/* Numbers apart by anything that is no digit. */
static int parse_ids(struct token_list *ids, const struct tokenizer *t, const char *text,
                     size_t bytes, struct err *err)
{
    for (size_t i = 0; i < bytes;) {
        int64_t id = 0;
        size_t n = 0;
        while (i + n < bytes && text[i + n] >= '0' && text[i + n] <= '9' && id < INT32_MAX) {
            id = id * 10 + (text[i + n] - '0');
            n++;
        }
        if (n > 0) {
            if (id >= tokenizer_size(t)) {
                return FAIL(err, ERR_BAD_REQUEST, "id %lld is not below the vocabulary's %lld",
                            (long long)id, (long long)tokenizer_size(t));
            }
            TRY(token_list_put(ids, (int32_t)id, err));
        }
        i += n > 0 ? n : 1;
    }
    return 0;
}

static int print_text(const struct tokenizer *t, const struct choices *c, const char *text,
                      size_t bytes, struct err *err)
{
    struct token_list ids = {0};
    char *out = NULL;
    size_t n = 0;

    int rc = parse_ids(&ids, t, text, bytes, err);
    if (rc == 0) {
        rc = tokenizer_decode(t, &out, &n, ids.ids, ids.count, c->skip_special, err);
    }
    if (rc == 0 && fwrite(out, 1, n, stdout) != n) {
        rc = FAIL(err, ERR_IO, "writing to standard output failed");
    }
    free(out);
    token_list_free(&ids);
    return rc;
}

/* The ids of a line's string, or the string of its ids. */
static int turn_line(json_t **out, struct encoder *e, const struct tokenizer *t,
                     const struct choices *c, const json_t *line, struct err *err)
{
    struct token_list ids = {0};
    char *text = NULL;
    size_t n = 0;
    int rc = 0;

    if (c->action == ACTION_DECODE ? !json_is_array(line) : !json_is_string(line)) {
        return FAIL(err, ERR_BAD_REQUEST, "a line is not a JSON %s",
                    c->action == ACTION_DECODE ? "list of ids" : "string");
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(line); i++) {
        const json_int_t id = json_integer_value(json_array_get(line, i));
        rc = token_list_put(&ids, id < tokenizer_size(t) ? (int32_t)id : -1, err);
    }
    if (rc == 0 && c->action == ACTION_DECODE) {
        rc = tokenizer_decode(t, &text, &n, ids.ids, ids.count, c->skip_special, err);
        *out = rc == 0 ? json_stringn(text, n) : NULL;
    } else if (rc == 0) {
        rc = encoder_encode(e, &ids, json_string_value(line), json_string_length(line), flags_of(c),
                            err);
        *out = rc == 0 ? json_array() : NULL;
        for (size_t i = 0; rc == 0 && i < ids.count; i++) {
            (void)json_array_append_new(*out, json_integer(ids.ids[i]));
        }
    }
    free(text);
    token_list_free(&ids);
    return rc;
}

static int print_lines(const struct tokenizer *t, const struct choices *c, const char *text,
                       size_t bytes, struct err *err)
{
    struct encoder *e;
    int rc = encoder_open(&e, t, err);

    for (size_t at = 0; rc == 0 && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t n = end == NULL ? bytes - at : (size_t)(end - text) - at;
        json_t *line = json_loadb(text + at, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL),
               *out = NULL;
        rc = turn_line(&out, e, t, c, line, err);
        if (rc == 0) {
            (void)json_dumpf(out, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
            (void)putchar('\n');
        }
        json_decref(line);
        json_decref(out);
        at += n + 1;
    }
    encoder_close(e);
    return rc;
}

static int tokenize(const struct choices *c, const char *tokenizer, const char *file,
                    struct err *err)
{
    struct tokenizer *t;
    struct text text = {0};

    TRY(tokenizer_open(&t, tokenizer, err));
    int rc = read_input(&text, file, err);
    if (rc == 0 && c->lines) {
        rc = print_lines(t, c, text.at, text.n, err);
    } else if (rc == 0) {
        rc = c->action == ACTION_DECODE ? print_text(t, c, text.at, text.n, err)
                                        : print_ids(t, c, text.at, text.n, err);
    }
    text_free(&text);
    tokenizer_close(t);
    if (rc == 0 && fflush(stdout) != 0) {
        const int number = errno;
        rc = IO_FAIL(err, number, "writing to standard output failed: %s", strerror(number));
    }
    return rc;
}

static int train(const struct choices *c, const char *text, const char *dir, struct err *err)
{
    const struct bpe_options o = {.vocab_size = c->train, .pattern = c->pattern};
    struct tokenizer *t;

    TRY(io_make_dir(dir, err));
    TRY(bpe_train(&t, text, &o, err));
    const int rc = tokenizer_save(t, dir, err);
    if (rc == 0) {
        printf("%s: %lld tokens\n", dir, (long long)tokenizer_size(t));
    }
    tokenizer_close(t);
    return rc;
}

static int read_option(struct choices *c, int option, const char *value, struct err *err)
{
    switch (option) {
    case 'i': c->action = ACTION_IDS; break;
    case 'c': c->action = ACTION_COUNT; break;
    case 'd': c->action = ACTION_DECODE; break;
    case 's': c->add_special = true; break;
    case 'k': c->skip_special = true; break;
    case 'x': c->as_text = true; break;
    case 'l': c->lines = true; break;
    case 'n': return command_integer("threads", value, 1, 1024, &c->threads, err);
    case 't': return command_integer("train", value, 257, 10000000, &c->train, err);
    case 'p':
        if (strcmp(value, "gpt4") != 0 && strcmp(value, "gpt2") != 0) {
            return FAIL(err, ERR_BAD_REQUEST, "--pattern is gpt4 or gpt2, not %s", value);
        }
        c->pattern = strcmp(value, "gpt2") == 0 ? BPE_PATTERN_GPT2 : BPE_PATTERN_GPT4;
        break;
    default: return FAIL(err, ERR_BAD_REQUEST, "wrong command line");
    }
    return 0;
}

int tokenize_main(int argc, char **argv)
{
    static const struct option options[] = {{"ids", no_argument, NULL, 'i'},
                                            {"count", no_argument, NULL, 'c'},
                                            {"decode", no_argument, NULL, 'd'},
                                            {"add-special", no_argument, NULL, 's'},
                                            {"skip-special", no_argument, NULL, 'k'},
                                            {"as-text", no_argument, NULL, 'x'},
                                            {"lines", no_argument, NULL, 'l'},
                                            {"threads", required_argument, NULL, 'n'},
                                            {"train", required_argument, NULL, 't'},
                                            {"pattern", required_argument, NULL, 'p'},
                                            {NULL, 0, NULL, 0}};
    struct choices c = {0};
    struct err err = {0};

    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        if (o == '?') {
            fputs(usage, stderr);
            return 64;
        }
        if (read_option(&c, o, optarg, &err) != 0) {
            return command_failed(&err);
        }
    }
    if (optind + 2 != argc) {
        fputs(usage, stderr);
        return 64;
    }
    const int rc = c.train > 0 ? train(&c, argv[optind], argv[optind + 1], &err)
                               : tokenize(&c, argv[optind], argv[optind + 1], &err);
    return rc == 0 ? 0 : command_failed(&err);
}
