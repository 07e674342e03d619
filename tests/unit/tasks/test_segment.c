/* Segmentation: label maps from pictures and arrays, which transforms move as they move the images;
 * metrics as torchmetrics defines them (JaccardIndex and Accuracy of task multiclass, the former
 * macro-averaged over the classes that are somewhere). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/array_set.h"
#include "banyan/task.h"
#include "formats/image/image_file.h"
#include "formats/image/png_write.h"
#include "runner.h"
#include "tasks/tasks.h"
#include "temporary.h"

enum { SIDE = 16, PLANE = SIDE * SIDE, PICTURES = 6, CLASSES = 5 };

extern const by__task_row by__task_segment;

static char *folder;

static char *in_folder(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_png(const char *name, const by__format_image_pixels *image)
{
    by_error error = {0};
    uint8_t *png;
    size_t size;
    check_ok(by__format_png_encode(&png, &size, image, &error), &error);
    check_ok(by__file_write(in_folder(name), png, size, &error), &error);
    free(png);
}

/* The class of a pixel of picture i: 0 to 3, and 255 for none. */
static uint8_t class_at(int i, int y, int x)
{
    int c = (y / 4 + x / 5 + i) % 5;
    return c == 4 ? 255 : (uint8_t)c;
}

/* A picture whose grey is ten times one more than the class, 0 for none. */
static void draw(int i, uint8_t grey[PLANE], uint8_t classes[PLANE])
{
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            uint8_t c = class_at(i, y, x);
            classes[y * SIDE + x] = c;
            grey[y * SIDE + x] = c == 255 ? 0 : (uint8_t)(10 * (c + 1));
        }
    }
}

static void write_picture(const char *images, const char *masks, int i)
{
    static const uint8_t palette[256][3] = {{0, 0, 0}, {255, 0, 0}};
    char name[128];
    uint8_t grey[PLANE];
    uint8_t classes[PLANE];
    by__format_image_pixels image = {.pixels = grey, .channels = 1, .height = SIDE, .width = SIDE};
    draw(i, grey, classes);
    (void)snprintf(name, sizeof name, "%s/%d.png", images, i);
    write_png(name, &image);
    image.pixels = classes;
    image.palette = i % 2 == 0 ? palette : NULL; /* indexes of colours, or grey */
    image.colours = 256;
    (void)snprintf(name, sizeof name, "%s/%d.png", masks, i);
    write_png(name, &image);
}

static void make_directory(const char *name)
{
    by_error error = {0};
    check_ok(by__make_dirs(in_folder(name), &error), &error);
}

static int make_folder(void **state)
{
    BY_UNUSED(state);
    folder = temporary_make();
    make_directory("images");
    make_directory("masks");
    for (int i = 0; i < PICTURES; i++) {
        write_picture("images", "masks", i);
    }
    return 0;
}

static int drop_folder(void **state)
{
    BY_UNUSED(state);
    temporary_remove(folder);
    return 0;
}

/* Opens the data of a config of folders below the test's. */
static by_status open_data(by_task_data **out, by_config **config, const char *images,
                           const char *masks, const char *more, by_error *error)
{
    char settings[2][600];
    (void)snprintf(settings[0], sizeof settings[0], "data.images=%s", in_folder(images));
    (void)snprintf(settings[1], sizeof settings[1], "data.labels=%s", in_folder(masks));
    const char *const all[] = {"task.kind=segment",
                               "model.kind=unet",
                               "model.width=4",
                               "model.channels=1",
                               "model.depth=1",
                               "train.batch=3",
                               "train.threads=1",
                               settings[0],
                               settings[1],
                               "seed=3",
                               "data.valid_fraction=0.34",
                               more};
    size_t count = BY_ARRAY_LENGTH(all) - (more == NULL);
    BY_TRY(by_config_parse(config, "segment.yaml", "", 0, all, count, error));
    const by_task_request request = {.purpose = BY_TASK_TRAIN, .config = *config};
    by_status status = by_task_open(out, NULL, &request, error);
    if (status == BY_OK) {
        status = by_task_complete(*out, *config, error);
    }
    if (status != BY_OK) {
        by_config_close(config);
    }
    return status;
}

/* Batches of the training data: where a pixel has a class, the image has its grey, so that both
 * were moved alike; what comes from beyond the image is black and has none. */
static void check_moved(const char *transforms)
{
    by_error error = {0};
    by_config *config = NULL;
    by_task_data *data = NULL;
    by_loader *loader = NULL;
    size_t wrong = 0;
    check_ok(open_data(&data, &config, "images", "masks", transforms, &error), &error);
    assert_int_equal(config->model.outputs, 4);
    check_ok(by_task_loader(&loader, data, config, true, &error), &error);
    for (int b = 0; b < 8; b++) {
        by_batch batch;
        check_ok(by_loader_next(loader, &batch, &error), &error);
        const by_array *images = by_batch_array(&batch, "images");
        const by_array *labels = by_batch_array(&batch, "labels");
        assert_int_equal(labels->dtype, BY_I32);
        assert_int_equal(labels->shape.rank, 3);
        assert_int_equal(labels->shape.dim[2], SIDE);
        const float *pixels = images->data;
        const int32_t *classes = labels->data;
        float grey[5] = {NAN, NAN, NAN, NAN, NAN};
        for (size_t i = 0; i < 3 * PLANE; i++) {
            int c = classes[i] + 1;
            assert_in_range(c, 0, 4);
            grey[c] = isnan(grey[c]) ? pixels[i] : grey[c];
            wrong += pixels[i] != grey[c];
        }
        for (int c = 1; c < 5; c++) {
            assert_true(isnan(grey[c]) || isnan(grey[c - 1]) || grey[c] > grey[c - 1]);
        }
    }
    assert_int_equal(wrong, 0);
    by_loader_close(&loader);
    by_task_close(&data);
    by_config_close(&config);
}

static void test_moved_alike(void **state)
{
    BY_UNUSED(state);
    check_moved(NULL);
    check_moved("data.transforms=[shift=3, flip, rotate=40]");
}

/* Of a ramp from left to right, whose classes are its columns, a cropped part stays a ramp with
 * classes to match. */
static void test_cropped_alike(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_array_set *set;
    by_source *source;
    by_loader *loader;
    by_batch batch;
    static uint8_t pixels[4 * PLANE];
    static uint8_t classes[4 * PLANE];
    static const char *const transforms[] = {"resized_crop=0.3:0.9", "flip", "erase=1", "jitter"};
    for (size_t i = 0; i < 4 * PLANE; i++) {
        pixels[i] = (uint8_t)(10 * (i % SIDE));
        classes[i] = (uint8_t)(1 + i % SIDE);
    }
    const by_array arrays[] = {{"images", BY_U8, BY_SHAPE(4, 1, SIDE, SIDE), pixels},
                               {"labels", BY_U8, BY_SHAPE(4, SIDE, SIDE), classes}};
    const by_part part = by_part_whole(4);
    const by_array_source_options options = {
        .shuffle = true, .target = "labels", .transforms = transforms, .transform_count = 2};
    const by_loader_options how = {.batch = 4, .seed = 9, .threads = 1};
    check_ok(by_array_set_open(&set, "ramp", arrays, 2, &error), &error);
    check_ok(by_array_source_open(&source, set, &part, &options, &error), &error);
    check_ok(by_loader_open(&loader, source, &how, &error), &error);
    for (int b = 0; b < 5; b++) {
        check_ok(by_loader_next(loader, &batch, &error), &error);
        const uint8_t *image = by_batch_array(&batch, "images")->data;
        const int32_t *map = by_batch_array(&batch, "labels")->data;
        for (size_t i = 0; i < 4 * PLANE; i++) {
            assert_true(fabs(image[i] / 10.0 - map[i]) <= 1.01);
        }
    }
    by_loader_close(&loader);
    /* What changes colours alone changes no class. */
    by_array_source_options colours = options;
    colours.transforms = transforms + 2;
    check_ok(by_array_source_open(&source, set, &part, &colours, &error), &error);
    check_ok(by_loader_open(&loader, source, &how, &error), &error);
    check_ok(by_loader_next(loader, &batch, &error), &error);
    const int32_t *map = by_batch_array(&batch, "labels")->data;
    for (size_t i = 0; i < 4 * PLANE; i++) {
        assert_int_equal(map[i], i % SIDE);
    }
    by_loader_close(&loader);
    by_array_set_close(&set);
}

static void refused(const char *images, const char *masks, const char *more, const char *part)
{
    by_error error = {0};
    by_config *config = NULL;
    by_task_data *data = NULL;
    by_loader *loader = NULL;
    by_status status = open_data(&data, &config, images, masks, more, &error);
    if (status == BY_OK) {
        status = by_task_loader(&loader, data, config, true, &error);
    }
    assert_int_not_equal(status, BY_OK);
    by_task_close(&data);
    by_config_close(&config);
    if (strstr(error.message, part) == NULL) {
        fail_msg("%s does not hold: %s", error.message, part);
    }
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    uint8_t grey[2 * PLANE] = {0};
    uint8_t classes[PLANE];
    by__format_image_pixels image = {.pixels = grey, .channels = 1, .height = SIDE, .width = SIDE};
    make_directory("some");
    make_directory("few");
    make_directory("wrong");
    write_picture("some", "few", 0);
    write_picture("some", "wrong", 1);
    refused("some", "few", NULL, "has no classes of its pixels: there is no ");
    write_picture("some", "wrong", 0);
    image.height = SIDE / 2;
    write_png("wrong/1.png", &image);
    refused("some", "wrong", NULL, "has 16 x 8 pixels, and its picture");
    memset(classes, 255, sizeof classes);
    image = (by__format_image_pixels){.pixels = classes, 1, SIDE, SIDE, NULL, 0};
    write_png("wrong/1.png", &image);
    refused("some", "wrong", "task.ignore=7", "a pixel has class 255; classes are 0 to 254");
    const uint8_t colours[3 * PLANE] = {9};
    image = (by__format_image_pixels){.pixels = colours, 3, SIDE, SIDE, NULL, 0};
    write_png("wrong/1.png", &image);
    refused("some", "wrong", NULL, "it has colours, not classes");
    refused("images", "masks", "data.transforms=[mixup]", "mixed images have two labels");
}

/* Resized images and their classes: each is that of the nearest pixel. */
static void test_resized(void **state)
{
    BY_UNUSED(state);
    uint8_t in[4 * 6];
    uint8_t out[2 * 2];
    by_error error = {0};
    for (size_t i = 0; i < sizeof in; i++) {
        in[i] = (uint8_t)i;
    }
    by_image_fit fit = {.resize = BY_RESIZE_STRETCH, .height = 2, .width = 2};
    check_ok(by__format_image_fit_classes(out, &fit, in, 4, 6, &error), &error);
    assert_memory_equal(out, ((uint8_t[]){7, 10, 19, 22}), 4);
    fit.resize = BY_RESIZE_CROP; /* the height to 2, the width to 3, of which 2 are kept */
    check_ok(by__format_image_fit_classes(out, &fit, in, 4, 6, &error), &error);
    assert_memory_equal(out, ((uint8_t[]){7, 9, 19, 21}), 4);
}

/* ---- metrics ---- */

static void test_metrics(void **state)
{
    BY_UNUSED(state);
    enum { BATCH = 3, HEIGHT = 7, WIDTH = 9, COUNT = BATCH * HEIGHT * WIDTH };
    static float logits[COUNT * CLASSES];
    static int32_t labels[COUNT];
    const by_task *task = &by__task_segment.task;
    double confusion[CLASSES][CLASSES] = {{0.0}};
    double all = 0.0;
    for (size_t i = 0; i < COUNT; i++) {
        size_t best = 0;
        for (size_t c = 0; c < CLASSES; c++) {
            logits[i * CLASSES + c] = c == 3 ? -9.0f : (float)random_unit(5, c, i);
            best = logits[i * CLASSES + c] > logits[i * CLASSES + best] ? c : best;
        }
        labels[i] =
            (int32_t)(i * 7 % 11 % 4) - 1; /* -1 to 2: classes 3 and 4 are nowhere true, and */
        if (labels[i] >= 0) {              /* 3 is never said */
            confusion[labels[i]][best] += 1.0;
            all += 1.0;
        }
    }
    double sums[6][CLASSES] = {{0.0}};
    double *const to[6] = {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
    const by_array array = {"labels", BY_I32, BY_SHAPE(BATCH, HEIGHT, WIDTH), labels};
    const by_batch batch = {.arrays = &array, .array_count = 1, .batch = BATCH};
    assert_int_equal(task->sum_count, 6);
    task->measure(NULL, to, &batch, logits, HEIGHT * WIDTH * CLASSES);
    double iou = 0.0;
    double right = 0.0;
    double present = 0.0;
    for (size_t c = 0; c < CLASSES; c++) {
        double said = 0.0;
        double true_ones = 0.0;
        for (size_t k = 0; k < CLASSES; k++) {
            said += confusion[k][c];
            true_ones += confusion[c][k];
        }
        right += confusion[c][c];
        if (said + true_ones > 0.0) {
            iou += confusion[c][c] / (said + true_ones - confusion[c][c]);
            present += 1.0;
        }
    }
    assert_true(present == 4.0);
    const double *const from[6] = {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
    by_evaluation e = {.task = task};
    assert_true(fabs(task->metrics[0].value(NULL, from, &e) - iou / present) < 1e-12);
    assert_true(fabs(task->metrics[1].value(NULL, from, &e) - right / all) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moved_alike), cmocka_unit_test(test_cropped_alike),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_resized),
        cmocka_unit_test(test_metrics),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
