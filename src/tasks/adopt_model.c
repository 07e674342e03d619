/* Takes the sizes of the model from the weights to start from (model.from). */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"
#include "config/kind.h"
#include "export/export.h"
#include "tasks/tasks.h"

/* Default length of a sequence, unless the config or a shorter context of the checkpoint sets it:
 * the context that a model supports for generation may be a hundred times too long for training. */
#define CONTEXT 1024

/* The error for a key of the config that contradicts the weights. A value equal to the default
 * counts as not given. */
static by_status given_otherwise(const by_config *config, const char *key, const char *given,
                                 const char *theirs, by_error *error)
{
    return by_error_set(error, BY_ECONFIG,
                        "model.%s is %s, but the weights of model.from=%s have %s: leave model.%s "
                        "out",
                        key, given, config->model.from, theirs, key);
}

/* `plain`: the section without the keys given by the config; `theirs`: the section of the
 * weights. */
static by_status check_overridden(const by_config *config, const by_model_config *plain,
                                  const by_model_config *theirs, by_error *error)
{
    const by_model_config *m = &config->model;
    const struct {
        const char *key;
        int64_t given, plain, theirs;
    } numbers[] = {
        {"layers", m->layers, plain->layers, theirs->layers},
        {"heads", m->heads, plain->heads, theirs->heads},
        {"width", m->width, plain->width, theirs->width},
        {"vocab", m->vocab, plain->vocab, theirs->vocab},
        /* With rotary positions the context may be shorter than the checkpoint's. */
        {"context",
         by_model_is_rotary(theirs) && m->context < theirs->context ? theirs->context : m->context,
         plain->context, theirs->context},
    };
    if (strcmp(m->kind, theirs->kind) != 0 && strcmp(m->kind, plain->kind) != 0) {
        return given_otherwise(config, "kind", m->kind, theirs->kind, error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(numbers); i++) {
        char text[2][24];
        if (numbers[i].given != numbers[i].theirs && numbers[i].given != numbers[i].plain) {
            (void)snprintf(text[0], sizeof text[0], "%lld", (long long)numbers[i].given);
            (void)snprintf(text[1], sizeof text[1], "%lld", (long long)numbers[i].theirs);
            return given_otherwise(config, numbers[i].key, text[0], text[1], error);
        }
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
        status = by__config_like(&theirs, config, error);
    }
    if (status == BY_OK) {
        status = by_model_config_from_json(&theirs->model, config->model.from, json, strlen(json),
                                           error);
    }
    if (status == BY_OK) {
        status = check_overridden(config, &plain->model, &theirs->model, error);
    }
    if (status == BY_OK) {
        status = by_config_resolve(theirs, error);
    }
    if (status == BY_OK) {
        status = by__export_check_shapes(theirs, weights, error);
    }
    by_config_close(&plain);
    by_config_close(&theirs);
    return status;
}

/* Sets the config's sizes from the directory to start from. */
static by_status adopt_model(by_config *config, by_error *error)
{
    by_weights *weights;
    const char *from = config->model.from;
    BY_TRY(by_weights_open(&weights, from, error));
    const char *json = by_weights_config(weights);
    by_status status = json == NULL
                           ? by_error_set(error, BY_EFORMAT, "%s: there is no config.json", from)
                           : check_given(config, weights, json, error);
    if (status == BY_OK) {
        status = by_model_config_from_json(&config->model, from, json, strlen(json), error);
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

by_status by_config_take_model(by_config *config, by_error *error)
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
        BY_TRY(adopt_model(config, error));
        /* Only with rotary positions may the context be shorter than the checkpoint's. */
        if (context < config->model.context && by_model_is_rotary(&config->model)) {
            config->model.context = context;
        }
    }
    BY_TRY(by__task_adapters_take(config, error));
    return by_config_resolve(config, error);
}
