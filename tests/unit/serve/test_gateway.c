/* A gateway without a broker: who may use which route, what is refused before it is read, and what
 * the log says of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "gateway_run.h"
#include "serve/gateway/gateway_routes.h"
#include "temporary.h"

/* Routes that answer without a key. Another one of them is a decision that this list shows. */
static const char *const open_routes[] = {"GET /", "GET /health", "GET /ping", "GET /health/live",
                                          "GET /health/ready"};

static const char *const scopes[] = {"inference", "tasks", "metrics", "admin"};

static char answer[1 << 16];
static char *directory;

static bool is_open(const by__gateway_route *row)
{
    char text[128];
    (void)snprintf(text, sizeof text, "%s %s", row->method, row->path);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(open_routes); i++) {
        if (strcmp(open_routes[i], text) == 0) {
            return true;
        }
    }
    return false;
}

/* Asks for a row of the table with some more headers. */
static int ask_route(const gateway_run *run, const by__gateway_route *row, const char *headers)
{
    char request[512];
    bool named = row->path[1] != '\0' && row->path[strlen(row->path) - 1] == '/';
    bool post = strcmp(row->method, "POST") == 0;
    int n = snprintf(request, sizeof request,
                     "%s %s%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%s\r\n%s",
                     row->method, row->path, named ? "x" : "",
                     post ? "Content-Type: application/json\r\nContent-Length: 2\r\n" : "", headers,
                     post ? "{}" : "");
    return gateway_ask(run, request, (size_t)n, answer, sizeof answer);
}

static int ask(const gateway_run *run, const char *request)
{
    return gateway_ask(run, request, strlen(request), answer, sizeof answer);
}

/* A file of one key for each scope ("key-inference", ...), one for all and one without a word. */
static char *write_keys(void)
{
    char *path = by__path_join(directory, "keys");
    FILE *file = fopen(path, "w");
    char hash[65];
    char key[32];
    assert_non_null(file);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(scopes); i++) {
        (void)snprintf(key, sizeof key, "key-%s", scopes[i]);
        by__gateway_sha256_hex(hash, key);
        fprintf(file, "%s only-%s %s\n", hash, scopes[i], scopes[i]);
    }
    by__gateway_sha256_hex(hash, "key-all");
    fprintf(file, "# all\n%s all inference,tasks,metrics,admin\n", hash);
    by__gateway_sha256_hex(hash, "key-plain");
    fprintf(file, "%s plain\n", hash);
    fclose(file);
    return path;
}

static void test_routes(void **state)
{
    gateway_run run;
    char *keys = write_keys();
    (void)state;
    gateway_begin(&run, &(by_gateway_options){.keys = keys});
    assert_int_not_equal(run.port, 0);
    for (size_t i = 0; i < by__gateway_route_count; i++) {
        const by__gateway_route *row = &by__gateway_routes[i];
        if (is_open(row)) {
            assert_int_not_equal(ask_route(&run, row, ""), 401);
            continue;
        }
        assert_int_not_equal(row->scope, BY__SCOPE_NONE);
        assert_int_equal(ask_route(&run, row, ""), 401);
        assert_int_equal(ask_route(&run, row, "Authorization: Bearer wrong\r\n"), 401);
        assert_int_equal(ask_route(&run, row, "Authorization: Bearer \r\n"), 401);
        assert_int_equal(ask_route(&run, row, "Authorization: Basic key-all\r\n"), 401);
        /* Two keys: which one counts would be a guess. */
        assert_int_equal(ask_route(&run, row, "X-Api-Key: key-all\r\nX-Api-Key: key-all\r\n"), 400);
        for (size_t s = 0; s < BY_ARRAY_LENGTH(scopes); s++) {
            char header[64];
            (void)snprintf(header, sizeof header, "X-Api-Key: key-%s\r\n", scopes[s]);
            int status = ask_route(&run, row, header);
            assert_int_not_equal(status, 401);
            assert_int_equal(status == 403, (row->scope & (1u << s)) == 0);
        }
        int all = ask_route(&run, row, "Authorization: bearer key-all\r\n");
        assert_true(all >= 200 && all != 401 && all != 403);
        /* This gateway has no supervisor. */
        assert_true((all == 501) == (row->scope == BY__SCOPE_ADMIN));
        bool plain = row->scope == BY__SCOPE_INFERENCE || row->scope == BY__SCOPE_TASKS;
        assert_int_equal(ask_route(&run, row, "X-Api-Key: key-plain\r\n") == 403, !plain);
    }
    assert_int_equal(ask(&run,
                         "PUT /v1/tasks/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "X-Api-Key: key-all\r\n\r\n"),
                     405);
    assert_non_null(strstr(answer, "\r\nAllow: GET, DELETE, POST\r\n"));
    /* What is not in the table does not tell strangers so. */
    assert_int_equal(
        ask(&run, "GET /else HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 401);
    assert_int_equal(
        ask(&run, "PUT /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        401);
    assert_int_equal(
        ask(&run, "GET /health/live/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        401);
    gateway_end(&run);
    assert_int_equal(run.status, BY_OK);
    remove(keys);
    free(keys);
}

static void test_before_the_body(void **state)
{
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Type: application/json\r\nContent-Length: 8000000\r\n\r\n";
    static const char waits[] =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        "Content-Length: 8000000\r\n\r\n";
    gateway_run run;
    char *keys = write_keys();
    (void)state;
    gateway_begin(&run, &(by_gateway_options){.keys = keys});
    /* Not a byte of the body has been sent. */
    assert_int_equal(ask(&run, head), 401);
    assert_int_equal(ask(&run, waits), 401);
    assert_null(strstr(answer, "100 Continue"));
    /* A client that sends on, and reads later, still gets its answer. */
    int fd = gateway_connect(&run);
    char *body = calloc(1, 1 << 20);
    assert_true(gateway_send(fd, head, strlen(head)));
    for (int i = 0; i < 7 && gateway_send(fd, body, 1 << 20); i++) {
    }
    assert_true(gateway_read(fd, answer, sizeof answer) > 0);
    assert_int_equal(atoi(answer + 9), 401);
    close(fd);
    free(body);
    gateway_end(&run);
    remove(keys);
    free(keys);
}

/* A body that is allowed may still be more than a message to a worker: an escaped quote of two
 * bytes takes four there. */
static void test_too_large(void **state)
{
    static const char head[] =
        "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n"
        "{\"model\":\"a\",\"rows\":[[\"";
    const size_t count = (size_t)33 << 20;
    gateway_run run;
    (void)state;
    char *request = malloc(sizeof head + 32 + 2 * count + 4);
    assert_non_null(request);
    size_t n =
        (size_t)sprintf(request, head, sizeof "{\"model\":\"a\",\"rows\":[[\"" - 1 + 2 * count + 4);
    for (size_t i = 0; i < count; i++) {
        memcpy(request + n, "\\\"", 2);
        n += 2;
    }
    memcpy(request + n, "\"]]}", 4);
    gateway_begin(&run, &(by_gateway_options){.body = (size_t)80 << 20});
    assert_int_equal(gateway_ask(&run, request, n + 4, answer, sizeof answer), 400);
    assert_non_null(strstr(answer, "send less at a time"));
    gateway_end(&run);
    free(request);
}

/* Asks for the models of a server without keys by a name. */
static int ask_by_name(gateway_run *run, const char *name)
{
    char text[256];
    (void)snprintf(text, sizeof text,
                   "GET /v1/models HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name);
    return ask(run, text);
}

/* A page of a site whose name resolves to this machine is of one origin with the server. */
static void test_host(void **state)
{
    static const char *const ours[] = {"localhost", "LOCALHOST:8080", "127.0.0.1:8080",
                                       "10.0.0.1",  "[::1]:8080",     "[::1]"};
    static const char *const theirs[] = {"evil.example",
                                         "evil.example:8080",
                                         "localhost.evil.example",
                                         "127.0.0.1.evil.example",
                                         "127.1",
                                         "2130706433",
                                         "localhost."};
    gateway_run run;
    (void)state;
    gateway_begin(&run, &(by_gateway_options){0});
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ours); i++) {
        assert_int_equal(ask_by_name(&run, ours[i]), 200);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(theirs); i++) {
        assert_int_equal(ask_by_name(&run, theirs[i]), 403);
        assert_non_null(strstr(answer, "host_not_allowed"));
    }
    assert_int_equal(ask(&run, "GET /v1/models HTTP/1.0\r\n\r\n"), 200);
    assert_int_equal(ask(&run, "GET /health/live HTTP/1.1\r\nHost: probe\r\n"
                               "Connection: close\r\n\r\n"),
                     200);
    gateway_end(&run);
    gateway_begin(&run, &(by_gateway_options){.insecure = true});
    assert_int_equal(ask_by_name(&run, "banyan.example"), 200);
    gateway_end(&run);
}

/* Pages of other sites send forms to any server, and scripts what a form could hold. */
static void test_forged(void **state)
{
    static const char form[] = "Content-Type: multipart/form-data; boundary=b\r\n";
    static const char json[] = "Content-Type: application/json\r\n";
    static const struct {
        const char *type;
        const char *header;
        bool forged;
    } rows[] = {{form, "", false},
                {form, "Origin: http://localhost:8080\r\n", false},
                {form, "Origin: HTTP://LOCALHOST:8080\r\n", false},
                {form, "Origin: http://friend.example\r\n", false},
                {form, "Origin: http://friend.example\r\nSec-Fetch-Site: cross-site\r\n", false},
                {form, "Sec-Fetch-Site: same-origin\r\nOrigin: https://proxy.example\r\n", false},
                {form, "Sec-Fetch-Site: none\r\n", false},
                {json, "Origin: http://evil.example\r\n", false}, /* after a preflight */
                {form, "Origin: http://evil.example\r\n", true},
                {form, "Origin: http://localhost\r\n", true},
                {form, "Origin: http://localhost:8081\r\n", true},
                {form, "Origin: http://localhost:8080.evil.example\r\n", true},
                {form, "Origin: http://friend.example.evil.example\r\n", true},
                {form, "Origin: null\r\n", true},
                {form, "Sec-Fetch-Site: cross-site\r\n", true},
                {form, "Sec-Fetch-Site: same-site\r\n", true},
                {"Content-Type: text/plain\r\n", "Origin: http://evil.example\r\n", true},
                {"Content-Type: application/jsonx\r\n", "Origin: http://evil.example\r\n", true},
                {"Content-Type: image/png\r\n", "Origin: http://evil.example\r\n", true},
                {"", "Origin: http://evil.example\r\n", true}};
    static const char *const routes[] = {"/v1/predict", "/v1/tasks/a/cancel", "/v1/feedback"};
    const char *const sets[] = {"cors.origins=[http://friend.example]"};
    by_serve_config *config = NULL;
    by_error error = {0};
    gateway_run run;
    (void)state;
    assert_int_equal(by_serve_config_open(&config, NULL, sets, 1, &error), BY_OK);
    gateway_begin(&run, &(by_gateway_options){.config = config});
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(routes); k++) {
            char text[512];
            (void)snprintf(text, sizeof text,
                           "POST %s HTTP/1.1\r\nHost: localhost:8080\r\n%s%sConnection: close\r\n"
                           "Content-Length: 0\r\n\r\n",
                           routes[k], rows[i].type, rows[i].header);
            int status = ask(&run, text);
            bool forged = strstr(answer, "origin_not_allowed") != NULL;
            if (forged != rows[i].forged || (status == 403) != forged) {
                fail_msg("row %zu of %s: %d", i, routes[k], status);
            }
        }
    }
    gateway_end(&run);
    by_serve_config_close(&config);
}

/* What names a route is not encoded: a proxy may not decode what it lets through. */
static void test_encoded(void **state)
{
    static const struct {
        const char *path;
        const char *code;
    } rows[] = {{"/v1/models/a%2Fb", "model_not_found"}, {"/v1/models/%61", "model_not_found"},
                {"/v1%2Fmodels/a", "route_not_found"},   {"/%76%31/models/a", "route_not_found"},
                {"/v1/models%2Fa", "route_not_found"},   {"/v1/model%73", "route_not_found"},
                {"//v1/models", "route_not_found"},      {"/v1/./models", "route_not_found"}};
    gateway_run run;
    (void)state;
    gateway_begin(&run, &(by_gateway_options){0});
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        char text[256];
        (void)snprintf(text, sizeof text,
                       "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                       rows[i].path);
        int status = ask(&run, text);
        if (strstr(answer, rows[i].code) == NULL) {
            fail_msg("%s: %d %s", rows[i].path, status, answer);
        }
    }
    gateway_end(&run);
}

static void test_log(void **state)
{
    gateway_run run;
    size_t count = 0;
    (void)state;
    gateway_begin(&run, &(by_gateway_options){0});
    assert_int_equal(ask(&run,
                         "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine-1\r\n"
                         "Connection: close\r\n\r\n"),
                     200);
    assert_non_null(strstr(answer, "X-Request-Id: mine-1\r\n"));
    assert_int_equal(ask(&run, "GET /%22%7d%c2%85%e2%80%a8 HTTP/1.1\r\nHost: localhost\r\n"
                               "X-Request-Id: a\"}b\r\nConnection: close\r\n\r\n"),
                     404);
    assert_non_null(strstr(answer, "X-Request-Id: req_"));
    /* Without keys nobody is an operator, and who tries is in the audit log. */
    assert_int_equal(ask(&run, "POST /v1/admin/rollback HTTP/1.1\r\nHost: localhost\r\n"
                               "Connection: close\r\nContent-Length: 0\r\n\r\n"),
                     403);
    assert_true(gateway_logs(&run, "\"event\":\"audit\""));
    /* Also what is no request has an id, and a reason in the log. */
    assert_int_equal(ask(&run, "GET /\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
    assert_non_null(strstr(answer, "X-Request-Id: req_"));
    assert_true(gateway_logs(&run, "\"status\":400"));
    assert_true(gateway_logs(&run, "\"code\":\"bad_http\",\"reason\":\"the target has a byte"));
    assert_true(gateway_logs(&run, "\"status\":404"));
    assert_true(gateway_logs(&run, "\"request_id\":\"mine-1\""));
    for (char *line = run.log, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        for (const char *c = line; c < end; c++) {
            assert_true(*c >= 0x20 && *c < 0x7f);
        }
        json_t *value = json_loadb(line, (size_t)(end - line), 0, NULL);
        assert_true(json_is_object(value));
        count += strcmp(json_string_value(json_object_get(value, "event")), "request") == 0;
        json_decref(value);
    }
    assert_int_equal(count, 4);
    gateway_end(&run);
}

/* Asks with a body. */
static int send_body(const gateway_run *run, const char *path, const char *headers,
                     const char *body)
{
    char request[512];
    int n = snprintf(request, sizeof request,
                     "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
                     path, strlen(body), headers, body);
    return gateway_ask(run, request, (size_t)n, answer, sizeof answer);
}

static void test_bodies(void **state)
{
    gateway_run run;
    (void)state;
    gateway_begin(&run, &(by_gateway_options){0});
    assert_int_equal(
        send_body(&run, "/v1/tasks", "", "{\"endpoint\":\"/v1/completions\",\"body\":\"x\"}"), 400);
    assert_non_null(strstr(answer, "'body' must be an object"));
    assert_non_null(strstr(answer, "\"param\":\"body\""));
    assert_int_equal(send_body(&run, "/v1/tasks", "", "{\"endpoint\":"), 400);
    assert_non_null(strstr(answer, "the body is not JSON (line 1, column 12)"));
    assert_int_equal(send_body(&run, "/v1/tasks", "",
                               "{\"endpoint\":\"/v1/chat/completions\",\"body\":{\"model\":\"m\","
                               "\"messages\":[{\"role\":\"user\",\"content\":5}]}}"),
                     400);
    assert_non_null(strstr(answer, "\"param\":\"messages[0].content\""));
    assert_int_equal(send_body(&run, "/v1/chat/completions", "",
                               "{\"model\":\"m\",\"messages\":[{\"role\":\"user\"}]}"),
                     400);
    assert_non_null(strstr(answer, "\"param\":\"messages[0].content\""));
    assert_int_equal(send_body(&run, "/v1/completions", "",
                               "{\"model\":\"m\",\"prompt\":\"a\",\"suffix\":\"b\"}"),
                     400);
    assert_non_null(strstr(answer, "'suffix' is not supported"));
    assert_int_equal(send_body(&run, "/v1/completions", "Content-Encoding: gzip\r\n", "{}"), 415);
    assert_non_null(strstr(answer, "encoded_body"));
    assert_int_equal(send_body(&run, "/v1/completions", "Content-Encoding: identity\r\n", "{}"),
                     400);
    gateway_end(&run);
}

#define GET(target) "GET " target " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

/* Nobody answers what is asked of tasks: each question gets a 503, and when to ask again. */
static void test_no_broker(void **state)
{
    gateway_run run;
    (void)state;
    gateway_begin(&run, &(by_gateway_options){0});
    assert_int_equal(ask(&run, GET("/v1/tasks/task_1")), 503);
    assert_non_null(strstr(answer, "Retry-After: 1\r\n"));
    assert_int_equal(ask(&run, GET("/v1/tasks/task_1/events")), 503);
    assert_non_null(strstr(answer, "Retry-After: 1\r\n"));
    assert_int_equal(send_body(&run, "/v1/tasks", "",
                               "{\"endpoint\":\"/v1/completions\",\"body\":{\"model\":\"m\","
                               "\"prompt\":\"a\"}}"),
                     503);
    const char *wait = strstr(answer, "Retry-After: 1\r\n");
    assert_non_null(wait);
    assert_null(strstr(wait + 1, "Retry-After"));
    assert_int_equal(ask(&run, GET("/v1/responses/resp_1?stream=false")), 503);
    assert_int_equal(ask(&run, GET("/v1/responses/resp_1?stream=true&starting_after=3")), 503);
    assert_int_equal(ask(&run, GET("/v1/responses/resp_1?stream=1")), 400);
    assert_non_null(strstr(answer, "\"param\":\"stream\""));
    assert_int_equal(ask(&run, GET("/v1/responses/resp_1?stream=true&starting_after=-1")), 400);
    assert_non_null(strstr(answer, "the query parameter 'starting_after' is not supported, or"));
    assert_int_equal(ask(&run, GET("/v1/responses/resp_1?stream=false&starting_after=3")), 400);
    assert_non_null(strstr(answer, "it needs stream=true"));
    gateway_end(&run);
}

/* HEAD asks for the head of what GET answers; a probe may use either. */
static void test_head(void **state)
{
    gateway_run run;
    (void)state;
    gateway_begin(&run, &(by_gateway_options){0});
    assert_int_equal(
        ask(&run, "HEAD /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        200);
    assert_non_null(strstr(answer, "\r\nContent-Length: 17\r\n"));
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    assert_int_equal(
        ask(&run, "HEAD /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        405);
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    gateway_end(&run);
}

static by_serve_config *config_of(const char *text)
{
    by_serve_config *config = NULL;
    by_error error = {0};
    if (by_serve_config_parse(&config, "serve.yaml", text, strlen(text), &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return config;
}

#define QUESTION                                                                                   \
    "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"                 \
    "Access-Control-Request-Method: POST\r\n"

static void test_cors(void **state)
{
    gateway_run run;
    char *keys = write_keys();
    by_serve_config *config = config_of("cors: {origins: [https://a.example]}");
    (void)state;
    gateway_begin(&run, &(by_gateway_options){.keys = keys, .config = config});
    assert_int_equal(ask(&run, QUESTION "Origin: https://a.example\r\n\r\n"), 204);
    assert_non_null(strstr(answer, "Access-Control-Allow-Origin: https://a.example\r\n"));
    assert_non_null(strstr(answer, "Access-Control-Allow-Methods: GET, POST, DELETE\r\n"));
    assert_null(strstr(answer, "Credentials"));
    /* Others get no word of it, and a question is no key. */
    assert_int_equal(ask(&run, QUESTION "Origin: https://b.example\r\n\r\n"), 401);
    assert_null(strstr(answer, "Access-Control-Allow"));
    assert_int_equal(ask(&run, QUESTION "Origin: https://a.example.org\r\n\r\n"), 401);
    assert_int_equal(ask(&run, QUESTION "Origin: null\r\n\r\n"), 401);
    assert_int_equal(ask(&run,
                         "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Origin: https://a.example\r\n\r\n"),
                     401);
    /* A page can read why it was refused. */
    assert_int_equal(ask(&run, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               "Origin: https://a.example\r\n\r\n"),
                     401);
    assert_non_null(strstr(answer, "Access-Control-Allow-Origin: https://a.example\r\n"));
    assert_non_null(strstr(answer, "Vary: Origin\r\n"));
    gateway_end(&run);
    by_serve_config_close(&config);
    remove(keys);
    free(keys);
}

static int post(const gateway_run *run, const char *key)
{
    char request[512];
    int n = snprintf(request, sizeof request,
                     "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "X-Api-Key: %s\r\nContent-Type: application/json\r\n"
                     "Content-Length: 2\r\n\r\n{}",
                     key);
    return gateway_ask(run, request, (size_t)n, answer, sizeof answer);
}

static void test_limits(void **state)
{
    gateway_run run;
    char *keys = write_keys();
    by_serve_config *config = config_of("limits: {keys: [{name: all, requests_per_minute: 2}]}");
    (void)state;
    gateway_begin(&run, &(by_gateway_options){.keys = keys, .config = config});
    assert_int_equal(post(&run, "key-all"), 400);
    assert_non_null(strstr(answer, "X-RateLimit-Limit-Requests: 2\r\n"));
    assert_non_null(strstr(answer, "X-RateLimit-Remaining-Requests: 1\r\n"));
    assert_int_equal(post(&run, "key-all"), 400);
    assert_int_equal(post(&run, "key-all"), 429);
    const char *wait = strstr(answer, "Retry-After: ");
    assert_non_null(wait);
    assert_in_range(atoi(wait + 13), 1, 30);
    assert_non_null(strstr(answer, "\"rate_limit_exceeded\""));
    /* Others, and what is no work, are not held up. */
    assert_int_equal(post(&run, "key-plain"), 400);
    assert_null(strstr(answer, "X-RateLimit"));
    assert_int_equal(ask(&run, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               "X-Api-Key: key-all\r\n\r\n"),
                     200);
    gateway_end(&run);
    by_serve_config_close(&config);
    remove(keys);
    free(keys);
}

#define LIVE "GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"

/* Asks until the gateway has seen what others have done, and answers so. */
static void until(const gateway_run *run, int status, const char *request)
{
    int got = 0;
    for (int i = 0; i < 5000 && got != status; i++) {
        got = ask(run, request);
    }
    assert_int_equal(got, status);
}

static void test_connections_per_address(void **state)
{
    enum { MOST = 3 };
    gateway_run run;
    int held[2 * MOST];
    by_serve_config *config = config_of("gateway: {connections_per_address: 3}");
    (void)state;
    gateway_begin(&run, &(by_gateway_options){.config = config});
    for (int i = 0; i < 2 * MOST; i++) {
        held[i] = gateway_connect(&run);
        assert_true(held[i] >= 0);
    }
    /* Those above the limit are told; what a header says of the client is not asked. */
    for (int i = MOST; i < 2 * MOST; i++) {
        (void)gateway_send(held[i], LIVE "X-Forwarded-For: 9.9.9.9\r\n\r\n",
                           sizeof LIVE "X-Forwarded-For: 9.9.9.9\r\n\r\n" - 1);
        assert_true(gateway_read(held[i], answer, sizeof answer) > 0);
        assert_int_equal(atoi(answer + 9), 429);
        assert_non_null(strstr(answer, "too_many_connections"));
        assert_non_null(strstr(answer, "Retry-After: 1\r\n"));
    }
    /* Above twice the limit they are closed. */
    int flood = gateway_connect(&run);
    assert_int_equal(gateway_read(flood, answer, sizeof answer), 0);
    close(flood);
    for (int i = 0; i < 2 * MOST; i++) {
        close(held[i]);
    }
    /* The gateway sees that at its next turns. */
    until(&run, 200, LIVE "\r\n");
    assert_int_equal(
        ask(&run, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 200);
    const char *refused = strstr(answer, "banyan_connections_refused_total{limit=\"address\"} ");
    assert_non_null(refused);
    assert_true(atoi(strchr(refused, ' ') + 1) >= MOST + 1);
    gateway_end(&run);
    by_serve_config_close(&config);
}

/* Behind a proxy requests count, for the client that the proxy names. */
static void test_proxies(void **state)
{
    static const char held_head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                                    "X-Forwarded-For: 8.8.8.8, 9.9.9.9\r\nContent-Length: 9\r\n"
                                    "Content-Type: application/json\r\n\r\n{";
    gateway_run run;
    by_serve_config *config =
        config_of("gateway: {connections_per_address: 1, proxies: [127.0.0.0/8, 10.0.0.0/8]}");
    (void)state;
    gateway_begin(&run, &(by_gateway_options){.config = config});
    /* A request whose body does not come: it is one at a time. */
    int held = gateway_connect(&run);
    assert_true(gateway_send(held, held_head, sizeof held_head - 1));
    until(&run, 429, LIVE "X-Forwarded-For: 9.9.9.9\r\n\r\n");
    assert_int_equal(ask(&run, LIVE "X-Forwarded-For: 7.7.7.7, 9.9.9.9, 10.1.1.1\r\n\r\n"), 429);
    assert_int_equal(ask(&run, LIVE "X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-For: 7.7.7.7\r\n\r\n"),
                     200);
    /* Others have room, also who was named before the client, and a proxy that names nobody. */
    assert_int_equal(ask(&run, LIVE "X-Forwarded-For: 8.8.8.8\r\n\r\n"), 200);
    assert_int_equal(ask(&run, LIVE "\r\n"), 200);
    close(held);
    until(&run, 200,
          "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
          "X-Forwarded-For: 9.9.9.9\r\n\r\n");
    assert_true(gateway_logs(&run, "\"peer\":\"9.9.9.9\",\"method\":\"GET\""));
    gateway_end(&run);
    by_serve_config_close(&config);
}

/* SHA-256 of nothing, which would let in whoever sends an empty key. */
#define NO_KEY "%s one\ne3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 two"

static void test_bad_keys(void **state)
{
    static const char *const lines[] = {"abc name",
                                        "%s",
                                        "%s ",
                                        "%s a/b",
                                        "%s name else",
                                        "%s name inference,",
                                        "%s name inference tasks",
                                        "%s one\n%s two",
                                        "%s one\n%s one inference",
                                        NO_KEY,
                                        ""};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(lines); i++) {
        char *path = by__path_join(directory, "keys");
        FILE *file = fopen(path, "w");
        char hash[65];
        by__gateway_keys *keys = NULL;
        by_error error = {0};
        by__gateway_sha256_hex(hash, "key");
        for (const char *at = lines[i]; *at != '\0'; at++) {
            bool hole = strncmp(at, "%s", 2) == 0;
            fprintf(file, "%.*s", hole ? 64 : 1, hole ? hash : at);
            at += hole;
        }
        fprintf(file, "\n");
        fclose(file);
        assert_int_equal(by__gateway_keys_open(&keys, path, &error), BY_ECONFIG);
        assert_null(keys);
        assert_non_null(strstr(error.message, path));
        remove(path);
        free(path);
    }
}

/* Lines may end as on Windows, and be there twice. */
static void test_good_keys(void **state)
{
    char *path = by__path_join(directory, "keys");
    FILE *file = fopen(path, "w");
    char hash[65];
    by__gateway_keys *keys = NULL;
    by_error error = {0};
    (void)state;
    assert_non_null(file);
    by__gateway_sha256_hex(hash, "key");
    fprintf(file, "# keys\r\n%s one inference\r\n\r\n%s one inference\r\n", hash, hash);
    (void)fclose(file);
    if (by__gateway_keys_open(&keys, path, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_string_equal(by__gateway_keys_find(keys, "key")->name, "one");
    by__gateway_keys_close(&keys);
    remove(path);
    free(path);
}

static int set_up(void **state)
{
    (void)state;
    directory = temporary_make();
    return directory == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_before_the_body),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_encoded),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_cors),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_good_keys),
        cmocka_unit_test(test_connections_per_address),
        cmocka_unit_test(test_proxies),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_no_broker),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
