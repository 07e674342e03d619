/* The optimizer step as operations: gradient norm, clipping, AdamW. */
#include "ops/ops.h"

static by__graph_type scalar(void)
{
    return (by__graph_type){BY_F32, BY_SHAPE(1)};
}

static by_status infer_sum_squares(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (s->in[0].dtype != BY_F32) {
        return by__op_refuse(s, error, "the operand must be f32");
    }
    out[0] = (by__graph_type){
        BY_F32, BY_SHAPE((by_shape_count(&s->in[0].shape) + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK)};
    return BY_OK;
}

static void cost_sum_squares(const by__op_signature *s, const by__graph_type *out,
                             by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 2.0 * (double)by_shape_count(&s->in[0].shape);
}

static by_status infer_clip_scale(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    for (int i = 0; i < s->input_count; i++) {
        if (!by__absent(&s->in[i]) && s->in[i].dtype != BY_F32) {
            return by__op_refuse(s, error, "operands must be f32");
        }
    }
    if (by_shape_count(&s->in[0].shape) != 1) {
        return by__op_refuse(s, error, "the state `failed` must be a single value");
    }
    if (!by__absent(&s->in[2]) && by_shape_count(&s->in[2].shape) != 1) {
        return by__op_refuse(s, error, "the loss factor must be a single value");
    }
    out[0] = scalar();
    out[1] = scalar();
    return BY_OK;
}

/* Types of the operands hyper and scale, starting at `first`, and of the copy. */
static by_status infer_rates(const by__op_signature *s, int first, by__graph_type *out,
                             by_error *error)
{
    const by__graph_type *hyper = &s->in[first];
    const by__graph_type *scale = &s->in[first + 1];
    if (hyper->dtype != BY_F32 || by_shape_count(&hyper->shape) < 3 || scale->dtype != BY_F32 ||
        by_shape_count(&scale->shape) != 1) {
        return by__op_refuse(s, error, "hyper must be f32 [3] or more and scale one f32");
    }
    if (s->attrs->dtype == BY_BF16 || s->attrs->dtype == BY_F16) {
        out[0] = (by__graph_type){s->attrs->dtype, s->in[0].shape};
    }
    return BY_OK;
}

static by_status infer_adamw(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    for (int i = 0; i < 4; i++) {
        if (s->in[i].dtype != BY_F32 || !by_shape_equal(&s->in[0].shape, &s->in[i].shape)) {
            return by__op_refuse(s, error, "p, g, m and v must be f32 of one shape");
        }
    }
    return infer_rates(s, 4, out, error);
}

static by_status infer_adamw8(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_shape blocks =
        BY_SHAPE((by_shape_count(&s->in[0].shape) + BY_CODE_BLOCK - 1) / BY_CODE_BLOCK);
    for (int i = 0; i < 4; i++) {
        if (s->in[i].dtype != (i < 2 ? BY_F32 : BY_U8) ||
            !by_shape_equal(&s->in[0].shape, &s->in[i].shape)) {
            return by__op_refuse(s, error, "p and g must be f32, m and v u8, all of one shape");
        }
    }
    for (int i = 4; i < 6; i++) {
        if (s->in[i].dtype != BY_F32 || !by_shape_equal(&blocks, &s->in[i].shape)) {
            return by__op_refuse(s, error, "scales must be f32, one for each block");
        }
    }
    return infer_rates(s, 6, out, error);
}

static void cost_adamw8(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 80.0 * (double)by_shape_count(&s->in[0].shape);
}

static void cost_adamw(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 14.0 * (double)by_shape_count(&s->in[0].shape);
}

static bool shard_adamw(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    BY_UNUSED(s);
    for (int i = 0; i < 4; i++) {
        if (sh->in[i].axis < 0 || !by__op_split_equal(sh->in[i], sh->in[0])) {
            return false;
        }
    }
    sh->out[0] = by__absent(&out[0]) ? by__op_whole() : sh->in[0];
    return sh->in[4].axis == BY__WHOLE && sh->in[5].axis == BY__WHOLE;
}

/* The optimizer step is computed in f32 whatever the model computes in. */
#define ALL UINT32_MAX
const by__op_row by__op_sum_squares = {.min_inputs = 1,
                                       .max_inputs = 1,
                                       .outputs = 1,
                                       .infer = infer_sum_squares,
                                       .cost = cost_sum_squares,
                                       .keeps_f32 = ALL};
const by__op_row by__op_clip_scale = {.min_inputs = 4,
                                      .max_inputs = -1,
                                      .outputs = 2,
                                      .optional = 1u << 1 | 1u << 2,
                                      .attrs = BY__ATTRS(BY__ATTR(clip, FLOAT)),
                                      .infer = infer_clip_scale,
                                      .mutates = 1u << 0,
                                      .keeps_f32 = ALL};
const by__op_row by__op_adamw = {
    .min_inputs = 6,
    .max_inputs = 6,
    .outputs = 1,
    .attrs = BY__ATTRS(BY__ATTR_AS("betas", beta1, FLOAT, 0), BY__ATTR_AS("", beta2, FLOAT, 0),
                       BY__ATTR(eps, FLOAT), BY__ATTR(decay, FLOAT),
                       BY__ATTR_AS("lr_scale", lr_scale, FLOAT, BY__ATTR_SPARE),
                       BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE)),
    .infer = infer_adamw,
    .cost = cost_adamw,
    .shard = shard_adamw,
    .mutates = 1u << 0 | 1u << 2 | 1u << 3,
    .keeps_f32 = ALL};

const by__op_row by__op_adamw8 = {
    .min_inputs = 8,
    .max_inputs = 8,
    .outputs = 1,
    .attrs = BY__ATTRS(BY__ATTR_AS("betas", beta1, FLOAT, 0), BY__ATTR_AS("", beta2, FLOAT, 0),
                       BY__ATTR(eps, FLOAT), BY__ATTR(decay, FLOAT),
                       BY__ATTR_AS("lr_scale", lr_scale, FLOAT, BY__ATTR_SPARE),
                       BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE)),
    .infer = infer_adamw8,
    .cost = cost_adamw8,
    .mutates = 1u << 0 | 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5,
    .keeps_f32 = ALL};

by_value by__op_build_sum_squares(by_graph *graph, by_value x)
{
    return by__op_add_node(graph, BY_OP_SUM_SQUARES, &(by_attrs){0}, &x, 1, NULL);
}

void by__op_build_clip_scale(by_graph *graph, const by_value *in, int count, float clip,
                             by_value *norm, by_value *scale)
{
    by_attrs attrs = {.clip = clip};
    by_value outs[BY_MAX_OUTPUTS];
    *norm = by__op_add_node(graph, BY_OP_CLIP_SCALE, &attrs, in, count, outs);
    *scale = *norm == BY_NONE ? BY_NONE : outs[1];
}

by_value by__op_build_adamw(by_graph *graph, by_value p, by_value g, by_value m, by_value v,
                            by_value hyper, by_value scale, const by_attrs *attrs, by_dtype copy)
{
    by_attrs full = *attrs;
    by_value in[6] = {p, g, m, v, hyper, scale};
    full.dtype = copy;
    return by__op_add_node(graph, BY_OP_ADAMW, &full, in, 6, NULL);
}

by_value by__op_build_adamw8(by_graph *graph, const by_value in[8], const by_attrs *attrs,
                             by_dtype copy)
{
    by_attrs full = *attrs;
    full.dtype = copy;
    return by__op_add_node(graph, BY_OP_ADAMW8, &full, in, 8, NULL);
}
