/* Drift: whether the requests a model receives still resemble its training data.
 *
 * Three parts. Comparisons of two samples, by the usual statistics as Evidently computes them. A
 * reference: a summary, a few kilobytes in size, of the training data and of predictions on
 * held-out data, stored with the weights (drift_reference.json). And a watch, which counts requests
 * in windows of fixed memory and compares each full window with the reference.
 */
#ifndef BANYAN_DRIFT_H
#define BANYAN_DRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- comparison of samples ---- */

/* Results of comparing two samples. NaN: not defined for this kind of sample. */
typedef struct by_drift_scores {
    double psi;            /* population stability index: sum over bins of (r - c) ln(r / c) */
    double jensen_shannon; /* distance: square root of the divergence, natural logarithm */
    double wasserstein;    /* first-order distance, divided by the reference's standard deviation */
    double ks;             /* Kolmogorov-Smirnov statistic: largest distance between the CDFs */
    double ks_p;           /* its two-sample p-value */
    double chi_squared;    /* of the current counts, with the reference scaled to the same sum */
    double chi_squared_p;  /* its p-value */
} by_drift_scores;

/* Compares two samples of numbers. PSI and Jensen-Shannon use the bins of Sturges' rule over both
 * samples, or the individual values if the reference has at most 20 distinct ones; in PSI an empty
 * bin counts as 0.0001, or as a millionth of the smallest other bin if that is at most 0.0001 (as
 * in Evidently). chi_squared is defined only for bins of individual values. ks_p is exact for
 * samples of up to 10,000 values (by counting lattice paths); above, it is asymptotic with
 * Stephens' correction. Returns BY_EARG if a sample is empty or has a value that is not finite. */
BY_API by_status by_drift_numbers(by_drift_scores *out, const double *reference,
                                  size_t reference_count, const double *current,
                                  size_t current_count, by_error *error);
/* Compares counts of `count` categories. Returns BY_EARG if a count is negative or not finite, or a
 * sample is empty. */
BY_API by_status by_drift_categories(by_drift_scores *out, const double *reference,
                                     const double *current, size_t count, by_error *error);

/* ---- the reference ---- */

/* File name of a reference within a checkpoint. */
#define BY_DRIFT_FILE "drift_reference.json"

/* Summary of the data that a model was trained on. */
typedef struct by_drift_reference by_drift_reference;

/* Type of a feature. */
typedef enum by_drift_kind {
    BY_DRIFT_NUMBER = 0,
    BY_DRIFT_CATEGORY,
    BY_DRIFT_TOKENS /* token ids of a text, which are not independent within a request */
} by_drift_kind;

/* What a feature describes. */
typedef enum by_drift_role {
    BY_DRIFT_INPUT = 0, /* a request */
    BY_DRIFT_OUTCOME,   /* the predicted class or number */
    BY_DRIFT_CONFIDENCE /* the probability of the predicted class */
} by_drift_role;

/* Makes an empty reference for `examples` examples. */
BY_API by_status by_drift_reference_open(by_drift_reference **out, uint64_t examples,
                                         by_error *error);
BY_API void by_drift_reference_close(by_drift_reference **reference);
/* Adds a numeric feature, of which only quantiles, mean and standard deviation are kept. NaN and
 * infinite values count as missing. Returns BY_EARG if there is no finite value or the name is
 * taken. */
BY_API by_status by_drift_reference_number(by_drift_reference *reference, const char *name,
                                           const double *values, size_t count, by_error *error);
/* Adds a categorical feature with the count of each value, of which those that are the same number
 * or truth value ("1.0" and "1") count as one; the 255 most frequent are distinguished.
 * Returns BY_EARG if all counts are 0 or the name is taken. */
BY_API by_status by_drift_reference_category(by_drift_reference *reference, const char *name,
                                             const char *const *values, const uint64_t *counts,
                                             size_t count, uint64_t missing, by_error *error);
/* Adds the token frequencies of text, counts[vocab]; the 255 most frequent tokens are
 * distinguished. Returns BY_EARG as by_drift_reference_category. */
BY_API by_status by_drift_reference_tokens(by_drift_reference *reference, const char *name,
                                           const uint64_t *counts, size_t vocab, by_error *error);
/* Adds a figure about the training data or the model for people to read ("bits_per_byte"). */
BY_API by_status by_drift_reference_value(by_drift_reference *reference, const char *name,
                                          double value, by_error *error);
/* Converts a reference to JSON with a schema version; free the text with free(). Returns BY_EARG if
 * a name or category is not UTF-8 or a number is not finite. */
BY_API by_status by_drift_reference_print(const by_drift_reference *reference, char **out,
                                          by_error *error);
/* Parses text written by by_drift_reference_print; `name` is used in messages. Returns BY_EFORMAT
 * if it is anything else or of a later version. */
BY_API by_status by_drift_reference_parse(by_drift_reference **out, const char *name,
                                          const char *text, size_t length, by_error *error);
/* Reads the reference in a directory of weights. Returns BY_ESTATE if there is none, BY_EFORMAT if
 * it is damaged. */
BY_API by_status by_drift_reference_read(by_drift_reference **out, const char *directory,
                                         by_error *error);
/* Returns the number of features. */
BY_API size_t by_drift_reference_features(const by_drift_reference *reference);
/* Returns the name of a feature, owned by the reference, and sets *kind (may be NULL). */
BY_API const char *by_drift_reference_feature(const by_drift_reference *reference, size_t index,
                                              by_drift_kind *kind);
/* Returns the index of the feature with this name; by_drift_reference_features() if there is
 * none. */
BY_API size_t by_drift_reference_find(const by_drift_reference *reference, const char *name);
/* Returns true if a category is one of those that the reference distinguishes. */
BY_API bool by_drift_reference_has(const by_drift_reference *reference, size_t index,
                                   const char *value);
/* Sets the role of a feature, initially BY_DRIFT_INPUT. Returns BY_EARG if another feature has this
 * role of a prediction, or the kind does not suit it: an outcome is a category or a number, a
 * confidence a number. Several numbers may be outcomes, those of several targets in their order. */
BY_API by_status by_drift_reference_assign(by_drift_reference *reference, size_t index,
                                           by_drift_role role, by_error *error);
/* Returns the role of a feature. */
BY_API by_drift_role by_drift_reference_role(const by_drift_reference *reference, size_t index);
/* Returns the index of the first feature with this role, which is not BY_DRIFT_INPUT;
 * by_drift_reference_features() if there is none. */
BY_API size_t by_drift_reference_predicted(const by_drift_reference *reference, by_drift_role role);

/* ---- windows ---- */

/* Windows of requests. */
typedef struct by_drift_watch by_drift_watch;

/* When and how windows are compared. */
typedef struct by_drift_options {
    size_t requests;  /* requests per window; 0: 500 */
    double seconds;   /* after this time a window is compared even if it is not full; 0: 600 */
    size_t least;     /* minimum of requests for a comparison;
                         0: 100, or `requests` if that is less */
    double threshold; /* of PSI, Jensen-Shannon and Wasserstein; 0: 0.1 */
    double alpha;     /* false-alarm rate: fraction of windows without drift that may alarm;
                         0: 0.0001 */
} by_drift_options;

/* Result for one feature in a window. Fractions are of the values in the window. */
typedef struct by_drift_verdict {
    const char *feature;
    by_drift_kind kind;
    double samples;      /* values, without missing ones */
    double missing;      /* fraction that is missing */
    double unknown;      /* fraction of categories or tokens that the reference does not have */
    double out_of_range; /* fraction of numbers outside the reference's range */
    double psi;
    double jensen_shannon;
    double wasserstein; /* NaN unless numeric */
    double ks;          /* NaN unless numeric */
    double p;           /* p-value of the tests on this feature, with Bonferroni's correction
                           among them */
    /* Divisor of the chi-squared statistic that accounts for the dependence of tokens within a
     * request (Rao and Scott 1981). */
    double design;
    bool detected; /* the feature has drifted */
    bool compared; /* there were enough values; else the figures above say nothing */
} by_drift_verdict;

/* Result of a window. */
typedef struct by_drift_window {
    uint64_t number;                  /* of windows so far, including this one;
                                         0: none has been compared */
    size_t requests;                  /* number of requests in it */
    bool detected;                    /* at least one feature has drifted */
    uint64_t alarms;                  /* windows so far with `detected` */
    const by_drift_verdict *verdicts; /* [count], in the order of the reference's features */
    size_t count;
} by_drift_window;

/* Opens a watch and allocates all of its memory. `options` may be NULL. The reference must outlive
 * it. */
BY_API by_status by_drift_watch_open(by_drift_watch **out, const by_drift_reference *reference,
                                     const by_drift_options *options, by_error *error);
BY_API void by_drift_watch_close(by_drift_watch **watch);
/* These three add values of a feature to the current request. NaN, infinite numbers and NULL count
 * as missing. */
BY_API void by_drift_watch_number(by_drift_watch *watch, size_t feature, double value);
BY_API void by_drift_watch_category(by_drift_watch *watch, size_t feature, const char *value);
BY_API void by_drift_watch_tokens(by_drift_watch *watch, size_t feature, const int32_t *ids,
                                  size_t count);
/* Ends the current request. `now` is the time in seconds of a monotonic clock. Returns true if that
 * completed a window: it has been compared, and the next one begins. */
BY_API bool by_drift_watch_next(by_drift_watch *watch, double now);
/* Ends the last window. Returns true if it had enough requests and has been compared. */
BY_API bool by_drift_watch_end(by_drift_watch *watch);
/* Returns the window compared last, valid until the next one is. */
BY_API const by_drift_window *by_drift_watch_last(const by_drift_watch *watch);
/* Returns the number of requests in the current window. */
BY_API size_t by_drift_watch_filled(const by_drift_watch *watch);
/* Returns the number of requests from which by_drift_watch_end compares a window. */
BY_API size_t by_drift_watch_least(const by_drift_watch *watch);

#ifdef __cplusplus
}
#endif

#endif
