/* Events of requests, many behind each other, as they travel from workers to gateways.
 *
 * A stream is one event a token, and each passes three processes, so the form is made to be passed
 * on: who relays one reads a few bytes of its head and copies the rest; nobody builds a JSON tree
 * of a piece of text. An event is (numbers little endian)
 *
 *   u32  bytes of what follows
 *   u8   kind (by__event_kind)
 *   u8   length of the id
 *   u32  attempt, of a worker's event; else 0
 *   id, and a 0 byte
 *   BY__EVENT_PIECE: u8 sequence (of n), and the text, UTF-8; of other kinds: the event's JSON
 *   (messages.h), whose "e" says the kind too. */
#ifndef BY_SERVE_EVENT_LIST_H
#define BY_SERVE_EVENT_LIST_H

#include "serve/serve.h"

typedef enum by__event_kind {
    BY__EVENT_PIECE = 'p', /* text alone: nearly all events */
    BY__EVENT_TEXT = 't',  /* text with log-probabilities */
    BY__EVENT_BEGIN = 'b',
    BY__EVENT_STOP = 's',
    BY__EVENT_END = 'e',    /* the last one; so are the next two */
    BY__EVENT_RESULT = 'r', /* up to BY__LINK_MESSAGE bytes */
    BY__EVENT_ERROR = 'x',
    BY__EVENT_AGAIN = 'a'
} by__event_kind;

/* An event of a list; its pointers are into the list. */
typedef struct by__event {
    by__event_kind kind;
    const char *id;
    int64_t attempt;
    size_t sequence;  /* of a piece */
    const char *data; /* the piece's text, or the JSON; not terminated */
    size_t length;
    const char *record; /* all of it, to pass on */
    size_t size;
} by__event;

/* Adds a piece of text. id: valid (by__id_valid); sequence: below 256. */
void by__events_add_piece(by__text *list, const char *id, int64_t attempt, size_t sequence,
                          const char *text, size_t length);
/* Adds an event as messages.h has it; one without a valid "id", or of a kind that is none, is left
 * out. The event stays the caller's. */
void by__events_add(by__text *list, int64_t attempt, const json_t *event);
/* The event at *at, which moves behind it. False: the list ends there, or (*at is not `length`) is
 * none. */
bool by__events_next(const char *list, size_t length, size_t *at, by__event *out);
/* Whether bytes are a list of events; their JSON is not looked at. */
bool by__events_valid(const char *list, size_t length);
/* An event as messages.h has it; a new reference. One that ends a request and whose JSON is none
 * becomes an error; of other kinds that gives NULL, as does exhausted memory. */
json_t *by__event_json(const by__event *event);
/* True for the kinds after which nothing comes. */
bool by__event_ends(const by__event *event);

#endif
