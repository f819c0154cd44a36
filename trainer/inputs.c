/* inputs.c - from a request's files to token files. */
#include "trainer/inputs.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/ckpt/folder.h"
#include "trainer/lora.h"
#include "trainer/trained.h"

enum { CONFIG_BYTES = 1 << 20, PREPARED_BYTES = 1 << 16 };

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
    const int64_t batch = s->global_batch_size;

    if (s->max_steps != 0) {
        in->total_steps = s->max_steps;
        in->total_samples = in->total_steps * batch;
        return 0;
    }
    in->total_samples = (int64_t)ceil(samples * epochs - 1e-9);
    in->total_samples = in->total_samples > 0 ? in->total_samples : 1;
    in->total_steps = (in->total_samples + batch - 1) / batch;
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

static int cut_sets(struct inputs *in, const struct spec *s, struct err *err)
{
    const bool apart = in->validation_file != NULL;
    struct data_set none;

    TRY(run_sizes_make(&in->sizes, &in->arch, s, err));
    TRY(data_split(&in->training, &in->validation, in->training_file,
                   apart ? 0.0 : s->validation_fraction, in->sizes.sequence, (uint64_t)s->seed,
                   err));
    if (apart) {
        TRY(data_split(&in->validation, &none, in->validation_file, 0.0, in->sizes.sequence,
                       (uint64_t)s->seed, err));
    }
    TRY(check_length(in, err));
    return count_steps(in, s, err);
}

void inputs_close(struct inputs *in)
{
    json_decref(in->config);
    json_decref(in->generation);
    tokenizer_close(in->tokenizer);
    token_file_close(in->training_file);
    token_file_close(in->validation_file);
    *in = (struct inputs){.config = NULL};
}

/* Where a progress callback reports to. */
struct report {
    struct events *events;
    enum stage stage;
};

static void report_bytes(void *context, uint64_t done, uint64_t total)
{
    const struct report *r = context;

    events_progress(r->events, r->stage, (int64_t)done, (int64_t)total, "bytes");
}

/* The folder of the tokenizer that this run uses; a learned one is made when it is not there yet. */
static int find_tokenizer(char dir[IO_PATH_MAX], const struct job_folder *job,
                          struct events *events, struct err *err)
{
    struct report report = {events, STAGE_TOKENIZING};
    const struct bpe_options options = {.name = job->spec.training_file,
                                        .vocab_size = job->spec.tokenizer_vocab_size,
                                        .progress = report_bytes,
                                        .context = &report};
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
    TRY(bpe_train(&learned, job->plan.training, &options, err));
    const int rc = tokenizer_save(learned, dir, err);
    tokenizer_close(learned);
    return rc;
}

static void report_data(struct events *events, const char *set, const struct token_file *f,
                        const struct data_set *s)
{
    events_send(events, EVENT_DATA,
                json_pack("{s:s, s:I, s:I, s:I, s:I}", "set", set, "bytes",
                          (json_int_t)token_file_text_bytes(f), "documents",
                          (json_int_t)token_file_documents(f), "tokens",
                          (json_int_t)(s->end - s->begin), "samples",
                          (json_int_t)(s->end > s->begin ? data_samples(s) : 0)));
}

static int tokenize(struct inputs *in, const struct job_folder *job, struct events *events,
                    struct err *err)
{
    struct report report = {events, STAGE_TOKENIZING};
    char cache[IO_PATH_MAX];

    TRY(io_join(cache, sizeof cache, job->dir, "cache", err));
    struct data_source source = {.path = job->plan.training,
                                 .name = job->spec.training_file,
                                 .cache_dir = job->plan.cache[0] != '\0' ? job->plan.cache : cache,
                                 .blame = ERR_BAD_TRAINING_FILE,
                                 .progress = report_bytes,
                                 .context = &report};
    TRY(data_prepare(&in->training_file, &source, in->tokenizer, err));
    if (job->plan.validation[0] != '\0') {
        source.path = job->plan.validation;
        source.name = job->spec.validation_file;
        source.blame = ERR_BAD_VALIDATION_FILE;
        TRY(data_prepare(&in->validation_file, &source, in->tokenizer, err));
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
    json_t *out = json_pack(
        "{s:s, s:s, s:s?}", "tokenizer", tokenizer, "training", token_file_path(in->training_file),
        "validation", in->validation_file != NULL ? token_file_path(in->validation_file) : NULL);

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
    char tokenizer[IO_PATH_MAX];

    events_stage(events, STAGE_VALIDATING);
    TRY(check_weights(job, err));
    events_stage(events, STAGE_TOKENIZING);
    TRY(find_tokenizer(tokenizer, job, events, err));
    TRY(tokenizer_open(&in->tokenizer, tokenizer, err));
    TRY(read_arch(in, job, err));
    TRY(check_adapter(in, job, err));
    TRY(tokenize(in, job, events, err));
    TRY(cut_sets(in, &job->spec, err));
    report_data(events, "training", in->training_file, &in->training);
    report_data(events, "validation",
                in->validation_file != NULL ? in->validation_file : in->training_file,
                &in->validation);
    return write_prepared(job, in, tokenizer, err);
}

int inputs_prepare(const struct job_folder *job, struct events *events, struct err *err)
{
    struct inputs in = {.config = NULL};
    const int rc = prepare(&in, job, events, err);

    inputs_close(&in);
    return rc;
}

static int open_prepared(struct inputs *in, const struct job_folder *job, const json_t *prepared,
                         struct err *err)
{
    const struct fields f = {prepared, "prepared.json", ERR_BAD_FILE};
    const char *tokenizer = NULL, *training = NULL, *validation = NULL;

    TRY(fields_text(&f, "tokenizer", FIELD_REQUIRED, &tokenizer, err));
    TRY(fields_text(&f, "training", FIELD_REQUIRED, &training, err));
    TRY(fields_text(&f, "validation", FIELD_OPTIONAL, &validation, err));
    TRY(tokenizer_open(&in->tokenizer, tokenizer, err));
    TRY(read_arch(in, job, err));
    TRY(token_file_open(&in->training_file, training, err));
    if (validation != NULL) {
        TRY(token_file_open(&in->validation_file, validation, err));
    }
    return cut_sets(in, &job->spec, err);
}

int inputs_open(struct inputs *out, const struct job_folder *job, struct err *err)
{
    struct inputs in = {.config = NULL};
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
