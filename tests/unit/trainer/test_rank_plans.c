/* The plan of any rank of a job, made by a process that is alone: it equals what that rank plans
 * when all of them run, byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "sanitizer.h"
#include "trainer/state/trainer.h"

#define RANKS 8

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
    long long budget;
    char *plans[RANKS];
} job;

static by_config *config_for(const job *j)
{
    char budget[64];
    const char *common[32] = {"model.kind=gpt2",      "model.layers=4",
                              "model.heads=4",        "model.width=32",
                              "model.vocab=67",       "model.context=32",
                              "train.batch=16",       "train.micro_batch=2",
                              "train.threads=1",      "model.dropout=0.1",
                              "track.sample_every=0", "checkpoint.async=true",
                              "parallel.data=-1",     budget};
    (void)snprintf(budget, sizeof budget, "memory.budget=%lld", j->budget);
    return config_of(common, j->settings);
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

static void compare(const job *j, int rank)
{
    by_error error = {0};
    by_trainer *t;
    by_config *config = config_for(j);
    const by_trainer_options options = {.ranks = RANKS, .rank = rank};
    char *alone;
    check_ok(by_trainer_open_fitting(&t, config, &options, &error), &error);
    check_ok(describe(&alone, t, &error), &error);
    if (strcmp(alone, j->plans[rank]) != 0) {
        fail_msg("%s, rank %d: alone\n%.400s\nin the job\n%.400s", j->settings[0], rank, alone,
                 j->plans[rank]);
    }
    check_error(by_trainer_allocate(t, &error), BY_ESTATE, &error, "of 8 ranks");
    free(alone);
    by_trainer_close(&t);
    by_config_close(&config);
}

static void test_every_layout(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(layouts); k++) {
        job j = {.settings = layouts[k].settings};
        check_ok(by_comm_run_threads(RANKS, NULL, plan_rank, &j, &error), &error);
        for (int rank = 0; rank < RANKS; rank++) {
            if (rank == 0 || rank == 5 || (rank == 7 && !BY_TESTS_SANITIZED)) {
                compare(&j, rank);
            }
            free(j.plans[rank]);
        }
    }
}

/* A budget is for the rank that needs the most, and for the others too. */
static void test_budgets(void **state)
{
    BY_UNUSED(state);
    static const size_t of[] = {1, 6};
    by_error error = {0};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(of) && !BY_TESTS_KEEPS_FREED; k++) {
        job j = {.settings = layouts[of[k]].settings};
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
    const job j = {.settings = layouts[0].settings};
    by_config *config = config_for(&j);
    const by_trainer_options outside = {.ranks = 8, .rank = 8};
    check_error(by_trainer_open(&t, config, &outside, &error), BY_EARG, &error, "rank 8 of 8");
    const by_trainer_options fewer = {.ranks = 4};
    check_error(by_trainer_open(&t, config, &fewer, &error), BY_ECONFIG, &error, "4");
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_layout),
                                       cmocka_unit_test(test_budgets),
                                       cmocka_unit_test(test_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
