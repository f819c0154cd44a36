/* list.h - pages of rows: {"object":"list","data":[],"has_more","first_id","last_id"}.
 *
 * ?limit=N, ?after=ID (what comes behind that object in the order asked for), ?order=asc|desc.
 */
#ifndef SERVER_LIST_H
#define SERVER_LIST_H

#include "server/route.h"

/* Make the object of a row, as `who` sees it; a new reference with a key "id". */
typedef int list_object(sqlite3 *db, sqlite3_stmt *row, const struct identity *who, json_t **out,
                        struct err *err);

struct listing {
    const char *columns; /* "f.id, f.bytes" */
    const char *from;    /* tables and conditions; ?1 is `scope`, ?2 `filter`, ?5 `second` */
    const char *order;   /* the integer column that orders the rows                       */
    const char *number;  /* a query from an id (?1) to its value of that column; ?2 is `scope` */
    list_object *make;   /* NULL: db_row_json                                             */
    bool newest_first;   /* unless ?order says otherwise                                  */
    int64_t limit, most; /* of rows on a page: without ?limit, with the largest one       */
    int64_t scope;       /* bound to ?1 */
    const char *filter;  /* bound to ?2 */
    const char *second;  /* bound to ?5 */
};

/* Read a page in one short transaction. Errors: BAD_REQUEST (param limit, order, after). */
int list_reply(const struct request *rq, struct reply *rp, const struct listing *l,
               struct err *err);

/* A list that is there as a whole; takes `items` over. */
int list_whole(struct reply *rp, json_t *items, struct err *err);

#endif
