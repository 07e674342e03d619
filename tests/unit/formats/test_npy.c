/* npy files: what is written is read, what numpy would not write is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/npy.h"
#include "temporary.h"

static void check_width(const char *directory, unsigned width, size_t count)
{
    by_error error = {0};
    by__format_npy_writer *writer;
    by__format_npy_info info;
    by__map map;
    char hash[33];
    char expected[33];
    char *path = by__path_join(directory, "a.npy");
    uint32_t *values = malloc((count + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (uint32_t)(i * 2654435761u) & (width == 2 ? 0xffffu : 0xffffffffu);
    }
    assert_int_equal(by__format_npy_writer_open(&writer, path, width, &error), BY_OK);
    assert_int_equal(by__format_npy_writer_add_u32(writer, values, count / 3, &error), BY_OK);
    assert_int_equal(
        by__format_npy_writer_add_u32(writer, values + count / 3, count - count / 3, &error),
        BY_OK);
    assert_int_equal(by__format_npy_writer_finish(writer, hash, &error), BY_OK);
    by__format_npy_writer_close(&writer);
    assert_null(writer);
    assert_int_equal(by__map_open(&map, path, &error), BY_OK);
    assert_int_equal(by__format_npy_parse(&info, path, map.data, map.size, &error), BY_OK);
    assert_int_equal(info.width, width);
    assert_int_equal(info.count, count);
    assert_int_equal(info.offset % 64, 0);
    by__hash128_hex(expected, map.data + info.offset, count * width);
    assert_string_equal(hash, expected);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = 0;
        memcpy(&value, map.data + info.offset + i * width, width);
        assert_int_equal(value, values[i]);
    }
    by__map_close(&map);
    free(values);
    free(path);
}

static void test_round_trip(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    static const unsigned widths[] = {2, 4, 8};
    static const size_t counts[] = {0, 1, 7, 1000, 700001}; /* the last is longer than the buffer */
    for (size_t w = 0; w < BY_ARRAY_LENGTH(widths); w++) {
        for (size_t c = 0; c < BY_ARRAY_LENGTH(counts); c++) {
            check_width(directory, widths[w], counts[c]);
        }
    }
    temporary_remove(directory);
}

/* A file with this header and `bytes` bytes behind it. */
static by_status parse_header(const char *header, size_t bytes, by_error *error)
{
    by__format_npy_info info;
    uint8_t file[512] = "\x93NUMPY\x01";
    size_t n = strlen(header);
    file[8] = (uint8_t)n;
    memcpy(file + 10, header, n);
    return by__format_npy_parse(&info, "f.npy", file, 10 + n + bytes, error);
}

static void test_headers(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *header;
        size_t bytes;
        const char *message; /* NULL: good */
    } cases[] = {
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n", 6, NULL},
        {"{\"shape\":(3,),\"descr\":\"<u2\",\"fortran_order\":False}     \n", 6, NULL},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n", 5, "promises 3"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n", 7, "promises 3"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n", 8, "promises 3"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }\n", 6, "descr"},
        {"{'descr': '<u2', 'fortran_order': True, 'shape': (3,), }\n", 6, "fortran_order"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (3, 1), }\n", 6, "one axis"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (), }\n", 6, "one axis"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,), }\n", 6,
         "tuple"},
        {"{'descr': '<u2', 'fortran_order': False, }\n", 6, "lacks"},
        {"{'descr': '<u2', 'descr': '<u2', 'fortran_order': False, 'shape': (3,)}\n", 6, "twice"},
        {"{'descr': '<u2', 'extra': 1, 'shape': (3,)}\n", 6, "other than"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }", 6, "newline"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (3,), } x\n", 6, "newline"},
        {"['descr']\n", 6, "dictionary"},
        {"", 0, "dictionary"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        by_status status = parse_header(cases[i].header, cases[i].bytes, &error);
        if (cases[i].message == NULL) {
            assert_int_equal(status, BY_OK);
        } else if (status != BY_EFORMAT || strstr(error.message, cases[i].message) == NULL ||
                   strstr(error.message, "f.npy") == NULL) {
            fail_msg("case %zu: %d %s", i, status, error.message);
        }
    }
}

static void test_prefixes(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__format_npy_info info;
    static const uint8_t magic[] = "\x93NUMPX\x01\0\x02\0{}";
    static const uint8_t version[] = "\x93NUMPY\x04\0\x02\0{}";
    static const uint8_t longer[] = "\x93NUMPY\x01\0\xff\0{}";
    static const uint8_t second[] = "\x93NUMPY\x02\0\x02";
    assert_int_equal(by__format_npy_parse(&info, "f", magic, 12, &error), BY_EFORMAT);
    assert_int_equal(by__format_npy_parse(&info, "f", version, 12, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "4.0"));
    assert_int_equal(by__format_npy_parse(&info, "f", longer, 12, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "255"));
    assert_int_equal(by__format_npy_parse(&info, "f", second, 10, &error), BY_EFORMAT);
    assert_int_equal(by__format_npy_parse(&info, "f", NULL, 0, &error), BY_EFORMAT);
}

static void test_writing_fails(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__format_npy_writer *writer = NULL;
    assert_int_equal(by__format_npy_writer_open(&writer, "/nowhere/a.npy", 2, &error), BY_EIO);
    assert_non_null(strstr(error.message, "/nowhere/a.npy"));
    assert_null(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_writing_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
