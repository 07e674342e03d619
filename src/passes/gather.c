/* Parameters in slices (ZeRO stage 3, Rajbhandari et al. 2020; FSDP, Zhao et al. 2023).
 *
 * A parameter becomes the rows of it that the rank has, and an all-gather makes the whole one
 * before its first use. That one is an activation: the memory pass frees it behind its last use,
 * the overlap pass starts it early. The backward pass gathers again what the forward pass has
 * freed.
 *
 * The gradient of such a parameter becomes an activation, too: when those of a block are
 * complete, a REDUCE_GRADIENTS node gives them to whoever runs the graph, and their memory is
 * free behind it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/sum_tree.h"
#include "passes/passes.h"

/* The gradients of a block. */
typedef struct bucket {
    int block;
    size_t last; /* node that completes them */
} bucket;

typedef struct gather {
    by_graph *graph;
    const by_gather_options *options;
    size_t old_nodes;
    size_t old_values;
    by_value *gradient; /* of each parameter in slices: its gradient; BY_NONE for other values */
    bucket *buckets;
    size_t bucket_count;
} gather;

static bool is_split(const gather *g, by_value value)
{
    const by__value *v = &g->graph->values[value];
    return v->role == BY_ROLE_PARAMETER && v->shape.rank >= 1 &&
           v->shape.dim[0] >= g->options->ranks &&
           by_shape_count(&v->shape) >= g->options->least_elements;
}

static bool reads(const by__node *node, by_value value)
{
    for (int i = 0; i < node->input_count; i++) {
        if (node->in[i] == value) {
            return true;
        }
    }
    return false;
}

/* Lets the nodes of the phases (a bit each) that read a parameter read one gathered copy of it. */
static by_status gather_for(gather *g, by_value parameter, unsigned phases, int64_t rows,
                            by_error *error)
{
    by_graph *graph = g->graph;
    by_value whole = BY_NONE;
    for (size_t n = 0; n < g->old_nodes; n++) {
        if ((phases >> graph->nodes[n].phase & 1) == 0 || !reads(&graph->nodes[n], parameter)) {
            continue;
        }
        if (whole == BY_NONE) {
            graph->phase = graph->nodes[n].phase;
            by_graph_set_block(graph, graph->nodes[n].block);
            whole = by_all_gather(graph, parameter, 0, rows, g->options->mesh, g->options->ranks);
            BY_TRY(by_graph_check(graph, error));
        }
        for (int i = 0; i < graph->nodes[n].input_count; i++) {
            if (graph->nodes[n].in[i] == parameter) {
                graph->nodes[n].in[i] = whole;
            }
        }
    }
    return BY_OK;
}

static by_status gather_parameter(gather *g, by_value parameter, by_error *error)
{
    by__value *v = &g->graph->values[parameter];
    int64_t rows = v->shape.dim[0];
    int64_t first;
    const unsigned forward = 1u << BY__FORWARD;
    const unsigned backward = 1u << BY__BACKWARD;
    by__sum_tree_block(rows, g->options->ranks, g->options->rank, &first, &v->shape.dim[0]);
    if (g->options->keep) {
        return gather_for(g, parameter, forward | backward, rows, error);
    }
    BY_TRY(gather_for(g, parameter, forward, rows, error));
    return gather_for(g, parameter, backward, rows, error);
}

/* ---- gradients ---- */

/* Makes the gradient of a parameter in slices an activation. */
static by_status find_gradient(gather *g, by_value parameter, by_error *error)
{
    by__text text = {0};
    char *name;
    by__text_format(&text, "grad.%s", g->graph->values[parameter].name);
    BY_TRY(by__text_take(&text, &name, error));
    by_value gradient = by_graph_find(g->graph, name);
    free(name);
    if (gradient != BY_NONE && g->graph->values[gradient].role == BY_ROLE_GRADIENT) {
        g->graph->values[gradient].role = BY_ROLE_ACTIVATION;
        g->gradient[parameter] = gradient;
    }
    return BY_OK;
}

static int by_completion(const void *a, const void *b)
{
    const bucket *x = a;
    const bucket *y = b;
    if (x->last != y->last) {
        return x->last < y->last ? -1 : 1;
    }
    return x->block < y->block ? -1 : x->block > y->block;
}

/* One bucket a block, in the order in which the backward pass completes them. */
static void list_buckets(gather *g)
{
    for (size_t v = 0; v < g->old_values; v++) {
        if (g->gradient[v] == BY_NONE) {
            continue;
        }
        size_t made = (size_t)g->graph->values[g->gradient[v]].producer;
        size_t k = 0;
        while (k < g->bucket_count && g->buckets[k].block != g->graph->values[v].block) {
            k++;
        }
        if (k == g->bucket_count) {
            g->buckets[g->bucket_count++] = (bucket){g->graph->values[v].block, made};
        }
        g->buckets[k].last = made > g->buckets[k].last ? made : g->buckets[k].last;
    }
    qsort(g->buckets, g->bucket_count, sizeof *g->buckets, by_completion);
}

/* Appends the start and the wait of bucket k, with gradients in the order of their parameters. */
static by_status add_bucket(gather *g, size_t k, by_error *error)
{
    by_graph *graph = g->graph;
    by_value *gradients;
    int count = 0;
    BY_TRY(by__alloc((void **)&gradients, g->old_values, sizeof *gradients, "gather", error));
    for (size_t v = 0; v < g->old_values; v++) {
        if (g->gradient[v] != BY_NONE && graph->values[v].block == g->buckets[k].block) {
            gradients[count++] = g->gradient[v];
        }
    }
    graph->phase = BY__BACKWARD;
    by_graph_set_block(graph, g->buckets[k].block);
    (void)by__wait(graph, by__reduce_gradients(graph, gradients, count, (int64_t)k,
                                               g->options->mesh, g->options->ranks, false));
    free(gradients);
    return by_graph_check(graph, error);
}

/* Moves the buckets' nodes, which stand at the end, behind the nodes that complete them. */
static by_status place_buckets(const gather *g, size_t before, by_error *error)
{
    by_graph *graph = g->graph;
    by__node *ordered;
    size_t kept = 0;
    size_t k = 0;
    BY_TRY(by__alloc((void **)&ordered, graph->node_count, sizeof *ordered, "gather", error));
    for (size_t n = 0; n < before; n++) {
        ordered[kept++] = graph->nodes[n];
        for (; k < g->bucket_count && g->buckets[k].last == n; k++) {
            ordered[kept++] = graph->nodes[before + 2 * k];
            ordered[kept++] = graph->nodes[before + 2 * k + 1];
        }
    }
    memcpy(graph->nodes, ordered, kept * sizeof *ordered);
    free(ordered);
    by__graph_compact(graph);
    return BY_OK;
}

static by_status exchange_gradients(gather *g, by_error *error)
{
    size_t before = g->graph->node_count;
    list_buckets(g);
    for (size_t k = 0; k < g->bucket_count; k++) {
        BY_TRY(add_bucket(g, k, error));
    }
    return g->bucket_count == 0 ? BY_OK : place_buckets(g, before, error);
}

static by_status run(gather *g, by_error *error)
{
    size_t values = g->old_values;
    BY_TRY(by__alloc((void **)&g->gradient, values, sizeof *g->gradient, "gather", error));
    BY_TRY(by__alloc((void **)&g->buckets, values, sizeof *g->buckets, "gather", error));
    for (size_t v = 0; v < values; v++) {
        g->gradient[v] = BY_NONE;
    }
    for (size_t v = 0; v < values; v++) {
        if (is_split(g, (by_value)v)) {
            BY_TRY(gather_parameter(g, (by_value)v, error));
            BY_TRY(find_gradient(g, (by_value)v, error));
        }
    }
    BY_TRY(by__graph_sort(g->graph, error));
    return exchange_gradients(g, error);
}

by_status by_pass_gather(by_graph *graph, const by_gather_options *options, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    if (options->ranks <= 1) {
        return BY_OK;
    }
    if (options->rank < 0 || options->rank >= options->ranks || options->mesh == 0) {
        return by_error_set(error, BY_EARG,
                            "gather: rank %d of %d over the mesh axes %#x: there is no such rank",
                            options->rank, options->ranks, options->mesh);
    }
    by__phase phase = graph->phase;
    gather g = {.graph = graph,
                .options = options,
                .old_nodes = graph->node_count,
                .old_values = graph->value_count};
    by_status status = run(&g, error);
    graph->phase = phase;
    by_graph_set_block(graph, -1);
    free(g.gradient);
    free(g.buckets);
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    return by_pass_gather(graph, &options->gather, error);
}

const by__pass by__pass_gather = {.name = "gather",
                                  .summary = "parameters in slices, gathered for their use",
                                  .purposes = BY_PURPOSE_TRAIN | BY_PURPOSE_LOSS,
                                  .apply = apply};
