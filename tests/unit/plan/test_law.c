/* Scaling laws: exact surfaces are found again, fits of noisy ones are minima, intervals hold what
 * they say, and budgets are what a search over sizes finds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/plan.h"
#include "base/base.h"

enum { most_runs = 64, laws = 4 };

/* Chinchilla's, as refitted and as published; one of equal exponents; one without much of E. */
static const by_law examples[laws] = {{1.8172, 477.84, 2143.86, 0.34731, 0.36718},
                                      {1.69, 406.4, 410.7, 0.34, 0.28},
                                      {2.0, 300.0, 300.0, 0.3, 0.3},
                                      {0.2, 60.0, 3e5, 0.18, 0.62}};

/* Runs of `sizes` sizes and `lengths` lengths by a law, with noise of the logarithm of the loss. */
static size_t make_runs(by_law_run *runs, const by_law *law, size_t sizes, size_t lengths,
                        double noise, uint64_t seed)
{
    uint32_t key[2];
    by__philox_key(key, seed, 7);
    size_t count = 0;
    for (size_t i = 0; i < sizes; i++) {
        double n = 2e7 * pow(3.0, (double)i);
        for (size_t k = 0; k < lengths; k++) {
            uint32_t bits[4];
            const uint32_t counter[4] = {(uint32_t)count, 0, 0, 0};
            by__philox(bits, key, counter);
            double u = ((double)bits[0] + 0.5) / 4294967296.0;
            double v = ((double)bits[1] + 0.5) / 4294967296.0;
            double normal = sqrt(-2.0 * log(u)) * cos(2.0 * acos(-1.0) * v);
            double d = 3.0 * n * pow(2.5, (double)k);
            runs[count++] = (by_law_run){
                .parameters = n, .tokens = d, .loss = by_law_loss(law, n, d) * exp(noise * normal)};
        }
    }
    return count;
}

static by_law_fit fitted(const by_law_run *runs, size_t count, double delta)
{
    by_law_fit fit;
    by_error error;
    const by_law_options options = {.delta = delta};
    if (by_law_fit_runs(&fit, runs, count, &options, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(fit.count, count);
    return fit;
}

static void assert_close(double a, double b, double share)
{
    if (!(fabs(a - b) <= share * fabs(b))) {
        fail_msg("%.12g is not %.12g", a, b);
    }
}

static void test_exact_surfaces(void **state)
{
    (void)state;
    static const double deltas[] = {1e-3, 1e-4, INFINITY};
    for (size_t i = 0; i < laws; i++) {
        by_law_run runs[most_runs];
        size_t count = make_runs(runs, &examples[i], 5, 5, 0.0, 0);
        for (size_t k = 0; k < BY_ARRAY_LENGTH(deltas); k++) {
            by_law_fit fit = fitted(runs, count, deltas[k]);
            assert_close(fit.law.e, examples[i].e, 1e-6);
            assert_close(fit.law.a, examples[i].a, 1e-6);
            assert_close(fit.law.b, examples[i].b, 1e-6);
            assert_close(fit.law.alpha, examples[i].alpha, 1e-6);
            assert_close(fit.law.beta, examples[i].beta, 1e-6);
            assert_false(fit.at_edge);
        }
    }
}

/* The parts of a law, as an array. */
static double *part_of(by_law *law, size_t k)
{
    double *const parts[] = {&law->e, &law->a, &law->b, &law->alpha, &law->beta};
    return parts[k];
}

/* No law near the fitted one, nor that which the runs were made by, has a lower objective. */
static void test_minimum(void **state)
{
    (void)state;
    static const double deltas[] = {1e-3, 1e-4, INFINITY};
    for (size_t n = 0; n < 3 * laws; n++) {
        by_law_run runs[most_runs];
        size_t count = make_runs(runs, &examples[n % laws], 6, 6, 5e-3, n);
        const by_law_options options = {.delta = deltas[n / laws]};
        by_law_fit fit = fitted(runs, count, options.delta);
        double objective = by_law_objective(&fit.law, runs, count, &options);
        assert_close(fit.objective, objective, 1e-9);
        assert_true(objective <= by_law_objective(&examples[n % laws], runs, count, &options));
        uint32_t key[2];
        by__philox_key(key, n, 8);
        for (uint32_t i = 0; i < 2000; i++) {
            uint32_t bits[8];
            by__philox(bits, key, (const uint32_t[4]){i, 0, 0, 0});
            by__philox(bits + 4, key, (const uint32_t[4]){i, 1, 0, 0});
            double size = pow(10.0, -1.0 - 6.0 * by__unit_float(bits[7]));
            by_law other = fit.law;
            for (size_t k = 0; k < 5; k++) {
                *part_of(&other, k) *= 1.0 + size * (2.0 * by__unit_float(bits[k]) - 1.0);
            }
            assert_true(by_law_objective(&other, runs, count, &options) >=
                        objective * (1.0 - 1e-12));
        }
    }
}

/* Losses that no E above 0 explains: the fit has an E of 0, and says that it is at an edge. */
static void test_edge(void **state)
{
    (void)state;
    by_law_run runs[most_runs];
    by_law law = {0.0, 40.0, 400.0, 0.2, 0.3};
    size_t count = make_runs(runs, &law, 5, 5, 0.0, 0);
    for (size_t i = 0; i < count; i++) {
        runs[i].loss -= 0.3;
    }
    by_law_fit fit = fitted(runs, count, 1e-3);
    assert_true(fit.at_edge);
    assert_true(fit.law.e == 0.0);
}

/* Wrong units of N and D change A and B alone, by what the law says. */
static void test_units(void **state)
{
    (void)state;
    by_law_run runs[most_runs];
    size_t count = make_runs(runs, &examples[0], 5, 5, 5e-3, 3);
    by_law_fit fit = fitted(runs, count, 1e-3);
    for (size_t i = 0; i < count; i++) {
        runs[i].parameters /= 1e6;
        runs[i].tokens /= 1e9;
    }
    by_law_fit scaled = fitted(runs, count, 1e-3);
    assert_close(scaled.law.alpha, fit.law.alpha, 1e-5);
    assert_close(scaled.law.e, fit.law.e, 1e-5);
    assert_close(scaled.law.a, fit.law.a * pow(1e-6, fit.law.alpha), 1e-4);
    assert_close(scaled.law.b, fit.law.b * pow(1e-9, fit.law.beta), 1e-4);
}

static double quantity_of(const by_law *law, size_t k)
{
    return k == 0   ? law->alpha
           : k == 1 ? law->beta
           : k == 2 ? law->e
                    : by_law_best(law, NULL, 1e22).loss;
}

/* Of 200 noisy surfaces, the intervals of 80 % hold the truth of about 160. */
static void test_coverage(void **state)
{
    (void)state;
    enum { surfaces = 200, draws = 60, quantities = 4 };
    int held[quantities] = {0};
    const by_law *truth = &examples[0];
    const by_law_options options = {.delta = 1e-3};
    for (uint64_t n = 0; n < surfaces; n++) {
        by_law_run runs[most_runs];
        by_law drawn[draws];
        double values[draws];
        size_t count = make_runs(runs, truth, 6, 6, 3e-3, 1000 + n);
        by_law_fit fit = fitted(runs, count, options.delta);
        assert_int_equal(by_law_draw(drawn, draws, &fit, runs, &options, n, NULL), BY_OK);
        for (size_t k = 0; k < quantities; k++) {
            for (size_t i = 0; i < draws; i++) {
                values[i] = quantity_of(&drawn[i], k);
            }
            by_law_interval v = by_law_between(values, draws, quantity_of(&fit.law, k), 0.8);
            double wanted = quantity_of(truth, k);
            held[k] += v.low <= wanted && wanted <= v.high ? 1 : 0;
        }
    }
    for (size_t k = 0; k < quantities; k++) {
        if (held[k] < 150 || held[k] > 170) {
            fail_msg("intervals hold %d %d %d %d of 200", held[0], held[1], held[2], held[3]);
        }
    }
}

static void test_draws_are_the_same(void **state)
{
    (void)state;
    enum { draws = 20 };
    by_law_run runs[most_runs];
    by_law first[draws];
    by_law again[draws];
    size_t count = make_runs(runs, &examples[1], 5, 5, 3e-3, 1);
    by_law_fit fit = fitted(runs, count, 1e-3);
    assert_int_equal(by_law_draw(first, draws, &fit, runs, NULL, 5, NULL), BY_OK);
    assert_int_equal(by_law_draw(again, draws, &fit, runs, NULL, 5, NULL), BY_OK);
    assert_memory_equal(first, again, sizeof first);
    assert_int_equal(by_law_draw(again, draws, &fit, runs, NULL, 6, NULL), BY_OK);
    assert_memory_not_equal(first, again, sizeof first);
}

/* Left out, a run that is off moves the law most. */
static void test_influence(void **state)
{
    (void)state;
    by_law_run runs[most_runs];
    by_law without[most_runs];
    size_t count = make_runs(runs, &examples[0], 5, 5, 1e-4, 2);
    runs[7].loss *= 1.05;
    const by_law_options squares = {.delta = INFINITY};
    by_law_fit fit = fitted(runs, count, squares.delta);
    assert_int_equal(by_law_leave_out(without, &fit, runs, &squares, NULL), BY_OK);
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        most = fabs(without[i].alpha - fit.law.alpha) > fabs(without[most].alpha - fit.law.alpha)
                   ? i
                   : most;
    }
    assert_int_equal(most, 7);
    assert_close(without[7].alpha, examples[0].alpha, 0.01);
    /* It is the fit of the others. */
    memmove(runs + 7, runs + 8, (count - 8) * sizeof *runs);
    by_law_fit others = fitted(runs, count - 1, squares.delta);
    assert_close(without[7].alpha, others.law.alpha, 1e-5);
}

/* The best size by trying many. */
static by_law_optimum searched(const by_law *law, const by_law_flops *cost, double flops)
{
    by_law_optimum best = {.loss = INFINITY};
    double x = log(1e5);
    while (x < log(1e14)) {
        double n = exp(x);
        double d = flops / (cost->factor * pow(n, cost->power));
        double loss = by_law_loss(law, n, d);
        if (loss < best.loss) {
            best = (by_law_optimum){n, d, loss};
        }
        x += 1e-4;
    }
    return best;
}

static void test_budget(void **state)
{
    (void)state;
    static const by_law_flops costs[] = {{6.0, 1.0}, {150.0, 0.85}};
    for (size_t i = 0; i < laws; i++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(costs); k++) {
            by_law_optimum best = by_law_best(&examples[i], &costs[k], 3e21);
            by_law_optimum other = searched(&examples[i], &costs[k], 3e21);
            assert_close(best.parameters, other.parameters, 1e-3);
            assert_close(best.tokens, other.tokens, 1e-3);
            assert_close(best.loss, other.loss, 1e-9);
            by_law_optimum again;
            assert_close(by_law_flops_to(&again, &examples[i], &costs[k], best.loss), 3e21, 1e-6);
            assert_close(again.parameters, best.parameters, 1e-6);
            assert_close(by_law_tokens(&examples[i], best.parameters, best.loss), best.tokens,
                         1e-6);
        }
        assert_true(isinf(by_law_flops_to(NULL, &examples[i], NULL, examples[i].e)));
        assert_true(isinf(by_law_tokens(&examples[i], 1e9, examples[i].e)));
    }
    /* Hoffmann et al., rounded: 6 N D of 5.76e23 FLOPs, Chinchilla's. */
    by_law_optimum c = by_law_best(&examples[1], NULL, 5.76e23);
    assert_close(6.0 * c.parameters * c.tokens, 5.76e23, 1e-12);
    assert_true(isnan(by_law_best(&(by_law){1, 0, 1, 0.3, 0.3}, NULL, 1e20).loss));
}

/* Sizes along a budget of which only some tokens differ, and those that reach a loss and are used
 * for some tokens: what is best of many is what is found. */
static void test_constrained(void **state)
{
    (void)state;
    static const by_law_flops costs[] = {{6.0, 1.0}, {150.0, 0.85}};
    const double flops = 3e21;
    for (size_t i = 0; i < laws * BY_ARRAY_LENGTH(costs); i++) {
        const by_law *law = &examples[i / 2];
        const by_law_flops *cost = &costs[i % 2];
        by_law_optimum plain = by_law_best(law, cost, flops);
        by_law_optimum best = by_law_best_repeated(law, cost, flops, 1.01 * plain.tokens);
        assert_close(best.parameters, plain.parameters, 1e-12);
        for (int power = 0; power < 5; power++) {
            double few = 2.0 * pow(3.0, power);
            double unique = plain.tokens / few;
            double loss = INFINITY;
            double served = plain.tokens * few;
            double least = INFINITY;
            by_law_optimum found;
            double of_both = by_law_flops_served(&found, law, cost, plain.loss, served);
            best = by_law_best_repeated(law, cost, flops, unique);
            for (int place = -2000; place < 2000; place++) {
                double n = plain.parameters * exp(4e-3 * place);
                double each = cost->factor * pow(n, cost->power);
                loss = fmin(loss, by_law_loss_repeated(law, cost, n, flops / each, unique));
                least = fmin(least, each * (by_law_tokens(law, n, plain.loss) + served / 3.0));
            }
            assert_close(best.loss, loss, 1e-6);
            assert_true(best.loss > plain.loss && best.tokens > unique);
            assert_close(of_both, least, 1e-4);
            assert_true(found.parameters < plain.parameters && found.tokens > plain.tokens);
            assert_close(by_law_loss(law, found.parameters, found.tokens), plain.loss, 1e-9);
        }
        by_law_optimum same;
        assert_close(by_law_flops_served(&same, law, cost, plain.loss, 0.0), flops, 1e-6);
        assert_close(same.parameters, plain.parameters, 1e-6);
        assert_true(isinf(by_law_flops_served(NULL, law, cost, law->e, 1e9)));
    }
    /* Four passes are worth almost as much as new text, and forty little more than sixteen. */
    assert_close(by_law_effective(4.0, 1.0, BY_LAW_REPEATS_WORTH), 3.726, 1e-3);
    assert_close(by_law_effective(1e9, 1.0, BY_LAW_REPEATS_WORTH), 16.39, 1e-9);
}

static void test_flops(void **state)
{
    (void)state;
    by_law_run runs[most_runs];
    size_t count = make_runs(runs, &examples[0], 4, 3, 0.0, 0);
    by_law_flops none = by_law_flops_of(runs, count);
    assert_true(none.factor == 6.0 && none.power == 1.0);
    for (size_t i = 0; i < count; i++) {
        runs[i].flops = 70.0 * pow(runs[i].parameters, 0.9) * runs[i].tokens;
    }
    by_law_flops found = by_law_flops_of(runs, count);
    assert_close(found.factor, 70.0, 1e-9);
    assert_close(found.power, 0.9, 1e-9);
}

/* Parabolas through shared budgets, and through curves of sizes: of a symmetric law their minima
 * are those of the law. */
static void test_isoflop(void **state)
{
    (void)state;
    by_law_run runs[most_runs];
    by_law_isoflop found;
    size_t count = 0;
    for (int b = 0; b < 5; b++) {
        double flops = 1e18 * pow(10.0, 0.5 * b);
        for (int i = -3; i <= 3; i++) {
            double n = sqrt(flops / 6.0) * pow(1.5, i);
            double d = flops / (6.0 * n);
            runs[count++] = (by_law_run){n, d, by_law_loss(&examples[2], n, d), 0.0};
        }
    }
    assert_int_equal(by_law_isoflop_runs(&found, runs, count, NULL), BY_OK);
    assert_int_equal(found.budgets, 5);
    assert_close(found.power, 0.5, 1e-6);
    assert_close(found.factor * pow(1e19, found.power), sqrt(1e19 / 6.0), 1e-4);
    count = make_runs(runs, &examples[0], 8, 8, 0.0, 0);
    assert_int_equal(by_law_isoflop_runs(&found, runs, count, NULL), BY_OK);
    assert_true(found.budgets >= 2);
    assert_close(found.power, examples[0].beta / (examples[0].alpha + examples[0].beta), 0.1);
}

static void refuse(const by_law_run *runs, size_t count, const char *text)
{
    by_law_fit fit;
    by_error error = {0};
    assert_int_equal(by_law_fit_runs(&fit, runs, count, NULL, &error), BY_EARG);
    assert_non_null(strstr(error.message, text));
}

static void test_refusals(void **state)
{
    (void)state;
    by_law_run runs[most_runs];
    size_t count = make_runs(runs, &examples[0], 4, 4, 0.0, 0);
    refuse(runs, 5, "5 runs");
    refuse(runs, 8, "2 sizes");
    runs[3].loss = -1.0;
    refuse(runs, count, "run 4");
    runs[3].loss = NAN;
    refuse(runs, count, "run 4");
}

static by_status read(by_law_run **runs, size_t *count, const char *text,
                      const by_law_columns *columns, by_error *error)
{
    by_table *table;
    assert_int_equal(by_table_parse(&table, "t.csv", text, strlen(text), NULL, error), BY_OK);
    by_status status = by_law_read_runs(runs, count, table, columns, error);
    by_table_close(&table);
    return status;
}

static void test_table(void **state)
{
    (void)state;
    static const char text[] = "data,tokens,loss,size,loss_b,flops\n"
                               "c4,2e9,3.5,1e8,4.5,1e18\n"
                               "rw,4e9,3.25,1e8,4.25,2e18\n"
                               "c4,8e9,3.125,2e8,4.125,3e18\n";
    by_law_run *runs;
    size_t count;
    by_error error = {0};
    const by_law_columns columns = {
        .parameters = "size", .loss = "loss_b", .where = "data", .is = "c4"};
    assert_int_equal(read(&runs, &count, text, &columns, &error), BY_OK);
    assert_int_equal(count, 2);
    assert_true(runs[1].parameters == 2e8 && runs[1].tokens == 8e9 && runs[1].loss == 4.125 &&
                runs[1].flops == 3e18);
    free(runs);
    assert_int_equal(read(&runs, &count, text, NULL, &error), BY_EARG);
    assert_non_null(strstr(error.message, "no column 'parameters'"));
    assert_non_null(strstr(error.message, "data, tokens, loss, size"));
    const by_law_columns absent = {.parameters = "size", .where = "data", .is = "pile"};
    assert_int_equal(read(&runs, &count, text, &absent, &error), BY_EARG);
    assert_non_null(strstr(error.message, "data is pile"));
    assert_int_equal(
        read(&runs, &count, "parameters,tokens,loss\n1e8,1e9,3\n1e8,,3\n", NULL, &error),
        BY_EFORMAT);
    assert_non_null(strstr(error.message, "row 2: 'tokens'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_surfaces), cmocka_unit_test(test_minimum),
        cmocka_unit_test(test_edge),           cmocka_unit_test(test_units),
        cmocka_unit_test(test_coverage),       cmocka_unit_test(test_draws_are_the_same),
        cmocka_unit_test(test_influence),      cmocka_unit_test(test_budget),
        cmocka_unit_test(test_constrained),    cmocka_unit_test(test_flops),
        cmocka_unit_test(test_isoflop),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
