#include <stdlib.h>
#include <string.h>

#include "infer/constraint/constraint.h"

/* Maximum bytes of a pattern or a schema. */
#define MAX_SOURCE ((size_t)1 << 20)

typedef enum constraint_source_kind {
    SOURCE_REGEX = 0,
    SOURCE_SCHEMA,
    SOURCE_JSON,
    SOURCE_OBJECT
} constraint_source_kind;

static by_status parse(uint32_t *root, by__constraint_language *language,
                       constraint_source_kind kind, const char *text, size_t length,
                       by_error *error)
{
    const by__constraint_expression *e = NULL;
    if (kind == SOURCE_SCHEMA) {
        return by__constraint_schema_parse(root, language, text, length, error);
    }
    if (kind != SOURCE_REGEX) {
        return by__constraint_schema_any(root, language, kind == SOURCE_OBJECT, error);
    }
    BY_TRY(by__constraint_regex_parse(&e, language, text, length, true, BY__PLAIN, error));
    *root = by__constraint_language_rule(language);
    by__constraint_language_define(language, *root, e);
    return BY_OK;
}

/* Compiles the automata of a language for the bytes that occur in a vocabulary. */
static by_status compile(by__constraint_automata *out, const by__constraint_language *language,
                         uint32_t root, const by_token_list *list, by_error *error)
{
    bool has[256] = {false};
    for (uint32_t i = 0; list != NULL && i < list->first[list->count]; i++) {
        has[list->bytes[i]] = true;
    }
    by_status status =
        by__constraint_automata_compile(out, language, root, list == NULL ? NULL : has, error);
    if (status == BY_EFORMAT) { /* without any text, or without texts of these bytes? */
        BY_TRY(by__constraint_automata_compile(out, language, root, NULL, error));
        by__constraint_automata_free(out);
        return by_error_set(error, BY_EFORMAT,
                            "no text of this form can be written in the model's vocabulary: "
                            "characters that every such text has are missing");
    }
    return status;
}

static by_status open_shares(by__constraint_shares **out, by_error *error)
{
    BY_TRY(by__alloc((void **)out, 1, sizeof **out, "a constraint", error));
    if (pthread_mutex_init(&(*out)->lock, NULL) != 0) {
        free(*out);
        *out = NULL;
        return by_error_set(error, BY_EMEMORY, "out of memory: a lock");
    }
    return BY_OK;
}

static by_status make(by_constraint **out, constraint_source_kind kind, const char *text,
                      size_t length, const by_token_list *list, by_error *error)
{
    by__constraint_language language = {0};
    by_constraint *c;
    uint32_t root = 0;
    if (length > MAX_SOURCE) {
        return by_error_set(error, BY_EARG, "a constraint of %zu bytes is over 1 MiB", length);
    }
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "a constraint", error));
    by_status status = parse(&root, &language, kind, text, length, error);
    if (status == BY_OK) {
        status = compile(&c->automata, &language, root, list, error);
    }
    by__constraint_language_close(&language);
    if (status == BY_OK) {
        status = open_shares(&c->shares, error);
    }
    if (status != BY_OK) {
        by_constraint_close(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

by_status by_constraint_open_regex(by_constraint **out, const char *pattern, size_t length,
                                   const by_token_list *list, by_error *error)
{
    return make(out, SOURCE_REGEX, pattern, length, list, error);
}

by_status by_constraint_open_schema(by_constraint **out, const char *schema, size_t length,
                                    const by_token_list *list, by_error *error)
{
    return make(out, SOURCE_SCHEMA, schema, length, list, error);
}

by_status by_constraint_open_json(by_constraint **out, bool object, const by_token_list *list,
                                  by_error *error)
{
    return make(out, object ? SOURCE_OBJECT : SOURCE_JSON, "", 0, list, error);
}

void by_constraint_close(by_constraint **constraint)
{
    if (*constraint != NULL) {
        by__constraint_automata_free(&(*constraint)->automata);
        if ((*constraint)->shares != NULL) {
            (void)pthread_mutex_destroy(&(*constraint)->shares->lock);
            free((*constraint)->shares);
        }
        free(*constraint);
        *constraint = NULL;
    }
}

size_t by_constraint_bytes(const by_constraint *constraint)
{
    const by__constraint_automata *a = &constraint->automata;
    size_t states = (size_t)a->states;
    return sizeof *constraint +
           states * ((size_t)a->classes * sizeof *a->next + sizeof *a->first_call + 3) +
           (size_t)a->first_call[states] * sizeof *a->calls;
}

by_status by_constraint_matches(const by_constraint *constraint, const char *text, size_t length,
                                bool *matches, by_error *error)
{
    by__constraint_way_sets sets;
    int32_t at = BY__DEAD;
    by__constraint_way_holder holder = {.sets = &at, .count = 1};
    int64_t work = 0;
    BY_TRY(by__constraint_way_sets_open(&sets, &constraint->automata, error));
    by_status status = by__constraint_way_sets_begin(&sets, &at, &work, error);
    by__constraint_way_sets_hold(&sets, &holder);
    for (size_t i = 0; i < length && at != BY__DEAD && status == BY_OK; i++) {
        status = by__constraint_way_sets_forget(&sets, error);
        if (status == BY_OK) {
            status = by__constraint_way_sets_next(&sets, at, (uint8_t)text[i], &at, &work, error);
        }
    }
    if (status == BY_OK) {
        *matches = at != BY__DEAD && sets.sets[at].can_end;
    }
    by__constraint_way_sets_close(&sets);
    return status;
}
