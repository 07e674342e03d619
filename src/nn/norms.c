/* The section `norm`: the table of norms that a model can choose by name. A kind is a function and
 * a row with its keys, from which the config has its choices and docs/config.md its tables. Each
 * adds its parameters as PREFIX.weight, PREFIX.bias and so on, named as in torch.nn. */
#include <string.h>

#include "nn/nn.h"

/* Where a norm is in the model. */
typedef struct norm_place {
    const char *prefix; /* of its parameters */
    const char *axes;   /* of these */
} norm_place;

/* A kind of norm. own: the values of its keys. */
typedef struct norm_row {
    by__config_kind kind;
    by_value (*build)(by__nn_build *b, by_value x, int64_t width, const norm_place *o,
                      const void *own);
} norm_row;

/* clang-format off: one row a key */
static const by__config_key kind_keys[] = {
    {"norm", "kind", BY__KEY_TEXT, BY__FIELD(model.norm.kind), "layer", .later = true,
     .help = "which norm; model.norm says whether there is one"},
};
/* clang-format on */
const by__config_key_list by__nn_norm_keys = BY__KEY_LIST(kind_keys);

static float epsilon(const by__nn_build *b)
{
    return (float)b->config->norm_eps;
}

static by_value parameter(by__nn_build *b, const norm_place *o, int64_t width, by_init_kind init,
                          const char *name)
{
    return by__nn_weight(b, o->axes, BY_SHAPE(width), (by_init){.kind = init}, "%s.%s", o->prefix,
                         name);
}

static by_value build_layer_norm(by__nn_build *b, by_value x, int64_t width, const norm_place *o,
                                 const void *own)
{
    BY_UNUSED(own);
    by_value weight = parameter(b, o, width, BY_INIT_ONE, "weight");
    by_value bias = parameter(b, o, width, BY_INIT_ZERO, "bias");
    return by_layer_norm(b->graph, x, weight, bias, epsilon(b));
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

static by_value build_batch_norm(by__nn_build *b, by_value x, int64_t width, const norm_place *o,
                                 const void *own)
{
    const by__nn_batch_norm norm = {.prefix = o->prefix,
                                    .axes = o->axes,
                                    .width = width,
                                    .eps = epsilon(b),
                                    .momentum = (float)((const batch_keys *)own)->momentum,
                                    .end = BY_NORM_END_NONE};
    return by__nn_batch_normalize(b, x, &norm);
}

/* ---- the table ---- */

static const norm_row rows[] = {
    {.kind = {.name = "layer", .help = "Layer norm (Ba et al. 2016)."}, .build = build_layer_norm},
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
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_string_format(&names, "%s%s", i == 0 ? "" : ", ", rows[i].kind.name);
    }
    by_status status = by_error_set(error, BY_EFORMAT, "%s: \"norm_kind\" is none of %s", name,
                                    names.failed ? "the norms" : names.data);
    by_string_free(&names);
    return status;
}

by_value by__nn_norm(by__nn_build *b, by_value x, int64_t width, const char *prefix,
                     const char *axes)
{
    const by_part_config *norm = &b->config->norm;
    const norm_row *row = find_row(norm->kind);
    const norm_place place = {.prefix = prefix, .axes = axes};
    if (row == NULL) {
        by__graph_fail(b->graph, BY_EARG, "model: there is no norm '%s'", norm->kind);
        return BY_NONE;
    }
    return row->build(b, x, width, &place, by__config_kind_own(norm->own, &row->kind));
}
