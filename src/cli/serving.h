/* serve: what `banyan serve`, `gateway`, `worker` and `broker` share. */
#ifndef BY_CLI_SERVE_H
#define BY_CLI_SERVE_H

#include "banyan/serve.h"
#include "cli.h"

/* What flags that several of these commands have say of themselves. */
#define CLI_DIR_HELP                                                                               \
    "directory of the server's socket and state (default: $XDG_RUNTIME_DIR/banyan, else "          \
    "/tmp/banyan-UID)"
#define CLI_POOL_HELP                                                                              \
    "embeddings: mean of the hidden states of all tokens, or that of the last token (default "     \
    "mean)"
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
#define CLI_CHILD_HELP "exit when standard input is closed, for a parent such as `banyan serve`"
#define CLI_KEYS_HELP                                                                              \
    "file with the SHA-256 hashes and names of the API keys that clients need (default: no key "   \
    "is needed)"
#define CLI_TRACES_HELP                                                                            \
    "send OpenTelemetry spans to this collector, e.g. http://127.0.0.1:4318/v1/traces"
#define CLI_INSECURE_HELP "allow an address that other machines reach without --keys"
#define CLI_REDIS_HELP    "use the Redis server at redis://HOST[:PORT] as the broker"

/* A by_serve_log that writes to standard error. */
void cli_serve_log(void *user, const char *line);
/* Lets SIGTERM and SIGINT end the program at once, until a loop watches them: as process 1 of a
 * container it would not hear them at all. */
void cli_serve_end_early(void);
/* The path of the broker's socket in a directory, which is made. Freed with free(). */
by_status cli_serve_socket(char **out, const char *directory, by_error *error);
/* What a gateway or a worker connects to: a copy of `broker` where it is given, else the socket in
 * `directory` (NULL: its default). Freed with free(). */
by_status cli_serve_broker(char **out, const char *broker, const char *directory, by_error *error);
/* Takes the password out of the address of a broker, and out of broker.address in --set (either may
 * be NULL), where a list of processes and the command lines of children would show it; it goes to
 * BANYAN_REDIS_PASSWORD. The texts are changed. */
void cli_hide_password(const char *address, const cli_list *sets);
/* "$XDG_RUNTIME_DIR/banyan", else "/tmp/banyan-UID". Freed with free(). */
char *cli_serve_directory(void);

/* What no flag of a gateway says, the config does (serve_gateway.c). */
void cli_gateway_use_config(by_gateway_options *options, const by_serve_config *config);

/* A model as the command line names it: [NAME=]RUN[+ADAPTER] (serve_models.c). */
typedef struct cli_served {
    char *memory;
    char *path;
    const char *name;
    const char *adapter; /* NULL: none */
    char *settings;      /* what else than the weights decides answers; NULL: nothing */
} cli_served;

/* Freed with cli_served_free. The name is the last part of the adapter's or the run's path where
 * none is given. */
by_status cli_served_parse(cli_served *out, const char *text, by_error *error);
by_status cli_served_settings(cli_served *served, const char *precision, by_error *error);
void cli_served_free(cli_served *served);

#endif
