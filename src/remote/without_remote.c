/* Remote files in a build without libcurl. */
#include "base/build.h"
#include "remote/remote_transfer.h"

by_status by__remote_transfers_begin(by_error *error)
{
    return by__build_lacks(BY_BUILD_CURL, "a path that is a URL", error);
}

by_status by__remote_transfer_open(by__remote_transfer **out, by__remote_stop *stop,
                                   by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(stop);
    return by__remote_transfers_begin(error);
}

void by__remote_transfer_close(by__remote_transfer **transfer)
{
    BY_UNUSED(transfer);
}

void by__remote_transfer_get(by__remote_transfer *transfer, const char *url,
                             const char *const *headers, bool follow, by__remote_answer *answer)
{
    BY_UNUSED(transfer);
    BY_UNUSED(url);
    BY_UNUSED(headers);
    BY_UNUSED(follow);
    answer->failure = BY__REMOTE_HOPELESS;
}
