/* Low-rank adapters (LoRA: Hu et al. 2021). */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

static const char weight_end[] = ".weight";

/* Layers whose weights are joined for one product, at most. */
#define MOST_JOINED 8

/* A linear layer that can be adapted: a product or, where the weights of several layers are joined
 * for one product, such as those of queries, keys and values, the part of it that one of them
 * makes. */
typedef struct layer {
    size_t node; /* the product; the parts of one follow each other in a list */
    by_value weight;
    bool out_in; /* the weight is [out, in] */
    int64_t in;
    int64_t out;
    char *name; /* the weight's name without ".weight" */
} layer;

typedef struct layer_list {
    layer *items;
    size_t count;
    size_t capacity;
} layer_list;

static bool has_layer_name(const by__graph_value *value)
{
    size_t length = value->name == NULL ? 0 : strlen(value->name);
    size_t end = sizeof weight_end - 1;
    return length > end && strcmp(value->name + length - end, weight_end) == 0;
}

/* Adds the layer whose weight is a factor of node n. */
static by_status add_layer(layer_list *list, const by_graph *graph, size_t n, by_value weight,
                           bool out_in, by_error *error)
{
    const by__graph_value *value = &graph->values[weight];
    BY_TRY(by__reserve((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items,
                       error));
    layer *l = &list->items[list->count];
    *l = (layer){.node = n,
                 .weight = weight,
                 .out_in = out_in,
                 .in = value->shape.dim[out_in ? 1 : 0],
                 .out = value->shape.dim[out_in ? 0 : 1]};
    l->name = by__strndup(value->name, strlen(value->name) - (sizeof weight_end - 1));
    if (l->name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: adapters");
    }
    list->count++;
    return BY_OK;
}

static bool is_layer_weight(const by_graph *graph, by_value weight)
{
    const by__graph_value *value = &graph->values[weight];
    return value->role == BY_ROLE_PARAMETER && value->shape.rank == 2 && has_layer_name(value);
}

/* Returns the node that joins the weights of several layers along their outputs to this one; NULL:
 * none does. What is moved from several values, and has their inputs and all their outputs, is
 * them one after another. */
static const by__graph_node *joins(const by_graph *graph, by_value weight, bool out_in)
{
    const by__graph_value *value = &graph->values[weight];
    const by__graph_node *node = value->producer < 0 ? NULL : &graph->nodes[value->producer];
    int in = out_in ? 1 : 0;
    int64_t outputs = 0;
    if (node == NULL || !by__op_row_of(node->op)->moves || node->input_count < 2 ||
        node->input_count > MOST_JOINED) {
        return NULL;
    }
    for (int i = 0; i < node->input_count; i++) {
        const by_shape *part = &graph->values[node->in[i]].shape;
        if (!is_layer_weight(graph, node->in[i]) || part->dim[in] != value->shape.dim[in]) {
            return NULL;
        }
        outputs += part->dim[1 - in];
    }
    return outputs == value->shape.dim[1 - in] ? node : NULL;
}

/* Adds the layers whose products node n is; there may be none. */
static by_status add_layers(layer_list *list, const by_graph *graph, size_t n, by_value head,
                            by_error *error)
{
    by__graph_node *node = &graph->nodes[n];
    const by__op_row *row = by__op_row_of(node->op);
    if (row->transposed == NULL || node->attrs.trans_a) {
        return BY_OK;
    }
    by_value weight = node->in[row->weight];
    bool out_in = *(bool *)by__attr_field(&node->attrs, row->transposed);
    if (is_layer_weight(graph, weight)) {
        return weight == head ? BY_OK : add_layer(list, graph, n, weight, out_in, error);
    }
    const by__graph_node *join = joins(graph, weight, out_in);
    for (int i = 0; join != NULL && i < join->input_count; i++) {
        BY_TRY(add_layer(list, graph, n, join->in[i], out_in, error));
    }
    return BY_OK;
}

/* Returns true if a target matches a layer's whole name or a suffix after one of its dots. */
static bool names(const char *target, const char *layer_name)
{
    bool found = strcmp(target, "all-linear") == 0;
    for (const char *at = layer_name; at != NULL && !found; at = strchr(at, '.')) {
        at += *at == '.' ? 1 : 0;
        found = fnmatch(target, at, 0) == 0;
    }
    return found;
}

/* ---- one adapter ---- */

/* Splits the names of a weight's two axes; "" if they are unknown. */
static void axes_of(const by_graph *graph, const layer *l, char in[64], char out[64])
{
    const char *axes = graph->values[l->weight].axes;
    char first[64] = "";
    char second[64] = "";
    if (axes != NULL) {
        (void)sscanf(axes, "%63s %63s", first, second);
    }
    memcpy(in, l->out_in ? second : first, 64);
    memcpy(out, l->out_in ? first : second, 64);
}

/* Adds parameter NAME.END of the adapter, or returns the existing one if the weight is read
 * twice. */
static by_value parameter(by_graph *graph, const layer *l, const char *end, const char *axes,
                          by_shape shape, by_init init)
{
    char name[300];
    int length = snprintf(name, sizeof name, "%s.%s", l->name, end);
    if (length < 0 || (size_t)length >= sizeof name) {
        by__graph_fail(graph, BY_EARG, "the name of '%.200s' is too long", l->name);
        return BY_NONE;
    }
    by_value found = by_graph_find(graph, name);
    return found != BY_NONE ? found : by_graph_parameter(graph, name, axes, shape, init);
}

/* What the adapter of a layer adds to its result for x. */
static by_value low_rank(by_graph *graph, by_value x, const layer *l,
                         const by_lora_options *options)
{
    char in[64];
    char out[64];
    char axes[160];
    axes_of(graph, l, in, out);
    (void)snprintf(axes, sizeof axes, "rank %s", in);
    /* Kaiming's uniform with a = sqrt(5) (He et al. 2015), PyTorch's default for linear layers. */
    by_value a = parameter(graph, l, "lora_A.weight", axes, BY_SHAPE(options->rank, l->in),
                           (by_init){BY_INIT_UNIFORM, (float)(1.0 / sqrt((double)l->in))});
    (void)snprintf(axes, sizeof axes, "%s rank", out);
    by_value b = parameter(graph, l, "lora_B.weight", axes, BY_SHAPE(l->out, options->rank),
                           (by_init){.kind = BY_INIT_ZERO});
    if (options->rng != BY_NONE) {
        /* Derived from the name, so that an adapter's mask does not depend on which others there
         * are. */
        uint32_t stream = (uint32_t)by__hash64(l->name, strlen(l->name)) | 0x80000000u;
        x = by_dropout(graph, x, options->rng, options->dropout, stream);
    }
    by_value h = by_linear(graph, x, a, BY_NONE, true);
    if (options->scale != 1.0f) {
        h = by_scale(graph, h, by_fill(graph, BY_F32, BY_SHAPE(1), options->scale));
    }
    return by_linear(graph, h, b, BY_NONE, true);
}

/* Replaces y, the result of a product of `count` layers, by the sum of the original result and
 * those of the adapters of the wanted ones. */
static by_status adapt(by_graph *graph, const layer *layers, const bool *wanted, int count,
                       const by_lora_options *options, by_error *error)
{
    by_value parts[MOST_JOINED];
    size_t n = layers[0].node;
    by_value x = graph->nodes[n].in[0];
    by_value y = graph->nodes[n].out[0];
    by_graph_set_block(graph, graph->nodes[n].block);
    for (int i = 0; i < count; i++) {
        if (wanted[i]) {
            parts[i] = low_rank(graph, x, &layers[i], options);
        } else {
            by_shape shape = graph->values[y].shape;
            shape.dim[shape.rank - 1] = layers[i].out;
            parts[i] = by_fill(graph, graph->values[y].dtype, shape, 0.0f);
        }
    }
    by_value added = count == 1 ? parts[0] : by_concat(graph, parts, count, -1);
    by_value made =
        by__graph_add_value(graph, BY_ROLE_ACTIVATION, NULL, NULL,
                            (by__graph_type){graph->values[y].dtype, graph->values[y].shape});
    by_value sum = by_add(graph, made, added);
    BY_TRY(by_graph_check(graph, error));
    int last = graph->values[sum].producer;
    graph->nodes[n].out[0] = made;
    graph->nodes[last].out[0] = y;
    graph->values[made].producer = (int)n;
    graph->values[y].producer = last;
    graph->values[sum].producer = -1;
    return BY_OK;
}

/* ---- which layers ---- */

/* Returns the last component of a layer's name. */
static const char *short_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot == NULL ? name : dot + 1;
}

static by_status refuse_target(const layer_list *list, const char *target, by_error *error)
{
    const layer *layers = list->items;
    by_string all = {0};
    for (size_t i = 0; i < list->count; i++) {
        bool seen = false;
        for (size_t k = 0; k < i; k++) {
            seen = seen || strcmp(short_name(layers[k].name), short_name(layers[i].name)) == 0;
        }
        if (!seen) {
            by_string_format(&all, "%s%s", all.length == 0 ? "" : ", ", short_name(layers[i].name));
        }
    }
    by_status status = by_error_set(
        error, BY_ECONFIG, "lora.targets: \"%.100s\" names no linear layer; there are %.300s",
        target, all.failed || all.length == 0 ? "none" : all.data);
    by_string_free(&all);
    return status;
}

static bool is_wanted(const layer *l, const by_lora_options *options)
{
    bool wanted = false;
    for (size_t t = 0; t < options->target_count && !wanted; t++) {
        wanted = names(options->targets[t], l->name);
    }
    return wanted;
}

/* Adds adapters to those layers that a target names. */
static by_status adapt_all(by_graph *graph, const layer_list *list, const by_lora_options *options,
                           by_error *error)
{
    for (size_t t = 0; t < options->target_count; t++) {
        bool any = false;
        for (size_t i = 0; i < list->count; i++) {
            any = any || names(options->targets[t], list->items[i].name);
        }
        if (!any) {
            return refuse_target(list, options->targets[t], error);
        }
    }
    for (size_t i = 0; i < list->count;) {
        const layer *first = &list->items[i];
        bool wanted[MOST_JOINED];
        bool any = false;
        int count = 0;
        for (; i < list->count && list->items[i].node == first->node; i++) {
            wanted[count] = is_wanted(&list->items[i], options);
            any = any || wanted[count];
            count++;
        }
        if (any) {
            BY_TRY(adapt(graph, first, wanted, count, options, error));
        }
    }
    by_graph_set_block(graph, -1);
    return by_graph_check(graph, error);
}

/* Freezes the parameters among the first `count` values, except those in train_also. */
static by_status freeze(by_graph *graph, size_t count, const by_lora_options *options,
                        by_error *error)
{
    for (size_t i = 0; i < options->train_also_count; i++) {
        bool any = false;
        for (size_t v = 0; v < count && !any; v++) {
            const by__graph_value *value = &graph->values[v];
            any = value->role == BY_ROLE_PARAMETER &&
                  fnmatch(options->train_also[i], value->name, 0) == 0;
        }
        if (!any) {
            return by_error_set(error, BY_ECONFIG,
                                "lora.train_also: \"%.100s\" matches no parameter of the model",
                                options->train_also[i]);
        }
    }
    for (size_t v = 0; v < count; v++) {
        bool trained = graph->values[v].role != BY_ROLE_PARAMETER;
        for (size_t i = 0; i < options->train_also_count && !trained; i++) {
            trained = fnmatch(options->train_also[i], graph->values[v].name, 0) == 0;
        }
        if (!trained) {
            by_graph_freeze(graph, (by_value)v);
        }
    }
    return by_graph_check(graph, error);
}

by_status by_pass_lora(by_graph *graph, const by_lora_options *options, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    if (options->rank < 1 || options->target_count == 0) {
        return by_error_set(error, BY_EARG, "lora: rank %lld and %zu targets; one or more of each",
                            (long long)options->rank, options->target_count);
    }
    size_t values = graph->value_count;
    size_t node_count = graph->node_count;
    layer_list list = {0};
    by_status status = BY_OK;
    for (size_t n = 0; n < node_count && status == BY_OK; n++) {
        status = add_layers(&list, graph, n, options->head, error);
    }
    if (status == BY_OK) {
        status = adapt_all(graph, &list, options, error);
    }
    if (status == BY_OK) {
        status = freeze(graph, values, options, error);
    }
    for (size_t i = 0; i < list.count; i++) {
        free(list.items[i].name);
    }
    free(list.items);
    return status == BY_OK ? by__graph_sort(graph, error) : status;
}
