/* authorise.c - who may do what. */
#include "server/authorise.h"

#include <stddef.h>

enum verdict { VERDICT_YES = 1, VERDICT_NO, VERDICT_HIDDEN };

struct right {
    enum verdict own, other, private;
    const char *why_not;
};

static const struct right rights[ROLE_COUNT][DEED_COUNT] = {
#define RIGHT(role, deed, own, other, private, why_not) \
    [ROLE_##role][DEED_##deed] = {VERDICT_##own, VERDICT_##other, VERDICT_##private, why_not},
#include "server/rights.def"
};

/* NULL where there is no row, or nobody asks. */
static const struct right *find_right(const struct identity *who, enum deed deed)
{
    if (who == NULL || who->user_id <= 0 || (unsigned)who->role >= ROLE_COUNT ||
        (unsigned)deed >= DEED_COUNT || rights[who->role][deed].own == 0) {
        return NULL;
    }
    return &rights[who->role][deed];
}

static enum verdict judge(const struct right *r, const struct identity *who, int64_t owner_id,
                          bool is_private)
{
    if (r == NULL) {
        return VERDICT_NO;
    }
    if (who->user_id == owner_id) {
        return r->own;
    }
    return is_private ? r->private : r->other;
}

bool may_do(const struct identity *who, enum deed deed, int64_t owner_id, bool is_private)
{
    return judge(find_right(who, deed), who, owner_id, is_private) == VERDICT_YES;
}

int authorise(const struct identity *who, enum deed deed, int64_t owner_id, bool is_private,
              const char *what, struct err *err)
{
    const struct right *r = find_right(who, deed);

    switch (judge(r, who, owner_id, is_private)) {
    case VERDICT_YES: return 0;
    case VERDICT_HIDDEN: return FAIL(err, ERR_NOT_FOUND, "there is no %.60s", what);
    case VERDICT_NO: break;
    }
    return FAIL(err, ERR_FORBIDDEN, "%s", r != NULL ? r->why_not : "this is not allowed");
}
