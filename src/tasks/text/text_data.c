/* Packed text as the data of tasks: opens what a config names, completes the config with its sizes,
 * and makes sources of samples of it. */
#include <stdlib.h>
#include <string.h>

#include "banyan/tokenizer.h"
#include "base/paths.h"
#include "config/kind.h"
#include "tasks/tasks.h"
#include "tasks/teacher.h"
#include "tasks/text/conversation_data.h"
#include "tasks/text/documents.h"
#include "tasks/text/language.h"
#include "tasks/text/task_tokenizer.h"
#include "tasks/text/text_data.h"
#include "tasks/text/text_parts.h"

/* ---- opening ---- */

/* Opens a packed directory, and adds its damage to that of earlier data. */
static by_status open_packed(by__task_text_data *d, by_dataset **out, const char *path,
                             const by_task_request *r, by_error *error)
{
    size_t count;
    BY_TRY(by__task_open_packed(out, path, r->config, r->progress, error));
    const by_damage *items = by_dataset_damage(*out, &count);
    for (size_t i = 0; i < count; i++) {
        BY_TRY(by__loader_damage_add(&d->damage, &items[i], error));
    }
    d->base.damage = d->damage.items;
    d->base.damage_count = d->damage.count;
    d->base.damaged = d->damage.total;
    d->base.all += by_dataset_tokens(*out);
    return BY_OK;
}

/* Opens the data to evaluate on, with their names if they have any. */
static by_status open_valid(by__task_text_data *d, char *const *paths, size_t count,
                            const by_task_request *r, by_error *error)
{
    bool named = d->paths.names != NULL && paths == d->paths.valid;
    BY_TRY(by__alloc((void **)&d->valid, count, sizeof *d->valid, "the data", error));
    BY_TRY(by__alloc((void **)&d->keys, count, sizeof *d->keys, "the data", error));
    for (size_t i = 0; i < count; i++) {
        d->valid_count++;
        BY_TRY(open_packed(d, &d->valid[i], paths[i], r, error));
        d->base.valid_examples += by_dataset_tokens(d->valid[i]);
        if (named) {
            (void)snprintf(d->keys[i], sizeof d->keys[i], "valid_loss_%s", d->paths.names[i]);
            d->base.parts[i] = (by_task_part){.name = d->paths.names[i], .key = d->keys[i]};
            d->base.part_count = count;
        }
    }
    return BY_OK;
}

/* Opens the weights of some data sets: the masks of conversations, or the file `path`. */
static by_status open_weights(by_token_weights ***out, by_dataset *const *sets, size_t count,
                              bool chat, const char *path, by_error *error)
{
    BY_TRY(by__alloc((void **)out, count, sizeof **out, "weights of tokens", error));
    for (size_t i = 0; i < count && chat; i++) {
        BY_TRY(by_token_mask_open(&(*out)[i], sets[i], error));
    }
    return !chat && count > 0 && path[0] != '\0'
               ? by_token_weights_open(&(*out)[0], path, sets[0], error)
               : BY_OK;
}

/* Opens the weights of the data that are open. */
static by_status open_all_weights(by__task_text_data *d, const by_task_request *r, by_error *error)
{
    const by__task_language_keys *k = by__task_language_keys_of(r->config);
    bool chat = by__task_is_chat(r->config);
    size_t count = d->train == NULL ? 0 : d->paths.train_count;
    BY_TRY(open_weights(&d->weights, d->train, count, chat, k == NULL ? "" : k->weight, error));
    return open_weights(&d->valid_weights, d->valid, d->valid_count, chat,
                        k == NULL || r->path != NULL ? "" : k->valid_weight, error);
}

static by_token_packing packing_of(const by_config *config)
{
    return by__task_has_pairs(config)                      ? BY_TOKENS_PADDED
           : by__task_is_chat(config)                      ? by__task_chat_packing(config)
           : strcmp(config->data.packing, "best_fit") == 0 ? BY_TOKENS_BEST_FIT
                                                           : BY_TOKENS_STREAM;
}

/* Keeps the name of the template for by__task_text_check. Packed data have theirs. */
static by_status name_template(by__task_text_data *d, const by_config *config, by_error *error)
{
    const char *name = by__task_chat_template(config);
    if (d->paths.chosen == NULL || name[0] == '\0') {
        return BY_OK;
    }
    d->named_template = by__strdup(name);
    return d->named_template == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                     : BY_OK;
}

static by_status open_training(by__task_text_data *d, const by_task_request *r, by_error *error)
{
    d->packing = packing_of(r->config);
    BY_TRY(by__task_data_prepare(&d->paths, r->config, r->progress, error));
    BY_TRY(by__task_data_mix_parse(&d->mix, r->config, error));
    BY_TRY(
        by__alloc((void **)&d->train, d->paths.train_count, sizeof *d->train, "the data", error));
    for (size_t i = 0; i < d->paths.train_count; i++) {
        BY_TRY(open_packed(d, &d->train[i], d->paths.train[i], r, error));
        d->base.train_examples += by_dataset_tokens(d->train[i]);
    }
    BY_TRY(
        by__task_teacher_check_tokenizer(r->config, by_dataset_tokenizer_hash(d->train[0]), error));
    BY_TRY(open_valid(d, d->paths.valid, d->paths.valid_count, r, error));
    BY_TRY(by__task_open_logits(&d->logits, r->config, d->paths.train_count, error));
    BY_TRY(open_all_weights(d, r, error));
    d->base.known_tokens = d->paths.known_tokens;
    if (by__task_is_chat(r->config)) {
        BY_TRY(by__path_make(&d->template_file, d->paths.train[0], BY__TEMPLATE_FILE, error));
        BY_TRY(name_template(d, r->config, error));
    }
    return by__task_find_eos(&d->eos, &d->eos_token, d->paths.tokenizer, error);
}

/* Predictions are matched to documents by number: none may be skipped. */
static by_status refuse_damage(const by__task_text_data *d, by_error *error)
{
    const by_damage *first = d->damage.items;
    if (d->damage.count == 0) {
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s: damaged at %llu: %s; predictions leave no document out: pack the data "
                        "again",
                        first->path, (unsigned long long)first->place, first->reason);
}

/* Opens the data named by the request, or those held out by the config. */
static by_status open_other(by__task_text_data *d, const by_task_request *r, by_error *error)
{
    const char *path = r->path;
    const char *learned = r->learned == NULL ? "." : r->learned;
    if (path == NULL) {
        BY_TRY(by__task_data_prepare(&d->paths, r->config, r->progress, error));
        for (size_t i = 0; i < d->paths.valid_count; i++) {
            BY_TRY(by__task_same_tokenizer(d->paths.valid[i], learned, error));
        }
        BY_TRY(open_valid(d, d->paths.valid, d->paths.valid_count, r, error));
    } else {
        BY_TRY(
            by__task_evaluation_data_open(&d->other, path, learned, r->config, r->progress, error));
        BY_TRY(open_valid(d, &d->other.directory, 1, r, error));
        BY_TRY(by__path_make(&d->paths.tokenizer, d->other.directory, "tokenizer.json", error));
    }
    if (d->valid_count == 0) {
        return by_error_set(error, BY_ECONFIG,
                            "no data is held out (data.valid_fraction is 0): give a file or a "
                            "packed directory with --data");
    }
    BY_TRY(open_all_weights(d, r, error));
    if (r->purpose != BY_TASK_PREDICT) {
        return BY_OK;
    }
    BY_TRY(refuse_damage(d, error));
    return by__task_documents_open(&d->documents, d->valid[0], error);
}

void by__task_text_close(by_task_data *base)
{
    by__task_text_data *d = (by__task_text_data *)base;
    by__task_documents_close(&d->documents);
    for (size_t i = 0; d->train != NULL && i < d->paths.train_count; i++) {
        by_dataset_close(&d->train[i]);
    }
    free(d->train);
    by_logit_store_close(&d->logits);
    for (size_t i = 0; d->weights != NULL && i < d->paths.train_count; i++) {
        by_token_weights_close(&d->weights[i]);
    }
    free(d->weights);
    for (size_t i = 0; i < d->valid_count; i++) {
        if (d->valid_weights != NULL) {
            by_token_weights_close(&d->valid_weights[i]);
        }
        by_dataset_close(&d->valid[i]);
    }
    free(d->valid_weights);
    for (size_t i = 0; d->references != NULL && i < d->paths.train_count + d->valid_count; i++) {
        free(d->references[i]);
    }
    free(d->references);
    free(d->valid);
    free(d->keys);
    by__task_data_mix_free(&d->mix);
    by__task_data_paths_free(&d->paths);
    by__task_evaluation_data_close(&d->other);
    by__loader_damage_free(&d->damage);
    free(d->eos_token);
    by__task_origin_files_free(&d->origin);
    free(d->tokenizer_config);
    free(d->reference);
    free(d->template_file);
    free(d->named_template);
    free(d);
}

by_status by__task_text_open(by_task_data **out, const by_task *task, const by_task_request *r,
                             by_error *error)
{
    by__task_text_data *d;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "the data", error));
    *d = (by__task_text_data){.base = {.task = task}, .eos = -1};
    by_status status =
        r->purpose == BY_TASK_TRAIN ? open_training(d, r, error) : open_other(d, r, error);
    if (status == BY_OK && by__task_reads_reference(r->config)) {
        size_t count = d->paths.train_count + d->valid_count;
        status =
            by__alloc((void **)&d->references, count, sizeof *d->references, "references", error);
    }
    if (status != BY_OK) {
        by__task_text_close(&d->base);
        return status;
    }
    *out = &d->base;
    return BY_OK;
}

/* How the samples of a data set are made. Evaluation, too, leaves conversations whole. */
static by_token_options token_options(const by__task_text_data *d, const by_config *config,
                                      bool training, size_t set)
{
    by_token_weights *const *weights = training ? d->weights : d->valid_weights;
    size_t number = training ? set : d->paths.train_count + set;
    return (by_token_options){.pairs = by__task_has_pairs(config),
                              .last = by__task_rates_texts(config),
                              .referenced = by__task_reads_reference(config),
                              .reference = d->references == NULL ? NULL : d->references[number],
                              .weighted = by__task_weighs_targets(config),
                              .weights = weights == NULL ? NULL : weights[set],
                              .context = (size_t)config->model.context,
                              .shuffle = training,
                              .whole = by__task_is_chat(config),
                              .documents = by__task_keeps_documents(config),
                              .packing = packing_of(config)};
}

/* Computes the memory of the training data's sources, which are opened one after another. */
static by_status plan_sources(by__task_text_data *d, const by_config *config, by_error *error)
{
    d->base.bytes = 0;
    d->base.opening_bytes = 0;
    size_t count = d->train == NULL || config->model.context < 1 ? 0 : d->paths.train_count;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes;
        uint64_t opening;
        const by_token_options options = token_options(d, config, true, i);
        BY_TRY(by_token_source_bytes(&bytes, &opening, d->train[i], &options, error));
        opening += d->base.bytes;
        d->base.opening_bytes = opening > d->base.opening_bytes ? opening : d->base.opening_bytes;
        d->base.bytes += bytes;
    }
    return BY_OK;
}

/* Names the tokenizer that was chosen, unless the config does. */
static by_status name_tokenizer(by_config *config, const char *chosen, by_error *error)
{
    by_string setting = {0};
    if (chosen == NULL || by__config_is_given(config, "data.tokenizer") ||
        strcmp(chosen, config->data.tokenizer) == 0) {
        return BY_OK;
    }
    by__string_append(&setting, "data.tokenizer=");
    by_string_json(&setting, chosen, strlen(chosen));
    by_status status = setting.failed ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                                      : by_config_set(config, setting.data, error);
    by_string_free(&setting);
    return status;
}

by_status by__task_text_complete(by_task_data *base, by_config *config, by_error *error)
{
    by__task_text_data *d = (by__task_text_data *)base;
    BY_TRY(name_tokenizer(config, d->paths.chosen, error));
    BY_TRY(by__task_chat_adapters(config, d->base.known_tokens, error));
    if (d->train != NULL) {
        int64_t vocab = by_dataset_vocab(d->train[0]);
        if (config->model.vocab < 0) {
            int64_t unit = config->model.pad_vocab_to;
            config->model.vocab = (vocab + unit - 1) / unit * unit;
        }
        bool given = by__config_is_given(config, "model.vocab");
        if (config->model.vocab < vocab && d->base.known_tokens > 0) { /* it gets the added ones */
            config->model.vocab = vocab;
        }
        if (config->model.vocab < vocab && config->model.from[0] != '\0' && !given) {
            return by_error_set(
                error, BY_ECONFIG,
                "model.from=%s: \"vocab_size\" of its config.json is %lld, less than the %lld of "
                "the tokenizer that the text is packed with: set data.tokenizer to the model's, or "
                "copy its tokenizer.json to it",
                config->model.from, (long long)config->model.vocab, (long long)vocab);
        }
        if (config->model.vocab < vocab) {
            return by_error_set(
                error, BY_ECONFIG,
                "model.vocab %lld is less than the tokenizer's %lld; leave it out to take "
                "the tokenizer's",
                (long long)config->model.vocab, (long long)vocab);
        }
    }
    for (size_t i = 0; i < d->valid_count; i++) {
        if (by_dataset_vocab(d->valid[i]) > (uint64_t)config->model.vocab) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: its vocabulary of %u is more than the model's %lld",
                                d->paths.valid_count > 0 ? d->paths.valid[i] : d->other.directory,
                                by_dataset_vocab(d->valid[i]), (long long)config->model.vocab);
        }
    }
    if (d->train != NULL && by__task_is_chat(config) && !by__task_has_pairs(config)) {
        BY_TRY(by__task_chat_lengths(d->train, &d->paths, config, error));
    }
    BY_TRY(plan_sources(d, config, error));
    if (d->documents != NULL) { /* one window at a time: its loss is that of a document's part */
        config->train.batch = 1;
        config->train.micro_batch = 1;
    }
    return by_config_resolve(config, error);
}

/* Opens the training data: one source, or the mix of several. */
static by_status open_mixed(by_source **out, by__task_text_data *d, const by_config *config,
                            by_error *error)
{
    by_token_options options = token_options(d, config, true, 0);
    size_t count = d->paths.train_count;
    by_source **parts;
    options.logits = d->logits;
    if (d->logits != NULL) {
        BY_TRY(by_logit_store_check(d->logits, d->train[0], options.context,
                                    config->distill.temperature, error));
    }
    if (d->mix.stage_count == 0) {
        return by_token_source_open(out, d->train[0], &options, error);
    }
    BY_TRY(by__alloc((void **)&parts, count, sizeof *parts, "a mix", error));
    by_status status = BY_OK;
    size_t opened = 0;
    while (opened < count && status == BY_OK) {
        options = token_options(d, config, true, opened);
        status = by_token_source_open(&parts[opened], d->train[opened], &options, error);
        opened += status == BY_OK;
    }
    if (status == BY_OK) {
        status = by_mix_source_open(out, parts, count,
                                    &(by_mix_options){.stages = d->mix.stages,
                                                      .stage_count = d->mix.stage_count,
                                                      .shuffle = d->mix.shuffle},
                                    error);
    } else {
        for (size_t i = 0; i < opened; i++) {
            by_source_close(&parts[i]);
        }
    }
    free(parts);
    return status;
}

/* Opens one pass over the held-out data: its parts one after another, each in whole
 * micro-batches. */
static by_status open_held_out(by_source **out, by__task_text_data *d, const by_config *config,
                               by_error *error)
{
    by_source *parts[BY_TASK_PARTS];
    uint64_t ends[BY_TASK_PARTS];
    uint64_t unit = (uint64_t)config->train.micro_batch;
    int64_t batches = config->train.eval_batches;
    if (d->base.part_count == 0) {
        const by_token_options options = token_options(d, config, false, 0);
        return by_token_source_open(out, d->valid[0], &options, error);
    }
    for (size_t i = 0; i < d->valid_count; i++) {
        const by_token_options options = token_options(d, config, false, i);
        by_status status = by_token_source_open(&parts[i], d->valid[i], &options, error);
        if (status != BY_OK) {
            while (i-- > 0) {
                by_source_close(&parts[i]);
            }
            return status;
        }
    }
    BY_TRY(by_joined_source_open(out, parts, d->valid_count, unit,
                                 batches < 0 ? 0 : (uint64_t)batches * unit, ends, error));
    for (size_t i = 0; i < d->valid_count; i++) {
        d->base.parts[i].end = ends[i];
    }
    return BY_OK;
}

by_status by__task_text_source(by_source **out, by_task_data *base, const by_config *config,
                               bool training, by_error *error)
{
    by__task_text_data *d = (by__task_text_data *)base;
    const by_token_options options = token_options(d, config, training, 0);
    return d->documents != NULL
               ? by__task_documents_source(out, d->documents, options.context, options.documents,
                                           options.weighted, error)
           : training ? open_mixed(out, d, config, error)
                      : open_held_out(out, d, config, error);
}

/* ---- without data ---- */

int64_t by__task_text_per_sample(const by_config *config)
{
    return config->model.context;
}

unsigned by__task_text_knows(const by_config *config)
{
    const by_data_config *data = &config->data;
    bool has_text = data->text.count > 0;
    bool holds_out = data->valid[0] != '\0' || data->valid_sets.count > 0 ||
                     (has_text && data->valid_fraction > 0.0);
    bool has_data = has_text || data->train[0] != '\0' || data->mix.count > 0;
    return (config->model.vocab > 0 ? (unsigned)BY_TASK_SIZES : 0) |
           (has_data ? (unsigned)BY_TASK_DATA : 0) | (holds_out ? (unsigned)BY_TASK_HOLDS_OUT : 0);
}

/* Assumes the vocabulary of tinyshakespeare's characters. */
void by__task_text_assume(by_config *config)
{
    config->model.vocab = config->model.vocab < 0 ? 65 : config->model.vocab;
}

/* ---- predictions ---- */

by_status by__task_text_encode(by_task_data *base, const char *text, int32_t **ids, size_t *count,
                               int64_t *vocab, by_error *error)
{
    return by__task_text_to_ids(((by__task_text_data *)base)->paths.tokenizer, text, ids, count,
                                vocab, error);
}

by_status by__task_text_decode(by_task_data *base, const int32_t *ids, size_t count, char **text,
                               size_t *length, by_error *error)
{
    return by__task_text_of_ids(((by__task_text_data *)base)->paths.tokenizer, ids, count, text,
                                length, error);
}

void by__task_text_valid_size(const by_task_data *base, uint64_t *tokens, uint64_t *bytes)
{
    const by__task_text_data *d = (const by__task_text_data *)base;
    bool known = true;
    *tokens = 0;
    *bytes = 0;
    for (size_t i = 0; i < d->valid_count; i++) {
        *tokens += by_dataset_tokens(d->valid[i]);
        *bytes += by_dataset_text_bytes(d->valid[i]);
        known = known && by_dataset_text_bytes(d->valid[i]) > 0;
    }
    *bytes = known ? *bytes : 0;
}

by__task_documents *by__task_text_documents(const by_task_data *base)
{
    return ((const by__task_text_data *)base)->documents;
}

uint32_t by__task_text_vocab(const by_task_data *base)
{
    const by__task_text_data *d = (const by__task_text_data *)base;
    return by_dataset_vocab(d->train != NULL ? d->train[0] : d->valid[0]);
}

const char *by__task_text_tokenizer(const by_task_data *base)
{
    return ((const by__task_text_data *)base)->paths.tokenizer;
}
