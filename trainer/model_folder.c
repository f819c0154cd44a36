/* model_folder.c - finding and reading a base model and its adapter. */
#include "trainer/model_folder.h"

#include <stdio.h>
#include <unistd.h>

#include "trainer/ckpt/state.h"
#include "trainer/lora.h"

int model_folder_find(struct model_folder *out, const char *dir, const char *adapter,
                      const char *base, struct err *err)
{
    const bool has_adapter = adapter != NULL && adapter[0] != '\0';
    const bool has_base = base != NULL && base[0] != '\0';

    *out = (struct model_folder){{0}, {0}};
    if (!lora_is_adapter(dir)) {
        TRY(io_join(out->base, sizeof out->base, dir, ".", err));
        return has_adapter ? io_join(out->adapter, sizeof out->adapter, adapter, ".", err) : 0;
    }
    if (has_adapter) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "the model folder is an adapter itself: give its base model");
    }
    TRY(io_join(out->adapter, sizeof out->adapter, dir, ".", err));
    return has_base ? io_join(out->base, sizeof out->base, base, ".", err)
                    : lora_base(out->base, dir, err);
}

int model_folder_arch(struct arch *out, const struct model_folder *f, struct err *err)
{
    json_t *config = NULL;

    TRY(arch_read_config(&config, f->base, err));
    const int rc = arch_read(out, config, 0, err);
    json_decref(config);
    TRY(rc);
    if (f->adapter[0] != '\0') {
        TRY(lora_read(&out->lora, out, f->adapter, err));
        out->lora.dropout = 0.0;
    }
    return 0;
}

const char *model_folder_tokenizer(const struct model_folder *f)
{
    char path[IO_PATH_MAX];
    struct err ignored = {0};

    if (f->adapter[0] != '\0' &&
        io_join(path, sizeof path, f->adapter, "tokenizer.json", &ignored) == 0 &&
        access(path, R_OK) == 0) {
        return f->adapter;
    }
    return f->base;
}

int model_folder_load(const struct model *m, const struct model_folder *f, struct err *err)
{
    struct safetensors_folder *folder = NULL;

    TRY(safetensors_folder_open(&folder, f->base, err));
    const int rc = state_load_weights(m, folder, err);
    safetensors_folder_close(folder);
    return rc == 0 && f->adapter[0] != '\0' ? state_load_adapter(m, f->adapter, err) : rc;
}
