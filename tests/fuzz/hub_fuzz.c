/* Files of a folder of the Hub. The first byte says which: config.json, of which a configuration
 * that is understood says the same when it is written and read again; or
 * model.safetensors.index.json, beside one file of weights. */
#include "fuzz.h"

#include "checkpoint/weight_folder.h"
#include "hub/hub.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void compare(const shoal_model_config *a, const shoal_model_config *b)
{
    const shoal_model_option *option;
    double x, y;
    for (int32_t i = 0; (option = shoal_model_config_option(a, i)) != NULL; i++) {
        FUZZ_CHECK(shoal_model_config_get(a, option->name, &x) == SHOAL_OK);
        FUZZ_CHECK(shoal_model_config_get(b, option->name, &y) == SHOAL_OK);
        FUZZ_CHECK(x == y || shoal_hub_option_is_free(option->name));
    }
}

/* Options that others complete are compared when they are complete. */
static void write_and_read(const shoal_model_config *config, shoal_dtype dtype)
{
    shoal_model *model = NULL;
    shoal_model_config *again = NULL;
    shoal_dtype dtype_again;
    char *text = NULL;
    if (shoali_hub_option(config, "num-layers") > 100 ||
        shoal_model_create(config, &model) != SHOAL_OK)
        return;
    const shoal_model_config *whole = shoal_model_get_config(model);
    const shoal_hub_write_args args = {.config = whole, .dtype = dtype};
    FUZZ_CHECK(shoal_hub_write_config(&args, &text) == SHOAL_OK);
    FUZZ_CHECK(shoal_hub_parse_config(text, strlen(text), "again", &again, &dtype_again) ==
               SHOAL_OK);
    FUZZ_CHECK(dtype == dtype_again);
    compare(whole, again);
    free(text);
    shoal_model_config_destroy(again);
    shoal_model_destroy(model);
}

static void read_config(const char *text, size_t size)
{
    shoal_model_config *config = NULL;
    shoal_dtype dtype = SHOAL_DTYPE_COUNT;
    if (shoal_hub_parse_config(text, size, "config.json", &config, &dtype) != SHOAL_OK) {
        FUZZ_CHECK(!config && *shoal_error_message());
        return;
    }
    write_and_read(config, dtype);
    shoal_model_config_destroy(config);
}

/* ---- the index ---- */

static const char weights[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                              "\"b\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[8,12]}}";

static void put_file(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
}

static char folder_name[] = "/tmp/shoal-fuzz-hub-XXXXXX";

static void remove_folder(void)
{
    static const char *const names[] = {"w.safetensors", "model.safetensors.index.json"};
    char path[256];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder_name, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder_name);
}

/* One for all inputs. */
static const char *folder(void)
{
    static bool made;
    if (!made) {
        char file[256] = {0};
        const size_t length = sizeof weights - 1;
        FUZZ_CHECK(mkdtemp(folder_name));
        FUZZ_CHECK(atexit(remove_folder) == 0);
        file[0] = (char)length;
        memcpy(file + 8, weights, length);
        put_file(folder_name, "w.safetensors", file, 8 + length + 12);
        made = true;
    }
    return folder_name;
}

static void read_index(const char *text, size_t size)
{
    struct shoali_weight_folder weight;
    float value[2];
    put_file(folder(), "model.safetensors.index.json", text, size);
    if (shoali_weight_folder_open(&weight, folder()) == SHOAL_OK)
        for (int32_t i = 0; i < weight.tensor_count; i++)
            FUZZ_CHECK(shoali_weight_folder_read(&weight, i, 0, 2, SHOAL_F32, value) == SHOAL_OK);
    shoali_weight_folder_close(&weight);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    fuzz_be_silent();
    if (data[0] & 1)
        read_index((const char *)data + 1, size - 1);
    else
        read_config((const char *)data + 1, size - 1);
    return 0;
}
