#include <stdlib.h>

#include "passes/passes.h"

by_status by_pass_fuse(by_graph *graph, by_error *error)
{
    int *uses;
    BY_TRY(by_graph_check(graph, error));
    BY_TRY(by__pass_graph_prune(graph, error));
    BY_TRY(by__graph_uses(graph, &uses, error));
    by_status status = BY_OK;
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        const by__op_row *row = by__op_row_of(graph->nodes[n].op);
        if (row->fuse != NULL && !graph->nodes[n].dead) {
            status = row->fuse(graph, n, uses, error);
        }
    }
    for (size_t n = graph->node_count; n > 0 && status == BY_OK; n--) {
        status = by__op_fuse_map(graph, n - 1, uses, error);
    }
    free(uses);
    BY_TRY(status);
    by__graph_compact(graph);
    return by__graph_sort(graph, error);
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    BY_UNUSED(options);
    return by_pass_fuse(graph, error);
}

const by__pass by__pass_fuse = {
    .name = "fuse",
    .summary =
        "additions into products and norms, head and loss into one, element-wise chains into maps",
    .purposes = BY_PURPOSE_TRAIN | BY_PURPOSE_LOSS | BY_PURPOSE_UPDATE | BY_PURPOSE_INFER,
    .apply = apply};
