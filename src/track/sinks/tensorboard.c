/* TensorBoard: a file of events in RUN/tensorboard for each start of the run.
 *
 * Field numbers are those of tensorflow's framework/{summary,tensor,tensor_shape}.proto. When a run
 * continues from a checkpoint, an event with session_log START makes TensorBoard discard later
 * steps of earlier files. */
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "base/wire/protobuf.h"
#include "track/event_file.h"
#include "track/sinks/sink.h"

enum { value_simple = 2, value_histogram = 5, value_tensor = 8, value_metadata = 9 };
enum { session_status = 1, session_start = 1 };

typedef struct tensorboard {
    by__track_event_file file;
    by_string summary; /* these keep their memory between events */
    by_string value;
    by_string part;
    by_string tag;
} tensorboard;

static void add_number(tensorboard *t, double number)
{
    by__proto_float(&t->value, value_simple, (float)number);
    by__proto_message(&t->summary, BY__SUMMARY_VALUE, &t->value);
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
    by__proto_message(&t->summary, BY__SUMMARY_VALUE, &t->value);
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
    by__proto_message(&t->summary, BY__SUMMARY_VALUE, &t->value);
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
        by__proto_bytes(&t->value, BY__VALUE_TAG, t->tag.data == NULL ? "" : t->tag.data,
                        t->tag.length);
        if (is_tensor) {
            add_histogram(t, event->histogram);
        } else if (v->text != NULL) {
            add_text(t, v->text);
        } else {
            add_number(t, v->number);
        }
    }
    by__track_event_file_begin(&t->file, event->time, event->step);
    by__proto_message(&t->file.event, BY__EVENT_SUMMARY, &t->summary);
    return by__track_event_file_write(&t->file, error);
}

/* Writes the step at which a run goes on. */
static by_status write_start(tensorboard *t, const by__track_tracker_options *options,
                             by_error *error)
{
    by__track_event_file_begin(&t->file, options->time, options->step + 1);
    by__proto_int(&t->part, session_status, session_start);
    by__proto_message(&t->file.event, BY__EVENT_SESSION, &t->part);
    return by__track_event_file_write(&t->file, error);
}

static by_status open_sink(void **sink, const by__track_tracker_options *options, by_error *error)
{
    tensorboard *t;
    char *directory;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "tensorboard", error));
    *sink = t;
    t->file.file.fd = -1;
    BY_TRY(by__path_make(&directory, options->run, "tensorboard", error));
    by_status status = by__track_event_file_open(&t->file, directory, options->time, error);
    free(directory);
    BY_TRY(status);
    return options->is_resumed ? write_start(t, options, error) : BY_OK;
}

static by_status flush(void *sink, by_error *error)
{
    tensorboard *t = sink;
    return by__track_append_flush(&t->file.file, error);
}

static void close_sink(void *sink)
{
    tensorboard *t = sink;
    if (t == NULL) {
        return;
    }
    by__track_event_file_close(&t->file);
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
