/* Reads normalizer, pre_tokenizer, post_processor and decoder of tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/pipeline_json.h"

#include "banyan/build.h"
#include "base/json.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/model.h"

by_status by__tokenizer_json_refuse(const char *name, const char *what, const json_t *value,
                                    by_error *error)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return by_error_set(error, BY_EFORMAT,
                        "%s: %s%s%.60s is not supported; supported are BPE over bytes or over "
                        "characters, WordPiece, Unigram, and characters (docs/tokenizers.md)",
                        name, what, type != NULL ? " " : "", type != NULL ? type : "");
}

bool by__tokenizer_json_absent(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value == NULL || json_is_null(value);
}

bool by__tokenizer_json_is_type(const json_t *value, const char *type)
{
    const char *held = json_string_value(json_object_get(value, "type"));
    return held != NULL && strcmp(held, type) == 0;
}

by_status by__tokenizer_json_bool(const json_t *object, const char *key, bool missing, bool *out,
                                  const char *name, by_error *error)
{
    const json_t *value = json_object_get(object, key);
    if (value != NULL && !json_is_boolean(value)) {
        return by_error_set(error, BY_EFORMAT, "%s: %s is not true or false", name, key);
    }
    *out = value == NULL ? missing : json_is_true(value);
    return BY_OK;
}

/* State of the reader. */
typedef struct pipeline_reader {
    by_tokenizer *tokenizer;
    by__tokenizer_pipeline *pipeline;
    const char *name;
    bool fused;    /* an earlier decoder step has joined the tokens */
    bool changes;  /* the post-processor adds ids */
    size_t growth; /* factor by which the steps so far may lengthen a text; 0: none was read */
} pipeline_reader;

/* Limit on the lengthening of a text: the factors of consecutive steps multiply. Published files
 * stay below 600. */
#define MAX_GROWTH 4096u

static by_status check_growth(pipeline_reader *r, size_t from, size_t to, by_error *error)
{
    r->growth = (r->growth == 0 ? 1 : r->growth) * (to > from ? (to + from - 1) / from : 1);
    return r->growth <= MAX_GROWTH
               ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "%s: its steps may make a text over %u times longer", r->name,
                              MAX_GROWTH);
}

typedef by_status (*step_reader)(pipeline_reader *r, const json_t *step, by_error *error);

/* Reads the steps of a part: the part itself, or the list at `key` of a Sequence. */
static by_status each_step(pipeline_reader *r, const json_t *part, const char *key, unsigned depth,
                           step_reader read, by_error *error)
{
    if (!by__tokenizer_json_is_type(part, "Sequence")) {
        return read(r, part, error);
    }
    const json_t *steps = json_object_get(part, key);
    if (!json_is_array(steps) || depth > 4) {
        return by_error_set(error, BY_EFORMAT, "%s: a Sequence without a list of %s", r->name, key);
    }
    for (size_t i = 0; i < json_array_size(steps); i++) {
        BY_TRY(each_step(r, json_array_get(steps, i), key, depth + 1, read, error));
    }
    return BY_OK;
}

static by_status copy_text(char **out, size_t *length, const json_t *value, const char *what,
                           const pipeline_reader *r, by_error *error)
{
    /* So that no file can make a short text very long. */
    if (!json_is_string(value) || json_string_length(value) > 64) {
        return by_error_set(error, BY_EFORMAT, "%s: %s is not a text of at most 64 bytes", r->name,
                            what);
    }
    *length = json_string_length(value);
    *out = by__strndup(json_string_value(value), *length);
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: %s", what);
}

static by_status next_rewrite(pipeline_reader *r, by__tokenizer_rewrite_kind kind,
                              by__tokenizer_rewrite **out, by_error *error)
{
    by__tokenizer_pipeline *p = r->pipeline;
    if (p->rewrite_count == BY__MAX_REWRITES) {
        return by_error_set(error, BY_EFORMAT, "%s: more than %u steps change a text", r->name,
                            BY__MAX_REWRITES);
    }
    *out = &p->rewrites[p->rewrite_count++];
    (*out)->kind = kind;
    return BY_OK;
}

/* Reads {"pattern": {"String": ...} or {"Regex": ...}, "content": ...} of normalizers and
 * decoders. */
static by_status read_replace(pipeline_reader *r, const json_t *step, by__tokenizer_rewrite *w,
                              by_error *error)
{
    const json_t *pattern = json_object_get(step, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    BY_TRY(copy_text(&w->to, &w->to_length, json_object_get(step, "content"), "Replace content", r,
                     error));
    if (regex != NULL) {
        if (strcmp(regex, " {2,}") != 0) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: Replace of the pattern \"%.200s\" is not supported", r->name,
                                regex);
        }
        w->kind = BY__REWRITE_SPACES;
        return check_growth(r, 2, w->to_length, error);
    }
    BY_TRY(copy_text(&w->from, &w->from_length, json_object_get(pattern, "String"),
                     "Replace pattern", r, error));
    return w->from_length > 0
               ? check_growth(r, w->from_length, w->to_length, error)
               : by_error_set(error, BY_EFORMAT, "%s: Replace of an empty text", r->name);
}

/* The actions of a normalizer that rewrites characters one by one; 0: it does not. */
static by_status read_actions(pipeline_reader *r, const json_t *step, unsigned *actions,
                              by_error *error)
{
    bool clean = false;
    bool separate = false;
    bool lower = false;
    bool accents = false;
    bool bert = by__tokenizer_json_is_type(step, "BertNormalizer");
    *actions = by__tokenizer_json_is_type(step, "Lowercase")      ? BY__CHARACTERS_LOWER_CASE
               : by__tokenizer_json_is_type(step, "StripAccents") ? BY__CHARACTERS_MARKS
                                                                  : 0;
    if (!bert) {
        return BY_OK;
    }
    BY_TRY(by__tokenizer_json_bool(step, "clean_text", true, &clean, r->name, error));
    BY_TRY(by__tokenizer_json_bool(step, "handle_chinese_chars", true, &separate, r->name, error));
    BY_TRY(by__tokenizer_json_bool(step, "lowercase", true, &lower, r->name, error));
    accents = lower;
    if (!by__tokenizer_json_absent(step, "strip_accents")) {
        BY_TRY(by__tokenizer_json_bool(step, "strip_accents", lower, &accents, r->name, error));
    }
    *actions = (clean ? BY__CHARACTERS_CLEAN : 0u) | (separate ? BY__CHARACTERS_SEPARATE : 0u) |
               (accents ? BY__CHARACTERS_ACCENTS : 0u) | (lower ? BY__CHARACTERS_LOWER_CASE : 0u);
    return BY_OK;
}

static by_status read_charsmap(pipeline_reader *r, const json_t *step, by__tokenizer_rewrite *w,
                               by_error *error)
{
    const json_t *value = json_object_get(step, "precompiled_charsmap");
    size_t n = json_string_length(value);
    uint8_t *data;
    if (!by_build_has(BY_BUILD_NETTLE)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: precompiled_charsmap is in base64, which a build without nettle "
                            "does not read",
                            r->name);
    }
    BY_TRY(by__alloc((void **)&data, BY__BASE64_BYTES(n) + 1, 1, "map of characters", error));
    bool read = json_is_string(value) && by__read_base64(json_string_value(value), n, data, &n);
    by_status status =
        read ? by__tokenizer_charsmap_make(&w->map, data, n, r->name, error)
             : by_error_set(error, BY_EFORMAT, "%s: precompiled_charsmap is not base64", r->name);
    free(data);
    return status == BY_OK ? check_growth(r, 1, by__tokenizer_charsmap_longest(w->map), error)
                           : status;
}

static by_status read_normalizer(pipeline_reader *r, const json_t *step, by_error *error)
{
    static const struct {
        const char *type;
        by__text_form form;
        size_t most; /* largest lengthening: U+FDFA has 3 bytes, and 33 when decomposed */
    } forms[] = {
        {"NFC", BY__NFC, 3}, {"NFD", BY__NFD, 3}, {"NFKC", BY__NFKC, 11}, {"NFKD", BY__NFKD, 11}};
    by__tokenizer_rewrite *w;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(forms); i++) {
        if (by__tokenizer_json_is_type(step, forms[i].type)) {
            BY_TRY(next_rewrite(r, BY__REWRITE_FORM, &w, error));
            w->form = forms[i].form;
            return check_growth(r, 1, forms[i].most, error);
        }
    }
    unsigned actions;
    BY_TRY(read_actions(r, step, &actions, error));
    if (actions != 0 || by__tokenizer_json_is_type(step, "BertNormalizer")) {
        BY_TRY(next_rewrite(r, BY__REWRITE_CHARACTERS, &w, error));
        w->actions = actions;
        BY_TRY(check_growth(r, 1, (actions & BY__CHARACTERS_ACCENTS) != 0 ? 3 : 1, error));
        BY_TRY(check_growth(r, 1, (actions & BY__CHARACTERS_SEPARATE) != 0 ? 2 : 1, error));
        return check_growth(r, 1, (actions & BY__CHARACTERS_LOWER_CASE) != 0 ? 2 : 1, error);
    }
    if (by__tokenizer_json_is_type(step, "Precompiled")) {
        BY_TRY(next_rewrite(r, BY__REWRITE_MAP, &w, error));
        return read_charsmap(r, step, w, error);
    }
    if (by__tokenizer_json_is_type(step, "Replace")) {
        BY_TRY(next_rewrite(r, BY__REWRITE_REPLACE, &w, error));
        return read_replace(r, step, w, error);
    }
    if (by__tokenizer_json_is_type(step, "Prepend")) {
        BY_TRY(next_rewrite(r, BY__REWRITE_PREPEND, &w, error));
        return copy_text(&w->to, &w->to_length, json_object_get(step, "prepend"), "Prepend text", r,
                         error);
    }
    if (by__tokenizer_json_is_type(step, "Strip")) {
        BY_TRY(next_rewrite(r, BY__REWRITE_STRIP, &w, error));
        BY_TRY(by__tokenizer_json_bool(step, "strip_left", true, &w->left, r->name, error));
        return by__tokenizer_json_bool(step, "strip_right", true, &w->right, r->name, error);
    }
    return by__tokenizer_json_refuse(r->name, "normalizer", step, error);
}

static by_status next_splitter(pipeline_reader *r, by__tokenizer_splitter_kind kind,
                               by__tokenizer_splitter **out, by_error *error)
{
    by__tokenizer_pipeline *p = r->pipeline;
    if (p->splitter_count == BY__MAX_SPLITTERS) {
        return by_error_set(error, BY_EFORMAT, "%s: more than %u pre-tokenizers", r->name,
                            BY__MAX_SPLITTERS);
    }
    *out = &p->splitters[p->splitter_count++];
    **out = (by__tokenizer_splitter){.kind = kind};
    return BY_OK;
}

/* Pre-tokenizers that modify the text must come before those that split. */
static by_status next_prefix(pipeline_reader *r, const json_t *step,
                             by__tokenizer_rewrite_kind kind, const char *text,
                             by__tokenizer_rewrite **out, by_error *error)
{
    if (r->pipeline->splitter_count > 0) {
        return by__tokenizer_json_refuse(r->name, "behind another pre-tokenizer, a prefix of", step,
                                         error);
    }
    BY_TRY(next_rewrite(r, kind, out, error));
    (*out)->to_length = strlen(text);
    (*out)->to = by__strdup(text);
    return (*out)->to != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: prefix");
}

static by_status set_literal(by__tokenizer_splitter *s, const char *text, size_t length,
                             const pipeline_reader *r, by_error *error)
{
    if (length == 0 || length > sizeof s->literal) {
        return by_error_set(error, BY_EFORMAT, "%s: Split at \"%.60s\" is not supported", r->name,
                            text);
    }
    memcpy(s->literal, text, length);
    s->literal_length = length;
    return BY_OK;
}

static by_status read_metaspace(pipeline_reader *r, const json_t *step, by_error *error)
{
    const char *mark = json_string_value(json_object_get(step, "replacement"));
    const char *scheme = json_string_value(json_object_get(step, "prepend_scheme"));
    bool split;
    bool prefix;
    by__tokenizer_rewrite *w;
    by__tokenizer_splitter *s;
    if (mark == NULL || mark[0] == '\0' || strlen(mark) > 4) {
        return by__tokenizer_json_refuse(r->name, "without a replacement, pre_tokenizer", step,
                                         error);
    }
    BY_TRY(by__tokenizer_json_bool(step, "split", true, &split, r->name, error));
    /* Early versions have add_prefix_space instead of the scheme. */
    BY_TRY(by__tokenizer_json_bool(step, "add_prefix_space", true, &prefix, r->name, error));
    scheme = scheme != NULL ? scheme : prefix ? "always" : "never";
    BY_TRY(check_growth(r, 1, strlen(mark), error));
    by__tokenizer_pipeline *p = r->pipeline;
    if (p->splitter_count == 1 && p->splitters[0].kind == BY__SPLIT_SPACES && split &&
        strcmp(scheme, "always") == 0) {
        /* A mark then begins every word, so words need not be split before. */
        p->splitter_count = 0;
        BY_TRY(check_growth(r, 1, strlen(mark) + 1, error));
        BY_TRY(next_prefix(r, step, BY__REWRITE_WORDS, mark, &w, error));
        BY_TRY(next_splitter(r, BY__SPLIT_BEHIND, &s, error));
        return set_literal(s, mark, strlen(mark), r, error);
    }
    BY_TRY(next_prefix(r, step, BY__REWRITE_REPLACE, mark, &w, error));
    w->from = by__strdup(" ");
    w->from_length = 1;
    if (w->from == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: Metaspace");
    }
    if (strcmp(scheme, "always") == 0) {
        BY_TRY(next_prefix(r, step, BY__REWRITE_PREFIX, mark, &w, error));
    } else if (strcmp(scheme, "first") == 0) {
        BY_TRY(next_prefix(r, step, BY__REWRITE_PREFIX_FIRST, mark, &w, error));
    } else if (strcmp(scheme, "never") != 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: Metaspace prepend_scheme \"%.60s\" is not known", r->name, scheme);
    }
    if (!split) {
        return BY_OK;
    }
    BY_TRY(next_splitter(r, BY__SPLIT_BEHIND, &s, error));
    return set_literal(s, mark, strlen(mark), r, error);
}

/* Reads a split at a literal: how the literal joins the text around it. */
static by_status read_split_text(pipeline_reader *r, const json_t *step, const char *text,
                                 const char *behavior, bool invert, by_error *error)
{
    static const struct {
        const char *behavior;
        by__tokenizer_splitter_kind kind;
    } kinds[] = {{"Isolated", BY__SPLIT_ALONE},
                 {"MergedWithPrevious", BY__SPLIT_BEFORE},
                 {"MergedWithNext", BY__SPLIT_BEHIND}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        if (strcmp(kinds[i].behavior, behavior) == 0 && !invert) {
            by__tokenizer_splitter *s;
            BY_TRY(next_splitter(r, kinds[i].kind, &s, error));
            return set_literal(
                s, text,
                json_string_length(json_object_get(json_object_get(step, "pattern"), "String")), r,
                error);
        }
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s: Split at \"%.60s\" with behavior %.60s%s is not "
                        "supported",
                        r->name, text, behavior, invert ? " inverted" : "");
}

static by_status read_split(pipeline_reader *r, const json_t *step, by_error *error)
{
    const json_t *pattern = json_object_get(step, "pattern");
    const char *behavior = json_string_value(json_object_get(step, "behavior"));
    const char *text = json_string_value(json_object_get(pattern, "String"));
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    bool invert;
    by__tokenizer_splitter *s;
    BY_TRY(by__tokenizer_json_bool(step, "invert", false, &invert, r->name, error));
    if (behavior == NULL || (text == NULL && regex == NULL)) {
        return by_error_set(error, BY_EFORMAT, "%s: Split lacks its pattern or behavior", r->name);
    }
    if (text != NULL) {
        return read_split_text(r, step, text, behavior, invert, error);
    }
    bool isolated = strcmp(behavior, "Isolated") == 0;
    bool groups = strcmp(regex, "\\p{N}{1,3}") == 0;
    if (isolated && !invert && (groups || strcmp(regex, "\\p{N}") == 0)) {
        BY_TRY(next_splitter(r, BY__SPLIT_NUMBERS, &s, error));
        s->digits = groups ? 3 : 1;
        return BY_OK;
    }
    const by__tokenizer_split_rule *rule = by__tokenizer_split_rule_find(regex);
    if (rule == NULL) {
        return by_error_set(
            error, BY_EFORMAT,
            "%s: Split with the pattern \"%.400s\" is not supported; known are those "
            "of GPT-2, GPT-4, GPT-4o, Llama 3, Qwen and Tekken (docs/tokenizers.md)",
            r->name, regex);
    }
    /* The known patterns match all of a text: there is nothing between the matches. */
    if (!isolated && !(invert && strcmp(behavior, "Removed") == 0)) {
        return by_error_set(error, BY_EFORMAT, "%s: Split with behavior %.60s%s is not supported",
                            r->name, behavior, invert ? " inverted" : "");
    }
    BY_TRY(next_splitter(r, rule->gpt2 ? BY__SPLIT_GPT2 : BY__SPLIT_RULE, &s, error));
    s->rule = rule;
    return BY_OK;
}

static by_status read_pre_tokenizer(pipeline_reader *r, const json_t *step, by_error *error)
{
    by__tokenizer_splitter *s;
    by__tokenizer_rewrite *w;
    if (by__tokenizer_json_is_type(step, "ByteLevel")) {
        bool prefix;
        bool pattern;
        BY_TRY(by__tokenizer_json_bool(step, "add_prefix_space", true, &prefix, r->name, error));
        BY_TRY(by__tokenizer_json_bool(step, "use_regex", true, &pattern, r->name, error));
        if (prefix) {
            BY_TRY(next_prefix(r, step, BY__REWRITE_PREFIX, " ", &w, error));
        }
        return pattern ? next_splitter(r, BY__SPLIT_GPT2, &s, error) : BY_OK;
    }
    if (by__tokenizer_json_is_type(step, "Split")) {
        return read_split(r, step, error);
    }
    if (by__tokenizer_json_is_type(step, "Digits")) {
        bool individually;
        BY_TRY(by__tokenizer_json_bool(step, "individual_digits", false, &individually, r->name,
                                       error));
        BY_TRY(next_splitter(r, BY__SPLIT_NUMBERS, &s, error));
        s->digits = individually ? 1 : 0;
        return BY_OK;
    }
    if (by__tokenizer_json_is_type(step, "WhitespaceSplit")) {
        return next_splitter(r, BY__SPLIT_SPACES, &s, error);
    }
    if (by__tokenizer_json_is_type(step, "BertPreTokenizer")) {
        return next_splitter(r, BY__SPLIT_BERT, &s, error);
    }
    return by__tokenizer_json_is_type(step, "Metaspace")
               ? read_metaspace(r, step, error)
               : by__tokenizer_json_refuse(r->name, "pre_tokenizer", step, error);
}

static by_status read_template_ids(pipeline_reader *r, const json_t *step, const char *id,
                                   bool behind, by_error *error)
{
    by__tokenizer_pipeline *p = r->pipeline;
    const json_t *special = json_object_get(json_object_get(step, "special_tokens"), id);
    const json_t *ids = json_object_get(special, "ids");
    size_t *count = behind ? &p->after_count : &p->before_count;
    uint32_t *list = behind ? p->after : p->before;
    if (!json_is_array(ids) || json_array_size(ids) > BY__MAX_ADDED_IDS - *count) {
        return by_error_set(error, BY_EFORMAT, "%s: post_processor lacks the ids of \"%.60s\"",
                            r->name, id);
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *value = json_array_get(ids, i);
        json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
        if (number < 0 || (uint64_t)number >= r->tokenizer->vocab) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: post_processor has an id that is not below %u", r->name,
                                (unsigned)r->tokenizer->vocab);
        }
        list[(*count)++] = (uint32_t)number;
    }
    r->changes = true;
    return BY_OK;
}

static by_status read_template(pipeline_reader *r, const json_t *step, by_error *error)
{
    const json_t *single = json_object_get(step, "single");
    unsigned sequences = 0;
    if (!json_is_array(single) || r->changes) {
        return by__tokenizer_json_refuse(
            r->name, "without a single template, or twice, post_processor", step, error);
    }
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");
        const char *id = json_string_value(json_object_get(special, "id"));
        if (json_object_get(item, "Sequence") != NULL) {
            sequences++;
        } else if (id != NULL) {
            BY_TRY(read_template_ids(r, step, id, sequences > 0, error));
        } else {
            return by__tokenizer_json_refuse(r->name, "a part of post_processor", step, error);
        }
    }
    return sequences == 1 ? BY_OK
                          : by__tokenizer_json_refuse(r->name, "without one text, post_processor",
                                                      step, error);
}

/* Reads {"sep": ["[SEP]", id], "cls": ["[CLS]", id]} of BertProcessing and RobertaProcessing. */
static by_status read_classes(pipeline_reader *r, const json_t *step, by_error *error)
{
    static const char *const keys[] = {"cls", "sep"};
    by__tokenizer_pipeline *p = r->pipeline;
    uint32_t *to[] = {p->before, p->after};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        const json_t *id = json_array_get(json_object_get(step, keys[i]), 1);
        json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
        if (number < 0 || (uint64_t)number >= r->tokenizer->vocab || r->changes) {
            return by__tokenizer_json_refuse(
                r->name, "without ids of the vocabulary, or twice, post_processor", step, error);
        }
        to[i][0] = (uint32_t)number;
    }
    p->before_count = p->after_count = 1;
    r->changes = true;
    return BY_OK;
}

static by_status read_post_processor(pipeline_reader *r, const json_t *step, by_error *error)
{
    if (by__tokenizer_json_is_type(step, "ByteLevel")) {
        return BY_OK; /* affects offsets only */
    }
    if (by__tokenizer_json_is_type(step, "BertProcessing") ||
        by__tokenizer_json_is_type(step, "RobertaProcessing")) {
        return read_classes(r, step, error);
    }
    return by__tokenizer_json_is_type(step, "TemplateProcessing")
               ? read_template(r, step, error)
               : by__tokenizer_json_refuse(r->name, "post_processor", step, error);
}

static by_status read_strip(pipeline_reader *r, const json_t *step, by_error *error)
{
    by__tokenizer_pipeline *p = r->pipeline;
    const char *content = json_string_value(json_object_get(step, "content"));
    json_int_t start = json_integer_value(json_object_get(step, "start"));
    json_int_t stop = json_integer_value(json_object_get(step, "stop"));
    if (!r->fused || content == NULL || content[0] == '\0' || strlen(content) > sizeof p->strip ||
        start < 0 || start > 1000 || stop != 0 || p->strip_count > 0) {
        return by__tokenizer_json_refuse(r->name, "before Fuse or at the end of a text, decoder",
                                         step, error);
    }
    p->strip_length = strlen(content);
    memcpy(p->strip, content, p->strip_length);
    p->strip_count = (size_t)start;
    return BY_OK;
}

static by_status read_word_decoder(pipeline_reader *r, const json_t *step, by_error *error)
{
    by__tokenizer_pipeline *p = r->pipeline;
    if (p->spaced || p->replacement_count > 0 || p->decode_bytes) {
        return by__tokenizer_json_refuse(r->name, "behind another decoder, decoder", step, error);
    }
    p->spaced = true;
    BY_TRY(by__tokenizer_json_bool(step, "cleanup", true, &p->cleanup, r->name, error));
    return copy_text(&p->continuing, &p->continuing_length, json_object_get(step, "prefix"),
                     "WordPiece prefix", r, error);
}

static by_status read_decoder(pipeline_reader *r, const json_t *step, by_error *error)
{
    by__tokenizer_pipeline *p = r->pipeline;
    if (by__tokenizer_json_is_type(step, "Fuse")) {
        r->fused = true;
        return BY_OK;
    }
    if (r->tokenizer->byte_level) {
        return by__tokenizer_json_is_type(step, "ByteLevel")
                   ? BY_OK
                   : by__tokenizer_json_refuse(r->name, "decoder", step, error);
    }
    if (by__tokenizer_json_is_type(step, "WordPiece") && !r->fused) {
        return read_word_decoder(r, step, error);
    }
    if (by__tokenizer_json_is_type(step, "Strip")) {
        return read_strip(r, step, error);
    }
    if (by__tokenizer_json_is_type(step, "ByteFallback") && !r->fused && !p->spaced) {
        p->decode_bytes = true;
        return BY_OK;
    }
    bool metaspace = by__tokenizer_json_is_type(step, "Metaspace");
    if ((!metaspace && !by__tokenizer_json_is_type(step, "Replace")) || r->fused ||
        p->decode_bytes || p->spaced || p->replacement_count == BY__MAX_REWRITES ||
        (metaspace && p->replacement_count > 0)) {
        return by__tokenizer_json_refuse(r->name, "decoder", step, error);
    }
    by__tokenizer_rewrite *w = &p->replacements[p->replacement_count++];
    w->kind = BY__REWRITE_REPLACE;
    if (!metaspace) {
        return read_replace(r, step, w, error);
    }
    const char *scheme = json_string_value(json_object_get(step, "prepend_scheme"));
    bool prefix;
    BY_TRY(by__tokenizer_json_bool(step, "add_prefix_space", true, &prefix, r->name, error));
    p->drop_first = scheme != NULL ? strcmp(scheme, "never") != 0 : prefix;
    w->to = by__strdup(" ");
    w->to_length = 1;
    BY_TRY(copy_text(&w->from, &w->from_length, json_object_get(step, "replacement"),
                     "Metaspace replacement", r, error));
    return w->to != NULL && w->from_length > 0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: Metaspace without a replacement", r->name);
}

bool by__tokenizer_pipeline_is_byte_level(const json_t *pre)
{
    const json_t *steps = json_object_get(pre, "pretokenizers");
    if (by__tokenizer_json_is_type(pre, "ByteLevel")) {
        return true;
    }
    for (size_t i = 0; by__tokenizer_json_is_type(pre, "Sequence") && i < json_array_size(steps);
         i++) {
        if (by__tokenizer_json_is_type(json_array_get(steps, i), "ByteLevel")) {
            return true;
        }
    }
    return false;
}

/* Returns true if the parts are those that tokenizer_write.c generates by default. */
static bool is_default(const pipeline_reader *r)
{
    const by_tokenizer *t = r->tokenizer;
    const by__tokenizer_pipeline *p = r->pipeline;
    bool gpt2 = t->byte_level && p->splitter_count == 1 && p->splitters[0].kind == BY__SPLIT_GPT2;
    return (gpt2 || t->characters) && p->rewrite_count == 0 && !r->changes;
}

by_status by__tokenizer_pipeline_read(by_tokenizer *t, const json_t *root, const char *name,
                                      by_error *error)
{
    static const char *const keys[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    static const char *const lists[] = {"normalizers", "pretokenizers", "processors", "decoders"};
    static const step_reader readers[] = {read_normalizer, read_pre_tokenizer, read_post_processor,
                                          read_decoder};
    pipeline_reader r = {.tokenizer = t, .pipeline = &t->pipeline, .name = name};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        if (!by__tokenizer_json_absent(root, keys[i])) {
            BY_TRY(each_step(&r, json_object_get(root, keys[i]), lists[i], 0, readers[i], error));
        } else if (i == 3 && t->model->end != NULL) {
            t->pipeline.spaced = true; /* tokens with spaces between them */
        } else if (i == 3) {
            return by__tokenizer_json_refuse(name, "a missing decoder", NULL, error);
        }
        if (i == 0) {
            t->pipeline.normalizers = t->pipeline.rewrite_count;
        }
    }
    if (is_default(&r)) {
        return BY_OK;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        const json_t *part = json_object_get(root, keys[i]);
        t->pipeline.source[i] =
            part == NULL ? by__strdup("null") : by__json_dump(part, JSON_COMPACT | JSON_ENCODE_ANY);
        if (t->pipeline.source[i] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: %s", keys[i]);
        }
    }
    return BY_OK;
}
