/* serve: what `banyan serve`, `gateway`, `worker` and `broker` share. */
#ifndef BY_CLI_SERVE_H
#define BY_CLI_SERVE_H

#include "banyan/serve.h"
#include "cli.h"

/* A by_serve_log that writes to standard error. */
void cli_serve_log(void *user, const char *line);
/* The path of the broker's socket in a directory, which is made. Freed with free(). */
by_status cli_serve_socket(char **out, const char *directory, by_error *error);
/* What a gateway or a worker connects to: a copy of `broker` where it is given, else the socket in
 * `directory` (NULL: its default). Freed with free(). */
by_status cli_serve_broker(char **out, const char *broker, const char *directory, by_error *error);
/* "$XDG_RUNTIME_DIR/banyan", else "/tmp/banyan-UID". Freed with free(). */
char *cli_serve_directory(void);

#endif
