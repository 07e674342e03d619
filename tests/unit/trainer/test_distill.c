/* A teacher in the graph of a student (section distill): the weights that are trained do not depend
 * on ranks, micro-batches or what is divided; the teacher's are no parameters, and what does not
 * fit is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/model.h"
#include "rank_job.h"
#include "runner.h"
#include "temporary.h"
#include "trainer/state/trainer.h"

static char *directory;

/* Writes a model that transformers could load. */
static void write_teacher(const char *const *settings)
{
    by_error error = {0};
    by_config *config = rank_job_config(settings);
    by_graph *graph;
    char *json = NULL;
    by_tensor_view views[64] = {{0}};
    size_t count = 0;
    check_ok(by_train_graph(&graph, NULL, config, NULL, NULL, "forward", &error), &error);
    for (by_value v = 0; v < by_graph_value_count(graph); v++) {
        by_value_info info;
        check_ok(by_graph_value(graph, v, &info, &error), &error);
        if (info.role == BY_ROLE_PARAMETER) {
            by_tensor_view *view = &views[count++];
            float *data = malloc((size_t)by_shape_count(&info.shape) * sizeof *data);
            assert_non_null(data);
            check_ok(by_parameter_init(data, graph, v, 3, &error), &error);
            for (int64_t i = 0; i < by_shape_count(&info.shape); i++) {
                data[i] *= info.shape.rank > 1 ? 8.0f : 1.0f; /* opinions that differ by token */
            }
            *view = (by_tensor_view){
                .name = info.name, .dtype = BY_F32, .rank = info.shape.rank, .data = data};
            memcpy(view->shape, info.shape.dim, sizeof info.shape.dim);
        }
    }
    check_ok(by_weights_write(directory, views, count, 0, &error), &error);
    check_ok(by_model_config_json(&json, &config->model, -1, &error), &error);
    char *path = by__path_join(directory, "config.json");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(json, file) >= 0);
    assert_int_equal(fclose(file), 0);
    for (size_t i = 0; i < count; i++) {
        free((void *)(uintptr_t)views[i].data);
    }
    free(path);
    free(json);
    by_graph_close(&graph);
    by_config_close(&config);
}

static const char *teacher(void)
{
    static char setting[300];
    (void)snprintf(setting, sizeof setting, "distill.teacher=%s", directory);
    return setting;
}

static void test_ranks(void **state)
{
    BY_UNUSED(state);
    static const int two[] = {2, 4};
    static const int three[] = {3};
    const char *const settings[][6] = {
        {teacher(), "model.kind=llama", NULL},
        {teacher(), "precision.compute=bf16", "distill.hidden=0.5", NULL},
        {teacher(), "parallel.shard=2", "parallel.zero=1", NULL},
        {teacher(), "parallel.shard=2", "parallel.zero=2", "distill.hidden=0.5", NULL},
        {teacher(), "parallel.shard=2", "parallel.zero=3", "precision.compute=bf16", NULL},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        rank_job_compare(two, BY_ARRAY_LENGTH(two), settings[i]);
    }
    rank_job_compare(three, 1, settings[0]);
}

/* Memory's settings and the size of micro-batches of equal sums show in no bit. */
static void test_recompute(void **state)
{
    BY_UNUSED(state);
    const char *const plain[] = {teacher(), "distill.temperature=3", NULL};
    const char *const blocks[] = {teacher(), "distill.temperature=3", "memory.recompute=block",
                                  NULL};
    rank_job_agree(plain, 1, blocks);
}

static void test_is_no_parameter(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    const char *const with[] = {teacher(), NULL};
    const char *const without[] = {NULL};
    by_config *configs[] = {rank_job_config(with), rank_job_config(without)};
    by_trainer *trainers[2];
    for (int i = 0; i < 2; i++) {
        check_ok(by_trainer_open(&trainers[i], configs[i], &(by_trainer_options){0}, &error),
                 &error);
    }
    const by_memory_report *a = by_trainer_memory(trainers[0]);
    const by_memory_report *b = by_trainer_memory(trainers[1]);
    assert_int_equal(by_trainer_parameter_count(trainers[0]),
                     by_trainer_parameter_count(trainers[1]));
    assert_int_equal(a->gradients, b->gradients);
    assert_int_equal(a->optimizer, b->optimizer);
    /* At least 2 blocks of 12 width^2, f32. */
    assert_true(a->parameters - b->parameters >= 2 * 12 * 32 * 32 * 4);
    assert_true(by_trainer_size(trainers[0])->parameters ==
                by_trainer_size(trainers[1])->parameters);
    for (int i = 0; i < 2; i++) {
        by_trainer_close(&trainers[i]);
        by_config_close(&configs[i]);
    }
}

static void refuse(const char *const *settings, const char *why)
{
    static const char *const none[] = {NULL};
    by_error error = {0};
    by_config *config = rank_job_config(none);
    by_trainer *trainer = NULL;
    by_status status = BY_OK;
    for (size_t i = 0; settings[i] != NULL && status == BY_OK; i++) {
        status = by_config_set(config, settings[i], &error);
    }
    if (status == BY_OK) {
        status = by_config_resolve(config, &error);
    }
    if (status == BY_OK) {
        status = by_trainer_open(&trainer, config, &(by_trainer_options){0}, &error);
    }
    assert_int_not_equal(status, BY_OK);
    if (strstr(error.message, why) == NULL) {
        fail_msg("'%s' does not say '%s'", error.message, why);
    }
    by_trainer_close(&trainer);
    by_config_close(&config);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    const char *const vocab[] = {teacher(), "model.vocab=62", NULL};
    const char *const stages[] = {teacher(), "parallel.pipeline=2", NULL};
    const char *const nothing[] = {"distill.teacher=/nowhere", NULL};
    const char *const context[] = {teacher(), "model.context=16", NULL};
    refuse(vocab, "has a vocabulary of 61 tokens, the model that is trained one of 62");
    refuse(stages, "set parallel.pipeline: 1");
    refuse(nothing, "distill.teacher: ");
    refuse(context, "the teacher has a context of 8, the student one of 16");
}

static int set_up(void **state)
{
    BY_UNUSED(state);
    const char *const settings[] = {"model.width=32", "model.dropout=0", NULL};
    directory = temporary_make();
    assert_non_null(directory);
    write_teacher(settings);
    return 0;
}

static int tear_down(void **state)
{
    BY_UNUSED(state);
    temporary_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_is_no_parameter),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
