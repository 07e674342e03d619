/* Which checkpoints stay, what is listed of them, and how they differ. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/storage.h"
#include "checkpoints.h"
#include "runner.h"
#include "temporary.h"

static float data[6];

static void save(const char *root, uint64_t step, double loss)
{
    by_error error = {0};
    const by_tensor_view model = {"a", BY_F32, 2, {2, 3}, data};
    const by_tensor_view optimizer = {"m.a", BY_F32, 2, {2, 3}, data};
    const by_checkpoint_value value = {"valid_loss", BY_VALUE_F64, {.f64 = loss}};
    const checkpoint_content content = {.model = &model,
                                        .model_count = 1,
                                        .optimizer = &optimizer,
                                        .optimizer_count = 1,
                                        .values = &value,
                                        .value_count = isfinite(loss) ? 1 : 0};
    check_ok(checkpoint_write(root, step, &content, &error), &error);
}

/* Steps 1 to `count`; the losses are 9, 8, 7, ... but those of multiples of 3, which have none. */
static void save_many(const char *root, uint64_t count)
{
    for (uint64_t step = 1; step <= count; step++) {
        save(root, step, step % 3 == 0 ? (double)NAN : 10.0 - (double)step);
    }
}

static char *file_of(const char *root, uint64_t step, const char *name)
{
    char *directory;
    assert_int_equal(by__checkpoint_step_path(&directory, root, step, NULL), BY_OK);
    char *path = by__path_join(directory, name);
    free(directory);
    return path;
}

static void damage(const char *root, uint64_t step)
{
    char *path = file_of(root, step, "model.safetensors");
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, 100), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, 100), 1);
    assert_int_equal(close(fd), 0);
    free(path);
}

/* The steps that a root has, as "1 2 3 ". */
static void assert_steps(const char *root, const char *expected)
{
    uint64_t *steps;
    size_t count;
    char text[256] = "";
    assert_int_equal(by__checkpoint_root_steps(&steps, &count, root, NULL), BY_OK);
    for (size_t i = count; i > 0; i--) {
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%d ", (int)steps[i - 1]);
    }
    free(steps);
    assert_string_equal(text, expected);
}

/* `removed`: the sum of the steps that went. */
static void retain(const char *root, by_retention r, uint64_t removed)
{
    uint64_t *steps;
    size_t count;
    by_error error = {0};
    check_ok(by_checkpoint_retain(root, &r, &steps, &count, &error), &error);
    for (size_t i = 0; i < count; i++) {
        removed -= steps[i];
    }
    assert_int_equal(removed, 0);
    free(steps);
}

static void rules_add_up(void **state)
{
    (void)state;
    char *root = temporary_make();
    by_error error = {0};
    save_many(root, 9);
    check_ok(by_checkpoint_mark_best(root, 2, 8.0, &error), &error);
    /* 8 and 9 are the newest, 8, 7 and 5 the best, 4 and 8 multiples, 2 is marked. */
    retain(root,
           (by_retention){
               .keep = 2, .keep_best = 3, .keep_every = 4, .last = UINT64_MAX, .is_dry_run = true},
           1 + 3 + 6);
    assert_steps(root, "1 2 3 4 5 6 7 8 9 ");
    retain(root, (by_retention){.keep = 2, .keep_best = 3, .keep_every = 4, .last = UINT64_MAX},
           1 + 3 + 6);
    assert_steps(root, "2 4 5 7 8 9 ");
    retain(root, (by_retention){.keep = 1, .last = UINT64_MAX}, 4 + 5 + 7 + 8);
    assert_steps(root, "2 9 ");
    const by_retention none = {.last = UINT64_MAX};
    check_error(by_checkpoint_retain(root, &none, NULL, NULL, &error), BY_EARG, &error,
                "at least 1");
    temporary_remove(root);
}

/* A run that went on from step 2, because 3 and 4 were broken, and has saved step 3 again: what is
 * left of the first attempt does not count as the newest. */
static void a_broken_newest_is_not_counted(void **state)
{
    (void)state;
    char *path;
    char *root = temporary_make();
    by_error error = {0};
    save_many(root, 4);
    damage(root, 4);
    retain(root, (by_retention){.keep = 1, .last = 3}, 1 + 2);
    assert_steps(root, "3 4 ");
    check_ok(by_checkpoint_latest(root, &path, NULL, &error), &error);
    assert_non_null(strstr(path, "step-00000003"));
    free(path);
    temporary_remove(root);
}

/* Whoever verifies counts only what is right, and touches nothing else. */
static void the_newest_valid_one_stays(void **state)
{
    (void)state;
    char *root = temporary_make();
    save_many(root, 4);
    damage(root, 4);
    damage(root, 2);
    retain(root, (by_retention){.keep = 1, .last = UINT64_MAX, .verify = true}, 1);
    assert_steps(root, "2 3 4 ");
    temporary_remove(root);
}

static by__checkpoint_lease *use(const char *root, uint64_t step)
{
    by__checkpoint_lease *lease;
    by_error error = {0};
    char *directory = file_of(root, step, "");
    check_ok(by__checkpoint_lease_open(&lease, directory, &error), &error);
    assert_non_null(lease);
    free(directory);
    return lease;
}

/* A server that is killed later, or ends with this process; returns when it has its lease. */
static pid_t use_elsewhere(const char *root, uint64_t step)
{
    int told[2];
    char byte = 0;
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        by__checkpoint_lease *lease = use(root, step);
        (void)write(told[1], &byte, lease != NULL);
        for (;;) {
            (void)pause();
        }
    }
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_int_equal(close(told[0]) + close(told[1]), 0);
    return child;
}

static void what_is_used_stays(void **state)
{
    BY_UNUSED(state);
    const by_retention one = {.keep = 1, .last = UINT64_MAX};
    by__checkpoint_lease *second;
    by_error error = {0};
    char *root = temporary_make();
    save_many(root, 5);
    /* First: what the process inherits it would keep as well. */
    pid_t server = use_elsewhere(root, 3);
    by__checkpoint_lease *lease = use(root, 2);
    check_ok(by__checkpoint_lease_share(&second, lease, &error), &error);
    retain(root, one, 1 + 4);
    assert_steps(root, "2 3 5 ");
    by__checkpoint_lease_close(&lease);
    retain(root, one, 0);
    by__checkpoint_lease_close(&second);
    retain(root, (by_retention){.keep = 1, .last = UINT64_MAX, .is_dry_run = true}, 2);
    retain(root, one, 2);
    assert_steps(root, "3 5 ");
    assert_int_equal(kill(server, SIGKILL), 0);
    assert_int_equal(waitpid(server, NULL, 0), server);
    retain(root, one, 3);
    assert_steps(root, "5 ");
    temporary_remove(root);
}

/* Who looks for a checkpoint while others are removed gets one that stays, or is told. */
static void what_goes_is_not_used(void **state)
{
    BY_UNUSED(state);
    by__checkpoint_lease *alone;
    by__checkpoint_lease *lease;
    by_error error = {0};
    char *root = temporary_make();
    save_many(root, 2);
    char *directory = file_of(root, 1, "");
    assert_true(by__checkpoint_lease_exclusive(&alone, directory));
    check_error(by__checkpoint_lease_open(&lease, directory, &error), BY_ESTATE, &error,
                "being removed");
    by__checkpoint_lease_close(&alone);
    retain(root, (by_retention){.keep = 1, .last = UINT64_MAX}, 1);
    check_error(by__checkpoint_lease_open(&lease, directory, &error), BY_ESTATE, &error, "is gone");
    assert_false(by__checkpoint_lease_exclusive(&alone, directory));
    check_ok(by__checkpoint_lease_open(&lease, root, &error), &error);
    assert_null(lease);
    free(directory);
    temporary_remove(root);
}

static void a_list_says_what_is_wrong(void **state)
{
    (void)state;
    by_checkpoint_list list;
    by_error error = {0};
    char *root = temporary_make();
    check_error(by_checkpoint_list_make(&list, root, true, &error), BY_ESTATE, &error,
                "holds no checkpoint");
    save_many(root, 3);
    damage(root, 2);
    check_ok(by_checkpoint_mark_best(root, 1, 9.0, &error), &error);
    char *cut = file_of(root, 3, "manifest.json");
    assert_int_equal(truncate(cut, 10), 0);
    free(cut);
    for (int verify = 0; verify < 2; verify++) {
        check_ok(by_checkpoint_list_make(&list, root, verify == 1, &error), &error);
        assert_int_equal(list.count, 3);
        assert_null(list.items[0].reason);
        assert_true(list.items[0].is_best && !list.items[1].is_best);
        assert_true(list.items[0].loss == 9.0 && list.items[0].step == 1);
        assert_int_equal(list.items[0].files, 3); /* the model, the optimizer, state.json */
        assert_true(list.items[0].bytes > 48 && list.items[0].own_bytes == list.items[0].bytes);
        if (verify == 1) {
            assert_non_null(strstr(list.items[1].reason, "model.safetensors"));
        } else {
            assert_null(list.items[1].reason);
        }
        assert_non_null(strstr(list.items[2].reason, "manifest.json"));
        by_checkpoint_list_free(&list);
    }
    char *one = file_of(root, 2, "");
    check_ok(by_checkpoint_list_make(&list, one, true, &error), &error);
    assert_int_equal(list.count, 1);
    assert_non_null(list.items[0].reason);
    by_checkpoint_list_free(&list);
    free(one);
    temporary_remove(root);
}

static by_difference diff(const char *a, const char *b)
{
    by_difference d;
    by_error error = {0};
    check_ok(by_checkpoint_diff(&d, a, b, &error), &error);
    return d;
}

static void a_difference_is_measured(void **state)
{
    (void)state;
    char *roots[2];
    by_error error = {0};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 6; i++) {
            data[i] = (float)(i + 1);
        }
        data[2] = k == 0 ? 3.0f : 3.5f;
        data[5] = k == 0 ? -6.0f : -6.25f;
        data[0] = (float)NAN;
        roots[k] = temporary_make();
        save(roots[k], 1, 1.0);
    }
    by_difference d = diff(roots[0], roots[0]);
    assert_int_equal(d.count, 2);
    assert_false(d.differs);
    assert_int_equal(d.tensors[1].kind, BY_DIFFERENCE_NONE);
    by_difference_free(&d);
    d = diff(roots[0], roots[1]);
    assert_true(d.differs && d.tensors[1].optimizer && !d.tensors[0].optimizer);
    assert_string_equal(d.tensors[0].name, "a");
    assert_int_equal(d.tensors[0].kind, BY_DIFFERENCE_VALUES);
    assert_int_equal(d.tensors[0].elements, 6);
    assert_int_equal(d.tensors[0].different, 2);
    assert_true(d.tensors[0].max_abs == 0.5 && d.tensors[0].max_rel == 0.5 / 3.5);
    by_difference_free(&d);
    /* Weights of another shape, and names that only one has. */
    const by_tensor_view other[] = {{"a", BY_F32, 1, {6}, data}, {"b", BY_F32, 1, {2}, data}};
    char *plain = temporary_make();
    check_ok(by_weights_write(plain, other, 2, 0, &error), &error);
    d = diff(plain, roots[0]);
    assert_int_equal(d.count, 2);
    assert_int_equal(d.tensors[0].kind, BY_DIFFERENCE_SHAPE);
    assert_int_equal(d.tensors[1].kind, BY_DIFFERENCE_ONLY_FIRST);
    by_difference_free(&d);
    d = diff(roots[0], plain);
    assert_int_equal(d.tensors[1].kind, BY_DIFFERENCE_ONLY_SECOND);
    by_difference_free(&d);
    temporary_remove(plain);
    temporary_remove(roots[0]);
    temporary_remove(roots[1]);
}

/* Whether the main thread sleeps, which a save does only while it waits for the lock. The kernel
 * tells the number of the system call that a thread is in. */
static bool main_thread_sleeps(void)
{
    char path[64];
    long call = -1;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)getpid());
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    if (fscanf(file, "%ld", &call) != 1) {
        call = -1; /* "running" */
    }
    assert_int_equal(fclose(file), 0);
    return call == SYS_nanosleep || call == SYS_clock_nanosleep;
}

/* Who removes checkpoints holds the lock for a while: a save waits for that. */
static void *hold(void *user)
{
    int *lock = user;
    while (!main_thread_sleeps()) {
        (void)sched_yield();
    }
    (void)close(*lock);
    return NULL;
}

static void a_save_waits_for_who_removes(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    pthread_t thread;
    int lock;
    save(root, 1, 1.0);
    check_ok(by__checkpoint_root_lock(&lock, root, NULL), NULL);
    assert_int_equal(pthread_create(&thread, NULL, hold, &lock), 0);
    save(root, 2, 1.0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    temporary_remove(root);
}

static void what_was_given_up_goes(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    uint64_t *steps;
    size_t count;
    by_error error = {0};
    save_many(root, 6);
    damage(root, 6);
    check_ok(by__checkpoint_root_drop_after(root, 3, &error), &error);
    check_ok(by__checkpoint_root_steps(&steps, &count, root, &error), &error);
    assert_int_equal(count, 3);
    assert_int_equal(steps[0], 3);
    free(steps);
    check_ok(by__checkpoint_root_drop_after(root, 3, &error), &error);
    temporary_remove(root);
}

/* A lease is an open file: not all of them at once. */
static void many_go_with_few_open_files(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    struct rlimit before;
    save_many(root, 40);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit few = {.rlim_cur = 24, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    retain(root, (by_retention){.keep = 1, .last = UINT64_MAX}, 39 * 40 / 2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_steps(root, "40 ");
    temporary_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_go_with_few_open_files),
        cmocka_unit_test(rules_add_up),
        cmocka_unit_test(a_broken_newest_is_not_counted),
        cmocka_unit_test(the_newest_valid_one_stays),
        cmocka_unit_test(what_is_used_stays),
        cmocka_unit_test(what_goes_is_not_used),
        cmocka_unit_test(a_list_says_what_is_wrong),
        cmocka_unit_test(a_difference_is_measured),
        cmocka_unit_test(a_save_waits_for_who_removes),
        cmocka_unit_test(what_was_given_up_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
