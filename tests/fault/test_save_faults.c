/* Every call of a save that changes the disk fails once, or from then on, or is the last thing that
 * the process does. What is the newest checkpoint afterwards is always a whole one, and the next
 * save goes well. The calls are caught by the linker (--wrap, see tests/CMakeLists.txt).
 *
 * What a crash of the machine would leave cannot be tried here, but what decides it can: whatever
 * was written is synced before the directory gets its name, and that is synced before anybody is
 * told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/storage.h"
#include "runner.h"
#include "temporary.h"

/* ---- faults ---- */

typedef enum fault_kind {
    COUNT,  /* nothing but counting, and the check of syncs */
    FAIL,   /* call number `at` fails */
    FULL,   /* so do all from then on that need room */
    KILLED, /* the process, one of its own, ends before it */
    FAULTS
} fault_kind;

/* Shared by a test and the process that saves. */
typedef struct faults {
    _Atomic bool on;
    fault_kind kind;
    int at;
    int reason; /* errno */
    _Atomic int calls;
    _Atomic int dirty; /* files that were written and not synced */
    _Atomic int loose; /* names that were made in a directory that was not synced since */
    _Atomic int wrong; /* checkpoints that got their name while there were any */
} faults;

static faults *f;

enum { FDS = 1024 };
static _Atomic bool is_dirty[FDS];

/* Whether this call is to fail. `room`: it may need some. */
static bool fails(bool room)
{
    if (!atomic_load(&f->on)) {
        return false;
    }
    int number = atomic_fetch_add(&f->calls, 1);
    if (f->kind == KILLED && number == f->at) {
        (void)kill(getpid(), SIGKILL);
    }
    bool hit = (f->kind == FAIL && number == f->at) || (f->kind == FULL && number >= f->at && room);
    if (hit) {
        errno = f->reason;
    }
    return hit;
}

static void soil(int fd)
{
    if (atomic_load(&f->on) && fd >= 0 && fd < FDS && !atomic_exchange(&is_dirty[fd], true)) {
        atomic_fetch_add(&f->dirty, 1);
    }
}

/* A name was made, if `status` says so, which the next sync of a directory makes last. */
static int loosen(int status)
{
    atomic_fetch_add(&f->loose, status >= 0 && atomic_load(&f->on) ? 1 : 0);
    return status;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    bool makes = (flags & O_CREAT) != 0;
    if (makes && fails(true)) {
        return -1;
    }
    bool is_new = makes && access(path, F_OK) != 0;
    int fd = __real_open(path, flags, 0666);
    return is_new ? loosen(fd) : fd;
}

ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    if (fails(true)) {
        return -1;
    }
    soil(fd);
    return __real_write(fd, data, n);
}

ssize_t __real_pwrite(int fd, const void *data, size_t n, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t offset)
{
    if (fails(true)) {
        return -1;
    }
    soil(fd);
    return __real_pwrite(fd, data, n, offset);
}

int __real_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size)
{
    soil(fd);
    return fails(false) ? -1 : __real_ftruncate(fd, size);
}

int __real_fallocate(int fd, int mode, off_t offset, off_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size)
{
    return fails(true) ? -1 : __real_fallocate(fd, mode, offset, size);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat info;
    if (fails(false)) {
        return -1;
    }
    if (fd < FDS && atomic_exchange(&is_dirty[fd], false)) {
        atomic_fetch_sub(&f->dirty, 1);
    }
    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        atomic_store(&f->loose, 0);
    }
    return __real_fsync(fd);
}

/* A file that is closed without a sync stays dirty. */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    if (fd >= 0 && fd < FDS) {
        atomic_store(&is_dirty[fd], false);
    }
    bool failed = fails(false);
    int status = __real_close(fd);
    return failed ? -1 : status;
}

/* A directory that gets the name of a checkpoint. */
static bool publishes(const char *to)
{
    uint64_t step;
    const char *slash = strrchr(to, '/');
    return by__checkpoint_step_of_name(slash == NULL ? to : slash + 1, &step);
}

static void check_publish(const char *to)
{
    if (atomic_load(&f->on) && publishes(to) && (f->dirty != 0 || f->loose != 0)) {
        atomic_fetch_add(&f->wrong, 1);
    }
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (fails(true)) {
        return -1;
    }
    check_publish(to);
    return loosen(__real_rename(from, to));
}

int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (fails(true)) {
        return -1;
    }
    check_publish(to);
    return loosen(__real_renameat2(a, from, b, to, flags));
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    return fails(true) ? -1 : __real_mkdir(path, mode);
}

int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    return fails(true) ? -1 : loosen(__real_link(from, to));
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    return fails(false) ? -1 : __real_unlink(path);
}

int __real_rmdir(const char *path);
int __wrap_rmdir(const char *path);
int __wrap_rmdir(const char *path)
{
    return fails(false) ? -1 : __real_rmdir(path);
}

/* ---- saves ---- */

enum { ROWS = 17000, TENSORS = 3 };

typedef struct save_job {
    const char *root;
    uint64_t step;
    size_t keep;
} save_job;

static const by__checkpoint_held_slice held[TENSORS] = {
    {.name = "a", .dtype = BY_F32, .rank = 1, .shape = {ROWS}, .slice = {.shape = {ROWS}}},
    {.name = "frozen",
     .dtype = BY_F32,
     .rank = 1,
     .shape = {ROWS},
     .is_copy = true,
     .slice = {.shape = {ROWS}}},
    {.name = "m.a",
     .dtype = BY_F32,
     .rank = 1,
     .shape = {ROWS},
     .optimizer = true,
     .slice = {.shape = {ROWS}}}};

/* The frozen one is the same in every step, and so its file is a link to the one before. */
static float value_of(uint64_t step, size_t tensor)
{
    return tensor == 1 ? 0.5f : (float)(step * 10 + tensor);
}

static by_status read_step(void *user, size_t i, const void **data, void **owned, by_error *error)
{
    const save_job *job = user;
    float *values;
    BY_TRY(by__alloc((void **)&values, ROWS, sizeof *values, "test", error));
    for (size_t k = 0; k < ROWS; k++) {
        values[k] = value_of(job->step, i) + (float)k;
    }
    *data = *owned = values;
    return BY_OK;
}

static by_status save_rank(by_comm *comm, void *user, by_error *error)
{
    save_job *job = user;
    by__checkpoint_save_plan plan;
    by__checkpoint_saver *saver;
    by_comm *own;
    const by_checkpoint_file file = {"config.json", "{}", 2, NULL, NULL};
    BY_TRY(by_comm_split(&own, comm, 0, by_comm_rank(comm), error));
    BY_TRY(by__checkpoint_saver_open(&saver, &own, 20000, error));
    by_status status = by__checkpoint_save_plan_make(&plan, comm, held, TENSORS, 16, error);
    if (status == BY_OK) {
        const by__checkpoint_save_request request = {
            .root = job->root,
            .step = job->step,
            .plan = &plan,
            .read = read_step,
            .user = job,
            .background = true,
            .files = &file,
            .file_count = 1,
            .is_best = true,
            .loss = 1.0,
            .retention = {.keep = job->keep, .last = job->step}};
        status = by__checkpoint_saver_begin(saver, &request, error);
        status = status == BY_OK ? by__checkpoint_saver_wait(saver, NULL, error) : status;
        by__checkpoint_save_plan_free(&plan);
    }
    by__checkpoint_saver_close(&saver);
    return status;
}

static by_status save(const char *root, uint64_t step, size_t keep, int ranks, by_error *error)
{
    save_job job = {root, step, keep};
    return by_comm_run_threads(ranks, NULL, save_rank, &job, error);
}

/* The newest whole checkpoint, whose values must be those of its step. */
static uint64_t check_latest(const char *root)
{
    by_checkpoint *checkpoint;
    by_error error = {0};
    static float values[ROWS];
    const by_tensor_slice all = {.shape = {ROWS}};
    check_ok(by_checkpoint_open(&checkpoint, root, true, &error), &error);
    uint64_t step = by_checkpoint_step(checkpoint);
    for (size_t i = 0; i < TENSORS; i++) {
        check_ok(by_weights_read_f32(held[i].optimizer ? by_checkpoint_optimizer(checkpoint)
                                                       : by_checkpoint_model(checkpoint),
                                     held[i].name, &all, values, ROWS, &error),
                 &error);
        for (int k = 0; k < ROWS; k++) {
            assert_true(values[k] == value_of(step, i) + (float)k);
        }
    }
    by_checkpoint_close(&checkpoint);
    return step;
}

/* ---- a save that meets a fault ---- */

/* What the process that saves is to do. */
typedef struct scene {
    int ranks;
    uint64_t first; /* steps that are there: this one */
    uint64_t step;  /* and that is saved, perhaps the same again */
    size_t keep;
} scene;

/* Saves while the calls are counted, or fail. */
static by_status save_with_faults(const char *root, const scene *s)
{
    for (int fd = 0; fd < FDS; fd++) {
        atomic_store(&is_dirty[fd], false);
    }
    atomic_store(&f->on, true);
    by_status status = save(root, s->step, s->keep, s->ranks, NULL);
    atomic_store(&f->on, false);
    return status;
}

/* In a process of its own, which the fault may kill. False: it did. */
static bool save_in_child(const char *root, const scene *s, by_status *status)
{
    int end;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(-save_with_faults(root, s));
    }
    assert_int_equal(waitpid(child, &end, 0), child);
    *status = WIFEXITED(end) ? (by_status)-WEXITSTATUS(end) : BY_OK;
    return WIFEXITED(end);
}

static void assert_no_leftovers(const char *root)
{
    char **names;
    size_t count;
    assert_int_equal(by__list_dir(&names, &count, root, NULL), BY_OK);
    for (size_t i = 0; i < count; i++) {
        if (strstr(names[i], "tmp") != NULL || strstr(names[i], "trash") != NULL) {
            fail_msg("%s is left", names[i]);
        }
    }
    by__names_free(names, count);
}

/* One fault; returns the number of calls that there were. */
static int meet(const scene *s, fault_kind kind, int at, int reason)
{
    by_status status;
    by_error error = {0};
    bool ended = true;
    char *root = temporary_make();
    check_ok(save(root, s->first, 9, s->ranks, &error), &error);
    *f = (faults){.kind = kind, .at = at, .reason = reason};
    if (kind == KILLED) {
        ended = save_in_child(root, s, &status);
    } else {
        status = save_with_faults(root, s);
    }
    uint64_t latest = check_latest(root);
    assert_true(latest == s->first || latest == s->step);
    if (ended && status == BY_OK) {
        assert_int_equal(latest, s->step);
    }
    if (kind == COUNT) {
        assert_int_equal(status, BY_OK);
        assert_int_equal(f->wrong, 0);
        assert_int_equal(f->loose, 0);
    }
    int calls = f->calls;
    check_ok(save(root, 9, 1, s->ranks, &error), &error);
    assert_int_equal(check_latest(root), 9);
    assert_no_leftovers(root);
    temporary_remove(root);
    return calls;
}

static void meet_all(const scene *s)
{
    static const int reasons[FAULTS][2] = {
        [FAIL] = {EIO, ENOSPC}, [FULL] = {ENOSPC, 0}, [KILLED] = {EIO, 0}};
    int calls = meet(s, COUNT, -1, 0);
    assert_true(calls > 40);
    for (int kind = FAIL; kind < FAULTS; kind++) {
        for (int r = 0; r < 2 && reasons[kind][r] != 0; r++) {
            for (int at = 0; at < calls; at++) {
                (void)meet(s, (fault_kind)kind, at, reasons[kind][r]);
            }
        }
    }
}

/* Kept and pruned: the checkpoint before goes when the new one is there. */
static void one_rank(void **state)
{
    (void)state;
    meet_all(&(scene){.ranks = 1, .first = 1, .step = 2, .keep = 1});
}

static void a_step_that_is_saved_again(void **state)
{
    (void)state;
    meet_all(&(scene){.ranks = 1, .first = 1, .step = 1, .keep = 2});
}

static void two_ranks(void **state)
{
    (void)state;
    meet_all(&(scene){.ranks = 2, .first = 1, .step = 2, .keep = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(a_step_that_is_saved_again),
        cmocka_unit_test(two_ranks),
    };
    f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (f == MAP_FAILED) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
