/* Charts: ticks, what the picture shows where, and inputs that must not break it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cairo.h>
#include <cmocka.h>
#include <math.h>

#include "banyan/plot.h"
#include "plot/plot.h"
#include "temporary.h"
#include "track/track.h"

enum { points = 3000 };

static double xs[points];
static double falling[points];
static double flat[points];

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < points; i++) {
        xs[i] = i;
        falling[i] = 4 * exp(-i / 500.0) + 1 + 0.05 * sin(i);
        flat[i] = 2;
    }
    return 0;
}

/* fontconfig's own cache holds its patterns by offsets, which a leak checker cannot follow. */
BY_API const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig";
}

/* How many pixels have about the blue of the first series, between columns first and last. */
static size_t blue_pixels(const char *path, double first, double last, int *width, int *height)
{
    cairo_surface_t *surface = cairo_image_surface_create_from_png(path);
    assert_int_equal(cairo_surface_status(surface), CAIRO_STATUS_SUCCESS);
    *width = cairo_image_surface_get_width(surface);
    *height = cairo_image_surface_get_height(surface);
    const uint8_t *data = cairo_image_surface_get_data(surface);
    int stride = cairo_image_surface_get_stride(surface);
    size_t count = 0;
    for (int y = 0; y < *height; y++) {
        for (int x = (int)(first * *width); x < (int)(last * *width); x++) {
            uint32_t pixel;
            memcpy(&pixel, data + (size_t)y * (size_t)stride + (size_t)x * 4, sizeof pixel);
            int red = (int)(pixel >> 16 & 255);
            int blue = (int)(pixel & 255);
            count += blue - red > 120 ? 1 : 0;
        }
    }
    cairo_surface_destroy(surface);
    return count;
}

static void the_line_crosses_the_picture(void **state)
{
    (void)state;
    char *directory = temporary_make();
    char *path = by__path_join(directory, "a.png");
    int width;
    int height;
    by_plot_series series[] = {
        {.name = "train", .x = xs, .y = falling, .count = points},
        {.name = "valid", .x = xs, .y = flat, .count = points, .smooth = 0.9}};
    by_plot_options options = {.title = "Title",
                               .x_label = "step",
                               .y_label = "loss",
                               .width = 640,
                               .height = 400,
                               .series = series,
                               .series_count = 2};
    for (int log_y = 0; log_y < 2; log_y++) {
        options.log_y = log_y == 1;
        assert_int_equal(by_plot_write(&options, path, NULL), BY_OK);
        for (int part = 2; part < 9; part++) {
            size_t found = blue_pixels(path, part / 10.0, (part + 1) / 10.0, &width, &height);
            assert_true(found > 40); /* 64 columns of a line at least */
            assert_true(found < 5000);
        }
        assert_int_equal(width, 640);
        assert_int_equal(height, 400);
    }
    free(path);
    temporary_remove(directory);
}

static void gaps_and_odd_values_do_not_break_it(void **state)
{
    (void)state;
    char *directory = temporary_make();
    char *path = by__path_join(directory, "a.png");
    int width;
    int height;
    double x[] = {0, 1, 2, 3, 4, 5, 6, 7};
    double cases[][8] = {
        {1, 2, NAN, 4, INFINITY, 6, -INFINITY, 8},
        {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN},
        {5, 5, 5, 5, 5, 5, 5, 5},
        {0, 0, 0, 0, 0, 0, 0, 0},
        {-1, -2, -3, 0, -1, -2, -3, -4},
        {1e308, -1e308, 1, 2, 3, 4, 5, 6},
        {1e299, -1e299, 1, 2, 3, 4, 5, 6},
        {1e-320, 2e-320, 0, 0, 0, 0, 0, 0},
        {1e15, 1e15 + 1, 1e15, 1e15, 1e15, 1e15, 1e15, 1e15},
        {1e-300, 1e299, 1, 1, 1, 1, 1, 1},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        for (int mode = 0; mode < 4; mode++) {
            by_error error = {0};
            by_plot_series series = {
                .name = "s", .x = x, .y = cases[i], .count = 8, .smooth = mode >= 2 ? 0.5 : 0.0};
            by_plot_options options = {.log_y = mode % 2 == 1,
                                       .width = 300,
                                       .height = 200,
                                       .series = &series,
                                       .series_count = 1};
            if (by_plot_write(&options, path, &error) != BY_OK) {
                fail_msg("case %zu, mode %d: %s", i, mode, error.message);
            }
            (void)blue_pixels(path, 0, 1, &width, &height);
            assert_int_equal(width, 300);
        }
    }
    /* One point is a dot; no series is an empty chart. */
    by_plot_series one = {.x = x, .y = cases[2], .count = 1};
    by_plot_options options = {.series = &one, .series_count = 1};
    assert_int_equal(by_plot_write(&options, path, NULL), BY_OK);
    assert_true(blue_pixels(path, 0, 1, &width, &height) > 10);
    assert_int_equal(width, 1200);
    options.series_count = 0;
    assert_int_equal(by_plot_write(&options, path, NULL), BY_OK);
    assert_int_equal(blue_pixels(path, 0, 1, &width, &height), 0);
    free(path);
    temporary_remove(directory);
}

static void svg_is_text(void **state)
{
    (void)state;
    char *directory = temporary_make();
    char *path = by__path_join(directory, "a.svg");
    char *text;
    size_t length;
    by_plot_series series = {.name = "train", .x = xs, .y = falling, .count = points};
    by_plot_options options = {.series = &series, .series_count = 1};
    assert_int_equal(by_plot_write(&options, path, NULL), BY_OK);
    assert_int_equal(by__file_read(&text, &length, path, 1 << 24, NULL), BY_OK);
    assert_non_null(strstr(text, "<svg"));
    assert_non_null(strstr(text, "</svg>"));
    /* 3000 points are merged into columns of pixels. */
    assert_true(length < 300000);
    free(text);
    free(path);
    temporary_remove(directory);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    char *directory = temporary_make();
    char *path = by__path_join(directory, "a.png");
    char *missing = by__path_join(directory, "none/a.png");
    by_error error = {0};
    by_plot_series series = {.name = "s", .x = xs, .y = flat, .count = 3};
    by_plot_options good = {.series = &series, .series_count = 1};
    assert_int_equal(by_plot_write(&good, "a.jpg", &error), BY_EARG);
    assert_int_equal(by_plot_write(&good, ".png", &error), BY_EARG);
    by_plot_options bad = good;
    bad.width = 100000;
    assert_int_equal(by_plot_write(&bad, path, &error), BY_EARG);
    bad = good;
    bad.title = "\xff";
    assert_int_equal(by_plot_write(&bad, path, &error), BY_EARG);
    series.smooth = 1;
    assert_int_equal(by_plot_write(&good, path, &error), BY_EARG);
    series.smooth = (double)NAN;
    assert_int_equal(by_plot_write(&good, path, &error), BY_EARG);
    series.smooth = 0;
    series.y = NULL;
    assert_int_equal(by_plot_write(&good, path, &error), BY_EARG);
    series.y = flat;
    assert_int_equal(by_plot_write(&good, missing, &error), BY_EIO);
    assert_non_null(strstr(error.message, "none/a.png"));
    assert_false(by__path_exists(path));
    free(path);
    free(missing);
    temporary_remove(directory);
}

/* The colour of a pixel, 0xrrggbb. */
static uint32_t pixel_at(cairo_surface_t *surface, int x, int y)
{
    uint32_t pixel;
    int stride = cairo_image_surface_get_stride(surface);
    memcpy(&pixel,
           cairo_image_surface_get_data(surface) + (size_t)y * (size_t)stride + (size_t)x * 4,
           sizeof pixel);
    return pixel & 0xffffff;
}

/* Runs keep their hue in all charts of a page, and both lines of a run share it. */
static void a_page_has_one_hue_a_group_and_no_holes(void **state)
{
    (void)state;
    char *directory = temporary_make();
    char *path = by__path_join(directory, "a.png");
    const by_plot_series both[] = {
        {.x = xs, .y = falling, .count = points, .group = 1},
        {.x = xs, .y = flat, .count = points, .group = 1, .dashed = true}};
    const by_plot_series second = {.x = xs, .y = falling, .count = points, .group = 2};
    const by_plot_options charts[] = {
        {.width = 400, .height = 300, .series = both, .series_count = 2},
        {.width = 400, .height = 300, .series = &second, .series_count = 1},
        {.width = 400, .height = 300, .series = &second, .series_count = 1}};
    assert_int_equal(by_plot_write_all(charts, 3, path, NULL), BY_OK);
    cairo_surface_t *surface = cairo_image_surface_create_from_png(path);
    size_t hues[4][2] = {{0}}; /* pixels of each cell in which blue, or red, stands out */
    for (int y = 0; y < 600; y++) {
        for (int x = 0; x < 800; x++) {
            uint32_t pixel = pixel_at(surface, x, y);
            int difference = (int)(pixel & 255) - (int)(pixel >> 16);
            int cell = 2 * (y / 300) + x / 400;
            hues[cell][0] += difference > 60;
            hues[cell][1] += difference < -60;
            assert_true(cell < 3 || pixel == 0xffffff);
        }
    }
    cairo_surface_destroy(surface);
    assert_true(hues[0][0] > 100 && hues[0][1] == 0);
    assert_true(hues[1][0] == 0 && hues[1][1] > 100);
    assert_true(hues[2][0] == 0 && hues[2][1] > 100);
    free(path);
    temporary_remove(directory);
}

/* A smooth line neither lags behind a curve that falls nor ends above its last value. */
static void a_smooth_line_does_not_lag(void **state)
{
    double line[points];
    double smooth[points];
    (void)state;
    assert_false(by__plot_smooth(smooth, falling, 0, 0.9));
    assert_false(by__plot_smooth(smooth, falling, 3, 0.9));
    assert_memory_equal(smooth, falling, 3 * sizeof *smooth);
    for (int count = 60; count <= points; count *= 5) {
        for (int i = 0; i < count; i++) {
            line[i] = 3 - 2.5 * i / count;
        }
        assert_true(by__plot_smooth(smooth, line, (size_t)count, 0.9));
        for (int i = 0; i < count; i++) {
            assert_true(fabs(smooth[i] - line[i]) < 1e-9);
        }
        for (int i = 0; i < count; i++) { /* from 4.2 to 0.2 */
            line[i] = 0.2 + 4 * exp(-8.0 * i / count);
        }
        assert_true(by__plot_smooth(smooth, line, (size_t)count, 0.9));
        assert_true(fabs(smooth[count - 1] - line[count - 1]) < 0.02);
        for (int i = 0; i < count; i++) {
            assert_true(fabs(smooth[i] - line[i]) < 0.15 * line[i]);
        }
    }
    /* The noise of `falling` is 0.05. */
    assert_true(by__plot_smooth(smooth, falling, points, 0.9));
    for (int i = 0; i < points; i++) {
        assert_true(fabs(smooth[i] - (4 * exp(-i / 500.0) + 1)) < 0.02);
    }
}

static void ticks_are_round(void **state)
{
    (void)state;
    double ticks[64];
    size_t count;
    assert_true(by__plot_ticks(ticks, &count, 0, 2000, 10, 0) == 200);
    assert_int_equal(count, 11);
    assert_true(ticks[0] == 0 && ticks[10] == 2000);
    assert_true(fabs(by__plot_ticks(ticks, &count, 1.31, 1.92, 6, 0) - 0.1) < 1e-12);
    assert_int_equal(count, 6);
    assert_true(fabs(ticks[0] - 1.4) < 1e-12 && fabs(ticks[5] - 1.9) < 1e-12);
    /* Ranks, steps: nothing between whole numbers. */
    assert_true(by__plot_ticks(ticks, &count, 1, 2, 10, 1) == 1);
    assert_int_equal(count, 2);
    assert_true(by__plot_ticks(ticks, &count, 0.95, 1.05, 10, 1) == 1);
    assert_true(count == 1 && ticks[0] == 1);
    by__plot_log_ticks(ticks, &count, 0.5, 20);
    assert_int_equal(count, 6);
    assert_true(fabs(ticks[0] - 0.5) < 1e-12 && fabs(ticks[5] - 20) < 1e-9);
    by__plot_log_ticks(ticks, &count, 1e-30, 1e30);
    assert_true(count >= 5 && count <= 20);
    by__plot_log_ticks(ticks, &count, 0, INFINITY); /* as many decades as a double has */
    assert_true(count >= 5 && count <= 20);
    static const struct {
        double value, step;
        const char *text;
    } texts[] = {{0, 0.1, "0"},        {1e-17, 0.1, "0"},     {0.30000000000000004, 0.1, "0.3"},
                 {2000, 200, "2000"},  {20000, 5000, "20k"},  {12500, 500, "12.5k"},
                 {1.5e6, 5e5, "1.5M"}, {1e-5, 1e-5, "1e-05"}, {-0.5, 0.5, "-0.5"},
                 {3e9, 1e9, "3G"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        char text[32];
        by__plot_tick_text(text, texts[i].value, texts[i].step, fabs(texts[i].value));
        assert_string_equal(text, texts[i].text);
    }
    char text[32];
    by__plot_tick_text(text, 9000, 1000, 10000); /* one unit on an axis */
    assert_string_equal(text, "9k");
    by__plot_tick_text(text, 9000, 1000, 9000);
    assert_string_equal(text, "9000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_crosses_the_picture),
        cmocka_unit_test(gaps_and_odd_values_do_not_break_it),
        cmocka_unit_test(svg_is_text),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(ticks_are_round),
        cmocka_unit_test(a_page_has_one_hue_a_group_and_no_holes),
        cmocka_unit_test(a_smooth_line_does_not_lag),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
