/* The system calls that processes in a sandbox may make, by what they are for. */
#ifndef BY_SERVE_BASE_SANDBOX_CALLS_H
#define BY_SERVE_BASE_SANDBOX_CALLS_H

#include <stddef.h>
#include <stdint.h>

#define BY__SANDBOX_TERMS 3

/* The argument `index` has `value` in the bits of `mask`; mask 0: always so. */
typedef struct by__serve_sandbox_term {
    unsigned index;
    uint64_t mask;
    uint64_t value;
} by__serve_sandbox_term;

/* A call that is allowed if all terms hold. A call with several rules is allowed by any of them.
 * Calls that an architecture lacks have negative numbers. */
typedef struct by__serve_sandbox_rule {
    int call;
    by__serve_sandbox_term terms[BY__SANDBOX_TERMS];
} by__serve_sandbox_rule;

typedef struct by__serve_sandbox_list {
    const int *calls; /* whatever their arguments are */
    size_t call_count;
    const by__serve_sandbox_rule *rules;
    size_t rule_count;
} by__serve_sandbox_list;

extern const by__serve_sandbox_list by__serve_sandbox_all;       /* of every process */
extern const by__serve_sandbox_list by__serve_sandbox_connected; /* of a worker */
extern const by__serve_sandbox_list by__serve_sandbox_tcp;       /* of one that connects by TCP */
extern const by__serve_sandbox_list by__serve_sandbox_opening;   /* of one that opens devices */
extern const by__serve_sandbox_list by__serve_sandbox_server;    /* of gateway and broker */
extern const by__serve_sandbox_list by__serve_sandbox_network;   /* of a gateway */
/* Calls that fail as if they did not exist: io_uring's three first. */
extern const by__serve_sandbox_list by__serve_sandbox_absent;

#endif
