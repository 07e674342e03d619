#include "infer/decode_work.h"

#include <math.h>
#include <stdlib.h>

#include "banyan/model.h"
#include "base/packing/packing.h"
#include "ops/ops.h"

/* Computes the share of operand i of a node that a run reads, if it is a parameter: 0 for a table
 * from which only some rows are looked up, and one token's share for experts. */
static by_status share_read(double *share, const by_graph *graph, const by__graph_node *node, int i,
                            by_error *error)
{
    const by__op_row *row = by__op_row_of(node->op);
    *share = by__mask_has(row->gathers, i) ? 0.0 : 1.0;
    if (row->used_share != NULL) {
        by__graph_type *in;
        BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "count", error));
        by__op_node_types(graph, node, in);
        by__op_signature s = {node->op, &node->attrs, in, node->input_count};
        *share = row->used_share(&s, i);
        free(in);
    }
    return BY_OK;
}

/* Returns the bytes of a parameter without the padding of its last panel. */
static double useful_bytes(const by__graph_value *value)
{
    const by_packing *packing = &value->packing;
    double bytes = (double)by__graph_value_bytes(value);
    return packing->kind == BY_PACKING_NONE
               ? bytes
               : bytes * (double)packing->n /
                     (double)(by__packed_panels(packing) * BY_PACKED_COLUMNS);
}

/* Sums the bytes of parameters that a run reads. */
static by_status count_read(double *bytes, const by_graph *graph, by_error *error)
{
    double *read;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&read, graph->value_count, sizeof *read, "count", error));
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count && status == BY_OK; i++) {
            double share = 0.0;
            if (node->in[i] != BY_NONE) {
                status = share_read(&share, graph, node, i, error);
                read[node->in[i]] = fmax(read[node->in[i]], share);
            }
        }
    }
    *bytes = 0.0;
    for (size_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].role == BY_ROLE_PARAMETER) {
            *bytes += read[v] * useful_bytes(&graph->values[v]);
        }
    }
    free(read);
    return status;
}

by_status by__infer_decode_work_measure(by__infer_decode_work *out, const by_graph *decode,
                                        by_error *error)
{
    int64_t all;
    *out = (by__infer_decode_work){0};
    BY_TRY(by_model_count(decode, &all, &out->products, error));
    BY_TRY(count_read(&out->weight_bytes, decode, error));
    for (size_t n = 0; n < decode->node_count; n++) {
        by__op_attention_cost cost;
        BY_TRY(by__op_node_attention(decode, n, &cost, error));
        if (cost.cached_window > 0.0) {
            out->window_flops += cost.cached_flops;
            out->window_bytes += cost.cached_bytes;
            out->window_tokens = fmax(out->window_tokens, cost.cached_window);
            continue;
        }
        out->token_flops += cost.cached_flops;
        out->token_bytes += cost.cached_bytes;
    }
    return BY_OK;
}
