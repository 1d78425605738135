/* Which of a host's interfaces leads to the other ranks. */
#include "comm/ucx/backend.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char variable[] = "SHOAL_NETWORK";
/* Of the networks that exist in documents only (RFC 5737): the way there is the default route. */
static const char elsewhere[] = "192.0.2.1";

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

/* The bytes of an address; 0: it is none of the two kinds. */
static size_t bytes_of(const struct sockaddr *address, const unsigned char **bytes)
{
    if (address && address->sa_family == AF_INET) {
        *bytes = (const unsigned char *)&((const struct sockaddr_in *)address)->sin_addr;
        return sizeof(struct in_addr);
    }
    if (address && address->sa_family == AF_INET6) {
        *bytes = (const unsigned char *)&((const struct sockaddr_in6 *)address)->sin6_addr;
        return sizeof(struct in6_addr);
    }
    return 0;
}

static bool has_prefix(const unsigned char *address, const unsigned char *network, int64_t bits)
{
    const size_t whole = (size_t)bits / 8;
    const int left = (int)(bits % 8);
    return memcmp(address, network, whole) == 0 &&
           (left == 0 || (address[whole] ^ network[whole]) >> (8 - left) == 0);
}

/* The interface that is up and has an address in the network. */
static const char *find_in(const struct ifaddrs *all, const unsigned char *network, size_t length,
                           int64_t bits)
{
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        const unsigned char *address = NULL;
        if ((at->ifa_flags & IFF_UP) && bytes_of(at->ifa_addr, &address) == length &&
            has_prefix(address, network, bits))
            return at->ifa_name;
    }
    return NULL;
}

static shoal_status fail_of_variable(const struct ifaddrs *all, const char *text)
{
    char list[256] = "", address[INET6_ADDRSTRLEN];
    size_t at = 0;
    for (const struct ifaddrs *i = all; i && at + 64 < sizeof list; i = i->ifa_next) {
        const unsigned char *bytes = NULL;
        if (bytes_of(i->ifa_addr, &bytes) == sizeof(struct in_addr) &&
            inet_ntop(AF_INET, bytes, address, sizeof address))
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s %s", at ? ", " : "",
                                   i->ifa_name, address);
    }
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s=\"%.60s\" is neither an interface of this host nor a network that one of "
                      "them is in; it has %s",
                      variable, text, list);
}

/* "eth1", or "10.0.0.0/16". */
static shoal_status find_wanted(const struct ifaddrs *all, const char *text,
                                struct shoali_ucx_network *network)
{
    unsigned char wanted[sizeof(struct in6_addr)];
    char word[INET6_ADDRSTRLEN] = "";
    const char *slash = strchr(text, '/'), *found = NULL;
    int64_t bits = -1;
    network->wanted = true;
    if (!slash) {
        for (const struct ifaddrs *at = all; at && !found; at = at->ifa_next)
            found = strcmp(at->ifa_name, text) == 0 ? at->ifa_name : NULL;
    } else if ((size_t)(slash - text) < sizeof word && shoali_parse_i64(slash + 1, &bits)) {
        memcpy(word, text, (size_t)(slash - text));
        if (bits >= 0 && bits <= 32 && inet_pton(AF_INET, word, wanted) == 1)
            found = find_in(all, wanted, sizeof(struct in_addr), bits);
        else if (bits >= 0 && bits <= 128 && inet_pton(AF_INET6, word, wanted) == 1)
            found = find_in(all, wanted, sizeof(struct in6_addr), bits);
    }
    if (!found)
        return fail_of_variable(all, text);
    snprintf(network->device, sizeof network->device, "%s", found);
    return SHOAL_OK;
}

/* From where this host would send to an address; nothing is sent. */
static bool find_source(const struct addrinfo *to, struct sockaddr_storage *source)
{
    socklen_t length = sizeof *source;
    const int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool found = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
                       getsockname(fd, (struct sockaddr *)source, &length) == 0;
    if (fd >= 0)
        close(fd);
    return found;
}

/* The interface on the way to a host, but for loopback ones. */
static const char *find_way(const struct ifaddrs *all, const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *list = NULL;
    const char *found = NULL;
    if (getaddrinfo(host, "9", &hints, &list) != 0)
        return NULL;
    for (const struct addrinfo *at = list; at && !found; at = at->ai_next) {
        struct sockaddr_storage source = {0};
        const unsigned char *bytes = NULL;
        if (!find_source(at, &source))
            continue;
        const size_t length = bytes_of((const struct sockaddr *)&source, &bytes);
        const char *name = length ? find_in(all, bytes, length, (int64_t)length * 8) : NULL;
        for (const struct ifaddrs *i = all; i && name && !found; i = i->ifa_next)
            if (strcmp(i->ifa_name, name) == 0 && !(i->ifa_flags & IFF_LOOPBACK))
                found = name;
    }
    freeaddrinfo(list);
    return found;
}

/* Where a host's own name leads to itself alone (127.0.1.1), its default route is as good a
 * guess. */
shoal_status shoali_ucx_find_network(const char *master_addr, struct shoali_ucx_network *network)
{
    struct ifaddrs *all = NULL;
    const char *hosts = getenv("CROSS_SIZE"), *found = NULL;
    shoal_status status = SHOAL_OK;
    int64_t count = 1;
    *network = (struct shoali_ucx_network){0};
    if (getifaddrs(&all) != 0)
        return SHOAL_OK;
    if (is_set(variable)) {
        SHOAL_TRY(status, find_wanted(all, getenv(variable), network), done);
        goto done;
    }
    if (is_set("UCX_NET_DEVICES"))
        goto done;
    found = find_way(all, master_addr);
    if (!found && hosts && shoali_parse_i64(hosts, &count) && count > 1)
        found = find_way(all, elsewhere);
    snprintf(network->device, sizeof network->device, "%s", found ? found : "");
done:
    freeifaddrs(all);
    return status;
}
