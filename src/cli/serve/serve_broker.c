#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/serving.h"

static int run(int argc, char **argv)
{
    cli_log log = {0};
    by_broker_options options = {.log = cli_serve_log, .user = &log};
    (void)umask(CLI_PRIVATE);
    const char *directory = NULL;
    int64_t queue = 0;
    const cli_flag flags[] = {
        {"dir", CLI_STRING, &directory, "DIR", CLI_DIR_HELP},
        {"tasks", CLI_STRING, &options.tasks, "FILE",
         "SQLite file that stores tasks (default: none, tasks are refused)"},
        {"queue", CLI_INTEGER_IN(1, 1 << 20), &queue, "N",
         "requests that may wait in the queue, at most (default 1024)"},
        {"queue-tokens", CLI_INTEGER_FROM(1), &options.queue_tokens, "N",
         "estimated tokens of prompts and answers that may wait, at most (default 4000000)"},
        {"stored", CLI_INTEGER_IN(1, 1 << 30), &options.stored, "N",
         "tasks and responses that are stored for each key name, at most (default 100000)"},
        {"stored-bytes", CLI_INTEGER_FROM(1), &options.stored_bytes, "N",
         "bytes of these for each key name, at most (default 268435456)"},
        {"wait", CLI_TIME_IN(0, 86400), &options.queue_wait, "TIME", CLI_WAIT_HELP},
        {"silence", CLI_SILENCE, &options.silence_seconds, "TIME", CLI_SILENCE_HELP},
        {"hang", CLI_TIME_ABOVE(0, 1e6), &options.hang_seconds, "TIME",
         "time without an engine step after which a worker with work counts as dead (default 60)"},
        {"supervised", CLI_SWITCH, &options.supervised, NULL,
         "give workers no requests before `banyan serve` has said which versions get them"},
        {"log-format", CLI_STRING, &log.format, "FORMAT", CLI_LOG_HELP},
        {"no-sandbox", CLI_SWITCH, &options.open, NULL,
         "run without the sandbox, where the kernel or the container does not allow one"},
        {"child", CLI_SWITCH, &options.child, NULL, CLI_CHILD_HELP},
        {0}};
    char **rest;
    int rest_count;
    by_error error = {0};
    int code = cli_parse(&cli_broker, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    log.child = options.child;
    if ((code = cli_check_log(&cli_broker, &log)) >= 0) {
        return code;
    }
    if (rest_count != 0) {
        return cli_misuse(&cli_broker, "this command takes flags only");
    }
    by_serve_clean_environment(BY_SERVE_BROKER, false);
    char *own = directory == NULL ? cli_serve_directory() : NULL;
    char *socket = NULL;
    by_status status = cli_serve_socket(&socket, directory == NULL ? own : directory, &error);
    if (status == BY_OK) {
        options.socket = socket;
        options.queue_requests = (size_t)queue;
        status = by_broker_run(&options, &error);
    }
    free(socket);
    free(own);
    return status == BY_OK ? CLI_DONE : cli_serve_fail(&cli_broker, &log, &error);
}

const cli_command cli_broker = {
    "broker", "run the process of a server that queues requests", "banyan broker [--dir DIR]",
    "Runs the part of `banyan serve` that queues requests and gives them to workers.\n"
    "Gateways and workers connect to its socket in DIR.\n"
    "\n"
    "example:\n"
    "  banyan broker --dir /run/banyan --queue 4096",
    run};
