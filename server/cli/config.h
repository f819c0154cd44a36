/* config.h - which server, and the token for it: HONE_URL, HONE_TOKEN, or what `hone login` saved.
 *
 * The file is $HONE_CONFIG, else $XDG_CONFIG_HOME/hone/config.json, else ~/.config/hone/config.json: an
 * object {"url", "token"}, mode 0600. A saved token is used only with the address it was saved for, so
 * setting HONE_URL never sends it to another machine.
 */
#ifndef SERVER_CLI_CONFIG_H
#define SERVER_CLI_CONFIG_H

#include "trainer/base/err.h"
#include "trainer/base/io.h"

#define CONFIG_DEFAULT_URL "http://127.0.0.1:8642"

struct config {
    char url[512];   /* no slash at its end */
    char token[256]; /* "" when there is none */
};

/* Read environment and file. A missing file is no error: the default address without token.
 * Errors: BAD_FILE (damaged file), BAD_REQUEST (bad address in HONE_URL), IO. */
int config_load(struct config *out, struct err *err);

/* Save; the file is written aside and renamed, its folder made when missing. Writes the file's name to
 * `path`. Errors: IO. */
int config_save(const struct config *c, char path[IO_PATH_MAX], struct err *err);

/* Check and normalise an address: http:// or https://, a host, no user, query or fragment; "host:port" alone
 * gets http://. Errors: BAD_REQUEST. */
int config_set_url(struct config *c, const char *url, struct err *err);

/* Check a token's form (printable, no space) after cutting white space around it. Errors: BAD_REQUEST. */
int config_set_token(struct config *c, const char *token, struct err *err);

/* Write a secret to a new file that only its owner can read; an existing file is refused.
 * Errors: BAD_STATE (exists), IO. */
int config_write_secret(const char *path, const char *secret, struct err *err);

#endif
