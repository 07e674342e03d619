#include <stdlib.h>
#include <string.h>

#include "infer/constraint/constraint.h"

/* Maximum bytes of a pattern or a schema. */
#define MAX_SOURCE ((size_t)1 << 20)

typedef enum source_kind {
    SOURCE_REGEX = 0,
    SOURCE_SCHEMA,
    SOURCE_JSON,
    SOURCE_OBJECT
} source_kind;

static by_status parse(uint32_t *root, by__language *language, source_kind kind, const char *text,
                       size_t length, by_error *error)
{
    const by__expression *e = NULL;
    if (kind == SOURCE_SCHEMA) {
        return by__schema_parse(root, language, text, length, error);
    }
    if (kind != SOURCE_REGEX) {
        return by__schema_any(root, language, kind == SOURCE_OBJECT, error);
    }
    BY_TRY(by__regex_parse(&e, language, text, length, true, BY__PLAIN, error));
    *root = by__language_rule(language);
    by__language_define(language, *root, e);
    return BY_OK;
}

/* Compiles the automata of a language for the bytes that occur in a vocabulary. */
static by_status compile(by__automata *out, const by__language *language, uint32_t root,
                         const by_token_list *list, by_error *error)
{
    bool has[256] = {false};
    by_error ignored = {0};
    for (uint32_t i = 0; list != NULL && i < list->first[list->count]; i++) {
        has[list->bytes[i]] = true;
    }
    by_status status = by__automata_compile(out, language, root, list == NULL ? NULL : has, error);
    if (status == BY_EARG && list != NULL &&
        by__automata_compile(out, language, root, NULL, &ignored) == BY_OK) {
        by__automata_free(out);
        return by_error_set(error, BY_EFORMAT,
                            "no text of this form can be written in the model's vocabulary: "
                            "characters that every such text has are missing");
    }
    return status;
}

static by_status make(by_constraint **out, source_kind kind, const char *text, size_t length,
                      const by_token_list *list, by_error *error)
{
    by__language language = {0};
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
    by__language_close(&language);
    if (status != BY_OK) {
        free(c);
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
        by__automata_free(&(*constraint)->automata);
        free(*constraint);
        *constraint = NULL;
    }
}

size_t by_constraint_bytes(const by_constraint *constraint)
{
    const by__automata *a = &constraint->automata;
    size_t states = (size_t)a->states;
    return sizeof *constraint +
           states * ((size_t)a->classes * sizeof *a->next + sizeof *a->first_call + 2) +
           (size_t)a->first_call[states] * sizeof *a->calls;
}

by_status by_constraint_matches(const by_constraint *constraint, const char *text, size_t length,
                                bool *matches, by_error *error)
{
    const by__automata *a = &constraint->automata;
    by__way ways[2][BY__MAX_WAYS];
    by__frames frames[2] = {{0}, {0}};
    by_status status = by__frames_open(&frames[0], error);
    if (status == BY_OK) {
        status = by__frames_open(&frames[1], error);
    }
    if (status == BY_OK) {
        int count = by__walk_begin(a, &frames[0], ways[0]);
        for (size_t i = 0; i < length && count > 0; i++) {
            count = by__walk_byte(a, &frames[0], ways[i & 1], count, (uint8_t)text[i],
                                  ways[(i + 1) & 1]);
            by__frames_compact(&frames[0], &frames[1], ways[(i + 1) & 1], count);
        }
        *matches = by__walk_can_end(a, ways[length & 1], count);
    }
    by__frames_close(&frames[0]);
    by__frames_close(&frames[1]);
    return status;
}
