/* Maps: short programs of element-wise steps that run as one operation.
 *
 * A map reads several tensors of one shape and a few scalars, computes step by step, element by
 * element, and makes new tensors of that shape or updates operands in place. However many steps it
 * has, it reads and writes memory once: the steps run on a few vectors of elements at a time, in
 * registers and the first-level cache. An optimizer's update is one map:
 *
 *     by_map map;
 *     by_map_begin(&map, graph);
 *     int p = by_map_input(&map, parameter);
 *     int m = by_map_input(&map, momentum);
 *     int g = by_map_input(&map, gradient);
 *     int rate = by_map_scalar(&map, hyper, 0);
 *     int beta = by_map_constant(&map, 0.9f);
 *     int v = by_map_step(&map, BY_MAP_ADD, by_map_step(&map, BY_MAP_MUL, m, beta, 0), g, 0);
 *     by_map_update(&map, m, v);
 *     by_map_update(&map, p, by_map_step(&map, BY_MAP_SUB, p,
 *                                        by_map_step(&map, BY_MAP_MUL, v, rate, 0), 0));
 *     by_map_end(&map, NULL);
 *
 * All steps compute in f32 and round after each step, as separate operations on f32 tensors do, and
 * nothing is contracted into fused multiply-adds: the bits are those of the separate operations, at
 * every level of the processor's instructions. bf16 operands are widened when they are read, and
 * bf16 results are rounded once, at the end.
 *
 * Errors are kept in the graph, as all errors of building (banyan/graph.h).
 */
#ifndef BANYAN_MAP_H
#define BANYAN_MAP_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A map that is being built: on the caller's stack, nothing to close. */
typedef struct by_map {
    by_graph *graph;
    by_value in[BY_MAP_MAX_INPUTS];
    by_map_program program;
} by_map;

/* Begins a map of the values of a graph. */
BY_API void by_map_begin(by_map *map, by_graph *graph);
/* A tensor as an operand: f32, bf16 or f16, and of the same shape as the other ones. The functions
 * return the number of a value of the map, -1 after an error. */
BY_API int by_map_input(by_map *map, by_value tensor);
/* Element `index` of an f32 tensor, the same for all elements of the map. */
BY_API int by_map_scalar(by_map *map, by_value tensor, int64_t index);
BY_API int by_map_constant(by_map *map, float value);
/* A step; operands that the kind does not have are ignored. */
BY_API int by_map_step(by_map *map, by_map_kind kind, int a, int b, int c);
/* f(a), with the bits of by_unary on f32. */
BY_API int by_map_function(by_map *map, by_function function, int a);
/* Lets `value` take the place of a tensor operand, rounded to its dtype. The operand must be a
 * graph input, a parameter or a state that nothing else reads but what feeds this map. */
BY_API void by_map_update(by_map *map, int input, int value);
/* The source of random bits of the map's elements, before by_map_update_random: Philox4x32-10
 * (Salmon et al. 2011) keyed by seed and stream, whose counter is the element's number, counted
 * from `first`, and the step: element `index` of the f32 tensor `step`, a whole number below 2^24.
 * So an element has the same bits whoever computes it, on whatever threads. */
BY_API void by_map_random(by_map *map, by_value step, int64_t index, uint64_t seed, uint64_t stream,
                          int64_t first);
#define BY_MAP_WORDS 8
/* by_map_update of a bf16 operand by stochastic rounding (Gupta et al. 2015): up with the
 * probability of the part that is cut off, by the 16 random bits number `word` (below BY_MAP_WORDS)
 * of the element; values that bf16 has stay as they are. Of f32 operands nothing is rounded. */
BY_API void by_map_update_random(by_map *map, int input, int value, int word);
/* Makes `value` a new tensor of the graph, f32, bf16 or f16. At most BY_MAX_OUTPUTS. */
BY_API void by_map_result(by_map *map, int value, by_dtype dtype);
/* Adds the map to its graph. `results` (may be NULL) gets the new tensors in order, BY_NONE for the
 * rest of BY_MAX_OUTPUTS and after an error. */
BY_API void by_map_end(by_map *map, by_value results[BY_MAX_OUTPUTS]);

#ifdef __cplusplus
}
#endif
#endif
