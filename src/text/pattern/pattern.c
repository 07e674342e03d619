/* Patterns by PCRE2, without its compiler of machine code: patterns are used a few times each. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern/pattern.h"

#include <pcre2.h>
#include <stdlib.h>

struct by__pattern {
    pcre2_code *code;
    pcre2_match_context *limits;
    uint32_t groups;
};

void by__pattern_close(by__pattern **pattern)
{
    by__pattern *p = *pattern;
    if (p != NULL) {
        pcre2_match_context_free(p->limits);
        pcre2_code_free(p->code);
        free(p);
        *pattern = NULL;
    }
}

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: pattern");
}

/* Compiles what by__pattern_translate made of `text`. */
static by_status compile(by__pattern *p, const by_string *translated, const char *text,
                         size_t length, by_error *error)
{
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF |
                             PCRE2_NEVER_BACKSLASH_C | PCRE2_ALT_CIRCUMFLEX;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int code = 0;
    PCRE2_SIZE at = 0;
    if (context == NULL) {
        return no_memory(error);
    }
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    p->code = pcre2_compile((PCRE2_SPTR)(translated->data == NULL ? "" : translated->data),
                            translated->length, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (p->code == NULL && code == PCRE2_ERROR_HEAP_FAILED) {
        return no_memory(error);
    }
    if (p->code == NULL) {
        PCRE2_UCHAR why[128] = "";
        (void)pcre2_get_error_message(code, why, sizeof why);
        return by__pattern_fail(text, length, at, (const char *)why, error);
    }
    (void)pcre2_pattern_info(p->code, PCRE2_INFO_CAPTURECOUNT, &p->groups);
    return p->groups < BY__PATTERN_GROUPS
               ? BY_OK
               : by__pattern_fail(text, length, length, "too many groups", error);
}

by_status by__pattern_open(by__pattern **out, const char *text, size_t length, by_error *error)
{
    by__pattern *p;
    by_string translated = {0};
    if (length > BY__PATTERN_BYTES) {
        return by__pattern_fail(text, length, BY__PATTERN_BYTES, "the pattern is too long", error);
    }
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "pattern", error));
    by_status status = by__pattern_translate(&translated, text, length, error);
    status = status == BY_OK ? compile(p, &translated, text, length, error) : status;
    by_string_free(&translated);
    if (status == BY_OK) {
        p->limits = pcre2_match_context_create(NULL);
        status = p->limits == NULL ? no_memory(error) : BY_OK;
    }
    if (status != BY_OK) {
        by__pattern_close(&p);
        return status;
    }
    (void)pcre2_set_match_limit(p->limits, BY__PATTERN_STEPS);
    (void)pcre2_set_heap_limit(p->limits, BY__PATTERN_MEMORY);
    *out = p;
    return BY_OK;
}

size_t by__pattern_groups(const by__pattern *pattern)
{
    return pattern->groups;
}

by_status by__pattern_next(const by__pattern *pattern, const char *s, size_t n,
                           by__pattern_match *match, by_error *error)
{
    bool empty = match->found && match->groups[0].begin == match->groups[0].end;
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    if (data == NULL) {
        return no_memory(error);
    }
    int code = pcre2_match(pattern->code, (PCRE2_SPTR)(n == 0 ? "" : s), n, match->groups[0].end,
                           empty ? PCRE2_NOTEMPTY_ATSTART : 0, data, pattern->limits);
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(data);
    match->found = code >= 0;
    for (size_t g = 0; g <= pattern->groups && match->found; g++) {
        match->groups[g].begin = ends[2 * g];
        match->groups[g].end = ends[2 * g + 1];
    }
    pcre2_match_data_free(data);
    if (code >= 0 || code == PCRE2_ERROR_NOMATCH) {
        return BY_OK;
    }
    return code == PCRE2_ERROR_NOMEMORY
               ? no_memory(error)
               : by_error_set(error, BY_EARG,
                              "a pattern takes too many steps; make its repetitions more specific");
}
