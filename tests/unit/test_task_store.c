/* Tasks on disk: what has expired goes, without a look at all that is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <sqlite3.h>

#include "serve/broker/task_store.h"
#include "temporary.h"

#define DAY 86400.0

static void add(by__tasks *tasks, const char *id, double expires, const char *webhook)
{
    by_error error = {0};
    json_t *task = json_pack("{ss ss sf s{ss s{} ss*}}", "id", id, "owner", "o", "expires", expires,
                             "task", "model", "m", "request", "webhook", webhook);
    assert_int_equal(by__tasks_add(tasks, task, &error), BY_OK);
    assert_int_equal(by__tasks_set(tasks, id, BY__TASK_COMPLETED, 1, NULL, NULL, &error), BY_OK);
    json_decref(task);
}

static bool is_kept(by__tasks *tasks, const char *id)
{
    json_t *row = NULL;
    by_error error = {0};
    assert_int_equal(by__tasks_get(tasks, id, "o", &row, &error), BY_OK);
    json_decref(row);
    return row != NULL;
}

/* A task whose webhook is still to be sent is kept for a day more. */
static void test_expiry(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "tasks.sqlite");
    by__tasks *tasks = NULL;
    by_error error = {0};
    (void)state;
    assert_int_equal(by__tasks_open(&tasks, path, &error), BY_OK);
    add(tasks, "early", 100.0, NULL);
    add(tasks, "late", 300.0, NULL);
    add(tasks, "hooked", 100.0, "https://a.example/");
    assert_int_equal(by__tasks_expire(tasks, 200.0, &error), BY_OK);
    assert_false(is_kept(tasks, "early"));
    assert_true(is_kept(tasks, "late"));
    assert_true(is_kept(tasks, "hooked"));
    assert_int_equal(by__tasks_expire(tasks, 101.0 + DAY, &error), BY_OK);
    assert_false(is_kept(tasks, "hooked"));
    assert_int_equal(by__tasks_commit(tasks, &error), BY_OK);
    by__tasks_close(&tasks);
    temporary_remove(directory);
    free(path);
}

/* Responses are kept for a month, so that there may be millions. */
static void test_index(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "tasks.sqlite");
    by__tasks *tasks = NULL;
    sqlite3 *db = NULL;
    sqlite3_stmt *plan = NULL;
    by_error error = {0};
    (void)state;
    assert_int_equal(by__tasks_open(&tasks, path, &error), BY_OK);
    by__tasks_close(&tasks);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "EXPLAIN QUERY PLAN DELETE FROM tasks WHERE expires < 1.0",
                                        -1, &plan, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(plan), SQLITE_ROW);
    assert_non_null(strstr((const char *)sqlite3_column_text(plan, 3), "USING INDEX"));
    (void)sqlite3_finalize(plan);
    (void)sqlite3_close(db);
    temporary_remove(directory);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expiry), cmocka_unit_test(test_index)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
