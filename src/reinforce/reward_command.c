/* Rewards from a program: it gets a line of JSON for each completion, and answers each with a line,
 * a number. It is started once, so that what it loads at its start is loaded once.
 *
 * Its three streams are served together: it may answer before it has read all lines, and may write
 * errors at any time, whose end is kept for the message if it dies.
 *
 * Answers are told apart by their order alone. A line too many, such as a banner, would give every
 * completion the answer of the one before it, so what it has printed unasked is refused: before
 * the lines of a step, and at its end, where its output is read until it is over. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process/process.h"
#include "reinforce/reinforce.h"

/* Bytes of its errors that a message has at most. */
#define SHOWN 400
/* Bytes of an answer at most. */
#define ANSWER 256
/* Seconds for its end, once it has closed its output or was told to end. */
#define GRACE 1.0

struct by__reinforce_command {
    by__process process;
    const by_string_list *words;
    const char *name;
    double timeout;
    double took; /* seconds of the last step's answers; -1: it was asked nothing yet */
    int input;   /* ours: a socket, so that its death is an error and no signal */
    int output;
    int errors;
    char last[SHOWN + 1]; /* of its errors */
    size_t last_count;
    by_string answers; /* that are not read yet */
};

/* ---- start and end ---- */

static void close_all(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
        fds[i] = -1;
    }
}

static by_status start(by__reinforce_command *c, by_error *error)
{
    const by_string_list *words = c->words;
    int fds[6] = {-1, -1, -1, -1, -1, -1}; /* pairs: theirs is 1, 3, 5 */
    char **arguments;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0 ||
        pipe2(fds + 2, O_CLOEXEC) != 0 || pipe2(fds + 4, O_CLOEXEC) != 0) {
        close_all(fds, BY_ARRAY_LENGTH(fds));
        return by__io_error(error, "make a pipe for", c->name);
    }
    by_status status =
        by__alloc((void **)&arguments, words->count + 1, sizeof *arguments, "arguments", error);
    if (status != BY_OK) {
        close_all(fds, BY_ARRAY_LENGTH(fds));
        return status;
    }
    memcpy(arguments, words->items, words->count * sizeof *arguments);
    const by__process_options options = {
        .words = arguments, .input = fds[1], .output = fds[3], .errors = fds[5]};
    int problem = by__process_start(&c->process, &options);
    free(arguments);
    c->took = -1.0;
    c->input = fds[0];
    c->output = fds[2];
    c->errors = fds[4];
    close_all((int[]){fds[1], fds[3], fds[5]}, 3);
    (void)fcntl(c->input, F_SETFL, O_NONBLOCK);
    (void)fcntl(c->output, F_SETFL, O_NONBLOCK);
    (void)fcntl(c->errors, F_SETFL, O_NONBLOCK);
    return problem == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG, "task.reward_command: cannot start %s: %s",
                              c->name, strerror(problem));
}

by_status by__reinforce_command_open(by__reinforce_command **out, const by_string_list *words,
                                     double timeout, by_error *error)
{
    by__reinforce_command *c;
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "a command", error));
    *c = (by__reinforce_command){.words = words,
                                 .name = words->items[0],
                                 .timeout = timeout,
                                 .input = -1,
                                 .output = -1,
                                 .errors = -1};
    by_status status = start(c, error);
    if (status != BY_OK) {
        by__reinforce_command_close(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

/* Waits until it has ended, and kills it if that takes longer than its grace. */
static void await_end(by__reinforce_command *c)
{
    double until = by__now() + GRACE;
    bool killed = false;
    while (c->process.running && by__process_watch(&c->process, by__now()) != BY__PROCESS_LEFT) {
        if (by__now() > until && !killed) {
            by__process_kill(&c->process);
            killed = true;
        }
        (void)poll(NULL, 0, 2);
    }
}

/* Closes its streams, and waits for its end. */
static void stop(by__reinforce_command *c)
{
    int fds[3] = {c->input, c->output, c->errors};
    close_all(fds, BY_ARRAY_LENGTH(fds)); /* the end of its input ends it */
    c->input = -1;
    c->output = -1;
    c->errors = -1;
    await_end(c);
}

void by__reinforce_command_close(by__reinforce_command **command)
{
    by__reinforce_command *c = *command;
    if (c == NULL) {
        return;
    }
    stop(c);
    by_string_free(&c->answers);
    free(c);
    *command = NULL;
}

/* ---- streams ---- */

/* Keeps the last bytes of its errors. */
static void read_errors(by__reinforce_command *c)
{
    char bytes[SHOWN];
    ssize_t n = read(c->errors, bytes, sizeof bytes);
    for (; n > 0; n = read(c->errors, bytes, sizeof bytes)) {
        size_t count = (size_t)n;
        size_t kept = c->last_count + count > SHOWN ? SHOWN - count : c->last_count;
        memmove(c->last, c->last + c->last_count - kept, kept);
        memcpy(c->last + kept, bytes, count);
        c->last_count = kept + count;
    }
    c->last[c->last_count] = '\0';
    if (n == 0 && c->errors >= 0) { /* closed, so that there is nothing to wait for */
        (void)close(c->errors);
        c->errors = -1;
    }
}

/* What it wrote to its errors, as the end of a message of one line. */
static const char *last_errors(by__reinforce_command *c)
{
    read_errors(c);
    while (c->last_count > 0 && c->last[c->last_count - 1] == '\n') {
        c->last[--c->last_count] = '\0';
    }
    for (size_t i = 0; i < c->last_count; i++) {
        c->last[i] = c->last[i] == '\n' || c->last[i] == '\0' ? ' ' : c->last[i];
    }
    return c->last_count == 0 ? "it wrote no error" : c->last;
}

static by_status ended(by__reinforce_command *c, size_t answered, size_t count, by_error *error)
{
    char how[64];
    await_end(c);
    (void)snprintf(how, sizeof how,
                   c->process.code > 128 ? "was ended by signal %d" : "ended with code %d",
                   c->process.code > 128 ? c->process.code - 128 : c->process.code);
    return by_error_set(error, BY_EIO, "task.reward_command: %s %s after %zu of %zu answers: %s",
                        c->name, how, answered, count, last_errors(c));
}

static by_status late(by__reinforce_command *c, size_t answered, size_t count, by_error *error)
{
    by__process_kill(&c->process);
    return by_error_set(error, BY_EIO,
                        "task.reward_command: %s gave %zu of %zu answers in %g s "
                        "(task.reward_timeout): %s",
                        c->name, answered, count, c->timeout, last_errors(c));
}

/* Reads what is there; *end: there will not be more. */
static by_status read_answers(by__reinforce_command *c, bool *end, by_error *error)
{
    char bytes[4096];
    ssize_t n = read(c->output, bytes, sizeof bytes);
    *end = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n > 0) {
        by_string_add(&c->answers, bytes, (size_t)n);
    }
    return by_string_check(&c->answers, error);
}

static by_status parse_answer(const by__reinforce_command *c, double *out, const char *line,
                              size_t length, size_t number, by_error *error)
{
    char text[ANSWER];
    by__trim(&line, &length, BY__WHITE_SPACE);
    (void)snprintf(text, sizeof text, "%.*s",
                   (int)(length < sizeof text ? length : sizeof text - 1), line);
    if (length >= sizeof text || !by__parse_f64(text, out) || !isfinite(*out) ||
        fabs(*out) > 1e30) {
        return by_error_set(error, BY_EFORMAT,
                            "task.reward_command: answer %zu of %s is \"%.60s\", which is no "
                            "number: print one for each line, and nothing else",
                            number + 1, c->name, text);
    }
    return BY_OK;
}

/* The first line of what is not read yet, for a message. */
static void first_line(const by__reinforce_command *c, char text[ANSWER])
{
    const char *line = c->answers.data;
    const char *stop = memchr(line, '\n', c->answers.length);
    size_t length = stop == NULL ? c->answers.length : (size_t)(stop - line);
    by__trim(&line, &length, BY__WHITE_SPACE);
    (void)snprintf(text, ANSWER, "%.*s", (int)(length < ANSWER ? length : ANSWER - 1), line);
}

static by_status unasked(const by__reinforce_command *c, by_error *error)
{
    char text[ANSWER];
    first_line(c, text);
    return by_error_set(error, BY_EFORMAT,
                        "task.reward_command: %s printed \"%.60s\" %s: print a number for each "
                        "line, and nothing else",
                        c->name, text,
                        c->took < 0.0 ? "before it was asked anything"
                                      : "behind its last answer, so that answers and completions "
                                        "do not belong together");
}

/* Refuses what it has printed before it gets the lines of a step. */
static by_status check_silent(by__reinforce_command *c, size_t count, by_error *error)
{
    bool end;
    BY_TRY(read_answers(c, &end, error));
    if (c->answers.length > 0) {
        return unasked(c, error);
    }
    return end ? ended(c, 0, count, error) : BY_OK;
}

/* Takes the answers that are complete. */
static by_status take_answers(by__reinforce_command *c, double *out, size_t *answered, size_t count,
                              by_error *error)
{
    size_t used = 0;
    while (used < c->answers.length) {
        const char *line = c->answers.data + used;
        const char *stop = memchr(line, '\n', c->answers.length - used);
        if (stop == NULL && c->answers.length - used < ANSWER) {
            break;
        }
        size_t length = stop == NULL ? c->answers.length - used : (size_t)(stop - line);
        if (*answered == count) {
            return by_error_set(error, BY_EFORMAT,
                                "task.reward_command: %s printed more than the %zu lines that it "
                                "was asked for: print a number for each line, and nothing else",
                                c->name, count);
        }
        BY_TRY(parse_answer(c, &out[*answered], line, length, *answered, error));
        used += length + 1;
        ++*answered;
    }
    if (used > 0) {
        c->answers.length -= used;
        memmove(c->answers.data, c->answers.data + used, c->answers.length);
    }
    return BY_OK;
}

/* ---- questions ---- */

static void add_question(by_string *text, const by__reinforce_answered *a)
{
    by__string_append(text, "{\"completion\":");
    by_string_json(text, a->completion.data, a->completion.length);
    by__string_append(text, ",\"answer\":");
    by_string_json(text, a->answer.data, a->answer.length);
    by__string_append(text, ",\"item\":");
    if (a->is_object) {
        by_string_add(text, a->line.data, a->line.length);
    } else {
        by_string_json(text, a->line.data, a->line.length);
    }
    by__string_append(text, "}\n");
}

static by_status exchange(by__reinforce_command *c, double *out, const by_string *questions,
                          size_t count, by_error *error)
{
    double began = by__now();
    double until = began + c->timeout;
    size_t sent = 0;
    size_t answered = 0;
    bool end = false;
    while (answered < count) {
        struct pollfd streams[3] = {
            {.fd = c->output, .events = POLLIN},
            {.fd = c->errors, .events = POLLIN},
            {.fd = sent < questions->length ? c->input : -1, .events = POLLOUT}};
        double left = until - by__now();
        if (left <= 0.0) {
            return late(c, answered, count, error);
        }
        if (poll(streams, 3, (int)(1000.0 * fmin(left, 1.0)) + 1) < 0 && errno != EINTR) {
            return by__io_error(error, "wait for", c->name);
        }
        if (sent < questions->length) {
            ssize_t n = send(c->input, questions->data + sent, questions->length - sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
            sent += n > 0 ? (size_t)n : 0;
        }
        read_errors(c);
        BY_TRY(read_answers(c, &end, error));
        BY_TRY(take_answers(c, out, &answered, count, error));
        if (end && answered < count) {
            return ended(c, answered, count, error);
        }
    }
    c->took = by__now() - began;
    return BY_OK;
}

by_status by__reinforce_command_rate(by__reinforce_command *c, double *out,
                                     const by__reinforce_answered *list, size_t count,
                                     by_error *error)
{
    by_string questions = {0};
    if (c->input < 0) { /* it was told to finish, and the step is taken once more */
        BY_TRY(start(c, error));
    }
    BY_TRY(check_silent(c, count, error));
    for (size_t i = 0; i < count; i++) {
        add_question(&questions, &list[i]);
    }
    by_status status = by_string_check(&questions, error);
    if (status == BY_OK) {
        status = exchange(c, out, &questions, count, error);
    }
    by_string_free(&questions);
    return status;
}

/* Reads its output to its end, or as much of it as a message shows. */
static by_status read_rest(by__reinforce_command *c, double until, by_error *error)
{
    bool end = false;
    while (!end && c->answers.length < ANSWER) {
        double left = until - by__now();
        if (left <= 0.0) {
            break;
        }
        struct pollfd streams[2] = {{.fd = c->output, .events = POLLIN},
                                    {.fd = c->errors, .events = POLLIN}};
        if (poll(streams, 2, (int)(1000.0 * fmin(left, 1.0)) + 1) < 0 && errno != EINTR) {
            return by__io_error(error, "wait for", c->name);
        }
        read_errors(c);
        BY_TRY(read_answers(c, &end, error));
    }
    return BY_OK;
}

by_status by__reinforce_command_finish(by__reinforce_command *c, by_error *error)
{
    char text[ANSWER];
    double number;
    if (c->input < 0 || c->took < 0.0) {
        return BY_OK;
    }
    (void)close(c->input);
    c->input = -1;
    by_status status = read_rest(c, by__now() + c->took + GRACE, error);
    if (status == BY_OK && c->answers.length > 0) {
        first_line(c, text);
        /* Words at its end belong to no answer. */
        status = by__parse_f64(text, &number) ? unasked(c, error) : BY_OK;
    }
    c->answers.length = 0;
    stop(c);
    return status;
}
