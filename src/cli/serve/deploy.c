#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "serve/serving.h"

/* Prints a key and its text, which may contain quotes and backslashes, and a comma. */
static void print_text(const char *key, const char *text)
{
    printf("\"%s\":", key);
    cli_print_json_string(text);
    printf(",");
}

static void print_json(const by_deploy_status *s)
{
    printf("{");
    print_text("model", s->model);
    print_text("version", s->version);
    print_text("path", s->path);
    print_text("previous", s->previous);
    print_text("previous_path", s->previous_path);
    printf("\"workers\":%zu,\"needed\":%zu,\"ready\":%zu,\"least\":%zu,\"most\":%zu,"
           "\"waiting\":%zu,\"p95\":%.4f,",
           s->workers, s->needed, s->ready, s->least, s->most, s->waiting, s->p95);
    print_text("coming", s->coming);
    print_text("coming_path", s->coming_path);
    print_text("phase", s->phase);
    printf("\"share\":%.4f,\"coming_ready\":%zu,\"same\":%llu,\"different\":%llu,\"failed\":%llu,",
           s->share, s->coming_ready, (unsigned long long)s->same, (unsigned long long)s->different,
           (unsigned long long)s->failed);
    print_text("last", s->last);
    print_text("outcome", s->outcome);
    printf("\"reason\":");
    cli_print_json_string(s->reason);
    printf("}\n");
}

/* A version and where it comes from: checkpoints of different runs have similar names. */
static void print_version(const char *key, const char *version, const char *path, const char *end)
{
    printf("%s\t%s", key, version);
    if (path[0] != '\0') {
        printf(" (%s)", path);
    }
    printf("%s", end);
}

static void print_status(const by_deploy_status *s)
{
    printf("model\t%s\n", s->model);
    print_version("version", s->version, s->path, "\n");
    printf("workers\t%zu of %zu ready (%zu to %zu)\n", s->ready, s->workers, s->least, s->most);
    if (s->needed > s->workers) {
        printf("needed\t%zu workers, more than scaling.total leaves\n", s->needed);
    }
    printf("waiting\t%zu requests; p95 to the first text %.0f ms\n", s->waiting, 1e3 * s->p95);
    if (s->previous[0] != '\0') {
        print_version("previous", s->previous, s->previous_path, "\n");
    }
    if (s->coming[0] != '\0') {
        print_version("deploying", s->coming, s->coming_path, "");
        printf(": %s, %.0f %% of the requests, %zu workers ready\n", s->phase, 100.0 * s->share,
               s->coming_ready);
    }
    if (s->same + s->different + s->failed > 0) {
        printf("shadow\t%llu answers equal, %llu different, %llu failed\n",
               (unsigned long long)s->same, (unsigned long long)s->different,
               (unsigned long long)s->failed);
    }
    if (s->last[0] != '\0') {
        printf("last\t%s: %s%s%s\n", s->last, s->outcome, s->reason[0] == '\0' ? "" : ", ",
               s->reason);
    }
}

static void print_live(const by_deploy_status *s)
{
    printf("%s is live%s%s\n", s->version, s->path[0] == '\0' ? "" : ", from ", s->path);
}

/* Reports each phase on standard error until the deployment has ended, and with it the shares that
 * the server's metrics show; a server that does not tell them is not waited for long. */
static int follow(const by_deploy_options *o, by_error *error)
{
    enum { PATIENCE = 50 }; /* pauses */
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    int waited = 0;
    by_deploy_status s = {0};
    char printed[64] = "";
    for (;;) {
        char line[64];
        by_status status = by_deploy_status_now(&s, o->control, o->model, error);
        if (status != BY_OK) {
            return cli_fail(&cli_deploy, error);
        }
        if (s.coming[0] == '\0' && (s.routed || waited == PATIENCE)) {
            break;
        }
        if (s.coming[0] == '\0') {
            waited++;
            (void)nanosleep(&pause, NULL);
            continue;
        }
        (void)snprintf(line, sizeof line, "%s %.0f %%", s.phase, 100.0 * s.share);
        if (strcmp(line, printed) != 0) {
            fprintf(stderr, "%s\t%s\n", s.coming, line);
            memcpy(printed, line, sizeof printed);
        }
        (void)nanosleep(&pause, NULL);
    }
    if (strcmp(s.outcome, "deployed") == 0) {
        print_live(&s);
        return CLI_DONE;
    }
    fprintf(stderr, "%s was rolled back: %s\n", s.last, s.reason);
    return CLI_FAILED;
}

/* Makes a path absolute; links in it are followed only when it is used. NULL when memory is
 * exhausted. */
static char *absolute(const char *path)
{
    char *directory = path[0] == '/' ? NULL : getcwd(NULL, 0);
    char *out = NULL;
    if (path[0] == '/') {
        return strdup(path);
    }
    if (directory == NULL || asprintf(&out, "%s/%s", directory, path) < 0) {
        out = NULL;
    }
    free(directory);
    return out;
}

/* Parses "5%" or "0.05". Returns a negative number for anything else. */
static double read_share(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0) {
        value /= 100.0;
        end++;
    }
    return end == text || *end != '\0' || !(value > 0.0 && value < 1.0) ? -1.0 : value;
}

static int print(const by_deploy_status *now, bool json)
{
    if (json) {
        print_json(now);
    } else {
        print_status(now);
    }
    return CLI_DONE;
}

static int act(by_deploy_options *o, bool status, bool json, bool detach)
{
    by_error error = {0};
    by_deploy_status now;
    if (!status && by_deploy(o, &error) != BY_OK) {
        return cli_fail(&cli_deploy, &error);
    }
    if (!status && !detach) {
        return follow(o, &error);
    }
    if (by_deploy_status_now(&now, o->control, o->model, &error) != BY_OK) {
        return cli_fail(&cli_deploy, &error);
    }
    return print(&now, json);
}

static int print_shared(const char *broker, const char *model, bool json)
{
    by_error error = {0};
    by_deploy_status now;
    if (by_deploy_shared_status(&now, broker, model, &error) != BY_OK) {
        return cli_fail(&cli_deploy, &error);
    }
    return print(&now, json);
}

static void print_phase(void *user, const char *version, const char *phase, double share)
{
    by_deploy_status *printed = user;
    (void)snprintf(printed->version, sizeof printed->version, "%s", version);
    fprintf(stderr, "%s\t%s %.0f %%\n", version, phase, 100.0 * share);
}

/* Deploys among workers that were started by somebody else. version NULL: roll back. */
static int shift(const by_deploy_options *o, const char *broker, const char *version)
{
    by_error error = {0};
    by_deploy_status printed = {0};
    const by_shared_deploy_options options = {.broker = broker,
                                              .model = o->model,
                                              .version = version,
                                              .how = *o,
                                              .phase = print_phase,
                                              .user = &printed};
    if (by_deploy_shared(&options, &error) != BY_OK) {
        return cli_fail(&cli_deploy, &error);
    }
    printf("%s is live\n", version == NULL ? printed.version : version);
    return CLI_DONE;
}

typedef struct deployment {
    by_deploy_options options;
    const char *broker;
    const char *directory;
    const char *canary;
    bool status;
    bool json;
    bool detach;
} deployment;

/* Returns -1 if the flags fit each other and the number of runs, else reports the misuse. */
static int check_use(const deployment *d, int runs)
{
    bool rollback = d->options.rollback;
    if (d->options.canary < 0.0) {
        return cli_misuse(&cli_deploy,
                          "--canary %s: give a share above 0 and below 100%%, such as 5%%",
                          d->canary);
    }
    if (runs > 1 || ((rollback || d->status) && runs > 0)) {
        return cli_misuse(&cli_deploy,
                          "give at most one run, and none with --rollback or --status");
    }
    if (d->broker != NULL && (d->options.model == NULL || (runs + rollback + d->status != 1 ||
                                                           d->detach || (d->json && !d->status)))) {
        return cli_misuse(&cli_deploy, "--broker needs --name and one of VERSION, --rollback and "
                                       "--status (with or without --json)");
    }
    return -1;
}

static int run(int argc, char **argv)
{
    deployment d = {0};
    by_deploy_options *o = &d.options;
    const cli_flag flags[] = {
        {"dir", CLI_STRING, &d.directory, "DIR",
         "directory of the running server, as given to `banyan serve --dir` (default: as for "
         "`banyan serve`)"},
        {"broker", CLI_STRING, &d.broker, "ADDRESS",
         "redis://HOST[:PORT]: shift requests between workers that already run"},
        {"name", CLI_STRING, &o->model, "NAME",
         "name of the model, where several are served or with --broker"},
        {"canary", CLI_STRING, &d.canary, "SHARE",
         "share of new requests to begin with, e.g. 5%; then 25%, 50% and all (default: all at "
         "once)"},
        {"hold", CLI_TIME_IN(0, 1e7), &o->hold, "TIME",
         "time that shadow traffic and each share are held (default 30)"},
        {"shadow", CLI_SWITCH, &o->shadow, NULL,
         "first send copies of requests to the new version and compare the answers"},
        {"errors", CLI_NUMBER, &o->errors, "SHARE",
         "roll back when the error rate exceeds that of the previous version by more than this "
         "(default 0.02)"},
        {"slower", CLI_NUMBER, &o->slower, "TIMES",
         "roll back when the p95 to the first text is more than this many times the previous "
         "version's (default 1.5)"},
        {"force", CLI_SWITCH, &o->force, NULL,
         "deploy it even if it reads another kind of input or other columns than the version that "
         "serves"},
        {"rollback", CLI_SWITCH, &o->rollback, NULL,
         "return to the version before, each time one further back, or end a deployment in "
         "progress"},
        {"detach", CLI_SWITCH, &d.detach, NULL,
         "return at once instead of waiting for the deployment to end"},
        {"status", CLI_SWITCH, &d.status, NULL,
         "print the live version and the deployment in progress"},
        {"json", CLI_SWITCH, &d.json, NULL, "print the status as one JSON line"},
        {0}};
    char **rest;
    int rest_count;
    by_error error = {0};
    by_deploy_defaults(o);
    int code = cli_parse(&cli_deploy, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    (void)cli_hide_password(d.broker, NULL);
    o->canary = d.canary == NULL ? 0.0 : read_share(d.canary);
    code = check_use(&d, rest_count);
    if (code >= 0) {
        return code;
    }
    if (d.broker != NULL && d.status) {
        return print_shared(d.broker, o->model, d.json);
    }
    if (d.broker != NULL) {
        return shift(o, d.broker, o->rollback ? NULL : rest[0]);
    }
    char *own = d.directory == NULL ? cli_serve_directory() : NULL;
    char *control = NULL;
    char *given = rest_count == 1 ? cli_served_adapter(rest[0]) : NULL;
    char *adapter = given == NULL ? NULL : absolute(given);
    char *path = rest_count == 1 ? absolute(rest[0]) : NULL;
    if ((rest_count == 1 && path == NULL) || (given != NULL && adapter == NULL) ||
        asprintf(&control, "%s/control.socket", own == NULL ? d.directory : own) < 0) {
        control = NULL;
        (void)by_error_set(&error, BY_EMEMORY, "out of memory");
        code = cli_fail(&cli_deploy, &error);
    } else {
        o->control = control;
        o->path = path;
        o->adapter = adapter;
        code = act(o, d.status, d.json, d.detach);
    }
    free(adapter);
    free(path);
    free(control);
    free(own);
    return code;
}

const cli_command cli_deploy = {
    "deploy", "deploy a new version of a served model: canary, shadow traffic, roll-back",
    "banyan deploy [RUN[+ADAPTER]] [--name MODEL] [--canary SHARE] [--shadow] [--detach]\n"
    "       banyan deploy --rollback | --status [--json] [--name MODEL]\n"
    "       banyan deploy VERSION | --rollback | --status --broker ADDRESS --name MODEL",
    "Deploys a new version of a model that `banyan serve` serves, and waits until it is\n"
    "live (exit code 0) or was rolled back or refused (1). RUN is a run; by default, the\n"
    "newest checkpoint of the run that is being served, with its adapter.\n"
    "\n"
    "examples:\n"
    "  banyan deploy\n"
    "  banyan deploy runs/better --canary 5% --hold 60\n"
    "  banyan deploy --rollback\n"
    "  banyan deploy v2 --broker redis://10.0.0.1 --name prices --canary 5%\n"
    "\n"
    "The server starts workers of the new version, checks them with a golden request,\n"
    "shifts requests to them, and stops the previous workers once they have finished. It\n"
    "rolls back when workers do not start, when the version answers other requests, when the\n"
    "check fails, or when more requests fail or take longer than before.\n"
    "\n"
    "With --broker, workers of VERSION (`banyan worker --version`) must already run; the\n"
    "command shifts requests to them while it runs. --rollback then returns to the\n"
    "previous version, whose workers must still run.",
    run};
