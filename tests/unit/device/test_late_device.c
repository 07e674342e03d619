/* The device interface on a device that runs everything as late and in as odd an order as events
 * allow, on memory that the host cannot touch: programs give the bits of the CPU, a pipeline over
 * all queues is right for every seed, and each fault that its use could have is caught on every
 * run. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "late_device.h"
#include "runner.h"
#include "trainer/state/train.h"

#define SEEDS 8
#define COUNT 64 /* elements of the pipeline's vectors */
#define BYTES (COUNT * sizeof(float))
#define STEPS 5

static by_device *open_late(uint64_t seed)
{
    by_error error = {0};
    by_device *device = NULL;
    check_ok(late_device_open(&device, seed, 2, &error), &error);
    return device;
}

static by__device_event *open_event(by_device *device)
{
    by_error error = {0};
    by__device_event *event = NULL;
    check_ok(by__device_event_open(&event, device, false, &error), &error);
    return event;
}

static by_memory take(by_device *device, size_t bytes)
{
    by_error error = {0};
    by_memory memory;
    check_ok(by_device_alloc(&memory, device, bytes, "a test", &error), &error);
    return memory;
}

static by_pinned pin(by_device *device, size_t bytes)
{
    by_error error = {0};
    by_pinned pinned;
    check_ok(by_device_pin(&pinned, device, bytes, "a test", &error), &error);
    return pinned;
}

/* ---- whole training graphs ---- */

static by_graph *train_graph(const char *kind, const char *compute)
{
    by_error error = {0};
    by_config *config;
    by_graph *graph;
    char assignments[2][64];
    static const char *const settings[] = {"model.layers=1",  "model.heads=2",  "model.width=16",
                                           "model.context=8", "model.vocab=29", "model.dropout=0.1",
                                           "train.batch=2"};
    check_ok(by_config_default(&config, &error), &error);
    (void)snprintf(assignments[0], 64, "model.kind=%s", kind);
    (void)snprintf(assignments[1], 64, "precision.compute=%s", compute);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    check_ok(by_config_set(config, assignments[0], &error), &error);
    check_ok(by_config_set(config, assignments[1], &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
    check_ok(by_train_graph(&graph, NULL, config, NULL, NULL, NULL, &error), &error);
    by_config_close(&config);
    return graph;
}

/* Runs the graph on a late device with the inputs that `r` had, and compares all external values
 * with what `r` holds after its run. */
static void compare(const runner *r, void **inputs, uint64_t seed)
{
    by_error error = {0};
    by_device *device = open_late(seed);
    by_program *program;
    const by_graph *graph = r->graph;
    size_t values = graph->value_count;
    by_memory *memory = calloc(values, sizeof *memory);
    by_pinned *pinned = calloc(values, sizeof *pinned);
    assert_true(memory != NULL && pinned != NULL);
    by__device_event *event = open_event(device);
    check_ok(by_program_compile(&program, graph, device, "step", &error), &error);
    by_memory arena = take(device, by_program_arena_bytes(program));
    by_memory workspace = take(device, by_program_workspace_bytes(program));
    by_program_set_memory(program, arena, workspace);
    for (size_t v = 0; v < values; v++) {
        if (inputs[v] != NULL) {
            size_t bytes = by__graph_value_bytes(&graph->values[v]);
            memory[v] = take(device, bytes);
            pinned[v] = pin(device, bytes);
            memcpy(pinned[v].data, inputs[v], bytes);
            check_ok(by__device_copy_in(BY__QUEUE_COPY_IN, memory[v], pinned[v].data, &error),
                     &error);
            check_ok(by_program_bind(program, (by_value)v, memory[v], &error), &error);
        }
    }
    check_ok(by__device_event_record(event, BY__QUEUE_COPY_IN, &error), &error);
    check_ok(by__device_event_order(event, BY__QUEUE_COMPUTE, &error), &error);
    check_ok(by_program_submit(program, &error), &error);
    check_ok(by__device_event_record(event, BY__QUEUE_COMPUTE, &error), &error);
    check_ok(by__device_event_order(event, BY__QUEUE_COPY_OUT, &error), &error);
    for (size_t v = 0; v < values; v++) {
        if (memory[v].bytes > 0) {
            check_ok(by__device_copy_out(BY__QUEUE_COPY_OUT, pinned[v].data, memory[v], &error),
                     &error);
        }
    }
    assert_true(late_device_waiting(device) > graph->node_count); /* nothing has run */
    check_ok(by__device_queue_finish(device, BY__QUEUE_COPY_OUT, &error), &error);
    assert_int_equal(late_device_waiting(device), 0);
    for (size_t v = 0; v < values; v++) {
        if (memory[v].bytes > 0 && memcmp(pinned[v].data, r->buffers[v], memory[v].bytes) != 0) {
            fail_msg("seed %d: '%s' differs", (int)seed, graph->values[v].name);
        }
        by_device_free(&memory[v]);
        by_device_unpin(&pinned[v]);
    }
    by_program_close(&program);
    by_device_free(&arena);
    by_device_free(&workspace);
    by__device_event_close(&event);
    assert_string_equal(late_device_fault(device), "");
    by_device_close(&device);
    free(memory);
    free(pinned);
}

static void test_programs(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"gpt2", "llama"};
    static const char *const computes[] = {"f32", "bf16"};
    for (size_t k = 0; k < 4; k++) {
        runner r;
        by_graph *graph = train_graph(kinds[k / 2], computes[k % 2]);
        runner_open(&r, graph, 2);
        runner_fill(&r, 5, 29);
        void **inputs = calloc(graph->value_count, sizeof *inputs);
        assert_non_null(inputs);
        for (size_t v = 0; v < graph->value_count; v++) {
            size_t bytes = by__graph_value_bytes(&graph->values[v]);
            if (r.buffers[v] != NULL) {
                inputs[v] = malloc(bytes);
                assert_non_null(inputs[v]);
                memcpy(inputs[v], r.buffers[v], bytes);
            }
        }
        runner_run(&r);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            compare(&r, inputs, seed);
        }
        for (size_t v = 0; v < graph->value_count; v++) {
            free(inputs[v]);
        }
        free(inputs);
        runner_close(&r);
        by_graph_close(&graph);
    }
}

/* ---- a pipeline: refill, copy in, compute, copy out, read one step late ---- */

typedef enum fault {
    NO_FAULT,
    REFILL_TOO_EARLY,   /* the pinned input is written while the copy from it may run */
    COMPUTE_TOO_EARLY,  /* compute is not ordered after the copy in */
    OVERWRITTEN_INPUT,  /* the copy in is not ordered after the compute that reads */
    COPY_OUT_TOO_EARLY, /* the copy out is not ordered after compute */
    OVERWRITTEN_OUTPUT, /* compute is not ordered after the copy out */
    READ_TOO_EARLY,     /* the host reads a result without waiting */
    WRONG_EVENT,        /* compute is ordered after another event */
    RECORDED_TOO_EARLY, /* the event is recorded before the copy that it should stand for */
    WRONG_QUEUE,        /* the event orders another queue */
    FREED_IN_USE,       /* device memory is freed behind a submit */
    UNPINNED_IN_USE,    /* pinned memory is freed behind a copy */
    CLOSED_IN_USE,      /* a program is closed behind its submit */
    NOT_PINNED,         /* a copy that does not block from the host's own memory */
    ALL_FAULTS
} fault;

typedef struct pipeline {
    by_device *device;
    by_graph *graph;
    by_program *program;
    by_value x, w, y;
    by_memory x_memory, w_memory, y_memory, arena, workspace;
    by_pinned input, output[2];
    by__device_event *copied, *computed, *read[2];
    float own[COUNT]; /* not pinned */
    float result[STEPS][COUNT];
} pipeline;

static float element(int step, int i)
{
    return (float)(step * 100 + i) - 130.0f;
}

static void pipeline_open(pipeline *p, by_device *device)
{
    by_error error = {0};
    float ones[COUNT];
    *p = (pipeline){.device = device, .graph = open_graph()};
    p->x = by_graph_input(p->graph, "x", BY_F32, BY_SHAPE(COUNT));
    p->w = by_graph_parameter(p->graph, "w", NULL, BY_SHAPE(COUNT), (by_init){0});
    by_value a = by_unary(p->graph, p->x, BY_FN_RELU);
    by_graph_output(p->graph, by_add(p->graph, by_mul(p->graph, a, p->x), p->w), "y");
    p->y = by_graph_find(p->graph, "y");
    check_ok(by_program_compile(&p->program, p->graph, device, "square", &error), &error);
    p->x_memory = take(device, BYTES);
    p->w_memory = take(device, BYTES);
    p->y_memory = take(device, BYTES);
    p->arena = take(device, by_program_arena_bytes(p->program));
    p->workspace = take(device, by_program_workspace_bytes(p->program));
    p->input = pin(device, BYTES);
    p->copied = open_event(device);
    p->computed = open_event(device);
    for (int i = 0; i < 2; i++) {
        p->output[i] = pin(device, BYTES);
        p->read[i] = open_event(device);
    }
    for (int i = 0; i < COUNT; i++) {
        ones[i] = 1.0f;
    }
    check_ok(by_device_write(p->w_memory, ones, &error), &error);
    by_program_set_memory(p->program, p->arena, p->workspace);
    check_ok(by_program_bind(p->program, p->x, p->x_memory, &error), &error);
    check_ok(by_program_bind(p->program, p->w, p->w_memory, &error), &error);
    check_ok(by_program_bind(p->program, p->y, p->y_memory, &error), &error);
}

static void pipeline_close(pipeline *p)
{
    by_program_close(&p->program);
    by__device_event_close(&p->copied);
    by__device_event_close(&p->computed);
    for (int i = 0; i < 2; i++) {
        by__device_event_close(&p->read[i]);
        by_device_unpin(&p->output[i]);
    }
    by_device_unpin(&p->input);
    by_memory *all[] = {&p->x_memory, &p->w_memory, &p->y_memory, &p->arena, &p->workspace};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(all); i++) {
        by_device_free(all[i]);
    }
    by_graph_close(&p->graph);
}

/* The host's part of a step: the input of this one and the result of the one before. */
static by_status submit_input(pipeline *p, int step, fault f, by_error *error)
{
    if (f != REFILL_TOO_EARLY) {
        BY_TRY(by__device_event_wait(p->copied, error));
    }
    float *input = f == NOT_PINNED ? p->own : p->input.data;
    for (int i = 0; i < COUNT; i++) {
        input[i] = element(step, i);
    }
    if (f != OVERWRITTEN_INPUT) {
        BY_TRY(by__device_event_order(p->computed, BY__QUEUE_COPY_IN, error));
    }
    if (f == RECORDED_TOO_EARLY) {
        BY_TRY(by__device_event_record(p->copied, BY__QUEUE_COPY_IN, error));
    }
    BY_TRY(by__device_copy_in(BY__QUEUE_COPY_IN, p->x_memory, input, error));
    if (f != RECORDED_TOO_EARLY) {
        BY_TRY(by__device_event_record(p->copied, BY__QUEUE_COPY_IN, error));
    }
    if (f == UNPINNED_IN_USE) {
        by_device_unpin(&p->input);
    }
    return BY_OK;
}

static by_status submit_step(pipeline *p, int step, fault f, by_error *error)
{
    BY_TRY(submit_input(p, step, f, error));
    by__device_event *before = f == WRONG_EVENT ? p->computed : p->copied;
    by__device_queue queue = f == WRONG_QUEUE ? BY__QUEUE_COLLECTIVE : BY__QUEUE_COMPUTE;
    if (f != COMPUTE_TOO_EARLY) {
        BY_TRY(by__device_event_order(before, queue, error));
    }
    if (f != OVERWRITTEN_OUTPUT && step > 0) {
        BY_TRY(by__device_event_order(p->read[(step - 1) % 2], BY__QUEUE_COMPUTE, error));
    }
    BY_TRY(by_program_submit(p->program, error));
    BY_TRY(by__device_event_record(p->computed, BY__QUEUE_COMPUTE, error));
    if (f == FREED_IN_USE) {
        by_device_free(&p->w_memory);
    } else if (f == CLOSED_IN_USE) {
        by_program_close(&p->program);
    }
    if (f != COPY_OUT_TOO_EARLY) {
        BY_TRY(by__device_event_order(p->computed, BY__QUEUE_COPY_OUT, error));
    }
    BY_TRY(by__device_copy_out(BY__QUEUE_COPY_OUT, p->output[step % 2].data, p->y_memory, error));
    return by__device_event_record(p->read[step % 2], BY__QUEUE_COPY_OUT, error);
}

static by_status take_result(pipeline *p, int step, fault f, by_error *error)
{
    if (f != READ_TOO_EARLY) {
        BY_TRY(by__device_event_wait(p->read[step % 2], error));
    }
    memcpy(p->result[step], p->output[step % 2].data, BYTES);
    return BY_OK;
}

static by_status run_pipeline(pipeline *p, fault f, by_error *error)
{
    for (int step = 0; step < STEPS; step++) {
        BY_TRY(submit_step(p, step, f, error));
        if (f == FREED_IN_USE || f == CLOSED_IN_USE || f == UNPINNED_IN_USE) {
            break; /* what follows would use what is gone */
        }
        if (step > 0) {
            BY_TRY(take_result(p, step - 1, f, error));
        }
    }
    BY_TRY(take_result(p, STEPS - 1, f, error));
    return by_device_finish(p->device, error);
}

static bool results_right(const pipeline *p)
{
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++) {
            float x = element(step, i);
            if (!(p->result[step][i] == (x > 0.0f ? x * x : 0.0f) + 1.0f)) {
                return false;
            }
        }
    }
    return true;
}

static void test_pipeline(void **state)
{
    BY_UNUSED(state);
    for (uint64_t seed = 0; seed <= SEEDS; seed++) {
        by_error error = {0};
        by_device *device = NULL;
        pipeline p;
        if (seed < SEEDS) {
            device = open_late(seed);
        } else {
            check_ok(by_device_open(&device, "cpu", 2, &error), &error);
        }
        pipeline_open(&p, device);
        check_ok(run_pipeline(&p, NO_FAULT, &error), &error);
        assert_true(results_right(&p));
        pipeline_close(&p);
        if (seed < SEEDS) {
            assert_string_equal(late_device_fault(device), "");
        }
        by_device_close(&device);
    }
}

/* Every fault shows for every seed: as an error of a wait, or as a wrong result. */
static void test_faults(void **state)
{
    BY_UNUSED(state);
    static const char *const messages[ALL_FAULTS] = {
        [REFILL_TOO_EARLY] = "pinned memory was changed",
        [COMPUTE_TOO_EARLY] = "no event orders them",
        [OVERWRITTEN_INPUT] = "no event orders them",
        [COPY_OUT_TOO_EARLY] = "no event orders them",
        [OVERWRITTEN_OUTPUT] = "no event orders them",
        [WRONG_EVENT] = "no event orders them",
        [RECORDED_TOO_EARLY] = "", /* the order or the pinned memory, whichever shows first */
        [WRONG_QUEUE] = "no event orders them",
        [FREED_IN_USE] = "memory was freed while",
        [UNPINNED_IN_USE] = "memory was freed while",
        [CLOSED_IN_USE] = "program 'square' was closed",
        [NOT_PINNED] = "not pinned",
    };
    for (int f = NO_FAULT + 1; f < ALL_FAULTS; f++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            by_error error = {0};
            pipeline p;
            by_device *device = open_late(seed);
            pipeline_open(&p, device);
            by_status status = run_pipeline(&p, (fault)f, &error);
            if (messages[f] == NULL) {
                check_ok(status, &error);
                assert_false(results_right(&p));
            } else {
                check_error(status, BY_EDEVICE, &error, messages[f]);
            }
            (void)by_device_finish(device, NULL);
            pipeline_close(&p);
            by_device_close(&device);
        }
    }
}

/* Buffers may be bound anew while the program is in flight: submits keep what was bound. */
static void test_rebinding(void **state)
{
    BY_UNUSED(state);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        by_error error = {0};
        pipeline p;
        float inputs[2][COUNT];
        float outputs[2][COUNT];
        by_device *device = open_late(seed);
        pipeline_open(&p, device);
        by_memory x[2] = {p.x_memory, take(device, BYTES)};
        by_memory y[2] = {p.y_memory, take(device, BYTES)};
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < COUNT; i++) {
                inputs[k][i] = (float)(k + 2);
            }
            check_ok(by_device_write(x[k], inputs[k], &error), &error);
        }
        for (int k = 0; k < 2; k++) {
            check_ok(by_program_bind(p.program, p.x, x[k], &error), &error);
            check_ok(by_program_bind(p.program, p.y, y[k], &error), &error);
            check_ok(by_program_submit(p.program, &error), &error);
        }
        for (int k = 0; k < 2; k++) {
            check_ok(by_device_read(outputs[k], y[k], &error), &error);
            assert_true(outputs[k][COUNT - 1] == (float)((k + 2) * (k + 2) + 1));
        }
        by_device_free(&x[1]);
        by_device_free(&y[1]);
        pipeline_close(&p);
        assert_string_equal(late_device_fault(device), "");
        by_device_close(&device);
    }
}

/* ---- inside a program ---- */

static by_status run_broken(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(call);
    BY_UNUSED(context);
    return BY_EDEVICE;
}

/* b = a + a on the compute queue, c = b + b on the collective queue, d = c + c on the compute
 * queue. The events at `dropped` are left out; call `broken` fails. */
static by_status run_queues(by_device *device, int dropped, int broken, float *d, by_error *error)
{
    static const by__device_kernel failing = {.op = BY_OP_ADD, .name = "broken", .run = run_broken};
    by_memory memory = take(device, 4 * BYTES);
    by__device_tensor tensors[4];
    by__device_tensor in[3][BY__MAX_INPUTS];
    by__device_call calls[3];
    const by__device_kernel *kernels[3];
    const by__device_kernel *found[3];
    by__device_command commands[7];
    size_t count = 0;
    by__device_recording *recording;
    float ones[COUNT];
    for (int i = 0; i < COUNT; i++) {
        ones[i] = 1.0f;
    }
    for (int i = 0; i < 4; i++) {
        tensors[i] = (by__device_tensor){.data = (void *)(memory.address + (size_t)i * BYTES),
                                         .dtype = BY_F32,
                                         .shape = {1, {COUNT}}};
    }
    for (int i = 0; i < 3; i++) {
        bool alone = i == 1;
        for (int k = 0; k < BY__MAX_INPUTS; k++) {
            in[i][k] = (by__device_tensor){.shape = {.rank = -1}};
        }
        in[i][0] = in[i][1] = tensors[i];
        calls[i] = (by__device_call){.op = BY_OP_ADD,
                                     .input_count = 2,
                                     .output_count = 1,
                                     .in = in[i],
                                     .out = {tensors[i + 1]}};
        BY_TRY(by__device_find_kernel(&found[i], device, &calls[i], error));
        kernels[i] = i == broken ? &failing : found[i];
        if (found[i]->prepare != NULL) {
            BY_TRY(found[i]->prepare(&calls[i], by__device_context_of(device), error));
        }
        by__device_queue queue = alone ? BY__QUEUE_COLLECTIVE : BY__QUEUE_COMPUTE;
        if (i > 0 && dropped != i) {
            commands[count++] =
                (by__device_command){BY__COMMAND_ORDER, queue, (size_t)i - 1, SIZE_MAX};
        }
        commands[count++] = (by__device_command){BY__COMMAND_CALL, queue, (size_t)i, (size_t)i};
        if (i < 2) {
            commands[count++] =
                (by__device_command){BY__COMMAND_RECORD, queue, (size_t)i, SIZE_MAX};
        }
    }
    by__device_command_list list = {
        .name = "queues", .calls = calls, .kernels = kernels, .call_count = 3};
    list.commands = commands;
    list.command_count = count;
    list.event_count = 2;
    BY_TRY(by_device_write(by_memory_at(memory, 0, BYTES), ones, error));
    BY_TRY(by__device_recording_open(&recording, device, &list, error));
    by_status status = by__device_recording_submit(recording, true, NULL, NULL, error);
    if (status == BY_OK) {
        status = by_device_read(d, by_memory_at(memory, 3 * BYTES, BYTES), error);
    }
    by__device_recording_close(&recording);
    for (int i = 0; i < 3; i++) {
        if (found[i]->release != NULL) {
            found[i]->release(&calls[i]);
        }
    }
    by_device_free(&memory);
    return status;
}

static void test_queues_of_a_program(void **state)
{
    BY_UNUSED(state);
    for (int dropped = 0; dropped < 3; dropped++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            by_error error = {0};
            float d[COUNT] = {0};
            by_device *device = open_late(seed);
            by_status status = run_queues(device, dropped, -1, d, &error);
            if (dropped == 0) {
                check_ok(status, &error);
                assert_true(d[0] == 8.0f && d[COUNT - 1] == 8.0f);
            } else {
                check_error(status, BY_EDEVICE, &error, "no event orders them");
            }
            by_device_close(&device);
        }
    }
}

/* A device that does not know which of its calls failed: call by call, the error names the node.
 * Nothing is missing then, not even an event. */
static void test_stepwise(void **state)
{
    BY_UNUSED(state);
    for (int broken = -1; broken < 3; broken++) {
        for (int stepwise = 0; stepwise < 2; stepwise++) {
            by_error error = {0};
            float d[COUNT] = {0};
            char want[64];
            by_device *device;
            const late_options options = {.threads = 1, .vague = true};
            check_ok(late_device_open_as(&device, &options, &error), &error);
            by__device_set_stepwise(device, stepwise == 1);
            by_status status = run_queues(device, 3 * stepwise, broken, d, &error);
            (void)snprintf(want, sizeof want,
                           "queues: node %d: kernel broken: the device has failed", broken);
            if (broken < 0) {
                check_ok(status, &error);
                assert_true(d[0] == 8.0f && d[COUNT - 1] == 8.0f);
            } else if (stepwise == 1) {
                check_error(status, BY_EDEVICE, &error, want);
            } else {
                assert_string_equal(error.message, "the device has failed");
            }
            by_device_close(&device);
        }
    }
}

/* Two handles have the same memory, and two devices have not. */
static void test_sharing(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device = open_late(1);
    by_device *other = open_late(1);
    by_device *shared;
    by_device *again;
    check_ok(by__device_share(&shared, device, 1, &error), &error);
    check_ok(by__device_share(&again, shared, 1, &error), &error);
    assert_true(by__device_has_memory_of(shared, device));
    assert_true(by__device_has_memory_of(device, again));
    assert_false(by__device_has_memory_of(device, other));
    assert_false(by__device_has_memory_of(device, NULL)); /* the host's */
    by_device_close(&again);
    by_device_close(&shared);
    by_device_close(&other);
    by_device_close(&device);
    check_ok(by_device_open(&device, "cpu", 1, &error), &error);
    check_ok(by__device_share(&shared, device, 1, &error), &error);
    assert_true(by__device_has_memory_of(shared, device) && by__device_has_memory_of(shared, NULL));
    by_device_close(&shared);
    by_device_close(&device);
}

/* ---- the host's hands ---- */

/* True when a process that does this is ended by it. */
static bool is_deadly(volatile float *address, bool write)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)freopen("/dev/null", "w", stderr); /* a sanitizer's report */
        (void)signal(SIGSEGV, SIG_DFL);          /* cmocka has a handler */
        if (write) {
            *address = 1.0f;
        }
        _exit(*address == 12345.0f ? 1 : 0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return !WIFEXITED(status) || WEXITSTATUS(status) > 1;
}

static void test_dereference(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    pipeline p;
    by_device *device = open_late(1);
    pipeline_open(&p, device);
    assert_true(is_deadly((volatile float *)p.x_memory.address, false));
    assert_true(is_deadly((volatile float *)p.w_memory.address, true));
    assert_false(is_deadly(p.input.data, true));
    check_ok(run_pipeline(&p, NO_FAULT, &error), &error); /* and after work has run */
    assert_true(is_deadly((volatile float *)p.y_memory.address, false));
    by_status status = by_program_bind(p.program, p.x, by_host_memory(p.own, BYTES), &error);
    check_error(status, BY_EARG, &error, "is not memory of the program's device");
    pipeline_close(&p);
    by_device_close(&device);
}

/* Asking whether an event is done ends, and times are known then. */
static void test_event_times(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    pipeline p;
    by__device_event *events[2];
    double seconds = -1.0;
    int questions = 0;
    by_device *device = open_late(3);
    pipeline_open(&p, device);
    for (int i = 0; i < 2; i++) {
        check_ok(by__device_event_open(&events[i], device, true, &error), &error);
    }
    check_ok(by_device_write(p.x_memory, p.own, &error), &error);
    check_ok(by__device_event_record(events[0], BY__QUEUE_COMPUTE, &error), &error);
    check_ok(by_program_submit(p.program, &error), &error);
    check_ok(by__device_event_record(events[1], BY__QUEUE_COMPUTE, &error), &error);
    by_status status = by__device_event_seconds(&seconds, events[0], events[1], &error);
    check_error(status, BY_ESTATE, &error, "not done");
    for (bool done = false; !done; questions++) {
        check_ok(by__device_event_done(&done, events[1], &error), &error);
    }
    assert_true(questions > 1);
    check_ok(by__device_event_seconds(&seconds, events[0], events[1], &error), &error);
    assert_true(seconds >= 0.0);
    by__device_event_close(&events[0]);
    by__device_event_close(&events[1]);
    pipeline_close(&p);
    by_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_rebinding),
        cmocka_unit_test(test_queues_of_a_program),
        cmocka_unit_test(test_stepwise),
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_dereference),
        cmocka_unit_test(test_event_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
