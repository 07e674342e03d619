/* Batch norm (Ioffe and Szegedy 2015): each channel, an entry of the last axis, with its mean and
 * variance over all rows, or with given ones, which is an affine map. A sum and a rectifier may
 * follow in the same pass over memory. */
#include "banyan/map.h"
#include "ops/ops.h"

enum { X, WEIGHT, BIAS, MEAN, VARIANCE, DY, GRAD_INPUTS };

static bool is_vector(const by__graph_type *type, int64_t n)
{
    return type->dtype == BY_F32 && type->shape.rank == 1 && type->shape.dim[0] == n;
}

static by_status check_operands(const by__op_signature *s, by_error *error)
{
    const by__graph_type *x = &s->in[X];
    if (!by__op_is_act(x->dtype) || x->shape.rank < 1 || by__op_rows(&x->shape) < 1) {
        return by__op_refuse(s, error, "the operand must have channels of f32, bf16 or f16");
    }
    if (s->op != BY_OP_AFFINE && by__op_rows(&x->shape) < 2) {
        return by__op_refuse(s, error,
                             "a single row, or pixel of an image, has no variance: raise "
                             "train.micro_batch to 2 or more, or the size of the images");
    }
    int64_t channels = by__op_last_dim(&x->shape);
    if (!is_vector(&s->in[WEIGHT], channels) || !is_vector(&s->in[BIAS], channels)) {
        return by__op_refuse(s, error, "weight and bias must be f32 vectors of the channels");
    }
    if (!(s->attrs->clip >= 0.0f) || (s->attrs->clip > 0.0f && !s->attrs->rectify)) {
        return by__op_refuse(s, error, "only a rectifier has an upper limit");
    }
    return BY_OK;
}

static by_status infer_forward(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    BY_TRY(check_operands(s, error));
    if (s->input_count > 3 && !by__absent(&s->in[3]) && !by__op_type_equal(&s->in[3], &s->in[X])) {
        return by__op_refuse(s, error, "the added tensor must be like the operand");
    }
    out[0] = s->in[X];
    if (s->op == BY_OP_BATCH_NORM) {
        out[1] = s->in[WEIGHT];
        out[2] = s->in[WEIGHT];
    }
    return BY_OK;
}

static by_status infer_gradient(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    int64_t channels = by__op_last_dim(&s->in[X].shape);
    BY_TRY(check_operands(s, error));
    if (!is_vector(&s->in[MEAN], channels) || !is_vector(&s->in[VARIANCE], channels) ||
        !by__op_type_equal(&s->in[DY], &s->in[X])) {
        return by__op_refuse(s, error, "x and dy must agree, statistics be f32 [channels]");
    }
    out[0] = s->in[X];
    out[1] = s->in[WEIGHT];
    out[2] = s->in[WEIGHT];
    return BY_OK;
}

/* dy where the rectifier of a node lets it through, seen from the node's result y. */
static by_value through_rectifier(by_graph *graph, const by__graph_node *node, by_value dy)
{
    const by_attrs relu = {.function = BY_FN_RELU};
    by_value y = node->out[0];
    if (!node->attrs.rectify) {
        return dy;
    }
    by_value in[2] = {y, dy};
    dy = by__op_add_node(graph, BY_OP_UNARY_GRAD, &relu, in, 2, NULL);
    if (node->attrs.clip > 0.0f) { /* what is left below the limit is rectified, too */
        by_value limit = by_fill(graph, BY_F32, BY_SHAPE(1), node->attrs.clip);
        by_value below[2] = {by_unary(graph, by_sub(graph, y, limit), BY_FN_NEGATE), dy};
        dy = by__op_add_node(graph, BY_OP_UNARY_GRAD, &relu, below, 2, NULL);
    }
    return dy;
}

/* Where the rectifier lets nothing through follows from x. With a sum it does not, but there its
 * gradient, which that of the added tensor is, exists anyway. */
static void gradient(by_graph *graph, const by__graph_node *node, const by_value *dout,
                     by_value *din)
{
    by_attrs attrs = node->attrs;
    by_value dy = dout[0];
    if (node->input_count > 3 && node->in[3] != BY_NONE) {
        dy = through_rectifier(graph, node, dy);
        attrs.rectify = false;
        attrs.clip = 0.0f;
        din[3] = dy;
    }
    by_value in[GRAD_INPUTS] = {node->in[X],  node->in[WEIGHT], node->in[BIAS],
                                node->out[1], node->out[2],     dy};
    by_value outs[BY_MAX_OUTPUTS];
    (void)by__op_add_node(graph, BY_OP_BATCH_NORM_GRAD, &attrs, in, GRAD_INPUTS, outs);
    for (int i = 0; i < 3; i++) {
        din[i] = outs[i];
    }
}

static void gradient_affine(by_graph *graph, const by__graph_node *node, const by_value *dout,
                            by_value *din)
{
    by_value dy = through_rectifier(graph, node, dout[0]);
    din[0] = by_mul(graph, dy, node->in[WEIGHT]);
    din[1] = by__op_reduce_to(graph, by_mul(graph, dy, node->in[X]), node->in[WEIGHT]);
    din[2] = by__op_reduce_to(graph, dy, node->in[BIAS]);
    if (node->input_count > 3 && node->in[3] != BY_NONE) {
        din[3] = dy;
    }
}

static by_status onnx_affine(const by__op_signature *s, const by__graph_type *out,
                             by__op_onnx *onnx, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(error);
    int y = by__op_onnx_node2(onnx, "Add", by__op_onnx_node2(onnx, "Mul", 0, 1), 2);
    if (s->input_count > 3 && !by__absent(&s->in[3])) {
        y = by__op_onnx_node2(onnx, "Add", y, 3);
    }
    if (s->attrs->clip > 0.0f) {
        y = by__op_onnx_node3(onnx, "Clip", y, by__op_onnx_float(onnx, 0.0f),
                              by__op_onnx_float(onnx, s->attrs->clip));
    } else if (s->attrs->rectify) {
        y = by__op_onnx_node1(onnx, "Relu", y);
    }
    onnx->result(onnx, 0, y);
    return BY_OK;
}

/* 1 / sqrt(variance + eps) */
static by_value inverse_deviation(by_graph *graph, by_value variance, float eps)
{
    by_map map;
    by_value results[BY_MAX_OUTPUTS];
    by_map_begin(&map, graph);
    int sum =
        by_map_step(&map, BY_MAP_ADD, by_map_input(&map, variance), by_map_constant(&map, eps), 0);
    by_map_result(&map, by_map_step(&map, BY_MAP_RSQRT, sum, 0, 0), BY_F32);
    by_map_end(&map, results);
    return results[0];
}

/* ---- over several ranks ---- */

static by_value times(by_graph *graph, by_value x, double factor)
{
    return by_scale(graph, x, by_fill(graph, BY_F32, BY_SHAPE(1), (float)factor));
}

/* The mean over the ranks of what each has. */
static by_value mean_of_ranks(by_graph *graph, by_value own, uint32_t mesh, int64_t ranks)
{
    return by_all_reduce(graph, times(graph, own, 1.0 / (double)ranks), mesh, ranks);
}

static double rows_of(const by_graph *graph, const by__graph_node *node)
{
    return (double)by__op_rows(&graph->values[node->in[X]].shape);
}

/* The variance of all rows is the mean of the ranks' variances and squared distances of their means
 * from the common one (Chan et al. 1979), in which, unlike in a mean of squares, nothing cancels.
 * Others read it to multiply it by rows / (rows - 1) of one rank's rows, where all ranks' are
 * meant (unbiased). */
static void synchronise(by_graph *graph, const by__graph_node *node, uint32_t mesh, int64_t ranks,
                        by__op_synchronised *made)
{
    const by_norm_end end = {.add = node->input_count > 3 ? node->in[3] : BY_NONE,
                             .rectify = node->attrs.rectify,
                             .limit = node->attrs.clip};
    double own = rows_of(graph, node);
    double all = own * (double)ranks;
    by_value mean = mean_of_ranks(graph, node->out[1], mesh, ranks);
    by_value away = by_sub(graph, node->out[1], mean);
    by_value spread = by_add(graph, node->out[2], by_mul(graph, away, away));
    by_value variance = mean_of_ranks(graph, spread, mesh, ranks);
    by_value y = by_batch_norm_fixed(graph, node->in[X], mean, variance, node->in[WEIGHT],
                                     node->in[BIAS], node->attrs.eps, &end);
    double ratio = all / (all - 1.0) * ((own - 1.0) / own);
    *made = (by__op_synchronised){{y, mean, variance},
                                  {BY_NONE, BY_NONE, times(graph, variance, ratio)}};
}

/* The mean of a gradient, a sum over one rank's rows, minus that over all rows. */
static by_value excess(by_graph *graph, by_value sum, double rows, uint32_t mesh, int64_t ranks)
{
    by_value own = times(graph, sum, 1.0 / rows);
    return by_sub(graph, own, mean_of_ranks(graph, own, mesh, ranks));
}

/* With a = weight / sqrt(variance + eps) and xhat = (x - mean) / sqrt(variance + eps),
 *   dx = a (dy - mean of all rows' dy - xhat mean of all rows' dy xhat),
 * of which the node has the same with the means of one rank's rows: what these are in excess of
 * those of all ranks is added, an affine map of x. The gradients of weight and bias stay those of
 * the rank's rows, as of every parameter; copies of them, as they are added over the ranks in
 * place. */
static void synchronise_gradient(by_graph *graph, const by__graph_node *node, uint32_t mesh,
                                 int64_t ranks, by__op_synchronised *made)
{
    double rows = rows_of(graph, node);
    by_value deviation = inverse_deviation(graph, node->in[VARIANCE], node->attrs.eps);
    by_value a = by_mul(graph, node->in[WEIGHT], deviation);
    by_value of_x =
        by_mul(graph, by_mul(graph, a, deviation), excess(graph, node->out[1], rows, mesh, ranks));
    by_value shift = by_sub(graph, by_mul(graph, a, excess(graph, node->out[2], rows, mesh, ranks)),
                            by_mul(graph, of_x, node->in[MEAN]));
    const by_norm_end end = {.add = node->out[0]};
    *made =
        (by__op_synchronised){{by_affine(graph, node->in[X], of_x, shift, &end),
                               times(graph, node->out[1], 1.0), times(graph, node->out[2], 1.0)},
                              {BY_NONE, BY_NONE, BY_NONE}};
}

static void cost(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    double bytes = by__op_type_bytes(&s->in[X]);
    BY_UNUSED(out);
    cost->flops = 8.0 * (double)by_shape_count(&s->in[X].shape);
    /* Once for the sums, once for the result. */
    cost->bytes_read += s->op == BY_OP_AFFINE ? 0.0 : bytes;
    cost->bytes_read += s->op == BY_OP_BATCH_NORM_GRAD ? bytes : 0.0;
}

/* A rank may have some of the channels. */
static bool shard(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    int last = s->in[X].shape.rank - 1;
    for (int i = 0; i < s->input_count; i++) {
        bool vector = i > X && s->in[i].shape.rank == 1;
        if (!by__absent(&s->in[i]) &&
            (sh->in[i].axis != (vector ? 0 : last) || sh->in[i].sections != sh->in[X].sections)) {
            return false;
        }
    }
    sh->out[0] = sh->in[X];
    for (int i = 1; i < BY_MAX_OUTPUTS && !by__absent(&out[i]); i++) {
        sh->out[i] = sh->in[WEIGHT];
    }
    return true;
}

#define ATTRS                                                                                      \
    BY__ATTRS(BY__ATTR(eps, FLOAT), BY__ATTR_AS("rectify", rectify, FLAG, 0),                      \
              BY__ATTR_AS("limit", clip, FLOAT, BY__ATTR_SPARE))

const by__op_row by__op_batch_norm = {.min_inputs = 3,
                                      .max_inputs = 4,
                                      .outputs = 3,
                                      .optional = 1u << 3,
                                      .attrs = ATTRS,
                                      .infer = infer_forward,
                                      .gradient = gradient,
                                      .synchronise = synchronise,
                                      .shard = shard,
                                      .cost = cost,
                                      .overlay = {1u << 0 | 1u << 3},
                                      .keeps_f32 = 1u << WEIGHT | 1u << BIAS};
const by__op_row by__op_affine = {.min_inputs = 3,
                                  .max_inputs = 4,
                                  .outputs = 1,
                                  .optional = 1u << 3,
                                  .attrs =
                                      BY__ATTRS(BY__ATTR_AS("rectify", rectify, FLAG, 0),
                                                BY__ATTR_AS("limit", clip, FLOAT, BY__ATTR_SPARE)),
                                  .infer = infer_forward,
                                  .gradient = gradient_affine,
                                  .onnx = onnx_affine,
                                  .shard = shard,
                                  .cost = cost,
                                  .overlay = {1u << 0 | 1u << 3},
                                  .keeps_f32 = 1u << WEIGHT | 1u << BIAS};
const by__op_row by__op_batch_norm_grad = {.min_inputs = GRAD_INPUTS,
                                           .max_inputs = GRAD_INPUTS,
                                           .outputs = 3,
                                           .attrs = ATTRS,
                                           .infer = infer_gradient,
                                           .synchronise = synchronise_gradient,
                                           .shard = shard,
                                           .cost = cost,
                                           .overlay = {1u << X | 1u << DY},
                                           .keeps_f32 = 1u << WEIGHT | 1u << BIAS | 1u << MEAN |
                                                        1u << VARIANCE};

/* ---- builders ---- */

/* The variance with the divisor rows - 1, from that with the divisor rows. */
static by_value unbiased(by_graph *graph, by_value variance, const by_shape *x)
{
    double rows = (double)by__op_rows(x);
    by_value ratio = by_fill(graph, BY_F32, BY_SHAPE(1), (float)(rows / (rows - 1.0)));
    return by_scale(graph, variance, ratio);
}

static by_attrs attributes(float eps, const by_norm_end *end)
{
    return end == NULL ? (by_attrs){.eps = eps}
                       : (by_attrs){.eps = eps, .rectify = end->rectify, .clip = end->limit};
}

by_value by_batch_norm(by_graph *graph, by_value x, by_value weight, by_value bias, float eps,
                       const by_norm_end *end, by_value *mean, by_value *variance)
{
    by_value outputs[BY_MAX_OUTPUTS];
    by_value in[4] = {x, weight, bias, end == NULL ? BY_NONE : end->add};
    by_attrs attrs = attributes(eps, end);
    *mean = *variance = BY_NONE;
    if (by__op_add_node(graph, BY_OP_BATCH_NORM, &attrs, in, in[3] == BY_NONE ? 3 : 4, outputs) ==
        BY_NONE) {
        return BY_NONE;
    }
    *mean = outputs[1];
    *variance = unbiased(graph, outputs[2], &graph->values[x].shape);
    return outputs[0];
}

by_value by_affine(by_graph *graph, by_value x, by_value scale, by_value shift,
                   const by_norm_end *end)
{
    by_value in[4] = {x, scale, shift, end == NULL ? BY_NONE : end->add};
    by_attrs attrs = attributes(0.0f, end);
    return by__op_add_node(graph, BY_OP_AFFINE, &attrs, in, in[3] == BY_NONE ? 3 : 4, NULL);
}

by_value by_batch_norm_fixed(by_graph *graph, by_value x, by_value mean, by_value variance,
                             by_value weight, by_value bias, float eps, const by_norm_end *end)
{
    by_value scale = by_mul(graph, weight, inverse_deviation(graph, variance, eps));
    by_value shift = by_sub(graph, bias, by_mul(graph, mean, scale));
    return by_affine(graph, x, scale, shift, end);
}
