/* The table of normalisations that a model can choose by name: a kind is a function and a row. Each
 * adds its parameters as PREFIX.weight, PREFIX.bias and so on, named as in torch.nn. */
#include <string.h>

#include "nn/nn.h"

typedef struct norm_kind {
    const char *name;
    by_value (*build)(by__nn_build *b, by_value x, int64_t width, const by__nn_norm_options *o);
} norm_kind;

static by_value parameter(by__nn_build *b, const by__nn_norm_options *o, int64_t width,
                          by_init_kind init, const char *name)
{
    return by__nn_weight(b, o->axes, BY_SHAPE(width), (by_init){.kind = init}, "%s.%s", o->prefix,
                         name);
}

static by_value build_layer_norm(by__nn_build *b, by_value x, int64_t width,
                                 const by__nn_norm_options *o)
{
    by_value weight = parameter(b, o, width, BY_INIT_ONE, "weight");
    by_value bias = parameter(b, o, width, BY_INIT_ZERO, "bias");
    return by_layer_norm(b->graph, x, weight, bias, o->eps);
}

/* momentum (batch - running): what a micro-batch adds to a running statistic. */
static void follow(by__nn_build *b, by_value running, by_value batch, float momentum)
{
    by_value way = by_sub(b->graph, batch, running);
    by_value share = by_fill(b->graph, BY_F32, BY_SHAPE(1), momentum);
    by_graph_increment(b->graph, running, by_scale(b->graph, way, share));
}

static by_value statistic(by__nn_build *b, const by__nn_norm_options *o, int64_t width,
                          by_init_kind init, const char *name)
{
    char text[160];
    (void)snprintf(text, sizeof text, "%s.%s", o->prefix, name);
    return by_graph_statistic(b->graph, text, o->axes, BY_SHAPE(width), (by_init){.kind = init});
}

/* Batch norm over the rows of a micro-batch in training, with the running statistics otherwise
 * (torch.nn.BatchNorm1d). The running statistics of a step average those of its micro-batches, so
 * they do not depend on which ranks had them. */
static by_value build_batch_norm(by__nn_build *b, by_value x, int64_t width,
                                 const by__nn_norm_options *o)
{
    by_value batch_mean;
    by_value batch_variance;
    by_value weight = parameter(b, o, width, BY_INIT_ONE, "weight");
    by_value bias = parameter(b, o, width, BY_INIT_ZERO, "bias");
    by_value mean = statistic(b, o, width, BY_INIT_ZERO, "running_mean");
    by_value variance = statistic(b, o, width, BY_INIT_ONE, "running_var");
    if (b->request->mode != BY_MODEL_TRAIN) {
        return by_batch_norm_fixed(b->graph, x, mean, variance, weight, bias, o->eps);
    }
    x = by_batch_norm(b->graph, x, weight, bias, o->eps, &batch_mean, &batch_variance);
    follow(b, mean, batch_mean, o->momentum);
    follow(b, variance, batch_variance, o->momentum);
    return x;
}

static const norm_kind kinds[] = {{"layer", build_layer_norm}, {"batch", build_batch_norm}};

bool by__nn_norm_is_known(const char *kind)
{
    bool known = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        known = known || strcmp(kinds[i].name, kind) == 0;
    }
    return known;
}

by_value by__nn_norm(by__nn_build *b, const char *kind, by_value x, int64_t width,
                     const by__nn_norm_options *options)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        if (strcmp(kinds[i].name, kind) == 0) {
            return kinds[i].build(b, x, width, options);
        }
    }
    by__graph_fail(b->graph, BY_EARG, "model: there is no norm '%s'", kind);
    return BY_NONE;
}
