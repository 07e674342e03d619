/* Batch norm (Ioffe and Szegedy 2015) of rows, built from other operations: it is the layer norm of
 * the transposed rows. */
#include "banyan/map.h"
#include "ops/ops.h"

/* rows [N, C] times `scale` [C] plus `shift` [C]. */
static by_value scale_and_shift(by_graph *graph, by_value rows, by_value scale, by_value shift)
{
    return by_add(graph, by_mul(graph, rows, scale), shift);
}

/* The variance with the divisor N - 1, from 1 / sqrt(variance + eps) with the divisor N. */
static by_value unbiased(by_graph *graph, by_value rstd, int64_t rows, float eps)
{
    by_map map;
    by_value results[BY_MAX_OUTPUTS];
    by_map_begin(&map, graph);
    int square = by_map_step(&map, BY_MAP_SQUARE, by_map_input(&map, rstd), 0, 0);
    int sum = by_map_step(&map, BY_MAP_DIV, by_map_constant(&map, 1.0f), square, 0);
    int variance = by_map_step(&map, BY_MAP_SUB, sum, by_map_constant(&map, eps), 0);
    int floor = by_map_step(&map, BY_MAP_MAX, variance, by_map_constant(&map, 0.0f), 0);
    int ratio = by_map_constant(&map, (float)((double)rows / (double)(rows - 1)));
    by_map_result(&map, by_map_step(&map, BY_MAP_MUL, floor, ratio, 0), BY_F32);
    by_map_end(&map, results);
    return results[0];
}

by_value by_batch_norm(by_graph *graph, by_value x, by_value weight, by_value bias, float eps,
                       by_value *mean, by_value *variance)
{
    by_value outputs[BY_MAX_OUTPUTS];
    by_attrs attrs = {.eps = eps};
    *mean = *variance = BY_NONE;
    if (graph->error.status != BY_OK || !by__graph_has(graph, x)) {
        return BY_NONE;
    }
    by_shape shape = graph->values[x].shape;
    if (shape.rank != 2 || shape.dim[0] < 2) {
        char text[128];
        by__graph_fail(graph, BY_EARG,
                       "batch norm: the operand must be two or more rows of a matrix, not %s",
                       by_shape_print(&shape, text));
        return BY_NONE;
    }
    by_shape rows = BY_SHAPE(shape.dim[0]);
    by_value in[3] = {by_transpose(graph, x, 0, 1), by_fill(graph, BY_F32, rows, 1.0f),
                      by_fill(graph, BY_F32, rows, 0.0f)};
    (void)by__op_add_node(graph, BY_OP_LAYER_NORM, &attrs, in, 3, outputs);
    *mean = outputs[1];
    *variance = unbiased(graph, outputs[2], shape.dim[0], eps);
    return scale_and_shift(graph, by_transpose(graph, outputs[0], 0, 1), weight, bias);
}

by_value by_batch_norm_fixed(by_graph *graph, by_value x, by_value mean, by_value variance,
                             by_value weight, by_value bias, float eps)
{
    by_map map;
    by_value results[BY_MAX_OUTPUTS];
    by_map_begin(&map, graph);
    int sum =
        by_map_step(&map, BY_MAP_ADD, by_map_input(&map, variance), by_map_constant(&map, eps), 0);
    by_map_result(&map, by_map_step(&map, BY_MAP_RSQRT, sum, 0, 0), BY_F32);
    by_map_end(&map, results);
    by_value scale = by_mul(graph, weight, results[0]);
    by_value shift = by_sub(graph, bias, by_mul(graph, mean, scale));
    return scale_and_shift(graph, x, scale, shift);
}
