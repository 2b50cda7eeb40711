// Fibres of Boost.Context, which take turns with the thread.
// Usage: fibres SECONDS
#include <boost/context/fiber.hpp>

#include "workload.h"

namespace context = boost::context;

static volatile uint64_t value = 1;

extern "C" NOINLINE uint64_t burn(uint64_t start) { return workload_spin(start); }

extern "C" NOINLINE void take_turn() {
    uint64_t next = burn(value);
    AFTER_CALL(next);
    value = next;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    workload_begin();
    uint64_t deadline_ns = workload_deadline_ns(atof(argv[1]));
    context::fiber fiber{[](context::fiber &&thread) {
        for (;;) {
            take_turn();
            thread = std::move(thread).resume();
        }
        return std::move(thread);
    }};
    while (!workload_over(deadline_ns)) fiber = std::move(fiber).resume();
    workload_report("\"take_turn\",\"burn\"");
    _exit(0);
}
