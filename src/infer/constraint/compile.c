#include <stdlib.h>
#include <string.h>

#include "infer/constraint/way_sets.h"

/* A call in the deterministic automaton under construction. */
typedef struct call {
    int32_t state;
    uint32_t rule;
    int32_t back;
    int32_t next;
} call;

typedef struct subset {
    size_t first; /* its members are members[first ..], sorted */
    size_t count;
    int32_t calls; /* -1: none */
    bool accepts;
} subset;

typedef struct compiler {
    const by__constraint_language *language;
    by__constraint_nfa nfa;
    int32_t *begins; /* [rules]: first and last state of each */
    int32_t *ends;
    uint8_t class_of[256];
    bool class_on[256]; /* [classes]: bytes of the class are allowed */
    int32_t classes;
    subset *subsets;
    size_t count;
    size_t capacity;
    int32_t *members;
    size_t member_count;
    size_t member_capacity;
    by__base_table table; /* of the current rule's subsets */
    int32_t *next;        /* [subsets, classes] */
    size_t next_capacity;
    call *calls;
    size_t call_count;
    size_t call_capacity;
    by__constraint_edge *edges; /* of the subset being expanded */
    size_t edge_count;
    size_t edge_capacity;
    by__constraint_jump *jumps; /* calls of the subset being expanded */
    size_t jump_count;
    size_t jump_capacity;
    uint32_t *canonical; /* [rules]: the rule itself, or the one that it only calls */
    int32_t *set;        /* the current subset */
    size_t set_count;
    int32_t *stamp; /* [states]: equal to `round` if the state is in the current subset */
    int32_t round;
    int32_t *starts; /* [rules]: the subset that a rule starts with */
    struct state_visit *visits;
    size_t visit_count;
    size_t visit_capacity;
    uint64_t steps;
    by_error *error;
} compiler;

static by_status count_steps(compiler *c, size_t steps)
{
    c->steps += steps;
    return c->steps <= BY__MAX_STEPS
               ? BY_OK
               : by_error_set(c->error, BY_EARG,
                              "the constraint takes too long to prepare: repeats of alternatives "
                              "that overlap have too many combinations; use smaller counts");
}

/* Divides bytes into classes at the boundaries of edges. */
static void find_classes(compiler *c, const bool *has)
{
    bool begins[257] = {false};
    for (size_t i = 0; i < c->nfa.edge_count; i++) {
        begins[c->nfa.edges[i].first] = true;
        begins[c->nfa.edges[i].last + 1] = true;
    }
    c->classes = 0;
    for (int byte = 0; byte < 256; byte++) {
        c->classes += byte > 0 && begins[byte] ? 1 : 0;
        c->class_of[byte] = (uint8_t)c->classes;
        c->class_on[c->classes] = c->class_on[c->classes] || has == NULL || has[byte];
    }
    c->classes++;
}

static void begin_set(compiler *c)
{
    c->set_count = 0;
    c->round++;
}

static void put(compiler *c, int32_t state)
{
    if (c->stamp[state] != c->round) {
        c->stamp[state] = c->round;
        c->set[c->set_count++] = state;
    }
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a;
    int32_t y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Adds the states reachable by empty transitions, and sorts the set. */
static by_status close_set(compiler *c)
{
    for (size_t i = 0; i < c->set_count; i++) {
        size_t steps = 1;
        for (int32_t j = c->nfa.states[c->set[i]].jumps; j >= 0; j = c->nfa.jumps[j].next) {
            if (c->nfa.jumps[j].kind == BY__JUMP_FREE) {
                put(c, c->nfa.jumps[j].to);
            }
            steps++;
        }
        BY_TRY(count_steps(c, steps));
    }
    qsort(c->set, c->set_count, sizeof *c->set, ascending);
    return count_steps(c, c->set_count);
}

/* Returns the subset equal to the current set, adding it if necessary. */
static by_status intern(compiler *c, int32_t end, int32_t *out)
{
    size_t bytes = c->set_count * sizeof(int32_t);
    uint64_t hash = by__hash64(c->set, bytes);
    for (by__base_probe p = by__base_probe_begin(&c->table, hash);
         by__base_probe_next(&c->table, &p);) {
        const subset *s = &c->subsets[p.number];
        if (s->count == c->set_count && memcmp(c->members + s->first, c->set, bytes) == 0) {
            *out = (int32_t)p.number;
            return BY_OK;
        }
    }
    if (c->count >= BY__MAX_STATES) {
        return by_error_set(c->error, BY_EARG, "the constraint is too large: over %d states",
                            BY__MAX_STATES);
    }
    BY_TRY(by__reserve((void **)&c->subsets, &c->capacity, c->count + 1, sizeof *c->subsets,
                       c->error));
    BY_TRY(by__reserve((void **)&c->members, &c->member_capacity, c->member_count + c->set_count,
                       sizeof *c->members, c->error));
    BY_TRY(by__reserve((void **)&c->next, &c->next_capacity, (c->count + 1) * (size_t)c->classes,
                       sizeof *c->next, c->error));
    BY_TRY(by__base_table_add(&c->table, hash, c->count, "a constraint", c->error));
    if (bytes > 0) {
        memcpy(c->members + c->member_count, c->set, bytes);
    }
    c->subsets[c->count] = (subset){c->member_count, c->set_count, -1, c->stamp[end] == c->round};
    c->member_count += c->set_count;
    *out = (int32_t)c->count++;
    return BY_OK;
}

/* Collects the edges of a subset's members, and the bytes at which one of them begins or has
 * ended. */
static by_status gather_edges(compiler *c, size_t at, bool cuts[257])
{
    c->edge_count = 0;
    memset(cuts, 0, 257 * sizeof *cuts);
    for (size_t m = 0; m < c->subsets[at].count; m++) {
        int32_t state = c->members[c->subsets[at].first + m];
        for (int32_t e = c->nfa.states[state].edges; e >= 0; e = c->nfa.edges[e].next) {
            BY_TRY(by__reserve((void **)&c->edges, &c->edge_capacity, c->edge_count + 1,
                               sizeof *c->edges, c->error));
            c->edges[c->edge_count++] = c->nfa.edges[e];
            cuts[c->nfa.edges[e].first] = cuts[c->nfa.edges[e].last + 1] = true;
        }
    }
    return count_steps(c, c->subsets[at].count + c->edge_count + 1);
}

/* Adds the transitions of a subset, for one run of equivalent bytes at a time. */
static by_status expand_bytes(compiler *c, int32_t end, size_t at)
{
    bool cuts[257];
    int begin = 0;
    BY_TRY(gather_edges(c, at, cuts));
    for (int32_t k = 0; k < c->classes; k++) {
        c->next[at * (size_t)c->classes + (size_t)k] = BY__DEAD;
    }
    for (int byte = 1; byte <= 256 && c->edge_count > 0; byte++) {
        if (!cuts[byte] && byte < 256) {
            continue;
        }
        begin_set(c);
        for (size_t e = 0; e < c->edge_count; e++) {
            if (begin >= c->edges[e].first && begin <= c->edges[e].last) {
                put(c, c->edges[e].to);
            }
        }
        BY_TRY(count_steps(c, c->edge_count));
        if (c->set_count > 0) {
            int32_t to;
            BY_TRY(close_set(c));
            BY_TRY(intern(c, end, &to));
            for (int32_t k = c->class_of[begin]; k <= c->class_of[byte - 1]; k++) {
                c->next[at * (size_t)c->classes + (size_t)k] = c->class_on[k] ? to : BY__DEAD;
            }
        }
        begin = byte;
    }
    return BY_OK;
}

static int by_rule(const void *a, const void *b)
{
    const by__constraint_jump *x = a;
    const by__constraint_jump *y = b;
    return (x->rule > y->rule) - (x->rule < y->rule);
}

/* Collects the calls of a subset's members, ordered by rule. */
static by_status gather_calls(compiler *c, size_t at)
{
    c->jump_count = 0;
    for (size_t m = 0; m < c->subsets[at].count; m++) {
        int32_t state = c->members[c->subsets[at].first + m];
        for (int32_t j = c->nfa.states[state].jumps; j >= 0; j = c->nfa.jumps[j].next) {
            if (c->nfa.jumps[j].kind == BY__JUMP_CALL) {
                BY_TRY(by__reserve((void **)&c->jumps, &c->jump_capacity, c->jump_count + 1,
                                   sizeof *c->jumps, c->error));
                c->jumps[c->jump_count] = c->nfa.jumps[j];
                c->jumps[c->jump_count].rule = c->canonical[c->nfa.jumps[j].rule];
                c->jump_count++;
            }
        }
    }
    if (c->jump_count > 1) {
        qsort(c->jumps, c->jump_count, sizeof *c->jumps, by_rule);
    }
    return count_steps(c, c->jump_count);
}

/* Merges the calls of one rule from several members: they return to one subset. */
static by_status expand_calls(compiler *c, int32_t end, size_t at)
{
    BY_TRY(gather_calls(c, at));
    for (size_t i = 0; i < c->jump_count;) {
        uint32_t rule = c->jumps[i].rule;
        int32_t back;
        begin_set(c);
        for (; i < c->jump_count && c->jumps[i].rule == rule; i++) {
            put(c, c->jumps[i].to);
        }
        BY_TRY(close_set(c));
        BY_TRY(intern(c, end, &back));
        BY_TRY(by__reserve((void **)&c->calls, &c->call_capacity, c->call_count + 1,
                           sizeof *c->calls, c->error));
        c->calls[c->call_count] = (call){(int32_t)at, rule, back, c->subsets[at].calls};
        c->subsets[at].calls = (int32_t)c->call_count++;
    }
    return BY_OK;
}

static by_status determinize(compiler *c, size_t rule)
{
    size_t first = c->count;
    int32_t end = c->ends[rule];
    by__base_table_free(&c->table);
    begin_set(c);
    put(c, c->begins[rule]);
    BY_TRY(close_set(c));
    BY_TRY(intern(c, end, &c->starts[rule]));
    for (size_t at = first; at < c->count; at++) {
        BY_TRY(expand_bytes(c, end, at));
        BY_TRY(expand_calls(c, end, at));
    }
    return BY_OK;
}

/* ---- states from which a text can be completed ---- */

static bool is_live(const compiler *c, const uint8_t *live, size_t state)
{
    bool now = c->subsets[state].accepts;
    for (int32_t k = 0; k < c->classes && !now; k++) {
        int32_t to = c->next[state * (size_t)c->classes + (size_t)k];
        now = to >= 0 && live[to] != 0;
    }
    for (int32_t k = c->subsets[state].calls; k >= 0 && !now; k = c->calls[k].next) {
        now = live[c->starts[c->calls[k].rule]] != 0 && live[c->calls[k].back] != 0;
    }
    return now;
}

/* Finds the states from which the end of their rule can be reached (live[s]). Iterates to a fixed
 * point, because liveness in a rule depends on other rules, and alternates directions, because
 * chains run both ways. */
static by_status find_live(compiler *c, uint8_t *live)
{
    size_t changed = 1;
    for (bool down = true; changed > 0; down = !down) {
        changed = 0;
        for (size_t i = 0; i < c->count; i++) {
            size_t state = down ? c->count - 1 - i : i;
            if (live[state] == 0) {
                BY_TRY(count_steps(c, 1 + (size_t)c->classes / 8));
                live[state] = is_live(c, live, state) ? 1 : 0;
                changed += live[state];
            }
        }
    }
    return BY_OK;
}

/* A state on the path of check_recursion, and how far its calls were looked at. */
typedef struct state_visit {
    int32_t state;
    int32_t call; /* -1: all */
    bool back;    /* the state behind the call is next, since what it calls may be empty */
} state_visit;

static by_status enter(compiler *c, int32_t state, uint8_t *mark)
{
    if (mark[state] == 1) {
        return by_error_set(c->error, BY_EARG,
                            "a definition refers to itself before anything of it is written: it "
                            "has no text");
    }
    if (mark[state] == 2) {
        return BY_OK;
    }
    if (c->visit_count >= BY__MAX_WAYS_SEEN) {
        return by_error_set(c->error, BY_EARG,
                            "a chain of over %d references before anything of it is written",
                            BY__MAX_WAYS_SEEN);
    }
    BY_TRY(by__reserve((void **)&c->visits, &c->visit_capacity, c->visit_count + 1,
                       sizeof *c->visits, c->error));
    mark[state] = 1;
    c->visits[c->visit_count++] = (state_visit){state, c->subsets[state].calls, false};
    return BY_OK;
}

/* Refuses a rule that calls itself before reading a byte, since it would be entered endlessly.
 * Depth-first over subsets entered together; mark 1: being visited, 2: done. */
static by_status check_recursion(compiler *c, int32_t state, uint8_t *mark)
{
    c->visit_count = 0;
    BY_TRY(enter(c, state, mark));
    while (c->visit_count > 0) {
        state_visit *v = &c->visits[c->visit_count - 1];
        if (v->call < 0) {
            mark[v->state] = 2;
            c->visit_count--;
            continue;
        }
        const call *k = &c->calls[v->call];
        int32_t start = c->starts[k->rule];
        int32_t next = v->back ? k->back : start;
        bool both = !v->back && c->subsets[start].accepts;
        v->call = both ? v->call : k->next;
        v->back = both;
        BY_TRY(enter(c, next, mark));
    }
    return BY_OK;
}

/* ---- the tables ---- */

static bool call_is_live(const compiler *c, const uint8_t *live, const call *k)
{
    return live[c->starts[k->rule]] != 0 && live[k->back] != 0;
}

static by_status write_tables(compiler *c, const uint8_t *live, uint32_t root,
                              by__constraint_automata *out)
{
    size_t cells = c->count * (size_t)c->classes;
    size_t written = 0;
    BY_TRY(by__alloc((void **)&out->next, cells, sizeof *out->next, "a constraint", c->error));
    BY_TRY(by__alloc((void **)&out->accepts, c->count, 1, "a constraint", c->error));
    BY_TRY(by__alloc((void **)&out->ends, c->count, 1, "a constraint", c->error));
    BY_TRY(by__alloc((void **)&out->reads, c->count, 1, "a constraint", c->error));
    BY_TRY(by__alloc((void **)&out->first_call, c->count + 1, sizeof *out->first_call,
                     "a constraint", c->error));
    BY_TRY(by__alloc((void **)&out->calls, c->call_count + 1, sizeof *out->calls, "a constraint",
                     c->error));
    memcpy(out->class_of, c->class_of, sizeof out->class_of);
    out->classes = c->classes;
    out->states = (int32_t)c->count;
    out->root = c->starts[root];
    for (size_t i = 0; i < c->count; i++) {
        bool goes_on = false;
        for (int32_t k = 0; k < c->classes; k++) {
            int32_t to = c->next[i * (size_t)c->classes + (size_t)k];
            to = to >= 0 && live[to] != 0 ? to : BY__DEAD;
            out->next[i * (size_t)c->classes + (size_t)k] = to;
            goes_on = goes_on || to >= 0;
        }
        out->reads[i] = goes_on ? 1 : 0;
        for (int32_t k = c->subsets[i].calls; k >= 0; k = c->calls[k].next) {
            if (call_is_live(c, live, &c->calls[k])) {
                out->calls[written++] =
                    (by__constraint_automata_call){c->starts[c->calls[k].rule], c->calls[k].back};
                goes_on = true;
            }
        }
        out->first_call[i + 1] = (int32_t)written;
        out->accepts[i] = c->subsets[i].accepts ? 1 : 0;
        out->ends[i] = c->subsets[i].accepts && !goes_on ? 1 : 0;
    }
    return BY_OK;
}

/* Finds for each rule that only calls another the rule at the end of the chain. */
static by_status find_canonical(compiler *c)
{
    const by__constraint_language *l = c->language;
    BY_TRY(by__alloc((void **)&c->canonical, l->rule_count, sizeof *c->canonical, "a constraint",
                     c->error));
    for (size_t r = 0; r < l->rule_count; r++) {
        c->canonical[r] = BY__UNBOUNDED;
    }
    for (size_t r = 0; r < l->rule_count; r++) {
        uint32_t end = (uint32_t)r;
        size_t length = 0;
        while (c->canonical[end] == BY__UNBOUNDED && l->rules[end] != NULL &&
               l->rules[end]->kind == BY__EXPR_CALL) {
            end = l->rules[end]->first;
            if (++length > l->rule_count) {
                return by_error_set(c->error, BY_EARG,
                                    "a definition refers to itself before anything of it is "
                                    "written: it has no text");
            }
        }
        end = c->canonical[end] == BY__UNBOUNDED ? end : c->canonical[end];
        for (uint32_t at = (uint32_t)r; at != end && c->canonical[at] == BY__UNBOUNDED;
             at = l->rules[at]->first) {
            c->canonical[at] = end;
        }
        c->canonical[end] = end;
    }
    return BY_OK;
}

static by_status build_rules(compiler *c)
{
    for (size_t r = 0; r < c->language->rule_count; r++) {
        const by__constraint_expression *e = c->language->rules[r];
        BY_TRY(by__constraint_nfa_state_add(&c->nfa, &c->begins[r], c->error));
        BY_TRY(by__constraint_nfa_state_add(&c->nfa, &c->ends[r], c->error));
        if (e != NULL && c->canonical[r] == r) { /* NULL: the rule has no text */
            BY_TRY(by__constraint_nfa_build(&c->nfa, e, c->begins[r], c->ends[r], c->error));
        }
    }
    return BY_OK;
}

static by_status compile_rules(compiler *c, uint32_t root, const bool *has,
                               by__constraint_automata *out)
{
    size_t rules = c->language->rule_count;
    uint8_t *live = NULL;
    BY_TRY(by__alloc((void **)&c->begins, rules, sizeof *c->begins, "a constraint", c->error));
    BY_TRY(by__alloc((void **)&c->ends, rules, sizeof *c->ends, "a constraint", c->error));
    BY_TRY(by__alloc((void **)&c->starts, rules, sizeof *c->starts, "a constraint", c->error));
    BY_TRY(find_canonical(c));
    root = c->canonical[root];
    BY_TRY(build_rules(c));
    find_classes(c, has);
    BY_TRY(by__alloc((void **)&c->set, c->nfa.count, sizeof *c->set, "a constraint", c->error));
    BY_TRY(by__alloc((void **)&c->stamp, c->nfa.count, sizeof *c->stamp, "a constraint", c->error));
    for (size_t r = 0; r < rules; r++) {
        if (c->canonical[r] == r) {
            BY_TRY(determinize(c, r));
        }
    }
    BY_TRY(by__alloc((void **)&live, c->count, 2, "a constraint", c->error));
    by_status status = find_live(c, live);
    for (size_t i = 0; i < c->count && status == BY_OK; i++) {
        status = live[c->count + i] == 0 ? check_recursion(c, (int32_t)i, live + c->count) : BY_OK;
    }
    if (status == BY_OK && live[c->starts[root]] == 0) {
        status = by_error_set(c->error, has == NULL ? BY_EARG : BY_EFORMAT,
                              "no text fits the constraint");
    }
    if (status == BY_OK) {
        status = write_tables(c, live, root, out);
    }
    free(live);
    return status;
}

by_status by__constraint_automata_compile(by__constraint_automata *out,
                                          const by__constraint_language *language, uint32_t root,
                                          const bool *has, by_error *error)
{
    compiler c = {.language = language, .error = error};
    *out = (by__constraint_automata){0};
    BY_TRY(by__constraint_language_status(language, error));
    by_status status = compile_rules(&c, root, has, out);
    if (status != BY_OK) {
        by__constraint_automata_free(out);
    }
    by__constraint_nfa_free(&c.nfa);
    free(c.begins);
    free(c.ends);
    free(c.starts);
    free(c.subsets);
    free(c.members);
    by__base_table_free(&c.table);
    free(c.next);
    free(c.calls);
    free(c.edges);
    free(c.jumps);
    free(c.canonical);
    free(c.visits);
    free(c.set);
    free(c.stamp);
    return status;
}

void by__constraint_automata_free(by__constraint_automata *automata)
{
    free(automata->next);
    free(automata->accepts);
    free(automata->ends);
    free(automata->reads);
    free(automata->first_call);
    free(automata->calls);
    *automata = (by__constraint_automata){0};
}
