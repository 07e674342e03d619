#include "serve/link/broker_link.h"

#include <string.h>

#include "serve/link/core/redis_address.h"
#include "serve/link/link_connect.h"

/* Milliseconds between attempts. */
#define RETRY 100
/* Seconds before a broker that was never reached is logged as lost, and between log entries while
 * it is unreachable. */
#define PATIENCE 2.0
#define REMINDER 10.0

static void attempt(by__link_broker *b);

static void on_retry(uv_timer_t *timer)
{
    attempt(timer->data);
}

/* The address for the log: without password and options. */
static void print_address(char out[256], const char *broker)
{
    char text[2048];
    char password[BY_SERVE_PASSWORD_BYTES];
    (void)snprintf(text, sizeof text, "%s", broker);
    if (by__link_redis_is_address(text)) {
        (void)by_serve_extract_password(text, password);
        explicit_bzero(password, sizeof password);
        text[strcspn(text, "?")] = '\0';
    }
    (void)snprintf(out, 256, "%.255s", text);
}

/* Logged at once if the broker was connected before; then at intervals. */
static void log_lost(by__link_broker *b, const char *why)
{
    double now = by__now();
    b->away = b->ready ? now : b->away;
    double due = b->logged > 0.0 ? b->logged + REMINDER : b->reached ? b->away : b->away + PATIENCE;
    if (b->handler.log != NULL && now >= due) {
        char address[256];
        char reason[512];
        print_address(address, b->broker);
        (void)snprintf(reason, sizeof reason, "%s: %.250s", address, why);
        by__telemetry_log_event(b->handler.log, "broker_lost", "{ss sf}", "reason", reason,
                                "seconds", now - b->away);
        b->logged = now;
    }
}

static void log_back(by__link_broker *b)
{
    if (b->logged > 0.0) {
        char address[256];
        print_address(address, b->broker);
        by__telemetry_log_event(b->handler.log, "broker_back", "{ss sf}", "broker", address,
                                "seconds", by__now() - b->away);
    }
    b->logged = 0.0;
    b->reached = true;
}

static void connection_lost(by__link_broker *b, const char *why)
{
    log_lost(b, why);
    b->link = NULL;
    b->ready = false;
    (void)uv_timer_start(&b->retry, on_retry, RETRY, 0);
    if (b->handler.lost != NULL) {
        b->handler.lost(b->handler.user, why);
    }
}

static void on_message(void *user, by__link *link, json_t *message)
{
    const by__link_broker *b = user;
    BY_UNUSED(link);
    if (b->handler.message != NULL) {
        b->handler.message(b->handler.user, message);
    }
}

static void on_events(void *user, by__link *link, const char *list, size_t length)
{
    const by__link_broker *b = user;
    BY_UNUSED(link);
    if (b->handler.events != NULL) {
        b->handler.events(b->handler.user, list, length);
    }
}

static void on_ready(void *user, by__link *link)
{
    by__link_broker *b = user;
    BY_UNUSED(link);
    b->ready = true;
    log_back(b);
    if (b->handler.ready != NULL) {
        b->handler.ready(b->handler.user);
    }
}

static void on_lost(void *user, by__link *link, const char *why)
{
    by__link_broker *b = user;
    if (link->refused && b->handler.refused != NULL) {
        b->link = NULL;
        b->ready = false;
        b->handler.refused(b->handler.user, why);
    } else {
        connection_lost(b, why);
    }
}

static void attempt(by__link_broker *b)
{
    by__link_handler handler = {
        .message = on_message, .events = on_events, .lost = on_lost, .ready = on_ready, .user = b};
    by_error error = {0};
    by_status status = by__link_connect(&b->link, b->loop, b->broker, b->dialer, &handler, &error);
    if (status == BY_ESTATE && b->handler.refused != NULL) {
        b->handler.refused(b->handler.user, error.message);
    } else if (status != BY_OK) {
        log_lost(b, error.message);
        (void)uv_timer_start(&b->retry, on_retry, RETRY, 0);
    } else {
        if (b->handler.hello != NULL) {
            b->handler.hello(b->handler.user);
        }
        if (b->link != NULL && b->link->connected) {
            on_ready(b, b->link);
        }
    }
}

void by__link_broker_open(by__link_broker *b, uv_loop_t *loop, const char *broker,
                          by__link_dialer *dialer, const by__link_broker_handler *handler)
{
    *b = (by__link_broker){
        .loop = loop, .broker = broker, .dialer = dialer, .handler = *handler, .away = by__now()};
    (void)uv_timer_init(loop, &b->retry); /* cannot fail */
    b->retry.data = b;
    attempt(b);
}

bool by__link_broker_send(by__link_broker *b, const json_t *message)
{
    return b->link != NULL && by__link_send(b->link, message);
}

bool by__link_broker_send_events(by__link_broker *b, const char *list, size_t length)
{
    return b->link != NULL && by__link_send_events(b->link, list, length);
}

size_t by__link_broker_unsent(const by__link_broker *b)
{
    return b->link == NULL ? 0 : by__link_unsent(b->link);
}

void by__link_broker_pause(by__link_broker *b, bool pauses)
{
    if (b->link != NULL) {
        by__link_pause(b->link, pauses);
    }
}

void by__link_broker_drop(by__link_broker *b, const char *why)
{
    by__link *link = b->link;
    if (link != NULL) {
        by__link_close(&link);
        connection_lost(b, why);
    }
}

void by__link_broker_close(by__link_broker *b)
{
    by__link_close(&b->link);
    uv_close((uv_handle_t *)&b->retry, NULL);
}
