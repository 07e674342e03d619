/* Webhooks: where messages may go, how they are signed, and when they are tried again; and the
 * sender against receivers that misbehave. */
#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve/gateway/tasks/webhook_send.h"
#include "temporary.h"

static char *directory;
static char *secret;

static by_serve_config *config_of(const char *lists)
{
    by_serve_config *config = NULL;
    by_error error = {0};
    char text[512];
    (void)snprintf(text, sizeof text, "webhooks: {secret: %s, timeout: 2, %s}", secret, lists);
    if (by_serve_config_parse(&config, "serve.yaml", text, strlen(text), &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return config;
}

static by__gateway_webhook_rules *rules_of(const by_serve_config *config)
{
    by__gateway_webhook_rules *rules = NULL;
    by_error error = {0};
    if (by__gateway_webhook_rules_open(&rules, &config->webhooks, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return rules;
}

static void test_urls(void **state)
{
    static const char *const taken[] = {
        "https://hooks.example.com/a?b=c", "HTTPS://Hooks.Example.COM:443/", "http://10.0.0.1:8080",
        "https://hooks.example.com",       "http://0x0a000001:8080/",
    };
    static const char *const refused[] = {
        "",
        "https://",
        "hooks.example.com",
        "https://example.com/",
        "https://hooks.example.com.evil.example/",
        "https://evil.example/hooks.example.com",
        "https://hooks.example.com:444/",
        "https://hooks.example.com./",
        "http://hooks.example.com/",
        "http://hooks.example.com:443/",
        "https://10.0.0.1:8080/",
        "http://10.0.0.1/",
        "http://10.0.0.2:8080/",
        "http://[::ffff:10.0.0.1]:8080/",
        "https://user@hooks.example.com/",
        "https://user:password@hooks.example.com/",
        "https://hooks.example.com\\@evil.example/",
        "https://evil.example\\@hooks.example.com/",
        "https://evil.example\\.hooks.example.com/",
        "https://hooks.example.com@evil.example/",
        "https://hooks.example.com#@evil.example:1/\n",
        "https://hooks.example.com/\r\nHost: evil.example",
        "https://hooks.example.com/ HTTP/1.1",
        "https://hooks.ex\xc3\xa4mple.com/",
        "file:///etc/passwd",
        "gopher://hooks.example.com:443/",
        "ftp://hooks.example.com/",
        "//hooks.example.com/",
    };
    by_serve_config *config =
        config_of("origins: ['https://hooks.example.com', 'http://10.0.0.1:8080']");
    by__gateway_webhook_rules *rules = rules_of(config);
    by_error error = {0};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(taken); i++) {
        if (by__gateway_webhook_check_url(rules, taken[i], &error) != BY_OK) {
            fail_msg("%s is refused: %s", taken[i], error.message);
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused); i++) {
        if (by__gateway_webhook_check_url(rules, refused[i], &error) != BY_EARG) {
            fail_msg("%s is taken", refused[i]);
        }
    }
    char *longest = calloc(1, BY__WEBHOOK_URL + 64);
    assert_non_null(longest);
    strcpy(longest, "https://hooks.example.com/");
    memset(longest + strlen(longest), 'a', BY__WEBHOOK_URL - strlen(longest));
    assert_int_equal(by__gateway_webhook_check_url(rules, longest, &error), BY_OK);
    longest[BY__WEBHOOK_URL] = 'a';
    assert_int_equal(by__gateway_webhook_check_url(rules, longest, &error), BY_EARG);
    free(longest);
    /* Nothing is listed. */
    assert_int_equal(by__gateway_webhook_check_url(NULL, taken[0], &error), BY_EARG);
    assert_non_null(strstr(error.message, "webhooks.origins"));
    by__gateway_webhook_rules_close(&rules);
    by_serve_config_close(&config);
}

static bool allows(const by__gateway_webhook_rules *rules, const char *text)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1) {
        return by__gateway_webhook_check_address(rules,
                                                 (const struct sockaddr *)(const void *)&four);
    }
    assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
    return by__gateway_webhook_check_address(rules, (const struct sockaddr *)(const void *)&six);
}

static void test_addresses(void **state)
{
    static const char *const public[] = {"8.8.8.8",      "1.1.1.1",        "172.15.0.1",
                                         "172.32.0.1",   "::ffff:8.8.8.8", "2a00:1450::1",
                                         "2606:4700::1", "100.63.255.255", "223.255.255.255"};
    static const char *const private[] = {"127.0.0.1",
                                          "127.255.255.254",
                                          "0.0.0.0",
                                          "10.0.0.1",
                                          "172.16.0.1",
                                          "172.31.255.255",
                                          "192.168.1.1",
                                          "169.254.169.254",
                                          "100.64.0.1",
                                          "192.0.0.8",
                                          "198.18.0.1",
                                          "224.0.0.1",
                                          "255.255.255.255",
                                          "240.0.0.1",
                                          "::",
                                          "::1",
                                          "fe80::1",
                                          "fc00::1",
                                          "fd12::1",
                                          "ff02::1",
                                          "::ffff:127.0.0.1",
                                          "::ffff:10.0.0.1",
                                          "::ffff:169.254.169.254",
                                          "::127.0.0.1",
                                          "64:ff9b::7f00:1",
                                          "64:ff9b:1::1",
                                          "2002:7f00:1::1",
                                          "2001::1",
                                          "2001:db8::1",
                                          "fec0::1"};
    by_serve_config *plain = config_of("origins: ['https://a.example']");
    by_serve_config *wide = config_of("origins: ['https://a.example'], networks: [127.0.0.0/8, "
                                      "10.1.2.3, 'fd00::/15', '2001:db8::/127']");
    by__gateway_webhook_rules *rules = rules_of(plain);
    by__gateway_webhook_rules *open = rules_of(wide);
    struct sockaddr local = {.sa_family = AF_UNIX};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(public); i++) {
        if (!allows(rules, public[i]) || !allows(open, public[i])) {
            fail_msg("%s is refused", public[i]);
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(private); i++) {
        if (allows(rules, private[i])) {
            fail_msg("%s is taken", private[i]);
        }
    }
    assert_false(by__gateway_webhook_check_address(open, &local));
    assert_true(allows(open, "127.3.2.1") && allows(open, "::ffff:127.3.2.1"));
    assert_true(allows(open, "10.1.2.3") && !allows(open, "10.1.2.2"));
    assert_true(allows(open, "fd01::1") && !allows(open, "fd02::1") && !allows(open, "fc00::1"));
    assert_true(allows(open, "2001:db8::1") && !allows(open, "2001:db8::2"));
    assert_false(allows(open, "::127.0.0.1"));
    by__gateway_webhook_rules_close(&rules);
    by__gateway_webhook_rules_close(&open);
    by_serve_config_close(&plain);
    by_serve_config_close(&wide);
}

/* The example of the reference implementations' tests. */
static void test_signature(void **state)
{
    static const char body[] = "{\"test\": 2432232314}";
    by_serve_config *config = config_of("origins: ['https://a.example']");
    by__gateway_webhook_rules *rules = rules_of(config);
    by_string out = {0};
    (void)state;
    by__gateway_webhook_sign(rules, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, strlen(body),
                             &out);
    assert_string_equal(out.data, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    by_string_free(&out);
    by__gateway_webhook_rules_close(&rules);
    by_serve_config_close(&config);
}

static void test_pauses(void **state)
{
    (void)state;
    for (int64_t tries = 1; tries < 200; tries++) {
        double whole = by__gateway_webhook_pause(5.0, tries, 0.0);
        assert_true(whole == (tries < 11 ? 5.0 * (double)(1 << (tries - 1)) : 3600.0));
        assert_true(by__gateway_webhook_pause(5.0, tries, 1.0) == 0.5 * whole);
    }
}

static void test_bad_settings(void **state)
{
    static const char *const rows[][2] = {
        {"origins: [hooks.example.com]", "hooks.example.com"},
        {"origins: ['https://a.example/']", "not an origin"},
        {"origins: ['https://a.example?b']", "not an origin"},
        {"origins: ['ftp://a.example']", "not an origin"},
        {"origins: ['https://u@a.example']", "not an origin"},
        {"origins: ['https://a.example'], networks: [10.0.0.0/33]", "10.0.0.0/33"},
        {"origins: ['https://a.example'], networks: ['::/129']", "::/129"},
        {"origins: ['https://a.example'], networks: [10.0.0/8]", "10.0.0/8"},
        {"origins: ['https://a.example'], networks: [10.0.0.0/]", "10.0.0.0/"},
        {"origins: ['https://a.example'], networks: [10.0.0.0/-1]", "10.0.0.0/-1"},
        {"origins: ['https://a.example'], networks: [localhost]", "localhost"},
        {"origins: ['https://a.example'], secret: ''", "webhooks.secret"},
        {"origins: ['https://a.example'], secret: /nonexistent/secret", "no file"},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_serve_config *config = NULL;
        by__gateway_webhook_rules *rules = NULL;
        by_error error = {0};
        char text[512];
        bool own = strstr(rows[i][0], "secret:") != NULL;
        (void)snprintf(text, sizeof text, "webhooks: {%s%s%s%s}",
                       own ? "" : "secret: ", own ? "" : secret, own ? "" : ", ", rows[i][0]);
        assert_int_equal(by_serve_config_parse(&config, "serve.yaml", text, strlen(text), &error),
                         BY_OK);
        by_status status = by__gateway_webhook_rules_open(&rules, &config->webhooks, &error);
        if (status != BY_ECONFIG || strstr(error.message, rows[i][1]) == NULL) {
            fail_msg("%s: %d, %s", rows[i][0], (int)status, error.message);
        }
        assert_null(rules);
        by_serve_config_close(&config);
    }
}

static void test_secrets(void **state)
{
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true},
        {"\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\r\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
         true},
        {"", false},
        {"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2La", false},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS?", false},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw x", false},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\nelse\n", false},
    };
    char *path = by__path_join(directory, "other");
    char *first = secret;
    (void)state;
    secret = path;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by__gateway_webhook_rules *rules = NULL;
        by_error error = {0};
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(rows[i].text, file);
        fclose(file);
        by_serve_config *config = config_of("origins: ['https://a.example']");
        by_status status = by__gateway_webhook_rules_open(&rules, &config->webhooks, &error);
        if (status != (rows[i].good ? BY_OK : BY_ECONFIG)) {
            fail_msg("%s: %d, %s", rows[i].text, (int)status, error.message);
        }
        assert_null(strstr(error.message, "MfKQ"));
        by__gateway_webhook_rules_close(&rules);
        by_serve_config_close(&config);
    }
    secret = first;
    free(path);
}

/* ---- the sender ---- */

/* A receiver that takes connections one by one and writes the same answer to each. */
typedef struct receiver {
    int fd;
    int port;
    pthread_t thread;
    const char *answer;
    size_t repeats; /* of the answer's last line, to make it long */
    int taken;
} receiver;

static void *receive(void *user)
{
    receiver *r = user;
    for (int fd; (fd = accept(r->fd, NULL, NULL)) >= 0; close(fd)) {
        char buffer[4096];
        r->taken++;
        if (recv(fd, buffer, sizeof buffer, 0) > 0) {
            (void)!send(fd, r->answer, strlen(r->answer), MSG_NOSIGNAL);
            for (size_t i = 0; i < r->repeats; i++) {
                if (send(fd, buffer, sizeof buffer, MSG_NOSIGNAL) < 0) {
                    break;
                }
            }
        }
    }
    return NULL;
}

static void receiver_begin(receiver *r, const char *answer, size_t repeats)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *r = (receiver){.fd = socket(AF_INET, SOCK_STREAM, 0), .answer = answer, .repeats = repeats};
    assert_int_equal(bind(r->fd, (const struct sockaddr *)(const void *)&address, length), 0);
    assert_int_equal(listen(r->fd, 8), 0);
    assert_int_equal(getsockname(r->fd, (struct sockaddr *)(void *)&address, &length), 0);
    r->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&r->thread, NULL, receive, r), 0);
}

static void receiver_end(receiver *r)
{
    (void)shutdown(r->fd, SHUT_RDWR);
    (void)pthread_join(r->thread, NULL);
    close(r->fd);
}

typedef struct outcome {
    uv_loop_t *loop;
    by__gateway_webhook_message *message;
} outcome;

static void on_ended(void *user, by__gateway_webhook_message *message)
{
    outcome *o = user;
    o->message = message;
    uv_stop(o->loop);
}

/* Sends one message to the receiver by a host, and gives what became of it. */
static by__gateway_webhook_message *deliver(const receiver *r, const char *host,
                                            const char *networks)
{
    uv_loop_t loop;
    outcome o = {.loop = &loop};
    by__gateway_webhook_sender *sender = NULL;
    by_error error = {0};
    char lists[128];
    char url[64];
    (void)snprintf(lists, sizeof lists, "origins: ['http://%s:%d'], networks: [%s]", host, r->port,
                   networks);
    (void)snprintf(url, sizeof url, "http://%s:%d/hook", host, r->port);
    by_serve_config *config = config_of(lists);
    by__gateway_webhook_rules *rules = rules_of(config);
    by__gateway_webhook_message *m = calloc(1, sizeof *m);
    assert_non_null(m);
    strcpy(m->id, "task_1");
    m->tries = 1;
    m->url = by__strdup(url);
    m->body = by__strdup("{}");
    assert_int_equal(by__gateway_webhook_check_url(rules, url, &error), BY_OK);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__gateway_webhook_sender_open(&sender, &loop, rules, &config->webhooks,
                                                     on_ended, &o, &error),
                     BY_OK);
    by__gateway_webhook_send(sender, m);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    by__gateway_webhook_sender_close(&sender);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    by__gateway_webhook_rules_close(&rules);
    by_serve_config_close(&config);
    assert_non_null(o.message);
    return o.message;
}

/* The sender is closed while a message is on its way: the receiver has it and does not answer. */
static void test_close(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    uv_loop_t loop;
    outcome o = {.loop = &loop};
    by__gateway_webhook_sender *sender = NULL;
    by_error error = {0};
    char url[64];
    char lists[128];
    (void)state;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)(const void *)&address, length), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)(void *)&address, &length), 0);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/hook", ntohs(address.sin_port));
    (void)snprintf(lists, sizeof lists, "origins: ['http://127.0.0.1:%d'], networks: [127.0.0.0/8]",
                   ntohs(address.sin_port));
    by_serve_config *config = config_of(lists);
    by__gateway_webhook_rules *rules = rules_of(config);
    by__gateway_webhook_message *m = calloc(1, sizeof *m);
    assert_non_null(m);
    strcpy(m->id, "task_1");
    m->url = by__strdup(url);
    m->body = by__strdup("{}");
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__gateway_webhook_sender_open(&sender, &loop, rules, &config->webhooks,
                                                     on_ended, &o, &error),
                     BY_OK);
    by__gateway_webhook_send(sender, m);
    int taken = accept(fd, NULL, NULL); /* the message is on its way */
    char byte;
    assert_int_equal(recv(taken, &byte, 1, 0), 1);
    by__gateway_webhook_sender_close(&sender);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_null(o.message);
    close(taken);
    close(fd);
    by__gateway_webhook_rules_close(&rules);
    by_serve_config_close(&config);
}

static void expect(const char *answer, size_t repeats, const char *host, const char *networks,
                   long status, int taken, const char *reason)
{
    /* What comes out the same however often it is tried. */
    bool permanent = status == 410 || strstr(reason, "not public") != NULL ||
                     strstr(reason, "more than") != NULL;
    receiver r;
    receiver_begin(&r, answer, repeats);
    by__gateway_webhook_message *m = deliver(&r, host, networks);
    receiver_end(&r);
    if (m->status != status || r.taken != taken || m->permanent != permanent ||
        strstr(m->reason, reason) == NULL) {
        fail_msg("%s: status %ld, %d connections, %s", host, m->status, r.taken, m->reason);
    }
    by__gateway_webhook_message_free(m);
}

static void test_receivers(void **state)
{
    static const char fine[] = "HTTP/1.1 204 No Content\r\n\r\n";
    static const char moved[] = "HTTP/1.1 307 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n";
    static const char endless[] = "HTTP/1.1 200 OK\r\n\r\n";
    (void)state;
    expect(fine, 0, "127.0.0.1", "127.0.0.0/8", 204, 1, "");
    /* A redirect is an answer, not a way. */
    expect(moved, 0, "127.0.0.1", "127.0.0.0/8", 307, 1, "");
    expect("HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", 0, "127.0.0.1", "127.0.0.0/8", 410, 1,
           "");
    expect("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 0, "127.0.0.1", "127.0.0.0/8", 500, 1,
           "");
    /* The origin is listed, and its address is not public: no connection is made, by whichever
     * name. */
    expect(fine, 0, "127.0.0.1", "", 0, 0, "not public");
    expect(fine, 0, "localhost", "", 0, 0, "not public");
    expect(fine, 0, "localhost", "10.0.0.0/8", 0, 0, "not public");
    expect(fine, 0, "[::ffff:127.0.0.1]", "", 0, 0, "not public");
    expect(fine, 0, "0.0.0.0", "", 0, 0, "not public");
    expect(fine, 0, "[::]", "", 0, 0, "not public");
    expect(fine, 0, "[fd00::1]", "", 0, 0, "not public");
    expect(fine, 0, "[fe80::1]", "", 0, 0, "not public");
    expect(fine, 0, "[64:ff9b::7f00:1]", "", 0, 0, "not public");
    expect(fine, 0, "169.254.169.254", "", 0, 0, "not public");
    expect(fine, 0, "0x7f000001", "", 0, 0, "not public");
    expect(fine, 0, "2130706433", "", 0, 0, "not public");
    expect(endless, 1 << 16, "127.0.0.1", "127.0.0.0/8", 0, 1, "more than 65536 bytes");
    /* What would be taken for the end of one answer and the beginning of another. */
    expect("not http\r\n\r\n", 0, "127.0.0.1", "127.0.0.0/8", 0, 1, "HTTP/0.9");
}

/* The environment's proxy would be connected to in the place of the address that was looked at. */
static void test_proxy(void **state)
{
    (void)state;
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
    expect("HTTP/1.1 204 No Content\r\n\r\n", 0, "127.0.0.1", "127.0.0.0/8", 204, 1, "");
    assert_int_equal(unsetenv("http_proxy"), 0);
}

static int set_up(void **state)
{
    (void)state;
    directory = temporary_make();
    secret = directory == NULL ? NULL : by__path_join(directory, "secret");
    FILE *file = secret == NULL ? NULL : fopen(secret, "w");
    if (file == NULL) {
        return -1;
    }
    fputs("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", file);
    return fclose(file);
}

static int tear_down(void **state)
{
    (void)state;
    free(secret);
    temporary_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls),         cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_signature),    cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_bad_settings), cmocka_unit_test(test_receivers),
        cmocka_unit_test(test_close),        cmocka_unit_test(test_proxy),
        cmocka_unit_test(test_secrets),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
