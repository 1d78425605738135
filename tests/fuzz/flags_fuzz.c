/* Command lines: the input's lines are words. The first is the command: "run" (the launcher's flags
 * and what they mean) or another one (those of `pretrain gpt`). After a line "{" the rest is the
 * configuration that --deepspeed_config names, and flags and configuration are put together. */
#include "fuzz.h"

#include "launcher/cluster/cluster.h"
#include "launcher/command/command.h"
#include "pretrain/pretrain.h"

#include <string.h>

enum { WORDS_MAX = 64 };

static void read_run(int argc, char **argv)
{
    struct shoali_launch_options options;
    struct shoali_strings rest = {0};
    struct shoali_arena arena;
    struct shoali_ints list;
    struct shoali_hosts hosts = {0};
    shoal_launch_args args = {0};
    struct shoali_world world = {0};
    const struct shoali_flags table = {&shoali_launch_section, &options};
    const struct shoali_flag_args flags = {
        .command = "shoal run", .tables = &table, .table_count = 1, .stop_at_word = true};
    shoali_arena_init(&arena);
    FUZZ_CHECK(shoali_config_defaults(&shoali_launch_section, &options, &arena) == SHOAL_OK);
    if (shoali_flags_parse(&flags, argc, argv, &arena, &rest) == SHOAL_OK) {
        FUZZ_CHECK(rest.count <= argc);
        if (shoali_launch_resolve(&options, &args) == SHOAL_OK)
            FUZZ_CHECK(args.ranks >= 0);
        if (args.core_list && shoali_cores_select(args.core_list, &arena, &list) == SHOAL_OK)
            for (int32_t i = 1; i < list.count; i++)
                FUZZ_CHECK(list.value[i] > list.value[i - 1]);
        if (shoali_hosts_read(NULL, &arena, &hosts) == SHOAL_OK &&
            shoali_slots_select(args.include, args.exclude, &hosts) == SHOAL_OK &&
            shoali_world_make(&hosts, args.num_nodes, 0, &arena, &world) == SHOAL_OK)
            FUZZ_CHECK(world.ranks <= hosts.host[0].slots);
    }
    shoali_arena_fini(&arena);
}

static void read_pretrain(int argc, char **argv)
{
    struct pretrain_command command = {
        .name = "shoal pretrain gpt", .usage = "", .model = "gpt", .trains = true};
    struct pretrain_options options = {0};
    const char *path = NULL;
    char *text = NULL;
    struct shoali_json *document = NULL;
    pretrain_choose_model(&command, argc, argv);
    if (pretrain_options_init(&options, &command, argc, argv) == SHOAL_OK &&
        pretrain_take_length(&options, 1) == SHOAL_OK &&
        pretrain_config(&options, &path, &text) == SHOAL_OK && text) {
        FUZZ_CHECK(shoali_json_parse(text, strlen(text), "merged", &document) == SHOAL_OK);
        shoali_json_close(document);
    }
    free(text);
    pretrain_options_fini(&options);
}

/* Cuts at newlines, up to a line that begins the configuration; returns where that begins. */
static char *cut_words(char *text, char **argv, int *argc)
{
    while (*text && *text != '{' && *argc < WORDS_MAX) {
        argv[(*argc)++] = text;
        text += strcspn(text, "\n");
        if (*text)
            *text++ = '\0';
    }
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *argv[WORDS_MAX + 3] = {NULL}, flag[] = "--deepspeed_config", path[64];
    int argc = 0;
    char *text = malloc(size + 1);
    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    fuzz_be_silent();
    const char *config = cut_words(text, argv, &argc);
    if (argc > 0 && strcmp(argv[0], "run") == 0) {
        read_run(argc, argv);
    } else if (argc > 0) {
        snprintf(path, sizeof path, "%s", fuzz_file((const uint8_t *)config, strlen(config)));
        argv[argc++] = flag;
        argv[argc++] = path;
        read_pretrain(argc, argv);
    }
    free(text);
    return 0;
}
