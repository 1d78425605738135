#include "comm/p2p/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool exists(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file)
        fclose(file);
    return file != NULL;
}

/* The file beside this program or library, or its bare name. */
static void locate(const char *file, char *path, size_t bytes)
{
    static const char *const places[] = {"", "../lib/", "shoal/", "../lib/shoal/"};
    char folder[3072] = "";
    Dl_info self;
    if (dladdr((const void *)places, &self) && self.dli_fname)
        snprintf(folder, sizeof folder, "%s", self.dli_fname);
    if (!strchr(folder, '/')) { /* a program that was started by its bare name */
        const ssize_t count = readlink("/proc/self/exe", folder, sizeof folder - 1);
        folder[count > 0 ? count : 0] = '\0';
    }
    char *slash = strrchr(folder, '/');
    folder[slash ? slash + 1 - folder : 0] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, bytes, "%s%s%s", folder, places[i], file);
        if ((*folder || i == 0) && exists(path))
            return;
    }
    snprintf(path, bytes, "%s", file);
}

shoali_p2p_plugin_fn *shoali_p2p_plugin_find(const char *file, const char *symbol, bool global,
                                             const char **reason)
{
    const int flags = RTLD_NOW | RTLD_NODELETE | (global ? RTLD_GLOBAL : RTLD_LOCAL);
    char path[4096];
    shoali_p2p_plugin_fn *function = NULL;
    locate(file, path, sizeof path);
    void *library = dlopen(path, flags);
    void *found = library ? dlsym(library, symbol) : NULL;
    if (found)
        memcpy(&function, &found, sizeof function); /* ISO C has no cast from an object */
    else if (library == NULL)
        *reason = dlerror();
    return function;
}
