/* Likelihood losses: a model gives the parameters of a distribution for each number, and the loss
 * is minus the logarithm of its density there, a sum in f32 whatever the dtype of the parameters.
 * The caller divides by the number of examples of the whole step. */
#include "ops/ops.h"

/* a, b, t, w?; the gradient also dloss. */
enum { WEIGHTS = 3, DLOSS = 4 };

static by_status infer(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *a = &s->in[0];
    by__graph_type wide = {BY_F32, a->shape};
    if (!by__op_is_act(a->dtype) || a->shape.rank < 1 || !by__op_type_equal(&s->in[1], a) ||
        !by__op_type_equal(&s->in[2], &wide)) {
        return by__op_refuse(s, error,
                             "both parameters must be f32, bf16 or f16 of one shape, targets f32 "
                             "of the same shape");
    }
    if (s->input_count > WEIGHTS && !by__absent(&s->in[WEIGHTS]) &&
        !by__op_type_equal(&s->in[WEIGHTS], &wide)) {
        return by__op_refuse(s, error, "weights must be f32 of the shape of the parameters");
    }
    if (s->attrs->density < 0 || s->attrs->density >= BY_DENSITY_COUNT) {
        return by__op_refuse(s, error, "there is no such distribution");
    }
    if (s->op == BY_OP_LIKELIHOOD) {
        out[0] = (by__graph_type){BY_F32, BY_SHAPE(1)};
        return BY_OK;
    }
    if (!by__op_is_scalar(&s->in[DLOSS])) {
        return by__op_refuse(s, error, "the gradient of the loss must be one f32");
    }
    out[0] = *a;
    out[1] = *a;
    return BY_OK;
}

static void gradient(by_graph *graph, const by__graph_node *node, const by_value *dout,
                     by_value *din)
{
    by_value weights = node->input_count > WEIGHTS ? node->in[WEIGHTS] : BY_NONE;
    by_value in[5] = {node->in[0], node->in[1], node->in[2], weights, dout[0]};
    by_value out[BY_MAX_OUTPUTS];
    (void)by__op_add_node(graph, BY_OP_LIKELIHOOD_GRAD, &node->attrs, in, 5, out);
    din[0] = out[0];
    din[1] = out[1];
}

static void cost(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost_of)
{
    double each = s->attrs->density == BY_DENSITY_NORMAL ? 20.0 : 120.0;
    BY_UNUSED(out);
    cost_of->flops = each * (double)by_shape_count(&s->in[0].shape);
}

/* Splits any axis, of all operands alike; the loss is a sum. */
static bool shard(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    BY_UNUSED(out);
    for (int i = 1; i < s->input_count && i <= WEIGHTS; i++) {
        if (!by__absent(&s->in[i]) && !by__op_split_equal(sh->in[i], sh->in[0])) {
            return false;
        }
    }
    bool backward = s->op == BY_OP_LIKELIHOOD_GRAD;
    sh->out[0] = backward ? sh->in[0] : by__op_partial();
    sh->out[1] = sh->in[0];
    return sh->in[0].axis >= 0 && (!backward || sh->in[DLOSS].axis == BY__WHOLE);
}

/* Targets and weights are given in f32 and stay f32. */
#define DENSITY BY__ATTRS(BY__ATTR(density, INT))
const by__op_row by__op_likelihood = {.min_inputs = 3,
                                      .max_inputs = 4,
                                      .outputs = 1,
                                      .optional = 1u << WEIGHTS,
                                      .attrs = DENSITY,
                                      .infer = infer,
                                      .gradient = gradient,
                                      .cost = cost,
                                      .shard = shard,
                                      .keeps_f32 = 1u << 2 | 1u << WEIGHTS};
const by__op_row by__op_likelihood_grad = {.min_inputs = 5,
                                           .max_inputs = 5,
                                           .outputs = 2,
                                           .optional = 1u << WEIGHTS,
                                           .attrs = DENSITY,
                                           .infer = infer,
                                           .cost = cost,
                                           .shard = shard,
                                           .keeps_f32 = 1u << 2 | 1u << WEIGHTS | 1u << DLOSS};

by_value by_likelihood(by_graph *graph, by_value a, by_value b, by_value targets, by_value weights,
                       by_density density)
{
    by_attrs attrs = {.density = density};
    by_value in[4] = {a, b, targets, weights};
    return by__op_add_node(graph, BY_OP_LIKELIHOOD, &attrs, in, 4, NULL);
}
