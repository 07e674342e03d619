/* The section `activation`: the function between the layers after attention. Each kind has the name
 * that config.json of transformers gives it, so every family writes and reads it. */
#include <string.h>

#include "nn/nn.h"

typedef struct activation_row {
    by__config_kind kind;
    const char *names[2]; /* in config.json; the first is written */
    by_function function;
    bool squared;
} activation_row;

static const activation_row rows[] = {
    {.kind = {.name = "auto",
              .help = "As the family was published: gelu_tanh in GPT-2, silu in Llama and Mixtral, "
                      "elu in GAT, relu in the other models of graphs, gelu in the rest."},
     .function = BY_FN_COUNT},
    {.kind = {.name = "gelu", .help = "GELU (Hendrycks and Gimpel 2016)."},
     .names = {"gelu"},
     .function = BY_FN_GELU_ERF},
    {.kind = {.name = "gelu_tanh", .help = "GELU with a hyperbolic tangent, as in GPT-2."},
     .names = {"gelu_new", "gelu_pytorch_tanh"},
     .function = BY_FN_GELU},
    {.kind = {.name = "silu", .help = "x times its sigmoid (Elfwing et al. 2018)."},
     .names = {"silu", "swish"},
     .function = BY_FN_SILU},
    {.kind = {.name = "relu", .help = "The larger of x and 0."},
     .names = {"relu"},
     .function = BY_FN_RELU},
    {.kind = {.name = "relu2", .help = "The square of that (So et al. 2021)."},
     .names = {"relu2"},
     .function = BY_FN_RELU,
     .squared = true},
    {.kind = {.name = "elu", .help = "x, or exp(x) - 1 below 0 (Clevert et al. 2015)."},
     .names = {"elu"},
     .function = BY_FN_ELU},
    {.kind = {.name = "tanh", .help = "The hyperbolic tangent."},
     .names = {"tanh"},
     .function = BY_FN_TANH},
};

const by__config_kind *by__nn_activation_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(rows) ? &rows[index].kind : NULL;
}

/* The row of a config whose family has the function `usual` of its own. */
static const activation_row *row_of(const by_model_config *c, by_function usual)
{
    const char *kind = c->activation.kind;
    bool chosen = kind != NULL && strcmp(kind, "auto") != 0;
    for (size_t i = 1; i < BY_ARRAY_LENGTH(rows); i++) {
        if (chosen ? strcmp(rows[i].kind.name, kind) == 0
                   : rows[i].function == usual && !rows[i].squared) {
            return &rows[i];
        }
    }
    return &rows[0];
}

by_value by__nn_activate(by__nn_build *b, by_value x, by_function usual)
{
    const activation_row *row = row_of(b->config, usual);
    by_value y = by_unary(b->graph, x, row->function);
    return row->squared ? by_mul(b->graph, y, y) : y;
}

by_value by__nn_gate(by__nn_build *b, by_value gate, by_value up, by_function usual)
{
    return row_of(b->config, usual)->function == BY_FN_SILU
               ? by_swiglu(b->graph, gate, up)
               : by_mul(b->graph, by__nn_activate(b, gate, usual), up);
}

void by__nn_activation_write(json_t *out, const char *key, const by_model_config *config,
                             by_function usual)
{
    (void)json_object_set_new(out, key, json_string(row_of(config, usual)->names[0]));
}

static by_status refuse(const char *name, const char *key, const char *text, by_error *error)
{
    by_string all = {0};
    for (size_t i = 1; i < BY_ARRAY_LENGTH(rows); i++) {
        by_string_format(&all, "%s%s", i == 1 ? "" : ", ", rows[i].names[0]);
    }
    by_status status =
        by_error_set(error, BY_EFORMAT, "%s: \"%s\" is \"%.40s\"; supported: %s", name, key,
                     text == NULL ? "(not a string)" : text, all.failed ? "" : all.data);
    by_string_free(&all);
    return status;
}

by_status by__nn_activation_read(by_model_config *config, const char *name, const json_t *in,
                                 const char *key, by_function usual, by_error *error)
{
    const json_t *value = json_object_get(in, key);
    const char *text = json_string_value(value);
    if (value == NULL || json_is_null(value)) {
        return by__nn_set_string(&config->activation.kind, "auto", error);
    }
    for (size_t i = 1; i < BY_ARRAY_LENGTH(rows) && text != NULL; i++) {
        const activation_row *row = &rows[i];
        if (strcmp(row->names[0], text) == 0 ||
            (row->names[1] != NULL && strcmp(row->names[1], text) == 0)) {
            bool own = row->function == usual && !row->squared;
            return by__nn_set_string(&config->activation.kind, own ? "auto" : row->kind.name,
                                     error);
        }
    }
    return refuse(name, key, text, error);
}
