/* test_users.c - limits of users, what changes them, and the last admin. */
#include "server/users.h"

#include <string.h>

#include "tests/server.h"
#include "trainer/base/json.h"

static struct settings presets(void)
{
    struct settings s = {0};

    s.user_devices = 3;
    s.user_running = 2;
    s.max_jobs = 50;
    return s;
}

/* A change as it comes in a body, and what it is applied to. */
struct case_of {
    int64_t user_id;
    const char *name, *body;
    enum role role, was;
    struct settings settings;
    struct limits limits;
    json_t *user;
};

static int add(struct tx *tx, void *argument, struct err *err)
{
    struct case_of *c = argument;

    return user_add(tx, c->name, c->role, &c->user_id, err);
}

static int change(struct tx *tx, void *argument, struct err *err)
{
    struct case_of *c = argument;
    struct user_change what;
    json_t *body = NULL;

    TRY(json_parse_text(&body, c->body, strlen(c->body), "body", err));
    int rc = user_change_read(&what, body, err);
    json_decref(body);
    return rc != 0 ? rc : user_change_apply(tx, c->user_id, &what, &c->was, err);
}

static int look(sqlite3 *db, void *argument, struct err *err)
{
    struct case_of *c = argument;

    return limits_of(db, c->user_id, &c->settings, &c->limits, err);
}

static int render(sqlite3 *db, void *argument, struct err *err)
{
    struct case_of *c = argument;

    return user_object(db, c->user_id, &c->settings, 1000000, &c->user, err);
}

static void limits_are_those_of_the_settings_until_an_admin_gives_others(void)
{
    struct store *s = open_store_with_job("limits", "job-aaaaaaaaaaaaaa");
    struct case_of root = {.name = "root", .role = ROLE_ADMIN};
    struct case_of c = {.user_id = 1, .settings = presets()};
    struct err err = {0};

    EXPECT(store_write(s, add, &root, &err) == 0);
    EXPECT(store_read(s, look, &c, &err) == 0);
    EXPECT(c.limits.max_devices == 3 && c.limits.max_running == 2 && c.limits.max_queued == 50);
    EXPECT(c.limits.weight == 1.0);
    c.body = "{\"max_devices\": 1, \"max_queued\": 7, \"weight\": 2.5}";
    EXPECT(store_write(s, change, &c, &err) == 0 && c.was == ROLE_MEMBER);
    EXPECT(store_read(s, look, &c, &err) == 0);
    EXPECT(c.limits.max_devices == 1 && c.limits.max_running == 2 && c.limits.max_queued == 7);
    EXPECT(c.limits.weight == 2.5);
    c.body = "{\"max_devices\": null, \"max_running\": 0}";
    EXPECT(store_write(s, change, &c, &err) == 0);
    EXPECT(store_read(s, look, &c, &err) == 0);
    EXPECT(c.limits.max_devices == 3 && c.limits.max_running == 0 && c.limits.max_queued == 7);
    EXPECT(c.limits.weight == 2.5);
    c.settings.user_devices = 9;
    EXPECT(store_read(s, look, &c, &err) == 0 && c.limits.max_devices == 9);
    c.user_id = 99;
    EXPECT(store_read(s, look, &c, &err) == ERR_NOT_FOUND);
    store_close(s);
}

static void what_is_no_role_or_limit_is_refused_by_name(void)
{
    static const struct {
        const char *body, *param;
    } table[] = {
        {"{\"role\": \"root\"}", "role"},
        {"{\"role\": 3}", "role"},
        {"{\"disabled\": \"yes\"}", "disabled"},
        {"{\"weight\": 0}", "weight"},
        {"{\"weight\": -1}", "weight"},
        {"{\"weight\": 1e9}", "weight"},
        {"{\"max_devices\": -1}", "max_devices"},
        {"{\"max_devices\": 65}", "max_devices"},
        {"{\"max_running\": 1.5}", "max_running"},
        {"{\"max_queued\": 0}", "max_queued"},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct user_change what;
        struct err err = {0};
        json_t *body = json_loads(table[i].body, 0, NULL);
        EXPECT(user_change_read(&what, body, &err) == ERR_BAD_REQUEST);
        EXPECT(strcmp(err.param, table[i].param) == 0);
        json_decref(body);
    }
}

static void the_last_admin_stays(void)
{
    struct store *s = open_store_with_job("admins", "job-aaaaaaaaaaaaaa");
    struct case_of first = {.name = "root", .role = ROLE_ADMIN};
    struct case_of second = {.name = "boss", .role = ROLE_ADMIN};
    struct err err = {0};

    EXPECT(store_write(s, add, &first, &err) == 0);
    first.body = "{\"role\": \"member\"}";
    EXPECT(store_write(s, change, &first, &err) == ERR_BAD_STATE);
    first.body = "{\"disabled\": true}";
    EXPECT(store_write(s, change, &first, &err) == ERR_BAD_STATE);
    EXPECT(store_write(s, add, &second, &err) == 0);
    EXPECT(store_write(s, change, &first, &err) == 0);
    second.body = "{\"role\": \"viewer\", \"disabled\": false}";
    EXPECT(store_write(s, change, &second, &err) == ERR_BAD_STATE); /* the first is disabled */
    first.body = "{\"disabled\": false}";
    EXPECT(store_write(s, change, &first, &err) == 0);
    EXPECT(store_write(s, change, &second, &err) == 0 && second.was == ROLE_ADMIN);
    store_close(s);
}

static int use_devices(struct tx *tx, void *argument, struct err *err)
{
    (void)argument;
    TRY(db_run(tx->db, err,
               "INSERT INTO leases(device, job_seq, attempt, granted_at) VALUES('cpu0',1,1,1)",
               ""));
    return db_run(tx->db, err,
                  "INSERT INTO usage(user_id, device_s, decayed, at) VALUES(1, 900, 800, ?)", "i",
                  (int64_t)1000000 - 7 * 24 * 3600);
}

static int64_t used(const struct case_of *c, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(c->user, "use"), key));
}

static void the_object_says_what_is_used_now_and_half_of_what_was_a_week_ago(void)
{
    struct store *s = open_store_with_job("use", "job-aaaaaaaaaaaaaa");
    struct case_of c = {.user_id = 1, .settings = presets()};
    struct err err = {0};

    EXPECT(store_write(s, use_devices, NULL, &err) == 0);
    EXPECT(store_read(s, render, &c, &err) == 0);
    EXPECT(used(&c, "running") == 1 && used(&c, "waiting") == 0);
    EXPECT(used(&c, "devices_held") == 1 && used(&c, "usage_s") == 400);
    EXPECT(json_is_null(json_object_get(c.user, "max_devices")));
    json_decref(c.user);
    store_close(s);
}

int main(void)
{
    scratch_make();
    RUN(limits_are_those_of_the_settings_until_an_admin_gives_others);
    RUN(what_is_no_role_or_limit_is_refused_by_name);
    RUN(the_last_admin_stays);
    RUN(the_object_says_what_is_used_now_and_half_of_what_was_a_week_ago);
    scratch_remove();
    return tap_done();
}
