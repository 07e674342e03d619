#include "banyan/infer.h"
#include "serve/serving.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ARGUMENTS 192
#define MAX_NUMBERS   20
#define MAX_MODELS    16

/* A command line. Not copied, because items may point to its numbers. */
typedef struct arguments {
    const char *items[MAX_ARGUMENTS];
    size_t count;
    char numbers[MAX_NUMBERS][32];
    size_t number_count;
} arguments;

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
    if (a->count + 1 < MAX_ARGUMENTS) {
        a->items[a->count++] = item;
    }
}

/* Adds --NAME VALUE, unless value is NULL or empty. */
static void add_value(arguments *a, const char *name, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        add(a, name);
        add(a, value);
    }
}

/* Adds --NAME VALUE, unless value is 0, which stands for the part's default. */
static void add_number(arguments *a, const char *name, double value)
{
    assert(a->number_count < MAX_NUMBERS);
    char *text = a->numbers[a->number_count++];
    (void)snprintf(text, sizeof a->numbers[0], "%.17g", value);
    add_value(a, name, value == 0.0 ? NULL : text);
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

/* What the flags say. Those that stand for keys are in `config` once it is open. */
typedef struct choices {
    const char *path; /* of the configuration */
    cli_list sets;
    cli_settings settings;
    by_serve_config *config;
    const char *directory;
    const char *workers; /* "N" or "MIN:MAX"; NULL: the config's */
    const char *pool;
    int64_t batch; /* 0: the default, as in the next two */
    double delay;
    double silence;
    size_t least, most;
    bool insecure, open, checks;
    cli_log log;
} choices;

/* The address of a broker that is not started here; NULL: one is. */
static const char *shared_broker(const choices *c)
{
    return c->config->broker.address[0] == '\0' ? NULL : c->config->broker.address;
}

/* Begins a part's command line, with the directory or the address by which it finds the broker. */
static void begin(arguments *a, const choices *c, const char *program, const char *command,
                  const char *directory, const char *broker)
{
    *a = (arguments){0};
    add(a, program);
    add(a, command);
    add(a, "--child");
    add_value(a, "--log-format", cli_log_format(&c->log));
    add_value(a, broker == NULL ? "--dir" : "--broker", broker == NULL ? directory : broker);
    if (c->config->worker.sandbox == 0) {
        add(a, "--no-sandbox");
    }
}

/* Opens the configuration and applies the flags that stand for more than one key. */
static by_status open_config(choices *c, by_error *error)
{
    by_status status =
        cli_serve_config_open(&c->config, c->path, &c->sets, &c->settings, true, error);
    by_serve_config *config = c->config;
    if (status == BY_OK && c->log.format == NULL) {
        c->log.format = config->log.format;
    }
    if (status == BY_OK && c->insecure) {
        config->gateway.insecure = 1;
    }
    if (status == BY_OK && c->open) {
        config->worker.sandbox = 0;
    }
    if (status == BY_OK && c->workers != NULL) {
        config->worker.count = (int64_t)c->least;
        config->scaling.most = (int64_t)c->most;
    }
    return status;
}

/* The format of the KV cache as a worker takes it; NULL: that of the precision. */
static const char *kv_of(const char *kv)
{
    return strcmp(kv, "auto") == 0 || kv[0] == '\0' ? NULL : kv;
}

static char *text_or(char *own, const char *otherwise)
{
    return own != NULL && own[0] != '\0' ? own : (char *)(uintptr_t)otherwise;
}

static int64_t count_or(int64_t own, int64_t otherwise)
{
    return own != 0 ? own : otherwise;
}

/* The settings of a model: its own, else those of all. */
static by_served_model_config settings_of(const choices *c, const cli_served *model)
{
    const by_serve_worker_config *w = &c->config->worker;
    by_served_model_config m = {0};
    if (model->own != NULL) {
        m = *model->own;
    }
    m.precision = text_or(m.precision, w->precision);
    m.kv = text_or(m.kv, w->kv);
    m.chat_template = text_or(m.chat_template, w->chat_template);
    m.pool = text_or(m.pool, c->pool == NULL ? "" : c->pool);
    m.sessions = count_or(m.sessions, w->sessions);
    m.context = count_or(m.context, w->context);
    m.device = text_or(m.device, w->device);
    m.threads = count_or(m.threads, w->threads);
    m.batch = count_or(m.batch, c->batch);
    m.delay = m.delay != 0.0 ? m.delay : c->delay;
    m.max_rate = m.max_rate != 0.0 ? m.max_rate : w->max_rate;
    m.drift_window = count_or(m.drift_window, w->drift_window);
    return m;
}

/* Composes a worker's command line, except for what by_serve_run adds. */
static void worker_of(arguments *a, const choices *c, const char *program, const char *directory,
                      const cli_served *model)
{
    const by_serve_worker_config *w = &c->config->worker;
    const by_served_model_config m = settings_of(c, model);
    begin(a, c, program, "worker", directory, shared_broker(c));
    add_value(a, "--name", model->name);
    add_value(a, "--adapter", model->adapter);
    add_number(a, "--max-rate", m.max_rate);
    add_number(a, "--nice", (double)w->nice);
    add_value(a, "--precision", m.precision);
    add_value(a, "--kv", kv_of(m.kv));
    add_value(a, "--chat-template", m.chat_template);
    add_number(a, "--sessions", (double)m.sessions);
    add_number(a, "--context", (double)m.context);
    add_value(a, "--device", strcmp(m.device, "auto") == 0 ? "" : m.device);
    add_number(a, "--threads", (double)m.threads);
    add_number(a, "--drift-window", (double)m.drift_window);
    add_value(a, "--pool", m.pool);
    add_number(a, "--batch", (double)m.batch);
    add_number(a, "--delay", m.delay);
}

static void gateway_of(arguments *a, const choices *c, const char *program, const char *directory,
                       const files *f)
{
    const by_serve_config *config = c->config;
    begin(a, c, program, "gateway", directory, shared_broker(c));
    add_value(a, "--config", c->path);
    for (size_t i = 0; i < c->sets.count; i++) {
        add_value(a, "--set", c->sets.items[i]);
    }
    add_value(a, "--quota", f->quota);
    add_value(a, "--control", f->control);
    add_value(a, "--ready-file", f->listening);
    add_value(a, "--listen", config->gateway.listen);
    add_value(a, "--keys", config->gateway.keys);
    add_number(a, "--deadline", config->gateway.deadline);
    add_value(a, "--traces", config->tracing.endpoint);
    if (config->gateway.insecure != 0) {
        add(a, "--insecure");
    }
}

static void broker_of(arguments *a, const choices *c, const char *program, const char *directory,
                      const char *own_tasks)
{
    const by_serve_broker_config *b = &c->config->broker;
    begin(a, c, program, "broker", directory, NULL);
    add_number(a, "--queue", (double)b->queue);
    add_number(a, "--stored", (double)b->stored);
    add_number(a, "--stored-bytes", (double)b->stored_bytes);
    add_number(a, "--wait", b->wait);
    add_value(a, "--tasks", b->tasks[0] == '\0' ? own_tasks : b->tasks);
    add(a, "--supervised");
    add_number(a, "--silence", c->silence);
}

static by_status name_files(files *f, const choices *c, const char *directory, by_error *error)
{
    by_status status = cli_serve_socket(&f->local, directory, error);
    if (status == BY_OK) {
        status = cli_serve_broker(&f->socket, shared_broker(c), directory, error);
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

/* Runs the three parts as child processes of this program. */
static by_status serve(choices *c, const cli_served *models, size_t count, const char *directory,
                       by_error *error)
{
    char *program = NULL;
    files f = {0};
    arguments broker, gateway, workers[MAX_MODELS];
    by_serve_model served[MAX_MODELS];
    const by_serve_config *config = c->config;
    by_status status = by_executable_path(&program, error);
    if (status == BY_OK) {
        status = name_files(&f, c, directory, error);
    }
    if (status == BY_OK) {
        by_serve_clean_environment(BY_SERVE_SUPERVISOR, shared_broker(c) != NULL);
        broker_of(&broker, c, program, directory, f.tasks);
        gateway_of(&gateway, c, program, directory, &f);
        for (size_t i = 0; i < count; i++) {
            worker_of(&workers[i], c, program, directory, &models[i]);
            served[i] = (by_serve_model){.worker = workers[i].items,
                                         .path = models[i].path,
                                         .name = models[i].name,
                                         .settings = models[i].settings,
                                         .workers = models[i].least,
                                         .most = models[i].most};
        }
        by_serve_options options = {.broker = shared_broker(c) == NULL ? broker.items : NULL,
                                    .gateway = gateway.items,
                                    .models = served,
                                    .model_count = count,
                                    .workers = (size_t)config->worker.count,
                                    .most = (size_t)config->scaling.most,
                                    .total = (size_t)config->scaling.total,
                                    .target_p95 = config->scaling.target_p95,
                                    .calm = config->scaling.calm,
                                    .idle = config->scaling.idle,
                                    .grace = config->worker.grace,
                                    .drain = config->gateway.drain,
                                    .address = f.socket,
                                    .control = f.control,
                                    .golden = f.golden,
                                    .listening = f.listening,
                                    .log = cli_serve_log,
                                    .user = &c->log};
        status = by_serve_run(&options, error);
    }
    free_files(&f);
    free(program);
    return status;
}

static by_worker_options options_of(const choices *c, const cli_served *model,
                                    by_served_model_config *settings)
{
    *settings = settings_of(c, model);
    return (by_worker_options){
        .model = model->path,
        .adapter = model->adapter,
        .context = settings->context,
        .precision = settings->precision[0] == '\0' ? NULL : settings->precision,
        .kv = kv_of(settings->kv),
        .chat_template = settings->chat_template[0] == '\0' ? NULL : settings->chat_template};
}

static by_status check_settings(const by_served_model_config *m, by_error *error)
{
    by_dtype dtype;
    if (m->kv[0] != '\0' && strcmp(m->kv, "auto") != 0 && strcmp(m->kv, "int8") != 0) {
        return by_error_set(error, BY_ECONFIG, "kv is '%s': it must be auto or int8", m->kv);
    }
    by_pooling pooling;
    if (m->pool[0] != '\0' && !cli_find_pool(&pooling, m->pool)) {
        return by_error_set(error, BY_ECONFIG, "pool is '%s': it must be mean, last or first",
                            m->pool);
    }
    return m->precision[0] == '\0' ? BY_OK : by_infer_precision(&dtype, m->precision, error);
}

/* Completes and checks the last of the models to serve. */
static by_status complete_model(const choices *c, cli_served *models, size_t last, by_error *error)
{
    cli_served *model = &models[last];
    by_served_model_config settings;
    if (last == 0 && model->own == NULL && c->config->worker.name[0] != '\0') {
        model->name = c->config->worker.name;
    }
    for (size_t i = 0; i < last; i++) {
        if (strcmp(models[i].name, model->name) == 0) {
            return by_error_set(error, BY_EARG,
                                "two models are named '%s': give one another name with NAME=RUN, "
                                "or `name` in models",
                                model->name);
        }
    }
    const by_worker_options options = options_of(c, model, &settings);
    by_status status = check_settings(&settings, error);
    if (status == BY_OK) {
        status = by_worker_settings(&model->settings, &options, error);
    }
    return status == BY_OK || model->own == NULL
               ? status
               : by_error_prefix(error, BY_ECONFIG, "models: %s", model->name);
}

static by_status check_model(const choices *c, const cli_served *model, by_error *error)
{
    by_served_model_config settings;
    const by_worker_options options = options_of(c, model, &settings);
    return by_worker_check(&options, error);
}

static by_status check_total(const by_serve_config *config, const cli_served *models, size_t count,
                             by_error *error)
{
    long long total = config->scaling.total;
    long long first = 0;
    for (size_t i = 0; i < count; i++) {
        bool own = models[i].least > 0 || models[i].most > 0;
        long long least = own ? (long long)models[i].least : (long long)config->worker.count;
        first += least > 0 ? least : 1;
    }
    if (total == 0 || total >= first) {
        return BY_OK;
    }
    return by_error_set(error, BY_ECONFIG,
                        "scaling.total is %lld, but all models together start with %lld workers: "
                        "raise scaling.total, lower worker.count (--workers), or serve fewer "
                        "models",
                        total, first);
}

/* Lists the models: of the command line, else of the configuration. */
static by_status list_models(const choices *c, char *const *texts, size_t given, cli_served *models,
                             size_t *count, by_error *error)
{
    const by_served_model_config *rows = c->config->models.items;
    size_t of_config = given == 0 ? c->config->models.count : 0;
    if (given == 0 && of_config == 0 && c->config->worker.model[0] != '\0') {
        texts = &c->config->worker.model;
        given = 1;
    }
    if (of_config > MAX_MODELS) {
        return by_error_set(error, BY_ECONFIG, "models has %zu entries; at most %d can be served",
                            of_config, MAX_MODELS);
    }
    for (size_t i = 0; i < given + of_config; i++) {
        by_status status = of_config > 0 ? cli_served_read(&models[i], &rows[i], error)
                                         : cli_served_parse(&models[i], texts[i], error);
        if (status != BY_OK) {
            return status;
        }
        *count = i + 1;
        status = complete_model(c, models, i, error);
        if (status != BY_OK) {
            return status;
        }
    }
    return *count > 0 || c->checks
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "name a run or a model directory, or set models in --config");
}

/* A check needs no models: the configuration may leave them to the command line. */
static by_status check_or_serve(choices *c, char *const *texts, size_t given, by_error *error)
{
    cli_served models[MAX_MODELS] = {{0}};
    size_t count = 0;
    char *own = c->directory == NULL ? cli_serve_directory() : NULL;
    const char *directory = c->directory == NULL ? own : c->directory;
    by_status status = directory == NULL ? by_error_set(error, BY_EMEMORY, "out of memory")
                                         : open_config(c, error);
    if (status == BY_OK) {
        status = by_serve_config_check(c->config, error);
    }
    if (status == BY_OK) {
        status = list_models(c, texts, given, models, &count, error);
    }
    if (status == BY_OK) {
        status = check_total(c->config, models, count, error);
    }
    for (size_t i = 0; i < count && status == BY_OK && c->checks; i++) {
        status = check_model(c, &models[i], error);
    }
    if (status == BY_OK && !c->checks) {
        status = serve(c, models, count, directory, error);
    } else if (status == BY_OK) {
        printf("%s is valid\n", c->path == NULL ? "the configuration" : c->path);
    }
    for (size_t i = 0; i < count; i++) {
        cli_served_free(&models[i]);
    }
    if (c->log.format != NULL && c->config != NULL) {
        c->log.format = cli_log_format(&c->log); /* which outlives the configuration */
    }
    by_serve_config_close(&c->config);
    free(own);
    return status;
}

static int run(int argc, char **argv)
{
    choices c = {0};
    (void)umask(CLI_PRIVATE);
    const cli_flag flags[] = {
        {"config", CLI_INPUT, &c.path, "FILE",
         "configuration of the server in YAML (docs/serve_config.md); flags override its keys"},
        {"set", CLI_LIST, &c.sets, "KEY=VALUE",
         "override a key of the configuration, e.g. gateway.page=false; may be repeated"},
        {"check", CLI_SWITCH, &c.checks, NULL,
         "check the configuration, the models and what else they name, and exit"},
        {"listen", CLI_KEY("gateway.listen"), &c.settings, "ADDRESS",
         "HOST:PORT or unix:PATH to listen on (default 127.0.0.1:8080)"},
        {"workers", CLI_STRING, &c.workers, "N",
         "worker processes of each model (default 1); LEAST:MOST starts and stops workers with the "
         "load of the model, e.g. 1:8; --set scaling.total=N limits those of all models"},
        {"target-p95", CLI_KEY("scaling.target_p95"), &c.settings, "TIME",
         "autoscaling: wanted 95th percentile of the time to the first text (default 200ms)"},
        {"calm", CLI_KEY("scaling.calm"), &c.settings, "TIME",
         "autoscaling: cool-down, the time an idle worker is kept (default 15)"},
        {"idle", CLI_KEY("scaling.idle"), &c.settings, "TIME",
         "autoscaling from 0: idle time before the last worker is stopped (default 60)"},
        {"grace", CLI_KEY("worker.grace"), &c.settings, "TIME",
         "time a worker may take to finish its requests after SIGTERM (default 60)"},
        {"max-rate", CLI_KEY("worker.max_rate"), &c.settings, "N",
         "requests per second that each worker starts, at most (default: no limit)"},
        {"silence", CLI_SILENCE, &c.silence, "TIME", CLI_SILENCE_HELP},
        {"name", CLI_KEY("worker.name"), &c.settings, "NAME",
         "model name that clients use (default: the last part of the path)"},
        {"precision", CLI_KEY("worker.precision"), &c.settings, "P", CLI_MODEL_PRECISION_HELP},
        {"kv", CLI_KEY("worker.kv"), &c.settings, "int8", CLI_KV_HELP},
        {"chat-template", CLI_KEY("worker.chat_template"), &c.settings, "FILE|NAME",
         CLI_CHAT_TEMPLATE_HELP},
        {"sessions", CLI_KEY("worker.sessions"), &c.settings, "N",
         "sequences that a worker runs at the same time (default 16)"},
        {"context", CLI_KEY("worker.context"), &c.settings, "N",
         "longest sequence in tokens, prompt and answer together (default: the model's context)"},
        {"device", CLI_KEY("worker.device"), &c.settings, "NAME", CLI_DEVICE_HELP},
        {"threads", CLI_KEY("worker.threads"), &c.settings, "N",
         "compute threads of each worker (default: one per core)"},
        {"drift-window", CLI_KEY("worker.drift_window"), &c.settings, "N", CLI_DRIFT_HELP},
        {"pool", CLI_STRING, &c.pool, "mean|last|first", CLI_POOL_HELP},
        {"batch", CLI_BATCH, &c.batch, "N", CLI_BATCH_HELP},
        {"delay", CLI_DELAY, &c.delay, "TIME", CLI_DELAY_HELP},
        {"tasks", CLI_KEY("broker.tasks"), &c.settings, "FILE",
         "SQLite file that stores tasks (default DIR/tasks.sqlite)"},
        {"queue", CLI_KEY("broker.queue"), &c.settings, "N",
         "requests that may wait in the queue, at most (default 1024)"},
        {"wait", CLI_KEY("broker.wait"), &c.settings, "TIME", CLI_WAIT_HELP},
        {"deadline", CLI_KEY("gateway.deadline"), &c.settings, "TIME", CLI_DEADLINE_HELP},
        {"traces", CLI_KEY("tracing.endpoint"), &c.settings, "URL", CLI_TRACES_HELP},
        {"keys", CLI_KEY("gateway.keys"), &c.settings, "FILE", CLI_KEYS_HELP},
        {"log-format", CLI_STRING, &c.log.format, "FORMAT", CLI_LOG_HELP},
        {"no-sandbox", CLI_SWITCH, &c.open, NULL,
         "run the processes without their sandboxes (docs/security.md)"},
        {"insecure", CLI_SWITCH, &c.insecure, NULL, CLI_INSECURE_HELP},
        {"dir", CLI_STRING, &c.directory, "DIR", CLI_DIR_HELP},
        {"broker", CLI_KEY("broker.address"), &c.settings, "ADDRESS",
         CLI_REDIS_HELP ", instead of starting one"},
        {0}};
    char **rest;
    int rest_count;
    int code = cli_parse(&cli_serve, flags, argc, argv, &rest, &rest_count);
    if (code >= 0) {
        return code;
    }
    if (rest_count > MAX_MODELS ||
        (c.workers != NULL && !cli_read_workers(c.workers, &c.least, &c.most))) {
        return cli_misuse(&cli_serve, "%s",
                          rest_count > MAX_MODELS
                              ? "at most 16 models can be served"
                              : "--workers must be 1 to 256, or LEAST:MOST such as 1:8");
    }
    by_pooling pooling;
    if ((code = cli_check_pool(&cli_serve, &pooling, c.pool)) >= 0 ||
        (code = cli_check_log(&cli_serve, &c.log)) >= 0) {
        return code;
    }
    by_error error = {0};
    by_status status = check_or_serve(&c, rest, (size_t)rest_count, &error);
    return status == BY_OK ? CLI_DONE : cli_serve_fail(&cli_serve, &c.log, &error);
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
    "second one exits at once. `banyan deploy` puts a new version of a model into service,\n"
    "and SIGHUP the newest version of each model.\n"
    "\n"
    "Routes: /v1/completions, /v1/chat/completions, /v1/responses, /v1/embeddings,\n"
    "/v1/predict, /v1/tasks, /v1/models, /v1/feedback, /v1/admin/..., /metrics,\n"
    "/health/live, /health/ready, and a web page at / (docs/api.md, docs/serving.md). An\n"
    "address that other machines reach requires --keys or --insecure.",
    run};
