#include "serve/rollout/interface.h"

#include <string.h>

#include "serve/protocol/messages.h"

/* Bytes of a column's name in a reason. */
#define NAME 40

static const char *kind_of(const json_t *info)
{
    return json_object_get(info, "context") != NULL   ? "text"
           : json_object_get(info, "columns") != NULL ? "rows of a table"
                                                      : "images";
}

static const json_t *find_column(const json_t *columns, const char *name)
{
    size_t i;
    json_t *column;
    json_array_foreach(columns, i, column)
    {
        const char *own = by__protocol_get_text(column, "name");
        if (own != NULL && strcmp(own, name) == 0) {
            return column;
        }
    }
    return NULL;
}

/* Length of the beginning of a name that is shown: whole characters. */
static int shown(const char *name)
{
    size_t n = strlen(name);
    n = n < NAME ? n : NAME;
    while (n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80) {
        n--;
    }
    return (int)n;
}

/* Rows may be lists, so that the order counts too. */
static bool columns_differ(char why[BY__INTERFACE_REASON], const json_t *serving,
                           const json_t *coming)
{
    size_t i;
    json_t *column;
    json_array_foreach(serving, i, column)
    {
        const char *name = by__protocol_get_text(column, "name");
        if (name == NULL) {
            continue;
        }
        const char *kind = by__protocol_get_text(column, "kind");
        const json_t *other = find_column(coming, name);
        const char *other_kind = by__protocol_get_text(other, "kind");
        if (other == NULL) {
            (void)snprintf(why, BY__INTERFACE_REASON, "it reads no column '%.*s'", shown(name),
                           name);
            return true;
        }
        if (kind != NULL && other_kind != NULL && strcmp(kind, other_kind) != 0) {
            (void)snprintf(why, BY__INTERFACE_REASON, "its column '%.*s' is a %s, not a %s",
                           shown(name), name, other_kind, kind);
            return true;
        }
    }
    json_array_foreach(coming, i, column)
    {
        const char *name = by__protocol_get_text(column, "name");
        const char *former = by__protocol_get_text(json_array_get(serving, i), "name");
        if (name != NULL && find_column(serving, name) == NULL) {
            (void)snprintf(why, BY__INTERFACE_REASON, "it also reads a column '%.*s'", shown(name),
                           name);
            return true;
        }
        if (name != NULL && former != NULL && strcmp(name, former) != 0) {
            (void)snprintf(why, BY__INTERFACE_REASON, "it reads the columns in another order");
            return true;
        }
    }
    return false;
}

bool by__rollout_interface_differs(char why[BY__INTERFACE_REASON], const json_t *serving,
                                   const json_t *coming)
{
    if (!json_is_object(serving) || !json_is_object(coming)) {
        return false;
    }
    const char *before = kind_of(serving);
    const char *after = kind_of(coming);
    if (strcmp(before, after) != 0) {
        (void)snprintf(why, BY__INTERFACE_REASON, "it reads %s, not %s", after, before);
        return true;
    }
    if (json_is_true(json_object_get(serving, "chat")) &&
        !json_is_true(json_object_get(coming, "chat"))) {
        (void)snprintf(why, BY__INTERFACE_REASON, "it has no chat template");
        return true;
    }
    return columns_differ(why, json_object_get(serving, "columns"),
                          json_object_get(coming, "columns"));
}
