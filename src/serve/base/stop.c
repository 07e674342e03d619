#include "serve/base/stop.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct by__serve_stop {
    uv_signal_t term;
    uv_signal_t interrupt;
    uv_pipe_t input;
    void (*stop)(void *user, bool again);
    void *user;
    struct sigaction pipe; /* the former handler */
    struct sigaction size;
    int handles;
    bool requested;
    bool child;
    char buffer[16];
};

static void on_signal(uv_signal_t *handle, int number)
{
    by__serve_stop *s = handle->data;
    bool again = s->requested;
    BY_UNUSED(number);
    s->requested = true;
    s->stop(s->user, again);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    by__serve_stop *s = handle->data;
    BY_UNUSED(suggested);
    *buffer = uv_buf_init(s->buffer, sizeof s->buffer);
}

static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    by__serve_stop *s = stream->data;
    BY_UNUSED(buffer);
    if (n < 0) {
        (void)uv_read_stop(stream);
        s->requested = true;
        s->stop(s->user, true);
    }
}

static void on_closed(uv_handle_t *handle)
{
    by__serve_stop *s = handle->data;
    if (--s->handles == 0) {
        free(s);
    }
}

by_status by__serve_stop_open(by__serve_stop **out, uv_loop_t *loop, bool child,
                              void (*stop)(void *user, bool again), void *user, by_error *error)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    BY_TRY(by__alloc((void **)out, 1, sizeof **out, "signals", error));
    by__serve_stop *s = *out;
    s->stop = stop;
    s->user = user;
    s->term.data = s->interrupt.data = s;
    (void)uv_signal_init(loop, &s->term);
    (void)uv_signal_init(loop, &s->interrupt);
    s->handles = 2;
    (void)sigaction(SIGPIPE, &ignore, &s->pipe);
    (void)sigaction(SIGXFSZ, &ignore, &s->size);
    int code = uv_signal_start(&s->term, on_signal, SIGTERM);
    code = code < 0 ? code : uv_signal_start(&s->interrupt, on_signal, SIGINT);
    /* They must not keep a loop running that has nothing else to do. */
    uv_unref((uv_handle_t *)&s->term);
    uv_unref((uv_handle_t *)&s->interrupt);
    if (code == 0 && child) {
        s->child = true;
        s->handles++;
        s->input.data = s;
        (void)uv_pipe_init(loop, &s->input, 0);
        uv_unref((uv_handle_t *)&s->input);
        code = uv_pipe_open(&s->input, STDIN_FILENO);
        code = code < 0 ? code : uv_read_start((uv_stream_t *)&s->input, on_alloc, on_input);
    }
    if (code < 0) {
        by__serve_stop_close(out);
        return by__serve_uv_error(error, "watch", "signals and standard input", code);
    }
    return BY_OK;
}

void by__serve_stop_close(by__serve_stop **stop)
{
    by__serve_stop *s = *stop;
    *stop = NULL;
    if (s != NULL) {
        (void)sigaction(SIGPIPE, &s->pipe, NULL);
        (void)sigaction(SIGXFSZ, &s->size, NULL);
        uv_close((uv_handle_t *)&s->term, on_closed);
        uv_close((uv_handle_t *)&s->interrupt, on_closed);
        if (s->child) {
            uv_close((uv_handle_t *)&s->input, on_closed);
        }
    }
}
