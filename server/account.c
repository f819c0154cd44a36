/* account.c - users from the command line. */
#include "server/account.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/audit.h"
#include "server/audit_file.h"
#include "server/home.h"
#include "trainer/base/io.h"

struct account {
    const char *name, *action;
    enum role role;
    bool wants_token, wants_code, is_first; /* is_first: only when there is no user yet */
    int64_t user_id, expires_at;
    struct new_token token;
    char code[44];
    bool done;
};

static int work_on(struct tx *tx, void *argument, struct err *err)
{
    struct account *a = argument;
    int64_t users = 0;

    TRY(db_integer(&users, 0, tx->db, err, "SELECT COUNT(*) FROM users", ""));
    if (a->is_first && users > 0) {
        return 0;
    }
    if (a->user_id < 0) {
        TRY(user_add(tx, a->name, a->role, &a->user_id, err));
    } else {
        TRY(user_find(tx->db, a->name, &a->user_id, err));
    }
    if (a->wants_token) {
        TRY(token_add(tx, a->user_id, "first", 0, &a->token, err));
    }
    if (a->wants_code) {
        TRY(login_code_add(tx, a->user_id, a->code, &a->expires_at, err));
    }
    a->done = true;
    const struct audit_entry e = {
        .address = "", .action = a->action, .object = a->name, .result = "ok"};
    return audit_add(tx, &e, err);
}

int account_welcome(struct store *store, const struct settings *s, const char *url, struct err *err)
{
    const struct passwd *me = getpwuid(getuid());
    struct account a = {.name = me == NULL ? "admin" : me->pw_name,
                        .action = "first_start",
                        .role = ROLE_ADMIN,
                        .wants_token = true,
                        .wants_code = true,
                        .is_first = true,
                        .user_id = -1};
    char line[AUTH_TOKEN + 2];

    int rc = store_write(store, work_on, &a, err);
    if (rc == ERR_BAD_REQUEST) { /* an account's name that is no user's name of ours */
        a.name = "admin";
        rc = store_write(store, work_on, &a, err);
    }
    if (rc != 0 || !a.done) {
        return rc;
    }
    (void)snprintf(line, sizeof line, "%s\n", a.token.text);
    TRY(home_write(s, "admin.token", line, err));
    printf("The admin is %s; the token is in %s/admin.token\n"
           "Sign in once, within %d minutes: %s/#login=%s\n",
           a.name, s->data, LOGIN_CODE_SECONDS / 60, url, a.code);
    return fflush(stdout) == 0 ? 0 : FAIL(err, ERR_IO, "standard output can't be written");
}

/* Open the store, which a running honed may have open too, and do the work. */
static int in_store(const struct settings *s, struct account *a, struct err *err)
{
    struct store *store = NULL;

    TRY(home_prepare(s, err));
    TRY(store_open(&store, s->data, err));
    const int rc = store_write(store, work_on, a, err);
    store_close(store);
    return rc;
}

int account_add_user(const struct settings *s, const char *name, enum role role, struct err *err)
{
    struct account a = {
        .name = name, .action = "adduser", .role = role, .wants_token = true, .user_id = -1};

    TRY(in_store(s, &a, err));
    printf("%s\n", a.token.text);
    return 0;
}

int account_new_token(const struct settings *s, const char *name, struct err *err)
{
    struct account a = {.name = name, .action = "token", .wants_token = true};

    TRY(in_store(s, &a, err));
    printf("%s\n", a.token.text);
    return 0;
}

int account_login_link(const struct settings *s, const char *name, struct err *err)
{
    struct account a = {.name = name, .action = "login-link", .wants_code = true};
    char path[SETTING_TEXT + 16], *url = NULL;
    size_t size = 0;
    struct err none = {0};

    TRY(in_store(s, &a, err));
    (void)snprintf(path, sizeof path, "%s/honed.url", s->data);
    if (io_read_file(&url, &size, path, 1024, &none) == 0) {
        url[strcspn(url, "\n")] = '\0';
    }
    printf("%s/#login=%s\n", url != NULL ? url : "http://127.0.0.1:8642", a.code);
    free(url);
    return 0;
}

/* What audit-check found. */
struct audited {
    const char *dir;
    int64_t rows, bad_row, bad_line;
};

static int check_audit(sqlite3 *db, void *argument, struct err *err)
{
    struct audited *a = argument;

    TRY(audit_check(db, &a->bad_row, &a->rows, err));
    return audit_file_check(db, a->dir, &a->bad_line, err);
}

int account_check_audit(const struct settings *s, struct err *err)
{
    struct audited a = {.dir = s->data};
    struct store *store = NULL;

    TRY(home_prepare(s, err));
    TRY(store_open(&store, s->data, err));
    const int rc = store_read(store, check_audit, &a, err);
    store_close(store);
    TRY(rc);
    if (a.bad_row != 0) {
        return FAIL(err, ERR_BAD_FILE, "audit log: entry %lld was changed or removed",
                    (long long)a.bad_row);
    }
    if (a.bad_line != 0) {
        return FAIL(err, ERR_BAD_FILE,
                    "audit log: entry %lld is not what its line in audit.jsonl says",
                    (long long)a.bad_line);
    }
    printf("%lld entries; none was changed or removed\n", (long long)a.rows);
    return 0;
}
