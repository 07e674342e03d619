#include "banyan/checkpoint.h"
#include "base/build.h"

by_status by_checkpoint_digest(by_digest *out, const char *path, int threads, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(threads);
    return by__build_lacks(BY_BUILD_NETTLE, path, error);
}

void by_digest_free(by_digest *digest)
{
    *digest = (by_digest){0};
}
