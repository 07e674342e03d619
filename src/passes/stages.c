#include "passes/stages.h"

#include <stdlib.h>
#include <string.h>

/* The units between which a model can be cut: 0 is everything before the first block, 1 + b is
 * block b, and the last is everything after the blocks. */
typedef struct stage_units {
    const by_graph *graph;
    int *of;      /* of each node; -1: unknown */
    int *readers; /* of each node: of forward nodes the lowest unit that reads it, of backward nodes
                       the highest; -1: none */
    bool *gradient; /* backward nodes that depend on the seed or write a gradient */
    int count;
} stage_units;

static const by__graph_node *producer_of(const by_graph *graph, by_value value, size_t *index)
{
    int producer = value == BY_NONE ? -1 : graph->values[value].producer;
    *index = producer < 0 ? 0 : (size_t)producer;
    return producer < 0 ? NULL : &graph->nodes[producer];
}

/* Returns the lowest or highest unit of a node's producers in one phase, of backward ones only
 * those that depend on the seed; -1: none. */
static int producers_unit(const stage_units *u, const by__graph_node *node, by__graph_phase phase)
{
    int found = -1;
    for (int i = 0; i < node->input_count; i++) {
        size_t p;
        const by__graph_node *producer = producer_of(u->graph, node->in[i], &p);
        if (producer == NULL || producer->phase != phase || u->of[p] < 0 ||
            (phase == BY__BACKWARD && !u->gradient[p])) {
            continue;
        }
        bool better = phase == BY__FORWARD ? u->of[p] > found : u->of[p] < found;
        found = found < 0 || better ? u->of[p] : found;
    }
    return found;
}

/* Notes in the producers of a node of `phase` which unit reads them. */
static void mark_producers(stage_units *u, const by__graph_node *node, int unit,
                           by__graph_phase phase)
{
    for (int i = 0; i < node->input_count; i++) {
        size_t p;
        const by__graph_node *producer = producer_of(u->graph, node->in[i], &p);
        if (producer != NULL && producer->phase == phase && unit >= 0) {
            int *readers = &u->readers[p];
            bool better = phase == BY__FORWARD ? unit < *readers : unit > *readers;
            *readers = *readers < 0 || better ? unit : *readers;
        }
    }
}

/* Places forward nodes outside of blocks: nodes that depend on a block and that no block needs come
 * after the blocks; the others (an embedding, a cast of a parameter) go where they are read
 * first. */
static void place_forward(stage_units *u)
{
    const by_graph *graph = u->graph;
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        if (node->phase == BY__FORWARD) {
            int after = producers_unit(u, node, BY__FORWARD);
            u->of[n] = node->block >= 0 && node->block + 1 > after ? node->block + 1 : after;
        }
    }
    for (size_t n = graph->node_count; n-- > 0;) {
        const by__graph_node *node = &graph->nodes[n];
        if (node->phase != BY__FORWARD) {
            continue;
        }
        int read = u->readers[n];
        if (node->block < 0 && u->of[n] < 0) {
            bool constant = read < 0 && node->input_count == 0; /* for the backward pass */
            u->of[n] = read == 1 || constant ? 0 : read < 0 ? u->count - 1 : read;
        } else if (node->block < 0 && (read < 0 || read == u->count - 1)) {
            u->of[n] = u->count - 1;
        }
        mark_producers(u, node, u->of[n], BY__FORWARD);
    }
}

/* Returns the highest unit of the forward nodes that a backward node reads, itself or by way of
 * those that do not depend on the seed; -1: none. */
static int unit_of_sources(const stage_units *u, const by__graph_node *node)
{
    int found = -1;
    for (int i = 0; i < node->input_count; i++) {
        size_t p;
        const by__graph_node *producer = producer_of(u->graph, node->in[i], &p);
        int unit = -1;
        if (producer != NULL && producer->phase == BY__FORWARD) {
            unit = u->of[p];
        } else if (producer != NULL && !u->gradient[p]) {
            unit = unit_of_sources(u, producer);
        }
        found = unit > found ? unit : found;
    }
    return found;
}

/* Returns the unit that first reads parameter NAME in the forward pass, for its gradient
 * "grad.NAME". What is added to a statistic, which training does not read, belongs where it is
 * measured. */
static int unit_of_gradient(const stage_units *u, const by__graph_node *writer,
                            const by__graph_value *gradient)
{
    const by_graph *graph = u->graph;
    by_value parameter = by_graph_find(graph, gradient->name + strlen("grad."));
    for (size_t n = 0; n < graph->node_count && parameter != BY_NONE; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count && node->phase == BY__FORWARD; i++) {
            if (node->in[i] == parameter) {
                return u->of[n];
            }
        }
    }
    int unit = unit_of_sources(u, writer);
    return unit >= 0 ? unit : u->count - 1;
}

/* Returns the first gradient that a node writes, or NULL. */
static const by__graph_value *gradient_of(const by_graph *graph, const by__graph_node *node)
{
    for (int i = 0; i < node->output_count; i++) {
        const by__graph_value *out = node->out[i] == BY_NONE ? NULL : &graph->values[node->out[i]];
        if (out != NULL && out->role == BY_ROLE_GRADIENT) {
            return out;
        }
    }
    return NULL;
}

/* Returns the unit of a backward node that depends on the seed or writes a gradient: at most the
 * units of its operands. */
static int place_gradient(const stage_units *u, const by__graph_node *node)
{
    int from = producers_unit(u, node, BY__BACKWARD);
    const by__graph_value *gradient = gradient_of(u->graph, node);
    int unit = node->block >= 0   ? node->block + 1
               : gradient != NULL ? unit_of_gradient(u, node, gradient)
               : from == 1        ? 0
                                  : u->count - 1;
    return from >= 0 && from < unit ? from : unit;
}

/* Places backward nodes: gradients in the units that they flow through, copies of forward nodes
 * where they are read first. */
static void place_backward(stage_units *u, by_value seed)
{
    const by_graph *graph = u->graph;
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        u->gradient[n] = node->phase == BY__BACKWARD && gradient_of(graph, node) != NULL;
        for (int i = 0; i < node->input_count && node->phase == BY__BACKWARD; i++) {
            size_t p;
            const by__graph_node *producer = producer_of(graph, node->in[i], &p);
            u->gradient[n] =
                u->gradient[n] || node->in[i] == seed || (producer != NULL && u->gradient[p]);
        }
        if (u->gradient[n]) {
            u->of[n] = place_gradient(u, node);
        }
    }
    for (size_t n = graph->node_count; n-- > 0;) {
        const by__graph_node *node = &graph->nodes[n];
        if (node->phase != BY__BACKWARD) {
            continue;
        }
        if (!u->gradient[n]) {
            u->of[n] = u->readers[n] >= 0 ? u->readers[n] : u->count - 1;
        }
        mark_producers(u, node, u->of[n], BY__BACKWARD);
    }
}

static by_status find_units(stage_units *u, by_value seed, by_error *error)
{
    const by_graph *graph = u->graph;
    size_t nodes = graph->node_count;
    BY_TRY(by__alloc((void **)&u->of, nodes, sizeof *u->of, "stages", error));
    BY_TRY(by__alloc((void **)&u->readers, nodes, sizeof *u->readers, "stages", error));
    BY_TRY(by__alloc((void **)&u->gradient, nodes, sizeof *u->gradient, "stages", error));
    u->count = 2;
    for (size_t n = 0; n < nodes; n++) {
        u->of[n] = -1;
        u->readers[n] = -1;
        u->count = graph->nodes[n].block + 3 > u->count ? graph->nodes[n].block + 3 : u->count;
    }
    place_forward(u);
    place_backward(u, seed);
    return BY_OK;
}

/* ---- equal cost ---- */

/* FLOPs that a typical processor computes in the time of moving one byte of memory. */
#define FLOPS_OF_BYTE 16.0

static by_status cost_of_units(double *cost, const stage_units *u, by_error *error)
{
    for (size_t n = 0; n < u->graph->node_count; n++) {
        by__op_cost node;
        BY_TRY(by__op_node_cost(u->graph, n, &node, error));
        cost[u->of[n]] += node.flops + FLOPS_OF_BYTE * (node.bytes_read + node.bytes_written);
    }
    return BY_OK;
}

/* Cuts `count` units into `stages` contiguous, non-empty runs whose most expensive one is as cheap
 * as possible (dynamic programming over the last run). stage[i] is that of unit i; best[s][i] is
 * the cost of the first i units in s + 1 runs. */
static by_status cut_units(int *stage, const double *cost, int count, int stages, by_error *error)
{
    size_t width = (size_t)count + 1;
    double *best;
    int *begin;
    BY_TRY(by__alloc((void **)&best, width * (size_t)stages, sizeof *best, "stages", error));
    by_status status =
        by__alloc((void **)&begin, width * (size_t)stages, sizeof *begin, "stages", error);
    if (status != BY_OK) {
        free(best);
        return status;
    }
    for (int s = 0; s < stages; s++) {
        for (int i = s + 1; i <= count; i++) {
            double run = 0.0;
            double *have = &best[(size_t)s * width + (size_t)i];
            *have = -1.0;
            for (int k = i - 1; k >= s; k--) {
                run += cost[k];
                double before = s == 0 ? 0.0 : best[(size_t)(s - 1) * width + (size_t)k];
                double most = run > before ? run : before;
                if ((s > 0 || k == 0) && (*have < 0.0 || most < *have)) {
                    *have = most;
                    begin[(size_t)s * width + (size_t)i] = k;
                }
            }
        }
    }
    int end = count;
    for (int s = stages - 1; s >= 0; s--) {
        int first = begin[(size_t)s * width + (size_t)end];
        for (int i = first; i < end; i++) {
            stage[i] = s;
        }
        end = first;
    }
    free(best);
    free(begin);
    return BY_OK;
}

/* ---- parts ---- */

/* Marks backward nodes on which a gradient of another unit depends. */
static void mark_needed(bool *needed, const stage_units *u)
{
    const by_graph *graph = u->graph;
    for (size_t n = graph->node_count; n-- > 0;) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count && node->phase == BY__BACKWARD; i++) {
            size_t p;
            const by__graph_node *producer = producer_of(graph, node->in[i], &p);
            if (producer != NULL && producer->phase == BY__BACKWARD &&
                (needed[n] || u->of[p] != u->of[n])) {
                needed[p] = true;
            }
        }
    }
}

static by_status set_parts(int *part, const stage_units *u, const int *stage, bool apart,
                           by_error *error)
{
    const by_graph *graph = u->graph;
    bool *needed;
    BY_TRY(by__alloc((void **)&needed, graph->node_count, sizeof *needed, "stages", error));
    mark_needed(needed, u);
    for (size_t n = 0; n < graph->node_count; n++) {
        by__pass_part_kind kind = graph->nodes[n].phase == BY__FORWARD ? BY__PART_FORWARD
                                  : apart && !needed[n]                ? BY__PART_WEIGHT
                                                                       : BY__PART_BACKWARD;
        part[n] = by__part_of(stage[u->of[n]], kind);
    }
    free(needed);
    return BY_OK;
}

/* Returns a part's position in the order in which parts run. */
static int order_of(int part, int stages)
{
    int stage = by__stage_of_part(part);
    int kind = part % BY__PART_KINDS;
    return kind == BY__PART_FORWARD ? stage
                                    : stages + 2 * (stages - 1 - stage) + (kind == BY__PART_WEIGHT);
}

/* Checks that operands are made in parts that run no later, and that nothing reads a weights'
 * part. */
static by_status check_parts(const int *part, const by_graph *graph, int stages, by_error *error)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            size_t p;
            if (producer_of(graph, node->in[i], &p) == NULL || part[p] == part[n]) {
                continue;
            }
            if (order_of(part[p], stages) > order_of(part[n], stages) ||
                part[p] % BY__PART_KINDS == BY__PART_WEIGHT) {
                return by_error_set(error, BY_ESTATE,
                                    "stages: node %zu (%s) of stage %d reads node %zu (%s) of "
                                    "stage %d, which runs later",
                                    n, by_op_name(node->op), by__stage_of_part(part[n]), p,
                                    by_op_name(graph->nodes[p].op), by__stage_of_part(part[p]));
            }
        }
    }
    return BY_OK;
}

static void close_units(stage_units *u)
{
    free(u->of);
    free(u->readers);
    free(u->gradient);
}

static by_status map_units(by__pass_stage_map *map, const stage_units *u, int stages,
                           by_error *error)
{
    double *cost;
    if (stages > u->count) {
        return by_error_set(error, BY_EARG,
                            "a pipeline of %d stages: the model has %d blocks, which with what "
                            "comes before and behind them make %d stages at most; use fewer "
                            "ranks, fewer chunks or more layers",
                            stages, u->count - 2, u->count);
    }
    *map = (by__pass_stage_map){.units = u->count, .stages = stages};
    BY_TRY(by__alloc((void **)&cost, (size_t)u->count, sizeof *cost, "stages", error));
    by_status status =
        by__alloc((void **)&map->stage, (size_t)u->count, sizeof *map->stage, "stages", error);
    if (status == BY_OK) {
        status = cost_of_units(cost, u, error);
    }
    if (status == BY_OK) {
        status = cut_units(map->stage, cost, u->count, stages, error);
    }
    free(cost);
    if (status != BY_OK) {
        by__pass_stage_map_free(map);
    }
    return status;
}

by_status by__pass_map_stages(by__pass_stage_map *out, const by_graph *graph, by_value seed,
                              int stages, by_error *error)
{
    stage_units u = {.graph = graph};
    by_status status = find_units(&u, seed, error);
    if (status == BY_OK) {
        status = map_units(out, &u, stages, error);
    }
    close_units(&u);
    return status;
}

void by__pass_stage_map_free(by__pass_stage_map *map)
{
    free(map->stage);
    *map = (by__pass_stage_map){0};
}

by_status by__pass_assign_parts(int *part, const by_graph *graph, by_value seed,
                                const by__pass_stage_map *map, bool apart, by_error *error)
{
    stage_units u = {.graph = graph};
    by_status status = find_units(&u, seed, error);
    if (status == BY_OK && u.count != map->units) {
        status = by_error_set(error, BY_ESTATE,
                              "stages: a graph of %d blocks for a map of a model of %d",
                              u.count - 2, map->units - 2);
    }
    if (status == BY_OK) {
        status = set_parts(part, &u, map->stage, apart, error);
    }
    close_units(&u);
    return status == BY_OK ? check_parts(part, graph, map->stages, error) : status;
}

int by__pass_stage_of_parameter(const by_graph *graph, const int *part, by_value parameter)
{
    int stage = -1;
    const char *name = graph->values[parameter].name;
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->output_count; i++) {
            const by__graph_value *out =
                node->out[i] == BY_NONE ? NULL : &graph->values[node->out[i]];
            if (out != NULL && out->role == BY_ROLE_GRADIENT &&
                strcmp(out->name + strlen("grad."), name) == 0) {
                return by__stage_of_part(part[n]);
            }
        }
        for (int i = 0; i < node->input_count; i++) {
            int here = by__stage_of_part(part[n]);
            stage = node->in[i] == parameter && (stage < 0 || here < stage) ? here : stage;
        }
    }
    return stage;
}
