/* The config of a part: by the dial, or from its settings and measured steps. */
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "banyan/plan.h"
#include "banyan/program.h"
#include "banyan/reinforce.h"
#include "banyan/train.h"
#include "config/kind.h"

/* Seconds of measuring, a share of the part's. */
#define MEASURING_SHARE 0.04
#define MEASURING_LEAST 0.5
#define MEASURING_MOST  8.0
/* Checkpoints of a run. */
#define SAVES 8

/* ---- before any part ---- */

/* What a reward needs beside its name is in the part's own file, or nowhere. */
static by_status check_reward(const by__assistant_settings *settings, const by_assistant *a,
                              by_error *error)
{
    static const char *const needs[][2] = {{"regex", "task.reward_pattern"},
                                           {"command", "task.reward_command"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(needs); i++) {
        if (strcmp(a->config->reward, needs[i][0]) == 0 &&
            !by__assistant_settings_given(settings, "task.reward") &&
            !by__assistant_settings_given(settings, needs[i][1])) {
            return by_error_set(error, BY_ECONFIG,
                                "%s/assistant.yaml: reward: %s needs %s, in the file that "
                                "reinforce: {config: FILE} names",
                                a->directory, needs[i][0], needs[i][1]);
        }
    }
    return BY_OK;
}

by_status by__assistant_check_settings(const by_assistant *a, by_error *error)
{
    for (size_t i = 0; i < a->count; i++) {
        const by__assistant_row *row = a->parts[i].row;
        by__assistant_settings settings;
        BY_TRY(by__assistant_settings_open(&settings, by__assistant_own(row, a->config)->config,
                                           row->kind, error));
        by_status status = row->rolls_out ? check_reward(&settings, a, error) : BY_OK;
        by__assistant_settings_free(&settings);
        BY_TRY(status);
    }
    return BY_OK;
}

/* ---- by the dial ---- */

static by_status dial(char **yaml, char **why, const by_assistant *a,
                      const by__assistant_part *part, const by_train_options *options,
                      by_error *error)
{
    by_dial_choice choice;
    by_string text = {0};
    const by_dial_request request = {
        .text = a->config->text,
        .name = part->row->name,
        .budget = {.seconds = 60.0 * part->minutes, .context = part->row->context},
        .began = by__now(),
        .options = options};
    char *chosen;
    by_status status = by_dial_turn(&choice, &chosen, why, &request, error);
    if (status != BY_OK) {
        bool own = by__assistant_own(part->row, a->config)->minutes > 0.0;
        return by_error_prefix(error, status, "%s/assistant.yaml gives part %s %.3g minutes%s",
                               a->directory, part->row->name, part->minutes,
                               own ? "" : ", a share of all");
    }
    by__string_append(&text, chosen);
    free(chosen);
    by__string_append(&text, "run: {dir: ");
    by_string_json(&text, a->directory, strlen(a->directory));
    int64_t every = choice.steps / SAVES;
    by_string_format(&text, "}\ncheckpoint: {every: %lld}\n", (long long)(every > 1 ? every : 1));
    return by__string_release(&text, yaml, error);
}

/* ---- by measured steps ---- */

static by_status open_settings(by_config **out, const by__assistant_settings *settings,
                               const char *name, by_error *error)
{
    char *yaml;
    BY_TRY(by__assistant_settings_print(&yaml, settings, error));
    by_status status = by_config_parse(out, name, yaml, strlen(yaml), NULL, 0, error);
    free(yaml);
    if (status == BY_OK) {
        status = by_config_resolve(*out, error);
        if (status != BY_OK) {
            by_config_close(out);
        }
    }
    return status;
}

/* The steps of so many passes over the data. */
static by_status most_steps(int64_t *out, double passes, const by_train_options *options,
                            by_error *error)
{
    by_task_data *data;
    const by_task *task;
    const by_task_request request = {
        .purpose = BY_TASK_TRAIN, .config = options->config, .progress = options};
    BY_TRY(by_task_find(&task, options->config, error));
    BY_TRY(by_task_open(&data, NULL, &request, error));
    by_config *config;
    by_status status = by_config_copy(&config, options->config, error);
    if (status == BY_OK) {
        by_source *source = NULL;
        status = by_task_complete(data, config, error);
        status = status == BY_OK ? task->source(&source, data, config, true, error) : status;
        if (status == BY_OK) {
            double steps = passes * (double)source->samples / (double)config->train.batch;
            *out = steps < 1.0 ? 1 : (int64_t)steps;
            by_source_close(&source);
        }
        by_config_close(&config);
    }
    by_task_close(&data);
    return status;
}

static by_status fit(by__assistant_settings *settings, const by__assistant_part *part,
                     const by_config *config, const by_train_options *options, by_error *error)
{
    by_train_options own = *options;
    by_train_times times;
    by_train_fit fitted;
    int64_t most = INT64_MAX;
    own.config = config;
    double began = by__now();
    double seconds = 60.0 * part->minutes;
    double measuring = MEASURING_SHARE * seconds;
    measuring = measuring < MEASURING_LEAST  ? MEASURING_LEAST
                : measuring > MEASURING_MOST ? MEASURING_MOST
                                             : measuring;
    if (!part->row->rolls_out) {
        BY_TRY(most_steps(&most, part->row->passes, &own, error));
    }
    BY_TRY(by_train_measure(&times, &own, measuring, error));
    double left = seconds - (by__now() - began);
    BY_TRY(
        by_train_fit_steps(&fitted, config, &times, left > times.step ? left : times.step, error));
    int64_t steps = fitted.steps < most ? fitted.steps : most;
    int64_t every = steps / SAVES > 1 ? steps / SAVES : 1;
    by__assistant_settings_add(settings, "train.steps", "%lld", (long long)steps);
    by__assistant_settings_add(settings, "train.eval_every", "%lld", (long long)every);
    by__assistant_settings_add(settings, "checkpoint.every", "%lld", (long long)every);
    return BY_OK;
}

static by_status set(char **yaml, const by_assistant *a, const by__assistant_part *part,
                     const char *from, const by_train_options *options, by_error *error)
{
    by__assistant_settings settings;
    by_config *config = NULL;
    BY_TRY(by__assistant_settings_open(&settings, by__assistant_own(part->row, a->config)->config,
                                       part->row->kind, error));
    by__assistant_settings_fix(&settings, "task.kind", part->row->kind);
    by__assistant_settings_fix(&settings, "name", part->row->name);
    by__assistant_settings_fix(&settings, "run.dir", a->directory);
    by_status status = part->row->set(&settings, a->config, from, error);
    if (status == BY_OK && !by__assistant_settings_given(&settings, "train.steps")) {
        status = open_settings(&config, &settings, part->file, error);
        status = status == BY_OK ? fit(&settings, part, config, options, error) : status;
        by_config_close(&config);
    }
    if (status == BY_OK) {
        status = by__assistant_settings_print(yaml, &settings, error);
    }
    by__assistant_settings_free(&settings);
    return status;
}

/* ---- either ---- */

by_status by__assistant_choose(by_assistant *a, size_t index, const by_assistant_options *o,
                               by_error *error)
{
    by__assistant_part *part = &a->parts[index];
    const by__assistant_part *before = index > 0 ? part - 1 : NULL;
    const by_train_options options = {.rollouts = by_reinforce_maker(),
                                      .event = o->train_event,
                                      .stop = o->stop,
                                      .user = o->user};
    bool dials =
        part->row->context > 0 && by__assistant_own(part->row, a->config)->config[0] == '\0';
    char *yaml = NULL;
    char *why = NULL;
    char inputs[33];
    by__assistant_tell(a, o, BY_ASSISTANT_CHOOSES, index, NULL);
    BY_TRY(by__assistant_inputs(inputs, a, part, before, error));
    by_status status =
        dials ? dial(&yaml, &why, a, part, &options, error)
              : set(&yaml, a, part, before == NULL ? NULL : before->run, &options, error);
    if (status == BY_OK) {
        status = by__file_write(part->file, yaml, strlen(yaml), error);
    }
    if (status == BY_OK) {
        memcpy(part->inputs, inputs, sizeof inputs);
        part->config[0] = '\0';
        free(part->run);
        part->run = NULL;
        part->seconds = 0.0;
        part->joules = -1.0;
        status = by__assistant_save(a, error);
    }
    if (status == BY_OK) {
        by__assistant_tell(a, o, BY_ASSISTANT_CHOSE, index, why);
    }
    free(yaml);
    free(why);
    return status;
}
