/* GGUF: each rule of the format broken once (the cases of llama.cpp's own test among them), blocks
 * against values of the Python package gguf, and tokenizers. */
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/tokenizer.h"
#include "export/gguf_model.h"
#include "export/gguf_types.h"
#include "formats/gguf_file.h"
#include "temporary.h"
#include "text/tokenizer/gguf_tokenizer.h"

/* ---- files that are built ---- */

static void put(by_string *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));
        by_string_add(out, &byte, 1);
    }
}

static void put_text(by_string *out, const char *text)
{
    put(out, strlen(text), 8);
    by__string_append(out, text);
}

/* The head of a file with metadata alone. */
static void put_head(by_string *out, uint64_t pairs)
{
    by__string_append(out, "GGUF");
    put(out, 3, 4);
    put(out, 0, 8);
    put(out, pairs, 8);
}

static void put_pair(by_string *out, const char *key, uint64_t kind, uint64_t value)
{
    put_text(out, key);
    put(out, kind, 4);
    put(out, value, kind == BY__GGUF_KIND_BOOL ? 1 : 4);
}

static void put_text_pair(by_string *out, const char *key, const char *text)
{
    put_text(out, key);
    put(out, BY__GGUF_KIND_STRING, 4);
    put_text(out, text);
}

static void put_texts(by_string *out, const char *key, const char *const *texts, size_t count)
{
    put_text(out, key);
    put(out, BY__GGUF_KIND_ARRAY, 4);
    put(out, BY__GGUF_KIND_STRING, 4);
    put(out, count, 8);
    for (size_t i = 0; i < count; i++) {
        put_text(out, texts[i]);
    }
}

/* Values of 4 bytes. */
static void put_values(by_string *out, const char *key, uint64_t kind, const void *values,
                       size_t count)
{
    put_text(out, key);
    put(out, BY__GGUF_KIND_ARRAY, 4);
    put(out, kind, 4);
    put(out, count, 8);
    by_string_add(out, values, count * 4);
}

/* A file: magic, version, counts; pairs; two tensors, f32 [4, 3] and q8_0 [2, 64]; their data. */
typedef struct parts {
    const char *magic;
    uint64_t version;
    uint64_t tensors;
    uint64_t pairs;
    const char *key; /* of the first pair */
    uint64_t key_length;
    uint64_t kind;
    uint64_t array_kind; /* 99: the value is a u32 alone */
    uint64_t array_count;
    const char *second_key; /* u32: */
    uint64_t alignment;
    const char *name; /* of the first tensor */
    const char *second_name;
    uint64_t rank;
    uint64_t size;
    uint64_t type;
    uint64_t offset; /* of the second tensor */
    size_t cut;      /* bytes missing at the end */
} parts;

static const parts good = {.magic = "GGUF",
                           .version = 3,
                           .tensors = 2,
                           .pairs = 2,
                           .key = "some.key",
                           .key_length = 8,
                           .kind = 4,
                           .array_kind = 99,
                           .second_key = "general.alignment",
                           .alignment = 64,
                           .name = "first.weight",
                           .second_name = "second.weight",
                           .rank = 2,
                           .size = 4,
                           .type = 0,
                           .offset = 64};

static by_string build(const parts *p)
{
    by_string out = {0};
    by__string_append(&out, p->magic);
    put(&out, p->version, 4);
    put(&out, p->tensors, 8);
    put(&out, p->pairs, 8);
    put(&out, p->key_length, 8);
    by__string_append(&out, p->key);
    put(&out, p->kind, 4);
    if (p->array_kind != 99) {
        put(&out, p->array_kind, 4);
        put(&out, p->array_count, 8);
    }
    put(&out, 7, 4);
    put_text(&out, p->second_key);
    put(&out, 4, 4);
    put(&out, p->alignment, 4);
    put_text(&out, p->name);
    put(&out, p->rank, 4);
    put(&out, p->size, 8);
    for (uint64_t i = 1; i < (p->rank < 6 ? p->rank : 6); i++) {
        put(&out, 3, 8);
    }
    put(&out, p->type, 4);
    put(&out, 0, 8);
    put_text(&out, p->second_name);
    put(&out, 2, 4);
    put(&out, 64, 8);
    put(&out, 2, 8);
    put(&out, 8, 4);
    put(&out, p->offset, 8);
    while (out.length % 64 != 0) {
        put(&out, 0, 1);
    }
    for (size_t i = 0; i < 64 + 136 - p->cut; i++) {
        put(&out, i, 1);
    }
    return out;
}

/* In memory of exactly its size, so that a sanitizer sees a read beyond it. */
static by_status parse(by__format_gguf_file *out, const parts *p, by_error *error)
{
    by_string text = build(p);
    uint8_t *data = malloc(text.length);
    assert_non_null(data);
    memcpy(data, text.data, text.length);
    by_status status = by__format_gguf_parse(out, "x.gguf", data, text.length, error);
    if (status == BY_OK) {
        by__format_gguf_free(out);
    }
    free(data);
    by_string_free(&text);
    return status;
}

static void refuses(const char *message, const parts *p)
{
    by__format_gguf_file file;
    by_error error = {0};
    print_message("%s\n", message);
    assert_int_equal(parse(&file, p, &error), BY_EFORMAT);
    if (strstr(error.message, message) == NULL) {
        print_error("'%s' does not hold '%s'\n", error.message, message);
        fail();
    }
}

/* The good file but for one field. */
#define REFUSES(message, field, value)                                                             \
    do {                                                                                           \
        parts changed = good;                                                                      \
        changed.field = (value);                                                                   \
        refuses(message, &changed);                                                                \
    } while (0)

static void corrupt_files_are_refused(void **state)
{
    (void)state;
    by__format_gguf_file file;
    by_error error = {0};
    assert_int_equal(parse(&file, &good, &error), BY_OK);

    REFUSES("does not begin with GGUF", magic, "GGUX");
    REFUSES("version 0", version, 0);
    REFUSES("version 1", version, 1);
    REFUSES("version 4", version, 4);
    REFUSES("big-endian", version, 0x03000000);
    REFUSES("18446744073709551615 tensors and", tensors, UINT64_MAX);
    REFUSES("tensors cannot be in a file", tensors, 1u << 30);
    REFUSES("the name of a tensor of", tensors, 3); /* the data as a description */
    REFUSES("18446744073709551615 pairs cannot", pairs, UINT64_MAX);
    REFUSES("pairs cannot be in a file", pairs, 1u << 30);
    REFUSES("the name of a tensor of", pairs, 3); /* a description as a pair */

    REFUSES("a key of 0 bytes", key_length, 0);
    REFUSES("a key of 18446744073709551615 bytes", key_length, UINT64_MAX);
    REFUSES("goes beyond the file's end", key_length, 60000);
    REFUSES("values of type 13", kind, 13);
    REFUSES("values of type 4294967295", kind, UINT32_MAX);
    REFUSES("goes beyond the file's end", kind, 8); /* a text of so many bytes */
    REFUSES("'some.key' is there twice", second_key, "some.key");
    REFUSES("is no power of two", alignment, 0);
    REFUSES("is no power of two", alignment, 13);

    REFUSES("dimensions; 4 are the most", rank, 5);
    REFUSES("dimensions; 4 are the most", rank, UINT32_MAX);
    REFUSES("its size overflows", size, UINT64_MAX);
    REFUSES("its size overflows", size, (uint64_t)1 << 62);
    REFUSES("is of type 4,", type, 4);
    REFUSES("is of type 4294967295", type, UINT32_MAX);
    REFUSES("no whole blocks of 32", type, 8);
    REFUSES("the name of a tensor of 0 bytes", name, "");
    REFUSES("the name of a tensor of 64 bytes", name,
            "0123456789012345678901234567890123456789012345678901234567890123");
    REFUSES("it is there twice", second_name, "first.weight");
    REFUSES("is at offset 63", offset, 63);
    REFUSES("is at offset 128", offset, 128);
    REFUSES("is at offset 18446744073709551615", offset, UINT64_MAX);
    REFUSES("is at offset 64", alignment, 128); /* other than that of the offsets */
    REFUSES("it is truncated", cut, 1);
    REFUSES("it is truncated", cut, 140);
}

static void corrupt_arrays_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *message;
        uint64_t kind;
        uint64_t count;
    } cases[] = {{"values of type 9, which GGUF does not have in an array", 9, 1},
                 {"values of type 13", 13, 1},
                 {"goes beyond the file's end", 4, UINT64_MAX},
                 {"goes beyond the file's end", 10, UINT64_MAX / 8},
                 {"goes beyond the file's end", 8, UINT64_MAX},
                 {"not 0 or 1", 7, 4}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        parts changed = good;
        changed.kind = 9;
        changed.array_kind = cases[i].kind;
        changed.array_count = cases[i].count;
        refuses(cases[i].message, &changed);
    }
}

/* Every file that ends too early. */
static void truncated_files_are_refused(void **state)
{
    (void)state;
    by_string text = build(&good);
    for (size_t length = 0; length < text.length; length++) {
        by__format_gguf_file file;
        uint8_t *data = malloc(length + 1);
        assert_non_null(data);
        memcpy(data, text.data, length);
        assert_int_equal(by__format_gguf_parse(&file, "x.gguf", data, length, NULL), BY_EFORMAT);
        free(data);
    }
    by_string_free(&text);
}

/* ---- blocks ---- */

static void blocks_hold_what_was_encoded(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double bound; /* of the root of the mean squared error, in standard deviations */
    } cases[] = {{"f32", 0.0},   {"f16", 3e-4},  {"bf16", 3e-3},
                 {"q8_0", 0.01}, {"q4_0", 0.12}, {"q4_k", 0.085}};
    float in[256];
    uint32_t seed = 7;
    for (size_t i = 0; i < 256; i++) {
        float sum = 0.0f;
        for (int k = 0; k < 12; k++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) / 16777216.0f;
        }
        in[i] = sum - 6.0f;
    }
    for (size_t c = 0; c < BY_ARRAY_LENGTH(cases); c++) {
        const by__export_gguf_type *type = by__export_gguf_type_named(cases[c].name);
        uint8_t block[256];
        double squares = 0.0;
        for (size_t at = 0; at < 256; at += type->elements) {
            assert_true(type->encode(block, in + at));
            for (size_t i = 0; i < type->elements; i++) {
                double difference = (double)(type->decode(block, i) - in[at + i]);
                squares += difference * difference;
            }
        }
        print_message("%s: %.4f\n", cases[c].name, sqrt(squares / 256.0));
        assert_true(sqrt(squares / 256.0) <= cases[c].bound);
    }
    in[3] = INFINITY;
    uint8_t block[256];
    assert_false(by__export_gguf_type_named("q8_0")->encode(block, in));
    assert_false(by__export_gguf_type_named("q4_k")->encode(block, in));
    in[3] = 70000.0f;
    assert_false(by__export_gguf_type_named("f16")->encode(block, in + 3));
}

/* Of values that a scale is too large for, and too small. No infinity or NaN becomes an integer. */
static void extreme_blocks(void **state)
{
    (void)state;
    static const char *const names[] = {"q8_0", "q4_0", "q4_k"};
    static const float least[] = {1e-45f, 1e-42f, 2e-39f, 1e-38f, 1e-30f, 1e-20f};
    static const float most[] = {1e9f, 1e38f, 3e38f};
    for (size_t c = 0; c < BY_ARRAY_LENGTH(names); c++) {
        const by__export_gguf_type *type = by__export_gguf_type_named(names[c]);
        float in[256];
        uint8_t block[256];
        for (size_t k = 0; k < BY_ARRAY_LENGTH(least); k++) {
            for (size_t i = 0; i < 256; i++) {
                in[i] = least[k] * (float)((int)(i % 3) - 1) * (i % 32 < 16 ? 1.0f : 0.5f);
            }
            (void)feclearexcept(FE_ALL_EXCEPT);
            assert_true(type->encode(block, in));
            assert_false(fetestexcept(FE_INVALID));
            for (size_t i = 0; i < type->elements; i++) {
                assert_true(fabsf(type->decode(block, i)) == 0.0f);
            }
        }
        for (size_t k = 0; k < BY_ARRAY_LENGTH(most); k++) {
            for (size_t i = 0; i < 256; i++) {
                in[i] = i % 2 == 0 ? most[k] : -most[k];
            }
            assert_false(type->encode(block, in));
        }
    }
}

/* Of zeros, and of equal values, where a scale would be 0. */
static void flat_blocks_are_kept(void **state)
{
    (void)state;
    static const char *const names[] = {"q8_0", "q4_0", "q4_k"};
    for (size_t c = 0; c < BY_ARRAY_LENGTH(names); c++) {
        const by__export_gguf_type *type = by__export_gguf_type_named(names[c]);
        for (int k = -1; k <= 1; k++) {
            float in[256];
            uint8_t block[256];
            for (size_t i = 0; i < 256; i++) {
                in[i] = 0.5f * (float)k;
            }
            assert_true(type->encode(block, in));
            for (size_t i = 0; i < type->elements; i++) {
                assert_true(fabsf(type->decode(block, i) - in[i]) <= 0.04f);
            }
        }
    }
}

static void blocks_are_those_of_the_library(void **state)
{
    (void)state;
    by_weights *golden;
    assert_int_equal(by_weights_open(&golden,
                                     BY_SOURCE_DIR "/tests/parity/golden/gguf_blocks.safetensors",
                                     NULL),
                     BY_OK);
    static const char *const names[] = {"q8_0", "q4_0", "q5_0", "q4_k", "q6_k"};
    for (size_t c = 0; c < BY_ARRAY_LENGTH(names); c++) {
        char name[32];
        by_tensor_view blocks;
        by_tensor_view values;
        const by__export_gguf_type *type = by__export_gguf_type_named(names[c]);
        (void)snprintf(name, sizeof name, "%s.values", names[c]);
        assert_int_equal(by_weights_tensor(golden, names[c], &blocks, NULL), BY_OK);
        assert_int_equal(by_weights_tensor(golden, name, &values, NULL), BY_OK);
        for (size_t i = 0; i < (size_t)values.shape[0]; i++) {
            float expected;
            memcpy(&expected, (const uint8_t *)values.data + i * sizeof expected, sizeof expected);
            float got =
                type->decode((const uint8_t *)blocks.data + i / type->elements * type->bytes,
                             i % type->elements);
            assert_true(fabsf(got - expected) <= 1e-6f * fabsf(expected));
        }
    }
    by_weights_close(&golden);
}

/* ---- models ---- */

static void refuses_model(const char *message, const parts *p)
{
    by__export_gguf_model *model;
    by_error error = {0};
    by_string text = build(p);
    char *directory = temporary_make();
    char *path = by__path_join(directory, "x.gguf");
    assert_non_null(path);
    assert_int_equal(by__file_write(path, text.data, text.length, NULL), BY_OK);
    assert_int_equal(by__export_gguf_model_open(&model, path, &error), BY_EFORMAT);
    if (strstr(error.message, message) == NULL) {
        print_error("'%s' does not hold '%s'\n", error.message, message);
        fail();
    }
    free(path);
    temporary_remove(directory);
    by_string_free(&text);
}

static void other_models_are_refused(void **state)
{
    (void)state;
    refuses_model("general.architecture is ''", &good);
}

/* ---- tokenizers ---- */

static by_tokenizer *open_tokenizer(by__format_gguf_file *file, by_string *text)
{
    by_tokenizer *tokenizer;
    by_error error = {0};
    assert_false(text->failed);
    assert_int_equal(by__format_gguf_parse(file, "x", (uint8_t *)text->data, text->length, NULL),
                     BY_OK);
    if (by__tokenizer_from_gguf(&tokenizer, "x", file, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return tokenizer;
}

static void check_encoding(const by_tokenizer *tokenizer, const char *text, const uint32_t *ids,
                           size_t count)
{
    by_token_buffer found = {0};
    assert_int_equal(
        by_tokenizer_encode(tokenizer, text, strlen(text), &found, BY_ENCODE_ORDINARY, NULL),
        BY_OK);
    assert_int_equal(found.count, count);
    assert_memory_equal(found.ids, ids, count * sizeof *ids);
    by_token_buffer_free(&found);
}

/* A SentencePiece vocabulary: merges come from scores, the highest first, and a token that the user
 * defined, here one that two others would make, is none of them. */
static void merges_come_from_scores(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>", "a", "b", "c", "ab", "bc", "abc", "ca"};
    static const float scores[] = {0, -9, -9, -9, -3, -1, -2, 0};
    static const uint32_t types[] = {2, 1, 1, 1, 1, 1, 1, 4};
    /* "bc" before "ab": a bc, then a + bc is abc. */
    static const uint32_t abc_ca[] = {6, 7};
    static const uint32_t ab_bc[] = {4, 5};
    by_string text = {0};
    by__format_gguf_file file;
    by_error error = {0};
    put_head(&text, 6);
    put_text_pair(&text, "tokenizer.ggml.model", "llama");
    put_texts(&text, "tokenizer.ggml.tokens", tokens, BY_ARRAY_LENGTH(tokens));
    put_values(&text, "tokenizer.ggml.scores", BY__GGUF_KIND_F32, scores, BY_ARRAY_LENGTH(scores));
    size_t scores_end = text.length;
    put_values(&text, "tokenizer.ggml.token_type", BY__GGUF_KIND_I32, types,
               BY_ARRAY_LENGTH(types));
    put_pair(&text, "tokenizer.ggml.unknown_token_id", BY__GGUF_KIND_U32, 0);
    put_pair(&text, "tokenizer.ggml.add_space_prefix", BY__GGUF_KIND_BOOL, 0);
    by_tokenizer *tokenizer = open_tokenizer(&file, &text);
    check_encoding(tokenizer, "abcca", abc_ca, BY_ARRAY_LENGTH(abc_ca));
    check_encoding(tokenizer, "abbc", ab_bc, BY_ARRAY_LENGTH(ab_bc));
    by_tokenizer_close(&tokenizer);
    const float nan = NAN; /* which has no place in an order */
    memcpy(text.data + scores_end - sizeof scores, &nan, sizeof nan);
    assert_int_equal(by__tokenizer_from_gguf(&tokenizer, "x", &file, &error), BY_EFORMAT);
    by__format_gguf_free(&file);
    by_string_free(&text);
}

/* A byte-level vocabulary with a token that no merges make. */
static size_t ids_of(uint32_t ids[4], const char *pre)
{
    static const char *const tokens[] = {"<s>", "a", "b", "c", "ab", "abc"};
    static const char *const merges[] = {"a b"};
    static const uint32_t types[] = {3, 1, 1, 1, 1, 1};
    by_string text = {0};
    by__format_gguf_file file;
    by_token_buffer found = {0};
    put_head(&text, 6);
    put_text_pair(&text, "tokenizer.ggml.model", "gpt2");
    put_text_pair(&text, "tokenizer.ggml.pre", pre);
    put_texts(&text, "tokenizer.ggml.tokens", tokens, BY_ARRAY_LENGTH(tokens));
    put_values(&text, "tokenizer.ggml.token_type", BY__GGUF_KIND_I32, types,
               BY_ARRAY_LENGTH(types));
    put_texts(&text, "tokenizer.ggml.merges", merges, BY_ARRAY_LENGTH(merges));
    put_pair(&text, "tokenizer.ggml.bos_token_id", BY__GGUF_KIND_U32, 0);
    by_tokenizer *tokenizer = open_tokenizer(&file, &text);
    assert_int_equal(by_tokenizer_encode(tokenizer, "abc", 3, &found, BY_ENCODE_ADD_SPECIAL, NULL),
                     BY_OK);
    size_t count = found.count;
    assert_true(count <= 4);
    memcpy(ids, found.ids, count * sizeof *ids);
    by_token_buffer_free(&found);
    by_tokenizer_close(&tokenizer);
    by__format_gguf_free(&file);
    by_string_free(&text);
    return count;
}

/* As llama.cpp's vocabularies of these names do. */
static void patterns_keep_tokens_whole(void **state)
{
    (void)state;
    static const char *const whole[] = {"llama-bpe", "llama3", "llama-v3", "tekken"};
    static const char *const merged[] = {"default", "smaug-bpe", "qwen2"};
    uint32_t ids[4];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(whole); i++) {
        assert_int_equal(ids_of(ids, whole[i]), 2);
        assert_int_equal(ids[0], 0);
        assert_int_equal(ids[1], 5);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(merged); i++) {
        assert_int_equal(ids_of(ids, merged[i]), 2);
        assert_int_equal(ids[0], 4);
        assert_int_equal(ids[1], 3);
    }
}

/* The end of a turn is not that of a text in files of some models that talk. */
static void ends_of_texts_and_turns(void **state)
{
    (void)state;
    static const char *const texts[] = {"a", "b", "c", "d"};
    int32_t ends[BY_END_TOKENS];
    size_t count;
    by_error error = {0};
    by_string text = {0};
    char *directory = temporary_make();
    assert_non_null(directory);
    char *path = by__path_join(directory, "model.gguf");
    assert_non_null(path);
    put_head(&text, 4);
    put_text_pair(&text, "tokenizer.ggml.model", "rwkv");
    put_texts(&text, "tokenizer.ggml.tokens", texts, BY_ARRAY_LENGTH(texts));
    put_pair(&text, "tokenizer.ggml.eos_token_id", BY__GGUF_KIND_U32, 1);
    put_pair(&text, "tokenizer.ggml.eot_token_id", BY__GGUF_KIND_U32, 3);
    assert_int_equal(by__file_write(path, text.data, text.length, &error), BY_OK);
    assert_int_equal(by_end_tokens(ends, &count, path, NULL, &error), BY_OK);
    assert_int_equal(count, 2);
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[1], 3);
    by_string_free(&text);
    free(path);
    temporary_remove(directory);
}

/* Opened to read, a FIFO waits until somebody writes; the alarm ends the test then. */
static void pipes_are_not_read(void **state)
{
    (void)state;
    char *directory = temporary_make();
    char *path = by__path_join(directory, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    (void)alarm(60);
    assert_false(by__format_gguf_is_file(path));
    (void)alarm(0);
    free(path);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corrupt_files_are_refused),
        cmocka_unit_test(corrupt_arrays_are_refused),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(blocks_hold_what_was_encoded),
        cmocka_unit_test(extreme_blocks),
        cmocka_unit_test(flat_blocks_are_kept),
        cmocka_unit_test(blocks_are_those_of_the_library),
        cmocka_unit_test(other_models_are_refused),
        cmocka_unit_test(merges_come_from_scores),
        cmocka_unit_test(patterns_keep_tokens_whole),
        cmocka_unit_test(ends_of_texts_and_turns),
        cmocka_unit_test(pipes_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
