/* Parquet files made by hand, with what no writer writes. test_parquet.sh reads those of real
 * writers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/parquet.h"
#include "formats/thrift.h"

#define VALUES 8

/* A column of VALUES booleans, required, in a struct, in one page of encoding RLE. */
typedef struct parts {
    size_t name_length; /* of the struct */
    uint8_t value;      /* of the run */
    bool dictionary;    /* a page of words in front */
    int64_t levels;     /* bytes of repetition and of definition levels; 0: a page of version 1 */
} parts;

static const parts good = {.name_length = 6, .value = 1};

static void byte(by_string *out, unsigned value)
{
    uint8_t b = (uint8_t)value;
    by_string_add(out, &b, 1);
}

static void varint(by_string *out, uint64_t value)
{
    for (; value >= 128; value >>= 7) {
        byte(out, (unsigned)(value & 127) | 128);
    }
    byte(out, (unsigned)value);
}

/* The head of a field that is `step` behind the one before it. */
static void head(by_string *out, unsigned step, by__format_thrift_type type)
{
    byte(out, step << 4 | (unsigned)type);
}

static void whole(by_string *out, unsigned step, int64_t value)
{
    head(out, step, BY__THRIFT_I64);
    varint(out, (uint64_t)value << 1);
}

static void structs(by_string *out, unsigned step, unsigned count)
{
    head(out, step, BY__THRIFT_LIST);
    byte(out, count << 4 | BY__THRIFT_STRUCT);
}

static void name(by_string *out, unsigned step, size_t length)
{
    head(out, step, BY__THRIFT_BINARY);
    varint(out, length);
    for (size_t i = 0; i < length; i++) {
        byte(out, 'n');
    }
}

static void group(by_string *out, size_t length)
{
    name(out, 4, length);
    whole(out, 1, 1); /* children */
    byte(out, 0);
}

static void page(by_string *out, int type, const void *data, size_t size, const parts *p)
{
    unsigned step = type == 2 ? 4 : type == 3 ? 5 : 2;
    whole(out, 1, type);
    whole(out, 1, (int64_t)size);
    whole(out, 1, (int64_t)size);
    head(out, step, BY__THRIFT_STRUCT);
    whole(out, 1, VALUES);
    whole(out, type == 3 ? 3 : 1, type == 2 ? 0 : 3); /* PLAIN or RLE */
    if (type == 3) {
        whole(out, 1, p->levels);
        whole(out, 1, p->levels);
    }
    byte(out, 0);
    byte(out, 0);
    by_string_add(out, data, size);
}

static by_string build(const parts *p)
{
    const uint8_t run[6] = {2, 0, 0, 0, VALUES << 1, p->value};
    by_string out = {0};
    by__string_append(&out, "PAR1");
    if (p->dictionary) {
        page(&out, 2, "\xff", 1, p);
    }
    page(&out, p->levels != 0 ? 3 : 0, run, sizeof run, p);
    size_t end = out.length;
    structs(&out, 2, 3); /* the schema */
    group(&out, 1);
    group(&out, p->name_length);
    whole(&out, 1, 0); /* booleans */
    whole(&out, 2, 0); /* required */
    name(&out, 1, 1);
    byte(&out, 0);
    structs(&out, 2, 1); /* row groups */
    structs(&out, 1, 1); /* columns */
    head(&out, 3, BY__THRIFT_STRUCT);
    whole(&out, 4, 0); /* not compressed */
    whole(&out, 1, VALUES);
    whole(&out, 2, (int64_t)end - 4);
    whole(&out, 2, 4);
    byte(&out, 0);
    byte(&out, 0);
    whole(&out, 2, VALUES); /* rows */
    byte(&out, 0);
    byte(&out, 0);
    size_t length = out.length - end;
    for (size_t i = 0; i < 4; i++) {
        byte(&out, (unsigned)(length >> (8 * i) & 255));
    }
    by__string_append(&out, "PAR1");
    assert_false(out.failed);
    return out;
}

/* Reads the column. */
static by_status read(const parts *p, by__format_parquet_values *values, by_error *error)
{
    by__format_parquet file;
    by_string text = build(p);
    by_status status = by__format_parquet_open(&file, "file", (const uint8_t *)text.data,
                                               text.length, VALUES, error);
    if (status == BY_OK) {
        status = by__format_parquet_read(&file, 0, values, error);
    }
    by__format_parquet_close(&file);
    by_string_free(&text);
    return status;
}

static void refuse(const parts *p, const char *what)
{
    by_error error = {0};
    by__format_parquet_values values = {0};
    assert_int_equal(read(p, &values, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, what));
    assert_null(values.items);
}

static void test_good(void **state)
{
    (void)state;
    by_error error = {0};
    by__format_parquet_values values = {0};
    assert_int_equal(read(&good, &values, &error), BY_OK);
    assert_int_equal(values.count, VALUES);
    for (size_t i = 0; i < VALUES; i++) {
        assert_int_equal(values.items[i].as.integer, 1);
    }
    by__format_parquet_values_free(&values);
}

static void test_broken(void **state)
{
    (void)state;
    parts p = good;
    p.value = 2; /* of one bit */
    refuse(&p, "too short for its values");
    p = good;
    p.dictionary = true; /* eight values a byte: a page of a compressed GiB would be 200 GB */
    refuse(&p, "its dictionary");
    p = good;
    p.levels = INT64_MAX; /* whose sum overflows */
    refuse(&p, "levels of a list");
    p = good;
    p.name_length = 1025; /* as many copies as columns */
    refuse(&p, "1,024");
    p.name_length = 1022;
    by__format_parquet_values values = {0};
    assert_int_equal(read(&p, &values, NULL), BY_OK);
    by__format_parquet_values_free(&values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
