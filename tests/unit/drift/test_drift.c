/* Comparisons of samples against Evidently and SciPy (tests/parity/make_drift_golden.py),
 * references that come back with the same bits, and windows: none of those without drift alarms,
 * and the first one with drift does. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "drift/drift.h"

#define GOLDEN BY_SOURCE_DIR "/tests/parity/golden/drift.json"

/* ---- against Evidently ---- */

static double *values_of(const json_t *o, const char *key, size_t *count)
{
    const json_t *list = json_object_get(o, key);
    *count = json_array_size(list);
    double *out = calloc(*count + 1, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < *count; i++) {
        out[i] = json_number_value(json_array_get(list, i));
    }
    return out;
}

/* Equal to 10 digits; sums are taken in another order. */
static void check(const json_t *o, const char *key, double value)
{
    const json_t *want = json_object_get(o, key);
    double expected = json_number_value(want);
    if (want != NULL && !(fabs(value - expected) <= 1e-10 * fabs(expected) + 1e-14)) {
        fail_msg("%s, %s: %.17g is not %.17g", json_string_value(json_object_get(o, "name")), key,
                 value, expected);
    }
}

static void test_evidently(void **state)
{
    json_t *golden = json_load_file(GOLDEN, 0, NULL);
    by_error error = {0};
    by_drift_scores s;
    json_t *o;
    size_t i;
    size_t m;
    size_t n;
    (void)state;
    assert_non_null(golden);
    json_array_foreach(json_object_get(golden, "numbers"), i, o)
    {
        double *reference = values_of(o, "reference", &m);
        double *current = values_of(o, "current", &n);
        assert_int_equal(by_drift_numbers(&s, reference, m, current, n, &error), BY_OK);
        check(o, "psi", s.psi);
        check(o, "jensen_shannon", s.jensen_shannon);
        check(o, "wasserstein", s.wasserstein);
        check(o, "ks", s.ks);
        check(o, "ks_p", s.ks_p);
        check(o, "chi_squared_p", s.chi_squared_p);
        free(reference);
        free(current);
    }
    assert_int_equal(i, 7);
    json_array_foreach(json_object_get(golden, "categories"), i, o)
    {
        double *reference = values_of(o, "reference", &m);
        double *current = values_of(o, "current", &n);
        assert_int_equal(by_drift_categories(&s, reference, current, m, &error), BY_OK);
        check(o, "psi", s.psi);
        check(o, "jensen_shannon", s.jensen_shannon);
        check(o, "chi_squared_p", s.chi_squared_p);
        free(reference);
        free(current);
    }
    assert_int_equal(i, 5);
    json_decref(golden);
}

static void test_samples_that_cannot_be_compared(void **state)
{
    const double good[2] = {1.0, 2.0};
    const double bad[2] = {1.0, NAN};
    const double none[2] = {0.0, 0.0};
    const double negative[2] = {3.0, -1.0};
    by_drift_scores s;
    by_error error = {0};
    (void)state;
    assert_int_equal(by_drift_numbers(&s, good, 2, bad, 2, &error), BY_EARG);
    assert_int_equal(by_drift_numbers(&s, good, 0, good, 2, &error), BY_EARG);
    assert_int_equal(by_drift_categories(&s, good, none, 2, &error), BY_EARG);
    assert_int_equal(by_drift_categories(&s, negative, good, 2, &error), BY_EARG);
}

/* Tables of the chi-squared distribution, and the limit of Kolmogorov's against exact shares. */
static void test_tails(void **state)
{
    by_error error = {0};
    (void)state;
    assert_float_equal(by__drift_chi_squared_tail(3.841458820694124, 1.0), 0.05, 1e-12);
    assert_float_equal(by__drift_chi_squared_tail(124.3421134004004, 100.0), 0.05, 1e-11);
    assert_float_equal(by__drift_chi_squared_tail(0.0, 5.0), 1.0, 0.0);
    assert_float_equal(by__drift_chi_squared_tail(INFINITY, 5.0), 0.0, 0.0);
    for (int i = 1; i <= 9; i++) {
        double d = i / 100.0;
        double exact;
        assert_int_equal(by__drift_kolmogorov_exact(&exact, d, 1500, 1300, &error), BY_OK);
        double limit = by__drift_kolmogorov_tail(d, 1500.0 * 1300.0 / 2800.0);
        assert_true(fabs(exact - limit) < 0.01);
    }
}

/* ---- references ---- */

/* Uniform in (0, 1), a stream of its own for each seed. */
static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *state)
{
    double u = uniform(state);
    double v = uniform(state);
    return sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v);
}

#define ROWS    4000
#define COLOURS 3
static const char *const colours[COLOURS] = {"blue", "green", "red"};
/* Of a thousand. */
static const unsigned usual[COLOURS] = {500, 300, 200};
static const unsigned other[COLOURS] = {250, 250, 500};

static size_t draw_colour(uint64_t *state, const unsigned *shares)
{
    double u = uniform(state) * 1000.0;
    size_t i = 0;
    while (i + 1 < COLOURS && u >= shares[i]) {
        u -= shares[i++];
    }
    return i;
}

/* Two numbers, one of them with values that are missing, few values, and a category. */
static by_drift_reference *table_reference(void)
{
    by_error error = {0};
    by_drift_reference *r = NULL;
    double *values = calloc(ROWS, sizeof *values);
    uint64_t counts[COLOURS] = {0};
    uint64_t seed = 11;
    assert_non_null(values);
    assert_int_equal(by_drift_reference_open(&r, ROWS, &error), BY_OK);
    for (size_t i = 0; i < ROWS; i++) {
        values[i] = i % 10 == 3 ? NAN : 20.0 + 5.0 * normal(&seed);
    }
    assert_int_equal(by_drift_reference_number(r, "age", values, ROWS, &error), BY_OK);
    for (size_t i = 0; i < ROWS; i++) {
        values[i] = floor(uniform(&seed) * 4.0);
        counts[draw_colour(&seed, usual)]++;
    }
    assert_int_equal(by_drift_reference_number(r, "rooms", values, ROWS, &error), BY_OK);
    assert_int_equal(by_drift_reference_number(r, "rooms", values, ROWS, &error), BY_EARG);
    assert_int_equal(by_drift_reference_category(r, "colour", colours, counts, COLOURS, 0, &error),
                     BY_OK);
    assert_int_equal(by_drift_reference_value(r, "bits_per_byte", 1.2345678901234567, &error),
                     BY_OK);
    free(values);
    return r;
}

static void test_reference_file(void **state)
{
    by_error error = {0};
    by_drift_reference *r = table_reference();
    by_drift_reference *back = NULL;
    char *text;
    char *again;
    (void)state;
    assert_int_equal(by_drift_reference_print(r, &text, &error), BY_OK);
    assert_int_equal(by_drift_reference_parse(&back, "r.json", text, strlen(text), &error), BY_OK);
    assert_int_equal(by_drift_reference_print(back, &again, &error), BY_OK);
    assert_string_equal(text, again);
    assert_int_equal(by_drift_reference_features(back), 3);
    assert_int_equal(by_drift_reference_find(back, "colour"), 2);
    assert_int_equal(by_drift_reference_find(back, "size"), 3);
    by_drift_reference_close(&back);
    /* Whatever is cut off or changed is refused, or still a reference. */
    for (size_t cut = 0; cut < strlen(text); cut += 7) {
        assert_int_equal(by_drift_reference_parse(&back, "r.json", text, cut, &error), BY_EFORMAT);
    }
    /* The first version, of features without roles, is read; a later one is not. */
    char *version = strstr(text, "\"version\":2");
    assert_non_null(version);
    version[strlen("\"version\":")] = '1';
    assert_int_equal(by_drift_reference_parse(&back, "r.json", text, strlen(text), &error), BY_OK);
    by_drift_reference_close(&back);
    version[strlen("\"version\":")] = '3';
    assert_int_equal(by_drift_reference_parse(&back, "r.json", text, strlen(text), &error),
                     BY_EFORMAT);
    assert_non_null(strstr(error.message, "version"));
    free(text);
    free(again);
    by_drift_reference_close(&r);
}

/* Which features are of predictions comes back, and each role has one feature of its kind. */
/* Several numbers may be outcomes, but not beside a category. */
static void test_several_outcomes(void **state)
{
    const double shares[4] = {0.5, 0.75, 0.9, 0.99};
    const uint64_t counts[2] = {3, 1};
    by_error error = {0};
    by_drift_reference *r = table_reference();
    by_drift_reference *back = NULL;
    char *text;
    (void)state;
    assert_int_equal(by_drift_reference_number(r, "one", shares, 4, &error), BY_OK);
    assert_int_equal(by_drift_reference_number(r, "two", shares, 4, &error), BY_OK);
    assert_int_equal(by_drift_reference_category(r, "class", colours, counts, 2, 0, &error), BY_OK);
    assert_int_equal(by_drift_reference_assign(r, 3, BY_DRIFT_OUTCOME, &error), BY_OK);
    assert_int_equal(by_drift_reference_assign(r, 4, BY_DRIFT_OUTCOME, &error), BY_OK);
    assert_int_equal(by_drift_reference_assign(r, 5, BY_DRIFT_OUTCOME, &error), BY_EARG);
    assert_int_equal(by_drift_reference_print(r, &text, &error), BY_OK);
    assert_int_equal(by_drift_reference_parse(&back, "r.json", text, strlen(text), &error), BY_OK);
    assert_int_equal(by_drift_reference_predicted(back, BY_DRIFT_OUTCOME), 3);
    assert_int_equal(by_drift_reference_role(back, 4), BY_DRIFT_OUTCOME);
    assert_int_equal(by_drift_reference_role(back, 5), BY_DRIFT_INPUT);
    free(text);
    by_drift_reference_close(&back);
    by_drift_reference_close(&r);
}

static void test_roles(void **state)
{
    const double shares[4] = {0.5, 0.75, 0.9, 0.99};
    const uint64_t counts[2] = {3, 1};
    by_error error = {0};
    by_drift_reference *r = table_reference();
    by_drift_reference *back = NULL;
    char *text;
    (void)state;
    assert_int_equal(by_drift_reference_predicted(r, BY_DRIFT_OUTCOME), 3);
    assert_int_equal(by_drift_reference_category(r, "class", colours, counts, 2, 0, &error), BY_OK);
    assert_int_equal(by_drift_reference_number(r, "sure", shares, 4, &error), BY_OK);
    assert_int_equal(by_drift_reference_assign(r, 3, BY_DRIFT_CONFIDENCE, &error), BY_EARG);
    assert_int_equal(by_drift_reference_assign(r, 3, BY_DRIFT_OUTCOME, &error), BY_OK);
    assert_int_equal(by_drift_reference_assign(r, 4, BY_DRIFT_OUTCOME, &error), BY_EARG);
    assert_non_null(strstr(error.message, "'sure' and 'class'"));
    assert_int_equal(by_drift_reference_assign(r, 4, BY_DRIFT_CONFIDENCE, &error), BY_OK);
    assert_int_equal(by_drift_reference_print(r, &text, &error), BY_OK);
    assert_int_equal(by_drift_reference_parse(&back, "r.json", text, strlen(text), &error), BY_OK);
    assert_int_equal(by_drift_reference_role(back, 0), BY_DRIFT_INPUT);
    assert_int_equal(by_drift_reference_predicted(back, BY_DRIFT_OUTCOME), 3);
    assert_int_equal(by_drift_reference_predicted(back, BY_DRIFT_CONFIDENCE), 4);
    by_drift_reference_close(&back);
    char *role = strstr(text, "\"role\":\"confidence\"");
    assert_non_null(role);
    memcpy(role, "\"role\":\"outcomes!!\"", strlen("\"role\":\"outcomes!!\""));
    assert_int_equal(by_drift_reference_parse(&back, "r.json", text, strlen(text), &error),
                     BY_EFORMAT);
    assert_non_null(strstr(error.message, "role"));
    free(text);
    by_drift_reference_close(&r);
}

/* What JSON cannot hold is refused, so that no file is written that cannot be read. */
static void test_unprintable(void **state)
{
    static const char *const values[] = {"caf\xe9", "tea"};
    const uint64_t counts[] = {1, 2};
    const double huge[] = {-1e300, 1e300};
    by_error error = {0};
    char *text = NULL;
    (void)state;
    for (int i = 0; i < 2; i++) {
        by_drift_reference *r;
        assert_int_equal(by_drift_reference_open(&r, 3, &error), BY_OK);
        assert_int_equal(i == 0
                             ? by_drift_reference_category(r, "drink", values, counts, 2, 0, &error)
                             : by_drift_reference_number(r, "drink", huge, 2, &error),
                         BY_OK);
        assert_int_equal(by_drift_reference_print(r, &text, &error), BY_EARG);
        assert_non_null(strstr(error.message, "'drink'"));
        assert_null(text);
        by_drift_reference_close(&r);
    }
}

/* ---- windows ---- */

typedef struct shift {
    double age;             /* of its mean, in deviations */
    const unsigned *colour; /* shares */
    double missing;         /* share of ages */
    bool stranger;          /* a colour that is not known, now and then */
} shift;

/* One window of rows; the verdicts are the watch's. */
static const by_drift_window *feed(by_drift_watch *watch, uint64_t *seed, const shift *s,
                                   size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        double age = 20.0 + 5.0 * (normal(seed) + s->age);
        bool missing = uniform(seed) < s->missing;
        bool stranger = s->stranger && i % 5 == 0;
        by_drift_watch_number(watch, 0, missing ? NAN : age);
        by_drift_watch_number(watch, 1, floor(uniform(seed) * 4.0));
        by_drift_watch_category(watch, 2,
                                stranger ? "mauve" : colours[draw_colour(seed, s->colour)]);
        bool full = by_drift_watch_next(watch, 0.0);
        assert_int_equal(full, i + 1 == rows);
    }
    return by_drift_watch_last(watch);
}

static void test_windows_of_a_table(void **state)
{
    static const size_t sizes[] = {100, 500, 5000};
    const shift none = {.colour = usual, .missing = 0.1};
    const struct {
        shift shift;
        size_t feature;
    } shifts[] = {{{.colour = usual, .missing = 0.1, .age = 0.8}, 0},
                  {{.colour = other, .missing = 0.1}, 2},
                  {{.colour = usual, .missing = 0.6}, 0},
                  {{.colour = usual, .missing = 0.1, .stranger = true}, 2}};
    by_drift_reference *r = table_reference();
    by_error error = {0};
    uint64_t seed = 5;
    (void)state;
    for (size_t k = 0; k < BY_ARRAY_LENGTH(sizes); k++) {
        by_drift_watch *watch;
        const by_drift_options options = {.requests = sizes[k]};
        assert_int_equal(by_drift_watch_open(&watch, r, &options, &error), BY_OK);
        for (int i = 0; i < 50; i++) {
            const by_drift_window *w = feed(watch, &seed, &none, sizes[k]);
            assert_false(w->detected);
        }
        assert_int_equal(by_drift_watch_last(watch)->alarms, 0);
        for (size_t i = 0; i < BY_ARRAY_LENGTH(shifts); i++) {
            const by_drift_window *w = feed(watch, &seed, &shifts[i].shift, sizes[k]);
            assert_true(w->detected);
            for (size_t f = 0; f < w->count; f++) {
                assert_int_equal(w->verdicts[f].detected, f == shifts[i].feature);
            }
        }
        const by_drift_verdict *colour = &by_drift_watch_last(watch)->verdicts[2];
        assert_float_equal(colour->unknown, 0.2, 1e-12);
        assert_int_equal(by_drift_watch_last(watch)->alarms, 4);
        by_drift_watch_close(&watch);
    }
    by_drift_reference_close(&r);
}

/* A column of `distinct` values, `rows` in all: those of a reference, or a window whose values are
 * drawn as they were, or that has only values that the reference does not have. */
static void draw_values(uint64_t *counts, size_t distinct, size_t rows, uint64_t *seed)
{
    memset(counts, 0, distinct * sizeof *counts);
    for (size_t i = 0; i < rows; i++) {
        counts[(size_t)(uniform(seed) * (double)distinct)]++;
    }
}

static void test_many_categories(void **state)
{
    enum { VALUES = 20000, SEEN = 4000, WIDE = 500 };
    /* Every value several times, about once, and hardly ever twice. */
    static const size_t distinct[] = {200, 300, 1000, 4000, VALUES};
    static char names[VALUES][16];
    static const char *values[VALUES];
    static uint64_t counts[VALUES];
    uint64_t seed = 11;
    by_error error = {0};
    (void)state;
    for (size_t i = 0; i < VALUES; i++) {
        (void)snprintf(names[i], sizeof names[i], "v%zu", i);
        values[i] = names[i];
    }
    for (size_t k = 0; k < BY_ARRAY_LENGTH(distinct); k++) {
        by_drift_reference *r;
        by_drift_watch *watch;
        const by_drift_options options = {.requests = WIDE};
        assert_int_equal(by_drift_reference_open(&r, SEEN, &error), BY_OK);
        draw_values(counts, distinct[k], SEEN, &seed);
        assert_int_equal(
            by_drift_reference_category(r, "city", values, counts, distinct[k], 0, &error), BY_OK);
        assert_int_equal(by_drift_watch_open(&watch, r, &options, &error), BY_OK);
        for (int i = 0; i < 100 * WIDE; i++) {
            by_drift_watch_category(watch, 0,
                                    values[(size_t)(uniform(&seed) * (double)distinct[k])]);
            if (by_drift_watch_next(watch, i)) {
                assert_false(by_drift_watch_last(watch)->detected);
            }
        }
        for (int i = 0; i < WIDE; i++) {
            by_drift_watch_category(watch, 0, "elsewhere");
            (void)by_drift_watch_next(watch, i);
        }
        /* Where nearly every row has a value of its own, new values are what is usual. */
        assert_int_equal(by_drift_watch_last(watch)->detected, distinct[k] <= 1000);
        double unknown = by_drift_watch_last(watch)->verdicts[0].unknown;
        assert_true(distinct[k] > 1000 || unknown > 0.1);
        by_drift_watch_close(&watch);
        by_drift_reference_close(&r);
    }
}

/* Fewer requests than are compared wait for the next ones; a window that took too long is compared
 * as soon as it has enough. */
static void test_few_requests(void **state)
{
    by_drift_reference *r = table_reference();
    by_drift_watch *watch;
    by_error error = {0};
    const by_drift_options options = {.requests = 1000, .seconds = 60.0, .least = 50};
    (void)state;
    assert_int_equal(by_drift_watch_open(&watch, r, &options, &error), BY_OK);
    for (int i = 0; i < 49; i++) {
        by_drift_watch_number(watch, 0, 1000.0);
        assert_false(by_drift_watch_next(watch, 100.0 * i));
    }
    assert_int_equal(by_drift_watch_filled(watch), 49);
    assert_int_equal(by_drift_watch_last(watch)->number, 0);
    by_drift_watch_number(watch, 0, 1000.0);
    assert_true(by_drift_watch_next(watch, 5000.0));
    const by_drift_window *w = by_drift_watch_last(watch);
    assert_int_equal(w->requests, 50);
    assert_true(w->verdicts[0].detected);
    assert_float_equal(w->verdicts[0].out_of_range, 1.0, 1e-12);
    /* The other features had no value at all: nothing is said of them. */
    assert_false(w->verdicts[1].detected);
    assert_int_equal(by_drift_watch_filled(watch), 0);
    by_drift_watch_close(&watch);
    by_drift_reference_close(&r);
}

/* Bins, fine as they are, give what whole samples give: KS and Wasserstein to within the share and
 * the width of a bin. */
static void test_bins_against_samples(void **state)
{
    by_drift_reference *r = NULL;
    by_drift_watch *watch;
    by_drift_scores s;
    by_error error = {0};
    double *a = calloc(ROWS, sizeof *a);
    double *b = calloc(ROWS, sizeof *b);
    uint64_t seed = 77;
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        a[i] = normal(&seed);
        b[i] = 0.8 * normal(&seed) + 0.7;
    }
    assert_int_equal(by_drift_reference_open(&r, ROWS, &error), BY_OK);
    assert_int_equal(by_drift_reference_number(r, "x", a, ROWS, &error), BY_OK);
    assert_int_equal(by_drift_watch_open(&watch, r, &(by_drift_options){.requests = ROWS}, &error),
                     BY_OK);
    for (size_t i = 0; i < ROWS; i++) {
        by_drift_watch_number(watch, 0, b[i]);
        (void)by_drift_watch_next(watch, 0.0);
    }
    const by_drift_verdict *v = by_drift_watch_last(watch)->verdicts;
    assert_int_equal(by_drift_numbers(&s, a, ROWS, b, ROWS, &error), BY_OK);
    assert_true(fabs(v->ks - s.ks) < 0.016);
    assert_true(fabs(v->wasserstein - s.wasserstein) < 0.02);
    free(a);
    free(b);
    by_drift_watch_close(&watch);
    by_drift_reference_close(&r);
}

#define VOCAB 600

/* A request of a text whose tokens come in runs: each topic has tokens of its own. */
static size_t draw_text(int32_t *ids, uint64_t *seed, unsigned topics, unsigned first)
{
    size_t count = 20 + (size_t)(uniform(seed) * 60.0);
    unsigned topic = first + (unsigned)(uniform(seed) * topics);
    for (size_t i = 0; i < count; i++) {
        bool common = uniform(seed) < 0.6;
        double u = uniform(seed);
        ids[i] = common ? (int32_t)(u * u * 40.0) : (int32_t)(40 + (topic * 20 + u * 20.0));
    }
    return count;
}

static void test_windows_of_text(void **state)
{
    uint64_t counts[VOCAB] = {0};
    int32_t ids[128];
    uint64_t seed = 3;
    by_drift_reference *r = NULL;
    by_drift_watch *watch;
    by_error error = {0};
    (void)state;
    for (int i = 0; i < 20000; i++) {
        size_t n = draw_text(ids, &seed, 10, 0);
        for (size_t k = 0; k < n; k++) {
            counts[ids[k]]++;
        }
    }
    assert_int_equal(by_drift_reference_open(&r, 20000, &error), BY_OK);
    assert_int_equal(by_drift_reference_tokens(r, "tokens", counts, VOCAB, &error), BY_OK);
    assert_int_equal(by_drift_watch_open(&watch, r, &(by_drift_options){.requests = 200}, &error),
                     BY_OK);
    double design = 0.0;
    for (int i = 0; i < 51 * 200; i++) {
        size_t n = draw_text(ids, &seed, 10, i < 50 * 200 ? 0 : 6);
        by_drift_watch_tokens(watch, 0, ids, n);
        if (by_drift_watch_next(watch, 0.0)) {
            const by_drift_window *w = by_drift_watch_last(watch);
            design += w->verdicts[0].design / 51.0;
            assert_int_equal(w->detected, i >= 50 * 200);
        }
    }
    /* A request has one topic, so its tokens are far from independent. */
    assert_true(design > 3.0);
    by_drift_watch_close(&watch);
    by_drift_reference_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evidently),
        cmocka_unit_test(test_samples_that_cannot_be_compared),
        cmocka_unit_test(test_tails),
        cmocka_unit_test(test_reference_file),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_several_outcomes),
        cmocka_unit_test(test_unprintable),
        cmocka_unit_test(test_windows_of_a_table),
        cmocka_unit_test(test_many_categories),
        cmocka_unit_test(test_few_requests),
        cmocka_unit_test(test_bins_against_samples),
        cmocka_unit_test(test_windows_of_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
