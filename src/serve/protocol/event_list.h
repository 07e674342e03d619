/* Lists of request events as they are sent from workers to gateways.
 *
 * A stream has one event per token, and each passes through three processes, so the format is made
 * for forwarding: a relay reads a few bytes of the header and copies the rest, and no JSON tree is
 * built for a piece of text. An event is (integers little endian)
 *
 *   u32  bytes of what follows
 *   u8   kind (by__serve_event_kind)
 *   u8   length of the id
 *   u32  attempt, of a worker's event; else 0
 *   id, and a 0 byte
 *   BY__EVENT_PIECE: u8 sequence (of n), and the text, UTF-8; of other kinds: the event's JSON
 *   (messages.h), whose "e" says the kind too. */
#ifndef BY_SERVE_PROTOCOL_EVENT_LIST_H
#define BY_SERVE_PROTOCOL_EVENT_LIST_H

#include "serve/base/serve.h"

typedef enum by__serve_event_kind {
    BY__EVENT_PIECE = 'p', /* text alone: nearly all events are of this kind */
    BY__EVENT_TEXT = 't',  /* text with log-probabilities */
    BY__EVENT_BEGIN = 'b',
    BY__EVENT_STOP = 's',
    BY__EVENT_END = 'e',    /* the last event, like the next two */
    BY__EVENT_RESULT = 'r', /* up to BY__LINK_MESSAGE bytes */
    BY__EVENT_ERROR = 'x',
    BY__EVENT_AGAIN = 'a'
} by__serve_event_kind;

/* An event of a list; its pointers point into the list. */
typedef struct by__serve_event {
    by__serve_event_kind kind;
    const char *id;
    int64_t attempt;
    size_t sequence;  /* of a piece */
    const char *data; /* the piece's text, or the JSON; not terminated */
    size_t length;
    const char *record; /* the whole encoded event, to forward */
    size_t size;
} by__serve_event;

/* Appends a piece of text. id: valid (by__serve_id_valid); sequence: below 256. */
void by__protocol_events_add_piece(by_string *list, const char *id, int64_t attempt,
                                   size_t sequence, const char *text, size_t length);
/* Appends an event as messages.h defines it; one without a valid "id", or of an unknown kind, is
 * skipped. The caller keeps the event. */
void by__protocol_events_add(by_string *list, int64_t attempt, const json_t *event);
/* Reads the event at *at and advances *at past it. Returns false at the end of the list, or (*at is
 * not `length`) if it is malformed. */
bool by__protocol_events_next(const char *list, size_t length, size_t *at, by__serve_event *out);
/* Returns true if the bytes are a well-formed list of events; their JSON is not checked. */
bool by__protocol_events_valid(const char *list, size_t length);
/* Decodes an event to JSON as messages.h defines it; a new reference. If its JSON is invalid, an
 * event that ends a request becomes an error and any other NULL. NULL also when memory is
 * exhausted. */
json_t *by__protocol_event_json(const by__serve_event *event);
/* True for kinds after which no event follows. */
bool by__protocol_event_ends(const by__serve_event *event);

#endif
