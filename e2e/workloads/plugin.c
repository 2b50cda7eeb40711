// A library that is loaded, used for a while, unloaded and loaded again by `loader`.
#include "workload.h"

static NOINLINE uint64_t plugin_burn(uint64_t value) { return workload_spin(value); }

__attribute__((noinline)) uint64_t plugin_run(uint64_t value) {
    for (int i = 0; i < 100; i++) value = plugin_burn(value);
    AFTER_CALL(value);
    return value;
}
