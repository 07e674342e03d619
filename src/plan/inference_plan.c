/* What inference costs: the costs of the graphs that a generator and a server run. */
#include <math.h>
#include <string.h>

#include "banyan/model.h"
#include "banyan/plan.h"
#include "infer/decode_work.h"
#include "passes/passes.h"
#include "trainer/state/trainer.h"

/* The graph of one example, after its passes. */
static by_status make_graph(by_graph **out, const by_config *config,
                            const by_model_request *request, by_error *error)
{
    by_graph *graph;
    by_model model = BY_MODEL_NONE;
    const by_pass_options options = {.compute = by__trainer_compute_dtype(config), .loss = BY_NONE};
    BY_TRY(by_graph_open(&graph, error));
    by_status status = by_model_build(&model, graph, &config->model, request, error);
    if (status == BY_OK && request->mode == BY_MODEL_LOSS) {
        by_graph_output(graph, model.output, "output");
    }
    if (status == BY_OK) {
        status = by_passes_run(graph, BY_PURPOSE_INFER, &options, NULL, error);
    }
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    *out = graph;
    return BY_OK;
}

static by_status predict(double *seconds, const by_graph *graph, const by_speeds *speeds,
                         by_error *error)
{
    return speeds->bytes > 0.0 && speeds->f32_flops > 0.0
               ? by__pass_graph_seconds(seconds, graph, 0, speeds, error)
               : BY_OK;
}

/* FLOPs of products and attention. */
static by_status count_flops(double *out, const by_graph *graph, by_error *error)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        by__op_cost cost;
        const by__op_row *row = by__op_row_of(graph->nodes[n].op);
        BY_TRY(by__op_node_cost(graph, n, &cost, error));
        *out += row->factors != 0 || row->attention != NULL ? cost.flops : 0.0;
    }
    return BY_OK;
}

static by_status plan_reading(by_inference_plan *out, const by_config *config,
                              const by_speeds *speeds, bool tokens, by_error *error)
{
    by_graph *graph;
    const by_model_request request = {.mode = tokens ? BY_MODEL_LOGITS : BY_MODEL_LOSS,
                                      .batch = 1,
                                      .time = tokens ? config->model.context : 1};
    BY_TRY(make_graph(&graph, config, &request, error));
    by_status status = count_flops(&out->read_flops, graph, error);
    out->read_flops /= (double)request.time;
    if (status == BY_OK) {
        status = predict(&out->read_seconds, graph, speeds, error);
    }
    by_graph_close(&graph);
    return status;
}

static by_status plan_writing(by_inference_plan *out, const by_config *config,
                              const by_speeds *speeds, by_error *error)
{
    by_graph *graph;
    by__infer_decode_work w;
    double context = (double)config->model.context;
    const by_model_request request = {
        .mode = BY_MODEL_DECODE, .batch = 1, .time = 1, .cache = config->model.context};
    BY_TRY(make_graph(&graph, config, &request, error));
    by_status status = by__infer_decode_work_measure(&w, graph, error);
    if (status == BY_OK) {
        double window = fmin(context, w.window_tokens);
        out->write_flops =
            2.0 * (double)w.products + w.token_flops * context + w.window_flops * window;
        out->write_bytes = w.weight_bytes + w.token_bytes * context + w.window_bytes * window;
        status = predict(&out->write_seconds, graph, speeds, error);
    }
    by_graph_close(&graph);
    return status;
}

by_status by_plan_inference(by_inference_plan *out, const by_config *config,
                            const by_speeds *speeds, by_error *error)
{
    bool tokens = strcmp(by_model_reads(&config->model), "tokens") == 0;
    *out = (by_inference_plan){0};
    BY_TRY(plan_reading(out, config, speeds, tokens, error));
    return tokens && !by_model_is_encoder(&config->model) ? plan_writing(out, config, speeds, error)
                                                          : BY_OK;
}
