/* How good a classifier is: tables and curves of what it says of examples whose class is known.
 *
 * All numbers are those of scikit-learn's functions of the same meaning, with the examples' weights
 * as sample_weight: confusion_matrix, precision_recall_fscore_support, roc_curve and auc,
 * precision_recall_curve and average_precision_score, calibration_curve. */
#ifndef BANYAN_SCORES_H
#define BANYAN_SCORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Examples with their classes and the probabilities that a model gives to each class. */
typedef struct by_scores by_scores;

/* Opens an empty list for `classes` >= 2 classes. */
BY_API by_status by_scores_open(by_scores **out, size_t classes, by_error *error);
BY_API void by_scores_close(by_scores **scores);
/* Adds an example of class `of_class` by the model's logits [classes], whose softmax is the
 * probabilities. Returns BY_EARG if the class is none or the weight is not positive and finite,
 * BY_EFORMAT if a logit is not finite. */
BY_API by_status by_scores_add(by_scores *scores, int64_t of_class, const float *logits,
                               double weight, by_error *error);
/* Returns the number of examples. */
BY_API size_t by_scores_count(const by_scores *scores);
/* Returns the class with the largest probability of an example, the lowest of equal ones, and its
 * probability in *probability, which may be NULL. */
BY_API size_t by_scores_said(const by_scores *scores, size_t example, double *probability);

/* Computes the confusion matrix [classes, classes]: the weight of the examples of class `row` that
 * are taken for class `column`. */
BY_API void by_scores_confusion(const by_scores *scores, double *out);

/* Of one class. A quotient by zero is 0. */
typedef struct by_class_score {
    double precision;
    double recall; /* the accuracy over the examples of the class */
    double f1;
    double support; /* weight of its examples */
} by_class_score;

/* Computes the scores of all classes, [classes]. Returns BY_EMEMORY. */
BY_API by_status by_scores_classes(const by_scores *scores, by_class_score *out, by_error *error);

/* A curve over all thresholds of a probability, from the highest on. */
typedef struct by_score_curve {
    double *x;
    double *y;
    size_t count;
    double area; /* under it; NaN: there are no examples of the class, or of others */
} by_score_curve;

/* All classes together: each pair of an example and a class is an example (micro average). */
#define BY_SCORES_ALL SIZE_MAX

/* Computes true-positive rate (y) over false-positive rate (x) of a class against all others, with
 * the area under the curve by trapezoids. Release it with by_score_curve_free. */
BY_API by_status by_scores_roc(by_score_curve *out, const by_scores *scores, size_t of_class,
                               by_error *error);
/* Computes precision (y) over recall (x), from recall 0 with precision 1 on; the area is the
 * average precision: the sum of the precisions, each times the recall that it adds. */
BY_API by_status by_scores_precision_recall(by_score_curve *out, const by_scores *scores,
                                            size_t of_class, by_error *error);
BY_API void by_score_curve_free(by_score_curve *curve);

/* Examples whose largest probability is in a range. */
typedef struct by_calibration_bin {
    double weight;     /* of them; 0: the others are 0 */
    double confidence; /* mean of the largest probabilities */
    double accuracy;   /* share of which the class is right */
} by_calibration_bin;

/* Computes `count` bins of equal width, the k-th of which has probabilities above k / count and up
 * to (k + 1) / count, and the expected calibration error in
 * *expected_error: the mean distance of
 * confidence and accuracy, by the weights of the bins (Guo et al. 2017, equation 3). */
BY_API void by_scores_calibration(const by_scores *scores, size_t count, by_calibration_bin *out,
                                  double *expected_error);

#ifdef __cplusplus
}
#endif
#endif
