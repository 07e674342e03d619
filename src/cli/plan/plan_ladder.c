/* banyan plan ladder. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "banyan/plot.h"
#include "banyan/runs.h"
#include "plan/plan_command.h"

#define LEVEL 0.95
/* The prediction beyond the last rung: at so many times its compute. */
#define BEYOND 4.0

/* A file of the ladder's directory. */
#define HASH_FILE "config-hash"

typedef struct ladder_request {
    by_ladder_options options;
    const char *path;
    cli_list overrides;
    bool dry;
    bool go_on;
    bool json;
    const char *examples; /* that the task counts */
    char directory[4096]; /* of the rungs */
} ladder_request;

/* A rung that was trained. */
typedef struct climbed {
    by_law_run run;
    bool predicted;
    by_curve_prediction prediction;
} climbed;

static void name_rung(char out[64], const by_rung *rung)
{
    (void)snprintf(out, 64, "rung-w%lld-s%lld", (long long)rung->width, (long long)rung->steps);
}

/* The last held-out loss of a run that is done; NaN: it is not. */
static double loss_of(const char *path)
{
    by_run_facts facts;
    double loss = NAN;
    if (by_run_facts_read(&facts, path, NULL) != BY_OK) {
        return NAN;
    }
    const by_fact *valid = by_run_facts_find(&facts, "last.eval.valid_loss");
    const by_fact *state = by_run_facts_find(&facts, "run.status");
    if (valid != NULL && valid->is_number && state != NULL && strcmp(state->value, "done") == 0) {
        loss = strtod(valid->value, NULL);
    }
    by_run_facts_free(&facts);
    return loss;
}

static void show_progress(void *user, const by_train_event *event)
{
    const ladder_request *q = user;
    if (event->kind == BY_TRAIN_STEPPED && !q->json) {
        fprintf(stderr, "\r%s: step %lld of %lld, loss %.4f ", event->config->name,
                (long long)event->result.step, (long long)event->steps, event->result.loss);
    } else if (event->kind == BY_TRAIN_EVALUATED && !q->json) {
        fprintf(stderr, "\n");
    }
}

static bool is_stopped(void *user)
{
    (void)user;
    return cli_stop_requested(NULL);
}

/* ---- the directory ---- */

static void make_directories(char *path)
{
    for (char *at = path + 1;; at++) {
        char c = *at;
        if (c == '/' || c == '\0') {
            *at = '\0';
            (void)mkdir(path, 0777);
            *at = c;
        }
        if (c == '\0') {
            return;
        }
    }
}

/* Sets the directory of the rungs. It keeps the hash of the config that they are of: the losses of
 * another one are on another curve, though its rungs may have the same names. */
static by_status open_directory(ladder_request *q, const by_config *config, by_error *error)
{
    char path[4200];
    char hash[33];
    char found[33] = "";
    int length =
        snprintf(q->directory, sizeof q->directory, "%s/%s-ladder", config->run.dir, config->name);
    (void)snprintf(path, sizeof path, "%s/" HASH_FILE, q->directory);
    if (length < 0 || (size_t)length >= sizeof q->directory) {
        return by_error_set(error, BY_EARG, "run.dir and name are too long for a path");
    }
    by_status status = by_config_hash(config, hash, error);
    if (status != BY_OK) {
        return status;
    }
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        bool same = fscanf(file, "%32s", found) == 1 && strcmp(found, hash) == 0;
        (void)fclose(file);
        return same ? BY_OK
                    : by_error_set(error, BY_ECONFIG,
                                   "the rungs in %s are of another config (its hash was %s, and is "
                                   "%s): give this ladder a name, such as --set name=%.64s-2, or "
                                   "remove the directory",
                                   q->directory, found, hash, config->name);
    }
    make_directories(q->directory);
    file = fopen(path, "w");
    bool written = file != NULL && fprintf(file, "%s\n", hash) > 0;
    written = file != NULL && fclose(file) == 0 && written;
    return written ? BY_OK
                   : by_error_set(error, BY_EIO, "cannot write %s: %s", path, strerror(errno));
}

/* ---- a rung ---- */

/* Trains a rung, or goes on with it, unless it is done. */
static by_status climb(double *loss, const ladder_request *q, const by_config *config,
                       const by_rung *rung, by_error *error)
{
    char name[64];
    char dir[sizeof q->directory];
    char path[4200];
    struct stat info;
    by_config *c;
    char *run = NULL;
    name_rung(name, rung);
    (void)snprintf(dir, sizeof dir, "%s", q->directory);
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    *loss = loss_of(path);
    if (!isnan(*loss)) {
        return BY_OK;
    }
    by_status status = by_ladder_config(&c, config, rung, error);
    if (status != BY_OK) {
        return status;
    }
    char *own[2] = {c->name, c->run.dir};
    c->name = name;
    c->run.dir = dir;
    const by_train_options options = {.config = c,
                                      .resume = stat(path, &info) == 0 ? path : NULL,
                                      .from_start = true,
                                      .event = show_progress,
                                      .stop = is_stopped,
                                      .user = (void *)(uintptr_t)q};
    status = by_train(&options, &run, error);
    c->name = own[0];
    c->run.dir = own[1];
    by_config_close(&c);
    *loss = status == BY_OK ? loss_of(run) : NAN;
    free(run);
    if (status == BY_OK && isnan(*loss)) {
        return by_error_set(error, BY_EARG,
                            "%s has no held-out loss: the config must hold data out", path);
    }
    return status;
}

/* ---- printing ---- */

static void print_rung(const ladder_request *q, const by_rung *rung, const climbed *c)
{
    char text[6][32];
    if (q->json) {
        printf("{\"rung\":{\"width\":%lld,\"heads\":%lld,\"steps\":%lld,\"parameters\":%s,"
               "\"tokens\":%s,\"flops\":%s",
               (long long)rung->width, (long long)rung->heads, (long long)rung->steps,
               cli_json_number(text[0], rung->parameters, 8),
               cli_json_number(text[1], rung->tokens, 10),
               cli_json_number(text[2], rung->flops, 8));
        if (c != NULL) {
            printf(",\"loss\":%s", cli_json_number(text[0], c->run.loss, 8));
        }
        if (c != NULL && c->predicted) {
            printf(",\"predicted\":%s,\"low\":%s,\"high\":%s",
                   cli_json_number(text[0], c->prediction.loss, 8),
                   cli_json_number(text[1], c->prediction.low, 8),
                   cli_json_number(text[2], c->prediction.high, 8));
        }
        printf("}}\n");
    } else {
        printf("%6lld %7lld %10s %10s %10s", (long long)rung->width, (long long)rung->steps,
               cli_json_number(text[0], rung->parameters, 3),
               cli_json_number(text[1], rung->tokens, 3), cli_json_number(text[2], rung->flops, 3));
        if (c != NULL) {
            printf(" %8.4f", c->run.loss);
        }
        if (c != NULL && c->predicted) {
            printf("   %.4f (%.4f to %.4f), off by %+.2f %%", c->prediction.loss, c->prediction.low,
                   c->prediction.high, 100.0 * (c->prediction.loss / c->run.loss - 1.0));
        }
        printf("\n");
    }
    (void)fflush(stdout);
}

static by_status print_end(const ladder_request *q, const by_law_run *runs, size_t count,
                           uint64_t seed, by_error *error)
{
    assert(count > 0);
    by_curve_prediction p;
    char text[7][32];
    double flops = BEYOND * runs[count - 1].flops;
    by_status status = by_curve_predict(&p, runs, count, flops, LEVEL, seed, error);
    if (status != BY_OK) {
        return status;
    }
    if (q->json) {
        printf("{\"curve\":{\"e\":%s,\"a\":%s,\"gamma\":%s,\"spread\":%s},\"next\":{\"flops\":%s,"
               "\"predicted\":%s,\"low\":%s",
               cli_json_number(text[0], p.curve.e, 8), cli_json_number(text[1], p.curve.a, 8),
               cli_json_number(text[2], p.curve.gamma, 8), cli_json_number(text[3], p.spread, 4),
               cli_json_number(text[4], flops, 8), cli_json_number(text[5], p.loss, 8),
               cli_json_number(text[6], p.low, 8));
        printf(",\"high\":%s}}\n", cli_json_number(text[0], p.high, 8));
        return BY_OK;
    }
    printf("law: loss = %.4g + %.4g C^-%.4g, runs within %.2g %%\n", p.curve.e, p.curve.a,
           p.curve.gamma, 100.0 * p.spread);
    printf("at %.3g FLOPs, %g times the last rung: %.4f, 95 %% within %.4f to %.4f\n", flops,
           BEYOND, p.loss, p.low, p.high);
    return BY_OK;
}

/* ---- the command ---- */

static by_status run_rungs(const ladder_request *q, const by_config *config, const by_rung *rungs,
                           size_t count, by_error *error)
{
    by_law_run runs[BY_LADDER_RUNGS];
    for (size_t i = 0; i < count; i++) {
        climbed c = {.run = {.parameters = rungs[i].parameters,
                             .tokens = rungs[i].tokens,
                             .flops = rungs[i].flops}};
        by_status status = BY_OK;
        if (i >= BY_CURVE_RUNS) {
            c.predicted = true;
            status = by_curve_predict(&c.prediction, runs, i, rungs[i].flops, LEVEL, config->seed,
                                      error);
        }
        if (status == BY_OK) {
            status = climb(&c.run.loss, q, config, &rungs[i], error);
        }
        if (status != BY_OK) {
            return status;
        }
        runs[i] = c.run;
        print_rung(q, &rungs[i], &c);
        bool wrong =
            c.predicted && (c.run.loss < c.prediction.low || c.run.loss > c.prediction.high);
        if (wrong && !q->go_on) {
            return by_error_set(error, BY_EDIVERGED,
                                "the rung of width %lld has loss %.4f, outside of the predicted "
                                "%.4f to %.4f: the smaller rungs do not tell of the larger ones. "
                                "Check learning rate (muP), data and warm-up, or go on with "
                                "--keep-going",
                                (long long)rungs[i].width, c.run.loss, c.prediction.low,
                                c.prediction.high);
        }
    }
    return print_end(q, runs, count, config->seed, error);
}

/* The sizes that a config leaves to its data, for the design; of rungs to train also whether any
 * data is held out, of which their losses are. */
static by_status complete(ladder_request *q, by_config *config, by_error *error)
{
    by_task_data *data;
    const by_task *task;
    const by_task_request request = {.purpose = BY_TASK_TRAIN, .config = config};
    bool dry = q->dry;
    by_status status = by_task_find(&task, config, error);
    q->examples = status == BY_OK ? task->examples : "";
    if (status == BY_OK && (!dry || (task->knows(config) & BY_TASK_SIZES) == 0)) {
        status = by_task_open(&data, NULL, &request, error);
        if (status == BY_OK) {
            status = by_task_complete(data, config, error);
            if (status == BY_OK && !dry && data->valid_examples == 0) {
                status = by_error_set(error, BY_ECONFIG,
                                      "no data is held out, and a ladder compares held-out losses: "
                                      "set data.valid_fraction or data.valid");
            }
            by_task_close(&data);
        }
    }
    return status;
}

static by_status work(void *user, by_config *config, by_error *error)
{
    ladder_request *q = user;
    by_rung rungs[BY_LADDER_RUNGS];
    size_t count = 0;
    double sum = 0.0;
    by_status status = complete(q, config, error);
    if (status == BY_OK) {
        status = by_ladder_design(rungs, &count, config, &q->options, error);
    }
    if (status == BY_OK && !q->dry) {
        status = open_directory(q, config, error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        sum += rungs[i].flops;
    }
    if (status == BY_OK && !q->json) {
        printf("%zu rungs, %.3g FLOPs\n%6s %7s %10s %10s %10s %8s   predicted\n", count, sum,
               "width", "steps", "parameters", q->examples, "FLOPs", "loss");
    }
    for (size_t i = 0; i < count && status == BY_OK && q->dry; i++) {
        print_rung(q, &rungs[i], NULL);
    }
    return status == BY_OK && !q->dry ? run_rungs(q, config, rungs, count, error) : status;
}

static int run(int argc, char **argv)
{
    ladder_request q = {0};
    int64_t rungs = 0;
    const cli_flag flags[] = {
        {"budget", CLI_NUMBER_ABOVE(0, INFINITY), &q.options.flops, "C",
         "FLOPs of all rungs together, such as 1e15"},
        {"rungs", CLI_INTEGER_IN(4, BY_LADDER_RUNGS), &rungs, "N", "at most (default: 6)"},
        {"factor", CLI_NUMBER_IN(1.1, 64), &q.options.factor, "F",
         "FLOPs of a rung are at least F times those of the one below (default: 2)"},
        {"ratio", CLI_NUMBER_ABOVE(0, 1e9), &q.options.ratio, "R",
         "tokens for each parameter (default: 20)"},
        {"keep-going", CLI_SWITCH, &q.go_on, NULL, "go on when a rung's loss is not as predicted"},
        {"dry-run", CLI_SWITCH, &q.dry, NULL, "print the rungs, and train none"},
        {"device", CLI_DEVICE, &q.overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &q.overrides, "KEY=VALUE", CLI_SET_HELP},
        {"json", CLI_SWITCH, &q.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_plan_ladder, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_plan_ladder, "name one config file");
    }
    if (q.options.flops == 0.0) {
        return cli_misuse(&cli_plan_ladder, "--budget: say how many FLOPs the rungs may take");
    }
    q.path = rest[0];
    q.options.rungs = (size_t)rungs;
    cli_catch_signals();
    return cli_with_config(&cli_plan_ladder, rest[0], &q.overrides, work, &q);
}

const cli_command cli_plan_ladder = {
    .name = "plan ladder",
    .summary = "train models of growing compute, and predict each from those before",
    .usage =
        "banyan plan ladder CONFIG --budget C [--rungs N] [--factor F] [--ratio R] [--dry-run]",
    .text =
        "Trains a config's model at growing widths, with tokens in proportion to parameters, and\n"
        "predicts the loss of each rung from those below it by L(C) = E + A C^-gamma, with an\n"
        "interval of 95 %. It stops when a rung is not as predicted, so that a large run is not\n"
        "begun on a law that does not hold; at the end it predicts the loss at 4 times the "
        "compute\n"
        "of the last rung. Rungs are runs in RUN.DIR/NAME-ladder: the same command goes on where\n"
        "it was stopped. With model.parameterisation mup one learning rate serves all widths.\n"
        "\n"
        "examples:\n"
        "  banyan plan ladder c.yaml --budget 1e15 --set model.parameterisation=mup\n"
        "  banyan plan ladder c.yaml --budget 1e15 --dry-run --json",
    .run = run};
