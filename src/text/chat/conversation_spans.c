/* What a chat template writes of the answers of a conversation. */
#include <stdlib.h>
#include <string.h>

#include "text/chat/conversation.h"
#include "text/template/chat_render.h"

/* The date of strftime_now, at which Llama 3's template stands without one: training data do not
 * depend on the day on which they are made. */
#define NOW INT64_C(1721952000) /* 2024-07-26 */

static const char *const learn_names[] = {"assistant", "last_turn", "all"};

const char *by_conversation_learn_name(by_conversation_learn learn)
{
    return (size_t)learn < BY_ARRAY_LENGTH(learn_names) ? learn_names[learn] : NULL;
}

typedef struct span_finder {
    const by_chat *chat;
    const by__chat_conversation *conversation;
    const by_conversation_options *options;
    bool *wanted; /* for each message: it is an answer that is learned and was not found yet */
    by_error *error;
} span_finder;

typedef struct rendered {
    char *text;
    size_t length;
} rendered;

/* Renders the first `count` messages; `prompt`: with the header of an answer behind them. */
static by_status render(const span_finder *f, size_t count, bool prompt, by__template_spans *spans,
                        rendered *out)
{
    const by__chat_conversation *c = f->conversation;
    json_t *messages = json_array();
    bool good = messages != NULL;
    for (size_t i = 0; i < count && good; i++) {
        good = json_array_append(messages, json_array_get(c->messages, i)) == 0;
    }
    const by__template_chat request = {.messages = messages,
                                       .tools = c->tools,
                                       .variables = f->options->variables,
                                       .bytes = c->bytes,
                                       .prompt = prompt,
                                       .now = NOW,
                                       .spans = spans};
    by_status status =
        good ? by__template_chat_render(f->chat, &request, &out->text, &out->length, f->error)
             : by_error_set(f->error, BY_EMEMORY, "out of memory: a conversation");
    json_decref(messages);
    return status;
}

static by_status add_span(by__template_spans *spans, size_t begin, size_t end, by_error *error)
{
    BY_TRY(by__reserve((void **)&spans->items, &spans->capacity, spans->count + 1,
                       sizeof *spans->items, error));
    spans->items[spans->count++] = (by__template_span){begin, end};
    return BY_OK;
}

static int compare_spans(const void *a, const void *b)
{
    size_t x = ((const by__template_span *)a)->begin;
    size_t y = ((const by__template_span *)b)->begin;
    return (x > y) - (x < y);
}

/* The last answer that is wanted, + 1; 0: none is. */
static size_t last_wanted(const span_finder *f)
{
    size_t i = f->conversation->count;
    while (i > 0 && !f->wanted[i - 1]) {
        i--;
    }
    return i;
}

static bool starts_with(const rendered *text, size_t at, const char *with, size_t n)
{
    return at <= text->length && text->length - at >= n && memcmp(text->text + at, with, n) == 0;
}

/* ---- thinking ---- */

static const char think[] = "<think>";
static const char think_end[] = "</think>";

static size_t skip_blanks(const char *s, size_t at, size_t n)
{
    while (at < n && strchr(" \t\r\n", s[at]) != NULL && s[at] != '\0') {
        at++;
    }
    return at;
}

/* Where an answer begins behind an empty <think></think> at `at`, or `at` itself. */
static size_t skip_empty_think(const rendered *text, size_t at)
{
    if (!starts_with(text, at, think, sizeof think - 1)) {
        return at;
    }
    size_t end = skip_blanks(text->text, at + sizeof think - 1, text->length);
    return starts_with(text, end, think_end, sizeof think_end - 1)
               ? skip_blanks(text->text, end + sizeof think_end - 1, text->length)
               : at;
}

/* The length of the header of an answer without a <think>, or <think></think>, at its end. */
static size_t without_think(const rendered *header)
{
    const char *s = header->text;
    size_t n = header->length;
    while (n > 0 && strchr(" \t\r\n", s[n - 1]) != NULL) {
        n--;
    }
    if (n >= sizeof think_end - 1 &&
        memcmp(s + n - (sizeof think_end - 1), think_end, sizeof think_end - 1) == 0) {
        n -= sizeof think_end - 1;
        while (n > 0 && strchr(" \t\r\n", s[n - 1]) != NULL) {
            n--;
        }
    }
    return n >= sizeof think - 1 && memcmp(s + n - (sizeof think - 1), think, sizeof think - 1) == 0
               ? n - (sizeof think - 1)
               : header->length;
}

/* ---- spans from prefixes ---- */

/* Finds where answer `index` begins in a text: behind the rendering of what is before it, with its
 * header. *found is false if the text does not begin so. */
static by_status find_begin(const span_finder *f, size_t index, const rendered *text, size_t *begin,
                            bool *found)
{
    rendered header;
    BY_TRY(render(f, index, true, NULL, &header));
    size_t bare = without_think(&header);
    size_t same = 0;
    *found = starts_with(text, 0, header.text, header.length);
    *begin = header.length;
    if (!*found && bare < header.length) {
        *found = starts_with(text, 0, header.text, bare);
        *begin = bare;
    }
    while (!*found && same < header.length && same < text->length &&
           header.text[same] == text->text[same]) {
        same++;
    }
    if (!*found && skip_blanks(header.text, same, header.length) == header.length) {
        *found = true; /* the header alone ends with more blanks */
        *begin = same;
    }
    if (*found) {
        *begin = skip_empty_think(text, *begin);
    }
    free(header.text);
    return BY_OK;
}

/* Where what a template writes behind a whole conversation begins, such as an end of text, in the
 * rendering of the messages up to an answer: where that differs from the one with the header of a
 * further answer, but not inside of a special token. The end of the text if there is nothing. */
static by_status find_end(const span_finder *f, size_t index, const rendered *alone, size_t *end)
{
    rendered asked;
    size_t same = 0;
    by_error why = {0};
    const span_finder quiet = {
        .chat = f->chat, .conversation = f->conversation, .options = f->options, .error = &why};
    *end = alone->length;
    by_status status = render(&quiet, index + 1, true, NULL, &asked);
    if (status != BY_OK) { /* it writes none there */
        return status == BY_EMEMORY ? by_error_set(f->error, status, "%s", why.message) : BY_OK;
    }
    while (same < alone->length && same < asked.length && alone->text[same] == asked.text[same]) {
        same++;
    }
    free(asked.text);
    if (same < alone->length) {
        size_t at = same;
        while (at > 0 && alone->text[at - 1] != '>' && alone->text[at - 1] != '<') {
            at--;
        }
        *end = at > 0 && alone->text[at - 1] == '<' ? at - 1 : same;
    }
    return BY_OK;
}

/* Finds an answer in a text that goes on behind it: there it must be as it is where it is last, but
 * for the end of the conversation. */
static by_status find_earlier(const span_finder *f, size_t index, const rendered *text,
                              by__template_spans *spans, bool *found)
{
    rendered alone;
    size_t begin;
    size_t own;
    bool same;
    BY_TRY(find_begin(f, index, text, &begin, found));
    if (!*found) {
        return BY_OK;
    }
    BY_TRY(render(f, index + 1, false, NULL, &alone));
    size_t end = alone.length;
    by_status status = find_begin(f, index, &alone, &own, &same);
    same = status == BY_OK && same && own < end;
    *found = same && starts_with(text, begin, alone.text + own, end - own);
    if (same && !*found) {
        status = find_end(f, index, &alone, &end);
        *found =
            status == BY_OK && own < end && starts_with(text, begin, alone.text + own, end - own);
    }
    if (status == BY_OK && *found) {
        status = add_span(spans, begin, begin + end - own, f->error);
    }
    free(alone.text);
    return status;
}

/* Makes the sample that ends with an answer, and finds those before it in it. */
static by_status find_answers(span_finder *f, size_t last, by__chat_sample_text *sample)
{
    rendered text;
    size_t begin;
    bool found;
    BY_TRY(render(f, last + 1, false, NULL, &text));
    sample->text = text.text;
    sample->length = text.length;
    BY_TRY(find_begin(f, last, &text, &begin, &found));
    if (!found || begin >= text.length) {
        return by_error_set(f->error, BY_EFORMAT,
                            "message %zu: the chat template %s, so that what is learned of it is "
                            "unknown; a template with {%% generation %%} marks it",
                            last,
                            found ? "writes nothing of it"
                                  : "writes other text before an answer than before the same "
                                    "answer to come (add_generation_prompt)");
    }
    BY_TRY(add_span(&sample->learned, begin, text.length, f->error));
    f->wanted[last] = false;
    for (size_t i = last; i-- > 0;) {
        if (f->wanted[i]) {
            BY_TRY(find_earlier(f, i, &text, &sample->learned, &found));
            f->wanted[i] = !found;
        }
    }
    qsort(sample->learned.items, sample->learned.count, sizeof *sample->learned.items,
          compare_spans);
    return BY_OK;
}

static by_status add_sample(by__chat_sample_texts *out, by__chat_sample_text **sample,
                            by_error *error)
{
    BY_TRY(by__reserve((void **)&out->items, &out->capacity, out->count + 1, sizeof *out->items,
                       error));
    *sample = &out->items[out->count++];
    **sample = (by__chat_sample_text){0};
    return BY_OK;
}

static by_status render_prefixes(span_finder *f, by__chat_sample_texts *out)
{
    by__chat_sample_text *sample;
    for (size_t last; (last = last_wanted(f)) > 0;) {
        BY_TRY(add_sample(out, &sample, f->error));
        BY_TRY(find_answers(f, last - 1, sample));
    }
    return BY_OK;
}

/* ---- spans of {% generation %} ---- */

/* Keeps the spans of the answers that are wanted: those of message i is the span of its number
 * among the answers. */
static by_status choose_spans(const span_finder *f, by__template_spans *spans)
{
    const by__chat_conversation *c = f->conversation;
    size_t answers = 0;
    size_t kept = 0;
    size_t wanted = 0;
    for (size_t i = 0; i < c->count; i++) {
        answers += c->answers[i];
        wanted += f->wanted[i];
    }
    if (wanted == answers) {
        return BY_OK;
    }
    if (answers != spans->count) {
        return by_error_set(f->error, BY_EFORMAT,
                            "the chat template marks %zu texts of %zu answers, so that it is "
                            "unknown which belong to those that are learned",
                            spans->count, answers);
    }
    for (size_t i = 0, at = 0; i < c->count; i++) {
        if (c->answers[i]) {
            spans->items[kept] = spans->items[at++];
            kept += f->wanted[i];
        }
    }
    spans->count = kept;
    return BY_OK;
}

static by_status render_marked(const span_finder *f, by__chat_sample_texts *out, bool *hidden)
{
    by__chat_sample_text *sample;
    rendered text;
    BY_TRY(add_sample(out, &sample, f->error));
    BY_TRY(render(f, f->conversation->count, false, &sample->learned, &text));
    sample->text = text.text;
    sample->length = text.length;
    *hidden = sample->learned.hidden;
    return *hidden ? BY_OK : choose_spans(f, &sample->learned);
}

/* ---- everything ---- */

/* Renders all messages, with the content of one replaced by a letter. Templates may refuse that. */
static by_status render_other(const span_finder *f, size_t index, char letter, rendered *out)
{
    const by__chat_conversation *c = f->conversation;
    by__chat_conversation other = *c;
    json_t *message = json_copy(json_array_get(c->messages, index));
    other.messages = json_copy(c->messages);
    bool good = message != NULL && other.messages != NULL &&
                json_object_set_new(message, "content", json_stringn(&letter, 1)) == 0 &&
                json_array_set(other.messages, index, message) == 0;
    const span_finder g = {
        .chat = f->chat, .conversation = &other, .options = f->options, .error = f->error};
    by_status status = good ? render(&g, c->count, false, NULL, out)
                            : by_error_set(f->error, BY_EMEMORY, "out of memory: a conversation");
    json_decref(message);
    json_decref(other.messages);
    return status;
}

/* The first part of a content that is a list, or the last one, as a text; else the content. */
static const json_t *part_of(const json_t *content, bool last)
{
    if (!json_is_array(content)) {
        return content;
    }
    size_t count = json_array_size(content);
    const json_t *part = json_array_get(content, last && count > 0 ? count - 1 : 0);
    return json_is_object(part) ? json_object_get(part, "text") : part;
}

/* A letter that a content neither begins nor ends with, blanks around it or not. */
static char other_letter(const json_t *content)
{
    static const char letters[] = "XYZVW";
    char ends[4] = {0};
    size_t i = 0;
    for (int last = 0; last < 2; last++) {
        const json_t *part = part_of(content, last != 0);
        const char *text = json_string_value(part);
        size_t n = json_string_length(part);
        for (int inner = 0; inner < 2 && n > 0; inner++) {
            ends[2 * last + inner] = text[last != 0 ? n - 1 : 0];
            by__trim(&text, &n, BY__WHITE_SPACE);
        }
    }
    while (memchr(ends, letters[i], sizeof ends) != NULL) {
        i++;
    }
    return letters[i];
}

/* The length of the rendering of the first `count` messages if a text begins with it; SIZE_MAX: it
 * does not, or the template writes none of so few messages. */
static by_status rendered_before(const span_finder *f, size_t count, const rendered *text,
                                 size_t *out)
{
    rendered before;
    by_error why = {0};
    const span_finder quiet = {
        .chat = f->chat, .conversation = f->conversation, .options = f->options, .error = &why};
    *out = SIZE_MAX;
    by_status status = render(&quiet, count, false, NULL, &before);
    if (status != BY_OK) {
        return status == BY_EMEMORY ? by_error_set(f->error, status, "%s", why.message) : BY_OK;
    }
    if (starts_with(text, 0, before.text, before.length)) {
        *out = before.length;
    }
    free(before.text);
    return BY_OK;
}

/* Finds a message that is no answer: where the text differs once its content is another, and what
 * else the template writes of it, as far as the renderings with and without it tell. Nothing is
 * added if the template does not write it. */
static by_status find_message(const span_finder *f, size_t index, const rendered *text,
                              by__template_spans *spans)
{
    const json_t *message = json_array_get(f->conversation->messages, index);
    rendered other;
    size_t begin = 0;
    size_t behind = 0;
    size_t before;
    size_t up_to;
    BY_TRY(render_other(f, index, other_letter(json_object_get(message, "content")), &other));
    size_t least = text->length < other.length ? text->length : other.length;
    while (begin < least && text->text[begin] == other.text[begin]) {
        begin++;
    }
    while (behind < least - begin &&
           text->text[text->length - behind - 1] == other.text[other.length - behind - 1]) {
        behind++;
    }
    bool written = begin < other.length || begin < text->length;
    size_t end = text->length - behind;
    free(other.text);
    if (!written) {
        return BY_OK;
    }
    BY_TRY(rendered_before(f, index, text, &before));
    BY_TRY(rendered_before(f, index + 1, text, &up_to));
    begin = before < begin ? before : begin;
    end = up_to != SIZE_MAX && up_to > end ? up_to : end;
    return end > begin ? add_span(spans, begin, end, f->error) : BY_OK;
}

/* Inverts the spans: what is learned is all but the messages that are marked as not. */
static by_status invert(by__chat_sample_text *sample, by_error *error)
{
    by__template_spans kept = {0};
    by_status status = BY_OK;
    size_t at = 0;
    if (sample->learned.count > 0) {
        qsort(sample->learned.items, sample->learned.count, sizeof *sample->learned.items,
              compare_spans);
    }
    for (size_t i = 0; i <= sample->learned.count && status == BY_OK; i++) {
        bool ends = i == sample->learned.count;
        size_t begin = ends ? sample->length : sample->learned.items[i].begin;
        if (begin > at) {
            status = add_span(&kept, at, begin, error);
        }
        if (!ends && sample->learned.items[i].end > at) {
            at = sample->learned.items[i].end;
        }
    }
    free(sample->learned.items);
    sample->learned = kept;
    return status;
}

static by_status render_all(span_finder *f, by__chat_sample_texts *out)
{
    const by__chat_conversation *c = f->conversation;
    by__chat_sample_text *sample;
    rendered text = {0};
    BY_TRY(add_sample(out, &sample, f->error));
    BY_TRY(render(f, c->count, false, NULL, &text));
    sample->text = text.text;
    sample->length = text.length;
    for (size_t i = 0; i < c->count; i++) {
        bool found = true;
        if (c->excluded[i] && c->answers[i]) {
            BY_TRY(find_earlier(f, i, &text, &sample->learned, &found));
        } else if (c->excluded[i]) {
            BY_TRY(find_message(f, i, &text, &sample->learned));
        }
        if (!found) {
            return by_error_set(f->error, BY_EFORMAT,
                                "message %zu is not to be learned, and is not found in what the "
                                "chat template writes",
                                i);
        }
    }
    return invert(sample, f->error);
}

/* ---- a conversation ---- */

/* A template that does not write calls makes an empty answer of one, which would be learned. */
static by_status check_calls(const span_finder *f)
{
    const by__chat_conversation *c = f->conversation;
    static const char *const keys[] = {"tool_calls", "function_call"};
    for (size_t i = 0; i < c->count; i++) {
        const json_t *message = json_array_get(c->messages, i);
        for (size_t k = 0; k < BY_ARRAY_LENGTH(keys); k++) {
            const json_t *calls = json_object_get(message, keys[k]);
            bool called = json_array_size(calls) > 0 || json_object_size(calls) > 0;
            if (called && strstr(by_chat_text(f->chat), keys[k]) == NULL) {
                return by_error_set(f->error, BY_EFORMAT,
                                    "message %zu: the chat template does not write its \"%s\": "
                                    "choose one that does, such as that of the model to call "
                                    "functions with",
                                    i, keys[k]);
            }
        }
    }
    return BY_OK;
}

/* Whether a template compares roles with this one: it has it as a text. */
static bool names_role(const by_chat *chat, const char *role)
{
    size_t n = strlen(role);
    for (const char *at = by_chat_text(chat); (at = strstr(at, role)) != NULL; at++) {
        if (at > by_chat_text(chat) && (at[-1] == '\'' || at[-1] == '"') && at[n] == at[-1]) {
            return true;
        }
    }
    return false;
}

/* Templates write any role, so that an answer of a misspelled one would be lost without a word. */
static by_status check_roles(const span_finder *f)
{
    static const char *const known[] = {"system", "developer", "user",     "assistant",
                                        "model",  "tool",      "function", "ipython"};
    for (size_t i = 0; i < f->conversation->count; i++) {
        const json_t *message = json_array_get(f->conversation->messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        size_t k = 0;
        while (k < BY_ARRAY_LENGTH(known) && strcmp(role, known[k]) != 0) {
            k++;
        }
        if (k == BY_ARRAY_LENGTH(known) && !names_role(f->chat, role)) {
            return by_error_set(f->error, BY_EFORMAT,
                                "message %zu: the role \"%.40s\" is none of system, developer, "
                                "user, assistant, tool, and the chat template does not name it",
                                i, role);
        }
    }
    return BY_OK;
}

static by_status find_wanted(span_finder *f)
{
    const by__chat_conversation *c = f->conversation;
    memcpy(f->wanted, c->learned, c->count * sizeof *f->wanted);
    size_t last = last_wanted(f);
    if (last == 0) {
        return by_error_set(f->error, BY_EFORMAT,
                            "nothing of the conversation is learned: it has no answer%s",
                            memchr(c->answers, true, c->count) == NULL
                                ? ""
                                : " that is not marked with \"train\": false");
    }
    for (size_t i = 0; i + 1 < last && f->options->learn == BY_LEARN_LAST_TURN; i++) {
        f->wanted[i] = false;
    }
    return BY_OK;
}

static by_status find_spans(span_finder *f, by__chat_sample_texts *out)
{
    bool hidden = false;
    BY_TRY(check_roles(f));
    BY_TRY(check_calls(f));
    if (f->options->learn == BY_LEARN_ALL) {
        return render_all(f, out);
    }
    BY_TRY(find_wanted(f));
    if (by__template_chat_marks(f->chat)) {
        BY_TRY(render_marked(f, out, &hidden));
        if (!hidden) {
            return BY_OK;
        }
        by__chat_sample_texts_free(out);
    }
    return render_prefixes(f, out);
}

by_status by__chat_conversation_render(by__chat_sample_texts *out, const by_chat *chat,
                                       const by__chat_conversation *conversation,
                                       const by_conversation_options *options, by_error *error)
{
    span_finder f = {
        .chat = chat, .conversation = conversation, .options = options, .error = error};
    by__chat_sample_texts texts = {0};
    BY_TRY(by__alloc((void **)&f.wanted, conversation->count, sizeof *f.wanted, "messages", error));
    by_status status = find_spans(&f, &texts);
    for (size_t i = 0; i < texts.count && status == BY_OK; i++) {
        if (texts.items[i].learned.count == 0) {
            status = by_error_set(error, BY_EFORMAT, "nothing of the conversation is learned");
        }
    }
    free(f.wanted);
    if (status != BY_OK) {
        by__chat_sample_texts_free(&texts);
        return status;
    }
    *out = texts;
    return BY_OK;
}

void by__chat_sample_texts_free(by__chat_sample_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++) {
        free(texts->items[i].text);
        free(texts->items[i].learned.items);
    }
    free(texts->items);
    *texts = (by__chat_sample_texts){0};
}
