/* What a model reads of pictures whose preprocessor_config.json is of a processor of transformers,
 * against that (tests/parity/make_processor_golden.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "data/loader/pixel_scales.h"
#include "formats/image/image_fit.h"
#include "runner.h"

#define GOLDEN BY_SOURCE_DIR "/tests/parity/golden/processors.json"

enum { CHANNELS = 3 };

static uint8_t *picture(int64_t height, int64_t width)
{
    uint8_t *pixels = malloc((size_t)(CHANNELS * height * width));
    assert_non_null(pixels);
    for (int64_t c = 0; c < CHANNELS; c++) {
        for (int64_t y = 0; y < height; y++) {
            for (int64_t x = 0; x < width; x++) {
                int64_t p = x * 5 + y * 3 + x * y % 7 * 29 + (x / 3 + y / 4) % 2 * 90 +
                            x * x * y % 11 + c * 40;
                pixels[(c * height + y) * width + x] = (uint8_t)(p % 256);
            }
        }
    }
    return pixels;
}

static int64_t item(const json_t *row, size_t list, size_t i)
{
    return (int64_t)json_integer_value(json_array_get(json_array_get(row, list), i));
}

static void check_row(const json_t *row)
{
    const char *text = json_string_value(json_array_get(row, 0));
    int64_t height = item(row, 1, 0);
    int64_t width = item(row, 1, 1);
    by_image_fit fit;
    by__loader_pixel_scales scales = {0};
    by_error error = {0};
    check_ok(by__format_image_fit_parse(&fit, "p.json", text, strlen(text), &error), &error);
    check_ok(by__loader_pixel_scales_parse(&scales, "p.json", text, strlen(text), CHANNELS, &error),
             &error);
    assert_int_equal(item(row, 2, 0), CHANNELS);
    if (fit.height != item(row, 2, 1) || fit.width != item(row, 2, 2)) {
        fail_msg("%s: %d x %d", text, (int)fit.height, (int)fit.width);
    }
    int64_t plane = fit.height * fit.width;
    uint8_t *pixels = picture(height, width);
    uint8_t *out = malloc((size_t)(CHANNELS * plane));
    assert_non_null(out);
    check_ok(by__format_image_fit(out, &fit, CHANNELS, pixels, height, width, &error), &error);
    for (int64_t i = 0; i < CHANNELS * plane; i++) {
        double want = json_number_value(json_array_get(json_array_get(row, 3), (size_t)i));
        double got = (double)(((float)out[i] / 255.0f - scales.mean[i / plane]) /
                              scales.deviation[i / plane]);
        if (!(fabs(got - want) <= 1e-5 * (1.0 + fabs(want)))) {
            fail_msg("%s, value %d: %.8g instead of %.8g", text, (int)i, got, want);
        }
    }
    free(out);
    free(pixels);
    by__loader_pixel_scales_free(&scales);
}

static void test_processors(void **state)
{
    json_t *golden = json_load_file(GOLDEN, 0, NULL);
    size_t i;
    json_t *row;
    (void)state;
    json_array_foreach(golden, i, row)
    {
        check_row(row);
    }
    assert_int_equal(i, 58);
    json_decref(golden);
}

static void test_channels(void **state)
{
    static const char *const texts[] = {
        "{\"image_mean\":[0.5,0.25],\"image_std\":[0.5,1]}",
        "{\"image_mean\":0.5,\"image_std\":0.5}",
        "{\"do_normalize\":false}",
        "{\"image_processor_type\":\"ViTImageProcessor\"}",
    };
    static const size_t known[] = {2, 3, 3, 3};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        by__loader_pixel_scales scales = {0};
        by_error error = {0};
        check_ok(
            by__loader_pixel_scales_parse(&scales, "p.json", texts[i], strlen(texts[i]), 0, &error),
            &error);
        assert_int_equal(scales.channels, known[i]);
        by__loader_pixel_scales_free(&scales);
        by_status status =
            by__loader_pixel_scales_parse(&scales, "p.json", texts[i], strlen(texts[i]), 1, &error);
        assert_int_equal(status, i == 0 || i == 3 ? BY_EFORMAT : BY_OK);
        assert_true(status != BY_OK || scales.channels == 1);
        by__loader_pixel_scales_free(&scales);
    }
}

static void test_texts_that_are_refused(void **state)
{
    static const char *const texts[][2] = {
        {"{", "p.json:1: "},
        {"{}", "there is no \"image_mean\""},
        {"{\"image_mean\":[0.5,0.5,0.5]}", "there is no \"image_std\""},
        {"{\"image_mean\":[0.5],\"image_std\":[0.5]}", "\"image_mean\": [0.5] is no list of 3"},
        {"{\"image_mean\":[0.5,\"a\",1],\"image_std\":[1,1,1]}", "is no list of 3 numbers"},
        {"{\"image_mean\":[0.5,0.5,1],\"image_std\":[1,0,1]}", "is no list of 3 positive numbers"},
        {"{\"image_mean\":0,\"image_std\":1,\"rescale_factor\":-1}",
         "\"rescale_factor\": -1 is no positive number"},
        {"{\"image_mean\":0,\"image_std\":1,\"rescale_factor\":1e-300}", "beyond the numbers"},
        {"{\"image_mean\":0,\"image_std\":1,\"rescale_offset\":true}",
         "\"rescale_offset\": true is only known of"},
        {"{\"image_mean\":0,\"image_std\":1,\"include_top\":true}", "EfficientNetImageProcessor"},
        {"{\"do_normalize\":\"no\"}", "\"do_normalize\": \"no\" is neither"},
        {"{\"do_flip_channel_order\":true,\"image_mean\":0,\"image_std\":1}",
         "\"do_flip_channel_order\": true asks for a step"},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        by__loader_pixel_scales scales = {0};
        by_error error = {0};
        assert_int_equal(by__loader_pixel_scales_parse(&scales, "p.json", texts[i][0],
                                                       strlen(texts[i][0]), CHANNELS, &error),
                         BY_EFORMAT);
        if (strstr(error.message, texts[i][1]) == NULL) {
            fail_msg("%s gives: %s", texts[i][0], error.message);
        }
        by__loader_pixel_scales_free(&scales);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processors),
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_texts_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
