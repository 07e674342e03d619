/* Convolutions of images, channels last, and their gradients, which are convolutions as well: that
 * of the operand is the transposed map, a forward op of its own. */
#include "ops/ops.h"

/* Number of windows along axis `i` (0: height) of an image of this extent; 0 or less: none fits. */
static int64_t count_windows(const by_window *window, int i, int64_t extent, int64_t size)
{
    int64_t room =
        extent + window->before[i] + window->after[i] - window->dilation[i] * (size - 1) - 1;
    return room < 0 ? 0 : room / window->stride[i] + 1;
}

/* The extent of the image of which that many windows cover all but nothing. */
static int64_t covered(const by_window *window, int i, int64_t count, int64_t size)
{
    return (count - 1) * window->stride[i] + window->dilation[i] * (size - 1) + 1 -
           window->before[i] - window->after[i];
}

/* What the three ops have in common: x and y are the operand and the result of a CONV. Returns
 * NULL, or what is wrong. */
static const char *wrong_types(const by__op_signature *s, const by__graph_type *x,
                               const by__graph_type *other)
{
    if (!by__op_is_act(x->dtype) || x->dtype != other->dtype || !by__op_is_act(s->attrs->dtype) ||
        x->shape.rank != 4 || other->shape.rank != 4) {
        return "operands must be f32, bf16 or f16 tensors of rank 4 and one dtype";
    }
    return s->attrs->groups < 1 ? "there must be one group or more" : NULL;
}

/* Whether a window of this size, dilated, stays within numbers that can be added. */
static bool is_sane(const by_window *window, const int64_t *size)
{
    const int64_t most = (int64_t)1 << 40;
    return size[0] > 0 && size[1] > 0 && size[0] < most / window->dilation[0] &&
           size[1] < most / window->dilation[1];
}

/* Refuses a bias or an addend that does not fit y. */
static by_status check_additions(const by__op_signature *s, const by__graph_type *y,
                                 by_error *error)
{
    if (s->input_count > 2 && !by__absent(&s->in[2])) {
        const by__graph_type *bias = &s->in[2];
        if (bias->shape.rank != 1 || bias->shape.dim[0] != y->shape.dim[3] ||
            !by__op_is_act(bias->dtype)) {
            return by__op_refuse(s, error, "the bias must be [channels of the result]");
        }
    }
    if (s->input_count > 3 && !by__absent(&s->in[3]) && !by__op_type_equal(&s->in[3], y)) {
        return by__op_refuse(s, error, "the added tensor must have the result's shape and dtype");
    }
    return BY_OK;
}

static by_status infer_conv(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_shape *x = &s->in[0].shape;
    const by_shape *w = &s->in[1].shape;
    const by_window *window = &s->attrs->sliding;
    const char *wrong = wrong_types(s, &s->in[0], &s->in[1]);
    if (wrong != NULL) {
        return by__op_refuse(s, error, wrong);
    }
    int64_t groups = s->attrs->groups;
    if (w->dim[0] % groups != 0 || x->dim[3] % groups != 0 || x->dim[3] / groups != w->dim[1]) {
        return by__op_refuse(s, error,
                             "the weights must be [outputs, channels / groups, height, width], and "
                             "groups must divide outputs and channels");
    }
    if (!is_sane(window, w->dim + 2)) {
        return by__op_refuse(s, error, "the window is empty or too large");
    }
    out[0] = (by__graph_type){.dtype = s->attrs->dtype, .shape = *x};
    for (int i = 0; i < 2; i++) {
        out[0].shape.dim[1 + i] = count_windows(window, i, x->dim[1 + i], w->dim[2 + i]);
        if (out[0].shape.dim[1 + i] < 1) {
            return by__op_refuse(s, error, "the window does not fit into the image");
        }
    }
    out[0].shape.dim[3] = w->dim[0];
    return check_additions(s, &out[0], error);
}

static by_status infer_transposed(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_shape *x = &s->in[0].shape;
    const by_shape *w = &s->in[1].shape;
    const by_window *window = &s->attrs->sliding;
    const char *wrong = wrong_types(s, &s->in[0], &s->in[1]);
    if (wrong != NULL) {
        return by__op_refuse(s, error, wrong);
    }
    if (w->dim[0] % s->attrs->groups != 0 || x->dim[3] != w->dim[0]) {
        return by__op_refuse(s, error,
                             "the weights must be [channels, outputs / groups, height, width], and "
                             "groups must divide the channels");
    }
    if (!is_sane(window, w->dim + 2)) {
        return by__op_refuse(s, error, "the window is empty or too large");
    }
    out[0] = (by__graph_type){.dtype = s->attrs->dtype, .shape = *x};
    for (int i = 0; i < 2; i++) {
        if (x->dim[1 + i] > ((int64_t)1 << 40) / window->stride[i]) {
            return by__op_refuse(s, error, "the result is too large");
        }
        out[0].shape.dim[1 + i] = covered(window, i, x->dim[1 + i], w->dim[2 + i]);
        if (out[0].shape.dim[1 + i] < 1) {
            return by__op_refuse(s, error, "the padding leaves nothing of the result");
        }
    }
    if (!by__size_mul((size_t)w->dim[1], (size_t)s->attrs->groups, &(size_t){0})) {
        return by__op_refuse(s, error, "the result is too large");
    }
    out[0].shape.dim[3] = w->dim[1] * s->attrs->groups;
    return check_additions(s, &out[0], error);
}

static by_status infer_weight_grad(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_shape *x = &s->in[0].shape;
    const by_shape *dy = &s->in[1].shape;
    const by_window *window = &s->attrs->sliding;
    const char *wrong = wrong_types(s, &s->in[0], &s->in[1]);
    if (wrong != NULL) {
        return by__op_refuse(s, error, wrong);
    }
    int64_t groups = s->attrs->groups;
    if (!is_sane(window, window->size)) {
        return by__op_refuse(s, error, "the window is empty or too large");
    }
    if (x->dim[0] != dy->dim[0] || x->dim[3] % groups != 0 || dy->dim[3] % groups != 0 ||
        count_windows(window, 0, x->dim[1], window->size[0]) != dy->dim[1] ||
        count_windows(window, 1, x->dim[2], window->size[1]) != dy->dim[2]) {
        return by__op_refuse(s, error, "the operands do not belong to one convolution");
    }
    out[0] = (by__graph_type){
        .dtype = s->attrs->dtype,
        .shape = BY_SHAPE(dy->dim[3], x->dim[3] / groups, window->size[0], window->size[1])};
    return BY_OK;
}

/* dw from the operand and the gradient of the result of a CONV with these weights. */
static by_value weight_gradient(by_graph *graph, const by__graph_node *node, by_value x,
                                by_value dy)
{
    const by_shape *w = &graph->values[node->in[1]].shape;
    by_attrs attrs = node->attrs;
    attrs.dtype = by__op_gradient_dtype(graph, node->in[1]);
    attrs.sliding.size[0] = w->dim[2];
    attrs.sliding.size[1] = w->dim[3];
    by_value in[2] = {x, dy};
    return by__op_add_node(graph, BY_OP_CONV_WEIGHT_GRAD, &attrs, in, 2, NULL);
}

/* The gradients of bias and addend, which both ops have at the same places. */
static void gradient_of_additions(by_graph *graph, const by__graph_node *node, by_value dy,
                                  by_value *din)
{
    if (node->input_count > 2 && node->in[2] != BY_NONE) {
        din[2] = by__op_build_sum_rows(graph, dy, 3);
    }
    if (node->input_count > 3 && node->in[3] != BY_NONE) {
        din[3] = dy;
    }
}

static by_value in_dtype_of(by_graph *graph, by_value value, by_value model)
{
    by_dtype dtype = graph->values[model].dtype;
    return graph->values[value].dtype == dtype ? value : by_cast(graph, value, dtype);
}

static void gradient_conv(by_graph *graph, const by__graph_node *node, const by_value *dout,
                          by_value *din)
{
    by_value dy = in_dtype_of(graph, dout[0], node->in[0]);
    by_shape x = graph->values[node->in[0]].shape;
    by_shape w = graph->values[node->in[1]].shape;
    by_shape y = graph->values[node->out[0]].shape;
    by_attrs attrs = node->attrs;
    attrs.dtype = by__op_gradient_dtype(graph, node->in[0]);
    for (int i = 0; i < 2; i++) { /* rows that no window reaches belong to the result as well */
        int64_t reached = covered(&attrs.sliding, i, y.dim[1 + i], w.dim[2 + i]);
        attrs.sliding.after[i] -= x.dim[1 + i] - reached;
    }
    by_value in[2] = {dy, node->in[1]};
    din[0] = by__op_add_node(graph, BY_OP_CONV_TRANSPOSED, &attrs, in, 2, NULL);
    din[1] = weight_gradient(graph, node, node->in[0], dy);
    gradient_of_additions(graph, node, dout[0], din);
}

static void gradient_transposed(by_graph *graph, const by__graph_node *node, const by_value *dout,
                                by_value *din)
{
    by_value dy = in_dtype_of(graph, dout[0], node->in[0]);
    by_attrs attrs = node->attrs;
    attrs.dtype = by__op_gradient_dtype(graph, node->in[0]);
    by_value in[2] = {dy, node->in[1]};
    din[0] = by__op_add_node(graph, BY_OP_CONV, &attrs, in, 2, NULL);
    din[1] = weight_gradient(graph, node, dy, node->in[0]);
    gradient_of_additions(graph, node, dout[0], din);
}

/* Each element of the smaller image is multiplied with the weights of its output (or of its
 * channel) at every entry of the window, whether inside the image or not. */
static void cost_conv(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    const by_shape *w = &s->in[1].shape;
    cost->flops =
        2.0 * (double)by_shape_count(&out[0].shape) * (double)(w->dim[1] * w->dim[2] * w->dim[3]);
}

static void cost_transposed(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    const by_shape *w = &s->in[1].shape;
    BY_UNUSED(out);
    cost->flops =
        2.0 * (double)by_shape_count(&s->in[0].shape) * (double)(w->dim[1] * w->dim[2] * w->dim[3]);
}

static void cost_weight_grad(const by__op_signature *s, const by__graph_type *out,
                             by__op_cost *cost)
{
    const by_shape *w = &out[0].shape;
    cost->flops =
        2.0 * (double)by_shape_count(&s->in[1].shape) * (double)(w->dim[1] * w->dim[2] * w->dim[3]);
}

/* ---- ranks ---- */

static bool additions_match(const by__op_signature *s, const by__op_sharding *sh)
{
    by__graph_split y = sh->out[0];
    by__graph_split bias = y.axis == 3 ? (by__graph_split){0, y.sections} : by__op_whole();
    return (s->input_count <= 2 || by__absent(&s->in[2]) || by__op_split_equal(sh->in[2], bias)) &&
           (s->input_count <= 3 || by__absent(&s->in[3]) || by__op_split_equal(sh->in[3], y));
}

/* The result is split like the examples of x or the outputs, axis `outputs` of w, or is an addend
 * if the axis that is summed is split. Only whole groups could be split, which nothing asks for. */
static bool shard_map(const by__op_signature *s, by__op_sharding *sh, int outputs)
{
    by__graph_split x = sh->in[0];
    by__graph_split w = sh->in[1];
    if (x.axis == 0 && w.axis == BY__WHOLE) {
        sh->out[0] = x;
        return additions_match(s, sh);
    }
    if (s->attrs->groups != 1) {
        return false;
    }
    if (x.axis == BY__WHOLE && w.axis == outputs) {
        sh->out[0] = (by__graph_split){3, w.sections};
        return additions_match(s, sh);
    }
    if (x.axis == 3 && w.axis == 1 - outputs && x.sections == w.sections) {
        sh->out[0] = by__op_partial();
        sh->once = 1u << 2 | 1u << 3;
        return by__op_shard_all_whole_but(sh, s->input_count, 1u << 0 | 1u << 1);
    }
    return false;
}

static bool shard_conv(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    BY_UNUSED(out);
    return shard_map(s, sh, 0);
}

static bool shard_transposed(const by__op_signature *s, const by__graph_type *out,
                             by__op_sharding *sh)
{
    BY_UNUSED(out);
    return shard_map(s, sh, 1);
}

static bool shard_weight_grad(const by__op_signature *s, const by__graph_type *out,
                              by__op_sharding *sh)
{
    by__graph_split x = sh->in[0];
    by__graph_split dy = sh->in[1];
    BY_UNUSED(out);
    if (x.axis == 0 && dy.axis == 0 && x.sections == dy.sections) {
        sh->out[0] = by__op_partial();
        return true;
    }
    if (s->attrs->groups != 1) {
        return false;
    }
    if (x.axis == BY__WHOLE && dy.axis == 3) {
        sh->out[0] = (by__graph_split){0, dy.sections};
        return true;
    }
    sh->out[0] = (by__graph_split){1, x.sections};
    return x.axis == 3 && dy.axis == BY__WHOLE;
}

/* ---- export ---- */

/* ONNX has channels first. */
static const int64_t first[4] = {0, 3, 1, 2};
static const int64_t last[4] = {0, 2, 3, 1};

/* Appends the node of this type and sets what both have. Returns its result, channels first. */
static int onnx_node(const by__op_signature *s, by__op_onnx *onnx, const char *type)
{
    const by_window *window = &s->attrs->sliding;
    bool biased = s->input_count > 2 && !by__absent(&s->in[2]);
    const int in[3] = {by__op_onnx_transpose(onnx, 0, first, 4), 1, 2};
    int y = onnx->node(onnx, type, in, biased ? 3 : 2, 1);
    onnx->set_ints(onnx, "kernel_shape", s->in[1].shape.dim + 2, 2);
    onnx->set_ints(onnx, "strides", window->stride, 2);
    onnx->set_ints(onnx, "dilations", window->dilation, 2);
    onnx->set_int(onnx, "group", s->attrs->groups);
    return y;
}

static void onnx_result(const by__op_signature *s, by__op_onnx *onnx, int y)
{
    y = by__op_onnx_transpose(onnx, y, last, 4);
    if (s->input_count > 3 && !by__absent(&s->in[3])) {
        y = by__op_onnx_node2(onnx, "Add", y, 3);
    }
    onnx->result(onnx, 0, y);
}

static by_status onnx_conv(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                           by_error *error)
{
    const by_window *w = &s->attrs->sliding;
    BY_UNUSED(out);
    if (w->after[0] < 0 || w->after[1] < 0) {
        return by__op_refuse(s, error, "a convolution of a part of an image has no form in ONNX");
    }
    int y = onnx_node(s, onnx, "Conv");
    const int64_t pads[4] = {w->before[0], w->before[1], w->after[0], w->after[1]};
    onnx->set_ints(onnx, "pads", pads, 4);
    onnx_result(s, onnx, y);
    return BY_OK;
}

static by_status onnx_transposed(const by__op_signature *s, const by__graph_type *out,
                                 by__op_onnx *onnx, by_error *error)
{
    const by_window *w = &s->attrs->sliding;
    BY_UNUSED(out);
    int64_t pads[4] = {w->before[0], w->before[1], w->after[0], w->after[1]};
    int64_t more[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        if (pads[2 + i] < 0) {
            more[i] = -pads[2 + i];
            pads[2 + i] = 0;
        }
        if (more[i] >= w->stride[i] && more[i] >= w->dilation[i]) {
            return by__op_refuse(s, error, "rows that no window reaches have no form in ONNX");
        }
    }
    int y = onnx_node(s, onnx, "ConvTranspose");
    onnx->set_ints(onnx, "pads", pads, 4);
    onnx->set_ints(onnx, "output_padding", more, 2);
    onnx_result(s, onnx, y);
    return BY_OK;
}

/* ---- rows ---- */

static const by__op_attr attrs_of_all[] = {
    BY__ATTR_AS("window", sliding, WINDOW, 0),
    BY__ATTR(groups, INT),
    BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE | BY__ATTR_COMPUTE),
    {NULL, 0, BY__ATTR_FLAG, 0},
};

/* Of both directions. */
#define ROW(name)                                                                                  \
    {                                                                                              \
        .min_inputs = 2, .max_inputs = 4, .outputs = 1, .optional = 1u << 2 | 1u << 3,             \
        .attrs = attrs_of_all, .infer = infer_##name, .onnx = onnx_##name,                         \
        .gradient = gradient_##name, .cost = cost_##name, .factors = 1u << 0 | 1u << 1,            \
        .addend = 3, .shard = shard_##name                                                         \
    }

const by__op_row by__op_conv = ROW(conv);
const by__op_row by__op_conv_transposed = ROW(transposed);
const by__op_row by__op_conv_weight_grad = {.min_inputs = 2,
                                            .max_inputs = 2,
                                            .outputs = 1,
                                            .attrs = attrs_of_all,
                                            .infer = infer_weight_grad,
                                            .cost = cost_weight_grad,
                                            .factors = 1u << 0 | 1u << 1,
                                            .shard = shard_weight_grad};

by_window by_window_square(int64_t size, int64_t stride, int64_t padding)
{
    return (by_window){.size = {size, size},
                       .stride = {stride, stride},
                       .dilation = {1, 1},
                       .before = {padding, padding},
                       .after = {padding, padding}};
}

static by_value build(by_graph *graph, by_op op, const by_value in[3], const by_window *window,
                      int64_t groups)
{
    by_attrs attrs = {.sliding = *window, .groups = groups, .dtype = BY_F32};
    if (by__graph_has(graph, in[0])) {
        attrs.dtype = graph->values[in[0]].dtype;
    }
    attrs.sliding.size[0] = attrs.sliding.size[1] = 0;
    return by__op_add_node(graph, op, &attrs, in, in[2] == BY_NONE ? 2 : 3, NULL);
}

by_value by_conv(by_graph *graph, by_value x, by_value weight, by_value bias,
                 const by_window *window, int64_t groups)
{
    const by_value in[3] = {x, weight, bias};
    return build(graph, BY_OP_CONV, in, window, groups);
}

by_value by_conv_transposed(by_graph *graph, by_value x, by_value weight, by_value bias,
                            const by_window *window, int64_t groups)
{
    const by_value in[3] = {x, weight, bias};
    return build(graph, BY_OP_CONV_TRANSPOSED, in, window, groups);
}
