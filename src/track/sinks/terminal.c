/* Passes reports to the caller of by_train, which shows them to the user, because the library
 * prints nothing. */
#include "track/sinks/sink.h"

static by_status open_sink(void **sink, const by__track_tracker_options *options, by_error *error)
{
    BY_UNUSED(error);
    *sink = (void *)(uintptr_t)options;
    return BY_OK;
}

static by_status put(void *sink, const by__track_run_event *event, by_error *error)
{
    const by__track_tracker_options *options = sink;
    BY_UNUSED(error);
    if (event->report != NULL && options->show != NULL) {
        options->show(options->user, event->report);
    }
    return BY_OK;
}

static void close_sink(void *sink)
{
    BY_UNUSED(sink);
}

const by__sink_row by__sink_terminal = {.name = "terminal",
                                        .is_always_on = true,
                                        .kinds = (1u << BY__EVENT_KINDS) - 1,
                                        .then = "",
                                        .open = open_sink,
                                        .put = put,
                                        .close = close_sink};
