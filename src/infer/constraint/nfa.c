#include <stdlib.h>
#include <string.h>

#include "infer/constraint/byte_language.h"

by_status by__constraint_nfa_state_add(by__constraint_nfa *nfa, int32_t *out, by_error *error)
{
    if (nfa->count >= BY__MAX_STATES) {
        return by_error_set(error, BY_EARG,
                            "the constraint is too large: over %d states; use smaller repeat "
                            "counts or limits",
                            BY__MAX_STATES);
    }
    BY_TRY(by__reserve((void **)&nfa->states, &nfa->capacity, nfa->count + 1, sizeof *nfa->states,
                       error));
    nfa->states[nfa->count] = (by__constraint_nfa_state){-1, -1};
    *out = (int32_t)nfa->count++;
    return BY_OK;
}

static by_status check_size(const by__constraint_nfa *nfa, by_error *error)
{
    return nfa->edge_count + nfa->jump_count < BY__MAX_EDGES
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "the constraint is too large: use smaller repeat counts or fewer "
                              "alternatives");
}

by_status by__constraint_nfa_edge(by__constraint_nfa *nfa, int32_t from, uint8_t first,
                                  uint8_t last, int32_t to, by_error *error)
{
    BY_TRY(check_size(nfa, error));
    BY_TRY(by__reserve((void **)&nfa->edges, &nfa->edge_capacity, nfa->edge_count + 1,
                       sizeof *nfa->edges, error));
    nfa->edges[nfa->edge_count] = (by__constraint_edge){first, last, to, nfa->states[from].edges};
    nfa->states[from].edges = (int32_t)nfa->edge_count++;
    return BY_OK;
}

static by_status add_jump(by__constraint_nfa *nfa, int32_t from, by__constraint_jump jump,
                          by_error *error)
{
    BY_TRY(check_size(nfa, error));
    BY_TRY(by__reserve((void **)&nfa->jumps, &nfa->jump_capacity, nfa->jump_count + 1,
                       sizeof *nfa->jumps, error));
    jump.next = nfa->states[from].jumps;
    nfa->jumps[nfa->jump_count] = jump;
    nfa->states[from].jumps = (int32_t)nfa->jump_count++;
    return BY_OK;
}

by_status by__constraint_nfa_free_jump(by__constraint_nfa *nfa, int32_t from, int32_t to,
                                       by_error *error)
{
    return add_jump(nfa, from, (by__constraint_jump){BY__JUMP_FREE, 0, to, -1}, error);
}

/* ---- expressions to states (Thompson) ---- */

static by_status build(by__constraint_nfa *nfa, const by__constraint_expression *e, int32_t from,
                       int32_t to, int depth, by_error *error);

static by_status build_repeat(by__constraint_nfa *nfa, const by__constraint_expression *e,
                              int32_t from, int32_t to, int depth, by_error *error)
{
    int32_t at = from;
    int32_t next = from;
    for (uint32_t i = 0; i < e->first; i++) {
        BY_TRY(by__constraint_nfa_state_add(nfa, &next, error));
        BY_TRY(build(nfa, e->a, at, next, depth, error));
        at = next;
    }
    if (e->last == BY__UNBOUNDED) {
        /* A separate state, so that what comes before or after is not repeated as well. */
        BY_TRY(by__constraint_nfa_state_add(nfa, &next, error));
        BY_TRY(by__constraint_nfa_free_jump(nfa, at, next, error));
        BY_TRY(build(nfa, e->a, next, next, depth, error));
        return by__constraint_nfa_free_jump(nfa, next, to, error);
    }
    for (uint32_t i = e->first; i < e->last; i++) {
        BY_TRY(by__constraint_nfa_free_jump(nfa, at, to, error));
        BY_TRY(by__constraint_nfa_state_add(nfa, &next, error));
        BY_TRY(build(nfa, e->a, at, next, depth, error));
        at = next;
    }
    return by__constraint_nfa_free_jump(nfa, at, to, error);
}

/* Walks chains of pairs with a list instead of recursion, because they may be as long as a text. */
static by_status build_chain(by__constraint_nfa *nfa, const by__constraint_expression *e,
                             int32_t from, int32_t to, int depth, by_error *error)
{
    const by__constraint_expression **list = NULL;
    size_t capacity = 0;
    size_t count = 1;
    int32_t at = from;
    by_status status = by__reserve((void **)&list, &capacity, 2, sizeof *list, error);
    if (status == BY_OK) {
        list[0] = e;
    }
    while (status == BY_OK && count > 0) {
        const by__constraint_expression *part = list[--count];
        if (part->kind == e->kind) {
            status = by__reserve((void **)&list, &capacity, count + 2, sizeof *list, error);
            if (status == BY_OK) {
                list[count++] = part->b;
                list[count++] = part->a;
            }
            continue;
        }
        int32_t next = to;
        if (e->kind == BY__EXPR_CONCAT && count > 0) {
            status = by__constraint_nfa_state_add(nfa, &next, error);
        }
        if (status == BY_OK) {
            status = build(nfa, part, at, next, depth, error);
        }
        at = e->kind == BY__EXPR_CONCAT ? next : from;
    }
    free(list);
    return status;
}

/* Groups and schemas may nest BY__MAX_NESTING deep each, with a few nodes for each level. */
#define MAX_DEPTH (16 * BY__MAX_NESTING)

static by_status build(by__constraint_nfa *nfa, const by__constraint_expression *e, int32_t from,
                       int32_t to, int depth, by_error *error)
{
    if (depth > MAX_DEPTH) {
        return by_error_set(error, BY_EARG, "the constraint is nested too deeply");
    }
    switch (e->kind) {
    case BY__EXPR_EMPTY:
        return by__constraint_nfa_free_jump(nfa, from, to, error);
    case BY__EXPR_BYTES:
        return by__constraint_nfa_edge(nfa, from, (uint8_t)e->first, (uint8_t)e->last, to, error);
    case BY__EXPR_CLASS:
        return by__constraint_nfa_class(nfa, e->class, from, to, error);
    case BY__EXPR_CALL:
        return add_jump(nfa, from, (by__constraint_jump){BY__JUMP_CALL, e->first, to, -1}, error);
    case BY__EXPR_REPEAT:
        return build_repeat(nfa, e, from, to, depth + 1, error);
    case BY__EXPR_NUMBER:
        return by__constraint_nfa_number(nfa, e->number, from, to, error);
    default:
        return build_chain(nfa, e, from, to, depth + 1, error);
    }
}

by_status by__constraint_nfa_build(by__constraint_nfa *nfa, const by__constraint_expression *e,
                                   int32_t from, int32_t to, by_error *error)
{
    return build(nfa, e, from, to, 0, error);
}

void by__constraint_nfa_free(by__constraint_nfa *nfa)
{
    free(nfa->states);
    free(nfa->edges);
    free(nfa->jumps);
}
