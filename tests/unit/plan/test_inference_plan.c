/* What inference costs beside training, against the usual formulas. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/plan.h"
#include "runner.h"

enum { LAYERS = 3, WIDTH = 64, CONTEXT = 96, VOCAB = 500 };

static const by_speeds unknown = {0};
static const by_speeds known = {.f32_flops = 1e11, .bf16_flops = 1e11, .bytes = 1e10};

/* 2N + 2LC T of a token that is read, of which the causal half; 2N + 4LC T of the last one; nearly,
 * as N has norms and biases, too. All weights of products, keys and values are read for it. */
static void test_tokens(void **state)
{
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=llama"};
    BY_UNUSED(state);
    for (size_t k = 0; k < BY_ARRAY_LENGTH(kinds); k++) {
        const char *const settings[] = {
            kinds[k],          "model.layers=3",   "model.width=64",        "model.heads=4",
            "model.vocab=500", "model.context=96", "train.batch=4",         "train.steps=10",
            "train.threads=1", "device=cpu",       "precision.compute=f32", NULL};
        static const char *const none[] = {NULL};
        by_error error = {0};
        by_inference_plan p;
        by_trainer *t;
        by_config *config = config_of(settings, none);
        check_ok(by_trainer_open(&t, config, NULL, &error), &error);
        const by_model_size *size = by_trainer_size(t);
        check_ok(by_plan_inference(&p, config, &unknown, &error), &error);
        double n = (double)size->in_products;
        double pairs = (double)LAYERS * WIDTH * CONTEXT;
        assert_true(fabs(p.read_flops / (size->flops_per_example / 3.0) - 1.0) < 0.02);
        assert_true(fabs(p.write_flops / (2.0 * n + 4.0 * pairs) - 1.0) < 0.02);
        double least = 4.0 * (n + 2.0 * pairs);
        assert_true(p.write_bytes >= least && p.write_bytes < 1.1 * least);
        assert_true(p.read_seconds == 0.0 && p.write_seconds == 0.0);

        /* A token that is written waits for the memory, a context that is read for products. */
        check_ok(by_plan_inference(&p, config, &known, &error), &error);
        assert_true(p.write_seconds >= p.write_bytes / known.bytes);
        assert_true(p.read_seconds >= CONTEXT * p.read_flops / known.f32_flops);
        assert_true(p.read_seconds < (double)CONTEXT * p.write_seconds);
        by_trainer_close(&t);
        by_config_close(&config);
    }
}

/* An image is read, and nothing written. */
static void test_images(void **state)
{
    static const char *const settings[] = {"task.kind=classify",    "model.kind=resnet",
                                           "model.stem=small",      "model.width=8",
                                           "model.depths=[1, 1]",   "model.channels=1",
                                           "model.outputs=3",       "model.image_height=16",
                                           "model.image_width=16",  "train.batch=4",
                                           "train.micro_batch=4",   "train.steps=10",
                                           "train.threads=1",       "device=cpu",
                                           "precision.compute=f32", NULL};
    static const char *const none[] = {NULL};
    by_error error = {0};
    by_inference_plan p;
    by_trainer *t;
    BY_UNUSED(state);
    by_config *config = config_of(settings, none);
    check_ok(by_trainer_open(&t, config, NULL, &error), &error);
    check_ok(by_plan_inference(&p, config, &unknown, &error), &error);
    assert_true(fabs(p.read_flops / (by_trainer_size(t)->flops_per_example / 3.0) - 1.0) < 0.01);
    assert_true(p.write_flops == 0.0 && p.write_bytes == 0.0);
    by_trainer_close(&t);
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokens),
                                       cmocka_unit_test(test_images)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
