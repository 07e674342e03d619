#include "banyan/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define FIRST_CAPACITY 256

struct by_scores {
    size_t classes;
    size_t count;
    size_t capacity;
    double *probabilities; /* [capacity, classes] */
    double *weights;       /* [capacity] */
    size_t *truth;         /* [capacity] */
};

by_status by_scores_open(by_scores **out, size_t classes, by_error *error)
{
    by_scores *s;
    if (classes < 2) {
        return by_error_set(error, BY_EARG, "scores of %zu classes: at least 2", classes);
    }
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "scores", error));
    s->classes = classes;
    *out = s;
    return BY_OK;
}

void by_scores_close(by_scores **scores)
{
    by_scores *s = *scores;
    if (s != NULL) {
        free(s->probabilities);
        free(s->weights);
        free(s->truth);
        free(s);
        *scores = NULL;
    }
}

static by_status copy_larger(void **array, size_t count, size_t capacity, size_t bytes,
                             by_error *error)
{
    void *larger;
    BY_TRY(by__alloc(&larger, capacity, bytes, "scores", error));
    if (count > 0) {
        memcpy(larger, *array, count * bytes);
    }
    free(*array);
    *array = larger;
    return BY_OK;
}

static by_status grow(by_scores *s, by_error *error)
{
    size_t capacity = s->capacity == 0 ? FIRST_CAPACITY : 2 * s->capacity;
    size_t row = s->classes * sizeof *s->probabilities;
    if (s->count < s->capacity) {
        return BY_OK;
    }
    BY_TRY(copy_larger((void **)&s->probabilities, s->count, capacity, row, error));
    BY_TRY(copy_larger((void **)&s->weights, s->count, capacity, sizeof *s->weights, error));
    BY_TRY(copy_larger((void **)&s->truth, s->count, capacity, sizeof *s->truth, error));
    s->capacity = capacity;
    return BY_OK;
}

by_status by_scores_add(by_scores *s, int64_t of_class, const float *logits, double weight,
                        by_error *error)
{
    double most = -INFINITY;
    double sum = 0.0;
    if (of_class < 0 || (uint64_t)of_class >= s->classes || !(weight > 0.0 && weight < INFINITY)) {
        return by_error_set(error, BY_EARG,
                            "an example of class %lld with weight %g, of %zu classes",
                            (long long)of_class, weight, s->classes);
    }
    for (size_t c = 0; c < s->classes; c++) {
        if (!isfinite(logits[c])) {
            return by_error_set(error, BY_EFORMAT,
                                "example %zu: the model's output of class %zu is %g", s->count, c,
                                (double)logits[c]);
        }
        most = fmax(most, (double)logits[c]);
    }
    BY_TRY(grow(s, error));
    double *row = s->probabilities + s->count * s->classes;
    for (size_t c = 0; c < s->classes; c++) {
        row[c] = exp((double)logits[c] - most);
        sum += row[c];
    }
    for (size_t c = 0; c < s->classes; c++) {
        row[c] /= sum;
    }
    s->weights[s->count] = weight;
    s->truth[s->count] = (size_t)of_class;
    s->count++;
    return BY_OK;
}

size_t by_scores_count(const by_scores *scores)
{
    return scores->count;
}

size_t by_scores_said(const by_scores *s, size_t example, double *probability)
{
    const double *row = s->probabilities + example * s->classes;
    size_t best = 0;
    for (size_t c = 1; c < s->classes; c++) {
        best = row[c] > row[best] ? c : best;
    }
    if (probability != NULL) {
        *probability = row[best];
    }
    return best;
}

/* ---- tables ---- */

void by_scores_confusion(const by_scores *s, double *out)
{
    memset(out, 0, s->classes * s->classes * sizeof *out);
    for (size_t i = 0; i < s->count; i++) {
        out[s->truth[i] * s->classes + by_scores_said(s, i, NULL)] += s->weights[i];
    }
}

static double quotient(double a, double b)
{
    return b > 0.0 ? a / b : 0.0;
}

by_status by_scores_classes(const by_scores *s, by_class_score *out, by_error *error)
{
    double *right;
    double *said;
    BY_TRY(by__alloc((void **)&right, 2 * s->classes, sizeof *right, "scores", error));
    said = right + s->classes;
    memset(out, 0, s->classes * sizeof *out);
    for (size_t i = 0; i < s->count; i++) {
        size_t of_class = by_scores_said(s, i, NULL);
        said[of_class] += s->weights[i];
        out[s->truth[i]].support += s->weights[i];
        right[of_class] += of_class == s->truth[i] ? s->weights[i] : 0.0;
    }
    for (size_t c = 0; c < s->classes; c++) {
        out[c].precision = quotient(right[c], said[c]);
        out[c].recall = quotient(right[c], out[c].support);
        out[c].f1 = quotient(2.0 * right[c], said[c] + out[c].support);
    }
    free(right);
    return BY_OK;
}

/* ---- curves ---- */

/* An example as a curve sees it. */
typedef struct ranked_example {
    double score;
    double positive; /* its weight if it is of the class, else 0 */
    double negative;
} ranked_example;

static int compare_scores(const void *a, const void *b)
{
    double x = ((const ranked_example *)a)->score;
    double y = ((const ranked_example *)b)->score;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The examples by descending score. */
static by_status rank_examples(ranked_example **out, size_t *count, const by_scores *s,
                               size_t of_class, by_error *error)
{
    size_t width = of_class == BY_SCORES_ALL ? s->classes : 1;
    if (of_class != BY_SCORES_ALL && of_class >= s->classes) {
        return by_error_set(error, BY_EARG, "a curve of class %zu, of %zu", of_class, s->classes);
    }
    if (s->count > SIZE_MAX / width) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a curve");
    }
    BY_TRY(by__alloc((void **)out, s->count * width, sizeof **out, "a curve", error));
    for (size_t i = 0; i < s->count; i++) {
        for (size_t k = 0; k < width; k++) {
            size_t c = of_class == BY_SCORES_ALL ? k : of_class;
            bool positive = s->truth[i] == c;
            (*out)[i * width + k] = (ranked_example){.score = s->probabilities[i * s->classes + c],
                                                     .positive = positive ? s->weights[i] : 0.0,
                                                     .negative = positive ? 0.0 : s->weights[i]};
        }
    }
    *count = s->count * width;
    qsort(*out, *count, sizeof **out, compare_scores);
    return BY_OK;
}

/* Sums up to each threshold: examples of one score are taken together. [*count] each; the sums are
 * exact where all weights are whole. */
static size_t sum_up(ranked_example *examples, size_t count)
{
    size_t used = 0;
    double positive = 0.0;
    double negative = 0.0;
    for (size_t i = 0; i < count; i++) {
        positive += examples[i].positive;
        negative += examples[i].negative;
        if (i + 1 == count || examples[i + 1].score < examples[i].score) {
            examples[used++] = (ranked_example){
                .score = examples[i].score, .positive = positive, .negative = negative};
        }
    }
    return used;
}

/* Opens a curve with room for the thresholds and one point before them. */
static by_status open_curve(by_score_curve *out, ranked_example **sums, const by_scores *s,
                            size_t of_class, by_error *error)
{
    size_t count;
    *out = (by_score_curve){.area = 0.0};
    BY_TRY(rank_examples(sums, &count, s, of_class, error));
    count = sum_up(*sums, count);
    by_status status = by__alloc((void **)&out->x, count + 1, sizeof *out->x, "a curve", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&out->y, count + 1, sizeof *out->y, "a curve", error);
    }
    if (status != BY_OK) {
        by_score_curve_free(out);
        free(*sums);
        return status;
    }
    out->count = count + 1;
    return BY_OK;
}

by_status by_scores_roc(by_score_curve *out, const by_scores *s, size_t of_class, by_error *error)
{
    ranked_example *sums;
    BY_TRY(open_curve(out, &sums, s, of_class, error));
    size_t last = out->count - 1;
    double positive = last > 0 ? sums[last - 1].positive : 0.0;
    double negative = last > 0 ? sums[last - 1].negative : 0.0;
    for (size_t i = 1; i <= last; i++) {
        out->x[i] = sums[i - 1].negative / negative;
        out->y[i] = sums[i - 1].positive / positive;
        out->area += (out->x[i] - out->x[i - 1]) * (out->y[i] + out->y[i - 1]) / 2.0;
    }
    out->area = positive > 0.0 && negative > 0.0 ? out->area : (double)NAN;
    free(sums);
    return BY_OK;
}

by_status by_scores_precision_recall(by_score_curve *out, const by_scores *s, size_t of_class,
                                     by_error *error)
{
    ranked_example *sums;
    BY_TRY(open_curve(out, &sums, s, of_class, error));
    size_t last = out->count - 1;
    double positive = last > 0 ? sums[last - 1].positive : 0.0;
    out->y[0] = 1.0;
    for (size_t i = 1; i <= last; i++) {
        const ranked_example *sum = &sums[i - 1];
        out->x[i] = sum->positive / positive;
        out->y[i] = sum->positive / (sum->positive + sum->negative);
        out->area += (out->x[i] - out->x[i - 1]) * out->y[i];
    }
    out->area = positive > 0.0 ? out->area : (double)NAN;
    free(sums);
    return BY_OK;
}

void by_score_curve_free(by_score_curve *curve)
{
    free(curve->x);
    free(curve->y);
    *curve = (by_score_curve){0};
}

/* ---- calibration ---- */

/* The bin of a probability: that whose upper end is the first not below it. */
static size_t bin_of(double probability, size_t count)
{
    size_t bin = 0;
    while (bin + 1 < count && probability > (double)(bin + 1) / (double)count) {
        bin++;
    }
    return bin;
}

void by_scores_calibration(const by_scores *s, size_t count, by_calibration_bin *out,
                           double *expected_error)
{
    double all = 0.0;
    memset(out, 0, count * sizeof *out);
    for (size_t i = 0; i < s->count; i++) {
        double probability;
        size_t said = by_scores_said(s, i, &probability);
        by_calibration_bin *bin = &out[bin_of(probability, count)];
        bin->weight += s->weights[i];
        bin->confidence += s->weights[i] * probability;
        bin->accuracy += said == s->truth[i] ? s->weights[i] : 0.0;
        all += s->weights[i];
    }
    *expected_error = 0.0;
    for (size_t i = 0; i < count; i++) {
        if (out[i].weight > 0.0) {
            out[i].confidence /= out[i].weight;
            out[i].accuracy /= out[i].weight;
            *expected_error += out[i].weight / all * fabs(out[i].confidence - out[i].accuracy);
        }
    }
}
