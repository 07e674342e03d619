#include "serving.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_ARGUMENTS 48

typedef struct arguments {
    const char *items[MOST_ARGUMENTS];
    size_t count;
} arguments;

void cli_serve_log(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "%s\n", line);
}

char *cli_serve_directory(void)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char *out = NULL;
    int n = runtime != NULL && runtime[0] == '/'
                ? asprintf(&out, "%s/banyan", runtime)
                : asprintf(&out, "/tmp/banyan-%u", (unsigned)getuid());
    return n < 0 ? NULL : out;
}

by_status cli_serve_socket(char **out, const char *directory, by_error *error)
{
    struct stat info;
    *out = NULL;
    if (mkdir(directory, 0700) != 0 && stat(directory, &info) != 0) {
        return by_error_set(error, BY_EIO, "cannot make %s", directory);
    }
    /* In a directory that others may write to, the socket could be theirs. */
    if (stat(directory, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != getuid() ||
        (info.st_mode & 022) != 0) {
        return by_error_set(error, BY_EARG,
                            "%s is not a directory that only you can write to: choose another one "
                            "with --dir",
                            directory);
    }
    if (asprintf(out, "%s/broker.socket", directory) < 0) {
        *out = NULL;
        return by_error_set(error, BY_EMEMORY, "out of memory");
    }
    if (strlen(*out) > 100) {
        free(*out);
        *out = NULL;
        return by_error_set(error, BY_EARG, "%s is too long for a socket", directory);
    }
    return BY_OK;
}

static void add(arguments *a, const char *item)
{
    if (a->count + 1 < MOST_ARGUMENTS) {
        a->items[a->count++] = item;
    }
}

/* --NAME VALUE, where there is a value. */
static void add_value(arguments *a, const char *name, const char *value)
{
    if (value != NULL) {
        add(a, name);
        add(a, value);
    }
}

static arguments begin(const char *program, const char *command, const char *directory)
{
    arguments a = {0};
    add(&a, program);
    add(&a, command);
    add(&a, "--child");
    add_value(&a, "--dir", directory);
    return a;
}

static int run(int argc, char **argv)
{
    const char *listen = "127.0.0.1:8080";
    const char *keys = NULL;
    const char *name = NULL;
    const char *precision = NULL;
    const char *sessions = NULL;
    const char *context = NULL;
    const char *threads = NULL;
    const char *directory = NULL;
    const char *queue = NULL;
    const char *deadline = NULL;
    const char *tasks = NULL;
    int64_t workers = 1;
    bool insecure = false;
    const cli_flag flags[] = {
        {"listen", CLI_STRING, &listen, "ADDRESS",
         "HOST:PORT or unix:PATH (default 127.0.0.1:8080)"},
        {"workers", CLI_INTEGER, &workers, "N", "processes with an engine each (default 1)"},
        {"name", CLI_STRING, &name, "NAME", "under which clients ask for the model"},
        {"precision", CLI_STRING, &precision, "P", "f32, bf16, fp16, int8 or int4"},
        {"sessions", CLI_STRING, &sessions, "N", "sequences that run at a time in a worker"},
        {"context", CLI_STRING, &context, "N", "tokens of a prompt with its answer"},
        {"threads", CLI_STRING, &threads, "N", "compute threads of a worker"},
        {"tasks", CLI_STRING, &tasks, "FILE", "keep tasks in it (default DIR/tasks.sqlite)"},
        {"queue", CLI_STRING, &queue, "N", "requests that may wait (default 1024)"},
        {"deadline", CLI_STRING, &deadline, "SECONDS", "of a request (default 600)"},
        {"keys", CLI_STRING, &keys, "FILE",
         "hashes of the clients' keys; none: no key is asked for"},
        {"insecure", CLI_SWITCH, &insecure, NULL, "serve other machines without keys"},
        {"dir", CLI_STRING, &directory, "DIR", "for the broker's socket"},
        {0}};
    char **rest;
    int rest_count;
    int code = cli_parse(&cli_serve, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    if (rest_count != 1 || workers < 1 || workers > 256) {
        return cli_misuse(&cli_serve, "%s",
                          rest_count != 1 ? "one run or directory is needed"
                                          : "--workers is 1 to 256");
    }
    by_error error = {0};
    char program[4096] = {0};
    char *socket = NULL;
    char *own_tasks = NULL;
    char *own = directory == NULL ? cli_serve_directory() : NULL;
    directory = directory == NULL ? own : directory;
    by_status status =
        directory == NULL || readlink("/proc/self/exe", program, sizeof program - 1) < 0
            ? by_error_set(&error, BY_EIO, "cannot find this program")
            : cli_serve_socket(&socket, directory, &error);
    if (status == BY_OK && asprintf(&own_tasks, "%s/tasks.sqlite", directory) < 0) {
        own_tasks = NULL;
        status = by_error_set(&error, BY_EMEMORY, "out of memory");
    }
    if (status == BY_OK) {
        arguments broker = begin(program, "broker", directory);
        arguments gateway = begin(program, "gateway", directory);
        arguments worker = begin(program, "worker", directory);
        add_value(&broker, "--queue", queue);
        add_value(&broker, "--tasks", tasks == NULL ? own_tasks : tasks);
        add_value(&gateway, "--listen", listen);
        add_value(&gateway, "--keys", keys);
        add_value(&gateway, "--deadline", deadline);
        if (insecure) {
            add(&gateway, "--insecure");
        }
        add_value(&worker, "--name", name);
        add_value(&worker, "--precision", precision);
        add_value(&worker, "--sessions", sessions);
        add_value(&worker, "--context", context);
        add_value(&worker, "--threads", threads);
        add(&worker, rest[0]);
        by_serve_options options = {.broker = broker.items,
                                    .gateway = gateway.items,
                                    .worker = worker.items,
                                    .workers = (size_t)workers,
                                    .socket = socket,
                                    .log = cli_serve_log};
        status = by_serve_run(&options, &error);
    }
    free(socket);
    free(own_tasks);
    free(own);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_serve, &error);
}

const cli_command cli_serve = {
    "serve", "serve a model over HTTP with OpenAI's API",
    "banyan serve RUN [--listen ADDRESS] [--workers N]",
    "Starts a gateway, a broker and workers, and keeps them running. The first Ctrl-C or SIGTERM\n"
    "answers what was accepted and ends; the second one ends at once.\n\n"
    "  banyan serve runs/tiny\n"
    "  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' \\\n"
    "      -d '{\"model\": \"tiny\", \"prompt\": \"Once\", \"max_tokens\": 20}'\n\n"
    "Routes: /v1/completions, /v1/chat/completions, /v1/models, /metrics, /health/live,\n"
    "/health/ready. An address that other machines reach needs --keys or --insecure.\n",
    run};
