/* Tokens to nodes: Jinja's grammar, by recursive descent with a bound on depth. */
#include <stdlib.h>
#include <string.h>

#include "data/template/template.h"
#include "data/tokenizer/unicode.h"

typedef struct parser {
    by__template *tpl;
    const by__token *token;
    unsigned depth;
    unsigned loops; /* around the token */
    by_error *error;
} parser;

static by_status parse_expression(parser *p, by__node **out);
static by_status parse_unary(parser *p, bool filters, by__node **out);
static by_status parse_body(parser *p, const char *const *ends, by__node **out);

/* BY_EFORMAT: "NAME:LINE: what 'token'". */
static by_status fail(const parser *p, const char *what)
{
    const by__token *t = p->token;
    if (t->kind == BY__TOKEN_END) {
        return by_error_set(p->error, BY_EFORMAT, "%s:%u: %s at the end of the template",
                            p->tpl->name, t->line, what);
    }
    return by_error_set(p->error, BY_EFORMAT, "%s:%u: %s at '%.*s'", p->tpl->name, t->line, what,
                        (int)(t->length < 40 ? t->length : 40), t->data);
}

static bool is_op(const parser *p, const char *op)
{
    const by__token *t = p->token;
    return t->kind == BY__TOKEN_OPERATOR && t->length == strlen(op) &&
           memcmp(t->data, op, t->length) == 0;
}

static bool is_word(const parser *p, const char *word)
{
    const by__token *t = p->token;
    return t->kind == BY__TOKEN_NAME && t->length == strlen(word) &&
           memcmp(t->data, word, t->length) == 0;
}

static bool take_op(parser *p, const char *op)
{
    bool found = is_op(p, op);
    p->token += found ? 1 : 0;
    return found;
}

static bool take_word(parser *p, const char *word)
{
    bool found = is_word(p, word);
    p->token += found ? 1 : 0;
    return found;
}

static by_status expect_op(parser *p, const char *op)
{
    char what[24];
    if (take_op(p, op)) {
        return BY_OK;
    }
    (void)snprintf(what, sizeof what, "expected '%s'", op);
    return fail(p, what);
}

static by_status enter(parser *p)
{
    if (p->depth >= BY__TEMPLATE_MAX_DEPTH) {
        return fail(p, "constructs are nested too deeply");
    }
    p->depth++;
    return BY_OK;
}

static by_status new_node(parser *p, by__node_kind kind, by__node **out)
{
    BY_TRY(by__arena_take(&p->tpl->arena, (void **)out, 1, sizeof **out, p->error));
    (*out)->kind = kind;
    (*out)->line = p->token->line;
    return BY_OK;
}

static by_status copy_name(parser *p, const char **out)
{
    const by__token *t = p->token;
    char *copy;
    if (t->kind != BY__TOKEN_NAME) {
        return fail(p, "expected a name");
    }
    BY_TRY(by__arena_take(&p->tpl->arena, (void **)&copy, t->length + 1, 1, p->error));
    memcpy(copy, t->data, t->length);
    *out = copy;
    p->token++;
    return BY_OK;
}

/* ---- literals ---- */

static int hex_value(const char *s, size_t digits)
{
    int value = 0; /* a digit that would overflow it is refused */
    for (size_t i = 0; i < digits; i++) {
        char c = s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0 || value > 0xffffff) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* The character of the escape behind a backslash at s, of n bytes to the quote: its bytes to *out,
 * the bytes read returned; 0 when it is none. */
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
    out[0] = '\\'; /* stays, as in Python */
    out[1] = s[0];
    *used = s[0] == '\n' ? 0 : 2;
    return 1;
}

/* A string, and those that follow it. */
static by_status parse_string(parser *p, by__node **out)
{
    size_t total = 0;
    size_t used = 0;
    char *data;
    for (const by__token *t = p->token; t->kind == BY__TOKEN_STRING; t++) {
        total += t->length;
    }
    BY_TRY(new_node(p, BY__NODE_CONSTANT, out));
    BY_TRY(by__arena_take(&p->tpl->arena, (void **)&data, total, 1, p->error));
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
                return fail(p, "a string has an escape that is not known");
            }
            used += added;
            i += 1 + read;
        }
    }
    (*out)->value = by__value_string(data, used);
    return BY_OK;
}

static by_status parse_number(parser *p, by__node **out)
{
    const by__token *t = p->token;
    char text[64];
    size_t used = 0;
    BY_TRY(new_node(p, BY__NODE_CONSTANT, out));
    for (size_t i = 0; i < t->length && used + 1 < sizeof text; i++) {
        if (t->data[i] != '_') {
            text[used++] = t->data[i];
        }
    }
    text[used] = '\0';
    if (t->kind == BY__TOKEN_REAL) {
        (*out)->value.kind = BY__REAL;
        if (!by__parse_f64(text, &(*out)->value.as.real)) {
            return fail(p, "a number cannot be read");
        }
    } else {
        if (used > 18) {
            return fail(p, "a number is too large");
        }
        (*out)->value = by__value_integer(strtoll(text, NULL, 10));
    }
    p->token++;
    return BY_OK;
}

/* Items up to a closing bracket, which is taken. *commas: how many commas there were. */
static by_status parse_items(parser *p, const char *close, bool pairs, by__node **out,
                             size_t *commas)
{
    by__node **end = out;
    *commas = 0;
    while (!take_op(p, close)) {
        if (*commas == 0 && *out != NULL) {
            return fail(p, "expected ',' or a closing bracket");
        }
        BY_TRY(parse_expression(p, end));
        end = &(*end)->next;
        if (pairs) {
            BY_TRY(expect_op(p, ":"));
            BY_TRY(parse_expression(p, end));
            end = &(*end)->next;
        }
        if (take_op(p, ",")) {
            (*commas)++;
        } else {
            return expect_op(p, close);
        }
    }
    return BY_OK;
}

/* (a), or a tuple. */
static by_status parse_parentheses(parser *p, by__node **out)
{
    by__node *items = NULL;
    size_t commas;
    by__node *tuple;
    BY_TRY(new_node(p, BY__NODE_LIST, &tuple));
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

static by_status parse_name(parser *p, by__node **out)
{
    static const struct {
        const char *name;
        by__value value;
    } constants[] = {{"true", {.kind = BY__BOOL, .as.truth = true}},
                     {"True", {.kind = BY__BOOL, .as.truth = true}},
                     {"false", {.kind = BY__BOOL}},
                     {"False", {.kind = BY__BOOL}},
                     {"none", {.kind = BY__NONE}},
                     {"None", {.kind = BY__NONE}}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(constants); i++) {
        if (is_word(p, constants[i].name)) {
            BY_TRY(new_node(p, BY__NODE_CONSTANT, out));
            (*out)->value = constants[i].value;
            p->token++;
            return BY_OK;
        }
    }
    BY_TRY(new_node(p, BY__NODE_NAME, out));
    return copy_name(p, &(*out)->name);
}

static by_status parse_primary(parser *p, by__node **out)
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
    if (take_op(p, "(")) {
        return parse_parentheses(p, out);
    }
    if (take_op(p, "[")) {
        BY_TRY(new_node(p, BY__NODE_LIST, out));
        return parse_items(p, "]", false, &(*out)->a, &commas);
    }
    if (take_op(p, "{")) {
        BY_TRY(new_node(p, BY__NODE_DICT, out));
        return parse_items(p, "}", true, &(*out)->a, &commas);
    }
    return fail(p, "expected an expression");
}

/* ---- what follows an operand ---- */

/* Arguments behind "(", which is taken. */
static by_status parse_arguments(parser *p, by__node **out)
{
    while (!take_op(p, ")")) {
        bool named = p->token->kind == BY__TOKEN_NAME && p->token[1].kind == BY__TOKEN_OPERATOR &&
                     p->token[1].length == 1 && p->token[1].data[0] == '=';
        if (is_op(p, "*") || is_op(p, "**")) {
            return fail(p, "unpacking of arguments is not supported");
        }
        if (named) {
            BY_TRY(new_node(p, BY__NODE_KEYWORD, out));
            BY_TRY(copy_name(p, &(*out)->name));
            p->token++;
            BY_TRY(parse_expression(p, &(*out)->a));
        } else {
            BY_TRY(parse_expression(p, out));
        }
        out = &(*out)->next;
        if (!take_op(p, ",")) {
            return expect_op(p, ")");
        }
    }
    return BY_OK;
}

/* [b], [from:to:step] behind "[", which is taken. */
static by_status parse_subscript(parser *p, by__node *of, by__node **out)
{
    by__node *parts[3] = {NULL, NULL, NULL};
    size_t colons = 0;
    while (!is_op(p, "]")) {
        if (take_op(p, ":")) {
            if (++colons > 2) {
                return fail(p, "a slice has more than three parts");
            }
            continue;
        }
        if (parts[colons] != NULL) {
            return fail(p, "expected ']'");
        }
        BY_TRY(parse_expression(p, &parts[colons]));
    }
    BY_TRY(new_node(p, colons > 0 ? BY__NODE_SLICE : BY__NODE_INDEX, out));
    p->token++;
    if (colons == 0) {
        if (parts[0] == NULL) {
            return fail(p, "a subscript is empty");
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

static by_status parse_postfix(parser *p, by__node **node)
{
    for (unsigned count = 0;; count++) {
        by__node *next = NULL;
        if (count > BY__TEMPLATE_MAX_DEPTH) {
            return fail(p, "constructs are nested too deeply");
        }
        if (take_op(p, ".")) {
            bool number = p->token->kind == BY__TOKEN_INTEGER;
            BY_TRY(new_node(p, number ? BY__NODE_INDEX : BY__NODE_ATTRIBUTE, &next));
            next->a = *node;
            BY_TRY(number ? parse_number(p, &next->b) : copy_name(p, &next->name));
        } else if (take_op(p, "[")) {
            BY_TRY(parse_subscript(p, *node, &next));
        } else if (is_op(p, "(")) {
            BY_TRY(new_node(p, BY__NODE_CALL, &next));
            p->token++;
            next->a = *node;
            BY_TRY(parse_arguments(p, &next->b));
        } else {
            return BY_OK;
        }
        *node = next;
    }
}

/* A test's argument without parentheses: "is divisibleby 3". */
static bool begins_argument(const parser *p)
{
    static const char *const words[] = {"else", "or", "and", "if", "is", "in", "not", "recursive"};
    if (p->token->kind == BY__TOKEN_OPERATOR) {
        return is_op(p, "[") || is_op(p, "{");
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(words); i++) {
        if (is_word(p, words[i])) {
            return false;
        }
    }
    return p->token->kind == BY__TOKEN_NAME || p->token->kind == BY__TOKEN_STRING ||
           p->token->kind == BY__TOKEN_INTEGER || p->token->kind == BY__TOKEN_REAL;
}

static by_status parse_filters(parser *p, by__node **node)
{
    for (unsigned count = 0;; count++) {
        by__node *next = NULL;
        if (count > BY__TEMPLATE_MAX_DEPTH) {
            return fail(p, "constructs are nested too deeply");
        }
        bool filter = take_op(p, "|");
        if (filter || take_word(p, "is")) {
            BY_TRY(new_node(p, filter ? BY__NODE_FILTER : BY__NODE_TEST, &next));
            next->a = *node;
            next->op = !filter && take_word(p, "not") ? BY__OP_NOT : BY__OP_NONE;
            BY_TRY(copy_name(p, &next->name));
            if (take_op(p, "(")) {
                BY_TRY(parse_arguments(p, &next->b));
            } else if (!filter && begins_argument(p)) {
                BY_TRY(parse_primary(p, &next->b));
                BY_TRY(parse_postfix(p, &next->b));
            }
        } else if (is_op(p, "(")) {
            BY_TRY(new_node(p, BY__NODE_CALL, &next));
            p->token++;
            next->a = *node;
            BY_TRY(parse_arguments(p, &next->b));
        } else {
            return BY_OK;
        }
        *node = next;
    }
}

/* ---- operators, by precedence ---- */

static by_status parse_unary(parser *p, bool filters, by__node **out)
{
    BY_TRY(enter(p));
    if (is_op(p, "-") || is_op(p, "+")) {
        BY_TRY(new_node(p, BY__NODE_UNARY, out));
        (*out)->op = is_op(p, "-") ? BY__OP_SUBTRACT : BY__OP_ADD;
        p->token++;
        BY_TRY(parse_unary(p, false, &(*out)->a));
    } else {
        BY_TRY(parse_primary(p, out));
    }
    BY_TRY(parse_postfix(p, out));
    if (filters) {
        BY_TRY(parse_filters(p, out));
    }
    p->depth--;
    return BY_OK;
}

typedef struct binary {
    const char *text;
    by__operator op;
    unsigned level;
} binary;

/* Levels bind tighter as they grow. */
static const binary binaries[] = {{"+", BY__OP_ADD, 0},    {"-", BY__OP_SUBTRACT, 0},
                                  {"~", BY__OP_JOIN, 1},   {"*", BY__OP_MULTIPLY, 2},
                                  {"/", BY__OP_DIVIDE, 2}, {"//", BY__OP_FLOOR, 2},
                                  {"%", BY__OP_MODULO, 2}, {"**", BY__OP_POWER, 3}};

static by_status parse_binary(parser *p, unsigned level, by__node **out)
{
    if (level > 3) {
        return parse_unary(p, true, out);
    }
    BY_TRY(parse_binary(p, level + 1, out));
    for (unsigned count = 0;; count++) {
        const binary *found = NULL;
        by__node *node;
        for (size_t i = 0; i < BY_ARRAY_LENGTH(binaries) && found == NULL; i++) {
            found = binaries[i].level == level && is_op(p, binaries[i].text) ? &binaries[i] : NULL;
        }
        if (found == NULL) {
            return BY_OK;
        }
        if (count > BY__TEMPLATE_MAX_DEPTH) {
            return fail(p, "constructs are nested too deeply");
        }
        BY_TRY(new_node(p, BY__NODE_BINARY, &node));
        p->token++;
        node->op = found->op;
        node->a = *out;
        BY_TRY(parse_binary(p, level + 1, &node->b));
        *out = node;
    }
}

static by__operator comparison(parser *p)
{
    static const binary comparisons[] = {{"==", BY__OP_EQUAL, 0},      {"!=", BY__OP_UNEQUAL, 0},
                                         {"<=", BY__OP_LESS_EQUAL, 0}, {">=", BY__OP_MORE_EQUAL, 0},
                                         {"<", BY__OP_LESS, 0},        {">", BY__OP_MORE, 0}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(comparisons); i++) {
        if (take_op(p, comparisons[i].text)) {
            return comparisons[i].op;
        }
    }
    if (take_word(p, "in")) {
        return BY__OP_IN;
    }
    if (is_word(p, "not") && p->token[1].kind == BY__TOKEN_NAME && p->token[1].length == 2 &&
        memcmp(p->token[1].data, "in", 2) == 0) {
        p->token += 2;
        return BY__OP_NOT_IN;
    }
    return BY__OP_NONE;
}

static by_status parse_comparison(parser *p, by__node **out)
{
    BY_TRY(parse_binary(p, 0, out));
    by__node **end = NULL;
    by__operator op;
    while ((op = comparison(p)) != BY__OP_NONE) {
        if (end == NULL) {
            by__node *compare;
            BY_TRY(new_node(p, BY__NODE_COMPARE, &compare));
            compare->a = *out;
            *out = compare;
            end = &compare->b;
        }
        BY_TRY(new_node(p, BY__NODE_OPERAND, end));
        (*end)->op = op;
        BY_TRY(parse_binary(p, 0, &(*end)->a));
        end = &(*end)->next;
    }
    return BY_OK;
}

static by_status parse_not(parser *p, by__node **out)
{
    if (!is_word(p, "not")) {
        return parse_comparison(p, out);
    }
    BY_TRY(enter(p));
    BY_TRY(new_node(p, BY__NODE_UNARY, out));
    p->token++;
    (*out)->op = BY__OP_NOT;
    BY_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return BY_OK;
}

static by_status parse_logic(parser *p, bool either, by__node **out)
{
    BY_TRY(either ? parse_logic(p, false, out) : parse_not(p, out));
    for (unsigned count = 0; is_word(p, either ? "or" : "and"); count++) {
        by__node *node;
        if (count > BY__TEMPLATE_MAX_DEPTH) {
            return fail(p, "constructs are nested too deeply");
        }
        BY_TRY(new_node(p, BY__NODE_BINARY, &node));
        p->token++;
        node->op = either ? BY__OP_OR : BY__OP_AND;
        node->a = *out;
        BY_TRY(either ? parse_logic(p, false, &node->b) : parse_not(p, &node->b));
        *out = node;
    }
    return BY_OK;
}

/* Without "a if b else c", as behind "in" of a loop. */
static by_status parse_plain(parser *p, by__node **out)
{
    BY_TRY(enter(p));
    BY_TRY(parse_logic(p, true, out));
    p->depth--;
    return BY_OK;
}

static by_status parse_expression(parser *p, by__node **out)
{
    BY_TRY(enter(p));
    BY_TRY(parse_logic(p, true, out));
    for (unsigned count = 0; is_word(p, "if"); count++) {
        by__node *node;
        if (count > BY__TEMPLATE_MAX_DEPTH) {
            return fail(p, "constructs are nested too deeply");
        }
        BY_TRY(new_node(p, BY__NODE_CONDITION, &node));
        p->token++;
        node->a = *out;
        BY_TRY(parse_logic(p, true, &node->b));
        if (take_word(p, "else")) {
            BY_TRY(parse_expression(p, &node->c));
        }
        *out = node;
    }
    p->depth--;
    return BY_OK;
}

/* An expression, or several with commas: a tuple. */
static by_status parse_tuple(parser *p, by__node **out)
{
    BY_TRY(parse_expression(p, out));
    if (!is_op(p, ",")) {
        return BY_OK;
    }
    by__node *tuple;
    BY_TRY(new_node(p, BY__NODE_LIST, &tuple));
    tuple->op = BY__OP_JOIN;
    tuple->a = *out;
    *out = tuple;
    by__node **end = &tuple->a->next;
    while (take_op(p, ",") && p->token->kind != BY__TOKEN_BLOCK_END &&
           p->token->kind != BY__TOKEN_PRINT_END) {
        BY_TRY(parse_expression(p, end));
        end = &(*end)->next;
    }
    return BY_OK;
}

/* ---- statements ---- */

static by_status end_block(parser *p)
{
    if (p->token->kind != BY__TOKEN_BLOCK_END) {
        return fail(p, "expected the end of the block");
    }
    p->token++;
    return BY_OK;
}

/* A name, names with commas (in parentheses or not, also within others), or name.attribute. */
static by_status parse_target(parser *p, bool attribute, by__node **out)
{
    BY_TRY(enter(p));
    if (take_op(p, "(")) {
        BY_TRY(parse_target(p, false, out));
        BY_TRY(expect_op(p, ")"));
    } else {
        BY_TRY(new_node(p, BY__NODE_NAME, out));
        BY_TRY(copy_name(p, &(*out)->name));
    }
    if (attribute && (*out)->kind == BY__NODE_NAME && take_op(p, ".")) {
        by__node *node;
        BY_TRY(new_node(p, BY__NODE_ATTRIBUTE, &node));
        BY_TRY(copy_name(p, &node->name));
        node->a = *out;
        *out = node;
    } else if (is_op(p, ",")) {
        by__node *tuple;
        BY_TRY(new_node(p, BY__NODE_LIST, &tuple));
        tuple->a = *out;
        *out = tuple;
        by__node **end = &tuple->a->next;
        while (take_op(p, ",") && !is_word(p, "in") && !is_op(p, ")") && !is_op(p, "=")) {
            bool nested = is_op(p, "(");
            p->token += nested ? 1 : 0;
            if (nested) {
                BY_TRY(parse_target(p, false, end));
                BY_TRY(expect_op(p, ")"));
            } else {
                BY_TRY(new_node(p, BY__NODE_NAME, end));
                BY_TRY(copy_name(p, &(*end)->name));
            }
            end = &(*end)->next;
        }
    }
    p->depth--;
    return BY_OK;
}

/* Takes "{% word %}" at the end of a body. */
static by_status take_end(parser *p, const char *word)
{
    char what[48];
    if (p->token->kind == BY__TOKEN_BLOCK && p->token[1].kind == BY__TOKEN_NAME) {
        p->token++;
        if (take_word(p, word)) {
            return end_block(p);
        }
    }
    (void)snprintf(what, sizeof what, "expected {%% %s %%}", word);
    return fail(p, what);
}

static by_status parse_if(parser *p, by__node **out)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    by__node *node;
    BY_TRY(new_node(p, BY__NODE_IF, &node));
    *out = node;
    for (;;) { /* elif: an if in the other part of the one before */
        BY_TRY(parse_tuple(p, &node->a));
        BY_TRY(end_block(p));
        BY_TRY(parse_body(p, ends, &node->body));
        if (p->token->kind != BY__TOKEN_BLOCK) {
            return fail(p, "expected {% endif %}");
        }
        p->token++;
        if (take_word(p, "elif")) {
            BY_TRY(new_node(p, BY__NODE_IF, &node->other));
            node = node->other;
            continue;
        }
        if (take_word(p, "else")) {
            BY_TRY(end_block(p));
            BY_TRY(parse_body(p, last, &node->other));
            return take_end(p, "endif");
        }
        p->token++; /* endif */
        return end_block(p);
    }
}

static by_status parse_for(parser *p, by__node **out)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    static const char *const last[] = {"endfor", NULL};
    BY_TRY(new_node(p, BY__NODE_FOR, out));
    by__node *node = *out;
    BY_TRY(parse_target(p, false, &node->a));
    if (!take_word(p, "in")) {
        return fail(p, "expected 'in'");
    }
    BY_TRY(parse_plain(p, &node->b));
    if (take_word(p, "if")) {
        BY_TRY(parse_expression(p, &node->c));
    }
    if (is_word(p, "recursive")) {
        return fail(p, "recursive loops are not supported");
    }
    BY_TRY(end_block(p));
    p->loops++;
    BY_TRY(parse_body(p, ends, &node->body));
    p->loops--;
    if (p->token->kind == BY__TOKEN_BLOCK && p->token[1].kind == BY__TOKEN_NAME) {
        p->token++;
        if (take_word(p, "else")) {
            BY_TRY(end_block(p));
            BY_TRY(parse_body(p, last, &node->other));
        } else {
            p->token--;
        }
    }
    return take_end(p, "endfor");
}

static by_status parse_set(parser *p, by__node **out)
{
    static const char *const ends[] = {"endset", NULL};
    BY_TRY(new_node(p, BY__NODE_SET, out));
    by__node *node = *out;
    BY_TRY(parse_target(p, true, &node->a));
    if (take_op(p, "=")) {
        BY_TRY(parse_tuple(p, &node->b));
        return end_block(p);
    }
    if (is_op(p, "|")) { /* what the body prints, filtered */
        BY_TRY(parse_filters(p, &node->c));
    }
    BY_TRY(end_block(p));
    BY_TRY(parse_body(p, ends, &node->body));
    return take_end(p, "endset");
}

static by_status parse_macro(parser *p, by__node **out)
{
    static const char *const ends[] = {"endmacro", NULL};
    BY_TRY(new_node(p, BY__NODE_MACRO, out));
    by__node *node = *out;
    BY_TRY(copy_name(p, &node->name));
    BY_TRY(expect_op(p, "("));
    by__node **end = &node->a;
    while (!take_op(p, ")")) {
        BY_TRY(new_node(p, BY__NODE_KEYWORD, end));
        BY_TRY(copy_name(p, &(*end)->name));
        if (take_op(p, "=")) {
            BY_TRY(parse_expression(p, &(*end)->a));
        }
        end = &(*end)->next;
        if (!take_op(p, ",")) {
            BY_TRY(expect_op(p, ")"));
            break;
        }
    }
    unsigned loops = p->loops;
    p->loops = 0;
    BY_TRY(end_block(p));
    BY_TRY(parse_body(p, ends, &node->body));
    p->loops = loops;
    return take_end(p, "endmacro");
}

/* {% filter trim %}, and {% generation %}, which marks what a model wrote and changes nothing. */
static by_status parse_group(parser *p, bool filter, by__node **out)
{
    static const char *const filter_ends[] = {"endfilter", NULL};
    static const char *const ends[] = {"endgeneration", NULL};
    BY_TRY(new_node(p, filter ? BY__NODE_FILTERED : BY__NODE_GROUP, out));
    if (filter) {
        by__node *call;
        BY_TRY(new_node(p, BY__NODE_FILTER, &call));
        BY_TRY(copy_name(p, &call->name));
        if (take_op(p, "(")) {
            BY_TRY(parse_arguments(p, &call->b));
        }
        BY_TRY(parse_filters(p, &call));
        (*out)->a = call;
    }
    BY_TRY(end_block(p));
    BY_TRY(parse_body(p, filter ? filter_ends : ends, &(*out)->body));
    return take_end(p, filter ? filter_ends[0] : ends[0]);
}

static by_status parse_statement(parser *p, by__node **out)
{
    if (take_word(p, "if")) {
        return parse_if(p, out);
    }
    if (take_word(p, "for")) {
        return parse_for(p, out);
    }
    if (take_word(p, "set")) {
        return parse_set(p, out);
    }
    if (take_word(p, "macro")) {
        return parse_macro(p, out);
    }
    bool filter = take_word(p, "filter");
    if (filter || take_word(p, "generation")) {
        return parse_group(p, filter, out);
    }
    bool leaves = is_word(p, "break");
    if (leaves || is_word(p, "continue")) {
        if (p->loops == 0) {
            return fail(p, "there is no loop around this");
        }
        BY_TRY(new_node(p, leaves ? BY__NODE_BREAK : BY__NODE_CONTINUE, out));
        p->token++;
        return end_block(p);
    }
    return fail(p, "a block of this name is not supported");
}

/* Statements up to a block that begins with one of `ends`, which stays. */
static by_status parse_body(parser *p, const char *const *ends, by__node **out)
{
    BY_TRY(enter(p));
    for (;;) {
        const by__token *t = p->token;
        if (t->kind == BY__TOKEN_TEXT) {
            BY_TRY(new_node(p, BY__NODE_TEXT, out));
            (*out)->value = by__value_string(t->data, t->length);
            p->token++;
        } else if (t->kind == BY__TOKEN_PRINT) {
            p->token++;
            BY_TRY(new_node(p, BY__NODE_PRINT, out));
            BY_TRY(parse_tuple(p, &(*out)->a));
            if (p->token->kind != BY__TOKEN_PRINT_END) {
                return fail(p, "expected the end of the expression");
            }
            p->token++;
        } else if (t->kind == BY__TOKEN_BLOCK) {
            p->token++;
            for (size_t i = 0; ends != NULL && ends[i] != NULL; i++) {
                if (is_word(p, ends[i])) {
                    p->token--;
                    p->depth--;
                    return BY_OK;
                }
            }
            BY_TRY(parse_statement(p, out));
        } else { /* the end */
            p->depth--;
            return BY_OK;
        }
        out = &(*out)->next;
    }
}

void by__template_free(by__template *tpl)
{
    free(tpl->name);
    free(tpl->source);
    by__arena_free(&tpl->arena);
    *tpl = (by__template){0};
}

/* The source with '\n' as line end, without the last one. */
static by_status copy_source(by__template *tpl, const char *source, size_t length, by_error *error)
{
    size_t used = 0;
    if (length > BY__TEMPLATE_MAX_BYTES || memchr(source, '\0', length) != NULL ||
        !by__utf8_valid(source, length)) {
        return by_error_set(error, BY_EFORMAT, "%s: a template is UTF-8 text of at most %zu bytes",
                            tpl->name, BY__TEMPLATE_MAX_BYTES);
    }
    BY_TRY(by__alloc((void **)&tpl->source, length + 1, 1, "template", error));
    for (size_t i = 0; i < length; i++) {
        bool line_end = source[i] == '\r';
        tpl->source[used++] = line_end ? '\n' : source[i];
        i += line_end && i + 1 < length && source[i + 1] == '\n' ? 1 : 0;
    }
    used -= used > 0 && tpl->source[used - 1] == '\n' ? 1 : 0;
    tpl->source[used] = '\0';
    return BY_OK;
}

by_status by__template_parse(by__template *out, const char *source, size_t length, const char *name,
                             by_error *error)
{
    by__template tpl = {.arena.left = 64 * BY__TEMPLATE_MAX_BYTES};
    by__token *tokens = NULL;
    tpl.name = by__strdup(name);
    by_status status = tpl.name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: template")
                                        : copy_source(&tpl, source, length, error);
    if (status == BY_OK) {
        status = by__template_lex(&tpl, &tokens, error);
    }
    if (status == BY_OK) {
        parser p = {.tpl = &tpl, .token = tokens, .error = error};
        status = parse_body(&p, NULL, &tpl.body);
        if (status == BY_OK && p.token->kind != BY__TOKEN_END) {
            status = fail(&p, "a block is ended that was not begun");
        }
    }
    free(tokens);
    if (status != BY_OK) {
        by__template_free(&tpl);
        return status;
    }
    *out = tpl;
    return BY_OK;
}
