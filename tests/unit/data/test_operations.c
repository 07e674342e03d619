/* Operations on images against Pillow (tests/parity/make_transform_golden.py), the amounts of
 * policies against torchvision's, and random parts of images. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "data/transform/box.h"
#include "data/transform/operations.h"
#include "formats/image/image_fit.h"

#define GOLDEN BY_SOURCE_DIR "/tests/parity/golden/transforms.json"

enum { HEIGHT = 9, WIDTH = 14, PLANE = HEIGHT * WIDTH };

static const char *const names[] = {
    [BY__OPERATION_SHEAR_X] = "shear_x",
    [BY__OPERATION_SHEAR_Y] = "shear_y",
    [BY__OPERATION_TRANSLATE_X] = "translate_x",
    [BY__OPERATION_TRANSLATE_Y] = "translate_y",
    [BY__OPERATION_ROTATE] = "rotate",
    [BY__OPERATION_BRIGHTNESS] = "brightness",
    [BY__OPERATION_CONTRAST] = "contrast",
    [BY__OPERATION_COLOR] = "color",
    [BY__OPERATION_SHARPNESS] = "sharpness",
    [BY__OPERATION_HUE] = "hue",
    [BY__OPERATION_POSTERIZE] = "posterize",
    [BY__OPERATION_SOLARIZE] = "solarize",
    [BY__OPERATION_AUTOCONTRAST] = "autocontrast",
    [BY__OPERATION_EQUALIZE] = "equalize",
    [BY__OPERATION_INVERT] = "invert",
};

static by__transform_operation operation_of(const char *name)
{
    size_t i = 1;
    while (i < BY_ARRAY_LENGTH(names) && strcmp(names[i], name) != 0) {
        i++;
    }
    assert_true(i < BY_ARRAY_LENGTH(names));
    return (by__transform_operation)i;
}

static void draw_picture(uint8_t *pixels, int channels)
{
    for (int c = 0; c < channels; c++) {
        for (int y = 0; y < HEIGHT; y++) {
            for (int x = 0; x < WIDTH; x++) {
                int noise = (x * 17 + y * 9 + c * 71 + (x * y + c) % 5 * 37) % 230 + 11;
                pixels[c * PLANE + y * WIDTH + x] =
                    (uint8_t)(y >= HEIGHT - 2 ? 90 + 30 * c : noise);
            }
        }
    }
}

static void test_pillow(void **state)
{
    json_t *golden = json_load_file(GOLDEN, 0, NULL);
    json_t *o;
    size_t i;
    BY_UNUSED(state);
    assert_non_null(golden);
    json_array_foreach(golden, i, o)
    {
        uint8_t pixels[3 * PLANE];
        uint8_t spare[3 * PLANE];
        const char *name = json_string_value(json_object_get(o, "operation"));
        const char *hex = json_string_value(json_object_get(o, "pixels"));
        int channels = (int)json_integer_value(json_object_get(o, "channels"));
        double amount = json_real_value(json_object_get(o, "amount"));
        const by__transform_size size = {(size_t)channels, HEIGHT, WIDTH, false};
        draw_picture(pixels, channels);
        by__transform_operate(operation_of(name), amount, &size, pixels, spare);
        assert_int_equal(strlen(hex), 2 * channels * PLANE);
        for (int k = 0; k < channels * PLANE; k++) {
            const char digits[3] = {hex[2 * k], hex[2 * k + 1], '\0'};
            if (pixels[k] != strtol(digits, NULL, 16)) {
                fail_msg("%s %g, channel %d, row %d, column %d: %d, not %ld", name, amount,
                         k / PLANE, k % PLANE / WIDTH, k % WIDTH, pixels[k],
                         strtol(digits, NULL, 16));
            }
        }
    }
    assert_true(i > 40);
    json_decref(golden);
}

/* What torchvision.transforms.autoaugment makes of bin 9 of 31 and 3 of 10, of 200 x 331 pixels. */
static void test_magnitudes(void **state)
{
    static const struct {
        by__transform_operation operation;
        double of_31;
        double of_10;
        bool is_signed;
    } cases[] = {
        {BY__OPERATION_SHEAR_X, 0.09, 0.1, true},
        {BY__OPERATION_TRANSLATE_X, 45.0, 50.0, true},
        {BY__OPERATION_TRANSLATE_Y, 27.190332, 30.211480, true},
        {BY__OPERATION_ROTATE, 9.0, 10.0, true},
        {BY__OPERATION_SHARPNESS, 0.27, 0.3, true},
        {BY__OPERATION_POSTERIZE, 7.0, 7.0, false},
        {BY__OPERATION_SOLARIZE, 178.5, 170.0, false},
        {BY__OPERATION_EQUALIZE, 0.0, 0.0, false},
    };
    const by__transform_size size = {3, 200, 331, false};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by__transform_magnitude many = by__transform_magnitude_of(cases[i].operation, 9, 31, &size);
        by__transform_magnitude few = by__transform_magnitude_of(cases[i].operation, 3, 10, &size);
        assert_true(fabs(many.amount - cases[i].of_31) < 1e-5);
        assert_true(fabs(few.amount - cases[i].of_10) < 1e-5);
        assert_int_equal(many.is_signed, cases[i].is_signed);
    }
}

/* Areas and ratios are evenly drawn, as far as they fit. */
static void test_boxes(void **state)
{
    enum { DRAWS = 4000, SIDE = 1000 };
    const by__transform_box_range range = {
        .area = {0.1, 0.5}, .ratio = {0.75, 4.0 / 3.0}, .whole = true};
    double area = 0.0;
    double ratio = 0.0;
    double middle = 0.0;
    BY_UNUSED(state);
    for (uint64_t i = 0; i < DRAWS; i++) {
        const by_source_sample sample = {.index = i, .seed = 3};
        const by__transform_draw draw = {.sample = &sample, .purpose = 7};
        by__transform_box box;
        assert_true(by__transform_box_draw(&box, &range, &draw, SIDE, SIDE));
        assert_true(box.top >= 0 && box.left >= 0);
        assert_true(box.top + box.height <= SIDE && box.left + box.width <= SIDE);
        double share = (double)(box.height * box.width) / SIDE / SIDE;
        assert_true(share > 0.099 && share < 0.501);
        area += share / DRAWS;
        ratio += log((double)box.width / (double)box.height) / DRAWS;
        middle += ((double)box.left + (double)box.width / 2.0) / SIDE / DRAWS;
    }
    assert_true(fabs(area - 0.3) < 0.01);
    assert_true(fabs(ratio) < 0.01);
    assert_true(fabs(middle - 0.5) < 0.01);
}

/* ---- transforms ---- */

static const uint8_t *apply(const char *text, uint64_t index, const by__transform_size *size,
                            const uint8_t *in, by__transform_chain *chain)
{
    static uint8_t scratch[1 << 16];
    by_error error = {0};
    double share;
    const by_source_sample sample = {.index = index, .seed = 5};
    *chain = (by__transform_chain){.size = *size};
    if (by__transform_add(chain, text, &error) != BY_OK ||
        by__transform_check(chain, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_true(by__transform_scratch(chain) <= sizeof scratch);
    return by__transform_apply(chain, &sample, in, NULL, scratch, &share);
}

/* The part that `crop` draws, cut out and resized as Pillow does. */
static void test_resized_crop(void **state)
{
    const by__transform_size size = {3, HEIGHT, WIDTH, false};
    const by_image_fit fit = {.resize = BY_RESIZE_STRETCH, .height = HEIGHT, .width = WIDTH};
    uint8_t in[3 * PLANE];
    size_t changed = 0;
    BY_UNUSED(state);
    draw_picture(in, 3);
    for (uint64_t i = 0; i < 50; i++) {
        by__transform_chain chain;
        by__transform_box box;
        uint8_t part[3 * PLANE];
        uint8_t expected[3 * PLANE];
        const uint8_t *out = apply("resized_crop", i, &size, in, &chain);
        const by_source_sample sample = {.index = i, .seed = 5};
        const by__transform_step *step = &chain.steps[0];
        const by__transform_draw draw = {.sample = &sample, .purpose = step->row->stream};
        step->row->crop(step->parameters, &draw, HEIGHT, WIDTH, &box);
        for (int64_t c = 0; c < 3; c++) {
            for (int64_t y = 0; y < box.height; y++) {
                memcpy(part + (c * box.height + y) * box.width,
                       in + (c * HEIGHT + box.top + y) * WIDTH + box.left, (size_t)box.width);
            }
        }
        assert_int_equal(by__format_image_fit(expected, &fit, 3, part, box.height, box.width, NULL),
                         BY_OK);
        assert_memory_equal(out, expected, sizeof expected);
        changed += out != in;
    }
    assert_in_range(changed, 40, 50);
}

/* What cannot be cut in ten attempts is the middle, of the nearest ratio. */
static void test_middle(void **state)
{
    const by__transform_size size = {3, HEIGHT, WIDTH, false};
    uint8_t in[3 * PLANE] = {0};
    by__transform_chain chain;
    by__transform_box box;
    const by_source_sample sample = {.index = 0};
    const by__transform_draw draw = {.sample = &sample};
    BY_UNUSED(state);
    (void)apply("resized_crop=1:1:0.5:2", 0, &size, in, &chain);
    const by__transform_step *step = &chain.steps[0];
    step->row->crop(step->parameters, &draw, 10, 100, &box);
    assert_true(box.top == 0 && box.left == 40 && box.height == 10 && box.width == 20);
    step->row->crop(step->parameters, &draw, 100, 10, &box);
    assert_true(box.top == 40 && box.left == 0 && box.height == 20 && box.width == 10);
}

/* One rectangle of the value, in the share of images that the probability says. */
static void test_erase(void **state)
{
    enum { SIDE = 20 };
    const by__transform_size size = {2, SIDE, SIDE, false};
    uint8_t in[2 * SIDE * SIDE];
    size_t erased = 0;
    BY_UNUSED(state);
    memset(in, 1, sizeof in);
    for (uint64_t i = 0; i < 200; i++) {
        by__transform_chain chain;
        const uint8_t *out = apply("erase=0.25:0.1:0.2:77", i, &size, in, &chain);
        size_t count = 0;
        size_t ends[4] = {SIDE, 0, SIDE, 0};
        for (size_t k = 0; k < SIDE * SIDE; k++) {
            assert_true(out[k] == 1 || out[k] == 77);
            assert_int_equal(out[k], out[SIDE * SIDE + k]);
            if (out[k] == 77) {
                ends[0] = k / SIDE < ends[0] ? k / SIDE : ends[0];
                ends[1] = k / SIDE + 1;
                ends[2] = k % SIDE < ends[2] ? k % SIDE : ends[2];
                ends[3] = k % SIDE + 1 > ends[3] ? k % SIDE + 1 : ends[3];
                count++;
            }
        }
        assert_int_equal(count, count == 0 ? 0 : (ends[1] - ends[0]) * (ends[3] - ends[2]));
        assert_true(count == 0 || (count >= 30 && count <= 95));
        erased += count > 0;
    }
    assert_in_range(erased, 30, 70);
}

/* Every operation of a policy is drawn, and a policy of none leaves the image as it is. */
static void test_policies(void **state)
{
    static const char *const texts[] = {"randaugment",       "randaugment=3:30", "autoaugment",
                                        "autoaugment_cifar", "jitter",           "rotate=45"};
    const by__transform_size size = {3, HEIGHT, WIDTH, false};
    uint8_t in[3 * PLANE];
    BY_UNUSED(state);
    draw_picture(in, 3);
    for (size_t t = 0; t < BY_ARRAY_LENGTH(texts); t++) {
        size_t changed = 0;
        uint64_t seen[100];
        for (uint64_t i = 0; i < 100; i++) {
            by__transform_chain chain;
            const uint8_t *out = apply(texts[t], i, &size, in, &chain);
            seen[i] = by__hash64(out, sizeof in);
            changed += memcmp(out, in, sizeof in) != 0;
        }
        size_t kinds = 0;
        for (size_t i = 0; i < 100; i++) {
            size_t k = 0;
            while (k < i && seen[k] != seen[i]) {
                k++;
            }
            kinds += k == i;
        }
        assert_true(changed >= 40);
        assert_true(kinds >= 20);
    }
}

/* Images of one channel have no colours to change. */
static void test_grey(void **state)
{
    const by__transform_size size = {1, HEIGHT, WIDTH, false};
    uint8_t in[PLANE];
    by__transform_chain chain;
    BY_UNUSED(state);
    draw_picture(in, 1);
    const uint8_t *out = apply("jitter=0:0:0.9:0.5", 1, &size, in, &chain);
    assert_memory_equal(out, in, sizeof in);
    out = apply("jitter=0.9:0:0:0", 1, &size, in, &chain);
    assert_memory_not_equal(out, in, sizeof in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pillow),   cmocka_unit_test(test_magnitudes),
        cmocka_unit_test(test_boxes),    cmocka_unit_test(test_resized_crop),
        cmocka_unit_test(test_middle),   cmocka_unit_test(test_erase),
        cmocka_unit_test(test_policies), cmocka_unit_test(test_grey),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
