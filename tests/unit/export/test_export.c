/* Directories in another dtype, and files without a tokenizer. What the command writes, reads back
 * and refuses is tested by tests/e2e/test_export.sh. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/compress.h"
#include "banyan/export.h"
#include "banyan/infer.h"
#include "base/base.h"
#include "runner.h"
#include "temporary.h"
#include "tiny_model.h"

static const char *const settings[] = {"model.kind=llama", "model.layers=1",  "model.heads=2",
                                       "model.width=16",   "model.context=8", "model.vocab=20"};
static const char name[] = "model.layers.0.mlp.up_proj.weight";

/* Exports a model whose tensor `name` holds `value`; the first value of it that is written. */
static by_status export_value(float *out, float value, const char *dtype, by_error *error)
{
    by_config *config = tiny_config(settings, BY_ARRAY_LENGTH(settings));
    char *directory = temporary_make();
    assert_non_null(directory);
    char *made = by__path_join(directory, "made");
    assert_non_null(made);
    by_weights *weights;
    tiny_model_write(config, directory);
    tiny_model_set(directory, name, 0, value);
    check_ok(by_weights_open(&weights, directory, error), error);
    const by_export_source source = {.config = config, .weights = weights, .directory = directory};
    const by_export_options options = {.format = "safetensors", .dtype = dtype, .output = made};
    by_status status = by_export(NULL, &source, &options, error);
    by_weights_close(&weights);
    if (status == BY_OK) {
        const by_tensor_slice first = {.flat = true, .shape = {1}};
        check_ok(by_weights_open(&weights, made, error), error);
        check_ok(by_weights_read_f32(weights, name, &first, out, 1, error), error);
        by_weights_close(&weights);
    } else {
        assert_false(by__path_exists(made));
    }
    by_config_close(&config);
    free(made);
    temporary_remove(directory);
    return status;
}

/* The largest numbers of f16 and bf16, which halfway to the next round to infinity. */
static void a_value_that_is_too_large_is_refused(void **state)
{
    static const struct {
        const char *dtype;
        float most, more;
    } cases[] = {{"f16", 65504.0f, 65520.0f}, {"bf16", 0x1.fep127f, 0x1.ffp127f}};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        float read = 0.0f;
        check_ok(export_value(&read, -cases[i].most, cases[i].dtype, &error), &error);
        assert_true(read == -cases[i].most);
        assert_int_equal(export_value(&read, -cases[i].more, cases[i].dtype, &error), BY_EARG);
        assert_non_null(strstr(error.message, name));
        check_ok(export_value(&read, -cases[i].more, "f32", &error), &error);
        assert_true(read == -cases[i].more);
        check_ok(export_value(&read, INFINITY, cases[i].dtype, &error), &error);
        assert_true(isinf(read)); /* what was infinite loses nothing */
    }
}

static void is_model_of_ids(const char *directory, const char *under)
{
    by_error error = {0};
    by_pretrained *model;
    char *tokenizer = by__path_join(directory, "tokenizer.json");
    assert_non_null(tokenizer);
    assert_false(by__path_exists(tokenizer));
    check_ok(by_pretrained_open(&model, directory, false, &error), &error);
    assert_true(by_weights_has(by_pretrained_weights(model), under));
    by_pretrained_close(&model);
    free(tokenizer);
}

/* A model that reads ids goes through a GGUF file, which then has no vocabulary. */
static void files_of_models_without_a_tokenizer(void **state)
{
    (void)state;
    by_error error = {0};
    by_pretrained *model;
    by_config *config = tiny_config(settings, BY_ARRAY_LENGTH(settings));
    char *directory = temporary_make();
    assert_non_null(directory);
    char *file = by__path_join(directory, "model.gguf");
    char *made = by__path_join(directory, "made");
    char *codes = by__path_join(directory, "codes");
    tiny_model_write(config, directory);
    check_ok(by_pretrained_open(&model, directory, false, &error), &error);
    by_export_source source = {.config = by_pretrained_config(model),
                               .weights = by_pretrained_weights(model),
                               .directory = directory};
    by_export_options options = {.format = "gguf", .output = file};
    check_ok(by_export(NULL, &source, &options, &error), &error);
    by_pretrained_close(&model);
    check_ok(by_pretrained_open(&model, file, false, &error), &error);
    source = (by_export_source){.config = by_pretrained_config(model),
                                .weights = by_pretrained_weights(model),
                                .directory = file};
    options = (by_export_options){.format = "safetensors", .output = made};
    check_ok(by_export(NULL, &source, &options, &error), &error);
    is_model_of_ids(made, name);
    const by_compress_options smaller = {.method = "int8", .threads = 1};
    check_ok(by_compress(NULL, codes, model, &smaller, &error), &error);
    is_model_of_ids(codes, name);
    by_pretrained_close(&model);
    by_config_close(&config);
    free(codes);
    free(made);
    free(file);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_that_is_too_large_is_refused),
        cmocka_unit_test(files_of_models_without_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
