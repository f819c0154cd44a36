/* list.c - pages of rows. */
#include "server/list.h"

#include <string.h>

struct paging {
    const struct listing *l;
    const struct identity *who;
    const char *after;
    int64_t limit;
    bool descending;
    json_t *items; /* owned by the caller */
    bool has_more;
};

static int read_paging(const struct request *rq, const struct listing *l, struct paging *p,
                       struct err *err)
{
    const char *order = gate_query(rq->in, "order");

    *p = (struct paging){.l = l, .who = rq->who, .after = gate_query(rq->in, "after")};
    TRY(request_number(rq, "limit", 1, l->most, l->limit, &p->limit, err));
    p->descending = l->newest_first;
    if (order != NULL) {
        p->descending = strcmp(order, "desc") == 0;
        if (!p->descending && strcmp(order, "asc") != 0) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "order", "order must be asc or desc");
        }
    }
    return 0;
}

static int read_rows(sqlite3 *db, sqlite3_stmt *q, struct paging *p, struct err *err)
{
    bool row = true;

    TRY(db_next(q, &row, err));
    while (row) {
        json_t *item = NULL;
        if ((int64_t)json_array_size(p->items) == p->limit) {
            p->has_more = true;
            return 0;
        }
        if (p->l->make != NULL) {
            TRY(p->l->make(db, q, p->who, &item, err));
        } else {
            item = db_row_json(q);
        }
        if (item == NULL || json_array_append_new(p->items, item) != 0) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a list");
        }
        TRY(db_next(q, &row, err));
    }
    return 0;
}

/* The place behind which the page begins. */
static int find_after(sqlite3 *db, const struct paging *p, int64_t *after, struct err *err)
{
    char *sql = sqlite3_mprintf("SELECT (%s), ?2", p->l->number);
    int64_t n = -1;

    if (sql == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a list");
    }
    const int rc = db_integer(&n, -1, db, err, sql, "si", p->after, p->l->scope);
    sqlite3_free(sql);
    TRY(rc);
    if (n < 0) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "after", "after names nothing in this list");
    }
    *after = n;
    return 0;
}

static int read_page(sqlite3 *db, void *argument, struct err *err)
{
    struct paging *p = argument;
    const struct listing *l = p->l;
    sqlite3_stmt *q = NULL;
    int64_t after = p->descending ? INT64_MAX : INT64_MIN;

    if (p->after != NULL) {
        TRY(find_after(db, p, &after, err));
    }
    char *sql = sqlite3_mprintf("SELECT %s FROM %s AND %s%s?3 AND ?5 IS ?5 ORDER BY %s %s LIMIT ?4",
                                l->columns, l->from, l->order, p->descending ? "<" : ">", l->order,
                                p->descending ? "DESC" : "ASC");
    if (sql == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a list");
    }
    int rc =
        db_query(&q, db, err, sql, "isiis", l->scope, l->filter, after, p->limit + 1, l->second);
    sqlite3_free(sql);
    if (rc == 0) {
        rc = read_rows(db, q, p, err);
    }
    sqlite3_finalize(q);
    return rc;
}

/* Takes items over. */
static int make_list(struct reply *rp, json_t *items, bool has_more, struct err *err)
{
    const size_t n = json_array_size(items);
    json_t *first = n > 0 ? json_object_get(json_array_get(items, 0), "id") : NULL;
    json_t *last = n > 0 ? json_object_get(json_array_get(items, n - 1), "id") : NULL;

    rp->body = json_pack("{s:s, s:o, s:b, s:O?, s:O?}", "object", "list", "data", items, "has_more",
                         has_more, "first_id", first, "last_id", last);
    return rp->body != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a list");
}

int list_reply(const struct request *rq, struct reply *rp, const struct listing *l, struct err *err)
{
    struct paging p;

    TRY(read_paging(rq, l, &p, err));
    p.items = json_array();
    const int rc = p.items == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for a list")
                                   : store_read(rq->app->store, read_page, &p, err);
    if (rc != 0) {
        json_decref(p.items);
        return rc;
    }
    return make_list(rp, p.items, p.has_more, err);
}

int list_whole(struct reply *rp, json_t *items, struct err *err)
{
    if (items == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a list");
    }
    return make_list(rp, items, false, err);
}
