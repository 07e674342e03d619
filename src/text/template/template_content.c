/* Determines from a template's nodes whether it iterates over the parts of a message's content. */
#include <string.h>

#include "text/template/template.h"

/* Most names that refer to a content. */
#define MAX_NAMES 16

typedef struct content_names {
    const char *list[MAX_NAMES];
    size_t count;
} content_names;

/* Returns true for message.content, message['content'], a name that was set to it, or a filter or
 * slice of it. */
static bool is_content(const content_names *known, const by__template_node *e)
{
    while (e != NULL) {
        switch (e->kind) {
        case BY__NODE_ATTRIBUTE:
            return strcmp(e->name, "content") == 0;
        case BY__NODE_INDEX:
            return e->b->kind == BY__NODE_CONSTANT &&
                   by__template_value_is(&e->b->value, "content");
        case BY__NODE_NAME:
            for (size_t i = 0; i < known->count; i++) {
                if (strcmp(known->list[i], e->name) == 0) {
                    return true;
                }
            }
            return strcmp(e->name, "content") == 0; /* also the parameter of a macro */
        case BY__NODE_SLICE:
            e = e->body;
            break;
        case BY__NODE_FILTER:
        case BY__NODE_CONDITION:
            e = e->a;
            break;
        default:
            return false;
        }
    }
    return false;
}

static bool goes_through(content_names *known, const by__template_node *body)
{
    for (const by__template_node *n = body; n != NULL; n = n->next) {
        const by__template_node *at = n;
        while (at != NULL) {
            if (at->kind == BY__NODE_FOR && is_content(known, at->b)) {
                return true;
            }
            if (at->kind == BY__NODE_SET && at->a->kind == BY__NODE_NAME &&
                known->count < MAX_NAMES && is_content(known, at->b)) {
                known->list[known->count++] = at->a->name;
            }
            const by__template_node *value = at->kind == BY__NODE_WITH ? at->b : NULL;
            for (const by__template_node *t = at->a; value != NULL;
                 t = t->next, value = value->next) {
                if (t->kind == BY__NODE_NAME && known->count < MAX_NAMES &&
                    is_content(known, value)) {
                    known->list[known->count++] = t->name;
                }
            }
            if (goes_through(known, at->body)) {
                return true;
            }
            /* A chain of elif may be long, so it is handled without recursion. */
            bool chain = at->other != NULL && at->other->next == NULL;
            if (!chain && goes_through(known, at->other)) {
                return true;
            }
            at = chain ? at->other : NULL;
        }
    }
    return false;
}

bool by__template_accepts_parts(const by__template *tpl)
{
    content_names known = {.count = 0};
    return goes_through(&known, tpl->body);
}
