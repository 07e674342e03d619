/* Names and values of a Feast online store, against bytes that Feast itself makes: those below are
 * of feast 0.67.0 (feast.infra.key_encoding_utils.serialize_entity_key, _redis_key and _mmh3 of
 * feast.infra.online_stores.helpers, Value.SerializeToString), printed in hexadecimal. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/features/feast_key.h"
#include "serve/features/feast_value.h"
#include "serve/features/murmur3.h"

static void to_hex(char *out, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
    out[2 * size] = '\0';
}

static size_t from_hex(uint8_t *out, const char *hex)
{
    size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return size;
}

static void test_murmur3(void **state)
{
    static const struct {
        const char *text;
        uint32_t hash;
    } rows[] = {{"", 0x00000000},    {"a", 0x3c2569b2},    {"ab", 0x9bbfd75f},
                {"abc", 0xb3dd93fa}, {"abcd", 0x43ed676a}, {"hello", 0x248bfa47}};
    char hex[16];
    uint8_t field[4];
    by_error error = {0};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        assert_int_equal(by__feature_murmur3_32(rows[i].text, strlen(rows[i].text), 0),
                         rows[i].hash);
    }
    assert_int_equal(by__feature_feast_field(field, "driver_hourly_stats", "conv_rate", &error),
                     BY_OK);
    to_hex(hex, field, sizeof field);
    assert_string_equal(hex, "6160e3da");
    assert_int_equal(by__feature_feast_field(field, "n\u00e9", "\u2603", &error), BY_OK);
    to_hex(hex, field, sizeof field);
    assert_string_equal(hex, "8367d5e8");
}

typedef struct key_row {
    by__feature_feast_join_key keys[2];
    const char *values; /* a list of JSON */
    const char *hex[2]; /* of versions 2 and 3 */
} key_row;

static const key_row key_rows[] = {
    {{{"driver_id", BY__FEAST_INT64}},
     "[1001]",
     {"020000006472697665725f69640400000008000000e90300000000000070726f6a",
      "0100000002000000090000006472697665725f69640400000008000000e90300000000000070726f6a"}},
    {{{"customer", BY__FEAST_STRING}, {"driver_id", BY__FEAST_INT64}},
     "[\"n\u00e9\", -2]",
     {"02000000637573746f6d6572020000006472697665725f696402000000030000006ec3a904000000080000"
      "00feffffffffffffff70726f6a",
      "020000000200000008000000637573746f6d657202000000090000006472697665725f6964020000000300"
      "00006ec3a90400000008000000feffffffffffffff70726f6a"}},
    {{{"zone", BY__FEAST_INT32}},
     "[-7]",
     {"020000007a6f6e650300000004000000f9ffffff70726f6a",
      "0100000002000000040000007a6f6e650300000004000000f9ffffff70726f6a"}},
    {{{"b", BY__FEAST_BYTES}},
     "[\"AP8=\"]",
     {"0200000062010000000200000000ff70726f6a",
      "01000000020000000100000062010000000200000000ff70726f6a"}},
    {{{"at", BY__FEAST_TIME}},
     "[1700000000]",
     {"020000006174080000000800000000f153650000000070726f6a",
      "0100000002000000020000006174080000000800000000f153650000000070726f6a"}},
    {{{"s", BY__FEAST_STRING}},
     "[\"\"]",
     {"0200000073020000000000000070726f6a", "01000000020000000100000073020000000000000070726f6a"}},
};

static by_status make_key(by_string *out, const key_row *row, const char *values, int version,
                          by_error *error)
{
    const json_t *of[2];
    json_t *list = json_loads(values, 0, NULL);
    assert_non_null(list);
    size_t count = json_array_size(list);
    for (size_t i = 0; i < count; i++) {
        of[i] = json_array_get(list, i);
    }
    by_status status = by__feature_feast_key(out, row->keys, of, count, version, "proj", error);
    json_decref(list);
    return status;
}

static void test_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(key_rows); i++) {
        for (int version = 2; version <= 3; version++) {
            char hex[512];
            by_string key = {0};
            by_error error = {0};
            assert_int_equal(make_key(&key, &key_rows[i], key_rows[i].values, version, &error),
                             BY_OK);
            to_hex(hex, key.data, key.length);
            assert_string_equal(hex, key_rows[i].hex[version - 2]);
            by_string_free(&key);
        }
    }
}

static void test_wrong_entities(void **state)
{
    static const struct {
        size_t row;
        const char *values;
        const char *message;
    } rows[] = {{0, "[\"1001\"]", "the entity's 'driver_id' must be an integer"},
                {0, "[1001.0]", "the entity's 'driver_id' must be an integer"},
                {0, "[null]", "the entity's 'driver_id' is missing"},
                {0, "[[1]]", "the entity's 'driver_id' must be an integer"},
                {2, "[2147483648]", "the entity's 'zone' does not fit 32 bits"},
                {3, "[\"A\"]", "the entity's 'b' must be bytes in base64"},
                {5, "[7]", "the entity's 's' must be a text"}};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_string key = {0};
        by_error error = {0};
        assert_int_equal(make_key(&key, &key_rows[rows[i].row], rows[i].values, 3, &error),
                         BY_EARG);
        assert_string_equal(error.message, rows[i].message);
        by_string_free(&key);
    }
    char values[BY__FEAST_MAX_TEXT + 8];
    by_string key = {0};
    by_error error = {0};
    (void)snprintf(values, sizeof values, "[\"%0*d\"]", BY__FEAST_MAX_TEXT + 1, 0);
    assert_int_equal(make_key(&key, &key_rows[5], values, 3, &error), BY_EARG);
    assert_string_equal(error.message, "the entity's 's' has 1025 bytes; 1024 are possible");
    by_string_free(&key);
}

static bool read_value(by__feature_feast_value *out, uint8_t bytes[64], const char *hex)
{
    return by__feature_feast_value_read(out, bytes, from_hex(bytes, hex));
}

static void test_values(void **state)
{
    uint8_t bytes[64];
    by__feature_feast_value v;
    (void)state;
    assert_true(read_value(&v, bytes, "18ffffffffffffffffff01"));
    assert_true(v.kind == BY__FEAST_VALUE_INTEGER && v.integer == -1);
    assert_true(read_value(&v, bytes, "208180808080808010"));
    assert_true(v.kind == BY__FEAST_VALUE_INTEGER && v.integer == 9007199254740993);
    assert_true(read_value(&v, bytes, "299a9999999999b93f"));
    assert_true(v.kind == BY__FEAST_VALUE_REAL && v.real == 0.1);
    assert_true(read_value(&v, bytes, "35cdcccc3d"));
    assert_true(v.kind == BY__FEAST_VALUE_REAL && v.real == (double)0.1F);
    assert_true(read_value(&v, bytes, "350000c07f"));
    assert_true(v.kind == BY__FEAST_VALUE_REAL && isnan(v.real));
    assert_true(read_value(&v, bytes, "3800"));
    assert_true(v.kind == BY__FEAST_VALUE_INTEGER && v.integer == 0);
    assert_true(read_value(&v, bytes, "40fbffffffffffffffff01"));
    assert_true(v.kind == BY__FEAST_VALUE_TIME && v.integer == -5);
    assert_true(read_value(&v, bytes, "1205636166c3a9"));
    assert_true(v.kind == BY__FEAST_VALUE_TEXT && v.length == 5 &&
                memcmp(v.text, "caf\u00e9", 5) == 0);
    assert_true(read_value(&v, bytes, "980100") && v.kind == BY__FEAST_VALUE_NULL);
    assert_true(read_value(&v, bytes, "") && v.kind == BY__FEAST_VALUE_NULL);
    assert_true(read_value(&v, bytes, "0a020001") && v.kind == BY__FEAST_VALUE_OTHER);
    assert_true(read_value(&v, bytes, "72040a020102") && v.kind == BY__FEAST_VALUE_OTHER);
    /* Of two values the last one counts. */
    assert_true(read_value(&v, bytes, "3801299a9999999999b93f") && v.kind == BY__FEAST_VALUE_REAL);
}

static void test_wrong_values(void **state)
{
    static const char *const rows[] = {
        "20",                     /* cut behind the tag */
        "2080",                   /* within a varint */
        "20ffffffffffffffffff02", /* more than 64 bits */
        "299a99999999",           /* within a double */
        "1205636166",             /* within a text */
        "12ffffffffffffffffff01", /* a text longer than memory */
        "1202c328",               /* no UTF-8 */
        "12036100b0",             /* U+0000 */
        "35cdcccc3d00",           /* a field 0 */
        "2a0131",                 /* a double as text */
        "200b2b",                 /* a group */
    };
    uint8_t bytes[64];
    by__feature_feast_value v = {0};
    double seconds = 0.0;
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        assert_false(read_value(&v, bytes, rows[i]));
    }
    assert_true(
        by__feature_feast_time_read(&seconds, bytes, from_hex(bytes, "0880e2cfaa061080cab5ee01")));
    assert_true(seconds == 1700000000.5);
    assert_true(by__feature_feast_time_read(&seconds, bytes, 0) && seconds == 0.0);
    assert_false(by__feature_feast_time_read(&seconds, bytes, from_hex(bytes, "0d80e2cfaa")));
    assert_false(by__feature_feast_time_read(&seconds, bytes, from_hex(bytes, "1080a8d6b907")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_murmur3),        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_wrong_entities), cmocka_unit_test(test_values),
        cmocka_unit_test(test_wrong_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
