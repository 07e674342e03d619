/* The output directory of a pack, which another process makes at the same time. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/pack.h"
#include "data/pack/pack.h"
#include "pack_text.h"
#include "temporary.h"

/* Another process, which holds the lock of the unfinished directory, makes the output. */
typedef struct other_process {
    const char *output;
    int lock;
} other_process;

static bool make_output(void *user, const by_pack_progress *progress)
{
    const other_process *other = user;
    assert_string_equal(progress->phase, "waiting");
    assert_int_equal(by__make_dirs(other->output, NULL), BY_OK);
    assert_int_equal(close(other->lock), 0);
    return true;
}

/* Who gets the lock when the output is there by now finds that, and leaves nothing. */
static void test_output_that_appears(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *output = pack_join(directory, "packed");
    char *partial = pack_join(directory, "packed.partial");
    assert_int_equal(by__make_dirs(partial, NULL), BY_OK);
    other_process other = {.output = output,
                           .lock = open(partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    assert_true(other.lock >= 0);
    assert_int_equal(flock(other.lock, LOCK_EX | LOCK_NB), 0);
    const by__data_pack pack = {.options = {.progress = make_output, .user = &other}};
    int fd = 0;
    assert_int_equal(by__data_pack_lock(&pack, partial, output, &fd, NULL), BY_OK);
    assert_int_equal(fd, -1);
    assert_false(by__path_exists(partial));
    free(partial);
    free(output);
    temporary_remove(directory);
}

/* Another pack takes the unfinished directory of a rank that encodes, and finishes the output. */
typedef struct other_pack {
    by_pack_options options;
    bool done;
} other_pack;

static bool pack_other(void *user, const by_pack_progress *progress)
{
    other_pack *other = user;
    if (!other->done && strcmp(progress->phase, "packing") == 0) {
        other->done = true;
        pack_run(&other->options, NULL);
    }
    return true;
}

/* A rank whose directory is gone has no error if the output is there, and of the same texts. */
static void test_rank_that_is_late(void **state)
{
    BY_UNUSED(state);
    for (int same = 0; same < 2; same++) {
        char *directory = temporary_make();
        char *output = pack_join(directory, "packed");
        char *partial = pack_join(directory, "packed.partial");
        char *text = pack_put(directory, "a.txt", "some text");
        char *differs = pack_put(directory, "b.txt", "some other text");
        const char *inputs[] = {text};
        const char *others[] = {same == 1 ? text : differs};
        by_pack_result result = {0};
        other_pack other = {
            .options = {
                .inputs = others, .input_count = 1, .output = output, .tokenizer_kind = SMALL}};
        const by_pack_options o = {.inputs = inputs,
                                   .input_count = 1,
                                   .output = output,
                                   .tokenizer_kind = SMALL,
                                   .threads = 1,
                                   .rank = 1,
                                   .ranks = 2,
                                   .progress = pack_other,
                                   .user = &other};
        if (same == 1) {
            pack_run(&o, &result);
            assert_true(result.complete);
            assert_int_equal(result.tokens, 0);
        } else {
            assert_int_equal(by_pack(&o, NULL, NULL), BY_EIO);
        }
        assert_true(other.done);
        assert_false(by__path_exists(partial));
        packed_text p = pack_read(output);
        assert_int_equal(p.manifest.documents, 1);
        pack_free(&p);
        free(differs);
        free(text);
        free(partial);
        free(output);
        temporary_remove(directory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_that_appears),
        cmocka_unit_test(test_rank_that_is_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
