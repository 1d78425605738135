/* tool - what the files of the `shoal` program share.
 *
 * One file per subcommand, or a room; main.c has the table. Rooms, in their order: a room includes
 * those before it, and this header.
 *   flags/     flags that several subcommands have (flags.h)
 *   pretrain/  `shoal pretrain` (pretrain.h)
 *   plan/      `shoal plan` (plan.h)
 *   bench/     `shoal bench` and `shoal tune` (bench.h)
 *
 * Tools use public headers only, apart from base/config_table.h and what it needs, by which a
 * tool's flags are a table too: --help and the checks of flags then come from the same rows as
 * everywhere else.
 */
#ifndef SHOAL_TOOL_H
#define SHOAL_TOOL_H

#include "shoal/mesh.h"
#include "shoal/status.h"

#include <stddef.h>

struct tool {
    const char *name, *summary;
    /* argv[0] is the subcommand's name. Returns the exit code: 0; 1: a run failed, or its output
     * could not be written; 2: wrong usage or configuration; 3: `plan`: it does not fit; 141: the
     * reader of the output left, like a program that SIGPIPE ends. */
    int (*run)(int argc, char **argv);
};
/* All subcommands, `count` of them; those that this build does not have have no `run`. */
const struct tool *tool_table(size_t *count);
/* Finds a subcommand; else says what is nearest and returns NULL. */
const struct tool *tool_find(const char *name);

/* NULL in a build without a part that they need (tools/CMakeLists.txt). */
#define TOOL_OPTIONAL __attribute__((weak))
TOOL_OPTIONAL int tool_run(int argc, char **argv);
TOOL_OPTIONAL int tool_pretrain(int argc, char **argv);
TOOL_OPTIONAL int tool_preprocess(int argc, char **argv);
TOOL_OPTIONAL int tool_plan(int argc, char **argv);
TOOL_OPTIONAL int tool_generate(int argc, char **argv);
TOOL_OPTIONAL int tool_convert(int argc, char **argv);
TOOL_OPTIONAL int tool_inspect(int argc, char **argv);
TOOL_OPTIONAL int tool_bench(int argc, char **argv);
TOOL_OPTIONAL int tool_tune(int argc, char **argv);
TOOL_OPTIONAL int tool_tokenizer(int argc, char **argv);
TOOL_OPTIONAL int tool_top(int argc, char **argv);
int tool_checkpoint(int argc, char **argv);
int tool_diff(int argc, char **argv);
int tool_elastic(int argc, char **argv);
int tool_plot(int argc, char **argv);
int tool_report(int argc, char **argv);
int tool_help(int argc, char **argv);

/* Shows the error of a status on standard error; returns the exit code for it. */
int tool_fail(shoal_status status);
/* The same of one of several ranks: one sentence for all of them, with the rank's place in the mesh
 * (NULL: none yet) where it is not the first that speaks. */
int tool_fail_of_ranks(shoal_status status, const shoal_mesh *mesh);
/* Writes out what was printed; exit code 1, and a sentence, when standard output does not take all
 * of it; 141 without a word when its reader left. */
int tool_flush(void);
/* Prints and frees `text`, and flushes. */
int tool_print(char *text);
/* Writes and frees `text`: all of it to a file, or none. Exit code 2, and a sentence, when the
 * file cannot be written. */
int tool_write(const char *path, char *text);
/* 1 when a word is --help, -h or --help-all; *help (NULL: not wanted) is what it asks for. */
struct shoali_help;
int tool_wants_help(int argc, char **argv, struct shoali_help *help);
/* The value of a flag, as "FLAG=VALUE" or in the next word, which *at goes to; NULL: argv[*at] is
 * another word. Without a value: "". */
const char *tool_take_value(int argc, char **argv, int *at, const char *flag);
/* Replaces pipes that are given as configuration or hostfile by files in memory (pipe.c). */
SHOAL_CHECKED shoal_status tool_keep_pipes(int argc, char **argv);
/* Refuses arguments of a tool that takes none; 0 when there are none, else exit code 2. */
int tool_no_arguments(int argc, char **argv);

#endif
