/* Where --local_rank=N stands in a rank's arguments: directly behind the program, as DeepSpeed's
 * launcher has it ([script, --local_rank=N, arguments]). The program of `python3 -u train.py a` is
 * train.py. Where a wrapper's own arguments end is not known: there it stands last. */
#include "launcher/run/run.h"

#include "base/stopped.h"

#include <string.h>
#include <sys/stat.h>

/* Flags of one letter: `value` takes a value; `code` takes the program itself. */
struct interpreter {
    const char *name; /* the name's beginning; a version may follow */
    const char *value, *code;
    bool shell; /* the code is not in the flag's own word, and $0 follows it */
};
static const struct interpreter interpreters[] = {
    {"python", "WX", "mc", false}, {"pypy", "WX", "mc", false}, {"sh", "oO", "c", true},
    {"bash", "oO", "c", true},     {"dash", "oO", "c", true},   {"ksh", "oO", "c", true},
    {"zsh", "oO", "c", true},      {"perl", "I", "eE", false},  {"ruby", "Ir", "e", false},
    {"julia", "pLC", "eE", false}, {"Rscript", "", "e", false}, {"node", "r", "ep", false},
};
static const char *const wrappers[] = {
    "apptainer", "chrt",   "conda",   "docker",      "env",    "gdb",     "heaptrack",
    "ionice",    "ltrace", "mpirun",  "ncu",         "nice",   "nohup",   "nsys",
    "numactl",   "perf",   "podman",  "rr",          "setsid", "srun",    "stdbuf",
    "strace",    "sudo",   "taskset", "singularity", "time",   "timeout", "valgrind",
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "python3.11" is a python, "pythonize" and "shoal" are not the interpreters they begin with. */
static const struct interpreter *interpreter_of(const char *name)
{
    for (size_t i = 0; i < sizeof interpreters / sizeof interpreters[0]; i++) {
        const size_t length = strlen(interpreters[i].name);
        if (strncmp(name, interpreters[i].name, length) == 0 &&
            strspn(name + length, "0123456789.") == strlen(name + length))
            return &interpreters[i];
    }
    return NULL;
}

static bool is_wrapper(const char *name)
{
    bool found = false;
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0] && !found; i++)
        found = strcmp(name, wrappers[i]) == 0;
    return found;
}

/* How many words a cluster of flags ("-um") takes beside its own; *code: one is the program. */
static size_t values_of(const struct interpreter *by, const char *flags, bool *code)
{
    for (; *flags && !*code; flags++) {
        *code = strchr(by->code, *flags) != NULL;
        if (by->shell && *code)
            return 0; /* behind all flags */
        if (*code || strchr(by->value, *flags))
            return flags[1] == '\0';
    }
    return 0;
}

static size_t words_of_script(const struct interpreter *by, const char *const *program)
{
    bool code = false;
    size_t at = 1;
    while (program[at] && program[at][0] == '-' && program[at][1] && (by->shell || !code)) {
        const char *word = program[at++];
        const size_t more = word[1] == '-' ? 0 : values_of(by, word + 1, &code);
        at += more && program[at];
        if (code && !by->shell)
            return at;
    }
    at += program[at] != NULL;
    return at + (code && program[at] ? 1 : 0);
}

/* How many words of a command line are the program: 1, and those up to an interpreter's script. */
static size_t program_words(const char *const *program)
{
    const char *name = base_name(program[0]);
    const struct interpreter *by = interpreter_of(name);
    size_t count = 1;
    if (by)
        return words_of_script(by, program);
    while (is_wrapper(name) && program[count]) /* behind all words */
        count++;
    return count;
}

shoal_status shoali_rank_arguments(struct shoali_job *job, int32_t rank, char ***argv)
{
    const char *const *program = job->args->program;
    const size_t first = program_words(program);
    size_t count = first;
    while (program[count])
        count++;
    char **list = shoali_arena_alloc(&job->arena, (count + 2) * sizeof(char *));
    if (!list)
        return SHOAL_ENOMEM;
    /* exec takes char *const[] but does not write to the strings. */
    memcpy(list, program, first * sizeof(char *));
    char **rest = list + first;
    if (!job->args->no_local_rank) {
        *rest = shoali_arena_printf(&job->arena, "--local_rank=%d", rank);
        if (!*rest++)
            return SHOAL_ENOMEM;
    }
    memcpy(rest, program + first, (count - first) * sizeof(char *));
    *argv = list;
    return SHOAL_OK;
}

const char *shoali_program_flag(const char *const *program, const char *name)
{
    const char *value = NULL, *rest;
    for (; *program; program++)
        if (shoali_word_is_flag(*program, name, &rest))
            value = *rest == '=' ? rest + 1 : program[1];
    return value;
}

bool shoali_program_is_self(const char *name)
{
    struct stat own, other;
    const char *path;
    struct shoali_arena arena;
    bool same = false;
    shoali_arena_init(&arena);
    if (shoali_program_find(name, &arena, &path) == SHOAL_OK)
        same = stat("/proc/self/exe", &own) == 0 && stat(path, &other) == 0 &&
               own.st_dev == other.st_dev && own.st_ino == other.st_ino;
    shoali_error_clear();
    shoali_arena_fini(&arena);
    return same;
}
