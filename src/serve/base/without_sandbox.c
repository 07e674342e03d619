#include "base/build.h"
#include "serve/base/sandbox.h"

by_status by__serve_sandbox_prepare(const by__serve_sandbox *sandbox, int *version, by_error *error)
{
    BY_UNUSED(sandbox);
    BY_UNUSED(version);
    return by__build_lacks(BY_BUILD_SANDBOX, "the sandbox, without which --no-sandbox runs", error);
}

by_status by__serve_sandbox_enter(const by__serve_sandbox *sandbox, by_error *error)
{
    BY_UNUSED(sandbox);
    return by__build_lacks(BY_BUILD_SANDBOX, "the sandbox, without which --no-sandbox runs", error);
}

bool by__serve_sandbox_violation(char name[BY__SANDBOX_CALL])
{
    BY_UNUSED(name);
    return false;
}
