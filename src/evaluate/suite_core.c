/* The format of the CORE bundle: core.yaml lists tasks, eval_data/ has their rows as JSON lines,
 * eval_meta_data.csv the accuracies of guessing.
 *
 * Order and examples are those of nanochat (evaluate_core and evaluate_example of its sources): the
 * rows are shuffled by Python's random.Random(1337), then cut to the limit; the examples of item i
 * are sampled by random.Random(1234 + i) from all others. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "evaluate/evaluate.h"
#include "evaluate/python_random.h"
#include "formats/csv.h"

#define ORDER_SEED 1337
#define MAX_SHOTS  1000

bool by__evaluate_is_core(const json_t *yaml)
{
    return json_is_array(json_object_get(yaml, "icl_tasks"));
}

/* ---- eval_meta_data.csv ---- */

/* A row of the table: the columns that are asked for. */
typedef struct chance_row {
    by_string name;
    by_string chance; /* percent */
    size_t name_at;   /* columns of both; SIZE_MAX: not known yet */
    size_t chance_at;
} chance_row;

static bool is_cell(const by__format_csv_cell *cell, const char *text)
{
    return cell->length == strlen(text) && memcmp(cell->text, text, cell->length) == 0;
}

static void take_cell(chance_row *row, const by__format_csv_cell *cell, bool head)
{
    if (head) {
        row->name_at = is_cell(cell, "Eval Task") ? cell->column : row->name_at;
        row->chance_at = is_cell(cell, "Random baseline") ? cell->column : row->chance_at;
        return;
    }
    by_string *to = cell->column == row->name_at     ? &row->name
                    : cell->column == row->chance_at ? &row->chance
                                                     : NULL;
    if (to != NULL) {
        to->length = 0;
        by__format_csv_unescape(to, cell);
    }
}

static void set_chance(by_suite *suite, const chance_row *row)
{
    double percent;
    for (size_t i = 0; i < suite->count; i++) {
        if (row->name.data != NULL && row->chance.data != NULL &&
            strcmp(suite->tasks[i].name, row->name.data) == 0 &&
            by__parse_f64(row->chance.data, &percent) && percent >= 0.0 && percent < 100.0) {
            suite->tasks[i].chance = 0.01 * percent;
        }
    }
}

static by_status read_table(by_suite *suite, const char *path, const by__map *map, by_error *error)
{
    by__format_csv csv;
    by__format_csv_cell cell;
    chance_row row = {.name_at = SIZE_MAX, .chance_at = SIZE_MAX};
    bool head = true;
    bool found = true;
    by_status status = BY_OK;
    by__format_csv_begin(&csv, path, (const char *)map->data, map->size, ',');
    while (status == BY_OK) {
        status = by__format_csv_next(&csv, &cell, &found, error);
        if (status != BY_OK || !found) {
            break;
        }
        take_cell(&row, &cell, head);
        if (cell.ends_row) {
            set_chance(suite, &row);
            head = false;
        }
    }
    by_string_free(&row.name);
    by_string_free(&row.chance);
    return status;
}

/* Sets the chance of the tasks that the table has. */
static by_status read_chances(by_suite *suite, const char *directory, by_error *error)
{
    char *path;
    by__map map;
    BY_TRY(by__path_make(&path, directory, "eval_meta_data.csv", error));
    by_status status = BY_OK;
    if (by__path_exists(path)) {
        status = by__map_open(&map, path, error);
        if (status == BY_OK) {
            status = read_table(suite, path, &map, error);
            by__map_close(&map);
        }
    }
    free(path);
    return status;
}

/* ---- tasks ---- */

static by_status choose_rows(by__evaluate_task *t, const by_suite_options *o, by_error *error)
{
    by__evaluate_random random;
    uint32_t rows = (uint32_t)json_array_size(t->rows);
    t->count = o->limit > 0 && (size_t)o->limit < rows ? (size_t)o->limit : rows;
    t->shots = t->shots < (int64_t)t->count ? t->shots : (int64_t)t->count - 1;
    t->shots = t->shots < 0 ? 0 : t->shots;
    size_t shots = (size_t)t->shots;
    size_t picks;
    if (rows == 0) {
        return by_error_set(error, BY_EFORMAT, "task '%s' has no rows", t->name);
    }
    BY_TRY(by__alloc((void **)&t->order, rows, sizeof *t->order, "items", error));
    for (uint32_t i = 0; i < rows; i++) {
        t->order[i] = i;
    }
    by__evaluate_random_seed(&random, ORDER_SEED);
    by__evaluate_random_shuffle(&random, t->order, rows);
    if (!by__size_mul(t->count, shots, &picks)) {
        return by_error_set(error, BY_EMEMORY, "out of memory: examples");
    }
    BY_TRY(by__alloc((void **)&t->picks, picks, sizeof *t->picks, "examples", error));
    for (size_t i = 0; i < t->count && shots > 0; i++) {
        uint32_t *mine = t->picks + i * shots;
        by__evaluate_random_seed(&random, o->seed + i);
        BY_TRY(by__evaluate_random_sample(&random, (uint32_t)t->count - 1, mine, (uint32_t)shots,
                                          error));
        for (size_t k = 0; k < shots; k++) {
            mine[k] = t->order[mine[k] + (mine[k] >= i)];
        }
    }
    return BY_OK;
}

static by_status refuse_member(const char *path, const char *task, const char *member,
                               const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: task '%.60s': '%s' must be %s", path,
                        task == NULL ? "?" : task, member, what);
}

static by_status read_kind(by__evaluate_task *t, const char *path, const json_t *yaml,
                           by_error *error)
{
    static const struct {
        const char *name;
        by__evaluate_kind kind;
    } kinds[] = {{"multiple_choice", BY__EVALUATE_CHOICE},
                 {"schema", BY__EVALUATE_SCHEMA},
                 {"language_modeling", BY__EVALUATE_EXACT}};
    const char *kind = json_string_value(json_object_get(yaml, "icl_task_type"));
    for (size_t i = 0; kind != NULL && i < BY_ARRAY_LENGTH(kinds); i++) {
        if (strcmp(kind, kinds[i].name) == 0) {
            t->kind = kinds[i].kind;
            return BY_OK;
        }
    }
    return refuse_member(path, t->name, "icl_task_type",
                         "multiple_choice, schema or language_modeling", error);
}

static by_status read_task(by_suite *suite, const char *path, const char *directory,
                           const json_t *yaml, by_error *error)
{
    by__evaluate_task *t;
    const char *label = by__json_string(json_object_get(yaml, "label"));
    const char *uri = by__json_string(json_object_get(yaml, "dataset_uri"));
    const json_t *shots = json_object_get(yaml, "num_fewshot");
    const json_t *delimiter = json_object_get(yaml, "continuation_delimiter");
    char *file;
    if (label == NULL || uri == NULL) {
        return refuse_member(path, label, label == NULL ? "label" : "dataset_uri", "a text", error);
    }
    BY_TRY(by__evaluate_add_task(&t, suite, label, error));
    t->core = true;
    t->length = BY__EVALUATE_TOKENS;
    BY_TRY(read_kind(t, path, yaml, error));
    shots = json_is_array(shots) ? json_array_get(shots, 0) : shots;
    int64_t asked = suite->options.few_shot;
    t->shots = asked >= 0 ? asked : json_integer_value(shots);
    if ((shots != NULL && !json_is_integer(shots)) || t->shots < 0 || t->shots > MAX_SHOTS) {
        return refuse_member(path, label, "num_fewshot", "a whole number from 0 to 1000", error);
    }
    if (delimiter != NULL && !json_is_string(delimiter)) {
        return refuse_member(path, label, "continuation_delimiter", "a text", error);
    }
    t->target_delimiter = by__strdup(delimiter == NULL ? " " : json_string_value(delimiter));
    t->shot_delimiter = by__strdup("\n\n");
    t->rows = suite->given != NULL ? json_incref(suite->given) : json_array();
    t->shot_rows = json_incref(t->rows);
    if (t->target_delimiter == NULL || t->shot_delimiter == NULL || t->rows == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a task");
    }
    by_status status = BY_OK;
    if (suite->given == NULL) {
        BY_TRY(by__path_make(&file, directory, uri, error));
        status = by__evaluate_rows(t->rows, file, NULL, error);
        free(file);
    }
    return status == BY_OK ? choose_rows(t, &suite->options, error) : status;
}

by_status by__evaluate_core_open(by_suite *suite, const char *path, const json_t *yaml,
                                 by_error *error)
{
    size_t i;
    json_t *task;
    char *directory;
    char *data;
    const char *slash = strrchr(path, '/');
    directory = slash == NULL ? by__strdup(".") : by__strndup(path, (size_t)(slash - path + 1));
    if (directory == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %s", path);
    }
    by_status status = suite->data != NULL ? by__path_make(&data, suite->data, "", error)
                                           : by__path_make(&data, directory, "eval_data", error);
    if (status == BY_OK) {
        json_array_foreach(json_object_get(yaml, "icl_tasks"), i, task)
        {
            if (status == BY_OK) {
                status = read_task(suite, path, data, task, error);
            }
        }
        free(data);
    }
    if (status == BY_OK && suite->given == NULL) {
        status = read_chances(suite, directory, error);
    }
    free(directory);
    return status;
}
