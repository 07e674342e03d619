/* Saves in the background: a checkpoint holds what there was when it was begun, whatever the size
 * of the staging buffer and whoever saves; and what fails behind the steps' back is an error of
 * all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "banyan/train.h"
#include "checkpoint/storage.h"
#include "rank_run.h"
#include "run_root.h"
#include "runner.h"
#include "temporary.h"
#include "trainer/state/trainer.h"

/* ---- the saver alone ---- */

enum { TENSORS = 5, MOST = 40000 };

/* Rows of the tensors: of no size that the ring's is a multiple of, and one without elements. */
static const int64_t sizes[TENSORS] = {17, 40000, 0, 4099, 31001};

typedef struct saver_job {
    const char *root;
    size_t staging;
    bool background;
    int steps;
    int fails; /* this rank's values cannot be read; -1: none */
    by_status status[4];
} saver_job;

/* What a rank holds of each tensor, and its present values. */
typedef struct values {
    float data[TENSORS][MOST];
    by__checkpoint_held_slice held[TENSORS];
    size_t tensor[TENSORS];
    size_t count;
    bool fails;
} values;

static float value_of(int step, size_t tensor, int64_t i)
{
    return (float)(1000000 * step) + (float)((int64_t)tensor * 100000 + i);
}

static void set_values(values *v, int step)
{
    for (size_t t = 0; t < TENSORS; t++) {
        for (int64_t i = 0; i < sizes[t]; i++) {
            v->data[t][i] = value_of(step, t, i);
        }
    }
}

/* A rank has its share of the elements of each tensor; of one without any, rank 0 has all. */
static void list_held(values *v, int rank, int ranks)
{
    for (size_t t = 0; t < TENSORS; t++) {
        by__checkpoint_held_slice *h = &v->held[v->count];
        int64_t first = rank * sizes[t] / ranks;
        *h = (by__checkpoint_held_slice){
            .dtype = BY_F32, .rank = 1, .shape = {sizes[t]}, .optimizer = t > 2};
        (void)snprintf(h->name, sizeof h->name, t > 2 ? "m.t%zu" : "t%zu", t);
        h->slice.flat = true;
        h->slice.offset[0] = first;
        h->slice.shape[0] = (rank + 1) * sizes[t] / ranks - first;
        if (sizes[t] > 0 || rank == 0) {
            v->tensor[v->count++] = t;
        }
    }
}

static by_status read_values(void *user, size_t i, const void **data, void **owned, by_error *error)
{
    const values *v = user;
    const by__checkpoint_held_slice *h = &v->held[i];
    if (v->fails) {
        return by_error_set(error, BY_EDEVICE, "there is no value");
    }
    *data = &v->data[v->tensor[i]][h->slice.offset[0]];
    if (i % 2 == 1) { /* through a copy */
        size_t bytes = (size_t)h->slice.shape[0] * sizeof(float);
        BY_TRY(by__alloc_aligned(owned, bytes + 1, "test", error));
        memcpy(*owned, *data, bytes);
        *data = *owned;
    }
    return BY_OK;
}

static by_status save_steps(by__checkpoint_saver *saver, const saver_job *job,
                            const by__checkpoint_save_plan *plan, values *v, by_error *error)
{
    for (int step = 1; step <= job->steps; step++) {
        by__checkpoint_save_end end;
        char text[16];
        (void)snprintf(text, sizeof text, "%d", step);
        by_checkpoint_value value = {"step", BY_VALUE_STRING, {.string = text}};
        by_checkpoint_file file = {"config.json", text, strlen(text), NULL, NULL};
        const by__checkpoint_save_request request = {.root = job->root,
                                                     .step = (uint64_t)step,
                                                     .plan = plan,
                                                     .read = read_values,
                                                     .user = v,
                                                     .background = job->background,
                                                     .values = &value,
                                                     .value_count = 1,
                                                     .files = &file,
                                                     .file_count = 1,
                                                     .is_best = step == 2,
                                                     .loss = 0.5};
        set_values(v, step);
        BY_TRY(by__checkpoint_saver_begin(saver, &request, error));
        memset(text, 0, sizeof text);
        EXPECT(by__checkpoint_saver_is_pending(saver));
        EXPECT(by__checkpoint_saver_begin(saver, &request, NULL) == BY_ESTATE);
        by__checkpoint_saver_wait_copied(saver);
        set_values(v, -step);
        BY_TRY(by__checkpoint_saver_wait(saver, &end, error));
        EXPECT(!by__checkpoint_saver_is_pending(saver) && !by__checkpoint_saver_is_done(saver));
        EXPECT(end.step == (uint64_t)step && end.seconds > 0.0 && end.stalled >= 0.0);
    }
    return BY_OK;
}

static by_status save_rank(by_comm *comm, void *user, by_error *error)
{
    saver_job *job = user;
    by__checkpoint_saver *saver;
    by__checkpoint_save_plan plan;
    values *v;
    by_comm *own;
    int rank = by_comm_rank(comm);
    BY_TRY(by__alloc((void **)&v, 1, sizeof *v, "test", error));
    v->fails = rank == job->fails;
    list_held(v, rank, by_comm_size(comm));
    by_status status = by__checkpoint_save_plan_make(&plan, comm, v->held, v->count, 16, error);
    if (status == BY_OK) {
        status = by_comm_split(&own, comm, 0, rank, error);
        status =
            status == BY_OK ? by__checkpoint_saver_open(&saver, &own, job->staging, error) : status;
        if (status == BY_OK) {
            status = save_steps(saver, job, &plan, v, error);
            by__checkpoint_saver_close(&saver);
        }
        by__checkpoint_save_plan_free(&plan);
    }
    free(v);
    job->status[rank] = status;
    return job->fails >= 0 ? BY_OK : status;
}

static void check_saved(const char *root, int step)
{
    by_checkpoint *checkpoint;
    char *path;
    float *data;
    const char *text;
    by_error error = {0};
    check_ok(by__checkpoint_step_path(&path, root, (uint64_t)step, &error), &error);
    check_ok(by_checkpoint_open(&checkpoint, path, true, &error), &error);
    check_ok(by__alloc((void **)&data, MOST, sizeof *data, "test", &error), &error);
    for (size_t t = 0; t < TENSORS; t++) {
        char name[16];
        by_tensor_slice all = {.shape = {sizes[t]}};
        (void)snprintf(name, sizeof name, t > 2 ? "m.t%zu" : "t%zu", t);
        check_ok(by_weights_read_f32(t > 2 ? by_checkpoint_optimizer(checkpoint)
                                           : by_checkpoint_model(checkpoint),
                                     name, &all, data, (size_t)sizes[t], &error),
                 &error);
        for (int64_t i = 0; i < sizes[t]; i++) {
            assert_true(data[i] == value_of(step, t, i));
        }
    }
    check_ok(by_checkpoint_value_string(checkpoint, "step", &text, &error), &error);
    assert_int_equal(atoi(text), step);
    assert_string_equal(by_weights_config(by_checkpoint_model(checkpoint)), text);
    free(data);
    by_checkpoint_close(&checkpoint);
    free(path);
}

static void a_checkpoint_is_what_there_was(void **state)
{
    (void)state;
    static const size_t stagings[] = {1, 100000, 1 << 20};
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        for (size_t i = 0; i < 2 * BY_ARRAY_LENGTH(stagings); i++) {
            char *best;
            double loss;
            by_error error = {0};
            char *root = temporary_make();
            saver_job job = {.root = root,
                             .staging = stagings[i / 2],
                             .background = i % 2 == 1,
                             .steps = 2,
                             .fails = -1};
            check_ok(by_comm_run_threads(ranks, NULL, save_rank, &job, &error), &error);
            for (int step = 1; step <= job.steps; step++) {
                check_saved(root, step);
            }
            check_ok(by_checkpoint_best(root, &best, &loss, &error), &error);
            assert_true(loss == 0.5);
            free(best);
            temporary_remove(root);
        }
    }
}

/* Of one rank, before or while it is written; nothing of it is left, and all ranks hear of it. */
static void what_fails_is_an_error_of_all(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        int ranks = 1 + i / 4;
        char *root = temporary_make();
        char *file = by__path_join(root, "file");
        by_error error = {0};
        bool no_root = i % 4 < 2;
        saver_job job = {.root = no_root ? file : root,
                         .staging = 100000,
                         .background = i % 2 == 1,
                         .steps = 1,
                         .fails = ranks - 1};
        assert_int_equal(by__file_write(file, "x", 1, NULL), BY_OK);
        check_ok(by_comm_run_threads(ranks, NULL, save_rank, &job, &error), &error);
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(job.status[r], no_root ? BY_EIO : BY_EDEVICE);
        }
        char **names;
        size_t count;
        assert_int_equal(by__list_dir(&names, &count, root, NULL), BY_OK);
        assert_int_equal(count, no_root ? 1 : 2); /* .lock */
        by__names_free(names, count);
        free(file);
        temporary_remove(root);
    }
}

/* ---- a job ---- */

typedef struct train_job {
    const by_config *config;
    char *run;
} train_job;

static by_status train_rank(by_comm *comm, void *user, by_error *error)
{
    train_job *job = user;
    char *run = NULL;
    const by_trainer_options trainer = {.comm = comm};
    const by_train_options options = {.config = job->config, .trainer = &trainer};
    by_status status = by_train(&options, &run, error);
    if (by_comm_rank(comm) == 0) {
        job->run = run;
    } else {
        free(run);
    }
    return status;
}

static by_config *open_config(const char *root, const char *const *settings, const char *async)
{
    static const char *const common[] = {"model.layers=2",
                                         "model.heads=2",
                                         "model.width=48",
                                         "model.context=8",
                                         "data.tokenizer=char",
                                         "train.threads=1",
                                         "train.steps=3",
                                         "train.batch=4",
                                         "train.micro_batch=1",
                                         "train.eval_every=2",
                                         "train.eval_batches=1",
                                         "optimizer.warmup=1",
                                         "checkpoint.every=1",
                                         "checkpoint.keep=100",
                                         "parallel.writers=8",
                                         "checkpoint.staging=70KiB",
                                         NULL};
    const char *const more[] = {async, NULL};
    return run_root_config(root, common, settings, more);
}

static void compare_steps(const char *a, const char *b, int steps)
{
    for (int step = 1; step <= steps; step++) {
        by_digest digests[2];
        for (int k = 0; k < 2; k++) {
            char path[4096];
            by_error error = {0};
            (void)snprintf(path, sizeof path, "%s/checkpoints/step-%08d", k == 0 ? a : b, step);
            check_ok(by_checkpoint_digest(&digests[k], path, 1, &error), &error);
        }
        if (strcmp(digests[0].all, digests[1].all) != 0) {
            fail_msg("step %d: what was saved while steps went on is not what there was", step);
        }
        by_digest_free(&digests[0]);
        by_digest_free(&digests[1]);
    }
}

/* Every checkpoint of a job that goes on while it saves is that of one which waits, in every
 * layout. The staging buffer is a fraction of what is saved. */
static void a_job_saves_the_same_without_waiting(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *settings[5];
    } cases[] = {
        {1, {NULL}},
        {1, {"offload.optimizer=disk", "offload.buffer_mib=0.01", NULL}},
        {2, {"parallel.data=2", NULL}},
        {2, {"parallel.shard=2", "parallel.zero=3", NULL}},
        {2, {"parallel.pipeline=2", "precision.compute=bf16", NULL}},
        {2, {"parallel.tensor=2", NULL}},
        {2, {"parallel.data=2", "sync.compress=int8", NULL}},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        char *runs[2];
        char *root = run_root_make();
        for (int k = 0; k < 2; k++) {
            by_error error = {0};
            train_job job = {
                .config = open_config(root, cases[i].settings,
                                      k == 0 ? "checkpoint.async=false" : "checkpoint.async=true")};
            check_ok(by_comm_run_threads(cases[i].ranks, NULL, train_rank, &job, &error), &error);
            runs[k] = job.run;
            by_config_close((by_config **)(uintptr_t)&job.config);
        }
        compare_steps(runs[0], runs[1], 3);
        free(runs[0]);
        free(runs[1]);
        temporary_remove(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_is_what_there_was),
        cmocka_unit_test(what_fails_is_an_error_of_all),
        cmocka_unit_test(a_job_saves_the_same_without_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
