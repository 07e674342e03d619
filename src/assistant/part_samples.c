/* What the model of a part writes: answers to questions, or continuations of the text. */
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "banyan/chat.h"
#include "banyan/infer.h"
#include "banyan/text_stream.h"
#include "base/json.h"
#include "base/paths.h"
#include "evaluate/evaluate.h"
#include "text/chat/conversation.h"

#define SAMPLES      3
#define MOST_TOKENS  96
#define PROMPT_WORDS 8

/* ---- prompts ---- */

typedef struct prompt_list {
    char *items[SAMPLES];
    size_t count;
} prompt_list;

static void add_prompt(prompt_list *list, const char *text, size_t length)
{
    char *copy = list->count < SAMPLES ? by__strndup(text, length) : NULL;
    if (copy != NULL) {
        list->items[list->count++] = copy;
    }
}

static void free_prompts(prompt_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
}

/* The first question of a conversation. */
static void add_question(prompt_list *list, const char *record, size_t length)
{
    static const by_conversation_options any;
    by__chat_conversation c;
    if (by__chat_conversation_read(&c, record, length, &any, false, NULL) != BY_OK) {
        return;
    }
    for (size_t i = 0; i < c.count; i++) {
        const json_t *message = json_array_get(c.messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        const char *content = json_string_value(json_object_get(message, "content"));
        if (role != NULL && strcmp(role, "user") == 0 && content != NULL) {
            add_prompt(list, content, strlen(content));
            break;
        }
    }
    by__chat_conversation_free(&c);
}

/* Of the last lines, which are held out. */
static by_status add_last_lines(prompt_list *list, const char *path, by_error *error)
{
    by__map map;
    BY_TRY(by__map_open(&map, path, error));
    const char *text = (const char *)map.data;
    size_t end = map.size;
    while (end > 0 && list->count < SAMPLES) {
        size_t begin = end;
        while (begin > 0 && text[begin - 1] != '\n') {
            begin--;
        }
        add_question(list, text + begin, end - begin);
        end = begin > 0 ? begin - 1 : 0;
    }
    by__map_close(&map);
    return BY_OK;
}

static by_status add_last_rows(prompt_list *list, const char *path, by_error *error)
{
    json_t *rows = json_array();
    by_status status = by__evaluate_rows(rows, path, NULL, error);
    for (size_t i = json_array_size(rows); i > 0 && status == BY_OK && list->count < SAMPLES; i--) {
        char *record = by__json_dump(json_array_get(rows, i - 1), JSON_COMPACT);
        if (record != NULL) {
            add_question(list, record, strlen(record));
        }
        free(record);
    }
    json_decref(rows);
    return status;
}

static by_status find_questions(prompt_list *list, const by_assistant_config *config,
                                by_error *error)
{
    if (config->questions.count > 0) {
        for (size_t i = 0; i < config->questions.count; i++) {
            add_prompt(list, config->questions.items[i], strlen(config->questions.items[i]));
        }
        return BY_OK;
    }
    const char *path = config->conversations.items[config->conversations.count - 1];
    return by__is_json_lines(path) ? add_last_lines(list, path, error)
                                   : add_last_rows(list, path, error);
}

/* The first words of a line, if it has so many. */
static bool add_words(prompt_list *list, const char *line, size_t length)
{
    size_t words = 0;
    for (size_t i = 0; i < length; i++) {
        bool ends = line[i] == ' ' && i > 0 && line[i - 1] != ' ';
        if (ends && ++words == PROMPT_WORDS) {
            add_prompt(list, line, i);
            return true;
        }
    }
    return false;
}

/* The last file of the text, NULL if memory ran out. */
static char *last_file(const by_string_list *text)
{
    char *path = by__strdup(text->items[text->count - 1]);
    while (path != NULL && by__path_is_dir(path)) {
        char **names;
        size_t count;
        char *inside = NULL;
        if (by__list_dir(&names, &count, path, NULL) == BY_OK) {
            inside = count > 0 ? by__path_join(path, names[count - 1]) : NULL;
            by__names_free(names, count);
        }
        free(path);
        path = inside;
    }
    return path;
}

/* Beginnings of lines of the end of the text, which is held out. */
static void find_beginnings(prompt_list *list, const by_assistant_config *config)
{
    by__map map;
    char *path = last_file(&config->text);
    if (path != NULL && by__map_open(&map, path, NULL) == BY_OK) {
        const char *text = (const char *)map.data;
        size_t at = map.size - map.size / 20;
        while (at > 0 && at < map.size && text[at - 1] != '\n') {
            at++;
        }
        while (at < map.size && list->count < SAMPLES) {
            const char *end = memchr(text + at, '\n', map.size - at);
            size_t length = end == NULL ? map.size - at : (size_t)(end - text) - at;
            bool taken = by__utf8_valid(text + at, length) && add_words(list, text + at, length);
            size_t after = at + length + 1 + (taken ? map.size / 80 : 0);
            at = after < map.size ? after : map.size;
            while (at < map.size && text[at - 1] != '\n') {
                at++;
            }
        }
        by__map_close(&map);
    }
    free(path);
    if (list->count == 0) {
        add_prompt(list, "The", 3);
    }
}

/* ---- generation ---- */

typedef struct sample_writer {
    by_pretrained *model;
    by_tokenizer *tokenizer;
    by_generator *generator;
    by_text_stream *stream;
    by_chat *chat; /* NULL: texts are continued */
    int32_t ends[BY_END_TOKENS];
    size_t end_count;
    int64_t end;
} sample_writer;

static by_status open_writer(sample_writer *w, const char *run, bool chats, by_error *error)
{
    static const by_text_stream_options shown = {.skip_special = true};
    BY_TRY(by_pretrained_open(&w->model, run, false, error));
    const char *directory = by_pretrained_directory(w->model);
    const by_chat_source source = {.directory = directory};
    w->end = -1;
    BY_TRY(by_pretrained_tokenizer(&w->tokenizer, w->model, error));
    const by_generator_options options = {.vocab = by_tokenizer_vocab(w->tokenizer)};
    BY_TRY(by_generator_open(&w->generator, by_pretrained_config(w->model),
                             by_pretrained_weights(w->model), &options, error));
    BY_TRY(by_text_stream_open(&w->stream, w->tokenizer, &shown, error));
    if (chats) {
        BY_TRY(by_chat_open(&w->chat, &source, error));
        w->end = by_chat_end(w->chat, w->tokenizer);
    }
    return by_end_tokens(w->ends, &w->end_count, directory, w->tokenizer, error);
}

static void close_writer(sample_writer *w)
{
    by_chat_close(&w->chat);
    by_text_stream_close(&w->stream);
    by_generator_close(&w->generator);
    by_tokenizer_close(&w->tokenizer);
    by_pretrained_close(&w->model);
}

/* The tokens that the model continues. */
static by_status encode(by_token_buffer *ids, const sample_writer *w, const char *prompt,
                        by_error *error)
{
    by_string messages = {0};
    char *text = NULL;
    size_t length = strlen(prompt);
    if (w->chat == NULL) {
        return by_tokenizer_encode(w->tokenizer, prompt, length, ids, 0, error);
    }
    by__string_append(&messages, "[{\"role\": \"user\", \"content\": ");
    by_string_json(&messages, prompt, length);
    by__string_append(&messages, "}]");
    by_status status = by_string_check(&messages, error);
    const by_chat_request request = {.messages = messages.data,
                                     .messages_length = messages.length,
                                     .add_generation_prompt = true};
    status = status == BY_OK ? by_chat_render(w->chat, &request, &text, &length, error) : status;
    if (status == BY_OK) {
        status = by_tokenizer_encode(w->tokenizer, text, length, ids, BY_ENCODE_SPECIAL, error);
    }
    free(text);
    by_string_free(&messages);
    return status;
}

static bool ends(const sample_writer *w, int32_t token)
{
    bool is = token == w->end;
    for (size_t i = 0; i < w->end_count; i++) {
        is = is || w->ends[i] == token;
    }
    return is;
}

static by_status continue_text(by_string *answer, sample_writer *w, by_error *error)
{
    const by_sampling sampling = {.temperature = 0.7, .top_p = 0.95, .seed = 1};
    by_text text;
    bool stopped;
    for (int i = 0; i < MOST_TOKENS; i++) {
        int32_t token;
        BY_TRY(by_generator_sample(w->generator, &sampling, &token, error));
        if (ends(w, token) ||
            by_generator_cached(w->generator) == by_generator_context(w->generator)) {
            break;
        }
        BY_TRY(by_text_stream_push(w->stream, (uint32_t)token, &text, &stopped, error));
        by_string_add(answer, text.data, text.length);
        BY_TRY(by_generator_feed(w->generator, &token, 1, error));
    }
    by_text_stream_end(w->stream, &text);
    by_string_add(answer, text.data, text.length);
    return BY_OK;
}

static by_status write_sample(by__assistant_sample *out, sample_writer *w, const char *prompt,
                              by_error *error)
{
    by_token_buffer ids = {0};
    by_string answer = {0};
    by_generator_reset(w->generator);
    by_text_stream_reset(w->stream);
    by_status status = encode(&ids, w, prompt, error);
    if (status == BY_EFORMAT || status == BY_EARG) {
        /* A question of the user's that this model cannot read is no reason to lose the report. */
        by__string_append(&answer, "(The model cannot read this.)");
        status = BY_OK;
    } else if (status == BY_OK && ids.count > 0 &&
               ids.count < (size_t)by_generator_context(w->generator)) {
        status = by_generator_feed(w->generator, (const int32_t *)(const void *)ids.ids, ids.count,
                                   error);
        status = status == BY_OK ? continue_text(&answer, w, error) : status;
    }
    by_token_buffer_free(&ids);
    out->prompt = by__strdup(prompt);
    if (status == BY_OK) {
        status = by__string_release(&answer, &out->answer, error);
    }
    by_string_free(&answer);
    return status == BY_OK && out->prompt == NULL
               ? by_error_set(error, BY_EMEMORY, "out of memory: a sample")
               : status;
}

by_status by__assistant_samples(by__assistant_sample **out, size_t *count, const by_assistant *a,
                                size_t index, by_error *error)
{
    sample_writer writer = {0};
    prompt_list prompts = {0};
    bool chats = index > 0;
    by_status status = BY_OK;
    *out = NULL;
    *count = 0;
    if (chats) {
        status = find_questions(&prompts, a->config, error);
    } else {
        find_beginnings(&prompts, a->config);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)out, SAMPLES, sizeof **out, "samples", error);
    }
    status = status == BY_OK ? open_writer(&writer, a->parts[index].run, chats, error) : status;
    for (size_t i = 0; i < prompts.count && status == BY_OK; i++) {
        status = write_sample(&(*out)[(*count)++], &writer, prompts.items[i], error);
    }
    close_writer(&writer);
    free_prompts(&prompts);
    if (status != BY_OK) {
        by__assistant_samples_free(out, *count);
        *count = 0;
    }
    return status;
}

void by__assistant_samples_free(by__assistant_sample **samples, size_t count)
{
    for (size_t i = 0; *samples != NULL && i < count; i++) {
        free((*samples)[i].prompt);
        free((*samples)[i].answer);
    }
    free(*samples);
    *samples = NULL;
}
