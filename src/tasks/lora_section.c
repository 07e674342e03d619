/* The section lora, taken from the adapters to start from; names of adapters. */
#include <stdlib.h>
#include <string.h>

#include "banyan/adapter.h"
#include "tasks/tasks.h"

bool by__task_is_adapter(const char *name)
{
    return strstr(name, ".lora_A.") != NULL || strstr(name, ".lora_B.") != NULL;
}

static by_status given_otherwise(const by_config *config, const char *key, by_error *error)
{
    return by_error_set(error, BY_ECONFIG,
                        "lora.%s is not that of the adapters of lora.from=%s: leave lora.%s out",
                        key, config->lora.from, key);
}

/* Sets a key to a list of names, "KEY=[...]", without the family's prefix. */
static by_status set_list(by_config *config, const char *key, const char *const *names,
                          size_t count, by_error *error)
{
    by_string text = {0};
    char *assignment;
    const char *prefix = by_model_name_prefix(&config->model);
    size_t length = prefix == NULL ? 0 : strlen(prefix);
    by_string_format(&text, "%s=[", key);
    for (size_t i = 0; i < count; i++) {
        bool has = length > 0 && strncmp(names[i], prefix, length) == 0;
        const char *name = names[i] + (has ? length : 0);
        by__string_append(&text, i == 0 ? "" : ", ");
        by_string_json(&text, name, strlen(name));
    }
    by__string_append(&text, "]");
    BY_TRY(by__string_release(&text, &assignment, error));
    by_status status = by_config_set(config, assignment, error);
    free(assignment);
    return status;
}

/* Sets a list of the section from the adapters, unless the config has a different one. */
static by_status inherit_list(by_config *config, by_string_list *list, const char *key,
                              const char *const *names, size_t count, by_error *error)
{
    char path[64];
    by_config *theirs = NULL;
    (void)snprintf(path, sizeof path, "lora.%s", key);
    BY_TRY(by_config_copy(&theirs, config, error));
    by_status status = set_list(theirs, path, names, count, error);
    const by_string_list *want =
        list == &config->lora.targets ? &theirs->lora.targets : &theirs->lora.train_also;
    bool same = status == BY_OK && want->count == list->count;
    for (size_t i = 0; same && i < want->count; i++) {
        same = strcmp(want->items[i], list->items[i]) == 0;
    }
    by_config_close(&theirs);
    BY_TRY(status);
    if (list->count > 0 && !same) {
        return given_otherwise(config, key, error);
    }
    return set_list(config, path, names, count, error);
}

static by_status inherit_lists(by_config *config, const by_adapter *adapter, by_error *error)
{
    const by_weights *weights = by_adapter_weights(adapter);
    size_t count = by_weights_count(weights);
    size_t layers = by_adapter_layers(adapter);
    size_t also = 0;
    const char **names;
    BY_TRY(by__alloc((void **)&names, count + layers, sizeof *names, "adapters", error));
    for (size_t i = 0; i < layers; i++) {
        names[i] = by_adapter_layer(adapter, i);
    }
    by_status status = inherit_list(config, &config->lora.targets, "targets", names, layers, error);
    for (size_t i = 0; i < count; i++) {
        if (!by__task_is_adapter(by_weights_name(weights, i))) {
            names[also++] = by_weights_name(weights, i);
        }
    }
    if (status == BY_OK) {
        status = inherit_list(config, &config->lora.train_also, "train_also", names, also, error);
    }
    free(names);
    return status;
}

static by_status inherit_numbers(by_config *config, const by_adapter_info *info, by_error *error)
{
    by_lora_config *lora = &config->lora;
    if (lora->rank != 0 && lora->rank != info->rank) {
        return given_otherwise(config, "rank", error);
    }
    if (lora->alpha != -1.0 && lora->alpha != info->alpha) {
        return given_otherwise(config, "alpha", error);
    }
    if (lora->rslora == 1 && !info->rslora) {
        return given_otherwise(config, "rslora", error);
    }
    lora->rank = info->rank;
    lora->alpha = info->alpha;
    lora->rslora = info->rslora ? 1 : 0;
    return BY_OK;
}

by_status by__task_adapters_inherit(by_config *config, by_error *error)
{
    by_adapter *adapter;
    if (config->lora.from[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by_adapter_open(&adapter, config->lora.from, error));
    by_status status = inherit_numbers(config, by_adapter_describe(adapter), error);
    if (status == BY_OK) {
        status = inherit_lists(config, adapter, error);
    }
    by_adapter_close(&adapter);
    return status;
}
