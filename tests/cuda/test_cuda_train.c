/* Training on a GPU's stand-in, which runs everything as late and in as odd an order as streams and
 * events allow: the losses of the CPU within rounding, one result for every seed, no fault. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rank_job.h"
#include "runner.h"
#include "temporary.h"
#include "trainer/state/trainer.h"

#ifdef BY_STANDINS
enum {
    STEPS = 50,
    NUMBERS = 3,
    ROWS = 4,
    CONTEXT = 16,
    VOCAB = 97,
    SIDE = 8, /* of images */
    MOST_VALUES = 1 << 17
};

/* Seeds of each case, and of those in bf16, whose queues are those of f32. The program takes
 * another number. */
static int seeds = 2;
static int bf16_seeds = 1;

/* A step's batch. */
typedef struct train_data {
    float numbers[ROWS * NUMBERS];
    float targets[ROWS];
    float weight[ROWS];
    int32_t tokens[ROWS * CONTEXT];
    int32_t labels[ROWS * SIDE * SIDE]; /* at least ROWS * CONTEXT */
    float images[ROWS * SIDE * SIDE];
    by_array arrays[3];
} train_data;

typedef by_batch make_batch_fn(train_data *d, uint64_t step);

/* What a run has in the end. */
typedef struct train_result {
    double losses[STEPS];
    float values[MOST_VALUES];
    size_t count;
} train_result;

static by_batch make_rows(train_data *d, uint64_t step)
{
    for (size_t k = 0; k < ROWS; k++) {
        for (size_t i = 0; i < NUMBERS; i++) {
            d->numbers[k * NUMBERS + i] = (float)random_unit(5, step, k * NUMBERS + i);
        }
        d->weight[k] = 1.0f;
        d->targets[k] = d->numbers[k * NUMBERS] - d->numbers[k * NUMBERS + 1];
    }
    d->arrays[0] = (by_array){"numbers", BY_F32, BY_SHAPE(ROWS, NUMBERS), d->numbers};
    d->arrays[1] = (by_array){"targets", BY_F32, BY_SHAPE(ROWS), d->targets};
    d->arrays[2] = (by_array){"weight", BY_F32, BY_SHAPE(ROWS), d->weight};
    return (by_batch){.arrays = d->arrays,
                      .array_count = 3,
                      .batch = ROWS,
                      .valid_targets = ROWS,
                      .global_targets = ROWS};
}

static by_batch make_text(train_data *d, uint64_t step)
{
    for (size_t i = 0; i < ROWS * CONTEXT; i++) {
        d->tokens[i] = (int32_t)((random_unit(step, 1, i) + 1.0) / 2.0 * VOCAB);
        d->labels[i] = i % 11 == 3 ? -1 : (d->tokens[i] + 1) % VOCAB;
    }
    return by_batch_of_tokens(d->arrays, d->tokens, d->labels, ROWS, CONTEXT);
}

/* The class is that of the brighter half. */
static by_batch make_images(train_data *d, uint64_t step)
{
    for (size_t k = 0; k < ROWS; k++) {
        double halves[2] = {0.0, 0.0};
        for (size_t i = 0; i < SIDE * SIDE; i++) {
            float *pixel = &d->images[k * SIDE * SIDE + i];
            *pixel = (float)random_unit(7, step, k * SIDE * SIDE + i);
            halves[i * 2 / (SIDE * SIDE)] += (double)*pixel;
        }
        d->labels[k] = halves[1] > halves[0];
    }
    d->arrays[0] = (by_array){"images", BY_F32, BY_SHAPE(ROWS, 1, SIDE, SIDE), d->images};
    d->arrays[1] = (by_array){"labels", BY_I32, BY_SHAPE(ROWS), d->labels};
    return (by_batch){.arrays = d->arrays,
                      .array_count = 2,
                      .batch = ROWS,
                      .valid_targets = ROWS,
                      .global_targets = ROWS};
}

/* The class of a pixel is whether it is bright; some have none. */
static by_batch make_maps(train_data *d, uint64_t step)
{
    uint64_t targets = 0;
    by_batch batch = make_images(d, step);
    for (size_t i = 0; i < ROWS * SIDE * SIDE; i++) {
        d->labels[i] = i % 13 == 5 ? -1 : d->images[i] > 0.0f;
        targets += d->labels[i] >= 0;
    }
    d->arrays[1] = (by_array){"labels", BY_I32, BY_SHAPE(ROWS, SIDE, SIDE), d->labels};
    batch.valid_targets = targets;
    batch.global_targets = targets;
    return batch;
}

static void keep_values(train_result *r, const by_trainer *t)
{
    by_error error = {0};
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        size_t count;
        by_tensor_view view = by_trainer_parameter(t, i);
        check_ok(by_tensor_size(&view, &count, NULL, &error), &error);
        assert_true(r->count + count <= MOST_VALUES);
        check_ok(by_trainer_read(t, BY_TRAINER_PARAMETER, -1, i, r->values + r->count, &error),
                 &error);
        r->count += count;
    }
}

static train_result *train(const by_config *config, by_device *device, make_batch_fn *make,
                           int steps)
{
    by_error error = {0};
    by_trainer *t;
    train_data d;
    train_result *r = calloc(1, sizeof *r);
    const by_trainer_options options = {.device = device};
    assert_non_null(r);
    check_ok(by_trainer_open(&t, config, &options, &error), &error);
    check_ok(by_trainer_allocate(t, &error), &error);
    check_ok(by_trainer_initialize(t, &error), &error);
    for (int step = 0; step < steps; step++) {
        by_step_result result;
        by_batch batch = make(&d, (uint64_t)step);
        check_ok(by_trainer_step(t, &batch, &result, &error), &error);
        r->losses[step] = result.loss;
    }
    keep_values(r, t);
    by_trainer_close(&t);
    return r;
}

/* How far losses may be from the CPU's: each of them, and their mean over a number of steps.
 * Batches are so small that in bf16 each one has much noise. */
typedef struct train_bound {
    double each;
    double mean;
    int steps; /* at most STEPS */
    const int *seeds;
} train_bound;

static const train_bound f32_bound = {1e-5, 1e-5, 20, &seeds};
/* The emulator takes a third of a second for a step of convolutions. */
static const train_bound image_bound = {1e-5, 1e-5, 8, &seeds};
static const train_bound bf16_bound = {1e-2, 1e-3, STEPS, &bf16_seeds};
/* Of kernels that tell what they touch, which take ten times as long; each step does the same. */
static const train_bound checked_bound = {1e-5, 1e-5, 5, &seeds};

/* All seeds give one result, whose losses are the CPU's within the bound. Returns how far they
 * are. */
static train_bound compare(const by_config *config, make_batch_fn *make, const train_bound *bound)
{
    by_error error = {0};
    by_device *device;
    train_bound far = {.steps = bound->steps, .seeds = bound->seeds};
    train_result *first = NULL;
    check_ok(by_device_open(&device, "cpu", 1, &error), &error); /* a config's default is auto */
    train_result *cpu = train(config, device, make, bound->steps);
    by_device_close(&device);
    for (int seed = 1; seed <= *bound->seeds; seed++) {
        char text[16];
        (void)snprintf(text, sizeof text, "%d", seed);
        assert_int_equal(setenv("BANYAN_STANDIN_SEED", text, 1), 0);
        check_ok(by_device_open(&device, "cuda", 1, &error), &error);
        train_result *r = train(config, device, make, bound->steps);
        by_device_close(&device);
        if (first != NULL) {
            assert_memory_equal(r, first, sizeof *r);
        }
        free(first);
        first = r;
    }
    for (int i = 0; i < bound->steps; i++) {
        double difference = first->losses[i] - cpu->losses[i];
        far.each = fabs(difference) > far.each ? fabs(difference) : far.each;
        far.mean += difference / bound->steps;
        if (!(fabs(difference) <= bound->each)) {
            fail_msg("step %d: loss %.8f, on the CPU %.8f", i, first->losses[i], cpu->losses[i]);
        }
    }
    if (!(fabs(far.mean) <= bound->mean)) {
        fail_msg("losses are %+.2e from the CPU's in the mean", far.mean);
    }
    free(first);
    free(cpu);
    return far;
}

static by_config *table_config(const char *precision)
{
    static const char *const settings[] = {"task.kind=regress",
                                           "data.target=price",
                                           "model.kind=mlp",
                                           "model.numbers=3",
                                           "model.hidden=[32, 8]",
                                           "model.outputs=1",
                                           "train.threads=1",
                                           "train.steps=50",
                                           "train.batch=4",
                                           "train.micro_batch=2",
                                           "optimizer.warmup=0",
                                           "optimizer.lr=0.002",
                                           NULL};
    const char *const more[] = {precision, NULL};
    return config_of(settings, more);
}

#define LANGUAGE                                                                                   \
    "model.layers=1", "model.heads=2", "model.width=32", "model.context=16", "model.vocab=97"

/* Each family of models in each format. */
static void test_models(void **state)
{
    static const char *const common[] = {"train.batch=4",
                                         "train.micro_batch=2",
                                         "train.steps=50",
                                         "train.threads=1",
                                         "optimizer.lr=1e-3",
                                         "optimizer.warmup=0",
                                         NULL};
    static const struct {
        const char *name;
        make_batch_fn *make;
        const char *settings[12];
    } cases[] = {
        {"mlp", make_rows, {NULL}},
        {"gpt2", make_text, {"model.kind=gpt2", LANGUAGE, "model.dropout=0.1", NULL}},
        {"llama", make_text, {"model.kind=llama", LANGUAGE, "model.kv_heads=1", NULL}},
        {"mixtral",
         make_text,
         {"model.kind=mixtral", LANGUAGE, "model.experts=4", "model.mlp_width=48", NULL}},
        {"vit",
         make_images,
         {"task.kind=classify", "model.kind=vit", "model.layers=1", "model.heads=2",
          "model.width=32", "model.patch=4", "model.channels=1", "model.image_height=8",
          "model.image_width=8", "model.outputs=2", "model.dropout=0", NULL}},
    };
    static const char *const precisions[] = {"precision.compute=f32", "precision.compute=bf16"};
    static const train_bound *const bounds[] = {&f32_bound, &bf16_bound};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(precisions); k++) {
            by_config *config = cases[i].make == make_rows ? table_config(precisions[k])
                                                           : config_of(common, cases[i].settings);
            by_error error = {0};
            check_ok(by_config_set(config, precisions[k], &error), &error);
            train_bound far = compare(config, cases[i].make, bounds[k]);
            printf("%s %s: %d steps, %d seeds: each loss within %.1e of the CPU's, mean %+.1e\n",
                   cases[i].name, precisions[k], far.steps, *far.seeds, far.each, far.mean);
            by_config_close(&config);
        }
    }
}

/* Convolutions, batch norm and a mean over the image; in bf16 the statistics of so few images are
 * noise. */
static void test_convolutions(void **state)
{
    static const char *const settings[] = {"task.kind=classify",
                                           "model.kind=resnet",
                                           "model.depths=[1, 1]",
                                           "model.widths=[8, 16]",
                                           "model.stem=small",
                                           "model.channels=1",
                                           "model.image_height=8",
                                           "model.image_width=8",
                                           "model.outputs=2",
                                           "train.batch=4",
                                           "train.micro_batch=2",
                                           "train.steps=50",
                                           "train.threads=1",
                                           "optimizer.lr=1e-3",
                                           "optimizer.warmup=0",
                                           "precision.compute=f32",
                                           NULL};
    static const char *const none[] = {NULL};
    BY_UNUSED(state);
    by_config *config = config_of(settings, none);
    (void)compare(config, make_images, &image_bound);
    by_config_close(&config);
}

/* Group norm, a decoder that interpolates, and both losses of pixels. */
static void test_segmentation(void **state)
{
    static const char *const settings[] = {"task.kind=segment",
                                           "task.loss=both",
                                           "model.kind=unet",
                                           "model.width=8",
                                           "model.depth=1",
                                           "model.up=bilinear",
                                           "model.channel_norm=group",
                                           "model.norm_groups=2",
                                           "model.channels=1",
                                           "model.image_height=8",
                                           "model.image_width=8",
                                           "model.outputs=2",
                                           "train.batch=4",
                                           "train.micro_batch=2",
                                           "train.steps=50",
                                           "train.threads=1",
                                           "optimizer.lr=1e-3",
                                           "optimizer.warmup=0",
                                           "precision.compute=f32",
                                           NULL};
    static const char *const none[] = {NULL};
    BY_UNUSED(state);
    by_config *config = config_of(settings, none);
    (void)compare(config, make_maps, &image_bound);
    by_config_close(&config);
}

/* An odd width has products whose rows are not aligned. */
static void test_odd_width(void **state)
{
    static const char *const settings[] = {"model.kind=llama",      "model.layers=1",
                                           "model.heads=2",         "model.width=20",
                                           "model.context=16",      "model.vocab=97",
                                           "train.batch=4",         "train.micro_batch=4",
                                           "train.steps=50",        "train.threads=1",
                                           "optimizer.lr=1e-3",     "optimizer.warmup=0",
                                           "precision.compute=f32", NULL};
    static const char *const none[] = {NULL};
    BY_UNUSED(state);
    by_config *config = config_of(settings, none);
    (void)compare(config, make_text, &f32_bound);
    by_config_close(&config);
}

/* Fails one call of the driver, and returns what the trainer says. */
static by_error train_failing(const char *failure)
{
    by_error error = {0};
    by_device *device;
    by_trainer *t;
    train_data d;
    by_config *config = table_config("precision.compute=f32");
    assert_int_equal(setenv("BANYAN_STANDIN_FAIL", failure, 1), 0);
    check_ok(by_device_open(&device, "cuda", 1, &error), &error);
    const by_trainer_options options = {.device = device};
    check_ok(by_trainer_open(&t, config, &options, &error), &error);
    by_status status = by_trainer_allocate(t, &error);
    status = status == BY_OK ? by_trainer_initialize(t, &error) : status;
    for (uint64_t step = 0; step < 3 && status == BY_OK; step++) {
        by_step_result result;
        by_batch batch = make_rows(&d, step);
        status = by_trainer_step(t, &batch, &result, &error);
    }
    assert_int_equal(status, BY_EDEVICE);
    by_trainer_close(&t);
    by_device_close(&device);
    by_config_close(&config);
    (void)unsetenv("BANYAN_STANDIN_FAIL");
    return error;
}

/* A launch that fails at once names node and kernel; work that fails later, the programs that it
 * may be in, and with CUDA_LAUNCH_BLOCKING=1 the node as well. */
static void test_errors(void **state)
{
    BY_UNUSED(state);
    by_error error = train_failing("cuLaunchKernel:4=701");
    assert_non_null(strstr(error.message, ": node "));
    assert_non_null(strstr(error.message, " cuda: cuda: by_cuda_"));
    error = train_failing("cublasLtMatmul:11=13");
    assert_non_null(strstr(error.message, "kernel matmul cublasLt: cublasLtMatmul: status 13"));
    error = train_failing("cuEventSynchronize:2=700");
    assert_non_null(strstr(error.message, "CUDA_LAUNCH_BLOCKING=1 finds the node"));
    assert_int_equal(setenv("CUDA_LAUNCH_BLOCKING", "1", 1), 0);
    error = train_failing("cuStreamSynchronize:191=700");
    assert_non_null(strstr(error.message, ": node "));
    (void)unsetenv("CUDA_LAUNCH_BLOCKING");
}

/* Ranks that exchange by copies, two on each of two GPUs: the bits of one rank on a GPU. Also with
 * state, gradients and parameters that ranks divide. */
static void test_ranks(void **state)
{
    static const char *const settings[][5] = {
        {"precision.compute=f32", NULL},
        {"precision.compute=bf16", "parallel.shard=2", "parallel.zero=1", NULL},
        {"precision.compute=f32", "parallel.shard=2", "parallel.zero=2", NULL},
        {"precision.compute=bf16", "parallel.shard=2", "parallel.zero=3", "model.kind=llama", NULL},
    };
    BY_UNUSED(state);
    assert_int_equal(setenv("BANYAN_STANDIN_DEVICES", "2", 1), 0);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        rank_job *alone = rank_job_open_on(0, settings[i], "cuda");
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            rank_job *j = rank_job_open_on(ranks, settings[i], "cuda");
            rank_job_check(alone, j, ranks);
            rank_job_close(j);
        }
        rank_job_close(alone);
    }
    (void)unsetenv("BANYAN_STANDIN_DEVICES");
}

/* Kernels that tell what they touch: no two queues use the same memory without an order, in a step
 * on one rank and in those of two that share a GPU. */
static void test_queues(void **state)
{
    static const char *const settings[] = {"precision.compute=f32",
                                           "model.layers=1",
                                           "model.width=16",
                                           "parallel.shard=2",
                                           "parallel.zero=2",
                                           "train.batch=2",
                                           NULL};
    BY_UNUSED(state);
    by_config *config = table_config("precision.compute=f32");
    assert_int_equal(setenv("BANYAN_STANDIN_CHECK", "1", 1), 0);
    (void)compare(config, make_rows, &checked_bound);
    by_config_close(&config);
    rank_job *alone = rank_job_open_on(0, settings, "cuda");
    rank_job *two = rank_job_open_on(2, settings, "cuda");
    rank_job_check(alone, two, 2);
    rank_job_close(two);
    rank_job_close(alone);
    (void)unsetenv("BANYAN_STANDIN_CHECK");
}

static int use_standins(void **state)
{
    *state = temporary_make();
    return *state == NULL || setenv("XDG_CACHE_HOME", *state, 1) != 0 ||
           setenv("BANYAN_CUDA_PATH", BY_STANDINS "/all", 1) != 0;
}

static int remove_cache(void **state)
{
    temporary_remove(*state);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queues),       cmocka_unit_test(test_models),
        cmocka_unit_test(test_odd_width),    cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_segmentation), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_ranks),
    };
    if (argc > 1) {
        seeds = bf16_seeds = atoi(argv[1]); /* NOLINT(cert-err34-c): a person's number */
    }
    return cmocka_run_group_tests(tests, use_standins, remove_cache);
}
#else
int main(void)
{
    printf("no stand-ins: they need clang++ on x86-64, and no sanitizer\n");
    return 0;
}
#endif
