/* test_config - configurations as texts, for the tests of this folder. */
#ifndef SHOALI_ENGINE_TEST_CONFIG_H
#define SHOALI_ENGINE_TEST_CONFIG_H

#include "base/test_cmocka.h"
#include "engine/config/config.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline void expect_error(const char *text, shoal_status expected, const char *in_message)
{
    struct shoali_ds_config config;
    shoal_status status = shoali_ds_config_init(&config, NULL, text);
    if (status >= 0)
        fail_msg("%s was accepted", text);
    if (!strstr(shoal_error_message(), in_message))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, shoal_error_message(), in_message);
    assert_int_equal(status, expected);
}

static inline void read_text(const char *text, struct shoali_ds_config *config)
{
    if (shoali_ds_config_init(config, NULL, text) < 0)
        fail_msg("%s: %s", text, shoal_error_message());
}

#endif
