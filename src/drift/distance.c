/* Compares two samples the way Evidently and SciPy do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drift/drift.h"

/* Larger samples use the asymptotic distribution, as in scipy.stats.ks_2samp. */
#define MAX_EXACT 10000
/* Each different value of the reference gets its own bin if there are at most this many. */
#define FEW 20

static double sum_of(const double *values, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return sum;
}

/* Returns the share that replaces that of an empty bin. */
static double filler(const double *counts, size_t count, double sum)
{
    double least = 1.0;
    for (size_t i = 0; i < count; i++) {
        if (counts[i] > 0.0 && counts[i] / sum < least) {
            least = counts[i] / sum;
        }
    }
    return least <= 1e-4 ? least / 1e6 : 1e-4;
}

double by__drift_distance_psi(const double *reference, const double *current, size_t count)
{
    double reference_sum = sum_of(reference, count);
    double current_sum = sum_of(current, count);
    double reference_empty = filler(reference, count, reference_sum);
    double current_empty = filler(current, count, current_sum);
    double psi = 0.0;
    for (size_t i = 0; i < count; i++) {
        double r = reference[i] > 0.0 ? reference[i] / reference_sum : reference_empty;
        double c = current[i] > 0.0 ? current[i] / current_sum : current_empty;
        psi += (r - c) * log(r / c);
    }
    return psi;
}

double by__drift_distance_jensen_shannon(const double *reference, const double *current,
                                         size_t count)
{
    double reference_sum = sum_of(reference, count);
    double current_sum = sum_of(current, count);
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        double r = reference[i] / reference_sum;
        double c = current[i] / current_sum;
        double mean = (r + c) / 2.0;
        sum += (r > 0.0 ? r * log(r / mean) : 0.0) + (c > 0.0 ? c * log(c / mean) : 0.0);
    }
    return sqrt(fmax(sum, 0.0) / 2.0);
}

/* Pearson's statistic of the current counts; infinite if they have values where the reference has
 * none. */
static double chi_squared(const double *reference, const double *current, size_t count)
{
    double scale = sum_of(current, count) / sum_of(reference, count);
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        double expected = reference[i] * scale;
        double away = current[i] - expected;
        sum += away == 0.0 ? 0.0 : away * away / expected;
    }
    return sum;
}

static void compare_counts(by_drift_scores *out, const double *reference, const double *current,
                           size_t count)
{
    out->psi = by__drift_distance_psi(reference, current, count);
    out->jensen_shannon = by__drift_distance_jensen_shannon(reference, current, count);
}

static void compare_chi_squared(by_drift_scores *out, const double *reference,
                                const double *current, size_t count)
{
    out->chi_squared = chi_squared(reference, current, count);
    out->chi_squared_p =
        count > 1 ? by__drift_chi_squared_tail(out->chi_squared, (double)count - 1.0) : 1.0;
}

by_status by_drift_categories(by_drift_scores *out, const double *reference, const double *current,
                              size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (!(reference[i] >= 0.0 && current[i] >= 0.0 && isfinite(reference[i] + current[i]))) {
            return by_error_set(error, BY_EARG, "category %zu: counts must be at least 0", i);
        }
    }
    if (!(sum_of(reference, count) > 0.0 && sum_of(current, count) > 0.0)) {
        return by_error_set(error, BY_EARG, "a sample is empty: nothing can be compared");
    }
    *out = (by_drift_scores){.wasserstein = NAN, .ks = NAN, .ks_p = NAN};
    compare_counts(out, reference, current, count);
    compare_chi_squared(out, reference, current, count);
    return BY_OK;
}

/* ---- numbers ---- */

static by_status sorted_copy(double **out, const double *values, size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) {
            return by_error_set(error, BY_EARG, "value %zu is not finite; leave it out", i);
        }
    }
    if (count == 0) {
        return by_error_set(error, BY_EARG, "a sample is empty: nothing can be compared");
    }
    BY_TRY(by__alloc((void **)out, count, sizeof **out, "a sample", error));
    memcpy(*out, values, count * sizeof **out);
    qsort(*out, count, sizeof **out, by__compare_doubles);
    return BY_OK;
}

static size_t count_distinct(const double *sorted, size_t count)
{
    size_t distinct = 1;
    for (size_t i = 1; i < count; i++) {
        distinct += sorted[i] != sorted[i - 1];
    }
    return distinct;
}

/* Compares both CDFs in one pass over the values: their largest distance, and the area between
 * them. */
static void compare_cdfs(by_drift_scores *out, const double *a, size_t m, const double *b, size_t n)
{
    size_t i = 0;
    size_t j = 0;
    double area = 0.0;
    double most = 0.0;
    double last = fmin(a[0], b[0]);
    double away = 0.0;
    while (i < m || j < n) {
        double x = j == n || (i < m && a[i] <= b[j]) ? a[i] : b[j];
        area += away * (x - last);
        last = x;
        while (i < m && a[i] == x) {
            i++;
        }
        while (j < n && b[j] == x) {
            j++;
        }
        away = fabs((double)i / (double)m - (double)j / (double)n);
        most = fmax(most, away);
    }
    out->ks = most;
    out->wasserstein = area;
}

static double deviation_of(const double *values, size_t count)
{
    double mean = sum_of(values, count) / (double)count;
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += (values[i] - mean) * (values[i] - mean);
    }
    return sqrt(sum / (double)count);
}

/* Returns how many of `sorted` are below x, or at most x if `or_equal`. */
static size_t below(const double *sorted, size_t count, double x, bool or_equal)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sorted[middle] < x || (or_equal && sorted[middle] == x)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Counts values in equal bins of [low, high]; the last bin is closed. */
static void fill_bins(double *counts, size_t bins, const double *sorted, size_t count, double low,
                      double high)
{
    size_t before = 0;
    for (size_t i = 0; i < bins; i++) {
        double edge = low + (double)(i + 1) * ((high - low) / (double)bins);
        size_t upto = i + 1 == bins ? count : below(sorted, count, edge, false);
        counts[i] = (double)(upto - before);
        before = upto;
    }
}

/* Compares counts in the bins of Sturges' rule over both samples. */
static by_status compare_bins(by_drift_scores *out, const double *a, size_t m, const double *b,
                              size_t n, by_error *error)
{
    double low = fmin(a[0], b[0]);
    double high = fmax(a[m - 1], b[n - 1]);
    double width = (high - low) / (log2((double)(m + n)) + 1.0);
    size_t bins = (size_t)ceil((high - low) / width);
    double *counts;
    BY_TRY(by__alloc((void **)&counts, 2 * bins, sizeof *counts, "bins", error));
    fill_bins(counts, bins, a, m, low, high);
    fill_bins(counts + bins, bins, b, n, low, high);
    compare_counts(out, counts, counts + bins, bins);
    free(counts);
    return BY_OK;
}

/* Compares counts in one bin for each value of either sample. */
static by_status compare_values(by_drift_scores *out, const double *a, size_t m, const double *b,
                                size_t n, by_error *error)
{
    double *counts;
    size_t most = count_distinct(a, m) + count_distinct(b, n);
    BY_TRY(by__alloc((void **)&counts, 2 * most, sizeof *counts, "bins", error));
    size_t bins = 0;
    for (size_t i = 0, j = 0; i < m || j < n; bins++) {
        double x = j == n || (i < m && a[i] <= b[j]) ? a[i] : b[j];
        for (; i < m && a[i] == x; i++) {
            counts[bins]++;
        }
        for (; j < n && b[j] == x; j++) {
            counts[most + bins]++;
        }
    }
    compare_counts(out, counts, counts + most, bins);
    compare_chi_squared(out, counts, counts + most, bins);
    free(counts);
    return BY_OK;
}

static by_status compare_numbers(by_drift_scores *out, const double *a, size_t m, const double *b,
                                 size_t n, by_error *error)
{
    *out = (by_drift_scores){.chi_squared = NAN, .chi_squared_p = NAN};
    compare_cdfs(out, a, m, b, n);
    out->wasserstein /= fmax(deviation_of(a, m), 0.001);
    if (m <= MAX_EXACT && n <= MAX_EXACT) {
        BY_TRY(by__drift_kolmogorov_exact(&out->ks_p, out->ks, m, n, error));
    } else {
        out->ks_p =
            by__drift_kolmogorov_tail(out->ks, (double)m * (double)n / ((double)m + (double)n));
    }
    return count_distinct(a, m) > FEW ? compare_bins(out, a, m, b, n, error)
                                      : compare_values(out, a, m, b, n, error);
}

by_status by_drift_numbers(by_drift_scores *out, const double *reference, size_t reference_count,
                           const double *current, size_t current_count, by_error *error)
{
    double *a = NULL;
    double *b = NULL;
    by_status status = sorted_copy(&a, reference, reference_count, error);
    if (status == BY_OK) {
        status = sorted_copy(&b, current, current_count, error);
    }
    if (status == BY_OK) {
        status = compare_numbers(out, a, reference_count, b, current_count, error);
    }
    free(a);
    free(b);
    return status;
}
