/* `banyan plan CONFIG`: memory and time of a run's layout. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/layout.h"
#include "banyan/plot.h"
#include "plan/plan_command.h"

typedef struct layout_request {
    cli_list overrides;
    const char *cluster; /* file; NULL: this machine */
    const char *trace;   /* file to write the step to; NULL: none */
    int64_t ranks;       /* 0: as the config says */
    bool json;
} layout_request;

typedef struct layout_report {
    const layout_request *request;
    const by_task *task;
    by_cluster cluster;
    by_layout_plan plan;
} layout_report;

/* ---- text ---- */

bool cli_plan_print_axes(const int sizes[BY_MESH_AXES], const char *before)
{
    bool any = false;
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        if (sizes[axis] > 1) {
            printf("%s%s %d", any ? ", " : before, by_mesh_axis_name((by_mesh_axis)axis),
                   sizes[axis]);
            any = true;
        }
    }
    return any;
}

/* Group of the ranks along an axis; inner axes have the higher numbers. */
static by_exchange_group group_of(const by_layout_plan *p, int axis)
{
    by_exchange_group g = {.ranks = p->sizes[axis], .stride = 1.0, .world = p->ranks};
    for (int inner = axis + 1; inner < BY_MESH_AXES; inner++) {
        g.stride *= p->sizes[inner];
    }
    return g;
}

/* The levels of the network, and the axes whose ranks exchange there. */
static void print_network(const layout_report *r)
{
    const by_cluster *c = &r->cluster;
    const char *unit = c->device.name;
    for (int i = 0; i < c->level_count && r->plan.ranks > 1; i++) {
        const by_cluster_level *l = &c->levels[i];
        const char *before = ": ";
        printf("%-13s %s of %lld x %s, %.4g GB/s, %.4g us", i == 0 ? "network" : "", l->name,
               (long long)l->width, unit, 1e-9 * l->bandwidth, 1e6 * l->latency);
        for (int axis = BY_MESH_AXES; axis-- > 0;) {
            const by_exchange_group g = group_of(&r->plan, axis);
            if (by_cluster_crosses(c, i, &g)) {
                printf("%s%s", before, by_mesh_axis_name((by_mesh_axis)axis));
                before = ", ";
            }
        }
        printf("\n");
        unit = l->name;
    }
}

static void print_memory(const by_layout_plan *p)
{
    printf("%-26s %11s %11s %11s %11s %11s %11s\n", "memory of rank", "weights", "gradients",
           "optimizer", "activations", "data", "total");
    for (size_t i = 0; i < p->planned_count; i++) {
        const by_layout_rank *r = &p->planned[i];
        const by_memory_report *m = &r->memory;
        char text[6][32];
        char name[64];
        (void)snprintf(name, sizeof name, "%d%s%.40s", r->rank, r->place[0] == '\0' ? "" : " ",
                       r->place);
        printf("  %-24s %11s %11s %11s %11s %11s %11s%s\n", name,
               by_format_bytes(text[0], m->parameters), by_format_bytes(text[1], m->gradients),
               by_format_bytes(text[2], m->optimizer),
               by_format_bytes(text[3], m->activations + m->workspace),
               by_format_bytes(text[4], m->data), by_format_bytes(text[5], m->total),
               m->total > p->limit ? "  does not fit" : "");
    }
    if (p->memory > p->limit) {
        char text[32];
        printf("  a rank may take %s: lower train.micro_batch, set memory.recompute, or take more "
               "ranks with\n  parallel.shard, tensor or pipeline\n",
               by_format_bytes(text, p->limit));
    }
}

static void print_terms(const by_layout_plan *p)
{
    printf("%-26s %11s %8s %11s  %s\n", "time of a step", "ms", "share", "hidden ms", "from");
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        const by_layout_term *t = &p->terms[part];
        char text[3][32];
        if (t->seconds > 0.0 || t->hidden > 0.0) {
            printf("  %-24s %11s %7.1f%% %11s  %s\n", by_layout_part_name((by_layout_part)part),
                   cli_ms(text[0], 1e3 * t->seconds), 100.0 * t->seconds / p->seconds,
                   t->hidden > 0.0 ? cli_ms(text[1], 1e3 * t->hidden) : "",
                   by_origin_name(t->origin));
        }
    }
    char text[3][32];
    printf("  %-24s %11s           80 %% between %s and %s\n", "total",
           cli_ms(text[0], 1e3 * p->seconds), cli_ms(text[1], 1e3 * p->low),
           cli_ms(text[2], 1e3 * p->high));
}

static void print_text(const layout_report *r)
{
    const by_layout_plan *p = &r->plan;
    printf("ranks         %d", p->ranks);
    (void)cli_plan_print_axes(p->sizes, ": ");
    printf("\nmicro-batch   %lld, %lld a replica and step\n", (long long)p->micro_batch,
           (long long)p->micro_batches);
    printf("device        %s of %s\n", r->cluster.device.name, r->cluster.name);
    print_network(r);
    print_memory(p);
    print_terms(p);
    if (p->corrected_by > 0) {
        printf("corrected     by %.3g, from %zu measured run%s of this machine\n", p->correction,
               p->corrected_by, p->corrected_by == 1 ? "" : "s");
    }
    printf("per second    %.4g %s; %.1f %% of the peak of all ranks", p->examples / p->seconds,
           r->task->examples, 100.0 * p->share);
    if (p->sizes[BY_MESH_PIPELINE] > 1) {
        printf("; ranks idle for %.1f %% of a step", 100.0 * p->bubble);
    }
    printf("\n");
}

/* ---- JSON ---- */

static void print_json_ranks(const by_layout_plan *p)
{
    printf(",\"planned\":[");
    for (size_t i = 0; i < p->planned_count; i++) {
        const by_layout_rank *r = &p->planned[i];
        const by_memory_report *m = &r->memory;
        printf("%s{\"rank\":%d,\"place\":\"%s\",\"parameter_bytes\":%llu,\"gradient_bytes\":%llu,"
               "\"optimizer_bytes\":%llu,\"activation_bytes\":%llu,\"workspace_bytes\":%llu,"
               "\"data_bytes\":%llu,\"planned_bytes\":%llu,\"busy_s\":%.6g,\"idle_s\":%.6g}",
               i == 0 ? "" : ",", r->rank, r->place, (unsigned long long)m->parameters,
               (unsigned long long)m->gradients, (unsigned long long)m->optimizer,
               (unsigned long long)m->activations, (unsigned long long)m->workspace,
               (unsigned long long)m->data, (unsigned long long)m->total, r->busy, r->idle);
    }
    printf("]");
}

static void print_json(const layout_report *r)
{
    const by_layout_plan *p = &r->plan;
    printf("{\"ranks\":%d", p->ranks);
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        printf(",\"%s\":%d", by_mesh_axis_name((by_mesh_axis)axis), p->sizes[axis]);
    }
    printf(",\"micro_batch\":%lld,\"micro_batches\":%lld,\"device\":", (long long)p->micro_batch,
           (long long)p->micro_batches);
    cli_print_json_string(r->cluster.device.name);
    printf(",\"planned_bytes\":%llu,\"limit_bytes\":%llu,\"fits\":%s",
           (unsigned long long)p->memory, (unsigned long long)p->limit,
           p->memory <= p->limit ? "true" : "false");
    print_json_ranks(p);
    printf(",\"step_s\":%.9g,\"low_s\":%.9g,\"high_s\":%.9g,\"correction\":%.6g,"
           "\"corrected_by\":%zu,\"bubble\":%.6g,\"flops\":%.9g,"
           "\"share_of_peak\":%.6g,\"%s_per_s\":%.9g,\"terms\":[",
           p->seconds, p->low, p->high, p->correction, p->corrected_by, p->bubble, p->flops,
           p->share, r->task->examples, p->examples / p->seconds);
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        const by_layout_term *t = &p->terms[part];
        printf("%s{\"name\":\"%s\",\"seconds\":%.9g,\"hidden_s\":%.9g,\"from\":\"%s\"}",
               part == 0 ? "" : ",", by_layout_part_name((by_layout_part)part), t->seconds,
               t->hidden, by_origin_name(t->origin));
    }
    printf("]}\n");
}

/* ---- the command ---- */

by_status cli_plan_complete(by_config *config, uint64_t *bytes, by_error *error)
{
    const by_task *task;
    by_task_data *data;
    const by_task_request what = {.config = config};
    by_status status = by_config_inherit_model(config, error);
    *bytes = 0;
    if (status == BY_OK) {
        status = by_task_find(&task, config, error);
    }
    if (status != BY_OK || (task->knows(config) & BY_TASK_SIZES) != 0) {
        return status;
    }
    status = by_task_open(&data, task, &what, error);
    if (status == BY_OK) {
        status = by_task_complete(data, config, error);
        *bytes = data->bytes;
        by_task_close(&data);
    }
    return status;
}

by_status cli_plan_cluster(by_cluster *out, const char *path, const by_config *config, int ranks,
                           by_error *error)
{
    by_machine machine;
    if (path != NULL) {
        return by_cluster_read(out, path, error);
    }
    by_status status =
        by_machine_load(&machine, config->device, (int)config->train.threads, 0, error);
    if (status == BY_OK) {
        by_cluster_of_machine(out, &machine, ranks);
    }
    return status;
}

/* A trace as JSON, or a picture. */
static by_status write_trace(const by_layout_plan *p, const char *path, by_error *error)
{
    const char *dot = strrchr(path, '.');
    bool draws = dot != NULL && (strcmp(dot, ".png") == 0 || strcmp(dot, ".svg") == 0);
    by_status status =
        draws ? by_layout_draw(p, path, error) : by_layout_write_trace(p, path, error);
    cli_tell_written(status == BY_OK ? path : NULL);
    return status;
}

static by_status make(void *user, by_config *config, by_error *error)
{
    layout_report *r = user;
    by_layout_options options = {.ranks = (int)r->request->ranks,
                                 .trace = r->request->trace != NULL};
    by_status status = cli_plan_complete(config, &options.data_bytes, error);
    if (status == BY_OK) {
        status = by_task_find(&r->task, config, error);
    }
    if (status == BY_OK && r->request->cluster != NULL) {
        status = by_cluster_read(&r->cluster, r->request->cluster, error);
        options.cluster = &r->cluster;
    }
    if (status == BY_OK) {
        status = by_layout_plan_make(&r->plan, config, &options, error);
    }
    if (status == BY_OK && options.cluster == NULL) {
        status = cli_plan_cluster(&r->cluster, NULL, config, r->plan.ranks, error);
    }
    if (status == BY_OK && r->request->json) {
        print_json(r);
    } else if (status == BY_OK) {
        print_text(r);
    }
    if (status == BY_OK && r->request->trace != NULL) {
        status = write_trace(&r->plan, r->request->trace, error);
    }
    by_layout_plan_free(&r->plan);
    return status;
}

int cli_plan_layout(int argc, char **argv)
{
    layout_request q = {0};
    const cli_flag flags[] = {
        {"cluster", CLI_INPUT, &q.cluster, "FILE",
         "devices and network, as YAML (default: this machine, whose cores the ranks divide)"},
        {"ranks", CLI_INTEGER_IN(1, 1e6), &q.ranks, "N",
         "of the job (default: the product of the config's axes)"},
        {"trace", CLI_STRING, &q.trace, "FILE",
         "write the planned step, rank by rank: .json for chrome://tracing and Perfetto, .png or "
         ".svg"},
        {"set", CLI_LIST, &q.overrides, "KEY=VALUE", CLI_SET_HELP},
        {"device", CLI_DEVICE, &q.overrides, "NAME", CLI_DEVICE_HELP},
        {"json", CLI_SWITCH, &q.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_plan, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_plan, "name one config, or a plan; see banyan plan --help");
    }
    layout_report r = {.request = &q};
    code = cli_check_input(&cli_plan, rest[0]);
    return code >= 0 ? code : cli_with_config(&cli_plan, rest[0], &q.overrides, make, &r);
}
