/* Better one sentence before the start than N ranks that cannot meet. */
#include "launcher/run/run.h"

#include "base/log.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What the user asked for. A MASTER_PORT that a launcher around this one has set for its own ranks
 * is no wish of the user. */
static shoal_status read_wish(int32_t given, int32_t *wanted, const char **how)
{
    const char *text = getenv("MASTER_PORT");
    int64_t number = given;
    *how = "--master_port";
    *wanted = SHOAL_ANY_PORT;
    if (given == SHOAL_ANY_PORT)
        return SHOAL_OK;
    if (given == 0) {
        if (!text || !*text || getenv("SHOAL_JOB_ID"))
            return SHOAL_OK;
        *how = "MASTER_PORT";
        if (!shoali_parse_i64(text, &number))
            number = -1;
    }
    if (number < 1 || number > 65535)
        return given ? SHOAL_FAIL(SHOAL_EINVAL, "master port %d does not exist: give 1 to 65535",
                                  (int)given)
                     : SHOAL_FAIL(SHOAL_EINVAL,
                                  "MASTER_PORT=\"%s\" is no port: set 1 to 65535, or unset it to "
                                  "take a free one",
                                  text);
    *wanted = (int32_t)number;
    return SHOAL_OK;
}

static shoal_status cannot_use(int32_t wanted, const char *how, int code)
{
    if (wanted == SHOAL_ANY_PORT)
        return SHOAL_FAIL(SHOAL_EIO, "cannot find a free port: %s", strerror(code));
    if (code == EADDRINUSE)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "port %d (%s) is already in use: give another, or --master_port 0 for a "
                          "free one",
                          wanted, how);
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "port %d (%s) cannot be used: %s: give another, or --master_port 0 for a "
                      "free one",
                      wanted, how, strerror(code));
}

/* Binds. Once bound, SO_REUSEADDR lets rank 0 listen there, too, as long as this socket does not;
 * before, it could give two launchers the same free port (net.ipv4.ip_autobind_reuse). For a port
 * that was asked for it means that only a listener counts as its user, not the rest of the previous
 * job. */
static bool take(int descriptor, const struct sockaddr_in *address, bool any)
{
    const int yes = 1;
    if (!any && setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0)
        return false;
    if (bind(descriptor, (const struct sockaddr *)address, sizeof(*address)) != 0)
        return false;
    return any ? setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0
               : listen(descriptor, 1) == 0;
}

/* A port that was not asked for by its number is kept bound until the job's end, so that the system
 * gives it to nobody else. A port that was asked for is tried and let go. */
shoal_status shoali_port_choose(int32_t given, int32_t *port, int *keeper)
{
    shoal_status status = SHOAL_OK;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t bytes = sizeof(address);
    const char *how = "";
    int32_t wanted = 0;
    int descriptor = -1;
    SHOAL_TRY(status, read_wish(given, &wanted, &how), done);
    const bool any = wanted == SHOAL_ANY_PORT;
    descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot make a socket: %s", strerror(errno));
        goto done;
    }
    address.sin_port = htons((uint16_t)(any ? 0 : wanted));
    if (!take(descriptor, &address, any)) {
        status = cannot_use(wanted, how, errno);
        goto done;
    }
    if (getsockname(descriptor, (struct sockaddr *)&address, &bytes) != 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot ask for the port's number: %s", strerror(errno));
        goto done;
    }
    *port = ntohs(address.sin_port);
    SHOALI_DEBUG("launcher", "the ranks meet at port %d", (int)*port);
    if (any) {
        *keeper = descriptor;
        descriptor = -1;
    }
done:
    if (descriptor >= 0)
        close(descriptor);
    return status;
}
