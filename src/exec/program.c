/* Programs: compiles a graph to a list of commands with fixed memory offsets, and submits it. */
#include <stdlib.h>
#include <string.h>

#include "device/staging.h"
#include "exec/exec.h"

/* An i32 value that indexes a table or a cache: its entries must be in [0, limit) (targets may be
 * negative). */
typedef struct index_check {
    by_value value;
    int64_t limit;
    bool may_ignore;
} index_check;

struct by_program {
    const by_graph *graph;
    by_device *device;
    char *name;
    by__pass_memory_plan plan;
    by__device_call *calls; /* one per node */
    const by__device_kernel **kernels;
    by__device_tensor *operands; /* inputs of all calls, concatenated */
    size_t *live_bytes;
    char **what;      /* name of each collective, for errors and other ranks */
    size_t prepared;  /* number of calls whose state must be released */
    by_memory *bound; /* memory of each external value */
    index_check *checks;
    size_t check_count;
    by__device_command *commands;
    by__device_command_list list;
    by__device_recording *recording;
    by__device_staged *staged; /* NULL: the device runs the program */
    by_memory arena;
    by_memory workspace;
    size_t workspace_bytes; /* for the calls of the compute queue */
    /* for collectives, which run concurrently; after the other workspace */
    size_t collective_bytes;
    bool stale; /* something was bound since addresses were resolved */
    by_program_hook *hook;
    void *hook_user;
};

double by_clock(void)
{
    return by__now();
}

static by__device_tensor describe(const by_graph *graph, by_value value)
{
    by__device_tensor tensor = {.dtype = BY_F32, .shape = {.rank = -1}};
    if (value != BY_NONE) {
        tensor.dtype = graph->values[value].dtype;
        tensor.shape = graph->values[value].shape;
    }
    return tensor;
}

/* Number of operands that a kernel may access: its inputs, or as many as any op has by name. */
static int operand_slots(const by__graph_node *node)
{
    return node->input_count > BY__MAX_INPUTS ? node->input_count : BY__MAX_INPUTS;
}

/* Makes a name such as "gradients: all_gather 3 (wte.weight)": the third collective of the
 * program. */
static by_status name_collective(by_program *p, size_t n, by_error *error)
{
    const by__graph_node *node = &p->graph->nodes[n];
    bool named = node->input_count > 0 && node->in[0] != BY_NONE;
    const char *of = named ? p->graph->values[node->in[0]].name : NULL;
    by_string text = {0};
    int number = 1;
    for (size_t before = 0; before < n; before++) {
        number += p->what[before] != NULL;
    }
    by_string_format(&text, "%s: %s %d", p->name, by_op_name(node->op), number);
    if (of != NULL) {
        by_string_format(&text, " (%s)", of);
    }
    BY_TRY(by__string_release(&text, &p->what[n], error));
    p->calls[n].what = p->what[n];
    return BY_OK;
}

/* Chooses and prepares the kernel of node n. */
static by_status prepare_call(by_program *p, size_t n, by__device_tensor *in, by_error *error)
{
    const by__graph_node *node = &p->graph->nodes[n];
    const by__op_row *row = by__op_row_of(node->op);
    by__device_call *call = &p->calls[n];
    size_t *workspace = row->communicates ? &p->collective_bytes : &p->workspace_bytes;
    *call = (by__device_call){.op = node->op,
                              .attrs = node->attrs,
                              .input_count = node->input_count,
                              .output_count = node->output_count,
                              .in = in};
    for (int i = 0; i < operand_slots(node); i++) {
        in[i] = describe(p->graph, i < node->input_count ? node->in[i] : BY_NONE);
    }
    for (int i = 0; i < BY_MAX_OUTPUTS; i++) {
        call->out[i] = describe(p->graph, i < node->output_count ? node->out[i] : BY_NONE);
    }
    p->prepared = n + 1;
    if (row->waits) {
        return BY_OK;
    }
    if (row->communicates) {
        BY_TRY(name_collective(p, n, error));
    }
    BY_TRY(by__device_find_kernel(&p->kernels[n], p->device, call, error));
    if (p->kernels[n]->prepare != NULL) {
        by_status status = p->kernels[n]->prepare(call, by__device_context_of(p->device), error);
        if (status != BY_OK) {
            p->prepared = n;
            return by_error_prefix(error, status, "node %zu (%s)", n, by_op_name(node->op));
        }
    }
    *workspace = call->work_bytes > *workspace ? call->work_bytes : *workspace;
    return BY_OK;
}

/* Records the index operands of node n that are external values, so that a wrong id causes an error
 * and not an out-of-bounds read. */
static by_status collect_checks(by_program *p, size_t n, by_error *error)
{
    const by__graph_node *node = &p->graph->nodes[n];
    const by__op_index_operand *index = by__op_row_of(node->op)->indices;
    by__graph_type *types;
    if (index[0].limit == NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&types, (size_t)node->input_count, sizeof *types, "types", error));
    by__op_node_types(p->graph, node, types);
    by__op_signature s = {node->op, &node->attrs, types, node->input_count};
    for (int k = 0; k < BY__MAX_INDICES && index[k].limit != NULL; k++) {
        by_value value = index[k].input < node->input_count ? node->in[index[k].input] : BY_NONE;
        if (value != BY_NONE && by__role_is_external(p->graph->values[value].role)) {
            p->checks[p->check_count++] =
                (index_check){value, index[k].limit(&s), index[k].may_be_negative};
        }
    }
    free(types);
    return BY_OK;
}

/* Extends the interval [first, last] of the memory of a value to node n. */
static void touch(const by__pass_memory_plan *plan, by_value value, size_t n, size_t *first,
                  size_t *last)
{
    by_value owner = value == BY_NONE ? BY_NONE : plan->owner[value];
    if (owner != BY_NONE) {
        first[owner] = first[owner] == SIZE_MAX ? n : first[owner];
        last[owner] = n;
    }
}

/* Computes live_bytes[n]: the bytes of the values that own memory in the arena at node n. */
static by_status measure_liveness(by_program *p, by_error *error)
{
    const by_graph *graph = p->graph;
    size_t *first;
    size_t *last = NULL;
    BY_TRY(by__alloc((void **)&first, graph->value_count, sizeof *first, "program", error));
    by_status status =
        by__alloc((void **)&last, graph->value_count, sizeof *last, "program", error);
    for (size_t v = 0; v < graph->value_count; v++) {
        first[v] = SIZE_MAX;
    }
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            touch(&p->plan, node->in[i], n, first, last);
        }
        for (int i = 0; i < node->output_count; i++) {
            touch(&p->plan, node->out[i], n, first, last);
        }
    }
    /* First what begins at each node minus what ended before it (modulo 2^64), then the prefix
     * sum. */
    for (size_t v = 0; v < graph->value_count && status == BY_OK; v++) {
        if (p->plan.offset[v] != SIZE_MAX && p->plan.owner[v] == (by_value)v &&
            first[v] != SIZE_MAX) {
            p->live_bytes[first[v]] += by__graph_value_bytes(&graph->values[v]);
            if (last[v] + 1 < graph->node_count) {
                p->live_bytes[last[v] + 1] -= by__graph_value_bytes(&graph->values[v]);
            }
        }
    }
    for (size_t n = 1; n < graph->node_count; n++) {
        p->live_bytes[n] += p->live_bytes[n - 1];
    }
    free(first);
    free(last);
    return status;
}

/* Output of the list of commands. */
typedef struct command_writer {
    by_program *p;
    size_t *done;  /* of each collective: its event */
    bool computed; /* the compute queue has calls since its last event */
} command_writer;

static void put(command_writer *w, by__device_command_kind kind, by__device_queue queue,
                size_t index, size_t call)
{
    by__device_command_list *list = &w->p->list;
    w->p->commands[list->command_count++] = (by__device_command){kind, queue, index, call};
}

/* A collective runs after the preceding work of the compute queue, and concurrently with the
 * following. */
static void put_collective(command_writer *w, size_t n)
{
    by__device_command_list *list = &w->p->list;
    if (w->computed) {
        put(w, BY__COMMAND_RECORD, BY__QUEUE_COMPUTE, list->event_count, SIZE_MAX);
        put(w, BY__COMMAND_ORDER, BY__QUEUE_COLLECTIVE, list->event_count++, SIZE_MAX);
        w->computed = false;
    }
    put(w, BY__COMMAND_CALL, BY__QUEUE_COLLECTIVE, n, n);
    put(w, BY__COMMAND_RECORD, BY__QUEUE_COLLECTIVE, list->event_count, SIZE_MAX);
    w->done[n] = list->event_count++;
}

/* Makes the list of commands: collectives on their own queue, everything else on the compute queue,
 * which a WAIT orders after its collective. */
static by_status record(by_program *p, by_error *error)
{
    const by_graph *graph = p->graph;
    size_t count = graph->node_count;
    command_writer w = {.p = p};
    p->list = (by__device_command_list){
        .name = p->name, .calls = p->calls, .kernels = p->kernels, .call_count = count};
    BY_TRY(by__alloc((void **)&p->commands, 4 * count, sizeof *p->commands, "program", error));
    BY_TRY(by__alloc((void **)&w.done, count, sizeof *w.done, "program", error));
    for (size_t n = 0; n < count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        const by__op_row *row = by__op_row_of(node->op);
        if (row->communicates) {
            put_collective(&w, n);
        } else if (row->waits) {
            put(&w, BY__COMMAND_ORDER, BY__QUEUE_COMPUTE,
                w.done[graph->values[node->in[0]].producer], n);
        } else {
            put(&w, BY__COMMAND_CALL, BY__QUEUE_COMPUTE, n, n);
            w.computed = true;
        }
    }
    free(w.done);
    p->list.commands = p->commands;
    BY_TRY(by__device_staged_open(&p->staged, p->device, &p->list, error));
    return by__device_recording_open(&p->recording, p->device, &p->list, error);
}

static by_status compile(by_program *p, by_error *error)
{
    const by_graph *graph = p->graph;
    size_t operand_count = 0;
    BY_TRY(by__pass_memory_plan_make(&p->plan, graph, by__device_unit(p->device), error));
    for (size_t n = 0; n < graph->node_count; n++) {
        operand_count += (size_t)operand_slots(&graph->nodes[n]);
    }
    BY_TRY(by__alloc((void **)&p->calls, graph->node_count, sizeof *p->calls, "program", error));
    BY_TRY(by__alloc((void **)&p->kernels, graph->node_count, sizeof(void *), "program", error));
    BY_TRY(by__alloc((void **)&p->what, graph->node_count, sizeof(char *), "program", error));
    BY_TRY(by__alloc((void **)&p->operands, operand_count, sizeof *p->operands, "program", error));
    BY_TRY(by__alloc((void **)&p->live_bytes, graph->node_count, sizeof *p->live_bytes, "program",
                     error));
    BY_TRY(by__alloc((void **)&p->bound, graph->value_count, sizeof *p->bound, "program", error));
    BY_TRY(by__alloc((void **)&p->checks, graph->node_count * BY__MAX_INDICES, sizeof *p->checks,
                     "program", error));
    by__device_tensor *in = p->operands;
    for (size_t n = 0; n < graph->node_count; n++) {
        BY_TRY(prepare_call(p, n, in, error));
        in += operand_slots(&graph->nodes[n]);
        BY_TRY(collect_checks(p, n, error));
    }
    BY_TRY(measure_liveness(p, error));
    return record(p, error);
}

by_status by_program_compile(by_program **out, const by_graph *graph, by_device *device,
                             const char *name, by_error *error)
{
    by_program *p;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "program", error));
    p->graph = graph;
    p->device = device;
    p->stale = true;
    p->name = by__strdup(name);
    by_status status = p->name == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: program '%s'", name)
                           : compile(p, error);
    if (status != BY_OK) {
        by_program_close(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}

void by_program_close(by_program **program)
{
    if (program == NULL || *program == NULL) {
        return;
    }
    by_program *p = *program;
    by__device_staged_close(&p->staged);
    by__device_recording_close(&p->recording);
    for (size_t n = 0; n < p->prepared; n++) {
        if (p->kernels[n] != NULL && p->kernels[n]->release != NULL) {
            p->kernels[n]->release(&p->calls[n]);
        }
        free(p->what[n]);
    }
    free(p->what);
    by__pass_memory_plan_free(&p->plan);
    free(p->calls);
    free(p->kernels);
    free(p->operands);
    free(p->live_bytes);
    free(p->bound);
    free(p->checks);
    free(p->commands);
    free(p->name);
    free(p);
    *program = NULL;
}

size_t by_program_arena_bytes(const by_program *program)
{
    return program->plan.bytes;
}

/* Offset of the workspace of collectives. */
static size_t collective_offset(const by_program *p)
{
    return p->collective_bytes == 0 ? 0
                                    : by__round_up(p->workspace_bytes, by__device_unit(p->device));
}

size_t by_program_workspace_bytes(const by_program *program)
{
    return program->collective_bytes == 0 ? program->workspace_bytes
                                          : collective_offset(program) + program->collective_bytes;
}

by__device_recording_bytes by__exec_program_recording_bytes(const by_program *program)
{
    return by__device_recording_size(program->recording);
}

size_t by_program_live_bytes(const by_program *program)
{
    return program->plan.lower_bound;
}

int by_program_threads(const by_program *program)
{
    return by__device_context_of(program->device)->threads;
}

void by_program_set_memory(by_program *program, by_memory arena, by_memory workspace)
{
    program->arena = arena;
    program->workspace = workspace;
    program->stale = true;
}

/* Checks that kernels of the program's device can use this memory, and that it has at least `need`
 * bytes. */
static by_status check_memory(const by_program *p, const char *what, by_memory memory, size_t need,
                              by_error *error)
{
    char has[32];
    char wants[32];
    if (!by__device_has_memory_of(p->device, memory.device)) {
        return by_error_set(error, BY_EARG, "%s: %s is not memory of the program's device", p->name,
                            what);
    }
    if ((memory.address & (p->device->alignment - 1)) != 0) {
        return by_error_set(error, BY_EARG, "%s: %s is not %zu-byte aligned", p->name, what,
                            p->device->alignment);
    }
    if (memory.bytes < need) {
        return by_error_set(error, BY_EARG, "%s: %s has %s; it needs %s", p->name, what,
                            by_format_bytes(has, memory.bytes), by_format_bytes(wants, need));
    }
    return BY_OK;
}

by_status by_program_bind(by_program *program, by_value value, by_memory memory, by_error *error)
{
    char what[200];
    if (!by__graph_has(program->graph, value) ||
        !by__role_is_external(program->graph->values[value].role)) {
        return by_error_set(error, BY_EARG,
                            "%s: value %d is not an external one: it cannot be bound",
                            program->name, (int)value);
    }
    const by__graph_value *v = &program->graph->values[value];
    if (memory.address != 0) {
        (void)snprintf(what, sizeof what, "the buffer of '%s'", v->name);
        BY_TRY(check_memory(program, what, memory, by__graph_value_bytes(v), error));
    }
    program->stale = program->stale || program->bound[value].address != memory.address;
    program->bound[value] = memory;
    return BY_OK;
}

static by_status locate(const by_program *p, by_value value, void **out, by_error *error)
{
    *out = NULL;
    if (value == BY_NONE) {
        return BY_OK;
    }
    if (p->plan.offset[value] != SIZE_MAX) {
        *out = (void *)(p->arena.address + p->plan.offset[value]);
        return BY_OK;
    }
    by_value owner = p->plan.owner[value];
    *out = (void *)p->bound[owner].address;
    if (*out == NULL) {
        const char *name = p->graph->values[owner].name;
        return by_error_set(error, BY_ESTATE, "%s: '%s' is not bound to a buffer", p->name,
                            name == NULL ? "?" : name);
    }
    return BY_OK;
}

static by_status resolve(by_program *p, by_error *error)
{
    by__device_tensor *in = p->operands;
    const by_memory *areas[2] = {&p->arena, &p->workspace};
    const char *names[2] = {"the arena", "the workspace"};
    size_t needs[2] = {p->plan.bytes, by_program_workspace_bytes(p)};
    for (int i = 0; i < 2; i++) {
        if (areas[i]->address == 0 && needs[i] > 0) {
            return by_error_set(error, BY_ESTATE, "%s: the program has no memory yet: %s", p->name,
                                names[i]);
        }
        if (areas[i]->address != 0) {
            BY_TRY(check_memory(p, names[i], *areas[i], needs[i], error));
        }
    }
    for (size_t n = 0; n < p->graph->node_count; n++) {
        const by__graph_node *node = &p->graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            BY_TRY(locate(p, node->in[i], &in[i].data, error));
        }
        for (int i = 0; i < node->output_count; i++) {
            BY_TRY(locate(p, node->out[i], &p->calls[n].out[i].data, error));
        }
        bool apart = by__op_row_of(node->op)->communicates;
        p->calls[n].work = (void *)(p->workspace.address + (apart ? collective_offset(p) : 0));
        in += operand_slots(node);
    }
    return BY_OK;
}

static by_status check_index(const by_program *p, const index_check *check, const int32_t *ids,
                             by_error *error)
{
    int64_t count = by_shape_count(&p->graph->values[check->value].shape);
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] >= check->limit || (ids[i] < 0 && !check->may_ignore)) {
            return by_error_set(
                error, BY_EARG, "'%s' holds %d at place %lld; it must be less than %lld%s",
                p->graph->values[check->value].name, (int)ids[i], (long long)i,
                (long long)check->limit, check->may_ignore ? "" : " and not negative");
        }
    }
    return BY_OK;
}

by_status by_program_check(const by_program *program, by_value value, const int32_t *data,
                           by_error *error)
{
    for (size_t k = 0; k < program->check_count; k++) {
        if (program->checks[k].value == value) {
            BY_TRY(check_index(program, &program->checks[k], data, error));
        }
    }
    return BY_OK;
}

int64_t by_program_limit(const by_program *program, by_value value)
{
    int64_t limit = INT64_MAX;
    for (size_t k = 0; k < program->check_count; k++) {
        if (program->checks[k].value == value && program->checks[k].limit < limit) {
            limit = program->checks[k].limit;
        }
    }
    return limit;
}

/* Checks indices in memory that the host can read. */
static by_status check_host_indices(const by_program *p, by_error *error)
{
    for (size_t k = 0; k < p->check_count; k++) {
        const by_memory *memory = &p->bound[p->checks[k].value];
        if (memory->device == NULL) {
            BY_TRY(check_index(p, &p->checks[k], (const int32_t *)memory->address, error));
        }
    }
    return BY_OK;
}

static by_status submit(by_program *p, by_error *error)
{
    bool rebound = p->stale;
    if (rebound) {
        BY_TRY(resolve(p, error));
    }
    BY_TRY(check_host_indices(p, error));
    BY_TRY(p->staged != NULL
               ? by__device_staged_submit(p->staged, p->recording, p->hook, p->hook_user, error)
               : by__device_recording_submit(p->recording, rebound, p->hook, p->hook_user, error));
    p->stale = false;
    return BY_OK;
}

by_status by_program_submit(by_program *program, by_error *error)
{
    by_error local;
    error = error == NULL ? &local : error;
    return by__device_report(program->device, submit(program, error), error);
}

by_status by_program_run(by_program *program, by_error *error)
{
    BY_TRY(by_program_submit(program, error));
    return by__device_queue_finish(program->device, BY__QUEUE_COMPUTE, error);
}

void by_program_set_hook(by_program *program, by_program_hook *hook, void *user)
{
    program->hook = hook;
    program->hook_user = user;
}

const by__device_call *by__exec_program_call(const by_program *program, size_t node)
{
    return &program->calls[node];
}

int by_program_node_count(const by_program *program)
{
    return (int)program->graph->node_count;
}

static by_status check_node(const by_program *program, int node, by_error *error)
{
    if (node < 0 || (size_t)node >= program->graph->node_count) {
        return by_error_set(error, BY_EARG, "the program has no node %d (it has %zu)", node,
                            program->graph->node_count);
    }
    return BY_OK;
}

/* Dtype of a node's first floating-point operand; f32 if there is none. */
static by_dtype compute_dtype(const by_graph *graph, const by__graph_node *node)
{
    for (int i = 0; i < node->input_count; i++) {
        if (node->in[i] != BY_NONE && by_dtype_is_float(graph->values[node->in[i]].dtype)) {
            return graph->values[node->in[i]].dtype;
        }
    }
    return BY_F32;
}

by_status by_program_node_signature(const by_program *program, int node, char **out,
                                    by_error *error)
{
    BY_TRY(check_node(program, node, error));
    return by__op_node_signature(program->graph, (size_t)node, out, error);
}

by_status by_program_node(const by_program *program, int node, by_node_info *out, by_error *error)
{
    BY_TRY(check_node(program, node, error));
    const by__graph_node *n = &program->graph->nodes[node];
    const by__device_kernel *kernel = program->kernels[node];
    by__op_cost cost;
    BY_TRY(by__op_node_cost(program->graph, (size_t)node, &cost, error));
    *out = (by_node_info){.op = n->op,
                          .op_name = by_op_name(n->op),
                          .kernel = kernel == NULL ? by_op_name(n->op) : kernel->name,
                          .dtype = compute_dtype(program->graph, n),
                          .block = n->block,
                          .backward = n->phase == BY__BACKWARD,
                          .flops = cost.flops,
                          .bytes_read = cost.bytes_read,
                          .bytes_written = cost.bytes_written,
                          .bytes_sent = cost.bytes_sent,
                          .collective = by__op_row_of(n->op)->communicates,
                          .waits = by__op_row_of(n->op)->waits,
                          .workspace = program->calls[node].work_bytes,
                          .live_bytes = program->live_bytes[node]};
    return BY_OK;
}
