/* The optional parts of a build. CMake defines BY_WITH_PART as 0 or 1 for each, for this file. */
#include "base/build.h"

static const struct {
    const char *name;
    const char *option;
    const char *packages; /* of Debian; "": no library of its own */
    const char *purpose;
    bool built;
} parts[BY_BUILD_PARTS] = {
    [BY_BUILD_MPI] = {"mpi", "BY_WITH_MPI", "libopenmpi-dev openmpi-bin", "several ranks over MPI",
                      BY_WITH_MPI},
    [BY_BUILD_SERVER] = {"server", "BY_WITH_SERVER", "libuv1-dev nettle-dev",
                         "the server and what reads its records", BY_WITH_SERVER},
    [BY_BUILD_REDIS] = {"redis", "BY_WITH_REDIS", "libhiredis-dev",
                        "a server's queues and features in Redis", BY_WITH_REDIS},
    [BY_BUILD_FEAST] = {"feast", "BY_WITH_FEAST", "", "features from a Feast store", BY_WITH_FEAST},
    [BY_BUILD_SANDBOX] = {"sandbox", "BY_WITH_SANDBOX", "libseccomp-dev",
                          "the sandbox of a server's processes", BY_WITH_SANDBOX},
    [BY_BUILD_CURL] = {"curl", "BY_WITH_CURL", "libcurl4-openssl-dev",
                       "requests to other servers: remote data, MLflow, webhooks, traces, Feast",
                       BY_WITH_CURL},
    [BY_BUILD_PLOTS] = {"plots", "BY_WITH_PLOTS", "libcairo2-dev", "charts", BY_WITH_PLOTS},
    [BY_BUILD_JPEG] = {"jpeg", "BY_WITH_JPEG", "libjpeg-dev", "JPEG images", BY_WITH_JPEG},
    [BY_BUILD_PNG] = {"png", "BY_WITH_PNG", "libpng-dev", "PNG images", BY_WITH_PNG},
    [BY_BUILD_WEBP] = {"webp", "BY_WITH_WEBP", "libwebp-dev", "WebP images", BY_WITH_WEBP},
    [BY_BUILD_ZLIB] = {"zlib", "BY_WITH_ZLIB", "zlib1g-dev", "files compressed with gzip",
                       BY_WITH_ZLIB},
    [BY_BUILD_SNAPPY] = {"snappy", "BY_WITH_SNAPPY", "libsnappy-dev",
                         "Parquet files compressed with snappy", BY_WITH_SNAPPY},
    [BY_BUILD_ZSTD] = {"zstd", "BY_WITH_ZSTD", "libzstd-dev", "Parquet files compressed with zstd",
                       BY_WITH_ZSTD},
    [BY_BUILD_NETTLE] = {"nettle", "BY_WITH_NETTLE", "nettle-dev",
                         "digests of checkpoints, tokenizers of tiktoken, credentials of S3",
                         BY_WITH_NETTLE},
    [BY_BUILD_PCRE2] = {"pcre2", "BY_WITH_PCRE2", "libpcre2-dev",
                        "regular expressions in suites, templates and rewards", BY_WITH_PCRE2},
    [BY_BUILD_ONEDNN] = {"onednn", "BY_WITH_ONEDNN", "libdnnl-dev",
                         "a second measurement of the machine's peaks", BY_WITH_ONEDNN},
};

const char *by_build_part_name(by_build_part part)
{
    return parts[part].name;
}

const char *by_build_part_purpose(by_build_part part)
{
    return parts[part].purpose;
}

bool by_build_has(by_build_part part)
{
    return parts[part].built;
}

by_status by__build_lacks(by_build_part part, const char *what, by_error *error)
{
    bool own = parts[part].packages[0] != '\0';
    return by_error_set(error, BY_ECONFIG,
                        "%s: this program was built without %s; %s%s%sbuild it with -D%s=on", what,
                        parts[part].name, own ? "install " : "", parts[part].packages,
                        own ? " (Debian's names) and " : "", parts[part].option);
}
