/* Adds layers, without changing what the model computes: a new one is a copy of the one before it
 * whose output projections are 0, so that it adds nothing to the residual stream until it is
 * trained (as blocks that begin as the identity: Goyal et al. 2017; stacking copies of trained
 * layers: Gong et al. 2019). Copies are spread evenly. */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"
#include "nn/nn.h"

static const by_compress_setting settings[] = {{.name = "layers",
                                                .fallback = "1",
                                                .least = 1.0,
                                                .most = 9999.0,
                                                .whole = true,
                                                .help = "how many are added"},
                                               {0}};

extern const by__nn_family by__nn_family_llama;

/* What ends in the residual stream, by family. */
static const char *const families[] = {"gpt2", "llama", "mixtral"};
static const char *const outputs[] = {"*.attn.c_proj.*", "*.mlp.c_proj.*", "*.o_proj.*",
                                      "*.down_proj.*", "*.w2.*"};

static bool is_output(const char *name)
{
    bool is = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(outputs); i++) {
        is = is || fnmatch(outputs[i], name, 0) == 0;
    }
    return is;
}

/* Copies of a layer: those k < count that fall into its share of the depth. */
static int64_t copies_of(int64_t layer, int64_t layers, int64_t count)
{
    return (layer + 1) * count / layers - layer * count / layers;
}

/* The number that a layer gets: behind all copies of those before it. */
static int64_t place_of(int64_t layer, int64_t layers, int64_t count)
{
    return layer + layer * count / layers;
}

/* Adds a tensor as that of layer `number`, with zeros if it is an output. */
static by_status add_copy(by__compress_state *c, const char *name, int64_t number, by_error *error)
{
    by_tensor_view view;
    size_t count;
    float *values;
    char *renamed;
    BY_TRY(by__weights_describe(c->weights, name, &view, error));
    BY_TRY(by_tensor_size(&view, &count, NULL, error));
    BY_TRY(by__alloc((void **)&values, count + 1, sizeof *values, "a layer", error));
    by_tensor_slice whole = by_tensor_whole(&view);
    by_status status = is_output(name)
                           ? BY_OK
                           : by_weights_read_f32(c->weights, name, &whole, values, count, error);
    if (status == BY_OK) {
        status = by__compress_renumber(&renamed, name, number, error);
    }
    if (status == BY_OK) {
        view.name = renamed;
        status = by__compress_put_f32(c, &view, values, error);
        free(renamed);
    }
    free(values);
    return status;
}

static by_status add_layers(by__compress_state *c, by_error *error)
{
    int64_t layers = c->config->model.layers;
    int64_t count = (int64_t)by__compress_setting_number(c, "layers");
    by_config *to;
    for (size_t i = 0; i < by_weights_count(c->weights); i++) {
        const char *name = by_weights_name(c->weights, i);
        int64_t layer = by__compress_layer_of_name(name);
        if (layer < 0 || layer >= layers) {
            continue;
        }
        int64_t place = place_of(layer, layers, count);
        for (int64_t k = 0; k < copies_of(layer, layers, count); k++) {
            BY_TRY(add_copy(c, name, place + 1 + k, error));
        }
        if (place != layer) {
            char *renamed;
            BY_TRY(by__compress_renumber(&renamed, name, place, error));
            by_status status = by__compress_rename(c, i, renamed, error);
            free(renamed);
            BY_TRY(status);
        }
    }
    c->changed = (size_t)count;
    by_string_format(&c->notes, "; added: %lld layers", (long long)count);
    BY_TRY(by_config_copy(&to, c->config, error));
    to->model.layers = layers + count;
    by_status status = by_config_resolve(to, error);
    if (status == BY_OK) {
        status = by__compress_resize(c, &to->model, error);
    }
    by_config_close(&to);
    return status;
}

static by_status check(by__compress_state *c, by_error *error)
{
    const by_model_config *m = &c->config->model;
    BY_TRY(by__compress_check_family(c, "stack", families, BY_ARRAY_LENGTH(families), "layers",
                                     error));
    const by__nn_llama_keys *keys = by__config_kind_own(m->own, &by__nn_family_llama.kind);
    bool numbered = strcmp(m->kind, "llama") == 0 && keys != NULL &&
                    (keys->nope_layers.count > 0 || keys->window_layers.count > 0);
    if (numbered) {
        return by_error_set(error, BY_EARG,
                            "stack: nope_layers or window_layers of the model are numbers of "
                            "layers, which new ones would change");
    }
    char part[64];
    return !by__nn_layers_differ(part, m)
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "stack: %s depends on the numbers of layers, which new ones would "
                              "change",
                              part);
}

const by__compress_method by__compress_method_stack = {
    .shown = {.name = "stack",
              .summary = "layers are added that change nothing yet, to train a larger model",
              .settings = settings},
    .run = add_layers,
    .takes = check};
