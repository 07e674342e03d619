/* serve: shared by `banyan serve`, `gateway`, `worker` and `broker`. */
#ifndef BY_CLI_SERVE_SERVING_H
#define BY_CLI_SERVE_SERVING_H

#include "banyan/serve.h"
#include "base/cli.h"

/* What flags that several of these commands have say of themselves. */
#define CLI_DIR_HELP                                                                               \
    "directory of the server's socket and state (default: $XDG_RUNTIME_DIR/banyan, else "          \
    "/tmp/banyan-UID)"
#define CLI_CHAT_TEMPLATE_HELP                                                                     \
    "chat template: a file, or chatml, llama3, zephyr or plain (default: the model's own)"
#define CLI_POOL_HELP                                                                              \
    "embeddings: mean of the hidden states of all tokens, or that of the last or the first token " \
    "(default mean)"
#define CLI_BATCH_HELP "table rows or images computed together, at most (default 16)"
#define CLI_DELAY_HELP                                                                             \
    "time an incomplete batch of rows, images or texts to embed waits for more (default 0.002)"
#define CLI_DRIFT_HELP                                                                             \
    "requests per window that is compared with the training data (default 500, docs/drift.md)"
#define CLI_WAIT_HELP                                                                              \
    "longest time a request is expected to wait in the queue; others get 429 at once (default: "   \
    "0.1 to 2, by the load)"
#define CLI_SILENCE_HELP                                                                           \
    "time without a heartbeat after which a worker counts as dead and its requests run on "        \
    "another one (default 5)"
#define CLI_DEADLINE_HELP                                                                          \
    "time in which a request must be answered, else it fails with 504 (default 600)"
#define CLI_CHILD_HELP "exit when standard input is closed, for a parent such as `banyan serve`"
#define CLI_KEYS_HELP                                                                              \
    "file with the SHA-256 hashes and names of the API keys that clients need (default: no key "   \
    "is needed)"
#define CLI_TRACES_HELP                                                                            \
    "send OpenTelemetry spans to this collector, e.g. http://127.0.0.1:4318/v1/traces"
#define CLI_INSECURE_HELP "allow an address that other machines reach without --keys"
#define CLI_REDIS_HELP    "use the Redis server at redis://HOST[:PORT] as the broker"

/* Ranges of flags that these commands share and that are no keys of the configuration. */
#define CLI_BATCH   CLI_INTEGER_IN(1, 4096)
#define CLI_DELAY   CLI_TIME_ABOVE(0, 60)
#define CLI_SILENCE CLI_TIME_ABOVE(0, 3600)

/* The umask of processes that write what clients have said. */
#define CLI_PRIVATE 077

/* How a process writes its log to standard error. */
typedef struct cli_log {
    const char *format; /* "auto", "json" or "text" */
    bool child;         /* of `banyan serve`: its messages are lines of that log */
    bool began;
} cli_log;

#define CLI_LOG_HELP                                                                               \
    "format of the log on standard error: json, text, or auto, which is text on a terminal "       \
    "(default auto)"

/* "json" or "text". */
const char *cli_log_format(const cli_log *log);
/* A by_serve_log; user: a cli_log, NULL for "auto". */
void cli_serve_log(void *user, const char *line);
/* cli_fail, as a line of the log if that has begun. */
int cli_serve_fail(const cli_command *command, const cli_log *log, const by_error *error);
/* Checks the flag; a negative number if it is right, else the exit code. */
int cli_check_log(const cli_command *command, const cli_log *log);
/* Makes SIGTERM and SIGINT end the program at once until a loop watches them: by default, process 1
 * of a container ignores them. */
void cli_serve_end_early(void);
/* Returns the path of the broker's socket in a directory, which is created. Freed with free(). */
by_status cli_serve_socket(char **out, const char *directory, by_error *error);
/* Returns the address that a gateway or a worker connects to: a copy of `broker` if it is given,
 * else the socket in `directory` (NULL: the default directory). Freed with free(). */
by_status cli_serve_broker(char **out, const char *broker, const char *directory, by_error *error);
/* Removes the password from the address of a broker, and from broker.address in --set (either may
 * be NULL), so that it does not show in process lists and command lines of children, and stores it
 * in BANYAN_REDIS_PASSWORD. Modifies the texts. Returns true if there was one. */
bool cli_hide_password(const char *address, const cli_list *sets);
/* Returns "$XDG_RUNTIME_DIR/banyan", else "/tmp/banyan-UID". Freed with free(). */
char *cli_serve_directory(void);

/* Opens a configuration (NULL: the defaults), applies overrides and then flags, and takes the
 * password out of its broker's address, as cli_hide_password does (serve_settings.c). tells: a file
 * that has a password and that others can read is logged. */
by_status cli_serve_config_open(by_serve_config **out, const char *path, const cli_list *sets,
                                const cli_settings *settings, bool tells, by_error *error);

/* A model as given on the command line: [NAME=]RUN[+ADAPTER] (serve_models.c). */
typedef struct cli_served {
    char *memory;
    char *path;
    const char *name;
    const char *adapter;               /* NULL: none */
    const by_served_model_config *own; /* its settings in the configuration; NULL: none */
    size_t least, most;                /* of its workers; both 0: those of the configuration */
    char *settings;                    /* of by_worker_settings; NULL: not known yet */
} cli_served;

/* Parses a model. If no name is given, it is the last component of the adapter's or the run's path.
 * Freed with cli_served_free. */
by_status cli_served_parse(cli_served *out, const char *text, by_error *error);
/* The same of an entry of the configuration, which must outlive it. */
by_status cli_served_read(cli_served *out, const by_served_model_config *own, by_error *error);
/* Parses "2" or "1:8", a number of workers; false if it is neither. */
bool cli_read_workers(const char *text, size_t *least, size_t *most);
/* Cuts +ADAPTER off a path, unless the whole is a path that exists, and returns the adapter, a part
 * of the text; NULL: there is none. */
char *cli_served_adapter(char *path);
void cli_served_free(cli_served *served);

#endif
