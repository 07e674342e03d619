/* The runs that a law is fitted to: rows of a table, or run directories. */
#include <stdlib.h>
#include <string.h>

#include "banyan/runs.h"
#include "plan/plan_command.h"

/* The size of a run's model, and the FLOPs and examples of its steps. */
static by_status measure_model(by_law_run *out, const char *run, by_config *config,
                               double *per_step, by_error *error)
{
    const by_task *task;
    by_trainer *trainer;
    by_status status = by_task_find(&task, config, error);
    if (status == BY_OK && (task->knows(config) & BY_TASK_SIZES) == 0) {
        status = by_error_set(error, BY_EARG,
                              "%s: its config leaves sizes of the model to the data: give the runs "
                              "as a table with the columns parameters, tokens and loss",
                              run);
    }
    if (status == BY_OK) {
        const by_trainer_options options = {.speeds = cli_speeds(config)};
        status = by_trainer_open_fitting(&trainer, config, &options, error);
    }
    if (status == BY_OK) {
        const by_model_size *size = by_trainer_size(trainer);
        *per_step = (double)config->train.batch *
                    (double)(task->per_sample == NULL ? 1 : task->per_sample(config));
        out->parameters = (double)size->parameters;
        out->flops = size->flops_per_example;
        by_trainer_close(&trainer);
    }
    return status;
}

static by_status read_facts(by_law_run *out, const char *run, by_config *config, by_error *error)
{
    by_run_facts facts;
    double per_step = 0.0;
    by_status status = by_run_facts_read(&facts, run, error);
    if (status != BY_OK) {
        return status;
    }
    const by_fact *step = by_run_facts_find(&facts, "run.step");
    const by_fact *loss = by_run_facts_find(&facts, "last.eval.valid_loss");
    const by_fact *state = by_run_facts_find(&facts, "run.status");
    if (step == NULL || loss == NULL || !step->is_number || !loss->is_number) {
        status = by_error_set(error, BY_EARG,
                              "%s: no held-out loss was recorded; train with train.eval_every, or "
                              "leave the run out",
                              run);
    } else if (state == NULL || strcmp(state->value, "done") != 0) {
        status = by_error_set(error, BY_EARG,
                              "%s: its status is %s, so its last held-out loss is not that of its "
                              "last step: resume it (banyan train --resume %s), or leave it out",
                              run, state == NULL ? "unknown" : state->value, run);
    } else {
        status = measure_model(out, run, config, &per_step, error);
    }
    if (status == BY_OK) {
        out->tokens = per_step * strtod(step->value, NULL);
        out->loss = strtod(loss->value, NULL);
        out->flops *= out->tokens;
    }
    by_run_facts_free(&facts);
    return status;
}

/* Adds a run to the list. One that began with another's weights, grown or not, had their training,
 * too, and its loss is not that of its own tokens. */
static by_status add_run(cli_law_runs *runs, char *run, by_error *error)
{
    static const cli_list none;
    by_config *config;
    by_status status = cli_open_config(&config, run, &none, error);
    if (status != BY_OK) {
        return status;
    }
    if (config->model.from[0] != '\0') {
        fprintf(stderr, "banyan plan fit: %s is left out: it began with the weights of %s\n", run,
                config->model.from);
        runs->left_out++;
    } else {
        status = read_facts(&runs->items[runs->count], run, config, error);
        runs->paths[runs->count++] = run;
    }
    by_config_close(&config);
    return status;
}

static bool is_table(const char *path)
{
    char file[4096];
    FILE *f;
    (void)snprintf(file, sizeof file, "%s/config.yaml", path);
    f = fopen(file, "rb");
    if (f != NULL) {
        (void)fclose(f);
    }
    return f == NULL;
}

/* A config is no table of runs. */
static bool is_config(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

by_status cli_law_runs_open(cli_law_runs *out, char **paths, int count,
                            const by_law_columns *columns, by_error *error)
{
    *out = (cli_law_runs){0};
    if (is_config(paths[0])) {
        return by_error_set(error, BY_EARG,
                            "%s is a config: give a table of runs, or directories of runs that are "
                            "done",
                            paths[0]);
    }
    if (count == 1 && is_table(paths[0])) {
        by_table *table;
        by_status status = by_table_open(&table, paths[0], NULL, error);
        if (status != BY_OK) {
            return status;
        }
        out->table = paths[0];
        status = by_law_read_runs(&out->items, &out->count, table, columns, error);
        by_table_close(&table);
        return status;
    }
    if (columns->where != NULL || columns->parameters != NULL || columns->tokens != NULL ||
        columns->loss != NULL || columns->flops != NULL) {
        return by_error_set(error, BY_EARG,
                            "--where and --...-column choose of a table, and %s is a run directory",
                            paths[0]);
    }
    out->items = calloc((size_t)count, sizeof *out->items);
    out->paths = calloc((size_t)count, sizeof *out->paths);
    if (out->items == NULL || out->paths == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %d runs", count);
    }
    by_status status = BY_OK;
    for (int i = 0; i < count && status == BY_OK; i++) {
        status = add_run(out, paths[i], error);
    }
    return status;
}

void cli_law_runs_close(cli_law_runs *runs)
{
    free(runs->items);
    free(runs->paths);
    runs->items = NULL;
    runs->paths = NULL;
    runs->count = 0;
}

by_status cli_check_law(const by_law *law, by_error *error)
{
    if (law->a > 0.0 && law->b > 0.0) {
        return BY_OK;
    }
    return by_error_set(error, BY_EARG,
                        "the loss of these runs does not fall with their %s (%s is 0), so no size "
                        "is the best of a budget: give runs that differ more in it",
                        law->a > 0.0 ? "tokens" : "parameters", law->a > 0.0 ? "B" : "A");
}

const char *cli_law_run_name(char buffer[160], const cli_law_runs *runs, size_t i)
{
    if (runs->table == NULL) {
        (void)snprintf(buffer, 160, "%s", runs->paths[i]);
    } else {
        (void)snprintf(buffer, 160, "N %.4g, D %.4g, loss %.5g", runs->items[i].parameters,
                       runs->items[i].tokens, runs->items[i].loss);
    }
    return buffer;
}
