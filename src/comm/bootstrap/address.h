/* address - where a name leads to. */
#ifndef SHOALI_ADDRESS_H
#define SHOALI_ADDRESS_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* getaddrinfo for a stream. Says that it waits when a name server does not answer. */
int shoali_address_find(const char *host, const char *port, struct addrinfo **addresses);
/* Has this host the address? *code: why that could not be tried. */
bool shoali_address_is_here(const struct addrinfo *at, int *code);
void shoali_address_set_port(struct addrinfo *at, int32_t port);
/* The ports that a firewall leaves open between the hosts (UCX_TCP_PORT_RANGE); 0 to 0: the system
 * chooses one. */
void shoali_address_port_range(int *first, int *last);
/* "10.0.0.1:4711" of the other end of a connection; returns `text`. */
const char *shoali_address_of_peer(int fd, char *text, size_t bytes);

#endif
