/* What cells are: marks of missing ones, numbers in all their spellings, categories by value; how a
 * file is written (separator, decimal mark, line ends, encoding); and what decides the kind of a
 * column. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/drift.h"
#include "banyan/table.h"
#include "base/base.h"
#include "base/same_value.h"
#include "data/table/row_table.h"

static by_table *parse_as(const char *name, const char *text, size_t length,
                          const by_table_options *options)
{
    by_table *table = NULL;
    by_error error = {0};
    if (by_table_parse(&table, name, text, length, options, &error) != BY_OK) {
        fail_msg("%s\n%.200s", error.message, text);
    }
    return table;
}

static by_table *parse(const char *text, const by_table_options *options)
{
    return parse_as("t.csv", text, strlen(text), options);
}

static void refuse(const char *text, const by_table_options *options, const char *message)
{
    by_table *table = NULL;
    by_error error = {0};
    by_status status = by_table_parse(&table, "t.csv", text, strlen(text), options, &error);
    if (status == BY_OK || strstr(error.message, message) == NULL) {
        fail_msg("%d %s, not %s", status, error.message, message);
    }
}

/* The number in row 0 of column "x"; NaN: it is missing, infinite: the column has categories. */
static double number_of(const char *cell)
{
    by_string text = {0};
    by_string_format(&text, "x,y\n\"%s\",0\n", cell);
    by_table *t = parse(text.data, NULL);
    const by_column *x = by_table_find(t, "x");
    double number = x->kind == BY_COLUMN_NUMBER ? x->numbers[0] : INFINITY;
    by_table_close(&t);
    by_string_free(&text);
    return number;
}

/* As pandas.read_csv reads them, blanks around marks apart, which it takes for text. */
static void test_cells(void **state)
{
    static const char *const missing[] = {
        "",     "NA",   "N/A",   "n/a",     "NaN",      "nan", "-NaN",   "-nan",
        "null", "NULL", "None",  "<NA>",    "#N/A",     "#NA", "1.#IND", "-1.#IND",
        "?",    " NA",  "None ", "1.#QNAN", "-1.#QNAN", "  ",  "\tnull", "#N/A N/A"};
    static const struct {
        const char *text;
        double number;
    } numbers[] = {{"+5", 5},  {"1e5", 1e5}, {".5", 0.5},    {"5.", 5}, {" 5 ", 5},
                   {"\t5", 5}, {"-0", 0},    {"1E-3", 1e-3}, {"007", 7}};
    static const char *const texts[] = {"0x10",
                                        "inf",
                                        "-Infinity",
                                        "1e999",
                                        "5\xc2\xa0",
                                        "-",
                                        "1_000",
                                        "--5",
                                        "1e",
                                        "1,274",
                                        "12km",
                                        "50%",
                                        "$5",
                                        "true",
                                        ("\xe2\x88\x92"
                                         "5"),
                                        "none",
                                        "Nan",
                                        "2024-01-31",
                                        "1 000"};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(missing); i++) {
        if (!isnan(number_of(missing[i]))) {
            fail_msg("'%s' is not missing", missing[i]);
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(numbers); i++) {
        assert_true(number_of(numbers[i].text) == numbers[i].number);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        if (!isinf(number_of(texts[i]))) {
            fail_msg("'%s' is a number", texts[i]);
        }
    }
}

/* ---- how a file is written ---- */

static void test_separators(void **state)
{
    static const struct {
        const char *text;
        size_t columns;
        double last; /* of the last column */
    } files[] = {{"a;b\n1;2\n", 2, 2},
                 {"a\tb\n1\t2\n", 2, 2},
                 {"a|b|c\n1|2|3\n", 3, 3},
                 {"a;b\n1,5;2,25\n", 2, 2.25},
                 {"a,b\n1;5,2\n", 2, 2},
                 {"a, US\tb\n1\t2\n3\t4\n", 2, 2},
                 {"\"a;b\",c\n\"1;2\",3\n", 2, 3},
                 {"a;b\n\"x;y\n,\";2\n", 2, 2},
                 {"only\n7\n", 1, 7},
                 {"said;x\n1\n2\n", 1, 1},
                 {"a\tb\n1,274\t0,5\n", 2, 0.5},
                 {"a;b\r1;2\r3;4", 2, 2},
                 {"a,b\r\n1,2\r\n", 2, 2},
                 {"\xef\xbb\xbf"
                  "a\tb\n1\t2\n",
                  2, 2}};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files); i++) {
        by_table *t = parse(files[i].text, NULL);
        const by_column *c = by_table_column(t, by_table_column_count(t) - 1);
        if (by_table_column_count(t) != files[i].columns || c->kind != BY_COLUMN_NUMBER ||
            c->numbers[0] != files[i].last) {
            fail_msg("file %zu: %zu columns", i, by_table_column_count(t));
        }
        by_table_close(&t);
    }
    /* Thousands are no fractions, and a point in one column tells that it is the mark in all. */
    by_table *t = parse("a\tb\n1,274\t2\n", NULL);
    assert_int_equal(by_table_column(t, 0)->kind, BY_COLUMN_CATEGORY);
    by_table_close(&t);
    t = parse("a;b\n1,5;0.5\n", NULL);
    assert_int_equal(by_table_column(t, 0)->kind, BY_COLUMN_CATEGORY);
    by_table_close(&t);
    const by_table_options comma = {.separator = ',', .decimal = ','};
    t = parse("a,b\n\"1,274\",2\n", &comma);
    assert_true(by_table_column(t, 0)->numbers[0] == 1.274);
    by_table_close(&t);
    /* Places after line ends of each kind. */
    refuse("a,b\r1,2\r3\r", NULL, "t.csv:3: the row has only 1 cells");
    refuse("a,b\r\n\"1\r\n2\",2\r\n3\r\n", NULL, "t.csv:4: the row has only 1 cells");
    /* Names. */
    refuse(",a\n0,1\n", NULL, "t.csv:1: column 1 has no name; an index of pandas");
    refuse("a,b,\n0,1,\n", NULL, "t.csv:1: column 3 has no name; is there a separator at the end");
}

static void test_wide_characters(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } files[] = {{"\xff\xfe"
                  "a\0\n\0",
                  6, "UTF-16"},
                 {"\xfe\xff\0a\0\n", 6, "UTF-16"},
                 {"\xff\xfe\0\0a\0\0\0", 8, "UTF-32"},
                 {"a\0,\0b\0", 6, "iconv -f UTF-16"},
                 {"PK\3\4....", 8, "is no table: it is a zip archive"}};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files); i++) {
        static const char *const names[] = {"t.csv", "t.jsonl"};
        for (size_t k = 0; k < 2; k++) {
            by_table *table;
            by_error error = {0};
            assert_int_equal(
                by_table_parse(&table, names[k], files[i].bytes, files[i].size, NULL, &error),
                BY_EFORMAT);
            assert_non_null(strstr(error.message, files[i].message));
        }
    }
}

/* ---- kinds ---- */

/* "x,y" and `rows` rows of numbers with one cell in row `at` (from 0) instead. */
static by_string rows_with(size_t rows, size_t at, const char *cell)
{
    by_string text = {0};
    by__string_append(&text, "x,y\n");
    for (size_t i = 0; i < rows; i++) {
        if (i == at) {
            by_string_format(&text, "%s,1\n", cell);
        } else {
            by_string_format(&text, "%zu,1\n", i);
        }
    }
    return text;
}

static void test_odd_cells(void **state)
{
    static const char *const x[] = {"x"};
    static const by_column_type category[] = {{"x", BY_COLUMN_CATEGORY}};
    static const by_column_type number[] = {{"x", BY_COLUMN_NUMBER}};
    BY_UNUSED(state);
    by_string text = rows_with(1000, 500, "12km");
    refuse(text.data, NULL,
           "t.csv:502: column 'x': '12km' is not a number, as 999 of 1000 cells are: a number has "
           "no unit");
    /* It is named by who reads the column only, and declared kinds are as they are. */
    by_table *t = parse(text.data, &(by_table_options){.ignore = x, .ignore_count = 1});
    by_table_close(&t);
    t = parse(text.data, &(by_table_options){.types = category, .type_count = 1});
    assert_int_equal(by_table_find(t, "x")->odd_cells, 0);
    by_table_close(&t);
    /* Under `skip` its row is left out. */
    t = parse(text.data, &(by_table_options){.skip = true});
    size_t count;
    const by_damage *damage = by_table_damage(t, &count);
    assert_int_equal(count, 1);
    assert_int_equal(damage[0].place, 502);
    assert_int_equal(by_table_rows(t), 999);
    assert_int_equal(by_table_find(t, "x")->kind, BY_COLUMN_NUMBER);
    assert_true(by_table_find(t, "x")->numbers[500] == 501.0);
    by_table_close(&t);
    by_string_free(&text);

    /* More often it is a value of a category, and what decided is told. */
    text = rows_with(999, 500, "12km");
    refuse(text.data, NULL,
           "t.csv:502: column 'x': '12km' is not a number, as 998 of 999 cells are");
    by_string_free(&text);
    text = rows_with(19, 5, "12km");
    t = parse(text.data, NULL);
    const by_column *c = by_table_find(t, "x");
    assert_int_equal(c->kind, BY_COLUMN_CATEGORY);
    assert_int_equal(c->odd_cells, 1);
    assert_string_equal(c->odd, "'12km'");
    assert_string_equal(c->odd_path, "t.csv");
    assert_int_equal(c->odd_line, 7);
    by_table_close(&t);
    refuse(text.data, &(by_table_options){.types = number, .type_count = 1},
           "t.csv:7: column 'x': '12km' is not a number: a number has no unit");
    by_string_free(&text);
    text = rows_with(2000, 1, "\"1,274\"");
    refuse(text.data, NULL,
           "t.csv:3: column 'x': '1,274' is not a number, as 1999 of 2000 cells "
           "are: it has a comma: take separators of thousands out");
    by_string_free(&text);
    static const char *const problems[][2] = {
        {"1e400", "larger than any double"},
        {"-1E999", "larger than any double"},
        {"\xe2\x80\x89"
         "12",
         "a blank that is not ASCII's"},
        {"12\xe3\x80\x80", "a blank that is not ASCII's"},
        {"1\xe2\x80\xaf"
         "274",
         "a no-break space"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(problems); i++) {
        text = rows_with(2000, 1, problems[i][0]);
        by_table *none = NULL;
        by_error error = {0};
        assert_int_equal(by_table_parse(&none, "t.csv", text.data, text.length, NULL, &error),
                         BY_EFORMAT);
        assert_non_null(strstr(error.message, problems[i][1]));
        by_string_free(&text);
    }

    /* JSON lines likewise. */
    text = (by_string){0};
    for (int i = 0; i < 1000; i++) {
        by_string_format(&text, i == 7 ? "{\"x\": \"abc\"}\n" : "{\"x\": %d, \"n\": [1]}\n", i);
    }
    by_table *table;
    by_error error = {0};
    static const char *const n[] = {"n", "x"};
    by_table_options options = {.ignore = n, .ignore_count = 1};
    assert_int_equal(by_table_parse(&table, "t.jsonl", text.data, text.length, &options, &error),
                     BY_EFORMAT);
    assert_non_null(strstr(error.message, "t.jsonl:8: column 'x': 'abc' is not a number, as 999"));
    options.ignore_count = 2;
    t = parse_as("t.jsonl", text.data, text.length, &options);
    by_table_close(&t);
    by_string_free(&text);
}

/* A column whose cells resemble numbers is named, and its cells say why they are none. */
static void test_near_numbers(void **state)
{
    static const struct {
        const char *cells;
        const char *doubt; /* NULL: it is one of categories without a remark */
    } columns[] = {
        {"$8.32\n$7\n$1.50\n", "3 of 3 cells resemble numbers: a number has no unit"},
        {"8.32 \u20ac\n7 \u20ac\nNA\n", "2 of 2 cells resemble numbers"},
        {"12km\n5km\n7 km\n", "3 of 3 cells resemble numbers"},
        {"45%\n5%\n7\n", "1 of 3 cells are numbers"},
        {"\"1,274\"\n\"2,000\"\n\"1,274,000\"\n",
         "it has a comma: take separators of thousands out"},
        {"red\nblue\n5km\n", NULL},
        {"2024-01-05\n2024-01-06\n2024-02-05\n", NULL},
        {"B12\nB13\nC4\n", NULL},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(columns); i++) {
        char *doubts;
        by_error error = {0};
        by_string text = {0};
        by_string_format(&text, "x\n%s", columns[i].cells);
        by_table *t = parse(text.data, NULL);
        assert_int_equal(by_table_doubts(t, &(by_encoding_options){0}, &doubts, &error), BY_OK);
        if (columns[i].doubt == NULL ? doubts[0] != '\0'
                                     : strstr(doubts, columns[i].doubt) == NULL) {
            fail_msg("%s: '%s'", columns[i].cells, doubts);
        }
        assert_null(strstr(doubts, "data.decimal"));
        free(doubts);
        by_table_close(&t);
        by_string_free(&text);
    }
}

/* A number so far from all others that these hardly differ beside it is named; one that is rare
 * or large is not. */
static void test_far_number(void **state)
{
    static const struct {
        const char *cell;
        bool told;
    } cells[] = {{"1e38", true}, {"-1e9", true}, {"5000", false}, {"", false}};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cells); i++) {
        char *doubts;
        by_error error = {0};
        by_string text = {0};
        by__string_append(&text, "x,y\n");
        for (int row = 0; row < 40; row++) {
            by_string_format(&text, "%d,%d\n", row % 7, row == 3);
        }
        by_string_format(&text, "%s,0\n", cells[i].cell);
        by_table *t = parse(text.data, NULL);
        assert_int_equal(by_table_doubts(t, &(by_encoding_options){0}, &doubts, &error), BY_OK);
        if (cells[i].told ? strstr(doubts, "column 'x': t.csv:42 has") == NULL
                          : doubts[0] != '\0') {
            fail_msg("%s: '%s'", cells[i].cell, doubts);
        }
        free(doubts);
        by_table_close(&t);
        by_string_free(&text);
    }
}

/* Columns from which nothing is learned, whatever their cells are; a target of one number. */
static void test_useless_columns(void **state)
{
    static const char csv[] = "day,none,kind,y\n"
                              "d1,,a,2\nd2,,b,2\nd3,,a,2\nd4,,b,2\nd5,,a,2\nd6,,b,2\nd7,,a,2\n"
                              "d8,,b,2\nd9,,a,2\ne1,,b,2\n";
    static const char *const ignored[] = {"day", "none"};
    char *doubts;
    by_error error = {0};
    BY_UNUSED(state);
    by_table *t = parse(csv, NULL);
    assert_int_equal(by_table_doubts(t,
                                     &(by_encoding_options){.targets = (const char *const[]){"y"},
                                                            .target_count = 1},
                                     &doubts, &error),
                     BY_OK);
    assert_non_null(strstr(doubts, "column 'day' has 10 values in 10 rows"));
    assert_non_null(strstr(doubts, "\ncolumn 'none' has no value in any row"));
    assert_non_null(strstr(doubts, "\ntarget 'y' is 2 in every row"));
    assert_null(strstr(doubts, "kind"));
    free(doubts);
    const by_encoding_options options = {.targets = (const char *const[]){"kind"},
                                         .target_count = 1,
                                         .ignore = ignored,
                                         .ignore_count = BY_ARRAY_LENGTH(ignored)};
    assert_int_equal(by_table_doubts(t, &options, &doubts, &error), BY_OK);
    assert_string_equal(doubts, "");
    free(doubts);
    assert_int_equal(by_table_doubts(t,
                                     &(by_encoding_options){.targets = (const char *const[]){"day"},
                                                            .target_count = 1},
                                     &doubts, &error),
                     BY_OK);
    assert_non_null(strstr(doubts, "target 'day' has 10 classes in 10 rows"));
    free(doubts);
    by_table_close(&t);
}

/* Rows need a value in each of several columns. */
static void test_several_required(void **state)
{
    static const char *const texts[][2] = {
        {"t.csv", "x,a,b\n1,10,1\n2,20,\n3,,4\n5,50,5\n"},
        {"t.jsonl", "{\"x\":1,\"a\":10,\"b\":1}\n{\"x\":2,\"a\":20}\n"
                    "{\"x\":3,\"a\":null,\"b\":4}\n{\"x\":5,\"a\":50,\"b\":5}\n"}};
    static const char *const required[] = {"a", "b"};
    const by_table_options options = {.skip = true, .required = required, .required_count = 2};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        size_t count;
        by_table *t = parse_as(texts[i][0], texts[i][1], strlen(texts[i][1]), &options);
        const by_damage *damage = by_table_damage(t, &count);
        assert_int_equal(by_table_rows(t), 2);
        assert_true(by_table_find(t, "x")->numbers[1] == 5.0);
        assert_int_equal(count, 2);
        assert_string_equal(damage[0].reason, "there is no value in 'b'");
        assert_string_equal(damage[1].reason, "there is no value in 'a'");
        by_table_close(&t);
    }
}

/* Damaged rows of JSON lines: no JSON, no object, a list, a text in numbers, no target. */
static void test_json_rows_left_out(void **state)
{
    static const char text[] = "{\"n\": \"A\", \"a\": 1}\n{\"n\": \"B\", \"a\": \n[1]\n"
                               "{\"n\": [2], \"other\": 1}\n\n{\"n\": \"C\", \"a\": \"old\"}\n"
                               "{\"n\": \"D\"}\n{\"n\": \"E\", \"a\": 5, \"i\": {}}\n";
    static const uint64_t lines[] = {2, 3, 4, 6, 7};
    static const by_column_type types[] = {{"n", BY_COLUMN_CATEGORY}, {"a", BY_COLUMN_NUMBER}};
    static const char *const ignore[] = {"i"};
    const by_table_options options = {.types = types,
                                      .type_count = 2,
                                      .ignore = ignore,
                                      .ignore_count = 1,
                                      .skip = true,
                                      .required = (const char *const[]){"a"},
                                      .required_count = 1};
    size_t count;
    BY_UNUSED(state);
    by_table *t = parse_as("t.jsonl", text, strlen(text), &options);
    assert_int_equal(by_table_rows(t), 2);
    assert_true(by_table_find(t, "a")->numbers[1] == 5.0);
    assert_string_equal(by_table_find(t, "n")->values[1], "E");
    assert_null(by_table_find(t, "other"));
    const by_damage *damage = by_table_damage(t, &count);
    assert_int_equal(count, BY_ARRAY_LENGTH(lines));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(damage[i].place, lines[i]);
        assert_int_equal(damage[i].begin, i + 1);
    }
    assert_string_equal(damage[4].reason, "there is no value in 'a'");
    char *doubts;
    by_error error = {0};
    const by_encoding_options all = {.ignore = ignore, .ignore_count = 1};
    assert_int_equal(by_table_doubts(t, &all, &doubts, &error), BY_OK);
    assert_string_equal(doubts, ""); /* cells are counted once */
    free(doubts);
    by_table_close(&t);
}

/* No text of a row that is left out is taken for a row. */
static void test_rows_left_out(void **state)
{
    static const struct {
        const char *text;
        const char *names; /* first letters of the rows that stay */
    } files[] = {
        {"n,a\nA,1\n\"first\n3,999\nlast\",30,extra\nB,2\n", "AB"},
        {"n,a\nA,1\n\"first\n3,999\nlast\"x,30\nB,2\n", "AB"},
        {"n,a\nA,1\nx, \"first\n3,999\nlast\"\nB,2\n", "AB"},
        {"n,a\nA,1\nx,30,\"first\n3,999\nlast\nB,2\n", "A3B"}, /* never closed: its line alone */
        {"n,a\nA,1\n\"x\n\n3,999\n\"\"\n4,9\",30,\"u\n5,9\n\"\nB,2\n", "AB"},
        {"n,a\r\nA,1\r\n\"first\r\n3,999\r\nlast\",30,extra\r\nB,2\r\n", "AB"},
        {"n,a\rA,1\r\"first\r3,999\rlast\",30,extra\rB,2\r", "AB"},
        {"n;a\nA;1\n\"first\n3;999\nlast\";30;extra\nB;2\n", "AB"},
        {"n,a\nA,1\nx,\"old\nB,2\nC,\"3\"\n", "ABC"}, /* a stray quote, not one of two rows */
        {"n,a\nA,1\n\"x\ny\",high\nB,2\n", "AB"},
    };
    static const by_column_type types[] = {{"n", BY_COLUMN_CATEGORY}, {"a", BY_COLUMN_NUMBER}};
    static const by_table_options options = {.types = types, .type_count = 2, .skip = true};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files); i++) {
        char names[16] = "";
        by_table *t = parse(files[i].text, &options);
        const by_column *n = by_table_find(t, "n");
        for (uint64_t row = 0; row < by_table_rows(t) && row < 15; row++) {
            names[row] = n->values[n->categories[row]][0];
            names[row + 1] = '\0';
        }
        if (strcmp(names, files[i].names) != 0) {
            fail_msg("file %zu: rows %s, not %s", i, names, files[i].names);
        }
        by_table_close(&t);
    }
}

/* ---- categories by value ---- */

static void test_spellings(void **state)
{
    static const char *const same[][2] = {{"1.0", "1"},
                                          {" 1 ", "1"},
                                          {"1e0", "1"},
                                          {"100", "100"},
                                          {"1e2", "100"},
                                          {"-0.0", "0"},
                                          {"+5", "5"},
                                          {"0.10000000000000001", "0.1"},
                                          {".5", "0.5"},
                                          {"True", "true"},
                                          {"FALSE", "false"},
                                          {"12345678901234567890", "12345678901234567890"},
                                          {"12345678901234567891.0", "12345678901234567891"},
                                          {"1e22", "10000000000000000000000"},
                                          {"2.50", "2.5"}};
    static const char *const other[] = {"01", "007",   "1_0", "0x1", "nan",   "inf", "yes",
                                        "1e", "1.2.3", "-",   "",    "1e999", "00"};
    char out[BY__SPELLING];
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(same); i++) {
        assert_true(by__spell_value(out, same[i][0], strlen(same[i][0])));
        assert_string_equal(out, same[i][1]);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(other); i++) {
        if (by__spell_value(out, other[i], strlen(other[i]))) {
            fail_msg("'%s' is '%s'", other[i], out);
        }
    }
}

/* Ids of the cells of column "c" in a file. */
static void check_ids(const by_encoding *e, const char *name, const char *text, const char *ids)
{
    by_array_set *set;
    by_error error = {0};
    const by_table_options options = {.learned = e};
    by_table *t = parse_as(name, text, strlen(text), &options);
    assert_int_equal(by_encoding_apply(e, t, false, &set, &error), BY_OK);
    const int32_t *have = by_array_set_find(set, "categories")->data;
    for (size_t i = 0; ids[i] != '\0'; i++) {
        if (have[i] != ids[i] - '0') {
            fail_msg("%s: row %zu is %d, not %c", name, i, have[i], ids[i]);
        }
    }
    by_array_set_close(&set);
    by_table_close(&t);
}

static void test_same_value(void **state)
{
    static const by_column_type types[] = {{"c", BY_COLUMN_CATEGORY}};
    const by_table_options options = {.types = types, .type_count = 1};
    by_encoding *e;
    by_error error = {0};
    BY_UNUSED(state);
    by_table *t = parse("c,x\n2.0,1\n1.0,1\n1,1\n01,1\nTrue,1\nb,1\n", &options);
    by_part whole = by_part_whole(6);
    static const char *const x[] = {"x"};
    const by_encoding_options all = {.ignore = x, .ignore_count = 1};
    assert_int_equal(by_encoding_learn(&e, t, &whole, &all, &error), BY_OK);
    by_table_close(&t);
    assert_int_equal(by_encoding_category_size(e, 0), 6); /* 01, 1, 2, True, b */
    check_ids(e, "t.csv", "c,x\n1,1\n2,1\n1.00,1\n01,1\ntrue,1\nTRUE,1\n3,1\nb,1\n", "23214405");
    check_ids(e, "t.jsonl", "{\"c\": 1}\n{\"c\": 2.0}\n{\"c\": true}\n{\"c\": \"1.0\"}\n{}\n",
              "23420");
    by_encoding_close(&e);

    /* What earlier versions learned: other spellings, also of one value, and marks of missing
     * cells. A truth value may be the number that Parquet files have. */
    static const char old[] =
        "{\"format\": 1, \"numbers\": [], \"categories\": [{\"name\": \"c\", \"values\": [\"1\", "
        "\"1.0\", \"2.0\", \"3.0\", \"None\"]}]}";
    assert_int_equal(by_encoding_parse(&e, "e.json", old, strlen(old), &error), BY_OK);
    check_ids(e, "t.csv", "c,x\n1,1\n1.0,1\n2,1\n3.0,1\n3.00,1\nNone,1\nNA,1\ntrue,1\n",
              "12344501");
    by_encoding_close(&e);

    /* Drift counts by value, too. */
    static const char *const values[] = {"1.0", "1", "x"};
    static const uint64_t counts[] = {50, 50, 100};
    by_drift_reference *r;
    assert_int_equal(by_drift_reference_open(&r, 200, &error), BY_OK);
    assert_int_equal(by_drift_reference_category(r, "c", values, counts, 3, 0, &error), BY_OK);
    char *text;
    assert_int_equal(by_drift_reference_print(r, &text, &error), BY_OK);
    assert_non_null(strstr(text, "\"values\":[\"1\",\"x\"]"));
    assert_true(by_drift_reference_has(r, 0, "1.00") && !by_drift_reference_has(r, 0, "2"));
    free(text);
    by_drift_reference_close(&r);
}

/* ---- what is learned ---- */

static by_encoding *encoding_of(const char *text)
{
    by_encoding *e;
    by_error error = {0};
    if (by_encoding_parse(&e, "e.json", text, strlen(text), &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return e;
}

static void test_large_numbers(void **state)
{
    static const char learned[] =
        "{\"format\": 1, \"numbers\": [{\"name\": \"x\", \"mean\": 0, \"deviation\": 0.001}], "
        "\"categories\": []}";
    by_encoding *e = encoding_of(learned);
    by_array_set *set;
    by_error error = {0};
    static const char *const cells[] = {"1e39", "-1e308", "1e36"};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cells); i++) {
        by_string text = {0};
        by_string_format(&text, "x,y\n1,1\n%s,1\n", cells[i]);
        by_table *t = parse(text.data, NULL);
        assert_int_equal(by_encoding_apply(e, t, false, &set, &error), BY_EFORMAT);
        assert_int_equal(strncmp(error.message, "t.csv:3: column 'x': ", 21), 0);
        assert_non_null(strstr(error.message, "is too large"));
        const char *const row[] = {cells[i]};
        static const by_column_type types[] = {{"x", BY_COLUMN_NUMBER}};
        by_table_close(&t);
        assert_int_equal(by__table_row(&t, types, 1, e, row, 1, &error), BY_OK);
        assert_int_equal(by_encoding_apply(e, t, false, &set, &error), BY_EFORMAT);
        assert_int_equal(strncmp(error.message, "row 0: column 'x': ", 19), 0);
        by_table_close(&t);
        by_string_free(&text);
    }
    by_encoding_close(&e);
    by_table *t = parse("x,y\n-1e308,1\n1e308,1\n", NULL);
    by_part whole = by_part_whole(2);
    const by_encoding_options all = {0};
    assert_int_equal(by_encoding_learn(&e, t, &whole, &all, &error), BY_EFORMAT);
    assert_int_equal(strncmp(error.message, "t.csv:2: column 'x': -1e+308 is too large", 41), 0);
    by_table_close(&t);
}

static void test_messages(void **state)
{
    by_error error = {0};
    by_encoding *e;
    by_array_set *set;
    BY_UNUSED(state);
    const by_encoding_options options = {.targets = (const char *const[]){"longitud"},
                                         .target_count = 1};
    by_table *t = parse("longitude;latitude\n1;2\n", NULL);
    by_part whole = by_part_whole(1);
    assert_int_equal(by_encoding_learn(&e, t, &whole, &options, &error), BY_EARG);
    assert_string_equal(error.message,
                        "t.csv: there is no column 'longitud'; did you mean 'longitude'? Its "
                        "columns, separated by a semicolon: longitude, latitude");
    by_table_close(&t);
    t = parse("a:b\n1:2\n", NULL);
    assert_int_equal(by_encoding_learn(&e, t, &whole, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "(data.delimiter sets another separator)"));
    by_table_close(&t);

    /* A number that was taken for classes. */
    by_string text = {0};
    by__string_append(&text, "x,y\n");
    for (int i = 0; i < 40; i++) {
        by_string_format(&text, "%d,%d.5\n", i, i);
    }
    static const by_column_type types[] = {{"y", BY_COLUMN_CATEGORY}};
    t = parse(text.data, &(by_table_options){.types = types, .type_count = 1});
    by_part part;
    assert_int_equal(by_split_parts(&part, NULL, NULL, 40, &(by_split){.test = 10}, &error), BY_OK);
    assert_int_equal(by_encoding_learn(&e, t, &part,
                                       &(by_encoding_options){.targets = (const char *const[]){"y"},
                                                              .target_count = 1},
                                       &error),
                     BY_OK);
    assert_int_equal(by_encoding_apply(e, t, true, &set, &error), BY_EFORMAT);
    assert_string_equal(error.message,
                        "t.csv:32: '30.5' in 'y' is none of the 30 classes that were "
                        "learned, all of them numbers: this looks like regression: "
                        "set task.kind=regress");
    by_encoding_close(&e);
    by_table_close(&t);
    by_string_free(&text);

    /* A row in memory is counted as in a request. */
    static const char *const cells[] = {"1", "b", "one", "c"};
    static const by_column_type columns[] = {{"x", BY_COLUMN_NUMBER}, {"k", BY_COLUMN_CATEGORY}};
    assert_int_equal(by__table_row(&t, columns, 2, NULL, cells, 2, &error), BY_EFORMAT);
    assert_string_equal(error.message, "row 1: column 'x': 'one' is not a number");
}

/* Columns are found by hash: one by one, so many would take minutes. */
static void test_many_columns(void **state)
{
    enum { COLUMNS = 60000 };
    by_string text = {0};
    by_error error = {0};
    by_encoding *e;
    by_array_set *set;
    by_drift_reference *r;
    BY_UNUSED(state);
    for (int i = 0; i < COLUMNS; i++) {
        by_string_format(&text, "%scolumn%d", i == 0 ? "" : ",", i);
    }
    for (int i = 0; i < COLUMNS; i++) {
        by__string_append(&text, i == 0 ? "\n1" : ",2");
    }
    by_table *t = parse(text.data, NULL);
    by_part whole = by_part_whole(1);
    const by_encoding_options all = {0};
    assert_int_equal(by_encoding_learn(&e, t, &whole, &all, &error), BY_OK);
    assert_int_equal(by_encoding_apply(e, t, false, &set, &error), BY_OK);
    by_array_set_close(&set);
    by_encoding_close(&e);
    assert_int_equal(by_drift_reference_open(&r, 1, &error), BY_OK);
    for (size_t i = 0; i < COLUMNS; i++) {
        const by_column *c = by_table_column(t, i);
        assert_int_equal(by_drift_reference_number(r, c->name, c->numbers, 1, &error), BY_OK);
    }
    assert_int_equal(by_drift_reference_find(r, "column59999"), 59999);
    by_drift_reference_close(&r);
    by_table_close(&t);
    by_string_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_separators),
        cmocka_unit_test(test_wide_characters),
        cmocka_unit_test(test_odd_cells),
        cmocka_unit_test(test_rows_left_out),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_same_value),
        cmocka_unit_test(test_large_numbers),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_many_columns),
        cmocka_unit_test(test_near_numbers),
        cmocka_unit_test(test_several_required),
        cmocka_unit_test(test_json_rows_left_out),
        cmocka_unit_test(test_far_number),
        cmocka_unit_test(test_useless_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
