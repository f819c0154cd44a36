/* inputs.c - from a request's files to token files. */
#include "trainer/inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/ckpt/folder.h"
#include "trainer/data/recipe.h"
#include "trainer/data/texts.h"
#include "trainer/lora.h"
#include "trainer/trained.h"

enum { CONFIG_BYTES = 1 << 20, PREPARED_BYTES = 1 << 22, TEMPLATE_NAME = 128 };

/* generation_config.json is optional; a damaged one is not passed on. */
static int read_generation(struct inputs *in, const char *dir, struct err *err)
{
    char path[IO_PATH_MAX];
    struct err ignored = {0};

    TRY(io_join(path, sizeof path, dir, "generation_config.json", err));
    (void)json_parse_file(&in->generation, path, CONFIG_BYTES, &ignored);
    return 0;
}

/* The architecture and its config.json; the vocabulary of a new model is the tokenizer's. */
static int read_arch(struct inputs *in, const struct job_folder *job, struct err *err)
{
    const struct spec *s = &job->spec;
    const int64_t tokens = tokenizer_size(in->tokenizer);

    if (s->config != NULL) {
        in->config = json_incref(s->config);
        TRY(plan_config_arch(&in->arch, s, s->tokenizer_vocab_size != 0 ? 0 : tokens, err));
        in->arch.bos = tokenizer_bos(in->tokenizer);
        in->arch.eos = tokenizer_eos(in->tokenizer);
    } else {
        TRY(arch_read_config(&in->config, job->plan.model, err));
        TRY(arch_read(&in->arch, in->config, 0, err));
        TRY(lora_choose(&in->arch.lora, &in->arch, s, job->plan.adapter, err));
        const struct plan_folders folders = {.model = job->plan.model,
                                             .tokenizer = job->plan.tokenizer,
                                             .adapter = job->plan.adapter};
        also_decide(&in->arch, &in->also, s, &folders);
        TRY(read_generation(in, job->plan.model, err));
    }
    TRY(trained_check(&in->arch, s, err));
    if (tokens > in->arch.V) {
        return FAIL(err, ERR_NO_MODEL,
                    "the tokenizer has %lld tokens, the model's vocab_size is only %lld",
                    (long long)tokens, (long long)in->arch.V);
    }
    return 0;
}

/* Samples and steps of the whole training. */
static int count_steps(struct inputs *in, const struct spec *s, struct err *err)
{
    const double samples = (double)data_samples(&in->training);
    const double epochs = s->n_epochs > 0.0 ? s->n_epochs : 1.0;

    TRY(ramp_read(&in->ramp, s->batch_size_schedule, s->global_batch_size, in->sizes.sequence,
                  err));
    if (s->max_steps != 0) {
        in->total_steps = s->max_steps;
        in->total_samples = ramp_samples(&in->ramp, in->total_steps);
        return 0;
    }
    in->total_samples = (int64_t)ceil(samples * epochs - 1e-9);
    in->total_samples = in->total_samples > 0 ? in->total_samples : 1;
    in->total_steps = ramp_steps(&in->ramp, in->total_samples);
    if (s->warmup_steps > in->total_steps) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "warmup_steps",
                          "warmup_steps is %lld, but n_epochs %g of this text are only %lld steps",
                          (long long)s->warmup_steps, epochs, (long long)in->total_steps);
    }
    return 0;
}

/* A text that does not fill one sample is refused rather than trained on again and again. */
static int check_length(const struct inputs *in, struct err *err)
{
    const int64_t tokens = in->training.end - in->training.begin;

    if (tokens > in->sizes.sequence) {
        return 0;
    }
    if (tokens <= 2) {
        return FAIL_PARAM(err, ERR_NO_TOKENS, "training_file",
                          "the training text has only %lld tokens, there is nothing to learn from",
                          (long long)tokens);
    }
    return FAIL_PARAM(err, ERR_NO_TOKENS, "training_file",
                      "the training text has only %lld tokens, less than one sample with "
                      "sequence_length %lld: use more text, or a sequence_length of at most %lld",
                      (long long)tokens, (long long)in->sizes.sequence, (long long)tokens - 1);
}

static int pack_rows(struct pack **out, struct data_set *set, const struct token_file *f,
                     const uint32_t *examples, int64_t count, const struct inputs *in,
                     const struct spec *s, struct err *err)
{
    TRY(pack_make(out, f, examples, count, in->sizes.sequence, (enum pack_way)s->packing,
                  s->global_batch_size, err));
    *set = pack_set(*out, (uint64_t)s->seed);
    return 0;
}

/* Whole examples of the training file, and those that are held out. */
static int cut_examples(struct inputs *in, const struct spec *s, double fraction, struct err *err)
{
    struct pack_split split;

    TRY(pack_split(&split, in->training_file, fraction, (uint64_t)s->seed, err));
    int rc = pack_rows(&in->training_rows, &in->training, in->training_file, split.example,
                       split.training, in, s, err);
    if (rc == 0 && in->validation_file == NULL) {
        rc = pack_rows(&in->validation_rows, &in->validation, in->training_file,
                       split.example + split.training, split.held, in, s, err);
    }
    pack_split_fini(&split);
    return rc;
}

static int cut_training(struct inputs *in, const struct spec *s, struct err *err)
{
    const double fraction = in->validation_file != NULL ? 0.0 : s->validation_fraction;

    if (token_file_kind(in->training_file) == TOKEN_FILE_EXAMPLES) {
        return cut_examples(in, s, fraction, err);
    }
    TRY(data_split(&in->training, &in->validation, in->training_file, fraction, in->sizes.sequence,
                   (uint64_t)s->seed, err));
    return check_length(in, err);
}

/* A validation file is used as a whole. */
static int cut_validation(struct inputs *in, const struct spec *s, struct err *err)
{
    struct pack_split all;
    struct data_set none;

    if (token_file_kind(in->validation_file) == TOKEN_FILE_TEXT) {
        return data_split(&in->validation, &none, in->validation_file, 0.0, in->sizes.sequence,
                          (uint64_t)s->seed, err);
    }
    TRY(pack_split(&all, in->validation_file, 0.0, (uint64_t)s->seed, err));
    const int rc = pack_rows(&in->validation_rows, &in->validation, in->validation_file,
                             all.example, all.training, in, s, err);
    pack_split_fini(&all);
    return rc;
}

static int cut_sets(struct inputs *in, const struct spec *s, struct err *err)
{
    TRY(cut_training(in, s, err));
    if (in->validation_file != NULL) {
        TRY(cut_validation(in, s, err));
    }
    return count_steps(in, s, err);
}

void inputs_close(struct inputs *in)
{
    json_decref(in->config);
    json_decref(in->generation);
    tokenizer_close(in->tokenizer);
    pack_free(in->training_rows);
    pack_free(in->validation_rows);
    free(in->chat_template);
    token_file_close(in->training_file);
    token_file_close(in->validation_file);
    *in = (struct inputs){.end_of_turn = -1};
}

/* Where a progress callback reports to. */
struct reporting {
    struct events *events;
    enum stage stage;
};

static void report_bytes(void *context, uint64_t done, uint64_t total)
{
    const struct reporting *r = context;

    events_progress(r->events, r->stage, (int64_t)done, (int64_t)total, "bytes");
}

/* Learn a tokenizer from the training file: from what its examples say, where it holds such. */
static int learn_tokenizer(struct tokenizer **out, const struct job_folder *job,
                           struct events *events, struct err *err)
{
    struct reporting report = {events, STAGE_TOKENIZING};
    const struct bpe_options options = {.name = job->spec.training_file,
                                        .vocab_size = job->spec.tokenizer_vocab_size,
                                        .progress = report_bytes,
                                        .context = &report};
    const struct example_options examples = {.path = job->plan.training,
                                             .name = job->spec.training_file,
                                             .blame = ERR_BAD_TRAINING_FILE,
                                             .policy = job->spec.on_problem};
    char texts[IO_PATH_MAX];
    struct sniffed is;

    TRY(data_sniff(&is, examples.path, examples.name, examples.blame, err));
    if (is.format == FORMAT_TEXT) {
        return bpe_train(out, examples.path, &options, err);
    }
    TRY(io_join(texts, sizeof texts, job->dir, "tokenizer.txt", err));
    int rc = texts_write(texts, &examples, err);
    if (rc == 0) {
        rc = bpe_train(out, texts, &options, err);
    }
    (void)unlink(texts);
    return rc;
}

/* The folder of the tokenizer that this run uses; a learned one is made when it is not there yet. */
static int find_tokenizer(char dir[IO_PATH_MAX], const struct job_folder *job,
                          struct events *events, struct err *err)
{
    struct tokenizer *learned = NULL;
    char file[IO_PATH_MAX];

    if (job->spec.tokenizer_vocab_size == 0) {
        return io_join(dir, IO_PATH_MAX,
                       job->plan.tokenizer[0] != '\0' ? job->plan.tokenizer : job->plan.model, ".",
                       err);
    }
    TRY(io_join(dir, IO_PATH_MAX, job->dir, "tokenizer", err));
    TRY(io_join(file, sizeof file, dir, "tokenizer.json", err));
    if (access(file, R_OK) == 0) {
        return 0;
    }
    TRY(io_make_dir(dir, err));
    TRY(learn_tokenizer(&learned, job, events, err));
    const int rc = tokenizer_save(learned, dir, err);
    tokenizer_close(learned);
    return rc;
}

static void report_data(struct events *events, const char *set, const struct token_file *f,
                        const struct data_set *s, const char *template)
{
    size_t bytes = 0;
    const char *text = token_file_report(f, &bytes);
    json_t *report = bytes > 0 ? json_loadb(text, bytes, 0, NULL) : NULL;
    json_t *out =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:o*, s:s*}", "set", set, "bytes",
                  (json_int_t)token_file_text_bytes(f), "documents",
                  (json_int_t)token_file_documents(f), "tokens", (json_int_t)(s->end - s->begin),
                  "samples", (json_int_t)(s->end > s->begin ? data_samples(s) : 0), "report",
                  report, "chat_template", template);

    if (out != NULL && s->rows != NULL) {
        (void)json_object_set_new(out, "examples", json_integer((json_int_t)s->rows->examples));
        (void)json_object_set_new(out, "trained_tokens",
                                  json_integer((json_int_t)s->rows->trained));
    }
    events_send(events, EVENT_DATA, out);
}

/* Keep what checkpoints and chats need of the template. */
static int keep_template(struct inputs *in, const struct chat_template *t, struct err *err)
{
    if (t == NULL || in->chat_template != NULL) {
        return 0;
    }
    in->end_of_turn = chat_template_end(t);
    in->chat_template = strdup(chat_template_text(t));
    return in->chat_template != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a template");
}

/* One file of the job. `template` gets in words where its chat template comes from, "" for none. */
static int tokenize_file(struct inputs *in, struct token_file **out, char template[TEMPLATE_NAME],
                         const struct data_source *source, const struct recipe *recipe,
                         struct err *err)
{
    struct chat_template *t = NULL;

    TRY(recipe_prepare(out, &t, source, recipe, err));
    (void)snprintf(template, TEMPLATE_NAME, "%s", t != NULL ? chat_template_source(t) : "");
    const int rc = keep_template(in, t, err);
    chat_template_close(t);
    return rc;
}

static int tokenize(struct inputs *in, const struct job_folder *job, const char *tokenizer,
                    char template[2][TEMPLATE_NAME], struct events *events, struct err *err)
{
    struct reporting report = {events, STAGE_TOKENIZING};
    const struct recipe recipe =
        recipe_make(&job->spec, in->sizes.sequence, in->tokenizer, tokenizer);
    char cache[IO_PATH_MAX];

    TRY(io_join(cache, sizeof cache, job->dir, "cache", err));
    struct data_source source = {.path = job->plan.training,
                                 .name = job->spec.training_file,
                                 .cache_dir = job->plan.cache[0] != '\0' ? job->plan.cache : cache,
                                 .blame = ERR_BAD_TRAINING_FILE,
                                 .progress = report_bytes,
                                 .context = &report};
    TRY(tokenize_file(in, &in->training_file, template[0], &source, &recipe, err));
    if (job->plan.validation[0] != '\0') {
        source.path = job->plan.validation;
        source.name = job->spec.validation_file;
        source.blame = ERR_BAD_VALIDATION_FILE;
        TRY(tokenize_file(in, &in->validation_file, template[1], &source, &recipe, err));
    }
    return 0;
}

/* The weights must be there and fit the config before a tokenizer spends minutes; a rank reads them. */
static int check_weights(const struct job_folder *job, struct err *err)
{
    struct safetensors_folder *folder = NULL;

    if (job->spec.config != NULL) {
        return 0;
    }
    TRY(safetensors_folder_open(&folder, job->plan.model, err));
    safetensors_folder_close(folder);
    return 0;
}

/* So must those of the adapter to go on from. */
static int check_adapter(const struct inputs *in, const struct job_folder *job, struct err *err)
{
    struct safetensors *st = NULL;

    if (job->plan.adapter[0] == '\0') {
        return 0;
    }
    const int rc = lora_open(&st, &in->arch, job->plan.adapter, err);
    if (rc != 0) {
        err_about(err, "adapter");
        return rc;
    }
    safetensors_close(st);
    return 0;
}

static int write_prepared(const struct job_folder *job, const struct inputs *in,
                          const char *tokenizer, struct err *err)
{
    char path[IO_PATH_MAX];
    json_t *out =
        json_pack("{s:s, s:s, s:s?, s:s?, s:I}", "tokenizer", tokenizer, "training",
                  token_file_path(in->training_file), "validation",
                  in->validation_file != NULL ? token_file_path(in->validation_file) : NULL,
                  "chat_template", in->chat_template, "end_of_turn", (json_int_t)in->end_of_turn);

    TRY(io_join(path, sizeof path, job->dir, "prepared.json", err));
    if (out == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for prepared.json");
    }
    const int rc = json_write_file(path, out, err);
    json_decref(out);
    return rc;
}

static int prepare(struct inputs *in, const struct job_folder *job, struct events *events,
                   struct err *err)
{
    char tokenizer[IO_PATH_MAX], template[2][TEMPLATE_NAME] = {"", ""};
    const bool apart = job->plan.validation[0] != '\0';

    events_stage(events, STAGE_VALIDATING);
    TRY(check_weights(job, err));
    events_stage(events, STAGE_TOKENIZING);
    TRY(find_tokenizer(tokenizer, job, events, err));
    TRY(tokenizer_open(&in->tokenizer, tokenizer, err));
    TRY(read_arch(in, job, err));
    TRY(check_adapter(in, job, err));
    TRY(run_sizes_make(&in->sizes, &in->arch, &job->spec, err));
    TRY(tokenize(in, job, tokenizer, template, events, err));
    TRY(cut_sets(in, &job->spec, err));
    report_data(events, "training", in->training_file, &in->training,
                template[0][0] != '\0' ? template[0] : NULL);
    report_data(events, "validation", apart ? in->validation_file : in->training_file,
                &in->validation, template[1][0] != '\0' ? template[1] : NULL);
    return write_prepared(job, in, tokenizer, err);
}

int inputs_prepare(const struct job_folder *job, struct events *events, struct err *err)
{
    struct inputs in = {.end_of_turn = -1};
    const int rc = prepare(&in, job, events, err);

    inputs_close(&in);
    return rc;
}

/* The template that goes with the model: what the chats were rendered with, else what came with it. */
static int open_template(struct inputs *in, const struct job_folder *job, const char *text,
                         struct err *err)
{
    char path[IO_PATH_MAX];
    struct err none = {0};
    size_t bytes = 0;

    if (text != NULL) {
        in->chat_template = strdup(text);
        return in->chat_template != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a template");
    }
    if (job->spec.config == NULL) {
        TRY(io_join(path, sizeof path, job->plan.model, "chat_template.jinja", err));
        (void)io_read_file(&in->chat_template, &bytes, path, CONFIG_BYTES, &none);
    }
    return 0;
}

static int open_prepared(struct inputs *in, const struct job_folder *job, const json_t *prepared,
                         struct err *err)
{
    const struct fields f = {prepared, "prepared.json", ERR_BAD_FILE};
    const char *tokenizer = NULL, *training = NULL, *validation = NULL, *template = NULL;

    TRY(fields_text(&f, "tokenizer", FIELD_REQUIRED, &tokenizer, err));
    TRY(fields_text(&f, "training", FIELD_REQUIRED, &training, err));
    TRY(fields_text(&f, "validation", FIELD_OPTIONAL, &validation, err));
    TRY(fields_text(&f, "chat_template", FIELD_OPTIONAL, &template, err));
    TRY(fields_integer(&f, "end_of_turn", FIELD_OPTIONAL, -1, INT32_MAX, &in->end_of_turn, err));
    TRY(open_template(in, job, template, err));
    TRY(tokenizer_open(&in->tokenizer, tokenizer, err));
    TRY(read_arch(in, job, err));
    TRY(run_sizes_make(&in->sizes, &in->arch, &job->spec, err));
    TRY(token_file_open(&in->training_file, training, err));
    if (validation != NULL) {
        TRY(token_file_open(&in->validation_file, validation, err));
    }
    return cut_sets(in, &job->spec, err);
}

int inputs_open(struct inputs *out, const struct job_folder *job, struct err *err)
{
    struct inputs in = {.end_of_turn = -1};
    json_t *prepared = NULL;
    char path[IO_PATH_MAX];

    TRY(io_join(path, sizeof path, job->dir, "prepared.json", err));
    TRY(json_parse_file(&prepared, path, PREPARED_BYTES, err));
    const int rc = open_prepared(&in, job, prepared, err);
    json_decref(prepared);
    if (rc != 0) {
        inputs_close(&in);
        return rc;
    }
    *out = in;
    return 0;
}
