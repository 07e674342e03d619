/* Chooses the values that the backward pass recomputes. */
#include <stdlib.h>
#include <string.h>

#include "passes/recompute.h"

/* A block (layer) that has nodes in both passes. */
typedef struct recompute_block {
    int number;
    size_t first;  /* its first node in the forward pass */
    bool backward; /* it has nodes in the backward pass */
    bool kept;     /* nothing of it is dropped */
    bool ends;     /* its outputs to the next block are kept */
} recompute_block;

typedef struct blocks {
    recompute_block *items; /* by number */
    size_t count;
} blocks;

static int by_block_number(const void *a, const void *b)
{
    const recompute_block *x = a;
    const recompute_block *y = b;
    if (x->number != y->number) {
        return x->number < y->number ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

static int by_first(const void *a, const void *b)
{
    const recompute_block *const *x = a;
    const recompute_block *const *y = b;
    return (*x)->first < (*y)->first ? -1 : (*x)->first > (*y)->first;
}

static by_status find_blocks(blocks *out, const by_graph *graph, by_error *error)
{
    size_t count = 0;
    BY_TRY(by__alloc((void **)&out->items, graph->node_count + 1, sizeof *out->items, "recompute",
                     error));
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        if (node->block >= 0) {
            out->items[count++] = (recompute_block){
                .number = node->block, .first = n, .backward = node->phase == BY__BACKWARD};
        }
    }
    if (count > 1) {
        qsort(out->items, count, sizeof *out->items, by_block_number);
    }
    for (size_t k = 0; k < count; k++) {
        recompute_block *last = out->count == 0 ? NULL : &out->items[out->count - 1];
        if (last != NULL && last->number == out->items[k].number) {
            last->backward = last->backward || out->items[k].backward;
        } else {
            out->items[out->count++] = out->items[k];
        }
    }
    return BY_OK;
}

static const recompute_block *find_block(const blocks *b, int number)
{
    const recompute_block wanted = {.number = number};
    size_t low = 0;
    for (size_t high = b->count; low < high;) {
        size_t middle = (low + high) / 2;
        if (by_block_number(&b->items[middle], &wanted) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < b->count && b->items[low].number == number ? &b->items[low] : NULL;
}

/* Returns the smallest number whose square is at least `count`. */
static int64_t root_of(size_t count)
{
    int64_t root = 1;
    while ((size_t)(root * root) < count) {
        root++;
    }
    return root;
}

/* Decides for each block what is kept of it. */
static by_status mark_blocks(blocks *b, by_recompute_kind kind, int64_t every, by_error *error)
{
    recompute_block **ordered;
    size_t count = 0;
    BY_TRY(by__alloc((void **)&ordered, b->count + 1, sizeof *ordered, "recompute", error));
    for (size_t k = 0; k < b->count; k++) {
        if (b->items[k].backward) {
            ordered[count++] = &b->items[k];
        }
    }
    if (count > 1) {
        qsort(ordered, count, sizeof *ordered, by_first);
    }
    every = kind == BY_RECOMPUTE_FULL ? root_of(count) : kind == BY_RECOMPUTE_EVERY ? every : 1;
    for (size_t k = 0; k < count; k++) {
        bool is_last = k + 1 == count;
        ordered[k]->kept = is_last && kind != BY_RECOMPUTE_FULL;
        /* The backward pass starts with what the last block reads and returns. */
        ordered[k]->ends = (int64_t)(k + 1) % every == 0 || k + 2 >= count;
    }
    free(ordered);
    return BY_OK;
}

by_status by__pass_choose_blocks(bool *dropped, const by_graph *graph,
                                 const by__pass_forward_values *values, by_recompute_kind kind,
                                 int64_t every, by_error *error)
{
    blocks b = {0};
    by_status status = find_blocks(&b, graph, error);
    if (status == BY_OK) {
        status = mark_blocks(&b, kind, every, error);
    }
    for (size_t v = 0; v < graph->value_count && status == BY_OK; v++) {
        dropped[v] = false;
        if (values->may[v] && values->read[v]) {
            const recompute_block *own =
                find_block(&b, graph->nodes[graph->values[v].producer].block);
            bool handed_on = values->foreign[v] || values->crosses[v];
            dropped[v] = own->backward && !own->kept && !(handed_on && own->ends);
        }
    }
    free(b.items);
    return status;
}

/* ---- the pass ---- */

/* `passes` are those of a graph that must fit into a budget; else NULL. */
static by_status choose_and_drop(by_graph *graph, const by_recompute_options *options,
                                 const by_pass_options *passes, by_error *error)
{
    by__pass_forward_values values;
    bool *dropped;
    BY_TRY(by__pass_forward_values_open(&values, graph, error));
    by_status status =
        by__alloc((void **)&dropped, graph->value_count + 1, sizeof *dropped, "recompute", error);
    if (status == BY_OK) {
        status = passes != NULL ? by__pass_choose_budget(dropped, graph, &values, passes, error)
                                : by__pass_choose_blocks(dropped, graph, &values, options->kind,
                                                         options->every, error);
        if (status == BY_OK) {
            status = by__pass_recompute_dropped(graph, &values, dropped, error);
        }
        free(dropped);
    }
    by__pass_forward_values_close(&values);
    return status;
}

by_status by_pass_recompute(by_graph *graph, const by_recompute_options *options, by_error *error)
{
    static const by_recompute_options block_by_block = {.kind = BY_RECOMPUTE_BLOCK};
    const by_recompute_options *o = options == NULL ? &block_by_block : options;
    BY_TRY(by_graph_check(graph, error));
    if (o->kind == BY_RECOMPUTE_EVERY && o->every < 2) {
        return by_error_set(error, BY_EARG,
                            "recompute: the input of every %lld. block is kept; it has to be every "
                            "2nd at least",
                            (long long)o->every);
    }
    return o->kind == BY_RECOMPUTE_NONE ? BY_OK : choose_and_drop(graph, o, NULL, error);
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    const by_recompute_options *o = &options->recompute;
    return o->kind == BY_RECOMPUTE_NONE && o->arena_bytes > 0
               ? choose_and_drop(graph, o, options, error)
               : by_pass_recompute(graph, o, error);
}

const by__pass by__pass_recompute = {.name = "recompute",
                                     .summary = "activations of blocks again, as far as asked for",
                                     .purposes = BY_PURPOSE_TRAIN,
                                     .apply = apply};
