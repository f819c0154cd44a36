/* main.c - honed: serve, or one of the small commands of who runs it. */
#include <stdio.h>
#include <string.h>

#include "server/account.h"
#include "server/home.h"
#include "server/rebuild.h"
#include "server/serve.h"

static void print_help(void)
{
    printf(
        "usage: honed [OPTION...]              serve until SIGTERM; runs go on without honed\n"
        "       honed adduser NAME [--role viewer|member|admin]\n"
        "                                      print a new user's token; --admin is --role admin\n"
        "       honed token NAME               print a new token of a user\n"
        "       honed login-link NAME          print an address that signs a browser in, once\n"
        "       honed audit-check              say whether the audit log is as it was written\n"
        "       honed rebuild                  make a new store from the job folders\n"
        "       honed --help | --version\n"
        "all take the options:\n");
    settings_help(stdout);
}

/* Take the word out of the arguments when it is there. */
static bool take_word(int *argc, char **argv, const char *word)
{
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], word) == 0) {
            memmove(&argv[i], &argv[i + 1], (size_t)(*argc - i - 1) * sizeof *argv);
            --*argc;
            return true;
        }
    }
    return false;
}

/* Take "OPTION VALUE" out of the arguments when it is there; NULL otherwise, "" when the value is missing. */
static const char *take_value(int *argc, char **argv, const char *option)
{
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], option) == 0) {
            const char *value = i + 1 < *argc ? argv[i + 1] : "";
            const int taken = i + 1 < *argc ? 2 : 1;
            memmove(&argv[i], &argv[i + taken], (size_t)(*argc - i - taken) * sizeof *argv);
            *argc -= taken;
            return value;
        }
    }
    return NULL;
}

/* The role that a new user gets: a member unless said otherwise. */
static int take_role(enum role *out, int *argc, char **argv, struct err *err)
{
    const char *word = take_value(argc, argv, "--role");

    *out = take_word(argc, argv, "--admin") ? ROLE_ADMIN : ROLE_MEMBER;
    if (word != NULL) {
        *out = role_from_word(word);
    }
    return *out != ROLE_COUNT
               ? 0
               : FAIL(err, ERR_BAD_REQUEST, "--role must be viewer, member or admin");
}

/* argv begins behind the command. */
static int run_command(const char *command, int argc, char **argv, struct err *err)
{
    const bool rebuilds = strcmp(command, "rebuild") == 0;
    const bool checks = strcmp(command, "audit-check") == 0;
    const int words = rebuilds || checks ? 0 : 1;
    const bool adds = strcmp(command, "adduser") == 0;
    enum role role = ROLE_MEMBER;
    struct settings s;

    if (words > 0 && !adds && strcmp(command, "token") != 0 && strcmp(command, "login-link") != 0) {
        return FAIL(err, ERR_BAD_REQUEST, "\"%s\" is not a command of honed; see honed --help",
                    command);
    }
    if (adds) {
        TRY(take_role(&role, &argc, argv, err));
    }
    if (words > 0 && (argc < 1 || argv[0][0] == '-')) {
        return FAIL(err, ERR_BAD_REQUEST, "honed %s wants a user's name", command);
    }
    int rc = settings_read(&s, argc - words, argv + words, err);
    if (rc == 0) {
        rc = rebuilds                        ? rebuild(&s, err)
             : checks                        ? account_check_audit(&s, err)
             : adds                          ? account_add_user(&s, argv[0], role, err)
             : strcmp(command, "token") == 0 ? account_new_token(&s, argv[0], err)
                                             : account_login_link(&s, argv[0], err);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s;
    struct err err = {0};
    int rc = 0;

    if (take_word(&argc, argv, "--help") || take_word(&argc, argv, "-h")) {
        print_help();
        return 0;
    }
    if (take_word(&argc, argv, "--version")) {
        printf("honed %s\n", HONE_VERSION);
        return 0;
    }
    if (argc > 1 && argv[1][0] != '-') {
        rc = run_command(argv[1], argc - 2, argv + 2, &err);
    } else {
        rc = settings_read(&s, argc - 1, argv + 1, &err);
        rc = rc != 0 ? rc : serve(&s, &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "honed: %s\n", err.text);
        return err_exit(err.code);
    }
    return 0;
}
