/* Directories of adapters in PEFT's format, and weights with an adapter applied. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "checkpoint/weights/adapter.h"

#define PREFIX "base_model.model."
static const char a_end[] = ".lora_A.weight";
static const char b_end[] = ".lora_B.weight";

struct by_adapter {
    by__checkpoint_adapter_config config;
    by_weights *weights; /* with names that lack PREFIX */
    char *path;
    char **layers;
    size_t count;
};

/* Returns true if a tensor of this name belongs to an adapter. */
static bool is_of_adapter(const char *name)
{
    return by__ends_with(name, a_end) || by__ends_with(name, b_end);
}

bool by__checkpoint_adapter_is_in(const char *directory)
{
    char *path = by__path_join(directory, BY_ADAPTER_CONFIG);
    bool there = path != NULL && by__path_exists(path);
    free(path);
    return there;
}

/* ---- opening ---- */

static by_status read_config(by_adapter *a, const char *directory, by_error *error)
{
    char *text = NULL;
    size_t length;
    char *path;
    BY_TRY(by__path_make(&path, directory, BY_ADAPTER_CONFIG, error));
    by_status status = by__path_exists(path)
                           ? by__file_read(&text, &length, path, BY_MAX_JSON_BYTES, error)
                           : by_error_set(error, BY_EIO,
                                          "%s: there is no %s: give a directory written by PEFT's "
                                          "save_pretrained or by a run with the section lora",
                                          directory, BY_ADAPTER_CONFIG);
    if (status == BY_OK) {
        status = by__checkpoint_adapter_config_parse(&a->config, path, text, length, error);
    }
    free(text);
    free(path);
    return status;
}

static by_status open_weights(by_adapter *a, const char *directory, by_error *error)
{
    char *path;
    BY_TRY(by__path_make(&path, directory, BY_ADAPTER_WEIGHTS, error));
    by_status status =
        by__path_exists(path)
            ? by_weights_open(&a->weights, path, error)
            : by_error_set(error, BY_EIO, "%s: there is no %s (adapter_model.bin is not read)",
                           directory, BY_ADAPTER_WEIGHTS);
    free(path);
    return status == BY_OK ? by__weights_strip(a->weights, PREFIX, error) : status;
}

/* Finds a float matrix of an adapter. */
static by_status find_matrix(by_tensor_view *out, const by_adapter *a, const char *layer,
                             const char *end, by_error *error)
{
    char name[512];
    (void)snprintf(name, sizeof name, "%.400s%s", layer, end);
    BY_TRY(by__weights_describe(a->weights, name, out, error));
    return out->rank == 2 && by_dtype_is_float(out->dtype)
               ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "%s: '%.300s' is not a matrix of floating-point numbers", a->path,
                              name);
}

static by_status check_layer(const by_adapter *a, const char *layer, by_error *error)
{
    by_tensor_view left;
    by_tensor_view right;
    int64_t rank = a->config.info.rank;
    BY_TRY(find_matrix(&left, a, layer, a_end, error));
    BY_TRY(find_matrix(&right, a, layer, b_end, error));
    if (left.shape[0] != rank || right.shape[1] != rank || left.shape[1] < 1 ||
        right.shape[0] < 1) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: the adapter of '%.200s' has %lld x %lld and %lld x %lld; expected "
                            "%lld rows and columns, the \"r\" of %s",
                            a->path, layer, (long long)left.shape[0], (long long)left.shape[1],
                            (long long)right.shape[0], (long long)right.shape[1], (long long)rank,
                            BY_ADAPTER_CONFIG);
    }
    return BY_OK;
}

/* Checks that every tensor is one half of an adapter or a parameter. */
static by_status check_tensors(const by_adapter *a, by_error *error)
{
    for (size_t i = 0; i < by_weights_count(a->weights); i++) {
        const char *name = by_weights_name(a->weights, i);
        bool odd = strstr(name, "lora_") != NULL || strstr(name, ".modules_to_save.") != NULL;
        if (odd && !is_of_adapter(name)) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: tensor '%.200s' belongs to a feature of PEFT that is not "
                                "supported here",
                                a->path, name);
        }
    }
    return BY_OK;
}

/* Lists the layers; each must have both halves. */
static by_status list_layers(by_adapter *a, by_error *error)
{
    size_t tensors = by_weights_count(a->weights);
    BY_TRY(by__alloc((void **)&a->layers, tensors + 1, sizeof *a->layers, "adapters", error));
    for (size_t i = 0; i < tensors; i++) {
        const char *name = by_weights_name(a->weights, i);
        if (!is_of_adapter(name)) {
            continue;
        }
        char *layer = by__strndup(name, strlen(name) - (sizeof a_end - 1));
        if (layer == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: adapters");
        }
        by_status status = check_layer(a, layer, error);
        if (status == BY_OK && by__ends_with(name, a_end)) {
            a->layers[a->count++] = layer;
        } else {
            free(layer);
        }
        BY_TRY(status);
    }
    return a->count > 0 ? BY_OK
                        : by_error_set(error, BY_EFORMAT, "%s: %s contains no adapter", a->path,
                                       BY_ADAPTER_WEIGHTS);
}

by_status by_adapter_open(by_adapter **out, const char *directory, by_error *error)
{
    by_adapter *a;
    BY_TRY(by__alloc((void **)&a, 1, sizeof *a, "adapters", error));
    a->path = by__strdup(directory);
    by_status status =
        a->path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path") : BY_OK;
    if (status == BY_OK) {
        status = read_config(a, directory, error);
    }
    if (status == BY_OK) {
        status = open_weights(a, directory, error);
    }
    if (status == BY_OK) {
        status = check_tensors(a, error);
    }
    if (status == BY_OK) {
        status = list_layers(a, error);
    }
    if (status != BY_OK) {
        by_adapter_close(&a);
        return status;
    }
    *out = a;
    return BY_OK;
}

void by_adapter_close(by_adapter **adapter)
{
    by_adapter *a = *adapter;
    if (a != NULL) {
        for (size_t i = 0; i < a->count; i++) {
            free(a->layers[i]);
        }
        free(a->layers);
        by_weights_close(&a->weights);
        by__checkpoint_adapter_config_free(&a->config);
        free(a->path);
        free(a);
        *adapter = NULL;
    }
}

const by_adapter_info *by_adapter_describe(const by_adapter *adapter)
{
    return &adapter->config.info;
}

size_t by_adapter_layers(const by_adapter *adapter)
{
    return adapter->count;
}

const char *by_adapter_layer(const by_adapter *adapter, size_t i)
{
    return adapter->layers[i];
}

const by_weights *by_adapter_weights(const by_adapter *adapter)
{
    return adapter->weights;
}

/* ---- weights with an adapter ---- */

/* The weights' tensor that an adapter calls `name`: with or without the part before its first dot
 * ("transformer.", "model."), which depends on the class that was saved. NULL: none. */
static const by__checkpoint_tensor_entry *find_entry(const by_weights *weights, const char *name)
{
    const char *dot = strchr(name, '.');
    const by__checkpoint_tensor_entry *found = by__weights_find(weights, name);
    found = found == NULL && dot != NULL ? by__weights_find(weights, dot + 1) : found;
    for (size_t i = 0; i < by_weights_count(weights) && found == NULL; i++) {
        const char *have = by_weights_name(weights, i);
        const char *rest = strchr(have, '.');
        bool longer = rest != NULL && strcmp(rest + 1, name) == 0;
        found = longer ? by__weights_entry(weights, i) : NULL;
    }
    return found;
}

static by_status read_matrix(float **out, const by_adapter *a, const char *layer, const char *end,
                             by_error *error)
{
    by_tensor_view view;
    size_t count;
    BY_TRY(find_matrix(&view, a, layer, end, error));
    BY_TRY(by_tensor_size(&view, &count, NULL, error));
    float *values;
    BY_TRY(by__alloc((void **)&values, count, sizeof *values, "an adapter", error));
    by_tensor_slice whole = by_tensor_whole(&view);
    by_status status = by_weights_read_f32(a->weights, view.name, &whole, values, count, error);
    if (status != BY_OK) {
        free(values);
        return status;
    }
    *out = values;
    return BY_OK;
}

static by_status refuse_shape(const by_adapter *a, const char *layer,
                              const by__checkpoint_tensor_entry *base, int64_t in, int64_t out,
                              by_error *error)
{
    return by_error_set(error, BY_EFORMAT,
                        "%s: the adapter of '%.150s' is for a weight of %lld inputs and %lld "
                        "outputs, %s; '%.150s' is %lld x %lld",
                        a->path, layer, (long long)in, (long long)out,
                        a->config.info.in_out ? "[in, out]" : "[out, in]", base->name,
                        (long long)base->shape[0], (long long)base->shape[1]);
}

/* Whether a weight is stored as [in, out], by the type of its model: only transformers' Conv1D is.
 * Returns -1 if config.json names no type. */
static int is_in_out(const by_weights *weights, const char *name)
{
    static const char *const types[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"};
    static const char *const ends[] = {".c_attn.weight", ".q_attn.weight", ".c_proj.weight",
                                       ".c_fc.weight"};
    json_t *root = by__json_read(by_weights_config(weights), 0, NULL);
    const char *type = json_string_value(json_object_get(root, "model_type"));
    bool of_type = false;
    bool of_layer = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types) && type != NULL; i++) {
        of_type = of_type || strcmp(types[i], type) == 0;
        of_layer = of_layer || by__ends_with(name, ends[i]);
    }
    int found = type == NULL ? -1 : of_type && of_layer;
    json_decref(root);
    return found;
}

/* Checks "fan_in_fan_out" with what the model's type says of a weight: a square matrix does not
 * show how it is stored. */
static by_status check_orientation(const by_weights *weights, const by_adapter *a,
                                   const by__checkpoint_tensor_entry *base, by_error *error)
{
    int found = is_in_out(weights, base->name);
    bool in_out = found == 1;
    return found < 0 || in_out == a->config.info.in_out
               ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "%s: \"fan_in_fan_out\" is %s in %s, but '%.150s' of the model is "
                              "[%s]: set it to %s",
                              a->path, in_out ? "false" : "true", BY_ADAPTER_CONFIG, base->name,
                              in_out ? "in, out" : "out, in", in_out ? "true" : "false");
}

/* Opens the product that is added to the weight of a layer. */
static by_status open_delta(by__checkpoint_delta **delta, const by__checkpoint_tensor_entry **found,
                            const by_weights *weights, const by_adapter *a, const char *layer,
                            by_error *error)
{
    char name[512];
    by_tensor_view left;
    by_tensor_view right;
    float *values[2] = {NULL, NULL};
    const by_adapter_info *info = &a->config.info;
    (void)snprintf(name, sizeof name, "%.400s.weight", layer);
    const by__checkpoint_tensor_entry *base = find_entry(weights, name);
    if (base == NULL || base->dtype < 0 || !by_dtype_is_float((by_dtype)base->dtype)) {
        return by_error_set(error, BY_EFORMAT, "%s has an adapter of '%.200s', which %s lacks",
                            a->path, layer, by_weights_path(weights));
    }
    BY_TRY(find_matrix(&left, a, layer, a_end, error));
    BY_TRY(find_matrix(&right, a, layer, b_end, error));
    int64_t in = left.shape[1];
    int64_t out = right.shape[0];
    if (base->rank != 2 || base->shape[0] != (info->in_out ? in : out) ||
        base->shape[1] != (info->in_out ? out : in)) {
        return refuse_shape(a, layer, base, in, out, error);
    }
    BY_TRY(base->shape[0] == base->shape[1] ? check_orientation(weights, a, base, error) : BY_OK);
    by_status status = read_matrix(&values[0], a, layer, a_end, error);
    if (status == BY_OK) {
        status = read_matrix(&values[1], a, layer, b_end, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_delta_open(delta, base, values[0], values[1], info->rank,
                                           by_adapter_scale(info), info->in_out, error);
    }
    free(values[0]);
    free(values[1]);
    *found = base;
    return status;
}

/* Replaces the tensors that were trained in addition to the adapter. */
static by_status replace_parameters(by_weights *weights, const by_adapter *a, by_error *error)
{
    for (size_t i = 0; i < by_weights_count(a->weights); i++) {
        const by__checkpoint_tensor_entry *own = by__weights_entry(a->weights, i);
        if (is_of_adapter(own->name)) {
            continue;
        }
        const by__checkpoint_tensor_entry *base = find_entry(weights, own->name);
        bool fits = base != NULL && base->rank == own->rank &&
                    memcmp(base->shape, own->shape, sizeof own->shape) == 0;
        if (!fits) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: %s lacks '%.200s' in the shape of the adapter", a->path,
                                by_weights_path(weights), own->name);
        }
        by__weights_replace(weights, base, own);
    }
    return BY_OK;
}

by_status by_weights_adapt(by_weights *weights, by_adapter **adapter, bool same_types,
                           by_error *error)
{
    by_adapter *a = *adapter;
    *adapter = NULL;
    by_status status = by__weights_own_adapter(weights, a, error);
    if (status != BY_OK) {
        by_adapter_close(&a);
        return status;
    }
    by__weights_hide(weights, is_of_adapter);
    for (size_t i = 0; i < a->count; i++) {
        by__checkpoint_delta *delta;
        const by__checkpoint_tensor_entry *base;
        BY_TRY(open_delta(&delta, &base, weights, a, a->layers[i], error));
        by__weights_add(weights, base, delta, same_types ? (by_dtype)base->dtype : BY_F32);
    }
    return replace_parameters(weights, a, error);
}
