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
#include <jansson.h>

#include "banyan/compress.h"
#include "banyan/ops.h"
#include "banyan/passes.h"
#include "checkpoint/storage.h"
#include "compress/compress.h"
#include "compress_fixture.h"
#include "infer/infer.h"
#include "late_device.h"
#include "runner.h"
#include "tiny_model.h"

static void compress(const fixture *f, const char *method, const char *const *settings,
                     size_t count)
{
    by_error error = {0};
    by_compressed made;
    const by_compress_options options = {
        .method = method, .settings = settings, .setting_count = count, .threads = 2};
    check_ok(by_compress(&made, f->out, f->model, &options, &error), &error);
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
    check_ok(by_weights_open(&weights, directory, &error), &error);
    check_ok(by_logits_open(&logits, f->config, weights, 1, TIME, precision, 2, &error), &error);
    check_ok(by_logits_run(logits, tokens, &values, &error), &error);
    memcpy(copy, values, TIME * VOCAB * sizeof *copy);
    by_logits_close(&logits);
    by_weights_close(&weights);
    return copy;
}

static void compare_codes(const char *method, const char *const *settings, size_t count)
{
    fixture f;
    open_fixture(&f, settings, count);
    compress(&f, method, NULL, 0);
    float *made = logits_of(&f, f.out, NULL);
    float *same = logits_of(&f, f.directory, method);
    /* The codes are those that are found when the weights are packed. */
    assert_memory_equal(made, same, TIME * VOCAB * sizeof *made);
    free(made);
    free(same);
    close_fixture(&f);
}

static void codes_of_8_bits_are_multiplied_as_they_are(void **state)
{
    (void)state;
    compare_codes("int8", gpt2, BY_ARRAY_LENGTH(gpt2));
    compare_codes("int8", llama, BY_ARRAY_LENGTH(llama));
    compare_codes("w8a8", gpt2, BY_ARRAY_LENGTH(gpt2));
    compare_codes("w8a8", llama, BY_ARRAY_LENGTH(llama));
    compare_codes("fp8", gpt2, BY_ARRAY_LENGTH(gpt2));
    compare_codes("fp8", llama, BY_ARRAY_LENGTH(llama));
    compare_codes("int8", mixtral, BY_ARRAY_LENGTH(mixtral));
    compare_codes("fp8", mixtral, BY_ARRAY_LENGTH(mixtral));
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
        check_ok(by_weights_open(&weights, f.out, &error), &error);
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
        check_ok(by__pack_coded(packed, &packing, 0, coded, 1, &error), &error);
        by_tensor_view view;
        check_ok(by__weights_describe(weights, "h.0.mlp.c_proj.weight", &view, &error), &error);
        by_tensor_slice whole = by_tensor_whole(&view);
        check_ok(by_weights_read_f32(weights, view.name, &whole, read,
                                     (size_t)(coded->n * coded->k), &error),
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
        by__compress_codes codes;
        check_ok(by__compress_codes_open(&codes, BY__CODE_INT4, 2, 100, 32, &error), &error);
        assert_int_equal(codes.coded.scale_row, 4);
        by__compress_codes_round(&codes, weight, (by__compress_scale_rule)rule, 1);
        for (int i = 0; i < 200; i++) {
            float scale = by__coded_scale(&codes.coded, i / 100, i % 100);
            float off = fabsf(by__coded_at(&codes.coded, i / 100, i % 100) - weight[i]);
            /* A weight of the other sign than the largest one may be clipped: 7 is the last code.
             */
            assert_true(rule == 1 || off <= fabsf(scale) * 1.001f);
            errors[rule] += (double)off * (double)off;
        }
        by__compress_codes_close(&codes);
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
    check_ok(by_checkpoint_open(&checkpoint, f.out, true, &error), &error);
    check_ok(by_checkpoint_value_string(checkpoint, "compress.method", &text, &error), &error);
    assert_string_equal(text, "int4");
    check_ok(by_checkpoint_value_string(checkpoint, "compress.source", &text, &error), &error);
    assert_string_equal(text, f.directory);
    assert_true(by_weights_in_codes(by_checkpoint_model(checkpoint)));
    by_checkpoint_close(&checkpoint);
    close_fixture(&f);
}

static void check_no_codes(const char *directory)
{
    by_error error = {0};
    by_weights *weights;
    check_ok(by_weights_open(&weights, directory, &error), &error);
    assert_false(by_weights_in_codes(weights));
    assert_null(strstr(by_weights_config(weights), "quantization_config"));
    by_weights_close(&weights);
}

/* compressed-tensors looks for the format beside the bits of a group, and for a head that is the
 * token embedding under a name of its own. */
static void a_head_without_codes_is_named_twice(void **state)
{
    static const char *const settings[] = {"head=16"};
    by_error error = {0};
    by_weights *weights;
    fixture f;
    (void)state;
    open_fixture(&f, gpt2, BY_ARRAY_LENGTH(gpt2));
    compress(&f, "int8", settings, 1);
    check_ok(by_weights_open(&weights, f.out, &error), &error);
    json_t *config = json_loads(by_weights_config(weights), 0, NULL);
    const json_t *made = json_object_get(config, "quantization_config");
    const json_t *ignored = json_object_get(made, "ignore");
    const json_t *group = json_object_get(json_object_get(made, "config_groups"), "group_0");
    assert_int_equal(json_array_size(ignored), 2);
    assert_string_equal(json_string_value(json_array_get(ignored, 0)), "wte");
    assert_string_equal(json_string_value(json_array_get(ignored, 1)), "lm_head");
    assert_string_equal(json_string_value(json_object_get(group, "format")), "int-quantized");
    json_decref(config);
    by_weights_close(&weights);
    close_fixture(&f);
}

/* Each expert is a layer of its own, as in other programs. */
static void experts_are_layers(void **state)
{
    by_error error = {0};
    by_weights *weights;
    fixture f;
    (void)state;
    open_fixture(&f, mixtral, BY_ARRAY_LENGTH(mixtral));
    compress(&f, "int8", NULL, 0);
    check_ok(by_weights_open(&weights, f.out, &error), &error);
    json_t *config = json_loads(by_weights_config(weights), 0, NULL);
    const json_t *made = json_object_get(config, "quantization_config");
    assert_int_equal(json_array_size(json_object_get(made, "ignore")), 0);
    for (int expert = 0; expert < EXPERTS; expert++) {
        char name[128];
        (void)snprintf(name, sizeof name, "model.layers.0.block_sparse_moe.experts.%d.w2.weight",
                       expert);
        const by__coded *coded = by__weights_coded(weights, name);
        assert_non_null(coded);
        assert_true(coded->n == 96 && coded->k == 88);
    }
    json_decref(config);
    by_weights_close(&weights);
    close_fixture(&f);
}

/* Of experts in codes and one without, none loses what its file has: they become bf16. */
static void an_expert_without_codes_keeps_its_numbers(void **state)
{
    by_error error = {0};
    fixture f;
    by__compress_state c = {0};
    by__infer_forward forward = {0};
    by__infer_forward_options options;
    by_model model;
    by__exec_program_row *row;
    by_weights *weights;
    const by_compress_options int8 = {.method = "int8", .threads = 2};
    const by_model_request request = {.mode = BY_MODEL_LOGITS, .batch = 1, .time = TIME};
    (void)state;
    open_fixture(&f, mixtral, BY_ARRAY_LENGTH(mixtral));
    check_ok(by__compress_job_open(&c, f.out, f.model, &int8, &error), &error);
    for (size_t i = 0; i < c.linear_count; i++) {
        if (strstr(c.linears[i].name, "experts.1.w1.") == NULL) {
            check_ok(by__compress_round_layer(&c, &c.linears[i], BY__CODE_INT8, 0,
                                              BY__SCALE_LARGEST, &error),
                     &error);
        }
    }
    check_ok(by__compress_codes_finish(&c, BY__CODE_INT8, 0, false, &error), &error);
    check_ok(by__compress_finish(&c, &(by_compressed){0}, &error), &error);
    by__compress_job_close(&c);
    check_ok(by_weights_open(&weights, f.out, &error), &error);
    check_ok(by__infer_forward_options_read(&options, f.config, weights, NULL, 1, &error), &error);
    check_ok(by__infer_forward_open(&forward, &options, &error), &error);
    check_ok(by__infer_forward_add(&forward, "logits", &request, &model, &row, &error), &error);
    const by_graph *graph = row->graph;
    for (int w = 1; w <= 3; w++) {
        char name[128];
        (void)snprintf(name, sizeof name, "model.layers.0.block_sparse_moe.experts.*.w%d.weight",
                       w);
        by_value value = by_graph_find(graph, name);
        assert_true(value != BY_NONE && graph->values[value].packing.stack == EXPERTS);
        assert_int_equal(graph->values[value].packing.kind,
                         w == 1 ? BY_PACKING_PACKED : BY_PACKING_INT8);
    }
    by__infer_forward_close(&forward);
    by_weights_close(&weights);
    float *logits = logits_of(&f, f.out, NULL);
    assert_true(isfinite(logits[0]));
    free(logits);
    close_fixture(&f);
}

/* What is made of codes and has none says so. */
static void what_was_codes_is_numbers(void **state)
{
    by_error error = {0};
    by_pretrained *made;
    fixture f;
    (void)state;
    open_fixture(&f, gpt2, BY_ARRAY_LENGTH(gpt2));
    compress(&f, "int8", NULL, 0);
    char *merged = by__path_join(f.directory, "merged");
    assert_non_null(merged);
    check_ok(by_checkpoint_merge(f.out, merged, 0, false, NULL, &error), &error);
    check_no_codes(merged);
    float *codes = logits_of(&f, f.out, "f32");
    float *numbers = logits_of(&f, merged, "f32");
    assert_memory_equal(codes, numbers, TIME * VOCAB * sizeof *codes);
    check_ok(by_pretrained_open(&made, f.out, false, &error), &error);
    assert_string_equal(by_infer_precision_of(f.config, by_pretrained_weights(made)), "int8");
    assert_string_equal(by_infer_precision_of(f.config, NULL), "f32");
    const by_compress_options again = {.method = "int4", .threads = 2};
    assert_int_equal(by_compress(NULL, merged, made, &again, &error), BY_EARG);
    assert_non_null(strstr(error.message, "already quantized (int8)"));
    assert_non_null(strstr(error.message, "compress the original model"));
    by_pretrained_close(&made);
    free(codes);
    free(numbers);
    free(merged);
    close_fixture(&f);
}

/* A value that is not a number, as one such weight makes of its row in GPTQ, has a code of 4 bits
 * like any other. */
static void values_that_are_no_numbers(void **state)
{
    by_error error = {0};
    by__compress_codes codes;
    (void)state;
    check_ok(by__compress_codes_open(&codes, BY__CODE_INT4, 1, 32, 32, &error), &error);
    (void)by__compress_codes_set(&codes, 0, 1, NAN, 0.5f);
    assert_int_equal(by__coded_code(&codes.coded, 0, 1), 0);
    by__compress_codes_close(&codes);
}

static void damaged_weights_are_refused(void **state)
{
    static const char *const methods[] = {"int8", "w8a8", "int4", "fp8", "magnitude"};
    static const char name[] = "model.layers.1.mlp.up_proj.weight";
    by_error error = {0};
    fixture f;
    (void)state;
    open_fixture(&f, llama, BY_ARRAY_LENGTH(llama));
    by_pretrained_close(&f.model);
    tiny_model_set(f.directory, name, 70, NAN);
    check_ok(by_pretrained_open(&f.model, f.directory, false, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(methods); i++) {
        const by_compress_options options = {.method = methods[i], .threads = 2};
        assert_int_equal(by_compress(NULL, f.out, f.model, &options, &error), BY_ESTATE);
        assert_non_null(strstr(error.message, name));
        assert_false(by__path_exists(f.out));
    }
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
    check_ok(by__list_dir(&names, &before, f.directory, &error), &error);
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
    check_ok(by__list_dir(&names, &after, f.directory, &error), &error);
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

/* What a weight is while it is trained for codes is what its codes stand for, of either order; the
 * gradient goes straight through. */
static void weights_are_trained_as_their_codes(void **state)
{
    enum { N = 20, K = 100 };
    (void)state;
    for (int form = 0; form < 4; form++) {
        by_error error = {0};
        by__compress_codes codes;
        bool out_in = form % 2 == 1;
        bool wide = form / 2 == 1;
        float weight[N * K];
        float values[N * K];
        by_graph *graph = open_graph();
        const by_packing packing = {.kind = wide ? BY_PACKING_INT8 : BY_PACKING_INT4,
                                    .dtype = BY_F32,
                                    .n = N,
                                    .k = K,
                                    .group = wide ? 0 : 32};
        by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, K));
        by_value w = by_graph_parameter(graph, "w", "", out_in ? BY_SHAPE(N, K) : BY_SHAPE(K, N),
                                        (by_init){0});
        by_value q = by_fake_quantize(graph, w, &packing, out_in);
        by_value y = by_linear(graph, x, q, BY_NONE, out_in);
        by_value loss =
            by_sum(graph, by_reshape(graph, y, BY_SHAPE(3 * N)), &(const int){0}, 1, true);
        by_graph_output(graph, q, "q");
        by_graph_output(graph, loss, "loss");
        by_value seed = by_fill(graph, BY_F32, BY_SHAPE(1), 1.0f);
        check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
        runner r;
        runner_open(&r, graph, 2);
        float *data = runner_data(&r, "w");
        float *inputs = runner_data(&r, "x");
        for (int i = 0; i < N * K; i++) {
            weight[i] = sinf(0.37f * (float)(i * i % 1009)) * 0.5f;
            data[out_in ? i : i % K * N + i / K] = weight[i];
        }
        for (int i = 0; i < 3 * K; i++) {
            inputs[i] = cosf((float)i);
        }
        runner_run(&r);
        check_ok(by__compress_codes_open(&codes, wide ? BY__CODE_INT8 : BY__CODE_INT4, N, K,
                                         wide ? 0 : 32, &error),
                 &error);
        by__compress_codes_round(&codes, weight, BY__SCALE_LARGEST, 1);
        by__compress_codes_read(&codes, values, 1);
        const float *made = runner_data(&r, "q");
        const float *gradient = runner_data(&r, "grad.w");
        for (int i = 0; i < N * K; i++) {
            int at = out_in ? i : i % K * N + i / K;
            float sum = inputs[i % K] + inputs[K + i % K] + inputs[2 * K + i % K];
            assert_true(made[at] == values[i]);
            assert_true(fabsf(gradient[at] - sum) < 1e-5f);
        }
        by__compress_codes_close(&codes);
        runner_close(&r);
        by_graph_close(&graph);
    }
}

/* Each matrix of a stack is rounded by itself, as the layer that it is. */
static void stacks_are_trained_as_their_codes(void **state)
{
    enum { MATRICES = 3, N = 5, K = 64, ROWS = 6 };
    static const int32_t ranges[2 * MATRICES] = {0, 1, 1, 1, 1, ROWS};
    const by_fake_quantize_options options = {.kind = BY_PACKING_INT4, .group = 32};
    by_error error = {0};
    runner r;
    float values[MATRICES * N * K];
    (void)state;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(ROWS, K));
    by_value range = by_graph_input(graph, "range", BY_I32, BY_SHAPE(MATRICES, 2));
    by_value w = by_graph_parameter(graph, "w", "", BY_SHAPE(MATRICES, N, K), (by_init){0});
    by_graph_set_block(graph, 0);
    by_graph_output(graph, by_grouped_matmul(graph, x, w, range, true, 1), "y");
    check_ok(by_pass_fake_quantize(graph, &options, &error), &error);
    runner_open(&r, graph, 2);
    float *weight = runner_data(&r, "w");
    float *inputs = runner_data(&r, "x");
    for (int i = 0; i < MATRICES * N * K; i++) {
        weight[i] = sinf(0.37f * (float)(i * i % 1009)) * 0.5f;
    }
    for (int i = 0; i < ROWS * K; i++) {
        inputs[i] = cosf((float)i);
    }
    memcpy(runner_data(&r, "range"), ranges, sizeof ranges);
    runner_run(&r);
    for (int m = 0; m < MATRICES; m++) {
        by__compress_codes codes;
        check_ok(by__compress_codes_open(&codes, BY__CODE_INT4, N, K, 32, &error), &error);
        by__compress_codes_round(&codes, weight + m * N * K, BY__SCALE_LARGEST, 1);
        by__compress_codes_read(&codes, values + m * N * K, 1);
        by__compress_codes_close(&codes);
    }
    const float *y = runner_data(&r, "y");
    for (int i = 0; i < ROWS * N; i++) {
        int m = i / N == 0 ? 0 : 2;
        double rounded = 0.0;
        double plain = 0.0;
        for (int k = 0; k < K; k++) {
            int at = (m * N + i % N) * K + k;
            rounded += (double)inputs[i / N * K + k] * (double)values[at];
            plain += (double)inputs[i / N * K + k] * (double)weight[at];
        }
        assert_true(fabs((double)y[i] - rounded) < 1e-5);
        assert_true(fabs(rounded - plain) > 1e-4);
    }
    runner_close(&r);
    by_graph_close(&graph);
}

/* ---- what layers read ---- */

typedef struct reading {
    const fixture *f;
    const int32_t *tokens;
    size_t layers;
    double first; /* H of block 1's attention, element 0 */
    bool zero;    /* the layers of block 0 become zeros */
} reading;

static float *read_tensor(const by_weights *weights, const char *name, size_t count)
{
    by_error error = {0};
    by_tensor_view view;
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    check_ok(by_weights_tensor(weights, name, &view, &error), &error);
    check_ok(by_tensor_read_f32(&view, values, count, &error), &error);
    return values;
}

/* H of what block 0's attention reads: the norm of embeddings, computed here in double. */
static void check_first(const reading *r, const by__compress_calibrated *what)
{
    const by_weights *weights = by_pretrained_weights(r->f->model);
    float *wte = read_tensor(weights, "wte.weight", VOCAB * 96);
    float *wpe = read_tensor(weights, "wpe.weight", TIME * 96);
    double *h = calloc(96 * 96, sizeof *h);
    assert_non_null(h);
    for (int t = 0; t < 4 * TIME; t++) {
        double x[96];
        double mean = 0.0;
        double square = 0.0;
        for (int i = 0; i < 96; i++) {
            x[i] = (double)wte[r->tokens[t] * 96 + i] + (double)wpe[t % TIME * 96 + i];
            mean += x[i] / 96;
        }
        for (int i = 0; i < 96; i++) {
            square += (x[i] - mean) * (x[i] - mean) / 96;
        }
        for (int i = 0; i < 96; i++) {
            x[i] = (x[i] - mean) / sqrt(square + 1e-5);
        }
        for (int i = 0; i < 96; i++) {
            for (int j = 0; j < 96; j++) {
                h[i * 96 + j] += x[i] * x[j];
            }
        }
    }
    for (int i = 0; i < 96 * 96; i++) {
        assert_true(fabs(h[i] - what->hessian[i]) < 1e-3);
    }
    free(h);
    free(wte);
    free(wpe);
}

static by_status look(by__compress_state *c, by__compress_calibrated *what, void *user,
                      by_error *error)
{
    reading *r = user;
    (void)c;
    (void)error;
    r->layers += what->count;
    assert_int_equal(what->rows, 4 * TIME);
    if (strcmp(what->linears[0]->name, "h.0.attn.c_attn.weight") == 0) {
        check_first(r, what);
        assert_int_equal(what->gain_count, 2);
        assert_string_equal(what->gains[0], "h.0.ln_1.weight");
    }
    if (strcmp(what->linears[0]->name, "h.1.attn.c_attn.weight") == 0) {
        r->first = what->hessian[0];
    }
    if (r->zero && what->block == 0) {
        memset(what->weights[0], 0, (size_t)(what->linears[0]->n * what->k) * sizeof(float));
    }
    return BY_OK;
}

/* Two batches, whose data is freed with free(). */
static by__compress_calibration_tokens make_tokens(void)
{
    by_error error = {0};
    int32_t *tokens;
    check_ok(by__alloc_aligned((void **)&tokens, 4 * TIME * sizeof *tokens, "tokens", &error),
             &error);
    for (int i = 0; i < 4 * TIME; i++) {
        tokens[i] = i * i % VOCAB;
    }
    return (by__compress_calibration_tokens){.batch = 2,
                                             .time = TIME,
                                             .rows = 2 * TIME,
                                             .batches = 2,
                                             .bytes = 2 * TIME * sizeof *tokens,
                                             .stride = 2 * TIME * sizeof *tokens,
                                             .data = (uint8_t *)tokens};
}

static void layers_read_what_the_blocks_before_make(void **state)
{
    by_error error = {0};
    fixture f;
    double first[2];
    (void)state;
    open_fixture(&f, gpt2, BY_ARRAY_LENGTH(gpt2));
    const by__compress_calibration_tokens data = make_tokens();
    for (int zero = 0; zero < 2; zero++) {
        const by_compress_options options = {.method = "gptq", .threads = 2};
        by__compress_state c = {0};
        reading r = {
            .f = &f, .tokens = (const int32_t *)(const void *)data.data, .zero = zero == 1};
        check_ok(by__compress_job_open(&c, f.out, f.model, &options, &error), &error);
        check_ok(by__compress_calibrate_on(&c, &data, look, &r, &error), &error);
        assert_int_equal(r.layers, 8);
        first[zero] = r.first;
        by__compress_job_close(&c);
    }
    assert_true(first[0] != first[1]); /* block 1 saw what was made of block 0 */
    free(data.data);
    close_fixture(&f);
}

/* Sums of H, of the router and of the experts, which read rows of the same value. */
typedef struct mixture {
    double router[96 * 96];
    double experts[96 * 96];
    double least; /* trace of an expert's H */
    double most;
    size_t layers;
} mixture;

static by_status look_at_experts(by__compress_state *c, by__compress_calibrated *what, void *user,
                                 by_error *error)
{
    mixture *m = user;
    const char *name = what->linears[0]->name;
    bool is_expert = strstr(name, ".w1.") != NULL || strstr(name, ".w3.") != NULL;
    (void)c;
    (void)error;
    m->layers += what->count;
    if (is_expert) { /* w1 and w3 of an expert read its rows, no norm makes them */
        double trace = 0.0;
        assert_int_equal(what->count, 2);
        assert_int_equal(what->gain_count, 0);
        assert_true(what->linears[0]->stacked && what->linears[0]->share == 2.0 / EXPERTS);
        for (int i = 0; i < 96; i++) {
            trace += what->hessian[i * 97];
        }
        m->least = m->least == 0.0 || trace < m->least ? trace : m->least;
        m->most = trace > m->most ? trace : m->most;
    }
    for (int i = 0; i < 96 * 96 && what->k == 96; i++) {
        m->experts[i] += is_expert ? what->hessian[i] : 0.0;
        m->router[i] += strstr(name, "moe.gate") != NULL ? what->hessian[i] : 0.0;
    }
    return BY_OK;
}

/* Every token goes to two experts, so their H are twice that of what the router reads. */
static void experts_read_their_rows(void **state)
{
    by_error error = {0};
    fixture f;
    const by_compress_options options = {.method = "gptq", .threads = 2};
    by__compress_state c = {0};
    mixture *m = calloc(1, sizeof *m);
    (void)state;
    assert_non_null(m);
    open_fixture(&f, mixtral, BY_ARRAY_LENGTH(mixtral));
    const by__compress_calibration_tokens data = make_tokens();
    check_ok(by__compress_job_open(&c, f.out, f.model, &options, &error), &error);
    check_ok(by__compress_calibrate_on(&c, &data, look_at_experts, m, &error), &error);
    assert_int_equal(m->layers, 4 + 1 + 3 * EXPERTS);
    for (int i = 0; i < 96 * 96; i++) {
        assert_true(fabs(m->experts[i] - 2.0 * m->router[i]) < 1e-3);
    }
    assert_true(m->router[0] > 0.0 && m->least < m->most);
    by__compress_job_close(&c);
    free(data.data);
    free(m);
    close_fixture(&f);
}

/* Adds all of H up. */
static by_status sum_up(by__compress_state *c, by__compress_calibrated *what, void *user,
                        by_error *error)
{
    double *sums = user;
    (void)c;
    (void)error;
    for (int64_t i = 0; i < what->k * what->k; i++) {
        sums[0] += what->hessian[i] * (double)(i % 97);
    }
    for (size_t k = 0; k < what->count; k++) {
        what->weights[k][0] += 0.25f; /* later blocks must see it */
    }
    return BY_OK;
}

/* Calibration on a device whose memory the host cannot read sees what it sees on the CPU. */
static void calibration_runs_on_another_device(void **state)
{
    by_error error = {0};
    fixture f;
    double want = 0.0;
    (void)state;
    open_fixture(&f, gpt2, BY_ARRAY_LENGTH(gpt2));
    const by__compress_calibration_tokens data = make_tokens();
    for (int seed = -1; seed < 8; seed++) {
        by_device *device = NULL;
        if (seed >= 0) {
            check_ok(late_device_open(&device, (uint64_t)seed, 2, &error), &error);
        }
        const by_compress_options options = {.method = "gptq", .threads = 2, .device = device};
        by__compress_state c = {0};
        double sums[1] = {0.0};
        check_ok(by__compress_job_open(&c, f.out, f.model, &options, &error), &error);
        check_ok(by__compress_calibrate_on(&c, &data, sum_up, sums, &error), &error);
        by__compress_job_close(&c);
        want = seed < 0 ? sums[0] : want;
        assert_true(sums[0] == want && want > 0.0);
        assert_string_equal(device == NULL ? "" : late_device_fault(device), "");
        by_device_close(&device);
    }
    free(data.data);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calibration_runs_on_another_device),
        cmocka_unit_test(codes_of_8_bits_are_multiplied_as_they_are),
        cmocka_unit_test(codes_of_4_bits_are_not_rounded_again),
        cmocka_unit_test(rounding_is_to_nearest),
        cmocka_unit_test(directories_are_whole_checkpoints),
        cmocka_unit_test(a_head_without_codes_is_named_twice),
        cmocka_unit_test(experts_are_layers),
        cmocka_unit_test(an_expert_without_codes_keeps_its_numbers),
        cmocka_unit_test(what_was_codes_is_numbers),
        cmocka_unit_test(values_that_are_no_numbers),
        cmocka_unit_test(damaged_weights_are_refused),
        cmocka_unit_test(what_fails_leaves_nothing),
        cmocka_unit_test(numbers_of_8_bits),
        cmocka_unit_test(weights_are_trained_as_their_codes),
        cmocka_unit_test(stacks_are_trained_as_their_codes),
        cmocka_unit_test(layers_read_what_the_blocks_before_make),
        cmocka_unit_test(experts_read_their_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
