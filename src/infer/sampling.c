#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/half.h"
#include "infer/infer.h"

/* A vocabulary has tens of thousands of tokens and a decode step takes a few milliseconds. So
 * passes over all logits are loops that compilers vectorise, and cheap bounds leave only few
 * candidates for the exact selection. */

/* The Philox stream: "sampling". */
#define STREAM UINT64_C(0x73616d706c696e67)

/* Independent running maxima. */
#define LANES 8
/* Maximum number of logits in a block whose maximum is used to bound the top_k cut-off. */
#define BLOCK 64

typedef struct sample_candidate {
    float weight; /* what they are ordered by: a logit, later exp((logit - largest) / temperature)
                   */
    int32_t id;
} sample_candidate;

size_t by_sample_scratch_bytes(int64_t vocab)
{
    return vocab < 1 ? 0 : (size_t)vocab * (sizeof(sample_candidate) + sizeof(float));
}

by_status by_sampling_check(const by_sampling *s, by_error *error)
{
    if (!(s->temperature >= 0.0) || isinf(s->temperature)) {
        return by_error_set(error, BY_EARG, "temperature %g is not a number of 0 or more",
                            s->temperature);
    }
    if (s->top_k < 0) {
        return by_error_set(error, BY_EARG, "top_k %lld is negative; 0 keeps all tokens",
                            (long long)s->top_k);
    }
    if (!(s->top_p > 0.0 && s->top_p <= 1.0)) {
        return by_error_set(error, BY_EARG, "top_p %g is not in (0, 1]; 1 keeps all tokens",
                            s->top_p);
    }
    if (!(s->min_p >= 0.0 && s->min_p <= 1.0)) {
        return by_error_set(error, BY_EARG, "min_p %g is not in [0, 1]; 0 keeps all tokens",
                            s->min_p);
    }
    if (!(s->typical_p >= 0.0 && s->typical_p <= 1.0)) {
        return by_error_set(error, BY_EARG,
                            "typical_p %g is not in [0, 1]; 0 and 1 keep all tokens", s->typical_p);
    }
    return BY_OK;
}

static float largest_of(const float *x, int64_t n)
{
    float lane[LANES];
    int64_t i = 0;
    for (int j = 0; j < LANES; j++) {
        lane[j] = -INFINITY;
    }
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        }
    }
    for (; i < n; i++) {
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    }
    for (int j = 1; j < LANES; j++) {
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    }
    return lane[0];
}

/* Logits searched at a time. */
enum { SEARCHED = 64 };

/* Finds the index of the largest logit, the first among equals. */
static by_status find_largest(int64_t *out, const float *logits, int64_t vocab, by_error *error)
{
    int broken = 0;
    for (int64_t i = 0; i < vocab; i++) {
        broken |= !(logits[i] <= FLT_MAX);
    }
    for (int64_t i = 0; i < vocab && broken; i++) {
        if (!(logits[i] <= FLT_MAX)) {
            return by_error_set(error, BY_ESTATE,
                                "the logit of token %lld is %g: the model's weights are not usable",
                                (long long)i, (double)logits[i]);
        }
    }
    float largest = largest_of(logits, vocab);
    if (largest == -INFINITY) {
        return by_error_set(error, BY_ESTATE, "all %lld logits are -inf: no token can follow",
                            (long long)vocab);
    }
    /* Compare whole blocks first, which is vectorised. */
    int64_t best = 0;
    for (; best + SEARCHED <= vocab; best += SEARCHED) {
        int found = 0;
        for (int64_t i = 0; i < SEARCHED; i++) {
            found |= logits[best + i] == largest;
        }
        if (found) {
            break;
        }
    }
    while (logits[best] != largest) {
        best++;
    }
    *out = best;
    return BY_OK;
}

static bool precedes(const sample_candidate *a, const sample_candidate *b)
{
    return a->weight > b->weight || (a->weight == b->weight && a->id < b->id);
}

static void swap(sample_candidate *a, sample_candidate *b)
{
    sample_candidate kept = *a;
    *a = *b;
    *b = kept;
}

/* The quantity that keep_top sums up. */
typedef enum kept_quantity { TOKENS, WEIGHTS, MASSES } kept_quantity;

/* Returns a candidate's measure; masses [vocab] are used with MASSES. */
static double measure(const sample_candidate *c, kept_quantity what, const float *masses)
{
    return what == TOKENS ? 1.0 : what == WEIGHTS ? (double)c->weight : (double)masses[c->id];
}

/* Moves the shortest prefix in the order of falling weight and rising id whose measure reaches
 * `target` (> 0) to the front, unsorted, and returns its length. A quickselect (Hoare 1961) that
 * compares the measure of the part before the pivot with the target: expected linear time, no
 * sort. */
static int64_t keep_top(sample_candidate *c, int64_t count, double target, kept_quantity what,
                        const float *masses)
{
    int64_t first = 0;
    int64_t last = count;
    uint32_t state = 1; /* of a linear congruential generator: any sequence of pivots is correct */
    while (last - first > 1) {
        state = state * 1664525u + 1013904223u;
        int64_t pivot = first + (int64_t)(state >> 1) % (last - first);
        int64_t middle = first;
        double before = 0.0;
        swap(&c[pivot], &c[last - 1]);
        for (int64_t i = first; i < last - 1; i++) {
            if (precedes(&c[i], &c[last - 1])) {
                before += measure(&c[i], what, masses);
                swap(&c[i], &c[middle++]);
            }
        }
        swap(&c[middle], &c[last - 1]);
        if (before >= target) {
            last = middle;
        } else if (before + measure(&c[middle], what, masses) >= target) {
            return middle + 1;
        } else {
            target -= before + measure(&c[middle], what, masses);
            first = middle + 1;
        }
    }
    return last;
}

/* Returns a value that at least `k` of the n logits reach: the smallest of the k largest block
 * maxima. */
static float top_k_bound(const float *logits, int64_t n, int64_t k, sample_candidate *c)
{
    int64_t block = n / k < BLOCK ? n / k : BLOCK;
    int64_t blocks = n / block;
    for (int64_t b = 0; b < blocks; b++) {
        c[b] = (sample_candidate){largest_of(logits + b * block, block), (int32_t)b};
    }
    (void)keep_top(c, blocks, (double)k, TOKENS, NULL);
    float bound = c[0].weight;
    for (int64_t i = 1; i < k; i++) {
        bound = c[i].weight < bound ? c[i].weight : bound;
    }
    return bound;
}

/* Lists the values that are at least `bound`. */
static int64_t gather(sample_candidate *c, const float *values, int64_t n, float bound)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        c[count] = (sample_candidate){values[i], (int32_t)i}; /* count <= i */
        count += values[i] >= bound;
    }
    return count;
}

/* Approximates exp(x) for x <= 0 within 2e-7; 0 below -87. exp(n ln 2 + r) = 2^n p(r) with |r| <=
 * ln(2) / 2, where p is the Taylor series to r^6. Adding and subtracting 1.5 * 2^23 rounds to an
 * integer. */
static inline float exp_of(float x)
{
    float t = x < -87.0f ? -87.0f : x;
    float n = t * 1.44269504f + 12582912.0f;
    n -= 12582912.0f;
    float r = t - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    float power = by__bits_float((uint32_t)((int32_t)n + 127) << 23);
    return x < -87.0f ? 0.0f : p * power;
}

/* Returns 1 / temperature, bounded so that 0 times it is 0 and -inf times it is -inf. */
static float sharpness(double temperature)
{
    return (float)(1.0 / fmin(fmax(temperature, 1e-30), 1e30));
}

/* Computes the weights of all logits relative to the largest, and returns their sum. */
static double weigh(float *out, const float *logits, int64_t n, float largest, double temperature)
{
    float scale = sharpness(temperature);
    double lane[LANES] = {0.0};
    int64_t i = 0;
    for (int64_t k = 0; k < n; k++) {
        out[k] = exp_of((logits[k] - largest) * scale);
    }
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] += (double)out[i + j];
        }
    }
    for (; i < n; i++) {
        lane[0] += (double)out[i];
    }
    for (int j = 1; j < LANES; j++) {
        lane[0] += lane[j];
    }
    return lane[0];
}

/* Lists the top_k most probable tokens with their weights. */
static int64_t list_top_k(sample_candidate *c, const float *logits, int64_t vocab, float largest,
                          const by_sampling *sampling)
{
    float scale = sharpness(sampling->temperature);
    float bound = top_k_bound(logits, vocab, sampling->top_k, c);
    int64_t count =
        keep_top(c, gather(c, logits, vocab, bound), (double)sampling->top_k, TOKENS, NULL);
    for (int64_t i = 0; i < count; i++) {
        c[i].weight = exp_of((c[i].weight - largest) * scale);
    }
    return count;
}

/* Lists all tokens that may be in the nucleus with their weights. Those below (1 - p) sum / vocab
 * add up to less than 1 - p, so the others reach p without them. */
static int64_t list_all(sample_candidate *c, float *weights, const float *logits, int64_t vocab,
                        float largest, const by_sampling *sampling, double *sum)
{
    *sum = weigh(weights, logits, vocab, largest, sampling->temperature);
    float bound = (float)((1.0 - sampling->top_p) * *sum / (double)vocab * (1.0 - 1e-6));
    return gather(c, weights, vocab, bound > FLT_MIN ? bound : FLT_MIN);
}

static double sum_of(const sample_candidate *c, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)c[i].weight;
    }
    return sum;
}

/* Keeps candidates with at least `share` times the weight of the most probable one, which is 1. */
static int64_t keep_above(sample_candidate *c, int64_t count, float share)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        sample_candidate one = c[i];
        c[kept] = one; /* kept <= i */
        kept += one.weight >= share;
    }
    return kept;
}

/* Typical sampling: keeps the smallest set with total probability `p` of tokens whose information
 * -log(probability) is nearest to its mean, the entropy. masses [vocab] is scratch memory. */
static int64_t keep_typical(sample_candidate *c, int64_t count, double p, float *masses)
{
    double sum = sum_of(c, count);
    double entropy = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double share = (double)c[i].weight / sum;
        entropy -= share > 0.0 ? share * log(share) : 0.0;
    }
    for (int64_t i = 0; i < count; i++) {
        float weight = c[i].weight;
        masses[c[i].id] = weight;
        c[i].weight =
            weight > 0.0f ? -(float)fabs(-log((double)weight / sum) - entropy) : -INFINITY;
    }
    count = keep_top(c, count, p * sum, MASSES, masses);
    for (int64_t i = 0; i < count; i++) {
        c[i].weight = masses[c[i].id];
    }
    return count;
}

/* Returns a number uniform in [0, 1) with 53 random bits. */
static double uniform(uint64_t seed, uint64_t position)
{
    uint32_t key[2];
    uint32_t bits[4];
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    by__philox_key(key, seed, STREAM);
    by__philox(bits, key, counter);
    return (double)(((uint64_t)bits[0] << 32 | bits[1]) >> 11) * 0x1p-53;
}

/* Draws a token; `best` is the index of the largest logit. */
static int32_t draw(const by_sampling *sampling, const float *logits, int64_t vocab, int64_t best,
                    uint64_t position, void *scratch)
{
    int64_t count;
    double sum;
    sample_candidate *c = scratch;
    if (sampling->temperature == 0.0 || sampling->top_k == 1) {
        return (int32_t)best;
    }
    if (sampling->top_k > 0 && sampling->top_k < vocab) {
        count = list_top_k(c, logits, vocab, logits[best], sampling);
        sum = sum_of(c, count);
    } else {
        count = list_all(c, (float *)(c + vocab), logits, vocab, logits[best], sampling, &sum);
    }
    int64_t listed = count;
    if (sampling->top_p < 1.0) {
        count = keep_top(c, count, sampling->top_p * sum, WEIGHTS, NULL);
    }
    if (sampling->min_p > 0.0) {
        count = keep_above(c, count, (float)sampling->min_p);
    }
    if (sampling->typical_p > 0.0 && sampling->typical_p < 1.0) {
        count = keep_typical(c, count, sampling->typical_p, (float *)(c + vocab));
    }
    sum = sampling->top_p < 1.0 || count < listed ? sum_of(c, count) : sum;
    double threshold = uniform(sampling->seed, position) * sum;
    double passed = 0.0;
    int32_t chosen = (int32_t)best;
    for (int64_t i = 0; i < count && passed <= threshold; i++) {
        if (c[i].weight > 0.0f) { /* if rounding leaves the threshold unmet, the last such
                                     candidate */
            passed += (double)c[i].weight;
            chosen = c[i].id;
        }
    }
    return chosen;
}

static by_status begin_choice(int64_t *best, const by_sampling *sampling, const float *logits,
                              int64_t vocab, by_error *error)
{
    if (vocab < 1 || vocab > INT32_MAX) {
        return by_error_set(error, BY_EARG, "cannot choose among %lld tokens", (long long)vocab);
    }
    BY_TRY(by_sampling_check(sampling, error));
    return find_largest(best, logits, vocab, error);
}

by_status by_sample(int32_t *token, const by_sampling *sampling, const float *logits, int64_t vocab,
                    uint64_t position, void *scratch, by_error *error)
{
    int64_t best = 0;
    BY_TRY(begin_choice(&best, sampling, logits, vocab, error));
    *token = draw(sampling, logits, vocab, best, position, scratch);
    return BY_OK;
}

/* Returns the logarithm of the sum of the exponentials of all logits. */
static double log_total(const float *logits, int64_t vocab, int64_t best, void *scratch)
{
    sample_candidate *c = scratch;
    return (double)logits[best] +
           log(weigh((float *)(c + vocab), logits, vocab, logits[best], 1.0));
}

by_status by__infer_sample_with_probability(int32_t *token, double *probability,
                                            const by_sampling *sampling, const float *logits,
                                            int64_t vocab, uint64_t position, void *scratch,
                                            by_error *error)
{
    int64_t best = 0;
    BY_TRY(begin_choice(&best, sampling, logits, vocab, error));
    *token = draw(sampling, logits, vocab, best, position, scratch);
    *probability = (double)logits[*token] - log_total(logits, vocab, best, scratch);
    return BY_OK;
}

static int by_rank(const void *a, const void *b)
{
    const sample_candidate *x = a;
    const sample_candidate *y = b;
    return precedes(x, y) ? -1 : precedes(y, x) ? 1 : 0;
}

by_status by_log_probabilities(const float *logits, int64_t vocab, int32_t token,
                               double *probability, int64_t most, int32_t *ids, double *values,
                               void *scratch, by_error *error)
{
    int64_t best = 0;
    sample_candidate *c = scratch;
    if (vocab < 1 || vocab > INT32_MAX || token < 0 || token >= vocab || most < 0 || most > vocab) {
        return by_error_set(error, BY_EARG,
                            "log-probabilities of token %d and of the first %lld of %lld tokens",
                            (int)token, (long long)most, (long long)vocab);
    }
    BY_TRY(find_largest(&best, logits, vocab, error));
    double total = log_total(logits, vocab, best, scratch);
    *probability = (double)logits[token] - total;
    if (most > 0) {
        float bound = top_k_bound(logits, vocab, most, c);
        int64_t count = keep_top(c, gather(c, logits, vocab, bound), (double)most, TOKENS, NULL);
        qsort(c, (size_t)count, sizeof *c, by_rank);
        for (int64_t i = 0; i < most; i++) {
            ids[i] = c[i].id;
            values[i] = (double)c[i].weight - total;
        }
    }
    return BY_OK;
}
