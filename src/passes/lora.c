/* Low-rank adapters (LoRA: Hu et al. 2021). */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

static const char weight_end[] = ".weight";

/* A linear layer that can be adapted. */
typedef struct layer {
    by_value weight;
    bool out_in; /* the weight is [out, in] */
    int64_t in;
    int64_t out;
    char *name; /* the weight's name without ".weight" */
} layer;

/* Describes the layer whose product is node n, except for layer->name. Returns false if n is no
 * such node. */
static bool layer_of(layer *out, const by_graph *graph, size_t n)
{
    by__graph_node *node = &graph->nodes[n];
    const by__op_row *row = by__op_row_of(node->op);
    if (row->transposed == NULL || node->attrs.trans_a) {
        return false;
    }
    by_value weight = node->in[row->weight];
    const by__graph_value *value = &graph->values[weight];
    size_t length = value->name == NULL ? 0 : strlen(value->name);
    size_t end = sizeof weight_end - 1;
    if (value->role != BY_ROLE_PARAMETER || value->shape.rank != 2 || length <= end ||
        strcmp(value->name + length - end, weight_end) != 0) {
        return false;
    }
    bool out_in = *(bool *)by__attr_field(&node->attrs, row->transposed);
    *out = (layer){.weight = weight,
                   .out_in = out_in,
                   .in = value->shape.dim[out_in ? 1 : 0],
                   .out = value->shape.dim[out_in ? 0 : 1]};
    return true;
}

static by_status name_layer(layer *l, const by_graph *graph, by_error *error)
{
    const char *name = graph->values[l->weight].name;
    l->name = by__strndup(name, strlen(name) - (sizeof weight_end - 1));
    return l->name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: adapters") : BY_OK;
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

/* Replaces y, the result of node n, by the sum of the original result and the adapter's. */
static by_status adapt(by_graph *graph, size_t n, const layer *l, const by_lora_options *options,
                       by_error *error)
{
    by_value x = graph->nodes[n].in[0];
    by_value y = graph->nodes[n].out[0];
    char in[64];
    char out[64];
    char axes[160];
    axes_of(graph, l, in, out);
    by_graph_set_block(graph, graph->nodes[n].block);
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
    by_value added = by_linear(graph, h, b, BY_NONE, true);
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

static by_status refuse_target(const layer *layers, size_t count, const char *target,
                               by_error *error)
{
    by_string all = {0};
    for (size_t i = 0; i < count; i++) {
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

/* Adds adapters to those layers of `nodes` that a target names. */
static by_status adapt_all(by_graph *graph, const layer *layers, const size_t *nodes, size_t count,
                           const by_lora_options *options, by_error *error)
{
    for (size_t t = 0; t < options->target_count; t++) {
        bool any = false;
        for (size_t i = 0; i < count; i++) {
            any = any || names(options->targets[t], layers[i].name);
        }
        if (!any) {
            return refuse_target(layers, count, options->targets[t], error);
        }
    }
    for (size_t i = 0; i < count; i++) {
        bool wanted = false;
        for (size_t t = 0; t < options->target_count && !wanted; t++) {
            wanted = names(options->targets[t], layers[i].name);
        }
        if (wanted) {
            BY_TRY(adapt(graph, nodes[i], &layers[i], options, error));
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
    size_t count = 0;
    layer *layers = NULL;
    size_t *nodes = NULL;
    by_status status = by__alloc((void **)&layers, node_count, sizeof *layers, "adapters", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&nodes, node_count, sizeof *nodes, "adapters", error);
    }
    for (size_t n = 0; n < node_count && status == BY_OK; n++) {
        if (layer_of(&layers[count], graph, n) && layers[count].weight != options->head) {
            nodes[count] = n;
            status = name_layer(&layers[count++], graph, error);
        }
    }
    if (status == BY_OK) {
        status = adapt_all(graph, layers, nodes, count, options, error);
    }
    if (status == BY_OK) {
        status = freeze(graph, values, options, error);
    }
    for (size_t i = 0; i < count; i++) {
        free(layers[i].name);
    }
    free(layers);
    free(nodes);
    return status == BY_OK ? by__graph_sort(graph, error) : status;
}
