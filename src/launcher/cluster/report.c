/* What a host answers to the pre-flight: lines of a key and a value, and "end". */
#include "launcher/cluster/cluster.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/pool.h"
#include "comm/folder.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

shoal_status shoali_file_hash(const char *path, char text[17])
{
    shoal_status status = SHOAL_OK;
    char *part = NULL;
    struct shoali_hash64_stream *stream = NULL;
    FILE *file = fopen(path, "re");
    enum { PART_BYTES = 1 << 16 };
    if (!file)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s", path, strerror(errno));
    part = shoali_malloc(PART_BYTES, "a part of a file");
    stream = shoali_hash64_begin();
    if (!part || !stream) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (size_t count; (count = fread(part, 1, PART_BYTES, file)) > 0;)
        shoali_hash64_add(stream, part, count);
    if (ferror(file))
        status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot read", path);
    snprintf(text, 17, "%016llx", (unsigned long long)shoali_hash64_get(stream));
done:
    shoali_hash64_end(stream);
    shoali_free(part);
    fclose(file);
    return status;
}

/* An address by which other hosts reach this one, "" when it has none. */
static void own_address(char *text, size_t bytes)
{
    const char *connection = getenv("SSH_CONNECTION"); /* client port server port */
    struct ifaddrs *list = NULL;
    char server[64] = "";
    *text = '\0';
    if (connection && sscanf(connection, "%*s %*s %63s", server) == 1 &&
        strncmp(server, "127.", 4) != 0 && strcmp(server, "::1") != 0) {
        snprintf(text, bytes, "%s", server);
        return;
    }
    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *at = list; at && !*text; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK) ||
            !(at->ifa_flags & IFF_UP))
            continue;
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr,
                  text, (socklen_t)bytes);
    }
    freeifaddrs(list);
}

static void add_hash(struct shoali_str *out, const char *key, const char *path)
{
    char hash[17];
    if (path && shoali_file_hash(path, hash) == SHOAL_OK)
        shoali_str_append(out, "%s %s\n", key, hash);
    else if (path)
        shoali_str_append(out, "%s missing %s\n", key, path);
}

static shoal_status add_port(const struct shoali_launch_options *options, struct shoali_str *out)
{
    int32_t port = 0;
    int keeper = -1;
    const int32_t wanted =
        options->master_port > 0 ? (int32_t)options->master_port : SHOAL_ANY_PORT;
    if (shoali_port_choose(wanted, &port, &keeper) == SHOAL_OK)
        shoali_str_append(out, "port %d\n", (int)port);
    else
        shoali_str_append(out, "port busy\n");
    if (keeper >= 0)
        close(keeper);
    return SHOAL_OK;
}

/* Ranks share memory without /dev/shm, too. */
static void add_shared_memory(struct shoali_str *out)
{
    struct statvfs info;
    int64_t total, available;
    shoali_memory_read("", &total, &available);
    if (shoali_folder_is_memory() && statvfs(SHOALI_FOLDER_MEMORY, &info) == 0)
        available = (int64_t)info.f_bavail * (int64_t)info.f_frsize;
    shoali_str_append(out, "shm %lld\n", (long long)available);
}

shoal_status shoali_report(const struct shoali_launch_options *options, const char *const *program,
                           char **text)
{
    shoal_status status = SHOAL_OK;
    struct shoali_arena arena;
    struct shoali_str out = {0};
    struct timespec now;
    const char *path = NULL;
    char address[64];
    shoali_arena_init(&arena);
    if (options->secret_from == SHOALI_FROM_DEPOSIT)
        SHOAL_TRY(status,
                  shoali_secret_message_deposit(STDIN_FILENO, options->job_id,
                                                (int32_t)options->node_rank, &arena),
                  done);
    if (options->node_rank == 0)
        SHOAL_TRY(status, add_port(options, &out), done);
    own_address(address, sizeof(address));
    shoali_str_append(&out, "version %s\n", SHOAL_VERSION);
    add_hash(&out, "binary", "/proc/self/exe");
    if (program[0] && shoali_program_find(program[0], &arena, &path) == SHOAL_OK)
        add_hash(&out, "program", path);
    else if (program[0])
        shoali_str_append(&out, "program missing %s\n", program[0]);
    add_hash(&out, "config", shoali_program_flag(program, "deepspeed-config"));
    if (*address)
        shoali_str_append(&out, "address %s\n", address);
    add_shared_memory(&out);
    shoali_str_append(&out, "cores %d\n", (int)shoali_core_count());
    /* Last, as what is compared with is when this line comes. */
    clock_gettime(CLOCK_REALTIME, &now);
    shoali_str_append(&out, "clock %lld.%09ld\nend\n", (long long)now.tv_sec, now.tv_nsec);
    if (out.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the report");
    else
        *text = out.text;
done:
    if (status < 0)
        shoali_str_fini(&out);
    shoali_arena_fini(&arena);
    return status;
}
