#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "checkpoint/storage.h"
#include "infer/infer.h"

/* Precisions with weights of fewer bits than the format that they compute in. */
static const struct {
    const char *name;
    by_packing_kind kind;
    int64_t group;
} codes[] = {{"int8", BY_PACKING_INT8, 0},
             {"w8a8", BY_PACKING_W8A8, 0},
             {"fp8", BY_PACKING_FP8, 0},
             {"int4", BY_PACKING_INT4, 32}};

static by_status read_precision(by__infer_forward_options *out, const char *name, by_error *error)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(codes); i++) {
        if (strcmp(name, codes[i].name) == 0) {
            out->compute = BY_BF16;
            out->pack.kind = codes[i].kind;
            out->pack.group = codes[i].group;
            return BY_OK;
        }
    }
    out->pack.kind = BY_PACKING_PACKED;
    return by_precision_parse(&out->compute, name, error);
}

by_status by_infer_precision(by_dtype *compute, const char *name, by_error *error)
{
    by__infer_forward_options options = {0};
    if (read_precision(&options, name, NULL) != BY_OK) {
        return by_error_set(
            error, BY_EARG,
            "'%s' is not a precision: must be f32, bf16, fp16, int8, w8a8, fp8 or int4", name);
    }
    *compute = options.compute;
    return BY_OK;
}

const char *by_infer_precision_of(const by_config *config, const by_weights *weights)
{
    bool found[BY__CODE_KINDS] = {false};
    bool in_codes = weights != NULL && by_weights_in_codes(weights);
    if (!in_codes && strcmp(config->precision.compute, "auto") == 0) { /* not resolved */
        return weights != NULL && by__weights_in_bf16(weights) ? "bf16" : "f32";
    }
    if (!in_codes) {
        return config->precision.compute;
    }
    for (size_t i = 0; i < by_weights_count(weights); i++) {
        const by__coded *coded = by__weights_coded(weights, by_weights_name(weights, i));
        if (coded != NULL) {
            found[coded->kind] = true;
        }
    }
    return found[BY__CODE_INT4]                    ? "int4"
           : found[BY__CODE_F8]                    ? "fp8"
           : by__weights_rows_as_integers(weights) ? "w8a8"
                                                   : "int8";
}

/* What the packing of a parameter depends on. */
typedef struct packing_choice {
    const by__infer_forward_options *options;
    const char *head; /* the parameter that makes the logits; NULL: none */
    bool panels;      /* by_device.panels */
} packing_choice;

/* Returns the codes of a matrix in a file; NULL: it has none. */
static const by__coded *codes_of(const by__infer_forward_options *o, const char *name)
{
    char other[512];
    const char *prefix = by_model_name_prefix(o->config);
    const by__coded *coded = by__weights_coded(o->weights, name);
    if (coded == NULL && prefix != NULL) {
        (void)snprintf(other, sizeof other, "%s%s", prefix, name);
        coded = by__weights_coded(o->weights, other);
    }
    return coded;
}

/* Returns the codes of a stack's first matrix, if those of all matrices are of the same format. */
static const by__coded *codes_of_stack(const by__infer_forward_options *o, const char *name)
{
    char part[512];
    by__checkpoint_stacked_name(part, sizeof part, name, 0);
    const by__coded *first = codes_of(o, part);
    for (int64_t i = 0; first != NULL && by_weights_has(o->weights, part); i++) {
        const by__coded *coded = codes_of(o, part);
        if (coded == NULL || coded->kind != first->kind || coded->group != first->group) {
            return NULL;
        }
        by__checkpoint_stacked_name(part, sizeof part, name, i + 1);
    }
    return first;
}

/* Packs weights that a file stores in codes in the same codes. */
static void choose_coded(const by__infer_forward_options *o, const char *name,
                         by_packing_kind *kind, int64_t *group)
{
    const by__coded *coded =
        by__checkpoint_name_is_stacked(name) ? codes_of_stack(o, name) : codes_of(o, name);
    if (coded != NULL && coded->kind == BY__CODE_INT8) {
        *kind = by__weights_rows_as_integers(o->weights) ? BY_PACKING_W8A8 : BY_PACKING_INT8;
    } else if (coded != NULL && coded->kind == BY__CODE_INT4) {
        *kind = BY_PACKING_INT4;
        *group = coded->scale_row > 1 ? coded->group : 128;
    } else if (coded != NULL) {
        *kind = BY_PACKING_FP8;
    }
}

/* Chooses 16-bit activations for the head, because errors show first in the logits, and because it
 * processes few rows, so that the bytes of its weights matter and not the multiplications. For the
 * same reason its weights are integers rather than FP8. */
static void choose_packing(const void *user, const char *name, by_packing_kind *kind,
                           int64_t *group)
{
    const packing_choice *choice = user;
    if (choice->options->in_codes) {
        choose_coded(choice->options, name, kind, group);
    }
    if ((*kind == BY_PACKING_W8A8 || *kind == BY_PACKING_FP8) && choice->head != NULL &&
        strcmp(name, choice->head) == 0) {
        *kind = BY_PACKING_INT8;
    }
    if (*kind == BY_PACKING_PACKED && !choice->panels) {
        *kind = BY_PACKING_NONE;
    }
}

by_status by__infer_forward_options_read(by__infer_forward_options *out, const by_config *config,
                                         const by_weights *weights, const char *precision,
                                         int threads, by_error *error)
{
    by__infer_forward_options options = {.config = &config->model,
                                         .seed = config->seed,
                                         .weights = weights,
                                         .device_name = config->device};
    bool in_codes = precision == NULL && weights != NULL && by_weights_in_codes(weights);
    BY_TRY(read_precision(&options,
                          precision != NULL ? precision
                          : in_codes        ? "bf16"
                                            : by_infer_precision_of(config, weights),
                          error));
    options.in_codes = in_codes;
    if (strcmp(by_model_reads(&config->model), "tokens") == 0 && config->model.vocab < 1) {
        return by_error_set(error, BY_EARG, "model.vocab is not known yet");
    }
    options.threads = by__thread_count(threads == 0 ? (int)config->train.threads : threads);
    *out = options;
    return BY_OK;
}

by_status by_infer_check_context(const by_model_config *config, int64_t context, by_error *error)
{
    if (!by_model_is_rotary(config) && context > config->context) {
        return by_error_set(error, BY_EARG,
                            "context %lld: the model has only %lld learned positions",
                            (long long)context, (long long)config->context);
    }
    return by__nn_model_check_context(config, context, error);
}

by_status by__infer_forward_open(by__infer_forward *out, const by__infer_forward_options *options,
                                 by_error *error)
{
    by__infer_forward forward = {.options = *options, .device = options->device};
    by_status status = BY_OK;
    if (forward.device == NULL) {
        status = by_device_open(&forward.device, options->device_name, options->threads, error);
        forward.owns_device = status == BY_OK;
    }
    if (forward.owns_device && options->on_use) {
        by__device_allocate_on_use(forward.device);
    }
    forward.programs.device = forward.device;
    if (status == BY_OK) {
        status = by__store_open(&forward.store, forward.device, error);
    }
    *out = forward;
    return status;
}

by_status by__infer_forward_borrow(by__infer_forward *out, const by__infer_forward *lender,
                                   const by_model_config *config, by_model_builder *builder,
                                   by_error *error)
{
    by__infer_forward_options options = lender->options;
    options.config = config;
    options.builder = builder;
    options.device = NULL;
    options.weights = NULL;
    *out = (by__infer_forward){.options = options, .lender = lender, .store = lender->store};
    BY_TRY(by__device_share(&out->device, lender->device, options.threads, error));
    out->owns_device = true;
    by__device_allocate_on_use(out->device);
    out->programs.device = out->device;
    return BY_OK;
}

void by__infer_forward_close(by__infer_forward *forward)
{
    if (forward->device != NULL) {
        (void)by_device_finish(forward->device, NULL);
    }
    by__exec_set_close(&forward->programs);
    if (forward->lender == NULL) {
        by__store_close(&forward->store);
    }
    if (forward->owns_device) {
        by_device_close(&forward->device);
    }
    *forward = (by__infer_forward){0};
}

by_status by__infer_forward_add(by__infer_forward *forward, const char *name,
                                const by_model_request *request, by_model *model,
                                by__exec_program_row **out, by_error *error)
{
    const by__infer_forward_options *o = &forward->options;
    by_pass_options passes = {.compute = o->compute, .loss = BY_NONE, .pack = o->pack};
    by_graph *graph;
    packing_choice choice = {.options = o};
    choice.panels = forward->device->panels;
    passes.unit = by__device_unit(forward->device);
    passes.pack.choose = choose_packing;
    passes.pack.user = &choice;
    const by__infer_forward *like = forward->lender != NULL ? forward->lender : forward;
    if (like->programs.count > 0) {
        passes.pack.like = like->programs.rows[0]->graph;
    }
    *model = BY_MODEL_NONE;
    BY_TRY(by_graph_open(&graph, error));
    by_status status = o->builder != NULL
                           ? o->builder(o->user, model, graph, o->config, request, error)
                           : by_model_build(model, graph, o->config, request, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    choice.head = model->head == BY_NONE ? NULL : graph->values[model->head].name;
    return by__exec_set_add(&forward->programs, name, graph, BY_PURPOSE_INFER, &passes, out, error);
}

/* Adds the key/value caches of a graph as entries of a separate group. */
static by_status declare_caches(by__store *store, const by_graph *graph, by_error *error)
{
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        by__store_handle handle;
        if (value->role == BY_ROLE_STATE) {
            by__store_tensor entry = {.name = value->name,
                                      .shape = value->shape,
                                      .format = value->dtype,
                                      .group = BY__GROUP_CACHES};
            BY_TRY(by__store_add(store, &entry, &handle, error));
        }
    }
    return BY_OK;
}

by_status by__infer_forward_plan(by__infer_forward *forward, const by_weights *weights,
                                 by_error *error)
{
    const by_graph *graph = forward->programs.rows[0]->graph;
    const by__infer_forward_options *o = &forward->options;
    by__nn_file_names names = by__nn_model_file_names(o->config);
    by__checkpoint_load_options load = {.family = names.family,
                                        .base = names.base,
                                        .heads = names.heads,
                                        .tied = o->builder == NULL ? names.tied : NULL,
                                        .whole = true,
                                        .besides = forward->options.besides};
    by__store_flat_spec spec = {
        .role = BY__COPY, .dtype = BY_DTYPE_COUNT, .groups = (1u << BY__GROUPS) - 1};
    BY_TRY(by__nn_declare_parameters(forward->store, graph, error));
    BY_TRY(declare_caches(forward->store, graph, error));
    BY_TRY(by__store_add_flat(forward->store, &spec, &forward->weights, error));
    spec.role = BY__CACHE;
    spec.groups = 1u << BY__GROUP_CACHES;
    BY_TRY(by__store_add_flat(forward->store, &spec, &forward->caches, error));
    return weights == NULL ? BY_OK
                           : by__checkpoint_store_check(forward->store, forward->weights, weights,
                                                        &load, error);
}

/* Checks that there is enough memory beforehand: pages are allocated on first access, and a process
 * that exceeds the available memory is killed. */
static by_status check_memory(const by__infer_forward *forward, by_error *error)
{
    char text[5][32];
    uint64_t available = by__device_memory_free(forward->device);
    uint64_t weights = by__store_bytes(forward->store, BY__COPY);
    uint64_t caches = by__store_bytes(forward->store, BY__CACHE);
    uint64_t rest = by__exec_set_arena_bytes(&forward->programs) +
                    by__exec_set_workspace_bytes(&forward->programs);
    uint64_t need = weights + caches + rest;
    if (need <= available) {
        return BY_OK;
    }
    return by_error_set(error, BY_EMEMORY,
                        "not enough memory: %s are needed and %s are free%s (weights %s, KV cache "
                        "%s, activations %s); use fewer bits (precision) or a shorter context",
                        by_format_bytes(text[0], need), by_format_bytes(text[1], available),
                        forward->device->host_memory ? "" : " on the device",
                        by_format_bytes(text[2], weights), by_format_bytes(text[3], caches),
                        by_format_bytes(text[4], rest));
}

/* Starts with the parameters of the lender. */
static by_status start_borrowed(by__infer_forward *forward, by_error *error)
{
    BY_TRY(by__exec_set_allocate(&forward->programs, error));
    for (size_t i = 0; i < forward->programs.count; i++) {
        by__exec_program_row *row = forward->programs.rows[i];
        BY_TRY(by__exec_row_link(row, forward->store, error));
        for (size_t k = 0; k < row->link_count; k++) {
            by_memory m =
                by__store_buffer(forward->store, forward->lender->weights, row->links[k].entry);
            BY_TRY(by_program_bind(row->program, row->links[k].value, m, error));
        }
    }
    return BY_OK;
}

by_status by__infer_forward_start(by__infer_forward *forward, const by_weights *weights,
                                  by_error *error)
{
    const by__infer_forward_options *o = &forward->options;
    if (forward->lender != NULL) {
        return start_borrowed(forward, error);
    }
    by__nn_file_names names = by__nn_model_file_names(o->config);
    by__checkpoint_load_options load = {
        .family = names.family, .base = names.base, .threads = o->threads};
    BY_TRY(check_memory(forward, error));
    BY_TRY(by__store_allocate(forward->store, NULL, error));
    BY_TRY(by__exec_set_allocate(&forward->programs, error));
    for (size_t i = 0; i < forward->programs.count; i++) {
        by__exec_program_row *row = forward->programs.rows[i];
        BY_TRY(by__exec_row_link(row, forward->store, error));
        BY_TRY(by__exec_row_bind_flat(row, forward->store, BY_ROLE_PARAMETER, forward->weights,
                                      forward->weights, error));
        BY_TRY(by__exec_row_bind_flat(row, forward->store, BY_ROLE_STATE, forward->caches,
                                      forward->caches, error));
    }
    return weights == NULL
               ? by__nn_initialize_parameters(forward->store, forward->weights,
                                              forward->programs.rows[0]->graph, o->seed, o->threads,
                                              error)
               : by__checkpoint_store_load(forward->store, forward->weights, weights, &load, error);
}
