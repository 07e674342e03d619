/* A part of a model under calibration, ready to run, and the values that pass between parts. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compress/calibrate.h"

by_status by__compress_state_map(by__compress_walk *w, by__compress_crossing *x, by_error *error)
{
    size_t bytes;
    char *path = by__path_join(w->c->temporary, "state");
    by_status status =
        path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path") : BY_OK;
    if (status == BY_OK && !by__size_mul(x->stride, w->tokens.batches, &bytes)) {
        status = by_error_set(error, BY_EMEMORY, "the calibration data is too large");
    }
    int fd = status == BY_OK ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    /* Allocates the blocks of the file now, because a write through the map cannot report an
     * error. */
    int failed = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (status == BY_OK && failed != 0) {
        errno = failed;
        status = by__io_error(error, "write", path);
    }
    if (status == BY_OK) {
        void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        status = data == MAP_FAILED ? by__io_error(error, "map", path) : BY_OK;
        x->data = data == MAP_FAILED ? NULL : data;
    }
    if (fd >= 0) {
        (void)unlink(path);
        (void)close(fd);
    }
    free(path);
    return status;
}

void by__compress_state_unmap(const by__compress_walk *w, by__compress_crossing *x)
{
    if (x->data != NULL) {
        (void)munmap(x->data, x->stride * w->tokens.batches);
        x->data = NULL;
    }
}

by__compress_crossing *by__compress_crossing_find(const by__compress_walk *w, const char *name)
{
    char buffer[32];
    for (size_t i = 0; i < w->crossing_count; i++) {
        if (strcmp(by__pass_crossing_name(buffer, w->graph, w->crossings[i].value), name) == 0) {
            return &w->crossings[i];
        }
    }
    return NULL;
}

/* ---- a stage ---- */

void by__compress_stage_close(by__compress_stage *s)
{
    by_program_close(&s->program);
    by_device_free(&s->arena);
    by_device_free(&s->workspace);
    for (size_t v = 0; s->host != NULL && v < s->graph->value_count; v++) {
        if (s->copies) {
            free(s->host[v]);
        }
        by_device_free(&s->bound[v]);
    }
    free(s->host);
    free(s->bound);
    by_graph_close(&s->graph);
}

static by_status read_parameter(const by__compress_walk *w, const by__graph_value *value,
                                float *out, by_error *error)
{
    by_tensor_view view;
    char *name = by__compress_file_name(w->c, value->name);
    if (name == NULL && by__checkpoint_name_is_stacked(value->name)) {
        by_tensor_slice whole = {0};
        memcpy(whole.shape, value->shape.dim, (size_t)value->shape.rank * sizeof *whole.shape);
        return by__checkpoint_stacked_read(out, w->c->weights, value->name, &value->shape, &whole,
                                           error);
    }
    if (name == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: no tensor '%s'", by_weights_path(w->c->weights),
                            value->name);
    }
    size_t count;
    by_status status = by__weights_describe(w->c->weights, name, &view, error);
    if (status == BY_OK) {
        status = by_tensor_size(&view, &count, NULL, error);
    }
    if (status == BY_OK && count * sizeof *out > by__graph_value_bytes(value)) {
        status = by_error_set(error, BY_EFORMAT, "%s: tensor '%s' is larger than the model's",
                              by_weights_path(w->c->weights), name);
    }
    if (status == BY_OK) {
        by_tensor_slice whole = by_tensor_whole(&view);
        status = by_weights_read_f32(w->c->weights, name, &whole, out, count, error);
    }
    free(name);
    return status;
}

by_status by__compress_stage_send(const by__compress_stage *s, by_value value, by_error *error)
{
    return s->copies ? by_device_write(s->bound[value], s->host[value], error) : BY_OK;
}

static by_status fetch(const by__compress_stage *s, by_value value, by_error *error)
{
    return s->copies ? by_device_read(s->host[value], s->bound[value], error) : BY_OK;
}

/* Allocates memory of the stage's own for a value, and binds it. */
static by_status own_value(const by__compress_walk *w, by__compress_stage *s, by_value v,
                           by_error *error)
{
    const by__graph_value *value = &s->graph->values[v];
    size_t bytes = by__graph_value_bytes(value);
    BY_TRY(by_device_alloc(&s->bound[v], w->device, bytes, value->name, error));
    BY_TRY(by_program_bind(s->program, v, s->bound[v], error));
    if (s->copies) {
        return by__alloc(&s->host[v], bytes, 1, value->name, error);
    }
    s->host[v] = (void *)s->bound[v].address;
    return BY_OK;
}

/* Allocates memory for the stage's parameters and results, and where the device has memory of its
 * own, for what passes between stages. */
static by_status bind_own(const by__compress_walk *w, by__compress_stage *s, by_error *error)
{
    s->copies = !w->device->host_memory;
    BY_TRY(
        by__alloc((void **)&s->bound, s->graph->value_count, sizeof *s->bound, "a block", error));
    BY_TRY(by__alloc((void **)&s->host, s->graph->value_count, sizeof *s->host, "a block", error));
    for (size_t v = 0; v < s->graph->value_count; v++) {
        const by__graph_value *value = &s->graph->values[v];
        bool passes = value->role == BY_ROLE_INPUT || value->role == BY_ROLE_OUTPUT;
        bool owned =
            value->role == BY_ROLE_PARAMETER || (passes && s->copies) ||
            (value->role == BY_ROLE_OUTPUT && by__compress_crossing_find(w, value->name) == NULL);
        if (!owned) {
            continue;
        }
        BY_TRY(own_value(w, s, (by_value)v, error));
        if (value->role == BY_ROLE_PARAMETER) {
            BY_TRY(read_parameter(w, value, s->host[v], error));
            BY_TRY(by__compress_stage_send(s, (by_value)v, error));
        }
    }
    return BY_OK;
}

/* What a value that passes between stages has for a batch; NULL: it is not one. */
static void *passed(const by__compress_walk *w, const by__graph_value *value, size_t batch)
{
    if (value->role != BY_ROLE_INPUT && value->role != BY_ROLE_OUTPUT) {
        return NULL;
    }
    const by__compress_crossing *x = by__compress_crossing_find(w, value->name);
    return x != NULL                            ? x->data + batch * x->stride
           : strcmp(value->name, "tokens") == 0 ? w->tokens.data + batch * w->tokens.stride
                                                : NULL;
}

by_status by__compress_stage_run(const by__compress_walk *w, by__compress_stage *s, size_t batch,
                                 by_error *error)
{
    for (size_t v = 0; v < s->graph->value_count; v++) {
        const by__graph_value *value = &s->graph->values[v];
        void *data = passed(w, value, batch);
        if (data != NULL && !s->copies) {
            by_memory memory = by_host_memory(data, by__graph_value_bytes(value));
            BY_TRY(by_program_bind(s->program, (by_value)v, memory, error));
        } else if (data != NULL && value->role == BY_ROLE_INPUT) {
            BY_TRY(by_device_write(s->bound[v], data, error));
        }
    }
    BY_TRY(by_program_run(s->program, error));
    for (size_t v = 0; v < s->graph->value_count && s->copies; v++) {
        const by__graph_value *value = &s->graph->values[v];
        void *data = passed(w, value, batch);
        if (value->role == BY_ROLE_OUTPUT && data != NULL) {
            BY_TRY(by_device_read(data, s->bound[v], error));
        } else if (value->role == BY_ROLE_OUTPUT) {
            BY_TRY(fetch(s, (by_value)v, error));
        }
    }
    return BY_OK;
}

by_status by__compress_stage_open(const by__compress_walk *w, by__compress_stage *s,
                                  by_error *error)
{
    BY_TRY(by_program_compile(&s->program, s->graph, w->device, "calibration", error));
    BY_TRY(by_device_alloc(&s->arena, w->device, by_program_arena_bytes(s->program),
                           "the activations", error));
    BY_TRY(by_device_alloc(&s->workspace, w->device, by_program_workspace_bytes(s->program),
                           "the workspace", error));
    by_program_set_memory(s->program, s->arena, s->workspace);
    return bind_own(w, s, error);
}
