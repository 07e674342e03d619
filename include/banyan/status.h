/* Status codes, error messages, and the conventions of the whole API.
 *
 * Errors. A function that can fail returns `by_status`: BY_OK (0) or a negative code for the kind
 * of failure. Its last parameter, `by_error *error`, receives a message for the user that names the
 * object, the offending value and a remedy ("train.yaml:14: micro_batch 12 does not divide batch
 * 100; nearest: 10, 20"); it may be NULL, and its content is meaningful only after a failure. The
 * library never prints, exits or aborts. The headers list the statuses that are specific to a
 * function; any function that allocates memory may in addition return BY_EMEMORY, and any that
 * accesses files BY_EIO.
 *
 * Ownership. `by_thing_open(&thing, ...)` creates a handle; `by_thing_close(&thing)` releases it
 * and sets it to NULL, and does nothing if it is NULL. `by_thing_free` releases what a function has
 * put into a plain struct, and zeroes it. After a failure an output holds nothing to release. What
 * a function returns as a pointer to const belongs to the handle and is valid until that is closed,
 * and handles and memory passed to a function remain the caller's, unless stated otherwise.
 *
 * Threads. A handle may be used by one thread at a time, unless its header says that threads may
 * share it. Independent handles may be used from different threads concurrently.
 *
 * Text. Strings are NUL-terminated UTF-8 unless a length is passed with them.
 */
#ifndef BANYAN_STATUS_H
#define BANYAN_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BY_API                __attribute__((visibility("default")))
#define BY_PRINTF(text, args) __attribute__((format(printf, text, args)))
#else
#define BY_API
#define BY_PRINTF(text, args)
#endif

typedef enum by_status {
    BY_OK = 0,
    BY_EARG = -1,      /* invalid argument or shape */
    BY_ECONFIG = -2,   /* invalid configuration file or override; retrying cannot help */
    BY_EIO = -3,       /* a system call failed: missing file, full disk, no permission */
    BY_EFORMAT = -4,   /* malformed file content: corrupt, truncated or unsupported */
    BY_EMEMORY = -5,   /* out of memory, or a size overflows */
    BY_EDEVICE = -6,   /* a compute library or device failed or lacks a feature */
    BY_EPEER = -7,     /* another process failed */
    BY_ESTATE = -8,    /* the call is not valid in the current state */
    BY_ESTOPPED = -9,  /* stopped cleanly at the caller's request */
    BY_ECORRUPT = -10, /* values that must be equal differ: a hardware fault is likely */
    BY_EDIVERGED = -11 /* training diverged: bad losses, gradients or weights */
} by_status;

/* One error. Plain data: copy it freely; there is nothing to release. */
typedef struct by_error {
    by_status status;
    char message[500]; /* NUL-terminated; cut if it would be longer */
} by_error;

/* Returns the name of a status in lower case: "ok", "argument", "config", "io", ...; "unknown" for
 * any other value. */
BY_API const char *by_status_name(by_status status);

/* Stores `status` and a printf-style message in `error` (may be NULL). Returns `status`. */
BY_API by_status by_error_set(by_error *error, by_status status, const char *format, ...)
    BY_PRINTF(3, 4);

/* Inserts a printf-style prefix and ": " before the message in `error` (may be NULL) and stores
 * `status` there. Returns `status`. */
BY_API by_status by_error_prefix(by_error *error, by_status status, const char *format, ...)
    BY_PRINTF(3, 4);

#ifdef __clang_analyzer__
/* Both functions return their `status` argument. The analyzer cannot see that across files and
 * would otherwise follow failures as successes. */
#define by_error_set(error, status, ...)                                                           \
    ((void)(by_error_set)(error, status, __VA_ARGS__), (status))
#define by_error_prefix(error, status, ...)                                                        \
    ((void)(by_error_prefix)(error, status, __VA_ARGS__), (status))
#endif

#ifdef __cplusplus
}
#endif
#endif
