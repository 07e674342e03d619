/* Parses tokens to nodes: Jinja's grammar, by recursive descent with a bound on depth. */
#include <stdlib.h>
#include <string.h>

#include "text/template/template_parser.h"
#include "text/unicode/unicode.h"

static by_status parse_body(by__template_parser *p, const char *const *ends,
                            by__template_node **out);

by_status by__template_parse_fail(const by__template_parser *p, const char *what)
{
    const by__template_token *t = p->token;
    if (t->kind == BY__TOKEN_END) {
        return by_error_set(p->error, BY_EFORMAT, "%s:%u: %s at the end of the template",
                            p->tpl->name, t->line, what);
    }
    return by_error_set(p->error, BY_EFORMAT, "%s:%u: %s at '%.*s'", p->tpl->name, t->line, what,
                        (int)(t->length < 40 ? t->length : 40), t->data);
}

bool by__template_parse_is_op(const by__template_parser *p, const char *op)
{
    const by__template_token *t = p->token;
    return t->kind == BY__TOKEN_OPERATOR && t->length == strlen(op) &&
           memcmp(t->data, op, t->length) == 0;
}

bool by__template_parse_is_word(const by__template_parser *p, const char *word)
{
    const by__template_token *t = p->token;
    return t->kind == BY__TOKEN_NAME && t->length == strlen(word) &&
           memcmp(t->data, word, t->length) == 0;
}

bool by__template_parse_accept_op(by__template_parser *p, const char *op)
{
    bool found = by__template_parse_is_op(p, op);
    p->token += found ? 1 : 0;
    return found;
}

bool by__template_parse_accept_word(by__template_parser *p, const char *word)
{
    bool found = by__template_parse_is_word(p, word);
    p->token += found ? 1 : 0;
    return found;
}

by_status by__template_parse_expect_op(by__template_parser *p, const char *op)
{
    char what[24];
    if (by__template_parse_accept_op(p, op)) {
        return BY_OK;
    }
    (void)snprintf(what, sizeof what, "expected '%s'", op);
    return by__template_parse_fail(p, what);
}

by_status by__template_parse_enter(by__template_parser *p)
{
    if (p->depth >= BY__TEMPLATE_MAX_DEPTH) {
        return by__template_parse_fail(p, "constructs are nested too deeply");
    }
    p->depth++;
    return BY_OK;
}

by_status by__template_parse_node(by__template_parser *p, by__template_node_kind kind,
                                  by__template_node **out)
{
    BY_TRY(by__template_arena_allocate(&p->tpl->arena, (void **)out, 1, sizeof **out, p->error));
    (*out)->kind = kind;
    (*out)->line = p->token->line;
    return BY_OK;
}

by_status by__template_parse_name_of(by__template_parser *p, const char **out)
{
    const by__template_token *t = p->token;
    char *copy;
    if (t->kind != BY__TOKEN_NAME) {
        return by__template_parse_fail(p, "expected a name");
    }
    BY_TRY(by__template_arena_allocate(&p->tpl->arena, (void **)&copy, t->length + 1, 1, p->error));
    memcpy(copy, t->data, t->length);
    *out = copy;
    p->token++;
    return BY_OK;
}

/* ---- statements ---- */

static by_status end_block(by__template_parser *p)
{
    if (p->token->kind != BY__TOKEN_BLOCK_END) {
        return by__template_parse_fail(p, "expected the end of the block");
    }
    p->token++;
    return BY_OK;
}

/* Parses a name, comma-separated names (possibly in nested parentheses), or name.attribute. */
static by_status parse_target(by__template_parser *p, bool attribute, by__template_node **out)
{
    BY_TRY(by__template_parse_enter(p));
    if (by__template_parse_accept_op(p, "(")) {
        BY_TRY(parse_target(p, false, out));
        BY_TRY(by__template_parse_expect_op(p, ")"));
    } else {
        BY_TRY(by__template_parse_node(p, BY__NODE_NAME, out));
        BY_TRY(by__template_parse_name_of(p, &(*out)->name));
    }
    if (attribute && (*out)->kind == BY__NODE_NAME && by__template_parse_accept_op(p, ".")) {
        by__template_node *node;
        BY_TRY(by__template_parse_node(p, BY__NODE_ATTRIBUTE, &node));
        BY_TRY(by__template_parse_name_of(p, &node->name));
        node->a = *out;
        *out = node;
    } else if (by__template_parse_is_op(p, ",")) {
        by__template_node *tuple;
        BY_TRY(by__template_parse_node(p, BY__NODE_LIST, &tuple));
        tuple->a = *out;
        *out = tuple;
        by__template_node **end = &tuple->a->next;
        while (by__template_parse_accept_op(p, ",") && !by__template_parse_is_word(p, "in") &&
               !by__template_parse_is_op(p, ")") && !by__template_parse_is_op(p, "=")) {
            bool nested = by__template_parse_is_op(p, "(");
            p->token += nested ? 1 : 0;
            if (nested) {
                BY_TRY(parse_target(p, false, end));
                BY_TRY(by__template_parse_expect_op(p, ")"));
            } else {
                BY_TRY(by__template_parse_node(p, BY__NODE_NAME, end));
                BY_TRY(by__template_parse_name_of(p, &(*end)->name));
            }
            end = &(*end)->next;
        }
    }
    p->depth--;
    return BY_OK;
}

/* Consumes "{% word %}" at the end of a body. */
static by_status consume_end(by__template_parser *p, const char *word)
{
    char what[48];
    if (p->token->kind == BY__TOKEN_BLOCK && p->token[1].kind == BY__TOKEN_NAME) {
        p->token++;
        if (by__template_parse_accept_word(p, word)) {
            return end_block(p);
        }
    }
    (void)snprintf(what, sizeof what, "expected {%% %s %%}", word);
    return by__template_parse_fail(p, what);
}

static by_status parse_if(by__template_parser *p, by__template_node **out)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    by__template_node *node;
    BY_TRY(by__template_parse_node(p, BY__NODE_IF, &node));
    *out = node;
    for (;;) { /* elif: an if in the `other` branch of the previous one */
        BY_TRY(by__template_parse_tuple(p, &node->a));
        BY_TRY(end_block(p));
        BY_TRY(parse_body(p, ends, &node->body));
        if (p->token->kind != BY__TOKEN_BLOCK) {
            return by__template_parse_fail(p, "expected {% endif %}");
        }
        p->token++;
        if (by__template_parse_accept_word(p, "elif")) {
            BY_TRY(by__template_parse_node(p, BY__NODE_IF, &node->other));
            node = node->other;
            continue;
        }
        if (by__template_parse_accept_word(p, "else")) {
            BY_TRY(end_block(p));
            BY_TRY(parse_body(p, last, &node->other));
            return consume_end(p, "endif");
        }
        p->token++; /* endif */
        return end_block(p);
    }
}

static by_status parse_for(by__template_parser *p, by__template_node **out)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    static const char *const last[] = {"endfor", NULL};
    BY_TRY(by__template_parse_node(p, BY__NODE_FOR, out));
    by__template_node *node = *out;
    BY_TRY(parse_target(p, false, &node->a));
    if (!by__template_parse_accept_word(p, "in")) {
        return by__template_parse_fail(p, "expected 'in'");
    }
    BY_TRY(by__template_parse_plain(p, &node->b));
    if (by__template_parse_accept_word(p, "if")) {
        BY_TRY(by__template_parse_expression(p, &node->c));
    }
    if (by__template_parse_is_word(p, "recursive")) {
        return by__template_parse_fail(p, "recursive loops are not supported");
    }
    BY_TRY(end_block(p));
    p->loops++;
    BY_TRY(parse_body(p, ends, &node->body));
    p->loops--;
    if (p->token->kind == BY__TOKEN_BLOCK && p->token[1].kind == BY__TOKEN_NAME) {
        p->token++;
        if (by__template_parse_accept_word(p, "else")) {
            BY_TRY(end_block(p));
            BY_TRY(parse_body(p, last, &node->other));
        } else {
            p->token--;
        }
    }
    return consume_end(p, "endfor");
}

static by_status parse_set(by__template_parser *p, by__template_node **out)
{
    static const char *const ends[] = {"endset", NULL};
    BY_TRY(by__template_parse_node(p, BY__NODE_SET, out));
    by__template_node *node = *out;
    BY_TRY(parse_target(p, true, &node->a));
    if (by__template_parse_accept_op(p, "=")) {
        BY_TRY(by__template_parse_tuple(p, &node->b));
        return end_block(p);
    }
    if (by__template_parse_is_op(p, "|")) { /* the body's output is filtered */
        BY_TRY(by__template_parse_filters(p, &node->c));
    }
    BY_TRY(end_block(p));
    BY_TRY(parse_body(p, ends, &node->body));
    return consume_end(p, "endset");
}

static by_status parse_macro(by__template_parser *p, by__template_node **out)
{
    static const char *const ends[] = {"endmacro", NULL};
    BY_TRY(by__template_parse_node(p, BY__NODE_MACRO, out));
    by__template_node *node = *out;
    BY_TRY(by__template_parse_name_of(p, &node->name));
    BY_TRY(by__template_parse_expect_op(p, "("));
    by__template_node **end = &node->a;
    while (!by__template_parse_accept_op(p, ")")) {
        BY_TRY(by__template_parse_node(p, BY__NODE_KEYWORD, end));
        BY_TRY(by__template_parse_name_of(p, &(*end)->name));
        if (by__template_parse_accept_op(p, "=")) {
            BY_TRY(by__template_parse_expression(p, &(*end)->a));
        }
        end = &(*end)->next;
        if (!by__template_parse_accept_op(p, ",")) {
            BY_TRY(by__template_parse_expect_op(p, ")"));
            break;
        }
    }
    unsigned loops = p->loops;
    p->loops = 0;
    BY_TRY(end_block(p));
    BY_TRY(parse_body(p, ends, &node->body));
    p->loops = loops;
    return consume_end(p, "endmacro");
}

/* Parses {% filter trim %}, and {% generation %}, which marks what a model wrote and prints it. */
static by_status parse_group(by__template_parser *p, bool filter, by__template_node **out)
{
    static const char *const filter_ends[] = {"endfilter", NULL};
    static const char *const ends[] = {"endgeneration", NULL};
    BY_TRY(by__template_parse_node(p, filter ? BY__NODE_FILTERED : BY__NODE_GROUP, out));
    if (filter) {
        by__template_node *call;
        BY_TRY(by__template_parse_node(p, BY__NODE_FILTER, &call));
        BY_TRY(by__template_parse_name_of(p, &call->name));
        if (by__template_parse_accept_op(p, "(")) {
            BY_TRY(by__template_parse_arguments(p, &call->b));
        }
        BY_TRY(by__template_parse_filters(p, &call));
        (*out)->a = call;
    }
    BY_TRY(end_block(p));
    BY_TRY(parse_body(p, filter ? filter_ends : ends, &(*out)->body));
    p->tpl->marks = p->tpl->marks || !filter;
    return consume_end(p, filter ? filter_ends[0] : ends[0]);
}

/* Parses {% with a = 1, b = 2 %}: names that are visible in the body only. */
static by_status parse_with(by__template_parser *p, by__template_node **out)
{
    static const char *const ends[] = {"endwith", NULL};
    BY_TRY(by__template_parse_node(p, BY__NODE_WITH, out));
    by__template_node *node = *out;
    by__template_node *last_target = NULL;
    by__template_node *last_value = NULL;
    while (p->token->kind != BY__TOKEN_BLOCK_END) {
        by__template_node *target = NULL;
        by__template_node *value = NULL;
        if (last_target != NULL) {
            BY_TRY(by__template_parse_expect_op(p, ","));
        }
        BY_TRY(parse_target(p, false, &target));
        BY_TRY(by__template_parse_expect_op(p, "="));
        BY_TRY(by__template_parse_expression(p, &value));
        *(last_target == NULL ? &node->a : &last_target->next) = target;
        *(last_value == NULL ? &node->b : &last_value->next) = value;
        last_target = target;
        last_value = value;
    }
    BY_TRY(end_block(p));
    BY_TRY(parse_body(p, ends, &node->body));
    return consume_end(p, "endwith");
}

static by_status parse_statement(by__template_parser *p, by__template_node **out)
{
    if (by__template_parse_accept_word(p, "if")) {
        return parse_if(p, out);
    }
    if (by__template_parse_accept_word(p, "for")) {
        return parse_for(p, out);
    }
    if (by__template_parse_accept_word(p, "set")) {
        return parse_set(p, out);
    }
    if (by__template_parse_accept_word(p, "macro")) {
        return parse_macro(p, out);
    }
    if (by__template_parse_accept_word(p, "with")) {
        return parse_with(p, out);
    }
    bool filter = by__template_parse_accept_word(p, "filter");
    if (filter || by__template_parse_accept_word(p, "generation")) {
        return parse_group(p, filter, out);
    }
    bool leaves = by__template_parse_is_word(p, "break");
    if (leaves || by__template_parse_is_word(p, "continue")) {
        if (p->loops == 0) {
            return by__template_parse_fail(p, "there is no loop around this");
        }
        BY_TRY(by__template_parse_node(p, leaves ? BY__NODE_BREAK : BY__NODE_CONTINUE, out));
        p->token++;
        return end_block(p);
    }
    return by__template_parse_fail(p, "a block of this name is not supported");
}

/* Parses statements up to a block that begins with one of `ends`, which is not consumed. */
static by_status parse_body(by__template_parser *p, const char *const *ends,
                            by__template_node **out)
{
    BY_TRY(by__template_parse_enter(p));
    for (;;) {
        const by__template_token *t = p->token;
        if (t->kind == BY__TOKEN_TEXT) {
            BY_TRY(by__template_parse_node(p, BY__NODE_TEXT, out));
            (*out)->value = by__template_value_string(t->data, t->length);
            p->token++;
        } else if (t->kind == BY__TOKEN_PRINT) {
            p->token++;
            BY_TRY(by__template_parse_node(p, BY__NODE_PRINT, out));
            BY_TRY(by__template_parse_tuple(p, &(*out)->a));
            if (p->token->kind != BY__TOKEN_PRINT_END) {
                return by__template_parse_fail(p, "expected the end of the expression");
            }
            p->token++;
        } else if (t->kind == BY__TOKEN_BLOCK) {
            p->token++;
            for (size_t i = 0; ends != NULL && ends[i] != NULL; i++) {
                if (by__template_parse_is_word(p, ends[i])) {
                    p->token--;
                    p->depth--;
                    return BY_OK;
                }
            }
            BY_TRY(parse_statement(p, out));
        } else { /* end of the template */
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
    by__template_arena_free(&tpl->arena);
    *tpl = (by__template){0};
}

/* Copies the source with '\n' as line end, without the last one. */
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
    used -= used > 0 && tpl->source[used - 1] == '\n' && !tpl->plain ? 1 : 0;
    tpl->source[used] = '\0';
    return BY_OK;
}

static by_status parse(by__template *out, const char *source, size_t length, const char *name,
                       bool plain, by_error *error)
{
    by__template tpl = {.arena.left = 64 * BY__TEMPLATE_MAX_BYTES, .plain = plain};
    by__template_token *tokens = NULL;
    tpl.name = by__strdup(name);
    by_status status = tpl.name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: template")
                                        : copy_source(&tpl, source, length, error);
    if (status == BY_OK) {
        status = by__template_lex(&tpl, &tokens, error);
    }
    if (status == BY_OK) {
        by__template_parser p = {.tpl = &tpl, .token = tokens, .error = error};
        status = parse_body(&p, NULL, &tpl.body);
        if (status == BY_OK && p.token->kind != BY__TOKEN_END) {
            status = by__template_parse_fail(&p, "a block is ended that was not begun");
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

by_status by__template_parse(by__template *out, const char *source, size_t length, const char *name,
                             by_error *error)
{
    return parse(out, source, length, name, false, error);
}

by_status by__template_parse_text(by__template *out, const char *source, size_t length,
                                  const char *name, by_error *error)
{
    return parse(out, source, length, name, true, error);
}
