/* Opens suites: a task of lm-evaluation-harness, a list of such files, or core.yaml. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "evaluate/evaluate.h"
#include "evaluate/python_random.h"
#include "evaluate/suite_yaml.h"

#define MAX_FILE  ((size_t)16 << 20)
#define MAX_DEPTH 8 /* of files that name others */
#define MAX_TASKS 10000
#define MAX_SHOTS 1000
#define MAX_LIMIT ((int64_t)1 << 31)

static void close_task(by__evaluate_task *t)
{
    by__evaluate_field *const fields[] = {&t->text,       &t->target,      &t->choice,
                                          &t->shot_text,  &t->shot_target, &t->shot_choice,
                                          &t->description};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(fields); i++) {
        by__evaluate_field_close(fields[i]);
    }
    json_decref(t->rows);
    json_decref(t->shot_rows);
    json_decref(t->until);
    by__evaluate_answers_close(&t->answers);
    free(t->name);
    free(t->order);
    free(t->picks);
    free(t->target_delimiter);
    free(t->shot_delimiter);
}

void by_suite_close(by_suite **suite)
{
    by_suite *s = *suite;
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        close_task(&s->tasks[i]);
    }
    free(s->tasks);
    free(s->data);
    json_decref(s->given);
    free(s);
    *suite = NULL;
}

by_status by__evaluate_add_task(by__evaluate_task **out, by_suite *suite, const char *name,
                                by_error *error)
{
    if (suite->count == MAX_TASKS) {
        return by_error_set(error, BY_EFORMAT, "a suite has more than %d tasks", MAX_TASKS);
    }
    BY_TRY(by__reserve((void **)&suite->tasks, &suite->capacity, suite->count + 1,
                       sizeof *suite->tasks, error));
    by__evaluate_task *t = &suite->tasks[suite->count];
    *t = (by__evaluate_task){.name = by__strdup(name), .chance = NAN};
    if (t->name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a task");
    }
    suite->count++;
    *out = t;
    return BY_OK;
}

/* ---- a task of lm-evaluation-harness ---- */

/* A file that is being read. */
typedef struct suite_source {
    by_suite *suite;
    const char *path;
    char *directory;
    const json_t *yaml;
    unsigned depth;
    by_error *error;
} suite_source;

static by_status refuse(const suite_source *f, const char *key, const char *what)
{
    return by_error_set(f->error, BY_EFORMAT, "%s: '%s' must be %s", f->path, key, what);
}

/* The text of a key, or `standard` if it is not given. */
static by_status read_text(char **out, const suite_source *f, const char *key, const char *standard)
{
    const json_t *value = json_object_get(f->yaml, key);
    if (value != NULL && !json_is_null(value) && by__json_string(value) == NULL) {
        return refuse(f, key, "a text");
    }
    const char *text = by__json_string(value);
    *out = by__strdup(text == NULL ? standard : text);
    return *out == NULL ? by_error_set(f->error, BY_EMEMORY, "out of memory: %s", f->path) : BY_OK;
}

static by_status read_kind(by__evaluate_task *t, const suite_source *f)
{
    static const struct {
        const char *name;
        by__evaluate_kind kind;
    } kinds[] = {{"multiple_choice", BY__EVALUATE_CHOICE},
                 {"loglikelihood", BY__EVALUATE_EXACT},
                 {"generate_until", BY__EVALUATE_GENERATE},
                 {"loglikelihood_rolling", BY__EVALUATE_PERPLEXITY}};
    const char *kind = json_string_value(json_object_get(f->yaml, "output_type"));
    for (size_t i = 0; kind != NULL && i < BY_ARRAY_LENGTH(kinds); i++) {
        if (strcmp(kind, kinds[i].name) == 0) {
            t->kind = kinds[i].kind;
            return BY_OK;
        }
    }
    return refuse(f, "output_type",
                  "multiple_choice, loglikelihood, loglikelihood_rolling or "
                  "generate_until");
}

/* Appends the rows of a split: from the files that the task names for it, else from a directory of
 * data. */
static by_status read_split(json_t *rows, const suite_source *f, const char *split)
{
    const json_t *more = json_object_get(f->yaml, "dataset_kwargs");
    const char *field = by__json_string(json_object_get(more, "field"));
    const char *subset = by__json_string(json_object_get(f->yaml, "dataset_name"));
    const char *root = f->suite->data != NULL ? f->suite->data : f->directory;
    json_t *files = json_object_get(more, "data_files");
    json_t *named = json_is_object(files) ? json_object_get(files, split) : files;
    char *path;
    by_status status = BY_OK;
    if (f->suite->given != NULL) {
        return json_array_extend(rows, f->suite->given) == 0
                   ? BY_OK
                   : by_error_set(f->error, BY_EMEMORY, "out of memory: %s", f->path);
    }
    if (named == NULL) {
        BY_TRY(by__path_make(&path, root, subset == NULL ? "" : subset, f->error));
        if (subset != NULL && !by__path_is_dir(path)) {
            free(path);
            BY_TRY(by__path_make(&path, root, "", f->error));
        }
        status = by__evaluate_split_rows(rows, path, split, field, f->error);
        free(path);
        return status;
    }
    size_t count = json_is_array(named) ? json_array_size(named) : 1;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        const char *name = by__json_string(json_is_array(named) ? json_array_get(named, i) : named);
        if (name == NULL) {
            return refuse(f, "data_files", "a name, a list of names, or one of these for a split");
        }
        path = name[0] == '/' ? by__strdup(name) : by__path_join(root, name);
        status = path == NULL ? by_error_set(f->error, BY_EMEMORY, "out of memory: %s", f->path)
                              : by__evaluate_rows(rows, path, field, f->error);
        free(path);
    }
    return status;
}

static const char *split_name(const suite_source *f, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = by__json_string(json_object_get(f->yaml, keys[i]));
        if (name != NULL) {
            return name;
        }
    }
    return NULL;
}

static by_status read_rows(by__evaluate_task *t, const suite_source *f)
{
    static const char *const item_keys[] = {"test_split", "validation_split", "training_split"};
    static const char *const shot_keys[] = {"fewshot_split", "training_split", "validation_split",
                                            "test_split"};
    const char *items = split_name(f, item_keys, BY_ARRAY_LENGTH(item_keys));
    const char *shots = split_name(f, shot_keys, BY_ARRAY_LENGTH(shot_keys));
    const json_t *own = json_object_get(json_object_get(f->yaml, "fewshot_config"), "samples");
    if (items == NULL) {
        return refuse(f, "test_split", "given, or validation_split");
    }
    t->rows = json_array();
    BY_TRY(read_split(t->rows, f, items));
    if (json_array_size(t->rows) == 0) {
        return by_error_set(f->error, BY_EFORMAT, "%s: the split '%s' has no rows", f->path, items);
    }
    if (json_is_array(own)) {
        t->shot_rows = json_incref((json_t *)(uintptr_t)own);
    } else if (t->shots == 0 || strcmp(shots, items) == 0) {
        t->shot_rows = json_incref(t->rows);
    } else {
        t->shot_rows = json_array();
        BY_TRY(read_split(t->shot_rows, f, shots));
    }
    return BY_OK;
}

static by_status read_shots(by__evaluate_task *t, const suite_source *f)
{
    const json_t *shots = json_object_get(f->yaml, "num_fewshot");
    int64_t asked = f->suite->options.few_shot;
    bool given = shots != NULL && !json_is_null(shots);
    t->shots = asked >= 0 ? asked : given ? json_integer_value(shots) : 0;
    if ((given && !json_is_integer(shots)) || t->shots < 0 || t->shots > MAX_SHOTS) {
        return refuse(f, "num_fewshot", "a whole number from 0 to 1000");
    }
    return BY_OK;
}

/* Chooses the examples of each item as the harness does: the first ones, or a sample by one
 * generator for all items in order. From the items' own split it samples one more and leaves out
 * the item. */
static by_status choose_shots(by__evaluate_task *t, const suite_source *f)
{
    by__evaluate_random random;
    const json_t *settings = json_object_get(f->yaml, "fewshot_config");
    const char *sampler = by__json_string(json_object_get(settings, "sampler"));
    uint32_t rows = (uint32_t)json_array_size(t->shot_rows);
    bool own = t->shot_rows == t->rows;
    bool first = sampler != NULL && strcmp(sampler, "first_n") == 0;
    uint32_t shots = (uint32_t)t->shots;
    uint32_t draws = shots + own;
    uint32_t drawn[MAX_SHOTS + 1];
    size_t picks;
    if (sampler != NULL && !first && strcmp(sampler, "default") != 0) {
        return refuse(f, "fewshot_config.sampler", "default or first_n");
    }
    if (shots == 0) {
        return BY_OK;
    }
    if (draws > rows) {
        return by_error_set(f->error, BY_EARG,
                            "%s: %u examples of %u rows; choose fewer with "
                            "--few-shot",
                            f->path, (unsigned)shots, (unsigned)rows);
    }
    if (!by__size_mul(t->count, shots, &picks)) {
        return by_error_set(f->error, BY_EMEMORY, "out of memory: examples");
    }
    BY_TRY(by__alloc((void **)&t->picks, picks, sizeof *t->picks, "examples", f->error));
    by__evaluate_random_seed(&random, f->suite->options.seed);
    for (size_t i = 0; i < t->count; i++) {
        uint32_t kept = 0;
        for (uint32_t k = 0; k < draws && first; k++) {
            drawn[k] = k;
        }
        if (!first) {
            BY_TRY(by__evaluate_random_sample(&random, rows, drawn, draws, f->error));
        }
        for (uint32_t k = 0; k < draws && kept < shots; k++) {
            bool same = own && json_equal(json_array_get(t->rows, drawn[k]),
                                          json_array_get(t->rows, t->order[i]));
            if (!same) {
                t->picks[i * shots + kept++] = drawn[k];
            }
        }
        for (; kept < shots; kept++) { /* rows that occur several times */
            t->picks[i * shots + kept] = drawn[kept];
        }
    }
    return BY_OK;
}

#define MOST_TOKENS 256 /* of a generated text, if the task does not say */

/* Reads how texts are generated, and what is taken of them. */
static by_status read_generation(by__evaluate_task *t, const suite_source *f)
{
    const json_t *settings = json_object_get(f->yaml, "generation_kwargs");
    const json_t *most = json_object_get(settings, "max_gen_toks");
    const json_t *until = json_object_get(settings, "until");
    bool samples = json_is_true(json_object_get(settings, "do_sample"));
    const json_t *temperature = json_object_get(settings, "temperature");
    const json_t *top_p = json_object_get(settings, "top_p");
    size_t i;
    json_t *item;
    t->most_tokens = most == NULL ? MOST_TOKENS : json_integer_value(most);
    if (t->most_tokens < 1 || t->most_tokens > (1 << 20)) {
        return refuse(f, "max_gen_toks", "a whole number from 1 to 1048576");
    }
    if (until != NULL && !json_is_null(until) && !json_is_string(until) && !json_is_array(until)) {
        return refuse(f, "until", "a text, or a list of texts that are not empty");
    }
    if (samples && temperature != NULL && !json_is_number(temperature)) {
        return refuse(f, "temperature", "a number");
    }
    if (samples && top_p != NULL && !json_is_number(top_p)) {
        return refuse(f, "top_p", "a number");
    }
    t->until = json_is_array(until)    ? json_incref((json_t *)(uintptr_t)until)
               : json_is_string(until) ? json_pack("[O]", until)
                                       : json_pack("[s]", t->shot_delimiter);
    json_array_foreach(t->until, i, item)
    {
        if (by__json_string(item) == NULL || json_string_length(item) == 0) {
            return refuse(f, "until", "a list of texts that are not empty");
        }
    }
    t->sampling.temperature =
        samples ? temperature == NULL ? 1.0 : json_number_value(temperature) : 0.0;
    t->sampling.top_p = samples && top_p != NULL ? json_number_value(top_p) : 1.0;
    by_status status = by_sampling_check(&t->sampling, f->error);
    if (status != BY_OK) {
        return by_error_prefix(f->error, status, "%s: generation_kwargs", f->path);
    }
    return by__evaluate_answers_open(&t->answers, f->yaml, f->path, f->error);
}

/* What the main metric divides by: that of the first metric in the list that is one of these. */
static void read_metric(by__evaluate_task *t, const suite_source *f)
{
    static const char *const names[BY__EVALUATE_LENGTHS] = {"acc", "acc_norm", "acc_bytes",
                                                            "acc_tokens"};
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(f->yaml, "metric_list"), i, item)
    {
        const char *name = by__json_string(json_object_get(item, "metric"));
        for (int k = 0; name != NULL && k < BY__EVALUATE_LENGTHS; k++) {
            if (strcmp(name, names[k]) == 0) {
                t->length = (by__evaluate_length)k;
                return;
            }
        }
    }
}

static by_status read_fields(by__evaluate_task *t, const suite_source *f)
{
    const json_t *settings = json_object_get(f->yaml, "fewshot_config");
    const json_t *columns = json_array_get(t->rows, 0);
    const struct {
        by__evaluate_field *field;
        const json_t *from;
        const char *key;
    } fields[] = {
        {&t->text, f->yaml, "doc_to_text"},           {&t->target, f->yaml, "doc_to_target"},
        {&t->choice, f->yaml, "doc_to_choice"},       {&t->shot_text, settings, "doc_to_text"},
        {&t->shot_target, settings, "doc_to_target"}, {&t->shot_choice, settings, "doc_to_choice"},
        {&t->description, f->yaml, "description"}};
    static const char *const needs_python[] = {"process_docs", "process_results", "custom_dataset"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(needs_python); i++) {
        const json_t *value = json_object_get(f->yaml, needs_python[i]);
        if (value != NULL && !json_is_null(value)) {
            return by_error_set(f->error, BY_EFORMAT,
                                "%s: %s needs Python; put what it does into the templates, or "
                                "into the rows",
                                f->path, needs_python[i]);
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(fields); i++) {
        by_string where = {0};
        by_string_format(&where, "%s: %s", f->path, fields[i].key);
        BY_TRY(by_string_check(&where, f->error));
        by_status status =
            by__evaluate_field_open(fields[i].field, json_object_get(fields[i].from, fields[i].key),
                                    columns, where.data, f->error);
        by_string_free(&where);
        BY_TRY(status);
    }
    if (t->kind == BY__EVALUATE_CHOICE && t->choice.source == BY__EVALUATE_ABSENT) {
        return refuse(f, "doc_to_choice", "given for multiple_choice");
    }
    if (t->target.source == BY__EVALUATE_ABSENT && t->kind != BY__EVALUATE_PERPLEXITY) {
        return refuse(f, "doc_to_target", "given");
    }
    /* A document may stand in either; a question must be asked, if only as the text "". */
    return t->text.source == BY__EVALUATE_ABSENT &&
                   (t->kind != BY__EVALUATE_PERPLEXITY || t->target.source == BY__EVALUATE_ABSENT)
               ? refuse(f, "doc_to_text", "given (\"\" for none)")
               : BY_OK;
}

static by_status read_task(const suite_source *f)
{
    by__evaluate_task *t;
    const char *name = by__json_string(json_object_get(f->yaml, "task"));
    int64_t limit = f->suite->options.limit;
    const char *slash = strrchr(f->path, '/');
    BY_TRY(by__evaluate_keys_check(f->yaml, f->path, f->error));
    BY_TRY(by__evaluate_add_task(&t, f->suite,
                                 name != NULL    ? name
                                 : slash == NULL ? f->path
                                                 : slash + 1,
                                 f->error));
    BY_TRY(read_kind(t, f));
    BY_TRY(by__evaluate_metrics_check(f->yaml, t->kind, f->path, f->error));
    BY_TRY(read_text(&t->target_delimiter, f, "target_delimiter", " "));
    BY_TRY(read_text(&t->shot_delimiter, f, "fewshot_delimiter", "\n\n"));
    BY_TRY(read_shots(t, f));
    BY_TRY(read_rows(t, f));
    read_metric(t, f);
    if (t->kind == BY__EVALUATE_GENERATE) {
        BY_TRY(read_generation(t, f));
    }
    size_t rows = json_array_size(t->rows);
    t->count = limit > 0 && (size_t)limit < rows ? (size_t)limit : rows;
    BY_TRY(by__alloc((void **)&t->order, t->count, sizeof *t->order, "items", f->error));
    for (size_t i = 0; i < t->count; i++) {
        t->order[i] = (uint32_t)i;
    }
    BY_TRY(choose_shots(t, f));
    return read_fields(t, f);
}

/* ---- files ---- */

static by_status open_file(by_suite *suite, const char *path, unsigned depth, by_error *error);

static by_status parse_yaml(json_t **out, const char *path, const char *text, size_t length,
                            by_error *error)
{
    json_t *yaml;
    BY_TRY(by__evaluate_yaml(&yaml, path, text, length, error));
    if (!json_is_object(yaml)) {
        json_decref(yaml);
        return by_error_set(error, BY_EFORMAT, "%s: not a mapping of keys to values", path);
    }
    *out = yaml;
    return BY_OK;
}

static by_status read_yaml(json_t **out, const char *path, by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__file_read(&text, &length, path, MAX_FILE, error));
    by_status status = parse_yaml(out, path, text, length, error);
    free(text);
    return status;
}

/* Fills in the keys of the file that this one includes. */
static by_status include(json_t *yaml, const char *path, const char *directory, unsigned depth,
                         by_error *error)
{
    const json_t *named = json_object_get(yaml, "include");
    const char *name = by__json_string(named);
    char *other;
    json_t *base = NULL;
    if (name == NULL) {
        return named == NULL || json_is_null(named)
                   ? BY_OK
                   : by_error_set(error, BY_EFORMAT, "%s: 'include' must be the name of a file",
                                  path);
    }
    if (depth == 0) {
        return by_error_set(error, BY_EFORMAT, "%s: files include each other without end", path);
    }
    BY_TRY(by__path_make(&other, directory, name, error));
    by_status status = read_yaml(&base, other, error);
    if (status == BY_OK) {
        status = include(base, other, directory, depth - 1, error);
    }
    if (status == BY_OK && json_object_update_missing(yaml, base) != 0) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: %s", other);
    }
    json_decref(base);
    free(other);
    return status;
}

/* A file whose `task` is a list names other files. */
static by_status open_list(const suite_source *f, const json_t *tasks)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)tasks, i, item)
    {
        const char *name = by__json_string(item);
        char *path;
        if (name == NULL) {
            return refuse(f, "task", "a name, or a list of files");
        }
        by_string file = {0};
        by_string_format(&file, "%s%s", name,
                         by__ends_with(name, ".yaml") || by__ends_with(name, ".yml") ? ""
                                                                                     : ".yaml");
        BY_TRY(by_string_check(&file, f->error));
        by_status status = by__path_make(&path, f->directory, file.data, f->error);
        by_string_free(&file);
        BY_TRY(status);
        status = open_file(f->suite, path, f->depth - 1, f->error);
        free(path);
        BY_TRY(status);
    }
    return BY_OK;
}

static by_status open_file(by_suite *suite, const char *path, unsigned depth, by_error *error)
{
    json_t *yaml = NULL;
    if (depth == 0) {
        return by_error_set(error, BY_EFORMAT, "%s: files name each other without end", path);
    }
    BY_TRY(read_yaml(&yaml, path, error));
    const char *slash = strrchr(path, '/');
    char *directory =
        slash == NULL ? by__strdup(".") : by__strndup(path, (size_t)(slash - path + 1));
    by_status status = directory == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: %s", path)
                           : include(yaml, path, directory, depth, error);
    if (status == BY_OK) {
        const suite_source f = {suite, path, directory, yaml, depth, error};
        const json_t *tasks = json_object_get(yaml, "task");
        status = by__evaluate_is_core(yaml) ? by__evaluate_core_open(suite, path, yaml, error)
                 : json_is_array(tasks)     ? open_list(&f, tasks)
                                            : read_task(&f);
    }
    free(directory);
    json_decref(yaml);
    return status;
}

static by_status new_suite(by_suite **out, const by_suite_options *options, by_error *error)
{
    by_suite *s;
    if (options->few_shot > MAX_SHOTS || options->few_shot < -1 || options->limit < 0 ||
        options->limit > MAX_LIMIT) {
        return by_error_set(error, BY_EARG,
                            "%lld examples or %lld items are out of range: at most %d examples",
                            (long long)options->few_shot, (long long)options->limit, MAX_SHOTS);
    }
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "suite", error));
    s->options = *options;
    s->data = options->data == NULL ? NULL : by__strdup(options->data);
    s->options.data = s->data;
    if (options->data != NULL && s->data == NULL) {
        by_suite_close(&s);
        return by_error_set(error, BY_EMEMORY, "out of memory: suite");
    }
    *out = s;
    return BY_OK;
}

/* Hands out a suite that was read, or closes it. */
static by_status finish(by_suite **out, by_suite *suite, by_status status, const char *path,
                        by_error *error)
{
    if (status == BY_OK && suite->count == 0) {
        status = by_error_set(error, BY_EFORMAT, "%s: no tasks", path);
    }
    if (status != BY_OK) {
        by_suite_close(&suite);
        return status;
    }
    *out = suite;
    return BY_OK;
}

by_status by_suite_open(by_suite **out, const char *path, const by_suite_options *options,
                        by_error *error)
{
    by_suite *s;
    BY_TRY(new_suite(&s, options, error));
    return finish(out, s, open_file(s, path, MAX_DEPTH, error), path, error);
}

by_status by_suite_parse(by_suite **out, const char *yaml, size_t length, const char *rows,
                         size_t rows_length, const by_suite_options *options, by_error *error)
{
    static const char name[] = "suite";
    by_suite *s;
    json_t *tree = NULL;
    BY_TRY(new_suite(&s, options, error));
    s->given = json_array();
    by_status status = parse_yaml(&tree, name, yaml, length, error);
    if (status == BY_OK) {
        status = by__evaluate_line_rows(s->given, "rows", rows, rows_length, error);
    }
    if (status == BY_OK) {
        char here[] = ".";
        const suite_source f = {s, name, here, tree, 1, error};
        const json_t *tasks = json_object_get(tree, "task");
        bool files = json_is_array(tasks) || json_object_get(tree, "include") != NULL;
        status = files ? by_error_set(error, BY_EFORMAT, "%s: it names other files", name)
                 : by__evaluate_is_core(tree) ? by__evaluate_core_open(s, name, tree, error)
                                              : read_task(&f);
    }
    json_decref(tree);
    return finish(out, s, status, name, error);
}

size_t by_suite_tasks(const by_suite *suite)
{
    return suite->count;
}

const char *by_suite_task(const by_suite *suite, size_t task)
{
    return suite->tasks[task].name;
}

size_t by_suite_items(const by_suite *suite, size_t task)
{
    return suite->tasks[task].count;
}
