/* [USER@]NAME slots=N, one host per line, as in DeepSpeed: empty lines and lines that begin with #
 * are skipped, and so is what follows the number. The user is for ssh; everything else knows a host
 * by its name. */
#include "launcher/hosts/hosts.h"

#include "base/plain.h"
#include "base/pool.h"
#include "base/str.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLOTS_MAX = 4096, NAME_BYTES = 256 };
static const char blanks[] = " \t\r";

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!a || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               IN_LOOPBACKNET;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static bool is_own_address(const struct sockaddr *address)
{
    struct ifaddrs *list = NULL;
    bool found = is_loopback(address);
    if (found || getifaddrs(&list) != 0)
        return found;
    for (const struct ifaddrs *at = list; at && !found; at = at->ifa_next)
        found = same_address(at->ifa_addr, address);
    freeifaddrs(list);
    return found;
}

/* "node1" and "node1.cluster" are one machine when one of them is without a domain. */
static bool is_own_name(const char *name)
{
    char own[NAME_BYTES] = "";
    if (shoali_strcasecmp(name, "localhost") == 0)
        return true;
    if (gethostname(own, sizeof(own) - 1) != 0 || !*own)
        return false;
    const size_t length = strcspn(name, "."), own_length = strcspn(own, ".");
    if (name[length] && own[own_length])
        return shoali_strcasecmp(name, own) == 0;
    return length == own_length && shoali_strncasecmp(name, own, length) == 0;
}

bool shoali_host_is_here(const char *name)
{
    const struct addrinfo numbers = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *address = NULL;
    if (getaddrinfo(name, NULL, &numbers, &address) != 0)
        return is_own_name(name);
    const bool found = is_own_address(address->ai_addr);
    freeaddrinfo(address);
    return found;
}

/* "slots=4", up to the next blank or a comment; 0: it is something else. */
static int32_t read_slots(const char *text)
{
    static const char key[] = "slots=";
    char *end;
    if (strncmp(text, key, sizeof(key) - 1) != 0 || !shoali_ascii_digit(text[sizeof(key) - 1]))
        return 0;
    errno = 0;
    const long count = strtol(text + sizeof(key) - 1, &end, 10);
    const bool ends = !*end || *end == '#' || strchr(blanks, *end);
    return ends && errno == 0 && count >= 1 && count <= SLOTS_MAX ? (int32_t)count : 0;
}

static bool is_own_user(const char *user, size_t length)
{
    char text[4096];
    struct passwd entry, *found = NULL;
    return getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) == 0 && found &&
           strlen(entry.pw_name) == length && strncmp(entry.pw_name, user, length) == 0;
}

/* Divides USER@NAME. This machine under another user is reached over ssh like any other. */
static shoal_status read_name(char *text, const struct shoali_hosts *hosts,
                              struct shoali_arena *arena, struct shoali_host *host)
{
    const char *at = strrchr(text, '@');
    host->name = at ? at + 1 : text;
    if (*text == '-' ||
        (at && (at == text || !at[1] || strcspn(text, ",:/") < (size_t)(at - text))))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%s:%d: \"%.80s\" is no host: write its name, or a user that ssh is to log "
            "in as before it, such as user@worker-0 slots=2",
            hosts->file, host->line, text);
    if (at && !(host->login = shoali_arena_strdup(arena, text)))
        return SHOAL_ENOMEM;
    host->here = shoali_host_is_here(host->name) && (!at || is_own_user(text, (size_t)(at - text)));
    return SHOAL_OK;
}

static shoal_status read_line(char *text, struct shoali_arena *arena, struct shoali_hosts *hosts,
                              struct shoali_host *host)
{
    shoal_status status;
    text += strspn(text, blanks);
    if (!*text || *text == '#')
        return SHOAL_OK;
    const size_t length = strcspn(text, blanks);
    char *rest = text + length + strspn(text + length, blanks);
    host->slots = read_slots(rest);
    if (host->slots == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s:%d: \"%.80s\" is no host: write its name and how many ranks it takes "
                          "(1 to %d), such as localhost slots=2",
                          hosts->file, host->line, text, SLOTS_MAX);
    text[length] = '\0';
    SHOAL_TRY(status, read_name(text, hosts, arena, host), done);
    for (int32_t i = 0; i < hosts->count; i++) {
        const struct shoali_host *other = &hosts->host[i];
        if (strcmp(other->name, host->name) == 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s:%d: host %s stands in line %d already", hosts->file,
                              host->line, host->name, other->line);
        if (other->here && host->here)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s:%d: %s is this machine, and so is %s in line %d: name it once, "
                              "with all its slots",
                              hosts->file, host->line, host->name, other->name, other->line);
    }
    hosts->count++;
done:
    return status;
}

static shoal_status read_text(char *text, struct shoali_arena *arena, struct shoali_hosts *hosts)
{
    int32_t lines = 1;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    hosts->host = shoali_arena_alloc(arena, (size_t)lines * sizeof(hosts->host[0]));
    if (!hosts->host)
        return SHOAL_ENOMEM;
    for (int32_t line = 1; line <= lines; line++) {
        const size_t length = strcspn(text, "\n");
        text[length] = '\0';
        struct shoali_host *host = &hosts->host[hosts->count];
        *host = (struct shoali_host){.line = line};
        const shoal_status status = read_line(text, arena, hosts, host);
        if (status < 0)
            return status;
        text += length + 1;
    }
    if (hosts->count == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "hostfile %s names no host: write lines such as localhost slots=2",
                          hosts->file);
    return SHOAL_OK;
}

static shoal_status localhost_alone(struct shoali_arena *arena, struct shoali_hosts *hosts)
{
    hosts->host = shoali_arena_alloc(arena, sizeof(hosts->host[0]));
    if (!hosts->host)
        return SHOAL_ENOMEM;
    hosts->host[0] =
        (struct shoali_host){.name = "localhost", .slots = shoali_core_count(), .here = true};
    hosts->count = 1;
    return SHOAL_OK;
}

shoal_status shoali_hosts_read(const char *file, struct shoali_arena *arena,
                               struct shoali_hosts *hosts)
{
    shoal_status status = SHOAL_OK;
    char *data = NULL, *text = NULL;
    size_t bytes = 0;
    *hosts = (struct shoali_hosts){.file = file};
    if (file) {
        status = shoali_read_text(file, &data, &bytes);
        if (status < 0)
            return status == SHOAL_ENOMEM
                       ? status
                       : SHOAL_FAIL(SHOAL_EINVAL, "hostfile %s", shoal_error_message());
        if (!(text = shoali_arena_strdup(arena, data + shoali_bom_bytes(data, bytes))))
            status = SHOAL_ENOMEM;
        else
            SHOAL_TRY(status, read_text(text, arena, hosts), done);
    } else {
        SHOAL_TRY(status, localhost_alone(arena, hosts), done);
    }
    for (int32_t i = 0; status == SHOAL_OK && i < hosts->count; i++) {
        struct shoali_host *host = &hosts->host[i];
        host->selected = shoali_arena_alloc(arena, (size_t)host->slots * sizeof(bool));
        if (!host->selected)
            status = SHOAL_ENOMEM;
    }
done:
    free(data);
    return status;
}
