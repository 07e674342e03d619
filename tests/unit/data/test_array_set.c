/* Sets of arrays: what files hold, parts that neither overlap nor leave out an example, and
 * augmentation that depends on the sample alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/array_set.h"
#include "temporary.h"

static void check_ok(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

/* ---- parts ---- */

static void test_parts(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    for (int random = 0; random < 2; random++) {
        by_part parts[3];
        by_split split = {.valid = 20, .test = 13, .seed = 5, .random = random == 1};
        check_ok(by_split_parts(&parts[0], &parts[1], &parts[2], 100, &split, &error), &error);
        uint8_t seen[100] = {0};
        uint64_t in_place = 0;
        uint64_t place = 0;
        for (size_t k = 0; k < 3; k++) {
            for (uint64_t i = 0; i < parts[k].count; i++, place++) {
                uint64_t example = by_part_example(&parts[k], i);
                assert_true(example < 100);
                assert_int_equal(seen[example], 0);
                seen[example] = 1;
                in_place += example == place;
            }
        }
        assert_int_equal(place, 100);
        assert_true(random ? in_place < 10 : in_place == 100);
        assert_int_equal(parts[1].count, 20);
        assert_int_equal(parts[2].count, 13);
        by_part other;
        split.seed = 6;
        check_ok(by_split_parts(&other, NULL, NULL, 100, &split, &error), &error);
        uint64_t same = 0;
        for (uint64_t i = 0; i < other.count; i++) {
            same += by_part_example(&other, i) == by_part_example(&parts[0], i);
        }
        assert_true(random ? same < 10 : same == 67);
    }
    by_split all = {.valid = 60, .test = 40};
    assert_int_equal(by_split_parts(NULL, NULL, NULL, 100, &all, &error), BY_EARG);
    assert_non_null(strstr(error.message, "leave none of 100"));
    all.valid = UINT64_MAX;
    assert_int_equal(by_split_parts(NULL, NULL, NULL, 100, &all, &error), BY_EARG);
    assert_int_equal(by_split_count(20640, 0.2), 4128);
    assert_int_equal(by_split_count(3, 0.5), 2);
    assert_int_equal(by_split_count(3, 2.0), 3);
    assert_int_equal(by_split_count(3, -1.0), 0);
}

/* ---- sets ---- */

enum { EXAMPLES = 7, CHANNELS = 2, HEIGHT = 4, WIDTH = 5, IMAGE = CHANNELS * HEIGHT * WIDTH };

/* Pixel i of image n is 1 + 40 n + i modulo 255: never 0. */
static uint8_t pixel(size_t n, size_t i)
{
    return (uint8_t)(1 + (40 * n + i) % 255);
}

static by_array_set *make_set(void)
{
    static uint8_t images[EXAMPLES * IMAGE];
    static int32_t labels[EXAMPLES];
    by_array arrays[] = {
        {"images", BY_U8, BY_SHAPE(EXAMPLES, CHANNELS, HEIGHT, WIDTH), images},
        {"labels", BY_I32, BY_SHAPE(EXAMPLES), labels},
    };
    by_array_set *set;
    by_error error = {0};
    for (size_t n = 0; n < EXAMPLES; n++) {
        for (size_t i = 0; i < IMAGE; i++) {
            images[n * IMAGE + i] = pixel(n, i);
        }
        labels[n] = (int32_t)n;
    }
    check_ok(by_array_set_open(&set, "numbers", arrays, 2, &error), &error);
    memset(images, 0, sizeof images); /* it has copied them */
    return set;
}

static by_loader *open_loader(const by_array_set *set, const by_part *part,
                              const by_array_source_options *options, size_t batch, uint64_t start)
{
    by_source *source;
    by_loader *loader;
    by_error error = {0};
    check_ok(by_array_source_open(&source, set, part, options, &error), &error);
    check_ok(by_loader_open(&loader, source,
                            &(by_loader_options){.batch = batch, .seed = 3, .start = start},
                            &error),
             &error);
    return loader;
}

static by_batch next(by_loader *loader)
{
    by_batch batch;
    by_error error = {0};
    check_ok(by_loader_next(loader, &batch, &error), &error);
    return batch;
}

static const void *data_of(const by_batch *batch, const char *name)
{
    return by_batch_array(batch, name)->data;
}

static void test_pass(void **state)
{
    BY_UNUSED(state);
    by_array_set *set = make_set();
    by_part part;
    by_error error = {0};
    check_ok(by_split_parts(NULL, NULL, &part, EXAMPLES, &(by_split){.test = 5}, &error), &error);
    by_array_source_options options = {.target = "labels"};
    by_loader *loader = open_loader(set, &part, &options, 3, 0);
    by_batch b = next(loader);
    const int32_t *labels = data_of(&b, "labels");
    assert_int_equal(b.array_count, 3);
    assert_true(by_shape_equal(&b.arrays[0].shape, &BY_SHAPE(3, CHANNELS, HEIGHT, WIDTH)));
    assert_int_equal(labels[0], 2);
    assert_int_equal(b.valid_targets, 3);
    b = next(loader);
    labels = data_of(&b, "labels");
    const uint8_t *images = data_of(&b, "images");
    const float *weight = data_of(&b, "weight");
    assert_int_equal(labels[1], 6);
    assert_int_equal(labels[2], -1);
    assert_int_equal(images[2 * IMAGE - 1], pixel(6, IMAGE - 1));
    assert_int_equal(images[2 * IMAGE], 0);
    assert_true(weight[1] == 1.0f && weight[2] == 0.0f);
    assert_int_equal(b.valid_targets, 2);
    assert_int_equal(next(loader).batch, 0);
    by_loader_close(&loader);
    by_array_set_close(&set);
}

/* Where an image was moved to: found from the one pixel value that it must have. */
static void check_moved(const uint8_t *image, size_t n, int shift, bool flip, int *dy, int *dx,
                        bool *mirrored)
{
    size_t matches = 0;
    for (int my = -shift; my <= shift; my++) {
        for (int mx = -shift; mx <= shift; mx++) {
            for (int m = 0; m <= (flip ? 1 : 0); m++) {
                bool is_same = true;
                for (int i = 0; i < IMAGE && is_same; i++) {
                    int c = i / (HEIGHT * WIDTH);
                    int y = i / WIDTH % HEIGHT + my;
                    int x = (m == 1 ? WIDTH - 1 - i % WIDTH : i % WIDTH) + mx;
                    bool inside = y >= 0 && y < HEIGHT && x >= 0 && x < WIDTH;
                    uint8_t want =
                        inside ? pixel(n, (size_t)((c * HEIGHT + y) * WIDTH + x)) : (uint8_t)0;
                    is_same = image[i] == want;
                }
                if (is_same) {
                    matches++;
                    *dy = my;
                    *dx = mx;
                    *mirrored = m == 1;
                }
            }
        }
    }
    assert_int_equal(matches, 1);
}

static void test_augmentation(void **state)
{
    BY_UNUSED(state);
    by_array_set *set = make_set();
    by_part part = by_part_whole(EXAMPLES);
    by_array_source_options options = {
        .shuffle = true, .target = "labels", .shift = 2, .flip = true};
    enum { ROUNDS = 60, BATCH = 5 };
    uint8_t *all = malloc(ROUNDS * BATCH * IMAGE);
    assert_non_null(all);
    by_loader *loader = open_loader(set, &part, &options, BATCH, 0);
    size_t seen[5][5] = {{0}};
    size_t flips = 0;
    for (size_t k = 0; k < ROUNDS; k++) {
        by_batch b = next(loader);
        const uint8_t *images = data_of(&b, "images");
        const int32_t *labels = data_of(&b, "labels");
        memcpy(all + k * BATCH * IMAGE, images, BATCH * IMAGE);
        for (size_t row = 0; row < BATCH; row++) {
            int dy = 0;
            int dx = 0;
            bool mirrored = false;
            check_moved(images + row * IMAGE, (size_t)labels[row], 2, true, &dy, &dx, &mirrored);
            seen[dy + 2][dx + 2]++;
            flips += mirrored;
        }
    }
    by_loader_close(&loader);
    assert_in_range(flips, 110, 190); /* of 300 */
    for (size_t i = 0; i < 25; i++) {
        assert_in_range(seen[i / 5][i % 5], 1, 40); /* 12 are expected */
    }
    /* Another batch size, from the middle: the same samples. */
    loader = open_loader(set, &part, &options, 1, 17);
    for (size_t k = 17; k < 40; k++) {
        by_batch b = next(loader);
        assert_memory_equal(data_of(&b, "images"), all + k * IMAGE, IMAGE);
    }
    by_loader_close(&loader);

    /* As numbers: the same images, each channel on its own scale. */
    static const float mean[] = {0.5f, 0.25f};
    static const float deviation[] = {0.5f, 2.0f};
    options.mean = mean;
    options.deviation = deviation;
    loader = open_loader(set, &part, &options, BATCH, 0);
    by_batch b = next(loader);
    const float *values = data_of(&b, "images");
    assert_int_equal(by_batch_array(&b, "images")->dtype, BY_F32);
    for (size_t i = 0; i < BATCH * IMAGE; i++) {
        size_t c = i / (HEIGHT * WIDTH) % CHANNELS;
        assert_true(values[i] == ((float)all[i] / 255.0f - mean[c]) / deviation[c]);
    }
    by_loader_close(&loader);
    free(all);
    by_array_set_close(&set);
}

/* An array "weight" of the set has the weights, whose sum over all ranks a batch has too. */
static void test_weights(void **state)
{
    static const float weights[] = {0.1f, 0.0f, 0.3f, 2.0f, 0.7f};
    static const float bad[] = {1.0f, 1.0f, -0.5f, 1.0f, 1.0f};
    static const int32_t labels[] = {0, 1, 2, 3, 4};
    const by_array arrays[] = {{"weight", BY_F32, BY_SHAPE(5), weights},
                               {"labels", BY_I32, BY_SHAPE(5), labels}};
    const by_array wrong[] = {{"weight", BY_F32, BY_SHAPE(5), bad}};
    const by_part part = by_part_whole(5);
    const by_array_source_options options = {.target = "labels"};
    by_array_set *set;
    by_source *source;
    by_loader *loader;
    by_error error = {0};
    BY_UNUSED(state);
    check_ok(by_array_set_open(&set, "weighted", arrays, 2, &error), &error);
    check_ok(by_array_source_open(&source, set, &part, &options, &error), &error);
    check_ok(by_loader_open(&loader, source,
                            &(by_loader_options){.batch = 4, .first = 1, .count = 2}, &error),
             &error);
    by_batch b = next(loader);
    const float *weight = data_of(&b, "weight");
    assert_int_equal(b.array_count, 2);
    assert_true(weight[0] == 0.0f && weight[1] == 0.3f);
    assert_true(b.weighted && b.valid_weight == (double)0.3f);
    assert_true(b.global_weight == (double)0.1f + 0.0 + (double)0.3f + 2.0);
    assert_int_equal(b.global_targets, 4);
    b = next(loader); /* of the second part of a batch that one sample begins */
    weight = data_of(&b, "weight");
    assert_true(weight[0] == 0.0f && weight[1] == 0.0f);
    assert_true(b.valid_weight == 0.0 && b.global_weight == (double)0.7f);
    by_loader_close(&loader);
    by_array_set_close(&set);
    check_ok(by_array_set_open(&set, "weighted", wrong, 1, &error), &error);
    assert_int_equal(by_array_source_open(&source, set, &part,
                                          &(by_array_source_options){.target = NULL}, &error),
                     BY_EARG);
    assert_non_null(strstr(error.message, "f32 [N], finite and at least 0"));
    by_array_set_close(&set);
}

static void test_refusals(void **state)
{
    BY_UNUSED(state);
    by_array_set *set = make_set();
    by_part part = by_part_whole(EXAMPLES);
    by_part other = by_part_whole(EXAMPLES - 1);
    by_source *source = NULL;
    static const float zero[] = {0.0f, 0.0f};
    const struct {
        by_array_source_options options;
        const by_part *part;
        const char *message;
    } cases[] = {
        {{.target = "label"}, &part, "numbers: there is no array 'label'"},
        {{.shift = 4}, &part, "a shift of 4 pixels must be from 0 to less than the 4 x 5"},
        {{.shift = -1}, &part, "a shift of -1"},
        {{.mean = zero}, &part, "both mean and deviation"},
        {{.mean = zero, .deviation = zero}, &part, "deviation 0 of channel 0"},
        {{.shift = 0}, &other, "are no part of its 7"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        by_status status =
            by_array_source_open(&source, set, cases[i].part, &cases[i].options, &error);
        if (status != BY_EARG || strstr(error.message, cases[i].message) == NULL) {
            fail_msg("case %zu: %d %s", i, status, error.message);
        }
        assert_null(source);
    }
    /* The hash sees every element, type, shape and name. */
    int32_t a[] = {1, 2, 3, 4};
    by_array arrays[] = {{"a", BY_I32, BY_SHAPE(4), a}, {"b", BY_I32, BY_SHAPE(4), a}};
    char hashes[5][33];
    for (int i = 0; i < 5; i++) {
        by_array_set *s;
        by_error error = {0};
        arrays[0].name = i == 1 ? "c" : "a";
        arrays[0].dtype = i == 2 ? BY_F32 : BY_I32;
        arrays[0].shape = i == 3 ? BY_SHAPE(4, 1) : BY_SHAPE(4);
        a[3] = i == 4 ? 5 : 4;
        check_ok(by_array_set_open(&s, "s", arrays, 1, &error), &error);
        memcpy(hashes[i], by_array_set_hash(s), 33);
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(hashes[i], hashes[k]);
        }
        by_array_set_close(&s);
    }
    by_array_set *bad = NULL;
    by_error error = {0};
    arrays[1].shape = BY_SHAPE(3);
    assert_int_equal(by_array_set_open(&bad, "s", arrays, 2, &error), BY_EARG);
    assert_string_equal(error.message, "s: array 'b' is [3], but 'a' has 4 examples");
    arrays[1] = arrays[0];
    assert_int_equal(by_array_set_open(&bad, "s", arrays, 2, &error), BY_EARG);
    assert_int_equal(by_array_set_open(&bad, "s", arrays, 0, &error), BY_EARG);
    assert_null(bad);
    by_array_set_close(&set);
    by_array_set_close(&set);
}

/* ---- image files ---- */

static void write_file(const char *directory, const char *name, const void *data, size_t size)
{
    char *path = by__path_join(directory, name);
    assert_int_equal(by__file_write(path, data, size, NULL), BY_OK);
    free(path);
}

static void test_image_files(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    by_error error = {0};
    by_array_set *set = NULL;
    static const uint8_t idx[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 9};
    uint8_t npy[256];
    static const char header[] =
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 2, 3)}\n";
    size_t n = 10 + strlen(header);
    memcpy(npy, "\x93NUMPY\x01\0", 8);
    npy[8] = (uint8_t)strlen(header);
    npy[9] = 0;
    memcpy(npy + 10, header, strlen(header));
    for (size_t i = 0; i < 12; i++) {
        npy[n + i] = (uint8_t)i;
    }
    write_file(directory, "i", idx, sizeof idx);
    write_file(directory, "l", labels, sizeof labels);
    write_file(directory, "n.npy", npy, n + 12);
    char *i = by__path_join(directory, "i");
    char *l = by__path_join(directory, "l");
    char *p = by__path_join(directory, "n.npy");
    const char *images[] = {i, i};
    const char *names[] = {l, l};
    by_image_files files = {.images = images, .image_count = 2, .labels = names, .label_count = 2};
    check_ok(by_image_set_open(&set, &files, &error), &error);
    assert_int_equal(by_array_set_examples(set), 4);
    const by_array *a = by_array_set_find(set, "images");
    assert_true(by_shape_equal(&a->shape, &BY_SHAPE(4, 1, 1, 3)));
    assert_memory_equal((const uint8_t *)a->data + 6, idx + 16, 6);
    const int32_t *found = by_array_set_find(set, "labels")->data;
    assert_true(found[0] == 7 && found[1] == 9 && found[2] == 7 && found[3] == 9);
    by_array_set_close(&set);

    /* Channels last. */
    images[0] = p;
    files = (by_image_files){.images = images, .image_count = 1};
    check_ok(by_image_set_open(&set, &files, &error), &error);
    a = by_array_set_find(set, "images");
    assert_true(by_shape_equal(&a->shape, &BY_SHAPE(1, 3, 2, 2)));
    static const uint8_t planes[] = {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11};
    assert_memory_equal(a->data, planes, 12);
    assert_null(by_array_set_find(set, "labels"));
    by_array_set_close(&set);

    /* Files that do not go together. */
    files.image_count = 2;
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "do not go with those before"));
    files = (by_image_files){.images = names, .image_count = 1};
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_EFORMAT);
    files = (by_image_files){
        .images = &images[1], .image_count = 1, .labels = &images[1], .label_count = 1};
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "labels [2, 1, 3], but there are 2 images"));
    files.format = "cifar10";
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_EARG);
    files.label_count = 0;
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_EFORMAT);
    files.format = "jpeg";
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_EARG);
    assert_null(set);

    static uint8_t records[2 * 3073];
    records[0] = 4;
    records[3073] = 8;
    records[3074] = 77;
    write_file(directory, "i", records, sizeof records);
    files.format = "cifar10";
    check_ok(by_image_set_open(&set, &files, &error), &error);
    a = by_array_set_find(set, "images");
    found = by_array_set_find(set, "labels")->data;
    assert_true(by_shape_equal(&a->shape, &BY_SHAPE(2, 3, 32, 32)));
    assert_int_equal(((const uint8_t *)a->data)[3072], 77);
    assert_int_equal(found[1], 8);
    by_array_set_close(&set);
    free(i);
    free(l);
    free(p);
    temporary_remove(directory);
}

/* Arrays of an archive, of which one is named; labels as a column. */
static void test_archive(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    by_error error = {0};
    by_array_set *set = NULL;
    char *archive;
    size_t size;
    assert_int_equal(by__file_read(&archive, &size, BY_SOURCE_DIR "/tests/fuzz/corpus/npz/images",
                                   1 << 20, &error),
                     BY_OK);
    char *folder = by__path_join(directory, "folder.npz"); /* is no archive */
    check_ok(by__make_dirs(folder, &error), &error);
    write_file(folder, "m.npz", archive, size);
    free(archive);
    char *file = by__path_join(folder, "m.npz");
    char *images = by__path_join(file, "train_images");
    char *labels = by__path_join(file, "train_labels.npy");
    char *none = by__path_join(file, "val_images");
    by_image_files files = {.images = (const char *const *)&images,
                            .image_count = 1,
                            .labels = (const char *const *)&labels,
                            .label_count = 1};
    check_ok(by_image_set_open(&set, &files, &error), &error);
    const by_array *a = by_array_set_find(set, "images");
    const int32_t *found = by_array_set_find(set, "labels")->data;
    assert_true(by_shape_equal(&a->shape, &BY_SHAPE(2, 1, 2, 3)));
    for (int i = 0; i < 12; i++) {
        assert_int_equal(((const uint8_t *)a->data)[i], i);
    }
    assert_true(found[0] == 7 && found[1] == 9);
    by_array_set_close(&set);

    files.labels = (const char *const *)&images;
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "labels [2, 2, 3], but there are 2 images"));
    files.label_count = 0;
    files.images = (const char *const *)&none;
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "it has train_images, train_labels"));
    files.images = (const char *const *)&file;
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "an archive of the arrays train_images, train_labels"));
    assert_null(set);
    free(folder);
    free(file);
    free(images);
    free(labels);
    free(none);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),        cmocka_unit_test(test_pass),
        cmocka_unit_test(test_augmentation), cmocka_unit_test(test_weights),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_image_files),
        cmocka_unit_test(test_archive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
