/* Tagging: each word of a text has a class, such as the part of a name that it is. The word's first
 * token is classified. */
#include <math.h>
#include <string.h>

#include "banyan/ops.h"
#include "graph/graph.h"
#include "tasks/examples/examples.h"

typedef struct tag_keys {
    by__task_examples_keys examples;
} tag_keys;

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const tag_keys *k = own;
    if (k->examples.weight[0] != '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: task.kind tag weighs all words alike: leave data.weight out",
                            by__config_where(config, "data.weight", "task.kind"));
    }
    return BY_OK;
}

/* Batches weigh as much as they have words, so the loss is the mean over these. */
static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    int64_t rows = request->batch * request->time;
    int64_t classes = config->model.outputs;
    BY_TRY(by__task_examples_needs_output(config, model, error));
    BY_TRY(by_graph_check(graph, error));
    if (graph->values[model->output].shape.rank != 3) {
        return by_error_set(error, BY_ECONFIG,
                            "task.kind tag needs a model with outputs for each token; model.kind "
                            "%s has none: set it to bert",
                            config->model.kind);
    }
    by_value labels =
        by_graph_input(graph, "labels", BY_I32, BY_SHAPE(request->batch, request->time));
    model->loss = by_cross_entropy(graph, by_reshape(graph, model->output, BY_SHAPE(rows, classes)),
                                   by_reshape(graph, labels, BY_SHAPE(rows)), 0.0f);
    model->evaluated = request->mode == BY_MODEL_TRAIN ? BY_NONE : model->output;
    return BY_OK;
}

/* ---- entities: what seqeval finds in the tags of a text, whatever their scheme ---- */

/* The entity that the words so far end in. */
typedef struct entity {
    char tag;         /* B, I, E, S or O */
    const char *type; /* "PER" of B-PER */
    size_t begin;
} entity;

static const char *type_of(const char *name)
{
    const char *dash = name[0] == '\0' ? NULL : strchr(name + 1, '-');
    const char *type = dash == NULL ? name + (name[0] != '\0') : dash + 1;
    return type[0] == '\0' ? "_" : type;
}

static bool is_one_of(char tag, const char *tags)
{
    return tag != '\0' && strchr(tags, tag) != NULL;
}

/* Returns whether an entity ends in front of a word of this name. */
static bool ends(const entity *e, const char *name)
{
    return is_one_of(e->tag, "ES") || (is_one_of(e->tag, "BI") && is_one_of(name[0], "BSO")) ||
           (!is_one_of(e->tag, "O.") && strcmp(e->type, type_of(name)) != 0);
}

static bool begins(const entity *e, const char *name)
{
    return is_one_of(name[0], "BS") || (is_one_of(e->tag, "ESO") && is_one_of(name[0], "EI")) ||
           (!is_one_of(name[0], "O.") && strcmp(e->type, type_of(name)) != 0);
}

static void go_on(entity *e, const char *name, size_t word)
{
    e->begin = begins(e, name) ? word : e->begin;
    e->tag = name[0];
    e->type = type_of(name);
}

/* ---- metrics ---- */

enum { SUM_WORDS, SUM_RIGHT, SUM_THERE, SUM_FOUND, SUM_BOTH };
static const by_task_sum sums_of[] = {
    [SUM_WORDS] = {.name = "words"}, [SUM_RIGHT] = {.name = "right"},
    [SUM_THERE] = {.name = "there"}, [SUM_FOUND] = {.name = "found"},
    [SUM_BOTH] = {.name = "both"},
};

static size_t best_of(const float *logits, size_t classes)
{
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    return best;
}

/* An entity is right if its words and its type are. */
static void measure_text(double *const *sums, const by__task_examples *d, const int32_t *labels,
                         const float *logits, size_t time, size_t classes)
{
    entity there = {.tag = 'O', .type = "_"};
    entity found = there;
    size_t words = 0;
    for (size_t t = 0; t <= time; t++) {
        if (t < time && labels[t] < 0) {
            continue;
        }
        size_t best = t < time ? best_of(logits + t * classes, classes) : 0;
        const char *name = t < time ? d->labels[labels[t]] : "O";
        const char *guess = t < time ? d->labels[best] : "O";
        bool there_ends = ends(&there, name);
        bool found_ends = ends(&found, guess);
        *sums[SUM_THERE] += there_ends ? 1.0 : 0.0;
        *sums[SUM_FOUND] += found_ends ? 1.0 : 0.0;
        *sums[SUM_BOTH] += there_ends && found_ends && there.begin == found.begin &&
                                   strcmp(there.type, found.type) == 0
                               ? 1.0
                               : 0.0;
        if (t < time) {
            *sums[SUM_WORDS] += 1.0;
            *sums[SUM_RIGHT] += (size_t)labels[t] == best ? 1.0 : 0.0;
        }
        go_on(&there, name, words);
        go_on(&found, guess, words++);
    }
}

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const by__task_examples *d = (const by__task_examples *)data;
    const by_array *labels = by_batch_array(batch, "labels");
    size_t time = labels == NULL ? 0 : (size_t)labels->shape.dim[1];
    for (size_t i = 0; time > 0 && i < batch->batch; i++) {
        measure_text(sums, d, (const int32_t *)labels->data + i * time, values + i * width, time,
                     width / time);
    }
}

static double ratio(const double *const *sums, int of, int all)
{
    return *sums[all] > 0.0 ? *sums[of] / *sums[all] : 0.0;
}

static double precision_of(const by_task_data *data, const double *const *sums,
                           const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return ratio(sums, SUM_BOTH, SUM_FOUND);
}

static double recall(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return ratio(sums, SUM_BOTH, SUM_THERE);
}

static double f1(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    double all = *sums[SUM_FOUND] + *sums[SUM_THERE];
    return all > 0.0 ? 2.0 * *sums[SUM_BOTH] / all : 0.0;
}

static double accuracy(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return ratio(sums, SUM_RIGHT, SUM_WORDS);
}

static const by_metric metrics[] = {{"f1", true, 4, f1},
                                    {"precision", true, 4, precision_of},
                                    {"recall", true, 4, recall},
                                    {"accuracy", true, 4, accuracy}};

/* ---- predictions ---- */

static by_status predict(by_task_data *data, const by_batch *batch, double sum, const float *values,
                         size_t width, by_predicted *report, void *user, by_error *error)
{
    const by__task_examples *d = (const by__task_examples *)data;
    const by_array *labels = by_batch_array(batch, "labels");
    const int32_t *lengths = by_batch_array(batch, "lengths")->data;
    size_t time = (size_t)labels->shape.dim[1];
    BY_UNUSED(sum);
    for (size_t i = 0; i < batch->batch && lengths[i] > 0; i++) { /* padding comes last */
        const int32_t *first = (const int32_t *)labels->data + i * time;
        by_string tags = {0};
        for (size_t t = 0; t < time; t++) {
            if (first[t] >= 0) {
                size_t best = best_of(values + i * width + t * (width / time), width / time);
                by_string_format(&tags, "%s%s", tags.length == 0 ? "" : " ", d->labels[best]);
            }
        }
        if (tags.failed) {
            by_string_free(&tags);
            return by_error_set(error, BY_EMEMORY, "out of memory: tags");
        }
        const by_field fields[] = {
            {.name = "index", .number = (double)(batch->first_sample + i), .is_whole = true},
            {.name = "tags", .text = tags.data == NULL ? "" : tags.data}};
        report(user, fields, BY_ARRAY_LENGTH(fields));
        by_string_free(&tags);
    }
    return BY_OK;
}

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "cross-entropy (nats per word)";
}

const by__task_row by__task_tag = {
    .kind = {.name = "tag",
             .help = "A class for each word of the texts of a table, such as names in them.",
             .keys = {&by__task_table_data_keys, &by__task_split_keys, &by__task_text_column_keys},
             .size = sizeof(tag_keys),
             .resolve = resolve},
    .task = {.name = "tag",
             .examples = "texts",
             .best_by_metric = true,
             BY__TASK_LEARNS,
             .predict = predict,
             BY__TASK_EXAMPLES},
    .classes = true,
    .texts = true,
    .tags = true};
