/* Ranks that are slower than others are named, once, with what they lose their time in; in the rule
 * itself, and in a run of which one rank is slowed down. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "job/job.h"
#include "runner.h"
#include "temporary.h"

/* ---- the rule ---- */

static by__job_own_time of(double compute, double data, double saving)
{
    return (by__job_own_time){{(float)compute, (float)data, (float)saving}};
}

static by__job_stragglers *open_stragglers(const int *work, int ranks)
{
    by__job_stragglers *s;
    by_error error = {0};
    check_ok(by__job_stragglers_open(&s, work, ranks, &error), &error);
    return s;
}

/* Steps until somebody is named, 0: nobody in `most`. */
static int steps_until(by__job_stragglers *s, const by__job_own_time *times, int most,
                       by__job_straggler *named)
{
    for (int i = 1; i <= most; i++) {
        int count = by__job_stragglers_add(s, times, named);
        if (count > 0) {
            assert_int_equal(count, 1);
            return i;
        }
    }
    return 0;
}

static void test_rule(void **state)
{
    BY_UNUSED(state);
    static const int work[4] = {0};
    by__job_straggler named[4];
    by__job_stragglers *s = open_stragglers(work, 4);
    const by__job_own_time slow[] = {of(1.0, 0.0, 0.0), of(1.1, 0.0, 0.0), of(1.0, 0.3, 0.0),
                                     of(0.9, 0.0, 0.0)};
    const by__job_own_time even[] = {of(1.0, 0.0, 0.0), of(1.1, 0.0, 0.0), of(1.0, 0.1, 0.0),
                                     of(0.9, 0.0, 0.0)};
    assert_int_equal(steps_until(s, even, 2000, named), 0);
    /* 19 steps are too few, and one that is not slow begins anew. */
    assert_int_equal(steps_until(s, slow, 19, named), 0);
    assert_int_equal(steps_until(s, even, 1, named), 0);
    assert_int_equal(steps_until(s, slow, 2000, named), 20);
    assert_int_equal(named[0].rank, 2);
    assert_int_equal(named[0].steps, 20);
    assert_true(fabs(named[0].seconds - 1.3) < 1e-6 && fabs(named[0].median - 1.0) < 1e-6);
    assert_string_equal(named[0].part, "reading data");
    /* Again if it goes on. */
    assert_int_equal(steps_until(s, slow, 2000, named), 980);
    assert_int_equal(steps_until(s, slow, 2000, named), 1000);
    assert_int_equal(named[0].steps, 2000);
    by__job_stragglers_close(&s);
}

/* Ranks with other work are not compared, of two the faster one is the median, and differences of
 * less than a millisecond are none. */
static void test_compared(void **state)
{
    BY_UNUSED(state);
    static const int stages[4] = {0, 0, 1, 1};
    static const int alone[2] = {0, 1};
    by__job_straggler named[4];
    by__job_stragglers *s = open_stragglers(stages, 4);
    const by__job_own_time two[] = {of(1.0, 0.0, 0.0), of(1.1, 0.0, 0.0), of(3.0, 0.0, 0.0),
                                    of(3.0, 0.0, 0.7)};
    assert_int_equal(steps_until(s, two, 40, named), 20);
    assert_int_equal(named[0].rank, 3);
    assert_true(fabs(named[0].median - 3.0) < 1e-6);
    assert_string_equal(named[0].part, "saving");
    by__job_stragglers_close(&s);
    s = open_stragglers(alone, 2);
    const by__job_own_time other[] = {of(1.0, 0.0, 0.0), of(2.0, 0.0, 0.0)};
    assert_int_equal(steps_until(s, other, 40, named), 0);
    by__job_stragglers_close(&s);
    s = open_stragglers(stages, 2);
    const by__job_own_time tiny[] = {of(1e-3, 0.0, 0.0), of(1.9e-3, 0.0, 0.0)};
    assert_int_equal(steps_until(s, tiny, 40, named), 0);
    by__job_stragglers_close(&s);
}

/* ---- a run ---- */

#define RANKS 4
#define SLOW  1

/* Which rank is slow, and in what. */
typedef struct job {
    const by_config *config;
    bool data;
    char *run;
    char said[2000];
} job;

typedef struct worker {
    job *job;
    int rank;
} worker;

/* Sleeps for longer the longer no rank was named: other work of the machine slows ranks, too. */
static void doze(void)
{
    static atomic_int dozes; /* one rank at a time sleeps */
    const long milliseconds = 50 * (1 + atomic_fetch_add(&dozes, 1) / 40);
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

static void on_event(void *user, const by_train_event *event)
{
    worker *w = user;
    size_t length = strlen(w->job->said);
    if (event->kind == BY_TRAIN_NOTE) {
        (void)snprintf(w->job->said + length, sizeof w->job->said - length, "%s\n", event->text);
    }
}

static void on_progress(void *user, int64_t step, const char *phase)
{
    const worker *w = user;
    BY_UNUSED(step);
    if (w->rank == SLOW && !w->job->data && strcmp(phase, "step") == 0) {
        doze();
    }
}

/* However often others were slow too: it goes on until a rank is named. */
static bool is_done(void *user)
{
    const worker *w = user;
    return w->rank == 0 && strstr(w->job->said, "is slow") != NULL;
}

/* The task's own source, slowly. */
typedef struct slow_source {
    by_source base;
    by_source *inner;
} slow_source;

static by_status fill_slowly(const by_source *source, const by_source_sample *sample,
                             void *const *rows, by_error *error)
{
    const slow_source *s = (const slow_source *)source;
    doze();
    return s->inner->fill(s->inner, sample, rows, error);
}

static void close_slow(by_source *source)
{
    slow_source *s = (slow_source *)source;
    by_source_close(&s->inner);
    free(s);
}

static by_status open_slow(by_source **out, by_task_data *data, const by_config *config,
                           bool training, by_error *error)
{
    slow_source *s;
    const by_task *task;
    BY_TRY(by_task_find(&task, config, error));
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source", error));
    by_status status = task->source(&s->inner, data, config, training, error);
    if (status != BY_OK) {
        free(s);
        return status;
    }
    s->base = *s->inner;
    s->base.fill = fill_slowly;
    s->base.close = close_slow;
    *out = &s->base;
    return BY_OK;
}

/* The task of the slow rank; its data say that they are its own. */
static by_task slow_task;

static by_status open_slow_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    const by_task *task;
    BY_TRY(by_task_find(&task, request->config, error));
    BY_TRY(task->open(out, request, error));
    (*out)->task = &slow_task;
    return BY_OK;
}

static by_status train_rank(by_comm *comm, void *user, by_error *error)
{
    job *j = user;
    worker w = {.job = j, .rank = by_comm_rank(comm)};
    const by_trainer_options trainer = {.comm = comm,
                                        .task = w.rank == SLOW && j->data ? &slow_task : NULL};
    const by_train_options options = {.config = j->config,
                                      .trainer = &trainer,
                                      .event = on_event,
                                      .stop = is_done,
                                      .progress = on_progress,
                                      .user = &w};
    char *run = NULL;
    by_status status = by_train(&options, &run, error);
    if (w.rank == 0) {
        j->run = run;
    } else {
        free(run);
    }
    return status == BY_ESTOPPED ? BY_OK : status;
}

static by_config *open_config(const char *root)
{
    static const char *const settings[] = {
        "model.layers=1",      "model.heads=2",      "model.width=8",      "model.context=8",
        "data.tokenizer=char", "train.threads=1",    "train.steps=400",    "train.batch=4",
        "train.micro_batch=1", "train.log_every=10", "train.eval_every=0", "train.eval_batches=1",
        "optimizer.warmup=1",  "checkpoint.every=0"};
    by_error error = {0};
    by_config *config;
    char text[4096];
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, "precision.compute=f32", &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    (void)snprintf(text, sizeof text, "run.dir=%s/runs", root);
    check_ok(by_config_set(config, text, &error), &error);
    (void)snprintf(text, sizeof text, "data.text=[%s/text.txt]", root);
    check_ok(by_config_set(config, text, &error), &error);
    (void)snprintf(text, sizeof text, "data.cache=%s/cache", root);
    check_ok(by_config_set(config, text, &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) {
        count++;
    }
    return count;
}

/* The slow rank is named once, with what it is slow in, in a note and in the events. */
static void check_run(bool data)
{
    by_error error = {0};
    char *root = temporary_make();
    char *path = by__path_join(root, "text.txt");
    char text[3000];
    char *events;
    size_t length;
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = "abcdefg hijklmnop\n"[i * i % 18];
    }
    check_ok(by__file_write(path, text, sizeof text, &error), &error);
    free(path);
    by_config *config = open_config(root);
    job j = {.config = config, .data = data};
    const by_task *task;
    check_ok(by_task_find(&task, config, &error), &error);
    slow_task = *task;
    slow_task.open = open_slow_data;
    slow_task.source = open_slow;
    check_ok(by_comm_run_threads(RANKS, NULL, train_rank, &j, &error), &error);
    assert_int_equal(count_of(j.said, "is slow"), 1);
    assert_int_equal(count_of(j.said, "rank 1 ("), 1);
    assert_int_equal(count_of(j.said, data ? "most in reading data" : "most in computing"), 1);
    path = by__path_join(j.run, "events.jsonl");
    check_ok(by__file_read(&events, &length, path, 1 << 20, &error), &error);
    assert_int_equal(count_of(events, "\"event\":\"straggler\""), 1);
    assert_non_null(strstr(events, "\"rank\":1,\"host\":"));
    assert_non_null(strstr(events, data ? "\"part\":\"reading data\"" : "\"part\":\"computing\""));
    free(events);
    free(path);
    free(j.run);
    by_config_close(&config);
    temporary_remove(root);
}

static void test_slow_rank(void **state)
{
    BY_UNUSED(state);
    check_run(false);
}

static void test_slow_data(void **state)
{
    BY_UNUSED(state);
    check_run(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_compared),
        cmocka_unit_test(test_slow_rank),
        cmocka_unit_test(test_slow_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
