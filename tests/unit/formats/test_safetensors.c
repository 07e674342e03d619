/* safetensors: against files that the format's Python library wrote (check_safetensors.py), every
 * rule of the format broken once, shards, and conversion. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "checkpoint/storage.h"
#include "temporary.h"

#define GOLDEN BY_SOURCE_DIR "/tests/parity/golden/"

static float wte[12], ln[4], scalar[1], umlaut[1];
static uint16_t half[5], brain[6];
static int32_t ids[3];
static const uint8_t bytes[7] = {0, 1, 2, 3, 4, 5, 6};
static const uint8_t mask[4] = {1, 0, 1, 1};

/* The tensors of types.safetensors, in another order than the file's. */
static const by_tensor_view golden[] = {
    {"wte.weight", BY_F32, 2, {3, 4}, wte},
    {"ln_f.bias", BY_F32, 1, {4}, ln},
    {"half", BY_F16, 1, {5}, half},
    {"brain", BY_BF16, 2, {2, 3}, brain},
    {"ids", BY_I32, 1, {3}, ids},
    {"bytes", BY_U8, 1, {7}, bytes},
    {"mask", BY_BOOL, 2, {2, 2}, mask},
    {"scalar", BY_F32, 0, {0}, scalar},
    {"empty", BY_F32, 2, {0, 4}, NULL},
    {"gr\xc3\xb6\xc3\x9f"
     "e",
     BY_F32,
     1,
     {1},
     umlaut},
};

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        wte[i] = 0.25f * (float)(i - 1);
        ln[i % 4] = 0.5f * (float)(i % 4 - 1);
        half[i % 5] = by__f32_to_f16(0.5f * (float)(i % 5 - 1));
        brain[i % 6] = by__f32_to_bf16(0.5f * (float)(i % 6 - 1));
        ids[i % 3] = i % 3 - 1;
    }
    scalar[0] = -3.0f;
    umlaut[0] = -7.0f;
    return 0;
}

static void reads_what_the_library_wrote(void **state)
{
    (void)state;
    by_weights *weights;
    assert_int_equal(by_weights_open(&weights, GOLDEN "types.safetensors", NULL), BY_OK);
    assert_int_equal(by_weights_count(weights), BY_ARRAY_LENGTH(golden));
    assert_null(by_weights_config(weights));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(golden); i++) {
        by_tensor_view view;
        size_t size;
        assert_int_equal(by_weights_tensor(weights, golden[i].name, &view, NULL), BY_OK);
        assert_string_equal(view.name, golden[i].name);
        assert_int_equal(view.dtype, golden[i].dtype);
        assert_int_equal(view.rank, golden[i].rank);
        for (int k = 0; k < view.rank; k++) {
            assert_int_equal(view.shape[k], golden[i].shape[k]);
        }
        assert_int_equal(by_tensor_size(&view, NULL, &size, NULL), BY_OK);
        if (size > 0) {
            assert_memory_equal(view.data, golden[i].data, size);
        }
        if (i > 0) {
            assert_true(strcmp(by_weights_name(weights, i - 1), by_weights_name(weights, i)) < 0);
        }
    }
    by_weights_close(&weights);
    assert_null(weights);
}

static void writes_what_the_library_writes(void **state)
{
    (void)state;
    char *directory = temporary_make();
    assert_non_null(directory);
    assert_int_equal(by_weights_write(directory, golden, BY_ARRAY_LENGTH(golden), 0, NULL), BY_OK);
    char *path = by__path_join(directory, "model.safetensors");
    char *ours;
    char *theirs;
    size_t our_length;
    size_t their_length;
    assert_int_equal(by__file_read(&ours, &our_length, path, 1 << 20, NULL), BY_OK);
    assert_int_equal(
        by__file_read(&theirs, &their_length, GOLDEN "types.safetensors", 1 << 20, NULL), BY_OK);
    assert_int_equal(our_length, their_length);
    assert_memory_equal(ours, theirs, our_length);
    free(ours);
    free(theirs);
    free(path);
    temporary_remove(directory);
}

static void foreign_types_are_checked_and_refused_by_name(void **state)
{
    (void)state;
    by_weights *weights;
    by_tensor_view view;
    by_error error = {0};
    float values[2];
    assert_int_equal(by_weights_open(&weights, GOLDEN "foreign.safetensors", NULL), BY_OK);
    assert_int_equal(by_weights_tensor(weights, "position_ids", &view, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "I64"));
    assert_int_equal(by_weights_tensor(weights, "weigth", &view, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "nearest: 'weight'"));
    assert_true(by_weights_has(weights, "double"));
    assert_false(by_weights_has(weights, "weigth"));
    assert_int_equal(by_weights_tensor(weights, "weight", &view, &error), BY_OK);
    assert_int_equal(by_tensor_read_f32(&view, values, 2, &error), BY_OK);
    assert_true(values[0] == -1.0f && values[1] == 0.0f);
    by_weights_close(&weights);
}

static void converts_to_f32(void **state)
{
    (void)state;
    float out[6];
    by_error error = {0};
    assert_int_equal(by_tensor_read_f32(&golden[3], out, 6, NULL), BY_OK);
    for (int i = 0; i < 6; i++) {
        assert_true(out[i] == 0.5f * (float)(i - 1));
    }
    assert_int_equal(by_tensor_read_f32(&golden[2], out, 5, NULL), BY_OK);
    for (int i = 0; i < 5; i++) {
        assert_true(out[i] == 0.5f * (float)(i - 1));
    }
    /* Foreign files put data on any byte. */
    uint8_t shifted[9];
    memcpy(shifted + 1, ln + 2, 8);
    by_tensor_view odd = {"odd", BY_F32, 1, {2}, shifted + 1};
    assert_int_equal(by_tensor_read_f32(&odd, out, 2, NULL), BY_OK);
    assert_true(out[0] == ln[2] && out[1] == ln[3]);
    assert_int_equal(by_tensor_read_f32(&golden[3], out, 5, &error), BY_EARG);
    assert_int_equal(by_tensor_read_f32(&golden[4], out, 3, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "i32"));
}

/* One file per rule of the format: header text, bytes of data behind it, part of the message. */
static const struct {
    const char *header;
    size_t data;
    const char *message;
} broken[] = {
    {"[]", 0, "expected '{' at byte 8"},
    {" {}", 0, "expected '{' at byte 8"},
    {"{", 0, "header, byte"},
    {"{}x", 0, "header, byte"},
    {"{}", 1, "has 1 bytes of data"},
    {"{\"a\":1}", 0, "tensor 'a': expected an object"},
    {"{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, "expected a string \"dtype\""},
    {"{\"a\":{\"dtype\":\"F31\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "unknown dtype 'F31'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}", 4, "array \"shape\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "non-negative"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "non-negative"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
     "overflows"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "whole bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[-4,0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
     "expected 8 for its F32"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "truncated"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]}}", 8, "leave a hole"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
     6, "overlap"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, "duplicate"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
    {"{\"__metadata__\":[]}", 0, "__metadata__"},
};

static by_status parse(const char *header, uint64_t length, size_t data, by_error *error)
{
    uint8_t file[1024] = {0};
    by__checkpoint_safetensors list = {0};
    size_t n = strlen(header);
    assert_true(8 + n + data <= sizeof file);
    for (int i = 0; i < 8; i++) {
        file[i] = (uint8_t)(length >> (8 * i));
    }
    memcpy(file + 8, header, n);
    by_status status = by__checkpoint_safetensors_parse(&list, "f", file, 8 + n + data, error);
    by__checkpoint_safetensors_free(&list);
    return status;
}

static void every_broken_rule_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(broken); i++) {
        by_error error = {0};
        by_status status =
            parse(broken[i].header, strlen(broken[i].header), broken[i].data, &error);
        if (status != BY_EFORMAT || strstr(error.message, broken[i].message) == NULL ||
            strncmp(error.message, "f: ", 3) != 0) {
            fail_msg("header %s: status %d, message '%s'", broken[i].header, status, error.message);
        }
    }
    by_error error = {0};
    by__checkpoint_safetensors list;
    assert_int_equal(parse("{}", 100000001, 0, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "limit"));
    assert_int_equal(parse("{}", UINT64_MAX, 0, &error), BY_EFORMAT);
    assert_int_equal(parse("{}", 3, 0, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "truncated"));
    assert_int_equal(
        by__checkpoint_safetensors_parse(&list, "f", (const uint8_t *)"1234567", 7, &error),
        BY_EFORMAT);
    assert_int_equal(
        by__checkpoint_safetensors_parse(&list, "f", (const uint8_t *)"GGUF\3\0\0\0", 8, &error),
        BY_EFORMAT);
    assert_non_null(strstr(error.message, "banyan export f --format safetensors"));
    /* What the format allows. */
    assert_int_equal(parse("{}      ", 8, 0, &error), BY_OK);
    const char *empty = "{\"a\":{\"dtype\":\"U8\",\"shape\":[0,9223372036854775807,9],"
                        "\"data_offsets\":[0,0]}}";
    assert_int_equal(parse(empty, strlen(empty), 0, &error), BY_OK);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    char *data;
    size_t length;
    assert_int_equal(by__file_read(&data, &length, GOLDEN "types.safetensors", 1 << 20, NULL),
                     BY_OK);
    for (size_t n = 0; n < length; n++) {
        uint8_t *copy = malloc(n == 0 ? 1 : n); /* exact, so that a sanitizer sees an overrun */
        by__checkpoint_safetensors list;
        assert_non_null(copy);
        memcpy(copy, data, n);
        assert_int_equal(by__checkpoint_safetensors_parse(&list, "f", copy, n, NULL), BY_EFORMAT);
        free(copy);
    }
    free(data);
}

static void shards_and_their_index(void **state)
{
    (void)state;
    char *directory = temporary_make();
    by_weights *weights;
    by_tensor_view view;
    char **names;
    size_t count;
    /* wte 48 | ln 16, half 10, brain 12, ids 12 = 50 | the rest */
    assert_int_equal(by_weights_write(directory, golden, BY_ARRAY_LENGTH(golden), 50, NULL), BY_OK);
    assert_int_equal(by__list_dir(&names, &count, directory, NULL), BY_OK);
    assert_int_equal(count, 4);
    assert_string_equal(names[0], "model-00001-of-00003.safetensors");
    assert_string_equal(names[2], "model-00003-of-00003.safetensors");
    assert_string_equal(names[3], "model.safetensors.index.json");
    by__names_free(names, count);
    assert_int_equal(by_weights_open(&weights, directory, NULL), BY_OK);
    assert_int_equal(by_weights_count(weights), BY_ARRAY_LENGTH(golden));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(golden); i++) {
        size_t size;
        assert_int_equal(by_weights_tensor(weights, golden[i].name, &view, NULL), BY_OK);
        assert_int_equal(by_tensor_size(&view, NULL, &size, NULL), BY_OK);
        if (size > 0) {
            assert_memory_equal(view.data, golden[i].data, size);
        }
    }
    /* Rewritten as one file from its own map: the shards go, the open map stays good. */
    by_tensor_view views[BY_ARRAY_LENGTH(golden)];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(golden); i++) {
        assert_int_equal(by_weights_tensor(weights, by_weights_name(weights, i), &views[i], NULL),
                         BY_OK);
    }
    assert_int_equal(by_weights_write(directory, views, BY_ARRAY_LENGTH(golden), 0, NULL), BY_OK);
    assert_int_equal(by_weights_write(directory, views, BY_ARRAY_LENGTH(golden), 0, NULL), BY_OK);
    by_weights_close(&weights);
    assert_int_equal(by__list_dir(&names, &count, directory, NULL), BY_OK);
    assert_int_equal(count, 1);
    by__names_free(names, count);
    assert_int_equal(by_weights_open(&weights, directory, NULL), BY_OK);
    assert_int_equal(by_weights_tensor(weights, "wte.weight", &view, NULL), BY_OK);
    assert_memory_equal(view.data, wte, sizeof wte);
    by_weights_close(&weights);
    temporary_remove(directory);
}

static void put(const char *directory, const char *name, const char *text)
{
    assert_int_equal(by__checkpoint_sink_put(directory, name, text, strlen(text), NULL, NULL),
                     BY_OK);
}

static void broken_indexes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"{", ".index.json:1:"},
        {"{\"weight_map\":{}}", "weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "name of a file"},
        {"{\"weight_map\":{\"a\":\"../a.safetensors\"}}", "name of a file"},
        {"{\"weight_map\":{\"a\":\"missing.safetensors\"}}", "missing.safetensors"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"}}",
         "which lacks it"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}", "in both"},
    };
    char *directory = temporary_make();
    const uint8_t value[1] = {7};
    const by_tensor_view a = {"a", BY_U8, 1, {1}, value};
    by_weights *weights;
    assert_int_equal(by__weights_write(directory, "one", &a, 1, 0, NULL, NULL), BY_OK);
    assert_int_equal(by__weights_write(directory, "two", &a, 1, 0, NULL, NULL), BY_OK);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        put(directory, "model.safetensors.index.json", cases[i].text);
        assert_int_not_equal(by_weights_open(&weights, directory, &error), BY_OK);
        if (strstr(error.message, cases[i].message) == NULL) {
            fail_msg("index %s: message '%s'", cases[i].text, error.message);
        }
    }
    put(directory, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"one.safetensors\"}}");
    put(directory, "config.json", "{\"model_type\":\"gpt2\"}");
    assert_int_equal(by_weights_open(&weights, directory, NULL), BY_OK);
    assert_string_equal(by_weights_config(weights), "{\"model_type\":\"gpt2\"}");
    by_weights_close(&weights);
    temporary_remove(directory);
}

static void bad_tensors_are_not_written(void **state)
{
    (void)state;
    const uint8_t value[1] = {7};
    const by_tensor_view bad[][2] = {
        {{"a", BY_U8, 1, {1}, value}, {"a", BY_U8, 1, {1}, value}},
        {{"a", BY_U8, 1, {1}, value}, {"", BY_U8, 1, {1}, value}},
        {{"a", BY_U8, 1, {1}, value}, {"__metadata__", BY_U8, 1, {1}, value}},
        {{"a", BY_U8, 1, {1}, value}, {"\xff", BY_U8, 1, {1}, value}},
        {{"a", BY_U8, 1, {1}, value}, {"b", BY_U8, 1, {-1}, value}},
        {{"a", BY_U8, 1, {1}, value}, {"b", BY_U8, 9, {1}, value}},
        {{"a", BY_U8, 1, {1}, value}, {"b", BY_U8, 1, {1}, NULL}},
        {{"a", BY_U8, 1, {1}, value}, {"b", BY_F32, 2, {INT64_MAX, 4}, value}},
    };
    char *directory = temporary_make();
    char **names;
    size_t count;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        by_error error = {0};
        assert_int_not_equal(by_weights_write(directory, bad[i], 2, 0, &error), BY_OK);
        assert_int_not_equal(error.message[0], '\0');
    }
    assert_int_equal(by__list_dir(&names, &count, directory, NULL), BY_OK);
    assert_int_equal(count, 0);
    by__names_free(names, count);
    temporary_remove(directory);
}

static void pickles_are_refused_with_the_way_out(void **state)
{
    (void)state;
    by_error error = {0};
    by_weights *weights;
    char *directory = temporary_make();
    char *path = by__path_join(directory, "pytorch_model.bin");
    assert_int_equal(by__file_write(path, "", 0, &error), BY_OK);
    assert_int_equal(by_weights_open(&weights, directory, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "pytorch_model.bin"));
    assert_non_null(strstr(error.message, "save_pretrained"));
    free(path);
    temporary_remove(directory);
}

static void codes_of_other_programs_are_named(void **state)
{
    static const char *const names[] = {"h.0.mlp.qweight", "h.0.mlp.weight.absmax"};
    static const char *const made_by[] = {"in the format of GPTQ or AWQ",
                                          "in the format of bitsandbytes"};
    static const int32_t codes[4];
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        by_error error = {0};
        by_weights *weights;
        const by_tensor_view view = {
            .name = names[i], .dtype = BY_I32, .rank = 1, .shape = {4}, .data = codes};
        char *directory = temporary_make();
        assert_int_equal(by_weights_write(directory, &view, 1, 0, &error), BY_OK);
        assert_int_equal(by_weights_open(&weights, directory, &error), BY_EFORMAT);
        assert_non_null(strstr(error.message, names[i]));
        assert_non_null(strstr(error.message, made_by[i]));
        assert_non_null(strstr(error.message, "quantize the original model"));
        put(directory, "config.json", "{\"quantization_config\": {\"quant_method\": \"awq\"}}");
        assert_int_equal(by_weights_open(&weights, directory, &error), BY_EFORMAT);
        assert_non_null(strstr(error.message, "in the format of awq"));
        temporary_remove(directory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_library_wrote),
        cmocka_unit_test(writes_what_the_library_writes),
        cmocka_unit_test(foreign_types_are_checked_and_refused_by_name),
        cmocka_unit_test(converts_to_f32),
        cmocka_unit_test(every_broken_rule_is_named),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(shards_and_their_index),
        cmocka_unit_test(broken_indexes_are_refused),
        cmocka_unit_test(bad_tensors_are_not_written),
        cmocka_unit_test(pickles_are_refused_with_the_way_out),
        cmocka_unit_test(codes_of_other_programs_are_named),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
