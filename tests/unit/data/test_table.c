/* CSV tables: what RFC 4180 allows is read, what it does not is refused with line and column; JSON
 * lines, where fields may be absent; and encodings, which know the training part alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/table.h"
#include "base/base.h"

static by_table *parse(const char *text, const by_table_options *options)
{
    by_table *table;
    by_error error = {0};
    if (by_table_parse(&table, "t.csv", text, strlen(text), options, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return table;
}

static const char *value_of(const by_table *table, const char *column, uint64_t row)
{
    const by_column *c = by_table_find(table, column);
    assert_int_equal(c->kind, BY_COLUMN_CATEGORY);
    return c->categories[row] < 0 ? NULL : c->values[c->categories[row]];
}

/* ---- CSV ---- */

static void test_csv(void **state)
{
    BY_UNUSED(state);
    by_table *t = parse("\xef\xbb\xbf"
                        "a,\"b,\"\"x\"\"\",c\r\n"
                        "1,\"two\nlines\",  -2.5e1 \r\n"
                        "\r\n"
                        "\"3\",\"say \"\"hi\"\"\",\r\n"
                        "NA,say \xc3\xa9,4",
                        NULL);
    assert_int_equal(by_table_rows(t), 3);
    assert_int_equal(by_table_column_count(t), 3);
    const by_column *a = by_table_find(t, "a");
    const by_column *c = by_table_find(t, "c");
    assert_int_equal(a->kind, BY_COLUMN_NUMBER);
    assert_true(a->numbers[0] == 1.0 && a->numbers[1] == 3.0 && isnan(a->numbers[2]));
    assert_int_equal(a->missing, 1);
    assert_true(c->numbers[0] == -25.0 && isnan(c->numbers[1]) && c->numbers[2] == 4.0);
    assert_string_equal(value_of(t, "b,\"x\"", 0), "two\nlines");
    assert_string_equal(value_of(t, "b,\"x\"", 1), "say \"hi\"");
    assert_string_equal(value_of(t, "b,\"x\"", 2), "say \xc3\xa9");
    assert_null(by_table_find(t, "d"));
    by_table_close(&t);
    by_table_close(&t);

    /* Separators, types by hand, and one column. */
    static const by_column_type types[] = {{"zip", BY_COLUMN_CATEGORY}};
    by_table_options options = {.separator = ';', .types = types, .type_count = 1};
    t = parse("zip;n\n01;1,5\n1;2\n?;3\n01;\"\"\n", &options);
    assert_string_equal(value_of(t, "zip", 0), "01");
    assert_string_equal(value_of(t, "zip", 1), "1");
    assert_null(value_of(t, "zip", 2));
    const by_column *zip = by_table_find(t, "zip");
    assert_int_equal(zip->categories[3], zip->categories[0]);
    assert_int_equal(zip->value_count, 2);
    assert_true(by_table_find(t, "n")->numbers[0] == 1.5); /* a decimal comma */
    by_table_close(&t);
    t = parse("x\n1\n2\n", NULL);
    assert_int_equal(by_table_rows(t), 2);
    by_table_close(&t);
    /* What only looks like a number. */
    t = parse("a,b,c,d,e\n0x10,inf,1e999,1.2.3,-\n", NULL);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(by_table_column(t, i)->kind, BY_COLUMN_CATEGORY);
    }
    by_table_close(&t);
}

static void test_csv_errors(void **state)
{
    BY_UNUSED(state);
    static const by_column_type number[] = {{"b", BY_COLUMN_NUMBER}};
    static const by_column_type absent[] = {{"z", BY_COLUMN_NUMBER}};
    static const struct {
        const char *text;
        by_table_options options;
        const char *message;
    } cases[] = {
        {"", {0}, "t.csv: empty"},
        {"\n\r\n", {0}, "t.csv: empty"},
        {"a,b\n", {0}, "t.csv: there are no rows"},
        {"a,b\n1\n", {0}, "t.csv:2: the row has only 1 cells, but the header has 2"},
        {"a,b\n1,2\n\n1,2,3\n", {0}, "t.csv:4: the row has at least 3 cells, but the header has 2"},
        {"a,b\n1,2,3,4\n", {0}, "t.csv:2: the row has at least 3 cells, but the header has 2"},
        {"a,b\n1,x\"y\n", {0}, "t.csv:2: column 2: a quote inside a cell"},
        {"a,b\n1,2\n3,\"y\n4,5\n", {0}, "t.csv:3: column 2: the quote that opens"},
        {"a,b\n1,\"y\" \n", {0}, "t.csv:2: column 2: text behind the quote"},
        {"a,a\n1,2\n", {0}, "t.csv:1: columns 1 and 2 are both named 'a'"},
        {"a,\n1,2\n", {0}, "t.csv:1: column 2 has no name"},
        {"a,\xff\n1,2\n", {0}, "t.csv:1: column 2 has a name that is not UTF-8"},
        {"a,b\n1,2\n3,four\n",
         {.types = number, .type_count = 1},
         "t.csv:3: column 'b': 'four' is not a number"},
        {"a,b\n1,x\n2,\xe9\n", {0}, "t.csv:3: a value of column 'b' is not UTF-8; iconv"},
        {"a,b\n1,2\n", {.types = absent, .type_count = 1}, "t.csv: there is no column 'z'"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_table *table = NULL;
        by_error error = {0};
        by_status status = by_table_parse(&table, "t.csv", cases[i].text, strlen(cases[i].text),
                                          &cases[i].options, &error);
        if (status == BY_OK || strstr(error.message, cases[i].message) != error.message) {
            fail_msg("case %zu: %d %s", i, status, error.message);
        }
        assert_null(table);
    }
    by_table *table = NULL;
    by_error error = {0};
    assert_int_equal(by_table_parse(&table, "t.csv", "a\n1\0\n", 5, NULL, &error), BY_EFORMAT);
    assert_string_equal(error.message, "t.csv:2: column 1: a NUL byte");
    static const char *const json[] = {"[{\"a\": 1}]", " \n{\"a\": 1}"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(json); i++) {
        assert_int_equal(by_table_parse(&table, "t.json", json[i], strlen(json[i]), NULL, &error),
                         BY_EFORMAT);
        assert_non_null(strstr(error.message, "t.json: a table is read from JSON lines (.jsonl)"));
    }
    assert_int_equal(by_table_parse(&table, "t.parquet", "a\n1\n", 4, NULL, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "t.parquet: no Parquet file"));
}

/* ---- encodings ---- */

#define ROWS                                                                                       \
    "size,colour,extra,price\n"                                                                    \
    "1,red,9,10\n"                                                                                 \
    "3,blue,9,30\n"                                                                                \
    ",red,9,20\n"                                                                                  \
    "5,,9,20\n"                                                                                    \
    "100,green,9,1000\n" /* held out */

static by_encoding *learn(const by_table *table, uint64_t rows, const char *target)
{
    static const char *const ignore[] = {"extra"};
    by_encoding *encoding;
    by_error error = {0};
    by_part part;
    by_encoding_options options = {.targets = (const char *const[]){target},
                                   .target_count = target != NULL,
                                   .ignore = ignore,
                                   .ignore_count = 1};
    by_split split = {.test = by_table_rows(table) - rows};
    assert_int_equal(by_split_parts(&part, NULL, NULL, by_table_rows(table), &split, &error),
                     BY_OK);
    if (by_encoding_learn(&encoding, table, &part, &options, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return encoding;
}

/* Back from its JSON, which replaces it. */
static by_encoding *reread(by_encoding *encoding)
{
    by_encoding *again;
    char *text;
    char *second;
    by_error error = {0};
    assert_int_equal(by_encoding_print(encoding, &text, &error), BY_OK);
    if (by_encoding_parse(&again, "e.json", text, strlen(text), &error) != BY_OK) {
        fail_msg("%s\n%s", error.message, text);
    }
    assert_int_equal(by_encoding_print(again, &second, &error), BY_OK);
    assert_string_equal(text, second);
    free(text);
    free(second);
    by_encoding_close(&encoding);
    return again;
}

/* Rows that are left out, and what the rest of the table is. */
static void test_damaged_rows(void **state)
{
    static const char text[] = "a,b,y\n"
                               "1,x,10\n"
                               "2,x\n"           /* too few cells */
                               "3,x,30,4\n"      /* too many */
                               "4,\"x,40\n"      /* a quote that the next row's would close */
                               "5,\"x\ny\",50\n" /* a row of two lines */
                               "\n"
                               "6,x,\n"      /* no target */
                               "7,x,high\n"  /* no number */
                               "8,u\"v,80\n" /* a quote inside */
                               "9,z,90\n"
                               "10,\"z,100";
    static const struct {
        uint64_t line;
        uint64_t row;
        const char *reason;
    } expected[] = {{3, 1, "the row has only 2 cells, but the header has 3"},
                    {4, 2, "the row has at least 4 cells, but the header has 3"},
                    {5, 3, "column 2: text behind the quote that closes the cell"},
                    {9, 5, "there is no value in 'y'"},
                    {10, 6, "column 'y': 'high' is not a number"},
                    {11, 7, "column 2: a quote inside a cell"},
                    {13, 9, "column 2: the quote that opens this cell is never closed"}};
    const by_column_type target = {"y", BY_COLUMN_NUMBER};
    by_table_options options = {.types = &target,
                                .type_count = 1,
                                .skip = true,
                                .required = (const char *const[]){"y"},
                                .required_count = 1};
    by_table *table;
    by_error error = {0};
    size_t count;
    BY_UNUSED(state);
    if (by_table_parse(&table, "t.csv", text, sizeof text - 1, &options, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    const by_damage *damage = by_table_damage(table, &count);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(expected); i++) {
        assert_true(i < count);
        assert_string_equal(damage[i].path, "t.csv");
        assert_int_equal(damage[i].place, expected[i].line);
        assert_int_equal(damage[i].begin, expected[i].row);
        assert_int_equal(damage[i].count, 1);
        if (strncmp(damage[i].reason, expected[i].reason, strlen(expected[i].reason)) != 0) {
            fail_msg("line %d: %s", (int)damage[i].place, damage[i].reason);
        }
    }
    assert_int_equal(count, BY_ARRAY_LENGTH(expected));
    assert_int_equal(by_table_rows(table), 3);
    const by_column *b = by_table_column(table, 1);
    assert_int_equal(b->value_count, 3);
    assert_string_equal(b->values[1], "x\ny");
    const by_column *y = by_table_find(table, "y");
    assert_true(y->numbers[0] == 10.0 && y->numbers[1] == 50.0 && y->numbers[2] == 90.0);
    assert_true(by_table_find(table, "a")->numbers[2] == 9.0);
    by_table_close(&table);
    options.skip = false;
    assert_int_equal(by_table_parse(&table, "t.csv", text, sizeof text - 1, &options, &error),
                     BY_EFORMAT);
    assert_non_null(strstr(error.message, "t.csv:3: the row has only 2 cells"));
}

static void test_regression(void **state)
{
    BY_UNUSED(state);
    by_table *t = parse(ROWS, NULL);
    by_encoding *e = reread(learn(t, 4, "price"));
    by_array_set *set;
    by_error error = {0};
    double mean;
    double deviation;
    assert_int_equal(by_encoding_numbers(e), 1);
    assert_int_equal(by_encoding_categories(e), 1);
    assert_int_equal(by_encoding_category_size(e, 0), 3); /* 0, blue, red: green is held out */
    assert_string_equal(by_encoding_target(e, 0), "price");
    assert_int_equal(by_encoding_classes(e), 0);
    by_encoding_target_scale(e, 0, &mean, &deviation);
    assert_true(mean == 20.0 && deviation == sqrt(200.0 / 4.0));
    assert_int_equal(by_encoding_apply(e, t, true, &set, &error), BY_OK);
    const float *numbers = by_array_set_find(set, "numbers")->data;
    const int32_t *colours = by_array_set_find(set, "categories")->data;
    const float *targets = by_array_set_find(set, "targets")->data;
    double size = sqrt(8.0 / 3.0); /* of 1, 3 and 5 */
    assert_true(numbers[0] == (float)(-2.0 / size) && numbers[1] == 0.0f && numbers[2] == 0.0f);
    assert_true(numbers[4] == (float)(97.0 / size));
    static const int32_t ids[] = {2, 1, 2, 0, 0};
    assert_memory_equal(colours, ids, sizeof ids);
    assert_true(targets[1] == (float)(10.0 / deviation) && targets[2] == 0.0f);
    assert_true(by_shape_equal(&by_array_set_find(set, "numbers")->shape, &BY_SHAPE(5, 1)));
    assert_true(by_shape_equal(&by_array_set_find(set, "targets")->shape, &BY_SHAPE(5)));
    by_array_set_close(&set);
    by_table_close(&t);

    /* Another table: columns in another order, more of them, no target; all of one missing. */
    t = parse("more,colour,size\nx,green,5\ny,blue,\nz,,5\n", NULL);
    assert_int_equal(by_encoding_apply(e, t, false, &set, &error), BY_OK);
    numbers = by_array_set_find(set, "numbers")->data;
    colours = by_array_set_find(set, "categories")->data;
    assert_true(numbers[0] == (float)(2.0 / size) && numbers[1] == 0.0f);
    assert_true(colours[0] == 0 && colours[1] == 1 && colours[2] == 0);
    assert_null(by_array_set_find(set, "targets"));
    by_array_set_close(&set);
    by_table_close(&t);
    t = parse("colour,size\n,5\n", NULL);
    assert_int_equal(by_encoding_apply(e, t, false, &set, &error), BY_OK);
    by_array_set_close(&set);

    assert_int_equal(by_encoding_apply(e, t, true, &set, &error), BY_EFORMAT);
    assert_string_equal(error.message, "t.csv: there is no column 'price'; its columns, separated "
                                       "by a comma: colour, size");
    by_table_close(&t);
    t = parse("colour,size,price\nred,5,1\nred,5,\n", NULL);
    assert_int_equal(by_encoding_apply(e, t, true, &set, &error), BY_EFORMAT);
    assert_string_equal(error.message, "t.csv:3: there is no target in 'price'");
    by_table_close(&t);
    t = parse("colour,size\n5,5\n", NULL);
    assert_int_equal(by_encoding_apply(e, t, false, &set, &error), BY_EFORMAT);
    assert_string_equal(error.message,
                        "t.csv: column 'colour' is a number, but a category was learned");
    by_table_close(&t);
    by_encoding_close(&e);
    by_encoding_close(&e);
}

/* Targets are in the order in which they are named, each with a scale of its own. */
static void test_several_targets(void **state)
{
    static const char *const names[] = {"price", "rent"};
    static const char *const ignore[] = {"extra"};
    by_encoding_options options = {
        .targets = names, .target_count = 2, .ignore = ignore, .ignore_count = 1};
    const by_part part = {.count = 4, .total = 5};
    BY_UNUSED(state);
    by_table *t =
        parse("rent,size,extra,price\n3,1,9,10\n5,3,9,30\n4,,9,20\n4,5,9,20\n9,100,9,1000\n", NULL);
    by_encoding *e;
    by_array_set *set;
    by_error error = {0};
    char *text;
    assert_int_equal(by_encoding_learn(&e, t, &part, &options, &error), BY_OK);
    e = reread(e);
    assert_int_equal(by_encoding_numbers(e), 1);
    assert_int_equal(by_encoding_targets(e), 2);
    assert_int_equal(by_encoding_classes(e), 0);
    assert_string_equal(by_encoding_target(e, 0), "price");
    assert_string_equal(by_encoding_target(e, 1), "rent");
    assert_null(by_encoding_target(e, 2));
    const double means[2] = {20, 4};
    const double deviations[2] = {sqrt(200.0 / 4.0), sqrt(2.0 / 4.0)};
    const double cells[2][5] = {{10, 30, 20, 20, 1000}, {3, 5, 4, 4, 9}};
    assert_int_equal(by_encoding_apply(e, t, true, &set, &error), BY_OK);
    const by_array *targets = by_array_set_find(set, "targets");
    assert_true(by_shape_equal(&targets->shape, &BY_SHAPE(5, 2)));
    for (size_t k = 0; k < 2; k++) {
        double mean;
        double deviation;
        by_encoding_target_scale(e, k, &mean, &deviation);
        assert_true(mean == means[k] && deviation == deviations[k]);
        for (size_t row = 0; row < 5; row++) {
            float scaled = (float)((cells[k][row] - means[k]) / deviations[k]);
            assert_true(((const float *)targets->data)[2 * row + k] == scaled);
        }
    }
    by_array_set_close(&set);
    assert_int_equal(by_table_summary(t, &options, &text, &error), BY_OK);
    assert_string_equal(text,
                        "1 number: size (1 missing); 1 ignored; targets price, rent, numbers");
    free(text);
    by_table_close(&t);
    t = parse("size,price\n1,10\n", NULL);
    assert_int_equal(by_encoding_apply(e, t, false, &set, &error), BY_OK);
    by_array_set_close(&set);
    assert_int_equal(by_encoding_apply(e, t, true, &set, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "there is no column 'rent'"));
    by_table_close(&t);
    t = parse("size,price,rent\n1,10,1\n2,20,\n", NULL);
    assert_int_equal(by_encoding_apply(e, t, true, &set, &error), BY_EFORMAT);
    assert_string_equal(error.message, "t.csv:3: there is no target in 'rent'");
    by_table_close(&t);
    by_encoding_close(&e);
}

static void test_several_targets_refused(void **state)
{
    static const char *const both[] = {"a", "a"};
    static const char *const mixed[] = {"a", "c"};
    static const struct {
        const char *const *names;
        const char *message;
    } cases[] = {{both, "the target 'a' is named twice"},
                 {mixed, "column 'c' is one of categories: of several targets, each is a number"}};
    static const char *const bad[] = {
        "{\"format\": 1, \"numbers\": [{\"name\": \"a\", \"mean\": 0, \"deviation\": 1}], "
        "\"categories\": [], \"targets\": [{\"name\": \"b\", \"mean\": 0, \"deviation\": 1}]}",
        "{\"format\": 1, \"numbers\": [{\"name\": \"a\", \"mean\": 0, \"deviation\": 1}], "
        "\"categories\": [], \"targets\": [{\"name\": \"b\", \"mean\": 0, \"deviation\": 1}, "
        "{\"name\": \"c\", \"values\": [\"x\"]}]}"};
    const by_part whole = by_part_whole(2);
    by_table *t = parse("a,b,c\n1,2,x\n3,4,y\n", NULL);
    by_encoding *e = NULL;
    by_error error = {0};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        const by_encoding_options options = {.targets = cases[i].names, .target_count = 2};
        assert_int_equal(by_encoding_learn(&e, t, &whole, &options, &error), BY_EARG);
        assert_non_null(strstr(error.message, cases[i].message));
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        assert_int_equal(by_encoding_parse(&e, "e.json", bad[i], strlen(bad[i]), &error),
                         BY_EFORMAT);
    }
    assert_null(e);
    by_table_close(&t);
}

static void test_classification(void **state)
{
    BY_UNUSED(state);
    by_table *t = parse("a,kind\n1,dog\n2,\"c\"\"at\"\n2,dog\n4,eel\n", NULL);
    by_table *known = parse("a,kind,extra\n1,dog,\n2,\"c\"\"at\",\n2,dog,\n", NULL);
    by_encoding *e = reread(learn(known, 3, "kind"));
    by_array_set *set;
    by_error error = {0};
    by_table_close(&known);
    assert_int_equal(by_encoding_classes(e), 2);
    assert_string_equal(by_encoding_class(e, 0), "c\"at");
    assert_string_equal(by_encoding_class(e, 1), "dog");
    assert_int_equal(by_encoding_apply(e, t, true, &set, &error), BY_EFORMAT);
    assert_string_equal(
        error.message,
        "t.csv:5: 'eel' in 'kind' is none of the 2 classes that "
        "were learned; where training data is sorted by it, data.split=random learns from all");
    by_table_close(&t);
    t = parse("a,kind\n1,dog\n2,\"c\"\"at\"\n", NULL);
    assert_int_equal(by_encoding_apply(e, t, true, &set, &error), BY_OK);
    const int32_t *labels = by_array_set_find(set, "labels")->data;
    assert_true(labels[0] == 1 && labels[1] == 0);
    assert_null(by_array_set_find(set, "categories"));
    by_array_set_close(&set);
    by_table_close(&t);
    by_encoding_close(&e);
}

static void test_encoding_refusals(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_encoding *e = NULL;
    by_table *t = parse("a,b\n1,x\n2,y\n3,\n", NULL);
    by_part whole = by_part_whole(3);
    by_part other = by_part_whole(4);
    by_encoding_options options = {.targets = (const char *const[]){"c"}, .target_count = 1};
    static const char *const both[] = {"a", "b"};
    assert_int_equal(by_encoding_learn(&e, t, &whole, &options, &error), BY_EARG);
    assert_string_equal(error.message, "t.csv: there is no column 'c'; its "
                                       "columns, separated by a comma: a, b");
    options = (by_encoding_options){.ignore = both, .ignore_count = 2};
    assert_int_equal(by_encoding_learn(&e, t, &whole, &options, &error), BY_EARG);
    assert_string_equal(error.message, "t.csv: no column is left as a feature");
    options = (by_encoding_options){0};
    assert_int_equal(by_encoding_learn(&e, t, &other, &options, &error), BY_EARG);
    assert_null(e);
    by_table_close(&t);
    static const char *const bad[] = {
        "",
        "[]",
        "{\"format\": 2, \"numbers\": [], \"categories\": []}",
        "{\"format\": 1, \"numbers\": [], \"categories\": []}",
        "{\"format\": 1, \"numbers\": [{\"name\": \"a\"}], \"categories\": []}",
        "{\"format\": 1, \"numbers\": [{\"name\": \"a\", \"mean\": 0, \"deviation\": 0}], "
        "\"categories\": []}",
        "{\"format\": 1, \"numbers\": [{\"name\": \"a\", \"values\": []}], \"categories\": []}",
        "{\"format\": 1, \"numbers\": [], \"categories\": [{\"name\": \"a\", \"values\": "
        "[\"b\", \"a\"]}]}",
        "{\"format\": 1, \"numbers\": [], \"categories\": [{\"name\": \"a\", \"values\": [1]}]}",
        "{\"format\": 1, \"numbers\": [], \"categories\": [{\"name\": \"a\", \"values\": "
        "[\"b\"]}], "
        "\"target\": {\"name\": \"t\", \"values\": []}}",
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        if (by_encoding_parse(&e, "e.json", bad[i], strlen(bad[i]), &error) != BY_EFORMAT ||
            strstr(error.message, "e.json") == NULL) {
            fail_msg("case %zu: %s", i, error.message);
        }
        assert_null(e);
    }
}

/* Many values: the table of values grows, and each is found again. */
static void test_many_values(void **state)
{
    BY_UNUSED(state);
    enum { VALUES = 3000 };
    by_string text = {0};
    by__string_append(&text, "v\n");
    for (int i = 0; i < 2 * VALUES; i++) {
        by_string_format(&text, "value-%d\n", i % VALUES);
    }
    by_table *t = parse(text.data, NULL);
    const by_column *v = by_table_find(t, "v");
    assert_int_equal(v->value_count, VALUES);
    for (int i = 0; i < 2 * VALUES; i++) {
        assert_int_equal(v->categories[i], i % VALUES);
    }
    by_table_close(&t);
    by_string_free(&text);
}

/* ---- JSON lines ---- */

static void test_json(void **state)
{
    static const char text[] =
        "{\"a\": 1, \"b\": \"x\"}\n\n"
        "{\"id\": \"p\", \"row\": {\"b\": 7, \"c\": \"2.5\", \"a\": null}}\r\n"
        "{\"c\": \"NA\", \"a\": \" 3 \"}";
    static const struct {
        const char *text;
        const char *message;
    } wrong[] = {
        {"", "t.jsonl: there are no rows"},
        {"{}", "t.jsonl: there are no columns: every row is {}"},
        {"{\"a\": 1}\n{\"a\": 1, \"a\": 2}", "t.jsonl:2: duplicate object key \"a\""},
        {"{\"a\": 1}\n[1]", "t.jsonl:2: not a JSON object"},
        {"{\"a\": 1}\n\n{\"a\": tru}", "t.jsonl:3: "},
        {"{\"a\": [1]}", "t.jsonl:1: 'a': a cell is a text, a number, true, false or null"},
        {"{\"\": 1}", "t.jsonl:1: a column has no name"},
    };
    by_table *t;
    by_error error = {0};
    BY_UNUSED(state);
    assert_int_equal(by_table_parse(&t, "t.jsonl", text, strlen(text), NULL, &error), BY_OK);
    assert_int_equal(by_table_rows(t), 3);
    assert_int_equal(by_table_column_count(t), 3);
    const by_column *a = by_table_find(t, "a");
    const by_column *c = by_table_find(t, "c");
    assert_true(a->numbers[0] == 1.0 && isnan(a->numbers[1]) && a->numbers[2] == 3.0);
    assert_true(isnan(c->numbers[0]) && c->numbers[1] == 2.5 && isnan(c->numbers[2]));
    assert_true(a->missing == 1 && c->missing == 2 && by_table_find(t, "b")->missing == 1);
    assert_string_equal(value_of(t, "b", 0), "x");
    assert_string_equal(value_of(t, "b", 1), "7");
    assert_null(value_of(t, "b", 2));
    by_table_close(&t);
    static const char numbers[] = "\xef\xbb\xbf{\"a\": 18446744073709551616, \"b\": 0.1}\n"
                                  "{\"a\": -1e300, \"b\": \"x\\u0000\\ud800\"}";
    assert_int_equal(by_table_parse(&t, "t.jsonl", numbers, strlen(numbers), NULL, &error), BY_OK);
    a = by_table_find(t, "a");
    assert_true(a->numbers[0] == 18446744073709551616.0 && a->numbers[1] == -1e300);
    assert_string_equal(value_of(t, "b", 0), "0.1");
    assert_string_equal(value_of(t, "b", 1), "x\xef\xbf\xbd\xef\xbf\xbd");
    by_table_close(&t);

    const by_column_type types[] = {{"b", BY_COLUMN_NUMBER}};
    const by_table_options options = {.types = types, .type_count = 1};
    assert_int_equal(by_table_parse(&t, "t.ndjson", text, strlen(text), &options, &error),
                     BY_EFORMAT);
    assert_string_equal(error.message, "t.ndjson:1: column 'b': 'x' is not a number");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        assert_int_equal(
            by_table_parse(&t, "t.jsonl", wrong[i].text, strlen(wrong[i].text), NULL, &error),
            BY_EFORMAT);
        assert_int_equal(strncmp(error.message, wrong[i].message, strlen(wrong[i].message)), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_csv_errors),
        cmocka_unit_test(test_damaged_rows),
        cmocka_unit_test(test_regression),
        cmocka_unit_test(test_several_targets),
        cmocka_unit_test(test_several_targets_refused),
        cmocka_unit_test(test_classification),
        cmocka_unit_test(test_encoding_refusals),
        cmocka_unit_test(test_many_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
