/* mentions.c - private jobs that the object of another job names. */
#include "server/mentions.h"

#include <stdlib.h>
#include <string.h>

#include "server/random.h"

#define PREFIX "job-"
static const char instead[] = "a private job";

enum { DEPTH = 80, LETTERS = 14 }; /* of an id, as random_id makes them */

struct hiding {
    sqlite3 *db;
    const char *own;
    const struct identity *who;
};

/* The next id of a job in the text, and where it begins; NULL for none. */
static const char *next_id(const char *text, char id[RANDOM_ID])
{
    const size_t whole = sizeof PREFIX - 1 + LETTERS;

    for (const char *at = strstr(text, PREFIX); at != NULL; at = strstr(at + 1, PREFIX)) {
        if (strspn(at + sizeof PREFIX - 1, "abcdefghijklmnopqrstuvwxyz234567") == LETTERS) {
            memcpy(id, at, whole);
            id[whole] = '\0';
            return at;
        }
    }
    return NULL;
}

static int is_hidden(const struct hiding *h, const char *id, bool *hidden, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    *hidden = false;
    if (strcmp(id, h->own) == 0) {
        return 0;
    }
    TRY(db_query(&q, h->db, err, "SELECT user_id, private FROM jobs WHERE id=?", "s", id));
    const int rc = db_next(q, &row, err);
    *hidden =
        rc == 0 && row &&
        !may_do(h->who, DEED_SEE_JOB, sqlite3_column_int64(q, 0), sqlite3_column_int(q, 1) != 0);
    sqlite3_finalize(q);
    return rc;
}

/* The text without hidden ids in *out: NULL when it has none, else a new reference. */
static int hide_in_text(const struct hiding *h, const char *text, json_t **out, struct err *err)
{
    char id[RANDOM_ID];
    bool any = false;
    size_t used = 0;
    int rc = 0;

    *out = NULL;
    if (next_id(text, id) == NULL) {
        return 0;
    }
    char *copy = malloc(strlen(text) + 1); /* what stands instead is shorter than an id */
    if (copy == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    for (const char *at = next_id(text, id); at != NULL && rc == 0; at = next_id(text, id)) {
        const size_t before = (size_t)(at - text);
        bool hidden = false;
        rc = is_hidden(h, id, &hidden, err);
        const char *shown = hidden ? instead : id;
        memcpy(copy + used, text, before);
        memcpy(copy + used + before, shown, strlen(shown));
        used += before + strlen(shown);
        any = any || hidden;
        text = at + strlen(id);
    }
    memcpy(copy + used, text, strlen(text) + 1);
    if (rc == 0 && any) {
        *out = strcmp(copy, instead) == 0 ? json_null() : json_string(copy);
        rc = *out != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    free(copy);
    return rc;
}

static int hide_in(const struct hiding *h, json_t *value, int depth, struct err *err);

static int hide_in_object(const struct hiding *h, json_t *object, int depth, struct err *err)
{
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        json_t *value = json_object_iter_value(at), *other = NULL;
        if (!json_is_string(value)) {
            TRY(hide_in(h, value, depth, err));
            continue;
        }
        TRY(hide_in_text(h, json_string_value(value), &other, err));
        if (other != NULL && json_object_iter_set_new(object, at, other) != 0) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a job");
        }
    }
    return 0;
}

/* What is in an object or a list; nothing is nested deeper than what was read. */
static int hide_in(const struct hiding *h, json_t *value, int depth, struct err *err)
{
    if (json_is_object(value) && depth < DEPTH) {
        return hide_in_object(h, value, depth + 1, err);
    }
    for (size_t i = 0; i < json_array_size(value) && depth < DEPTH; i++) {
        json_t *one = json_array_get(value, i), *other = NULL;
        if (!json_is_string(one)) {
            TRY(hide_in(h, one, depth + 1, err));
            continue;
        }
        TRY(hide_in_text(h, json_string_value(one), &other, err));
        if (other != NULL && json_array_set_new(value, i, other) != 0) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a job");
        }
    }
    return 0;
}

int mentions_hide(json_t *object, sqlite3 *db, const char *own, const struct identity *who,
                  struct err *err)
{
    const struct hiding h = {.db = db, .own = own, .who = who};

    return hide_in(&h, object, 0, err);
}
