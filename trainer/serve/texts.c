/* texts.c - texts side by side in one model. */
#include "trainer/serve/texts.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/model_folder.h"
#include "trainer/plan.h"
#include "trainer/serve/slot.h"
#include "trainer/step.h"

enum { POSITIONS_PRESET = 2048 };

/* A row of the step whose logits are wanted. */
struct wanted {
    struct slot *slot;
    int64_t place; /* of its token in the text */
};

struct texts {
    struct engine engine;
    struct arch arch;
    struct tokenizer *tokenizer;
    struct sampler *sampler;
    struct slot *slots; /* owned [d.B]                            */
    int slot_count;     /* that were made                         */
    int64_t order;
    struct wanted *wanted;    /* owned [d.R]                      */
    struct job *first, **end; /* queue                            */
    int jobs;
};

static int open_slots(struct texts *x, const struct dims *d, struct err *err)
{
    x->slots = calloc((size_t)d->B, sizeof *x->slots);
    x->wanted = calloc((size_t)d->R, sizeof *x->wanted);
    if (x->slots == NULL || x->wanted == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %lld texts", (long long)d->B);
    }
    for (int64_t i = 0; i < d->B; i++) {
        TRY(slot_init(&x->slots[x->slot_count++], (int)i, d->S, x->tokenizer, err));
    }
    return 0;
}

static int open_all(struct texts *x, const char *dir, const struct texts_options *o,
                    struct err *err)
{
    struct model_folder folder;
    int64_t positions = o->positions;

    TRY(model_folder_find(&folder, dir, o->adapter, NULL, err));
    TRY(model_folder_arch(&x->arch, &folder, err));
    if (positions == 0) {
        positions = x->arch.positions < POSITIONS_PRESET ? x->arch.positions : POSITIONS_PRESET;
    }
    const struct serve_sizes sizes = {.slots = o->slots,
                                      .positions = positions,
                                      .piece = o->piece,
                                      .bf16 = o->type == DTYPE_BF16};
    const struct dims d = plan_serve_dims(&x->arch, &sizes, o->threads);
    TRY(tokenizer_open(&x->tokenizer, model_folder_tokenizer(&folder), err));
    TRY(sampler_new(&x->sampler, x->arch.V, err));
    TRY(open_slots(x, &d, err));
    TRY(engine_open(&x->engine, &d, o->isa, err));
    return model_folder_load(x->engine.model, &folder, err);
}

int texts_open(struct texts **out, const char *dir, const struct texts_options *o, struct err *err)
{
    struct texts *x = calloc(1, sizeof *x);

    if (x == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to serve");
    }
    x->end = &x->first;
    const int rc = open_all(x, dir, o, err);
    if (rc != 0) {
        texts_close(x);
        return rc;
    }
    *out = x;
    return 0;
}

static void free_job(struct texts *x, struct job *j)
{
    request_fini(&j->request);
    token_list_free(&j->prompt);
    free(j);
    x->jobs--;
}

void texts_close(struct texts *x)
{
    if (x == NULL) {
        return;
    }
    for (int i = 0; i < x->slot_count; i++) {
        if (x->slots[i].job != NULL) {
            (void)texts_cancel(x, x->slots[i].job->listener, NULL);
        }
    }
    while (x->first != NULL) {
        (void)texts_cancel(x, x->first->listener, NULL);
    }
    for (int i = 0; i < x->slot_count; i++) {
        slot_fini(&x->slots[i]);
    }
    engine_close(&x->engine);
    free(x->slots);
    free(x->wanted);
    sampler_free(x->sampler);
    tokenizer_close(x->tokenizer);
    free(x);
}

size_t texts_bytes(const struct texts *x)
{
    return layout_bytes(&x->engine.layout);
}

int64_t texts_positions(const struct texts *x)
{
    return x->engine.model->d.S;
}

int64_t texts_slots(const struct texts *x)
{
    return x->engine.model->d.B;
}

const struct arch *texts_arch(const struct texts *x)
{
    return &x->arch;
}

const struct tokenizer *texts_tokenizer(const struct texts *x)
{
    return x->tokenizer;
}

int texts_jobs(const struct texts *x)
{
    return x->jobs;
}

/* The tokens fit the model and leave room for what is asked. */
static int check_request(const struct texts *x, const struct serve_request *r,
                         const struct token_list *prompt, struct err *err)
{
    const long long S = texts_positions(x), wants = r->max_tokens, V = x->arch.V;
    const long long count = (long long)prompt->count, least = wants < 0 ? 1 : wants;

    if (count == 0) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "prompt", "the prompt has no token");
    }
    if (count > S || least > S - count) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, r->messages != NULL ? "messages" : "prompt",
                          "the prompt has %lld tokens and %lld are to follow: this model is served "
                          "with room for %lld in all",
                          count, least, S);
    }
    for (size_t i = 0; i < prompt->count; i++) {
        if (prompt->ids[i] < 0 || prompt->ids[i] >= V) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "prompt",
                              "token %zu of the prompt is not below the vocabulary's %lld", i, V);
        }
    }
    for (int64_t i = 0; i < r->penalties.bias_count; i++) {
        if (r->bias[i].id >= V) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "logit_bias",
                              "logit_bias has a token that is not below the vocabulary's %lld", V);
        }
    }
    return 0;
}

static void enter_queue(struct texts *x, struct job *j)
{
    j->next = NULL;
    *x->end = j;
    x->end = &j->next;
}

int texts_add(struct texts *x, const struct job **out, struct serve_request *r,
              struct token_list *prompt, struct listener *l, struct err *err)
{
    struct job *j = calloc(1, sizeof *j);
    int rc = check_request(x, r, prompt, err);

    if (rc == 0 && j == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a request");
    }
    if (rc != 0) {
        free(j);
        request_fini(r);
        token_list_free(prompt);
        return rc;
    }
    j->request = *r;
    j->prompt = *prompt;
    j->listener = l;
    *r = (struct serve_request){0};
    *prompt = (struct token_list){0};
    enter_queue(x, j);
    x->jobs++;
    *out = j;
    return 0;
}

static bool is_meant(const struct job *j, const struct listener *l, const char *id)
{
    return j->listener == l && (id == NULL || strcmp(j->request.id, id) == 0);
}

static bool is_queued(const struct texts *x, const struct job *j)
{
    const struct job *q = x->first;

    while (q != NULL && q != j) {
        q = q->next;
    }
    return q != NULL;
}

/* Take a job out of the queue, if it is there. */
static void leave_queue(struct texts *x, struct job *j)
{
    struct job **p = &x->first;

    while (*p != NULL && *p != j) {
        p = &(*p)->next;
    }
    if (*p != NULL) {
        *p = j->next;
        x->end = *p == NULL ? p : x->end;
    }
}

/* End a job wherever it is. */
static void drop_job(struct texts *x, struct job *j)
{
    for (int i = 0; i < x->slot_count; i++) {
        if (x->slots[i].job == j) {
            x->slots[i].job = NULL;
        }
    }
    leave_queue(x, j);
    free_job(x, j);
}

static struct job *find_job(const struct texts *x, const struct listener *l, const char *id)
{
    for (int i = 0; i < x->slot_count; i++) {
        if (x->slots[i].job != NULL && is_meant(x->slots[i].job, l, id)) {
            return x->slots[i].job;
        }
    }
    for (struct job *j = x->first; j != NULL; j = j->next) {
        if (is_meant(j, l, id)) {
            return j;
        }
    }
    return NULL;
}

int texts_cancel(struct texts *x, const struct listener *l, const char *id)
{
    int count = 0;

    for (struct job *j = find_job(x, l, id); j != NULL; j = find_job(x, l, id)) {
        drop_job(x, j);
        count++;
    }
    return count;
}

bool texts_has(const struct texts *x, const struct listener *l, const char *id)
{
    return find_job(x, l, id) != NULL;
}

static void fail_job(struct texts *x, struct job *j, const struct err *err)
{
    j->listener->fail(j->listener, j, err);
    drop_job(x, j);
}

/* The choice of a slot has ended. */
static void free_slot(struct texts *x, struct slot *s)
{
    struct job *j = s->job;

    s->job = NULL;
    if (j->ended == j->request.n && !is_queued(x, j)) {
        free_job(x, j);
    }
}

/* A text that nothing is to be made of, neither tokens nor probabilities of its prompt. */
static bool is_over(const struct slot *s)
{
    return s->count == s->limit &&
           !(s->job->request.echo && s->job->request.logprobs >= 0 && s->fed < s->prompt);
}

/* Begin the next choice of the first job in a free slot. */
static void fill_slot(struct texts *x, struct slot *s)
{
    struct job *j = x->first;
    struct err err = {0};

    leave_queue(x, j);
    if (j->started + 1 < j->request.n) { /* its next choice waits behind the others */
        enter_queue(x, j);
    }
    s->order = x->order++;
    int rc = slot_begin(s, j, texts_positions(x), &err);
    if (rc == 0 && is_over(s)) {
        rc = slot_end(s, &err);
        if (rc == 0) {
            free_slot(x, s);
        }
    }
    if (rc != 0) {
        fail_job(x, j, &err);
    }
}

static void fill_slots(struct texts *x)
{
    for (int i = 0; i < x->slot_count; i++) {
        while (x->first != NULL && x->slots[i].job == NULL) {
            fill_slot(x, &x->slots[i]);
        }
    }
}

static bool may_go(const struct slot *s)
{
    return s->job != NULL && s->job->listener->may_go(s->job->listener);
}

/* The rows of a step as they are chosen. Those with wanted logits come first, so that they lie together:
 * the others are put down from the far end and moved up. */
struct rows {
    int64_t wanted, plain; /* how many there are                       */
    int64_t room;
    int32_t *ids, *pos, *slot;
};

static void put_row(struct texts *x, struct rows *r, struct slot *s, int64_t place)
{
    const int64_t R = x->engine.model->d.R;
    int64_t at = R - 1 - r->plain;

    if (slot_wants(s, place)) {
        at = r->wanted;
        x->wanted[r->wanted++] = (struct wanted){s, place};
    } else {
        r->plain++;
    }
    r->ids[at] = s->ids[place];
    r->pos[at] = (int32_t)place;
    r->slot[at] = s->number;
    r->room--;
}

/* The slot that began first of those whose prompts are not in the cache yet. */
static struct slot *next_prompt(const struct texts *x, int64_t after)
{
    struct slot *next = NULL;

    for (int i = 0; i < x->slot_count; i++) {
        struct slot *s = &x->slots[i];
        if (may_go(s) && s->count - s->fed > 1 && s->order > after &&
            (next == NULL || s->order < next->order)) {
            next = s;
        }
    }
    return next;
}

static void choose_rows(struct texts *x, struct rows *r)
{
    for (int i = 0; i < x->slot_count; i++) {
        struct slot *s = &x->slots[i];
        if (may_go(s) && s->count - s->fed == 1) {
            put_row(x, r, s, s->fed++);
        }
    }
    for (struct slot *s = next_prompt(x, -1); s != NULL && r->room > 0;
         s = next_prompt(x, s->order)) {
        while (r->room > 0 && s->fed < s->count) {
            put_row(x, r, s, s->fed++);
        }
    }
}

/* The next token, from the logits of a row; or a token of an echoed prompt. */
static int use_logits(struct texts *x, const struct wanted *w, const real *logits, struct err *err)
{
    struct slot *s = w->slot;
    const struct serve_request *r = &s->job->request;
    const bool shows = r->logprobs >= 0;
    const int64_t V = x->arch.V;
    struct logprobs p;
    enum finish finish = FINISH_NONE;

    if (w->place < s->prompt - 1) {
        logprobs_make(&p, logits, V, s->ids[w->place + 1], (int)r->logprobs);
        return slot_echo(s, w->place + 1, &p, err);
    }
    if (s->count == s->limit) { /* no token was asked for, only the prompt's probabilities */
        TRY(slot_end(s, err));
        free_slot(x, s);
        return 0;
    }
    const real *changed =
        sampler_penalise(x->sampler, logits, V, &r->penalties, s->ids, s->prompt, s->count);
    const int32_t id = sampler_next(x->sampler, changed, V, &s->sampling, s->count);
    const bool ends = tokenizer_stops(x->tokenizer, id) ||
                      (x->arch.eos >= 0 && id == x->arch.eos) || (r->end >= 0 && id == r->end);
    if (shows) {
        logprobs_make(&p, logits, V, id, (int)r->logprobs);
    }
    TRY(slot_take(s, id, ends, shows ? &p : NULL, &finish, err));
    if (finish != FINISH_NONE) {
        free_slot(x, s);
    }
    return 0;
}

/* Logits of the first rows, as many at a time as there is room for. */
static void use_rows(struct texts *x, const struct ctx *c, int64_t count)
{
    const struct model *m = x->engine.model;
    const int64_t V = x->arch.V;

    for (int64_t row = 0; row < count; row += m->d.chunk) {
        const int64_t n = count - row < m->d.chunk ? count - row : m->d.chunk;
        const real *logits = head_logits(&m->head, c, tensor_slice(here(c, m->out), row, n)).data;
        for (int64_t i = 0; i < n; i++) {
            const struct wanted *w = &x->wanted[row + i];
            struct job *j = w->slot->job;
            struct err err = {0};
            if (j != NULL && use_logits(x, w, logits + i * V, &err) != 0) {
                fail_job(x, j, &err);
            }
        }
    }
}

bool texts_step(struct texts *x)
{
    struct model *m = x->engine.model;
    struct rows r = {.room = m->d.R, .ids = m->ids.data, .pos = m->pos.data, .slot = m->slot.data};

    fill_slots(x);
    choose_rows(x, &r);
    const int64_t rows = r.wanted + r.plain;
    if (rows == 0) {
        return false;
    }
    int32_t *const all[3] = {r.ids, r.pos, r.slot};
    for (int i = 0; i < 3; i++) {
        memmove(all[i] + r.wanted, all[i] + m->d.R - r.plain, (size_t)r.plain * sizeof *all[i]);
    }
    const struct ctx c = model_ctx(m, x->engine.k, &x->engine.q, &x->engine.tp, 0, rows);
    model_forward(m, &c);
    use_rows(x, &c, r.wanted);
    return true;
}
