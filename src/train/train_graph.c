#include <string.h>

#include "passes/passes.h"
#include "train/train.h"

/* Smaller results stay in a cache, and making them again costs more than keeping them. */
#define REMATERIALIZED_BYTES ((size_t)4 << 20)

const char *by_graph_stage_name(by_graph_stage stage)
{
    static const char *const names[BY_STAGE_COUNT] = {"forward",   "precision", "gradients",
                                                      "recompute", "fuse",      "order"};
    return (unsigned)stage < BY_STAGE_COUNT ? names[stage] : "?";
}

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

static by_status run_passes(by_graph *graph, const by_model *model, const by_config *config,
                            by_graph_stage stage, by_error *error)
{
    if (stage >= BY_STAGE_PRECISION) {
        BY_TRY(by_pass_precision(graph, by__compute_dtype(config), error));
    }
    if (stage >= BY_STAGE_GRADIENTS) {
        by_value seed = by_graph_input(graph, "loss_scale", BY_F32, BY_SHAPE(1));
        BY_TRY(by_pass_gradients(graph, model->loss, seed, error));
    }
    if (stage >= BY_STAGE_RECOMPUTE) {
        BY_TRY(by_pass_rematerialize(graph, REMATERIALIZED_BYTES, error));
        if (strcmp(config->memory.recompute, "block") == 0) {
            BY_TRY(by_pass_recompute(graph, error));
        }
    }
    if (stage >= BY_STAGE_FUSE) {
        BY_TRY(by_pass_fuse(graph, error));
    }
    if (stage >= BY_STAGE_ORDER) {
        BY_TRY(by_pass_order(graph, error));
    }
    return by_graph_verify(graph, error);
}

by_status by_train_graph(by_graph **out, by_model *model, const by_config *config,
                         by_model_builder *builder, void *user, by_graph_stage stage,
                         by_error *error)
{
    by_graph *graph;
    by_model built;
    by_model_request request = {
        .mode = BY_MODEL_TRAIN, .batch = config->train.micro_batch, .time = config->model.context};
    BY_TRY(by_graph_open(&graph, error));
    by_status status = by__build_model(&built, graph, config, builder, user, &request, error);
    if (status == BY_OK) {
        status = run_passes(graph, &built, config, stage, error);
    }
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
