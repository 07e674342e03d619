/* The layers of a block under calibration: found, measured by H, and changed by a method. */
#include <stdlib.h>
#include <string.h>

#include "compress/calibrate.h"
#include "ops/row.h"

static by__compress_linear *linear_of(const by__compress_walk *w, const char *name)
{
    for (size_t i = 0; i < w->c->linear_count; i++) {
        if (strcmp(w->c->linears[i].name, name) == 0 && !w->c->linears[i].head) {
            return &w->c->linears[i];
        }
    }
    return NULL;
}

/* Finds the norm weights that scale the columns of x, if only the group's layers read x. */
static by_status find_gains(const by__compress_walk *w, const by__compress_stage *s,
                            by__compress_layer_group *g, by_error *error)
{
    int *uses;
    int producer = s->graph->values[g->x].producer;
    const by__graph_node *node = producer < 0 ? NULL : &s->graph->nodes[producer];
    uint32_t gains = node == NULL || node->out[0] != g->x ? 0 : by__op_row_of(node->op)->gains;
    BY_TRY(by__graph_uses(s->graph, &uses, error));
    bool alone = uses[g->x] == (int)g->what.count + 2 && /* H reads it twice */
                 s->graph->values[g->x].role != BY_ROLE_OUTPUT;
    free(uses);
    for (int i = 0; node != NULL && i < node->input_count && alone; i++) {
        const by__graph_value *value =
            node->in[i] == BY_NONE ? NULL : &s->graph->values[node->in[i]];
        if (by__mask_has(gains, i) && value != NULL && value->role == BY_ROLE_PARAMETER) {
            char *name = by__compress_file_name(w->c, value->name);
            if (name == NULL || g->what.gain_count == BY__GROUP_GAINS) {
                free(name);
                continue;
            }
            g->what.gains[g->what.gain_count++] = name;
        }
    }
    return BY_OK;
}

static by_status add_layer(by__compress_stage *s, by__compress_layer_group *groups, size_t *count,
                           const by__graph_node *node, int64_t part, by__compress_linear *linear,
                           by_error *error)
{
    by_value product = BY_NONE;
    size_t at = 0;
    for (; at < *count && (groups[at].x != node->in[0] || groups[at].part != part); at++) {
        bool other_part = groups[at].x == node->in[0] && groups[at].part >= 0 && part >= 0;
        product = other_part ? groups[at].product : product;
    }
    by__compress_layer_group *g = &groups[at];
    if (at == *count) {
        if (product == BY_NONE) {
            char name[32];
            (void)snprintf(name, sizeof name, "calibration.%zu", at);
            product = by__op_row_of(node->op)->gram(s->graph, node);
            by_graph_output(s->graph, product, name);
        }
        *g = (by__compress_layer_group){.x = node->in[0],
                                        .part = part,
                                        .product = product,
                                        .what = {.k = linear->k, .block = s->number - 1}};
        BY_TRY(by_graph_check(s->graph, error));
        *count += 1;
    }
    if (g->what.count == BY__GROUP_LAYERS) {
        return by_error_set(error, BY_ESTATE, "more than %d layers read what '%s' reads",
                            BY__GROUP_LAYERS, linear->name);
    }
    g->weights[g->what.count] = node->in[1];
    g->what.linears[g->what.count++] = linear;
    return BY_OK;
}

/* Adds the layers whose weights are operand 1 of a product. */
static by_status add_layers(const by__compress_walk *w, by__compress_stage *s,
                            by__compress_layer_group *groups, size_t *count,
                            const by__graph_node *node, by_error *error)
{
    const by__graph_value weight = s->graph->values[node->in[1]]; /* adding nodes moves the array */
    bool stacked = weight.role == BY_ROLE_PARAMETER && by__checkpoint_name_is_stacked(weight.name);
    by__compress_linear *linear =
        stacked || weight.role != BY_ROLE_PARAMETER ? NULL : linear_of(w, weight.name);
    if (linear != NULL) {
        return add_layer(s, groups, count, node, -1, linear, error);
    }
    for (int64_t part = 0; stacked && part < weight.shape.dim[0]; part++) {
        char name[512];
        by__checkpoint_stacked_name(name, sizeof name, weight.name, part);
        linear = linear_of(w, name);
        if (linear != NULL) {
            BY_TRY(add_layer(s, groups, count, node, part, linear, error));
        }
    }
    return BY_OK;
}

by_status by__compress_layers_find(const by__compress_walk *w, by__compress_stage *s,
                                   by__compress_layer_group **out, size_t *count, by_error *error)
{
    size_t nodes = s->graph->node_count;
    by__compress_layer_group *groups;
    BY_TRY(by__alloc((void **)&groups, w->c->linear_count + 1, sizeof *groups, "layers", error));
    *out = groups;
    for (size_t n = 0; n < nodes; n++) {
        const by__graph_node node = s->graph->nodes[n];
        const by__op_row *row = by__op_row_of(node.op);
        if (row->gram != NULL && !node.attrs.trans_a) {
            BY_TRY(add_layers(w, s, groups, count, &node, error));
        }
    }
    for (size_t i = 0; i < *count; i++) {
        BY_TRY(find_gains(w, s, &groups[i], error));
    }
    return BY_OK;
}

void by__compress_layers_close(by__compress_layer_group *groups, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(groups[i].what.hessian);
        for (size_t k = 0; k < groups[i].what.gain_count; k++) {
            free(groups[i].what.gains[k]);
        }
        for (size_t k = 0; k < groups[i].what.count; k++) {
            free(groups[i].what.weights[k]);
        }
    }
    free(groups);
}

/* Adds the product of a run to H. */
static void accumulate(const by__compress_stage *s, by__compress_layer_group *g)
{
    size_t count = (size_t)(g->what.k * g->what.k);
    size_t before = g->part > 0 ? (size_t)g->part * count : 0;
    const float *product = (const float *)s->host[g->product] + before;
    for (size_t i = 0; i < count; i++) {
        g->what.hessian[i] += (double)product[i];
    }
}

by_status by__compress_layers_measure(by__compress_walk *w, by__compress_stage *s,
                                      by__compress_layer_group *groups, size_t count,
                                      by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        size_t elements = (size_t)(groups[i].what.k * groups[i].what.k);
        BY_TRY(by__alloc((void **)&groups[i].what.hessian, elements, sizeof(double),
                         "what a layer reads", error));
        groups[i].what.rows = w->tokens.rows * (int64_t)w->tokens.batches;
    }
    for (size_t b = 0; b < w->tokens.batches; b++) {
        BY_TRY(by__compress_stage_run(w, s, b, error));
        for (size_t i = 0; i < count; i++) {
            accumulate(s, &groups[i]);
        }
        BY_TRY(by__compress_report(w->c, "reading", w->done, w->all, error));
    }
    return BY_OK;
}

/* Copies a layer's weight [n, k] to matrix `part` of the stage's parameter, in its order. */
static void put_weight(const by__compress_stage *s, by_value parameter, int64_t part,
                       const by__compress_linear *l, const float *weight)
{
    float *to = (float *)s->host[parameter] + (part > 0 ? part * l->n * l->k : 0);
    for (int64_t j = 0; j < l->n; j++) {
        for (int64_t i = 0; i < l->k; i++) {
            to[l->in_out ? i * l->n + j : j * l->k + i] = weight[j * l->k + i];
        }
    }
}

by_status by__compress_layers_change(const by__compress_walk *w, by__compress_stage *s,
                                     by__compress_layer_group *g, by_error *error)
{
    for (size_t k = 0; k < g->what.count; k++) {
        const by__compress_linear *l = g->what.linears[k];
        BY_TRY(by__alloc((void **)&g->what.weights[k], (size_t)(l->n * l->k), sizeof(float),
                         "a layer", error));
        BY_TRY(by__compress_linear_read(w->c, l, g->what.weights[k], error));
    }
    BY_TRY(w->fn(w->c, &g->what, w->user, error));
    for (size_t k = 0; k < g->what.count; k++) {
        put_weight(s, g->weights[k], g->part, g->what.linears[k], g->what.weights[k]);
        BY_TRY(by__compress_stage_send(s, g->weights[k], error));
        free(g->what.weights[k]);
        g->what.weights[k] = NULL;
    }
    free(g->what.hessian);
    g->what.hessian = NULL;
    return BY_OK;
}
