/* Builds the graphs of training from a config: the model, the loss of the task, and the options of
 * the passes. */
#include <string.h>

#include "optim/optim.h"
#include "tasks/tasks.h"
#include "trainer/graphs/graphs.h"

int64_t by__trainer_per_sample(const by_task *task, const by_config *config)
{
    return task->per_sample == NULL ? 1 : task->per_sample(config);
}

static by_recompute_kind recompute_kind(const by_memory_config *memory)
{
    static const char *const names[] = {[BY_RECOMPUTE_NONE] = "none",
                                        [BY_RECOMPUTE_BLOCK] = "block",
                                        [BY_RECOMPUTE_EVERY] = "every",
                                        [BY_RECOMPUTE_FULL] = "full"};
    for (int kind = 0; kind < (int)BY_ARRAY_LENGTH(names); kind++) {
        if (strcmp(names[kind], memory->recompute) == 0) {
            return (by_recompute_kind)kind;
        }
    }
    return BY_RECOMPUTE_NONE;
}

/* Empty without track.activations_every. */
static by_observe_options observed(const by_config *config, const by_model *model)
{
    bool is_on = config->track.activations_every > 0 && model != NULL;
    return (by_observe_options){.blocks = is_on,
                                .hidden = is_on ? model->hidden : BY_NONE,
                                .output = is_on ? model->output : BY_NONE};
}

static by_frozen_options frozen(const by_lora_config *lora)
{
    return (by_frozen_options){.kind = strcmp(lora->base, "int8") == 0   ? BY_PACKING_INT8
                                       : strcmp(lora->base, "int4") == 0 ? BY_PACKING_INT4
                                                                         : BY_PACKING_NONE,
                               .group = lora->base_group};
}

by_pass_options by__trainer_graph_pass_options(const by_config *config, const by_model *model)
{
    const char *kept = config->memory.activations;
    return (by_pass_options){.compute = by__trainer_compute_dtype(config),
                             .frozen = frozen(&config->lora),
                             .loss = model == NULL ? BY_NONE : model->objective,
                             .kept = strcmp(kept, "bf16") == 0   ? BY_BF16
                                     : strcmp(kept, "int8") == 0 ? BY_U8
                                                                 : BY_F32,
                             .recompute = {.kind = recompute_kind(&config->memory),
                                           .every = config->memory.recompute_every},
                             .observe = observed(config, model)};
}

/* Adds fake quantization of the weights (precision.qat). */
static by_status quantise(by_graph *graph, const by_precision_config *p, by_error *error)
{
    const by_fake_quantize_options options = {.kind = strcmp(p->qat, "int8") == 0 ? BY_PACKING_INT8
                                                                                  : BY_PACKING_INT4,
                                              .group = p->qat_group};
    return strcmp(p->qat, "none") == 0 ? BY_OK : by_pass_fake_quantize(graph, &options, error);
}

/* Adds the loss of the task, if the model has none itself. */
static by_status add_loss(by_model *model, by_graph *graph, const by_config *config,
                          const by_task *task, const by_model_request *request, by_error *error)
{
    if (model->loss != BY_NONE) {
        return BY_OK;
    }
    BY_TRY(task->loss(config, request, graph, model, error));
    by_graph_output(graph, model->loss, "loss");
    if (model->evaluated != BY_NONE) {
        by_graph_output(graph, model->evaluated, "evaluated");
    }
    return BY_OK;
}

static by_status build(by_model *model, by_graph *graph, const by_config *config,
                       const by__trainer_recipe *recipe, const by_model_request *request,
                       by_error *error)
{
    const by_task *task = recipe->task;
    if (task == NULL) {
        BY_TRY(by_task_find(&task, config, error));
    }
    *model = BY_MODEL_NONE;
    if (recipe->builder != NULL) {
        BY_TRY(recipe->builder(recipe->user, model, graph, &config->model, request, error));
        BY_TRY(by__nn_choose_output(model, &config->model, error));
    } else {
        BY_TRY(by_model_build(model, graph, &config->model, request, error));
    }
    BY_TRY(quantise(graph, &config->precision, error));
    BY_TRY(by__trainer_adapters_apply(graph, model, config, request->mode, error));
    BY_TRY(by__optim_groups_apply(graph, &config->optimizer, error));
    BY_TRY(by__optim_check_mup(config, error));
    BY_TRY(by__trainer_adapters_check(graph, config, error));
    if (request->mode == BY_MODEL_DECODE) {
        return by_graph_check(graph, error);
    }
    BY_TRY(add_loss(model, graph, config, task, request, error));
    model->objective = model->loss;
    if (model->auxiliary != BY_NONE) {
        if (model->counted == BY_NONE) {
            return by_error_set(error, BY_ECONFIG,
                                "model.kind %s adds an auxiliary loss, for which the task has to "
                                "count targets",
                                config->model.kind);
        }
        by_value sum = by_mul(graph, model->auxiliary, model->counted);
        model->objective = by_add(graph, model->loss, sum);
    }
    return by_graph_check(graph, error);
}

static by_status build_graph(by_graph **out, by_model *model, const by_config *config,
                             const by__trainer_recipe *recipe, const by_model_request *request,
                             by_error *error)
{
    by_graph *graph;
    BY_TRY(by_graph_open(&graph, error));
    by_status status = build(model, graph, config, recipe, request, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    *out = graph;
    return BY_OK;
}

by_status by__trainer_forward_graph(by_graph **out, by_model *model, const by_config *config,
                                    const by__trainer_recipe *recipe, by_model_mode mode,
                                    by_error *error)
{
    const by_model_request request = {.mode = mode,
                                      .batch = config->train.micro_batch,
                                      .time = by__task_time(config),
                                      .documents = by__task_keeps_documents(config),
                                      .padded = by__task_pads_texts(config),
                                      .segmented = by__task_pairs_texts(config),
                                      .texts = by__task_texts(config)};
    return build_graph(out, model, config, recipe, &request, error);
}

by_status by__trainer_decode_forward(by_graph **out, by_model *model, const by_config *config,
                                     const by__trainer_recipe *recipe, int64_t cache,
                                     by_error *error)
{
    const by_model_request request = {
        .mode = BY_MODEL_DECODE, .batch = 1, .time = 1, .cache = cache};
    return build_graph(out, model, config, recipe, &request, error);
}

by_status by_train_graph(by_graph **out, by_model *model, const by_config *config,
                         by_model_builder *builder, void *user, const char *last, by_error *error)
{
    by_graph *graph;
    by_model built;
    const by__trainer_recipe recipe = {.builder = builder, .user = user};
    BY_TRY(by__trainer_forward_graph(&graph, &built, config, &recipe, BY_MODEL_TRAIN, error));
    by_pass_options options = by__trainer_graph_pass_options(config, &built);
    by_status status = by_passes_run(graph, BY_PURPOSE_TRAIN, &options, last, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    *out = graph;
    if (model != NULL) {
        *model = built;
    }
    return BY_OK;
}
