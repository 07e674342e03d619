/* LSTM: layers of long short-term memory (Hochreiter and Schmidhuber 1997) on windows of series. */
#include "nn/series_frame.h"

extern const by__nn_family by__nn_family_lstm;

static by__nn_window_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_lstm.kind);
}

static void body(by__nn_build *b)
{
    static const by__nn_recurrence recurrence = {.name = "lstm", .gates = 4, .layer = by_lstm};
    by__nn_recurrent_body(b, own_keys(b->config), &recurrence);
}

static void write_config(json_t *out, const by_model_config *c)
{
    by__nn_series_write_config(out, c, own_keys(c));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    return by__nn_series_read_config(c, own_keys(c), name, in, error);
}

const by__nn_family by__nn_family_lstm = {
    .kind = {.name = "lstm",
             .help = "LSTM on windows of series: layers that go through the rows in order.",
             .keys = {&by__nn_series_keys, &by__nn_series_forecast_keys, &by__nn_series_head_keys,
                      &by__nn_window_key_list, &by__nn_known_key_list},
             .size = sizeof(by__nn_window_keys),
             .resolve = by__nn_series_window_resolve},
    .reads = "series",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"banyan_lstm", "LSTM", false}, {0}},
};
