/* What is as it was is not written again: files of frozen tensors and large files of the caller's
 * are hard links to those of the checkpoint before, and no checkpoint needs another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/storage.h"
#include "rank_run.h"
#include "runner.h"
#include "temporary.h"

enum { ROWS = 30000, TENSORS = 4, LARGE = 100000 };

typedef struct share_job {
    const char *root;
    uint64_t step;
    float base; /* of the frozen tensors' values */
    size_t keep;
} share_job;

static const char *const names[TENSORS] = {"frozen", "a", "other", "m.a"};

/* The frozen ones do not depend on the step. */
static float value_of(const share_job *job, size_t tensor, size_t i)
{
    bool frozen = tensor == 0 || tensor == 2;
    return (frozen ? job->base : (float)(100000 * job->step)) + (float)(tensor + i);
}

/* The i-th slice is of tensor i. */
static by_status read_values(void *user, size_t i, const void **data, void **owned, by_error *error)
{
    const share_job *job = user;
    float *values;
    BY_TRY(by__alloc((void **)&values, ROWS, sizeof *values, "test", error));
    for (size_t k = 0; k < ROWS; k++) {
        values[k] = value_of(job, i, k);
    }
    *data = *owned = values;
    return BY_OK;
}

static by_status save_rank(by_comm *comm, void *user, by_error *error)
{
    share_job *job = user;
    by__checkpoint_save_plan plan;
    by__checkpoint_held_slice held[TENSORS];
    char large[LARGE];
    memset(large, 'x', sizeof large);
    const by_checkpoint_file files[] = {{"config.json", "{}", 2, NULL, NULL},
                                        {"tokenizer.json", large, sizeof large, NULL, NULL}};
    for (size_t i = 0; i < TENSORS; i++) {
        held[i] = (by__checkpoint_held_slice){.dtype = BY_F32,
                                              .rank = 1,
                                              .shape = {ROWS},
                                              .optimizer = i == 3,
                                              .is_copy = i == 0 || i == 2,
                                              .slice = {.shape = {ROWS}}};
        (void)snprintf(held[i].name, sizeof held[i].name, "%s", names[i]);
    }
    BY_TRY(by__checkpoint_save_plan_make(&plan, comm, held, TENSORS, 16, error));
    const by__checkpoint_save_request request = {
        .root = job->root,
        .step = job->step,
        .plan = &plan,
        .read = read_values,
        .user = job,
        .files = files,
        .file_count = 2,
        .retention = {.keep = job->keep, .last = job->step}};
    by_status status = by__checkpoint_save_together(comm, &request, error);
    by__checkpoint_save_plan_free(&plan);
    return status;
}

static void save(int ranks, const char *root, uint64_t step, float base, size_t keep)
{
    by_error error = {0};
    share_job job = {root, step, base, keep};
    check_ok(by_comm_run_threads(ranks, NULL, save_rank, &job, &error), &error);
}

static void check_saved(const char *root, uint64_t step, float base)
{
    by_checkpoint *checkpoint;
    char *path;
    float *values;
    by_error error = {0};
    const share_job job = {root, step, base, 9};
    const by_tensor_slice all = {.shape = {ROWS}};
    check_ok(by__checkpoint_step_path(&path, root, step, &error), &error);
    check_ok(by_checkpoint_open(&checkpoint, path, true, &error), &error);
    check_ok(by__alloc((void **)&values, ROWS, sizeof *values, "test", &error), &error);
    for (size_t t = 0; t < TENSORS; t++) {
        check_ok(by_weights_read_f32(t == 3 ? by_checkpoint_optimizer(checkpoint)
                                            : by_checkpoint_model(checkpoint),
                                     names[t], &all, values, ROWS, &error),
                 &error);
        for (size_t i = 0; i < ROWS; i++) {
            assert_true(values[i] == value_of(&job, t, i));
        }
    }
    free(values);
    by_checkpoint_close(&checkpoint);
    free(path);
}

/* The files of two checkpoints that are one file, and all of the second. */
static size_t count_shared(const char *root, uint64_t a, uint64_t b, size_t *all)
{
    char *directories[2];
    char **files;
    size_t shared = 0;
    assert_int_equal(by__checkpoint_step_path(&directories[0], root, a, NULL), BY_OK);
    assert_int_equal(by__checkpoint_step_path(&directories[1], root, b, NULL), BY_OK);
    assert_int_equal(by__list_dir(&files, all, directories[1], NULL), BY_OK);
    for (size_t i = 0; i < *all; i++) {
        struct stat info[2];
        bool there = true;
        for (int k = 0; k < 2; k++) {
            char *path = by__path_join(directories[k], files[i]);
            there = there && lstat(path, &info[k]) == 0 && S_ISREG(info[k].st_mode);
            free(path);
        }
        bool one = there && info[0].st_ino == info[1].st_ino;
        bool expected =
            strncmp(files[i], "model-frozen", 12) == 0 || strcmp(files[i], "tokenizer.json") == 0;
        if (one && !expected) {
            fail_msg("%s is shared", files[i]);
        }
        shared += one;
    }
    by__names_free(files, *all);
    free(directories[0]);
    free(directories[1]);
    return shared;
}

static void damage(const char *root, uint64_t step, const char *name)
{
    char *directory;
    char byte;
    assert_int_equal(by__checkpoint_step_path(&directory, root, step, NULL), BY_OK);
    char *path = by__path_join(directory, name);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, 90000), 1);
    byte = (char)(byte ^ 1);
    assert_int_equal(pwrite(fd, &byte, 1, 90000), 1);
    assert_int_equal(close(fd), 0);
    free(path);
    free(directory);
}

static void what_is_equal_is_linked(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        size_t files;
        char *root = temporary_make();
        size_t frozen = ranks == 1 ? 1 : 2; /* files that hold them, on two ranks at most */
        save(ranks, root, 1, 0.5f, 9);
        save(ranks, root, 2, 0.5f, 9);
        check_saved(root, 2, 0.5f);
        assert_int_equal(count_shared(root, 1, 2, &files), frozen + 1);
        /* The one before goes; what it had stays. */
        save(ranks, root, 3, 0.5f, 1);
        char **left;
        assert_int_equal(by__list_dir(&left, &files, root, NULL), BY_OK);
        assert_int_equal(files, 2); /* and .lock */
        by__names_free(left, files);
        check_saved(root, 3, 0.5f);
        /* What was thought to be frozen and is not. */
        save(ranks, root, 4, 0.25f, 9);
        assert_int_equal(count_shared(root, 3, 4, &files), 1);
        check_saved(root, 3, 0.5f);
        check_saved(root, 4, 0.25f);
        temporary_remove(root);
    }
}

/* What is shared and damaged is not taken over: the next checkpoint is whole. */
static void damage_is_not_handed_on(void **state)
{
    (void)state;
    size_t files;
    char *root = temporary_make();
    save(1, root, 1, 0.5f, 9);
    save(1, root, 2, 0.5f, 9);
    damage(root, 2, "model-frozen-00001-of-00001.safetensors");
    damage(root, 2, "tokenizer.json");
    save(1, root, 3, 0.5f, 9);
    assert_int_equal(count_shared(root, 2, 3, &files), 0);
    check_saved(root, 3, 0.5f);
    save(1, root, 4, 0.5f, 9);
    assert_int_equal(count_shared(root, 3, 4, &files), 2);
    check_saved(root, 4, 0.5f);
    temporary_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_equal_is_linked),
        cmocka_unit_test(damage_is_not_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
