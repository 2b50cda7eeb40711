// Loads a library after its start and computes there; unloads it and loads it again.
// Usage: loader SECONDS LIBRARY
#include <dlfcn.h>

#include "workload.h"

static NOINLINE uint64_t use_library(const char *path, uint64_t value) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    uint64_t (*run)(uint64_t);
    *(void **)&run = dlsym(library, "plugin_run");
    if (!run) exit(1);
    value = run(value);
    AFTER_CALL(value);
    dlclose(library);
    return value;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    uint64_t value = 1;
    while (!workload_over(deadline_ns)) value = use_library(argv[2], value);
    workload_report("\"main\",\"use_library\",\"plugin_run\",\"plugin_burn\"");
    return value == 42;
}
