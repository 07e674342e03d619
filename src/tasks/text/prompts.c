#include "tasks/text/prompts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/paths.h"
#include "data/corpus/record_reader.h"
#include "formats/parquet_text.h"

#define MAX_BYTES ((size_t)1 << 32) /* of a file */

/* Offsets, because the memory grows. */
struct by__task_prompt_place {
    size_t line;
    size_t line_length;
    size_t answer;
    size_t answer_length;
    size_t ids;
    size_t count;
    bool is_object;
};

static const char placeholder[] = "{prompt}";

/* The text of a line that the model reads, before its form; and its answer. */
typedef struct line_parts {
    json_t *object; /* owns both; NULL: a line of text */
    char *dumped;   /* an answer that is no text */
    by_text prompt;
    by_text answer;
} line_parts;

bool by__task_prompt_number(by_text text, bool needs_mark, double *out)
{
    char digits[64];
    size_t count = 0;
    const char *at = text.data;
    bool marked = false;
    for (const char *next = strstr(at, "####"); next != NULL; next = strstr(at, "####")) {
        at = next + strlen("####");
        marked = true;
    }
    while (*at == ' ' || *at == '$' || *at == '#') {
        at++;
    }
    for (; strchr("0123456789+-.,", *at) != NULL && *at != '\0' && count + 1 < sizeof digits;
         at++) {
        if (*at != ',') {
            digits[count++] = *at;
        }
    }
    while (count > 0 && digits[count - 1] == '.') { /* the end of a sentence */
        count--;
    }
    digits[count] = '\0';
    return (marked || !needs_mark) && count > 0 && by__parse_f64(digits, out);
}

static by_status read_answer(line_parts *out, const json_t *value, by_error *error)
{
    if (value == NULL) {
        out->answer = (by_text){"", 0};
    } else if (json_is_string(value)) {
        out->answer = (by_text){json_string_value(value), json_string_length(value)};
    } else {
        out->dumped = by__json_dump(value, JSON_COMPACT | JSON_ENCODE_ANY);
        if (out->dumped == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: an answer");
        }
        out->answer = (by_text){out->dumped, strlen(out->dumped)};
    }
    return BY_OK;
}

static by_status read_object(line_parts *out, by_text line, const by__task_prompt_fields *fields,
                             by_error *error)
{
    json_error_t problem;
    out->object = by_json_load(line.data, line.length, JSON_REJECT_DUPLICATES, &problem);
    if (out->object == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s (column %d)", problem.text, problem.column);
    }
    if (!json_is_object(out->object)) {
        return by_error_set(error, BY_EFORMAT, "the line is not a JSON object");
    }
    const json_t *prompt = json_object_get(out->object, fields->prompt);
    if (!json_is_string(prompt)) {
        return by_error_set(error, BY_EFORMAT,
                            "\"%s\" is %s: data.prompt_field names the member with the prompt",
                            fields->prompt, prompt == NULL ? "missing" : "no text");
    }
    out->prompt = (by_text){json_string_value(prompt), json_string_length(prompt)};
    const json_t *answer = json_object_get(out->object, fields->answer);
    if (fields->needs_answer && (answer == NULL || json_is_null(answer))) {
        return by_error_set(
            error, BY_EFORMAT,
            "\"%s\" is %s, which task.reward compares with: data.answer_field names "
            "the member with the answer",
            fields->answer, answer == NULL ? "missing" : "null");
    }
    BY_TRY(read_answer(out, answer, error));
    double number;
    return !fields->needs_number || by__task_prompt_number(out->answer, false, &number)
               ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "\"%s\" is \"%.60s\", which has no number where task.reward "
                              "compares one: at its beginning, or after its last ####",
                              fields->answer, out->answer.data);
}

static by_status encode(by__task_prompts *list, by_text prompt,
                        const by__task_prompt_fields *fields, const by_tokenizer *tokenizer,
                        size_t *count, by_error *error)
{
    by_string text = {0};
    by_token_buffer tokens = {0};
    const char *at = strstr(fields->form, placeholder);
    const char *rest = at == NULL ? "" : at + strlen(placeholder);
    by_string_add(&text, fields->form, at == NULL ? 0 : (size_t)(at - fields->form));
    by_string_add(&text, prompt.data, prompt.length);
    by__string_append(&text, rest);
    by_status status = text.failed || text.data == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: a prompt")
                           : by_tokenizer_encode(tokenizer, text.data, text.length, &tokens,
                                                 BY_ENCODE_SPECIAL, error);
    if (status == BY_OK && tokens.count <= list->most) {
        status = by__reserve((void **)&list->ids, &list->id_capacity, list->id_count + tokens.count,
                             sizeof *list->ids, error);
    }
    *count = tokens.count;
    for (size_t i = 0; i < tokens.count && tokens.count <= list->most && status == BY_OK; i++) {
        list->ids[list->id_count + i] = (int32_t)tokens.ids[i];
    }
    by_token_buffer_free(&tokens);
    by_string_free(&text);
    return status;
}

static by_status add_parts(by__task_prompts *list, by_text line, const line_parts *parts,
                           const by__task_prompt_fields *fields, const by_tokenizer *tokenizer,
                           by_error *error)
{
    size_t count;
    if (parts->prompt.length == 0) {
        return by_error_set(error, BY_EFORMAT, "the prompt is empty");
    }
    BY_TRY(encode(list, parts->prompt, fields, tokenizer, &count, error));
    if (count == 0 || count > list->most) {
        list->left_out++;
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&list->places, &list->capacity, list->count + 1,
                       sizeof *list->places, error));
    struct by__task_prompt_place *p = &list->places[list->count];
    *p = (struct by__task_prompt_place){.line = list->text.length,
                                        .line_length = line.length,
                                        .answer = list->text.length + line.length + 1,
                                        .answer_length = parts->answer.length,
                                        .ids = list->id_count,
                                        .count = count,
                                        .is_object = parts->object != NULL};
    by_string_add(&list->text, line.data, line.length);
    by_string_add(&list->text, "", 1);
    by_string_add(&list->text, parts->answer.data, parts->answer.length);
    by_string_add(&list->text, "", 1);
    if (list->text.failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: prompts");
    }
    list->id_count += count;
    list->count++;
    return BY_OK;
}

/* What a list is filled with. */
typedef struct prompt_reader {
    by__task_prompts *list;
    const char *name;
    const by__task_prompt_fields *fields;
    const by_tokenizer *tokenizer;
} prompt_reader;

static by_status add_line(const prompt_reader *r, by_text line, uint64_t number, bool json,
                          by_error *error)
{
    line_parts parts = {.prompt = line, .answer = {"", 0}};
    by_error problem = {0};
    by_status status = json ? read_object(&parts, line, r->fields, &problem) : BY_OK;
    if (!json && r->fields->needs_answer) {
        status = by_error_set(&problem, BY_EFORMAT,
                              "a line of text has no answer, which task.reward compares with: give "
                              "prompts and answers as JSON lines (.jsonl)");
    }
    if (status == BY_OK) {
        status = add_parts(r->list, line, &parts, r->fields, r->tokenizer, &problem);
    }
    free(parts.dumped);
    json_decref(parts.object);
    return status == BY_OK ? BY_OK
                           : by_error_set(error, status, "%s:%" PRIu64 ": %s", r->name, number,
                                          problem.message);
}

static by_status add_lines(const prompt_reader *r, const char *text, size_t length, by_error *error)
{
    const char *end = text + length;
    uint64_t number = 1;
    for (const char *at = text; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop == NULL ? end : stop;
        by_text line = {at, (size_t)(stop - at)};
        if (line.length > 0 && line.data[line.length - 1] == '\r') {
            line.length--;
        }
        const char *seen = line.data;
        size_t left = line.length;
        by__trim(&seen, &left, BY__WHITE_SPACE);
        if (left > 0) {
            BY_TRY(add_line(r, line, number, false, error));
        }
        at = stop == end ? end : stop + 1;
    }
    return BY_OK;
}

/* Adds a record on one line, as programs that rate get it: outside of its strings, line feeds are
 * blanks. */
static by_status add_record(const prompt_reader *r, const by__data_record *record, by_error *error)
{
    char *copy;
    const char *text = record->text;
    size_t length = record->length;
    by__trim(&text, &length, BY__WHITE_SPACE);
    BY_TRY(by__alloc((void **)&copy, length + 1, 1, "a prompt", error));
    memcpy(copy, text, length);
    for (size_t i = 0; i < length; i++) {
        if (copy[i] == '\n' || copy[i] == '\r') {
            copy[i] = ' ';
        }
    }
    by_status status = add_line(r, (by_text){copy, length}, record->line, true, error);
    free(copy);
    return status;
}

static by_status add_records(const prompt_reader *r, const char *text, size_t length, bool lines,
                             by_error *error)
{
    by__data_record record;
    bool found = true;
    by__data_record_reader reader = by__data_record_reader_of(r->name, text, length, lines);
    while (found) {
        BY_TRY(by__data_record_next(&reader, &record, &found, error));
        if (found) {
            BY_TRY(add_record(r, &record, error));
        }
    }
    return BY_OK;
}

by_status by__task_prompts_add(by__task_prompts *list, const char *name, const char *text,
                               size_t length, const by__task_prompt_fields *fields,
                               const by_tokenizer *tokenizer, by_error *error)
{
    const prompt_reader r = {.list = list, .name = name, .fields = fields, .tokenizer = tokenizer};
    bool lines = by__ends_with(name, ".jsonl") || by__ends_with(name, ".ndjson") ||
                 by__ends_with(name, ".parquet");
    size_t mark = sizeof BY__BYTE_ORDER_MARK - 1;
    if (length >= mark && memcmp(text, BY__BYTE_ORDER_MARK, mark) == 0) {
        text += mark;
        length -= mark;
    }
    return lines || by__ends_with(name, ".json") ? add_records(&r, text, length, lines, error)
                                                 : add_lines(&r, text, length, error);
}

by_status by__task_prompts_read(by__task_prompts *list, const char *path,
                                const by__task_prompt_fields *fields, const by_tokenizer *tokenizer,
                                by_error *error)
{
    char *text;
    size_t length;
    char lines[40];
    int fd = -1;
    if (by__ends_with(path, ".parquet")) {
        BY_TRY(by__format_parquet_text_lines(&fd, path, NULL, error));
        (void)snprintf(lines, sizeof lines, "/proc/self/fd/%d", fd);
    }
    by_status status = by__file_read(&text, &length, fd < 0 ? path : lines, MAX_BYTES, error);
    if (fd >= 0) {
        (void)close(fd);
    }
    BY_TRY(status);
    status = by__task_prompts_add(list, path, text, length, fields, tokenizer, error);
    free(text);
    return status;
}

by__task_prompt by__task_prompts_at(const by__task_prompts *list, size_t index)
{
    const struct by__task_prompt_place *p = &list->places[index];
    return (by__task_prompt){.line = {list->text.data + p->line, p->line_length},
                             .answer = {list->text.data + p->answer, p->answer_length},
                             .ids = list->ids + p->ids,
                             .count = p->count,
                             .is_object = p->is_object};
}

void by__task_prompts_free(by__task_prompts *list)
{
    free(list->places);
    free(list->ids);
    by_string_free(&list->text);
    *list = (by__task_prompts){0};
}
