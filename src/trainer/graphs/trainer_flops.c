/* The size of a trainer's model, and the FLOPs of its training. */
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"
#include "trainer/graphs/graphs.h"
#include "trainer/state/trainer.h"

/* FLOPs of the products of a graph. */
typedef struct product_flops {
    double forward;
    double backward; /* of gradients: for each operand that has one */
    double all;      /* the same if nothing were frozen */
} product_flops;

/* Number of factors of a product that have gradients. */
static double count_needed(const by__graph_node *node, const bool *needed)
{
    const by__op_row *row = by__op_row_of(node->op);
    double count = 0.0;
    for (int i = 0; i < node->input_count; i++) {
        count += node->in[i] != BY_NONE && by__mask_has(row->factors, i) && needed[node->in[i]];
    }
    return count;
}

static by_status count_products(product_flops *out, const by_graph *graph, const bool *needed,
                                const bool *all, by_error *error)
{
    *out = (product_flops){0};
    for (size_t n = 0; n < graph->node_count; n++) {
        by__op_cost cost;
        if (by__op_row_of(graph->nodes[n].op)->factors == 0) {
            continue;
        }
        BY_TRY(by__op_node_cost(graph, n, &cost, error));
        out->forward += cost.flops;
        out->backward += cost.flops * count_needed(&graph->nodes[n], needed);
        out->all += cost.flops * count_needed(&graph->nodes[n], all);
    }
    return BY_OK;
}

/* FLOPs of attention: forward, and twice that backward if anything before it is trained. Per token,
 * for all pairs and for visible ones, and for a micro-batch. */
typedef struct attention_flops {
    double seen;
    double full;
    double batch;
} attention_flops;

static by_status count_attention(attention_flops *out, const by_graph *graph, const bool *needed,
                                 by_error *error)
{
    *out = (attention_flops){0};
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        by__op_attention_cost cost;
        by__op_cost all;
        double times = needed[node->out[0]] ? 3.0 : 1.0;
        BY_TRY(by__op_node_attention(graph, n, &cost, error));
        out->full += times * cost.token_flops;
        out->seen += times * cost.token_flops * cost.seen;
        if (by__op_row_of(node->op)->attention != NULL) {
            BY_TRY(by__op_node_cost(graph, n, &all, error));
            out->batch += times * all.flops;
        }
    }
    return BY_OK;
}

/* `graph` shows which parameters are in products. */
static by_status measure(by_trainer *t, const by_graph *graph, const bool *needed, const bool *all,
                         by_error *error)
{
    product_flops p;
    attention_flops a;
    by_model_size *size = &t->plan.size;
    by__nn_parameter_count count;
    BY_TRY(by__nn_model_count(&count, graph, error));
    size->parameters = count.all;
    size->in_products = count.in_products;
    size->trained = count.trained;
    BY_TRY(count_products(&p, graph, needed, all, error));
    BY_TRY(count_attention(&a, graph, needed, error));
    double trained = p.all > 0.0 ? p.backward / p.all : 1.0;
    /* An example is a whole text, or what else a model reads, unless the task counts tokens. */
    if (strcmp(by_model_reads(&t->config->model), "tokens") != 0 || t->task->per_sample == NULL) {
        double batch = (1.0 + 2.0 * trained) * p.forward + a.batch;
        int64_t each = by__trainer_per_sample(t->task, t->config);
        size->flops_per_example = batch / (double)(t->config->train.micro_batch * each);
        size->flops_per_example_full = size->flops_per_example;
        return BY_OK;
    }
    /* The graph has a rank's heads, and attention to its slice of the sequence. */
    double shares = (double)(t->layout.size[BY_MESH_TENSOR] * t->layout.size[BY_MESH_SEQUENCE]);
    double tokens = (2.0 + 4.0 * trained) * (double)size->in_products;
    if (shares == 1.0 && by_model_is_encoder(&t->config->model)) {
        /* Some products have fewer rows than there are tokens: the head's only the hidden ones. */
        int64_t rows = t->config->train.micro_batch * t->task->per_sample(t->config);
        tokens = (1.0 + 2.0 * trained) * p.forward / (double)rows;
    }
    size->flops_per_example = tokens + shares * a.seen;
    size->flops_per_example_full = tokens + shares * a.full;
    return BY_OK;
}

by_status by__trainer_measure(by_trainer *t, const by_graph *graph, by_error *error)
{
    bool *needed;
    bool *all = NULL;
    size_t count = graph->value_count + 1;
    BY_TRY(by__alloc((void **)&needed, count, sizeof *needed, "count", error));
    by_status status = by__alloc((void **)&all, count, sizeof *all, "count", error);
    if (status == BY_OK) {
        by__pass_gradients_needed(graph, false, needed);
        by__pass_gradients_needed(graph, true, all);
        status = measure(t, graph, needed, all, error);
    }
    free(needed);
    free(all);
    return status;
}
