/* The processes of a server on one machine: started, watched, started again, ended in order. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/exit.h"
#include "serve/broker_link.h"
#include "serve/log.h"
#include "serve/messages.h"
#include "serve/stop.h"

/* Seconds: a process that lives as long is not blamed for its earlier ends. */
#define LONG_ENOUGH 30.0
#define FIRST_PAUSE 0.1
#define MOST_PAUSE  10.0
/* Seconds after which a worker is killed that the broker knew and knows no more: it has stopped to
 * speak, or makes no step. */
#define FORGOTTEN 2.0
/* Seconds that a process has to end after SIGTERM. */
#define GRACE 60.0

typedef struct serving serving;

typedef struct child {
    uv_process_t process;
    uv_timer_t timer; /* until it is started again, or killed */
    serving *all;
    const char *role;
    const char *const *command;
    double began;
    double pause;
    double known; /* by__now when the broker last named it; 0: not yet */
    int code;     /* of its last end */
    bool running; /* the process exists */
    bool wanted;  /* it is to run */
} child;

struct serving {
    by_serve_options options;
    by__log log;
    uv_loop_t loop;
    by__broker_link broker;
    child *children; /* broker, gateway, workers */
    size_t count;
    by_error failure;
    uv_file lifeline[2]; /* a pipe into which nothing is written */
    bool ending;
};

static void start(child *c);
static void go_on_ending(serving *s);

/* ---- one process ---- */

static void on_again(uv_timer_t *timer)
{
    child *c = timer->data;
    if (c->wanted && !c->running) {
        start(c);
    }
}

static void on_kill(uv_timer_t *timer)
{
    child *c = timer->data;
    if (c->running) {
        (void)uv_process_kill(&c->process, SIGKILL);
    }
}

/* A wrong configuration stays wrong. */
static bool is_hopeless(const serving *s, const child *c)
{
    if (c->code != BY_EXIT_CONFIG) {
        return false;
    }
    for (size_t i = 2; i < s->count && c >= s->children + 2; i++) {
        if (s->children[i].running || s->children[i].code != BY_EXIT_CONFIG) {
            return false;
        }
    }
    return true;
}

static void end_all(serving *s)
{
    s->ending = true;
    go_on_ending(s);
}

static void on_exit_of(uv_process_t *process, int64_t status, int signal_number)
{
    child *c = process->data;
    serving *s = c->all;
    double lived = by__now() - c->began;
    c->running = false;
    c->code = signal_number != 0 ? 128 + signal_number : (int)status;
    (void)uv_timer_stop(&c->timer);
    by__log_event(&s->log, "process_ended", "{ss sI si sf}", "role", c->role, "pid",
                  (json_int_t)process->pid, "code", c->code, "seconds", lived);
    uv_close((uv_handle_t *)process, NULL);
    if (s->ending) {
        go_on_ending(s);
        return;
    }
    if (is_hopeless(s, c)) {
        (void)by_error_set(&s->failure, BY_ECONFIG, "the %s cannot start (its message is above)",
                           c->role);
        end_all(s);
        return;
    }
    c->pause = lived > LONG_ENOUGH || c->pause == 0.0 ? FIRST_PAUSE : 2.0 * c->pause;
    c->pause = c->pause > MOST_PAUSE ? MOST_PAUSE : c->pause;
    (void)uv_timer_start(&c->timer, on_again, (uint64_t)(c->pause * 1000.0), 0);
}

static void start(child *c)
{
    serving *s = c->all;
    /* The child reads its standard input only to see this process end. */
    uv_stdio_container_t files[3] = {{.flags = UV_INHERIT_FD, .data.fd = s->lifeline[0]},
                                     {.flags = UV_INHERIT_FD, .data.fd = STDOUT_FILENO},
                                     {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO}};
    /* Ctrl-C is for this process alone: it ends the others in order. */
    uv_process_options_t options = {.exit_cb = on_exit_of,
                                    .flags = UV_PROCESS_DETACHED,
                                    .file = c->command[0],
                                    .args = (char **)(uintptr_t)c->command,
                                    .stdio_count = 3,
                                    .stdio = files};
    c->process.data = c;
    c->began = by__now();
    c->known = 0.0;
    int code = uv_spawn(&s->loop, &c->process, &options);
    c->running = code == 0;
    if (code < 0) {
        by__log_event(&s->log, "process_failed", "{ss ss}", "role", c->role, "reason",
                      uv_strerror(code));
        uv_close((uv_handle_t *)&c->process, NULL);
        (void)by_error_set(&s->failure, BY_EIO, "cannot start the %s: %s", c->role,
                           uv_strerror(code));
        end_all(s);
        return;
    }
    by__log_event(&s->log, "process", "{ss sI}", "role", c->role, "pid",
                  (json_int_t)c->process.pid);
}

static void end_child(child *c)
{
    if (c->running && c->wanted) {
        (void)uv_process_kill(&c->process, SIGTERM);
        (void)uv_timer_start(&c->timer, on_kill, (uint64_t)(GRACE * 1000.0), 0);
    }
    c->wanted = false;
}

/* The gateway answers what it has accepted while workers and broker still stand; then they go. */
static void go_on_ending(serving *s)
{
    bool workers = false;
    end_child(&s->children[1]);
    if (s->children[1].running) {
        return;
    }
    for (size_t i = 2; i < s->count; i++) {
        end_child(&s->children[i]);
        workers = workers || s->children[i].running;
    }
    if (workers) {
        return;
    }
    end_child(&s->children[0]);
    if (!s->children[0].running) {
        uv_stop(&s->loop);
    }
}

/* ---- what the broker says ---- */

/* The child that a worker of the state is; NULL: it is none, or runs on another host. */
static child *child_of(serving *s, const json_t *worker)
{
    const char *host = by__get_text(worker, "host");
    int64_t pid = by__get_integer(worker, "pid");
    char own[65] = "";
    (void)gethostname(own, sizeof own - 1);
    if (host != NULL && strcmp(host, own) != 0) {
        return NULL;
    }
    for (size_t i = 0; i < s->count; i++) {
        if (s->children[i].running && s->children[i].process.pid == pid) {
            return &s->children[i];
        }
    }
    return NULL;
}

static void on_message(void *user, json_t *message)
{
    serving *s = user;
    size_t i;
    json_t *w;
    double now = by__now();
    json_array_foreach(json_object_get(message, "workers"), i, w)
    {
        child *c = child_of(s, w);
        if (c != NULL) {
            c->known = now;
        }
    }
    for (size_t at = 2; at < s->count; at++) {
        child *c = &s->children[at];
        if (c->running && c->known > 0.0 && now - c->known > FORGOTTEN) {
            by__log_event(&s->log, "worker_killed", "{sI}", "pid", (json_int_t)c->process.pid);
            c->known = 0.0;
            (void)uv_process_kill(&c->process, SIGKILL);
        }
    }
}

static void on_greet(void *user)
{
    serving *s = user;
    json_t *hello = json_pack("{ss ss ss sI}", "t", "hello", "role", "supervisor", "name",
                              "supervisor", "pid", (json_int_t)getpid());
    (void)by__broker_link_send(&s->broker, hello);
    json_decref(hello);
}

static void on_ready(void *user)
{
    serving *s = user;
    /* A new broker knows nobody yet. */
    for (size_t i = 0; i < s->count; i++) {
        s->children[i].known = 0.0;
    }
}

/* ---- all ---- */

static void on_stop(void *user, bool again)
{
    serving *s = user;
    if (again) {
        for (size_t i = 0; i < s->count; i++) {
            if (s->children[i].running) {
                (void)uv_process_kill(&s->children[i].process, SIGKILL);
            }
        }
    }
    end_all(s);
}

by_status by_serve_run(const by_serve_options *options, by_error *error)
{
    serving s = {
        .options = *options, .log = {options->log, options->user}, .count = 2 + options->workers};
    by__stop *stop = NULL;
    BY_TRY(by__link_check(options->address, error));
    BY_TRY(by__alloc((void **)&s.children, s.count, sizeof *s.children, "processes", error));
    int code = uv_pipe(s.lifeline, 0, 0);
    if (code < 0) {
        free(s.children);
        return by__uv_error(error, "make", "a pipe", code);
    }
    code = uv_loop_init(&s.loop);
    if (code < 0) {
        (void)close(s.lifeline[0]);
        (void)close(s.lifeline[1]);
        free(s.children);
        return by__uv_error(error, "make", "an event loop", code);
    }
    by_status status = by__stop_open(&stop, &s.loop, false, on_stop, &s, error);
    for (size_t i = 0; i < s.count; i++) {
        child *c = &s.children[i];
        c->all = &s;
        c->role = i == 0 ? "broker" : i == 1 ? "gateway" : "worker";
        c->command = i == 0 ? options->broker : i == 1 ? options->gateway : options->worker;
        c->wanted = c->command != NULL;
        (void)uv_timer_init(&s.loop, &c->timer);
        c->timer.data = c;
    }
    for (size_t i = 0; i < s.count && status == BY_OK && !s.ending; i++) {
        if (s.children[i].wanted) {
            start(&s.children[i]);
        }
    }
    if (status == BY_OK) {
        by__broker_link_handler handler = {
            .greet = on_greet, .ready = on_ready, .message = on_message, .user = &s};
        by__broker_link_open(&s.broker, &s.loop, s.options.address, &handler);
        (void)uv_run(&s.loop, UV_RUN_DEFAULT);
        if (s.failure.status != BY_OK) {
            *error = s.failure;
            status = s.failure.status;
        }
    }
    if (s.broker.loop != NULL) {
        by__broker_link_close(&s.broker);
    }
    by__stop_close(&stop);
    for (size_t i = 0; i < s.count; i++) {
        uv_close((uv_handle_t *)&s.children[i].timer, NULL);
    }
    (void)uv_run(&s.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&s.loop);
    (void)close(s.lifeline[0]);
    (void)close(s.lifeline[1]);
    free(s.children);
    return status;
}
