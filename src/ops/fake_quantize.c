/* Rounds the weight of a product during training the way its codes will be rounded
 * (quantisation-aware training: Jacob et al. 2018). Rounding has derivative 0 almost everywhere, so
 * the gradient passes straight through as if y were x (Bengio, Leonard and Courville 2013, section
 * 4). */
#include "base/packing/packing.h"
#include "ops/ops.h"

static by_status infer(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *x = &s->in[0];
    const by_packing *p = &s->attrs->packing;
    bool out_in = s->attrs->trans_b;
    by_shape shape = by__unpacked_shape(p, out_in);
    if (x->dtype != BY_F32 || !by__op_is_act(s->attrs->dtype)) {
        return by__op_refuse(s, error, "the weight must be f32");
    }
    if (p->stack > 0 && !out_in) {
        return by__op_refuse(s, error, "matrices of a stack must be [outputs, inputs]");
    }
    if ((p->kind != BY_PACKING_INT8 && p->kind != BY_PACKING_INT4) ||
        !by_shape_equal(&x->shape, &shape) || (p->kind == BY_PACKING_INT4 && p->group < 1)) {
        return by__op_refuse(s, error, "the packing must be int8 or int4 and have its sizes");
    }
    out[0] = (by__graph_type){s->attrs->dtype, x->shape};
    return BY_OK;
}

static void gradient(by_graph *graph, const by__graph_node *node, const by_value *dout,
                     by_value *din)
{
    BY_UNUSED(graph);
    BY_UNUSED(node);
    din[0] = dout[0];
}

static void cost(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = 6.0 * (double)by_shape_count(&s->in[0].shape);
}

/* Matrices of a stack and outputs can be split because each output has its own scale; inputs of 4
 * bits can if ranks have whole groups. */
static bool shard(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    by__graph_split split = sh->in[0];
    by_packing *p = &sh->attrs.packing;
    int first = p->stack > 0 ? 1 : 0; /* axis of a matrix */
    BY_UNUSED(out);
    /* The packing has the sizes of every rank's part, so parts must be equal. */
    if (split.axis < 0 || s->in[0].shape.dim[split.axis] % (split.sections * sh->ranks) != 0) {
        return false;
    }
    sh->out[0] = split;
    if (split.axis < first) {
        p->stack /= sh->ranks;
        return true;
    }
    if (split.axis == first + (s->attrs->trans_b ? 0 : 1)) {
        p->n /= sh->ranks;
        return true;
    }
    p->k /= sh->ranks;
    return p->kind == BY_PACKING_INT4 && p->k / split.sections % p->group == 0;
}

/* A result made of parameters is treated as a parameter: its gradient is f32, and a product with it
 * counts as one with the weight. */
const by__op_row by__op_fake_quantize = {
    .min_inputs = 1,
    .max_inputs = 1,
    .outputs = 1,
    .attrs = BY__ATTRS(BY__ATTR(packing, PACKING), BY__ATTR_AS("out_in", trans_b, FLAG, 0),
                       BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE | BY__ATTR_COMPUTE)),
    .infer = infer,
    .gradient = gradient,
    .cost = cost,
    .moves = true,
    .cheap = true,
    .keeps_f32 = 1u << 0,
    .shard = shard};

by_value by_fake_quantize(by_graph *graph, by_value weight, const by_packing *packing, bool out_in)
{
    const by_attrs attrs = {.packing = *packing, .trans_b = out_in, .dtype = BY_F32};
    return by__op_add_node(graph, BY_OP_FAKE_QUANTIZE, &attrs, &weight, 1, NULL);
}
