/* QLoRA (Dettmers et al. 2023): frozen weights are held in codes, which products decode, forwards
 * and backwards. Only those of layers inside of blocks: embedding and head stay as they are. */
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

/* The parameters to hold in codes. */
typedef struct choice {
    const by_graph *graph;
    const bool *wanted; /* of each value */
    by_packing_kind kind;
    int64_t group;
} choice;

static void choose(const void *user, const char *name, by_packing_kind *kind, int64_t *group)
{
    const choice *c = user;
    by_value value = by_graph_find(c->graph, name);
    bool wanted = value != BY_NONE && c->wanted[value];
    *kind = wanted ? c->kind : BY_PACKING_NONE;
    *group = c->kind == BY_PACKING_INT4 ? c->group : 0;
}

/* A stack of matrices has no gradient in codes. */
static void find_wanted(bool *wanted, const by_graph *graph)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count && node->block >= 0; i++) {
            by_value in = node->in[i];
            const by__graph_value *value = in == BY_NONE ? NULL : &graph->values[in];
            if (value != NULL && value->role == BY_ROLE_PARAMETER && value->frozen) {
                wanted[in] = value->shape.rank == 2;
            }
        }
    }
}

by_status by_pass_quantise_frozen(by_graph *graph, const by_frozen_options *options,
                                  by_error *error)
{
    bool *wanted;
    BY_TRY(by_graph_check(graph, error));
    if (options->kind == BY_PACKING_NONE) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&wanted, graph->value_count, sizeof *wanted, "weights", error));
    find_wanted(wanted, graph);
    const choice c = {graph, wanted, options->kind, options->group};
    const by_packing_options packing = {
        .kind = options->kind, .group = options->group, .choose = choose, .user = &c};
    by_status status = by_pass_pack(graph, &packing, error);
    free(wanted);
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    return by_pass_quantise_frozen(graph, &options->frozen, error);
}

const by__pass by__pass_quantise_frozen = {.name = "quantise",
                                           .summary = "frozen weights in codes, if asked for",
                                           .purposes = BY_PURPOSE_TRAIN | BY_PURPOSE_LOSS,
                                           .apply = apply};
