#include "gateway_run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void on_ready(void *user, const char *url)
{
    gateway_run *run = user;
    pthread_mutex_lock(&run->lock);
    run->port = atoi(strrchr(url, ':') + 1);
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

static void on_log(void *user, const char *line)
{
    gateway_run *run = user;
    size_t length = strlen(line);
    pthread_mutex_lock(&run->lock);
    char *grown = realloc(run->log, run->log_length + length + 2);
    if (grown != NULL) {
        memcpy(grown + run->log_length, line, length);
        memcpy(grown + run->log_length + length, "\n", 2);
        run->log = grown;
        run->log_length += length + 1;
    }
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

static void *run_gateway(void *user)
{
    gateway_run *run = user;
    run->status = by_gateway_run(&run->options, &run->error);
    pthread_mutex_lock(&run->lock);
    run->ended = true;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    return NULL;
}

void gateway_begin(gateway_run *run, const by_gateway_options *options)
{
    *run = (gateway_run){.options = *options};
    run->options.listen = "127.0.0.1:0";
    run->options.open = true; /* it is a thread of the test */
    run->options.broker = "/nonexistent/broker.socket";
    run->options.log = on_log;
    run->options.ready = on_ready;
    run->options.user = run;
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->changed, NULL);
    pthread_create(&run->thread, NULL, run_gateway, run);
    pthread_mutex_lock(&run->lock);
    while (run->port == 0 && !run->ended) {
        pthread_cond_wait(&run->changed, &run->lock);
    }
    pthread_mutex_unlock(&run->lock);
}

void gateway_end(gateway_run *run)
{
    if (!run->ended) {
        kill(getpid(), SIGTERM);
    }
    pthread_join(run->thread, NULL);
    pthread_mutex_destroy(&run->lock);
    pthread_cond_destroy(&run->changed);
    free(run->log);
}

bool gateway_logs(gateway_run *run, const char *text)
{
    struct timespec until;
    int code = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 600;
    pthread_mutex_lock(&run->lock);
    while ((run->log == NULL || strstr(run->log, text) == NULL) && code == 0) {
        code = pthread_cond_timedwait(&run->changed, &run->lock, &until);
    }
    bool found = run->log != NULL && strstr(run->log, text) != NULL;
    pthread_mutex_unlock(&run->lock);
    return found;
}

int gateway_connect(const gateway_run *run)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)run->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval wait = {.tv_sec = 600};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool gateway_send(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t n = send(fd, data, length, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        data += n > 0 ? n : 0;
        length -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

size_t gateway_read(int fd, char *out, size_t size)
{
    size_t length = 0;
    while (length + 1 < size) {
        ssize_t n = recv(fd, out + length, size - 1 - length, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        length += (size_t)n;
    }
    out[length] = '\0';
    return length;
}

int gateway_ask(const gateway_run *run, const char *request, size_t length, char *out, size_t size)
{
    int fd = gateway_connect(run);
    if (fd < 0) {
        return -1;
    }
    (void)gateway_send(fd, request, length);
    (void)gateway_read(fd, out, size);
    close(fd);
    return strncmp(out, "HTTP/1.1 ", 9) == 0 ? atoi(out + 9) : 0;
}
