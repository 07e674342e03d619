/* What optional parts fail with where they were left out of the build. A part's sources then give
 * way to one file, without_PART.c, whose functions fail so; cmake/dependencies.cmake has the
 * list. */
#ifndef BY_BASE_BUILD_H
#define BY_BASE_BUILD_H

#include "banyan/build.h"
#include "base/base.h"

/* Returns BY_ECONFIG: `what` needs a part that this program was built without. */
by_status by__build_lacks(by_build_part part, const char *what, by_error *error);

#endif
