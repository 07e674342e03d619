#include "track/mlflow_client.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "track/mlflow_call.h"
#include "track/sinks/sink.h"

enum { window = 1 << 18 };

/* ---- files of the run ---- */

by_status by__track_mlflow_save(const by__track_mlflow *m, by_error *error)
{
    by_string text = {0};
    by__track_mlflow_state_print(&text, &m->state);
    by_status status = text.failed ? by__track_mlflow_no_memory(error)
                                   : by__file_write(m->state_path, text.data, text.length, error);
    by_string_free(&text);
    return status;
}

/* Returns the length without a slash at the end, since both addresses are the same. */
static size_t address_length(const char *server)
{
    size_t n = strlen(server);
    while (n > 0 && server[n - 1] == '/') {
        n--;
    }
    return n;
}

static bool is_same_server(const char *a, const char *b)
{
    size_t n = address_length(a);
    return n == address_length(b) && memcmp(a, b, n) == 0;
}

static by_status set_server(by__track_mlflow *m, by_error *error)
{
    free(m->state.server);
    m->state.server = by__strndup(m->options->server, address_length(m->options->server));
    return m->state.server == NULL ? by__track_mlflow_no_memory(error) : BY_OK;
}

static by_status load_state(by__track_mlflow *m, by_error *error)
{
    char *text;
    size_t length;
    struct stat info;
    if (!by__path_exists(m->state_path)) {
        return set_server(m, error);
    }
    BY_TRY(by__file_read(&text, &length, m->state_path, 1 << 16, error));
    by_status status = by__track_mlflow_state_parse(&m->state, m->state_path, text, length, error);
    free(text);
    if (status == BY_OK && !is_same_server(m->state.server, m->options->server)) {
        /* Everything is new to another server, unless it had the run before. */
        char *key = m->state.key;
        m->state.key = NULL;
        by__track_mlflow_state_free(&m->state);
        m->state = (by__track_mlflow_state){.key = key, .creations = key != NULL};
    }
    status = status == BY_OK ? set_server(m, error) : status;
    /* The file was truncated by somebody. */
    if (status == BY_OK && stat(m->events_path, &info) == 0 &&
        m->state.offset > (uint64_t)info.st_size) {
        m->state.offset = (uint64_t)info.st_size;
    }
    return status;
}

/* ---- batches ---- */

/* Reads events.jsonl from the offset, which is the start of a line: at least one whole line if
 * there is one. */
static by_status read_window(const by__track_mlflow *m, by_string *out, bool *more, by_error *error)
{
    int fd;
    BY_TRY(by__open_regular(&fd, NULL, m->events_path, error));
    by_status status = BY_OK;
    bool has_line = false;
    off_t at = (off_t)m->state.offset;
    char block[65536];
    ssize_t n = 1;
    while (n > 0 && (out->length < window || !has_line)) {
        n = pread(fd, block, sizeof block, at);
        if (n > 0) {
            by_string_add(out, block, (size_t)n);
            has_line = has_line || memchr(block, '\n', (size_t)n) != NULL;
            at += n;
        }
    }
    if (n < 0) {
        status = by__io_error(error, "read", m->events_path);
    } else if (out->failed) {
        status = by__track_mlflow_no_memory(error);
    }
    *more = n > 0;
    (void)close(fd);
    return status;
}

uint64_t by__track_mlflow_waiting(const by__track_mlflow *m)
{
    struct stat info;
    bool known = stat(m->events_path, &info) == 0 && (uint64_t)info.st_size > m->state.offset;
    return known ? (uint64_t)info.st_size - m->state.offset : 0;
}

/* Sets a run that had ended on the server back to running, since it has more to send. */
static by_status begin_again(by__track_mlflow *m, by_error *error)
{
    char refusal[64];
    if (!m->state.is_ended || by__track_mlflow_waiting(m) == 0) {
        return BY_OK;
    }
    m->body.length = 0;
    by__track_mlflow_add_field(&m->body, "run_id", m->state.run);
    by__track_mlflow_add_field(&m->body, "status", "RUNNING");
    by__string_append(&m->body, "}");
    BY_TRY(by__track_mlflow_request(m, "runs/update", NULL, refusal, error));
    m->state.is_ended = false;
    return by__track_mlflow_save(m, error);
}

by_status by__track_mlflow_send(by__track_mlflow *m, bool *more, by_error *error)
{
    char refusal[64];
    by_string text = {0};
    size_t used;
    size_t next;
    size_t count;
    *more = true;
    BY_TRY(by__track_mlflow_describe(m, error));
    BY_TRY(begin_again(m, error));
    by_status status = read_window(m, &text, more, error);
    if (status == BY_OK) {
        m->body.length = 0;
        status = by__track_mlflow_batch(&m->body, m->state.run, m->events_path,
                                        text.data == NULL ? "" : text.data, text.length, m->skip,
                                        &used, &next, &count, error);
    }
    if (status == BY_OK && count > 0) {
        by__string_append(&m->body, "]}");
        status = by__track_mlflow_request(m, "runs/log-batch", NULL, refusal, error);
    }
    if (status == BY_OK && text.length > 0) {
        m->skip = next;
        m->state.offset += used;
        *more = *more || memchr(text.data + used, '\n', text.length - used) != NULL;
        status = used > 0 ? by__track_mlflow_save(m, error) : BY_OK;
    }
    by_string_free(&text);
    return status;
}

by_status by__track_mlflow_end(by__track_mlflow *m, by_error *error)
{
    static const char *const words[][2] = {{"done", "FINISHED"}, {"failed", "FAILED"}};
    char refusal[64];
    by_run_record record;
    const char *status = "KILLED";
    BY_TRY(by__track_mlflow_sweep(m, error));
    if (m->state.is_ended) {
        return BY_OK;
    }
    BY_TRY(by__track_run_read(&record, m->options->run, error));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(words); i++) {
        status = strcmp(record.status, words[i][0]) == 0 ? words[i][1] : status;
    }
    m->body.length = 0;
    by__track_mlflow_add_field(&m->body, "run_id", m->state.run);
    by__track_mlflow_add_field(&m->body, "status", status);
    by_string_format(&m->body, ",\"end_time\":%lld}",
                     by__track_mlflow_milliseconds(record.updated));
    by__track_run_free(&record);
    BY_TRY(by__track_mlflow_request(m, "runs/update", NULL, refusal, error));
    m->state.is_ended = true;
    return by__track_mlflow_save(m, error);
}

by_status by__track_mlflow_rewind(const char *run, by_error *error)
{
    struct stat info;
    char *text = NULL;
    size_t length;
    const by__track_mlflow_options options = {.run = run};
    by__track_mlflow m = {.options = &options,
                          .state_path = by__path_join(run, "mlflow.json"),
                          .events_path = by__path_join(run, "events.jsonl")};
    bool has_paths = m.state_path != NULL && m.events_path != NULL;
    by_status status = has_paths ? BY_OK : by__track_mlflow_no_memory(error);
    uint64_t size = has_paths && stat(m.events_path, &info) == 0 ? (uint64_t)info.st_size : 0;
    /* Whoever sends will report a damaged state file. */
    bool is_there =
        has_paths && by__path_exists(m.state_path) &&
        by__file_read(&text, &length, m.state_path, 1 << 16, NULL) == BY_OK &&
        by__track_mlflow_state_parse(&m.state, m.state_path, text, length, NULL) == BY_OK;
    if (is_there && m.state.offset > size) {
        m.state.offset = size;
        status = by__track_mlflow_save(&m, error);
    }
    by__track_mlflow_state_free(&m.state);
    free(text);
    free(m.state_path);
    free(m.events_path);
    return status;
}

/* ---- opening ---- */

static by_status set_up(by__track_mlflow *m, by_error *error)
{
    m->state_path = by__path_join(m->options->run, "mlflow.json");
    m->events_path = by__path_join(m->options->run, "events.jsonl");
    m->curl = curl_easy_init();
    m->multi = curl_multi_init();
    m->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (m->state_path == NULL || m->events_path == NULL || m->curl == NULL || m->multi == NULL ||
        m->headers == NULL) {
        return by__track_mlflow_no_memory(error);
    }
    by__track_mlflow_prepare(m);
    return load_state(m, error);
}

by_status by__track_mlflow_open(by__track_mlflow **out, const by__track_mlflow_options *options,
                                by_error *error)
{
    by__track_mlflow *m;
    BY_TRY(by__alloc((void **)&m, 1, sizeof *m, "mlflow", error));
    m->options = options;
    by_status status = set_up(m, error);
    if (status != BY_OK) {
        by__track_mlflow_close(&m);
        return status;
    }
    *out = m;
    return BY_OK;
}

void by__track_mlflow_close(by__track_mlflow **mlflow)
{
    by__track_mlflow *m = *mlflow;
    if (m == NULL) {
        return;
    }
    curl_easy_cleanup(m->curl);
    (void)curl_multi_cleanup(m->multi);
    curl_slist_free_all(m->headers);
    by__track_mlflow_state_free(&m->state);
    by_string_free(&m->reply);
    by_string_free(&m->body);
    free(m->state_path);
    free(m->events_path);
    free(m);
    *mlflow = NULL;
}

/* ---- runs that have ended ---- */

static bool stop_sync(void *user)
{
    const by_mlflow_sync_options *options = user;
    return options->stop != NULL && options->stop(options->user);
}

static by_status send_rest(by__track_mlflow *m, const by_mlflow_sync_options *options,
                           by_error *error)
{
    bool more = true;
    while (more) {
        if (options->progress != NULL) {
            options->progress(options->user, by__track_mlflow_waiting(m));
        }
        by_status status = by__track_mlflow_send(m, &more, error);
        if (stop_sync((void *)(uintptr_t)options)) {
            return by_error_set(error, BY_ESTOPPED, "stopped; the rest can be sent later");
        }
        BY_TRY(status);
    }
    return by__track_mlflow_end(m, error);
}

by_status by_mlflow_sync(const by_mlflow_sync_options *options, by_error *error)
{
    by__track_mlflow *m;
    int lock;
    const by__track_mlflow_options own = {.run = options->run,
                                          .server = options->server,
                                          .project = options->project,
                                          .stop = stop_sync,
                                          .user = (void *)(uintptr_t)options};
    BY_TRY(by__track_mlflow_check(options->server, error));
    BY_TRY(by__track_run_lock(&lock, options->run, error));
    by_status status = by__track_mlflow_open(&m, &own, error);
    if (status == BY_OK) {
        status = send_rest(m, options, error);
        by__track_mlflow_close(&m);
    }
    by__track_run_unlock(&lock);
    return status;
}
