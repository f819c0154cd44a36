/* verbs_lab.c - what several people share: users and their limits, reservations, the audit log. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"
#include "server/cli/when.h"

/* "used of limit", or only what is used where there is no limit. */
static void add_use(struct table *t, const json_t *user, const char *used, const char *limit)
{
    const int64_t most = cli_integer(json_object_get(user, "limits"), limit);
    const long long now = (long long)cli_integer(json_object_get(user, "use"), used);
    char text[64];

    if (most > 0) {
        (void)snprintf(text, sizeof text, "%lld of %lld", now, (long long)most);
    } else {
        (void)snprintf(text, sizeof text, "%lld", now);
    }
    table_add(t, text);
}

static void user_row(struct table *t, const json_t *row)
{
    char text[64];
    const double weight = cli_number(row, "weight");

    table_add(t, cli_text(row, "name"));
    table_add(t, cli_text(row, "role"));
    (void)snprintf(text, sizeof text, "%g", weight);
    table_add(t, isfinite(weight) ? text : "");
    add_use(t, row, "running", "max_running");
    add_use(t, row, "waiting", "max_queued");
    add_use(t, row, "devices_held", "max_devices");
    table_add(t, show_time(text, cli_integer(row, "created_at")));
    table_add(t, json_is_true(json_object_get(row, "disabled")) ? "disabled" : "");
}

int verb_users(struct cli *c, struct err *err)
{
    return cli_list(c, "/v1/users", "NAME|ROLE|>SHARE|>RUNNING|>WAITING|>DEVICES|SINCE|", user_row,
                    "no users", err);
}

int verb_user(struct cli *c, struct err *err)
{
    char path[512];
    json_t *const body = json_object();
    json_t *user = NULL;
    int rc = assign_path(path, sizeof path, err, "/v1/users/%", c->args.word[0]);

    for (int i = 1; rc == 0 && i < c->args.words; i++) {
        rc = assign_field(body, c->args.word[i], NULL, err);
    }
    rc = rc != 0 ? rc : cli_call(c, "PATCH", path, body, &user, err);
    json_decref(body);
    if (user != NULL) {
        struct table *const t = table_new("NAME|ROLE|>SHARE|>RUNNING|>WAITING|>DEVICES|SINCE|");
        if (t != NULL) {
            user_row(t, user);
        }
        rc = t != NULL ? table_print(t, err) : FAIL(err, ERR_NO_MEMORY, "there is no memory left");
        table_free(t);
    }
    json_decref(user);
    return rc;
}

static void reservation_row(struct table *t, const json_t *row)
{
    const int64_t now = (int64_t)time(NULL);
    const char *const user = cli_text(row, "user");
    const json_t *device = NULL;
    char text[400] = "";
    size_t i = 0, used = 0;

    table_add(t, cli_text(row, "id"));
    table_add(t, when_show(text, cli_integer(row, "from_at"), now));
    table_add(t, when_show(text, cli_integer(row, "to_at"), now));
    text[0] = '\0';
    json_array_foreach(json_object_get(row, "devices"), i, device)
    {
        const char *const id = json_string_value(device);
        if (id != NULL && used + strlen(id) + 2 < sizeof text) {
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? "," : "", id);
        }
    }
    table_add(t, text);
    table_add(t, user[0] != '\0' ? user : "(nobody)");
    table_add(t, cli_text(row, "note"));
    table_add(t, cli_text(row, "created_by"));
}

int verb_reservations(struct cli *c, struct err *err)
{
    return cli_list(c, "/v1/reservations", "ID|FROM|TO|DEVICES|FOR|NOTE|BY", reservation_row,
                    "no reservations", err);
}

/* The words from the third on: "all", or devices, which may be joined by commas. */
static json_t *reserved_devices(const struct args *a)
{
    if (a->words == 3 && strcmp(a->word[2], "all") == 0) {
        return json_string("all");
    }
    json_t *const devices = json_array();
    for (int i = 2; i < a->words; i++) {
        for (const char *at = a->word[i]; *at != '\0';) {
            const size_t length = strcspn(at, ",");
            if (length > 0) {
                (void)json_array_append_new(devices, json_stringn(at, length));
            }
            at += length + (at[length] == ',' ? 1 : 0);
        }
    }
    return devices;
}

static void say_overlaps(const json_t *made)
{
    const json_t *run = NULL;
    const int64_t now = (int64_t)time(NULL);
    size_t i = 0;
    char when[64];

    json_array_foreach(json_object_get(made, "overlaps"), i, run)
    {
        const char *const job = cli_text(run, "job");
        cli_print(job[0] != '\0' ? job : "a private job");
        printf(" of ");
        cli_print(cli_text(run, "owner"));
        printf(" may last into it: it ends by %s\n",
               when_show(when, cli_integer(run, "ends_by_at"), now));
    }
}

int verb_reserve(struct cli *c, struct err *err)
{
    const int64_t now = (int64_t)time(NULL);
    const char *const user = c->args.value[OPTION_USER], *const note = c->args.value[OPTION_NOTE];
    int64_t from = 0, to = 0;
    json_t *made = NULL;

    TRY(when_parse(&from, "FROM", c->args.word[0], now, err));
    TRY(when_parse(&to, "TO", c->args.word[1], now, err));
    if (to <= from) {
        return FAIL(err, ERR_BAD_REQUEST, "TO must be later than FROM");
    }
    json_t *const body = json_pack("{s:I, s:I, s:o, s:s*, s:s*}", "from_at", (json_int_t)from,
                                   "to_at", (json_int_t)to, "devices", reserved_devices(&c->args),
                                   "user", user, "note", note);
    int rc = body != NULL ? cli_call(c, "POST", "/v1/reservations", body, &made, err)
                          : FAIL(err, ERR_BAD_REQUEST, "a word is not UTF-8 text");
    json_decref(body);
    if (made != NULL) {
        cli_print(cli_text(made, "id"));
        (void)putchar('\n');
        say_overlaps(made);
    }
    json_decref(made);
    return rc;
}

int verb_unreserve(struct cli *c, struct err *err)
{
    char path[512];

    TRY(assign_path(path, sizeof path, err, "/v1/reservations/%", c->args.word[0]));
    return cli_do(c, "DELETE", path, NULL, "the reservation is gone", err);
}

static void audit_row(struct table *t, const json_t *row)
{
    char time[24];

    table_add(t, show_time(time, cli_integer(row, "created_at")));
    table_add(t, cli_text(row, "user"));
    table_add(t, cli_text(row, "address"));
    table_add(t, cli_text(row, "action"));
    table_add(t, cli_text(row, "target"));
    const json_t *const result = json_object_get(row, "result");
    char number[32];
    (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(result));
    table_add(t, json_is_integer(result) ? number : cli_text(row, "result"));
}

int verb_audit(struct cli *c, struct err *err)
{
    const char *const user = c->args.value[OPTION_USER];
    const char *const action = c->args.value[OPTION_ACTION];
    char path[512], pattern[64];

    (void)snprintf(pattern, sizeof pattern, "/v1/audit%s%s%s%s",
                   user != NULL || action != NULL ? "?" : "", user != NULL ? "user=%" : "",
                   user != NULL && action != NULL ? "&" : "", action != NULL ? "action=%" : "");
    TRY(assign_path(path, sizeof path, err, pattern, user != NULL ? user : action, action));
    return cli_list(c, path, "TIME|USER|FROM|ACTION|WHAT|RESULT", audit_row, "nothing yet", err);
}
