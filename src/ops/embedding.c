/* Table look-ups and positions: token embeddings, learned positions, rotary positions. */
#include "ops/ops.h"

static by_status infer_offset_ids(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (s->in[0].dtype != BY_I32 || s->attrs->begin < 0 || s->attrs->rows < 1) {
        return by__op_refuse(s, error, "ids must be i32, of a table of one row or more");
    }
    out[0] = s->in[0];
    return BY_OK;
}

static int64_t ids_of_table(const by__op_signature *s)
{
    return s->attrs->rows;
}

static by_value offset_ids(by_graph *graph, by_value ids, int64_t begin, int64_t rows)
{
    by_attrs attrs = {.begin = begin, .rows = rows};
    return by__op_add_node(graph, BY_OP_OFFSET_IDS, &attrs, &ids, 1, NULL);
}

static by_status infer_embedding(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *ids = &s->in[0];
    const by__graph_type *table = &s->in[1];
    if (ids->dtype != BY_I32 || !by__op_is_act(table->dtype) || table->shape.rank != 2 ||
        ids->shape.rank >= BY_MAX_RANK) {
        return by__op_refuse(s, error,
                             "ids must be i32 and the table [rows, width] f32, bf16 or f16");
    }
    out[0] = (by__graph_type){table->dtype, ids->shape};
    out[0].shape.dim[out[0].shape.rank++] = table->shape.dim[1];
    return BY_OK;
}

static void gradient_embedding(by_graph *graph, const by__graph_node *node, const by_value *dout,
                               by_value *din)
{
    by_attrs attrs = {.rows = graph->values[node->in[1]].shape.dim[0]};
    by_value in[2] = {node->in[0], dout[0]};
    din[0] = BY_NONE;
    din[1] = by__op_add_node(graph, BY_OP_EMBEDDING_GRAD, &attrs, in, 2, NULL);
}

/* Packs a table that is also the weight of the head. */
static bool pack_embedding(const by__op_signature *s, int input, by__op_packed_reader *out)
{
    const by__graph_type *table = &s->in[1];
    if (input != 1) {
        return false;
    }
    *out = (by__op_packed_reader){.op = BY_OP_PACKED_EMBEDDING, .out_in = true};
    out->attrs.dtype = table->dtype;
    out->attrs.packing =
        (by_packing){.dtype = table->dtype, .n = table->shape.dim[0], .k = table->shape.dim[1]};
    return true;
}

/* Sets the rows of the whole table, which the nodes built by the shard entries need. */
static void build_embedding(by_graph *graph, const by__op_sharding *sh, const by_value *in,
                            int input_count, by_value outs[BY_MAX_OUTPUTS])
{
    int64_t begin = by__op_cut(sh->attrs.rows, sh->ranks, sh->rank);
    by_value local[2] = {offset_ids(graph, in[0], begin, sh->attrs.rows), in[1]};
    (void)by__op_add_node(graph, BY_OP_EMBEDDING, &(by_attrs){0}, local, input_count, outs);
}

/* With a slice of the table's rows, ids of other slices give zeros, so the result is an addend. */
static bool shard_embedding(const by__op_signature *s, const by__graph_type *out,
                            by__op_sharding *sh)
{
    by__graph_split ids = sh->in[0];
    by__graph_split table = sh->in[1];
    if (table.axis == BY__WHOLE) {
        sh->out[0] = ids;
        return ids.axis >= 0;
    }
    if (table.axis == 1) {
        sh->out[0] = (by__graph_split){out[0].shape.rank - 1, table.sections};
        return ids.axis == BY__WHOLE;
    }
    sh->out[0] = by__op_partial();
    sh->attrs.rows = s->in[1].shape.dim[0];
    sh->build = build_embedding;
    return table.axis == 0 && table.sections == 1 && ids.axis == BY__WHOLE;
}

static void build_embedding_grad(by_graph *graph, const by__op_sharding *sh, const by_value *in,
                                 int input_count, by_value outs[BY_MAX_OUTPUTS])
{
    int64_t begin = by__op_cut(sh->attrs.rows, sh->ranks, sh->rank);
    by_attrs attrs = {.rows = by__op_cut(sh->attrs.rows, sh->ranks, sh->rank + 1) - begin};
    by_value local[3] = {offset_ids(graph, in[0], begin, sh->attrs.rows), in[1],
                         input_count > 2 ? in[2] : BY_NONE};
    (void)by__op_add_node(graph, BY_OP_EMBEDDING_GRAD, &attrs, local, input_count, outs);
}

/* Each rank of a table split by rows sums the gradients of its own rows. */
static bool shard_embedding_grad(const by__op_signature *s, const by__graph_type *out,
                                 by__op_sharding *sh)
{
    by__graph_split base = s->input_count > 2 ? sh->in[2] : by__op_whole();
    bool based = s->input_count > 2 && !by__absent(&s->in[2]);
    by__graph_split dy = sh->in[1];
    by__graph_split ids;
    int last = s->in[1].shape.rank - 1;
    BY_UNUSED(out);
    if (sh->in[0].axis == BY__WHOLE && dy.axis == BY__WHOLE) {
        sh->out[0] = sh->want;
        sh->build = build_embedding_grad;
        return sh->want.axis == 0 && sh->want.sections == 1 &&
               (!based || by__op_split_equal(base, sh->want));
    }
    if (dy.axis == last) {
        sh->out[0] = (by__graph_split){1, dy.sections};
        return sh->in[0].axis == BY__WHOLE && (!based || by__op_split_equal(base, sh->out[0]));
    }
    sh->out[0] = by__op_partial();
    return by__op_split_of_rows(&s->in[1].shape, dy, &s->in[0].shape, sh->ranks, &ids) &&
           by__op_split_equal(ids, sh->in[0]) && (!based || base.axis == BY__PARTIAL);
}

static by_status infer_embedding_grad(const by__op_signature *s, by__graph_type *out,
                                      by_error *error)
{
    const by__graph_type *dy = &s->in[1];
    by__graph_type table = {BY_F32, BY_SHAPE(s->attrs->rows, by__op_last_dim(&dy->shape))};
    if (s->in[0].dtype != BY_I32 || !by__op_is_act(dy->dtype) ||
        by_shape_count(&s->in[0].shape) != by__op_rows(&dy->shape)) {
        return by__op_refuse(s, error, "dy must have one row for each id");
    }
    if (s->input_count > 2 && !by__absent(&s->in[2]) && !by__op_type_equal(&s->in[2], &table)) {
        return by__op_refuse(s, error, "the base must be the table's f32 gradient");
    }
    out[0] = table;
    return BY_OK;
}

void by__op_cost_embedding(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    cost->flops = 0.0;
    cost->bytes_read = by__op_type_bytes(&out[0]) + 4.0 * (double)by_shape_count(&s->in[0].shape);
}

/* Returns true if the positions of `count` entries are below `rows`. */
static bool are_places(const by_attrs *a, int64_t count, int64_t rows)
{
    return a->begin >= 0 && a->gap >= 0 && a->turn >= 0 && a->begin <= rows &&
           a->gap <= rows - a->begin && count <= rows - a->begin - a->gap;
}

static by_status infer_position(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *x = &s->in[0];
    const by__graph_type *table = &s->in[1];
    if (!by__op_is_act(x->dtype) || x->shape.rank != 3 || table->shape.rank != 2 ||
        table->dtype != x->dtype || table->shape.dim[1] != x->shape.dim[2]) {
        return by__op_refuse(s, error,
                             "x must be [batch, time, width] and the table [positions, width]");
    }
    if (!are_places(s->attrs, x->shape.dim[1], table->shape.dim[0])) {
        return by__op_refuse(s, error, "the sequence is longer than the table of positions");
    }
    out[0] = *x;
    return BY_OK;
}

static void gradient_position(by_graph *graph, const by__graph_node *node, const by_value *dout,
                              by_value *din)
{
    by_attrs attrs = {.rows = graph->values[node->in[1]].shape.dim[0],
                      .begin = node->attrs.begin,
                      .turn = node->attrs.turn,
                      .gap = node->attrs.gap};
    din[0] = dout[0];
    din[1] = by__op_add_node(graph, BY_OP_POSITION_GRAD, &attrs, dout, 1, NULL);
}

static by_status infer_position_grad(const by__op_signature *s, by__graph_type *out,
                                     by_error *error)
{
    const by__graph_type *dy = &s->in[0];
    if (!by__op_is_act(dy->dtype) || dy->shape.rank != 3 ||
        !are_places(s->attrs, dy->shape.dim[1], s->attrs->rows)) {
        return by__op_refuse(s, error, "dy must be [batch, time, width] within the table");
    }
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(s->attrs->rows, dy->shape.dim[2])};
    return BY_OK;
}

/* A rank's positions are those of its slice of the sequence. */
static bool set_places(const by__op_signature *s, by__op_sharding *sh)
{
    return sh->in[0].axis != 1 || by__op_shard_places(s, sh, 1, 1);
}

static bool shard_position(const by__op_signature *s, const by__graph_type *out,
                           by__op_sharding *sh)
{
    by__graph_split x = sh->in[0];
    by__graph_split table = x.axis == 2 ? (by__graph_split){1, x.sections} : by__op_whole();
    BY_UNUSED(out);
    sh->out[0] = x;
    return x.axis >= 0 && (x.axis != 1 || x.sections == 1) &&
           by__op_split_equal(sh->in[1], table) && set_places(s, sh);
}

static bool shard_position_grad(const by__op_signature *s, const by__graph_type *out,
                                by__op_sharding *sh)
{
    by__graph_split dy = sh->in[0];
    BY_UNUSED(out);
    sh->out[0] = dy.axis == 2 ? (by__graph_split){1, dy.sections} : by__op_partial();
    return dy.axis >= 0 && (dy.axis != 1 || dy.sections == 1) && set_places(s, sh);
}

static bool shard_rope(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    by__graph_split x = sh->in[0];
    bool by_row =
        s->input_count > 1 && !by__absent(&s->in[1]) && by_shape_count(&s->in[1].shape) > 1;
    BY_UNUSED(out);
    sh->out[0] = x;
    if (x.axis == 2) {
        sh->attrs.heads = s->attrs->heads / sh->ranks;
    }
    return x.axis >= (by_row ? 2 : 0) && x.sections == 1 &&
           (x.axis != 2 || s->attrs->heads % sh->ranks == 0) &&
           by__op_shard_all_whole_but(sh, s->input_count, 1u << 0) && set_places(s, sh);
}

static by_status infer_rope(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *x = &s->in[0];
    int64_t heads = s->attrs->heads;
    if (!by__op_is_act(x->dtype) || x->shape.rank != 3 || heads < 1 || heads > x->shape.dim[2] ||
        x->shape.dim[2] % (2 * heads) != 0) {
        return by__op_refuse(s, error, "x must be [batch, time, heads x even width]");
    }
    if (s->input_count > 1 && !by__absent(&s->in[1])) {
        int64_t positions = by_shape_count(&s->in[1].shape);
        if (s->in[1].dtype != BY_I32 ||
            (positions != 1 && positions != x->shape.dim[0] * x->shape.dim[1])) {
            return by__op_refuse(s, error, "positions must be one i32, or one for each row");
        }
    }
    if (s->attrs->begin < 0 || s->attrs->turn < 0 || s->attrs->gap < 0) {
        return by__op_refuse(s, error, "a position is negative");
    }
    if (s->attrs->factor < 0.0f || s->attrs->wave < 0.0f || s->attrs->amplitude < 0.0f ||
        (s->attrs->factor > 0.0f && !(s->attrs->low < s->attrs->high))) {
        return by__op_refuse(s, error,
                             "factor, wave and amplitude must not be negative, and low be below "
                             "high");
    }
    out[0] = *x;
    return BY_OK;
}

/* The transpose of a rotation is the rotation by the negative angle. */
static void gradient_rope(by_graph *graph, const by__graph_node *node, const by_value *dout,
                          by_value *din)
{
    by_attrs attrs = node->attrs;
    by_value in[2] = {dout[0], node->input_count > 1 ? node->in[1] : BY_NONE};
    attrs.inverse = !attrs.inverse;
    din[0] = by__op_add_node(graph, BY_OP_ROPE, &attrs, in, 2, NULL);
}

static void cost_rope(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(s);
    cost->flops = 3.0 * (double)by_shape_count(&out[0].shape);
}

static int64_t table_rows(const by__op_signature *s)
{
    return s->in[1].shape.dim[0];
}

#define SPARE(field) BY__ATTR_AS(#field, field, FLOAT, BY__ATTR_NO_WORK | BY__ATTR_SPARE)
#define BEGIN        BY__ATTR_AS("begin", begin, INT, BY__ATTR_NO_WORK | BY__ATTR_SPARE)
#define PLACES                                                                                     \
    BEGIN, BY__ATTR_AS("turn", turn, INT, BY__ATTR_NO_WORK | BY__ATTR_SPARE),                      \
        BY__ATTR_AS("gap", gap, INT, BY__ATTR_NO_WORK | BY__ATTR_SPARE)
const by__op_row by__op_offset_ids = {
    .min_inputs = 1,
    .max_inputs = 1,
    .outputs = 1,
    .attrs = BY__ATTRS(BEGIN, BY__ATTR_AS("rows", rows, INT, 0)),
    .infer = infer_offset_ids,
    .indices = {{.input = 0, .may_be_negative = true, .limit = ids_of_table}}};
static by_status onnx_embedding(const by__op_signature *s, const by__graph_type *out,
                                by__op_onnx *onnx, by_error *error)
{
    BY_UNUSED(s);
    BY_UNUSED(out);
    BY_UNUSED(error);
    onnx->result(onnx, 0, by__op_onnx_node2(onnx, "Gather", 1, 0));
    return BY_OK;
}

/* Rows begin .. begin + T of the table, where T is the length of x. */
static by_status onnx_position(const by__op_signature *s, const by__graph_type *out,
                               by__op_onnx *onnx, by_error *error)
{
    const by_attrs *a = s->attrs;
    BY_UNUSED(out);
    if (a->turn != 0 || a->gap != 0) {
        return by__op_refuse(s, error, "positions with a gap have no form in ONNX");
    }
    int first = by__op_onnx_int(onnx, a->begin);
    int end = by__op_onnx_node2(onnx, "Add", by__op_onnx_extent(onnx, 0, 1), first);
    int rows = by__op_onnx_node3(onnx, "Range", first, end, by__op_onnx_int(onnx, 1));
    int added = by__op_onnx_node2(onnx, "Gather", 1, rows);
    onnx->result(onnx, 0, by__op_onnx_node2(onnx, "Add", 0, added));
    return BY_OK;
}

/* Positions as floats, to be multiplied by frequencies: of rows that have one each, or counted in
 * each sample. */
static int onnx_rope_places(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx)
{
    const by_shape *x = &out->shape;
    bool given = s->input_count > 1 && !by__absent(&s->in[1]);
    int places;
    if (given && by_shape_count(&s->in[1].shape) > 1) {
        places = by__op_onnx_node1(onnx, "Cast", 1);
        onnx->set_int(onnx, "to", 1);
        return by__op_onnx_reshape(onnx, places, (const int64_t[]){-1, x->dim[1], 1, 1}, 4);
    }
    places = by__op_onnx_node3(onnx, "Range", by__op_onnx_int(onnx, 0),
                               by__op_onnx_extent(onnx, 0, 1), by__op_onnx_int(onnx, 1));
    places = by__op_onnx_node2(onnx, "Add", places, by__op_onnx_int(onnx, s->attrs->begin));
    if (given) {
        places = by__op_onnx_node2(onnx, "Add", places, 1);
    }
    places = by__op_onnx_node1(onnx, "Cast", places);
    onnx->set_int(onnx, "to", 1);
    return by__op_onnx_reshape(onnx, places, (const int64_t[]){-1, 1, 1}, 3);
}

/* On the two halves of each head: y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin. */
static by_status onnx_rope(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                           by_error *error)
{
    const by_attrs *a = s->attrs;
    by_rotation rotation = by_rotation_of(a);
    int64_t width = out->shape.dim[2] / a->heads;
    float frequencies[512];
    if (a->inverse || a->turn != 0 || a->gap != 0 || width > 1024) {
        return by__op_refuse(s, error, "a rotation of this form has none in ONNX");
    }
    for (int64_t i = 0; i < width / 2; i++) {
        frequencies[i] = by_rotation_frequency(&rotation, i, width);
    }
    int places = onnx_rope_places(s, out, onnx);
    int angle = by__op_onnx_node2(onnx, "Mul", places,
                                  onnx->floats(onnx, frequencies, &BY_SHAPE(1, 1, width / 2)));
    int cosine = by__op_onnx_node1(onnx, "Cos", angle);
    int sine = by__op_onnx_node1(onnx, "Sin", angle);
    if (rotation.amplitude != 0.0f && rotation.amplitude != 1.0f) {
        int amplitude = by__op_onnx_float(onnx, rotation.amplitude);
        cosine = by__op_onnx_node2(onnx, "Mul", cosine, amplitude);
        sine = by__op_onnx_node2(onnx, "Mul", sine, amplitude);
    }
    int x = by__op_onnx_reshape(onnx, 0, (const int64_t[]){0, 0, a->heads, width}, 4);
    int x1 = by__op_onnx_split(onnx, x, 3, (const int64_t[]){width / 2, width / 2}, 2);
    int x2 = x1 + 1;
    int y1 = by__op_onnx_node2(onnx, "Sub", by__op_onnx_node2(onnx, "Mul", x1, cosine),
                               by__op_onnx_node2(onnx, "Mul", x2, sine));
    int y2 = by__op_onnx_node2(onnx, "Add", by__op_onnx_node2(onnx, "Mul", x2, cosine),
                               by__op_onnx_node2(onnx, "Mul", x1, sine));
    int y = by__op_onnx_node2(onnx, "Concat", y1, y2);
    onnx->set_int(onnx, "axis", 3);
    y = by__op_onnx_reshape(onnx, y, (const int64_t[]){0, 0, a->heads * width}, 3);
    onnx->result(onnx, 0, y);
    return BY_OK;
}

const by__op_row by__op_embedding = {.min_inputs = 2,
                                     .max_inputs = 2,
                                     .outputs = 1,
                                     .infer = infer_embedding,
                                     .onnx = onnx_embedding,
                                     .gradient = gradient_embedding,
                                     .cost = by__op_cost_embedding,
                                     .gathers = 1u << 1,
                                     .pack = pack_embedding,
                                     .shard = shard_embedding,
                                     .indices = {{.input = 0, .limit = table_rows}}};
const by__op_row by__op_embedding_grad = {
    .min_inputs = 2,
    .max_inputs = 3,
    .outputs = 1,
    .optional = 1u << 2,
    .attrs = BY__ATTRS(BY__ATTR_AS("rows", rows, INT, BY__ATTR_IN_TYPE)),
    .infer = infer_embedding_grad,
    .overlay = {1u << 2},
    .keeps_f32 = 1u << 2,
    .shard = shard_embedding_grad,
    .addend = 2};
const by__op_row by__op_position = {.min_inputs = 2,
                                    .max_inputs = 2,
                                    .outputs = 1,
                                    .attrs = BY__ATTRS(PLACES),
                                    .infer = infer_position,
                                    .onnx = onnx_position,
                                    .shard = shard_position,
                                    .gradient = gradient_position,
                                    .gathers = 1u << 1,
                                    .overlay = {1u << 0}};
const by__op_row by__op_position_grad = {
    .min_inputs = 1,
    .max_inputs = 1,
    .outputs = 1,
    .attrs = BY__ATTRS(BY__ATTR_AS("rows", rows, INT, BY__ATTR_IN_TYPE), PLACES),
    .infer = infer_position_grad,
    .shard = shard_position_grad};
const by__op_row by__op_rope = {
    .min_inputs = 1,
    .max_inputs = 2,
    .outputs = 1,
    .optional = 1u << 1,
    .attrs = BY__ATTRS(BY__ATTR(heads, INT), BY__ATTR(theta, FLOAT), SPARE(factor), SPARE(low),
                       SPARE(high), SPARE(wave), SPARE(amplitude), BY__ATTR(inverse, FLAG), PLACES),
    .infer = infer_rope,
    .onnx = onnx_rope,
    .shard = shard_rope,
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

by_value by_rope(by_graph *graph, by_value x, by_value start, int64_t heads,
                 const by_rotation *rotation)
{
    by_attrs attrs = {.heads = heads,
                      .theta = rotation->theta,
                      .factor = rotation->factor,
                      .low = rotation->low,
                      .high = rotation->high,
                      .wave = rotation->wave,
                      .amplitude = rotation->amplitude};
    by_value in[2] = {x, start};
    return by__op_add_node(graph, BY_OP_ROPE, &attrs, in, 2, NULL);
}
