/* Sums, maxima and attention over edges as ONNX nodes: rows of nodes are gathered by the sources of
 * edges, and scattered with a reduction to the nodes that edges end in. These follow from the
 * offsets, of which there may be any number. One row more takes what has no source. */
#include <math.h>

#include "ops/ops.h"

/* Values of the edges of one matrix. */
typedef struct onnx_edges {
    int sources; /* i64 [edges]; 0 for none */
    int targets; /* i64 [edges]; `nodes` for none */
    int nodes;   /* i64 [1] that edges end in */
    int rows;    /* i64 [1] nodes + 1 */
} onnx_edges;

static int flatten(by__op_onnx *o, int x)
{
    return by__op_onnx_reshape(o, x, (const int64_t[]){-1}, 1);
}

static int constant(by__op_onnx *o, int64_t value)
{
    return by__op_onnx_list(o, &value, 1);
}

/* Entries begin .. end - 1 of axis 0. */
static int cut(by__op_onnx *o, int x, int begin, int end)
{
    const int in[4] = {x, begin, end, constant(o, 0)};
    return o->node(o, "Slice", in, 4, 1);
}

/* The number of the row that entry k is in is that of the offsets up to k, without the first. */
static int rows_of_entries(by__op_onnx *o, int offsets, int entries)
{
    int ends = cut(o, offsets, constant(o, 1), constant(o, INT64_MAX));
    int one = constant(o, 1);
    int zeros =
        by__op_onnx_node2(o, "Expand", constant(o, 0), by__op_onnx_node2(o, "Add", entries, one));
    int ones = by__op_onnx_node2(o, "Expand", one, by__op_onnx_node1(o, "Shape", ends));
    int marks = by__op_onnx_node3(o, "ScatterElements", zeros, ends, ones);
    o->set_text(o, "reduction", "add");
    int sums = by__op_onnx_node2(o, "CumSum", marks, by__op_onnx_int(o, 0));
    return cut(o, sums, constant(o, 0), entries);
}

static onnx_edges read_edges(by__op_onnx *o, int offsets, int sources)
{
    offsets = flatten(o, offsets);
    sources = flatten(o, sources);
    onnx_edges e;
    e.rows = by__op_onnx_node1(o, "Shape", offsets);
    e.nodes = by__op_onnx_node2(o, "Sub", e.rows, constant(o, 1));
    int targets = rows_of_entries(o, offsets, by__op_onnx_node1(o, "Shape", sources));
    int none = by__op_onnx_node2(o, "Less", sources, constant(o, 0));
    e.targets = by__op_onnx_node3(o, "Where", none, e.nodes, targets);
    e.sources = by__op_onnx_node2(o, "Max", sources, constant(o, 0));
    return e;
}

static int gather(by__op_onnx *o, int x, int rows)
{
    return by__op_onnx_node2(o, "Gather", x, rows); /* axis 0 */
}

/* Rows of values [edges, columns] by their targets, with the last one, which is of none. */
static int scatter(by__op_onnx *o, const onnx_edges *e, int values, int64_t columns, float first,
                   const char *reduction)
{
    const int parts[2] = {e->rows, constant(o, columns)};
    int shape = o->node(o, "Concat", parts, 2, 1);
    o->set_int(o, "axis", 0);
    int start = by__op_onnx_node2(o, "Expand", by__op_onnx_float(o, first), shape);
    int places = by__op_onnx_reshape(o, e->targets, (const int64_t[]){-1, 1}, 2);
    int y = by__op_onnx_node3(o, "ScatterND", start, places, values);
    o->set_text(o, "reduction", reduction);
    return y;
}

static int rows_of_nodes(by__op_onnx *o, const onnx_edges *e, int y, int64_t columns)
{
    y = cut(o, y, constant(o, 0), e->nodes);
    return by__op_onnx_reshape(o, y, (const int64_t[]){1, -1, columns}, 3);
}

static by_status one_matrix(const by__op_signature *s, by_error *error)
{
    return s->in[0].shape.dim[0] == 1
               ? BY_OK
               : by__op_refuse(s, error, "edges of several graphs have no form in ONNX");
}

by_status by__op_onnx_sparse_matmul(const by__op_signature *s, const by__graph_type *out,
                                    by__op_onnx *o, by_error *error)
{
    int64_t columns = out->shape.dim[2];
    BY_TRY(one_matrix(s, error));
    if (!by__absent(&s->in[3])) {
        return by__op_refuse(s, error, "edges in another order have no form in ONNX");
    }
    onnx_edges e = read_edges(o, 1, 2);
    int x = by__op_onnx_reshape(o, 0, (const int64_t[]){-1, columns}, 2);
    int y = gather(o, x, e.sources);
    if (!by__absent(&s->in[4])) {
        int64_t groups = s->in[4].shape.dim[2];
        int w = by__op_onnx_reshape(o, 4, (const int64_t[]){-1, groups, 1}, 3);
        y = by__op_onnx_reshape(o, y, (const int64_t[]){-1, groups, columns / groups}, 3);
        y = by__op_onnx_node2(o, "Mul", y, w);
        y = by__op_onnx_reshape(o, y, (const int64_t[]){-1, columns}, 2);
    }
    y = scatter(o, &e, y, columns, 0.0f, "add");
    o->result(o, 0, rows_of_nodes(o, &e, y, columns));
    return BY_OK;
}

by_status by__op_onnx_sparse_max(const by__op_signature *s, const by__graph_type *out,
                                 by__op_onnx *o, by_error *error)
{
    int64_t columns = out->shape.dim[2];
    BY_TRY(one_matrix(s, error));
    onnx_edges e = read_edges(o, 1, 2);
    int x = by__op_onnx_reshape(o, 0, (const int64_t[]){-1, columns}, 2);
    int y = scatter(o, &e, gather(o, x, e.sources), columns, -INFINITY, "max");
    int none = by__op_onnx_node1(o, "IsInf", y);
    y = by__op_onnx_node3(o, "Where", none, by__op_onnx_float(o, 0.0f), y);
    o->result(o, 0, rows_of_nodes(o, &e, y, columns));
    return BY_OK;
}

/* Entries without a source have a row of their own, where nothing reads their weights. */
by_status by__op_onnx_edge_attention(const by__op_signature *s, const by__graph_type *out,
                                     by__op_onnx *o, by_error *error)
{
    int64_t heads = out->shape.dim[2];
    BY_TRY(one_matrix(s, error));
    onnx_edges e = read_edges(o, 2, 3);
    int source = by__op_onnx_reshape(o, 0, (const int64_t[]){-1, heads}, 2);
    int target = by__op_onnx_reshape(o, 1, (const int64_t[]){-1, heads}, 2);
    int last = by__op_onnx_node2(o, "Sub", e.nodes, constant(o, 1));
    int ends = by__op_onnx_node2(o, "Min", e.targets, last);
    int z = by__op_onnx_node2(o, "Add", gather(o, source, e.sources), gather(o, target, ends));
    z = by__op_onnx_node1(o, "LeakyRelu", z);
    o->set_float(o, "alpha", s->attrs->value);
    int most = scatter(o, &e, z, heads, -INFINITY, "max");
    z = by__op_onnx_node2(o, "Sub", z, gather(o, most, e.targets));
    z = by__op_onnx_node1(o, "Exp", z);
    int sums = scatter(o, &e, z, heads, 0.0f, "add");
    z = by__op_onnx_node2(o, "Div", z, gather(o, sums, e.targets));
    o->result(o, 0, by__op_onnx_reshape(o, z, (const int64_t[]){1, -1, heads}, 3));
    return BY_OK;
}
