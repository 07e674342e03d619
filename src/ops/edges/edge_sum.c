/* Sums and maxima over the edges of graphs. Edges are the entries of a sparse matrix in rows (CSR),
 * so each result is made by one thread, in the order of the entries; gradients read the transposed
 * matrix and are sums of the same kind. */
#include "ops/ops.h"

/* Offsets [B, rows + 1] and an i32 [B, E] for each entry. */
static bool are_entries(const by__graph_type *offsets, const by__graph_type *entries, int64_t batch)
{
    return offsets->dtype == BY_I32 && offsets->shape.rank == 2 && offsets->shape.dim[0] == batch &&
           offsets->shape.dim[1] >= 2 && entries->dtype == BY_I32 && entries->shape.rank == 2 &&
           entries->shape.dim[0] == batch;
}

static int64_t rows_of(const by__graph_type *offsets)
{
    return offsets->shape.dim[1] - 1;
}

static bool has(const by__op_signature *s, int input)
{
    return input < s->input_count && !by__absent(&s->in[input]);
}

static bool are_edges(const by__graph_type *edges, const by__graph_type *sources)
{
    return edges->dtype == BY_I32 && by_shape_equal(&edges->shape, &sources->shape);
}

/* A matrix at operands `first` and `back`, of x [B, M, C]. */
static bool is_matrix(const by__op_signature *s, int first, int back)
{
    const by_shape *x = &s->in[0].shape;
    return by__op_is_act(s->in[0].dtype) && x->rank == 3 &&
           are_entries(&s->in[first], &s->in[first + 1], x->dim[0]) &&
           are_entries(&s->in[back], &s->in[back + 1], x->dim[0]) &&
           rows_of(&s->in[back]) == x->dim[1] &&
           by_shape_equal(&s->in[first + 1].shape, &s->in[back + 1].shape);
}

static by_status infer_matmul(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *x = &s->in[0];
    if (!is_matrix(s, 1, 5)) {
        return by__op_refuse(s, error,
                             "x must be [batch, nodes, columns], with offsets i32 [batch, rows + "
                             "1] and sources i32 [batch, edges] of the matrix and its transpose");
    }
    for (int i = 3; i < 8; i += 4) {
        if (has(s, i) && !are_edges(&s->in[i], &s->in[2])) {
            return by__op_refuse(s, error, "the numbers of edges must be i32 and like the sources");
        }
    }
    const by_shape *w = has(s, 4) ? &s->in[4].shape : NULL;
    if (w != NULL &&
        (s->in[4].dtype != BY_F32 || w->rank != 3 || w->dim[0] != x->shape.dim[0] ||
         w->dim[1] != s->in[2].shape.dim[1] || w->dim[2] < 1 || x->shape.dim[2] % w->dim[2] != 0)) {
        return by__op_refuse(s, error,
                             "weights must be f32 [batch, edges, groups], and the groups divide "
                             "the columns of x");
    }
    if (w != NULL && has(s, 3) && has(s, 7)) {
        return by__op_refuse(s, error, "with weights, one of the matrices has no numbers of edges");
    }
    out[0] = *x;
    out[0].shape.dim[1] = rows_of(&s->in[1]);
    return BY_OK;
}

/* The product with the transposed matrix. */
static void gradient_matmul(by_graph *graph, const by__graph_node *node, const by_value *dout,
                            by_value *din)
{
    by_value back = node->input_count > 7 ? node->in[7] : BY_NONE;
    by_value in[8] = {dout[0],     node->in[5], node->in[6], back,
                      node->in[4], node->in[1], node->in[2], node->in[3]};
    din[0] = by__op_add_node(graph, BY_OP_SPARSE_MATMUL, &(by_attrs){0}, in, 8, NULL);
    if (node->in[4] != BY_NONE) {
        bool ahead = node->in[3] == BY_NONE;
        by_attrs attrs = {.heads = graph->values[node->in[4]].shape.dim[2]};
        by_value dots[4] = {ahead ? dout[0] : node->in[0], ahead ? node->in[0] : dout[0],
                            node->in[ahead ? 1 : 5], node->in[ahead ? 2 : 6]};
        din[4] = by__op_add_node(graph, BY_OP_EDGE_DOTS, &attrs, dots, 4, NULL);
    }
}

/* Each entry reads a row. */
static void cost_matmul(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    double edges = (double)by_shape_count(&s->in[2].shape);
    double columns = (double)by__op_last_dim(&out[0].shape);
    cost->flops = 2.0 * edges * columns;
    cost->bytes_read +=
        edges * columns * (double)by_dtype_size(s->in[0].dtype) - by__op_type_bytes(&s->in[0]);
}

static by_status infer_dots(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *a = &s->in[0];
    const by__graph_type *b = &s->in[1];
    int64_t heads = s->attrs->heads;
    if (!by__op_is_act(a->dtype) || a->shape.rank != 3 || b->dtype != a->dtype ||
        b->shape.rank != 3 || b->shape.dim[0] != a->shape.dim[0] ||
        b->shape.dim[2] != a->shape.dim[2] || !are_entries(&s->in[2], &s->in[3], a->shape.dim[0]) ||
        rows_of(&s->in[2]) != a->shape.dim[1] || heads < 1 || a->shape.dim[2] % heads != 0) {
        return by__op_refuse(s, error,
                             "a and b must be [batch, nodes, columns] of one dtype, with offsets "
                             "for the nodes of a, and the groups divide the columns");
    }
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(a->shape.dim[0], s->in[3].shape.dim[1], heads)};
    return BY_OK;
}

static void cost_dots(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops =
        2.0 * (double)by_shape_count(&s->in[3].shape) * (double)by__op_last_dim(&s->in[0].shape);
}

static by_status infer_sum(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *v = &s->in[0];
    const by__graph_type *offsets = &s->in[1];
    if (v->dtype != BY_F32 || v->shape.rank != 3 || offsets->dtype != BY_I32 ||
        offsets->shape.rank != 2 || offsets->shape.dim[0] != v->shape.dim[0] ||
        offsets->shape.dim[1] < 2) {
        return by__op_refuse(s, error,
                             "values must be f32 [batch, edges, groups], and offsets i32 [batch, "
                             "rows + 1]");
    }
    if (has(s, 2) && !(are_entries(offsets, &s->in[2], v->shape.dim[0]) &&
                       s->in[2].shape.dim[1] == v->shape.dim[1])) {
        return by__op_refuse(s, error, "the numbers of edges must be i32 [batch, edges]");
    }
    out[0] = *v;
    out[0].shape.dim[1] = rows_of(offsets);
    return BY_OK;
}

static by_status infer_max(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (!is_matrix(s, 1, 3) || !are_edges(&s->in[5], &s->in[2])) {
        return by__op_refuse(s, error,
                             "x must be [batch, nodes, columns], with offsets i32 [batch, rows + "
                             "1] and sources i32 [batch, edges] of the matrix and its transpose");
    }
    out[0] = s->in[0];
    out[0].shape.dim[1] = rows_of(&s->in[1]);
    out[1] = (by__graph_type){BY_I32, out[0].shape};
    return BY_OK;
}

static void gradient_max(by_graph *graph, const by__graph_node *node, const by_value *dout,
                         by_value *din)
{
    by_value in[5] = {dout[0], node->out[1], node->in[3], node->in[4], node->in[5]};
    din[0] = by__op_add_node(graph, BY_OP_SPARSE_MAX_GRAD, &(by_attrs){0}, in, 5, NULL);
}

static by_status infer_max_grad(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *dy = &s->in[0];
    if (!by__op_is_act(dy->dtype) || dy->shape.rank != 3 || s->in[1].dtype != BY_I32 ||
        !by_shape_equal(&s->in[1].shape, &dy->shape) ||
        !are_entries(&s->in[2], &s->in[3], dy->shape.dim[0]) || !are_edges(&s->in[4], &s->in[3])) {
        return by__op_refuse(s, error, "the operands are not those of a maximum over edges");
    }
    out[0] = *dy;
    out[0].shape.dim[1] = rows_of(&s->in[2]);
    return BY_OK;
}

static void cost_max(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    const by__graph_type *sources = &s->in[s->op == BY_OP_SPARSE_MAX ? 2 : 3];
    cost->flops = (double)by_shape_count(&sources->shape) * (double)by__op_last_dim(&out[0].shape);
}

const by__op_row by__op_sparse_matmul = {.min_inputs = 7,
                                         .max_inputs = 8,
                                         .outputs = 1,
                                         .optional = 1u << 3 | 1u << 4 | 1u << 7,
                                         .infer = infer_matmul,
                                         .gradient = gradient_matmul,
                                         .cost = cost_matmul,
                                         .onnx = by__op_onnx_sparse_matmul,
                                         .keeps_f32 = 1u << 4};
const by__op_row by__op_edge_dots = {.min_inputs = 4,
                                     .max_inputs = 4,
                                     .outputs = 1,
                                     .attrs = BY__ATTRS(BY__ATTR(heads, INT)),
                                     .infer = infer_dots,
                                     .cost = cost_dots};
const by__op_row by__op_edge_sum = {.min_inputs = 2,
                                    .max_inputs = 3,
                                    .outputs = 1,
                                    .optional = 1u << 2,
                                    .infer = infer_sum,
                                    .keeps_f32 = 1u << 0};
const by__op_row by__op_sparse_max = {.min_inputs = 6,
                                      .max_inputs = 6,
                                      .outputs = 2,
                                      .infer = infer_max,
                                      .gradient = gradient_max,
                                      .onnx = by__op_onnx_sparse_max,
                                      .cost = cost_max};
const by__op_row by__op_sparse_max_grad = {
    .min_inputs = 5, .max_inputs = 5, .outputs = 1, .infer = infer_max_grad, .cost = cost_max};

by_value by_sparse_matmul(by_graph *graph, by_value x, by_value weight, const by_edges *edges)
{
    by_value in[8] = {x,      edges->offsets,      edges->sources,      BY_NONE,
                      weight, edges->back_offsets, edges->back_sources, edges->back_edges};
    return by__op_add_node(graph, BY_OP_SPARSE_MATMUL, &(by_attrs){0}, in, 8, NULL);
}

by_value by_sparse_max(by_graph *graph, by_value x, const by_edges *edges)
{
    by_value in[6] = {x,
                      edges->offsets,
                      edges->sources,
                      edges->back_offsets,
                      edges->back_sources,
                      edges->back_edges};
    return by__op_add_node(graph, BY_OP_SPARSE_MAX, &(by_attrs){0}, in, 6, NULL);
}
