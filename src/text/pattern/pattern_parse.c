/* Parses patterns by recursive descent. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/pattern/pattern_program.h"

typedef struct pattern_parser {
    by__pattern *p;
    const char *text;
    size_t n;
    size_t at;
    unsigned depth;
    bool multiline;
    bool dot_all;
    char names[BY__PATTERN_GROUPS][32]; /* of groups */
    by_error *error;
} pattern_parser;

static by_status parse_either(pattern_parser *r, uint32_t *out);

static by_status fail(const pattern_parser *r, const char *what)
{
    return by_error_set(r->error, BY_EFORMAT, "pattern '%.*s', byte %zu: %s",
                        (int)(r->n < 80 ? r->n : 80), r->text, r->at, what);
}

static bool more(const pattern_parser *r)
{
    return r->at < r->n;
}

static char peek(const pattern_parser *r)
{
    return more(r) ? r->text[r->at] : '\0';
}

static bool accept(pattern_parser *r, const char *what)
{
    size_t n = strlen(what);
    bool same = r->n - r->at >= n && memcmp(r->text + r->at, what, n) == 0;
    r->at += same ? n : 0;
    return same;
}

static by_status add_node(pattern_parser *r, const by__pattern_node *node, uint32_t *out)
{
    by__pattern *p = r->p;
    if (p->node_count >= BY__PATTERN_INSTRUCTIONS) {
        return fail(r, "the pattern is too long");
    }
    BY_TRY(by__reserve((void **)&p->nodes, &p->node_capacity, p->node_count + 1, sizeof *p->nodes,
                       r->error));
    p->nodes[p->node_count] = *node;
    *out = (uint32_t)p->node_count++;
    return BY_OK;
}

static by_status add_number(pattern_parser *r, by__pattern_kind kind, uint32_t number,
                            uint32_t *out)
{
    return add_node(r, &(by__pattern_node){.kind = kind, .number = number}, out);
}

static by_status read_character(pattern_parser *r, uint32_t *code)
{
    r->at += by__utf8_next((const uint8_t *)r->text + r->at, r->n - r->at, code);
    return *code == BY__INVALID ? fail(r, "not UTF-8") : BY_OK;
}

/* ---- escapes ---- */

static by_status read_hex(pattern_parser *r, int digits, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        const char *at =
            more(r) && peek(r) != '\0' ? strchr("0123456789abcdef", peek(r) | 0x20) : NULL;
        if (at == NULL) {
            return fail(r, "an escape has too few hexadecimal digits");
        }
        *code = *code << 4 | (uint32_t)(at - "0123456789abcdef");
    }
    return BY_OK;
}

/* The classes of \d and others; 0: the letter is none. */
static unsigned class_of(char c)
{
    switch (c) {
    case 'd':
        return BY__PATTERN_DIGIT;
    case 'w':
        return BY__PATTERN_WORD;
    case 's':
        return BY__PATTERN_SPACE;
    case 'D':
        return BY__PATTERN_DIGIT * BY__PATTERN_OPPOSITE;
    case 'W':
        return BY__PATTERN_WORD * BY__PATTERN_OPPOSITE;
    case 'S':
        return BY__PATTERN_SPACE * BY__PATTERN_OPPOSITE;
    default:
        return 0;
    }
}

/* Reads the character of an escape, behind its backslash. */
static by_status read_escape(pattern_parser *r, uint32_t *code)
{
    static const char names[] = "nrtafv0";
    static const char bytes[] = "\n\r\t\a\f\v\0";
    char c = peek(r);
    const char *at = c == '\0' ? NULL : strchr(names, c);
    if (at != NULL) {
        r->at++;
        *code = (uint8_t)bytes[at - names];
        return BY_OK;
    }
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
        r->at++;
        return read_hex(r, digits, code);
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || !more(r)) {
        return fail(r, "an escape is unknown");
    }
    return read_character(r, code);
}

/* ---- sets ---- */

static by_status new_set(pattern_parser *r, by__pattern_set **out, uint32_t *index)
{
    by__pattern *p = r->p;
    BY_TRY(by__reserve((void **)&p->sets, &p->set_capacity, p->set_count + 1, sizeof *p->sets,
                       r->error));
    *out = &p->sets[p->set_count];
    **out = (by__pattern_set){.ranges = NULL};
    *index = (uint32_t)p->set_count++;
    return BY_OK;
}

static by_status add_range(pattern_parser *r, by__pattern_set *set, uint32_t from, uint32_t to)
{
    BY_TRY(by__reserve((void **)&set->ranges, &set->capacity, set->count + 2, sizeof *set->ranges,
                       r->error));
    set->ranges[set->count++] = from;
    set->ranges[set->count++] = to;
    return BY_OK;
}

/* Reads a character or class of a set. */
static by_status read_member(pattern_parser *r, uint32_t *code, unsigned *class)
{
    *class = 0;
    if (!accept(r, "\\")) {
        return read_character(r, code);
    }
    *class = class_of(peek(r));
    if (*class != 0) {
        r->at++;
        return BY_OK;
    }
    if (accept(r, "b")) {
        *code = '\b';
        return BY_OK;
    }
    return read_escape(r, code);
}

static by_status parse_set(pattern_parser *r, uint32_t *out)
{
    by__pattern_set *set;
    uint32_t index;
    BY_TRY(new_set(r, &set, &index));
    set->negated = accept(r, "^");
    for (bool first = true; first || peek(r) != ']'; first = false) {
        uint32_t from;
        uint32_t to;
        unsigned class;
        if (!more(r)) {
            return fail(r, "a set [ is not ended by ]");
        }
        BY_TRY(read_member(r, &from, &class));
        if (class != 0) {
            set->classes |= class;
            continue;
        }
        to = from;
        if (peek(r) == '-' && r->at + 1 < r->n && r->text[r->at + 1] != ']') {
            r->at++;
            BY_TRY(read_member(r, &to, &class));
            if (class != 0 || to < from) {
                return fail(r, "a range of a set has no order");
            }
        }
        BY_TRY(add_range(r, set, from, to));
    }
    r->at++;
    return add_number(r, BY__PATTERN_SET, index, out);
}

/* ---- groups ---- */

static by_status read_flags(pattern_parser *r)
{
    for (; more(r) && peek(r) != ')'; r->at++) {
        switch (peek(r)) {
        case 'i':
            r->p->ignores_case = true;
            break;
        case 'm':
            r->multiline = true;
            break;
        case 's':
            r->dot_all = true;
            break;
        default:
            return fail(r, "flags other than i, m and s are not supported");
        }
    }
    return accept(r, ")") ? BY_OK : fail(r, "flags are not ended by )");
}

/* Characters that a tree matches; BY__PATTERN_NONE: not always as many. */
static uint32_t width_of(const by__pattern *p, uint32_t node)
{
    const by__pattern_node *n = &p->nodes[node];
    uint32_t a;
    uint32_t b;
    switch (n->kind) {
    case BY__PATTERN_CHAR:
    case BY__PATTERN_ANY:
    case BY__PATTERN_SET:
        return 1;
    case BY__PATTERN_GROUP:
        return width_of(p, n->a);
    case BY__PATTERN_CHAIN:
        a = width_of(p, n->a);
        b = width_of(p, n->b);
        return a == BY__PATTERN_NONE || b == BY__PATTERN_NONE ? BY__PATTERN_NONE : a + b;
    case BY__PATTERN_EITHER:
        a = width_of(p, n->a);
        return a == width_of(p, n->b) ? a : BY__PATTERN_NONE;
    case BY__PATTERN_REPEAT:
        a = width_of(p, n->a);
        return n->least != n->most || a == BY__PATTERN_NONE ||
                       (uint64_t)a * n->least > BY__PATTERN_INSTRUCTIONS
                   ? BY__PATTERN_NONE
                   : a * n->least;
    case BY__PATTERN_BACK:
        return BY__PATTERN_NONE;
    default:
        return 0;
    }
}

static by_status parse_look(pattern_parser *r, bool behind, bool negated, uint32_t *out)
{
    by__pattern_node look = {.kind = BY__PATTERN_LOOK, .negated = negated, .behind = behind};
    BY_TRY(parse_either(r, &look.a));
    look.number = behind ? width_of(r->p, look.a) : 0;
    if (look.number == BY__PATTERN_NONE) {
        return fail(r, "a lookbehind must have a fixed width");
    }
    return add_node(r, &look, out);
}

static by_status read_name(pattern_parser *r, char out[32], char end)
{
    size_t n = 0;
    while (more(r) && peek(r) != end && n < 31) {
        out[n++] = r->text[r->at++];
    }
    out[n] = '\0';
    if (n == 0 || !more(r) || r->text[r->at++] != end) {
        return fail(r, "a name of a group is missing or too long");
    }
    return BY_OK;
}

static by_status parse_named_back(pattern_parser *r, uint32_t *out)
{
    char name[32];
    BY_TRY(read_name(r, name, ')'));
    r->at--;
    for (uint32_t i = 1; i <= r->p->groups; i++) {
        if (strcmp(r->names[i], name) == 0) {
            return add_number(r, BY__PATTERN_BACK, i, out);
        }
    }
    return fail(r, "no group before has this name");
}

/* Parses what is in parentheses, behind the first one. */
static by_status parse_group(pattern_parser *r, uint32_t *out)
{
    by__pattern_node group = {.kind = BY__PATTERN_GROUP};
    char name[32] = "";
    if (accept(r, "?:")) {
        return parse_either(r, out);
    }
    if (accept(r, "?=") || accept(r, "?!")) {
        return parse_look(r, false, r->text[r->at - 1] == '!', out);
    }
    if (accept(r, "?<=") || accept(r, "?<!")) {
        return parse_look(r, true, r->text[r->at - 1] == '!', out);
    }
    if (accept(r, "?P=")) {
        return parse_named_back(r, out);
    }
    if (accept(r, "?P<")) {
        BY_TRY(read_name(r, name, '>'));
    } else if (peek(r) == '?') {
        return fail(r, "this kind of group is not supported");
    }
    if (r->p->groups + 1 >= BY__PATTERN_GROUPS) {
        return fail(r, "too many groups");
    }
    group.number = ++r->p->groups;
    (void)snprintf(r->names[group.number], sizeof r->names[0], "%s", name);
    BY_TRY(parse_either(r, &group.a));
    return add_node(r, &group, out);
}

/* ---- atoms, repetitions, chains ---- */

static by_status parse_backslash(pattern_parser *r, uint32_t *out)
{
    static const struct {
        char letter;
        by__pattern_assertion assertion;
    } assertions[] = {{'b', BY__PATTERN_BOUNDARY},
                      {'B', BY__PATTERN_INSIDE},
                      {'A', BY__PATTERN_BEGIN},
                      {'Z', BY__PATTERN_END}};
    uint32_t code;
    char c = peek(r);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(assertions); i++) {
        if (c == assertions[i].letter) {
            r->at++;
            return add_number(r, BY__PATTERN_ASSERT, (uint32_t)assertions[i].assertion, out);
        }
    }
    if (class_of(c) != 0) {
        by__pattern_set *set;
        r->at++;
        BY_TRY(new_set(r, &set, &code));
        set->classes = class_of(c);
        return add_number(r, BY__PATTERN_SET, code, out);
    }
    if (c >= '1' && c <= '9') {
        r->at++;
        uint32_t group = (uint32_t)(c - '0');
        return group > r->p->groups ? fail(r, "a group that is referred to does not exist")
                                    : add_number(r, BY__PATTERN_BACK, group, out);
    }
    BY_TRY(read_escape(r, &code));
    return add_number(r, BY__PATTERN_CHAR, code, out);
}

static by_status parse_parentheses(pattern_parser *r, uint32_t *out)
{
    if (++r->depth > BY__PATTERN_DEPTH) {
        return fail(r, "groups are nested too deeply");
    }
    BY_TRY(parse_group(r, out));
    r->depth--;
    return accept(r, ")") ? BY_OK : fail(r, "a group ( is not ended by )");
}

static by_status parse_atom(pattern_parser *r, uint32_t *out)
{
    uint32_t code;
    if (accept(r, "(")) {
        return parse_parentheses(r, out);
    }
    if (accept(r, "[")) {
        return parse_set(r, out);
    }
    if (accept(r, "\\")) {
        return parse_backslash(r, out);
    }
    if (accept(r, ".")) {
        return add_number(r, BY__PATTERN_ANY, r->dot_all, out);
    }
    if (accept(r, "^")) {
        return add_number(r, BY__PATTERN_ASSERT,
                          r->multiline ? BY__PATTERN_LINE_BEGIN : BY__PATTERN_BEGIN, out);
    }
    if (accept(r, "$")) {
        return add_number(r, BY__PATTERN_ASSERT,
                          r->multiline ? BY__PATTERN_LINE_END : BY__PATTERN_LAST, out);
    }
    if (strchr("*+?", peek(r)) != NULL) {
        return fail(r, "nothing to repeat");
    }
    BY_TRY(read_character(r, &code));
    return add_number(r, BY__PATTERN_CHAR, code, out);
}

static bool read_count(pattern_parser *r, uint32_t *out)
{
    size_t begin = r->at;
    uint32_t value = 0;
    while (peek(r) >= '0' && peek(r) <= '9' && value < BY__PATTERN_INSTRUCTIONS) {
        value = value * 10 + (uint32_t)(r->text[r->at++] - '0');
    }
    *out = value;
    return r->at > begin;
}

/* Reads {m}, {m,}, {,n} or {m,n}; anything else in braces is text. */
static bool read_braces(pattern_parser *r, by__pattern_node *repeat)
{
    size_t begin = r->at++;
    bool least = read_count(r, &repeat->least);
    bool comma = accept(r, ",");
    bool most = comma && read_count(r, &repeat->most);
    if (comma && !most) {
        repeat->most = BY__PATTERN_NONE;
    } else if (!comma) {
        repeat->most = repeat->least;
    }
    if ((!least && !comma) || !accept(r, "}")) {
        r->at = begin;
        return false;
    }
    return true;
}

static by_status parse_repeat(pattern_parser *r, uint32_t *out)
{
    BY_TRY(parse_atom(r, out));
    for (bool again = false;; again = true) {
        by__pattern_node repeat = {.kind = BY__PATTERN_REPEAT, .a = *out, .most = BY__PATTERN_NONE};
        if (accept(r, "+")) {
            repeat.least = 1;
        } else if (accept(r, "?")) {
            repeat.most = 1;
        } else if (!accept(r, "*") && !(peek(r) == '{' && read_braces(r, &repeat))) {
            return BY_OK;
        }
        if (again) {
            return fail(r, "a repetition is repeated");
        }
        if (repeat.most < repeat.least) {
            return fail(r, "a repetition has its limits in the wrong order");
        }
        repeat.lazy = accept(r, "?");
        BY_TRY(add_node(r, &repeat, out));
    }
}

static by_status parse_chain(pattern_parser *r, uint32_t *out)
{
    BY_TRY(add_number(r, BY__PATTERN_EMPTY, 0, out));
    while (more(r) && peek(r) != '|' && peek(r) != ')') {
        by__pattern_node chain = {.kind = BY__PATTERN_CHAIN, .a = *out};
        BY_TRY(parse_repeat(r, &chain.b));
        BY_TRY(add_node(r, &chain, out));
    }
    return BY_OK;
}

static by_status parse_either(pattern_parser *r, uint32_t *out)
{
    BY_TRY(parse_chain(r, out));
    while (accept(r, "|")) {
        by__pattern_node either = {.kind = BY__PATTERN_EITHER, .a = *out};
        BY_TRY(parse_chain(r, &either.b));
        BY_TRY(add_node(r, &either, out));
    }
    return BY_OK;
}

by_status by__pattern_parse(by__pattern *p, const char *text, size_t length, uint32_t *root,
                            by_error *error)
{
    pattern_parser r = {.p = p, .text = text, .n = length, .error = error};
    if (length > BY__PATTERN_BYTES) {
        return fail(&r, "the pattern is too long");
    }
    while (r.n - r.at >= 3 && memcmp(text + r.at, "(?", 2) == 0 && text[r.at + 2] != '\0' &&
           strchr("imsaxuL", text[r.at + 2]) != NULL) {
        r.at += 2;
        BY_TRY(read_flags(&r));
    }
    BY_TRY(parse_either(&r, root));
    return more(&r) ? fail(&r, "a ) without its (") : BY_OK;
}
