/* Packed text that is kept: found again by what it was made of, shared by processes, verified. */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "pack_text.h"
#include "temporary.h"

static void test_cache(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *cache = pack_join(directory, "cache");
    char *text = pack_put(directory, "a.txt", "to be or not to be");
    const char *inputs[] = {text};
    by_error error = {0};
    by_pack_options options = {.inputs = inputs, .input_count = 1, .tokenizer_kind = "char"};
    char *paths[6];
    struct stat before;
    struct stat after;
    assert_int_equal(by_pack_cached(&paths[0], &options, cache, &error), BY_OK);
    assert_int_equal(stat(paths[0], &before), 0);
    assert_int_equal(by_pack_cached(&paths[1], &options, cache, &error), BY_OK);
    assert_int_equal(stat(paths[1], &after), 0);
    assert_string_equal(paths[0], paths[1]);
    assert_int_equal(before.st_ino, after.st_ino);
    packed_text p = pack_read(paths[0]);
    assert_int_equal(p.manifest.tokens, 18);
    pack_free(&p);
    options.tokenizer_kind = SMALL;
    assert_int_equal(by_pack_cached(&paths[2], &options, cache, &error), BY_OK);
    options.valid_fraction = 0.5;
    assert_int_equal(by_pack_cached(&paths[3], &options, cache, &error), BY_OK);
    options.no_eos = true;
    assert_int_equal(by_pack_cached(&paths[4], &options, cache, &error), BY_OK);
    free(pack_put(directory, "a.txt", "to be or not to bee"));
    assert_int_equal(by_pack_cached(&paths[5], &options, cache, &error), BY_OK);
    for (size_t i = 1; i < BY_ARRAY_LENGTH(paths); i++) {
        for (size_t k = i + 1; k < BY_ARRAY_LENGTH(paths); k++) {
            assert_string_not_equal(paths[i], paths[k]);
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(paths); i++) {
        free(paths[i]);
    }
    free(text);
    free(cache);
    temporary_remove(directory);
}

/* Whether a directory that is being packed exists in the cache. */
static bool has_partial(const char *cache)
{
    char **names;
    size_t count;
    bool found = false;
    if (by__list_dir(&names, &count, cache, NULL) == BY_OK) {
        for (size_t i = 0; i < count; i++) {
            found = found || strstr(names[i], ".partial") != NULL;
        }
        by__names_free(names, count);
    }
    return found;
}

/* Processes that ask for the same at the same time all get it, one is killed on its way. */
static void test_cache_is_shared(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *texts = pack_join(directory, "texts");
    char *cache = pack_join(directory, "cache");
    assert_int_equal(by__make_dirs(texts, NULL), BY_OK);
    pack_make_large(texts);
    const char *inputs[] = {texts};
    by_pack_options options = {.inputs = inputs,
                               .input_count = 1,
                               .tokenizer_kind = "bpe",
                               .tokenizer_vocab = 300,
                               .field = "body",
                               .threads = 2};
    pid_t children[5];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(children); i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            char *path;
            _exit(by_pack_cached(&path, &options, cache, NULL) == BY_OK ? 0 : 1);
        }
        if (i == 0) {
            /* It is gone before it is done, most likely while it holds the lock. */
            while (!has_partial(cache)) {
                (void)sched_yield();
            }
            (void)kill(children[0], SIGKILL);
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(children); i++) {
        int code;
        assert_int_equal(waitpid(children[i], &code, 0), children[i]);
        assert_true(i == 0 || (WIFEXITED(code) && WEXITSTATUS(code) == 0));
    }
    char *path;
    by_error error = {0};
    char **names;
    size_t count;
    assert_int_equal(by_pack_cached(&path, &options, cache, &error), BY_OK);
    packed_text p = pack_read(path);
    assert_int_equal(p.manifest.documents, 203);
    pack_free(&p);
    assert_int_equal(by__list_dir(&names, &count, cache, &error), BY_OK);
    assert_int_equal(count, 1);
    by__names_free(names, count);
    free(path);
    free(cache);
    free(texts);
    temporary_remove(directory);
}

static bool stop_waiting(void *user, const by_pack_progress *progress)
{
    BY_UNUSED(user);
    return strcmp(progress->phase, "waiting") != 0;
}

static bool hold(void *user, const by_pack_progress *progress)
{
    const int *ready = user;
    if (strcmp(progress->phase, "packing") == 0) {
        assert_int_equal(write(ready[1], "x", 1), 1);
        (void)pause();
    }
    return true;
}

/* Who waits for another process says so, and may be stopped. */
static void test_waiting(void **state)
{
    BY_UNUSED(state);
    char notes[1000] = "";
    char *directory = temporary_make();
    char *cache = pack_join(directory, "cache");
    char *text = pack_put(directory, "a.txt", "some text");
    const char *inputs[] = {text};
    char *path = NULL;
    by_error error = {0};
    char byte;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    by_pack_options o = {.inputs = inputs,
                         .input_count = 1,
                         .tokenizer_kind = SMALL,
                         .progress = hold,
                         .user = ready};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(by_pack_cached(&path, &o, cache, NULL) == BY_OK ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    o.progress = stop_waiting;
    o.note = pack_keep_note;
    o.user = notes;
    assert_int_equal(by_pack_cached(&path, &o, cache, &error), BY_ESTOPPED);
    assert_non_null(strstr(notes, "waiting for another process that packs into "));
    assert_non_null(strstr(error.message, "stopped while waiting"));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(by_pack_cached(&path, &o, cache, &error), BY_OK);
    (void)close(ready[0]);
    (void)close(ready[1]);
    free(path);
    free(text);
    free(cache);
    temporary_remove(directory);
}

static bool count_reads(void *user, uint64_t done, uint64_t total)
{
    int *reads = user;
    assert_true(done <= total);
    (*reads)++;
    return *reads < 100;
}

/* Checksums are read at the first use, and again when a file is another one. */
static void test_verify(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *output = pack_join(directory, "packed");
    char *text = pack_put(directory, "a.txt", "some text to be packed");
    char *shard = pack_join(output, "tokens-00000.npy");
    const char *inputs[] = {text};
    by_error error = {0};
    int reads = 0;
    by_pack_options o = {
        .inputs = inputs, .input_count = 1, .output = output, .tokenizer_kind = SMALL};
    by_data_verify_options verify = {.progress = count_reads, .user = &reads};
    pack_run(&o, NULL);
    assert_int_equal(by_data_verify(output, &verify, &error), BY_OK);
    assert_int_equal(reads, 2); /* a shard and the offsets */
    assert_int_equal(by_data_verify(output, &verify, &error), BY_OK);
    assert_int_equal(reads, 2);
    verify.always = true;
    assert_int_equal(by_data_verify(output, &verify, &error), BY_OK);
    assert_int_equal(reads, 4);
    verify.always = false;
    /* Other bytes under the old size and time. */
    struct stat info;
    assert_int_equal(stat(shard, &info), 0);
    int fd = open(shard, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\x01", 1, 128), 1);
    const struct timespec times[2] = {info.st_atim, info.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(by_data_verify(output, &verify, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "tokens-00000.npy: damaged"));
    assert_int_equal(by_data_verify(output, NULL, &error), BY_EFORMAT); /* still */
    assert_int_equal(by__remove_tree(output, NULL), BY_OK);
    pack_run(&o, NULL);
    reads = 98;
    assert_int_equal(by_data_verify(output, &verify, &error), BY_ESTOPPED);
    free(shard);
    free(text);
    free(output);
    temporary_remove(directory);
}

/* The hash of the content sees an edit that keeps all sizes. */
static void test_content_hash(void **state)
{
    BY_UNUSED(state);
    static const char *const texts[] = {"ab ab", "ba ab", "ab ab"};
    char hashes[3][33];
    for (size_t i = 0; i < 3; i++) {
        char *directory = temporary_make();
        char *output = pack_join(directory, "packed");
        char *text = pack_put(directory, "a.txt", texts[i]);
        const char *inputs[] = {text};
        by_dataset *data;
        by_pack_options o = {
            .inputs = inputs, .input_count = 1, .output = output, .tokenizer_kind = SMALL};
        pack_run(&o, NULL);
        assert_int_equal(by_dataset_open(&data, output, NULL, NULL), BY_OK);
        by_dataset_hash(data, hashes[i]);
        by_dataset_close(&data);
        free(text);
        free(output);
        temporary_remove(directory);
    }
    assert_string_not_equal(hashes[0], hashes[1]);
    assert_string_equal(hashes[0], hashes[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify),          cmocka_unit_test(test_content_hash),
        cmocka_unit_test(test_waiting),         cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
