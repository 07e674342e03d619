/* Recurrent layers: long short-term memory (Hochreiter and Schmidhuber 1997) and gated recurrent
 * units (Cho et al. 2014). The gradients of the operands are products over all steps of what the
 * ops LSTM_GRAD and GRU_GRAD deliver, the gradients of the sums in the gates. */
#include "ops/ops.h"

enum { X, INPUT, HIDDEN, INPUT_BIAS, HIDDEN_BIAS, FORWARD_INPUTS };
/* SAVED: the cells of an LSTM, y of a GRU. */
enum { GRAD_GATES, GRAD_SAVED, GRAD_HIDDEN, GRAD_DY, GRAD_INPUTS };
enum { LSTM_GATES = 4, GRU_GATES = 3, SAVED_GATES = 4 };

static bool is_matrix(const by__graph_type *type, by_dtype dtype, int64_t rows, int64_t columns)
{
    return type->dtype == dtype && type->shape.rank == 2 && type->shape.dim[0] == rows &&
           type->shape.dim[1] == columns;
}

static bool is_vector(const by__graph_type *type, int64_t n)
{
    return type->dtype == BY_F32 && type->shape.rank == 1 && type->shape.dim[0] == n;
}

static by__graph_type steps_of(const by__graph_type *x, by_dtype dtype, int64_t width)
{
    return (by__graph_type){dtype, BY_SHAPE(x->shape.dim[0], x->shape.dim[1], width)};
}

static by_status infer_forward(const by__op_signature *s, int64_t gates, by__graph_type *out,
                               by_error *error)
{
    const by__graph_type *x = &s->in[X];
    const by__graph_type *hidden = &s->in[HIDDEN];
    if (!by__op_is_act(x->dtype) || x->shape.rank != 3) {
        return by__op_refuse(s, error, "the operand must be [samples, steps, channels] of floats");
    }
    int64_t width = hidden->shape.rank == 2 ? hidden->shape.dim[1] : 0;
    if (!is_matrix(hidden, x->dtype, gates * width, width) ||
        !is_matrix(&s->in[INPUT], x->dtype, gates * width, x->shape.dim[2])) {
        return by__op_refuse(s, error,
                             "the weights must be [gates states, channels] and [gates states, "
                             "states] of the operand's dtype");
    }
    if (!is_vector(&s->in[INPUT_BIAS], gates * width) ||
        !is_vector(&s->in[HIDDEN_BIAS], gates * width)) {
        return by__op_refuse(s, error, "the biases must be f32 [gates states]");
    }
    out[0] = steps_of(x, x->dtype, width);
    out[1] = steps_of(x, BY_F32, SAVED_GATES * width);
    out[2] = steps_of(x, BY_F32, width);
    return BY_OK;
}

static by_status infer_lstm(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    return infer_forward(s, LSTM_GATES, out, error);
}

static by_status infer_gru(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    by__graph_type all[3];
    BY_TRY(infer_forward(s, GRU_GATES, all, error));
    out[0] = all[0];
    out[1] = all[1];
    return BY_OK;
}

static by_status infer_gradient(const by__op_signature *s, int64_t gates, by_dtype saved,
                                by__graph_type *out, by_error *error)
{
    const by__graph_type *dy = &s->in[GRAD_DY];
    if (!by__op_is_act(dy->dtype) || dy->shape.rank != 3) {
        return by__op_refuse(s, error, "dy must be [samples, steps, states] of floats");
    }
    int64_t width = dy->shape.dim[2];
    by__graph_type want_gates = steps_of(dy, BY_F32, SAVED_GATES * width);
    by__graph_type want_saved = steps_of(dy, saved, width);
    if (!by__op_type_equal(&s->in[GRAD_GATES], &want_gates) ||
        !by__op_type_equal(&s->in[GRAD_SAVED], &want_saved) ||
        !is_matrix(&s->in[GRAD_HIDDEN], dy->dtype, gates * width, width)) {
        return by__op_refuse(s, error, "gates, states and weights must be those of the layer");
    }
    out[0] = steps_of(dy, dy->dtype, gates * width);
    return BY_OK;
}

static by_status infer_lstm_grad(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    return infer_gradient(s, LSTM_GATES, BY_F32, out, error);
}

static by_status infer_gru_grad(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(infer_gradient(s, GRU_GATES, s->in[GRAD_DY].dtype, out, error));
    out[1] = out[0];
    return BY_OK;
}

/* Gradients of the operands from those of the sums that the input's product and the states' product
 * are part of, [B, T, gates H] each. */
static void operand_gradients(by_graph *graph, const by__graph_node *node, by_value input_sums,
                              by_value hidden_sums, by_value *din)
{
    by_value x = node->in[X];
    by_value w = node->in[INPUT];
    by_value u = node->in[HIDDEN];
    int64_t steps = graph->values[x].shape.dim[1];
    din[X] = by__op_matmul_full(graph, input_sums, w, BY_NONE, BY_NONE, false, false,
                                by__op_gradient_dtype(graph, x));
    din[INPUT] = by__op_matmul_full(graph, input_sums, x, BY_NONE, BY_NONE, true, false,
                                    by__op_gradient_dtype(graph, w));
    if (steps > 1) { /* with the states before each step */
        by_value before =
            by_pad(graph, by_slice(graph, node->out[0], 1, 0, steps - 1), 1, 1, steps);
        din[HIDDEN] = by__op_matmul_full(graph, hidden_sums, before, BY_NONE, BY_NONE, true, false,
                                         by__op_gradient_dtype(graph, u));
    } else {
        din[HIDDEN] = by_fill(graph, by__op_gradient_dtype(graph, u), graph->values[u].shape, 0.0f);
    }
    din[INPUT_BIAS] = by__op_build_sum_rows(graph, input_sums, 2);
    din[HIDDEN_BIAS] =
        hidden_sums == input_sums ? din[INPUT_BIAS] : by__op_build_sum_rows(graph, hidden_sums, 2);
}

static by_value as_dtype_of(by_graph *graph, by_value dy, by_value y)
{
    by_dtype dtype = graph->values[y].dtype;
    return graph->values[dy].dtype == dtype ? dy : by_cast(graph, dy, dtype);
}

static void gradient_lstm(by_graph *graph, const by__graph_node *node, const by_value *dout,
                          by_value *din)
{
    by_value dy = as_dtype_of(graph, dout[0], node->out[0]);
    const by_value in[GRAD_INPUTS] = {node->out[1], node->out[2], node->in[HIDDEN], dy};
    by_value dz = by__op_add_node(graph, BY_OP_LSTM_GRAD, &node->attrs, in, GRAD_INPUTS, NULL);
    operand_gradients(graph, node, dz, dz, din);
}

static void gradient_gru(by_graph *graph, const by__graph_node *node, const by_value *dout,
                         by_value *din)
{
    by_value sums[BY_MAX_OUTPUTS];
    by_value dy = as_dtype_of(graph, dout[0], node->out[0]);
    const by_value in[GRAD_INPUTS] = {node->out[1], node->out[0], node->in[HIDDEN], dy};
    if (by__op_add_node(graph, BY_OP_GRU_GRAD, &node->attrs, in, GRAD_INPUTS, sums) != BY_NONE) {
        operand_gradients(graph, node, sums[0], sums[1], din);
    }
}

static void cost_forward(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    const by_shape *x = &s->in[X].shape;
    double weights =
        (double)by_shape_count(&s->in[INPUT].shape) + (double)by_shape_count(&s->in[HIDDEN].shape);
    BY_UNUSED(out);
    cost->flops = 2.0 * (double)by__op_rows(x) * weights;
}

static void cost_gradient(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 2.0 * (double)by__op_rows(&s->in[GRAD_DY].shape) *
                  (double)by_shape_count(&s->in[GRAD_HIDDEN].shape);
}

/* ---- ONNX: one direction, and the gates in another order ---- */

/* The blocks of rows of w, one a gate, in the order of ONNX. */
static int in_order(by__op_onnx *onnx, int w, int64_t width, const int *order, int gates)
{
    int64_t sizes[LSTM_GATES] = {0};
    int parts[LSTM_GATES];
    for (int i = 0; i < gates; i++) {
        sizes[i] = width;
    }
    int first = by__op_onnx_split(onnx, w, 0, sizes, gates);
    for (int i = 0; i < gates; i++) {
        parts[i] = first + order[i];
    }
    int all = onnx->node(onnx, "Concat", parts, gates, 1);
    onnx->set_int(onnx, "axis", 0);
    return all;
}

static int matrix_of_onnx(by__op_onnx *onnx, int w, const by_shape *shape, const int *order,
                          int gates)
{
    const int64_t one[3] = {1, shape->dim[0], shape->dim[1]};
    return by__op_onnx_reshape(onnx, in_order(onnx, w, shape->dim[0] / gates, order, gates), one,
                               3);
}

/* Appends the node; its first result is [T, 1, B, H]. */
static void onnx_layer(const by__op_signature *s, by__op_onnx *onnx, const char *type,
                       const int *order, int gates)
{
    static const int64_t steps_first[3] = {1, 0, 2};
    static const int64_t samples_first[4] = {2, 0, 1, 3};
    int64_t width = s->in[HIDDEN].shape.dim[1];
    const int64_t both[2] = {1, 2 * gates * width};
    /* 0: the extent of the batch, as it is. */
    const int64_t result[3] = {0, s->in[X].shape.dim[1], width};
    const int biases[2] = {in_order(onnx, INPUT_BIAS, width, order, gates),
                           in_order(onnx, HIDDEN_BIAS, width, order, gates)};
    int bias = onnx->node(onnx, "Concat", biases, 2, 1);
    onnx->set_int(onnx, "axis", 0);
    const int in[4] = {by__op_onnx_transpose(onnx, X, steps_first, 3),
                       matrix_of_onnx(onnx, INPUT, &s->in[INPUT].shape, order, gates),
                       matrix_of_onnx(onnx, HIDDEN, &s->in[HIDDEN].shape, order, gates),
                       by__op_onnx_reshape(onnx, bias, both, 2)};
    int y = onnx->node(onnx, type, in, 4, 1);
    onnx->set_int(onnx, "hidden_size", width);
    if (gates == GRU_GATES) {
        onnx->set_int(onnx, "linear_before_reset", 1);
    }
    y = by__op_onnx_transpose(onnx, y, samples_first, 4);
    onnx->result(onnx, 0, by__op_onnx_reshape(onnx, y, result, 3));
}

static by_status onnx_lstm(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                           by_error *error)
{
    static const int order[LSTM_GATES] = {0, 3, 1, 2}; /* input, output, forget, cell */
    BY_UNUSED(out);
    BY_UNUSED(error);
    onnx_layer(s, onnx, "LSTM", order, LSTM_GATES);
    return BY_OK;
}

static by_status onnx_gru(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                          by_error *error)
{
    static const int order[GRU_GATES] = {1, 0, 2}; /* update, reset, new */
    BY_UNUSED(out);
    BY_UNUSED(error);
    onnx_layer(s, onnx, "GRU", order, GRU_GATES);
    return BY_OK;
}

/* ---- rows ---- */

#define FORWARD(name, count)                                                                       \
    {                                                                                              \
        .min_inputs = FORWARD_INPUTS, .max_inputs = FORWARD_INPUTS, .outputs = (count),            \
        .infer = infer_##name, .gradient = gradient_##name, .onnx = onnx_##name,                   \
        .cost = cost_forward, .factors = 1u << X | 1u << INPUT | 1u << HIDDEN,                     \
        .keeps_f32 = 1u << INPUT_BIAS | 1u << HIDDEN_BIAS                                          \
    }
const by__op_row by__op_lstm = FORWARD(lstm, 3);
const by__op_row by__op_gru = FORWARD(gru, 2);
const by__op_row by__op_lstm_grad = {.min_inputs = GRAD_INPUTS,
                                     .max_inputs = GRAD_INPUTS,
                                     .outputs = 1,
                                     .infer = infer_lstm_grad,
                                     .cost = cost_gradient,
                                     .overlay = {1u << GRAD_GATES},
                                     .keeps_f32 = 1u << GRAD_GATES | 1u << GRAD_SAVED};
const by__op_row by__op_gru_grad = {.min_inputs = GRAD_INPUTS,
                                    .max_inputs = GRAD_INPUTS,
                                    .outputs = 2,
                                    .infer = infer_gru_grad,
                                    .cost = cost_gradient,
                                    .keeps_f32 = 1u << GRAD_GATES};

static by_value add_layer(by_graph *graph, by_op op, by_value x, const by_recurrent_weights *w)
{
    const by_value in[FORWARD_INPUTS] = {x, w->input, w->hidden, w->input_bias, w->hidden_bias};
    return by__op_add_node(graph, op, &(by_attrs){0}, in, FORWARD_INPUTS, NULL);
}

by_value by_lstm(by_graph *graph, by_value x, const by_recurrent_weights *weights)
{
    return add_layer(graph, BY_OP_LSTM, x, weights);
}

by_value by_gru(by_graph *graph, by_value x, const by_recurrent_weights *weights)
{
    return add_layer(graph, BY_OP_GRU, x, weights);
}
