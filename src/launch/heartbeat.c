/* The heartbeat of a rank: a thread that reports the rank's progress to the supervisor several
 * times a minute, and receives requests to stop. The thread runs while the rank computes, so a
 * silent rank is one whose process or host has stopped. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/worker_thread.h"
#include "launch/supervisor.h"

#define CONNECT_MS      5000
#define MAX_BEAT_MS     250
#define BEATS_A_SILENCE 4

struct by_heartbeat {
    by_heartbeat_options options;
    by__launch_contact contact;
    int fd;
    pthread_t thread;
    pthread_mutex_t sending; /* one message at a time */
    pthread_mutex_t lock;    /* protects the following members */
    by__launch_message beat;
    void (*last)(void *user, uint64_t *number, char *text, size_t size);
    void *last_user;
    atomic_bool closing;
    atomic_bool stop;
    int wake[2]; /* a byte written to [1] wakes the thread */
};

/* Sends all bytes within `ms`; returns false if the connection is gone. */
static bool send_all(int fd, const char *data, size_t length, int ms)
{
    while (length > 0) {
        ssize_t n = send(fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            data += n;
            length -= (size_t)n;
            continue;
        }
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        if (errno == EINTR) {
            continue;
        }
        if (errno != EAGAIN || poll(&wait, 1, ms) <= 0) {
            return false;
        }
    }
    return true;
}

static bool send_message(by_heartbeat *h, const by__launch_message *message)
{
    char line[BY__MESSAGE_LINE];
    size_t length = by__launch_message_format(line, message);
    (void)pthread_mutex_lock(&h->sending);
    bool sent = send_all(h->fd, line, length, h->contact.silence_ms);
    (void)pthread_mutex_unlock(&h->sending);
    return sent;
}

/* ---- opening ---- */

static bool connect_within(int fd, const struct sockaddr_in *address, int ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int problem = 0;
    socklen_t size = sizeof problem;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0) {
        return true;
    }
    return errno == EINPROGRESS && poll(&wait, 1, ms) == 1 &&
           getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 && problem == 0;
}

/* Sends hello to an address; only the supervisor answers with the expected line. */
static bool try_address(by_heartbeat *h, const char *text, const by__launch_message *hello)
{
    char answer[8];
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)h->contact.port)};
    int on = 1;
    h->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (h->fd < 0 || inet_pton(AF_INET, text, &address.sin_addr) != 1) {
        return false;
    }
    struct pollfd wait = {.fd = h->fd, .events = POLLIN};
    (void)setsockopt(h->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connect_within(h->fd, &address, CONNECT_MS) && send_message(h, hello) &&
           poll(&wait, 1, CONNECT_MS) == 1 && recv(h->fd, answer, 3, 0) == 3 &&
           memcmp(answer, "ok\n", 3) == 0;
}

static by_status reach(by_heartbeat *h, by_error *error)
{
    by__launch_message hello = {.kind = BY__MESSAGE_HELLO,
                                .rank = h->options.rank,
                                .ranks = h->options.ranks,
                                .pid = (long)getpid()};
    memcpy(hello.token, h->contact.token, sizeof hello.token);
    (void)gethostname(hello.host, sizeof hello.host - 1);
    for (int i = 0; i < h->contact.address_count; i++) {
        if (try_address(h, h->contact.addresses[i], &hello)) {
            return BY_OK;
        }
        if (h->fd >= 0) {
            (void)close(h->fd);
            h->fd = -1;
        }
    }
    return by_error_set(error, BY_EPEER,
                        "rank %d on %s cannot reach its supervisor at %s%s port %d; is there a "
                        "network or a firewall between the hosts that --network should avoid?",
                        h->options.rank, hello.host, h->contact.addresses[0],
                        h->contact.address_count > 1 ? " (nor at its other addresses)" : "",
                        h->contact.port);
}

/* ---- the thread ---- */

static void read_last(by_heartbeat *h)
{
    if (h->last != NULL) {
        uint64_t number = h->beat.number;
        h->last(h->last_user, &number, h->beat.text, sizeof h->beat.text);
        h->beat.count += number != h->beat.number ? 1 : 0;
        h->beat.number = number;
    }
}

static bool send_beat(by_heartbeat *h)
{
    (void)pthread_mutex_lock(&h->lock);
    read_last(h);
    by__launch_message beat = h->beat;
    (void)pthread_mutex_unlock(&h->lock);
    return send_message(h, &beat);
}

/* Reads answers: "ok\n" for a beat, "stop\n". Returns false if the supervisor is gone. */
static bool read_answers(by_heartbeat *h, bool *answered)
{
    char text[64];
    ssize_t n = recv(h->fd, text, sizeof text, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        return false;
    }
    *answered = n > 0;
    if (n > 0 && memchr(text, 's', (size_t)n) != NULL) {
        atomic_store(&h->stop, true);
    }
    return true;
}

/* Waits for input or for `ms`; returns true if this rank has something to report. */
static bool wait_for(by_heartbeat *h, int ms)
{
    struct pollfd wait[2] = {{.fd = h->fd, .events = POLLIN}, {.fd = h->wake[0], .events = POLLIN}};
    char bytes[16];
    return poll(wait, 2, ms) > 0 && (wait[1].revents & POLLIN) != 0 &&
           read(h->wake[0], bytes, sizeof bytes) > 0;
}

static int beat_ms(const by_heartbeat *h)
{
    int ms = h->contact.silence_ms / BEATS_A_SILENCE;
    return ms > MAX_BEAT_MS ? MAX_BEAT_MS : ms;
}

/* Sends beats until the rank closes; returns false if the supervisor is gone. */
static bool beat(by_heartbeat *h)
{
    double answered_at = by__now();
    double sent_at = 0.0;
    double interval = 1e-3 * beat_ms(h);
    while (!atomic_load(&h->closing)) {
        double now = by__now();
        bool answered;
        if (now - sent_at >= interval) {
            sent_at = now;
            if (!send_beat(h)) {
                return false;
            }
        }
        double left = sent_at + interval - by__now();
        if (wait_for(h, left <= 0.0 ? 0 : 1 + (int)(1e3 * left))) {
            sent_at = 0.0;
        }
        if (!read_answers(h, &answered)) {
            return false;
        }
        answered_at = answered ? by__now() : answered_at;
        if (by__now() - answered_at > 1e-3 * h->contact.silence_ms) {
            return false;
        }
    }
    return true;
}

/* If the supervisor is gone, the rank must save and end. If it is still running after the grace
 * time it is stuck, and this thread ends it, since nobody else would. */
static void *watch_supervisor(void *user)
{
    by_heartbeat *h = user;
    if (!beat(h)) {
        atomic_store(&h->stop, true);
        double end = by__now() + 1e-3 * h->contact.grace_ms;
        while (!atomic_load(&h->closing) && by__now() < end) {
            struct pollfd wait = {.fd = h->wake[0], .events = POLLIN};
            char bytes[16];
            if (poll(&wait, 1, 100) > 0) {
                (void)!read(h->wake[0], bytes, sizeof bytes);
            }
        }
        if (!atomic_load(&h->closing) && h->options.abandoned != NULL) {
            h->options.abandoned(h->options.user);
        }
    }
    return NULL;
}

static void release(by_heartbeat *h)
{
    if (h->fd >= 0) {
        (void)close(h->fd);
    }
    if (h->wake[0] >= 0) {
        (void)close(h->wake[0]);
        (void)close(h->wake[1]);
    }
    (void)pthread_mutex_destroy(&h->lock);
    (void)pthread_mutex_destroy(&h->sending);
    free(h);
}

by_status by_heartbeat_open(by_heartbeat **out, const by_heartbeat_options *options,
                            by_error *error)
{
    const char *text = getenv(BY__SUPERVISOR);
    by_heartbeat *h;
    *out = NULL;
    if (text == NULL || text[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&h, 1, sizeof *h, "a heartbeat", error));
    h->options = *options;
    h->fd = -1;
    h->beat = (by__launch_message){.kind = BY__MESSAGE_BEAT, .phase = "start"};
    (void)pthread_mutex_init(&h->lock, NULL);
    (void)pthread_mutex_init(&h->sending, NULL);
    by_status status = BY_OK;
    if (pipe(h->wake) != 0) {
        h->wake[0] = -1;
        status = by_error_set(error, BY_EIO, "cannot make a pipe: %s", strerror(errno));
    } else if (!by__launch_contact_parse(&h->contact, text)) {
        status = by_error_set(error, BY_ECONFIG, "the environment variable %s is damaged",
                              BY__SUPERVISOR);
    }
    if (status == BY_OK) {
        status = reach(h, error);
    }
    if (status == BY_OK) {
        status =
            by__thread_create(&h->thread, watch_supervisor, h, "the heartbeat's thread", error);
    }
    if (status != BY_OK) {
        release(h);
        return status;
    }
    *out = h;
    return BY_OK;
}

static void wake(by_heartbeat *h)
{
    (void)!write(h->wake[1], "", 1);
}

/* Waits until the supervisor has read everything and closed its side: closing a connection with
 * unread answers resets it, and unread data would be lost. */
static void await_close(by_heartbeat *h)
{
    char text[64];
    double end = by__now() + 1e-3 * CONNECT_MS;
    struct pollfd wait = {.fd = h->fd, .events = POLLIN};
    (void)shutdown(h->fd, SHUT_WR);
    while (by__now() < end && poll(&wait, 1, 100) >= 0) {
        ssize_t n = recv(h->fd, text, sizeof text, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            return;
        }
    }
}

void by_heartbeat_close(by_heartbeat **heartbeat, int code, const by_error *error)
{
    by_heartbeat *h = *heartbeat;
    if (h == NULL) {
        return;
    }
    by__launch_message end = {.kind = BY__MESSAGE_END,
                              .code = code,
                              .malformed = error != NULL && error->status == BY_EFORMAT};
    (void)snprintf(end.text, sizeof end.text, "%s", error == NULL ? "" : error->message);
    atomic_store(&h->closing, true);
    wake(h);
    (void)pthread_join(h->thread, NULL);
    (void)send_beat(h);
    (void)send_message(h, &end);
    await_close(h);
    release(h);
    *heartbeat = NULL;
}

/* ---- reports of the rank ---- */

void by_heartbeat_progress(by_heartbeat *h, int64_t step, const char *phase)
{
    if (h == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&h->lock);
    h->beat.count++;
    h->beat.step = step;
    (void)snprintf(h->beat.phase, sizeof h->beat.phase, "%s", phase);
    (void)pthread_mutex_unlock(&h->lock);
}

void by_heartbeat_watch(by_heartbeat *h,
                        void (*last)(void *user, uint64_t *number, char *text, size_t size),
                        void *user)
{
    if (h == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&h->lock);
    if (last == NULL) {
        read_last(h); /* checks a last time before closing */
    }
    h->last = last;
    h->last_user = user;
    (void)pthread_mutex_unlock(&h->lock);
}

void by_heartbeat_run(by_heartbeat *h, const char *watch_supervisor)
{
    if (h != NULL) {
        by__launch_message message = {.kind = BY__MESSAGE_RUN};
        (void)snprintf(message.path, sizeof message.path, "%s", watch_supervisor);
        (void)send_message(h, &message);
    }
}

void by_heartbeat_saved(by_heartbeat *h, int64_t step)
{
    if (h != NULL) {
        const by__launch_message message = {.kind = BY__MESSAGE_SAVED, .step = step};
        (void)send_message(h, &message);
    }
}

bool by_heartbeat_stop(const by_heartbeat *h)
{
    return h != NULL && atomic_load(&h->stop);
}

void by_heartbeat_stopping(by_heartbeat *h)
{
    if (h == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&h->lock);
    bool new = !h->beat.stopping;
    h->beat.stopping = true;
    h->beat.count += new ? 1 : 0;
    (void)pthread_mutex_unlock(&h->lock);
    if (new) {
        wake(h);
    }
}
