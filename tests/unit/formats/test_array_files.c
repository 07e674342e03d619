/* IDX, npy, CIFAR and gzip: what the formats promise is read, whatever the type and byte order;
 * what is damaged is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "banyan/array_set.h"
#include "base/host/file_kind.h"
#include "formats/array_file.h"
#include "formats/cifar.h"
#include "formats/gzip.h"
#include "formats/idx.h"
#include "formats/npy.h"
#include "temporary.h"

/* ---- IDX ---- */

/* MNIST's headers: 10000 images of 28 x 28, 10000 labels. */
static void test_idx(void **state)
{
    BY_UNUSED(state);
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 4, 7, 2, 1, 0};
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0,
                                     1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    static const uint8_t floats[] = {0, 0, 0x0d, 1, 0, 0, 0, 2, 0x3f, 0x80, 0, 0, 0xc0, 0x20, 0, 0};
    static const uint8_t shorts[] = {0, 0, 0x0b, 1, 0, 0, 0, 2, 0xff, 0xfe, 0x01, 0x00};
    by__format_array_view view;
    by_error error = {0};
    int32_t numbers[4];
    float reals[2];
    assert_int_equal(by__format_array_file_parse(&view, "f", labels, sizeof labels, &error), BY_OK);
    assert_true(by_shape_equal(&view.shape, &BY_SHAPE(4)));
    assert_int_equal(by__format_element_dtype(view.element), BY_U8);
    assert_int_equal(by__format_array_convert(numbers, BY_I32, &view, "f", &error), BY_OK);
    assert_int_equal(numbers[0], 7);
    assert_int_equal(numbers[2], 1);
    assert_int_equal(by__format_idx_parse(&view, "f", images, sizeof images, &error), BY_OK);
    assert_true(by_shape_equal(&view.shape, &BY_SHAPE(2, 1, 3)));
    assert_ptr_equal(view.data, images + 16);
    assert_int_equal(by__format_idx_parse(&view, "f", floats, sizeof floats, &error), BY_OK);
    assert_int_equal(by__format_array_convert(reals, BY_F32, &view, "f", &error), BY_OK);
    assert_true(reals[0] == 1.0f && reals[1] == -2.5f);
    assert_int_equal(by__format_array_convert(numbers, BY_I32, &view, "f", &error), BY_EFORMAT);
    assert_string_equal(error.message, "f: element 1 is -2.5, which is no i32");
    assert_int_equal(by__format_idx_parse(&view, "f", shorts, sizeof shorts, &error), BY_OK);
    assert_int_equal(by__format_array_convert(numbers, BY_I32, &view, "f", &error), BY_OK);
    assert_int_equal(numbers[0], -2);
    assert_int_equal(numbers[1], 256);
    uint8_t bytes[2];
    assert_int_equal(by__format_array_convert(bytes, BY_U8, &view, "f", &error), BY_EFORMAT);
    assert_string_equal(error.message, "f: element 0 is -2, which is no u8");
}

static void test_idx_damaged(void **state)
{
    BY_UNUSED(state);
    static const struct {
        uint8_t data[20];
        size_t size;
        const char *message;
    } cases[] = {
        {{0, 0, 8}, 3, "not an IDX file"},
        {{0, 1, 8, 1, 0, 0, 0, 0}, 8, "not an IDX file"},
        {{0, 0, 0x0a, 1, 0, 0, 0, 0}, 8, "not an IDX file"},
        {{0, 0, 8, 0}, 4, "0 axes at offset 3 are not 1 to 6"},
        {{0, 0, 8, 7}, 20, "7 axes"},
        {{0, 0, 8, 2, 0, 0, 0, 1, 0, 0}, 10, "10 bytes end inside the IDX header of 12"},
        {{0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3}, 11, "[4], from offset 8, but 3 bytes follow"},
        {{0, 0, 8, 1, 0, 0, 0, 2, 1, 2, 3}, 11, "[2], from offset 8, but 3 bytes follow"},
        {{0, 0, 0x0e, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
         16,
         "promises"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by__format_array_view view;
        by_error error = {0};
        by_status status = by__format_idx_parse(&view, "f", cases[i].data, cases[i].size, &error);
        if (status != BY_EFORMAT || strstr(error.message, cases[i].message) == NULL) {
            fail_msg("case %zu: %d %s", i, status, error.message);
        }
    }
}

/* ---- npy ---- */

static size_t npy_file(uint8_t *out, const char *descr, const char *shape, const void *data,
                       size_t bytes)
{
    int n = snprintf((char *)out + 10, 200,
                     "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
    memcpy(out, "\x93NUMPY\x01\0", 8);
    out[8] = (uint8_t)n;
    out[9] = 0;
    memcpy(out + 10 + n, data, bytes);
    return 10 + (size_t)n + bytes;
}

static void test_npy_arrays(void **state)
{
    BY_UNUSED(state);
    uint8_t file[512];
    by__format_array_view view;
    by_error error = {0};
    static const int64_t wide[] = {1, -2, 3, INT64_C(1) << 40, 5, 6};
    static const double reals[] = {0.5, -1e300};
    static const uint8_t bytes[] = {0, 1, 255, 4};
    int32_t numbers[6];
    float floats[6];
    size_t n = npy_file(file, "<i8", "(2, 3)", wide, sizeof wide);
    assert_int_equal(by__format_array_file_parse(&view, "f", file, n, &error), BY_OK);
    assert_true(by_shape_equal(&view.shape, &BY_SHAPE(2, 3)));
    assert_int_equal(by__format_array_convert(floats, BY_F32, &view, "f", &error), BY_OK);
    assert_true(floats[1] == -2.0f && floats[3] == 1099511627776.0f);
    assert_int_equal(by__format_array_convert(numbers, BY_I32, &view, "f", &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "f: element 3 is 1099511627776, which is no i32"));
    n = npy_file(file, "<f8", "(2,)", reals, sizeof reals);
    assert_int_equal(by__format_npy_parse_array(&view, "f", file, n, &error), BY_OK);
    assert_int_equal(by__format_array_convert(floats, BY_F32, &view, "f", &error), BY_OK);
    assert_true(floats[0] == 0.5f && floats[1] < -3e38f);
    n = npy_file(file, ">i4", "(1,)", bytes, 4);
    assert_int_equal(by__format_npy_parse_array(&view, "f", file, n, &error), BY_OK);
    assert_int_equal(by__format_array_convert(numbers, BY_I32, &view, "f", &error), BY_OK);
    assert_int_equal(numbers[0], 0x0001ff04);
    n = npy_file(file, "|u1", "(1, 2, 2, 1)", bytes, 4);
    assert_int_equal(by__format_npy_parse_array(&view, "f", file, n, &error), BY_OK);
    assert_int_equal(view.shape.rank, 4);
    assert_int_equal(by__format_element_dtype(view.element), BY_U8);
    n = npy_file(file, "<f4", "()", bytes, 4);
    assert_int_equal(by__format_npy_parse_array(&view, "f", file, n, &error), BY_OK);
    assert_int_equal(view.shape.rank, 0);
    static const struct {
        const char *descr;
        const char *shape;
        const char *message;
    } bad[] = {{"<f2", "(2,)", "'<f2'"},
               {"<U4", "(1,)", "'<U4'"},
               {"|i4", "(1,)", "'|i4'"},
               {"", "(1,)", "''"},
               {"|u1", "(3,)", "4 bytes follow"},
               {"|u1", "(5,)", "4 bytes follow"},
               {"<i4", "(4611686018427387904, 4)", "4 bytes follow"},
               {"<i4", "(1, 1, 1, 1, 1, 1, 1)", "tuple"},
               {"<i4", "(1)", "tuple"},
               {"<i4", "(1, -1)", "tuple"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        n = npy_file(file, bad[i].descr, bad[i].shape, bytes, 4);
        by_status status = by__format_npy_parse_array(&view, "f", file, n, &error);
        if (status != BY_EFORMAT || strstr(error.message, bad[i].message) == NULL) {
            fail_msg("case %zu: %d %s", i, status, error.message);
        }
    }
    assert_int_equal(
        by__format_array_file_parse(&view, "f.csv", (const uint8_t *)"a,b\n", 4, &error),
        BY_EFORMAT);
    assert_non_null(strstr(error.message, "f.csv: neither an npy file"));
}

/* ---- what a file is ---- */

/* Files of other formats are named, and texts, in which the names begin, too, are none. */
static void test_file_kind(void **state)
{
    static const struct {
        const char *head;
        size_t size;
        const char *message; /* NULL: it is text */
    } rows[] = {
        {"\x1f\x8b\x08\0", 4, "f is no text: it is compressed by gzip: decompress it with gunzip"},
        {"PK\3\4....", 8, "f is no text: it is a zip archive"},
        {"\x7f"
         "ELF\2\1\1",
         7, "f is no text: it is a program or library (ELF)"},
        {"\xff\xd8\xff\xe0", 4, "f is no text: it is a JPEG picture"},
        {"%PDF-1.7\n", 9, "f is no text: it is a PDF: save or export it as text"},
        {"RIFF....WEBPVP8 ", 16, "it is a WebP picture"},
        {"\x28\xb5\x2f\xfd....", 8, "decompress it with zstd -d"},
        {"\x80\4\x95....", 7, "a Python pickle"},
        {"\xff\xfe"
         "a\0b\0",
         6, "its characters are UTF-16; texts are UTF-8: iconv -f UTF-16"},
        {"GGUF is a format", 16, NULL},
        {"PK is a name", 12, NULL},
        {"BM of the ship", 14, NULL},
        {"II. of Henry IV", 15, NULL},
        {"RIFF of a guitar", 16, NULL},
        {"gr\xfc\xdf"
         "e, latin-1",
         15, NULL},
        {"a\fb\x1b[1m\x01", 8, NULL},
        {"", 0, NULL},
    };
    uint8_t random[4096];
    uint32_t bits = 1;
    by_error error = {0};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        error.message[0] = '\0';
        by_status status =
            by__file_check_text("f", (const uint8_t *)rows[i].head, rows[i].size, "text", &error);
        if ((status == BY_OK) != (rows[i].message == NULL) ||
            (rows[i].message != NULL && strstr(error.message, rows[i].message) == NULL)) {
            fail_msg("row %zu: %s", i, error.message);
        }
    }
    for (size_t i = 0; i < sizeof random; i++) {
        bits = bits * 1664525u + 1013904223u;
        random[i] = (uint8_t)(bits >> 24);
    }
    random[0] = 'a';
    assert_int_equal(by__file_check_text("f", random, sizeof random, "text", &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "bytes are control characters"));
}

/* ---- CIFAR ---- */

static void test_cifar(void **state)
{
    BY_UNUSED(state);
    static uint8_t file[2 * 3074];
    static uint8_t images[2 * 3072];
    int32_t labels[2];
    size_t count;
    by_error error = {0};
    for (int classes = 10; classes <= 100; classes += 90) {
        size_t skip = classes == 10 ? 1 : 2;
        size_t record = skip + 3072;
        for (size_t i = 0; i < 2 * record; i++) {
            file[i] = (uint8_t)(i * 7 % 251);
        }
        file[0] = 19; /* CIFAR-100: the coarse label */
        file[skip - 1] = 3;
        file[record + skip - 1] = 9;
        assert_int_equal(by__format_cifar_count(&count, "f", 2 * record, classes, &error), BY_OK);
        assert_int_equal(count, 2);
        assert_int_equal(by__format_cifar_read(images, labels, "f", file, 2, classes, &error),
                         BY_OK);
        assert_int_equal(labels[0], 3);
        assert_int_equal(labels[1], 9);
        assert_memory_equal(images, file + skip, 3072);
        assert_memory_equal(images + 3072, file + record + skip, 3072);
        file[record + skip - 1] = (uint8_t)classes;
        assert_int_equal(by__format_cifar_read(images, labels, "f", file, 2, classes, &error),
                         BY_EFORMAT);
        assert_non_null(strstr(error.message, "f: record 1 has the label 10"));
        assert_int_equal(by__format_cifar_count(&count, "f", 2 * record - 1, classes, &error),
                         BY_EFORMAT);
        assert_int_equal(by__format_cifar_count(&count, "f", 0, classes, &error), BY_EFORMAT);
    }
}

/* Records that are left out. */
static void test_damaged_records(void **state)
{
    BY_UNUSED(state);
    enum { RECORD = 3073 };
    static uint8_t file[3 * RECORD + 100];
    char *directory = temporary_make();
    char *path = by__path_join(directory, "a.bin");
    const char *paths[] = {path, path};
    by_image_files files = {.format = "cifar10", .images = paths, .image_count = 2, .skip = true};
    by_array_set *set;
    by_error error = {0};
    size_t count;
    for (size_t i = 0; i < sizeof file; i++) {
        file[i] = (uint8_t)(i * 7 % 251);
    }
    file[0] = 3;
    file[RECORD] = 10;
    file[(size_t)2 * RECORD] = 9;
    assert_int_equal(by__file_write(path, file, sizeof file, &error), BY_OK);
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_OK);
    assert_int_equal(by_array_set_examples(set), 4);
    const int32_t labels[4] = {3, 9, 3, 9};
    const uint8_t *images = by_array_set_find(set, "images")->data;
    assert_memory_equal(by_array_set_find(set, "labels")->data, labels, sizeof labels);
    for (size_t i = 0; i < 4; i++) {
        assert_memory_equal(images + i * 3072, file + i % 2 * 2 * RECORD + 1, 3072);
    }
    const by_damage *damage = by_array_set_damage(set, &count);
    assert_int_equal(count, 4);
    assert_int_equal(damage[0].place, 1);
    assert_string_equal(damage[0].reason, "its label is none of the classes");
    assert_int_equal(damage[1].place, 3);
    assert_string_equal(damage[1].reason, "the file ends within it");
    by_array_set_close(&set);
    files.skip = false;
    assert_int_equal(by_image_set_open(&set, &files, &error), BY_EFORMAT);
    free(path);
    temporary_remove(directory);
}

/* ---- gzip ---- */

/* One gzip member, as gzip(1) writes it. */
static size_t deflate_to(uint8_t *out, size_t capacity, const uint8_t *data, size_t size)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data,
                       .avail_in = (uInt)size,
                       .next_out = out,
                       .avail_out = (uInt)capacity};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t used = capacity - stream.avail_out;
    (void)deflateEnd(&stream);
    return used;
}

static void test_gzip(void **state)
{
    BY_UNUSED(state);
    enum { SIZE = 300000 };
    uint8_t *data = malloc(SIZE);
    uint8_t *packed = malloc(2 * SIZE);
    uint8_t *out = NULL;
    size_t size;
    by_error error = {0};
    assert_non_null(data);
    assert_non_null(packed);
    for (uint32_t i = 0; i < SIZE; i++) {
        data[i] = (uint8_t)(i * i >> 7);
    }
    size_t first = deflate_to(packed, 2 * SIZE, data, 1000);
    size_t both = first + deflate_to(packed + first, 2 * SIZE - first, data + 1000, SIZE - 1000);
    assert_true(by__format_gzip_is(packed, both));
    assert_int_equal(by__format_gzip_inflate(&out, &size, "f", packed, both, SIZE, &error), BY_OK);
    assert_int_equal(size, SIZE);
    assert_memory_equal(out, data, SIZE);
    free(out);
    out = NULL;
    assert_int_equal(by__format_gzip_inflate(&out, &size, "f", packed, both, SIZE - 1, &error),
                     BY_EFORMAT);
    assert_non_null(strstr(error.message, "f: inflates to more than the limit of 299999 bytes"));
    for (size_t cut = first + 1; cut < both; cut += both / 13) {
        assert_int_equal(by__format_gzip_inflate(&out, &size, "f", packed, cut, SIZE, &error),
                         BY_EFORMAT);
    }
    packed[both - 6] ^= 1; /* of the checksum */
    assert_int_equal(by__format_gzip_inflate(&out, &size, "f", packed, both, SIZE, &error),
                     BY_EFORMAT);
    assert_non_null(strstr(error.message, "f: damaged gzip data"));
    assert_null(out);

    /* A file is read the same with and without. */
    char *directory = temporary_make();
    char *path = by__path_join(directory, "a");
    size_t n = deflate_to(packed, 2 * SIZE, data, SIZE);
    for (int compressed = 0; compressed < 2; compressed++) {
        assert_int_equal(
            by__file_write(path, compressed ? packed : data, compressed ? n : SIZE, &error), BY_OK);
        assert_int_equal(by__format_array_file_read(&out, &size, path, SIZE, &error), BY_OK);
        assert_int_equal(size, SIZE);
        assert_memory_equal(out, data, SIZE);
        free(out);
    }
    free(path);
    temporary_remove(directory);
    free(data);
    free(packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx),        cmocka_unit_test(test_idx_damaged),
        cmocka_unit_test(test_npy_arrays), cmocka_unit_test(test_file_kind),
        cmocka_unit_test(test_cifar),      cmocka_unit_test(test_damaged_records),
        cmocka_unit_test(test_gzip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
