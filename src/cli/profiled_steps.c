#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* Where batches come from: a loader, or one batch of random tokens. */
typedef struct source {
    by_dataset *dataset;
    by_loader *loader;
    int32_t *tokens; /* and targets behind them */
    by_array arrays[2];
    by_batch batch;
} source;

static void close_source(source *s)
{
    by_loader_close(&s->loader);
    by_dataset_close(&s->dataset);
    free(s->tokens);
}

/* Packs the config's text if need be and opens its training data. */
static by_status open_data(source *s, by_config *config, by_error *error)
{
    by_data_paths paths;
    by_loader_options options = {.batch = (size_t)config->train.batch, .seed = config->seed};
    by_source *windows;
    by_status status = by_data_prepare(&paths, config, NULL, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_config_complete(config, &paths, error);
    if (status == BY_OK) {
        status = by_dataset_open(&s->dataset, paths.train, NULL, error);
    }
    if (status == BY_OK) {
        status =
            by_token_source_open(&windows, s->dataset, (size_t)config->model.context, true, error);
    }
    if (status == BY_OK) {
        status = by_loader_open(&s->loader, windows, &options, error);
    }
    by_data_paths_free(&paths);
    return status;
}

static by_status open_random(source *s, by_config *config, by_error *error)
{
    by_status status = by_config_take_model(config, error);
    if (status != BY_OK) {
        return status;
    }
    if (config->model.vocab < 0) {
        config->model.vocab = CLI_DEFAULT_VOCAB;
    }
    size_t count = (size_t)(config->train.batch * config->model.context);
    s->tokens = malloc(2 * count * sizeof *s->tokens);
    if (s->tokens == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a batch of %zu tokens", count);
    }
    cli_random_tokens(s->tokens, 2 * count, config->model.vocab);
    s->batch = by_batch_of_tokens(s->arrays, s->tokens, s->tokens + count,
                                  (size_t)config->train.batch, (size_t)config->model.context);
    return BY_OK;
}

static by_status watch(by_profile *profile, by_trainer *trainer, by_error *error)
{
    by_status status = BY_OK;
    const char *name;
    for (size_t i = 0; (name = by_trainer_program_name(trainer, i)) != NULL && status == BY_OK;
         i++) {
        status = by_profile_watch(profile, by_trainer_program(trainer, name), name,
                                  strcmp(name, "gradients") == 0, error);
    }
    return status;
}

static by_status step(cli_profiled *p, source *s, by_error *error)
{
    by_step_result result;
    double began = by_clock();
    if (s->loader != NULL) {
        by_status status = by_loader_next(s->loader, &s->batch, error);
        if (status == BY_OK) {
            status = by_profile_span(p->profile, "next batch", began, by_clock(), error);
        }
        if (status != BY_OK) {
            return status;
        }
    }
    double from = by_clock();
    by_status status = by_trainer_step(p->trainer, &s->batch, &result, error);
    double end = by_clock();
    p->seconds += end - began;
    return status == BY_OK ? by_profile_span(p->profile, "step", from, end, error) : status;
}

static by_status take_steps(cli_profiled *p, source *s, int64_t steps, by_error *error)
{
    by_loader_statistics before = {0};
    by_loader_statistics after = {0};
    by_status status = step(p, s, error);
    by_profile_clear(p->profile);
    p->seconds = 0.0;
    if (s->loader != NULL) {
        by_loader_stats(s->loader, &before);
    }
    while (status == BY_OK && p->steps < steps && !cli_stop_requested(NULL)) {
        status = step(p, s, error);
        p->steps++;
    }
    if (status == BY_OK && p->steps == 0) {
        return by_error_set(error, BY_ESTOPPED, "stopped before the first step was recorded");
    }
    if (s->loader != NULL) {
        by_loader_stats(s->loader, &after);
    }
    p->wait_seconds = after.wait_seconds - before.wait_seconds;
    p->waits = after.waits - before.waits;
    return status;
}

static by_status set_up(cli_profiled *p, const by_config *config, by_error *error)
{
    by_status status = by_trainer_open(&p->trainer, config, NULL, error);
    if (status == BY_OK) {
        status = by_trainer_allocate(p->trainer, error);
    }
    if (status == BY_OK) {
        status = by_trainer_initialize(p->trainer, error);
    }
    if (status == BY_OK) {
        status = by_profile_open(&p->profile, error);
    }
    return status == BY_OK ? watch(p->profile, p->trainer, error) : status;
}

by_status cli_profile_steps(cli_profiled *out, by_config *config, int64_t steps, bool use_data,
                            by_error *error)
{
    cli_profiled p = {0};
    source s = {0};
    bool named = config->data.text.count > 0 || config->data.train[0] != '\0';
    p.from_data = use_data && named;
    by_status status = p.from_data ? open_data(&s, config, error) : open_random(&s, config, error);
    if (status == BY_OK) {
        status = by_machine_load(&p.machine, (int)config->train.threads,
                                 BY_MACHINE_F32 | BY_MACHINE_BF16 | BY_MACHINE_MEMORY, error);
    }
    if (status == BY_OK) {
        status = set_up(&p, config, error);
    }
    if (status == BY_OK) {
        status = take_steps(&p, &s, steps, error);
    }
    close_source(&s);
    if (status != BY_OK) {
        cli_profiled_close(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}

void cli_profiled_close(cli_profiled *profiled)
{
    by_profile_close(&profiled->profile);
    by_trainer_close(&profiled->trainer);
}
