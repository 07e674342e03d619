/* The log of the processes of a server: JSON lines, or text for people. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/serving.h"

const char *cli_log_format(const cli_log *log)
{
    const char *format = log == NULL || log->format == NULL ? "auto" : log->format;
    return strcmp(format, "json") == 0                                 ? "json"
           : strcmp(format, "text") == 0 || isatty(STDERR_FILENO) != 0 ? "text"
                                                                       : "json";
}

int cli_check_log(const cli_command *command, const cli_log *log)
{
    static const char *const known[] = {"auto", "json", "text"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (log->format == NULL || strcmp(log->format, known[i]) == 0) {
            return -1;
        }
    }
    return cli_misuse(command, "--log-format must be auto, json or text");
}

void cli_serve_log(void *user, const char *line)
{
    cli_log *log = user;
    char *text = strcmp(cli_log_format(log), "text") == 0 ? by_serve_log_text(line) : NULL;
    if (log != NULL) {
        log->began = true;
    }
    fprintf(stderr, "%s\n", text == NULL ? line : text);
    free(text);
}

int cli_serve_fail(const cli_command *command, const cli_log *log, const by_error *error)
{
    bool lines = strcmp(cli_log_format(log), "json") == 0 && (log->began || log->child);
    char *line = lines ? by_serve_log_event("failed", command->name, error->message) : NULL;
    if (line == NULL) {
        return cli_fail(command, error);
    }
    fprintf(stderr, "%s\n", line);
    free(line);
    return by_exit_of(error->status);
}
