/* Configs from texts, for the tests of the config module. */
#ifndef BY_TESTS_CONFIG_TEXT_H
#define BY_TESTS_CONFIG_TEXT_H

#include "banyan/config.h"

/* The text is that of "train.yaml". */
by_status config_parse(by_config **out, const char *text, by_error *error);
/* The config of a text that is right. */
by_config *config_good(const char *text);
/* A config as it is printed; the caller frees it. */
char *config_printed(const by_config *config);
/* The text is refused with this message. */
void config_refused(const char *text, const char *message);
/* With one that lists kinds between its begin and its end. */
void config_refused_among(const char *text, const char *begin, const char *end);

#endif
