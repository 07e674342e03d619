/* Collectives. A start node submits the work to the collective queue and a WAIT node makes the
 * result usable; nodes between them run at the same time. WAIT also has the operands of the
 * collective, so that their memory is not reused before it. */
#include <stdlib.h>

#include "base/sum_tree.h"
#include "ops/ops.h"

static by_status check_group(const by__op_signature *s, by_error *error)
{
    if (s->attrs->mesh == 0 || s->attrs->ranks < 1 || s->attrs->ranks > INT32_MAX) {
        return by__op_refuse(s, error, "the group has no mesh axis or no ranks");
    }
    return BY_OK;
}

static by_status check_axis(const by__op_signature *s, int64_t axis, by_error *error)
{
    if (axis < 0 || axis >= s->in[0].shape.rank) {
        return by__op_refuse(s, error, "there is no such axis");
    }
    return BY_OK;
}

/* Returns true if `part` is the extent that some rank has of an axis split over the ranks. */
static bool is_part(int64_t part, int64_t extent, int64_t ranks)
{
    int64_t each = extent / ranks;
    return part > 0 && (part == each || (part == each + 1 && extent % ranks != 0));
}

static bool may_add(by_dtype dtype)
{
    return by__op_is_act(dtype) || dtype == BY_F16 || dtype == BY_I32;
}

static by_status infer_all_reduce(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_group(s, error));
    if (!may_add(s->in[0].dtype)) {
        return by__op_refuse(s, error, "only f32, bf16, f16 and i32 are added");
    }
    out[0] = s->in[0];
    return BY_OK;
}

static by_status infer_all_gather(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_group(s, error));
    BY_TRY(check_axis(s, s->attrs->axis, error));
    out[0] = s->in[0];
    out[0].shape.dim[s->attrs->axis] = s->attrs->rows;
    return is_part(s->in[0].shape.dim[s->attrs->axis], s->attrs->rows, s->attrs->ranks)
               ? BY_OK
               : by__op_refuse(s, error, "the operand is no rank's part of the axis");
}

static by_status infer_reduce_scatter(const by__op_signature *s, by__graph_type *out,
                                      by_error *error)
{
    BY_TRY(infer_all_reduce(s, out, error));
    BY_TRY(check_axis(s, s->attrs->axis, error));
    out[0].shape.dim[s->attrs->axis] = s->attrs->rows;
    return is_part(s->attrs->rows, s->in[0].shape.dim[s->attrs->axis], s->attrs->ranks)
               ? BY_OK
               : by__op_refuse(s, error, "the result is no rank's part of the axis");
}

static by_status infer_all_to_all(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_group(s, error));
    BY_TRY(check_axis(s, s->attrs->axis, error));
    BY_TRY(check_axis(s, s->attrs->to, error));
    out[0] = s->in[0];
    if (out[0].shape.dim[s->attrs->axis] % s->attrs->ranks != 0) {
        return by__op_refuse(s, error, "the ranks do not divide the axis that is cut");
    }
    out[0].shape.dim[s->attrs->axis] /= s->attrs->ranks;
    if (out[0].shape.dim[s->attrs->to] > INT64_MAX / s->attrs->ranks) {
        return by__op_refuse(s, error, "the result is too large");
    }
    out[0].shape.dim[s->attrs->to] *= s->attrs->ranks;
    return BY_OK;
}

static by_status infer_ring_shift(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_group(s, error));
    out[0] = s->in[0];
    return BY_OK;
}

static by_status infer_reduce_gradients(const by__op_signature *s, by__graph_type *out,
                                        by_error *error)
{
    BY_TRY(check_group(s, error));
    for (int i = 0; i < s->input_count; i++) {
        if (s->in[i].dtype != BY_F32) {
            return by__op_refuse(s, error, "gradients must be f32");
        }
    }
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(1)};
    return BY_OK;
}

static by_status infer_gather_parameter(const by__op_signature *s, by__graph_type *out,
                                        by_error *error)
{
    BY_TRY(check_group(s, error));
    if (!by__op_is_act(s->attrs->dtype) || s->attrs->shape.rank < 1 || s->attrs->bucket < 0) {
        return by__op_refuse(s, error, "a parameter is f32, bf16 or f16 and has at least one axis");
    }
    out[0] = (by__graph_type){s->attrs->dtype, s->attrs->shape};
    return BY_OK;
}

static by_status infer_like(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_UNUSED(error);
    out[0] = s->in[0];
    return BY_OK;
}

/* ---- gradients: each collective is the adjoint of another ---- */

/* The sum is the same on every rank, and so is the gradient that arrives for it, which is that of
 * each rank's term (g of Shoeybi et al. 2019, section 3; replicate is f). */
static void gradient_same(by_graph *graph, const by__graph_node *node, const by_value *dout,
                          by_value *din)
{
    BY_UNUSED(graph);
    BY_UNUSED(node);
    din[0] = dout[0];
}

static void gradient_replicate(by_graph *graph, const by__graph_node *node, const by_value *dout,
                               by_value *din)
{
    din[0] = by_all_reduce(graph, dout[0], node->attrs.mesh, node->attrs.ranks);
}

static by_value adjoint(by_graph *graph, by_op op, by_attrs attrs, by_value x)
{
    return by__op_build_wait(graph, by__op_start_collective(graph, op, &attrs, x));
}

/* Every rank has used a copy of this rank's entries, so their gradients are summed. */
static void gradient_all_gather(by_graph *graph, const by__graph_node *node, const by_value *dout,
                                by_value *din)
{
    by_attrs attrs = node->attrs;
    attrs.rows = graph->values[node->in[0]].shape.dim[attrs.axis];
    din[0] = adjoint(graph, BY_OP_REDUCE_SCATTER, attrs, dout[0]);
}

static void gradient_reduce_scatter(by_graph *graph, const by__graph_node *node,
                                    const by_value *dout, by_value *din)
{
    by_attrs attrs = node->attrs;
    attrs.rows = graph->values[node->in[0]].shape.dim[attrs.axis];
    din[0] = adjoint(graph, BY_OP_ALL_GATHER, attrs, dout[0]);
}

static void gradient_all_to_all(by_graph *graph, const by__graph_node *node, const by_value *dout,
                                by_value *din)
{
    by_attrs attrs = node->attrs;
    attrs.axis = node->attrs.to;
    attrs.to = node->attrs.axis;
    din[0] = adjoint(graph, BY_OP_ALL_TO_ALL, attrs, dout[0]);
}

/* The inverse shift: the rest of the way around the ring. */
static void gradient_ring_shift(by_graph *graph, const by__graph_node *node, const by_value *dout,
                                by_value *din)
{
    din[0] = dout[0];
    for (int64_t i = 1; i < node->attrs.ranks; i++) {
        din[0] = by_ring_shift(graph, din[0], node->attrs.mesh, node->attrs.ranks);
    }
}

/* ---- cost: bytes that a rank sends, directly to owners or around a ring ---- */

static double other_share(const by__op_signature *s)
{
    return (double)(s->attrs->ranks - 1) / (double)s->attrs->ranks;
}

static void cost_all_reduce(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    cost->flops = other_share(s) * (double)by_shape_count(&out[0].shape);
    cost->bytes_sent = 2.0 * other_share(s) * by__op_type_bytes(&out[0]);
}

static void cost_all_gather(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 0.0;
    cost->bytes_sent = (double)(s->attrs->ranks - 1) * by__op_type_bytes(&s->in[0]);
}

static void cost_reduce_scatter(const by__op_signature *s, const by__graph_type *out,
                                by__op_cost *cost)
{
    cost->flops = (double)(s->attrs->ranks - 1) * (double)by_shape_count(&out[0].shape);
    cost->bytes_sent = other_share(s) * by__op_type_bytes(&s->in[0]);
}

static void cost_all_to_all(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 0.0;
    cost->bytes_sent = other_share(s) * by__op_type_bytes(&s->in[0]);
}

static void cost_ring_shift(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    cost->flops = 0.0;
    cost->bytes_sent = s->attrs->ranks > 1 ? by__op_type_bytes(&out[0]) : 0.0;
}

static void cost_reduce_gradients(const by__op_signature *s, const by__graph_type *out,
                                  by__op_cost *cost)
{
    BY_UNUSED(out);
    double entries = (double)s->attrs->rows;
    for (int i = 0; i < s->input_count && s->attrs->rows == 0; i++) {
        entries += (double)by_shape_count(&s->in[i].shape);
    }
    cost->flops = other_share(s) * entries;
    cost->bytes_sent = 2.0 * other_share(s) * entries * (double)sizeof(float);
}

/* A rank sends its part to every other rank. */
static void cost_gather_parameter(const by__op_signature *s, const by__graph_type *out,
                                  by__op_cost *cost)
{
    cost->flops = 0.0;
    cost->bytes_sent = other_share(s) * by__op_type_bytes(&out[0]);
}

static void cost_nothing(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(s);
    BY_UNUSED(out);
    *cost = (by__op_cost){0};
}

/* ---- rows ---- */

static uint32_t updated_gradients(const by_attrs *attrs)
{
    return attrs->in_place ? UINT32_MAX : 0;
}

/* ---- splits, over ranks of another mesh axis ---- */

/* Each rank exchanges its slices or addends, unless they are along the axes that are exchanged. */
static bool shard_exchange(const by__op_signature *s, const by__graph_type *out,
                           by__op_sharding *sh)
{
    bool any = s->op == BY_OP_ALL_REDUCE || s->op == BY_OP_RING_SHIFT;
    int axis = sh->in[0].axis;
    BY_UNUSED(out);
    sh->out[0] = sh->in[0];
    return axis != BY__WHOLE && (axis < 0 || any || axis != s->attrs->axis) &&
           (s->op != BY_OP_ALL_TO_ALL || axis != s->attrs->to);
}

static bool shard_wait(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    BY_UNUSED(s);
    BY_UNUSED(out);
    sh->out[0] = sh->in[0];
    return true;
}

#define GROUP        BY__ATTR(mesh, AXES), BY__ATTR(ranks, INT)
#define GROUP_EXTENT GROUP, BY__ATTR(axis, INT), BY__ATTR_AS("extent", rows, INT, BY__ATTR_IN_TYPE)

/* The row of a collective with one operand. */
#define EXCHANGE(NAME, KIND, ...)                                                                  \
    {                                                                                              \
        .attrs = BY__ATTRS(__VA_ARGS__), .communicates = true, .min_inputs = 1, .max_inputs = 1,   \
        .outputs = 1, .shard = shard_exchange, .infer = infer_##NAME, .gradient = gradient_##NAME, \
        .cost = cost_##NAME, .exchange = BY__OP_EXCHANGE_##KIND                                    \
    }

const by__op_row by__op_all_reduce = {.attrs = BY__ATTRS(GROUP),
                                      .communicates = true,
                                      .exchange = BY__OP_EXCHANGE_SUM,
                                      .min_inputs = 1,
                                      .max_inputs = 1,
                                      .outputs = 1,
                                      .shard = shard_exchange,
                                      .infer = infer_all_reduce,
                                      .gradient = gradient_same,
                                      .overlay = {1u << 0},
                                      .cost = cost_all_reduce};
const by__op_row by__op_all_gather = EXCHANGE(all_gather, GATHER, GROUP_EXTENT);
const by__op_row by__op_reduce_scatter = EXCHANGE(reduce_scatter, SCATTER, GROUP_EXTENT);
const by__op_row by__op_all_to_all =
    EXCHANGE(all_to_all, SWAP, GROUP, BY__ATTR(axis, INT), BY__ATTR(to, INT));
const by__op_row by__op_ring_shift = EXCHANGE(ring_shift, SHIFT, GROUP);
const by__op_row by__op_reduce_gradients = {
    .attrs = BY__ATTRS(GROUP, BY__ATTR(bucket, INT), BY__ATTR(rows, INT), BY__ATTR(in_place, FLAG)),
    .communicates = true,
    .exchange = BY__OP_EXCHANGE_GRADIENTS,
    .min_inputs = 1,
    .max_inputs = -1,
    .outputs = 1,
    .infer = infer_reduce_gradients,
    .updated = updated_gradients,
    .keeps_f32 = UINT32_MAX,
    .cost = cost_reduce_gradients};
const by__op_row by__op_gather_parameter = {
    .attrs = BY__ATTRS(GROUP, BY__ATTR_AS("parameter", bucket, INT, 0),
                       BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE),
                       BY__ATTR_AS("shape", shape, SHAPE, BY__ATTR_IN_TYPE)),
    .communicates = true,
    .exchange = BY__OP_EXCHANGE_PARAMETER,
    .outputs = 1,
    .infer = infer_gather_parameter,
    .cost = cost_gather_parameter};
const by__op_row by__op_wait = {.waits = true,
                                .view = true,
                                .keeps = UINT32_MAX & ~1u,
                                .min_inputs = 1,
                                .max_inputs = -1,
                                .outputs = 1,
                                .shard = shard_wait,
                                .infer = infer_like,
                                .gradient = gradient_same,
                                .cost = cost_nothing};
const by__op_row by__op_replicate = {.attrs = BY__ATTRS(GROUP),
                                     .view = true,
                                     .moves = true,
                                     .cheap = true,
                                     .min_inputs = 1,
                                     .max_inputs = 1,
                                     .outputs = 1,
                                     .infer = infer_all_reduce,
                                     .gradient = gradient_replicate,
                                     .cost = cost_nothing};

/* ---- builders ---- */

by_value by__op_start_collective(by_graph *graph, by_op op, const by_attrs *attrs, by_value x)
{
    return by__op_add_node(graph, op, attrs, &x, 1, NULL);
}

by_value by__op_build_wait(by_graph *graph, by_value started)
{
    by_value *in;
    if (graph->error.status != BY_OK) {
        return BY_NONE;
    }
    int producer = by__graph_has(graph, started) ? graph->values[started].producer : -1;
    const by__op_row *row = producer < 0 ? NULL : by__op_row_in(graph, graph->nodes[producer].op);
    if (row == NULL || !row->communicates) {
        by__graph_fail(graph, BY_EARG, "wait: the operand is no collective's result");
        return BY_NONE;
    }
    const by__graph_node *node = &graph->nodes[producer];
    uint32_t mutates = by__op_row_mutates(row, &node->attrs);
    int count = 0;
    if (by__alloc((void **)&in, (size_t)node->input_count + 1, sizeof *in, "wait", &graph->error) !=
        BY_OK) {
        return BY_NONE;
    }
    in[count++] = started;
    for (int i = 0; i < node->input_count; i++) {
        if (node->in[i] != BY_NONE && !by__mask_has(mutates, i)) {
            in[count++] = node->in[i];
        }
    }
    by_value result = by__op_add_node(graph, BY_OP_WAIT, &(by_attrs){0}, in, count, NULL);
    free(in);
    return result;
}

by_value by__op_build_reduce_gradients(by_graph *graph, const by_value *gradients, int count,
                                       int64_t bucket, int64_t entries, uint32_t mesh,
                                       int64_t ranks, bool in_place)
{
    by_attrs attrs = {
        .mesh = mesh, .ranks = ranks, .bucket = bucket, .rows = entries, .in_place = in_place};
    return by__op_add_node(graph, BY_OP_REDUCE_GRADIENTS, &attrs, gradients, count, NULL);
}

by_value by__op_build_gather_parameter(by_graph *graph, by_value parameter, int64_t number,
                                       uint32_t mesh, int64_t ranks)
{
    by_attrs attrs = {.mesh = mesh,
                      .ranks = ranks,
                      .bucket = number,
                      .dtype = graph->values[parameter].dtype,
                      .shape = graph->values[parameter].shape};
    return by__op_build_wait(graph,
                             by__op_add_node(graph, BY_OP_GATHER_PARAMETER, &attrs, NULL, 0, NULL));
}

/* Returns the extent of an axis of x, or 0 if there is no such axis, which the shape rule
 * refuses. */
static int64_t extent_of(const by_graph *graph, by_value x, int axis)
{
    bool known = graph->error.status == BY_OK && by__graph_has(graph, x) && axis >= 0 &&
                 axis < graph->values[x].shape.rank;
    return known ? graph->values[x].shape.dim[axis] : 0;
}

by_value by_replicate(by_graph *graph, by_value x, uint32_t mesh, int64_t ranks)
{
    by_attrs attrs = {.mesh = mesh, .ranks = ranks};
    return ranks == 1 ? x : by__op_add_node(graph, BY_OP_REPLICATE, &attrs, &x, 1, NULL);
}

/* With a single rank the exchange is the identity. */
static by_value exchange(by_graph *graph, by_op op, by_attrs attrs, by_value x)
{
    return attrs.ranks == 1 ? x : adjoint(graph, op, attrs, x);
}

by_value by_all_reduce(by_graph *graph, by_value x, uint32_t mesh, int64_t ranks)
{
    by_attrs attrs = {.mesh = mesh, .ranks = ranks};
    return exchange(graph, BY_OP_ALL_REDUCE, attrs, x);
}

by_value by_all_gather(by_graph *graph, by_value x, int axis, int64_t extent, uint32_t mesh,
                       int64_t ranks)
{
    by_attrs attrs = {
        .mesh = mesh, .ranks = ranks, .axis = by__op_axis_of(graph, x, axis), .rows = extent};
    return exchange(graph, BY_OP_ALL_GATHER, attrs, x);
}

by_value by_reduce_scatter(by_graph *graph, by_value x, int axis, uint32_t mesh, int64_t ranks,
                           int64_t rank)
{
    int64_t first;
    by_attrs attrs = {.mesh = mesh, .ranks = ranks, .axis = by__op_axis_of(graph, x, axis)};
    if (ranks == 1) {
        return x;
    }
    if (ranks > 1 && ranks <= INT32_MAX && rank >= 0 && rank < ranks) {
        by__sum_tree_block(extent_of(graph, x, (int)attrs.axis), (int)ranks, (int)rank, &first,
                           &attrs.rows);
    }
    return adjoint(graph, BY_OP_REDUCE_SCATTER, attrs, x);
}

by_value by_all_to_all(by_graph *graph, by_value x, int axis, int to, uint32_t mesh, int64_t ranks)
{
    by_attrs attrs = {.mesh = mesh,
                      .ranks = ranks,
                      .axis = by__op_axis_of(graph, x, axis),
                      .to = by__op_axis_of(graph, x, to)};
    return exchange(graph, BY_OP_ALL_TO_ALL, attrs, x);
}

by_value by_ring_shift(by_graph *graph, by_value x, uint32_t mesh, int64_t ranks)
{
    by_attrs attrs = {.mesh = mesh, .ranks = ranks};
    return exchange(graph, BY_OP_RING_SHIFT, attrs, x);
}
