/* Grids of images: their pixels are the same on every machine, and what they hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/plot.h"
#include "base/base.h"
#include "formats/image/image_file.h"
#include "temporary.h"

enum { SIDE = 5, PLANE = SIDE * SIDE, COUNT = 7 };

/* XXH3-128 of the pixels of the grids below: of RGB with a title and texts, and of grey. */
static const char *const golden[] = {"4d28c1b00fbba621b3eec52c01738bf2",
                                     "352e04e04da764d409a8f7aff2de6cc2"};

static void check_ok(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

typedef struct grid {
    uint8_t pixels[COUNT * 2 * 3 * PLANE];
    by_tile tiles[COUNT];
    by_tiles page;
} grid;

/* Tiles of two images of 3 channels, or of one of 1, with texts that fit and that do not. */
static void make_grid(grid *g, bool colored)
{
    static const char *const texts[COUNT] = {"cat",      "dog 0.70, cat 0.30",
                                             "",         "caf\xc3\xa9",
                                             "!\"#$%&'", "A very long name of a class that ends",
                                             "~{}|"};
    size_t images = colored ? 2 : 1;
    size_t channels = colored ? 3 : 1;
    size_t bytes = images * channels * PLANE;
    for (size_t i = 0; i < sizeof g->pixels; i++) {
        g->pixels[i] = (uint8_t)(i * 37 + i / 25 * 11);
    }
    for (size_t i = 0; i < COUNT; i++) {
        g->tiles[i] = (by_tile){.pixels = g->pixels + i * bytes,
                                .lines = {colored ? texts[i] : NULL, i == 2 ? "second" : NULL}};
    }
    g->page = (by_tiles){.tiles = g->tiles,
                         .count = COUNT,
                         .images = images,
                         .channels = channels,
                         .height = SIDE,
                         .width = SIDE,
                         .columns = 3,
                         .title = colored ? "Epoch 0" : NULL};
}

static void test_golden(void **state)
{
    (void)state;
    by_error error = {0};
    for (int i = 0; i < 2; i++) {
        grid g;
        uint8_t *rgb;
        size_t height;
        size_t width;
        char hash[33];
        by__hasher *hasher;
        make_grid(&g, i == 0);
        check_ok(by_tiles_draw(&rgb, &height, &width, &g.page, &error), &error);
        check_ok(by__hasher_open(&hasher, &error), &error);
        by__hasher_add(hasher, rgb, height * width * 3);
        by__hasher_hex(hasher, hash);
        by__hasher_close(&hasher);
        free(rgb);
        assert_string_equal(hash, golden[i]);
    }
}

/* The file has the pixels of the grid, and these are those of the images, enlarged. */
static void test_file(void **state)
{
    (void)state;
    by_error error = {0};
    const by_image_fit fit = {.resize = BY_RESIZE_NONE};
    char *directory = temporary_make();
    char *path = by__path_join(directory, "grid.png");
    grid g;
    uint8_t *rgb;
    uint8_t *planes;
    char *file;
    size_t size[2];
    size_t bytes;
    int64_t height;
    int64_t width;
    make_grid(&g, true);
    check_ok(by_tiles_draw(&rgb, &size[0], &size[1], &g.page, &error), &error);
    check_ok(by_tiles_write(&g.page, path, &error), &error);
    check_ok(by__file_read(&file, &bytes, path, 1 << 24, &error), &error);
    check_ok(by__format_image_decode(&planes, &height, &width, 3, &fit, (const uint8_t *)file,
                                     bytes, &error),
             &error);
    assert_int_equal(height, size[0]);
    assert_int_equal(width, size[1]);
    for (size_t i = 0; i < size[0] * size[1] * 3; i++) {
        assert_int_equal(rgb[i], planes[i % 3 * size[0] * size[1] + i / 3]);
    }
    size_t found = 0; /* enlarged twenty times: the first pixel of the first image */
    for (size_t i = 0; i < size[0] * size[1]; i++) {
        found += rgb[3 * i] == g.pixels[0] && rgb[3 * i + 1] == g.pixels[PLANE] &&
                 rgb[3 * i + 2] == g.pixels[2 * PLANE];
    }
    assert_true(found >= 400);
    free(file);
    free(planes);
    free(rgb);
    free(path);
    temporary_remove(directory);
}

static void test_refused(void **state)
{
    (void)state;
    by_error error = {0};
    grid g;
    make_grid(&g, true);
    assert_int_equal(by_tiles_write(&g.page, "grid.svg", &error), BY_EARG);
    assert_non_null(strstr(error.message, ".png"));
    g.page.channels = 2;
    assert_int_equal(by_tiles_write(&g.page, "grid.png", &error), BY_EARG);
    make_grid(&g, true);
    g.page.count = 0;
    assert_int_equal(by_tiles_write(&g.page, "grid.png", &error), BY_EARG);
    make_grid(&g, true);
    g.page.height = 19999;
    assert_int_equal(by_tiles_write(&g.page, "grid.png", &error), BY_EARG);
    assert_non_null(strstr(error.message, "fewer"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_file),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
