/* JSON from outside: what is read, what is refused, and what is written again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

static json_t *load(const char *text, size_t flags)
{
    json_error_t where;
    json_t *value = by__json_read(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &where);
    if (value == NULL) {
        fail_msg("%s: %s", text, where.text);
    }
    return value;
}

/* Reads a text and writes it. */
static void check_again(const char *text, const char *wanted, size_t flags)
{
    json_t *value = load(text, flags);
    char *out = by__json_dump(value, JSON_COMPACT);
    assert_string_equal(out, wanted);
    free(out);
    json_decref(value);
}

static void test_numbers_are_kept(void **state)
{
    static const char *const same[] = {"0",
                                       "-1",
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "9223372036854775808",
                                       "-9223372036854775809",
                                       "18446744073709551615",
                                       "123456789012345678901234567890",
                                       "1e400",
                                       "-1E+999999999999",
                                       "0.1",
                                       "0.3",
                                       "-2.5",
                                       "1.0",
                                       "123456.789",
                                       "1e-5",
                                       "1e30",
                                       "0.0001",
                                       "1.7976931348623157e308",
                                       "4.94065645841247e-324",
                                       "3.141592653589793",
                                       "100000.0",
                                       "[1e400,{\"a\":99999999999999999999}]"};
    static const struct {
        const char *text, *wanted;
    } rows[] = {{"-0", "0"},         {"-0.0", "-0.0"},
                {"0.10", "0.1"},     {"1E2", "100.0"},
                {"1e-400", "0.0"},   {"1e+30", "1e30"},
                {"0.00001", "1e-5"}, {"0.1000000000000000055511151231257827", "0.1"}};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(same); i++) {
        check_again(same[i], same[i], 0);
        check_again(same[i], same[i], BY__JSON_SPELLED);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        check_again(rows[i].text, rows[i].wanted, 0);
    }
    check_again("[1.10,1E2,-0.0,5]", "[1.10,1E2,-0.0,5]", BY__JSON_SPELLED);
}

static void test_numbers_have_values(void **state)
{
    json_t *list = load("[18446744073709551616,-1e400,7,0.5,\"1\",{}]", 0);
    (void)state;
    assert_true(by__json_double(json_array_get(list, 0)) == 18446744073709551616.0);
    assert_true(isinf(by__json_double(json_array_get(list, 1))));
    assert_string_equal(by__json_spelled(json_array_get(list, 1)), "-1e400");
    assert_true(by__json_double(json_array_get(list, 2)) == 7.0);
    assert_true(by__json_is_number(json_array_get(list, 0)));
    assert_true(by__json_is_number(json_array_get(list, 3)));
    assert_false(by__json_is_number(json_array_get(list, 4)));
    assert_false(by__json_is_number(json_array_get(list, 5)));
    assert_false(json_is_number(json_array_get(list, 0)));
    assert_false(json_is_string(json_array_get(list, 0)));
    json_decref(list);
    list = load("[5, 1e400]", JSON_DECODE_INT_AS_REAL);
    assert_true(json_real_value(json_array_get(list, 0)) == 5.0);
    json_decref(list);
}

/* Every double that is written reads back as the same bits, here and by jansson. */
static void test_reals_read_back(void **state)
{
    const uint32_t key[2] = {7, 11};
    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t bits[4];
        const uint32_t counter[4] = {i, 0, 0, 0};
        double value;
        by__philox(bits, key, counter);
        uint64_t word = (uint64_t)bits[0] << 32 | bits[1];
        memcpy(&value, &word, 8);
        value = i % 3 == 0   ? (double)(bits[0] % 1000000) / 1000.0
                : i % 3 == 1 ? (double)(float)(bits[0] / 4e9)
                             : value;
        if (!isfinite(value)) {
            continue;
        }
        json_t *real = json_real(value);
        char *text = by__json_dump(real, 0);
        json_t *ours = load(text, 0);
        json_t *theirs = json_loads(text, JSON_DECODE_ANY, NULL);
        assert_true(json_is_real(ours));
        assert_true(json_equal(ours, real));
        assert_true(json_equal(theirs, real));
        json_decref(theirs);
        json_decref(ours);
        json_decref(real);
        free(text);
    }
}

static void test_strings(void **state)
{
    static const struct {
        const char *text, *wanted;
        size_t flags;
    } rows[] = {
        {"\"a\\u0000b\"", "\"a\\u0000b\"", JSON_ALLOW_NUL},
        {"\"a\\u0000b\"",
         "\"a\xef\xbf\xbd"
         "b\"",
         0},
        {"\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"", 0},
        {"\"\\ud83d\"", "\"\xef\xbf\xbd\"", 0},
        {"\"\\ude00x\"", "\"\xef\xbf\xbdx\"", 0},
        {"\"\\ud83d\\ud83d\\ude00\"", "\"\xef\xbf\xbd\xf0\x9f\x98\x80\"", 0},
        {"\"\\ud83d\\n\"", "\"\xef\xbf\xbd\\n\"", 0},
        {"{\"\\ufffd\":2,\"\\u0000\":1,\"\\ud800\":3}", "{\"\xef\xbf\xbd\":3}", JSON_ALLOW_NUL},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u001f\\u007F\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u001F\x7f\"",
         0},
        {"\xef\xbb\xbf {\"a\" : [ ] }", "{\"a\":[]}", 0},
        {"\"0123456789abcdef\xc3\xa4 \x7f\"", "\"0123456789abcdef\xc3\xa4 \x7f\"", 0},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        check_again(rows[i].text, rows[i].wanted, rows[i].flags);
    }
    json_t *value = load("[\"a\\u0000b\",\"ab\",1]", JSON_ALLOW_NUL);
    assert_int_equal(json_string_length(json_array_get(value, 0)), 3);
    assert_null(by__json_string(json_array_get(value, 0)));
    assert_string_equal(by__json_string(json_array_get(value, 1)), "ab");
    assert_null(by__json_string(json_array_get(value, 2)));
    json_decref(value);
}

static void test_stays_strict(void **state)
{
    static const char *const rows[] = {"",
                                       "[",
                                       "{",
                                       "[1,]",
                                       "{\"a\":1,}",
                                       "{\"a\"}",
                                       "{a:1}",
                                       "[1 2]",
                                       "[01]",
                                       "[-]",
                                       "[1.]",
                                       "[.5]",
                                       "[1e]",
                                       "[+1]",
                                       "[NaN]",
                                       "[Infinity]",
                                       "[tru]",
                                       "[truex]",
                                       "['a']",
                                       "[\"a]",
                                       "[\"\\x\"]",
                                       "[\"\\u12g4\"]",
                                       "[\"\\u12\"]",
                                       "[\"\t\"]",
                                       "[\"\xff\"]",
                                       "[\"\xed\xa0\x80\"]",
                                       "[\"\xc0\x80\"]",
                                       "[] x",
                                       "{} {}",
                                       "{\"a\":1,\"a\":2}",
                                       "\xef\xbb\xbf",
                                       "[\x01]",
                                       "\xef\xbb\xbf\xef\xbb\xbf[]",
                                       "[1e400,]",
                                       "[\"\\ud83d\\u12\"]",
                                       "{\"a\":1 \"b\":2}",
                                       "]"};
    json_error_t where;
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        json_t *value = by__json_read(rows[i], JSON_REJECT_DUPLICATES, &where);
        if (value != NULL || where.text[0] == '\0') {
            fail_msg("read: %s", rows[i]);
        }
    }
    assert_null(by_json_load("[]\0", 3, 0, &where));
    assert_null(by__json_read("7", 0, &where));
    assert_null(by__json_read(NULL, 0, NULL));
    assert_null(by__json_read("{\n \"a\": [1,\n  x]}", 0, &where));
    assert_int_equal(where.line, 3);
    assert_int_equal(where.column, 2);
    assert_string_equal(where.text, "invalid token near 'x]}'");
    char deep[2 * BY__JSON_DEPTH + 3];
    memset(deep, '[', sizeof deep);
    memset(deep + BY__JSON_DEPTH + 1, ']', BY__JSON_DEPTH + 1);
    deep[2 * BY__JSON_DEPTH + 2] = '\0';
    assert_null(by__json_read(deep, 0, &where));
    deep[2 * BY__JSON_DEPTH + 1] = '\0';
    json_t *value = by__json_read(deep + 1, 0, &where);
    assert_non_null(value);
    json_decref(value);
}

static void test_member(void **state)
{
    static const char text[] = "\xef\xbb\xbf{\"big\": [1e400, {\"text\": \"inner\"}], "
                               "\"t\\u0065xt\": \"a\\ud800\", \"text\" : \"b\\u0000\", \"x\": 1}";
    json_error_t where;
    json_t *value;
    (void)state;
    assert_true(by__json_member(&value, text, strlen(text), "text", JSON_ALLOW_NUL, &where));
    assert_int_equal(json_string_length(value), 2);
    assert_memory_equal(json_string_value(value), "b", 2);
    json_decref(value);
    assert_true(by__json_member(&value, text, strlen(text), "none", 0, &where));
    assert_null(value);
    /* Given twice: the last, or an error. */
    static const char twice[] = "{\"x\": 1, \"x\": 2, \"text\": 1, \"text\": 2}";
    assert_true(by__json_member(&value, twice, strlen(twice), "text", 0, &where));
    assert_int_equal(json_integer_value(value), 2);
    json_decref(value);
    assert_false(
        by__json_member(&value, twice, strlen(twice), "text", JSON_REJECT_DUPLICATES, &where));
    assert_non_null(strstr(where.text, "duplicate object key \"text\""));
    assert_false(by__json_member(&value, "[{\"text\":1}]", 12, "text", 0, &where));
    assert_int_equal(where.line, -1);
    assert_false(by__json_member(&value, "{\"text\":1, \"a\":[}", 17, "text", 0, &where));
    assert_int_equal(where.line, 1);
    assert_false(by__json_member(&value, "{\"text\":1} 2", 12, "text", 0, NULL));
}

/* What jansson writes is written here, too, but for the digits of reals. */
static void test_writes_as_jansson(void **state)
{
    static const size_t flags[] = {0,
                                   JSON_COMPACT,
                                   JSON_INDENT(2),
                                   JSON_INDENT(4) | JSON_SORT_KEYS,
                                   JSON_COMPACT | JSON_ENSURE_ASCII,
                                   JSON_REAL_PRECISION(17),
                                   JSON_COMPACT | JSON_REAL_PRECISION(9)};
    json_t *value = load("{\"z\":[],\"a\":{},\"m\":[1,-7,0.5,true,false,null,\"x\\u0001\\u20ac\\/"
                         "\\ud83d\\ude00\"],\"d\":{\"c\":[1e-7,2e30,100.0,0.25]}}",
                         0);
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(flags); i++) {
        char *ours = by__json_dump(value, flags[i]);
        char *theirs =
            json_dumps(value, flags[i] | (flags[i] < 2048 ? JSON_REAL_PRECISION(15) : 0));
        assert_string_equal(ours, theirs);
        free(ours);
        free(theirs);
    }
    json_decref(value);
}

static void test_writes_broken_text(void **state)
{
    json_t *value = json_stringn_nocheck("\xe3\x81x\xed\xa0", 5);
    char *plain = by__json_dump(value, JSON_ENCODE_ANY);
    char *ascii = by__json_dump(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    (void)state;
    assert_string_equal(plain, "\"\xef\xbf\xbdx\xef\xbf\xbd\xef\xbf\xbd\"");
    assert_string_equal(ascii, "\"\\uFFFDx\\uFFFD\\uFFFD\"");
    free(plain);
    free(ascii);
    json_decref(value);
}

static void test_compact(void **state)
{
    static const char text[] = " { \"a b\" : [ 1.10 , \"\\\" }\" ] ,\n\t\"c\" : 1E2 } ";
    by_string out = {0};
    (void)state;
    by__json_compact(&out, text, strlen(text));
    assert_string_equal(out.data, "{\"a b\":[1.10,\"\\\" }\"],\"c\":1E2}");
    by_string_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_kept),   cmocka_unit_test(test_numbers_have_values),
        cmocka_unit_test(test_reals_read_back),    cmocka_unit_test(test_strings),
        cmocka_unit_test(test_stays_strict),       cmocka_unit_test(test_member),
        cmocka_unit_test(test_writes_as_jansson),  cmocka_unit_test(test_compact),
        cmocka_unit_test(test_writes_broken_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
