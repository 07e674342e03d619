/* The supervisor's connections: a TCP port that the ranks of a job connect to, and the state of
 * each rank.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/supervisor.h"

/* Limits on connections that have not identified themselves. */
#define UNIDENTIFIED_MAX     64
#define UNIDENTIFIED_SECONDS 10.0
/* Seconds without a beat after which it is more than late. */
#define LATE_BEATS 2.0

struct by__launch_connection {
    int fd;
    int rank; /* -1: no hello yet */
    double since;
    size_t used;
    char buffer[BY__MESSAGE_LINE];
};

/* ---- opening ---- */

static void make_token(char out[BY__TOKEN])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        memset(bytes, 0, sizeof bytes);
    }
    for (size_t i = 0; i < sizeof bytes; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

by_status by__launch_watch_open(by__launch_watch *w, bool loopback, double silence, double grace,
                                by_error *error)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY)};
    socklen_t size = sizeof address;
    *w = (by__launch_watch){.listener = -1, .saved = -1};
    make_token(w->contact.token);
    w->contact.silence_ms = (int)(1e3 * silence);
    w->contact.grace_ms = (int)(1e3 * grace);
    w->contact.address_count = by__launch_own_addresses(w->contact.addresses, loopback);
    w->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (w->contact.address_count == 0 || w->listener < 0 ||
        bind(w->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(w->listener, 1024) != 0 ||
        getsockname(w->listener, (struct sockaddr *)&address, &size) != 0) {
        by_status status = by_error_set(
            error, BY_EIO, "the supervisor cannot listen for its ranks: %s",
            w->contact.address_count == 0 ? "this host has no IPv4 address" : strerror(errno));
        by__launch_watch_close(w);
        return status;
    }
    w->contact.port = ntohs(address.sin_port);
    return BY_OK;
}

static void drop(by__launch_watch *w, size_t i)
{
    (void)close(w->connections[i].fd);
    w->connections[i] = w->connections[--w->connection_count];
}

static void drop_all(by__launch_watch *w)
{
    while (w->connection_count > 0) {
        drop(w, w->connection_count - 1);
    }
}

void by__launch_watch_close(by__launch_watch *w)
{
    drop_all(w);
    if (w->listener >= 0) {
        (void)close(w->listener);
    }
    free(w->ranks);
    free(w->connections);
    w->listener = -1;
    w->ranks = NULL;
    w->connections = NULL;
}

by_status by__launch_watch_reset(by__launch_watch *w, int ranks, by_error *error)
{
    drop_all(w);
    free(w->ranks);
    free(w->connections);
    w->ranks = NULL;
    w->connections = NULL;
    BY_TRY(by__alloc((void **)&w->ranks, (size_t)ranks, sizeof *w->ranks, "ranks", error));
    BY_TRY(by__alloc((void **)&w->connections, (size_t)ranks + UNIDENTIFIED_MAX,
                     sizeof *w->connections, "connections of ranks", error));
    w->count = ranks;
    w->fault = (by__launch_fault){.rank = -1};
    w->saved = -1;
    w->stopping = false;
    w->began = by__now();
    /* Ranks of an earlier start that are still running are not recognized any more. */
    make_token(w->contact.token);
    return BY_OK;
}

/* ---- faults ---- */

/* Formats "step 12, gradients; last collective: all-reduce ...". */
static const char *describe(char *out, size_t size, const by__launch_rank *r)
{
    int n = snprintf(out, size, "step %" PRId64 ", %s", r->step, r->phase);
    if (n > 0 && (size_t)n < size && r->text[0] != '\0') {
        (void)snprintf(out + n, size - (size_t)n, "; last collective: %s", r->text);
    }
    return out;
}

/* Only the first fault counts; later ones are its consequences. */
static void set_fault(by__launch_watch *w, int code, int rank, const char *what)
{
    char state[640];
    by__launch_fault *f = &w->fault;
    if (f->code != 0) {
        return;
    }
    const by__launch_rank *r = &w->ranks[rank];
    f->code = code;
    f->rank = rank;
    (void)snprintf(f->host, sizeof f->host, "%s", r->host);
    (void)snprintf(f->text, sizeof f->text, "rank %d (host %s) %s: %s", rank,
                   r->host[0] == '\0' ? "?" : r->host, what, describe(state, sizeof state, r));
}

/* When a link is cut, mpirun ends the ranks that it still reaches: the fault is the silent one. */
static void connection_lost(by__launch_watch *w, int rank)
{
    char what[128];
    double now = by__now();
    int silent = rank;
    double longest = LATE_BEATS;
    if (w->ranks[rank].state != BY__RANK_RUNNING) {
        return;
    }
    w->ranks[rank].state = BY__RANK_LOST;
    for (int i = 0; i < w->count; i++) {
        const by__launch_rank *r = &w->ranks[i];
        if (r->state == BY__RANK_RUNNING && now - r->last_message_at > longest) {
            silent = i;
            longest = now - r->last_message_at;
        }
    }
    if (silent == rank) {
        set_fault(w, BY__CRASH, rank, "ended without saying why");
    } else {
        (void)snprintf(what, sizeof what, "was not heard of for %.0f s, then rank %d ended",
                       longest, rank);
        set_fault(w, BY__CRASH, silent, what);
    }
}

static void end_rank(by__launch_watch *w, int rank, const by__launch_message *m)
{
    by__launch_rank *r = &w->ranks[rank];
    r->state = BY__RANK_ENDED;
    r->code = m->code;
    /* A rank that fails because of another one reports that; the other one is the fault. */
    if (m->code != BY_EXIT_DONE && m->code != BY_EXIT_SAVED && m->code != BY_EXIT_PEER &&
        w->fault.code == 0) {
        w->fault.code = m->code;
        w->fault.malformed = m->malformed;
        w->fault.rank = rank;
        (void)snprintf(w->fault.host, sizeof w->fault.host, "%s", r->host);
        (void)snprintf(w->fault.text, sizeof w->fault.text,
                       "rank %d (host %s) ended with %d (%s)%s%s", rank, r->host, m->code,
                       by_exit_name(m->code), m->text[0] == '\0' ? "" : ": ", m->text);
    }
    (void)snprintf(r->text, sizeof r->text, "%s", m->text);
}

/* ---- receiving ---- */

/* Returns false if the sender is not a rank of this start. */
static bool read_hello(by__launch_watch *w, by__launch_connection *c, const by__launch_message *m)
{
    if (m->kind != BY__MESSAGE_HELLO || strcmp(m->token, w->contact.token) != 0 ||
        m->ranks != w->count || w->ranks[m->rank].state != BY__RANK_ABSENT) {
        return false;
    }
    by__launch_rank *r = &w->ranks[m->rank];
    c->rank = m->rank;
    *r = (by__launch_rank){.state = BY__RANK_RUNNING, .pid = m->pid};
    memcpy(r->host, m->host, sizeof r->host);
    (void)snprintf(r->phase, sizeof r->phase, "start");
    r->advanced = by__now();
    return true;
}

static void read_beat(by__launch_rank *r, const by__launch_message *m)
{
    if (m->count != r->count) {
        r->advanced = by__now();
    }
    r->count = m->count;
    r->number = m->number;
    r->step = m->step;
    r->stopping = m->stopping;
    memcpy(r->phase, m->phase, sizeof r->phase);
    memcpy(r->text, m->text, sizeof r->text);
}

static bool handle_message(by__launch_watch *w, by__launch_connection *c, const char *line,
                           size_t length)
{
    by__launch_message m;
    if (!by__launch_message_parse(&m, line, length) || (c->rank < 0 && !read_hello(w, c, &m))) {
        return false;
    }
    by__launch_rank *r = &w->ranks[c->rank];
    r->last_message_at = by__now();
    switch (m.kind) {
    case BY__MESSAGE_HELLO:
        break;
    case BY__MESSAGE_BEAT:
        read_beat(r, &m);
        break;
    case BY__MESSAGE_RUN:
        memcpy(w->run, m.path, sizeof w->run);
        return true;
    case BY__MESSAGE_SAVED:
        w->saved = m.step > w->saved ? m.step : w->saved;
        return true;
    case BY__MESSAGE_END:
        end_rank(w, c->rank, &m);
        return true;
    }
    const char *answer = w->stopping && m.kind == BY__MESSAGE_BEAT ? "stop\n" : "ok\n";
    /* If the buffer of a stopped rank is full, its answer is dropped. */
    return send(c->fd, answer, strlen(answer), MSG_NOSIGNAL | MSG_DONTWAIT) > 0 || errno == EAGAIN;
}

/* Returns false if the connection must be closed. */
static bool read_from(by__launch_watch *w, by__launch_connection *c)
{
    ssize_t n = recv(c->fd, c->buffer + c->used, sizeof c->buffer - c->used, MSG_DONTWAIT);
    if (n <= 0) {
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    }
    c->used += (size_t)n;
    for (char *end; (end = memchr(c->buffer, '\n', c->used)) != NULL;) {
        size_t length = (size_t)(end - c->buffer);
        if (!handle_message(w, c, c->buffer, length)) {
            return false;
        }
        c->used -= length + 1;
        memmove(c->buffer, end + 1, c->used);
    }
    return c->used < sizeof c->buffer;
}

static void accept_all(by__launch_watch *w)
{
    for (int fd; (fd = accept4(w->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        if (w->connection_count == (size_t)w->count + UNIDENTIFIED_MAX) {
            (void)close(fd);
            continue;
        }
        by__launch_connection *c = &w->connections[w->connection_count++];
        c->fd = fd;
        c->rank = -1;
        c->used = 0;
        c->since = by__now();
    }
}

void by__launch_watch_receive(by__launch_watch *w, double seconds)
{
    struct pollfd *wait;
    size_t count = w->connection_count;
    if (by__alloc((void **)&wait, count + 1, sizeof *wait, "poll", NULL) != BY_OK) {
        return;
    }
    wait[count] = (struct pollfd){.fd = w->listener, .events = POLLIN};
    for (size_t i = 0; i < count; i++) {
        wait[i] = (struct pollfd){.fd = w->connections[i].fd, .events = POLLIN};
    }
    if (poll(wait, count + 1, (int)(1e3 * seconds)) > 0) {
        /* backwards, because the last one takes a dropped one's place */
        for (size_t i = count; i-- > 0;) {
            by__launch_connection *c = &w->connections[i];
            if (wait[i].revents != 0 && !read_from(w, c)) {
                if (c->rank >= 0) {
                    connection_lost(w, c->rank);
                }
                drop(w, i);
            }
        }
        if (wait[count].revents != 0) {
            accept_all(w);
        }
    }
    for (size_t i = w->connection_count; i-- > 0;) {
        if (w->connections[i].rank < 0 &&
            by__now() - w->connections[i].since > UNIDENTIFIED_SECONDS) {
            drop(w, i);
        }
    }
    free(wait);
}

void by__launch_watch_stop(by__launch_watch *w)
{
    w->stopping = true;
    for (size_t i = 0; i < w->connection_count; i++) {
        if (w->connections[i].rank >= 0) {
            (void)!send(w->connections[i].fd, "stop\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
}

int by__launch_watch_number(const by__launch_watch *w, by__launch_rank_state state)
{
    int number = 0;
    for (int i = 0; i < w->count; i++) {
        number += w->ranks[i].state == state ? 1 : 0;
    }
    return number;
}

int by__launch_watch_peer(const by__launch_watch *w)
{
    for (int i = 0; i < w->count; i++) {
        if (w->ranks[i].state == BY__RANK_ENDED && w->ranks[i].code == BY_EXIT_PEER) {
            return i;
        }
    }
    return -1;
}

/* ---- detection of stuck ranks ---- */

/* Of the ranks without progress, finds the one that the others wait for: it has entered the fewest
 * collectives; ties go to the one that stopped first. */
static int find_stuck(const by__launch_watch *w, double now, double timeout)
{
    int found = -1;
    for (int i = 0; i < w->count; i++) {
        const by__launch_rank *r = &w->ranks[i];
        if (r->state == BY__RANK_RUNNING && now - r->advanced <= timeout) {
            return -1; /* another rank still makes progress, so no rank is stuck yet */
        }
        if (r->state == BY__RANK_RUNNING &&
            (found < 0 || r->number < w->ranks[found].number ||
             (r->number == w->ranks[found].number && r->advanced < w->ranks[found].advanced))) {
            found = i;
        }
    }
    return found;
}

void by__launch_watch_check(by__launch_watch *w, double now, double timeout, double silence)
{
    char what[128];
    for (int i = 0; i < w->count && w->fault.code == 0; i++) {
        const by__launch_rank *r = &w->ranks[i];
        if (r->state == BY__RANK_RUNNING && now - r->last_message_at > silence) {
            (void)snprintf(what, sizeof what, "was not heard of for %.0f s",
                           now - r->last_message_at);
            set_fault(w, BY_EXIT_HANG, i, what);
        } else if (r->state == BY__RANK_ABSENT && now - w->began > timeout) {
            (void)snprintf(what, sizeof what, "did not start within %.0f s", timeout);
            set_fault(w, BY_EXIT_HANG, i, what);
        }
    }
    int stuck = w->fault.code == 0 ? find_stuck(w, now, timeout) : -1;
    if (stuck >= 0) {
        (void)snprintf(what, sizeof what, "has made no progress for %.0f s",
                       now - w->ranks[stuck].advanced);
        set_fault(w, BY_EXIT_HANG, stuck, what);
    }
}

void by__launch_watch_give_up(by__launch_watch *w)
{
    int stuck = w->fault.code == 0 ? find_stuck(w, HUGE_VAL, 0.0) : -1;
    if (stuck >= 0) {
        set_fault(w, BY_EXIT_HANG, stuck, "did not end");
    }
}
