/* AWS's signature version 4 of a request (remote_signature.c). */
#ifndef BY_REMOTE_REMOTE_SIGNATURE_H
#define BY_REMOTE_REMOTE_SIGNATURE_H

#include <time.h>

#include "remote/remote_access.h"

/* The SHA-256 of no bytes, which a GET has as its body. */
#define BY__REMOTE_NO_BODY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* A request. Path and query are escaped, and the query is sorted by name. */
typedef struct by__remote_signed {
    const char *method;
    const char *path;
    const char *query;
    const char *const (*headers)[2]; /* names in lower case and values, sorted by name */
    size_t header_count;
    const char *body; /* SHA-256 of it, in hexadecimal */
    const char *service;
    time_t time;
} by__remote_signed;

/* The time as "20130524T000000Z". */
void by__remote_date(char out[17], time_t time);
/* Adds the value of the header "Authorization". BY_ECONFIG: the program was built without
 * nettle. */
by_status by__remote_sign(by_string *out, const by__remote_signed *request,
                          const by__remote_access *access, by_error *error);

#endif
