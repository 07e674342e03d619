/* Layers of encoders: weights [out, in] with biases, norms, and attention over all tokens with
 * separate weights for queries, keys and values, as the checkpoints of BERT and ViT have them. */
#include "nn/nn.h"

by_value by__nn_encoder_norm(by__nn_build *b, by_value x, double eps, const char *prefix)
{
    return by__nn_norm(b, x,
                       &(by__nn_norm_place){.prefix = prefix,
                                            .axes = "embed",
                                            .width = b->config->width,
                                            .eps = eps,
                                            .usual = "layer"});
}

by_value by__nn_encoder_linear(by__nn_build *b, by_value x, int64_t in, int64_t out,
                               const char *axes, const char *bias_axes, by_init init,
                               const char *prefix)
{
    by_value w = by__nn_weight(b, axes, BY_SHAPE(out, in), init, "%s.weight", prefix);
    by_value bias = by__nn_weight(b, bias_axes, BY_SHAPE(out), (by_init){0}, "%s.bias", prefix);
    return by_linear(b->graph, x, w, bias, true);
}

by_value by__nn_encoder_attention(by__nn_build *b, by_value x, int layer, bool biased,
                                  const char *prefix, const char *const names[3], by_value *qkv)
{
    const by_model_config *c = b->config;
    by_value weights[3];
    by_value biases[3];
    for (int i = 0; i < 3; i++) {
        weights[i] = by__nn_weight(b, "heads embed", BY_SHAPE(c->width, c->width),
                                   by__nn_init_normal(b), "%s.%s.weight", prefix, names[i]);
        if (biased) {
            biases[i] = by__nn_weight(b, "heads", BY_SHAPE(c->width), (by_init){0}, "%s.%s.bias",
                                      prefix, names[i]);
        }
    }
    by_value w = by_concat(b->graph, weights, 3, 0);
    by_value bias = biased ? by_concat(b->graph, biases, 3, 0) : BY_NONE;
    *qkv = by_linear(b->graph, x, w, bias, true);
    return by__nn_attend(
        b, layer, &(by__nn_heads){.q = *qkv, .k = BY_NONE, .v = BY_NONE, .bidirectional = true});
}
