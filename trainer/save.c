/* save.c - what a checkpoint holds besides numbers. */
#include "trainer/save.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "trainer/agree.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/lora.h"

enum { TRAINER_BYTES = 1 << 20 };

static int write_json(const char *dir, const char *name, json_t *value, struct err *err)
{
    char path[IO_PATH_MAX];
    int rc = io_join(path, sizeof path, dir, name, err);

    if (rc == 0 && value == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for %s", name);
    }
    if (rc == 0) {
        rc = json_write_file(path, value, err);
    }
    json_decref(value);
    return rc;
}

static json_t *token_or_null(int64_t id)
{
    return id >= 0 ? json_integer(id) : json_null();
}

/* The model's own, else the two tokens that generation needs. */
static json_t *generation_of_model(const struct inputs *in)
{
    if (in->generation != NULL) {
        return json_deep_copy(in->generation);
    }
    return json_pack("{s:b, s:o, s:o}", "_from_model_config", 1, "bos_token_id",
                     token_or_null(in->arch.bos), "eos_token_id", token_or_null(in->arch.eos));
}

/* With the token by which a trained chat model says that it is done. */
static json_t *generation_config(const struct inputs *in)
{
    json_t *all = generation_of_model(in), *old = json_object_get(all, "eos_token_id"), *one;
    json_t *eos = json_array();
    bool there = in->end_of_turn < 0;
    size_t i;

    if (json_is_integer(old)) {
        (void)json_array_append(eos, old);
    }
    json_array_foreach(old, i, one)
    {
        (void)json_array_append(eos, one);
    }
    json_array_foreach(eos, i, one)
    {
        there = there || json_integer_value(one) == in->end_of_turn;
    }
    if (there) {
        json_decref(eos);
        return all;
    }
    (void)json_array_append_new(eos, json_integer((json_int_t)in->end_of_turn));
    if (all == NULL || json_object_set_new(all, "eos_token_id", eos) != 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}

/* What the model was trained to read: whoever talks to it renders the same. */
static int write_template(const struct inputs *in, const char *dir, struct err *err)
{
    char path[IO_PATH_MAX];

    if (in->chat_template == NULL) {
        return 0;
    }
    TRY(io_join(path, sizeof path, dir, "chat_template.jinja", err));
    return io_write_file(path, in->chat_template, strlen(in->chat_template), err);
}

/* null for what is no number. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *judge_json(const struct judge *j)
{
    return json_pack("{s:I, s:o, s:I, s:o, s:o, s:I, s:I, s:o}", "step", (json_int_t)j->step,
                     "loss", number(j->loss), "better_step", (json_int_t)j->best_step,
                     "better_loss", number(j->best_loss), "lowest_loss", number(j->lowest_loss),
                     "waited", (json_int_t)j->waited, "best_checkpoint", (json_int_t)j->saved_step,
                     "best_checkpoint_loss", number(j->saved_loss));
}

static int read_judge(struct judge *j, const json_t *trainer, struct err *err)
{
    const struct fields f = {json_object_get(trainer, "evaluations"), "trainer.json", ERR_BAD_FILE};
    const double most = 1e300;

    if (f.object == NULL) {
        return 0;
    }
    j->loss = (double)NAN;
    TRY(fields_integer(&f, "step", FIELD_REQUIRED, 0, INT64_MAX, &j->step, err));
    TRY(fields_number(&f, "loss", FIELD_OPTIONAL, -most, most, &j->loss, err));
    TRY(fields_integer(&f, "better_step", FIELD_REQUIRED, 0, INT64_MAX, &j->best_step, err));
    TRY(fields_number(&f, "better_loss", FIELD_OPTIONAL, -most, most, &j->best_loss, err));
    TRY(fields_number(&f, "lowest_loss", FIELD_OPTIONAL, -most, most, &j->lowest_loss, err));
    TRY(fields_integer(&f, "waited", FIELD_REQUIRED, 0, INT64_MAX, &j->waited, err));
    TRY(fields_integer(&f, "best_checkpoint", FIELD_REQUIRED, 0, INT64_MAX, &j->saved_step, err));
    return fields_number(&f, "best_checkpoint_loss", FIELD_OPTIONAL, -most, most, &j->saved_loss,
                         err);
}

/* Everything that decides which sample comes next, and where the run stands. */
static json_t *trainer_json(const struct engine *e, const struct job_folder *job,
                            const struct inputs *in, const struct progress *at)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:s}, s:o, s:o, s:o}", "format",
                     "hone-trainer-1", "step", (json_int_t)at->step, "consumed_samples",
                     (json_int_t)at->consumed, "trained_tokens", (json_int_t)at->tokens,
                     "total_steps", (json_int_t)in->total_steps, "order", "seed",
                     (json_int_t)job->spec.seed, "sequence_length", (json_int_t)in->sizes.sequence,
                     "training_tokens", (json_int_t)(in->training.end - in->training.begin),
                     "tokenizer", tokenizer_hash(in->tokenizer), "evaluations",
                     judge_json(&at->judge), "loss_scale", scale_json(&e->scale), "request",
                     spec_json(&job->spec));
}

static int fill(const struct engine *e, const struct job_folder *job, const struct inputs *in,
                const struct progress *at, struct checkpoint_save *save, struct err *err)
{
    const char *dir = checkpoint_save_dir(save);

    if (in->arch.lora.r > 0) {
        TRY(write_json(dir, LORA_CONFIG, lora_config(&in->arch, job->plan.model), err));
    } else {
        TRY(write_json(dir, "config.json", arch_config(&in->arch, in->config, e->model->d.act),
                       err));
    }
    TRY(write_json(dir, "generation_config.json", generation_config(in),
                   err)); /* what ends a text */
    TRY(tokenizer_save(in->tokenizer, dir, err));
    TRY(write_template(in, dir, err));
    return write_json(dir, "trainer.json", trainer_json(e, job, in, at), err);
}

static int check_room(const struct engine *e, const struct job_folder *job, struct err *err)
{
    uint64_t need = 0, room = 0;

    TRY(state_bytes(e->model, &need, err));
    TRY(io_free_bytes(job->dir, &room, err));
    if (room < need) {
        return FAIL(err, ERR_DISK_FULL,
                    "a checkpoint needs %.1f MB and the disk has only %.1f MB left",
                    (double)need / 1e6, (double)room / 1e6);
    }
    return 0;
}

static int try_folder(const struct job_folder *job, struct err *err)
{
    struct checkpoint_save *save = NULL;
    char path[IO_PATH_MAX];

    TRY(checkpoint_begin(&save, job->dir, 0, err));
    int rc = io_join(path, sizeof path, checkpoint_save_dir(save), "trial", err);
    if (rc == 0) {
        rc = io_write_file(path, "trial", 5, err);
    }
    checkpoint_abort(save);
    return rc;
}

int save_try(struct engine *e, const struct job_folder *job, struct err *err)
{
    int rc = 0;

    if (e->world.rank == 0) {
        rc = check_room(e, job, err);
        rc = rc == 0 ? try_folder(job, err) : rc;
    }
    return agree(&e->world, &e->q, rc, err);
}

/* The first rank makes the folder and all that is not numbers. */
static int begin(struct checkpoint_save **save, const struct engine *e,
                 const struct job_folder *job, const struct inputs *in, const struct progress *at,
                 struct err *err)
{
    TRY(check_room(e, job, err));
    TRY(checkpoint_begin(save, job->dir, at->step, err));
    return fill(e, job, in, at, *save, err);
}

int save_open(struct checkpoint_save **save, struct state_save **state, struct engine *e,
              const struct model *m, const struct job_folder *job, const struct inputs *in,
              const struct progress *at, struct err *err)
{
    const struct state_ranks ranks = {.world = &e->world, .q = &e->q};
    char dir[IO_PATH_MAX];

    TRY(checkpoint_partial_dir(dir, job->dir, at->step, err));
    const int rc = e->world.rank == 0 ? begin(save, e, job, in, at, err) : 0;
    TRY(agree(&e->world, &e->q, rc, err));
    return state_save_open(state, m, dir, &ranks, err);
}

int save_complete(struct checkpoint_save **save, struct state_save *state, struct checkpoint *out,
                  struct err *err)
{
    TRY(state_save_finish(state, err));
    const int rc = checkpoint_commit(*save, true, out, err);
    *save = NULL;
    return rc;
}

int save_checkpoint(struct engine *e, const struct job_folder *job, const struct inputs *in,
                    const struct progress *at, struct checkpoint *out, struct err *err)
{
    struct checkpoint_save *save = NULL;
    struct state_save *state = NULL;

    *out = (struct checkpoint){.step = at->step};
    int rc = save_open(&save, &state, e, e->model, job, in, at, err);
    if (rc == 0) {
        rc = agree(&e->world, &e->q, state_save_write(state, err), err);
    }
    if (rc == 0) {
        rc = e->world.rank == 0 ? save_complete(&save, state, out, err) : 0;
        rc = agree(&e->world, &e->q, rc, err);
    }
    state_save_free(state);
    checkpoint_abort(save);
    return rc;
}

/* The checkpoint continues this run only if the same samples come in the same order. */
static int check_order(const json_t *trainer, const struct job_folder *job, const struct inputs *in,
                       struct err *err)
{
    const struct fields f = {json_object_get(trainer, "order"), "trainer.json", ERR_BAD_FILE};
    int64_t seed = -1, sequence = 0, tokens = 0;
    const char *tokenizer = NULL;

    TRY(fields_integer(&f, "seed", FIELD_REQUIRED, 0, INT64_MAX, &seed, err));
    TRY(fields_integer(&f, "sequence_length", FIELD_REQUIRED, 1, INT64_MAX, &sequence, err));
    TRY(fields_integer(&f, "training_tokens", FIELD_REQUIRED, 1, INT64_MAX, &tokens, err));
    TRY(fields_text(&f, "tokenizer", FIELD_REQUIRED, &tokenizer, err));
    if (seed != job->spec.seed || sequence != in->sizes.sequence) {
        return FAIL(err, ERR_BAD_FILE,
                    "the checkpoint was made with another seed or "
                    "sequence_length: the order of samples would change");
    }
    if (tokens != in->training.end - in->training.begin ||
        strcmp(tokenizer, tokenizer_hash(in->tokenizer)) != 0) {
        return FAIL(err, ERR_BAD_FILE,
                    "the training file or the tokenizer is not the one that the checkpoint was "
                    "made with");
    }
    return 0;
}

static int read_progress(const char *dir, const struct job_folder *job, const struct inputs *in,
                         struct progress *at, struct scale *scale, struct err *err)
{
    char path[IO_PATH_MAX];
    json_t *trainer = NULL;

    TRY(io_join(path, sizeof path, dir, "trainer.json", err));
    TRY(json_parse_file(&trainer, path, TRAINER_BYTES, err));
    const struct fields f = {trainer, "trainer.json", ERR_BAD_FILE};
    int rc = fields_integer(&f, "step", FIELD_REQUIRED, 0, INT64_MAX, &at->step, err);
    if (rc == 0) {
        rc = fields_integer(&f, "consumed_samples", FIELD_REQUIRED, 0, INT64_MAX, &at->consumed,
                            err);
    }
    if (rc == 0) {
        rc = fields_integer(&f, "trained_tokens", FIELD_REQUIRED, 0, INT64_MAX, &at->tokens, err);
    }
    if (rc == 0) {
        rc = read_judge(&at->judge, trainer, err);
    }
    if (rc == 0 && json_object_get(trainer, "loss_scale") != NULL) {
        rc = scale_read(scale, json_object_get(trainer, "loss_scale"), err);
    }
    if (rc == 0) {
        rc = check_order(trainer, job, in, err);
    }
    json_decref(trainer);
    return rc;
}

int save_resume(struct engine *e, const struct job_folder *job, const struct inputs *in,
                const struct checkpoint *from, struct progress *at, struct err *err)
{
    struct safetensors_folder *folder = NULL;
    char dir[IO_PATH_MAX];

    TRY(io_join(dir, sizeof dir, job->dir, from->dir, err));
    TRY(read_progress(dir, job, in, at, &e->scale, err));
    int rc = 0;
    if (in->arch.lora.r > 0) {
        rc = state_load_adapter(e->model, dir, err);
    } else {
        TRY(safetensors_folder_open(&folder, dir, err));
        rc = state_load_weights(e->model, folder, err);
        safetensors_folder_close(folder);
    }
    if (rc == 0) {
        rc = state_load_optimizer(e->model, dir, err);
    }
    return rc;
}
