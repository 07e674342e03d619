/* Rows of 8-bit codes with a scale for each block of a row, for activations kept for the backward
 * pass (ActNN, Chen et al. 2021; the blocks of Dettmers et al. 2022). Rows do not share scales, so
 * the codes of a row do not depend on which other rows are on the same rank. */
#include "ops/ops.h"

/* The shape of the scales: one for each block of each row. */
static by_shape scales_of(const by_shape *codes)
{
    return BY_SHAPE(by__op_rows(codes),
                    (by__op_last_dim(codes) + BY_ROW_CODE_BLOCK - 1) / BY_ROW_CODE_BLOCK);
}

static by_status infer_encode8(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (!by__op_is_act(s->in[0].dtype)) {
        return by__op_refuse(s, error, "the operand must be f32, bf16 or f16");
    }
    out[0] = (by__graph_type){BY_U8, s->in[0].shape};
    out[1] = (by__graph_type){BY_F32, scales_of(&s->in[0].shape)};
    return BY_OK;
}

static by_status infer_decode8(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_shape scales = scales_of(&s->in[0].shape);
    if (s->in[0].dtype != BY_U8 || !by__op_is_act(s->attrs->dtype)) {
        return by__op_refuse(s, error, "codes must be u8, and the result f32, bf16 or f16");
    }
    if (s->in[1].dtype != BY_F32 || !by_shape_equal(&s->in[1].shape, &scales)) {
        return by__op_refuse(s, error, "scales must be f32, one for each block of a row");
    }
    out[0] = (by__graph_type){s->attrs->dtype, s->in[0].shape};
    return BY_OK;
}

static void cost_encode8(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 4.0 * (double)by_shape_count(&s->in[0].shape);
}

const by__op_row by__op_encode8 = {
    .min_inputs = 1, .max_inputs = 1, .outputs = 2, .infer = infer_encode8, .cost = cost_encode8};

const by__op_row by__op_decode8 = {
    .min_inputs = 2,
    .max_inputs = 2,
    .outputs = 1,
    .attrs = BY__ATTRS(BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE)),
    .infer = infer_decode8,
    .keeps_f32 = 1u << 1};

by_value by__op_build_encode8(by_graph *graph, by_value x, by_value *scale)
{
    by_value outs[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    by_value codes = by__op_add_node(graph, BY_OP_ENCODE8, &(by_attrs){0}, &x, 1, outs);
    *scale = outs[1];
    return codes;
}

by_value by__op_build_decode8(by_graph *graph, by_value codes, by_value scale, by_dtype dtype)
{
    const by_value in[2] = {codes, scale};
    return by__op_add_node(graph, BY_OP_DECODE8, &(by_attrs){.dtype = dtype}, in, 2, NULL);
}
