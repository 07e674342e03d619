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

static void add(by__broker_tasks *tasks, const char *id, double expires, const char *webhook)
{
    by_error error = {0};
    json_t *task = json_pack("{ss ss sf s{ss s{} ss*}}", "id", id, "owner", "o", "expires", expires,
                             "task", "model", "m", "request", "webhook", webhook);
    assert_int_equal(by__broker_tasks_add(tasks, task, &error), BY_OK);
    assert_int_equal(by__broker_tasks_set(tasks, id, BY__TASK_COMPLETED, 1, NULL, NULL, &error),
                     BY_OK);
    json_decref(task);
}

static bool is_kept(by__broker_tasks *tasks, const char *id)
{
    json_t *row = NULL;
    by_error error = {0};
    assert_int_equal(by__broker_tasks_get(tasks, id, "o", &row, &error), BY_OK);
    json_decref(row);
    return row != NULL;
}

/* A task whose webhook is still to be sent is kept for a day more. */
static void test_expiry(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "tasks.sqlite");
    by__broker_tasks *tasks = NULL;
    by_error error = {0};
    (void)state;
    assert_int_equal(by__broker_tasks_open(&tasks, path, &error), BY_OK);
    add(tasks, "early", 100.0, NULL);
    add(tasks, "late", 300.0, NULL);
    add(tasks, "hooked", 100.0, "https://a.example/");
    assert_int_equal(by__broker_tasks_expire(tasks, 200.0, &error), BY_OK);
    assert_false(is_kept(tasks, "early"));
    assert_true(is_kept(tasks, "late"));
    assert_true(is_kept(tasks, "hooked"));
    assert_int_equal(by__broker_tasks_expire(tasks, 101.0 + DAY, &error), BY_OK);
    assert_false(is_kept(tasks, "hooked"));
    assert_int_equal(by__broker_tasks_commit(tasks, &error), BY_OK);
    by__broker_tasks_close(&tasks);
    temporary_remove(directory);
    free(path);
}

/* Responses are kept for a month, so that there may be millions. */
static void test_index(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "tasks.sqlite");
    by__broker_tasks *tasks = NULL;
    sqlite3 *db = NULL;
    sqlite3_stmt *plan = NULL;
    by_error error = {0};
    (void)state;
    assert_int_equal(by__broker_tasks_open(&tasks, path, &error), BY_OK);
    by__broker_tasks_close(&tasks);
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

static by_status make_room(by__broker_tasks *tasks, const char *id, const char *owner, int64_t most)
{
    by_error error = {0};
    const by__broker_tasks_room room = {most, 1 << 20, 1};
    return by__broker_tasks_make_room(tasks, id, owner, &room, &error);
}

static by_status make_bytes(by__broker_tasks *tasks, const char *id, int64_t bytes)
{
    by_error error = {0};
    const by__broker_tasks_room room = {100, 2000, bytes};
    return by__broker_tasks_make_room(tasks, id, "o", &room, &error);
}

static void add_long(by__broker_tasks *tasks, const char *id)
{
    by_error error = {0};
    char text[801];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    json_t *task = json_pack("{ss ss sf s{ss ss}}", "id", id, "owner", "o", "expires", 100.0,
                             "task", "model", "m", "request", text);
    assert_int_equal(by__broker_tasks_add(tasks, task, &error), BY_OK);
    json_decref(task);
}

/* The bytes of an owner are bounded: a request counts until its task has ended. */
static void test_bytes(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "tasks.sqlite");
    by__broker_tasks *tasks = NULL;
    json_t *row = NULL;
    json_t *result = json_pack("{ss}", "text", "0123456789");
    by_error error = {0};
    (void)state;
    assert_int_equal(by__broker_tasks_open(&tasks, path, &error), BY_OK);
    assert_int_equal(make_bytes(tasks, "task_a", 2001), BY_EARG);
    assert_int_equal(make_bytes(tasks, "task_a", 800), BY_OK);
    add_long(tasks, "task_a");
    add_long(tasks, "task_b");
    assert_int_equal(make_bytes(tasks, "task_c", 800), BY_EARG);
    assert_int_equal(make_bytes(tasks, "resp_c", 800), BY_OK); /* another kind */
    assert_int_equal(by__broker_tasks_open_ones(tasks, &row, &error), BY_OK);
    assert_int_equal(json_array_size(row), 2);
    assert_int_equal(json_string_length(json_object_get(
                         json_object_get(json_array_get(row, 0), "task"), "request")),
                     800);
    json_decref(row);
    assert_int_equal(by__broker_tasks_set(tasks, "task_a", BY__TASK_RUNNING, 1, NULL, NULL, &error),
                     BY_OK);
    assert_int_equal(make_bytes(tasks, "task_c", 800), BY_EARG);
    assert_int_equal(
        by__broker_tasks_set(tasks, "task_a", BY__TASK_FAILED, 1, NULL, result, &error), BY_OK);
    assert_int_equal(make_bytes(tasks, "task_c", 800), BY_OK);
    assert_int_equal(by__broker_tasks_get(tasks, "task_b", "o", &row, &error), BY_OK);
    assert_null(json_object_get(json_object_get(row, "task"), "request"));
    json_decref(row);
    /* Responses that have ended give way, the oldest first. */
    add_long(tasks, "resp_a");
    add_long(tasks, "resp_b");
    assert_int_equal(make_bytes(tasks, "resp_c", 800), BY_EARG);
    assert_int_equal(
        by__broker_tasks_set(tasks, "resp_b", BY__TASK_COMPLETED, 1, result, NULL, &error), BY_OK);
    assert_int_equal(make_bytes(tasks, "resp_c", 1170), BY_OK);
    assert_false(is_kept(tasks, "resp_b"));
    assert_true(is_kept(tasks, "resp_a"));
    json_decref(result);
    by__broker_tasks_close(&tasks);
    temporary_remove(directory);
    free(path);
}

/* A file of an earlier version. */
static void test_earlier(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "tasks.sqlite");
    by__broker_tasks *tasks = NULL;
    sqlite3 *db = NULL;
    json_t *open = NULL;
    by_error error = {0};
    (void)state;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(
            db,
            "CREATE TABLE tasks (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
            " owner TEXT NOT NULL, key TEXT, state INTEGER NOT NULL, attempts INTEGER NOT NULL,"
            " created REAL NOT NULL, expires REAL NOT NULL, task TEXT NOT NULL, result TEXT,"
            " failure TEXT);"
            "CREATE TABLE stored (owner TEXT, kind TEXT, count INTEGER NOT NULL,"
            " PRIMARY KEY (owner, kind)) WITHOUT ROWID;"
            "CREATE TRIGGER stores AFTER INSERT ON tasks BEGIN"
            " INSERT INTO stored VALUES (NEW.owner, substr(NEW.id, 1, 4), 1)"
            " ON CONFLICT DO UPDATE SET count = count + 1; END;"
            "INSERT INTO tasks (id, owner, state, attempts, created, expires, task) VALUES"
            " ('task_a', 'o', 0, 0, 1.0, 9e9, '{\"model\":\"m\",\"request\":\"{}\"}');",
            NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    assert_int_equal(by__broker_tasks_open(&tasks, path, &error), BY_OK);
    assert_int_equal(by__broker_tasks_open_ones(tasks, &open, &error), BY_OK);
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(json_array_get(open, 0), "task"), "request")),
                        "{}");
    json_decref(open);
    add_long(tasks, "task_b");
    assert_int_equal(make_room(tasks, "task_c", "o", 2), BY_EARG);
    assert_int_equal(
        by__broker_tasks_set(tasks, "task_a", BY__TASK_COMPLETED, 1, NULL, NULL, &error), BY_OK);
    by__broker_tasks_close(&tasks);
    temporary_remove(directory);
    free(path);
}

/* Responses replace the oldest of their owner that have ended; tasks are refused. The file keeps
 * the counts, also of what was written before it had any. */
static void test_room(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "tasks.sqlite");
    by__broker_tasks *tasks = NULL;
    sqlite3 *db = NULL;
    by_error error = {0};
    (void)state;
    assert_int_equal(by__broker_tasks_open(&tasks, path, &error), BY_OK);
    json_t *open = json_pack("{ss ss sf s{ss s{}}}", "id", "resp_open", "owner", "o", "expires",
                             100.0, "task", "model", "m", "request");
    assert_int_equal(by__broker_tasks_add(tasks, open, &error), BY_OK);
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
    assert_int_equal(by__broker_tasks_commit(tasks, &error), BY_OK);
    by__broker_tasks_close(&tasks);

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "DELETE FROM stored", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    assert_int_equal(by__broker_tasks_open(&tasks, path, &error), BY_OK);
    assert_int_equal(make_room(tasks, "task_c", "o", 2), BY_EARG);
    assert_int_equal(by__broker_tasks_delete(tasks, "task_a", &error), BY_OK);
    assert_int_equal(make_room(tasks, "task_c", "o", 2), BY_OK);
    assert_int_equal(by__broker_tasks_expire(tasks, 200.0, &error), BY_OK);
    assert_int_equal(make_room(tasks, "task_c", "o", 1), BY_OK);
    by__broker_tasks_close(&tasks);
    temporary_remove(directory);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expiry), cmocka_unit_test(test_index),
                                       cmocka_unit_test(test_room), cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_earlier)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
