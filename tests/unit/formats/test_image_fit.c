/* Images of all kinds and of other sizes against Pillow (tests/parity/make_image_golden.py and
 * make_resize_golden.py), and what preprocessor_config.json says of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>
#include <jansson.h>
#include <png.h>
#include <zlib.h>

#include "banyan/build.h"
#include "base/base.h"
#include "formats/image/image_file.h"
#include "formats/image/image_fit.h"
#include "formats/image/image_resample.h"
#include "runner.h"

#define GOLDEN BY_SOURCE_DIR "/tests/parity/golden/resize.json"
#define FILES  BY_SOURCE_DIR "/tests/parity/golden/images.json"

/* Two channels, of which the second is the first turned over. */
static uint8_t *picture(int64_t height, int64_t width)
{
    int64_t count = height * width;
    uint8_t *pixels = malloc((size_t)(2 * count));
    assert_non_null(pixels);
    for (int64_t y = 0; y < height; y++) {
        for (int64_t x = 0; x < width; x++) {
            int64_t p = x * 5 + y * 3 + x * y % 7 * 29 + (x / 3 + y / 4) % 2 * 90 + x * x * y % 11;
            pixels[y * width + x] = (uint8_t)(p % 256);
            pixels[count + (height - 1 - y) * width + x] = (uint8_t)(p % 256);
        }
    }
    return pixels;
}

static void compare(const uint8_t *got, const char *hex, int64_t height, int64_t width)
{
    assert_int_equal(strlen(hex), 2 * height * width);
    for (int64_t i = 0; i < height * width; i++) {
        const char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        assert_int_equal(got[i], strtol(digits, NULL, 16));
    }
}

static by_image_resample filter_of(const char *name)
{
    return strcmp(name, "bicubic") == 0   ? BY_RESAMPLE_BICUBIC
           : strcmp(name, "nearest") == 0 ? BY_RESAMPLE_NEAREST
                                          : BY_RESAMPLE_BILINEAR;
}

static void test_pillow(void **state)
{
    json_t *golden = json_load_file(GOLDEN, 0, NULL);
    by_error error = {0};
    json_t *o;
    size_t i;
    (void)state;
    assert_non_null(golden);
    json_array_foreach(golden, i, o)
    {
        const json_t *from = json_object_get(o, "from");
        const json_t *to = json_object_get(o, "to");
        int64_t h = json_integer_value(json_array_get(from, 0));
        int64_t w = json_integer_value(json_array_get(from, 1));
        by_image_fit fit = {.resize = BY_RESIZE_STRETCH,
                            .resample =
                                filter_of(json_string_value(json_object_get(o, "resample"))),
                            .height = json_integer_value(json_array_get(to, 0)),
                            .width = json_integer_value(json_array_get(to, 1))};
        uint8_t out[2 * 12 * 9];
        uint8_t *pixels = picture(h, w);
        check_ok(by__format_image_fit(out, &fit, 2, pixels, h, w, &error), &error);
        compare(out, json_string_value(json_object_get(o, "stretch")), fit.height, fit.width);
        fit.resize = BY_RESIZE_CROP;
        fit.edge = json_integer_value(json_array_get(to, 2));
        check_ok(by__format_image_fit(out, &fit, 2, pixels, h, w, &error), &error);
        compare(out, json_string_value(json_object_get(o, "crop")), fit.height, fit.width);
        free(pixels);
    }
    assert_int_equal(i, 96);
    json_decref(golden);
}

/* Adds a chunk to a PNG; returns its bytes. */
static size_t add_chunk(uint8_t *out, const char *type, const uint8_t *data, size_t size)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(size >> (24 - 8 * i));
        out[4 + i] = (uint8_t)type[i];
    }
    memcpy(out + 8, data, size);
    unsigned long sum = crc32(0, out + 4, (unsigned)size + 4);
    for (int i = 0; i < 4; i++) {
        out[8 + size + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    }
    return size + 12;
}

/* The head of an image says whether it has too many pixels: 17.6 million are those of no request,
 * 67.2 million are too many anywhere. */
static void test_large_images(void **state)
{
    (void)state;
    const by_image_fit fit = {.resize = BY_RESIZE_STRETCH, .height = 8, .width = 8};
    for (int i = 0; i < 2; i++) {
        const int side = i == 0 ? 4200 : 8200;
        const uint8_t high = (uint8_t)(side >> 8);
        const uint8_t low = (uint8_t)side;
        const uint8_t head[13] = {0, 0, high, low, 0, 0, high, low, 8};
        uint8_t png[128] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
        size_t size = 8;
        uint8_t *pixels;
        int64_t height;
        int64_t width;
        by_error error = {0};
        size += add_chunk(png + size, "IHDR", head, sizeof head);
        size += add_chunk(png + size, "IDAT", head, sizeof head);
        assert_int_equal(
            by__format_image_decode_request(&pixels, &height, &width, 1, &fit, png, size, &error),
            BY_EARG);
        assert_non_null(strstr(error.message, "16.8 million that are decoded: scale it down"));
        assert_int_equal(
            by__format_image_decode(&pixels, &height, &width, 1, &fit, png, size, &error),
            i == 0 ? BY_EFORMAT : BY_EARG); /* the pixels are no PNG's */
        assert_non_null(strstr(error.message, i == 0 ? "is damaged" : "67.1 million"));
    }
}

enum {
    SIDE = 8,
    TEXT = 7 << 20,
    TEXTS = 40,
    HEAD = 33 /* bytes of a PNG's head and first chunk */
};

/* Texts of a few bytes each that are megabytes when they are unpacked take no memory, and what is
 * behind the last chunk no part. */
static void test_png_of_texts(void **state)
{
    const by_image_fit fit = {.height = SIDE, .width = SIDE};
    png_image image = {.version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE};
    uint8_t gray[SIDE * SIDE];
    uint8_t plain[1024];
    size_t size = sizeof plain;
    uint8_t *text = calloc(TEXT, 1);
    uint8_t *packed = malloc(TEXT);
    uint8_t *png = malloc(1 << 20);
    unsigned long length = TEXT - 9;
    struct rusage before;
    struct rusage after;
    uint8_t *pixels;
    int64_t height;
    int64_t width;
    by_error error = {0};
    (void)state;
    assert_true(text != NULL && packed != NULL && png != NULL);
    memset(text, 'a', TEXT);
    for (size_t i = 0; i < sizeof gray; i++) {
        gray[i] = (uint8_t)(i * 3);
    }
    image.format = PNG_FORMAT_GRAY;
    assert_true(png_image_write_to_memory(&image, plain, &size, 0, gray, SIDE, NULL));
    memcpy(packed, "Comment\0", 9);
    assert_int_equal(compress(packed + 9, &length, text, TEXT), Z_OK);
    memcpy(png, plain, HEAD);
    size_t used = HEAD;
    for (int i = 0; i < TEXTS; i++) {
        used += add_chunk(png + used, "zTXt", packed, length + 9);
    }
    memcpy(png + used, plain + HEAD, size - HEAD);
    used += size - HEAD;
    (void)getrusage(RUSAGE_SELF, &before);
    check_ok(by__format_image_decode(&pixels, &height, &width, 1, &fit, png, used, &error), &error);
    (void)getrusage(RUSAGE_SELF, &after);
    assert_memory_equal(pixels, gray, sizeof gray);
    free(pixels);
    if (after.ru_maxrss - before.ru_maxrss > 100000) {
        fail_msg("an image of %zu bytes took %ld KiB", used, after.ru_maxrss - before.ru_maxrss);
    }
    /* Cut in a chunk, and a chunk longer than the file. */
    /* What is neither is named, whatever the name of its file is. */
    static const char *const others[][2] = {
        {"GIF89a..........", "the image is a GIF"},
        {"RIFF....WEBPVP8 ", "the WebP is damaged"},
        {"....ftypavif....", "the image is an AVIF"},
        {"hello, world!...", "is neither a JPEG, a PNG nor a WebP"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
        assert_int_equal(by__format_image_decode(&pixels, &height, &width, 1, &fit,
                                                 (const uint8_t *)others[i][0], 16, &error),
                         BY_EFORMAT);
        assert_non_null(strstr(error.message, others[i][1]));
    }
    assert_int_equal(
        by__format_image_decode(&pixels, &height, &width, 1, &fit, png, used - 20, &error),
        BY_EFORMAT);
    png[HEAD] = 0x7f;
    assert_int_equal(by__format_image_decode(&pixels, &height, &width, 1, &fit, png, used, &error),
                     BY_EFORMAT);
    free(text);
    free(packed);
    free(png);
}

/* What Pillow's convert("L") and convert("RGB") make of every kind of PNG, JPEG and WebP. */
static void test_files(void **state)
{
    enum { HEIGHT = 7, WIDTH = 9 };
    const by_image_fit fit = {.height = HEIGHT, .width = WIDTH};
    json_t *golden = json_load_file(FILES, 0, NULL);
    json_t *row;
    size_t i;
    (void)state;
    assert_int_equal(json_array_size(golden), 47);
    json_array_foreach(golden, i, row)
    {
        const char *digits = json_string_value(json_array_get(row, 1));
        size_t size;
        uint8_t *file = malloc(BY__BASE64_BYTES(strlen(digits)));
        assert_true(by__read_base64(digits, strlen(digits), file, &size));
        int64_t told[2] = {0, 0};
        assert_true(by__format_image_size(&told[0], &told[1], file, size));
        assert_true(told[0] == HEIGHT && told[1] == WIDTH);
        if (strncmp(json_string_value(json_array_get(row, 0)), "webp", 4) == 0 &&
            !by_build_has(BY_BUILD_WEBP)) {
            free(file);
            continue;
        }
        for (size_t cut = 0; cut < size; cut++) {
            (void)by__format_image_size(&told[0], &told[1], file, cut);
        }
        for (int64_t channels = 1; channels <= 3; channels += 2) {
            const char *hex = json_string_value(json_array_get(row, channels == 1 ? 2 : 3));
            by_error error = {0};
            uint8_t *pixels;
            int64_t height;
            int64_t width;
            check_ok(by__format_image_decode(&pixels, &height, &width, channels, &fit, file, size,
                                             &error),
                     &error);
            for (int64_t k = 0; k < channels * HEIGHT * WIDTH; k++) {
                const char text[3] = {hex[2 * k], hex[2 * k + 1], '\0'};
                long wanted = strtol(text, NULL, 16);
                uint8_t got = pixels[k % channels * HEIGHT * WIDTH + k / channels];
                if (got != wanted) {
                    fail_msg("%s, %d channels, value %d: %d instead of %ld",
                             json_string_value(json_array_get(row, 0)), (int)channels, (int)k, got,
                             wanted);
                }
            }
            free(pixels);
        }
        free(file);
    }
    json_decref(golden);
}

/* Channels are resized alone, each the same way. */
static void test_channels(void **state)
{
    const by_image_fit fit = {.resize = BY_RESIZE_STRETCH, .height = 6, .width = 5};
    by_error error = {0};
    uint8_t *pixels = picture(24, 15);
    uint8_t out[2 * 6 * 5];
    (void)state;
    check_ok(by__format_image_fit(out, &fit, 2, pixels, 24, 15, &error), &error);
    for (size_t y = 0; y < 6; y++) {
        assert_memory_equal(out + y * 5, out + 30 + (5 - y) * 5, 5);
    }
    free(pixels);
}

static void test_sizes_that_are_refused(void **state)
{
    by_image_fit fit = {.height = 2, .width = 3};
    by_error error = {0};
    const uint8_t pixels[6] = {1, 2, 3, 4, 5, 6};
    uint8_t out[6];
    (void)state;
    check_ok(by__format_image_fit(out, &fit, 1, pixels, 2, 3, &error), &error);
    assert_memory_equal(out, pixels, 6);
    assert_int_equal(by__format_image_fit(out, &fit, 1, pixels, 3, 2, &error), BY_EARG);
    assert_non_null(strstr(error.message, "2 x 3 pixels; the model reads 3 x 2"));
    fit.resize = BY_RESIZE_CROP;
    assert_int_equal(by__format_image_fit_check(&fit, 1, BY__IMAGE_SIDE, &error), BY_OK);
    assert_int_equal(by__format_image_fit_check(&fit, BY__IMAGE_SIDE + 1, 1, &error), BY_EARG);
}

static void test_texts(void **state)
{
    static const struct {
        const char *text;
        by_image_fit fit;
    } texts[] = {
        {"{\"do_resize\":true,\"size\":{\"height\":8,\"width\":9}}",
         {.resize = BY_RESIZE_STRETCH, .height = 8, .width = 9}},
        {"{\"do_resize\":true,\"size\":[8,9],\"do_center_crop\":null,\"resample\":0}",
         {.resize = BY_RESIZE_STRETCH, .resample = BY_RESAMPLE_NEAREST, .height = 8, .width = 9}},
        {"{\"do_resize\":false,\"size\":{\"height\":8,\"width\":9}}", {.height = 8, .width = 9}},
        {"{\"do_resize\":false,\"size\":{\"longest_edge\":9}}", {.height = 0}},
        {"{\"image_mean\":[0.5],\"image_std\":[0.5]}", {.height = 0}},
        {"{\"do_resize\":true,\"resample\":3,\"do_center_crop\":true,"
         "\"size\":{\"shortest_edge\":16},\"crop_size\":{\"height\":14,\"width\":12}}",
         {.resize = BY_RESIZE_CROP,
          .resample = BY_RESAMPLE_BICUBIC,
          .height = 14,
          .width = 12,
          .edge = 16}},
        {"{\"do_resize\":true,\"do_center_crop\":true,\"size\":224,\"default_to_square\":false,"
         "\"crop_size\":200}",
         {.resize = BY_RESIZE_CROP, .height = 200, .width = 200, .edge = 224}},
        {"{\"image_processor_type\":\"ViTImageProcessorFast\",\"resample\":3}",
         {.resize = BY_RESIZE_STRETCH,
          .resample = BY_RESAMPLE_BICUBIC,
          .height = 224,
          .width = 224}},
        {"{\"feature_extractor_type\":\"DeiTFeatureExtractor\",\"size\":256}",
         {.resize = BY_RESIZE_STRETCH,
          .resample = BY_RESAMPLE_BICUBIC,
          .height = 224,
          .width = 224,
          .whole_height = 256,
          .whole_width = 256}},
        {"{\"image_processor_type\":\"ConvNextImageProcessor\",\"size\":224,\"crop_pct\":0.9}",
         {.resize = BY_RESIZE_CROP,
          .resample = BY_RESAMPLE_BICUBIC,
          .height = 224,
          .width = 224,
          .edge = 248}},
        {"{\"image_processor_type\":\"ConvNextImageProcessor\",\"crop_pct\":0.9}",
         {.resize = BY_RESIZE_STRETCH,
          .resample = BY_RESAMPLE_BICUBIC,
          .height = 384,
          .width = 384}},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        by_image_fit fit;
        by_error error = {0};
        check_ok(by__format_image_fit_parse(&fit, "p.json", texts[i].text, strlen(texts[i].text),
                                            &error),
                 &error);
        assert_memory_equal(&fit, &texts[i].fit, sizeof fit);
    }
}

/* What asks for what is not built names the key, its value and the way out. */
static void test_texts_that_are_refused(void **state)
{
    static const char *const texts[][3] = {
        {"[", "p.json:1: ", ""},
        {"[]", "p.json: it is no JSON object", ""},
        {"{\"image_processor_type\":\"LevitImageProcessor\"}",
         "p.json: \"image_processor_type\": \"LevitImageProcessor\" is none of", "do_resize"},
        {"{\"image_processor_type\":\"VitMatteImageProcessor\"}", "is none of", "ViT, DeiT"},
        {"{\"image_processor_type\":7}", "\"image_processor_type\": 7 is none of", ""},
        {"{\"do_pad\":true}", "p.json: \"do_pad\": true asks for a step", "to false"},
        {"{\"do_resize\":1}", "\"do_resize\": 1 is neither", ""},
        {"{\"do_resize\":true}", "there is no \"size\"", "to false"},
        {"{\"do_resize\":true,\"size\":0}", "\"size\": 0 is no size", "\"height\": H"},
        {"{\"do_resize\":true,\"size\":70000}", "\"size\": 70000 is no size", "65535"},
        {"{\"do_resize\":true,\"size\":{\"longest_edge\":9}}", "{\"longest_edge\": 9} is no size",
         "shortest_edge"},
        {"{\"do_resize\":true,\"size\":{\"shortest_edge\":8,\"longest_edge\":9}}", "is no size",
         ""},
        {"{\"do_resize\":true,\"size\":{\"shortest_edge\":8}}", "leaves images of many sizes",
         "do_center_crop"},
        {"{\"do_resize\":true,\"resample\":1,\"size\":{\"height\":8,\"width\":9}}",
         "\"resample\": 1 is none of", "3 comes closest"},
        {"{\"do_resize\":true,\"do_center_crop\":true,\"size\":{\"shortest_edge\":16},"
         "\"crop_size\":{\"height\":14,\"width\":17}}",
         "\"crop_size\": {\"height\": 14, \"width\": 17} is no part", "padded"},
        {"{\"do_resize\":true,\"do_center_crop\":true,\"size\":8}", "there is no \"crop_size\"",
         ""},
        {"{\"do_center_crop\":true,\"crop_size\":8}", "\"do_center_crop\": true crops",
         "do_resize"},
        {"{\"do_resize\":true,\"size\":8,\"crop_pct\":0.9}", "\"crop_pct\": 0.9 is only known",
         "ConvNextImageProcessor"},
        {"{\"image_processor_type\":\"ConvNextImageProcessor\",\"size\":8,\"crop_pct\":1.5}",
         "\"crop_pct\": 1.5 is no share", ""},
        {"{\"image_processor_type\":\"ConvNextImageProcessor\",\"size\":8,\"crop_pct\":1e-9}",
         "is no share", ""},
        {"{\"image_processor_type\":\"ConvNextImageProcessor\",\"size\":8,\"crop_pct\":0}",
         "\"crop_pct\": 0 is no positive", ""},
        {"{\"image_processor_type\":\"ConvNextImageProcessor\",\"size\":[8,8]}",
         "has no \"shortest_edge\"", ""},
        {"{\"image_processor_type\":\"ConvNextImageProcessor\",\"size\":8,\"do_center_crop\":true}",
         "\"do_center_crop\": true would crop", "to false"},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        by_image_fit fit;
        by_error error = {0};
        assert_int_equal(
            by__format_image_fit_parse(&fit, "p.json", texts[i][0], strlen(texts[i][0]), &error),
            BY_EFORMAT);
        if (strstr(error.message, texts[i][1]) == NULL ||
            strstr(error.message, texts[i][2]) == NULL) {
            fail_msg("%s gives: %s", texts[i][0], error.message);
        }
    }
}

/* ---- rows, which are resampled in blocks of them ---- */

typedef struct resampled_rows {
    int64_t rows, from, to;
} resampled_rows;

static by__format_taps taps_of(int64_t from, int64_t to, void **memory)
{
    const by__format_axis axis = {.filter = BY_RESAMPLE_BICUBIC,
                                  .extent = (double)from,
                                  .high = from,
                                  .whole = to,
                                  .count = to};
    by__format_taps taps;
    *memory = malloc(by__format_taps_bytes(&axis));
    assert_non_null(*memory);
    by__format_taps_make(&taps, &axis, *memory);
    return taps;
}

static void check_rows(const resampled_rows *r, bool rows_first)
{
    void *memory[2];
    by__format_taps y = taps_of(r->rows, r->rows, &memory[0]); /* as they are */
    by__format_taps x = taps_of(r->from, r->to, &memory[1]);
    uint8_t *in = picture(r->rows, r->from);
    uint8_t *out = malloc((size_t)(r->rows * r->to));
    uint8_t *between = malloc(by__format_resample_between(r->rows, r->to, &y, &x, rows_first));
    assert_true(out != NULL && between != NULL);
    by__format_resample_plane(out, r->rows, r->to, in, r->from, &y, &x, rows_first, between);
    for (int64_t row = 0; row < r->rows; row++) {
        for (int64_t i = 0; i < r->to; i++) {
            int64_t sum = 1 << 21;
            for (int64_t k = 0; k < x.count[i]; k++) {
                sum += (int64_t)in[row * r->from + x.first[i] + k] *
                       x.weights[(size_t)i * x.most + (size_t)k];
            }
            sum = sum < 0 ? 0 : sum >> 22;
            assert_int_equal(out[row * r->to + i], sum > 255 ? 255 : sum);
        }
    }
    free(between);
    free(out);
    free(in);
    free(memory[0]);
    free(memory[1]);
}

/* Parts of blocks, one of columns, more of them than are turned at a time, and more taps. */
static void test_rows(void **state)
{
    static const resampled_rows rows[] = {{1, 1, 1},     {31, 40, 9},     {32, 9, 40},
                                          {45, 64, 24},  {70, 37, 19},    {3, 2600, 1301},
                                          {33, 5000, 3}, {41, 1100, 2203}};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        check_rows(&rows[i], true);
        check_rows(&rows[i], false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pillow),       cmocka_unit_test(test_files),
        cmocka_unit_test(test_large_images), cmocka_unit_test(test_png_of_texts),
        cmocka_unit_test(test_channels),     cmocka_unit_test(test_sizes_that_are_refused),
        cmocka_unit_test(test_texts),        cmocka_unit_test(test_texts_that_are_refused),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
