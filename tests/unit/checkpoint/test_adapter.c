/* Adapters on disk: what is read of weights that have one, in any slice and type; what merging
 * writes; the file that a checkpoint has for PEFT; and what is refused, by its name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/weights/adapter.h"
#include "runner.h"
#include "temporary.h"

enum { IN = 37, OUT = 301, RANK = 3, COUNT = IN * OUT };

/* A model of one layer and a norm, and an adapter of it. */
typedef struct fixture {
    char *root;
    char *model;
    char *adapter;
    float *w;    /* [IN, OUT] or [OUT, IN], rounded to the type that is in the file */
    float *want; /* w + scale B A */
    float a[RANK * IN];
    float b[OUT * RANK];
    float norm[IN];
    by_dtype dtype;
    bool in_out;
} fixture;

#define ALPHA 4.5
#define LAYER "h.0.attn.c_attn"

static float number(uint64_t stream, size_t i)
{
    return (float)random_unit(9, stream, i);
}

static void write_text(const char *directory, const char *name, const char *text)
{
    assert_int_equal(by__checkpoint_sink_put(directory, name, text, strlen(text), NULL, NULL),
                     BY_OK);
}

static void write_adapter(const fixture *f, int64_t rank, const char *b_name)
{
    by_error error = {0};
    char *text;
    const by_adapter_info info = {.rank = rank, .alpha = ALPHA, .in_out = f->in_out};
    char *path = by__path_join(f->adapter, BY_ADAPTER_WEIGHTS);
    const by_tensor_view tensors[] = {
        {"base_model.model.transformer." LAYER ".lora_A.weight", BY_F32, 2, {RANK, IN}, f->a},
        {b_name, BY_F32, 2, {OUT, RANK}, f->b},
        {"base_model.model.transformer.ln_f.weight", BY_F32, 1, {IN}, f->norm}};
    check_ok(by_tensors_write(path, tensors, 3, &error), &error);
    check_ok(by_adapter_config_json(&text, &info, &error), &error);
    write_text(f->adapter, BY_ADAPTER_CONFIG, text);
    free(text);
    free(path);
}

#define B_NAME "base_model.model.transformer." LAYER ".lora_B.weight"

static void make(fixture *f, by_dtype dtype, bool in_out)
{
    by_error error = {0};
    *f = (fixture){.dtype = dtype, .in_out = in_out, .root = temporary_make()};
    f->model = by__path_join(f->root, "model");
    f->adapter = by__path_join(f->root, "adapter");
    f->w = malloc(COUNT * sizeof *f->w);
    f->want = malloc(COUNT * sizeof *f->want);
    uint8_t *raw = malloc(COUNT * sizeof(float));
    assert_true(f->w != NULL && f->want != NULL && raw != NULL);
    for (size_t i = 0; i < RANK * IN; i++) {
        f->a[i] = number(1, i);
    }
    for (size_t i = 0; i < OUT * RANK; i++) {
        f->b[i] = number(2, i);
    }
    for (size_t i = 0; i < IN; i++) {
        f->norm[i] = number(3, i);
    }
    for (size_t i = 0; i < COUNT; i++) {
        set_element(raw, dtype, i, (double)number(4, i));
        f->w[i] = (float)get_element(raw, dtype, i);
        size_t in = in_out ? i / OUT : i % IN;
        size_t out = in_out ? i % OUT : i / IN;
        double sum = 0.0;
        for (size_t k = 0; k < RANK; k++) {
            sum += (double)f->b[out * RANK + k] * (double)f->a[k * IN + in];
        }
        f->want[i] = (float)((double)f->w[i] + ALPHA / RANK * sum);
    }
    const float old[IN] = {0.0f};
    by_tensor_view tensors[] = {{LAYER ".weight", dtype, 2, {OUT, IN}, raw},
                                {"ln_f.weight", BY_F32, 1, {IN}, old},
                                {LAYER ".lora_A.weight", BY_F32, 2, {RANK, IN}, f->b}};
    if (in_out) {
        tensors[0].shape[0] = IN;
        tensors[0].shape[1] = OUT;
    }
    check_ok(by__make_dirs(f->model, &error), &error);
    check_ok(by__make_dirs(f->adapter, &error), &error);
    check_ok(by_weights_write(f->model, tensors, 3, 0, &error), &error);
    write_text(f->model, "config.json", "{}");
    write_text(f->model, "tokenizer.json", "{\"a\": 1}");
    write_adapter(f, RANK, B_NAME);
    free(raw);
}

static void drop(fixture *f)
{
    temporary_remove(f->root);
    free(f->model);
    free(f->adapter);
    free(f->w);
    free(f->want);
}

static by_weights *open_adapted(const fixture *f, bool same_types)
{
    by_error error = {0};
    by_weights *weights;
    by_adapter *adapter;
    check_ok(by_weights_open(&weights, f->model, &error), &error);
    check_ok(by_adapter_open(&adapter, f->adapter, &error), &error);
    assert_int_equal(by_adapter_layers(adapter), 1);
    assert_string_equal(by_adapter_layer(adapter, 0), "transformer." LAYER);
    check_ok(by_weights_adapt(weights, &adapter, same_types, &error), &error);
    return weights;
}

/* Elements of `dtype` are `want`, rounded once. */
static void check_values(const void *have, by_dtype dtype, const float *want, size_t count)
{
    double step = dtype == BY_F32 ? 0x1p-22 : dtype == BY_F16 ? 0x1p-10 : 0x1p-7;
    for (size_t i = 0; i < count; i++) {
        double off = fabs(get_element(have, dtype, i) - (double)want[i]);
        assert_true(off <= step * fmax(1.0, fabs((double)want[i])) * 0.51 + 1e-6);
    }
}

static void check_reads(by_dtype dtype, bool in_out, bool same_types)
{
    by_error error = {0};
    fixture f;
    by_tensor_view view;
    uint8_t *whole = malloc(COUNT * sizeof(float));
    uint8_t *part = malloc(COUNT * sizeof(float));
    float norm[IN];
    assert_true(whole != NULL && part != NULL);
    make(&f, dtype, in_out);
    by_weights *weights = open_adapted(&f, same_types);
    by_dtype type = same_types ? dtype : BY_F32;
    size_t size = by_dtype_size(type);
    assert_int_equal(by_weights_count(weights), 2); /* without the half of an adapter */
    check_ok(by__weights_describe(weights, LAYER ".weight", &view, &error), &error);
    assert_true(view.dtype == type && view.data == NULL);
    by_tensor_slice all = by_tensor_whole(&view);
    check_ok(by_weights_read(weights, view.name, &all, whole, COUNT, &error), &error);
    check_values(whole, type, f.want, COUNT);
    for (int64_t first = 0; first < COUNT; first += 701) { /* ranges across rows: the same bits */
        int64_t n = COUNT - first < 701 ? COUNT - first : 701;
        const by_tensor_slice slice = {.flat = true, .offset = {first}, .shape = {n}};
        check_ok(by_weights_read(weights, view.name, &slice, part, (size_t)n, &error), &error);
        assert_memory_equal(part, whole + (size_t)first * size, (size_t)n * size);
    }
    const by_tensor_slice box = {.offset = {5, 11}, .shape = {7, 13}};
    check_ok(by_weights_read(weights, view.name, &box, part, 91, &error), &error);
    for (int64_t i = 0; i < 7; i++) {
        assert_memory_equal(part + (size_t)(i * 13) * size,
                            whole + (size_t)((i + 5) * view.shape[1] + 11) * size, 13 * size);
    }
    const by_tensor_slice vector = {.offset = {0}, .shape = {IN}};
    check_ok(by_weights_read(weights, "ln_f.weight", &vector, norm, IN, &error), &error);
    assert_memory_equal(norm, f.norm, sizeof norm);
    check_error(by_weights_tensor(weights, LAYER ".weight", &view, &error), BY_ESTATE, &error,
                "computed with an adapter");
    by_adapter *again;
    check_ok(by_adapter_open(&again, f.adapter, &error), &error);
    check_error(by_weights_adapt(weights, &again, false, &error), BY_ESTATE, &error,
                "have an adapter already");
    assert_null(again);
    by_weights_close(&weights);
    drop(&f);
    free(whole);
    free(part);
}

static void test_reads(void **state)
{
    BY_UNUSED(state);
    check_reads(BY_F32, true, true);
    check_reads(BY_F32, false, false);
    check_reads(BY_BF16, false, true);
    check_reads(BY_BF16, true, false);
}

/* The merged model: the base's names, types and files, and nothing of the adapter. */
static void test_merge(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    fixture f;
    by_tensor_view view;
    by_weights *merged;
    char **names;
    size_t count;
    make(&f, BY_BF16, false);
    char *out = by__path_join(f.root, "merged");
    check_ok(by_checkpoint_merge(f.model, out, 0, false, f.adapter, &error), &error);
    check_ok(by_weights_open(&merged, out, &error), &error);
    assert_int_equal(by_weights_count(merged), 2);
    check_ok(by_weights_tensor(merged, LAYER ".weight", &view, &error), &error);
    assert_true(view.dtype == BY_BF16 && view.shape[0] == OUT);
    check_values(view.data, BY_BF16, f.want, COUNT);
    by_weights_close(&merged);
    check_ok(by__list_dir(&names, &count, out, &error), &error);
    assert_int_equal(count, 3); /* config.json, tokenizer.json, model.safetensors */
    by__names_free(names, count);
    free(out);
    drop(&f);
}

/* Sums that the type of a weight cannot hold, and what no model computes with, are not merged. */
static void test_merge_of_infinities(void **state)
{
    BY_UNUSED(state);
    static const struct {
        by_dtype dtype;
        float a; /* of the adapter */
    } cases[] = {{BY_BF16, 3e38f}, {BY_BF16, INFINITY}, {BY_F32, NAN}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        fixture f;
        make(&f, cases[i].dtype, false);
        f.a[5] = cases[i].a;
        write_adapter(&f, RANK, B_NAME);
        char *out = by__path_join(f.root, "merged");
        char **names;
        size_t count;
        by_status status = by_checkpoint_merge(f.model, out, 0, false, f.adapter, &error);
        check_error(status, BY_EFORMAT, &error,
                    "tensor '" LAYER ".weight' has values that are NaN");
        check_ok(by__list_dir(&names, &count, f.root, &error), &error);
        assert_int_equal(count, 2); /* the model and the adapter */
        by__names_free(names, count);
        free(out);
        drop(&f);
    }
}

/* A checkpoint has its trained tensors once more, under PEFT's names. */
static void test_trained_file(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    char *root = temporary_make();
    static const float values[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
    const by_tensor_view tensors[] = {{"h.c.lora_A.weight", BY_F32, 2, {1, 4}, values[0]},
                                      {"h.c.lora_B.weight", BY_F32, 2, {4, 1}, values[1]},
                                      {"h.c.weight", BY_F32, 2, {2, 2}, values[2]}};
    const bool frozen[] = {false, false, true};
    const by_checkpoint_file files[] = {
        {.name = "config.json", .data = "{}", .size = 2},
        {.name = BY_ADAPTER_WEIGHTS, .trained_under = "base_model.model."}};
    const by_checkpoint_layout layout = {.model = tensors, .model_count = 3, .frozen = frozen};
    by_checkpoint_writer *writer;
    check_ok(by_checkpoint_begin(&writer, root, 7, &layout, &error), &error);
    for (size_t i = 0; i < 3; i++) {
        by_tensor_slice whole = by_tensor_whole(&tensors[i]);
        check_ok(by_checkpoint_add(writer, i, &whole, tensors[i].data, &error), &error);
    }
    check_ok(by_checkpoint_commit(&writer, NULL, 0, files, 2, &error), &error);
    by_checkpoint *checkpoint;
    check_ok(by_checkpoint_open(&checkpoint, root, true, &error), &error);
    char *path = by__path_join(by_checkpoint_path(checkpoint), BY_ADAPTER_WEIGHTS);
    by_weights *weights;
    check_ok(by_weights_open(&weights, path, &error), &error);
    assert_int_equal(by_weights_count(weights), 2);
    for (size_t i = 0; i < 2; i++) {
        char name[64];
        by_tensor_view view;
        (void)snprintf(name, sizeof name, "base_model.model.%s", tensors[i].name);
        check_ok(by_weights_tensor(weights, name, &view, &error), &error);
        assert_true(view.rank == 2 && view.shape[0] == tensors[i].shape[0]);
        assert_memory_equal(view.data, values[i], sizeof values[i]);
    }
    by_weights_close(&weights);
    by_checkpoint_close(&checkpoint);
    free(path);
    temporary_remove(root);
}

/* ---- what is refused ---- */

static void refused(const fixture *f, const char *message)
{
    by_error error = {0};
    by_adapter *adapter = NULL;
    by_weights *weights = NULL;
    by_status status = by_adapter_open(&adapter, f->adapter, &error);
    if (status == BY_OK) {
        check_ok(by_weights_open(&weights, f->model, &error), &error);
        status = by_weights_adapt(weights, &adapter, true, &error);
    }
    check_error(status, BY_EFORMAT, &error, message);
    by_weights_close(&weights);
}

static void test_refusals(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *keys;
        const char *message;
    } configs[] = {
        {"\"use_dora\":true", "\"use_dora\" is set, a feature of PEFT that is not supported"},
        {"\"bias\":\"all\"", "\"bias\" is \"all\"; only \"none\""},
        {"\"rank_pattern\":{\"c_attn\":2}", "\"rank_pattern\" is set"},
        {"\"alpha_pattern\":{\"c_attn\":2}", "\"alpha_pattern\" is set"},
        {"\"init_lora_weights\":\"pissa\"", "\"init_lora_weights\" is \"pissa\""},
        {"\"trainable_token_indices\":[1]", "\"trainable_token_indices\" is set"},
        {"\"use_rslora\":1", "\"use_rslora\" is neither true nor false"},
        {"\"lora_dropout\":1.5", "\"lora_dropout\" is not in [0, 1)"},
    };
    fixture f;
    make(&f, BY_F32, true);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(configs); i++) {
        char text[256];
        (void)snprintf(text, sizeof text,
                       "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":4,"
                       "\"fan_in_fan_out\":true,%s}",
                       configs[i].keys);
        write_text(f.adapter, BY_ADAPTER_CONFIG, text);
        refused(&f, configs[i].message);
    }
    write_text(f.adapter, BY_ADAPTER_CONFIG, "{\"peft_type\":\"LORA\",\"r\":0,\"lora_alpha\":4}");
    refused(&f, "\"r\" is not a whole number from 1");
    write_text(f.adapter, BY_ADAPTER_CONFIG, "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":0}");
    refused(&f, "\"lora_alpha\" is not a number above 0");
    write_text(f.adapter, BY_ADAPTER_CONFIG, "{\"peft_type\":\"IA3\"}");
    refused(&f, "\"peft_type\" is \"IA3\"");
    write_adapter(&f, RANK + 1, B_NAME);
    refused(&f, "expected 4 rows and columns");
    write_adapter(&f, RANK, "base_model.model.transformer.other.lora_B.weight");
    refused(&f, "no tensor 'transformer." LAYER ".lora_B.weight'");
    write_adapter(&f, RANK, "base_model.model.transformer." LAYER ".lora_magnitude_vector");
    refused(&f, "belongs to a feature of PEFT that is not supported");
    f.in_out = false;
    write_adapter(&f, RANK, B_NAME);
    refused(&f, "is for a weight of 37 inputs and 301 outputs, [out, in]");
    drop(&f);
}

/* A square matrix does not show whether it is [in, out]: the type of the model says it. */
static void test_square_layers(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *type, *layer;
        bool in_out;
        const char *message; /* NULL: taken */
    } cases[] = {
        {"{\"model_type\": \"gpt2\"}", "h.0.attn.c_proj", true, NULL},
        {"{\"model_type\": \"gpt2\"}", "h.0.attn.c_proj", false, "is [in, out]: set it to true"},
        {"{\"model_type\": \"gpt2\"}", "h.0.other", true, "is [out, in]: set it to false"},
        {"{\"model_type\": \"llama\"}", "model.layers.0.self_attn.q_proj", false, NULL},
        {"{\"model_type\": \"llama\"}", "model.layers.0.self_attn.q_proj", true,
         "\"fan_in_fan_out\" is true in adapter_config.json, but "
         "'model.layers.0.self_attn.q_proj.weight' of the model is [out, in]: set it to false"},
        {"{}", "a.b", true, NULL},
    };
    static const float values[16] = {0.0f};
    by_error error = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        fixture f;
        char names[3][128];
        make(&f, BY_F32, cases[i].in_out);
        (void)snprintf(names[0], sizeof names[0], "base_model.model.%s.lora_A.weight",
                       cases[i].layer);
        (void)snprintf(names[1], sizeof names[1], "base_model.model.%s.lora_B.weight",
                       cases[i].layer);
        (void)snprintf(names[2], sizeof names[2], "%s.weight", cases[i].layer);
        const by_tensor_view halves[] = {{names[0], BY_F32, 2, {RANK, 4}, values},
                                         {names[1], BY_F32, 2, {4, RANK}, values}};
        const by_tensor_view base = {names[2], BY_F32, 2, {4, 4}, values};
        char *path = by__path_join(f.adapter, BY_ADAPTER_WEIGHTS);
        check_ok(by_tensors_write(path, halves, 2, &error), &error);
        check_ok(by_weights_write(f.model, &base, 1, 0, &error), &error);
        write_text(f.model, "config.json", cases[i].type);
        if (cases[i].message != NULL) {
            refused(&f, cases[i].message);
        } else {
            by_adapter *adapter;
            by_weights *weights;
            check_ok(by_weights_open(&weights, f.model, &error), &error);
            check_ok(by_adapter_open(&adapter, f.adapter, &error), &error);
            check_ok(by_weights_adapt(weights, &adapter, true, &error), &error);
            by_weights_close(&weights);
        }
        free(path);
        drop(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_merge_of_infinities),
        cmocka_unit_test(test_trained_file),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_square_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
