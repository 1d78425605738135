/* shoal convert: a folder of weights into one that other programs read. */
#include "tool.h"

#include "base/config_table.h"
#include "base/str.h"
#include "shoal/engine.h"
#include "shoal/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct convert_options {
    const char *load_tag, *max_shard_size;
    int32_t dtype, to;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
#define O(member) offsetof(struct convert_options, member)
static const char *const dtypes[] = {"auto", "fp32", "bf16", "fp16", NULL};
enum { TO_HUGGING_FACE, TO_DEEPSPEED };
static const char *const targets[] = {"huggingface", "deepspeed-universal", NULL};
static const struct shoali_option rows[] = {
    {.key = "to",
     .type = SHOALI_ENUM,
     .offset = O(to),
     .choices = targets,
     .help = "what OUT becomes; deepspeed-universal: a checkpoint with optimizer states that "
             "DeepSpeed loads with \"load_universal\": true; IN is a folder of checkpoints then"},
    {.key = "load-tag",
     .type = SHOALI_STRING,
     .offset = O(load_tag),
     .help = "of a folder of checkpoints: which one; default: the latest"},
    {.key = "dtype",
     .type = SHOALI_ENUM,
     .offset = O(dtype),
     .choices = dtypes,
     .help = "of the weights that are written; auto: as in the files. fp32 takes a checkpoint's "
             "masters"},
    {.key = "max-shard-size",
     .type = SHOALI_STRING,
     .offset = O(max_shard_size),
     .default_text = "5GB",
     .help = "of one file of weights"},
};
static const struct shoali_section section = {.name = "convert",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct convert_options),
                                              .given_offset = O(given)};

static const char usage[] =
    "usage: shoal convert IN OUT [flags]\n\n"
    "Writes the model of the folder IN, of the Hugging Face Hub or of `shoal pretrain`, into the "
    "new\n"
    "folder OUT as transformers reads it: config.json, the tokenizer's files, and weights under\n"
    "their usual names. OUT is there when it is whole. Training goes on from DeepSpeed's own\n"
    "checkpoints by --load of `shoal pretrain`; --to deepspeed-universal is the way back.\n\n";

static shoal_status parse(struct convert_options *options, int argc, char **argv,
                          struct shoali_strings *folders, struct shoali_arena *arena)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_config_defaults(&section, options, arena), done);
    const struct shoali_flags table = {&section, options};
    const struct shoali_flag_args args = {
        .command = "shoal convert", .tables = &table, .table_count = 1};
    status = shoali_flags_parse(&args, argc, argv, arena, folders);
    if (status == SHOAL_END) {
        struct shoali_str text = {0};
        shoali_flags_help(&args, &text);
        printf("%s%s", usage, shoali_str_get(&text));
        shoali_str_fini(&text);
    } else if (status == SHOAL_OK && folders->count != 2) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "shoal convert: name two folders, the one to read and the one to "
                            "write; shoal convert --help says more");
    }
done:
    return status;
}

static shoal_status to_deepspeed(const struct convert_options *options,
                                 const struct shoali_strings *folders)
{
    if (options->dtype != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--dtype has no meaning with --to deepspeed-universal, "
                                        "whose weights are fp32 and those of the checkpoint");
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
    SHOAL_TRY(
        status,
        shoal_convert(&(shoal_convert_args){.in = folders.value[0],
                                            .tag = options.load_tag,
                                            .out = folders.value[1],
                                            .dtype = options.dtype ? dtypes[options.dtype] : NULL,
                                            .max_shard_bytes = shard_bytes}),
        done);
done:;
    const int code = status < 0 ? tool_fail(status) : tool_flush();
    shoali_arena_fini(&arena);
    return code;
}
