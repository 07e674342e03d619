/* A model that is made wider computes the same, and its copies can become different. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/compress.h"
#include "compress_fixture.h"
#include "runner.h"

static void read_logits(double *out, const by_pretrained *model)
{
    by_error error = {0};
    by_logits *logits;
    const float *values;
    int32_t tokens[TIME];
    for (int i = 0; i < TIME; i++) {
        tokens[i] = (i * 7 + 3) % VOCAB;
    }
    check_ok(by_logits_open(&logits, by_pretrained_config(model), by_pretrained_weights(model), 1,
                            TIME, "f32", 1, &error),
             &error);
    check_ok(by_logits_run(logits, tokens, &values, &error), &error);
    for (int i = 0; i < TIME * VOCAB; i++) {
        out[i] = (double)values[i];
    }
    by_logits_close(&logits);
}

static void check_same(const char *const *settings, size_t count, const char *times, int factor)
{
    static double before[TIME * VOCAB];
    static double after[TIME * VOCAB];
    double largest = 0.0;
    double worst = 0.0;
    fixture f;
    by_error error = {0};
    by_pretrained *made;
    by_compressed result;
    const by_compress_options options = {
        .method = "widen", .settings = &times, .setting_count = 1, .threads = 1};
    open_fixture(&f, settings, count);
    check_ok(by_compress(&result, f.out, f.model, &options, &error), &error);
    check_ok(by_pretrained_open(&made, f.out, false, &error), &error);
    const by_model_config *small = &by_pretrained_config(f.model)->model;
    const by_model_config *large = &by_pretrained_config(made)->model;
    assert_int_equal(large->width, factor * small->width);
    assert_int_equal(large->heads, factor * small->heads);
    assert_int_equal(large->kv_heads, factor * small->kv_heads);
    assert_int_equal(large->mlp_width, factor * small->mlp_width);
    assert_int_equal(large->layers, small->layers);
    read_logits(before, f.model);
    read_logits(after, made);
    for (int i = 0; i < TIME * VOCAB; i++) {
        largest = fmax(largest, fabs(before[i]));
        worst = fmax(worst, fabs(after[i] - before[i]));
    }
    if (!(worst <= 1e-6 * largest)) {
        fail_msg("%s, %s: logits up to %g differ by %g", small->kind, times, largest, worst);
    }
    by_pretrained_close(&made);
    close_fixture(&f);
}

/* With weights as small as those of models that are trained; larger ones amplify rounding. */
#define SIZES                                                                                      \
    "model.layers=2", "model.heads=4", "model.width=96", "model.context=16", "model.vocab=61",     \
        "model.init_std=0.05", "precision.compute=f32", "train.threads=2"

static void test_same(void **state)
{
    BY_UNUSED(state);
    static const char *const small[] = {SIZES, "model.kind=gpt2"};
    static const char *const grouped[] = {SIZES, "model.kind=llama", "model.kv_heads=2",
                                          "model.mlp_width=88"};
    static const char *const tied[] = {SIZES, "model.kind=llama", "model.kv_heads=2",
                                       "model.mlp_width=88", "model.tied=true"};
    check_same(small, BY_ARRAY_LENGTH(small), "times=2", 2);
    check_same(small, BY_ARRAY_LENGTH(small), "times=3", 3);
    check_same(grouped, BY_ARRAY_LENGTH(grouped), "times=2", 2);
    check_same(tied, BY_ARRAY_LENGTH(tied), "times=2", 2);
}

/* The parts of a weight differ, and add up to it. */
static void test_parts(void **state)
{
    BY_UNUSED(state);
    enum { WIDTH = 96, MLP = 88 };
    static float narrow[MLP * WIDTH];
    static float wide[4 * MLP * WIDTH];
    const char *name = "model.layers.1.mlp.up_proj.weight";
    const char *setting = "times=2";
    int different = 0;
    fixture f;
    by_error error = {0};
    by_pretrained *made;
    by_compressed result;
    by_tensor_view view;
    const by_compress_options options = {
        .method = "widen", .settings = &setting, .setting_count = 1, .threads = 1};
    open_fixture(&f, llama, BY_ARRAY_LENGTH(llama));
    check_ok(by_compress(&result, f.out, f.model, &options, &error), &error);
    check_ok(by_pretrained_open(&made, f.out, false, &error), &error);
    view = (by_tensor_view){.rank = 2, .shape = {MLP, WIDTH}};
    by_tensor_slice whole = by_tensor_whole(&view);
    check_ok(by_weights_read_f32(by_pretrained_weights(f.model), name, &whole, narrow,
                                 BY_ARRAY_LENGTH(narrow), &error),
             &error);
    view = (by_tensor_view){.rank = 2, .shape = {2L * MLP, 2L * WIDTH}};
    whole = by_tensor_whole(&view);
    check_ok(by_weights_read_f32(by_pretrained_weights(made), name, &whole, wide,
                                 BY_ARRAY_LENGTH(wide), &error),
             &error);
    for (int r = 0; r < 2 * MLP; r++) {
        for (int i = 0; i < WIDTH; i++) {
            double a = (double)wide[r * 2 * WIDTH + i];
            double b = (double)wide[r * 2 * WIDTH + WIDTH + i];
            double sum = (double)narrow[(r % MLP) * WIDTH + i];
            assert_true(fabs(a + b - sum) <= 1e-6 * fabs(sum));
            different += fabs(a - b) > 0.01 * fabs(sum);
        }
    }
    assert_true(different > 9 * 2 * MLP * WIDTH / 10);
    by_pretrained_close(&made);
    close_fixture(&f);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    const char *setting = "times=2";
    fixture f;
    by_error error = {0};
    by_compressed result;
    const by_compress_options options = {
        .method = "widen", .settings = &setting, .setting_count = 1, .threads = 1};
    open_fixture(&f, mixtral, BY_ARRAY_LENGTH(mixtral));
    check_error(by_compress(&result, f.out, f.model, &options, &error), BY_EARG, &error,
                "is none of gpt2, llama, whose columns");
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
