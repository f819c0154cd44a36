/* submit.c - a request becomes a job. */
#include "server/submit.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/supervise.h"
#include "server/text.h"
#include "trainer/base/sha256.h"

/* A submission and its draft on their way through the store. */
struct entry {
    const struct app *app;
    struct submission *s;
    struct draft draft;
};

int repeat_read(struct repeat *out, const struct request *rq, const char *what, struct err *err)
{
    const char *retries = request_header(rq, "x-stainless-retry-count");
    struct sha256 sum;

    *out = (struct repeat){.key = request_header(rq, "Idempotency-Key"),
                           .is_retry = retries != NULL && strcmp(retries, "0") != 0};
    if (out->key != NULL &&
        (out->key[0] == '\0' || strlen(out->key) >= IDEMPOTENCY_KEY || !text_is_plain(out->key))) {
        return FAIL(err, ERR_BAD_REQUEST, "Idempotency-Key has 1 to %d plain characters",
                    IDEMPOTENCY_KEY - 1);
    }
    sha256_begin(&sum);
    sha256_add(&sum, what, strlen(what));
    if (rq->body_size > 0) {
        sha256_add(&sum, rq->body_text, rq->body_size);
    }
    sha256_end(&sum, out->digest);
    return 0;
}

/* The job of an equal submission, by key, or by body when the client says that it tries again. */
static int find_earlier(struct tx *tx, struct entry *e, struct err *err)
{
    const struct repeat *r = &e->s->repeat;
    const int64_t user = e->s->who->user_id;
    sqlite3_stmt *q = NULL;
    bool row = false;

    if (r->key == NULL && !r->is_retry) {
        return 0;
    }
    int rc = r->key != NULL ? db_query(&q, tx->db, err,
                                       "SELECT seq, id, body_sha256 FROM jobs WHERE user_id=?"
                                       " AND idempotency_key=?",
                                       "is", user, r->key)
                            : db_query(&q, tx->db, err,
                                       "SELECT seq, id, body_sha256 FROM jobs WHERE body_sha256=?"
                                       " AND user_id=? AND created_at>=? ORDER BY seq DESC LIMIT 1",
                                       "sii", r->digest, user, e->draft.created_at - RETRY_SECONDS);
    rc = rc != 0 ? rc : db_next(q, &row, err);
    if (rc == 0 && row) {
        if (strcmp(db_text(q, 2), r->digest) != 0) {
            rc = FAIL(err, ERR_BAD_STATE,
                      "this Idempotency-Key was used for another request; use a new one");
        }
        e->s->was_there = true;
        e->draft.seq = sqlite3_column_int64(q, 0);
        (void)snprintf(e->s->id, sizeof e->s->id, "%s", db_text(q, 1));
    }
    sqlite3_finalize(q);
    return rc;
}

static int add_job(struct tx *tx, void *argument, struct err *err)
{
    struct entry *e = argument;

    TRY(find_earlier(tx, e, err));
    if (!e->s->was_there) {
        TRY(draft_check_room(tx, e->app, e->s->who, 1, err));
        TRY(draft_insert(tx, &e->draft, e->app, e->s->who, err));
    }
    return job_object(tx->db, e->draft.seq, e->s->who, &e->s->job, err);
}

/* The folder aside, the row, the folder's name. */
static int make_job(struct entry *e, struct err *err)
{
    int rc = draft_make_folder(&e->draft, e->app, e->s->who, err);

    if (rc == 0) {
        rc = store_write(e->app->store, add_job, e, err);
    }
    if (rc != 0 || e->s->was_there) {
        draft_drop_folder(&e->draft, e->app);
        return rc;
    }
    draft_name_folder(&e->draft, e->app);
    supervisor_kick(e->app->supervisor);
    return 0;
}

int submit_job(const struct app *app, struct submission *s, struct err *err)
{
    struct entry e = {.app = app, .s = s};

    TRY(draft_make(&e.draft, app, s->who, s->request, NULL, err));
    (void)snprintf(s->id, sizeof s->id, "%s", e.draft.id);
    e.draft.created_at = time(NULL);
    e.draft.cloned_from = s->cloned_from;
    e.draft.key = s->repeat.key;
    e.draft.digest = s->repeat.digest;
    const int rc = make_job(&e, err);
    draft_free(&e.draft);
    return rc;
}

void submit_reply(struct reply *rp, struct submission *s)
{
    rp->status = 201;
    rp->body = s->job;
    s->job = NULL;
    reply_add(rp, "Location", "/v1/jobs/%s", s->id);
    if (s->was_there) {
        reply_add(rp, "Idempotent-Replayed", "true");
    }
}
