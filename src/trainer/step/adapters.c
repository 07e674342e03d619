/* Training of adapters (section lora) instead of the model's weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/adapter.h"
#include "tasks/tasks.h"
#include "trainer/graphs/graphs.h"
#include "trainer/step/trainer_step.h"

/* ---- files of a run ---- */

const char *by__trainer_adapters_prefix(const by_config *config)
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
    by_string text = {0};
    char *full;
    by__string_append(&text, prefix == NULL ? "" : prefix);
    by_string_add(&text, name, length);
    BY_TRY(by__string_release(&text, &full, error));
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
        } else if (!by__task_is_adapter(value->name)) {
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
            .task = strcmp(config->task.kind, "language") == 0 ||
                            (by__task_is_chat(config) && !by__task_rates_texts(config))
                        ? "CAUSAL_LM"
                    : by_graph_find(graph, BY__SCORE) != BY_NONE ? "SEQ_CLS"
                                                                 : "",
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

by_status by__trainer_adapters_describe(char **out, const by_config *config,
                                        const by__trainer_recipe *recipe, by_error *error)
{
    by_graph *graph;
    by_model model;
    BY_TRY(by__trainer_forward_graph(&graph, &model, config, recipe, BY_MODEL_LOSS, error));
    by_status status = describe(out, graph, config, error);
    by_graph_close(&graph);
    return status;
}

/* ---- adapters to start from ---- */

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

by_status by__trainer_adapters_load(by_trainer *trainer, const by_config *config,
                                    const by__trainer_recipe *recipe, by_error *error)
{
    by_adapter *adapter;
    by_graph *graph;
    by_model model;
    if (config->lora.from[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by__trainer_forward_graph(&graph, &model, config, recipe, BY_MODEL_LOSS, error));
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
