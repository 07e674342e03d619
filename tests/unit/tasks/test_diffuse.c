/* Diffusion: levels of noise against the formulas of the papers in double, samples that are a
 * function of seed, epoch and place, and the steps of the samplers. */
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
#include "infer/diffusion_step.h"
#include "runner.h"
#include "tasks/noise_levels.h"

enum { CHANNELS = 2, SIDE = 8, PIXELS = CHANNELS * SIDE * SIDE, IMAGES = 5, CLASSES = 3 };

static void expect_near(double have, double want, double bound)
{
    if (!(fabs(have - want) <= bound)) {
        fail_msg("%.17g, not %.17g to within %g", have, want, bound);
    }
}

static by__task_diffusion open_process(bool flow, bool cosine, int64_t steps)
{
    by__task_diffusion d;
    by_error error = {0};
    check_ok(by__task_diffusion_open(&d, flow, cosine, steps, &error), &error);
    return d;
}

static void expect_level(const by__task_diffusion *d, int64_t k, double kept)
{
    expect_near(d->levels[k].signal, sqrt(kept), 1e-12);
    expect_near(d->levels[k].noise, sqrt(1.0 - kept), 1e-12);
}

static void test_levels(void **state)
{
    BY_UNUSED(state);
    by__task_diffusion d = open_process(false, false, 1000);
    double kept = 1.0;
    expect_level(&d, 0, 1.0);
    for (int64_t k = 1; k <= 1000; k++) {
        kept *= 1.0 - (1e-4 + (double)(k - 1) * (0.02 - 1e-4) / 999.0);
        expect_level(&d, k, kept);
    }
    /* What is left of the image's variance, as in Ho et al.'s code. */
    expect_near(kept, 4.0358e-5, 1e-9);
    by__task_diffusion_close(&d);

    d = open_process(false, true, 100);
    double first = pow(cos(0.008 / 1.008 * M_PI / 2.0), 2.0);
    for (int64_t k = 0; k < 100; k++) { /* the last beta is cut off at 0.999 */
        expect_level(&d, k,
                     pow(cos(((double)k / 100.0 + 0.008) / 1.008 * M_PI / 2.0), 2.0) / first);
    }
    expect_near(pow(d.levels[100].signal / d.levels[99].signal, 2.0), 0.001, 1e-12);
    by__task_diffusion_close(&d);

    d = open_process(true, false, 8);
    for (int64_t k = 0; k <= 8; k++) {
        expect_near(d.levels[k].noise, (double)k / 8.0, 0.0);
        expect_near(d.levels[k].signal, 1.0 - (double)k / 8.0, 0.0);
    }
    assert_int_equal(by__task_diffusion_input(&d, 8), 8);
    by__task_diffusion_close(&d);
}

/* ---- samples ---- */

typedef struct drawn {
    float images[PIXELS];
    int32_t class;
    float weight;
    int32_t time;
    float targets[PIXELS];
} drawn;

typedef struct data {
    by_array_set *set;
    by_source *plain;
    by_source *noised;
} data;

/* Images and labels, with noise on one of the two sources. */
static data open_data(bool flow, bool training, double drop)
{
    static const float mean[] = {0.25f, 0.5f};
    static const float deviation[] = {0.5f, 0.25f};
    uint8_t pixels[IMAGES * PIXELS];
    int32_t labels[IMAGES];
    by_error error = {0};
    data d;
    for (size_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)(i * 7 + i / 11);
    }
    for (int i = 0; i < IMAGES; i++) {
        labels[i] = i % CLASSES;
    }
    const by_array arrays[] = {{"images", BY_U8, BY_SHAPE(IMAGES, CHANNELS, SIDE, SIDE), pixels},
                               {"labels", BY_I32, BY_SHAPE(IMAGES), labels}};
    check_ok(by_array_set_open(&d.set, "images", arrays, 2, &error), &error);
    const by_part part = by_part_whole(IMAGES);
    const by_array_source_options options = {
        .shuffle = training, .target = "labels", .mean = mean, .deviation = deviation};
    by_source *inner;
    check_ok(by_array_source_open(&d.plain, d.set, &part, &options, &error), &error);
    check_ok(by_array_source_open(&inner, d.set, &part, &options, &error), &error);
    by__task_diffusion process = open_process(flow, false, 1000);
    check_ok(by__task_noised_source_open(&d.noised, inner, &process, CLASSES, drop, &error),
             &error);
    assert_int_equal(d.noised->array_count, 5);
    assert_string_equal(d.noised->arrays[1].name, "classes");
    assert_string_equal(d.noised->arrays[3].name, "timesteps");
    assert_string_equal(d.noised->arrays[4].name, "targets");
    return d;
}

static void close_data(data *d)
{
    by_source_close(&d->plain);
    by_source_close(&d->noised);
    by_array_set_close(&d->set);
}

static void draw(const data *d, uint64_t seed, uint64_t index, drawn *out)
{
    by_error error = {0};
    const by_source_sample sample = {
        .place = index % IMAGES, .epoch = index / IMAGES, .index = index, .seed = seed};
    void *rows[] = {out->images, &out->class, &out->weight, &out->time, out->targets};
    check_ok(d->noised->fill(d->noised, &sample, rows, &error), &error);
}

/* The image of a sample follows from what the model reads and what it should say. */
static void expect_image(const data *d, bool flow, uint64_t index)
{
    drawn s;
    float x[PIXELS];
    int32_t label;
    float weight;
    by_error error = {0};
    const by_source_sample sample = {.place = index % IMAGES, .index = index, .seed = 3};
    void *rows[] = {x, &label, &weight};
    by__task_diffusion process = open_process(flow, false, 1000);
    draw(d, 3, index, &s);
    check_ok(d->plain->fill(d->plain, &sample, rows, &error), &error);
    assert_in_range(s.time, flow ? 1 : 0, flow ? 1000 : 999);
    const by__task_noise_level *level = &process.levels[flow ? s.time : s.time + 1];
    for (int i = 0; i < PIXELS; i++) {
        double eps = flow ? (double)s.targets[i] + (double)x[i] : (double)s.targets[i];
        double want = level->signal * (double)x[i] + level->noise * eps;
        expect_near((double)s.images[i], want, 1e-5);
    }
    assert_true(s.class == label || s.class == CLASSES);
    by__task_diffusion_close(&process);
}

static void test_samples(void **state)
{
    BY_UNUSED(state);
    drawn a;
    drawn b;
    for (int flow = 0; flow < 2; flow++) {
        data d = open_data(flow == 1, true, 0.1);
        for (uint64_t i = 0; i < 20; i++) {
            expect_image(&d, flow == 1, i);
        }
        draw(&d, 3, 7, &a);
        draw(&d, 3, 7, &b);
        assert_memory_equal(&a, &b, sizeof a);
        draw(&d, 3, 7 + IMAGES, &b); /* the same image, an epoch later */
        assert_memory_not_equal(a.targets, b.targets, sizeof a.targets);
        draw(&d, 4, 7, &b);
        assert_memory_not_equal(a.targets, b.targets, sizeof a.targets);
        close_data(&d);
    }
}

/* Noise is normal, times are uniform, and as many classes are dropped as asked for. */
static void test_distributions(void **state)
{
    BY_UNUSED(state);
    enum { COUNT = 4000 };
    double sum = 0.0;
    double square = 0.0;
    double fourth = 0.0;
    double times = 0.0;
    int dropped = 0;
    data d = open_data(false, true, 0.25);
    for (uint64_t i = 0; i < COUNT; i++) {
        drawn s;
        draw(&d, 1, i, &s);
        assert_in_range(s.time, 0, 999);
        dropped += s.class == CLASSES;
        times += (double)s.time / COUNT;
        for (int k = 0; k < PIXELS; k++) {
            double e = (double)s.targets[k];
            sum += e / (COUNT * PIXELS);
            square += e * e / (COUNT * PIXELS);
            fourth += e * e * e * e / (COUNT * PIXELS);
        }
    }
    /* Five standard errors each. */
    double numbers = sqrt((double)COUNT * PIXELS);
    expect_near(sum, 0.0, 5.0 / numbers);
    expect_near(square, 1.0, 5.0 * sqrt(2.0) / numbers);
    expect_near(fourth, 3.0, 5.0 * sqrt(96.0) / numbers);
    expect_near(times, 499.5, 5.0 * 288.7 / sqrt(COUNT));
    assert_in_range(dropped, 863, 1137);
    close_data(&d);
}

/* A pass keeps all classes, and its padding has none. */
static void test_pass(void **state)
{
    BY_UNUSED(state);
    drawn s;
    by_error error = {0};
    data d = open_data(true, false, 0.9);
    void *rows[] = {s.images, &s.class, &s.weight, &s.time, s.targets};
    for (uint64_t i = 0; i < IMAGES + 1; i++) {
        const by_source_sample sample = {.place = i, .index = i, .seed = 2};
        check_ok(d.noised->fill(d.noised, &sample, rows, &error), &error);
        assert_int_equal(s.class, i < IMAGES ? (int32_t)i % CLASSES : CLASSES);
        expect_near((double)s.weight, i < IMAGES ? 1.0 : 0.0, 0.0);
    }
    close_data(&d);
}

static void test_refused_arrays(void **state)
{
    BY_UNUSED(state);
    by_source *inner;
    by_source *out;
    by_error error = {0};
    data d = open_data(true, true, 0.1);
    const by_part part = by_part_whole(IMAGES);
    const by_array_source_options bytes = {.shuffle = true, .target = "labels"};
    check_ok(by_array_source_open(&inner, d.set, &part, &bytes, &error), &error);
    by__task_diffusion process = open_process(true, false, 10);
    assert_int_equal(by__task_noised_source_open(&out, inner, &process, CLASSES, 0.1, &error),
                     BY_EARG);
    assert_non_null(strstr(error.message, "images with a label each"));
    close_data(&d);
}

/* ---- samplers ---- */

static void test_times(void **state)
{
    BY_UNUSED(state);
    by__task_diffusion d = open_process(true, false, 1000);
    for (int64_t steps = 1; steps <= 1000; steps += 37) {
        int64_t before = -1;
        for (int64_t i = 0; i <= steps; i++) {
            int64_t time = by__infer_diffusion_time(&d, i, steps);
            assert_true(time > before);
            before = time;
        }
        assert_int_equal(by__infer_diffusion_time(&d, 0, steps), 0);
        assert_int_equal(before, 1000);
    }
    assert_int_equal(by__infer_diffusion_time(&d, 1, 3), 333);
    assert_int_equal(by__infer_diffusion_time(&d, 2, 3), 667);
    by__task_diffusion_close(&d);
}

/* DDIM as it is written in the paper: the image that the noise implies, with less of this noise. */
static void test_steps(void **state)
{
    BY_UNUSED(state);
    float x[PIXELS];
    float before[PIXELS];
    float says[PIXELS];
    for (int i = 0; i < PIXELS; i++) {
        before[i] = x[i] = sinf((float)i);
        says[i] = cosf(2.0f * (float)i);
    }
    by__task_diffusion d = open_process(false, false, 1000);
    by__infer_diffusion_step(&d, 700, 350, x, says, PIXELS);
    double from = pow(d.levels[700].signal, 2.0);
    double to = pow(d.levels[350].signal, 2.0);
    for (int i = 0; i < PIXELS; i++) {
        double image = ((double)before[i] - sqrt(1.0 - from) * (double)says[i]) / sqrt(from);
        double want = sqrt(to) * image + sqrt(1.0 - to) * (double)says[i];
        expect_near((double)x[i], want, 1e-6 * fmax(1.0, fabs(want)));
    }
    by__task_diffusion_close(&d);

    d = open_process(true, false, 1000);
    memcpy(x, before, sizeof x);
    by__infer_diffusion_step(&d, 700, 350, x, says, PIXELS);
    for (int i = 0; i < PIXELS; i++) {
        expect_near((double)x[i], (double)before[i] - 0.35 * (double)says[i], 1e-6);
    }
    by__task_diffusion_close(&d);

    const float none[] = {1.0f, -2.0f};
    float guided[] = {2.0f, -2.5f};
    by__infer_diffusion_guide(guided, none, 3.0, 2);
    expect_near((double)guided[0], 4.0, 0.0);
    expect_near((double)guided[1], -3.5, 0.0);
}

/* A model that knows the image leads to it from any noise, in any number of steps. */
static void test_known_image(void **state)
{
    BY_UNUSED(state);
    for (int kind = 0; kind < 3; kind++) {
        by__task_diffusion d = open_process(kind == 0, kind == 2, 1000);
        for (int64_t steps = 1; steps <= 20; steps += 19) {
            float image[PIXELS];
            float x[PIXELS];
            float says[PIXELS];
            for (int i = 0; i < PIXELS; i++) {
                image[i] = cosf((float)i);
                x[i] = 3.0f * sinf(5.0f * (float)i);
            }
            for (int64_t s = steps; s > 0; s--) {
                int64_t time = by__infer_diffusion_time(&d, s, steps);
                const by__task_noise_level *level = &d.levels[time];
                for (int i = 0; i < PIXELS; i++) {
                    double eps = ((double)x[i] - level->signal * (double)image[i]) / level->noise;
                    says[i] = (float)(d.flow ? eps - (double)image[i] : eps);
                }
                by__infer_diffusion_step(&d, time, by__infer_diffusion_time(&d, s - 1, steps), x,
                                         says, PIXELS);
            }
            /* One step of DDIM divides by all that is left of the image, and so does rounding. */
            double bound = 1e-6 / (d.flow ? 1.0 : d.levels[1000].signal);
            for (int i = 0; i < PIXELS; i++) {
                expect_near((double)x[i], (double)image[i], bound);
            }
        }
        by__task_diffusion_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),         cmocka_unit_test(test_samples),
        cmocka_unit_test(test_distributions),  cmocka_unit_test(test_pass),
        cmocka_unit_test(test_refused_arrays), cmocka_unit_test(test_times),
        cmocka_unit_test(test_steps),          cmocka_unit_test(test_known_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
