/* Programs of element-wise steps as one operation (banyan/map.h). */
#include "banyan/map.h"

#include <math.h>
#include <stdlib.h>

#include "ops/ops.h"

typedef struct kind_row {
    const char *name;
    double flops;
} kind_row;

static const kind_row kinds[BY_MAP_KINDS] = {
    [BY_MAP_CONSTANT] = {"constant", 0.0}, [BY_MAP_SCALAR] = {"scalar", 0.0},
    [BY_MAP_ADD] = {"add", 1.0},           [BY_MAP_SUB] = {"sub", 1.0},
    [BY_MAP_MUL] = {"mul", 1.0},           [BY_MAP_DIV] = {"div", 1.0},
    [BY_MAP_MIN] = {"min", 1.0},           [BY_MAP_MAX] = {"max", 1.0},
    [BY_MAP_LESS] = {"less", 1.0},         [BY_MAP_SELECT] = {"select", 1.0},
    [BY_MAP_NEGATE] = {"negate", 1.0},     [BY_MAP_ABS] = {"abs", 1.0},
    [BY_MAP_SIGN] = {"sign", 1.0},         [BY_MAP_SQUARE] = {"square", 1.0},
    [BY_MAP_SQRT] = {"sqrt", 1.0},         [BY_MAP_RSQRT] = {"rsqrt", 2.0},
    [BY_MAP_FINITE] = {"finite", 1.0},     [BY_MAP_FUNCTION] = {"function", 12.0},
};

/* ---- the program ---- */

/* Returns true if the value exists before step `steps` and is a tensor's element, not an input of
 * scalars. */
static bool is_value(const by_map_program *map, int value, int steps)
{
    if (value >= BY_MAP_MAX_INPUTS) {
        return value - BY_MAP_MAX_INPUTS < steps;
    }
    return value >= 0 && value < map->inputs && !by__mask_has(map->scalars, value);
}

static const char *wrong_step(const by_map_program *map, int k)
{
    const by_map_instruction *step = &map->step[k];
    if ((unsigned)step->kind >= BY_MAP_KINDS) {
        return "a step has an unknown kind";
    }
    if (step->kind == BY_MAP_FUNCTION && (unsigned)step->function >= BY_FN_COUNT) {
        return "a step has an unknown function";
    }
    if (step->kind == BY_MAP_CONSTANT && isnan(step->constant)) {
        return "a constant is not a number";
    }
    if (step->kind == BY_MAP_SCALAR &&
        (step->operand[0] < 0 || step->operand[0] >= map->inputs ||
         !by__mask_has(map->scalars, step->operand[0]) || step->operand[1] < 0)) {
        return "a step reads a scalar of an input that has none";
    }
    for (int i = 0; i < by_map_operands(step->kind); i++) {
        if (!is_value(map, step->operand[i], k)) {
            return "a step reads a value that is not there yet";
        }
    }
    return NULL;
}

static const char *wrong_target(const by_map_program *map)
{
    uint32_t updated = 0;
    for (int i = 0; i < map->results; i++) {
        if (!is_value(map, map->result[i].value, map->steps) ||
            !by__op_is_act(map->result[i].dtype)) {
            return "a result must be a value, in f32, bf16 or f16";
        }
    }
    for (int i = 0; i < map->updates; i++) {
        int input = map->update[i].input;
        if (input < 0 || input >= map->inputs || by__mask_has(map->scalars | updated, input)) {
            return "an update must be of a tensor operand, once";
        }
        if (!is_value(map, map->update[i].value, map->steps)) {
            return "an update must be by a value";
        }
        if (map->update[i].word < 0 || map->update[i].word > BY_MAP_WORDS) {
            return "an update has random bits that there are not";
        }
        if (map->update[i].word > 0 &&
            (map->random.input < 0 || map->random.input >= map->inputs ||
             !by__mask_has(map->scalars, map->random.input) || map->random.index < 0)) {
            return "an update by random bits needs the number of the step (by_map_random)";
        }
        updated |= 1u << input;
    }
    return NULL;
}

const char *by__op_map_wrong(const by_map_program *map)
{
    if (map == NULL) {
        return "there is no program";
    }
    if (map->inputs < 1 || map->inputs > BY_MAP_MAX_INPUTS || map->steps < 0 ||
        map->steps > BY_MAP_MAX_STEPS || map->results < 0 || map->results > BY_MAX_OUTPUTS ||
        map->updates < 0 || map->updates > BY_MAP_MAX_INPUTS) {
        return "the program has too many inputs, steps or results";
    }
    if (map->results + map->updates == 0) {
        return "the program neither makes nor updates anything";
    }
    for (int k = 0; k < map->steps; k++) {
        const char *wrong = wrong_step(map, k);
        if (wrong != NULL) {
            return wrong;
        }
    }
    return wrong_target(map);
}

static uint32_t updated_inputs(const by_attrs *attrs)
{
    uint32_t updated = 0;
    for (int i = 0; attrs->map != NULL && i < attrs->map->updates; i++) {
        updated |= 1u << attrs->map->update[i].input;
    }
    return updated;
}

static void print_value(by_string *text, int value)
{
    bool is_input = value < BY_MAP_MAX_INPUTS;
    by_string_format(text, is_input ? " in%d" : " %d",
                     is_input ? value : value - BY_MAP_MAX_INPUTS);
}

static void print_step(by_string *text, const by_map_program *map, int k)
{
    const by_map_instruction *step = &map->step[k];
    by_string_format(text, "%d = ", k);
    if (step->kind == BY_MAP_CONSTANT) {
        by_string_format(text, "%.9g", (double)step->constant);
    } else if (step->kind == BY_MAP_SCALAR) {
        by_string_format(text, "in%d[%d]", step->operand[0], step->operand[1]);
    } else {
        by__string_append(text, step->kind == BY_MAP_FUNCTION ? by_function_name(step->function)
                                                              : kinds[step->kind].name);
    }
    for (int i = 0; i < by_map_operands(step->kind); i++) {
        print_value(text, step->operand[i]);
    }
}

void by__op_map_print(by_string *text, const by_map_program *map)
{
    const char *separator = "";
    by__string_append(text, "{");
    for (int k = 0; k < map->steps; k++) {
        by__string_append(text, separator);
        print_step(text, map, k);
        separator = "; ";
    }
    for (int i = 0; i < map->updates; i++) {
        by_string_format(text, "%sin%d =", separator, map->update[i].input);
        print_value(text, map->update[i].value);
        if (map->update[i].word > 0) {
            by_string_format(text, " random %d", map->update[i].word - 1);
        }
        separator = "; ";
    }
    for (int i = 0; i < map->results; i++) {
        by_string_format(text, "%sout%d =", separator, i);
        print_value(text, map->result[i].value);
        by_string_format(text, " %s", by_dtype_name(map->result[i].dtype));
        separator = "; ";
    }
    by__string_append(text, "}");
}

/* ---- the row ---- */

/* Returns the largest index that a step reads from input i, or -1 if none does. */
static int greatest_index(const by_map_program *map, int input)
{
    int greatest = -1;
    for (int k = 0; k < map->steps; k++) {
        const by_map_instruction *step = &map->step[k];
        if (step->kind == BY_MAP_SCALAR && step->operand[0] == input) {
            greatest = step->operand[1] > greatest ? step->operand[1] : greatest;
        }
    }
    for (int u = 0; u < map->updates; u++) {
        if (map->update[u].word > 0 && map->random.input == input) {
            greatest = map->random.index > greatest ? map->random.index : greatest;
        }
    }
    return greatest;
}

static by_status infer_map(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_map_program *map = s->attrs->map;
    const by__graph_type *tensor = NULL;
    if (s->input_count != map->inputs) {
        return by__op_refuse(s, error, "the program has another number of inputs");
    }
    for (int i = 0; i < map->inputs; i++) {
        const by__graph_type *in = &s->in[i];
        if (by__mask_has(map->scalars, i)) {
            if (in->dtype != BY_F32 || greatest_index(map, i) >= by_shape_count(&in->shape)) {
                return by__op_refuse(s, error, "scalars must be f32 and within their operand");
            }
            continue;
        }
        if (!by__op_is_act(in->dtype) ||
            (tensor != NULL && !by_shape_equal(&tensor->shape, &in->shape))) {
            return by__op_refuse(s, error, "tensors must be f32, bf16 or f16 of one shape");
        }
        tensor = in;
    }
    if (tensor == NULL) {
        return by__op_refuse(s, error, "there is no operand but scalars");
    }
    for (int i = 0; i < map->results; i++) {
        out[i] = (by__graph_type){map->result[i].dtype, tensor->shape};
    }
    return BY_OK;
}

static void cost_map(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    const by_map_program *map = s->attrs->map;
    BY_UNUSED(out);
    double flops = 0.0;
    int64_t count = 0;
    for (int k = 0; k < map->steps; k++) {
        flops += kinds[map->step[k].kind].flops;
    }
    for (int i = 0; i < map->inputs; i++) {
        count = by__mask_has(map->scalars, i) ? count : by_shape_count(&s->in[i].shape);
    }
    cost->flops = flops * (double)count;
}

static bool shard_map(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    by__graph_split split = by__op_whole();
    for (int i = 0; i < s->input_count; i++) {
        if (by__mask_has(s->attrs->map->scalars, i)) {
            if (sh->in[i].axis != BY__WHOLE) {
                return false;
            }
            continue;
        }
        split = split.axis == BY__WHOLE ? sh->in[i] : split;
        if (split.axis < 0 || !by__op_split_equal(sh->in[i], split)) {
            return false;
        }
    }
    for (int i = 0; i < BY_MAX_OUTPUTS && !by__absent(&out[i]); i++) {
        sh->out[i] = split;
    }
    return true;
}

#define ANY ((1u << BY_MAP_MAX_INPUTS) - 1)
const by__op_row by__op_map = {.min_inputs = 1,
                               .max_inputs = BY_MAP_MAX_INPUTS,
                               .outputs = BY_MAX_OUTPUTS,
                               .attrs = BY__ATTRS(BY__ATTR_AS("", map, MAP, 0)),
                               .infer = infer_map,
                               .onnx = by__op_onnx_map,
                               .cost = cost_map,
                               .overlay = {ANY, ANY, ANY},
                               .updated = updated_inputs,
                               .shard = shard_map,
                               .keeps_f32 = ANY};

/* ---- building ---- */

void by_map_begin(by_map *map, by_graph *graph)
{
    *map = (by_map){.graph = graph};
}

static int fail(by_map *map, const char *why)
{
    by__graph_fail(map->graph, BY_EARG, "map: %s", why);
    return -1;
}

/* Returns the number of an operand, appending it if it is new. */
static int operand(by_map *map, by_value tensor, bool scalars)
{
    by_map_program *program = &map->program;
    for (int i = 0; i < program->inputs; i++) {
        if (map->in[i] == tensor && by__mask_has(program->scalars, i) == scalars) {
            return i;
        }
    }
    if (program->inputs == BY_MAP_MAX_INPUTS) {
        return fail(map, "it has too many operands");
    }
    program->scalars |= scalars ? 1u << program->inputs : 0u;
    map->in[program->inputs] = tensor;
    return program->inputs++;
}

static int append(by_map *map, const by_map_instruction *step)
{
    by_map_program *program = &map->program;
    if (program->steps == BY_MAP_MAX_STEPS) {
        return fail(map, "it has too many steps");
    }
    program->step[program->steps++] = *step;
    const char *wrong = wrong_step(program, program->steps - 1);
    return wrong != NULL ? fail(map, wrong) : BY_MAP_MAX_INPUTS + program->steps - 1;
}

int by_map_input(by_map *map, by_value tensor)
{
    return operand(map, tensor, false);
}

int by_map_scalar(by_map *map, by_value tensor, int64_t index)
{
    int input = operand(map, tensor, true);
    if (index < 0 || index > INT32_MAX) {
        return fail(map, "the index of a scalar is out of range");
    }
    by_map_instruction step = {.kind = BY_MAP_SCALAR, .operand = {input, (int)index}};
    return input < 0 ? -1 : append(map, &step);
}

int by_map_constant(by_map *map, float value)
{
    return append(map, &(by_map_instruction){.kind = BY_MAP_CONSTANT, .constant = value});
}

int by_map_step(by_map *map, by_map_kind kind, int a, int b, int c)
{
    bool is_plain = kind != BY_MAP_CONSTANT && kind != BY_MAP_SCALAR && kind != BY_MAP_FUNCTION;
    by_map_instruction step = {.kind = kind, .operand = {a, b, c}};
    return is_plain ? append(map, &step) : fail(map, "this kind of step has a function of its own");
}

int by_map_function(by_map *map, by_function function, int a)
{
    by_map_instruction step = {.kind = BY_MAP_FUNCTION, .operand = {a}, .function = function};
    return append(map, &step);
}

void by_map_random(by_map *map, by_value step, int64_t index, uint64_t seed, uint64_t stream,
                   int64_t first)
{
    by_map_program *program = &map->program;
    int input = operand(map, step, true);
    if (index < 0 || index > INT32_MAX) {
        (void)fail(map, "the index of a scalar is out of range");
        return;
    }
    program->random.input = input;
    program->random.index = (int)index;
    program->random.first = first;
    by__philox_key(program->random.key, seed, stream);
}

void by_map_update_random(by_map *map, int input, int value, int word)
{
    int at = map->program.updates;
    by_map_update(map, input, value);
    if (at < map->program.updates) {
        map->program.update[at].word = word + 1;
    }
}

void by_map_update(by_map *map, int input, int value)
{
    by_map_program *program = &map->program;
    if (program->updates == BY_MAP_MAX_INPUTS) {
        (void)fail(map, "it has too many updates");
        return;
    }
    program->update[program->updates].input = input;
    program->update[program->updates++].value = value;
}

void by_map_result(by_map *map, int value, by_dtype dtype)
{
    by_map_program *program = &map->program;
    if (program->results == BY_MAX_OUTPUTS) {
        (void)fail(map, "it has too many results");
        return;
    }
    program->result[program->results].value = value;
    program->result[program->results++].dtype = dtype;
}

/* Copies the program into memory of its graph. */
static const by_map_program *keep_program(by_map *map)
{
    by_map_program *program;
    if (map->graph->error.status != BY_OK ||
        by__graph_own(map->graph, (void **)&program, sizeof *program) != BY_OK) {
        return NULL;
    }
    *program = map->program;
    return program;
}

by_status by__op_map_finish(by_map *map, by_attrs *out, by_error *error)
{
    *out = (by_attrs){.map = keep_program(map)};
    return by_graph_check(map->graph, error);
}

void by_map_end(by_map *map, by_value results[BY_MAX_OUTPUTS])
{
    for (int i = 0; i < BY_MAX_OUTPUTS && results != NULL; i++) {
        results[i] = BY_NONE;
    }
    by_attrs attrs = {.map = keep_program(map)};
    if (attrs.map != NULL) {
        (void)by__op_add_node(map->graph, BY_OP_MAP, &attrs, map->in, map->program.inputs, results);
    }
}
