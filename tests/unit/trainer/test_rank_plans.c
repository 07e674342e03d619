/* The plan of any rank of a job, made by a process that is alone: it equals what that rank plans
 * when all of them run, byte for byte; for some layouts, and for random ones. With an argument, so
 * many random layouts are tried. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "sanitizer.h"
#include "trainer/state/trainer.h"

#define RANKS      8
#define MOST_RANKS 16

typedef struct layout {
    const char *settings[10];
} layout;

static const layout layouts[] = {
    {{"parallel.data=8", NULL}},
    {{"parallel.shard=8", "parallel.zero=1", "precision.compute=bf16", NULL}},
    {{"parallel.shard=4", "parallel.zero=2", NULL}},
    {{"parallel.shard=8", "parallel.zero=3", "precision.compute=bf16", "parallel.keep=true", NULL}},
    {{"parallel.tensor=4", "parallel.sequence_parallel=true", NULL}}, /* 67 tokens: uneven parts */
    {{"parallel.sequence=4", NULL}},
    {{"parallel.pipeline=4", "parallel.data=2", NULL}},
    {{"model.kind=mixtral", "model.experts=8", "model.experts_per_token=2", "parallel.expert=4",
      "train.micro_batch=4", NULL}},
    {{"parallel.pipeline=2", "parallel.shard=2", "parallel.tensor=2", "parallel.zero=3",
      "parallel.schedule=zero_bubble", NULL}},
    {{"parallel.pipeline=2", "parallel.chunks=2", "parallel.schedule=interleaved",
      "parallel.shard=4", "parallel.zero=2", NULL}},
    {{"parallel.shard=4", "parallel.zero=3", "offload.optimizer=disk", "offload.buffer_mib=1",
      "optimizer.ema=0.9", NULL}},
    {{"parallel.data=8", "sync.every=2", "sync.compress=int8", "offload.optimizer=none", NULL}},
};

/* What the ranks of a job have planned, as text. */
typedef struct job {
    const char *const *settings;
    int ranks;
    long long budget;
    char *plans[MOST_RANKS];
} job;

static const char *const common[] = {"model.kind=gpt2",      "model.layers=4",
                                     "model.heads=4",        "model.width=32",
                                     "model.vocab=67",       "model.context=32",
                                     "train.batch=16",       "train.micro_batch=2",
                                     "train.threads=1",      "model.dropout=0.1",
                                     "track.sample_every=0", "checkpoint.async=true",
                                     "parallel.data=-1",     NULL};

static by_config *config_for(const job *j)
{
    by_error error = {0};
    char budget[64];
    by_config *config = config_of(common, j->settings);
    (void)snprintf(budget, sizeof budget, "memory.budget=%lld", j->budget);
    check_ok(by_config_set(config, budget, &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

/* All of a plan but the size of the process, which is measured: numbers, then every graph. *out is
 * freed with free(). */
static by_status describe(char **out, by_trainer *t, by_error *error)
{
    by_string text = {0};
    char place[128];
    by_trainer_plan_staging(t);
    BY_TRY(by_trainer_plan_loaders(t, true, error));
    const by_memory_report *m = by_trainer_memory(t);
    const by_model_size *size = by_trainer_size(t);
    const by_batch_part part = by_trainer_part(t);
    const uint64_t bytes[] = {
        m->parameters, m->gradients, m->optimizer, m->activations, m->workspace,
        m->data,       m->staging,   m->on_disk,   m->spared,      m->total - m->process};
    by_trainer_place(t, place, sizeof place);
    by_string_format(&text, "%s:", place);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bytes); i++) {
        by_string_format(&text, " %llu", (unsigned long long)bytes[i]);
    }
    by_string_format(&text, "\n%lld %lld %.17g %.17g, examples %zu + %zu by %zu and %zu\n",
                     (long long)size->parameters, (long long)size->trained, size->flops_per_example,
                     by_trainer_seconds(t), part.first, part.count, part.block, part.stride);
    for (size_t i = 0; by_trainer_program_name(t, i) != NULL; i++) {
        const char *name = by_trainer_program_name(t, i);
        char *graph;
        BY_TRY(by_graph_print(by_trainer_graph(t, name), &graph, error));
        by_string_format(&text, "%s: %zu and %zu bytes\n%s", name,
                         by_program_arena_bytes(by_trainer_program(t, name)),
                         by_program_workspace_bytes(by_trainer_program(t, name)), graph);
        free(graph);
    }
    BY_TRY(by_string_check(&text, error));
    *out = text.data;
    return BY_OK;
}

static by_status plan_rank(by_comm *comm, void *user, by_error *error)
{
    job *j = user;
    by_trainer *t = NULL;
    by_config *config = config_for(j);
    const by_trainer_options options = {.comm = comm};
    by_status status = by_trainer_open_fitting(&t, config, &options, error);
    if (status == BY_OK) {
        status = describe(&j->plans[by_comm_rank(comm)], t, error);
    }
    by_trainer_close(&t);
    by_config_close(&config);
    return status;
}

/* Plans a rank without the others; with what it has in common with the plan of rank 0, if that is
 * given. */
static void compare(const job *j, int rank, by_trainer *like)
{
    by_error error = {0};
    by_trainer *t;
    by_config *config = config_for(j);
    const by_trainer_options options = {.ranks = j->ranks, .rank = rank, .like = like};
    char *alone;
    check_ok(by_trainer_open_fitting(&t, config, &options, &error), &error);
    check_ok(describe(&alone, t, &error), &error);
    if (strcmp(alone, j->plans[rank]) != 0) {
        by_string all = {0};
        for (size_t i = 0; j->settings[i] != NULL; i++) {
            by_string_format(&all, " %s", j->settings[i]);
        }
        fail_msg("%s, rank %d of %d: alone\n%.400s\nin the job\n%.400s", all.data, rank, j->ranks,
                 alone, j->plans[rank]);
    }
    check_error(by_trainer_allocate(t, &error), BY_ESTATE, &error, "ranks");
    free(alone);
    by_trainer_close(&t);
    by_config_close(&config);
}

/* Plans rank after rank, each from the last one before that the first does not help. */
static void compare_in_turn(const job *j)
{
    by_error error = {0};
    by_trainer *first;
    by_config *config = config_for(j);
    const by_trainer_options options = {.ranks = j->ranks};
    check_ok(by_trainer_open_fitting(&first, config, &options, &error), &error);
    for (int rank = 1; rank < j->ranks; rank++) {
        compare(j, rank, first);
    }
    by_trainer_close(&first);
    by_config_close(&config);
}

static void free_plans(job *j)
{
    for (int rank = 0; rank < j->ranks; rank++) {
        free(j->plans[rank]);
        j->plans[rank] = NULL;
    }
}

static void test_every_layout(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(layouts); k++) {
        job j = {.settings = layouts[k].settings, .ranks = RANKS};
        check_ok(by_comm_run_threads(RANKS, NULL, plan_rank, &j, &error), &error);
        for (int rank = 0; rank < RANKS; rank++) {
            if (rank == 0 || rank == 5 || (rank == 7 && !BY_TESTS_SANITIZED)) {
                compare(&j, rank, NULL);
            }
        }
        compare_in_turn(&j);
        free_plans(&j);
    }
}

/* ---- random layouts ---- */

typedef struct random_layout {
    uint64_t seed;
    int ranks;
    size_t count;
    char text[24][48];
    const char *settings[25];
} random_layout;

static int draw(random_layout *l, int below)
{
    return (int)(0.5 * (random_unit(l->seed++, 0, 0) + 1.0) * (double)below);
}

static void set_key(random_layout *l, const char *key, const char *value)
{
    (void)snprintf(l->text[l->count], sizeof l->text[0], "%s=%s", key, value);
    l->settings[l->count] = l->text[l->count];
    l->settings[++l->count] = NULL;
}

static void set_number(random_layout *l, const char *key, int value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%d", value);
    set_key(l, key, text);
}

static void set_one_of(random_layout *l, const char *key, const char *const *values, int count)
{
    set_key(l, key, values[draw(l, count)]);
}

/* Divides the ranks among axes, prime by prime. */
static void draw_axes(random_layout *l, bool experts, int sizes[6])
{
    int rest = l->ranks;
    for (int prime = 2; rest > 1; prime = rest % prime == 0 ? prime : prime + 1) {
        if (rest % prime == 0) {
            sizes[draw(l, experts ? 6 : 5)] *= prime;
            rest /= prime;
        }
    }
}

static void draw_layout(random_layout *l)
{
    static const int ranks[] = {2, 3, 4, 6, 8, 12, 16};
    static const char *const axes[] = {"parallel.data",     "parallel.shard",    "parallel.tensor",
                                       "parallel.sequence", "parallel.pipeline", "parallel.expert"};
    static const char *const kinds[] = {"gpt2", "llama", "mixtral"};
    static const char *const recompute[] = {"none", "block", "full"};
    static const char *const precision[] = {"f32", "bf16"};
    static const char *const schedules[] = {"1f1b", "gpipe", "zero_bubble"};
    static const char *const optimizers[] = {"adamw", "muon", "adafactor", "sgd"};
    static const char *const booleans[] = {"false", "true"};
    int sizes[6] = {1, 1, 1, 1, 1, 1};
    l->count = 0;
    l->ranks = ranks[draw(l, BY_ARRAY_LENGTH(ranks))];
    const char *kind = kinds[draw(l, 3)];
    bool experts = strcmp(kind, "mixtral") == 0;
    draw_axes(l, experts, sizes);
    set_key(l, "model.kind", kind);
    if (experts) {
        set_key(l, "model.experts", "12");
        set_key(l, "model.experts_per_token", "2");
    } else {
        set_number(l, "model.context", 48);
    }
    set_number(l, "model.layers", sizes[4] + draw(l, 4));
    set_number(l, "model.heads", 12);
    set_number(l, "model.width", 48);
    set_number(l, "train.batch", 48);
    set_number(l, "train.micro_batch", sizes[5] << draw(l, 2));
    for (int axis = 0; axis < 6; axis++) {
        set_number(l, axes[axis], sizes[axis]);
    }
    set_number(l, "parallel.zero", 1 + draw(l, 3));
    bool chunks = sizes[4] > 1 && draw(l, 3) == 0;
    set_number(l, "parallel.chunks", chunks ? 2 : 1);
    if (chunks) {
        set_key(l, "parallel.schedule", "interleaved");
    } else {
        set_one_of(l, "parallel.schedule", schedules, 3);
    }
    set_one_of(l, "parallel.sequence_parallel", booleans, 2);
    set_one_of(l, "parallel.overlap", booleans, 2);
    set_one_of(l, "parallel.keep", booleans, 2);
    set_one_of(l, "memory.recompute", recompute, 3);
    set_one_of(l, "precision.compute", precision, 2);
    set_one_of(l, "optimizer.kind", optimizers, 4);
}

/* Returns true if the settings are a config, and rank 0 can be planned with it. */
static bool is_possible(const random_layout *l)
{
    const char *const *const lists[] = {common, l->settings};
    by_error error = {0};
    by_config *config;
    by_trainer *t = NULL;
    by_status status = by_config_default(&config, &error);
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; lists[k][i] != NULL && status == BY_OK; i++) {
            status = by_config_set(config, lists[k][i], &error);
        }
    }
    const by_trainer_options options = {.ranks = l->ranks};
    status = status == BY_OK ? by_config_resolve(config, &error) : status;
    status = status == BY_OK ? by_trainer_open(&t, config, &options, &error) : status;
    by_trainer_close(&t);
    by_config_close(&config);
    if (status != BY_ECONFIG && status != BY_EARG) {
        check_ok(status, &error);
    }
    return status == BY_OK;
}

static void test_random_layouts(void **state)
{
    const int *count = *state;
    by_error error = {0};
    random_layout l = {.seed = 1};
    for (int i = 0; i < *count; i++) {
        do {
            draw_layout(&l);
        } while (!is_possible(&l));
        job j = {.settings = l.settings, .ranks = l.ranks};
        check_ok(by_comm_run_threads(l.ranks, NULL, plan_rank, &j, &error), &error);
        compare(&j, l.ranks - 1, NULL);
        compare_in_turn(&j);
        free_plans(&j);
    }
}

/* ---- budgets and places ---- */

/* A budget is for the rank that needs the most, and for the others too. */
static void test_budgets(void **state)
{
    BY_UNUSED(state);
    static const size_t of[] = {1, 6};
    by_error error = {0};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(of) && !BY_TESTS_KEEPS_FREED; k++) {
        job j = {.settings = layouts[of[k]].settings, .ranks = RANKS};
        by_memory_report free_of = {0};
        for (int pass = 0; pass < 2; pass++) {
            by_trainer *t;
            by_config *config = config_for(&j);
            const by_trainer_options options = {.ranks = RANKS, .rank = 5};
            check_ok(by_trainer_open(&t, config, &options, &error), &error);
            const by_memory_report *m = by_trainer_memory(t);
            if (pass == 0) {
                free_of = *m;
                j.budget = (long long)(m->total - m->activations / 8 + (2 << 20));
            } else {
                assert_true(m->total - m->process <= free_of.total - free_of.process);
                assert_true(m->total <= (uint64_t)j.budget);
            }
            by_trainer_close(&t);
            by_config_close(&config);
        }
    }
}

/* A place that there is not is refused, and so is a plan of ranks beside a communicator. */
static void test_places(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_trainer *t = NULL;
    const job j = {.settings = layouts[0].settings, .ranks = RANKS};
    by_config *config = config_for(&j);
    const by_trainer_options outside = {.ranks = 8, .rank = 8};
    check_error(by_trainer_open(&t, config, &outside, &error), BY_EARG, &error, "rank 8 of 8");
    const by_trainer_options fewer = {.ranks = 4};
    check_error(by_trainer_open(&t, config, &fewer, &error), BY_ECONFIG, &error, "4");
    by_config_close(&config);
}

int main(int argc, char **argv)
{
    int layouts_to_try = argc > 1 ? atoi(argv[1]) : 4;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout),
        cmocka_unit_test_prestate(test_random_layouts, &layouts_to_try),
        cmocka_unit_test(test_budgets), cmocka_unit_test(test_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
