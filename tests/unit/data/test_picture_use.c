/* Pictures that are decoded when they are used: the bytes of those decoded at the start wherever
 * nothing is scaled down while decoding, for any number of threads and any place to begin at;
 * damage, and files that change or are gone. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jpeglib.h>
#include <png.h>

#include "banyan/array_set.h"
#include "runner.h"
#include "temporary.h"

enum { COUNT = 11, SIDE = 16, IMAGE = 3 * SIDE * SIDE, SHOWN = 25, LIMIT = 1 << 16 };

typedef struct folder {
    char *directory;
    char *paths[COUNT];
    int32_t classes[COUNT];
    uint8_t *data[COUNT];
    size_t sizes[COUNT];
} folder;

/* Smooth, as pictures are, so that decoding at a smaller scale is close to resizing. */
static void paint(uint8_t *rgb, int height, int width, int seed)
{
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            rgb[3 * (y * width + x)] = (uint8_t)(200 * y / height + seed);
            rgb[3 * (y * width + x) + 1] = (uint8_t)(200 * x / width + seed);
            rgb[3 * (y * width + x) + 2] = (uint8_t)(100 * y / height + 100 * x / width);
        }
    }
}

static size_t make_jpeg(uint8_t **out, uint8_t *rgb, int height, int width)
{
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    unsigned long size = 0;
    *out = NULL;
    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, out, &size);
    j.image_width = (JDIMENSION)width;
    j.image_height = (JDIMENSION)height;
    j.input_components = 3;
    j.in_color_space = JCS_RGB;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 95, TRUE);
    jpeg_start_compress(&j, TRUE);
    while (j.next_scanline < j.image_height) {
        JSAMPROW row = rgb + (size_t)3 * j.next_scanline * j.image_width;
        (void)jpeg_write_scanlines(&j, &row, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    return size;
}

static size_t make_png(uint8_t **out, const uint8_t *rgb, int height, int width)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};
    png_alloc_size_t size = LIMIT;
    *out = malloc(size);
    assert_non_null(*out);
    assert_true(png_image_write_to_memory(&image, *out, &size, 0, rgb, 0, NULL));
    return size;
}

static void write_picture(const folder *f, size_t i, size_t size)
{
    assert_int_equal(by__file_write(f->paths[i], f->data[i], size, NULL), BY_OK);
}

/* One in four is a PNG. Of one size, or of many, all larger than SIDE. */
static folder make_folder(bool same)
{
    static uint8_t rgb[3 * 256 * 256];
    folder f = {.directory = temporary_make()};
    assert_non_null(f.directory);
    for (int i = 0; i < COUNT; i++) {
        int height = same ? SIDE : 40 + 19 * i;
        int width = same ? SIDE : 250 - 17 * i;
        char name[16];
        paint(rgb, height, width, 3 * i);
        f.sizes[i] = i % 4 == 1 ? make_png(&f.data[i], rgb, height, width)
                                : make_jpeg(&f.data[i], rgb, height, width);
        f.classes[i] = i % 3;
        (void)snprintf(name, sizeof name, "%d.jpg", i);
        f.paths[i] = by__path_join(f.directory, name);
        assert_non_null(f.paths[i]);
        write_picture(&f, (size_t)i, f.sizes[i]);
    }
    return f;
}

static void remove_folder(folder *f)
{
    for (size_t i = 0; i < COUNT; i++) {
        free(f->paths[i]);
        free(f->data[i]);
    }
    temporary_remove(f->directory);
}

static by_status open_some(by_array_set **set, const folder *f, bool on_use, bool skip,
                           by_error *error)
{
    static const by_image_fit fit = {.resize = BY_RESIZE_STRETCH, .height = SIDE, .width = SIDE};
    const by_image_files files = {.images = (const char *const *)f->paths,
                                  .image_count = COUNT,
                                  .classes = f->classes,
                                  .skip = skip,
                                  .fit = &fit,
                                  .on_use = on_use};
    return by_image_set_open(set, &files, error);
}

static by_array_set *open_set(const folder *f, bool on_use)
{
    by_array_set *set;
    by_error error = {0};
    check_ok(open_some(&set, f, on_use, false, &error), &error);
    return set;
}

static by_loader *open_loader(const by_array_set *set, const char *const *texts, uint64_t first,
                              size_t batch, size_t threads)
{
    by_source *source;
    by_loader *loader;
    by_error error = {0};
    const by_part part = by_part_whole(by_array_set_examples(set));
    size_t count = 0;
    while (texts != NULL && texts[count] != NULL) {
        count++;
    }
    const by_array_source_options options = {.shuffle = texts != NULL,
                                             .target = "labels",
                                             .transforms = texts,
                                             .transform_count = count};
    const by_loader_options how = {.batch = batch, .seed = 4, .start = first, .threads = threads};
    check_ok(by_array_source_open(&source, set, &part, &options, &error), &error);
    check_ok(by_loader_open(&loader, source, &how, &error), &error);
    return loader;
}

/* The images of samples [first, first + count), in batches. texts, with a NULL behind them: of
 * training; NULL: of held-out data. Freed with free(). */
static uint8_t *images_of(const by_array_set *set, const char *const *texts, uint64_t first,
                          size_t count, size_t batch, size_t threads)
{
    by_loader *loader = open_loader(set, texts, first, batch, threads);
    uint8_t *all = malloc(count * IMAGE);
    assert_non_null(all);
    for (size_t i = 0; i < count; i += batch) {
        by_batch b;
        by_error error = {0};
        check_ok(by_loader_next(loader, &b, &error), &error);
        memcpy(all + i * IMAGE, by_batch_array(&b, "images")->data, batch * IMAGE);
    }
    by_loader_close(&loader);
    return all;
}

static void expect_same(const by_array_set *a, const by_array_set *b, const char *const *texts)
{
    size_t count = texts == NULL ? (size_t)by_array_set_examples(a) : SHOWN;
    uint8_t *one = images_of(a, texts, 0, count, 1, 1);
    uint8_t *other = images_of(b, texts, 0, count, 1, 3);
    assert_memory_equal(one, other, count * IMAGE);
    free(one);
    free(other);
}

static void test_bytes_of_ahead(void **state)
{
    static const char *const flipped[] = {"flip", "shift=2", NULL};
    static const char *const cut[] = {"resized_crop=0.2", "flip", "mixup", NULL};
    BY_UNUSED(state);
    folder f = make_folder(false);
    by_array_set *ahead = open_set(&f, false);
    by_array_set *use = open_set(&f, true);
    assert_null(by_array_set_find(use, "images")->data);
    assert_memory_equal(by_array_set_find(use, "labels")->data, f.classes, sizeof f.classes);
    expect_same(ahead, use, NULL);
    expect_same(ahead, use, flipped);
    by_array_set_close(&ahead);
    by_array_set_close(&use);
    remove_folder(&f);
    /* What has the wanted size is cut alike. */
    f = make_folder(true);
    ahead = open_set(&f, false);
    use = open_set(&f, true);
    expect_same(ahead, use, cut);
    by_array_set_close(&ahead);
    by_array_set_close(&use);
    remove_folder(&f);
}

/* All of a picture, scaled while it is decoded, is nearly what it is when it is resized. */
static void test_scaled(void **state)
{
    static const char *const whole[] = {"resized_crop=1:1:1:1", NULL};
    static uint8_t rgb[3 * 256 * 256];
    BY_UNUSED(state);
    folder f = make_folder(false);
    for (int i = 0; i < COUNT; i++) {
        int side = SIDE + 23 * i; /* scales 1 to 8 */
        free(f.data[i]);
        paint(rgb, side, side, i);
        f.sizes[i] = make_jpeg(&f.data[i], rgb, side, side);
        write_picture(&f, (size_t)i, f.sizes[i]);
    }
    by_array_set *ahead = open_set(&f, false);
    by_array_set *use = open_set(&f, true);
    uint8_t *expected = images_of(ahead, whole, 0, SHOWN, 1, 1);
    uint8_t *got = images_of(use, whole, 0, SHOWN, 1, 1);
    size_t differ = 0;
    for (size_t i = 0; i < (size_t)SHOWN * IMAGE; i++) {
        assert_true(abs(expected[i] - got[i]) <= 6);
        differ += expected[i] != got[i];
    }
    assert_true(differ > 0);
    free(expected);
    free(got);
    by_array_set_close(&ahead);
    by_array_set_close(&use);
    remove_folder(&f);
}

static void test_threads(void **state)
{
    static const char *const texts[] = {"resized_crop=0.08", "flip", "cutmix", NULL};
    BY_UNUSED(state);
    folder f = make_folder(false);
    by_array_set *set = open_set(&f, true);
    uint8_t *expected = images_of(set, texts, 7, 20, 20, 1);
    uint8_t *two = images_of(set, texts, 7, 20, 4, 2);
    uint8_t *eight = images_of(set, texts, 7, 20, 5, 8);
    uint8_t *later = images_of(set, texts, 12, 15, 3, 2);
    assert_memory_equal(two, expected, 20 * IMAGE);
    assert_memory_equal(eight, expected, 20 * IMAGE);
    assert_memory_equal(later, expected + 5 * IMAGE, 15 * IMAGE);
    free(expected);
    free(two);
    free(eight);
    free(later);
    by_array_set_close(&set);
    remove_folder(&f);
}

/* Pictures that lie in one file behind each other are those of the folder. */
static void test_ranges(void **state)
{
    static uint8_t all[COUNT * LIMIT];
    static const by_image_fit fit = {.resize = BY_RESIZE_STRETCH, .height = SIDE, .width = SIDE};
    by_image_range ranges[COUNT] = {{0}};
    const char *paths[COUNT];
    size_t size = 5;
    by_array_set *shard;
    by_error error = {0};
    BY_UNUSED(state);
    folder f = make_folder(false);
    by_array_set *apart = open_set(&f, true);
    char *path = by__path_join(f.directory, "shard");
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(f.sizes[i] <= LIMIT && size + f.sizes[i] <= sizeof all);
        memcpy(all + size, f.data[i], f.sizes[i]);
        ranges[i] = (by_image_range){.begin = size, .size = f.sizes[i]};
        paths[i] = path;
        size += f.sizes[i];
    }
    assert_int_equal(by__file_write(path, all, size, NULL), BY_OK);
    const by_image_files files = {.images = paths,
                                  .image_count = COUNT,
                                  .classes = f.classes,
                                  .ranges = ranges,
                                  .fit = &fit,
                                  .on_use = true};
    check_ok(by_image_set_open(&shard, &files, &error), &error);
    static const char *const texts[] = {"resized_crop=0.08", NULL};
    expect_same(apart, shard, NULL);
    expect_same(apart, shard, texts);
    by_array_set_close(&apart);
    by_array_set_close(&shard);
    free(path);
    remove_folder(&f);
}

/* Goes through the set; the status of the first batch that has one. */
static by_status first_error(const by_array_set *set, const char *const *texts, by_error *error)
{
    by_loader *loader = open_loader(set, texts, 0, 1, 2);
    by_status status = BY_OK;
    *error = (by_error){0};
    for (size_t i = 0; i < COUNT && status == BY_OK; i++) {
        by_batch batch;
        status = by_loader_next(loader, &batch, error);
    }
    by_loader_close(&loader);
    return status;
}

static void test_damage(void **state)
{
    static const char *const texts[] = {"resized_crop=1:1:1:1", NULL};
    by_array_set *set;
    by_error error = {0};
    size_t count;
    BY_UNUSED(state);
    folder f = make_folder(false);
    /* Of a JPEG all but the head is gone, of a PNG the end. */
    static const struct {
        size_t picture;
        size_t of;
    } cuts[] = {{4, 2}, {5, 2}, {4, 100}};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(cuts); k++) {
        size_t i = cuts[k].picture;
        write_picture(&f, i, f.sizes[i] / cuts[k].of);
        check_ok(open_some(&set, &f, true, false, &error), &error);
        for (int j = 0; j < 2; j++) {
            assert_int_equal(first_error(set, j == 0 ? NULL : texts, &error), BY_EFORMAT);
            assert_non_null(strstr(error.message, f.paths[i]));
            assert_non_null(strstr(error.message,
                                   "data.corrupt=skip, or --skip of eval and predict, leaves out"));
        }
        by_array_set_close(&set);
        check_ok(open_some(&set, &f, true, true, &error), &error);
        const by_damage *damage = by_array_set_damage(set, &count);
        assert_int_equal(count, 1);
        assert_string_equal(damage[0].path, f.paths[i]);
        assert_int_equal(by_array_set_examples(set), COUNT - 1);
        by_array_set *ahead;
        check_ok(open_some(&ahead, &f, false, true, &error), &error);
        expect_same(ahead, set, NULL);
        assert_memory_equal(by_array_set_find(ahead, "labels")->data,
                            by_array_set_find(set, "labels")->data, (COUNT - 1) * 4);
        by_array_set_close(&ahead);
        by_array_set_close(&set);
        write_picture(&f, i, f.sizes[i]);
    }
    remove_folder(&f);
}

static void test_changes(void **state)
{
    static const char *const texts[] = {"resized_crop", NULL};
    by_array_set *set;
    by_error error = {0};
    char hash[33];
    struct timespec then[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    BY_UNUSED(state);
    folder f = make_folder(false);
    assert_int_equal(utimensat(AT_FDCWD, f.paths[2], then, 0), 0);
    set = open_set(&f, true);
    assert_int_equal(first_error(set, texts, &error), BY_OK);
    memcpy(hash, by_array_set_hash(set), sizeof hash);
    /* Another picture, one of as many bytes, and none. */
    write_picture(&f, 3, f.sizes[3] - 1);
    assert_int_equal(first_error(set, texts, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, f.paths[3]));
    assert_non_null(strstr(error.message, "has changed since it was opened"));
    assert_int_equal(unlink(f.paths[3]), 0);
    assert_int_equal(first_error(set, NULL, &error), BY_EIO);
    assert_non_null(strstr(error.message, f.paths[3]));
    by_array_set_close(&set);
    assert_int_equal(open_some(&set, &f, true, false, &error), BY_EIO);
    assert_non_null(strstr(error.message, f.paths[3]));
    write_picture(&f, 3, f.sizes[3]);
    set = open_set(&f, true);
    assert_string_equal(by_array_set_hash(set), hash);
    f.data[2][f.sizes[2] < 700 ? f.sizes[2] / 2 : 650] ^= 1;
    write_picture(&f, 2, f.sizes[2]);
    assert_int_equal(first_error(set, texts, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "has changed since it was opened"));
    by_array_set_close(&set);
    /* Also when nothing has it open: a resume tells other data. */
    set = open_set(&f, true);
    assert_string_not_equal(by_array_set_hash(set), hash);
    by_array_set_close(&set);
    remove_folder(&f);
}

/* The list of files, whose texts ranges have, may be gone when a picture is read. */
static void test_own_texts(void **state)
{
    static const by_image_fit fit = {.resize = BY_RESIZE_STRETCH, .height = SIDE, .width = SIDE};
    folder f = make_folder(true);
    by_image_range ranges[COUNT] = {{0}};
    char name[] = "the first";
    by_array_set *set;
    by_error error = {0};
    BY_UNUSED(state);
    for (size_t i = 0; i < COUNT; i++) {
        ranges[i] = (by_image_range){.size = f.sizes[i], .sample = name};
    }
    memset(f.data[0], 'x', f.sizes[0]);
    write_picture(&f, 0, f.sizes[0]);
    const by_image_files files = {.images = (const char *const *)f.paths,
                                  .image_count = COUNT,
                                  .classes = f.classes,
                                  .ranges = ranges,
                                  .fit = &fit,
                                  .on_use = true};
    check_ok(by_image_set_open(&set, &files, &error), &error);
    memset(name, '?', sizeof name - 1);
    assert_int_equal(first_error(set, NULL, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "sample the first"));
    by_array_set_close(&set);
    remove_folder(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_ahead), cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_threads),        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_damage),         cmocka_unit_test(test_changes),
        cmocka_unit_test(test_own_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
