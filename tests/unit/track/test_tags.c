/* Tags of a run that several processes set at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "temporary.h"
#include "track/track.h"

/* The lock of the run, which the process that trains it holds, is none of the tags. */
static void several_processes_set_tags(void **state)
{
    (void)state;
    enum { processes = 4, tags = 25 };
    char *run = temporary_make();
    pid_t children[processes];
    by_tag_list list;
    by_error error = {0};
    int lock = -1;
    char **names;
    size_t count;
    assert_int_equal(by__track_run_lock(&lock, run, &error), BY_OK);
    for (int i = 0; i < processes; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            bool failed = false;
            for (int k = 0; k < tags && !failed; k++) {
                char key[32];
                (void)snprintf(key, sizeof key, "tag-%d-%02d", i, k);
                failed = by_tags_set(run, key, key, NULL) != BY_OK;
            }
            _exit(failed);
        }
    }
    for (int i = 0; i < processes; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    by__track_run_unlock(&lock);
    assert_int_equal(by_tags_read(&list, run, &error), BY_OK);
    assert_int_equal(list.count, processes * tags);
    for (size_t i = 0; i < list.count; i++) {
        assert_string_equal(list.items[i].key, list.items[i].value);
    }
    by_tag_list_free(&list);
    assert_int_equal(by__list_dir(&names, &count, run, NULL), BY_OK);
    assert_int_equal(count, 2); /* .lock of the run, and tags.json */
    by__names_free(names, count);
    temporary_remove(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_processes_set_tags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
