/* Adapters in the graph of a model (section lora). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/tasks.h"
#include "trainer/graphs/graphs.h"

bool by__trainer_has_adapters(const by_weights *weights)
{
    bool any = false;
    for (size_t i = 0; i < by_weights_count(weights) && !any; i++) {
        any = by__task_is_adapter(by_weights_name(weights, i));
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
        if (value->role == BY_ROLE_PARAMETER && value->frozen && by__task_is_adapter(value->name)) {
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

by_status by__trainer_adapters_apply(by_graph *graph, by_model *model, const by_config *config,
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
                               .head = model->head != BY_NONE ? model->head
                                                              : by_graph_find(graph, BY__SCORE),
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
    const char **also;
    size_t count = lora->train_also.count;
    by_status status = by__alloc((void **)&also, count + 1, sizeof *also, "adapters", error);
    if (status == BY_OK) {
        for (size_t i = 0; i < count; i++) {
            also[i] = lora->train_also.items[i];
        }
        /* Outputs of texts begin anew, as PEFT trains them beside the adapters. */
        also[count] = BY__SCORE;
        options.train_also = also;
        options.train_also_count = count + (by_graph_find(graph, BY__SCORE) != BY_NONE ? 1 : 0);
        status = by_pass_lora(graph, &options, error);
        free(also);
    }
    free(words);
    return status == BY_OK ? check_head(graph, model, config, error) : status;
}

by_status by__trainer_adapters_check(const by_graph *graph, const by_config *config,
                                     by_error *error)
{
    return config->lora.rank == 0 ? BY_OK : check_trained(graph, error);
}
