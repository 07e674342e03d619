/* Streams of a server: what one turn of the loop sends is one write, and what readers leave is
 * bounded for each of them and for all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/http/http_server.h"

#define CLIENTS 24
#define FRAME   1000

typedef struct bench {
    uv_loop_t loop;
    by__http_server *server;
    by__http_connection *connections[CLIENTS]; /* in the order in which requests came; NULL: gone */
    int sockets[CLIENTS];                      /* 0: none */
    int count;
    int disconnected;
} bench;

static const char request[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

static void on_request(void *user, by__http_connection *connection, const by__http_request *r)
{
    bench *b = user;
    (void)r;
    b->connections[b->count++] = connection;
}

static void on_gone(void *user, by__http_connection *connection)
{
    bench *b = user;
    for (int i = 0; i < b->count; i++) {
        if (b->connections[i] == connection) {
            b->connections[i] = NULL;
            b->disconnected++;
        }
    }
}

static void open_bench(bench *b, const by__http_options *options)
{
    by__http_options o = *options;
    by_error error = {0};
    *b = (bench){.count = 0};
    o.listen = "127.0.0.1:0";
    o.limits = (by__http_limits){.head = 4096, .body = 4096, .chunks = 16};
    o.request = on_request;
    o.disconnected = on_gone;
    o.user = b;
    assert_int_equal(uv_loop_init(&b->loop), 0);
    assert_int_equal(by__http_server_open(&b->server, &b->loop, &o, &error), BY_OK);
}

static void close_bench(bench *b)
{
    by__http_server_close(&b->server);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&b->loop), 0);
    for (int i = 0; i < CLIENTS; i++) {
        if (b->sockets[i] > 0) {
            close(b->sockets[i]);
        }
    }
}

/* Client i sends a request, which comes. receive: bytes that its socket takes; 0: the default. */
static void begin_request(bench *b, int i, int receive, const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *url = by__http_server_url(b->server);
    address.sin_port = htons((uint16_t)atoi(strrchr(url, ':') + 1));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    b->sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(b->sockets[i] > 0);
    if (receive > 0) {
        setsockopt(b->sockets[i], SOL_SOCKET, SO_RCVBUF, &receive, sizeof receive);
    }
    assert_int_equal(connect(b->sockets[i], (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(write(b->sockets[i], text, strlen(text)), strlen(text));
    while (b->count <= i) {
        uv_run(&b->loop, UV_RUN_ONCE);
    }
}

static void begin_stream(bench *b, int i, int receive)
{
    begin_request(b, i, receive, request);
}

/* Reads until `text` has come, or to the end. */
static void read_until(bench *b, int i, char *out, size_t size, const char *text)
{
    size_t length = 0;
    out[0] = '\0';
    while (strstr(out, text) == NULL) {
        uv_run(&b->loop, UV_RUN_NOWAIT);
        ssize_t n = recv(b->sockets[i], out + length, size - 1 - length, MSG_DONTWAIT);
        assert_true(n != 0);
        length += n > 0 ? (size_t)n : 0;
        out[length] = '\0';
    }
}

static void test_writes(void **state)
{
    bench b;
    char text[4096];
    (void)state;
    open_bench(&b, &(by__http_options){0});
    begin_stream(&b, 0, 0);
    assert_true(by__http_connection_stream(b.connections[0]));
    assert_true(by__http_connection_send(b.connections[0], "data: 1\n\n", 9));
    assert_true(by__http_connection_send(b.connections[0], "data: a longer frame\n\n", 22));
    /* Head and frames go together, when the turn ends. */
    assert_int_equal(by__http_server_counts(b.server).writes, 0);
    read_until(&b, 0, text, sizeof text, "longer frame\n\n\r\n");
    assert_int_equal(by__http_server_counts(b.server).writes, 1);
    assert_int_equal(by__http_server_counts(b.server).frames, 2);
    assert_int_equal(strncmp(text, "HTTP/1.1 200 OK\r\n", 17), 0);
    assert_string_equal(strstr(text, "\r\n\r\n") + 4,
                        "9\r\ndata: 1\n\n\r\n16\r\ndata: a longer frame\n\n\r\n");
    /* So do the last frame and the end. */
    assert_true(by__http_connection_send(b.connections[0], "data: [DONE]\n\n", 14));
    by__http_connection_end(b.connections[0]);
    read_until(&b, 0, text, sizeof text, "0\r\n\r\n");
    assert_string_equal(text, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    assert_int_equal(by__http_server_counts(b.server).writes, 2);
    /* The connection goes on with its next request. */
    assert_int_equal(write(b.sockets[0], request, sizeof request - 1), sizeof request - 1);
    while (b.count < 2) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    by__http_connection_reply(b.connections[1], 200, "text/plain", "abc", 3);
    read_until(&b, 0, text, sizeof text, "abc");
    assert_non_null(strstr(text, "Content-Length: 3\r\n\r\nabc"));
    assert_int_equal(b.disconnected, 0);
    close_bench(&b);
}

/* Sends frames to all streams until so many are gone, while client 0 reads. */
static void send_until(bench *b, int disconnected)
{
    static char frame[FRAME];
    static char sink[1 << 16];
    memset(frame, 'x', sizeof frame);
    while (b->disconnected < disconnected) {
        for (int i = 0; i < b->count; i++) {
            if (b->connections[i] != NULL) {
                (void)by__http_connection_send(b->connections[i], frame, sizeof frame);
            }
        }
        uv_run(&b->loop, UV_RUN_NOWAIT);
        while (recv(b->sockets[0], sink, sizeof sink, MSG_DONTWAIT) > 0) {
        }
    }
}

static void test_one_slow_reader(void **state)
{
    const by__http_options options = {.output = 50000, .output_total = 1 << 20};
    bench b;
    (void)state;
    open_bench(&b, &options);
    for (int i = 0; i < 2; i++) {
        begin_stream(&b, i, i == 0 ? 0 : 4096);
        assert_true(by__http_connection_stream(b.connections[i]));
    }
    send_until(&b, 1);
    by__http_counts counts = by__http_server_counts(b.server);
    assert_non_null(b.connections[0]);
    assert_int_equal(counts.cut, 1);
    assert_in_range(counts.slow, options.output, options.output + 8 * FRAME);
    close_bench(&b);
}

/* Many together hold less than one alone might, and who reads is not cut off. */
static void test_many_slow_readers(void **state)
{
    const by__http_options options = {.output = 100000, .output_total = 400000};
    bench b;
    (void)state;
    open_bench(&b, &options);
    for (int i = 0; i < CLIENTS; i++) {
        begin_stream(&b, i, i == 0 ? 0 : 4096);
        assert_true(by__http_connection_stream(b.connections[i]));
    }
    send_until(&b, CLIENTS - 1);
    by__http_counts counts = by__http_server_counts(b.server);
    assert_non_null(b.connections[0]);
    assert_int_equal(counts.cut, CLIENTS - 1);
    assert_in_range(counts.slow, options.output_total / 2,
                    options.output_total + (size_t)CLIENTS * 2 * FRAME);
    close_bench(&b);
}

/* Frames for which no memory was left cut the client off, who could not tell that they lack. */
static void test_failed_frames(void **state)
{
    bench b;
    char text[4096];
    (void)state;
    open_bench(&b, &(by__http_options){0});
    begin_stream(&b, 0, 0);
    by_string frames = {0};
    assert_true(by__http_connection_stream(b.connections[0]));
    assert_true(
        by__http_connection_send_text(b.connections[0], &frames)); /* of none nothing is sent */
    by__string_append(&frames, "data: 1\n\n");
    assert_true(by__http_connection_send_text(b.connections[0], &frames));
    read_until(&b, 0, text, sizeof text, "data: 1\n\n\r\n");
    assert_string_equal(strstr(text, "\r\n\r\n") + 4, "9\r\ndata: 1\n\n\r\n");
    frames.failed = true;
    assert_false(by__http_connection_send_text(b.connections[0], &frames));
    assert_int_equal(b.disconnected, 1);
    by_string_free(&frames);
    ssize_t n = -1;
    while (n < 0) {
        uv_run(&b.loop, UV_RUN_NOWAIT);
        n = recv(b.sockets[0], text, sizeof text, MSG_DONTWAIT);
    }
    assert_int_equal(n, 0);
    close_bench(&b);
}

/* A client of HTTP/1.0 knows no chunks: the end of the connection is that of the stream. */
static void test_old_client(void **state)
{
    bench b;
    char text[4096];
    size_t length = 0;
    ssize_t n = -1;
    (void)state;
    open_bench(&b, &(by__http_options){0});
    begin_request(&b, 0, 0, "GET / HTTP/1.0\r\n\r\n");
    assert_true(by__http_connection_stream(b.connections[0]));
    assert_true(by__http_connection_send(b.connections[0], "data: 1\n\n", 9));
    assert_true(by__http_connection_send(b.connections[0], "data: [DONE]\n\n", 14));
    by__http_connection_end(b.connections[0]);
    while (n != 0) {
        uv_run(&b.loop, UV_RUN_NOWAIT);
        n = recv(b.sockets[0], text + length, sizeof text - 1 - length, MSG_DONTWAIT);
        length += n > 0 ? (size_t)n : 0;
    }
    text[length] = '\0';
    assert_null(strstr(text, "chunked"));
    assert_non_null(strstr(text, "\r\nConnection: close\r\n"));
    assert_string_equal(strstr(text, "\r\n\r\n") + 4, "data: 1\n\ndata: [DONE]\n\n");
    close_bench(&b);
}

/* What followed the head of an answer to HEAD would be taken for the next answer. */
static void test_head(void **state)
{
    static const size_t lengths[] = {3, (size_t)100 << 10};
    bench b;
    char text[4096];
    (void)state;
    open_bench(&b, &(by__http_options){0});
    for (int i = 0; i < 2; i++) {
        by_string body = {0};
        char length[64];
        begin_request(&b, 2 * i, 0, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        for (size_t n = 0; n < lengths[i]; n++) {
            by__string_append(&body, "x");
        }
        by__http_connection_reply_text(b.connections[2 * i], 200, "text/plain", &body);
        assert_int_equal(write(b.sockets[2 * i], request, sizeof request - 1), sizeof request - 1);
        while (b.count < 2 * i + 2) {
            uv_run(&b.loop, UV_RUN_ONCE);
        }
        by__http_connection_reply(b.connections[2 * i + 1], 200, "text/plain", "abc", 3);
        read_until(&b, 2 * i, text, sizeof text, "abc");
        (void)snprintf(length, sizeof length, "\r\nContent-Length: %zu\r\n", lengths[i]);
        assert_non_null(strstr(text, length));
        assert_int_equal(strncmp(strstr(text, "\r\n\r\n") + 4, "HTTP/1.1 200 OK\r\n", 17), 0);
    }
    close_bench(&b);
}

/* Each status that a route answers with has a name. */
static void test_reasons(void **state)
{
    static const int statuses[] = {200, 202, 204, 304, 400, 401, 403, 404, 405, 408, 409, 413,
                                   414, 415, 417, 422, 429, 431, 500, 501, 503, 504, 505};
    (void)state;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        assert_string_not_equal(by__http_reason(statuses[i]), "Unknown");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_writes),
                                       cmocka_unit_test(test_one_slow_reader),
                                       cmocka_unit_test(test_many_slow_readers),
                                       cmocka_unit_test(test_failed_frames),
                                       cmocka_unit_test(test_old_client),
                                       cmocka_unit_test(test_head),
                                       cmocka_unit_test(test_reasons)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
