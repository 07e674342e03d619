#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/chat.h"
#include "banyan/infer.h"
#include "banyan/text_stream.h"
#include "base/cli.h"

/* Tokens below which the default context is not reduced. */
#define MIN_CONTEXT 1024

typedef struct chat_request {
    const char *system;
    const char *template_file;
    const char *precision;
    const char *adapter;
    int64_t tokens;
    int64_t context;
    int64_t threads;
    by_sampling sampling;
    cli_list stops;
    const char *device;
    bool best;
} chat_request;

typedef struct chat_message {
    const char *role; /* a string constant */
    char *text;
    size_t length;
} chat_message;

typedef struct chat_session {
    const chat_request *request;
    by_tokenizer *tokenizer;
    by_generator *generator;
    by_chat *chat;
    int32_t ends[BY_END_TOKENS]; /* tokens that end an answer */
    size_t end_count;
    int64_t end; /* what the template writes behind one; -1: nothing */
    by_text_stream *stream;
    char *system; /* NULL: none */
    chat_message *messages;
    size_t count;
    size_t capacity;
    int32_t *cached; /* tokens whose keys and values are in the caches */
    size_t cached_count;
    size_t cached_capacity;
    bool terminal;
    bool leave;
    bool interrupted; /* true if input is not a terminal */
} chat_session;

/* ---- the conversation ---- */

static void add_message(by_string *out, const char *role, const char *text, size_t length)
{
    by_string_format(out, "%s{\"role\": \"%s\", \"content\": ", out->length > 1 ? ", " : "", role);
    by_string_json(out, text, length);
    by_string_add(out, "}", 1);
}

/* Writes the conversation as JSON. */
static by_status write_messages(const chat_session *s, by_string *out, by_error *error)
{
    by_string_add(out, "[", 1);
    if (s->system != NULL) {
        add_message(out, "system", s->system, strlen(s->system));
    }
    for (size_t i = 0; i < s->count; i++) {
        add_message(out, s->messages[i].role, s->messages[i].text, s->messages[i].length);
    }
    by_string_add(out, "]", 1);
    return by_string_check(out, error);
}

/* Appends a message and takes ownership of `text`. */
static by_status push_message(chat_session *s, const char *role, char *text, size_t length,
                              by_error *error)
{
    if (s->count == s->capacity) {
        size_t capacity = 2 * s->capacity + 16;
        chat_message *larger = realloc(s->messages, capacity * sizeof *larger);
        if (larger == NULL) {
            free(text);
            return by_error_set(error, BY_EMEMORY, "out of memory: the conversation");
        }
        s->messages = larger;
        s->capacity = capacity;
    }
    s->messages[s->count++] = (chat_message){role, text, length};
    return BY_OK;
}

static void drop_messages(chat_session *s, size_t kept)
{
    while (s->count > kept) {
        free(s->messages[--s->count].text);
    }
}

/* ---- an answer ---- */

/* Computes the tokens of the conversation that are not in the caches yet. */
static by_status prefill(chat_session *s, const by_token_buffer *ids, by_error *error)
{
    int64_t context = by_generator_context(s->generator);
    size_t same = 0;
    if (ids->count == 0) {
        return by_error_set(error, BY_ESTATE,
                            "the chat template renders the conversation as an empty text");
    }
    if (ids->count >= (size_t)context) {
        return by_error_set(error, BY_ESTATE,
                            "the conversation has %zu tokens, the context %lld: start a new one "
                            "with /reset, or raise --context for a model with rotary positions",
                            ids->count, (long long)context);
    }
    if (s->cached_capacity < (size_t)context) {
        int32_t *larger = realloc(s->cached, (size_t)context * sizeof *larger);
        if (larger == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: tokens");
        }
        s->cached = larger;
        s->cached_capacity = (size_t)context;
    }
    while (same + 1 < ids->count && same < s->cached_count &&
           s->cached[same] == (int32_t)ids->ids[same]) {
        same++;
    }
    by_status status = by_generator_keep(s->generator, same, error);
    s->cached_count = same;
    for (size_t i = same; i < ids->count; i++) {
        s->cached[i] = (int32_t)ids->ids[i];
    }
    if (status == BY_OK) {
        status = by_generator_feed(s->generator, s->cached + same, ids->count - same, error);
    }
    if (status == BY_OK) {
        s->cached_count = ids->count;
    }
    return status;
}

static by_status render(chat_session *s, by_error *error)
{
    by_string messages = {0};
    by_token_buffer ids = {0};
    char *text = NULL;
    size_t length = 0;
    by_status status = write_messages(s, &messages, error);
    by_chat_request chat = {.messages = messages.data,
                            .messages_length = messages.length,
                            .add_generation_prompt = true};
    if (status == BY_OK) {
        status = by_chat_render(s->chat, &chat, &text, &length, error);
    }
    if (status == BY_OK) {
        status = by_tokenizer_encode(s->tokenizer, text, length, &ids, BY_ENCODE_SPECIAL, error);
    }
    if (status == BY_OK) {
        status = prefill(s, &ids, error);
    }
    by_token_buffer_free(&ids);
    free(text);
    by_string_free(&messages);
    return status;
}

static by_status show(by_string *answer, const by_text *text, by_error *error)
{
    if (text->length > 0) {
        fwrite(text->data, 1, text->length, stdout);
        fflush(stdout);
    }
    by_string_add(answer, text->data, text->length);
    return by_string_check(answer, error);
}

static bool ends(const chat_session *s, int32_t token)
{
    bool is = token == s->end;
    for (size_t i = 0; i < s->end_count; i++) {
        is = is || s->ends[i] == token;
    }
    return is;
}

static by_status write_answer(chat_session *s, by_string *answer, by_error *error)
{
    const chat_request *r = s->request;
    by_text text = {0};
    by_status status = BY_OK;
    bool stopped = false;
    by_text_stream_reset(s->stream);
    for (int64_t i = 0; i < r->tokens && status == BY_OK; i++) {
        int32_t token;
        if (cli_stop_requested(NULL)) {
            s->leave = s->interrupted = !s->terminal;
            break;
        }
        status = by_generator_sample(s->generator, &r->sampling, &token, error);
        if (status != BY_OK || ends(s, token)) {
            break;
        }
        status = by_text_stream_push(s->stream, (uint32_t)token, &text, &stopped, error);
        if (status == BY_OK) {
            status = show(answer, &text, error);
        }
        if (stopped || by_generator_cached(s->generator) >= by_generator_context(s->generator)) {
            break;
        }
        if (status == BY_OK && i + 1 < r->tokens) {
            status = by_generator_feed(s->generator, &token, 1, error);
            s->cached[s->cached_count++] = token;
        }
    }
    if (status == BY_OK) {
        by_text_stream_end(s->stream, &text);
        status = show(answer, &text, error);
    }
    putchar('\n');
    fflush(stdout);
    cli_clear_stop();
    return status;
}

/* Answers a question and takes ownership of its text. */
static by_status answer(chat_session *s, char *text, size_t length, by_error *error)
{
    size_t before = s->count;
    by_string written = {0};
    by_status status = push_message(s, "user", text, length, error);
    if (status == BY_OK) {
        status = render(s, error);
    }
    if (status == BY_OK) {
        status = write_answer(s, &written, error);
    }
    if (status != BY_OK) {
        by_string_free(&written);
        drop_messages(s, before); /* drop the question from the conversation */
        return status;
    }
    return push_message(s, "assistant", written.data, written.length, error);
}

/* ---- commands ---- */

static by_status save(const chat_session *s, const char *path, by_error *error)
{
    by_string text = {0};
    by_status status = write_messages(s, &text, error);
    FILE *file = status == BY_OK ? fopen(path, "wb") : NULL;
    if (status == BY_OK) {
        bool written = file != NULL && fwrite(text.data, 1, text.length, file) == text.length &&
                       fputc('\n', file) != EOF;
        written = file != NULL && fclose(file) == 0 && written;
        status = written
                     ? BY_OK
                     : by_error_set(error, BY_EIO, "cannot write %s: %s", path, strerror(errno));
    }
    by_string_free(&text);
    return status;
}

static by_status set_system(chat_session *s, const char *text, by_error *error)
{
    char *copy = text[0] != '\0' ? strdup(text) : NULL;
    if (copy == NULL && text[0] != '\0') {
        return by_error_set(error, BY_EMEMORY, "out of memory: the system message");
    }
    free(s->system);
    s->system = copy;
    drop_messages(s, 0);
    return BY_OK;
}

/* Executes a line that starts with '/'. */
static by_status command(chat_session *s, char *line, by_error *error)
{
    char *text = strchr(line, ' ');
    if (text != NULL) {
        *text++ = '\0';
    }
    if (strcmp(line, "/quit") == 0) {
        s->leave = true;
    } else if (strcmp(line, "/reset") == 0) {
        drop_messages(s, 0);
    } else if (strcmp(line, "/system") == 0) {
        return set_system(s, text != NULL ? text : "", error);
    } else if (strcmp(line, "/save") == 0 && text != NULL && text[0] != '\0') {
        return save(s, text, error);
    } else {
        return by_error_set(
            error, BY_EARG,
            "unknown command '%s'; there are /reset, /system [TEXT], /save FILE and /quit", line);
    }
    return BY_OK;
}

static int converse(chat_session *s)
{
    char *line = NULL;
    size_t capacity = 0;
    int code = CLI_DONE;
    while (!s->leave) {
        by_error error = {0};
        by_status status = BY_OK;
        if (s->terminal) {
            fputs("> ", stderr);
            fflush(stderr);
        }
        ssize_t length = getline(&line, &capacity, stdin);
        if (length < 0) {
            code = cli_stop_requested(NULL) ? CLI_INTERRUPTED : CLI_DONE;
            break;
        }
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) {
            line[--length] = '\0';
        }
        if (line[0] == '/') {
            status = command(s, line, &error);
        } else if (length > 0) {
            char *text = malloc((size_t)length + 1);
            if (text != NULL) {
                memcpy(text, line, (size_t)length + 1);
            }
            status = text != NULL ? answer(s, text, (size_t)length, &error)
                                  : by_error_set(&error, BY_EMEMORY, "out of memory: a line");
        }
        if (status != BY_OK) {
            code = cli_fail(&cli_chat, &error);
            if (!s->terminal) {
                break;
            }
            code = CLI_DONE;
        }
    }
    free(line);
    return s->interrupted ? CLI_INTERRUPTED : code;
}

/* ---- the model ---- */

static by_status open_chat(chat_session *s, const char *directory, by_error *error)
{
    const chat_request *r = s->request;
    by_chat_source source = {.directory = directory, .file = r->template_file};
    by_status status = by_chat_open(&s->chat, &source, error);
    if (status == BY_ESTATE) {
        by_error_set(
            error, status,
            "%s has no chat template: give one with --chat-template FILE (docs/chat.md), or "
            "continue text with `banyan generate`, which needs none",
            directory);
    }
    if (status == BY_OK && r->system != NULL) {
        status = set_system(s, r->system, error);
    }
    if (status == BY_OK) {
        s->end = by_chat_end(s->chat, s->tokenizer);
        status = by_end_tokens(s->ends, &s->end_count, directory, s->tokenizer, error);
    }
    return status;
}

/* Opens the generator with --context or else the model's context, which is halved until its keys
 * and values fit into memory: few conversations fill it. */
static by_status open_generator(chat_session *s, const by_pretrained *pretrained, by_error *error)
{
    const chat_request *r = s->request;
    const by_config *config = by_pretrained_config(pretrained);
    const by_weights *weights = by_pretrained_weights(pretrained);
    by_generator_options options = {.context = r->context,
                                    .vocab = (int64_t)by_tokenizer_vocab(s->tokenizer),
                                    .threads = (int)r->threads,
                                    .precision = r->precision};
    by_status status = by_generator_open(&s->generator, config, weights, &options, error);
    int64_t context = config->model.context;
    while (status == BY_EMEMORY && r->context == 0 && context >= 2 * MIN_CONTEXT) {
        options.context = context /= 2;
        status = by_generator_open(&s->generator, config, weights, &options, error);
    }
    if (status == BY_OK && options.context != r->context) {
        fprintf(stderr,
                "The context is %lld of the model's %lld tokens, whose keys and values do not fit "
                "into memory.\n",
                (long long)context, (long long)config->model.context);
    }
    return status;
}

static by_status open_model(chat_session *s, const char *path, by_error *error)
{
    const chat_request *r = s->request;
    by_pretrained *pretrained = NULL;
    by_status status =
        cli_open_pretrained(&pretrained, path, r->device, r->best, false, r->adapter, error);
    status = status == BY_OK ? cli_check_writes(pretrained, error) : status;
    if (status == BY_OK) {
        status = by_pretrained_tokenizer(&s->tokenizer, pretrained, error);
    }
    if (status == BY_OK && by_model_is_encoder(&by_pretrained_config(pretrained)->model)) {
        status = by_error_set(error, BY_EARG,
                              "%s: model.kind %s is an encoder and continues no text: `banyan "
                              "embed` makes vectors of texts",
                              path, by_pretrained_config(pretrained)->model.kind);
    }
    if (status == BY_OK) {
        status = open_chat(s, by_pretrained_directory(pretrained), error);
    }
    if (status == BY_OK) {
        by_text_stream_options stream = {
            .stops = r->stops.items, .stop_count = r->stops.count, .skip_special = true};
        status = by_text_stream_open(&s->stream, s->tokenizer, &stream, error);
    }
    if (status == BY_OK) {
        status = open_generator(s, pretrained, error);
    }
    by_pretrained_close(&pretrained);
    return status;
}

static int chat(const chat_request *r, const char *path)
{
    chat_session s = {.request = r, .terminal = isatty(STDIN_FILENO) != 0};
    by_error error = {0};
    by_status status = open_model(&s, path, &error);
    int code = status == BY_OK ? converse(&s) : cli_fail(&cli_chat, &error);
    drop_messages(&s, 0);
    by_generator_close(&s.generator);
    by_text_stream_close(&s.stream);
    by_chat_close(&s.chat);
    by_tokenizer_close(&s.tokenizer);
    free(s.messages);
    free(s.system);
    free(s.cached);
    return code;
}

static int run(int argc, char **argv)
{
    chat_request r = {.tokens = 512, .sampling = {.temperature = 0.8, .top_p = 0.95}};
    const cli_flag flags[] = {
        {"system", CLI_STRING, &r.system, "TEXT", "system message"},
        {"chat-template", CLI_STRING, &r.template_file, "FILE|NAME",
         "chat template: a file, or chatml, llama3, zephyr or plain (default: the model's own)"},
        {"template", CLI_STRING, &r.template_file, "FILE|NAME", "the same"},
        {"tokens", CLI_INTEGER_FROM(1), &r.tokens, "N",
         "tokens of an answer, at most (default 512)"},
        {"temperature", CLI_NUMBER, &r.sampling.temperature, "T",
         "sampling temperature; 0 always takes the most probable token (default 0.8)"},
        {"top-k", CLI_INTEGER_FROM(0), &r.sampling.top_k, "K",
         "sample from the K most probable tokens only; 0: from all (default 0)"},
        {"top-p", CLI_NUMBER, &r.sampling.top_p, "P",
         "sample from the most probable tokens whose probabilities add up to P; 1: from all "
         "(default 0.95)"},
        {"stop", CLI_LIST, &r.stops, "TEXT",
         "end an answer where the model writes TEXT, which is not printed; may be repeated"},
        {"seed", CLI_SEED, &r.sampling.seed, "N",
         "random seed; equal seeds give equal answers (default 0)"},
        {"context", CLI_INTEGER_FROM(1), &r.context, "N",
         "tokens of a conversation, at most (default: the model's context, or what fits "
         "into memory of it)"},
        {"precision", CLI_STRING, &r.precision, "TYPE", CLI_MODEL_PRECISION_HELP},
        {"device", CLI_STRING, &r.device, "NAME", CLI_DEVICE_HELP},
        {"threads", CLI_THREADS, &r.threads, "N",
         "compute threads (default: the model's train.threads)"},
        {"adapter", CLI_INPUT, &r.adapter, "DIR", CLI_ADAPTER_HELP},
        {"best", CLI_SWITCH, &r.best, NULL, CLI_BEST_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_chat, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_chat, "name one run or model directory");
    }
    for (size_t i = 0; i < r.stops.count; i++) {
        if (r.stops.items[i][0] == '\0') {
            return cli_misuse(&cli_chat, "--stop needs a text");
        }
    }
    by_error error;
    if (by_sampling_check(&r.sampling, &error) != BY_OK) {
        return cli_misuse(&cli_chat, "%s", error.message);
    }
    if ((code = cli_check_precision(&cli_chat, r.precision)) >= 0) {
        return code;
    }
    cli_catch_signals();
    return chat(&r, rest[0]);
}

const cli_command cli_chat = {
    .name = "chat",
    .summary = "chat with a trained model on the terminal",
    .usage =
        "banyan chat RUN [--system TEXT] [--chat-template FILE] [--tokens N] [--temperature T]",
    .text = "Chats with a model: reads a line and prints the model's answer as it is generated,\n"
            "with the model's own chat template (docs/chat.md).\n"
            "\n"
            "examples:\n"
            "  banyan chat runs/assistant\n"
            "  banyan chat runs/assistant --system 'Answer in one sentence.'\n"
            "\n"
            "Lines that begin with a slash are commands:\n"
            "  /reset          start a new conversation\n"
            "  /system [TEXT]  start a new conversation with another system message, or with none\n"
            "  /save FILE      write the messages as JSON\n"
            "  /quit           exit\n"
            "\n"
            "Ctrl-C ends an answer; at the prompt it exits.",
    .run = run};
