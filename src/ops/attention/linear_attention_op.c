/* Linear attention (Katharopoulos et al. 2020): with features f(x) = elu(x) + 1 of queries and keys
 * instead of the exponential of their product, what a query reads is a product with a sum over the
 * keys, so that the work grows with the tokens and not with their square. */
#include "ops/ops.h"

static const char not_heads[] =
    "q must be [batch, time, heads x width], k and v [batch, time, kv_heads x width] or all packed "
    "in one tensor, kv_heads must divide heads and lengths be i32 [batch]";

static by_status infer_linear(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    by__op_heads e;
    if (s->input_count == 2 || !by__op_read_heads(s, s->input_count, &e)) {
        return by__op_refuse(s, error, not_heads);
    }
    out[0] = (by__graph_type){e.dtype, BY_SHAPE(e.batch, e.time, s->attrs->heads * e.width)};
    return BY_OK;
}

static by_status infer_linear_grad(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    by__op_heads e;
    int operands = s->input_count - 1;
    if (operands == 2 || !by__op_read_heads(s, operands, &e)) {
        return by__op_refuse(s, error, not_heads);
    }
    by__graph_type y = {e.dtype, BY_SHAPE(e.batch, e.time, s->attrs->heads * e.width)};
    if (!by__op_type_equal(&s->in[operands], &y)) {
        return by__op_refuse(s, error, "dy must be [batch, time, heads x width]");
    }
    for (int i = 0; i < (e.packed ? 1 : 3); i++) {
        out[i] = s->in[i];
    }
    return BY_OK;
}

static void gradient_linear(by_graph *graph, const by__graph_node *node, const by_value *dout,
                            by_value *din)
{
    by_value in[5];
    by_value outs[BY_MAX_OUTPUTS];
    int count = 0;
    for (int i = 0; i < node->input_count; i++) {
        in[count++] = node->in[i];
    }
    in[count++] = dout[0];
    (void)by__op_add_node(graph, BY_OP_LINEAR_ATTENTION_GRAD, &node->attrs, in, count, outs);
    for (int i = 0; i < node->input_count && i < 3; i++) {
        din[i] = outs[i];
    }
}

static bool shard_linear(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    by__graph_split lse;
    BY_UNUSED(out);
    return by__op_split_heads(s, s->input_count, sh, &sh->out[0], &lse);
}

static bool shard_linear_grad(const by__op_signature *s, const by__graph_type *out,
                              by__op_sharding *sh)
{
    by__graph_split y;
    by__graph_split lse;
    int operands = s->input_count - 1;
    if (!by__op_split_heads(s, operands, sh, &y, &lse) ||
        !by__op_split_equal(sh->in[operands], y)) {
        return false;
    }
    for (int i = 0; i < 3; i++) {
        sh->out[i] = by__absent(&out[i]) ? by__op_whole() : sh->in[0];
    }
    return true;
}

/* For each token and head, a matrix [width, width + 1] is added to, and multiplied by a query. */
static double forward_flops(const by__op_signature *s, const by__graph_type *y)
{
    return 4.0 * (double)by_shape_count(&y->shape) *
           ((double)y->shape.dim[2] / (double)s->attrs->heads + 1.0);
}

static void cost_linear(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    cost->flops = forward_flops(s, &out[0]);
}

/* The forward pass again, and as much for each of q, and k with v. */
static void cost_linear_grad(const by__op_signature *s, const by__graph_type *out,
                             by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 3.0 * forward_flops(s, &s->in[s->input_count - 1]);
}

/* ---- with sums from earlier runs ---- */

enum { CARRIED_SUMS = 3, CARRIED_POSITIONS, CARRIED_SESSIONS, CARRIED_OPERANDS };

static by_status infer_carried(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    by__op_heads e;
    const by__graph_type *sums = &s->in[CARRIED_SUMS];
    const by__graph_type *sessions = &s->in[CARRIED_SESSIONS];
    if (!by__op_read_heads(s, 3, &e)) {
        return by__op_refuse(s, error, not_heads);
    }
    bool by_row = !by__absent(sessions);
    by__graph_type wanted = {BY_F32,
                             BY_SHAPE(!by_row                 ? e.batch
                                      : sums->shape.rank == 4 ? sums->shape.dim[0]
                                                              : 0,
                                      s->attrs->kv_heads, e.width, BY_SUM_COLUMNS(e.width))};
    if (!by__op_type_equal(sums, &wanted)) {
        return by__op_refuse(s, error,
                             "sums must be f32 [sessions, kv_heads, width, width + 1 rounded up to "
                             "a multiple of 16], without sessions one for each sample");
    }
    const by__graph_type *positions = &s->in[CARRIED_POSITIONS];
    if (positions->dtype != BY_I32 || by_shape_count(&positions->shape) != (by_row ? e.time : 1) ||
        (by_row && (e.batch != 1 || sessions->dtype != BY_I32 ||
                    by_shape_count(&sessions->shape) != e.time))) {
        return by__op_refuse(s, error,
                             "positions must be one i32, or with sessions both i32 [rows] of one "
                             "sample");
    }
    out[0] = (by__graph_type){e.dtype, BY_SHAPE(e.batch, e.time, s->attrs->heads * e.width)};
    return BY_OK;
}

static int64_t sessions_of_sums(const by__op_signature *s)
{
    return s->in[CARRIED_SUMS].shape.dim[0];
}

#define HEADS                                                                                      \
    BY__ATTRS(BY__ATTR(heads, INT), BY__ATTR(kv_heads, INT), BY__ATTR(bidirectional, FLAG))
const by__op_row by__op_linear_attention = {.min_inputs = 1,
                                            .max_inputs = 4,
                                            .outputs = 1,
                                            .optional = 1u << 1 | 1u << 2 | 1u << 3,
                                            .attrs = HEADS,
                                            .infer = infer_linear,
                                            .gradient = gradient_linear,
                                            .cost = cost_linear,
                                            .shard = shard_linear};
const by__op_row by__op_linear_attention_grad = {.min_inputs = 2,
                                                 .max_inputs = 5,
                                                 .outputs = 3,
                                                 .optional = 1u << 1 | 1u << 2 | 1u << 3,
                                                 .attrs = HEADS,
                                                 .infer = infer_linear_grad,
                                                 .cost = cost_linear_grad,
                                                 .shard = shard_linear_grad};

const by__op_row by__op_carried_linear_attention = {
    .min_inputs = CARRIED_OPERANDS,
    .max_inputs = CARRIED_OPERANDS,
    .outputs = 1,
    .optional = 1u << 1 | 1u << 2 | 1u << CARRIED_SESSIONS,
    .attrs = BY__ATTRS(BY__ATTR(heads, INT), BY__ATTR(kv_heads, INT)),
    .infer = infer_carried,
    .cost = cost_linear,
    .mutates = 1u << CARRIED_SUMS,
    .carries = 1u << CARRIED_SUMS,
    .keeps_f32 = 1u << CARRIED_SUMS,
    .indices = {{.input = CARRIED_SESSIONS, .limit = sessions_of_sums}}};

by_value by_linear_attention(by_graph *graph, by_value q, by_value k, by_value v, int64_t heads,
                             int64_t kv_heads, bool bidirectional, by_value lengths)
{
    by_attrs attrs = {.heads = heads, .kv_heads = kv_heads, .bidirectional = bidirectional};
    by_value in[4] = {q, k, v, lengths};
    int count = lengths != BY_NONE ? 4 : k != BY_NONE ? 3 : 1;
    return by__op_add_node(graph, BY_OP_LINEAR_ATTENTION, &attrs, in, count, NULL);
}

by_value by_linear_attention_carried(by_graph *graph, by_value q, by_value k, by_value v,
                                     by_value sums, const by_carried_rows *rows, int64_t heads,
                                     int64_t kv_heads)
{
    by_attrs attrs = {.heads = heads, .kv_heads = kv_heads};
    by_value in[CARRIED_OPERANDS] = {q, k, v, sums, rows->positions, rows->sessions};
    return by__op_add_node(graph, BY_OP_CARRIED_LINEAR_ATTENTION, &attrs, in, CARRIED_OPERANDS,
                           NULL);
}
