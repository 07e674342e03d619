/* Classifies texts: a matrix times the last hidden state of the last token. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "infer/infer.h"

struct by_classifier {
    by_embed *embed;
    by__infer_labels labels;
    int64_t batch;
    float *score;         /* [labels, width] */
    float *values;        /* [batch, labels] */
    by_embed_text *texts; /* [batch], without padding */
};

/* Reads the head's matrix, f32 [*count, width]. */
static by_status read_score(float **out, int64_t *count, const by_weights *weights, int64_t width,
                            by_error *error)
{
    by_tensor_view score;
    size_t elements;
    const char *path = by_weights_path(weights);
    if (!by_weights_has(weights, BY__SCORE)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s has no tensor '" BY__SCORE
                            "': expected a ...ForSequenceClassification model of transformers",
                            path);
    }
    BY_TRY(by_weights_tensor(weights, BY__SCORE, &score, error));
    BY_TRY(by_tensor_size(&score, &elements, NULL, error));
    if (score.rank != 2 || score.shape[0] < 1 || score.shape[1] != width) {
        const int64_t *n = score.shape;
        return by_error_set(error, BY_EFORMAT,
                            "%s: tensor '" BY__SCORE "' has %d axes [%lld, %lld]; the model needs "
                            "[labels, %lld]",
                            path, score.rank, (long long)(score.rank > 0 ? n[0] : 1),
                            (long long)(score.rank > 1 ? n[1] : 1), (long long)width);
    }
    BY_TRY(by__alloc((void **)out, elements, sizeof **out, BY__SCORE, error));
    *count = score.shape[0];
    return by_tensor_read_f32(&score, *out, elements, error);
}

static by_status read_labels(by__infer_labels *out, int64_t count, const by_weights *weights,
                             by_error *error)
{
    const char *json = by_weights_config(weights);
    char *name = by__path_join(by_weights_path(weights), "config.json");
    if (name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    by_status status = json == NULL
                           ? by_error_set(error, BY_EFORMAT, "%s is missing", name)
                           : by__infer_labels_read(out, count, name, json, strlen(json), error);
    free(name);
    return status;
}

static by_status set_up(by_classifier *c, const by_config *config, const by_weights *weights,
                        const by_embed_options *options, by_error *error)
{
    int64_t count = 0;
    size_t batch = (size_t)c->batch;
    BY_TRY(read_score(&c->score, &count, weights, config->model.width, error));
    BY_TRY(read_labels(&c->labels, count, weights, error));
    BY_TRY(by_embed_open(&c->embed, config, weights, options, error));
    BY_TRY(by__alloc((void **)&c->texts, batch, sizeof *c->texts, "texts", error));
    return by__alloc((void **)&c->values, batch, (size_t)count * sizeof *c->values, "values",
                     error);
}

by_status by_classifier_open(by_classifier **out, const by_config *config,
                             const by_weights *weights, const by_embed_options *options,
                             by_error *error)
{
    by_classifier *c;
    by_embed_options o = {0};
    o = options == NULL ? o : *options;
    o.pooling = BY_POOL_LAST;
    o.normalize = false;
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "a classifier", error));
    c->batch = o.batch < 1 ? 1 : o.batch;
    by_status status = set_up(c, config, weights, &o, error);
    if (status != BY_OK) {
        by_classifier_close(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

void by_classifier_close(by_classifier **classifier)
{
    if (classifier == NULL || *classifier == NULL) {
        return;
    }
    by_classifier *c = *classifier;
    by_embed_close(&c->embed);
    by__infer_labels_close(&c->labels);
    free(c->score);
    free(c->values);
    free(c->texts);
    free(c);
    *classifier = NULL;
}

/* Sums in double, in the order of the elements. */
static by_status multiply(const by_classifier *c, const float *vector, float *values,
                          by_error *error)
{
    int64_t width = by_embed_width(c->embed);
    for (int64_t i = 0; i < c->labels.count; i++) {
        double sum = 0.0;
        for (int64_t k = 0; k < width; k++) {
            sum += (double)c->score[i * width + k] * (double)vector[k];
        }
        values[i] = (float)sum;
        if (!isfinite(values[i])) {
            return by_error_set(error, BY_ESTATE,
                                "the output for label '%s' is %g: the weights of '" BY__SCORE
                                "' are not usable",
                                c->labels.names[i], (double)values[i]);
        }
    }
    return BY_OK;
}

static void softmax(float *values, int64_t count)
{
    float most = values[0];
    double sum = 0.0;
    for (int64_t i = 1; i < count; i++) {
        most = values[i] > most ? values[i] : most;
    }
    for (int64_t i = 0; i < count; i++) {
        sum += exp((double)values[i] - (double)most);
    }
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)(exp((double)values[i] - (double)most) / sum);
    }
}

static void sigmoid(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)(1.0 / (1.0 + exp(-(double)values[i])));
    }
}

by_status by_classifier_run(by_classifier *c, const by_embed_text *texts, size_t count,
                            const float **out, by_error *error)
{
    const float *vectors;
    int64_t width = by_embed_width(c->embed);
    int64_t labels = c->labels.count;
    for (size_t t = 0; t < count && t < (size_t)c->batch; t++) {
        by_embed_text text = texts[t];
        while (text.count > 1 && text.tokens[text.count - 1] == c->labels.pad) {
            text.count--;
        }
        c->texts[t] = text;
    }
    BY_TRY(by_embed_run_batch(c->embed, c->texts, count, &vectors, error));
    for (size_t t = 0; t < count; t++) {
        float *values = c->values + t * (size_t)labels;
        BY_TRY(multiply(c, vectors + t * (size_t)width, values, error));
        if (c->labels.problem == BY_PROBLEM_SINGLE) {
            softmax(values, labels);
        } else if (c->labels.problem == BY_PROBLEM_MULTI) {
            sigmoid(values, labels);
        }
    }
    *out = c->values;
    return BY_OK;
}

by_status by_classifier_check(const by_classifier *classifier, size_t count, by_error *error)
{
    return by_embed_check(classifier->embed, count, error);
}

by_problem by_classifier_problem(const by_classifier *classifier)
{
    return classifier->labels.problem;
}

int64_t by_classifier_labels(const by_classifier *classifier)
{
    return classifier->labels.count;
}

const char *by_classifier_label(const by_classifier *classifier, int64_t i)
{
    return classifier->labels.names[i];
}
