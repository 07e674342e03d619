/* The section `residual`: what a block of a decoder reads of the sum of the blocks before it. */
#include <string.h>

#include "nn/nn.h"

static const by__config_kind rows[] = {
    {.name = "plain", .help = "The embedding and the outputs of all blocks before it, added."},
    {.name = "mixed",
     .help = "The embedding x0 is normalized, and block i reads, and adds its outputs to, a x + b "
             "x0, with two learned numbers for each block (modded-nanogpt: Jordan et al. 2024); a "
             "begins at 1, b at 0."},
};

const by__config_kind *by__nn_residual_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(rows) ? &rows[index] : NULL;
}

static bool is_mixed(const by_model_config *c)
{
    return c->residual.kind != NULL && strcmp(c->residual.kind, "mixed") == 0;
}

by_value by__nn_residual_begin(by__nn_build *b, by_value x, const by__nn_norm_place *place)
{
    return is_mixed(b->config) ? by__nn_norm(b, x, place) : x;
}

by_value by__nn_residual(by__nn_build *b, by_value x, by_value first, int layer, const char *prefix)
{
    if (!is_mixed(b->config)) {
        return x;
    }
    by_init one = {.kind = BY_INIT_ONE};
    by_value own = by__nn_weight(b, "one", BY_SHAPE(1), one, "%s.%d.residual.x", prefix, layer);
    by_value from =
        by__nn_weight(b, "one", BY_SHAPE(1), (by_init){0}, "%s.%d.residual.x0", prefix, layer);
    return by_add(b->graph, by_mul(b->graph, x, own), by_mul(b->graph, first, from));
}
