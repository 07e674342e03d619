/* What inference costs: the costs of the graphs that a generator and a server run. */
#include <string.h>

#include "banyan/model.h"
#include "banyan/plan.h"
#include "passes/passes.h"
#include "trainer/state/trainer.h"

typedef struct graph_cost {
    double flops; /* of products and attention */
    double bytes; /* read */
    double seconds;
} graph_cost;

static by_status add_costs(graph_cost *out, const by_graph *graph, const by_speeds *speeds,
                           by_error *error)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        by__op_cost cost;
        const by__op_row *row = by__op_row_of(graph->nodes[n].op);
        BY_TRY(by__op_node_cost(graph, n, &cost, error));
        out->flops += row->factors != 0 || row->attention != NULL ? cost.flops : 0.0;
        out->bytes += cost.bytes_read;
    }
    return speeds->bytes > 0.0 && speeds->f32_flops > 0.0
               ? by__pass_graph_seconds(&out->seconds, graph, 0, speeds, error)
               : BY_OK;
}

static by_status measure(graph_cost *out, const by_config *config, const by_model_request *request,
                         const by_speeds *speeds, by_error *error)
{
    by_graph *graph;
    by_model model = BY_MODEL_NONE;
    const by_pass_options options = {.compute = by__trainer_compute_dtype(config), .loss = BY_NONE};
    *out = (graph_cost){0};
    BY_TRY(by_graph_open(&graph, error));
    by_status status = by_model_build(&model, graph, &config->model, request, error);
    if (status == BY_OK && request->mode == BY_MODEL_LOSS) {
        by_graph_output(graph, model.output, "output");
    }
    if (status == BY_OK) {
        status = by_passes_run(graph, BY_PURPOSE_INFER, &options, NULL, error);
    }
    if (status == BY_OK) {
        status = add_costs(out, graph, speeds, error);
    }
    by_graph_close(&graph);
    return status;
}

by_status by_plan_inference(by_inference_plan *out, const by_config *config,
                            const by_speeds *speeds, by_error *error)
{
    const by_model_config *m = &config->model;
    graph_cost cost;
    bool tokens = strcmp(by_model_reads(m), "tokens") == 0;
    by_model_request request = {.mode = tokens ? BY_MODEL_LOGITS : BY_MODEL_LOSS,
                                .batch = 1,
                                .time = tokens ? m->context : 1};
    *out = (by_inference_plan){0};
    BY_TRY(measure(&cost, config, &request, speeds, error));
    out->read_flops = cost.flops / (double)request.time;
    out->read_seconds = cost.seconds;
    if (!tokens || by_model_is_encoder(m)) {
        return BY_OK;
    }
    request =
        (by_model_request){.mode = BY_MODEL_DECODE, .batch = 1, .time = 1, .cache = m->context};
    BY_TRY(measure(&cost, config, &request, speeds, error));
    out->write_flops = cost.flops;
    out->write_bytes = cost.bytes;
    out->write_seconds = cost.seconds;
    return BY_OK;
}
