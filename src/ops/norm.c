/* Layer norm (Ba, Kiros, Hinton 2016) and RMS norm (Zhang, Sennrich 2019) over the last axis. */
#include "ops/ops.h"

static by__graph_type vector_of(int64_t n)
{
    return (by__graph_type){BY_F32, BY_SHAPE(n)};
}

static bool is_f32_vector(const by__graph_type *type, int64_t n)
{
    return type->dtype == BY_F32 && type->shape.rank == 1 && type->shape.dim[0] == n;
}

/* Types of both forward ops: x, then one or two weight vectors; y, then one or two row
 * statistics. */
static by_status infer_forward(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *x = &s->in[0];
    if (!by__op_is_act(x->dtype) || x->shape.rank < 1) {
        return by__op_refuse(s, error,
                             "the operand must be an f32, bf16 or f16 tensor of rank 1 or more");
    }
    for (int i = 1; i < s->input_count; i++) {
        if (!is_f32_vector(&s->in[i], by__op_last_dim(&x->shape))) {
            return by__op_refuse(s, error, "weights must be f32 vectors as long as the last axis");
        }
    }
    out[0] = *x;
    out[1] = vector_of(by__op_rows(&x->shape));
    if (s->op == BY_OP_LAYER_NORM) {
        out[2] = out[1];
    }
    return BY_OK;
}

/* Types of both gradients: x, w, statistics, dy, and optionally a tensor that is added to dx. */
static by_status infer_gradient(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    int statistics = s->op == BY_OP_LAYER_NORM_GRAD ? 2 : 1;
    const by__graph_type *x = &s->in[0];
    int64_t width = by__op_last_dim(&x->shape);
    bool ok = by__op_is_act(x->dtype) && is_f32_vector(&s->in[1], width) &&
              by__op_type_equal(x, &s->in[2 + statistics]);
    for (int i = 0; i < statistics; i++) {
        ok = ok && is_f32_vector(&s->in[2 + i], by__op_rows(&x->shape));
    }
    if (s->input_count > 3 + statistics && !by__absent(&s->in[3 + statistics])) {
        ok = ok && by__op_type_equal(x, &s->in[3 + statistics]);
    }
    if (!ok) {
        return by__op_refuse(s, error,
                             "x, dy and the added tensor must agree, statistics be f32 [rows]");
    }
    out[0] = *x;
    out[1] = vector_of(width);
    if (s->op == BY_OP_LAYER_NORM_GRAD) {
        out[2] = out[1];
    }
    return BY_OK;
}

static void gradient_layer_norm(by_graph *graph, const by__graph_node *node, const by_value *dout,
                                by_value *din)
{
    by_value in[5] = {node->in[0], node->in[1], node->out[1], node->out[2], dout[0]};
    (void)by__op_add_node(graph, BY_OP_LAYER_NORM_GRAD, &node->attrs, in, 5, din);
}

static void gradient_rms_norm(by_graph *graph, const by__graph_node *node, const by_value *dout,
                              by_value *din)
{
    by_value in[4] = {node->in[0], node->in[1], node->out[1], dout[0]};
    by_value outs[BY_MAX_OUTPUTS];
    (void)by__op_add_node(graph, BY_OP_RMS_NORM_GRAD, &node->attrs, in, 4, outs);
    din[0] = outs[0];
    din[1] = outs[1];
}

static void cost_norm(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 8.0 * (double)by_shape_count(&s->in[0].shape);
}

/* Splits y like x, and the statistics, one number a row, likewise. */
static bool shard_forward(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    sh->out[0] = sh->in[0];
    for (int i = 1; i < BY_MAX_OUTPUTS && !by__absent(&out[i]); i++) {
        if (!by__op_split_of_rows(&s->in[0].shape, sh->in[0], &out[i].shape, sh->ranks,
                                  &sh->out[i])) {
            return false;
        }
    }
    return by__op_shard_all_whole_but(sh, s->input_count, 1u << 0);
}

/* The weights' gradients are sums over rows, so they are addends. */
static bool shard_gradient(const by__op_signature *s, const by__graph_type *out,
                           by__op_sharding *sh)
{
    int statistics = s->op == BY_OP_LAYER_NORM_GRAD ? 2 : 1;
    by__graph_split rows;
    if (sh->in[1].axis != BY__WHOLE ||
        !by__op_split_of_rows(&s->in[0].shape, sh->in[0], &s->in[2].shape, sh->ranks, &rows)) {
        return false;
    }
    for (int i = 2; i < s->input_count; i++) {
        by__graph_split want = i < 2 + statistics ? rows : sh->in[0];
        if (!by__absent(&s->in[i]) && !by__op_split_equal(sh->in[i], want)) {
            return false;
        }
    }
    sh->out[0] = sh->in[0];
    for (int i = 1; i < BY_MAX_OUTPUTS && !by__absent(&out[i]); i++) {
        sh->out[i] = by__op_partial();
    }
    return true;
}

static by_status onnx_layer_norm(const by__op_signature *s, const by__graph_type *out,
                                 by__op_onnx *onnx, by_error *error)
{
    const int in[3] = {0, 1, 2};
    BY_UNUSED(out);
    BY_UNUSED(error);
    int y = onnx->node(onnx, "LayerNormalization", in, 3, 1);
    onnx->set_int(onnx, "axis", -1);
    onnx->set_float(onnx, "epsilon", s->attrs->eps);
    onnx->result(onnx, 0, y);
    return BY_OK;
}

static by_status onnx_rms_norm(const by__op_signature *s, const by__graph_type *out,
                               by__op_onnx *onnx, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(error);
    int squares = by__op_onnx_node2(onnx, "Mul", 0, 0);
    int mean = by__op_onnx_node2(onnx, "ReduceMean", squares,
                                 by__op_onnx_list(onnx, (const int64_t[]){-1}, 1));
    int sum = by__op_onnx_node2(onnx, "Add", mean, by__op_onnx_float(onnx, s->attrs->eps));
    int y = by__op_onnx_node2(onnx, "Div", 0, by__op_onnx_node1(onnx, "Sqrt", sum));
    onnx->result(onnx, 0, by__op_onnx_node2(onnx, "Mul", y, 1));
    return BY_OK;
}

const by__op_row by__op_layer_norm = {.min_inputs = 3,
                                      .max_inputs = 3,
                                      .outputs = 3,
                                      .attrs = BY__ATTRS(BY__ATTR(eps, FLOAT)),
                                      .onnx = onnx_layer_norm,
                                      .infer = infer_forward,
                                      .gradient = gradient_layer_norm,
                                      .shard = shard_forward,
                                      .cost = cost_norm,
                                      .gains = 1u << 1 | 1u << 2,
                                      .cheap = true,
                                      .keeps_f32 = 1u << 1 | 1u << 2};
const by__op_row by__op_layer_norm_grad = {.min_inputs = 5,
                                           .max_inputs = 6,
                                           .outputs = 3,
                                           .optional = 1u << 5,
                                           .infer = infer_gradient,
                                           .shard = shard_gradient,
                                           .cost = cost_norm,
                                           .overlay = {1u << 4 | 1u << 5},
                                           .keeps_f32 = 1u << 1 | 1u << 2 | 1u << 3,
                                           .addend = 5};
const by__op_row by__op_rms_norm = {.min_inputs = 2,
                                    .max_inputs = 2,
                                    .outputs = 2,
                                    .attrs = BY__ATTRS(BY__ATTR(eps, FLOAT)),
                                    .onnx = onnx_rms_norm,
                                    .infer = infer_forward,
                                    .gradient = gradient_rms_norm,
                                    .shard = shard_forward,
                                    .cost = cost_norm,
                                    .gains = 1u << 1,
                                    .cheap = true,
                                    .keeps_f32 = 1u << 1};
const by__op_row by__op_rms_norm_grad = {.min_inputs = 4,
                                         .max_inputs = 5,
                                         .outputs = 2,
                                         .optional = 1u << 4,
                                         .infer = infer_gradient,
                                         .shard = shard_gradient,
                                         .cost = cost_norm,
                                         .overlay = {1u << 3 | 1u << 4},
                                         .keeps_f32 = 1u << 1 | 1u << 2,
                                         .addend = 4};

by_value by_layer_norm(by_graph *graph, by_value x, by_value weight, by_value bias, float eps)
{
    by_attrs attrs = {.eps = eps};
    by_value in[3] = {x, weight, bias};
    return by__op_add_node(graph, BY_OP_LAYER_NORM, &attrs, in, 3, NULL);
}

by_value by_rms_norm(by_graph *graph, by_value x, by_value weight, float eps)
{
    by_attrs attrs = {.eps = eps};
    by_value in[2] = {x, weight};
    return by__op_add_node(graph, BY_OP_RMS_NORM, &attrs, in, 2, NULL);
}
