/* The language-model head and its loss in one op, so that the logits of a batch (rows x vocabulary,
 * by far the largest tensor of a small model) are never stored: a kernel computes them for a chunk
 * of rows at a time. The training form also computes both gradients in that pass. They are known up
 * to a scalar factor, so the logits need not be computed a second time. */
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

/* Inputs that may be absent: the weights of rows, in each of the ops, and logits. */
enum { WEIGHTS = 3, COMBINE_WEIGHTS = 2, GRAD_LOGITS = 5, GRAD_WEIGHTS = 6, TRAIN_WEIGHTS = 4 };

static by_status check_operands(const by__op_signature *s, by_error *error)
{
    const by__graph_type *x = &s->in[0];
    const by__graph_type *w = &s->in[1];
    const by__graph_type *targets = &s->in[2];
    if (!by__op_is_act(x->dtype) || x->dtype != w->dtype || x->shape.rank < 1 ||
        w->shape.rank != 2 || w->shape.dim[1] != by__op_last_dim(&x->shape)) {
        return by__op_refuse(s, error, "x must be [..., width] and the weight [vocabulary, width]");
    }
    if (targets->dtype != BY_I32 || by_shape_count(&targets->shape) != by__op_rows(&x->shape)) {
        return by__op_refuse(s, error, "there must be one i32 target for each row of x");
    }
    if (s->attrs->rows != 0 && (s->attrs->begin < 0 || s->attrs->begin > s->attrs->rows ||
                                w->shape.dim[0] > s->attrs->rows - s->attrs->begin)) {
        return by__op_refuse(s, error, "the weight is no slice of the vocabulary");
    }
    return BY_OK;
}

static bool is_given(const by__op_signature *s, int i)
{
    return s->input_count > i && !by__absent(&s->in[i]);
}

/* Checks the weights of rows, input `i`, which may be absent. */
static by_status check_weights(const by__op_signature *s, int i, int64_t rows, by_error *error)
{
    return !is_given(s, i) || (s->in[i].dtype == BY_F32 && s->in[i].shape.rank > 0 &&
                               by_shape_count(&s->in[i].shape) == rows)
               ? BY_OK
               : by__op_refuse(s, error, "there must be one f32 weight for each row");
}

static by__graph_type logits_of(const by__op_signature *s)
{
    return (by__graph_type){BY_F32, BY_SHAPE(by__op_rows(&s->in[0].shape), s->in[1].shape.dim[0])};
}

static by_status infer_forward(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_operands(s, error));
    BY_TRY(check_weights(s, WEIGHTS, by__op_rows(&s->in[0].shape), error));
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(1)};
    out[1] = (by__graph_type){BY_F32, BY_SHAPE(by__op_rows(&s->in[0].shape))};
    return BY_OK;
}

static by_status infer_tokens(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_operands(s, error));
    out[0] = (by__graph_type){BY_F32, s->in[2].shape};
    out[1] = (by__graph_type){BY_F32, BY_SHAPE(by__op_rows(&s->in[0].shape))};
    return BY_OK;
}

static by_status infer_part(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_operands(s, error));
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(2, by__op_rows(&s->in[0].shape))};
    if (s->attrs->keep) {
        out[1] = logits_of(s);
    }
    return BY_OK;
}

static by_status infer_combine(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *parts = &s->in[0];
    if (parts->dtype != BY_F32 || parts->shape.rank != 2 || parts->shape.dim[0] % 2 != 0 ||
        s->in[1].dtype != BY_I32 || by_shape_count(&s->in[1].shape) != parts->shape.dim[1] ||
        s->attrs->rows < 1) {
        return by__op_refuse(s, error, "parts must be f32 [2 slices, rows], one target for a row");
    }
    BY_TRY(check_weights(s, COMBINE_WEIGHTS, parts->shape.dim[1], error));
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(1)};
    out[1] = (by__graph_type){BY_F32, BY_SHAPE(parts->shape.dim[1])};
    return BY_OK;
}

static by_status infer_backward(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_operands(s, error));
    if (!by__op_is_scalar(&s->in[4])) {
        return by__op_refuse(s, error, "the gradient of the loss must be one f32");
    }
    by__graph_type logits = logits_of(s);
    if (is_given(s, GRAD_LOGITS) && !by__op_type_equal(&s->in[GRAD_LOGITS], &logits)) {
        return by__op_refuse(s, error, "logits must be f32 [rows, vocabulary]");
    }
    BY_TRY(check_weights(s, GRAD_WEIGHTS, by__op_rows(&s->in[0].shape), error));
    out[0] = s->in[0];
    out[1] = (by__graph_type){BY_F32, s->in[1].shape};
    return BY_OK;
}

static by_status infer_train(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_operands(s, error));
    if (!by__op_is_scalar(&s->in[3])) {
        return by__op_refuse(s, error, "the gradient of the loss must be one f32");
    }
    BY_TRY(check_weights(s, TRAIN_WEIGHTS, by__op_rows(&s->in[0].shape), error));
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(1)};
    out[1] = s->in[0];
    out[2] = (by__graph_type){BY_F32, s->in[1].shape};
    return BY_OK;
}

static void gradient_forward(by_graph *graph, const by__graph_node *node, const by_value *dout,
                             by_value *din)
{
    bool weighted = node->input_count > WEIGHTS;
    by_value in[GRAD_WEIGHTS + 1] = {node->in[0],
                                     node->in[1],
                                     node->in[2],
                                     node->out[1],
                                     dout[0],
                                     BY_NONE,
                                     weighted ? node->in[WEIGHTS] : BY_NONE};
    by_value outs[BY_MAX_OUTPUTS];
    (void)by__op_add_node(graph, BY_OP_LINEAR_CROSS_ENTROPY_GRAD, &node->attrs, in,
                          weighted ? GRAD_WEIGHTS + 1 : GRAD_LOGITS, outs);
    din[0] = outs[0];
    din[1] = outs[1];
    din[2] = BY_NONE;
}

/* The gradients of the rows' losses are the weights of rows in that of their sum. */
static void gradient_tokens(by_graph *graph, const by__graph_node *node, const by_value *dout,
                            by_value *din)
{
    by_value one = by_fill(graph, BY_F32, BY_SHAPE(1), 1.0f);
    by_value in[GRAD_WEIGHTS + 1] = {node->in[0], node->in[1], node->in[2], node->out[1],
                                     one,         BY_NONE,     dout[0]};
    by_value outs[BY_MAX_OUTPUTS];
    (void)by__op_add_node(graph, BY_OP_LINEAR_CROSS_ENTROPY_GRAD, &node->attrs, in,
                          GRAD_WEIGHTS + 1, outs);
    din[0] = outs[0];
    din[1] = outs[1];
    din[2] = BY_NONE;
}

/* One product x w^T forward. The gradient repeats it, unless the logits are given, and adds dlogits
 * w and dlogits^T x. */
static void cost_head(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    double product = 2.0 * (double)by_shape_count(&s->in[0].shape) * (double)s->in[1].shape.dim[0];
    BY_UNUSED(out);
    bool forward = s->op == BY_OP_LINEAR_CROSS_ENTROPY || s->op == BY_OP_LINEAR_TOKEN_LOSS ||
                   s->op == BY_OP_LINEAR_CROSS_ENTROPY_PART;
    bool given = s->op == BY_OP_LINEAR_CROSS_ENTROPY_GRAD && is_given(s, GRAD_LOGITS);
    cost->flops = forward ? product : (given ? 2.0 : 3.0) * product;
}

static int64_t vocabulary(const by__op_signature *s)
{
    return s->attrs->rows > 0 ? s->attrs->rows : s->in[1].shape.dim[0];
}

static int64_t combined_vocabulary(const by__op_signature *s)
{
    return s->attrs->rows;
}

/* ---- splits ---- */

/* Returns true if input `i`, which has one entry a row of x, is split as x is, or absent. */
static bool follows_rows(const by__op_signature *s, const by__op_sharding *sh, int i)
{
    by__graph_split split;
    return !is_given(s, i) ||
           (by__op_split_of_rows(&s->in[0].shape, sh->in[0], &s->in[i].shape, sh->ranks, &split) &&
            by__op_split_equal(sh->in[i], split));
}

/* Returns true if the rows of x, and everything with one entry a row, are split. weights: their
 * input. */
static bool split_rows(const by__op_signature *s, const by__op_sharding *sh, int weights)
{
    return sh->in[1].axis == BY__WHOLE && follows_rows(s, sh, 2) && follows_rows(s, sh, weights);
}

/* Returns true if only the weight is split, by vocabulary. */
static bool split_words(const by__op_signature *s, by__op_sharding *sh)
{
    sh->attrs.rows = s->in[1].shape.dim[0];
    sh->attrs.begin = by__op_cut(sh->attrs.rows, sh->ranks, sh->rank);
    return sh->in[1].axis == 0 && sh->in[1].sections == 1 &&
           by__op_shard_all_whole_but(sh, s->input_count, 1u << 1);
}

/* All-gathers two numbers for each row, from which every rank computes the loss of all rows.
 * weights: of these, or BY_NONE. *logits (may be NULL) receives the rank's logits if attrs.keep is
 * set. */
static void build_loss(by_graph *graph, const by__op_sharding *sh, const by_attrs *attrs,
                       const by_value *in, by_value weights, by_value *logits,
                       by_value outs[BY_MAX_OUTPUTS])
{
    by_value part[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    (void)by__op_add_node(graph, BY_OP_LINEAR_CROSS_ENTROPY_PART, attrs, in, 3, part);
    by_value parts[COMBINE_WEIGHTS + 1] = {
        by_all_gather(graph, part[0], 0, 2 * sh->ranks, sh->mesh, sh->ranks), in[2], weights};
    (void)by__op_add_node(graph, BY_OP_CROSS_ENTROPY_COMBINE, &sh->attrs, parts,
                          weights == BY_NONE ? COMBINE_WEIGHTS : COMBINE_WEIGHTS + 1, outs);
    if (logits != NULL) {
        *logits = part[1];
    }
}

static void build_forward(by_graph *graph, const by__op_sharding *sh, const by_value *in,
                          int input_count, by_value outs[BY_MAX_OUTPUTS])
{
    by_value weights = input_count > WEIGHTS ? in[WEIGHTS] : BY_NONE;
    build_loss(graph, sh, &sh->attrs, in, weights, NULL, outs);
}

static bool shard_forward(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    if (split_rows(s, sh, WEIGHTS)) {
        sh->out[0] = by__op_partial();
        return by__op_split_of_rows(&s->in[0].shape, sh->in[0], &out[1].shape, sh->ranks,
                                    &sh->out[1]);
    }
    sh->build = build_forward;
    return split_words(s, sh);
}

/* Rows alone are split: the losses of rows are not a sum over slices of the vocabulary. */
static bool shard_tokens(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    sh->out[0] = sh->in[2];
    return s->in[2].shape.rank > 0 && split_rows(s, sh, WEIGHTS) &&
           by__op_split_of_rows(&s->in[0].shape, sh->in[0], &out[1].shape, sh->ranks, &sh->out[1]);
}

static bool shard_backward(const by__op_signature *s, const by__graph_type *out,
                           by__op_sharding *sh)
{
    BY_UNUSED(out);
    if (split_rows(s, sh, GRAD_WEIGHTS)) {
        sh->out[0] = sh->in[0];
        sh->out[1] = by__op_partial();
        return follows_rows(s, sh, 3) && sh->in[4].axis == BY__WHOLE;
    }
    sh->out[0] = by__op_partial();
    sh->out[1] = sh->in[1];
    return split_words(s, sh);
}

/* A rank keeps the logits of a micro-batch up to this size, the one of a kernel's chunk of logits;
 * larger ones are computed twice. */
#define MAX_KEPT ((int64_t)128 << 20)

static bool keeps_logits(const by_graph *graph, const by_value *in)
{
    if (graph->error.status != BY_OK) {
        return false;
    }
    int64_t rows = by__op_rows(&graph->values[in[0]].shape);
    int64_t row_bytes = graph->values[in[1]].shape.dim[0] * (int64_t)sizeof(float);
    return rows <= MAX_KEPT / row_bytes;
}

/* With a slice of the vocabulary, the gradient needs each row's sum over all ranks first. */
static void build_train(by_graph *graph, const by__op_sharding *sh, const by_value *in,
                        int input_count, by_value outs[BY_MAX_OUTPUTS])
{
    by_value losses[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    by_value gradients[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    by_value logits;
    by_attrs attrs = sh->attrs;
    by_value weights = input_count > TRAIN_WEIGHTS ? in[TRAIN_WEIGHTS] : BY_NONE;
    attrs.keep = keeps_logits(graph, in);
    build_loss(graph, sh, &attrs, in, weights, &logits, losses);
    by_value operands[GRAD_WEIGHTS + 1] = {in[0], in[1], in[2], losses[1], in[3], logits, weights};
    (void)by__op_add_node(graph, BY_OP_LINEAR_CROSS_ENTROPY_GRAD, &sh->attrs, operands,
                          weights != BY_NONE ? GRAD_WEIGHTS + 1
                          : attrs.keep       ? GRAD_LOGITS + 1
                                             : GRAD_LOGITS,
                          gradients);
    outs[0] = losses[0];
    outs[1] = gradients[0];
    outs[2] = gradients[1];
}

static bool shard_train(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    BY_UNUSED(out);
    if (split_rows(s, sh, TRAIN_WEIGHTS)) {
        sh->out[0] = by__op_partial();
        sh->out[1] = sh->in[0];
        sh->out[2] = by__op_partial();
        return sh->in[3].axis == BY__WHOLE;
    }
    sh->out[1] = by__op_partial();
    sh->out[2] = sh->in[1];
    sh->build = build_train;
    return split_words(s, sh);
}

void by__op_fuse_loss(by_graph *graph, size_t n, by__graph_node *forward, by_op train)
{
    by__graph_node *gradient = &graph->nodes[n];
    gradient->op = train;
    gradient->out[2] = gradient->out[1];
    gradient->out[1] = gradient->out[0];
    gradient->out[0] = forward->out[0];
    gradient->output_count = 3;
    graph->values[forward->out[0]].producer = (int)n;
    forward->dead = true;
    forward->output_count = 0;
}

/* Merges loss, lse = linear_cross_entropy(x, w, t) and dx, dw = its gradient into one node in the
 * gradient's place. No other node may read the loss, since it could come before that place. */
static by_status fuse_gradient(by_graph *graph, size_t n, const int *uses, by_error *error)
{
    by__graph_node *gradient = &graph->nodes[n];
    int producer = graph->values[gradient->in[3]].producer;
    by__graph_node *forward = producer < 0 ? NULL : &graph->nodes[producer];
    by_value *in;
    if (forward == NULL || forward->op != BY_OP_LINEAR_CROSS_ENTROPY ||
        uses[forward->out[0]] != 0 || uses[forward->out[1]] != 1) {
        return BY_OK;
    }
    bool weighted = forward->input_count > WEIGHTS;
    BY_TRY(by__alloc((void **)&in, TRAIN_WEIGHTS + 1, sizeof *in, "operands", error));
    memcpy(in, forward->in, 3 * sizeof *in);
    in[3] = gradient->in[4];
    in[TRAIN_WEIGHTS] = weighted ? forward->in[WEIGHTS] : BY_NONE;
    free(gradient->in);
    gradient->in = in;
    gradient->input_count = weighted ? TRAIN_WEIGHTS + 1 : TRAIN_WEIGHTS;
    by__op_fuse_loss(graph, n, forward, BY_OP_LINEAR_CROSS_ENTROPY_TRAIN);
    return BY_OK;
}

#define SLICE                                                                                      \
    BY__ATTR_AS("begin", begin, INT, BY__ATTR_NO_WORK | BY__ATTR_SPARE),                           \
        BY__ATTR_AS("rows", rows, INT, BY__ATTR_NO_WORK | BY__ATTR_SPARE)
#define FACTORS (1u << 0 | 1u << 1)
#define TARGETS                                                                                    \
    {                                                                                              \
        {                                                                                          \
            .input = 2, .may_be_negative = true, .limit = vocabulary                               \
        }                                                                                          \
    }
const by__op_row by__op_linear_cross_entropy = {.min_inputs = WEIGHTS,
                                                .max_inputs = WEIGHTS + 1,
                                                .outputs = 2,
                                                .infer = infer_forward,
                                                .gradient = gradient_forward,
                                                .cost = cost_head,
                                                .factors = FACTORS,
                                                .shard = shard_forward,
                                                .keeps_f32 = 1u << WEIGHTS,
                                                .indices = TARGETS};
const by__op_row by__op_linear_token_loss = {.min_inputs = WEIGHTS,
                                             .max_inputs = WEIGHTS,
                                             .outputs = 2,
                                             .infer = infer_tokens,
                                             .gradient = gradient_tokens,
                                             .cost = cost_head,
                                             .factors = FACTORS,
                                             .shard = shard_tokens,
                                             .indices = TARGETS};
const by__op_row by__op_linear_cross_entropy_part = {
    .min_inputs = 3,
    .max_inputs = 3,
    .outputs = 2,
    .attrs = BY__ATTRS(SLICE, BY__ATTR_AS("logits", keep, FLAG, BY__ATTR_SPARE)),
    .infer = infer_part,
    .cost = cost_head,
    .factors = FACTORS,
    .indices = TARGETS};
const by__op_row by__op_cross_entropy_combine = {
    .min_inputs = COMBINE_WEIGHTS,
    .max_inputs = COMBINE_WEIGHTS + 1,
    .outputs = 2,
    .attrs = BY__ATTRS(BY__ATTR_AS("rows", rows, INT, 0)),
    .infer = infer_combine,
    .keeps_f32 = 1u << 0 | 1u << COMBINE_WEIGHTS,
    .indices = {{.input = 1, .may_be_negative = true, .limit = combined_vocabulary}}};
const by__op_row by__op_linear_cross_entropy_grad = {
    .min_inputs = GRAD_LOGITS,
    .max_inputs = GRAD_WEIGHTS + 1,
    .outputs = 2,
    .optional = 1u << GRAD_LOGITS,
    .attrs = BY__ATTRS(SLICE),
    .infer = infer_backward,
    .shard = shard_backward,
    .cost = cost_head,
    .factors = FACTORS,
    .keeps_f32 = 1u << 3 | 1u << 4 | 1u << GRAD_LOGITS | 1u << GRAD_WEIGHTS,
    .indices = TARGETS,
    .fuse = fuse_gradient,
    .fuses_whole = true};
const by__op_row by__op_linear_cross_entropy_train = {.min_inputs = TRAIN_WEIGHTS,
                                                      .max_inputs = TRAIN_WEIGHTS + 1,
                                                      .outputs = 3,
                                                      .infer = infer_train,
                                                      .shard = shard_train,
                                                      .cost = cost_head,
                                                      .factors = FACTORS,
                                                      .keeps_f32 = 1u << 3 | 1u << TRAIN_WEIGHTS,
                                                      .indices = TARGETS};

by_value by_linear_cross_entropy(by_graph *graph, by_value x, by_value weight, by_value targets)
{
    by_value in[3] = {x, weight, targets};
    return by__op_add_node(graph, BY_OP_LINEAR_CROSS_ENTROPY, &(by_attrs){0}, in, 3, NULL);
}

by_value by_weighted_linear_cross_entropy(by_graph *graph, by_value x, by_value weight,
                                          by_value targets, by_value weights)
{
    by_value in[4] = {x, weight, targets, weights};
    return by__op_add_node(graph, BY_OP_LINEAR_CROSS_ENTROPY, &(by_attrs){0}, in, 4, NULL);
}

by_value by_linear_token_loss(by_graph *graph, by_value x, by_value weight, by_value targets)
{
    by_value in[3] = {x, weight, targets};
    return by__op_add_node(graph, BY_OP_LINEAR_TOKEN_LOSS, &(by_attrs){0}, in, 3, NULL);
}
