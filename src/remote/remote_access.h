/* Credentials of S3, from the variables and files of AWS's own programs (remote_access.c). They are
 * in no message and no file that banyan writes. */
#ifndef BY_REMOTE_REMOTE_ACCESS_H
#define BY_REMOTE_REMOTE_ACCESS_H

#include "base/base.h"

typedef struct by__remote_access {
    char *key;    /* "": requests are not signed */
    char *secret; /* "" likewise */
    char *token;  /* of a session; "": none */
    char *region;
    char *endpoint; /* http://HOST:PORT */
} by__remote_access;

/* Reads AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the profile AWS_PROFILE
 * of ~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE) and ~/.aws/config (AWS_CONFIG_FILE); the
 * region of AWS_REGION, AWS_DEFAULT_REGION or the profile, the endpoint of AWS_ENDPOINT_URL_S3,
 * AWS_ENDPOINT_URL or the profile. BY_ECONFIG: one half of the credentials is missing, or the
 * profile that AWS_PROFILE names. */
by_status by__remote_access_read(by__remote_access *out, by_error *error);
/* Overwrites what is secret. */
void by__remote_access_free(by__remote_access *access);

#endif
