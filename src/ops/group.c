/* Grouping of rows by a key, such as the expert that a token is routed to, and the inverse.
 *
 * GROUP lists the entries of each group in order; those whose id is no group's are in none.
 * SCATTER_ROWS brings rows into that order and GATHER_ROWS brings them back. Each is the other's
 * gradient, so rows are never added to the same place in an order that depends on threads.
 *
 * Ranks that divide the examples evenly each group their own. A tensor of grouped rows
 * [G, capacity, C] is then split within each group: it has G sections, and a rank has a slice of
 * each. Slots and members of such a tensor are numbered within the rank's part. */
#include "ops/ops.h"

static by_status check_ids(const by__op_signature *s, by_error *error)
{
    const by__graph_type *ids = &s->in[0];
    if (ids->dtype != BY_I32 || ids->shape.rank < 1 || s->attrs->rows < 1) {
        return by__op_refuse(s, error, "ids must be i32 [...] of one group or more");
    }
    return BY_OK;
}

static by_status infer_group(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_ids(s, error));
    int64_t groups = s->attrs->rows;
    int64_t capacity = s->attrs->capacity;
    int64_t blocks = s->attrs->blocks > 1 ? s->attrs->blocks : 1;
    int64_t entries = by_shape_count(&s->in[0].shape);
    if (capacity < 0 || entries > INT32_MAX || groups > INT32_MAX / blocks ||
        (capacity > 0 && groups * blocks > INT32_MAX / capacity)) {
        return by__op_refuse(s, error, "there are more than 2^31 rows");
    }
    if (entries % blocks != 0 || (blocks > 1 && capacity == 0)) {
        return by__op_refuse(s, error, "blocks must be equal and have a capacity");
    }
    out[0] = s->in[0];
    out[1] =
        (by__graph_type){BY_I32, BY_SHAPE(capacity > 0 ? groups * blocks * capacity : entries)};
    out[2] = (by__graph_type){BY_I32, BY_SHAPE(groups * blocks, 2)};
    return BY_OK;
}

/* A rank's examples fill one block. Without a limit, the capacity is the number of rows of ids,
 * since the ids of a row are different. */
static void divide_group(const by__op_signature *s, int ranks, by_attrs *attrs)
{
    int64_t most = attrs->capacity > 0 ? attrs->capacity : by__op_rows(&s->in[0].shape);
    attrs->capacity = (most + ranks - 1) / ranks;
    attrs->blocks = ranks;
}

/* Returns true for slices of the first axis, which are blocks of entries. */
static bool is_by_example(by__graph_split split)
{
    return split.axis == 0 && split.sections == 1;
}

static bool shard_group(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    by__graph_split within = {0, s->attrs->rows};
    BY_UNUSED(out);
    sh->out[0] = sh->in[0];
    sh->out[1] = within;
    sh->out[2] = within;
    sh->attrs.blocks = 0;
    return is_by_example(sh->in[0]) && s->attrs->blocks == sh->ranks && s->attrs->rows > 1;
}

static bool shard_count_ids(const by__op_signature *s, const by__graph_type *out,
                            by__op_sharding *sh)
{
    BY_UNUSED(s);
    BY_UNUSED(out);
    sh->out[0] = by__op_partial();
    return sh->in[0].axis >= 0;
}

static by_status infer_count_ids(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_ids(s, error));
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(s->attrs->rows)};
    return BY_OK;
}

/* Types of SCATTER_ROWS and GATHER_ROWS: x, slot, member, weight?. */
static by_status infer_rows(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *x = &s->in[0];
    const by__graph_type *slot = &s->in[1];
    const by__graph_type *member = &s->in[2];
    bool scatter = s->op == BY_OP_SCATTER_ROWS;
    if (!by__op_is_act(x->dtype) || x->shape.rank < 2 || slot->dtype != BY_I32 ||
        slot->shape.rank < 1 || member->dtype != BY_I32 || member->shape.rank != 1) {
        return by__op_refuse(s, error,
                             "x must be [..., columns], slots [..., choices] and members "
                             "[rows], both i32");
    }
    if (by__op_rows(&x->shape) != (scatter ? by__op_rows(&slot->shape) : member->shape.dim[0])) {
        return by__op_refuse(s, error,
                             scatter ? "there must be one row of slots for each of x"
                                     : "there must be one member for each row of x");
    }
    if (s->input_count > 3 && !by__absent(&s->in[3]) &&
        (s->in[3].dtype != BY_F32 || !by_shape_equal(&s->in[3].shape, &slot->shape))) {
        return by__op_refuse(s, error, "weights must be f32 and like the slots");
    }
    int64_t columns = by__op_last_dim(&x->shape);
    out[0].dtype = x->dtype;
    if (scatter) {
        out[0].shape = BY_SHAPE(member->shape.dim[0], columns);
    } else {
        out[0].shape = slot->shape;
        out[0].shape.dim[slot->shape.rank - 1] = columns;
    }
    return BY_OK;
}

static by_value row_dots(by_graph *graph, by_value a, by_value b, by_value slot)
{
    by_value in[3] = {a, b, slot};
    return by__op_add_node(graph, BY_OP_ROW_DOTS, &(by_attrs){0}, in, 3, NULL);
}

static void gradient_rows(by_graph *graph, const by__graph_node *node, const by_value *dout,
                          by_value *din)
{
    bool scatter = node->op == BY_OP_SCATTER_ROWS;
    bool weighted = node->input_count > 3 && node->in[3] != BY_NONE;
    by_value in[4] = {dout[0], node->in[1], node->in[2], weighted ? node->in[3] : BY_NONE};
    by_value spread = scatter ? node->in[0] : dout[0];
    by_value grouped = scatter ? dout[0] : node->in[0];
    din[0] = by__op_add_node(graph, scatter ? BY_OP_GATHER_ROWS : BY_OP_SCATTER_ROWS,
                             &(by_attrs){0}, in, weighted ? 4 : 3, NULL);
    if (scatter && graph->error.status == BY_OK &&
        !by_shape_equal(&graph->values[din[0]].shape, &graph->values[node->in[0]].shape)) {
        din[0] = by_reshape(graph, din[0], graph->values[node->in[0]].shape);
    }
    if (weighted) {
        din[3] = row_dots(graph, spread, grouped, node->in[1]);
    }
}

static by_status infer_row_dots(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *a = &s->in[0];
    const by__graph_type *b = &s->in[1];
    const by__graph_type *slot = &s->in[2];
    if (!by__op_is_act(a->dtype) || a->dtype != b->dtype || a->shape.rank < 2 ||
        b->shape.rank != 2 || by__op_last_dim(&a->shape) != by__op_last_dim(&b->shape) ||
        slot->dtype != BY_I32 || slot->shape.rank < 1 ||
        by__op_rows(&slot->shape) != by__op_rows(&a->shape)) {
        return by__op_refuse(s, error,
                             "a [..., columns] and b [rows, columns] must be of one dtype, with a "
                             "row of i32 slots for each of a");
    }
    out[0] = (by__graph_type){BY_F32, slot->shape};
    return BY_OK;
}

/* Returns true if operands by example (x or y, slots, weights) and by group (the other one,
 * members) are split that way. */
static bool is_divided(const by__op_sharding *sh, const by__op_signature *s,
                       by__graph_split examples, by__graph_split groups)
{
    return is_by_example(examples) && is_by_example(sh->in[1]) && groups.axis == 0 &&
           groups.sections > 1 && by__op_split_equal(sh->in[2], groups) &&
           (s->input_count <= 3 || by__absent(&s->in[3]) || is_by_example(sh->in[3]));
}

/* Columns and addends of rows are moved like whole rows; otherwise each rank moves its own rows. */
static bool shard_rows(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    by__graph_split x = sh->in[0];
    bool scatter = s->op == BY_OP_SCATTER_ROWS;
    if (x.axis == BY__PARTIAL || x.axis == s->in[0].shape.rank - 1) {
        sh->out[0] = x.axis < 0 ? x : (by__graph_split){out[0].shape.rank - 1, x.sections};
        return by__op_shard_all_whole_but(sh, s->input_count, 1u << 0);
    }
    by__graph_split groups = scatter ? sh->in[2] : x;
    by__graph_split examples = scatter ? x : (by__graph_split){0, 1};
    sh->out[0] = scatter ? groups : examples;
    return is_divided(sh, s, examples, groups);
}

static bool shard_row_dots(const by__op_signature *s, const by__graph_type *out,
                           by__op_sharding *sh)
{
    by__graph_split a = sh->in[0];
    by__graph_split b = sh->in[1];
    BY_UNUSED(out);
    if (a.axis == s->in[0].shape.rank - 1) {
        sh->out[0] = by__op_partial();
        return b.axis == 1 && b.sections == a.sections && sh->in[2].axis == BY__WHOLE;
    }
    sh->out[0] = sh->in[2];
    return is_by_example(a) && is_by_example(sh->in[2]) && b.axis == 0 && b.sections > 1;
}

/* Only the rows that are moved are read and written. */
static void cost_gather_rows(const by__op_signature *s, const by__graph_type *out,
                             by__op_cost *cost)
{
    double moved = (double)by_shape_count(&s->in[1].shape) * (double)by__op_last_dim(&out[0].shape);
    cost->flops = 2.0 * moved;
    cost->bytes_read = moved * (double)by_dtype_size(s->in[0].dtype);
}

static void cost_row_dots(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    cost->flops =
        2.0 * (double)by_shape_count(&out[0].shape) * (double)by__op_last_dim(&s->in[0].shape);
}

#define GROUPS BY__ATTR_AS("groups", rows, INT, BY__ATTR_IN_TYPE)
const by__op_row by__op_group = {
    .min_inputs = 1,
    .max_inputs = 1,
    .outputs = 3,
    .attrs = BY__ATTRS(GROUPS, BY__ATTR_AS("capacity", capacity, INT, BY__ATTR_SPARE),
                       BY__ATTR_AS("blocks", blocks, INT, BY__ATTR_SPARE)),
    .infer = infer_group,
    .shard = shard_group,
    .divide = divide_group};
const by__op_row by__op_count_ids = {.min_inputs = 1,
                                     .max_inputs = 1,
                                     .outputs = 1,
                                     .attrs = BY__ATTRS(GROUPS),
                                     .infer = infer_count_ids,
                                     .shard = shard_count_ids};
const by__op_row by__op_scatter_rows = {.min_inputs = 3,
                                        .max_inputs = 4,
                                        .outputs = 1,
                                        .optional = 1u << 3,
                                        .infer = infer_rows,
                                        .gradient = gradient_rows,
                                        .shard = shard_rows,
                                        .cheap = true,
                                        .keeps_f32 = 1u << 3};
const by__op_row by__op_gather_rows = {.min_inputs = 3,
                                       .max_inputs = 4,
                                       .outputs = 1,
                                       .optional = 1u << 3,
                                       .infer = infer_rows,
                                       .gradient = gradient_rows,
                                       .shard = shard_rows,
                                       .cost = cost_gather_rows,
                                       .cheap = true,
                                       .keeps_f32 = 1u << 3};
const by__op_row by__op_row_dots = {.min_inputs = 3,
                                    .max_inputs = 3,
                                    .outputs = 1,
                                    .infer = infer_row_dots,
                                    .shard = shard_row_dots,
                                    .cost = cost_row_dots};

void by_group(by_graph *graph, by_value ids, int64_t groups, int64_t capacity, by_value *slot,
              by_value *member, by_value *range)
{
    by_attrs attrs = {.rows = groups, .capacity = capacity};
    by_value out[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    (void)by__op_add_node(graph, BY_OP_GROUP, &attrs, &ids, 1, out);
    *slot = out[0];
    *member = out[1];
    *range = out[2];
}

by_value by_count_ids(by_graph *graph, by_value ids, int64_t groups)
{
    by_attrs attrs = {.rows = groups};
    return by__op_add_node(graph, BY_OP_COUNT_IDS, &attrs, &ids, 1, NULL);
}

static by_value add_rows(by_graph *graph, by_op op, by_value x, by_value slot, by_value member,
                         by_value weight)
{
    by_value in[4] = {x, slot, member, weight};
    return by__op_add_node(graph, op, &(by_attrs){0}, in, weight == BY_NONE ? 3 : 4, NULL);
}

by_value by_scatter_rows(by_graph *graph, by_value x, by_value slot, by_value member,
                         by_value weight)
{
    return add_rows(graph, BY_OP_SCATTER_ROWS, x, slot, member, weight);
}

by_value by_gather_rows(by_graph *graph, by_value x, by_value slot, by_value member,
                        by_value weight)
{
    return add_rows(graph, BY_OP_GATHER_ROWS, x, slot, member, weight);
}
