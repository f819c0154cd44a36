/* verbs_account.c - who you are: login, whoami, login-link, tokens, adduser; and version, help. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"
#include "trainer/base/version.h"

/* The token from --token-file or --token-stdin; in `c->config`. */
static int read_token(struct cli *c, struct err *err)
{
    char line[1024] = "";
    const char *const path = c->args.value[OPTION_TOKEN_FILE];
    const bool by_input = args_has(&c->args, OPT(TOKEN_STDIN));

    if ((path != NULL) == by_input) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "say where the token is: --token-file FILE or --token-stdin");
    }
    FILE *const file = by_input ? stdin : fopen(path, "rbe");
    if (file == NULL) {
        return FAIL(err, ERR_NOT_FOUND, "the token file %s can't be read", path);
    }
    const size_t bytes = fread(line, 1, sizeof line - 1, file);
    line[bytes] = '\0';
    if (!by_input) {
        (void)fclose(file);
    }
    return config_set_token(&c->config, line, err);
}

int verb_login(struct cli *c, struct err *err)
{
    const char *const url = c->args.words > 0 ? c->args.word[0] : CONFIG_DEFAULT_URL;
    json_t *me = NULL;
    char path[IO_PATH_MAX], name[256];

    TRY(config_set_url(&c->config, url, err));
    TRY(read_token(c, err));
    if (strncmp(c->config.url, "http://", 7) == 0 && !http_is_loopback(c->config.url)) {
        (void)fprintf(stderr,
                      "hone: %s is not encrypted: others on the network can read your token\n",
                      c->config.url);
    }
    TRY(http_new(&c->http, c->config.url, c->config.token, err));
    TRY(http_call(c->http, "GET", "/v1/me", NULL, &me, NULL, err));
    (void)show_safe(name, sizeof name, cli_text(me, "name"), strlen(cli_text(me, "name")));
    json_decref(me);
    TRY(config_save(&c->config, path, err));
    printf("signed in to %s as %s; remembered in %s\n", c->config.url, name, path);
    return 0;
}

int verb_whoami(struct cli *c, struct err *err)
{
    json_t *me = NULL;

    TRY(cli_call(c, "GET", "/v1/me", NULL, &me, err));
    if (me != NULL) {
        cli_line("name", cli_text(me, "name"));
        cli_line("role", cli_text(me, "role"));
        cli_line("id", cli_text(me, "id"));
        cli_line("server", c->config.url);
    }
    json_decref(me);
    return 0;
}

int verb_login_link(struct cli *c, struct err *err)
{
    json_t *link = NULL;

    TRY(cli_call(c, "POST", "/v1/login_codes", NULL, &link, err));
    if (link != NULL) {
        const char *const url = cli_text(link, "url");
        show_print(url, strlen(url), false);
        (void)putchar('\n');
    }
    json_decref(link);
    return 0;
}

static void token_row(struct table *t, const json_t *row)
{
    char time[24];

    table_add(t, cli_text(row, "id"));
    table_add(t, cli_text(row, "name"));
    table_add(t, show_time(time, cli_integer(row, "created_at")));
    table_add(t, show_time(time, cli_integer(row, "last_used_at")));
    table_add(t, show_time(time, cli_integer(row, "expires_at")));
}

/* Where a new secret goes is settled before the server makes it, so that none is lost. */
static int check_out(const struct cli *c, struct err *err)
{
    const char *const out = c->args.value[OPTION_OUT];
    FILE *const there = out != NULL ? fopen(out, "rbe") : NULL;

    if (there != NULL) {
        (void)fclose(there);
        return FAIL(err, ERR_BAD_STATE, "%s exists already; name another file", out);
    }
    if (out == NULL && !args_has(&c->args, OPT(JSON))) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "a new token is never printed: name the file for it with --out FILE");
    }
    return 0;
}

/* Make a token or a user with one, and put the secret away. */
static int create_secret(struct cli *c, const char *path, json_t *body, struct err *err)
{
    json_t *made = NULL;
    const char *const out = c->args.value[OPTION_OUT];
    const bool as_json = args_has(&c->args, OPT(JSON)) && out == NULL;
    char *text = NULL;

    TRY(cli_connect(c, true, err));
    TRY(http_call(c->http, "POST", path, body, &made, &text, err));
    const json_t *const token = json_object_get(made, "token");
    const char *const secret =
        json_is_object(token) ? cli_text(token, "token") : cli_text(made, "token");
    int rc = 0;
    if (as_json) {
        (void)puts(text);
    } else if (secret[0] == '\0') {
        rc = FAIL(err, ERR_IO, "the server's answer has no token");
    } else {
        rc = config_write_secret(out, secret, err);
        if (rc == 0) {
            printf("the token of ");
            show_print(cli_text(made, "name"), strlen(cli_text(made, "name")), false);
            printf(" is in %s, readable by you alone; it is shown nowhere else\n", out);
        }
    }
    free(text);
    json_decref(made);
    return rc;
}

static int tokens_new(struct cli *c, struct err *err)
{
    int64_t days = 0;
    const char *const expires = c->args.value[OPTION_EXPIRES];

    if (expires != NULL) {
        TRY(args_number(&days, "--expires", expires, 1, 36500, err));
    }
    TRY(check_out(c, err));
    json_t *const body = json_pack("{s:s}", "name", c->args.word[1]);
    if (body == NULL ||
        (days > 0 && json_object_set_new(body, "expires_in", json_integer(days * 86400)) != 0)) {
        json_decref(body);
        return FAIL(err, ERR_BAD_REQUEST, "the name is not UTF-8 text");
    }
    const int rc = create_secret(c, "/v1/tokens", body, err);
    json_decref(body);
    return rc;
}

static int tokens_revoke(struct cli *c, struct err *err)
{
    char path[512];
    json_t *gone = NULL;

    TRY(assign_path(path, sizeof path, err, "/v1/tokens/%", c->args.word[1]));
    TRY(cli_call(c, "DELETE", path, NULL, &gone, err));
    if (gone != NULL) {
        (void)puts("revoked; it opens nothing any more");
    }
    json_decref(gone);
    return 0;
}

int verb_tokens(struct cli *c, struct err *err)
{
    const char *const what = c->args.words > 0 ? c->args.word[0] : "list";

    if (c->args.words == 2 && strcmp(what, "new") == 0) {
        return tokens_new(c, err);
    }
    if (c->args.words == 2 && strcmp(what, "revoke") == 0) {
        return tokens_revoke(c, err);
    }
    if (c->args.words > 1 || strcmp(what, "list") != 0) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "usage: hone tokens, hone tokens new NAME --out FILE, hone tokens revoke ID");
    }
    return cli_list(c, "/v1/tokens", "ID|NAME|CREATED|LAST USED|EXPIRES", token_row, "no tokens",
                    err);
}

int verb_adduser(struct cli *c, struct err *err)
{
    const char *const role = c->args.value[OPTION_ROLE];
    const bool is_admin = args_has(&c->args, OPT(ADMIN));

    if (is_admin && role != NULL && strcmp(role, "admin") != 0) {
        return FAIL(err, ERR_BAD_REQUEST, "--admin and --role %s say different things", role);
    }
    TRY(check_out(c, err));
    json_t *const body = json_pack("{s:s, s:s}", "name", c->args.word[0], "role",
                                   is_admin       ? "admin"
                                   : role != NULL ? role
                                                  : "member");
    if (body == NULL) {
        return FAIL(err, ERR_BAD_REQUEST, "the name is not UTF-8 text");
    }
    const int rc = create_secret(c, "/v1/users", body, err);
    json_decref(body);
    return rc;
}

int verb_version(struct cli *c, struct err *err)
{
    json_t *health = NULL;
    char *text = NULL;
    const bool as_json = args_has(&c->args, OPT(JSON));
    int rc = cli_connect(c, false, err);

    rc = rc != 0 ? rc : http_call(c->http, "GET", "/healthz", NULL, &health, &text, err);
    if (as_json && rc == 0) {
        (void)puts(text);
    } else if (!as_json) {
        (void)puts("hone " HONE_VERSION);
    }
    if (rc == 0 && !as_json) {
        printf("server at %s: ", c->config.url);
        show_print(cli_text(health, "version"), strlen(cli_text(health, "version")), false);
        (void)putchar('\n');
    }
    free(text);
    json_decref(health);
    /* The client knows its own version without a server. */
    return as_json || rc == ERR_BAD_REQUEST || rc == ERR_BAD_FILE ? rc : 0;
}

/* One row of `hone help fields`: what it is called, what it takes, what it means. */
static void field_row(struct table *t, const char *name, const json_t *field)
{
    char fallback[64] = "", *shown = NULL;
    const json_t *const preset = json_object_get(field, "default");

    if (preset != NULL && !json_is_null(preset)) {
        shown = json_dumps(preset, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        (void)snprintf(fallback, sizeof fallback, "%s", shown != NULL ? shown : "");
        free(shown);
    }
    table_add(t, name);
    table_add(t, cli_text(field, "type"));
    table_add(t, fallback);
    table_add(t, cli_text(field, "description"));
}

static int help_fields(struct cli *c, struct err *err)
{
    json_t *fields = NULL, *field = NULL;
    const char *name = NULL;
    struct table *const table = table_new("FIELD|TYPE|DEFAULT|MEANING");

    if (table == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    }
    int rc = cli_fields(c, &fields, err);
    json_object_foreach(fields, name, field)
    {
        field_row(table, name, field);
    }
    rc = rc != 0 ? rc : table_print(table, err);
    json_decref(fields);
    table_free(table);
    return rc;
}

int verb_help(struct cli *c, struct err *err)
{
    if (c->args.words == 0) {
        args_print_verbs();
        return 0;
    }
    if (strcmp(c->args.word[0], "fields") == 0) {
        return help_fields(c, err);
    }
    const int verb = args_find_verb(c->args.word[0]);
    if (verb < 0) {
        return FAIL(err, ERR_BAD_REQUEST, "there is no verb %s; see `hone help`", c->args.word[0]);
    }
    args_print_usage(verb);
    return 0;
}
