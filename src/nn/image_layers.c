/* Layers of the families that read images, and what their config.json has in common. Activations
 * are [B, H, W, C], weights of convolutions [out, in / groups, h, w], as in torch.nn.Conv2d. */
#include <math.h>

#include "nn/nn.h"

/* What the wavelengths of sines and cosines grow to, in turns. */
#define PERIOD 10000.0f

by_value by__nn_images(by__nn_build *b)
{
    static const int last[] = {0, 2, 3, 1};
    const by_model_config *c = b->config;
    by_value images =
        by__nn_input(b, "images", BY_F32,
                     BY_SHAPE(b->request->batch, c->channels, c->image_height, c->image_width));
    return by_permute(b->graph, images, last);
}

/* He et al. (2015), by the outputs. */
static by_init fan_out(const by__nn_conv *conv)
{
    double fan = (double)(conv->size * conv->size) * (double)conv->out / (double)conv->groups;
    return (by_init){BY_INIT_NORMAL, (float)sqrt(2.0 / fan)};
}

/* TensorFlow's padding: what the last window lacks, half of it before the image, rounded down. */
static void pad_same(const by__nn_build *b, by_value x, by_window *window)
{
    for (int i = 0; i < 2 && by__graph_has(b->graph, x); i++) {
        int64_t rest = b->graph->values[x].shape.dim[1 + i] % window->stride[i];
        int64_t lacks = window->size[i] - (rest == 0 ? window->stride[i] : rest);
        lacks = lacks < 0 ? 0 : lacks;
        window->before[i] = lacks / 2 * window->dilation[i];
        window->after[i] = (lacks - lacks / 2) * window->dilation[i];
    }
}

by_value by__nn_convolve(by__nn_build *b, by_value x, const by__nn_conv *conv, bool bias,
                         const char *prefix)
{
    by_window window = by_window_square(conv->size, conv->stride, conv->padding);
    window.dilation[0] = window.dilation[1] = conv->dilation == 0 ? 1 : conv->dilation;
    if (conv->same) {
        pad_same(b, x, &window);
    }
    by_init init = conv->std > 0.0f ? (by_init){BY_INIT_NORMAL, conv->std} : fan_out(conv);
    by_value w = by__nn_weight(b, "embed channel pixel pixel",
                               BY_SHAPE(conv->out, conv->in / conv->groups, conv->size, conv->size),
                               init, "%s.weight", prefix);
    by_value shift =
        bias ? by__nn_weight(b, "embed", BY_SHAPE(conv->out), (by_init){0}, "%s.bias", prefix)
             : BY_NONE;
    return by_conv(b->graph, x, w, shift, &window, conv->groups);
}

by_value by__nn_waves(by__nn_build *b, int64_t batch, int64_t time, int64_t width, by_value start)
{
    const by_rotation rotation = {.theta = PERIOD};
    by_shape half = BY_SHAPE(batch, time, width / 2);
    by_value parts[2] = {by_fill(b->graph, BY_F32, half, 1.0f),
                         by_fill(b->graph, BY_F32, half, 0.0f)};
    by_value pairs = by_concat(b->graph, parts, 2, 2);
    return by_rope(b->graph, pairs, start, 1, &rotation);
}

/* ---- batch norm ---- */

/* momentum (batch - running): what a micro-batch adds to a running statistic. */
static void follow(by__nn_build *b, by_value running, by_value batch, float momentum)
{
    by_value way = by_sub(b->graph, batch, running);
    by_value share = by_fill(b->graph, BY_F32, BY_SHAPE(1), momentum);
    by_graph_increment(b->graph, running, by_scale(b->graph, way, share));
}

static by_value statistic(by__nn_build *b, const by__nn_batch_norm *o, by_init_kind init,
                          const char *name)
{
    char text[192];
    (void)snprintf(text, sizeof text, "%s.%s", o->prefix, name);
    return by_graph_statistic(b->graph, text, o->axes, BY_SHAPE(o->width), (by_init){.kind = init});
}

by_value by__nn_batch_normalize(by__nn_build *b, by_value x, const by__nn_batch_norm *o)
{
    by_value batch_mean;
    by_value batch_variance;
    by_shape shape = BY_SHAPE(o->width);
    by_value weight =
        by__nn_weight(b, o->axes, shape, (by_init){.kind = BY_INIT_ONE}, "%s.weight", o->prefix);
    by_value bias = by__nn_weight(b, o->axes, shape, (by_init){0}, "%s.bias", o->prefix);
    by_value mean = statistic(b, o, BY_INIT_ZERO, "running_mean");
    by_value variance = statistic(b, o, BY_INIT_ONE, "running_var");
    if (b->request->mode != BY_MODEL_TRAIN) {
        return by_batch_norm_fixed(b->graph, x, mean, variance, weight, bias, o->eps, &o->end);
    }
    x = by_batch_norm(b->graph, x, weight, bias, o->eps, &o->end, &batch_mean, &batch_variance);
    follow(b, mean, batch_mean, o->momentum);
    follow(b, variance, batch_variance, o->momentum);
    return x;
}

by_value by__nn_global_average(by__nn_build *b, by_value x)
{
    static const int sides[] = {1, 2};
    return by_mean(b->graph, x, sides, 2, false);
}

by_value by__nn_classifier(by__nn_build *b, by_value features, int64_t width, float std,
                           const char *prefix)
{
    const by_model_config *c = b->config;
    by_model_register(&b->model, b->graph, "features", features);
    by_value w = by__nn_weight(b, "class embed", BY_SHAPE(c->outputs, width),
                               (by_init){BY_INIT_NORMAL, std}, "%s.weight", prefix);
    by_value bias =
        by__nn_weight(b, "class", BY_SHAPE(c->outputs), (by_init){0}, "%s.bias", prefix);
    return by_linear(b->graph, features, w, bias, true);
}

/* ---- config.json ---- */

void by__nn_json_write_labels(json_t *out, int64_t count)
{
    json_t *names = json_object();
    json_t *ids = json_object();
    for (int64_t i = 0; i < count; i++) {
        char id[32];
        char name[48];
        (void)snprintf(id, sizeof id, "%lld", (long long)i);
        (void)snprintf(name, sizeof name, "LABEL_%lld", (long long)i);
        (void)json_object_set_new(names, id, json_string(name));
        (void)json_object_set_new(ids, name, json_integer(i));
    }
    (void)json_object_set_new(out, "id2label", names);
    (void)json_object_set_new(out, "label2id", ids);
}

int64_t by__nn_json_labels(const json_t *in)
{
    size_t count = json_object_size(json_object_get(in, "id2label"));
    return count > 0 ? (int64_t)count : 2;
}

void by__nn_json_write_image_size(json_t *out, const by_model_config *c)
{
    (void)json_object_set_new(
        out, "image_size",
        c->image_height == c->image_width
            ? json_integer(c->image_height)
            : json_pack("[II]", (json_int_t)c->image_height, (json_int_t)c->image_width));
}

by_status by__nn_json_image_size(by_model_config *c, const char *name, const json_t *in,
                                 by_error *error)
{
    const json_t *size = json_object_get(in, "image_size");
    if (!json_is_array(size)) {
        BY_TRY(by__nn_json_integer(&c->image_height, name, in, "image_size", 224, error));
        c->image_width = c->image_height;
        return BY_OK;
    }
    json_t *sides = json_array_size(size) != 2
                        ? NULL
                        : json_pack("{s:O, s:O}", "height", json_array_get(size, 0), "width",
                                    json_array_get(size, 1));
    if (sides == NULL) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"image_size\" is neither a number nor a list of two", name);
    }
    by_status status =
        by__nn_json_integer(&c->image_height, name, sides, "height", BY__REQUIRED, error);
    if (status == BY_OK) {
        status = by__nn_json_integer(&c->image_width, name, sides, "width", BY__REQUIRED, error);
    }
    json_decref(sides);
    return status;
}
