/* main.c - the `hone` client: find the verb, run it, say in one sentence what went wrong. */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"

static int (*const functions[])(struct cli *c, struct err *err) = {
#define VERB(name, function, fewest, most, options, arguments, summary) verb_##function,
#include "server/cli/verbs.def"
};

int main(int argc, char **argv)
{
    struct cli c = {0};
    struct err err = {0};

    /* Only the width of characters: numbers keep their points. */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    (void)signal(SIGPIPE, SIG_IGN);
    int rc = args_parse(&c.args, argc, argv, &err);
    rc = rc != 0 ? rc : functions[c.args.verb](&c, &err);
    http_free(c.http);
    if (fflush(stdout) != 0 && rc == 0 && errno != EPIPE) {
        rc = FAIL(&err, ERR_IO, "the output can't be written: %s", strerror(errno));
    }
    if (rc != 0) {
        char safe[1024];
        (void)show_safe(safe, sizeof safe, err.text, strlen(err.text));
        (void)fprintf(stderr, "hone: %s\n", safe);
        return err_exit((enum err_code)rc);
    }
    return c.exit;
}
