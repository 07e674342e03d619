/* Weights & Biases, offline: RUN/wandb/offline-run-DATE_TIME-ID/run-ID.wandb, which `wandb sync`
 * uploads. A run that continues gets a further directory with the same ID.
 *
 * The file is LevelDB's log format with another header: blocks of 32 KiB; records of CRC-32
 * (zlib's, of type and data), length (u16), type (whole, first, middle, last), data. The data is a
 * Record of wandb_internal.proto, whose field numbers are below. The service needs all values of a
 * step in one row of the history, so a row is written when an event of a later step arrives. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/wire/crc32.h"
#include "base/wire/protobuf.h"
#include "track/append_file.h"
#include "track/sinks/sink.h"

enum { block_bytes = 32768, header_bytes = 7 };
enum { max_buckets = 512 }; /* of a histogram (wandb.Histogram.MAX_LENGTH) */
enum {
    record_num = 1,
    record_history = 2,
    record_run = 17,
    record_exit = 18,
    record_final = 20,
    record_header = 21,
    record_footer = 22
};
enum { item_key = 1, item_json = 16 }; /* of history and config */
enum { history_item = 1, history_step = 2 };
enum {
    run_id = 1,
    run_project = 3,
    run_config = 4,
    run_name = 8,
    run_host = 12,
    run_starting_step = 14,
    run_start_time = 17,
    run_resumed = 18
};

typedef struct wandb {
    by__track_append_file file;
    uint64_t size; /* of the file, including kept records */
    int64_t records;
    char id[9];
    const char *name; /* name of the run: the last part of options->run */
    const char *project;
    bool is_resumed;
    double began;
    bool has_row; /* items of step `step` are pending in `row` */
    uint64_t step;
    double time;
    by_string row;
    by_string record; /* these keep their memory between events */
    by_string chunks;
    by_string part;
    by_string item;
    by_string text;
} wandb;

/* Writes one record of the log format, split at the ends of blocks. */
static void cut(wandb *w, const char *data, size_t n)
{
    enum { whole = 1, first = 2, middle = 3, last = 4 };
    static const uint8_t zeros[header_bytes] = {0};
    bool is_first = true;
    do {
        size_t room = block_bytes - (size_t)((w->size + w->chunks.length) % block_bytes);
        if (room < header_bytes) {
            by_string_add(&w->chunks, zeros, room);
            continue;
        }
        size_t length = n < room - header_bytes ? n : room - header_bytes;
        uint8_t type =
            (uint8_t)(is_first ? (length == n ? whole : first) : (length == n ? last : middle));
        uint8_t head[header_bytes];
        by__put_u32(head, by__crc32(by__crc32(0, &type, 1), data, length));
        head[4] = (uint8_t)length;
        head[5] = (uint8_t)(length >> 8);
        head[6] = type;
        by_string_add(&w->chunks, head, sizeof head);
        by_string_add(&w->chunks, data, length);
        data += length;
        n -= length;
        is_first = false;
        if (type == whole || type == last) {
            return;
        }
    } while (!w->chunks.failed);
}

/* Writes a Record with `w->part` as its field, and empties it. */
static by_status write_record(wandb *w, uint32_t field, by_error *error)
{
    w->record.length = 0;
    w->chunks.length = 0;
    by__proto_int(&w->record, record_num, ++w->records);
    by__proto_message(&w->record, field, &w->part);
    w->chunks.failed = w->chunks.failed || w->record.failed;
    cut(w, w->record.data == NULL ? "" : w->record.data, w->record.length);
    uint64_t lost = w->file.lost;
    size_t length = w->chunks.length;
    by_status status = by__track_append(&w->file, &w->chunks, error);
    w->size += w->file.lost == lost ? length : 0;
    return status;
}

static void add_item(wandb *w, by_string *out, uint32_t field, const char *key, const char *json,
                     size_t n)
{
    w->item.length = 0;
    by__proto_string(&w->item, item_key, key);
    by__proto_bytes(&w->item, item_json, json, n);
    by__proto_message(out, field, &w->item);
}

static void add_number(wandb *w, by_string *out, const char *key, double value)
{
    char number[32];
    by__format_f64(number, value);
    if (isnan(value)) {
        (void)snprintf(number, sizeof number, "NaN"); /* as Python's json module writes and reads
                                                         them */
    } else if (isinf(value)) {
        (void)snprintf(number, sizeof number, value > 0 ? "Infinity" : "-Infinity");
    }
    add_item(w, out, history_item, key, number, strlen(number));
}

static by_status write_row(wandb *w, by_error *error)
{
    if (!w->has_row) {
        return BY_OK;
    }
    add_number(w, &w->row, "_step", (double)w->step);
    add_number(w, &w->row, "_timestamp", w->time);
    add_number(w, &w->row, "_runtime", w->time - w->began);
    w->item.length = 0;
    by__proto_int(&w->item, 1, (int64_t)w->step);
    by__proto_message(&w->row, history_step, &w->item);
    w->part.length = 0;
    by_string_add(&w->part, w->row.data == NULL ? "" : w->row.data, w->row.length);
    w->part.failed = w->part.failed || w->row.failed;
    w->has_row = false;
    w->row.length = 0;
    return write_record(w, record_history, error);
}

static void add_list(by_string *out, const char *name, const double *values, size_t n)
{
    char number[32];
    by_string_format(out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        by__format_f64(number, values[i]);
        by_string_format(out, "%s%s", i == 0 ? "" : ",", number);
    }
    by__string_append(out, "]");
}

/* Adds a histogram in numpy.histogram's format: one more border than values. W&B accepts
 * `max_buckets`, so neighbours are merged if there are more. */
static by_status add_histogram(wandb *w, const char *key, const by__track_histogram *h,
                               by_error *error)
{
    double *borders;
    size_t joined = h->buckets == 0 ? 1 : (h->buckets + max_buckets - 1) / max_buckets;
    size_t buckets = (h->buckets + joined - 1) / joined;
    BY_TRY(by__alloc((void **)&borders, 2 * buckets + 1, sizeof *borders, "histogram", error));
    double *counts = borders + buckets + 1;
    borders[0] = h->min;
    for (size_t i = 0; i < h->buckets; i++) {
        borders[i / joined + 1] = h->limit[i];
        counts[i / joined] += h->count[i];
    }
    w->text.length = 0;
    by__string_append(&w->text, "{\"_type\":\"histogram\"");
    add_list(&w->text, "values", counts, buckets);
    add_list(&w->text, "bins", borders, buckets + 1);
    by__string_append(&w->text, "}");
    free(borders);
    if (w->text.failed) {
        by_string_free(&w->text);
        return by_error_set(error, BY_EMEMORY, "out of memory: histogram");
    }
    add_item(w, &w->row, history_item, key, w->text.data, w->text.length);
    return BY_OK;
}

static by_status add_values(wandb *w, const by__track_run_event *event, by_error *error)
{
    by_string tag = {0};
    by_status status = BY_OK;
    for (size_t i = 0; i < event->count && status == BY_OK; i++) {
        const by__track_event_value *v = &event->values[i];
        bool is_tensor = event->histogram != NULL && v->text != NULL;
        tag.length = 0;
        by__track_event_tag(&tag, event, is_tensor ? v->text : v->key);
        if (tag.failed) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: event");
        } else if (is_tensor) {
            status = add_histogram(w, tag.data, event->histogram, error);
        } else if (v->text != NULL) {
            w->text.length = 0;
            by_string_json(&w->text, v->text, strlen(v->text));
            add_item(w, &w->row, history_item, tag.data, w->text.failed ? "\"\"" : w->text.data,
                     w->text.failed ? 2 : w->text.length);
        } else {
            add_number(w, &w->row, tag.data, v->number);
        }
    }
    by_string_free(&tag);
    return status;
}

typedef struct config_items {
    wandb *sink;
    by_string config;
} config_items;

static void add_config(void *user, const char *key, const char *json)
{
    config_items *items = user;
    add_item(items->sink, &items->config, 1, key, json, strlen(json));
}

static by_status write_run(wandb *w, const by__track_run_event *event, by_error *error)
{
    enum { header_version = 1, version_producer = 1, version_least = 2 };
    char host[128] = "";
    config_items items = {.sink = w};
    (void)gethostname(host, sizeof host - 1);
    w->began = event->time;
    by__proto_string(&w->item, version_producer, "0.19.0");
    by__proto_string(&w->item, version_least, "0.12.0");
    by__proto_message(&w->part, header_version, &w->item);
    BY_TRY(write_record(w, record_header, error));
    for (size_t i = 0; i < event->count; i++) {
        const by__track_event_value *v = &event->values[i];
        if (strcmp(v->key, "config") == 0) {
            by__track_config_items(v->text, add_config, &items);
        }
    }
    by__proto_string(&w->part, run_id, w->id);
    by__proto_string(&w->part, run_project, w->project);
    by__proto_message(&w->part, run_config, &items.config);
    by_string_free(&items.config);
    by__proto_string(&w->part, run_name, w->name);
    by__proto_string(&w->part, run_host, host);
    if (w->is_resumed) {
        by__proto_int(&w->part, run_starting_step, (int64_t)event->step + 1);
    }
    w->item.length = 0;
    by__proto_int(&w->item, 1, (int64_t)event->time);
    by__proto_message(&w->part, run_start_time, &w->item);
    by__proto_int(&w->part, run_resumed, w->is_resumed);
    return write_record(w, record_run, error);
}

static by_status write_end(wandb *w, const by__track_run_event *event, by_error *error)
{
    enum { exit_code = 1, exit_runtime = 2 };
    BY_TRY(write_row(w, error));
    bool is_done = event->count > 0 && event->values[0].text != NULL &&
                   strcmp(event->values[0].text, "failed") != 0;
    w->part.length = 0;
    BY_TRY(write_record(w, record_final, error));
    by__proto_int(&w->part, exit_code, is_done ? 0 : 1);
    by__proto_int(&w->part, exit_runtime, (int64_t)(event->time - w->began));
    BY_TRY(write_record(w, record_exit, error));
    return write_record(w, record_footer, error);
}

static by_status put(void *sink, const by__track_run_event *event, by_error *error)
{
    wandb *w = sink;
    w->part.length = 0;
    w->item.length = 0;
    if (event->kind == BY__EVENT_BEGIN) {
        return write_run(w, event, error);
    }
    if (event->kind == BY__EVENT_END) {
        return write_end(w, event, error);
    }
    if (w->has_row && w->step != event->step) {
        BY_TRY(write_row(w, error));
    }
    w->has_row = true;
    w->step = event->step;
    w->time = event->time;
    return add_values(w, event, error);
}

/* Returns the ID of an earlier part of this run, or a new one. */
static by_status choose_id(wandb *w, const char *directory, by_error *error)
{
    char **names = NULL;
    size_t count = 0;
    char hash[33];
    char seed[512];
    BY_TRY(by__list_dir(&names, &count, directory, error));
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(names[i]);
        if (n > 8 && strncmp(names[i], "offline-run-", 12) == 0) {
            memcpy(w->id, names[i] + n - 8, 9);
        }
    }
    by__names_free(names, count);
    if (w->id[0] == '\0') {
        struct timespec now;
        char host[128] = "";
        (void)clock_gettime(CLOCK_REALTIME, &now);
        (void)gethostname(host, sizeof host - 1);
        (void)snprintf(seed, sizeof seed, "%s %s %ld %lld.%09ld", w->name, host, (long)getpid(),
                       (long long)now.tv_sec, now.tv_nsec);
        by__hash128_hex(hash, seed, strlen(seed));
        memcpy(w->id, hash, 8);
    }
    return BY_OK;
}

/* Writes the file's header, which is not a record. */
static by_status write_header(wandb *w, by_error *error)
{
    static const uint8_t header[header_bytes] = {':', 'W', '&', 'B', 0xe1, 0xbe, 0};
    struct stat info;
    if (fstat(w->file.fd, &info) != 0) {
        return by__io_error(error, "stat", w->file.path);
    }
    w->size = (uint64_t)info.st_size;
    by_string_add(&w->chunks, header, sizeof header);
    size_t length = w->chunks.length;
    by_status status = by__track_append(&w->file, &w->chunks, error);
    w->size += length;
    return status;
}

static by_status open_file(wandb *w, const char *directory, double time, by_error *error)
{
    by_string path = {0};
    char stamp[32] = "";
    struct tm utc;
    time_t now = (time_t)time;
    do { /* a run may continue within the second in which it began */
        if (gmtime_r(&now, &utc) != NULL) {
            (void)strftime(stamp, sizeof stamp, "%Y%m%d_%H%M%S", &utc);
        }
        path.length = 0;
        by_string_format(&path, "%s/offline-run-%s-%s", directory, stamp, w->id);
        now++;
    } while (!path.failed && by__path_exists(path.data));
    by_status status = path.failed ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                   : by__make_dirs(path.data, error);
    by_string_format(&path, "/run-%s.wandb", w->id);
    if (status == BY_OK) {
        status = path.failed ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                             : by__track_append_open(&w->file, path.data, error);
    }
    by_string_free(&path);
    return status == BY_OK ? write_header(w, error) : status;
}

static by_status open_sink(void **sink, const by__track_tracker_options *options, by_error *error)
{
    wandb *w;
    const char *slash = strrchr(options->run, '/');
    BY_TRY(by__alloc((void **)&w, 1, sizeof *w, "wandb", error));
    *sink = w;
    w->file.fd = -1;
    w->name = slash == NULL ? options->run : slash + 1;
    w->project = options->project;
    w->is_resumed = options->is_resumed;
    char *directory;
    BY_TRY(by__path_make(&directory, options->run, "wandb", error));
    by_status status = by__make_dirs(directory, error);
    if (status == BY_OK) {
        status = choose_id(w, directory, error);
    }
    if (status == BY_OK) {
        status = open_file(w, directory, options->time, error);
    }
    free(directory);
    return status;
}

static by_status flush(void *sink, by_error *error)
{
    wandb *w = sink;
    BY_TRY(write_row(w, error));
    return by__track_append_flush(&w->file, error);
}

static void close_sink(void *sink)
{
    wandb *w = sink;
    if (w == NULL) {
        return;
    }
    by__track_append_close(&w->file);
    by_string *texts[] = {&w->row, &w->record, &w->chunks, &w->part, &w->item, &w->text};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        by_string_free(texts[i]);
    }
    free(w);
}

const by__sink_row by__sink_wandb = {
    .name = "wandb",
    .kinds = ((1u << BY__EVENT_KINDS) - 1) & ~(1u << BY__EVENT_CHECKPOINT),
    .then = "training continues; what Weights & Biases did not receive is written later",
    .open = open_sink,
    .put = put,
    .flush = flush,
    .close = close_sink};
