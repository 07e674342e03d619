/* Lists of events, and events in slices: their order, what the loop does between them, and what a
 * full queue does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/link/core/event_queue.h"
#include "serve/protocol/messages.h"

typedef struct reader {
    by__link_event_queue queue;
    int64_t next;  /* the number that is expected */
    int64_t stop;  /* at which the queue is cleared; 0: never */
    int64_t lasts; /* seconds / 1e6 that an event takes */
    size_t most;   /* bytes that have waited at a time */
    int zero2;     /* of the loop, while events wait */
    int holds;     /* how often the link was held */
    int goes_on;   /* how often it was let go on */
    bool wrong;
} reader;

static void on_event(void *user, const by__serve_event *event)
{
    reader *r = user;
    double end = by__now() + (double)r->lasts * 1e-6;
    r->wrong = r->wrong || event->attempt != r->next || event->length != 5 ||
               memcmp(event->data, "abcde", 5) != 0;
    r->next++;
    r->most = r->queue.bytes > r->most ? r->queue.bytes : r->most;
    while (by__now() < end) {
    }
    if (r->next == r->stop) {
        by__link_event_queue_clear(&r->queue);
    }
}

static void on_hold(void *user, bool holds)
{
    reader *r = user;
    r->holds += holds;
    r->goes_on += !holds;
    r->wrong = r->wrong ||
               (holds ? r->queue.bytes <= BY__EVENTS_WAIT : r->queue.bytes > BY__EVENTS_WAIT / 2);
}

static void on_turn(uv_prepare_t *turn)
{
    reader *r = turn->data;
    r->zero2++;
    if (r->queue.first == NULL) {
        uv_stop(turn->loop);
    }
}

/* Adds `batches` of `size` numbers in their order, and runs the loop until they are gone. */
static void run(reader *r, int64_t batches, int64_t size)
{
    uv_loop_t loop;
    uv_prepare_t turn;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_prepare_init(&loop, &turn), 0);
    turn.data = r;
    by__link_event_queue_open(
        &r->queue, &loop,
        &(by__link_event_handler){.event = on_event, .pause = on_hold, .user = r});
    for (int64_t b = 0; b < batches; b++) {
        by_string events = {0};
        for (int64_t i = 0; i < size; i++) {
            by__protocol_events_add_piece(&events, "a-request-0", b * size + i, 0, "abcde", 5);
        }
        assert_false(events.failed);
        assert_true(by__link_event_queue_add(&r->queue, events.data, events.length));
        by_string_free(&events);
    }
    uv_prepare_start(&turn, on_turn);
    uv_run(&loop, UV_RUN_DEFAULT);
    by__link_event_queue_close(&r->queue);
    uv_close((uv_handle_t *)&turn, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_false(r->wrong);
}

static void test_order(void **state)
{
    reader r = {0};
    (void)state;
    run(&r, 7, 1000);
    assert_int_equal(r.next, 7000);
}

/* The loop turns between events that take long, and between those of a large step, each of which
 * may have to be written to a stream of its own at the end of the turn. */
static void test_turns(void **state)
{
    reader slow = {.lasts = 500};
    reader many = {0};
    (void)state;
    run(&slow, 1, 200);
    assert_int_equal(slow.next, 200);
    assert_true(slow.zero2 >= 5);
    assert_int_equal(slow.holds, 0);
    run(&many, 1, 5000);
    assert_int_equal(many.next, 5000);
    assert_true(many.zero2 >= 5000 / 200);
}

static void test_clear(void **state)
{
    reader r = {.stop = 1500};
    (void)state;
    run(&r, 3, 1000);
    assert_int_equal(r.next, 1500);
}

/* What is above the bound is handed out at once, in order; the link is held meanwhile. */
static void test_full(void **state)
{
    reader r = {0};
    (void)state;
    run(&r, 40, 10000);
    assert_int_equal(r.next, 400000);
    assert_in_range(r.most, BY__EVENTS_MAX / 2, BY__EVENTS_MAX + 400000);
    assert_int_equal(r.holds, 1);
    assert_int_equal(r.goes_on, 1);
}

static void test_empty(void **state)
{
    reader r = {0};
    uv_loop_t loop;
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    by__link_event_queue_open(&r.queue, &loop,
                              &(by__link_event_handler){.event = on_event, .user = &r});
    assert_true(by__link_event_queue_add(&r.queue, NULL, 0));
    assert_null(r.queue.first);
    by__link_event_queue_close(&r.queue);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* What is written reads back, and what is cut or bent is no list. */
static void test_list(void **state)
{
    static const char text[] = "a \"b\"\n";
    by_string list = {0};
    by__serve_event e;
    size_t at = 0;
    json_t *stop = json_pack("{ss ss si ss}", "id", "x-1", "e", "stop", "i", 1, "reason", "length");
    json_t *none = json_pack("{ss ss}", "id", "x 1", "e", "stop");
    (void)state;
    by__protocol_events_add_piece(&list, "x-0", 3, 2, text, sizeof text - 1);
    by__protocol_events_add(&list, 4, stop);
    by__protocol_events_add(&list, 4, none);
    assert_false(list.failed);
    assert_true(by__protocol_events_valid(list.data, list.length));
    assert_true(by__protocol_events_next(list.data, list.length, &at, &e));
    assert_true(e.kind == BY__EVENT_PIECE && e.attempt == 3 && e.sequence == 2);
    assert_string_equal(e.id, "x-0");
    json_t *json = by__protocol_event_json(&e);
    assert_string_equal(by__protocol_get_text(json, "text"), text);
    assert_int_equal(by__protocol_get_integer(json, "i"), 2);
    json_decref(json);
    assert_true(by__protocol_events_next(list.data, list.length, &at, &e));
    assert_true(e.kind == BY__EVENT_STOP && !by__protocol_event_ends(&e));
    json = by__protocol_event_json(&e);
    assert_true(json_equal(json, stop));
    json_decref(json);
    assert_false(by__protocol_events_next(list.data, list.length, &at, &e));
    assert_int_equal(at, list.length);
    for (size_t n = 1; n < list.length; n++) {
        /* Between the two events it is a list of one. */
        assert_int_equal(by__protocol_events_valid(list.data, n),
                         n == 4 + 6 + 4 + 1 + sizeof text - 1);
    }
    list.data[5] = 4; /* the id ends elsewhere */
    assert_false(by__protocol_events_valid(list.data, list.length));
    by_string_free(&list);
    json_decref(stop);
    json_decref(none);
}

/* A request whose end cannot be read ends with an error; other events that cannot are none. */
static void test_bad_json(void **state)
{
    by__serve_event e = {.kind = BY__EVENT_END, .id = "x-0", .data = "{", .length = 1};
    (void)state;
    json_t *json = by__protocol_event_json(&e);
    assert_int_equal(by__protocol_get_integer(json, "status"), 500);
    json_decref(json);
    e.kind = BY__EVENT_STOP;
    assert_null(by__protocol_event_json(&e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order),   cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_clear),   cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_empty),   cmocka_unit_test(test_list),
                                       cmocka_unit_test(test_bad_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
