/* Runs whose data goes wrong: a NaN in a batch and losses that leap. The model is a GPT-2 whose
 * loss is multiplied by an input, `gain`, which is 1 but in the samples that a test breaks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "banyan/train.h"
#include "checkpoint/storage.h"
#include "runner.h"
#include "temporary.h"
#include "trainer/state/trainer.h"

#define CONTEXT 8
#define VOCAB   61
#define BATCH   6

/* What is broken in the data: read by the loaders' threads while a run goes on. */
static struct {
    uint64_t first; /* sample */
    uint64_t count;
    float gain;
    uint64_t omitted_from; /* samples from here on are those `omitted` further on */
    uint64_t omitted;
} broken;

static const by_array arrays[] = {{"tokens", BY_I32, {1, {CONTEXT}}, NULL},
                                  {"targets", BY_I32, {1, {CONTEXT}}, NULL},
                                  {"gain", BY_F32, {1, {1}}, NULL}};

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    uint64_t index = sample->index;
    index += broken.omitted > 0 && index >= broken.omitted_from ? broken.omitted : 0;
    BY_UNUSED(source);
    BY_UNUSED(error);
    for (uint64_t i = 0; i < CONTEXT; i++) {
        double token = (random_unit(1, 2, index * CONTEXT + i) + 1.0) / 2.0;
        double target = (random_unit(1, 3, index * CONTEXT + i) + 1.0) / 2.0;
        ((int32_t *)rows[0])[i] = (int32_t)(token * VOCAB);
        ((int32_t *)rows[1])[i] = (int32_t)(target * VOCAB);
    }
    bool bad = index >= broken.first && index - broken.first < broken.count;
    *(float *)rows[2] = bad ? broken.gain : 1.0f;
    return BY_OK;
}

static by_source sources[] = {
    {.name = "training",
     .arrays = arrays,
     .array_count = 3,
     .shuffle = true,
     .samples = 100000,
     .sample_targets = CONTEXT,
     .targets = 100000 * CONTEXT,
     .fill = fill},
};

static by_status take_source(by_source **out, by_task_data *data, const by_config *config,
                             bool training, by_error *error)
{
    BY_UNUSED(data);
    BY_UNUSED(config);
    BY_UNUSED(training);
    BY_UNUSED(error);
    *out = &sources[0];
    return BY_OK;
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const by_task *language;
    BY_TRY(by_task_find(&language, config, error));
    BY_TRY(language->loss(config, request, graph, model, error));
    by_value gain = by_graph_input(graph, "gain", BY_F32, BY_SHAPE(request->batch, 1));
    gain = by_reshape(graph, gain, BY_SHAPE(request->batch));
    model->loss = by_mul(graph, model->loss, by_mean(graph, gain, &(int){0}, 1, true));
    return BY_OK;
}

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error);

static const by_task task = {.name = "language",
                             .examples = "tokens",
                             .open = open_data,
                             .source = take_source,
                             .loss = loss};
static by_task_data task_data = {.task = &task, .train_examples = 800000};

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    BY_UNUSED(request);
    BY_UNUSED(error);
    *out = &task_data;
    return BY_OK;
}

/* ---- runs ---- */

typedef struct job {
    const char *const *settings;
    const char *root;
    int ranks;
    bool spoils;     /* a weight begins as what is no number */
    char *run;       /* of the run before, to go on with; then this one's */
    int64_t stop_at; /* 0: never */
    /* rank 0's */
    int64_t step;
    by_status status;
    by_error error;
    char notes[4000];
} job;

typedef struct rank {
    job *job;
    bool leads;
} rank;

static void on_event(void *user, const by_train_event *event)
{
    const rank *r = user;
    job *j = r->job;
    if (r->leads && event->kind == BY_TRAIN_STEPPED) {
        j->step = event->result.step;
    }
    if (r->leads && event->kind == BY_TRAIN_NOTE) {
        size_t length = strlen(j->notes);
        (void)snprintf(j->notes + length, sizeof j->notes - length, "%s\n", event->text);
    }
}

static bool is_stopped(void *user)
{
    const rank *r = user;
    return r->leads && r->job->stop_at > 0 && r->job->step >= r->job->stop_at;
}

static by_config *open_config(const job *j)
{
    static const char *const common[] = {
        "model.kind=gpt2",    "model.layers=4",     "model.heads=2",       "model.width=16",
        "model.context=8",    "model.vocab=61",     "train.threads=1",     "train.steps=16",
        "optimizer.warmup=2", "train.batch=6",      "train.micro_batch=1", "train.eval_every=0",
        "train.log_every=1",  "checkpoint.every=4", "checkpoint.keep=20",  NULL};
    by_error error = {0};
    char text[4096];
    by_config *config = config_of(common, j->settings);
    (void)snprintf(text, sizeof text, "run.dir=%s", j->root);
    check_ok(by_config_set(config, text, &error), &error);
    return config;
}

static by_status build_spoilt(void *user, by_model *out, by_graph *graph,
                              const by_model_config *config, const by_model_request *request,
                              by_error *error)
{
    by_init endless = {BY_INIT_NORMAL, INFINITY};
    BY_UNUSED(user);
    BY_TRY(by_model_build(out, graph, config, request, error));
    by_value spoilt =
        by_graph_parameter(graph, "spoilt", "embed", BY_SHAPE(config->width), endless);
    out->hidden = by_add(graph, out->hidden, spoilt);
    return by_graph_check(graph, error);
}

static by_status train_rank(by_comm *comm, void *user, by_error *error)
{
    job *j = user;
    rank r = {.job = j, .leads = comm == NULL || by_comm_rank(comm) == 0};
    by_config *config = open_config(j);
    const by_trainer_options trainer = {
        .comm = comm, .task = &task, .builder = j->spoils ? build_spoilt : NULL};
    const by_train_options options = {.config = config,
                                      .trainer = &trainer,
                                      .resume = j->run,
                                      .event = on_event,
                                      .stop = is_stopped,
                                      .user = &r};
    char *run = NULL;
    by_status status = by_train(&options, &run, error);
    if (r.leads) {
        j->status = status;
        j->error = *error;
        if (status == BY_OK || status == BY_ESTOPPED || j->run == NULL) {
            free(j->run);
            j->run = run;
            run = NULL;
        }
    }
    free(run);
    by_config_close(&config);
    return BY_OK;
}

static void run(job *j, int64_t stop_at)
{
    by_error error = {0};
    j->stop_at = stop_at;
    j->step = 0;
    j->notes[0] = '\0';
    check_ok(j->ranks == 1 ? train_rank(NULL, j, &error)
                           : by_comm_run_threads(j->ranks, NULL, train_rank, j, &error),
             &error);
}

static void expect_done(const job *j)
{
    if (j->status != BY_OK) {
        fail_msg("%s", j->error.message);
    }
}

static void expect_note(const job *j, const char *text)
{
    if (strstr(j->notes, text) == NULL) {
        fail_msg("'%s' is not in:\n%s", text, j->notes);
    }
}

static void digest_of(const job *j, int64_t step, char out[BY_SHA256_HEX])
{
    char path[4096];
    by_digest digest;
    by_error error = {0};
    (void)snprintf(path, sizeof path, "%s/checkpoints/step-%08lld", j->run, (long long)step);
    check_ok(by_checkpoint_digest(&digest, path, 1, &error), &error);
    memcpy(out, digest.all, sizeof digest.all);
    by_digest_free(&digest);
}

/* The digest at the end of a run, and of one that is stopped under way and resumed. */
static void train(job *j, bool pauses, int64_t stop_at, char out[BY_SHA256_HEX])
{
    if (pauses) {
        run(j, stop_at);
        assert_int_equal(j->status, BY_ESTOPPED);
    }
    run(j, 0);
    expect_done(j);
    digest_of(j, 16, out);
}

static const struct layout {
    int ranks;
    const char *settings[4];
} layouts[] = {
    {1, {NULL}},
    {2, {NULL}},
    {3, {"parallel.shard=3", "parallel.zero=1", NULL}},
    {2, {"parallel.shard=2", "parallel.zero=2", NULL}},
    {2, {"parallel.shard=2", "parallel.zero=3", NULL}},
    {2, {"parallel.pipeline=2", NULL}},
};

static void test_nan_in_a_batch(void **state)
{
    BY_UNUSED(state);
    char want[BY_SHA256_HEX];
    memset(&broken, 0, sizeof broken);
    broken.first = 33; /* of step 6: sample 3 */
    broken.count = 1;
    broken.gain = NAN;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts); i++) {
        for (int pauses = 0; pauses < (i % 4 == 0 ? 2 : 1); pauses++) {
            char have[BY_SHA256_HEX];
            char *root = temporary_make();
            job j = {.settings = layouts[i].settings, .root = root, .ranks = layouts[i].ranks};
            train(&j, pauses, 7, have);
            if (pauses == 0) {
                expect_note(&j, "step 6 was not applied: the loss is nan");
                expect_note(&j, "first in the input 'gain', element 0, micro-batch 3, sample 33");
            }
            if (i == 0 && pauses == 0) {
                memcpy(want, have, sizeof want);
            }
            assert_string_equal(have, want);
            free(j.run);
            temporary_remove(root);
        }
    }
}

/* A weight that is NaN is no fault of the batch: the run ends, and nothing of it is saved. */
static void test_stop(void **state)
{
    BY_UNUSED(state);
    static const char *const stop[] = {"guard.nonfinite=stop", NULL};
    static const char *const two[] = {"guard.max_skips=2", NULL};
    memset(&broken, 0, sizeof broken);
    broken.first = 33;
    broken.count = 1;
    broken.gain = INFINITY;
    for (int i = 0; i < 2; i++) {
        char digest[BY_SHA256_HEX];
        char *root = temporary_make();
        job j = {.settings = i == 0 ? stop : two, .root = root, .ranks = 1 + i};
        run(&j, 0);
        assert_int_equal(j.status, BY_EDIVERGED);
        assert_non_null(
            strstr(j.error.message, i == 0 ? "step 6: the loss is" : "behind 2 steps in a row"));
        assert_non_null(strstr(j.error.message, "first in the input 'gain', element 0, "
                                                "micro-batch"));
        digest_of(&j, 4, digest);
        char *path = by__path_join(j.run, "checkpoints/step-00000008");
        assert_false(by__path_exists(path));
        free(path);
        free(j.run);
        temporary_remove(root);
        broken.count = 18; /* three steps */
    }
}

static void train_spike(const struct layout *layout, const char *policy, bool pauses,
                        int64_t stop_at, job *j, char out[BY_SHA256_HEX])
{
    char spike[64];
    const char *settings[8] = {spike, "guard.spike_window=8", "guard.spike_zscore=10"};
    (void)snprintf(spike, sizeof spike, "guard.spike=%s", policy);
    memcpy(settings + 3, layout->settings, sizeof layout->settings);
    *j = (job){.settings = settings, .root = j->root, .ranks = layout->ranks};
    train(j, pauses, stop_at, out);
    j->settings = NULL;
}

/* Step 11 leaps. A run that goes back to step 8 and on behind step 11 is one whose data lacks the
 * batches between. */
static void test_spikes(void **state)
{
    BY_UNUSED(state);
    static const char *const policies[] = {"warn", "skip", "rollback"};
    char want[3][BY_SHA256_HEX];
    for (size_t p = 0; p < 3; p++) {
        for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts); i++) {
            for (int pauses = 0; pauses < 2 && (p == 2 || i % 5 == 0); pauses++) {
                char have[BY_SHA256_HEX];
                char *root = temporary_make();
                job j = {.root = root};
                memset(&broken, 0, sizeof broken);
                broken.first = 61;
                broken.count = 3;
                broken.gain = 20.0f;
                /* once ahead of the spike, once behind it */
                train_spike(&layouts[i], policies[p], pauses, i % 2 == 0 ? 10 : 9, &j, have);
                expect_note(&j, p == 0 ? "step 11 was applied nevertheless"
                                       : "step 11 was not applied");
                if (p == 2) {
                    expect_note(&j, "rolled back to the checkpoint of step 8; training continues "
                                    "with the samples from 66 on");
                }
                if (i == 0 && pauses == 0) {
                    memcpy(want[p], have, sizeof have);
                }
                assert_string_equal(have, want[p]);
                free(j.run);
                temporary_remove(root);
            }
        }
    }
    assert_string_not_equal(want[0], want[1]);
    assert_string_not_equal(want[1], want[2]);
    char omitted[BY_SHA256_HEX];
    char *root = temporary_make();
    job j = {.root = root};
    memset(&broken, 0, sizeof broken);
    broken.omitted_from = 48;
    broken.omitted = 18;
    train_spike(&layouts[0], "off", false, 0, &j, omitted);
    assert_string_equal(omitted, want[2]);
    free(j.run);
    temporary_remove(root);
}

/* The run ended with an event that says so, and saved nothing behind its last regular
 * checkpoint. */
static void expect_verdict(const job *j, const char *text)
{
    char *events;
    size_t length;
    char *path = by__path_join(j->run, "events.jsonl");
    assert_int_equal(by__file_read(&events, &length, path, 1 << 24, NULL), BY_OK);
    const char *event = strstr(events, "\"diverged\"");
    assert_non_null(event);
    assert_non_null(strstr(event, text));
    free(events);
    free(path);
    uint64_t *steps;
    size_t count;
    path = by__path_join(j->run, "checkpoints");
    assert_int_equal(by__checkpoint_root_steps(&steps, &count, path, NULL), BY_OK);
    assert_true(count > 0 && steps[0] == 8);
    free(steps);
    free(path);
}

/* Stopped behind a rollback, too; and losses that never come down end the run. */
static void test_rollbacks(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"guard.spike=rollback", "guard.spike_window=8",
                                           "guard.spike_zscore=10", "guard.max_rollbacks=2", NULL};
    char want[BY_SHA256_HEX];
    char have[BY_SHA256_HEX];
    memset(&broken, 0, sizeof broken);
    broken.first = 61;
    broken.count = 3;
    broken.gain = 20.0f;
    char *root = temporary_make();
    job j = {.settings = settings, .root = root, .ranks = 1};
    train(&j, false, 0, want);
    free(j.run);
    j.run = NULL;
    run(&j, 10); /* the first time, ahead of the spike */
    assert_int_equal(j.status, BY_ESTOPPED);
    run(&j, 12); /* behind the rollback */
    assert_int_equal(j.status, BY_ESTOPPED);
    expect_note(&j, "back to the checkpoint of step 8");
    char *given_up = by__path_join(j.run, "checkpoints/step-00000010"); /* of the first stop */
    assert_false(by__path_exists(given_up));
    free(given_up);
    run(&j, 0);
    expect_done(&j);
    digest_of(&j, 16, have);
    assert_string_equal(have, want);
    free(j.run);
    j.run = NULL;
    broken.count = 1000;
    for (int ranks = 1; ranks < 3; ranks++) { /* which end alike */
        j.ranks = ranks;
        run(&j, 0);
        assert_int_equal(j.status, BY_EDIVERGED);
        assert_non_null(strstr(j.error.message, "rolled back to step 8 2 times"));
        expect_verdict(&j, "rolled back to step 8 2 times");
        free(j.run);
        j.run = NULL;
    }
    temporary_remove(root);
}

/* Weights that are not finite are never the newest checkpoint, whoever made them so. */
static void test_weights_on_disk(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[][3] = {
        {"checkpoint.every=1", "checkpoint.async=false", NULL},
        {"checkpoint.every=1", "checkpoint.async=true", NULL},
    };
    memset(&broken, 0, sizeof broken);
    for (size_t i = 0; i < 2; i++) {
        for (int ranks = 1; ranks < 3; ranks++) {
            char *root = temporary_make();
            job j = {.settings = settings[i], .root = root, .ranks = ranks, .spoils = true};
            run(&j, 0);
            assert_int_equal(j.status, BY_EDIVERGED);
            assert_non_null(strstr(j.error.message, "'spoilt' is not finite after step"));
            char *path = by__path_join(j.run, "checkpoints");
            by_checkpoint *checkpoint = NULL;
            if (by_checkpoint_open(&checkpoint, path, true, NULL) == BY_OK) {
                fail_msg("a checkpoint of step %llu is there",
                         (unsigned long long)by_checkpoint_step(checkpoint));
            }
            free(path);
            free(j.run);
            temporary_remove(root);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nan_in_a_batch),  cmocka_unit_test(test_stop),
        cmocka_unit_test(test_spikes),          cmocka_unit_test(test_rollbacks),
        cmocka_unit_test(test_weights_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
