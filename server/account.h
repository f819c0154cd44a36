/* account.h - what the one who started honed does with users from the command line. */
#ifndef SERVER_ACCOUNT_H
#define SERVER_ACCOUNT_H

#include "server/auth.h"
#include "server/settings.h"

/* When there is no user yet: an admin with the name of the account that runs honed, DATA/admin.token,
 * and a link to sign in, printed. */
int account_welcome(struct store *store, const struct settings *s, const char *url,
                    struct err *err);

/* honed adduser NAME [--role ROLE] | token NAME | login-link NAME: work beside a running honed too. */
int account_add_user(const struct settings *s, const char *name, enum role role, struct err *err);
int account_new_token(const struct settings *s, const char *name, struct err *err);
int account_login_link(const struct settings *s, const char *name, struct err *err);

/* honed audit-check: say whether the audit log is whole. Errors: BAD_FILE naming the first entry that is not as
 * it was written. */
int account_check_audit(const struct settings *s, struct err *err);

#endif
