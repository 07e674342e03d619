/* TCN (Bai et al. 2018): residual blocks of two causal convolutions, whose dilation doubles from
 * block to block, over all channels together; the forecast is a linear function of the last step.
 * Without weight normalization. Parameters are named as in the authors' program. */
#include "nn/series_frame.h"

typedef struct tcn_keys {
    by__nn_window_keys window;
    int64_t kernel;
} tcn_keys;

/* 2^BLOCKS rows and more are not read: model.context is at most 2^20. */
#define BLOCKS 24

static const by__config_key keys[] = {
    {"model", "kernel", BY__KEY_INT, BY__OWN(tcn_keys, kernel), "3", 1, 65535,
     .help = "steps that a convolution reads, 2^i rows apart in block i"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_tcn;

static tcn_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_tcn.kind);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    BY_TRY(by__nn_series_window_resolve(config, own, error));
    return config->model.layers <= BLOCKS
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: model.layers %lld: at most %d blocks, whose convolutions read "
                              "rows 2^%d apart",
                              by__config_where(config, "model.layers", "model.kind"),
                              (long long)config->model.layers, BLOCKS, BLOCKS - 1);
}

/* The forecast reads the last step alone, and through block i only steps a multiple of 2^i before
 * it. So block i computes no others: its steps are the last ones of a grid with that distance, on
 * which its convolutions are dense, and the second one leaves out every other step. */
typedef struct tcn_grid {
    int64_t in;    /* steps that the block reads */
    int64_t inner; /* of the first convolution's result */
    int64_t out;   /* of its result, twice as far apart */
} tcn_grid;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The steps of all blocks, from the last one's single result back. */
static void plan_grids(const by_model_config *c, tcn_grid grids[BLOCKS])
{
    int64_t kernel = own_keys(c)->kernel;
    int64_t out = 1;
    for (int i = (int)c->layers - 1; i >= 0; i--) {
        int64_t all = ((c->context - 1) >> i) + 1;
        int64_t inner = smaller(2 * (out - 1) + kernel, all);
        grids[i] = (tcn_grid){smaller(inner + kernel - 1, all), inner, out};
        out = grids[i].in;
    }
}

typedef struct tcn_conv {
    int64_t in;    /* channels */
    int64_t steps; /* of the operand */
    int64_t kernel;
    int64_t stride;
    int64_t out; /* steps of the result, the last of which reads the last of the operand */
    double gain;
} tcn_conv;

/* The causal convolution of x [B, 1, steps, in]; steps before the first are zeros. */
static by_value convolve(by__nn_build *b, by_value x, const tcn_conv *k, const char *prefix)
{
    int64_t out = b->config->width;
    by_window window = {.stride = {1, k->stride},
                        .dilation = {1, 1},
                        .before = {0, (k->out - 1) * k->stride + k->kernel - k->steps}};
    by_value w = by__nn_weight(b, "embed channel pixel", BY_SHAPE(out, k->in, k->kernel),
                               by__nn_init_fan(k->gain, k->in * k->kernel), "%s.weight", prefix);
    by_value bias = by__nn_weight(b, "embed", BY_SHAPE(out), (by_init){0}, "%s.bias", prefix);
    w = by_reshape(b->graph, w, BY_SHAPE(out, k->in, 1, k->kernel));
    return by_conv(b->graph, x, w, bias, &window, 1);
}

/* The steps of x that the result of a block is added to. */
static by_value shortcut(by__nn_build *b, by_value x, const tcn_grid *grid, int64_t in, int layer)
{
    static const by_window every_other = {.size = {1, 1}, .stride = {1, 2}, .dilation = {1, 1}};
    char name[64];
    int64_t steps = 2 * grid->out - 1;
    x = by_slice(b->graph, x, 2, grid->in - steps, steps);
    if (in != b->config->width) {
        tcn_conv k = {
            .in = in, .steps = steps, .kernel = 1, .stride = 2, .out = grid->out, .gain = 1.0};
        (void)snprintf(name, sizeof name, "network.%d.downsample", layer);
        return convolve(b, x, &k, name);
    }
    return grid->out > 1 ? by_average_pool(b->graph, x, &every_other, false) : x;
}

static by_value block(by__nn_build *b, by_value x, const tcn_grid *grid, int64_t in, int layer)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    int64_t kernel = own_keys(c)->kernel;
    char name[64];
    tcn_conv first = {.in = in,
                      .steps = grid->in,
                      .kernel = kernel,
                      .stride = 1,
                      .out = grid->inner,
                      .gain = 2.0};
    tcn_conv second = {.in = c->width,
                       .steps = grid->inner,
                       .kernel = kernel,
                       .stride = 2,
                       .out = grid->out,
                       .gain = 2.0 / (double)c->layers};
    by_graph_set_block(g, layer);
    (void)snprintf(name, sizeof name, "network.%d.conv1", layer);
    by_value y = convolve(b, x, &first, name);
    y = by__nn_drop(b, by_unary(g, y, BY_FN_RELU));
    (void)snprintf(name, sizeof name, "network.%d.conv2", layer);
    y = convolve(b, y, &second, name);
    y = by__nn_drop(b, by_unary(g, y, BY_FN_RELU));
    x = shortcut(b, x, grid, in, layer);
    y = by_unary(g, by_add(g, y, x), BY_FN_RELU);
    by_graph_set_block(g, -1);
    return y;
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    const by__nn_window_keys *window = &own_keys(c)->window;
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    by__nn_window_scales scales;
    tcn_grid grids[BLOCKS] = {0};
    plan_grids(c, grids);
    int64_t width = c->channels + window->known;
    by_value x = by__nn_series_with_known(b, by__nn_series_read(b, window, &scales), window);
    x = by_reshape(g, x, BY_SHAPE(batch, 1, c->context, width));
    x = by_slice(g, x, 2, c->context - grids[0].in, grids[0].in);
    for (int layer = 0; layer < c->layers; layer++) {
        x = block(b, x, &grids[layer], layer == 0 ? width : c->width, layer);
    }
    x = by_reshape(g, x, BY_SHAPE(batch, c->width));
    by__nn_series_finish(b, x, c->width, window, "linear", &scales);
}

static void write_config(json_t *out, const by_model_config *c)
{
    by__nn_series_write_config(out, c, &own_keys(c)->window);
    (void)json_object_set_new(out, "kernel_size", json_integer(own_keys(c)->kernel));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    tcn_keys *t = own_keys(c);
    BY_TRY(by__nn_series_read_config(c, &t->window, name, in, error));
    return by__nn_json_integer(&t->kernel, name, in, "kernel_size", 3, error);
}

const by__nn_family by__nn_family_tcn = {
    .kind = {.name = "tcn",
             .help = "TCN on windows of series: dilated causal convolutions.",
             .keys = {&by__nn_series_keys, &by__nn_series_forecast_keys, &by__nn_series_head_keys,
                      &by__nn_window_key_list, &by__nn_known_key_list, &key_list},
             .size = sizeof(tcn_keys),
             .resolve = resolve},
    .reads = "series",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"banyan_tcn", "TCN", false}, {0}},
};
