/* Trains a part, or goes on with it, and remembers its run, its time and its energy. */
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "banyan/machine.h"
#include "banyan/reinforce.h"
#include "banyan/train.h"
#include "base/paths.h"
#include "job/job.h"

typedef struct part_training {
    by_assistant *assistant;
    by__assistant_part *part;
    const by_assistant_options *options;
    by__job_meter meter;
    double then;    /* since when time was not added */
    double counted; /* joules that were */
    by_status status;
    by_error error;
} part_training;

static void add_cost(part_training *t)
{
    double now = by__now();
    t->part->seconds += now - t->then;
    t->then = now;
    by__job_meter_update(&t->meter, false);
    double joules = by__job_meter_joules(&t->meter);
    if (joules >= 0.0) {
        t->part->joules = joules - t->counted + (t->part->joules > 0.0 ? t->part->joules : 0.0);
        t->counted = joules;
    }
}

static void save(part_training *t)
{
    if (t->status == BY_OK) {
        t->status = by__assistant_save(t->assistant, &t->error);
    }
}

static void on_event(void *user, const by_train_event *e)
{
    part_training *t = user;
    if (e->kind == BY_TRAIN_STARTED) {
        char *run = by__strdup(e->run);
        if (run != NULL) {
            free(t->part->run);
            t->part->run = run;
        }
        save(t);
    } else if (e->kind == BY_TRAIN_STEPPED || e->kind == BY_TRAIN_SAVED) {
        add_cost(t);
        if (e->kind == BY_TRAIN_SAVED) {
            save(t);
        }
    }
    if (t->options->train_event != NULL) {
        t->options->train_event(t->options->user, e);
    }
}

static bool on_stop(void *user)
{
    part_training *t = user;
    return t->status != BY_OK || (t->options->stop != NULL && t->options->stop(t->options->user));
}

static by_status train(part_training *t, const by_config *config, by_error *error)
{
    by_dtype dtype = BY_F32;
    by_train_options options = {.config = config,
                                .resume = t->part->run,
                                .from_start = t->part->run != NULL,
                                .rollouts = by_reinforce_maker(),
                                .event = on_event,
                                .stop = on_stop,
                                .user = t};
    (void)by_precision_parse(&dtype, config->precision.compute, NULL);
    /* Only for the share of it that is shown. */
    (void)by_machine_peak(&options.peak_gflops, dtype, config->device, (int)config->train.threads,
                          NULL);
    by__job_meter_open(&t->meter, config->device);
    t->then = by__now();
    by_status status = by_train(&options, NULL, error);
    by__job_meter_update(&t->meter, true);
    add_cost(t);
    save(t);
    by__job_meter_close(&t->meter);
    if (t->status != BY_OK) {
        if (error != NULL) {
            *error = t->error;
        }
        return t->status;
    }
    return status;
}

static void forget_run(by__assistant_part *part)
{
    free(part->run);
    part->run = NULL;
    part->seconds = 0.0;
    part->joules = -1.0;
}

/* A run whose directory was removed cannot go on. *why says so; it stays empty otherwise. */
static by_status forget_gone(by_string *why, by__assistant_part *part, by_error *error)
{
    char *path;
    if (part->run == NULL) {
        return BY_OK;
    }
    BY_TRY(by__path_make(&path, part->run, "config.yaml", error));
    if (!by__path_exists(path)) {
        by__string_append(why, path);
        by__string_append(why, " is gone: the part is trained again");
        forget_run(part);
    }
    free(path);
    return by_string_check(why, error);
}

by_status by__assistant_train(by_assistant *a, size_t index, const by_assistant_options *o,
                              by_error *error)
{
    by__assistant_part *part = &a->parts[index];
    part_training t = {.assistant = a, .part = part, .options = o};
    by_config *config;
    char hash[33];
    BY_TRY(by__assistant_config_hash(hash, part, error));
    if (strcmp(hash, part->config) != 0) {
        /* Its file has another config than its run: a new one. */
        memcpy(part->config, hash, sizeof hash);
        forget_run(part);
    }
    by_string gone = {0};
    by_status status = forget_gone(&gone, part, error);
    if (status == BY_OK) {
        by__assistant_tell(a, o, BY_ASSISTANT_TRAINS, index, gone.data);
    }
    by_string_free(&gone);
    BY_TRY(status);
    if (part->run != NULL) {
        BY_TRY(by_config_open_run(&config, part->run, NULL, 0, error));
    } else {
        BY_TRY(by_config_open(&config, part->file, NULL, 0, error));
    }
    status = by_config_resolve(config, error);
    status = status == BY_OK ? train(&t, config, error) : status;
    by_config_close(&config);
    BY_TRY(status);
    BY_TRY(by__assistant_refresh(a, error));
    by__assistant_tell(a, o, BY_ASSISTANT_TRAINED, index, NULL);
    return BY_OK;
}
