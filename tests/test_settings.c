/* test_settings.c - the command line, settings.json, and what of them is refused. */
#include "server/settings.h"

#include <string.h>

#include "tests/scratch.h"
#include "tests/tap.h"

enum { WORDS = 12 };

/* Read settings from words; the first is always --data DIR. */
static int read_words(struct settings *s, const char *dir, const char *const *words,
                      struct err *err)
{
    char *argv[WORDS + 2];
    char copies[WORDS + 2][300];
    int argc = 0;

    (void)snprintf(copies[argc], sizeof copies[0], "--data=%s", dir);
    argv[argc] = copies[argc];
    argc++;
    for (; *words != NULL; words++, argc++) {
        (void)snprintf(copies[argc], sizeof copies[0], "%s", *words);
        argv[argc] = copies[argc];
    }
    return settings_read(s, argc, argv, err);
}

static void defaults_hold_where_nothing_is_said(void)
{
    static const char *const none[] = {NULL};
    struct settings s;
    struct err err = {0};

    EXPECT(read_words(&s, in_scratch("defaults"), none, &err) == 0);
    EXPECT(s.port == 8642 && strcmp(s.listen, "127.0.0.1") == 0 && !s.behind_proxy);
    EXPECT(s.model_root.count == 0 && s.max_tries == 5);
}

static void words_are_understood(void)
{
    static const char *const words[] = {"--port",
                                        "0",
                                        "--behind-proxy",
                                        "--model-root",
                                        "a=/x",
                                        "--model_root=b=/y",
                                        "--grace-seconds=7",
                                        NULL};
    struct settings s;
    struct err err = {0};

    EXPECT(read_words(&s, in_scratch("words"), words, &err) == 0);
    EXPECT(s.port == 0 && s.behind_proxy && s.grace_seconds == 7 && s.model_root.count == 2);
    EXPECT(strcmp(s.model_root.at[1], "b=/y") == 0);
}

static void bad_words_are_named(void)
{
    static const char *const cases[][3] = {
        {"--prot", "1", NULL},
        {"--port", "x", NULL},
        {"--port", "65536", NULL},
        {"--port", "-1", NULL},
        {"--port", "", NULL},
        {"--port", NULL, NULL},
        {"--behind-proxy=yes", NULL, NULL},
        {"stray", NULL, NULL},
        {"--port=99999999999999999999", NULL, NULL},
        {"--", NULL, NULL},
        {"-p", NULL, NULL},
        {"--max-upload=0", NULL, NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct settings s;
        struct err err = {0};
        EXPECT(read_words(&s, in_scratch("bad"), cases[i], &err) == ERR_BAD_REQUEST);
        EXPECT(err.text[0] != '\0');
    }
}

static int read_file(struct settings *s, const char *text, struct err *err)
{
    static const char *const words[] = {"--port", "7", "--data-root", "w=/w", NULL};
    const char *dir = in_scratch("file");
    char path[300];

    if (access(dir, F_OK) != 0) {
        EXPECT(io_make_dir(dir, err) == 0);
    }
    (void)snprintf(path, sizeof path, "%s/settings.json", dir);
    put_text(path, text);
    return read_words(s, dir, words, err);
}

static void the_command_line_wins_over_the_file(void)
{
    struct settings s;
    struct err err = {0};

    EXPECT(read_file(&s,
                     "{\"port\": 5, \"max_jobs\": 3, \"behind_proxy\": true,"
                     " \"data_root\": [\"f=/f\"], \"web\": \"/w\"}",
                     &err) == 0);
    EXPECT(s.port == 7 && s.max_jobs == 3 && s.behind_proxy && strcmp(s.web, "/w") == 0);
    EXPECT(s.data_root.count == 2 && strcmp(s.data_root.at[0], "f=/f") == 0);
}

static void a_bad_file_is_refused_by_key(void)
{
    static const char *const cases[] = {
        "{\"prot\": 5}",
        "{\"port\": \"5\"}",
        "{\"port\": 65536}",
        "{\"behind_proxy\": 1}",
        "{\"data_root\": \"a\"}",
        "{\"data_root\": [1]}",
        "{\"web\": null}",
        "[]",
        "{\"port\": 5, \"port\": 6}",
        "{",
        "{\"data\": \"/x\"}",
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct settings s;
        struct err err = {0};
        EXPECT(read_file(&s, cases[i], &err) != 0);
        EXPECT(strstr(err.text, "settings.json") != NULL || strstr(err.text, "port") != NULL);
    }
}

int main(void)
{
    scratch_make();
    RUN(defaults_hold_where_nothing_is_said);
    RUN(words_are_understood);
    RUN(bad_words_are_named);
    RUN(the_command_line_wins_over_the_file);
    RUN(a_bad_file_is_refused_by_key);
    scratch_remove();
    return tap_done();
}
