/* `banyan plan calibrate`: the figures of a cluster from measured steps. */
#include <stdio.h>
#include <stdlib.h>

#include "banyan/calibrate.h"
#include "bench/bench.h"
#include "plan/plan_command.h"

typedef struct calibrate_request {
    const char *cluster;
    const char *out;
    bool keep;
    bool rows;
    bool json;
} calibrate_request;

typedef struct calibrate_report {
    const calibrate_request *request;
    by_cluster cluster;
    by_calibration *calibration;
    const by_measured_step *steps;
    size_t count;
    double *planned;
    double *errors; /* sorted */
    double mean;    /* of |planned / measured - 1| */
    int fitted;
} calibrate_report;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static by_status measure(calibrate_report *r, by_error *error)
{
    r->planned = calloc(r->count, sizeof *r->planned);
    r->errors = calloc(r->count, sizeof *r->errors);
    if (r->planned == NULL || r->errors == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %zu steps", r->count);
    }
    by_status status = by_calibration_plan(r->planned, r->calibration, &r->cluster, error);
    for (size_t i = 0; i < r->count && status == BY_OK; i++) {
        r->errors[i] = fabs(r->planned[i] / r->steps[i].seconds - 1.0);
        r->mean += r->errors[i] / (double)r->count;
    }
    qsort(r->errors, r->count, sizeof *r->errors, ascending);
    return status;
}

static double at_share(const calibrate_report *r, double share)
{
    return 100.0 * r->errors[(size_t)(share * (double)(r->count - 1) + 0.5)];
}

static void print_rows(const calibrate_report *r)
{
    for (size_t i = 0; i < r->count; i++) {
        printf("%zu\t%.6g\t%.6g\t%+.2f %%\n", i + 1, r->steps[i].seconds, r->planned[i],
               100.0 * (r->planned[i] / r->steps[i].seconds - 1.0));
    }
}

static void print(const calibrate_report *r)
{
    if (r->request->json) {
        printf("{\"steps\":%zu,\"fitted\":%d,\"mean_error\":%.6g,\"median_error\":%.6g,"
               "\"p90_error\":%.6g,\"worst_error\":%.6g}\n",
               r->count, r->fitted, r->mean, 1e-2 * at_share(r, 0.5), 1e-2 * at_share(r, 0.9),
               1e-2 * at_share(r, 1.0));
        return;
    }
    if (r->request->rows) {
        print_rows(r);
    }
    printf("%zu steps, %d figures fitted: errors of %.2f %% in the mean, median %.2f %%, 90 %% "
           "within %.2f %%, worst %.2f %%\n",
           r->count, r->fitted, 100.0 * r->mean, at_share(r, 0.5), at_share(r, 0.9),
           at_share(r, 1.0));
}

static by_status calibrate(calibrate_report *r, const char *path, by_error *error)
{
    by_table *table;
    by_status status = by_cluster_read(&r->cluster, r->request->cluster, error);
    if (status == BY_OK) {
        status = by_table_open(&table, path, NULL, error);
    }
    if (status != BY_OK) {
        return status;
    }
    status = by_calibration_open(&r->calibration, table, &r->cluster, error);
    by_table_close(&table);
    if (status == BY_OK) {
        r->steps = by_calibration_steps(r->calibration, &r->count);
    }
    if (status == BY_OK && !r->request->keep) {
        status = by_calibration_fit(&r->cluster, &r->fitted, r->calibration, error);
    }
    if (status == BY_OK) {
        status = measure(r, error);
    }
    if (status == BY_OK && r->request->out != NULL) {
        status = cli_write_cluster(&r->cluster, r->request->out, error);
    }
    if (status == BY_OK) {
        print(r);
    }
    free(r->planned);
    free(r->errors);
    by_calibration_close(&r->calibration);
    return status;
}

static int run(int argc, char **argv)
{
    calibrate_request q = {0};
    const cli_flag flags[] = {
        {"cluster", CLI_INPUT, &q.cluster, "FILE", "figures to begin with, as YAML"},
        {"out", CLI_STRING, &q.out, "FILE", "write the fitted cluster"},
        {"keep", CLI_SWITCH, &q.keep, NULL, "fit nothing: only tell the errors"},
        {"rows", CLI_SWITCH, &q.rows, NULL, "print each step: row, measured, planned, error"},
        {"json", CLI_SWITCH, &q.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_plan_calibrate, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1 || q.cluster == NULL) {
        return cli_misuse(&cli_plan_calibrate, "name a table of steps, and a --cluster");
    }
    calibrate_report r = {.request = &q};
    code = cli_check_input(&cli_plan_calibrate, rest[0]);
    if (code >= 0) {
        return code;
    }
    return calibrate(&r, rest[0], &error) == BY_OK ? CLI_DONE
                                                   : cli_fail(&cli_plan_calibrate, &error);
}

const cli_command cli_plan_calibrate = {
    .name = "plan calibrate",
    .summary = "fit the figures of a cluster to measured steps",
    .usage = "banyan plan calibrate STEPS.csv --cluster FILE [--out FILE] [--keep] [--rows] "
             "[--json]",
    .text =
        "Plans the step of each row of a table, fits the cluster's figures to those that were\n"
        "measured, and tells the errors.\n"
        "\n"
        "examples:\n"
        "  banyan plan calibrate steps.csv --cluster examples/clusters/a100.yaml --out ours.yaml\n"
        "  banyan plan calibrate others.csv --cluster ours.yaml --keep --rows\n"
        "\n"
        "The table has the columns layers, width, heads, context, batch, micro_batch, devices and\n"
        "step_s (or step_ms, tokens_per_s), and may have kind, kv_heads, mlp_width, vocabulary,\n"
        "tied, tensor, sequence, pipeline, shard, zero, virtual_stages, recompute,\n"
        "sequence_parallel, and sums (0: gradients are added in place). See docs/planning.md.",
    .run = run};
