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

/* What ranks hold. */
enum { ALL = 0, ROWS, STAGES, COPIES };

typedef struct save_job {
    const char *root;
    uint64_t step;
    int writers;
    int cut;
    int planned[16]; /* writers */
    size_t parts[16];
    int fails; /* this rank has no data; -1: none */
    int dies;  /* this rank ends between begin and commit */
    by_status status[16];
    char message[16][512];
} save_job;

/* What a rank holds: "a" in rows that the job's `cut` gives, the others whole. */
static size_t list_held(by__checkpoint_held_slice *held, const save_job *job, int rank, int ranks)
{
    size_t count = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        by__checkpoint_held_slice *h = &held[count];
        const by_tensor_view *t = &tensors[i];
        int64_t first = rank * t->shape[0] / ranks;
        *h = (by__checkpoint_held_slice){.dtype = t->dtype,
                                         .rank = t->rank,
                                         .optimizer = i >= MODEL,
                                         .slice = by_tensor_whole(t)};
        (void)snprintf(h->name, sizeof h->name, "%s", t->name);
        memcpy(h->shape, t->shape, sizeof h->shape);
        if (job->cut == ROWS && t->shape[0] == 10) {
            h->slice.offset[0] = first;
            h->slice.shape[0] = (rank + 1) * t->shape[0] / ranks - first;
        } else if (job->cut == STAGES && i % (size_t)ranks != (size_t)rank) {
            continue; /* another rank's */
        } else if (job->cut == COPIES) {
            h->is_copy = i % (size_t)ranks != (size_t)rank;
        }
        if (h->slice.shape[0] > 0 || t->shape[0] == 0) {
            count++;
        }
    }
    return count;
}

typedef struct reading {
    const save_job *job;
    const by__checkpoint_held_slice *held;
    bool fails;
} reading;

static by_status read_values(void *user, size_t i, const void **data, void **owned, by_error *error)
{
    const reading *r = user;
    const by__checkpoint_held_slice *h = &r->held[i];
    BY_UNUSED(owned);
    BY_UNUSED(error);
    *data = r->fails ? NULL : values + (h->rank == 2 ? h->slice.offset[0] * h->shape[1] : 0);
    return BY_OK;
}

static by_status save_rank(by_comm *comm, void *user, by_error *error)
{
    save_job *job = user;
    int rank = by_comm_rank(comm);
    by__checkpoint_held_slice held[TENSORS];
    reading r = {job, held, rank == job->fails};
    by__checkpoint_save_plan plan;
    by_checkpoint_writer *w;
    size_t count = list_held(held, job, rank, by_comm_size(comm));
    BY_TRY(by__checkpoint_save_plan_make(&plan, comm, held, count, job->writers, error));
    by_checkpoint_layout layout = by__checkpoint_save_plan_layout(&plan);
    job->planned[rank] = plan.writers;
    job->parts[rank] = plan.part_count;
    by_status status =
        by__checkpoint_begin_together(&w, comm, plan.writer, job->root, job->step, &layout, error);
    if (status == BY_OK) {
        if (rank == job->dies) {
            by_checkpoint_abandon(&w);
            by__checkpoint_save_plan_free(&plan);
            return by_error_set(error, BY_EDEVICE, "ended");
        }
        status = by__checkpoint_save_plan_write(&plan, w, read_values, &r, error);
        status = by__checkpoint_commit_together(&w, comm, status, NULL, 0, NULL, 0, error);
    }
    by__checkpoint_save_plan_free(&plan);
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
    uint64_t step = 0;
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int cut = ALL; cut <= COPIES; cut++) {
            for (int writers = -1; writers <= 3 && writers <= ranks; writers += 2) {
                save_job job = {.root = root,
                                .step = ++step,
                                .writers = writers,
                                .cut = cut,
                                .fails = -1,
                                .dies = -1};
                assert_int_equal(by_comm_run_threads(ranks, NULL, save_rank, &job, &error), BY_OK);
                for (int i = 0; i < ranks; i++) {
                    assert_string_equal(job.message[i], "");
                    assert_int_equal(job.planned[i], job.planned[0]);
                }
                digest_of(got, root);
                if (expected[0] == '\0') {
                    memcpy(expected, got, sizeof expected);
                }
                assert_string_equal(got, expected);
            }
        }
        assert_int_equal(by_checkpoint_prune(root, 1, &error), BY_OK);
    }
    temporary_remove(root);
}

static void bytes_are_shared_among_writers(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    by_error error = {0};
    /* Whole tensors: "a", "m.a" and "b", of 1000, 1000 and 17 elements. */
    static const struct {
        int cut;
        int ranks;
        int writers;
        int planned;
        size_t parts[4];
    } cases[] = {
        {ALL, 4, -1, 1, {3, 0, 0, 0}}, /* small */
        {ALL, 4, 1, 1, {3, 0, 0, 0}},
        {ALL, 4, 2, 2, {2, 0, 1, 0}}, /* spread over the ranks */
        {ALL, 4, 9, 3, {1, 1, 1, 0}}, /* rank 3 has nothing left to write */
        {ROWS, 4, 1, 4, {3, 2, 2, 2}},
        {STAGES, 2, 1, 2, {1, 2}}, /* the tensor without elements counts nowhere */
        {COPIES, 2, 1, 2, {1, 2}},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        save_job job = {.root = root,
                        .step = i,
                        .writers = cases[i].writers,
                        .cut = cases[i].cut,
                        .fails = -1,
                        .dies = -1};
        assert_int_equal(by_comm_run_threads(cases[i].ranks, NULL, save_rank, &job, &error), BY_OK);
        assert_int_equal(job.planned[0], cases[i].planned);
        for (int r = 0; r < cases[i].ranks; r++) {
            if (job.parts[r] != cases[i].parts[r]) {
                fail_msg("case %zu: rank %d has %zu parts, not %zu", i, r, job.parts[r],
                         cases[i].parts[r]);
            }
        }
    }
    temporary_remove(root);
}

static void one_failure_is_everybodys(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    by_error error = {0};
    save_job first = {.root = root, .step = 1, .writers = 9, .fails = -1, .dies = -1};
    assert_int_equal(by_comm_run_threads(2, NULL, save_rank, &first, &error), BY_OK);
    assert_holds(root, 2); /* .lock, step 1 */
    /* No data on one rank. */
    for (int fails = 0; fails < 3; fails++) {
        save_job job = {.root = root, .step = 2, .writers = 9, .fails = fails, .dies = -1};
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
    save_job locked = {.root = root, .step = 2, .writers = 9, .fails = -1, .dies = -1};
    assert_int_equal(by__checkpoint_root_lock(&lock, root, NULL), BY_OK);
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
        save_job job = {.root = root, .step = 2, .writers = 9, .fails = -1, .dies = dies};
        assert_int_not_equal(by_comm_run_threads(3, NULL, save_rank, &job, &error), BY_OK);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(job.status[i], i == dies ? BY_OK : BY_EPEER);
        }
        assert_int_equal(by_checkpoint_latest(root, &path, NULL, &error), BY_ESTATE);
    }
    /* What a slow rank wrote while rank 0 was removing is removed by the next save. */
    save_job good = {.root = root, .step = 2, .writers = 9, .fails = -1, .dies = -1};
    assert_int_equal(by_comm_run_threads(3, NULL, save_rank, &good, &error), BY_OK);
    assert_holds(root, 2);
    temporary_remove(root);
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
        cmocka_unit_test(bytes_are_shared_among_writers),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
