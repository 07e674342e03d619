/* Status codes and error text: how every fallible banyan call reports what went wrong.
 *
 * A call returns `by_status`: BY_OK (0) or a negative code that says what is broken. Its last
 * parameter, `by_error *`, receives a sentence for the user that names the thing, the value and the
 * way out ("train.yaml:14: micro_batch 12 does not divide batch 100; nearest: 10, 20"). The pointer
 * may be NULL. The library never prints, exits or aborts.
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
    BY_EARG = -1,      /* an argument of the call, or a shape, is wrong */
    BY_ECONFIG = -2,   /* a configuration file or override is wrong: never worth a retry */
    BY_EIO = -3,       /* the operating system refused: missing file, full disk, permission */
    BY_EFORMAT = -4,   /* a file's content is not what its format promises (corrupt, truncated) */
    BY_EMEMORY = -5,   /* memory is exhausted, or a size overflows */
    BY_EDEVICE = -6,   /* a compute library or device failed or lacks a feature */
    BY_EPEER = -7,     /* another process failed */
    BY_ESTATE = -8,    /* the call is not valid now */
    BY_ESTOPPED = -9,  /* the caller asked to stop, and the work stopped cleanly */
    BY_ECORRUPT = -10, /* values that must be equal differ: a fault of the hardware */
    BY_EDIVERGED = -11 /* the training itself went wrong: losses, gradients or weights */
} by_status;

/* Text of one error. Plain data: copy it freely; nothing to release. */
typedef struct by_error {
    by_status status;
    char message[500];
} by_error;

/* Name of a status as a lower-case word ("ok", "argument", "config", "io", ...). Never NULL. */
BY_API const char *by_status_name(by_status status);

/* Fills `error` (may be NULL) with `status` and a formatted sentence; returns `status`. */
BY_API by_status by_error_set(by_error *error, by_status status, const char *format, ...)
    BY_PRINTF(3, 4);

/* Puts "PREFIX: " before the message that `error` (may be NULL) already holds. Returns its
 * status. */
BY_API by_status by_error_prefix(by_error *error, by_status status, const char *format, ...)
    BY_PRINTF(3, 4);

#ifdef __clang_analyzer__
/* Both return the status that they are given, which the analyzer cannot see in another file: it
 * would follow failures as if they were successes. */
#define by_error_set(error, status, ...)                                                           \
    ((void)(by_error_set)(error, status, __VA_ARGS__), (status))
#define by_error_prefix(error, status, ...)                                                        \
    ((void)(by_error_prefix)(error, status, __VA_ARGS__), (status))
#endif

#ifdef __cplusplus
}
#endif
#endif
