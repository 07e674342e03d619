/* Scores of classifiers: the numbers of scikit-learn 1.9 for the same examples. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/scores.h"

static void check_ok(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

static void check_near(double got, double want)
{
    if (!(fabs(got - want) < 1e-7)) {
        fail_msg("%.10g is not %.10g", got, want);
    }
}

/* Scores of two classes by the probability of the second. */
static by_scores *two_classes(const int *truth, const double *probability, const double *weights,
                              size_t count)
{
    by_scores *s;
    by_error error = {0};
    check_ok(by_scores_open(&s, 2, &error), &error);
    for (size_t i = 0; i < count; i++) {
        const float logits[2] = {0.0f, (float)log(probability[i] / (1.0 - probability[i]))};
        check_ok(by_scores_add(s, truth[i], logits, weights == NULL ? 1.0 : weights[i], &error),
                 &error);
    }
    return s;
}

/* roc_curve, roc_auc_score and average_precision_score of equal scores and weights. */
static void test_curves(void **state)
{
    (void)state;
    static const int truth[] = {0, 0, 1, 1, 1, 0, 1, 0};
    static const double probability[] = {0.1, 0.4, 0.35, 0.8, 0.4, 0.4, 0.9, 0.2};
    static const double weights[] = {1, 2, 1, 0.5, 1, 1, 3, 1};
    static const double x[] = {0, 0, 0, 0.5, 0.5, 0.75, 1};
    static const double y[] = {0, 0.25, 0.5, 0.75, 1, 1, 1};
    static const double precision[] = {1, 1, 1, 0.6, 4.0 / 6, 4.0 / 7, 0.5};
    by_error error = {0};
    by_score_curve c;
    by_scores *s = two_classes(truth, probability, NULL, 8);
    check_ok(by_scores_roc(&c, s, 1, &error), &error);
    assert_int_equal(c.count, 7);
    for (size_t i = 0; i < 7; i++) {
        check_near(c.x[i], x[i]);
        check_near(c.y[i], y[i]);
    }
    check_near(c.area, 0.8125);
    by_score_curve_free(&c);
    check_ok(by_scores_precision_recall(&c, s, 1, &error), &error);
    assert_int_equal(c.count, 7);
    for (size_t i = 0; i < 7; i++) {
        check_near(c.x[i], y[i]);
        check_near(c.y[i], precision[i]);
    }
    check_near(c.area, 0.25 + 0.25 + 0.25 * 0.6 + 0.25 * 4 / 6);
    by_score_curve_free(&c);
    assert_int_equal(by_scores_roc(&c, s, 2, &error), BY_EARG);
    by_scores_close(&s);

    s = two_classes(truth, probability, weights, 8);
    check_ok(by_scores_roc(&c, s, 1, &error), &error);
    check_near(c.area, 0.8363636364);
    by_score_curve_free(&c);
    check_ok(by_scores_precision_recall(&c, s, 1, &error), &error);
    check_near(c.area, 0.8631016043);
    by_score_curve_free(&c);
    by_scores_close(&s);
}

/* Logits of three classes: example 5 has two equal ones, of which the lower class is said. */
static by_scores *three_classes(void)
{
    static const int truth[] = {0, 1, 2, 2, 1, 0, 2};
    static const float rows[][3] = {{3, 1, 0},        {0, 2, 1},     {1, 4, 2.5f}, {-1, 0, 3},
                                    {2.5f, 0.5f, -2}, {2, 2, 0.25f}, {0, 0.75f, 5}};
    by_scores *s;
    by_error error = {0};
    check_ok(by_scores_open(&s, 3, &error), &error);
    for (size_t i = 0; i < 7; i++) {
        check_ok(by_scores_add(s, truth[i], rows[i], 1.0, &error), &error);
    }
    return s;
}

/* confusion_matrix and precision_recall_fscore_support. */
static void test_tables(void **state)
{
    (void)state;
    static const double confusion[9] = {2, 0, 0, 1, 1, 0, 0, 1, 2};
    double got[9];
    by_class_score classes[3];
    by_error error = {0};
    by_scores *s = three_classes();
    by_scores_confusion(s, got);
    for (size_t i = 0; i < 9; i++) {
        check_near(got[i], confusion[i]);
    }
    check_ok(by_scores_classes(s, classes, &error), &error);
    check_near(classes[0].precision, 2.0 / 3);
    check_near(classes[0].recall, 1);
    check_near(classes[0].f1, 0.8);
    check_near(classes[1].precision, 0.5);
    check_near(classes[1].recall, 0.5);
    check_near(classes[2].precision, 1);
    check_near(classes[2].recall, 2.0 / 3);
    check_near(classes[2].support, 3);
    by_score_curve c;
    static const double areas[3][2] = {
        {0.8, 0.5833333333}, {0.7, 0.5}, {0.9166666667, 0.9166666667}};
    for (size_t k = 0; k < 3; k++) {
        check_ok(by_scores_roc(&c, s, k, &error), &error);
        check_near(c.area, areas[k][0]);
        by_score_curve_free(&c);
        check_ok(by_scores_precision_recall(&c, s, k, &error), &error);
        check_near(c.area, areas[k][1]);
        by_score_curve_free(&c);
    }
    check_ok(by_scores_roc(&c, s, BY_SCORES_ALL, &error), &error);
    check_near(c.area, 0.8622448980);
    by_score_curve_free(&c);
    check_ok(by_scores_precision_recall(&c, s, BY_SCORES_ALL, &error), &error);
    check_near(c.area, 0.7540043290);
    by_score_curve_free(&c);
    by_scores_close(&s);
}

/* calibration_curve of the largest probability. */
static void test_calibration(void **state)
{
    (void)state;
    by_calibration_bin bins[5];
    double expected_error;
    by_scores *s = three_classes();
    by_scores_calibration(s, 5, bins, &expected_error);
    check_near(bins[1].weight, 0);
    check_near(bins[2].weight, 1);
    check_near(bins[2].confidence, 0.4600294354);
    check_near(bins[2].accuracy, 1);
    check_near(bins[3].weight, 2);
    check_near(bins[3].accuracy, 0.5);
    check_near(bins[4].confidence, 0.9079315788);
    check_near(bins[4].accuracy, 0.75);
    check_near(expected_error, 0.2317906957);
    by_scores_close(&s);
}

static void test_wrong_examples(void **state)
{
    (void)state;
    by_scores *s;
    by_error error = {0};
    by_score_curve c;
    const float logits[2] = {0.0f, 1.0f};
    const float endless[2] = {0.0f, INFINITY};
    assert_int_equal(by_scores_open(&s, 1, &error), BY_EARG);
    check_ok(by_scores_open(&s, 2, &error), &error);
    assert_int_equal(by_scores_add(s, 2, logits, 1, &error), BY_EARG);
    assert_int_equal(by_scores_add(s, -1, logits, 1, &error), BY_EARG);
    assert_int_equal(by_scores_add(s, 1, logits, 0, &error), BY_EARG);
    assert_int_equal(by_scores_add(s, 1, endless, 1, &error), BY_EFORMAT);
    check_ok(by_scores_add(s, 1, logits, 1, &error), &error);
    check_ok(by_scores_roc(&c, s, 1, &error), &error);
    assert_true(isnan(c.area)); /* there is no example of the other class */
    by_score_curve_free(&c);
    for (size_t i = 0; i < 1000; i++) {
        check_ok(by_scores_add(s, (int64_t)i % 2, logits, 1, &error), &error);
    }
    assert_int_equal(by_scores_count(s), 1001);
    check_ok(by_scores_roc(&c, s, 1, &error), &error);
    check_near(c.area, 0.5);
    by_score_curve_free(&c);
    by_scores_close(&s);
    by_scores_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_curves), cmocka_unit_test(test_tables),
                                       cmocka_unit_test(test_calibration),
                                       cmocka_unit_test(test_wrong_examples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
