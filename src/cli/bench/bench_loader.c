/* banyan bench loader: how fast the threads of a loader make batches, without a model. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "banyan/data.h"
#include "banyan/task.h"
#include "bench/bench.h"
#include "data/show.h"

typedef struct loader_request {
    int64_t batches;
    int64_t warm_up; /* batches before the timing */
    bool json;
} loader_request;

typedef struct loader_figures {
    const char *examples; /* the task's word for them */
    uint64_t samples;
    double seconds;
    double cpu_seconds; /* of the process */
    int64_t threads;
    int64_t batch;
} loader_figures;

static double clock_seconds(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Takes batches as fast as they come. */
static by_status take(uint64_t *samples, by_loader *loader, int64_t batches, by_error *error)
{
    by_batch batch;
    by_status status = BY_OK;
    for (int64_t i = 0; i < batches && status == BY_OK; i++) {
        status = cli_stop_requested(NULL) ? by_error_set(error, BY_ESTOPPED, "interrupted")
                                          : by_loader_next(loader, &batch, error);
        if (status == BY_OK) {
            *samples += batch.batch;
        }
    }
    return status;
}

static by_status time_loader(loader_figures *f, by_task_data *data, const by_config *config,
                             const loader_request *r, by_error *error)
{
    by_loader *loader;
    uint64_t unused = 0;
    by_status status = by_task_loader(&loader, data, config, true, error);
    if (status != BY_OK) {
        return status;
    }
    status = take(&unused, loader, r->warm_up, error);
    double began = clock_seconds(CLOCK_MONOTONIC);
    double used = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
    if (status == BY_OK) {
        status = take(&f->samples, loader, r->batches, error);
    }
    f->seconds = clock_seconds(CLOCK_MONOTONIC) - began;
    f->cpu_seconds = clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
    by_loader_close(&loader);
    return status;
}

static void print(const loader_figures *f, bool json)
{
    double rate = f->seconds > 0.0 ? (double)f->samples / f->seconds : 0.0;
    double cpu_rate = f->cpu_seconds > 0.0 ? (double)f->samples / f->cpu_seconds : 0.0;
    if (json) {
        printf("{\"samples_per_s\":%.6g,\"samples_per_cpu_s\":%.6g,\"samples\":%" PRIu64
               ",\"seconds\":%.6g,\"cpu_seconds\":%.6g,\"threads\":%" PRId64 ",\"batch\":%" PRId64
               "}\n",
               rate, cpu_rate, f->samples, f->seconds, f->cpu_seconds, f->threads, f->batch);
        return;
    }
    printf("loader      %.1f samples/s: %" PRIu64 " in %.2f s, batches of %" PRId64
           ", data.threads %" PRId64 "\n"
           "processor   %.2f s, %.1f samples in a second of it\n",
           rate, f->samples, f->seconds, f->batch, f->threads, f->cpu_seconds, cpu_rate);
}

static by_status measure(void *request, by_config *config, by_error *error)
{
    const loader_request *r = request;
    by_task_data *data;
    by_status status = cli_open_training_data(&data, config, NULL, error);
    if (status != BY_OK) {
        return status;
    }
    loader_figures f = {.threads = config->data.threads, .batch = config->train.batch};
    status = time_loader(&f, data, config, r, error);
    if (status == BY_OK) {
        print(&f, r->json);
    }
    by_task_close(&data);
    return status;
}

static int run(int argc, char **argv)
{
    loader_request r = {.batches = 100, .warm_up = 4};
    cli_list overrides = {0};
    const cli_flag flags[] = {
        {"batches", CLI_INTEGER_IN(1, 1000000), &r.batches, "N", "batches to time (default 100)"},
        {"warm-up", CLI_INTEGER_IN(0, 1000000), &r.warm_up, "N",
         "batches before them, which are not timed (default 4)"},
        {"set", CLI_LIST, &overrides, "KEY=VALUE", CLI_SET_HELP},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_bench_loader, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_bench_loader, "name one config or run");
    }
    cli_catch_signals();
    return cli_with_config(&cli_bench_loader, rest[0], &overrides, measure, &r);
}

const cli_command cli_bench_loader = {
    .name = "bench loader",
    .summary = "time the threads that read, decode and augment training data",
    .usage = "banyan bench loader CONFIG|RUN [--batches N] [--set KEY=VALUE] [--json]",
    .text =
        "Takes training batches as fast as data.threads make them, without a model, and prints\n"
        "samples per second, and per second of processor time, which the load of the machine\n"
        "does not change. A step waits for data where the first is less than train.batch\n"
        "divided by the time of a step.\n"
        "\n"
        "examples:\n"
        "  banyan bench loader vit.yaml --set data.decode=use --set data.threads=2",
    .run = run};
