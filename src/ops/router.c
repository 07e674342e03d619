/* The router of a mixture of experts: to which experts a token goes, and with which weights. */
#include "ops/ops.h"

static bool is_f32(const by__graph_type *type)
{
    return type->dtype == BY_F32;
}

static by_status check_logits(const by__op_signature *s, by_error *error)
{
    const by__graph_type *logits = &s->in[0];
    if (!is_f32(logits) || logits->shape.rank < 1) {
        return by__op_refuse(s, error, "logits must be f32 [..., experts]");
    }
    return BY_OK;
}

static by_status infer_router(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_logits(s, error));
    by_shape shape = s->in[0].shape;
    int64_t experts = by__op_last_dim(&shape);
    if (s->attrs->chosen < 1 || s->attrs->chosen > experts) {
        return by__op_refuse(s, error, "the experts chosen must be 1 to all of them");
    }
    shape.dim[shape.rank - 1] = s->attrs->chosen;
    out[0] = (by__graph_type){BY_F32, shape};
    out[1] = (by__graph_type){BY_I32, shape};
    out[2] = (by__graph_type){BY_F32, BY_SHAPE(experts)};
    return BY_OK;
}

static void gradient_router(by_graph *graph, const by__graph_node *node, const by_value *dout,
                            by_value *din)
{
    by_value in[4] = {node->in[0], node->out[1], dout[0], dout[2]};
    din[0] = by__op_add_node(graph, BY_OP_ROUTER_GRAD, &(by_attrs){0}, in, 4, NULL);
}

static by_status infer_router_grad(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *logits = &s->in[0];
    const by__graph_type *index = &s->in[1];
    const by__graph_type *dweight = &s->in[2];
    const by__graph_type *dmass = &s->in[3];
    BY_TRY(check_logits(s, error));
    if (index->dtype != BY_I32 || by__op_rows(&index->shape) != by__op_rows(&logits->shape)) {
        return by__op_refuse(s, error, "there must be one row of i32 choices for each of logits");
    }
    if (!by__absent(dweight) &&
        (!is_f32(dweight) || !by_shape_equal(&dweight->shape, &index->shape))) {
        return by__op_refuse(s, error, "the weights' gradient must be f32 and like the choices");
    }
    if (!by__absent(dmass) &&
        (!is_f32(dmass) || by_shape_count(&dmass->shape) != by__op_last_dim(&logits->shape))) {
        return by__op_refuse(s, error, "the mass's gradient must be f32 [experts]");
    }
    out[0] = *logits;
    return BY_OK;
}

/* Rows of logits must stay whole. */
static bool is_by_rows(const by__op_signature *s, by__graph_split logits)
{
    return logits.axis >= 0 && logits.axis < s->in[0].shape.rank - 1;
}

static bool shard_router(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    BY_UNUSED(out);
    sh->out[0] = sh->in[0];
    sh->out[1] = sh->in[0];
    sh->out[2] = by__op_partial();
    return is_by_rows(s, sh->in[0]);
}

static bool shard_router_grad(const by__op_signature *s, const by__graph_type *out,
                              by__op_sharding *sh)
{
    BY_UNUSED(out);
    sh->out[0] = sh->in[0];
    return is_by_rows(s, sh->in[0]) && by__op_split_equal(sh->in[1], sh->in[0]) &&
           (by__absent(&s->in[2]) || by__op_split_equal(sh->in[2], sh->in[0])) &&
           sh->in[3].axis == BY__WHOLE;
}

static void cost_router(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 12.0 * (double)by_shape_count(&s->in[0].shape);
}

const by__op_row by__op_router = {
    .min_inputs = 1,
    .max_inputs = 1,
    .outputs = 3,
    .attrs = BY__ATTRS(BY__ATTR_AS("chosen", chosen, INT, BY__ATTR_IN_TYPE)),
    .infer = infer_router,
    .gradient = gradient_router,
    .differentiable = 1u << 0 | 1u << 2,
    .cost = cost_router,
    .shard = shard_router,
    .keeps_f32 = 1u << 0};
const by__op_row by__op_router_grad = {.min_inputs = 4,
                                       .max_inputs = 4,
                                       .outputs = 1,
                                       .optional = 1u << 2 | 1u << 3,
                                       .infer = infer_router_grad,
                                       .shard = shard_router_grad,
                                       .cost = cost_router,
                                       .keeps_f32 = 1u << 0 | 1u << 2 | 1u << 3};

void by_router(by_graph *graph, by_value logits, int64_t chosen, by_value *weight, by_value *index,
               by_value *mass)
{
    by_attrs attrs = {.chosen = chosen};
    by_value out[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    (void)by__op_add_node(graph, BY_OP_ROUTER, &attrs, &logits, 1, out);
    *weight = out[0];
    *index = out[1];
    *mass = out[2];
}
