/* rank.c - the loop around steps: intervals, signals, checkpoints, events; run by all ranks at once.
 *
 *   step 1 .. total:  read batch, step, metrics      every eval_interval: evaluate
 *                                                     every save_interval, at the end, when told: save
 *
 * Ranks do the same in the same order. What depends on anything but the numbers of the run - signals, what lies on the
 * disk - the first rank looks at and tells the others; it alone writes events and what is in the job folder, except for
 * the parts of a checkpoint.
 *
 * A checkpoint that fails for want of disk space is an event, and training goes on; only the last one must
 * succeed. After the `ready` event nothing is allocated for training; a checkpoint allocates while it is
 * written.
 */
#include "trainer/rank.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/agree.h"
#include "trainer/base/clock.h"
#include "trainer/ckpt/state.h"
#include "trainer/guard.h"
#include "trainer/prompts.h"
#include "trainer/ranks.h"
#include "trainer/rates.h"
#include "trainer/save.h"
#include "trainer/save_behind.h"
#include "trainer/signals.h"
#include "trainer/twins.h"

struct run {
    const struct job_folder *job;
    const struct spec *spec;
    struct events *events;
    struct err *end; /* where the launcher finds why the rank ended */
    struct inputs in;
    struct mesh mesh;
    struct engine engine;
    struct shm_rank *shared; /* owned; NULL for a rank that is alone */
    struct rates rates;
    struct data_reader *reader;
    struct data_rows eval_rows; /* owned memory for evaluation */
    struct prompts *prompts;    /* owned; NULL: none           */
    struct progress at;
    int64_t eval_interval, save_interval;
    int64_t saved_step;         /* of the newest checkpoint; -1: none  */
    struct checkpoint from;     /* that the run resumed from */
    struct save_behind *behind; /* owned; a checkpoint that is being written, NULL: none */
    struct judge before;        /* before it became the best                             */
    bool best;                  /* as which it is written                                */
    int64_t tokens_logged;
    double started; /* time of the first step                                                  */
    double logged;  /* of the last metrics event, moved on by what was no training since       */
};

/* Something that only the first rank knows, in all of them. */
static int told_by_first(struct run *r, int value)
{
    int32_t told = value;

    agree_copy(&r->engine.world, &r->engine.q, &told, sizeof told);
    return told;
}

static bool is_first(const struct run *r)
{
    return r->mesh.rank == 0;
}

static bool asked_to_leave(void *run)
{
    return told_by_first(run, (int)signals_peek()) >= (int)SIGNALS_STOP;
}

int rank_prepare(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    (void)rank;
    if (job->plan.gpus > 1) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "devices",
                          "this trainer works on one GPU and the job was given %d of them; ask for "
                          "1 device",
                          job->plan.gpus);
    }
    return inputs_prepare(job, events, err);
}

static int thread_count(const struct job_folder *job, int rank)
{
    const struct attempt_plan *plan = &job->plan;

    if (job->spec.threads > 0) {
        return (int)job->spec.threads;
    }
    if (plan->threads > 0) {
        return plan->threads;
    }
    if (rank < plan->place_count && plan->places[rank].count > 0) {
        return plan->places[rank].count;
    }
    const long all = plan->core_count > 0 ? plan->core_count : sysconf(_SC_NPROCESSORS_ONLN);
    const long each = all / job->ranks.count;
    return each > 0 ? (int)each : 1;
}

static int64_t interval(int64_t asked, int64_t total, int64_t parts)
{
    const int64_t preset = total / parts > 0 ? total / parts : 1;

    return asked != 0 ? asked : preset;
}

static int rows_new(struct data_rows *rows, int64_t count, struct err *err)
{
    int32_t *memory = calloc((size_t)count, 4 * sizeof *memory);

    if (memory == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %lld tokens of evaluation",
                    (long long)count);
    }
    *rows = (struct data_rows){.ids = memory,
                               .labels = memory + count,
                               .positions = memory + 2 * count,
                               .first = memory + 3 * count};
    return 0;
}

/* Weights of the model that the run starts from. */
static int load_model(struct run *r, struct err *err)
{
    struct safetensors_folder *folder = NULL;
    const char *first = NULL;

    TRY(safetensors_folder_open(&folder, r->job->plan.model, err));
    int64_t unused = 0;
    int rc = state_load_weights(r->engine.model, folder, err);
    if (rc == 0) {
        rc = state_unused(r->engine.model, folder, &unused, &first, err);
    }
    if (unused > 0) {
        events_warning(r->events,
                       "%lld tensors of the model are not used, %s first: does "
                       "config.json belong to these weights?",
                       (long long)unused, first);
    }
    safetensors_folder_close(folder);
    return rc;
}

/* Adapters that the run starts from: those of its field `adapter`, or new ones. */
static int load_adapter(struct run *r, struct err *err)
{
    if (r->job->plan.adapter[0] != '\0') {
        return state_load_adapter(r->engine.model, r->job->plan.adapter, err);
    }
    model_init_adapters(r->engine.model, r->engine.k, &r->engine.q, (uint64_t)r->spec->seed);
    return 0;
}

/* The newest good checkpoint; *found is ERR_NOT_FOUND where there is none. */
static int find_checkpoint(struct run *r, struct checkpoint *from, int *found, struct err *err)
{
    struct err skipped = {0};
    int rc = 0;

    *found = 0;
    if (is_first(r)) {
        rc = checkpoint_sweep(r->job->dir, err);
        *found = rc == 0 ? checkpoint_newest_good(from, r->job->dir, &skipped, err) : 0;
        rc = *found != 0 && *found != ERR_NOT_FOUND ? *found : rc;
    }
    if (skipped.code != 0) {
        events_warning(r->events, "%s", skipped.text);
    }
    TRY(agree(&r->engine.world, &r->engine.q, rc, err));
    *found = told_by_first(r, *found);
    agree_copy(&r->engine.world, &r->engine.q, from, sizeof *from);
    return 0;
}

/* Weights: of the newest good checkpoint, of the model to start from, or random. A checkpoint of adapters has only these. */
static int load(struct run *r, struct err *err)
{
    const bool adapts = r->in.arch.lora.r > 0;
    struct checkpoint from = {0};
    int found = 0;

    TRY(find_checkpoint(r, &from, &found, err));
    if (found != 0 && r->spec->config != NULL) {
        model_init(r->engine.model, r->engine.k, &r->engine.q, (uint64_t)r->spec->seed);
        return 0;
    }
    if (found != 0 || adapts) {
        TRY(load_model(r, err));
    }
    if (found == 0) {
        TRY(save_resume(&r->engine, r->job, &r->in, &from, &r->at, err));
        r->saved_step = r->at.step;
        r->from = from;
    } else if (adapts) {
        TRY(load_adapter(r, err));
    }
    model_round(r->engine.model, r->engine.k, &r->engine.q);
    return 0;
}

static json_t *resolved(const struct run *r)
{
    json_t *out = spec_json(r->spec);
    json_t *decided =
        json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:i}", "devices", r->mesh.world,
                  "sequence_length", (json_int_t)r->in.sizes.sequence, "micro_batch_size",
                  (json_int_t)r->in.sizes.micro_batch, "max_steps", (json_int_t)r->in.total_steps,
                  "warmup_steps", (json_int_t)r->rates.warmup, "eval_interval",
                  (json_int_t)r->eval_interval, "save_interval", (json_int_t)r->save_interval,
                  "min_learning_rate", r->rates.lowest, "threads", r->engine.model->d.threads);

    if (out != NULL && decided != NULL) {
        (void)json_object_update(out, decided);
    }
    json_decref(decided);
    return out;
}

static void send_ready(struct run *r, const struct plan *plan)
{
    char fingerprint[PLAN_FINGERPRINT], layout[PLAN_LAYOUT];
    json_t *memory = json_object();

    plan_fingerprint(fingerprint, plan->fingerprint);
    for (int i = 0; i < LIFE_COUNT; i++) {
        if (plan->region[i] > 0) {
            (void)json_object_set_new(memory, life_name((enum life)i),
                                      json_integer((json_int_t)plan->region[i]));
        }
    }
    (void)json_object_set_new(memory, "reader", json_integer((json_int_t)plan->reader));
    if (plan->exchange > 0) {
        (void)json_object_set_new(memory, "exchange", json_integer((json_int_t)plan->exchange));
    }
    (void)json_object_set_new(memory, "constants", json_integer((json_int_t)plan->constants));
    plan_layout(layout, &plan->mesh);
    events_send(r->events, EVENT_READY,
                json_pack("{s:i, s:s*, s:I, s:I, s:I, s:o, s:I, s:s, s:s, s:o*}", "ranks",
                          plan->ranks, "layout", plan->ranks > 1 ? layout : NULL, "parameters",
                          (json_int_t)plan->parameters, "trainable", (json_int_t)plan->trainable,
                          "total_steps", (json_int_t)r->in.total_steps, "memory", memory,
                          "memory_bytes", (json_int_t)plan->total * plan->ranks, "fingerprint",
                          fingerprint, "isa", r->engine.k->isa, "resolved", resolved(r)));
}

/* A chat model that can't tell the end of its turn from other tokens goes on for ever. */
static void warn_of_twins(struct run *r)
{
    const int64_t end = r->in.end_of_turn >= 0        ? r->in.end_of_turn
                        : r->in.training_rows != NULL ? tokenizer_eos(r->in.tokenizer)
                                                      : -1;
    struct engine *e = &r->engine;
    double count = end >= 0 ? (double)twins_count(e->model, &e->tp, &e->q, end) : 0.0;
    const struct tensor most = tensor_make(&count, DTYPE_F64, 1, 1);

    comm_wait(&e->world, &e->q, comm_start_all_reduce(&e->world, &e->q, most, COMM_MAX));
    const int64_t twins = (int64_t)count;

    if (r->in.also.twins > 0) {
        events_warning(r->events,
                       "%s ends what the model is to write, but in this model %lld other tokens "
                       "have the same output weights: the embeddings are trained beside the "
                       "adapters, so that it can learn to stop (lora_also=none leaves them as they "
                       "are)",
                       tokenizer_token(r->in.tokenizer, (int32_t)r->in.also.token, NULL),
                       (long long)r->in.also.twins);
    } else if (twins > 0) {
        events_warning(r->events,
                       "%s ends what the model is to write, but in this model %lld other tokens "
                       "have the same output weights, and those are not trained: it will not learn "
                       "to stop. Train all weights or, with lora_also, the embeddings too, or use "
                       "a chat_template with another end",
                       tokenizer_token(r->in.tokenizer, (int32_t)end, NULL), (long long)twins);
    }
}

/* A peer is gone or hangs: without it nothing can go on. */
static void end_without_peer(void *run, const char *why)
{
    const struct run *r = run;

    err_set(r->end, ERR_DEVICE, "%s", why);
    _exit(err_exit(ERR_DEVICE));
}

/* The model of this rank, as it was planned, and its groups. */
static int open_engine(struct run *r, int threads, struct err *err)
{
    const struct run_ranks *ranks = &r->job->ranks;
    struct plan plan;
    struct dims d;

    TRY(plan_dims(&d, &r->in.arch, r->spec, &r->in.sizes, &r->mesh, err));
    d.threads = threads;
    TRY(plan_rank(&plan, &r->in.arch, r->spec, threads, r->mesh.rank, err));
    TRY(engine_open(&r->engine, &d, r->job->plan.isa, err));
    CHECK(plan.fingerprint == r->engine.layout.fingerprint, "%zu bytes planned", plan.arenas);
    if (ranks->shm == NULL) {
        return 0;
    }
    TRY(shm_join(&r->shared, ranks->shm, r->mesh.rank, r->engine.k, ranks->timeout_ms,
                 end_without_peer, r, err));
    return ranks_join(&r->engine, r->shared, &r->mesh, err);
}

/* Whether the run is at its end, at the last step or for want of improvement. */
static bool is_over(const struct run *r)
{
    return r->at.step >= r->in.total_steps ||
           judge_gives_up(&r->at.judge, r->spec->early_stopping_patience);
}

static void tell_saved(struct run *r, const struct checkpoint *saved, bool best)
{
    const bool is_final = saved->step == r->at.step && is_over(r);

    events_send(r->events, EVENT_CHECKPOINT,
                json_pack("{s:I, s:s, s:I, s:s, s:b, s:b}", "step", (json_int_t)saved->step, "dir",
                          saved->dir, "bytes", (json_int_t)saved->bytes, "sha256", saved->sha256,
                          "final", (int)is_final, "best", (int)best));
}

/* Whether the events so far tell that the checkpoint of a step is there. */
static bool was_told(const struct run *r, int64_t step)
{
    struct event_reader *reader = NULL;
    enum event_found found = EVENT_FOUND_NONE;
    struct event e;
    struct err ignored = {0};
    bool told = false;

    if (event_reader_open(&reader, r->job->dir, 0, &ignored) != 0) {
        return false;
    }
    while (event_reader_next(reader, &found, &e, &ignored) == 0 && found != EVENT_FOUND_NONE) {
        if (found == EVENT_FOUND &&
            (e.type == EVENT_CHECKPOINT || e.type == EVENT_CHECKPOINT_GONE) &&
            json_integer_value(json_object_get(e.object, "step")) == step) {
            told = e.type == EVENT_CHECKPOINT;
        }
    }
    event_reader_close(reader);
    return told;
}

/* A run may have ended between a checkpoint's last rename and its event. */
static void tell_resumed(struct run *r)
{
    events_send(r->events, EVENT_RESUMED, json_pack("{s:I}", "from_step", (json_int_t)r->at.step));
    if (is_first(r) && !was_told(r, r->from.step)) {
        tell_saved(r, &r->from, checkpoint_best(r->job->dir) == r->from.step);
    }
}

static int open_run(struct run *r, struct err *err)
{
    const int threads = thread_count(r->job, r->mesh.rank);
    struct plan plan;

    events_stage(r->events, STAGE_LOADING);
    TRY(inputs_open(&r->in, r->job, err));
    TRY(open_engine(r, threads, err));
    TRY(plan_make(&plan, &r->in.arch, r->spec, threads, err));
    TRY(load(r, err));
    r->rates = rates_make(r->spec, r->in.total_steps);
    r->eval_interval = interval(r->spec->eval_interval, r->in.total_steps, 10);
    r->save_interval = interval(r->spec->save_interval, r->in.total_steps, 5);
    TRY(rows_new(&r->eval_rows, r->spec->global_batch_size * r->in.sizes.sequence, err));
    TRY(prompts_open(&r->prompts, r->job, &r->in, err));
    const struct data_reader_options options = {.consumed = r->at.consumed,
                                                .count = r->spec->global_batch_size,
                                                .ramp = &r->in.ramp,
                                                .total = r->in.total_samples,
                                                .workers = (int)r->spec->data_workers};
    TRY(data_reader_open(&r->reader, &r->in.training, &options, err));
    TRY(save_try(&r->engine, r->job, err));
    send_ready(r, &plan);
    warn_of_twins(r);
    if (r->in.sizes.sequence > r->in.arch.positions) {
        events_warning(r->events,
                       "sequence_length %lld is beyond the %lld positions that the model was made "
                       "for",
                       (long long)r->in.sizes.sequence, (long long)r->in.arch.positions);
    }
    if (r->saved_step >= 0) {
        tell_resumed(r);
    }
    return 0;
}

static void close_run(struct run *r)
{
    save_behind_drop(r->behind);
    data_reader_close(r->reader);
    prompts_close(r->prompts);
    free(r->eval_rows.ids);
    if (r->shared != NULL) {
        ranks_leave(&r->engine);
        shm_leave(r->shared);
    }
    engine_close(&r->engine);
    inputs_close(&r->in);
}

static void tell_gone(void *context, int64_t step)
{
    struct run *r = context;

    events_send(r->events, EVENT_CHECKPOINT_GONE, json_pack("{s:I}", "step", (json_int_t)step));
}

/* A checkpoint is there: tell it, mark it when it is the best, make room. */
static void keep_saved(struct run *r, const struct checkpoint *saved)
{
    struct err why = {0};

    r->saved_step = saved->step;
    if (!is_first(r)) {
        return;
    }
    if (r->best && checkpoint_mark_best(r->job->dir, saved->step, &why) != 0) {
        events_warning(r->events, "the best checkpoint is not marked: %s", why.text);
    }
    tell_saved(r, saved, r->best);
    if (checkpoint_keep(r->job->dir, (int)r->spec->keep_checkpoints, saved->step, tell_gone, r,
                        &why) != 0) {
        events_warning(r->events, "older checkpoints were not removed: %s", why.text);
    }
}

/* It failed: the best checkpoint is again the one before. */
static void tell_failed(struct run *r, int64_t step, const struct err *e)
{
    r->at.judge.saved_step = r->before.saved_step;
    r->at.judge.saved_loss = r->before.saved_loss;
    events_send(r->events, EVENT_CHECKPOINT_FAILED,
                json_pack("{s:I, s:s, s:s}", "step", (json_int_t)step, "code", err_word(e->code),
                          "message", e->text));
}

/* Look after a checkpoint that is being written; with `wait`, until it is. Its failure is an event. */
static void look_behind(struct run *r, bool wait)
{
    struct checkpoint saved;
    struct err why = {0};
    int rc = 0;

    if (r->behind == NULL || !save_behind_poll(&r->behind, wait, &saved, &rc, &why)) {
        return;
    }
    if (rc == 0) {
        keep_saved(r, &saved);
    } else {
        tell_failed(r, saved.step, &why);
    }
}

/* The last checkpoint is not written behind: nothing is left to train. */
static int write_checkpoint(struct run *r, bool must, struct err *err)
{
    struct checkpoint saved;
    int rc = 0;

    if (r->spec->async_save == ASYNC_YES && !must) {
        return save_behind_begin(&r->behind, &r->engine, r->job, &r->in, &r->at, err);
    }
    rc = save_checkpoint(&r->engine, r->job, &r->in, &r->at, &saved, err);
    if (rc == 0) {
        keep_saved(r, &saved);
    }
    return rc;
}

/* Save, unless the newest checkpoint is of this very step. `must`: failure is the run's failure. */
static int save(struct run *r, bool must, struct err *err)
{
    const double begun = clock_seconds();
    struct err why = {0};
    int rc = 0;

    look_behind(r, true);
    if (r->saved_step == r->at.step) {
        return 0;
    }
    events_stage(r->events, STAGE_SAVING);
    r->before = r->at.judge;
    r->best = judge_is_best(&r->before, r->at.step);
    if (r->best) {
        judge_keep(&r->at.judge);
    }
    rc = write_checkpoint(r, must, &why);
    if (rc != 0) {
        tell_failed(r, r->at.step, &why);
    }
    events_stage(r->events, STAGE_TRAINING);
    r->logged += clock_seconds() - begun;
    if (rc != 0 && must) {
        *err = why;
        return rc;
    }
    return 0;
}

static void tell_early_end(struct run *r)
{
    const struct judge *j = &r->at.judge;

    events_send(
        r->events, EVENT_STOPPED_EARLY,
        json_pack("{s:I, s:I, s:f, s:o}", "step", (json_int_t)r->at.step, "best_step",
                  (json_int_t)j->best_step, "best_loss", j->best_loss, "message",
                  json_sprintf("%lld evaluations brought no loss below %.4g, that of step "
                               "%lld: the run ends",
                               (long long)j->waited, j->best_loss, (long long)j->best_step)));
}

static void evaluate(struct run *r)
{
    const double begun = clock_seconds();
    struct step_result result;
    const bool validates = data_samples(&r->in.validation) > 0;

    if (!validates && r->prompts == NULL) {
        return;
    }
    events_stage(r->events, STAGE_EVALUATING);
    if (validates &&
        step_evaluate(&r->engine, &r->in.validation, &r->eval_rows, asked_to_leave, r, &result)) {
        agree_copy(&r->engine.world, &r->engine.q, &result, sizeof result);
        events_eval(r->events, r->at.step, result.loss, result.accuracy, result.tokens);
        judge_see(&r->at.judge, r->at.step, result.loss, r->spec->early_stopping_min_delta);
    }
    prompts_answer(r->prompts, &r->engine, r->events, r->at.step, asked_to_leave, r);
    events_stage(r->events, STAGE_TRAINING);
    r->logged += clock_seconds() - begun;
}

static void log_step(struct run *r, const struct step_result *result, double lr)
{
    const double t = clock_seconds();
    const bool has_scale = r->spec->precision == PRECISION_FP16;
    const struct metrics m = {.step = r->at.step,
                              .loss = result->loss,
                              .lr = lr,
                              .grad_norm = result->grad_norm,
                              .tokens = r->at.tokens,
                              .tokens_per_s =
                                  (double)(r->at.tokens - r->tokens_logged) / (t - r->logged),
                              .seconds = t - r->started,
                              .loss_scale = has_scale ? r->engine.scale.now : 0.0,
                              .skipped = r->engine.scale.skipped};

    events_metrics(r->events, &m);
    r->logged = t;
    r->tokens_logged = r->at.tokens;
}

static int train_step(struct run *r, struct err *err)
{
    const struct spec *s = r->spec;
    const int64_t step = r->at.step + 1;
    const double lr = rates_at(&r->rates, step - r->engine.scale.skipped);
    const struct data_rows *rows = NULL;
    struct step_result result;
    const int64_t samples = ramp_at(&r->in.ramp, r->at.consumed);
    struct step_input in = {.consumed = r->at.consumed,
                            .samples = samples,
                            .step = step,
                            .seed = (uint64_t)s->seed,
                            .clip = s->clip_grad,
                            .adamw = {.lr = lr,
                                      .beta1 = s->adam_beta1,
                                      .beta2 = s->adam_beta2,
                                      .eps = s->adam_eps,
                                      .weight_decay = s->weight_decay}};

    in.trained = data_reader_next(r->reader, &rows);
    in.rows = rows;
    step_run(&r->engine, &in, &result);
    r->at.step = step;
    r->at.consumed += samples;
    r->at.tokens += result.tokens;
    if (result.skipped || step % s->log_interval == 0 || step == r->in.total_steps) {
        log_step(r, &result, lr);
    }
    return guard_step(&r->engine, &result, step, s, err);
}

/* What signals ask for, between two steps. */
static int obey(struct run *r, struct err *err)
{
    switch ((enum signals_request)told_by_first(r, (int)signals_take())) {
    case SIGNALS_NONE: return 0;
    case SIGNALS_SAVE: return save(r, false, err);
    case SIGNALS_STOP: {
        const int rc = save(r, true, err);
        return rc != 0 ? rc : LAUNCH_STOPPED;
    }
    case SIGNALS_LEAVE: return LAUNCH_LEFT;
    }
    return 0;
}

static int train(struct run *r, struct err *err)
{
    const int64_t total = r->in.total_steps;

    r->started = clock_seconds();
    r->logged = r->started;
    r->tokens_logged = r->at.tokens;
    events_stage(r->events, STAGE_TRAINING);
    if (r->at.step == 0) {
        evaluate(r);
    }
    while (!is_over(r)) {
        TRY(obey(r, err));
        TRY(train_step(r, err));
        look_behind(r, false);
        const bool evaluates = r->at.step % r->eval_interval == 0 || r->at.step == total;
        if (evaluates) {
            evaluate(r);
        }
        /* With early stopping the best model must be there in the end; else the best of those saved will do. */
        const bool improves =
            evaluates && r->spec->early_stopping_patience > 0 && r->at.judge.lowest;
        if ((r->at.step % r->save_interval == 0 || improves) && !is_over(r)) {
            TRY(save(r, false, err));
        }
    }
    if (r->at.step < total) {
        tell_early_end(r);
    }
    return save(r, true, err);
}

int rank_run(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    struct run r = {.job = job, .spec = &job->spec, .events = events, .end = err, .saved_step = -1};
    const struct mesh_sizes sizes = plan_mesh(r.spec);

    int rc = mesh_make(&r.mesh, &sizes, rank, err);
    rc = rc != 0 ? rc : open_run(&r, err);
    if (rc == 0) {
        rc = train(&r, err);
    }
    if (rc != LAUNCH_LEFT) { /* errors of training are those of all ranks */
        look_behind(&r, true);
    }
    close_run(&r);
    return rc;
}
