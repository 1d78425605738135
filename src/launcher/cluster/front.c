#include "launcher/cluster/cluster.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

shoal_status shoali_world_find(const struct shoali_launch_options *options,
                               const shoal_launch_args *args, struct shoali_arena *arena,
                               struct shoali_world *world)
{
    shoal_status status;
    struct shoali_hosts hosts;
    const bool filtered = args->include || args->exclude;
    if (options->launcher == SHOALI_BY_SLURM && !args->hostfile)
        return shoali_slurm_world(args, arena, world);
    SHOAL_TRY(status, shoali_hosts_read(args->hostfile, arena, &hosts), done);
    SHOAL_TRY(status, shoali_slots_select(args->include, args->exclude, &hosts), done);
    /* Without a word about them, ranks are not as many as this machine has cores. */
    const int32_t ranks = args->ranks || filtered || args->hostfile ? args->ranks : 1;
    SHOAL_TRY(status, shoali_world_make(&hosts, args->num_nodes, ranks, arena, world), done);
done:
    return status;
}

enum { PORT_FIRST = 20000, PORT_COUNT = 12000 }; /* below those that the system hands out */

bool shoali_front_needed(const struct shoali_launch_options *options,
                         const struct shoali_world *world)
{
    return !options->no_ssh && (options->force_multi || world->nodes > 1 || !world->node[0].here ||
                                (options->launcher == SHOALI_BY_SLURM && !world->file));
}

shoal_status shoali_front_choose_launcher(struct shoali_front *front)
{
    static const char *const programs[SHOALI_LAUNCHER_COUNT] = {
        [SHOALI_BY_PDSH] = "pdsh",  [SHOALI_BY_OPENMPI] = "mpirun", [SHOALI_BY_MVAPICH] = "mpirun",
        [SHOALI_BY_SLURM] = "srun", [SHOALI_BY_MPICH] = "mpirun",   [SHOALI_BY_IMPI] = "mpirun",
        [SHOALI_BY_SSH] = "ssh"};
    const bool given = shoali_config_given(&shoali_launch_section, front->options, "launcher");
    const char *path;
    front->launcher = (enum shoali_remote_launcher)front->options->launcher;
    if (!given && shoali_program_find("pdsh", front->arena, &path) < 0)
        front->launcher = SHOALI_BY_SSH;
    const char *program = programs[front->launcher];
    for (int32_t i = 0; i < front->world.nodes; i++)
        if (front->world.node[i].login && front->launcher != SHOALI_BY_SSH &&
            front->launcher != SHOALI_BY_PDSH)
            return SHOAL_FAIL(
                SHOAL_EINVAL,
                "%s:%d: %s names a user, and --launcher %s takes none: write %s alone, "
                "or take --launcher ssh or pdsh",
                front->world.file, (int)front->world.node[i].line, front->world.node[i].login,
                shoali_launcher_name_of(front->launcher), front->world.node[i].name);
    if (front->options->dry_run)
        return SHOAL_OK;
    if (shoali_program_find(program, front->arena, &path) == SHOAL_OK)
        return shoali_front_check_launcher(front, path);
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "--launcher %s: %s is not in PATH: install it, or take another launcher (ssh "
                      "needs nothing else)",
                      shoali_launcher_name_of(front->launcher), program);
}

/* The address by which this machine reaches a host is the one by which the host reaches it. */
static const char *address_towards(const char *host, struct shoali_arena *arena)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *list = NULL;
    struct sockaddr_in own = {0};
    socklen_t bytes = sizeof(own);
    char text[INET_ADDRSTRLEN] = "";
    if (getaddrinfo(host, "9", &hints, &list) != 0)
        return NULL;
    const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor >= 0 && connect(descriptor, list->ai_addr, list->ai_addrlen) == 0 &&
        getsockname(descriptor, (struct sockaddr *)&own, &bytes) == 0)
        inet_ntop(AF_INET, &own.sin_addr, text, sizeof(text));
    if (descriptor >= 0)
        close(descriptor);
    freeaddrinfo(list);
    return *text ? shoali_arena_strdup(arena, text) : NULL;
}

/* NULL: the first host will say, or its name will do. */
static void choose_address(struct shoali_front *front)
{
    const struct shoali_world *world = &front->world;
    front->master_addr = front->args->master_addr;
    if (!front->master_addr && world->nodes == 1 && world->node[0].here)
        front->master_addr = "127.0.0.1";
    for (int32_t i = 1; i < world->nodes && !front->master_addr && world->node[0].here; i++)
        front->master_addr = address_towards(world->node[i].name, front->arena);
}

static bool has_preflight(const struct shoali_front *front)
{
    return !front->options->no_preflight && !front->options->no_ssh_check &&
           front->launcher != SHOALI_BY_SLURM;
}

static shoal_status fill_address(struct shoali_front *front)
{
    if (front->master_addr || (front->launcher == SHOALI_BY_SLURM && !front->world.file))
        return SHOAL_OK;
    front->master_addr = front->world.node[0].name;
    if (strcmp(front->master_addr, "localhost") != 0 || front->world.nodes == 1)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "the other hosts cannot reach the first one by the name localhost: give its "
                      "address with --master_addr");
}

static shoal_status choose_port(struct shoali_front *front)
{
    const char *text = getenv("MASTER_PORT");
    int64_t number = front->args->master_port;
    if (number == 0 && text && *text && !getenv("SHOAL_JOB_ID") &&
        (!shoali_parse_i64(text, &number) || number < 1 || number > 65535))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "MASTER_PORT=\"%s\" is no port: set 1 to 65535, or unset it to take a "
                          "free one",
                          text);
    front->master_port = number > 0 ? (int32_t)number : 0;
    return SHOAL_OK;
}

/* The namespace 0 keeps a host from judging by its own processes that the job is gone. */
static shoal_status make_id(struct shoali_front *front)
{
    uint32_t random = 0;
    shoal_status status = shoali_random(&random, sizeof(random));
    snprintf(front->job_id, sizeof(front->job_id), "%d.0.%08x", (int)getpid(), (unsigned)random);
    return status;
}

static int32_t draw_port(const struct shoali_front *front)
{
    const unsigned long random = strtoul(strrchr(front->job_id, '.') + 1, NULL, 16);
    return PORT_FIRST + (int32_t)(random % PORT_COUNT);
}

static shoal_status find_self(struct shoali_front *front)
{
    char path[4096], folder[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length <= 0 || !getcwd(folder, sizeof(folder)))
        return SHOAL_FAIL(SHOAL_EIO,
                          "cannot find the path of this program, or the current folder: "
                          "%s",
                          strerror(errno));
    path[length] = '\0';
    front->self = shoali_arena_strdup(front->arena, path);
    front->folder = shoali_arena_strdup(front->arena, folder);
    return front->self && front->folder ? SHOAL_OK : SHOAL_ENOMEM;
}

static shoal_status print_commands(const struct shoali_front *front, char **dry)
{
    struct shoali_str text = {0};
    if (front->launcher == SHOALI_BY_SSH || front->launcher == SHOALI_BY_PDSH) {
        shoali_str_append(&text, "# %s: the job's secret",
                          front->launcher == SHOALI_BY_SSH ? "on standard input of each"
                                                           : "left on each host by the pre-flight");
        for (int32_t i = 0; i < front->message.variables.count; i++) {
            const char *entry = shoali_text_list_at(&front->message.variables, i);
            shoali_str_append(&text, ", %.*s", (int)strcspn(entry, "="), entry);
        }
    } else {
        shoali_str_append(&text, "# in its environment, too: SHOAL_SECRET");
    }
    shoali_str_append(&text, "\n");
    for (int32_t i = 0; i < front->commands; i++) {
        for (int32_t k = 0; k < front->assignments.count; k++) {
            const char *entry = shoali_text_list_at(&front->assignments, k);
            const int name = (int)strcspn(entry, "=") + 1;
            shoali_str_append(&text, "%.*s", name, entry);
            shoali_shell_quote(&text, entry + name);
            shoali_str_append(&text, " ");
        }
        shoali_text_list_print(&front->command[i].words, &text);
        shoali_str_append(&text, "\n");
    }
    *dry = text.text;
    return text.failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the commands") : SHOAL_OK;
}

/* What a pipe said is a descriptor here, and not on the other hosts. */
static shoal_status check_config(const char *const *program)
{
    const char *path = shoali_program_flag(program, "deepspeed-config");
    if (!path || (strncmp(path, "/dev/fd/", 8) != 0 && strncmp(path, "/proc/self/fd/", 14) != 0))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "--deepspeed_config %s is a pipe of this process, which other hosts cannot "
                      "read: write the configuration to a file that every host has",
                      path);
}

static shoal_status prepare(struct shoali_front *front)
{
    shoal_status status;
    if (!front->args->program[0])
        return SHOAL_FAIL(SHOAL_EINVAL, "no program to start: write it after the flags");
    SHOAL_TRY(status, check_config(front->args->program), done);
    SHOAL_TRY(status, shoali_front_choose_launcher(front), done);
    SHOAL_TRY(status, find_self(front), done);
    SHOAL_TRY(status, make_id(front), done);
    SHOAL_TRY(status, shoali_secret_draw(front->message.secret), done);
    if (front->overseer)
        shoali_text_list_add_all(&front->message.variables, front->overseer->variables);
    SHOAL_TRY(
        status,
        shoali_exports_collect(front->args->program[0], front->folder, &front->message.variables),
        done);
    SHOAL_TRY(status, choose_port(front), done);
    choose_address(front);
done:
    return status;
}

shoal_status shoali_front_run(const struct shoali_launch_options *options,
                              const shoal_launch_args *args, const struct shoali_world *world,
                              struct shoali_overseer *overseer, struct shoali_arena *arena,
                              char **dry, int *exit_code)
{
    shoal_status status;
    const char *pid_file = NULL;
    struct shoali_front front = {.options = options,
                                 .overseer = overseer,
                                 .args = args,
                                 .arena = arena,
                                 .world = *world,
                                 .message.variables.arena = arena};
    SHOAL_TRY(status, prepare(&front), done);
    if (!options->dry_run && (has_preflight(&front) || front.launcher == SHOALI_BY_PDSH))
        SHOAL_TRY(status, shoali_preflight(&front), done);
    SHOAL_TRY(status, fill_address(&front), done);
    if (!front.master_port)
        front.master_port = draw_port(&front);
    SHOAL_TRY(status, shoali_commands_make(&front), done);
    /* With ssh and pdsh the launchers of the hosts do it. */
    if (args->save_pid && !options->dry_run && front.launcher != SHOALI_BY_SSH &&
        front.launcher != SHOALI_BY_PDSH)
        SHOAL_TRY(status, shoali_pid_file_write(0, arena, &pid_file), done);
    if (options->dry_run)
        status = print_commands(&front, dry);
    else
        status = shoali_watch(&front, exit_code);
done:
    if (pid_file)
        unlink(pid_file);
    memset(front.message.secret, 0, sizeof(front.message.secret));
    return status;
}
