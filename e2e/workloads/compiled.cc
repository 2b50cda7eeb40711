// Compiled at run time: computes Fibonacci numbers until it is ended.
namespace app {
volatile int order = 20, sink;

__attribute__((noinline)) int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
} // namespace app

int main() {
    for (;;) app::sink = app::fibonacci(app::order);
}
