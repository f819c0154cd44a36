/* routes_audit.c - GET /v1/audit: who changed what. */
#include "server/list.h"

int handle_audit_list(const struct request *rq, struct reply *rp, struct err *err)
{
    const struct listing l = {
        .columns = "'audit-'||n AS id, 'audit' AS object, t AS created_at, user, token,"
                   " address, action, object AS target, result, lower(hex(hash)) AS hash",
        .from = "audit WHERE ?1=0 AND (?2 IS NULL OR user=?2) AND (?5 IS NULL OR action=?5)",
        .order = "n",
        .number = "SELECT n FROM audit WHERE n=CAST(substr(?1, 7) AS INTEGER) AND ?1='audit-'||n",
        .newest_first = true,
        .limit = 100,
        .most = 1000,
        .filter = gate_query(rq->in, "user"),
        .second = gate_query(rq->in, "action"),
    };

    return list_reply(rq, rp, &l, err);
}
