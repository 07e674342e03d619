/* Group norm (Wu and He 2018): each group of channels, entries of the last axis, with its mean and
 * variance over one sample. */
#include "ops/ops.h"

enum { X, WEIGHT, BIAS, FORWARD_INPUTS };
enum { GRAD_X, GRAD_WEIGHT, GRAD_MEAN, GRAD_RSTD, GRAD_DY, GRAD_INPUTS };

static bool is_vector(const by__graph_type *type, int64_t n)
{
    return type->dtype == BY_F32 && type->shape.rank == 1 && type->shape.dim[0] == n;
}

static by_status check_operands(const by__op_signature *s, by_error *error)
{
    const by__graph_type *x = &s->in[X];
    int64_t channels = by__op_last_dim(&x->shape);
    if (!by__op_is_act(x->dtype) || x->shape.rank < 2) {
        return by__op_refuse(s, error, "the operand must be samples of f32, bf16 or f16 channels");
    }
    if (s->attrs->groups < 1 || channels % s->attrs->groups != 0) {
        return by__op_refuse(s, error, "the channels must be a multiple of the groups");
    }
    if (!is_vector(&s->in[WEIGHT], channels)) {
        return by__op_refuse(s, error, "the weight must be an f32 vector of the channels");
    }
    return BY_OK;
}

static by__graph_type statistics_of(const by__op_signature *s)
{
    return (by__graph_type){BY_F32, BY_SHAPE(s->in[X].shape.dim[0], s->attrs->groups)};
}

static by_status infer_forward(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_operands(s, error));
    if (!by__op_type_equal(&s->in[BIAS], &s->in[WEIGHT])) {
        return by__op_refuse(s, error, "the bias must be like the weight");
    }
    out[0] = s->in[X];
    out[1] = statistics_of(s);
    out[2] = out[1];
    return BY_OK;
}

static by_status infer_gradient(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_operands(s, error));
    by__graph_type statistics = statistics_of(s);
    if (!by__op_type_equal(&s->in[GRAD_MEAN], &statistics) ||
        !by__op_type_equal(&s->in[GRAD_RSTD], &statistics) ||
        !by__op_type_equal(&s->in[GRAD_DY], &s->in[GRAD_X])) {
        return by__op_refuse(s, error, "x and dy must agree, statistics be f32 [samples, groups]");
    }
    out[0] = s->in[GRAD_X];
    out[1] = s->in[GRAD_WEIGHT];
    out[2] = s->in[GRAD_WEIGHT];
    return BY_OK;
}

static void gradient(by_graph *graph, const by__graph_node *node, const by_value *dout,
                     by_value *din)
{
    by_value in[GRAD_INPUTS] = {node->in[X], node->in[WEIGHT], node->out[1], node->out[2], dout[0]};
    (void)by__op_add_node(graph, BY_OP_GROUP_NORM_GRAD, &node->attrs, in, GRAD_INPUTS, din);
}

static void cost(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 8.0 * (double)by_shape_count(&s->in[X].shape);
    /* Mean, variance and result each read x, and the gradient reads x and dy twice. */
    cost->bytes_read += 2.0 * by__op_type_bytes(&s->in[X]);
}

static by_status onnx(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                      by_error *error)
{
    const by_shape *shape = &s->in[X].shape;
    int64_t groups = s->attrs->groups;
    int64_t channels = by__op_last_dim(shape);
    /* 0: the extent of the batch, as it is. */
    const int64_t grouped[4] = {0, by__op_rows(shape) / shape->dim[0], groups, channels / groups};
    static const int64_t rows_and_channels[2] = {1, 3};
    int64_t whole[BY_MAX_RANK];
    BY_UNUSED(out);
    BY_UNUSED(error);
    for (int i = 0; i < shape->rank; i++) {
        whole[i] = i == 0 ? 0 : shape->dim[i];
    }
    int axes = by__op_onnx_list(onnx, rows_and_channels, 2);
    int x = by__op_onnx_reshape(onnx, X, grouped, 4);
    int centered =
        by__op_onnx_node2(onnx, "Sub", x, by__op_onnx_node2(onnx, "ReduceMean", x, axes));
    int square = by__op_onnx_node2(onnx, "Mul", centered, centered);
    int variance =
        by__op_onnx_node2(onnx, "Add", by__op_onnx_node2(onnx, "ReduceMean", square, axes),
                          by__op_onnx_float(onnx, s->attrs->eps));
    int y = by__op_onnx_node2(onnx, "Div", centered, by__op_onnx_node1(onnx, "Sqrt", variance));
    y = by__op_onnx_reshape(onnx, y, whole, shape->rank);
    y = by__op_onnx_node2(onnx, "Add", by__op_onnx_node2(onnx, "Mul", y, WEIGHT), BIAS);
    onnx->result(onnx, 0, y);
    return BY_OK;
}

const by__op_row by__op_group_norm = {.min_inputs = FORWARD_INPUTS,
                                      .max_inputs = FORWARD_INPUTS,
                                      .outputs = 3,
                                      .attrs =
                                          BY__ATTRS(BY__ATTR(groups, INT), BY__ATTR(eps, FLOAT)),
                                      .infer = infer_forward,
                                      .gradient = gradient,
                                      .onnx = onnx,
                                      .cost = cost,
                                      .gains = 1u << WEIGHT | 1u << BIAS,
                                      .cheap = true,
                                      .keeps_f32 = 1u << WEIGHT | 1u << BIAS};
const by__op_row by__op_group_norm_grad = {.min_inputs = GRAD_INPUTS,
                                           .max_inputs = GRAD_INPUTS,
                                           .outputs = 3,
                                           .attrs = BY__ATTRS(BY__ATTR(groups, INT)),
                                           .infer = infer_gradient,
                                           .cost = cost,
                                           .overlay = {1u << GRAD_X | 1u << GRAD_DY},
                                           .keeps_f32 = 1u << GRAD_WEIGHT | 1u << GRAD_MEAN |
                                                        1u << GRAD_RSTD};

by_value by_group_norm(by_graph *graph, by_value x, by_value weight, by_value bias, int64_t groups,
                       float eps)
{
    by_attrs attrs = {.groups = groups, .eps = eps};
    by_value in[FORWARD_INPUTS] = {x, weight, bias};
    return by__op_add_node(graph, BY_OP_GROUP_NORM, &attrs, in, FORWARD_INPUTS, NULL);
}
