/* Batch norm over the micro-batches of several ranks (synchronised batch norm): each takes its mean
 * and variance from the rows of all of them, as if they were one micro-batch.
 *
 * In the forward pass ranks add their means, then their mean squared distances from the common
 * mean. In the backward pass, with y = a (x - mean) + bias and a = weight / sqrt(variance + eps),
 *   dx = a (dy - mean of all rows' dy - xhat mean of all rows' dy xhat),
 * of which the op computes the same with the means of its own rows; what these differ by from those
 * of all ranks is added, which is an affine map of x. The gradients of weight and bias are those of
 * the rank's rows, as of every parameter. */
#include "banyan/map.h"
#include "passes/passes.h"

enum { X, WEIGHT, BIAS, MEAN, VARIANCE };

/* The mean over the ranks of what each has. */
static by_value mean_of_ranks(by_graph *graph, by_value own, const by_synchronise_options *o)
{
    by_value share = by_fill(graph, BY_F32, BY_SHAPE(1), 1.0f / (float)o->ranks);
    return by_all_reduce(graph, by_scale(graph, own, share), o->mesh, o->ranks);
}

/* The mean over all axes but the last one. */
static by_value mean_of_rows(by_graph *graph, by_value x)
{
    int axes[BY_MAX_RANK];
    int count = graph->values[x].shape.rank - 1;
    for (int i = 0; i < count; i++) {
        axes[i] = i;
    }
    return by_mean(graph, x, axes, count, false);
}

static by_value scaled(by_graph *graph, by_value x, double factor)
{
    return by_scale(graph, x, by_fill(graph, BY_F32, BY_SHAPE(1), (float)factor));
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

/* What updates the running variance multiplies it by rows / (rows - 1) of one rank's rows; that of
 * all ranks' rows is meant. */
static void correct_running(by_graph *graph, size_t count, by_value variance, double rows,
                            double ranks)
{
    double factor = rows * ranks / (rows * ranks - 1.0) * ((rows - 1.0) / rows);
    by_value corrected = scaled(graph, variance, factor);
    for (size_t n = 0; n < count; n++) {
        by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count && node->op != BY_OP_BATCH_NORM_GRAD; i++) {
            node->in[i] = node->in[i] == variance ? corrected : node->in[i];
        }
    }
}

/* `value` is what was made. */
static by_status become(by_graph *graph, by_value made, by_value value, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    by__pass_graph_replace(graph, made, value);
    return BY_OK;
}

static by_status forward(by_graph *graph, size_t n, const by_synchronise_options *o,
                         by_error *error)
{
    const by__graph_node node = graph->nodes[n];
    const by_norm_end end = {.add = node.input_count > 3 ? node.in[3] : BY_NONE,
                             .rectify = node.attrs.rectify,
                             .limit = node.attrs.clip};
    size_t count = graph->node_count;
    graph->nodes[n].dead = true;
    graph->nodes[n].output_count = 0;
    by_value x = by_cast(graph, node.in[X], BY_F32);
    BY_TRY(become(graph, mean_of_ranks(graph, mean_of_rows(graph, x), o), node.out[1], error));
    by_value away = by_sub(graph, x, node.out[1]);
    by_value own = mean_of_rows(graph, by_mul(graph, away, away));
    BY_TRY(become(graph, mean_of_ranks(graph, own, o), node.out[2], error));
    by_value y = by_batch_norm_fixed(graph, node.in[X], node.out[1], node.out[2], node.in[WEIGHT],
                                     node.in[BIAS], node.attrs.eps, &end);
    BY_TRY(become(graph, y, node.out[0], error));
    correct_running(graph, count, node.out[2],
                    (double)by__op_rows(&graph->values[node.in[X]].shape), (double)o->ranks);
    return by_graph_check(graph, error);
}

/* The mean of a gradient, a sum over one rank's rows, minus that over all rows. */
static by_value excess(by_graph *graph, by_value sum, double rows, const by_synchronise_options *o)
{
    by_value own = scaled(graph, sum, 1.0 / rows);
    return by_sub(graph, own, mean_of_ranks(graph, own, o));
}

/* Gives the node another value in place of its i-th output, which something else is to make. */
static by_value another_output(by_graph *graph, size_t n, int i)
{
    const by__graph_value *value = &graph->values[graph->nodes[n].out[i]];
    by__graph_type type = {value->dtype, value->shape};
    by_value made = by__graph_add_value(graph, BY_ROLE_ACTIVATION, NULL, NULL, type);
    if (made != BY_NONE) {
        graph->nodes[n].out[i] = made;
        graph->values[made].producer = (int)n;
    }
    return made;
}

static by_status backward(by_graph *graph, size_t n, const by_synchronise_options *o,
                          by_error *error)
{
    const by__graph_node node = graph->nodes[n];
    double rows = (double)by__op_rows(&graph->values[node.in[X]].shape);
    by_value own[3];
    for (int i = 0; i < 3; i++) {
        own[i] = another_output(graph, n, i);
    }
    BY_TRY(by_graph_check(graph, error));
    by_value deviation = inverse_deviation(graph, node.in[VARIANCE], node.attrs.eps);
    by_value a = by_mul(graph, node.in[WEIGHT], deviation);
    by_value of_x = by_mul(graph, by_mul(graph, a, deviation), excess(graph, own[1], rows, o));
    by_value shift = by_sub(graph, by_mul(graph, a, excess(graph, own[2], rows, o)),
                            by_mul(graph, of_x, node.in[MEAN]));
    const by_norm_end end = {.add = own[0]};
    by_value dx = by_affine(graph, node.in[X], of_x, shift, &end);
    BY_TRY(become(graph, dx, node.out[0], error));
    /* Gradients of parameters are added over the ranks in place, which nothing else may read. */
    BY_TRY(become(graph, scaled(graph, own[1], 1.0), node.out[1], error));
    return become(graph, scaled(graph, own[2], 1.0), node.out[2], error);
}

by_status by_pass_synchronise(by_graph *graph, const by_synchronise_options *options,
                              by_error *error)
{
    size_t count = graph->node_count;
    by__graph_phase phase = graph->phase;
    by_status status = by_graph_check(graph, error);
    if (options->ranks < 2) {
        return status;
    }
    for (size_t n = 0; n < count && status == BY_OK; n++) {
        by_op op = graph->nodes[n].op;
        graph->phase = graph->nodes[n].phase;
        by_graph_set_block(graph, graph->nodes[n].block);
        status = op == BY_OP_BATCH_NORM        ? forward(graph, n, options, error)
                 : op == BY_OP_BATCH_NORM_GRAD ? backward(graph, n, options, error)
                                               : BY_OK;
    }
    graph->phase = phase;
    by_graph_set_block(graph, -1);
    BY_TRY(status);
    by__graph_compact(graph);
    return by__graph_sort(graph, error);
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    return by_pass_synchronise(graph, &options->synchronise, error);
}

const by__pass by__pass_synchronise = {.name = "synchronise",
                                       .summary =
                                           "statistics of batch norm over the ranks, if asked for",
                                       .purposes = BY_PURPOSE_TRAIN,
                                       .apply = apply};
