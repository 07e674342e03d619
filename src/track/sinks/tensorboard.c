/* TensorBoard: RUN/tensorboard/events.out.tfevents.SECONDS.HOST.PID.0, one file for each start of
 * the run.
 *
 * The file is a sequence of TFRecords: length (u64), its masked CRC-32C, an Event as protocol
 * buffer, its masked CRC-32C. Field numbers are those of tensorflow/core/util/event.proto and
 * framework/{summary,tensor,tensor_shape}.proto. When a run continues from a checkpoint, an event
 * with session_log START makes TensorBoard discard later steps of earlier files. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/wire/protobuf.h"
#include "track/append_file.h"
#include "track/sinks/sink.h"

enum { event_time = 1, event_step = 2, event_version = 3, event_summary = 5, event_session = 7 };
enum { summary_value = 1 };
enum { value_tag = 1, value_simple = 2, value_histogram = 5, value_tensor = 8, value_metadata = 9 };
enum { session_status = 1, session_start = 1 };

typedef struct tensorboard {
    by__track_append_file file;
    by_string record; /* these keep their memory between events */
    by_string event;
    by_string summary;
    by_string value;
    by_string part;
    by_string tag;
} tensorboard;

static uint32_t masked_crc(const void *data, size_t n)
{
    uint32_t crc = by__crc32c(data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Writes the event that was built, and empties it. */
static by_status write_event(tensorboard *t, by_error *error)
{
    uint8_t head[12];
    uint8_t tail[4];
    const char *data = t->event.data == NULL ? "" : t->event.data;
    by__put_u64(head, t->event.length);
    by__put_u32(head + 8, masked_crc(head, 8));
    by__put_u32(tail, masked_crc(data, t->event.length));
    t->record.length = 0;
    by_string_add(&t->record, head, sizeof head);
    by_string_add(&t->record, data, t->event.length);
    by_string_add(&t->record, tail, sizeof tail);
    t->record.failed = t->record.failed || t->event.failed;
    if (t->event.failed) {
        by_string_free(&t->event);
    }
    t->event.length = 0;
    return by__track_append(&t->file, &t->record, error);
}

static void begin_event(tensorboard *t, double time, uint64_t step)
{
    t->event.length = 0;
    by__proto_double(&t->event, event_time, time);
    by__proto_int(&t->event, event_step, (int64_t)step);
}

static void add_number(tensorboard *t, double number)
{
    by__proto_float(&t->value, value_simple, (float)number);
    by__proto_message(&t->summary, summary_value, &t->value);
}

/* Adds what the text plug-in shows: a tensor of one string. */
static void add_text(tensorboard *t, const char *text)
{
    enum { dtype = 1, shape = 2, strings = 8, dtype_string = 7 };
    enum { plugin_data = 1, plugin_name = 1, data_class = 4, class_tensor = 2 };
    static const uint8_t shape_of_one[] = {0x12, 0x02, 0x08, 0x01}; /* dim {size: 1} */
    t->part.length = 0;
    by__proto_int(&t->part, dtype, dtype_string);
    by__proto_bytes(&t->part, shape, shape_of_one, sizeof shape_of_one);
    by__proto_string(&t->part, strings, text);
    by__proto_message(&t->value, value_tensor, &t->part);
    t->tag.length = 0; /* the value contains the tag already */
    by__proto_string(&t->tag, plugin_name, "text");
    by__proto_message(&t->part, plugin_data, &t->tag);
    by__proto_int(&t->part, data_class, class_tensor);
    by__proto_message(&t->value, value_metadata, &t->part);
    by__proto_message(&t->summary, summary_value, &t->value);
}

static void add_histogram(tensorboard *t, const by__track_histogram *h)
{
    enum { low = 1, high = 2, number = 3, sum = 4, squares = 5, limits = 6, counts = 7 };
    double all = 0.0;
    for (size_t i = 0; i < h->buckets; i++) {
        all += h->count[i];
    }
    t->part.length = 0;
    by__proto_double(&t->part, low, h->min);
    by__proto_double(&t->part, high, h->max);
    by__proto_double(&t->part, number, all);
    by__proto_double(&t->part, sum, h->sum);
    by__proto_double(&t->part, squares, h->squares);
    by__proto_doubles(&t->part, limits, h->limit, h->buckets);
    by__proto_doubles(&t->part, counts, h->count, h->buckets);
    by__proto_message(&t->value, value_histogram, &t->part);
    by__proto_message(&t->summary, summary_value, &t->value);
}

static by_status put(void *sink, const by__track_run_event *event, by_error *error)
{
    tensorboard *t = sink;
    t->summary.length = 0;
    for (size_t i = 0; i < event->count; i++) {
        const by__track_event_value *v = &event->values[i];
        bool is_tensor = event->histogram != NULL && v->text != NULL;
        t->tag.length = 0;
        t->value.length = 0;
        by__track_event_tag(&t->tag, event, is_tensor ? v->text : v->key);
        by__proto_bytes(&t->value, value_tag, t->tag.data == NULL ? "" : t->tag.data,
                        t->tag.length);
        if (is_tensor) {
            add_histogram(t, event->histogram);
        } else if (v->text != NULL) {
            add_text(t, v->text);
        } else {
            add_number(t, v->number);
        }
    }
    begin_event(t, event->time, event->step);
    by__proto_message(&t->event, event_summary, &t->summary);
    return write_event(t, error);
}

/* Writes the file's first record, and the step at which the run begins. */
static by_status write_start(tensorboard *t, const by__track_tracker_options *options, double now,
                             by_error *error)
{
    by__proto_double(&t->event, event_time, now);
    by__proto_string(&t->event, event_version, "brain.Event:2");
    BY_TRY(write_event(t, error));
    if (!options->is_resumed) {
        return BY_OK;
    }
    begin_event(t, now, options->step + 1);
    by__proto_int(&t->part, session_status, session_start);
    by__proto_message(&t->event, event_session, &t->part);
    return write_event(t, error);
}

/* The second in the name of a new file. TensorBoard reads the files of a run in the order of their
 * names, so a run that is resumed within a second, or after the clock was set back, names a later
 * one than every file that is there. */
static by_status name_second(long long *second, const char *directory, by_error *error)
{
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, directory, error));
    for (size_t i = 0; i < count; i++) {
        long long earlier;
        if (sscanf(names[i], "events.out.tfevents.%lld.", &earlier) == 1 && earlier >= *second &&
            earlier < LLONG_MAX) {
            *second = earlier + 1;
        }
    }
    by__names_free(names, count);
    return BY_OK;
}

static by_status open_sink(void **sink, const by__track_tracker_options *options, by_error *error)
{
    tensorboard *t;
    char host[128] = "";
    by_string path = {0};
    long long second = (long long)options->time;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "tensorboard", error));
    *sink = t;
    t->file.fd = -1;
    (void)gethostname(host, sizeof host - 1);
    by_string_format(&path, "%s/tensorboard", options->run);
    by_status status = path.failed ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                   : by__make_dirs(path.data, error);
    if (status == BY_OK) {
        status = name_second(&second, path.data, error);
    }
    by_string_format(&path, "/events.out.tfevents.%010lld.%s.%ld.0", second, host, (long)getpid());
    if (status == BY_OK && path.failed) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (status == BY_OK) {
        status = by__track_append_open(&t->file, path.data, error);
    }
    by_string_free(&path);
    return status == BY_OK ? write_start(t, options, options->time, error) : status;
}

static by_status flush(void *sink, by_error *error)
{
    tensorboard *t = sink;
    return by__track_append_flush(&t->file, error);
}

static void close_sink(void *sink)
{
    tensorboard *t = sink;
    if (t == NULL) {
        return;
    }
    by__track_append_close(&t->file);
    by_string_free(&t->record);
    by_string_free(&t->event);
    by_string_free(&t->summary);
    by_string_free(&t->value);
    by_string_free(&t->part);
    by_string_free(&t->tag);
    free(t);
}

const by__sink_row by__sink_tensorboard = {
    .name = "tensorboard",
    .kinds = ((1u << BY__EVENT_KINDS) - 1) & ~(1u << BY__EVENT_CHECKPOINT | 1u << BY__EVENT_END),
    .then = "training continues; what TensorBoard did not receive is written later",
    .open = open_sink,
    .put = put,
    .flush = flush,
    .close = close_sink};
