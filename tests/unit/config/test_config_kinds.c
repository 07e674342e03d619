/* The config module: what is declared anywhere, keys that belong to the chosen kind, and their part
 * of the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/schema.h"
#include "config_text.h"

/* Whatever is declared anywhere: each key has a section and help, its type is that of the field
 * that holds it, and kinds that share a field agree on the default. */
static void test_declarations(void **state)
{
    BY_UNUSED(state);
    by_config *config = config_good("");
    const by__config *c = (const by__config *)config;
    for (size_t i = 0; i < c->count; i++) {
        const by__config_entry *e = &c->entries[i];
        const by__config_key *key = &e->key;
        assert_true(key->section[0] == '\0' ||
                    by__config_section_find(c->schema, key->section) != NULL);
        assert_true(key->help != NULL && key->help[0] != '\0');
        bool whole = key->type == BY__KEY_SWITCH || key->type == BY__KEY_SIZE;
        by__config_key_type holds =
            key->type == BY__KEY_SHARE || key->type == BY__KEY_TIME ? BY__KEY_REAL : key->type;
        assert_int_equal(key->place.holds, whole ? BY__KEY_INT : holds);
        assert_true(!key->place.own ||
                    key->place.offset + (key->type == BY__KEY_PAIR ? 16 : 8) <= e->kind->size);
        for (size_t k = 0; k < i; k++) {
            const by__config_entry *other = &c->entries[k];
            bool same_key = strcmp(other->key.name, key->name) == 0 &&
                            strcmp(other->key.section, key->section) == 0;
            if (same_key && (e->kind == NULL || other->kind == NULL || other->kind == e->kind)) {
                fail_msg("%s.%s is declared twice", key->section, key->name);
            }
            if (other->at == e->at && (!same_key || other->key.type != key->type ||
                                       strcmp(other->key.fallback, key->fallback) != 0)) {
                fail_msg("%s.%s and %s.%s share a field", key->section, key->name,
                         other->key.section, other->key.name);
            }
        }
    }
    for (size_t t = 0; t < c->schema->table_count; t++) {
        assert_non_null(by__config_chosen_kind(c, t)); /* the default is a kind of the table */
    }
    by_config_close(&config);
}

static void test_foreign_keys(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    config_refused(
        "model:\n  layers: 2\n  heads: 2\n  rope_theta: 5e5\n",
        "train.yaml:4: model.rope_theta belongs to llama, mixtral; the kind here is gpt2");
    config_refused(
        "model:\n  rope_theta: 5e5\n  kind: gpt2\n",
        "train.yaml:2: model.rope_theta belongs to llama, mixtral; the kind here is gpt2");
    config_refused("model:\n  kv_heads: 2\n",
                   "train.yaml:2: model.kv_heads belongs to llama, mixtral; the kind here is gpt2");
    config_refused("model:\n  rope_thta: 5e5\n",
                   "train.yaml:2: unknown key \"rope_thta\" in section "
                   "model; did you mean \"model.rope_theta\" (of llama, mixtral)?");
    config_refused_among("model:\n  mlp_widht: 3\n",
                         "train.yaml:2: unknown key \"mlp_widht\" in section model; did you mean "
                         "\"model.mlp_width\" (of gpt2, llama",
                         ")?");
    config_refused(
        "checkpoint: {zzzzzzzz: true}\nmodel: {moment: 1}",
        "train.yaml:1: unknown key \"zzzzzzzz\" in section checkpoint; keys here are every, "
        "mean_time_between_failures, keep, keep_best, keep_every, async, staging");
    /* The kind may come after its keys, in the file or from an override. */
    by_config *config = config_good("model: {rope_theta: 5e5, kind: llama}");
    by_config_close(&config);
    const char *text = "model: {rope_theta: 5e5}";
    const char *llama = "model.kind=llama";
    assert_int_equal(by_config_parse(&config, "train.yaml", text, strlen(text), &llama, 1, &error),
                     BY_OK);
    assert_true(*(double *)by__config_entry_at((by__config *)config, "model.rope_theta")->at ==
                5e5);
    /* An override of the kind leaves what the file sets for another one, and says so. */
    assert_null(by_config_notes(config));
    assert_int_equal(by_config_set(config, "model.kind=gpt2", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    assert_string_equal(
        by_config_notes(config),
        "train.yaml:1: model.rope_theta is not used: model.kind gpt2 has no such key");
    char *without = config_printed(config);
    assert_null(strstr(without, "rope_theta"));
    free(without);
    by_config_close(&config);
    const char *both[] = {"optimizer.kind=sgd", "optimizer.betas=[0.9,0.95]"};
    text = "optimizer: {betas: [0.9, 0.99], eps: 1e-9}";
    assert_int_equal(by_config_parse(&config, "train.yaml", text, strlen(text), both, 1, &error),
                     BY_OK);
    assert_string_equal(by_config_notes(config),
                        "train.yaml:1: optimizer.betas is not used: optimizer.kind sgd has no such "
                        "key\ntrain.yaml:1: optimizer.eps is not used: optimizer.kind sgd has no "
                        "such key");
    by_config_close(&config);
    /* What is given beside the kind is wrong. */
    assert_int_equal(by_config_parse(&config, "train.yaml", text, strlen(text), both, 2, &error),
                     BY_ECONFIG);
    assert_int_equal(by_config_default(&config, &error), BY_OK);
    assert_int_equal(by_config_set(config, "model.rope_theta=2", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_int_equal(by_config_set(config, "model.kind=llama", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    char *shown = config_printed(config);
    assert_non_null(strstr(shown, "\n  rope_theta: 2\n"));
    free(shown);
    by_config_close(&config);
    config = config_good("");
    shown = config_printed(config);
    assert_null(strstr(shown, "rope_theta"));
    assert_null(strstr(shown, "kv_heads"));
    free(shown);
    by_config_close(&config);
}

/* A schema of this test's own: a kind with keys in another section, in fields of its own and with
 * a type that a kind of another name has too. */
typedef struct image_keys {
    char *images;
    by_string_list labels;
    int64_t patch;
    int64_t flip;
    double scale[2];
    char *form;
} image_keys;

typedef struct graph_keys {
    int64_t patch;
    char *form;
} graph_keys;

static by_status resolve_image(by_config *config, void *own, by_error *error)
{
    image_keys *k = own;
    k->patch = k->patch == -1 ? config->train.batch : k->patch;
    if (k->images[0] == '\0') {
        return by_error_set(error, BY_ECONFIG, "%s: data.images is empty",
                            by__config_where(config, "data.images", "model.kind"));
    }
    return by__config_divides(config, "model.patch", "train.batch", error);
}

static const by__config_key image_rows[] = {
    {"data", "images", BY__KEY_TEXT, BY__OWN(image_keys, images), "\"\"", .help = "files"},
    {"data", "labels", BY__KEY_TEXTS, BY__OWN(image_keys, labels), "[a, b]", .help = "names"},
    {"model", "patch", BY__KEY_INT, BY__OWN(image_keys, patch), "-1", 1, 64, .derived = "batch",
     .help = "side"},
    {"model", "flip", BY__KEY_SWITCH, BY__OWN(image_keys, flip), "true", .help = "mirrored"},
    {"model", "scale", BY__KEY_PAIR, BY__OWN(image_keys, scale), "[0.5, 2]", 0, 9, .help = "range"},
    {"model", "form", BY__KEY_TEXT, BY__OWN(image_keys, form), "png", .choices = "png|jpeg",
     .help = "form"},
};
static const by__config_key graph_rows[] = {
    {"model", "patch", BY__KEY_INT, BY__OWN(graph_keys, patch), "70", 65, 100, .help = "nodes"},
    {"model", "form", BY__KEY_TEXT, BY__OWN(graph_keys, form), "list", .choices = "list|matrix",
     .help = "form"},
};
static const by__config_key_list image_list = BY__KEY_LIST(image_rows);
static const by__config_key_list graph_list = BY__KEY_LIST(graph_rows);
static const by__config_kind kinds[] = {
    {"gpt2", "Nothing of its own.", {NULL}, 0, NULL},
    {"image", "Images.", {&image_list}, sizeof(image_keys), resolve_image},
    {"graph", "Graphs.", {&graph_list}, sizeof(graph_keys), NULL},
};

static const by__config_kind *kind_row(size_t index)
{
    return index < BY_ARRAY_LENGTH(kinds) ? &kinds[index] : NULL;
}

static const by__config_kind_table kind_tables[] = {{"model", kind_row}};
static const by__config_schema own_schema = {.tables = kind_tables,
                                             .table_count = 1,
                                             .sections = &by__config_run_sections,
                                             .keys = &by__config_run_keys};

static by_status own_parse(by_config **out, const char *text, bool kept, by_error *error)
{
    return by__config_parse(out, &own_schema, "own.yaml", text, strlen(text), NULL, 0, kept, error);
}

static void own_refused(const char *text, const char *message)
{
    by_error error = {0};
    by_config *config = NULL;
    assert_int_equal(own_parse(&config, text, false, &error), BY_ECONFIG);
    assert_string_equal(error.message, message);
    assert_null(config);
}

static void test_keys_of_a_kind(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config;
    assert_int_equal(own_parse(&config,
                               "model: {kind: image, form: jpeg}\ndata:\n  images: x.idx\n"
                               "  labels: [c, d, e]\n",
                               false, &error),
                     BY_OK);
    image_keys *k = by__config_kind_own(config->model.own, &kinds[1]);
    graph_keys *g = by__config_kind_own(config->model.own, &kinds[2]);
    assert_null(by__config_kind_own(config->model.own, &kinds[0]));
    assert_null(by__config_kind_own(NULL, &kinds[1]));
    assert_string_equal(k->images, "x.idx");
    assert_int_equal(k->labels.count, 3);
    assert_true(k->flip == 1 && k->scale[0] == 0.5 && k->scale[1] == 2.0 && k->patch == -1);
    assert_string_equal(k->form, "jpeg");
    assert_string_equal(g->form, "list"); /* a value of the other kind does not reach it */
    assert_int_equal(g->patch, 70);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    assert_int_equal(k->patch, 12);
    char *text = config_printed(config);
    assert_non_null(strstr(text, "data:\n"));
    assert_non_null(strstr(text, "  images: x.idx\n  labels: [c, d, e]\n"));
    assert_non_null(strstr(text, "  patch: 12\n  flip: true\n  scale: [0.5, 2]\n  form: jpeg\n"));
    by_config *again;
    assert_int_equal(own_parse(&again, text, false, &error), BY_OK);
    char *second = config_printed(again);
    assert_string_equal(text, second);
    free(second);
    free(text);
    by_config_close(&again);
    k->patch = 99; /* by a program */
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message,
                        "config: model.patch: \"99\" is not -1 or a whole number from 1 to 64");
    by_config_close(&config);
}

static void test_kinds_refuse(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config;
    own_refused("data:\n  images: a\n",
                "own.yaml:2: data.images belongs to model image; the model here is gpt2");
    own_refused("model: {patch: 3}",
                "own.yaml:1: model.patch belongs to image, graph; the kind here is gpt2");
    own_refused("model: {kind: imag}",
                "own.yaml:1: model.kind: \"imag\" is not one of gpt2, image, "
                "graph; did you mean \"image\"?");
    /* Each of two kinds has its own range and its own words. */
    own_refused("model:\n  patch: 3\n  kind: graph\n",
                "own.yaml:2: model.patch: \"3\" is not a whole number from 65 to 100");
    own_refused("model:\n  kind: image\n  form: list\n",
                "own.yaml:3: model.form: \"list\" is not one of png, jpeg");
    own_refused("model:\n  kind: graph\n  form: x\n",
                "own.yaml:3: model.form: \"x\" is not one of list, matrix");
    assert_int_equal(
        own_parse(&config, "model: {kind: graph, patch: 66, form: matrix}", false, &error), BY_OK);
    /* A value that suits only the other kind, then one that suits this. */
    assert_int_equal(by_config_set(config, "model.patch=5", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message,
                        "override \"model.patch=5\": model.patch: \"5\" is not a whole "
                        "number from 65 to 100");
    assert_int_equal(by_config_set(config, "model.patch=65", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    by_config_close(&config);
    assert_int_equal(own_parse(&config, "\n\nmodel: {kind: image, patch: 5}", false, &error),
                     BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message, "own.yaml:3: data.images is empty");
    assert_int_equal(by_config_set(config, "data.images=z", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message,
                        "own.yaml:3: model.patch 5 does not divide train.batch 12; nearest: 4, 6");
    by_config_close(&config);
    /* A run's own config may hold keys that its kind does not have. */
    assert_int_equal(own_parse(&config, "model: {patch: 3, layers: 2}", true, &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    assert_int_equal(config->model.layers, 2);
    by_config_close(&config);
}

static void test_reference_of_kinds(void **state)
{
    BY_UNUSED(state);
    char *text;
    assert_int_equal(by__config_reference(&text, &own_schema, "", NULL), BY_OK);
    assert_non_null(strstr(text, "| `kind` | `gpt2` | one of gpt2, image, graph | model family |"));
    assert_non_null(strstr(text,
                           "\n### model.kind: graph\n\nGraphs.\n\n| key | default | accepts | "
                           "meaning |\n|---|---|---|---|\n| `patch` | `70` | a whole number "
                           "from 65 to 100 | nodes |\n"));
    /* The keys of the kind in another section stand there. */
    const char *data = strstr(text, "\n## data\n");
    assert_non_null(data);
    assert_non_null(strstr(data, "\n### model.kind: image\n"));
    assert_non_null(strstr(data, "| `labels` | `[a, b]` |"));
    assert_null(strstr(text, "### model.kind: gpt2"));
    free(text);
}

/* A task's key goes before that of a model which has the same name in the task's section. */
static void test_task_before_model(void **state)
{
    BY_UNUSED(state);
    by_config *config = config_good("task: {kind: regress, loss: squared}\n"
                                    "model: {kind: gru, context: 8, width: 8}\n"
                                    "data: {table: t.csv, series: shop, target: sold}\n");
    char *text = config_printed(config);
    const char *loss = strstr(text, "\n  loss: squared\n");
    assert_non_null(loss);
    assert_null(strstr(loss + 1, "\n  loss: "));
    by_config *again = config_good(text);
    by_config_close(&again);
    free(text);
    by_config_close(&config);
    config = config_good("task: {kind: forecast, loss: mae}\nmodel: {kind: gru, context: 8}\n");
    text = config_printed(config);
    assert_non_null(strstr(text, "\n  loss: mae\n"));
    free(text);
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_declarations),       cmocka_unit_test(test_foreign_keys),
        cmocka_unit_test(test_keys_of_a_kind),     cmocka_unit_test(test_kinds_refuse),
        cmocka_unit_test(test_reference_of_kinds), cmocka_unit_test(test_task_before_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
