/* Scaled-dot-product attention, causal or bidirectional, with grouped key/value heads (Vaswani et
 * al. 2017; Shazeer 2019; Ainslie et al. 2023). Only the log-sum-exp of each row is kept for the
 * backward pass, which recomputes the probabilities (FlashAttention, Dao et al. 2022). */
#include <math.h>

#include "ops/ops.h"

bool by__op_read_heads(const by__op_signature *s, int count, by__op_heads *out)
{
    const by__graph_type *q = &s->in[0];
    int64_t h = s->attrs->heads;
    int64_t k = s->attrs->kv_heads;
    if (h < 1 || k < 1 || h % k != 0 || q->shape.rank != 3 || h > q->shape.dim[2] ||
        !by__op_is_act(q->dtype)) {
        return false;
    }
    if (count >= 3 && by__absent(&s->in[1]) != by__absent(&s->in[2])) {
        return false;
    }
    *out = (by__op_heads){.batch = q->shape.dim[0],
                          .time = q->shape.dim[1],
                          .dtype = q->dtype,
                          .packed = count == 1 || by__absent(&s->in[1])};
    int64_t parts = out->packed ? h + 2 * k : h;
    if (q->shape.dim[2] % parts != 0) {
        return false;
    }
    out->width = q->shape.dim[2] / parts;
    for (int i = 1; i < 3 && !out->packed; i++) {
        by__graph_type wanted = {q->dtype, BY_SHAPE(out->batch, out->time, k * out->width)};
        if (!by__op_type_equal(&s->in[i], &wanted)) {
            return false;
        }
    }
    if (count >= 4 && !by__absent(&s->in[3]) &&
        (s->in[3].dtype != BY_I32 || by_shape_count(&s->in[3].shape) != out->batch)) {
        return false;
    }
    by__graph_type starts = {BY_I32, BY_SHAPE(out->batch, out->time)};
    return count < 5 || by__absent(&s->in[4]) || by__op_type_equal(&s->in[4], &starts);
}

static const char not_heads[] =
    "q must be [batch, time, heads x width], k and v [batch, time, kv_heads x width] or all packed "
    "in one tensor, kv_heads must divide heads, lengths be i32 [batch] and starts i32 [batch, "
    "time]";

/* Returns true if the operands include the first keys, the fifth of them. */
static bool has_starts(const by__op_signature *s, int count)
{
    return count >= 5 && !by__absent(&s->in[4]);
}

static by_status check_limit(const by__op_signature *s, int count, by_error *error)
{
    if (s->attrs->window < 0) {
        return by__op_refuse(s, error, "window must not be negative");
    }
    if (s->attrs->slopes != 0 &&
        (s->attrs->begin < 0 || s->attrs->begin > s->attrs->slopes - s->attrs->heads)) {
        return by__op_refuse(s, error, "the heads are not among those that share the slopes");
    }
    return s->attrs->bidirectional && has_starts(s, count)
               ? by__op_refuse(s, error, "starts are limits of causal attention")
               : BY_OK;
}

static by_status infer_attention(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    by__op_heads e;
    if (s->input_count == 2 || !by__op_read_heads(s, s->input_count, &e)) {
        return by__op_refuse(s, error, not_heads);
    }
    BY_TRY(check_limit(s, s->input_count, error));
    out[0] = (by__graph_type){e.dtype, BY_SHAPE(e.batch, e.time, s->attrs->heads * e.width)};
    out[1] = (by__graph_type){BY_F32, BY_SHAPE(e.batch, s->attrs->heads, e.time)};
    return BY_OK;
}

static void gradient_attention(by_graph *graph, const by__graph_node *node, const by_value *dout,
                               by_value *din)
{
    by_value in[8];
    by_value outs[BY_MAX_OUTPUTS];
    int count = 0;
    for (int i = 0; i < node->input_count; i++) {
        in[count++] = node->in[i];
    }
    in[count++] = node->out[0];
    in[count++] = node->out[1];
    in[count++] = dout[0];
    (void)by__op_add_node(graph, BY_OP_ATTENTION_GRAD, &node->attrs, in, count, outs);
    for (int i = 0; i < node->input_count && i < 3; i++) {
        din[i] = outs[i];
    }
}

bool by__op_split_heads(const by__op_signature *s, int operands, by__op_sharding *sh,
                        by__graph_split *y, by__graph_split *lse)
{
    by__op_heads e = {0};
    (void)by__op_read_heads(s, operands, &e);
    by__graph_split q = sh->in[0];
    bool heads = q.axis == 2;
    int64_t sections = heads && e.packed ? 3 : 1;
    if ((q.axis != 0 && !heads) || q.sections != sections ||
        (sections == 3 && s->attrs->heads != s->attrs->kv_heads) ||
        (heads && s->attrs->kv_heads % sh->ranks != 0)) {
        return false;
    }
    for (int i = 1; i < operands; i++) {
        by__graph_split want = by__absent(&s->in[i]) || (i >= 3 && heads) ? by__op_whole()
                               : i >= 3                                   ? (by__graph_split){0, 1}
                                                                          : q;
        bool by_sample = i != 3 || heads || by__absent(&s->in[i]) || s->in[i].shape.rank == 1;
        if (!by__op_split_equal(sh->in[i], want) || !by_sample) {
            return false;
        }
    }
    if (heads) {
        sh->attrs.heads = s->attrs->heads / sh->ranks;
        sh->attrs.kv_heads = s->attrs->kv_heads / sh->ranks;
        sh->attrs.begin = s->attrs->begin + (s->attrs->slopes > 0 ? sh->rank * sh->attrs.heads : 0);
    }
    *y = (by__graph_split){q.axis, 1};
    *lse = (by__graph_split){heads ? 1 : 0, 1};
    return true;
}

static bool shard_attention(const by__op_signature *s, const by__graph_type *out,
                            by__op_sharding *sh)
{
    BY_UNUSED(out);
    return sh->in[0].axis == 1
               ? by__op_shard_attention_time(s, sh)
               : by__op_split_heads(s, s->input_count, sh, &sh->out[0], &sh->out[1]);
}

static bool shard_attention_grad(const by__op_signature *s, const by__graph_type *out,
                                 by__op_sharding *sh)
{
    by__graph_split y;
    by__graph_split lse;
    int operands = s->input_count - 3;
    if (sh->in[0].axis == 1) {
        return by__op_shard_attention_grad_time(s, out, sh);
    }
    if (!by__op_split_heads(s, operands, sh, &y, &lse) ||
        !by__op_split_equal(sh->in[operands], y) ||
        !by__op_split_equal(sh->in[operands + 1], lse) ||
        !by__op_split_equal(sh->in[operands + 2], y)) {
        return false;
    }
    for (int i = 0; i < 3; i++) {
        sh->out[i] = by__absent(&out[i]) ? by__op_whole() : sh->in[0];
    }
    return true;
}

static by_status infer_attention_grad(const by__op_signature *s, by__graph_type *out,
                                      by_error *error)
{
    by__op_heads e;
    int operands = s->input_count - 3;
    if (operands == 2 || !by__op_read_heads(s, operands, &e)) {
        return by__op_refuse(s, error, not_heads);
    }
    BY_TRY(check_limit(s, operands, error));
    by__graph_type y = {e.dtype, BY_SHAPE(e.batch, e.time, s->attrs->heads * e.width)};
    by__graph_type lse = {BY_F32, BY_SHAPE(e.batch, s->attrs->heads, e.time)};
    if (!by__op_type_equal(&s->in[operands], &y) ||
        !by__op_type_equal(&s->in[operands + 1], &lse) ||
        !by__op_type_equal(&s->in[operands + 2], &y)) {
        return by__op_refuse(
            s, error,
            "y and dy must be [batch, time, heads x width], lse f32 [batch, heads, "
            "time]");
    }
    for (int i = 0; i < (e.packed ? 1 : 3); i++) {
        out[i] = s->in[i];
    }
    return BY_OK;
}

static by_status infer_cached(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    by__op_heads e;
    if (!by__op_read_heads(s, 3, &e)) {
        return by__op_refuse(s, error, not_heads);
    }
    BY_TRY(check_limit(s, 3, error));
    const by__graph_type *cache = &s->in[3];
    by__graph_type wanted = {e.dtype,
                             BY_SHAPE(e.batch, s->attrs->kv_heads,
                                      cache->shape.rank == 4 ? cache->shape.dim[2] : 0, e.width)};
    if (!by__op_type_equal(cache, &wanted) || !by__op_type_equal(&s->in[4], &wanted) ||
        wanted.shape.dim[2] < e.time || s->in[5].dtype != BY_I32 ||
        by_shape_count(&s->in[5].shape) != 1) {
        return by__op_refuse(s, error,
                             "caches must be [batch, kv_heads, positions >= time, width], position "
                             "one i32");
    }
    out[0] = (by__graph_type){e.dtype, BY_SHAPE(e.batch, e.time, s->attrs->heads * e.width)};
    return BY_OK;
}

/* Returns the share of [T, T] that the mask leaves: half of it when causal; with a window of W
 * keys, the band W T - W^2 / 2, twice that if it has two sides. Limits given as data (starts) are
 * not counted. */
static double seen_share(const by__op_signature *s, double time)
{
    double window = (double)s->attrs->window / time;
    bool whole = s->attrs->window == 0 || window >= 1.0;
    return (s->attrs->bidirectional ? 2.0 : 1.0) * (whole ? 0.5 : window * (1.0 - 0.5 * window));
}

/* Two products [T, D] x [D, T] for each head. */
static double forward_flops(const by__op_signature *s, const by__graph_type *y)
{
    double time = (double)y->shape.dim[1];
    return 4.0 * (double)by_shape_count(&y->shape) * time * seen_share(s, time);
}

static double scores_of(const by__op_signature *s, const by__graph_type *y)
{
    double width = (double)y->shape.dim[2] / (double)s->attrs->heads;
    return forward_flops(s, y) / (4.0 * width);
}

static void cost_attention(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    cost->flops = forward_flops(s, &out[0]);
    cost->scores = scores_of(s, &out[0]);
}

/* Five products instead of two: the scores again, dv, dp, dq and dk. */
static void cost_attention_grad(const by__op_signature *s, const by__graph_type *out,
                                by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 2.5 * forward_flops(s, &s->in[s->input_count - 1]);
    cost->scores = 2.5 * scores_of(s, &s->in[s->input_count - 1]);
}

/* Assumes full caches: every key and value that a query reads is read once, and each new row is
 * written. */
static void cost_cached(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    double row = 4.0 * (double)by_shape_count(&out[0].shape);
    double cache = (double)by_shape_count(&s->in[3].shape) * (double)by_dtype_size(s->in[3].dtype);
    double slots = (double)s->in[3].shape.dim[2];
    double time = (double)out[0].shape.dim[1];
    double window = s->attrs->window == 0 ? slots : fmin(slots, (double)s->attrs->window);
    cost->flops = row * window;
    cost->bytes_read -= 2.0 * cache * (1.0 - fmin(slots, window + time - 1.0) / slots);
    cost->bytes_written -= 2.0 * cache * (1.0 - time / slots);
}

/* Scores and the weighted sum of values, each with 2 FLOPs for a multiplication and an addition. */
static void attention_of_sequence(const by__op_signature *s, const by__graph_type *out,
                                  by__op_attention_cost *cost)
{
    cost->token_flops = 4.0 * (double)out[0].shape.dim[1] * (double)out[0].shape.dim[2];
    cost->seen = seen_share(s, (double)out[0].shape.dim[1]);
}

static void attention_of_cache(const by__op_signature *s, const by__graph_type *out,
                               by__op_attention_cost *cost)
{
    const by__graph_type *cache = &s->in[3];
    double bytes = (double)by_shape_count(&cache->shape) * (double)by_dtype_size(cache->dtype);
    cost->cached_flops = 4.0 * (double)by_shape_count(&out[0].shape);
    cost->cached_bytes = 2.0 * bytes / (double)cache->shape.dim[2];
    cost->cached_window = (double)s->attrs->window;
}

/* Returns the exclusive upper bound of the positions at which the new tokens fit into the
 * caches. */
static int64_t free_position(const by__op_signature *s)
{
    return s->in[3].shape.dim[2] - s->in[0].shape.dim[1] + 1;
}

#define HEADS BY__ATTRS(BY__ATTR(heads, INT), BY__ATTR(kv_heads, INT), BY__OP_REACH)
#define MASKED_HEADS                                                                               \
    BY__ATTRS(BY__ATTR(heads, INT), BY__ATTR(kv_heads, INT), BY__ATTR(bidirectional, FLAG),        \
              BY__OP_REACH)
const by__op_row by__op_attention = {.min_inputs = 1,
                                     .max_inputs = 5,
                                     .outputs = 2,
                                     .optional = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4,
                                     .attrs = MASKED_HEADS,
                                     .infer = infer_attention,
                                     .onnx = by__op_onnx_attention,
                                     .gradient = gradient_attention,
                                     .cost = cost_attention,
                                     .shard = shard_attention,
                                     .attention = attention_of_sequence};
/* lse, the last but one of four or six to eight operands, stays f32 as the forward pass made it. */
const by__op_row by__op_attention_grad = {.min_inputs = 4,
                                          .max_inputs = 8,
                                          .outputs = 3,
                                          .optional = 1u << 1 | 1u << 2 | 1u << 3,
                                          .attrs = MASKED_HEADS,
                                          .infer = infer_attention_grad,
                                          .shard = shard_attention_grad,
                                          .cost = cost_attention_grad};
const by__op_row by__op_cached_attention = {.min_inputs = 6,
                                            .max_inputs = 6,
                                            .outputs = 1,
                                            .optional = 1u << 1 | 1u << 2,
                                            .attrs = HEADS,
                                            .infer = infer_cached,
                                            .onnx = by__op_onnx_cached_attention,
                                            .cost = cost_cached,
                                            .attention = attention_of_cache,
                                            .mutates = 1u << 3 | 1u << 4,
                                            .indices = {{.input = 5, .limit = free_position}}};

by_value by_attention_packed(by_graph *graph, by_value qkv, int64_t heads, int64_t kv_heads)
{
    by_attrs attrs = {.heads = heads, .kv_heads = kv_heads};
    return by__op_add_node(graph, BY_OP_ATTENTION, &attrs, &qkv, 1, NULL);
}

by_value by_attention(by_graph *graph, by_value q, by_value k, by_value v, int64_t heads,
                      int64_t kv_heads)
{
    by_attrs attrs = {.heads = heads, .kv_heads = kv_heads};
    by_value in[3] = {q, k, v};
    return by__op_add_node(graph, BY_OP_ATTENTION, &attrs, in, 3, NULL);
}

by_value by_attention_masked(by_graph *graph, by_value q, by_value k, by_value v, int64_t heads,
                             int64_t kv_heads, const by_attention_mask *mask)
{
    by_attrs attrs = {.heads = heads,
                      .kv_heads = kv_heads,
                      .bidirectional = mask->bidirectional,
                      .window = mask->window,
                      .slopes = mask->slopes ? heads : 0};
    by_value in[5] = {q, k, v, mask->lengths, mask->starts};
    int count = mask->starts != BY_NONE ? 5 : mask->lengths != BY_NONE ? 4 : k != BY_NONE ? 3 : 1;
    return by__op_add_node(graph, BY_OP_ATTENTION, &attrs, in, count, NULL);
}

by_value by_attention_cached(by_graph *graph, by_value q, by_value k, by_value v, by_value k_cache,
                             by_value v_cache, by_value position, int64_t heads, int64_t kv_heads,
                             const by_attention_mask *mask)
{
    by_attrs attrs = {.heads = heads,
                      .kv_heads = kv_heads,
                      .window = mask->window,
                      .slopes = mask->slopes ? heads : 0};
    by_value in[6] = {q, k, v, k_cache, v_cache, position};
    return by__op_add_node(graph, BY_OP_CACHED_ATTENTION, &attrs, in, 6, NULL);
}
