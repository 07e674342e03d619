/* Text that is packed into tokens: what the task of language modelling opens. */
#ifndef BY_TRAIN_TASKS_LANGUAGE_H
#define BY_TRAIN_TASKS_LANGUAGE_H

#include "banyan/pack.h"
#include "train/loop.h"

/* Where the tokens of a config are: packs data.text on first use, or takes data.train or data.mix,
 * and data.valid. Checksums are verified at the first use of a directory. The tokenizer of
 * data.text is the one of model.from where data.tokenizer is not given, and that of its checkpoints
 * for a run that exists (progress->resume). BY_ECONFIG when training data, valid and model.from do
 * not agree on the tokenizer. */
typedef struct by__data_paths {
    char **train; /* [train_count]; more than one: data.mix */
    size_t train_count;
    char **valid;       /* [valid_count]; more than one, or one with a name: data.valid_sets */
    char **names;       /* [valid_count], of data.valid_sets; NULL: what is held out has no name */
    size_t valid_count; /* 0 when nothing is held out */
    char *tokenizer;
} by__data_paths;
by_status by__data_prepare(by__data_paths *out, const by_config *config,
                           const by_train_options *progress, by_error *error);
void by__data_paths_free(by__data_paths *paths);

/* What data.mix, data.mix_order and data.curriculum say (data_mix.c). */
typedef struct by__data_mix {
    char **directories; /* [count] */
    size_t count;       /* 0: there is no mix */
    by_mix_stage *stages;
    size_t stage_count;
    double *weights; /* that the stages point into */
    bool shuffle;
    char *text; /* for the checkpoint's manifest; NULL without a mix */
} by__data_mix;
/* BY_ECONFIG names the entry that is not DIR=WEIGHT or STEP=WEIGHT:WEIGHT... */
by_status by__data_mix_parse(by__data_mix *out, const by_config *config, by_error *error);
void by__data_mix_free(by__data_mix *mix);
/* The by__kind.resolve of tasks that mix: checks the keys. */
by_status by__data_mix_resolve(by_config *config, void *own, by_error *error);

/* Tokens to evaluate a model on. */
typedef struct by__evaluation_data {
    char *directory; /* packed */
    char *temporary; /* removed with it; NULL: there is none */
} by__evaluation_data;

/* Opens what `path` is: a packed directory, which must have been made by the tokenizer in
 * `model_directory` (where there is one); or a text file, JSON lines (.jsonl, .ndjson; the text is
 * in data.field), a directory of them, or "-" for text on standard input, which is packed with that
 * tokenizer into a temporary directory below TMPDIR. `progress` may be NULL. BY_ECONFIG: another
 * tokenizer; BY_EFORMAT: damaged data. Released with by__evaluation_data_close. */
by_status by__evaluation_data_open(by__evaluation_data *out, const char *path,
                                   const char *model_directory, const by_config *config,
                                   const by_train_options *progress, by_error *error);
void by__evaluation_data_close(by__evaluation_data *data);

/* BY_ECONFIG when packed data was made by another tokenizer than the tokenizer.json in a model's
 * directory (data_paths.c). A directory without one fits any data. */
by_status by__same_tokenizer(const char *data, const char *model, by_error *error);
/* Verifies a packed directory at its first use; `progress` (may be NULL) hears of it. */
by_status by__verify_data(const char *directory, const by_config *config,
                          const by_train_options *progress, by_error *error);
/* Opens it as data.corrupt says. Where no result of the verification could be kept, damage is found
 * again, and `progress` hears of that, too. */
by_status by__open_packed(by_dataset **out, const char *directory, const by_config *config,
                          const by_train_options *progress, by_error *error);

/* The stored logits of distill.logits; NULL where there are none. BY_ECONFIG: they are not for data
 * that is read so. (stored_logits.c) */
by_status by__open_logits(by_logit_store **out, const by_config *config, size_t train_count,
                          by_error *error);

/* Fills progress and note of packing so that `relay` (alive as long as the options) passes them on
 * as training events. */
typedef struct by__relay {
    const by_train_options *options; /* may be NULL */
} by__relay;
void by__relay_packing(by_pack_options *options, by__relay *relay);

#endif
