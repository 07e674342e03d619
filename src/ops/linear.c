/* Matrix products, and the reduction that gives the gradient of a bias. */
#include <string.h>

#include "ops/ops.h"

static by_status infer_matmul(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *a = &s->in[0];
    const by__graph_type *b = &s->in[1];
    bool ta = s->attrs->trans_a;
    bool tb = s->attrs->trans_b;
    by__graph_type y = {.dtype = s->attrs->dtype};
    if (!by__op_is_act(a->dtype) || a->dtype != b->dtype || !by__op_is_act(y.dtype) ||
        a->shape.rank < 1 || b->shape.rank < 1) {
        return by__op_refuse(s, error, "operands must be f32, bf16 or f16 tensors of one dtype");
    }
    int64_t inner_a = ta ? by__op_rows(&a->shape) : by__op_last_dim(&a->shape);
    int64_t inner_b = tb ? by__op_last_dim(&b->shape) : by__op_rows(&b->shape);
    int64_t n = tb ? by__op_rows(&b->shape) : by__op_last_dim(&b->shape);
    if (inner_a != inner_b) {
        return by__op_refuse(s, error, "inner sizes differ");
    }
    if (ta) {
        y.shape = BY_SHAPE(by__op_last_dim(&a->shape), n);
    } else {
        y.shape = a->shape;
        y.shape.dim[y.shape.rank - 1] = n;
    }
    if (s->input_count > 2 && !by__absent(&s->in[2])) {
        const by__graph_type *bias = &s->in[2];
        if (bias->shape.rank != 1 || bias->shape.dim[0] != n || !by__op_is_act(bias->dtype)) {
            return by__op_refuse(s, error, "the bias must be [columns of the product]");
        }
    }
    if (s->input_count > 3 && !by__absent(&s->in[3]) && !by__op_type_equal(&s->in[3], &y)) {
        return by__op_refuse(s, error, "the added tensor must have the product's shape and dtype");
    }
    out[0] = y;
    return BY_OK;
}

/* y = op(a) op(b) + bias + add. With A = op(a), B = op(b): dA = dy B^T and dB = A^T dy, each
 * expressed so that no operand is transposed in memory. */
static void gradient_matmul(by_graph *graph, const by__graph_node *node, const by_value *dout,
                            by_value *din)
{
    by_value a = node->in[0];
    by_value b = node->in[1];
    by_value dy = dout[0];
    bool ta = node->attrs.trans_a;
    bool tb = node->attrs.trans_b;
    by_dtype da_type = by__op_gradient_dtype(graph, a);
    by_dtype db_type = by__op_gradient_dtype(graph, b);
    if (graph->values[dy].dtype != graph->values[a].dtype) {
        dy = by_cast(graph, dy, graph->values[a].dtype);
    }
    din[0] = ta ? by__op_matmul_full(graph, b, dy, BY_NONE, BY_NONE, tb, true, da_type)
                : by__op_matmul_full(graph, dy, b, BY_NONE, BY_NONE, false, !tb, da_type);
    din[1] = tb ? by__op_matmul_full(graph, dy, a, BY_NONE, BY_NONE, true, ta, db_type)
                : by__op_matmul_full(graph, a, dy, BY_NONE, BY_NONE, !ta, false, db_type);
    if (node->input_count > 2 && node->in[2] != BY_NONE) {
        din[2] = by__op_build_sum_rows(graph, dout[0], graph->values[dout[0]].shape.rank - 1);
    }
    if (node->input_count > 3 && node->in[3] != BY_NONE) {
        din[3] = dout[0];
    }
}

static void cost_matmul(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    int64_t inner =
        s->attrs->trans_a ? by__op_rows(&s->in[0].shape) : by__op_last_dim(&s->in[0].shape);
    cost->flops = 2.0 * (double)by_shape_count(&out[0].shape) * (double)inner;
}

/* Converts the split of an operand to that of its matrix op(.), whose axis 0 are the rows. */
static bool split_of_matrix(const by__graph_type *type, bool transposed, by__graph_split split,
                            int ranks, by__graph_split *out)
{
    *out = split;
    if (split.axis < 0) {
        return split.axis == BY__WHOLE;
    }
    bool is_last = split.axis == type->shape.rank - 1;
    if (is_last) {
        out->axis = 1;
    } else if (type->shape.rank > 2) {
        by_shape rows = BY_SHAPE(by__op_rows(&type->shape));
        if (!by__op_split_of_rows(&type->shape, split, &rows, ranks, out)) {
            return false;
        }
    }
    out->axis = transposed ? 1 - out->axis : out->axis;
    return true;
}

/* y is split like the rows of a or the columns of b. If the inner axis is split, y is an addend,
 * and only one rank adds bias and added tensor. */
static bool shard_matmul(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    by__graph_split a;
    by__graph_split b;
    by__graph_split y;
    int last = out[0].shape.rank - 1;
    if (!split_of_matrix(&s->in[0], s->attrs->trans_a, sh->in[0], sh->ranks, &a) ||
        !split_of_matrix(&s->in[1], s->attrs->trans_b, sh->in[1], sh->ranks, &b)) {
        return false;
    }
    if (a.axis == 1 && b.axis == 0 && a.sections == b.sections) {
        sh->out[0] = by__op_partial();
        sh->once = 1u << 2 | 1u << 3;
        return by__op_shard_all_whole_but(sh, s->input_count, 1u << 0 | 1u << 1);
    }
    if (a.axis == 0 && b.axis == BY__WHOLE) {
        y = s->attrs->trans_a ? a : sh->in[0];
    } else if (a.axis == BY__WHOLE && b.axis == 1) {
        y = (by__graph_split){last, b.sections};
    } else {
        return false;
    }
    by__graph_split bias = y.axis == last ? (by__graph_split){0, y.sections} : by__op_whole();
    sh->out[0] = y;
    return (s->input_count <= 2 || by__absent(&s->in[2]) || by__op_split_equal(sh->in[2], bias)) &&
           (s->input_count <= 3 || by__absent(&s->in[3]) || by__op_split_equal(sh->in[3], y));
}

static by_status infer_sum_rows(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (!by__op_is_act(s->in[0].dtype) || s->in[0].shape.rank < 1) {
        return by__op_refuse(s, error,
                             "the operand must be an f32, bf16 or f16 tensor of rank 1 or more");
    }
    const by_shape *x = &s->in[0].shape;
    int64_t lead = s->attrs->lead == 0 ? x->rank - 1 : s->attrs->lead;
    if (lead < 0 || lead > x->rank) {
        return by__op_refuse(s, error, "there are not so many leading axes");
    }
    out[0] = (by__graph_type){.dtype = BY_F32, .shape = {.rank = x->rank - (int)lead}};
    memcpy(out[0].shape.dim, x->dim + lead, (size_t)out[0].shape.rank * sizeof(int64_t));
    return BY_OK;
}

static bool shard_sum_rows(const by__op_signature *s, const by__graph_type *out,
                           by__op_sharding *sh)
{
    int lead = s->in[0].shape.rank - out[0].shape.rank;
    by__graph_split x = sh->in[0];
    sh->out[0] = x.axis < lead ? by__op_partial() : (by__graph_split){x.axis - lead, x.sections};
    return x.axis >= 0;
}

static void cost_sum_rows(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = (double)by_shape_count(&s->in[0].shape);
}

static bool pack_matmul(const by__op_signature *s, int input, by__op_packed_reader *out)
{
    const by__graph_type *w = &s->in[1];
    bool out_in = s->attrs->trans_b;
    if (input != 1 || s->attrs->trans_a || w->shape.rank != 2) {
        return false;
    }
    *out = (by__op_packed_reader){.op = BY_OP_PACKED_MATMUL, .out_in = out_in};
    out->attrs.dtype = s->attrs->dtype;
    out->attrs.packing = (by_packing){
        .dtype = w->dtype, .n = w->shape.dim[out_in ? 0 : 1], .k = w->shape.dim[out_in ? 1 : 0]};
    return true;
}

static by_value gram_matmul(by_graph *graph, const by__graph_node *node)
{
    by_value x = node->in[0];
    return by__op_matmul_full(graph, x, x, BY_NONE, BY_NONE, true, false, BY_F32);
}

static const by__op_attr matmul_attrs[] = {
    BY__ATTR(trans_a, FLAG),
    BY__ATTR(trans_b, FLAG),
    BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE | BY__ATTR_COMPUTE),
    {NULL, 0, BY__ATTR_FLAG, 0},
};
static by_status onnx_matmul(const by__op_signature *s, const by__graph_type *out,
                             by__op_onnx *onnx, by_error *error)
{
    const int64_t swapped[2] = {1, 0};
    BY_UNUSED(out);
    if (s->attrs->trans_a || s->in[1].shape.rank != 2) {
        return by__op_refuse(s, error, "a product of this form has none in ONNX");
    }
    int b = s->attrs->trans_b ? by__op_onnx_transpose(onnx, 1, swapped, 2) : 1;
    int y = by__op_onnx_node2(onnx, "MatMul", 0, b);
    for (int i = 2; i < s->input_count; i++) {
        y = by__absent(&s->in[i]) ? y : by__op_onnx_node2(onnx, "Add", y, i);
    }
    onnx->result(onnx, 0, y);
    return BY_OK;
}

const by__op_row by__op_matmul = {.min_inputs = 2,
                                  .max_inputs = 4,
                                  .outputs = 1,
                                  .optional = 1u << 2 | 1u << 3,
                                  .attrs = matmul_attrs,
                                  .infer = infer_matmul,
                                  .onnx = onnx_matmul,
                                  .gradient = gradient_matmul,
                                  .cost = cost_matmul,
                                  .factors = 1u << 0 | 1u << 1,
                                  .is_product = true,
                                  .addend = 3,
                                  .pack = pack_matmul,
                                  .gram = gram_matmul,
                                  .shard = shard_matmul,
                                  .weight = 1,
                                  .transposed = &matmul_attrs[1]};
const by__op_row by__op_sum_rows = {.min_inputs = 1,
                                    .max_inputs = 1,
                                    .outputs = 1,
                                    .attrs =
                                        BY__ATTRS(BY__ATTR_AS("lead", lead, INT, BY__ATTR_SPARE)),
                                    .infer = infer_sum_rows,
                                    .shard = shard_sum_rows,
                                    .cost = cost_sum_rows};

by_value by__op_matmul_full(by_graph *graph, by_value a, by_value b, by_value bias, by_value add,
                            bool trans_a, bool trans_b, by_dtype dtype)
{
    by_attrs attrs = {.trans_a = trans_a, .trans_b = trans_b, .dtype = dtype};
    by_value in[4] = {a, b, bias, add};
    int count = add != BY_NONE ? 4 : bias != BY_NONE ? 3 : 2;
    return by__op_add_node(graph, BY_OP_MATMUL, &attrs, in, count, NULL);
}

static by_dtype dtype_of(const by_graph *graph, by_value value)
{
    return by__graph_has(graph, value) ? graph->values[value].dtype : BY_F32;
}

by_value by_matmul(by_graph *graph, by_value a, by_value b, bool trans_a, bool trans_b)
{
    return by__op_matmul_full(graph, a, b, BY_NONE, BY_NONE, trans_a, trans_b, dtype_of(graph, a));
}

by_value by_linear(by_graph *graph, by_value x, by_value weight, by_value bias, bool out_in)
{
    return by__op_matmul_full(graph, x, weight, bias, BY_NONE, false, out_in, dtype_of(graph, x));
}

by_value by__op_build_sum_rows(by_graph *graph, by_value x, int lead)
{
    bool usual = by__graph_has(graph, x) && lead == graph->values[x].shape.rank - 1;
    by_attrs attrs = {.lead = usual ? 0 : lead};
    return by__op_add_node(graph, BY_OP_SUM_ROWS, &attrs, &x, 1, NULL);
}
