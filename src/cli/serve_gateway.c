#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serving.h"

static void tell_url(void *user, const char *url)
{
    const char *const *path = user;
    FILE *file = *path == NULL ? NULL : fopen(*path, "w");
    printf("%s\n", url);
    fflush(stdout);
    if (*path != NULL && (file == NULL || fprintf(file, "%s\n", url) < 0 || fflush(file) != 0)) {
        fprintf(stderr, "banyan gateway: cannot write %s: %s\n", *path, strerror(errno));
    }
    if (file != NULL) {
        fclose(file);
    }
}

void cli_gateway_use_config(by_gateway_options *o, const by_serve_config *config)
{
    const by_serve_gateway_config *c = &config->gateway;
    o->config = config;
    o->listen = o->listen != NULL ? o->listen : c->listen;
    o->keys = o->keys != NULL || c->keys[0] == '\0' ? o->keys : c->keys;
    o->insecure = o->insecure || c->insecure != 0;
    o->deadline = o->deadline > 0.0 ? o->deadline : c->deadline;
    o->drain_seconds = o->drain_seconds > 0.0 ? o->drain_seconds : c->drain;
    o->body = (size_t)c->body;
    o->connections = (size_t)c->connections;
}

static int run(int argc, char **argv)
{
    const char *ready_file = NULL;
    by_gateway_options options = {.log = cli_serve_log, .ready = tell_url, .user = &ready_file};
    const char *directory = NULL;
    const char *address = NULL;
    const char *path = NULL;
    cli_list sets = {0};
    const cli_flag flags[] = {
        {"dir", CLI_STRING, &directory, "DIR", "of the broker's socket"},
        {"broker", CLI_STRING, &address, "ADDRESS", "redis://HOST[:PORT]: Redis is the broker"},
        {"config", CLI_STRING, &path, "FILE", "keys of docs/serve_config.md"},
        {"set", CLI_LIST, &sets, "KEY=VALUE", "replace a key of it"},
        {"quota", CLI_STRING, &options.quota, "FILE", "keep what keys have used today in it"},
        {"control", CLI_STRING, &options.control, "FILE",
         "socket of `banyan serve`, for the routes of operators"},
        {"listen", CLI_STRING, &options.listen, "ADDRESS", "HOST:PORT or unix:PATH"},
        {"ready-file", CLI_STRING, &ready_file, "FILE", "made, with the address, when it listens"},
        {"keys", CLI_STRING, &options.keys, "FILE", "hashes of the clients' keys"},
        {"insecure", CLI_SWITCH, &options.insecure, NULL, "serve other machines without keys"},
        {"traces", CLI_STRING, &options.traces, "URL",
         "send spans to a collector of OpenTelemetry"},
        {"deadline", CLI_NUMBER, &options.deadline, "SECONDS", "of a request (default 600)"},
        {"drain", CLI_NUMBER, &options.drain_seconds, "SECONDS",
         "for what was accepted, after SIGTERM (default 45)"},
        {"child", CLI_SWITCH, &options.child, NULL, "end when standard input ends"},
        {0}};
    char **rest;
    int rest_count;
    by_error error = {0};
    int code = cli_parse(&cli_gateway, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    if (rest_count != 0) {
        return cli_misuse(&cli_gateway, "it takes flags only");
    }
    cli_hide_password(address, &sets);
    char *broker = NULL;
    by_serve_config *config = NULL;
    by_status status = by_serve_config_open(&config, path, sets.items, sets.count, &error);
    if (status == BY_OK) {
        address =
            address != NULL || config->broker.address[0] == '\0' ? address : config->broker.address;
        status = cli_serve_broker(&broker, address, directory, &error);
    }
    if (status == BY_OK) {
        options.broker = broker;
        cli_gateway_use_config(&options, config);
        status = by_gateway_run(&options, &error);
    }
    by_serve_config_close(&config);
    free(broker);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_gateway, &error);
}

const cli_command cli_gateway = {
    "gateway", "serve HTTP in front of a broker", "banyan gateway [--dir DIR] [--listen ADDRESS]",
    "The part of `banyan serve` that clients speak to; prints its address when it listens. The\n"
    "access log goes to standard error, a JSON object a line.\n\n"
    "  banyan gateway --listen 127.0.0.1:8080 --keys keys.txt",
    run};
