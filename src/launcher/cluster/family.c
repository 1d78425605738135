/* What the front's commands have started on this machine. pdsh and mpirun give each of their ssh a
 * session of its own, and leave it when they are killed; one to a host that is gone waits for
 * minutes. Guards end by themselves. */
#include "launcher/cluster/front_watch.h"

#include "base/plain.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_child_of(const struct shoali_family *family, int32_t from, int32_t parent)
{
    bool found = false;
    for (int32_t i = from; i < family->count && !found; i++)
        found = family->member[i].pid == parent;
    return found;
}

static void keep(struct shoali_family *family, const struct shoali_process *process)
{
    if (family->count == family->capacity) {
        const int32_t capacity = 2 * family->capacity + 64;
        struct shoali_process *larger =
            realloc(family->member, (size_t)capacity * sizeof(larger[0]));
        if (!larger)
            return;
        family->member = larger;
        family->capacity = capacity;
    }
    family->member[family->count++] = *process;
}

/* One generation: the children of members from `from` on. */
static void add_children(struct shoali_family *family, int32_t from)
{
    const int32_t parents = family->count;
    struct shoali_process process;
    const struct dirent *entry;
    int64_t pid;
    DIR *folder = opendir("/proc");
    while (folder && (entry = readdir(folder)))
        if (shoali_ascii_digit(entry->d_name[0]) && shoali_parse_i64(entry->d_name, &pid) &&
            shoali_process_read((int32_t)pid, &process) && process.pid != getpid() &&
            strcmp(process.name, SHOALI_GUARD_NAME) != 0 &&
            is_child_of(&(struct shoali_family){.member = family->member, .count = parents}, from,
                        process.parent))
            keep(family, &process);
    if (folder)
        closedir(folder);
}

void shoali_family_find(const struct shoali_watch *watch, struct shoali_family *family)
{
    enum { GENERATIONS = 8 };
    struct shoali_process process;
    *family = (struct shoali_family){0};
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->child[i].running && shoali_process_read((int32_t)watch->child[i].pid, &process))
            keep(family, &process);
    for (int32_t from = 0, i = 0; i < GENERATIONS && from < family->count; i++) {
        const int32_t next = family->count;
        add_children(family, from);
        from = next;
    }
}

/* The descriptor is taken before the process is looked at, so that its number is its own. */
void shoali_family_end(struct shoali_family *family)
{
    for (int32_t i = 0; i < family->count; i++) {
        const int descriptor = shoali_process_open(family->member[i].pid);
        if (descriptor < 0)
            continue;
        if (shoali_process_is_there(&family->member[i]))
            syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, NULL, 0);
        close(descriptor);
    }
    free(family->member);
    *family = (struct shoali_family){0};
}
