#include "serve/broker/task_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "serve/protocol/messages.h"

static const char tables[] =
    "PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = FULL;"
    /* Those of files written before know fewer columns. */
    "DROP TRIGGER IF EXISTS stores; DROP TRIGGER IF EXISTS forgets;"
    "CREATE TABLE IF NOT EXISTS tasks ("
    " number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
    " key TEXT, state INTEGER NOT NULL, attempts INTEGER NOT NULL, created REAL NOT NULL,"
    " expires REAL NOT NULL, task TEXT NOT NULL, result TEXT, failure TEXT);"
    "CREATE UNIQUE INDEX IF NOT EXISTS keys ON tasks (owner, key);"
    "CREATE INDEX IF NOT EXISTS states ON tasks (state);"
    /* Else each look for what has expired would read all that is kept, while tokens wait. */
    "CREATE INDEX IF NOT EXISTS expiry ON tasks (expires);"
    /* How many of each kind, the beginning of its id, every owner has: a count over the tasks for
     * each new one would take longer with each. */
    "CREATE INDEX IF NOT EXISTS owned ON tasks (owner, substr(id, 1, 4), number);"
    "CREATE TABLE IF NOT EXISTS stored ("
    " owner TEXT, kind TEXT, count INTEGER NOT NULL, PRIMARY KEY (owner, kind)) WITHOUT ROWID;";

/* What files written before do not have: each fails where it is there. The request is apart from
 * the rest of a task, since it is needed until the task has run, and never shown. */
static const char *const columns[] = {
    "ALTER TABLE tasks ADD COLUMN request TEXT",
    "ALTER TABLE tasks ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE stored ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0",
};

static const char triggers[] =
    "CREATE TRIGGER stores AFTER INSERT ON tasks BEGIN"
    " INSERT INTO stored VALUES (NEW.owner, substr(NEW.id, 1, 4), 1, NEW.bytes)"
    " ON CONFLICT DO UPDATE SET count = count + 1, bytes = bytes + NEW.bytes; END;"
    "CREATE TRIGGER forgets AFTER DELETE ON tasks BEGIN"
    " UPDATE stored SET count = count - 1, bytes = bytes - OLD.bytes"
    " WHERE owner = OLD.owner AND kind = substr(OLD.id, 1, 4); END;"
    "CREATE TRIGGER IF NOT EXISTS grows AFTER UPDATE OF bytes ON tasks BEGIN"
    " UPDATE stored SET bytes = bytes + NEW.bytes - OLD.bytes"
    " WHERE owner = OLD.owner AND kind = substr(OLD.id, 1, 4); END;"
    /* Of files that were written before there was a count. */
    "INSERT OR IGNORE INTO stored"
    " SELECT owner, substr(id, 1, 4), COUNT(*), SUM(bytes) FROM tasks GROUP BY 1, 2;"
    /* A webhook: due is NULL before the task's end, and when nothing is left to be sent. */
    "CREATE TABLE IF NOT EXISTS hooks ("
    " id TEXT PRIMARY KEY, outcome INTEGER NOT NULL, tries INTEGER NOT NULL, due REAL, ended REAL);"
    "CREATE INDEX IF NOT EXISTS hooks_due ON hooks (due) WHERE due IS NOT NULL;";

enum {
    TRIM,
    TRIM_ONE,
    COUNT,
    ADD,
    ADD_HOOK,
    GET,
    GET_KEY,
    SET,
    END_HOOK,
    OPEN_ONES,
    DUE_HOOKS,
    LEASE_HOOK,
    SET_HOOK,
    DELETE,
    EXPIRE,
    EXPIRE_HOOKS,
    BEGIN,
    COMMIT,
    STATEMENTS
};

/* A day: how much longer a task with an undelivered message is kept after it expired, and how far
 * in the past a message may be due before the clock is assumed to have been set back. */
#define DAY "86400.0"

#define COLUMNS                                                                                    \
    "id, owner, state, created, expires, attempts, task, result, failure, outcome, tries"
#define WITH_HOOKS " FROM tasks LEFT JOIN hooks USING (id)"

static const char *const texts[STATEMENTS] = {
    /* A limit below 0 would be none. */
    [TRIM] = "DELETE FROM tasks WHERE number IN (SELECT number FROM tasks WHERE owner = ?1"
             " AND substr(id, 1, 4) = ?2 AND state >= 2 ORDER BY number LIMIT max(0, 1 - ?3 +"
             " ifnull((SELECT count FROM stored WHERE owner = ?1 AND kind = ?2), 0)))",
    [TRIM_ONE] = "DELETE FROM tasks WHERE number = (SELECT number FROM tasks WHERE owner = ?1"
                 " AND substr(id, 1, 4) = ?2 AND state >= 2 ORDER BY number LIMIT 1)",
    [COUNT] = "SELECT count, bytes FROM stored WHERE owner = ?1 AND kind = ?2",
    [ADD] = "INSERT INTO tasks (id, owner, key, state, attempts, created, expires, task, request,"
            " bytes) VALUES (?1, ?2, ?3, 0, 0, ?4, ?5, ?6, ?7, ?8)",
    [ADD_HOOK] = "INSERT INTO hooks (id, outcome, tries) VALUES (?1, 0, 0)",
    [GET] = "SELECT " COLUMNS WITH_HOOKS " WHERE id = ?1 AND owner = ?2",
    [GET_KEY] = "SELECT " COLUMNS WITH_HOOKS " WHERE owner = ?1 AND key = ?2",
    /* What has ended needs no request. */
    [SET] = "UPDATE tasks SET state = ?2, attempts = ?3, result = ?4, failure = ?5,"
            " request = iif(?2 < 2, request, NULL),"
            " bytes = iif(?2 < 2, bytes, length(CAST(task AS BLOB)) + ?6)"
            " WHERE id = ?1 AND state < 2",
    [END_HOOK] = "UPDATE hooks SET due = ?2, ended = ?2 WHERE id = ?1 AND ended IS NULL",
    [OPEN_ONES] = "SELECT " COLUMNS ", request" WITH_HOOKS " WHERE state < 2 ORDER BY number",
    [DUE_HOOKS] = "SELECT id, owner, state, created, expires, attempts, task, NULL, failure,"
                  " outcome, tries + 1, ended FROM hooks JOIN tasks USING (id)"
                  " WHERE due <= ?1 OR due > ?1 + " DAY " ORDER BY due LIMIT ?2",
    [LEASE_HOOK] = "UPDATE hooks SET due = ?2, tries = tries + 1 WHERE id = ?1",
    [SET_HOOK] = "UPDATE hooks SET outcome = ?3, due = ?4 WHERE id = ?1 AND tries = ?2"
                 " AND due IS NOT NULL",
    [DELETE] = "DELETE FROM tasks WHERE id = ?1",
    [EXPIRE] = "DELETE FROM tasks WHERE expires < ?1 AND (expires < ?1 - " DAY
               " OR id NOT IN (SELECT id FROM hooks WHERE due IS NOT NULL))",
    [EXPIRE_HOOKS] = "DELETE FROM hooks WHERE id NOT IN (SELECT id FROM tasks)",
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
};

struct by__broker_tasks {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    bool writing; /* a transaction is open */
    bool undone;  /* rolled back by an error: SQLite does so when the disk is full */
};

const char *by__broker_task_state_name(by__broker_task_state state)
{
    static const char *const names[] = {"queued", "in_progress", "completed", "failed",
                                        "cancelled"};
    return (unsigned)state < BY_ARRAY_LENGTH(names) ? names[state] : "failed";
}

static const char *const outcomes[] = {"pending", "delivered", "failed"};

static const char *outcome_name(int outcome)
{
    return outcome >= 0 && (size_t)outcome < BY_ARRAY_LENGTH(outcomes) ? outcomes[outcome]
                                                                       : outcomes[0];
}

static int outcome_of(const char *name)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(outcomes); i++) {
        if (name != NULL && strcmp(outcomes[i], name) == 0) {
            return (int)i;
        }
    }
    return 0;
}

static by_status db_error(const by__broker_tasks *t, const char *verb, by_error *error)
{
    return by_error_set(error, BY_EIO, "cannot %s the tasks: %s", verb, sqlite3_errmsg(t->db));
}

/* Runs a statement that returns no row. */
static by_status finish(by__broker_tasks *t, sqlite3_stmt *s, const char *verb, by_error *error)
{
    int code = sqlite3_step(s);
    by_status status = code == SQLITE_DONE ? BY_OK : db_error(t, verb, error);
    (void)sqlite3_reset(s);
    (void)sqlite3_clear_bindings(s);
    t->undone = t->undone || (status != BY_OK && t->writing && sqlite3_get_autocommit(t->db) != 0);
    return status;
}

static by_status begin(by__broker_tasks *t, by_error *error)
{
    if (t->undone) {
        return by_error_set(error, BY_EIO, "cannot write the tasks: an earlier write has failed");
    }
    if (!t->writing) {
        BY_TRY(finish(t, t->statements[BEGIN], "write", error));
        t->writing = true;
    }
    return BY_OK;
}

by_status by__broker_tasks_commit(by__broker_tasks *tasks, by_error *error)
{
    if (!tasks->writing) {
        return BY_OK;
    }
    by_status status =
        tasks->undone
            ? by_error_set(error, BY_EIO, "cannot write the tasks: a write of this turn has failed")
            : finish(tasks, tasks->statements[COMMIT], "write", error);
    if (status != BY_OK) {
        (void)sqlite3_exec(tasks->db, "ROLLBACK", NULL, NULL, NULL);
    }
    tasks->writing = false;
    tasks->undone = false;
    return status;
}

static void bind_text(sqlite3_stmt *s, int at, const char *text)
{
    if (text != NULL) {
        (void)sqlite3_bind_text(s, at, text, -1, SQLITE_TRANSIENT);
    }
}

/* value: NULL for none. Adds the bytes of its text to *bytes. */
static by_status bind_json(sqlite3_stmt *s, int at, const json_t *value, size_t *bytes,
                           by_error *error)
{
    by_string text = {0};
    if (value != NULL) {
        by__json_write(&text, value, JSON_COMPACT);
    }
    bool failed = text.failed;
    *bytes += text.length;
    bind_text(s, at, text.data);
    by_string_free(&text);
    if (failed) {
        (void)sqlite3_clear_bindings(s);
        return by_error_set(error, BY_EMEMORY, "out of memory: a task");
    }
    return BY_OK;
}

static json_t *json_column(sqlite3_stmt *s, int at)
{
    const char *text = (const char *)sqlite3_column_text(s, at);
    json_t *value = text == NULL ? NULL : by__json_read(text, JSON_ALLOW_NUL, NULL);
    return value == NULL ? json_null() : value;
}

static json_t *row_of(sqlite3_stmt *s)
{
    json_t *row =
        json_pack("{ss ss ss sf sf si so so so}", "id", sqlite3_column_text(s, 0), "owner",
                  sqlite3_column_text(s, 1), "status",
                  by__broker_task_state_name((by__broker_task_state)sqlite3_column_int(s, 2)),
                  "created_at", sqlite3_column_double(s, 3), "expires_at",
                  sqlite3_column_double(s, 4), "attempts", sqlite3_column_int(s, 5), "task",
                  json_column(s, 6), "result", json_column(s, 7), "error", json_column(s, 8));
    if (sqlite3_column_type(s, 9) != SQLITE_NULL) {
        (void)json_object_set_new(row, "hook",
                                  json_pack("{ss si}", "status",
                                            outcome_name(sqlite3_column_int(s, 9)), "attempts",
                                            sqlite3_column_int(s, 10)));
    }
    return row;
}

/* Runs a statement with two text parameters and reads its row; *out is NULL if there is none. */
static by_status find(by__broker_tasks *t, int which, const char *a, const char *b, json_t **out,
                      by_error *error)
{
    sqlite3_stmt *s = t->statements[which];
    bind_text(s, 1, a);
    bind_text(s, 2, b);
    int code = sqlite3_step(s);
    *out = code == SQLITE_ROW ? row_of(s) : NULL;
    by_status status =
        code == SQLITE_ROW || code == SQLITE_DONE ? BY_OK : db_error(t, "read", error);
    (void)sqlite3_reset(s);
    (void)sqlite3_clear_bindings(s);
    return status;
}

by_status by__broker_tasks_get(by__broker_tasks *tasks, const char *id, const char *owner,
                               json_t **out, by_error *error)
{
    return find(tasks, GET, id, owner, out, error);
}

by_status by__broker_tasks_find(by__broker_tasks *tasks, const json_t *task, json_t **out,
                                by_error *error)
{
    const char *key = by__protocol_get_text(task, "key");
    *out = NULL;
    return key == NULL
               ? BY_OK
               : find(tasks, GET_KEY, by__protocol_get_text(task, "owner"), key, out, error);
}

/* How much of a kind an owner has. */
static by_status count_stored(by__broker_tasks *t, const char *owner, const char *kind,
                              int64_t *count, int64_t *bytes, by_error *error)
{
    sqlite3_stmt *s = t->statements[COUNT];
    bind_text(s, 1, owner);
    bind_text(s, 2, kind);
    int code = sqlite3_step(s);
    *count = code == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    *bytes = code == SQLITE_ROW ? sqlite3_column_int64(s, 1) : 0;
    by_status status =
        code == SQLITE_ROW || code == SQLITE_DONE ? BY_OK : db_error(t, "count", error);
    (void)sqlite3_reset(s);
    (void)sqlite3_clear_bindings(s);
    return status;
}

/* Deletes the oldest responses that have ended until there is room for the bytes of another. */
static by_status trim_bytes(by__broker_tasks *t, const char *owner, const char *kind, int64_t most,
                            int64_t coming, by_error *error)
{
    int64_t count, bytes;
    for (int changes = 1; changes > 0;) {
        BY_TRY(count_stored(t, owner, kind, &count, &bytes, error));
        if (bytes + coming <= most) {
            break;
        }
        sqlite3_stmt *s = t->statements[TRIM_ONE];
        bind_text(s, 1, owner);
        bind_text(s, 2, kind);
        BY_TRY(finish(t, s, "delete", error));
        changes = sqlite3_changes(t->db);
    }
    return BY_OK;
}

by_status by__broker_tasks_make_room(by__broker_tasks *tasks, const char *id, const char *owner,
                                     const by__broker_tasks_room *room, by_error *error)
{
    char kind[5];
    int64_t count, bytes;
    (void)snprintf(kind, sizeof kind, "%s", id);
    if (strcmp(kind, "resp") == 0 && room->bytes <= room->most_bytes) {
        sqlite3_stmt *s = tasks->statements[TRIM];
        BY_TRY(begin(tasks, error));
        bind_text(s, 1, owner);
        bind_text(s, 2, kind);
        (void)sqlite3_bind_int64(s, 3, room->most);
        BY_TRY(finish(tasks, s, "delete", error));
        BY_TRY(trim_bytes(tasks, owner, kind, room->most_bytes, room->bytes, error));
    }
    BY_TRY(count_stored(tasks, owner, kind, &count, &bytes, error));
    return count >= room->most || bytes + room->bytes > room->most_bytes
               ? by_error_set(error, BY_EARG, "%lld tasks of %lld bytes are stored already",
                              (long long)count, (long long)bytes)
               : BY_OK;
}

by_status by__broker_tasks_add(by__broker_tasks *tasks, const json_t *task, by_error *error)
{
    by__broker_tasks *t = tasks;
    const char *owner = by__protocol_get_text(task, "owner");
    const char *key = by__protocol_get_text(task, "key");
    const json_t *request = json_object_get(json_object_get(task, "task"), "request");
    bool apart = json_is_string(request);
    json_t *rest = by__protocol_copy_object(json_object_get(task, "task"));
    size_t bytes = apart ? json_string_length(request) : 0;
    if (rest == NULL || (apart && json_object_del(rest, "request") != 0)) {
        json_decref(rest);
        return by_error_set(error, BY_EMEMORY, "out of memory: a task");
    }
    sqlite3_stmt *s = t->statements[ADD];
    by_status status = begin(t, error);
    if (status == BY_OK) {
        bind_text(s, 1, by__protocol_get_text(task, "id"));
        bind_text(s, 2, owner);
        bind_text(s, 3, key);
        (void)sqlite3_bind_double(s, 4, by__serve_wall_clock());
        (void)sqlite3_bind_double(s, 5, by__protocol_get_number(task, "expires", 0.0));
        status = bind_json(s, 6, rest, &bytes, error);
    }
    json_decref(rest);
    BY_TRY(status);
    if (apart) {
        (void)sqlite3_bind_text64(s, 7, json_string_value(request), json_string_length(request),
                                  SQLITE_STATIC, SQLITE_UTF8);
    }
    (void)sqlite3_bind_int64(s, 8, (int64_t)bytes);
    BY_TRY(finish(t, s, "write", error));
    if (by__protocol_get_text(json_object_get(task, "task"), "webhook") == NULL) {
        return BY_OK;
    }
    bind_text(t->statements[ADD_HOOK], 1, by__protocol_get_text(task, "id"));
    return finish(t, t->statements[ADD_HOOK], "write", error);
}

by_status by__broker_tasks_set(by__broker_tasks *tasks, const char *id, by__broker_task_state state,
                               int attempts, const json_t *result, const json_t *failure,
                               by_error *error)
{
    sqlite3_stmt *s = tasks->statements[SET];
    size_t bytes = 0;
    BY_TRY(begin(tasks, error));
    bind_text(s, 1, id);
    (void)sqlite3_bind_int(s, 2, (int)state);
    (void)sqlite3_bind_int(s, 3, attempts);
    BY_TRY(bind_json(s, 4, result, &bytes, error));
    BY_TRY(bind_json(s, 5, failure, &bytes, error));
    (void)sqlite3_bind_int64(s, 6, (int64_t)bytes);
    BY_TRY(finish(tasks, s, "write", error));
    if (state < BY__TASK_COMPLETED) {
        return BY_OK;
    }
    s = tasks->statements[END_HOOK];
    bind_text(s, 1, id);
    (void)sqlite3_bind_double(s, 2, by__serve_wall_clock());
    return finish(tasks, s, "write", error);
}

by_status by__broker_tasks_delete(by__broker_tasks *tasks, const char *id, by_error *error)
{
    BY_TRY(begin(tasks, error));
    bind_text(tasks->statements[DELETE], 1, id);
    return finish(tasks, tasks->statements[DELETE], "write", error);
}

by_status by__broker_tasks_open_ones(by__broker_tasks *tasks, json_t **out, by_error *error)
{
    sqlite3_stmt *s = tasks->statements[OPEN_ONES];
    int code;
    *out = json_array();
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        json_t *row = row_of(s);
        const char *request = (const char *)sqlite3_column_text(s, 11);
        size_t length = (size_t)sqlite3_column_bytes(s, 11);
        if (request != NULL) { /* else it is in the task, in a file that was written before */
            (void)json_object_set_new(json_object_get(row, "task"), "request",
                                      json_stringn(request, length));
        }
        (void)json_array_append_new(*out, row);
    }
    by_status status = code == SQLITE_DONE ? BY_OK : db_error(tasks, "read", error);
    (void)sqlite3_reset(s);
    return status;
}

by_status by__broker_tasks_expire(by__broker_tasks *tasks, double now, by_error *error)
{
    BY_TRY(begin(tasks, error));
    (void)sqlite3_bind_double(tasks->statements[EXPIRE], 1, now);
    BY_TRY(finish(tasks, tasks->statements[EXPIRE], "write", error));
    return finish(tasks, tasks->statements[EXPIRE_HOOKS], "write", error);
}

/* ---- webhooks ---- */

static by_status lease(by__broker_tasks *t, const json_t *row, double until, by_error *error)
{
    sqlite3_stmt *s = t->statements[LEASE_HOOK];
    BY_TRY(begin(t, error));
    bind_text(s, 1, by__protocol_get_text(row, "id"));
    (void)sqlite3_bind_double(s, 2, until);
    return finish(t, s, "write", error);
}

by_status by__broker_tasks_hooks(by__broker_tasks *tasks, double now, double seconds, int64_t most,
                                 json_t **out, by_error *error)
{
    sqlite3_stmt *s = tasks->statements[DUE_HOOKS];
    json_t *rows = json_array();
    size_t i;
    json_t *row;
    int code;
    (void)sqlite3_bind_double(s, 1, now);
    (void)sqlite3_bind_int64(s, 2, most);
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        row = row_of(s);
        (void)json_object_set_new(row, "tries", json_integer(sqlite3_column_int64(s, 10)));
        (void)json_object_set_new(row, "ended_at", json_real(sqlite3_column_double(s, 11)));
        (void)json_array_append_new(rows, row);
    }
    by_status status = code == SQLITE_DONE ? BY_OK : db_error(tasks, "read", error);
    (void)sqlite3_reset(s);
    (void)sqlite3_clear_bindings(s);
    json_array_foreach(rows, i, row)
    {
        status = status == BY_OK ? lease(tasks, row, now + seconds, error) : status;
    }
    if (status != BY_OK) {
        json_decref(rows);
        return status;
    }
    *out = rows;
    return BY_OK;
}

by_status by__broker_tasks_set_hook(by__broker_tasks *tasks, const char *id, int64_t try,
                                    const char *outcome, double due, by_error *error)
{
    sqlite3_stmt *s = tasks->statements[SET_HOOK];
    BY_TRY(begin(tasks, error));
    bind_text(s, 1, id);
    (void)sqlite3_bind_int64(s, 2, try);
    (void)sqlite3_bind_int(s, 3, outcome_of(outcome));
    if (outcome_of(outcome) == 0) {
        (void)sqlite3_bind_double(s, 4, due);
    }
    return finish(tasks, s, "write", error);
}

by_status by__broker_tasks_open(by__broker_tasks **out, const char *path, by_error *error)
{
    by__broker_tasks *t = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "tasks", error));
    /* SQLite would create it for all to read, and gives the files beside it the same mode. */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)close(fd);
    }
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int code = sqlite3_open_v2(path, &t->db, flags, NULL);
    if (code == SQLITE_OK) {
        (void)sqlite3_busy_timeout(t->db, 5000);
        /* Its own temporary files would be outside the directories of a broker. */
        (void)sqlite3_exec(t->db, "PRAGMA temp_store = MEMORY", NULL, NULL, NULL);
        code = sqlite3_exec(t->db, tables, NULL, NULL, NULL);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(columns) && code == SQLITE_OK; i++) {
        (void)sqlite3_exec(t->db, columns[i], NULL, NULL, NULL);
    }
    if (code == SQLITE_OK) {
        code = sqlite3_exec(t->db, triggers, NULL, NULL, NULL);
    }
    for (int i = 0; i < STATEMENTS && code == SQLITE_OK; i++) {
        code = sqlite3_prepare_v3(t->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &t->statements[i],
                                  NULL);
    }
    if (code != SQLITE_OK) {
        by_status status = by_error_set(error, BY_EIO, "cannot open the tasks in %s: %s", path,
                                        t->db == NULL ? "no memory" : sqlite3_errmsg(t->db));
        by__broker_tasks_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

void by__broker_tasks_close(by__broker_tasks **tasks)
{
    by__broker_tasks *t = *tasks;
    if (t == NULL) {
        return;
    }
    *tasks = NULL;
    (void)by__broker_tasks_commit(t, NULL);
    for (int i = 0; i < STATEMENTS; i++) {
        (void)sqlite3_finalize(t->statements[i]);
    }
    (void)sqlite3_close(t->db);
    free(t);
}
