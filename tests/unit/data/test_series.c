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

static by__series_set *open_scaled(by__series_scales **scales, const by__series_scaling *scaling)
{
    by_error error = {0};
    by__series_set *set;
    const by__series_columns columns = {.time = "", .id = "shop"};
    static const uint64_t train[2] = {2, 2};
    assert_int_equal(open_text(&set, two, "shop", &error), BY_OK);
    assert_int_equal(by__series_learn(scales, set, &columns, scaling, train, &error), BY_OK);
    return set;
}

static by__series_set *open_two(by__series_scales **scales)
{
    return open_scaled(scales, &(by__series_scaling){0});
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
    by_error error = {0};
    assert_int_equal(by__series_standardize(set, scales, &error), BY_OK);
    assert_true(set->values[0] == (float)(-3.0 / sqrt(5.0)));
    assert_int_equal(set->present[3], 0);
    assert_true(set->values[3] == set->values[1]); /* the last price before it */
    by__series_set_close(&set);
    by__series_scales_close(&scales);
}

/* Each series by its own mean and deviation; one that was not there to learn from by its own
 * rows. */
static void test_scales_of_each(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__series_scales *scales;
    by__series_scales *read;
    char *text;
    by__series_set *set = open_scaled(&scales, &(by__series_scaling){.each = true});
    assert_int_equal(by__series_scales_print(scales, &text, &error), BY_OK);
    assert_int_equal(by__series_scales_parse(&read, "series.json", text, &error), BY_OK);
    free(text);
    assert_true(read->scaling.each && !read->scaling.counts);
    assert_int_equal(by__series_standardize(set, read, &error), BY_OK);
    assert_true(set->mean[0] == 2.0 && set->deviation[0] == 1.0); /* 1, 3 */
    assert_true(set->mean[2] == 6.0 && set->values[6] == -1.0f);  /* 5, 7 */
    by__series_set_close(&set);
    assert_int_equal(open_text(&set,
                               "date,shop,sold,price\n2026-01-01,west,4,1\n"
                               "2026-01-02,west,8,1\n2026-01-01,south,5,20\n",
                               "shop", &error),
                     BY_OK);
    assert_int_equal(by__series_standardize(set, read, &error), BY_OK);
    assert_true(set->mean[0] == 6.0 && set->values[0] == -1.0f);
    assert_true(set->mean[2] == 6.0 && set->values[4] == -1.0f);
    by__series_set_close(&set);
    by__series_scales_close(&scales);
    by__series_scales_close(&read);
    read = NULL;
    assert_int_equal(
        by__series_scales_parse(&read, "x",
                                "{\"time\": \"\", \"series\": \"\", \"channels\": [{\"name\": "
                                "\"a\", \"mean\": 0, \"deviation\": 1}], \"each\": [{\"name\": "
                                "\"b\", \"mean\": [0], \"deviation\": [0]}]}",
                                &error),
        BY_EFORMAT);
    assert_non_null(strstr(error.message, "series 0 of \"each\""));
}

/* Counts are divided by their mean; what is no count is refused. */
static void test_scales_of_counts(void **state)
{
    static const by__series_scaling counts = {.counts = true};
    static const uint64_t train[1] = {2};
    const by__series_columns columns = {.time = "", .id = ""};
    static const char *const wrong[] = {"-1", "1.5"};
    by_error error = {0};
    by__series_scales *scales;
    by__series_set *set;
    BY_UNUSED(state);
    assert_int_equal(open_text(&set, "x\n2\n6\n8\n", "", &error), BY_OK);
    assert_int_equal(by__series_learn(&scales, set, &columns, &counts, train, &error), BY_OK);
    assert_int_equal(by__series_standardize(set, scales, &error), BY_OK);
    assert_true(set->values[0] == 0.5f && set->values[2] == 2.0f);
    by__series_scales_close(&scales);
    by__series_set_close(&set);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "x\n2\n%s\n", wrong[i]);
        assert_int_equal(open_text(&set, text, "", &error), BY_OK);
        assert_int_equal(by__series_learn(&scales, set, &columns, &counts, train, &error),
                         BY_EFORMAT);
        assert_non_null(strstr(error.message, "in row 2 of the series, which is no count"));
        assert_non_null(strstr(error.message, wrong[i]));
        by__series_set_close(&set);
    }
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
                 {"2026-11-29T07:45:30.250Z", 1795938330.25},
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

/* ---- rows of steps ---- */

static by_status read_text(by__series_set **out, const char *text, const char *id,
                           const by__series_reading *reading, by_error *error)
{
    const by__series_columns columns = {.time = "t", .id = id};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return by__series_set_open(out, path, &columns, reading, error);
}

/* Compares one channel; -1 stands for a missing number. */
static void check_values(const char *text, const by__series_reading *reading, const float *want,
                         size_t count)
{
    by_error error = {0};
    by__series_set *set = NULL;
    if (read_text(&set, text, "", reading, &error) != BY_OK) {
        fail_msg("%s: %s", text, error.message);
    }
    assert_int_equal(set->rows, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(set->present[i], want[i] >= 0.0f);
        assert_true(want[i] < 0.0f || set->values[i] == want[i]);
    }
    by__series_set_close(&set);
}

static void test_steps(void **state)
{
    /* Two rows in the first hour, none in the second, one in the third. */
    static const char rows[] = "t,x\n2026-01-01 00:10,1\n2026-01-01 00:40,5\n2026-01-01 02:00,7\n";
    static const struct {
        by__series_reading reading;
        float want[3];
    } cases[] = {
        {{.rule = "mean"}, {3, -1, 7}},  {{.rule = "sum"}, {6, -1, 7}},
        {{.rule = "first"}, {1, -1, 7}}, {{.rule = "last"}, {5, -1, 7}},
        {{.rule = "none"}, {-1, -1, 7}}, {{.rule = "sum", .zero = true}, {6, 0, 7}},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by__series_reading reading = cases[i].reading;
        reading.step = 3600.0;
        check_values(rows, &reading, cases[i].want, 3);
    }
    by_error error = {0};
    by__series_set *set;
    const by__series_reading second = {.step = 1.0};
    assert_int_equal(read_text(&set, "t,x\n2026-01-01,1\n2027-01-01,1\n", "", &second, &error),
                     BY_ECONFIG);
    assert_non_null(strstr(error.message, "would make 31536001 steps of 2 rows"));
    const by__series_reading week = {.step = 7.0 * 86400.0};
    assert_int_equal(read_text(&set, "t,x\n2026-01-07,1\n2026-01-12,2\n", "", &week, &error),
                     BY_OK);
    assert_int_equal(set->rows, 2); /* from Mondays on, January 5 and 12 */
    assert_true(set->times[0] == 1767571200.0 && set->series[0].step == 7.0 * 86400.0);
    by__series_set_close(&set);
}

static void test_step_texts(void **state)
{
    static const struct {
        const char *text;
        double seconds;
    } good[] = {
        {"1h", 3600.0}, {"15min", 900.0}, {"d", 86400.0}, {"2 w", 1209600.0}, {"0.5s", 0.5}};
    static const char *const bad[] = {"", "1", "1x", "-1h", "0h", "nanh", "1hh", "1e30w"};
    double seconds;
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(good); i++) {
        assert_true(by__series_step_parse(&seconds, good[i].text) && seconds == good[i].seconds);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        if (by__series_step_parse(&seconds, bad[i])) {
            fail_msg("'%s' is taken for a step", bad[i]);
        }
    }
}

static void test_duplicates(void **state)
{
    static const char rows[] = "t,x\n2026-01-01,1\n2026-01-01,3\n2026-01-02,9\n";
    static const char shuffled[] = "t,x\n2026-01-02,9\n2026-01-01,1\n";
    static const float want[4][2] = {{1, 9}, {3, 9}, {2, 9}, {4, 9}};
    static const char *const names[] = {"first", "last", "mean", "sum"};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        const by__series_reading reading = {.duplicates = names[i]};
        check_values(rows, &reading, want[i], 2);
    }
    const by__series_reading sorted = {.sort = true};
    check_values(shuffled, &sorted, want[0], 2);
}

/* Ten rows a second, which doubles hold only nearly, are even and in steps of their own. */
static void test_fractions(void **state)
{
    enum { ROWS = 250 };
    static const char *const rules[] = {"mean", "none"};
    char text[ROWS * 64] = "t,x\n";
    float want[ROWS];
    BY_UNUSED(state);
    for (int i = 0; i < ROWS; i++) {
        (void)snprintf(text + strlen(text), 64, "2026-01-01 00:00:%02d.%d,%d\n", i / 10, i % 10, i);
        want[i] = (float)i;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rules); i++) {
        const by__series_reading reading = {.step = 0.1, .rule = rules[i]};
        check_values(text, &reading, want, ROWS);
    }
    by_error error = {0};
    by__series_set *set;
    assert_int_equal(read_text(&set, text, "", NULL, &error), BY_OK);
    assert_true(fabs(set->series[0].step - 0.1) < 1e-6);
    by__series_set_close(&set);
}

/* A column whose rows are times but for one is no column of names. */
static void test_one_odd_time(void **state)
{
    static const char *const settings[][2] = {{"", ""}, {"t", ""}, {"", "t"}};
    char text[12 * 48] = "t,x\n";
    BY_UNUSED(state);
    for (int i = 1; i <= 12; i++) {
        (void)snprintf(text + strlen(text), 48, "2026-%02d-%02d,%d\n", i == 5 ? 13 : 1, i, i);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        char ignored[] = "t";
        char *names[] = {ignored};
        by_error error = {0};
        by__series_set *set;
        const by__series_columns columns = {
            .time = settings[i][0], .id = "", .ignore = {names, settings[i][1][0] != '\0'}};
        const by__series_reading skip = {.skip = true};
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(text, file);
        assert_int_equal(fclose(file), 0);
        by_status status = by__series_set_open(&set, path, &columns, &skip, &error);
        if (i == 0) {
            assert_int_equal(status, BY_EFORMAT);
            assert_non_null(strstr(error.message, "has times, but also '2026-13-05'"));
        } else {
            assert_int_equal(status, BY_OK);
            assert_int_equal(set->rows, i == 1 ? 11 : 12);
            by__series_set_close(&set);
        }
    }
}

/* Prices of steps are no amounts, and rows that only have them are no rows to learn from. */
static void test_known_steps(void **state)
{
    static const char rows[] = "t,x,price\n2026-01-01 00:10,1,10\n2026-01-01 00:40,5,10\n"
                               "2026-01-01 02:00,7,10\n2026-01-01 03:00,,10\n";
    char price[] = "price";
    char *known[] = {price};
    const by__series_columns columns = {.time = "t", .id = "", .known = {known, 1}};
    const by__series_reading reading = {.step = 3600.0, .rule = "sum", .zero = true};
    by_error error = {0};
    by__series_set *set;
    BY_UNUSED(state);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(rows, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(by__series_set_open(&set, path, &columns, &reading, &error), BY_OK);
    assert_int_equal(set->rows, 3);
    assert_true(set->values[0] == 6.0f && set->values[1] == 0.0f && set->values[2] == 7.0f);
    assert_true(set->known_values[0] == 10.0f && isnan(set->known_values[1]));
    by__series_set_close(&set);
}

/* Rows that are refused are left out instead, and listed. */
static void test_left_out(void **state)
{
    static const char rows[] =
        "t,s,x\n2026-01-01,a,1\n2026-02-30,a,2\n2026-01-02,a,3\n2026-01-02,a,4\n"
        "2026-01-01,,5\n2025-12-31,a,6\n";
    static const by__series_reading skip = {.skip = true};
    by_error error = {0};
    by__series_set *set;
    BY_UNUSED(state);
    assert_int_equal(read_text(&set, rows, "s", &skip, &error), BY_OK);
    assert_int_equal(set->rows, 2);
    assert_true(set->values[1] == 3.0f);
    assert_int_equal(set->damage.total, 4);
    assert_int_equal(set->damage.items[0].place, 2);
    assert_non_null(strstr(set->damage.items[0].reason, "is missing"));
    assert_non_null(strstr(set->damage.items[1].reason, "data.duplicates"));
    assert_non_null(strstr(set->damage.items[2].reason, "column 's' is empty"));
    assert_int_equal(set->damage.items[3].begin, 5);
    by__series_set_close(&set);
}

/* ---- zones ---- */

static void test_zones(void **state)
{
    by_error error = {0};
    by__series_zone *zone;
    BY_UNUSED(state);
    assert_int_equal(by__series_zone_open(&zone, "+05:30", &error), BY_OK);
    assert_true(by__series_zone_offset(zone, 0.0) == 19800.0);
    assert_true(by__series_zone_time(zone, 19800.0, 0.0) == 0.0);
    by__series_zone_close(&zone);
    assert_int_equal(by__series_zone_open(&zone, "Mars/Base", &error), BY_ECONFIG);
    assert_int_equal(by__series_zone_open(&zone, "../../etc/passwd", &error), BY_ECONFIG);
    assert_int_equal(by__series_zone_read(&zone, "x", "TZif2", 5, &error), BY_EFORMAT);
    if (by__series_zone_open(&zone, "Europe/Berlin", &error) != BY_OK) {
        skip(); /* the system has no tables */
    }
    /* Clocks go back from 03:00 to 02:00 on October 25, 2026, at 01:00 UTC. */
    double change = 1792890000.0;
    assert_true(by__series_zone_offset(zone, change - 1.0) == 7200.0);
    assert_true(by__series_zone_offset(zone, change) == 3600.0);
    double local = change + 3600.0 + 1800.0; /* 02:30, twice */
    double first = by__series_zone_time(zone, local, -INFINITY);
    assert_true(first == change - 1800.0);
    assert_true(by__series_zone_time(zone, local, first) == change + 1800.0);
    /* 02:30 on March 29, 2026 is left out. */
    assert_true(by__series_zone_time(zone, 1774751400.0, -INFINITY) == 1774747800.0);
    /* Behind the table's last change its rule holds: July and January 2400. */
    assert_true(by__series_zone_offset(zone, 13585000000.0) == 7200.0);
    assert_true(by__series_zone_offset(zone, 13570000000.0) == 3600.0);
    by__series_zone_close(&zone);
    /* Days are as long as clocks show them. */
    static const by__series_reading days = {
        .zone = "Europe/Berlin", .step = 86400.0, .rule = "sum"};
    static const float want[2] = {25, 1};
    char text[2048] = "t,x\n";
    for (int hour = 0; hour < 26; hour++) { /* from midnight on October 25 in Berlin */
        int utc = hour + 22;
        (void)snprintf(text + strlen(text), 64, "2026-10-%02d %02d:00Z,1\n", 24 + utc / 24,
                       utc % 24);
    }
    check_values(text, &days, want, 2);
    /* The hour that clocks show twice, also where the newest row is the first. */
    static const char *const stamps[] = {"01:00", "02:00", "02:00", "03:00"};
    static const by__series_reading hours = {
        .zone = "Europe/Berlin", .step = 3600.0, .rule = "sum", .sort = true};
    static const float each[4] = {1, 2, 3, 4};
    for (int newest_first = 0; newest_first < 2; newest_first++) {
        strcpy(text, "t,x\n");
        for (int i = 0; i < 4; i++) {
            int row = newest_first != 0 ? 3 - i : i;
            (void)snprintf(text + strlen(text), 64, "2026-10-25 %s,%d\n", stamps[row], row + 1);
        }
        check_values(text, &hours, each, 4);
    }
}

/* ---- calendar ---- */

static void test_calendar(void **state)
{
    by_error error = {0};
    float row[16];
    by__series_calendar c = {.features = by__series_feature_named("hour") |
                                         by__series_feature_named("weekday") |
                                         by__series_feature_named("holiday")};
    FILE *file = fopen(path, "w");
    BY_UNUSED(state);
    assert_non_null(file);
    fputs("# feasts\n2026-12-25 Christmas\n\n2026-01-01\r\n", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(by__series_feature_named("moon"), 0);
    assert_int_equal(by__series_holidays_read(&c, path, &error), BY_OK);
    assert_int_equal(by__series_calendar_width(&c), 5);
    by__series_calendar_row(&c, 1767247200.0, row); /* Thursday, 2026-01-01 06:00 */
    assert_true(fabsf(row[0] - 1.0f) < 1e-6f && fabsf(row[1]) < 1e-6f);
    assert_true(fabsf(row[2] - (float)sin(8.0 * M_PI / 7.0)) < 1e-6f && row[4] == 1.0f);
    by__series_calendar_row(&c, 1767247200.0 + 86400.0, row);
    assert_true(row[4] == 0.0f);
    by__series_calendar_row(&c, 1e300, row); /* no date */
    by__series_calendar_row(&c, (double)NAN, row);
    by__series_calendar_free(&c);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("2026-01-01\n25.12.2026\n", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(by__series_holidays_read(&c, path, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, ":2: '25.12.2026'"));
    by__series_calendar_free(&c);
}

/* What is known ahead: the hour and a price, of the rows behind the last number, too. */
static void test_inputs(void **state)
{
    static const char rows[] = "t,x,p\n2026-01-01 04:00,1,10\n2026-01-01 05:00,2,20\n"
                               "2026-01-01 06:00,,30\n";
    const by__series_columns columns = {.time = "t", .id = "", .known = {(char *[]){"p"}, 1}};
    static const by__series_reading ahead = {.ahead = true};
    static const uint64_t train[1] = {2};
    by_error error = {0};
    by__series_set *set;
    by__series_scales *scales;
    by__series_scales *read;
    char *text;
    BY_UNUSED(state);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(rows, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(by__series_set_open(&set, path, &columns, &ahead, &error), BY_OK);
    assert_int_equal(set->series[0].count, 2);
    assert_int_equal(set->series[0].known_count, 3);
    assert_int_equal(set->channels.count, 1);
    assert_int_equal(
        by__series_learn(&scales, set, &columns, &(by__series_scaling){0}, train, &error), BY_OK);
    by__series_calendar calendar = {.features = by__series_feature_named("hour")};
    by__series_set_calendar(scales, &calendar);
    assert_int_equal(by__series_scales_print(scales, &text, &error), BY_OK);
    assert_int_equal(by__series_scales_parse(&read, "series.json", text, &error), BY_OK);
    free(text);
    by__series_scales_close(&scales);
    assert_int_equal(by__series_standardize(set, read, &error), BY_OK);
    assert_int_equal(by__series_make_inputs(set, read, 1, true, &error), BY_OK);
    assert_int_equal(set->input_width, 3);
    assert_true(fabsf(set->inputs[6] - 1.0f) < 1e-6f); /* 06:00 */
    assert_true(set->inputs[2] == -1.0f && set->inputs[5] == 1.0f && set->inputs[8] == 3.0f);
    free(set->inputs);
    set->inputs = NULL;
    assert_int_equal(by__series_make_inputs(set, read, 2, true, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "need 2 rows behind its last number, and there are 1"));
    by__series_scales_close(&read);
    by__series_set_close(&set);
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
        cmocka_unit_test(test_scales_of_each),
        cmocka_unit_test(test_scales_of_counts),
        cmocka_unit_test(test_scales_survive_json),
        cmocka_unit_test(test_windows_of_parts),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_stamps),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_step_texts),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_zones),
        cmocka_unit_test(test_fractions),
        cmocka_unit_test(test_one_odd_time),
        cmocka_unit_test(test_known_steps),
        cmocka_unit_test(test_calendar),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
