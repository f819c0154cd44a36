/* step.c - microbatches, gradients, optimizer. */
#include "trainer/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/optim.h"

enum { WIDTH_STEP = 32 }; /* places */

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

/* The order of microbatches in a step; the model's slots are what it needs. */
static int list_actions(struct engine *e, const struct dims *d, struct err *err)
{
    const struct pipe pipe = {.pp = 1, .rank = 0, .chunks = 1, .micros = (int)d->micros};

    e->actions = calloc(2 * (size_t)d->micros, sizeof *e->actions);
    e->width = calloc((size_t)d->micros, sizeof *e->width);
    if (e->actions == NULL || e->width == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %lld microbatches", (long long)d->micros);
    }
    e->action_count = schedule_make(e->actions, &pipe);
    CHECK(schedule_slots(e->actions, e->action_count) == e->model->slots, "%d slots planned",
          e->model->slots);
    return 0;
}

int engine_open(struct engine *e, const struct dims *d, const char *isa, struct err *err)
{
    *e = (struct engine){
        .world = comm_self(), .tp = comm_self(), .kv = comm_self(), .dp = comm_self()};
    int rc = choose_kernels(e, isa, d->threads, err);
    if (rc == 0) {
        rc = model_new(&e->model, d, err);
    }
    if (rc == 0) {
        rc = list_actions(e, d, err);
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
    if (tensor_count(e->model->rope.cos) > 0) {
        rope_fill(&e->model->rope, &d->arch);
    }
    return 0;
}

void engine_close(struct engine *e)
{
    model_free(e->model);
    e->model = NULL;
    free(e->actions);
    free(e->width);
    e->actions = NULL;
    e->width = NULL;
    memory_close(&e->memory);
}

/* A multiple of WIDTH_STEP that ranks can share. */
static int64_t width_step(const struct dims *d)
{
    int64_t step = WIDTH_STEP;

    while (step % d->sp != 0) {
        step += WIDTH_STEP;
    }
    return step;
}

/* Places of microbatch `micro` that a step works on: up to the last label of its longest row. What lies behind
 * reaches no loss. A multiple of width_step(), so that kernels meet few shapes. */
static int64_t width_of(const struct model *m, const struct data_rows *rows, int64_t micro)
{
    const struct dims *d = &m->d;
    const int32_t *labels = rows->labels + (d->micro0 + micro) * d->R;
    int64_t width = 1;

    for (int64_t row = 0; row < d->B; row++) {
        int64_t end = d->S;
        while (end > width && labels[row * d->S + end - 1] < 0) {
            end--;
        }
        width = end > width ? end : width;
    }
    const int64_t step = width_step(d);
    width = (width + step - 1) / step * step;
    return width < d->S ? width : d->S;
}

static void copy_row(const struct model *m, const struct data_rows *rows, int64_t to, int64_t from,
                     int64_t width)
{
    const size_t bytes = (size_t)width * sizeof(int32_t);
    const int64_t window = m->d.arch.window;
    int32_t *slid = m->first[1].data;

    memcpy((int32_t *)m->ids.data + to, rows->ids + from, bytes);
    memcpy((int32_t *)m->labels.data + to, rows->labels + from, bytes);
    memcpy((int32_t *)m->pos.data + to, rows->positions + from, bytes);
    memcpy((int32_t *)m->first[0].data + to, rows->first + from, bytes);
    for (int64_t i = 0; slid != NULL && i < width; i++) {
        const int64_t low = i - window + 1;
        slid[to + i] = low > rows->first[from + i] ? (int32_t)low : rows->first[from + i];
    }
}

/* The tokens of a step into the batch region, sliding windows included; each microbatch as wide as it must be. */
static void load_batch(struct engine *e, const struct data_rows *rows)
{
    const struct model *m = e->model;
    const struct dims *d = &m->d;

    for (int64_t micro = 0; micro < d->micros; micro++) {
        e->width[micro] = width_of(m, rows, micro);
        for (int64_t row = 0; row < d->B; row++) {
            copy_row(m, rows, micro * d->R + row * e->width[micro],
                     (d->micro0 + micro) * d->R + row * d->S, e->width[micro]);
        }
    }
}

/* The context of a microbatch, as wide as it was loaded; valid until the next call. */
static struct ctx narrow_ctx(struct engine *e, int64_t micro)
{
    e->narrow = e->model->d;
    e->narrow.S = e->width[micro];
    e->narrow.R = e->narrow.B * e->narrow.S;
    struct ctx c = model_ctx(e->model, e->k, &e->q, &e->tp, micro, e->narrow.R);
    c.d = &e->narrow;
    return c;
}

static struct ctx micro_ctx(struct engine *e, const struct step_input *in, int64_t micro)
{
    struct ctx c = narrow_ctx(e, micro);

    c.training = true;
    c.slot = (int)(micro % e->model->slots);
    c.drop.seed = in->seed;
    c.drop.step = in->step;
    c.drop.sample0 = in->consumed + (e->model->d.micro0 + micro) * e->model->d.B;
    return c;
}

static void clear_sums(struct engine *e)
{
    e->k->zero(&e->q, e->model->head.loss_sum);
    e->k->zero(&e->q, e->model->head.hits);
}

/* Of all data-parallel ranks. */
static void sum_losses(struct engine *e)
{
    comm_all_reduce(&e->dp, &e->q, e->model->head.loss_sum);
    comm_all_reduce(&e->dp, &e->q, e->model->head.hits);
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
    return (struct grad_groups){&e->tp, &e->kv, &e->dp};
}

void step_gradients(struct engine *e, const struct step_input *in, struct step_result *result)
{
    struct model *m = e->model;
    const double scale = in->trained > 0 ? 1.0 / (double)in->trained : 0.0;

    load_batch(e, in->rows);
    grads_zero(m, e->k, &e->q);
    clear_sums(e);
    for (int i = 0; i < e->action_count; i++) {
        const struct ctx c = micro_ctx(e, in, e->actions[i].micro);
        if (e->actions[i].forward) {
            model_forward(m, &c);
        } else {
            model_backward(m, &c, scale);
        }
    }
    sum_losses(e);
    *result = sums_of(e, in->trained);
    const struct grad_groups groups = groups_of(e);
    grads_sum(m, &groups, &e->q);
    result->grad_norm = grads_norm(m, e->k, &e->q, &groups);
}

void step_run(struct engine *e, const struct step_input *in, struct step_result *result)
{
    struct adamw a = in->adamw;

    step_gradients(e, in, result);
    if (!isfinite(result->loss) || !isfinite(result->grad_norm)) {
        return;
    }
    a.scale = grads_clip_scale(result->grad_norm, in->clip);
    a.t = in->step;
    const struct grad_groups groups = groups_of(e);
    optim_step(e->model, e->k, &e->q, &a, &groups);
}

bool step_evaluate(struct engine *e, const struct data_set *set, const struct data_rows *rows,
                   bool (*stop)(void), struct step_result *result)
{
    const struct dims *d = &e->model->d;
    const int64_t samples = data_samples(set), count = d->micros * d->B * e->dp.size;
    int64_t tokens = 0;

    clear_sums(e);
    for (int64_t at = 0; at < samples; at += count) {
        tokens += data_batch_in_order(set, rows, at, count);
        load_batch(e, rows);
        for (int64_t micro = 0; micro < d->micros && at + (d->micro0 + micro) * d->B < samples;
             micro++) {
            const struct ctx c = narrow_ctx(e, micro);
            model_loss(e->model, &c);
        }
        if (stop != NULL && stop()) {
            return false;
        }
    }
    sum_losses(e);
    *result = sums_of(e, tokens);
    return true;
}

const real *step_logits(struct engine *e, const int32_t *ids, int64_t n)
{
    const struct model *m = e->model;
    const int64_t window = m->d.arch.window;

    CHECK(n >= 1 && n <= m->d.S, "%lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)m->ids.data)[i] = ids[i];
        ((int32_t *)m->pos.data)[i] = (int32_t)i;
        ((int32_t *)m->first[0].data)[i] = 0;
        if (m->first[1].data != NULL) {
            ((int32_t *)m->first[1].data)[i] = i >= window ? (int32_t)(i - window + 1) : 0;
        }
    }
    e->narrow = m->d;
    e->narrow.B = 1;
    e->narrow.S = n;
    e->narrow.R = n;
    struct ctx c = model_ctx(m, e->k, &e->q, &e->tp, 0, n);
    c.d = &e->narrow;
    model_forward(m, &c);
    return head_logits(&m->head, &c, tensor_slice(here(&c, m->out), n - 1, 1)).data;
}
