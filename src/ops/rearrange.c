/* Operations that only move elements: constants, views, permutations, slices. */
#include "ops/ops.h"

#define MAX_PARTS 8 /* of a concatenation */

static by_status infer_fill(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (!by__op_is_act(s->attrs->dtype) || s->attrs->shape.rank < 1) {
        return by__op_refuse(s, error, "a constant is f32, bf16 or f16 and has at least one axis");
    }
    out[0] = (by__graph_type){s->attrs->dtype, s->attrs->shape};
    return BY_OK;
}

static bool is_shape(const by_shape *shape)
{
    if (shape->rank < 0 || shape->rank > BY_MAX_RANK) {
        return false;
    }
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 1 || shape->dim[i] > (int64_t)1 << 40) {
            return false;
        }
    }
    return true;
}

/* Like by_shape_count, but returns -1 if the product overflows. */
static int64_t checked_count(const by_shape *shape)
{
    size_t count = 1;
    if (!is_shape(shape)) {
        return -1;
    }
    for (int i = 0; i < shape->rank; i++) {
        if (!by__size_mul(count, (size_t)shape->dim[i], &count)) {
            return -1;
        }
    }
    return count > INT64_MAX ? -1 : (int64_t)count;
}

static by_status infer_reshape(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    char shape[128];
    if (checked_count(&s->attrs->shape) != by_shape_count(&s->in[0].shape)) {
        by_status status = by__op_refuse(s, error, "the new shape has another number of elements");
        return by_error_prefix(error, status, "to %s", by_shape_print(&s->attrs->shape, shape));
    }
    out[0] = (by__graph_type){s->in[0].dtype, s->attrs->shape};
    return BY_OK;
}

static void gradient_reshape(by_graph *graph, const by__graph_node *node, const by_value *dout,
                             by_value *din)
{
    din[0] = by_reshape(graph, dout[0], graph->values[node->in[0]].shape);
}

static by_status infer_permute(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_shape *x = &s->in[0].shape;
    uint32_t seen = 0;
    out[0] = s->in[0];
    for (int i = 0; i < x->rank; i++) {
        int from = s->attrs->order[i];
        if (from < 0 || from >= x->rank || (seen >> from & 1u) != 0) {
            return by__op_refuse(s, error, "the order must name each axis once");
        }
        seen |= 1u << from;
        out[0].shape.dim[i] = x->dim[from];
    }
    return BY_OK;
}

static void gradient_permute(by_graph *graph, const by__graph_node *node, const by_value *dout,
                             by_value *din)
{
    int back[BY_MAX_RANK] = {0};
    for (int i = 0; i < graph->values[node->in[0]].shape.rank; i++) {
        back[node->attrs.order[i]] = i;
    }
    din[0] = by_permute(graph, dout[0], back);
}

static bool has_axis(const by__op_signature *s)
{
    return s->attrs->axis >= 0 && s->attrs->axis < s->in[0].shape.rank;
}

static by_status infer_concat(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    int64_t axis = s->attrs->axis;
    out[0] = s->in[0];
    for (int i = 0; i < s->input_count; i++) {
        by__graph_type like = s->in[i];
        if (!has_axis(s) || like.shape.rank != s->in[0].shape.rank) {
            return by__op_refuse(s, error, "the operands must have one rank and the axis");
        }
        like.shape.dim[axis] = s->in[0].shape.dim[axis];
        if (!by__op_type_equal(&like, &s->in[0])) {
            return by__op_refuse(s, error,
                                 "the operands may differ in the extent of the axis alone");
        }
        out[0].shape.dim[axis] += i > 0 ? s->in[i].shape.dim[axis] : 0;
    }
    return BY_OK;
}

static void gradient_concat(by_graph *graph, const by__graph_node *node, const by_value *dout,
                            by_value *din)
{
    int64_t begin = 0;
    for (int i = 0; i < node->input_count; i++) {
        int64_t extent = graph->values[node->in[i]].shape.dim[node->attrs.axis];
        din[i] = by_slice(graph, dout[0], (int)node->attrs.axis, begin, extent);
        begin += extent;
    }
}

static by_status infer_slice(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_attrs *a = s->attrs;
    if (!has_axis(s) || a->begin < 0 || a->rows < 1 || a->begin > s->in[0].shape.dim[a->axis] ||
        a->rows > s->in[0].shape.dim[a->axis] - a->begin) {
        return by__op_refuse(s, error, "the slice is not within the axis");
    }
    out[0] = s->in[0];
    out[0].shape.dim[a->axis] = a->rows;
    return BY_OK;
}

static void gradient_slice(by_graph *graph, const by__graph_node *node, const by_value *dout,
                           by_value *din)
{
    int64_t extent = graph->values[node->in[0]].shape.dim[node->attrs.axis];
    din[0] = by_pad(graph, dout[0], (int)node->attrs.axis, node->attrs.begin, extent);
}

static by_status infer_pad(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_attrs *a = s->attrs;
    if (!has_axis(s) || a->begin < 0 || a->rows < a->begin ||
        a->rows - a->begin < s->in[0].shape.dim[a->axis]) {
        return by__op_refuse(s, error, "the operand does not fit into the padded axis");
    }
    out[0] = s->in[0];
    out[0].shape.dim[a->axis] = a->rows;
    return BY_OK;
}

static void gradient_pad(by_graph *graph, const by__graph_node *node, const by_value *dout,
                         by_value *din)
{
    int64_t extent = graph->values[node->in[0]].shape.dim[node->attrs.axis];
    din[0] = by_slice(graph, dout[0], (int)node->attrs.axis, node->attrs.begin, extent);
}

static by_status infer_expand(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (!is_shape(&s->attrs->shape) || !by__op_broadcasts(&s->in[0].shape, &s->attrs->shape)) {
        return by__op_refuse(s, error, "the operand cannot be broadcast to the shape");
    }
    out[0] = (by__graph_type){s->in[0].dtype, s->attrs->shape};
    return BY_OK;
}

static void gradient_expand(by_graph *graph, const by__graph_node *node, const by_value *dout,
                            by_value *din)
{
    din[0] = by__op_reduce_to(graph, dout[0], node->in[0]);
}

/* ---- splits ---- */

/* Each rank makes only the piece of the constant that it reads. */
static bool shard_fill(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    BY_UNUSED(s);
    sh->out[0] = sh->want;
    sh->attrs.shape = by__op_split_shape(&out[0].shape, sh->want, sh->ranks, sh->rank);
    return sh->want.axis >= 0;
}

static bool shard_reshape(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    if (sh->in[0].axis == BY__PARTIAL) {
        sh->out[0] = by__op_partial();
        return true;
    }
    if (sh->in[0].axis < 0 ||
        !by__op_split_moved(&s->in[0].shape, sh->in[0], &out[0].shape,
                            sh->zigzag ? 2 * sh->ranks : sh->ranks, &sh->out[0])) {
        return false;
    }
    sh->attrs.shape = by__op_split_shape(&out[0].shape, sh->out[0], sh->ranks, sh->rank);
    return true;
}

static bool shard_permute(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    sh->out[0] = sh->in[0];
    for (int i = 0; i < out[0].shape.rank && sh->in[0].axis >= 0; i++) {
        if (s->attrs->order[i] == sh->in[0].axis) {
            sh->out[0].axis = i;
        }
    }
    return true;
}

/* Along the split axis, the operands are sections of equal size. */
static bool shard_concat(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    int axis = (int)s->attrs->axis;
    by__graph_split sum = sh->in[0];
    int64_t section = sum.axis < 0 ? 0 : s->in[0].shape.dim[sum.axis] / sum.sections;
    BY_UNUSED(out);
    for (int i = 1; i < s->input_count; i++) {
        by__graph_split x = sh->in[i];
        bool along =
            x.axis == axis && sum.axis == axis && s->in[i].shape.dim[axis] / x.sections == section;
        if (!along && (x.axis == axis || !by__op_split_equal(x, sh->in[0]))) {
            return false;
        }
        sum.sections += along ? x.sections : 0;
    }
    sh->out[0] = sum;
    return true;
}

/* Slices along another axis than the split one, or whole sections of that axis. */
static bool shard_slice(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    by__graph_split x = sh->in[0];
    BY_UNUSED(out);
    sh->out[0] = x;
    if (x.axis != s->attrs->axis) {
        return true;
    }
    int64_t section = s->in[0].shape.dim[x.axis] / x.sections;
    int64_t mine =
        by__op_cut(section, sh->ranks, sh->rank + 1) - by__op_cut(section, sh->ranks, sh->rank);
    sh->out[0].sections = s->attrs->rows / section;
    sh->attrs.begin = s->attrs->begin / section * mine;
    sh->attrs.rows = sh->out[0].sections * mine;
    return s->attrs->begin % section == 0 && s->attrs->rows % section == 0;
}

static bool shard_pad(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    BY_UNUSED(out);
    sh->out[0] = sh->in[0];
    return sh->in[0].axis != s->attrs->axis;
}

static bool shard_expand(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    if (sh->in[0].axis < 0 || !by__op_shard_elements(s, out, sh)) {
        return false;
    }
    sh->attrs.shape = by__op_split_shape(&out[0].shape, sh->out[0], sh->ranks, sh->rank);
    return true;
}

static void cost_move(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(s);
    BY_UNUSED(out);
    cost->flops = 0.0;
}

/* Only the selected elements are read. */
static void cost_slice(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(s);
    cost->flops = 0.0;
    cost->bytes_read = (double)by_shape_count(&out[0].shape) * (double)by_dtype_size(out[0].dtype);
}

/* ONNX value x of shape `from`, repeated to a shape. An example repeated along axis 0 is repeated
 * for the actual batch, whatever its extent; a batch that x has stays: an extent of 1 repeats
 * nothing. */
static int onnx_repeat(by__op_onnx *onnx, int x, const by_shape *from, const by_shape *to)
{
    bool batched = to->rank > 1 && to->dim[0] == onnx->batch_extent &&
                   (from->rank < to->rank || from->dim[0] == 1);
    bool kept = to->rank > 1 && from->rank == to->rank && from->dim[0] == to->dim[0];
    by_shape extents = *to;
    extents.dim[0] = kept ? 1 : to->dim[0];
    int shape = by__op_onnx_list(onnx, extents.dim + batched, to->rank - batched);
    if (batched) {
        shape = by__op_onnx_node2(onnx, "Concat", onnx->batch, shape);
        onnx->set_int(onnx, "axis", 0);
    }
    return by__op_onnx_node2(onnx, "Expand", x, shape);
}

static by_status onnx_fill(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                           by_error *error)
{
    const by_shape one = {.rank = 0};
    BY_UNUSED(error);
    int value = by__op_onnx_float(onnx, s->attrs->value);
    onnx->result(onnx, 0, onnx_repeat(onnx, value, &one, &out->shape));
    return BY_OK;
}

const by__op_row by__op_fill = {.attrs =
                                    BY__ATTRS(BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE),
                                              BY__ATTR_AS("shape", shape, SHAPE, BY__ATTR_IN_TYPE),
                                              BY__ATTR_AS("", value, FLOAT, BY__ATTR_NO_WORK)),
                                .cheap = true,
                                .outputs = 1,
                                .infer = infer_fill,
                                .onnx = onnx_fill,
                                .shard = shard_fill,
                                .cost = cost_move};
/* Leading axes that stay the same are copied from x, and a first one that does not follows from the
 * others, so that a batch may have any extent. */
static by_status onnx_reshape(const by__op_signature *s, const by__graph_type *out,
                              by__op_onnx *onnx, by_error *error)
{
    int64_t shape[BY_MAX_RANK];
    const by_shape *from = &s->in[0].shape;
    bool same = true;
    BY_UNUSED(error);
    for (int i = 0; i < out->shape.rank; i++) {
        same = same && i < from->rank && from->dim[i] == out->shape.dim[i];
        shape[i] = same ? 0 : i == 0 ? -1 : out->shape.dim[i];
    }
    onnx->result(onnx, 0, by__op_onnx_reshape(onnx, 0, shape, out->shape.rank));
    return BY_OK;
}

static by_status onnx_permute(const by__op_signature *s, const by__graph_type *out,
                              by__op_onnx *onnx, by_error *error)
{
    int64_t order[BY_MAX_RANK];
    BY_UNUSED(error);
    for (int i = 0; i < out->shape.rank; i++) {
        order[i] = s->attrs->order[i];
    }
    onnx->result(onnx, 0, by__op_onnx_transpose(onnx, 0, order, out->shape.rank));
    return BY_OK;
}

static by_status onnx_concat(const by__op_signature *s, const by__graph_type *out,
                             by__op_onnx *onnx, by_error *error)
{
    const int in[MAX_PARTS] = {0, 1, 2, 3, 4, 5, 6, 7};
    BY_UNUSED(out);
    BY_UNUSED(error);
    onnx->result(onnx, 0, onnx->node(onnx, "Concat", in, s->input_count, 1));
    onnx->set_int(onnx, "axis", s->attrs->axis);
    return BY_OK;
}

static by_status onnx_slice(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                            by_error *error)
{
    const by_attrs *a = s->attrs;
    const int in[4] = {0, by__op_onnx_list(onnx, &a->begin, 1),
                       by__op_onnx_list(onnx, (const int64_t[]){a->begin + a->rows}, 1),
                       by__op_onnx_list(onnx, &a->axis, 1)};
    BY_UNUSED(out);
    BY_UNUSED(error);
    onnx->result(onnx, 0, onnx->node(onnx, "Slice", in, 4, 1));
    return BY_OK;
}

static by_status onnx_expand(const by__op_signature *s, const by__graph_type *out,
                             by__op_onnx *onnx, by_error *error)
{
    BY_UNUSED(error);
    onnx->result(onnx, 0, onnx_repeat(onnx, 0, &s->in[0].shape, &out->shape));
    return BY_OK;
}

const by__op_row by__op_reshape = {
    .attrs = BY__ATTRS(BY__ATTR_AS("shape", shape, SHAPE, BY__ATTR_IN_TYPE)),
    .cheap = true,
    .moves = true,
    .min_inputs = 1,
    .max_inputs = 1,
    .outputs = 1,
    .infer = infer_reshape,
    .onnx = onnx_reshape,
    .shard = shard_reshape,
    .gradient = gradient_reshape,
    .cost = cost_move,
    .view = true};
const by__op_row by__op_permute = {.attrs = BY__ATTRS(BY__ATTR(order, ORDER)),
                                   .cheap = true,
                                   .moves = true,
                                   .min_inputs = 1,
                                   .max_inputs = 1,
                                   .outputs = 1,
                                   .infer = infer_permute,
                                   .onnx = onnx_permute,
                                   .shard = shard_permute,
                                   .gradient = gradient_permute,
                                   .cost = cost_move};
const by__op_row by__op_concat = {.attrs = BY__ATTRS(BY__ATTR(axis, INT)),
                                  .cheap = true,
                                  .moves = true,
                                  .min_inputs = 2,
                                  .max_inputs = MAX_PARTS,
                                  .outputs = 1,
                                  .infer = infer_concat,
                                  .onnx = onnx_concat,
                                  .shard = shard_concat,
                                  .gradient = gradient_concat,
                                  .cost = cost_move};
#define PIECE                                                                                      \
    BY__ATTRS(BY__ATTR(axis, INT), BY__ATTR(begin, INT), BY__ATTR_AS("extent", rows, INT, 0))
const by__op_row by__op_slice = {.attrs = PIECE,
                                 .cheap = true,
                                 .moves = true,
                                 .min_inputs = 1,
                                 .max_inputs = 1,
                                 .outputs = 1,
                                 .infer = infer_slice,
                                 .onnx = onnx_slice,
                                 .shard = shard_slice,
                                 .gradient = gradient_slice,
                                 .cost = cost_slice};
const by__op_row by__op_pad = {.attrs = PIECE,
                               .cheap = true,
                               .moves = true,
                               .min_inputs = 1,
                               .max_inputs = 1,
                               .outputs = 1,
                               .infer = infer_pad,
                               .shard = shard_pad,
                               .gradient = gradient_pad,
                               .cost = cost_move};
const by__op_row by__op_expand = {
    .attrs = BY__ATTRS(BY__ATTR_AS("shape", shape, SHAPE, BY__ATTR_IN_TYPE)),
    .cheap = true,
    .moves = true,
    .min_inputs = 1,
    .max_inputs = 1,
    .outputs = 1,
    .infer = infer_expand,
    .onnx = onnx_expand,
    .shard = shard_expand,
    .gradient = gradient_expand,
    .cost = cost_move};

by_value by_fill(by_graph *graph, by_dtype dtype, by_shape shape, float value)
{
    by_attrs attrs = {.dtype = dtype, .shape = shape, .value = value};
    return by__op_add_node(graph, BY_OP_FILL, &attrs, NULL, 0, NULL);
}

by_value by_reshape(by_graph *graph, by_value x, by_shape shape)
{
    by_attrs attrs = {.shape = shape};
    if (graph->error.status == BY_OK && by__graph_has(graph, x)) {
        int64_t rest = by_shape_count(&graph->values[x].shape);
        int open = -1;
        for (int i = 0; i < shape.rank && i < BY_MAX_RANK; i++) {
            if (shape.dim[i] == -1 && open < 0) {
                open = i;
            } else if (shape.dim[i] > 0 && rest % shape.dim[i] == 0) {
                rest /= shape.dim[i];
            }
        }
        if (open >= 0) {
            attrs.shape.dim[open] = rest;
        }
    }
    return by__op_add_node(graph, BY_OP_RESHAPE, &attrs, &x, 1, NULL);
}

by_value by_permute(by_graph *graph, by_value x, const int *order)
{
    by_attrs attrs = {0};
    if (graph->error.status == BY_OK && by__graph_has(graph, x)) {
        for (int i = 0; i < graph->values[x].shape.rank; i++) {
            attrs.order[i] = order[i];
        }
    }
    return by__op_add_node(graph, BY_OP_PERMUTE, &attrs, &x, 1, NULL);
}

int by__op_axis_of(const by_graph *graph, by_value x, int axis)
{
    bool known = graph->error.status == BY_OK && by__graph_has(graph, x);
    return known && axis < 0 ? axis + graph->values[x].shape.rank : axis;
}

by_value by_transpose(by_graph *graph, by_value x, int a, int b)
{
    int order[BY_MAX_RANK] = {0, 1, 2, 3, 4, 5};
    int from = by__op_axis_of(graph, x, a);
    int to = by__op_axis_of(graph, x, b);
    if (from < 0 || from >= BY_MAX_RANK || to < 0 || to >= BY_MAX_RANK) {
        by__graph_fail(graph, BY_EARG, "transpose: there are no axes %d and %d", a, b);
        return BY_NONE;
    }
    order[from] = to;
    order[to] = from;
    return by_permute(graph, x, order);
}

by_value by_concat(by_graph *graph, const by_value *parts, int count, int axis)
{
    by_attrs attrs = {.axis = by__op_axis_of(graph, count > 0 ? parts[0] : BY_NONE, axis)};
    return by__op_add_node(graph, BY_OP_CONCAT, &attrs, parts, count, NULL);
}

by_value by_slice(by_graph *graph, by_value x, int axis, int64_t begin, int64_t extent)
{
    by_attrs attrs = {.axis = by__op_axis_of(graph, x, axis), .begin = begin, .rows = extent};
    return by__op_add_node(graph, BY_OP_SLICE, &attrs, &x, 1, NULL);
}

by_value by_pad(by_graph *graph, by_value x, int axis, int64_t begin, int64_t extent)
{
    by_attrs attrs = {.axis = by__op_axis_of(graph, x, axis), .begin = begin, .rows = extent};
    return by__op_add_node(graph, BY_OP_PAD, &attrs, &x, 1, NULL);
}

by_value by_expand(by_graph *graph, by_value x, by_shape shape)
{
    by_attrs attrs = {.shape = shape};
    return by__op_add_node(graph, BY_OP_EXPAND, &attrs, &x, 1, NULL);
}

by_value by_patches(by_graph *graph, by_value images, int64_t size)
{
    static const int order[BY_MAX_RANK] = {0, 2, 4, 1, 3, 5};
    if (graph->error.status != BY_OK || !by__graph_has(graph, images)) {
        by__graph_fail(graph, BY_EARG, "patches: the images are not a value of this graph");
        return BY_NONE;
    }
    by_shape s = graph->values[images].shape;
    char text[128];
    if (s.rank != 4 || size < 1 || s.dim[2] % size != 0 || s.dim[3] % size != 0) {
        by__graph_fail(graph, BY_EARG,
                       "patches: images must be [batch, channels, height, width] and patches of "
                       "%lld x %lld divide them; the images are %s",
                       (long long)size, (long long)size, by_shape_print(&s, text));
        return BY_NONE;
    }
    int64_t down = s.dim[2] / size;
    int64_t across = s.dim[3] / size;
    by_value cells =
        by_reshape(graph, images, BY_SHAPE(s.dim[0], s.dim[1], down, size, across, size));
    return by_reshape(graph, by_permute(graph, cells, order),
                      BY_SHAPE(s.dim[0], down * across, s.dim[1] * size * size));
}
