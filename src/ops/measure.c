/* Statistics of a tensor for observation: sum, norm, zeros, largest magnitude, and the distance
 * from another tensor. */
#include "ops/ops.h"

static by_status infer_measure(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *x = &s->in[0];
    const by__graph_type *y = s->input_count > 1 ? &s->in[1] : NULL;
    if (!by__op_is_act(x->dtype)) {
        return by__op_refuse(s, error, "the operand must be f32, bf16 or f16");
    }
    if (y != NULL && !by__absent(y) && !by__op_type_equal(x, y)) {
        return by__op_refuse(s, error, "tensors whose distance is measured must be of one type");
    }
    int64_t blocks = (by_shape_count(&x->shape) + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK;
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(blocks, BY_MEASURES)};
    return BY_OK;
}

static void cost_measure(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 5.0 * (double)by_shape_count(&s->in[0].shape);
}

const by__op_row by__op_measure = {.min_inputs = 1,
                                   .max_inputs = 2,
                                   .outputs = 1,
                                   .optional = 1u << 1,
                                   .infer = infer_measure,
                                   .cost = cost_measure};

by_value by__op_build_measure(by_graph *graph, by_value x, by_value y)
{
    by_value in[2] = {x, y};
    return by__op_add_node(graph, BY_OP_MEASURE, &(by_attrs){0}, in, y == BY_NONE ? 1 : 2, NULL);
}
