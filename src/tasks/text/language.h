/* Text packed into tokens: the data of the task of language modelling. */
#ifndef BY_TASKS_LANGUAGE_H
#define BY_TASKS_LANGUAGE_H

#include "banyan/model.h"
#include "banyan/pack.h"
#include "banyan/task.h"
#include "banyan/train_events.h"
#include "base/base.h"
#include "config/kind.h"

/* Locates the tokens of a config: packs data.text on first use, or uses data.train or data.mix, and
 * data.valid. Checksums are verified at the first use of a directory. The tokenizer of data.text is
 * that of model.from if data.tokenizer is not set, and that of its checkpoints for an existing run
 * (progress->resume). BY_ECONFIG if training data, valid and model.from have different
 * tokenizers. */
typedef struct by__task_data_paths {
    char **train; /* [train_count]; more than one: data.mix */
    size_t train_count;
    char **valid; /* [valid_count]; more than one, or one with a name: data.valid_sets */
    char **names; /* [valid_count], of data.valid_sets; NULL: the held-out data have no name */
    size_t valid_count;   /* 0 if nothing is held out */
    int64_t known_tokens; /* that the weights to start from know, if the data have more; 0: all */
    char *chosen; /* of data.text: a path or a kind of tokenizer; NULL: the data are packed */
    char *tokenizer;
    /* Directory of the model that the tokenizer comes from: the newest checkpoint of an existing
     * run, otherwise model.from or data.tokenizer; NULL: there is none. */
    char *origin;
} by__task_data_paths;
by_status by__task_data_prepare(by__task_data_paths *out, const by_config *config,
                                const by_train_options *progress, by_error *error);
void by__task_data_paths_free(by__task_data_paths *paths);

/* The parsed keys data.mix, data.mix_order and data.curriculum (data_mix.c). */
typedef struct by__task_data_mix {
    char **directories; /* [count] */
    size_t count;       /* 0: no mix */
    by_mix_stage *stages;
    size_t stage_count;
    double *weights; /* memory for the stages' weights */
    bool shuffle;
    char *text; /* text for the checkpoint's manifest; NULL without a mix */
} by__task_data_mix;
/* BY_ECONFIG names the entry that is not DIR=WEIGHT or STEP=WEIGHT:WEIGHT... */
by_status by__task_data_mix_parse(by__task_data_mix *out, const by_config *config, by_error *error);
void by__task_data_mix_free(by__task_data_mix *mix);
/* Implements by__config_kind.resolve of tasks with a mix: checks the keys. */
by_status by__task_data_mix_resolve(by_config *config, void *own, by_error *error);

/* The tokenizer of a task whose data do not make one: of the run that is resumed (NULL: none), of
 * model.from or data.tokenizer, as by_tokenizer_open takes it; and the directory of the model that
 * it comes from, NULL if there is none. Both are freed by the caller, also on failure. BY_ECONFIG
 * if there is none. */
by_status by__task_model_tokenizer(char **tokenizer, char **origin, const by_config *config,
                                   const char *run, by_error *error);

/* Tokens to evaluate a model on. */
typedef struct by__task_evaluation_data {
    char *directory; /* a packed directory */
    char *temporary; /* deleted when closed; NULL: none */
} by__task_evaluation_data;

/* Opens `path`: a packed directory, which must have been made by the tokenizer in `model_directory`
 * (if there is one); or a text file, JSON lines (.jsonl, .ndjson; the text is in data.field), a
 * directory of these, or "-" for text on standard input, which is packed with that tokenizer into a
 * temporary directory below TMPDIR. `progress` may be NULL. BY_ECONFIG: another tokenizer;
 * BY_EFORMAT: damaged data. Released with by__task_evaluation_data_close. */
by_status by__task_evaluation_data_open(by__task_evaluation_data *out, const char *path,
                                        const char *model_directory, const by_config *config,
                                        const by_train_options *progress, by_error *error);
void by__task_evaluation_data_close(by__task_evaluation_data *data);

/* BY_ECONFIG if packed data were made by a tokenizer other than that of a model, a directory or a
 * GGUF file (data_paths.c). A model without one fits any data. */
by_status by__task_same_tokenizer(const char *data, const char *model, by_error *error);
/* Verifies a packed directory at its first use, reporting to `progress` (may be NULL). */
by_status by__task_verify_data(const char *directory, const by_config *config,
                               const by_train_options *progress, by_error *error);
/* Opens it as data.corrupt says. If the result of the verification could not be stored, damage is
 * searched for again, which is also reported to `progress`. */
by_status by__task_open_packed(by_dataset **out, const char *directory, const by_config *config,
                               const by_train_options *progress, by_error *error);

/* Opens the stored logits of distill.logits; NULL if there are none. BY_ECONFIG: they do not match
 * how the data are read. (stored_logits.c) */
by_status by__task_open_logits(by_logit_store **out, const by_config *config, size_t train_count,
                               by_error *error);

/* ---- language.c ---- */

/* The loss of predicting tokens, as by_task.loss: each target weighs what the batch says. */
by_status by__task_language_loss(const by_config *config, const by_model_request *request,
                                 by_graph *graph, by_model *model, by_error *error);
/* The metric exp(loss). */
double by__task_perplexity(const by_task_data *data, const double *const *sums,
                           const by_evaluation *evaluation);

/* ---- target_weights.c: weights of tokens in the loss ---- */

typedef struct by__task_language_keys {
    char *weight;       /* of data.train */
    char *valid_weight; /* of data.valid */
} by__task_language_keys;

extern const by__config_key_list by__task_weight_keys;
/* The values of these keys; NULL: the config was not opened with them. */
const by__task_language_keys *by__task_language_keys_of(const by_config *config);
/* Returns true if batches have the weights of their targets. */
bool by__task_weighs_targets(const by_config *config);
/* BY_ECONFIG if what has weights is not one packed directory, or there is a teacher. */
by_status by__task_weights_check(const by_config *config, const by__task_language_keys *keys,
                                 by_error *error);

/* Sets progress and note of packing so that `relay` (which must live as long as the options)
 * forwards them as training events. */
typedef struct by__task_relay {
    const by_train_options *options; /* may be NULL */
} by__task_relay;
void by__task_relay_packing(by_pack_options *options, by__task_relay *relay);

#endif
