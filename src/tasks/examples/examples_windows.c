/* Windows of series as examples: of each window, which is so many rows of a table that follow each
 * other, the target is that of its last row. */
#include <stdlib.h>
#include <string.h>

#include "data/table/encoding.h"
#include "nn/series.h"
#include "tasks/examples/examples_open.h"

/* The rows of a table, one series after the other, and the windows among them. */
typedef struct window_list {
    uint64_t *rows; /* [rows of the table] those of a series in their order */
    uint64_t *ends; /* [count] index in `rows` behind the last row of each window */
    uint64_t count;
    uint64_t cut;      /* series with fewer rows than a window, */
    const char *first; /* and the first of them; NULL: there is one series */
} window_list;

static void free_list(window_list *l)
{
    free(l->rows);
    free(l->ends);
    *l = (window_list){0};
}

static by_status find_series(const by_column **out, const by__task_examples *d,
                             const by_table *table, by_error *error)
{
    const char *name = d->keys->series == NULL ? "" : d->keys->series;
    *out = NULL;
    if (name[0] == '\0') {
        return BY_OK;
    }
    *out = by_table_find(table, name);
    if (*out == NULL) {
        return by_error_set(error, BY_ECONFIG, "%s has no column '%s' (data.series)",
                            by_table_name(table), name);
    }
    for (uint64_t r = 0; r < by_table_rows(table); r++) {
        if ((*out)->kind != BY_COLUMN_CATEGORY || (*out)->categories[r] < 0) {
            return by_error_set(error, BY_EFORMAT, "%s: row %llu has no series in column '%s'",
                                by_table_name(table), (unsigned long long)r + 1, name);
        }
    }
    return BY_OK;
}

/* Sorts the rows by series, each in the order in which they are (a counting sort). `begins`:
 * [series + 1] is where each begins. */
static void sort_rows(window_list *l, uint64_t *begins, size_t series, const by_column *column,
                      uint64_t rows)
{
    for (uint64_t r = 0; r < rows; r++) {
        begins[column == NULL ? 1 : column->categories[r] + 1]++;
    }
    for (size_t s = 0; s < series; s++) {
        begins[s + 1] += begins[s];
    }
    for (uint64_t r = rows;
         r-- > 0;) { /* from the back: each `begins` moves to its series' begin */
        l->rows[--begins[column == NULL ? 1 : column->categories[r] + 1]] = r;
    }
}

/* Finds the windows: the last one of a series ends with its last row, and each begins `stride` rows
 * behind the one before. */
static by_status list_windows(window_list *l, const by__task_examples *d, const by_table *table,
                              by_error *error)
{
    const by_column *column;
    uint64_t context = (uint64_t)d->windows.context;
    uint64_t stride = (uint64_t)d->windows.stride;
    uint64_t rows = by_table_rows(table);
    uint64_t *begins = NULL;
    BY_TRY(find_series(&column, d, table, error));
    size_t series = column == NULL ? 1 : column->value_count;
    BY_TRY(by__alloc((void **)&l->rows, (size_t)rows + 1, sizeof *l->rows, "windows", error));
    BY_TRY(by__alloc((void **)&l->ends, (size_t)rows + 1, sizeof *l->ends, "windows", error));
    BY_TRY(by__alloc((void **)&begins, series + 2, sizeof *begins, "windows", error));
    sort_rows(l, begins, series, column, rows);
    for (size_t s = 0; s < series; s++) {
        uint64_t begin = begins[s + 1];
        uint64_t end = s + 1 < series ? begins[s + 2] : rows;
        uint64_t has = end - begin;
        for (uint64_t w = has < context ? 0 : (has - context) / stride + 1; w > 0; w--) {
            l->ends[l->count++] = end - (w - 1) * stride;
        }
        l->first = has < context && l->cut == 0 && column != NULL ? column->values[s] : l->first;
        l->cut += has < context;
    }
    free(begins);
    return BY_OK;
}

by_status by__task_examples_open_windows(by__task_examples *d, const by_config *config,
                                         by_error *error)
{
    const by__task_examples_keys *k = d->keys;
    bool named = k->series != NULL && k->series[0] != '\0';
    if (strcmp(by_model_reads(&config->model), "series") != 0 || k->series == NULL) {
        return !named ? BY_OK
                      : by_error_set(error, BY_ECONFIG,
                                     "data.series needs a model that reads series, such as "
                                     "model.kind patchtst or lstm; model.kind %s reads %s",
                                     config->model.kind, by_model_reads(&config->model));
    }
    if (!by__nn_series_is_whole(&config->model)) {
        return by_error_set(error, BY_ECONFIG,
                            "model.kind %s only forecasts: of whole windows tell patchtst, tcn, "
                            "lstm and gru",
                            config->model.kind);
    }
    d->windows.context = config->model.context;
    d->windows.stride = k->stride > 0 ? k->stride : config->model.context;
    return k->weight[0] == '\0'
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "data.weight: windows of series have no weights; leave it out");
}

/* ---- parts ---- */

by_status by__task_examples_count_windows(const by__task_examples *d, const by_table *table,
                                          uint64_t *count, by_error *error)
{
    window_list l = {0};
    by_status status = list_windows(&l, d, table, error);
    *count = l.count;
    if (status == BY_OK && l.count == 0) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s: no series has the %lld rows of a window "
                              "(model.context)",
                              by_table_name(table), (long long)d->windows.context);
    }
    free_list(&l);
    return status;
}

by_status by__task_examples_rows_of_windows(by_part *out, uint64_t **rows,
                                            const by__task_examples *d, const by_table *table,
                                            by_error *error)
{
    window_list l = {0};
    uint8_t *marks = NULL;
    uint64_t all = by_table_rows(table);
    by_status status = list_windows(&l, d, table, error);
    *rows = NULL;
    if (status == BY_OK) {
        status = by__alloc((void **)&marks, (size_t)all + 1, 1, "windows", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)rows, (size_t)all + 1, sizeof **rows, "windows", error);
    }
    for (uint64_t i = 0; status == BY_OK && i < d->train_part.count; i++) {
        uint64_t end = l.ends[by_part_example(&d->train_part, i)];
        for (uint64_t k = end - (uint64_t)d->windows.context; k < end; k++) {
            marks[l.rows[k]] = 1;
        }
    }
    *out = (by_part){.total = all};
    for (uint64_t r = 0; status == BY_OK && r < all; r++) {
        (*rows)[out->count] = r;
        out->count += marks[r];
    }
    out->rows = *rows;
    free(marks);
    free_list(&l);
    return status;
}

/* ---- arrays ---- */

/* A server tries its model with one row without any cell: a window of means. */
static bool is_blank(const by__task_examples *d, const by_table *table)
{
    bool blank = d->windows.all && by_table_rows(table) == 1;
    for (size_t c = 0; c < by_table_column_count(table); c++) {
        blank = blank && by_table_column(table, c)->missing == 1;
    }
    return blank;
}

/* Copies to each window what its rows have. Without a list all are the first row. */
static by_status copy_windows(float **out, const window_list *l, const by_array *numbers,
                              int64_t context, by_error *error)
{
    size_t width = (size_t)numbers->shape.dim[1];
    size_t cells;
    float *to;
    if (!by__size_mul((size_t)l->count, (size_t)context, &cells) ||
        !by__size_mul(cells, width, &cells)) {
        return by_error_set(error, BY_EMEMORY, "out of memory: windows of series");
    }
    BY_TRY(by__alloc((void **)out, cells, sizeof **out, "windows of series", error));
    to = *out;
    for (uint64_t i = 0; i < l->count; i++) {
        for (int64_t k = context; k > 0; k--, to += width) {
            uint64_t row = l->rows == NULL ? 0 : l->rows[l->ends[i] - (uint64_t)k];
            memcpy(to, (const float *)numbers->data + row * width, width * sizeof(float));
        }
    }
    return BY_OK;
}

/* Targets of the last rows of windows: i32 or f32 [N] or [N, several]. */
static by_status copy_targets(void **out, const window_list *l, const by_array *targets,
                              by_error *error)
{
    size_t bytes = (size_t)(by_shape_count(&targets->shape) / targets->shape.dim[0]) * 4;
    BY_TRY(by__alloc(out, (size_t)l->count, bytes, "windows of series", error));
    for (uint64_t i = 0; i < l->count; i++) {
        uint64_t row = l->rows == NULL ? 0 : l->rows[l->ends[i] - 1];
        memcpy((char *)*out + i * bytes, (const char *)targets->data + row * bytes, bytes);
    }
    return BY_OK;
}

/* Makes the set of windows from that of rows. */
static by_status make_windows(by_array_set **out, const by__task_examples *d,
                              const by_array_set *rows, const window_list *l, by_error *error)
{
    const by_array *numbers = by_array_set_find(rows, "numbers");
    const by_array *labels = by_array_set_find(rows, "labels");
    const by_array *targets = labels != NULL ? labels : by_array_set_find(rows, "targets");
    by_array arrays[2];
    size_t count = 1;
    float *window = NULL;
    void *target = NULL;
    if (numbers == NULL || by_array_set_find(rows, "categories") != NULL) {
        by_column_kind kind = BY_COLUMN_NUMBER;
        size_t at = by_encoding_numbers(d->encoding);
        const char *name = by_encoding_feature(d->encoding, at, &kind);
        return by_error_set(error, BY_ECONFIG,
                            "%s: models of series read numbers, and column '%s' has names: leave "
                            "it out with data.ignore, or name it in data.series",
                            by_array_set_name(rows), name == NULL ? "" : name);
    }
    by_status status = copy_windows(&window, l, numbers, d->windows.context, error);
    arrays[0] =
        (by_array){"series", BY_F32,
                   BY_SHAPE((int64_t)l->count, d->windows.context, numbers->shape.dim[1]), window};
    if (status == BY_OK && targets != NULL) {
        status = copy_targets(&target, l, targets, error);
        arrays[count] = *targets;
        arrays[count].shape.dim[0] = (int64_t)l->count;
        arrays[count++].data = target;
    }
    if (status == BY_OK) {
        status = by_array_set_open(out, by_array_set_name(rows), arrays, count, error);
    }
    free(window);
    free(target);
    return status;
}

/* Refuses series without a window: all of a request, or if no other one has any. */
static by_status check_windows(const window_list *l, const by__task_examples *d,
                               const by_table *table, by_error *error)
{
    return l->count > 0 && (l->cut == 0 || !d->windows.all)
               ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "%s: %s%s has fewer rows than the %lld that the "
                              "model reads",
                              by_table_name(table), l->first == NULL ? "the series" : "series ",
                              l->first == NULL ? "" : l->first, (long long)d->windows.context);
}

by_status by__task_examples_apply_windows(by_array_set **out, const by__task_examples *d,
                                          const by_table *table, bool targets,
                                          by__task_examples_cut *cut, by_error *error)
{
    by_array_set *rows = NULL;
    window_list l = {0};
    by_status status = BY_OK;
    if (is_blank(d, table)) {
        l.count = 1;
    } else {
        status = list_windows(&l, d, table, error);
        if (status == BY_OK) {
            status = check_windows(&l, d, table, error);
        }
    }
    cut->cut += l.cut;
    if (status == BY_OK) {
        status = by__table_encoding_apply(d->encoding, table, targets, NULL, NULL, &rows, error);
    }
    if (status == BY_OK) {
        status = make_windows(out, d, rows, &l, error);
    }
    by_array_set_close(&rows);
    free_list(&l);
    return status;
}

/* ---- names ---- */

static by_status keep_series(by__task_examples_windows *w, const by_column *column, by_error *error)
{
    BY_TRY(by__alloc((void **)&w->series_of, (size_t)w->named, sizeof *w->series_of, "windows",
                     error));
    BY_TRY(
        by__alloc((void **)&w->series, column->value_count, sizeof *w->series, "windows", error));
    w->series_count = column->value_count;
    for (size_t s = 0; s < column->value_count; s++) {
        w->series[s] = by__strdup(column->values[s]);
        if (w->series[s] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: windows");
        }
    }
    for (uint64_t i = 0; i < w->named; i++) {
        w->series_of[i] = column->categories[w->last_rows[i]];
    }
    return BY_OK;
}

by_status by__task_examples_keep_windows(by__task_examples *d, const by_table *table,
                                         by_error *error)
{
    window_list l = {0};
    by__task_examples_windows *w = &d->windows;
    const by_column *column = NULL;
    by_status status = list_windows(&l, d, table, error);
    by__task_examples_close_windows(w);
    if (status == BY_OK) {
        status = find_series(&column, d, table, error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&w->last_rows, (size_t)l.count + 1, sizeof *w->last_rows,
                           "windows", error);
    }
    for (uint64_t i = 0; status == BY_OK && i < l.count; i++) {
        w->last_rows[i] = l.rows[l.ends[i] - 1];
        w->named = i + 1;
    }
    if (status == BY_OK && column != NULL) {
        status = keep_series(w, column, error);
    }
    free_list(&l);
    return status;
}

void by__task_examples_close_windows(by__task_examples_windows *w)
{
    for (size_t s = 0; s < w->series_count; s++) {
        free(w->series[s]);
    }
    free(w->series);
    free(w->series_of);
    free(w->last_rows);
    w->series = NULL;
    w->series_of = NULL;
    w->last_rows = NULL;
    w->named = w->series_count = 0;
}

void by__task_examples_name_window(by_example_name *out, const by__task_examples *d, uint64_t index)
{
    const by__task_examples_windows *w = &d->windows;
    out->row = w->last_rows[index] + 1;
    if (w->series_of != NULL) {
        out->column = d->keys->series;
        out->series = w->series[w->series_of[index]];
    }
}
