#include "serving.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_ARGUMENTS 192
#define MOST_WORKERS   256
#define MOST_MODELS    16

typedef struct arguments {
    const char *items[MOST_ARGUMENTS];
    size_t count;
} arguments;

void cli_serve_log(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "%s\n", line);
}

static void end_now(int number)
{
    _exit(128 + number);
}

void cli_serve_end_early(void)
{
    const struct sigaction action = {.sa_handler = end_now};
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
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
        return by_error_set(error, BY_EIO, "cannot create directory %s", directory);
    }
    /* If others can write to the directory, the socket could be theirs; in /tmp, it could also be a
     * link to one of our directories. */
    bool ours = lstat(directory, &info) == 0 && (info.st_uid == getuid() || info.st_uid == 0);
    if (!ours || stat(directory, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != getuid() ||
        (info.st_mode & 022) != 0) {
        return by_error_set(error, BY_EARG,
                            "%s must be a directory that belongs to you and that nobody else can "
                            "write to: choose another one with --dir",
                            directory);
    }
    if (asprintf(out, "%s/broker.socket", directory) < 0) {
        *out = NULL;
        return by_error_set(error, BY_EMEMORY, "out of memory");
    }
    if (strlen(*out) > 100) {
        free(*out);
        *out = NULL;
        return by_error_set(
            error, BY_EARG,
            "the path of socket %s is longer than 100 bytes: choose a shorter --dir", directory);
    }
    return BY_OK;
}

by_status cli_serve_broker(char **out, const char *broker, const char *directory, by_error *error)
{
    if (broker == NULL) {
        char *own = directory == NULL ? cli_serve_directory() : NULL;
        const char *where = directory == NULL ? own : directory;
        *out = NULL;
        by_status status = where == NULL ? by_error_set(error, BY_EMEMORY, "out of memory")
                                         : cli_serve_socket(out, where, error);
        free(own);
        return status;
    }
    /* rediss:// gets its own message where the address is parsed. */
    if (strncmp(broker, "redis://", 8) != 0 && strncmp(broker, "rediss://", 9) != 0) {
        return by_error_set(
            error, BY_ECONFIG,
            "--broker %s: must be redis://HOST[:PORT]; use --dir for a broker on this host",
            broker);
    }
    *out = strdup(broker);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory") : BY_OK;
}

static void add(arguments *a, const char *item)
{
    if (a->count + 1 < MOST_ARGUMENTS) {
        a->items[a->count++] = item;
    }
}

/* Adds --NAME VALUE, unless value is NULL. */
static void add_value(arguments *a, const char *name, const char *value)
{
    if (value != NULL) {
        add(a, name);
        add(a, value);
    }
}

/* The server's files in its directory. */
typedef struct files {
    char *socket;
    char *local; /* the directory, which holds files even if Redis is the broker */
    char *tasks;
    char *quota;
    char *control;
    char *golden;
    char *listening;
} files;

/* Begins a part's command line, with the directory or the address by which it finds the broker. */
static arguments begin(const char *program, const char *command, const char *directory,
                       const char *broker)
{
    arguments a = {0};
    add(&a, program);
    add(&a, command);
    add(&a, "--child");
    add_value(&a, broker == NULL ? "--dir" : "--broker", broker == NULL ? directory : broker);
    return a;
}

/* The values of the flags; NULL: the default of the part that uses them. */
typedef struct choices {
    const char *listen, *keys, *name, *precision, *sessions, *context, *threads, *nice;
    const char *directory, *broker, *queue, *stored, *wait, *deadline, *traces, *tasks, *config,
        *rate, *silence, *window;
    const char *pool, *batch, *delay;
    const char *workers; /* "N" or "MIN:MAX"; NULL: the config's */
    const char *target;  /* "200ms", "0.2s", "0.2"; NULL: the config's */
    double calm, idle, grace, drain;
    size_t least, most;
    double target_seconds;
    char numbers[9][24]; /* numbers from the config, as text */
    cli_list sets;
    bool insecure, open;
} choices;

/* Parses "2" or "1:8". Returns false if it is neither. */
static bool read_workers(const char *text, size_t *least, size_t *most)
{
    char *end;
    long long first = strtoll(text, &end, 10);
    bool good = end != text && first >= 0 && first <= MOST_WORKERS;
    long long last = first;
    if (good && *end == ':') {
        const char *second = end + 1;
        last = strtoll(second, &end, 10);
        good = end != second && last >= first && last >= 1 && last <= MOST_WORKERS;
    } else {
        good = good && first >= 1;
    }
    *least = (size_t)first;
    *most = (size_t)last;
    return good && *end == '\0';
}

/* Parses "200ms", "0.2s" or "0.2" to seconds. Returns a negative number for anything else. */
static double read_seconds(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    bool milli = strcmp(end, "ms") == 0;
    bool good = end != text && value > 0.0 && (milli || *end == '\0' || strcmp(end, "s") == 0);
    return !good ? -1.0 : milli ? value * 1e-3 : value;
}

/* Formats a number of the config as a flag's value; NULL for 0. */
static const char *number_of(char out[24], int64_t value)
{
    (void)snprintf(out, 24, "%lld", (long long)value);
    return value == 0 ? NULL : out;
}

/* Fills values that no flag sets from the config. The gateway reads its own part. */
static void use_config(choices *c, const by_serve_config *config)
{
    const by_serve_worker_config *w = &config->worker;
    c->open = c->open || w->sandbox == 0;
    if (c->workers == NULL) {
        c->least = (size_t)w->count;
        c->most = (size_t)config->scaling.most;
    }
    c->target_seconds = c->target != NULL ? c->target_seconds : config->scaling.target_p95;
    c->calm = c->calm > 0.0 ? c->calm : config->scaling.calm;
    c->idle = c->idle > 0.0 ? c->idle : config->scaling.idle;
    c->grace = c->grace > 0.0 ? c->grace : w->grace;
    c->drain = config->gateway.drain;
    if (c->rate == NULL && w->max_rate > 0.0) {
        (void)snprintf(c->numbers[5], sizeof c->numbers[5], "%.17g", w->max_rate);
        c->rate = c->numbers[5];
    }
    c->name = c->name != NULL || w->name[0] == '\0' ? c->name : w->name;
    c->precision = c->precision != NULL || w->precision[0] == '\0' ? c->precision : w->precision;
    c->sessions = c->sessions != NULL ? c->sessions : number_of(c->numbers[0], w->sessions);
    c->context = c->context != NULL ? c->context : number_of(c->numbers[1], w->context);
    c->threads = c->threads != NULL ? c->threads : number_of(c->numbers[2], w->threads);
    c->broker =
        c->broker != NULL || config->broker.address[0] == '\0' ? c->broker : config->broker.address;
    c->nice = number_of(c->numbers[6], w->nice);
    c->window = c->window != NULL ? c->window : number_of(c->numbers[4], w->drift_window);
    c->queue = c->queue != NULL ? c->queue : number_of(c->numbers[3], config->broker.queue);
    c->stored = number_of(c->numbers[8], config->broker.stored);
    if (c->wait == NULL && config->broker.wait > 0.0) {
        (void)snprintf(c->numbers[7], sizeof c->numbers[7], "%.9g", config->broker.wait);
        c->wait = c->numbers[7];
    }
    c->tasks =
        c->tasks != NULL || config->broker.tasks[0] == '\0' ? c->tasks : config->broker.tasks;
}

/* Composes a worker's command line, except for what by_serve_run adds. */
static arguments worker_of(const choices *c, const char *program, const char *directory,
                           const cli_served *model)
{
    arguments worker = begin(program, "worker", directory, c->broker);
    add_value(&worker, "--name", model->name);
    add_value(&worker, "--adapter", model->adapter);
    add_value(&worker, "--max-rate", c->rate);
    add_value(&worker, "--nice", c->nice);
    add_value(&worker, "--precision", c->precision);
    add_value(&worker, "--sessions", c->sessions);
    add_value(&worker, "--context", c->context);
    add_value(&worker, "--threads", c->threads);
    add_value(&worker, "--drift-window", c->window);
    add_value(&worker, "--pool", c->pool);
    add_value(&worker, "--batch", c->batch);
    add_value(&worker, "--delay", c->delay);
    if (c->open) {
        add(&worker, "--no-sandbox");
    }
    return worker;
}

static arguments gateway_of(const choices *c, const char *program, const char *directory,
                            const files *f)
{
    arguments gateway = begin(program, "gateway", directory, c->broker);
    add_value(&gateway, "--config", c->config);
    for (size_t i = 0; i < c->sets.count; i++) {
        add_value(&gateway, "--set", c->sets.items[i]);
    }
    add_value(&gateway, "--quota", f->quota);
    add_value(&gateway, "--control", f->control);
    add_value(&gateway, "--ready-file", f->listening);
    add_value(&gateway, "--listen", c->listen);
    add_value(&gateway, "--keys", c->keys);
    add_value(&gateway, "--deadline", c->deadline);
    add_value(&gateway, "--traces", c->traces);
    if (c->insecure) {
        add(&gateway, "--insecure");
    }
    return gateway;
}

static arguments broker_of(const choices *c, const char *program, const char *directory,
                           const char *own_tasks)
{
    arguments broker = begin(program, "broker", directory, NULL);
    add_value(&broker, "--queue", c->queue);
    add_value(&broker, "--stored", c->stored);
    add_value(&broker, "--wait", c->wait);
    add_value(&broker, "--tasks", c->tasks == NULL ? own_tasks : c->tasks);
    add(&broker, "--supervised");
    add_value(&broker, "--silence", c->silence);
    return broker;
}

static by_status name_files(files *f, const choices *c, const char *directory, by_error *error)
{
    by_status status = cli_serve_socket(&f->local, directory, error);
    if (status == BY_OK) {
        status = cli_serve_broker(&f->socket, c->broker, directory, error);
    }
    if (status != BY_OK) {
        return status;
    }
    if (asprintf(&f->tasks, "%s/tasks.sqlite", directory) < 0 ||
        asprintf(&f->quota, "%s/quota.json", directory) < 0 ||
        asprintf(&f->control, "%s/control.socket", directory) < 0 ||
        asprintf(&f->golden, "%s/golden.json", directory) < 0 ||
        asprintf(&f->listening, "%s/gateway.ready", directory) < 0) {
        return by_error_set(error, BY_EMEMORY, "out of memory");
    }
    return BY_OK;
}

static void free_files(files *f)
{
    free(f->socket);
    free(f->local);
    free(f->tasks);
    free(f->quota);
    free(f->control);
    free(f->golden);
    free(f->listening);
}

/* Runs the three parts as child processes of this program. models[0] is the one that deployments
 * replace. */
static by_status serve(const choices *c, const cli_served *models, size_t count,
                       const char *directory, by_error *error)
{
    char program[4096] = {0};
    files f = {0};
    arguments workers[MOST_MODELS];
    by_serve_other others[MOST_MODELS];
    by_status status =
        readlink("/proc/self/exe", program, sizeof program - 1) < 0
            ? by_error_set(error, BY_EIO, "cannot find the path of the running program")
            : name_files(&f, c, directory, error);
    if (status == BY_OK) {
        const arguments broker = broker_of(c, program, directory, f.tasks);
        const arguments gateway = gateway_of(c, program, directory, &f);
        for (size_t i = 0; i < count; i++) {
            workers[i] = worker_of(c, program, directory, &models[i]);
            others[i] = (by_serve_other){.worker = workers[i].items,
                                         .model = models[i].path,
                                         .name = models[i].name,
                                         .settings = models[i].settings,
                                         .workers = c->least > 0 ? c->least : 1};
        }
        by_serve_options options = {.broker = c->broker == NULL ? broker.items : NULL,
                                    .gateway = gateway.items,
                                    .worker = workers[0].items,
                                    .model = models[0].path,
                                    .name = models[0].name,
                                    .settings = models[0].settings,
                                    .others = others + 1,
                                    .other_count = count - 1,
                                    .workers = c->least,
                                    .most = c->most,
                                    .target_p95 = c->target_seconds,
                                    .calm = c->calm,
                                    .idle = c->idle,
                                    .grace = c->grace,
                                    .drain = c->drain,
                                    .address = f.socket,
                                    .control = f.control,
                                    .golden = f.golden,
                                    .listening = f.listening,
                                    .log = cli_serve_log};
        status = by_serve_run(&options, error);
    }
    free_files(&f);
    return status;
}

/* Parses the models to serve, and serves them. */
static by_status serve_all(const choices *c, char *const *texts, size_t count,
                           const char *directory, by_error *error)
{
    cli_served models[MOST_MODELS] = {{0}};
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = cli_served_parse(&models[i], texts[i], error);
        if (status == BY_OK && i == 0 && c->name != NULL) {
            models[0].name = c->name;
        }
        for (size_t k = 0; k < i && status == BY_OK; k++) {
            if (strcmp(models[k].name, models[i].name) == 0) {
                status =
                    by_error_set(error, BY_EARG,
                                 "two models are named '%s': give one another name with NAME=RUN",
                                 models[i].name);
            }
        }
        if (status == BY_OK) {
            status = cli_served_settings(&models[i], c->precision, error);
        }
    }
    if (status == BY_OK) {
        status = serve(c, models, count, directory, error);
    }
    for (size_t i = 0; i < count; i++) {
        cli_served_free(&models[i]);
    }
    return status;
}

/* Checks before starting any part what the parts would refuse. */
static by_status check_parts(const choices *c, const by_serve_config *config, by_error *error)
{
    by_gateway_options gateway = {.listen = c->listen, .keys = c->keys, .insecure = c->insecure};
    by_dtype dtype;
    const char *precision = c->precision != NULL ? c->precision : config->worker.precision;
    by_status status = precision[0] == '\0' ? BY_OK : by_infer_precision(&dtype, precision, error);
    if (status != BY_OK) {
        return by_error_prefix(error, status,
                               c->precision != NULL ? "--precision" : "worker.precision");
    }
    cli_gateway_use_config(&gateway, config);
    return by_gateway_check(&gateway, error);
}

static by_status check_or_serve(choices *c, bool checks, char *const *models, size_t count,
                                by_error *error)
{
    by_serve_config *config = NULL;
    char *own = c->directory == NULL ? cli_serve_directory() : NULL;
    const char *directory = c->directory == NULL ? own : c->directory;
    by_status status = directory == NULL ? by_error_set(error, BY_EMEMORY, "out of memory")
                                         : by_serve_config_open(&config, c->config, c->sets.items,
                                                                c->sets.count, error);
    if (status == BY_OK && checks) {
        status = by_serve_config_check(config, error);
    }
    if (status == BY_OK) {
        status = check_parts(c, config, error);
    }
    if (status == BY_OK && !checks) {
        if (c->broker == NULL) {
            cli_hide_password(config->broker.address, NULL);
        }
        use_config(c, config);
        models = count > 0 ? models : &config->worker.model;
        status =
            models[0][0] == '\0'
                ? by_error_set(error, BY_EARG,
                               "name a run or a model directory, or set worker.model in --config")
                : serve_all(c, models, count > 0 ? count : 1, directory, error);
    }
    if (status == BY_OK && checks) {
        printf("%s is valid\n", c->config == NULL ? "the configuration" : c->config);
    }
    by_serve_config_close(&config);
    free(own);
    return status;
}

static int run(int argc, char **argv)
{
    choices c = {0};
    bool checks = false;
    const cli_flag flags[] = {
        {"config", CLI_STRING, &c.config, "FILE",
         "configuration of the server in YAML (docs/serve_config.md); flags override its keys"},
        {"set", CLI_LIST, &c.sets, "KEY=VALUE",
         "override a key of the configuration, e.g. gateway.page=false; may be repeated"},
        {"check", CLI_SWITCH, &checks, NULL, "check the configuration and exit"},
        {"listen", CLI_STRING, &c.listen, "ADDRESS",
         "HOST:PORT or unix:PATH to listen on (default 127.0.0.1:8080)"},
        {"workers", CLI_STRING, &c.workers, "N",
         "worker processes of each model (default 1); LEAST:MOST starts and stops workers with the "
         "load, e.g. 1:8"},
        {"target-p95", CLI_STRING, &c.target, "TIME",
         "autoscaling: wanted 95th percentile of the time to the first text (default 200ms)"},
        {"calm", CLI_NUMBER, &c.calm, "SECONDS",
         "autoscaling: cool-down, the time an idle worker is kept before it is stopped (default "
         "15)"},
        {"idle", CLI_NUMBER, &c.idle, "SECONDS",
         "autoscaling from 0: time without requests before the last worker is stopped (default "
         "60)"},
        {"grace", CLI_NUMBER, &c.grace, "SECONDS",
         "time a worker may take to finish its requests after SIGTERM (default 60)"},
        {"max-rate", CLI_STRING, &c.rate, "N",
         "requests per second that each worker starts, at most (default: no limit)"},
        {"silence", CLI_STRING, &c.silence, "SECONDS", CLI_SILENCE_HELP},
        {"name", CLI_STRING, &c.name, "NAME",
         "model name that clients use (default: the last part of the path)"},
        {"precision", CLI_STRING, &c.precision, "P", CLI_PRECISION_HELP " (default: the model's)"},
        {"sessions", CLI_STRING, &c.sessions, "N",
         "sequences that a worker runs at the same time (default 16)"},
        {"context", CLI_STRING, &c.context, "N",
         "longest sequence in tokens, prompt and answer together (default: the model's context)"},
        {"threads", CLI_STRING, &c.threads, "N",
         "compute threads of each worker (default: one per core)"},
        {"drift-window", CLI_STRING, &c.window, "N", CLI_DRIFT_HELP},
        {"pool", CLI_STRING, &c.pool, "mean|last", CLI_POOL_HELP},
        {"batch", CLI_STRING, &c.batch, "N", CLI_BATCH_HELP},
        {"delay", CLI_STRING, &c.delay, "SECONDS", CLI_DELAY_HELP},
        {"tasks", CLI_STRING, &c.tasks, "FILE",
         "SQLite file that stores tasks (default DIR/tasks.sqlite)"},
        {"queue", CLI_STRING, &c.queue, "N",
         "requests that may wait in the queue, at most (default 1024)"},
        {"wait", CLI_STRING, &c.wait, "SECONDS", CLI_WAIT_HELP},
        {"deadline", CLI_STRING, &c.deadline, "SECONDS",
         "time in which a request must be answered, else it fails with 504 (default 600)"},
        {"traces", CLI_STRING, &c.traces, "URL", CLI_TRACES_HELP},
        {"keys", CLI_STRING, &c.keys, "FILE", CLI_KEYS_HELP},
        {"no-sandbox", CLI_SWITCH, &c.open, NULL,
         "run workers without their sandbox (docs/security.md)"},
        {"insecure", CLI_SWITCH, &c.insecure, NULL, CLI_INSECURE_HELP},
        {"dir", CLI_STRING, &c.directory, "DIR", CLI_DIR_HELP},
        {"broker", CLI_STRING, &c.broker, "ADDRESS", CLI_REDIS_HELP ", instead of starting one"},
        {0}};
    char **rest;
    int rest_count;
    int code = cli_parse(&cli_serve, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    cli_hide_password(c.broker, &c.sets);
    c.target_seconds = c.target == NULL ? 0.0 : read_seconds(c.target);
    if (rest_count > MOST_MODELS || c.target_seconds < 0.0 ||
        (c.workers != NULL && !read_workers(c.workers, &c.least, &c.most))) {
        return cli_misuse(&cli_serve, "%s",
                          rest_count > MOST_MODELS ? "at most 16 models can be served"
                          : c.target_seconds < 0.0
                              ? "--target-p95 must be a time, such as 200ms"
                              : "--workers must be 1 to 256, or LEAST:MOST such as 1:8");
    }
    by_error error = {0};
    by_status status = check_or_serve(&c, checks, rest, (size_t)rest_count, &error);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_serve, &error);
}

const cli_command cli_serve = {
    "serve", "serve models over HTTP with an OpenAI-compatible API",
    "banyan serve [NAME=]RUN[+ADAPTER]... [--config FILE] [--listen ADDRESS] [--workers N]",
    "Serves models over HTTP with an OpenAI-compatible API: starts a gateway, a broker and\n"
    "workers as processes of their own, and restarts them when they fail.\n"
    "\n"
    "examples:\n"
    "  banyan serve runs/tiny\n"
    "  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' \\\n"
    "      -d '{\"model\": \"tiny\", \"prompt\": \"Once\", \"max_tokens\": 20}'\n"
    "  banyan serve runs/tiny --workers 1:8 --listen 0.0.0.0:8080 --keys keys.txt\n"
    "  banyan serve base=runs/tiny adapted=runs/tiny+adapter prices=runs/houses\n"
    "  banyan serve --config serve.yaml --check\n"
    "\n"
    "The first SIGTERM or Ctrl-C answers the requests that were accepted, then exits; the\n"
    "second one exits at once. SIGHUP and `banyan deploy` put a new version of the first\n"
    "model into service; autoscaling applies to the first model only.\n"
    "\n"
    "Routes: /v1/completions, /v1/chat/completions, /v1/responses, /v1/embeddings,\n"
    "/v1/predict, /v1/tasks, /v1/models, /v1/feedback, /v1/admin/..., /metrics,\n"
    "/health/live, /health/ready, and a web page at / (docs/api.md, docs/serving.md). An\n"
    "address that other machines reach requires --keys or --insecure.",
    run};
