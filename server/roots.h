/* roots.h - folders of this machine that jobs may use (settings model_root and data_root).
 *
 * What lies there is named "root:relative/path". It is opened beneath the root: no "..", and a symbolic
 * link only where it stays beneath (as in a Hugging Face cache).
 */
#ifndef SERVER_ROOTS_H
#define SERVER_ROOTS_H

#include <jansson.h>
#include <sys/stat.h>

#include "server/settings.h"

enum { ROOT_PATH = 4096, ROOT_DEPTH = 6, ROOT_ENTRIES = 2000 };
enum root_kind { ROOT_MODELS, ROOT_DATA };

struct roots;

/* Errors: BAD_REQUEST for a setting that is not NAME=DIR or a folder that can't be opened. */
int roots_open(struct roots **out, const struct settings *settings, struct err *err);
void roots_close(struct roots *r);

/* Find "root:path"; *path is absolute with all links resolved, *st its state. Errors: NOT_FOUND. */
int roots_find(const struct roots *r, enum root_kind kind, const char *name, char path[ROOT_PATH],
               struct stat *st, struct err *err);

/* What a root has: for ROOT_MODELS the folders with a config.json or an adapter_config.json, for ROOT_DATA the regular files; at
 * most ROOT_DEPTH deep and ROOT_ENTRIES looked at in each. A new array of objects of routes.def. */
int roots_list(const struct roots *r, enum root_kind kind, json_t **out, struct err *err);

/* Fields "family", "parameters", "bytes" and "adapter" (is it a PEFT adapter?) of a model folder, null where they can't be told. */
int model_describe(int dir_fd, json_t *out, struct err *err);

#endif
