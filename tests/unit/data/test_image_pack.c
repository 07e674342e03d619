/* Packing pictures beside another process that packs the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/image_pack.h"
#include "temporary.h"

typedef struct other_process {
    by_image_pack_options options;
    bool done;
} other_process;

/* Packs all of it in another process, which renames the directory that this one writes into. */
static bool pack_elsewhere(void *user, uint64_t done, uint64_t total)
{
    other_process *other = user;
    int status = 0;
    assert_true(done <= total);
    if (other->done) {
        return true;
    }
    other->done = true;
    pid_t child = fork();
    if (child == 0) {
        _exit(by_image_pack(&other->options, NULL, NULL) == BY_OK ? 0 : 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}

static void put_picture(const char *directory, const char *name)
{
    static const char picture[] = "\x89PNG\r\n\x1a\n, which nobody decodes";
    char *path = by__path_join(directory, name);
    assert_non_null(path);
    assert_int_equal(by__make_dirs(path, NULL), BY_OK);
    char *file = by__path_join(path, "a.png");
    assert_non_null(file);
    assert_int_equal(by__file_write(file, picture, sizeof picture, NULL), BY_OK);
    free(file);
    free(path);
}

/* Who loses its directory to one that was faster finds the output. */
static void test_output_that_appears(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *pictures = by__path_join(directory, "pictures");
    char *output = by__path_join(directory, "packed");
    char *partial = by__path_join(directory, "packed.partial");
    assert_true(pictures != NULL && output != NULL && partial != NULL);
    put_picture(pictures, "ant");
    put_picture(pictures, "bee");
    const char *inputs[] = {pictures};
    const by_image_pack_options plain = {
        .inputs = inputs, .input_count = 1, .output = output, .threads = 1};
    other_process other = {.options = plain};
    by_image_pack_options o = plain;
    by_image_pack_result result = {0};
    by_error error = {0};
    o.progress = pack_elsewhere;
    o.user = &other;
    if (by_image_pack(&o, &result, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_true(other.done);
    assert_true(result.complete);
    assert_int_equal(result.pictures, 2);
    assert_true(by__path_exists(output));
    assert_false(by__path_exists(partial));
    free(partial);
    free(output);
    free(pictures);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_that_appears),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
