/* Connections for which there is no memory when they come: they are taken later, and those behind
 * them too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/http/http_server.h"
#include "serve/link/core/link.h"
#include "temporary.h"

/* Turns of a loop, of which a timer of the server ends each within half a second. */
#define TURNS 60

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

static int refused; /* allocations that fail from now on */

void *__wrap_calloc(size_t count, size_t size)
{
    if (refused > 0) {
        refused--;
        return NULL;
    }
    return __real_calloc(count, size);
}

static int taken;

/* A client, who writes what it has to say at once. */
static int client_of(const struct sockaddr *address, socklen_t length, const char *text)
{
    int client = socket(address->sa_family, SOCK_STREAM, 0);
    assert_true(client >= 0);
    assert_int_equal(connect(client, address, length), 0);
    assert_int_equal(send(client, text, strlen(text), 0), (ssize_t)strlen(text));
    return client;
}

static void wait_for(uv_loop_t *loop, int count)
{
    for (int i = 0; i < TURNS && taken < count; i++) {
        (void)uv_run(loop, UV_RUN_ONCE);
    }
    assert_int_equal(taken, count);
    assert_int_equal(refused, 0);
}

static void on_request(void *user, by__http_connection *connection, const by__http_request *request)
{
    (void)user;
    (void)request;
    taken++;
    by__http_connection_reply(connection, 200, "text/plain", "", 0);
}

static void on_gone(void *user, by__http_connection *connection)
{
    (void)user;
    (void)connection;
}

static void test_http(void **state)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    uv_loop_t loop;
    by__http_server *server = NULL;
    by_error error = {0};
    const by__http_options options = {.listen = "127.0.0.1:0",
                                      .limits = {.head = 4096, .body = 4096, .chunks = 16},
                                      .request = on_request,
                                      .disconnected = on_gone};
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__http_server_open(&server, &loop, &options, &error), BY_OK);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons((uint16_t)atoi(strrchr(by__http_server_url(server), ':') + 1));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    taken = 0;
    refused = 2;
    int first = client_of((struct sockaddr *)&address, sizeof address, request);
    int second = client_of((struct sockaddr *)&address, sizeof address, request);
    wait_for(&loop, 2);
    by__http_server_close(&server);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    close(first);
    close(second);
}

static void on_link(void *user, by__link *link)
{
    (void)user;
    taken++;
    by__link_close(&link);
}

static void on_clock(uv_timer_t *timer)
{
    (void)timer;
}

static void test_link(void **state)
{
    char *directory = temporary_make();
    uv_loop_t loop;
    uv_timer_t clock;
    by__link_listener *listener = NULL;
    by_error error = {0};
    const by__link_handler handler = {.user = NULL};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)state;
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/s", directory);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__link_listen(&listener, &loop, address.sun_path, on_link, &handler, &error),
                     BY_OK);
    /* So that a turn ends. */
    assert_int_equal(uv_timer_init(&loop, &clock), 0);
    assert_int_equal(uv_timer_start(&clock, on_clock, 500, 500), 0);
    taken = 0;
    refused = 2;
    int first = client_of((struct sockaddr *)&address, sizeof address, "");
    int second = client_of((struct sockaddr *)&address, sizeof address, "");
    wait_for(&loop, 2);
    by__link_listener_close(&listener);
    uv_close((uv_handle_t *)&clock, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    close(first);
    close(second);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_http), cmocka_unit_test(test_link)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
