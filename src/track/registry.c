/* The index of run directories. Every change is a transaction. SQLite's rollback journal is used
 * because its write-ahead log does not work on network file systems. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "track/track.h"

#define SCHEMA_VERSION    1
#define BUSY_MILLISECONDS 5000

struct by_registry {
    sqlite3 *database;
    char *runs;
    char *path;   /* ":memory:" for a view */
    bool is_view; /* read-only: a status then tells whether a process still holds the run */
};

static const char create_table[] =
    "CREATE TABLE IF NOT EXISTS runs (name TEXT PRIMARY KEY, config_hash TEXT NOT NULL,"
    " started TEXT NOT NULL, updated TEXT NOT NULL, status TEXT NOT NULL,"
    " step INTEGER NOT NULL, steps INTEGER NOT NULL, best_loss REAL)";
static const char put_row[] =
    "INSERT INTO runs VALUES (?1,?2,?3,?4,?5,?6,?7,?8) ON CONFLICT(name) DO UPDATE SET"
    " config_hash=?2, started=?3, updated=?4, status=?5, step=?6, steps=?7, best_loss=?8";
static const char list_rows[] =
    "SELECT name, config_hash, started, updated, status, step, steps, best_loss FROM runs"
    " WHERE (?1 = '' OR instr(name, ?1) > 0) AND (?2 = '' OR status = ?2)"
    " ORDER BY updated DESC, name";

static by_status database_error(const by_registry *registry, by_error *error)
{
    int code = sqlite3_errcode(registry->database);
    return by_error_set(error, code == SQLITE_NOMEM ? BY_EMEMORY : BY_EIO, "%s: %s", registry->path,
                        sqlite3_errmsg(registry->database));
}

static by_status execute(by_registry *registry, const char *statement, by_error *error)
{
    return sqlite3_exec(registry->database, statement, NULL, NULL, NULL) == SQLITE_OK
               ? BY_OK
               : database_error(registry, error);
}

static void bind_text(sqlite3_stmt *statement, int i, const char *text)
{
    (void)sqlite3_bind_text(statement, i, text == NULL ? "" : text, -1, SQLITE_STATIC);
}

static by_status put(by_registry *registry, const by_run_record *run, by_error *error)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(registry->database, put_row, -1, &statement, NULL) != SQLITE_OK) {
        return database_error(registry, error);
    }
    bind_text(statement, 1, run->name);
    bind_text(statement, 2, run->config_hash);
    bind_text(statement, 3, run->started);
    bind_text(statement, 4, run->updated);
    bind_text(statement, 5, run->status);
    (void)sqlite3_bind_int64(statement, 6, (sqlite3_int64)run->step);
    (void)sqlite3_bind_int64(statement, 7, (sqlite3_int64)run->steps);
    if (!isnan(run->best_loss)) { /* NaN leaves the parameter NULL */
        (void)sqlite3_bind_double(statement, 8, run->best_loss);
    }
    by_status status =
        sqlite3_step(statement) == SQLITE_DONE ? BY_OK : database_error(registry, error);
    (void)sqlite3_finalize(statement);
    return status;
}

by_status by__track_registry_drop(by_registry *registry, const char *name, by_error *error)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(registry->database, "DELETE FROM runs WHERE name = ?1", -1, &statement,
                           NULL) != SQLITE_OK) {
        return database_error(registry, error);
    }
    bind_text(statement, 1, name);
    by_status status =
        sqlite3_step(statement) == SQLITE_DONE ? BY_OK : database_error(registry, error);
    (void)sqlite3_finalize(statement);
    return status;
}

/* Adds the run in RUNS/NAME; a directory without run.json is skipped. */
static by_status add_directory(by_registry *registry, const char *name, by_error *error)
{
    by_run_record run = {0};
    char *directory = by__path_join(registry->runs, name);
    char *file = directory == NULL ? NULL : by__path_join(directory, "run.json");
    by_status status = BY_OK;
    if (file == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    } else if (by__path_exists(file)) {
        status = by__track_run_read(&run, directory, error);
        if (status == BY_EMEMORY) {
            goto done;
        }
        const by_run_record unreadable = {
            .name = name, .status = "unreadable", .best_loss = (double)NAN};
        by_run_record row = status == BY_OK ? run : unreadable;
        row.name = name; /* a renamed directory is listed under its new name */
        if (registry->is_view && strcmp(row.status, "running") == 0 &&
            !by__track_run_is_held(directory)) {
            row.status = "killed";
        }
        status = put(registry, &row, error);
    }
done:
    by__track_run_free(&run);
    free(file);
    free(directory);
    return status;
}

/* Adds all runs; the caller holds a transaction. */
static by_status fill(by_registry *registry, by_error *error)
{
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, registry->runs, error));
    by_status status = execute(registry, "DELETE FROM runs", error);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = add_directory(registry, names[i], error);
    }
    by__names_free(names, count);
    return status;
}

static by_status schema_version(by_registry *registry, int *version, by_error *error)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(registry->database, "PRAGMA user_version", -1, &statement, NULL) !=
        SQLITE_OK) {
        return database_error(registry, error);
    }
    by_status status = BY_OK;
    if (sqlite3_step(statement) == SQLITE_ROW) {
        *version = sqlite3_column_int(statement, 0);
    } else {
        status = database_error(registry, error);
    }
    (void)sqlite3_finalize(statement);
    return status;
}

static by_status finish(by_registry *registry, by_status status, by_error *error)
{
    if (status == BY_OK) {
        status = execute(registry, "COMMIT", error);
    }
    if (status != BY_OK) {
        (void)execute(registry, "ROLLBACK", NULL);
    }
    return status;
}

/* Creates and fills the table unless it exists; of several processes that start at once, one
 * does. */
static by_status prepare_schema(by_registry *registry, by_error *error)
{
    int version = 0;
    BY_TRY(schema_version(registry, &version, error));
    if (version == 0) {
        BY_TRY(execute(registry, "BEGIN IMMEDIATE", error));
        by_status status = schema_version(registry, &version, error);
        if (status == BY_OK && version == 0) {
            status = execute(registry, create_table, error);
            if (status == BY_OK) {
                status = fill(registry, error);
            }
            if (status == BY_OK) {
                status = execute(registry, "PRAGMA user_version = 1", error);
                version = SCHEMA_VERSION;
            }
        }
        BY_TRY(finish(registry, status, error));
    }
    if (version != SCHEMA_VERSION) {
        return by_error_set(error, BY_EFORMAT,
                            "%s has version %d, but this banyan uses %d; remove the file, and it "
                            "is rebuilt from the run directories",
                            registry->path, version, SCHEMA_VERSION);
    }
    /* Scans the table, so that damage is found here and not in the middle of a run. */
    return execute(registry, "SELECT count(updated) FROM runs", error);
}

static by_status connect(by_registry *registry, bool *damaged, by_error *error)
{
    *damaged = false;
    if (sqlite3_open(registry->path, &registry->database) != SQLITE_OK) {
        return registry->database == NULL
                   ? by_error_set(error, BY_EMEMORY, "out of memory: registry")
                   : database_error(registry, error);
    }
    (void)sqlite3_busy_timeout(registry->database, BUSY_MILLISECONDS);
    by_status status = prepare_schema(registry, error);
    int code = sqlite3_errcode(registry->database);
    *damaged = status != BY_OK && (code == SQLITE_NOTADB || code == SQLITE_CORRUPT);
    return status;
}

/* Moves the damaged file aside; the run directories still have its contents. */
static by_status put_aside(by_registry *registry, by_error *error)
{
    by_string text = {0};
    char *broken;
    (void)sqlite3_close(registry->database);
    registry->database = NULL;
    by_string_format(&text, "%s.broken", registry->path);
    BY_TRY(by__string_release(&text, &broken, error));
    by_status status = BY_OK;
    if (rename(registry->path, broken) != 0 && errno != ENOENT) {
        status = by_error_set(error, BY_EIO, "cannot rename %s to %s: %s", registry->path, broken,
                              strerror(errno));
    }
    free(broken);
    return status;
}

/* Makes a file in place of the damaged one. Of processes that find the damage at the same time one
 * does: the others wait for it, and then find the new file. */
static by_status replace(by_registry *registry, by_error *error)
{
    bool damaged = false;
    int lock = by__track_directory_lock(registry->runs);
    (void)sqlite3_close(registry->database);
    by_status status = connect(registry, &damaged, error);
    if (damaged) {
        status = put_aside(registry, error);
        if (status == BY_OK) {
            status = connect(registry, &damaged, error);
        }
    }
    by__track_directory_unlock(lock);
    return status;
}

by_status by_registry_open(by_registry **out, const char *runs, by_error *error)
{
    by_registry *registry;
    bool damaged = false;
    BY_TRY(by__alloc((void **)&registry, 1, sizeof *registry, "registry", error));
    registry->runs = by__strdup(runs);
    registry->path = by__path_join(runs, "registry.sqlite");
    by_status status = registry->runs == NULL || registry->path == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                           : by__make_dirs(runs, error);
    if (status == BY_OK) {
        status = connect(registry, &damaged, error);
    }
    if (damaged) {
        status = replace(registry, error);
    }
    if (status != BY_OK) {
        by_registry_close(&registry);
        return status;
    }
    *out = registry;
    return BY_OK;
}

by_status by_registry_open_view(by_registry **out, const char *runs, by_error *error)
{
    by_registry *registry;
    bool damaged;
    if (!by__path_is_dir(runs)) {
        return by_error_set(error, BY_ECONFIG, "there is no directory %s", runs);
    }
    BY_TRY(by__alloc((void **)&registry, 1, sizeof *registry, "registry", error));
    registry->is_view = true;
    registry->runs = by__strdup(runs);
    registry->path = by__strdup(":memory:");
    by_status status = registry->runs == NULL || registry->path == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                           : connect(registry, &damaged, error);
    if (status != BY_OK) {
        by_registry_close(&registry);
        return status;
    }
    *out = registry;
    return BY_OK;
}

void by_registry_close(by_registry **registry)
{
    if (*registry != NULL) {
        (void)sqlite3_close((*registry)->database);
        free((*registry)->path);
        free((*registry)->runs);
        free(*registry);
        *registry = NULL;
    }
}

/* Copies the record and fills in `updated`. BY_EARG if its name cannot be a key. */
static by_status complete_record(by_run_record *row, char now[24], const by_run_record *run,
                                 by_error *error)
{
    if (run->name == NULL || run->name[0] == '\0' || run->name[0] == '.' ||
        strchr(run->name, '/') != NULL || !by__utf8_valid(run->name, strlen(run->name))) {
        return by_error_set(error, BY_EARG, "'%s' is not the name of a run directory",
                            run->name == NULL ? "" : run->name);
    }
    *row = *run;
    if (row->updated == NULL || row->updated[0] == '\0') {
        by__utc_now(now);
        row->updated = now;
    }
    return BY_OK;
}

by_status by__track_registry_put(by_registry *registry, const by_run_record *run, by_error *error)
{
    by_run_record row;
    char now[24];
    BY_TRY(complete_record(&row, now, run, error));
    return put(registry, &row, error);
}

by_status by_registry_update(by_registry *registry, const by_run_record *run, by_error *error)
{
    by_run_record row;
    char now[24];
    if (registry->is_view) {
        return by_error_set(error, BY_ESTATE, "%s was opened for reading", registry->runs);
    }
    BY_TRY(complete_record(&row, now, run, error));
    char *directory;
    BY_TRY(by__path_make(&directory, registry->runs, run->name, error));
    by_status status = by__track_run_write(directory, &row, error);
    if (status == BY_OK) {
        status = put(registry, &row, error);
    }
    free(directory);
    return status;
}

by_status by_registry_rebuild(by_registry *registry, by_error *error)
{
    BY_TRY(execute(registry, "BEGIN IMMEDIATE", error));
    return finish(registry, fill(registry, error), error);
}

static char *column_text(sqlite3_stmt *statement, int i)
{
    const char *text = (const char *)sqlite3_column_text(statement, i);
    return by__strdup(text == NULL ? "" : text);
}

static by_status read_row(const by_registry *registry, by_run_record *run, sqlite3_stmt *statement,
                          by_error *error)
{
    run->name = column_text(statement, 0);
    run->config_hash = column_text(statement, 1);
    run->started = column_text(statement, 2);
    run->updated = column_text(statement, 3);
    run->status = column_text(statement, 4);
    run->step = (uint64_t)sqlite3_column_int64(statement, 5);
    run->steps = (uint64_t)sqlite3_column_int64(statement, 6);
    run->best_loss = sqlite3_column_type(statement, 7) == SQLITE_NULL
                         ? (double)NAN
                         : sqlite3_column_double(statement, 7);
    run->path = run->name == NULL ? NULL : by__path_join(registry->runs, run->name);
    bool complete = run->path != NULL && run->config_hash != NULL && run->started != NULL &&
                    run->updated != NULL && run->status != NULL;
    return complete ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: list of runs");
}

by_status by_registry_list(by_registry *registry, const by_run_query *query, by_run_list *out,
                           by_error *error)
{
    by_run_list list = {0};
    size_t capacity = 0;
    sqlite3_stmt *statement;
    int code = SQLITE_DONE;
    if (sqlite3_prepare_v2(registry->database, list_rows, -1, &statement, NULL) != SQLITE_OK) {
        return database_error(registry, error);
    }
    bind_text(statement, 1, query == NULL ? NULL : query->name);
    bind_text(statement, 2, query == NULL ? NULL : query->status);
    by_status status = BY_OK;
    while (status == BY_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        status =
            by__reserve((void **)&list.items, &capacity, list.count + 1, sizeof *list.items, error);
        if (status == BY_OK) {
            list.items[list.count] = (by_run_record){0};
            status = read_row(registry, &list.items[list.count++], statement, error);
        }
    }
    if (status == BY_OK && code != SQLITE_DONE) {
        status = database_error(registry, error);
    }
    (void)sqlite3_finalize(statement);
    if (status != BY_OK) {
        by_run_list_free(&list);
        return status;
    }
    *out = list;
    return BY_OK;
}

by_status by_run_read(by_run_list *out, const char *run, by_error *error)
{
    by_run_record *record;
    BY_TRY(by__alloc((void **)&record, 1, sizeof *record, "a run", error));
    by_status status = by__track_run_read(record, run, error);
    if (status == BY_OK) {
        bool is_killed = strcmp(record->status, "running") == 0 && !by__track_run_is_held(run);
        const char *status_text = is_killed ? by__strdup("killed") : record->status;
        if (is_killed) {
            free((void *)(uintptr_t)record->status);
        }
        record->status = status_text;
        record->path = by__strdup(run);
        if (record->path == NULL || record->status == NULL) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: a run");
        }
    }
    if (status != BY_OK) {
        by__track_run_free(record);
        free(record);
        return status;
    }
    *out = (by_run_list){.items = record, .count = 1};
    return BY_OK;
}

void by_run_list_free(by_run_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        by__track_run_free(&list->items[i]);
    }
    free(list->items);
    *list = (by_run_list){0};
}
