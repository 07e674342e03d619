/* cli: the command line, one file a command. Commands parse flags, call the public API and print.
 *
 * Types: a cli_command is a command in its own file (its flags, help text and function) with a line
 * in the table of main.c. A cli_flag describes a flag; tables of them drive both the parser
 * (getopt_long) and --help.
 *
 * Who owns what: a command opens and closes the handles that it uses, and returns an exit code that
 * tells a supervisor what happened (banyan/exit.h). The only global state is what a signal handler
 * or the supervisor of the process needs (common.c, rank.c).
 *
 * Output: results go to standard output, as tab-separated text for pipes or, with --json, as one
 * JSON line; progress and errors go to standard error.
 *
 * Never put here: anything that a user's C program could need, which belongs in a module with a
 * public header; includes of private headers of other modules.
 */
#ifndef BY_CLI_BASE_CLI_H
#define BY_CLI_BASE_CLI_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "banyan/build.h"
#include "banyan/comm.h"
#include "banyan/config.h"
#include "banyan/executable.h"
#include "banyan/exit.h"
#include "banyan/infer.h"
#include "banyan/launch.h"
#include "banyan/machine.h"
#include "banyan/passes.h"
#include "banyan/status.h"
#include "banyan/task.h"
#include "banyan/text.h"
#include "banyan/train.h"

/* The exit codes of banyan/exit.h that commands return themselves. */
enum cli_exit {
    CLI_DONE = BY_EXIT_DONE,
    CLI_FAILED = BY_EXIT_FAILED,
    CLI_USAGE = BY_EXIT_CONFIG,
    CLI_STOPPED = BY_EXIT_SAVED,
    CLI_INTERRUPTED = BY_EXIT_INTERRUPTED
};

typedef enum cli_value_type {
    CLI_TYPE_SWITCH,  /* bool */
    CLI_TYPE_STRING,  /* const char * */
    CLI_TYPE_INTEGER, /* int64_t */
    CLI_TYPE_SEED,    /* uint64_t */
    CLI_TYPE_NUMBER,  /* double, always finite */
    CLI_TYPE_TIME,    /* double: seconds */
    CLI_TYPE_INPUT,   /* const char *: a file or directory that exists */
    CLI_TYPE_STREAM,  /* const char *: the same, or - for standard input */
    CLI_TYPE_LIST,    /* cli_list: the flag may be repeated */
    CLI_TYPE_INPUTS,  /* the same, of files or directories that exist */
    CLI_TYPE_DEVICE,  /* cli_list of settings: device=VALUE is added */
    CLI_TYPE_KEY      /* cli_settings: a value for a key of a server's configuration */
} cli_value_type;

typedef struct cli_flag_kind {
    cli_value_type type;
    double least; /* range of an integer or a number, which may be infinite */
    double most;
    bool above;      /* the range excludes `least` */
    const char *key; /* CLI_TYPE_KEY: "worker.threads" */
} cli_flag_kind;

/* What a row of a table of flags says of its value: its type and its range. */
#define CLI_SWITCH                                                                                 \
    {                                                                                              \
        .type = CLI_TYPE_SWITCH                                                                    \
    }
#define CLI_STRING                                                                                 \
    {                                                                                              \
        .type = CLI_TYPE_STRING                                                                    \
    }
#define CLI_INPUT                                                                                  \
    {                                                                                              \
        .type = CLI_TYPE_INPUT                                                                     \
    }
#define CLI_STREAM                                                                                 \
    {                                                                                              \
        .type = CLI_TYPE_STREAM                                                                    \
    }
#define CLI_LIST                                                                                   \
    {                                                                                              \
        .type = CLI_TYPE_LIST                                                                      \
    }
#define CLI_INPUTS                                                                                 \
    {                                                                                              \
        .type = CLI_TYPE_INPUTS                                                                    \
    }
#define CLI_DEVICE                                                                                 \
    {                                                                                              \
        .type = CLI_TYPE_DEVICE                                                                    \
    }
#define CLI_SEED                                                                                   \
    {                                                                                              \
        .type = CLI_TYPE_SEED                                                                      \
    }
#define CLI_INTEGER_IN(first, last)                                                                \
    {                                                                                              \
        .type = CLI_TYPE_INTEGER, .least = (first), .most = (last)                                 \
    }
#define CLI_INTEGER_FROM(first) CLI_INTEGER_IN(first, INFINITY)
#define CLI_THREADS             CLI_INTEGER_IN(0, 4096) /* 0: the default */
#define CLI_NUMBER_IN(first, last)                                                                 \
    {                                                                                              \
        .type = CLI_TYPE_NUMBER, .least = (first), .most = (last)                                  \
    }
#define CLI_NUMBER_ABOVE(bound, last)                                                              \
    {                                                                                              \
        .type = CLI_TYPE_NUMBER, .least = (bound), .most = (last), .above = true                   \
    }
#define CLI_TIME_IN(first, last)                                                                   \
    {                                                                                              \
        .type = CLI_TYPE_TIME, .least = (first), .most = (last)                                    \
    }
#define CLI_TIME_ABOVE(bound, last)                                                                \
    {                                                                                              \
        .type = CLI_TYPE_TIME, .least = (bound), .most = (last), .above = true                     \
    }
#define CLI_NUMBER CLI_NUMBER_IN(-INFINITY, INFINITY)
#define CLI_KEY(path)                                                                              \
    {                                                                                              \
        .type = CLI_TYPE_KEY, .key = (path)                                                        \
    }

#define CLI_LIST_MAX 64
typedef struct cli_list {
    const char *items[CLI_LIST_MAX];
    size_t count;
    char device[64]; /* the item of a flag --device, "device=VALUE"; "": there is none */
} cli_list;

/* Values of flags that stand for keys of a server's configuration, whose schema checks them. */
#define CLI_SETTINGS_MAX 32
typedef struct cli_settings {
    struct cli_setting {
        const char *flag; /* without dashes */
        const char *key;
        const char *value;
    } items[CLI_SETTINGS_MAX];
    size_t count;
} cli_settings;

typedef struct cli_flag {
    const char *name; /* without dashes: "top-k", or one letter for "-n" */
    cli_flag_kind kind;
    void *target;      /* of the kind's type; left unchanged if the flag is absent or refused */
    const char *value; /* name of the value in --help; NULL for a switch */
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
    cli_classify, cli_deploy, cli_logits, cli_drift, cli_backtest, cli_plan, cli_assistant;

/* Parses flags, after which positional arguments are in *rest, *rest_count. The list of flags ends
 * with a NULL name; --help is added. Returns -1 to continue, or the exit code if --help was printed
 * or a flag was wrong. */
int cli_parse(const cli_command *command, const cli_flag *flags, int argc, char **argv,
              char ***rest, int *rest_count);
/* Refuses an argument that names no file or directory: a wrong one, like a wrong flag. Returns -1
 * to continue, or an exit code. */
int cli_check_input(const cli_command *command, const char *path);
/* Says on standard error what the arguments of a command that has failed probably meant: a run
 * named without its directory, settings without their flag (hints.c). argv[0] is the command. */
void cli_hint(int argc, char **argv);
/* Finds the flag that is meant by the unknown name of one (flag_names.c): a suggestion, "did you
 * mean '--listen'?"; false if none is known to be meant. */
bool cli_suggest_flag(char out[400], const cli_command *command, const cli_flag *flags,
                      const char *name);
/* Prints "banyan NAME: message" and returns the exit code for the error's status. */
int cli_fail(const cli_command *command, const by_error *error);
/* Prints "banyan NAME: text" and a hint at --help. Returns CLI_USAGE. */
int cli_misuse(const cli_command *command, const char *format, ...) BY_PRINTF(2, 3);

/* Checks each of `count` arguments. Likewise. */
int cli_check_inputs(const cli_command *command, char **paths, int count);
/* Standard input, for what is read from a file (spool.c). */
typedef struct cli_spool {
    const char *path; /* of the file to read; as it was given unless that was "-" */
    char file[4096];  /* "": none was made */
} cli_spool;
/* Copies standard input to a temporary file whose name ends as its format asks for, if `path` is
 * "-". */
by_status cli_spool_open(cli_spool *out, const char *path, by_error *error);
/* Removes it. */
void cli_spool_close(cli_spool *spool);

/* Opens and resolves a config file with overrides. If `path` is a run directory, its resolved
 * config is used. */
by_status cli_open_config(by_config **out, const char *path, const cli_list *overrides,
                          by_error *error);
/* Opens a config like cli_open_config, calls `work` with it and closes it. Reports an error of
 * either, and returns the exit code. */
int cli_with_config(const cli_command *command, const char *path, const cli_list *overrides,
                    by_status (*work)(void *user, by_config *config, by_error *error), void *user);
/* Finds the directory of a model: `path` itself if it contains weights in Hugging Face format, else
 * the result of by_run_find. Freed with free(). */
by_status cli_find_model(char **out, const char *path, by_error *error);
/* Tells, on standard error, which file a command has written beside what it prints. NULL: none. */
void cli_tell_written(const char *path);
/* Writes a picture of a model of a run, a file in .png, for TensorBoard (--tensorboard) at the step
 * of its checkpoint. run: its directory; NULL: there is none, which is an error. */
by_status cli_track_picture(const by_pretrained *model, const char *run, const char *tag,
                            const char *path, by_error *error);
/* Has what is printed to standard output go to a file from now on; NULL: leaves it. BY_EIO. */
by_status cli_redirect(const char *path, by_error *error);
/* Returns the exit code of a command of which `failed` of `all` texts have an error in their lines
 * instead of a result, and says so. */
int cli_tell_failed(const cli_command *command, size_t failed, size_t all);
/* Like cli_check_input for what --data names: "-" and NULL are good, and so are two files,
 * "IMAGES,LABELS". */
int cli_check_data(const cli_command *command, const char *data);
/* Formats a duration: "1h02m", "3m20s", "12s". */
const char *cli_duration(char buffer[32], double seconds);
/* Formats a number as JSON with this many significant digits, or "null" if it is not finite, which
 * JSON cannot express. */
const char *cli_json_number(char buffer[32], double value, int digits);
/* The text of a number, with at most so many digits if it has a fraction: in tables for people. */
#define CLI_SHORT_DIGITS 7
const char *cli_short_number(char buffer[32], const char *text, int digits);
/* Formats a number with this many decimals for people, or "-" if it is not finite. */
const char *cli_number(char buffer[32], double value, int decimals);
/* "87.3 %" of a measured peak, followed by `unit`: "87.3%" with "%". One above 1 is ">100 %": no
 * program is faster than the machine, so the peak was measured too low. */
const char *cli_share(char buffer[32], double share, int decimals, const char *unit);
/* Milliseconds: 12.3, 1.234, 0.0012. */
const char *cli_ms(char buffer[32], double ms);
/* Returns the percentage of parameters that are trained. */
double cli_trained_percent(const by_model_size *size);
/* What the flags --precision, --best, --ema and --adapter say of themselves. */
#define CLI_PRECISIONS "f32, bf16, fp16, int8, w8a8, fp8 or int4"
/* Of commands that take a run or a directory. */
#define CLI_MODEL_PRECISION_HELP                                                                   \
    "precision of the weights: " CLI_PRECISIONS                                                    \
    " (default: that of the run or of its codes; for other directories and files bf16 if all "     \
    "matrices are stored so, otherwise f32)"
#define CLI_DEVICE_HELP "what computes: cpu, cuda, or auto for the best device (default)"
#define CLI_BEST_HELP   "use the checkpoint with the lowest validation loss, not the newest one"
#define CLI_EMA_HELP    "use the moving average of the weights (optimizer.ema)"
#define CLI_KV_HELP     "KV cache with 8-bit integers (default: in the precision of the model)"
#define CLI_ADAPTER_HELP                                                                           \
    "add the LoRA adapters in this directory, as PEFT or a run with the section lora writes them"
#define CLI_SET_HELP  "override a key of the config, e.g. train.steps=100; may be repeated"
#define CLI_JSON_HELP "print the result as one JSON line"
/* Opens the model that `path` means: a run, one that holds runs, or a directory in Hugging Face
 * form; device: where it computes, NULL: the best one; ema: with the average of its weights;
 * adapter: directory of adapters that are added, or NULL. Says on standard error which run of
 * several is used, and which checkpoints were passed over. */
by_status cli_open_pretrained(by_pretrained **out, const char *path, const char *device, bool best,
                              bool ema, const char *adapter, by_error *error);
/* Refuses the run of a reward model, with a way to its rewards, where a model that writes texts is
 * wanted. */
by_status cli_check_writes(const by_pretrained *model, by_error *error);
/* Opens a model like cli_open_pretrained, calls `work` with it and its run directory (NULL where
 * there is none), and closes it; signals ask it to stop (cli_stop_requested). Reports an error of
 * either, and returns the exit code. */
int cli_with_pretrained(const cli_command *command, const char *path, const char *device, bool best,
                        bool ema, const char *adapter,
                        by_status (*work)(void *user, const by_pretrained *model, const char *run,
                                          by_error *error),
                        void *user);
/* Copies the config of a model for use with its present weights: without model.from, their
 * origin. */
by_status cli_copy_config(by_config **out, const by_pretrained *model, by_error *error);
/* Opens data for the weights of a model (task_data.c): `request` says what for, and the path; a
 * path of "-" is read into the spool, which the caller closes even if this fails, unless the task
 * reads text. Notes are printed to standard error. run: whose newest checkpoint these are, or NULL.
 * The config is not completed yet. */
by_status cli_open_task_data(by_task_data **out, cli_spool *spool, by_config *config,
                             const by_pretrained *model, const char *run,
                             const by_task_request *request, by_error *error);
/* Returns true if the inputs of products with these weights are rounded to integers too (w8a8), so
 * that the loss cannot be computed from the weights' values alone. */
bool cli_has_integer_rows(const by_config *config, const by_weights *weights);
/* Returns BY_EARG if by_evaluate cannot be replaced by cli_evaluate_inference: the model does not
 * read tokens, or documents are masked. `what` begins the message. */
by_status cli_check_inference(const by_config *config, const char *what, by_error *error);
/* Evaluates up to `batches` micro-batches (-1: all): with by_evaluate or, if `precision` or `kv`
 * ask for it, or the weights do, with the kernels of inference. */
by_status cli_evaluate(by_evaluation *out, const by_config *config, const by_weights *weights,
                       by_task_data *data, const char *precision, const char *kv, int64_t batches,
                       by_error *error);
/* by_evaluate of a language model with the kernels of inference, in `precision` (NULL: chosen by
 * by_logits_open). kv not NULL: as the engine generates, with such a KV cache. Data in several
 * parts only gives a total. */
by_status cli_evaluate_inference(by_evaluation *out, const by_config *config,
                                 const by_weights *weights, by_task_data *data,
                                 const char *precision, const char *kv, int64_t batches,
                                 by_error *error);
typedef struct cli_losses {
    double sum;
    double weight; /* of the targets */
    uint64_t targets;
} cli_losses;
/* Adds the losses of up to `batches` batches of the loader (-1: of a pass) to *out, as the engine
 * generates (eval_engine.c). */
by_status cli_sum_engine_losses(cli_losses *out, const by_config *config, const by_weights *weights,
                                by_loader *loader, const char *precision, const char *kv,
                                int64_t batches, by_error *error);
/* Prints ",\"valid_loss_NAME\":VALUE" for each part of the held-out data. */
void cli_print_parts_json(const by_evaluation *evaluation);
/* Prints ",\"NAME\":VALUE" for each available metric. */
void cli_print_metrics_json(const by_evaluation *evaluation);
/* Returns the name of a class, or its number as text where it has none. */
const char *cli_class_name(char text[32], const by_task_kept *kept, int64_t number);
/* Returns the unit of examples in progress lines: "tok" for tokens. */
const char *cli_rate_unit(const by_task *task);
/* Returns this machine's speeds for the trade-offs of memory.budget, as far as they were measured
 * earlier. Nothing is measured here, because measuring may need more memory than the run has. */
by_speeds cli_speeds(const by_config *config);
/* Returns the seconds in which a disk with these figures reads and writes back this many bytes. */
double cli_disk_seconds(const by_machine *machine, uint64_t bytes);
/* Returns the dtype that a config computes in. */
by_dtype cli_compute_dtype(const by_config *config);
/* Refuses a --precision (NULL: not given) that by_infer_precision does not know. Returns an exit
 * code, or -1 to continue. */
int cli_check_precision(const cli_command *command, const char *precision);
/* Finds a way of --pool by its name: mean, last or first. */
bool cli_find_pool(by_pooling *out, const char *pool);
/* The same; refuses a --pool that is none (NULL: not given, which sets nothing). Likewise. */
int cli_check_pool(const cli_command *command, by_pooling *out, const char *pool);
/* Returns the name of a precision (NULL: the config's) whose programs compute in `computes`. */
const char *cli_precision_name(const char *precision, by_dtype computes);
/* Prints text that came from a file or a model, with backslashes and control characters escaped:
 * it can neither move the cursor nor begin a line or a column of its own. */
void cli_print_cell(const char *text);
/* The same, to a stream. */
void cli_put_cell(FILE *out, const char *text);
/* Prints lines of such text to a stream: line feeds and tabs are kept. */
void cli_print_lines(FILE *out, const char *text);
/* Prints s as a quoted JSON string, as by_string_json. */
void cli_print_json_string(const char *s);
/* Prints a line of the optional parts that this program was built with, or without; none if there
 * are none. */
void cli_print_build_parts(const char *title, bool built);
/* The same for `n` bytes. */
void cli_print_json_text(const char *text, size_t n);
/* Returns true if SIGINT, SIGTERM or SIGHUP (unless ignored, as under nohup) arrived after
 * cli_catch_signals. A further signal half a second or more later ends the process at once; earlier
 * ones count as the same request, sent to the process and to its group. */
/* In a rank of a supervised job, also returns true if the supervisor requests it. */
bool cli_stop_requested(void *unused);
void cli_catch_signals(void);
/* Forgets a signal that was handled, so that the next one is treated as the first. */
void cli_clear_stop(void);
/* In a process started by a supervisor (banyan/launch.h), reports that this rank is running.
 * Returns -1 to continue, or an exit code. */
int cli_open_heartbeat(void);
/* Reports the exit code, and the reason given to cli_fail, to the supervisor. Returns the code. */
int cli_close_heartbeat(int code);
/* Reports the communicator's collectives to the supervisor. Call with NULL before closing it. */
void cli_watch_comm(by_comm *comm);
/* Sets the reason that cli_close_heartbeat reports. */
void cli_record_failure(const by_error *error);
/* Returns NULL if there is no supervisor. */
by_heartbeat *cli_heartbeat(void);
/* Finds rank and number of ranks as set by mpirun or srun; 0 of 1 without them. */
void cli_find_rank(int *rank, int *ranks);
/* Opens /dev/null in place of closed standard streams. Otherwise the next opened file would get
 * such a stream's descriptor, and output would be written into it. */
void cli_guard_streams(void);
/* Flushes standard output. If this or any earlier output failed, reports that and turns CLI_DONE
 * into CLI_FAILED. */
int cli_finish_output(int code);

#endif
