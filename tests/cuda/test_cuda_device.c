/* The device of a GPU on stand-ins: memory, copies, events, errors; and that what a host program
 * does wrongly with streams and memory does not stay hidden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/device_meter.h"
#include "device/device.h"
#include "runner.h"
#include "temporary.h"

#ifdef BY_STANDINS
#include "device/cuda/cuda.h"

#define BYTES 4096

static by_device *open_gpu(void)
{
    by_error error = {0};
    by_device *device = NULL;
    check_ok(by_device_open(&device, "cuda", 1, &error), &error);
    return device;
}

static void test_describe(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device_info info;
    by_memory memory;
    by_device *device = open_gpu();
    check_ok(by_device_describe(&info, device, &error), &error);
    assert_string_equal(info.kind, "cuda");
    assert_string_equal(info.name, "stand-in 0");
    assert_string_equal(info.level, "sm_90");
    assert_string_equal(info.version, "driver 12.9, cublasLt 12.9.1");
    assert_false(info.host_memory);
    assert_int_equal(info.alignment, 256);
    assert_int_equal(info.threads, 0);
    assert_true(info.memory_free == info.memory_total);
    check_ok(by_device_alloc(&memory, device, BYTES, "numbers", &error), &error);
    check_ok(by_device_describe(&info, device, &error), &error);
    assert_true(info.memory_free == info.memory_total - BYTES);
    by_device_free(&memory);
    check_error(by_device_alloc(&memory, device, (size_t)1 << 40, "the weights", &error),
                BY_EMEMORY, &error,
                "out of memory on cuda:0 (stand-in 0): the weights: 1.0 TiB are needed; 8.0 GiB "
                "of 8.0 GiB are free");
    by_device_close(&device);
}

/* Memory begins zeroed; what was written is read; copies on one queue run in order. */
static void test_copies(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_memory memory;
    by_memory other;
    by_pinned pinned;
    unsigned char bytes[BYTES];
    by_device *device = open_gpu();
    check_ok(by_device_alloc(&memory, device, BYTES, "numbers", &error), &error);
    check_ok(by_device_alloc(&other, device, BYTES, "numbers", &error), &error);
    check_ok(by_device_pin(&pinned, device, BYTES, "numbers", &error), &error);
    check_ok(by_device_read(bytes, memory, &error), &error);
    for (size_t i = 0; i < BYTES; i++) {
        assert_int_equal(bytes[i], 0);
        bytes[i] = (unsigned char)(i * 7);
    }
    check_ok(by_device_write(memory, bytes, &error), &error);
    check_ok(by__device_copy(BY__QUEUE_COMPUTE, other, memory, &error), &error);
    check_ok(by__device_fill(BY__QUEUE_COMPUTE, memory, 9, &error), &error);
    check_ok(by__device_copy_out(BY__QUEUE_COMPUTE, pinned.data, other, &error), &error);
    check_ok(by__device_queue_finish(device, BY__QUEUE_COMPUTE, &error), &error);
    assert_memory_equal(pinned.data, bytes, BYTES);
    check_ok(by_device_read(bytes, memory, &error), &error);
    assert_int_equal(bytes[BYTES - 1], 9);
    by_device_unpin(&pinned);
    by_device_free(&other);
    by_device_free(&memory);
    by_device_close(&device);
}

static void test_events(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_memory memory;
    by__device_event *begin;
    by__device_event *end;
    double seconds;
    bool done;
    by_device *device = open_gpu();
    check_ok(by_device_alloc(&memory, device, BYTES, "numbers", &error), &error);
    check_ok(by__device_event_open(&begin, device, true, &error), &error);
    check_ok(by__device_event_open(&end, device, true, &error), &error);
    check_ok(by__device_event_wait(begin, &error), &error);
    check_ok(by__device_event_record(begin, BY__QUEUE_COMPUTE, &error), &error);
    check_ok(by__device_fill(BY__QUEUE_COMPUTE, memory, 1, &error), &error);
    check_ok(by__device_event_record(end, BY__QUEUE_COMPUTE, &error), &error);
    check_error(by__device_event_seconds(&seconds, begin, end, &error), BY_ESTATE, &error,
                "event times: not done");
    check_ok(by__device_event_done(&done, end, &error), &error);
    assert_false(done);
    check_ok(by__device_event_done(&done, end, &error), &error);
    assert_true(done);
    check_ok(by__device_event_seconds(&seconds, begin, end, &error), &error);
    assert_true(seconds > 0.0);
    by__device_event_close(&begin);
    by__device_event_close(&end);
    by_device_free(&memory);
    by_device_close(&device);
}

/* ---- faults of the host, each of which the stand-in must find ---- */

typedef struct faulty_host {
    by_device *device;
    by_memory memory;
    by_memory other;
    by_pinned pinned;
} faulty_host;

static void copy_in_on(faulty_host *h, by__device_queue queue)
{
    by_error error = {0};
    check_ok(by__device_copy_in(queue, h->memory, h->pinned.data, &error), &error);
}

/* A queue reads what another one writes, without an event. */
static void forget_event(faulty_host *h)
{
    by_error error = {0};
    copy_in_on(h, BY__QUEUE_COPY_IN);
    check_ok(by__device_copy(BY__QUEUE_COMPUTE, h->other, h->memory, &error), &error);
}

/* An event that was recorded before the work that it should stand for. */
static void record_early(faulty_host *h)
{
    by_error error = {0};
    by__device_event *event;
    check_ok(by__device_event_open(&event, h->device, false, &error), &error);
    check_ok(by__device_event_record(event, BY__QUEUE_COPY_IN, &error), &error);
    copy_in_on(h, BY__QUEUE_COPY_IN);
    check_ok(by__device_event_order(event, BY__QUEUE_COMPUTE, &error), &error);
    check_ok(by__device_copy(BY__QUEUE_COMPUTE, h->other, h->memory, &error), &error);
    by__device_event_close(&event);
}

/* An order on the wrong queue. */
static void order_wrong_queue(faulty_host *h)
{
    by_error error = {0};
    by__device_event *event;
    check_ok(by__device_event_open(&event, h->device, false, &error), &error);
    copy_in_on(h, BY__QUEUE_COPY_IN);
    check_ok(by__device_event_record(event, BY__QUEUE_COPY_IN, &error), &error);
    check_ok(by__device_event_order(event, BY__QUEUE_COPY_OUT, &error), &error);
    check_ok(by__device_copy(BY__QUEUE_COMPUTE, h->other, h->memory, &error), &error);
    by__device_event_close(&event);
}

/* The pinned buffer of a copy is filled again before the copy ran. */
static void refill_early(faulty_host *h)
{
    copy_in_on(h, BY__QUEUE_COPY_IN);
    memset(h->pinned.data, 3, BYTES);
}

/* Two queues write the same memory. */
static void write_twice(faulty_host *h)
{
    by_error error = {0};
    copy_in_on(h, BY__QUEUE_COPY_IN);
    check_ok(by__device_fill(BY__QUEUE_COPY_OUT, h->memory, 0, &error), &error);
}

/* Memory is freed while a copy may use it. */
static void free_early(faulty_host *h)
{
    copy_in_on(h, BY__QUEUE_COPY_IN);
    by_device_free(&h->memory);
}

static void unpin_early(faulty_host *h)
{
    copy_in_on(h, BY__QUEUE_COPY_IN);
    by_device_unpin(&h->pinned);
}

static void test_faults(void **state)
{
    static void (*const faults[])(faulty_host * h) = {forget_event, record_early, order_wrong_queue,
                                                      refill_early, write_twice,  free_early,
                                                      unpin_early};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(faults); i++) {
        by_error error = {0};
        faulty_host h = {.device = open_gpu()};
        check_ok(by_device_alloc(&h.memory, h.device, BYTES, "numbers", &error), &error);
        check_ok(by_device_alloc(&h.other, h.device, BYTES, "numbers", &error), &error);
        check_ok(by_device_pin(&h.pinned, h.device, BYTES, "numbers", &error), &error);
        faults[i](&h);
        if (by_device_finish(h.device, &error) != BY_EDEVICE) {
            fail_msg("fault %zu stayed hidden", i);
        }
        by_device_unpin(&h.pinned);
        by_device_free(&h.other);
        by_device_free(&h.memory);
        by_device_close(&h.device);
    }
}

/* What the host reads early is not what will be there. */
static void test_read_early(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_memory memory;
    by_pinned pinned;
    by_device *device = open_gpu();
    check_ok(by_device_alloc(&memory, device, BYTES, "numbers", &error), &error);
    check_ok(by_device_pin(&pinned, device, BYTES, "numbers", &error), &error);
    check_ok(by__device_copy_out(BY__QUEUE_COPY_OUT, pinned.data, memory, &error), &error);
    assert_int_equal(*(unsigned char *)pinned.data, 0xff);
    check_ok(by_device_finish(device, &error), &error);
    assert_int_equal(*(unsigned char *)pinned.data, 0);
    by_device_unpin(&pinned);
    by_device_free(&memory);
    by_device_close(&device);
}

/* What NVML tells, and machines on which it tells nothing. */
static void test_meter(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device_meter *meter = NULL;
    by_device_usage usage;
    check_ok(by_device_meter_open(&meter, "cuda", &error), &error);
    check_ok(by_device_meter_read(&usage, meter, &error), &error);
    assert_true(usage.busy == 0.37 && usage.celsius == 45.0 && usage.watts == 120.5);
    assert_true(usage.memory_used == 3ull << 30 && usage.memory_total == 8ull << 30);
    assert_true(usage.most_watts < 0.0); /* which this GPU does not tell */
    by_device_meter_close(&meter);
    assert_null(meter);
    check_error(by_device_meter_open(&meter, "cpu", &error), BY_EDEVICE, &error,
                "device cpu has no meter");
    static const struct {
        const char *failure;
        const char *message;
    } cases[] = {{"nvmlInit_v2:1=9", "NVML does not find the GPU at 0000:41:00.0: 9"},
                 {"cuDeviceGetPCIBusId:1=101", "cuda: place: "}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        assert_int_equal(setenv("BANYAN_STANDIN_FAIL", cases[i].failure, 1), 0);
        check_error(by_device_meter_open(&meter, "cuda:0", &error), BY_EDEVICE, &error,
                    cases[i].message);
        (void)unsetenv("BANYAN_STANDIN_FAIL");
    }
    assert_int_equal(setenv("BANYAN_CUDA_PATH", BY_STANDINS "/bare", 1), 0);
    check_error(by_device_meter_open(&meter, "cuda", &error), BY_EDEVICE, &error,
                "libnvidia-ml.so.1, which comes with the driver, was not found");
    assert_int_equal(setenv("BANYAN_CUDA_PATH", BY_STANDINS "/all", 1), 0);
}

static int use_standins(void **state)
{
    *state = temporary_make();
    return *state == NULL || setenv("XDG_CACHE_HOME", *state, 1) != 0 ||
           setenv("BANYAN_CUDA_PATH", BY_STANDINS "/all", 1) != 0;
}

static int remove_cache(void **state)
{
    temporary_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe),   cmocka_unit_test(test_copies),
        cmocka_unit_test(test_events),     cmocka_unit_test(test_faults),
        cmocka_unit_test(test_read_early), cmocka_unit_test(test_meter),
    };
    return cmocka_run_group_tests(tests, use_standins, remove_cache);
}
#else
int main(void)
{
    printf("no stand-ins: they need clang++ on x86-64, and no sanitizer\n");
    return 0;
}
#endif
