/* The registry: rows and run.json agree, loss or damage of the file loses nothing, and several
 * processes may write at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temporary.h"
#include "track/track.h"

static by_registry *open_registry(const char *runs)
{
    by_registry *registry;
    by_error error = {0};
    if (by_registry_open(&registry, runs, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return registry;
}

static void make_run(by_registry *registry, const char *runs, const char *name, const char *status,
                     uint64_t step, double loss, const char *updated)
{
    const by_run_record run = {.name = name,
                               .config_hash = "abc",
                               .started = "2026-01-01T00:00:00Z",
                               .updated = updated,
                               .status = status,
                               .step = step,
                               .steps = 100,
                               .best_loss = loss};
    char *directory = by__path_join(runs, name);
    by_error error = {0};
    assert_int_equal(by__make_dirs(directory, NULL), BY_OK);
    if (by_registry_update(registry, &run, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    free(directory);
}

static void fill(by_registry *registry, const char *runs)
{
    make_run(registry, runs, "alpha", "done", 100, 1.5, "2026-01-02T00:00:00Z");
    make_run(registry, runs, "beta", "running", 7, (double)NAN, "2026-01-03T00:00:00Z");
    make_run(registry, runs, "beta", "running", 8, 2.25, "2026-01-04T00:00:00Z");
    make_run(registry, runs, "gamma'; DROP TABLE runs; --", "failed", 0, (double)NAN,
             "2026-01-01T00:00:00Z");
}

static void assert_filled(by_registry *registry, const char *runs)
{
    by_run_list list;
    char *path = by__path_join(runs, "beta");
    assert_int_equal(by_registry_list(registry, NULL, &list, NULL), BY_OK);
    assert_int_equal(list.count, 3);
    assert_string_equal(list.items[0].name, "beta");
    assert_string_equal(list.items[0].path, path);
    assert_string_equal(list.items[0].config_hash, "abc");
    assert_string_equal(list.items[0].started, "2026-01-01T00:00:00Z");
    assert_string_equal(list.items[0].updated, "2026-01-04T00:00:00Z");
    assert_string_equal(list.items[0].status, "running");
    assert_true(list.items[0].step == 8 && list.items[0].steps == 100);
    assert_true(list.items[0].best_loss == 2.25);
    assert_string_equal(list.items[1].name, "alpha");
    assert_true(isnan(list.items[2].best_loss));
    by_run_list_free(&list);
    free(path);
}

static void rows_are_listed_and_queried(void **state)
{
    (void)state;
    char *runs = temporary_make();
    by_registry *registry = open_registry(runs);
    by_run_list list;
    assert_int_equal(by_registry_list(registry, NULL, &list, NULL), BY_OK);
    assert_int_equal(list.count, 0);
    by_run_list_free(&list);
    fill(registry, runs);
    assert_filled(registry, runs);
    assert_int_equal(by_registry_list(registry, &(by_run_query){.status = "done"}, &list, NULL),
                     BY_OK);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0].name, "alpha");
    by_run_list_free(&list);
    assert_int_equal(by_registry_list(registry, &(by_run_query){.name = "et"}, &list, NULL), BY_OK);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0].name, "beta");
    by_run_list_free(&list);
    assert_int_equal(by_registry_list(registry, &(by_run_query){"et", "done"}, &list, NULL), BY_OK);
    assert_int_equal(list.count, 0);
    by_run_list_free(&list);
    by_registry_close(&registry);
    assert_null(registry);
    temporary_remove(runs);
}

static void a_lost_or_damaged_file_is_made_again(void **state)
{
    (void)state;
    char *runs = temporary_make();
    char *path = by__path_join(runs, "registry.sqlite");
    char *broken = by__path_join(runs, "registry.sqlite.broken");
    by_registry *registry = open_registry(runs);
    fill(registry, runs);
    by_registry_close(&registry);
    assert_int_equal(unlink(path), 0);
    registry = open_registry(runs);
    assert_filled(registry, runs);
    by_registry_close(&registry);
    static const char junk[] = "this is not a database, whatever its name may say .............."
                               "...........................................................";
    assert_int_equal(by__file_write(path, junk, sizeof junk, NULL), BY_OK);
    registry = open_registry(runs);
    assert_filled(registry, runs);
    assert_true(by__path_exists(broken));
    by_registry_close(&registry);
    assert_int_equal(truncate(path, 5000), 0); /* a database, but cut */
    registry = open_registry(runs);
    assert_filled(registry, runs);
    by_registry_close(&registry);
    free(path);
    free(broken);
    temporary_remove(runs);
}

static void a_rebuild_follows_the_directories(void **state)
{
    (void)state;
    char *runs = temporary_make();
    char *alpha = by__path_join(runs, "alpha");
    char *renamed = by__path_join(runs, "omega");
    char *beta = by__path_join(runs, "beta/run.json");
    by_registry *registry = open_registry(runs);
    by_run_list list;
    fill(registry, runs);
    assert_int_equal(rename(alpha, renamed), 0);
    assert_int_equal(by__file_write(beta, "{\"name\":", 8, NULL), BY_OK);
    assert_int_equal(by_registry_rebuild(registry, NULL), BY_OK);
    assert_int_equal(by_registry_list(registry, &(by_run_query){.name = "omega"}, &list, NULL),
                     BY_OK);
    assert_int_equal(list.count, 1);
    assert_true(list.items[0].best_loss == 1.5);
    by_run_list_free(&list);
    assert_int_equal(
        by_registry_list(registry, &(by_run_query){.status = "unreadable"}, &list, NULL), BY_OK);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0].name, "beta");
    by_run_list_free(&list);
    by_registry_close(&registry);
    free(alpha);
    free(renamed);
    free(beta);
    temporary_remove(runs);
}

static void a_view_reads_only_and_knows_the_killed(void **state)
{
    (void)state;
    char *runs = temporary_make();
    char *beta = by__path_join(runs, "beta");
    char *path = by__path_join(runs, "registry.sqlite");
    by_registry *registry = open_registry(runs);
    by_run_list list;
    by_error error = {0};
    int lock = -1;
    fill(registry, runs);
    by_registry_close(&registry);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(by_registry_open_view(&registry, runs, &error), BY_OK);
    assert_int_equal(by_registry_list(registry, &(by_run_query){.status = "killed"}, &list, NULL),
                     BY_OK);
    assert_int_equal(list.count, 1); /* it says "running", and nobody holds it */
    assert_string_equal(list.items[0].name, "beta");
    by_run_list_free(&list);
    assert_int_equal(by_registry_update(registry, &(by_run_record){.name = "beta"}, &error),
                     BY_ESTATE);
    by_registry_close(&registry);
    assert_false(by__path_exists(path));
    /* A holder, another who wants to be one, and none any longer. */
    assert_int_equal(by__track_run_lock(&lock, beta, &error), BY_OK);
    int second = -1;
    assert_int_equal(by__track_run_lock(&second, beta, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "beta is being trained by process"));
    assert_int_equal(by_registry_open_view(&registry, runs, &error), BY_OK);
    assert_filled(registry, runs);
    by_registry_close(&registry);
    by__track_run_unlock(&lock);
    assert_false(by__track_run_is_held(beta));
    /* Of a process elsewhere nobody here can tell. */
    char *held = by__path_join(beta, ".lock");
    assert_int_equal(by__file_write(held, "process 7 on another.host\n", 26, &error), BY_OK);
    assert_true(by__track_run_is_held(beta));
    free(held);
    assert_int_equal(by_registry_open_view(&registry, path, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "there is no directory"));
    free(path);
    free(beta);
    temporary_remove(runs);
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "", ".", "..", "a/b", "\xff", ".hidden"};
    char *runs = temporary_make();
    by_registry *registry = open_registry(runs);
    by_error error = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        const by_run_record run = {.name = names[i]};
        assert_int_equal(by_registry_update(registry, &run, &error), BY_EARG);
    }
    assert_int_equal(by_registry_update(registry, &(by_run_record){.name = "nowhere"}, &error),
                     BY_EIO);
    assert_non_null(strstr(error.message, "nowhere/run.json"));
    by_registry_close(&registry);
    temporary_remove(runs);
}

static void several_processes_write_at_once(void **state)
{
    (void)state;
    enum { processes = 4, updates = 10 };
    static const char *const names[processes] = {"p0", "p1", "p2", "p3"};
    char *runs = temporary_make();
    pid_t children[processes];
    by_run_list list;
    for (int i = 0; i < processes; i++) {
        char *directory = by__path_join(runs, names[i]);
        assert_int_equal(by__make_dirs(directory, NULL), BY_OK);
        free(directory);
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            by_registry *registry; /* all make the table at the same time */
            int failed = by_registry_open(&registry, runs, NULL) != BY_OK;
            for (uint64_t k = 1; k <= updates && !failed; k++) {
                const by_run_record run = {
                    .name = names[i], .status = "running", .step = k, .best_loss = (double)NAN};
                failed = by_registry_update(registry, &run, NULL) != BY_OK;
            }
            _exit(failed);
        }
    }
    for (int i = 0; i < processes; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    by_registry *registry = open_registry(runs);
    assert_int_equal(by_registry_list(registry, NULL, &list, NULL), BY_OK);
    assert_int_equal(list.count, processes);
    for (size_t i = 0; i < list.count; i++) {
        assert_true(list.items[i].step == updates);
        assert_int_equal(strlen(list.items[i].updated), 20);
    }
    by_run_list_free(&list);
    by_registry_close(&registry);
    temporary_remove(runs);
}

/* Of those that find a damaged file one puts it aside, and none the file that another has made. */
static void several_processes_find_the_damage(void **state)
{
    (void)state;
    enum { processes = 8, rounds = 5 };
    static const char junk[] = "this is not a database, whatever its name may say .............."
                               "...........................................................";
    char *runs = temporary_make();
    char *path = by__path_join(runs, "registry.sqlite");
    char *broken = by__path_join(runs, "registry.sqlite.broken");
    by_registry *registry = open_registry(runs);
    fill(registry, runs);
    by_registry_close(&registry);
    for (int round = 0; round < rounds; round++) {
        pid_t children[processes];
        int gate[2];
        char *text;
        size_t length;
        assert_int_equal(by__file_write(path, junk, sizeof junk, NULL), BY_OK);
        assert_int_equal(pipe(gate), 0);
        for (int i = 0; i < processes; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0) {
                char byte;
                (void)close(gate[1]);
                bool failed = read(gate[0], &byte, 1) != 0; /* until all are there */
                _exit(failed || by_registry_open(&registry, runs, NULL) != BY_OK);
            }
        }
        (void)close(gate[0]);
        (void)close(gate[1]);
        for (int i = 0; i < processes; i++) {
            int status;
            assert_int_equal(waitpid(children[i], &status, 0), children[i]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        assert_int_equal(by__file_read(&text, &length, broken, 1 << 20, NULL), BY_OK);
        assert_int_equal(length, sizeof junk);
        assert_memory_equal(text, junk, sizeof junk);
        free(text);
        registry = open_registry(runs);
        assert_filled(registry, runs);
        by_registry_close(&registry);
    }
    free(broken);
    free(path);
    temporary_remove(runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_listed_and_queried),
        cmocka_unit_test(a_lost_or_damaged_file_is_made_again),
        cmocka_unit_test(a_rebuild_follows_the_directories),
        cmocka_unit_test(a_view_reads_only_and_knows_the_killed),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(several_processes_write_at_once),
        cmocka_unit_test(several_processes_find_the_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
