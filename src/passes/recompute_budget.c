/* Finds the cheapest values to recompute so that the activations fit into a given number of bytes.
 *
 * Each forward node whose results the backward pass reads is a candidate. Its gain is the bytes of
 * these results; its cost is the time of the nodes that would run again, which are the chain to it
 * from kept values less the nodes that earlier choices already recompute in its block. The best
 * ratio is chosen first, as in the greedy solution of a knapsack, so activation functions and norms
 * come before products and attention. (PyTorch's activation_memory_budget solves a knapsack over
 * the same numbers; Checkmate, Jain et al. 2020, a mixed-integer program, which takes minutes.) The
 * number of candidates needed is found by bisection. Each trial runs the passes after this one and
 * the memory plan on a copy of the graph, so what fits here really fits. Finally, choices that
 * turned out to be unnecessary are undone, and the result is compared with choosing whole blocks.
 *
 * A trial takes time in proportion to the nodes. So that thousands of layers need no more trials
 * than a hundred, the bisection does not distinguish numbers of candidates that differ by less than
 * a few thousandths, undoes fewer choices the smaller the share of one is, and is not begun if
 * there are so many candidates that even recomputing all of them does not fit. */
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "passes/recompute.h"

typedef struct recompute_candidate {
    size_t node;
    double seconds; /* time of the nodes that would run again */
    double gain;    /* bytes freed for each second; 0: it frees nothing */
    size_t bytes;   /* freed */
    unsigned version;
    bool chosen;
} recompute_candidate;

typedef struct candidate_entry {
    double gain;
    size_t candidate;
    unsigned version;
} candidate_entry;

typedef struct chooser {
    const by_graph *graph;
    const by__pass_forward_values *values;
    const by_pass_options *options;
    double *seconds; /* of each node */
    size_t *of_node; /* 1 + the node's candidate; 0: none */
    bool *again;     /* of each node: it runs again in its own block */
    size_t *visited; /* of each node: the last search that visited it */
    size_t search;
    size_t *stack;
    recompute_candidate *candidates;
    size_t count;
    size_t *order; /* candidates, best first */
    size_t ordered;
    candidate_entry *heap; /* largest gain first, then the earlier node */
    size_t heap_count;
    size_t heap_capacity;
    bool *dropped;       /* values */
    bool fits;           /* the plan of the last trial */
    double cost;         /* seconds of the nodes recomputed in it */
    double fitting_cost; /* of the trial that fitted last; negative: none */
} chooser;

/* ---- time ---- */

/* The share of the measured peak that products reach, and attention. */
#define PRODUCT_SHARE   0.8
#define ATTENTION_SHARE 0.5
/* A typical core, for when nothing was measured and only the ratio matters. */
#define USUAL_FLOPS 1e11
#define USUAL_BYTES 1e10

/* Estimates the seconds that a node takes at these speeds: the longer of computing and of moving
 * its bytes. */
static double node_seconds(const by__op_cost *cost, const by__op_row *row, by_dtype dtype,
                           const by_speeds *speeds)
{
    double given = dtype == BY_BF16 ? speeds->bf16_flops : speeds->f32_flops;
    double flops = given > 0.0 ? given : USUAL_FLOPS;
    double bytes = speeds->bytes > 0.0 ? speeds->bytes : USUAL_BYTES;
    double computing =
        cost->flops / (flops * (row->attention != NULL ? ATTENTION_SHARE : PRODUCT_SHARE));
    double moving = (cost->bytes_read + cost->bytes_written) / bytes;
    return row->waits || row->view ? 0.0 : computing > moving ? computing : moving;
}

/* Returns the dtype that a node computes in: that of its first floating-point operand. */
static by_dtype dtype_of(const by_graph *graph, const by__graph_node *node)
{
    for (int i = 0; i < node->input_count; i++) {
        if (node->in[i] != BY_NONE && by__op_is_act(graph->values[node->in[i]].dtype)) {
            return graph->values[node->in[i]].dtype;
        }
    }
    return BY_F32;
}

by_status by__pass_graph_seconds(double *sum, const by_graph *graph, size_t first,
                                 const by_speeds *speeds, by_error *error)
{
    *sum = 0.0;
    for (size_t n = first; n < graph->node_count; n++) {
        by__op_cost cost;
        const by__graph_node *node = &graph->nodes[n];
        BY_TRY(by__op_node_cost(graph, n, &cost, error));
        *sum += node_seconds(&cost, by__op_row_of(node->op), dtype_of(graph, node), speeds);
    }
    return BY_OK;
}

static by_status measure_nodes(chooser *c, by_error *error)
{
    for (size_t n = 0; n < c->graph->node_count; n++) {
        by__op_cost cost;
        const by__graph_node *node = &c->graph->nodes[n];
        BY_TRY(by__op_node_cost(c->graph, n, &cost, error));
        c->seconds[n] = node_seconds(&cost, by__op_row_of(node->op), dtype_of(c->graph, node),
                                     &c->options->recompute.speeds);
    }
    return BY_OK;
}

/* ---- candidates ---- */

static bool is_droppable(const chooser *c, by_value value)
{
    bool handed_on = value != BY_NONE && (c->values->crosses[value] || c->values->foreign[value]);
    return value != BY_NONE && c->values->may[value] && c->values->read[value] &&
           !(handed_on && c->options->recompute.within_blocks);
}

/* Returns true if the value is an activation of the forward pass. */
static bool is_forward(const chooser *c, by_value value)
{
    int producer = value == BY_NONE ? -1 : c->graph->values[value].producer;
    return producer >= 0 && c->graph->nodes[producer].phase == BY__FORWARD &&
           c->graph->values[value].role == BY_ROLE_ACTIVATION;
}

/* Pushes the producers of a node's missing operands. Returns the bytes of operands that would have
 * to be kept additionally. */
static size_t push_operands(chooser *c, const by__graph_node *node, size_t *depth)
{
    size_t kept = 0;
    for (int i = 0; i < node->input_count; i++) {
        by_value in = node->in[i];
        if (!is_forward(c, in)) {
            continue;
        }
        size_t producer = (size_t)c->graph->values[in].producer;
        bool there = c->values->read[in] && !(c->values->may[in] && c->dropped[in]);
        bool made_once = c->values->crosses[in] && c->dropped[in];
        if (there || made_once || c->visited[producer] == c->search) {
            continue;
        }
        c->visited[producer] = c->search;
        if (by__op_node_has_effects(&c->graph->nodes[producer]) || c->values->pinned[in]) {
            kept += by__graph_value_bytes(&c->graph->values[in]);
        } else {
            c->stack[(*depth)++] = producer;
        }
    }
    return kept;
}

/* Walks the chain that a candidate would recompute. take: it was chosen. */
static void follow(chooser *c, recompute_candidate *k, bool take)
{
    const by__graph_node *own = &c->graph->nodes[k->node];
    size_t depth = 0;
    size_t kept = 0;
    size_t freed = 0;
    bool handed_on = false;
    for (int i = 0; i < own->output_count; i++) {
        if (is_droppable(c, own->out[i])) {
            freed += by__graph_value_bytes(&c->graph->values[own->out[i]]);
            handed_on = handed_on || c->values->crosses[own->out[i]];
        }
    }
    c->search++;
    c->visited[k->node] = c->search;
    c->stack[depth++] = k->node;
    k->seconds = 0.0;
    while (depth > 0) {
        size_t n = c->stack[--depth];
        bool shared = !handed_on && c->graph->nodes[n].block == own->block;
        if (shared && c->again[n]) {
            continue;
        }
        k->seconds += c->seconds[n];
        c->again[n] = c->again[n] || (shared && take);
        kept += push_operands(c, &c->graph->nodes[n], &depth);
    }
    k->bytes = freed > kept ? freed - kept : 0;
    k->gain = (double)k->bytes / (k->seconds + 1e-9);
}

static bool before(const void *user, const void *first, const void *second)
{
    const chooser *c = user;
    const candidate_entry *a = first;
    const candidate_entry *b = second;
    return a->gain != b->gain ? a->gain > b->gain
                              : c->candidates[a->candidate].node < c->candidates[b->candidate].node;
}

static by_status push(chooser *c, size_t index, by_error *error)
{
    recompute_candidate *k = &c->candidates[index];
    BY_TRY(by__reserve((void **)&c->heap, &c->heap_capacity, c->heap_count + 1, sizeof *c->heap,
                       error));
    candidate_entry added = {k->gain, index, ++k->version};
    by__heap_push(c->heap, c->heap_count++, sizeof added, &added, before, c);
    return BY_OK;
}

static candidate_entry pop(chooser *c)
{
    candidate_entry best;
    by__heap_pop(c->heap, c->heap_count--, sizeof best, &best, before, c);
    return best;
}

/* Results smaller than this share are not worth a decision. */
#define MIN_SHARE 4096

static by_status list_candidates(chooser *c, by_error *error)
{
    size_t largest = 0;
    for (size_t v = 0; v < c->graph->value_count; v++) {
        size_t bytes = by__graph_value_bytes(&c->graph->values[v]);
        largest = is_droppable(c, (by_value)v) && bytes > largest ? bytes : largest;
    }
    for (size_t n = 0; n < c->graph->node_count; n++) {
        const by__graph_node *node = &c->graph->nodes[n];
        size_t bytes = 0;
        for (int i = 0; i < node->output_count; i++) {
            bytes += is_droppable(c, node->out[i])
                         ? by__graph_value_bytes(&c->graph->values[node->out[i]])
                         : 0;
        }
        if (bytes > largest / MIN_SHARE) {
            c->of_node[n] = c->count + 1;
            c->candidates[c->count] = (recompute_candidate){.node = n};
            follow(c, &c->candidates[c->count], false);
            BY_TRY(push(c, c->count++, error));
        }
    }
    return BY_OK;
}

static void set_dropped(chooser *c, const recompute_candidate *k, bool dropped)
{
    const by__graph_node *node = &c->graph->nodes[k->node];
    for (int i = 0; i < node->output_count; i++) {
        if (is_droppable(c, node->out[i])) {
            c->dropped[node->out[i]] = dropped;
        }
    }
}

/* Updates the candidates of a chosen node's block, which have become cheaper. Blocks are runs of
 * nodes; if a block is not contiguous, only the run around the node is updated. */
static by_status renew_block(chooser *c, size_t node, by_error *error)
{
    int block = c->graph->nodes[node].block;
    size_t first = node;
    while (first > 0 && c->graph->nodes[first - 1].block == block) {
        first--;
    }
    for (size_t n = first; n < c->graph->node_count && c->graph->nodes[n].block == block; n++) {
        size_t index = c->of_node[n];
        if (index > 0 && !c->candidates[index - 1].chosen) {
            double old = c->candidates[index - 1].gain;
            follow(c, &c->candidates[index - 1], false);
            if (c->candidates[index - 1].gain != old) {
                BY_TRY(push(c, index - 1, error));
            }
        }
    }
    return BY_OK;
}

static by_status order_candidates(chooser *c, by_error *error)
{
    while (c->heap_count > 0) {
        candidate_entry best = pop(c);
        recompute_candidate *k = &c->candidates[best.candidate];
        if (k->chosen || best.version != k->version) {
            continue;
        }
        if (k->bytes == 0) {
            break;
        }
        k->chosen = true;
        follow(c, k, true);
        set_dropped(c, k, true);
        c->order[c->ordered++] = best.candidate;
        BY_TRY(renew_block(c, k->node, error));
    }
    return BY_OK;
}

/* ---- trials ---- */

/* Plans the graph with the values dropped at present: sets c->fits, c->cost, and the bytes of the
 * plan unless `bytes` is NULL, in which case nothing is computed that the answer does not need. */
static by_status try_dropped(chooser *c, size_t *bytes, by_error *error)
{
    by_graph *graph;
    double all = 0.0;
    double before_it = 0.0;
    size_t limit = c->options->recompute.arena_bytes;
    size_t unit = c->options->unit == 0 ? BY_CACHE_LINE : c->options->unit;
    BY_TRY(by__graph_clone(&graph, c->graph, error));
    by_status status = by__pass_recompute_dropped(graph, c->values, c->dropped, error);
    if (status == BY_OK) {
        status = by__pass_graph_seconds(&all, graph, 0, &c->options->recompute.speeds, error);
    }
    for (size_t n = 0; n < c->graph->node_count; n++) {
        before_it += c->seconds[n];
    }
    if (status == BY_OK) {
        status =
            by__passes_run_after(graph, BY_PURPOSE_TRAIN, c->options, &by__pass_recompute, error);
    }
    if (status == BY_OK) {
        status = by__passes_arena_fits(&c->fits, bytes, graph, unit, limit, error);
    }
    c->cost = all - before_it;
    c->fitting_cost = status == BY_OK && c->fits ? c->cost : c->fitting_cost;
    by_graph_close(&graph);
    return status;
}

static void drop_first(chooser *c, size_t count)
{
    memset(c->dropped, 0, c->graph->value_count);
    for (size_t i = 0; i < count; i++) {
        set_dropped(c, &c->candidates[c->order[i]], true);
    }
}

/* Numbers of candidates that differ by less than this share of all are not distinguished. */
#define RESOLUTION 4096

/* Finds the smallest number of ordered candidates that fits; all of them if nothing does. */
static by_status find_count(chooser *c, size_t *out, by_error *error)
{
    size_t low = 0;
    size_t high = c->ordered;
    while (high - low > c->ordered / RESOLUTION) {
        size_t middle = low + (high - low) / 2;
        drop_first(c, middle);
        BY_TRY(try_dropped(c, NULL, error));
        if (c->fits) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    *out = high;
    drop_first(c, high);
    return BY_OK;
}

#define MAX_KEPT 16

/* Undoes choices while the plan fits: first candidates at the end of the forward pass, which are
 * needed soonest and free the least, then the most expensive ones. */
static by_status keep_again(chooser *c, size_t count, by_error *error)
{
    size_t rounds = MAX_KEPT / (1 + c->ordered / RESOLUTION);
    for (size_t round = 0; round < rounds && count > 0; round++) {
        recompute_candidate *best = NULL;
        for (size_t i = 0; i < count; i++) {
            recompute_candidate *k = &c->candidates[c->order[i]];
            bool late = best != NULL && round < rounds / 2 && k->node > best->node;
            bool dear = best != NULL && round >= rounds / 2 && k->seconds > best->seconds;
            if (k->chosen && (best == NULL || late || dear)) {
                best = k;
            }
        }
        if (best == NULL) {
            return BY_OK;
        }
        best->chosen = false;
        set_dropped(c, best, false);
        BY_TRY(try_dropped(c, NULL, error));
        if (!c->fits) {
            set_dropped(c, best, true);
        }
    }
    return BY_OK;
}

/* Uses a choice by whole blocks if it is cheaper, if only it fits, or if it comes closer to
 * fitting. bytes: of the plan of the present choice, if it does not fit. */
static by_status compare_blocks(chooser *c, size_t bytes, by_error *error)
{
    static const struct {
        by_recompute_kind kind;
        int64_t every;
    } kinds[] = {{BY_RECOMPUTE_BLOCK, 0},
                 {BY_RECOMPUTE_EVERY, 2},
                 {BY_RECOMPUTE_EVERY, 4},
                 {BY_RECOMPUTE_FULL, 0}};
    size_t values = c->graph->value_count;
    bool fits = c->fitting_cost >= 0.0;
    double cost = c->fitting_cost;
    bool *best;
    BY_TRY(by__alloc((void **)&best, values + 1, sizeof *best, "recompute", error));
    by_status status = BY_OK;
    memcpy(best, c->dropped, values);
    size_t count = c->options->recompute.within_blocks ? 1 : BY_ARRAY_LENGTH(kinds);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        size_t tried = 0;
        status = by__pass_choose_blocks(c->dropped, c->graph, c->values, kinds[i].kind,
                                        kinds[i].every, error);
        if (status == BY_OK) {
            status = try_dropped(c, fits ? NULL : &tried, error);
        }
        if (status == BY_OK && (fits ? c->fits && c->cost < cost : tried < bytes)) {
            fits = c->fits;
            bytes = tried;
            cost = c->cost;
            memcpy(best, c->dropped, values);
        }
    }
    memcpy(c->dropped, best, values);
    free(best);
    return status;
}

static by_status choose(chooser *c, by_error *error)
{
    size_t count;
    size_t bytes = 0;
    BY_TRY(try_dropped(c, NULL, error));
    if (c->fits) {
        return BY_OK;
    }
    BY_TRY(measure_nodes(c, error));
    BY_TRY(list_candidates(c, error));
    BY_TRY(order_candidates(c, error));
    if (c->ordered > RESOLUTION) {
        drop_first(c, c->ordered);
        BY_TRY(try_dropped(c, &bytes, error));
        if (!c->fits) {
            return compare_blocks(c, bytes, error);
        }
    }
    BY_TRY(find_count(c, &count, error));
    BY_TRY(keep_again(c, count, error));
    BY_TRY(c->fitting_cost < 0.0 ? try_dropped(c, &bytes, error) : BY_OK);
    return compare_blocks(c, bytes, error);
}

by_status by__pass_choose_budget(bool *dropped, const by_graph *graph,
                                 const by__pass_forward_values *values,
                                 const by_pass_options *options, by_error *error)
{
    size_t nodes = graph->node_count + 1;
    chooser c = {.graph = graph,
                 .values = values,
                 .options = options,
                 .dropped = dropped,
                 .fitting_cost = -1.0};
    struct {
        void **array;
        size_t size;
    } arrays[] = {
        {(void **)&c.seconds, sizeof *c.seconds}, {(void **)&c.of_node, sizeof *c.of_node},
        {(void **)&c.again, sizeof *c.again},     {(void **)&c.visited, sizeof *c.visited},
        {(void **)&c.stack, sizeof *c.stack},     {(void **)&c.candidates, sizeof *c.candidates},
        {(void **)&c.order, sizeof *c.order},
    };
    by_status status = BY_OK;
    memset(dropped, 0, graph->value_count);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays) && status == BY_OK; i++) {
        status = by__alloc(arrays[i].array, nodes, arrays[i].size, "recompute", error);
    }
    if (status == BY_OK) {
        status = choose(&c, error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        free(*arrays[i].array);
    }
    free(c.heap);
    return status;
}
