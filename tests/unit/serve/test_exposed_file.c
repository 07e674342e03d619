/* Files that other users of the machine can read are reported, those that they cannot are not; and
 * so is a kernel without Landlock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve/broker/task_store.h"
#include "serve/telemetry/exposed_file.h"
#include "temporary.h"

static char last[1024];

static void keep(void *user, const char *line)
{
    (void)user;
    (void)snprintf(last, sizeof last, "%s", line);
}

static bool is_told(const char *path)
{
    last[0] = '\0';
    by_serve_log_exposed(path, "a secret", keep, NULL);
    return last[0] != '\0';
}

/* Whether everybody may pass the directories above the test's own. */
static bool may_pass(const char *path)
{
    char above[1024];
    struct stat info;
    (void)snprintf(above, sizeof above, "%s", path);
    for (char *slash = strrchr(above, '/'); slash != NULL && slash != above;
         slash = strrchr(above, '/')) {
        *slash = '\0';
        if (stat(above, &info) != 0 || (info.st_mode & S_IXOTH) == 0) {
            return false;
        }
    }
    return true;
}

static void test_modes(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "keys");
    bool open = may_pass(directory);
    (void)state;
    assert_int_equal(by__file_write(path, "a", 1, NULL), BY_OK);
    assert_int_equal(chmod(path, 0644), 0);
    assert_false(is_told(path)); /* nobody else comes to it */
    assert_int_equal(chmod(directory, 0755), 0);
    assert_int_equal(is_told(path), open);
    if (open) {
        assert_non_null(strstr(last, "\"event\":\"file_exposed\""));
        assert_non_null(strstr(last, "\"mode\":\"0644\",\"holds\":\"a secret\""));
        assert_non_null(strstr(last, "chmod o-rwx"));
    }
    assert_int_equal(chmod(path, 0640), 0);
    assert_false(is_told(path));
    assert_false(is_told("/nowhere"));
    assert_false(is_told(""));
    assert_false(is_told(NULL));
    free(path);
    temporary_remove(directory);
}

/* The file of tasks and those beside it are their owner's, whatever is allowed at first. */
static void test_tasks(void **state)
{
    static const char *const names[] = {"tasks.sqlite", "tasks.sqlite-wal", "tasks.sqlite-shm"};
    char *directory = temporary_make();
    char *path = by__path_join(directory, names[0]);
    by__broker_tasks *tasks = NULL;
    by_error error = {0};
    const mode_t mask = umask(0);
    (void)state;
    assert_int_equal(by__broker_tasks_open(&tasks, path, &error), BY_OK);
    (void)umask(mask);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        char *file = by__path_join(directory, names[i]);
        struct stat info;
        assert_int_equal(stat(file, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        free(file);
    }
    by__broker_tasks_close(&tasks);
    free(path);
    temporary_remove(directory);
}

/* What is left to every process of a server without Landlock is said, and nothing with it. */
static void test_landlock(void **state)
{
    const by__telemetry_log log = {keep, NULL};
    (void)state;
    last[0] = '\0';
    by__telemetry_log_landlock(&log, 4, "a");
    by__telemetry_log_landlock(&log, -1, "a");
    assert_string_equal(last, "");
    by__telemetry_log_landlock(&log, 0, "the broker can open every file of its user");
    assert_non_null(strstr(last, "\"event\":\"landlock_missing\""));
    assert_non_null(strstr(last, "disabled it: the broker can open every file of its user"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_modes), cmocka_unit_test(test_tasks),
                                       cmocka_unit_test(test_landlock)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
