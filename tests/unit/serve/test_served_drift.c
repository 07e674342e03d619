/* Rows of requests as drift counts them: cells are what the model reads them as. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "banyan/table.h"
#include "base/base.h"
#include "serve/telemetry/served_drift.h"
#include "temporary.h"

#define ROWS 8

/* A number, a category and one of whole numbers. */
static void write_reference(const char *directory)
{
    static const double ages[] = {10.0, 20.0, 30.0, 40.0};
    static const char *const places[] = {"coast", "hill"};
    static const char *const codes[] = {"7", "9007199254740993"};
    static const uint64_t counts[] = {2, 2};
    char *path = by__path_join(directory, BY_DRIFT_FILE);
    by_drift_reference *r = NULL;
    by_error error = {0};
    char *text;
    assert_int_equal(by_drift_reference_open(&r, 4, &error), BY_OK);
    assert_int_equal(by_drift_reference_number(r, "age", ages, 4, &error), BY_OK);
    assert_int_equal(by_drift_reference_category(r, "place", places, counts, 2, 0, &error), BY_OK);
    assert_int_equal(by_drift_reference_category(r, "code", codes, counts, 2, 0, &error), BY_OK);
    assert_int_equal(by_drift_reference_print(r, &text, &error), BY_OK);
    assert_int_equal(by__file_write(path, text, strlen(text), &error), BY_OK);
    by_drift_reference_close(&r);
    free(text);
    free(path);
}

/* The encoding of a model that predicts `code`. */
static void write_encoding(const char *directory)
{
    static const char csv[] = "age,place,code\n10,coast,a\n20,hill,b\n30,coast,a\n40,hill,b\n";
    const by_encoding_options options = {.targets = (const char *const[]){"code"},
                                         .target_count = 1};
    char *path = by__path_join(directory, "encoding.json");
    by_encoding *encoding = NULL;
    by_table *table = NULL;
    by_error error = {0};
    char *text;
    assert_int_equal(by_table_parse(&table, "t.csv", csv, strlen(csv), NULL, &error), BY_OK);
    const by_part all = {.count = by_table_rows(table), .total = by_table_rows(table)};
    assert_int_equal(by_encoding_learn(&encoding, table, &all, &options, &error), BY_OK);
    assert_int_equal(by_encoding_print(encoding, &text, &error), BY_OK);
    assert_int_equal(by__file_write(path, text, strlen(text), &error), BY_OK);
    by_encoding_close(&encoding);
    by_table_close(&table);
    free(text);
    free(path);
}

/* A window of one row again and again: shares of a feature that are missing and not known. */
static void check(const char *row_text, size_t feature, double missing, double unknown)
{
    const by_drift_options options = {.requests = ROWS, .least = ROWS};
    const by__telemetry_log log = {0};
    char *directory = temporary_make();
    by__telemetry_served_drift *d = NULL;
    by_error error = {0};
    json_t *row = json_loads(row_text, 0, NULL);
    assert_non_null(directory);
    assert_non_null(row);
    write_reference(directory);
    write_encoding(directory);
    assert_int_equal(by__telemetry_served_drift_open(&d, directory, &options, &log, &error), BY_OK);
    for (int i = 0; i < ROWS; i++) {
        by__telemetry_served_drift_example(d, row, NULL);
    }
    const by_drift_window *w = by__telemetry_served_drift_last(d);
    assert_int_equal(w->number, 1);
    assert_true(w->verdicts[feature].missing == missing);
    assert_true(w->verdicts[feature].unknown == unknown);
    json_decref(row);
    by__telemetry_served_drift_close(&d);
    temporary_remove(directory);
}

static void test_numbers(void **state)
{
    (void)state;
    check("{\"age\": 20}", 0, 0.0, 0.0);
    check("{\"age\": 2.5e1}", 0, 0.0, 0.0);
    check("{\"age\": \" 25.5\"}", 0, 0.0, 0.0); /* as a file has it, and a store of features */
    check("{\"age\": null}", 0, 1.0, 0.0);
    check("{\"age\": \"\"}", 0, 1.0, 0.0);
    check("{\"age\": \"NA\"}", 0, 1.0, 0.0);
}

static void test_categories(void **state)
{
    (void)state;
    check("{\"place\": \"hill\"}", 1, 0.0, 0.0);
    check("{\"place\": \"sea\"}", 1, 0.0, 1.0);
    check("{\"place\": \"\"}", 1, 1.0, 0.0);
    check("{\"place\": \"N/A\"}", 1, 1.0, 0.0);
    check("{\"code\": 7}", 2, 0.0, 0.0);
    check("{\"code\": \"7\"}", 2, 0.0, 0.0);
    check("{\"code\": 9007199254740993}", 2, 0.0, 0.0); /* no double has it */
    check("{\"code\": 8}", 2, 0.0, 1.0);
}

/* A column that the model reads is missing where a row does not have it; a target is not. */
static void test_absent(void **state)
{
    (void)state;
    check("{\"place\": \"hill\"}", 0, 1.0, 0.0);
    check("{\"age\": 20}", 1, 1.0, 0.0);
    check("{\"age\": 20}", 2, 0.0, 0.0);
    check("[20, \"hill\"]", 0, 0.0, 0.0); /* cells without names */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_categories),
                                       cmocka_unit_test(test_absent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
