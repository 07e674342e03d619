/* drift: describes what data looked like, and checks whether other data still looks like it.
 *
 * What it is for: distance.c compares two samples or two lists of counts; tail.c computes the
 * distributions behind the p-values; reference.c makes a reference from training data
 * (reference_file.c stores it as JSON); drift_watch.c counts requests in windows, and verdict.c
 * compares each window with the reference.
 *
 * Types: a by_drift_reference keeps up to 64 quantile bins of a number, and the most frequent
 * categories and tokens. A window is therefore just an array of counters (by__drift_counts) for any
 * kind of feature, and two windows of the same reference can be added.
 *
 * Who owns what: a reference owns its features and must outlive every watch on it; a watch
 * allocates all its memory when it is opened.
 *
 * Never put here: sources of data (train, serve), output of results (cli, metrics). */
#ifndef BY_DRIFT_DRIFT_H
#define BY_DRIFT_DRIFT_H

#include "banyan/drift.h"
#include "base/base.h"
#include "base/name_table.h"
#include "base/same_value.h"

/* Bins of a number, and the groups of bins that PSI and chi-squared are computed over. */
#define BY__DRIFT_BINS   64
#define BY__DRIFT_GROUPS 10
/* Categories, or tokens, with their own bins; all others share one. */
#define BY__DRIFT_KEPT 255
/* Parts of a window, from which the variance of token counts is estimated. */
#define BY__DRIFT_BLOCKS 32

typedef struct by__drift_feature {
    char *name;
    by_drift_kind kind;
    by_drift_role role;
    double rows;    /* values that are present */
    double missing; /* values that are not */
    double *counts; /* [bins], over the rows */
    size_t bins;
    /* Numbers: bin i holds edges[i - 1] < x <= edges[i]; bins = edge_count + 1. */
    double *edges;
    size_t edge_count;
    double mean;
    double deviation;
    /* Categories, sorted, and tokens, ascending; the last bin holds all others. */
    char **values;
    by__aliases aliases; /* of the values */
    int32_t *ids;
    size_t kept;
    size_t distinct; /* number of different categories or tokens in the data */
} by__drift_feature;

typedef struct by__drift_value {
    char *name;
    double value;
} by__drift_value;

struct by_drift_reference {
    uint64_t examples;
    by__drift_feature *features;
    size_t count;
    size_t capacity;
    by__name_table by_name; /* indices of features */
    by__drift_value *values;
    size_t value_count;
    size_t value_capacity;
};

/* ---- tails of distributions (tail.c) ---- */

/* P(X >= x) of the chi-squared distribution with `degrees` > 0 degrees of freedom. */
double by__drift_chi_squared_tail(double x, double degrees);
/* P(sup |F_m - F_n| >= d) for two samples of one continuous distribution: the limit for large
 * samples with Stephens' correction; en = m n / (m + n). */
double by__drift_kolmogorov_tail(double d, double en);
/* The same probability, exact. */
by_status by__drift_kolmogorov_exact(double *out, double d, size_t m, size_t n, by_error *error);

/* ---- distances of counts (distance.c) ---- */

double by__drift_distance_psi(const double *reference, const double *current, size_t count);
double by__drift_distance_jensen_shannon(const double *reference, const double *current,
                                         size_t count);

/* ---- features (reference.c) ---- */

/* Appends a feature of this name to the list; the caller fills its arrays. */
by_status by__drift_feature_add(by_drift_reference *r, by__drift_feature **out, const char *name,
                                by_drift_kind kind, by_error *error);
/* Returns a named figure of the training data, or NaN if it is not kept. */
double by__drift_value_of(const by_drift_reference *r, const char *name);
/* Prepares the search for the values of a category, which are complete. */
by_status by__drift_index_values(by__drift_feature *f, by_error *error);
/* Return the bin of a value. */
size_t by__drift_bin_number(const by__drift_feature *f, double value);
size_t by__drift_bin_category(const by__drift_feature *f, const char *value);
size_t by__drift_bin_token(const by__drift_feature *f, int32_t id);

/* ---- a window (verdict.c) ---- */

/* The counters of one feature in a window. */
typedef struct by__drift_counts {
    double *counts; /* [bins] */
    double rows;
    double missing;
    double unknown;
    double below;
    double above;
    double requests; /* of tokens: requests that have some */
    double *blocks;  /* of tokens: [BY__DRIFT_BLOCKS, bins], counts of every 32nd request */
} by__drift_counts;

/* Scratch memory of a verdict, for features of up to BY__DRIFT_KEPT + 1 bins. Bins that are
 * compared together form a group. */
typedef struct by__drift_groups {
    double reference[BY__DRIFT_KEPT + 3];
    double current[BY__DRIFT_KEPT + 3];
    size_t group_of[BY__DRIFT_KEPT + 3]; /* of a bin */
    size_t count;
    double unseen; /* share of values, beyond what is usual, that are not known or rare; 0: not
                      known */
    double blocks[BY__DRIFT_BLOCKS][BY__DRIFT_KEPT + 3]; /* counts of groups, then residuals */
} by__drift_groups;

void by__drift_judge(by_drift_verdict *out, const by__drift_feature *feature,
                     const by__drift_counts *window, const by_drift_options *options,
                     size_t features, by__drift_groups *groups);

#endif
