/* Records of two answers, of which one is preferred, as two conversations. */
#include <string.h>

#include "base/json.h"
#include "text/chat/conversation.h"

static const char human[] = "\n\nHuman:";
static const char assistant[] = "\n\nAssistant:";

typedef struct pair_reader {
    const json_t *record;
    const by_conversation_options *options;
    const char *prompt; /* name of the field of the prompt; NULL: there is none */
    json_t *before;     /* messages before the answers: of prompt and system */
    json_t *sides[2];   /* messages of chosen and rejected, */
    bool is_whole;      /* which are conversations from their start */
    by_error *error;
} pair_reader;

static const char *const side_names[] = {"chosen", "rejected"};

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: a preference");
}

static const json_t *member(const pair_reader *r, const char *name)
{
    const json_t *value = json_object_get(r->record, name);
    return json_is_null(value) ? NULL : value;
}

static by_status say(const pair_reader *r, json_t *messages, const char *role, const char *text,
                     size_t length)
{
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", json_stringn(text, length));
    return message != NULL && json_array_append_new(messages, message) == 0 ? BY_OK
                                                                            : no_memory(r->error);
}

/* The messages of a value: a list, or a text that is one in JSON, as columns of tables have them.
 * New reference; NULL: it is another text. */
static json_t *messages_of(const json_t *value)
{
    json_error_t problem;
    if (json_is_array(value)) {
        return json_copy((json_t *)(uintptr_t)value);
    }
    const char *text = json_string_value(value);
    if (text == NULL || text[0] != '[') {
        return NULL;
    }
    json_t *list = by_json_load(text, json_string_length(value), JSON_ALLOW_NUL, &problem);
    if (json_is_array(list) && json_is_object(json_array_get(list, 0))) {
        return list;
    }
    json_decref(list);
    return NULL;
}

static const char *role_at(const json_t *messages, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return role == NULL ? "" : role;
}

static bool begins_with_system(const json_t *messages)
{
    const char *first = role_at(messages, 0);
    return strcmp(first, "system") == 0 || strcmp(first, "developer") == 0;
}

/* Whether messages begin before an answer, so that they are a conversation from its start. */
static bool is_whole(const json_t *messages)
{
    const char *first = role_at(messages, 0);
    return strcmp(first, "assistant") != 0 && strcmp(first, "model") != 0 &&
           strcmp(first, "tool") != 0;
}

/* ---- a dialogue in one text ---- */

static bool begins(const char *text, const char *end, const char *mark, size_t length)
{
    return (size_t)(end - text) >= length && memcmp(text, mark, length) == 0;
}

/* The next turn of a text at or behind `at`, or `end`. */
static const char *next_turn(const char *at, const char *end)
{
    while (at < end && !begins(at, end, human, sizeof human - 1) &&
           !begins(at, end, assistant, sizeof assistant - 1)) {
        at++;
    }
    return at;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Adds the turns of a dialogue, without the blanks around each. */
static by_status add_dialogue(const pair_reader *r, const char *name, const json_t *value,
                              json_t *messages)
{
    const char *at = json_string_value(value);
    const char *end = at + json_string_length(value);
    if (!begins(at, end, human, sizeof human - 1)) {
        return by_error_set(r->error, BY_EFORMAT,
                            "the field \"%s\" is a text, and there is no prompt: give \"prompt\", "
                            "or conversations as lists of messages, or as texts that begin with "
                            "\"\\n\\nHuman:\"",
                            name);
    }
    while (at < end) {
        bool asks = begins(at, end, human, sizeof human - 1);
        const char *from = at + (asks ? sizeof human : sizeof assistant) - 1;
        at = next_turn(from, end);
        const char *to = at;
        while (from < to && is_blank(*from)) {
            from++;
        }
        while (to > from && is_blank(to[-1])) {
            to--;
        }
        BY_TRY(say(r, messages, asks ? "user" : "assistant", from, (size_t)(to - from)));
    }
    return BY_OK;
}

/* ---- the parts of a record ---- */

static by_status read_side(pair_reader *r, size_t side)
{
    const char *name = side_names[side];
    const json_t *value = member(r, name);
    if (value == NULL) {
        return by_error_set(r->error, BY_EFORMAT,
                            "the field \"%s\" is missing: a preference has \"chosen\" and "
                            "\"rejected\", and \"prompt\" or whole conversations",
                            name);
    }
    r->sides[side] = messages_of(value);
    if (r->sides[side] != NULL) {
        return json_array_size(r->sides[side]) > 0
                   ? BY_OK
                   : by_error_set(r->error, BY_EFORMAT, "the field \"%s\" is an empty list", name);
    }
    if (!json_is_string(value)) {
        return by_error_set(r->error, BY_EFORMAT,
                            "the field \"%s\" is neither a text nor a list of messages", name);
    }
    r->sides[side] = json_array();
    if (r->sides[side] == NULL) {
        return no_memory(r->error);
    }
    return r->prompt == NULL ? add_dialogue(r, name, value, r->sides[side])
                             : say(r, r->sides[side], "assistant", json_string_value(value),
                                   json_string_length(value));
}

static by_status find_prompt(pair_reader *r)
{
    const char *named = r->options->question;
    r->prompt = named != NULL && named[0] != '\0' ? named
                : member(r, "prompt") != NULL     ? "prompt"
                : member(r, "question") != NULL   ? "question"
                                                  : NULL;
    return r->prompt == NULL || member(r, r->prompt) != NULL
               ? BY_OK
               : by_error_set(r->error, BY_EFORMAT, "the field \"%.60s\" is missing", r->prompt);
}

/* The field "system" is the first message, before `next`. */
static by_status read_system(pair_reader *r, const json_t *next)
{
    const json_t *system = member(r, "system");
    if (system == NULL || (json_is_string(system) && json_string_length(system) == 0)) {
        return BY_OK;
    }
    if (!json_is_string(system)) {
        return by_error_set(r->error, BY_EFORMAT, "the field \"system\" is not a text");
    }
    if (begins_with_system(next)) {
        return by_error_set(r->error, BY_EFORMAT,
                            "there is a field \"system\", and the messages begin with a system "
                            "message: give one of them");
    }
    return say(r, r->before, "system", json_string_value(system), json_string_length(system));
}

/* The messages of the prompt, behind those of the system. */
static by_status read_before(pair_reader *r)
{
    const json_t *prompt = member(r, r->prompt);
    json_t *list = messages_of(prompt);
    if (list == NULL && !json_is_string(prompt)) {
        return by_error_set(r->error, BY_EFORMAT,
                            "the field \"%.60s\" is neither a text nor a list of messages",
                            r->prompt);
    }
    by_status status = read_system(r, list);
    if (status == BY_OK && list == NULL) {
        status = say(r, r->before, "user", json_string_value(prompt), json_string_length(prompt));
    } else if (status == BY_OK && json_array_extend(r->before, list) != 0) {
        status = no_memory(r->error);
    }
    json_decref(list);
    return status;
}

/* ---- whole conversations with a prompt beside them ---- */

/* Whether messages begin with those of a prompt, which may lack their system message. */
static bool begins_with(const json_t *messages, const json_t *prompt)
{
    size_t skipped = begins_with_system(messages) && !begins_with_system(prompt);
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        const json_t *wanted = json_array_get(prompt, i);
        const json_t *found = json_array_get(messages, i + skipped);
        if (!json_equal(json_object_get(wanted, "role"), json_object_get(found, "role")) ||
            !json_equal(json_object_get(wanted, "content"), json_object_get(found, "content"))) {
            return false;
        }
    }
    return true;
}

/* Whether a prompt has the text of a question of messages; it may be in a template. Contents that
 * are no texts are not compared. */
static bool asks(const char *prompt, size_t length, const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        const char *text = json_string_value(content);
        size_t n = json_string_length(content);
        if (strcmp(role_at(messages, i), "user") != 0) {
            continue;
        }
        if (!json_is_string(content)) {
            return true;
        }
        by__trim(&text, &n, BY__WHITE_SPACE);
        if (memmem(prompt, length, text, n) != NULL) {
            return true;
        }
    }
    return false;
}

/* Refuses a prompt beside conversations that do not have it: which one is meant is unknown. */
static by_status check_prompt(pair_reader *r)
{
    const json_t *prompt = member(r, r->prompt);
    json_t *list = messages_of(prompt);
    bool same = list != NULL || json_is_string(prompt);
    for (size_t i = 0; i < 2 && same; i++) {
        same = list != NULL
                   ? begins_with(r->sides[i], list)
                   : asks(json_string_value(prompt), json_string_length(prompt), r->sides[i]);
    }
    json_decref(list);
    return same ? BY_OK
                : by_error_set(r->error, BY_EFORMAT,
                               "\"chosen\" and \"rejected\" are whole conversations, and do not "
                               "have what \"%.60s\" asks",
                               r->prompt);
}

/* Whole conversations have their prompt; the system message may be beside them. */
static by_status read_whole(pair_reader *r)
{
    if (r->prompt != NULL) {
        BY_TRY(check_prompt(r));
    }
    return read_system(r, r->sides[begins_with_system(r->sides[1]) ? 1 : 0]);
}

/* Messages that both conversations begin with. */
static size_t count_shared(const pair_reader *r)
{
    size_t same = 0;
    while (same < json_array_size(r->sides[0]) && same < json_array_size(r->sides[1]) &&
           json_equal(json_array_get(r->sides[0], same), json_array_get(r->sides[1], same))) {
        same++;
    }
    return same;
}

static by_status read_parts(pair_reader *r)
{
    BY_TRY(find_prompt(r));
    for (size_t i = 0; i < 2; i++) {
        BY_TRY(read_side(r, i));
    }
    bool whole = is_whole(r->sides[0]);
    if (whole != is_whole(r->sides[1])) {
        return by_error_set(r->error, BY_EFORMAT,
                            "\"%s\" is a whole conversation, and \"%s\" an answer: give both alike",
                            side_names[whole ? 0 : 1], side_names[whole ? 1 : 0]);
    }
    if (!whole && r->prompt == NULL) {
        return by_error_set(r->error, BY_EFORMAT,
                            "\"chosen\" and \"rejected\" begin with an answer, and there is no "
                            "\"prompt\"");
    }
    if (json_equal(r->sides[0], r->sides[1])) {
        return by_error_set(r->error, BY_EFORMAT, "\"chosen\" and \"rejected\" are the same");
    }
    r->is_whole = whole;
    return whole ? read_whole(r) : read_before(r);
}

/* ---- the conversations ---- */

/* The messages of one side, of which the first `shared` are not learned. New reference. */
static json_t *join(const pair_reader *r, size_t side, size_t shared)
{
    json_t *all = json_copy(r->before);
    bool good = all != NULL && json_array_extend(all, r->sides[side]) == 0;
    for (size_t i = 0; i < shared && good; i++) {
        const json_t *message = json_array_get(all, i);
        json_t *marked = json_copy((json_t *)(uintptr_t)message);
        good = !json_is_object(marked) || json_object_set_new(marked, "train", json_false()) == 0;
        good = json_array_set_new(all, i, marked) == 0 && good;
    }
    if (!good) {
        json_decref(all);
        return NULL;
    }
    return all;
}

static by_status make_side(by__chat_conversation *out, const pair_reader *r, size_t side,
                           size_t shared, size_t bytes, bool parts)
{
    by_conversation_options options = *r->options;
    json_t *messages = join(r, side, shared);
    json_t *tools = json_object_get(r->record, "tools");
    json_t *record = messages == NULL ? NULL
                                      : json_pack("{s:o, s:O}", "messages", messages, "tools",
                                                  tools == NULL ? json_null() : tools);
    if (record == NULL) {
        return no_memory(r->error);
    }
    options.form = BY_CONVERSATION_MESSAGES;
    by_status status = by__chat_conversation_of(out, record, bytes, &options, parts, r->error);
    json_decref(record);
    return status == BY_OK ? status : by_error_prefix(r->error, status, "%s", side_names[side]);
}

by_status by__chat_pair_read(by__chat_conversation pair[2], const char *text, size_t length,
                             const by_conversation_options *options, bool parts, by_error *error)
{
    json_t *record;
    BY_TRY(by__chat_record_open(&record, text, length, error));
    pair_reader r = {.record = record, .options = options, .before = json_array(), .error = error};
    by_status status = r.before == NULL ? no_memory(error) : read_parts(&r);
    size_t shared = 0;
    if (status == BY_OK) {
        shared = json_array_size(r.before) + (r.is_whole ? count_shared(&r) : 0);
        status = make_side(&pair[0], &r, 0, shared, length, parts);
    }
    if (status == BY_OK) {
        status = make_side(&pair[1], &r, 1, shared, length, parts);
        if (status != BY_OK) {
            by__chat_conversation_free(&pair[0]);
        }
    }
    json_decref(r.before);
    json_decref(r.sides[0]);
    json_decref(r.sides[1]);
    json_decref(record);
    return status;
}
