/* Contrastive learning of embeddings of texts (Gao et al. 2021, SimCSE, eq. 5; InfoNCE): the vector
 * of a text is to be nearer to that of its positive one, by their cosine, than to those of the
 * other texts of the micro-batch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/ops.h"
#include "graph/graph.h"
#include "tasks/examples/examples.h"

typedef struct contrast_keys {
    by__task_examples_keys examples;
    double temperature;
    char *pooling;
} contrast_keys;

static const by__config_key keys[] = {
    {"data", "positive_column", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, positive_column),
     "positive", .min = 1,
     .help = "column of the texts that are to be near to those of text_column"},
    {"data", "negative_column", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, negative_column),
     "\"\"",
     .help = "column of texts that are to be far from all of text_column, beside the positive ones "
             "of other rows; empty: none"},
    {"task", "temperature", BY__KEY_REAL, BY__OWN(contrast_keys, temperature), "0.05", 0, 100,
     BY__ABOVE_MIN, .help = "cosines are divided by this"},
    {"task", "pooling", BY__KEY_TEXT, BY__OWN(contrast_keys, pooling), "mean",
     .choices = "mean|first",
     .help = "the vector of a text: mean of the states of its tokens, or that of the first one"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__task_row by__task_contrast;

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const contrast_keys *k = own;
    if (k->examples.text_column[0] == '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: task.kind contrast needs texts: set data.text_column and "
                            "data.positive_column to columns of data.table",
                            by__config_where(config, "data.table", "task.kind"));
    }
    if (k->examples.target.count > 0 || k->examples.weight[0] != '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: task.kind contrast has neither target nor weights: leave "
                            "data.target and data.weight out",
                            by__config_where(config, "data.target", "data.weight"));
    }
    if (config->train.micro_batch == 1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: a text is compared with those of its micro-batch: set "
                            "train.micro_batch to 2 or more",
                            by__config_where(config, "train.micro_batch", "task.kind"));
    }
    return BY_OK;
}

/* ---- loss ---- */

/* Vectors of length 1, [texts, width], of states [texts, time, width]. */
static by_value pool(by_graph *graph, const by_model_request *request, by_value states,
                     int64_t texts, bool mean)
{
    by_shape s = graph->values[states].shape;
    int64_t all = request->batch * texts;
    by_value x;
    if (mean) {
        by_value weights =
            by_graph_input(graph, "mean", BY_F32, BY_SHAPE(request->batch, texts, s.dim[1]));
        weights = by_reshape(graph, weights, BY_SHAPE(all, s.dim[1], 1));
        x = by_sum(graph, by_mul(graph, states, weights), &(const int){1}, 1, false);
    } else {
        x = by_reshape(graph, by_slice(graph, states, 1, 0, 1), BY_SHAPE(all, s.dim[2]));
    }
    by_value scale = by_fill(graph, BY_F32, BY_SHAPE(s.dim[2]), 1.0f / sqrtf((float)s.dim[2]));
    return by_rms_norm(graph, x, scale, 1e-12f);
}

/* Candidates of a row are the other columns' texts of all rows, positive ones first; its own
 * positive one is the right one. */
static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const contrast_keys *own = by__config_kind_own(config->task.own, &by__task_contrast.kind);
    int64_t batch = request->batch;
    int64_t texts = request->texts;
    if (model->states == BY_NONE || own == NULL || texts < 2) {
        return by_error_set(error, BY_ECONFIG,
                            "task.kind contrast needs an encoder of texts; model.kind %s is none: "
                            "set it to bert",
                            config->model.kind);
    }
    bool mean = strcmp(own->pooling, "mean") == 0;
    by_value vectors = pool(graph, request, model->states, texts, mean);
    int64_t width = graph->values[vectors].shape.dim[1];
    by_value columns = by_reshape(graph, vectors, BY_SHAPE(batch, texts, width));
    by_value parts[3];
    for (int64_t i = 0; i < texts; i++) {
        parts[i] = by_reshape(graph, by_slice(graph, columns, 1, i, 1), BY_SHAPE(batch, width));
    }
    by_value candidates = texts == 2 ? parts[1] : by_concat(graph, parts + 1, (int)texts - 1, 0);
    by_value factor = by_fill(graph, BY_F32, BY_SHAPE(1), (float)(1.0 / own->temperature));
    by_value scores = by_scale(graph, by_matmul(graph, parts[0], candidates, false, true), factor);
    by_value rows = by_graph_constant_input(graph, "rows", BY_I32, BY_SHAPE(batch));
    by_value weight = by_graph_input(graph, "weight", BY_F32, BY_SHAPE(batch));
    model->loss = by_weighted_cross_entropy(graph, scores, rows, weight, 0.0f);
    model->evaluated = request->mode == BY_MODEL_TRAIN ? BY_NONE : scores;
    return BY_OK;
}

/* ---- metrics ---- */

enum { SUM_COUNT, SUM_RIGHT };
static const by_task_sum sums_of[] = {
    [SUM_COUNT] = {.name = "count"}, [SUM_RIGHT] = {.name = "right"}};

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const float *weights = by_batch_array(batch, "weight")->data;
    BY_UNUSED(data);
    for (size_t i = 0; i < batch->batch; i++) {
        size_t best = 0;
        for (size_t c = 1; c < width; c++) {
            best = values[i * width + c] > values[i * width + best] ? c : best;
        }
        *sums[SUM_COUNT] += (double)weights[i];
        *sums[SUM_RIGHT] += best == i ? (double)weights[i] : 0.0;
    }
}

static double accuracy(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_COUNT] > 0.0 ? *sums[SUM_RIGHT] / *sums[SUM_COUNT] : 0.0;
}

static const by_metric metrics[] = {{"accuracy", true, 4, accuracy}};

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "cross-entropy (nats per pair)";
}

/* The numbers of a micro-batch's rows, each the class of its text. */
static by_status constants(by_task_data *data, const by_config *config, const by_array **out,
                           size_t *count, by_error *error)
{
    by__task_examples_texts *texts = &((by__task_examples *)data)->texts;
    int64_t batch = config->train.micro_batch;
    free(texts->numbers);
    BY_TRY(
        by__alloc((void **)&texts->numbers, (size_t)batch, sizeof *texts->numbers, "rows", error));
    for (int64_t i = 0; i < batch; i++) {
        texts->numbers[i] = (int32_t)i;
    }
    texts->rows = (by_array){
        .name = "rows", .dtype = BY_I32, .shape = BY_SHAPE(batch), .data = texts->numbers};
    *out = &texts->rows;
    *count = 1;
    return BY_OK;
}

const by__task_row by__task_contrast = {
    .kind = {.name = "contrast",
             .help = "Embeddings of texts, from pairs of them that are to be near.",
             .keys = {&key_list, &by__task_table_data_keys, &by__task_split_keys,
                      &by__task_text_column_keys},
             .size = sizeof(contrast_keys),
             .resolve = resolve},
    .task = {.name = "contrast",
             .examples = "pairs",
             BY__TASK_LEARNS,
             .constants = constants,
             BY__TASK_EXAMPLES},
    .texts = true,
    .pairs = true};
