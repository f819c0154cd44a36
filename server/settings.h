/* settings.h - settings.def as a struct, filled from settings.json and the command line. */
#ifndef SERVER_SETTINGS_H
#define SERVER_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "trainer/base/err.h"

enum { SETTING_TEXT = 1024, SETTING_LIST = 64 };

struct setting_list {
    int count;
    char at[SETTING_LIST][SETTING_TEXT];
};

struct settings {
#define TEXT(name, argument, preset, help)     char name[SETTING_TEXT];
#define INTEGER(name, preset, low, high, help) int64_t name;
#define FLAG(name, help)                       bool name;
#define LIST(name, argument, help)             struct setting_list name;
#include "server/settings.def"
};

/* Read argv (all words must be settings) and, between the defaults and argv, DATA/settings.json when
 * there is one. s->data is absolute afterwards. Errors: BAD_REQUEST naming the word or the key. */
int settings_read(struct settings *s, int argc, char **argv, struct err *err);

/* The table as text for --help. */
void settings_help(FILE *out);

#endif
