/* What the front says while it waits for hosts. */
#include "launcher/cluster/front_watch.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

void shoali_watch_say_silent(const struct shoali_watch *watch, struct shoali_waiting *waiting)
{
    char list[160] = "";
    size_t at = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < watch->front->world.nodes; i++) {
        const char *host = watch->front->world.node[i].name;
        if (watch->received_ns[i] > 0)
            continue;
        if (at + strlen(host) + 3 < sizeof(list))
            at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", count ? ", " : "", host);
        count++;
    }
    if (count > 0 && shoali_waiting_due(waiting, NULL))
        SHOALI_WARN("launcher",
                    "waiting for %.0f s for %d of %d hosts to start their ranks: %s; %s has not "
                    "connected, or waits for resources",
                    shoali_waiting_seconds(waiting), (int)count, (int)watch->front->world.nodes,
                    list, watch->front->command[0].words.value[0]);
}

void shoali_watch_say_saving(const struct shoali_watch *watch, struct shoali_waiting *waiting)
{
    if (shoali_waiting_due(waiting, NULL))
        SHOALI_WARN("launcher",
                    "waiting for %.0f s for the ranks of %d hosts to save and end; a second signal "
                    "ends them at once",
                    shoali_waiting_seconds(waiting), (int)watch->front->world.nodes);
}
