#include <stdlib.h>
#include <unistd.h>

#include "serving.h"

static int run(int argc, char **argv)
{
    by_broker_options options = {.log = cli_serve_log};
    const char *directory = NULL;
    int64_t queue = 0;
    const cli_flag flags[] = {
        {"dir", CLI_STRING, &directory, "DIR", "for the socket"},
        {"tasks", CLI_STRING, &options.tasks, "FILE", "keep tasks in it; none: there are no tasks"},
        {"queue", CLI_INTEGER, &queue, "N", "requests that may wait (default 1024)"},
        {"queue-tokens", CLI_INTEGER, &options.queue_tokens, "N", "tokens that may wait, by guess"},
        {"wait", CLI_NUMBER, &options.queue_wait, "SECONDS",
         "that a request may wait, by what is measured (default: by the load)"},
        {"silence", CLI_NUMBER, &options.silence_seconds, "SECONDS",
         "without a beat after which a worker counts as dead (default 5)"},
        {"hang", CLI_NUMBER, &options.hang_seconds, "SECONDS",
         "without a step after which a worker with work does (default 60)"},
        {"supervised", CLI_SWITCH, &options.supervised, NULL,
         "wait for `banyan serve` to say which versions get requests"},
        {"child", CLI_SWITCH, &options.child, NULL, "end when standard input ends"},
        {0}};
    char **rest;
    int rest_count;
    by_error error = {0};
    int code = cli_parse(&cli_broker, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    if (rest_count != 0 || queue < 0 || options.queue_wait < 0.0) {
        return cli_misuse(&cli_broker,
                          "it takes flags only, a queue of at least 1, and a wait of at least 0");
    }
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
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_broker, &error);
}

const cli_command cli_broker = {
    "broker", "queue requests between gateways and workers", "banyan broker [--dir DIR]",
    "The part of `banyan serve` that gateways and workers connect to, by a socket in DIR.\n\n"
    "  banyan broker --dir /run/banyan --queue 4096",
    run};
