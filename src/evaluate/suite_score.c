/* Scores of items that have ended, and their lines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "evaluate/suite_run.h"

/* The index of the largest log-probability for its length, the first of equal ones. */
static size_t likeliest(const by__evaluate_open *o, by__evaluate_length length)
{
    size_t best = 0;
    double most = -INFINITY;
    for (size_t i = 0; i < o->item.count; i++) {
        size_t n = o->item.sequences[i].lengths[length];
        double value = n == 0 ? -INFINITY : o->sums[i] / (double)n;
        if (value > most) {
            best = i;
            most = value;
        }
    }
    return best;
}

static void score_choice(by__evaluate_score *out, const by__evaluate_task *t,
                         const by__evaluate_open *o)
{
    double chance = isnan(t->chance) ? 1.0 / (double)o->item.count : t->chance;
    size_t m = 0;
    double right = (int64_t)likeliest(o, t->length) == o->item.gold ? 1.0 : 0.0;
    out->sums[m++] = right;
    out->sums[m++] = chance < 1.0 ? (right - chance) / (1.0 - chance) : 0.0;
    for (int i = 0; i < BY__EVALUATE_LENGTHS; i++) {
        if (i != (int)t->length) {
            bool good = (int64_t)likeliest(o, (by__evaluate_length)i) == o->item.gold;
            out->sums[m++] = good ? 1.0 : 0.0;
        }
    }
}

static void score_exact(by__evaluate_score *out, const by__evaluate_task *t,
                        const by__evaluate_open *o)
{
    double chance = isnan(t->chance) ? 0.0 : t->chance;
    double right = o->greedy[0] ? 1.0 : 0.0;
    out->sums[0] = right;
    out->sums[1] = (right - chance) / (1.0 - chance);
    out->sums[2] = o->sums[0];
}

static void score_document(by__evaluate_score *out, const by__evaluate_open *o)
{
    double sum = 0.0;
    for (size_t i = 0; i < o->item.count; i++) {
        sum += o->sums[i];
    }
    out->sums[0] = out->sums[1] = out->sums[2] = sum;
    out->weights[0] = out->weights[1] = (double)o->item.sequences[0].lengths[BY__EVALUATE_BYTES];
    out->weights[2] = (double)o->item.words;
}

/* Takes the answer of each way, and compares it with the right ones. */
static by_status score_text(by__evaluate_score *out, json_t *line, const by__evaluate_task *t,
                            const by__evaluate_open *o, by_error *error)
{
    json_t *answers = json_array();
    by_status status = BY_OK;
    for (size_t w = 0; w < t->answers.count && status == BY_OK; w++) {
        by_string answer = {0};
        bool right = false;
        size_t i;
        json_t *target;
        by_string_add(&answer, "", 0);
        status = by__evaluate_answer_take(&answer, &t->answers.ways[w],
                                          o->text.data == NULL ? "" : o->text.data, error);
        json_array_foreach(o->item.targets, i, target)
        {
            if (status == BY_OK && !right) {
                status = by__evaluate_answer_equal(&right, &t->answers, answer.data,
                                                   json_string_value(target), error);
            }
        }
        out->sums[w] = right ? 1.0 : 0.0;
        (void)json_array_append_new(
            answers, json_stringn(answer.data, answer.data == NULL ? 0 : answer.length));
        by_string_free(&answer);
    }
    if (status == BY_OK && line != NULL && json_object_set(line, "answers", answers) != 0) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: an answer");
    }
    json_decref(answers);
    return status;
}

/* ---- lines ---- */

static json_t *number_list(const by__evaluate_open *o, bool lengths)
{
    json_t *list = json_array();
    for (size_t i = 0; i < o->item.count; i++) {
        const by__evaluate_sequence *s = &o->item.sequences[i];
        (void)json_array_append_new(
            list, lengths ? json_integer((json_int_t)s->lengths[BY__EVALUATE_TOKENS])
                          : json_real(o->sums[i]));
    }
    return list;
}

static by_status add_details(json_t *line, const by__evaluate_task *t, const by__evaluate_open *o,
                             by_error *error)
{
    by_string text = {0};
    int failed = 0;
    if (t->kind == BY__EVALUATE_GENERATE) {
        by__string_add_valid(&text, o->text.data == NULL ? "" : o->text.data, o->text.length);
        failed |= json_object_set_new(
            line, "text", json_stringn(text.data == NULL ? "" : text.data, text.length));
        failed |= json_object_set(line, "targets", o->item.targets);
        by_string_free(&text);
    } else {
        failed |= json_object_set_new(line, "log_probabilities", number_list(o, false));
        failed |= json_object_set_new(line, "tokens", number_list(o, true));
    }
    if (t->kind == BY__EVALUATE_CHOICE || t->kind == BY__EVALUATE_SCHEMA) {
        failed |= json_object_set_new(line, "gold", json_integer(o->item.gold));
        failed |=
            json_object_set_new(line, "chosen", json_integer((json_int_t)likeliest(o, t->length)));
    }
    return failed == 0 ? BY_OK
                       : by_error_set(error, BY_EMEMORY,
                                      "out of memory: the line of an "
                                      "item");
}

/* The main metric of one item: 0 for a document without bytes. */
static double main_value(const by__evaluate_score *score, const by__evaluate_task *t)
{
    double value = score->weights[0] > 0.0 ? score->sums[0] / score->weights[0] : 0.0;
    return t->kind == BY__EVALUATE_PERPLEXITY && value != 0.0 ? -value / log(2.0) : value;
}

by_status by__evaluate_score_item(by__evaluate_score *out, char **line,
                                  const by__evaluate_task *task, size_t index,
                                  const by__evaluate_open *open, by_error *error)
{
    const char *names[BY_SUITE_METRICS];
    by_status status = BY_OK;
    json_t *object = NULL;
    (void)by__evaluate_metric_names(task, names);
    for (size_t m = 0; m < BY_SUITE_METRICS; m++) {
        out->weights[m] = 1.0;
    }
    if (line != NULL) {
        object = json_pack("{s:s, s:I, s:s, s:s}", "task", task->name, "item", (json_int_t)index,
                           "id", open->item.id, "metric", names[0]);
    }
    switch (task->kind) {
    case BY__EVALUATE_PERPLEXITY:
        score_document(out, open);
        break;
    case BY__EVALUATE_EXACT:
        score_exact(out, task, open);
        break;
    case BY__EVALUATE_GENERATE:
        status = score_text(out, object, task, open, error);
        break;
    default:
        score_choice(out, task, open);
        break;
    }
    if (status == BY_OK && line != NULL) {
        (void)json_object_set_new(object, "score", json_real(main_value(out, task)));
        if (task->kind == BY__EVALUATE_PERPLEXITY) { /* what the score is weighted with */
            (void)json_object_set_new(object, "bytes", json_integer((json_int_t)out->weights[0]));
        }
        status = add_details(object, task, open, error);
    }
    if (status == BY_OK && line != NULL && (*line = by__json_dump(object, JSON_COMPACT)) == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: the line of an item");
    }
    json_decref(object);
    return status;
}
