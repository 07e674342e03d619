/* Inputs that are the same for all batches: a model that reads rows of a constant matrix has the
 * bits of one whose batches carry these rows, on any device and number of ranks, in a run, its
 * evaluations and after a resume. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "job/job.h"
#include "late_device.h"
#include "runner.h"
#include "temporary.h"
#include "trainer/state/trainer.h"

enum { ROWS = 7, WIDTH = 3, BATCH = 4, STEPS = 3, SAMPLES = 24 };

static float features[ROWS * WIDTH];

static int prepare(void **state)
{
    BY_UNUSED(state);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        features[i] = (float)random_unit(3, 0, (size_t)i);
    }
    return 0;
}

static const by_array constant = {"features", BY_F32, {2, {ROWS, WIDTH}}, features};

/* ---- model and task ---- */

/* Reads rows of the constant by their numbers or, with `user`, rows that are in the batch. */
static by_status build(void *user, by_model *out, by_graph *graph, const by_model_config *config,
                       const by_model_request *request, by_error *error)
{
    by_value x;
    by_init normal = {BY_INIT_NORMAL, 0.5f};
    BY_UNUSED(config);
    if (user == NULL) {
        by_value table = by_graph_constant_input(graph, "features", BY_F32, BY_SHAPE(ROWS, WIDTH));
        by_value ids = by_graph_input(graph, "ids", BY_I32, BY_SHAPE(request->batch));
        x = by_embedding(graph, ids, table);
    } else {
        x = by_graph_input(graph, "rows", BY_F32, BY_SHAPE(request->batch, WIDTH));
    }
    by_value w = by_graph_parameter(graph, "w", "out in", BY_SHAPE(2, WIDTH), normal);
    out->output = by_linear(graph, x, w, BY_NONE, true);
    return by_graph_check(graph, error);
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    BY_UNUSED(config);
    BY_UNUSED(error);
    by_value targets = by_graph_input(graph, "targets", BY_F32, BY_SHAPE(request->batch, 2));
    model->loss = by_squared_error(graph, model->output, targets, BY_NONE);
    return BY_OK;
}

static const by_array sample_arrays[] = {{"ids", BY_I32, {0}, NULL},
                                         {"targets", BY_F32, {1, {2}}, NULL}};

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    BY_UNUSED(source);
    BY_UNUSED(error);
    *(int32_t *)rows[0] = (int32_t)(sample->place % ROWS);
    for (size_t i = 0; i < 2; i++) {
        ((float *)rows[1])[i] = (float)random_unit(5, sample->place, i);
    }
    return BY_OK;
}

static by_source sources[2];

static by_status open_source(by_source **out, by_task_data *data, const by_config *config,
                             bool training, by_error *error)
{
    BY_UNUSED(data);
    BY_UNUSED(config);
    BY_UNUSED(error);
    sources[training] = (by_source){.name = "rows",
                                    .arrays = sample_arrays,
                                    .array_count = 2,
                                    .shuffle = training,
                                    .samples = SAMPLES,
                                    .sample_targets = 1,
                                    .targets = SAMPLES,
                                    .fill = fill};
    *out = &sources[training];
    return BY_OK;
}

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error);

static by_status constants(by_task_data *data, const by_config *config, const by_array **out,
                           size_t *count, by_error *error)
{
    BY_UNUSED(data);
    BY_UNUSED(config);
    BY_UNUSED(error);
    *out = &constant;
    *count = 1;
    return BY_OK;
}

static const by_task task = {.name = "rows",
                             .examples = "rows",
                             .open = open_data,
                             .source = open_source,
                             .constants = constants,
                             .loss = loss};

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    static by_task_data data;
    BY_UNUSED(request);
    BY_UNUSED(error);
    data = (by_task_data){.task = &task, .train_examples = SAMPLES, .valid_examples = SAMPLES};
    *out = &data;
    return BY_OK;
}

/* ---- steps ---- */

typedef struct steps {
    bool plain; /* rows are in the batches */
    by_device *device;
    float weights[4][2 * WIDTH]; /* of each rank */
    uint64_t bytes;              /* planned for data */
} steps;

/* This rank's part of the batch of a step. */
typedef struct data {
    int32_t ids[BATCH];
    float rows[BATCH * WIDTH];
    float targets[BATCH * 2];
    by_array arrays[2];
} data;

static by_batch make_batch(data *d, by_batch_part part, bool plain, uint64_t step)
{
    for (size_t k = 0; k < part.count; k++) {
        size_t row = part.first + k / part.block * part.stride + k % part.block;
        d->ids[k] = (int32_t)((step * 3 + row * 2) % ROWS);
        memcpy(d->rows + k * WIDTH, features + d->ids[k] * WIDTH, WIDTH * sizeof(float));
        d->targets[2 * k] = (float)random_unit(9, step, 2 * row);
        d->targets[2 * k + 1] = (float)random_unit(9, step, 2 * row + 1);
    }
    int64_t count = (int64_t)part.count;
    d->arrays[0] = plain ? (by_array){"rows", BY_F32, BY_SHAPE(count, WIDTH), d->rows}
                         : (by_array){"ids", BY_I32, BY_SHAPE(count), d->ids};
    d->arrays[1] = (by_array){"targets", BY_F32, BY_SHAPE(count, 2), d->targets};
    return (by_batch){.arrays = d->arrays,
                      .array_count = 2,
                      .batch = part.count,
                      .valid_targets = part.count,
                      .global_targets = BATCH};
}

static by_config *open_config(void)
{
    static const char *const common[] = {"precision.compute=f32",
                                         "train.batch=4",
                                         "train.micro_batch=1",
                                         "train.threads=1",
                                         "optimizer.warmup=0",
                                         "model.vocab=7",
                                         NULL};
    static const char *const none[] = {NULL};
    return config_of(common, none);
}

static by_status take_steps(by_trainer *t, const steps *s, by_error *error)
{
    data d;
    by_step_result result;
    for (uint64_t step = 0; step < STEPS; step++) {
        by_batch batch = make_batch(&d, by_trainer_part(t), s->plain, step);
        BY_TRY(by_trainer_step(t, &batch, &result, error));
    }
    return BY_OK;
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    steps *s = user;
    int rank = comm == NULL ? 0 : by_comm_rank(comm);
    by_trainer *t = NULL;
    by_config *config = open_config();
    const by_trainer_options options = {.builder = build,
                                        .user = s->plain ? s : NULL,
                                        .task = &task,
                                        .comm = comm,
                                        .device = s->device};
    by_status status = by_trainer_open(&t, config, &options, error);
    if (status == BY_OK && (status = by_trainer_allocate(t, error)) == BY_OK &&
        (status = by_trainer_initialize(t, error)) == BY_OK) {
        s->bytes = rank == 0 ? by_trainer_memory(t)->data : s->bytes;
        status = s->plain ? BY_OK : by_trainer_set_constants(t, &constant, 1, error);
    }
    if (status == BY_OK && (status = take_steps(t, s, error)) == BY_OK) {
        status = by_trainer_read(t, BY_TRAINER_PARAMETER, -1, 0, s->weights[rank], error);
    }
    by_trainer_close(&t);
    by_config_close(&config);
    return status;
}

static void test_same_bits(void **state)
{
    steps plain = {.plain = true};
    steps alone = {0};
    by_error error = {0};
    BY_UNUSED(state);
    check_ok(run_rank(NULL, &plain, &error), &error);
    check_ok(run_rank(NULL, &alone, &error), &error);
    assert_memory_equal(alone.weights[0], plain.weights[0], sizeof plain.weights[0]);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        steps s = {0};
        check_ok(by_comm_run_threads(ranks, NULL, run_rank, &s, &error), &error);
        for (int r = 0; r < ranks; r++) {
            assert_memory_equal(s.weights[r], plain.weights[0], sizeof plain.weights[0]);
        }
    }
    for (uint64_t seed = 1; seed <= 8; seed++) {
        steps s = {0};
        check_ok(late_device_open(&s.device, seed, 1, &error), &error);
        check_ok(run_rank(NULL, &s, &error), &error);
        assert_string_equal(late_device_fault(s.device), "");
        assert_memory_equal(s.weights[0], plain.weights[0], sizeof plain.weights[0]);
        by_device_close(&s.device);
    }
}

/* It is in the plan once, and in no buffer of a batch. */
static void test_memory(void **state)
{
    by_trainer *t;
    by_error error = {0};
    by_config *config = open_config();
    const by_trainer_options options = {.builder = build, .task = &task};
    BY_UNUSED(state);
    check_ok(by_trainer_open(&t, config, &options, &error), &error);
    size_t bytes = by__round_up(sizeof features, BY_CACHE_LINE);
    assert_int_equal(t->feed.constant_bytes, bytes);
    assert_true(t->feed.input_bytes < 6 * BY_CACHE_LINE);
    by_trainer_close(&t);
    by_config_close(&config);
}

static void test_refused(void **state)
{
    by_trainer *t;
    by_step_result result;
    by_error error = {0};
    data d;
    by_config *config = open_config();
    const by_trainer_options options = {.builder = build, .task = &task};
    BY_UNUSED(state);
    check_ok(by_trainer_open(&t, config, &options, &error), &error);
    check_ok(by_trainer_allocate(t, &error), &error);
    check_ok(by_trainer_initialize(t, &error), &error);
    by_batch batch = make_batch(&d, by_trainer_part(t), false, 0);
    check_error(by_trainer_step(t, &batch, &result, &error), BY_ESTATE, &error,
                "the constant input 'features' was not set");
    check_error(by_trainer_set_constants(t, NULL, 0, &error), BY_EARG, &error,
                "there is no array for the constant input 'features'");
    by_array other = constant;
    other.shape.dim[0]--;
    check_error(by_trainer_set_constants(t, &other, 1, &error), BY_EARG, &error,
                "'features' is f32 [6, 3], and the model wants f32 [7, 3]");
    by_trainer_close(&t);
    by_config_close(&config);
}

/* ---- runs ---- */

typedef struct run {
    int64_t stop_at;
    int64_t step;
    double valid_loss; /* of the last evaluation */
    double first_loss; /* of the first */
} run;

static void on_event(void *user, const by_train_event *event)
{
    run *r = user;
    if (event->kind == BY_TRAIN_EVALUATED) {
        r->valid_loss = event->evaluation->loss;
        r->first_loss = isnan(r->first_loss) ? r->valid_loss : r->first_loss;
    }
    r->step = event->step;
}

static bool on_stop(void *user)
{
    const run *r = user;
    return r->stop_at > 0 && r->step >= r->stop_at;
}

static by_status train(run *r, const char *root, const char *name, const char *resume,
                       by_error *error)
{
    by_config *config = open_config();
    by_trainer_options own = {.builder = build, .task = &task};
    const by_train_options options = {.config = config,
                                      .trainer = &own,
                                      .resume = resume,
                                      .event = on_event,
                                      .stop = on_stop,
                                      .user = r};
    char set[256];
    r->first_loss = (double)NAN;
    (void)snprintf(set, sizeof set, "run.dir=%s", root);
    const char *const settings[] = {name,
                                    set,
                                    "train.steps=8",
                                    "train.eval_every=2",
                                    "train.log_every=1",
                                    "checkpoint.every=4"};
    by_status status = BY_OK;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings) && status == BY_OK; i++) {
        status = by_config_set(config, settings[i], error);
    }
    if (status == BY_OK && (status = by_config_resolve(config, error)) == BY_OK) {
        status = by_train(&options, NULL, error);
    }
    by_config_close(&config);
    return status;
}

static void test_resumed_run(void **state)
{
    char *root = temporary_make();
    char *path = by__path_join(root, "cut");
    by_error error = {0};
    run whole = {0};
    run cut = {.stop_at = 4};
    run rest = {0};
    BY_UNUSED(state);
    check_ok(train(&whole, root, "name=whole", NULL, &error), &error);
    check_error(train(&cut, root, "name=cut", NULL, &error), BY_ESTOPPED, &error, "");
    check_ok(train(&rest, root, "name=cut", path, &error), &error);
    assert_true(whole.valid_loss == rest.valid_loss && whole.valid_loss < whole.first_loss);
    free(path);
    temporary_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_resumed_run),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
