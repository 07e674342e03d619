#include "serve/link/core/dialer.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/base/kept_environment.h"
#include "serve/link/core/redis_address.h"

struct by__link_dialer {
    uv_mutex_t lock;
    int fd;
};

/* ---- the process ---- */

/* Copies of the worker's files would keep locks when the worker has ended. */
static void close_others(int kept)
{
    by__serve_close_files(kept);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(nothing, STDOUT_FILENO);
    (void)close(nothing);
}

/* Connects to the socket and binds the connection. Returns it, or an error of libuv. */
static int connect_bound(const char *path, const char *frame, size_t length)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        return UV_ENAMETOOLONG;
    }
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        write(fd, frame, length) == (ssize_t)length) {
        return fd;
    }
    int code = uv_translate_sys_error(errno);
    if (fd >= 0) {
        (void)close(fd);
    }
    return code == 0 ? UV_EIO : code;
}

/* Looks up the address, and the password, which may have changed in its file. */
static void find_redis(by__link_dialled *out, const char *broker)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    by__link_redis_address address;
    uv_loop_t loop;
    uv_getaddrinfo_t request;
    by_error error = {0};
    if (by__link_redis_address_read(&address, broker, &error) != BY_OK ||
        by__link_redis_address_login(&address, by__link_redis_broker_login, &error) != BY_OK) {
        out->code = UV_EINVAL;
        (void)snprintf(out->why, sizeof out->why, "%.255s", error.message);
        return;
    }
    memcpy(out->password, address.password, sizeof out->password);
    out->code = uv_loop_init(&loop);
    if (out->code < 0) {
        return;
    }
    out->code = uv_getaddrinfo(&loop, &request, NULL, address.host, NULL, &hints);
    if (out->code == 0) {
        memcpy(&out->address, request.addrinfo->ai_addr, request.addrinfo->ai_addrlen);
        uv_freeaddrinfo(request.addrinfo);
    }
    (void)uv_loop_close(&loop);
}

/* Answers one question. Returns false if the worker is gone. */
static bool answer(int to, const char *broker, const char *frame, size_t length)
{
    by__link_dialled found = {0};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {&found, sizeof found};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int fd = -1;
    if (by__link_redis_is_address(broker)) {
        find_redis(&found, broker);
    } else {
        fd = connect_bound(broker, frame, length);
        found.code = fd < 0 ? fd : 0;
    }
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    bool sent = sendmsg(to, &message, MSG_NOSIGNAL) == (ssize_t)sizeof found;
    explicit_bzero(found.password, sizeof found.password);
    if (fd >= 0) {
        (void)close(fd);
    }
    return sent;
}

static _Noreturn void serve_dials(int fd, const char *broker, const char *frame, size_t length)
{
    /* A signal for the worker's group, or its service, is the worker's: it finishes first. */
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ignored); i++) {
        (void)signal(ignored[i], SIG_IGN);
    }
    (void)prctl(PR_SET_NAME, "banyan-dialer", 0, 0, 0);
    close_others(fd);
    char question;
    ssize_t n;
    do {
        n = recv(fd, &question, 1, 0);
    } while ((n < 0 && errno == EINTR) || (n == 1 && answer(fd, broker, frame, length)));
    _exit(0);
}

/* ---- the worker's side ---- */

/* The message by which the broker knows whose connection this is. */
static char *bound_frame(size_t *length, const char *model)
{
    json_t *message = json_pack("{ss ss}", "t", "bound", "model", model);
    size_t n = message == NULL ? 0 : json_dumpb(message, NULL, 0, JSON_COMPACT);
    char *frame = n == 0 ? NULL : malloc(4 + n);
    if (frame != NULL) {
        for (unsigned i = 0; i < 4; i++) {
            frame[i] = (char)(unsigned char)(n >> (8 * i));
        }
        (void)json_dumpb(message, frame + 4, n, JSON_COMPACT);
    }
    json_decref(message);
    *length = 4 + n;
    return frame;
}

by_status by__link_dialer_open(by__link_dialer **out, const char *broker, const char *model,
                               by_error *error)
{
    by__link_dialer *d = NULL;
    int pair[2] = {-1, -1};
    size_t length;
    char *frame = bound_frame(&length, model);
    by_status status = frame == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a dialer")
                                     : by__alloc((void **)&d, 1, sizeof *d, "a dialer", error);
    int code = status == BY_OK ? uv_mutex_init(&d->lock) : 0;
    if (status != BY_OK || code < 0) {
        free(frame);
        free(d);
        return status != BY_OK ? status : by__serve_uv_error(error, "start", "a dialer", code);
    }
    pid_t child = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        child = fork();
    }
    if (child == 0) {
        serve_dials(pair[1], broker, frame, length);
    }
    code = child < 0 ? uv_translate_sys_error(errno) : 0;
    free(frame);
    if (pair[1] >= 0) {
        (void)close(pair[1]);
    }
    d->fd = pair[0];
    if (child < 0) {
        by__link_dialer_close(&d);
        return by__serve_uv_error(error, "start", "a dialer", code);
    }
    *out = d;
    return BY_OK;
}

static ssize_t receive(int from, by__link_dialled *out, int *fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {out, sizeof *out};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n;
    do {
        n = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (c != NULL && c->cmsg_type == SCM_RIGHTS) {
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    }
    return n;
}

by_status by__link_dial(by__link_dialer *dialer, by__link_dialled *out, int *fd, by_error *error)
{
    ssize_t n;
    *fd = -1;
    uv_mutex_lock(&dialer->lock);
    do {
        n = send(dialer->fd, "?", 1, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    n = n == 1 ? receive(dialer->fd, out, fd) : -1;
    uv_mutex_unlock(&dialer->lock);
    if (n != (ssize_t)sizeof *out) {
        return by_error_set(error, BY_ESTATE,
                            "the process that connects this worker to its broker has ended");
    }
    return BY_OK;
}

void by__link_dialer_close(by__link_dialer **dialer)
{
    by__link_dialer *d = *dialer;
    *dialer = NULL;
    if (d != NULL) {
        if (d->fd >= 0) {
            (void)close(d->fd);
        }
        uv_mutex_destroy(&d->lock);
        free(d);
    }
}
