/* The processes of a server on one machine: starts, watches and restarts them, and ends them in
 * order. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/exit.h"
#include "serve/base/stop.h"
#include "serve/supervisor/serve_processes.h"

/* Seconds: after running this long, a process's earlier exits are forgotten. */
#define STABLE_SECONDS 30.0
/* Seconds before the first restart of a process, and the most before a later one. */
#define FIRST_PAUSE 0.1
#define MAX_PAUSE   10.0
/* Consecutive exits before any process was ready, after which a restart is considered useless. */
#define MAX_FAILED 5
/* Reasons of restarts in addition to those of by_exit_name. */
#define CRASH  "crash"
#define SILENT "silent"
/* Seconds that a process has to close what it has open, after those for its requests. */
#define CLOSE_SECONDS 10.0

static void continue_ending(by__supervisor *s);
static void watch_all(by__supervisor *s);
static void on_due(uv_timer_t *timer);

/* ---- one process ---- */

/* All processes, from the broker on: the gateway, then the workers. */
static by__serve_child *next_child(const by__serve_child *c)
{
    by__supervisor *s = c->all;
    return c == &s->broker ? &s->gateway : c == &s->gateway ? s->workers : c->next;
}

/* SIGKILL has not ended it: the server ends without it. */
static void leave_behind(by__serve_child *c)
{
    by__supervisor *s = c->all;
    if (!s->ending) {
        return;
    }
    c->process.running = false;
    by__telemetry_log_event(&s->log, "process_left", "{ss sI}", "role", c->role, "pid",
                            (json_int_t)c->process.pid);
    if (s->failure.status == BY_OK) {
        (void)by_error_set(&s->failure, BY_ESTATE,
                           "the %s (process %d) did not end after SIGKILL: it hangs in the kernel, "
                           "as on a mount that does not answer, and was left behind",
                           c->role, (int)c->process.pid);
    }
    continue_ending(s);
}

static void end_all(by__supervisor *s)
{
    s->ending = true;
    continue_ending(s);
    watch_all(s);
}

/* Returns true if a process of this kind has been ready since the server started. */
static bool kind_was_ready(const by__serve_child *c)
{
    return c->group != NULL ? c->group->was_ready : c->was_ready;
}

void by__supervisor_fail(by__supervisor *s, const char *why)
{
    if (!s->ending) {
        (void)by_error_set(&s->failure, BY_ESTATE, "%s", why);
        end_all(s);
    }
}

/* Returns true if the exit code means that a restart is useless: a wrong configuration stays wrong,
 * of broker and gateway, and of all workers of one version. */
static bool is_config_error(const by__supervisor *s, const by__serve_child *c, int code)
{
    if (code != BY_EXIT_CONFIG || kind_was_ready(c)) {
        return false;
    }
    for (const by__serve_child *w = s->workers; w != NULL && c->group != NULL; w = w->next) {
        bool same = w->group == c->group;
        if (w != c && (same ? w->process.running : w->group->model == c->group->model)) {
            return false;
        }
    }
    return c->group == NULL || c->group == c->group->model->current;
}

/* Returns true if a process that was never ready has exited too often; a rollout counts its own
 * workers. */
static bool gives_up(by__serve_child *c)
{
    if (kind_was_ready(c) || (c->group != NULL && c->group != c->group->model->current)) {
        return false;
    }
    return ++c->failed >= MAX_FAILED;
}

/* The pause before each further restart grows. */
static void restart_later(by__serve_child *c, double lived)
{
    c->exits = lived > STABLE_SECONDS ? 1 : c->exits + 1;
    c->restart = by__now() + by__process_back_off(FIRST_PAUSE, MAX_PAUSE, c->exits);
}

json_t *by__serve_model_restarts(by__serve_model *model)
{
    by__supervisor *s = model->all;
    json_t *own = json_object_get(s->restarts, model->name);
    if (own == NULL) {
        /* Starts from 0, so that the first one is seen as an increase. */
        s->restarts = s->restarts == NULL ? json_object() : s->restarts;
        own = json_pack("{si si si si}", by_exit_name(BY_EXIT_FAILED), 0,
                        by_exit_name(BY_EXIT_HANG), 0, CRASH, 0, SILENT, 0);
        (void)json_object_set_new(s->restarts, model->name, own);
        own = json_object_get(s->restarts, model->name);
    }
    return own;
}

static void count_restart(const by__serve_child *c, int code)
{
    json_t *own = by__serve_model_restarts(c->group->model);
    const char *reason = c->silent ? SILENT : by_exit_name(code);
    json_int_t count = json_integer_value(json_object_get(own, reason));
    (void)json_object_set_new(own, reason, json_integer(count + 1));
}

/* Returns true if the last gateway has reported that it listens. */
static bool has_listened(const by__supervisor *s)
{
    const char *path = s->options.listening;
    return path != NULL && by__path_exists(path);
}

/* While the server ends, its processes end by themselves, or by SIGTERM while they start. A worker
 * that was never ready, as those of a version that cannot be loaded, had no requests. */
static void note_end(by__supervisor *s, const by__serve_child *c, int code)
{
    bool had_requests = c->group == NULL || c->known > 0.0;
    if (had_requests && code != BY_EXIT_DONE && code != 128 + SIGTERM && !s->forced &&
        s->failure.status == BY_OK) {
        (void)by_error_set(&s->failure, BY_ESTATE,
                           "the %s ended with code %d (%s) while the server was stopping: requests "
                           "that were running may have got no answer",
                           c->role, code, by_exit_name(code));
    }
}

/* Keeps what a worker has said of its end, in a file of its own. */
static void note_failure(const by__serve_child *c, int code)
{
    by__serve_group *g = c->group;
    char *path = NULL;
    char *text = NULL;
    size_t length = 0;
    if (g->failure != NULL && asprintf(&path, "%s.%ld", g->failure, (long)c->process.pid) < 0) {
        path = NULL;
    }
    bool said =
        path != NULL && by__file_read(&text, &length, path, (size_t)64 << 10, NULL) == BY_OK;
    if (said) {
        (void)unlink(path);
    }
    if (c->wanted && said) {
        (void)snprintf(g->why, sizeof g->why, "%.*s", (int)strcspn(text, "\n"), text);
    } else if (c->wanted) {
        (void)snprintf(g->why, sizeof g->why, "the last one ended with code %d (%s)", code,
                       by_exit_name(code));
    }
    free(text);
    free(path);
}

static void process_ended(by__serve_child *c)
{
    by__supervisor *s = c->all;
    double lived = by__now() - c->process.began;
    int code = c->process.code;
    c->was_ready = c->was_ready || (c == &s->gateway && has_listened(s));
    by__telemetry_log_event(&s->log, "process_ended", "{ss sI si sf}", "role", c->role, "pid",
                            (json_int_t)c->process.pid, "code", code, "seconds",
                            by__telemetry_observe_seconds(lived));
    if (c->group != NULL && c->wanted) {
        c->group->exits++;
        c->group->config_error = c->group->config_error || code == BY_EXIT_CONFIG;
        count_restart(c, code);
    }
    if (c->group != NULL) {
        note_failure(c, code);
    }
    if (s->ending) {
        note_end(s, c, code);
        continue_ending(s);
    } else if (c->wanted && is_config_error(s, c, code)) {
        (void)by_error_set(&s->failure, BY_ECONFIG, "the %s cannot start (see its message above)",
                           c->role);
        end_all(s);
    } else if (c->wanted && gives_up(c)) {
        (void)by_error_set(&s->failure, BY_ESTATE,
                           "the %s exited %u times without becoming ready, the last time with code "
                           "%d (%s): see its messages above",
                           c->role, c->failed, code, by_exit_name(code));
        end_all(s);
    } else if (c->wanted) {
        restart_later(c, lived);
    }
}

static void start(by__serve_child *c)
{
    by__supervisor *s = c->all;
    if (c == &s->gateway && s->options.listening != NULL) {
        (void)unlink(s->options.listening);
    }
    /* The child reads its standard input only to notice the end of this process. Ctrl-C goes to
     * this process only, which ends the others in order. */
    const by__process_options options = {
        .words = (char *const *)(uintptr_t)c->command, .input = s->lifeline[0], .session = true};
    c->restart = 0.0;
    c->known = 0.0;
    c->served = false;
    c->silent = false;
    int problem = by__process_start(&c->process, &options);
    if (problem != 0) {
        by__telemetry_log_event(&s->log, "process_failed", "{ss ss}", "role", c->role, "reason",
                                uv_strerror(-problem));
        if (c->group == NULL) {
            (void)by_error_set(&s->failure, BY_EIO, "cannot start the %s: %s", c->role,
                               uv_strerror(-problem));
            end_all(s);
        } else {
            /* The system cannot create a process now. */
            restart_later(c, 0.0);
        }
        return;
    }
    by__telemetry_log_event(&s->log, "process", "{ss sI}", "role", c->role, "pid",
                            (json_int_t)c->process.pid);
}

static void end_child(by__serve_child *c)
{
    const by_serve_options *o = &c->all->options;
    /* A worker that was never ready has no requests to finish. */
    double grace = c == &c->all->gateway ? o->drain : c->served ? o->grace : 0.0;
    if (c->wanted && c->process.running) {
        by__process_stop(&c->process, CLOSE_SECONDS + grace);
        /* One that is stopped would not notice. */
        (void)kill(c->process.pid, SIGCONT);
    }
    c->wanted = false;
}

/* Handles the end of a process, or what is due for it. */
static void watch(by__serve_child *c, double now)
{
    by__process_news news = by__process_watch(&c->process, now);
    if (news == BY__PROCESS_ENDED) {
        process_ended(c);
    } else if (news == BY__PROCESS_LEFT) {
        leave_behind(c);
    }
    if (c->wanted && c->restart > 0.0 && now >= c->restart) {
        start(c);
    }
}

static double sooner(double first, double due)
{
    return due > 0.0 && (first == 0.0 || due < first) ? due : first;
}

/* Handles what has happened to the processes, and schedules what is due next. */
static void watch_all(by__supervisor *s)
{
    double now = by__now();
    double first = 0.0;
    for (by__serve_child *c = &s->broker; c != NULL; c = next_child(c)) {
        watch(c, now);
    }
    for (by__serve_child *c = &s->broker; c != NULL; c = next_child(c)) {
        first = c->process.running ? sooner(first, c->process.due) : first;
        first = c->wanted ? sooner(first, c->restart) : first;
    }
    if (first > 0.0) {
        double seconds = fmax(first - now, 0.0);
        (void)uv_timer_start(&s->due, on_due, (uint64_t)(seconds * 1000.0) + 1, 0);
    }
}

static void on_due(uv_timer_t *timer)
{
    watch_all(timer->data);
}

static void on_child(uv_signal_t *handle, int number)
{
    BY_UNUSED(number);
    watch_all(handle->data);
}

static void open_child(by__supervisor *s, by__serve_child *c, const char *role,
                       const char *const *command)
{
    c->all = s;
    c->role = role;
    c->command = command;
    c->wanted = command != NULL;
}

/* ---- groups ---- */

static size_t count_wanted(const by__supervisor *s, const by__serve_group *group)
{
    size_t count = 0;
    for (const by__serve_child *c = s->workers; c != NULL; c = c->next) {
        count += c->group == group && c->wanted;
    }
    return count;
}

size_t by__serve_group_ready(const by__supervisor *s, const by__serve_group *group)
{
    size_t count = 0;
    for (const by__serve_child *c = s->workers; c != NULL; c = c->next) {
        count += c->group == group && c->process.running && c->wanted && c->known > 0.0;
    }
    return count;
}

/* Returns true if no further worker of a live version may start: those that are ending use memory
 * until they have ended. */
static bool is_full(const by__supervisor *s, const by__serve_group *group)
{
    size_t count = 0;
    for (const by__serve_child *c = s->workers; c != NULL; c = c->next) {
        count += c->group == c->group->model->current && (c->process.running || c->wanted);
    }
    return s->options.total > 0 && group == group->model->current && count >= s->options.total;
}

static void add_worker(by__supervisor *s, by__serve_group *group)
{
    by__serve_child *c = NULL;
    by_error error = {0};
    if (by__alloc((void **)&c, 1, sizeof *c, "a process", &error) != BY_OK) {
        by__telemetry_log_event(&s->log, "process_failed", "{ss ss}", "role", "worker", "reason",
                                error.message);
        group->wanted = count_wanted(s, group);
        return;
    }
    open_child(s, c, "worker", group->command);
    c->group = group;
    c->next = s->workers;
    s->workers = c;
    start(c);
}

/* Ends a worker that is not ready yet, if there is one, else the youngest. */
static void end_worker(by__supervisor *s, const by__serve_group *group)
{
    by__serve_child *best = NULL;
    for (by__serve_child *c = s->workers; c != NULL; c = c->next) {
        bool earlier =
            best == NULL || (best->known > 0.0 && c->known == 0.0) ||
            ((best->known > 0.0) == (c->known > 0.0) && c->process.began > best->process.began);
        if (c->group == group && c->wanted && earlier) {
            best = c;
        }
    }
    if (best != NULL) {
        end_child(best);
    }
}

static void free_ended(by__supervisor *s)
{
    for (by__serve_child **at = &s->workers; *at != NULL;) {
        by__serve_child *c = *at;
        if (c->wanted || c->process.running) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        free(c);
    }
    for (by__serve_group **at = &s->groups; *at != NULL;) {
        by__serve_group *g = *at;
        bool used = g == g->model->current || g == g->model->coming;
        for (const by__serve_child *c = s->workers; c != NULL && !used; c = c->next) {
            used = c->group == g;
        }
        if (used) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        by__telemetry_log_event(&s->log, "version_ended", "{ss ss}", "model", g->model->name,
                                "version", g->version.name);
        by__serve_group_free(g);
    }
}

void by__supervisor_reconcile(by__supervisor *s)
{
    for (by__serve_group *g = s->groups; g != NULL && !s->ending; g = g->next) {
        g->wanted = g->retire > 0.0 && by__now() > g->retire ? 0 : g->wanted;
        for (size_t n = count_wanted(s, g); n < g->wanted && !is_full(s, g); n++) {
            add_worker(s, g);
        }
        for (size_t n = count_wanted(s, g); n > g->wanted; n--) {
            end_worker(s, g);
        }
    }
    watch_all(s);
    free_ended(s);
}

/* ---- all ---- */

/* The gateway first answers what it has accepted, while workers and broker are running; then these
 * end. */
static void continue_ending(by__supervisor *s)
{
    bool workers = false;
    end_child(&s->gateway);
    if (s->gateway.process.running) {
        return;
    }
    for (by__serve_child *c = s->workers; c != NULL; c = c->next) {
        end_child(c);
        workers = workers || c->process.running;
    }
    if (workers) {
        return;
    }
    end_child(&s->broker);
    if (!s->broker.process.running) {
        uv_stop(&s->loop);
    }
}

static void on_stop(void *user, bool again)
{
    by__supervisor *s = user;
    if (again) {
        s->forced = true;
        for (by__serve_child *c = &s->broker; c != NULL; c = next_child(c)) {
            by__process_kill(&c->process);
        }
    }
    end_all(s);
}

static void on_hangup(uv_signal_t *handle, int number)
{
    BY_UNUSED(number);
    by__serve_control_reload(handle->data);
}

static by_status begin(by__supervisor *s, by_error *error)
{
    BY_TRY(by__serve_control_open(s, error));
    int code = uv_signal_start(&s->reload, on_hangup, SIGHUP);
    if (code < 0) {
        return by__serve_uv_error(error, "watch", "SIGHUP", code);
    }
    code = uv_signal_start(&s->child, on_child, SIGCHLD);
    if (code < 0) {
        return by__serve_uv_error(error, "watch", "SIGCHLD", code);
    }
    if (s->broker.wanted) {
        start(&s->broker);
    }
    start(&s->gateway);
    by__supervisor_reconcile(s);
    by__supervisor_connect(s);
    return BY_OK;
}

static void release(by__supervisor *s)
{
    while (s->groups != NULL) {
        by__serve_group *g = s->groups;
        s->groups = g->next;
        by__serve_group_free(g);
    }
    for (size_t i = 0; i < s->model_count; i++) {
        by__serve_model *m = &s->models[i];
        for (size_t k = 0; k < m->former_count; k++) {
            by__protocol_served_version_free(&m->former[k]);
        }
        by__rollout_golden_reset(&m->golden);
        json_decref(m->info);
        free(m->routed);
    }
    free(s->models);
    free(s->scales);
    json_decref(s->restarts);
    (void)close(s->lifeline[0]);
    (void)close(s->lifeline[1]);
}

static void set_options(by__supervisor *s)
{
    by_serve_options *o = &s->options;
    o->most = o->most > o->workers ? o->most : o->workers;
    o->grace = o->grace > 0.0 ? o->grace : 60.0;
    o->drain = o->drain > 0.0 ? o->drain : 45.0;
}

by_status by_serve_run(const by_serve_options *options, by_error *error)
{
    by__supervisor s = {.options = *options, .log = {options->log, options->user}};
    by__serve_stop *stop = NULL;
    BY_TRY(by__link_check(options->address, error));
    if (options->workers == 0 && options->most == 0) {
        return by_error_set(error, BY_EARG,
                            "no worker can be started: set scaling.most, or --workers 0:8");
    }
    BY_TRY(by__serve_request_id(s.name, "supervisor_", error));
    set_options(&s);
    if (pipe2(s.lifeline, O_CLOEXEC) != 0) {
        return by__serve_uv_error(error, "make", "a pipe", -errno);
    }
    int code = uv_loop_init(&s.loop);
    if (code < 0) {
        release(&s);
        return by__serve_uv_error(error, "make", "an event loop", code);
    }
    (void)uv_signal_init(&s.loop, &s.reload);
    (void)uv_signal_init(&s.loop, &s.child);
    (void)uv_timer_init(&s.loop, &s.due);
    s.reload.data = s.child.data = s.due.data = &s;
    open_child(&s, &s.broker, "broker", options->broker);
    open_child(&s, &s.gateway, "gateway", options->gateway);
    /* Reads weights, which takes long where a mount hangs: a signal ends the program until there
     * are processes. */
    by_status status = by__supervisor_add_models(&s, error);
    if (status == BY_OK) {
        status = by__serve_stop_open(&stop, &s.loop, false, on_stop, &s, error);
    }
    if (status == BY_OK) {
        status = begin(&s, error);
    }
    if (status == BY_OK) {
        (void)uv_run(&s.loop, UV_RUN_DEFAULT);
        if (s.failure.status != BY_OK) {
            *error = s.failure;
            status = s.failure.status;
        }
    }
    if (s.link.loop != NULL) {
        by__link_broker_close(&s.link);
    }
    by__serve_control_close(&s);
    by__serve_stop_close(&stop);
    uv_close((uv_handle_t *)&s.reload, NULL);
    uv_close((uv_handle_t *)&s.child, NULL);
    uv_close((uv_handle_t *)&s.due, NULL);
    while (s.workers != NULL) {
        by__serve_child *c = s.workers;
        s.workers = c->next;
        free(c);
    }
    (void)uv_run(&s.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&s.loop);
    release(&s);
    return status;
}
