/* The variables that a DLTS pod keeps in a file, as lines of a shell, and DeepSpeed's launcher
 * hands to its ranks. */
#include "launcher/run/run.h"

#include <stdio.h>
#include <string.h>

enum { VARIABLES_MAX = 4, LINE_BYTES = 1024 };

/* "NAME=value" of a line "export NAME=value", for the names that are passed on; else NULL. */
static char *pod_variable(char *line)
{
    static const char *const names[] = {"FC_TASKROLE_NAME", "FC_TASK_INDEX"};
    static const char word[] = "export ";
    if (strncmp(line, word, sizeof(word) - 1) != 0)
        return NULL;
    char *entry = line + sizeof(word) - 1;
    entry += strspn(entry, " \t");
    entry[strcspn(entry, " \t\r\n")] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcspn(entry, "=") == strlen(names[i]) && entry[strlen(names[i])] == '=' &&
            strncmp(entry, names[i], strlen(names[i])) == 0)
            return entry;
    return NULL;
}

char **shoali_pod_variables(const char *path, struct shoali_arena *arena)
{
    char **list = shoali_arena_alloc(arena, (VARIABLES_MAX + 1) * sizeof(char *));
    char line[LINE_BYTES];
    FILE *file = list ? fopen(path, "re") : NULL;
    int32_t count = 0;
    while (file && count < VARIABLES_MAX && fgets(line, sizeof(line), file)) {
        const char *entry = pod_variable(line);
        if (!entry)
            continue;
        list[count] = shoali_arena_strdup(arena, entry);
        if (!list[count++])
            list = NULL;
        if (!list)
            break;
    }
    if (file)
        fclose(file);
    return list;
}
