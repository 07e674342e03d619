/* cli: the command line, one file a command. Parses flags, calls the public API, prints.
 *
 * A command is a cli_command in its own file (its flags, its help text, its function) and one line
 * of the table in main.c. Flags are described in a table from which both parsing (getopt_long) and
 * --help are made. Results go to standard output, tab-clean for pipes or as one JSON line with
 * --json; progress and errors go to standard error. Exit codes tell a supervisor what happened
 * (banyan/exit.h).
 *
 * Never put here: anything a user's C program could want; that belongs in a room with a public
 * header.
 */
#ifndef BY_CLI_CLI_H
#define BY_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/comm.h"
#include "banyan/config.h"
#include "banyan/exit.h"
#include "banyan/infer.h"
#include "banyan/launch.h"
#include "banyan/machine.h"
#include "banyan/passes.h"
#include "banyan/status.h"
#include "banyan/task.h"
#include "banyan/text.h"
#include "banyan/train.h"

/* Those of banyan/exit.h that commands give themselves. */
enum cli_exit {
    CLI_DONE = BY_EXIT_DONE,
    CLI_FAILED = BY_EXIT_FAILED,
    CLI_USAGE = BY_EXIT_CONFIG,
    CLI_STOPPED = BY_EXIT_SAVED,
    CLI_INTERRUPTED = BY_EXIT_INTERRUPTED
};

typedef enum cli_flag_kind {
    CLI_SWITCH,  /* bool */
    CLI_STRING,  /* const char * */
    CLI_INTEGER, /* int64_t */
    CLI_SEED,    /* uint64_t */
    CLI_NUMBER,  /* double */
    CLI_LIST     /* cli_list: the flag may be repeated */
} cli_flag_kind;

#define CLI_LIST_MAX 64
typedef struct cli_list {
    const char *items[CLI_LIST_MAX];
    size_t count;
} cli_list;

typedef struct cli_flag {
    const char *name; /* without dashes: "top-k", or the one letter of "-n" */
    cli_flag_kind kind;
    void *target;      /* of the kind's type; keeps its value when the flag is absent */
    const char *value; /* name of the value in --help, NULL for a switch */
    const char *help;
} cli_flag;

typedef struct cli_command {
    const char *name;
    const char *summary; /* one line in `banyan --help` */
    const char *usage;   /* "banyan train CONFIG [--set KEY=VALUE]... [--resume RUN]" */
    const char *text;    /* what it does, with examples */
    int (*run)(int argc, char **argv);
} cli_command;

extern const cli_command cli_pack, cli_data, cli_train, cli_eval, cli_generate, cli_embed, cli_info,
    cli_plot, cli_runs, cli_watch, cli_bench, cli_profile, cli_predict, cli_checkpoint, cli_launch,
    cli_doctor, cli_chat, cli_export, cli_serve, cli_gateway, cli_worker, cli_broker, cli_compress,
    cli_classify, cli_deploy, cli_logits, cli_drift;

/* Parses flags; positional arguments are moved behind them and returned as *rest, *rest_count.
 * Returns -1 to go on, or the exit code when --help was printed or a flag was wrong. A list of
 * flags ends with a NULL name; --help is always there. */
int cli_parse(const cli_command *command, const cli_flag *flags, int argc, char **argv,
              char ***rest, int *rest_count);
/* "90", "90s", "1.5m", "2h" as seconds. Returns -1 to go on, or an exit code (flag: its name). */
int cli_read_duration(double *seconds, const cli_command *command, const char *flag,
                      const char *text);
/* Prints "banyan NAME: message" and returns the exit code for its status. */
int cli_fail(const cli_command *command, const by_error *error);
/* Prints "banyan NAME: text" and a hint to --help; CLI_USAGE. */
int cli_misuse(const cli_command *command, const char *format, ...) BY_PRINTF(2, 3);

/* Opens and resolves a config file with overrides; `path` may be a run directory, whose resolved
 * config is taken. */
by_status cli_open_config(by_config **out, const char *path, const cli_list *overrides,
                          by_error *error);
/* Opens a config as cli_open_config does, calls `work` with it and closes it; reports an error of
 * either. The exit code. */
int cli_with_config(const cli_command *command, const char *path, const cli_list *overrides,
                    by_status (*work)(void *user, by_config *config, by_error *error), void *user);
/* The directory of a model that `path` means: `path` itself when it holds weights in Hugging Face
 * form, else by_run_find's. Freed with free(). */
by_status cli_find_model(char **out, const char *path, by_error *error);
/* "1h02m", "3m20s", "12s". */
const char *cli_duration(char buffer[32], double seconds);
/* A number as JSON with so many significant digits; "null" when it is not finite, which JSON cannot
 * say. */
const char *cli_json_number(char buffer[32], double value, int digits);
/* A number with so many decimals for people; "-" when it is not finite: there is none. */
const char *cli_number(char buffer[32], double value, int decimals);
/* Of 100 parameters, how many are trained. */
double cli_trained_percent(const by_model_size *size);
/* What the flags --precision, --best, --ema and --adapter say of themselves. */
#define CLI_PRECISIONS     "f32, bf16, fp16, int8, w8a8, fp8 or int4"
#define CLI_PRECISION_HELP "precision of the weights: " CLI_PRECISIONS
#define CLI_BEST_HELP      "use the checkpoint with the lowest validation loss, not the newest one"
#define CLI_EMA_HELP       "use the moving average of the weights (optimizer.ema)"
#define CLI_ADAPTER_HELP                                                                           \
    "add the LoRA adapters in this directory, as PEFT or a run with the section lora writes them"
#define CLI_SET_HELP  "override a key of the config, e.g. train.steps=100; may be repeated"
#define CLI_JSON_HELP "print the result as one JSON line"
/* Opens the model that `path` means: a run, one that holds runs, or a directory in Hugging Face
 * form; ema: with the average of its weights; adapter: directory of adapters that are added, or
 * NULL. *run: its run directory, NULL where there is none, freed with free(). Says on standard
 * error which checkpoints were passed over. */
by_status cli_open_pretrained(by_pretrained **out, char **run, const char *path, bool best,
                              bool ema, const char *adapter, by_error *error);
/* The config of a model whose weights are there: without model.from, where they once came from. */
by_status cli_copy_config(by_config **out, const by_pretrained *model, by_error *error);
/* Whether what these weights are multiplied with becomes integers, too (w8a8): then their values
 * alone do not tell their loss. */
bool cli_has_integer_rows(const by_config *config, const by_weights *weights);
/* by_evaluate of a language model as inference computes it in `precision` (NULL: as by_logits_open
 * chooses). Data in parts is summed up alone. */
by_status cli_evaluate_inference(by_evaluation *out, const by_config *config,
                                 const by_weights *weights, by_task_data *data,
                                 const char *precision, int64_t batches, by_error *error);
/* ",\"valid_loss_NAME\":VALUE" for each part of what is held out. */
void cli_print_parts_json(const by_evaluation *evaluation);
/* ",\"NAME\":VALUE" for each metric that there is. */
void cli_print_metrics_json(const by_evaluation *evaluation);
/* What examples are called in a line of progress: "tok" for tokens. */
const char *cli_rate_unit(const by_task *task);
/* What this machine does in a second, for what memory.budget trades, as far as it was measured
 * before: to measure takes more memory than a run may have. */
by_speeds cli_speeds(const by_config *config);
/* Seconds in which a disk of these figures reads so many bytes and writes them back. */
double cli_disk_seconds(const by_machine *machine, uint64_t bytes);
/* The type that a config computes in. */
by_dtype cli_compute_dtype(const by_config *config);
/* Refuses a --precision that is given (not NULL) and that by_infer_precision does not know: an exit
 * code, or -1 to go on. */
int cli_check_precision(const cli_command *command, const char *precision);
/* The name of a precision (NULL: the config's) whose programs compute in `computes`. */
const char *cli_precision_name(const char *precision, by_dtype computes);
/* Prints s as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void cli_print_json_string(const char *s);
/* The same for `n` bytes. */
void cli_print_json_text(const char *text, size_t n);
/* Bytes of the UTF-8 character at `text` (n >= 1 bytes are there): 1 to 4; 0 when it is cut short
 * by the end; -1 when it is none. */
int cli_utf8_length(const char *text, size_t n);
/* The first character of a text (n bytes, at least 1) as it is written within a JSON string, with a
 * NUL behind it; a byte that is not UTF-8 becomes U+FFFD. Returns the bytes that it has in the
 * text. */
size_t cli_json_character(char piece[8], const char *text, size_t n);

/* Bytes that grow, with a NUL behind them once there are any. {0} is empty; `data` is freed with
 * free(). */
typedef struct cli_buffer {
    char *data;
    size_t length;
    size_t capacity;
} cli_buffer;

by_status cli_buffer_add(cli_buffer *buffer, const char *bytes, size_t n, by_error *error);
/* The same as a JSON string with its quotes. */
by_status cli_buffer_add_json(cli_buffer *buffer, const char *text, size_t n, by_error *error);

/* Set when SIGINT, SIGTERM or SIGHUP (unless ignored, as under nohup) arrived after
 * cli_catch_signals. Another one, half a second later or more, ends the process at once: what comes
 * sooner is the same request, sent to the process and to its group. */
/* In a rank of a supervised job, also when the supervisor asks for it. */
bool cli_stop_requested(void *unused);
void cli_catch_signals(void);
/* Forgets a signal that was answered, so that the next one is a first one again. */
void cli_forget_stop(void);
/* In a process that a supervisor started (banyan/launch.h): tells it that this rank is there.
 * Returns -1 to go on, or an exit code. */
int cli_open_heartbeat(void);
/* Tells the supervisor the exit code and why, if cli_fail said why. Returns the code. */
int cli_close_heartbeat(int code);
/* Tells the supervisor of the communicator's collectives, until NULL is given before it closes. */
void cli_watch_comm(by_comm *comm);
/* What cli_close_heartbeat tells as the reason. */
void cli_keep_failure(const char *message);
/* NULL without a supervisor. */
by_heartbeat *cli_heartbeat(void);
/* Rank and number of ranks as mpirun or srun told this process; 0 of 1 without them. */
void cli_find_rank(int *rank, int *ranks);
/* Opens /dev/null in the place of a standard stream that is closed: the next file opened would get
 * its number and whatever is printed. */
void cli_guard_streams(void);
/* Writes out what is buffered of standard output. When that, or anything before it, failed: says so
 * and makes CLI_DONE CLI_FAILED. */
int cli_finish_output(int code);

#endif
