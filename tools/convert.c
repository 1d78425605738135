/* shoal convert: a folder of weights into one that other programs read. */
#include "flags/flags.h"
#include "tool.h"

#include "base/config_table.h"
#include "base/str.h"
#include "shoal/engine.h"
#include "shoal/foreign.h"
#include "shoal/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct convert_options {
    const char *load_tag, *max_shard_size, *model_config;
    int32_t dtype, to;
    bool allow_overflow, allow_unknown_config_keys;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct convert_options, key, type, member, __VA_ARGS__)
static const char *const dtypes[] = {"auto", "fp32", "bf16", "fp16", NULL};
enum { TO_HUGGING_FACE, TO_DEEPSPEED };
static const char *const targets[] = {"huggingface", "deepspeed-universal", NULL};
static const struct shoali_option rows[] = {
    OPTION("to", ENUM, to, .choices = targets,
           .help = "format of OUT; deepspeed-universal: a checkpoint with optimizer states that "
                   "DeepSpeed loads with \"load_universal\": true; IN must then be a folder of "
                   "checkpoints"),
    OPTION("load-tag", STRING, load_tag,
           .help =
               "name of the checkpoint, where IN is a folder of checkpoints; default: the latest"),
    OPTION("model-config", STRING, model_config,
           .help =
               "folder with config.json and tokenizer of the model, where IN is a checkpoint of "
               "DeepSpeed or a folder of weights without them"),
    OPTION("dtype", ENUM, dtype, .choices = dtypes,
           .help =
               "data type of the written weights; auto: as in IN; fp32: the master weights of a "
               "checkpoint"),
    OPTION("allow-overflow", BOOL, allow_overflow,
           .help = "write numbers that --dtype does not hold as infinite; without it they end the "
                   "conversion with exit code 1"),
    OPTION("allow-unknown-config-keys", BOOL, allow_unknown_config_keys,
           .help = "ignore keys of config.json that are not known, with a warning; without it they "
                   "are errors, because they may change what the model computes"),
    OPTION("max-shard-size", STRING, max_shard_size, .default_text = "5GB",
           .help = "largest size of a file of weights"),
};
static const struct shoali_section section = {.name = "convert",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct convert_options),
                                              .given_offset =
                                                  offsetof(struct convert_options, given)};

static const char usage[] =
    "usage: shoal convert IN OUT [flags]\n\n"
    "Converts the model in folder IN to the format of Hugging Face transformers in the new folder\n"
    "OUT: config.json, the tokenizer's files, and weights under their usual names. IN is a "
    "Hugging\n"
    "Face folder, a folder of checkpoints of `shoal pretrain`, or a checkpoint of DeepSpeed. OUT\n"
    "appears when it is complete.\n\n"
    "--to deepspeed-universal writes a checkpoint for DeepSpeed instead. The other direction "
    "needs\n"
    "no conversion: `shoal pretrain --load` reads DeepSpeed's checkpoints.\n\n";

static shoal_status parse(struct convert_options *options, int argc, char **argv,
                          struct shoali_strings *folders, struct shoali_arena *arena)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_config_defaults(&section, options, arena), done);
    const struct shoali_flags table = {&section, options};
    struct shoali_help help = {0};
    const struct shoali_flag_args args = {
        .command = "shoal convert", .tables = &table, .table_count = 1, .help = &help};
    status = shoali_flags_parse(&args, argc, argv, arena, folders);
    if (status == SHOAL_END) {
        status = tool_print_flags(usage, &args);
    } else if (status == SHOAL_OK && folders->count != 2) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "shoal convert: give two folders, the one to read and the one to "
                            "write; see shoal convert --help");
    }
done:
    return status;
}

static shoal_status to_deepspeed(const struct convert_options *options,
                                 const struct shoali_strings *folders)
{
    if (options->model_config)
        return SHOAL_FAIL(SHOAL_EINVAL, "--model-config has no effect with --to "
                                        "deepspeed-universal: leave it out");
    if (options->dtype != 0 || options->allow_overflow)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--%s has no effect with --to deepspeed-universal, which writes fp32 "
                          "weights: leave it out",
                          options->dtype != 0 ? "dtype" : "allow-overflow");
    return shoal_checkpoint_to_deepspeed(folders->value[0], options->load_tag, folders->value[1]);
}

int tool_convert(int argc, char **argv)
{
    shoal_status status;
    struct convert_options options;
    struct shoali_strings folders = {0};
    struct shoali_arena arena;
    int64_t shard_bytes = 0;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, parse(&options, argc, argv, &folders, &arena), done);
    if (status == SHOAL_END)
        goto done;
    if (options.to == TO_DEEPSPEED) {
        status = to_deepspeed(&options, &folders);
        goto done;
    }
    if (!shoali_parse_bytes(options.max_shard_size, &shard_bytes)) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "--max-shard-size is %s: give a size such as 5GB or 512MiB",
                       options.max_shard_size);
        goto done;
    }
    SHOAL_TRY(status,
              shoal_convert(
                  &(shoal_convert_args){.in = folders.value[0],
                                        .tag = options.load_tag,
                                        .model_config = options.model_config,
                                        .out = folders.value[1],
                                        .dtype = options.dtype ? dtypes[options.dtype] : NULL,
                                        .max_shard_bytes = shard_bytes,
                                        .allow_overflow = options.allow_overflow,
                                        .allow_unknown_keys = options.allow_unknown_config_keys}),
              done);
done:;
    const int code = status < 0 ? tool_fail(status) : tool_flush();
    shoali_arena_fini(&arena);
    return code;
}
