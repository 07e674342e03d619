/* banyan runs show, compare and export. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/track.h"
#include "banyan/train.h"
#include "runs/runs.h"

static by_status read_facts(by_run_facts *out, const char *path, by_error *error)
{
    char *run;
    by_status status = by_run_find(&run, path, error);
    if (status == BY_OK) {
        status = by_run_facts_read(out, run, error);
        free(run);
    }
    return status;
}

static void print_json_value(const by_fact *fact)
{
    if (fact == NULL) {
        printf("null");
    } else if (fact->is_number) {
        printf("%s", fact->value);
    } else {
        cli_print_json_string(fact->value);
    }
}

static void print_json_facts(const by_run_facts *facts)
{
    printf("{");
    for (size_t i = 0; i < facts->count; i++) {
        printf("%s", i > 0 ? "," : "");
        cli_print_json_string(facts->items[i].key);
        printf(":");
        print_json_value(&facts->items[i]);
    }
    printf("}\n");
}

static by_status print_facts(const by_run_facts *facts, by_error *error)
{
    cli_columns rows;
    if (!cli_columns_begin(&rows)) {
        return by_error_set(error, BY_EMEMORY, "out of memory: facts of a run");
    }
    for (size_t i = 0; i < facts->count; i++) {
        cli_columns_cell(&rows, facts->items[i].key);
        cli_columns_cell(&rows, facts->items[i].value);
        cli_columns_row(&rows);
    }
    return cli_columns_print(&rows, error);
}

int cli_show_run(const char *run, bool json)
{
    by_run_facts facts;
    by_error error = {0};
    if (read_facts(&facts, run, &error) != BY_OK) {
        return cli_fail(&cli_runs, &error);
    }
    if (json) {
        print_json_facts(&facts);
    }
    by_status status = json ? BY_OK : print_facts(&facts, &error);
    by_run_facts_free(&facts);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_runs, &error);
}

/* ---- several runs ---- */

typedef struct facts_table {
    by_run_facts *runs;
    size_t count;
    const char **keys; /* distinct keys of all runs, in the order of the first run that has each */
    size_t key_count;
} facts_table;

static void free_table(facts_table *t)
{
    for (size_t i = 0; i < t->count; i++) {
        by_run_facts_free(&t->runs[i]);
    }
    free(t->runs);
    free(t->keys);
}

static bool has_key(const facts_table *t, const char *key)
{
    for (size_t i = 0; i < t->key_count; i++) {
        if (strcmp(t->keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

static by_status list_keys(facts_table *t, by_error *error)
{
    size_t most = 1;
    for (size_t i = 0; i < t->count; i++) {
        most += t->runs[i].count;
    }
    t->keys = malloc(most * sizeof *t->keys);
    if (t->keys == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: facts of runs");
    }
    for (size_t i = 0; i < t->count; i++) {
        for (size_t k = 0; k < t->runs[i].count; k++) {
            const char *key = t->runs[i].items[k].key;
            if (!has_key(t, key)) {
                t->keys[t->key_count++] = key;
            }
        }
    }
    return BY_OK;
}

/* Opens the facts of runs. Paths are resolved by by_run_find; with `exact` they are directories,
 * and damaged ones are reported and skipped. */
static by_status open_table(facts_table *t, const char *const *runs, size_t count, bool exact,
                            by_error *error)
{
    by_status status = BY_OK;
    *t = (facts_table){.runs = calloc(count + 1, sizeof *t->runs)};
    if (t->runs == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: facts of runs");
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = exact ? by_run_facts_read(&t->runs[t->count], runs[i], error)
                       : read_facts(&t->runs[t->count], runs[i], error);
        t->count += status == BY_OK;
        if (exact && status != BY_OK && status != BY_EMEMORY) {
            fprintf(stderr, "banyan runs: skipping %s: %s\n", runs[i], error->message);
            status = BY_OK;
        }
    }
    if (status == BY_OK) {
        status = list_keys(t, error);
    }
    if (status != BY_OK) {
        free_table(t);
    }
    return status;
}

static bool differs(const facts_table *t, const char *key)
{
    const by_fact *first = by_run_facts_find(&t->runs[0], key);
    for (size_t i = 1; i < t->count; i++) {
        const by_fact *fact = by_run_facts_find(&t->runs[i], key);
        if ((fact == NULL) != (first == NULL) ||
            (fact != NULL && strcmp(fact->value, first->value) != 0)) {
            return true;
        }
    }
    return false;
}

static void print_json_row(const facts_table *t, const char *key)
{
    printf("{\"key\":");
    cli_print_json_string(key);
    for (size_t i = 0; i < t->count; i++) {
        printf(i == 0 ? ",\"values\":[" : ",");
        print_json_value(by_run_facts_find(&t->runs[i], key));
    }
    printf("]}\n");
}

/* Digits with which all values of a row can be told apart that differ. */
static int digits_of(const facts_table *t, const char *key)
{
    char a[32], b[32];
    for (int digits = CLI_SHORT_DIGITS; digits < 17; digits += 3) {
        bool apart = true;
        for (size_t i = 1; i < t->count && apart; i++) {
            const by_fact *x = by_run_facts_find(&t->runs[i - 1], key);
            const by_fact *y = by_run_facts_find(&t->runs[i], key);
            apart = x == NULL || y == NULL || strcmp(x->value, y->value) == 0 ||
                    strcmp(cli_short_number(a, x->value, digits),
                           cli_short_number(b, y->value, digits)) != 0;
        }
        if (apart) {
            return digits;
        }
    }
    return 17;
}

static void add_row(cli_columns *rows, const facts_table *t, const char *key)
{
    char number[32];
    int digits = digits_of(t, key);
    cli_columns_cell(rows, key);
    for (size_t i = 0; i < t->count; i++) {
        const by_fact *fact = by_run_facts_find(&t->runs[i], key);
        cli_columns_cell(rows, fact == NULL      ? ""
                               : fact->is_number ? cli_short_number(number, fact->value, digits)
                                                 : fact->value);
    }
    cli_columns_row(rows);
}

int cli_compare_runs(char **runs, int count, bool all, bool json)
{
    facts_table t;
    cli_columns rows = {0};
    by_error error = {0};
    if (open_table(&t, (const char *const *)runs, (size_t)count, false, &error) != BY_OK) {
        return cli_fail(&cli_runs, &error);
    }
    by_status status = BY_OK;
    if (!json && !cli_columns_begin(&rows)) {
        status = by_error_set(&error, BY_EMEMORY, "out of memory: facts of runs");
    }
    for (size_t k = 0; k < t.key_count && status == BY_OK; k++) {
        if (!all && !differs(&t, t.keys[k])) {
            continue;
        }
        if (json) {
            print_json_row(&t, t.keys[k]);
        } else {
            add_row(&rows, &t, t.keys[k]);
        }
    }
    if (status == BY_OK && !json) {
        status = cli_columns_print(&rows, &error);
    }
    free_table(&t);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_runs, &error);
}

/* ---- export ---- */

/* Prints a CSV cell (RFC 4180). */
static void print_csv(const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        printf("%s", text);
        return;
    }
    putchar('"');
    for (const char *p = text; *p != '\0'; p++) {
        printf(*p == '"' ? "\"\"" : "%c", *p);
    }
    putchar('"');
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Finds what a file's name asks for; standard output is CSV. */
static by_status find_form(bool *lines, const char *out, by_error *error)
{
    *lines = out != NULL && (ends_with(out, ".jsonl") || ends_with(out, ".ndjson"));
    if (out == NULL || *lines || ends_with(out, ".csv")) {
        return BY_OK;
    }
    return by_error_set(error, BY_EARG,
                        "--out %s: its name tells the format: FILE.csv, or FILE.jsonl (also "
                        ".ndjson) for JSON lines",
                        out);
}

static void print_rows(const facts_table *t)
{
    for (size_t k = 0; k < t->key_count; k++) {
        printf("%s", k > 0 ? "," : "");
        print_csv(t->keys[k]);
    }
    printf("\r\n");
    for (size_t i = 0; i < t->count; i++) {
        for (size_t k = 0; k < t->key_count; k++) {
            const by_fact *fact = by_run_facts_find(&t->runs[i], t->keys[k]);
            printf("%s", k > 0 ? "," : "");
            print_csv(fact == NULL ? "" : fact->value);
        }
        printf("\r\n");
    }
}

int cli_export_runs(const char *directory, const char *out)
{
    by_registry *registry = NULL;
    by_run_list list = {0};
    facts_table t;
    by_error error = {0};
    bool lines;
    by_status status = find_form(&lines, out, &error);
    if (status == BY_OK) {
        status = by_registry_open_view(&registry, directory, &error);
    }
    if (status == BY_OK) {
        status = by_registry_list(registry, NULL, &list, &error);
    }
    const char **paths = calloc(list.count + 1, sizeof *paths);
    if (status == BY_OK && paths == NULL) {
        status = by_error_set(&error, BY_EMEMORY, "out of memory: runs");
    }
    for (size_t i = 0; i < list.count && status == BY_OK; i++) {
        paths[i] = list.items[i].path;
    }
    if (status == BY_OK) {
        status = open_table(&t, paths, list.count, true, &error);
    }
    if (status == BY_OK) {
        status = cli_redirect(out, &error);
        if (status == BY_OK && lines) {
            for (size_t i = 0; i < t.count; i++) {
                print_json_facts(&t.runs[i]);
            }
        } else if (status == BY_OK) {
            print_rows(&t);
        }
        free_table(&t);
    }
    free(paths);
    by_run_list_free(&list);
    by_registry_close(&registry);
    if (status == BY_OK) {
        cli_tell_written(out);
    }
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_runs, &error);
}

/* A run whose numbers are printed, and how. */
typedef struct printed_run {
    const char *run;
    bool lines;
} printed_run;

static void print_number(void *user, const char *event, uint64_t step, const char *key,
                         double value)
{
    const printed_run *n = user;
    char number[32];
    if (n->lines) {
        printf("{\"run\":");
        cli_print_json_string(n->run);
        printf(",\"event\":");
        cli_print_json_string(event);
        printf(",\"step\":%llu,\"key\":", (unsigned long long)step);
        cli_print_json_string(key);
        printf(",\"value\":%s}\n", cli_json_number(number, value, 17));
        return;
    }
    print_csv(n->run);
    printf(",");
    print_csv(event);
    printf(",%llu,", (unsigned long long)step);
    print_csv(key);
    printf(",%s\r\n", cli_json_number(number, value, 17));
}

int cli_export_series(char **runs, int count, const char *out)
{
    by_error error = {0};
    bool lines;
    by_status status = find_form(&lines, out, &error);
    char **found = calloc((size_t)count + 1, sizeof *found);
    if (status == BY_OK && found == NULL) {
        status = by_error_set(&error, BY_EMEMORY, "out of memory: runs");
    }
    /* Check all runs before overwriting the file, which may be valuable. */
    for (int i = 0; i < count && status == BY_OK; i++) {
        status = by_run_find(&found[i], runs[i], &error);
    }
    if (status == BY_OK) {
        status = cli_redirect(out, &error);
    }
    if (status == BY_OK && !lines) {
        printf("run,event,step,key,value\r\n");
    }
    for (int i = 0; i < count && status == BY_OK; i++) {
        uint64_t offset = 0;
        printed_run own = {found[i], lines};
        status = by_events_follow(found[i], &offset, NULL, print_number, &own, &error);
    }
    for (int i = 0; i < count && found != NULL; i++) {
        free(found[i]);
    }
    free(found);
    if (status == BY_OK) {
        cli_tell_written(out);
    }
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_runs, &error);
}
