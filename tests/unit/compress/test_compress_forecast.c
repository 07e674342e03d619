/* What is known of a compression before its work: sizes to the byte, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/compress.h"
#include "banyan/export.h"
#include "base/base.h"
#include "compress_fixture.h"
#include "runner.h"

/* The bytes of a model's weights in memory, as inference loads them. */
static uint64_t memory_of(const char *directory)
{
    by_error error = {0};
    by_pretrained *model;
    by_generator *generator;
    check_ok(by_pretrained_open(&model, directory, false, &error), &error);
    check_ok(by_generator_open(&generator, by_pretrained_config(model),
                               by_pretrained_weights(model), NULL, &error),
             &error);
    uint64_t bytes = by_generator_memory(generator)->weights;
    by_generator_close(&generator);
    by_pretrained_close(&model);
    return bytes;
}

static void check_memory(uint64_t forecast, const char *directory)
{
    /* The store aligns each tensor, and pads the vocabulary to whole panels. */
    uint64_t memory = memory_of(directory);
    assert_in_range(forecast, memory - memory / 50, memory + memory / 50);
}

/* Forecasts are what will be there, and that of the model as it is what is there. */
static void forecasts_are_kept(void **state)
{
    static const char *const methods[] = {"int8", "int4", "fp8", "magnitude"};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(methods); i++) {
        by_error error = {0};
        by_compressed made;
        by_compress_forecast forecast;
        by_pretrained *result;
        fixture f;
        const by_compress_options options = {.method = methods[i], .threads = 1};
        if (i == 1) {
            open_fixture(&f, gpt2, BY_ARRAY_LENGTH(gpt2));
        } else if (i == 2) {
            open_fixture(&f, mixtral, BY_ARRAY_LENGTH(mixtral));
        } else {
            open_fixture(&f, llama, BY_ARRAY_LENGTH(llama));
        }
        check_ok(by_compress_forecast_make(&forecast, f.model, &options, &error), &error);
        check_ok(by_compress(&made, f.out, f.model, &options, &error), &error);
        assert_int_equal(forecast.bytes, made.bytes_after);
        assert_true(forecast.token_bytes <= forecast.memory);
        check_memory(forecast.memory, f.out);
        const by_compress_options none = {.threads = 1};
        check_ok(by_compress_forecast_make(&forecast, f.model, &none, &error), &error);
        assert_int_equal(forecast.bytes, made.bytes_before);
        check_memory(forecast.memory, f.directory);
        check_ok(by_pretrained_open(&result, f.out, false, &error), &error);
        check_ok(by_compress_forecast_make(&forecast, result, &none, &error), &error);
        assert_int_equal(forecast.bytes, made.bytes_after);
        check_memory(forecast.memory, f.out);
        by_pretrained_close(&result);
        close_fixture(&f);
    }
}

/* Checks that every method refuses the model with these words. */
static void check_refused(const by_pretrained *model, const char *out, const char *quantized)
{
    by_error error = {0};
    const by_compress_method *m;
    for (size_t i = 0; (m = by_compress_method_at(i)) != NULL; i++) {
        const by_compress_options options = {.method = m->name, .threads = 1};
        assert_int_equal(by_compress_check(out, model, &options, &error), BY_EARG);
        assert_non_null(strstr(error.message, quantized));
        assert_true(strstr(error.message, "compress the original model") != NULL ||
                    strstr(error.message, "prune the original model") != NULL);
    }
}

/* Quantized weights stay as they are: codes of this program, and blocks of a GGUF file. */
static void quantized_weights_are_refused(void **state)
{
    by_error error = {0};
    by_pretrained *made;
    fixture f;
    const by_compress_options options = {.method = "int4", .threads = 1};
    (void)state;
    open_fixture(&f, llama, BY_ARRAY_LENGTH(llama));
    check_ok(by_compress(NULL, f.out, f.model, &options, &error), &error);
    check_ok(by_pretrained_open(&made, f.out, false, &error), &error);
    char *other = by__path_join(f.directory, "other");
    assert_non_null(other);
    check_refused(made, other, "quantized (int4)");
    by_pretrained_close(&made);
    const by_export_source source = {.config = by_pretrained_config(f.model),
                                     .weights = by_pretrained_weights(f.model),
                                     .directory = f.directory};
    const by_export_options gguf = {.format = "gguf", .dtype = "q4_0", .output = other};
    by_export_report report;
    check_ok(by_export(&report, &source, &gguf, &error), &error);
    check_ok(by_pretrained_open(&made, other, false, &error), &error);
    by_compress_forecast forecast;
    check_ok(
        by_compress_forecast_make(&forecast, made, &(by_compress_options){.threads = 1}, &error),
        &error);
    assert_in_range(forecast.bytes, report.bytes - 4096, report.bytes); /* less the header */
    char *third = by__path_join(f.directory, "third");
    assert_non_null(third);
    check_refused(made, third, "quantized (GGUF blocks)");
    free(third);
    by_pretrained_close(&made);
    free(other);
    close_fixture(&f);
}

static void names_and_settings(void **state)
{
    static const char *const both[] = {"pattern=2:4", "sparsity=0.9"};
    by_error error = {0};
    fixture f;
    (void)state;
    open_fixture(&f, gpt2, BY_ARRAY_LENGTH(gpt2));
    by_compress_options options = {.method = "magnitude", .settings = both};
    char *slash = by__path_join(f.out, "");
    char *deep = by__path_join(f.out, "deep");
    assert_true(slash != NULL && deep != NULL);
    for (options.setting_count = 0; options.setting_count < 2; options.setting_count++) {
        check_ok(by_compress_check(f.out, f.model, &options, &error), &error);
        check_ok(by_compress_check(slash, f.model, &options, &error), &error);
    }
    assert_int_equal(by_compress_check(f.out, f.model, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "not sparsity=0.9"));
    options.setting_count = 0;
    assert_int_equal(by_compress_check("", f.model, &options, &error), BY_EARG);
    assert_int_equal(by_compress_check(deep, f.model, &options, &error), BY_EARG);
    assert_int_equal(by_compress_check(f.directory, f.model, &options, &error), BY_EARG);
    options.method = NULL;
    assert_int_equal(by_compress_check(f.out, f.model, &options, &error), BY_EARG);
    free(slash);
    free(deep);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forecasts_are_kept),
        cmocka_unit_test(quantized_weights_are_refused),
        cmocka_unit_test(names_and_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
