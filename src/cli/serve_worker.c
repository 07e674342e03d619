#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serving.h"

/* Ends a process whose threads hang; needs no lock that they might hold. */
static void end_hanging(void *user, double seconds)
{
    (void)user;
    dprintf(STDERR_FILENO,
            "banyan worker: no step was made in %g s (--hang): it ends, to be started again\n",
            seconds);
    _exit(BY_EXIT_HANG);
}

static int run(int argc, char **argv)
{
    by_worker_options options = {.log = cli_serve_log, .hangs = end_hanging};
    const char *directory = NULL;
    const char *address = NULL;
    const char *pool = "mean";
    int64_t threads = 0;
    int64_t niceness = 0;
    int64_t window = 0;
    const cli_flag flags[] = {
        {"dir", CLI_STRING, &directory, "DIR", "of the broker's socket"},
        {"broker", CLI_STRING, &address, "ADDRESS", "redis://HOST[:PORT]: Redis is the broker"},
        {"name", CLI_STRING, &options.name, "NAME", "under which clients ask for the model"},
        {"version", CLI_STRING, &options.version, "V", "of the model (default: by its weights)"},
        {"checkpoint", CLI_STRING, &options.checkpoint, "DIR", "of RUN (default: its newest)"},
        {"adapter", CLI_STRING, &options.adapter, "DIR", CLI_ADAPTER_HELP},
        {"pool", CLI_STRING, &pool, "mean|last",
         "embeddings: the mean of the hidden states of all tokens, or that of the last one (mean)"},
        {"batch", CLI_INTEGER, &options.batch, "N",
         "rows or images that are computed together, at most (default 16)"},
        {"delay", CLI_NUMBER, &options.delay, "SECONDS",
         "that they, and texts of embeddings, wait for others (default 0.002)"},
        {"precision", CLI_STRING, &options.precision, "P", CLI_PRECISION_HELP},
        {"sessions", CLI_INTEGER, &options.sessions, "N",
         "sequences that run at a time (default 16)"},
        {"context", CLI_INTEGER, &options.context, "N", "tokens of a prompt with its answer"},
        {"rows", CLI_INTEGER, &options.rows, "N", "tokens of a step, at most (default 256)"},
        {"threads", CLI_INTEGER, &threads, "N", "compute threads"},
        {"nice", CLI_INTEGER, &niceness, "N", "give way to other processes, 0 to 19 (default 0)"},
        {"max-rate", CLI_NUMBER, &options.max_rate, "N",
         "requests a second that it begins, at most (default: as many as come)"},
        {"ready-file", CLI_STRING, &options.ready_file, "FILE",
         "that is not empty while the worker takes requests"},
        {"hang", CLI_NUMBER, &options.hang_seconds, "SECONDS",
         "with work and without a step after which it ends with code 4 (default 60)"},
        {"drift-window", CLI_INTEGER, &window, "N",
         "requests that are compared with the training data at a time (default 500)"},
        {"no-sandbox", CLI_SWITCH, &options.open, NULL,
         "where the kernel or a container allows none"},
        {"child", CLI_SWITCH, &options.child, NULL, "end when standard input ends"},
        {0}};
    char **rest;
    int rest_count;
    by_error error = {0};
    int code = cli_parse(&cli_worker, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    if (rest_count != 1 || window < 0 || options.hang_seconds < 0.0) {
        return cli_misuse(&cli_worker, "%s",
                          window < 0                   ? "--drift-window is at least 1"
                          : options.hang_seconds < 0.0 ? "--hang is above 0"
                                                       : "one run or directory is needed");
    }
    if (niceness < 0 || niceness > 19) {
        return cli_misuse(&cli_worker, "--nice is 0 to 19");
    }
    if (strcmp(pool, "mean") != 0 && strcmp(pool, "last") != 0) {
        return cli_misuse(&cli_worker, "--pool %s: it is mean or last", pool);
    }
    options.pool_last = strcmp(pool, "last") == 0;
    cli_hide_password(address, NULL);
    char *broker = NULL;
    by_status status = cli_serve_broker(&broker, address, directory, &error);
    if (status == BY_OK) {
        options.broker = broker;
        options.model = rest[0];
        options.threads = (int)threads;
        options.nice = (int)niceness;
        options.drift_requests = (size_t)window;
        cli_serve_end_early();
        status = by_worker_run(&options, &error);
    }
    free(broker);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_worker, &error);
}

const cli_command cli_worker = {
    "worker", "run a model's engine behind a broker", "banyan worker RUN [--dir DIR]",
    "The part of `banyan serve` that computes. It takes requests from the broker once the model\n"
    "is warm, and finishes what it has after SIGTERM.\n\n"
    "  banyan worker runs/tiny --precision int8",
    run};
