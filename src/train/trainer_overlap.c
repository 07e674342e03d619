/* Gradients are added up between ranks while the backward pass goes on.
 *
 * The last micro-batch of a rank runs a program of its own, "last gradients": that of the others,
 * and for each bucket a collective that starts when the last gradient in it is finished. The
 * collective queue runs it beside the rest of the backward pass. What the rank's earlier
 * micro-batches left and the last one are holders of one sum (reducer.h), so that the additions
 * which the last one permits are part of the collective, and bits are those without overlap. */
#include <stdlib.h>

#include "ops/ops.h"
#include "train/trainer.h"

/* A bucket, and the node of the graph that finishes it. */
typedef struct finished {
    by__bucket bucket;
    size_t node;
} finished;

/* Calls for the gradient of each parameter that has elements in the bucket. */
typedef void visitor(void *user, by_value gradient);

static void visit(const by_trainer *t, const by_graph *graph, const by__bucket *bucket,
                  visitor *call, void *user)
{
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        const by__stored_tensor *entry = by__store_entry(t->store, (by__handle)i);
        if (entry->group != bucket->group) {
            continue;
        }
        int64_t begin = by__store_begin(t->store, (by__handle)i);
        int64_t end = begin + by_shape_count(&entry->local);
        if (begin < bucket->first + bucket->count && end > bucket->first) {
            char name[300];
            (void)snprintf(name, sizeof name, "grad.%s", entry->name);
            call(user, by_graph_find(graph, name));
        }
    }
}

/* ---- the order of buckets ---- */

typedef struct search {
    const size_t *producer; /* of each value */
    size_t last;
} search;

static void find_last(void *user, by_value gradient)
{
    search *s = user;
    size_t node = s->producer[gradient];
    s->last = node > s->last ? node : s->last;
}

static int earlier(const void *a, const void *b)
{
    const finished *x = a;
    const finished *y = b;
    if (x->node != y->node) {
        return x->node < y->node ? -1 : 1;
    }
    return x->bucket.offset > y->bucket.offset ? -1 : 1;
}

by_status by__overlap_sort_buckets(by_trainer *t, const by_graph *graph, by_error *error)
{
    by__ranks *r = &t->ranks;
    size_t *producer;
    finished *list;
    BY_TRY(by__alloc((void **)&producer, graph->value_count, sizeof *producer, "buckets", error));
    by_status status = by__alloc((void **)&list, r->bucket_count, sizeof *list, "buckets", error);
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        for (int i = 0; i < graph->nodes[n].output_count; i++) {
            if (graph->nodes[n].out[i] != BY_NONE) {
                producer[graph->nodes[n].out[i]] = n;
            }
        }
    }
    for (size_t k = 0; k < r->bucket_count && status == BY_OK; k++) {
        search s = {.producer = producer};
        visit(t, graph, &r->buckets[k], find_last, &s);
        list[k] = (finished){r->buckets[k], s.last};
    }
    if (status == BY_OK) {
        qsort(list, r->bucket_count, sizeof *list, earlier);
        for (size_t k = 0; k < r->bucket_count; k++) {
            r->buckets[k] = list[k].bucket;
        }
    }
    free(list);
    free(producer);
    return status;
}

/* ---- the program ---- */

typedef struct gathered {
    by_value *values; /* of all buckets so far */
    int all;
    int first; /* of the present one */
} gathered;

/* A gradient with elements in several buckets is an operand of the first: collectives keep their
 * order, so the others are behind it. */
static void gather(void *user, by_value gradient)
{
    gathered *g = user;
    for (int i = 0; i < g->all; i++) {
        if (g->values[i] == gradient) {
            return;
        }
    }
    g->values[g->all++] = gradient;
}

static by_status add_collectives(by_trainer *t, by_graph *graph, by_error *error)
{
    gathered g = {0};
    BY_TRY(by__alloc((void **)&g.values, by__store_count(t->store), sizeof *g.values, "buckets",
                     error));
    for (size_t k = 0; k < t->ranks.bucket_count; k++) {
        by__bucket *bucket = &t->ranks.buckets[k];
        g.first = g.all;
        visit(t, graph, bucket, gather, &g);
        bucket->is_joined = g.all == g.first; /* within a tensor of several buckets */
        if (bucket->is_joined) {
            continue;
        }
        (void)by__wait(graph,
                       by__reduce_gradients(graph, g.values + g.first, g.all - g.first, (int64_t)k,
                                            by__ranks_adding_axes(t), by__ranks_adders(t), true));
    }
    free(g.values);
    return by_graph_check(graph, error);
}

static by_status finish_graph(by_trainer *t, by_graph *graph, const by_model *model,
                              by_error *error)
{
    by_pass_options options = by__trainer_pass_options(t, model);
    BY_TRY(by_passes_run(graph, BY_PURPOSE_TRAIN, &options, NULL, error));
    BY_TRY(by__overlap_sort_buckets(t, graph, error));
    BY_TRY(add_collectives(t, graph, error));
    return by_pass_overlap(graph, 0, error);
}

by_status by__overlap_plan(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    if (t->sync.is_on) { /* replicas exchange when all their micro-batches were added up */
        return BY_OK;
    }
    by_graph *graph;
    by_model model;
    const by__recipe recipe = {o->builder, o->user, t->task};
    if (by__ranks_adders(t) == 1 || t->sets == 0 || t->pipe != NULL || by__is_in_turn(t) ||
        t->config->parallel.overlap == 0) {
        return BY_OK;
    }
    BY_TRY(by__train_forward(&graph, &model, t->config, &recipe, BY_MODEL_TRAIN, error));
    by_status status = finish_graph(t, graph, &model, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    return by__set_add(&t->programs, BY__LAST_GRADIENTS, graph, (by_purpose)0, NULL, error);
}

/* ---- a step ---- */

static by_status reduce(void *user, const by__call *call, by_error *error)
{
    by_trainer *t = user;
    by__ranks *r = &t->ranks;
    size_t k = (size_t)call->attrs.bucket;
    do {
        BY_TRY(by__reducer_run(r->last, k++, r->held, error));
    } while (k < r->bucket_count && r->buckets[k].is_joined);
    return BY_OK;
}

by_status by__overlap_open(by_trainer *t, by_error *error)
{
    by__ranks *r = &t->ranks;
    if (t->last == NULL) {
        return BY_OK;
    }
    by__reducer_spec spec = by__ranks_spec(t);
    spec.last_apart = true;
    BY_TRY(by__reducer_open(&r->last, &spec, error));
    r->collectives->gradients = reduce;
    r->collectives->user = t;
    return BY_OK;
}
