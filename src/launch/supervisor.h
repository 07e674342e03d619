/* supervisor: starts the ranks of a job, watches them and restarts them (banyan/launch.h).
 *
 * heartbeat.c is the rank's side; the rest is the supervisor's. message.c defines the messages
 * between them; watch.c tracks the ranks and finds the one at fault; policy.c decides on restarts;
 * launch_line.c, host_file.c and network.c build the command that starts the ranks; supervise.c is
 * the loop.
 *
 * Types: by__launch_message, a line between rank and supervisor; by__launch_watch, the connections
 * and states of all ranks; by__launch_fault, what ended a start of the job; by__launch_history and
 * by__launch_decision, input and output of the policy. The supervisor owns the watch and all
 * processes that it started.
 *
 * Never put here: anything that knows what a rank computes.
 * */
#ifndef BY_LAUNCH_SUPERVISOR_H
#define BY_LAUNCH_SUPERVISOR_H

#include <limits.h>
#include <sys/types.h>

#include "banyan/exit.h"
#include "banyan/launch.h"
#include "base/base.h"

/* ---- message.c: lines of tab-separated fields ---- */

#define BY__SUPERVISOR   "BANYAN_SUPERVISOR"
#define BY__TOKEN        33 /* 32 hex digits known to the ranks of the job only */
#define BY__ADDRESSES    8
#define BY__MESSAGE_LINE (PATH_MAX + 256)
#define BY__MESSAGE_TEXT 500

typedef enum by__launch_message_kind {
    BY__MESSAGE_HELLO = 0, /* token, rank, ranks, pid, host */
    BY__MESSAGE_BEAT,      /* count, step, number, stopping, phase, text: the last collective */
    BY__MESSAGE_RUN,       /* path */
    BY__MESSAGE_SAVED,     /* step */
    BY__MESSAGE_END        /* code, malformed, text */
} by__launch_message_kind;

typedef struct by__launch_message {
    by__launch_message_kind kind;
    char token[BY__TOKEN];
    int rank;
    int ranks;
    long pid;
    char host[BY_HOST_NAME];
    uint64_t count;  /* increased by any progress */
    uint64_t number; /* of the last collective */
    int64_t step;
    bool stopping;
    int code;
    bool malformed; /* BY_EFORMAT */
    char phase[32];
    char text[BY__MESSAGE_TEXT];
    char path[PATH_MAX];
} by__launch_message;

/* Formats a message as a line that ends with "\n"; returns its length. Tabs and line ends in texts
 * become spaces. */
size_t by__launch_message_format(char out[BY__MESSAGE_LINE], const by__launch_message *message);
/* Parses a line without its "\n". Returns false if it is malformed. */
bool by__launch_message_parse(by__launch_message *out, const char *line, size_t length);

/* The address of a rank's supervisor: the value of BANYAN_SUPERVISOR. */
typedef struct by__launch_contact {
    char token[BY__TOKEN];
    int port;
    int silence_ms;
    int grace_ms;
    char addresses[BY__ADDRESSES][48];
    int address_count;
} by__launch_contact;

size_t by__launch_contact_format(char *out, size_t size, const by__launch_contact *contact);
bool by__launch_contact_parse(by__launch_contact *out, const char *text);

/* ---- host_file.c ---- */

by_status by__launch_hosts_parse(by_host_list *out, const char *path, const char *text,
                                 size_t length, by_error *error);

/* ---- network.c ---- */

/* Lists the IPv4 addresses of this host, the loopback one only if `loopback`; returns their
 * number. */
int by__launch_own_addresses(char out[BY__ADDRESSES][48], bool loopback);
/* Returns true if a name refers to this host. */
bool by__launch_host_is_here(const char *name);
/* The network of an interface of this host that contains all hosts, "10.0.0.0/24"; "": none. */
void by__launch_common_network(char out[64], const by_host_list *hosts);

/* ---- watch.c ---- */

typedef enum by__launch_rank_state {
    BY__RANK_ABSENT = 0, /* not connected yet */
    BY__RANK_RUNNING,
    BY__RANK_ENDED, /* it reported its end */
    BY__RANK_LOST   /* its connection was closed without a report */
} by__launch_rank_state;

typedef struct by__launch_rank {
    by__launch_rank_state state;
    int code;
    long pid;
    char host[BY_HOST_NAME];
    uint64_t count;
    uint64_t number;
    int64_t step;
    bool stopping;
    char phase[32];
    char text[BY__MESSAGE_TEXT]; /* last collective; or the reason for its end */
    double last_message_at;      /* time of the last message, by__now */
    double advanced;             /* time when `count` last changed */
} by__launch_rank;

#define BY__CRASH 128 /* a rank ended without giving a reason */

/* The first cause of the end of a start of the job. */
typedef struct by__launch_fault {
    int code;       /* by_exit or BY__CRASH; 0: none */
    bool malformed; /* a file that was read */
    int rank;       /* -1: no particular rank */
    char host[BY_HOST_NAME];
    char text[1024];
} by__launch_fault;

typedef struct by__launch_connection by__launch_connection;

typedef struct by__launch_watch {
    int listener;
    by__launch_contact contact;
    by__launch_rank *ranks;
    int count;
    by__launch_connection *connections;
    size_t connection_count;
    by__launch_fault fault;
    char run[PATH_MAX]; /* "": not known yet; kept across restarts */
    int64_t saved;      /* step of the newest checkpoint since the watch was armed; -1: none */
    bool stopping; /* all ranks are asked to save and end, including those that connect later */
    double began;
} by__launch_watch;

/* Starts to listen. loopback: all ranks are on this host. */
by_status by__launch_watch_open(by__launch_watch *watch, bool loopback, double silence,
                                double grace, by_error *error);
void by__launch_watch_close(by__launch_watch *watch);
/* Resets the watch for a new start with `ranks` ranks. */
by_status by__launch_watch_reset(by__launch_watch *watch, int ranks, by_error *error);
/* Handles messages of ranks for at most `seconds`; returns earlier when a signal arrives. */
void by__launch_watch_receive(by__launch_watch *watch, double seconds);
/* Asks all ranks to save and end. */
void by__launch_watch_stop(by__launch_watch *watch);
/* Sets the fault if a rank is silent, makes no progress, or has never connected. */
void by__launch_watch_check(by__launch_watch *watch, double now, double timeout, double silence);
/* The job does not end by itself: sets the fault, if there is none yet, to a rank that is still
 * running. */
void by__launch_watch_give_up(by__launch_watch *watch);
/* The first rank that ended because of another one; -1: none. */
int by__launch_watch_peer(const by__launch_watch *watch);
/* Number of ranks in a state. */
int by__launch_watch_number(const by__launch_watch *watch, by__launch_rank_state state);

/* ---- policy.c ---- */

typedef struct by__launch_policy {
    int max_restarts;
    int host_faults;
    double back_off;
} by__launch_policy;

#define BY__SAME_CHECKPOINT 3 /* failures from one checkpoint before an older one is tried */
#define BY__BACK_OFF_MAX    300.0

/* History over all starts. Initially {.saved = -1}. */
typedef struct by__launch_history {
    int64_t saved; /* step of the newest checkpoint of the job */
    int in_a_row;  /* consecutive restarts without a newer one */
    /* Failures since the last start that wrote one or went back to an older one. */
    int same_checkpoint;
} by__launch_history;

typedef struct by__launch_decision {
    bool restart;
    bool older;   /* the newest checkpoint is set aside first */
    double delay; /* seconds before the restart */
    char why[200];
} by__launch_decision;

/* Decides what follows a start that ended with `code` (by_exit, not 0) and whose newest checkpoint
 * was `saved` (-1: none). */
by__launch_decision by__launch_policy_decide(by__launch_history *history,
                                             const by__launch_policy *policy, int code,
                                             int64_t saved);

#endif
