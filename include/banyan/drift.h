/* Drift: does what a model is asked still look like what it was trained on?
 *
 * Three parts. Comparisons of two samples, as statistics defines them and as Evidently computes
 * them. A reference: what training data, and predictions of what is held out, looked like, in a few
 * kilobytes that are kept with the weights (drift_reference.json). And a watch: requests are
 * counted in windows of fixed memory, and each full window is compared with the reference.
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

/* ---- comparisons of two samples ---- */

/* NaN: not defined for this kind of sample. */
typedef struct by_drift_scores {
    double psi;            /* population stability index, sum of (r - c) ln(r / c) over bins */
    double jensen_shannon; /* the distance: root of the divergence, natural logarithm */
    double wasserstein;    /* first distance, divided by the reference's standard deviation */
    double ks;             /* Kolmogorov-Smirnov statistic: largest distance of the two CDFs */
    double ks_p;           /* its p-value for two samples */
    double chi_squared;    /* of the current counts, the reference scaled to their sum */
    double chi_squared_p;
} by_drift_scores;

/* Compares two samples of numbers; both must be finite and not empty. PSI and Jensen-Shannon are
 * taken over the bins of Sturges' rule on both samples, or over the values where the reference has
 * at most 20 different ones; an empty bin counts 0.0001 in the PSI, or a millionth of the smallest
 * other where that is at most 0.0001 (as Evidently has it). chi_squared only where there are bins
 * of values. ks_p is exact up to 10,000 values a sample (the share of lattice paths that leave the
 * corridor), and of the limiting distribution with Stephens' correction above. BY_EARG: a sample is
 * empty or has a value that is not finite. */
BY_API by_status by_drift_numbers(by_drift_scores *out, const double *reference,
                                  size_t reference_count, const double *current,
                                  size_t current_count, by_error *error);
/* Compares counts of `count` categories. BY_EARG: a count is negative or not finite, or a sample is
 * empty. */
BY_API by_status by_drift_categories(by_drift_scores *out, const double *reference,
                                     const double *current, size_t count, by_error *error);

/* ---- the reference ---- */

/* Its file among those of a checkpoint. */
#define BY_DRIFT_FILE "drift_reference.json"

typedef struct by_drift_reference by_drift_reference;

typedef enum by_drift_kind {
    BY_DRIFT_NUMBER = 0,
    BY_DRIFT_CATEGORY,
    BY_DRIFT_TOKENS /* of text: ids that follow each other in a request depend on each other */
} by_drift_kind;

/* What a feature is of: of requests, or of what the model says to them. */
typedef enum by_drift_role {
    BY_DRIFT_INPUT = 0,
    BY_DRIFT_OUTCOME,   /* the class, or the number, that is predicted */
    BY_DRIFT_CONFIDENCE /* the probability of that class */
} by_drift_role;

/* An empty reference of `examples` examples. */
BY_API by_status by_drift_reference_open(by_drift_reference **out, uint64_t examples,
                                         by_error *error);
BY_API void by_drift_reference_close(by_drift_reference **reference);
/* Adds a feature from values that it copies nothing of but quantiles, mean and deviation. NaN:
 * missing; infinite values count as missing too. BY_EARG: no value is there, or the name is taken.
 */
BY_API by_status by_drift_reference_number(by_drift_reference *reference, const char *name,
                                           const double *values, size_t count, by_error *error);
/* Adds a feature of categories with their counts; the 255 most frequent are told apart. */
BY_API by_status by_drift_reference_category(by_drift_reference *reference, const char *name,
                                             const char *const *values, const uint64_t *counts,
                                             size_t count, uint64_t missing, by_error *error);
/* Adds unigrams of tokens: counts[vocab]; the 255 most frequent are told apart. */
BY_API by_status by_drift_reference_tokens(by_drift_reference *reference, const char *name,
                                           const uint64_t *counts, size_t vocab, by_error *error);
/* A figure about the training data or the model that is kept for people ("bits_per_byte"). */
BY_API by_status by_drift_reference_value(by_drift_reference *reference, const char *name,
                                          double value, by_error *error);
/* As JSON text with a schema version, freed with free(), and back; `name` is for messages.
 * Printing: BY_EARG where a name or a value is not UTF-8 or a number is not finite. Parsing:
 * BY_EFORMAT where the text is not what by_drift_reference_print writes, or of a later version. */
BY_API by_status by_drift_reference_print(const by_drift_reference *reference, char **out,
                                          by_error *error);
BY_API by_status by_drift_reference_parse(by_drift_reference **out, const char *name,
                                          const char *text, size_t length, by_error *error);
/* The reference in a directory of weights. BY_ESTATE: there is none. */
BY_API by_status by_drift_reference_read(by_drift_reference **out, const char *directory,
                                         by_error *error);
BY_API size_t by_drift_reference_features(const by_drift_reference *reference);
/* Name and kind of a feature; the name lives as long as the reference. */
BY_API const char *by_drift_reference_feature(const by_drift_reference *reference, size_t index,
                                              by_drift_kind *kind);
/* Index of a name; by_drift_reference_features() where there is none. */
BY_API size_t by_drift_reference_find(const by_drift_reference *reference, const char *name);
/* Says what a feature is of; until then, of requests. BY_EARG: another feature has this role of
 * predictions, or the kind is not that of the role: a category or a number is predicted, and a
 * confidence is a number. */
BY_API by_status by_drift_reference_assign(by_drift_reference *reference, size_t index,
                                           by_drift_role role, by_error *error);
BY_API by_drift_role by_drift_reference_role(const by_drift_reference *reference, size_t index);
/* Index of the feature with a role of predictions; by_drift_reference_features(): none has it. */
BY_API size_t by_drift_reference_predicted(const by_drift_reference *reference, by_drift_role role);

/* ---- windows ---- */

typedef struct by_drift_watch by_drift_watch;

typedef struct by_drift_options {
    size_t requests;  /* of a window; 0: 500 */
    double seconds;   /* after which a window is compared with fewer; 0: 600 */
    size_t least;     /* requests below which nothing is compared; 0: 100, or `requests` if less */
    double threshold; /* of PSI, Jensen-Shannon and Wasserstein; 0: 0.1 */
    double alpha;     /* share of windows without drift in which any feature may alarm; 0: 0.0001 */
} by_drift_options;

/* What a window says of a feature. Shares are of the requests in it. */
typedef struct by_drift_verdict {
    const char *feature;
    by_drift_kind kind;
    double samples;      /* values, without those that are missing */
    double missing;      /* share of values */
    double unknown;      /* share: categories that the reference does not have */
    double out_of_range; /* share: numbers below or above all of the reference */
    double psi;
    double jensen_shannon;
    double wasserstein; /* NaN: no numbers */
    double ks;          /* NaN: no numbers */
    double p;           /* of the tests on this feature, Bonferroni's correction within it */
    double design;      /* by what the chi-squared statistic was divided: tokens of a request
                           depend on each other (Rao and Scott, 1981) */
    bool detected;
} by_drift_verdict;

typedef struct by_drift_window {
    uint64_t number;                  /* of windows so far, this one included; 0: none is full */
    size_t requests;                  /* in it */
    bool detected;                    /* some feature is */
    uint64_t alarms;                  /* windows so far in which one was */
    const by_drift_verdict *verdicts; /* [count], in the order of the reference's features */
    size_t count;
} by_drift_window;

/* The reference must outlive the watch. `options` may be NULL. All memory is taken here. */
BY_API by_status by_drift_watch_open(by_drift_watch **out, const by_drift_reference *reference,
                                     const by_drift_options *options, by_error *error);
BY_API void by_drift_watch_close(by_drift_watch **watch);
/* Values of the request that is being counted, by index of the feature. NaN and NULL: missing. */
BY_API void by_drift_watch_number(by_drift_watch *watch, size_t feature, double value);
BY_API void by_drift_watch_category(by_drift_watch *watch, size_t feature, const char *value);
BY_API void by_drift_watch_tokens(by_drift_watch *watch, size_t feature, const int32_t *ids,
                                  size_t count);
/* The request ends. `now`: seconds of a clock that never steps back. True: the window was full, has
 * been compared, and the next one begins. */
BY_API bool by_drift_watch_next(by_drift_watch *watch, double now);
/* No more requests come: compares what is there, if it is enough. */
BY_API bool by_drift_watch_end(by_drift_watch *watch);
/* The window that was compared last; valid until the next one is. */
BY_API const by_drift_window *by_drift_watch_last(const by_drift_watch *watch);
/* Requests in the window that is being filled. */
BY_API size_t by_drift_watch_filled(const by_drift_watch *watch);

#ifdef __cplusplus
}
#endif

#endif
