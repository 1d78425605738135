/* ds_config.json: text -> keys, values, lines, and what the keys together allow. */
#include "fuzz.h"

#include "engine/config/config.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_be_silent();
    struct shoali_ds_config config;
    char *text = malloc(size + 1);
    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    const shoal_status status = shoali_ds_config_init(&config, NULL, text);
    if (status < 0) {
        FUZZ_CHECK(*shoal_error_message() != '\0');
    } else {
        (void)shoali_json_line(config.document, "optimizer.params.lr");
        shoali_ds_config_fini(&config);
    }
    free(text);
    return 0;
}
