/* step.c - microbatches, gradients, optimizer. */
#include "trainer/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/batch.h"
#include "trainer/optim.h"

static int choose_kernels(struct engine *e, const char *isa, int threads, struct err *err)
{
    if (isa[0] != '\0' && setenv("HONE_ISA", isa, 1) != 0) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the environment");
    }
    e->k = kernels_cpu();
    if (e->k == NULL) {
        return FAIL(err, ERR_BAD_SPEC, "%s", kernels_cpu_why());
    }
    kernels_cpu_threads(threads);
    return 0;
}

static int list_passes(struct engine *e, const struct dims *d, struct err *err)
{
    e->micros = d->micros;
    e->width = calloc((size_t)d->micros, sizeof *e->width);
    if (e->width == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %lld microbatches", (long long)d->micros);
    }
    return d->training ? traffic_new(&e->passing, &e->model->traffic.pipe, err) : 0;
}

int engine_open(struct engine *e, const struct dims *d, const char *isa, struct err *err)
{
    *e = (struct engine){.world = comm_self(),
                         .tp = comm_self(),
                         .kv = comm_self(),
                         .dp = comm_self(),
                         .cp = comm_self(),
                         .pp = comm_self(),
                         .ep = comm_self(),
                         .edp = comm_self(),
                         .embedding = comm_self()};
    int rc = choose_kernels(e, isa, d->threads, err);
    if (rc == 0) {
        rc = model_new(&e->model, d, err);
    }
    if (rc == 0) {
        rc = list_passes(e, d, err);
    }
    if (rc == 0 && d->training) {
        e->scale = scale_make(&d->scale);
    }
    if (rc == 0) {
        model_plan(e->model, &e->layout);
        rc = memory_open(&e->memory, &e->layout, err);
    }
    if (rc != 0) {
        engine_close(e);
        return rc;
    }
    const size_t planned = layout_bytes(&e->layout);
    const uint64_t fingerprint = e->layout.fingerprint;
    layout_bind(&e->layout, e->memory.base);
    model_plan(e->model, &e->layout);
    CHECK(layout_bytes(&e->layout) == planned && e->layout.fingerprint == fingerprint,
          "planned %zu bytes, bound %zu", planned, layout_bytes(&e->layout));
    e->q = (struct queue){.workspace = e->model->workspace.data,
                          .workspace_bytes = tensor_bytes(e->model->workspace)};
    if (d->training && grads_open(&e->sums, e->model, err) != 0) {
        engine_close(e);
        return (int)err->code;
    }
    if (tensor_count(e->model->rope.cos) > 0) {
        rope_fill(&e->model->rope, &d->arch);
    }
    return 0;
}

void engine_close(struct engine *e)
{
    grads_close(&e->sums);
    model_free(e->model);
    e->model = NULL;
    traffic_free(&e->passing);
    free(e->width);
    e->width = NULL;
    memory_close(&e->memory);
}

/* The microbatches of a step with so many samples; 0: as many as are planned. A shorter step needs nothing more (plan.h). */
static void set_samples(struct engine *e, int64_t samples)
{
    struct dims *d = &e->model->d;
    const int64_t each = d->B * d->dp, micros = samples == 0 ? e->micros : samples / each;

    CHECK(samples % each == 0 && micros >= 1 && micros <= e->micros, "%lld samples of %lld",
          (long long)samples, (long long)(e->micros * each));
    d->micros = micros;
    d->micro0 = micros * d->dp_rank;
    if (d->training && e->model->traffic.pipe.micros != micros) {
        e->model->traffic.pipe.micros = (int)micros;
        traffic_train(&e->model->traffic);
    }
}

static void load_batch(struct engine *e, const struct data_rows *rows)
{
    e->batch = e->model->d.B;
    batch_load(e->model, rows, e->width);
}

/* The context of a microbatch, as wide as it was loaded; valid until the next call. */
static struct ctx narrow_ctx(struct engine *e, int64_t micro)
{
    e->narrow = e->model->d;
    e->narrow.B = e->batch;
    e->narrow.S_all = e->width[micro];
    e->narrow.S = e->narrow.S_all / e->narrow.cp;
    e->narrow.R = e->narrow.B * e->narrow.S;
    e->narrow.R_sp = e->narrow.R / e->narrow.sp;
    struct ctx c = model_ctx(e->model, e->k, &e->q, &e->tp, micro, e->narrow.R);
    c.d = &e->narrow;
    c.cp = &e->cp;
    c.ep = &e->ep;
    return c;
}

/* What the actions of a step, or of forward passes, share. */
struct turn {
    struct engine *e;
    const struct step_input *in; /* NULL: forward passes alone */
    double scale;
    double balance; /* what losses for the balance of experts count, of one microbatch */
    bool counts;    /* forward passes end in losses */
};

/* Whether microbatch `micro` of those of all data-parallel ranks trains anything. */
static bool trains(const struct model *m, const struct data_rows *rows, int64_t micro)
{
    const int32_t *labels = rows->labels + micro * m->d.B * m->d.S_all;

    for (int64_t i = 0; i < m->d.B * m->d.S_all; i++) {
        if (labels[i] >= 0) {
            return true;
        }
    }
    return false;
}

/* How many do. */
static int64_t training_micros(const struct model *m, const struct data_rows *rows)
{
    int64_t n = 0;

    for (int64_t i = 0; i < m->d.micros * m->d.dp && m->d.E > 0; i++) {
        n += trains(m, rows, i);
    }
    return n > 0 ? n : 1;
}

static struct ctx action_ctx(const struct turn *t, const struct action *a, const struct errand *r)
{
    const struct model *m = t->e->model;
    const struct ctx narrow = narrow_ctx(t->e, a->micro);
    struct ctx c = model_chunk_ctx(m, &narrow, a->chunk,
                                   t->in == NULL ? 0
                                   : m->apart    ? r->own_slot
                                                 : r->slot);

    if (t->in != NULL) {
        c.training = true;
        c.balances = m->d.E > 0 && trains(m, t->in->rows, m->d.micro0 + a->micro);
        c.balance_scale = c.balances ? t->balance : 0.0;
        c.drop.seed = t->in->seed;
        c.drop.step = t->in->step;
        c.drop.sample0 = t->in->consumed + (m->d.micro0 + a->micro) * m->d.B;
    }
    return c;
}

static void act_forward(void *context, const struct action *a, const struct errand *r,
                        struct tensor in, struct tensor out)
{
    const struct turn *t = context;
    const struct model *m = t->e->model;
    const struct ctx c = action_ctx(t, a, r);

    model_chunk_forward(m, &c, a->chunk, in, out);
    if (t->counts && m->chunks[a->chunk].is_last) {
        model_loss(m, &c);
    }
}

static void act_backward(void *context, const struct action *a, const struct errand *r,
                         struct tensor in, struct tensor out)
{
    const struct turn *t = context;
    const struct dims *d = &t->e->model->d;
    struct ctx c = action_ctx(t, a, r);

    if (d->overlaps && a->micro == d->micros - 1) {
        c.sums = &t->e->sums;
    }
    model_chunk_backward(t->e->model, &c, a->chunk, in, out, t->scale);
}

static int64_t rows_of(void *context, int micro)
{
    const struct turn *t = context;
    const struct dims *d = &t->e->model->d;
    const int64_t tail = t->in != NULL ? model_message_tail(d) : 0;

    return t->e->batch * t->e->width[micro] / d->cp / d->sp + tail;
}

static void run(struct turn *t, const struct traffic *traffic)
{
    struct engine *e = t->e;
    const struct work work = {t, rows_of, act_forward, act_backward};
    struct pipeline p = {.comm = &e->pp,
                         .q = &e->q,
                         .traffic = traffic,
                         .mail = &e->model->mail,
                         .work = &work,
                         .cols = e->model->d.D};

    CHECK(e->pp.size == e->model->d.pp, "%d pipeline ranks in a group of %d", e->model->d.pp,
          e->pp.size);
    pipeline_run(&p);
}

static void clear_sums(struct engine *e)
{
    e->k->zero(&e->q, e->model->head.loss_sum);
    e->k->zero(&e->q, e->model->head.hits);
    if (tensor_count(e->model->balance_sums) > 0) {
        e->k->zero(&e->q, e->model->balance_sums);
    }
}

/* Of all ranks with other tokens; of a pipeline's ranks the last has them, the others 0. */
static void sum_losses(struct engine *e)
{
    comm_all_reduce(&e->dp, &e->q, e->model->head.loss_sum);
    comm_all_reduce(&e->dp, &e->q, e->model->head.hits);
    comm_all_reduce(&e->pp, &e->q, e->model->head.loss_sum);
    comm_all_reduce(&e->pp, &e->q, e->model->head.hits);
    if (tensor_count(e->model->balance_sums) > 0) {
        comm_all_reduce(&e->dp, &e->q, e->model->balance_sums);
        comm_all_reduce(&e->pp, &e->q, e->model->balance_sums);
    }
}

/* Loss and accuracy over `tokens` trained tokens. */
static struct step_result sums_of(const struct engine *e, int64_t tokens)
{
    const struct head *h = &e->model->head;
    const double count = tokens > 0 ? (double)tokens : 1.0;

    return (struct step_result){.loss = *(const double *)h->loss_sum.data / count,
                                .accuracy = *(const double *)h->hits.data / count,
                                .tokens = tokens};
}

static struct grad_groups groups_of(struct engine *e)
{
    return (struct grad_groups){.tp = &e->tp,
                                .kv = &e->kv,
                                .dp = &e->dp,
                                .ep = &e->ep,
                                .edp = &e->edp,
                                .pp = &e->pp,
                                .embedding = &e->embedding};
}

void step_gradients(struct engine *e, const struct step_input *in, struct step_result *result)
{
    struct model *m = e->model;

    set_samples(e, in->samples);
    const double micros = (double)training_micros(m, in->rows);
    struct turn t = {.e = e,
                     .in = in,
                     .scale = in->trained > 0 ? e->scale.now / (double)in->trained : 0.0,
                     .balance = e->scale.now / micros};

    const struct grad_groups groups = groups_of(e);
    load_batch(e, in->rows);
    grads_zero(m, e->k, &e->q);
    clear_sums(e);
    grads_begin(&e->sums, &groups, &e->q);
    run(&t, &m->traffic);
    sum_losses(e);
    *result = sums_of(e, in->trained);
    if (tensor_count(m->balance_sums) > 0) {
        result->aux_loss = ((const double *)m->balance_sums.data)[0] / micros;
        result->z_loss = ((const double *)m->balance_sums.data)[1] / micros;
    }
    grads_finish(&e->sums);
    result->grad_norm = grads_norm(m, e->k, &e->q, &groups) / e->scale.now;
}

void step_run(struct engine *e, const struct step_input *in, struct step_result *result)
{
    struct adamw a = in->adamw;

    step_gradients(e, in, result);
    const bool overflow = !isfinite(result->loss) || !isfinite(result->grad_norm);
    const double scale = e->scale.now;
    a.t = in->step - e->scale.skipped;
    scale_see(&e->scale, overflow);
    result->skipped = overflow;
    if (overflow) {
        return;
    }
    a.scale = grads_clip_scale(result->grad_norm, in->clip) / scale;
    const struct grad_groups groups = groups_of(e);
    optim_step(e->model, e->k, &e->q, &a, &groups);
}

/* This rank's microbatches with samples from `at` on; where experts are on ranks with other microbatches, as many as the first
 * rank has, because all of these work on each. */
static int passes_at(const struct dims *d, int64_t at, int64_t samples)
{
    const int64_t micro0 = d->ep * d->etp > 1 ? 0 : d->micro0;
    int n = 0;

    while (n < d->micros && at + (micro0 + n) * d->B < samples) {
        n++;
    }
    return n;
}

bool step_evaluate(struct engine *e, const struct data_set *set, const struct data_rows *rows,
                   step_stop *stop, void *context, struct step_result *result)
{
    const struct dims *d = &e->model->d;
    const int64_t samples = data_samples(set), count = e->micros * d->B * d->dp;
    struct turn t = {.e = e, .counts = true};
    int64_t tokens = 0;

    set_samples(e, 0);
    clear_sums(e);
    for (int64_t at = 0; at < samples; at += count) {
        tokens += data_batch_in_order(set, rows, at, count);
        load_batch(e, rows);
        traffic_pass(&e->passing, passes_at(d, at, samples));
        run(&t, &e->passing);
        if (stop != NULL && stop(context)) {
            return false;
        }
    }
    sum_losses(e);
    *result = sums_of(e, tokens);
    return true;
}

/* Row `row` of the stream behind the last block, which one of the ranks that split rows has, on all of them. */
static struct tensor row_of(struct engine *e, const struct ctx *c, int64_t row)
{
    const struct model *m = e->model;
    const struct tensor out = here(c, m->out), one = tensor_slice(m->grad[0], 0, 1);
    const int64_t owner = row / tensor_rows(out), at = row % tensor_rows(out);

    if (m->d.sp == 1) {
        return tensor_slice(out, row, 1);
    }
    if (owner == m->d.tp_rank) {
        e->k->cast(&e->q, one, tensor_slice(out, at, 1));
    }
    comm_wait(&e->tp, &e->q, comm_start_broadcast(&e->tp, &e->q, one, (int)owner));
    return one;
}

/* The last stage: logits behind a place, this rank's part of the vocabulary [1,V_tp]. */
static struct tensor find_logits(struct engine *e, int64_t place)
{
    const struct model *m = e->model;
    const struct ctx narrow = narrow_ctx(e, 0);
    const struct ctx c = model_chunk_ctx(m, &narrow, m->d.chunks - 1, 0);
    int owner = 0;
    const int64_t row = batch_find(&m->d, e->width[0], place, &owner);

    if (m->d.cp == 1) {
        return head_logits(&m->head, &c, row_of(e, &c, row));
    }
    const struct tensor one = tensor_slice(m->grad[1], 0, 1);
    if (owner == m->d.cp_rank) {
        e->k->cast(&e->q, one, row_of(e, &c, row));
    }
    comm_wait(&e->cp, &e->q, comm_start_broadcast(&e->cp, &e->q, one, owner));
    return head_logits(&m->head, &c, one);
}

/* Parts of the last stage's ranks to all ranks, whole; absent in other stages. */
static const real *tell_logits(struct engine *e, struct tensor part)
{
    const struct model *m = e->model;
    const struct tensor mine = tensor_slice(m->logits, m->d.tp_rank, 1);

    if (tensor_count(part) > 0) {
        e->k->cast(&e->q, mine, part);
        comm_wait(&e->tp, &e->q, comm_start_all_gather(&e->tp, &e->q, m->logits, mine));
    }
    comm_wait(&e->pp, &e->q, comm_start_broadcast(&e->pp, &e->q, m->logits, m->d.pp - 1));
    return m->logits.data;
}

const real *step_logits(struct engine *e, const int32_t *ids, int64_t n)
{
    const struct model *m = e->model;
    struct turn t = {.e = e};
    struct tensor logits = tensor_none();

    e->batch = 1;
    e->width[0] = batch_tokens(m, ids, n);
    traffic_pass(&e->passing, 1);
    run(&t, &e->passing);
    if (m->chunks[m->d.chunks - 1].is_last) {
        logits = find_logits(e, n - 1);
    }
    return tensor_count(m->logits) > 0 ? tell_logits(e, logits) : logits.data;
}
