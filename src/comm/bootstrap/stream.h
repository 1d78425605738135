/* stream - connections of TCP that wait until a deadline.
 *
 * Sockets do not block. Who waits for long says so once, with the address of the other end
 * (base/waiting.h). Deadlines are times of shoali_now_ns.
 */
#ifndef SHOALI_STREAM_H
#define SHOALI_STREAM_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The connected socket, or -1 with errno. */
int shoali_stream_connect(const struct addrinfo *at, int64_t deadline_ns);
/* False: the connection is lost, or the deadline has passed (ETIMEDOUT). */
bool shoali_stream_send(int fd, const void *data, size_t bytes, int64_t deadline_ns);
bool shoali_stream_receive(int fd, void *data, size_t bytes, int64_t deadline_ns);
/* At least one byte and at most `bytes`; 0: the connection is lost, or ETIMEDOUT. */
size_t shoali_stream_receive_some(int fd, void *data, size_t bytes, int64_t deadline_ns);

#endif
