/* model_folder.h - where a model that is to be used lies: a Hugging Face folder, perhaps with a PEFT adapter on it. */
#ifndef TRAINER_MODEL_FOLDER_H
#define TRAINER_MODEL_FOLDER_H

#include "trainer/arch.h"
#include "trainer/base/io.h"
#include "trainer/model.h"

struct model_folder {
    char base[IO_PATH_MAX];    /* config.json and weights                         */
    char adapter[IO_PATH_MAX]; /* "" without one                                  */
};

/* dir: a model folder; or an adapter's, which names its base. adapter: a PEFT folder for dir, NULL or "" for none. base: the
 * base model of an adapter, NULL or "" for the one that it names. Errors: BAD_REQUEST (an adapter on an adapter), and those
 * of lora_base. */
int model_folder_find(struct model_folder *out, const char *dir, const char *adapter,
                      const char *base, struct err *err);

/* The architecture, its adapters included; without their dropout. Errors: NO_MODEL, IO, NO_MEMORY. */
int model_folder_arch(struct arch *out, const struct model_folder *f, struct err *err);

/* Where the tokenizer lies: with the adapter if it has one, else with the base. */
const char *model_folder_tokenizer(const struct model_folder *f);

/* Read weights and adapters into a model that is not trained. Errors: NO_MODEL, BAD_FILE, IO, NO_MEMORY. */
int model_folder_load(const struct model *m, const struct model_folder *f, struct err *err);

#endif
