#include "track/event_file.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/wire/protobuf.h"

static uint32_t masked_crc(const void *data, size_t n)
{
    uint32_t crc = by__crc32c(data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

void by__track_event_file_begin(by__track_event_file *f, double time, uint64_t step)
{
    f->event.length = 0;
    by__proto_double(&f->event, BY__EVENT_TIME, time);
    by__proto_int(&f->event, BY__EVENT_STEP_NUMBER, (int64_t)step);
}

by_status by__track_event_file_write(by__track_event_file *f, by_error *error)
{
    uint8_t head[12];
    uint8_t tail[4];
    const char *data = f->event.data == NULL ? "" : f->event.data;
    by__put_u64(head, f->event.length);
    by__put_u32(head + 8, masked_crc(head, 8));
    by__put_u32(tail, masked_crc(data, f->event.length));
    f->record.length = 0;
    by_string_add(&f->record, head, sizeof head);
    by_string_add(&f->record, data, f->event.length);
    by_string_add(&f->record, tail, sizeof tail);
    f->record.failed = f->record.failed || f->event.failed;
    if (f->event.failed) {
        by_string_free(&f->event);
    }
    f->event.length = 0;
    return by__track_append(&f->file, &f->record, error);
}

/* The second in the name of a new file: a run that is resumed within a second, or after the clock
 * was set back, names a later one than every file that is there. */
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

by_status by__track_event_file_open(by__track_event_file *out, const char *directory, double now,
                                    by_error *error)
{
    char host[128] = "";
    by_string path = {0};
    long long second = (long long)now;
    *out = (by__track_event_file){.file = {.fd = -1}};
    (void)gethostname(host, sizeof host - 1);
    BY_TRY(by__make_dirs(directory, error));
    BY_TRY(name_second(&second, directory, error));
    by_string_format(&path, "%s/events.out.tfevents.%010lld.%s.%ld.0", directory, second, host,
                     (long)getpid());
    by_status status = path.failed ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                   : by__track_append_open(&out->file, path.data, error);
    by_string_free(&path);
    BY_TRY(status);
    by__proto_double(&out->event, BY__EVENT_TIME, now);
    by__proto_string(&out->event, BY__EVENT_VERSION, "brain.Event:2");
    return by__track_event_file_write(out, error);
}

void by__track_event_file_close(by__track_event_file *f)
{
    by__track_append_close(&f->file);
    by_string_free(&f->record);
    by_string_free(&f->event);
}
