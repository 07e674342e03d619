/* Opens tables, learns their encoding, and lists the columns to predict, with the metrics of each
 * where there are several. */
#include <stdlib.h>
#include <string.h>

#include "data/table/encoding.h"
#include "tasks/examples/examples_learned.h"
#include "tasks/examples/examples_open.h"
#include "tasks/references.h"

/* ---- targets ---- */

/* Of several targets, a prediction has a field for each, after this one. */
#define INDEX "index"

static by_status check_targets(const by__task_examples *d, bool classes, by_error *error)
{
    if (classes && d->target_count > 1) {
        return by_error_set(error, BY_ECONFIG,
                            "data.target names %zu columns: task.kind classify predicts one, "
                            "task.kind regress several numbers",
                            d->target_count);
    }
    for (size_t i = 0; d->target_count > 1 && i < d->target_count; i++) {
        const char *name = d->target_names[i];
        if (strcmp(name, INDEX) == 0) {
            return by_error_set(error, BY_ECONFIG,
                                "data.target: '" INDEX "' cannot be one of several targets, since "
                                "predictions have a field of that name: rename the column");
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(d->target_names[k], name) == 0) {
                return by_error_set(error, BY_ECONFIG, "data.target names '%.60s' twice", name);
            }
        }
    }
    return BY_OK;
}

by_status by__task_examples_list_targets(by__task_examples *d, bool classes, by_error *error)
{
    const by_string_list *named = &d->keys->target;
    size_t learned = d->encoding == NULL ? 0 : by_encoding_targets(d->encoding);
    size_t count = learned > 0 ? learned : named->count;
    BY_TRY(by__alloc((void **)&d->targets, count + 1, sizeof *d->targets, "targets", error));
    BY_TRY(
        by__alloc((void **)&d->target_names, count + 1, sizeof *d->target_names, "targets", error));
    for (size_t i = 0; i < count; i++) {
        d->target_names[i] = learned > 0 ? by_encoding_target(d->encoding, i) : named->items[i];
        d->targets[i] =
            (by_column_type){d->target_names[i], classes ? BY_COLUMN_CATEGORY : BY_COLUMN_NUMBER};
    }
    d->target_count = count;
    return check_targets(d, classes, error);
}

by_status by__task_examples_name_metrics(by__task_examples *d, by_error *error)
{
    const by_task *task = d->base.task;
    size_t all = task->output_metric == NULL ? 0 : d->target_count * task->metric_count;
    if (d->target_count < 2) {
        return BY_OK;
    }
    d->base.outputs = d->target_names;
    d->base.output_count = d->target_count;
    BY_TRY(by__alloc((void **)&d->metrics, all + 1, sizeof *d->metrics, "metrics", error));
    BY_TRY(
        by__alloc((void **)&d->metric_names, all + 1, sizeof *d->metric_names, "metrics", error));
    d->base.output_metrics = d->metrics;
    for (size_t i = 0; i < all; i++) {
        size_t metric = i / d->target_count;
        size_t output = i % d->target_count;
        by_string name = {0};
        by_string_format(&name, "%s_%s", task->metrics[metric].name, d->target_names[output]);
        BY_TRY(by__string_release(&name, &d->metric_names[i], error));
        d->metrics[i] =
            (by_output_metric){.name = d->metric_names[i], .metric = metric, .output = output};
        d->base.output_metric_count = i + 1;
    }
    return BY_OK;
}

/* ---- opening ---- */

/* Lists the columns whose kinds the config declares. The list has room for so many more. */
static by_status list_types(by_column_type **out, size_t *count, const by__task_examples_keys *keys,
                            size_t more, by_error *error)
{
    const by_string_list *lists[] = {&keys->category_columns, &keys->number_columns};
    static const by_column_kind kinds[] = {BY_COLUMN_CATEGORY, BY_COLUMN_NUMBER};
    size_t all = lists[0]->count + lists[1]->count;
    BY_TRY(by__alloc((void **)out, all + more, sizeof **out, "column types", error));
    *count = 0;
    for (size_t l = 0; l < BY_ARRAY_LENGTH(lists); l++) {
        for (size_t i = 0; i < lists[l]->count; i++) {
            (*out)[(*count)++] = (by_column_type){lists[l]->items[i], kinds[l]};
        }
    }
    return BY_OK;
}

static char separator_of(const by__task_examples_keys *keys)
{
    return strcmp(keys->delimiter, "comma") == 0       ? ','
           : strcmp(keys->delimiter, "semicolon") == 0 ? ';'
           : strcmp(keys->delimiter, "tab") == 0       ? '\t'
           : strcmp(keys->delimiter, "pipe") == 0      ? '|'
                                                       : '\0';
}

/* Opens a table: as it was learned or, before anything is, with the kinds that the config
 * declares, since weights may come without the config of their run. `own`: a file of the config,
 * whose separator that names; others may have another one. */
static by_status open_table(by_table **out, by__task_examples *d, const char *path, bool targets,
                            bool own, by_error *error)
{
    by_column_type *types;
    size_t count;
    const by__task_examples_keys *k = d->keys;
    const char *texts[3];
    int text_count = by__task_examples_text_columns(texts, d);
    BY_TRY(list_types(&types, &count, k, d->target_count + 5, error));
    count = d->encoding == NULL ? count : 0;
    for (int i = 0; i < text_count; i++) {
        types[count++] = (by_column_type){texts[i], BY_COLUMN_CATEGORY};
    }
    if (d->windows.context > 0 && k->series[0] != '\0') {
        types[count++] = (by_column_type){k->series, BY_COLUMN_CATEGORY};
    }
    for (size_t i = 0; targets && i < d->target_count; i++) {
        types[count++] = d->targets[i];
    }
    if (targets && own && k->weight[0] != '\0') {
        types[count++] = (by_column_type){k->weight, BY_COLUMN_NUMBER};
    }
    const by_table_options options = {.separator = own ? separator_of(k) : '\0',
                                      .decimal = strcmp(k->decimal, "comma") == 0   ? ','
                                                 : strcmp(k->decimal, "point") == 0 ? '.'
                                                                                    : '\0',
                                      .types = types,
                                      .type_count = count,
                                      .learned = d->encoding != NULL ? d->encoding : d->before,
                                      .relearn = d->encoding == NULL,
                                      .ignore = (const char *const *)k->ignore.items,
                                      .ignore_count = d->encoding == NULL ? k->ignore.count : 0,
                                      .skip = d->skip,
                                      .required = d->target_names,
                                      .required_count = targets ? d->target_count : 0};
    by_status status = by__task_examples_open_table(out, d, path, &options, error);
    free(types);
    if (status == BY_OK) {
        size_t parts;
        const by_damage *damage = by_table_damage(*out, &parts);
        status = by__task_examples_add_damage(d, damage, parts, by_table_rows(*out), error);
        if (status != BY_OK) {
            by_table_close(out);
        }
    }
    return status;
}

by_status by__task_examples_apply_table(by_array_set **out, by__task_examples *d, const char *path,
                                        bool targets, bool own, by_error *error)
{
    by_table *table;
    BY_TRY(open_table(&table, d, path, targets, own, error));
    const char *weight = targets && own && d->keys->weight[0] != '\0' ? d->keys->weight : NULL;
    by_status status =
        by__task_examples_apply_encoding(out, d, table, targets, weight, &d->texts.cut, error);
    if (status == BY_OK && d->is_predicted && d->windows.context > 0) {
        status = by__task_examples_keep_windows(d, table, error);
    }
    by_table_close(&table);
    return status;
}

/* Learns the encoding. That of the checkpoint which is resumed is kept if it is the same but for
 * how it spells values, as those of earlier versions are. */
static by_status learn_table(by__task_examples *d, const by_table *table, const by_part *trained,
                             const by_encoding_options *options, by_error *error)
{
    BY_TRY(by_encoding_learn(&d->encoding, table, trained, options, error));
    if (d->before != NULL && by__table_encoding_same(d->encoding, d->before)) {
        by_encoding_close(&d->encoding);
        d->encoding = d->before;
        d->before = NULL;
    }
    return BY_OK;
}

/* Tells what the columns are, and which cells decided that. */
static by_status describe_table(by__task_examples *d, const by_table *table,
                                const by_encoding_options *options, const by_task_request *r,
                                by_error *error)
{
    char *doubts;
    BY_TRY(by_table_summary(table, options, &d->summary, error));
    d->base.summary = d->summary;
    BY_TRY(by_table_doubts(table, options, &doubts, error));
    by__task_examples_remark(r, doubts);
    free(doubts);
    return BY_OK;
}

/* Lists the columns that are no features beside the target. */
static by_status list_ignored(const char ***out, size_t *count, const by__task_examples_keys *k,
                              by_error *error)
{
    BY_TRY(by__alloc((void **)out, k->ignore.count + 2, sizeof **out, "columns", error));
    *count = k->ignore.count;
    for (size_t i = 0; i < *count; i++) {
        (*out)[i] = k->ignore.items[i];
    }
    if (k->weight[0] != '\0') {
        (*out)[(*count)++] = k->weight;
    }
    if (k->series != NULL && k->series[0] != '\0') {
        (*out)[(*count)++] = k->series;
    }
    return BY_OK;
}

/* A target of texts cannot be read as numbers: says so, if nothing else is wrong with the table. */
static by_status hint_classify(by__task_examples *d, by_status status, by_error *error)
{
    by_table *table = NULL;
    by_error ignored = {0};
    char message[sizeof error->message];
    if (status != BY_EFORMAT || error == NULL || d->targets[0].kind != BY_COLUMN_NUMBER) {
        return status;
    }
    memcpy(message, error->message, sizeof message);
    bool opened = open_table(&table, d, d->keys->table, false, true, &ignored) == BY_OK;
    for (size_t i = 0; opened && i < d->target_count; i++) {
        const by_column *column = by_table_find(table, d->target_names[i]);
        /* Prices and percentages are to be mended, not classified. */
        if (column != NULL && column->kind == BY_COLUMN_CATEGORY && column->near_cells == 0) {
            (void)by_error_set(error, status,
                               "%s; data.target '%s' is a column of texts, and task.kind regress "
                               "predicts numbers: set task.kind to classify",
                               message, column->name);
            break;
        }
    }
    by_table_close(&table);
    return status;
}

/* Refuses other columns to predict than those of the checkpoint at `path`. */
static by_status check_resumed(const by__task_examples *d, const char *path, by_error *error)
{
    size_t count = d->before == NULL ? 0 : by_encoding_targets(d->before);
    bool same = d->before == NULL || count == d->target_count;
    by_string names = {0};
    for (size_t i = 0; i < count; i++) {
        const char *name = by_encoding_target(d->before, i);
        by_string_format(&names, "%s%.60s", i == 0 ? "" : ", ", name);
        same = same && strcmp(name, d->target_names[i]) == 0;
    }
    by_status status = same
                           ? BY_OK
                           : by_error_set(error, BY_ECONFIG,
                                          "%s was trained with data.target %.200s: leave it so, or "
                                          "start a new run",
                                          path, names.failed ? "of another name" : names.data);
    by_string_free(&names);
    return status;
}

/* Makes the parts, and that of the table's rows to learn from, whose list is to be freed. */
static by_status split_table(by_part *trained, uint64_t **rows, by__task_examples *d,
                             const by_config *config, const by_table *table, by_error *error)
{
    bool apart = d->keys->valid_table[0] != '\0';
    uint64_t examples = by_table_rows(table);
    if (d->windows.context > 0) {
        BY_TRY(by__task_examples_count_windows(d, table, &examples, error));
    }
    BY_TRY(by__task_examples_split(d, config, examples, apart, error));
    *trained = d->train_part;
    return d->windows.context == 0
               ? BY_OK
               : by__task_examples_rows_of_windows(trained, rows, d, table, error);
}

by_status by__task_examples_config_table(by__task_examples *d, const by_task_request *r,
                                         by_error *error)
{
    by_table *table;
    by_part trained;
    uint64_t *rows = NULL;
    const char **ignored;
    by_encoding_options options = {.targets = d->target_names,
                                   .target_count = d->target_count,
                                   .text = by__task_examples_text(d),
                                   .pair = by__task_examples_pair(d),
                                   .tags = by__task_row_of(d->base.task)->tags};
    const by__task_examples_keys *k = d->keys;
    bool apart = k->valid_table[0] != '\0';
    if (k->table[0] == '\0' || (k->target.count == 0 && !by__task_row_of(d->base.task)->pairs)) {
        return by_error_set(
            error, BY_ECONFIG,
            "no data: set data.images=FILE and data.labels=FILE, or data.table=FILE "
            "and data.target=COLUMN");
    }
    if (r->resumed != NULL && d->encoding == NULL) {
        d->before = by__task_examples_read_encoding(r->resumed);
        BY_TRY(check_resumed(d, r->resumed, error));
    }
    by_status opened = open_table(&table, d, k->table, true, true, error);
    BY_TRY(opened == BY_OK ? BY_OK : hint_classify(d, opened, error));
    by_status status = list_ignored(&ignored, &options.ignore_count, k, error);
    if (status != BY_OK) {
        by_table_close(&table);
        return status;
    }
    options.ignore = ignored;
    status = split_table(&trained, &rows, d, r->config, table, error);
    if (status == BY_OK && d->encoding == NULL) {
        status = learn_table(d, table, &trained, &options, error);
    }
    bool described = r->purpose == BY_TASK_TRAIN && options.text == NULL;
    if (status == BY_OK && described) {
        status = describe_table(d, table, &options, r, error);
    }
    if (status == BY_OK && described) {
        status = by__task_reference_of_table(&d->reference, table, &trained, ignored,
                                             options.ignore_count, error);
    }
    if (status == BY_OK) {
        status = by__task_examples_measure_texts(d, table, error);
    }
    if (status == BY_OK) {
        const char *weight = k->weight[0] == '\0' ? NULL : k->weight;
        status = by__task_examples_apply_encoding(&d->train, d, table, true, weight, &d->texts.cut,
                                                  error);
    }
    by_table_close(&table);
    free(ignored);
    free(rows);
    if (status == BY_OK && apart) {
        status = by__task_examples_apply_table(&d->valid, d, k->valid_table, true, true, error);
        if (status == BY_OK) {
            d->valid_part = by_part_whole(by_array_set_examples(d->valid));
        }
    }
    return status;
}
