/* Parses one value, checks it against its key's row and stores it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"

/* A checked value of any type except text. */
typedef struct checked_number {
    int64_t whole;
    uint64_t seed;
    double real[2];
} checked_number;

by_status by__config_node_add(by__config_node *node, const char *text, size_t length, bool quoted,
                              by_error *error)
{
    BY_TRY(by__reserve((void **)&node->items, &node->capacity, node->count + 1, sizeof *node->items,
                       error));
    char *copy = by__strndup(text, length);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a config value");
    }
    node->items[node->count++] = (by__config_scalar){.text = copy, .quoted = quoted};
    return BY_OK;
}

const char *by__config_item_where(char buffer[BY__CONFIG_WHERE], const char *where,
                                  const by__config_scalar *item)
{
    const char *colon = strrchr(where, ':');
    if (item->line == 0 || colon == NULL || colon[1 + strspn(colon + 1, "0123456789")] != '\0') {
        return where;
    }
    (void)snprintf(buffer, BY__CONFIG_WHERE, "%.*s:%zu", (int)(colon - where), where, item->line);
    return buffer;
}

void by__config_node_free(by__config_node *node)
{
    for (size_t i = 0; i < node->count; i++) {
        free(node->items[i].text);
        free(node->items[i].field);
    }
    free(node->items);
    *node = (by__config_node){0};
}

/* ---- ranges ---- */

static bool above_and_below(const by__config_key *key, double value)
{
    bool low = (key->open & BY__ABOVE_MIN) != 0 ? value > key->min : value >= key->min;
    bool high = (key->open & BY__BELOW_MAX) != 0 ? value < key->max : value <= key->max;
    return low && high;
}

/* Compares as f32, in which kernels compute: an eps that rounds to 0 or a dropout that rounds to 1
 * is out of range. */
static bool real_in_range(const by__config_key *key, double value)
{
    if (key->derived != NULL && value == -1.0) {
        return true;
    }
    return above_and_below(key, value) && above_and_below(key, (double)(float)value);
}

/* A share below 1, or a whole number. */
static bool share_in_range(const by__config_key *key, double value)
{
    return real_in_range(key, value) && (value < 1.0 || value == floor(value));
}

static bool int_in_range(const by__config_key *key, int64_t value)
{
    if (key->derived != NULL && value == -1) {
        return true;
    }
    if (key->type == BY__KEY_SWITCH) {
        return value == 0 || value == 1;
    }
    /* All bounds are whole and below 2^53, so the comparison is exact. */
    return value >= (int64_t)key->min && value <= (int64_t)key->max;
}

static bool text_is_accepted(const by__config_key *key, const char *text)
{
    if (key->choices == NULL) {
        return (double)strlen(text) >= key->min && by__utf8_valid(text, strlen(text));
    }
    size_t length = strlen(text);
    for (const char *p = key->choices; p != NULL; p = strchr(p, '|')) {
        p += *p == '|';
        if (strncmp(p, text, length) == 0 && (p[length] == '|' || p[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* ---- errors ---- */

/* What others call values; all in lower case. */
static const char *const other_values[][2] = {
    {"float32", "f32"},        {"fp32", "f32"},
    {"single", "f32"},         {"bfloat16", "bf16"},
    {"float16", "fp16"},       {"f16", "fp16"},
    {"half", "fp16"},          {"adamw_hf", "adamw"},
    {"adamw_torch", "adamw"},  {"adamw_8bit", "adamw8bit"},
    {"mistral", "llama"},      {"llama2", "llama"},
    {"llama3", "llama"},       {"gpt", "gpt2"},
    {"gpt-2", "gpt2"},         {"moe", "mixtral"},
    {"regression", "regress"}, {"classification", "classify"},
    {"lm", "language"},        {"text", "language"},
    {"causal_lm", "language"}, {"mse", "squared"},
    {"squared", "mse"},        {"l1", "mae"},
    {"absolute", "mae"},       {"pinball", "quantile"},
    {"huber", "smooth_l1"}};

static bool same_letters(const char *a, const char *b)
{
    for (; *a != '\0' || *b != '\0'; a++, b++) {
        char lower = *a >= 'A' && *a <= 'Z' ? (char)(*a - 'A' + 'a') : *a;
        if (lower != *b) {
            return false;
        }
    }
    return true;
}

/* The choice that a value is spelled otherwise, or what another program calls it. */
static const char *known_choice(const char *const *names, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        if (same_letters(text, names[i])) {
            return names[i];
        }
        for (size_t k = 0; k < BY_ARRAY_LENGTH(other_values); k++) {
            if (same_letters(text, other_values[k][0]) &&
                strcmp(other_values[k][1], names[i]) == 0) {
                return names[i];
            }
        }
    }
    return NULL;
}

static const char *nearest_choice(char buffer[512], const by__config_key *key, const char *text)
{
    const char *names[64];
    size_t count = 0;
    (void)snprintf(buffer, 512, "%s", key->choices);
    for (char *p = buffer; p != NULL && count < BY_ARRAY_LENGTH(names);) {
        char *bar = strchr(p, '|');
        names[count++] = p;
        if (bar != NULL) {
            *bar++ = '\0';
        }
        p = bar;
    }
    const char *known = known_choice(names, count, text);
    return known != NULL ? known : by_nearest_name(text, names, count);
}

/* Reports "train.yaml:4: model.layers: "four" is not a whole number from 1 to 10000". */
static by_status refuse(const by__config_key *key, const char *shown, const char *where,
                        const char *note, by_error *error)
{
    char path[64];
    char choices[512];
    by_string accepts = {0};
    by__config_key_accepts(&accepts, key);
    const char *near = key->choices == NULL ? NULL : nearest_choice(choices, key, shown);
    double value;
    bool is_real = key->type == BY__KEY_REAL || key->type == BY__KEY_PAIR;
    bool rounds_out = is_real && by__config_parse_real(&value, shown) &&
                      above_and_below(key, value) && !above_and_below(key, (double)(float)value);
    by_status status = by_error_set(
        error, BY_ECONFIG, "%s: %s: \"%.60s%s\" is not %s%s%s%s%s%s", where,
        by__config_key_path(path, key), shown, strlen(shown) > 60 ? "..." : "",
        accepts.failed ? "accepted" : accepts.data, rounds_out ? " when it is rounded to f32" : "",
        near == NULL ? "" : "; did you mean \"", near == NULL ? "" : near,
        near == NULL ? "" : "\"?", note);
    by_string_free(&accepts);
    return status;
}

by_status by__config_value_refuse(const by__config_key *key, const char *what, const char *where,
                                  by_error *error)
{
    char path[64];
    by_string accepts = {0};
    by__config_key_accepts(&accepts, key);
    by_status status = by_error_set(error, BY_ECONFIG, "%s: %s: %s; it takes %s", where,
                                    by__config_key_path(path, key), what,
                                    accepts.failed ? "another value" : accepts.data);
    by_string_free(&accepts);
    return status;
}

/* ---- nodes to values ---- */

static bool is_null(const by__config_scalar *item)
{
    return !item->quoted && (item->text[0] == '\0' || strcmp(item->text, "~") == 0 ||
                             strcmp(item->text, "null") == 0);
}

static bool parse_switch(int64_t *out, const by__config_scalar *item, bool derivable)
{
    static const char *const words[] = {"false", "False", "FALSE", "true", "True", "TRUE"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(words); i++) {
        if (strcmp(item->text, words[i]) == 0) {
            *out = i >= 3;
            return true;
        }
    }
    *out = -1;
    return derivable && strcmp(item->text, "-1") == 0;
}

/* Converts one scalar according to the key's row. Quoted text is never a number. */
static bool convert(checked_number *out, size_t index, const by__config_key *key,
                    const by__config_scalar *item)
{
    bool negative = false;
    if (key->type == BY__KEY_TEXT || key->type == BY__KEY_TEXTS) {
        return text_is_accepted(key, item->text);
    }
    if (key->word != NULL && strcmp(item->text, key->word) == 0) {
        out->whole = -1;
        return true;
    }
    if (item->quoted) {
        return false;
    }
    switch (key->type) {
    case BY__KEY_INT:
        return by__config_parse_int(&out->whole, item->text) && int_in_range(key, out->whole);
    case BY__KEY_SIZE:
        return by__config_parse_size(&out->whole, item->text) && int_in_range(key, out->whole);
    case BY__KEY_SEED:
        return by__config_parse_whole(&out->seed, &negative, item->text) && !negative;
    case BY__KEY_SWITCH:
        return parse_switch(&out->whole, item, key->derived != NULL);
    case BY__KEY_TIME:
        return by__config_parse_time(&out->real[0], item->text) && real_in_range(key, out->real[0]);
    case BY__KEY_SHARE:
        return by__config_parse_real(&out->real[0], item->text) &&
               share_in_range(key, out->real[0]);
    case BY__KEY_REAL:
    case BY__KEY_PAIR:
        return by__config_parse_real(&out->real[index], item->text) &&
               real_in_range(key, out->real[index]);
    case BY__KEY_TEXT:
    case BY__KEY_TEXTS:
    case BY__KEY_RECORDS:
        break;
    }
    return false;
}

/* Refuses a scalar that is none of the key's values: for what was probably meant. */
static by_status refuse_item(const by__config_key *key, size_t index, const by__config_scalar *item,
                             const char *where, by_error *error)
{
    char path[64];
    char line[BY__CONFIG_WHERE];
    checked_number ignored = {0};
    by__config_scalar plain = *item;
    where = by__config_item_where(line, where, item);
    plain.quoted = false;
    if (item->quoted && convert(&ignored, index, key, &plain)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: %s: \"%s\" in quotes is a text: write it without them", where,
                            by__config_key_path(path, key), item->text);
    }
    return refuse(key, item->text, where,
                  item->wraps ? " (it goes on in the next line: is a '}' or ']' missing?)" : "",
                  error);
}

static by_status check(checked_number *out, const by__config_key *key, const by__config_node *node,
                       const char *where, by_error *error)
{
    size_t expected = key->type == BY__KEY_PAIR ? 2 : 1;
    if (key->type == BY__KEY_RECORDS) {
        return by__config_records_check(key, node, where, error);
    }
    if (node->records > 0) {
        return by__config_value_refuse(key, "a list of mappings", where, error);
    }
    if (key->type == BY__KEY_PAIR && !node->is_list) {
        return by__config_value_refuse(key, "a single value", where, error);
    }
    if (key->type != BY__KEY_TEXTS && key->type != BY__KEY_PAIR && node->is_list) {
        return by__config_value_refuse(key, "a list", where, error);
    }
    if (key->type != BY__KEY_TEXTS && node->count != expected) {
        char text[40];
        (void)snprintf(text, sizeof text, "a list of %zu", node->count);
        return by__config_value_refuse(key, text, where, error);
    }
    for (size_t i = 0; i < node->count; i++) {
        if (is_null(&node->items[i])) {
            return by__config_value_refuse(key, "no value", where, error);
        }
        if (!convert(out, i, key, &node->items[i])) {
            return refuse_item(key, i, &node->items[i], where, error);
        }
    }
    return BY_OK;
}

by_status by__config_value_check(const by__config_key *key, const by__config_node *node,
                                 const char *where, by_error *error)
{
    checked_number ignored = {0};
    return check(&ignored, key, node, where, error);
}

/* Copies a list; `item(from, i)` returns the text of element i. */
static by_status copy_list(by_string_list *out, const void *from, size_t count,
                           const char *(*item)(const void *from, size_t i), by_error *error)
{
    by_string_list list = {0};
    if (count > 0) {
        BY_TRY(by__alloc((void **)&list.items, count, sizeof *list.items, "a list", error));
    }
    for (size_t i = 0; i < count; i++) {
        list.items[i] = by__strdup(item(from, i));
        if (list.items[i] == NULL) {
            by__names_free(list.items, i);
            return by_error_set(error, BY_EMEMORY, "out of memory: a config value");
        }
    }
    list.count = count;
    *out = list;
    return BY_OK;
}

static const char *node_item(const void *node, size_t i)
{
    return ((const by__config_node *)node)->items[i].text;
}

static const char *list_item(const void *list, size_t i)
{
    return ((const by_string_list *)list)->items[i];
}

/* Whether a value that would be one text is empty. */
static bool is_no_text(const by__config_key *key, const by__config_node *node)
{
    return key->plain_if_one && node->count == 1 && node->items[0].text[0] == '\0';
}

by_status by__config_value_set(by__config_entry *entry, const by__config_node *node,
                               const char *where, by_error *error)
{
    const by__config_key *key = &entry->key;
    void *at = entry->at;
    checked_number value = {0};
    by_string_list list = {0};
    char *text = NULL;
    BY_TRY(check(&value, key, node, where, error));
    switch (key->type) {
    case BY__KEY_INT:
    case BY__KEY_SWITCH:
    case BY__KEY_SIZE:
        memcpy(at, &value.whole, sizeof value.whole);
        break;
    case BY__KEY_SEED:
        memcpy(at, &value.seed, sizeof value.seed);
        break;
    case BY__KEY_REAL:
    case BY__KEY_TIME:
    case BY__KEY_SHARE:
        memcpy(at, &value.real[0], sizeof value.real[0]);
        break;
    case BY__KEY_PAIR:
        memcpy(at, value.real, sizeof value.real);
        break;
    case BY__KEY_TEXT:
        text = by__strdup(node->items[0].text);
        if (text == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a config value");
        }
        by__config_value_free(entry);
        memcpy(at, &text, sizeof text);
        break;
    case BY__KEY_TEXTS:
        BY_TRY(copy_list(&list, node, is_no_text(key, node) ? 0 : node->count, node_item, error));
        by__config_value_free(entry);
        memcpy(at, &list, sizeof list);
        break;
    case BY__KEY_RECORDS:
        return by__config_records_set(entry, node, where, error);
    }
    return BY_OK;
}

by_status by__config_value_copy(by__config_entry *to, const by__config_entry *from, by_error *error)
{
    const by_string_list *list = from->at;
    by_string_list copied = {0};
    char *text;
    switch (from->key.type) {
    case BY__KEY_INT:
    case BY__KEY_SWITCH:
    case BY__KEY_SIZE:
    case BY__KEY_SEED:
    case BY__KEY_REAL:
    case BY__KEY_TIME:
    case BY__KEY_SHARE:
        memcpy(to->at, from->at, 8);
        break;
    case BY__KEY_PAIR:
        memcpy(to->at, from->at, 16);
        break;
    case BY__KEY_TEXT:
        text = by__strdup(*(char *const *)from->at);
        if (text == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a config value");
        }
        by__config_value_free(to);
        memcpy(to->at, &text, sizeof text);
        break;
    case BY__KEY_TEXTS:
        BY_TRY(copy_list(&copied, list, list->count, list_item, error));
        by__config_value_free(to);
        memcpy(to->at, &copied, sizeof copied);
        break;
    case BY__KEY_RECORDS:
        return by__config_records_copy(to, from, error);
    }
    return BY_OK;
}

by_status by__config_value_verify(const by__config_entry *entry, const char *where, by_error *error)
{
    const by__config_key *key = &entry->key;
    const void *at = entry->at;
    const by_string_list *list = at;
    const double *reals = at;
    char *const *text = at;
    bool good = true;
    switch (key->type) {
    case BY__KEY_INT:
    case BY__KEY_SWITCH:
    case BY__KEY_SIZE:
        good = int_in_range(key, *(const int64_t *)at);
        break;
    case BY__KEY_SEED:
        break;
    case BY__KEY_REAL:
    case BY__KEY_TIME:
        good = real_in_range(key, reals[0]);
        break;
    case BY__KEY_SHARE:
        good = share_in_range(key, reals[0]);
        break;
    case BY__KEY_PAIR:
        good = real_in_range(key, reals[0]) && real_in_range(key, reals[1]);
        break;
    case BY__KEY_TEXT:
        good = *text != NULL && text_is_accepted(key, *text);
        break;
    case BY__KEY_TEXTS:
        for (size_t i = 0; i < list->count && good; i++) {
            good = list->items[i] != NULL && text_is_accepted(key, list->items[i]);
        }
        break;
    case BY__KEY_RECORDS:
        return by__config_records_verify(entry, where, error);
    }
    if (good) {
        return BY_OK;
    }
    by_string shown = {0};
    if (key->type == BY__KEY_TEXT) {
        by__string_append(&shown, *text == NULL ? "NULL" : *text);
    } else if (key->type == BY__KEY_TEXTS) {
        by__string_append(&shown, "list with a NULL or bytes that are not UTF-8");
    } else {
        by__config_value_print(&shown, entry);
    }
    by_status status = refuse(key, shown.failed ? "?" : shown.data, where, "", error);
    by_string_free(&shown);
    return status;
}

void by__config_value_free(by__config_entry *entry)
{
    void *at = entry->at;
    if (entry->key.type == BY__KEY_TEXT) {
        char **text = at;
        free(*text);
        *text = NULL;
    } else if (entry->key.type == BY__KEY_TEXTS) {
        by_string_list *list = at;
        by__names_free(list->items, list->count);
        *list = (by_string_list){0};
    } else if (entry->key.type == BY__KEY_RECORDS) {
        by__config_records_free(entry);
    }
}
