/* The texts of items: a description, few-shot examples, and the item itself. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "evaluate/evaluate.h"

void by__evaluate_texts_free(by__evaluate_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++) {
        by_string_free(&texts->contexts[i]);
        by_string_free(&texts->continuations[i]);
        by_string_free(&texts->choices[i]);
    }
    free(texts->contexts);
    free(texts->continuations);
    free(texts->choices);
    json_decref(texts->targets);
    *texts = (by__evaluate_texts){0};
}

static by_status make_room(by__evaluate_texts *out, size_t count, by_error *error)
{
    BY_TRY(by__alloc((void **)&out->contexts, count, sizeof *out->contexts, "texts", error));
    BY_TRY(
        by__alloc((void **)&out->continuations, count, sizeof *out->continuations, "texts", error));
    BY_TRY(by__alloc((void **)&out->choices, count, sizeof *out->choices, "texts", error));
    out->count = count;
    return BY_OK;
}

static by_status check_texts(const by__evaluate_texts *texts, by_error *error)
{
    for (size_t i = 0; i < texts->count; i++) {
        BY_TRY(by_string_check(&texts->contexts[i], error));
        BY_TRY(by_string_check(&texts->continuations[i], error));
        BY_TRY(by_string_check(&texts->choices[i], error));
    }
    return BY_OK;
}

/* ---- CORE ---- */

static by_status member(const json_t **out, const by__evaluate_task *t, const json_t *row,
                        const char *name, by_error *error)
{
    *out = json_object_get(row, name);
    return *out != NULL
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "task '%s': a row has no '%s'", t->name, name);
}

/* The list of a row and the index in it that `gold` is. */
static by_status member_list(const json_t **list, int64_t *gold, const by__evaluate_task *t,
                             const json_t *row, const char *name, by_error *error)
{
    const json_t *index;
    BY_TRY(member(list, t, row, name, error));
    BY_TRY(member(&index, t, row, "gold", error));
    *gold = json_is_integer(index) ? json_integer_value(index) : -1;
    if (!json_is_array(*list) || *gold < 0 || *gold >= (int64_t)json_array_size(*list)) {
        return by_error_set(error, BY_EFORMAT,
                            "task '%s': '%s' of a row must be a list, and 'gold' an index of it",
                            t->name, name);
    }
    return BY_OK;
}

static void add_trimmed(by_string *out, const json_t *value)
{
    const char *s = json_string_value(value);
    size_t n = json_string_length(value);
    if (s == NULL) {
        by__evaluate_text_add(out, value);
        return;
    }
    by__template_strip(&s, &n, NULL, true, true);
    by_string_add(out, s, n);
}

/* Adds what comes before the continuation, and the continuation, of a row; `choice`: of those that
 * it has, -1: the right one. */
static by_status core_row(by_string *context, by_string *continuation, const by__evaluate_task *t,
                          const json_t *row, int64_t choice, by_error *error)
{
    const json_t *list;
    const json_t *query;
    int64_t gold;
    if (t->kind == BY__EVALUATE_CHOICE) {
        BY_TRY(member(&query, t, row, "query", error));
        BY_TRY(member_list(&list, &gold, t, row, "choices", error));
        by__evaluate_text_add(context, query);
        by__string_append(context, t->target_delimiter);
        by__evaluate_text_add(continuation,
                              json_array_get(list, (size_t)(choice < 0 ? gold : choice)));
        return BY_OK;
    }
    BY_TRY(member(&query, t, row, "continuation", error));
    if (t->kind == BY__EVALUATE_SCHEMA) {
        BY_TRY(member_list(&list, &gold, t, row, "context_options", error));
        by__evaluate_text_add(context, json_array_get(list, (size_t)(choice < 0 ? gold : choice)));
    } else {
        BY_TRY(member(&list, t, row, "context", error));
        add_trimmed(context, list);
    }
    by__string_append(context, t->target_delimiter);
    by__evaluate_text_add(continuation, query);
    return BY_OK;
}

static by_status core_texts(by__evaluate_texts *out, const by__evaluate_task *t, size_t item,
                            by_error *error)
{
    by_string shots = {0};
    const json_t *row = json_array_get(t->rows, t->order[item]);
    const json_t *list = NULL;
    out->gold = 0;
    by_status status = BY_OK;
    if (t->kind != BY__EVALUATE_EXACT) {
        BY_TRY(member_list(&list, &out->gold, t, row,
                           t->kind == BY__EVALUATE_CHOICE ? "choices" : "context_options", error));
    }
    for (int64_t k = 0; k < t->shots && status == BY_OK; k++) {
        size_t pick = t->picks[item * (size_t)t->shots + (size_t)k];
        status = core_row(&shots, &shots, t, json_array_get(t->rows, pick), -1, error);
        by__string_append(&shots, t->shot_delimiter);
    }
    status =
        status == BY_OK ? make_room(out, list == NULL ? 1 : json_array_size(list), error) : status;
    for (size_t i = 0; i < out->count && status == BY_OK; i++) {
        by_string_add(&out->contexts[i], shots.data, shots.length);
        status = core_row(&out->contexts[i], &out->continuations[i], t, row, (int64_t)i, error);
        by_string_add(&out->choices[i], out->continuations[i].data, out->continuations[i].length);
    }
    by_string_free(&shots);
    return status;
}

/* ---- lm-evaluation-harness ---- */

/* The fields of a row, evaluated. */
typedef struct row_values {
    json_t *text;
    json_t *target;
    json_t *choice; /* a list; NULL: the task has no choices */
} row_values;

static void free_values(row_values *v)
{
    json_decref(v->text);
    json_decref(v->target);
    json_decref(v->choice);
}

static by_status row_fields(row_values *v, const by__evaluate_task *t, const json_t *row, bool shot,
                            by_error *error)
{
    const by__evaluate_field *text =
        shot && t->shot_text.source != BY__EVALUATE_ABSENT ? &t->shot_text : &t->text;
    const by__evaluate_field *target =
        shot && t->shot_target.source != BY__EVALUATE_ABSENT ? &t->shot_target : &t->target;
    const by__evaluate_field *choice =
        shot && t->shot_choice.source != BY__EVALUATE_ABSENT ? &t->shot_choice : &t->choice;
    bool choices = choice->source != BY__EVALUATE_ABSENT;
    *v = (row_values){NULL, NULL, NULL};
    BY_TRY(by__evaluate_field_value(&v->text, text, row, choices, false, error));
    BY_TRY(by__evaluate_field_value(&v->target, target, row, choices, true, error));
    if (choices) {
        BY_TRY(by__evaluate_field_value(&v->choice, choice, row, false, true, error));
        if (!json_is_array(v->choice) || json_array_size(v->choice) == 0) {
            return by_error_set(error, BY_EFORMAT,
                                "doc_to_choice makes no list: give a list of texts, a column that "
                                "is one, or a template like \"{{[a, b]}}\"");
        }
    }
    return BY_OK;
}

/* Which of the choices a value is: its index or its text; -1: none. A negative index is none: data
 * sets mark rows whose answers they keep back with -1. */
static int64_t gold_of(const json_t *choices, const json_t *value)
{
    int64_t count = (int64_t)json_array_size(choices);
    if (json_is_integer(value)) {
        int64_t gold = json_integer_value(value);
        return gold >= 0 && gold < count ? gold : -1;
    }
    if (json_is_boolean(value)) {
        return json_is_true(value) && count > 1 ? 1 : 0;
    }
    for (int64_t i = 0; i < count; i++) {
        if (json_equal(json_array_get(choices, (size_t)i), value)) {
            return i;
        }
    }
    return -1;
}

static const json_t *first_of(const json_t *value)
{
    return json_is_array(value) ? json_array_get(value, 0) : value;
}

/* Adds a delimiter between a text and what continues it. */
static void add_delimiter(by_string *out, const by__evaluate_task *t)
{
    by__string_append(out, t->target_delimiter);
}

/* Adds an example with its answer. */
static by_status add_shot(by_string *out, const by__evaluate_task *t, const json_t *row,
                          by_error *error)
{
    row_values v;
    by_status status = row_fields(&v, t, row, true, error);
    if (status == BY_OK) {
        const json_t *answer = first_of(v.target);
        bool schema = v.choice != NULL && json_is_integer(v.text);
        if (schema) { /* the choice is the text */
            by__evaluate_text_add(out,
                                  json_array_get(v.choice, (size_t)json_integer_value(v.text)));
        } else {
            by__evaluate_text_add(out, v.text);
            if (v.choice != NULL && json_is_integer(answer)) {
                answer = json_array_get(v.choice, (size_t)gold_of(v.choice, answer));
            }
        }
        if (answer == NULL) {
            status = by_error_set(error, BY_EFORMAT,
                                  "the answer of an example is none of its "
                                  "choices");
        } else {
            add_delimiter(out, t);
            by__evaluate_text_add(out, answer);
            by__string_append(out, t->shot_delimiter);
        }
    }
    free_values(&v);
    return status;
}

static by_status add_shots(by_string *out, const by__evaluate_task *t, size_t item,
                           const json_t *row, by_error *error)
{
    json_t *description;
    BY_TRY(by__evaluate_field_value(&description, &t->description, row, false, false, error));
    by__evaluate_text_add(out, description);
    json_decref(description);
    for (int64_t k = 0; k < t->shots; k++) {
        size_t pick = t->picks[item * (size_t)t->shots + (size_t)k];
        BY_TRY(add_shot(out, t, json_array_get(t->shot_rows, pick), error));
    }
    return by_string_check(out, error);
}

/* The right answers of a generated text, as texts. */
static by_status put_targets(by__evaluate_texts *out, const json_t *target, by_error *error)
{
    size_t count = json_is_array(target) ? json_array_size(target) : 1;
    out->targets = json_array();
    for (size_t i = 0; i < count; i++) {
        by_string text = {0};
        by_string_add(&text, "", 0);
        by__evaluate_text_add(&text, json_is_array(target) ? json_array_get(target, i) : target);
        if (!text.failed) {
            (void)json_array_append_new(out->targets, json_stringn_nocheck(text.data, text.length));
        }
        by_string_free(&text);
    }
    return json_array_size(out->targets) == count
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "out of memory: answers");
}

/* An item without a right answer cannot be answered rightly, and would lower every score. */
static by_status refuse_gold(const row_values *v, const json_t *value, by_error *error)
{
    by_string shown = {0};
    by__evaluate_text_add(&shown, value);
    (void)by_error_set(error, BY_EFORMAT,
                       "the answer '%.80s' is none of the %zu choices: doc_to_target must make the "
                       "index of one, from 0 on, or its text (a split whose answers are kept back "
                       "has none)",
                       shown.data == NULL ? "" : shown.data, json_array_size(v->choice));
    by_string_free(&shown);
    return BY_EFORMAT;
}

/* Puts the values of an item together. */
static by_status put_texts(by__evaluate_texts *out, const by__evaluate_task *t,
                           const by_string *shots, const row_values *v, by_error *error)
{
    bool schema = v->choice != NULL && json_is_integer(v->text);
    BY_TRY(make_room(out, v->choice == NULL ? 1 : json_array_size(v->choice), error));
    const json_t *right = schema ? v->text : first_of(v->target);
    out->gold = v->choice == NULL ? 0 : gold_of(v->choice, right);
    if (out->gold < 0) {
        return refuse_gold(v, right, error);
    }
    for (size_t i = 0; i < out->count; i++) {
        const json_t *choice =
            v->choice == NULL ? first_of(v->target) : json_array_get(v->choice, i);
        if (t->kind == BY__EVALUATE_GENERATE) {
            by_string_add(&out->contexts[i], shots->data, shots->length);
            by__evaluate_text_add(&out->contexts[i], v->text);
            return put_targets(out, v->target, error);
        }
        if (t->kind == BY__EVALUATE_PERPLEXITY) {
            bool given = t->target.source != BY__EVALUATE_ABSENT;
            by__evaluate_text_add(&out->continuations[i], given ? choice : v->text);
            by__evaluate_text_add(&out->choices[i], given ? choice : v->text);
            continue;
        }
        by__evaluate_text_add(&out->choices[i], choice);
        by_string_add(&out->contexts[i], shots->data, shots->length);
        by__evaluate_text_add(&out->contexts[i], schema ? choice : v->text);
        add_delimiter(&out->continuations[i], t);
        by__evaluate_text_add(&out->continuations[i], schema ? first_of(v->target) : choice);
    }
    return BY_OK;
}

static by_status harness_texts(by__evaluate_texts *out, const by__evaluate_task *t, size_t item,
                               by_error *error)
{
    by_string shots = {0};
    row_values v;
    const json_t *row = json_array_get(t->rows, t->order[item]);
    by_status status = row_fields(&v, t, row, false, error);
    status = status == BY_OK ? add_shots(&shots, t, item, row, error) : status;
    status = status == BY_OK ? put_texts(out, t, &shots, &v, error) : status;
    free_values(&v);
    by_string_free(&shots);
    return status;
}

by_status by__evaluate_texts_make(by__evaluate_texts *out, const by__evaluate_task *task,
                                  size_t item, by_error *error)
{
    by_error why = {0};
    *out = (by__evaluate_texts){0};
    by_status status =
        task->core ? core_texts(out, task, item, &why) : harness_texts(out, task, item, &why);
    status = status == BY_OK ? check_texts(out, &why) : status;
    if (status != BY_OK) {
        by__evaluate_texts_free(out);
        return by_error_set(error, status, "task '%s', row %u: %s", task->name,
                            (unsigned)task->order[item], why.message);
    }
    return BY_OK;
}

/* ---- for people and tests ---- */

static by_status add_texts(json_t *object, const char *name, const by_string *texts, size_t count,
                           by_error *error)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const char *data = texts[i].data == NULL ? "" : texts[i].data;
        (void)json_array_append_new(list, json_stringn_nocheck(data, texts[i].length));
    }
    return json_array_size(list) == count && json_object_set_new(object, name, list) == 0
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "out of memory: texts");
}

by_status by_suite_show(const by_suite *suite, size_t task, size_t item, char **out,
                        by_error *error)
{
    by__evaluate_texts texts;
    if (task >= suite->count || item >= suite->tasks[task].count) {
        return by_error_set(error, BY_EARG, "there is no item %zu of task %zu", item, task);
    }
    const by__evaluate_task *t = &suite->tasks[task];
    BY_TRY(by__evaluate_texts_make(&texts, t, item, error));
    json_t *object = json_pack("{s:s, s:I, s:I}", "task", t->name, "item", (json_int_t)item, "gold",
                               (json_int_t)texts.gold);
    by_status status = object == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: texts")
                           : add_texts(object, "contexts", texts.contexts, texts.count, error);
    if (status == BY_OK) {
        status = add_texts(object, "continuations", texts.continuations, texts.count, error);
    }
    if (status == BY_OK && texts.targets != NULL &&
        json_object_set(object, "targets", texts.targets) != 0) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: texts");
    }
    if (status == BY_OK && (*out = by__json_dump(object, JSON_COMPACT)) == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: texts");
    }
    json_decref(object);
    by__evaluate_texts_free(&texts);
    return status;
}
