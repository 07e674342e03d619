/* Training with split tensors and sequences: losses, gradient norms and weights stay near those
 * of one rank, what every rank has stays equal on all of them bit for bit, and both together
 * with data parallelism. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "sanitizer.h"
#include "trainer/state/trainer.h"

enum { CONTEXT = 12, VOCAB = 61, MAX_BATCH = 8, MAX_RANKS = 8, MAX_TENSORS = 64 };
/* A sanitizer looks at what a step touches, not at where many lead. */
enum { STEPS = BY_TESTS_SANITIZED ? 3 : 12 };

typedef struct job {
    const char *const *settings; /* NULL at the end */
    by_step_result results[MAX_RANKS][STEPS];
    double evaluated[MAX_RANKS];
    float *weights[MAX_TENSORS]; /* of one rank alone, or the first: whole parameters */
    size_t sizes[MAX_TENSORS];
    size_t count;
    const struct job *alone; /* what ranks compare with; NULL: this is it */
    bool is_inexact;         /* nothing is as of one rank, but ranks are equal */
} job;

static by_status open_config(by_config **out, const char *const *settings, by_error *error)
{
    static const char *const common[] = {
        "model.layers=2",     "model.heads=6",      "model.width=24",
        "model.context=12",   "model.vocab=61",     "train.threads=1",
        "train.steps=20",     "optimizer.warmup=2", "optimizer.lr=3e-3",
        "train.batch=4",      "model.dropout=0.1",  "train.micro_batch=1",
        "optimizer.clip=0.5", "model.mlp_width=50", NULL};
    const char *const *const lists[] = {common, settings};
    BY_TRY(by_config_default(out, error));
    BY_TRY(by_config_set(*out, "precision.compute=f32", error));
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; lists[k][i] != NULL; i++) {
            BY_TRY(by_config_set(*out, lists[k][i], error));
        }
    }
    return by_config_resolve(*out, error);
}

typedef struct data {
    int32_t tokens[MAX_BATCH * CONTEXT];
    int32_t targets[MAX_BATCH * CONTEXT];
    by_array arrays[2];
} data;

/* The rank's part of a step's global batch: each token follows from the last one. */
static by_batch make_batch(data *d, by_batch_part part, const by_config *config, uint64_t step)
{
    for (size_t k = 0; k < part.count; k++) {
        size_t row = part.first + k / part.block * part.stride + k % part.block;
        int32_t token = (int32_t)((random_unit(7, step, row) + 1.0) / 2.0 * VOCAB);
        for (size_t i = 0; i < CONTEXT; i++) {
            d->tokens[k * CONTEXT + i] = token;
            token = (token * 5 + 3) % VOCAB;
            d->targets[k * CONTEXT + i] = token;
        }
    }
    by_batch batch = by_batch_of_tokens(d->arrays, d->tokens, d->targets, part.count, CONTEXT);
    batch.global_targets = (uint64_t)config->train.batch * CONTEXT;
    return batch;
}

static by_status differ(const char *name, double off, by_error *error)
{
    return by_error_set(error, BY_ESTATE, "'%s' is off by %g", name, off);
}

/* Keeps the parameters, or compares this rank's parts with those that were kept. */
static by_status check_weights(job *j, const by_trainer *t, by_error *error)
{
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        const by__store_tensor *entry = by__store_entry(t->store, (by__store_handle)i);
        size_t count = (size_t)by_shape_count(&entry->local);
        float *have = calloc(count, sizeof *have);
        BY_TRY(by__store_read(t->store, t->flats.masters, (by__store_handle)i, have, error));
        if (j->alone == NULL && t->layout.rank > 0) {
            free(have);
            continue;
        }
        if (j->alone == NULL) {
            j->weights[i] = have;
            j->sizes[i] = count;
            j->count = i + 1;
            continue;
        }
        float *want = calloc(count, sizeof *want);
        by__store_cut(entry, j->alone->weights[i], want, sizeof *want);
        double off = relative_distance(have, want, count);
        free(have);
        free(want);
        /* Others than SGD make large steps of gradients that are zero but for rounding, as those of
         * the keys' bias are. */
        double most = t->flats.copies == t->flats.masters ? 1e-3 : 5e-2;
        bool whole = by_optimizer_needs_tensors(t->config) && entry->shape.rank > 1;
        if ((strcmp(t->config->optimizer.kind, "sgd") == 0 || whole) && !(off <= most)) {
            return differ(entry->name, off, error);
        }
    }
    return BY_OK;
}

/* Tensors that are not split are equal on the ranks that share a micro-batch. */
static by_status check_equal(const by_trainer *t, by_error *error)
{
    by_comm *comm;
    const unsigned axes = 1u << BY_MESH_TENSOR | 1u << BY_MESH_EXPERT | 1u << BY_MESH_SEQUENCE;
    BY_TRY(by_mesh_comm(&comm, t->ranks.mesh, axes, error));
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        const by__store_tensor *entry = by__store_entry(t->store, (by__store_handle)i);
        size_t count = (size_t)by_shape_count(&entry->local);
        if (by__store_is_part(entry)) {
            continue;
        }
        float *mine = calloc(count, sizeof *mine);
        float *first = calloc(count, sizeof *first);
        BY_TRY(by__store_read(t->store, t->flats.masters, (by__store_handle)i, mine, error));
        memcpy(first, mine, count * sizeof *first);
        BY_TRY(by_comm_broadcast(comm, first, count, BY_F32, 0, entry->name, error));
        bool equal = memcmp(mine, first, count * sizeof *mine) == 0;
        free(mine);
        free(first);
        if (!equal) {
            return differ(entry->name, 0.0, error);
        }
    }
    return BY_OK;
}

static by_status train(job *j, int rank, by_trainer *t, const by_config *config, by_error *error)
{
    data d;
    const float *values;
    size_t width;
    const by_batch_part one = {0, (size_t)config->train.micro_batch, 1, 1};
    BY_TRY(by_trainer_allocate(t, error));
    BY_TRY(by_trainer_initialize(t, error));
    for (uint64_t step = 0; step < STEPS; step++) {
        by_batch batch = make_batch(&d, by_trainer_part(t), config, step);
        BY_TRY(by_trainer_step(t, &batch, &j->results[rank][step], error));
    }
    by_batch batch = make_batch(&d, one, config, 99);
    BY_TRY(by_trainer_evaluate(t, &batch, &j->evaluated[rank], &values, &width, error));
    BY_TRY(j->is_inexact ? BY_OK : check_weights(j, t, error));
    return j->alone == NULL && !j->is_inexact ? BY_OK : check_equal(t, error);
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    job *j = user;
    by_config *config = NULL;
    by_trainer *t = NULL;
    const by_trainer_options options = {.comm = comm};
    by_status status = open_config(&config, j->settings, error);
    if (status == BY_OK) {
        status = by_trainer_open(&t, config, &options, error);
    }
    if (status == BY_OK) {
        status = train(j, comm == NULL ? 0 : by_comm_rank(comm), t, config, error);
    }
    if (comm != NULL) {
        status = by_comm_fail(comm, status, error); /* others wait for this rank */
    }
    by_trainer_close(&t);
    by_config_close(&config);
    return status;
}

static bool has_learned(const job *j)
{
    return BY_TESTS_SANITIZED || j->results[0][STEPS - 1].loss < j->results[0][0].loss;
}

static void compare(const job *alone, int ranks, const char *const *settings, double slack)
{
    by_error error = {0};
    job j = {.settings = settings, .alone = alone};
    by_comm_options options = {.timeout = 1700.0};
    double worst = 0.0;
    check_ok(by_comm_run_threads(ranks, &options, run_rank, &j, &error), &error);
    for (int r = 0; r < ranks; r++) {
        for (int step = 0; step < STEPS; step++) {
            const by_step_result *a = &alone->results[0][step];
            const by_step_result *b = &j.results[r][step];
            double loss = fabs(a->loss - b->loss) / (slack * a->loss);
            double norm = fabs(a->norm - b->norm) / (10.0 * slack * a->norm);
            bool near = loss <= 1.0 && norm <= 1.0;
            worst = fmax(worst, fmax(loss, norm));
            if (!near || a->examples != b->examples || b->loss != j.results[0][step].loss) {
                fail_msg("%s, %s: rank %d of %d, step %d: loss %.9g and %.9g, norm %.9g and %.9g",
                         settings[0], settings[2], r, ranks, step, a->loss, b->loss, a->norm,
                         b->norm);
            }
        }
        assert_true(r > 0 || fabs(alone->evaluated[0] - j.evaluated[0]) <=
                                 slack * fabs(alone->evaluated[0]));
    }
    print_message("%s, %s, %d ranks: %.2g of the slack\n", settings[0], settings[2], ranks, worst);
}

/* The kind may have two more settings. */
static void compare_parts(const char *const kind[3], const char *compute, const char *optimizer,
                          const char *rate, double slack)
{
    by_error error = {0};
    job *alone = calloc(1, sizeof *alone);
    assert_non_null(alone);
    const char *one[] = {kind[0], compute, optimizer, rate, kind[1], kind[2], NULL};
    alone->settings = one;
    check_ok(run_rank(NULL, alone, &error), &error);
    assert_true(has_learned(alone));
    static const struct {
        int ranks;
        const char *tensor;
        const char *sequence;
    } layouts[] = {
        {2, "parallel.tensor=2", "parallel.sequence_parallel=false"},
        {3, "parallel.tensor=3", "parallel.sequence_parallel=true"},
        {4, "parallel.tensor=2", "parallel.sequence_parallel=true"}, /* with data 2 */
        {6, "parallel.tensor=3", "parallel.sequence_parallel=false"},
        {3, "parallel.tensor=1", "parallel.sequence=3"},
        {6, "parallel.tensor=1", "parallel.sequence=3"}, /* with data 2 */
        {4, "parallel.tensor=2", "parallel.sequence=2"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts); i++) {
        const char *split[] = {kind[0], compute,           optimizer,
                               rate,    layouts[i].tensor, layouts[i].sequence,
                               kind[1], kind[2],           NULL};
        compare(alone, layouts[i].ranks, split, slack);
    }
    for (size_t i = 0; i < alone->count; i++) {
        free(alone->weights[i]);
    }
    free(alone);
}

static void compare_all(const char *kind, const char *compute, const char *optimizer,
                        const char *rate, double slack)
{
    const char *const alone[3] = {kind};
    compare_parts(alone, compute, optimizer, rate, slack);
}

/* Embedded values, whose tables and gates are divided by heads, and numbers of layers that are
 * not. */
static void test_streams(void **state)
{
    BY_UNUSED(state);
    static const char *const kind[] = {"model.kind=llama", "values.kind=embedded",
                                       "residual.kind=mixed"};
    compare_parts(kind, "precision.compute=f32", "optimizer.kind=sgd", "optimizer.lr=0.1", 1e-5);
}

static void test_f32(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=llama"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        compare_all(kinds[i], "precision.compute=f32", "optimizer.kind=sgd", "optimizer.lr=0.3",
                    1e-5);
        compare_all(kinds[i], "precision.compute=f32", "optimizer.kind=adamw", "optimizer.lr=3e-3",
                    1e-4);
    }
}

/* Norms of tensors, and means of their rows and columns, of which ranks have parts. */
static void test_whole_tensors(void **state)
{
    BY_UNUSED(state);
    compare_all("model.kind=gpt2", "precision.compute=f32", "optimizer.kind=lamb",
                "optimizer.lr=1e-2", 1e-4);
    compare_all("model.kind=gpt2", "precision.compute=f32", "optimizer.kind=adafactor",
                "optimizer.lr=1e-2", 1e-4);
    compare_all("model.kind=llama", "precision.compute=bf16", "optimizer.kind=adafactor",
                "optimizer.lr=1e-2", 1e-2);
}

static void test_bf16(void **state)
{
    BY_UNUSED(state);
    compare_all("model.kind=gpt2", "precision.compute=bf16", "optimizer.kind=sgd",
                "optimizer.lr=0.3", 1e-2);
    compare_all("model.kind=llama", "precision.compute=bf16", "optimizer.kind=adamw",
                "optimizer.lr=3e-3", 1e-2);
}

static job *run_job(int ranks, const char *const *settings)
{
    by_error error = {0};
    by_comm_options options = {.timeout = 1700.0};
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->settings = settings;
    check_ok(by_comm_run_threads(ranks, &options, run_rank, j, &error), &error);
    return j;
}

static void close_job(job *j)
{
    for (size_t i = 0; i < j->count; i++) {
        free(j->weights[i]);
    }
    free(j);
}

/* How many ranks share the micro-batches of a step shows in no bit, also where others divide
 * sequences: each part of the gradients is added up by the sum tree, then the parts are. */
static void test_bits_of_sequences(void **state)
{
    BY_UNUSED(state);
    static const char *const computes[] = {"precision.compute=f32", "precision.compute=bf16"};
    static const struct {
        int ranks;
        const char *overlap;
    } layouts[] = {{4, "parallel.overlap=true"},
                   {4, "parallel.overlap=false"},
                   {6, "parallel.overlap=true"},
                   {2, "parallel.overlap=false"}};
    for (size_t c = 0; c < BY_ARRAY_LENGTH(computes); c++) {
        const char *one[] = {"parallel.sequence=2", computes[c], "train.batch=5",
                             "parallel.bucket_mib=0.01", NULL};
        job *first = run_job(2, one);
        assert_true(has_learned(first));
        for (size_t k = 0; k < BY_ARRAY_LENGTH(layouts); k++) {
            const char *more[] = {"parallel.sequence=2",      computes[c],        "train.batch=5",
                                  "parallel.bucket_mib=0.01", layouts[k].overlap, NULL};
            job *other = run_job(layouts[k].ranks, more);
            assert_true(first->count == other->count && first->count > 10);
            for (size_t i = 0; i < first->count; i++) {
                assert_memory_equal(first->weights[i], other->weights[i],
                                    first->sizes[i] * sizeof(float));
            }
            close_job(other);
        }
        close_job(first);
    }
}

/* Adapters of what ranks divide by its input, by its output and by packed heads. */
static void test_adapters(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=llama"};
    static const char *const layouts[][3] = {
        {"parallel.tensor=2", "parallel.sequence_parallel=false"},
        {"parallel.tensor=3", "parallel.sequence_parallel=true"},
        {"parallel.sequence=3", "parallel.tensor=1"},
    };
    static const int ranks[] = {4, 3, 3};
#define ADAPTERS                                                                                   \
    "optimizer.kind=sgd", "optimizer.lr=0.3", "lora.rank=4", "lora.alpha=16", "lora.dropout=0.1",  \
        "lora.targets=all-linear"
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        by_error error = {0};
        const char *one[] = {kinds[i], ADAPTERS, NULL};
        job *alone = calloc(1, sizeof *alone);
        assert_non_null(alone);
        alone->settings = one;
        check_ok(run_rank(NULL, alone, &error), &error);
        assert_true(has_learned(alone));
        for (size_t k = 0; k < BY_ARRAY_LENGTH(layouts); k++) {
            const char *split[] = {kinds[i], ADAPTERS, layouts[k][0], layouts[k][1], NULL};
            compare(alone, ranks[k], split, 1e-5);
        }
        close_job(alone);
    }
}

/* Ranks that divide experts and examples, alone and together with data parallelism. */
static void check_experts(const char *optimizer, const char *rate, double slack)
{
    by_error error = {0};
    const char *one[] = {
        "model.kind=mixtral", "precision.compute=f32", optimizer, rate, "model.experts=4",
        "model.dropout=0.1",  "train.micro_batch=2",   NULL};
    const char *split[] = {
        "model.kind=mixtral", "precision.compute=f32", optimizer,           rate, "model.experts=4",
        "model.dropout=0.1",  "train.micro_batch=2",   "parallel.expert=2", NULL};
    job *alone = calloc(1, sizeof *alone);
    assert_non_null(alone);
    alone->settings = one;
    check_ok(run_rank(NULL, alone, &error), &error);
    assert_true(has_learned(alone));
    compare(alone, 2, split, slack);
    compare(alone, 4, split, slack);
    close_job(alone);
}

static void test_experts(void **state)
{
    BY_UNUSED(state);
    check_experts("optimizer.kind=sgd", "optimizer.lr=0.3", 1e-5);
    check_experts("optimizer.kind=lamb", "optimizer.lr=1e-2", 1e-4);
    check_experts("optimizer.kind=adafactor", "optimizer.lr=1e-2", 1e-4);
}

/* Blocks of codes have values of what ranks hold alike, or of parts that they do not. */
static void test_codes(void **state)
{
    BY_UNUSED(state);
    static const char *const codes[] = {"sync.compress=int8", "sync.compress=one_bit",
                                        "sync.compress=top_k", "sync.compress=power_sgd"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(codes); i++) {
        by_error error = {0};
        const char *const settings[] = {"parallel.tensor=2", codes[i], "optimizer.lr=1e-4", NULL};
        const char *const experts[] = {"model.kind=mixtral",
                                       "model.experts=4",
                                       "model.dropout=0",
                                       "train.micro_batch=2",
                                       "parallel.expert=2",
                                       "parallel.tensor=2",
                                       "optimizer.lr=1e-4",
                                       codes[i],
                                       NULL};
        job *j = calloc(1, sizeof *j);
        assert_non_null(j);
        j->settings = settings;
        j->is_inexact = true;
        check_ok(by_comm_run_threads(4, NULL, run_rank, j, &error), &error);
        j->settings = experts;
        check_ok(by_comm_run_threads(8, NULL, run_rank, j, &error), &error);
        free(j);
    }
}

/* What cannot be split is refused before any rank starts, with both numbers and what would do. */
static void test_refusals(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *settings[6];
        const char *message;
    } refused[] = {
        {{"parallel.tensor=4", NULL},
         "parallel.tensor 4 does not divide model.heads 6; nearest: 3, 6"},
        {{"model.kind=llama", "model.kv_heads=2", "parallel.tensor=3", NULL},
         "parallel.tensor 3 does not divide model.kv_heads 2; nearest: 2"},
        {{"model.kind=mixtral", "model.experts=6", "parallel.expert=4", NULL},
         "parallel.expert 4 does not divide model.experts 6; nearest: 3, 6"},
        {{"model.kind=mixtral", "parallel.expert=2", NULL},
         "parallel.expert 2 does not divide train.micro_batch 1"},
        {{"model.context=13", "parallel.sequence=2", NULL},
         "parallel.sequence 2 needs a model.context that is a multiple of 4 (two chunks for each "
         "rank), and it is 13; nearest: 12, 16"},
        {{"model.context=13", "parallel.sequence_parallel=true", "parallel.tensor=2", NULL},
         "parallel.tensor 2 does not divide model.context 13"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused); i++) {
        by_error error = {0};
        by_config *config = NULL;
        check_error(open_config(&config, refused[i].settings, &error), BY_ECONFIG, &error,
                    refused[i].message);
        by_config_close(&config);
    }
    by_error late = {0};
    static const char *const stale[] = {"parallel.tensor=2", "sync.every=2", "sync.staleness=1",
                                        NULL};
    job k = {.settings = stale};
    check_error(by_comm_run_threads(4, NULL, run_rank, &k, &late), BY_ECONFIG, &late,
                "sync.staleness is 1, which needs replicas of one rank each, but only 2 of 4 ranks "
                "are along parallel.data");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_whole_tensors),
        cmocka_unit_test(test_bits_of_sequences),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
