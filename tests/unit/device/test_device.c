/* The device interface on the CPU: memory, copies, events, what a program accepts, and where
 * errors go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "ops/ops.h"
#include "runner.h"

static by_device *open_cpu(void)
{
    by_error error = {0};
    by_device *device = NULL;
    check_ok(by_device_open(&device, "cpu", 2, &error), &error);
    return device;
}

static void test_open(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device = NULL;
    by_device_info info;
    by_status status = by_device_open(&device, "abacus", 1, &error);
    check_error(status, BY_EARG, &error, "no device 'abacus' in this build, which has: cpu");
    assert_null(device);

    device = open_cpu();
    check_ok(by_device_describe(&info, device, &error), &error);
    assert_string_equal(info.kind, "cpu");
    assert_int_equal(strncmp(info.name, "cpu ", 4), 0);
    assert_string_equal(info.name + 4, info.level);
    assert_true(strstr(info.version, BY_VERSION) != NULL);
    assert_int_equal(info.threads, 2);
    assert_int_equal(info.alignment, 64);
    assert_true(info.host_memory);
    assert_true(info.memory_total > 0 && info.memory_free <= info.memory_total);
    by_device_close(&device);
    assert_null(device);
    by_device_close(&device);
}

/* Names of devices: kinds, numbers, and what "auto" means. */
static void test_names(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *name;
        const char *refusal; /* NULL: it means "cpu" */
    } cases[] = {
        {"cpu", NULL},
        {"cpu:0", NULL},
        {"auto", NULL},
        {"cpu:1", "has 1 of the kind cpu, numbered from 0"},
        {"abacus:1", "no device 'abacus:1' in this build, which has: cpu, cuda"},
        {"cpu:", "a number must follow the colon, as in cpu:0"},
        {"cpu:-1", "a number must follow"},
        {"cpu:0x", "a number must follow"},
        {"cpu:99999999999999999999", "a number must follow"},
        {"auto:0", "no device 'auto:0'"},
        {"CPU", "no device 'CPU'"},
        {"cp", "no device 'cp'"},
        {"", "no device ''"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        by_device *device = NULL;
        char name[BY_DEVICE_NAME] = "";
        by_status status = by_device_resolve(name, cases[i].name, &error);
        if (cases[i].refusal == NULL) {
            check_ok(status, &error);
            assert_string_equal(name, "cpu");
            continue;
        }
        check_error(status, BY_EARG, &error, cases[i].refusal);
        check_error(by_device_open(&device, cases[i].name, 1, &error), BY_EARG, &error,
                    cases[i].refusal);
    }
}

static void test_memory(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device = open_cpu();
    by_memory memory;
    by_memory other;
    by_pinned pinned;
    char back[8];
    check_ok(by_device_alloc(&memory, device, 100, "a test", &error), &error);
    check_ok(by_device_alloc(&other, device, 8, "a test", &error), &error);
    check_ok(by_device_pin(&pinned, device, 8, "a test", &error), &error);
    assert_int_equal(memory.bytes, 100);
    check_ok(by_device_read(back, by_memory_at(memory, 92, 8), &error), &error);
    assert_memory_equal(back, "\0\0\0\0\0\0\0\0", 8);

    check_ok(by_device_write(by_memory_at(memory, 8, 8), "01234567", &error), &error);
    check_ok(by__device_copy(BY__QUEUE_COMPUTE, other, by_memory_at(memory, 8, 8), &error), &error);
    check_ok(by__device_fill(BY__QUEUE_COMPUTE, by_memory_at(other, 6, 2), '-', &error), &error);
    check_ok(by__device_copy_out(BY__QUEUE_COPY_OUT, pinned.data, other, &error), &error);
    check_ok(by__device_queue_finish(device, BY__QUEUE_COPY_OUT, &error), &error);
    assert_memory_equal(pinned.data, "012345--", 8);
    check_ok(by__device_copy_in(BY__QUEUE_COPY_IN, by_memory_at(memory, 0, 8), pinned.data, &error),
             &error);
    check_ok(by_device_finish(device, &error), &error);
    check_ok(by_device_read(back, by_memory_at(memory, 4, 8), &error), &error);
    assert_memory_equal(back, "45--0123", 8);

    assert_int_equal(by_memory_at(memory, 100, 0).bytes, 0);
    assert_int_equal(by_memory_at(memory, 101, 0).address, 0);
    assert_int_equal(by_memory_at(memory, 96, 5).address, 0);
    by_status status = by_device_read(back, by_memory_at(memory, 96, 8), &error);
    check_error(status, BY_EARG, &error, "read: there is no memory");
    status = by_device_write(by_host_memory(back, 8), back, &error);
    check_error(status, BY_EARG, &error, "write: this is host memory");
    status = by__device_copy(BY__QUEUE_COMPUTE, memory, other, &error);
    check_error(status, BY_EARG, &error, "copy: 8 bytes to 100 bytes");
    status = by_device_alloc(&memory, device, SIZE_MAX - 4096, "the gradients", &error);
    check_error(status, BY_EMEMORY, &error, "the gradients");

    by_device_unpin(&pinned);
    by_device_free(&other);
    by_device_free(&memory);
    assert_int_equal(memory.bytes, 0);
    by_device_free(&memory);
    by_device_close(&device);
}

static void test_events(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device = open_cpu();
    by__device_event *events[2];
    bool done = false;
    double seconds = -1.0;
    for (int i = 0; i < 2; i++) {
        check_ok(by__device_event_open(&events[i], device, true, &error), &error);
        check_ok(by__device_event_wait(events[i], &error), &error); /* it stands for nothing yet */
        check_ok(by__device_event_record(events[i], BY__QUEUE_COMPUTE, &error), &error);
    }
    check_ok(by__device_event_order(events[1], BY__QUEUE_COPY_OUT, &error), &error);
    check_ok(by__device_event_wait(events[1], &error), &error);
    check_ok(by__device_event_done(&done, events[1], &error), &error);
    check_ok(by__device_event_seconds(&seconds, events[0], events[1], &error), &error);
    assert_true(done && seconds >= 0.0 && seconds < 60.0);
    by__device_event_close(&events[0]);
    by__device_event_close(&events[1]);
    by__device_event_close(&events[1]);
    by_device_close(&device);
}

typedef struct told {
    int count;
    by_error error;
} told;

static void tell(void *user, by_status status, const by_error *error)
{
    told *t = user;
    t->count++;
    t->error = *error;
    assert_int_equal(status, error->status);
}

/* Programs take memory of their own device only; errors are told to whoever asked. */
static void test_program(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device = open_cpu();
    by_device *other = open_cpu();
    by_graph *graph = open_graph();
    by_program *program;
    by_memory ids_memory, table_memory, y_memory, elsewhere;
    told t = {0};
    by_value ids = by_graph_input(graph, "ids", BY_I32, BY_SHAPE(4));
    by_value table = by_graph_parameter(graph, "table", NULL, BY_SHAPE(5, 8), (by_init){0});
    by_graph_output(graph, by_embedding(graph, ids, table), "y");
    by_value y = by_graph_find(graph, "y");
    check_ok(by_program_compile(&program, graph, device, "lookup", &error), &error);
    check_ok(by_device_alloc(&ids_memory, device, 16, "ids", &error), &error);
    check_ok(by_device_alloc(&table_memory, device, 160, "table", &error), &error);
    check_ok(by_device_alloc(&y_memory, device, 128, "y", &error), &error);
    check_ok(by_device_alloc(&elsewhere, other, 16, "ids", &error), &error);
    by__device_on_error(device, tell, &t);

    by_status status = by_program_bind(program, ids, elsewhere, &error);
    check_error(status, BY_EARG, &error, "the buffer of 'ids' is not memory of the program's");
    check_ok(by_program_bind(program, ids, ids_memory, &error), &error);
    check_ok(by_program_bind(program, table, table_memory, &error), &error);
    assert_int_equal(t.count, 0);
    status = by_program_run(program, NULL);
    assert_int_equal(status, BY_ESTATE);
    assert_int_equal(t.count, 1);
    assert_string_equal(t.error.message, "lookup: 'y' is not bound to a buffer");

    float values[40];
    float rows[32];
    const int32_t good[4] = {4, 0, 1, 4};
    const int32_t bad[4] = {4, 0, 5, 4};
    for (int i = 0; i < 40; i++) {
        values[i] = (float)i;
    }
    check_ok(by_program_bind(program, y, y_memory, &error), &error);
    check_ok(by_program_check(program, ids, good, &error), &error);
    check_ok(by_program_check(program, table, bad, &error), &error); /* it is no index */
    status = by_program_check(program, ids, bad, &error);
    check_error(status, BY_EARG, &error, "'ids' holds 5 at place 2; it must be less than 5");
    check_ok(by_device_write(ids_memory, bad, &error), &error);
    check_ok(by_device_write(table_memory, values, &error), &error);
    check_ok(by_program_submit(program, &error), &error);
    check_ok(by_device_read(rows, y_memory, &error), &error);
    assert_true(rows[0] == 32.0f && rows[8] == 0.0f && rows[24] == 32.0f);
    assert_true(rows[16] == 0.0f && rows[23] == 0.0f); /* an id out of range reads nothing */

    assert_int_equal(by__device_report(device, BY_EIO, NULL), BY_EIO);
    assert_int_equal(t.count, 2);
    assert_int_equal(by__device_report(device, BY_OK, NULL), BY_OK);
    assert_int_equal(t.count, 2);

    by_program_close(&program);
    by_device_free(&ids_memory);
    by_device_free(&table_memory);
    by_device_free(&y_memory);
    by_device_free(&elsewhere);
    by_device_close(&device);
    by_device_close(&other);
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),    cmocka_unit_test(test_names),
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_events),
        cmocka_unit_test(test_program),

    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
