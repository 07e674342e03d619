/* S3 in a build without nettle. */
#include "base/build.h"
#include "remote/remote_signature.h"

void by__remote_date(char out[17], time_t time)
{
    BY_UNUSED(time);
    out[0] = '\0';
}

by_status by__remote_sign(by_string *out, const by__remote_signed *request,
                          const by__remote_access *access, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(request);
    BY_UNUSED(access);
    return by__build_lacks(BY_BUILD_NETTLE, "credentials of S3", error);
}
