/* Series of a table: grouping, scales, missing numbers, windows and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/series/series_source.h"
#include "runner.h"
#include "temporary.h"

static char *folder;
static char path[512];

static int make_folder(void **state)
{
    BY_UNUSED(state);
    folder = temporary_make();
    (void)snprintf(path, sizeof path, "%s/series.csv", folder);
    return 0;
}

static int drop_folder(void **state)
{
    BY_UNUSED(state);
    temporary_remove(folder);
    return 0;
}

static by_status open_text(by__series_set **out, const char *text, const char *id, by_error *error)
{
    const by__series_columns columns = {.time = "", .id = id};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return by__series_set_open(out, path, &columns, NULL, error);
}

/* Two series whose rows alternate; a number of the first is missing. */
static const char two[] = "date,shop,sold,price\n"
                          "2026-01-01,north,1,10\n"
                          "2026-01-01,south,5,20\n"
                          "2026-01-02,north,3,\n"
                          "2026-01-02,south,7,20\n"
                          "2026-01-03,north,5,14\n"
                          "2026-01-03,south,9,20\n";

/* A column of times in another style is named, with what is read; of others nothing is said. */
static void test_doubted_times(void **state)
{
    static const char *const cases[][2] = {
        {"when,x\n29.11.2026 07:45,1\n29.11.2026 08:45,2\n", "'29.11.2026 07:45' is none"},
        {"when,x\n11/29/2026 7:45 AM,1\n11/29/2026 8:45 AM,2\n", "column 'when' looks like times"},
        {"a,when,x\nu,2026-11-29,1\nv,2026-11-31,2\n", "but '2026-11-31' is none"},
        {"a,x\nstore 17,1\nstore 18,2\n", NULL},
        {"when,other,x\n2026-11-29,29.11.2026,1\n2026-11-30,30.11.2026,2\n", NULL},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        by__series_set *set;
        assert_int_equal(open_text(&set, cases[i][0], "", &error), BY_OK);
        if (cases[i][1] == NULL) {
            assert_string_equal(set->doubt, "");
        } else {
            assert_non_null(strstr(set->doubt, cases[i][1]));
            assert_non_null(strstr(set->doubt, "2026/11/29"));
            assert_non_null(strstr(set->doubt, "data.time"));
        }
        by__series_set_close(&set);
    }
    const by__series_columns columns = {.time = "when", .id = ""};
    by_error error = {0};
    by__series_set *set;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(cases[0][0], file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(by__series_set_open(&set, path, &columns, 0, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "'29.11.2026 07:45' is neither a number nor a time"));
}

static by__series_set *open_two(by__series_scales **scales)
{
    by_error error = {0};
    by__series_set *set;
    const by__series_columns columns = {.time = "", .id = "shop"};
    static const uint64_t train[2] = {2, 2};
    assert_int_equal(open_text(&set, two, "shop", &error), BY_OK);
    assert_int_equal(by__series_learn(scales, set, &columns, train, &error), BY_OK);
    return set;
}

static void test_groups_and_scales(void **state)
{
    BY_UNUSED(state);
    by__series_scales *scales;
    by__series_set *set = open_two(&scales);
    assert_int_equal(set->series_count, 2);
    assert_int_equal(set->channels.count, 2);
    assert_string_equal(set->series[1].name, "south");
    assert_true(set->series[1].step == 86400.0);
    assert_int_equal(set->series[1].first, 3);
    /* Sold on the first two days: 1, 3, 5, 7. Price: 10, 20, 20. */
    assert_true(fabs(scales->mean[0] - 4.0) < 1e-12);
    assert_true(fabs(scales->deviation[0] - sqrt(5.0)) < 1e-12);
    assert_true(fabs(scales->mean[1] - 50.0 / 3.0) < 1e-12);
    by__series_standardize(set, scales);
    assert_true(set->values[0] == (float)(-3.0 / sqrt(5.0)));
    assert_int_equal(set->present[3], 0);
    assert_true(set->values[3] == set->values[1]); /* the last price before it */
    by__series_set_close(&set);
    by__series_scales_close(&scales);
}

static void test_scales_survive_json(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__series_scales *scales;
    by__series_scales *read;
    char *text;
    by__series_set *set = open_two(&scales);
    assert_int_equal(by__series_scales_print(scales, &text, &error), BY_OK);
    assert_int_equal(by__series_scales_parse(&read, "series.json", text, &error), BY_OK);
    assert_string_equal(read->id, "shop");
    assert_string_equal(read->time, "date");
    assert_string_equal(read->channels.items[1], "price");
    assert_memory_equal(read->mean, scales->mean, 2 * sizeof *read->mean);
    assert_memory_equal(read->deviation, scales->deviation, 2 * sizeof *read->deviation);
    free(text);
    by__series_scales_close(&read);
    static const char *const wrong[] = {
        "", "[]", "{\"time\": \"\", \"series\": \"\", \"channels\": []}",
        "{\"time\": \"\", \"series\": \"\", \"channels\": [{\"name\": \"a\", \"mean\": 0}]}",
        "{\"series\": \"\", \"channels\": [{\"name\": \"a\", \"mean\": 0, \"deviation\": 1}]}"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        read = NULL;
        assert_int_equal(by__series_scales_parse(&read, "x", wrong[i], &error), BY_EFORMAT);
        assert_null(read);
    }
    by__series_set_close(&set);
    by__series_scales_close(&scales);
}

static void test_stamps(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *text;
        double seconds;
    } cases[] = {{"1970-01-01", 0.0},
                 {"2000-02-29 00:00:00", 951782400.0},
                 {"2026-11-29T07:45:30Z", 1795938330.0},
                 {"2026/11/29 07:45", 1795938300.0},
                 {"2026-11-29 07:45:30+01:00", 1795934730.0},
                 {"1969-12-31 23:59:59", -1.0}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        double seconds;
        char text[40];
        by__series_stamp style;
        assert_true(by__series_stamp_parse(&seconds, &style, cases[i].text));
        assert_true(seconds == cases[i].seconds);
        by__series_stamp_print(text, seconds, &style);
        assert_string_equal(text, cases[i].text);
    }
    static const char *const wrong[] = {"",
                                        "2026",
                                        "2026-13-01",
                                        "2026-02-30",
                                        "2025-02-29",
                                        "2026-01/01",
                                        "26-01-01",
                                        "2026-01-01 24:00",
                                        "2026-01-01 10",
                                        "2026-01-01 10:00 x",
                                        "2026-01-01x",
                                        "2026-01-01 10:00:00+1"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        double seconds;
        by__series_stamp style;
        if (by__series_stamp_parse(&seconds, &style, wrong[i])) {
            fail_msg("'%s' is taken for a time", wrong[i]);
        }
    }
}

static void test_windows_of_parts(void **state)
{
    BY_UNUSED(state);
    /* 10 rows, 3 in, 2 ahead: targets of rows 0 to 6, then 6 to 10. */
    by__series_windows train = by__series_windows_in(0, 6, 3, 2);
    by__series_windows valid = by__series_windows_in(6, 10, 3, 2);
    assert_int_equal(train.first, 0);
    assert_int_equal(train.count, 2);
    assert_int_equal(valid.first, 3);
    assert_int_equal(valid.count, 3);
    assert_int_equal(by__series_windows_in(0, 4, 3, 2).count, 0);
    assert_int_equal(by__series_windows_in(9, 10, 3, 2).count, 0);
    assert_int_equal(by__series_windows_in(0, 5, 3, 2).count, 1);
}

static void test_samples(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_source *source;
    by__series_scales *scales;
    by__series_set *set = open_two(&scales);
    static const by__series_windows windows[2] = {{0, 2}, {1, 1}};
    by__series_window_options options = {.context = 1, .horizon = 1, .windows = windows};
    assert_int_equal(by__series_source_open(&source, set, &options, &error), BY_OK);
    assert_int_equal(source->samples, 3);
    float in[2];
    float targets[2];
    float weight[2];
    void *rows[3] = {in, targets, weight};
    double sum;
    by_source_sample sample = {.place = 0};
    assert_int_equal(source->fill(source, &sample, rows, &error), BY_OK);
    assert_int_equal(source->weigh(source, &sample, &sum, &error), BY_OK);
    assert_true(in[0] == 1.0f && targets[0] == 3.0f);
    assert_true(weight[0] == 1.0f && weight[1] == 0.0f && sum == 1.0); /* a price is missing */
    sample.place = 2; /* of the second series, from its second row on */
    assert_int_equal(source->fill(source, &sample, rows, &error), BY_OK);
    assert_true(in[0] == 7.0f && targets[0] == 9.0f && weight[1] == 1.0f);
    sample.place = 3; /* padding */
    assert_int_equal(source->fill(source, &sample, rows, &error), BY_OK);
    assert_int_equal(source->weigh(source, &sample, &sum, &error), BY_OK);
    assert_true(weight[0] == 0.0f && sum == 0.0);
    by_source_close(&source);
    by__series_set_close(&set);
    by__series_scales_close(&scales);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *text;
        const char *id;
        by_status status;
        const char *message;
    } cases[] = {
        {"date,a\n2026-01-02,1\n2026-01-01,2\n", "", BY_EFORMAT,
         "row 2: the time in column 'date'"},
        {"date,a\n2026-01-02,1\n2026-01-02,2\n", "", BY_EFORMAT, "row 2"},
        {"date,a\n2026-01-02,1\n,2\n", "", BY_EFORMAT, "is missing"},
        {"date,a\n2026-01-02,1e39\n", "", BY_EFORMAT, "beyond f32"},
        {"date,name\n2026-01-02,x\n", "", BY_ECONFIG, "no column of numbers"},
        {"date,a\n2026-01-02,1\n", "shop", BY_EARG, "shop"},
        {"when,a\nx,1\n", "", BY_OK, ""},
        {"date,shop,a\n2026-01-02,x,1\n2026-01-03,,1\n", "shop", BY_EFORMAT,
         "row 2: column 'shop'"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        by__series_set *set = NULL;
        by_status status = open_text(&set, cases[i].text, cases[i].id, &error);
        if (status != cases[i].status || strstr(error.message, cases[i].message) == NULL) {
            fail_msg("case %zu: %d: %s", i, (int)status, error.message);
        }
        by__series_set_close(&set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doubted_times),
        cmocka_unit_test(test_groups_and_scales),
        cmocka_unit_test(test_scales_survive_json),
        cmocka_unit_test(test_windows_of_parts),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_stamps),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
