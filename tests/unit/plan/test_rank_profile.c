/* Profiles of several ranks: what of a step is computed, exchanged, hidden and waited for; the
 * bubble of a pipeline against its formula; clocks of different hosts; the trace of all ranks.
 * Times are made up, so that sums are exact. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "banyan/ops.h"
#include "banyan/pipeline.h"
#include "plan/recorder.h"
#include "rank_run.h"
#include "temporary.h"

#define NEAR(a, b) EXPECT(fabs((a) - (b)) < 1e-9)

/* A profile that watches programs of one node each, as many as there are kinds of work. */
typedef struct fixture {
    by_graph *graph;
    by_device *device;
    by_program *programs[BY_PROFILE_PASS_WEIGHTS + 1];
    by_profile *profile;
} fixture;

static by_status fixture_open(fixture *f, by_comm *comm, by_error *error)
{
    *f = (fixture){0};
    BY_TRY(by_graph_open(&f->graph, error));
    by_value x = by_graph_input(f->graph, "x", BY_F32, BY_SHAPE(4));
    by_graph_output(f->graph, by_unary(f->graph, x, BY_FN_GELU), "y");
    BY_TRY(by_device_open(&f->device, "cpu", 1, error));
    BY_TRY(by_profile_open(&f->profile, error));
    for (int w = 0; w <= BY_PROFILE_PASS_WEIGHTS; w++) {
        char name[24];
        (void)snprintf(name, sizeof name, "program %d", w);
        BY_TRY(by_program_compile(&f->programs[w], f->graph, f->device, name, error));
        BY_TRY(by_profile_watch(f->profile, f->programs[w], name, (by_profile_work)w, error));
    }
    by_profile_watch_comm(f->profile, comm);
    return BY_OK;
}

static void fixture_close(fixture *f)
{
    by_profile_close(&f->profile);
    for (int w = 0; w <= BY_PROFILE_PASS_WEIGHTS; w++) {
        by_program_close(&f->programs[w]);
    }
    by_device_close(&f->device);
    by_graph_close(&f->graph);
}

static by_status ran(fixture *f, by_profile_work work, double begin, double end, by_error *error)
{
    const by__plan_node_run event = {(int)work, 0, begin, end};
    return by__plan_profile_add(f->profile, &event, error);
}

static void exchanged(fixture *f, double begin, double ready, double end)
{
    const by_comm_call call = {
        .kind = "all-reduce", .what = "x", .bytes = 8, .begin = begin, .ready = ready, .end = end};
    by__plan_profile_exchanged(f->profile, &call);
}

/* ---- a step ---- */

/* Two steps. In the first: computed 0 to 4 and 5 to 7; exchanged 3 to 5 (ready at 4.5) beside a
 * second exchange from 3.5 to 4.25, and 8 to 9 (ready at once). */
static by_status times_rank(by_comm *comm, void *user, by_error *error)
{
    fixture f;
    by_profile_ranks *ranks;
    size_t count;
    const by_profile_place place = {"data 1", -1, 1000, 2000};
    double at = 100.0 + by_comm_rank(comm);
    BY_UNUSED(user);
    BY_TRY(fixture_open(&f, comm, error));
    BY_TRY(ran(&f, BY_PROFILE_WORK_MODEL, at, at + 4.0, error));
    exchanged(&f, at + 3.5, at + 4.0, at + 4.25);
    exchanged(&f, at + 3.0, at + 4.5, at + 5.0);
    BY_TRY(ran(&f, BY_PROFILE_WORK_UPDATE, at + 5.0, at + 7.0, error));
    exchanged(&f, at + 8.0, at + 8.0, at + 9.0);
    BY_TRY(by_profile_span(f.profile, "step", at, at + 10.0, error));
    BY_TRY(by_profile_span(f.profile, "next batch", at + 10.0, at + 11.0, error));
    BY_TRY(ran(&f, BY_PROFILE_WORK_MODEL, at + 12.0, at + 14.0, error));
    BY_TRY(by_profile_span(f.profile, "step", at + 11.0, at + 15.0, error));
    BY_TRY(by_profile_gather(&ranks, f.profile, &place, error));
    EXPECT(by_profile_rank_count(ranks) == by_comm_size(comm));
    for (int r = 0; r < by_comm_size(comm); r++) {
        const by_profile_step *s = by_profile_steps_of(ranks, r, &count);
        const by_profile_rank *rank = by_profile_rank_of(ranks, r);
        EXPECT(count == 2);
        NEAR(s[0].seconds, 10.0);
        NEAR(s[0].compute, 6.0);
        NEAR(s[0].hidden, 1.0);  /* 3 to 4 */
        NEAR(s[0].exposed, 2.0); /* 4 to 5, and 8 to 9 */
        NEAR(s[0].waiting, 0.5); /* 4 to 4.5 */
        NEAR(s[0].bubble, 0.0);
        NEAR(s[1].compute, 2.0);
        NEAR(s[1].exposed, 0.0);
        NEAR(rank->mean.seconds, 7.0);
        NEAR(rank->mean.compute, 4.0);
        EXPECT(rank->planned == 1000 && rank->resident == 2000);
        EXPECT(strcmp(rank->place, "data 1") == 0);
        EXPECT(rank->clock == 0.0); /* one host */
    }
    by_profile_ranks_close(&ranks);
    fixture_close(&f);
    return BY_OK;
}

static void test_times(void **state)
{
    BY_UNUSED(state);
    run_ranks(3, times_rank, NULL);
}

static by_status uneven_rank(by_comm *comm, void *user, by_error *error)
{
    fixture f;
    by_profile_ranks *ranks;
    const by_profile_place place = {"", -1, 0, 0};
    BY_UNUSED(user);
    BY_TRY(fixture_open(&f, comm, error));
    for (int i = 0; i <= by_comm_rank(comm); i++) {
        BY_TRY(by_profile_span(f.profile, "step", i, i + 1, error));
    }
    by_error own = {0};
    by_status status = by_profile_gather(&ranks, f.profile, &place, &own);
    EXPECT(status == BY_ESTATE && strstr(own.message, "rank 1 has recorded 2 steps") != NULL);
    fixture_close(&f);
    return BY_OK;
}

static void test_uneven_steps(void **state)
{
    BY_UNUSED(state);
    run_ranks(2, uneven_rank, NULL);
}

/* ---- bubbles ---- */

typedef struct schedule {
    by_pipeline_kind kind;
    int ranks;
    int chunks;
    int64_t micro_batches;
    by_pipeline_costs costs;
} schedule;

/* Records what the simulation of the schedule says that the rank does, in two pipelines at
 * different times, and compares its bubble with the simulated idle time. */
static by_status bubble_rank(by_comm *comm, void *user, by_error *error)
{
    static const by_profile_work works[] = {[BY_PIPELINE_FORWARD] = BY_PROFILE_PASS_FORWARD,
                                            [BY_PIPELINE_BACKWARD] = BY_PROFILE_PASS_BACKWARD,
                                            [BY_PIPELINE_WEIGHT] = BY_PROFILE_PASS_WEIGHTS};
    const schedule *s = user;
    const by_pipeline_options options = {
        .kind = s->kind, .ranks = s->ranks, .chunks = s->chunks, .micro_batches = s->micro_batches};
    int stage = by_comm_rank(comm) / 2;
    double began = 1000.0 * (by_comm_rank(comm) % 2);
    fixture f;
    by_pipeline *pipeline;
    by_pipeline_time time;
    by_profile_ranks *ranks;
    size_t count;
    const by_profile_place place = {"", by_comm_rank(comm) % 2, 0, 0};
    BY_TRY(fixture_open(&f, comm, error));
    BY_TRY(by_pipeline_open(&pipeline, &options, error));
    BY_TRY(by_pipeline_simulate(&time, pipeline, &s->costs, error));
    const by_pipeline_action *actions = by_pipeline_actions(pipeline, stage, &count);
    for (size_t i = 0; i < count; i++) {
        if (actions[i].kind < BY_PIPELINE_SEND) {
            BY_TRY(ran(&f, works[actions[i].kind], began + time.begin[stage][i],
                       began + time.end[stage][i], error));
        }
    }
    BY_TRY(
        ran(&f, BY_PROFILE_WORK_UPDATE, began + time.makespan, began + time.makespan + 1.0, error));
    BY_TRY(by_profile_span(f.profile, "step", began, began + time.makespan + 1.0, error));
    BY_TRY(by_profile_gather(&ranks, f.profile, &place, error));
    const by_profile_rank *mine = by_profile_rank_of(ranks, by_comm_rank(comm));
    double sum = mine->mean.passes[0] + mine->mean.passes[1] + mine->mean.passes[2];
    NEAR(mine->mean.bubble, time.ranks[stage].idle);
    NEAR(mine->mean.passes[0] / (double)s->micro_batches, s->costs.forward * s->chunks);
    double each = sum / (double)s->micro_batches;
    double weight = mine->mean.passes[2] / (double)s->micro_batches;
    double formula = (s->ranks - 1) *
                     (s->kind == BY_PIPELINE_ZERO_BUBBLE ? each - 2.0 * weight : each) / s->chunks;
    NEAR(mine->mean.bubble, formula);
    by_profile_ranks_close(&ranks);
    by_pipeline_time_free(&time);
    by_pipeline_close(&pipeline);
    fixture_close(&f);
    return BY_OK;
}

static void test_bubbles(void **state)
{
    BY_UNUSED(state);
    static const schedule schedules[] = {
        {BY_PIPELINE_GPIPE, 3, 1, 5, {1.0, 1.75, 0.0, 0.0}},
        {BY_PIPELINE_1F1B, 3, 1, 6, {1.0, 2.5, 0.0, 0.0}},
        {BY_PIPELINE_INTERLEAVED, 2, 2, 4, {0.5, 1.0, 0.0, 0.0}},
        {BY_PIPELINE_ZERO_BUBBLE, 3, 1, 6, {1.0, 2.0, 1.0, 0.0}},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(schedules); i++) {
        schedule s = schedules[i];
        run_ranks(2 * s.ranks, bubble_rank, &s);
    }
}

/* ---- clocks ---- */

static double skewed(void *user)
{
    const int *rank = user;
    return by__now() + 1000.0 * *rank;
}

static by_status clock_rank(by_comm *comm, void *user, by_error *error)
{
    int rank = by_comm_rank(comm);
    double ahead;
    BY_UNUSED(user);
    BY_TRY(by__plan_clock_ahead(&ahead, comm, skewed, &rank, true, error));
    EXPECT(fabs(ahead - 1000.0 * rank) < 100.0);
    BY_TRY(by__plan_clock_ahead(&ahead, comm, skewed, &rank, false, error));
    EXPECT(ahead == 0.0);
    return BY_OK;
}

static void test_clocks(void **state)
{
    BY_UNUSED(state);
    run_ranks(3, clock_rank, NULL);
}

/* ---- the trace ---- */

/* Two exchanges that overlap in part, as of two communicators: they get two tracks. */
static by_status trace_rank(by_comm *comm, void *user, by_error *error)
{
    fixture f;
    by_profile_ranks *ranks;
    const by_profile_place place = {"data \"0\"", -1, 1 << 20, 1 << 21};
    BY_TRY(fixture_open(&f, comm, error));
    BY_TRY(ran(&f, BY_PROFILE_WORK_MODEL, 1.0, 3.0, error));
    exchanged(&f, 2.0, 2.5, 4.0);
    exchanged(&f, 3.0, 3.0, 5.0);
    BY_TRY(by_profile_span(f.profile, "step", 1.0, 6.0, error));
    BY_TRY(by_profile_gather(&ranks, f.profile, &place, error));
    BY_TRY(by_profile_trace_ranks(f.profile, ranks, user, error));
    by_profile_ranks_close(&ranks);
    fixture_close(&f);
    return BY_OK;
}

static void test_trace(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *path = by__path_join(directory, "trace.json");
    int names[4] = {0};
    int slices[4][4] = {{0}};
    run_ranks(3, trace_rank, path);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    json_t *events = json_object_get(root, "traceEvents");
    assert_true(json_is_array(events));
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const json_t *args = json_object_get(event, "args");
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const char *name = json_string_value(json_object_get(event, "name"));
        json_int_t process = json_integer_value(json_object_get(event, "pid"));
        json_int_t track = json_integer_value(json_object_get(event, "tid"));
        assert_true(process >= 1 && process <= 3 && track >= 0 && track <= 3);
        if (strcmp(phase, "M") == 0 && strcmp(name, "process_name") == 0) {
            names[process]++;
            assert_non_null(strstr(json_string_value(json_object_get(args, "name")), "data \"0\""));
        }
        if (strcmp(phase, "X") != 0) {
            continue;
        }
        slices[process][track]++;
        if (strcmp(name, "step") == 0) {
            assert_true(json_number_value(json_object_get(event, "ts")) == 0.0);
            assert_true(json_number_value(json_object_get(event, "dur")) == 5e6);
            assert_true(json_number_value(json_object_get(args, "exposed_ms")) == 2000.0);
        }
    }
    for (int p = 1; p <= 3; p++) {
        assert_int_equal(names[p], 1);
        assert_int_equal(slices[p][1], 3); /* node, program, step */
        assert_int_equal(slices[p][2], 2); /* a call, and its wait */
        assert_int_equal(slices[p][3], 1);
    }
    json_decref(root);
    free(path);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),   cmocka_unit_test(test_uneven_steps),
        cmocka_unit_test(test_bubbles), cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
