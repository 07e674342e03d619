/* Makes programs of trees. */
#include <stdlib.h>
#include <string.h>

#include "text/pattern/pattern_program.h"

typedef struct pattern_compiler {
    by__pattern *p;
    size_t work; /* nodes visited: repetitions visit theirs again and again */
    by_error *error;
} pattern_compiler;

static by_status emit_node(pattern_compiler *c, uint32_t node);

static by_status emit(pattern_compiler *c, by__pattern_op op, uint32_t a, uint32_t b)
{
    by__pattern *p = c->p;
    if (p->count >= BY__PATTERN_INSTRUCTIONS) {
        return by_error_set(c->error, BY_EFORMAT,
                            "a pattern is too long when its repetitions are written out");
    }
    BY_TRY(by__reserve((void **)&p->program, &p->capacity, p->count + 1, sizeof *p->program,
                       c->error));
    p->program[p->count++] = (by__pattern_instruction){op, a, b};
    return BY_OK;
}

static uint32_t here(const pattern_compiler *c)
{
    return (uint32_t)c->p->count;
}

/* Sets where a split at `at` goes to: into the repetition, and past it. */
static void set_split(pattern_compiler *c, uint32_t at, uint32_t into, uint32_t past, bool lazy)
{
    c->p->program[at].a = lazy ? past : into;
    c->p->program[at].b = lazy ? into : past;
}

/* a*: a loop, which ends when a round matches nothing. */
static by_status emit_loop(pattern_compiler *c, const by__pattern_node *n)
{
    uint32_t slot = c->p->slots++;
    uint32_t begin = here(c);
    BY_TRY(emit(c, BY__PATTERN_OP_SPLIT, 0, 0));
    BY_TRY(emit(c, BY__PATTERN_OP_SAVE, slot, 0));
    BY_TRY(emit_node(c, n->a));
    BY_TRY(emit(c, BY__PATTERN_OP_MOVED, slot, 0));
    BY_TRY(emit(c, BY__PATTERN_OP_JUMP, begin, 0));
    set_split(c, begin, begin + 1, here(c), n->lazy);
    return BY_OK;
}

static by_status emit_repeat(pattern_compiler *c, const by__pattern_node *n)
{
    for (uint32_t i = 0; i < n->least; i++) {
        BY_TRY(emit_node(c, n->a));
    }
    if (n->most == BY__PATTERN_NONE) {
        return emit_loop(c, n);
    }
    /* Each further one is left out together with those behind it. */
    uint32_t first = here(c);
    for (uint32_t i = n->least; i < n->most; i++) {
        BY_TRY(emit(c, BY__PATTERN_OP_SPLIT, BY__PATTERN_NONE, n->lazy));
        BY_TRY(emit_node(c, n->a));
    }
    for (uint32_t at = first; at < here(c); at++) {
        const by__pattern_instruction *split = &c->p->program[at];
        if (split->op == BY__PATTERN_OP_SPLIT && split->a == BY__PATTERN_NONE) {
            set_split(c, at, at + 1, here(c), n->lazy);
        }
    }
    return BY_OK;
}

static by_status emit_either(pattern_compiler *c, const by__pattern_node *n)
{
    uint32_t split = here(c);
    BY_TRY(emit(c, BY__PATTERN_OP_SPLIT, 0, 0));
    BY_TRY(emit_node(c, n->a));
    uint32_t jump = here(c);
    BY_TRY(emit(c, BY__PATTERN_OP_JUMP, 0, 0));
    set_split(c, split, split + 1, here(c), false);
    BY_TRY(emit_node(c, n->b));
    c->p->program[jump].a = here(c);
    return BY_OK;
}

static by_status emit_look(pattern_compiler *c, const by__pattern_node *n)
{
    BY_TRY(emit(c, BY__PATTERN_OP_LOOK, n->negated, n->number));
    uint32_t jump = here(c);
    BY_TRY(emit(c, BY__PATTERN_OP_JUMP, 0, 0));
    BY_TRY(emit_node(c, n->a));
    BY_TRY(emit(c, BY__PATTERN_OP_MATCH, 0, 0));
    c->p->program[jump].a = here(c);
    return BY_OK;
}

static by_status emit_node(pattern_compiler *c, uint32_t node)
{
    const by__pattern_node n = c->p->nodes[node];
    if (++c->work > (size_t)8 * BY__PATTERN_INSTRUCTIONS) {
        return by_error_set(c->error, BY_EFORMAT,
                            "a pattern is too long when its repetitions are written out");
    }
    switch (n.kind) {
    case BY__PATTERN_CHAR:
        return emit(c, BY__PATTERN_OP_CHAR, n.number, 0);
    case BY__PATTERN_ANY:
        return emit(c, BY__PATTERN_OP_ANY, n.number, 0);
    case BY__PATTERN_SET:
        return emit(c, BY__PATTERN_OP_SET, n.number, 0);
    case BY__PATTERN_CHAIN:
        BY_TRY(emit_node(c, n.a));
        return emit_node(c, n.b);
    case BY__PATTERN_EITHER:
        return emit_either(c, &n);
    case BY__PATTERN_REPEAT:
        return emit_repeat(c, &n);
    case BY__PATTERN_GROUP:
        BY_TRY(emit(c, BY__PATTERN_OP_SAVE, 2 * n.number, 0));
        BY_TRY(emit_node(c, n.a));
        return emit(c, BY__PATTERN_OP_SAVE, 2 * n.number + 1, 0);
    case BY__PATTERN_LOOK:
        return emit_look(c, &n);
    case BY__PATTERN_ASSERT:
        return emit(c, BY__PATTERN_OP_ASSERT, n.number, 0);
    case BY__PATTERN_BACK:
        return emit(c, BY__PATTERN_OP_BACK, n.number, 0);
    default:
        return BY_OK;
    }
}

by_status by__pattern_compile(by__pattern *p, uint32_t root, by_error *error)
{
    pattern_compiler c = {.p = p, .error = error};
    p->slots = 2 * (p->groups + 1);
    BY_TRY(emit(&c, BY__PATTERN_OP_SAVE, 0, 0));
    BY_TRY(emit_node(&c, root));
    BY_TRY(emit(&c, BY__PATTERN_OP_SAVE, 1, 0));
    return emit(&c, BY__PATTERN_OP_MATCH, 0, 0);
}
