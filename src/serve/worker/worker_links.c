#include "serve/worker/worker_links.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/train.h"
#include "base/base.h"
#include "nn/nn.h"
#include "serve/protocol/predicted.h"

/* Most pairs of a request. */
#define MAX_PAIRS 4096
/* Most nodes that are computed together when the worker starts. */
#define TOGETHER ((int64_t)1 << 16)

struct by__worker_links {
    size_t nodes;
    size_t width;
    float *vectors; /* [nodes, width] */
    /* A perceptron of the products of two vectors (model.decoder mlp), NULL: they are summed. */
    size_t hidden;
    float *in;       /* [hidden, width] */
    float *in_bias;  /* [hidden] */
    float *out;      /* [hidden] */
    float *out_bias; /* [1] */
};

/* ---- opening ---- */

static by_status take_vectors(void *user, const by_batch *batch, const float *values, size_t width,
                              by_error *error)
{
    by__worker_links *l = user;
    const by_array *ids = by_batch_array(batch, "ids");
    const by_array *weight = by_batch_array(batch, "weight");
    if (width != l->width || ids == NULL || weight == NULL) {
        return by_error_set(error, BY_ESTATE, "the model of links has no vectors of nodes");
    }
    for (size_t i = 0; i < batch->batch; i++) {
        int32_t id = ((const int32_t *)ids->data)[i];
        if (((const float *)weight->data)[i] > 0.0f && id >= 0 && (size_t)id < l->nodes) {
            memcpy(l->vectors + (size_t)id * width, values + i * width, width * sizeof *values);
        }
    }
    return BY_OK;
}

static by_status compute_vectors(by__worker_links *l, const by_pretrained *pretrained,
                                 by_config *config, by_task_data *data, by_error *error)
{
    BY_TRY(by_task_complete(data, config, error));
    int64_t together = data->valid_examples < TOGETHER ? (int64_t)data->valid_examples : TOGETHER;
    l->nodes = (size_t)data->valid_examples;
    l->width = (size_t)config->model.outputs;
    config->train.micro_batch = together;
    config->train.batch = together;
    BY_TRY(by__alloc((void **)&l->vectors, l->nodes, l->width * sizeof(float), "vectors", error));
    return by_evaluate_each(config, by_pretrained_weights(pretrained), data, NULL, take_vectors,
                            NULL, l, error);
}

static by_status open_vectors(by__worker_links *l, const by_pretrained *pretrained, by_error *error)
{
    by_config *config;
    by_task_data *data = NULL;
    BY_TRY(by_config_copy(&config, by_pretrained_config(pretrained), error));
    config->model.from[0] = '\0';
    const by_task_request what = {.purpose = BY_TASK_PREDICT,
                                  .config = config,
                                  .learned = by_pretrained_directory(pretrained)};
    by_status status = by_task_open(&data, NULL, &what, error);
    if (status == BY_OK) {
        status = compute_vectors(l, pretrained, config, data, error);
    }
    by_task_close(&data);
    by_config_close(&config);
    return status;
}

static by_status read_tensor(float **out, const by_weights *weights, const char *name, size_t count,
                             by_error *error)
{
    by_tensor_view view;
    BY_TRY(by_weights_tensor(weights, name, &view, error));
    BY_TRY(by__alloc((void **)out, count, sizeof **out, "the decoder", error));
    return by_tensor_read_f32(&view, *out, count, error);
}

static by_status open_decoder(by__worker_links *l, const by_pretrained *pretrained, by_error *error)
{
    const by_model_config *m = &by_pretrained_config(pretrained)->model;
    const by_weights *w = by_pretrained_weights(pretrained);
    if (strcmp(by__nn_node_sizes_of(m)->decoder, "dot") == 0) {
        return BY_OK;
    }
    l->hidden = (size_t)m->width;
    BY_TRY(read_tensor(&l->in, w, "decoder.lins.0.weight", l->hidden * l->width, error));
    BY_TRY(read_tensor(&l->in_bias, w, "decoder.lins.0.bias", l->hidden, error));
    BY_TRY(read_tensor(&l->out, w, "decoder.lins.1.weight", l->hidden, error));
    return read_tensor(&l->out_bias, w, "decoder.lins.1.bias", 1, error);
}

by_status by__worker_links_open(by__worker_links **out, const by_pretrained *pretrained,
                                by_error *error)
{
    by__worker_links *l;
    BY_TRY(by__alloc((void **)&l, 1, sizeof *l, "predictions", error));
    by_status status = open_vectors(l, pretrained, error);
    if (status == BY_OK) {
        status = open_decoder(l, pretrained, error);
    }
    if (status != BY_OK) {
        by__worker_links_close(&l);
        return status;
    }
    *out = l;
    return BY_OK;
}

void by__worker_links_close(by__worker_links **links)
{
    by__worker_links *l = *links;
    if (l != NULL) {
        free(l->vectors);
        free(l->in);
        free(l->in_bias);
        free(l->out);
        free(l->out_bias);
        free(l);
        *links = NULL;
    }
}

json_t *by__worker_links_info(const by__worker_links *l)
{
    return json_pack("{sI sI}", "nodes", (json_int_t)l->nodes, "request_pairs",
                     (json_int_t)MAX_PAIRS);
}

/* ---- a request, on the preparer's thread ---- */

typedef struct link_job {
    size_t count;
    int32_t pairs[][2]; /* [count] */
} link_job;

static bool read_pair(int32_t out[2], const json_t *pair, size_t nodes)
{
    for (size_t k = 0; k < 2; k++) {
        const json_t *end = json_array_get(pair, k);
        json_int_t node = json_is_integer(end) ? json_integer_value(end) : -1;
        if (json_array_size(pair) != 2 || node < 0 || (uint64_t)node >= nodes) {
            return false;
        }
        out[k] = (int32_t)node;
    }
    return true;
}

by_status by__worker_links_prepare(const by__worker_links *l, by__worker_job *job,
                                   const json_t *pairs, by_error *error)
{
    size_t count = json_array_size(pairs);
    link_job *j;
    job->param = "pairs";
    if (pairs == NULL) {
        return by_error_set(error, BY_EARG, "the model predicts links: send 'pairs'");
    }
    if (count < 1 || count > MAX_PAIRS) {
        return by_error_set(error, BY_EARG,
                            "'pairs' must be a list of 1 to %d lists of two numbers of nodes",
                            MAX_PAIRS);
    }
    BY_TRY(by__alloc((void **)&j, 1, sizeof *j + count * sizeof j->pairs[0], "a request", error));
    job->input = j;
    job->close = free;
    j->count = count;
    for (size_t i = 0; i < count; i++) {
        if (!read_pair(j->pairs[i], json_array_get(pairs, i), l->nodes)) {
            return by_error_set(error, BY_EARG,
                                "entry %zu of 'pairs' is not two numbers of nodes; there are %zu, "
                                "from 0",
                                i, l->nodes);
        }
    }
    job->count = count;
    return BY_OK;
}

/* ---- a batch, on the batcher's thread ---- */

/* The score of a link, as graph_readout.c adds it to the model. */
static double score(const by__worker_links *l, const int32_t pair[2])
{
    const float *a = l->vectors + (size_t)pair[0] * l->width;
    const float *b = l->vectors + (size_t)pair[1] * l->width;
    double sum = l->in == NULL ? 0.0 : (double)l->out_bias[0];
    for (size_t k = 0; k < l->width && l->in == NULL; k++) {
        sum += (double)a[k] * (double)b[k];
    }
    for (size_t h = 0; h < l->hidden; h++) {
        assert(l->in != NULL);
        double x = (double)l->in_bias[h];
        for (size_t k = 0; k < l->width; k++) {
            x += (double)l->in[h * l->width + k] * (double)a[k] * (double)b[k];
        }
        sum += x > 0.0 ? (double)l->out[h] * x : 0.0;
    }
    return sum;
}

by_status by__worker_links_compute(const by__worker_links *l, const by__worker_batch_place *places,
                                   size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const link_job *j = places[i].job->input;
        const int32_t *pair = j->pairs[places[i].example];
        double value = score(l, pair);
        const by_field fields[] = {
            {.name = "index", .number = (double)places[i].example, .is_whole = true},
            {.name = "from", .number = (double)pair[0], .is_whole = true},
            {.name = "to", .number = (double)pair[1], .is_whole = true},
            {.name = "score", .number = value},
            {.name = "probability", .number = 1.0 / (1.0 + exp(-value))}};
        json_t *one = by__protocol_predicted_json(fields, BY_ARRAY_LENGTH(fields));
        if (json_array_append_new(places[i].job->results, one) != 0) {
            return by_error_set(error, BY_EMEMORY, "out of memory: predictions");
        }
    }
    return BY_OK;
}
