#include <stdlib.h>
#include <string.h>

#include "infer/constraint/byte_language.h"

/* ---- memory of a language ---- */

#define BLOCK_BYTES ((size_t)64 << 10)

struct by__constraint_block {
    struct by__constraint_block *next;
    size_t used;
    _Alignas(16) unsigned char data[BLOCK_BYTES];
};

void by__constraint_language_close(by__constraint_language *language)
{
    while (language->blocks != NULL) {
        struct by__constraint_block *block = language->blocks;
        language->blocks = block->next;
        free(block);
    }
    free(language->rules);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(language->without); i++) {
        by__constraint_code_set_free(&language->without[i]);
    }
    *language = (by__constraint_language){0};
}

void *by__constraint_language_alloc(by__constraint_language *language, size_t bytes)
{
    size_t size = by__round_up(bytes, 16);
    struct by__constraint_block *block = language->blocks;
    if (language->failed) {
        return NULL;
    }
    if (size > BLOCK_BYTES || ++language->nodes > BY__MAX_NODES) {
        language->failed = true;
        return NULL;
    }
    if (block == NULL || BLOCK_BYTES - block->used < size) {
        block = calloc(1, sizeof *block);
        if (block == NULL) {
            language->failed = language->exhausted = true;
            return NULL;
        }
        block->next = language->blocks;
        language->blocks = block;
    }
    void *data = block->data + block->used;
    block->used += size;
    return data;
}

by_status by__constraint_language_status(const by__constraint_language *language, by_error *error)
{
    if (language->exhausted) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a constraint");
    }
    return language->failed
               ? by_error_set(error, BY_EARG,
                              "the constraint is too large: over %d parts; use smaller repeat "
                              "counts or fewer alternatives",
                              BY__MAX_NODES)
               : BY_OK;
}

/* ---- sets of code points ---- */

#define LAST_CODE 0x10ffffu

by_status by__constraint_code_set_add(by__constraint_code_set *set, uint32_t first, uint32_t last,
                                      by_error *error)
{
    BY_TRY(by__reserve((void **)&set->ranges, &set->capacity, set->count + 1, sizeof *set->ranges,
                       error));
    set->ranges[set->count++] = (by__constraint_code_range){first, last};
    return BY_OK;
}

static int by_first(const void *a, const void *b)
{
    const by__constraint_code_range *x = a;
    const by__constraint_code_range *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void by__constraint_code_set_close(by__constraint_code_set *set)
{
    size_t kept = 0;
    if (set->count > 0) {
        qsort(set->ranges, set->count, sizeof *set->ranges, by_first);
    }
    for (size_t i = 0; i < set->count; i++) {
        by__constraint_code_range r = set->ranges[i];
        if (kept > 0 && r.first <= set->ranges[kept - 1].last + 1) {
            uint32_t last = set->ranges[kept - 1].last;
            set->ranges[kept - 1].last = r.last > last ? r.last : last;
        } else {
            set->ranges[kept++] = r;
        }
    }
    set->count = kept;
}

by_status by__constraint_code_set_negate(by__constraint_code_set *set, by_error *error)
{
    by__constraint_code_set out = {0};
    uint32_t next = 0;
    by_status status = BY_OK;
    for (size_t i = 0; i < set->count && status == BY_OK; i++) {
        if (set->ranges[i].first > next) {
            status = by__constraint_code_set_add(&out, next, set->ranges[i].first - 1, error);
        }
        next = set->ranges[i].last + 1;
    }
    if (status == BY_OK && next <= LAST_CODE) {
        status = by__constraint_code_set_add(&out, next, LAST_CODE, error);
    }
    by__constraint_code_set_free(set);
    *set = out;
    return status;
}

void by__constraint_code_set_free(by__constraint_code_set *set)
{
    free(set->ranges);
    *set = (by__constraint_code_set){0};
}

/* ---- nodes ---- */

static by__constraint_expression *node(by__constraint_language *language,
                                       by__constraint_expression_kind kind)
{
    by__constraint_expression *e = by__constraint_language_alloc(language, sizeof *e);
    if (e != NULL) {
        e->kind = kind;
    }
    return e;
}

const by__constraint_expression *by__constraint_expr_empty(by__constraint_language *language)
{
    return node(language, BY__EXPR_EMPTY);
}

const by__constraint_expression *by__constraint_expr_bytes(by__constraint_language *language,
                                                           uint8_t first, uint8_t last)
{
    by__constraint_expression *e = node(language, BY__EXPR_BYTES);
    if (e != NULL) {
        e->first = first;
        e->last = last;
    }
    return e;
}

static const by__constraint_expression *pair(by__constraint_language *language,
                                             by__constraint_expression_kind kind,
                                             const by__constraint_expression *a,
                                             const by__constraint_expression *b)
{
    by__constraint_expression *e = node(language, kind);
    if (e != NULL) {
        e->a = a;
        e->b = b;
    }
    return e;
}

const by__constraint_expression *by__constraint_expr_concat(by__constraint_language *language,
                                                            const by__constraint_expression *a,
                                                            const by__constraint_expression *b)
{
    return a == NULL || b == NULL ? NULL : pair(language, BY__EXPR_CONCAT, a, b);
}

const by__constraint_expression *by__constraint_expr_either(by__constraint_language *language,
                                                            const by__constraint_expression *a,
                                                            const by__constraint_expression *b)
{
    if (a == NULL || b == NULL) {
        return a == NULL ? b : a;
    }
    return pair(language, BY__EXPR_EITHER, a, b);
}

const by__constraint_expression *by__constraint_expr_repeat(by__constraint_language *language,
                                                            const by__constraint_expression *a,
                                                            uint32_t least, uint32_t most)
{
    if (a == NULL) { /* no text at all: only zero repetitions are possible */
        return least == 0 ? by__constraint_expr_empty(language) : NULL;
    }
    by__constraint_expression *e = node(language, BY__EXPR_REPEAT);
    if (e != NULL) {
        e->a = a;
        e->first = least;
        e->last = most;
    }
    return e;
}

const by__constraint_expression *by__constraint_expr_optional(by__constraint_language *language,
                                                              const by__constraint_expression *a)
{
    return by__constraint_expr_repeat(language, a, 0, 1);
}

const by__constraint_expression *by__constraint_expr_call(by__constraint_language *language,
                                                          uint32_t rule)
{
    by__constraint_expression *e = node(language, BY__EXPR_CALL);
    if (e != NULL) {
        e->first = rule;
    }
    return e;
}

const by__constraint_expression *by__constraint_expr_text(by__constraint_language *language,
                                                          const char *text, size_t length)
{
    const by__constraint_expression *e = by__constraint_expr_empty(language);
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = (uint8_t)text[i];
        e = by__constraint_expr_concat(language, e,
                                       by__constraint_expr_bytes(language, byte, byte));
    }
    return e;
}

uint32_t by__constraint_language_rule(by__constraint_language *language)
{
    if (language->failed || language->rule_count >= BY__MAX_NODES ||
        by__reserve((void **)&language->rules, &language->rule_capacity, language->rule_count + 1,
                    sizeof *language->rules, NULL) != BY_OK) {
        language->failed = true;
        return BY__UNBOUNDED;
    }
    language->rules[language->rule_count] = NULL;
    return (uint32_t)language->rule_count++;
}

void by__constraint_language_define(by__constraint_language *language, uint32_t rule,
                                    const by__constraint_expression *expression)
{
    if (rule < language->rule_count) {
        language->rules[rule] = expression;
    }
}

const by__constraint_expression *by__constraint_expr_class(by__constraint_language *language,
                                                           const by__constraint_code_set *set,
                                                           by__constraint_writing writing)
{
    by__constraint_character_class *class = by__constraint_language_alloc(language, sizeof *class);
    by__constraint_code_range *ranges =
        by__constraint_language_alloc(language, set->count * sizeof *ranges + 1);
    by__constraint_expression *e = node(language, BY__EXPR_CLASS);
    if (set->count == 0 || class == NULL || ranges == NULL || e == NULL) {
        return NULL;
    }
    memcpy(ranges, set->ranges, set->count * sizeof *ranges);
    *class = (by__constraint_character_class){ranges, set->count, writing};
    e->class = class;
    return e;
}
