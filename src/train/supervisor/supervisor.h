/* supervisor: how many ranks of one job are started, watched and started again (banyan/launch.h).
 *
 * heartbeat.c is the side of a rank; the rest is the supervisor's. message.c is what they say to
 * each other; watch.c knows the ranks and finds the one at fault; process.c starts and ends
 * processes; policy.c decides what follows; launch_line.c, host_file.c and network.c make the line
 * that starts the ranks; supervise.c is the loop. Nothing here knows what a rank computes.
 */
#ifndef BY_TRAIN_SUPERVISOR_H
#define BY_TRAIN_SUPERVISOR_H

#include <limits.h>
#include <sys/types.h>

#include "banyan/exit.h"
#include "banyan/launch.h"
#include "base/base.h"

/* ---- message.c: lines of fields with tabs between them ---- */

#define BY__SUPERVISOR   "BANYAN_SUPERVISOR"
#define BY__TOKEN        33 /* 32 hex digits that only the ranks of the job know */
#define BY__ADDRESSES    8
#define BY__MESSAGE_LINE (PATH_MAX + 256)
#define BY__MESSAGE_TEXT 500

typedef enum by__message_kind {
    BY__MESSAGE_HELLO = 0, /* token, rank, ranks, pid, host */
    BY__MESSAGE_BEAT,      /* count, step, number, stopping, phase, text: the last collective */
    BY__MESSAGE_RUN,       /* path */
    BY__MESSAGE_SAVED,     /* step */
    BY__MESSAGE_END        /* code, text */
} by__message_kind;

typedef struct by__message {
    by__message_kind kind;
    char token[BY__TOKEN];
    int rank;
    int ranks;
    long pid;
    char host[BY_HOST_NAME];
    uint64_t count;  /* of anything that is progress */
    uint64_t number; /* of the last collective */
    int64_t step;
    bool stopping;
    int code;
    char phase[32];
    char text[BY__MESSAGE_TEXT];
    char path[PATH_MAX];
} by__message;

/* The line of a message with its "\n"; its length. Tabs and line ends in texts become spaces. */
size_t by__message_format(char out[BY__MESSAGE_LINE], const by__message *message);
/* Reads a line without its "\n". false: it is none. */
bool by__message_parse(by__message *out, const char *line, size_t length);

/* How a rank reaches its supervisor: the value of BANYAN_SUPERVISOR. */
typedef struct by__contact {
    char token[BY__TOKEN];
    int port;
    int silence_ms;
    int grace_ms;
    char addresses[BY__ADDRESSES][48];
    int address_count;
} by__contact;

size_t by__contact_format(char *out, size_t size, const by__contact *contact);
bool by__contact_parse(by__contact *out, const char *text);

/* ---- host_file.c ---- */

by_status by__hosts_parse(by_host_list *out, const char *path, const char *text, size_t length,
                          by_error *error);

/* ---- network.c ---- */

/* IPv4 addresses of this host; the loopback one only where `loopback`. Their number. */
int by__own_addresses(char out[BY__ADDRESSES][48], bool loopback);
/* Whether a name means this host. */
bool by__host_is_here(const char *name);
/* The network of an interface of this host that all hosts are in, "10.0.0.0/24"; "": none. */
void by__common_network(char out[64], const by_host_list *hosts);

/* ---- process.c ---- */

/* Starts a program (found by PATH) in a process group of its own, with /dev/null as its standard
 * input and environment + `extra` ("NAME=VALUE", NULL behind the last). BY_EIO: it cannot be
 * run. */
by_status by__process_start(pid_t *out, char *const *words, char *const *extra, by_error *error);
/* Reaps children that have ended: codes[i] of those among `pids` becomes the exit code, or 128 +
 * signal. */
void by__process_reap(const pid_t *pids, int *codes, size_t count);
/* Ends what is left of the job on this host: all descendants of this process. False: one of them
 * is still there after `seconds`. */
bool by__process_end_all(double seconds);

/* ---- watch.c ---- */

typedef enum by__rank_state {
    BY__RANK_ABSENT = 0, /* not heard of yet */
    BY__RANK_RUNNING,
    BY__RANK_ENDED, /* it said so */
    BY__RANK_LOST   /* its connection was closed without that */
} by__rank_state;

typedef struct by__rank {
    by__rank_state state;
    int code;
    long pid;
    char host[BY_HOST_NAME];
    uint64_t count;
    uint64_t number;
    int64_t step;
    bool stopping;
    char phase[32];
    char text[BY__MESSAGE_TEXT]; /* last collective; how it ended */
    double heard;                /* when, on by__now's clock */
    double advanced;             /* when `count` changed */
} by__rank;

#define BY__CRASH 128 /* a rank ended without saying why */

/* What ended a start of the job first. */
typedef struct by__fault {
    int code; /* by_exit or BY__CRASH, 0: none */
    int rank; /* -1: of none in particular */
    char host[BY_HOST_NAME];
    char text[1024];
} by__fault;

typedef struct by__connection by__connection;

typedef struct by__watch {
    int listener;
    by__contact contact;
    by__rank *ranks;
    int count;
    by__connection *connections;
    size_t connection_count;
    by__fault fault;
    char run[PATH_MAX]; /* "": not known yet; kept between starts */
    int64_t saved;      /* newest checkpoint since the watch was armed; -1: none */
    bool stopping;      /* all ranks are asked to save and end, those that come late too */
    double began;
} by__watch;

/* Listens. loopback: all ranks are on this host. */
by_status by__watch_open(by__watch *watch, bool loopback, double silence, double grace,
                         by_error *error);
void by__watch_close(by__watch *watch);
/* Forgets the ranks of an earlier start and waits for `ranks` new ones. */
by_status by__watch_arm(by__watch *watch, int ranks, by_error *error);
/* Hears ranks for at most `seconds`; returns sooner when a signal comes. */
void by__watch_hear(by__watch *watch, double seconds);
/* Asks all ranks to save and end. */
void by__watch_stop(by__watch *watch);
/* Looks for a rank that is silent or makes no progress, or never came; sets the fault. */
void by__watch_check(by__watch *watch, double now, double timeout, double silence);
/* The job does not end by itself: the fault, where there is none yet, is a rank that still runs. */
void by__watch_give_up(by__watch *watch);
/* The first rank that has ended because of another one; -1: none. */
int by__watch_peer(const by__watch *watch);
/* Ranks in a state. */
int by__watch_number(const by__watch *watch, by__rank_state state);

/* ---- policy.c ---- */

typedef struct by__policy {
    int max_restarts;
    int host_faults;
    double back_off;
} by__policy;

#define BY__SAME_CHECKPOINT 3 /* failures behind one checkpoint until an older one is tried */
#define BY__MOST_BACK_OFF   300.0

/* What has happened over all starts. {.saved = -1} at the beginning. */
typedef struct by__history {
    int64_t saved;   /* newest checkpoint that the job has written */
    int in_a_row;    /* restarts since that */
    int behind_same; /* failures since the last start that wrote one, or went back */
} by__history;

typedef struct by__decision {
    bool restart;
    bool older;   /* the newest checkpoint is put aside first */
    double delay; /* seconds */
    char why[200];
} by__decision;

/* After a start that ended with `code` (by_exit, not 0) and whose newest checkpoint was `saved`
 * (-1: none). */
by__decision by__policy_decide(by__history *history, const by__policy *policy, int code,
                               int64_t saved);

#endif
