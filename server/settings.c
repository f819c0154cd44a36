/* settings.c - the readers of settings.def. */
#include "server/settings.h"

#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/base/io.h"
#include "trainer/base/json.h"

enum kind { KIND_TEXT, KIND_INTEGER, KIND_FLAG, KIND_LIST };

enum row {
#define TEXT(name, argument, preset, help)     ROW_##name,
#define INTEGER(name, preset, low, high, help) ROW_##name,
#define FLAG(name, help)                       ROW_##name,
#define LIST(name, argument, help)             ROW_##name,
#include "server/settings.def"
    ROW_COUNT
};

static const struct {
    const char *name, *argument, *text, *help;
    enum kind kind;
    int64_t preset, low, high;
    size_t offset;
} rows[] = {
#define OFFSET(name) offsetof(struct settings, name)
#define TEXT(name, argument, preset, help) \
    {#name, argument, preset, help, KIND_TEXT, 0, 0, 0, OFFSET(name)},
#define INTEGER(name, preset, low, high, help) \
    {#name, "N", "", help, KIND_INTEGER, preset, low, high, OFFSET(name)},
#define FLAG(name, help)           {#name, "", "", help, KIND_FLAG, 0, 0, 0, OFFSET(name)},
#define LIST(name, argument, help) {#name, argument, "", help, KIND_LIST, 0, 0, 0, OFFSET(name)},
#include "server/settings.def"
};

/* Where row i lies in s. */
static void *place(struct settings *s, int i)
{
    return (char *)s + rows[i].offset;
}

static int set_text(struct settings *s, int i, const char *value, struct err *err)
{
    if (strlen(value) >= SETTING_TEXT) {
        return FAIL(err, ERR_BAD_REQUEST, "%s is longer than %d bytes", rows[i].name,
                    SETTING_TEXT - 1);
    }
    (void)snprintf(place(s, i), SETTING_TEXT, "%s", value);
    return 0;
}

static int set_integer(struct settings *s, int i, int64_t value, struct err *err)
{
    if (value < rows[i].low || value > rows[i].high) {
        return FAIL(err, ERR_BAD_REQUEST, "%s is %lld, must be %lld to %lld", rows[i].name,
                    (long long)value, (long long)rows[i].low, (long long)rows[i].high);
    }
    *(int64_t *)place(s, i) = value;
    return 0;
}

static int add_to_list(struct settings *s, int i, const char *value, struct err *err)
{
    struct setting_list *list = place(s, i);

    if (list->count == SETTING_LIST) {
        return FAIL(err, ERR_BAD_REQUEST, "%s is given more than %d times", rows[i].name,
                    SETTING_LIST);
    }
    if (strlen(value) >= SETTING_TEXT) {
        return FAIL(err, ERR_BAD_REQUEST, "%s is longer than %d bytes", rows[i].name,
                    SETTING_TEXT - 1);
    }
    (void)snprintf(list->at[list->count++], SETTING_TEXT, "%s", value);
    return 0;
}

/* Row of a word like "--model-root"; -1 for none. */
static int find_option(const char *word, size_t size)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        size_t k = 0;
        while (k < size && rows[i].name[k] != '\0' &&
               (word[k] == rows[i].name[k] || (word[k] == '-' && rows[i].name[k] == '_'))) {
            k++;
        }
        if (k == size && rows[i].name[k] == '\0') {
            return i;
        }
    }
    return -1;
}

static int set_from_word(struct settings *s, int i, const char *value, struct err *err)
{
    switch (rows[i].kind) {
    case KIND_TEXT: return set_text(s, i, value, err);
    case KIND_LIST: return add_to_list(s, i, value, err);
    case KIND_FLAG: *(bool *)place(s, i) = true; return 0;
    case KIND_INTEGER: break;
    }
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0') {
        return FAIL(err, ERR_BAD_REQUEST, "--%s wants a whole number, not \"%s\"", rows[i].name,
                    value);
    }
    return set_integer(s, i, number, err);
}

/* All words of the command line; only the row `only` when that is not ROW_COUNT. */
static int read_words(struct settings *s, int argc, char **argv, int only, struct err *err)
{
    for (int k = 0; k < argc; k++) {
        const char *word = argv[k];
        const size_t size = strcspn(word, "=");
        const int i = strncmp(word, "--", 2) == 0 ? find_option(word + 2, size - 2) : -1;
        if (i < 0) {
            return FAIL(err, ERR_BAD_REQUEST, "\"%s\" is not an option of honed; see honed --help",
                        word);
        }
        const char *value = "";
        if (rows[i].kind == KIND_FLAG) {
            if (word[size] == '=') {
                return FAIL(err, ERR_BAD_REQUEST, "--%s takes no value", rows[i].name);
            }
        } else if (word[size] == '=') {
            value = word + size + 1;
        } else if (++k < argc) {
            value = argv[k];
        } else {
            return FAIL(err, ERR_BAD_REQUEST, "%s wants a value (%s)", word, rows[i].argument);
        }
        if (only == ROW_COUNT || only == i) {
            TRY(set_from_word(s, i, value, err));
        }
    }
    return 0;
}

static int set_from_json(struct settings *s, int i, const json_t *value, struct err *err)
{
    const json_t *item = NULL;
    size_t at = 0;

    if (rows[i].kind == KIND_TEXT && json_is_string(value)) {
        return set_text(s, i, json_string_value(value), err);
    }
    if (rows[i].kind == KIND_INTEGER && json_is_integer(value)) {
        return set_integer(s, i, json_integer_value(value), err);
    }
    if (rows[i].kind == KIND_FLAG && json_is_boolean(value)) {
        *(bool *)place(s, i) = json_is_true(value);
        return 0;
    }
    if (rows[i].kind == KIND_LIST && json_is_array(value)) {
        json_array_foreach(value, at, item)
        {
            if (!json_is_string(item)) {
                return FAIL(err, ERR_BAD_REQUEST, "settings.json: %s must be a list of texts",
                            rows[i].name);
            }
            TRY(add_to_list(s, i, json_string_value(item), err));
        }
        return 0;
    }
    static const char *const wanted[] = {"a text", "a whole number", "true or false",
                                         "a list of texts"};
    return FAIL(err, ERR_BAD_REQUEST, "settings.json: %s must be %s", rows[i].name,
                wanted[rows[i].kind]);
}

static int read_file(struct settings *s, struct err *err)
{
    char path[SETTING_TEXT + 16];
    const char *key = NULL;
    json_t *file = NULL, *value = NULL;

    (void)snprintf(path, sizeof path, "%s/settings.json", s->data);
    if (access(path, F_OK) != 0) {
        return 0;
    }
    TRY(json_parse_file(&file, path, 1 << 20, err));
    int rc = json_is_object(file) ? 0 : FAIL(err, ERR_BAD_REQUEST, "%s must be an object", path);
    json_object_foreach(file, key, value)
    {
        int i = 0;
        while (rc == 0 && i < ROW_COUNT && strcmp(rows[i].name, key) != 0) {
            i++;
        }
        if (rc == 0 && (i == ROW_COUNT || i == ROW_data)) {
            rc = FAIL(err, ERR_BAD_REQUEST, "%s: there is no setting \"%s\"", path, key);
        }
        if (rc == 0) {
            rc = set_from_json(s, i, value, err);
        }
    }
    json_decref(file);
    return rc;
}

/* --data, else $XDG_DATA_HOME/hone, else ~/.local/share/hone; made absolute. */
static int settle_data(struct settings *s, struct err *err)
{
    const char *base = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    char here[SETTING_TEXT / 2], path[2 * SETTING_TEXT];

    if (s->data[0] != '\0') {
        if (s->data[0] == '/') {
            return 0;
        }
        if (getcwd(here, sizeof here) == NULL) {
            return FAIL(err, ERR_IO, "the present folder can't be told: %s", strerror(errno));
        }
        (void)snprintf(path, sizeof path, "%s/%s", here, s->data);
    } else if (base != NULL && base[0] == '/') {
        (void)snprintf(path, sizeof path, "%s/hone", base);
    } else if (home != NULL && home[0] == '/') {
        (void)snprintf(path, sizeof path, "%s/.local/share/hone", home);
    } else {
        return FAIL(err, ERR_BAD_REQUEST, "there is no home folder: say --data DIR");
    }
    return set_text(s, ROW_data, path, err);
}

int settings_read(struct settings *s, int argc, char **argv, struct err *err)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < ROW_COUNT; i++) {
        if (rows[i].kind == KIND_TEXT) {
            TRY(set_text(s, i, rows[i].text, err));
        } else if (rows[i].kind == KIND_INTEGER) {
            TRY(set_integer(s, i, rows[i].preset, err));
        }
    }
    TRY(read_words(s, argc, argv, ROW_data, err));
    TRY(settle_data(s, err));
    TRY(read_file(s, err));

    /* lists of the command line are added to those of the file; everything else replaces */
    char data[SETTING_TEXT];
    (void)snprintf(data, sizeof data, "%s", s->data);
    TRY(read_words(s, argc, argv, ROW_COUNT, err));
    return set_text(s, ROW_data, data, err);
}

void settings_help(FILE *out)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        char option[64];
        int used = snprintf(option, sizeof option, "--%s %s", rows[i].name, rows[i].argument);
        for (int k = 2; k < used && option[k] != ' '; k++) {
            if (option[k] == '_') {
                option[k] = '-';
            }
        }
        (void)fprintf(out, "  %-26s %s", option, rows[i].help);
        if (rows[i].kind == KIND_INTEGER) {
            (void)fprintf(out, " (default: %lld)", (long long)rows[i].preset);
        } else if (rows[i].kind == KIND_TEXT && rows[i].text[0] != '\0') {
            (void)fprintf(out, " (default: %s)", rows[i].text);
        }
        (void)fprintf(out, "\n");
    }
}
