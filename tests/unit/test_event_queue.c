/* Events in slices: their order, what the loop does between them, and what a full queue does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/event_queue.h"

typedef struct reader {
    by__event_queue queue;
    json_int_t next;  /* the number that is expected */
    json_int_t stop;  /* at which the queue is cleared; 0: never */
    json_int_t lasts; /* seconds / 1e6 that an event takes */
    int turns;        /* of the loop, while events wait */
    bool wrong;
} reader;

static void on_event(void *user, const json_t *event)
{
    reader *r = user;
    double end = by__now() + (double)r->lasts * 1e-6;
    r->wrong = r->wrong || json_integer_value(event) != r->next;
    r->next++;
    while (by__now() < end) {
    }
    if (r->next == r->stop) {
        by__event_queue_clear(&r->queue);
    }
}

static void on_turn(uv_prepare_t *turn)
{
    reader *r = turn->data;
    r->turns++;
    if (r->queue.count == 0) {
        uv_stop(turn->loop);
    }
}

/* Adds `batches` of `size` numbers in their order, and runs the loop until they are gone. */
static void run(reader *r, json_int_t batches, json_int_t size)
{
    uv_loop_t loop;
    uv_prepare_t turn;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_prepare_init(&loop, &turn), 0);
    turn.data = r;
    by__event_queue_open(&r->queue, &loop, on_event, r);
    for (json_int_t b = 0; b < batches; b++) {
        json_t *events = json_array();
        for (json_int_t i = 0; i < size; i++) {
            json_array_append_new(events, json_integer(b * size + i));
        }
        assert_true(by__event_queue_add(&r->queue, events));
        json_decref(events);
    }
    uv_prepare_start(&turn, on_turn);
    uv_run(&loop, UV_RUN_DEFAULT);
    by__event_queue_close(&r->queue);
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

/* Events that take long: the loop turns between them. */
static void test_turns(void **state)
{
    reader r = {.lasts = 500};
    (void)state;
    run(&r, 1, 200);
    assert_int_equal(r.next, 200);
    assert_true(r.turns >= 5);
}

static void test_clear(void **state)
{
    reader r = {.stop = 1500};
    (void)state;
    run(&r, 3, 1000);
    assert_int_equal(r.next, 1500);
}

/* What is above the bound is handed out at once, in order. */
static void test_full(void **state)
{
    reader r = {0};
    (void)state;
    run(&r, 20, 10000);
    assert_int_equal(r.next, 200000);
}

static void test_empty(void **state)
{
    reader r = {0};
    uv_loop_t loop;
    json_t *none = json_array();
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    by__event_queue_open(&r.queue, &loop, on_event, &r);
    assert_true(by__event_queue_add(&r.queue, none));
    assert_true(by__event_queue_add(&r.queue, NULL));
    assert_int_equal(r.queue.count, 0);
    by__event_queue_close(&r.queue);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    json_decref(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_clear), cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
