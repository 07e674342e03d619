/* Judges one feature in a window.
 *
 * A feature is reported when two conditions hold. The difference is significant: a test's p-value
 * is below alpha divided by the number of features (Bonferroni), so that windows without drift
 * raise an alarm in at most a share alpha of cases, however many features there are. And it is
 * large enough to matter: a distance reaches the threshold. The second condition alone would alarm
 * on small windows, whose distances are large by chance; the first alone on large ones, in which
 * every difference is significant. */
#include <math.h>
#include <string.h>

#include "drift/drift.h"

/* Minimum expected count of a group in the window, for the chi-squared distribution to apply. */
#define EXPECTED 5.0

static void add_group(by__drift_groups *g, double reference, double current)
{
    g->reference[g->count] = reference;
    g->current[g->count] = current;
    g->count++;
}

/* Merges neighbouring bins of a number into groups of about equal shares. */
static void group_numbers(by__drift_groups *g, const by__drift_feature *f,
                          const by__drift_counts *w)
{
    double reference = 0.0;
    double current = 0.0;
    for (size_t i = 0; i < f->bins; i++) {
        reference += f->counts[i];
        current += w->counts[i];
        /* The last bin is above the whole reference, and its reference count is zero. */
        if (reference >= f->rows / BY__DRIFT_GROUPS && i + 2 < f->bins) {
            add_group(g, reference, current);
            reference = 0.0;
            current = 0.0;
        }
    }
    add_group(g, reference, current);
}

/* Below this count the place of a category among those that are kept, or in the reference at all,
 * is due to chance. */
static double least_solid(const by__drift_feature *f)
{
    double least = 1.0;
    for (size_t i = 0; i < f->kept && f->distinct > f->kept; i++) {
        least = i == 0 || f->counts[i] < least ? f->counts[i] : least;
    }
    return least + 1.0;
}

/* What categories with too small an expected count have together: `solid`, those that the reference
 * has often enough, and `rest`, all others, which includes what it does not have. The values of a
 * new sample are in the first part less often than those of the reference, which chose it. How
 * often is estimated by leaving out each row of the reference in turn, which takes one off the
 * count of its value (Good 1953). */
typedef struct rare_counts {
    double solid[2]; /* reference and window */
    double rest[2];
} rare_counts;

static void add_rare(rare_counts *out, const by__drift_feature *f, size_t bin, double least,
                     double current)
{
    double count = f->counts[bin];
    bool kept = bin + 1 < f->bins;
    *(kept && count > least ? &out->solid[0] : &out->rest[0]) += count;
    *(kept && count >= least ? &out->solid[1] : &out->rest[1]) += current;
}

/* Merges categories with too small an expected count: into two groups, or where the first one is
 * too small, and for tokens, into one. */
static void group_categories(by__drift_groups *g, const by__drift_feature *f,
                             const by__drift_counts *w)
{
    double scale = w->rows / f->rows;
    double least = least_solid(f);
    rare_counts rare = {0};
    size_t merged = 0;
    for (size_t i = 0; i < f->bins; i++) {
        merged += i + 1 < f->bins && f->counts[i] * scale >= EXPECTED;
    }
    for (size_t i = 0; i < f->bins; i++) {
        bool alone = i + 1 < f->bins && f->counts[i] * scale >= EXPECTED;
        g->group_of[i] = alone ? g->count : merged;
        if (alone) {
            add_group(g, f->counts[i], w->counts[i]);
        } else {
            add_rare(&rare, f, i, least, w->counts[i]);
        }
    }
    if (f->kind == BY_DRIFT_CATEGORY && rare.solid[0] * scale >= EXPECTED) {
        add_group(g, rare.solid[0], rare.solid[1]);
        g->unseen = fmax(0.0, rare.rest[1] / w->rows - rare.rest[0] / f->rows);
        rare.solid[0] = rare.solid[1] = 0.0;
    }
    if (rare.solid[0] + rare.solid[1] + rare.rest[0] + rare.rest[1] > 0.0) {
        add_group(g, rare.solid[0] + rare.rest[0], rare.solid[1] + rare.rest[1]);
    }
}

/* Tests the homogeneity of two samples, since the reference has sampling errors too. */
static double two_samples(const by__drift_groups *g)
{
    double m = 0.0;
    double n = 0.0;
    double sum = 0.0;
    for (size_t i = 0; i < g->count; i++) {
        m += g->reference[i];
        n += g->current[i];
    }
    for (size_t i = 0; i < g->count; i++) {
        double r = g->reference[i];
        double c = g->current[i];
        double away = r * sqrt(n / m) - c * sqrt(m / n);
        sum += r + c > 0.0 ? away * away / (r + c) : 0.0;
    }
    return sum;
}

/* Corrects the test for tokens, which depend on each other within a request: the statistic is then
 * a sum of squares weighted by the eigenvalues of the counts' covariance relative to that of
 * independent tokens. Second-order correction of Rao and Scott (1981): its mean and variance give a
 * factor and degrees of freedom (Satterthwaite). Trace and trace of the square are estimated from
 * the counts of blocks of requests, which are independent; the latter is freed of its bias for a
 * normal sample. */
static void correct(by_drift_verdict *out, double *degrees, by__drift_groups *g,
                    const by__drift_feature *f, const by__drift_counts *w)
{
    const double free = BY__DRIFT_BLOCKS - 1;
    double trace = 0.0;
    double square = 0.0;
    memset(g->blocks, 0, sizeof g->blocks);
    for (size_t b = 0; b < BY__DRIFT_BLOCKS; b++) {
        double size = 0.0;
        for (size_t i = 0; i < f->bins; i++) {
            g->blocks[b][g->group_of[i]] += w->blocks[b * f->bins + i];
            size += w->blocks[b * f->bins + i];
        }
        for (size_t i = 0; i < g->count; i++) {
            double share = g->current[i] / w->rows;
            double pooled = (g->current[i] + g->reference[i]) / (w->rows + f->rows);
            g->blocks[b][i] -= share * size;
            g->blocks[b][i] /= sqrt(pooled * w->rows);
        }
    }
    for (size_t a = 0; a < BY__DRIFT_BLOCKS; a++) {
        for (size_t b = 0; b <= a; b++) {
            double sum = 0.0;
            for (size_t i = 0; i < g->count; i++) {
                sum += g->blocks[a][i] * g->blocks[b][i];
            }
            sum *= BY__DRIFT_BLOCKS / free;
            trace += a == b ? sum : 0.0;
            square += a == b ? sum * sum : 2.0 * sum * sum;
        }
    }
    square = free * free / ((free - 1.0) * (free + 2.0)) * (square - trace * trace / free);
    double least = trace * trace / *degrees;
    square = fmin(fmax(square, least), trace * trace);
    if (trace > 0.0) {
        out->design = fmax(1.0, square / trace);
        *degrees = trace * trace / square;
    }
}

/* Compares both CDFs at the edges, linear between them; values outside count at the outermost
 * edges. */
static void compare_cdfs(by_drift_verdict *v, const by__drift_feature *f, const by__drift_counts *w)
{
    double reference = 0.0;
    double current = 0.0;
    double last = 0.0;
    double area = 0.0;
    v->ks = 0.0;
    for (size_t i = 0; i < f->edge_count; i++) {
        reference += f->counts[i] / f->rows;
        current += w->counts[i] / w->rows;
        double away = current - reference;
        if (i > 0) {
            double width = f->edges[i] - f->edges[i - 1];
            bool crosses = (away > 0.0) != (last > 0.0) && fabs(away) + fabs(last) > 0.0;
            area += crosses
                        ? width * (away * away + last * last) / (2.0 * (fabs(away) + fabs(last)))
                        : width * (fabs(away) + fabs(last)) / 2.0;
        }
        last = away;
        v->ks = fmax(v->ks, fabs(away));
    }
    /* Only the sums of values outside tell how far they are from the edges. */
    v->wasserstein = (area + (w->below + w->above) / w->rows) / fmax(f->deviation, 0.001);
}

void by__drift_judge(by_drift_verdict *out, const by__drift_feature *feature,
                     const by__drift_counts *window, const by_drift_options *options,
                     size_t features, by__drift_groups *groups)
{
    const by__drift_feature *f = feature;
    const by__drift_counts *w = window;
    by__drift_groups *g = groups;
    double all = w->rows + w->missing;
    bool numbers = f->kind == BY_DRIFT_NUMBER;
    double outside = numbers ? w->counts[f->bins - 1] + w->unknown : 0.0;
    *out = (by_drift_verdict){.feature = f->name,
                              .kind = f->kind,
                              .samples = w->rows,
                              .missing = all > 0.0 ? w->missing / all : 0.0,
                              .unknown = numbers || all == 0.0 ? 0.0 : w->unknown / all,
                              .out_of_range = all > 0.0 ? outside / all : 0.0,
                              .wasserstein = NAN,
                              .ks = NAN,
                              .p = 1.0,
                              .design = 1.0};
    if ((f->kind == BY_DRIFT_TOKENS ? w->requests : all) < (double)options->least) {
        return;
    }
    out->compared = true;
    g->count = 0;
    g->unseen = 0.0;
    if (w->rows > 0.0) {
        if (numbers) {
            group_numbers(g, f, w);
            compare_cdfs(out, f, w);
        } else {
            group_categories(g, f, w);
        }
    }
    double degrees = g->count > 1 ? (double)g->count - 1.0 : 1.0;
    if (w->blocks != NULL && g->count > 1 && w->requests >= BY__DRIFT_BLOCKS) {
        correct(out, &degrees, g, f, w);
    }
    /* Values that were never missing and now are, or the other way round. */
    if (w->rows == 0.0 || f->missing + w->missing > 0.0) {
        if (w->rows == 0.0) {
            add_group(g, f->rows, 0.0);
        }
        add_group(g, f->missing, w->missing);
        degrees = (double)g->count - 1.0;
    }
    double tests = 1.0;
    if (g->count > 1) {
        out->psi = by__drift_distance_psi(g->reference, g->current, g->count);
        out->jensen_shannon = by__drift_distance_jensen_shannon(g->reference, g->current, g->count);
        out->p = by__drift_chi_squared_tail(two_samples(g) / out->design, degrees);
    }
    if (numbers && w->rows > 0.0) {
        tests = 2.0;
        out->p = fmin(out->p,
                      by__drift_kolmogorov_tail(out->ks, f->rows * w->rows / (f->rows + w->rows)));
    }
    out->p = fmin(1.0, tests * out->p);
    double score = fmax(out->psi, numbers ? fmax(out->wasserstein, 0.0) : out->jensen_shannon);
    out->detected = out->p < options->alpha / (double)features && score >= options->threshold;
    /* Of a category with more values than the reference distinguishes, an estimate. */
    if (out->detected && f->distinct > f->kept) {
        out->unknown = fmax(out->unknown, g->unseen * w->rows / all);
    }
}
