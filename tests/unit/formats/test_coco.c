/* COCO annotations: runs as pycocotools writes them, polygons against a test of every pixel, and
 * what is damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/coco.h"

#define HEAD                                                                                       \
    "{\"images\": [{\"id\": 7, \"file_name\": \"b.jpg\", \"height\": 9, \"width\": 150}, "         \
    "{\"id\": 3, \"file_name\": \"a.jpg\", \"height\": 40, \"width\": 30}], "                      \
    "\"categories\": [{\"id\": 90, \"name\": \"cat\"}, {\"id\": 2, \"name\": \"ant\"}], "          \
    "\"annotations\": ["
#define TAIL "]}"

static by__format_coco *open_text(const char *annotations, by_error *error)
{
    by_string text = {0};
    by__format_coco *coco = NULL;
    by_string_format(&text, "%s%s%s", HEAD, annotations, TAIL);
    by_status status = by__format_coco_open(&coco, "f.json", text.data, text.length, error);
    assert_true((status == BY_OK) == (coco != NULL));
    by_string_free(&text);
    return coco;
}

/* The mask of pycocotools 2.0, and what its encode() makes of it. */
static const char *const mask[] = {
    "1100111101101000100100000000000000000000000000000000000000001111111111000000000000000"
    "00000000000000000000000000000000000000000000000000000001011011111",
    "0011000100101000111000000000000000000000000000000000000000001111111111000000000000000"
    "00000000000000000000000000000000000000000000000000000000011010000",
    "0110100111111010101000000000000000000000000000000000000000001111111111000000000000000"
    "00000000000000000000000000000000000000000000000000000000100000111",
    "1000100101101100011000000000000000000000000000000000000000001111111111000000000000000"
    "00000000000000000000000000000000000000000000000000000001111100111",
    "1001000111011111111000000000000000000000000000000000000000001111111111000000000000000"
    "00000000000000000000000000000000000000000000000000000000101101111",
    "1001000110100010010100000000000000000000000000000000000000001111111111000000000000000"
    "00000000000000000000000000000000000000000000000000000000111110101",
    "0110100110001001001000000000000000000000000000000000000000001111111111000000000000000"
    "00000000000000000000000000000000000000000000000000000000101111011",
    "0001100001111010100000000000000000000000000000000000000000001111111111000000000000000"
    "00000000000000000000000000000000000000000000000000000000101100110",
    "1110010010010110000100000000000000000000000000000000000000001111111111000000000000000"
    "00000000000000000000000000000000000000000000000000000000101101110"};
static const char runs[] = "01220OOO20N0012ON00011OO000110OO6115LJM20O011NO30M0020N016OK30OOO0O1003"
                           "OM012ON1000O231MM1020N0V;i2^8WM\\\\O058JH0021N4220JOO10N001020O0001011";

static void test_runs(void **state)
{
    enum { HEIGHT = 9, WIDTH = 150 };
    by_string text = {0};
    uint8_t map[HEIGHT * WIDTH];
    size_t image;
    int64_t height;
    int64_t width;
    BY_UNUSED(state);
    by_string_format(&text, "{\"id\": 1, \"image_id\": 7, \"category_id\": 90, \"segmentation\": "
                            "{\"size\": [9, 150], \"counts\": ");
    by_string_json(&text, runs, strlen(runs));
    by_string_format(&text, "}}");
    by__format_coco *coco = open_text(text.data, NULL);
    assert_non_null(coco);
    assert_int_equal(by__format_coco_images(coco), 2);
    assert_false(by__format_coco_find(&image, coco, "c.jpg"));
    assert_true(by__format_coco_find(&image, coco, "b.jpg"));
    by__format_coco_size(coco, image, &height, &width);
    assert_int_equal(height, HEIGHT);
    assert_int_equal(width, WIDTH);
    assert_int_equal(by__format_coco_draw(map, coco, image, NULL), BY_OK);
    for (size_t y = 0; y < HEIGHT; y++) {
        for (size_t x = 0; x < WIDTH; x++) { /* id 90 is the second category */
            assert_int_equal(map[y * WIDTH + x], mask[y][x] == '1' ? 2 : 0);
        }
    }
    by__format_coco_close(&coco);
    by_string_free(&text);
}

/* Whether a point is in a polygon: it crosses its edges an odd number of times to the right. */
static bool is_inside(const double *points, size_t count, double x, double y)
{
    bool inside = false;
    for (size_t i = 0, last = count - 1; i < count; last = i++) {
        const double *a = points + 2 * i;
        const double *b = points + 2 * last;
        if ((a[1] > y) != (b[1] > y) && x < (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1]) + a[0]) {
            inside = !inside;
        }
    }
    return inside;
}

/* A star that crosses itself and leaves the image, over which a triangle is drawn, and numbers as
 * runs: later objects are on top. */
static void test_polygons(void **state)
{
    enum { HEIGHT = 40, WIDTH = 30 };
    static const double star[] = {15.2, -3.1, 22.3, 38.4, -4.6, 11.7, 33.9, 12.2, 6.1, 39.3};
    static const double triangle[] = {3.3, 20.1, 27.2, 22.4, 12.6, 35.8};
    static const char annotations[] =
        "{\"id\": 1, \"image_id\": 3, \"category_id\": 2, \"segmentation\": "
        "[[15.2, -3.1, 22.3, 38.4, -4.6, 11.7, 33.9, 12.2, 6.1, 39.3]]}, "
        "{\"id\": 2, \"image_id\": 3, \"category_id\": 90, \"segmentation\": "
        "[[3.3, 20.1, 27.2, 22.4, 12.6, 35.8]]}, "
        "{\"id\": 3, \"image_id\": 3, \"category_id\": 2, \"iscrowd\": 1, \"segmentation\": "
        "{\"size\": [40, 30], \"counts\": [1160, 40]}}";
    uint8_t map[HEIGHT * WIDTH];
    size_t image;
    size_t counts[3] = {0};
    BY_UNUSED(state);
    by__format_coco *coco = open_text(annotations, NULL);
    assert_non_null(coco);
    assert_true(by__format_coco_find(&image, coco, "a.jpg"));
    assert_int_equal(by__format_coco_draw(map, coco, image, NULL), BY_OK);
    for (size_t y = 0; y < HEIGHT; y++) {
        for (size_t x = 0; x < WIDTH; x++) {
            double at[2] = {(double)x + 0.5, (double)y + 0.5};
            int want = x == WIDTH - 1                         ? 1
                       : is_inside(triangle, 3, at[0], at[1]) ? 2
                                                              : is_inside(star, 5, at[0], at[1]);
            assert_int_equal(map[y * WIDTH + x], want);
            counts[want]++;
        }
    }
    assert_true(counts[0] > 100 && counts[1] > 100 && counts[2] > 100);
    by__format_coco_close(&coco);
}

static void check_refused(const char *annotations, const char *what)
{
    by_error error = {0};
    uint8_t map[9 * 150];
    by__format_coco *coco = open_text(annotations, &error);
    size_t image;
    if (coco != NULL) {
        assert_true(by__format_coco_find(&image, coco, "b.jpg"));
        assert_int_equal(by__format_coco_draw(map, coco, image, &error), BY_EFORMAT);
    }
    by__format_coco_close(&coco);
    if (strstr(error.message, what) == NULL) {
        fail_msg("'%s' is not '%s'", error.message, what);
    }
}

#define IN_B(segmentation)                                                                         \
    "{\"id\": 5, \"image_id\": 7, \"category_id\": 2, \"segmentation\": " segmentation "}"

static void test_damage(void **state)
{
    static const char *const wrong[] = {
        IN_B("[[1, 2, 3, 4]]"),
        IN_B("[[1, 2, 3, 4, 5]]"),
        IN_B("[[1, 2, 3, 4, 5, \"6\"]]"),
        IN_B("[[1, 2, 3, 4, 5, 1e300]]"),
        IN_B("[7]"),
        IN_B("null"),
        IN_B("{\"size\": [150, 9], \"counts\": [10, 10]}"),
        IN_B("{\"size\": [9, 150], \"counts\": [1340, 11]}"),
        IN_B("{\"size\": [9, 150], \"counts\": [10, -1]}"),
        IN_B("{\"size\": [9, 150], \"counts\": \"0\\u0001\"}"),
        IN_B("{\"size\": [9, 150], \"counts\": \"oooooooooooooooo\"}"),
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        check_refused(wrong[i], "f.json: the annotation with id 5 has a segmentation that is");
    }
    check_refused("{\"id\": 5, \"image_id\": 8, \"category_id\": 2}", "id 5 is of no image");
    check_refused("{\"id\": 5, \"image_id\": 7, \"category_id\": 3}", "id 5 is of no category");
    check_refused("}", "f.json is no JSON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_polygons),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
