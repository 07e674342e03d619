/* Helpers shared by the optimizers whose updates are maps. */
#include "optim/optim.h"

void by__optim_update_begin(by__optim_update_map *m, by_graph *graph, const by__optim_update *u)
{
    m->u = u;
    m->decays = -1;
    by_map_begin(&m->map, graph);
    if (u->unit->stochastic) {
        const by_update_unit *unit = u->unit;
        by_map_random(&m->map, u->hyper, BY_HYPER_UPDATE, unit->seed, unit->stream, unit->first);
    }
    m->finite = by__map_one(m, BY_MAP_FINITE, by_map_scalar(&m->map, u->scale, 0));
}

int by__optim_update_gradient(by__optim_update_map *m)
{
    int gradient = by_map_input(&m->map, m->u->gradient);
    return by__map_mul(m, gradient, by_map_scalar(&m->map, m->u->scale, 0));
}

int by__optim_update_hyper(by__optim_update_map *m, int i)
{
    return by_map_scalar(&m->map, m->u->hyper, i);
}

int by__optim_update_rate(by__optim_update_map *m, int i)
{
    int rate = by__optim_update_hyper(m, i);
    return m->u->lr_scale == 1.0f ? rate
                                  : by__map_mul(m, rate, by_map_constant(&m->map, m->u->lr_scale));
}

/* Index of the word of an element's random bits for a tensor operand: the parameter, or a state. */
static int word_of(const by__optim_update_map *m, int tensor)
{
    for (int i = 0; i < BY_MAX_STATES; i++) {
        if (m->map.in[tensor] == m->u->state[i]) {
            return i + 1;
        }
    }
    return 0;
}

int by__optim_update_set(by__optim_update_map *m, int tensor, int value)
{
    int guarded = by_map_step(&m->map, BY_MAP_SELECT, m->finite, value, tensor);
    if (m->u->unit->stochastic && tensor >= 0) {
        by_map_update_random(&m->map, tensor, guarded, word_of(m, tensor));
    } else {
        by_map_update(&m->map, tensor, guarded);
    }
    return guarded;
}

by_value by__optim_update_end(by__optim_update_map *m, int step)
{
    const by__optim_update *u = m->u;
    by_value results[BY_MAX_OUTPUTS];
    int parameter = by_map_input(&m->map, u->parameter);
    int kept = parameter;
    if (u->decay != 0.0f) {
        int decay = by__map_mul(m, by__optim_update_rate(m, 0), by_map_constant(&m->map, u->decay));
        decay = m->decays < 0 ? decay : by__map_mul(m, decay, m->decays);
        kept = by__map_mul(m, parameter, by__map_sub(m, by_map_constant(&m->map, 1.0f), decay));
    }
    int next = by__optim_update_set(m, parameter, by__map_sub(m, kept, step));
    if (u->unit->copy != BY_F32) {
        by_map_result(&m->map, next, u->unit->copy);
    }
    by_map_end(&m->map, results);
    return results[0];
}

int by__optim_map_average(by__optim_update_map *m, double beta, int a, int b)
{
    int old = by__map_mul(m, a, by_map_constant(&m->map, (float)beta));
    return by__map_add(m, old, by__map_mul(m, b, by_map_constant(&m->map, (float)(1.0 - beta))));
}

/* Sums this rank's part of a sum over all ranks that share the unit. */
static by_value sum_over_ranks(by_graph *graph, const by__optim_update *u, by_value x)
{
    return u->unit->ranks > 1 ? by_all_reduce(graph, x, u->unit->mesh, u->unit->ranks) : x;
}

by_value by__optim_update_squares(by_graph *graph, const by__optim_update *u, by_value x)
{
    bool wide = x == BY_NONE || graph->values[x].dtype == BY_F32;
    by_value blocks = by__op_build_sum_squares(graph, wide ? x : by_cast(graph, x, BY_F32));
    return blocks == BY_NONE
               ? BY_NONE
               : sum_over_ranks(graph, u, by__op_sum_axes(graph, blocks, 1u << 0, true, true));
}

int64_t by__optim_update_count(const by__optim_update *u)
{
    return by_shape_count(u->unit->ranks > 1 ? &u->unit->whole : &u->unit->shape);
}
