/* HTTP requests: what is taken, and what would mean different things to different programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "serve/http/http_parse.h"
#include "serve/http/query.h"

static const by__http_limits limits = {.head = 1024, .body = 64, .chunks = 4};

/* Takes a text in pieces of `step` bytes; returns the last state. */
static by__http_state feed(by__http_parser *p, const char *text, size_t length, size_t step)
{
    by__http_state state = BY__HTTP_MORE;
    for (size_t at = 0; at < length && state != BY__HTTP_DONE && state != BY__HTTP_BAD;) {
        size_t n = length - at < step ? length - at : step;
        size_t used;
        state = by__http_parser_feed(p, text + at, n, &used);
        at += used;
    }
    return state;
}

/* The status of a text's refusal, 200 when it is a request, 0 when more must come. */
static int status_of(const char *text, size_t length, size_t step)
{
    by__http_parser *p = by__http_parser_open(&limits);
    by__http_state state = feed(p, text, length, step);
    int status = state == BY__HTTP_BAD    ? by__http_parser_status(p)
                 : state == BY__HTTP_DONE ? 200
                                          : 0;
    by__http_parser_close(&p);
    return status;
}

#define HOST "Host: a\r\n"

static void test_table(void **state)
{
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {"GET / HTTP/1.1\r\n" HOST "\r\n", 200},
        {"\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 200},
        {"\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET / HTTP/1.0\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\n\r\n", 400}, /* no Host */
        {"GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400},
        {"GET / HTTP/2.0\r\n" HOST "\r\n", 505},
        {"GET  / HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET / HTTP/1.1 \r\n" HOST "\r\n", 400},
        {"G(T / HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET a HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET http://a/ HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /a/../b HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /a/.. HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /%2e%2e/b HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /%252e HTTP/1.1\r\n" HOST "\r\n", 400}, /* decoded once it holds '%' */
        {"GET /a%5cb HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /a%00b HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /a%ffb HTTP/1.1\r\n" HOST "\r\n", 400}, /* not UTF-8 */
        {"GET /a%2 HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /..a?x=%41 HTTP/1.1\r\n" HOST "\r\n", 200},
        {"GET /?a=1&b=1&&ab=1&c HTTP/1.1\r\n" HOST "\r\n", 200},
        {"GET /?x=%zz HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /?x=%0 HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /?x=%00 HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /?a=1&a=2 HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /?a=1&b&%61=2 HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /?a&a= HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET * HTTP/1.1\r\n" HOST "\r\n", 400},
        {"CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:8080\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: a_b.example\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: [::1]:65535\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: \r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:0080000\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:80a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:-1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: localhost:80@evil.example\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a%2e\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\xc3\xa4\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: [::1].evil.example\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: [127.0.0.1]\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: [fe80::1%25lo]\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: [evil.example]\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", 400},
        {"GET / HTTP/1.0\r\nHost: a@b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nAuthorization: a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "X-Api-Key: a\r\nx-api-key: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Type: a/b\r\nContent-Type: a/b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Origin: a\r\nOrigin: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Idempotency-Key: a\r\nIdempotency-Key: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Upgrade: h2c\r\nUpgrade: websocket\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Upgrade: h2c, websocket\r\n\r\n", 501},
        {"GET / HTTP/1.1\r\n" HOST "Upgrade: h2c\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\n" HOST "Accept: a\r\nAccept: b\r\n\r\n", 200},
        {"GET / HTTP/1.1\n" HOST "\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n", 400}, /* folded */
        {"GET / HTTP/1.1\r\n" HOST "A: \x01\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Upgrade: websocket\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab", 200},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\na", 0},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: +2\r\n\r\nab", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 2, 2\r\n\r\nab", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: \r\n\r\nab", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 0x2\r\n\r\nab", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 65\r\n\r\n", 413},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551618\r\n\r\n", 413},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", 200},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, identity\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nab\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n000000002\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n41\r\n", 413},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nabX\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\nab\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
         "1\r\na\r\n1\r\na\r\n1\r\na\r\n1\r\na\r\n1\r\na\r\n0\r\n\r\n",
         413},
        {"POST / HTTP/1.1\r\n" HOST "Expect: something\r\nContent-Length: 2\r\n\r\n", 417},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t length = strlen(rows[i].text);
        /* However the bytes come, the answer is the same. */
        for (size_t step = 1; step <= length; step += step < 3 ? 1 : length) {
            int status = status_of(rows[i].text, length, step);
            if (status != rows[i].status) {
                fail_msg("row %zu in steps of %zu: %d instead of %d", i, step, status,
                         rows[i].status);
            }
        }
    }
}

static void test_limits(void **state)
{
    char text[4096];
    (void)state;
    int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" HOST "A: %01000d\r\n\r\n", 0);
    assert_int_equal(status_of(text, (size_t)n, 7), 431);
    n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < BY__HTTP_HEADERS; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "a:b\r\n");
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "\r\n");
    assert_int_equal(status_of(text, (size_t)n, 7), 431);
    assert_int_equal(status_of("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 29, 7), 400);
}

/* Values of a query; the parser has refused what is malformed. */
static void test_query(void **state)
{
    static const struct {
        const char *query;
        const char *value; /* NULL: there is none */
    } rows[] = {{"a=b", "b"},     {"x=1&a=b+c%2B", "b c+"},
                {"%61=b", "b"},   {"a", ""},
                {"aa=b", NULL},   {"", NULL},
                {"b=a=1", NULL},  {"&&a=1", "1"},
                {"a=b=c", "b=c"}, {"a=12345678", NULL},
                {"A=1", NULL}};
    char value[8];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        long length = by__http_query_value(value, sizeof value, rows[i].query, "a");
        assert_true(by__http_query_valid(rows[i].query));
        assert_int_equal(length, rows[i].value == NULL ? -1 : (long)strlen(rows[i].value));
        assert_true(length < 0 || strcmp(value, rows[i].value) == 0);
    }
    char many[4 * (BY__QUERY_MAX + 1) + 1] = "";
    for (int i = 0; i < BY__QUERY_MAX; i++) {
        (void)snprintf(many + 4 * i, sizeof many - (size_t)(4 * i), "%03d&", i);
    }
    assert_true(by__http_query_valid(many));
    (void)snprintf(many + 4 * BY__QUERY_MAX, 5, "abc&");
    assert_false(by__http_query_valid(many));
}

static void test_parts(void **state)
{
    static const char text[] = "POST /v1/a%2Fb?x=1 HTTP/1.1\r\nHOST: h\r\nX-Key:  v w \t\r\n"
                               "X-Two: 1\r\nX-Two: 2\r\nContent-Length: 3\r\n\r\nabcGET /";
    by__http_parser *p = by__http_parser_open(&limits);
    size_t used;
    (void)state;
    assert_true(by__http_parser_idle(p));
    assert_int_equal(by__http_parser_feed(p, text, strlen(text), &used), BY__HTTP_HEAD);
    assert_int_equal(used, strlen(text) - 8);
    assert_string_equal(by__http_parser_request(p)->path, "/v1/a/b");
    assert_int_equal(by__http_parser_request(p)->plain, 5);
    size_t head = used;
    assert_int_equal(by__http_parser_feed(p, text + head, strlen(text) - head, &used),
                     BY__HTTP_DONE);
    used += head;
    assert_int_equal(used, strlen(text) - 5);
    const by__http_request *r = by__http_parser_request(p);
    assert_string_equal(r->method, "POST");
    assert_string_equal(r->path, "/v1/a/b");
    assert_string_equal(r->query, "x=1");
    assert_string_equal(r->body, "abc");
    assert_int_equal(r->body_length, 3);
    assert_true(r->keep_alive);
    assert_string_equal(by__http_header_of(r, "x-key"), "v w");
    assert_null(by__http_header_of(r, "x-two"));
    assert_null(by__http_header_of(r, "x-none"));
    by__http_parser_next(p);
    assert_true(by__http_parser_idle(p));
    assert_int_equal(by__http_parser_feed(p, text + used, 5, &used), BY__HTTP_MORE);
    by__http_parser_close(&p);
}

static void test_continue(void **state)
{
    static const char head[] =
        "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nConnection: close\r\n"
        "Connection: keep-alive\r\nContent-Length: 1\r\n\r\n"; /* two lines are one list */
    by__http_parser *p = by__http_parser_open(&limits);
    size_t used;
    (void)state;
    assert_int_equal(by__http_parser_feed(p, head, strlen(head), &used), BY__HTTP_HEAD);
    assert_int_equal(by__http_parser_feed(p, head, 0, &used), BY__HTTP_CONTINUE);
    assert_int_equal(by__http_parser_feed(p, head, 0, &used), BY__HTTP_MORE);
    assert_true(by__http_parser_in_body(p));
    assert_int_equal(by__http_parser_feed(p, "x", 1, &used), BY__HTTP_DONE);
    assert_false(by__http_parser_request(p)->keep_alive);
    by__http_parser_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_parts), cmocka_unit_test(test_query),
                                       cmocka_unit_test(test_continue)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
