/* Layers that are added change no bit of what a model computes, and can be trained. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/compress.h"
#include "compress_fixture.h"
#include "runner.h"

static void read_logits(float *out, const by_pretrained *model)
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
    memcpy(out, values, TIME * VOCAB * sizeof *out);
    by_logits_close(&logits);
}

static void check_same(const char *const *settings, size_t count, const char *layers, int64_t want)
{
    static float before[TIME * VOCAB];
    static float after[TIME * VOCAB];
    fixture f;
    by_error error = {0};
    by_pretrained *made;
    by_compressed result;
    const by_compress_options options = {
        .method = "stack", .settings = &layers, .setting_count = 1, .threads = 1};
    open_fixture(&f, settings, count);
    check_ok(by_compress(&result, f.out, f.model, &options, &error), &error);
    check_ok(by_pretrained_open(&made, f.out, false, &error), &error);
    assert_int_equal(by_pretrained_config(made)->model.layers, want);
    read_logits(before, f.model);
    read_logits(after, made);
    assert_memory_equal(after, before, sizeof after);
    by_pretrained_close(&made);
    close_fixture(&f);
}

static void test_same(void **state)
{
    BY_UNUSED(state);
    check_same(gpt2, BY_ARRAY_LENGTH(gpt2), "layers=1", 3);
    check_same(gpt2, BY_ARRAY_LENGTH(gpt2), "layers=5", 7);
    check_same(llama, BY_ARRAY_LENGTH(llama), "layers=2", 4);
    check_same(mixtral, BY_ARRAY_LENGTH(mixtral), "layers=3", 4);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    static const char *const mixed[] = {"model.kind=llama",
                                        "model.layers=2",
                                        "model.heads=4",
                                        "model.width=32",
                                        "model.context=16",
                                        "model.vocab=61",
                                        "attention.kind=local_global",
                                        "precision.compute=f32"};
    const char *setting = "layers=1";
    fixture f;
    by_error error = {0};
    by_compressed result;
    const by_compress_options options = {
        .method = "stack", .settings = &setting, .setting_count = 1, .threads = 1};
    open_fixture(&f, mixed, BY_ARRAY_LENGTH(mixed));
    check_error(by_compress(&result, f.out, f.model, &options, &error), BY_EARG, &error,
                "numbers of layers");
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
