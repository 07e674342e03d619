/* Classification: each image, or row of a table, belongs to one of several classes. */
#include <math.h>

#include "banyan/ops.h"
#include "tasks/examples/examples.h"

typedef struct classify_keys {
    by__task_examples_keys set;
    double smoothing;
} classify_keys;

static const by__config_key keys[] = {
    {"task", "smoothing", BY__KEY_REAL, BY__OWN(classify_keys, smoothing), "0", 0, 1, BY__BELOW_MAX,
     .help = "label smoothing in training (Szegedy et al. 2016)"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__task_row by__task_classify;

/* Of samples with two labels, whose weights add up to that of the sample. */
static by_value mixed_loss(by_graph *graph, by_value output, by_value labels, int64_t batch,
                           float smoothing)
{
    by_value second = by_graph_input(graph, "second_labels", BY_I32, BY_SHAPE(batch));
    by_value weights[2] = {by_graph_input(graph, "first_weight", BY_F32, BY_SHAPE(batch)),
                           by_graph_input(graph, "second_weight", BY_F32, BY_SHAPE(batch))};
    return by_add(graph, by_weighted_cross_entropy(graph, output, labels, weights[0], smoothing),
                  by_weighted_cross_entropy(graph, output, second, weights[1], smoothing));
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const classify_keys *own = by__config_kind_own(config->task.own, &by__task_classify.kind);
    bool training = request->mode == BY_MODEL_TRAIN;
    BY_TRY(by__task_examples_needs_output(config, model, error));
    float smoothing = training && own != NULL ? (float)own->smoothing : 0.0f;
    by_value labels = by_graph_input(graph, "labels", BY_I32, BY_SHAPE(request->batch));
    if (training && own != NULL && by__task_examples_mixes(&own->set)) {
        model->loss = mixed_loss(graph, model->output, labels, request->batch, smoothing);
    } else if (own != NULL && own->set.weight[0] != '\0') {
        by_value weight = by_graph_input(graph, "weight", BY_F32, BY_SHAPE(request->batch));
        model->loss = by_weighted_cross_entropy(graph, model->output, labels, weight, smoothing);
    } else {
        model->loss = by_cross_entropy(graph, model->output, labels, smoothing);
    }
    by__task_examples_count(graph, request, model);
    model->evaluated = training ? BY_NONE : model->output;
    return BY_OK;
}

/* ---- metrics ---- */

enum { SUM_COUNT, SUM_TOP1, SUM_TOP5, SUM_CLASSES };
static const by_task_sum sums_of[] = {
    [SUM_COUNT] = {.name = "count"},
    [SUM_TOP1] = {.name = "top1"},
    [SUM_TOP5] = {.name = "top5"},
    [SUM_CLASSES] = {.name = "classes"},
};

/* Number of classes that rank before `label`; of equal logits the lower class is first. */
static size_t rank_of(const float *logits, size_t classes, size_t label)
{
    size_t before = 0;
    for (size_t c = 0; c < classes; c++) {
        before += logits[c] > logits[label] || (logits[c] == logits[label] && c < label);
    }
    return before;
}

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const by_array *labels = by_batch_array(batch, "labels");
    const by_array *weights = by_batch_array(batch, "weight");
    BY_UNUSED(data);
    for (size_t i = 0; labels != NULL && i < batch->batch; i++) {
        int32_t label = ((const int32_t *)labels->data)[i];
        if (label >= 0) {
            size_t rank = rank_of(values + i * width, width, (size_t)label);
            double weight = weights == NULL ? 1.0 : (double)((const float *)weights->data)[i];
            *sums[SUM_COUNT] += weight;
            *sums[SUM_CLASSES] += weight * (double)width;
            *sums[SUM_TOP1] += rank < 1 ? weight : 0.0;
            *sums[SUM_TOP5] += rank < 5 ? weight : 0.0;
        }
    }
}

static double accuracy(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_TOP1] / *sums[SUM_COUNT];
}

/* Five classes or fewer have none. */
static double top5(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_CLASSES] > 5.0 * *sums[SUM_COUNT] ? *sums[SUM_TOP5] / *sums[SUM_COUNT]
                                                       : (double)NAN;
}

static const by_metric metrics[] = {{"accuracy", true, 4, accuracy}, {"top5", true, 4, top5}};

/* ---- predictions ---- */

static void predict_one(const by__task_examples *d, uint64_t index, const float *logits,
                        size_t classes, by_predicted *report, void *user)
{
    size_t best = 0;
    double sum = 0.0;
    char label[32];
    for (size_t c = 1; c < classes; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    for (size_t c = 0; c < classes; c++) {
        sum += exp((double)logits[c] - (double)logits[best]);
    }
    (void)snprintf(label, sizeof label, "%zu", best);
    by_example_name of = {.index = index};
    by__task_examples_name(&d->base, index, &of);
    by_field fields[4 + BY__TASK_NAME_FIELDS] = {
        {.name = "index", .number = (double)of.index, .is_whole = true},
        {.name = "class", .number = (double)best, .is_whole = true},
        {.name = "label", .text = best < d->label_count ? d->labels[best] : label},
        {.name = "probability", .number = 1.0 / sum}};
    report(user, fields, 4 + by__task_name_fields(fields + 4, &of));
}

static by_status predict(by_task_data *data, const by_batch *batch, double sum, const float *values,
                         size_t width, by_predicted *report, void *user, by_error *error)
{
    const by_array *weight = by_batch_array(batch, "weight");
    BY_UNUSED(sum);
    BY_UNUSED(error);
    for (size_t i = 0; weight != NULL && i < batch->batch; i++) {
        if (((const float *)weight->data)[i] > 0.0f) {
            predict_one((const by__task_examples *)data, batch->first_sample + i,
                        values + i * width, width, report, user);
        }
    }
    return BY_OK;
}

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "cross-entropy (nats)";
}

const by__task_row by__task_classify = {
    .kind = {.name = "classify",
             .help = "Classification of images, table rows, windows of series or texts.",
             .keys = {&key_list, &by__task_image_data_keys, &by__task_table_data_keys,
                      &by__task_split_keys, &by__task_text_column_keys, &by__task_pair_column_keys,
                      &by__task_window_keys},
             .size = sizeof(classify_keys)},
    .task = {.name = "classify",
             .examples = "samples",
             .best_by_metric = true,
             BY__TASK_LEARNS,
             .predict = predict,
             .classes = by__task_examples_count_classes,
             BY__TASK_EXAMPLES},
    .classes = true,
    .texts = true};
