/* Exchanges that are compressed or not made at every step: replicas stay equal, what is saved goes
 * on the same, and the arithmetic is that of the papers. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "runner.h"
#include "sanitizer.h"
#include "trainer/exchange/exchange.h"
#include "trainer/probes/probes.h"
#include "trainer/state/trainer.h"

enum { CONTEXT = 8, VOCAB = 61, MAX_RANKS = 4, BATCH = 12, MAX_STEPS = 64 };

/* What a job is to do, and what its ranks have in the end. */
typedef struct job {
    const char *const *settings; /* NULL at the end */
    int steps;
    int settle_at;     /* step behind which it settles and rank 0's state is kept, 0: never */
    const float *from; /* a kept state to begin from, of step `settle_at` */
    float *kept;       /* of rank 0 at settle_at */
    float *begin;      /* of rank 0 */
    float *before[MAX_RANKS]; /* the last settling; weights alone where exchanges may be late */
    float *end[MAX_RANKS];
    size_t count;
    size_t parts; /* parameters, then each state: of equal size */
    double first_loss;
    double last_loss; /* mean of the last four */
    uint64_t moved;   /* bytes that rank 0 has read, written or sent */
} job;

static by_config *open_config(const char *const *settings)
{
    static const char *const common[] = {"model.layers=2",      "model.heads=2",
                                         "model.width=48",      "model.context=8",
                                         "model.vocab=61",      "train.threads=1",
                                         "train.steps=64",      "train.eval_every=0",
                                         "checkpoint.every=0",  "train.batch=12",
                                         "train.micro_batch=1", "optimizer.lr=3e-3",
                                         "optimizer.warmup=2",  NULL};
    return config_of(common, settings);
}

/* Random tokens; the target is a function of the token, so that there is something to learn. */
typedef struct data {
    int32_t tokens[BATCH * CONTEXT];
    int32_t targets[BATCH * CONTEXT];
    by_array arrays[2];
} data;

static by_batch make_batch(data *d, const by_trainer *t, int step)
{
    const by_batch_part part = by_trainer_part(t);
    for (size_t k = 0; k < part.count * CONTEXT; k++) {
        size_t at = part.first * CONTEXT + k;
        d->tokens[k] = (int32_t)((random_unit(7, (uint64_t)step, at) + 1.0) / 2.0 * VOCAB);
        d->targets[k] = (d->tokens[k] * 7 + 3) % VOCAB;
    }
    by_batch batch = by_batch_of_tokens(d->arrays, d->tokens, d->targets, part.count, CONTEXT);
    batch.global_targets = BATCH * CONTEXT;
    return batch;
}

/* All parameters, then `states` states, into `out` (NULL: only counted). */
static by_status read_state(float *out, size_t *count, const by_trainer *t, int states,
                            by_error *error)
{
    *count = 0;
    for (int s = -1; s < states; s++) {
        for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
            size_t size;
            by_tensor_view view = s < 0 ? by_trainer_parameter(t, i) : by_trainer_state(t, i, s);
            BY_TRY(by_tensor_size(&view, &size, NULL, error));
            if (out != NULL) {
                BY_TRY(by_trainer_read(t, s < 0 ? BY_TRAINER_PARAMETER : BY_TRAINER_STATE, s, i,
                                       out + *count, error));
            }
            *count += size;
        }
    }
    return BY_OK;
}

/* The reverse, as loading a checkpoint does. */
static by_status write_state(const float *from, by_trainer *t, int64_t step, by_error *error)
{
    for (int s = -1; s < t->flats.state_count; s++) {
        for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
            int flat = s < 0 ? t->flats.masters : t->flats.states[s];
            int64_t size = by_shape_count(&by__store_entry(t->store, (by__store_handle)i)->local);
            memcpy(by__store_host(t->store, flat, (by__store_handle)i), from,
                   (size_t)size * sizeof *from);
            from += size;
        }
    }
    by__trainer_sync_forget(t);
    t->steps.updates = step;
    by__trainer_sync_loaded(t);
    return t->update.copy_row == NULL ? BY_OK : by_program_run(t->update.copy_row->program, error);
}

static by_status keep(float **out, size_t *count, const by_trainer *t, int states, by_error *error)
{
    BY_TRY(read_state(NULL, count, t, states, error));
    *out = malloc(*count * sizeof **out);
    return read_state(*out, count, t, states, error);
}

static by_status keep_state(float **out, size_t *count, const by_trainer *t, by_error *error)
{
    return keep(out, count, t, by_trainer_state_count(t), error);
}

static by_status take_steps(job *j, by_comm *comm, by_trainer *t, by_error *error)
{
    data d;
    by_step_result result;
    size_t count;
    int rank = by_comm_rank(comm);
    int first = j->from != NULL ? j->settle_at : 0;
    if (j->from != NULL) {
        BY_TRY(write_state(j->from, t, first, error));
    }
    if (rank == 0) {
        BY_TRY(keep_state(&j->begin, &count, t, error));
    }
    for (int step = first; step < j->steps; step++) {
        by_batch batch = make_batch(&d, t, step);
        BY_TRY(by_trainer_step(t, &batch, &result, error));
        if (rank == 0) {
            j->first_loss = step == 0 ? result.loss : j->first_loss;
            j->last_loss += step >= j->steps - 4 ? result.loss / 4.0 : 0.0;
        }
        if (step + 1 == j->settle_at && j->from == NULL) {
            BY_TRY(by_trainer_settle(t, error));
            if (rank == 0) {
                BY_TRY(keep_state(&j->kept, &count, t, error));
            }
        }
    }
    by_comm *peers = t->sync.peers != NULL ? t->sync.peers : t->ranks.peers;
    if (rank == 0 && peers != NULL && !t->sync.late.is_under_way) {
        by_comm_counters counters;
        by_comm_count(&counters, peers);
        j->moved = counters.bytes_read + counters.bytes_written + counters.bytes_sent;
    }
    /* An exchange under way changes what codes lose. */
    BY_TRY(
        keep(&j->before[rank], &count, t, t->sync.is_late ? 0 : by_trainer_state_count(t), error));
    BY_TRY(by_trainer_settle(t, error));
    BY_TRY(by_trainer_settle(t, error)); /* once more changes nothing */
    BY_TRY(keep_state(&j->end[rank], &count, t, error));
    if (rank == 0) {
        j->count = count;
        j->parts = (size_t)(1 + t->flats.state_count);
    }
    return BY_OK;
}

static by_status rank_main(by_comm *comm, void *user, by_error *error)
{
    job *j = user;
    by_trainer *t;
    by_config *config = open_config(j->settings);
    const by_trainer_options options = {.comm = comm};
    BY_TRY(by_trainer_open(&t, config, &options, error));
    BY_TRY(by_trainer_allocate(t, error));
    BY_TRY(by_trainer_initialize(t, error));
    by_status status = take_steps(j, comm, t, error);
    by_trainer_close(&t);
    by_config_close(&config);
    return status;
}

static void run(job *j, int ranks)
{
    by_error error = {0};
    if (by_comm_run_threads(ranks, NULL, rank_main, j, &error) != BY_OK) {
        fail_msg("%s on %d ranks: %s", j->settings[0], ranks, error.message);
    }
}

static void free_job(job *j)
{
    free(j->kept);
    free(j->begin);
    for (int r = 0; r < MAX_RANKS; r++) {
        free(j->before[r]);
        free(j->end[r]);
    }
}

static const char *const modes[][4] = {
    {"sync.compress=bf16", NULL},
    {"sync.compress=int8", "sync.warmup=2", NULL},
    {"sync.compress=one_bit", "sync.warmup=8", NULL},
    {"sync.compress=top_k", "sync.density=0.05", NULL},
    {"sync.compress=power_sgd", "sync.rank=2", NULL},
    {"sync.every=4", NULL},
    {"sync.every=8", "sync.compress=int8", "precision.compute=bf16", NULL},
    {"sync.every=4", "sync.outer_momentum=0", "sync.compress=power_sgd", NULL},
    {"sync.every=4", "sync.staleness=3", NULL},
    {"sync.every=8", "sync.staleness=8", "sync.compress=int8", NULL},
    {"sync.every=4", "sync.staleness=1", "precision.compute=bf16", NULL},
};

/* Every mode learns, on every number of ranks, and what is saved is the same on all of them. A
 * sanitizer looks at the exchanges of the most ranks, the late ones too. */
static void test_learns(void **state)
{
    BY_UNUSED(state);
    for (size_t m = 0; m < BY_ARRAY_LENGTH(modes); m++) {
        for (int ranks = BY_TESTS_SANITIZED ? 3 : 1; ranks < MAX_RANKS; ranks += 2) {
            job j = {.settings = modes[m], .steps = BY_TESTS_SANITIZED ? 20 : MAX_STEPS};
            run(&j, ranks);
            if (!BY_TESTS_SANITIZED && !(j.last_loss < 0.8 * j.first_loss)) {
                fail_msg("%s on %d ranks: loss %g to %g", modes[m][0], ranks, j.first_loss,
                         j.last_loss);
            }
            for (int r = 1; r < ranks; r++) {
                assert_memory_equal(j.end[0], j.end[r], j.count * sizeof(float));
            }
            free_job(&j);
        }
    }
}

/* A job that goes on from a saved state ends with the bits of the one that saved it, also when it
 * was saved between two exchanges. */
static void test_resume(void **state)
{
    BY_UNUSED(state);
    for (size_t m = 0; m < BY_ARRAY_LENGTH(modes); m++) {
        int at = m % 2 == 0 ? 10 : 8;
        job one = {.settings = modes[m], .steps = 20, .settle_at = at};
        run(&one, 3);
        job other = {.settings = modes[m], .steps = 20, .settle_at = at, .from = one.kept};
        run(&other, 3);
        assert_memory_equal(one.end[0], other.end[0], one.count * sizeof(float));
        job wider = {.settings = modes[m], .steps = 20, .settle_at = at, .from = one.kept};
        run(&wider, 4); /* any other number of ranks can go on */
        assert_int_equal(wider.count, one.count);
        free_job(&one);
        free_job(&other);
        free_job(&wider);
    }
}

/* The outer step by its equations: the first one's momentum is d itself, so that Nesterov's step is
 * (1 + momentum) d. */
static void test_outer_step(void **state)
{
    BY_UNUSED(state);
    const char *const settings[] = {"sync.every=4", "sync.outer_lr=0.5", "sync.outer_momentum=0.8",
                                    NULL};
    job j = {.settings = settings, .steps = 3};
    run(&j, 3);
    size_t parameters = j.count / j.parts;
    size_t moved = 0;
    for (size_t i = 0; i < parameters; i++) {
        double anchor = (double)j.begin[i];
        double d = 0.0;
        for (int r = 0; r < 3; r++) {
            d += (anchor - (double)j.before[r][i]) / 3.0;
        }
        double want = anchor - 0.5 * 1.8 * d;
        assert_true(fabs((double)j.end[0][i] - want) <= 1e-6 * (1.0 + fabs(want)));
        moved += fabs(d) > 1e-4;
    }
    assert_true(moved > parameters / 2);
    assert_memory_not_equal(j.before[0], j.before[1], parameters * sizeof(float));
    /* States of the optimizer are the replicas' mean. */
    for (size_t i = parameters; i < 3 * parameters; i++) {
        double mean = 0.0;
        for (int r = 0; r < 3; r++) {
            mean += (double)j.before[r][i] / 3.0;
        }
        assert_true(fabs((double)j.end[0][i] - mean) <= 1e-6 * (1e-3 + fabs(mean)));
    }
    free_job(&j);
}

/* ---- staleness ---- */

static void go(job *j, const char *const *settings, int steps)
{
    *j = (job){.settings = settings, .steps = steps};
    run(j, 3);
}

/* The exchange that began after step 4 is applied after step 6 and not before, by its equations:
 * w_6 + (a' - w_4), a' the outer step by the mean of a - w_4. What steps 5 and 6 do by themselves
 * is seen where staleness is 4. */
static void test_late_step(void **state)
{
    BY_UNUSED(state);
    const char *const two[] = {"sync.every=4", "sync.staleness=2", "sync.outer_lr=0.5",
                               "sync.outer_momentum=0.8", NULL};
    const char *const four[] = {"sync.every=4", "sync.staleness=4", "sync.outer_lr=0.5",
                                "sync.outer_momentum=0.8", NULL};
    job begun, early, own, merged;
    go(&begun, two, 4);
    go(&early, two, 5);
    go(&merged, two, 6);
    go(&own, four, 5);
    size_t parameters = own.count / own.parts;
    for (int r = 0; r < 3; r++) {
        assert_memory_equal(early.before[r], own.before[r], parameters * sizeof(float));
    }
    free_job(&own);
    go(&own, four, 6);
    for (size_t i = 0; i < parameters; i++) {
        double anchor = (double)begun.begin[i];
        double d = 0.0;
        for (int r = 0; r < 3; r++) {
            d += (anchor - (double)begun.before[r][i]) / 3.0;
        }
        double next = anchor - 0.5 * 1.8 * d;
        for (int r = 0; r < 3; r++) {
            double want = (double)own.before[r][i] + (next - (double)begun.before[r][i]);
            assert_true(fabs((double)merged.before[r][i] - want) <= 1e-6 * (1.0 + fabs(want)));
        }
    }
    assert_memory_not_equal(merged.before[0], own.before[0], parameters * sizeof(float));
    assert_memory_not_equal(merged.before[0], merged.before[1], parameters * sizeof(float));
    free_job(&begun);
    free_job(&early);
    free_job(&own);
    free_job(&merged);
}

/* The same bits every time, on every rank. */
static void test_late_repeats(void **state)
{
    BY_UNUSED(state);
    const char *const settings[] = {"sync.every=4", "sync.staleness=3", "sync.compress=int8", NULL};
    job one, other;
    go(&one, settings, 22);
    go(&other, settings, 22);
    for (int r = 0; r < 3; r++) {
        assert_memory_equal(one.before[r], other.before[r], one.count / one.parts * sizeof(float));
        assert_memory_equal(one.end[r], other.end[0], one.count * sizeof(float));
    }
    free_job(&one);
    free_job(&other);
}

/* Rank 1 does not begin the step behind which they exchange before rank 0 has come as far as the
 * bound lets it, with its exchange under way. */
enum { RACE_EVERY = 4, RACE_STALENESS = 3, RACE_AHEAD = RACE_EVERY + RACE_STALENESS - 1 };

static by_status race_steps(by_trainer *t, int rank, atomic_int *ahead, by_error *error)
{
    data d;
    by_step_result result;
    for (int step = 0; step < 2 * RACE_EVERY; step++) {
        while (rank == 1 && step == RACE_EVERY - 1 && atomic_load(ahead) < RACE_AHEAD) {
        }
        by_batch batch = make_batch(&d, t, step);
        BY_TRY(by_trainer_step(t, &batch, &result, error));
        if (rank == 0) {
            atomic_store(ahead, step + 1);
        }
    }
    return by_trainer_settle(t, error);
}

static by_status skip_main(by_comm *comm, void *user, by_error *error)
{
    static const char *const settings[] = {"sync.every=4", NULL};
    const by_trainer_options options = {.comm = comm};
    int64_t *skipped = user;
    int rank = by_comm_rank(comm);
    data d;
    by_trainer *t;
    by_step_result result;
    by_config *config = open_config(settings);
    BY_TRY(by_trainer_open(&t, config, &options, error));
    BY_TRY(by_trainer_allocate(t, error));
    BY_TRY(by_trainer_initialize(t, error));
    by_status status = BY_OK;
    for (int step = 0; step < 4 && status == BY_OK; step++) {
        if (rank == 1 && step == 2) {
            status = by__trainer_veto(t, error);
        }
        by_batch batch = make_batch(&d, t, step);
        status = status == BY_OK ? by_trainer_step(t, &batch, &result, error) : status;
    }
    status = status == BY_OK ? by_trainer_settle(t, error) : status;
    skipped[rank] = by__trainer_guard_of(t)->skipped;
    by_trainer_close(&t);
    by_config_close(&config);
    return status;
}

/* A replica that has skipped a step: what is saved, and all ranks go on with, counts it. */
static void test_skips_of_one(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    int64_t skipped[2] = {-1, -1};
    check_ok(by_comm_run_threads(2, NULL, skip_main, skipped, &error), &error);
    assert_int_equal(skipped[0], 1);
    assert_int_equal(skipped[1], 1);
}

static by_status race_main(by_comm *comm, void *user, by_error *error)
{
    static const char *const settings[] = {"sync.every=4", "sync.staleness=3", NULL};
    atomic_int *ahead = user;
    by_trainer *t;
    by_config *config = open_config(settings);
    const by_trainer_options options = {.comm = comm};
    BY_TRY(by_trainer_open(&t, config, &options, error));
    BY_TRY(by_trainer_allocate(t, error));
    BY_TRY(by_trainer_initialize(t, error));
    by_status status = race_steps(t, by_comm_rank(comm), ahead, error);
    if (status != BY_OK) {
        atomic_store(ahead, INT_MAX); /* rank 1 ends too */
        (void)by_comm_fail(comm, status, error);
    }
    by_trainer_close(&t);
    by_config_close(&config);
    return status;
}

static void test_late_runs_on(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    atomic_int ahead = 0;
    const by_comm_options options = {.timeout = 1700.0};
    check_ok(by_comm_run_threads(2, &options, race_main, &ahead, &error), &error);
}

/* So many exchanges are not compressed, and no fewer. */
static void test_warmup(void **state)
{
    BY_UNUSED(state);
    const char *const plain[] = {"sync.every=4", NULL};
    const char *const coded[] = {"sync.every=4", "sync.compress=int8", "sync.warmup=2", NULL};
    for (int steps = 8; steps <= 12; steps += 4) {
        job one, other;
        go(&one, plain, steps);
        go(&other, coded, steps);
        size_t bytes = one.count / one.parts * sizeof(float);
        assert_int_equal(memcmp(one.before[0], other.before[0], bytes) == 0, steps == 8);
        free_job(&one);
        free_job(&other);
    }
}

/* Bytes that travel: int8 a quarter, exchanges every 16 steps a sixteenth. */
static void test_bytes(void **state)
{
    BY_UNUSED(state);
    const char *const plain[] = {"train.micro_batch=6", NULL};
    const char *const coded[] = {"train.micro_batch=6", "sync.compress=int8", NULL};
    const char *const rare[] = {"train.micro_batch=6", "sync.every=16", "sync.compress=int8", NULL};
    job a = {.settings = plain, .steps = 16};
    job b = {.settings = coded, .steps = 16};
    job c = {.settings = rare, .steps = 16};
    run(&a, 2);
    run(&b, 2);
    run(&c, 2);
    double quarter = (double)a.moved / (double)b.moved;
    double rarely = (double)a.moved / (double)c.moved;
    if (quarter < 3.5 || quarter > 4.1 || rarely < 50.0) {
        fail_msg("%g times fewer bytes by int8, %g times with an exchange in 16 steps", quarter,
                 rarely);
    }
    free_job(&a);
    free_job(&b);
    free_job(&c);
}

/* A trainer for losses exchanges nothing and keeps nothing for it. */
static void test_losses_only(void **state)
{
    BY_UNUSED(state);
    const char *const settings[] = {"sync.every=4", "sync.compress=int8", NULL};
    const char *const plain[] = {NULL};
    const by_trainer_options options = {.mode = BY_TRAINER_LOSS};
    uint64_t bytes[2];
    for (int k = 0; k < 2; k++) {
        by_error error = {0};
        by_trainer *t;
        by_config *config = open_config(k == 0 ? settings : plain);
        check_ok(by_trainer_open(&t, config, &options, &error), &error);
        const by_memory_report *memory = by_trainer_memory(t);
        bytes[k] = memory->total - memory->process;
        assert_int_equal(memory->optimizer, 0);
        by_trainer_close(&t);
        by_config_close(&config);
    }
    assert_int_equal(bytes[0], bytes[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),       cmocka_unit_test(test_resume),
        cmocka_unit_test(test_outer_step),   cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_losses_only),  cmocka_unit_test(test_late_step),
        cmocka_unit_test(test_late_repeats), cmocka_unit_test(test_late_runs_on),
        cmocka_unit_test(test_skips_of_one), cmocka_unit_test(test_warmup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
