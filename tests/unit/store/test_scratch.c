/* Scratch files: transfers, ranges of any place, and disks that have no room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runner.h"
#include "store/scratch.h"
#include "temporary.h"

#define PAGE  ((size_t)BY__SCRATCH_ALIGNMENT)
#define PAGES 1500 /* several requests of the disk for one transfer */

typedef struct fixture {
    char *directory;
    by__store_scratch *scratch;
    char *data; /* PAGES of them */
} fixture;

static void open_fixture(fixture *f)
{
    by_error error = {0};
    void *data;
    f->directory = temporary_make();
    check_ok(by__store_scratch_open(&f->scratch, f->directory, 2 * PAGES * PAGE, &error), &error);
    assert_int_equal(posix_memalign(&data, PAGE, PAGES * PAGE), 0);
    f->data = data;
    for (size_t i = 0; i < PAGES * PAGE; i++) {
        f->data[i] = (char)(i * 31 + i / 1000);
    }
}

static void close_fixture(fixture *f)
{
    by__store_scratch_close(&f->scratch);
    free(f->data);
    temporary_remove(f->directory);
}

static void test_transfers(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    fixture f;
    char **names;
    size_t count;
    by__store_transfer many[3] = {0};
    open_fixture(&f);
    check_ok(by__list_dir(&names, &count, f.directory, &error), &error);
    assert_int_equal(count, 0); /* whatever happens, nothing is left */
    by__names_free(names, count);
    char *back = aligned_alloc(PAGE, PAGES * PAGE);
    char *zeros = calloc(PAGES, PAGE);
    by__store_transfer write = {
        .kind = BY__TRANSFER_WRITE, .offset = PAGES * PAGE, .data = f.data, .bytes = PAGES * PAGE};
    check_ok(by__store_scratch_start(f.scratch, &write, &error), &error);
    check_ok(by__store_scratch_wait(f.scratch, &write, &error), &error);
    assert_true(by__store_scratch_is_done(f.scratch, &write));
    for (size_t i = 0; i < 3; i++) { /* a third each */
        many[i] = (by__store_transfer){.kind = BY__TRANSFER_READ,
                                       .offset = (PAGES + i * PAGES / 3) * PAGE,
                                       .data = back + i * PAGES / 3 * PAGE,
                                       .bytes = PAGES / 3 * PAGE};
        check_ok(by__store_scratch_start(f.scratch, &many[i], &error), &error);
    }
    for (size_t i = 3; i > 0; i--) {
        check_ok(by__store_scratch_wait(f.scratch, &many[i - 1], &error), &error);
    }
    assert_memory_equal(back, f.data, PAGES * PAGE);
    check_ok(by__store_scratch_read(f.scratch, 0, back, PAGES * PAGE, &error), &error);
    assert_memory_equal(back, zeros, PAGES * PAGE);
    free(zeros);
    free(back);
    close_fixture(&f);
}

/* Ranges that begin and end anywhere leave what is around them. */
static void test_any_range(void **state)
{
    BY_UNUSED(state);
    static const size_t ranges[][2] = {{0, 1},          {5, 10},         {4095, 2},
                                       {4096, 4096},    {8000, 5000},    {100, 3000000},
                                       {2000001, 4097}, {1048570, 1100}, {6143999, 1}};
    by_error error = {0};
    fixture f;
    open_fixture(&f);
    char *expected = calloc(PAGES, PAGE);
    char *got = malloc(PAGES * PAGE);
    uint64_t version = by__store_scratch_version(f.scratch);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ranges); i++) {
        size_t at = ranges[i][0];
        size_t bytes = ranges[i][1];
        memcpy(expected + at, f.data + i, bytes);
        check_ok(by__store_scratch_write(f.scratch, at, f.data + i, bytes, &error), &error);
        assert_true(by__store_scratch_version(f.scratch) > version);
        check_ok(by__store_scratch_read(f.scratch, at, got, bytes, &error), &error);
        assert_memory_equal(got, expected + at, bytes);
        check_ok(by__store_scratch_read(f.scratch, 0, got, PAGES * PAGE, &error), &error);
        assert_memory_equal(got, expected, PAGES * PAGE);
    }
    memset(expected + 77, 0, 3000000);
    check_ok(by__store_scratch_write(f.scratch, 77, NULL, 3000000, &error), &error);
    check_ok(by__store_scratch_read(f.scratch, 0, got, PAGES * PAGE, &error), &error);
    assert_memory_equal(got, expected, PAGES * PAGE);
    free(got);
    free(expected);
    close_fixture(&f);
}

#define WRITERS 4 /* threads of a scratch file */

static atomic_int to_refuse;
static atomic_int refused;
static pthread_barrier_t together;

/* In the place of the C library's: a disk that refuses writes past the page cache, those of all
 * threads at the same time. */
ssize_t __wrap_pwrite64(int file, const void *data, size_t bytes, off_t offset);

ssize_t __wrap_pwrite64(int file, const void *data, size_t bytes, off_t offset)
{
    if (atomic_load(&to_refuse) > 0 && (fcntl(file, F_GETFL) & O_DIRECT) != 0 &&
        atomic_fetch_sub(&to_refuse, 1) > 0) {
        (void)pthread_barrier_wait(&together);
        atomic_fetch_add(&refused, 1);
        errno = EINVAL;
        return -1;
    }
    return syscall(SYS_pwrite64, file, data, bytes, offset);
}

/* Every thread goes on through the page cache, also one that finds that another has seen to it. */
static void test_no_direct_writes(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    fixture f;
    open_fixture(&f);
    char *path = by__path_join(f.directory, "direct");
    int file = open(path, O_WRONLY | O_CREAT | O_DIRECT, 0600);
    bool can = file >= 0; /* else there is nothing to fall back from */
    char *back = aligned_alloc(PAGE, PAGES * PAGE);
    by__store_transfer write = {.kind = BY__TRANSFER_WRITE, .data = f.data, .bytes = PAGES * PAGE};
    assert_int_equal(pthread_barrier_init(&together, NULL, WRITERS), 0);
    atomic_store(&to_refuse, can ? WRITERS : 0);
    check_ok(by__store_scratch_start(f.scratch, &write, &error), &error);
    check_ok(by__store_scratch_wait(f.scratch, &write, &error), &error);
    assert_int_equal(atomic_load(&refused), can ? WRITERS : 0);
    check_ok(by__store_scratch_read(f.scratch, 0, back, PAGES * PAGE, &error), &error);
    assert_memory_equal(back, f.data, PAGES * PAGE);
    assert_int_equal(pthread_barrier_destroy(&together), 0);
    if (can) {
        (void)close(file);
    }
    free(back);
    free(path);
    close_fixture(&f);
}

static void set_limit(rlim_t bytes, struct rlimit *before)
{
    assert_int_equal(getrlimit(RLIMIT_FSIZE, before), 0);
    const struct rlimit limit = {bytes, before->rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A signal whose default is to end the process must not reach it. */
static void test_no_room(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    struct rlimit before;
    by__store_scratch *scratch = NULL;
    char *directory = temporary_make();
    set_limit(10 * PAGE, &before);
    by_status status = by__store_scratch_open(&scratch, directory, 11 * PAGE, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    check_error(status, BY_EIO, &error, "cannot reserve 44.0 KiB in ");
    assert_null(scratch);
    temporary_remove(directory);
    check_error(by__store_scratch_open(&scratch, "/proc/nothing", PAGE, &error), BY_EIO, &error,
                "/proc/nothing");
}

/* The first error stays, for transfers that were under way and all that come. */
static void test_errors_stay(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    fixture f;
    struct rlimit before;
    char byte;
    open_fixture(&f);
    by__store_transfer good = {.kind = BY__TRANSFER_WRITE, .data = f.data, .bytes = PAGE};
    by__store_transfer bad = {.kind = BY__TRANSFER_WRITE,
                              .offset = 100 * PAGE,
                              .data = f.data,
                              .bytes = (PAGES - 100) * PAGE};
    check_ok(by__store_scratch_start(f.scratch, &good, &error), &error);
    check_ok(by__store_scratch_wait(f.scratch, &good, &error), &error);
    set_limit(200 * PAGE, &before);
    check_ok(by__store_scratch_start(f.scratch, &bad, &error), &error);
    check_error(by__store_scratch_wait(f.scratch, &bad, &error), BY_EIO, &error,
                "cannot write the scratch file ");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    check_error(by__store_scratch_start(f.scratch, &good, &error), BY_EIO, &error,
                "File too large");
    check_error(by__store_scratch_read(f.scratch, 0, &byte, 1, &error), BY_EIO, &error,
                "cannot write");
    check_error(by__store_scratch_write(f.scratch, 0, &byte, 1, &error), BY_EIO, &error,
                "cannot write");
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfers),        cmocka_unit_test(test_any_range),
        cmocka_unit_test(test_no_direct_writes), cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_errors_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
