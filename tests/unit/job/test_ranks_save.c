/* Any layout of ranks goes on from a checkpoint of any other, to the weights of a run that was
 * never interrupted; and a replica whose weights differ is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/storage.h"
#include "job/job.h"
#include "run_root.h"
#include "runner.h"
#include "sanitizer.h"
#include "temporary.h"
#include "trainer/offload/offload.h"
#include "trainer/state/trainer.h"
#include "trainer/step/trainer_step.h"

/* Windows are of one page: many of them, even of a small model. */
#define ON_DISK "offload.optimizer=disk", "offload.buffer_mib=0.01"

#define STEPS 3
#define HALF  2

/* A run that a number of ranks begin or go on with. */
typedef struct run_job {
    const by_config *config;
    const char *resume; /* run directory */
    int64_t stop_at;    /* step; 0: never; -1: before the first */
    int64_t step;       /* rank 0's newest */
    by_status status;   /* rank 0's */
    char *run;          /* rank 0's */
} run_job;

typedef struct rank_job {
    run_job *job;
    bool leads;
} rank_job;

static void on_event(void *user, const by_train_event *event)
{
    rank_job *r = user;
    if (r->leads && (event->kind == BY_TRAIN_STARTED || event->kind == BY_TRAIN_STEPPED)) {
        r->job->step = event->result.step;
    }
}

static bool is_stopped(void *user)
{
    rank_job *r = user;
    return r->leads && r->job->stop_at != 0 && r->job->step >= r->job->stop_at;
}

static by_status train_rank(by_comm *comm, void *user, by_error *error)
{
    run_job *job = user;
    rank_job r = {.job = job, .leads = by_comm_rank(comm) == 0};
    const by_trainer_options trainer = {.comm = comm};
    const by_train_options options = {.config = job->config,
                                      .trainer = &trainer,
                                      .resume = job->resume,
                                      .event = on_event,
                                      .stop = is_stopped,
                                      .user = &r};
    char *run = NULL;
    by_status status = by_train(&options, &run, error);
    if (r.leads) {
        job->status = status;
        job->run = run;
    } else {
        free(run);
    }
    return status == BY_ESTOPPED ? BY_OK : status;
}

static by_config *open_config(const char *root, const char *const *settings,
                              const char *const *more)
{
    static const char *const common[] = {
        "model.layers=3",     "model.heads=4",       "model.width=16",
        "model.context=8",    "data.tokenizer=char", "train.threads=1",
        "train.steps=3",      "train.batch=8",       "train.micro_batch=1",
        "train.log_every=1",  "train.eval_every=0",  "train.eval_batches=1",
        "optimizer.warmup=1", "parallel.writers=8",  NULL};
    return run_root_config(root, common, settings, more);
}

static char *train(int ranks, const by_config *config, const char *resume, int64_t stop_at)
{
    by_error error = {0};
    run_job job = {.config = config, .resume = resume, .stop_at = stop_at, .step = INT64_MIN};
    check_ok(by_comm_run_threads(ranks, NULL, train_rank, &job, &error), &error);
    assert_int_equal(job.status, stop_at != 0 ? BY_ESTOPPED : BY_OK);
    return job.run;
}

static by_digest digest_of(const char *run, int64_t step)
{
    char path[4096];
    by_digest digest;
    by_error error = {0};
    (void)snprintf(path, sizeof path, "%s/checkpoints/step-%08lld", run, (long long)step);
    check_ok(by_checkpoint_digest(&digest, path, 1, &error), &error);
    return digest;
}

/* Every rank has written: the files say so. */
static void check_files(const char *run, int ranks)
{
    char path[4096];
    if (ranks == 1) {
        (void)snprintf(path, sizeof path, "%s/checkpoints/step-%08d/model.safetensors", run, HALF);
        assert_true(by__path_exists(path));
        return;
    }
    for (int i = 1; i <= ranks; i++) {
        (void)snprintf(path, sizeof path, "%s/checkpoints/step-%08d/model-%05d-of-%05d.safetensors",
                       run, HALF, i, ranks);
        assert_true(by__path_exists(path));
    }
}

static void remove_step(const char *run, int64_t step)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/checkpoints/step-%08lld", run, (long long)step);
    assert_int_equal(by__remove_tree(path, NULL), BY_OK);
    (void)snprintf(path, sizeof path, "%s/checkpoints/best.json", run);
    assert_int_equal(by__remove_tree(path, NULL), BY_OK);
}

/* Ranks, and how they are laid out. */
typedef struct layout {
    int ranks;
    const char *settings[5]; /* NULL at the end */
} layout;

/* Whether a layout reads what another saved: of any two, one reads the other's. A sanitizer looks
 * at the memory that each uses to save and to load, not at their pairs: there, the next reads. */
static bool is_pair(size_t saver, size_t loader, size_t count)
{
    bool is_next = loader == (saver + 1) % count;
    return is_next || (!BY_TESTS_SANITIZED && ((saver + loader) % 2 == 1) == (saver < loader));
}

/* Saved by each layout, gone on with by its pairs, or (next) by the next one. */
static void reshard_to(const layout *layouts, size_t count, const char *const *settings, bool next)
{
    char *root = run_root_make();
    by_config *configs[16];
    assert_true(count <= BY_ARRAY_LENGTH(configs));
    for (size_t i = 0; i < count; i++) {
        configs[i] = open_config(root, settings, layouts[i].settings);
    }
    char *whole = train(layouts[0].ranks, configs[0], NULL, 0);
    by_digest expected = digest_of(whole, STEPS);
    by_digest half = {0};
    for (size_t i = 0; i < count; i++) {
        char *run = train(layouts[i].ranks, configs[i], NULL, HALF);
        by_digest digest = digest_of(run, HALF);
        if (!next) {
            check_files(run, layouts[i].ranks);
        }
        if (i == 0) {
            half = digest;
        } else {
            assert_string_equal(digest.all, half.all);
            by_digest_free(&digest);
        }
        for (size_t n = 0; n < (next ? 1 : count); n++) {
            size_t k = (i + 1 + n) % count;
            if (!is_pair(i, k, count)) {
                continue;
            }
            char *again = train(layouts[k].ranks, configs[k], run, 0);
            digest = digest_of(run, STEPS);
            if (strcmp(digest.all, expected.all) != 0) {
                fail_msg("saved by layout %zu, went on with layout %zu: other weights", i, k);
            }
            assert_string_equal(digest.model, expected.model);
            assert_string_equal(digest.optimizer, expected.optimizer);
            by_digest_free(&digest);
            remove_step(run, STEPS);
            free(again);
        }
        free(run);
    }
    for (size_t i = 0; i < count; i++) {
        by_config_close(&configs[i]);
    }
    by_digest_free(&half);
    by_digest_free(&expected);
    free(whole);
    temporary_remove(root);
}

static void reshard(const layout *layouts, size_t count, const char *const *settings)
{
    reshard_to(layouts, count, settings, false);
}

static void any_layout_goes_on_from_any(void **state)
{
    BY_UNUSED(state);
    static const layout layouts[] = {{1, {NULL}},
                                     {2, {NULL}},
                                     {3, {NULL}},
                                     {5, {NULL}},
                                     {8, {NULL}},
                                     {2, {"parallel.pipeline=2", NULL}},
                                     {3, {"parallel.pipeline=3", NULL}},
                                     {4, {"parallel.pipeline=2", NULL}},
                                     {2, {"parallel.shard=2", NULL}},
                                     {3, {"parallel.shard=3", NULL}},
                                     {8, {"parallel.shard=4", "parallel.data=2", NULL}},
                                     {3, {"parallel.shard=3", "parallel.zero=2", NULL}},
                                     {6, {"parallel.shard=3", "parallel.zero=3", NULL}},
                                     {1, {ON_DISK, NULL}},
                                     {3, {"parallel.shard=3", ON_DISK, NULL}}};
    static const char *const f32[] = {NULL};
    reshard(layouts, BY_ARRAY_LENGTH(layouts), f32);
}

static void narrow_copies_and_other_optimizers(void **state)
{
    BY_UNUSED(state);
    static const layout layouts[] = {{1, {NULL}},
                                     {4, {NULL}},
                                     {4, {"parallel.pipeline=2", NULL}},
                                     {1, {ON_DISK, NULL}},
                                     {4, {"parallel.shard=2", ON_DISK, NULL}},
                                     {4, {"parallel.shard=2", "parallel.zero=2", NULL}},
                                     {3, {"parallel.shard=3", "parallel.zero=3", NULL}},
                                     {2, {"parallel.shard=2", "parallel.zero=3", ON_DISK, NULL}},
                                     {2, {"parallel.pipeline=2", ON_DISK, NULL}}};
    static const char *const settings[] = {"precision.compute=bf16", "optimizer.kind=adafactor",
                                           "optimizer.beta1=0.9", "parallel.replica_hash_every=1",
                                           NULL};
    reshard(layouts, BY_ARRAY_LENGTH(layouts), settings);
}

/* Files hold one tensor an expert. */
static void experts_are_saved_in_parts(void **state)
{
    BY_UNUSED(state);
    static const layout layouts[] = {{1, {NULL}},
                                     {3, {NULL}},
                                     {2, {"parallel.shard=2", NULL}},
                                     {2, {"parallel.shard=2", "parallel.zero=3", NULL}},
                                     {2, {"parallel.shard=2", "parallel.zero=3", ON_DISK, NULL}},
                                     {1, {ON_DISK, NULL}}};
    static const char *const settings[] = {"model.kind=mixtral", "precision.compute=bf16",
                                           "model.experts=3", NULL};
    reshard(layouts, BY_ARRAY_LENGTH(layouts), settings);
}

/* What ranks of data, shard and pipeline do shows in no bit, whatever else splits the work of a
 * micro-batch. */
static void axes_together(void **state)
{
    BY_UNUSED(state);
    static const layout tensor[] = {
        {2, {"parallel.tensor=2", NULL}},
        {4, {"parallel.tensor=2", NULL}},
        {4, {"parallel.tensor=2", "parallel.shard=2", NULL}},
        {8, {"parallel.tensor=2", "parallel.shard=2", NULL}},
        {4, {"parallel.tensor=2", "parallel.shard=2", "parallel.zero=2", NULL}},
        {4, {"parallel.tensor=2", "parallel.shard=2", "parallel.zero=3", NULL}},
        {4, {"parallel.tensor=2", "parallel.pipeline=2", NULL}},
        {8, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.schedule=zero_bubble", NULL}}};
    static const layout whole[] = {
        {2, {"parallel.tensor=2", NULL}},
        {4, {"parallel.tensor=2", "parallel.shard=2", "parallel.zero=2", NULL}},
        {4, {"parallel.tensor=2", "parallel.shard=2", "parallel.zero=3", NULL}}};
    static const layout pipeline[] = {
        {1, {NULL}},
        {4, {"parallel.pipeline=2", "parallel.shard=2", NULL}},
        {8, {"parallel.pipeline=2", "parallel.shard=2", "parallel.tensor=1", NULL}},
        {4, {"parallel.pipeline=2", "parallel.shard=2", "parallel.zero=2", NULL}},
        {6, {"parallel.pipeline=3", "parallel.shard=2", "parallel.zero=3", NULL}},
        {6, {"parallel.pipeline=3", "parallel.shard=2", "parallel.schedule=zero_bubble", NULL}}};
    static const layout sequence[] = {{2, {"parallel.sequence=2", NULL}},
                                      {4, {"parallel.sequence=2", "parallel.shard=2", NULL}},
                                      {4, {"parallel.sequence=2", "parallel.pipeline=2", NULL}}};
    /* These round differently than zero: 1, but all alike. */
    static const layout divided[] = {
        {4, {"parallel.sequence=2", "parallel.shard=2", "parallel.zero=2", NULL}},
        {8, {"parallel.sequence=2", "parallel.shard=4", "parallel.zero=2", NULL}},
        {8, {"parallel.sequence=2", "parallel.shard=2", "parallel.zero=3", NULL}}};
    /* Slices of a rank of `shard` begin within tensors that `tensor` has split. */
    static const layout cut[] = {
        {2, {"parallel.tensor=2", NULL}},
        {4, {"parallel.tensor=2", "parallel.shard=2", NULL}},
        {6, {"parallel.tensor=2", "parallel.shard=3", "parallel.zero=2", NULL}},
        {4, {"parallel.tensor=2", "parallel.shard=2", "parallel.zero=3", NULL}},
        {4, {"parallel.tensor=2", "parallel.shard=2", ON_DISK, NULL}}};
    static const layout expert[] = {{2, {"parallel.expert=2", NULL}},
                                    {4, {"parallel.expert=2", "parallel.shard=2", NULL}},
                                    {4, {"parallel.expert=2", "parallel.pipeline=2", NULL}}};
    static const layout tensor_expert[] = {
        {4, {"parallel.expert=2", "parallel.tensor=2", NULL}},
        {8, {"parallel.expert=2", "parallel.tensor=2", "parallel.shard=2", NULL}},
        {8, {"parallel.expert=2", "parallel.tensor=2", "parallel.pipeline=2", NULL}}};
    static const layout sequence_expert[] = {
        {4, {"parallel.expert=2", "parallel.sequence=2", NULL}},
        {8, {"parallel.expert=2", "parallel.sequence=2", "parallel.shard=2", NULL}}};
    static const char *const f32[] = {"optimizer.clip=0.3", NULL};
    static const char *const lamb[] = {"optimizer.kind=lamb", "optimizer.clip=0.3", NULL};
    static const char *const bf16[] = {"precision.compute=bf16", "optimizer.clip=0.3",
                                       "parallel.bucket_mib=0.002", NULL};
    static const char *const wide[] = {"model.width=64", "optimizer.clip=0.3", NULL};
    static const char *const mixtral[] = {"model.kind=mixtral", "model.experts=4",
                                          "train.micro_batch=2", "optimizer.clip=0.3", NULL};
    if (!BY_TESTS_SANITIZED) { /* bf16 has all that f32 has, and the copies */
        reshard_to(pipeline, BY_ARRAY_LENGTH(pipeline), f32, true);
        reshard_to(tensor, BY_ARRAY_LENGTH(tensor), f32, true);
    }
    reshard_to(pipeline, BY_ARRAY_LENGTH(pipeline), bf16, true);
    reshard_to(tensor, BY_ARRAY_LENGTH(tensor), bf16, true);
    reshard_to(whole, BY_ARRAY_LENGTH(whole), lamb, true);
    reshard_to(sequence, BY_ARRAY_LENGTH(sequence), bf16, true);
    reshard_to(divided, BY_ARRAY_LENGTH(divided), f32, true);
    reshard_to(cut, BY_ARRAY_LENGTH(cut), wide, true);
    reshard_to(expert, BY_ARRAY_LENGTH(expert), mixtral, true);
    reshard_to(tensor_expert, BY_ARRAY_LENGTH(tensor_expert), mixtral, true);
    reshard_to(sequence_expert, BY_ARRAY_LENGTH(sequence_expert), mixtral, true);
}

/* ---- every slice ---- */

typedef struct load_job {
    const by_config *config;
    const char *run;
} load_job;

/* A slice of what the checkpoint has. Weights of experts are in it expert by expert. */
static by_status read_saved(float *out, const by_tensor_view *view, const by_tensor_slice *slice,
                            size_t count, const by_weights *weights, by_error *error)
{
    size_t total;
    uint64_t first;
    size_t length;
    by__slice_runs runs;
    if (!by__checkpoint_name_is_stacked(view->name) || by_weights_has(weights, view->name)) {
        return by_weights_read(weights, view->name, slice, out, count, error);
    }
    BY_TRY(by_tensor_size(view, &total, NULL, error));
    float *whole = malloc(total * sizeof *whole);
    for (int64_t i = 0; i < view->shape[0]; i++) {
        char name[512];
        by_tensor_view part = *view;
        size_t each = total / (size_t)view->shape[0];
        (void)by__checkpoint_stacked_part(&part, name, sizeof name, i);
        const by_tensor_slice all = by_tensor_whole(&part);
        BY_TRY(by_weights_read(weights, name, &all, whole + (size_t)i * each, each, error));
    }
    by__slice_runs_begin(&runs, view->rank, view->shape, slice);
    while (by__slice_runs_next(&runs, &first, &length)) {
        memcpy(out, whole + first, length * sizeof *out);
        out += length;
    }
    free(whole);
    return BY_OK;
}

/* What a rank holds is, bit for bit, what the checkpoint has there. */
static by_status check_slices(const by_trainer *t, const by_checkpoint *checkpoint, by_error *error)
{
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        for (int state = -1; state < by_trainer_state_count(t); state++) {
            for (size_t k = 0; k < by__trainer_slices(t, i, state); k++) {
                by__trainer_held has;
                const void *got;
                void *owned;
                char name[256];
                const char *plain = by_trainer_parameter(t, i).name;
                by__trainer_slice_at(&has, t, i, state, k);
                (void)snprintf(name, sizeof name, "%s%s%s",
                               state < 0 ? "" : by_trainer_state_name(t, state),
                               state < 0 ? "" : ".", plain);
                by_tensor_view view = {.name = name, .dtype = BY_F32, .rank = has.whole.rank};
                size_t count;
                memcpy(view.shape, has.whole.dim, (size_t)view.rank * sizeof view.shape[0]);
                BY_TRY(by__checkpoint_slice_check(&view, &has.slice, &count, error));
                float *expected = malloc(count * sizeof *expected);
                BY_TRY(by__trainer_read_slice(t, i, state, k, &got, &owned, error));
                BY_TRY(read_saved(expected, &view, &has.slice, count,
                                  state < 0 ? by_checkpoint_model(checkpoint)
                                            : by_checkpoint_optimizer(checkpoint),
                                  error));
                if (memcmp(expected, got, count * sizeof *expected) != 0) {
                    return by_error_set(error, BY_ESTATE, "%s: other values", name);
                }
                free(expected);
                free(owned);
            }
        }
    }
    return BY_OK;
}

static by_status load_rank(by_comm *comm, void *user, by_error *error)
{
    const load_job *job = user;
    by_trainer *t = NULL;
    by_checkpoint *checkpoint;
    char path[4096];
    const by_trainer_options options = {.comm = comm};
    (void)snprintf(path, sizeof path, "%s/checkpoints", job->run);
    BY_TRY(by_checkpoint_open(&checkpoint, path, true, error));
    by_status status = by_trainer_open(&t, job->config, &options, error);
    if (status == BY_OK) {
        status = by_trainer_allocate(t, error);
    }
    if (status == BY_OK) {
        status = by_trainer_load_weights(t, by_checkpoint_model(checkpoint), error);
    }
    if (status == BY_OK) {
        status = by_trainer_load_optimizer(t, by_checkpoint_optimizer(checkpoint), HALF, error);
    }
    if (status == BY_OK) {
        status = check_slices(t, checkpoint, error);
    }
    by_trainer_close(&t);
    by_checkpoint_close(&checkpoint);
    return status;
}

/* What each layout saves, at the first step and at a later one, each other loads. Layouts that add
 * up in another order end with other last bits, but all begin with the same weights. */
static void load_all_pairs(const layout *layouts, size_t count, const char *const *settings)
{
    char *root = run_root_make();
    by_config *configs[16];
    by_config *loading[16];
    by_digest first = {0};
    assert_true(count <= BY_ARRAY_LENGTH(configs));
    for (size_t i = 0; i < count; i++) {
        configs[i] = open_config(root, settings, layouts[i].settings);
        loading[i] = open_config(root, settings, layouts[i].settings);
        loading[i]->model.vocab = 18; /* as the text has */
    }
    for (size_t i = 0; i < count; i++) {
        char *run = train(layouts[i].ranks, configs[i], NULL, -1);
        by_digest digest = digest_of(run, 0);
        if (i == 0) {
            first = digest;
        } else {
            assert_string_equal(digest.all, first.all);
            by_digest_free(&digest);
        }
        free(run);
        run = train(layouts[i].ranks, configs[i], NULL, HALF);
        for (size_t k = 0; k < count; k++) {
            if (!is_pair(i, k, count)) {
                continue;
            }
            load_job job = {loading[k], run};
            by_error error = {0};
            if (by_comm_run_threads(layouts[k].ranks, NULL, load_rank, &job, &error) != BY_OK) {
                fail_msg("layout %zu, loaded by %zu: %s", i, k, error.message);
            }
        }
        free(run);
    }
    for (size_t i = 0; i < count; i++) {
        by_config_close(&configs[i]);
        by_config_close(&loading[i]);
    }
    by_digest_free(&first);
    temporary_remove(root);
}

static void every_layout_saves_and_loads_every_slice(void **state)
{
    BY_UNUSED(state);
    static const layout layouts[] = {
        {1, {NULL}},
        {3, {NULL}},
        {2, {"parallel.tensor=2", NULL}},
        {4, {"parallel.tensor=4", "parallel.sequence_parallel=true", NULL}},
        {6, {"parallel.tensor=2", NULL}},
        {2, {"parallel.sequence=2", NULL}},
        {8, {"parallel.sequence=4", "parallel.tensor=2", NULL}},
        {3, {"parallel.pipeline=3", NULL}},
        {8, {"parallel.pipeline=2", NULL}},
        {4, {"parallel.shard=4", NULL}},
        {7, {"parallel.shard=7", NULL}},
        {6, {"parallel.shard=3", "parallel.overlap=false", NULL}},
        {2, {"parallel.tensor=2", ON_DISK, NULL}}};
    static const char *const settings[] = {"optimizer.ema=0.9", NULL};
    load_all_pairs(layouts, BY_ARRAY_LENGTH(layouts), settings);
}

/* States of some of a parameter's axes are parts, too, where the parameter is. */
static void sums_of_rows_and_columns_are_cut(void **state)
{
    BY_UNUSED(state);
    static const layout layouts[] = {
        {1, {NULL}},
        {2, {"parallel.tensor=2", NULL}},
        {4, {"parallel.tensor=4", "parallel.sequence_parallel=true", NULL}},
        {4, {"parallel.sequence=2", "parallel.tensor=2", NULL}},
        {3, {"parallel.shard=3", NULL}},
        {2, {"parallel.tensor=2", ON_DISK, NULL}}};
    static const char *const settings[] = {"optimizer.kind=adafactor", "optimizer.beta1=0.9", NULL};
    load_all_pairs(layouts, BY_ARRAY_LENGTH(layouts), settings);
}

static void every_layout_of_experts_does(void **state)
{
    BY_UNUSED(state);
    static const layout layouts[] = {{1, {NULL}},
                                     {3, {NULL}},
                                     {2, {"parallel.expert=2", NULL}},
                                     {3, {"parallel.expert=3", NULL}},
                                     {6, {"parallel.expert=6", NULL}},
                                     {8, {"parallel.expert=2", NULL}},
                                     {2, {"parallel.tensor=2", NULL}},
                                     {4, {"parallel.shard=4", NULL}},
                                     {5, {"parallel.shard=5", NULL}}};
    static const char *const settings[] = {"model.kind=mixtral",
                                           "model.experts=6",
                                           "model.dropout=0",
                                           "train.batch=30",
                                           "train.micro_batch=6",
                                           "optimizer.ema=0.9",
                                           NULL};
    load_all_pairs(layouts, BY_ARRAY_LENGTH(layouts), settings);
}

/* What is on disk is read one window at a time, parts of tensors too, and that is planned. */
static by_status check_windows(by_comm *comm, void *user, by_error *error)
{
    enum { PAGE = 4096, BUFFER = 3 * PAGE };
    const by_trainer_options options = {.comm = comm};
    by_trainer *t;
    BY_TRY(by_trainer_open(&t, user, &options, error));
    size_t planned = (size_t)t->updater->bytes(t);
    size_t largest = 0;
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        for (int state = 0; state < by_trainer_state_count(t); state++) {
            for (size_t k = 0; k < by__trainer_slices(t, i, state); k++) {
                by__trainer_held has;
                size_t count = 1;
                by__trainer_slice_at(&has, t, i, state, k);
                for (int axis = 0; axis < (has.slice.flat ? 1 : has.whole.rank); axis++) {
                    count *= (size_t)has.slice.shape[axis];
                }
                largest = count > largest ? count : largest;
            }
        }
    }
    by_trainer_close(&t);
    return largest == PAGE / sizeof(float) &&
                   planned == BUFFER + PAGE + 2 * PAGE + by__store_scratch_memory()
               ? BY_OK
               : by_error_set(error, BY_ESTATE, "the largest slice: %zu; planned bytes: %zu",
                              largest, planned);
}

static void parts_on_disk_are_read_by_windows(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.vocab=20", "model.width=64", NULL};
    static const char *const more[] = {"parallel.tensor=2", ON_DISK, NULL};
    by_error error = {0};
    char *root = temporary_make();
    by_config *config = open_config(root, settings, more);
    check_ok(by_comm_run_threads(2, NULL, check_windows, config, &error), &error);
    by_config_close(&config);
    temporary_remove(root);
}

/* ---- replicas ---- */

typedef struct flip_job {
    const by_config *config;
    int flips;      /* rank; -1: none */
    bool in_master; /* else in what programs compute with */
    by_status status[8];
    char message[8][512];
} flip_job;

static by_status flip_rank(by_comm *comm, void *user, by_error *error)
{
    flip_job *job = user;
    int rank = by_comm_rank(comm);
    by_trainer *t = NULL;
    const by_trainer_options options = {.comm = comm};
    by_status status = by_trainer_open(&t, job->config, &options, error);
    if (status == BY_OK) {
        status = by_trainer_allocate(t, error);
    }
    if (status == BY_OK) {
        status = by_trainer_initialize(t, error);
    }
    if (status == BY_OK) {
        if (rank == job->flips) {
            int flat = job->in_master ? t->flats.masters : t->flats.copies;
            by__store_handle handle = by__store_find(t->store, "h.0.mlp.c_fc.weight");
            uint8_t *bytes = by__store_host(t->store, flat, handle);
            bytes[17] ^= 0x10;
        }
        job->status[rank] = by__job_trainer_compare_replicas(t, error);
        (void)snprintf(job->message[rank], sizeof job->message[rank], "%s",
                       job->status[rank] == BY_OK ? "" : error->message);
    }
    by_trainer_close(&t);
    return status;
}

static void a_replica_that_differs_is_named(void **state)
{
    BY_UNUSED(state);
    static const struct {
        int ranks;
        int flips;
        const char *message;
    } cases[] = {
        {1, 0, ""},
        {4, -1, ""},
        {3, 1, "the weights of rank 1 ("},
        {4, 0, "the weights of rank 0 ("},
        {5, 4, "which the other replicas agree with"},
        {2, 1, "no other replica says which is right"},
    };
    static const char *const settings[] = {"model.vocab=20", "precision.compute=bf16", NULL};
    by_config *config = open_config("/nonexistent", settings, settings);
    for (size_t i = 0; i < 2 * BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        const char *message = cases[i / 2].message;
        flip_job job = {.config = config, .flips = cases[i / 2].flips, .in_master = i % 2 == 0};
        check_ok(by_comm_run_threads(cases[i / 2].ranks, NULL, flip_rank, &job, &error), &error);
        for (int r = 0; r < cases[i / 2].ranks; r++) {
            assert_int_equal(job.status[r], message[0] == '\0' ? BY_OK : BY_ECORRUPT);
            assert_string_equal(job.message[r], job.message[0]);
        }
        if (strstr(job.message[0], message) == NULL ||
            (message[0] != '\0' &&
             strstr(job.message[0], "in 1 of 40 tensors, first in 'h.0.mlp.c_fc.weight'") ==
                 NULL)) {
            fail_msg("case %zu: '%s' is not in '%s'", i, message, job.message[0]);
        }
    }
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_goes_on_from_any),
        cmocka_unit_test(narrow_copies_and_other_optimizers),
        cmocka_unit_test(experts_are_saved_in_parts),
        cmocka_unit_test(axes_together),
        cmocka_unit_test(every_layout_saves_and_loads_every_slice),
        cmocka_unit_test(sums_of_rows_and_columns_are_cut),
        cmocka_unit_test(every_layout_of_experts_does),
        cmocka_unit_test(parts_on_disk_are_read_by_windows),
        cmocka_unit_test(a_replica_that_differs_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
