/* Parser of expressions: literals, postfix operations, operators by precedence. */
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "text/template/template_parser.h"
#include "text/unicode/unicode.h"

/* ---- literals ---- */

static int hex_value(const char *s, size_t digits)
{
    int value = 0; /* overflow is refused at the digit that causes it */
    for (size_t i = 0; i < digits; i++) {
        int digit = by__hex_digit(s[i]);
        if (digit < 0 || value > 0xffffff) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* Decodes the escape after a backslash at s, with n bytes to the quote: writes its bytes to *out
 * and returns the number of bytes read; 0: it is not an escape. */
static size_t read_escape(const char *s, size_t n, char *out, size_t *used)
{
    static const char letters[] = "n\nt\tr\r\\\\'\'\"\"a\ab\bf\fv\v0\0";
    size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    if (digits > 0) {
        int code = n > digits ? hex_value(s + 1, digits) : -1;
        if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
            return 0;
        }
        *used = by__utf8_put((uint8_t *)out, (uint32_t)code);
        return digits + 1;
    }
    for (size_t i = 0; i + 1 < sizeof letters; i += 2) {
        if (letters[i] == s[0]) {
            out[0] = letters[i + 1];
            *used = 1;
            return 1;
        }
    }
    out[0] = '\\'; /* kept, as in Python */
    out[1] = s[0];
    *used = s[0] == '\n' ? 0 : 2;
    return 1;
}

/* Parses a string, and adjacent ones, which are concatenated. */
static by_status parse_string(by__template_parser *p, by__template_node **out)
{
    size_t total = 0;
    size_t used = 0;
    char *data;
    for (const by__template_token *t = p->token; t->kind == BY__TOKEN_STRING; t++) {
        total += t->length;
    }
    BY_TRY(by__template_parse_node(p, BY__NODE_CONSTANT, out));
    BY_TRY(by__template_arena_allocate(&p->tpl->arena, (void **)&data, total, 1, p->error));
    for (; p->token->kind == BY__TOKEN_STRING; p->token++) {
        const char *s = p->token->data + 1;
        size_t n = p->token->length - 2;
        for (size_t i = 0; i < n;) {
            if (s[i] != '\\') {
                data[used++] = s[i++];
                continue;
            }
            size_t added = 0;
            size_t read = read_escape(s + i + 1, n - i - 1, data + used, &added);
            if (read == 0) {
                return by__template_parse_fail(p, "a string has an escape that is not known");
            }
            used += added;
            i += 1 + read;
        }
    }
    (*out)->value = by__template_value_string(data, used);
    return BY_OK;
}

static by_status parse_number(by__template_parser *p, by__template_node **out)
{
    const by__template_token *t = p->token;
    char text[64];
    size_t used = 0;
    BY_TRY(by__template_parse_node(p, BY__NODE_CONSTANT, out));
    for (size_t i = 0; i < t->length && used + 1 < sizeof text; i++) {
        if (t->data[i] != '_') {
            text[used++] = t->data[i];
        }
    }
    text[used] = '\0';
    if (t->kind == BY__TOKEN_REAL) {
        (*out)->value.kind = BY__REAL;
        if (!by__parse_f64(text, &(*out)->value.as.real)) {
            return by__template_parse_fail(p, "a number cannot be read");
        }
    } else {
        if (used > 18) {
            return by__template_parse_fail(p, "a number is too large");
        }
        (*out)->value = by__template_value_integer(strtoll(text, NULL, 10));
    }
    p->token++;
    return BY_OK;
}

/* Parses items up to a closing bracket, which is consumed. *commas: number of commas. */
static by_status parse_items(by__template_parser *p, const char *close, bool pairs,
                             by__template_node **out, size_t *commas)
{
    by__template_node **end = out;
    *commas = 0;
    while (!by__template_parse_accept_op(p, close)) {
        if (*commas == 0 && *out != NULL) {
            return by__template_parse_fail(p, "expected ',' or a closing bracket");
        }
        BY_TRY(by__template_parse_expression(p, end));
        end = &(*end)->next;
        if (pairs) {
            BY_TRY(by__template_parse_expect_op(p, ":"));
            BY_TRY(by__template_parse_expression(p, end));
            end = &(*end)->next;
        }
        if (by__template_parse_accept_op(p, ",")) {
            (*commas)++;
        } else {
            return by__template_parse_expect_op(p, close);
        }
    }
    return BY_OK;
}

/* Parses (a), or a tuple. */
static by_status parse_parentheses(by__template_parser *p, by__template_node **out)
{
    by__template_node *items = NULL;
    size_t commas;
    by__template_node *tuple;
    BY_TRY(by__template_parse_node(p, BY__NODE_LIST, &tuple));
    BY_TRY(parse_items(p, ")", false, &items, &commas));
    if (items != NULL && commas == 0) {
        *out = items;
        return BY_OK;
    }
    tuple->a = items;
    tuple->op = BY__OP_JOIN; /* a tuple */
    *out = tuple;
    return BY_OK;
}

static by_status parse_name(by__template_parser *p, by__template_node **out)
{
    static const struct {
        const char *name;
        by__template_value value;
    } constants[] = {{"true", {.kind = BY__BOOL, .as.truth = true}},
                     {"True", {.kind = BY__BOOL, .as.truth = true}},
                     {"false", {.kind = BY__BOOL}},
                     {"False", {.kind = BY__BOOL}},
                     {"none", {.kind = BY__NONE}},
                     {"None", {.kind = BY__NONE}}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(constants); i++) {
        if (by__template_parse_is_word(p, constants[i].name)) {
            BY_TRY(by__template_parse_node(p, BY__NODE_CONSTANT, out));
            (*out)->value = constants[i].value;
            p->token++;
            return BY_OK;
        }
    }
    BY_TRY(by__template_parse_node(p, BY__NODE_NAME, out));
    return by__template_parse_name_of(p, &(*out)->name);
}

static by_status parse_primary(by__template_parser *p, by__template_node **out)
{
    size_t commas;
    switch (p->token->kind) {
    case BY__TOKEN_NAME:
        return parse_name(p, out);
    case BY__TOKEN_STRING:
        return parse_string(p, out);
    case BY__TOKEN_INTEGER:
    case BY__TOKEN_REAL:
        return parse_number(p, out);
    default:
        break;
    }
    if (by__template_parse_accept_op(p, "(")) {
        return parse_parentheses(p, out);
    }
    if (by__template_parse_accept_op(p, "[")) {
        BY_TRY(by__template_parse_node(p, BY__NODE_LIST, out));
        return parse_items(p, "]", false, &(*out)->a, &commas);
    }
    if (by__template_parse_accept_op(p, "{")) {
        BY_TRY(by__template_parse_node(p, BY__NODE_DICT, out));
        return parse_items(p, "}", true, &(*out)->a, &commas);
    }
    return by__template_parse_fail(p, "expected an expression");
}

/* ---- postfix operations ---- */

by_status by__template_parse_arguments(by__template_parser *p, by__template_node **out)
{
    while (!by__template_parse_accept_op(p, ")")) {
        bool named = p->token->kind == BY__TOKEN_NAME && p->token[1].kind == BY__TOKEN_OPERATOR &&
                     p->token[1].length == 1 && p->token[1].data[0] == '=';
        if (by__template_parse_is_op(p, "*") || by__template_parse_is_op(p, "**")) {
            return by__template_parse_fail(p, "unpacking of arguments is not supported");
        }
        if (named) {
            BY_TRY(by__template_parse_node(p, BY__NODE_KEYWORD, out));
            BY_TRY(by__template_parse_name_of(p, &(*out)->name));
            p->token++;
            BY_TRY(by__template_parse_expression(p, &(*out)->a));
        } else {
            BY_TRY(by__template_parse_expression(p, out));
        }
        out = &(*out)->next;
        if (!by__template_parse_accept_op(p, ",")) {
            return by__template_parse_expect_op(p, ")");
        }
    }
    return BY_OK;
}

/* Parses b] or from:to:step] after a consumed "[". */
static by_status parse_subscript(by__template_parser *p, by__template_node *of,
                                 by__template_node **out)
{
    by__template_node *parts[3] = {NULL, NULL, NULL};
    size_t colons = 0;
    while (!by__template_parse_is_op(p, "]")) {
        if (by__template_parse_accept_op(p, ":")) {
            if (++colons > 2) {
                return by__template_parse_fail(p, "a slice has more than three parts");
            }
            continue;
        }
        if (parts[colons] != NULL) {
            return by__template_parse_fail(p, "expected ']'");
        }
        BY_TRY(by__template_parse_expression(p, &parts[colons]));
    }
    BY_TRY(by__template_parse_node(p, colons > 0 ? BY__NODE_SLICE : BY__NODE_INDEX, out));
    p->token++;
    if (colons == 0) {
        if (parts[0] == NULL) {
            return by__template_parse_fail(p, "a subscript is empty");
        }
        (*out)->a = of;
        (*out)->b = parts[0];
        return BY_OK;
    }
    (*out)->body = of;
    (*out)->a = parts[0];
    (*out)->b = parts[1];
    (*out)->c = parts[2];
    return BY_OK;
}

static by_status parse_postfix(by__template_parser *p, by__template_node **node)
{
    for (unsigned count = 0;; count++) {
        by__template_node *next = NULL;
        if (count > BY__TEMPLATE_MAX_DEPTH) {
            return by__template_parse_fail(p, "constructs are nested too deeply");
        }
        if (by__template_parse_accept_op(p, ".")) {
            bool number = p->token->kind == BY__TOKEN_INTEGER;
            BY_TRY(by__template_parse_node(p, number ? BY__NODE_INDEX : BY__NODE_ATTRIBUTE, &next));
            next->a = *node;
            BY_TRY(number ? parse_number(p, &next->b) : by__template_parse_name_of(p, &next->name));
        } else if (by__template_parse_accept_op(p, "[")) {
            BY_TRY(parse_subscript(p, *node, &next));
        } else if (by__template_parse_is_op(p, "(")) {
            BY_TRY(by__template_parse_node(p, BY__NODE_CALL, &next));
            p->token++;
            next->a = *node;
            BY_TRY(by__template_parse_arguments(p, &next->b));
        } else {
            return BY_OK;
        }
        *node = next;
    }
}

/* Returns true if a test's argument without parentheses follows: "is divisibleby 3". */
static bool begins_argument(const by__template_parser *p)
{
    static const char *const words[] = {"else", "or", "and", "if", "is", "in", "not", "recursive"};
    if (p->token->kind == BY__TOKEN_OPERATOR) {
        return by__template_parse_is_op(p, "[") || by__template_parse_is_op(p, "{");
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(words); i++) {
        if (by__template_parse_is_word(p, words[i])) {
            return false;
        }
    }
    return p->token->kind == BY__TOKEN_NAME || p->token->kind == BY__TOKEN_STRING ||
           p->token->kind == BY__TOKEN_INTEGER || p->token->kind == BY__TOKEN_REAL;
}

by_status by__template_parse_filters(by__template_parser *p, by__template_node **node)
{
    for (unsigned count = 0;; count++) {
        by__template_node *next = NULL;
        if (count > BY__TEMPLATE_MAX_DEPTH) {
            return by__template_parse_fail(p, "constructs are nested too deeply");
        }
        bool filter = by__template_parse_accept_op(p, "|");
        if (filter || by__template_parse_accept_word(p, "is")) {
            BY_TRY(by__template_parse_node(p, filter ? BY__NODE_FILTER : BY__NODE_TEST, &next));
            next->a = *node;
            next->op =
                !filter && by__template_parse_accept_word(p, "not") ? BY__OP_NOT : BY__OP_NONE;
            BY_TRY(by__template_parse_name_of(p, &next->name));
            if (by__template_parse_accept_op(p, "(")) {
                BY_TRY(by__template_parse_arguments(p, &next->b));
            } else if (!filter && begins_argument(p)) {
                BY_TRY(parse_primary(p, &next->b));
                BY_TRY(parse_postfix(p, &next->b));
            }
        } else if (by__template_parse_is_op(p, "(")) {
            BY_TRY(by__template_parse_node(p, BY__NODE_CALL, &next));
            p->token++;
            next->a = *node;
            BY_TRY(by__template_parse_arguments(p, &next->b));
        } else {
            return BY_OK;
        }
        *node = next;
    }
}

/* ---- operators, by precedence ---- */

static by_status parse_unary(by__template_parser *p, bool filters, by__template_node **out)
{
    BY_TRY(by__template_parse_enter(p));
    if (by__template_parse_is_op(p, "-") || by__template_parse_is_op(p, "+")) {
        BY_TRY(by__template_parse_node(p, BY__NODE_UNARY, out));
        (*out)->op = by__template_parse_is_op(p, "-") ? BY__OP_SUBTRACT : BY__OP_ADD;
        p->token++;
        BY_TRY(parse_unary(p, false, &(*out)->a));
    } else {
        BY_TRY(parse_primary(p, out));
    }
    BY_TRY(parse_postfix(p, out));
    if (filters) {
        BY_TRY(by__template_parse_filters(p, out));
    }
    p->depth--;
    return BY_OK;
}

typedef struct binary_operator {
    const char *text;
    by__template_operator op;
    unsigned level;
} binary_operator;

/* Higher levels bind more tightly. */
static const binary_operator binaries[] = {{"+", BY__OP_ADD, 0},    {"-", BY__OP_SUBTRACT, 0},
                                           {"~", BY__OP_JOIN, 1},   {"*", BY__OP_MULTIPLY, 2},
                                           {"/", BY__OP_DIVIDE, 2}, {"//", BY__OP_FLOOR, 2},
                                           {"%", BY__OP_MODULO, 2}, {"**", BY__OP_POWER, 3}};

static by_status parse_binary(by__template_parser *p, unsigned level, by__template_node **out)
{
    if (level > 3) {
        return parse_unary(p, true, out);
    }
    BY_TRY(parse_binary(p, level + 1, out));
    for (unsigned count = 0;; count++) {
        const binary_operator *found = NULL;
        by__template_node *node;
        for (size_t i = 0; i < BY_ARRAY_LENGTH(binaries) && found == NULL; i++) {
            found = binaries[i].level == level && by__template_parse_is_op(p, binaries[i].text)
                        ? &binaries[i]
                        : NULL;
        }
        if (found == NULL) {
            return BY_OK;
        }
        if (count > BY__TEMPLATE_MAX_DEPTH) {
            return by__template_parse_fail(p, "constructs are nested too deeply");
        }
        BY_TRY(by__template_parse_node(p, BY__NODE_BINARY, &node));
        p->token++;
        node->op = found->op;
        node->a = *out;
        BY_TRY(parse_binary(p, level + 1, &node->b));
        *out = node;
    }
}

static by__template_operator comparison(by__template_parser *p)
{
    static const binary_operator comparisons[] = {
        {"==", BY__OP_EQUAL, 0},      {"!=", BY__OP_UNEQUAL, 0}, {"<=", BY__OP_LESS_EQUAL, 0},
        {">=", BY__OP_MORE_EQUAL, 0}, {"<", BY__OP_LESS, 0},     {">", BY__OP_MORE, 0}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(comparisons); i++) {
        if (by__template_parse_accept_op(p, comparisons[i].text)) {
            return comparisons[i].op;
        }
    }
    if (by__template_parse_accept_word(p, "in")) {
        return BY__OP_IN;
    }
    if (by__template_parse_is_word(p, "not") && p->token[1].kind == BY__TOKEN_NAME &&
        p->token[1].length == 2 && memcmp(p->token[1].data, "in", 2) == 0) {
        p->token += 2;
        return BY__OP_NOT_IN;
    }
    return BY__OP_NONE;
}

static by_status parse_comparison(by__template_parser *p, by__template_node **out)
{
    BY_TRY(parse_binary(p, 0, out));
    by__template_node **end = NULL;
    by__template_operator op;
    while ((op = comparison(p)) != BY__OP_NONE) {
        if (end == NULL) {
            by__template_node *compare;
            BY_TRY(by__template_parse_node(p, BY__NODE_COMPARE, &compare));
            compare->a = *out;
            *out = compare;
            end = &compare->b;
        }
        BY_TRY(by__template_parse_node(p, BY__NODE_OPERAND, end));
        (*end)->op = op;
        BY_TRY(parse_binary(p, 0, &(*end)->a));
        end = &(*end)->next;
    }
    return BY_OK;
}

static by_status parse_not(by__template_parser *p, by__template_node **out)
{
    if (!by__template_parse_is_word(p, "not")) {
        return parse_comparison(p, out);
    }
    BY_TRY(by__template_parse_enter(p));
    BY_TRY(by__template_parse_node(p, BY__NODE_UNARY, out));
    p->token++;
    (*out)->op = BY__OP_NOT;
    BY_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return BY_OK;
}

static by_status parse_logic(by__template_parser *p, bool either, by__template_node **out)
{
    BY_TRY(either ? parse_logic(p, false, out) : parse_not(p, out));
    for (unsigned count = 0; by__template_parse_is_word(p, either ? "or" : "and"); count++) {
        by__template_node *node;
        if (count > BY__TEMPLATE_MAX_DEPTH) {
            return by__template_parse_fail(p, "constructs are nested too deeply");
        }
        BY_TRY(by__template_parse_node(p, BY__NODE_BINARY, &node));
        p->token++;
        node->op = either ? BY__OP_OR : BY__OP_AND;
        node->a = *out;
        BY_TRY(either ? parse_logic(p, false, &node->b) : parse_not(p, &node->b));
        *out = node;
    }
    return BY_OK;
}

by_status by__template_parse_plain(by__template_parser *p, by__template_node **out)
{
    BY_TRY(by__template_parse_enter(p));
    BY_TRY(parse_logic(p, true, out));
    p->depth--;
    return BY_OK;
}

by_status by__template_parse_expression(by__template_parser *p, by__template_node **out)
{
    BY_TRY(by__template_parse_enter(p));
    BY_TRY(parse_logic(p, true, out));
    for (unsigned count = 0; by__template_parse_is_word(p, "if"); count++) {
        by__template_node *node;
        if (count > BY__TEMPLATE_MAX_DEPTH) {
            return by__template_parse_fail(p, "constructs are nested too deeply");
        }
        BY_TRY(by__template_parse_node(p, BY__NODE_CONDITION, &node));
        p->token++;
        node->a = *out;
        BY_TRY(parse_logic(p, true, &node->b));
        if (by__template_parse_accept_word(p, "else")) {
            BY_TRY(by__template_parse_expression(p, &node->c));
        }
        *out = node;
    }
    p->depth--;
    return BY_OK;
}

by_status by__template_parse_tuple(by__template_parser *p, by__template_node **out)
{
    BY_TRY(by__template_parse_expression(p, out));
    if (!by__template_parse_is_op(p, ",")) {
        return BY_OK;
    }
    by__template_node *tuple;
    BY_TRY(by__template_parse_node(p, BY__NODE_LIST, &tuple));
    tuple->op = BY__OP_JOIN;
    tuple->a = *out;
    *out = tuple;
    by__template_node **end = &tuple->a->next;
    while (by__template_parse_accept_op(p, ",") && p->token->kind != BY__TOKEN_BLOCK_END &&
           p->token->kind != BY__TOKEN_PRINT_END) {
        BY_TRY(by__template_parse_expression(p, end));
        end = &(*end)->next;
    }
    return BY_OK;
}
