/* Files of events that TensorBoard reads: DIRECTORY/events.out.tfevents.SECONDS.HOST.PID.0.
 *
 * A file is a sequence of TFRecords: length (u64), its masked CRC-32C, an Event as protocol buffer,
 * its masked CRC-32C. Field numbers are those of tensorflow/core/util/event.proto. */
#ifndef BY_TRACK_EVENT_FILE_H
#define BY_TRACK_EVENT_FILE_H

#include "track/append_file.h"

/* Fields of an Event, of a Summary, and of its values. */
enum {
    BY__EVENT_TIME = 1,
    BY__EVENT_STEP_NUMBER = 2,
    BY__EVENT_VERSION = 3,
    BY__EVENT_SUMMARY = 5,
    BY__EVENT_SESSION = 7
};
enum { BY__SUMMARY_VALUE = 1 };
enum { BY__VALUE_TAG = 1, BY__VALUE_IMAGE = 4 };

typedef struct by__track_event_file {
    by__track_append_file file;
    by_string record; /* these keep their memory between events */
    by_string event;  /* that is built */
} by__track_event_file;

/* Creates the directory and a file in it with its first record. TensorBoard reads the files of a
 * directory in the order of their names: the new one is behind all that are there, whatever the
 * clock says. Call by__track_event_file_close also on failure. */
by_status by__track_event_file_open(by__track_event_file *out, const char *directory, double now,
                                    by_error *error);
/* Begins the event of a step. */
void by__track_event_file_begin(by__track_event_file *file, double time, uint64_t step);
/* Writes the event that was built, and empties it; what cannot be written is kept for later. */
by_status by__track_event_file_write(by__track_event_file *file, by_error *error);
/* Accepts a file that could not be opened, but whose file.fd is -1. */
void by__track_event_file_close(by__track_event_file *file);

#endif
