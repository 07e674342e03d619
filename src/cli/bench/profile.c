#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "bench/bench.h"

#define CHART_COLUMNS 64
#define CHART_ROWS    8

typedef struct profile_request {
    cli_list overrides;
    const char *trace;
    const char *out;
    int64_t steps;
    int64_t ranks;
    bool random;
    bool json;
} profile_request;

typedef struct profile_report {
    const profile_request *request;
    const by_config *config;
    const cli_profiled *run;
    by_profile_row *ops;
    size_t op_count;
    by_profile_row *layers;
    size_t layer_count;
    double node_seconds; /* over all nodes and steps */
    size_t *live;        /* bytes at each node of the gradient program; NULL: a rank of a
                            pipeline */
    int nodes;
    int peak;           /* the node with the most bytes alive */
    int first_backward; /* `nodes` if there is none */
    by_node_info peak_info;
    double examples_per_s;
    const char *examples; /* unit that is counted */
} profile_report;

/* ---- the report ---- */

static by_status read_memory(profile_report *r, by_error *error)
{
    const by_program *program = by_trainer_program(r->run->trainer, "gradients");
    if (program == NULL) {
        return BY_OK; /* a pipeline stage has several programs instead */
    }
    r->nodes = by_program_node_count(program);
    r->first_backward = r->nodes;
    r->live = calloc((size_t)r->nodes + 1, sizeof *r->live);
    if (r->live == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: the profile");
    }
    for (int n = 0; n < r->nodes; n++) {
        by_node_info info;
        by_status status = by_program_node(program, n, &info, error);
        if (status != BY_OK) {
            return status;
        }
        r->live[n] = info.live_bytes;
        r->first_backward = info.backward && n < r->first_backward ? n : r->first_backward;
        if (n == 0 || r->live[n] > r->live[r->peak]) {
            r->peak = n;
            r->peak_info = info;
        }
    }
    return BY_OK;
}

static by_status fill_report(profile_report *r, by_error *error)
{
    const cli_profiled *run = r->run;
    by_status status = by_profile_rows(&r->ops, &r->op_count, run->profile, BY_PROFILE_BY_OP,
                                       &run->machine, error);
    if (status == BY_OK) {
        status = by_profile_rows(&r->layers, &r->layer_count, run->profile, BY_PROFILE_BY_LAYER,
                                 &run->machine, error);
    }
    if (status == BY_OK) {
        status = read_memory(r, error);
    }
    for (size_t i = 0; i < r->op_count; i++) {
        r->node_seconds += r->ops[i].collective ? 0.0 : r->ops[i].seconds;
    }
    r->examples_per_s = (double)run->examples / run->seconds;
    r->examples = by_trainer_task(run->trainer)->examples;
    return status;
}

static void close_report(profile_report *r)
{
    by_profile_rows_free(r->ops, r->op_count);
    by_profile_rows_free(r->layers, r->layer_count);
    free(r->live);
}

/* ---- JSON ---- */

static void print_rows_json(const profile_report *r, const char *key, const by_profile_row *rows,
                            size_t count)
{
    double steps = (double)r->run->steps;
    printf(",\"%s\":[", key);
    for (size_t i = 0; i < count; i++) {
        const by_profile_row *row = &rows[i];
        printf("%s{\"name\":", i == 0 ? "" : ",");
        cli_print_json_string(row->name);
        printf(",\"nodes\":%d,\"ms\":%.6g,\"share\":%.4g,\"forward_ms\":%.6g,\"backward_ms\":%.6g,"
               "\"update_ms\":%.6g,\"gflops\":%.6g,\"gbps\":%.5g,\"roof_share\":%.4g}",
               row->nodes, 1e3 * row->seconds / steps, row->seconds / r->run->seconds,
               1e3 * row->part_seconds[BY_PROFILE_FORWARD] / steps,
               1e3 * row->part_seconds[BY_PROFILE_BACKWARD] / steps,
               1e3 * row->part_seconds[BY_PROFILE_UPDATE] / steps, 1e-9 * row->flops / row->seconds,
               1e-9 * row->bytes / row->seconds, row->roof_seconds / row->seconds);
    }
    printf("]");
}

static void print_memory_json(const profile_report *r)
{
    if (r->live == NULL) {
        printf(",\"memory\":null");
        return;
    }
    printf(",\"memory\":{\"peak_bytes\":%zu,\"peak_node\":%d,\"peak_op\":\"%s\",\"live_bytes\":[",
           r->live[r->peak], r->peak, r->peak_info.op_name);
    for (int n = 0; n < r->nodes; n++) {
        printf("%s%zu", n == 0 ? "" : ",", r->live[n]);
    }
    printf("]}");
}

static void print_json(const profile_report *r)
{
    const cli_profiled *run = r->run;
    printf("{\"steps\":%lld,\"step_ms\":%.6g,\"%s_per_s\":%.6g,\"isa\":\"%s\",\"threads\":%d,"
           "\"data\":\"%s\",\"wait_ms\":%.6g,\"wait_share\":%.4g,\"waits\":%llu,"
           "\"between_nodes_ms\":%.6g",
           (long long)run->steps, 1e3 * run->seconds / (double)run->steps, r->examples,
           r->examples_per_s, run->machine.isa, run->machine.threads,
           run->from_data ? "config" : "random", 1e3 * run->wait_seconds / (double)run->steps,
           run->wait_seconds / run->seconds, (unsigned long long)run->waits,
           1e3 * (run->seconds - run->wait_seconds - r->node_seconds) / (double)run->steps);
    print_rows_json(r, "ops", r->ops, r->op_count);
    print_rows_json(r, "layers", r->layers, r->layer_count);
    if (run->ranks != NULL) {
        cli_print_ranks_json(run, r->config);
    }
    print_memory_json(r);
    printf(",\"trace\":");
    if (r->request->trace == NULL) {
        printf("null}\n");
    } else {
        cli_print_json_string(r->request->trace);
        printf("}\n");
    }
}

/* ---- text ---- */

static void print_rows(const profile_report *r, const char *what, const by_profile_row *rows,
                       size_t count)
{
    double steps = (double)r->run->steps;
    printf("\n%-28s %6s %10s %7s %10s %10s %10s %9s %8s %6s\n", what, "nodes", "ms", "share",
           "forward", "backward", "update", "GFLOP/s", "GB/s", "roof");
    for (size_t i = 0; i < count; i++) {
        const by_profile_row *row = &rows[i];
        char roof[32];
        printf("%-28s %6d %10.3f %6.1f%% %10.3f %10.3f %10.3f %9.1f %8.1f %6s\n", row->name,
               row->nodes, 1e3 * row->seconds / steps, 100.0 * row->seconds / r->run->seconds,
               1e3 * row->part_seconds[BY_PROFILE_FORWARD] / steps,
               1e3 * row->part_seconds[BY_PROFILE_BACKWARD] / steps,
               1e3 * row->part_seconds[BY_PROFILE_UPDATE] / steps, 1e-9 * row->flops / row->seconds,
               1e-9 * row->bytes / row->seconds,
               cli_share(roof, row->roof_seconds / row->seconds, 0, "%"));
    }
}

/* Prints for each column the bytes at its busiest node. */
static void print_chart(const profile_report *r)
{
    char text[32];
    size_t column[CHART_COLUMNS] = {0};
    int columns = r->nodes < CHART_COLUMNS ? r->nodes : CHART_COLUMNS;
    size_t peak = r->live[r->peak];
    for (int n = 0; n < r->nodes; n++) {
        size_t *bar = &column[(int64_t)n * columns / r->nodes];
        *bar = r->live[n] > *bar ? r->live[n] : *bar;
    }
    printf(
        "\nlive activations over the %d nodes of forward and backward: at most %s, at node %d (%s",
        r->nodes, by_format_bytes(text, peak), r->peak, r->peak_info.op_name);
    printf(r->peak_info.block < 0 ? ")\n" : ", block %d)\n", r->peak_info.block);
    for (int row = CHART_ROWS; row >= 1; row--) {
        printf("%10s |", by_format_bytes(text, peak / CHART_ROWS * (size_t)row));
        for (int c = 0; c < columns; c++) {
            /* A row is filled if the bar reaches its middle. */
            bool full = 2.0 * CHART_ROWS * (double)column[c] >= (2.0 * row - 1.0) * (double)peak;
            putchar(full && peak > 0 ? '#' : ' ');
        }
        putchar('\n');
    }
    printf("%10s +", "");
    for (int c = 0; c < columns; c++) {
        putchar(c == (int)((int64_t)r->first_backward * columns / r->nodes) ? '^' : '-');
    }
    printf("\n%10s  ^ where the backward pass begins\n", "");
}

static void print_text(const profile_report *r)
{
    const cli_profiled *run = r->run;
    const by_machine *m = &run->machine;
    double steps = (double)run->steps;
    double between = run->seconds - run->wait_seconds - r->node_seconds;
    printf("%lld steps of %.3f ms, %.0f %s/s; %s, %d threads; peaks: f32 %.0f GFLOP/s, bf16 %.0f "
           "GFLOP/s, memory %.1f GB/s\n",
           (long long)run->steps, 1e3 * run->seconds / steps, r->examples_per_s, r->examples,
           m->isa, m->threads, m->f32_gflops, m->bf16_gflops,
           m->read_gbps > m->copy_gbps ? m->read_gbps : m->copy_gbps);
    if (run->from_data) {
        printf("data: waited %.3f ms per step (%.2f %%); %llu of %lld batches were not ready\n",
               1e3 * run->wait_seconds / steps, 100.0 * run->wait_seconds / run->seconds,
               (unsigned long long)run->waits, (long long)run->steps);
    } else {
        printf("data: random, no waiting\n");
    }
    if (run->ranks != NULL) {
        cli_print_ranks(run, r->config);
        printf("\nrank 0:");
    }
    print_rows(r, "operation (ms a step)", r->ops, r->op_count);
    printf("%-28s %6s %10.3f %6.1f%%\n", "between nodes", "", 1e3 * between / steps,
           100.0 * between / run->seconds);
    print_rows(r, "layer (ms a step)", r->layers, r->layer_count);
    if (r->live != NULL) {
        print_chart(r);
    }
    if (r->request->trace != NULL) {
        printf("\ntrace: %s; open it at https://ui.perfetto.dev\n", r->request->trace);
    }
}

/* ---- the command ---- */

static by_status write_trace(const profile_request *q, const cli_profiled *run, by_error *error)
{
    if (q->trace == NULL) {
        return BY_OK;
    }
    return run->ranks == NULL ? by_profile_trace(run->profile, q->trace, error)
                              : by_profile_trace_ranks(run->profile, run->ranks, q->trace, error);
}

static by_status write_picture(const profile_report *r, by_error *error)
{
    const by_profile_picture what = {r->ops, r->op_count, r->run->seconds, r->run->steps,
                                     &r->run->machine};
    return r->request->out == NULL ? BY_OK : by_profile_draw(&what, r->request->out, error);
}

/* The request, for each of the ranks. */
typedef struct profile_job {
    const profile_request *request;
    by_config *config;
} profile_job;

/* Profiles this rank; collective. */
static by_status profile_rank(by_comm *comm, void *user, by_error *error)
{
    const profile_job *w = user;
    const profile_request *q = w->request;
    by_config *config;
    cli_profiled run;
    bool leads = by_comm_rank(comm) == 0;
    /* A copy, because ranks that are threads complete it at the same time. */
    by_status status = by_config_copy(&config, w->config, error);
    if (status != BY_OK) {
        return status;
    }
    profile_report r = {.request = q, .config = config, .run = &run};
    status = cli_profile_steps(&run, config, q->steps, !q->random,
                               by_comm_size(comm) > 1 ? comm : NULL, error);
    if (status != BY_OK) {
        by_config_close(&config);
        return status;
    }
    status = leads ? fill_report(&r, error) : BY_OK;
    if (status == BY_OK) {
        status = write_trace(q, &run, error);
    }
    if (status == BY_OK && leads) {
        status = write_picture(&r, error);
        cli_tell_written(status == BY_OK ? q->out : NULL);
    }
    if (status == BY_OK && leads && q->json) {
        print_json(&r);
    } else if (status == BY_OK && leads) {
        print_text(&r);
    }
    close_report(&r);
    cli_profiled_close(&run);
    by_config_close(&config);
    return status;
}

static by_status profile(void *user, by_config *config, by_error *error)
{
    const profile_request *q = user;
    profile_job w = {.request = q, .config = config};
    by_comm *world;
    by_status status = by_comm_open(&world, NULL, error);
    if (status != BY_OK) {
        return status;
    }
    int ranks = by_comm_size(world);
    if (q->ranks > 0 && ranks > 1 && q->ranks != ranks) {
        status = by_comm_fail(world,
                              by_error_set(error, BY_EARG,
                                           "--ranks asks for %lld ranks, but the job has %d",
                                           (long long)q->ranks, ranks),
                              error);
    } else if (ranks > 1 || q->ranks <= 1) {
        status = by_comm_fail(world, profile_rank(world, &w, error), error);
    } else {
        status = by_comm_run_threads((int)q->ranks, NULL, profile_rank, &w, error);
    }
    by_comm_close(&world);
    return status;
}

static int run(int argc, char **argv)
{
    profile_request q = {.steps = 5};
    const cli_flag flags[] = {
        {"steps", CLI_STEPS, &q.steps, "N", "steps to record, after one warm-up step (default 5)"},
        {"trace", CLI_STRING, &q.trace, "FILE",
         "write a Chrome trace, for https://ui.perfetto.dev"},
        {"out", CLI_STRING, &q.out, "FILE", "draw the table of operations to an .svg or .png file"},
        {"ranks", CLI_INTEGER_IN(1, 1024), &q.ranks, "N",
         "run this many ranks as threads of this process (default 1)"},
        {"random", CLI_SWITCH, &q.random, NULL, "train on random data, whatever the config says"},
        {"device", CLI_DEVICE, &q.overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &q.overrides, "KEY=VALUE", CLI_SET_HELP},
        {"json", CLI_SWITCH, &q.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_profile, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_profile, "name one config file or run directory");
    }
    cli_catch_signals();
    return cli_with_config(&cli_profile, rest[0], &q.overrides, profile, &q);
}

const cli_command cli_profile = {
    .name = "profile",
    .summary = "show where the time and memory of a training step go",
    .usage = "banyan profile CONFIG|RUN [--steps N] [--trace FILE] [--out FILE] [--ranks N]\n"
             "                          [--random] [--set KEY=VALUE]... [--json]",
    .text =
        "Runs training steps and shows where their time and memory go: time by operation and by\n"
        "layer, the share of the roofline, the wait for data, and the memory of activations.\n"
        "Nothing is saved.\n"
        "\n"
        "examples:\n"
        "  banyan profile examples/gpt2_124m.yaml --steps 3 --trace step.json\n"
        "  mpirun -n 2 banyan profile examples/gpt2_124m.yaml --trace step.json \\\n"
        "      --set parallel.pipeline=2 --set train.micro_batch=1\n"
        "\n"
        "The steps start from initial weights and use the data of the config, or random data if\n"
        "it has none or with --random. The roofline of an operation is the longer of its FLOPs\n"
        "at the measured peak and its bytes at the memory bandwidth.\n"
        "\n"
        "Under mpirun or `banyan launch` the ranks train together, as the section `parallel` of\n"
        "the config says; the time that each rank computed, communicated and waited is shown,\n"
        "and the trace contains all ranks.",
    .run = run};
