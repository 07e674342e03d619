/* MLflow over REST (src/track/mlflow_client.h). The training thread only signals that there is
 * something new; the sink's own thread reads events.jsonl and sends it, about once a second. While
 * the server is unreachable it retries after 1, 2, 4, ... 60 seconds without using more memory. At
 * the end of a run it has 1 to 5 seconds to finish, as long as the run took; `banyan runs sync`
 * sends the rest. */
#include <stdlib.h>

#include "base/worker_thread.h"
#include "track/mlflow_client.h"
#include "track/sinks/sink.h"

enum { longest_delay = 60 };

typedef struct sender {
    by__track_mlflow *mlflow;
    by__track_mlflow_options options;
    by__base_worker thread; /* its lock guards the fields below; `stop` also aborts a request */
    bool is_new;            /* there may be something to send */
    bool is_ending;         /* make one more attempt, then send how the run ended */
    bool is_done;
    bool is_failing;
    by_error problem;
    double began;
} sender;

static bool is_stopped(void *user)
{
    sender *s = user;
    by__base_worker_lock(&s->thread);
    bool stop = s->thread.stop;
    by__base_worker_unlock(&s->thread);
    return stop;
}

static by_status send_all(sender *s, bool is_ending, by_error *error)
{
    bool more = true;
    while (more && !is_stopped(s)) {
        BY_TRY(by__track_mlflow_send(s->mlflow, &more, error));
    }
    return is_ending && !more ? by__track_mlflow_end(s->mlflow, error) : BY_OK;
}

static bool is_urgent(sender *s)
{
    return s->is_ending || s->thread.stop;
}

/* Waits for this many seconds regardless of events, unless the run ends. The caller holds the
 * lock. */
static void let_pass(sender *s, int seconds)
{
    double end = by__now() + seconds;
    double left = seconds;
    while (!is_urgent(s) && left > 0.0) {
        (void)by__base_worker_wait_seconds(&s->thread, left);
        left = end - by__now();
    }
}

static void *sender_main(void *user)
{
    sender *s = user;
    int delay = 1;
    by__base_worker_lock(&s->thread);
    while (!s->thread.stop && !s->is_done) {
        if (!s->is_new && !s->is_ending) {
            by__base_worker_wait(&s->thread);
            continue;
        }
        by_error problem = {0};
        bool is_ending = s->is_ending;
        s->is_new = false;
        by__base_worker_unlock(&s->thread);
        by_status status = send_all(s, is_ending, &problem);
        by__base_worker_lock(&s->thread);
        s->is_failing = status != BY_OK;
        s->problem = problem;
        s->is_done = is_ending;
        delay = status == BY_OK ? 1 : delay;
        let_pass(s, delay);
        if (status != BY_OK) {
            s->is_new = true;
            delay = 2 * delay < longest_delay ? 2 * delay : longest_delay;
        }
    }
    s->is_done = true;
    by__base_worker_notify(&s->thread);
    by__base_worker_unlock(&s->thread);
    return NULL;
}

static by_status open_sink(void **sink, const by__track_tracker_options *options, by_error *error)
{
    sender *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "mlflow", error));
    *sink = s;
    s->began = by__now();
    s->options = (by__track_mlflow_options){.run = options->run,
                                            .server = options->mlflow,
                                            .project = options->project,
                                            .stop = is_stopped,
                                            .user = s};
    BY_TRY(by__track_mlflow_open(&s->mlflow, &s->options, error));
    return by__base_worker_start(&s->thread, sender_main, s,
                                 "the thread that sends to the mlflow server", error);
}

/* Every event is in events.jsonl already, so only wake the sender. */
static by_status put(void *sink, const by__track_run_event *event, by_error *error)
{
    sender *s = sink;
    BY_UNUSED(event);
    by__base_worker_lock(&s->thread);
    s->is_new = true;
    by_status status =
        s->is_failing ? by_error_set(error, s->problem.status, "%s", s->problem.message) : BY_OK;
    by__base_worker_notify(&s->thread);
    by__base_worker_unlock(&s->thread);
    return status;
}

static by_status flush(void *sink, by_error *error)
{
    sender *s = sink;
    double began = by__now();
    by__base_worker_lock(&s->thread);
    s->is_ending = true;
    by__base_worker_notify(&s->thread);
    double patience = by__track_mlflow_patience(began - s->began);
    for (double left; !s->is_done && (left = patience - (by__now() - began)) > 0;) {
        (void)by__base_worker_wait_seconds(&s->thread, left);
    }
    bool is_sent = s->is_done && !s->is_failing;
    by__base_worker_unlock(&s->thread);
    by__base_worker_stop(&s->thread);
    if (is_sent) {
        return BY_OK;
    }
    char text[32];
    return by_error_set(
        error, BY_EIO,
        "%s of events were not sent to %s (%.200s); send them with: banyan runs "
        "sync %s",
        by_format_bytes(text, by__track_mlflow_waiting(s->mlflow)), s->options.server,
        s->problem.message[0] != '\0' ? s->problem.message : "it is slow", s->options.run);
}

static void close_sink(void *sink)
{
    sender *s = sink;
    if (s == NULL) {
        return;
    }
    by__base_worker_close(&s->thread);
    by__track_mlflow_close(&s->mlflow);
    free(s);
}

const by__sink_row by__sink_mlflow = {
    .name = "mlflow",
    .kinds = 1u << BY__EVENT_BEGIN | 1u << BY__EVENT_STEP | 1u << BY__EVENT_EVALUATION |
             1u << BY__EVENT_LAYERS | 1u << BY__EVENT_SYSTEM | 1u << BY__EVENT_ALERT,
    .then = "training continues; what the server did not receive is sent later",
    .open = open_sink,
    .put = put,
    .flush = flush,
    .close = close_sink};
