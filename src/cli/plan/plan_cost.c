/* banyan plan cost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan_command.h"

#define HOUR 3600.0
#define TERA 1e12

typedef struct cost_request {
    const char *device;
    double devices;
    /* How long it computes: one of these. */
    double seconds;
    double flops;
    double loss;
    double tokens;
    double rate;  /* tokens a second, with tokens */
    double share; /* of the peak, with FLOPs */
    const char *law;
    const char *config;  /* whose steps are planned, */
    const char *cluster; /* on these devices; NULL: this machine */
    cli_list overrides;
    /* Failures. */
    double save;
    double written;
    double restart;
    double every;
    double device_mean; /* seconds between failures of one device */
    const char *trace;
    int64_t least;
    /* Where, and of whom. */
    const char *regions;
    const char *region;
    double busy;
    double months;
    double use;
    bool json;
} cost_request;

/* One way of having the devices. */
typedef struct cost_line {
    const char *name;
    double goodput;
    double every;
    double seconds;
    by_bill bill;
} cost_line;

typedef struct cost_report {
    const cost_request *request;
    by_price price;
    by_region region;
    double work;  /* seconds of computing on all devices, without checkpoints and failures */
    double flops; /* 0: unknown */
    by_failures failures;
    cost_line lines[2]; /* on demand, spot */
    bool has_spot;
    by_spot_replay replay;
    double spot_young;
    by_ownership ownership;
} cost_report;

/* ---- what is to be computed ---- */

static by_status open_table(by_table **out, const char *path, by_error *error)
{
    return by_table_open(out, path, NULL, error);
}

/* The least FLOPs to a loss, by a law that is fitted to a table. */
static by_status find_flops(double *flops, const cost_request *q, by_error *error)
{
    by_table *table;
    by_law_run *runs;
    size_t count;
    by_law_fit fit;
    by_status status = open_table(&table, q->law, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_law_read_runs(&runs, &count, table, NULL, error);
    if (status == BY_OK) {
        status = by_law_fit_runs(&fit, runs, count, NULL, error);
    }
    status = status == BY_OK ? cli_check_law(&fit.law, error) : status;
    if (status == BY_OK) {
        by_law_flops cost = by_law_flops_of(runs, count);
        *flops = by_law_flops_to(NULL, &fit.law, &cost, q->loss);
        if (!isfinite(*flops)) {
            status =
                by_error_set(error, BY_EARG, "--loss %g: by the law of %s no model gets below %g",
                             q->loss, q->law, fit.law.e);
        }
    }
    free(runs);
    by_table_close(&table);
    return status;
}

static by_status find_work(cost_report *r, by_error *error)
{
    const cost_request *q = r->request;
    r->flops = q->flops;
    if (q->loss > 0.0) {
        by_status status = find_flops(&r->flops, q, error);
        if (status != BY_OK) {
            return status;
        }
    }
    if (q->seconds > 0.0) {
        r->work = q->seconds;
    } else if (q->tokens > 0.0) {
        r->work = q->tokens / q->rate;
    } else if (!(r->price.tflops > 0.0)) {
        return by_error_set(error, BY_EARG,
                            "the prices have no tflops of '%s', by which FLOPs become seconds: add "
                            "the column, or give --time",
                            q->device);
    } else {
        r->work = r->flops / (q->devices * q->share * r->price.tflops * TERA);
    }
    return BY_OK;
}

/* ---- ways of having the devices ---- */

static void add_line(cost_report *r, size_t at, const char *name, double goodput, double every)
{
    const cost_request *q = r->request;
    cost_line *line = &r->lines[at];
    line->name = name;
    line->goodput = goodput;
    line->every = every;
    line->seconds = r->work / goodput;
    line->bill = by_bill_of(&r->price, q->region == NULL ? NULL : &r->region, q->devices,
                            line->seconds, q->busy, at == 1);
}

static by_status replay(cost_report *r, by_error *error)
{
    const cost_request *q = r->request;
    by_table *table;
    by_spot_point *points;
    size_t count;
    by_status status = open_table(&table, q->trace, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_spot_read(&points, &count, table, error);
    by_table_close(&table);
    if (status != BY_OK) {
        return status;
    }
    by_spot_options options = {
        .job = r->failures, .least = (double)q->least, .most = q->devices, .every = q->every};
    options.job.mean = by_spot_mean(points, count, &options);
    r->spot_young = by_interval_young(&options.job);
    if (options.every == 0.0) {
        options.every = by_spot_best_interval(points, count, &options);
    }
    r->replay = by_spot_run(points, count, &options);
    double span = points[count - 1].seconds - points[0].seconds;
    free(points);
    if (r->replay.useful == 0.0) {
        return by_error_set(error, BY_EARG,
                            "%s: no step survives: the job needs %lld of its instances and %g s to "
                            "restart",
                            q->trace, (long long)q->least, r->failures.restart);
    }
    add_line(r, 1, "spot", r->replay.goodput, options.every);
    /* It takes longer, by the time in which it has fewer devices. */
    r->lines[1].seconds = r->work * q->devices * span / r->replay.useful;
    r->has_spot = true;
    return BY_OK;
}

static by_status compute(cost_report *r, by_error *error)
{
    const cost_request *q = r->request;
    by_status status = find_work(r, error);
    if (status != BY_OK) {
        return status;
    }
    r->failures = (by_failures){
        .save = q->save,
        .written = q->written,
        .restart = q->restart,
        .mean = q->device_mean > 0.0 ? q->device_mean / q->devices : INFINITY,
    };
    double every = q->every > 0.0 ? q->every : by_interval_best(&r->failures);
    double goodput = by_goodput(&r->failures, every);
    if (!(goodput > 0.0)) {
        return by_error_set(error, BY_EARG,
                            "with a failure every %g s, saves of %g s and restarts of %g s the job "
                            "makes no progress",
                            r->failures.mean, q->save, q->restart);
    }
    add_line(r, 0, "on demand", goodput, every);
    r->ownership = by_own_or_rent(&r->price, q->region == NULL ? NULL : &r->region, q->devices,
                                  q->use, q->months);
    return q->trace == NULL ? BY_OK : replay(r, error);
}

/* ---- printing ---- */

/* Prices to buy and to rent are known. */
static bool is_compared(const cost_report *r)
{
    return isfinite(r->ownership.owned) && isfinite(r->ownership.rented);
}

/* `column` is where the file would have it. */
static void print_known(double value, bool is_money, const char *unit, const char *column)
{
    if (isfinite(value)) {
        printf(is_money ? ", %.2f %s" : ", %.4g %s", value, unit);
    } else {
        printf(", no %s known", column);
    }
}

static void print_line(const cost_report *r, const cost_line *line)
{
    char text[2][32];
    printf("%-12s  %s", line->name, cli_duration(text[0], line->seconds));
    print_known(line->bill.money, true, "money",
                line == &r->lines[1] ? "spot_per_hour" : "price_per_hour");
    print_known(line->bill.kwh, false, "kWh", "watts");
    if (r->request->region != NULL && isfinite(line->bill.kwh)) {
        print_known(line->bill.kg_co2, false, "kg CO2", "grams_co2_per_kwh");
    }
    printf("; goodput %.1f %%", 100.0 * line->goodput);
    if (isfinite(line->every)) {
        printf(", a checkpoint every %s", cli_duration(text[1], line->every));
    }
    printf("\n");
}

static void print_text(const cost_report *r)
{
    const cost_request *q = r->request;
    char text[3][32];
    printf("work          %s on %g x %s", cli_duration(text[0], r->work), q->devices, q->device);
    if (r->flops > 0.0) {
        printf(" (%.4g FLOPs)", r->flops);
    }
    printf(", without checkpoints and failures\n");
    if (isfinite(r->failures.mean)) {
        printf("failures      one in %s; intervals: Young %s, Daly %s, best %s\n",
               cli_duration(text[0], r->failures.mean),
               cli_duration(text[1], by_interval_young(&r->failures)),
               cli_duration(text[2], by_interval_daly(&r->failures)),
               cli_duration((char[32]){0}, by_interval_best(&r->failures)));
    }
    print_line(r, &r->lines[0]);
    if (r->has_spot) {
        const by_spot_replay *s = &r->replay;
        print_line(r, &r->lines[1]);
        printf("  trace       %zu losses, %zu gains; of the time paid %.1f %% useful, %.1f %% "
               "undone, %.1f %% saving, %.1f %% restarting, %.1f %% idle; Young's interval: %s\n",
               s->losses, s->gains, 100.0 * s->goodput, 100.0 * s->undone / s->held,
               100.0 * s->saving / s->held, 100.0 * s->restarting / s->held,
               100.0 * s->idle / s->held,
               isfinite(r->spot_young) ? cli_duration(text[0], r->spot_young) : "none");
    }
    if (is_compared(r)) {
        printf("own           %.2f for %g months at %.0f %% use, rented %.2f; ", r->ownership.owned,
               q->months, 100.0 * q->use, r->ownership.rented);
        if (isfinite(r->ownership.even)) {
            printf("owning is cheaper after %.1f months\n", r->ownership.even);
        } else {
            printf("owning is never cheaper\n");
        }
    }
    printf("note          watts are those of the table, not measured\n");
}

static void print_json_line(const cost_line *line)
{
    char text[6][32];
    printf("{\"goodput\":%s,\"every_seconds\":%s,\"seconds\":%s,\"money\":%s,\"kwh\":%s,"
           "\"kg_co2\":%s}",
           cli_json_number(text[0], line->goodput, 9), cli_json_number(text[1], line->every, 6),
           cli_json_number(text[2], line->seconds, 9),
           cli_json_number(text[3], line->bill.money, 9),
           cli_json_number(text[4], line->bill.kwh, 9),
           cli_json_number(text[5], line->bill.kg_co2, 9));
}

static void print_json(const cost_report *r)
{
    const by_failures *f = &r->failures;
    char text[6][32];
    printf("{\"device\":");
    cli_print_json_string(r->request->device);
    printf(",\"devices\":%g,\"work_seconds\":%s,\"flops\":%s,\"failure_seconds\":%s,"
           "\"young_seconds\":%s,\"daly_seconds\":%s,\"best_seconds\":%s,\"on_demand\":",
           r->request->devices, cli_json_number(text[0], r->work, 9),
           cli_json_number(text[1], r->flops > 0.0 ? r->flops : (double)NAN, 9),
           cli_json_number(text[2], f->mean, 9), cli_json_number(text[3], by_interval_young(f), 6),
           cli_json_number(text[4], by_interval_daly(f), 6),
           cli_json_number(text[5], by_interval_best(f), 6));
    print_json_line(&r->lines[0]);
    printf(",\"spot\":");
    if (r->has_spot) {
        print_json_line(&r->lines[1]);
        printf(",\"trace\":{\"losses\":%zu,\"gains\":%zu,\"held\":%s,\"useful\":%s,\"undone\":%s,"
               "\"saving\":%s,\"restarting\":%s,\"idle\":%s}",
               r->replay.losses, r->replay.gains, cli_json_number(text[0], r->replay.held, 9),
               cli_json_number(text[1], r->replay.useful, 9),
               cli_json_number(text[2], r->replay.undone, 9),
               cli_json_number(text[3], r->replay.saving, 9),
               cli_json_number(text[4], r->replay.restarting, 9),
               cli_json_number(text[5], r->replay.idle, 9));
    } else {
        printf("null");
    }
    if (is_compared(r)) {
        printf(",\"own\":{\"owned\":%s,\"rented\":%s,\"even_months\":%s}}\n",
               cli_json_number(text[0], r->ownership.owned, 9),
               cli_json_number(text[1], r->ownership.rented, 9),
               cli_json_number(text[2], r->ownership.even, 6));
    } else {
        printf(",\"own\":null}\n");
    }
}

/* ---- the command ---- */

static by_status make(const cost_request *q, const char *prices, by_error *error)
{
    cost_report r = {.request = q};
    by_status status = by_price_read(&r.price, prices, q->device, error);
    if (status == BY_OK && q->region != NULL) {
        status = by_region_read(&r.region, q->regions, q->region, error);
    }
    if (status == BY_OK) {
        status = compute(&r, error);
    }
    if (status == BY_OK && q->json) {
        print_json(&r);
    } else if (status == BY_OK) {
        print_text(&r);
    }
    return status;
}

/* Sets the time, FLOPs and devices of a config's run. */
static by_status plan_run(void *user, by_config *config, by_error *error)
{
    cost_request *q = user;
    by_cluster cluster;
    by_layout_plan plan;
    by_layout_options options = {.ranks = (int)q->devices};
    by_status status = cli_plan_complete(config, &options.data_bytes, error);
    if (status == BY_OK && q->cluster != NULL) {
        status = by_cluster_read(&cluster, q->cluster, error);
        options.cluster = &cluster;
    }
    if (status == BY_OK) {
        status = by_layout_plan_make(&plan, config, &options, error);
    }
    if (status != BY_OK) {
        return status;
    }
    q->seconds = plan.seconds * (double)config->train.steps;
    q->flops = plan.flops * (double)config->train.steps;
    q->devices = plan.ranks;
    if (plan.memory > plan.limit) {
        status = by_error_set(error, BY_EMEMORY,
                              "%s: a rank needs %llu bytes and may take %llu; banyan plan search "
                              "finds a layout that fits",
                              q->config, (unsigned long long)plan.memory,
                              (unsigned long long)plan.limit);
    }
    by_layout_plan_free(&plan);
    return status;
}

/* Refuses flags that contradict, or lack others. Returns -1 to continue. */
static int check(const cost_request *q)
{
    int ways = (q->seconds > 0.0) + (q->flops > 0.0) + (q->loss > 0.0) + (q->tokens > 0.0) +
               (q->config != NULL);
    if (q->device == NULL) {
        return cli_misuse(&cli_plan_cost, "--device names a row of the table of prices");
    }
    if (ways != 1) {
        return cli_misuse(&cli_plan_cost,
                          "say what is computed by one of --time, --flops, --tokens, --loss and "
                          "--config");
    }
    if (q->config == NULL && (q->cluster != NULL || q->overrides.count > 0)) {
        return cli_misuse(&cli_plan_cost, "--cluster and --set go with --config");
    }
    if (q->config != NULL && q->devices != floor(q->devices)) {
        return cli_misuse(&cli_plan_cost, "--devices %g: a config has whole ranks", q->devices);
    }
    if ((q->tokens > 0.0) != (q->rate > 0.0)) {
        return cli_misuse(&cli_plan_cost, "--tokens and --tokens-per-s go together");
    }
    if ((q->loss > 0.0) != (q->law != NULL)) {
        return cli_misuse(&cli_plan_cost,
                          "--loss takes --law RUNS.csv, whose law tells the FLOPs to it");
    }
    if ((q->region == NULL) != (q->regions == NULL)) {
        return cli_misuse(&cli_plan_cost, "--region names a row of the table --regions");
    }
    if ((q->device_mean > 0.0 || q->trace != NULL) && q->save == 0.0) {
        return cli_misuse(&cli_plan_cost, "with failures, --save says how long a checkpoint takes");
    }
    return -1;
}

static int run(int argc, char **argv)
{
    cost_request q = {.share = 0.4, .busy = 1.0, .months = 36.0, .use = 1.0, .least = 1};
    const cli_flag flags[] = {
        {"device", CLI_STRING, &q.device, "NAME", "row of the table of prices"},
        {"devices", CLI_NUMBER_IN(1, 1e6), &q.devices, "N",
         "how many (default: 1; with --config its ranks)"},
        {"time", CLI_TIME_ABOVE(0, INFINITY), &q.seconds, "TIME",
         "that all of them compute, such as 90m"},
        {"flops", CLI_NUMBER_ABOVE(0, INFINITY), &q.flops, "C", "or the FLOPs of the training"},
        {"tokens", CLI_NUMBER_ABOVE(0, INFINITY), &q.tokens, "D", "or its tokens"},
        {"tokens-per-s", CLI_NUMBER_ABOVE(0, INFINITY), &q.rate, "R",
         "of all devices, as a run or bench train prints it"},
        {"loss", CLI_NUMBER_ABOVE(0, INFINITY), &q.loss, "L", "or the loss to reach"},
        {"law", CLI_INPUT, &q.law, "FILE", "table of runs whose law tells the FLOPs to a loss"},
        {"config", CLI_INPUT, &q.config, "FILE", "or a config, whose steps are planned"},
        {"cluster", CLI_INPUT, &q.cluster, "FILE",
         "with a config: devices and network, as YAML (default: this machine)"},
        {"set", CLI_LIST, &q.overrides, "KEY=VALUE", CLI_SET_HELP},
        {"share", CLI_NUMBER_ABOVE(0, 1), &q.share, "P",
         "share of the peak, with FLOPs (default: 0.4)"},
        {"mtbf", CLI_TIME_ABOVE(0, INFINITY), &q.device_mean, "TIME",
         "mean time between failures of one device, such as 2000h"},
        {"trace", CLI_INPUT, &q.trace, "FILE",
         "trace of spot instances, columns seconds and instances (one device each)"},
        {"least", CLI_INTEGER_IN(1, 1e6), &q.least, "N",
         "instances of the trace below which nothing runs (default: 1)"},
        {"save", CLI_TIME_IN(0, INFINITY), &q.save, "TIME", "that a checkpoint stops training"},
        {"written", CLI_TIME_IN(0, INFINITY), &q.written, "TIME",
         "from then until it is on disk, while training goes on (default: 0s)"},
        {"restart", CLI_TIME_IN(0, INFINITY), &q.restart, "TIME",
         "from a failure until steps go on"},
        {"every", CLI_TIME_ABOVE(0, INFINITY), &q.every, "TIME",
         "between checkpoints (default: what has most goodput)"},
        {"regions", CLI_INPUT, &q.regions, "FILE", "table of regions"},
        {"region", CLI_STRING, &q.region, "NAME", "row of the table of regions"},
        {"busy", CLI_NUMBER_IN(0, 1), &q.busy, "P",
         "share of the way from idle to busy watts (default: 1)"},
        {"months", CLI_NUMBER_ABOVE(0, 1200), &q.months, "N",
         "for which owned devices are compared (default: 36)"},
        {"use", CLI_NUMBER_IN(0, 1), &q.use, "P", "share of these months in use (default: 1)"},
        {"json", CLI_SWITCH, &q.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_plan_cost, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_plan_cost, "name a file of prices");
    }
    code = cli_check_inputs(&cli_plan_cost, rest, count);
    if (code < 0) {
        code = check(&q);
    }
    if (code < 0 && q.config != NULL) {
        code = cli_with_config(&cli_plan_cost, q.config, &q.overrides, plan_run, &q);
        code = code == CLI_DONE ? -1 : code;
    }
    if (code >= 0) {
        return code;
    }
    q.devices = q.devices > 0.0 ? q.devices : 1.0;
    return make(&q, rest[0], &error) == BY_OK ? CLI_DONE : cli_fail(&cli_plan_cost, &error);
}

const cli_command cli_plan_cost = {
    .name = "plan cost",
    .summary = "tell the money, energy and CO2 of a run, with its failures",
    .usage =
        "banyan plan cost PRICES --device NAME --devices N\n"
        "       --time TIME | --flops C | --tokens D --tokens-per-s R | --loss L --law RUNS.csv |\n"
        "       --config FILE [--cluster FILE]\n"
        "       [--mtbf TIME] [--trace FILE] [--save TIME] [--restart TIME] [--json]",
    .text =
        "Prints the time, money, energy and CO2 of a run, and how often it should save.\n"
        "\n"
        "examples:\n"
        "  banyan plan cost prices.csv --device h100 --devices 64 --flops 1e22\n"
        "  banyan plan cost prices.csv --device h100 --devices 64 --time 90h --mtbf 2000h \\\n"
        "      --save 20s --restart 3m --regions regions.csv --region eu-north\n"
        "  banyan plan cost prices.csv --device t4 --devices 12 --time 40h --trace spot.csv \\\n"
        "      --save 5s --restart 90s\n"
        "  banyan plan cost prices.csv --device a100 --config config.yaml --cluster a100.yaml\n"
        "\n"
        "Prices are a table, or YAML with a list `prices`: device, and of price_per_hour,\n"
        "spot_per_hour, purchase_price, upkeep_per_month, watts (or tdp_watts), idle_watts and\n"
        "tflops what is known. Regions (in YAML: the list `regions`, of the same file, too) have\n"
        "region, grams_co2_per_kwh, pue and price_per_kwh. Failures are random, once in the mean\n"
        "time of a device divided by their number; those of spot instances are the trace's,\n"
        "replayed. See docs/cost.md.",
    .run = run};
