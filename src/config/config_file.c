/* Reads one YAML text into the config from libyaml's events: a mapping of sections, each a mapping
 * of keys to scalars, lists of scalars, or lists of mappings to scalars. Deeper nesting is refused,
 * so nothing here recurses. */
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "config/schema.h"

typedef struct yaml_reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    bool has_event;
    const char *file;
    const char *text;
    size_t length;
    bool has_lines;  /* false for the value of an override */
    char where[300]; /* "FILE:LINE" of the current event */
    by_error *error;
} yaml_reader;

/* The line on which each key or section first occurred in this file; 0: not yet. */
typedef struct seen_lines {
    size_t *keys;
    size_t *sections;
    size_t base;
} seen_lines;

static void drop_event(yaml_reader *r)
{
    if (r->has_event) {
        yaml_event_delete(&r->event);
        r->has_event = false;
    }
}

static by_status fail(const yaml_reader *r, const char *what)
{
    return by_error_set(r->error, BY_ECONFIG, "%s: %s", r->where, what);
}

static void set_where(yaml_reader *r, size_t line)
{
    if (!r->has_lines) {
        (void)snprintf(r->where, sizeof r->where, "%.250s", r->file);
    } else {
        (void)snprintf(r->where, sizeof r->where, "%.250s:%zu", r->file, line);
    }
}

static size_t line_of(const yaml_reader *r)
{
    return r->event.start_mark.line + 1;
}

/* Sets `out` to the probable cause of what libyaml refuses: "" if it is not known. */
static void explain_syntax(char out[160], const yaml_reader *r)
{
    const yaml_parser_t *p = &r->parser;
    const char *context = p->context == NULL ? "" : p->context;
    char line[40] = "";
    size_t at = p->problem_mark.index;
    out[0] = '\0';
    if (r->has_lines) {
        (void)snprintf(line, sizeof line, " of line %zu", p->context_mark.line + 1);
    }
    if (strstr(context, "a flow ") != NULL) {
        bool list = strstr(context, "sequence") != NULL;
        (void)snprintf(out, 160, ": is the '%c'%s not closed, or a ',' missing?", list ? '[' : '{',
                       line);
    } else if (strstr(context, "quoted") != NULL) {
        (void)snprintf(out, 160, ": is the quote%s not closed?", line);
    } else if (strstr(context, "a block ") != NULL) {
        (void)snprintf(out, 160,
                       ": is a line indented otherwise than those around it, or a bracket closed "
                       "twice?");
    } else if (at < r->length && r->text[at] == '\t') {
        (void)snprintf(out, 160, ": indent with spaces, not tabs");
    }
}

static by_status refuse_syntax(yaml_reader *r)
{
    const yaml_parser_t *p = &r->parser;
    char cause[160];
    if (p->error == YAML_MEMORY_ERROR) {
        return by_error_set(r->error, BY_EMEMORY, "out of memory: reading %s", r->file);
    }
    if (p->error == YAML_READER_ERROR) {
        return by_error_set(r->error, BY_ECONFIG, "%s: not YAML text: %s at byte %zu", r->file,
                            p->problem == NULL ? "bad byte" : p->problem, p->problem_offset);
    }
    set_where(r, p->problem_mark.line + 1);
    explain_syntax(cause, r);
    return by_error_set(r->error, BY_ECONFIG, "%s: not valid YAML: %s%s%s%s", r->where,
                        p->problem == NULL ? "syntax error" : p->problem,
                        p->context == NULL ? "" : " ", p->context == NULL ? "" : p->context, cause);
}

/* Moves to the next event; refuses YAML features that configs do not use. */
static by_status next(yaml_reader *r)
{
    drop_event(r);
    if (yaml_parser_parse(&r->parser, &r->event) == 0) {
        return refuse_syntax(r);
    }
    r->has_event = true;
    set_where(r, line_of(r));
    const void *anchor = NULL;
    const void *tag = NULL;
    switch (r->event.type) {
    case YAML_ALIAS_EVENT:
        anchor = r->event.data.alias.anchor;
        break;
    case YAML_SCALAR_EVENT:
        anchor = r->event.data.scalar.anchor;
        tag = r->event.data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = r->event.data.sequence_start.anchor;
        tag = r->event.data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = r->event.data.mapping_start.anchor;
        tag = r->event.data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor != NULL) {
        return fail(r,
                    "anchors and aliases are not supported; include another file with \"base:\"");
    }
    return tag == NULL ? BY_OK : fail(r, "tags (!name) are not supported");
}

static const char *scalar_text(const yaml_reader *r)
{
    return (const char *)r->event.data.scalar.value;
}

static by_status add_scalar(yaml_reader *r, by__config_node *node)
{
    const char *text = scalar_text(r);
    size_t length = r->event.data.scalar.length;
    if (strlen(text) != length) {
        return fail(r, "a value holds a NUL byte");
    }
    bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    BY_TRY(by__config_node_add(node, text, length, !plain, r->error));
    by__config_scalar *item = &node->items[node->count - 1];
    item->line = r->has_lines ? line_of(r) : 0;
    item->wraps = plain && r->event.end_mark.line > r->event.start_mark.line;
    return BY_OK;
}

/* Reads a mapping of words to scalars; its start is the current event. */
static by_status read_record(yaml_reader *r, by__config_node *node)
{
    size_t record = node->records++;
    for (;;) {
        BY_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) {
            return BY_OK;
        }
        if (r->event.type != YAML_SCALAR_EVENT) {
            return fail(r, "a key must be a word");
        }
        char *field = by__strdup(scalar_text(r));
        if (field == NULL) {
            return by_error_set(r->error, BY_EMEMORY, "out of memory: reading %s", r->file);
        }
        by_status status = next(r);
        if (status == BY_OK && r->event.type != YAML_SCALAR_EVENT) {
            status = fail(r, "a mapping in a list may contain only values, no lists or mappings");
        }
        if (status == BY_OK) {
            status = add_scalar(r, node);
        }
        if (status != BY_OK) {
            free(field);
            return status;
        }
        node->items[node->count - 1].field = field;
        node->items[node->count - 1].record = record;
    }
}

/* Reads the current event as a value: a scalar, or a list of scalars or mappings up to its end. */
static by_status read_node(yaml_reader *r, by__config_node *node)
{
    if (r->event.type == YAML_SCALAR_EVENT) {
        return add_scalar(r, node);
    }
    if (r->event.type != YAML_SEQUENCE_START_EVENT) {
        return fail(r, "a mapping where a value is expected");
    }
    node->is_list = true;
    for (;;) {
        BY_TRY(next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) {
            return BY_OK;
        }
        if (r->event.type == YAML_MAPPING_START_EVENT) {
            BY_TRY(read_record(r, node));
        } else if (r->event.type != YAML_SCALAR_EVENT) {
            return fail(r, "a list may contain values or mappings of values, no lists");
        } else {
            BY_TRY(add_scalar(r, node));
        }
    }
}

static bool is_empty_value(const yaml_reader *r)
{
    if (r->event.type != YAML_SCALAR_EVENT ||
        r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
        return false;
    }
    const char *text = scalar_text(r);
    return text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

static by_status once(const yaml_reader *r, size_t *line, const char *section, const char *name)
{
    if (*line != 0) {
        return by_error_set(r->error, BY_ECONFIG,
                            "%s: duplicate key \"%s%s%s\"; it is on line %zu too", r->where,
                            section, section[0] == '\0' ? "" : ".", name, *line);
    }
    *line = line_of(r);
    return BY_OK;
}

/* Reads the value of a known key and stores it unless a more derived file has set the key. */
static by_status read_value(yaml_reader *r, by__config *config, by__config_entry *entry)
{
    char where[sizeof r->where];
    by__config_node node = {0};
    memcpy(where, r->where, sizeof where); /* the line of the key, not of the value's end */
    by_status status = next(r);
    if (status == BY_OK && r->event.type == YAML_MAPPING_START_EVENT) {
        status = by__config_value_refuse(&entry->key, "a mapping", where, r->error);
    } else if (status == BY_OK) {
        status = read_node(r, &node);
    }
    if (status == BY_OK) {
        status = by__config_assign(config, entry, &node, where, entry->origin == NULL, r->error);
    }
    by__config_node_free(&node);
    return status;
}

/* The key of a section whose value is a list of mappings; NULL: none. */
static const char *list_of(const by__config *config, const char *section)
{
    for (size_t i = 0; i < config->count; i++) {
        const by__config_key *key = &config->entries[i].key;
        if (key->type == BY__KEY_RECORDS && strcmp(key->section, section) == 0) {
            return key->name;
        }
    }
    return NULL;
}

/* Refuses a key that there is not; one that is a mapping may be meant as one of a list. */
static by_status refuse_key(yaml_reader *r, const by__config *config, const char *section)
{
    char where[sizeof r->where];
    const char *list = section[0] == '\0' ? NULL : list_of(config, section);
    char *name = by__strdup(scalar_text(r));
    if (name == NULL) {
        return by_error_set(r->error, BY_EMEMORY, "out of memory: reading %s", r->file);
    }
    memcpy(where, r->where, sizeof where);
    by_status status = next(r);
    bool mapping = status == BY_OK && r->event.type == YAML_MAPPING_START_EVENT;
    status = list != NULL && mapping
                 ? by_error_set(r->error, BY_ECONFIG,
                                "%s: unknown key \"%.60s\" in section %s; is it one of the list "
                                "\"%s\", as %s: [{name: %.60s, ...}]?",
                                where, name, section, list, list, name)
                 : by__config_key_unknown(config, where, section, name, r->error);
    free(name);
    return status;
}

/* Reads one key of a section, or a plain key of the top level. The current event is the key. */
static by_status read_key(yaml_reader *r, by__config *config, const char *section, seen_lines *seen)
{
    if (r->event.type != YAML_SCALAR_EVENT) {
        return fail(r, "a key must be a word");
    }
    by__config_entry *entry = by__config_entry_find(config, section, scalar_text(r));
    if (entry == NULL) {
        return refuse_key(r, config, section);
    }
    BY_TRY(once(r, &seen->keys[entry - config->entries], section, entry->key.name));
    return read_value(r, config, entry);
}

/* Refuses a section that is a value or a list. A list is meant for the key that takes such ones. */
static by_status refuse_section(const yaml_reader *r, const by__config *config, const char *section)
{
    const char *list = r->event.type == YAML_SEQUENCE_START_EVENT ? list_of(config, section) : NULL;
    return by_error_set(r->error, BY_ECONFIG,
                        "%s: \"%s\" is a section; its keys follow below it, indented%s%s%s",
                        r->where, section, list != NULL ? ": the list is that of \"" : "",
                        list != NULL ? list : "", list != NULL ? ":\"" : "");
}

/* Reads the keys of a section. The current event is the section's name. */
static by_status read_section(yaml_reader *r, by__config *config, const by__config_section *section,
                              seen_lines *seen)
{
    BY_TRY(once(r, &seen->sections[section - config->schema->sections->rows], "", section->name));
    BY_TRY(next(r));
    if (is_empty_value(r)) {
        return BY_OK;
    }
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        return refuse_section(r, config, section->name);
    }
    for (;;) {
        BY_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) {
            return BY_OK;
        }
        BY_TRY(read_key(r, config, section->name, seen));
    }
}

static by_status read_base(yaml_reader *r, char **base, char **base_where, seen_lines *seen)
{
    BY_TRY(once(r, &seen->base, "", "base"));
    BY_TRY(next(r));
    if (r->event.type != YAML_SCALAR_EVENT || is_empty_value(r) ||
        r->event.data.scalar.length == 0 || strlen(scalar_text(r)) != r->event.data.scalar.length) {
        return fail(r, "base takes the path of one config file");
    }
    *base = by__strdup(scalar_text(r));
    *base_where = by__strdup(r->where);
    if (*base == NULL || *base_where == NULL) {
        return by_error_set(r->error, BY_EMEMORY, "out of memory: reading %s", r->file);
    }
    return BY_OK;
}

/* Reads one entry of the top level. The current event is its key. */
static by_status read_top(yaml_reader *r, by__config *config, seen_lines *seen, char **base,
                          char **base_where)
{
    if (r->event.type == YAML_SCALAR_EVENT) {
        if (strcmp(scalar_text(r), "base") == 0) {
            return read_base(r, base, base_where, seen);
        }
        const by__config_section *section = by__config_section_find(config->schema, scalar_text(r));
        if (section != NULL) {
            return read_section(r, config, section, seen);
        }
    }
    return read_key(r, config, "", seen);
}

static by_status read_document(yaml_reader *r, by__config *config, seen_lines *seen, char **base,
                               char **base_where)
{
    BY_TRY(next(r)); /* start of the stream */
    BY_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) {
        return BY_OK;
    }
    BY_TRY(next(r)); /* after the start of the document */
    if (!is_empty_value(r)) {
        if (r->event.type != YAML_MAPPING_START_EVENT) {
            return fail(r, "a config is a mapping of sections to their keys");
        }
        BY_TRY(next(r));
        while (r->event.type != YAML_MAPPING_END_EVENT) {
            BY_TRY(read_top(r, config, seen, base, base_where));
            BY_TRY(next(r));
        }
    }
    BY_TRY(next(r)); /* end of the document */
    BY_TRY(next(r));
    return r->event.type == YAML_STREAM_END_EVENT ? BY_OK
                                                  : fail(r, "a config is one YAML document");
}

static by_status open_reader(yaml_reader *r, const char *file, bool has_lines, const char *text,
                             size_t length, by_error *error)
{
    *r = (yaml_reader){
        .file = file, .text = text, .length = length, .has_lines = has_lines, .error = error};
    if (yaml_parser_initialize(&r->parser) == 0) {
        return by_error_set(error, BY_EMEMORY, "out of memory: reading %s", file);
    }
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, length);
    return BY_OK;
}

static void close_reader(yaml_reader *r)
{
    drop_event(r);
    yaml_parser_delete(&r->parser);
}

by_status by__config_read(by__config *config, const char *file, const char *text, size_t length,
                          char **base, char **base_where, by_error *error)
{
    yaml_reader r;
    seen_lines seen = {0};
    char *found_base = NULL;
    char *found_where = NULL;
    by_status status;
    BY_TRY(by__alloc((void **)&seen.keys, config->count + config->schema->sections->count,
                     sizeof *seen.keys, "config keys", error));
    seen.sections = seen.keys + config->count;
    status = open_reader(&r, file, true, text, length, error);
    if (status == BY_OK) {
        status = read_document(&r, config, &seen, &found_base, &found_where);
        close_reader(&r);
    }
    free(seen.keys);
    if (status != BY_OK) {
        free(found_base);
        free(found_where);
        return status;
    }
    *base = found_base;
    *base_where = found_where;
    return BY_OK;
}

by_status by__config_read_value(by__config_node *node, const char *text, const char *where,
                                by_error *error)
{
    if (text[0] == '\0' || strchr("[\"'", text[0]) == NULL) {
        /* `data.train=` clears a text; no other type accepts an empty one. */
        return by__config_node_add(node, text, strlen(text), text[0] == '\0', error);
    }
    if (strcmp(text, "[]") == 0) { /* the default of each list */
        node->is_list = true;
        return BY_OK;
    }
    yaml_reader r;
    BY_TRY(open_reader(&r, where, false, text, strlen(text), error));
    by_status status = BY_OK;
    for (int i = 0; i < 3 && status == BY_OK; i++) {
        status = next(&r); /* skip the starts of stream and document, then read the value */
    }
    if (status == BY_OK) {
        status = read_node(&r, node);
    }
    for (int i = 0; i < 2 && status == BY_OK; i++) {
        status = next(&r);
    }
    if (status == BY_OK && r.event.type != YAML_STREAM_END_EVENT) {
        status = fail(&r, "one value is expected");
    }
    close_reader(&r);
    return status;
}
