/* Ranks that save together: any number of them gives the same digest; what goes wrong on one is an
 * error on all, and leaves the checkpoints before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "checkpoint/storage.h"
#include "temporary.h"

enum { ELEMENTS = 1000, TENSORS = 4, MODEL = 3 };

static float values[ELEMENTS];
static const by_tensor_view tensors[TENSORS] = {{"a", BY_F32, 2, {10, 100}, values},
                                                {"b", BY_F32, 1, {17}, values},
                                                {"none", BY_F32, 2, {0, 3}, NULL},
                                                {"m.a", BY_F32, 2, {10, 100}, values}};

typedef struct save_job {
    const char *root;
    uint64_t step;
    int writers;
    int fails; /* this rank has no data; -1: none */
    int dies;  /* this rank ends between begin and commit */
    by_status status[16];
    char message[16][512];
} save_job;

static by_status save_rank(by_comm *comm, void *user, by_error *error)
{
    save_job *job = user;
    int rank = by_comm_rank(comm);
    int writers = job->writers == 0 ? by_comm_size(comm) : job->writers;
    int writer = by__checkpoint_writer_of(rank, by_comm_size(comm), writers);
    by_checkpoint_part parts[TENSORS];
    size_t count = 0;
    by_checkpoint_writer *w;
    by_checkpoint_layout layout = {.model = tensors,
                                   .model_count = MODEL,
                                   .optimizer = tensors + MODEL,
                                   .optimizer_count = TENSORS - MODEL,
                                   .writers = writers,
                                   .parts = parts};
    if (writers > 1) {
        BY_TRY(by__checkpoint_divide(parts, &count, tensors, TENSORS, writers, writer, error));
        layout.part_count = count;
    }
    by_status status =
        by__checkpoint_begin_together(&w, comm, writer, job->root, job->step, &layout, error);
    if (status == BY_OK) {
        if (rank == job->dies) {
            by_checkpoint_abandon(&w);
            return by_error_set(error, BY_EDEVICE, "ended");
        }
        for (size_t i = 0; i < (writers > 1 ? count : TENSORS) && w != NULL && status == BY_OK;
             i++) {
            size_t part = by_checkpoint_order(w, i);
            status = by_checkpoint_add_part(w, part, rank == job->fails ? NULL : values, error);
        }
        status = by__checkpoint_commit_together(&w, comm, status, NULL, 0, NULL, 0, error);
    }
    job->status[rank] = status;
    (void)snprintf(job->message[rank], sizeof job->message[rank], "%s",
                   status == BY_OK ? "" : error->message);
    return BY_OK; /* so that the others go on to their end */
}

static void digest_of(char out[BY_SHA256_HEX], const char *root)
{
    by_digest digest;
    by_error error = {0};
    if (by_checkpoint_digest(&digest, root, 1, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    memcpy(out, digest.all, BY_SHA256_HEX);
    by_digest_free(&digest);
}

static void assert_holds(const char *root, size_t expected)
{
    char **names;
    size_t count;
    assert_int_equal(by__list_dir(&names, &count, root, NULL), BY_OK);
    assert_int_equal(count, expected);
    by__names_free(names, count);
}

static void any_number_of_ranks_saves_the_same(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    char expected[BY_SHA256_HEX] = "";
    char got[BY_SHA256_HEX];
    by_error error = {0};
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int writers = 0; writers <= ranks && writers < 4; writers++) {
            save_job job = {.root = root,
                            .step = (uint64_t)(10 * ranks + writers),
                            .writers = writers,
                            .fails = -1,
                            .dies = -1};
            assert_int_equal(by_comm_run_threads(ranks, NULL, save_rank, &job, &error), BY_OK);
            for (int i = 0; i < ranks; i++) {
                assert_string_equal(job.message[i], "");
            }
            digest_of(got, root);
            if (expected[0] == '\0') {
                memcpy(expected, got, sizeof expected);
            }
            assert_string_equal(got, expected);
        }
    }
    temporary_remove(root);
}

static void one_failure_is_everybodys(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    by_error error = {0};
    save_job first = {.root = root, .step = 1, .fails = -1, .dies = -1};
    assert_int_equal(by_comm_run_threads(2, NULL, save_rank, &first, &error), BY_OK);
    assert_holds(root, 2); /* .lock, step 1 */
    /* No data on one rank. */
    for (int fails = 0; fails < 3; fails++) {
        save_job job = {.root = root, .step = 2, .fails = fails, .dies = -1};
        assert_int_equal(by_comm_run_threads(3, NULL, save_rank, &job, &error), BY_OK);
        for (int i = 0; i < 3; i++) {
            char prefix[32];
            (void)snprintf(prefix, sizeof prefix, "rank %d (", fails);
            assert_int_equal(job.status[i], BY_EARG);
            assert_non_null(strstr(job.message[i], "has no data"));
            assert_true((strstr(job.message[i], prefix) != NULL) == (i != fails));
        }
        assert_holds(root, 2);
    }
    /* Another process saves there. */
    int lock;
    save_job locked = {.root = root, .step = 2, .fails = -1, .dies = -1};
    assert_int_equal(by__root_lock(&lock, root, NULL), BY_OK);
    assert_int_equal(by_comm_run_threads(3, NULL, save_rank, &locked, &error), BY_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(locked.status[i], BY_ESTATE);
        assert_non_null(strstr(locked.message[i], "another process is writing checkpoints"));
    }
    assert_int_equal(close(lock), 0);
    temporary_remove(root);
}

static void a_rank_that_ends_leaves_no_checkpoint(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    char *path;
    by_error error = {0};
    for (int dies = 0; dies < 3; dies++) {
        save_job job = {.root = root, .step = 2, .fails = -1, .dies = dies};
        assert_int_not_equal(by_comm_run_threads(3, NULL, save_rank, &job, &error), BY_OK);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(job.status[i], i == dies ? BY_OK : BY_EPEER);
        }
        assert_int_equal(by_checkpoint_latest(root, &path, NULL, &error), BY_ESTATE);
    }
    /* What a slow rank wrote while rank 0 was removing is removed by the next save. */
    save_job good = {.root = root, .step = 2, .fails = -1, .dies = -1};
    assert_int_equal(by_comm_run_threads(3, NULL, save_rank, &good, &error), BY_OK);
    assert_holds(root, 2);
    temporary_remove(root);
}

static void writers_are_spread_over_the_ranks(void **state)
{
    BY_UNUSED(state);
    for (int ranks = 1; ranks <= 20; ranks++) {
        for (int writers = 1; writers <= ranks; writers++) {
            int next = 0;
            for (int rank = 0; rank < ranks; rank++) {
                int writer = by__checkpoint_writer_of(rank, ranks, writers);
                if (writer >= 0) {
                    assert_int_equal(writer, next);
                    next++;
                }
            }
            assert_int_equal(next, writers);
            assert_int_equal(by__checkpoint_writer_of(0, ranks, writers), 0);
        }
    }
    assert_int_equal(by__checkpoint_writer_of(4, 8, 2), 1);
}

static int fill(void **state)
{
    BY_UNUSED(state);
    for (int i = 0; i < ELEMENTS; i++) {
        values[i] = (float)i * 0.25f;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_saves_the_same),
        cmocka_unit_test(one_failure_is_everybodys),
        cmocka_unit_test(a_rank_that_ends_leaves_no_checkpoint),
        cmocka_unit_test(writers_are_spread_over_the_ranks),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
