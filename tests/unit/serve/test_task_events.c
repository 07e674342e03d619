/* A client that follows a task, and memory that is exhausted when its stream begins: what was freed
 * with the client is not touched again. */
#include <malloc.h>
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

#include "serve/gateway/gateway_routes.h"
#include "serve/gateway/tasks/gateway_tasks.h"

#define KEPT 64
#define GONE 0xa5

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void __real_free(void *memory);
void __wrap_free(void *memory);

static bool exhausted;            /* there is no memory, and what is freed is kept */
static unsigned char *kept[KEPT]; /* each byte of it is GONE */
static size_t kept_count;

void *__wrap_realloc(void *memory, size_t size)
{
    return exhausted ? NULL : __real_realloc(memory, size);
}

void __wrap_free(void *memory)
{
    if (!exhausted || memory == NULL || kept_count == KEPT) {
        __real_free(memory);
        return;
    }
    memset(memory, GONE, malloc_usable_size(memory));
    kept[kept_count++] = memory;
}

static by__gateway gateway;

static void on_request(void *user, by__http_connection *connection, const by__http_request *request)
{
    (void)user;
    by__gateway_answer_task_events(&gateway, connection, request, "task_1", "");
}

static bool send_nothing(by__link *link, const json_t *message)
{
    (void)link;
    (void)message;
    return true;
}

static void close_nothing(by__link *link)
{
    (void)link;
}

static int client_of(const by__http_server *server)
{
    static const char request[] = "GET /v1/tasks/task_1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons((uint16_t)atoi(strrchr(by__http_server_url(server), ':') + 1));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(client >= 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(write(client, request, sizeof request - 1), sizeof request - 1);
    return client;
}

/* A client that waits for the first event, at a broker that does not answer by itself. Returns its
 * socket. */
static int begin(by__http_server **server)
{
    static const by__link_kind kind = {.send = send_nothing, .close = close_nothing};
    static by__link link = {.kind = &kind};
    by_error error = {0};
    const by__http_options options = {.listen = "127.0.0.1:0",
                                      .limits = {.head = 4096, .body = 4096, .chunks = 16},
                                      .request = on_request,
                                      .disconnected = by__gateway_on_disconnect,
                                      .user = &gateway};
    gateway = (by__gateway){.broker = {.link = &link}};
    assert_int_equal(uv_loop_init(&gateway.loop), 0);
    (void)uv_timer_init(&gateway.loop, &gateway.watching);
    assert_int_equal(by__http_server_open(server, &gateway.loop, &options, &error), BY_OK);
    int client = client_of(*server);
    while (gateway.watches == NULL) {
        uv_run(&gateway.loop, UV_RUN_ONCE);
    }
    return client;
}

static void finish(by__http_server **server, int client)
{
    by__http_server_close(server);
    uv_close((uv_handle_t *)&gateway.watching, NULL);
    uv_run(&gateway.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&gateway.loop), 0);
    close(client);
}

/* A broker that cannot answer is no task without events. */
static void test_refused(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        by__http_server *server = NULL;
        char text[1024] = "";
        int client = begin(&server);
        json_t *answer = json_pack("{ss si s{si ss ss}}", "t", "task", "ref", 1, "error", "status",
                                   501, "code", "no_tasks", "message", "none");
        if (lost) {
            by__gateway_watches_lost(&gateway);
        } else {
            by__gateway_watch_answer(&gateway, answer);
        }
        while (gateway.watches != NULL) {
            uv_run(&gateway.loop, UV_RUN_ONCE);
        }
        assert_true(read(client, text, sizeof text - 1) > 12);
        assert_int_equal(atoi(text + 9), lost ? 503 : 501);
        assert_non_null(strstr(text, lost ? "\"unavailable\"" : "\"no_tasks\""));
        assert_int_equal(strstr(text, "Retry-After: 1\r\n") != NULL, lost);
        json_decref(answer);
        finish(&server, client);
    }
}

static void test_no_memory(void **state)
{
    by__http_server *server = NULL;
    json_t *answer = json_pack("{ss si s{ss ss si}}", "t", "task", "ref", 1, "task", "id", "task_1",
                               "status", "queued", "attempts", 0);
    (void)state;
    int client = begin(&server);
    exhausted = true;
    by__gateway_watch_answer(&gateway, answer);
    exhausted = false;
    assert_null(gateway.watches);
    assert_true(kept_count > 0);
    for (size_t i = 0; i < kept_count; i++) {
        for (size_t k = 0; k < malloc_usable_size(kept[i]); k++) {
            assert_int_equal(kept[i][k], GONE);
        }
        __real_free(kept[i]);
    }
    json_decref(answer);
    finish(&server, client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
