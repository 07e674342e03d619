/* Table look-ups and positions: token embedding, learned positions, rotary positions. */
#include "ops/ops.h"

static by_status infer_embedding(const by__signature *s, by__type *out, by_error *error)
{
    const by__type *ids = &s->in[0];
    const by__type *table = &s->in[1];
    if (ids->dtype != BY_I32 || !by__is_act(table->dtype) || table->shape.rank != 2 ||
        ids->shape.rank >= BY_MAX_RANK) {
        return by__op_refuse(s, error, "ids must be i32 and the table [rows, width] f32 or bf16");
    }
    out[0] = (by__type){table->dtype, ids->shape};
    out[0].shape.dim[out[0].shape.rank++] = table->shape.dim[1];
    return BY_OK;
}

static void gradient_embedding(by_graph *graph, const by__node *node, const by_value *dout,
                               by_value *din)
{
    by_attrs attrs = {.rows = graph->values[node->in[1]].shape.dim[0]};
    by_value in[2] = {node->in[0], dout[0]};
    din[0] = BY_NONE;
    din[1] = by__op_add_node(graph, BY_OP_EMBEDDING_GRAD, &attrs, in, 2, NULL);
}

static by_status infer_embedding_grad(const by__signature *s, by__type *out, by_error *error)
{
    const by__type *dy = &s->in[1];
    by__type table = {BY_F32, BY_SHAPE(s->attrs->rows, by__last_dim(&dy->shape))};
    if (s->in[0].dtype != BY_I32 || !by__is_act(dy->dtype) ||
        by_shape_count(&s->in[0].shape) != by__rows(&dy->shape)) {
        return by__op_refuse(s, error, "dy must have one row for each id");
    }
    if (s->input_count > 2 && !by__absent(&s->in[2]) && !by__type_equal(&s->in[2], &table)) {
        return by__op_refuse(s, error, "the base must be the table's f32 gradient");
    }
    out[0] = table;
    return BY_OK;
}

/* A gather moves as many bytes as it looks up, not the whole table. */
static void cost_embedding(const by__signature *s, const by__type *out, by__cost *cost)
{
    double bytes = (double)by_shape_count(&out[0].shape) * (double)by_dtype_size(out[0].dtype);
    cost->flops = 0.0;
    cost->bytes_read = bytes + 4.0 * (double)by_shape_count(&s->in[0].shape);
}

static by_status infer_position(const by__signature *s, by__type *out, by_error *error)
{
    const by__type *x = &s->in[0];
    const by__type *table = &s->in[1];
    if (!by__is_act(x->dtype) || x->shape.rank != 3 || table->shape.rank != 2 ||
        table->dtype != x->dtype || table->shape.dim[1] != x->shape.dim[2]) {
        return by__op_refuse(s, error,
                             "x must be [batch, time, width] and the table [positions, width]");
    }
    if (x->shape.dim[1] > table->shape.dim[0]) {
        return by__op_refuse(s, error, "the sequence is longer than the table of positions");
    }
    out[0] = *x;
    return BY_OK;
}

static void gradient_position(by_graph *graph, const by__node *node, const by_value *dout,
                              by_value *din)
{
    by_attrs attrs = {.rows = graph->values[node->in[1]].shape.dim[0]};
    din[0] = dout[0];
    din[1] = by__op_add_node(graph, BY_OP_POSITION_GRAD, &attrs, dout, 1, NULL);
}

static by_status infer_position_grad(const by__signature *s, by__type *out, by_error *error)
{
    const by__type *dy = &s->in[0];
    if (!by__is_act(dy->dtype) || dy->shape.rank != 3 || dy->shape.dim[1] > s->attrs->rows) {
        return by__op_refuse(s, error, "dy must be [batch, time, width] within the table");
    }
    out[0] = (by__type){BY_F32, BY_SHAPE(s->attrs->rows, dy->shape.dim[2])};
    return BY_OK;
}

static by_status infer_rope(const by__signature *s, by__type *out, by_error *error)
{
    const by__type *x = &s->in[0];
    int64_t heads = s->attrs->heads;
    if (!by__is_act(x->dtype) || x->shape.rank != 3 || heads < 1 || heads > x->shape.dim[2] ||
        x->shape.dim[2] % (2 * heads) != 0) {
        return by__op_refuse(s, error, "x must be [batch, time, heads x even width]");
    }
    if (s->input_count > 1 && !by__absent(&s->in[1]) &&
        (s->in[1].dtype != BY_I32 || by_shape_count(&s->in[1].shape) != 1)) {
        return by__op_refuse(s, error, "the start position must be one i32");
    }
    out[0] = *x;
    return BY_OK;
}

/* A rotation's transpose is the rotation back. */
static void gradient_rope(by_graph *graph, const by__node *node, const by_value *dout,
                          by_value *din)
{
    by_attrs attrs = node->attrs;
    by_value in[2] = {dout[0], node->input_count > 1 ? node->in[1] : BY_NONE};
    attrs.inverse = !attrs.inverse;
    din[0] = by__op_add_node(graph, BY_OP_ROPE, &attrs, in, 2, NULL);
}

static void cost_rope(const by__signature *s, const by__type *out, by__cost *cost)
{
    BY_UNUSED(s);
    cost->flops = 3.0 * (double)by_shape_count(&out[0].shape);
}

static int64_t table_rows(const by__signature *s)
{
    return s->in[1].shape.dim[0];
}

const by__op_row by__op_embedding = {.name = "embedding",
                                     .min_inputs = 2,
                                     .max_inputs = 2,
                                     .outputs = 1,
                                     .infer = infer_embedding,
                                     .gradient = gradient_embedding,
                                     .cost = cost_embedding,
                                     .gathers = 1u << 1,
                                     .indices = {{.input = 0, .limit = table_rows}}};
const by__op_row by__op_embedding_grad = {
    .name = "embedding_grad",
    .min_inputs = 2,
    .max_inputs = 3,
    .outputs = 1,
    .optional = 1u << 2,
    .attrs = BY__ATTRS(BY__ATTR_AS("rows", rows, INT, BY__ATTR_IN_TYPE)),
    .infer = infer_embedding_grad,
    .overlay = {1u << 2},
    .keeps_f32 = 1u << 2,
    .addend = 2};
const by__op_row by__op_position = {.name = "position",
                                    .min_inputs = 2,
                                    .max_inputs = 2,
                                    .outputs = 1,
                                    .infer = infer_position,
                                    .gradient = gradient_position,
                                    .gathers = 1u << 1,
                                    .overlay = {1u << 0}};
const by__op_row by__op_position_grad = {
    .name = "position_grad",
    .min_inputs = 1,
    .max_inputs = 1,
    .outputs = 1,
    .attrs = BY__ATTRS(BY__ATTR_AS("rows", rows, INT, BY__ATTR_IN_TYPE)),
    .infer = infer_position_grad};
const by__op_row by__op_rope = {
    .name = "rope",
    .min_inputs = 1,
    .max_inputs = 2,
    .outputs = 1,
    .optional = 1u << 1,
    .attrs = BY__ATTRS(BY__ATTR(heads, INT), BY__ATTR(theta, FLOAT), BY__ATTR(inverse, FLAG)),
    .infer = infer_rope,
    .gradient = gradient_rope,
    .cost = cost_rope,
    .overlay = {1u << 0}};

by_value by_embedding(by_graph *graph, by_value ids, by_value table)
{
    by_value in[2] = {ids, table};
    return by__op_add_node(graph, BY_OP_EMBEDDING, &(by_attrs){0}, in, 2, NULL);
}

by_value by_position(by_graph *graph, by_value x, by_value table)
{
    by_value in[2] = {x, table};
    return by__op_add_node(graph, BY_OP_POSITION, &(by_attrs){0}, in, 2, NULL);
}

by_value by_rope(by_graph *graph, by_value x, by_value start, int64_t heads, float theta)
{
    by_attrs attrs = {.heads = heads, .theta = theta};
    by_value in[2] = {x, start};
    return by__op_add_node(graph, BY_OP_ROPE, &attrs, in, 2, NULL);
}
