/* The config module: what is printed reads back, copies are whole, and which values a hash takes
 * in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/schema.h"
#include "config_text.h"

/* Keys that came later leave the hashes of configs without them as they were. */
static void test_hash_of_earlier_configs(void **state)
{
    BY_UNUSED(state);
    char hash[33];
    char grouped[33];
    by_config *config = config_good("precision: {compute: f32}\n");
    assert_int_equal(by_config_resolve(config, NULL), BY_OK);
    assert_int_equal(by_config_hash(config, hash, NULL), BY_OK);
    /* A key that was added since needs `.later = true`. */
    assert_string_equal(hash, "fd89e58a77deeb15d4873c353c66035b");
    assert_int_equal(by_config_set(config, "optimizer.groups=[{match: a}]", NULL), BY_OK);
    assert_int_equal(by_config_hash(config, grouped, NULL), BY_OK);
    assert_string_not_equal(hash, grouped);
    by_config_close(&config);
}

/* Two records; of groups the first has defaults. */
static void change_records(by__config_entry *entry)
{
    by__config_node node = {0};
    by_error error = {0};
    bool groups = strcmp(entry->key.name, "groups") == 0;
    by_status status = by__config_read_value(
        &node,
        groups ? "[{match: \"*.bi as\"}, {match: a, lr_scale: 0.1, frozen: true}]"
               : "[{batch: 3, steps: 4}, {batch: 7, steps: 1}]",
        "test", &error);
    status = status == BY_OK ? by__config_value_set(entry, &node, "test", &error) : status;
    if (status != BY_OK) {
        fail_msg("%s", error.message);
    }
    by__config_node_free(&node);
}

static bool same_value(const by__config_entry *a, const by__config_entry *b);

static bool same_records(const by__config_entry *a, const by__config_entry *b)
{
    const by_record_list *left = a->at;
    const by_record_list *right = b->at;
    bool same = left->count == right->count;
    for (size_t r = 0; r < left->count && same; r++) {
        for (size_t i = 0; i < a->key.fields->count && same; i++) {
            const by__config_key *field = &a->key.fields->rows[i];
            size_t at = r * a->key.size + field->place.offset;
            by__config_entry x = {.key = *field, .at = (char *)left->items + at};
            by__config_entry y = {.key = *field, .at = (char *)right->items + at};
            same = same_value(&x, &y);
        }
    }
    return same;
}

/* Gives every field a value that is not its default, through the fields themselves. */
static void change_all(by__config *config)
{
    for (size_t i = 0; i < config->count; i++) {
        const by__config_key *key = &config->entries[i].key;
        void *at = config->entries[i].at;
        double span = key->max - key->min;
        const char *bar = key->choices == NULL ? NULL : strrchr(key->choices, '|');
        by__config_value_free(&config->entries[i]);
        switch (key->type) {
        case BY__KEY_INT:
        case BY__KEY_SIZE:
            *(int64_t *)at = (int64_t)(key->min + (double)(1 + i % (span < 7 ? (size_t)span : 7))) +
                             9000 * (key->max > 1e5);
            *(int64_t *)at += *(int64_t *)at == strtoll(key->fallback, NULL, 10);
            break;
        case BY__KEY_SWITCH:
            *(int64_t *)at = strcmp(key->fallback, "true") != 0;
            break;
        case BY__KEY_SEED:
            *(uint64_t *)at = UINT64_MAX - 4;
            break;
        case BY__KEY_SHARE:
            *(double *)at = 1.0 / 3.0;
            break;
        case BY__KEY_REAL:
        case BY__KEY_TIME:
        case BY__KEY_PAIR:
            ((double *)at)[0] = key->min + span / 3.0;
            if (key->type == BY__KEY_PAIR) {
                ((double *)at)[1] = key->min + span * 0.1234567890123456789;
            }
            break;
        case BY__KEY_TEXT:
            *(char **)at = by__strdup(
                key->choices != NULL
                    ? (bar == NULL ? key->choices : bar + 1)
                    : "x\xc3\xa9 \"q\" \\ #: "
                      "\t\n\r\x01\x7f\xc2\x85 \xe2\x80\xa8 \xef\xbb\xbf\xf0\x9f\x8c\xb3");
            break;
        case BY__KEY_TEXTS:
            ((by_string_list *)at)->items = calloc(4, sizeof(char *));
            ((by_string_list *)at)->count = 4;
            ((by_string_list *)at)->items[0] = by__strdup("plain/path-1.txt");
            ((by_string_list *)at)->items[1] = by__strdup("null");
            ((by_string_list *)at)->items[2] = by__strdup("- [a, b]: {c}");
            ((by_string_list *)at)->items[3] = by__strdup("");
            break;
        case BY__KEY_RECORDS:
            change_records(&config->entries[i]);
            break;
        }
    }
}

static bool same_value(const by__config_entry *a, const by__config_entry *b)
{
    const by_string_list *left = a->at;
    const by_string_list *right = b->at;
    if (a->key.type == BY__KEY_TEXT) {
        return strcmp(*(char **)a->at, *(char **)b->at) == 0;
    }
    if (a->key.type == BY__KEY_TEXTS) {
        bool same = left->count == right->count;
        for (size_t i = 0; i < left->count && same; i++) {
            same = strcmp(left->items[i], right->items[i]) == 0;
        }
        return same;
    }
    if (a->key.type == BY__KEY_RECORDS) {
        return same_records(a, b);
    }
    return memcmp(left, right, a->key.type == BY__KEY_PAIR ? 16 : 8) == 0;
}

/* Every key of the kinds that are chosen reads back as it was printed. */
static void test_round_trip(void **state)
{
    BY_UNUSED(state);
    by_config *config = config_good("");
    by_config *defaults = config_good("");
    const by__config *whole = (const by__config *)config;
    change_all((by__config *)config);
    char *text = config_printed(config);
    by_config *again = config_good(text);
    for (size_t i = 0; i < whole->count; i++) {
        const by__config_entry *entry = &whole->entries[i];
        const by__config_key *key = &entry->key;
        bool one_choice = key->choices != NULL && strchr(key->choices, '|') == NULL;
        if (!one_choice && same_value(entry, &((by__config *)defaults)->entries[i])) {
            fail_msg("%s.%s was not changed", key->section, key->name);
        }
        if (by__config_entry_active(whole, entry) &&
            !same_value(entry, &((by__config *)again)->entries[i])) {
            fail_msg("%s.%s reads back differently:\n%s", key->section, key->name, text);
        }
    }
    char *second = config_printed(again);
    assert_string_equal(text, second);
    free(text);
    free(second);
    by_config_close(&again);
    by_config_close(&config);
    by_config_close(&defaults);
}

/* A copy has every value, of kinds that are not chosen too, and remembers where each was set. */
static void test_copy(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *copy = NULL;
    by_config *config = config_good("model:\n  kind: llama\n  rope_theta: 3\n");
    change_all((by__config *)config);
    assert_int_equal(by_config_copy(&copy, config, &error), BY_OK);
    for (size_t i = 0; i < ((by__config *)copy)->count; i++) {
        const by__config_entry *left = &((by__config *)config)->entries[i];
        const by__config_entry *right = &((by__config *)copy)->entries[i];
        assert_ptr_not_equal(left->at, right->at);
        if (!same_value(left, right)) {
            fail_msg("%s.%s is another", left->key.section, left->key.name);
        }
    }
    by_config_close(&config);
    assert_int_equal(by_config_set(copy, "model.kind=gpt2", &error), BY_OK);
    assert_int_equal(by_config_resolve(copy, &error), BY_ECONFIG);
    assert_string_equal(
        error.message,
        "train.yaml:3: model.rope_theta belongs to llama, mixtral; the kind here is gpt2");
    by_config_close(&copy);
    config = config_good("");
    config->train.steps = 0;
    assert_int_equal(by_config_copy(&copy, config, &error), BY_ECONFIG);
    assert_null(copy);
    by_config_close(&config);
}

static void test_hash(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *text;
        bool equal;
    } cases[] = {
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\n", true},
        {"# other order, other form\nmodel:\n  layers: 2\ntrain:\n  batch: 3\n  steps: 7.7e1\n",
         true},
        {"name: other\nrun: {dir: elsewhere}\ntrain: {steps: 77, batch: 3}\nmodel: {layers: "
         "2}\n",
         true},
        {"train: {steps: 78, batch: 3}\nmodel: {layers: 2}\n", false},
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\nseed: 1\n", false},
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\nmemory: {recompute: block}\n", false},
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\n"
         "parallel: {data: 3, shard: 2, zero: 3, pipeline: 4, overlap: false, bucket_mib: 4}\n",
         true},
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\nparallel: {tensor: 2}\n", false},
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\nparallel: {expert: 3}\n", false},
    };
    /* `zero` changes bits with sequence and shard, not with one of them. */
    static const char *const zeros[][2] = {
        {"parallel: {sequence: 2, shard: 2}\n", "parallel: {sequence: 2, shard: 2, zero: 2}\n"},
        {"parallel: {sequence: 2}\n", "parallel: {sequence: 2, zero: 2}\n"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(zeros); i++) {
        char hashes[2][33];
        for (size_t k = 0; k < 2; k++) {
            by_config *config = config_good(zeros[i][k]);
            assert_int_equal(by_config_hash(config, hashes[k], NULL), BY_OK);
            by_config_close(&config);
        }
        assert_int_equal(strcmp(hashes[0], hashes[1]) == 0, i == 1);
    }
    char first[33] = "";
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        char hash[33];
        by_config *config = config_good(cases[i].text);
        assert_int_equal(by_config_hash(config, hash, NULL), BY_OK);
        by_config_close(&config);
        assert_int_equal(strlen(hash), 32);
        if (i == 0) {
            memcpy(first, hash, sizeof first);
        }
        assert_true((strcmp(first, hash) == 0) == cases[i].equal);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_hash_of_earlier_configs),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
