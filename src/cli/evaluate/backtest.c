/* Backtests: forecasts from origins that roll forward, each with what was known by then. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/infer.h"
#include "banyan/train.h"
#include "base/cli.h"

typedef struct backtest_request {
    const char *path;
    cli_list overrides;
    int64_t folds;
    int64_t step; /* rows between the first origins of folds; 0: the horizon */
    bool refit;
    bool best;
    bool json;
    int64_t horizon;
    bool terminal;
} backtest_request;

/* What a fold measures. */
typedef struct backtest_fold {
    const backtest_request *request;
    int64_t number; /* from 0 on */
    by_evaluation result;
} backtest_fold;

/* Leaves out the rows that a fold does not know yet, and makes its rows those to test on. */
static by_status set_fold(by_config *config, const backtest_request *r, int64_t number,
                          by_error *error)
{
    char text[64];
    (void)snprintf(text, sizeof text, "data.skip_last=%lld",
                   (long long)((r->folds - 1 - number) * r->step));
    by_status status = by_config_set(config, text, error);
    if (status == BY_OK) {
        (void)snprintf(text, sizeof text, "data.test_fraction=%lld",
                       (long long)(r->step + r->horizon - 1));
        status = by_config_set(config, text, error);
    }
    return status;
}

/* ---- evaluation ---- */

static by_status evaluate(void *user, const by_pretrained *model, const char *run, by_error *error)
{
    backtest_fold *fold = user;
    /* The windows of the first fold begin before those of all others. */
    bool asks = !fold->request->refit && fold->number == 0;
    const by_task_request what = {.purpose = BY_TASK_EVALUATE,
                                  .test = true,
                                  .trained = asks ? by_pretrained_config(model) : NULL};
    by_task_data *data = NULL;
    cli_spool spool = {0};
    by_config *config;
    by_status status = cli_copy_config(&config, model, error);
    if (status != BY_OK) {
        return status;
    }
    status = run != NULL && strcmp(config->task.kind, "forecast") == 0
                 ? set_fold(config, fold->request, fold->number, error)
                 : by_error_set(error, BY_EARG, "%s: only runs of task.kind forecast are tested so",
                                by_pretrained_directory(model));
    if (status == BY_OK) {
        status = cli_open_task_data(&data, &spool, config, model, run, &what, error);
    }
    if (status == BY_OK) {
        status = by_task_complete(data, config, error);
    }
    if (status == BY_OK) {
        status = cli_evaluate(&fold->result, config, by_pretrained_weights(model), data, NULL, NULL,
                              -1, error);
    }
    by_task_close(&data);
    cli_spool_close(&spool);
    by_config_close(&config);
    return status;
}

/* ---- training ---- */

static void show_event(void *user, const by_train_event *e)
{
    const backtest_fold *fold = user;
    if (e->kind == BY_TRAIN_NOTE) {
        cli_print_lines(stderr, e->text);
        fprintf(stderr, "\n");
    } else if (e->kind == BY_TRAIN_STEPPED && fold->request->terminal) {
        fprintf(stderr, "\r\033[Kfold %lld/%lld  step %lld/%lld  loss %.4f",
                (long long)fold->number + 1, (long long)fold->request->folds, (long long)e->step,
                (long long)e->steps, e->result.loss);
    }
}

/* Trains on what the fold knows. *run is to be freed. */
static by_status train(char **run, backtest_fold *fold, by_error *error)
{
    char name[256];
    by_config *config;
    const backtest_request *r = fold->request;
    by_status status = cli_open_config(&config, r->path, &r->overrides, error);
    if (status != BY_OK) {
        return status;
    }
    const by_trainer_options trainer = {.speeds = cli_speeds(config)};
    const by_train_options options = {.config = config,
                                      .trainer = &trainer,
                                      .event = show_event,
                                      .stop = cli_stop_requested,
                                      .user = fold};
    (void)snprintf(name, sizeof name, "name=%.200s-fold-%lld", config->name,
                   (long long)fold->number + 1);
    status = by_config_set(config, name, error);
    if (status == BY_OK) {
        status = set_fold(config, r, fold->number, error);
    }
    if (status == BY_OK) {
        status = by_config_resolve(config, error);
    }
    if (status == BY_OK) {
        status = by_train(&options, run, error);
    }
    if (r->terminal) {
        fprintf(stderr, "\r\033[K");
    }
    by_config_close(&config);
    return status;
}

/* ---- results ---- */

/* Whether a metric is one of all folds. */
static bool is_known(const backtest_fold *folds, int64_t count, size_t metric)
{
    bool known = true;
    for (int64_t i = 0; i < count; i++) {
        known = known && !isnan(folds[i].result.metrics[metric]);
    }
    return known;
}

/* The mean of a metric over all windows. */
static double mean_of(const backtest_fold *folds, int64_t count, size_t metric)
{
    double sum = 0.0;
    double weight = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += folds[i].result.metrics[metric] * (double)folds[i].result.targets;
        weight += (double)folds[i].result.targets;
    }
    return sum / weight;
}

static void print_json(const backtest_request *r, const backtest_fold *folds)
{
    char text[32];
    const by_task *task = folds[0].result.task;
    assert(task != NULL);
    printf("{\"folds\":[");
    for (int64_t i = 0; i < r->folds; i++) {
        printf("%s{\"fold\":%lld,\"rows_behind\":%lld,\"windows\":%llu", i == 0 ? "" : ",",
               (long long)i + 1, (long long)((r->folds - 1 - i) * r->step),
               (unsigned long long)folds[i].result.targets);
        cli_print_metrics_json(&folds[i].result);
        printf("}");
    }
    printf("],\"mean\":{");
    bool first = true;
    for (size_t m = 0; m < task->metric_count; m++) {
        if (is_known(folds, r->folds, m)) {
            printf("%s\"%s\":%s", first ? "" : ",", task->metrics[m].name,
                   cli_json_number(text, mean_of(folds, r->folds, m), 9));
            first = false;
        }
    }
    printf("}}\n");
}

static void print_table(const backtest_request *r, const backtest_fold *folds)
{
    const by_task *task = folds[0].result.task;
    assert(task != NULL);
    printf("fold\trows_behind\twindows");
    for (size_t m = 0; m < task->metric_count; m++) {
        if (is_known(folds, r->folds, m)) {
            printf("\t%s", task->metrics[m].name);
        }
    }
    printf("\n");
    for (int64_t i = 0; i <= r->folds; i++) {
        if (i < r->folds) {
            printf("%lld\t%lld\t%llu", (long long)i + 1, (long long)((r->folds - 1 - i) * r->step),
                   (unsigned long long)folds[i].result.targets);
        } else {
            printf("mean\t\t");
        }
        for (size_t m = 0; m < task->metric_count; m++) {
            if (is_known(folds, r->folds, m)) {
                printf("\t%.*f", task->metrics[m].decimals,
                       i < r->folds ? folds[i].result.metrics[m] : mean_of(folds, r->folds, m));
            }
        }
        printf("\n");
    }
}

/* ---- the command ---- */

/* Tests all folds, with a run for each if they are refit. */
static int test_folds(backtest_request *r, backtest_fold *folds)
{
    by_error error = {0};
    char *run = NULL;
    int code = CLI_DONE;
    for (int64_t i = 0; i < r->folds && code == CLI_DONE; i++) {
        folds[i] = (backtest_fold){.request = r, .number = i};
        if (r->refit) {
            free(run);
            run = NULL;
            code = train(&run, &folds[i], &error) == BY_OK ? CLI_DONE
                                                           : cli_fail(&cli_backtest, &error);
        }
        if (code == CLI_DONE) {
            code = cli_with_pretrained(&cli_backtest, r->refit ? run : r->path, NULL, r->best,
                                       false, NULL, evaluate, &folds[i]);
        }
        if (code == CLI_DONE) {
            fprintf(stderr, "fold %lld/%lld: %s %.4f\n", (long long)i + 1, (long long)r->folds,
                    folds[i].result.task->metrics[0].name, folds[i].result.metrics[0]);
        }
    }
    free(run);
    return code;
}

static by_status read_horizon(void *user, by_config *config, by_error *error)
{
    backtest_request *r = user;
    r->horizon = config->model.outputs;
    r->step = r->step > 0 ? r->step : r->horizon;
    return strcmp(config->task.kind, "forecast") == 0 && r->horizon > 0
               ? BY_OK
               : by_error_set(error, BY_EARG, "%s: task.kind is %s, and only forecasts have folds",
                              r->path, config->task.kind);
}

static int run(int argc, char **argv)
{
    backtest_request r = {.folds = 4, .terminal = isatty(STDERR_FILENO) != 0};
    const cli_flag flags[] = {
        {"folds", CLI_INTEGER_IN(1, 10000), &r.folds, "N", "number of folds (default: 4)"},
        {"step", CLI_INTEGER_IN(1, 1e9), &r.step, "N",
         "rows from a fold to the next one; each of them is an origin (default: the horizon)"},
        {"refit", CLI_SWITCH, &r.refit, NULL,
         "train each fold anew on the rows before it, as the run NAME-fold-N"},
        {"set", CLI_LIST, &r.overrides, "KEY=VALUE", "with --refit: " CLI_SET_HELP},
        {"best", CLI_SWITCH, &r.best, NULL, CLI_BEST_HELP},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_backtest, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_backtest, "name one run or, with --refit, one config");
    }
    if (r.overrides.count > 0 && !r.refit) {
        return cli_misuse(&cli_backtest, "--set needs --refit: the config of a run is as it is");
    }
    r.path = rest[0];
    code = cli_with_config(&cli_backtest, r.path, &r.overrides, read_horizon, &r);
    if (code != CLI_DONE) {
        return code;
    }
    backtest_fold *folds = calloc((size_t)r.folds, sizeof *folds);
    if (folds == NULL) {
        const by_error error = {BY_EMEMORY, "out of memory: folds"};
        return cli_fail(&cli_backtest, &error);
    }
    cli_catch_signals();
    code = test_folds(&r, folds);
    if (code == CLI_DONE && r.json) {
        print_json(&r, folds);
    } else if (code == CLI_DONE) {
        print_table(&r, folds);
    }
    free(folds);
    return code;
}

const cli_command cli_backtest = {
    .name = "backtest",
    .summary = "test forecasts from origins that roll forward",
    .usage =
        "banyan backtest RUN [--folds N] [--step N] [--best] [--json] | banyan backtest CONFIG "
        "--refit [--folds N] [--step N] [--set KEY=VALUE]...",
    .text =
        "Forecasts from the last rows of each series as if these came one after another: the\n"
        "N-th fold from the end does not know the last (N - 1) x step rows, and its windows\n"
        "begin at each of the `step` rows in front of the last horizon that it has. Prints the\n"
        "metrics of `banyan eval` for each fold, and their mean over all windows.\n"
        "\n"
        "examples:\n"
        "  banyan backtest runs/shops --folds 8\n"
        "  banyan backtest shops.yaml --refit --folds 4 --step 168 --json\n"
        "\n"
        "A RUN forecasts with its weights, which must not have been trained on the rows of these\n"
        "windows, or it is refused: train it with data.test_fraction, test fewer rows (--folds,\n"
        "--step), or use --refit, which trains a model for each fold on what is in front of it,\n"
        "less data.valid_fraction.",
    .run = run};
