/* Products with packed weights, and look-ups in packed tables. */
#include <stdlib.h>

#include "base/packing/packing.h"
#include "ops/grouped.h"
#include "ops/ops.h"

/* Refuses operand 1 unless it is a weight packed as the attributes say. */
static by_status check_weight(const by__op_signature *s, by_error *error)
{
    const by_packing *packing = &s->attrs->packing;
    const char *wrong = by__packing_wrong(packing);
    if (wrong != NULL) {
        return by__op_refuse(s, error, wrong);
    }
    if ((packing->stack > 0) != (s->op == BY_OP_PACKED_GROUPED_MATMUL)) {
        return by__op_refuse(s, error, "a stack of matrices is multiplied group by group");
    }
    by__graph_type weight = {BY_U8, by__packed_shape(packing)};
    return by__op_type_equal(&s->in[1], &weight)
               ? BY_OK
               : by__op_refuse(s, error, "the weight does not have the size of its packing");
}

static by_status infer_packed_matmul(const by__op_signature *s, by__graph_type *out,
                                     by_error *error)
{
    const by_packing *packing = &s->attrs->packing;
    const by__graph_type *a = &s->in[0];
    by__graph_type y = {.dtype = s->attrs->dtype, .shape = a->shape};
    BY_TRY(check_weight(s, error));
    if (a->dtype != packing->dtype || !by__op_is_act(y.dtype) || a->shape.rank < 1 ||
        by__op_last_dim(&a->shape) != packing->k) {
        return by__op_refuse(s, error, "the operand must be [..., inputs] of the weight's dtype");
    }
    y.shape.dim[y.shape.rank - 1] = packing->n;
    if (s->input_count > 2 && !by__absent(&s->in[2])) {
        const by__graph_type *bias = &s->in[2];
        if (bias->shape.rank != 1 || bias->shape.dim[0] != packing->n ||
            !by__op_is_act(bias->dtype)) {
            return by__op_refuse(s, error, "the bias must be [columns of the product]");
        }
    }
    if (s->input_count > 3 && !by__absent(&s->in[3]) && !by__op_type_equal(&s->in[3], &y)) {
        return by__op_refuse(s, error, "the added tensor must have the product's shape and dtype");
    }
    out[0] = y;
    return BY_OK;
}

/* The weight [n, k] of a packed one, decoded. */
static by_value unpack(by_graph *graph, by_value weight, const by_packing *packing)
{
    const by_value in[2] = {BY_NONE, weight};
    const by_attrs attrs = {.packing = *packing, .dtype = packing->dtype};
    return by__op_add_node(graph, BY_OP_PACKED_EMBEDDING, &attrs, in, 2, NULL);
}

/* y = a W + bias + add: da = dy W^T, with W decoded for it; W itself is constant. */
static void gradient_packed_matmul(by_graph *graph, const by__graph_node *node,
                                   const by_value *dout, by_value *din)
{
    const by_packing *packing = &node->attrs.packing;
    by_value dy = dout[0];
    if (graph->values[dy].dtype != packing->dtype) {
        dy = by_cast(graph, dy, packing->dtype);
    }
    by_value weight = unpack(graph, node->in[1], packing);
    din[0] = by__op_matmul_full(graph, dy, weight, BY_NONE, BY_NONE, false, false,
                                by__op_gradient_dtype(graph, node->in[0]));
    din[1] = BY_NONE;
    if (node->input_count > 2 && node->in[2] != BY_NONE) {
        din[2] = by__op_build_sum_rows(graph, dout[0], graph->values[dout[0]].shape.rank - 1);
    }
    if (node->input_count > 3 && node->in[3] != BY_NONE) {
        din[3] = dout[0];
    }
}

static void cost_packed_matmul(const by__op_signature *s, const by__graph_type *out,
                               by__op_cost *cost)
{
    cost->flops = 2.0 * (double)by_shape_count(&out[0].shape) * (double)s->attrs->packing.k;
}

static by_status infer_packed_grouped(const by__op_signature *s, by__graph_type *out,
                                      by_error *error)
{
    const by_packing *packing = &s->attrs->packing;
    const by__graph_type *a = &s->in[0];
    BY_TRY(check_weight(s, error));
    if (a->dtype != packing->dtype || !by__op_is_act(s->attrs->dtype) || a->shape.rank != 2 ||
        a->shape.dim[1] != packing->k) {
        return by__op_refuse(s, error, "the operand must be [rows, inputs] of the weight's dtype");
    }
    BY_TRY(by__op_group_ranges_check(s, packing->stack, error));
    out[0] = (by__graph_type){s->attrs->dtype, BY_SHAPE(a->shape.dim[0], packing->n)};
    return BY_OK;
}

static double used_share(const by__op_signature *s, int input)
{
    return input == 1 ? by__op_group_share(s, s->attrs->packing.stack) : 1.0;
}

static by_status infer_packed_embedding(const by__op_signature *s, by__graph_type *out,
                                        by_error *error)
{
    const by__graph_type *ids = &s->in[0];
    BY_TRY(check_weight(s, error));
    if (by__absent(ids)) {
        out[0] =
            (by__graph_type){s->attrs->dtype, BY_SHAPE(s->attrs->packing.n, s->attrs->packing.k)};
        return by__op_is_act(s->attrs->dtype)
                   ? BY_OK
                   : by__op_refuse(s, error, "the dtype must be a float");
    }
    if (ids->dtype != BY_I32 || ids->shape.rank >= BY_MAX_RANK || !by__op_is_act(s->attrs->dtype)) {
        return by__op_refuse(s, error, "ids must be i32");
    }
    out[0] = (by__graph_type){s->attrs->dtype, ids->shape};
    out[0].shape.dim[out[0].shape.rank++] = s->attrs->packing.k;
    return BY_OK;
}

static int64_t outputs_of(const by__op_signature *s)
{
    return s->attrs->packing.n;
}

static const by__op_attr packed_attrs[] = {
    BY__ATTR_AS("", packing, PACKING, 0),
    BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE),
    {NULL, 0, BY__ATTR_FLAG, 0},
};

const by__op_row by__op_packed_matmul = {.min_inputs = 2,
                                         .max_inputs = 4,
                                         .outputs = 1,
                                         .optional = 1u << 2 | 1u << 3,
                                         .attrs = packed_attrs,
                                         .infer = infer_packed_matmul,
                                         .gradient = gradient_packed_matmul,
                                         .cost = cost_packed_matmul,
                                         .factors = 1u << 1,
                                         .addend = 3};
const by__op_row by__op_packed_grouped_matmul = {
    .min_inputs = 3,
    .max_inputs = 3,
    .outputs = 1,
    .attrs = BY__ATTRS(BY__ATTR_AS("", packing, PACKING, 0), BY__GROUPED_CAPACITY,
                       BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE), BY__GROUPED_CHOSEN),
    .infer = infer_packed_grouped,
    .cost = cost_packed_matmul,
    .factors = 1u << 1,
    .used_share = used_share};
const by__op_row by__op_packed_embedding = {.min_inputs = 2,
                                            .max_inputs = 2,
                                            .outputs = 1,
                                            .optional = 1u << 0,
                                            .attrs = packed_attrs,
                                            .infer = infer_packed_embedding,
                                            .cost = by__op_cost_embedding,
                                            .gathers = 1u << 1,
                                            .indices = {{.input = 0, .limit = outputs_of}}};
