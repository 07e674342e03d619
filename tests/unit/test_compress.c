/* Compressed directories: what they hold, that they load, and that inference multiplies their codes
 * as they are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/compress.h"
#include "checkpoint/storage.h"
#include "compress/compress.h"
#include "temporary.h"
#include "tiny_model.h"

#define VOCAB 61
#define TIME  16

static const char *const gpt2[] = {
    "model.kind=gpt2",    "model.layers=2",        "model.heads=4",
    "model.width=96",     "model.context=16",      "model.vocab=61",
    "model.init_std=0.3", "precision.compute=f32", "train.threads=2"};
static const char *const llama[] = {
    "model.kind=llama",   "model.layers=2",        "model.heads=4",    "model.kv_heads=2",
    "model.mlp_width=88", "model.width=96",        "model.context=16", "model.vocab=61",
    "model.init_std=0.3", "precision.compute=f32", "train.threads=2"};

typedef struct fixture {
    by_config *config;
    char *directory;
    char *out; /* a directory in it that is not there yet */
    by_pretrained *model;
} fixture;

static void check(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

static void open_fixture(fixture *f, const char *const *settings, size_t count)
{
    by_error error = {0};
    f->config = tiny_config(settings, count);
    f->directory = temporary_make();
    assert_non_null(f->directory);
    tiny_model_write(f->config, f->directory);
    f->out = by__path_join(f->directory, "made");
    assert_non_null(f->out);
    check(by_pretrained_open(&f->model, f->directory, false, &error), &error);
}

static void close_fixture(fixture *f)
{
    by_pretrained_close(&f->model);
    by_config_close(&f->config);
    free(f->out);
    temporary_remove(f->directory);
}

static void compress(const fixture *f, const char *method, const char *const *settings,
                     size_t count)
{
    by_error error = {0};
    by_compressed made;
    const by_compress_options options = {
        .method = method, .settings = settings, .setting_count = count, .threads = 2};
    check(by_compress(&made, f->out, f->model, &options, &error), &error);
    assert_true(made.bytes_after < made.bytes_before);
    assert_true(made.layers > 0);
}

/* Logits of a directory, which are freed. */
static float *logits_of(const fixture *f, const char *directory, const char *precision)
{
    by_error error = {0};
    by_weights *weights;
    by_logits *logits;
    int32_t tokens[TIME];
    const float *values;
    float *copy = malloc(TIME * VOCAB * sizeof *copy);
    assert_non_null(copy);
    for (int i = 0; i < TIME; i++) {
        tokens[i] = (i * 7 + 3) % VOCAB;
    }
    check(by_weights_open(&weights, directory, &error), &error);
    check(by_logits_open(&logits, f->config, weights, 1, TIME, precision, 2, &error), &error);
    check(by_logits_run(logits, tokens, &values, &error), &error);
    memcpy(copy, values, TIME * VOCAB * sizeof *copy);
    by_logits_close(&logits);
    by_weights_close(&weights);
    return copy;
}

static void compare_int8(const char *const *settings, size_t count)
{
    fixture f;
    open_fixture(&f, settings, count);
    compress(&f, "int8", NULL, 0);
    float *made = logits_of(&f, f.out, NULL);
    float *same = logits_of(&f, f.directory, "int8");
    /* The codes are those that are found when the weights are packed. */
    assert_memory_equal(made, same, TIME * VOCAB * sizeof *made);
    free(made);
    free(same);
    close_fixture(&f);
}

static void codes_of_8_bits_are_multiplied_as_they_are(void **state)
{
    (void)state;
    compare_int8(gpt2, BY_ARRAY_LENGTH(gpt2));
    compare_int8(llama, BY_ARRAY_LENGTH(llama));
}

/* What is packed from the file has the file's codes and scales, not those found anew. */
static void codes_of_4_bits_are_not_rounded_again(void **state)
{
    static const char *const groups[] = {"group=32", "group=64", "group=128"};
    (void)state;
    for (size_t g = 0; g < BY_ARRAY_LENGTH(groups); g++) {
        const char *const settings[] = {groups[g], "scale=search"};
        by_error error = {0};
        by_weights *weights;
        fixture f;
        open_fixture(&f, gpt2, BY_ARRAY_LENGTH(gpt2));
        compress(&f, "int4", settings, 2);
        check(by_weights_open(&weights, f.out, &error), &error);
        const by__coded *coded = by__weights_coded(weights, "h.0.mlp.c_proj.weight");
        assert_non_null(coded);
        assert_int_equal(coded->kind, BY__CODE_INT4);
        const by_packing packing = {.kind = BY_PACKING_INT4,
                                    .dtype = BY_BF16,
                                    .n = coded->n,
                                    .k = coded->k,
                                    .group = coded->group};
        int64_t panels = (coded->n + BY_PACKED_COLUMNS - 1) / BY_PACKED_COLUMNS;
        void *packed = aligned_alloc(64, (size_t)panels * by__packed_panel_bytes(&packing));
        float *read = malloc((size_t)(coded->n * coded->k) * sizeof *read);
        assert_non_null(packed);
        assert_non_null(read);
        check(by__pack_coded(packed, &packing, coded, 1, &error), &error);
        by_tensor_view view;
        check(by__weights_describe(weights, "h.0.mlp.c_proj.weight", &view, &error), &error);
        by_tensor_slice whole = by_tensor_whole(&view);
        check(by_weights_read_f32(weights, view.name, &whole, read, (size_t)(coded->n * coded->k),
                                  &error),
              &error);
        for (int64_t j = 0; j < coded->n; j++) {
            for (int64_t i = 0; i < coded->k; i++) {
                float value = by__packed_at(&packing, packed, j, i);
                assert_true(value == by__coded_at(coded, j, i));
                assert_true(value == read[i * coded->n + j]); /* GPT-2's are [inputs, outputs] */
            }
        }
        free(packed);
        free(read);
        by_weights_close(&weights);
        close_fixture(&f);
    }
}

/* Rounding errs by half a step of the scale at most, and a search errs less. */
static void rounding_is_to_nearest(void **state)
{
    (void)state;
    float weight[2 * 100];
    double errors[2] = {0};
    for (int i = 0; i < 200; i++) {
        weight[i] = sinf((float)(i * i)) * (i % 37 == 0 ? 4.0f : 1.0f);
    }
    for (int rule = 0; rule < 2; rule++) {
        by_error error = {0};
        by__codes codes;
        check(by__codes_open(&codes, BY__CODE_INT4, 2, 100, 32, &error), &error);
        assert_int_equal(codes.coded.scale_row, 4);
        by__codes_round(&codes, weight, (by__scale_rule)rule, 1);
        for (int i = 0; i < 200; i++) {
            float scale = by__coded_scale(&codes.coded, i / 100, i % 100);
            float off = fabsf(by__coded_at(&codes.coded, i / 100, i % 100) - weight[i]);
            /* A weight of the other sign than the largest one may be clipped: 7 is the last code.
             */
            assert_true(rule == 1 || off <= fabsf(scale) * 1.001f);
            errors[rule] += (double)off * (double)off;
        }
        by__codes_close(&codes);
    }
    assert_true(errors[1] < errors[0]);
}

static void directories_are_whole_checkpoints(void **state)
{
    by_error error = {0};
    by_checkpoint *checkpoint;
    const char *text;
    fixture f;
    (void)state;
    open_fixture(&f, llama, BY_ARRAY_LENGTH(llama));
    compress(&f, "int4", NULL, 0);
    check(by_checkpoint_open(&checkpoint, f.out, true, &error), &error);
    check(by_checkpoint_value_string(checkpoint, "compress.method", &text, &error), &error);
    assert_string_equal(text, "int4");
    check(by_checkpoint_value_string(checkpoint, "compress.source", &text, &error), &error);
    assert_string_equal(text, f.directory);
    assert_true(by_weights_in_codes(by_checkpoint_model(checkpoint)));
    by_checkpoint_close(&checkpoint);
    close_fixture(&f);
}

static bool stop_now(void *user)
{
    return ++*(int *)user > 2;
}

static void what_fails_leaves_nothing(void **state)
{
    static const char *const wrong[] = {"group=48", "grou=64", "group", "scale=best"};
    by_error error = {0};
    fixture f;
    int asked = 0;
    size_t before;
    size_t after;
    char **names;
    (void)state;
    open_fixture(&f, gpt2, BY_ARRAY_LENGTH(gpt2));
    check(by__list_dir(&names, &before, f.directory, &error), &error);
    by__names_free(names, before);
    by_compress_options options = {.method = "int4", .setting_count = 1};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        options.settings = &wrong[i];
        assert_int_equal(by_compress(NULL, f.out, f.model, &options, &error), BY_EARG);
    }
    options = (by_compress_options){.method = "int5"};
    assert_int_equal(by_compress(NULL, f.out, f.model, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "int4"));
    options = (by_compress_options){.method = "int4", .stop = stop_now, .user = &asked};
    assert_int_equal(by_compress(NULL, f.out, f.model, &options, &error), BY_ESTOPPED);
    options = (by_compress_options){.method = "int4"};
    assert_int_equal(by_compress(NULL, f.directory, f.model, &options, &error), BY_EARG);
    check(by__list_dir(&names, &after, f.directory, &error), &error);
    by__names_free(names, after);
    assert_int_equal(after, before);
    close_fixture(&f);
}

/* Every number of e4m3 is read as the standard (OCP, 2023) has it and found again; what is between
 * two becomes the nearer one. */
static void numbers_of_8_bits(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        float value = by__f8_to_f32((uint8_t)code);
        if ((code & 0x7f) == 0x7f) {
            assert_true(isnan(value));
            continue;
        }
        double size = (code & 0x78) == 0
                          ? (code & 7) / 512.0
                          : (1.0 + (code & 7) / 8.0) * pow(2.0, (code >> 3 & 15) - 7);
        assert_true((double)value == (code >= 128 ? -size : size));
        assert_int_equal(by__f32_to_f8(value), code);
        if ((code & 0x7f) > 0 && (code & 0x7f) < 0x7e) {
            float next = by__f8_to_f32((uint8_t)(code + 1));
            assert_int_equal(by__f32_to_f8(value + 0.4f * (next - value)), code);
            assert_int_equal(by__f32_to_f8(value + 0.6f * (next - value)), code + 1);
        }
    }
    assert_int_equal(by__f32_to_f8(1e9f), 0x7e);
    assert_int_equal(by__f32_to_f8(-INFINITY), 0xfe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_8_bits_are_multiplied_as_they_are),
        cmocka_unit_test(codes_of_4_bits_are_not_rounded_again),
        cmocka_unit_test(rounding_is_to_nearest),
        cmocka_unit_test(directories_are_whole_checkpoints),
        cmocka_unit_test(what_fails_leaves_nothing),
        cmocka_unit_test(numbers_of_8_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
