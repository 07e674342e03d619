/* adapter_config.json of PEFT's LoRA. Unsupported features must be off in the file, so that an
 * adapter is either applied as PEFT would or refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/weights/adapter.h"

#define MAX_RANK (1 << 16)

double by_adapter_scale(const by_adapter_info *info)
{
    double rank = (double)info->rank;
    return info->alpha / (info->rslora ? sqrt(rank) : rank);
}

/* Keys that do not affect what an adapter computes: its origin, the layers that have one (the
 * tensors tell), and details of features whose own key is checked. */
static const char *const ignored[] = {
    "auto_mapping",      "base_model_name_or_path",
    "revision",          "inference_mode",
    "task_type",         "peft_version",
    "target_modules",    "exclude_modules",
    "modules_to_save",   "layers_to_transform",
    "layers_pattern",    "megatron_core",
    "lora_dropout",      "qalora_group_size",
    "peft_type",         "r",
    "lora_alpha",        "use_rslora",
    "fan_in_fan_out",    "bias",
    "init_lora_weights", "ensure_weight_tying",
};

static bool is_ignored(const char *key)
{
    bool found = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ignored) && !found; i++) {
        found = strcmp(ignored[i], key) == 0;
    }
    return found;
}

/* Returns true for a feature that is off: null, false, 0, "", {} and []. */
static bool is_off(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_integer(value) && json_integer_value(value) == 0);
}

/* Returns true for initializations that leave the model's own weights unchanged. The others (PiSSA,
 * OLoRA, CorDA, LoftQ, LoRA-GA) move a part of W into the adapter, which then belongs to a
 * different W. */
static bool leaves_weights(const json_t *value)
{
    static const char *const names[] = {"gaussian", "orthogonal", "eva"};
    bool fine = value == NULL || json_is_boolean(value) || json_is_null(value);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names) && json_is_string(value); i++) {
        fine = fine || strcmp(json_string_value(value), names[i]) == 0;
    }
    return fine;
}

static by_status check_features(const char *path, json_t *root, by_error *error)
{
    const char *type = json_string_value(json_object_get(root, "peft_type"));
    const json_t *bias = json_object_get(root, "bias");
    if (type == NULL || strcmp(type, "LORA") != 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"peft_type\" is \"%.60s\"; only \"LORA\" is supported", path,
                            type == NULL ? "(missing)" : type);
    }
    if (bias != NULL && !(json_is_string(bias) && strcmp(json_string_value(bias), "none") == 0)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"bias\" is \"%.60s\"; only \"none\" is supported", path,
                            json_is_string(bias) ? json_string_value(bias) : "(not a string)");
    }
    const json_t *start = json_object_get(root, "init_lora_weights");
    if (!leaves_weights(start)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"init_lora_weights\" is \"%.60s\", which has changed the model's "
                            "own weights; convert the adapter with PEFT (path_initial_model_for_"
                            "weight_conversion)",
                            path, json_is_string(start) ? json_string_value(start) : "(odd)");
    }
    for (void *i = json_object_iter(root); i != NULL; i = json_object_iter_next(root, i)) {
        const char *key = json_object_iter_key(i);
        if (!is_ignored(key) && !is_off(json_object_iter_value(i))) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: \"%.60s\" is set, a feature of PEFT that is not supported "
                                "here",
                                path, key);
        }
    }
    return BY_OK;
}

/* Reads an optional boolean. */
static by_status read_switch(bool *out, const char *path, const json_t *root, const char *key,
                             by_error *error)
{
    const json_t *value = json_object_get(root, key);
    *out = json_is_true(value);
    return value == NULL || json_is_null(value) || json_is_boolean(value)
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: \"%s\" is neither true nor false", path, key);
}

static by_status read_text(char **out, const json_t *root, const char *key, by_error *error)
{
    const char *text = json_string_value(json_object_get(root, key));
    *out = by__strdup(text == NULL ? "" : text);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: %s", key) : BY_OK;
}

static by_status read_root(by__checkpoint_adapter_config *out, const char *path, json_t *root,
                           by_error *error)
{
    const json_t *rank = json_object_get(root, "r");
    const json_t *alpha = json_object_get(root, "lora_alpha");
    const json_t *dropout = json_object_get(root, "lora_dropout");
    by_adapter_info *info = &out->info;
    BY_TRY(check_features(path, root, error));
    if (!json_is_integer(rank) || json_integer_value(rank) < 1 ||
        json_integer_value(rank) > MAX_RANK) {
        return by_error_set(error, BY_EFORMAT, "%s: \"r\" is not a whole number from 1 to %d", path,
                            MAX_RANK);
    }
    if (!json_is_number(alpha) || !(json_number_value(alpha) > 0.0) ||
        !(json_number_value(alpha) <= 1e6)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"lora_alpha\" is not a number above 0, 1e6 at most", path);
    }
    if (dropout != NULL && !json_is_null(dropout) &&
        !(json_number_value(dropout) >= 0.0 && json_number_value(dropout) < 1.0)) {
        return by_error_set(error, BY_EFORMAT, "%s: \"lora_dropout\" is not in [0, 1)", path);
    }
    info->rank = json_integer_value(rank);
    info->alpha = json_number_value(alpha);
    info->dropout = json_number_value(dropout);
    BY_TRY(read_switch(&info->rslora, path, root, "use_rslora", error));
    BY_TRY(read_switch(&info->in_out, path, root, "fan_in_fan_out", error));
    BY_TRY(read_text(&out->base, root, "base_model_name_or_path", error));
    BY_TRY(read_text(&out->task, root, "task_type", error));
    info->base = out->base;
    info->task = out->task;
    return BY_OK;
}

by_status by__checkpoint_adapter_config_parse(by__checkpoint_adapter_config *out, const char *path,
                                              const char *text, size_t length, by_error *error)
{
    json_error_t where;
    json_t *root = by_json_load(text, length, JSON_REJECT_DUPLICATES, &where);
    by__checkpoint_adapter_config config = {0};
    if (!json_is_object(root)) {
        bool is_json = root != NULL;
        json_decref(root);
        return is_json ? by_error_set(error, BY_EFORMAT, "%s: expected an object {...}", path)
                       : by_error_set(error, BY_EFORMAT, "%s:%d: not JSON: %s", path, where.line,
                                      where.text);
    }
    by_status status = read_root(&config, path, root, error);
    json_decref(root);
    if (status != BY_OK) {
        by__checkpoint_adapter_config_free(&config);
        return status;
    }
    *out = config;
    return BY_OK;
}

void by__checkpoint_adapter_config_free(by__checkpoint_adapter_config *config)
{
    free(config->base);
    free(config->task);
    *config = (by__checkpoint_adapter_config){0};
}

/* A list of names; null if there are none. */
static json_t *names_of(const char *const *names, size_t count)
{
    json_t *list = count == 0 ? json_null() : json_array();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_string(names[i]));
    }
    return list;
}

static json_t *text_or_null(const char *text)
{
    return text == NULL || text[0] == '\0' ? json_null() : json_string(text);
}

by_status by_adapter_config_json(char **out, const by_adapter_info *info, by_error *error)
{
    json_t *root = json_object();
    double whole = floor(info->alpha);
    (void)json_object_set_new(root, "peft_type", json_string("LORA"));
    (void)json_object_set_new(root, "task_type", text_or_null(info->task));
    (void)json_object_set_new(root, "base_model_name_or_path", text_or_null(info->base));
    (void)json_object_set_new(root, "inference_mode", json_true());
    (void)json_object_set_new(root, "r", json_integer(info->rank));
    (void)json_object_set_new(root, "lora_alpha",
                              whole == info->alpha ? json_integer((json_int_t)whole)
                                                   : json_real(info->alpha));
    (void)json_object_set_new(root, "lora_dropout", json_real(info->dropout));
    (void)json_object_set_new(root, "use_rslora", json_boolean(info->rslora));
    (void)json_object_set_new(root, "fan_in_fan_out", json_boolean(info->in_out));
    (void)json_object_set_new(root, "bias", json_string("none"));
    (void)json_object_set_new(root, "init_lora_weights", json_true());
    (void)json_object_set_new(root, "target_modules", names_of(info->targets, info->target_count));
    (void)json_object_set_new(root, "modules_to_save", names_of(info->also, info->also_count));
    char *text = root == NULL ? NULL : by__json_dump(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    if (text == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: " BY_ADAPTER_CONFIG);
    }
    *out = text;
    return BY_OK;
}
