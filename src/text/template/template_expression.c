/* Evaluation of expressions: names, constants, operators, calls. */
#include <string.h>

#include "text/template/template.h"

static by_status find_name(by__template_render *r, const char *name, by__template_value *out)
{
    size_t length = strlen(name);
    for (const by__template_scope *s = r->scope; s != NULL; s = s->parent) {
        const by__template_value *held = by__template_table_find(&s->variables, name, length);
        BY_TRY(by__template_render_steps(r, s->variables.count / 16));
        if (held != NULL) {
            *out = *held;
            return BY_OK;
        }
    }
    *out = by__template_value_undefined(name);
    if (by__template_builtin_exists(name)) {
        out->kind = BY__BUILTIN;
    }
    return BY_OK;
}

static by_status make_list(by__template_render *r, const by__template_node *node,
                           by__template_value *out)
{
    size_t count = 0;
    for (const by__template_node *item = node->a; item != NULL; item = item->next) {
        count++;
    }
    BY_TRY(by__template_value_list(r, count, node->op == BY__OP_JOIN, out));
    by__template_value *items = out->as.list->items;
    for (const by__template_node *item = node->a; item != NULL; item = item->next) {
        BY_TRY(by__template_render_expression(r, item, items++));
    }
    return BY_OK;
}

static by_status make_map(by__template_render *r, const by__template_node *node,
                          by__template_value *out)
{
    BY_TRY(by__template_value_map(r, out));
    for (const by__template_node *key = node->a; key != NULL; key = key->next->next) {
        by__template_value k;
        by__template_value v;
        BY_TRY(by__template_render_expression(r, key, &k));
        BY_TRY(by__template_render_expression(r, key->next, &v));
        BY_TRY(by__template_check_key(r, &k));
        BY_TRY(by__template_table_put(r, out->as.table, &k, &v));
    }
    return BY_OK;
}

/* ---- calls ---- */

static by_status read_arguments(by__template_render *r, const by__template_node *first,
                                by__template_arguments *out)
{
    by__template_value list;
    by__template_pair *keywords;
    size_t count = 0;
    size_t named = 0;
    *out = (by__template_arguments){0};
    if (first == NULL) {
        return BY_OK;
    }
    for (const by__template_node *n = first; n != NULL; n = n->next) {
        named += n->kind == BY__NODE_KEYWORD ? 1 : 0;
        count += n->kind == BY__NODE_KEYWORD ? 0 : 1;
    }
    BY_TRY(by__template_value_list(r, count, false, &list));
    BY_TRY(by__template_render_allocate(r, (void **)&keywords, named, sizeof *keywords));
    for (const by__template_node *n = first; n != NULL; n = n->next) {
        if (n->kind == BY__NODE_KEYWORD) {
            by__template_pair *pair = &keywords[out->keyword_count++];
            pair->key = by__template_value_string(n->name, strlen(n->name));
            BY_TRY(by__template_render_expression(r, n->a, &pair->value));
        } else {
            BY_TRY(by__template_render_expression(r, n, &list.as.list->items[out->count++]));
        }
    }
    out->values = list.as.list->items;
    out->keywords = keywords;
    return BY_OK;
}

static by_status bind_parameters(by__template_render *r, const by__template_node *macro,
                                 const by__template_arguments *a, by__template_scope *scope)
{
    size_t index = 0;
    for (const by__template_node *p = macro->a; p != NULL; p = p->next, index++) {
        by__template_value name = by__template_value_string(p->name, strlen(p->name));
        by__template_value value = by__template_value_undefined(p->name);
        const by__template_value *given = by__template_argument(a, index, p->name);
        if (given != NULL) {
            value = *given;
        } else if (p->a != NULL) {
            BY_TRY(by__template_render_expression(r, p->a, &value));
        }
        BY_TRY(by__template_table_put(r, &scope->variables, &name, &value));
    }
    for (size_t i = 0; i < a->keyword_count; i++) {
        const by__template_node *p = macro->a;
        while (p != NULL && !by__template_value_is(&a->keywords[i].key, p->name)) {
            p = p->next;
        }
        if (p == NULL) {
            return by__template_render_fail(r, "macro '%.60s' has no argument '%.*s'", macro->name,
                                            (int)(a->keywords[i].key.as.string.length < 60
                                                      ? a->keywords[i].key.as.string.length
                                                      : 60),
                                            a->keywords[i].key.as.string.data);
        }
    }
    if (a->count > index) {
        return by__template_render_fail(r, "macro '%.60s' takes %zu arguments, not %zu",
                                        macro->name, index, a->count);
    }
    return BY_OK;
}

static by_status call_macro(by__template_render *r, const by__template_macro *macro,
                            const by__template_arguments *arguments, by__template_value *out)
{
    by__template_scope *scope;
    by__template_scope *kept = r->scope;
    BY_TRY(by__template_render_allocate(r, (void **)&scope, 1, sizeof *scope));
    scope->parent = macro->scope;
    r->scope = scope;
    BY_TRY(bind_parameters(r, macro->node, arguments, scope));
    BY_TRY(by__template_render_capture(r, macro->node->body, out));
    r->scope = kept;
    return BY_OK;
}

by_status by__template_call(by__template_render *r, const by__template_value *callee,
                            const by__template_arguments *arguments, by__template_value *out)
{
    switch (callee->kind) {
    case BY__MACRO:
        return call_macro(r, callee->as.macro, arguments, out);
    case BY__BUILTIN:
        return by__template_builtin_call(r, callee->as.string.data, arguments, out);
    case BY__METHOD:
        return by__template_method_call(r, callee->as.method->object, callee->as.method->name,
                                        arguments, out);
    case BY__UNDEFINED:
        return by__template_render_fail(r, "'%.*s' is undefined, so it cannot be called",
                                        (int)callee->as.string.length, callee->as.string.data);
    default:
        return by__template_render_fail(r, "%s cannot be called", by__template_value_word(callee));
    }
}

/* ---- operators ---- */

static by_status compare_one(by__template_render *r, by__template_operator op,
                             const by__template_value *a, const by__template_value *b, bool *out)
{
    int order;
    switch (op) {
    case BY__OP_EQUAL:
        return by__template_value_equal(r, a, b, out);
    case BY__OP_UNEQUAL:
        BY_TRY(by__template_value_equal(r, a, b, out));
        *out = !*out;
        return BY_OK;
    case BY__OP_IN:
        return by__template_value_contains(r, b, a, out);
    case BY__OP_NOT_IN:
        BY_TRY(by__template_value_contains(r, b, a, out));
        *out = !*out;
        return BY_OK;
    default:
        BY_TRY(by__template_value_compare(r, a, b, &order));
        *out = op == BY__OP_LESS         ? order < 0
               : op == BY__OP_LESS_EQUAL ? order <= 0
               : op == BY__OP_MORE       ? order > 0
                                         : order >= 0;
        return BY_OK;
    }
}

static by_status compare_chain(by__template_render *r, const by__template_node *node,
                               by__template_value *out)
{
    by__template_value left;
    bool holds = true;
    BY_TRY(by__template_render_expression(r, node->a, &left));
    for (const by__template_node *operand = node->b; operand != NULL && holds;
         operand = operand->next) {
        by__template_value right;
        BY_TRY(by__template_render_expression(r, operand->a, &right));
        BY_TRY(compare_one(r, operand->op, &left, &right, &holds));
        left = right;
    }
    *out = by__template_value_bool(holds);
    return BY_OK;
}

static by_status operate(by__template_render *r, const by__template_node *node,
                         by__template_value *out)
{
    by__template_value a;
    by__template_value b;
    BY_TRY(by__template_render_expression(r, node->a, &a));
    if (node->op == BY__OP_AND || node->op == BY__OP_OR) {
        if (by__template_value_true(&a) == (node->op == BY__OP_OR)) {
            *out = a;
            return BY_OK;
        }
        return by__template_render_expression(r, node->b, out);
    }
    BY_TRY(by__template_render_expression(r, node->b, &b));
    r->line = node->line;
    return by__template_value_operate(r, node->op, &a, &b, out);
}

static by_status operate_one(by__template_render *r, const by__template_node *node,
                             by__template_value *out)
{
    by__template_value v;
    BY_TRY(by__template_render_expression(r, node->a, &v));
    if (node->op == BY__OP_NOT) {
        *out = by__template_value_bool(!by__template_value_true(&v));
        return BY_OK;
    }
    by__template_value zero = by__template_value_integer(0);
    return by__template_value_operate(r, node->op, &zero, &v, out);
}

static by_status get_slice(by__template_render *r, const by__template_node *node,
                           by__template_value *out)
{
    by__template_value of;
    by__template_value bounds[3] = {{0}, {0}, {0}};
    const by__template_node *parts[3] = {node->a, node->b, node->c};
    BY_TRY(by__template_render_expression(r, node->body, &of));
    for (size_t i = 0; i < 3; i++) {
        bounds[i] = by__template_value_none();
        if (parts[i] != NULL) {
            BY_TRY(by__template_render_expression(r, parts[i], &bounds[i]));
        }
    }
    r->line = node->line;
    return by__template_value_slice(r, &of, &bounds[0], &bounds[1], &bounds[2], out);
}

static by_status apply(by__template_render *r, const by__template_node *node,
                       by__template_value *out)
{
    by__template_value subject;
    by__template_arguments arguments;
    if (node->a != NULL) {
        BY_TRY(by__template_render_expression(r, node->a, &subject));
    } else {
        subject = *r->subject;
    }
    BY_TRY(read_arguments(r, node->b, &arguments));
    r->line = node->line;
    if (node->kind == BY__NODE_CALL) {
        return by__template_call(r, &subject, &arguments, out);
    }
    if (node->kind == BY__NODE_FILTER) {
        return by__template_filter(r, node->name, &subject, &arguments, out);
    }
    bool holds;
    BY_TRY(by__template_test(r, node->name, &subject, &arguments, &holds));
    *out = by__template_value_bool(holds != (node->op == BY__OP_NOT));
    return BY_OK;
}

static by_status get_element(by__template_render *r, const by__template_node *node,
                             by__template_value *out)
{
    by__template_value of;
    by__template_value key;
    bool attribute = node->kind == BY__NODE_ATTRIBUTE;
    BY_TRY(by__template_render_expression(r, node->a, &of));
    if (attribute) {
        key = by__template_value_string(node->name, strlen(node->name));
    } else {
        BY_TRY(by__template_render_expression(r, node->b, &key));
    }
    r->line = node->line;
    return by__template_value_get(r, &of, &key, attribute, out);
}

static by_status choose(by__template_render *r, const by__template_node *node,
                        by__template_value *out)
{
    by__template_value test;
    BY_TRY(by__template_render_expression(r, node->b, &test));
    if (by__template_value_true(&test)) {
        return by__template_render_expression(r, node->a, out);
    }
    if (node->c != NULL) {
        return by__template_render_expression(r, node->c, out);
    }
    *out = by__template_value_undefined("the other value of an inline if");
    return BY_OK;
}

static by_status evaluate(by__template_render *r, const by__template_node *node,
                          by__template_value *out)
{
    switch (node->kind) {
    case BY__NODE_CONSTANT:
        *out = node->value;
        return BY_OK;
    case BY__NODE_NAME:
        return find_name(r, node->name, out);
    case BY__NODE_LIST:
        return make_list(r, node, out);
    case BY__NODE_DICT:
        return make_map(r, node, out);
    case BY__NODE_ATTRIBUTE:
    case BY__NODE_INDEX:
        return get_element(r, node, out);
    case BY__NODE_SLICE:
        return get_slice(r, node, out);
    case BY__NODE_CALL:
    case BY__NODE_FILTER:
    case BY__NODE_TEST:
        return apply(r, node, out);
    case BY__NODE_UNARY:
        return operate_one(r, node, out);
    case BY__NODE_BINARY:
        return operate(r, node, out);
    case BY__NODE_COMPARE:
        return compare_chain(r, node, out);
    default: /* BY__NODE_CONDITION */
        return choose(r, node, out);
    }
}
by_status by__template_render_expression(by__template_render *r, const by__template_node *node,
                                         by__template_value *out)
{
    BY_TRY(by__template_render_enter(r));
    r->line = node->line;
    BY_TRY(evaluate(r, node, out));
    r->depth--;
    return BY_OK;
}
