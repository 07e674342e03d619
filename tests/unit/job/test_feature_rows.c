/* What a model reads of a row: in training, from a table, and served, of the values that a feature
 * store has. The bits are the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/wire/protobuf.h"
#include "data/table/row_cell.h"
#include "job/job.h"
#include "job/table_cells.h"
#include "runner.h"
#include "serve/features/feature_store.h"
#include "temporary.h"

enum { ROWS = 200, COLUMNS = 5, STRING_VAL = 2, INT64_VAL = 4, DOUBLE_VAL, FLOAT_VAL, BOOL_VAL };

static const char *const column_names[COLUMNS] = {"rate", "share", "trips", "active", "class"};

/* A cell in a file, and as the message that Feast writes of the same value. */
typedef struct cell {
    char text[64]; /* as it is; "": missing */
    by_string message;
} cell;

static void make_cell(cell *out, size_t row, size_t column)
{
    static const char *const words[] = {"a", "b \"c\"", "d, e", "\u00e9", "NA"};
    double draw = random_unit(7, column, row);
    float narrow = (float)draw;
    int64_t whole = (int64_t)(draw * 0x1p61);
    *out = (cell){0};
    if (column < 4 && random_unit(8, column, row) < -0.8) {
        return;
    }
    switch (column) {
    case 0:
        (void)snprintf(out->text, sizeof out->text, "%.17g", draw * 1e3 / 7.0);
        by__proto_double(&out->message, DOUBLE_VAL, draw * 1e3 / 7.0);
        break;
    case 1:
        (void)snprintf(out->text, sizeof out->text, "%.17g", (double)narrow);
        by__proto_float(&out->message, FLOAT_VAL, narrow);
        break;
    case 2: /* beyond the whole numbers that a double has */
        (void)snprintf(out->text, sizeof out->text, "%lld", (long long)whole);
        by__proto_int(&out->message, INT64_VAL, whole);
        break;
    case 3:
        (void)snprintf(out->text, sizeof out->text, "%d", draw > 0.0);
        by__proto_int(&out->message, BOOL_VAL, draw > 0.0);
        break;
    default:
        (void)snprintf(out->text, sizeof out->text, "%s",
                       words[(size_t)((draw + 1.0) * 2.5) % BY_ARRAY_LENGTH(words)]);
        by__proto_string(&out->message, STRING_VAL, out->text);
        break;
    }
}

static void write_table(const char *path)
{
    by_string csv = {0};
    by_error error = {0};
    by__string_append(&csv, "rate,share,trips,active,class,price\n");
    for (size_t row = 0; row < ROWS; row++) {
        for (size_t column = 0; column < COLUMNS; column++) {
            cell c;
            make_cell(&c, row, column);
            for (const char *at = c.text; *at != '\0'; at++) {
                by_string_format(&csv, "%s%s%c", at == c.text ? "\"" : "", *at == '"' ? "\"" : "",
                                 *at);
            }
            by__string_append(&csv, c.text[0] == '\0' ? "," : "\",");
            by_string_free(&c.message);
        }
        by_string_format(&csv, "%zu\n", row);
    }
    check_ok(by__file_write(path, csv.data, csv.length, &error), &error);
    by_string_free(&csv);
}

/* The row as it comes to a worker: a JSON text of what the store's messages hold. */
static json_t *served_row(size_t row)
{
    static const by__feature_column any = {.time_unit = 1.0};
    json_t *out = json_object();
    for (size_t column = 0; column < COLUMNS; column++) {
        by__feature_slot slot = {0};
        cell c;
        make_cell(&c, row, column);
        by__feature_put_message(&slot, &any, c.message.data == NULL ? "" : c.message.data,
                                c.message.length, 1.0);
        assert_int_equal(slot.outcome,
                         c.message.length > 0 ? BY__FEATURE_PRESENT : BY__FEATURE_NULL);
        (void)json_object_set_new(out, column_names[column],
                                  slot.value == NULL ? json_null() : slot.value);
        by_string_free(&c.message);
    }
    char *text = json_dumps(out, JSON_COMPACT);
    json_decref(out);
    out = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(out);
    return out;
}

static by_table *served_table(const by_task_data *data)
{
    char *cells[ROWS * COLUMNS];
    by_error error = {0};
    by_table *table;
    for (size_t row = 0; row < ROWS; row++) {
        json_t *object = served_row(row);
        for (size_t i = 0; i < COLUMNS; i++) {
            by_column_type column;
            assert_true(data->task->column(data, i, &column));
            check_ok(by__table_row_cell(&cells[row * COLUMNS + i],
                                        json_object_get(object, column.name), row, &error),
                     &error);
        }
        json_decref(object);
    }
    check_ok(by__job_table_of_cells(&table, data, (const char *const *)cells, ROWS, &error),
             &error);
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        free(cells[i]);
    }
    return table;
}

static const by_array *array_of(const by_source *source, const char *name, size_t *index)
{
    for (*index = 0; *index < source->array_count; (*index)++) {
        if (strcmp(source->arrays[*index].name, name) == 0) {
            return &source->arrays[*index];
        }
    }
    return NULL;
}

/* The bytes of an array of one example. */
static size_t read_array(const by_source *source, uint64_t place, const char *name,
                         uint8_t out[256])
{
    uint8_t memory[8][256] = {{0}};
    void *rows[8];
    size_t index;
    by_error error = {0};
    const by_array *array = array_of(source, name, &index);
    const by_source_sample sample = {.place = place};
    assert_true(array != NULL && source->array_count <= BY_ARRAY_LENGTH(rows));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        rows[i] = memory[i];
    }
    check_ok(source->fill(source, &sample, rows, &error), &error);
    size_t size = (size_t)by_shape_count(&array->shape) * by_dtype_size(array->dtype);
    assert_true(size > 0 && size <= sizeof memory[0]);
    memcpy(out, memory[index], size);
    return size;
}

/* What training has learned, where a checkpoint keeps it. */
static void keep_learned(by_task_data *data, const by_config *config, const char *directory)
{
    by_error error = {0};
    by_task_kept kept = {0};
    check_ok(data->task->keep(data, config, &kept, &error), &error);
    assert_true(kept.file_count > 0);
    for (size_t i = 0; i < kept.file_count; i++) {
        char *path = by__path_join(directory, kept.files[i].name);
        check_ok(by__file_write(path, kept.files[i].data, kept.files[i].size, &error), &error);
        free(path);
    }
}

static void test_rows_are_the_same(void **state)
{
    static const char *const common[] = {
        "task.kind=regress",     "model.kind=mlp", "model.hidden=[4]",   "data.target=price",
        "data.valid_fraction=0", "train.batch=4",  "optimizer.warmup=1", NULL};
    static const char *const arrays[] = {"numbers", "categories"};
    char *directory = temporary_make();
    char *path = by__path_join(directory, "table.csv");
    char setting[512];
    const char *const settings[] = {setting, NULL};
    by_error error = {0};
    by_task_data *trained, *serving;
    const by_task *task;
    by_source *from_table, *from_store;
    by_array_set *set;
    (void)state;
    write_table(path);
    (void)snprintf(setting, sizeof setting, "data.table=%s", path);
    by_config *config = config_of(common, settings);
    check_ok(by_task_find(&task, config, &error), &error);
    check_ok(by_task_open(&trained, NULL, &(by_task_request){.config = config}, &error), &error);
    check_ok(task->source(&from_table, trained, config, true, &error), &error);
    keep_learned(trained, config, directory);

    const by_task_request request = {
        .purpose = BY_TASK_PREDICT, .config = config, .learned = directory};
    check_ok(by_task_open(&serving, NULL, &request, &error), &error);
    by_table *table = served_table(serving);
    const by_task_examples examples = {.table = table};
    check_ok(task->open_examples(serving, &examples, &set, &from_store, &error), &error);
    assert_int_equal(from_table->samples, ROWS);
    assert_int_equal(from_store->samples, ROWS);
    for (uint64_t row = 0; row < ROWS; row++) {
        for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
            uint8_t a[256];
            uint8_t b[256];
            size_t size = read_array(from_table, row, arrays[i], a);
            assert_int_equal(read_array(from_store, row, arrays[i], b), size);
            assert_memory_equal(a, b, size);
        }
    }
    by_source_close(&from_store);
    by_source_close(&from_table);
    by_array_set_close(&set);
    by_table_close(&table);
    by_task_close(&serving);
    by_task_close(&trained);
    by_config_close(&config);
    free(path);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_are_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
