#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/serving.h"

/* What the callbacks of the gateway use. */
typedef struct outputs {
    cli_log log;
    const char *ready_file; /* NULL: none */
    mode_t mask;            /* of the user, whose probes read the file */
} outputs;

static void log_line(void *user, const char *line)
{
    outputs *o = user;
    cli_serve_log(&o->log, line);
}

static void print_url(void *user, const char *url)
{
    outputs *o = user;
    const char *path = o->ready_file;
    const mode_t own = umask(o->mask);
    FILE *file = path == NULL ? NULL : fopen(path, "w");
    (void)umask(own);
    printf("%s\n", url);
    fflush(stdout);
    if (path != NULL && (file == NULL || fprintf(file, "%s\n", url) < 0 || fflush(file) != 0)) {
        char reason[512];
        (void)snprintf(reason, sizeof reason, "cannot write %s: %s", path, strerror(errno));
        char *line = by_serve_log_event("ready_file_not_written", "reason", reason);
        if (line != NULL) {
            log_line(o, line);
        }
        free(line);
    }
    if (file != NULL) {
        fclose(file);
    }
}

static void use_config(by_gateway_options *o, const by_serve_config *config)
{
    const by_serve_gateway_config *c = &config->gateway;
    o->config = config;
    o->listen = c->listen;
    o->keys = c->keys[0] == '\0' ? NULL : c->keys;
    o->insecure = c->insecure != 0;
    o->deadline = c->deadline;
    o->drain_seconds = c->drain;
    o->body = (size_t)c->body;
    o->connections = (size_t)c->connections;
}

static int run(int argc, char **argv)
{
    outputs out = {.mask = umask(CLI_PRIVATE)};
    by_gateway_options options = {.log = log_line, .ready = print_url, .user = &out};
    const char *directory = NULL;
    const char *path = NULL;
    cli_list sets = {0};
    cli_settings settings = {0};
    bool insecure = false;
    const cli_flag flags[] = {
        {"dir", CLI_STRING, &directory, "DIR", CLI_DIR_HELP},
        {"broker", CLI_KEY("broker.address"), &settings, "ADDRESS", CLI_REDIS_HELP},
        {"config", CLI_INPUT, &path, "FILE",
         "configuration of the server in YAML (docs/serve_config.md); flags override its keys"},
        {"set", CLI_LIST, &sets, "KEY=VALUE",
         "override a key of the configuration; may be repeated"},
        {"quota", CLI_STRING, &options.quota, "FILE",
         "file that stores how many tokens each API key has used today"},
        {"control", CLI_STRING, &options.control, "FILE",
         "control socket of `banyan serve`, which the routes /v1/admin/... need"},
        {"listen", CLI_KEY("gateway.listen"), &settings, "ADDRESS",
         "HOST:PORT or unix:PATH to listen on (default 127.0.0.1:8080)"},
        {"ready-file", CLI_STRING, &out.ready_file, "FILE",
         "file to which the address is written once the gateway listens"},
        {"keys", CLI_KEY("gateway.keys"), &settings, "FILE", CLI_KEYS_HELP},
        {"insecure", CLI_SWITCH, &insecure, NULL, CLI_INSECURE_HELP},
        {"traces", CLI_KEY("tracing.endpoint"), &settings, "URL", CLI_TRACES_HELP},
        {"deadline", CLI_KEY("gateway.deadline"), &settings, "TIME", CLI_DEADLINE_HELP},
        {"drain", CLI_KEY("gateway.drain"), &settings, "TIME",
         "time to answer accepted requests after SIGTERM (default 45)"},
        {"log-format", CLI_STRING, &out.log.format, "FORMAT", CLI_LOG_HELP},
        {"no-sandbox", CLI_SWITCH, &options.open, NULL,
         "run without the sandbox, where the kernel or the container does not allow one"},
        {"child", CLI_SWITCH, &options.child, NULL, CLI_CHILD_HELP},
        {0}};
    char **rest;
    int rest_count;
    by_error error = {0};
    int code = cli_parse(&cli_gateway, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    out.log.child = options.child;
    if ((code = cli_check_log(&cli_gateway, &out.log)) >= 0) {
        return code;
    }
    if (rest_count != 0) {
        return cli_misuse(&cli_gateway, "this command takes flags only");
    }
    char *broker = NULL;
    by_serve_config *config = NULL;
    by_status status =
        cli_serve_config_open(&config, path, &sets, &settings, !options.child, &error);
    if (status == BY_OK && out.log.format == NULL) {
        out.log.format = strcmp(config->log.format, "json") == 0   ? "json"
                         : strcmp(config->log.format, "text") == 0 ? "text"
                                                                   : "auto";
    }
    if (status == BY_OK) {
        const char *address = config->broker.address;
        config->gateway.insecure = insecure ? 1 : config->gateway.insecure;
        status = cli_serve_broker(&broker, address[0] == '\0' ? NULL : address, directory, &error);
    }
    if (status == BY_OK) {
        by_serve_clean_environment(BY_SERVE_GATEWAY, config->broker.address[0] != '\0');
        options.broker = broker;
        options.ready_file = out.ready_file;
        options.open = options.open || config->worker.sandbox == 0;
        use_config(&options, config);
        status = by_gateway_run(&options, &error);
    }
    by_serve_config_close(&config);
    free(broker);
    return status == BY_OK ? CLI_DONE : cli_serve_fail(&cli_gateway, &out.log, &error);
}

const cli_command cli_gateway = {
    "gateway", "run the process of a server that answers HTTP",
    "banyan gateway [--dir DIR] [--listen ADDRESS]",
    "Runs the part of `banyan serve` that answers HTTP. It prints its address once it\n"
    "listens, and writes the access log to standard error, one JSON object per line, or text on a "
    "terminal (--log-format).\n"
    "\n"
    "example:\n"
    "  banyan gateway --listen 127.0.0.1:8080 --keys keys.txt",
    run};
