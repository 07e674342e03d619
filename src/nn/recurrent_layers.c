/* Recurrent networks on windows of series, with the parameters of torch.nn.LSTM and torch.nn.GRU:
 * layers over all channels together, and a linear function of the last step's states, or, of a
 * window as a whole, of the mean over all steps. */
#include <math.h>

#include "nn/series_frame.h"

void by__nn_recurrent_body(by__nn_build *b, const by__nn_window_keys *keys,
                           const by__nn_recurrence *r)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    by_init init = {BY_INIT_UNIFORM, 1.0f / sqrtf((float)c->width)};
    int64_t sums = r->gates * c->width;
    by__nn_window_scales scales;
    by_value x = by__nn_series_with_known(b, by__nn_series_read(b, keys, &scales), keys);
    for (int layer = 0; layer < c->layers; layer++) {
        int64_t in = layer == 0 ? c->channels + keys->known : c->width;
        by_graph_set_block(g, layer);
        by_recurrent_weights w = {
            .input = by__nn_weight(b, "embed channel", BY_SHAPE(sums, in), init, "%s.weight_ih_l%d",
                                   r->name, layer),
            .hidden = by__nn_weight(b, "embed channel", BY_SHAPE(sums, c->width), init,
                                    "%s.weight_hh_l%d", r->name, layer),
            .input_bias = by__nn_weight(b, "embed", BY_SHAPE(sums), (by_init){0}, "%s.bias_ih_l%d",
                                        r->name, layer),
            .hidden_bias = by__nn_weight(b, "embed", BY_SHAPE(sums), (by_init){0}, "%s.bias_hh_l%d",
                                         r->name, layer)};
        x = r->layer(g, layer == 0 ? x : by__nn_drop(b, x), &w);
    }
    by_graph_set_block(g, -1);
    if (by__nn_series_is_whole(c)) {
        static const int steps[1] = {1};
        x = by_mean(g, x, steps, 1, false);
    } else {
        x = by_slice(g, x, 1, c->context - 1, 1);
        x = by_reshape(g, x, BY_SHAPE(b->request->batch, c->width));
    }
    by__nn_series_finish(b, x, c->width, keys, "head", &scales);
}
