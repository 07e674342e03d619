/* banyan runs ls. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/track.h"
#include "runs/runs.h"

/* A listed run, and what it is sorted by. */
typedef struct listed_run {
    const by_run_record *run;
    char *value; /* NULL: it has none */
    double number;
    bool is_number;
    size_t place; /* before sorting, which is kept among equals */
} listed_run;

/* Returns true if a run has a tag, given as KEY=VALUE or KEY. */
static bool has_tag(const by_run_record *r, const char *wanted)
{
    by_tag_list tags;
    const char *equals = strchr(wanted, '=');
    size_t length = equals == NULL ? strlen(wanted) : (size_t)(equals - wanted);
    bool found = false;
    if (by_tags_read(&tags, r->path, NULL) != BY_OK) {
        return false;
    }
    for (size_t i = 0; i < tags.count && !found; i++) {
        found = strlen(tags.items[i].key) == length &&
                strncmp(tags.items[i].key, wanted, length) == 0 &&
                (equals == NULL || strcmp(tags.items[i].value, equals + 1) == 0);
    }
    by_tag_list_free(&tags);
    return found;
}

/* ---- the order ---- */

static const char *const columns[] = {"name", "status", "step", "steps", "best_loss", "updated"};

static bool is_column(const char *key)
{
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        if (strcmp(key, columns[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The fact that a short name stands for: the newest value of a metric, a key of the config, or the
 * whole name as `runs show` prints it. */
static const by_fact *find_fact(const by_run_facts *facts, const char *key)
{
    static const char *const groups[] = {"",        "run.",          "last.eval.",  "last.train.",
                                         "config.", "config.model.", "environment."};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        char name[256];
        (void)snprintf(name, sizeof name, "%s%s", groups[i], key);
        const by_fact *fact = by_run_facts_find(facts, name);
        if (fact != NULL) {
            return fact;
        }
    }
    return NULL;
}

static by_status read_value(listed_run *r, const char *key, by_error *error)
{
    by_run_facts facts;
    if (by_run_facts_read(&facts, r->run->path, NULL) != BY_OK) {
        return BY_OK; /* a damaged run has no value */
    }
    const by_fact *fact = find_fact(&facts, key);
    if (fact != NULL) {
        r->value = strdup(fact->value);
        r->is_number = fact->is_number;
        r->number = fact->is_number ? strtod(fact->value, NULL) : (double)NAN;
    }
    bool failed = fact != NULL && r->value == NULL;
    by_run_facts_free(&facts);
    return failed ? by_error_set(error, BY_EMEMORY, "out of memory: runs") : BY_OK;
}

/* Numbers ascending, then texts, then runs without the value. */
static int compare_rows(const void *a, const void *b)
{
    const listed_run *x = a;
    const listed_run *y = b;
    int kinds[2] = {x->value == NULL ? 2 : !x->is_number, y->value == NULL ? 2 : !y->is_number};
    int order = kinds[0] - kinds[1];
    if (order == 0 && kinds[0] == 0) {
        order = (x->number > y->number) - (x->number < y->number);
    } else if (order == 0 && kinds[0] == 1) {
        order = strcmp(x->value, y->value);
    }
    return order != 0 ? order : (x->place > y->place) - (x->place < y->place);
}

/* Those without a value stay last. */
static void reverse(listed_run *rows, size_t count)
{
    while (count > 0 && rows[count - 1].value == NULL) {
        count--;
    }
    for (size_t i = 0; i < count / 2; i++) {
        listed_run other = rows[i];
        rows[i] = rows[count - 1 - i];
        rows[count - 1 - i] = other;
    }
}

static by_status sort(listed_run *rows, size_t count, const cli_runs_order *order, by_error *error)
{
    bool known = false;
    for (size_t i = 0; i < count; i++) {
        by_status status = read_value(&rows[i], order->key, error);
        if (status != BY_OK) {
            return status;
        }
        known = known || rows[i].value != NULL;
    }
    if (count > 0 && !known) {
        return by_error_set(error, BY_EARG,
                            "--sort: no run has '%s'; `banyan runs show RUN` lists what there is, "
                            "such as valid_loss, best_loss or config.optimizer.lr",
                            order->key);
    }
    qsort(rows, count, sizeof *rows, compare_rows);
    if (order->reverse) {
        reverse(rows, count);
    }
    return BY_OK;
}

/* ---- printing ---- */

static void print_json(const listed_run *line, const char *key)
{
    const by_run_record *r = line->run;
    printf("{\"name\":");
    cli_print_json_string(r->name);
    printf(",\"path\":");
    cli_print_json_string(r->path);
    printf(",\"status\":");
    cli_print_json_string(r->status);
    printf(",\"step\":%llu,\"steps\":%llu", (unsigned long long)r->step,
           (unsigned long long)r->steps);
    const char *const texts[][2] = {
        {"config_hash", r->config_hash}, {"started", r->started}, {"updated", r->updated}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        printf(",\"%s\":", texts[i][0]);
        cli_print_json_string(texts[i][1]);
    }
    char number[32];
    printf(",\"best_loss\":%s", cli_json_number(number, r->best_loss, 9));
    if (key != NULL && !is_column(key)) {
        printf(",");
        cli_print_json_string(key);
        printf(":");
        if (line->value == NULL) {
            printf("null");
        } else if (line->is_number) {
            printf("%s", line->value);
        } else {
            cli_print_json_string(line->value);
        }
    }
    printf("}\n");
}

static by_status print_table(const listed_run *rows, size_t count, const char *key, by_error *error)
{
    cli_columns table;
    const char *extra = key == NULL || is_column(key) ? NULL : key;
    if (!cli_columns_begin(&table)) {
        return by_error_set(error, BY_EMEMORY, "out of memory: runs");
    }
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        cli_columns_cell(&table, columns[i]);
    }
    if (extra != NULL) {
        cli_columns_cell(&table, extra);
    }
    cli_columns_row(&table);
    for (size_t i = 0; i < count; i++) {
        const by_run_record *r = rows[i].run;
        char number[3][32];
        (void)snprintf(number[0], sizeof number[0], "%llu", (unsigned long long)r->step);
        (void)snprintf(number[1], sizeof number[1], "%llu", (unsigned long long)r->steps);
        const char *const cells[] = {
            r->name,   r->status, number[0], number[1], cli_number(number[2], r->best_loss, 4),
            r->updated};
        for (size_t k = 0; k < sizeof cells / sizeof cells[0]; k++) {
            cli_columns_cell(&table, cells[k]);
        }
        if (extra != NULL) {
            cli_columns_cell(&table,
                             rows[i].value == NULL ? ""
                             : rows[i].is_number
                                 ? cli_short_number(number[0], rows[i].value, CLI_SHORT_DIGITS)
                                 : rows[i].value);
        }
        cli_columns_row(&table);
    }
    return cli_columns_print(&table, error);
}

by_status cli_list_runs(const char *directory, const by_run_query *query, const char *tag,
                        const cli_runs_order *order, bool json, by_error *error)
{
    by_registry *registry;
    by_run_list list = {0};
    listed_run *rows = NULL;
    size_t count = 0;
    by_status status = by_registry_open_view(&registry, directory, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_registry_list(registry, query, &list, error);
    by_registry_close(&registry);
    if (status == BY_OK && (rows = calloc(list.count + 1, sizeof *rows)) == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: runs");
    }
    for (size_t i = 0; i < list.count && status == BY_OK; i++) {
        if (tag == NULL || has_tag(&list.items[i], tag)) {
            rows[count] = (listed_run){.run = &list.items[i], .place = count};
            count++;
        }
    }
    if (status == BY_OK && order->key != NULL) {
        status = sort(rows, count, order, error);
    }
    for (size_t i = 0; i < count && json && status == BY_OK; i++) {
        print_json(&rows[i], order->key);
    }
    if (status == BY_OK && !json) {
        status = print_table(rows, count, order->key, error);
    }
    for (size_t i = 0; i < count; i++) {
        free(rows[i].value);
    }
    free(rows);
    by_run_list_free(&list);
    return status;
}
