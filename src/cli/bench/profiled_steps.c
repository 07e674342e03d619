#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

/* The source of batches: a loader, or one random batch. */
typedef struct batch_source {
    by_task_data *data;
    by_loader *loader;
    by_random_batch *random;
} batch_source;

static void close_source(batch_source *s)
{
    by_loader_close(&s->loader);
    by_task_close(&s->data);
    by_random_batch_close(&s->random);
}

/* Opens the config's training data, packing text first. */
static by_status open_data(batch_source *s, by_config *config, by_error *error)
{
    const by_task_request request = {.config = config};
    by_status status = by_task_open(&s->data, NULL, &request, error);
    return status == BY_OK ? by_task_complete(s->data, config, error) : status;
}

/* Prepares rank 0 first: it may pack text into files that the others read, and it measures the
 * machine while they wait. */
static by_status prepare(cli_profiled *p, batch_source *s, by_config *config, by_comm *comm,
                         by_error *error)
{
    bool leads = comm == NULL || by_comm_rank(comm) == 0;
    by_status status = BY_OK;
    if (!leads) {
        status = by_comm_barrier(comm, "the data", error);
    }
    if (status == BY_OK) {
        status = p->from_data ? open_data(s, config, error) : cli_assume_sizes(config, error);
    }
    if (status == BY_OK && leads) {
        status = by_machine_load(&p->machine, config->device, (int)config->train.threads,
                                 BY_MACHINE_F32 | BY_MACHINE_BF16 | BY_MACHINE_MEMORY, error);
    }
    return status == BY_OK && leads && comm != NULL ? by_comm_barrier(comm, "the data", error)
                                                    : status;
}

/* Returns the kind of one of the trainer's programs; a stage's program has its number after the
 * name. */
static by_profile_work work_of(const char *name)
{
    static const struct {
        const char *name;
        by_profile_work work;
    } works[] = {{"gradients", BY_PROFILE_WORK_MODEL},
                 {"last gradients", BY_PROFILE_WORK_MODEL},
                 {"forward", BY_PROFILE_PASS_FORWARD},
                 {"backward", BY_PROFILE_PASS_BACKWARD},
                 {"weights", BY_PROFILE_PASS_WEIGHTS}};
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        size_t length = strlen(works[i].name);
        if (strncmp(name, works[i].name, length) == 0 &&
            name[length + strspn(name + length, " 0123456789")] == '\0') {
            return works[i].work;
        }
    }
    return BY_PROFILE_WORK_UPDATE;
}

static by_status watch(by_profile *profile, by_trainer *trainer, by_error *error)
{
    by_status status = BY_OK;
    const char *name;
    for (size_t i = 0; (name = by_trainer_program_name(trainer, i)) != NULL && status == BY_OK;
         i++) {
        status = by_profile_watch(profile, by_trainer_program(trainer, name), name, work_of(name),
                                  error);
    }
    return status;
}

static by_status step(cli_profiled *p, batch_source *s, by_error *error)
{
    by_step_result result;
    by_batch batch;
    double began = by_clock();
    if (s->loader == NULL) {
        batch = *by_random_batch_view(s->random);
    } else {
        by_status status = by_loader_next(s->loader, &batch, error);
        if (status == BY_OK) {
            status = by_profile_span(p->profile, "next batch", began, by_clock(), error);
        }
        if (status != BY_OK) {
            return status;
        }
    }
    double from = by_clock();
    by_status status = by_trainer_step(p->trainer, &batch, &result, error);
    double end = by_clock();
    p->seconds += end - began;
    p->examples += status == BY_OK ? result.examples : 0;
    return status == BY_OK ? by_profile_span(p->profile, "step", from, end, error) : status;
}

/* Takes steps. alone: a single rank; several ranks take equally many, so that stopping one stops
 * all. */
static by_status run_steps(cli_profiled *p, batch_source *s, int64_t steps, bool alone,
                           by_error *error)
{
    by_loader_statistics before = {0};
    by_loader_statistics after = {0};
    by_status status = step(p, s, error);
    by_profile_clear(p->profile);
    p->seconds = 0.0;
    p->examples = 0;
    if (s->loader != NULL) {
        by_loader_stats(s->loader, &before);
    }
    while (status == BY_OK && p->steps < steps && !cli_stop_requested(NULL)) {
        status = step(p, s, error);
        p->steps++;
    }
    if (status == BY_OK && p->steps < (alone ? 1 : steps)) {
        return by_error_set(error, BY_ESTOPPED, "interrupted before %s recorded",
                            alone ? "the first step was" : "all steps were");
    }
    if (s->loader != NULL) {
        by_loader_stats(s->loader, &after);
    }
    p->wait_seconds = after.wait_seconds - before.wait_seconds;
    p->waits = after.waits - before.waits;
    return status;
}

static by_status set_up(cli_profiled *p, by_config *config, by_comm *comm, by_error *error)
{
    const by_trainer_options options = {.comm = comm, .speeds = cli_speeds(config)};
    by_status status = by_trainer_open_fitting(&p->trainer, config, &options, error);
    if (status == BY_OK) {
        status = by_trainer_allocate(p->trainer, error);
    }
    if (status == BY_OK) {
        status = by_trainer_initialize(p->trainer, error);
    }
    if (status == BY_OK) {
        status = by_profile_open(&p->profile, error);
    }
    if (status == BY_OK && comm != NULL) {
        by_profile_watch_comm(p->profile, comm);
    }
    return status == BY_OK ? watch(p->profile, p->trainer, error) : status;
}

/* In a pipeline, the ranks differ only in their position on the first axis of the mesh. */
static by_status gather(cli_profiled *p, const by_config *config, by_comm *comm, by_error *error)
{
    char place[96];
    by_trainer_place(p->trainer, place, sizeof place);
    int stages = (int)config->parallel.pipeline;
    int pipelines = stages > 1 ? by_comm_size(comm) / stages : 0;
    const by_profile_place mine = {.place = place,
                                   .pipeline = pipelines > 0 ? by_comm_rank(comm) % pipelines : -1,
                                   .planned = by_trainer_memory(p->trainer)->total,
                                   .resident = by_peak_resident_bytes()};
    p->backend = by_comm_backend(comm);
    return by_profile_gather(&p->ranks, p->profile, &mine, error);
}

by_status cli_profile_steps(cli_profiled *out, by_config *config, int64_t steps, bool use_data,
                            by_comm *comm, by_error *error)
{
    cli_profiled p = {0};
    batch_source s = {0};
    const by_task *task;
    by_status status = by_task_find(&task, config, error);
    if (status == BY_OK) {
        p.from_data = use_data && (task->knows(config) & BY_TASK_DATA) != 0;
        status = prepare(&p, &s, config, comm, error);
    }
    if (status == BY_OK) {
        status = set_up(&p, config, comm, error);
    }
    if (status == BY_OK) {
        status = p.from_data ? by_trainer_set_data(p.trainer, s.data, error)
                             : by_random_batch_open(&s.random, p.trainer, error);
    }
    if (status == BY_OK && p.from_data) {
        status = by_trainer_loader(&s.loader, p.trainer, s.data, true, error);
    }
    if (status == BY_OK) {
        status = run_steps(&p, &s, steps, comm == NULL, error);
    }
    if (status == BY_OK && comm != NULL) {
        status = gather(&p, config, comm, error);
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
    by_profile_ranks_close(&profiled->ranks);
    by_profile_close(&profiled->profile);
    by_trainer_close(&profiled->trainer);
}
