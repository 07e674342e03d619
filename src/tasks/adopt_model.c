/* Takes the sizes of the model from the weights to start from (model.from). */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"
#include "config/kind.h"
#include "export/export.h"
#include "nn/nn.h"
#include "tasks/tasks.h"

/* Default length of a sequence, unless the config or a shorter context of the checkpoint sets it:
 * the context that a model supports for generation may be a hundred times too long for training. */
#define CONTEXT 1024

/* The error for a key of the config that contradicts the weights. */
static by_status given_otherwise(const by_config *config, const char *key, const char *given,
                                 const char *theirs, by_error *error)
{
    return by_error_set(error, BY_ECONFIG,
                        "%s is %s, but the weights of model.from=%s have %s: leave %s out", key,
                        given, config->model.from, theirs, key);
}

/* Whether the model may have more tokens than the weights to start from: those that a chat template
 * adds. */
static bool may_grow(const by_config *config, const by_config *theirs)
{
    return by__task_is_chat(config) && config->model.vocab >= theirs->model.vocab;
}

/* Sizes that a program may have written into the struct: `plain` has their defaults. */
static by_status check_written(const by_config *config, const by_model_config *plain,
                               const by_config *other, by_error *error)
{
    const by_model_config *m = &config->model;
    const by_model_config *theirs = &other->model;
    const struct {
        const char *key;
        int64_t given, plain, theirs;
    } numbers[] = {
        {"model.layers", m->layers, plain->layers, theirs->layers},
        {"model.heads", m->heads, plain->heads, theirs->heads},
        {"model.width", m->width, plain->width, theirs->width},
        {"model.vocab", m->vocab, plain->vocab, theirs->vocab},
        /* With rotary positions the context may be shorter than the checkpoint's. */
        {"model.context",
         by_model_is_rotary(theirs) && m->context < theirs->context ? theirs->context : m->context,
         plain->context, theirs->context},
    };
    bool is_given = by__config_is_given(config, "model.kind");
    if (strcmp(m->kind, theirs->kind) != 0 && (is_given || strcmp(m->kind, plain->kind) != 0)) {
        return given_otherwise(config, "model.kind", m->kind, theirs->kind, error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(numbers); i++) {
        char text[2][24];
        bool grows = strcmp(numbers[i].key, "model.vocab") == 0 && may_grow(config, other);
        if (!grows && by__config_has_key(other, numbers[i].key) &&
            numbers[i].given != numbers[i].theirs && numbers[i].given != numbers[i].plain) {
            (void)snprintf(text[0], sizeof text[0], "%lld", (long long)numbers[i].given);
            (void)snprintf(text[1], sizeof text[1], "%lld", (long long)numbers[i].theirs);
            return given_otherwise(config, numbers[i].key, text[0], text[1], error);
        }
    }
    return BY_OK;
}

/* Keys that config.json has, but that a run may set otherwise than the weights to start from. */
typedef enum inherit_rule { RULE_FIXED, RULE_FREE, RULE_UNSCALED } inherit_rule;

static inherit_rule rule_of(const char *key)
{
    static const struct {
        const char *key;
        inherit_rule rule;
    } rows[] = {
        {"model.kind", RULE_FREE}, /* compared by name */
        {"task.kind", RULE_FREE},
        {"model.from", RULE_FREE},
        {"model.output", RULE_FREE},
        {"model.head", RULE_FREE}, /* follows from the task */
        {"model.dropout", RULE_FREE},
        {"model.init_std", RULE_FREE},
        {"model.router_aux_loss_coef", RULE_FREE},
        /* No parameter depends on them but the positions of patches, which are interpolated. */
        {"model.image_height", RULE_FREE},
        {"model.image_width", RULE_FREE},
        /* Only a model that was trained without a scaling can get one. */
        {"model.rope_scaling", RULE_UNSCALED},
        {"model.rope_factor", RULE_UNSCALED},
        {"model.rope_original_context", RULE_UNSCALED},
        {"model.rope_low_freq_factor", RULE_UNSCALED},
        {"model.rope_high_freq_factor", RULE_UNSCALED},
        {"model.rope_beta_fast", RULE_UNSCALED},
        {"model.rope_beta_slow", RULE_UNSCALED},
        {"model.rope_attention_factor", RULE_UNSCALED},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (strcmp(rows[i].key, key) == 0) {
            return rows[i].rule;
        }
    }
    return RULE_FIXED;
}

static bool is_scaled(const by_config *theirs)
{
    by_string text = {0};
    by__config_show(&text, theirs, "model.rope_scaling");
    bool scaled = text.data != NULL && strcmp(text.data, "none") != 0;
    by_string_free(&text);
    return scaled;
}

static bool may_set(const by_config *config, const by_config *theirs, const char *key)
{
    const by_model_config *m = &theirs->model;
    inherit_rule r = rule_of(key);
    bool of_head = strcmp(key, "model.outputs") == 0 || strcmp(key, "model.tied") == 0;
    return r == RULE_FREE || (r == RULE_UNSCALED && !is_scaled(theirs)) ||
           (of_head && config->model.new_parameters.count > 0) ||
           (strcmp(key, "model.vocab") == 0 && may_grow(config, theirs)) ||
           (strcmp(key, "model.context") == 0 && by_model_is_rotary(m) &&
            config->model.context <= m->context);
}

/* Returns whether the model of `theirs` with one value of `config` is the same model, as
 * config.json describes it. */
static by_status is_alike(bool *out, const by_config *config, const by_config *theirs,
                          const char *key, by_error *error)
{
    by_config *trial;
    char *text[2] = {NULL, NULL};
    BY_TRY(by_config_copy(&trial, theirs, error));
    by_status status = by_config_resolve(trial, error);
    if (status == BY_OK) {
        status = by_model_config_json(&text[0], &trial->model, -1, error);
    }
    if (status == BY_OK) {
        status = by__config_copy_value(trial, config, key, error);
    }
    *out = false;
    if (status == BY_OK && by_config_resolve(trial, NULL) == BY_OK) {
        status = by_model_config_json(&text[1], &trial->model, -1, error);
        *out = status == BY_OK && strcmp(text[0], text[1]) == 0;
    }
    free(text[0]);
    free(text[1]);
    by_config_close(&trial);
    return status;
}

static by_status refuse(const by_config *config, const by_config *theirs, const char *key,
                        by_error *error)
{
    by_string given = {0};
    by_string other = {0};
    by_config *own;
    BY_TRY(by_config_copy(&own, theirs, error));
    by_status status = by__config_copy_value(own, config, key, error);
    by__config_show(&given, own, key);
    by__config_show(&other, theirs, key);
    if (status == BY_OK) {
        status = by_string_check(&given, error);
    }
    if (status == BY_OK) {
        status = by_string_check(&other, error);
    }
    if (status == BY_OK) {
        bool derived = strcmp(other.data, "-1") == 0;
        status =
            given_otherwise(config, key, given.data, derived ? "the default" : other.data, error);
    }
    by_string_free(&given);
    by_string_free(&other);
    by_config_close(&own);
    return status;
}

/* Refuses keys that a file or an override sets and that the weights have otherwise. `theirs` is
 * resolved. */
static by_status check_keys(const by_config *config, const by_config *theirs, by_error *error)
{
    static const char *const sections[] = {"model",    "attention",  "values",
                                           "residual", "position",   "norm",
                                           "mlp",      "activation", "task"};
    const char *key;
    for (size_t s = 0; s < BY_ARRAY_LENGTH(sections); s++) {
        size_t at = 0;
        while ((key = by__config_next_given(&at, config, theirs, sections[s])) != NULL) {
            bool alike = may_set(config, theirs, key);
            if (!alike) {
                BY_TRY(is_alike(&alike, config, theirs, key, error));
            }
            if (!alike) {
                return refuse(config, theirs, key, error);
            }
        }
    }
    return BY_OK;
}

/* Takes what config.json says, and of what was given before what a run may set otherwise. */
static by_status inherit_config(by_config *config, const char *json, by_error *error)
{
    size_t at = 0;
    by_config *given;
    const char *from = config->model.from;
    BY_TRY(by_config_copy(&given, config, error));
    by_status status = by_model_config_from_json(&config->model, from, json, strlen(json), error);
    bool open = status == BY_OK && !is_scaled(config);
    int64_t context = config->model.context;
    const char *key = NULL;
    while (status == BY_OK && (key = by__config_next_given(&at, given, config, "model")) != NULL) {
        inherit_rule r = rule_of(key);
        bool grows = strcmp(key, "model.vocab") == 0 && may_grow(given, config);
        if (strcmp(key, "model.kind") != 0 &&
            (grows || r == RULE_FREE || (r == RULE_UNSCALED && open))) {
            status = by__config_copy_value(config, given, key, error);
        }
    }
    /* A scaling begins where the weights' context ends, however short the sequences are. */
    if (status == BY_OK && open && is_scaled(config) &&
        !by__config_is_given(config, "model.rope_original_context")) {
        by__config_derive(config, "model.rope_original_context", context);
    }
    if (status == BY_OK) {
        status = by__config_kind_found(config, error);
    }
    by_config_close(&given);
    return status;
}

/* Says that parameters which the weights lack can begin anew. */
static by_status hint_new(by_status status, by_error *error)
{
    char message[sizeof error->message];
    if (status == BY_EFORMAT && error != NULL && strstr(error->message, ": no tensor '") != NULL) {
        memcpy(message, error->message, sizeof message);
        (void)by_error_set(error, status,
                           "%.380s (a pattern of its name in model.new lets it begin anew)",
                           message);
    }
    return status;
}

/* Sets a config to what one that gives nothing but its kind has, which may derive sizes. */
static by_status make_plain(by_config *plain, const by_config *config, by_error *error)
{
    char setting[64];
    if (by__config_is_given(config, "model.kind")) {
        (void)snprintf(setting, sizeof setting, "model.kind=%s", config->model.kind);
        BY_TRY(by_config_set(plain, setting, error));
        (void)by_config_resolve(plain, NULL);
    }
    return BY_OK;
}

/* Refuses a config.json that contradicts the weights, and keys of the config that contradict
 * config.json. */
static by_status check_given(const by_config *config, const by_weights *weights, const char *json,
                             by_error *error)
{
    by_config *plain = NULL;
    by_config *theirs = NULL;
    by_status status = by__config_like(&plain, config, error);
    if (status == BY_OK) {
        status = make_plain(plain, config, error);
    }
    if (status == BY_OK) {
        status = by__config_like(&theirs, config, error);
    }
    if (status == BY_OK) {
        status = by_model_config_from_json(&theirs->model, config->model.from, json, strlen(json),
                                           error);
    }
    if (status == BY_OK) {
        status = check_written(config, &plain->model, theirs, error);
    }
    if (status == BY_OK) {
        status = by_config_resolve(theirs, error);
    }
    if (status == BY_OK) {
        status = check_keys(config, theirs, error);
    }
    if (status == BY_OK) {
        status = hint_new(
            by__export_check_shapes(theirs, weights, &config->model.new_parameters, error), error);
    }
    by_config_close(&plain);
    by_config_close(&theirs);
    return status;
}

/* With parameters that begin anew, the head may be another than that of the weights; whether all
 * others are there shows when they are loaded. */
static void keep_head(by_model_config *model, int64_t outputs, int64_t tied)
{
    if (model->new_parameters.count > 0) {
        model->outputs = outputs;
        model->tied = tied >= 0 ? tied : model->tied;
    }
}

/* Adapters are kept without the weights, whose positions would have to be interpolated again
 * wherever they are used. */
static by_status check_grid(const by_config *config, const char *json, by_error *error)
{
    by_config *theirs;
    by__nn_grid now = by__nn_model_grid(&config->model);
    if (now.name == NULL || config->lora.rank == 0) {
        return BY_OK;
    }
    BY_TRY(by__config_like(&theirs, config, error));
    by_status status =
        by_model_config_from_json(&theirs->model, config->model.from, json, strlen(json), error);
    by__nn_grid then = status == BY_OK ? by__nn_model_grid(&theirs->model) : now;
    by_config_close(&theirs);
    return status != BY_OK || (then.sides[0] == now.sides[0] && then.sides[1] == now.sides[1])
               ? status
               : by_error_set(error, BY_ECONFIG,
                              "model.image_height and model.image_width: with lora.rank, images "
                              "have the size of the weights of model.from=%s: leave both out, or "
                              "train all weights (lora.rank 0)",
                              config->model.from);
}

/* Sets the config's sizes from the directory to start from. */
static by_status inherit_directory(by_config *config, by_error *error)
{
    by_weights *weights;
    const int64_t outputs = config->model.outputs;
    const int64_t tied = config->model.tied;
    const char *from = config->model.from;
    BY_TRY(by_weights_open(&weights, from, error));
    const char *json = by_weights_config(weights);
    by_status status = json == NULL
                           ? by_error_set(error, BY_EFORMAT, "%s: there is no config.json", from)
                           : check_given(config, weights, json, error);
    if (status == BY_OK) {
        status = inherit_config(config, json, error);
        keep_head(&config->model, outputs, tied);
    }
    if (status == BY_OK) {
        status = check_grid(config, json, error);
    }
    by_weights_close(&weights);
    return status;
}

/* Replaces a run in model.from by its newest checkpoint, so that the new run tells which one it
 * started from. */
static by_status name_checkpoint(by_config *config, by_error *error)
{
    char *path;
    by_string setting = {0};
    BY_TRY(by__checkpoint_run(&path, config->model.from, error));
    if (path == NULL) {
        return BY_OK;
    }
    by__string_append(&setting, "model.from=");
    by_string_json(&setting, path, strlen(path));
    free(path);
    by_status status = setting.failed ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                                      : by_config_set(config, setting.data, error);
    by_string_free(&setting);
    return status;
}

by_status by_config_inherit_model(by_config *config, by_error *error)
{
    bool given = by__config_is_given(config, "model.context");
    int64_t context = given ? config->model.context : CONTEXT;
    if (config->model.from[0] != '\0') {
        if (!by__path_exists(config->model.from)) {
            return by_error_set(
                error, BY_ECONFIG, "%s: model.from: there is no file or directory %s",
                by__config_where(config, "model.from", "model.from"), config->model.from);
        }
        BY_TRY(name_checkpoint(config, error));
        BY_TRY(inherit_directory(config, error));
        /* Only with rotary positions may the context be shorter than the checkpoint's. */
        if (context < config->model.context && by_model_is_rotary(&config->model)) {
            config->model.context = context;
        }
    }
    BY_TRY(by__task_adapters_inherit(config, error));
    return by_config_resolve(config, error);
}
