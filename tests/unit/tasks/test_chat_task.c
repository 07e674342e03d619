/* Tuning on conversations: how they are packed changes no sum of losses, nor do ranks change a bit,
 * and tokens that a template adds begin as the mean of the others. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/checkpoint.h"
#include "banyan/data.h"
#include "banyan/tokenizer.h"
#include "banyan/trainer.h"
#include "base/base.h"
#include "runner.h"
#include "temporary.h"
#include "trainer/step/trainer_step.h"

enum { RECORDS = 40, STEPS = 4 };

static char *folder;
static char settings[4][600];

/* Records of several forms and lengths, and the tokenizer of a base model. */
static int make_folder(void **state)
{
    by_tokenizer *tokenizer;
    by_error error = {0};
    by_string lines = {0};
    char path[512];
    const by_bpe_options options = {.vocab = 300, .threads = 1};
    BY_UNUSED(state);
    folder = temporary_make();
    for (size_t i = 0; i < RECORDS; i++) {
        int n = (int)(i * 7 % 12);
        if (i % 3 == 0) {
            by_string_format(
                &lines,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"%.*s\"}, {\"role\": "
                "\"assistant\", \"content\": \"a\", \"train\": %s}, {\"role\": \"user\", "
                "\"content\": \"b\"}, {\"role\": \"assistant\", \"content\": \"%zu\"}]}\n",
                n, "what is this", i % 2 == 0 ? "true" : "false", i);
        } else {
            by_string_format(&lines, "{\"question\": \"%zu?\", \"answer\": \"%.*s\"}\n", i, n,
                             "an answer of");
        }
    }
    const by_text text = {lines.data, lines.length};
    check_ok(by_tokenizer_train_bpe(&tokenizer, &options, &text, 1, &error), &error);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    check_ok(by_tokenizer_save(tokenizer, path, &error), &error);
    (void)snprintf(settings[0], sizeof settings[0], "data.tokenizer=%s", path);
    (void)snprintf(path, sizeof path, "%s/talks.jsonl", folder);
    check_ok(by__file_write(path, lines.data, lines.length, &error), &error);
    (void)snprintf(settings[1], sizeof settings[1], "data.text=[%s]", path);
    (void)snprintf(settings[2], sizeof settings[2], "data.cache=%s/cache", folder);
    by_tokenizer_close(&tokenizer);
    by_string_free(&lines);
    return 0;
}

static int drop_folder(void **state)
{
    BY_UNUSED(state);
    temporary_remove(folder);
    return 0;
}

typedef struct chat_run {
    const char *packing;
    double loss; /* of the held-out conversations: sum, */
    double weight;
    size_t samples;
    double losses[4][STEPS]; /* of steps */
    double norms[4][STEPS];
} chat_run;

static by_status open_config(by_config **out, const char *packing, by_error *error)
{
    (void)snprintf(settings[3], sizeof settings[3], "data.packing=%s", packing);
    const char *const all[] = {"task.kind=chat",     "chat.template=chatml",
                               "model.kind=llama",   "model.layers=1",
                               "model.heads=2",      "model.width=16",
                               "model.context=64",   "data.valid_fraction=0.5",
                               "train.batch=4",      "train.micro_batch=1",
                               "train.threads=1",    "train.steps=20",
                               "optimizer.warmup=0", "precision.compute=f32",
                               "parallel.data=-1",   settings[0],
                               settings[1],          settings[2],
                               settings[3]};
    return by_config_parse(out, "chat.yaml", "", 0, all, BY_ARRAY_LENGTH(all), error);
}

/* Sums the losses of a pass over the held-out conversations. */
static by_status evaluate(chat_run *r, by_trainer *trainer, by_task_data *data, by_error *error)
{
    by_loader *loader;
    by_batch batch;
    BY_TRY(by_trainer_loader(&loader, trainer, data, false, error));
    by_status status = by_loader_next(loader, &batch, error);
    while (status == BY_OK && batch.batch > 0) {
        const float *values;
        size_t width;
        double loss;
        status = by_trainer_evaluate(trainer, &batch, &loss, &values, &width, error);
        r->loss += loss;
        r->weight += batch.global_weight;
        r->samples += batch.batch;
        if (status == BY_OK) {
            status = by_loader_next(loader, &batch, error);
        }
    }
    by_loader_close(&loader);
    return status;
}

static by_status train(chat_run *r, by_trainer *trainer, by_task_data *data, int rank,
                       by_error *error)
{
    by_loader *loader;
    BY_TRY(by_trainer_loader(&loader, trainer, data, true, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < STEPS && status == BY_OK; i++) {
        by_batch batch;
        by_step_result result = {0};
        status = by_loader_next(loader, &batch, error);
        if (status == BY_OK) {
            status = by_trainer_step(trainer, &batch, &result, error);
        }
        r->losses[rank][i] = result.loss;
        r->norms[rank][i] = result.norm;
    }
    by_loader_close(&loader);
    return status;
}

static by_status run_trainer(chat_run *r, by_comm *comm, const by_config *config,
                             by_task_data *data, by_error *error)
{
    by_trainer *trainer;
    const by_trainer_options options = {.task = data->task, .comm = comm};
    BY_TRY(by_trainer_open(&trainer, config, &options, error));
    by_status status = by_trainer_allocate(trainer, error);
    if (status == BY_OK) {
        status = by_trainer_initialize(trainer, error);
    }
    if (status == BY_OK && comm == NULL) {
        status = evaluate(r, trainer, data, error);
    }
    if (status == BY_OK) {
        status = train(r, trainer, data, comm == NULL ? 0 : by_comm_rank(comm), error);
    }
    by_trainer_close(&trainer);
    return status;
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    chat_run *r = user;
    by_config *config;
    by_task_data *data;
    BY_TRY(open_config(&config, r->packing, error));
    const by_task_request request = {.purpose = BY_TASK_TRAIN, .config = config};
    by_status status = by_task_open(&data, NULL, &request, error);
    if (status == BY_OK) {
        status = by_task_complete(data, config, error);
        if (status == BY_OK) {
            status = run_trainer(r, comm, config, data, error);
        }
        by_task_close(&data);
    }
    by_config_close(&config);
    return status;
}

static void run(chat_run *r, int ranks)
{
    by_error error = {0};
    by_status status = ranks == 0 ? run_rank(NULL, r, &error)
                                  : by_comm_run_threads(ranks, NULL, run_rank, r, &error);
    check_ok(status, &error);
}

static void test_packing(void **state)
{
    chat_run packed = {.packing = "best_fit"};
    chat_run padded = {.packing = "padded"};
    BY_UNUSED(state);
    run(&packed, 0);
    run(&padded, 0);
    assert_true(packed.samples < padded.samples);
    assert_true(packed.weight > 50.0);
    assert_true(packed.weight == padded.weight);
    assert_true(fabs(packed.loss - padded.loss) <= 1e-6 * padded.loss);
}

static void test_ranks(void **state)
{
    chat_run alone = {.packing = "best_fit"};
    chat_run two = {.packing = "best_fit"};
    BY_UNUSED(state);
    run(&alone, 0);
    run(&two, 2);
    for (int rank = 0; rank < 2; rank++) {
        assert_memory_equal(two.losses[rank], alone.losses[0], sizeof alone.losses[0]);
        assert_memory_equal(two.norms[rank], alone.norms[0], sizeof alone.norms[0]);
    }
}

/* ---- new tokens ---- */

/* With the config, which lives as long. */
static by_trainer *open_trainer(by_config **config, const char *vocab)
{
    static const char *const common[] = {"model.kind=llama",
                                         "model.layers=1",
                                         "model.heads=2",
                                         "model.width=16",
                                         "model.context=8",
                                         "train.batch=1",
                                         NULL};
    by_error error = {0};
    by_trainer *trainer;
    *config = config_of(common, (const char *const[]){vocab, NULL});
    check_ok(by_trainer_open(&trainer, *config, NULL, &error), &error);
    check_ok(by_trainer_allocate(trainer, &error), &error);
    check_ok(by_trainer_initialize(trainer, &error), &error);
    return trainer;
}

static const float *table_of(const by_trainer *trainer, const char *name)
{
    for (size_t i = 0; i < by_trainer_parameter_count(trainer); i++) {
        by_tensor_view view = by_trainer_parameter(trainer, i);
        if (strcmp(view.name, name) == 0) {
            return view.data;
        }
    }
    fail_msg("there is no %s", name);
    return NULL;
}

static void test_new_tokens(void **state)
{
    static const char *const names[] = {"model.embed_tokens.weight", "lm_head.weight"};
    enum { KNOWN = 9, ALL = 12, WIDTH = 16 };
    by_error error = {0};
    by_weights *weights;
    by_tensor_view views[64];
    char path[512];
    by_config *configs[2];
    by_trainer *base = open_trainer(&configs[0], "model.vocab=9");
    by_trainer *grown = open_trainer(&configs[1], "model.vocab=12");
    size_t count = by_trainer_parameter_count(base);
    BY_UNUSED(state);
    for (size_t i = 0; i < count; i++) {
        views[i] = by_trainer_parameter(base, i);
    }
    (void)snprintf(path, sizeof path, "%s/base", folder);
    check_ok(by__make_dirs(path, &error), &error);
    check_ok(by_weights_write(path, views, count, 0, &error), &error);
    check_ok(by_weights_open(&weights, path, &error), &error);
    check_ok(by__trainer_start_from(grown, weights, KNOWN, &error), &error);
    for (size_t n = 0; n < 2; n++) {
        const float *old = table_of(base, names[n]);
        const float *new = table_of(grown, names[n]);
        assert_memory_equal(new, old, KNOWN * WIDTH * sizeof *new);
        for (size_t k = 0; k < WIDTH; k++) {
            double mean = 0.0;
            for (size_t i = 0; i < KNOWN; i++) {
                mean += (double)old[i * WIDTH + k] / KNOWN;
            }
            for (size_t i = KNOWN; i < ALL; i++) {
                assert_true(fabs((double)new[i * WIDTH + k] - mean) < 1e-8);
            }
        }
    }
    by_weights_close(&weights);
    by_trainer_close(&base);
    by_trainer_close(&grown);
    by_config_close(&configs[0]);
    by_config_close(&configs[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_new_tokens),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
