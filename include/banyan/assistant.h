/* From text files and conversations to an assistant, as a sequence of ordinary runs in one
 * directory.
 *
 *   pretrain   a tokenizer and a base model, of the text
 *   chat       the base model, tuned on conversations
 *   prefer     that one, trained on preferences; only where there are any
 *   reinforce  that one, trained on rewards; only where there are prompts
 *   report     loss, suites of questions, samples, time and energy: report.md, report.html
 *
 * DIR/assistant.yaml names the data. Each part has a config, DIR/PART.yaml, that `banyan train`
 * takes too, and a run, DIR/PART. A part is done again if its config or what that is made of has
 * changed (data, settings, the part before it), and otherwise goes on where it stood. */
#ifndef BANYAN_ASSISTANT_H
#define BANYAN_ASSISTANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/config.h"
#include "banyan/status.h"
#include "banyan/train_events.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A part that is trained. */
typedef struct by_assistant_part_config {
    char *config;   /* file with keys of its config that are to be other than chosen; default "" */
    double minutes; /* default -1: its share of `minutes` */
} by_assistant_part_config;

/* assistant.yaml; paths are relative to the working directory. */
typedef struct by_assistant_config {
    by_string_list text;          /* files or directories that the base model learns; required */
    by_string_list conversations; /* files that task.kind chat reads; required */
    by_string_list preferences;   /* files that task.kind preference reads; default: none */
    by_string_list prompts;       /* files that task.kind reinforce reads; default: none */
    char *reward;                 /* task.reward for them; default "auto": chosen */
    by_string_list suites;        /* files that by_suite_open reads; default: none */
    by_string_list questions;     /* of the report's samples; default: held-out ones */
    /* Of pretrain and chat together; prefer takes 15 % and reinforce 30 % of them on top; default
     * 10. */
    double minutes;
    double watts; /* that the machine draws; default 0: unknown */
    by_assistant_part_config pretrain, chat, prefer, reinforce;
    by_config *config; /* owns all of this */
} by_assistant_config;

/* Reads a file. Returns BY_ECONFIG with file, line, key and value, BY_EIO. */
BY_API by_status by_assistant_config_open(by_assistant_config **out, const char *path,
                                          by_error *error);
BY_API void by_assistant_config_close(by_assistant_config **config);
/* Writes DIR/assistant.yaml with these values, and makes DIR where it is missing. Returns BY_ESTATE
 * if there is one already. */
BY_API by_status by_assistant_create(const char *directory, const by_assistant_config *config,
                                     by_error *error);

typedef struct by_assistant by_assistant;

/* How far a part is. */
typedef enum by_assistant_state {
    BY_ASSISTANT_WAITS = 0, /* nothing of it is done that is still good */
    BY_ASSISTANT_BEGAN,     /* its run goes on from a checkpoint */
    BY_ASSISTANT_DONE
} by_assistant_state;

/* Texts belong to the assistant and are valid until its next call. */
typedef struct by_assistant_part {
    const char *name;
    const char *help;   /* what it makes, in one line */
    double minutes;     /* that it is expected to take */
    const char *config; /* file */
    const char *run;    /* directory; NULL: there is none yet */
    by_assistant_state state;
    int64_t step; /* of its run */
    int64_t steps;
    double seconds; /* that were spent on it */
} by_assistant_part;

/* Reads DIR/assistant.yaml and what is there already. Returns BY_ECONFIG, BY_EIO if a file of data
 * cannot be read, BY_EFORMAT if DIR/state.json is damaged. */
BY_API by_status by_assistant_open(by_assistant **out, const char *directory, by_error *error);
BY_API void by_assistant_close(by_assistant **assistant);
/* The parts that are trained, in order. */
BY_API size_t by_assistant_parts(const by_assistant *assistant);
BY_API by_assistant_part by_assistant_part_at(const by_assistant *assistant, size_t index);

/* What by_assistant_run reports beside the events of its runs. */
typedef enum by_assistant_event_kind {
    BY_ASSISTANT_KEPT = 0, /* a part is done already */
    BY_ASSISTANT_CHOOSES,  /* measures the machine for the config of a part */
    BY_ASSISTANT_CHOSE,    /* the config is written; `text`: why it is so, lines, or NULL */
    BY_ASSISTANT_TRAINS,   /* begins or goes on with its run */
    BY_ASSISTANT_TRAINED,
    BY_ASSISTANT_SCORES,  /* runs the suite `text` on a part's model: `done` of `items` */
    BY_ASSISTANT_REPORTED /* report.md and report.html are written; `text`: their path without
                             the ending */
} by_assistant_event_kind;

typedef struct by_assistant_event {
    by_assistant_event_kind kind;
    by_assistant_part part;
    const char *text;
    uint64_t done;
    uint64_t items;
} by_assistant_event;

typedef struct by_assistant_options {
    /* Events of runs, as in by_train_options; may be NULL. */
    void (*train_event)(void *user, const by_train_event *event);
    void (*event)(void *user, const by_assistant_event *event);
    /* Polled as in by_train_options; returning true saves and stops with BY_ESTOPPED. */
    bool (*stop)(void *user);
    void *user;
} by_assistant_options;

/* Does what is not done yet: chooses and writes the config of each part (pretrain by the dial,
 * banyan/plan.h, unless it has one; the others by measured steps), trains it, runs the suites, and
 * writes the report. After an error, a kill or a stop, the next call goes on. Returns errors of
 * by_dial_turn, by_train and by_suite_run with the part in front; BY_ESTOPPED. */
BY_API by_status by_assistant_run(by_assistant *assistant, const by_assistant_options *options,
                                  by_error *error);

#ifdef __cplusplus
}
#endif
#endif
