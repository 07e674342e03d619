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
    assert_non_null(strstr((const char *)sqlite3_column_text(plan, 3), "INDEX expiry"));
    (void)sqlite3_finalize(plan);
    (void)sqlite3_close(db);
    temporary_remove(directory);
    free(path);
}

static by_status make_room(by__tasks *tasks, const char *id, const char *owner, int64_t most)
{
    by_error error = {0};
    return by__tasks_make_room(tasks, id, owner, most, &error);
}

/* Responses replace the oldest of their owner that have ended; tasks are refused. The file keeps
 * the counts, also of what was written before it had any. */
static void test_room(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "tasks.sqlite");
    by__tasks *tasks = NULL;
    sqlite3 *db = NULL;
    by_error error = {0};
    (void)state;
    assert_int_equal(by__tasks_open(&tasks, path, &error), BY_OK);
    json_t *open = json_pack("{ss ss sf s{ss s{}}}", "id", "resp_open", "owner", "o", "expires",
                             100.0, "task", "model", "m", "request");
    assert_int_equal(by__tasks_add(tasks, open, &error), BY_OK);
    json_decref(open);
    add(tasks, "resp_a", 100.0, NULL);
    add(tasks, "resp_b", 100.0, NULL);
    add(tasks, "task_a", 100.0, NULL);
    add(tasks, "task_b", 100.0, NULL);
    assert_int_equal(make_room(tasks, "resp_c", "o", 4), BY_OK);
    assert_true(is_kept(tasks, "resp_a"));
    assert_int_equal(make_room(tasks, "resp_c", "o", 3), BY_OK);
    assert_false(is_kept(tasks, "resp_a"));
    assert_true(is_kept(tasks, "resp_b") && is_kept(tasks, "resp_open"));
    assert_int_equal(make_room(tasks, "resp_c", "o", 1), BY_EARG);
    assert_true(is_kept(tasks, "resp_open"));
    assert_int_equal(make_room(tasks, "task_c", "o", 2), BY_EARG);
    assert_true(is_kept(tasks, "task_a"));
    assert_int_equal(make_room(tasks, "task_c", "other", 2), BY_OK);
    assert_int_equal(by__tasks_commit(tasks, &error), BY_OK);
    by__tasks_close(&tasks);

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "DELETE FROM stored", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    assert_int_equal(by__tasks_open(&tasks, path, &error), BY_OK);
    assert_int_equal(make_room(tasks, "task_c", "o", 2), BY_EARG);
    assert_int_equal(by__tasks_delete(tasks, "task_a", &error), BY_OK);
    assert_int_equal(make_room(tasks, "task_c", "o", 2), BY_OK);
    assert_int_equal(by__tasks_expire(tasks, 200.0, &error), BY_OK);
    assert_int_equal(make_room(tasks, "task_c", "o", 1), BY_OK);
    by__tasks_close(&tasks);
    temporary_remove(directory);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expiry), cmocka_unit_test(test_index),
                                       cmocka_unit_test(test_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
