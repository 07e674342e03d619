/* Keeps activations in fewer bits between the forward and the backward pass.
 *
 * A value that both passes read is narrowed when it is made. The forward pass goes on with the
 * exact value, whose memory is freed after its last reader there; the backward pass reads a value
 * that is widened just before. So the forward pass is unchanged, and gradients are those of
 * slightly different activations (ActNN, Chen et al. 2021; GACT, Liu et al. 2022). Recomputation
 * starts from the narrowed values too. In 8 bits a value is stored as codes and scales
 * (ENCODE8). */
#include <stdlib.h>

#include "passes/passes.h"

typedef struct narrow_pass {
    by_graph *graph;
    by_dtype dtype;
    bool *chosen;    /* values to keep narrow */
    by_value *kept;  /* of each: the narrow value */
    by_value *scale; /* the scales, if that is codes */
    by_value *wide;  /* widened for the current block of the backward pass */
    size_t *block;   /* the values in `wide` */
    size_t in_block;
    size_t *place; /* of each new node, in order: the node that it goes before */
    size_t old_nodes;
    size_t old_values;
} narrow_pass;

/* Tensors with shorter rows, such as row statistics, are not worth narrowing. */
#define MIN_COLUMNS 16

static bool is_candidate(const narrow_pass *p, by_value value)
{
    const by_graph *graph = p->graph;
    const by__graph_value *v = value == BY_NONE ? NULL : &graph->values[value];
    const by__graph_node *node = v == NULL || v->producer < 0 ? NULL : &graph->nodes[v->producer];
    return node != NULL && node->phase == BY__FORWARD && v->role == BY_ROLE_ACTIVATION &&
           node->out[0] == value && v->shape.rank >= 2 && by__op_is_act(v->dtype) &&
           by_dtype_size(v->dtype) > by_dtype_size(p->dtype) &&
           by__op_last_dim(&v->shape) >= MIN_COLUMNS && !by__op_row_of(node->op)->communicates;
}

static void choose(narrow_pass *p)
{
    for (int refuse = 0; refuse < 2; refuse++) {
        for (size_t n = 0; n < p->old_nodes; n++) {
            const by__graph_node *node = &p->graph->nodes[n];
            uint32_t wide = by__op_row_of(node->op)->keeps_f32;
            for (int i = 0; i < node->input_count && node->phase == BY__BACKWARD; i++) {
                by_value in = node->in[i];
                if (!is_candidate(p, in)) {
                    continue;
                }
                bool exact = by__mask_has(wide, i);
                p->chosen[in] = refuse ? p->chosen[in] && !exact : true;
            }
        }
    }
}

/* Places the node just added before node `place`. */
static by_status put(narrow_pass *p, size_t place, by_error *error)
{
    BY_TRY(by_graph_check(p->graph, error));
    p->place[p->graph->node_count - 1 - p->old_nodes] = place;
    return BY_OK;
}

/* Narrows the results of node n. */
static by_status keep_results(narrow_pass *p, size_t n, by_error *error)
{
    by_value made = p->graph->nodes[n].output_count > 0 ? p->graph->nodes[n].out[0] : BY_NONE;
    if (made == BY_NONE || !p->chosen[made]) {
        return BY_OK;
    }
    p->graph->phase = BY__FORWARD;
    by_graph_set_block(p->graph, p->graph->nodes[n].block);
    p->kept[made] = p->dtype == BY_U8 ? by__op_build_encode8(p->graph, made, &p->scale[made])
                                      : by_cast(p->graph, made, p->dtype);
    return put(p, n + 1, error);
}

/* Makes backward node n read widened operands. */
static by_status widen_operands(narrow_pass *p, size_t n, by_error *error)
{
    for (int i = 0; i < p->graph->nodes[n].input_count; i++) {
        by_value in = p->graph->nodes[n].in[i];
        if (in == BY_NONE || (size_t)in >= p->old_values || p->kept[in] == BY_NONE) {
            continue;
        }
        if (p->wide[in] == BY_NONE) {
            p->graph->phase = BY__BACKWARD;
            by_graph_set_block(p->graph, p->graph->nodes[n].block);
            by_dtype dtype = p->graph->values[in].dtype;
            p->wide[in] = p->dtype == BY_U8
                              ? by__op_build_decode8(p->graph, p->kept[in], p->scale[in], dtype)
                              : by_cast(p->graph, p->kept[in], dtype);
            BY_TRY(put(p, n, error));
            p->block[p->in_block++] = (size_t)in;
        }
        p->graph->nodes[n].in[i] = p->wide[in];
    }
    return BY_OK;
}

static by_status narrow_values(narrow_pass *p, by_error *error)
{
    int block = -1;
    for (size_t n = 0; n < p->old_nodes; n++) {
        if (p->graph->nodes[n].phase != BY__BACKWARD) {
            BY_TRY(keep_results(p, n, error));
            continue;
        }
        if (p->graph->nodes[n].block >= 0 && p->graph->nodes[n].block != block) {
            block = p->graph->nodes[n].block;
            while (p->in_block > 0) {
                p->wide[p->block[--p->in_block]] = BY_NONE;
            }
        }
        BY_TRY(widen_operands(p, n, error));
    }
    return by__pass_graph_place(p->graph, p->place, p->old_nodes, error);
}

/* Upper bound of new nodes: one cast a value, and one an operand of the backward pass. */
static size_t most_nodes(const by_graph *graph)
{
    size_t most = graph->value_count;
    for (size_t n = 0; n < graph->node_count; n++) {
        most += (size_t)graph->nodes[n].input_count;
    }
    return most;
}

by_status by_pass_narrow(by_graph *graph, by_dtype dtype, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    if (dtype == BY_F32) {
        return BY_OK;
    }
    if (dtype != BY_BF16 && dtype != BY_U8) {
        return by_error_set(error, BY_EARG,
                            "narrow: activations are kept in f32, bf16 or u8 codes, not %s",
                            by_dtype_name(dtype));
    }
    narrow_pass p = {.graph = graph,
                     .dtype = dtype,
                     .old_nodes = graph->node_count,
                     .old_values = graph->value_count};
    by__graph_phase phase = graph->phase;
    size_t values = p.old_values + 1;
    struct {
        void **array;
        size_t count;
        size_t size;
    } arrays[] = {{(void **)&p.chosen, values, sizeof *p.chosen},
                  {(void **)&p.kept, values, sizeof *p.kept},
                  {(void **)&p.scale, values, sizeof *p.scale},
                  {(void **)&p.wide, values, sizeof *p.wide},
                  {(void **)&p.block, values, sizeof *p.block},
                  {(void **)&p.place, most_nodes(graph) + 1, sizeof *p.place}};
    by_status status = BY_OK;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays) && status == BY_OK; i++) {
        status = by__alloc(arrays[i].array, arrays[i].count, arrays[i].size, "narrow", error);
    }
    for (size_t v = 0; v < values && status == BY_OK; v++) {
        p.kept[v] = BY_NONE;
        p.wide[v] = BY_NONE;
    }
    if (status == BY_OK) {
        choose(&p);
        status = narrow_values(&p, error);
    }
    graph->phase = phase;
    by_graph_set_block(graph, -1);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        free(*arrays[i].array);
    }
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    return by_pass_narrow(graph, options->kept, error);
}

const by__pass by__pass_narrow = {.name = "narrow",
                                  .summary = "activations kept in fewer bits, if asked for",
                                  .purposes = BY_PURPOSE_TRAIN,
                                  .apply = apply};
