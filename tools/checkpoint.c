/* shoal checkpoint verify|list|show|prune DIR */
#include "tool.h"

#include "base/config_table.h"
#include "base/str.h"
#include "shoal/checkpoint.h"
#include "shoal/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    const char *tag;
    int64_t threads, keep_last, keep_every;
    bool tensors, dry_run;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
#define OPTION(key, type, member, ...) SHOALI_OPTION(struct options, key, type, member, __VA_ARGS__)

static const struct shoali_option verify_rows[] = {
    OPTION("load-tag", STRING, tag,
           .help = "name of the checkpoint to verify; default: all checkpoints of the folder"),
    OPTION("threads", INT, threads, .min = 0, .max = 64,
           .help = "threads that read files; 0: one per core"),
};
static const struct shoali_option show_rows[] = {
    OPTION("load-tag", STRING, tag, .help = "name of the checkpoint to show; default: the latest"),
    OPTION("tensors", BOOL, tensors, .help = "list also names and shapes of tensors"),
};
static const struct shoali_option prune_rows[] = {
    OPTION("keep-last", INT, keep_last, .default_number = 1, .min = 1, .max = 1e9,
           .help = "number of latest checkpoints to keep"),
    OPTION("keep-every", INT, keep_every, .min = 0, .max = 1e15, .unit = "steps",
           .help = "keep also checkpoints whose step this number divides; 0: no others"),
    OPTION("dry-run", BOOL, dry_run,
           .help = "print which checkpoints would be removed, and remove none"),
};
#define SECTION(rows_)                                                                       \
    {                                                                                        \
        .name = "flags", .rows = SHOALI_ROWS(rows_), .struct_bytes = sizeof(struct options), \
        .given_offset = offsetof(struct options, given)                                      \
    }
static const struct shoali_section verify_section = SECTION(verify_rows);
static const struct shoali_section show_section = SECTION(show_rows);
static const struct shoali_section prune_section = SECTION(prune_rows);

/* ---- what they do --------------------------------------------------------------------------- */

static int verify(const char *dir, const struct options *options)
{
    char *text = NULL;
    bool whole;
    const shoal_status status =
        shoal_checkpoint_verify(dir, options->tag, (int32_t)options->threads, &text, &whole);
    if (status < 0)
        return tool_fail(status);
    const int code = tool_print(text);
    return code ? code : !whole;
}

static int list(const char *dir, const struct options *options)
{
    (void)options;
    char *text = NULL;
    const shoal_status status = shoal_report_checkpoints(dir, &text);
    return status < 0 ? tool_fail(status) : tool_print(text);
}

static int show(const char *dir, const struct options *options)
{
    char *text = NULL;
    const shoal_status status = shoal_checkpoint_show(dir, options->tag, options->tensors, &text);
    return status < 0 ? tool_fail(status) : tool_print(text);
}

static int prune(const char *dir, const struct options *options)
{
    char *text = NULL;
    const shoal_status status = shoal_checkpoint_prune(dir, options->keep_last, options->keep_every,
                                                       options->dry_run, &text);
    return status < 0 ? tool_fail(status) : tool_print(text);
}

static const struct verb {
    const char *name, *summary;
    int (*run)(const char *dir, const struct options *options);
    const struct shoali_section *section; /* NULL: no flags */
} verbs[] = {
    {"verify", "read every byte and compare all checksums; names each mismatch", verify,
     &verify_section},
    {"list", "list steps, sizes and leftover files of interrupted saves", list, NULL},
    {"show", "print a manifest: training state, model, kinds of data, sizes", show, &show_section},
    {"prune", "remove old checkpoints named global_stepN", prune, &prune_section},
};
enum { VERBS = sizeof verbs / sizeof verbs[0] };

/* ---- words ---------------------------------------------------------------------------------- */

static void print_help(void)
{
    puts("usage: shoal checkpoint verify|list|show|prune DIR [flags]\n\n"
         "Manages the checkpoints in DIR, the folder given to --save of `shoal pretrain`.\n");
    for (int i = 0; i < VERBS; i++) {
        struct shoali_str text = {0};
        printf("  %-7s %s\n", verbs[i].name, verbs[i].summary);
        struct options none = {0};
        const struct shoali_flags table = {verbs[i].section, &none};
        const struct shoali_flag_args args = {
            .command = "shoal checkpoint", .tables = &table, .table_count = 1};
        if (verbs[i].section) {
            const shoal_status status = shoali_flags_help(&args, &text);
            SHOAL_ASSERT(status == SHOAL_OK); /* no group is asked for */
        }
        fputs(shoali_str_get(&text), stdout);
        puts("");
        shoali_str_fini(&text);
    }
    puts("`prune` keeps the checkpoint named by `latest`, checkpoints of later steps, "
         "checkpoints that fail\n"
         "verification, and every checkpoint with another name than global_stepN.\n\n"
         "Exit codes: 0 success; 1 damaged checkpoint, or the folder cannot be read; 2 wrong "
         "usage, or no\n"
         "such checkpoint.");
}

static const struct verb *find_verb(const char *name)
{
    const char *names[VERBS];
    for (int i = 0; i < VERBS; i++) {
        names[i] = verbs[i].name;
        if (strcmp(name, names[i]) == 0)
            return &verbs[i];
    }
    const char *nearest = shoali_nearest(name, names, VERBS);
    fprintf(stderr,
            "shoal checkpoint: unknown command \"%s\"%s%s%s; the commands are verify, "
            "list, show, prune\n",
            name, nearest ? "; nearest is \"" : "", nearest ? nearest : "", nearest ? "\"" : "");
    return NULL;
}

static int run(const struct verb *verb, int argc, char **argv)
{
    shoal_status status = SHOAL_OK;
    struct options options = {0};
    struct shoali_arena arena;
    char command[64];
    int code = 2;
    shoali_arena_init(&arena);
    snprintf(command, sizeof command, "shoal checkpoint %s", verb->name);
    const struct shoali_flags table = {verb->section, &options};
    const struct shoali_flag_args args = {
        .command = command, .tables = &table, .table_count = verb->section ? 1 : 0};
    struct shoali_strings words = {0};
    if (verb->section)
        SHOAL_TRY(status, shoali_config_defaults(verb->section, &options, &arena), done);
    SHOAL_TRY(status, shoali_flags_parse(&args, argc, argv, &arena, &words), done);
    if (words.count != 1 || !*words.value[0]) {
        fprintf(stderr, "%s: name one folder: %s DIR [flags]\n", command, command);
        goto done;
    }
    code = verb->run(words.value[0], &options);
done:
    if (status < 0)
        code = tool_fail(status);
    shoali_arena_fini(&arena);
    return code;
}

int tool_checkpoint(int argc, char **argv)
{
    if (argc < 2 || tool_wants_help(argc, argv, NULL)) {
        print_help();
        const int code = tool_flush();
        return argc < 2 ? 2 : code;
    }
    const struct verb *verb = find_verb(argv[1]);
    return verb ? run(verb, argc - 1, argv + 1) : 2;
}
