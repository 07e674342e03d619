/* Losses on predictions that are stored as a tensor: sums over rows or elements, in f32 whatever
 * the dtype of the predictions. The caller divides by the number of examples of the whole step. */
#include <math.h>

#include "ops/ops.h"

static bool are_weights(const by__graph_type *weights, int64_t rows)
{
    return weights->dtype == BY_F32 && by_shape_count(&weights->shape) == rows;
}

/* CROSS_ENTROPY has logits, targets, weights?; its gradient logits, targets, lse, dloss,
 * weights? */
static by_status infer_cross_entropy(const by__op_signature *s, by__graph_type *out,
                                     by_error *error)
{
    const by__graph_type *logits = &s->in[0];
    if (!by__op_is_act(logits->dtype) || logits->shape.rank < 1) {
        return by__op_refuse(s, error, "logits must be [..., classes], f32, bf16 or f16");
    }
    int64_t rows = by__op_rows(&logits->shape);
    if (s->in[1].dtype != BY_I32 || by_shape_count(&s->in[1].shape) != rows) {
        return by__op_refuse(s, error, "there must be one i32 target for each row of logits");
    }
    if (!(s->attrs->smoothing >= 0.0f && s->attrs->smoothing < 1.0f)) {
        return by__op_refuse(s, error, "label smoothing must be in [0, 1)");
    }
    bool forward = s->op == BY_OP_CROSS_ENTROPY;
    int weights = forward ? 2 : 4;
    if (s->input_count > weights && !are_weights(&s->in[weights], rows)) {
        return by__op_refuse(s, error, "there must be one f32 weight for each row");
    }
    if (forward) {
        out[0] = (by__graph_type){BY_F32, BY_SHAPE(1)};
        out[1] = (by__graph_type){BY_F32, BY_SHAPE(rows)};
        return BY_OK;
    }
    if (s->in[2].dtype != BY_F32 || by_shape_count(&s->in[2].shape) != rows ||
        !by__op_is_scalar(&s->in[3])) {
        return by__op_refuse(s, error, "lse must be f32 [rows] and dloss one f32");
    }
    out[0] = *logits;
    return BY_OK;
}

static void gradient_cross_entropy(by_graph *graph, const by__graph_node *node,
                                   const by_value *dout, by_value *din)
{
    bool weighted = node->input_count > 2;
    by_value in[5] = {node->in[0], node->in[1], node->out[1], dout[0],
                      weighted ? node->in[2] : BY_NONE};
    din[0] =
        by__op_add_node(graph, BY_OP_CROSS_ENTROPY_GRAD, &node->attrs, in, weighted ? 5 : 4, NULL);
    din[1] = BY_NONE;
}

static void cost_cross_entropy(const by__op_signature *s, const by__graph_type *out,
                               by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 12.0 * (double)by_shape_count(&s->in[0].shape);
}

/* SQUARED_ERROR and SMOOTH_L1 have x, t, weights?; their gradients also dloss. */
static by_status infer_difference(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    bool backward = s->op == BY_OP_SQUARED_ERROR_GRAD || s->op == BY_OP_SMOOTH_L1_GRAD;
    const by__graph_type *x = &s->in[0];
    by__graph_type targets = {BY_F32, x->shape};
    if (!by__op_is_act(x->dtype) || x->shape.rank < 1 || !by__op_type_equal(&s->in[1], &targets)) {
        return by__op_refuse(s, error,
                             "predictions must be f32, bf16 or f16, targets f32 of the same shape");
    }
    if (s->input_count > 2 && !by__absent(&s->in[2]) &&
        ((s->in[2].dtype != BY_F32 && s->in[2].dtype != BY_I32) ||
         by_shape_count(&s->in[2].shape) != by__op_rows(&x->shape))) {
        return by__op_refuse(s, error, "there must be one f32 weight or i32 target for each row");
    }
    if (backward && !by__op_is_scalar(&s->in[3])) {
        return by__op_refuse(s, error, "the gradient of the loss must be one f32");
    }
    bool smooth = s->op == BY_OP_SMOOTH_L1 || s->op == BY_OP_SMOOTH_L1_GRAD;
    if (smooth && !(s->attrs->beta >= 0.0f && s->attrs->beta < INFINITY)) {
        return by__op_refuse(s, error, "beta must not be negative");
    }
    out[0] = backward ? *x : (by__graph_type){BY_F32, BY_SHAPE(1)};
    return BY_OK;
}

static void gradient_difference(by_graph *graph, const by__graph_node *node, const by_value *dout,
                                by_value *din)
{
    by_value weights = node->input_count > 2 ? node->in[2] : BY_NONE;
    by_value in[4] = {node->in[0], node->in[1], weights, dout[0]};
    by_op op = node->op == BY_OP_SQUARED_ERROR ? BY_OP_SQUARED_ERROR_GRAD : BY_OP_SMOOTH_L1_GRAD;
    din[0] = by__op_add_node(graph, op, &node->attrs, in, 4, NULL);
}

static void cost_difference(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 3.0 * (double)by_shape_count(&s->in[0].shape);
}

/* DICE has logits, targets; its gradient logits, targets, sums, dloss. */
static by_status infer_dice(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *logits = &s->in[0];
    if (!by__op_is_act(logits->dtype) || logits->shape.rank < 2) {
        return by__op_refuse(s, error, "logits must be [samples, ..., classes], f32, bf16 or f16");
    }
    if (s->in[1].dtype != BY_I32 ||
        by_shape_count(&s->in[1].shape) != by__op_rows(&logits->shape)) {
        return by__op_refuse(s, error, "there must be one i32 target for each row of logits");
    }
    if (!(s->attrs->eps > 0.0f)) {
        return by__op_refuse(s, error, "what is added to both sides must be more than 0");
    }
    const by__graph_type sums = {
        BY_F32, BY_SHAPE(logits->shape.dim[0], 3, by__op_last_dim(&logits->shape))};
    if (s->op == BY_OP_DICE) {
        out[0] = (by__graph_type){BY_F32, BY_SHAPE(1)};
        out[1] = sums;
        return BY_OK;
    }
    if (!by__op_type_equal(&s->in[2], &sums) || !by__op_is_scalar(&s->in[3])) {
        return by__op_refuse(s, error, "sums must be f32 [samples, 3, classes] and dloss one f32");
    }
    out[0] = *logits;
    return BY_OK;
}

static void gradient_dice(by_graph *graph, const by__graph_node *node, const by_value *dout,
                          by_value *din)
{
    by_value in[4] = {node->in[0], node->in[1], node->out[1], dout[0]};
    din[0] = by__op_add_node(graph, BY_OP_DICE_GRAD, &node->attrs, in, 4, NULL);
}

/* Splits rows, and everything with one entry a row; the loss is a sum over them. */
static bool split_rows(const by__op_signature *s, int count, uint32_t like_x, by__op_sharding *sh)
{
    for (int i = 1; i < count; i++) {
        by__graph_split want = sh->in[0];
        bool rows = !by__mask_has(like_x, i);
        if (by__absent(&s->in[i])) {
            continue;
        }
        if ((rows && !by__op_split_of_rows(&s->in[0].shape, sh->in[0], &s->in[i].shape, sh->ranks,
                                           &want)) ||
            !by__op_split_equal(sh->in[i], want)) {
            return false;
        }
    }
    return sh->in[0].axis >= 0 && sh->in[0].axis < s->in[0].shape.rank - 1;
}

static bool shard_cross_entropy(const by__op_signature *s, const by__graph_type *out,
                                by__op_sharding *sh)
{
    sh->out[0] = by__op_partial();
    return split_rows(s, s->input_count, 0, sh) &&
           by__op_split_of_rows(&s->in[0].shape, sh->in[0], &out[1].shape, sh->ranks, &sh->out[1]);
}

static bool shard_cross_entropy_grad(const by__op_signature *s, const by__graph_type *out,
                                     by__op_sharding *sh)
{
    by__graph_split weights;
    BY_UNUSED(out);
    sh->out[0] = sh->in[0];
    return split_rows(s, 3, 0, sh) && sh->in[3].axis == BY__WHOLE &&
           (s->input_count < 5 || (by__op_split_of_rows(&s->in[0].shape, sh->in[0], &s->in[4].shape,
                                                        sh->ranks, &weights) &&
                                   by__op_split_equal(sh->in[4], weights)));
}

static bool shard_difference(const by__op_signature *s, const by__graph_type *out,
                             by__op_sharding *sh)
{
    bool backward = by_shape_equal(&out[0].shape, &s->in[0].shape);
    sh->out[0] = backward ? sh->in[0] : by__op_partial();
    return split_rows(s, s->input_count < 3 ? s->input_count : 3, 1u << 1, sh) &&
           (!backward || sh->in[3].axis == BY__WHOLE);
}

static int64_t classes(const by__op_signature *s)
{
    return by__op_last_dim(&s->in[0].shape);
}

#define SMOOTHING BY__ATTRS(BY__ATTR_AS("smoothing", smoothing, FLOAT, BY__ATTR_SPARE))
#define TARGETS                                                                                    \
    {                                                                                              \
        {                                                                                          \
            .input = 1, .may_be_negative = true, .limit = classes                                  \
        }                                                                                          \
    }
const by__op_row by__op_cross_entropy = {.min_inputs = 2,
                                         .max_inputs = 3,
                                         .outputs = 2,
                                         .attrs = SMOOTHING,
                                         .infer = infer_cross_entropy,
                                         .gradient = gradient_cross_entropy,
                                         .shard = shard_cross_entropy,
                                         .cost = cost_cross_entropy,
                                         .keeps_f32 = 1u << 2,
                                         .indices = TARGETS};
const by__op_row by__op_cross_entropy_grad = {.min_inputs = 4,
                                              .max_inputs = 5,
                                              .outputs = 1,
                                              .attrs = SMOOTHING,
                                              .infer = infer_cross_entropy,
                                              .shard = shard_cross_entropy_grad,
                                              .cost = cost_cross_entropy,
                                              .overlay = {1u << 0},
                                              .keeps_f32 = 1u << 2 | 1u << 3 | 1u << 4,
                                              .indices = TARGETS};

const by__op_row by__op_dice = {.min_inputs = 2,
                                .max_inputs = 2,
                                .outputs = 2,
                                .attrs = BY__ATTRS(BY__ATTR(eps, FLOAT)),
                                .infer = infer_dice,
                                .gradient = gradient_dice,
                                .cost = cost_cross_entropy,
                                .indices = TARGETS};
const by__op_row by__op_dice_grad = {.min_inputs = 4,
                                     .max_inputs = 4,
                                     .outputs = 1,
                                     .attrs = BY__ATTRS(BY__ATTR(eps, FLOAT)),
                                     .infer = infer_dice,
                                     .cost = cost_cross_entropy,
                                     .overlay = {1u << 0},
                                     .keeps_f32 = 1u << 2 | 1u << 3,
                                     .indices = TARGETS};

/* Targets and weights are given in f32 and stay f32. */
#define BETA BY__ATTRS(BY__ATTR(beta, FLOAT))
#define DIFFERENCE(attrs_of)                                                                       \
    {                                                                                              \
        .min_inputs = 2, .max_inputs = 3, .outputs = 1, .optional = 1u << 2, .attrs = attrs_of,    \
        .infer = infer_difference, .gradient = gradient_difference, .cost = cost_difference,       \
        .shard = shard_difference, .keeps_f32 = 1u << 1 | 1u << 2                                  \
    }
#define DIFFERENCE_GRAD(attrs_of)                                                                  \
    {                                                                                              \
        .min_inputs = 4, .max_inputs = 4, .outputs = 1, .optional = 1u << 2, .attrs = attrs_of,    \
        .infer = infer_difference, .cost = cost_difference, .shard = shard_difference,             \
        .overlay = {1u << 0}, .keeps_f32 = 1u << 1 | 1u << 2 | 1u << 3                             \
    }
const by__op_row by__op_squared_error = DIFFERENCE(NULL);
const by__op_row by__op_squared_error_grad = DIFFERENCE_GRAD(NULL);
const by__op_row by__op_smooth_l1 = DIFFERENCE(BETA);
const by__op_row by__op_smooth_l1_grad = DIFFERENCE_GRAD(BETA);

by_value by_cross_entropy(by_graph *graph, by_value logits, by_value targets, float smoothing)
{
    by_attrs attrs = {.smoothing = smoothing};
    by_value in[2] = {logits, targets};
    return by__op_add_node(graph, BY_OP_CROSS_ENTROPY, &attrs, in, 2, NULL);
}

by_value by_weighted_cross_entropy(by_graph *graph, by_value logits, by_value targets,
                                   by_value weights, float smoothing)
{
    by_attrs attrs = {.smoothing = smoothing};
    by_value in[3] = {logits, targets, weights};
    return by__op_add_node(graph, BY_OP_CROSS_ENTROPY, &attrs, in, 3, NULL);
}

by_value by_dice(by_graph *graph, by_value logits, by_value targets, float smooth)
{
    by_attrs attrs = {.eps = smooth};
    by_value in[2] = {logits, targets};
    return by__op_add_node(graph, BY_OP_DICE, &attrs, in, 2, NULL);
}

by_value by_squared_error(by_graph *graph, by_value x, by_value targets, by_value weights)
{
    by_value in[3] = {x, targets, weights};
    return by__op_add_node(graph, BY_OP_SQUARED_ERROR, &(by_attrs){0}, in, 3, NULL);
}

by_value by_smooth_l1(by_graph *graph, by_value x, by_value targets, by_value weights, float beta)
{
    by_attrs attrs = {.beta = beta};
    by_value in[3] = {x, targets, weights};
    return by__op_add_node(graph, BY_OP_SMOOTH_L1, &attrs, in, 3, NULL);
}
