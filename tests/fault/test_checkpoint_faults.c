/* What may happen to checkpoints: a full disk, a flipped bit or a cut in any file, a kill at any
 * instant of a save. Each must be refused with the file's name, and the checkpoints before it stay.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/storage.h"
#include "checkpoints.h"
#include "temporary.h"

enum { element_count = 300000 };

static float *make_weights(void)
{
    float *weights;
    assert_int_equal(by__alloc((void **)&weights, element_count, sizeof *weights, "test", NULL),
                     BY_OK);
    for (size_t i = 0; i < element_count; i++) {
        weights[i] = (float)i;
    }
    return weights;
}

/* Two model shards, an optimizer, a config: one of every kind of file. */
static by_status save(const char *root, uint64_t step, const float *weights, by_error *error)
{
    const by_tensor_view model[] = {{"a", BY_F32, 1, {element_count}, weights},
                                    {"b", BY_F32, 1, {1000}, weights}};
    const by_tensor_view optimizer[] = {{"m.a", BY_F32, 1, {element_count}, weights}};
    const by_checkpoint_value values[] = {{"position", BY_VALUE_U64, {.u64 = step * 12}}};
    const by_checkpoint_file files[] = {{"config.json", "{}", 2, NULL, NULL}};
    const checkpoint_content content = {.model = model,
                                        .model_count = 2,
                                        .optimizer = optimizer,
                                        .optimizer_count = 1,
                                        .values = values,
                                        .value_count = 1,
                                        .files = files,
                                        .file_count = 1,
                                        .shard_bytes = element_count * sizeof(float)};
    return checkpoint_write(root, step, &content, error);
}

static void assert_latest(const char *root, uint64_t step)
{
    char *path;
    char *expected;
    by_error error = {0};
    if (by_checkpoint_latest(root, &path, NULL, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(by__checkpoint_step_path(&expected, root, step, NULL), BY_OK);
    assert_string_equal(path, expected);
    free(expected);
    free(path);
}

/* The step of the latest whole checkpoint, 0 for none; fails when what it holds is wrong. */
static uint64_t check_latest(const char *root, const float *weights)
{
    by_checkpoint *checkpoint;
    by_tensor_view view;
    uint64_t position;
    by_error error = {0};
    by_status status = by_checkpoint_open(&checkpoint, root, true, &error);
    if (status != BY_OK) {
        assert_int_equal(status, BY_ESTATE);
        return 0;
    }
    uint64_t step = by_checkpoint_step(checkpoint);
    assert_int_equal(by_weights_tensor(by_checkpoint_model(checkpoint), "a", &view, NULL), BY_OK);
    assert_memory_equal(view.data, weights, element_count * sizeof *weights);
    assert_int_equal(by_weights_tensor(by_checkpoint_optimizer(checkpoint), "m.a", &view, NULL),
                     BY_OK);
    assert_memory_equal(view.data, weights, element_count * sizeof *weights);
    assert_int_equal(by_checkpoint_value_u64(checkpoint, "position", &position, NULL), BY_OK);
    assert_true(position == step * 12);
    by_checkpoint_close(&checkpoint);
    return step;
}

static size_t count_names(const char *root, const char *part)
{
    char **names;
    size_t count;
    size_t found = 0;
    assert_int_equal(by__list_dir(&names, &count, root, NULL), BY_OK);
    for (size_t i = 0; i < count; i++) {
        found += strstr(names[i], part) != NULL ? 1 : 0;
    }
    by__names_free(names, count);
    return found;
}

static void a_write_error_leaves_the_earlier_ones(void **state)
{
    (void)state;
    char *root = temporary_make();
    float *weights = make_weights();
    by_error error = {0};
    struct rlimit old;
    struct rlimit small;
    assert_int_equal(save(root, 1, weights, &error), BY_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    /* Cut at every file: within the header of a shard, its data, the optimizer, the manifest. */
    static const rlim_t limits[] = {0, 2, 60, 300, 1000, 5000, 1000000, 1200000};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(limits); i++) {
        small = old;
        small.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        by_status status = save(root, 2, weights, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, BY_EIO);
        assert_non_null(strstr(error.message, "step 2 was not saved"));
        assert_non_null(strstr(error.message, "step-00000002"));
        assert_non_null(strstr(error.message, ".safetensors"));
        assert_int_equal(count_names(root, ".tmp"), 0);
        assert_latest(root, 1);
    }
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(save(root, 2, weights, &error), BY_OK);
    assert_latest(root, 2);
    free(weights);
    temporary_remove(root);
}

/* Every value that a directory holds is `value`, in three shards and nothing else. */
static void assert_shards(const char *directory, float value)
{
    by_weights *weights;
    by_tensor_view view;
    by_error error = {0};
    if (by_weights_open(&weights, directory, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(by_weights_count(weights), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(by_weights_tensor(weights, by_weights_name(weights, i), &view, NULL),
                         BY_OK);
        for (int64_t k = 0; k < view.shape[0]; k++) {
            assert_true(((const float *)view.data)[k] == value);
        }
    }
    by_weights_close(&weights);
    assert_int_equal(count_names(directory, "-of-00003.safetensors"), 3);
    assert_int_equal(count_names(directory, ""), 4);
}

static by_status write_shards(const char *directory, float value, by_error *error)
{
    static const char *const names[] = {"a", "b", "c"};
    float data[1000];
    by_tensor_view views[3];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(data); i++) {
        data[i] = value;
    }
    for (int i = 0; i < 3; i++) { /* the later, the larger */
        views[i] = (by_tensor_view){
            .name = names[i], .dtype = BY_F32, .rank = 1, .shape = {998 + i}, .data = data};
    }
    return by_weights_write(directory, views, 3, 4000, error);
}

/* Weights in several files are replaced as one: a write that fails at any of them leaves those that
 * were there, and nothing of its own. */
static void shards_are_replaced_together(void **state)
{
    (void)state;
    /* Each shard is larger than the one before. */
    static const rlim_t limits[] = {10, 4050, 4059, 4063};
    char *directory = temporary_make();
    by_error error = {0};
    struct rlimit old;
    assert_int_equal(write_shards(directory, 1.0f, &error), BY_OK);
    assert_shards(directory, 1.0f);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(limits); i++) {
        struct rlimit small = old;
        small.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        by_status status = write_shards(directory, 2.0f, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, BY_EIO);
        assert_shards(directory, 1.0f);
    }
    (void)signal(SIGXFSZ, handler);
    char *blocked = by__path_join(directory, "model.safetensors.index.json.tmp");
    assert_int_equal(mkdir(blocked, 0777), 0); /* no index can be written */
    assert_int_equal(write_shards(directory, 2.0f, &error), BY_EIO);
    assert_int_equal(rmdir(blocked), 0);
    free(blocked);
    assert_shards(directory, 1.0f);
    for (int i = 2; i < 5; i++) { /* under other names, then under those of the first again */
        assert_int_equal(write_shards(directory, (float)i, &error), BY_OK);
        assert_shards(directory, (float)i);
    }
    temporary_remove(directory);
}

static void a_missing_right_is_named(void **state)
{
    (void)state;
    char *root = temporary_make();
    char *file = by__path_join(root, "file");
    float *weights = make_weights();
    by_error error = {0};
    assert_int_equal(by__file_write(file, "x", 1, NULL), BY_OK);
    assert_int_equal(save(file, 1, weights, &error), BY_EIO);
    assert_non_null(strstr(error.message, file));
    free(weights);
    free(file);
    temporary_remove(root);
}

/* Flips one bit of the byte at `offset` and flips it back at the next call. */
static void flip(const char *path, off_t offset, uint8_t bit)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= bit;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    assert_int_equal(close(fd), 0);
}

/* The damaged newest checkpoint is refused with the file's name, the one before is the latest. */
static void assert_refused(const char *root, const char *directory, const char *name)
{
    by_checkpoint *checkpoint;
    by_error error = {0};
    by_status status = by_checkpoint_open(&checkpoint, directory, true, &error);
    if (status != BY_EFORMAT || strstr(error.message, name) == NULL) {
        fail_msg("%s damaged: status %d, '%s'", name, status, error.message);
    }
    assert_latest(root, 1);
}

static void damage_in_any_file_is_found_and_named(void **state)
{
    (void)state;
    char *root = temporary_make();
    char *directory;
    char **names;
    size_t count;
    float *weights = make_weights();
    assert_int_equal(save(root, 1, weights, NULL), BY_OK);
    assert_int_equal(save(root, 2, weights, NULL), BY_OK);
    assert_int_equal(by__checkpoint_step_path(&directory, root, 2, NULL), BY_OK);
    assert_int_equal(by__list_dir(&names, &count, directory, NULL), BY_OK);
    assert_int_equal(count, 7);
    for (size_t i = 0; i < count; i++) {
        struct stat info;
        char *path = by__path_join(directory, names[i]);
        char *kept = by__path_join(root, "kept");
        assert_int_equal(stat(path, &info), 0);
        /* Every bit of the first bytes, and bits all over the file. */
        for (off_t at = 0; at < info.st_size; at += at < 4 ? 1 : 1 + info.st_size / 12) {
            flip(path, at, (uint8_t)(1u << (at % 8)));
            assert_refused(root, directory, names[i]);
            flip(path, at, (uint8_t)(1u << (at % 8)));
        }
        assert_int_equal(link(path, kept), 0);
        assert_int_equal(unlink(path), 0);
        assert_refused(root, directory, names[i]); /* missing */
        static const int parts[] = {0, 1, 50, 99};
        for (size_t k = 0; k < BY_ARRAY_LENGTH(parts); k++) {
            by__map map;
            assert_int_equal(by__map_open(&map, kept, NULL), BY_OK);
            size_t n = map.size * (size_t)parts[k] / 100;
            assert_int_equal(by__file_write(path, map.data, n, NULL), BY_OK);
            by__map_close(&map);
            assert_refused(root, directory, names[i]); /* cut */
        }
        assert_int_equal(rename(kept, path), 0);
        free(kept);
        free(path);
        assert_latest(root, 2);
    }
    by__names_free(names, count);
    free(directory);
    free(weights);
    temporary_remove(root);
}

/* Saves, marks and prunes until it is killed; writes a byte for each save that is done. */
static void save_forever(const char *root, const float *weights, uint64_t first, int done)
{
    for (uint64_t step = first;; step++) {
        by_error error = {0};
        if (save(root, step, weights, &error) != BY_OK || write(done, "", 1) != 1 ||
            (step % 3 == 0 && by_checkpoint_mark_best(root, step, 1.0, &error) != BY_OK) ||
            by_checkpoint_prune(root, 2, &error) != BY_OK) {
            _exit(1);
        }
    }
}

/* An instant after up to two whole saves, at a part of the next that is drawn at random: how many
 * saves there were does not depend on how fast the machine is. */
static void wait_for_instant(int done, int round, double save_seconds)
{
    uint32_t bits[4];
    const uint32_t key[2] = {2026, 7};
    const uint32_t counter[4] = {(uint32_t)round, 0, 0, 0};
    by__philox(bits, key, counter);
    for (uint32_t i = bits[0] % 3; i > 0; i--) {
        char byte;
        assert_int_equal(read(done, &byte, 1), 1); /* no save had failed */
    }
    double seconds = (double)by__unit_float(bits[1]) * 1.5 * save_seconds;
    const struct timespec wait = {(time_t)seconds, (long)(1e9 * fmod(seconds, 1.0))};
    (void)nanosleep(&wait, NULL);
}

static void a_kill_at_any_instant_leaves_a_whole_checkpoint(void **state)
{
    (void)state;
    char *root = temporary_make();
    float *weights = make_weights();
    uint64_t newest = 0;
    by_error saving = {0};
    double save_seconds = by__now();
    assert_int_equal(save(root, 0, weights, &saving), BY_OK);
    save_seconds = by__now() - save_seconds;
    for (int round = 0; round < 40; round++) {
        int status;
        int done[2];
        assert_int_equal(pipe(done), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            /* Half of the rounds write the newest step again, which replaces a whole one. */
            save_forever(root, weights, newest + (uint64_t)(round % 2), done[1]);
        }
        assert_int_equal(close(done[1]), 0);
        wait_for_instant(done[0], round, save_seconds);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(close(done[0]), 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* no save had failed */
        uint64_t latest = check_latest(root, weights);
        assert_true(latest >= newest);
        newest = latest;
        if (by__path_exists(root)) {
            char *best;
            by_error error = {0};
            by_status best_status = by_checkpoint_best(root, &best, NULL, &error);
            assert_true(best_status == BY_OK || best_status == BY_ESTATE);
            if (best_status == BY_OK) {
                free(best);
            }
        }
    }
    assert_true(newest > 0);
    /* The next save takes away what kills left, and its mark what was left of a mark. */
    assert_int_equal(save(root, newest + 1, weights, NULL), BY_OK);
    assert_int_equal(by_checkpoint_mark_best(root, newest + 1, 0.5, NULL), BY_OK);
    assert_int_equal(count_names(root, ".tmp") + count_names(root, ".trash"), 0);
    free(weights);
    temporary_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_error_leaves_the_earlier_ones),
        cmocka_unit_test(shards_are_replaced_together),
        cmocka_unit_test(a_missing_right_is_named),
        cmocka_unit_test(damage_in_any_file_is_found_and_named),
        cmocka_unit_test(a_kill_at_any_instant_leaves_a_whole_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
