/* routes_answers.c - /v1/completions and /v1/chat/completions: models are asked. */
#include "server/openai.h"
#include "server/playground.h"
#include "server/references.h"

static int answer(const struct request *rq, struct reply *rp, bool chat, struct err *err)
{
    struct openai_ask ask;
    char dir[ROOT_PATH];

    int rc = openai_ask_read(&ask, rq->body, chat, err);
    rc = rc != 0 ? rc : references_model(rq->app, rq->who, ask.model, dir, err);
    if (rc != 0) {
        openai_ask_fini(&ask);
        return rc;
    }
    ask.user_id = rq->who->user_id;
    return playground_ask(rq->app->playground, &rp->talk, &ask, dir, err);
}

int handle_completions(const struct request *rq, struct reply *rp, struct err *err)
{
    return answer(rq, rp, false, err);
}

int handle_chat_completions(const struct request *rq, struct reply *rp, struct err *err)
{
    return answer(rq, rp, true, err);
}
