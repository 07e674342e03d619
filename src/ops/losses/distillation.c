/* The language-model head and the loss of a distilled student in one op: a mix of the cross-entropy
 * with the targets and the divergence from a teacher's softened probabilities. As in
 * cross_entropy.c, the logits (here of both models) exist only for a chunk of rows at a time, and
 * the training form computes both gradients in that pass. */
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

enum { X, W, TARGETS, HIDDEN, HEAD, IDS, LOGARITHMS, DLOSS };

static bool has(const by__op_signature *s, int input)
{
    return !by__absent(&s->in[input]);
}

static by_status check_teacher(const by__op_signature *s, by_error *error)
{
    int64_t rows = by__op_rows(&s->in[X].shape);
    if (has(s, HIDDEN)) {
        const by__graph_type *x = &s->in[HIDDEN];
        const by__graph_type *w = &s->in[HEAD];
        return !has(s, HEAD) || has(s, IDS) || has(s, LOGARITHMS) || x->dtype != s->in[X].dtype ||
                       w->dtype != x->dtype || x->shape.rank < 1 || w->shape.rank != 2 ||
                       by__op_rows(&x->shape) != rows ||
                       w->shape.dim[1] != by__op_last_dim(&x->shape) ||
                       w->shape.dim[0] != s->in[W].shape.dim[0]
                   ? by__op_refuse(s, error,
                                   "the teacher must have a hidden state [..., width'] with the "
                                   "student's rows and a head [vocabulary, width'], in its dtype")
                   : BY_OK;
    }
    by_shape wanted = s->in[IDS].shape;
    int last = wanted.rank - 1;
    if (last >= 0) {
        wanted.dim[last]++;
    }
    return has(s, HEAD) || !has(s, IDS) || !has(s, LOGARITHMS) || s->in[IDS].dtype != BY_I32 ||
                   s->in[LOGARITHMS].dtype != BY_F32 || last < 0 ||
                   !by_shape_equal(&wanted, &s->in[LOGARITHMS].shape) ||
                   by__op_rows(&s->in[IDS].shape) != rows ||
                   by__op_last_dim(&s->in[IDS].shape) > s->in[W].shape.dim[0]
               ? by__op_refuse(s, error,
                               "the teacher must be i32 ids [..., k] with the student's rows and "
                               "f32 logarithms [..., k + 1], or a hidden state and a head")
               : BY_OK;
}

static by_status check_operands(const by__op_signature *s, by_error *error)
{
    const by__graph_type *x = &s->in[X];
    const by__graph_type *w = &s->in[W];
    const by__graph_type *targets = &s->in[TARGETS];
    if (!by__op_is_act(x->dtype) || x->dtype != w->dtype || x->shape.rank < 1 ||
        w->shape.rank != 2 || w->shape.dim[1] != by__op_last_dim(&x->shape)) {
        return by__op_refuse(s, error, "x must be [..., width] and the weight [vocabulary, width]");
    }
    if (targets->dtype != BY_I32 || by_shape_count(&targets->shape) != by__op_rows(&x->shape)) {
        return by__op_refuse(s, error, "there must be one i32 target for each row of x");
    }
    if (!(s->attrs->theta > 0.0f) || !(s->attrs->p >= 0.0f) || !(s->attrs->p <= 1.0f)) {
        return by__op_refuse(s, error, "the temperature must be above 0, the weight in [0, 1]");
    }
    return check_teacher(s, error);
}

static by_status infer_forward(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_operands(s, error));
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(1)};
    return BY_OK;
}

static by_status infer_gradients(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *dloss = &s->in[DLOSS];
    BY_TRY(check_operands(s, error));
    if (dloss->dtype != BY_F32 || by_shape_count(&dloss->shape) != 1) {
        return by__op_refuse(s, error, "the gradient of the loss must be one f32");
    }
    out[0] = s->in[X];
    out[1] = (by__graph_type){BY_F32, s->in[W].shape};
    return BY_OK;
}

static by_status infer_train(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(infer_gradients(s, out + 1, error));
    out[0] = (by__graph_type){BY_F32, BY_SHAPE(1)};
    return BY_OK;
}

static void gradient_forward(by_graph *graph, const by__graph_node *node, const by_value *dout,
                             by_value *din)
{
    by_value in[DLOSS + 1];
    by_value outs[BY_MAX_OUTPUTS];
    memcpy(in, node->in, DLOSS * sizeof *in);
    in[DLOSS] = dout[0];
    (void)by__op_add_node(graph, BY_OP_LINEAR_DISTILL_GRAD, &node->attrs, in, DLOSS + 1, outs);
    din[X] = outs[0];
    din[W] = outs[1];
}

/* One product forward, three with the gradients, plus one for the teacher. */
static void cost_head(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    double vocabulary = (double)s->in[W].shape.dim[0];
    double student = 2.0 * (double)by_shape_count(&s->in[X].shape) * vocabulary;
    double teacher =
        has(s, HIDDEN) ? 2.0 * (double)by_shape_count(&s->in[HIDDEN].shape) * vocabulary : 0.0;
    BY_UNUSED(out);
    cost->flops = (s->op == BY_OP_LINEAR_DISTILL ? 1.0 : 3.0) * student + teacher;
}

static int64_t vocabulary_of(const by__op_signature *s)
{
    return s->in[W].shape.dim[0];
}

/* Returns true if rows, and everything with entries for rows, are split, and weights are whole. */
static bool split_rows(const by__op_signature *s, by__op_sharding *sh)
{
    for (int i = W; i < s->input_count; i++) {
        by__graph_split want = by__op_whole();
        bool by_rows = i == TARGETS || i == HIDDEN || i == IDS || i == LOGARITHMS;
        bool fits = !has(s, i) || !by_rows ||
                    (i == TARGETS ? by__op_split_of_rows(&s->in[X].shape, sh->in[X],
                                                         &s->in[i].shape, sh->ranks, &want)
                                  : (want = sh->in[X], s->in[i].shape.rank == s->in[X].shape.rank));
        if (!fits || !by__op_split_equal(sh->in[i], want)) {
            return false;
        }
    }
    return sh->in[X].axis >= 0 && sh->in[X].axis < s->in[X].shape.rank - 1;
}

static bool shard(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    int first = s->op == BY_OP_LINEAR_DISTILL_GRAD ? 0 : 1;
    BY_UNUSED(out);
    if (first > 0) {
        sh->out[0] = by__op_partial();
    }
    if (s->op != BY_OP_LINEAR_DISTILL) {
        sh->out[first] = sh->in[X];
        sh->out[first + 1] = by__op_partial();
    }
    return split_rows(s, sh);
}

/* Merges loss = linear_distill(...) and dx, dw = its gradient into one node in the gradient's
 * place, like the fusion of linear_cross_entropy. */
static by_status fuse_gradient(by_graph *graph, size_t n, const int *uses, by_error *error)
{
    const by__graph_node *gradient = &graph->nodes[n];
    BY_UNUSED(error);
    for (size_t k = n; k-- > 0;) {
        by__graph_node *forward = &graph->nodes[k];
        if (forward->op != BY_OP_LINEAR_DISTILL || forward->dead ||
            memcmp(forward->in, gradient->in, DLOSS * sizeof *forward->in) != 0) {
            continue;
        }
        if (uses[forward->out[0]] != 0) {
            return BY_OK; /* read by a node that may come before the gradient */
        }
        by__op_fuse_loss(graph, n, forward, BY_OP_LINEAR_DISTILL_TRAIN);
        return BY_OK;
    }
    return BY_OK;
}

#define DISTILL(inputs, outputs_of, infer_of)                                                      \
    .min_inputs = inputs, .max_inputs = inputs, .outputs = outputs_of,                             \
    .optional = 1u << HIDDEN | 1u << HEAD | 1u << IDS | 1u << LOGARITHMS,                          \
    .attrs = BY__ATTRS(BY__ATTR_AS("temperature", theta, FLOAT, 0),                                \
                       BY__ATTR_AS("weight", p, FLOAT, 0)),                                        \
    .infer = infer_of, .cost = cost_head,                                                          \
    .factors = 1u << X | 1u << W | 1u << HIDDEN | 1u << HEAD, .shard = shard,                      \
    .keeps_f32 = 1u << LOGARITHMS | (inputs > DLOSS ? 1u << DLOSS : 0u),                           \
    .indices = {                                                                                   \
        {.input = TARGETS, .may_be_negative = true, .limit = vocabulary_of},                       \
        {.input = IDS, .limit = vocabulary_of},                                                    \
    }
const by__op_row by__op_linear_distill = {DISTILL(DLOSS, 1, infer_forward),
                                          .gradient = gradient_forward};
const by__op_row by__op_linear_distill_grad = {DISTILL(DLOSS + 1, 2, infer_gradients),
                                               .fuse = fuse_gradient, .fuses_whole = true};
const by__op_row by__op_linear_distill_train = {DISTILL(DLOSS + 1, 3, infer_train)};

by_value by_linear_distill(by_graph *graph, by_value x, by_value weight, by_value targets,
                           const by_teacher *teacher, float temperature, float share)
{
    const by_value in[DLOSS] = {
        x, weight, targets, teacher->hidden, teacher->head, teacher->ids, teacher->logarithms};
    const by_attrs attrs = {.theta = temperature, .p = share};
    return by__op_add_node(graph, BY_OP_LINEAR_DISTILL, &attrs, in, DLOSS, NULL);
}
