/* Programs of a GPU as graphs of its driver, on the stand-in: a program that is submitted again
 * with the same addresses is replayed with the bits of plain launches, and what must not be in a
 * capture ends it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/exec.h"
#include "runner.h"
#include "temporary.h"

#ifdef BY_STANDINS
#include "device/cuda/cuda.h"

enum { ROWS = 8, WIDTH = 16, COUNT = ROWS * WIDTH, SUBMITS = 5 };

/* y = softmax(gelu(x w) + x), bound to memory of its own. */
typedef struct bound_program {
    by_device *device;
    by_graph *graph;
    by_program *program;
    by_value x, w, y;
    by_memory all, x_memory, y_memory;
} bound_program;

static void bind(bound_program *p)
{
    by_error error = {0};
    by_memory w = by_memory_at(p->all, 4096, WIDTH * WIDTH * sizeof(float));
    check_ok(by_program_bind(p->program, p->x, p->x_memory, &error), &error);
    check_ok(by_program_bind(p->program, p->w, w, &error), &error);
    check_ok(by_program_bind(p->program, p->y, p->y_memory, &error), &error);
}

static void open_program(bound_program *p)
{
    by_error error = {0};
    float w[WIDTH * WIDTH];
    check_ok(by_device_open(&p->device, "cuda", 1, &error), &error);
    check_ok(by_graph_open(&p->graph, &error), &error);
    p->x = by_graph_input(p->graph, "x", BY_F32, BY_SHAPE(ROWS, WIDTH));
    p->w = by_graph_input(p->graph, "w", BY_F32, BY_SHAPE(WIDTH, WIDTH));
    by_value h = by_unary(p->graph, by_matmul(p->graph, p->x, p->w, false, false), BY_FN_GELU);
    p->y = by_softmax(p->graph, by_add(p->graph, h, p->x));
    by_graph_output(p->graph, p->y, "y");
    check_ok(by_program_compile(&p->program, p->graph, p->device, "replayed", &error), &error);
    size_t arena = by_program_arena_bytes(p->program);
    size_t work = by_program_workspace_bytes(p->program);
    size_t work_at = 12288 + (arena + 4095) / 4096 * 4096;
    check_ok(by_device_alloc(&p->all, p->device, work_at + work + 4096, "a test", &error), &error);
    p->x_memory = by_memory_at(p->all, 0, COUNT * sizeof(float));
    p->y_memory = by_memory_at(p->all, 8192, COUNT * sizeof(float));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(w); i++) {
        w[i] = (float)random_unit(1, 2, i);
    }
    check_ok(by_device_write(by_memory_at(p->all, 4096, sizeof w), w, &error), &error);
    bind(p);
    by_program_set_memory(p->program, by_memory_at(p->all, 12288, arena),
                          by_memory_at(p->all, work_at, work));
}

static void close_program(bound_program *p)
{
    by_program_close(&p->program);
    by_graph_close(&p->graph);
    by_device_free(&p->all);
    by_device_close(&p->device);
}

/* Submits with another input each time; what comes out. rebind: plain launches. */
static by_status submit_all(float y[SUBMITS][COUNT], bool rebind, by_error *error)
{
    bound_program p = {0};
    by_status status = BY_OK;
    open_program(&p);
    for (int i = 0; i < SUBMITS && status == BY_OK; i++) {
        float x[COUNT];
        for (size_t k = 0; k < COUNT; k++) {
            x[k] = (float)random_unit(7, (uint64_t)i, k);
        }
        check_ok(by_device_write(p.x_memory, x, error), error);
        if (rebind) {
            bind(&p);
        }
        status = by_program_run(p.program, error);
        if (status == BY_OK) {
            check_ok(by_device_read(y[i], p.y_memory, error), error);
        }
    }
    close_program(&p);
    return status;
}

static by_status submit_failing(const char *failure, float y[SUBMITS][COUNT], by_error *error)
{
    assert_int_equal(setenv("BANYAN_STANDIN_FAIL", failure, 1), 0);
    by_status status = submit_all(y, false, error);
    (void)unsetenv("BANYAN_STANDIN_FAIL");
    return status;
}

static void test_replay(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    static float plain[SUBMITS][COUNT];
    static float other[SUBMITS][COUNT];
    check_ok(submit_all(plain, true, &error), &error);
    check_ok(submit_all(other, false, &error), &error);
    assert_memory_equal(plain, other, sizeof plain);
    assert_true(plain[1][0] != plain[2][0]);
    /* The second submit and those behind it are launches of a graph. */
    check_error(submit_failing("cuGraphLaunch:4=700", other, &error), BY_EDEVICE, &error,
                "program 'replayed' failed");
    check_ok(submit_failing("cuGraphLaunch:5=700", other, &error), &error);
    /* Without one, launches are plain. */
    static const char *const failures[] = {"cuStreamBeginCapture_v2:1=801",
                                           "cuStreamEndCapture:1=901",
                                           "cuGraphInstantiateWithFlags:1=2"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(failures); i++) {
        memset(other, 0, sizeof other);
        check_ok(submit_failing(failures[i], other, &error), &error);
        assert_memory_equal(plain, other, sizeof plain);
    }
}

/* What drivers keep of graphs is planned for. */
static void test_planned(void **state)
{
    BY_UNUSED(state);
    bound_program p = {0};
    open_program(&p);
    by__device_recording_bytes bytes = by__exec_program_recording_bytes(p.program);
    assert_int_equal(bytes.of_device, p.graph->node_count * 65536);
    assert_int_equal(bytes.pinned, 0);
    close_program(&p);
}

/* ---- what ends a capture, and what is found behind one ---- */

typedef struct capturing_host {
    by__cuda_device *device;
    by__cuda_stream compute, side;
    by__cuda_event event;
    by__cuda_address memory;
} capturing_host;

static void work(const capturing_host *h, by__cuda_stream stream)
{
    assert_int_equal(h->device->driver.fill(h->memory, 1, 64, stream), BY__CUDA_SUCCESS);
}

static void allocate(capturing_host *h)
{
    by__cuda_address address;
    work(h, h->compute);
    assert_int_not_equal(h->device->driver.alloc(&address, 64), BY__CUDA_SUCCESS);
}

static void wait_for_stream(capturing_host *h)
{
    work(h, h->compute);
    assert_int_not_equal(h->device->driver.stream_finish(h->compute), BY__CUDA_SUCCESS);
}

static void wait_for_event(capturing_host *h)
{
    work(h, h->compute);
    assert_int_not_equal(h->device->driver.event_wait(h->event), BY__CUDA_SUCCESS);
}

/* Work behind an event from outside of the capture. */
static void depend_on_outside(capturing_host *h)
{
    work(h, h->compute);
    assert_int_not_equal(h->device->driver.stream_order(h->compute, h->event, 0), BY__CUDA_SUCCESS);
}

/* Work of another stream that nothing at the end waits for. */
static void leave_work_behind(capturing_host *h)
{
    const by__cuda_driver *driver = &h->device->driver;
    work(h, h->compute);
    assert_int_equal(driver->event_record(h->event, h->compute), BY__CUDA_SUCCESS);
    assert_int_equal(driver->stream_order(h->side, h->event, 0), BY__CUDA_SUCCESS);
    work(h, h->side);
}

static void read_host(capturing_host *h)
{
    char bytes[64] = {0};
    assert_int_not_equal(h->device->driver.copy_in(h->memory, bytes, sizeof bytes, h->compute),
                         BY__CUDA_SUCCESS);
}

static capturing_host open_host(by_device **device)
{
    by_error error = {0};
    check_ok(by_device_open(device, "cuda", 1, &error), &error);
    capturing_host h = {.device = (by__cuda_device *)*device};
    h.compute = h.device->queues[BY__QUEUE_COMPUTE].stream;
    h.side = h.device->queues[BY__QUEUE_COLLECTIVE].stream;
    check_ok(by__cuda_use(h.device, &error), &error);
    assert_int_equal(h.device->driver.event_open(&h.event, BY__CUDA_EVENT_UNTIMED), 0);
    assert_int_equal(h.device->driver.event_record(h.event, h.side), 0);
    assert_int_equal(h.device->driver.alloc(&h.memory, 4096), 0);
    return h;
}

static void close_host(capturing_host *h, by_device *device)
{
    assert_int_equal(h->device->driver.event_close(h->event), 0);
    (void)h->device->driver.stream_finish(h->compute);
    (void)h->device->driver.stream_finish(h->side);
    (void)h->device->driver.free(h->memory);
    by_device_close(&device);
}

static void test_captures(void **state)
{
    static void (*const faults[])(capturing_host * h) = {
        allocate, wait_for_stream, wait_for_event, depend_on_outside, leave_work_behind, read_host};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(faults); i++) {
        by_device *device;
        by__cuda_graph graph;
        capturing_host h = open_host(&device);
        const by__cuda_driver *driver = &h.device->driver;
        assert_int_equal(driver->capture_begin(h.compute, BY__CUDA_CAPTURE_THREAD), 0);
        faults[i](&h);
        if (driver->capture_end(h.compute, &graph) == BY__CUDA_SUCCESS) {
            fail_msg("capture %zu holds what it must not", i);
        }
        /* The streams work as before. */
        work(&h, h.compute);
        assert_int_equal(driver->stream_finish(h.compute), BY__CUDA_SUCCESS);
        close_host(&h, device);
    }
}

/* A replay is ordered as its launches are: memory that it writes is not another stream's, but
 * behind an event. */
static void test_order(void **state)
{
    BY_UNUSED(state);
    for (int ordered = 0; ordered < 2; ordered++) {
        by_device *device;
        by__cuda_graph graph;
        by__cuda_graph_exec exec;
        capturing_host h = open_host(&device);
        const by__cuda_driver *driver = &h.device->driver;
        assert_int_equal(driver->capture_begin(h.compute, BY__CUDA_CAPTURE_THREAD), 0);
        leave_work_behind(&h);
        assert_int_equal(driver->event_record(h.event, h.side), 0);
        assert_int_equal(driver->stream_order(h.compute, h.event, 0), 0);
        assert_int_equal(driver->capture_end(h.compute, &graph), 0);
        assert_int_equal(driver->exec_open(&exec, graph, 0), 0);
        assert_int_equal(driver->graph_close(graph), 0);
        assert_int_equal(driver->exec_launch(exec, h.compute), 0);
        assert_int_equal(driver->exec_launch(exec, h.compute), 0);
        if (ordered == 1) {
            assert_int_equal(driver->event_record(h.event, h.compute), 0);
            assert_int_equal(driver->stream_order(h.side, h.event, 0), 0);
        }
        work(&h, h.side);
        int result = driver->stream_finish(h.side);
        assert_true((result == BY__CUDA_SUCCESS) == (ordered == 1));
        (void)driver->stream_finish(h.compute);
        assert_int_equal(driver->exec_close(exec), 0);
        close_host(&h, device);
    }
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
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_planned),
        cmocka_unit_test(test_captures),
        cmocka_unit_test(test_order),
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
