/* Training of adapters (section lora) instead of the model's weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/adapter.h"
#include "train/train.h"

bool by__is_adapter(const char *name)
{
    return strstr(name, ".lora_A.") != NULL || strstr(name, ".lora_B.") != NULL;
}

bool by__has_adapters(const by_weights *weights)
{
    bool any = false;
    for (size_t i = 0; i < by_weights_count(weights) && !any; i++) {
        any = by__is_adapter(by_weights_name(weights, i));
    }
    return any;
}

/* The default layers of the family, e.g. "q_proj v_proj", as a list. The pointers point into
 * *words, freed with free(). */
#define ADAPTED 8
static by_status default_targets(const char *out[ADAPTED], size_t *count, char **words,
                                 const by_config *config, by_error *error)
{
    const char *adapted = by_model_adapted(&config->model);
    char *rest = NULL;
    if (adapted == NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "lora.targets is empty, and model.kind %s has no default layers for "
                            "adapters: name some, or all-linear",
                            config->model.kind);
    }
    *words = by__strdup(adapted);
    if (*words == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: adapters");
    }
    *count = 0;
    for (char *word = strtok_r(*words, " ", &rest); word != NULL && *count < ADAPTED;
         word = strtok_r(NULL, " ", &rest)) {
        out[(*count)++] = word;
    }
    return BY_OK;
}

/* An embedding that is also the head is two modules in other programs, only one of which is in
 * files; and a head's name lacks the prefix of the family's other names. */
static by_status check_head(const by_graph *graph, const by_model *model, const by_config *config,
                            by_error *error)
{
    const by__graph_value *head = model->head == BY_NONE ? NULL : &graph->values[model->head];
    bool read = by_model_name_prefix(&config->model) != NULL;
    if (head == NULL || head->frozen) {
        return BY_OK;
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        for (int i = 0; i < graph->nodes[n].input_count; i++) {
            read = read || graph->nodes[n].in[i] == model->head;
        }
    }
    return read ? by_error_set(error, BY_ECONFIG,
                               "lora.train_also matches %s, the head%s: files of adapters cannot "
                               "hold that; leave it out",
                               head->name, config->model.tied == 1 ? ", tied to the embedding" : "")
                : BY_OK;
}

static by_status check_trained(const by_graph *graph, by_error *error)
{
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        if (value->role == BY_ROLE_PARAMETER && value->frozen && by__is_adapter(value->name)) {
            return by_error_set(error, BY_ECONFIG,
                                "optimizer.groups freezes %s, but adapters are trained; leave out "
                                "lora or the group",
                                value->name);
        }
    }
    return BY_OK;
}

/* alpha / rank, or alpha / sqrt(rank). */
static float scale_of(const by_lora_config *lora)
{
    double rank = (double)lora->rank;
    return (float)(lora->alpha / (lora->rslora == 1 ? sqrt(rank) : rank));
}

by_status by__adapters_apply(by_graph *graph, by_model *model, const by_config *config,
                             by_model_mode mode, by_error *error)
{
    const by_lora_config *lora = &config->lora;
    const char *defaults[ADAPTED];
    char *words = NULL;
    if (lora->rank == 0) {
        return BY_OK;
    }
    by_lora_options options = {.rank = lora->rank,
                               .scale = scale_of(lora),
                               .dropout = (float)lora->dropout,
                               .rng = BY_NONE,
                               .head = model->head,
                               .targets = (const char *const *)lora->targets.items,
                               .target_count = lora->targets.count,
                               .train_also = (const char *const *)lora->train_also.items,
                               .train_also_count = lora->train_also.count};
    if (options.target_count == 0) {
        BY_TRY(default_targets(defaults, &options.target_count, &words, config, error));
        options.targets = defaults;
    }
    if (mode == BY_MODEL_TRAIN && lora->dropout > 0.0) {
        model->rng =
            model->rng != BY_NONE ? model->rng : by_graph_input(graph, "rng", BY_I32, BY_SHAPE(4));
        options.rng = model->rng;
    }
    by_status status = by_pass_lora(graph, &options, error);
    free(words);
    return status == BY_OK ? check_head(graph, model, config, error) : status;
}

by_status by__adapters_check(const by_graph *graph, const by_config *config, by_error *error)
{
    return config->lora.rank == 0 ? BY_OK : check_trained(graph, error);
}

/* ---- files of a run ---- */

const char *by__adapters_prefix(const by_config *config)
{
    const char *family = by_model_name_prefix(&config->model);
    return family != NULL && strcmp(family, "transformer.") == 0 ? "base_model.model.transformer."
                                                                 : "base_model.model.";
}

/* A set of module names. */
typedef struct modules {
    char **items;
    size_t count;
    size_t capacity;
} modules;

static void free_modules(modules *m)
{
    by__names_free(m->items, m->count);
    *m = (modules){0};
}

/* Adds the first `length` bytes of a parameter's name, after the family's prefix. */
static by_status add_module(modules *m, const char *prefix, const char *name, size_t length,
                            by_error *error)
{
    by__text text = {0};
    char *full;
    by__text_add(&text, prefix == NULL ? "" : prefix);
    by__text_add_bytes(&text, name, length);
    BY_TRY(by__text_take(&text, &full, error));
    for (size_t i = 0; i < m->count; i++) {
        if (strcmp(m->items[i], full) == 0) {
            free(full);
            return BY_OK;
        }
    }
    by_status status =
        by__reserve((void **)&m->items, &m->capacity, m->count + 1, sizeof *m->items, error);
    if (status != BY_OK) {
        free(full);
        return status;
    }
    m->items[m->count++] = full;
    return BY_OK;
}

/* Lists the adapted layers, and the modules that are trained in addition. */
static by_status list_modules(modules *layers, modules *also, const by_graph *graph,
                              const by_config *config, by_error *error)
{
    const char *prefix = by_model_name_prefix(&config->model);
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        if (value->role != BY_ROLE_PARAMETER || value->frozen) {
            continue;
        }
        const char *half = strstr(value->name, ".lora_A.");
        const char *dot = strrchr(value->name, '.');
        if (half != NULL) {
            BY_TRY(add_module(layers, prefix, value->name, (size_t)(half - value->name), error));
        } else if (!by__is_adapter(value->name)) {
            size_t length = dot == NULL ? strlen(value->name) : (size_t)(dot - value->name);
            BY_TRY(add_module(also, prefix, value->name, length, error));
        }
    }
    return BY_OK;
}

/* Returns true if the weights of the adapted layers are [in, out], which is the same for all layers
 * of a family. */
static bool is_in_out(const by_graph *graph)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        by__graph_node *node = &graph->nodes[n];
        const by__op_row *row = by__op_row_of(node->op);
        const by__graph_value *weight =
            row->transposed == NULL ? NULL : &graph->values[node->in[row->weight]];
        if (weight != NULL && weight->role == BY_ROLE_PARAMETER && weight->frozen) {
            return !*(bool *)by__attr_field(&node->attrs, row->transposed);
        }
    }
    return false;
}

/* Returns true if PEFT interprets the targets as we do: ends of names without patterns. */
static bool are_plain(const by_string_list *targets)
{
    bool plain = targets->count > 0;
    for (size_t i = 0; i < targets->count; i++) {
        plain = plain && strpbrk(targets->items[i], "*?[\\") == NULL &&
                strcmp(targets->items[i], "all-linear") != 0;
    }
    return plain;
}

static by_status describe(char **out, const by_graph *graph, const by_config *config,
                          by_error *error)
{
    const by_lora_config *lora = &config->lora;
    modules layers = {0};
    modules also = {0};
    by_status status = list_modules(&layers, &also, graph, config, error);
    if (status == BY_OK) {
        bool plain = are_plain(&lora->targets);
        const by_adapter_info info = {
            .rank = lora->rank,
            .alpha = lora->alpha,
            .rslora = lora->rslora == 1,
            .dropout = lora->dropout,
            .in_out = is_in_out(graph),
            .base = config->model.from,
            .task = strcmp(config->task.kind, "language") == 0 ? "CAUSAL_LM" : "",
            .targets = (const char *const *)(plain ? lora->targets.items : layers.items),
            .target_count = plain ? lora->targets.count : layers.count,
            .also = (const char *const *)also.items,
            .also_count = also.count};
        status = by_adapter_config_json(out, &info, error);
    }
    free_modules(&layers);
    free_modules(&also);
    return status;
}

by_status by__adapters_describe(char **out, const by_config *config, const by__recipe *recipe,
                                by_error *error)
{
    by_graph *graph;
    by_model model;
    BY_TRY(by__train_forward(&graph, &model, config, recipe, BY_MODEL_LOSS, error));
    by_status status = describe(out, graph, config, error);
    by_graph_close(&graph);
    return status;
}

/* ---- adapters to start from ---- */

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
    by__text text = {0};
    char *assignment;
    const char *prefix = by_model_name_prefix(&config->model);
    size_t length = prefix == NULL ? 0 : strlen(prefix);
    by__text_format(&text, "%s=[", key);
    for (size_t i = 0; i < count; i++) {
        bool has = length > 0 && strncmp(names[i], prefix, length) == 0;
        const char *name = names[i] + (has ? length : 0);
        by__text_add(&text, i == 0 ? "" : ", ");
        by__text_json(&text, name, strlen(name));
    }
    by__text_add(&text, "]");
    BY_TRY(by__text_take(&text, &assignment, error));
    by_status status = by_config_set(config, assignment, error);
    free(assignment);
    return status;
}

/* Sets a list of the section from the adapters, unless the config has a different one. */
static by_status take_list(by_config *config, by_string_list *list, const char *key,
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

static by_status take_lists(by_config *config, const by_adapter *adapter, by_error *error)
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
    by_status status = take_list(config, &config->lora.targets, "targets", names, layers, error);
    for (size_t i = 0; i < count; i++) {
        if (!by__is_adapter(by_weights_name(weights, i))) {
            names[also++] = by_weights_name(weights, i);
        }
    }
    if (status == BY_OK) {
        status = take_list(config, &config->lora.train_also, "train_also", names, also, error);
    }
    free(names);
    return status;
}

static by_status take_numbers(by_config *config, const by_adapter_info *info, by_error *error)
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

by_status by__adapters_take(by_config *config, by_error *error)
{
    by_adapter *adapter;
    if (config->lora.from[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by_adapter_open(&adapter, config->lora.from, error));
    by_status status = take_numbers(config, by_adapter_describe(adapter), error);
    if (status == BY_OK) {
        status = take_lists(config, adapter, error);
    }
    by_adapter_close(&adapter);
    return status;
}

/* Checks that every tensor of the adapters is a parameter. */
static by_status check_names(const by_weights *weights, const by_graph *graph,
                             const by_config *config, by_error *error)
{
    const char *prefix = by_model_name_prefix(&config->model);
    size_t length = prefix == NULL ? 0 : strlen(prefix);
    for (size_t i = 0; i < by_weights_count(weights); i++) {
        const char *name = by_weights_name(weights, i);
        bool has = length > 0 && strncmp(name, prefix, length) == 0;
        if (by_graph_find(graph, name + (has ? length : 0)) == BY_NONE) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: '%.200s' is no parameter of model.kind %s under that name; "
                                "adapters to train on are those of the whole model with its head",
                                config->lora.from, name, config->model.kind);
        }
    }
    return BY_OK;
}

by_status by__adapters_load(by_trainer *trainer, const by_config *config, const by__recipe *recipe,
                            by_error *error)
{
    by_adapter *adapter;
    by_graph *graph;
    by_model model;
    if (config->lora.from[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by__train_forward(&graph, &model, config, recipe, BY_MODEL_LOSS, error));
    by_status status = by_adapter_open(&adapter, config->lora.from, error);
    if (status == BY_OK) {
        status = check_names(by_adapter_weights(adapter), graph, config, error);
        if (status == BY_OK) {
            status = by__trainer_load_adapter(trainer, by_adapter_weights(adapter), error);
        }
        by_adapter_close(&adapter);
    }
    by_graph_close(&graph);
    return status;
}
