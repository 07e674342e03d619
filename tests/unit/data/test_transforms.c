/* Transforms of images: each row's draws and pixels; chains are functions of seed, epoch and
 * sample, for any number of threads, and leave held-out data alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/array_set.h"
#include "data/transform/transform.h"

enum { CHANNELS = 2, HEIGHT = 4, WIDTH = 5, IMAGE = CHANNELS * HEIGHT * WIDTH, EXAMPLES = 30 };

static by_array_set *make_set(void)
{
    static uint8_t pixels[EXAMPLES * IMAGE];
    by_array_set *set;
    for (size_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)(1 + i * 37 % 255);
    }
    const by_array images = {"images", BY_U8, BY_SHAPE(EXAMPLES, CHANNELS, HEIGHT, WIDTH), pixels};
    assert_int_equal(by_array_set_open(&set, "pixels", &images, 1, NULL), BY_OK);
    return set;
}

static by_loader *open_loader(const by_array_set *set, const by_array_source_options *options,
                              const by_loader_options *how)
{
    by_source *source;
    by_loader *loader = NULL;
    by_error error = {0};
    const by_part part = by_part_whole(EXAMPLES);
    if (by_array_source_open(&source, set, &part, options, &error) != BY_OK ||
        by_loader_open(&loader, source, how, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return loader;
}

static const uint8_t *next_images(by_loader *loader, by_batch *batch)
{
    assert_int_equal(by_loader_next(loader, batch, NULL), BY_OK);
    return by_batch_array(batch, "images")->data;
}

/* The images of samples [first, first + 20), in batches. Freed with free(). */
static uint8_t *images_of(const by_array_set *set, const char *const *texts, size_t count,
                          uint64_t first, size_t batch, size_t threads)
{
    const by_array_source_options options = {
        .shuffle = true, .transforms = texts, .transform_count = count};
    const by_loader_options how = {.batch = batch, .seed = 4, .start = first, .threads = threads};
    by_loader *loader = open_loader(set, &options, &how);
    uint8_t *all = malloc(20 * IMAGE);
    assert_non_null(all);
    for (size_t i = 0; i < 20; i += batch) {
        by_batch b;
        memcpy(all + i * IMAGE, next_images(loader, &b), batch * IMAGE);
    }
    by_loader_close(&loader);
    return all;
}

/* ---- chains ---- */

static const char *const chains[][4] = {
    {"shift=2"},
    {"flip"},
    {"shift=1", "flip=0.9"},
    {"flip", "shift=3", "flip", "shift"},
    {"mixup"},
    {"cutmix=0.5:0.9"},
    {"resized_crop"},
    {"rotate=90"},
    {"jitter"},
    {"erase=1"},
    {"randaugment"},
    {"autoaugment"},
    {"autoaugment_cifar"},
    {"resized_crop=0.2", "randaugment=2:20", "cutmix", "erase"},
    {"flip", "shift", "mixup=1", "flip"},
};

static size_t length_of(const char *const *chain)
{
    size_t count = 0;
    while (count < 4 && chain[count] != NULL) {
        count++;
    }
    return count;
}

/* Batches, threads and where a loader begins change no image; another chain or epoch does. */
static void test_function_of_sample(void **state)
{
    by_array_set *set = make_set();
    BY_UNUSED(state);
    uint8_t *plain = images_of(set, NULL, 0, 25, 20, 1);
    for (size_t c = 0; c < BY_ARRAY_LENGTH(chains); c++) {
        size_t count = length_of(chains[c]);
        uint8_t *expected = images_of(set, chains[c], count, 25, 20, 1);
        uint8_t *five = images_of(set, chains[c], count, 25, 4, 5);
        uint8_t *later = images_of(set, chains[c], count, 30, 1, 2);
        assert_memory_equal(five, expected, 20 * IMAGE);
        assert_memory_equal(later, expected + 5 * IMAGE, 15 * IMAGE);
        assert_memory_not_equal(plain, expected, 20 * IMAGE);
        free(expected);
        free(five);
        free(later);
    }
    free(plain);
    by_array_set_close(&set);
}

/* shift and flip of the options are the chain of both, and draw what they always drew. */
static void test_options_of_old(void **state)
{
    by_array_set *set = make_set();
    by_batch batch;
    const char *const both[] = {"shift=2", "flip"};
    const by_array_source_options options = {.shuffle = true, .shift = 2, .flip = true};
    const by_loader_options how = {.batch = 20, .seed = 4};
    by__hasher *hasher;
    char hash[33];
    BY_UNUSED(state);
    by_loader *loader = open_loader(set, &options, &how);
    uint8_t *expected = images_of(set, both, 2, 0, 20, 1);
    const uint8_t *images = next_images(loader, &batch);
    assert_memory_equal(images, expected, 20 * IMAGE);
    assert_int_equal(by__hasher_open(&hasher, NULL), BY_OK);
    by__hasher_add(hasher, images, 20 * IMAGE);
    by__hasher_hex(hasher, hash);
    by__hasher_close(&hasher);
    assert_string_equal(hash, "41409020d434d0e997e72dd7be6ef1b0");
    by_loader_close(&loader);
    free(expected);
    by_array_set_close(&set);
}

/* A transform that comes twice draws anew; one that returns the image leaves it to the next. */
static void test_twice(void **state)
{
    by_array_set *set = make_set();
    const char *const never[] = {"flip=0", "shift=0"};
    const char *const twice[] = {"flip=1", "flip=1"};
    const char *const halves[] = {"flip", "flip"};
    BY_UNUSED(state);
    uint8_t *plain = images_of(set, NULL, 0, 0, 20, 1);
    uint8_t *same = images_of(set, never, 2, 0, 20, 1);
    uint8_t *back = images_of(set, twice, 2, 0, 20, 1);
    uint8_t *drawn = images_of(set, halves, 2, 0, 20, 1);
    assert_memory_equal(same, plain, 20 * IMAGE);
    assert_memory_equal(back, plain, 20 * IMAGE);
    assert_memory_not_equal(drawn, plain, 20 * IMAGE); /* equal if both drew the same */
    free(plain);
    free(same);
    free(back);
    free(drawn);
    by_array_set_close(&set);
}

static void test_held_out(void **state)
{
    by_array_set *set = make_set();
    by_batch batch;
    const char *const chain[] = {"shift=3", "flip=1"};
    const by_array_source_options options = {.transforms = chain, .transform_count = 2};
    BY_UNUSED(state);
    by_loader *loader = open_loader(set, &options, &(by_loader_options){.batch = EXAMPLES});
    assert_memory_equal(next_images(loader, &batch), by_array_set_find(set, "images")->data,
                        EXAMPLES * IMAGE);
    by_loader_close(&loader);
    by_array_set_close(&set);
}

/* ---- rows ---- */

/* Applies a transform to one image, with the draws of sample `index`. */
static const uint8_t *apply_to(const char *text, uint64_t index, const uint8_t *in)
{
    static uint8_t scratch[8 * BY_CACHE_LINE * IMAGE];
    by__transform_chain chain = {.size = {.channels = CHANNELS, .height = HEIGHT, .width = WIDTH}};
    const by_source_sample sample = {.index = index, .place = index, .seed = 11};
    assert_int_equal(by__transform_add(&chain, text, NULL), BY_OK);
    assert_int_equal(by__transform_check(&chain, NULL), BY_OK);
    assert_true(by__transform_scratch(&chain) <= sizeof scratch);
    double share;
    const uint8_t *out = by__transform_apply(&chain, &sample, in, NULL, scratch, &share);
    assert_true(share == 1.0);
    return out;
}

/* Applies one that mixes to an image of tens and one of thousands modulo 256. */
static const uint8_t *mix_images(const char *text, uint64_t index, double *share)
{
    static uint8_t scratch[8 * BY_CACHE_LINE * IMAGE];
    static uint8_t images[2][IMAGE];
    by__transform_chain chain = {.size = {.channels = CHANNELS, .height = HEIGHT, .width = WIDTH}};
    const by_source_sample sample = {.index = index, .place = index, .seed = 11};
    assert_int_equal(by__transform_add(&chain, text, NULL), BY_OK);
    assert_true(by__transform_mixes(&chain));
    assert_true(by__transform_scratch(&chain) <= sizeof scratch);
    memset(images[0], 10, IMAGE);
    memset(images[1], 200, IMAGE);
    return by__transform_apply(&chain, &sample, images[0], images[1], scratch, share);
}

/* The share is that of the pixels; Beta(alpha, alpha) has mean 1/2 and variance 1/(4 (2 alpha +
 * 1)). */
static void test_mixup(void **state)
{
    enum { DRAWS = 4000 };
    BY_UNUSED(state);
    for (int i = 0; i < 2; i++) {
        double alpha = i == 0 ? 1.0 : 0.2;
        double sum = 0.0;
        double squares = 0.0;
        for (uint64_t k = 0; k < DRAWS; k++) {
            double share;
            const uint8_t *out = mix_images(i == 0 ? "mixup=1" : "mixup", k, &share);
            assert_true(share >= 0.0 && share <= 1.0);
            assert_true(fabs((double)out[0] - (10 * share + 200 * (1 - share))) <= 0.5);
            assert_int_equal(out[IMAGE - 1], out[0]);
            sum += share;
            squares += (share - 0.5) * (share - 0.5);
        }
        assert_true(fabs(sum / DRAWS - 0.5) < 0.03);
        assert_true(fabs(squares / DRAWS * 4 * (2 * alpha + 1) - 1.0) < 0.06);
    }
    size_t mixed = 0;
    for (uint64_t k = 0; k < 200; k++) {
        double share;
        (void)mix_images("mixup=1:0.25", k, &share);
        mixed += share < 1.0;
    }
    assert_in_range(mixed, 30, 70);
}

/* The other image's pixels are a rectangle, the same in all channels, and its share of the area. */
static void test_cutmix(void **state)
{
    bool seen[HEIGHT * WIDTH + 1] = {false};
    BY_UNUSED(state);
    for (uint64_t k = 0; k < 400; k++) {
        double share;
        const uint8_t *out = mix_images("cutmix", k, &share);
        size_t count = 0;
        size_t ends[4] = {HEIGHT, 0, WIDTH, 0};
        for (size_t i = 0; i < HEIGHT * WIDTH; i++) {
            assert_true(out[i] == 10 || out[i] == 200);
            assert_int_equal(out[i], out[HEIGHT * WIDTH + i]);
            if (out[i] == 200) {
                size_t y = i / WIDTH;
                size_t x = i % WIDTH;
                ends[0] = y < ends[0] ? y : ends[0];
                ends[1] = y + 1 > ends[1] ? y + 1 : ends[1];
                ends[2] = x < ends[2] ? x : ends[2];
                ends[3] = x + 1 > ends[3] ? x + 1 : ends[3];
                count++;
            }
        }
        assert_int_equal(count, count == 0 ? 0 : (ends[1] - ends[0]) * (ends[3] - ends[2]));
        assert_true(fabs(share - (1.0 - (double)count / (HEIGHT * WIDTH))) < 1e-12);
        seen[count] = true;
    }
    assert_true(seen[0] && seen[1] && seen[6] && seen[12]);
}

/* Samples of two labels: their image tells which example the other one is, and the weights are
 * shares of the example's own. */
static void test_second_labels(void **state)
{
    static uint8_t pixels[EXAMPLES];
    static int32_t labels[EXAMPLES];
    static float weights[EXAMPLES];
    const char *const chain[] = {"mixup=1"};
    const by_array_source_options options = {
        .shuffle = true, .target = "labels", .transforms = chain, .transform_count = 1};
    by_array_set *set;
    by_batch batch;
    size_t others = 0;
    BY_UNUSED(state);
    for (size_t i = 0; i < EXAMPLES; i++) {
        pixels[i] = (uint8_t)(i * 8);
        labels[i] = (int32_t)i;
        weights[i] = (float)(i % 3);
    }
    const by_array arrays[] = {{"images", BY_U8, BY_SHAPE(EXAMPLES, 1, 1, 1), pixels},
                               {"labels", BY_I32, BY_SHAPE(EXAMPLES), labels},
                               {"weight", BY_F32, BY_SHAPE(EXAMPLES), weights}};
    assert_int_equal(by_array_set_open(&set, "pixels", arrays, 3, NULL), BY_OK);
    by_loader *loader = open_loader(set, &options, &(by_loader_options){.batch = 50, .seed = 4});
    const uint8_t *images = next_images(loader, &batch);
    const int32_t *first = by_batch_array(&batch, "labels")->data;
    const int32_t *second = by_batch_array(&batch, "second_labels")->data;
    const float *first_weight = by_batch_array(&batch, "first_weight")->data;
    const float *second_weight = by_batch_array(&batch, "second_weight")->data;
    for (size_t i = 0; i < 50; i++) {
        float weight = (float)(first[i] % 3);
        assert_true(first_weight[i] + second_weight[i] == weight);
        others += second[i] != first[i];
        if (weight > 0.0f) {
            float share = first_weight[i] / weight;
            float want = (float)(8 * first[i]) * share + (float)(8 * second[i]) * (1 - share);
            assert_true(fabsf((float)images[i] - want) <= 0.51f);
        }
    }
    assert_true(others > 40);
    by_loader_close(&loader);
    by_array_set_close(&set);
}

static void test_flip(void **state)
{
    uint8_t in[IMAGE];
    size_t mirrored = 0;
    BY_UNUSED(state);
    for (size_t i = 0; i < IMAGE; i++) {
        in[i] = (uint8_t)i;
    }
    for (uint64_t k = 0; k < 200; k++) {
        const uint8_t *out = apply_to("flip=0.25", k, in);
        bool is = out != in;
        mirrored += is;
        for (size_t i = 0; i < IMAGE; i++) {
            size_t x = i % WIDTH;
            assert_int_equal(out[i], is ? i - x + WIDTH - 1 - x : i);
        }
    }
    assert_in_range(mirrored, 30, 70);
}

static void test_shift(void **state)
{
    uint8_t in[IMAGE];
    size_t seen[7][7] = {{0}};
    BY_UNUSED(state);
    for (size_t i = 0; i < IMAGE; i++) {
        in[i] = (uint8_t)(i + 1);
    }
    for (uint64_t k = 0; k < 600; k++) {
        const uint8_t *out = apply_to("shift=3", k, in);
        size_t found = 0;
        for (int dy = -3; dy <= 3; dy++) {
            for (int dx = -3; dx <= 3; dx++) {
                bool same = true;
                for (int i = 0; i < IMAGE && same; i++) {
                    int y = i / WIDTH % HEIGHT + dy;
                    int x = i % WIDTH + dx;
                    bool inside = y >= 0 && y < HEIGHT && x >= 0 && x < WIDTH;
                    same = out[i] == (inside ? in[i + dy * WIDTH + dx] : 0);
                }
                found += same;
                seen[dy + 3][dx + 3] += same;
            }
        }
        assert_int_equal(found, 1);
    }
    for (size_t i = 0; i < 49; i++) {
        assert_in_range(seen[i / 7][i % 7], 1, 40); /* 12 are expected */
    }
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"turn", "'turn' is none of the transforms: shift=pixels"},
        {"", "'' is none of the transforms"},
        {"flip=2", "'flip=2': probability must be a number from 0 to 1"},
        {"flip=", "'flip=': probability must be a number"},
        {"flip=0.5:1", "'flip=0.5:1': flip takes 1 values"},
        {"shift=1.5", "'shift=1.5': pixels must be a whole number from 0 to 65535"},
        {"shift=nan", "pixels must be a whole number"},
        {"resized_crop=0.5:0.4", "min_area 0.5 is more than max_area 0.4"},
        {"resized_crop=0.5:1:2:1", "min_ratio 2 is more than max_ratio 1"},
        {"erase=1:0.5:0.4", "min_area 0.5 is more than max_area 0.4"},
        {"randaugment=0", "operations must be a whole number from 1 to 14"},
        {"shift=4", "a shift of 4 pixels must be from 0 to less than the 4 x 5 of an image"},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        by__transform_chain chain = {
            .size = {.channels = CHANNELS, .height = HEIGHT, .width = WIDTH}};
        by_status status = by__transform_add(&chain, cases[i].text, &error);
        status = status == BY_OK ? by__transform_check(&chain, &error) : status;
        if (status != BY_EARG || strstr(error.message, cases[i].message) == NULL) {
            fail_msg("%s: %d %s", cases[i].text, status, error.message);
        }
    }
    by__transform_chain chain = {.count = 0};
    for (size_t i = 0; i < BY__TRANSFORM_CHAIN; i++) {
        assert_int_equal(by__transform_add(&chain, "flip", NULL), BY_OK);
    }
    assert_int_equal(by__transform_add(&chain, "flip", NULL), BY_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_function_of_sample),
        cmocka_unit_test(test_options_of_old),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_held_out),
        cmocka_unit_test(test_mixup),
        cmocka_unit_test(test_cutmix),
        cmocka_unit_test(test_second_labels),
        cmocka_unit_test(test_flip),
        cmocka_unit_test(test_shift),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
