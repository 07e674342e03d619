#include <string.h>

#include "train/train.h"

by_status by__build_model(by_model *out, by_graph *graph, const by_config *config,
                          by_model_builder *builder, void *user, const by_model_request *request,
                          by_error *error)
{
    return builder != NULL ? builder(user, out, graph, &config->model, request, error)
                           : by_model_build(out, graph, &config->model, request, error);
}

by_dtype by__compute_dtype(const by_config *config)
{
    return strcmp(config->precision.compute, "bf16") == 0 ? BY_BF16 : BY_F32;
}

by_pass_options by__pass_options(const by_config *config, const by_model *model)
{
    return (by_pass_options){.compute = by__compute_dtype(config),
                             .loss = model == NULL ? BY_NONE : model->loss,
                             .recompute = strcmp(config->memory.recompute, "block") == 0};
}

by_status by__train_forward(by_graph **out, by_model *model, const by_config *config,
                            by_model_builder *builder, void *user, by_model_mode mode,
                            by_error *error)
{
    by_graph *graph;
    by_model_request request = {
        .mode = mode, .batch = config->train.micro_batch, .time = config->model.context};
    BY_TRY(by_graph_open(&graph, error));
    by_status status = by__build_model(model, graph, config, builder, user, &request, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    *out = graph;
    return BY_OK;
}

by_status by_train_graph(by_graph **out, by_model *model, const by_config *config,
                         by_model_builder *builder, void *user, const char *last, by_error *error)
{
    by_graph *graph;
    by_model built;
    BY_TRY(by__train_forward(&graph, &built, config, builder, user, BY_MODEL_TRAIN, error));
    by_pass_options options = by__pass_options(config, &built);
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
