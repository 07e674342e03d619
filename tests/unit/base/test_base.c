/* base: half-precision conversion, Philox, sizes, text, files. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/exit.h"
#include "banyan/path_hint.h"
#include "base/base.h"
#include "base/half.h"
#include "base/hash_table.h"
#include "base/heap.h"
#include "base/host/executable.h"
#include "base/paths.h"
#include "base/wire/authorities.h"
#include "runner.h"
#include "temporary.h"

/* ---- half types: an oracle that reads the formats' definitions in double ---- */

typedef struct format {
    const char *name;
    int mantissa;
    int bias;
    int exponents; /* number of exponent codes, the last for infinities and NaN */
    uint16_t (*narrow)(float);
    float (*widen)(uint16_t);
} format;

static const format formats[] = {{"bf16", 7, 127, 256, by__f32_to_bf16, by__bf16_to_f32},
                                 {"f16", 10, 15, 32, by__f32_to_f16, by__f16_to_f32}};

static double value_of(const format *f, uint16_t h)
{
    int fraction = h & ((1 << f->mantissa) - 1);
    int exponent = (h & 0x7fff) >> f->mantissa;
    double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == f->exponents - 1) {
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    double scaled = exponent == 0 ? ldexp((double)fraction, 1 - f->bias - f->mantissa)
                                  : ldexp((double)(fraction + (1 << f->mantissa)),
                                          exponent - f->bias - f->mantissa);
    return sign * scaled;
}

/* All 65536 codes: value, and back to the same code. */
static void test_every_half(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; k < 2; k++) {
        const format *f = &formats[k];
        for (uint32_t h = 0; h < 65536; h++) {
            double want = value_of(f, (uint16_t)h);
            float have = f->widen((uint16_t)h);
            if (isnan(want)) {
                assert_true(isnan(have));
                assert_true(isnan(f->widen(f->narrow(have))));
            } else {
                assert_true((double)have == want && (signbit(have) != 0) == (signbit(want) != 0));
                assert_int_equal(f->narrow(have), h);
            }
        }
    }
}

/* Between every two neighbours: the tie goes to the even code, what is nearer to one goes there.
 * The point in the middle is exact in f32 for both formats. */
static void test_rounding(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; k < 2; k++) {
        const format *f = &formats[k];
        int last = (f->exponents - 1) << f->mantissa; /* infinity */
        for (int h = 0; h < last; h++) {
            double low = value_of(f, (uint16_t)h);
            double high = h + 1 == last ? 2.0 * low - value_of(f, (uint16_t)(h - 1))
                                        : value_of(f, (uint16_t)(h + 1));
            float middle = (float)((low + high) / 2.0);
            assert_true((double)middle == (low + high) / 2.0);
            int even = h % 2 == 0 ? h : h + 1;
            for (int sign = 0; sign < 2; sign++) {
                float s = sign == 0 ? 1.0f : -1.0f;
                uint16_t bit = (uint16_t)(sign << 15);
                assert_int_equal(f->narrow(s * middle), even | bit);
                assert_int_equal(f->narrow(s * nextafterf(middle, 0.0f)), h | bit);
                assert_int_equal(f->narrow(s * nextafterf(middle, INFINITY)), (h + 1) | bit);
            }
        }
        assert_int_equal(f->narrow(INFINITY), last);
        assert_int_equal(f->narrow(-INFINITY), last | 0x8000);
        assert_int_equal(f->narrow(FLT_MAX), last);
        assert_true(isnan(f->widen(f->narrow(NAN))));
        /* A NaN whose payload is in the bits that are cut off stays a NaN. */
        assert_true(isnan(f->widen(f->narrow(by__bits_float(0x7f800001u)))));
    }
}

/* ---- randomness ---- */

/* The known answers that Salmon et al. publish with Random123 for philox4x32-10. */
static void test_philox(void **state)
{
    BY_UNUSED(state);
    static const struct {
        uint32_t counter[4];
        uint32_t key[2];
        uint32_t want[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(known); i++) {
        uint32_t have[4];
        by__philox(have, known[i].key, known[i].counter);
        assert_memory_equal(have, known[i].want, sizeof have);
    }
    uint32_t a[2];
    uint32_t b[2];
    by__philox_key(a, 1, 2);
    by__philox_key(b, 2, 1);
    assert_memory_not_equal(a, b, sizeof a);
    assert_true(by__unit_float(0) == 0.0f && by__unit_float(0xffffffffu) < 1.0f);
}

/* ---- sizes ---- */

static void test_sizes(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    size_t out = 7;
    void *p = NULL;
    assert_true(by__size_mul(1u << 20, 1u << 20, &out) && out == (size_t)1 << 40);
    out = 7;
    assert_false(by__size_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_false(by__size_add(SIZE_MAX, 1, &out));
    assert_int_equal(out, 7);
    by_status status = by__alloc(&p, SIZE_MAX / 4, 8, "rows", &error);
    check_error(status, BY_EMEMORY, &error, "rows");
    status = by__alloc_aligned(&p, SIZE_MAX - 3, "pages", &error);
    check_error(status, BY_EMEMORY, &error, "pages");
    size_t capacity = 0;
    status = by__reserve(&p, &capacity, SIZE_MAX / 2, 16, &error);
    check_error(status, BY_EMEMORY, &error, "overflow");
    assert_true(p == NULL && capacity == 0);
    check_ok(by__reserve(&p, &capacity, 9, 4, &error), &error);
    assert_true(capacity >= 9);
    free(p);
    check_ok(by__alloc_aligned(&p, 1, "one", &error), &error);
    assert_int_equal((uintptr_t)p % 64, 0);
    free(p);
}

/* ---- text ---- */

static void test_bytes(void **state)
{
    BY_UNUSED(state);
    char text[32];
    assert_string_equal(by_format_bytes(text, 1023), "1023 B");
    assert_string_equal(by_format_bytes(text, 3u << 19), "1.5 MiB");
    assert_string_equal(by_format_bytes(text, UINT64_MAX), "16.0 EiB");
}

static void test_nearest_names(void **state)
{
    BY_UNUSED(state);
    static const char *const names[] = {"layers", "heads", "kv_heads", "width"};
    assert_int_equal(by__edit_distance("", ""), 0);
    assert_int_equal(by__edit_distance("", "abc"), 3);
    assert_int_equal(by__edit_distance("kitten", "sitting"), 3);
    assert_int_equal(by__edit_distance("sitting", "kitten"), 3);
    assert_int_equal(by__edit_distance("flaw", "lawn"), 2);
    char text[200];
    memset(text, 'a', sizeof text);
    text[63] = '\0';
    assert_int_equal(by__edit_distance(text, ""), 63);
    assert_int_equal(by__edit_distance(text, text), 0);
    text[63] = 'a';
    text[199] = '\0';
    assert_true(by__edit_distance(text, text) >= 64);
    assert_string_equal(by_nearest_name("layer", names, 4), "layers");
    assert_string_equal(by_nearest_name("kvheads", names, 4), "kv_heads");
    assert_null(by_nearest_name("optimizer", names, 4));
    static const char *const letters[] = {"a", " b", "c"};
    assert_string_equal(by_nearest_name("b", letters, 3), " b");
    assert_null(by_nearest_name("d", letters, 3));
    assert_string_equal(by_nearest_name("C", letters, 3), "c");
    assert_string_equal(by_nearest_name("KV_HEADS", names, 4), "kv_heads");
}

static void test_json_text(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_string text = {0};
    char *out;
    /* the last sequences are cut */
    static const char raw[] = "a\"\\\n\x01\x7f\xc3\xa9\xff\xe2\x82";
    by_string_json(&text, raw, sizeof raw - 1);
    check_ok(by__string_release(&text, &out, &error), &error);
    assert_string_equal(out, "\"a\\\"\\\\\\n\\u0001\\u007f\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\"");
    free(out);
    assert_true(by__utf8_valid("\xf0\x9f\x8c\xb3", 4));
    assert_false(by__utf8_valid("\xf0\x9f\x8c", 3));
    assert_false(by__utf8_valid("\xc0\xaf", 2));     /* overlong */
    assert_false(by__utf8_valid("\xed\xa0\x80", 3)); /* surrogate */
    assert_false(by__utf8_valid("\xf4\x90\x80\x80", 4));
}

/* As bytes.decode("utf-8", "replace") of Python has it; '?' stands for U+FFFD. */
static void test_broken_utf8(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *bytes;
        const char *want;
    } cases[] = {
        {"a\xe3\x81"
         "b",
         "a?b"},
        {"\xe3\x81\xe3\x81\x82", "?\xe3\x81\x82"},
        {"\xf0\x9f\x98", "?"},
        {"\xf0\x9f\x98x", "?x"},
        {"\xf0\x80\x80\x80", "????"},
        {"\xed\xa0\x80", "???"},
        {"\xe0\x80", "??"},
        {"\xc0\xaf", "??"},
        {"\xff\xfe", "??"},
        {"\xf4\x90\x80\x80", "????"},
        {"\xf4\x8f\xbfx", "?x"},
        {"\x80\xbf", "??"},
        {"\xc3", "?"},
        {"\xc3\xc3\xa9", "?\xc3\xa9"},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
         "A",
         "????A"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        by_string want = {0};
        by_string valid = {0};
        by_string json = {0};
        for (const char *c = cases[i].want; *c != '\0'; c++) {
            by_string_format(&want, *c == '?' ? "\xef\xbf\xbd" : "%c", *c);
        }
        by__string_add_valid(&valid, cases[i].bytes, strlen(cases[i].bytes));
        by_string_json(&json, cases[i].bytes, strlen(cases[i].bytes));
        check_ok(by_string_check(&want, &error), &error);
        assert_string_equal(valid.data, want.data);
        assert_memory_equal(json.data + 1, want.data, want.length);
        assert_int_equal(json.length, want.length + 2);
        by_string_free(&want);
        by_string_free(&valid);
        by_string_free(&json);
    }
}

static void test_public_string(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_string text = {0};
    by_string_format(&text, "%d", 7);
    by_string_add(&text, ",:", 1);
    by_string_json(&text, "a\n", 2);
    check_ok(by_string_check(&text, &error), &error);
    assert_string_equal(text.data, "7,\"a\\n\"");
    assert_int_equal(text.length, 7);
    by_string_add(&text, "", SIZE_MAX);
    assert_int_equal(by_string_check(&text, &error), BY_EMEMORY);
    by_string_free(&text);
    assert_null(text.data);
    assert_true(by_name_listed("ab|c", "ab"));
    assert_true(by_name_listed("ab|c", "c"));
    assert_false(by_name_listed("ab|c", "a"));
    assert_false(by_name_listed("ab|c", "b|c|"));
}

static void test_trim(void **state)
{
    BY_UNUSED(state);
    const char *s = "\n \t1\xa0\r ";
    size_t n = strlen(s);
    by__trim(&s, &n, BY__BLANKS);
    assert_int_equal(n, 6);
    by__trim(&s, &n, BY__WHITE_SPACE);
    assert_int_equal(n, 2);
    assert_int_equal(s[0], '1');
    s = " \v";
    n = 2;
    by__trim(&s, &n, BY__WHITE_SPACE);
    assert_int_equal(n, 0);
}

/* What is no encoding of any bytes is refused: blanks, padding within, bits behind the last byte.
 * */
static void test_base64(void **state)
{
    static const char *const digits[] = {"", "AA==", "AP8=", "AP+A", "AP+A/w=="};
    static const char *const refused[] = {"A",    "AAA",      "A===",     "====",     "=AAA",
                                          "AA=A", "AA==AA==", "AA ==AA=", "AAAA    ", "AAA\n",
                                          "AP8_", "AB==",     "AP9="};
    static const uint8_t bytes[] = {0x00, 0xff, 0x80, 0xff};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(digits); i++) {
        by_string text = {0};
        uint8_t out[BY__BASE64_BYTES(8)];
        size_t n = 0;
        by__string_add_base64(&text, bytes, i);
        assert_false(text.failed);
        assert_string_equal(text.data, digits[i]);
        assert_true(by__read_base64(text.data, text.length, out, &n));
        assert_int_equal(n, i);
        assert_memory_equal(out, bytes, n);
        by_string_free(&text);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused); i++) {
        uint8_t out[BY__BASE64_BYTES(8)];
        size_t n = 99;
        assert_false(by__read_base64(refused[i], strlen(refused[i]), out, &n));
        assert_int_equal(n, 99);
    }
}

/* Numbers whose hashes agree in all bits that the table keeps are found one after the other. */
static void test_table(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__base_table table = {0};
    by__base_probe none = by__base_probe_begin(&table, 7);
    assert_false(by__base_probe_next(&table, &none));
    for (size_t i = 0; i < 1000; i++) {
        check_ok(by__base_table_add(&table, (i % 500) << 60 | i % 500, i, "numbers", &error),
                 &error);
        assert_true(2 * table.count <= table.slot_count);
    }
    for (size_t i = 0; i < 501; i++) {
        size_t sum = 0;
        size_t found = 0;
        for (by__base_probe p = by__base_probe_begin(&table, i); by__base_probe_next(&table, &p);) {
            sum += p.number;
            found++;
        }
        assert_int_equal(found, i < 500 ? 2 : 0);
        assert_int_equal(sum, i < 500 ? 2 * i + 500 : 0);
    }
    assert_int_equal(by__base_table_add(&table, 0, (size_t)1 << 31, "numbers", &error), BY_EMEMORY);
    assert_int_equal(table.count, 1000);
    by__base_table_free(&table);
}

static bool is_above(const void *user, const void *a, const void *b)
{
    ++*(size_t *)(uintptr_t)user;
    return *(const uint16_t *)a > *(const uint16_t *)b;
}

/* Items of any size leave in order, those of an array that was made a heap as those pushed. */
static void test_heap(void **state)
{
    uint16_t items[100][3];
    size_t calls = 0;
    BY_UNUSED(state);
    for (size_t way = 0; way < 2; way++) {
        for (size_t i = 0; i < 100; i++) {
            uint16_t item[3] = {(uint16_t)(i * 37 % 50), (uint16_t)i, (uint16_t)~i};
            if (way == 0) {
                by__heap_push(items, i, sizeof item, item, is_above, &calls);
            } else {
                memcpy(items[i], item, sizeof item);
            }
        }
        for (size_t i = 100; i-- > 0 && way == 1;) {
            uint16_t item[3];
            memcpy(item, items[i], sizeof item);
            by__heap_sink(items, 100, sizeof item, i, item, is_above, &calls);
        }
        for (size_t i = 0; i < 100; i++) {
            uint16_t first[3];
            by__heap_pop(items, 100 - i, sizeof first, first, is_above, &calls);
            assert_int_equal(first[0], 49 - i / 2);
            assert_int_equal(first[0], first[1] * 37 % 50);
            assert_int_equal(first[2], (uint16_t)~first[1]);
        }
    }
    assert_true(calls < 2 * 100 * 24);
}

/* Errors that no retry mends, and those of other ranks, have codes of their own. */
static void test_exit_codes(void **state)
{
    size_t count;
    const by_exit_row *rows = by_exit_rows(&count);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        assert_true(i == 0 || rows[i].code > rows[i - 1].code);
        assert_string_equal(by_exit_name(rows[i].code), rows[i].name);
        assert_int_equal(by_exit_retry(rows[i].code), rows[i].retry);
    }
    assert_string_equal(by_exit_name(137), "crash");
    assert_true(by_exit_retry(137));
    assert_false(by_exit_retry(BY_EXIT_CONFIG));
    assert_int_equal(by_exit_of(BY_OK), 0);
    assert_int_equal(by_exit_of(BY_ECONFIG), 2);
    assert_int_equal(by_exit_of(BY_EARG), 2);
    assert_int_equal(by_exit_of(BY_EIO), 1);
    assert_int_equal(by_exit_of(BY_EPEER), 6);
    assert_int_equal(by_exit_of(BY_ECORRUPT), 5);
    assert_int_equal(by_exit_of(BY_EDIVERGED), 7);
    assert_false(by_exit_retry(BY_EXIT_DIVERGED));
    assert_int_equal(by_exit_of(BY_ESTOPPED), 130);
}

static void test_errors(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    char longest[1000];
    memset(longest, 'x', sizeof longest);
    longest[999] = '\0';
    assert_int_equal(by_error_set(&error, BY_EIO, "%s", longest), BY_EIO);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    assert_int_equal(by_error_prefix(&error, BY_EIO, "%s", longest), BY_EIO);
    assert_true(strlen(error.message) < sizeof error.message);
    assert_non_null(strstr(error.message, "x: x"));
    (void)by_error_set(&error, BY_EARG, "wrong");
    (void)by_error_prefix(&error, BY_EARG, "file %d", 3);
    assert_string_equal(error.message, "file 3: wrong");
    assert_int_equal(by_error_set(NULL, BY_EARG, "nobody listens"), BY_EARG);
    /* What a file says can neither move a cursor nor begin a line. */
    (void)by_error_set(&error, BY_EARG, "cell '%s'",
                       "a\x1b[2J\n\tb\x7f\xc2\x9b"
                       "c\xc3\xa9");
    assert_string_equal(error.message, "cell 'a\\x1b[2J\\x0a\\x09b\\x7f\\x9bc\xc3\xa9'");
    (void)by_error_prefix(&error, BY_EARG, "file\r");
    assert_string_equal(error.message, "file\\x0d: cell 'a\\x1b[2J\\x0a\\x09b\\x7f\\x9bc\xc3\xa9'");
    memset(longest, '\x1b', sizeof longest - 1);
    (void)by_error_set(&error, BY_EARG, "%s", longest);
    assert_true(strlen(error.message) < sizeof error.message);
    assert_null(strchr(error.message, '\x1b'));
}

/* What lets its reader in, in URLs, is in no message. */
static void test_errors_hide(void **state)
{
    static const char *const cases[][2] = {
        {"http://h/a.tar?sig=S: damaged", "http://h/a.tar: damaged"},
        {"HTTPS://u:S@h:80/a#S, sample 1", "HTTPS://h:80/a, sample 1"},
        {"'https://u:S@h?S' or \"http://h/{0..9}?a=(S)\".", "'https://h' or \"http://h/{0..9})\"."},
        {"https://u:S/S?S@h/a?S", "https://h/a"},
        {"http://h/a,http://u:S@h/b?S", "http://h/a,http://h/b"},
        {"s3://u:S@b/k?ey#@ is there", "s3://b/k?ey#@ is there"},
        {"http://[::1]:80/a@b c@d", "http://[::1]:80/a@b c@d"},
        {"why? a@b, http://", "why? a@b, http://"},
        {"write redis://[USER@]HOST", "write redis://[USER@]HOST"},
    };
    BY_UNUSED(state);
    by_error error = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        (void)by_error_set(&error, BY_EARG, "%s", cases[i][0]);
        assert_string_equal(error.message, cases[i][1]);
    }
    (void)by_error_set(&error, BY_EARG, "why");
    (void)by_error_prefix(&error, BY_EARG, "%s", "http://u:S@h/a?S");
    assert_string_equal(error.message, "http://h/a: why");
}

/* ---- files ---- */

#define WRITERS      3
#define WRITES       200
#define WRITTEN_SIZE 100000

/* Writes a file again and again, all of one letter. */
static void write_letter(const char *path, char letter)
{
    char *text = malloc(WRITTEN_SIZE);
    bool good = text != NULL;
    for (int i = 0; i < WRITES && good; i++) {
        memset(text, letter, WRITTEN_SIZE);
        good = by__file_write_unsynced(path, text, WRITTEN_SIZE, NULL) == BY_OK;
    }
    free(text);
    _exit(good ? 0 : 1);
}

/* Who reads a file that several processes write sees what one of them wrote, and none fails. */
static void test_writers(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    char *directory = temporary_make();
    assert_non_null(directory);
    char *path = by__path_join(directory, "file");
    char *temporary = by__path_join(directory, "file.tmp");
    assert_true(path != NULL && temporary != NULL);
    for (int i = 0; i < WRITERS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            write_letter(path, (char)('a' + i));
        }
    }
    int left = WRITERS;
    int failed = 0;
    while (left > 0) {
        int code;
        char *content = NULL;
        size_t length = 0;
        if (by__path_exists(path)) {
            check_ok(by__file_read(&content, &length, path, WRITTEN_SIZE, &error), &error);
            assert_int_equal(length, WRITTEN_SIZE);
            assert_int_equal(strspn(content, (char[]){content[0], '\0'}), WRITTEN_SIZE);
            free(content);
        }
        if (waitpid(-1, &code, WNOHANG) > 0) {
            failed += code != 0;
            left--;
        }
    }
    assert_int_equal(failed, 0);
    assert_false(by__path_exists(temporary));
    free(path);
    free(temporary);
    temporary_remove(directory);
}

static void test_atomic_write(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    char *directory = temporary_make();
    assert_non_null(directory);
    char *path = by__path_join(directory, "file");
    char *temporary = by__path_join(directory, "file.tmp");
    char *content;
    size_t length;
    assert_true(path != NULL && temporary != NULL);
    check_ok(by__file_write(path, "first", 5, &error), &error);
    check_ok(by__file_write(path, "second", 6, &error), &error);
    check_ok(by__file_read(&content, &length, path, 100, &error), &error);
    assert_int_equal(length, 6);
    assert_string_equal(content, "second");
    free(content);
    assert_false(by__path_exists(temporary));
    by_status status = by__file_read(&content, &length, path, 5, &error);
    check_error(status, BY_EFORMAT, &error, "limit of 5");
    /* A temporary file that cannot be made leaves the old content, and nothing behind. */
    assert_int_equal(mkdir(temporary, 0755), 0);
    status = by__file_write(path, "third", 5, &error);
    check_error(status, BY_EIO, &error, "file.tmp");
    check_ok(by__file_read(&content, &length, path, 100, &error), &error);
    assert_string_equal(content, "second");
    free(content);
    free(path);
    free(temporary);
    temporary_remove(directory);
}

/* Writes ROOT/PATH and the directories above it. */
static void write_below(const char *root, const char *path, const char *text)
{
    char *file = by__path_join(root, path);
    assert_non_null(file);
    char *directory = by__strndup(file, (size_t)(strrchr(file, '/') - file));
    assert_non_null(directory);
    assert_int_equal(by__make_dirs(directory, NULL), BY_OK);
    assert_int_equal(by__file_write(file, text, strlen(text), NULL), BY_OK);
    free(directory);
    free(file);
}

static void test_endings(void **state)
{
    (void)state;
    assert_true(by__ends_with("a.csv", ".csv"));
    assert_false(by__ends_with(".csv", ".csv")); /* a hidden file without an ending */
    assert_false(by__ends_with("a.csv.gz", ".csv"));
    assert_false(by__ends_with("v", ".csv"));
}

static void test_nameless_file(void **state)
{
    by_error error = {0};
    char *directory = temporary_make();
    char **names;
    size_t count;
    char text[4] = "";
    int fd = -1;
    (void)state;
    assert_non_null(directory);
    assert_int_equal(by__open_nameless(&fd, directory, "file", &error), BY_OK);
    assert_int_equal(by__list_dir(&names, &count, directory, &error), BY_OK);
    assert_int_equal(count, 0);
    by__names_free(names, count);
    assert_int_equal(write(fd, "abc", 3), 3);
    assert_int_equal(by__read_at(fd, "file", 0, text, 3, &error), BY_OK);
    assert_string_equal(text, "abc");
    (void)close(fd);
    temporary_remove(directory);
    fd = -1;
    assert_int_equal(by__open_nameless(&fd, "/none", "file", &error), BY_EIO);
    assert_non_null(strstr(error.message, "/none/file-"));
    assert_int_equal(fd, -1);
}

static void test_temporary_dir(void **state)
{
    char *before = getenv("TMPDIR") == NULL ? NULL : by__strdup(getenv("TMPDIR"));
    (void)state;
    assert_int_equal(setenv("TMPDIR", "/a", 1), 0);
    assert_string_equal(by__temporary_dir(), "/a");
    assert_int_equal(setenv("TMPDIR", "", 1), 0);
    assert_string_equal(by__temporary_dir(), "/tmp");
    assert_int_equal(unsetenv("TMPDIR"), 0);
    assert_string_equal(by__temporary_dir(), "/tmp");
    assert_int_equal(before == NULL ? 0 : setenv("TMPDIR", before, 1), 0);
    free(before);
}

static void check_memory(const char *root, uint64_t total, uint64_t available)
{
    by__host_memory memory;
    by__memory_available_under(&memory, root);
    assert_true(memory.total == total);
    assert_true(memory.available == available);
}

static void test_available_memory(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    assert_non_null(root);
    by__host_memory memory;
    by__memory_available_under(&memory, root);
    assert_true(memory.total == 0 && memory.available == UINT64_MAX); /* nothing is known */
    write_below(root, "proc/meminfo",
                "MemTotal:       16000 kB\nMemFree:         100 kB\nMemAvailable:    8000 kB\n");
    check_memory(root, 16000 * 1024, 8000 * 1024);
    /* Version 2: the tightest of all levels counts, page cache counts as free. */
    write_below(root, "proc/self/cgroup", "0::/job/step\n");
    write_below(root, "sys/fs/cgroup/job/step/memory.max", "max\n");
    write_below(root, "sys/fs/cgroup/job/step/memory.current", "1000000\n");
    check_memory(root, 16000 * 1024, 8000 * 1024);
    write_below(root, "sys/fs/cgroup/job/memory.max", "4000000\n");
    write_below(root, "sys/fs/cgroup/job/memory.current", "3000000\n");
    write_below(root, "sys/fs/cgroup/job/memory.stat",
                "anon 2\ninactive_file 500000\nactive_file 250000\n");
    check_memory(root, 4000000, 1750000);
    write_below(root, "sys/fs/cgroup/job/memory.current", "9000000\n"); /* over its limit */
    check_memory(root, 4000000, 0);
    /* Version 1, seen from inside a container: the path is the host's. */
    write_below(root, "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n");
    write_below(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "6000000\n");
    write_below(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "5000000\n");
    write_below(root, "sys/fs/cgroup/memory/memory.stat",
                "inactive_file 1\ntotal_inactive_file 40000\ntotal_active_file 0\n");
    check_memory(root, 6000000, 1040000);
    temporary_remove(root);
    by__memory_available(&memory);
    assert_true(memory.total > 0 && memory.available > 0 && memory.available <= memory.total);
}

/* How it is found behind a loader: tests/e2e/test_bundle.sh. */
static void test_executable(void **state)
{
    char link[4096] = "";
    char *path = NULL;
    by_error error = {0};
    (void)state;
    assert_true(readlink("/proc/self/exe", link, sizeof link - 1) > 0);
    assert_int_equal(by_executable_path(&path, &error), BY_OK);
    assert_string_equal(path, link);
    free(path);
    assert_int_equal(by__executable_code(&path, &error), BY_OK);
    assert_string_equal(path, "/proc/self/exe");
    free(path);
    assert_int_equal(by__executable_bundled(&path, "mpi/bin/mpirun", &error), BY_OK);
    assert_null(path);
}

static void test_authorities(void **state)
{
    (void)state;
    assert_int_equal(setenv("SSL_CERT_FILE", "/own.pem", 1), 0);
    assert_string_equal(by__authorities(), "/own.pem");
    assert_int_equal(unsetenv("SSL_CERT_FILE"), 0);
    const char *usual = by__authorities();
    assert_true(usual == NULL || access(usual, R_OK) == 0);
}

/* A path that does not exist, and what is beside it. */
static void test_path_hint(void **state)
{
    static const struct {
        const char *asked;
        const char *hint; /* "": none */
    } rows[] = {{"book.yml", "book.yaml"},
                {"book", "book.yaml"},
                {"bok.yaml", "book.yaml"},
                {"runs/", ""},
                {"x", ""},
                {"nowhere/book.yaml", ""},
                {"run/", "ruin"},
                {"loop", ""},
                {".", ""}};
    char *directory = temporary_make();
    char path[300];
    BY_UNUSED(state);
    static const char *const made[] = {"book.yaml", "ruin", "other.txt", ".bok.yaml"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(made); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, made[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        (void)fclose(file);
    }
    (void)snprintf(path, sizeof path, "%s/loop", directory);
    assert_int_equal(symlink("loop", path), 0);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        char hint[BY_PATH_HINT];
        char expected[400] = "";
        (void)snprintf(path, sizeof path, "%s/%s", directory, rows[i].asked);
        if (rows[i].hint[0] != '\0') {
            (void)snprintf(expected, sizeof expected, "; did you mean '%s/%s'?", directory,
                           rows[i].hint);
        }
        assert_string_equal(by_path_hint(hint, path), expected);
    }
    char hint[BY_PATH_HINT];
    assert_string_equal(by_path_hint(hint, ""), "");
    assert_string_equal(by_path_hint(hint, "/"), "");
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_executable),
        cmocka_unit_test(test_authorities),
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_nearest_names),
        cmocka_unit_test(test_json_text),
        cmocka_unit_test(test_public_string),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_errors_hide),
        cmocka_unit_test(test_atomic_write),
        cmocka_unit_test(test_writers),
        cmocka_unit_test(test_available_memory),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_endings),
        cmocka_unit_test(test_nameless_file),
        cmocka_unit_test(test_temporary_dir),
        cmocka_unit_test(test_path_hint),
        cmocka_unit_test(test_broken_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
