/* Steps that are not applied: nothing is changed by one, on any layout of ranks, and what follows
 * is what follows a step that was left out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job/job.h"
#include "runner.h"
#include "trainer/probes/node_watch.h"
#include "trainer/probes/probes.h"

#define CONTEXT   8
#define VOCAB     61
#define BATCH     6
#define STEPS     5
#define BAD       2 /* the step, from 0, that meets a NaN */
#define MAX_RANKS 4

/* In threads of ranks, which must not end a test by themselves. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return by_error_set(error, BY_ESTATE, "line %d: %s", __LINE__, #condition);            \
        }                                                                                          \
    } while (0)

/* What a job of some ranks does, and what rank 0 has at the end. */
typedef struct job {
    const char *const *settings;
    bool omits;   /* passes the bad step over instead of taking it */
    bool forgets; /* takes no notice of it at all */
    uint64_t hash;
    double losses[STEPS];
} job;

static by_config *open_config(const char *const *settings)
{
    static const char *const common[] = {
        "model.kind=gpt2",    "model.layers=4", "model.heads=2",       "model.width=48",
        "model.context=8",    "model.vocab=61", "train.threads=1",     "train.steps=50",
        "optimizer.warmup=2", "train.batch=6",  "train.micro_batch=1", NULL};
    return config_of(common, settings);
}

typedef struct data {
    int32_t tokens[BATCH * CONTEXT];
    int32_t targets[BATCH * CONTEXT];
    by_array arrays[2];
} data;

static by_batch make_batch(data *d, const by_trainer *t, uint64_t step)
{
    const by_batch_part part = by_trainer_part(t);
    for (size_t i = 0; i < part.count; i++) {
        size_t sample =
            part.first + (part.block == 0 ? i : i / part.block * part.stride + i % part.block);
        for (size_t k = 0; k < CONTEXT; k++) {
            uint64_t at = sample * CONTEXT + k;
            d->tokens[i * CONTEXT + k] =
                (int32_t)((random_unit(7, 2 * step, at) + 1.0) / 2.0 * VOCAB);
            d->targets[i * CONTEXT + k] =
                (int32_t)((random_unit(7, 2 * step + 1, at) + 1.0) / 2.0 * VOCAB);
        }
    }
    by_batch batch = by_batch_of_tokens(d->arrays, d->tokens, d->targets, part.count, CONTEXT);
    batch.global_targets = BATCH * CONTEXT;
    return batch;
}

/* Weights and optimizer states, collectively. */
static by_status add_hash(uint64_t *hash, const by_trainer *t, by_error *error)
{
    static _Thread_local float values[VOCAB * 64 * 4];
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        for (int s = -1; s < by_trainer_state_count(t); s++) {
            by_tensor_view view = s < 0 ? by_trainer_parameter(t, i) : by_trainer_state(t, i, s);
            size_t count;
            if (view.rank < 0) {
                continue;
            }
            BY_TRY(by_tensor_size(&view, &count, NULL, error));
            EXPECT(count <= BY_ARRAY_LENGTH(values));
            BY_TRY(by_trainer_read(t, s < 0 ? BY_TRAINER_PARAMETER : BY_TRAINER_STATE, s, i, values,
                                   error));
            *hash = *hash * 31u + by__hash64(values, count * sizeof *values);
        }
    }
    return BY_OK;
}

static uint64_t hash_of(const by_trainer *t)
{
    uint64_t hash = 0;
    by_error error = {0};
    check_ok(add_hash(&hash, t, &error), &error);
    return hash;
}

/* A weight of the first block; NULL on a rank that does not hold it. */
static float *find_weight(const by_trainer *t)
{
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        if (strstr(by_trainer_parameter(t, i).name, "h.0.ln_1.weight") != NULL) {
            return (float *)by__store_buffer(t->store, t->flats.masters, (by__store_handle)i)
                .address;
        }
    }
    return NULL;
}

/* The weight is NaN on rank 0 while the step is taken. */
static by_status take_bad_step(by_trainer *t, const by_batch *batch, bool leads, by_error *error)
{
    by_step_result result;
    uint64_t before = 0;
    uint64_t after = 0;
    BY_TRY(add_hash(&before, t, error));
    float *weight = find_weight(t);
    float saved = weight == NULL ? 0.0f : *weight;
    if (leads) {
        *weight = NAN;
    }
    BY_TRY(by_trainer_step(t, batch, &result, error));
    if (weight != NULL) {
        *weight = saved;
    }
    BY_TRY(add_hash(&after, t, error));
    EXPECT(result.skipped == BY_SKIP_NONFINITE);
    EXPECT(result.step == BAD + 1 && by_trainer_updates(t) == BAD + 1);
    EXPECT(after == before);
    return BY_OK;
}

static by_status train(job *j, by_trainer *t, bool leads, by_error *error)
{
    for (int step = 0; step < STEPS; step++) {
        data d;
        by_step_result result = {0};
        by_batch batch = make_batch(&d, t, (uint64_t)step);
        if (step != BAD) {
            BY_TRY(by_trainer_step(t, &batch, &result, error));
            EXPECT(result.skipped == BY_SKIP_NONE);
        } else if (j->forgets) {
            continue;
        } else if (j->omits) {
            t->steps.updates++;
            t->probes.guard.skipped++;
        } else {
            BY_TRY(take_bad_step(t, &batch, leads, error));
        }
        if (leads) {
            j->losses[step] = result.loss;
        }
    }
    EXPECT(by__trainer_guard_of(t)->skipped == !j->forgets && by__trainer_guard_of(t)->in_row == 0);
    uint64_t hash = 0;
    BY_TRY(add_hash(&hash, t, error));
    if (leads) {
        j->hash = hash;
    }
    return BY_OK;
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    job *j = user;
    by_config *config = open_config(j->settings);
    by_trainer *t = NULL;
    const by_trainer_options options = {.comm = comm};
    by_status status = by_trainer_open(&t, config, &options, error);
    if (status == BY_OK) {
        status = by_trainer_allocate(t, error);
    }
    if (status == BY_OK) {
        status = by_trainer_initialize(t, error);
    }
    if (status == BY_OK) {
        status = train(j, t, comm == NULL || by_comm_rank(comm) == 0, error);
    }
    by_trainer_close(&t);
    by_config_close(&config);
    return status;
}

static void run_job(job *j, int ranks)
{
    by_error error = {0};
    check_ok(ranks == 1 ? run_rank(NULL, j, &error)
                        : by_comm_run_threads(ranks, NULL, run_rank, j, &error),
             &error);
}

static void test_nothing_changes(void **state)
{
    BY_UNUSED(state);
    static const struct {
        int ranks;
        bool exact; /* the hash is that of one rank */
        const char *settings[5];
    } rows[] = {
        {1, true, {NULL}},
        {2, true, {NULL}},
        {2, true, {"parallel.overlap=false", NULL}},
        {2, true, {"parallel.shard=2", NULL}},
        {2, true, {"parallel.shard=2", "parallel.zero=2", NULL}},
        {4, true, {"parallel.shard=2", "parallel.zero=3", NULL}},
        {1, true, {"offload.optimizer=disk", "offload.buffer_mib=0.01", "run.dir=/tmp", NULL}},
        {2, false, {"parallel.pipeline=2", NULL}},
        {2, false, {"parallel.tensor=2", NULL}},
        {2, false, {"parallel.sequence=2", NULL}},
        {2, false, {"sync.compress=int8", NULL}},
        {2, false, {"sync.compress=power_sgd", NULL}},
    };
    static const char *const precisions[] = {"precision.compute=f32", "precision.compute=bf16"};
    for (size_t p = 0; p < 2; p++) {
        const char *const alone[] = {precisions[p], NULL};
        job want = {.settings = alone, .omits = true};
        run_job(&want, 1);
        for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
            const char *settings[6] = {precisions[p]};
            job have = {.settings = settings};
            memcpy(settings + 1, rows[i].settings, sizeof rows[i].settings);
            run_job(&have, rows[i].ranks);
            if (rows[i].exact) {
                assert_true(have.hash == want.hash);
            }
            assert_true(isfinite(have.losses[STEPS - 1]));
        }
    }
}

/* A state of the optimizer for each kind; bias correction counts what was applied. */
static void test_kinds(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"optimizer.kind=adamw", "optimizer.kind=sgd",
                                        "optimizer.kind=lion", "optimizer.kind=lamb",
                                        "optimizer.kind=adafactor"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        const char *const settings[] = {kinds[i], "precision.compute=bf16", NULL};
        job want = {.settings = settings, .omits = true};
        job have = {.settings = settings};
        run_job(&want, 1);
        run_job(&have, 1);
        assert_true(have.hash == want.hash);
        /* With a learning rate that does not change, it is as if there had been no such step. */
        const char *const constant[] = {kinds[i], "optimizer.schedule=constant",
                                        "optimizer.warmup=0", NULL};
        job skips = {.settings = constant};
        job without = {.settings = constant, .forgets = true};
        run_job(&skips, 1);
        run_job(&without, 1);
        assert_true(skips.hash == without.hash);
        assert_memory_equal(have.losses + BAD + 1, want.losses + BAD + 1,
                            (STEPS - BAD - 1) * sizeof *have.losses);
    }
}

/* Too many in a row end the run; the last one is taken back. */
static void test_limit(void **state)
{
    BY_UNUSED(state);
    static const char *const two[] = {"guard.max_skips=2", NULL};
    by_error error = {0};
    by_trainer *t;
    by_step_result result;
    data d;
    by_config *config = open_config(two);
    check_ok(by_trainer_open(&t, config, NULL, &error), &error);
    check_ok(by_trainer_allocate(t, &error), &error);
    check_ok(by_trainer_initialize(t, &error), &error);
    by_batch batch = make_batch(&d, t, 0);
    check_ok(by_trainer_step(t, &batch, &result, &error), &error);
    float *weight = find_weight(t);
    float saved = *weight;
    uint64_t before = hash_of(t);
    for (int round = 0; round < 2; round++) {
        *weight = NAN;
        for (int i = 0; i < 2; i++) {
            check_ok(by_trainer_step(t, &batch, &result, &error), &error);
            assert_int_equal(result.skipped, BY_SKIP_NONFINITE);
        }
        if (round == 0) { /* a step that is applied begins the count anew */
            *weight = saved;
            check_ok(by_trainer_step(t, &batch, &result, &error), &error);
            assert_int_equal(result.skipped, BY_SKIP_NONE);
            saved = *weight;
            before = hash_of(t);
        }
    }
    check_error(by_trainer_step(t, &batch, &result, &error), BY_EDIVERGED, &error,
                "behind 2 steps in a row that were skipped");
    *weight = saved;
    assert_true(hash_of(t) == before);
    assert_int_equal(by_trainer_updates(t), 6);
    assert_int_equal(by__trainer_guard_of(t)->skipped, 4);
    by_trainer_close(&t);
    by_config_close(&config);
}

/* The first node is named, or the operand that came from outside. */
static void test_origin(void **state)
{
    BY_UNUSED(state);
    static const char *const none[] = {NULL};
    by_error error = {0};
    by_trainer *t;
    by__trainer_found found;
    data d;
    by_config *config = open_config(none);
    check_ok(by_trainer_open(&t, config, NULL, &error), &error);
    check_ok(by_trainer_allocate(t, &error), &error);
    check_ok(by_trainer_initialize(t, &error), &error);
    by_batch batch = make_batch(&d, t, 0);
    check_ok(by__job_guard_find(t, &batch, 1, &found, &error), &error);
    assert_false(found.found);
    float *weight = find_weight(t);
    weight[3] = NAN;
    check_ok(by__job_guard_find(t, &batch, 1, &found, &error), &error);
    assert_true(found.found && found.leaf == 0 && found.row == -1);
    assert_string_equal(found.what, "the parameter 'h.0.ln_1.weight', element 3");
    weight[3] = 3e38f; /* products overflow */
    check_ok(by__job_guard_find(t, &batch, 1, &found, &error), &error);
    assert_true(found.found);
    assert_non_null(strstr(found.what, "of block 0 in the forward pass"));
    assert_int_equal(by_trainer_updates(t), 0);
    by_trainer_close(&t);
    by_config_close(&config);
}

static void test_zscore(void **state)
{
    BY_UNUSED(state);
    const double losses[] = {2.0, 2.2, 1.9, 2.1, 50.0, 2.05, 1.95, 2.15};
    const double flat[] = {3.0, 3.0, 3.0, 3.0};
    /* sorted: 1.9 1.95 2 2.05 2.1 2.15 2.2 50: median 2.075, deviations .025 .025 .075 .075 .125
     * .125 .175 47.925, whose median is .1 */
    double z = by__trainer_robust_zscore(losses, 8, 4, 2.5);
    assert_true(fabs(z - (2.5 - 2.075) / (1.4826 * 0.1)) < 1e-9);
    assert_true(by__trainer_robust_zscore(losses, 8, 4, 1.0) < -5.0);
    assert_true(by__trainer_robust_zscore(losses, 3, 4, 99.0) == 0.0);
    assert_true(by__trainer_robust_zscore(flat, 4, 4, 3.0) == 0.0);
    assert_true(fabs(by__trainer_robust_zscore(flat, 4, 4, 3.003) - 10.0) < 1e-6);
}

/* Guards that are as they were before there were keys of them leave the hash of a config alone. */
static void test_hash(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[3][3] = {
        {NULL},
        {"guard.nonfinite=skip", "guard.spike=off", NULL},
        {"guard.spike=skip", NULL},
    };
    char hashes[3][33];
    by_error error = {0};
    for (int i = 0; i < 3; i++) {
        by_config *config = open_config(settings[i]);
        check_ok(by_config_hash(config, hashes[i], &error), &error);
        by_config_close(&config);
    }
    assert_string_equal(hashes[0], hashes[1]);
    assert_string_not_equal(hashes[0], hashes[2]);
}

static void test_window_as_text(void **state)
{
    BY_UNUSED(state);
    static const char *const bad[] = {"0", "000000000000000g", "7ff0000000000000",
                                      "3ff00000000000003", "+ff0000000000000"};
    by_error error = {0};
    by_string text = {0};
    by__trainer_guard g = {.count = 3, .losses = {1.5, 0.1, 1e-300}};
    by__trainer_guard back = {0};
    check_ok(by__trainer_window_print(&text, &g), &error);
    check_ok(by__trainer_window_parse(&back, text.data, &error), &error);
    assert_int_equal(back.count, 3);
    assert_memory_equal(back.losses, g.losses, 3 * sizeof *g.losses);
    by_string_free(&text);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        assert_int_equal(by__trainer_window_parse(&back, bad[i], &error), BY_EFORMAT);
    }
}

/* ---- faults of the hardware ---- */

/* A bit that is flipped in memory when a node has run for the n-th time. */
typedef struct flip {
    const char *node; /* the name of a value that it makes or reads */
    bool parameter;   /* the weight of that name is hit; else what the node makes */
    bool later;       /* it is hit when the node behind it has run */
    int run;
    int bit;
    int count;
    float *pending;
} flip;

static void hit(float *value, int bit)
{
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    bits ^= UINT32_C(1) << bit;
    memcpy(value, &bits, sizeof bits);
}

static bool names(const by__exec_program_row *row, const by_value *values, int count,
                  const char *name, int *at)
{
    for (int i = 0; i < count; i++) {
        const char *has = values[i] == BY_NONE ? NULL : row->graph->values[values[i]].name;
        if (has != NULL && strcmp(has, name) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

static void flip_bit(void *user, const by__exec_program_row *row, size_t node,
                     const by__device_call *call)
{
    flip *f = user;
    const by__graph_node *n = &row->graph->nodes[node];
    int at = 0;
    if (f->pending != NULL) {
        hit(f->pending, f->bit);
        f->pending = NULL;
    }
    bool reads = names(row, n->in, n->input_count, f->node, &at);
    if (!reads && !names(row, n->out, n->output_count, f->node, &at)) {
        return;
    }
    if (f->count++ == f->run) {
        float *value = f->parameter ? call->in[at].data : call->out[reads ? 0 : at].data;
        if (f->later) {
            f->pending = value;
        } else {
            hit(value, f->bit);
        }
    }
}

typedef struct corruption {
    const char *const *settings;
    flip flip;
    int ranks;
    int hit_rank;
    by_status status;
    by_error error; /* of the last rank */
} corruption;

static by_status corrupt_rank(by_comm *comm, void *user, by_error *error)
{
    corruption *c = user;
    int rank = comm == NULL ? 0 : by_comm_rank(comm);
    flip f = c->flip;
    by_config *config = open_config(c->settings);
    by_trainer *t = NULL;
    data d;
    by_step_result result;
    const by_trainer_options options = {.comm = comm};
    by_status status = by_trainer_open(&t, config, &options, error);
    if (status == BY_OK) {
        status = by_trainer_allocate(t, error);
    }
    if (status == BY_OK) {
        status = by_trainer_initialize(t, error);
    }
    for (uint64_t step = 0; step < 2 && status == BY_OK; step++) {
        by_batch batch = make_batch(&d, t, step);
        if (step == 1 && rank == c->hit_rank) {
            status = by__trainer_node_watch_set(t, BY__WATCH_FIND, flip_bit, &f, error);
        }
        status = status == BY_OK ? by_trainer_step(t, &batch, &result, error) : status;
    }
    if (rank == c->ranks - 1) {
        c->status = status;
        c->error = *error;
    }
    by_trainer_close(&t);
    by_config_close(&config);
    return BY_OK;
}

static void expect_corruption(corruption *c, const char *what)
{
    by_error error = {0};
    check_ok(c->ranks == 1 ? corrupt_rank(NULL, c, &error)
                           : by_comm_run_threads(c->ranks, NULL, corrupt_rank, c, &error),
             &error);
    if (what == NULL) {
        check_ok(c->status, &c->error);
    } else {
        check_error(c->status, BY_ECORRUPT, &c->error, what);
    }
}

/* Every model computes the same bits twice; a bit that is flipped in between is found and named. */
static void test_replay(void **state)
{
    BY_UNUSED(state);
#define TWICE "guard.replay_every=2"
    static const struct {
        int ranks;
        const char *settings[6];
    } rows[] = {
        {1, {TWICE, "model.dropout=0.1", "precision.compute=bf16", NULL}},
        {1, {TWICE, "model.kind=llama", "memory.recompute=block", NULL}},
        {1, {TWICE, "model.kind=mixtral", NULL}},
        {2, {TWICE, NULL}},
        {2, {TWICE, "parallel.shard=2", "precision.compute=bf16", NULL}},
        {2, {TWICE, "parallel.shard=2", "parallel.zero=3", NULL}},
        {2, {TWICE, "parallel.pipeline=2", NULL}},
        {2, {TWICE, "parallel.tensor=2", NULL}},
        {2, {TWICE, "sync.every=2", NULL}},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        corruption none = {.settings = rows[i].settings, .ranks = rows[i].ranks, .hit_rank = -1};
        expect_corruption(&none, NULL);
        if (strstr(rows[i].settings[1] == NULL ? "" : rows[i].settings[1], "model.kind") == NULL) {
            /* An activation, on the last rank that has the block. */
            corruption hit_one = {.settings = rows[i].settings,
                                  .ranks = rows[i].ranks,
                                  .flip = {.node = "h.1.ln_1.weight", .bit = 3}};
            expect_corruption(&hit_one, "of block 1");
            check_error(BY_ECORRUPT, BY_ECORRUPT, &hit_one.error, "");
        }
    }
    static const char *const twice[] = {TWICE, NULL};
    corruption weight = {.settings = twice,
                         .ranks = 1,
                         .flip = {.node = "h.2.ln_2.weight", .parameter = true, .run = 7}};
    expect_corruption(&weight, "first in the parameter 'h.2.ln_2.weight'");
    corruption gradient = {.settings = twice,
                           .ranks = 1,
                           .flip = {.node = "grad.h.3.ln_1.weight", .run = 8, .bit = 1}};
    expect_corruption(&gradient, "(grad.h.3.ln_1.weight)");
    corruption behind = {
        .settings = twice,
        .ranks = 1,
        .flip = {.node = "grad.h.3.ln_1.weight", .run = 5, .bit = 20, .later = true}};
    expect_corruption(&behind, "first in the gradient of 'h.3.ln_1.weight' behind its last node");
}

/* No rounding is taken for a fault, in any format, with any kernels; a flipped bit is found. */
static void test_products(void **state)
{
    BY_UNUSED(state);
    static const char *const isas[] = {"reference", "baseline", "native"};
#define CHECKED "guard.abft=true"
    static const struct {
        int ranks;
        const char *settings[6];
    } rows[] = {
        {1, {CHECKED, "precision.compute=f32", NULL}},
        {1, {CHECKED, "precision.compute=bf16", "model.dropout=0.1", NULL}},
        {1, {CHECKED, "precision.compute=fp16", NULL}},
        {1, {CHECKED, "model.kind=llama", "precision.compute=bf16", NULL}},
        {1, {CHECKED, "model.kind=mixtral", NULL}},
        {2, {CHECKED, "parallel.tensor=2", NULL}},
        {2, {CHECKED, "parallel.pipeline=2", "guard.replay_every=2", NULL}},
    };
    for (size_t isa = 0; isa < BY_ARRAY_LENGTH(isas); isa++) {
        set_isa(isas[isa]);
        for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
            corruption none = {
                .settings = rows[i].settings, .ranks = rows[i].ranks, .hit_rank = -1};
            expect_corruption(&none, NULL);
        }
    }
    static const char *const checked[] = {CHECKED, NULL};
    static const char *const products[] = {"h.1.mlp.c_fc.weight", "grad.h.2.attn.c_proj.weight"};
    static const char *const want[] = {"matmul of block 1", "matmul of block 2"};
    for (size_t i = 0; i < 2; i++) {
        for (int bit = 27; bit < 31; bit++) {
            corruption c = {.settings = checked, .ranks = 1, .flip = {products[i], .bit = bit}};
            expect_corruption(&c, want[i]);
        }
    }
}

/* The sums are in the plan: of the largest inner size, and of the columns twice. */
static void test_planned_sums(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[][2] = {{"guard.abft=false", NULL}, {CHECKED, NULL}};
    uint64_t bytes[2];
    for (size_t i = 0; i < 2; i++) {
        by_error error = {0};
        by_trainer *t;
        by_config *config = open_config(settings[i]);
        check_ok(by_trainer_open(&t, config, NULL, &error), &error);
        bytes[i] = by_trainer_memory(t)->total - by_trainer_memory(t)->process;
        by_trainer_close(&t);
        by_config_close(&config);
    }
    const uint64_t mlp = 4 * 48;
    assert_true(bytes[1] - bytes[0] == (mlp + 2 * mlp) * 2 * sizeof(double));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_changes),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_origin),
        cmocka_unit_test(test_zscore),
        cmocka_unit_test(test_window_as_text),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_planned_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
