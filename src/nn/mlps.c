/* The section `mlp`: the layers of a block after attention. A family names its parameters, by a
 * function that makes the product of one of the layers. */
#include <string.h>

#include "nn/nn.h"

typedef struct mlp_row {
    by__config_kind kind;
    bool gated;
} mlp_row;

static const mlp_row rows[] = {
    {.kind = {.name = "auto",
              .help = "As the family was published: gated in Llama, plain in the others."}},
    {.kind = {.name = "plain", .help = "A layer, the activation, a layer (Vaswani et al. 2017)."}},
    {.kind = {.name = "gated",
              .help = "A layer times the activation of another one, the gate, then a layer "
                      "(Shazeer 2020): with `activation.kind: silu` SwiGLU, with gelu GEGLU."},
     .gated = true},
};

const by__config_kind *by__nn_mlp_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(rows) ? &rows[index].kind : NULL;
}

static bool is_gated(const by_model_config *c, bool usual)
{
    for (size_t i = 1; i < BY_ARRAY_LENGTH(rows) && c->mlp.kind != NULL; i++) {
        if (strcmp(rows[i].kind.name, c->mlp.kind) == 0) {
            return rows[i].gated;
        }
    }
    return usual;
}

by_value by__nn_mlp(by__nn_build *b, by_value x, int layer, const by__nn_mlp_layers *m)
{
    by_value y;
    if (is_gated(b->config, m->gated)) {
        by_value gate = m->linear(b, x, layer, BY__NN_MLP_GATE);
        y = by__nn_gate(b, gate, m->linear(b, x, layer, BY__NN_MLP_UP), m->activation);
    } else {
        y = by__nn_activate(b, m->linear(b, x, layer, BY__NN_MLP_UP), m->activation);
    }
    return m->linear(b, y, layer, BY__NN_MLP_DOWN);
}
