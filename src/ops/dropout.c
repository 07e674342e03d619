/* Dropout (Srivastava et al. 2014), scaled by 1 / (1 - p). The mask is a function of the sample and
 * the position in it. So the backward pass recomputes it instead of storing it, and a sample gets
 * the same mask whatever micro-batch or rank it is in. */
#include "ops/ops.h"

static by_status infer_dropout(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (!by__op_is_act(s->in[0].dtype) || s->in[0].shape.rank < 2 || s->in[1].dtype != BY_I32 ||
        by_shape_count(&s->in[1].shape) != 4) {
        return by__op_refuse(s, error, "x must be [batch, ...] f32, bf16 or f16 and rng i32 [4]");
    }
    if (!(s->attrs->p >= 0.0f && s->attrs->p < 1.0f)) {
        return by__op_refuse(s, error, "the probability must be in [0, 1)");
    }
    if (s->attrs->rows < 0 || s->attrs->begin < 0 || s->attrs->turn < 0 || s->attrs->gap < 0) {
        return by__op_refuse(s, error, "the sample, or the place in it, is negative");
    }
    out[0] = s->in[0];
    return BY_OK;
}

static void gradient_dropout(by_graph *graph, const by__graph_node *node, const by_value *dout,
                             by_value *din)
{
    by_value in[2] = {dout[0], node->in[1]};
    din[0] = by__op_add_node(graph, BY_OP_DROPOUT, &node->attrs, in, 2, NULL);
    din[1] = BY_NONE;
}

/* A rank has some of the samples, whose numbers start at its slice; or it has a slice of all
 * samples along their first axis, one piece of each, and its mask starts where the slice does. */
static bool shard_dropout(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    const by_shape *x = &s->in[0].shape;
    by__graph_split split = sh->in[0];
    int64_t inner = 1;
    if (split.axis == 0 && split.sections == 1 && !sh->zigzag && sh->in[1].axis == BY__WHOLE) {
        sh->out[0] = split;
        sh->attrs.rows += by__op_cut(x->dim[0], sh->ranks, sh->rank);
        return true;
    }
    if (split.axis != 1 || split.sections != 1 || sh->in[1].axis != BY__WHOLE) {
        return false;
    }
    for (int i = 2; i < x->rank; i++) {
        inner *= x->dim[i];
    }
    sh->out[0] = split;
    BY_UNUSED(out);
    return by__op_shard_places(s, sh, 1, inner);
}

const by__op_row by__op_dropout = {
    .min_inputs = 2,
    .max_inputs = 2,
    .outputs = 1,
    .attrs = BY__ATTRS(BY__ATTR_AS("p", p, FLOAT, BY__ATTR_NO_WORK),
                       BY__ATTR_AS("stream", stream, WORD, BY__ATTR_NO_WORK),
                       BY__ATTR_AS("sample", rows, INT, BY__ATTR_NO_WORK | BY__ATTR_SPARE),
                       BY__ATTR_AS("begin", begin, INT, BY__ATTR_NO_WORK | BY__ATTR_SPARE),
                       BY__ATTR_AS("turn", turn, INT, BY__ATTR_NO_WORK | BY__ATTR_SPARE),
                       BY__ATTR_AS("gap", gap, INT, BY__ATTR_NO_WORK | BY__ATTR_SPARE)),
    .infer = infer_dropout,
    .gradient = gradient_dropout,
    .overlay = {1u << 0},
    .shard = shard_dropout,
    .random = true};

by_value by_dropout(by_graph *graph, by_value x, by_value rng, float p, uint32_t stream)
{
    by_attrs attrs = {.p = p, .stream = stream};
    by_value in[2] = {x, rng};
    return p == 0.0f ? x : by__op_add_node(graph, BY_OP_DROPOUT, &attrs, in, 2, NULL);
}
