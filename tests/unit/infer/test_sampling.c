/* by_sample: greedy, cuts, the distribution of draws, and what it refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/infer.h"
#include "base/base.h"
#include "sanitizer.h"

#define MOST 1000

static _Alignas(8) unsigned char scratch[MOST * 12];

static int32_t draw(const by_sampling *sampling, const float *logits, int64_t vocab,
                    uint64_t position)
{
    by_error error = {0};
    int32_t token = -1;
    assert_true(by_sample_scratch_bytes(vocab) <= sizeof scratch);
    if (by_sample(&token, sampling, logits, vocab, position, scratch, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_in_range(token, 0, vocab - 1);
    return token;
}

static void expect_error(const by_sampling *sampling, const float *logits, int64_t vocab,
                         by_status status, const char *word)
{
    by_error error = {0};
    int32_t token = -7;
    assert_int_equal(by_sample(&token, sampling, logits, vocab, 0, scratch, &error), status);
    assert_int_equal(token, -7);
    assert_non_null(strstr(error.message, word));
}

/* Logits 0 .. vocab - 1 of Philox, in [-2, 4). */
static void random_logits(float *logits, int64_t vocab, uint64_t seed)
{
    uint32_t key[2];
    by__philox_key(key, seed, 1);
    for (int64_t i = 0; i < vocab; i++) {
        uint32_t bits[4];
        uint32_t counter[4] = {(uint32_t)i, 0, 0, 0};
        by__philox(bits, key, counter);
        logits[i] = 6.0f * by__unit_float(bits[0]) - 2.0f;
    }
}

typedef struct ranked {
    double p;
    int32_t id;
    double deviation; /* of its information from the entropy */
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a;
    const ranked *y = b;
    if (x->p != y->p) {
        return x->p > y->p ? -1 : 1;
    }
    return x->id < y->id ? -1 : 1;
}

static int by_deviation(const void *a, const void *b)
{
    const ranked *x = a;
    const ranked *y = b;
    if (fabs(x->deviation - y->deviation) > 1e-6) {
        return x->deviation < y->deviation ? -1 : 1;
    }
    return x->id < y->id ? -1 : 1;
}

/* min_p and typical_p of those that top_k and top_p kept, most probable first; returns how many
 * stay, at the front. */
static int64_t cut_further(ranked *order, int64_t kept, const by_sampling *s)
{
    int64_t likely = 0;
    double sum = 0.0;
    while (likely < kept && order[likely].p >= s->min_p * order[0].p * (1.0 - 1e-6)) {
        sum += order[likely++].p;
    }
    if (s->typical_p == 0.0 || s->typical_p == 1.0) {
        return likely;
    }
    double entropy = 0.0;
    for (int64_t i = 0; i < likely; i++) {
        entropy -= order[i].p / sum * log(order[i].p / sum);
    }
    for (int64_t i = 0; i < likely; i++) {
        order[i].deviation = fabs(-log(order[i].p / sum) - entropy);
    }
    qsort(order, (size_t)likely, sizeof *order, by_deviation);
    int64_t typical = 0;
    double passed = 0.0;
    while (typical < likely && passed < s->typical_p * sum * (1.0 - 1e-9)) {
        passed += order[typical++].p;
    }
    return typical;
}

/* The definition, by a full sort: probability of each token. */
static void expected(double *out, const by_sampling *s, const float *logits, int64_t vocab)
{
    static ranked order[MOST];
    double sum = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        order[i] = (ranked){exp((double)logits[i] / s->temperature), (int32_t)i, 0.0};
        out[i] = 0.0;
    }
    qsort(order, (size_t)vocab, sizeof order[0], by_rank);
    int64_t count = s->top_k > 0 && s->top_k < vocab ? s->top_k : vocab;
    for (int64_t i = 0; i < count; i++) {
        sum += order[i].p;
    }
    double nucleus = 0.0;
    int64_t kept = 0;
    while (kept < count && nucleus < s->top_p * sum * (1.0 - 1e-12)) {
        nucleus += order[kept++].p;
    }
    kept = cut_further(order, kept, s);
    nucleus = 0.0;
    for (int64_t i = 0; i < kept; i++) {
        nucleus += order[i].p;
    }
    for (int64_t i = 0; i < kept; i++) {
        out[order[i].id] = order[i].p / nucleus;
    }
}

/* Pearson's statistic of many draws against the definition stays below its mean plus six
 * deviations. A sanitizer looks at the memory of a few. */
static void check_distribution(const by_sampling *s, int64_t vocab)
{
    enum { DRAWS = BY_TESTS_SANITIZED ? 500 : 20000 };
    static float logits[MOST];
    static double p[MOST];
    static int counts[MOST];
    double statistic = 0.0;
    int freedom = -1;
    random_logits(logits, vocab, s->seed);
    expected(p, s, logits, vocab);
    memset(counts, 0, sizeof counts);
    for (uint64_t i = 0; i < DRAWS; i++) {
        counts[draw(s, logits, vocab, i)]++;
    }
    for (int64_t i = 0; i < vocab; i++) {
        if (p[i] == 0.0) {
            assert_int_equal(counts[i], 0);
        } else {
            double wanted = p[i] * DRAWS;
            statistic += ((double)counts[i] - wanted) * ((double)counts[i] - wanted) / wanted;
            freedom++;
        }
    }
    if (!BY_TESTS_SANITIZED &&
        statistic > (double)freedom + 6.0 * sqrt(2.0 * (double)freedom + 1.0)) {
        fail_msg("chi-square %g with %d degrees of freedom (vocab %lld, top_k %lld, top_p %g)",
                 statistic, freedom, (long long)vocab, (long long)s->top_k, s->top_p);
    }
}

static void test_distribution(void **state)
{
    BY_UNUSED(state);
    static const by_sampling cases[] = {
        {.temperature = 1.0, .top_p = 1.0, .seed = 1},
        {.temperature = 0.5, .top_p = 1.0, .seed = 2},
        {.temperature = 2.0, .top_p = 1.0, .seed = 3},
        {.temperature = 1.0, .top_k = 5, .top_p = 1.0, .seed = 4},
        {.temperature = 1.0, .top_k = 50, .top_p = 0.7, .seed = 5},
        {.temperature = 0.8, .top_p = 0.95, .seed = 6},
        {.temperature = 1.5, .top_p = 0.3, .seed = 7},
        {.temperature = 1.0, .top_k = 4000, .top_p = 0.999, .seed = 8},
        {.temperature = 0.3, .top_k = 400, .top_p = 0.99, .seed = 9},
        {.temperature = 1.5, .top_k = 30, .top_p = 0.9, .min_p = 0.02, .seed = 11},
        {.temperature = 0.7,
         .top_k = 100,
         .top_p = 0.95,
         .min_p = 0.01,
         .typical_p = 0.9,
         .seed = 13},
    };
    static const int64_t sizes[] = {1, 2, 7, 60, 300, MOST};
    for (size_t c = 0; c < BY_ARRAY_LENGTH(cases); c++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(sizes); k++) {
            check_distribution(&cases[c], sizes[k]);
        }
    }
}

/* Draws over many logits, also equal ones, come only from the tokens that the definition keeps. */
static void test_support(void **state)
{
    BY_UNUSED(state);
    static float logits[MOST];
    static double p[MOST];
    for (uint64_t seed = 0; seed < 300; seed++) {
        int64_t vocab = 1 + (int64_t)(seed * 37 % MOST);
        by_sampling sampling = {.temperature = 0.2 + (double)(seed % 7) * 0.3,
                                .top_k = (int64_t)(seed * 13 % 120),
                                .top_p = seed % 3 == 0 ? 1.0 : 0.2137 + (double)(seed % 8) * 0.0971,
                                .seed = seed};
        random_logits(logits, vocab, seed);
        for (int64_t i = 0; i < vocab && seed % 2 == 0; i++) {
            logits[i] = floorf(logits[i]);
        }
        expected(p, &sampling, logits, vocab);
        for (uint64_t i = 0; i < 300; i++) {
            int32_t token = draw(&sampling, logits, vocab, i);
            if (p[token] == 0.0) {
                fail_msg("seed %d: token %d is outside of the cuts", (int)seed, (int)token);
            }
        }
    }
}

/* Equal logits: the cuts keep the lowest ids. */
static void test_equal_logits(void **state)
{
    BY_UNUSED(state);
    float logits[10];
    int seen[10] = {0};
    by_sampling sampling = {.temperature = 1.0, .top_k = 4, .top_p = 1.0, .seed = 9};
    for (int i = 0; i < 10; i++) {
        logits[i] = 2.5f;
    }
    for (uint64_t i = 0; i < 400; i++) {
        seen[draw(&sampling, logits, 10, i)]++;
    }
    for (int i = 0; i < 10; i++) {
        assert_int_equal(seen[i] > 0, i < 4);
    }
    sampling = (by_sampling){.temperature = 1.0, .top_p = 0.25, .seed = 9};
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < 400; i++) {
        seen[draw(&sampling, logits, 10, i)]++;
    }
    for (int i = 0; i < 10; i++) {
        assert_int_equal(seen[i] > 0, i < 3); /* 3 tenths reach a quarter */
    }
    sampling.temperature = 0.0;
    assert_int_equal(draw(&sampling, logits, 10, 0), 0);
}

static void test_greedy(void **state)
{
    BY_UNUSED(state);
    float logits[] = {-1.0f, 3.0f, -INFINITY, 3.0f, 2.0f};
    static const by_sampling greedy[] = {
        {.temperature = 0.0, .top_p = 1.0},
        {.temperature = 0.0, .top_k = 3, .top_p = 0.5},
        {.temperature = 1.0, .top_k = 1, .top_p = 1.0},
        {.temperature = 1.0, .top_p = 1e-9},
        {.temperature = 1.0, .top_k = 2, .top_p = 1e-300},
    };
    for (size_t c = 0; c < BY_ARRAY_LENGTH(greedy); c++) {
        for (uint64_t i = 0; i < 50; i++) {
            assert_int_equal(draw(&greedy[c], logits, 5, i), 1);
        }
    }
    /* So cold that every other weight is zero. */
    by_sampling cold = {.temperature = 1e-300, .top_p = 1.0};
    for (uint64_t i = 0; i < 50; i++) {
        int32_t token = draw(&cold, logits, 5, i);
        assert_true(token == 1 || token == 3);
    }
}

static void test_never_chosen(void **state)
{
    BY_UNUSED(state);
    float logits[] = {-INFINITY, 0.0f, -INFINITY, -3.4e38f, 0.0f, -INFINITY};
    by_sampling sampling = {.temperature = 1.0, .top_k = 5, .top_p = 1.0, .seed = 3};
    for (uint64_t i = 0; i < 500; i++) {
        int32_t token = draw(&sampling, logits, 6, i);
        assert_true(token == 1 || token == 4);
    }
    /* Of the others, at the highest temperature, all are. */
    int chosen[4] = {0};
    float flat[] = {-INFINITY, 3.0f, 0.0f, -2.0f};
    by_sampling hot = {.temperature = 1e300, .top_p = 1.0, .seed = 3};
    for (uint64_t i = 0; i < 500; i++) {
        chosen[draw(&hot, flat, 4, i)]++;
    }
    assert_int_equal(chosen[0], 0);
    assert_true(chosen[1] > 100 && chosen[2] > 100 && chosen[3] > 100);
}

/* A draw depends on seed and position, and on nothing else. */
static void test_pure(void **state)
{
    BY_UNUSED(state);
    static float logits[MOST];
    by_sampling a = {.temperature = 1.0, .top_p = 0.9, .seed = 11};
    by_sampling b = a;
    int differ_by_seed = 0;
    int differ_by_position = 0;
    b.seed = 12;
    random_logits(logits, MOST, 5);
    for (uint64_t i = 0; i < 100; i++) {
        int32_t token = draw(&a, logits, MOST, i);
        differ_by_seed += draw(&b, logits, MOST, i) != token;
        differ_by_position += draw(&a, logits, MOST, i + (UINT64_C(1) << 40)) != token;
        memset(scratch, (int)i, sizeof scratch);
        assert_int_equal(draw(&a, logits, MOST, i), token);
    }
    assert_true(differ_by_seed > 50);
    assert_true(differ_by_position > 50);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    float logits[] = {0.0f, 1.0f, 2.0f};
    float broken[] = {0.0f, NAN, 2.0f};
    float infinite[] = {0.0f, 1.0f, INFINITY};
    float nothing[] = {-INFINITY, -INFINITY};
    by_sampling good = {.temperature = 1.0, .top_p = 1.0};
    by_sampling greedy = {.temperature = 0.0, .top_p = 1.0};
    by_sampling bad = good;
    expect_error(&good, broken, 3, BY_ESTATE, "token 1 is nan");
    expect_error(&greedy, broken, 3, BY_ESTATE, "token 1 is nan");
    expect_error(&good, infinite, 3, BY_ESTATE, "token 2 is inf");
    expect_error(&good, nothing, 2, BY_ESTATE, "all 2 logits");
    expect_error(&good, logits, 0, BY_EARG, "0 tokens");
    bad.temperature = -0.1;
    expect_error(&bad, logits, 3, BY_EARG, "temperature");
    bad.temperature = NAN;
    expect_error(&bad, logits, 3, BY_EARG, "temperature");
    bad.temperature = INFINITY;
    expect_error(&bad, logits, 3, BY_EARG, "temperature");
    bad = good;
    bad.top_k = -1;
    expect_error(&bad, logits, 3, BY_EARG, "top_k -1");
    bad = good;
    bad.top_p = 0.0;
    expect_error(&bad, logits, 3, BY_EARG, "top_p 0");
    bad.top_p = 1.5;
    expect_error(&bad, logits, 3, BY_EARG, "top_p 1.5");
    bad.top_p = NAN;
    expect_error(&bad, logits, 3, BY_EARG, "top_p");
    bad = good;
    bad.min_p = 1.5;
    expect_error(&bad, logits, 3, BY_EARG, "min_p 1.5");
    bad = good;
    bad.typical_p = -0.5;
    expect_error(&bad, logits, 3, BY_EARG, "typical_p -0.5");
}

static void test_rules(void **state)
{
    BY_UNUSED(state);
    static const int32_t prompt[] = {0, 0, 3};
    static const int32_t output[] = {1, 3, 3, 3};
    static const int32_t bias_tokens[] = {2, 4};
    static const float biases[] = {1.5f, -INFINITY};
    int32_t counts[5] = {0};
    by_error error;
    by_logit_rules rules = {.repetition = 2.0,
                            .presence = 0.5,
                            .frequency = 0.25,
                            .bias_tokens = bias_tokens,
                            .biases = biases,
                            .bias_count = 2};
    float logits[] = {4.0f, -1.0f, 0.0f, 2.0f, 9.0f};
    /* 0 in the prompt: halved; 1 once in the output: doubled, then 0.75 less; 3 in both, three
     * times in the output: halved once, then 1.25 less. */
    static const float wanted[] = {2.0f, -2.75f, 1.5f, -0.25f, -INFINITY};
    assert_int_equal(by_logits_adjust(logits, 5, &rules, prompt, 3, output, 4, counts, &error),
                     BY_OK);
    for (int i = 0; i < 5; i++) {
        assert_true(logits[i] == wanted[i]);
        assert_int_equal(counts[i], 0);
    }
    rules = (by_logit_rules){0};
    assert_int_equal(by_logits_adjust(logits, 5, &rules, prompt, 3, output, 4, counts, &error),
                     BY_OK);
    assert_memory_equal(logits, wanted, sizeof wanted);
    assert_int_equal(by_logits_adjust(logits, 3, &rules, prompt, 3, output, 4, counts, &error),
                     BY_EARG);
    rules.repetition = -1.0;
    assert_int_equal(by_logits_adjust(logits, 5, &rules, prompt, 3, output, 4, counts, &error),
                     BY_EARG);
}

static void test_log_probabilities(void **state)
{
    BY_UNUSED(state);
    static float logits[MOST];
    static ranked order[MOST];
    int32_t ids[20];
    double values[20];
    by_error error;
    for (int64_t vocab = 1; vocab <= MOST; vocab = vocab * 3 + 1) {
        int64_t most = vocab < 20 ? vocab : 20;
        double sum = 0.0;
        double one;
        random_logits(logits, vocab, 77);
        for (int64_t i = 0; i < vocab; i++) {
            order[i] = (ranked){exp((double)logits[i]), (int32_t)i, 0.0};
            sum += order[i].p;
        }
        qsort(order, (size_t)vocab, sizeof order[0], by_rank);
        assert_int_equal(by_log_probabilities(logits, vocab, (int32_t)(vocab / 2), &one, most, ids,
                                              values, scratch, &error),
                         BY_OK);
        assert_true(fabs(one - ((double)logits[vocab / 2] - log(sum))) < 1e-6);
        for (int64_t i = 0; i < most; i++) {
            assert_int_equal(ids[i], order[i].id);
            assert_true(fabs(values[i] - log(order[i].p / sum)) < 1e-6);
        }
    }
    assert_int_equal(by_log_probabilities(logits, 5, 5, values, 0, ids, values, scratch, &error),
                     BY_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution),      cmocka_unit_test(test_support),
        cmocka_unit_test(test_equal_logits),      cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_never_chosen),      cmocka_unit_test(test_pure),
        cmocka_unit_test(test_refused),           cmocka_unit_test(test_rules),
        cmocka_unit_test(test_log_probabilities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
