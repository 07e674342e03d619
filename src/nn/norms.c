/* The section `norm`: the table of norms that a model can choose by name. A kind is a function and
 * a row with its keys, from which the config has its choices and docs/config.md its tables. Each
 * adds its parameters as PREFIX.weight, PREFIX.bias and so on, named as in torch.nn. A family says
 * at each place which norm it was published with. */
#include <string.h>

#include "nn/nn.h"

/* A kind of norm. own: the values of its keys. */
typedef struct norm_row {
    by__config_kind kind;
    by_value (*build)(by__nn_build *b, by_value x, const by__nn_norm_place *o, const void *own);
} norm_row;

static by_value parameter(by__nn_build *b, const by__nn_norm_place *o, by_init_kind init,
                          const char *name)
{
    return by__nn_weight(b, o->axes, BY_SHAPE(o->width), (by_init){.kind = init}, "%s.%s",
                         o->prefix, name);
}

static by_value build_layer_norm(by__nn_build *b, by_value x, const by__nn_norm_place *o,
                                 const void *own)
{
    BY_UNUSED(own);
    by_value weight = parameter(b, o, BY_INIT_ONE, "weight");
    by_value bias = parameter(b, o, BY_INIT_ZERO, "bias");
    return by_layer_norm(b->graph, x, weight, bias, (float)o->eps);
}

static by_value build_rms_norm(by__nn_build *b, by_value x, const by__nn_norm_place *o,
                               const void *own)
{
    BY_UNUSED(own);
    return by_rms_norm(b->graph, x, parameter(b, o, BY_INIT_ONE, "weight"), (float)o->eps);
}

/* ---- batch norm ---- */

typedef struct batch_keys {
    double momentum;
} batch_keys;

static const by__config_key batch_key_rows[] = {
    {"norm", "momentum", BY__KEY_REAL, BY__OWN(batch_keys, momentum), "0.1", 0, 1, BY__ABOVE_MIN,
     .later = true, .help = "weight of a step's statistics in the running ones"},
};
static const by__config_key_list batch_key_list = BY__KEY_LIST(batch_key_rows);

static by_value build_batch_norm(by__nn_build *b, by_value x, const by__nn_norm_place *o,
                                 const void *own)
{
    const by__nn_batch_norm norm = {.prefix = o->prefix,
                                    .axes = o->axes,
                                    .width = o->width,
                                    .eps = (float)o->eps,
                                    .momentum = (float)((const batch_keys *)own)->momentum,
                                    .end = BY_NORM_END_NONE};
    return by__nn_batch_normalize(b, x, &norm);
}

/* ---- the table ---- */

static const norm_row rows[] = {
    {.kind = {.name = "auto",
              .help =
                  "As the family was published: RMS norm in Llama and Mixtral, none in models of "
                  "graphs, layer norm in the others."}},
    {.kind = {.name = "layer", .help = "Layer norm (Ba et al. 2016)."}, .build = build_layer_norm},
    {.kind = {.name = "rms", .help = "RMS norm (Zhang and Sennrich 2019)."},
     .build = build_rms_norm},
    {.kind = {.name = "batch",
              .help = "Batch norm over the rows of a micro-batch (Ioffe and Szegedy 2015).",
              .keys = {&batch_key_list},
              .size = sizeof(batch_keys)},
     .build = build_batch_norm},
};

const by__config_kind *by__nn_norm_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(rows) ? &rows[index].kind : NULL;
}

static const norm_row *find_row(const char *kind)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (strcmp(rows[i].kind.name, kind) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

by_status by__nn_norm_set(by_model_config *config, const char *kind, const char *name,
                          by_error *error)
{
    by_string names = {0};
    if (find_row(kind) != NULL) {
        return by__nn_set_string(&config->norm.kind, kind, error);
    }
    for (size_t i = 1; i < BY_ARRAY_LENGTH(rows); i++) {
        by_string_format(&names, "%s%s", i == 1 ? "" : ", ", rows[i].kind.name);
    }
    by_status status = by_error_set(error, BY_EFORMAT, "%s: \"norm_kind\" is none of %s", name,
                                    names.failed ? "the norms" : names.data);
    by_string_free(&names);
    return status;
}

const char *by__nn_norm_name(const by_model_config *config, const char *usual)
{
    const char *kind = config->norm.kind;
    return kind == NULL || strcmp(kind, "auto") == 0 ? usual : kind;
}

by_value by__nn_norm(by__nn_build *b, by_value x, const by__nn_norm_place *place)
{
    const char *name = by__nn_norm_name(b->config, place->usual);
    const norm_row *row = find_row(name);
    if (row == NULL) {
        by__graph_fail(b->graph, BY_EARG, "model: there is no norm '%s'", name);
        return BY_NONE;
    }
    return row->build(b, x, place, by__config_kind_own(b->config->norm.own, &row->kind));
}
