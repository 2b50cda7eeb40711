// A library that `loader` loads, uses for about a second, unloads and loads again.
#include "workload.h"

static NOINLINE uint64_t plugin_burn(uint64_t value) { return workload_spin(value); }

__attribute__((noinline)) uint64_t plugin_run(uint64_t value) {
    for (int i = 0; i < 2500; i++) value = plugin_burn(value);
    AFTER_CALL(value);
    return value;
}
