#include "base/build.h"
#include "comm/comm.h"

by_status by__comm_open_mpi(by_comm **out, double timeout, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(timeout);
    return by__build_lacks(BY_BUILD_MPI, "ranks over MPI", error);
}

void by_comm_library_describe(by_comm_library *out)
{
    *out = (by_comm_library){.thread_level = ""};
}
