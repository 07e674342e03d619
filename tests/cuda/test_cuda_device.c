/* The device of a GPU on stand-ins: memory, copies, events, errors; and that what a host program
 * does wrongly with streams and memory does not stay hidden. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
    by_memory third;
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

/* A copy in overtakes the work that still reads what it replaces. */
static void overtake(faulty_host *h)
{
    by_error error = {0};
    check_ok(by__device_copy(BY__QUEUE_COMPUTE, h->other, h->memory, &error), &error);
    copy_in_on(h, BY__QUEUE_COPY_IN);
}

/* Two queues have scratch memory that overlaps. */
static void share_scratch(faulty_host *h)
{
    by_error error = {0};
    by_memory first = by_memory_at(h->memory, 0, BYTES / 2);
    by_memory second = by_memory_at(h->memory, BYTES / 4, BYTES / 2);
    check_ok(by__device_fill(BY__QUEUE_COMPUTE, first, 1, &error), &error);
    check_ok(by__device_fill(BY__QUEUE_COLLECTIVE, second, 2, &error), &error);
}

/* An event of a closed double buffer still orders a queue. */
static void use_closed_event(faulty_host *h)
{
    const by__cuda_device *d = (const by__cuda_device *)h->device;
    by_error error = {0};
    by__device_event *event;
    check_ok(by__device_event_open(&event, h->device, false, &error), &error);
    by__cuda_event closed = ((by__cuda_device_event *)event)->event;
    by__device_event_close(&event);
    assert_int_not_equal(d->driver.stream_order(d->queues[BY__QUEUE_COMPUTE].stream, closed, 0), 0);
}

/* The host uses a buffer again that a copy out is to fill. */
static void fill_early(faulty_host *h)
{
    by_error error = {0};
    check_ok(by__device_copy_out(BY__QUEUE_COPY_OUT, h->pinned.data, h->memory, &error), &error);
    memset(h->pinned.data, 3, BYTES);
}

static void free_twice(faulty_host *h)
{
    by_memory again = h->memory;
    by_device_free(&h->memory);
    by_device_free(&again);
}

/* The second buffer of a pair is filled while the copy from it is under way, because the host waits
 * for the event of the first one. */
static void wait_for_the_other(faulty_host *h)
{
    by_error error = {0};
    by__device_event *first;
    by__device_event *second;
    check_ok(by__device_event_open(&first, h->device, false, &error), &error);
    check_ok(by__device_event_open(&second, h->device, false, &error), &error);
    check_ok(by__device_event_record(first, BY__QUEUE_COPY_IN, &error), &error);
    copy_in_on(h, BY__QUEUE_COPY_IN);
    check_ok(by__device_event_record(second, BY__QUEUE_COPY_IN, &error), &error);
    check_ok(by__device_event_wait(first, &error), &error);
    memset(h->pinned.data, 3, BYTES);
    by__device_event_close(&second);
    by__device_event_close(&first);
}

/* Every fault is found under every seed. */
static void test_faults(void **state)
{
    static void (*const faults[])(faulty_host * h) = {
        forget_event, record_early,     order_wrong_queue, refill_early,  write_twice,
        free_early,   unpin_early,      overtake,          share_scratch, fill_early,
        free_twice,   use_closed_event, wait_for_the_other};
    BY_UNUSED(state);
    for (size_t i = 0; i < 4 * BY_ARRAY_LENGTH(faults); i++) {
        by_error error = {0};
        char seed[16];
        (void)snprintf(seed, sizeof seed, "%zu", 1 + i / BY_ARRAY_LENGTH(faults));
        assert_int_equal(setenv("BANYAN_STANDIN_SEED", seed, 1), 0);
        faulty_host h = {.device = open_gpu()};
        check_ok(by_device_alloc(&h.memory, h.device, BYTES, "numbers", &error), &error);
        check_ok(by_device_alloc(&h.other, h.device, BYTES, "numbers", &error), &error);
        check_ok(by_device_pin(&h.pinned, h.device, BYTES, "numbers", &error), &error);
        faults[i % BY_ARRAY_LENGTH(faults)](&h);
        if (by_device_finish(h.device, &error) != BY_EDEVICE) {
            fail_msg("fault %zu stayed hidden", i % BY_ARRAY_LENGTH(faults));
        }
        by_device_unpin(&h.pinned);
        by_device_free(&h.other);
        by_device_free(&h.memory);
        by_device_close(&h.device);
    }
    (void)unsetenv("BANYAN_STANDIN_SEED");
}

/* The host cannot read the device's memory, and memory that was freed takes no copies. */
static void test_stray_accesses(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_memory memory;
    by_pinned pinned;
    int status = 0;
    by_device *device = open_gpu();
    check_ok(by_device_alloc(&memory, device, BYTES, "numbers", &error), &error);
    check_ok(by_device_pin(&pinned, device, BYTES, "numbers", &error), &error);
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile const unsigned char *)memory.address);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    const by_memory gone = memory;
    by_device_free(&memory);
    assert_int_equal(by__device_copy_in(BY__QUEUE_COPY_IN, gone, pinned.data, &error), BY_EDEVICE);
    by_device_unpin(&pinned);
    by_device_close(&device);
}

/* ---- races between queues, in what kernels touch ---- */

static void launch_copy(by_device *device, by__device_queue queue, by_memory to, by_memory from)
{
    by__cuda_device *d = (by__cuda_device *)device;
    const by__cuda_cast_args args = {.x = (const void *)from.address,
                                     .y = (void *)to.address,
                                     .count = (int64_t)(to.bytes / sizeof(float)),
                                     .from = BY_F32,
                                     .to = BY_F32};
    const by__cuda_grid grid = {.grid = {1, 1, 1}, .block = 256};
    by__cuda_queue *q = &d->queues[queue].base;
    assert_int_equal(q->launch(q, BY__CUDA_KERNEL_cast, &grid, &args), BY_OK);
}

/* Orders a queue after another one, if that is asked for. */
static void order(by_device *device, bool ordered, by__device_queue before, by__device_queue after)
{
    by_error error = {0};
    by__device_event *event;
    if (ordered) {
        check_ok(by__device_event_open(&event, device, false, &error), &error);
        check_ok(by__device_event_record(event, before, &error), &error);
        check_ok(by__device_event_order(event, after, &error), &error);
        by__device_event_close(&event);
    }
}

static void read_after_write(faulty_host *h, bool ordered)
{
    launch_copy(h->device, BY__QUEUE_COMPUTE, h->other, h->memory);
    order(h->device, ordered, BY__QUEUE_COMPUTE, BY__QUEUE_COLLECTIVE);
    launch_copy(h->device, BY__QUEUE_COLLECTIVE, h->third, h->other);
}

static void write_after_read(faulty_host *h, bool ordered)
{
    launch_copy(h->device, BY__QUEUE_COMPUTE, h->other, h->memory);
    order(h->device, ordered, BY__QUEUE_COMPUTE, BY__QUEUE_COLLECTIVE);
    launch_copy(h->device, BY__QUEUE_COLLECTIVE, h->memory, h->third);
}

static void copy_after_kernel(faulty_host *h, bool ordered)
{
    by_error error = {0};
    launch_copy(h->device, BY__QUEUE_COMPUTE, h->other, h->memory);
    order(h->device, ordered, BY__QUEUE_COMPUTE, BY__QUEUE_COPY_OUT);
    check_ok(by__device_copy_out(BY__QUEUE_COPY_OUT, h->pinned.data, h->other, &error), &error);
}

static void kernel_after_copy(faulty_host *h, bool ordered)
{
    copy_in_on(h, BY__QUEUE_COPY_IN);
    order(h->device, ordered, BY__QUEUE_COPY_IN, BY__QUEUE_COMPUTE);
    launch_copy(h->device, BY__QUEUE_COMPUTE, h->other, h->memory);
}

/* Of two queues that read, only one is waited for. */
static void write_after_two_reads(faulty_host *h, bool ordered)
{
    launch_copy(h->device, BY__QUEUE_COMPUTE, h->other, h->memory);
    launch_copy(h->device, BY__QUEUE_COLLECTIVE, h->third, h->memory);
    order(h->device, true, BY__QUEUE_COLLECTIVE, BY__QUEUE_COPY_IN);
    order(h->device, ordered, BY__QUEUE_COMPUTE, BY__QUEUE_COPY_IN);
    copy_in_on(h, BY__QUEUE_COPY_IN);
}

/* Without the event each race is found whatever order the seed has chosen; with it there is
 * none. */
static void test_races(void **state)
{
    static void (*const races[])(faulty_host * h, bool ordered) = {
        read_after_write, write_after_read, copy_after_kernel, kernel_after_copy,
        write_after_two_reads};
    BY_UNUSED(state);
    assert_int_equal(setenv("BANYAN_STANDIN_CHECK", "1", 1), 0);
    for (size_t i = 0; i < 16 * BY_ARRAY_LENGTH(races); i++) {
        by_error error = {0};
        bool ordered = i % 2 == 0;
        char seed[16];
        (void)snprintf(seed, sizeof seed, "%zu", 1 + i / 2 / BY_ARRAY_LENGTH(races));
        assert_int_equal(setenv("BANYAN_STANDIN_SEED", seed, 1), 0);
        faulty_host h = {.device = open_gpu()};
        check_ok(by_device_alloc(&h.memory, h.device, BYTES, "numbers", &error), &error);
        check_ok(by_device_alloc(&h.other, h.device, BYTES, "numbers", &error), &error);
        check_ok(by_device_alloc(&h.third, h.device, BYTES, "numbers", &error), &error);
        check_ok(by_device_pin(&h.pinned, h.device, BYTES, "numbers", &error), &error);
        races[i / 2 % BY_ARRAY_LENGTH(races)](&h, ordered);
        by_status status = by_device_finish(h.device, &error);
        if ((status == BY_OK) != ordered) {
            fail_msg("race %zu, seed %s, %s: %s", i / 2 % BY_ARRAY_LENGTH(races), seed,
                     ordered ? "ordered" : "without an order", error.message);
        }
        by_device_unpin(&h.pinned);
        by_device_free(&h.third);
        by_device_free(&h.other);
        by_device_free(&h.memory);
        by_device_close(&h.device);
    }
    (void)unsetenv("BANYAN_STANDIN_SEED");
    (void)unsetenv("BANYAN_STANDIN_CHECK");
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
        cmocka_unit_test(test_read_early), cmocka_unit_test(test_stray_accesses),
        cmocka_unit_test(test_races),      cmocka_unit_test(test_meter),
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
