#include "serve/protocol/event_list.h"

#include <string.h>

#include "base/json.h"
#include "serve/protocol/messages.h"

/* Bytes before the id. */
#define HEAD 10u
/* Of these, bytes that the size field does not count. */
#define SIZE 4u

static const struct {
    const char *name;
    by__serve_event_kind kind;
} kinds[] = {{"text", BY__EVENT_TEXT},    {"begin", BY__EVENT_BEGIN}, {"stop", BY__EVENT_STOP},
             {"end", BY__EVENT_END},      {"again", BY__EVENT_AGAIN}, {"error", BY__EVENT_ERROR},
             {"result", BY__EVENT_RESULT}};

static void put_u32(char *out, size_t value)
{
    for (unsigned i = 0; i < 4; i++) {
        out[i] = (char)(unsigned char)(value >> (8 * i));
    }
}

static size_t get_u32(const char *in)
{
    const unsigned char *b = (const unsigned char *)in;
    return (size_t)b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24;
}

static bool make_room(by_string *list, size_t n)
{
    size_t need;
    if (list->failed || !by__size_add(list->length, n, &need) || !by__size_add(need, 1, &need) ||
        by__reserve((void **)&list->data, &list->capacity, need, 1, NULL) != BY_OK) {
        list->failed = true;
    }
    return !list->failed;
}

/* Writes the header and id of an event followed by `after` bytes, and reserves room for these. */
static bool add_head(by_string *list, by__serve_event_kind kind, const char *id, int64_t attempt,
                     size_t after)
{
    char head[HEAD];
    size_t length = strlen(id);
    put_u32(head, HEAD - SIZE + length + 1 + after);
    head[4] = (char)kind;
    head[5] = (char)(unsigned char)length;
    put_u32(head + 6, (size_t)attempt);
    if (!make_room(list, HEAD + length + 1 + after)) {
        return false;
    }
    by_string_add(list, head, HEAD);
    by_string_add(list, id, length + 1);
    return true;
}

void by__protocol_events_add_piece(by_string *list, const char *id, int64_t attempt,
                                   size_t sequence, const char *text, size_t length)
{
    char index = (char)(unsigned char)sequence;
    if (add_head(list, BY__EVENT_PIECE, id, attempt, 1 + length)) {
        by_string_add(list, &index, 1);
        by_string_add(list, text, length);
    }
}

void by__protocol_events_add(by_string *list, int64_t attempt, const json_t *event)
{
    const char *id = by__protocol_get_text(event, "id");
    const char *name = by__protocol_get_text(event, "e");
    size_t kind = 0;
    while (name != NULL && kind < BY_ARRAY_LENGTH(kinds) && strcmp(kinds[kind].name, name) != 0) {
        kind++;
    }
    if (id == NULL || name == NULL || kind == BY_ARRAY_LENGTH(kinds) || !by__serve_id_valid(id)) {
        return;
    }
    size_t before = list->length;
    if (!add_head(list, kinds[kind].kind, id, attempt, 0)) {
        return;
    }
    /* Serialized once, because a result may be many megabytes. */
    by__json_write(list, event, JSON_COMPACT);
    if (list->failed || list->length - before > UINT32_MAX / 2) {
        list->failed = true; /* a lost event is a lost answer */
        return;
    }
    put_u32(list->data + before, list->length - before - SIZE);
}

bool by__protocol_events_next(const char *list, size_t length, size_t *at, by__serve_event *out)
{
    size_t left = length - *at;
    if (left < HEAD) {
        return false;
    }
    const char *record = list + *at;
    size_t size = get_u32(record);
    size_t id_length = (unsigned char)record[5];
    size_t before = HEAD + id_length + 1;
    bool piece = record[4] == BY__EVENT_PIECE;
    if (size > left - SIZE || size + SIZE < before + piece || record[HEAD + id_length] != '\0') {
        return false;
    }
    *out = (by__serve_event){.kind = (by__serve_event_kind)record[4],
                             .id = record + HEAD,
                             .attempt = (int64_t)get_u32(record + 6),
                             .sequence = piece ? (unsigned char)record[before] : 0,
                             .data = record + before + piece,
                             .length = size + SIZE - before - piece,
                             .record = record,
                             .size = size + SIZE};
    *at += size + SIZE;
    return true;
}

bool by__protocol_events_valid(const char *list, size_t length)
{
    by__serve_event event;
    size_t at = 0;
    while (by__protocol_events_next(list, length, &at, &event)) {
    }
    return at == length;
}

json_t *by__protocol_event_json(const by__serve_event *event)
{
    if (event->kind == BY__EVENT_PIECE) {
        return json_pack("{ss ss sI ss%}", "id", event->id, "e", "text", "i",
                         (json_int_t)event->sequence, "text", event->data, event->length);
    }
    json_t *json =
        by_json_load(event->data, event->length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (json_is_object(json)) {
        return json;
    }
    json_decref(json);
    return by__protocol_event_ends(event)
               ? by__protocol_event_error(event->id, 500, "server_error", NULL,
                                          "the end of the answer cannot be read")
               : NULL;
}

bool by__protocol_event_ends(const by__serve_event *event)
{
    return event->kind == BY__EVENT_END || event->kind == BY__EVENT_RESULT ||
           event->kind == BY__EVENT_ERROR;
}
