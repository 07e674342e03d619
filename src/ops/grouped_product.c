/* Products of rows with the matrix of their group. */
#include "ops/grouped.h"
#include "ops/ops.h"

/* Returns true for i32 [G, 2], with G a multiple of the number of matrices. */
static bool is_ranges(const by__graph_type *range, int64_t matrices)
{
    return range->dtype == BY_I32 && range->shape.rank == 2 && range->shape.dim[1] == 2 &&
           range->shape.dim[0] > 0 && range->shape.dim[0] % matrices == 0;
}

by_status by__op_group_ranges_check(const by__op_signature *s, int64_t matrices, by_error *error)
{
    if (!is_ranges(&s->in[2], matrices)) {
        return by__op_refuse(s, error, "ranges must be i32 [a multiple of the groups, 2]");
    }
    return s->attrs->chosen < 0 ? by__op_refuse(s, error, "the groups chosen must not be negative")
                                : BY_OK;
}

double by__op_group_share(const by__op_signature *s, int64_t matrices)
{
    return s->attrs->chosen > 0 ? (double)s->attrs->chosen / (double)matrices : 1.0;
}

static by_status infer_grouped(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *a = &s->in[0];
    const by__graph_type *b = &s->in[1];
    bool trans_b = s->attrs->trans_b;
    if (!by__op_is_act(a->dtype) || a->dtype != b->dtype || !by__op_is_act(s->attrs->dtype) ||
        a->shape.rank != 2 || b->shape.rank != 3) {
        return by__op_refuse(s, error,
                             "operands must be [rows, k] and [groups, k, n], f32, bf16 or f16 "
                             "of one dtype");
    }
    if (a->shape.dim[1] != b->shape.dim[trans_b ? 2 : 1]) {
        return by__op_refuse(s, error, "inner sizes differ");
    }
    BY_TRY(by__op_group_ranges_check(s, b->shape.dim[0], error));
    out[0] =
        (by__graph_type){s->attrs->dtype, BY_SHAPE(a->shape.dim[0], b->shape.dim[trans_b ? 1 : 2])};
    return BY_OK;
}

static by_value grouped(by_graph *graph, by_value a, by_value b, by_value range,
                        const by_attrs *attrs)
{
    by_value in[3] = {a, b, range};
    return by__op_add_node(graph, BY_OP_GROUPED_MATMUL, attrs, in, 3, NULL);
}

/* da = dy B^T group by group; dB of a group is A^T dy over its rows, or its transpose. */
static void gradient_grouped(by_graph *graph, const by__graph_node *node, const by_value *dout,
                             by_value *din)
{
    by_value a = node->in[0];
    by_value b = node->in[1];
    by_value range = node->in[2];
    by_value dy = dout[0];
    bool tb = node->attrs.trans_b;
    if (graph->values[dy].dtype != graph->values[a].dtype) {
        dy = by_cast(graph, dy, graph->values[a].dtype);
    }
    by_attrs attrs = node->attrs;
    attrs.trans_b = !tb;
    attrs.dtype = by__op_gradient_dtype(graph, a);
    din[0] = grouped(graph, dy, b, range, &attrs);
    by_attrs of_b = {.rows = graph->values[b].shape.dim[0],
                     .capacity = node->attrs.capacity,
                     .dtype = by__op_gradient_dtype(graph, b)};
    by_value in[3] = {tb ? dy : a, tb ? a : dy, range};
    din[1] = by__op_add_node(graph, BY_OP_GROUPED_MATMUL_GRAD, &of_b, in, 3, NULL);
}

static by_status infer_grouped_grad(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *a = &s->in[0];
    const by__graph_type *b = &s->in[1];
    if (!by__op_is_act(a->dtype) || a->dtype != b->dtype || !by__op_is_act(s->attrs->dtype) ||
        a->shape.rank != 2 || b->shape.rank != 2 || a->shape.dim[0] != b->shape.dim[0]) {
        return by__op_refuse(s, error,
                             "operands must be [rows, m] and [rows, n], f32, bf16 or f16 of "
                             "one dtype");
    }
    if (s->attrs->rows < 1 || !is_ranges(&s->in[2], s->attrs->rows)) {
        return by__op_refuse(s, error, "ranges must be i32 [a multiple of the groups, 2]");
    }
    out[0] = (by__graph_type){s->attrs->dtype,
                              BY_SHAPE(s->attrs->rows, a->shape.dim[1], b->shape.dim[1])};
    return BY_OK;
}

/* Returns true if operands of grouped rows are split by groups, and sets `rows` to those of a
 * range. */
static bool is_by_group(const by__op_signature *s, const by__op_sharding *sh, int64_t *rows)
{
    const by__graph_split *range = &sh->in[2];
    *rows = s->in[0].shape.dim[0] / s->in[2].shape.dim[0];
    return sh->in[0].axis == 0 && sh->in[0].sections == 1 && range->axis == 0 &&
           range->sections == 1;
}

/* Each rank has some of the groups, or columns of each matrix, or rows of each matrix with the
 * matching columns of a. */
static bool shard_grouped(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    int inner = s->attrs->trans_b ? 2 : 1;
    by__graph_split a = sh->in[0];
    by__graph_split b = sh->in[1];
    BY_UNUSED(out);
    if (b.axis == 0 && b.sections == 1) {
        sh->out[0] = a;
        return is_by_group(s, sh, &sh->attrs.capacity);
    }
    if (sh->in[2].axis != BY__WHOLE || b.axis < 1) {
        return false;
    }
    if (b.axis == inner) {
        sh->out[0] = by__op_partial();
        return a.axis == 1 && a.sections == b.sections;
    }
    sh->out[0] = (by__graph_split){1, b.sections};
    return a.axis == BY__WHOLE;
}

static bool shard_grouped_grad(const by__op_signature *s, const by__graph_type *out,
                               by__op_sharding *sh)
{
    by__graph_split a = sh->in[0];
    by__graph_split b = sh->in[1];
    BY_UNUSED(out);
    if (a.axis == 0 && b.axis == 0) {
        sh->out[0] = (by__graph_split){0, 1};
        sh->attrs.rows = s->attrs->rows / sh->ranks;
        return b.sections == 1 && s->attrs->rows % sh->ranks == 0 &&
               is_by_group(s, sh, &sh->attrs.capacity);
    }
    sh->out[0] = a.axis == 1 ? (by__graph_split){1, a.sections} : (by__graph_split){2, b.sections};
    return sh->in[2].axis == BY__WHOLE &&
           ((a.axis == 1 && b.axis == BY__WHOLE) || (a.axis == BY__WHOLE && b.axis == 1));
}

static void cost_grouped(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    cost->flops = 2.0 * (double)by_shape_count(&out[0].shape) * (double)s->in[0].shape.dim[1];
}

static void cost_grouped_grad(const by__op_signature *s, const by__graph_type *out,
                              by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 2.0 * (double)by_shape_count(&s->in[0].shape) * (double)s->in[1].shape.dim[1];
}

static double used_share(const by__op_signature *s, int input)
{
    return input == 1 ? by__op_group_share(s, s->in[1].shape.dim[0]) : 1.0;
}

static bool pack_grouped(const by__op_signature *s, int input, by__op_packed_reader *out)
{
    const by_shape *b = &s->in[1].shape;
    bool out_in = s->attrs->trans_b;
    if (input != 1) {
        return false;
    }
    *out = (by__op_packed_reader){.op = BY_OP_PACKED_GROUPED_MATMUL, .out_in = out_in};
    out->attrs = (by_attrs){.dtype = s->attrs->dtype,
                            .capacity = s->attrs->capacity,
                            .chosen = s->attrs->chosen,
                            .packing = {.dtype = s->in[1].dtype,
                                        .n = b->dim[out_in ? 1 : 2],
                                        .k = b->dim[out_in ? 2 : 1],
                                        .stack = b->dim[0]}};
    return true;
}

static by_value gram_grouped(by_graph *graph, const by__graph_node *node)
{
    const by_attrs attrs = {.rows = graph->values[node->in[1]].shape.dim[0],
                            .capacity = node->attrs.capacity,
                            .dtype = BY_F32};
    const by_value in[3] = {node->in[0], node->in[0], node->in[2]};
    return by__op_add_node(graph, BY_OP_GROUPED_MATMUL_GRAD, &attrs, in, 3, NULL);
}

#define DTYPE BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE | BY__ATTR_COMPUTE)
const by__op_row by__op_grouped_matmul = {
    .min_inputs = 3,
    .max_inputs = 3,
    .outputs = 1,
    .attrs = BY__ATTRS(BY__ATTR(trans_b, FLAG), BY__GROUPED_CAPACITY, DTYPE, BY__GROUPED_CHOSEN),
    .infer = infer_grouped,
    .gradient = gradient_grouped,
    .cost = cost_grouped,
    .shard = shard_grouped,
    .factors = 1u << 0 | 1u << 1,
    .pack = pack_grouped,
    .gram = gram_grouped,
    .used_share = used_share};
const by__op_row by__op_grouped_matmul_grad = {
    .min_inputs = 3,
    .max_inputs = 3,
    .outputs = 1,
    .attrs =
        BY__ATTRS(BY__ATTR_AS("groups", rows, INT, BY__ATTR_IN_TYPE), BY__GROUPED_CAPACITY, DTYPE),
    .infer = infer_grouped_grad,
    .cost = cost_grouped_grad,
    .shard = shard_grouped_grad};

by_value by_grouped_matmul(by_graph *graph, by_value a, by_value b, by_value range, bool trans_b,
                           int64_t chosen)
{
    bool known = by__graph_has(graph, a);
    by_attrs attrs = {
        .trans_b = trans_b, .chosen = chosen, .dtype = known ? graph->values[a].dtype : BY_F32};
    return grouped(graph, a, b, range, &attrs);
}
