#include "comm/bootstrap/address.h"

#include "base/waiting.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WHAT_BYTES = 320 };

int shoali_address_find(const char *host, const char *port, struct addrinfo **addresses)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char what[WHAT_BYTES];
    const bool numbers = !host[strspn(host, "0123456789.")] || strchr(host, ':');
    snprintf(what, sizeof(what), "waiting for the address of the host \"%s\" (MASTER_ADDR)", host);
    struct shoali_waiting_aloud *aloud =
        numbers ? NULL : shoali_waiting_aloud_begin(SHOAL_LOG_WARNING, "comm", what);
    const int code = getaddrinfo(host, port, &hints, addresses);
    const int system = errno;
    shoali_waiting_aloud_end(aloud);
    errno = system;
    return code;
}

/* A socket can be bound to it. */
bool shoali_address_is_here(const struct addrinfo *at, int *code)
{
    struct sockaddr_storage address = {0};
    memcpy(&address, at->ai_addr, at->ai_addrlen);
    if (at->ai_family == AF_INET)
        ((struct sockaddr_in *)&address)->sin_port = 0;
    else if (at->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)&address)->sin6_port = 0;
    int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *code = fd < 0 && errno != EAFNOSUPPORT ? errno : *code;
    const bool here = fd >= 0 && bind(fd, (const struct sockaddr *)&address, at->ai_addrlen) == 0;
    if (fd >= 0)
        close(fd);
    return here;
}

void shoali_address_set_port(struct addrinfo *at, int32_t port)
{
    if (at->ai_family == AF_INET)
        ((struct sockaddr_in *)at->ai_addr)->sin_port = htons((uint16_t)port);
    else if (at->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)at->ai_addr)->sin6_port = htons((uint16_t)port);
}

void shoali_address_port_range(int *first, int *last)
{
    const char *text = getenv("UCX_TCP_PORT_RANGE");
    int end = 0;
    if (!text || sscanf(text, "%d-%d%n", first, last, &end) != 2 || text[end] || *first < 1 ||
        *last > 65535 || *last < *first)
        *first = *last = 0;
}

const char *shoali_address_of_peer(int fd, char *text, size_t bytes)
{
    char host[64] = "", port[8] = "";
    struct sockaddr_storage there = {0};
    socklen_t length = sizeof(there);
    if (getpeername(fd, (struct sockaddr *)&there, &length) != 0 ||
        getnameinfo((const struct sockaddr *)&there, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, bytes, "the other end");
    else
        snprintf(text, bytes, "%s:%s", host, port);
    return text;
}
