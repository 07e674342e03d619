#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/serving.h"

/* Ends a process whose threads hang; needs no lock that they might hold. */
static void end_hanging(void *user, double seconds)
{
    const cli_log *log = user;
    bool lines = log->child && strcmp(cli_log_format(log), "json") == 0;
    dprintf(STDERR_FILENO,
            lines
                ? "{\"event\":\"failed\",\"worker\":\"no engine step in %g s (--hang): exiting, so "
                  "that it can be restarted\"}\n"
                : "banyan worker: no engine step in %g s (--hang): exiting, so that it can be "
                  "restarted\n",
            seconds);
    _exit(BY_EXIT_HANG);
}

/* Finds the broker and works until the end. */
static by_status work(by_worker_options *options, const char *address, const char *directory,
                      by_error *error)
{
    char *broker = NULL;
    by_status status = cli_serve_broker(&broker, address, directory, error);
    if (status == BY_OK) {
        options->broker = broker;
        cli_serve_end_early();
        status = by_worker_run(options, error);
    }
    free(broker);
    return status;
}

/* Leaves the reason for the end in a file PATH.PID, from which the server reads it; path may be
 * NULL. */
static void write_failure(const char *path, const by_error *error)
{
    by_string own = {0};
    by_string_format(&own, "%s.%ld", path == NULL ? "" : path, (long)getpid());
    FILE *file = path == NULL || own.failed ? NULL : fopen(own.data, "w");
    if (file != NULL) {
        fprintf(file, "%s\n", error->message);
        fclose(file);
    }
    by_string_free(&own);
}

static int run(int argc, char **argv)
{
    cli_log log = {0};
    by_worker_options options = {.log = cli_serve_log, .user = &log, .hangs = end_hanging};
    const char *directory = NULL;
    const char *address = NULL;
    const char *pool = "mean";
    int64_t threads = 0;
    int64_t niceness = 0;
    int64_t window = 0;
    const char *failure = NULL;
    const cli_flag flags[] = {
        {"dir", CLI_STRING, &directory, "DIR", CLI_DIR_HELP},
        {"broker", CLI_STRING, &address, "ADDRESS", CLI_REDIS_HELP},
        {"name", CLI_STRING, &options.name, "NAME",
         "model name that clients use (default: the last part of the path)"},
        {"version", CLI_STRING, &options.version, "V",
         "version id of the model (default: derived from the weights)"},
        {"checkpoint", CLI_STRING, &options.checkpoint, "DIR",
         "checkpoint of RUN to load (default: the newest)"},
        {"adapter", CLI_INPUT, &options.adapter, "DIR", CLI_ADAPTER_HELP},
        {"chat-template", CLI_STRING, &options.chat_template, "FILE|NAME", CLI_CHAT_TEMPLATE_HELP},
        {"pool", CLI_STRING, &pool, "mean|last|first", CLI_POOL_HELP},
        {"batch", CLI_BATCH, &options.batch, "N", CLI_BATCH_HELP},
        {"delay", CLI_DELAY, &options.delay, "TIME", CLI_DELAY_HELP},
        {"precision", CLI_STRING, &options.precision, "P", CLI_MODEL_PRECISION_HELP},
        {"kv", CLI_STRING, &options.kv, "int8", CLI_KV_HELP},
        {"sessions", CLI_INTEGER_IN(0, 65536), &options.sessions, "N",
         "sequences that run at the same time (default 16)"},
        {"context", CLI_INTEGER_IN(0, 1 << 24), &options.context, "N",
         "longest sequence in tokens, prompt and answer together (default: the model's context)"},
        {"rows", CLI_INTEGER_IN(1, 65536), &options.rows, "N",
         "tokens that an engine step processes, at most (default 256)"},
        {"device", CLI_STRING, &options.device, "NAME", CLI_DEVICE_HELP},
        {"threads", CLI_THREADS, &threads, "N", "compute threads (default: one per core)"},
        {"nice", CLI_INTEGER_IN(0, 19), &niceness, "N",
         "how far to yield to other processes, as nice(1), 0 to 19 (default 0)"},
        {"max-rate", CLI_NUMBER_IN(0, 1e6), &options.max_rate, "N",
         "requests per second that the worker starts, at most (default: no limit)"},
        {"failure", CLI_STRING, &failure, "FILE", "the worker writes why it failed to FILE.PID"},
        {"ready-file", CLI_STRING, &options.ready_file, "FILE",
         "file that is not empty while the worker accepts requests, for readiness probes"},
        {"hang", CLI_TIME_ABOVE(0, 1e6), &options.hang_seconds, "TIME",
         "time with work but without an engine step after which the worker exits with code 4 "
         "(default 60)"},
        {"drift-window", CLI_INTEGER_IN(1, 1 << 30), &window, "N", CLI_DRIFT_HELP},
        {"no-sandbox", CLI_SWITCH, &options.open, NULL,
         "run without the sandbox, where the kernel or the container does not allow one"},
        {"log-format", CLI_STRING, &log.format, "FORMAT", CLI_LOG_HELP},
        {"child", CLI_SWITCH, &options.child, NULL, CLI_CHILD_HELP},
        {0}};
    char **rest;
    int rest_count;
    by_error error = {0};
    int code = cli_parse(&cli_worker, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    log.child = options.child;
    if ((code = cli_check_log(&cli_worker, &log)) >= 0) {
        return code;
    }
    if (rest_count != 1) {
        return cli_misuse(&cli_worker, "name one run or model directory");
    }
    if ((code = cli_check_pool(&cli_worker, &options.pooling, pool)) >= 0) {
        return code;
    }
    (void)cli_hide_password(address, NULL);
    by_serve_clean_environment(BY_SERVE_WORKER, address != NULL);
    options.model = rest[0];
    options.threads = (int)threads;
    options.nice = (int)niceness;
    options.drift_requests = (size_t)window;
    by_status status = work(&options, address, directory, &error);
    if (status == BY_OK) {
        return CLI_DONE;
    }
    write_failure(failure, &error);
    return cli_serve_fail(&cli_worker, &log, &error);
}

const cli_command cli_worker = {
    "worker", "run the process of a server that runs a model's engine",
    "banyan worker RUN [--dir DIR]",
    "Runs the part of `banyan serve` that computes answers. It takes requests from the\n"
    "broker once the model is loaded and warmed up, and after SIGTERM finishes those that\n"
    "it has.\n"
    "\n"
    "examples:\n"
    "  banyan worker runs/tiny --precision int8\n"
    "  banyan worker runs/tiny --broker redis://10.0.0.1",
    run};
