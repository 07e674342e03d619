/* What a process of a server keeps of what it inherits (by_serve_clean_environment). */
#ifndef BY_SERVE_BASE_KEPT_ENVIRONMENT_H
#define BY_SERVE_BASE_KEPT_ENVIRONMENT_H

#include "serve/base/serve.h"

/* Closes all files but standard input, output and error and `but`; -1: none. */
void by__serve_close_files(int but);

#endif
