/* Maps: short programs of element-wise steps that run as one operation.
 *
 * A map reads tensors of one shape and a few scalars, computes step by step for each element, and
 * makes new tensors of that shape or updates operands in place. Whatever the number of steps, it
 * reads and writes memory once: the steps run on a few vectors of elements at a time, in registers
 * and the first-level cache. For example, an optimizer's update is one map:
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
 * All steps compute in f32 and round after each step, without contraction into fused multiply-adds,
 * so the result is bit for bit that of separate f32 operations at every instruction-set level. bf16
 * and f16 operands are widened on reading, and results are rounded once, at the end.
 *
 * Errors are stored in the graph, as all errors of building (banyan/graph.h).
 */
#ifndef BANYAN_MAP_H
#define BANYAN_MAP_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A map under construction, usually on the stack; there is nothing to close. */
typedef struct by_map {
    by_graph *graph;
    by_value in[BY_MAP_MAX_INPUTS];
    by_map_program program;
} by_map;

/* Begins a map over values of a graph. */
BY_API void by_map_begin(by_map *map, by_graph *graph);
/* Adds a tensor operand, f32, bf16 or f16, of the same shape as the others. This and the following
 * functions return the number of a value of the map, or -1 after an error. */
BY_API int by_map_input(by_map *map, by_value tensor);
/* Adds element `index` of an f32 tensor as an operand, the same for all elements of the map. */
BY_API int by_map_scalar(by_map *map, by_value tensor, int64_t index);
/* Adds a constant. */
BY_API int by_map_constant(by_map *map, float value);
/* Adds a step of the given kind; operands that the kind does not have are ignored. */
BY_API int by_map_step(by_map *map, by_map_kind kind, int a, int b, int c);
/* Adds f(a), with the bits of by_unary on f32. */
BY_API int by_map_function(by_map *map, by_function function, int a);
/* Replaces tensor operand `input` by `value`, rounded to its dtype. The operand must be a graph
 * input, parameter or state that nothing else reads but what computes this map's operands. */
BY_API void by_map_update(by_map *map, int input, int value);
/* Sets the source of random bits for by_map_update_random, which must be called later:
 * Philox4x32-10 (Salmon et al. 2011) keyed by `seed` and `stream`. The counter is the element's
 * number, counted from `first`, and the step, element `index` of the f32 tensor `step`, an integer
 * below 2^24. Thus an element gets the same bits regardless of who computes it and with how many
 * threads. */
BY_API void by_map_random(by_map *map, by_value step, int64_t index, uint64_t seed, uint64_t stream,
                          int64_t first);
/* Independent words of 16 random bits per element. */
#define BY_MAP_WORDS 8
/* Like by_map_update of a bf16 operand, with stochastic rounding (Gupta et al. 2015): up with the
 * probability of the truncated part, using the 16 random bits number `word` (below BY_MAP_WORDS) of
 * the element. Values representable in bf16, and f32 operands, are not changed by rounding. */
BY_API void by_map_update_random(by_map *map, int input, int value, int word);
/* Makes `value` a new tensor of the graph, f32, bf16 or f16; at most BY_MAX_OUTPUTS per map. */
BY_API void by_map_result(by_map *map, int value, by_dtype dtype);
/* Adds the map to its graph. `results` (may be NULL) receives the new tensors in order, and BY_NONE
 * in the remaining places and after an error. */
BY_API void by_map_end(by_map *map, by_value results[BY_MAX_OUTPUTS]);

#ifdef __cplusplus
}
#endif
#endif
