/* Tensor-parallel models on ranks that are threads, against the same model on one rank: loss, and
 * the gradient of every parameter within the bound of arXiv 2506.09280 (theorem 5.3) for two orders
 * of the same sums, ||g' - g|| / ||g|| <= 4 * 1.03^(L + 1 - l) * eps. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/comm.h"
#include "banyan/model.h"
#include "banyan/passes.h"
#include "exec/exec.h"
#include "ops/ops.h"
#include "runner.h"
#include "trainer/graphs/graphs.h"
#include "trainer/state/train.h"

enum { LAYERS = 2, MAX_VALUES = 256 };

#define TENSOR (1u << BY_MESH_TENSOR)

typedef struct layout {
    const char *kind;
    const char *recompute;
    by_dtype compute;
    int ranks;                   /* of the tensor axis */
    bool sequence;               /* with it, sequence parallel */
    int times;                   /* ranks of the sequence axis; 0: 1 */
    const char *const *features; /* settings in addition, up to a NULL; NULL: none */
} layout;

static by_config *model_config(const layout *l)
{
    by_error error = {0};
    by_config *config;
    char assignment[64];
    static const char *const settings[] = {
        "model.layers=2", "model.heads=12",     "model.width=24",    "model.context=24",
        "model.vocab=11", "model.mlp_width=26", "model.dropout=0.2", "model.init_std=0.3",
        "train.batch=3",  "train.micro_batch=3"};
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, "precision.compute=f32", &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    (void)snprintf(assignment, sizeof assignment, "model.kind=%s", l->kind);
    check_ok(by_config_set(config, assignment, &error), &error);
    (void)snprintf(assignment, sizeof assignment, "memory.recompute=%s", l->recompute);
    check_ok(by_config_set(config, assignment, &error), &error);
    if (strcmp(l->kind, "llama") == 0) { /* two query heads share one of keys and values */
        (void)snprintf(assignment, sizeof assignment, "model.kv_heads=%d", l->ranks == 4 ? 4 : 6);
        check_ok(by_config_set(config, assignment, &error), &error);
    }
    for (size_t i = 0; l->features != NULL && l->features[i] != NULL; i++) {
        check_ok(by_config_set(config, l->features[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

static by_status build(by_graph **out, const layout *l, const by_config *config,
                       const by_shard_axis axes[BY_SHARD_KINDS], by_error *error)
{
    by_model model;
    const by__trainer_recipe recipe = {0};
    BY_TRY(by__trainer_forward_graph(out, &model, config, &recipe, BY_MODEL_TRAIN, error));
    bool blocks = strcmp(l->recompute, "block") == 0;
    by_pass_options options = {.compute = l->compute,
                               .loss = model.loss,
                               .recompute.kind = blocks ? BY_RECOMPUTE_BLOCK : BY_RECOMPUTE_NONE};
    memcpy(options.shard, axes, sizeof options.shard);
    return by_passes_run(*out, BY_PURPOSE_TRAIN, &options, NULL, error);
}

/* ---- pieces ---- */

/* Calls with the element of the whole and that of the rank's part, for each element of the part. */
static size_t whole_index(const by__graph_value *value, size_t local)
{
    const by_shape *whole = value->part_count > 0 ? &value->whole : &value->shape;
    size_t at = 0;
    size_t stride = 1;
    for (int i = whole->rank; i-- > 0;) {
        int64_t index = (int64_t)(local % (size_t)value->shape.dim[i]);
        local /= (size_t)value->shape.dim[i];
        for (int p = 0; p < value->part_count; p++) {
            const by__graph_value_part *part = &value->part[p];
            if (part->split.axis == i) {
                int64_t section = whole->dim[i] / part->split.sections;
                int64_t mine = value->shape.dim[i] / part->split.sections;
                index = index / mine * section + by__op_cut(section, part->ranks, part->rank) +
                        index % mine;
            }
        }
        at += (size_t)index * stride;
        stride *= (size_t)whole->dim[i];
    }
    return at;
}

/* ---- one rank ---- */

typedef struct rank_run {
    by_graph *graph;
    by_device *device;
    by_program *program;
    by_mesh *mesh;
    by__exec_mesh_collectives *collectives;
    by_memory memory[MAX_VALUES];
    by_memory arena, workspace;
} rank_run;

static by_status open_program(rank_run *r, by_error *error)
{
    BY_TRY(by_device_open(&r->device, "cpu", 1, error));
    if (r->collectives != NULL) {
        BY_TRY(by__exec_mesh_collectives_use(r->collectives, r->graph, error));
        by__device_set_collectives(r->device, &r->collectives->base);
    }
    BY_TRY(by_program_compile(&r->program, r->graph, r->device, "test", error));
    BY_TRY(
        by_device_alloc(&r->arena, r->device, by_program_arena_bytes(r->program), "a test", error));
    BY_TRY(by_device_alloc(&r->workspace, r->device, by_program_workspace_bytes(r->program),
                           "a test", error));
    by_program_set_memory(r->program, r->arena, r->workspace);
    size_t bound = 0;
    for (size_t v = 0; v < r->graph->value_count; v++) {
        const by__graph_value *value = &r->graph->values[v];
        if (by__role_is_external(value->role)) {
            by_memory *memory = &r->memory[bound++];
            BY_TRY(
                by_device_alloc(memory, r->device, by__graph_value_bytes(value), "a test", error));
            BY_TRY(by_program_bind(r->program, (by_value)v, *memory, error));
        }
    }
    return BY_OK;
}

static void close_program(rank_run *r)
{
    by_program_close(&r->program);
    for (size_t i = 0; i < MAX_VALUES; i++) {
        by_device_free(&r->memory[i]);
    }
    by_device_free(&r->arena);
    by_device_free(&r->workspace);
    by_device_close(&r->device);
    by__exec_mesh_collectives_close(&r->collectives);
    by_mesh_close(&r->mesh);
    by_graph_close(&r->graph);
}

static void *data_of(const rank_run *r, size_t value)
{
    size_t bound = 0;
    for (size_t v = 0; v < value; v++) {
        bound += by__role_is_external(r->graph->values[v].role);
    }
    return (void *)r->memory[bound].address;
}

/* Inputs and parameters: functions of the name and of the element of the whole. */
static void fill(const rank_run *r)
{
    for (size_t v = 0; v < r->graph->value_count; v++) {
        const by__graph_value *value = &r->graph->values[v];
        if (value->role != BY_ROLE_INPUT && value->role != BY_ROLE_PARAMETER) {
            continue;
        }
        uint64_t stream = by__hash64(value->name, strlen(value->name));
        for (size_t i = 0; i < (size_t)by_shape_count(&value->shape); i++) {
            double u = random_unit(3, stream, whole_index(value, i));
            bool scale = strcmp(value->name, "loss_scale") == 0;
            double number = value->dtype == BY_I32 ? floor((u + 1.0) * 5.5) : scale ? 0.1 : 0.1 * u;
            number = value->init.kind == BY_INIT_ONE ? 1.0 + 0.1 * u : number;
            if (strcmp(value->name, "targets") == 0 && i % 5 == 2) {
                number = -1.0;
            }
            set_element(data_of(r, v), value->dtype, i, number);
        }
    }
}

/* ---- comparing ---- */

typedef struct whole_tensor {
    char name[96];
    float *data;
    size_t count;
} whole_tensor;

/* The results of one rank, and those of all put together. */
typedef struct job {
    const layout *layout;
    const by_config *config;
    whole_tensor tensors[MAX_VALUES];
    size_t count;
} job;

static whole_tensor *tensor_of(job *j, const char *name)
{
    for (size_t i = 0; i < j->count; i++) {
        if (strcmp(j->tensors[i].name, name) == 0) {
            return &j->tensors[i];
        }
    }
    return NULL;
}

static bool is_result(const by__graph_value *value)
{
    return value->role == BY_ROLE_GRADIENT || value->role == BY_ROLE_OUTPUT;
}

static int times_of(const layout *l)
{
    return l->times > 1 ? l->times : 1;
}

static by_status open_rank(rank_run *r, const job *j, by_comm *comm, by_error *error)
{
    by_shard_axis axes[BY_SHARD_KINDS] = {{0}};
    if (comm != NULL) {
        int sizes[BY_MESH_AXES] = {1, 1, 1, 1, times_of(j->layout), j->layout->ranks};
        BY_TRY(by_mesh_open(&r->mesh, comm, sizes, error));
        BY_TRY(by__exec_mesh_collectives_open(&r->collectives, r->mesh, error));
        axes[BY_SHARD_TENSOR] = (by_shard_axis){.ranks = by_mesh_size(r->mesh, BY_MESH_TENSOR),
                                                .rank = by_mesh_rank(r->mesh, BY_MESH_TENSOR),
                                                .mesh = TENSOR,
                                                .sequence = j->layout->sequence};
        axes[BY_SHARD_SEQUENCE] = (by_shard_axis){.ranks = by_mesh_size(r->mesh, BY_MESH_SEQUENCE),
                                                  .rank = by_mesh_rank(r->mesh, BY_MESH_SEQUENCE),
                                                  .mesh = 1u << BY_MESH_SEQUENCE};
    }
    BY_TRY(build(&r->graph, j->layout, j->config, axes, error));
    BY_TRY(open_program(r, error));
    fill(r);
    return by_program_run(r->program, error);
}

/* The value whose part a gradient is. */
static const by__graph_value *parameter_of(const by_graph *graph, const by__graph_value *value)
{
    by_value parameter =
        value->role == BY_ROLE_GRADIENT ? by_graph_find(graph, value->name + 5) : BY_NONE;
    return parameter == BY_NONE ? value : &graph->values[parameter];
}

/* Puts a rank's parts of the results into the job's; what every rank has must be equal. */
static by_status deliver(job *j, const rank_run *r, int rank, by_comm *comm, by_error *error)
{
    for (size_t v = 0; v < r->graph->value_count; v++) {
        const by__graph_value *value = &r->graph->values[v];
        whole_tensor *tensor = is_result(value) ? tensor_of(j, value->name) : NULL;
        if (tensor == NULL) {
            continue;
        }
        const by__graph_value *parameter = parameter_of(r->graph, value);
        const float *data = data_of(r, v);
        bool split = parameter->part_count > 0;
        BY_TRY(by_comm_barrier(comm, value->name, error));
        for (size_t i = 0; i < (size_t)by_shape_count(&value->shape); i++) {
            size_t at = whole_index(parameter, i);
            if (rank == 0 || (split && by_mesh_rank(r->mesh, BY_MESH_SEQUENCE) == 0)) {
                tensor->data[at] = data[i];
            }
        }
        BY_TRY(by_comm_barrier(comm, value->name, error));
        for (size_t i = 0; i < (size_t)by_shape_count(&value->shape); i++) {
            if (tensor->data[whole_index(parameter, i)] != data[i]) {
                return by_error_set(error, BY_ESTATE, "ranks differ in '%s' [%zu]: %g and %g",
                                    value->name, i, (double)tensor->data[i], (double)data[i]);
            }
        }
    }
    return BY_OK;
}

static by_status rank_main(by_comm *comm, void *user, by_error *error)
{
    job *j = user;
    rank_run r = {0};
    by_status status = open_rank(&r, j, comm, error);
    if (status == BY_OK) {
        status = deliver(j, &r, by_comm_rank(comm), comm, error);
    }
    status = by_comm_fail(comm, status, error); /* others wait for this rank */
    close_program(&r);
    return status;
}

/* Depth of a parameter: 1 for the first block and what is before it, L + 1 behind the last. */
static int depth_of(const char *name)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        char part[16];
        (void)snprintf(part, sizeof part, ".%d.", layer);
        if (strstr(name, part) != NULL) {
            return layer + 1;
        }
    }
    return strstr(name, "ln_f") != NULL || strstr(name, "norm") != NULL ||
                   strstr(name, "lm_head") != NULL
               ? LAYERS + 1
               : 1;
}

/* Results of one rank, with the kernels of a level of instructions. */
static void run_alone(job *j, const char *isa)
{
    by_error error = {0};
    rank_run r = {0};
    set_isa(isa);
    check_ok(open_rank(&r, j, NULL, &error), &error);
    for (size_t v = 0; v < r.graph->value_count; v++) {
        const by__graph_value *value = &r.graph->values[v];
        if (is_result(value)) {
            size_t count = (size_t)by_shape_count(&value->shape);
            whole_tensor tensor = {.count = count, .data = calloc(count, sizeof(float))};
            assert_true(tensor.data != NULL && j->count < MAX_VALUES);
            memcpy(tensor.data, data_of(&r, v), count * sizeof(float));
            (void)snprintf(tensor.name, sizeof tensor.name, "%s", value->name);
            j->tensors[j->count++] = tensor;
        }
    }
    close_program(&r);
    set_isa("native");
}

/* The bound is on what another order of sums does; rounding that one rank has, too, comes in
 * addition. Both are distances from kernels that add up in double. */
static void check_layout(const layout *l)
{
    by_error error = {0};
    by_config *config = model_config(l);
    job exact = {.layout = l, .config = config};
    job one = {.layout = l, .config = config};
    job many = {.layout = l, .config = config};
    run_alone(&exact, "reference");
    run_alone(&one, "native");
    many.count = one.count;
    for (size_t i = 0; i < one.count; i++) {
        many.tensors[i] = one.tensors[i];
        many.tensors[i].data = calloc(one.tensors[i].count, sizeof(float));
        assert_non_null(many.tensors[i].data);
    }
    by_comm_options options = {.timeout = 1700.0};
    check_ok(by_comm_run_threads(l->ranks * times_of(l), &options, rank_main, &many, &error),
             &error);
    double eps = l->compute == BY_F32 ? (double)FLT_EPSILON : 0x1p-7;
    double worst = 0.0;
    for (size_t i = 0; i < one.count; i++) {
        const whole_tensor *want = &exact.tensors[i];
        const whole_tensor *have = &many.tensors[i];
        double own = relative_distance(one.tensors[i].data, want->data, want->count);
        double off = relative_distance(have->data, want->data, want->count) - own;
        double bound = 4.0 * pow(1.03, LAYERS + 1 - depth_of(want->name)) * eps;
        worst = off / bound > worst ? off / bound : worst;
        if (!(off <= bound)) {
            fail_msg("%s over %d x %d ranks%s: '%s' is off by %g; the bound is %g", l->kind,
                     times_of(l), l->ranks, l->sequence ? ", sequence" : "", want->name, off,
                     bound);
        }
        free(one.tensors[i].data);
        free(want->data);
        free(have->data);
    }
    assert_true(one.count > 10);
    print_message("%s, %s, %d x %d ranks%s: %.2f of the bound\n", l->kind,
                  by_dtype_name(l->compute), times_of(l), l->ranks, l->sequence ? ", sequence" : "",
                  worst);
    by_config_close(&config);
}

static void check_kind(const char *kind, const char *recompute)
{
    for (int ranks = 2; ranks <= 4; ranks++) {
        for (int sequence = 0; sequence < 2; sequence++) {
            layout l = {kind, recompute, BY_F32, ranks, sequence != 0, 1, NULL};
            check_layout(&l);
            l.compute = BY_BF16;
            check_layout(&l);
        }
    }
}

static void test_gpt2(void **state)
{
    BY_UNUSED(state);
    check_kind("gpt2", "none");
}

static void test_llama(void **state)
{
    BY_UNUSED(state);
    check_kind("llama", "none");
}

/* Biases of split projections, and norms of heads whose weights all ranks have. In f32 alone: keys
 * that all move by a bias change the scores little, so that its gradient in bf16 is mostly
 * rounding. */
static void test_llama_features(void **state)
{
    BY_UNUSED(state);
    static const char *const qwen2[] = {"model.qkv_bias=true", NULL};
    static const char *const qwen3[] = {"model.qk_norm=true", "model.head_dim=6", NULL};
    static const char *const biases[] = {"model.qkv_bias=true", "model.output_bias=true",
                                         "model.mlp_bias=true", NULL};
    /* Without biases of keys: in a layer without positions, keys that all move by one change no
     * score at all, and the gradient would be nothing but rounding. */
    static const char *const smollm3[] = {"model.nope_layers=[1]", NULL};
    static const char *const *const features[] = {qwen2, qwen3, biases, smollm3};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(features) * 2; i++) {
        layout l = {.kind = "llama",
                    .recompute = i % 2 == 0 ? "none" : "block",
                    .ranks = i % 2 == 0 ? 2 : 3,
                    .sequence = i % 2 != 0,
                    .features = features[i / 2]};
        check_layout(&l);
    }
}

/* Blocks that are computed again take the results of their collectives from the first time. */
static void test_recompute(void **state)
{
    BY_UNUSED(state);
    check_kind("gpt2", "block");
}

/* Sequences over ranks, alone and with split tensors. */
static void test_context(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"gpt2", "llama"};
    static const layout layouts[] = {{.times = 2, .ranks = 1},
                                     {.times = 3, .ranks = 1},
                                     {.times = 4, .ranks = 1},
                                     {.times = 2, .ranks = 2},
                                     {.times = 2, .ranks = 3, .sequence = true}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts) * 4; i++) {
        layout l = layouts[i / 4];
        l.kind = kinds[i % 2];
        l.compute = i / 2 % 2 == 0 ? BY_F32 : BY_BF16;
        l.recompute = "none";
        check_layout(&l);
    }
    /* Which experts a token goes to is a matter of rounding in bf16. */
    for (size_t i = 0; i < 3; i++) {
        layout l = layouts[i];
        l.kind = "mixtral";
        l.compute = BY_F32;
        l.recompute = "none";
        check_layout(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context),   cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama),     cmocka_unit_test(test_llama_features),
        cmocka_unit_test(test_recompute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
