/* MLflow over REST (src/track/mlflow_client.h). The training thread only signals that there is
 * something new; the sink's own thread reads events.jsonl and sends it, about once a second. While
 * the server is unreachable it retries after 1, 2, 4, ... 60 seconds without using more memory. At
 * the end of a run it has 1 to 5 seconds to finish, as long as the run took; `banyan runs sync`
 * sends the rest. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "track/mlflow_client.h"
#include "track/sinks/sink.h"

enum { longest_delay = 60 };

typedef struct sender {
    by__mlflow *mlflow;
    by__mlflow_options options;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t change;
    bool is_new;    /* there may be something to send */
    bool is_ending; /* make one more attempt, then send how the run ended */
    bool is_done;
    bool is_failing;
    by_error problem;
    double began;
    atomic_bool stop; /* also aborts a request in progress */
} sender;

static bool is_stopped(void *user)
{
    sender *s = user;
    return atomic_load(&s->stop);
}

static by_status send_all(sender *s, bool is_ending, by_error *error)
{
    bool more = true;
    while (more && !atomic_load(&s->stop)) {
        BY_TRY(by__mlflow_send(s->mlflow, &more, error));
    }
    return is_ending && !more ? by__mlflow_end(s->mlflow, error) : BY_OK;
}

/* Waits for a change, for at most this many seconds. The caller holds the lock. */
static void wait(sender *s, double seconds)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    double nanoseconds = (double)until.tv_nsec + 1e9 * fmin(fmax(seconds, 0.001), 10);
    until.tv_sec += (time_t)(nanoseconds / 1e9);
    until.tv_nsec = (long)fmod(nanoseconds, 1e9);
    (void)pthread_cond_timedwait(&s->change, &s->lock, &until);
}

static bool is_urgent(sender *s)
{
    return s->is_ending || atomic_load(&s->stop);
}

/* Waits for this many seconds regardless of events, unless the run ends. The caller holds the
 * lock. */
static void let_pass(sender *s, int seconds)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    while (!is_urgent(s) && pthread_cond_timedwait(&s->change, &s->lock, &until) != ETIMEDOUT) {
    }
}

static void *run(void *user)
{
    sender *s = user;
    int delay = 1;
    (void)pthread_mutex_lock(&s->lock);
    while (!atomic_load(&s->stop) && !s->is_done) {
        if (!s->is_new && !s->is_ending) {
            (void)pthread_cond_wait(&s->change, &s->lock);
            continue;
        }
        by_error problem = {0};
        bool is_ending = s->is_ending;
        s->is_new = false;
        (void)pthread_mutex_unlock(&s->lock);
        by_status status = send_all(s, is_ending, &problem);
        (void)pthread_mutex_lock(&s->lock);
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
    (void)pthread_cond_broadcast(&s->change);
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

static by_status start(sender *s, by_error *error)
{
    sigset_t all;
    sigset_t before;
    pthread_condattr_t monotonic; /* so that adjusting the clock does not affect waits */
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->change, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)sigfillset(&all); /* signals are handled by the program's own threads */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&s->thread, NULL, run, s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->has_thread = failure == 0;
    return failure == 0 ? BY_OK
                        : by_error_set(error, BY_EMEMORY,
                                       "cannot start the thread that sends to "
                                       "the mlflow server");
}

static by_status open_sink(void **sink, const by__tracker_options *options, by_error *error)
{
    sender *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "mlflow", error));
    *sink = s;
    s->began = by__now();
    s->options = (by__mlflow_options){.run = options->run,
                                      .server = options->mlflow,
                                      .project = options->project,
                                      .stop = is_stopped,
                                      .user = s};
    BY_TRY(by__mlflow_open(&s->mlflow, &s->options, error));
    return start(s, error);
}

/* Every event is in events.jsonl already, so only wake the sender. */
static by_status put(void *sink, const by__run_event *event, by_error *error)
{
    sender *s = sink;
    BY_UNUSED(event);
    (void)pthread_mutex_lock(&s->lock);
    s->is_new = true;
    by_status status =
        s->is_failing ? by_error_set(error, s->problem.status, "%s", s->problem.message) : BY_OK;
    (void)pthread_cond_broadcast(&s->change);
    (void)pthread_mutex_unlock(&s->lock);
    return status;
}

static void join(sender *s)
{
    if (s->has_thread) {
        atomic_store(&s->stop, true);
        (void)pthread_mutex_lock(&s->lock);
        (void)pthread_cond_broadcast(&s->change);
        (void)pthread_mutex_unlock(&s->lock);
        (void)pthread_join(s->thread, NULL);
        s->has_thread = false;
    }
}

static by_status flush(void *sink, by_error *error)
{
    sender *s = sink;
    double began = by__now();
    (void)pthread_mutex_lock(&s->lock);
    s->is_ending = true;
    (void)pthread_cond_broadcast(&s->change);
    double patience = by__mlflow_patience(began - s->began);
    for (double left; !s->is_done && (left = patience - (by__now() - began)) > 0;) {
        wait(s, left);
    }
    bool is_sent = s->is_done && !s->is_failing;
    (void)pthread_mutex_unlock(&s->lock);
    join(s);
    if (is_sent) {
        return BY_OK;
    }
    char text[32];
    return by_error_set(error, BY_EIO,
                        "%s of events were not sent to %s (%.200s); send them with: banyan runs "
                        "sync %s",
                        by_format_bytes(text, by__mlflow_waiting(s->mlflow)), s->options.server,
                        s->problem.message[0] != '\0' ? s->problem.message : "it is slow",
                        s->options.run);
}

static void close_sink(void *sink)
{
    sender *s = sink;
    if (s == NULL) {
        return;
    }
    bool was_started = s->has_thread || atomic_load(&s->stop);
    join(s);
    if (was_started) {
        (void)pthread_cond_destroy(&s->change);
        (void)pthread_mutex_destroy(&s->lock);
    }
    by__mlflow_close(&s->mlflow);
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
