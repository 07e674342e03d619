/* `banyan plan search`: the best layout of a run on so many devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/layout_search.h"
#include "plan/plan_command.h"

/* Up to so many devices the best layouts are compiled as a whole, too. */
#define EXACT_DEVICES 64

typedef struct search_request {
    cli_list overrides;
    const char *cluster; /* file; NULL: this machine */
    const char *memory;
    const char *by;
    const char *write;
    int64_t devices;
    double deadline; /* of the whole run */
    double price;    /* of a device for an hour; below 0: the cluster's */
    bool exact;
    bool json;
} search_request;

typedef struct search_report {
    const search_request *request;
    const by_config *config;
    by_cluster cluster;
    by_search_options options;
    by_search_result result;
    by_layout_plan plan; /* of the best, compiled; ranks 0: it was not */
    int64_t enough;      /* devices on which it fits, if it does not on these; 0: unknown */
} search_report;

/* Money of the whole run; NAN without a price. */
static double money_of(const search_report *r, const by_search_choice *c)
{
    double steps = (double)r->config->train.steps;
    return r->cluster.device.price / 3600.0 * (double)c->devices * c->seconds * steps;
}

/* ---- text ---- */

static void print_layout(const by_search_choice *c)
{
    printf("%s", cli_plan_print_axes(c->sizes, "") ? "" : "one rank");
    if (c->sizes[BY_MESH_SHARD] > 1) {
        printf(", zero %d", c->zero);
    }
    if (c->sizes[BY_MESH_TENSOR] > 1 && !c->sequence_parallel) {
        printf(", whole sequences");
    }
    if (c->chunks > 1) {
        printf(", %d chunks", c->chunks);
    }
    printf(", micro-batch %lld x %lld%s", (long long)c->micro_batch, (long long)c->micro_batches,
           c->recompute == BY_SEARCH_RECOMPUTE_BLOCK ? ", recompute" : "");
}

static void print_choice(const search_report *r, const by_search_choice *c, const char *name)
{
    char text[2][32];
    printf("%-12s  %9s ms  %11s  %6lld devices", name, cli_ms(text[0], 1e3 * c->seconds),
           by_format_bytes(text[1], (uint64_t)c->memory), (long long)c->devices);
    if (isfinite(r->cluster.device.price)) {
        printf("  %.2f money", money_of(r, c));
    }
    printf("  ");
    print_layout(c);
    printf("\n");
}

/* What takes most of a step besides products. */
static by_layout_part limit_of(const by_search_choice *c)
{
    int most = BY_LAYOUT_ATTENTION;
    for (int part = BY_LAYOUT_ATTENTION; part < BY_LAYOUT_PARTS; part++) {
        most = c->terms[part] > c->terms[most] ? part : most;
    }
    return (by_layout_part)most;
}

static void print_misfit(const search_report *r)
{
    const by_search_choice *c = &r->result.best;
    char text[32];
    char limit[32];
    if (c->memory <= c->limit) {
        printf("does not fit  no layout of at most %lld devices ends in time\n",
               (long long)r->options.devices);
        if (r->enough > 0) {
            printf("in time with  %lld devices\n", (long long)r->enough);
        }
        return;
    }
    printf("does not fit  the least that a layout of at most %lld devices needs is %s a device, "
           "which has %s\n",
           (long long)r->options.devices, by_format_bytes(text, (uint64_t)c->memory),
           by_format_bytes(limit, (uint64_t)c->limit));
    if (r->enough > 0) {
        printf("fits with     %lld devices, or %s of memory each\n", (long long)r->enough,
               by_format_bytes(text, (uint64_t)c->memory));
    }
}

static void print_text(const search_report *r)
{
    const by_search_result *s = &r->result;
    const by_search_choice *c = &s->best;
    char text[600];
    printf("considered    %.0f layouts of at most %lld %s, from %zu compiled graphs\n",
           s->considered, (long long)r->options.devices, r->cluster.device.name, s->compiled);
    if (!s->fits) {
        print_misfit(r);
    }
    print_choice(r, c, s->fits ? "best" : "smallest");
    by_layout_part limit = limit_of(c);
    printf("limited by    %s, %.1f %% of a step; products are %.1f %%\n",
           by_layout_part_name(limit), 100.0 * c->terms[limit] / c->seconds,
           100.0 * c->terms[BY_LAYOUT_PRODUCTS] / c->seconds);
    if (r->plan.ranks > 0) {
        char bytes[32];
        char ms[32];
        printf("compiled      %9s ms  %11s\n", cli_ms(ms, 1e3 * r->plan.seconds),
               by_format_bytes(bytes, r->plan.memory));
    }
    for (size_t i = 1; i < s->pareto_count && s->fits; i++) {
        print_choice(r, &s->pareto[i], i == 1 ? "less memory" : "");
    }
    by_search_settings(text, sizeof text, c, " ");
    printf("settings      %s\n", text);
    if (r->request->write != NULL) {
        cli_tell_written(r->request->write);
    }
}

/* ---- JSON ---- */

static void print_json_choice(const search_report *r, const by_search_choice *c)
{
    char text[600];
    char money[32];
    char limit[32];
    by_search_settings(text, sizeof text, c, " ");
    printf("{\"set\":\"%s\",\"devices\":%lld,\"micro_batches\":%lld,\"step_s\":%.9g,"
           "\"planned_bytes\":%.0f,\"limit_bytes\":%s,\"money\":%s,\"terms\":{",
           text, (long long)c->devices, (long long)c->micro_batches, c->seconds, c->memory,
           cli_json_number(limit, c->limit, 15), cli_json_number(money, money_of(r, c), 9));
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        printf("%s\"%s\":%.6g", part == 0 ? "" : ",", by_layout_part_name((by_layout_part)part),
               c->terms[part]);
    }
    printf("}}");
}

static void print_json(const search_report *r)
{
    const by_search_result *s = &r->result;
    printf("{\"fits\":%s,\"considered\":%.0f,\"compiled\":%zu,\"best\":",
           s->fits ? "true" : "false", s->considered, s->compiled);
    print_json_choice(r, &s->best);
    if (r->plan.ranks > 0) {
        printf(",\"compiled_step_s\":%.9g,\"compiled_bytes\":%llu", r->plan.seconds,
               (unsigned long long)r->plan.memory);
    }
    printf(",\"limited_by\":\"%s\",\"enough_devices\":%lld,\"pareto\":[",
           by_layout_part_name(limit_of(&s->best)), (long long)r->enough);
    for (size_t i = 0; i < s->pareto_count; i++) {
        printf("%s", i == 0 ? "" : ",");
        print_json_choice(r, &s->pareto[i]);
    }
    printf("]}\n");
}

/* ---- the search ---- */

/* Compiles the best layout as a whole. */
static by_status compile_best(search_report *r, by_error *error)
{
    bool exact = r->request->exact || r->result.best.devices <= EXACT_DEVICES;
    return exact ? by_search_plan(&r->plan, &r->result, r->config, &r->options, error) : BY_OK;
}

/* The cluster of the result; `ranks` of this machine are one. */
static by_status describe_cluster(search_report *r, int ranks, by_error *error)
{
    const search_request *q = r->request;
    by_status status = cli_plan_cluster(&r->cluster, q->cluster, r->config, ranks, error);
    r->cluster.device.price = q->price >= 0.0 ? q->price : r->cluster.device.price;
    return status;
}

/* Finds a number of devices on which it fits, by doubling. More ranks of a host whose memory they
 * share have no more of it. */
static by_status find_enough(search_report *r, by_error *error)
{
    if (r->options.cluster == NULL && strcmp(r->cluster.device.name, "cpu") == 0) {
        return BY_OK;
    }
    by_search_options more = r->options;
    by_search_result found;
    by_cluster wide = r->cluster;
    int64_t *width = &wide.levels[wide.level_count - 1].width;
    more.cluster = &wide;
    for (int k = 0; k < 4; k++) {
        more.devices *= 2;
        *width *= by_cluster_devices(&wide) < (double)more.devices ? 2 : 1;
        by_status status = by_layout_search(&found, r->config, &more, error);
        if (status != BY_OK || found.fits) {
            r->enough = status == BY_OK ? found.best.devices : 0;
            return status;
        }
    }
    return BY_OK;
}

static by_status write_config(const search_report *r, by_error *error)
{
    by_config *config;
    char *text = NULL;
    by_status status = by_search_config(&config, r->config, &r->result.best, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_config_print(config, &text, error);
    by_config_close(&config);
    if (status == BY_OK) {
        FILE *file = fopen(r->request->write, "w");
        bool good = file != NULL && fputs(text, file) >= 0;
        good = (file == NULL || fclose(file) == 0) && good;
        status =
            good ? BY_OK : by_error_set(error, BY_EIO, "%s: cannot be written", r->request->write);
    }
    free(text);
    return status;
}

/* Reads a size as the key memory.budget does. */
static by_status read_memory(double *out, const by_config *config, const char *text,
                             by_error *error)
{
    by_config *copy;
    char setting[64];
    by_status status = by_config_copy(&copy, config, error);
    if (status != BY_OK) {
        return status;
    }
    (void)snprintf(setting, sizeof setting, "memory.budget=%.40s", text);
    status = by_config_set(copy, setting, error);
    *out = status == BY_OK ? (double)copy->memory.budget : 0.0;
    by_config_close(&copy);
    return status;
}

static by_status open_options(search_report *r, const by_config *config, by_error *error)
{
    const search_request *q = r->request;
    by_status status = describe_cluster(r, (int)q->devices, error);
    if (status == BY_OK && q->memory != NULL) {
        status = read_memory(&r->options.memory, config, q->memory, error);
    }
    r->options.cluster = q->cluster != NULL ? &r->cluster : NULL;
    r->options.devices = q->devices > 0 ? q->devices : (int64_t)by_cluster_devices(&r->cluster);
    r->options.goal = strcmp(q->by, "money") == 0 ? BY_SEARCH_MONEY : BY_SEARCH_TIME;
    r->options.deadline = q->deadline / (double)config->train.steps;
    return status;
}

static by_status search(void *user, by_config *config, by_error *error)
{
    search_report *r = user;
    uint64_t bytes;
    r->config = config;
    by_status status = cli_plan_complete(config, &bytes, error);
    if (status == BY_OK) {
        status = open_options(r, config, error);
    }
    if (status == BY_OK) {
        status = by_layout_search(&r->result, config, &r->options, error);
    }
    if (status == BY_OK) {
        status = r->result.fits ? compile_best(r, error) : find_enough(r, error);
    }
    if (status == BY_OK) {
        status = describe_cluster(r, (int)r->result.best.devices, error);
    }
    if (status == BY_OK && r->request->write != NULL && r->result.fits) {
        status = write_config(r, error);
    }
    if (status == BY_OK && r->request->json) {
        print_json(r);
    } else if (status == BY_OK) {
        print_text(r);
    }
    by_layout_plan_free(&r->plan);
    return status;
}

static int run(int argc, char **argv)
{
    search_request q = {.by = "time", .price = -1.0};
    const cli_flag flags[] = {
        {"devices", CLI_INTEGER_IN(1, 1e6), &q.devices, "N",
         "at most (default: those of the cluster)"},
        {"memory", CLI_STRING, &q.memory, "SIZE",
         "of a device, such as 40GiB (default: the cluster's)"},
        {"cluster", CLI_INPUT, &q.cluster, "FILE",
         "devices and network, as YAML (default: this machine, whose cores the ranks divide)"},
        {"by", CLI_STRING, &q.by, "GOAL", "what is least: time (default) or money"},
        {"price", CLI_NUMBER_IN(0, 1e9), &q.price, "P",
         "money for a device and hour (default: the cluster's)"},
        {"deadline", CLI_TIME_ABOVE(0, INFINITY), &q.deadline, "TIME",
         "in which all steps are done, such as 90h; with --by money the cheapest that is in time"},
        {"write", CLI_STRING, &q.write, "FILE", "write the config with the best layout"},
        {"exact", CLI_SWITCH, &q.exact, NULL,
         "compile the best layout as a whole also on more than 64 devices"},
        {"set", CLI_LIST, &q.overrides, "KEY=VALUE", CLI_SET_HELP},
        {"json", CLI_SWITCH, &q.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_plan_search, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_plan_search, "name one config");
    }
    if (strcmp(q.by, "time") != 0 && strcmp(q.by, "money") != 0) {
        return cli_misuse(&cli_plan_search, "--by %s: it is time or money", q.by);
    }
    search_report r = {.request = &q};
    code = cli_check_input(&cli_plan_search, rest[0]);
    code = code >= 0 ? code : cli_with_config(&cli_plan_search, rest[0], &q.overrides, search, &r);
    return code == CLI_DONE && !r.result.fits ? CLI_FAILED : code;
}

const cli_command cli_plan_search = {
    .name = "plan search",
    .summary = "find the best layout of a config on so many devices",
    .usage = "banyan plan search CONFIG [--devices N] [--memory SIZE] [--cluster FILE]\n"
             "       [--by time|money] [--price P] [--deadline TIME] [--write FILE] [--json]",
    .text =
        "Considers all sizes of the axes data, shard, tensor, sequence, expert and pipeline, the\n"
        "stages of ZeRO, chunks of the pipeline, recomputation and the micro-batch, and prints\n"
        "the layout that takes the least time or money, those that take less memory, and what\n"
        "limits it. If nothing fits, it tells the least that would.\n"
        "\n"
        "examples:\n"
        "  banyan plan search config.yaml --devices 8 --cluster examples/clusters/a100.yaml\n"
        "  banyan plan search config.yaml --cluster h100.yaml --by money --price 2.5 \\\n"
        "      --deadline 720h --write best.yaml\n"
        "\n"
        "The exit code is 1 if nothing fits. See docs/planning.md.",
    .run = run};
