/* series_frame: what models of series have around their network: windows that are standardized or
 * not, what is forecast of the rows behind them, and the keys of config.json. The network is the
 * family's own. */
#ifndef BY_NN_SERIES_FRAME_H
#define BY_NN_SERIES_FRAME_H

#include "nn/series.h"

/* The first member of a family's own struct. */
typedef struct by__nn_window_keys {
    by__nn_series_forecast forecast;
    int64_t standardize;
    int64_t known; /* numbers that are known of each row, those that are forecast too */
} by__nn_window_keys;
/* standardize. */
extern const by__config_key_list by__nn_window_key_list;
/* known: how many there are; of families that read them. */
extern const by__config_key_list by__nn_known_key_list;
/* The input of what is known, [B, context + outputs, known]: `rows` rows from `begin` on. */
by_value by__nn_series_known(by__nn_build *b, const by__nn_window_keys *keys, int64_t begin,
                             int64_t rows);
/* x [B, context, width] with what is known of these rows behind it, if anything is. */
by_value by__nn_series_with_known(by__nn_build *b, by_value x, const by__nn_window_keys *keys);
/* The input [B, context, channels], standardized if the keys say so. */
by_value by__nn_series_read(by__nn_build *b, const by__nn_window_keys *keys,
                            by__nn_window_scales *scales);
/* Each channel of x [B, context, channels] as a row: [B channels, context]. */
by_value by__nn_series_channels(by__nn_build *b, by_value x);
/* Derives the rows that the model forecasts, and checks what it says of them. */
by_status by__nn_series_window_resolve(by_config *config, void *own, by_error *error);
/* Makes the model's output of what it says of all channels, as by__nn_series_end, undoing
 * by__nn_series_read. */
void by__nn_series_deliver(by__nn_build *b, by_value x, const by__nn_window_keys *keys,
                           const by__nn_window_scales *scales);
/* What the model says of all channels, [B, channels P outputs], as a linear function PREFIX of x
 * [B, width] and of what is known of the rows that are forecast. */
by_value by__nn_series_head(by__nn_build *b, by_value x, int64_t width,
                            const by__nn_window_keys *keys, const char *prefix);
/* Ends a model whose network makes x [B, width] of a window: in its forecast, as
 * by__nn_series_head and by__nn_series_deliver, or in outputs for the window. */
void by__nn_series_finish(by__nn_build *b, by_value x, int64_t width,
                          const by__nn_window_keys *keys, const char *prefix,
                          const by__nn_window_scales *scales);
/* Normal with variance gain / in. */
by_init by__nn_init_fan(double gain, int64_t in);
/* context, outputs, channels, layers, width, dropout, standardize and what is forecast, in
 * config.json. */
void by__nn_series_write_config(json_t *out, const by_model_config *config,
                                const by__nn_window_keys *keys);
by_status by__nn_series_read_config(by_model_config *config, by__nn_window_keys *keys,
                                    const char *name, const json_t *in, by_error *error);

/* ---- recurrent networks (recurrent_layers.c) ---- */

typedef struct by__nn_recurrence {
    const char *name; /* prefix of parameters */
    int64_t gates;    /* rows of its weights for a state */
    by_value (*layer)(by_graph *graph, by_value x, const by_recurrent_weights *weights);
} by__nn_recurrence;
/* Builds the whole model. */
void by__nn_recurrent_body(by__nn_build *b, const by__nn_window_keys *keys,
                           const by__nn_recurrence *recurrence);

#endif
