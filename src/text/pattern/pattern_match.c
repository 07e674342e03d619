/* Runs programs of patterns with backtracking: a stack holds the ways not tried yet, and the slots
 * that going back must restore. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/pattern/pattern_program.h"
#include "text/unicode/unicode.h"

#define TOO_MUCH "a pattern takes too many steps; make its repetitions more specific"
/* Entries of the stack. */
#define MAX_STACK ((size_t)1 << 20)

typedef struct pattern_entry {
    uint32_t to;  /* instruction, or slot + RESTORES */
    size_t value; /* position, or the slot's former value */
} pattern_entry;
#define RESTORES ((uint32_t)1 << 31)

typedef struct pattern_run {
    const by__pattern *p;
    const char *s;
    size_t n;
    size_t *slots;
    pattern_entry *stack;
    size_t depth;
    size_t capacity;
    uint64_t steps;
    by_error *error;
} pattern_run;

void by__pattern_close(by__pattern **pattern)
{
    by__pattern *p = *pattern;
    if (p == NULL) {
        return;
    }
    for (size_t i = 0; i < p->set_count; i++) {
        free(p->sets[i].ranges);
    }
    free(p->sets);
    free(p->nodes);
    free(p->program);
    free(p);
    *pattern = NULL;
}

by_status by__pattern_open(by__pattern **out, const char *text, size_t length, by_error *error)
{
    by__pattern *p;
    uint32_t root = 0;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "pattern", error));
    by_status status = by__pattern_parse(p, text, length, &root, error);
    status = status == BY_OK ? by__pattern_compile(p, root, error) : status;
    if (status != BY_OK) {
        by__pattern_close(&p);
        return status;
    }
    free(p->nodes);
    p->nodes = NULL;
    *out = p;
    return BY_OK;
}

size_t by__pattern_groups(const by__pattern *pattern)
{
    return pattern->groups;
}

/* ---- characters ---- */

uint32_t by__pattern_lower(uint32_t code)
{
    bool upper = (code >= 'A' && code <= 'Z') || (code >= 0xc0 && code <= 0xde && code != 0xd7) ||
                 (code >= 0x391 && code <= 0x3a9) || (code >= 0x410 && code <= 0x42f);
    return upper ? code + 32 : code >= 0x400 && code <= 0x40f ? code + 80 : code;
}

static bool is_class(unsigned class, uint32_t code)
{
    unsigned kind = by__code_class(code);
    switch (class) {
    case BY__PATTERN_DIGIT:
        return code < 0x80 ? code >= '0' && code <= '9' : (kind & BY__CLASS) == BY__NUMBER;
    case BY__PATTERN_WORD:
        return (kind & BY__WORD) != 0;
    default:
        return (kind & BY__CLASS) == BY__SPACE;
    }
}

bool by__pattern_has(const by__pattern_set *set, uint32_t code, bool ignores_case)
{
    uint32_t lower = ignores_case ? by__pattern_lower(code) : code;
    bool found = false;
    for (size_t i = 0; i < set->count && !found; i += 2) {
        found = code >= set->ranges[i] && code <= set->ranges[i + 1];
        for (uint32_t c = set->ranges[i];
             ignores_case && !found && c <= set->ranges[i + 1] && c < 0x500; c++) {
            found = by__pattern_lower(c) == lower;
        }
    }
    for (unsigned class = 1; class < BY__PATTERN_OPPOSITE && !found; class *= 2) {
        found = ((set->classes & class) != 0 && is_class(class, code)) ||
                ((set->classes & class * BY__PATTERN_OPPOSITE) != 0 && !is_class(class, code));
    }
    return found != set->negated;
}

/* Reads the character at a position and moves behind it. Returns false at the end. */
static bool take(const pattern_run *r, size_t *at, uint32_t *code)
{
    if (*at >= r->n) {
        return false;
    }
    *at += by__utf8_next((const uint8_t *)r->s + *at, r->n - *at, code);
    return true;
}

/* Moves before the character that ends at a position. Returns false at the beginning. */
static bool step_back(const pattern_run *r, size_t *at)
{
    if (*at == 0) {
        return false;
    }
    for (size_t back = 4; back > 1; back--) {
        uint32_t code;
        if (*at >= back && by__utf8_next((const uint8_t *)r->s + *at - back, back, &code) == back) {
            *at -= back;
            return true;
        }
    }
    --*at;
    return true;
}

static bool is_word_at(const pattern_run *r, size_t at)
{
    uint32_t code;
    return take(r, &at, &code) && is_class(BY__PATTERN_WORD, code);
}

static bool holds(const pattern_run *r, uint32_t assertion, size_t at)
{
    size_t before = at;
    bool word;
    switch (assertion) {
    case BY__PATTERN_BEGIN:
        return at == 0;
    case BY__PATTERN_END:
        return at == r->n;
    case BY__PATTERN_LAST:
        return at == r->n || (at + 1 == r->n && r->s[at] == '\n');
    case BY__PATTERN_LINE_BEGIN:
        return at == 0 || r->s[at - 1] == '\n';
    case BY__PATTERN_LINE_END:
        return at == r->n || r->s[at] == '\n';
    default:
        word = step_back(r, &before) && is_word_at(r, before);
        return (word != is_word_at(r, at)) == (assertion == BY__PATTERN_BOUNDARY);
    }
}

/* ---- the machine ---- */

static by_status push(pattern_run *r, uint32_t to, size_t value)
{
    if (r->depth >= MAX_STACK) {
        return by_error_set(r->error, BY_EARG, TOO_MUCH);
    }
    BY_TRY(by__reserve((void **)&r->stack, &r->capacity, r->depth + 1, sizeof *r->stack, r->error));
    r->stack[r->depth++] = (pattern_entry){to, value};
    return BY_OK;
}

/* Takes the last way not tried yet, down to `floor`. Returns false if there is none. */
static bool pop(pattern_run *r, size_t floor, uint32_t *pc, size_t *at)
{
    while (r->depth > floor) {
        const pattern_entry *e = &r->stack[--r->depth];
        if (e->to < RESTORES) {
            *pc = e->to;
            *at = e->value;
            return true;
        }
        r->slots[e->to - RESTORES] = e->value;
    }
    return false;
}

/* Whether the text of a group follows. */
static bool follows(const pattern_run *r, uint32_t group, size_t *at)
{
    size_t begin = r->slots[2 * group];
    size_t end = r->slots[2 * group + 1];
    if (begin == SIZE_MAX || end == SIZE_MAX || end < begin || r->n - *at < end - begin ||
        memcmp(r->s + *at, r->s + begin, end - begin) != 0) {
        return false;
    }
    *at += end - begin;
    return true;
}

/* Whether a character matches an instruction that takes one. */
static bool matches(const pattern_run *r, const by__pattern_instruction *i, uint32_t code)
{
    bool ignores = r->p->ignores_case;
    switch (i->op) {
    case BY__PATTERN_OP_CHAR:
        return code == i->a || (ignores && by__pattern_lower(code) == by__pattern_lower(i->a));
    case BY__PATTERN_OP_ANY:
        return i->a != 0 || code != '\n';
    default:
        return by__pattern_has(&r->p->sets[i->a], code, ignores);
    }
}

static by_status run(pattern_run *r, uint32_t pc, size_t at, unsigned level, bool *matched);

/* Runs the program of an assertion about what follows, or what is before. */
static by_status look(pattern_run *r, uint32_t pc, size_t at, unsigned level, bool *good)
{
    const by__pattern_instruction *i = &r->p->program[pc];
    size_t floor = r->depth;
    bool found = true;
    for (uint32_t k = 0; k < i->b && found; k++) {
        found = step_back(r, &at);
    }
    if (found) {
        BY_TRY(run(r, pc + 2, at, level + 1, &found));
    }
    *good = found != (i->a != 0);
    /* The ways that it has left are not tried; what it set stays only if it is true and positive,
     * and is restored when the search goes back behind it. */
    size_t kept = floor;
    for (size_t k = floor; k < r->depth; k++) {
        if (r->stack[k].to >= RESTORES) {
            r->stack[kept++] = r->stack[k];
        }
    }
    r->depth = kept;
    if (i->a != 0) {
        uint32_t to;
        size_t value;
        (void)pop(r, floor, &to, &value);
    }
    return BY_OK;
}

/* Runs one instruction. *good: the way goes on. */
static by_status step(pattern_run *r, uint32_t *pc, size_t *at, unsigned level, bool *good)
{
    const by__pattern_instruction *i = &r->p->program[(*pc)++];
    uint32_t code;
    *good = true;
    switch (i->op) {
    case BY__PATTERN_OP_SPLIT:
        *pc = i->a;
        return push(r, i->b, *at);
    case BY__PATTERN_OP_JUMP:
        *pc = i->a;
        return BY_OK;
    case BY__PATTERN_OP_SAVE:
        BY_TRY(push(r, i->a + RESTORES, r->slots[i->a]));
        r->slots[i->a] = *at;
        return BY_OK;
    case BY__PATTERN_OP_MOVED:
        *good = r->slots[i->a] != *at;
        return BY_OK;
    case BY__PATTERN_OP_ASSERT:
        *good = holds(r, i->a, *at);
        return BY_OK;
    case BY__PATTERN_OP_BACK:
        *good = follows(r, i->a, at);
        return BY_OK;
    case BY__PATTERN_OP_LOOK:
        return look(r, *pc - 1, *at, level, good);
    default:
        *good = take(r, at, &code) && matches(r, i, code);
        return BY_OK;
    }
}

static by_status run(pattern_run *r, uint32_t pc, size_t at, unsigned level, bool *matched)
{
    size_t floor = r->depth;
    *matched = false;
    for (;;) {
        bool good;
        if (r->p->program[pc].op == BY__PATTERN_OP_MATCH) {
            *matched = true;
            return BY_OK;
        }
        if (++r->steps > BY__PATTERN_STEPS || level > BY__PATTERN_DEPTH) {
            return by_error_set(r->error, BY_EARG, TOO_MUCH);
        }
        BY_TRY(step(r, &pc, &at, level, &good));
        if (!good && !pop(r, floor, &pc, &at)) {
            return BY_OK;
        }
    }
}

by_status by__pattern_search(const by__pattern *pattern, const char *s, size_t n, size_t from,
                             bool *found, by__pattern_match *out, by_error *error)
{
    pattern_run r = {.p = pattern, .s = s, .n = n, .error = error};
    BY_TRY(by__alloc((void **)&r.slots, pattern->slots, sizeof *r.slots, "pattern", error));
    by_status status = BY_OK;
    *found = false;
    for (size_t at = from; at <= n && !*found && status == BY_OK;) {
        memset(r.slots, 0xff, pattern->slots * sizeof *r.slots);
        r.depth = 0;
        status = run(&r, 0, at, 0, found);
        uint32_t code;
        at += at < n ? by__utf8_next((const uint8_t *)s + at, n - at, &code) : 1;
    }
    for (size_t g = 0; g < BY__PATTERN_GROUPS && *found; g++) {
        bool has = g <= pattern->groups && r.slots[2 * g + 1] != SIZE_MAX;
        out->groups[g].begin = has ? r.slots[2 * g] : SIZE_MAX;
        out->groups[g].end = has ? r.slots[2 * g + 1] : SIZE_MAX;
    }
    free(r.slots);
    free(r.stack);
    return status;
}

size_t by__pattern_after(const by__pattern_match *match, const char *s, size_t n)
{
    size_t at = match->groups[0].end;
    uint32_t code;
    if (at > match->groups[0].begin) {
        return at;
    }
    return at < n ? at + by__utf8_next((const uint8_t *)s + at, n - at, &code) : n + 1;
}

/* Appends a replacement. */
static by_status add_replacement(const by__pattern *p, const by__pattern_match *match,
                                 const char *s, const char *text, by_string *out, by_error *error)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c != '\\') {
            by_string_add(out, c, 1);
            continue;
        }
        c++;
        bool named = c[0] == 'g' && c[1] == '<' && c[2] >= '0' && c[2] <= '9' && c[3] == '>';
        char digit = named ? c[2] : *c;
        if (digit >= '0' && digit <= '9') {
            size_t group = (size_t)(digit - '0');
            if (group > p->groups) {
                return by_error_set(error, BY_EARG, "a replacement has group %zu, the pattern %u",
                                    group, (unsigned)p->groups);
            }
            if (match->groups[group].end != SIZE_MAX) {
                by_string_add(out, s + match->groups[group].begin,
                              match->groups[group].end - match->groups[group].begin);
            }
            c += named ? 3 : 0;
        } else if (*c == 'n' || *c == 't' || *c == '\\') {
            by_string_add(out, *c == 'n' ? "\n" : *c == 't' ? "\t" : "\\", 1);
        } else {
            return by_error_set(error, BY_EARG, "a replacement has an unknown escape");
        }
    }
    return BY_OK;
}

by_status by__pattern_replace(const by__pattern *pattern, const char *s, size_t n,
                              const char *replacement, by_string *out, by_error *error)
{
    size_t copied = 0;
    size_t from = 0;
    while (from <= n) {
        by__pattern_match match;
        bool found;
        BY_TRY(by__pattern_search(pattern, s, n, from, &found, &match, error));
        if (!found) {
            break;
        }
        by_string_add(out, s + copied, match.groups[0].begin - copied);
        BY_TRY(add_replacement(pattern, &match, s, replacement, out, error));
        copied = match.groups[0].end;
        from = by__pattern_after(&match, s, n);
    }
    by_string_add(out, s + copied, n - copied);
    return by_string_check(out, error);
}
