/* Execution of statements. */
#include <string.h>

#include "text/template/template.h"

static by_status print(by__template_render *r, const char *data, size_t length)
{
    if (length > r->output) {
        return by__template_render_fail(r, "the template's text is longer than it may be");
    }
    r->output -= length;
    by_string_add(r->out, data, length);
    return r->out->failed ? by_error_set(r->error, BY_EMEMORY, "out of memory: text of a template")
                          : by__template_render_steps(r, length / 64);
}

by_status by__template_render_capture(by__template_render *r, const by__template_node *body,
                                      by__template_value *out)
{
    by_string text = {0};
    by_string *kept = r->out;
    r->out = &text;
    r->captured++;
    by_status status = by__template_render_body(r, body);
    r->captured--;
    r->out = kept;
    if (status != BY_OK) {
        by_string_free(&text);
        return status;
    }
    r->output += text.length; /* it is not printed yet */
    return by__template_value_move_text(r, &text, out);
}

static by_status set_variable(by__template_render *r, const char *name,
                              const by__template_value *value)
{
    by__template_value key = by__template_value_string(name, strlen(name));
    return by__template_table_put(r, &r->scope->variables, &key, value);
}

/* Assigns to a name, to names from the elements of a value, or to an attribute of a namespace. */
static by_status assign(by__template_render *r, const by__template_node *target,
                        const by__template_value *value)
{
    if (target->kind == BY__NODE_NAME) {
        return set_variable(r, target->name, value);
    }
    if (target->kind == BY__NODE_ATTRIBUTE) {
        by__template_value object;
        BY_TRY(by__template_render_expression(r, target->a, &object));
        if (object.kind != BY__NAMESPACE) {
            return by__template_render_fail(
                r, "'%.60s' is not a namespace, so '%.60s' of it cannot be set", target->a->name,
                target->name);
        }
        by__template_value key = by__template_value_string(target->name, strlen(target->name));
        return by__template_table_put(r, object.as.table, &key, value);
    }
    by__template_list *items;
    size_t index = 0;
    BY_TRY(by__template_value_items(r, value, &items));
    for (const by__template_node *name = target->a; name != NULL; name = name->next, index++) {
        if (index < items->count) {
            BY_TRY(assign(r, name, &items->items[index]));
        }
    }
    return index == items->count
               ? BY_OK
               : by__template_render_fail(r, "%zu values cannot be given to %zu names",
                                          items->count, index);
}

static by_status render_set(by__template_render *r, const by__template_node *node)
{
    by__template_value value;
    if (node->b != NULL) {
        BY_TRY(by__template_render_expression(r, node->b, &value));
        return assign(r, node->a, &value);
    }
    by__template_scope *scope; /* scope of what the body sets */
    by__template_scope *kept = r->scope;
    BY_TRY(by__template_render_allocate(r, (void **)&scope, 1, sizeof *scope));
    scope->parent = kept;
    r->scope = scope;
    BY_TRY(by__template_render_capture(r, node->body, &value));
    r->scope = kept;
    if (node->c != NULL) {
        by__template_value printed = value;
        r->subject = &printed;
        BY_TRY(by__template_render_expression(r, node->c, &value));
    }
    return assign(r, node->a, &value);
}

static by_status render_macro(by__template_render *r, const by__template_node *node)
{
    by__template_value value = {.kind = BY__MACRO};
    BY_TRY(by__template_render_allocate(r, (void **)&value.as.macro, 1, sizeof *value.as.macro));
    value.as.macro->node = node;
    value.as.macro->scope = r->scope;
    return set_variable(r, node->name, &value);
}

static by_status render_filtered(by__template_render *r, const by__template_node *node)
{
    by__template_value printed;
    by__template_value value;
    BY_TRY(by__template_render_capture(r, node->body, &printed));
    r->subject = &printed;
    BY_TRY(by__template_render_expression(r, node->a, &value));
    BY_TRY(by__template_value_text(r, &value, &value));
    return print(r, value.as.string.data, value.as.string.length);
}

/* Notes where the output of {% generation %} is, as transformers does for its mask. */
static by_status render_generation(by__template_render *r, const by__template_node *node)
{
    by__template_spans *spans = r->spans;
    size_t begin = r->out->length;
    BY_TRY(by__template_render_body(r, node->body));
    if (spans == NULL) {
        return BY_OK;
    }
    if (r->captured > 0) {
        spans->hidden = true;
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&spans->items, &spans->capacity, spans->count + 1,
                       sizeof *spans->items, r->error));
    spans->items[spans->count++] = (by__template_span){begin, r->out->length};
    return BY_OK;
}

/* Values are evaluated outside, before any of the names is set. */
static by_status render_with(by__template_render *r, const by__template_node *node)
{
    by__template_scope *scope;
    by__template_scope *kept = r->scope;
    const by__template_node *target = node->a;
    BY_TRY(by__template_render_allocate(r, (void **)&scope, 1, sizeof *scope));
    scope->parent = kept;
    for (const by__template_node *n = node->b; n != NULL; n = n->next, target = target->next) {
        by__template_value value;
        r->scope = kept;
        BY_TRY(by__template_render_expression(r, n, &value));
        r->scope = scope;
        BY_TRY(assign(r, target, &value));
    }
    r->scope = scope;
    BY_TRY(by__template_render_body(r, node->body));
    r->scope = kept;
    return BY_OK;
}

/* ---- loops ---- */

static by_status put_fact(by__template_render *r, by__template_table *loop, const char *name,
                          by__template_value value)
{
    by__template_value key = by__template_value_string(name, strlen(name));
    return by__template_table_put(r, loop, &key, &value);
}

/* Sets the variable `loop` for element i. */
static by_status describe_loop(by__template_render *r, const by__template_list *items, size_t i)
{
    by__template_value loop;
    by__template_value cycle = {.kind = BY__METHOD};
    by__template_table *t;
    int64_t index = (int64_t)i;
    int64_t left = (int64_t)(items->count - i);
    BY_TRY(by__template_value_map(r, &loop));
    t = loop.as.table;
    t->capacity = 12;
    BY_TRY(by__template_render_allocate(r, (void **)&t->pairs, t->capacity, sizeof *t->pairs));
    BY_TRY(by__template_render_allocate(r, (void **)&cycle.as.method, 1, sizeof *cycle.as.method));
    BY_TRY(by__template_render_allocate(r, (void **)&cycle.as.method->object, 1,
                                        sizeof(by__template_value)));
    *cycle.as.method->object = by__template_value_integer(index);
    cycle.as.method->name = "cycle";
    BY_TRY(put_fact(r, t, "cycle", cycle));
    BY_TRY(put_fact(r, t, "depth", by__template_value_integer(1)));
    BY_TRY(put_fact(r, t, "depth0", by__template_value_integer(0)));
    BY_TRY(put_fact(r, t, "index", by__template_value_integer(index + 1)));
    BY_TRY(put_fact(r, t, "index0", by__template_value_integer(index)));
    BY_TRY(put_fact(r, t, "revindex", by__template_value_integer(left)));
    BY_TRY(put_fact(r, t, "revindex0", by__template_value_integer(left - 1)));
    BY_TRY(put_fact(r, t, "first", by__template_value_bool(i == 0)));
    BY_TRY(put_fact(r, t, "last", by__template_value_bool(left == 1)));
    BY_TRY(put_fact(r, t, "length", by__template_value_integer((int64_t)items->count)));
    BY_TRY(put_fact(r, t, "previtem",
                    i > 0 ? items->items[i - 1] : by__template_value_undefined("previtem")));
    BY_TRY(put_fact(r, t, "nextitem",
                    left > 1 ? items->items[i + 1] : by__template_value_undefined("nextitem")));
    return set_variable(r, "loop", &loop);
}

/* Makes the scope of one iteration, with its target set. */
static by_status begin_turn(by__template_render *r, const by__template_node *node,
                            by__template_scope *parent, const by__template_value *item)
{
    by__template_scope *scope;
    BY_TRY(by__template_render_allocate(r, (void **)&scope, 1, sizeof *scope));
    scope->parent = parent;
    r->scope = scope;
    return assign(r, node->a, item);
}

/* Lists the elements for which a loop's condition holds. */
static by_status choose_items(by__template_render *r, const by__template_node *node,
                              by__template_scope *parent, by__template_list **items)
{
    by__template_value chosen;
    size_t count = 0;
    BY_TRY(by__template_value_list(r, (*items)->count, false, &chosen));
    for (size_t i = 0; i < (*items)->count; i++) {
        by__template_value test;
        BY_TRY(begin_turn(r, node, parent, &(*items)->items[i]));
        BY_TRY(by__template_render_expression(r, node->c, &test));
        if (by__template_value_true(&test)) {
            chosen.as.list->items[count++] = (*items)->items[i];
        }
    }
    chosen.as.list->count = count;
    *items = chosen.as.list;
    r->scope = parent;
    return BY_OK;
}

static by_status render_for(by__template_render *r, const by__template_node *node)
{
    by__template_value value;
    by__template_list *items;
    by__template_scope *parent = r->scope;
    BY_TRY(by__template_render_expression(r, node->b, &value));
    BY_TRY(by__template_value_items(r, &value, &items));
    if (node->c != NULL) {
        BY_TRY(choose_items(r, node, parent, &items));
    }
    for (size_t i = 0; i < items->count; i++) {
        BY_TRY(begin_turn(r, node, parent, &items->items[i]));
        BY_TRY(describe_loop(r, items, i));
        BY_TRY(by__template_render_body(r, node->body));
        bool leaves = r->leaving == BY__NODE_BREAK;
        r->leaving = BY__NODE_TEXT;
        if (leaves) {
            break;
        }
    }
    r->scope = parent;
    return items->count == 0 ? by__template_render_body(r, node->other) : BY_OK;
}

static by_status render_statement(by__template_render *r, const by__template_node *node)
{
    by__template_value value;
    switch (node->kind) {
    case BY__NODE_TEXT:
        return print(r, node->value.as.string.data, node->value.as.string.length);
    case BY__NODE_PRINT:
        BY_TRY(by__template_render_expression(r, node->a, &value));
        if (r->tpl->plain && value.kind == BY__UNDEFINED) {
            return by__template_render_fail(r, "there is no '%s'", value.as.string.data);
        }
        BY_TRY(by__template_value_text(r, &value, &value));
        return print(r, value.as.string.data, value.as.string.length);
    case BY__NODE_IF:
        BY_TRY(by__template_render_expression(r, node->a, &value));
        return by__template_render_body(r,
                                        by__template_value_true(&value) ? node->body : node->other);
    case BY__NODE_FOR:
        return render_for(r, node);
    case BY__NODE_SET:
        return render_set(r, node);
    case BY__NODE_MACRO:
        return render_macro(r, node);
    case BY__NODE_FILTERED:
        return render_filtered(r, node);
    case BY__NODE_GROUP:
        return render_generation(r, node);
    case BY__NODE_WITH:
        return render_with(r, node);
    default: /* break and continue */
        r->leaving = node->kind;
        return BY_OK;
    }
}

by_status by__template_render_body(by__template_render *r, const by__template_node *body)
{
    BY_TRY(by__template_render_enter(r));
    for (const by__template_node *node = body; node != NULL && r->leaving == BY__NODE_TEXT;
         node = node->next) {
        r->line = node->line;
        BY_TRY(by__template_render_steps(r, 1));
        BY_TRY(render_statement(r, node));
    }
    r->depth--;
    return BY_OK;
}
